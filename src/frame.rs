//! Frames: filled by a kernel, then sealed, shared read-only, and given back to their pool at the last drop.

use crate::error::Result;
use crate::format::Layout;
use crate::mem::{CpuAccess, Host, Region, Space, View};
use crate::plan::Missing;
use crate::ring::{Laps, Mark};
use crate::sync::{self, Mutex, Receiver, SyncSender, sync_channel};
use crate::time::Tai;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError};

/// What is known of a frame besides its picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// Counts frames of the flow as they close, from 0.
    pub number: u64,
    /// Every octet arrived, and was still there when it was read.
    pub complete: bool,
    /// Octets were overwritten in the ring before they were read for good, or may have been; then it is not complete, and
    /// the loss map names them besides those that never came.
    pub torn: bool,
    /// RTP timestamp of the frame or its first field.
    pub timestamp: u32,
    /// RTP timestamp of the second field, when it differs and was seen.
    pub second_timestamp: Option<u32>,
    /// TAI of its first sample, where the sender's clock allows it.
    pub media_time: Option<Tai>,
    /// Arrival of its first packet.
    pub first_arrival: Tai,
    /// Arrival of its last packet.
    pub last_arrival: Tai,
    /// Packets that placed octets in it.
    pub packets: u32,
    /// Its loss map: which octets of which wire rows never came, or were overwritten too soon.
    pub missing: Vec<Missing>,
}

/// Work that has to be done before a frame may be read: frames of the CPU are finished when they are handed over,
/// frames of a GPU may still be written by kernels that were started before.
pub trait Fence: Send + Sync + std::fmt::Debug {
    /// Is it done?
    ///
    /// # Errors
    /// The GPU is lost.
    fn is_done(&self) -> Result<bool>;
    /// Waits on the CPU until it is done.
    ///
    /// # Errors
    /// The GPU is lost.
    fn wait(&self) -> Result<()>;
    /// Lets a stream of the GPU wait until it is done; the CPU does not, where that can be avoided.
    ///
    /// # Errors
    /// The GPU is lost.
    #[cfg(feature = "cuda")]
    fn queue(&self, _stream: &crate::gpu::Stream) -> Result<()> {
        self.wait()
    }
}

#[cfg(feature = "cuda")]
impl Fence for crate::gpu::Event {
    fn is_done(&self) -> Result<bool> {
        Ok(self.is_done()?)
    }
    fn wait(&self) -> Result<()> {
        Ok(self.wait()?)
    }
    fn queue(&self, stream: &crate::gpu::Stream) -> Result<()> {
        Ok(stream.wait(self)?)
    }
}

/// A frame that is being filled.
#[derive(Debug)]
pub struct FrameBuf<M: Space> {
    idle: Idle<M>,
    layout: Arc<Layout>,
    home: SyncSender<Idle<M>>,
}

/// A frame that nobody uses.
#[derive(Debug)]
struct Idle<M: Space> {
    region: Region<M>,
    meta: Meta,
    /// What has to be done before it may be written.
    before: Option<Arc<dyn Fence>>,
    /// Of a window: what its slots held.
    marks: Vec<Mark>,
}

impl<M: Space> FrameBuf<M> {
    /// Where its octets lie.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }
    /// What is known of it.
    pub fn meta_mut(&mut self) -> &mut Meta {
        &mut self.idle.meta
    }
    /// What is known of it.
    pub fn meta(&self) -> &Meta {
        &self.idle.meta
    }
    /// Its memory.
    pub fn region_mut(&mut self) -> &mut Region<M> {
        &mut self.idle.region
    }
    /// What the slots held that it is going to be a window of.
    pub(crate) fn marks_mut(&mut self) -> &mut Vec<Mark> {
        &mut self.idle.marks
    }
    /// Work that may still be writing to its memory for whoever had it before, and has to be done first: in a pool that
    /// several streams of a GPU share that need not be the one who has it now. Said once.
    pub fn before(&mut self) -> Option<Arc<dyn Fence>> {
        self.idle.before.take()
    }
    /// Nothing more is written: from now on it is shared and read-only.
    pub fn seal(self) -> Frame<M> {
        self.seal_after(None)
    }
    /// Nothing more is written but by work that is done when `fence` says so.
    pub fn seal_after(self, fence: Option<Arc<dyn Fence>>) -> Frame<M> {
        let FrameBuf { mut idle, layout, home } = self;
        let fence = fence.or(idle.before.take());
        Frame(sync::Arc::new(Sealed { buf: Some(idle), layout, home, fence, window: None }))
    }
    /// Its octets are those of a ring; its own memory was not written and goes home with it.
    pub(crate) fn seal_as(self, window: Window<M>) -> Frame<M> {
        let FrameBuf { idle, layout, home } = self;
        Frame(sync::Arc::new(Sealed { buf: Some(idle), layout, home, fence: None, window: Some(window) }))
    }
    /// Back to the pool unused.
    pub fn discard(self) {
        self.discard_after(None);
    }
    /// Back to the pool; nothing more is written but by work that is done when `fence` says so.
    pub fn discard_after(mut self, fence: Option<Arc<dyn Fence>>) {
        self.idle.before = fence.or(self.idle.before.take());
        let _ = self.home.try_send(self.idle);
    }
}

