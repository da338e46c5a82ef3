//! Kernels of the GPU: what the host hands to them, where their code comes from, and how they are started.

pub mod abi;
mod cache;
mod image;
mod nvrtc;
pub mod program;

pub use abi::{Piece, SEGMENTS, Segment, Span};
pub use image::CHECKED;
pub use program::Program;
