//! Frames of the GPU to slots and back by cuFile, without the CPU seeing their octets; and back by the CPU where there is none.
#![allow(unsafe_code)]

use super::crc::GpuCrc;
use super::form::{self, Coalesced, End, Entry, Id, PAGE, SlotHeader};
use super::playback::Load;
use super::read::{Recording, Segment};
use super::recorder::{Gaps, Options, Stats, header};
use super::segment::{Files, end_of, write_error};
use super::write::Way;
use super::write::cufile::{self, Handle, Turn};
use crate::error::{Error, Kind, Result};
use crate::format::Layout;
use crate::frame::{Frame, FramePool};
use crate::gpu::{Event, EventKind, Gpu, Stream};
use crate::mem::{Device, Host, Pinned, Region, Slab};
use crate::sink::{Next, Sink};
use gdmedia_sdp::Flow;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Whoever has waited so long for a frame has none that waits.
const CALM: Duration = Duration::from_millis(1);
/// Octets that are written for a try.
const TRIED: usize = 64 << 10;

/// Records frames of the GPU; their CRC is reckoned there, too. Both happen in the order of streams, so that the next frames
/// are on their way while the disk has the ones before: as long as it is behind. Where it is not, each frame is waited for, so
/// that whoever kills the program loses no other.
pub struct CufileSink {
    gpu: Arc<Gpu>,
    slab: Arc<Slab>,
    files: Files,
    lanes: Vec<Lane>,
    /// The lane of the next frame, which is that of the oldest one under way.
    next: usize,
    /// Of this segment. Goes after the lanes, whose writes it is used by.
    handle: (u32, Handle),
    /// Why writes do not come in their turn, but are waited for.
    waits: Option<String>,
    /// The page of a head.
    head: Region<Host>,
    octets: usize,
    layout: Layout,
    id: Id,
    stats: Arc<Stats>,
    gaps: Gaps,
    /// Frames that were on their way when one failed, and that one.
    lost: Option<u64>,
    /// The end of the call before.
    before: Instant,
    text: String,
}

/// A frame's way.
struct Lane {
    // First: waits for its work, which uses the others.
    stream: Stream,
    written: Event,
    turn: Turn,
    crc: GpuCrc,
    flight: Option<Flight>,
}

/// A frame on it.
struct Flight {
    frame: Frame<Device>,
    /// Without its CRC.
    head: SlotHeader,
    /// Where its slot begins.
    at: u64,
    /// The write waits for its turn; else it has been done.
    in_turn: bool,
    begun: Instant,
}

impl Lane {
    fn new(gpu: &Arc<Gpu>, octets: usize) -> Result<Self> {
        Ok(Lane {
            stream: Stream::new(gpu, false)?,
            written: Event::new(gpu, EventKind::Sleep)?,
            turn: Turn::new(),
            crc: GpuCrc::load(gpu, octets)?,
            flight: None,
        })
    }
}

impl CufileSink {
    /// Frames that it may hold besides those in its queue, and the one in hand.
    pub const HOLDS: usize = 3;

    /// Begins a recording of frames that lie in `slab`.
    ///
    /// # Errors
    /// There is no cuFile, it does not take this disk, or ([`Way::Auto`]) it would go over the CPU by itself; what
    /// [`super::Recorder::create`] may say.
    pub fn create(
        gpu: &Arc<Gpu>,
        slab: Arc<Slab>,
        folder: &Path,
        flow: &Flow,
        layout: &Layout,
        options: &Options,
    ) -> Result<Self> {
        let library = cufile::library().map_err(unavailable)?;
        if options.way == Way::Auto && !cufile::is_direct() {
            return Err(unavailable(
                "cuFile: nvidia-fs is not loaded, so that it would go over the CPU by itself".into(),
            ));
        }
        let header = header(flow, layout);
        let (id, octets) = (header.id, header.frame_octets());
        if slab.stride() < form::pages(octets as u64) as usize {
            return Err(Error::new(Kind::Internal, "frames lie too close to each other"));
        }
        let lanes = (0..Self::HOLDS).map(|_| Lane::new(gpu, octets)).collect::<Result<Vec<_>>>()?;
        let head = Region::host(PAGE)?;
        let mut files = Files::create(folder, header, options.limit, true)?;
        let tried = register(gpu, &files).and_then(|handle| tried(gpu, &files, handle, &lanes));
        let (handle, waits) = match tried {
            Ok((handle, waits)) => ((files.header().segment, handle), waits),
            Err(error) => {
                let _ = files.end(0, End::Failed);
                return Err(error);
            }
        };
        let how = match &waits {
            None => format!("{} writes under way in the order of streams", Self::HOLDS),
            Some(why) => format!("one write after the other: {why}"),
        };
        let text = format!(
            "recording to {} ({}, {how}, CRC on the GPU, segments of {})",
            folder.display(),
            library.describe(),
            options.limit
        );
        let stats = Arc::new(Stats::default());
        stats.segments.store(1, Relaxed);
        Ok(CufileSink {
            gpu: gpu.clone(),
            slab,
            files,
            lanes,
            next: 0,
            handle,
            waits,
            head,
            octets,
            layout: layout.clone(),
            id,
            stats,
            gaps: Gaps::default(),
            lost: None,
            before: Instant::now(),
            text,
        })
    }
    /// What has been recorded; may be read at any time.
    pub fn stats(&self) -> Arc<Stats> {
        self.stats.clone()
    }

