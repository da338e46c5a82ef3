//! NVENC, the encoder of NVIDIA's GPUs, by its own library (`libnvidia-encode.so.1`, a part of the driver).
//!
//! | module | knows |
//! | --- | --- |
//! | `abi` | the library's structures |
//! | `library` | finds it, and makes its calls |
//! | `settings` | what an encoder is to do, in the library's words |
//! | `encoder` | pictures in, compressed ones out, in the order in which they came |
//!
//! Everything is tested against a stand-in that checks versions of structures and the order of calls. On a GPU that has
//! NVENC it has not been run yet; one that has none (H200) answers the first call with "unsupported device".

pub mod abi;
mod encoder;
mod library;
mod settings;
#[cfg(test)]
pub(super) mod stand_in;
#[cfg(test)]
mod tests;

pub use encoder::{Coded, Input, Nvenc};
pub use library::{Fault, Fits, Library, Session};
pub use settings::{Settings, Wanted};
