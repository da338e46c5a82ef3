//! Legs of one flow that come by receivers and links of their own: in turn, on one thread, and none of them at the other's
//! cost.

mod links;
#[path = "../netns/mod.rs"]
mod netns;
mod receivers;
#[path = "../support/mod.rs"]
mod support;
