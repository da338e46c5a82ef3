//! A sender that starts anew a thousand times, with any sequence, timestamp and SSRC: nothing is lost but the frame that it
//! was sending, and no frame holds octets of two.

use crate::Dice;
use crate::support::{RATE, Receiver, Sender, Sent, check, format, picture};
use gdmedia::depacketise::Config;
use gdmedia::format::WireFormat;
use gdmedia::merge::Class;
use gdmedia::packetise::{Cut, Style};
use gdmedia::plan::Fate;
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::time::Tai;

/// 40 packets a frame.
pub fn wire() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D8, 32, 40, Scan::Progressive)
}
pub const CUT: Cut = Cut::Full { udp: 8 + 20 + 64, segments: 1 };
pub const PACKETS: usize = 40;

/// A sender with a clock, a sequence and an SSRC of its own; its pictures are those of the frames' numbers.
pub fn sender(dice: &mut Dice, next: usize, short: bool) -> Sender {
    let mut style = Style::new(CUT);
    style.short_sequence = short;
    // One time in three it keeps the SSRC.
    style.ssrc = if dice.below(3) == 0 { 7 } else { dice.next() as u32 };
    let mut sender = Sender::new(wire(), style, dice.next() as u32);
    (sender.offset, sender.next) = (dice.next() as u32, next);
    sender
}

/// What was sent: packets, and of each frame its timestamp and how many of its packets there are; and the packets with which
/// the sender started anew.
struct Lives {
    packets: Vec<Sent>,
    frames: Vec<(u32, usize)>,
    begun: Vec<usize>,
}

impl Lives {
    /// Restarts that can be told from loss, and from packets that come late, by the headers and arrivals of the packets on
    /// both sides.
    fn told(&self) -> u64 {
        self.begun.iter().filter(|n| is_told(&self.packets[**n - 1], &self.packets[**n])).count() as u64
    }
}

/// As `docs/redundancy.md` has it, in whole numbers.
fn is_told(last: &Sent, first: &Sent) -> bool {
    let ssrc = |p: &Sent| p.octets[8..12].to_vec();
    let ticks = i64::from(first.timestamp().wrapping_sub(last.timestamp()) as i32);
    // A sender that leaves the extension at 0 has 16 bits.
    let (to, from) = (first.sequence(), last.sequence());
    let short = to >> 16 == 0 && from >> 16 == 0;
    let distance = if short {
        i64::from((to as u16).wrapping_sub(from as u16) as i16)
    } else {
        i64::from(to.wrapping_sub(from) as i32)
    };
    if ssrc(last) != ssrc(first) {
        return !((1..=16).contains(&distance) && (0..=9_000).contains(&ticks));
    }
    let elapsed = (first.arrival.0 - last.arrival.0) as i64 / 1_000_000 * 90;
    let alike = (elapsed - ticks).abs() < 2 * 90_000;
    let loss = (0..60 * 90_000).contains(&ticks)
        && ((1..=256).contains(&distance) || alike && (1..=(89 * ticks + 65_536)).contains(&distance));
    let late = alike && ticks <= 0 && (-(1 << 20) + 1..=0).contains(&distance);
    !loss && !late
}

/// A sender that starts anew so many times, in the midst of a frame, and sends `least` to `least + 3` frames between. A second
/// restart before the leg that lies behind has shown the first one costs what was sent between.
fn lives(dice: &mut Dice, restarts: usize, least: u64) -> Lives {
    let mut out = Lives { packets: vec![], frames: vec![], begun: vec![] };
    for life in 0..=restarts {
        let short = dice.below(4) == 0;
        let mut sender = sender(dice, out.frames.len(), short);
        if life > 0 {
            out.begun.push(out.packets.len());
        }
        let count = (least + dice.below(4)) as usize;
        for n in 0..count {
            let mut packets = sender.frame();
            if n + 1 == count && life < restarts {
                packets.truncate(1 + dice.below(PACKETS as u64) as usize);
            }
            out.frames.push((packets[0].timestamp(), packets.len()));
            out.packets.extend(packets);
        }
    }
    out
}

