//! Frames compressed into a file or a stream: which encoder runs, how frames reach it, and what happens when it dies.
//!
//! ```text
//! Spec + Target --ladder: each rung is tried--> Plan --> Encoder (a sink): GStreamer's encoder -> parser -> muxer -> file
//!                                                                or NVENC, nvJPEG -> parser -> muxer -> network
//! ```
//!
//! GStreamer does what encoders of the CPU, muxers and networks do. NVENC and nvJPEG are called by this program itself,
//! with their libraries looked for at run time: so they run where GStreamer's plug-in nvcodec is missing or older than the
//! driver, read frames in the GPU's memory without a copy, and say in their own words why they do not.
//!
//! | module | knows |
//! | --- | --- |
//! | `spec`, `target` | what the command line says |
//! | `ladder` | the order of the encoders, and who refuses why |
//! | `picture` | the layout of frames that keeps most for an encoder |
//! | `line` | the fragment for GStreamer |
//! | `restart` | an encoder that dies |
//! | `nvenc`, `nvjpeg` | NVIDIA's libraries |

mod ladder;
mod line;
#[cfg(feature = "cuda")]
pub mod nvenc;
#[cfg(all(feature = "cuda", feature = "gst"))]
mod nvenc_sink;
#[cfg(feature = "cuda")]
pub mod nvjpeg;
#[cfg(all(feature = "cuda", feature = "gst"))]
mod nvjpeg_sink;
mod picture;
#[cfg(feature = "gst")]
mod plan;
#[cfg(feature = "gst")]
mod probe;
#[cfg(feature = "gst")]
mod restart;
mod spec;
mod target;

pub use ladder::{Choice, Prober, Refusal, Rung, Wish, choose, lines, rungs};
pub use line::{Line, media_lines};
pub use picture::{Picture, choose as choose_picture};
#[cfg(feature = "gst")]
pub use plan::Plan;
#[cfg(feature = "gst")]
pub use probe::Machine;
#[cfg(feature = "gst")]
pub use restart::{Encoder, Watch};
pub use spec::{Codec, Preset, Spec, Wrong};
pub use target::{Container, Target};
