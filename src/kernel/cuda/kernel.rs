//! The kernel for rings that the GPU can read and frames in its memory.
//!
//! Placements become pieces (`gather`) and collect until they are a batch; then the batch is started, while further
//! packets arrive. After the last packet of a frame only its last batch is left to do. Copies to the GPU and unpacking
//! run in two streams that events bring into order, so that one batch is copied while the one before is unpacked.

#![allow(unsafe_code)]

use super::abi::{Piece, SEGMENTS, Segment, Span};
use super::flight::Flight;
use super::gather::{self, Parts, Planes};
use super::program::Program;
use crate::error::Result;
use crate::frame::{Frame, FrameBuf};
use crate::gpu::{Fault, Gpu, Stream};
use crate::kernel::conceal::{self, Paint};
use crate::kernel::cpu::Place;
use crate::kernel::{Conversion, Kernel, KernelError, Ticket};
use crate::mem::{Device, GpuAccess, Pinned, Region};
use crate::plan::{Missing, Placement};
use crate::ring::{SLACK, Slot, SplitRing};
use std::sync::Arc;

/// How octets come from pinned memory to the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfer {
    /// Whichever is sooner done with a batch; measured when the kernel is made.
    #[default]
    Measure,
    /// Copy engines bring them, kernels read them there.
    Copy,
    /// Kernels read them over the bus.
    Mapped,
}

/// When work is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// While the frame arrives, batch by batch.
    #[default]
    SubFrame,
    /// When the frame is whole. To compare with: it costs the time of the whole frame after its last packet.
    WholeFrame,
}

/// What may be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The way to the GPU.
    pub transfer: Transfer,
    /// When work is started.
    pub schedule: Schedule,
}

/// What a kernel has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CudaCounters {
    /// Batches started.
    pub batches: u64,
    /// Pieces in them.
    pub pieces: u64,
    /// Octets that copy engines brought, gaps between packets included.
    pub copied: u64,
    /// Octets that kernels read over the bus.
    pub mapped: u64,
    /// Placements that lie outside of their packet, ring or frame: none, unless whoever made them is wrong.
    pub refused: u64,
    /// How often the GPU was slower than the stream.
    pub waited: u64,
}

/// Pieces of a batch: enough that starting it (some 8 us of CPU time) does not matter, few enough that the last one is
/// soon done.
const BATCH: u32 = 128;
/// Octets of descriptions: an area of a batch, and how many areas there are.
const SUB_FRAME: (usize, usize) = (4096 * size_of::<Piece>(), 64);
const WHOLE_FRAME: (usize, usize) = (65_536 * size_of::<Piece>(), 4);
/// From so many on, pieces are copied to the GPU too.
const COPY_PIECES: u32 = 512;
/// A copy of fewer octets costs more than reading them over the bus.
const COPY_OCTETS: u64 = 16 << 10;

/// Executes placements on a GPU.
#[derive(Debug)]
pub struct CudaKernel {
    conversion: Conversion,
    program: Program,
    compute: Stream,
    copy: Stream,
    flight: Flight,
    place: Place,
    planes: Planes,
    /// The plane that most octets lie in: where it is, its copy on the GPU, if there is to be one.
    bulk: Bulk,
    /// Its addresses, head and body.
    ring: [u64; 2],
    parts: Parts,
    segments: Vec<Segment>,
    pending: u32,
    batch: u32,
    /// Memory on the GPU for pieces.
    pieces: Region<Device>,
    /// One row each of black and of the mark.
    colours: [Region<Pinned>; 2],
    counters: CudaCounters,
    text: String,
    fault: Option<Fault>,
}

/// The plane that most octets lie in.
#[derive(Debug)]
struct Bulk {
    /// It is the body plane; else the head plane of a ring that does not split.
    is_body: bool,
    mirror: Option<Region<Device>>,
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
        let head = ring.head_plane();
        let (planes, ring_at, is_body, bulk_octets) = match ring.body_plane() {
            None => (Planes { head: octets(head.len()), body: 0 }, [head.address(), head.address()], false, head.len()),
            Some(body) => (
                Planes { head: octets(head.len()), body: octets(body.len()) },
                [head.address(), body.address()],
                true,
                body.len(),
            ),
        };
        // Octets that lie in the GPU's memory already are not copied again.
        let mirrored = options.transfer != Transfer::Mapped && !(is_body && R::IN_DEVICE);
        let mirror = mirrored.then(|| Region::device(gpu, bulk_octets + SLACK)).transpose()?;
        let (area, areas) = if options.schedule == Schedule::SubFrame { SUB_FRAME } else { WHOLE_FRAME };
        let flight = Flight::new(gpu, area, areas)?;
        let colour = |paint: Paint| -> Result<Region<Pinned>> {
            let mut region = Region::pinned(gpu, paint.row().len() + SLACK)?;
            region.as_mut_slice()[..paint.row().len()].copy_from_slice(paint.row());
            Ok(region)
        };
        let mut kernel = CudaKernel {
            compute: Stream::new(gpu, true)?,
            copy: Stream::new(gpu, true)?,
            pieces: Region::device(gpu, flight.areas.octets())?,
            flight,
            place: Place::new(conversion.wire()),
            planes,
            bulk: Bulk { is_body, mirror },
            ring: ring_at,
            parts: Parts::with_capacity(4096),
            segments: Vec::with_capacity(SEGMENTS),
            pending: 0,
            batch: if options.schedule == Schedule::SubFrame { BATCH } else { u32::MAX },
            colours: [colour(Paint::black(&conversion))?, colour(Paint::mark(&conversion))?],
            counters: CudaCounters::default(),
            text: String::new(),
            fault: None,
            conversion,
            program,
        };
        let way = kernel.choose(options.transfer, R::IN_DEVICE)?;
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