/// Octets of a ring that is overwritten in time, as a frame.
#[derive(Debug)]
pub(crate) struct Window<M: Space> {
    plane: View<M>,
    laps: Arc<Laps>,
    /// The first octet, and where the ring begins anew.
    at: usize,
    end: usize,
    /// All octets in one piece, where somebody wanted that of a window that reaches over the end.
    joined: OnceLock<Box<[u8]>>,
}

impl<M: Space> Window<M> {
    /// From octet `at` of a plane whose ring begins anew after octet `end`.
    pub fn new(plane: View<M>, laps: Arc<Laps>, at: usize, end: usize) -> Self {
        Window { plane, laps, at, end, joined: OnceLock::new() }
    }
    /// Where octets of the frame lie in the plane: in one part, or before the ring's end and after it.
    fn parts(&self, range: Range<usize>) -> [Range<usize>; 2] {
        let Range { start, end } = range;
        // So many octets of the frame lie before the ring's end.
        let before = self.end - self.at;
        if end <= before {
            [self.at + start..self.at + end, 0..0]
        } else if start >= before {
            [start - before..end - before, 0..0]
        } else {
            [self.at + start..self.end, 0..end - before]
        }
    }
}

#[derive(Debug)]
struct Sealed<M: Space> {
    // Some until drop.
    buf: Option<Idle<M>>,
    layout: Arc<Layout>,
    home: SyncSender<Idle<M>>,
    fence: Option<Arc<dyn Fence>>,
    window: Option<Window<M>>,
}

impl<M: Space> Drop for Sealed<M> {
    fn drop(&mut self) {
        if let Some(mut idle) = self.buf.take() {
            // Of a window the memory is as it was.
            idle.before = self.fence.take().or(idle.before);
            // The pool's channel has room for every buffer of the pool; it fails only when the pool is gone.
            let _ = self.home.try_send(idle);
        }
    }
}

/// A finished frame; cheap to clone.
///
/// Some are windows of the ring that they came by, without a copy ([`Frame::is_window`]). A network card writes over these
/// when it comes round, whoever holds them: so one reads, and asks afterwards whether the frame was
/// [`intact`](Frame::intact).
#[derive(Debug)]
pub struct Frame<M: Space = Host>(sync::Arc<Sealed<M>>);

// By hand, because a derived one would ask spaces to be `Clone`.
impl<M: Space> Clone for Frame<M> {
    fn clone(&self) -> Self {
        Frame(self.0.clone())
    }
}

static NO_META: std::sync::LazyLock<Meta> = std::sync::LazyLock::new(Meta::default);