    fn record(&mut self, frame: &Frame<Device>) -> Result<()> {
        let address = frame.start() as u64;
        if *frame.layout() != self.layout || self.slab.index(address).is_none() {
            return Err(Error::new(Kind::Internal, "a frame of another layout or memory than the recording's"));
        }
        let meta = frame.meta().clone();
        // It had to wait for this one.
        let calm = self.before.elapsed() >= CALM;
        self.gpu.bind()?;
        self.land(self.next)?;
        if self.files.is_over(meta.last_arrival) {
            self.land_all()?;
        }
        let before = self.files.header().segment;
        let gap = self.gaps.before(meta.number, &self.stats);
        let place = self.files.slot(meta.last_arrival)?;
        let (at, slot) = (place.at, place.slot);
        let segment = self.files.header().segment;
        if segment != before {
            self.stats.segments.fetch_add(1, Relaxed);
        }
        if segment != self.handle.0 {
            self.handle = (segment, register(&self.gpu, &self.files)?);
        }
        let head = SlotHeader {
            id: self.id,
            slot,
            gap,
            crc: 0,
            missing_octets: meta.missing.iter().map(|m| u64::from(m.len)).sum(),
            coalesced: Coalesced::No,
            meta,
        };
        let Some(lane) = self.lanes.get_mut(self.next) else { return Err(Error::new(Kind::Internal, "no such lane")) };
        if let Some(fence) = frame.fence() {
            fence.queue(&lane.stream)?;
        }
        let begun = Instant::now();
        // SAFETY: a frame of this layout, which is held and not written until `land`; the stream waits for what fills it.
        unsafe { lane.crc.begin(&lane.stream, address)? };
        let whole = form::pages(self.octets as u64) as usize;
        let at_octets = at + PAGE as u64;
        let entry = Entry::from(&head);
        let in_turn = self.waits.is_none();
        if in_turn {
            // SAFETY: pieces of the slab have so many octets, checked in `create`; the frame, the handle and the lane are
            // held until the stream has been waited for, here or in `land`; the context is bound.
            let queued =
                unsafe { self.handle.1.write_in_turn(lane.stream.raw().cast(), address, whole, at_octets, &lane.turn) };
            let queued = queued.map_err(|why| Error::new(Kind::Output, why).cure("choose another way (--way uring)"));
            let queued = queued.and_then(|()| Ok(lane.stream.record(&lane.written)?));
            queued.inspect_err(|_| {
                let _ = lane.stream.synchronize();
            })?;
        } else {
            // cuFile knows nothing of the stream.
            lane.stream.synchronize()?;
            // SAFETY: as above; the frame has been waited for.
            let written = unsafe { self.handle.1.write(address, whole, at_octets) };
            written.map_err(|e| write_error(self.files.path().unwrap_or(Path::new("")), e))?;
        }
        lane.flight = Some(Flight { frame: frame.clone(), head, at, in_turn, begun });
        self.files.took(entry);
        self.next = (self.next + 1) % self.lanes.len();
        if calm { self.land_all() } else { Ok(()) }
    }

