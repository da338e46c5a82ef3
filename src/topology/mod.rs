//! The shape of the machine: NUMA nodes and their cores, PCI Express, and where a network card or a GPU lies. Read below a
//! [`Root`], so that machines which nobody has at hand can be written down as trees.
//!
//! | module | knows |
//! | --- | --- |
//! | [`cores`] | nodes, cores that this process may use, which of them are kept from the scheduler, threads of one core |
//! | [`card`] | the cards beneath an interface |
//! | [`pci`] | devices, their links, how far they lie from each other |
//! | [`near`](mod@near) | the node that a flow comes in at, and why |

pub mod card;
pub mod cores;
pub mod near;
pub mod pci;
pub(crate) mod root;

pub use card::cards;
pub use cores::Cores;
pub use near::{Near, near};
pub use root::Root;