    /// Measures both ways with a batch of what a ring usually holds, and keeps the one that is sooner done.
    fn choose(&mut self, transfer: Transfer, in_device: bool) -> Result<String> {
        if self.bulk.is_body && in_device {
            return Ok("payload lies in GPU memory".into());
        }
        match transfer {
            Transfer::Copy => return Ok("copied, then unpacked, as told".into()),
            Transfer::Mapped => return Ok("unpacked from mapped memory, as told".into()),
            Transfer::Measure => {}
        }
        let [copied, mapped] = [true, false].map(|copied| self.time(copied));
        let (copied, mapped) = (copied?, mapped?);
        let us = |ns: u128| ns as f64 / 1e3;
        let figures =
            format!("a batch took {:.0} us so, {:.0} us the other way", us(copied.min(mapped)), us(copied.max(mapped)));
        if copied <= mapped {
            return Ok(format!("copied, then unpacked ({figures})"));
        }
        self.bulk.mirror = None;
        Ok(format!("unpacked from mapped memory ({figures})"))
    }

    /// Nanoseconds from the start of a batch to its end as the CPU sees it: the median of some.
    fn time(&mut self, copied: bool) -> std::result::Result<u128, Fault> {
        let scratch = Region::device(self.compute.gpu(), self.conversion.layout.size).ok();
        let Some(scratch) = scratch else { return Ok(0) };
        let wire = *self.conversion.wire();
        // As much of a row as a packet of 1200 octets holds, row after row.
        let group = wire.pgroup.octets;
        let len = (wire.row_octets().min(1200) / group * group) as u16;
        let plane = if self.bulk.is_body { self.planes.body } else { self.planes.head };
        let count = BATCH.min(plane / 2048).min(wire.rows()).max(1);
        let mirror = if copied { None } else { self.bulk.mirror.take() };
        let mut times = Vec::new();
        for _ in 0..21 {
            let begun = std::time::Instant::now();
            for n in 0..count {
                let at = n * 1220 + 20;
                if at + u32::from(len) > plane {
                    break;
                }
                let first = if self.bulk.is_body { 0 } else { len };
                let (src, rest) = if self.bulk.is_body { (0, at) } else { (at, 0) };
                let dst = n * wire.row_octets();
                self.push(Piece { src, dst, rest, len, first }, scratch.address());
            }
            self.start()?;
            let ticket = self.flight.last();
            while !self.flight.is_done(ticket)? {
                std::hint::spin_loop();
            }
            times.push(begun.elapsed().as_nanos());
        }
        if mirror.is_some() {
            self.bulk.mirror = mirror;
        }
        self.counters = CudaCounters::default();
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }

    /// Adds a piece to the batch; there is room for it.
    #[inline]
    fn push(&mut self, piece: Piece, frame: u64) {
        match self.segments.last_mut() {
            Some(segment) if segment.frame == frame => segment.end += 1,
            _ => self.segments.push(Segment {
                head: 0,
                body: 0,
                frame,
                begin: self.pending,
                end: self.pending + 1,
                head_octets: self.planes.head,
                body_octets: self.planes.body,
            }),
        }
        if self.bulk.is_body {
            let octets = u32::from(piece.len - piece.first);
            if octets > 0 {
                self.parts.add(piece.rest, piece.rest + octets);
            }
        } else {
            self.parts.add(piece.src, piece.src + u32::from(piece.len));
        }
        if let Some(place) = self.flight.areas.current::<Piece>().get_mut(self.pending as usize) {
            *place = piece;
            self.pending += 1;
        }
    }

    /// Pieces that an area holds.
    fn room(&mut self) -> u32 {
        self.flight.areas.current::<Piece>().len() as u32
    }

