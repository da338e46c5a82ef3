//! Reception by Rivermax, with the stand-in in place of library and card. It proves the order of calls, the rules on memory
//! and the way of the octets; it proves nothing about speed, GPUDirect or a card's time stamps. What every receiver does is
//! in `receivers`, the program in `cli_rivermax`.
#![cfg(feature = "rivermax-stand-in")]

mod card;
mod errors;
#[cfg(feature = "cuda")]
mod gpu;
mod legs;
#[cfg(feature = "cuda")]
#[path = "../support/on_gpu.rs"]
mod on_gpu;
mod opening;
#[path = "../support/played.rs"]
mod played;
mod properties;
mod ring;
#[path = "../support/mod.rs"]
mod support;
