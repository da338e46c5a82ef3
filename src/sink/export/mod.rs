//! Frames for other processes: they read them in the GPU's memory, without a copy.
//!
//! [`Export`] is a sink that listens at a Unix socket (`SOCK_SEQPACKET`; only its user may connect). A consumer gets a
//! [`Hello`] in JSON, then an [`Offer`] of 64 octets for every frame, and answers with 8 octets when it is done with
//! one. [`Consumer`] is the other side in Rust; `examples/06_gpu_consumer.py` is one in Python.
//!
//! # What a consumer is promised
//!
//! * While it holds a frame, the frame's memory is not written.
//! * With [`ExportKind::CudaIpc`] a frame is offered before the GPU has finished it: a consumer makes its stream wait
//!   for the frame's event, or waits itself. With [`ExportKind::DmaBuf`] it is finished when it is offered.
//! * The socket ends when no more frames come. Memory stays until all is released, a second at most.
//!
//! # What it has to do
//!
//! * Release a frame only when all its work that reads it is done.
//! * Hold no more frames than it may (3): it gets no more while it does. Nobody waits for it.
//! * Release only what it holds, once, in messages of 8 octets; else it is dropped.
//! * Read only. CUDA and dma-buf give other processes the right to write as well: consumers are trusted programs of
//!   the same user.
//!
//! A consumer that dies gives its frames back at once. All consumers together hold 6 different frames at most
//! ([`Limits`]); when others are in need, one that keeps a frame for more than 2 s is dropped.
//!
//! # The hello
//!
//! ```json
//! {"protocol":1,"kind":"cuda-ipc",
//!  "gpu":{"number":0,"name":"NVIDIA H200","uuid":"a1b2c3d4-…","pci":"0000:1B:00.0"},
//!  "video":{"sampling":"YCbCr-4:2:2","depth":"10","scan":"progressive","rate":"60000/1001",
//!           "colorimetry":"BT709","tcs":"SDR","range":"NARROW"},
//!  "output":"planar","sample":"uint16","width":1920,"height":1080,
//!  "planes":[{"offset":0,"stride":3840,"row_octets":3840,"rows":1080,"channels":1},…],
//!  "frame_octets":8294464,"stride":8323072,"count":12,"octets":100663296,"held":3,
//!  "memory":"<128 hex digits: CUipcMemHandle>","events":["<128 hex digits: CUipcEventHandle>",…]}
//! ```
//!
//! With `dma-buf` there is neither `memory` nor `events`; the descriptor of the whole memory comes with the hello
//! (`SCM_RIGHTS`). Who is turned away gets `{"protocol":1,"error":"…"}`.

#[cfg(feature = "cuda")]
mod consumer;
#[cfg(feature = "cuda")]
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
#[cfg(feature = "cuda")]
mod protocol;
#[cfg(feature = "cuda")]
mod server;
mod target;

#[cfg(feature = "cuda")]
pub use consumer::{Consumer, Mapped};
#[cfg(feature = "cuda")]
pub use gpu::Export;
#[cfg(feature = "cuda")]
pub use protocol::{GpuFacts, Hello, Offer, PROTOCOL, PlaneFacts, VideoFacts, release, released};
#[cfg(feature = "cuda")]
pub use server::{Counts, Limits};
pub use target::{ExportKind, Target};
