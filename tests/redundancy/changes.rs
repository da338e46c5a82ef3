//! Senders that change, and legs that come and go: what is lost, and which event says so.

use crate::Dice;
use crate::restarts::{CUT, PACKETS, by_leg, in_order, receiver, sender, wire};
use crate::support::{RATE, Receiver, STALE, Sender, Sent, check, check_all, format, picture};
use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::event::{Event, What};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel};
use gdmedia::mem::{Host, Region};
use gdmedia::merge::Class;
use gdmedia::packetise::Style;
use gdmedia::pipeline::{Incomplete, Pipeline};
use gdmedia::plan::Fate;
use gdmedia::ring::{Slot, SplitRing};
use gdmedia::rx::{Memory, RxError};
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use gdmedia::time::Tai;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const MS: u64 = 1_000_000;

fn plain() -> Sender {
    Sender::plain(wire(), CUT)
}

fn with_ssrc(ssrc: u32, sequence: u32, next: usize) -> Sender {
    let mut style = Style::new(CUT);
    style.ssrc = ssrc;
    let mut sender = Sender::new(wire(), style, sequence);
    sender.next = next;
    sender
}

/// Both legs bring everything, the second one 5 ms later; or there is only one.
fn through(legs: usize, packets: &[Sent]) -> (Receiver, Vec<What>) {
    let mut r = receiver(legs, Class::A);
    match legs {
        1 => r.feed(packets),
        _ => r.feed(&in_order(&[by_leg(packets, 0, 0), by_leg(packets, 1, 5 * MS)])),
    }
    r.finish();
    let events = events(&mut r);
    (r, events)
}

/// But for the beginning of legs.
fn events(r: &mut Receiver) -> Vec<What> {
    let mut events: Vec<Event> = vec![];
    r.dep.take_events(&mut events);
    assert_eq!(r.dep.missed_events(), 0);
    events.into_iter().map(|e| e.what).filter(|what| !matches!(what, What::LegBegan { .. })).collect()
}

#[test]
fn the_same_ssrc_starts_anew() {
    for legs in [1, 2] {
        let mut packets = with_ssrc(9, 500, 0).frames(6);
        let mut second = with_ssrc(9, 0x7654_3210, 6);
        second.offset = 1 << 30;
        packets.extend(second.frames(6));
        let (r, events) = through(legs, &packets);
        check_all(&r, 0, 12);
        assert_eq!(events, [What::Restarted { leg: 0, from: 9, to: 9 }], "{legs} legs");
    }
}

#[test]
fn another_ssrc_starts_anew_or_goes_on() {
    for legs in [1, 2] {
        for (sequence, goes_on) in [(0x7654_3210, false), (500 + 6 * PACKETS as u32, true)] {
            let mut packets = with_ssrc(9, 500, 0).frames(6);
            packets.extend(with_ssrc(8, sequence, 6).frames(6));
            let (r, events) = through(legs, &packets);
            check_all(&r, 0, 12);
            let (leg, from, to) = (0, 9, 8);
            let what = if goes_on { What::Switched { leg, from, to } } else { What::Restarted { leg, from, to } };
            assert_eq!(events, [what], "{legs} legs");
            assert_eq!(r.dep.counters().restarts, u64::from(!goes_on));
        }
    }
}

#[test]
fn timestamps_jump_or_the_clock_of_the_sender_is_set() {
    // A second ahead, an hour back, and what PTP does when it steps by 50 ms.
    for (ticks, told) in [(90_000, true), (-324_000_000, true), (4_500, true), (-4_500, true), (600, false)] {
        for legs in [1, 2] {
            let mut packets = plain().frames(12);
            for p in &mut packets[6 * PACKETS..] {
                p.set_timestamp(p.timestamp().wrapping_add_signed(ticks));
            }
            let (r, events) = through(legs, &packets);
            check_all(&r, 0, 12);
            let jumps: Vec<_> = events.iter().filter(|e| matches!(e, What::TimestampJump { .. })).collect();
            assert_eq!((jumps.len(), events.len()), (usize::from(told), usize::from(told)), "{ticks}: {events:?}");
            if let [What::TimestampJump { ticks: got }] = jumps[..] {
                assert!((got - i64::from(ticks)).abs() <= 1, "{got} for {ticks}");
            }
            assert_eq!(r.dep.counters().restarts, 0);
        }
    }
}

