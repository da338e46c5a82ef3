//! The other side: a program that uses the frames.

use super::ExportKind;
use super::protocol::{HELLO_OCTETS, Hello, Offer, PlaneFacts, release, unhex};
use crate::error::{Error, Kind, Result};
use crate::gpu::{Event, Gpu, Stream};
use crate::mem::{Foreign, Pinned, Region};
use crate::unix::{descriptor, listener};
use libc::MSG_NOSIGNAL;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An exporter serves its socket with every frame, and ten times a second without.
const HELLO: Duration = Duration::from_secs(5);

/// A connection to an exporter.
#[derive(Debug)]
pub struct Consumer {
    socket: Socket,
    hello: Hello,
    passed: Option<OwnedFd>,
}

impl Consumer {
    /// Connects to the socket at `path` and waits for the hello.
    ///
    /// # Errors
    /// Nobody exports there, it belongs to another user, or it refuses.
    pub fn connect(path: &Path) -> Result<Self> {
        let address = listener::address(path)?;
        let failed = |e: io::Error| {
            let kind = if e.kind() == ErrorKind::PermissionDenied { Kind::Permission } else { Kind::Unavailable };
            Error::new(kind, format!("nobody exports frames to us at {}", path.display()))
                .because(e)
                .cure("start gdmedia with --export, as the same user, and give the same path here")
        };
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).map_err(failed)?;
        socket.connect(&address).map_err(failed)?;
        socket.set_read_timeout(Some(HELLO)).map_err(failed)?;
        let (octets, passed) = descriptor::receive(&socket, HELLO_OCTETS).map_err(failed)?;
        if octets.is_empty() {
            return Err(failed(ErrorKind::ConnectionReset.into()));
        }
        let hello = Hello::from_json(&octets)?;
        socket.set_read_timeout(None).map_err(failed)?;
        Ok(Consumer { socket, hello, passed })
    }
    /// What the frames look like.
    pub const fn hello(&self) -> &Hello {
        &self.hello
    }
    /// The dma-buf of all frames; once, and only with [`ExportKind::DmaBuf`].
    pub const fn take_dma_buf(&mut self) -> Option<OwnedFd> {
        self.passed.take()
    }
    /// How long [`Consumer::next`] waits; for ever when none, as at the beginning.
    ///
    /// # Errors
    /// A time of zero.
    pub fn set_patience(&self, patience: Option<Duration>) -> Result<()> {
        self.socket.set_read_timeout(patience).map_err(|e| Error::new(Kind::Usage, "no such time to wait").because(e))
    }
    /// Waits for the next frame, which this consumer holds until [`Consumer::release`]; none when the exporter has
    /// ended: give back what is held, and forget its memory.
    ///
    /// # Errors
    /// No frame in time ([`Kind::NoMedia`]), or a message that makes no sense ([`Kind::Data`]).
    pub fn next(&self) -> Result<Option<Offer>> {
        loop {
            let mut octets = [0; Offer::OCTETS + 1];
            match (&self.socket).read(&mut octets) {
                Ok(0) => return Ok(None),
                Ok(len) => {
                    let offer = Offer::from_octets(&octets[..len]);
                    return match offer.filter(|offer| (offer.index as usize) < self.hello.count) {
                        Some(offer) => Ok(Some(offer)),
                        None => Err(Error::new(Kind::Data, "the exporter sent a message that makes no sense")),
                    };
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Err(Error::new(Kind::NoMedia, "no frame came in time"));
                }
                // It died.
                Err(_) => return Ok(None),
            }
        }
    }
    /// Gives a frame back: from now on its memory is written again.
    ///
    /// # Errors
    /// The exporter has stopped reading.
    pub fn release(&self, offer: Offer) -> Result<()> {
        match self.socket.send_with_flags(&release(offer.index), MSG_NOSIGNAL) {
            Ok(_) => Ok(()),
            // Then there is nothing to give back; `next` says so.
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(()),
            Err(e) => Err(Error::new(Kind::Output, "a frame cannot be given back").because(e)),
        }
    }
    /// Opens the memory and the events of the frames in this process.
    ///
    /// # Errors
    /// They are exported in another way, this process does not see the GPU, or it refuses.
    pub fn map(&self) -> Result<Mapped> {
        let hello = &self.hello;
        if hello.kind != ExportKind::CudaIpc {
            let what = format!("frames are exported as {}, and CUDA opens {}", hello.kind, ExportKind::CudaIpc);
            return Err(Error::new(Kind::Unavailable, what).cure("export them with --export cuda-ipc=PATH"));
        }
        let strange = || Error::new(Kind::Data, "the exporter's hello has a handle that is none");
        let gpu = Gpu::open_uuid(unhex(&hello.gpu.uuid).ok_or_else(strange)?)?;
        let handle = hello.memory.as_deref().and_then(unhex).ok_or_else(strange)?;
        let memory = Foreign::open(&gpu, &handle, hello.octets)?;
        let mut events = Vec::with_capacity(hello.count);
        for text in &hello.events {
            events.push(Event::open(&gpu, &unhex(text).ok_or_else(strange)?)?);
        }
        let stream = Stream::new(&gpu, false)?;
        Ok(Mapped { stream, events, memory, stride: hello.stride, planes: hello.planes.clone() })
    }
}

/// The frames' memory and events in this process.
#[derive(Debug)]
pub struct Mapped {
    // Dropped in this order: work first, memory last.
    stream: Stream,
    events: Vec<Event>,
    memory: Foreign,
    stride: usize,
    planes: Vec<PlaneFacts>,
}

impl Mapped {
    /// The GPU.
    pub const fn gpu(&self) -> &Arc<Gpu> {
        self.memory.gpu()
    }
    /// Where a frame begins, for kernels of one's own: they wait for [`Mapped::event`] first, and are done before the
    /// frame is released.
    pub fn address(&self, offer: &Offer) -> u64 {
        self.memory.address() + u64::from(offer.index) * self.stride as u64
    }
    /// Happens when a frame is finished.
    pub fn event(&self, offer: &Offer) -> Option<&Event> {
        self.events.get(offer.index as usize)
    }
    /// Copies octets of a frame to the beginning of `to` when it is finished, and waits for that.
    ///
    /// # Errors
    /// They lie outside of the memory, `to` is too small, or the GPU is lost.
    pub fn read(&self, offer: &Offer, octets: Range<usize>, to: &mut Region<Pinned>) -> Result<()> {
        if let Some(event) = self.event(offer) {
            self.stream.wait(event)?;
        }
        let at = (offer.index as usize).checked_mul(self.stride).and_then(|frame| frame.checked_add(octets.start));
        self.memory.read(&self.stream, at.unwrap_or(usize::MAX), octets.len(), to)
    }
    /// Where a plane lies in a frame, rows and gaps between them; none when there is no such plane.
    pub fn plane(&self, plane: usize) -> Option<Range<usize>> {
        self.planes.get(plane).map(|p| p.offset..p.offset + (p.rows - 1) * p.stride + p.row_octets)
    }
}