    /// Starts what is pending.
    fn start(&mut self) -> std::result::Result<(), Fault> {
        if self.pending == 0 {
            return Ok(());
        }
        let octets = self.parts.octets();
        let parts = self.parts.join();
        let [mut head, mut body] = self.ring;
        // Packets that lie far apart (each in a cell of its own) are read where they are.
        let worth = octets >= COPY_OCTETS * parts.len() as u64;
        let mut ordered = false;
        if let Some(mirror) = self.bulk.mirror.as_ref().filter(|_| worth) {
            let plane = if self.bulk.is_body { &mut body } else { &mut head };
            for &(start, end) in parts {
                let (start, octets) = (u64::from(start), (end - start) as usize);
                // SAFETY: parts lie in the plane, and the mirror is as large; the ring's memory belongs to leases that
                // are held until the ticket is done, and so does the mirror's.
                unsafe { self.copy.copy(mirror.address() + start, *plane + start, octets) }?;
                self.counters.copied += octets as u64;
            }
            *plane = mirror.address();
            ordered = true;
        } else {
            self.counters.mapped += octets;
        }
        let mut pieces = self.flight.areas.address();
        if self.pending >= COPY_PIECES {
            let at = self.pieces.address() + self.flight.areas.offset() as u64;
            // SAFETY: both are areas of the same size, used for this batch until its ticket is done.
            unsafe { self.copy.copy(at, pieces, self.pending as usize * size_of::<Piece>()) }?;
            pieces = at;
            ordered = true;
        }
        if ordered {
            let event = self.flight.event()?;
            self.copy.record(&event)?;
            self.compute.wait(&event)?;
        }
        for segment in &mut self.segments {
            (segment.head, segment.body) = (head, body);
        }
        // SAFETY: every piece was checked against ring and frame (`gather`); ring memory, frames and descriptions stay as
        // they are until the ticket is done: the lease, the frame and the area are held until then.
        unsafe { self.program.unpack(&self.compute, &self.segments, pieces, self.pending) }?;
        self.counters.batches += 1;
        self.counters.pieces += u64::from(self.pending);
        self.pending = 0;
        self.segments.clear();
        self.parts.clear();
        self.flight.mark(&self.compute, true)?;
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
        let segment =
            Segment { head, body: head, frame, begin: 0, end: count, head_octets: octets, body_octets: octets };
        // SAFETY: pieces lie in a row of the frame and of the colour; colours live as long as the kernel.
        unsafe { self.program.unpack(&self.compute, &[segment], self.flight.areas.address(), count) }?;
        self.flight.mark(&self.compute, true)?;
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

    fn span_batch(&mut self, frame: u64, previous: u64, count: usize) -> std::result::Result<(), Fault> {
        let spans = self.flight.areas.address();
        // SAFETY: spans lie in a frame of this layout, which both are; both are written in this stream alone.
        unsafe { self.program.copy_spans(&self.compute, frame, previous, spans, count as u32) }?;
        self.flight.mark(&self.compute, true)?;
        Ok(())
    }

    fn check(&self, layout: &crate::format::Layout) -> std::result::Result<(), KernelError> {
        match self.fault {
            Some(fault) => Err(broken(fault)),
            None if *layout == self.conversion.layout => Ok(()),
            None => Err(KernelError("a frame of another layout than the kernel's".into())),
        }
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
        if ring.head_plane().address() != self.ring[0] {
            return Err(KernelError("a ring that the kernel was not made for".into()));
        }
        let address = frame.region_mut().address();
        let room = self.room();
        for placement in placements {
            let slot = slots.get(placement.slot as usize);
            let Some(piece) = slot.and_then(|slot| gather::piece(slot, placement, self.planes, &mut self.place)) else {
                self.counters.refused += 1;
                continue;
            };
            let full = self.segments.len() == SEGMENTS && self.segments.last().is_some_and(|s| s.frame != address);
            if full || self.pending == room {
                let started = self.start();
                self.keep(started)?;
            }
            self.push(piece, address);
        }
        if self.pending >= self.batch {
            let started = self.start();
            self.keep(started)?;
        }
        Ok(if self.pending > 0 { self.flight.next() } else { self.flight.last() })
    }

    fn conceal(
        &mut self,
        frame: &mut FrameBuf<Device>,
        missing: &[Missing],
        previous: Option<&Frame<Device>>,
    ) -> std::result::Result<(), KernelError> {
        self.check(frame.layout())?;
        let address = frame.region_mut().address();
        let filled = match previous.filter(|p| *p.layout() == self.conversion.layout) {
            Some(previous) => self.copy_holes(address, previous.start() as u64, missing),
            None => self.fill(false, address, missing),
        };
        self.keep(filled)
    }

    fn paint(&mut self, frame: &mut FrameBuf<Device>, missing: &[Missing]) -> std::result::Result<(), KernelError> {
        self.check(frame.layout())?;
        let address = frame.region_mut().address();
        let filled = self.fill(true, address, missing);
        self.keep(filled)
    }

    fn finish(&mut self, frame: FrameBuf<Device>) -> std::result::Result<(Frame<Device>, Ticket), KernelError> {
        let started = self.start();
        self.keep(started)?;
        Ok((frame.seal_after(self.flight.fence()), self.flight.last()))
    }

    fn discard(&mut self, frame: FrameBuf<Device>) {
        // What is pending for it is done before whatever its memory is used for next, which comes in the same stream.
        if let Err(fault) = self.start() {
            self.fault.get_or_insert(fault);
        }
        frame.discard();
    }

    fn done(&mut self, ticket: Ticket) -> std::result::Result<bool, KernelError> {
        let done = self.flight.is_done(ticket);
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
        let _ = self.copy.synchronize();
        let _ = self.compute.synchronize();
    }
}

fn octets(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn broken(fault: Fault) -> KernelError {
    KernelError(fault.to_string())
}