#[test]
fn a_pause_of_the_sender_is_no_jump() {
    let mut packets = plain().frames(6);
    let mut later = plain();
    (later.next, later.epoch_frame) = (0, later.epoch_frame + 40);
    let mut later = later.frames(6);
    for (n, p) in later.iter_mut().enumerate() {
        p.set_sequence(packets[0].sequence() + (6 * PACKETS + n) as u32);
    }
    packets.extend(later);
    let (r, events) = through(1, &packets);
    assert_eq!((r.shown().len(), events.len()), (12, 0), "{events:?}");
}

/// Both senders for a while, then the second one alone.
#[test]
fn the_source_is_switched_upstream() {
    for legs in [1, 2] {
        let ours = with_ssrc(9, 500, 0).frames(8);
        let mut other = with_ssrc(8, 0x4000_0000, 104);
        (other.epoch_frame, other.offset) = (other.epoch_frame - 100, 77_000);
        let theirs = other.frames(12);
        let mut packets = [ours.clone(), theirs].concat();
        packets.sort_by_key(|p| p.arrival);
        let (r, events) = through(legs, &packets);
        let shown: Vec<_> = r.shown();
        for (n, out) in shown.iter().enumerate().take(8) {
            assert_eq!(out.end.fate, Fate::Complete, "frame {n}, {legs} legs");
            check(out, &picture(wire(), n), wire());
        }
        // After two frame times of silence the other one is the flow; it has sent 4 of 12 frames until then.
        assert!((5..=6).contains(&(shown.len() - 8)), "{} of the second, {legs} legs", shown.len() - 8);
        for (n, out) in shown[8..].iter().rev().enumerate() {
            check(out, &picture(wire(), 115 - n), wire());
            assert_eq!(out.end.fate, Fate::Complete);
        }
        let last = events.last();
        assert!(matches!(last, Some(What::Switched { from: 9, to: 8, .. })), "{events:?}");
        assert!(events.iter().any(|e| matches!(e, What::SecondSender { ssrc: 8, .. })), "{events:?}");
        let c = r.dep.counters();
        assert_eq!((c.lost, c.restarts), (0, 1), "{c:?}");
    }
}

