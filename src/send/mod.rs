//! Where test streams come from: patterns, files and captures, on a schedule of ST 2110-21, to the network or to a
//! capture file.
//!
//! | module | does |
//! | --- | --- |
//! | [`pattern`] | the picture, with its number for people and for receivers |
//! | [`source`], [`input`], [`y4m`] | frames one after the other: the picture, raw and y4m files |
//! | [`pack`] | samples into pgroups |
//! | [`template`], [`stream`] | the packets of a frame, prepared once |
//! | [`schedule`] | when each of them leaves, to the nanosecond |
//! | [`socket`], [`pace`], [`live`] | to the network, in groups, on time |
//! | [`file`](mod@file) | to a capture file instead |
//! | `renew` | legs whose interface was made anew |
//! | [`recording`], [`replay`] | a capture sent again, seamlessly repeated |
//! | [`impair`] | faults on purpose to what is sent |
//! | [`name`] | formats by the names that people use |
//! | [`lateness`] | how well that went |

pub mod file;
pub mod impair;
pub mod input;
pub mod lateness;
pub mod live;
pub mod name;
pub mod pace;
pub mod pack;
pub mod pattern;
pub mod recording;
mod renew;
pub mod replay;
pub mod socket;
pub mod source;
pub mod stream;
pub mod template;
pub mod y4m;

pub use crate::timing::schedule;
