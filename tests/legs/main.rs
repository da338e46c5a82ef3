//! Legs of one flow that come by receivers of their own: in turn, on one thread, and none of them at the other's cost.

mod receivers;
#[path = "../support/mod.rs"]
mod support;
