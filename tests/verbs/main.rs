//! Reception by ibverbs, with the stand-in in place of library and card. It proves the order of calls, the rules on memory and
//! entries, and the way of the octets; it proves nothing about speed, GPUDirect or a card's time stamps. What every receiver does
//! is in `receivers`.

mod card;
mod errors;
#[cfg(feature = "cuda")]
mod gpu;
mod library;
#[cfg(feature = "cuda")]
#[path = "../support/on_gpu.rs"]
mod on_gpu;
mod opening;
#[path = "../support/played.rs"]
mod played;
mod program;
mod properties;
mod removed;
mod ring;
mod stamps;
mod stand_in;
#[path = "../support/mod.rs"]
mod support;