    /// Waits for the frame of a lane, if there is one, and writes its head: the octets first, as a head without them would
    /// cost whoever is killed a frame whose CRC does not fit.
    fn land(&mut self, lane: usize) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(lane) else { return Ok(()) };
        let Some(Flight { frame, mut head, at, in_turn, begun }) = lane.flight.take() else { return Ok(()) };
        if self.lost.is_some() {
            return Ok(lane.stream.synchronize()?);
        }
        let landed = (|| {
            let crc = lane.crc.end()?;
            if in_turn {
                lane.written.wait()?;
            }
            let failed = |e| write_error(self.files.path().unwrap_or(Path::new("")), e);
            if in_turn {
                let (address, whole) = (frame.start() as u64, form::pages(self.octets as u64) as usize);
                // SAFETY: as in `record`; the stream has gone past the write.
                unsafe { self.handle.1.end_turn(address, whole, at + PAGE as u64, &lane.turn) }.map_err(failed)?;
            }
            head.crc = crc;
            if let Some(page) = self.head.as_mut_slice().first_chunk_mut() {
                head.encode(&self.layout.wire, self.octets, page);
            }
            let file = self.files.file().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
            file.write_all_at(self.head.as_slice(), at).map_err(failed)
        })();
        match landed {
            Ok(()) => self.stats.wrote(self.files.header().slot_octets(), begun.elapsed()),
            // Those behind it are not found without it.
            Err(_) => self.lost = Some(self.files.forget(head.slot)),
        }
        landed
    }

    /// Waits for all that is under way, oldest first.
    fn land_all(&mut self) -> Result<()> {
        let count = self.lanes.len();
        // After one that failed the others are forgotten, and waited for all the same.
        (0..count).map(|n| self.land((self.next + n) % count)).fold(Ok(()), Result::and)
    }

    /// The end for this reason.
    fn fail(&mut self, error: &Error, in_hand: u64) {
        let _ = self.land_all();
        let _ = self.files.end(self.lost.unwrap_or(0) + in_hand, end_of(error));
        let frames = self.stats.frames.load(Relaxed);
        self.stats.say(format!("the recording has ended after {frames} frames: {}", error.in_one_line()));
    }
}

impl Sink<Device> for CufileSink {
    fn take(&mut self, frame: &Frame<Device>) -> Result<Next> {
        let taken = self.record(frame).map(|()| Next::More);
        self.before = Instant::now();
        taken.inspect_err(|error| self.fail(error, 1))
    }
    fn idle(&mut self) -> Result<Next> {
        self.land_all().map(|()| Next::More).inspect_err(|error| self.fail(error, 0))
    }
    fn finish(&mut self) -> Result<()> {
        self.land_all().inspect_err(|error| self.fail(error, 0))?;
        self.files.end(0, End::Finished)
    }
    fn describe(&self) -> String {
        self.text.clone()
    }
}

impl Drop for CufileSink {
    /// A recording that is abandoned still gets its index.
    fn drop(&mut self) {
        let _ = self.land_all();
        let _ = self.files.end(0, End::Finished);
    }
}

fn unavailable(why: String) -> Error {
    Error::new(Kind::Unavailable, why)
        .cure("choose another way (--way uring), or leave --way out; gdmedia doctor says what is missing")
}

/// Makes the segment that is open known to cuFile.
fn register(gpu: &Arc<Gpu>, files: &Files) -> Result<Handle> {
    gpu.bind()?;
    let file = files.file().filter(|_| files.direct).map(std::fs::File::try_clone);
    match file {
        None => Err(unavailable("cuFile: the file system has no O_DIRECT".into())),
        Some(Err(e)) => Err(unavailable(format!("cuFile: {e}"))),
        Some(Ok(file)) => Handle::new(file).map_err(unavailable),
    }
}

/// Proves the way: a file that is registered need not be one that can be written. Says why writes cannot wait for their turn,
/// where they cannot.
fn tried(gpu: &Arc<Gpu>, files: &Files, handle: Handle, lanes: &[Lane]) -> Result<(Handle, Option<String>)> {
    let memory = Region::device(gpu, TRIED)?;
    let at = files.header().octets() + PAGE as u64;
    let octets = TRIED.min(form::pages(files.header().frame_octets() as u64) as usize);
    // SAFETY: the memory has so many octets and lives until the call has returned; the context is bound.
    unsafe { handle.write(memory.address(), octets, at) }.map_err(|e| unavailable(format!("cuFile: {e}")))?;
    let Some(lane) = lanes.first() else { return Ok((handle, None)) };
    // SAFETY: as above, until the stream has been waited for.
    let queued = unsafe { handle.write_in_turn(lane.stream.raw().cast(), memory.address(), octets, at, &lane.turn) };
    let waits = match queued {
        Err(why) => Some(why),
        Ok(()) => {
            lane.stream.synchronize()?;
            // SAFETY: it has been waited for.
            let moved = unsafe { lane.turn.moved() };
            (moved != Some(octets)).then(|| "cuFile does not do it in the order of a stream here".into())
        }
    };
    Ok((handle, waits))
}

/// Recorded frames into memory of the GPU.
pub struct DeviceLoad {
    gpu: Arc<Gpu>,
    pool: FramePool<Device>,
    stream: Stream,
    crc: GpuCrc,
    /// By cuFile, or why not: segment and its handle.
    handle: std::result::Result<Option<(usize, Handle)>, String>,
    /// Over the CPU.
    here: Region<Pinned>,
    octets: usize,
}

