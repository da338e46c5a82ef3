//! SDP of SMPTE ST 2110: text in, typed [`Flow`]s and [`Diagnostic`]s out, and back.
#![forbid(unsafe_code)]

mod diagnostic;
mod flow;
pub mod video;

pub use diagnostic::{Diagnostic, Severity};
pub use flow::*;
pub use video::*;