impl<M: Space> Frame<M> {
    /// Where its octets lie.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }
    /// What is known of it.
    pub fn meta(&self) -> &Meta {
        self.0.buf.as_ref().map_or(&NO_META, |idle| &idle.meta)
    }
    /// What has to be done before it may be read; none when it may be read now.
    pub fn fence(&self) -> Option<&Arc<dyn Fence>> {
        self.0.fence.as_ref()
    }
    /// Its octets lie in a ring that is overwritten in time.
    pub fn is_window(&self) -> bool {
        self.0.window.is_some()
    }
    /// What was read of it until now was the frame. Always so, unless it is a window.
    pub fn intact(&self) -> bool {
        let Some(window) = &self.0.window else { return true };
        self.0.buf.as_ref().is_some_and(|idle| idle.marks.iter().all(|mark| window.laps.holds(mark)))
    }
    /// Its first octet, in its memory space. Whoever reads there in some other way than by this crate's types waits for
    /// [`Frame::fence`] first, and holds the frame until it has finished: then its memory is written again. Of a window the
    /// octets need not follow in one piece; see [`Frame::parts`].
    pub fn start(&self) -> *const u8 {
        self.parts()[0].0
    }
    /// Where its octets lie in its memory space, and how many: in one piece, or in two, of which the second is empty
    /// otherwise. As of [`Frame::start`].
    pub fn parts(&self) -> [(*const u8, usize); 2] {
        match (&self.0.window, &self.0.buf) {
            (Some(window), _) => {
                window.parts(0..self.octet_count()).map(|part| (window.plane.octet(part.start), part.len()))
            }
            (None, Some(idle)) => [(idle.region.as_ptr(), idle.region.len()), (std::ptr::null(), 0)],
            (None, None) => [(std::ptr::null(), 0); 2],
        }
    }
    /// Octets of a window: those of the wire.
    fn octet_count(&self) -> usize {
        self.layout().wire.frame_octets() as usize
    }
}

impl<M: CpuAccess> Frame<M> {
    /// All its octets; see [`Layout::planes`]. Of a window in two pieces a copy is made when this is first asked for.
    pub fn octets(&self) -> &[u8] {
        match (&self.0.window, &self.0.buf) {
            (Some(window), _) => match self.range(0..self.octet_count()) {
                [all, []] => all,
                pieces => window.joined.get_or_init(|| pieces.concat().into()),
            },
            (None, Some(idle)) => idle.region.as_slice(),
            (None, None) => &[],
        }
    }
    /// Some of its octets, in one piece, or in two where a window reaches over the end of its ring. Empty when it has not so
    /// many.
    pub fn range(&self, range: Range<usize>) -> [&[u8]; 2] {
        let Some(window) = &self.0.window else {
            return [self.octets().get(range).unwrap_or_default(), &[]];
        };
        if range.start > range.end || range.end > self.octet_count() {
            return [&[]; 2];
        }
        window.parts(range).map(|part| window.plane.as_slice().get(part).unwrap_or_default())
    }
    /// One row of a plane, without padding; empty when there is no such row.
    pub fn row(&self, plane: usize, row: usize) -> &[u8] {
        let Some(p) = self.layout().planes.get(plane) else { return &[] };
        if row >= p.rows {
            return &[];
        }
        let at = p.offset + row * p.stride;
        match self.range(at..at + p.row_octets) {
            [row, []] => row,
            _ => self.octets().get(at..at + p.row_octets).unwrap_or_default(),
        }
    }
}

/// A fixed number of frames of one layout. A clone has the same frames: whoever comes first gets one.
#[derive(Debug)]
pub struct FramePool<M: Space> {
    // Locked for the time of a pointer's move, once a frame.
    idle: sync::Arc<Mutex<Receiver<Idle<M>>>>,
    home: SyncSender<Idle<M>>,
    layout: Arc<Layout>,
    frames: usize,
}

// By hand, because a derived one would ask spaces to be `Clone`.
impl<M: Space> Clone for FramePool<M> {
    fn clone(&self) -> Self {
        let FramePool { idle, home, layout, frames } = self;
        FramePool { idle: idle.clone(), home: home.clone(), layout: layout.clone(), frames: *frames }
    }
}

impl FramePool<Host> {
    /// `frames` frames in ordinary memory.
    pub fn host(layout: Layout, frames: usize) -> Result<Self> {
        Self::new(layout, (0..frames).map(|_| ()), |size, ()| Region::host(size))
    }
}