/// The same packets by a leg that lies so far behind.
pub fn by_leg(packets: &[Sent], leg: u8, skew_ns: u64) -> Vec<Sent> {
    let late = |p: &Sent| Sent { leg, arrival: Tai(p.arrival.0 + skew_ns), ..p.clone() };
    packets.iter().map(late).collect()
}

/// In the order of arrival.
pub fn in_order(legs: &[Vec<Sent>]) -> Vec<Sent> {
    let mut all: Vec<Sent> = legs.concat();
    all.sort_by_key(|p| (p.arrival, p.leg));
    all
}

pub fn receiver(legs: usize, class: Class) -> Receiver {
    let mut r = Receiver::with(Config::new(wire(), 96, Some(RATE)).with_legs(legs, class).unwrap());
    r.batch = 37;
    r
}

/// Frames come in order, each with its own octets and nothing else; whole when all of its packets were sent.
fn expect(r: &Receiver, frames: &[(u32, usize)]) {
    let mut shown = r.shown().into_iter();
    for (n, (timestamp, packets)) in frames.iter().enumerate() {
        let out = shown.next().unwrap_or_else(|| panic!("frame {n} is missing"));
        assert_eq!(out.end.timestamp, *timestamp, "frame {n}");
        assert_eq!(out.end.fate == Fate::Complete, *packets == PACKETS, "frame {n}");
        assert_eq!(out.missing_octets() as usize, (PACKETS - packets) * 64, "frame {n}");
        check(out, &picture(wire(), n), wire());
    }
    assert!(shown.next().is_none());
}

fn restarts() -> usize {
    if std::env::var_os("GDMEDIA_RESTARTS").is_some() { 10_000 } else { 1000 }
}

#[test]
fn of_one_leg() {
    let lives = lives(&mut Dice(1), restarts(), 3);
    let mut r = receiver(1, Class::A);
    r.feed(&lives.packets);
    let c = r.finish();
    expect(&r, &lives.frames);
    assert_eq!(c.received, lives.packets.len() as u64, "{c:?}");
    assert_eq!((c.restarts, c.lost, c.late), (lives.told(), 0, 0), "{c:?}");
    assert_eq!(lives.begun.len(), restarts());
}

/// One of the ten thousand: 16 bits of numbers, the same SSRC, 2685 numbers ahead and 52.7 s of timestamps, 6 ms later. Time
/// does not bear out that loss.
#[test]
fn with_numbers_that_may_follow_and_a_time_that_does_not() {
    for (ahead, told) in [(2685_i32, true), (256, false), (257, true), (-7, true)] {
        let mut style = Style::new(CUT);
        style.short_sequence = true;
        let mut packets = Sender::new(wire(), style, 1000).frames(6);
        packets.truncate(5 * PACKETS + 37);
        let mut second = Sender::new(wire(), style, (1036 + 5 * PACKETS as u32).wrapping_add_signed(ahead));
        (second.next, second.offset) = (6, 4_743_875 - 3003);
        let begun = vec![packets.len()];
        packets.extend(second.frames(6));
        let lives = Lives { packets, frames: vec![], begun };
        let mut r = receiver(1, Class::A);
        r.feed(&lives.packets);
        let c = r.finish();
        let lost = if told { 0 } else { ahead as u64 - 1 };
        assert_eq!((c.restarts, c.lost, lives.told()), (u64::from(told), lost, u64::from(told)), "{ahead}: {c:?}");
        let shown = r.shown();
        assert_eq!(shown.len(), 12);
        for (n, out) in shown.into_iter().enumerate() {
            assert_eq!(out.end.fate == Fate::Complete, n != 5, "{ahead}: frame {n}");
            check(out, &picture(wire(), n), wire());
        }
    }
}

