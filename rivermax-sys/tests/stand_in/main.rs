//! The stand-in, through the `Result` level: what the documents say of the library, and what is unkind in it.

#[path = "../common/mod.rs"]
mod common;

mod chunks;
mod events;
mod failures;
mod flows;
mod layout;
mod memory;
mod placement;
mod queue;
