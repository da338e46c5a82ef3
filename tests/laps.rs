//! Rings that a NIC overwrites in time: what was overwritten before it was read is located and counted, and no frame with
//! such octets passes as whole; whether a kernel reads at once, or long after its frame has closed.
#![allow(unsafe_code)]

mod nic;
mod support;

use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FrameBuf, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel, Kernel, KernelError, Ticket};
use gdmedia::mem::{Host, Region};
use gdmedia::pipeline::{Incomplete, Pipeline, Progress};
use gdmedia::plan::{Missing, Placement};
use gdmedia::ring::{Slot, SplitRing};
use gdmedia::rx::{Memory, RxError};
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use gdmedia::stats::FrameCounters;
use nic::{CUT, Shared};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex};
use support::{EVEN, RATE, Sender, Sent, format, picture};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
const FRAMES: usize = 6;
/// A frame has 180 packets of 800 octets, two of them a row.
const PER_FRAME: usize = 180;
const PAYLOAD: usize = 800;
const SLOTS: usize = 256;
const MARGIN: usize = 16;

fn wire() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive)
}

/// The NIC writes so many packets in the middle of certain work.
type Surprises = Vec<(u64, usize)>;

/// Reads at once, but not before the NIC has written on.
struct Slow {
    inner: CpuKernel,
    nic: Shared,
    applied: u64,
    surprises: Surprises,
}

impl Kernel<Host, Host> for Slow {
    fn apply(
        &mut self,
        ring: &SplitRing<Host>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<Host>,
    ) -> Result<Ticket, KernelError> {
        let now = self.surprises.iter().filter(|(at, _)| *at == self.applied);
        now.for_each(|(_, count)| self.nic.lock().write(*count));
        self.applied += 1;
        self.inner.apply(ring, slots, placements, frame)
    }
    fn conceal(
        &mut self,
        frame: &mut FrameBuf<Host>,
        missing: &[Missing],
        previous: Option<&Frame<Host>>,
    ) -> Result<(), KernelError> {
        Kernel::<Host, Host>::conceal(&mut self.inner, frame, missing, previous)
    }
    fn paint(&mut self, frame: &mut FrameBuf<Host>, missing: &[Missing]) -> Result<(), KernelError> {
        Kernel::<Host, Host>::paint(&mut self.inner, frame, missing)
    }
    fn finish(&mut self, frame: FrameBuf<Host>) -> Result<(Frame<Host>, Ticket), KernelError> {
        Kernel::<Host, Host>::finish(&mut self.inner, frame)
    }
    fn done(&mut self, ticket: Ticket) -> Result<bool, KernelError> {
        Kernel::<Host, Host>::done(&mut self.inner, ticket)
    }
    fn name(&self) -> &'static str {
        "slow"
    }
}

/// What is to be read into a frame's memory.
struct Work {
    ticket: u64,
    memory: *mut u8,
    pieces: Vec<(Slot, Placement)>,
}

/// Reads when it is asked whether it is done, as a GPU would: so many times in vain after the frame has closed.
struct Late {
    nic: Shared,
    waiting: Vec<Work>,
    issued: u64,
    /// Tickets that may be worked on.
    started: u64,
    done: u64,
    vain: usize,
    asked: usize,
    closed: u64,
    surprises: Surprises,
    fails_at: u64,
}

// SAFETY: frames are held by the pipeline as long as work for them is not done.
unsafe impl Send for Late {}

impl Late {
    fn new(nic: &Shared, vain: usize, surprises: Surprises) -> Self {
        Late {
            nic: nic.clone(),
            waiting: Vec::new(),
            issued: 0,
            started: 0,
            done: 0,
            vain,
            asked: 0,
            closed: 0,
            surprises,
            fails_at: u64::MAX,
        }
    }
}

