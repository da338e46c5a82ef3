//! The kernel for rings that the GPU can read and frames in its memory.
//!
//! Placements become pieces (`gather`) and collect until they are a batch; then the batch is started, while further
//! packets arrive. After the last packet of a frame only its last batch is left to do. Copies to the GPU and unpacking
//! run in two streams that events bring into order, so that one batch is copied while the one before is unpacked.
#![allow(unsafe_code)]

use super::abi::{Piece, SEGMENTS, Segment, Span};
use super::flight::Flight;
use super::gather::{self, Parts, Planes, Runs};
use super::options::{CudaCounters, Options, Schedule, Transfer};
use super::program::Program;
use crate::error::Result;
use crate::frame::{Frame, FrameBuf};
use crate::gpu::{Fault, Gpu, Stream};
use crate::kernel::conceal::{self, Paint};
use crate::kernel::cpu::Place;
use crate::kernel::{Conversion, Kernel, KernelError, Ticket};
use crate::mem::{Device, GpuAccess, Pinned, Region, needs_end_of_writes};
use crate::plan::{Missing, Placement};
use crate::ring::{SLACK, Slot, SplitRing};
use std::sync::Arc;

/// Pieces of a batch: enough that starting it (some 8 us of CPU time) does not matter, few enough that the last one is
/// soon done.
const BATCH: u32 = 256;
/// Octets of descriptions: an area of a batch, and how many areas there are.
const SUB_FRAME: (usize, usize) = (4096 * size_of::<Piece>(), 64);
const WHOLE_FRAME: (usize, usize) = (65_536 * size_of::<Piece>(), 4);
/// A copy of fewer octets costs more than reading them over the bus; so do rows that are narrower.
const COPY_OCTETS: u64 = 16 << 10;
const NARROW: u64 = 4 << 10;
/// From so many octets on a copy and a kernel are sooner done than a kernel that reads over the bus: 12 us and 54 GB/s
/// against 34 GB/s.
const LARGE: u64 = 1 << 20;

/// Executes placements on a GPU.
#[derive(Debug)]
pub struct CudaKernel {
    conversion: Conversion,
    program: Program,
    compute: Stream,
    /// Only where something is copied: a GPU has few queues.
    copy: Option<Stream>,
    flight: Flight,
    place: Place,
    gpu: Arc<Gpu>,
    /// Of each receiver; those of one batch lie in one ring.
    rings: Vec<Ring>,
    /// The one of the batch.
    of: usize,
    /// Batches of so many octets are copied.
    copy_from: u64,
    parts: Parts,
    segments: Vec<Segment>,
    /// The same pieces as runs, as long as they are few enough.
    runs: Runs,
    /// All pieces of the batch; the GPU is given them when they are too many runs.
    pieces: Vec<Piece>,
    pending: u32,
    batch: u32,
    /// One row each of black and of the mark.
    colours: [Region<Pinned>; 2],
    counters: CudaCounters,
    text: String,
    fault: Option<Fault>,
}

/// A ring that packets lie in.
#[derive(Debug)]
struct Ring {
    planes: Planes,
    /// Addresses of the planes, head and body.
    at: [u64; 2],
    /// The plane that most octets lie in is the body plane; else the head plane of a ring that does not split.
    is_body: bool,
    /// Its copy on the GPU, if there is to be one.
    mirror: Option<Region<Device>>,
    /// A card writes to the GPU's memory, which does not keep the order by itself.
    written: bool,
}

impl Ring {
    fn new<R: GpuAccess>(gpu: &Arc<Gpu>, ring: &SplitRing<R>, copied: bool) -> Result<Self> {
        let head = ring.head_plane();
        let (planes, at, is_body, octets) = match ring.body_plane() {
            None => (Planes { head: octets(head.len()), body: 0 }, [head.address(), head.address()], false, head.len()),
            Some(body) => (
                Planes { head: octets(head.len()), body: octets(body.len()) },
                [head.address(), body.address()],
                true,
                body.len(),
            ),
        };
        // Octets that lie in the GPU's memory already are not copied again.
        let mirrored = copied && !(is_body && R::IN_DEVICE);
        let mirror = mirrored.then(|| Region::device(gpu, octets + SLACK)).transpose()?;
        let written = is_body && R::IN_DEVICE && needs_end_of_writes(gpu)?;
        Ok(Ring { planes, at, is_body, mirror, written })
    }
}