#[test]
fn a_leg_falls_silent_and_comes_back() {
    let packets = plain().frames(40);
    let away = packets[10 * PACKETS].arrival..packets[20 * PACKETS].arrival;
    for silent in [0, 1] {
        let mut legs = [by_leg(&packets, 0, 0), by_leg(&packets, 1, 0)];
        legs[silent].retain(|p| !away.contains(&p.arrival));
        let mut r = receiver(2, Class::A);
        r.feed(&in_order(&legs));
        let c = r.finish();
        check_all(&r, 0, 40);
        assert_eq!((c.received, c.lost), (40 * PACKETS as u64, 0));
        let counted = r.dep.legs();
        let (there, gone) = (counted[1 - silent], counted[silent]);
        assert_eq!((there.received, there.lost), (40 * PACKETS as u64, 0));
        assert_eq!((gone.received, gone.lost, gone.restarts), (30 * PACKETS as u64, 10 * PACKETS as u64, 0));
        let leg = silent as u8;
        match events(&mut r)[..] {
            [What::LegSilent { leg: a }, What::LegBack { leg: b, silent_ns }] => {
                assert_eq!((a, b), (leg, leg));
                assert!((300_000_000..360_000_000).contains(&silent_ns), "{silent_ns}");
            }
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_leg_that_was_away_for_minutes_is_the_same_leg() {
    for short in [false, true] {
        let mut style = Style::new(CUT);
        style.short_sequence = short;
        // Longer than a track believes in loss, and round 16 bits several times.
        let packets = Sender::new(wire(), style, 60_000).frames(2_200);
        let away = packets[10 * PACKETS].arrival..packets[2_100 * PACKETS].arrival;
        let mut second = by_leg(&packets, 1, 5 * MS);
        second.retain(|p| !away.contains(&p.arrival));
        let gone = (packets.len() - second.len()) as u64;
        let mut r = receiver(2, Class::A);
        r.batch = 4096;
        r.feed(&in_order(&[by_leg(&packets, 0, 0), second]));
        r.finish();
        let [first, second] = r.dep.legs()[..] else { panic!() };
        assert_eq!((first.lost, first.restarts), (0, 0), "{first:?}");
        assert_eq!((second.lost, second.late, second.restarts, second.foreign), (gone, 0, 0, 0), "{short} {second:?}");
    }
}

#[test]
fn a_leg_beyond_the_window_is_told_once() {
    let packets = plain().frames(30);
    let mut r = receiver(2, Class::A);
    r.feed(&in_order(&[by_leg(&packets, 0, 0), by_leg(&packets, 1, 60 * MS)]));
    let c = r.finish();
    check_all(&r, 0, 30);
    assert_eq!((c.lost, c.late), (0, 0));
    let second = r.dep.legs()[1];
    // What comes after the deadline of its frame is late; the last frame has none.
    assert_eq!((second.received + second.lost, second.lost), (c.received, second.late), "{second:?}");
    assert!(second.late >= 28 * PACKETS as u64, "{second:?}");
    assert_eq!((second.skew.min_ns, second.skew.max_ns), (60_000_000, 60_000_000));
    let events = events(&mut r);
    assert_eq!(events, [What::SkewBeyondWindow { leg: 1, skew_ns: 60_000_000, window_ns: 10_000_000 }]);
}

/// So long that as many frames have closed meanwhile as are remembered.
#[test]
fn what_a_leg_brings_of_a_frame_after_many_others_is_late() {
    for frames in [2, 7, 8, 9, 12, 20] {
        let packets = plain().frames(30);
        let stop = 5 * PACKETS + 10;
        let mut second = by_leg(&packets[..6 * PACKETS], 1, MS);
        second[stop..].iter_mut().for_each(|p| p.arrival = Tai(p.arrival.0 + frames * 33_366_667));
        let mut r = receiver(2, Class::A);
        r.feed(&in_order(&[by_leg(&packets, 0, 0), second]));
        let c = r.finish();
        check_all(&r, 0, 30);
        assert_eq!((c.received, c.lost, c.late), (packets.len() as u64, 0, 0));
        let leg = r.dep.legs()[1];
        let (all, came) = (packets.len() as u64, stop as u64);
        assert_eq!((leg.received, leg.lost, leg.late), (came, all - came, 30), "{frames} frames: {leg:?}");
    }
}

// A frame never holds octets of two without saying so.

#[test]
fn timestamps_that_stand_still_do_not_mix_frames_of_legs_that_lie_apart() {
    let mut packets = plain().frames(12);
    let timestamp = packets[0].timestamp();
    packets.iter_mut().for_each(|p| p.set_timestamp(timestamp));
    for skew in [0, 3, 9] {
        let dice = &mut Dice(skew);
        let mut legs = [by_leg(&packets, 0, 0), by_leg(&packets, 1, skew * MS)];
        // Each loses one packet in eight, never the ends of frames.
        for leg in &mut legs {
            leg.retain(|p| p.marker || dice.below(8) > 0);
        }
        let mut r = receiver(2, Class::A);
        r.feed(&in_order(&legs));
        r.finish();
        let shown = r.shown();
        for out in &shown {
            // The picture that most octets are of; then all are of it.
            let n = (0..12).max_by_key(|n| same(&out.octets, &picture(wire(), *n))).unwrap();
            check(out, &picture(wire(), n), wire());
        }
        assert!(shown.len() >= 11, "{}", shown.len());
    }
}

fn same(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).filter(|(a, b)| a == b && **a != STALE).count()
}

#[test]
fn a_restart_with_the_same_timestamp_is_another_frame() {
    for legs in [1, 2] {
        let first = with_ssrc(9, 500, 0).frames(5);
        // The last frame breaks off, and the next sender begins with its timestamp.
        let cut = first[..4 * PACKETS + 17].to_vec();
        let mut second = with_ssrc(9, 0x7654_3210, 5);
        second.epoch_frame -= 1;
        let mut later = second.frames(6);
        for p in &mut later {
            p.arrival = Tai(p.arrival.0 + 20 * MS);
        }
        assert_eq!(later[0].timestamp(), cut[4 * PACKETS].timestamp());
        let (r, _) = through(legs, &[cut, later].concat());
        let shown = r.shown();
        assert_eq!(shown.len(), 11, "{legs} legs");
        for (n, out) in shown.iter().enumerate() {
            check(out, &picture(wire(), n), wire());
            assert_eq!(out.end.fate == Fate::Complete, n != 4);
        }
    }
}

#[test]
fn of_copies_that_differ_the_first_one_counts() {
    let packets = plain().frames(8);
    let mut other = by_leg(&packets, 1, 2 * MS);
    for p in &mut other {
        let at = p.octets.len() - 64;
        p.octets[at..].fill(0xdd);
    }
    let mut r = receiver(2, Class::A);
    r.feed(&in_order(&[by_leg(&packets, 0, 0), other]));
    r.finish();
    check_all(&r, 0, 8);
}

#[test]
fn forged_packets_by_one_leg_do_not_touch_the_other() {
    let dice = &mut Dice(11);
    let packets = plain().frames(60);
    let mut forged = vec![];
    for p in &packets[PACKETS..] {
        for _ in 0..3 {
            let mut f = Sent { leg: 1, arrival: Tai(p.arrival.0 + dice.below(400_000)), ..p.clone() };
            f.set_sequence(dice.next() as u32);
            f.set_timestamp(dice.next() as u32);
            if dice.below(2) == 0 {
                f.set_ssrc(dice.next() as u32);
            }
            forged.push(f);
        }
    }
    let count = forged.len() as u64;
    let mut r = receiver(2, Class::A);
    r.feed(&in_order(&[by_leg(&packets, 0, 0), by_leg(&packets, 1, MS), forged]));
    let c = r.finish();
    check_all(&r, 0, 60);
    let [first, second] = r.dep.legs()[..] else { panic!() };
    assert_eq!((c.received, c.lost), (packets.len() as u64, 0));
    assert_eq!((first.received, first.lost, first.foreign, first.late), (packets.len() as u64, 0, 0, 0));
    assert_eq!(second.received + second.lost, packets.len() as u64, "{second:?}");
    // One that happens to fit is a copy.
    assert!(second.foreign + second.duplicate + 3 >= count, "{second:?} of {count}");
}

// Another format, by a new SDP.

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
const BATCH: usize = 8;
const STRIDE: usize = 256;

type Coming = Arc<Mutex<VecDeque<Sent>>>;
type Came = Arc<Mutex<Vec<Frame<Host>>>>;

/// Brings what is in the queue; nothing when that is empty.
fn memory(coming: &Coming) -> Memory<Host> {
    let coming = coming.clone();
    let fill =
        Box::new(move |ring: &mut SplitRing<Host>, area: usize, slots: &mut Vec<Slot>| -> Result<bool, RxError> {
            let mut coming = coming.lock().unwrap();
            let count = BATCH.min(coming.len());
            for (n, p) in coming.drain(..count).enumerate() {
                let (at, octets) = ((area * BATCH + n) * STRIDE, p.octets.len() as u16);
                ring.head_plane_mut().as_mut_slice()[at..at + p.octets.len()].copy_from_slice(&p.octets);
                let (leg, arrival) = (p.leg, p.arrival);
                slots.push(Slot {
                    head_at: at as u32,
                    body_at: 0,
                    head: octets,
                    octets,
                    wire_octets: octets,
                    leg,
                    arrival,
                });
            }
            Ok(count > 0)
        });
    Memory::new(SplitRing::whole(Region::host(4 * BATCH * STRIDE + 64).unwrap()), 4, BATCH, None, fill)
}

fn config(wire: WireFormat) -> Config {
    Config::new(wire, 96, Some(RATE)).with_legs(2, Class::A).unwrap()
}

fn kernel(wire: WireFormat) -> (CpuKernel, FramePool<Host>) {
    let layout = Layout::new(wire, Output::Wire).unwrap();
    let pool = FramePool::host(layout.clone(), 24).unwrap();
    (CpuKernel::new(Conversion { layout, colour: COLOUR }, None), pool)
}

#[test]
fn another_format_goes_on_with_numbers_and_counters() {
    let (before, after) = (wire(), format(Sampling::YCbCr422, Depth::D10, 32, 30, Scan::Progressive));
    let (coming, came) = (Coming::default(), Came::default());
    let deliver = |came: &Came| {
        let came = came.clone();
        Box::new(move |frame, _| came.lock().unwrap().push(frame))
    };
    let ((cpu, pool), depacketiser) = (kernel(before), Depacketiser::video(config(before)));
    let mut pipeline =
        Pipeline::new(memory(&coming), depacketiser, cpu, pool, Incomplete::Conceal, None, deliver(&came));
    // Six frames and a half by two legs.
    let mut packets = sender(&mut Dice(21), 0, false).frames(7);
    packets.truncate(6 * PACKETS + 15);
    let send =
        |packets: &[Sent]| coming.lock().unwrap().extend(in_order(&[by_leg(packets, 0, 0), by_leg(packets, 1, MS)]));
    send(&packets);
    let mut steps = 0;
    while !coming.lock().unwrap().is_empty() {
        pipeline.step().unwrap();
        steps += 1;
        assert!(steps < 1000);
    }
    let parts = pipeline.into_parts().change(config(after));
    let (cpu, pool) = kernel(after);
    let mut pipeline: Pipeline<Memory<Host>, Host, CpuKernel> = Pipeline::resume(parts, cpu, pool, deliver(&came));
    let mut sender = Sender::new(after, Style::new(CUT), 77);
    (sender.next, sender.offset) = (7, 1_000_000);
    let later = sender.frames(5);
    send(&later);
    while !coming.lock().unwrap().is_empty() {
        pipeline.step().unwrap();
        steps += 1;
        assert!(steps < 2000);
    }
    pipeline.finish(&mut vec![]).unwrap();
    let came = came.lock().unwrap();
    let counts = pipeline.frames();
    // The frame that was being sent when the format changed is nobody's fault.
    assert_eq!((came.len(), counts.complete, counts.acquiring, counts.incomplete), (11, 11, 1, 0), "{counts:?}");
    for ((number, frame), n) in (0..).zip(came.iter()).zip((0..6).chain(7..12)) {
        assert_eq!((frame.meta().number, frame.meta().complete), (number, true));
        let picture = picture(if n < 7 { before } else { after }, n);
        assert!(frame.octets().starts_with(&picture), "frame {n}");
    }
    let all = (packets.len() + later.len()) as u64;
    let (c, legs) = (pipeline.depacketiser().counters(), pipeline.depacketiser().legs());
    assert_eq!((c.received, c.lost), (all, 0), "{c:?}");
    assert!(legs.iter().all(|l| l.received == all && l.lost == 0), "{legs:?}");
}
