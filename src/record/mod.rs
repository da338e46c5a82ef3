//! Recordings: frames as they are, on disk, each with what was known of it.
//!
//! ```text
//! frame --Recorder: head page with CRC32C--> disk thread --way--> slot of a segment
//!                                              io_uring with O_DIRECT, pwrite
//! segment --read::Recording--> frames
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
//! | [`read`] | opens, checks, scans, mends |

pub mod form;
pub mod read;
pub mod recorder;
pub mod segment;
pub mod write;

pub use read::{Found, Recording, Segment};
pub use recorder::{Options, Recorder, Stats};
pub use segment::Limit;
pub use write::Way;