impl CudaKernel {
    /// A kernel for `ring` and frames of the conversion's layout.
    ///
    /// # Errors
    /// The kernels cannot be built for this GPU, or there is no memory.
    pub fn new<R: GpuAccess>(
        gpu: &Arc<Gpu>,
        conversion: Conversion,
        ring: &SplitRing<R>,
        options: Options,
    ) -> Result<Self> {
        let program = Program::load(gpu, &conversion)?;
        let ring = Ring::new(gpu, ring, options.transfer != Transfer::Mapped)?;
        let (planes, in_device) = (ring.planes, ring.is_body && R::IN_DEVICE);
        let (area, areas) = if options.schedule == Schedule::SubFrame { SUB_FRAME } else { WHOLE_FRAME };
        let flight = Flight::new(gpu, area, areas)?;
        let colour = |paint: Paint| -> Result<Region<Pinned>> {
            let mut region = Region::pinned(gpu, paint.row().len() + SLACK)?;
            region.as_mut_slice()[..paint.row().len()].copy_from_slice(paint.row());
            Ok(region)
        };
        let mut kernel = CudaKernel {
            compute: Stream::new(gpu, true)?,
            copy: ring.mirror.is_some().then(|| Stream::new(gpu, true)).transpose()?,
            flight,
            place: Place::new(conversion.wire()),
            gpu: gpu.clone(),
            rings: vec![ring],
            of: 0,
            copy_from: if options.transfer == Transfer::Auto { LARGE } else { COPY_OCTETS },
            parts: Parts::with_capacity(4096),
            segments: Vec::with_capacity(SEGMENTS),
            runs: Runs::new(planes),
            pieces: Vec::with_capacity(area / size_of::<Piece>()),
            pending: 0,
            batch: if options.schedule == Schedule::SubFrame { BATCH } else { u32::MAX },
            colours: [colour(Paint::black(&conversion))?, colour(Paint::mark(&conversion))?],
            counters: CudaCounters::default(),
            text: String::new(),
            fault: None,
            conversion,
            program,
        };
        let way = match options.transfer {
            _ if in_device => "payload lies in GPU memory",
            Transfer::Auto => "payload read over the bus, batches of a MiB and more copied first",
            Transfer::Copy => "payload copied first",
            Transfer::Mapped => "payload read over the bus",
        };
        kernel.flight.prove(&kernel.compute)?;
        kernel.text = format!("CUDA ({}), {way}", kernel.program.how());
        Ok(kernel)
    }

    /// What it does.
    pub const fn conversion(&self) -> &Conversion {
        &self.conversion
    }
    /// What it has done.
    pub fn counters(&self) -> CudaCounters {
        CudaCounters { waited: self.flight.waited, ..self.counters }
    }
    /// The stream that frames are written in, for others who work on them in order.
    pub const fn stream(&self) -> &Stream {
        &self.compute
    }

    /// Adds to the batch what fits into it; gives back how many placements that were. An empty batch takes one at least.
    #[inline]
    fn collect(&mut self, slots: &[Slot], placements: &[Placement], frame: u64) -> usize {
        let begin = self.pending;
        if self.segments.len() == SEGMENTS && self.segments.last().is_some_and(|s| s.frame != frame) {
            return 0;
        }
        let room = self.room() as usize;
        let planes = self.rings[self.of].planes;
        let mut taken = 0;
        for placement in placements {
            if self.pieces.len() == room {
                break;
            }
            taken += 1;
            let slot = slots.get(placement.slot as usize);
            let Some(piece) = slot.and_then(|slot| gather::piece(slot, placement, planes, &mut self.place)) else {
                self.counters.refused += 1;
                continue;
            };
            self.pieces.push(piece);
            self.runs.add(piece, frame, self.pending);
            self.pending += 1;
        }
        if self.pending > begin {
            match self.segments.last_mut() {
                Some(segment) if segment.frame == frame => segment.end = self.pending,
                _ => self.segments.push(Segment {
                    frame,
                    begin,
                    end: self.pending,
                    head_octets: planes.head,
                    body_octets: planes.body,
                    ..Segment::default()
                }),
            }
        }
        taken
    }

