//! Frames of the CPU to slots: heads and CRCs on the caller's thread, the disk on a thread of its own, so that one frame is
//! reckoned while the one before is written.

use super::form::{self, End, Entry, Header, Id, PAGE, SlotHeader};
use super::segment::{Files, Limit, end_of, write_error};
use super::write::{self, Disk, Piece, Pwrite, Way};
use crate::error::{Error, Kind, Result};
use crate::format::Layout;
use crate::frame::{Frame, Meta};
use crate::latency::{self, Figures};
use crate::mem::{Host, Region};
use gdmedia_sdp::Flow;
use hdrhistogram::Histogram;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How to record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// When a segment has enough.
    pub limit: Limit,
    /// How octets come to the disk.
    pub way: Way,
}

/// What has been recorded; may be read at any time.
#[derive(Debug)]
pub struct Stats {
    /// Frames that are on the disk.
    pub frames: AtomicU64,
    /// Octets of their slots.
    pub octets: AtomicU64,
    /// Frames of the flow between others that are not in the recording: the disk was too slow, or they came incomplete and
    /// were not wanted.
    pub left_out: AtomicU64,
    /// Stretches of these.
    pub gaps: AtomicU64,
    /// Segments so far.
    pub segments: AtomicU64,
    /// Nanoseconds from the call to the disk to its return, for each slot.
    latency: Mutex<Histogram<u64>>,
    /// What happened, for people, until somebody takes it.
    news: Mutex<Vec<String>>,
}

impl Default for Stats {
    fn default() -> Self {
        let [frames, octets, left_out, gaps, segments] = [0; 5].map(AtomicU64::new);
        let latency = Mutex::new(latency::histogram());
        Stats { frames, octets, left_out, gaps, segments, latency, news: Mutex::default() }
    }
}

impl Stats {
    /// How long the disk took for a slot.
    pub fn latency(&self) -> Option<Figures> {
        latency::figures(&self.latency.lock().unwrap_or_else(PoisonError::into_inner))
    }
    /// What has happened since it was asked before.
    pub fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
    pub(super) fn say(&self, what: String) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
    pub(super) fn wrote(&self, octets: u64, took: Duration) {
        self.frames.fetch_add(1, Relaxed);
        self.octets.fetch_add(octets, Relaxed);
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.latency.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(ns);
    }
}

/// The header of a recording that begins now.
pub(super) fn header(flow: &Flow, layout: &Layout) -> Header {
    let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let created = u64::try_from(created.as_nanos()).unwrap_or(u64::MAX);
    let mut id: Id = [0; 16];
    for half in id.as_chunks_mut::<8>().0 {
        // Its keys are the system's random numbers.
        let mut hasher = std::hash::RandomState::new().build_hasher();
        hasher.write_u64(created);
        hasher.write_u32(std::process::id());
        *half = hasher.finish().to_le_bytes();
    }
    Header { id, created, segment: 0, first_slot: 0, flow: flow.clone(), layout: layout.clone() }
}

/// Counts the frames that a recording lacks.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    next: Option<u64>,
}

impl Gaps {
    /// Frames between the one before and this one.
    pub fn before(&mut self, number: u64, stats: &Stats) -> u64 {
        let gap = self.next.map_or(0, |next| number.saturating_sub(next));
        self.next = Some(number.saturating_add(1));
        if gap > 0 {
            stats.gaps.fetch_add(1, Relaxed);
            stats.left_out.fetch_add(gap, Relaxed);
        }
        gap
    }
}

/// A frame that has been reckoned.
struct Job {
    head: SlotHeader,
    frame: Frame<Host>,
}

/// Records frames of the CPU. At most two are held: one on its way to the disk, and one that waits for it.
#[derive(Debug)]
pub struct Recorder {
    jobs: Option<SyncSender<Job>>,
    disk: Option<JoinHandle<Result<()>>>,
    stats: Arc<Stats>,
    id: Id,
    layout: Layout,
    frame_octets: usize,
    gaps: Gaps,
    text: String,
}

