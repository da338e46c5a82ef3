//! Several receivers of one pipeline, in virtual time.

use crate::support::{EVEN, RATE, Sender, Sent, format, picture};
use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::error::{Error, Kind};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel};
use gdmedia::mem::{Host, Region};
use gdmedia::pipeline::{Incomplete, Pipeline, Progress};
use gdmedia::ring::{Slot, SplitRing};
use gdmedia::rx::memory::Fill;
use gdmedia::rx::{Memory, RxError};
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use gdmedia::stats::RxCounters;
use gdmedia::time::Tai;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
const FRAMES: usize = 6;
const BATCH: usize = 8;
const STRIDE: usize = 1500;

pub fn wire() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive)
}

/// What a poll does.
pub enum Poll {
    Brings(Vec<Sent>),
    /// Nothing; and the clock goes so many nanoseconds meanwhile.
    Waits(&'static AtomicU64, u64),
    Fails,
}

/// A receiver of `leg` whose polls do this one after the other; then it ends.
pub fn receiver(leg: u8, polls: Vec<Poll>, clock: Option<fn() -> Tai>) -> Memory<Host> {
    let mut polls = VecDeque::from(polls);
    let fill: Fill<Host> = Box::new(move |ring, area, slots| match polls.pop_front() {
        None => Err(RxError::End),
        Some(Poll::Fails) => Err(RxError::Failed(Error::new(Kind::Unavailable, "the cable was pulled"))),
        Some(Poll::Waits(clock, ns)) => {
            clock.fetch_add(ns, Ordering::Relaxed);
            Ok(false)
        }
        Some(Poll::Brings(packets)) => {
            for (n, packet) in packets.iter().enumerate() {
                let at = (area * BATCH + n) * STRIDE;
                let octets = packet.octets.len() as u16;
                ring.head_plane_mut().as_mut_slice()[at..at + packet.octets.len()].copy_from_slice(&packet.octets);
                let arrival = packet.arrival;
                let head_at = at as u32;
                slots.push(Slot { head_at, body_at: 0, head: octets, octets, wire_octets: octets, leg, arrival });
            }
            Ok(true)
        }
    });
    Memory::new(SplitRing::whole(Region::host(4 * BATCH * STRIDE + 64).unwrap()), 4, BATCH, clock, fill)
}

pub fn batches(sent: &[Sent]) -> Vec<Poll> {
    sent.chunks(BATCH).map(|batch| Poll::Brings(batch.to_vec())).collect()
}

pub type HostPipeline = Pipeline<Memory<Host>, Host, CpuKernel>;
/// Numbers of frames, whether they are whole, and their octets.
pub type Pictures = Arc<Mutex<Vec<(u64, bool, Vec<u8>)>>>;

pub fn pipeline(receivers: Vec<Memory<Host>>) -> (HostPipeline, Pictures) {
    let layout = Layout::new(wire(), Output::Wire).unwrap();
    let pool = FramePool::host(layout.clone(), FRAMES + 6).unwrap();
    let pictures = Pictures::default();
    let into = pictures.clone();
    let deliver = Box::new(move |frame: Frame, _| {
        into.lock().unwrap().push((frame.meta().number, frame.meta().complete, frame.octets().to_vec()));
    });
    let kernel = CpuKernel::new(Conversion { layout, colour: COLOUR }, None);
    let depacketiser = Depacketiser::video(Config::new(wire(), 96, Some(RATE)));
    let mut receivers = receivers.into_iter();
    let first = receivers.next().unwrap();
    let mut pipeline = Pipeline::new(first, depacketiser, kernel, pool, Incomplete::Show, None, deliver);
    for receiver in receivers {
        pipeline.add(receiver).map_err(|(error, _)| error).unwrap();
    }
    (pipeline, pictures)
}

fn all_whole(pictures: &Pictures) {
    let pictures = pictures.lock().unwrap();
    assert_eq!(pictures.len(), FRAMES);
    for (n, (number, whole, octets)) in pictures.iter().enumerate() {
        let sent = picture(wire(), n);
        assert!((*number, *whole) == (n as u64, true) && octets[..sent.len()] == sent, "frame {n}");
    }
}

#[test]
fn a_receiver_that_fails_does_not_end_the_other() {
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    let mut polls = batches(&sent[..sent.len() / 3]);
    polls.push(Poll::Fails);
    let both = vec![receiver(0, polls, None), receiver(1, batches(&sent), None)];
    let (mut pipeline, pictures) = pipeline(both);
    pipeline.run_to_end().unwrap();
    all_whole(&pictures);
    assert_eq!(pipeline.remarks(), ["receiver 0 (memory) failed, the others go on: the cable was pulled"]);
    let each: Vec<u64> = pipeline.receivers().map(|r| gdmedia::rx::Receiver::counters(r).datagrams).collect();
    assert_eq!(each, [sent.len() as u64 / 3, sent.len() as u64]);
    assert_eq!(pipeline.rx().datagrams, each.iter().sum::<u64>());
}

#[test]
fn the_last_receiver_that_fails_is_told() {
    let sent = Sender::plain(wire(), EVEN).frames(1);
    let fails = |leg| {
        let mut polls = batches(&sent);
        polls.push(Poll::Fails);
        receiver(leg, polls, None)
    };
    let (mut failing, pictures) = pipeline(vec![fails(0), fails(1)]);
    let error = failing.run_to_end().unwrap_err();
    assert!(error.to_string().contains("the cable was pulled"), "{error}");
    failing.finish(&mut Vec::new()).unwrap();
    assert_eq!(pictures.lock().unwrap().len(), 1, "what came before is delivered");

    // Of one that fails when the other has ended, too.
    let (mut failing, _) = pipeline(vec![fails(0), receiver(1, Vec::new(), None)]);
    assert!(failing.run_to_end().is_err());
}

#[test]
fn a_receiver_that_is_flooded_does_not_keep_the_other_waiting() {
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    // Of another payload type, without end.
    let mut stray = sent[0].clone();
    stray.octets[1] = 33;
    let flood = (0..10_000).map(|_| Poll::Brings(vec![stray.clone(); BATCH])).collect();
    let (mut pipeline, pictures) = pipeline(vec![receiver(0, flood, None), receiver(1, batches(&sent), None)]);
    let steps = 2 * sent.len().div_ceil(BATCH);
    for _ in 0..steps {
        assert_eq!(pipeline.step().unwrap(), Progress::Busy);
    }
    pipeline.finish(&mut Vec::new()).unwrap();
    all_whole(&pictures);
    assert_eq!(pipeline.depacketiser().counters().received, sent.len() as u64);
}

#[test]
fn time_that_passes_while_nobody_looks_makes_nothing_late() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    NOW.store(sent[0].arrival.0, Ordering::Relaxed);
    // A packet of frame 1 waits in the second ring. The thread is stopped for a second after it found nothing there: the
    // packet came in time nevertheless.
    let missing = sent.len() / FRAMES + 10;
    let mut polls = batches(&sent[..missing]);
    let rest = batches(&sent[missing + 1..]);
    let quiet = || Poll::Waits(&NOW, 0);
    polls.extend([quiet(), quiet(), Poll::Waits(&NOW, 1_000_000_000)]);
    let mut other: Vec<_> = (0..polls.len()).map(|_| quiet()).collect();
    other.push(Poll::Brings(vec![sent[missing].clone()]));
    polls.extend(rest);
    let clock: fn() -> Tai = || Tai(NOW.load(Ordering::Relaxed));
    let (mut pipeline, pictures) = pipeline(vec![receiver(0, polls, Some(clock)), receiver(1, other, Some(clock))]);
    pipeline.run_to_end().unwrap();
    all_whole(&pictures);
}