    /// Pieces that an area holds.
    fn room(&mut self) -> u32 {
        self.flight.areas.current::<Piece>().len() as u32
    }

    /// Starts what is pending. After a fault nothing is: frames that pieces are for may be gone, and a ticket that the GPU
    /// was not told to write never comes.
    fn start(&mut self) -> std::result::Result<(), Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.pending == 0 {
            return Ok(());
        }
        let Ring { at, is_body, mirror, written, .. } = &self.rings[self.of];
        if *written {
            self.gpu.end_writes()?;
        }
        match self.runs.all() {
            Some(runs) => runs.iter().for_each(|run| self.parts.add_run(run, *is_body)),
            None => self.pieces.iter().for_each(|piece| self.parts.add_piece(piece, *is_body)),
        }
        let octets = self.parts.octets();
        let parts = self.parts.join();
        let [mut head, mut body] = *at;
        // Packets that lie far apart (each in a cell of its own) are read where they are.
        let worth = octets >= self.copy_from
            && octets >= NARROW * parts.len() as u64
            && octets >= COPY_OCTETS * gather::copies(parts);
        if let (Some(mirror), Some(copy), true) = (mirror, &self.copy, worth) {
            let plane = if *is_body { &mut body } else { &mut head };
            let mut rest = parts;
            while let Some((rows, pitch, width)) = gather::rows(rest) {
                let at = u64::from(rest[0].0);
                // SAFETY: parts lie in the plane, and the mirror is as large; the ring's memory belongs to leases that
                // are held until the ticket is done, and so does the mirror's.
                unsafe {
                    match rows {
                        1 => copy.copy(mirror.address() + at, *plane + at, width)?,
                        _ => copy.copy_rows((mirror.address() + at, pitch), (*plane + at, pitch), width, rows)?,
                    }
                }
                self.counters.copied += (rows * width) as u64;
                rest = &rest[rows..];
            }
            *plane = mirror.address();
            let event = self.flight.event()?;
            copy.record(&event)?;
            self.compute.wait(&event)?;
        } else {
            self.counters.mapped += octets;
        }
        // Runs go with the start; pieces are read over the bus: a copy so small would hold up those of other streams.
        let pieces = self.flight.areas.address();
        if self.runs.all().is_none() {
            self.flight.areas.current()[..self.pieces.len()].copy_from_slice(&self.pieces);
        }
        let segments = self.runs.all().unwrap_or(&mut self.segments);
        for segment in &mut *segments {
            (segment.head, segment.body) = (head, body);
        }
        // SAFETY: every piece was checked against ring and frame (`gather`); ring memory, frames and descriptions stay as
        // they are until the ticket is done: the lease, the frame and the area are held until then.
        unsafe { self.program.unpack(&self.compute, segments, pieces, self.pending) }?;
        self.counters.batches += 1;
        self.counters.pieces += u64::from(self.pending);
        self.pending = 0;
        self.pieces.clear();
        self.segments.clear();
        self.runs.clear();
        self.parts.clear();
        self.flight.mark(&self.compute)?;
        Ok(())
    }

    /// Runs the kernel with one row of a colour as the source of every hole.
    fn fill(&mut self, mark: bool, frame: u64, missing: &[Missing]) -> std::result::Result<(), Fault> {
        self.start()?;
        let wire = *self.conversion.wire();
        let group = wire.pgroup.octets;
        let colour = &self.colours[usize::from(mark)];
        let (address, plane) = (colour.address(), colour.len() as u32);
        let most = 32_768 / group * group;
        let mut count = 0;
        for missing in missing {
            let Some((first, end)) = conceal::groups(&wire, missing) else { continue };
            let (mut at, end) = (first * group, end * group);
            while at < end {
                let len = most.min(end - at);
                let dst = missing.row * wire.row_octets() + at;
                let piece = Piece { src: at, dst, rest: 0, len: len as u16, first: len as u16 };
                self.flight.areas.current::<Piece>()[count as usize] = piece;
                count += 1;
                at += len;
                if count == self.room() {
                    self.fill_batch(count, frame, address, plane)?;
                    count = 0;
                }
            }
        }
        if count > 0 {
            self.fill_batch(count, frame, address, plane)?;
        }
        Ok(())
    }

    fn fill_batch(&mut self, count: u32, frame: u64, head: u64, octets: u32) -> std::result::Result<(), Fault> {
        let segment = Segment { head, body: head, frame, end: count, head_octets: octets, ..Segment::default() };
        // SAFETY: pieces lie in a row of the frame and of the colour; colours live as long as the kernel.
        unsafe { self.program.unpack(&self.compute, &[segment], self.flight.areas.address(), count) }?;
        self.flight.mark(&self.compute)?;
        Ok(())
    }

    /// Copies the holes from the frame before.
    fn copy_holes(&mut self, frame: u64, previous: u64, missing: &[Missing]) -> std::result::Result<(), Fault> {
        self.start()?;
        let layout = self.conversion.layout.clone();
        let room = self.flight.areas.current::<Span>().len();
        let mut count = 0;
        let mut failed = Ok(());
        conceal::ranges(&layout, missing, |start, end| {
            if failed.is_err() {
                return;
            }
            // Frames have 4 GiB at most (`Program::load`).
            let span = Span { offset: start as u32, count: (end - start) as u32 };
            self.flight.areas.current::<Span>()[count] = span;
            count += 1;
            if count == room {
                failed = self.span_batch(frame, previous, std::mem::take(&mut count));
            }
        });
        failed?;
        if count > 0 {
            self.span_batch(frame, previous, count)?;
        }
        Ok(())
    }

    /// The same from a frame that is a window of its ring, and begins at any octet.
    fn copy_holes_of_window(
        &mut self,
        frame: u64,
        [first, second]: [(*const u8, usize); 2],
        missing: &[Missing],
    ) -> std::result::Result<(), Fault> {
        self.start()?;
        let layout = self.conversion.layout.clone();
        let mut copied = Ok(());
        conceal::ranges(&layout, missing, |start, end| {
            // What lies in the first part, and what lies in the second.
            let split = first.1.clamp(start, end);
            for (from, at, to) in
                [(first.0 as u64, start, split), ((second.0 as u64).wrapping_sub(first.1 as u64), split, end)]
            {
                if at < to && copied.is_ok() {
                    // SAFETY: the span lies in a frame of this layout, which both are. The window's memory is written by a
                    // network card alone; what is copied from there is in the loss map, whatever it is.
                    copied = unsafe { self.compute.copy(frame + at as u64, from.wrapping_add(at as u64), to - at) };
                }
            }
        });
        copied?;
        self.flight.mark(&self.compute)?;
        Ok(())
    }

    fn span_batch(&mut self, frame: u64, previous: u64, count: usize) -> std::result::Result<(), Fault> {
        let spans = self.flight.areas.address();
        // SAFETY: spans lie in a frame of this layout, which both are; both are written in this stream alone.
        unsafe { self.program.copy_spans(&self.compute, frame, previous, spans, count as u32) }?;
        self.flight.mark(&self.compute)?;
        Ok(())
    }

    /// What follows lies in this ring; what is pending lies in another one and is started.
    fn turn_to(&mut self, head: u64) -> std::result::Result<(), KernelError> {
        let Some(of) = self.rings.iter().position(|ring| ring.at[0] == head) else {
            return Err(KernelError("a ring that the kernel was not made for".into()));
        };
        let started = self.start();
        self.keep(started)?;
        self.of = of;
        self.runs.set_planes(self.rings[of].planes);
        Ok(())
    }

    fn check(&self, layout: &crate::format::Layout) -> std::result::Result<(), KernelError> {
        match self.fault {
            Some(fault) => Err(broken(fault)),
            None if *layout == self.conversion.layout => Ok(()),
            None => Err(KernelError("a frame of another layout than the kernel's".into())),
        }
    }

    /// Where a frame lies. Before anything is written there, work of others on it has to be done: streams may share frames.
    fn enter(&mut self, frame: &mut FrameBuf<Device>) -> std::result::Result<u64, KernelError> {
        if let Some(fence) = frame.before() {
            let queued = fence.is_done().and_then(|done| if done { Ok(()) } else { fence.queue(&self.compute) });
            queued.map_err(|error| KernelError(error.to_string()))?;
        }
        Ok(frame.region_mut().address())
    }

    fn keep<T>(&mut self, result: std::result::Result<T, Fault>) -> std::result::Result<T, KernelError> {
        result.map_err(|fault| {
            self.fault.get_or_insert(fault);
            broken(fault)
        })
    }
}