impl Recorder {
    /// Begins a recording in a folder.
    ///
    /// # Errors
    /// The folder cannot be written to; the way that is asked for is not there.
    pub fn create(folder: &Path, flow: &Flow, layout: &Layout, options: &Options) -> Result<Self> {
        let (disk, mut passed) = write::choose(options.way)?;
        let header = header(flow, layout);
        let (id, frame_octets) = (header.id, header.frame_octets());
        let files = Files::create(folder, header, options.limit, disk.direct())?;
        let disk: Box<dyn Disk> = if disk.direct() && !files.direct {
            passed.push(no_direct(folder));
            if options.way == Way::Uring {
                return Err(abandon(files, no_direct(folder)));
            }
            Box::new(Pwrite)
        } else {
            disk
        };
        let why: String = passed.iter().map(|why| format!("{why}; ")).collect();
        let text =
            format!("recording to {} ({why}{}, segments of {})", folder.display(), disk.describe(), options.limit);
        let stats = Arc::new(Stats::default());
        stats.segments.store(1, Relaxed);
        // No frame waits in between: at any time one is being written.
        let (jobs, work) = sync_channel(0);
        let slots = Slots {
            files,
            disk,
            memory: Region::host(2 * PAGE)?,
            copy: None,
            stats: stats.clone(),
            forced: options.way == Way::Uring,
        };
        let disk = std::thread::Builder::new().name("disk".into()).spawn(move || slots.run(&work)).map_err(|e| {
            Error::new(Kind::Unavailable, "no thread for the disk")
                .because(e)
                .cure("raise the limit of processes (ulimit -u)")
        })?;
        let jobs = Some(jobs);
        Ok(Recorder {
            jobs,
            disk: Some(disk),
            stats,
            id,
            layout: layout.clone(),
            frame_octets,
            gaps: Gaps::default(),
            text,
        })
    }

    /// What has been recorded.
    pub fn stats(&self) -> Arc<Stats> {
        self.stats.clone()
    }
    /// For the start block.
    pub fn describe(&self) -> &str {
        &self.text
    }

    /// Records a frame; waits until the disk has taken the one before it.
    ///
    /// # Errors
    /// The disk is full or broken. The recording has ended then, and what it held before is whole.
    pub fn write(&mut self, frame: &Frame<Host>) -> Result<()> {
        self.write_as(frame, frame.meta().clone())
    }

    /// The same with other words about it.
    pub(super) fn write_as(&mut self, frame: &Frame<Host>, meta: Meta) -> Result<()> {
        if *frame.layout() != self.layout {
            return Err(Error::new(Kind::Internal, "a frame of another layout than the recording's"));
        }
        let octets = frame.octets().get(..self.frame_octets).unwrap_or_default();
        let head = SlotHeader {
            id: self.id,
            slot: 0,
            gap: self.gaps.before(meta.number, &self.stats),
            crc: form::crc(octets),
            missing_octets: meta.missing.iter().map(|m| u64::from(m.len)).sum(),
            coalesced: form::Coalesced::No,
            meta,
        };
        let job = Job { head, frame: frame.clone() };
        let taken = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if taken { Ok(()) } else { self.finish() }
    }

    /// Ends the recording: the last frame is written, and the index.
    ///
    /// # Errors
    /// The disk is full or broken.
    pub fn finish(&mut self) -> Result<()> {
        self.jobs = None;
        let Some(disk) = self.disk.take() else {
            return Err(Error::new(Kind::Internal, "the recording has ended before"));
        };
        disk.join().unwrap_or_else(|_| Err(Error::new(Kind::Internal, "the disk's thread panicked")))
    }
}

impl Drop for Recorder {
    /// A recording that is abandoned still gets its index.
    fn drop(&mut self) {
        if self.disk.is_some() {
            let _ = self.finish();
        }
    }
}

fn no_direct(folder: &Path) -> String {
    format!("io_uring: the file system of {} has no O_DIRECT", folder.display())
}

/// Nothing is left behind of a recording that did not begin.
fn abandon(mut files: Files, why: String) -> Error {
    let _ = files.end(0, End::Failed);
    Error::new(Kind::Unavailable, why).cure("record to a local disk (ext4, XFS), or choose --way pwrite")
}