impl Kernel<Host, Host> for Late {
    fn apply(
        &mut self,
        _: &SplitRing<Host>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<Host>,
    ) -> Result<Ticket, KernelError> {
        self.issued += 1;
        let pieces = placements.iter().map(|p| (slots[p.slot as usize], *p)).collect();
        self.waiting.push(Work { ticket: self.issued, memory: frame.region_mut().as_mut_ptr(), pieces });
        Ok(Ticket(self.issued))
    }
    fn conceal(&mut self, _: &mut FrameBuf<Host>, _: &[Missing], _: Option<&Frame<Host>>) -> Result<(), KernelError> {
        Ok(())
    }
    fn paint(&mut self, _: &mut FrameBuf<Host>, _: &[Missing]) -> Result<(), KernelError> {
        Ok(())
    }
    fn finish(&mut self, frame: FrameBuf<Host>) -> Result<(Frame<Host>, Ticket), KernelError> {
        assert_eq!(self.waiting.iter().filter(|work| work.ticket <= self.done).count(), 0);
        Ok((frame.seal(), Ticket(self.done)))
    }
    fn discard(&mut self, mut frame: FrameBuf<Host>) {
        // Its memory is another frame's from now on.
        let gone = frame.region_mut().as_mut_ptr();
        self.waiting.retain(|work| work.memory != gone);
        frame.discard();
    }
    fn flush(&mut self) -> Result<(), KernelError> {
        self.started = self.issued;
        self.asked = 0;
        let now = self.surprises.iter().filter(|(at, _)| *at == self.closed);
        now.for_each(|(_, count)| self.nic.lock().write(*count));
        self.closed += 1;
        if self.closed >= self.fails_at { Err(KernelError("lost".into())) } else { Ok(()) }
    }
    fn done(&mut self, ticket: Ticket) -> Result<bool, KernelError> {
        self.asked += 1;
        if self.asked > self.vain {
            let (ready, rest): (Vec<_>, _) = self.waiting.drain(..).partition(|work| work.ticket <= self.started);
            self.waiting = rest;
            for Work { memory, pieces, .. } in ready {
                for (slot, p) in pieces {
                    let at = slot.body_at as usize + usize::from(p.src) - CUT;
                    let octets = self.nic.lock().octets(at, p.len.into());
                    // SAFETY: the frame's memory is held until this is done.
                    unsafe { memory.add(p.dst as usize).copy_from_nonoverlapping(octets.as_ptr(), octets.len()) };
                }
            }
            self.done = self.started;
        }
        Ok(ticket.0 <= self.done)
    }
    fn name(&self) -> &'static str {
        "late"
    }
}

/// A frame as it was delivered.
struct Out {
    number: u64,
    torn: bool,
    complete: bool,
    missing: BTreeSet<usize>,
    octets: Vec<u8>,
}

type Outs = Arc<Mutex<Vec<Out>>>;

type Made<K> = (Pipeline<Memory<Host>, Host, K>, Outs, Vec<Sent>, Shared);

fn pipeline<K: Kernel<Host, Host>>(
    in_sequence: bool,
    policy: Incomplete,
    kernel: impl FnOnce(&Shared, Conversion) -> K,
) -> Made<K> {
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    assert_eq!(sent.len(), FRAMES * PER_FRAME);
    let (nic, ring) = nic::nic(sent.clone(), SLOTS as u32, MARGIN as u32, in_sequence, PAYLOAD);
    let receiver = nic::receiver(&nic, ring);
    let layout = Layout::new(wire(), Output::Wire).unwrap();
    let pool = FramePool::host(layout.clone(), FRAMES + 4).unwrap();
    let outs = Outs::default();
    let into = outs.clone();
    let deliver = Box::new(move |frame: Frame, _| {
        let meta = frame.meta();
        let runs = meta.missing.iter();
        let at = |m: &Missing| (m.row * wire().row_octets() + m.octet) as usize;
        into.lock().unwrap().push(Out {
            number: meta.number,
            torn: meta.torn,
            complete: meta.complete,
            missing: runs.flat_map(|m| at(m)..at(m) + m.len as usize).collect(),
            octets: frame.octets().to_vec(),
        });
    });
    let kernel = kernel(&nic, Conversion { layout, colour: COLOUR });
    let depacketiser = Depacketiser::video(Config::new(wire(), 96, Some(RATE)));
    (Pipeline::new(receiver, depacketiser, kernel, pool, policy, None, deliver), outs, sent, nic)
}