impl<R: GpuAccess> Kernel<R, Device> for CudaKernel {
    fn apply(
        &mut self,
        ring: &SplitRing<R>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<Device>,
    ) -> std::result::Result<Ticket, KernelError> {
        self.check(frame.layout())?;
        let head = ring.head_plane().address();
        if head != self.rings[self.of].at[0] {
            self.turn_to(head)?;
        }
        let address = self.enter(frame)?;
        let mut rest = placements;
        while !rest.is_empty() {
            let taken = self.collect(slots, rest, address);
            rest = rest.get(taken..).unwrap_or_default();
            if !rest.is_empty() {
                let started = self.start();
                self.keep(started)?;
            }
        }
        if self.pending >= self.batch {
            let started = self.start();
            self.keep(started)?;
        }
        Ok(if self.pending > 0 { self.flight.next() } else { self.flight.last() })
    }

    fn add_ring(&mut self, ring: &SplitRing<R>) -> std::result::Result<(), KernelError> {
        let ring = Ring::new(&self.gpu, ring, self.copy.is_some()).map_err(|error| KernelError(error.in_one_line()))?;
        self.rings.push(ring);
        Ok(())
    }

    fn conceal(
        &mut self,
        frame: &mut FrameBuf<Device>,
        missing: &[Missing],
        previous: Option<&Frame<Device>>,
    ) -> std::result::Result<(), KernelError> {
        self.check(frame.layout())?;
        let address = self.enter(frame)?;
        let filled = match previous.filter(|p| *p.layout() == self.conversion.layout) {
            Some(previous) if previous.is_window() => self.copy_holes_of_window(address, previous.parts(), missing),
            Some(previous) => self.copy_holes(address, previous.start() as u64, missing),
            None => self.fill(false, address, missing),
        };
        self.keep(filled)
    }

