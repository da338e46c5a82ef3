//! The sink: makes the GPU's frames ready for others, and offers them.

use super::protocol::{GpuFacts, HELLO_OCTETS, Hello, Offer, hex, uuid_text};
use super::server::{Board, Counts, Limits, Server};
use super::{ExportKind, Target};
use crate::error::{Error, Kind, Result};
use crate::format::Layout;
use crate::frame::Frame;
use crate::gpu::{Event, EventKind, Stream};
use crate::mem::{Device, Slab};
use crate::sdp::Video;
use crate::sink::{Next, Sink};
use std::sync::Arc;
use std::time::Duration;

/// How long consumers may take at the end to give back what they hold.
const FAREWELL: Duration = Duration::from_secs(1);

/// Offers the frames of a [`Slab`] to other processes; see [the module](super).
#[derive(Debug)]
pub struct Export {
    // Dropped in this order: nobody is connected when events and memory go.
    server: Server<Frame<Device>>,
    ready: Ready,
    slab: Arc<Slab>,
    kind: ExportKind,
    limits: Limits,
    board: Board,
}

/// How a consumer learns that a frame is finished.
#[derive(Debug)]
enum Ready {
    /// By the event of its index, which happens in this stream.
    Events { stream: Stream, events: Vec<Event> },
    /// It is told no earlier.
    Waited,
}

impl Export {
    /// Frames of the pool that consumers hold at most: the pool needs so many more than without an export.
    pub fn holds() -> usize {
        Limits::default().frames
    }

    /// Listens at the target's path. `slab` holds every frame that will be taken, with this layout at its beginning.
    ///
    /// # Errors
    /// The path is in use or cannot be made; the GPU's driver shares no memory in this way.
    pub fn new(target: &Target, slab: Arc<Slab>, video: &Video, layout: &Layout) -> Result<Self> {
        if layout.size > slab.piece() {
            let what = format!("frames of {} octets in pieces of {}", layout.size, slab.piece());
            return Err(Error::new(Kind::Internal, what));
        }
        let limits = Limits::default();
        let gpu = slab.gpu();
        let facts = GpuFacts {
            number: gpu.number(),
            name: gpu.name().into(),
            uuid: uuid_text(gpu.uuid()?),
            pci: gpu.address().into(),
        };
        let mut hello = Hello::new(target.kind, facts, video, layout);
        (hello.stride, hello.count, hello.octets) = (slab.stride(), slab.count(), slab.octets());
        hello.held = limits.held;
        let (ready, passed) = match target.kind {
            ExportKind::CudaIpc => {
                hello.memory = Some(hex(&slab.ipc_handle()?));
                let mut events = Vec::with_capacity(slab.count());
                for _ in 0..slab.count() {
                    let event = Event::new(gpu, EventKind::Shared)?;
                    hello.events.push(hex(&event.handle()?));
                    events.push(event);
                }
                (Ready::Events { stream: Stream::new(gpu, false)?, events }, None)
            }
            ExportKind::DmaBuf => (Ready::Waited, Some(slab.dma_buf()?)),
        };
        let hello = hello.to_json();
        if hello.len() > HELLO_OCTETS {
            return Err(Error::new(Kind::Usage, format!("{} frames are too many to be exported", slab.count())));
        }
        let server = Server::bind(&target.path, hello, passed, limits)?;
        let board = server.board();
        Ok(Export { server, ready, slab, kind: target.kind, limits, board })
    }

    /// Reads what consumers did from elsewhere while the sink runs, and after it.
    pub fn watch(&self) -> impl Fn() -> Counts + Send + 'static {
        let board = self.board.clone();
        move || board.read()
    }
}

impl Ready {
    /// Afterwards a consumer may be told of the frame.
    fn prepare(&self, frame: &Frame<Device>, index: usize) -> Result<()> {
        let fence = frame.fence();
        match self {
            Ready::Waited => fence.map_or(Ok(()), |fence| fence.wait()),
            Ready::Events { stream, events } => {
                if let Some(fence) = fence {
                    fence.queue(stream)?;
                }
                // Nobody waits for an older record of it: its frame was not held.
                Ok(events.get(index).map_or(Ok(()), |event| stream.record(event))?)
            }
        }
    }
}

impl Sink<Device> for Export {
    fn take(&mut self, frame: &Frame<Device>) -> Result<Next> {
        self.server.serve();
        if self.server.is_empty() {
            return Ok(Next::More);
        }
        let index = self
            .slab
            .index(frame.start() as u64)
            .ok_or_else(|| Error::new(Kind::Internal, "a frame lies outside of the exported memory"))?;
        self.ready.prepare(frame, index)?;
        self.server.offer(frame, &Offer::new(index as u32, frame.meta()));
        Ok(Next::More)
    }

    fn idle(&mut self) -> Result<Next> {
        self.server.serve();
        Ok(Next::More)
    }

    fn finish(&mut self) -> Result<()> {
        self.server.finish(FAREWELL);
        Ok(())
    }

    fn describe(&self) -> String {
        let Limits { consumers, held, .. } = self.limits;
        let path = self.server.path().display();
        format!("frames for other processes, {} at {path} ({consumers} consumers, {held} frames each)", self.kind)
    }
}
