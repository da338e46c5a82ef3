//! gdmedia receives SMPTE ST 2110: an SDP goes in, frames come out, and every lost packet is counted and located.
//!
//! # The way of a packet
//!
//! ```text
//! SDP text --gdmedia_sdp--> Flow --rx--> ring of slots --depacketise--> Plan --kernel--> Frame --> sink
//!                                 socket   (mem, ring)    (pure)                (frame)     gst, y4m, raw, png
//!                                 xdp, pcap                              CPU or CUDA          other processes
//!                                 Rivermax, verbs, DPDK
//!                                 tap, fault around any of them
//! ```
//!
//! [`depacketise`] decides which octets belong where and never touches sockets or memory; its product is a
//! [`plan::Plan`], a plain array. A [`kernel`] executes it: it moves the octets from the ring into the frame and
//! unpacks them on the way. Every backend and every kernel differ only in who executes the array.
//!
//! # Ten words
//!
//! *flow* (what the SDP names), *leg* (one path of ST 2022-7), *ring* (received packets in memory), *slot* (one
//! packet's place in it), *lease* (the right to read some slots), *octet* (position in a packet, counted from its RTP
//! header), *placement* (octets of a slot that belong at an octet of a frame), *plan* (placements, frame openings and
//! closings of one poll), *kernel* (executes placements), *frame*, *sink*.
//!
//! # Modules, lowest first
//!
//! | module | knows |
//! | --- | --- |
//! | [`sdp`], [`format`](mod@format), [`scale`](mod@scale) | crates of their own: descriptions, pictures, their conversions and previews |
//! | [`error`], [`stats`], [`event`], [`time`], [`plan`] | plain values |
//! | [`config`] | TOML files that people write, and what is wrong with them |
//! | [`fetch`] | SDPs from web servers |
//! | [`gpu`] | the GPU that is used and why, its context, streams, events |
//! | [`topology`] | NUMA nodes, cores, PCI Express: what lies near a card |
//! | [`wire`] | octets: RTP, SRD headers, Ethernet to UDP, captures |
//! | [`report`] | what was measured as text, JSON, JUnit XML, HTML |
//! | [`timing`] | ST 2110-21, clocks, losses: what heads and arrivals of packets say |
//! | [`mem`], [`ring`], [`frame`] | who owns which memory, and who may touch it |
//! | [`health`] | counters in, words of BCP-008-01 out; which stage is too slow |
//! | [`track`], [`merge`], [`depacketise`], [`packetise`] | decisions: sequence, legs as one, placement, and the inverse |
//! | [`fault`] | decisions: which fault on purpose happens to which packet |
//! | [`rx`] | receivers: socket, AF_XDP, DPDK, capture, Rivermax, ibverbs; tap and fault around them |
//! | [`ptp`] | the clock that everybody follows: ptp4l, cards, and what is wrong with time here |
//! | [`kernel`] | executes placements with the conversions of `gdmedia_convert`, or finds that the ring is the frame |
//! | [`pipeline`], [`worker`] | one step of receive, decide, move; the thread that repeats it |
//! | [`sink`], [`send`] | where frames go; where test streams come from |
//! | [`record`] | frames on disk, and back: segments, ways to the disk, checks |
//! | [`encode`] | which encoder runs, and frames compressed into files and streams |
//! | `preview` | a page in a browser: pictures of frames, and the status |
//! | `daemon` | many receivers in one process: what they show, and what they are told |
//! | [`latency`] | how long frames take, hop by hop |
//! | [`analyze`] | a capture from beginning to end: flows, losses, timing |
//! | [`doctor`] | what a machine has for an SDP, and what is missing |
//!
//! # Features
//!
//! | feature | adds | needs |
//! | --- | --- | --- |
//! | `cuda` (default) | frames in GPU memory, unpacked there | nothing: driver and compiler are looked for |
//! | `gst` (default) | the GStreamer sink: a window, or any pipeline fragment | GStreamer 1.22 or later |
//! | `preview` (default) | the preview in a browser | nothing |
//! | `daemon` (default) | the ingest daemon with its API and its NMOS node | nothing |
//! | `dpdk` | reception by DPDK, see `rx::dpdk` | `libdpdk-dev` to build; DPDK's libraries to run |
//! | `rivermax` | reception by NVIDIA Rivermax, see `rx::rivermax` | its SDK to build; its library, licence and card to run |
//! | `rivermax-stand-in` | the same against a stand-in for the library, for tests | libclang to build |
//! | `verbs` | reception by ibverbs, see `rx::verbs` | libibverbs-dev to build; libibverbs and an mlx5 card to run |
//! | `cuda` and `gst` | CUDA memory for fragments that take it, see `sink::gst::Fragment::cuda` | GStreamer's CUDA library, looked for |
#![deny(unsafe_code)]

pub mod analyze;
pub mod config;
#[cfg(feature = "daemon")]
pub mod daemon;
pub mod depacketise;
pub mod doctor;
pub mod encode;
pub mod error;
pub mod event;
pub mod fault;
pub mod fetch;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
pub mod gpu;
pub mod health;
pub mod kernel;
pub mod latency;
pub mod mem;
pub mod merge;
pub mod packetise;
pub mod pipeline;
pub mod plan;
#[cfg(feature = "preview")]
pub mod preview;
pub mod ptp;
pub mod record;
pub mod report;
pub mod ring;
pub mod rx;
pub mod send;
pub mod sink;
pub mod soak;
pub mod stats;
mod sync;
pub mod time;
pub mod timing;
pub mod topology;
pub mod track;
mod unix;
pub mod wire;
pub mod worker;

pub use error::{Error, Kind};
pub use gdmedia_convert::{format, scale, scope};
pub use gdmedia_sdp as sdp;
pub use unix::rights;
