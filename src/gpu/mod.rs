//! The GPU: which one is used and why, its context, streams and events. CUDA's driver is looked for at run time; a
//! program without it runs on the CPU.

#[cfg(feature = "cuda")]
mod bar1;
#[cfg(feature = "cuda")]
mod budget;
mod choice;
#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "cuda")]
mod driver;
#[cfg(feature = "cuda")]
mod near;
#[cfg(not(feature = "cuda"))]
mod none;
#[cfg(feature = "cuda")]
mod stream;

#[cfg(feature = "cuda")]
pub use bar1::Bar1;
#[cfg(feature = "cuda")]
pub use budget::Budget;
pub use choice::{Choice, Found};
#[cfg(feature = "cuda")]
pub use device::{Gpu, choose, list};
#[cfg(feature = "cuda")]
pub use driver::{Fault, check};
#[cfg(not(feature = "cuda"))]
pub use none::{Gpu, choose};
#[cfg(feature = "cuda")]
pub use stream::{Event, EventKind, Function, Module, Stream};

/// What the driver's own types are called, for those who must speak to it directly.
#[cfg(feature = "cuda")]
pub use cudarc::driver::sys;