impl<M: Space> FramePool<M> {
    /// One frame for each item of `frames`, allocated by `allocate(octets, item)`.
    pub fn new<T>(
        layout: Layout,
        frames: impl ExactSizeIterator<Item = T>,
        mut allocate: impl FnMut(usize, T) -> Result<Region<M>>,
    ) -> Result<Self> {
        let count = frames.len();
        let (home, idle) = sync_channel(count.max(1));
        for item in frames {
            let region = allocate(layout.size, item)?;
            // The channel has room for all of them.
            let _ = home.try_send(Idle { region, meta: Meta::default(), before: None, marks: Vec::new() });
        }
        Ok(FramePool { idle: sync::Arc::new(Mutex::new(idle)), home, layout: Arc::new(layout), frames: count })
    }
    /// An idle frame, or none when all are in use. Its octets are those of an older frame.
    pub fn take(&self) -> Option<FrameBuf<M>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
        let mut idle = idle.ok()?;
        let mut missing = std::mem::take(&mut idle.meta.missing);
        missing.clear();
        idle.marks.clear();
        idle.meta = Meta { missing, ..Meta::default() };
        Some(FrameBuf { idle, layout: self.layout.clone(), home: self.home.clone() })
    }
    /// Where the octets of its frames lie.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }
    /// How many frames it has, in use or not.
    pub const fn frames(&self) -> usize {
        self.frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Output, WireFormat};
    use gdmedia_sdp::{Depth, Sampling, Scan};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[derive(Debug, Default)]
    struct Switch(AtomicBool);

    impl Fence for Switch {
        fn is_done(&self) -> Result<bool> {
            Ok(self.0.load(Relaxed))
        }
        fn wait(&self) -> Result<()> {
            Ok(())
        }
    }

    fn pool(frames: usize) -> FramePool<Host> {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 16, 4, Scan::Progressive).unwrap();
        FramePool::host(Layout::new(wire, Output::Wire).unwrap(), frames).unwrap()
    }

    #[test]
    fn clones_have_the_same_frames() {
        let one = pool(3);
        let other = one.clone();
        let held = [one.take().unwrap(), other.take().unwrap(), one.take().unwrap()];
        assert!(one.take().is_none() && other.take().is_none());
        assert_eq!((one.frames(), other.frames()), (3, 3));
        let [a, b, c] = held;
        a.discard();
        drop(b.seal());
        let frame = c.seal();
        let again = frame.clone();
        drop(frame);
        assert_eq!(std::iter::from_fn(|| other.take()).count(), 2, "the third is still held");
        drop(again);
        assert!(one.take().is_some());
    }

    #[test]
    fn a_frame_comes_back_with_the_work_that_may_still_write_to_it() {
        let pool = pool(1);
        let fence = |frame: &mut FrameBuf<Host>| frame.before().map(|fence| fence.is_done().unwrap());
        let mut frame = pool.take().unwrap();
        assert_eq!(fence(&mut frame), None);
        let work = Arc::new(Switch::default());
        drop(frame.seal_after(Some(work.clone())));
        // Said once, and kept when nobody asked.
        let frame = pool.take().unwrap();
        frame.discard();
        let mut frame = pool.take().unwrap();
        assert_eq!(fence(&mut frame), Some(false));
        assert_eq!(fence(&mut frame), None);
        frame.discard_after(Some(work.clone()));
        work.0.store(true, Relaxed);
        let mut frame = pool.take().unwrap();
        assert_eq!(fence(&mut frame), Some(true));
        drop(frame.seal());
        assert_eq!(fence(&mut pool.take().unwrap()), None);
    }
}

/// `make loom`: a frame goes back to its pool once, and nobody reads it then.
#[cfg(all(test, gdmedia_loom))]
mod models {
    use super::*;
    use crate::format::{Output, WireFormat};
    use gdmedia_sdp::{Depth, Sampling, Scan};
    use loom::cell::UnsafeCell;

    fn pool(frames: usize) -> FramePool<Host> {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 4, 1, Scan::Progressive).unwrap();
        FramePool::host(Layout::new(wire, Output::Wire).unwrap(), frames).unwrap()
    }

    #[test]
    fn loom_a_frame_comes_back_when_the_last_reader_has_dropped_it() {
        loom::model(|| {
            let pool = pool(1);
            // Stands for the frame's octets: loom fails where it may be written while it is read.
            let octets = sync::Arc::new(UnsafeCell::new(()));
            let frame = pool.take().unwrap().seal();
            let reader = |frame: Frame<Host>, octets: sync::Arc<UnsafeCell<()>>| {
                move || {
                    octets.with(|_| ());
                    drop(frame);
                }
            };
            let readers = [0, 1].map(|_| loom::thread::spawn(reader(frame.clone(), octets.clone())));
            drop(frame);
            let early = pool.take().inspect(|_| octets.with_mut(|_| ()));
            for reader in readers {
                reader.join().unwrap();
            }
            let late = pool.take();
            assert_eq!(u8::from(early.is_some()) + u8::from(late.is_some()), 1, "it came back once");
        });
    }
}
