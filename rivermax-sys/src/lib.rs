//! The receive side of NVIDIA Rivermax, at two levels.
//!
//! - [`raw`]: the calls as the user's own header declares them, by bindgen and a C shim of ours.
//! - The rest: `Result`s with every status named, and objects that are destroyed in the right order.
//!
//! Nothing of the SDK is in this crate. The build looks for the SDK that the user has installed; the library itself is
//! opened by [`Library::load`] while the program runs, so that one binary runs on machines with and without it.
//! With the feature `stand-in` the crate is built against a header and a library of its own, which makes the same calls
//! over sockets, captures or memory: see [`stand_in`] (under that feature). It proves the order of calls, the rules
//! on memory and the way of the data. It proves nothing about speed, GPUDirect, BAR1, PCIe or the time stamps of a NIC.
//!
//! The order of calls:
//!
//! ```no_run
//! use rivermax_sys::{EntrySize, Flow, Library, StreamOption, StreamParams};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let session = Library::load(None)?.session()?;
//! let nic = "192.0.2.7".parse()?;
//! let mut stream = StreamParams::new(&session, nic)
//!     .option(StreamOption::InfoPerPacket)
//!     .capacity(65536)
//!     .sub_blocks(&[EntrySize::exactly(20), EntrySize::up_to(1440)])
//!     .determine()?
//!     .create()?; // the library allocates: DeterminedStream::set_memory and set_registered are the other two ways
//! stream.set_completion_moderation(0, 4096, 0)?;
//! let flow = Flow::to("239.0.0.1:5004".parse()?).tag(1);
//! stream.attach(&flow)?;
//! let chunk = stream.next_chunk()?;
//! for i in 0..chunk.len() {
//!     let _ = (chunk.first(0), chunk.packet(i).map(|info| info.size(1)));
//! }
//! stream.detach(&flow)?;
//! # Ok(()) }
//! ```

mod library;
mod params;
pub mod raw;
mod session;
#[cfg(feature = "stand-in")]
pub mod stand_in;
mod status;
mod stream;

pub use library::{Library, LoadError};
pub use params::{Block, DeterminedStream, EntrySize, MemLayout, StreamOption, StreamParams, TimestampFormat};
pub use session::{Iface, Registration, Session};
pub use status::{Error, Status};
pub use stream::{Chunk, Flow, Notification, PacketInfo, Stream};