fn slow(surprises: Surprises) -> impl FnOnce(&Shared, Conversion) -> Slow {
    move |nic, conversion| Slow { inner: CpuKernel::new(conversion, None), nic: nic.clone(), applied: 0, surprises }
}

fn octets_of<'a>(packets: impl IntoIterator<Item = &'a Sent>) -> BTreeSet<usize> {
    packets
        .into_iter()
        .flat_map(|p| &p.sources)
        .flat_map(|s| s.at as usize..s.at as usize + usize::from(s.len))
        .collect()
}

/// All octets but those of the loss map are as they were sent.
fn check_octets(out: &Out, n: usize) {
    let sent = picture(wire(), n);
    let wrong = (0..sent.len()).find(|at| out.octets[*at] != sent[*at] && !out.missing.contains(at));
    assert_eq!(wrong, None, "frame {n}");
    assert_eq!(out.complete, out.missing.is_empty());
}

#[test]
fn what_is_overwritten_before_a_kernel_of_the_cpu_has_read_it_is_located() {
    for in_sequence in [false, true] {
        // Work 60 is packets 480 to 487, of frame 2. The NIC writes 236 more: to a margin before packet 484.
        let surprise = SLOTS - MARGIN - 4;
        let (mut pipeline, outs, sent, _) =
            pipeline(in_sequence, Incomplete::Conceal, slow(vec![(work_of(480), surprise)]));
        pipeline.run_to_end().unwrap();
        let outs = outs.lock().unwrap();
        assert_eq!(outs.iter().map(|o| o.number).collect::<Vec<_>>(), (0..FRAMES as u64).collect::<Vec<_>>());
        for (n, out) in outs.iter().enumerate() {
            let expected = if n == 2 { octets_of(&sent[480..484]) } else { BTreeSet::new() };
            assert_eq!((out.torn, &out.missing), (n == 2, &expected), "frame {n}");
            check_octets(out, n);
        }
        let before = picture(wire(), 1);
        assert!(outs[2].missing.iter().all(|at| outs[2].octets[*at] == before[*at]), "concealed");
        let missing_octets = 4 * PAYLOAD as u64;
        let expected =
            FrameCounters { complete: 5, incomplete: 1, torn: 1, missing_octets, ..FrameCounters::default() };
        assert_eq!(pipeline.frames(), expected);
        assert_eq!(pipeline.rx().overwritten, 4);
        assert_eq!(pipeline.depacketiser().counters().lost, 0, "nothing was lost on the way");
    }
}

/// Where one leg comes by a ring that is overwritten in time and the other by one that is not, only what was read of the
/// first is doubted.
#[test]
fn a_ring_that_is_overwritten_beside_one_that_is_not() {
    let surprise = SLOTS - MARGIN - 4;
    let (mut pipeline, outs, sent, _) = pipeline(false, Incomplete::Show, slow(vec![(work_of(480), surprise)]));
    // The same packets, a lease behind.
    let mut leases = vec![Vec::new()];
    leases.extend(sent.chunks(nic::BATCH).map(<[Sent]>::to_vec));
    pipeline.add(plain(leases)).map_err(|(error, _)| error).unwrap();
    pipeline.run_to_end().unwrap();
    let outs = outs.lock().unwrap();
    assert_eq!(outs.iter().map(|o| o.number).collect::<Vec<_>>(), (0..FRAMES as u64).collect::<Vec<_>>());
    for (n, out) in outs.iter().enumerate() {
        let expected = if n == 2 { octets_of(&sent[480..484]) } else { BTreeSet::new() };
        assert_eq!((out.torn, &out.missing), (n == 2, &expected), "frame {n}");
        check_octets(out, n);
    }
    assert_eq!(pipeline.rx().overwritten, 4);
    assert_eq!(pipeline.depacketiser().counters().lost, 0);
}