/// Played by whoever sends a capture again and again, with the numbers and timestamps in it.
#[test]
fn of_a_recording_that_is_played_in_a_loop() {
    for legs in [1, 2] {
        // For 2 s and longer the first packet shows it; else some packets have to come again.
        for (count, lacks) in [(75, 0), (20, 2), (6, 2)] {
            let turns = 4;
            let once = Sender::plain(wire(), CUT).frames(count);
            let length = once[(count - 1) * PACKETS].arrival.0 - once[0].arrival.0 + 33_366_666;
            let turn = |n: u64| once.iter().cloned().map(move |p| Sent { arrival: Tai(p.arrival.0 + n * length), ..p });
            let packets: Vec<Sent> = (0..turns).flat_map(turn).collect();
            let all = [by_leg(&packets, 0, 0), by_leg(&packets, 1, 5_000_000)];
            let mut r = receiver(legs, Class::A);
            r.feed(&in_order(&all[..legs]));
            let c = r.finish();
            assert_eq!((c.restarts, c.lost, c.rejected.total()), (turns - 1, 0, 0), "{legs} legs, {count}: {c:?}");
            let shown = r.shown();
            let wanted = turns as usize * (count - lacks) + lacks;
            assert_eq!(shown.len(), wanted, "{legs} legs, {count} frames");
            for out in shown {
                assert_eq!(out.end.fate, Fate::Complete);
                let n = once.iter().find(|p| p.timestamp() == out.end.timestamp).unwrap().frame;
                check(out, &picture(wire(), n), wire());
            }
        }
    }
}

#[test]
fn of_two_legs_that_lie_apart() {
    for (seed, class, skew) in [(2, Class::A, 9_900_000), (3, Class::C, 149_000_000), (4, Class::A, 0)] {
        let lives = lives(&mut Dice(seed), restarts() / 3, if skew > 100_000_000 { 7 } else { 4 });
        let legs = [by_leg(&lives.packets, 0, 0), by_leg(&lives.packets, 1, skew)];
        let mut r = receiver(2, class);
        r.feed(&in_order(&legs));
        let c = r.finish();
        expect(&r, &lives.frames);
        assert_eq!(c.received, lives.packets.len() as u64, "{c:?}");
        for leg in r.dep.legs() {
            assert_eq!((leg.received, leg.lost, leg.late), (c.received, c.lost, 0), "{leg:?}");
        }
    }
}

#[test]
fn of_two_legs_that_lose_packets() {
    let dice = &mut Dice(5);
    let lives = lives(dice, restarts() / 2, 4);
    let mut legs = [by_leg(&lives.packets, 0, 0), by_leg(&lives.packets, 1, 8_000_000)];
    // Each leg loses one packet in twenty, and none is lost by both.
    let lost: Vec<u64> = lives.packets.iter().map(|_| dice.below(20)).collect();
    for (leg, packets) in legs.iter_mut().enumerate() {
        let mut lost = lost.iter();
        packets.retain(|_| *lost.next().unwrap() != leg as u64);
    }
    let mut r = receiver(2, Class::A);
    r.feed(&in_order(&legs));
    r.finish();
    expect(&r, &lives.frames);
}

#[test]
fn of_another_sender_on_one_leg_alone() {
    for (seed, behind) in [(6, 1), (7, 0)] {
        let dice = &mut Dice(seed);
        let others = lives(dice, restarts() / 2, 4);
        let mut ours = sender(dice, 0, false);
        let packets = ours.frames(others.frames.len());
        let frames: Vec<_> = packets.chunks(PACKETS).map(|frame| (frame[0].timestamp(), PACKETS)).collect();
        // Ours begins, then the other leg brings something else all the time.
        let other = 1 - behind;
        let mut strays = by_leg(&others.packets, other, 3_000_000);
        strays.retain(|p| p.arrival > packets[5 * PACKETS].arrival);
        let mut r = receiver(2, Class::A);
        r.feed(&in_order(&[by_leg(&packets, behind, 0), strays.clone()]));
        let c = r.finish();
        expect(&r, &frames);
        assert_eq!((c.received, c.lost, c.restarts), (packets.len() as u64, 0, 0), "{c:?}");
        let legs = r.dep.legs();
        let (ours, theirs) = (legs[usize::from(behind)], legs[usize::from(other)]);
        assert_eq!((ours.received, ours.lost, ours.foreign), (packets.len() as u64, 0, 0), "{ours:?}");
        assert_eq!((theirs.received, theirs.foreign), (0, strays.len() as u64), "{theirs:?}");
    }
}