impl DeviceLoad {
    /// Frames of `pool`, which lies in `slab`. By cuFile where it is there and `way` does not say otherwise.
    ///
    /// # Errors
    /// No memory; no kernel; cuFile is asked for and not there.
    pub fn new(gpu: &Arc<Gpu>, recording: &Recording, pool: FramePool<Device>, slab: &Slab, way: Way) -> Result<Self> {
        let octets = recording.header().frame_octets();
        let handle = match way {
            Way::Uring | Way::Pwrite => Err(format!("--way {}", way.word())),
            _ if slab.stride() < form::pages(octets as u64) as usize => {
                Err("frames lie too close to each other".into())
            }
            Way::Auto if !cufile::is_direct() => Err("cuFile: nvidia-fs is not loaded".into()),
            _ => open(gpu, &recording.segments()[0]).map(|handle| Some((0, handle))),
        };
        if let (Way::Cufile, Err(why)) = (way, &handle) {
            return Err(unavailable(why.clone()));
        }
        Ok(DeviceLoad {
            gpu: gpu.clone(),
            pool,
            stream: Stream::new(gpu, false)?,
            crc: GpuCrc::load(gpu, octets)?,
            handle,
            here: Region::pinned(gpu, octets)?,
            octets,
        })
    }
    /// For the start block.
    pub fn describe(&self) -> String {
        match &self.handle {
            Ok(_) => {
                format!("from the disk to the GPU by {}", cufile::library().map_or_else(|why| why, |l| l.describe()))
            }
            Err(why) => format!("from the disk to the GPU over the CPU; {why}"),
        }
    }

    fn by_cufile(&mut self, segment: (usize, &Segment), slot: u64, address: u64) -> Result<SlotHeader> {
        let damaged = |why: String| {
            Error::new(Kind::Data, format!("{}: slot {slot}: {why}", segment.1.name()))
                .cure("the frame is lost; check the disk it lies on")
        };
        let head = segment.1.head(slot).ok_or_else(|| damaged("its head is damaged".into()))?;
        if !matches!(&self.handle, Ok(Some((open, _))) if *open == segment.0) {
            let handle = open(&self.gpu, segment.1).map_err(unavailable)?;
            self.handle = Ok(Some((segment.0, handle)));
        }
        let Ok(Some((_, handle))) = &self.handle else { return Err(damaged("no handle".into())) };
        let whole = form::pages(self.octets as u64) as usize;
        // SAFETY: pieces of the slab have so many octets, checked in `new`; nobody else has this one, and work that may still
        // write there was waited for by the caller; the context is bound.
        let read = unsafe { handle.read(address, whole, segment.1.place(slot) + PAGE as u64) };
        read.map_err(|e| damaged(format!("its octets cannot be read: {e}")))?;
        // SAFETY: a frame of this size, which has been filled.
        let crc = unsafe { self.crc.of(&self.stream, address)? };
        if crc == head.crc { Ok(head) } else { Err(damaged("the CRC of its octets is wrong".into())) }
    }

    fn over_the_cpu(&mut self, segment: &Segment, slot: u64, address: u64) -> Result<SlotHeader> {
        let head = segment.load(slot, self.here.as_mut_slice())?;
        // SAFETY: both live until the stream has been waited for, and nobody else has them.
        unsafe { self.stream.copy(address, self.here.address(), self.octets)? };
        self.stream.synchronize()?;
        Ok(head)
    }
}

/// A segment for cuFile.
fn open(gpu: &Arc<Gpu>, segment: &Segment) -> std::result::Result<Handle, String> {
    gpu.bind().map_err(|fault| fault.to_string())?;
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(segment.name());
    Handle::new(file.map_err(|e| format!("cuFile: {} with O_DIRECT: {e}", segment.name()))?)
}

impl Load<Device> for DeviceLoad {
    fn load(&mut self, recording: &Recording, (number, slot): (usize, u64)) -> Result<Option<Frame<Device>>> {
        let Some(mut frame) = self.pool.take() else { return Ok(None) };
        let segment = recording.segments().get(number).ok_or_else(|| Error::new(Kind::Internal, "no such segment"))?;
        self.gpu.bind()?;
        if let Some(before) = frame.before() {
            before.wait()?;
        }
        let address = frame.region_mut().address();
        let loaded = match self.handle {
            Ok(_) => self.by_cufile((number, segment), slot, address),
            Err(_) => self.over_the_cpu(segment, slot, address),
        };
        match loaded {
            Ok(head) => {
                *frame.meta_mut() = head.meta;
                Ok(Some(frame.seal()))
            }
            Err(error) => {
                frame.discard();
                Err(error)
            }
        }
    }
}
