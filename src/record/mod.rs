//! Recordings: frames as they are, on disk, each with what was known of it.
//!
//! ```text
//! frame --Recorder: head page with CRC32C--> disk thread --way--> slot of a segment
//!                                              io_uring with O_DIRECT, pwrite
//! frame of the GPU --CufileSink: CRC32C there--> cuFile
//! segment --read::Recording--> frames --> sinks (play), packets (send), files (export)
//! ```
//!
//! A recording is one file, or several that follow one another ([`segment`]): a header page, slots of one size with a frame
//! each, and an index at the end that a scan can make again ([`form`]). A slot counts when its own head and the CRC of its
//! octets are right. At most one frame is being written at any time, and frames before it are on their way to the disk
//! by then: a program that is killed loses that one and nothing before it.
//!
//! | module | does |
//! | --- | --- |
//! | [`form`] | octets of a segment from values, and back; pure |
//! | [`segment`] | which file, where in it, when the next one |
//! | [`write`](mod@write) | the ways to the disk, and which is taken |
//! | [`recorder`] | frames of the CPU to slots |
//! | `gpu`, `crc` | frames of the GPU to slots and back by cuFile (feature `cuda`) |
//! | [`read`] | opens, checks, scans, mends |
//! | [`wire`] | frames of other layouts back to pgroups, and to any layout |
//! | [`source`], [`playback`] | frames again: to be sent, to sinks |
//! | [`export`](mod@export) | to y4m, raw, PNG, MOV |
//! | [`bench`](mod@bench) | what a disk holds |

pub mod bench;
#[cfg(feature = "cuda")]
mod crc;
pub mod export;
pub mod form;
#[cfg(feature = "cuda")]
mod gpu;
pub mod playback;
pub mod read;
pub mod recorder;
pub mod segment;
pub mod source;
pub mod wire;
pub mod write;

#[cfg(feature = "cuda")]
pub use gpu::{CufileSink, DeviceLoad};

pub use read::{Found, Recording, Segment};
pub use recorder::{Options, Recorder, Stats};
pub use segment::Limit;
pub use write::Way;
