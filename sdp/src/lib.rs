//! SDP of SMPTE ST 2110: text in, typed [`Flow`]s and [`Diagnostic`]s out, and back.
//!
//! ```text
//! octets --text--> raw lines --lines--> lines (repaired) --session--> session, media   (grammar: sdp-types)
//!        --medium, rtpmap, params, essence, clocks, sources--> one candidate a medium
//!        --groups--> flows with their legs
//! ```
//!
//! Every stage repairs what a receiver can live with and says so: where, what is wrong, what was assumed, and which
//! clause has the rule. [`Mode::Strict`] turns what a standard forbids into errors.
#![forbid(unsafe_code)]

mod clocks;
mod diagnostic;
mod essence;
mod estimate;
mod flow;
#[doc(hidden)]
pub mod fuzzing;
mod groups;
mod lines;
mod medium;
mod params;
mod parse;
mod rate;
mod rtpmap;
mod session;
mod sources;
mod text;
mod tokens;
pub mod video;
mod write;

pub use diagnostic::{Diagnostic, Severity};
pub use estimate::Estimate;
pub use flow::*;
pub use parse::{Description, MAX_OCTETS, Mode, parse};
pub use text::physical_lines;
pub use video::*;
pub use write::write;
