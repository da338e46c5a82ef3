//! Kernels of the GPU, and what starts them.
//!
//! | module | knows |
//! | --- | --- |
//! | [`abi`] | what is handed to a kernel |
//! | [`scale`], [`scope`] | previews, and counts for waveform and vectorscope |
//! | [`program`] | the code: built beforehand, or by NVRTC when it is first needed |
//! | `gather` | from placements to pieces |
//! | `flight` | what has been started and not ended |
//! | [`CudaKernel`] | all of them together |

pub mod abi;
mod cache;
mod flight;
mod gather;
pub(crate) mod image;
mod kernel;
mod nvrtc;
mod options;
pub mod program;
pub mod scale;
pub mod scope;

pub use abi::{Piece, SEGMENTS, Segment, Span};
pub use image::CHECKED;
pub use kernel::CudaKernel;
pub use options::{CudaCounters, Options, Schedule, Transfer};
pub use program::Program;
pub use scale::Scaler;
pub use scope::Counter;