#[test]
fn copies_that_differ_are_counted_and_the_first_one_is_used() {
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    let mut other = sent.clone();
    // One octet of the samples, and the marker of another packet.
    *other[20].octets.last_mut().unwrap() ^= 1;
    other[77].octets[1] ^= 0x80;
    // A copy by the same leg is none of another leg's.
    let mut twice = sent[5].clone();
    *twice.octets.last_mut().unwrap() ^= 1;
    let mut polls = batches(&sent);
    polls.insert(1, Poll::Brings(vec![twice]));
    let mut behind = vec![Poll::Brings(Vec::new()), Poll::Brings(Vec::new())];
    behind.extend(batches(&other));
    let (mut pipeline, pictures) = pipeline(vec![receiver(0, polls, None), receiver(1, behind, None)]);
    pipeline.compare_legs(96, 1 << 12);
    pipeline.run_to_end().unwrap();
    all_whole(&pictures);
    let found = pipeline.compared().unwrap();
    assert_eq!((found.compared, found.different), (sent.len() as u64, 2));
    let first = found.first.unwrap();
    assert_eq!((first.leg, first.first_leg, first.sequence), (1, 0, sent[20].sequence()));
    assert_eq!((first.timestamp, first.at), (sent[20].timestamp(), sent[20].arrival));
}

#[test]
fn counters_of_receivers_are_added_up() {
    let one = RxCounters { datagrams: 1, octets: 2, starved: 3, ..RxCounters::default() };
    let mut other = RxCounters { datagrams: 10, kernel_dropped: 20, ..RxCounters::default() };
    other.rejected.add(gdmedia::stats::Reason::Source);
    let sum = one + other;
    assert_eq!((sum.datagrams, sum.octets, sum.starved, sum.kernel_dropped), (11, 2, 3, 20));
    assert_eq!(sum.rejected.total(), 1);
}