/// A receiver of leg 1 with an ordinary ring that brings these packets.
fn plain(leases: Vec<Vec<Sent>>) -> Memory<Host> {
    const STRIDE: usize = 1500;
    let batch = leases.iter().map(Vec::len).max().unwrap();
    let ring = SplitRing::whole(Region::host(4 * batch * STRIDE + 64).unwrap());
    let mut leases = leases.into_iter();
    let fill = move |ring: &mut SplitRing<Host>, area: usize, slots: &mut Vec<Slot>| {
        let Some(packets) = leases.next() else { return Err(RxError::End) };
        for (n, packet) in packets.iter().enumerate() {
            let at = (area * batch + n) * STRIDE;
            ring.head_plane_mut().as_mut_slice()[at..at + packet.octets.len()].copy_from_slice(&packet.octets);
            let (octets, head_at, arrival) = (packet.octets.len() as u16, at as u32, packet.arrival);
            slots.push(Slot { head_at, body_at: 0, head: octets, octets, wire_octets: octets, leg: 1, arrival });
        }
        Ok(true)
    };
    Memory::new(ring, 4, batch, None, Box::new(fill))
}

/// The number of the work that has a packet: a lease of eight is one, and two where frames meet in it.
fn work_of(packet: usize) -> u64 {
    (packet / nic::BATCH
        + (1..FRAMES).filter(|n| n * PER_FRAME < packet && !(n * PER_FRAME).is_multiple_of(nic::BATCH)).count())
        as u64
}

#[test]
fn a_torn_frame_is_withheld_where_only_whole_ones_are_wanted() {
    let surprises = vec![(work_of(480), SLOTS - MARGIN - 1)];
    let (mut pipeline, outs, ..) = pipeline(false, Incomplete::Drop, slow(surprises));
    pipeline.run_to_end().unwrap();
    let outs = outs.lock().unwrap();
    assert_eq!(outs.iter().map(|o| o.number).collect::<Vec<_>>(), [0, 1, 3, 4, 5]);
    assert!(outs.iter().all(|o| o.complete && !o.torn));
    let counts = pipeline.frames();
    assert_eq!((counts.complete, counts.incomplete, counts.torn, counts.withheld), (5, 1, 1, 1));
}

#[test]
fn frames_of_late_work_come_in_order_when_it_is_done() {
    for vain in [0, 1, 12] {
        let (mut pipeline, outs, ..) = pipeline(true, Incomplete::Show, |nic, _| Late::new(nic, vain, Vec::new()));
        // With the last of these steps the first frame closes; it comes when its work is done, which is not asked so often.
        let steps = PER_FRAME.div_ceil(nic::BATCH);
        (0..steps).for_each(|_| assert_eq!(pipeline.step().unwrap(), Progress::Busy));
        assert_eq!(outs.lock().unwrap().len(), usize::from(vain < 2));
        pipeline.run_to_end().unwrap();
        let outs = outs.lock().unwrap();
        assert_eq!(outs.iter().map(|o| o.number).collect::<Vec<_>>(), (0..FRAMES as u64).collect::<Vec<_>>());
        for (n, out) in outs.iter().enumerate() {
            assert!(out.complete, "frame {n}");
            check_octets(out, n);
        }
        assert_eq!((pipeline.frames().complete, pipeline.rx().overwritten), (FRAMES as u64, 0));
    }
}