    fn paint(&mut self, frame: &mut FrameBuf<Device>, missing: &[Missing]) -> std::result::Result<(), KernelError> {
        self.check(frame.layout())?;
        let address = self.enter(frame)?;
        let filled = self.fill(true, address, missing);
        self.keep(filled)
    }

    fn finish(&mut self, frame: FrameBuf<Device>) -> std::result::Result<(Frame<Device>, Ticket), KernelError> {
        let started = self.start();
        self.keep(started)?;
        Ok((frame.seal_after(Some(self.flight.fence())), self.flight.last()))
    }

    fn discard(&mut self, frame: FrameBuf<Device>) {
        // What is pending for it is started, and whoever gets its memory next waits for that.
        if let Err(fault) = self.start() {
            self.fault.get_or_insert(fault);
        }
        frame.discard_after(Some(self.flight.fence()));
    }

    fn flush(&mut self) -> std::result::Result<(), KernelError> {
        let started = self.start();
        self.keep(started)
    }

    fn end_writes(&mut self) -> std::result::Result<(), KernelError> {
        let written = self.rings.iter().any(|ring| ring.written);
        let ended = if written { self.gpu.end_writes() } else { Ok(()) };
        self.keep(ended)
    }

    fn done(&mut self, ticket: Ticket) -> std::result::Result<bool, KernelError> {
        let done = self.flight.is_done(ticket, &self.compute);
        self.keep(done)
    }

    fn name(&self) -> &'static str {
        "cuda"
    }

    fn describe(&self) -> String {
        self.text.clone()
    }
}

impl Drop for CudaKernel {
    fn drop(&mut self) {
        // Kernels and copies in flight read memory that goes with this.
        if let Some(copy) = &self.copy {
            let _ = copy.synchronize();
        }
        let _ = self.compute.synchronize();
    }
}

fn octets(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn broken(fault: Fault) -> KernelError {
    KernelError(fault.to_string())
}