/// The disk's thread.
struct Slots {
    files: Files,
    disk: Box<dyn Disk>,
    /// Two pages: a head, and the last octets of a frame.
    memory: Region<Host>,
    /// For frames whose octets do not begin at a page.
    copy: Option<Region<Host>>,
    stats: Arc<Stats>,
    /// No other way is taken when this one fails.
    forced: bool,
}

impl Slots {
    fn run(mut self, work: &Receiver<Job>) -> Result<()> {
        while let Ok(job) = work.recv() {
            if let Err(error) = self.take(job) {
                let ended = self.files.end(1, end_of(&error));
                self.stats.left_out.fetch_add(1, Relaxed);
                self.stats.gaps.fetch_add(1, Relaxed);
                let frames = self.stats.frames.load(Relaxed);
                let index = if ended.is_err() { "; without an index" } else { "" };
                self.stats
                    .say(format!("the recording has ended after {frames} frames{index}: {}", error.in_one_line()));
                return Err(error);
            }
        }
        self.files.end(0, End::Finished)
    }

    fn take(&mut self, Job { mut head, frame }: Job) -> Result<()> {
        let (wire, octets) = (frame.layout().wire, self.files.header().frame_octets());
        let before = self.files.header().segment;
        let arrival = head.meta.last_arrival;
        loop {
            let place = self.files.slot(arrival)?;
            head.slot = place.slot;
            if let Some(page) = self.memory.as_mut_slice().first_chunk_mut() {
                head.encode(&wire, octets, page);
            }
            let frame = frame.octets().get(..octets).unwrap_or_default();
            let begun = Instant::now();
            let written = write_slot(self.disk.as_mut(), &place, &mut self.memory, &mut self.copy, frame);
            match written {
                Ok(()) => {
                    let after = self.files.header();
                    self.stats.wrote(after.slot_octets(), begun.elapsed());
                    if after.segment != before {
                        self.stats.segments.fetch_add(1, Relaxed);
                    }
                    self.files.took(Entry::from(&head));
                    return Ok(());
                }
                // Said by the first write of all: its addresses are right, so the file system takes none of them.
                Err(e) if self.disk.direct() && !self.forced && e.kind() == io::ErrorKind::InvalidInput => {
                    self.files.without_direct();
                    self.disk = Box::new(Pwrite);
                    self.stats.say(format!("recording by {} now: O_DIRECT failed: {e}", self.disk.describe()));
                }
                Err(e) => {
                    let path = self.files.path().map(Path::to_owned).unwrap_or_default();
                    return Err(write_error(&path, e));
                }
            }
        }
    }
}

/// Octets and head of a slot; memory that a frame shares with nobody goes as it is.
fn write_slot(
    disk: &mut dyn Disk,
    place: &super::segment::Place<'_>,
    memory: &mut Region<Host>,
    copy: &mut Option<Region<Host>>,
    frame: &[u8],
) -> io::Result<()> {
    let body = place.at + PAGE as u64;
    let Some((head, tail)) = memory.as_mut_slice().split_at_mut_checked(PAGE) else {
        return Err(io::ErrorKind::OutOfMemory.into());
    };
    if !disk.direct() {
        return disk.write(place.file, &[(frame, body), (head, place.at)]);
    }
    let frame = if frame.as_ptr().align_offset(PAGE) == 0 {
        frame
    } else {
        if copy.as_ref().is_none_or(|copy| copy.len() < frame.len()) {
            *copy = Some(Region::host(frame.len()).map_err(|_| io::ErrorKind::OutOfMemory)?);
        }
        let Some(room) = copy.as_mut().and_then(|copy| copy.as_mut_slice().get_mut(..frame.len())) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        room.copy_from_slice(frame);
        room
    };
    let (whole, rest) = frame.split_at(frame.len() / PAGE * PAGE);
    let mut pieces: [Piece<'_>; 3] = [(whole, body), (&[], 0), (head, place.at)];
    if !rest.is_empty() {
        let (used, unused) = tail.split_at_mut(rest.len());
        used.copy_from_slice(rest);
        unused.fill(0);
        pieces[1] = (tail, body + whole.len() as u64);
    }
    disk.write(place.file, &pieces)
}