#[test]
fn what_is_overwritten_before_late_work_has_read_it_is_located() {
    // When frame 2 closes, packets up to 544 are there, and its own begin at 360: 100 more reach up to 644, a margin before
    // packet 404.
    let surprises = vec![(2, 100)];
    let (mut pipeline, outs, sent, nic) = pipeline(false, Incomplete::Show, |nic, _| Late::new(nic, 3, surprises));
    pipeline.run_to_end().unwrap();
    assert_eq!(nic.lock().written, sent.len());
    let outs = outs.lock().unwrap();
    for (n, out) in outs.iter().enumerate() {
        let expected = if n == 2 { octets_of(&sent[360..404]) } else { BTreeSet::new() };
        assert_eq!((out.torn, &out.missing), (n == 2, &expected), "frame {n}");
        check_octets(out, n);
    }
    assert_eq!((outs.len(), pipeline.rx().overwritten, pipeline.frames().torn), (FRAMES, 44, 1));
}

#[test]
fn late_work_that_fails_leaves_every_frame_counted() {
    let failing = |nic: &Shared, _| Late { fails_at: 3, ..Late::new(nic, 30, Vec::new()) };
    let (mut pipeline, outs, ..) = pipeline(false, Incomplete::Show, failing);
    let error = pipeline.run_to_end().unwrap_err();
    assert!(error.to_string().contains("the kernel cannot go on") && pipeline.is_broken(), "{error}");
    pipeline.finish(&mut Vec::new()).unwrap();
    let (counts, delivered) = (pipeline.frames(), outs.lock().unwrap().len() as u64);
    assert_eq!(delivered + counts.dropped, counts.complete + counts.incomplete, "{counts:?}");
    assert!(delivered >= 1 && counts.dropped >= 1, "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// However far the NIC runs ahead, once or often, and whatever of the next packets is there already: a frame that says that it is whole is as it was sent, and so is every
    /// octet of another that its loss map does not name.
    #[test]
    fn no_frame_with_overwritten_octets_passes_as_whole(
        in_sequence in any::<bool>(),
        late in any::<bool>(),
        surprises in prop::collection::vec((0u64..130, 1usize..600), 1..6),
        vain in 0usize..20,
        begun in 0..MARGIN,
    ) {
        let run = |pipeline: &mut dyn FnMut() -> Result<Progress, RxError>| while pipeline().is_ok() {};
        let (outs, counts) = if late {
            let surprises = surprises.iter().map(|(at, count)| (at % 6, *count)).collect();
            let (mut pipeline, outs, _, nic) = pipeline(in_sequence, Incomplete::Show, |nic, _| Late::new(nic, vain, surprises));
            nic.lock().begun = begun;
            run(&mut || pipeline.step());
            pipeline.finish(&mut Vec::new()).unwrap();
            (outs, pipeline.frames())
        } else {
            let (mut pipeline, outs, _, nic) = pipeline(in_sequence, Incomplete::Show, slow(surprises));
            nic.lock().begun = begun;
            run(&mut || pipeline.step());
            pipeline.finish(&mut Vec::new()).unwrap();
            (outs, pipeline.frames())
        };
        let outs = outs.lock().unwrap();
        prop_assert_eq!(outs.len() as u64 + counts.dropped, counts.complete + counts.incomplete);
        static PICTURES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..FRAMES).map(|n| picture(wire(), n)).collect());
        for out in outs.iter() {
            prop_assert_eq!(out.complete, out.missing.is_empty());
            prop_assert!(!(out.torn && out.complete));
            // Frames may be missing, so a picture says itself which it is.
            let fits = |n: &usize| {
                let mut octets = out.octets.iter().zip(&PICTURES[*n]).enumerate();
                octets.all(|(at, (got, sent))| got == sent || out.missing.contains(&at))
            };
            prop_assert!((0..FRAMES).any(|n| fits(&n)), "frame {} shows what was never sent", out.number);
        }
    }
}
