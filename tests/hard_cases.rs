//! Streams that make receivers stumble: each cell sends known pictures and compares whole frames.

mod support;

use gdmedia::depacketise::{Config, Depacketiser, Packet};
use gdmedia::format::WireFormat;
use gdmedia::merge::Class;
use gdmedia::packetise::{Cut, Style};
use gdmedia::plan::Fate;
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::stats::Reason;
use gdmedia::time::Tai;
use std::time::Duration;
use support::*;

const FRAMES: usize = 5;
const SCANS: [Scan; 3] = [Scan::Progressive, Scan::Interlaced, Scan::Psf];

/// Runs `cell` for every format, cut and scan.
fn each(mut cell: impl FnMut(WireFormat, Cut)) {
    for scan in SCANS {
        each_of(scan, &mut cell);
    }
}

fn each_of(scan: Scan, mut cell: impl FnMut(WireFormat, Cut)) {
    for format in formats(scan) {
        for cut in cuts(format) {
            cell(format, cut);
        }
    }
}

fn receive(format: WireFormat, packets: &[Sent]) -> Receiver {
    let mut r = Receiver::new(format);
    r.feed(packets);
    r.finish();
    r
}

/// Sends five frames through `harm` and expects all of them whole.
fn survives(format: WireFormat, cut: Cut, harm: impl FnOnce(Vec<Sent>) -> Vec<Sent>) -> Receiver {
    let sent = Sender::plain(format, cut).frames(FRAMES);
    let r = receive(format, &harm(sent));
    check_all(&r, 0, FRAMES);
    r
}

fn hd_small(scan: Scan) -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 64, 32, scan)
}

/// Positions of the packets of frame `n`.
fn of_frame(packets: &[Sent], n: usize) -> std::ops::Range<usize> {
    let start = packets.iter().position(|p| p.frame == n).unwrap();
    start..start + packets[start..].iter().take_while(|p| p.frame == n).count()
}

fn fates(r: &Receiver) -> Vec<Fate> {
    r.out.iter().map(|o| o.end.fate).collect()
}

// The stream as it should be, in all its forms.

#[test]
fn in_order() {
    each(|format, cut| {
        let r = survives(format, cut, |p| p);
        let c = r.dep.counters();
        assert_eq!((c.lost, c.late, c.duplicate, c.reordered, c.restarts, c.rejected.total()), (0, 0, 0, 0, 0, 0));
        let half = if format.scan == Scan::Interlaced { Some(1501) } else { None };
        for out in &r.out {
            assert_eq!(out.end.second_timestamp.map(|s| s.wrapping_sub(out.end.timestamp)), half);
        }
    });
}

#[test]
fn wrap_of_16_bits() {
    // The plain sender begins at 65500; here the wrap lies inside the first frame, and on its first packet.
    each(|format, cut| {
        for first in [0xffff, 0x1_fffe, 0x1_0000 - 7] {
            let sent = Sender::new(format, Style::new(cut), first).frames(FRAMES);
            let r = receive(format, &sent);
            check_all(&r, 0, FRAMES);
            assert_eq!((r.dep.counters().lost, r.dep.counters().restarts), (0, 0));
        }
    });
}

#[test]
fn wrap_of_32_bits() {
    each(|format, cut| {
        let sent = Sender::new(format, Style::new(cut), u32::MAX - 20).frames(FRAMES);
        let r = receive(format, &sent);
        check_all(&r, 0, FRAMES);
        assert_eq!((r.dep.counters().lost, r.dep.counters().restarts), (0, 0));
    });
}

#[test]
fn wrap_of_the_timestamp() {
    each(|format, cut| {
        let mut sender = Sender::plain(format, cut);
        sender.offset = 0u32.wrapping_sub(sender.timestamps(2)[0]).wrapping_sub(700);
        let r = receive(format, &sender.frames(FRAMES));
        check_all(&r, 0, FRAMES);
    });
}

#[test]
fn extension_left_at_zero() {
    each(|format, cut| {
        let mut style = Style::new(cut);
        style.short_sequence = true;
        for first in [65_500, 0xffff, 0] {
            let r = receive(format, &Sender::new(format, style, first).frames(FRAMES));
            check_all(&r, 0, FRAMES);
            assert_eq!((r.dep.counters().lost, r.dep.counters().restarts), (0, 0));
        }
    });
}

#[test]
fn extension_moves_early_or_late() {
    each(|format, cut| {
        for (shift, first) in
            [(9u32, 65_520), (0u32.wrapping_sub(9), 65_500), (3, 65_533), (0u32.wrapping_sub(1), 65_535)]
        {
            survives(format, cut, |mut p| {
                for (n, p) in p.iter_mut().enumerate() {
                    let sequence = first + n as u32;
                    let early = sequence.wrapping_add(shift) >> 16;
                    p.set_sequence(early << 16 | sequence & 0xffff);
                }
                p
            });
        }
    });
}

#[test]
fn csrc_header_extension_and_padding() {
    each(|format, cut| {
        survives(format, cut, |mut p| {
            for (n, p) in p.iter_mut().enumerate() {
                let mut octets = p.octets[..12].to_vec();
                octets[0] = 0x80 | if n % 2 == 0 { 2 } else { 0 } | if n % 3 == 0 { 0x10 } else { 0 };
                if n % 2 == 0 {
                    octets.extend([1, 2, 3, 4, 5, 6, 7, 8]);
                }
                if n % 3 == 0 {
                    octets.extend([0xbe, 0xde, 0, 1, 0x10, 0xff, 0, 0]);
                }
                octets.extend(&p.octets[12..]);
                if n % 5 == 0 {
                    octets[0] |= 0x20;
                    octets.extend([0, 0, 0, 0, 0, 6]);
                }
                p.present = octets.len();
                p.octets = octets;
            }
            p
        });
    });
}

#[test]
fn empty_packets_between_frames() {
    // A zero-length segment, with the marker that the last packet of samples then lacks.
    each(|format, cut| {
        let mut sender = Sender::plain(format, cut);
        let mut packets = vec![];
        for _ in 0..FRAMES {
            let mut sequence = packets.last().map_or(65_500, |p: &Sent| p.sequence() + 1);
            for mut p in sender.frame() {
                p.set_sequence(sequence);
                sequence += 1;
                if p.marker {
                    p.set_marker(false);
                    let mut empty = p.clone();
                    empty.octets.truncate(20);
                    empty.octets[14..16].fill(0);
                    empty.octets[18] &= 0x7f;
                    empty.present = 20;
                    empty.set_marker(true);
                    empty.set_sequence(sequence);
                    sequence += 1;
                    packets.extend([p, empty]);
                } else {
                    packets.push(p);
                }
            }
        }
        let r = receive(format, &packets);
        check_all(&r, 0, FRAMES);
        let c = r.dep.counters();
        assert_eq!((c.lost, c.late, c.rejected.total()), (0, 0, 0));
    });
}

#[test]
fn rate_unknown() {
    each(|format, cut| {
        let mut r = Receiver::with(Config::new(format, 96, None));
        r.feed(&Sender::plain(format, cut).frames(FRAMES));
        r.finish();
        check_all(&r, 0, FRAMES);
    });
}

// Loss, reordering, copies.

#[test]
fn rows_lost() {
    each(|format, cut| {
        let sent = Sender::plain(format, cut).frames(FRAMES);
        let frame = of_frame(&sent, 2);
        let lost = frame.start + 3..(frame.start + 6).min(frame.end - 1);
        let kept: Vec<_> = sent.iter().enumerate().filter(|(n, _)| !lost.contains(n)).map(|(_, p)| p.clone()).collect();
        let r = receive(format, &kept);
        assert_eq!(r.out.len(), FRAMES);
        for (n, out) in r.out.iter().enumerate() {
            check(out, &picture(format, n), format);
            assert_eq!(out.end.fate, if n == 2 { Fate::Incomplete } else { Fate::Complete });
        }
        assert_eq!(r.out[2].missing_octets(), octets_of(&sent[lost.clone()]));
        assert_eq!(r.dep.counters().lost, lost.len() as u64);
    });
}

#[test]
fn marker_lost() {
    each(|format, cut| {
        // The bit alone.
        survives(format, cut, |mut p| {
            p.iter_mut().for_each(|p| p.set_marker(false));
            p
        });
        // The packet with it.
        let sent = Sender::plain(format, cut).frames(FRAMES);
        let lost = of_frame(&sent, 2).end - 1;
        let mut kept = sent.clone();
        kept.remove(lost);
        let r = receive(format, &kept);
        assert_eq!(r.out.len(), FRAMES);
        for (n, out) in r.out.iter().enumerate() {
            check(out, &picture(format, n), format);
        }
        assert_eq!(r.out[2].missing_octets(), octets_of([&sent[lost]]));
    });
}

#[test]
fn markers_too_many() {
    each(|format, cut| {
        survives(format, cut, |mut p| {
            p.iter_mut().for_each(|p| p.set_marker(true));
            p
        });
    });
}

#[test]
fn whole_frame_lost() {
    each(|format, cut| {
        let sent = Sender::plain(format, cut).frames(FRAMES);
        let lost = of_frame(&sent, 2);
        let kept: Vec<_> = sent.iter().filter(|p| p.frame != 2).cloned().collect();
        let r = receive(format, &kept);
        assert_eq!(r.out.len(), FRAMES - 1);
        for (out, n) in r.out.iter().zip([0, 1, 3, 4]) {
            check(out, &picture(format, n), format);
            assert_eq!(out.end.fate, Fate::Complete);
        }
        assert_eq!(r.dep.counters().lost, lost.len() as u64);
    });
}

#[test]
fn swap_inside_a_frame() {
    each(|format, cut| {
        let r = survives(format, cut, |mut p| {
            for n in 0..FRAMES {
                let frame = of_frame(&p, n);
                p.swap(frame.start + 1, frame.start + 2);
            }
            p
        });
        assert_eq!((r.dep.counters().reordered, r.dep.counters().lost), (FRAMES as u64, 0));
    });
}

#[test]
fn swap_across_a_frame_boundary() {
    each(|format, cut| {
        for depth in [0, 1, 2] {
            let r = survives(format, cut, |mut p| {
                for n in 0..FRAMES - 1 {
                    let frame = of_frame(&p, n);
                    p.swap(frame.end - 1 - depth, frame.end + depth);
                    // Frames stay what they were for the next round.
                    let (a, b) = (p[frame.end - 1 - depth].frame, p[frame.end + depth].frame);
                    assert_eq!((a, b), (n + 1, n));
                    p[frame.end - 1 - depth].frame = n;
                    p[frame.end + depth].frame = n + 1;
                }
                p
            });
            assert_eq!((r.dep.counters().late, r.dep.counters().lost), (0, 0));
        }
    });
}

#[test]
fn reordered_at_the_very_beginning() {
    each(|format, cut| {
        let r = survives(format, cut, |mut p| {
            p.swap(0, 2);
            p
        });
        assert_eq!((r.dep.counters().received, r.dep.counters().lost), (r.dep.counters().received, 0));
    });
}

#[test]
fn every_packet_twice() {
    each(|format, cut| {
        for skew in [0, 1, 40] {
            let r = survives(format, cut, |p| two_legs(&p, skew));
            let c = r.dep.counters();
            assert_eq!((c.duplicate, c.lost, c.late, c.restarts), (c.received, 0, 0, 0), "skew {skew}");
        }
    });
}

/// The second copy of each packet comes `skew` packets after the first.
fn two_legs(packets: &[Sent], skew: usize) -> Vec<Sent> {
    let mut out = vec![];
    for n in 0..packets.len() + skew {
        out.extend(packets.get(n).cloned());
        out.extend(n.checked_sub(skew).and_then(|n| packets.get(n)).cloned());
    }
    out
}

#[test]
fn each_leg_loses_other_packets() {
    each(|format, cut| {
        let r = survives(format, cut, |p| {
            let mut out = two_legs(&p, 3);
            let mut seen = std::collections::HashMap::new();
            out.retain(|p| {
                let copy = seen.entry(p.sequence()).or_insert(0);
                *copy += 1;
                // The first leg loses every seventh packet, the second another one.
                if *copy == 1 { p.sequence() % 7 != 0 } else { p.sequence() % 7 != 3 }
            });
            out
        });
        assert_eq!(r.dep.counters().lost, 0);
    });
}

#[test]
fn late_packet_of_a_closed_frame() {
    each(|format, cut| {
        let mut sent = Sender::plain(format, cut).frames(12);
        let frame = of_frame(&sent, 3);
        let late = sent.remove(frame.start + 1);
        let at = of_frame(&sent, 10).start + 1;
        sent.insert(at, late.clone());
        let mut r = Receiver::new(format);
        r.feed(&sent);
        let c = r.finish();
        assert_eq!(r.out.len(), 12);
        for (n, out) in r.out.iter().enumerate() {
            check(out, &picture(format, n), format);
        }
        assert_eq!(r.out[3].missing_octets(), octets_of([&late]));
        assert_eq!((c.late, c.lost, c.duplicate), (1, 1, 0));
        // Once more: now it is a copy.
        let mut again = Receiver::new(format);
        sent.insert(at + 1, late);
        again.feed(&sent);
        let c = again.finish();
        assert_eq!((c.late, c.lost, c.duplicate), (1, 1, 1));
    });
}

#[test]
fn waiting_ends_when_nothing_comes() {
    each(|format, cut| {
        let sent = Sender::plain(format, cut).frames(2);
        let mut r = Receiver::new(format);
        let last = sent.len() - 1;
        r.feed(&sent[..last]);
        let arrival = sent[last - 1].arrival;
        r.idle(arrival + Duration::from_millis(100));
        assert_eq!(r.out.len(), 1, "its sender may go on with it");
        r.idle(arrival + Duration::from_nanos(100_000_001));
        assert_eq!(fates(&r), [Fate::Complete, Fate::Incomplete]);
        r.feed(&sent[last..]);
        let c = r.finish();
        assert_eq!((c.late, c.lost, r.out.len()), (1, 1, 2));
    });
}

/// Two frame times of 33.4 ms: nothing more can be expected of a frame whose end has come, or behind which one has begun.
#[test]
fn waiting_for_what_is_over_ends_after_two_frame_times() {
    each(|format, cut| {
        let sent = Sender::plain(format, cut).frames(3);
        let (second, third) = (of_frame(&sent, 1), of_frame(&sent, 2));
        let hole = second.start + (second.len() - 1) / 2;
        let mut holed = sent[..second.end].to_vec();
        let lost = holed.remove(hole);
        // Its last packet has come; and the same with the first packet of the next frame behind it.
        for next in [None, Some(sent[third.start].clone())] {
            let mut r = Receiver::new(format);
            let packets: Vec<Sent> = holed.iter().cloned().chain(next).collect();
            r.feed(&packets);
            let end = holed[holed.len() - 1].arrival;
            r.idle(end + Duration::from_millis(66));
            assert_eq!(fates(&r), [Fate::Complete]);
            r.idle(end + Duration::from_millis(67));
            assert_eq!(fates(&r), [Fate::Complete, Fate::Incomplete]);
            assert_eq!(r.out[1].missing_octets(), octets_of([&lost]));
            let begun = packets[packets.len() - 1].arrival;
            r.idle(begun + Duration::from_millis(100));
            assert_eq!(r.out.len(), 2, "the one that has begun");
            r.finish();
        }
    });
}

#[test]
fn a_sender_that_stands_still_within_a_frame_loses_nothing() {
    each(|format, cut| {
        for legs in [1, 2] {
            let mut sent = Sender::plain(format, cut).frames(6);
            let stop = of_frame(&sent, 3).start + of_frame(&sent, 3).len() / 2;
            let stands = Duration::from_millis(90);
            sent[stop..].iter_mut().for_each(|p| p.arrival = p.arrival + stands);
            let config = Config::new(format, 96, Some(RATE)).with_legs(legs, Class::A).unwrap();
            let mut r = Receiver::with(config);
            r.feed(&sent[..stop]);
            (0..=9).for_each(|ms| r.idle(sent[stop - 1].arrival + Duration::from_millis(10 * ms)));
            r.feed(&sent[stop..]);
            let c = r.finish();
            check_all(&r, 0, 6);
            assert_eq!((c.lost, c.late, c.restarts, c.rejected.total()), (0, 0, 0, 0), "{legs} legs: {c:?}");
        }
    });
}

// Joining and starting anew.

#[test]
fn joining_in_the_middle() {
    each(|format, cut| {
        let sent = Sender::plain(format, cut).frames(FRAMES);
        for from in [1, 2, of_frame(&sent, 0).len() / 2, of_frame(&sent, 0).len() - 1] {
            let r = receive(format, &sent[from..]);
            assert_eq!(fates(&r)[0], Fate::Acquiring);
            check(&r.out[0], &picture(format, 0), format);
            check_all(&r, 1, FRAMES - 1);
            assert_eq!(r.dep.counters().lost, 0);
        }
    });
}

#[test]
fn ssrc_changes_mid_stream() {
    each(|format, cut| {
        let r = survives(format, cut, |mut p| {
            let frame = of_frame(&p, 2);
            p[frame.start + 2..].iter_mut().for_each(|p| p.set_ssrc(77));
            p
        });
        assert_eq!((r.dep.counters().restarts, r.dep.counters().rejected.total()), (0, 0));
    });
}

#[test]
fn restart_with_new_ssrc_sequence_and_timestamp() {
    each(|format, cut| {
        for ssrc in [0, 9] {
            let mut packets = Sender::plain(format, cut).frames(FRAMES);
            let mut style = Style::new(cut);
            style.ssrc = ssrc;
            let mut second = Sender::new(format, style, 0x8123_4567);
            (second.offset, second.next) = (123_456_789, FRAMES);
            packets.extend(second.frames(FRAMES));
            let r = receive(format, &packets);
            check_all(&r, 0, 2 * FRAMES);
            let c = r.dep.counters();
            assert_eq!((c.restarts, c.lost, c.rejected.total()), (1, 0, 0));
        }
    });
}

#[test]
fn restart_in_the_middle_of_a_frame() {
    each(|format, cut| {
        let sent = Sender::plain(format, cut).frames(3);
        let frame = of_frame(&sent, 2);
        let mut packets = sent[..frame.start + 3].to_vec();
        let mut second = Sender::new(format, Style::new(cut), 0x0123_7011);
        (second.offset, second.next) = (55_000, 3);
        packets.extend(second.frames(FRAMES));
        let r = receive(format, &packets);
        assert_eq!(r.out.len(), 3 + FRAMES, "{format:?} {cut:?} {:?}", fates(&r));
        for (n, out) in r.out.iter().enumerate() {
            check(out, &picture(format, n), format);
            assert_eq!(out.end.fate, if n == 2 { Fate::Incomplete } else { Fate::Complete });
        }
        assert_eq!(r.dep.counters().restarts, 1);
    });
}

#[test]
fn a_stray_packet() {
    each(|format, cut| {
        let r = survives(format, cut, |mut p| {
            let mut stray = p[0].clone();
            stray.set_ssrc(0xbad);
            stray.set_sequence(0x7777_0000);
            stray.set_timestamp(1);
            let at = of_frame(&p, 2).start + 1;
            p.insert(at, stray);
            p
        });
        let c = r.dep.counters();
        assert_eq!((c.restarts, c.lost, c.rejected.get(Reason::Ssrc)), (0, 0, 1));
        assert_eq!(fates(&r).iter().filter(|f| **f == Fate::Acquiring).count(), 1);
    });
}

#[test]
fn two_senders_on_one_address() {
    each(|format, cut| {
        let ours = Sender::plain(format, cut).frames(FRAMES);
        for same_ssrc in [false, true] {
            let mut style = Style::new(cut);
            style.ssrc = if same_ssrc { 0 } else { 5 };
            let mut other = Sender::new(format, style, 0x4321_0000);
            (other.offset, other.next) = (1_000_000, 50);
            let theirs = other.frames(FRAMES);
            let mut packets = vec![];
            for (a, b) in ours.iter().zip(&theirs) {
                packets.extend([a.clone(), b.clone()]);
            }
            let r = receive(format, &packets);
            check_all(&r, 0, FRAMES);
            let c = r.dep.counters();
            let foreign =
                theirs.len() as u64 - u64::from(same_ssrc && c.rejected.get(Reason::Ssrc) != theirs.len() as u64);
            assert!(c.rejected.get(Reason::Ssrc) >= foreign - 1, "{c:?}");
            assert_eq!((c.lost, c.received), (0, ours.len() as u64));
        }
    });
}

#[test]
fn other_payload_types_and_versions_mixed_in() {
    each(|format, cut| {
        let r = survives(format, cut, |p| {
            let mut out = vec![];
            for p in p {
                let (mut type_97, mut version_1) = (p.clone(), p.clone());
                type_97.octets[1] = 97;
                version_1.octets[0] = 0x40;
                out.extend([type_97, version_1, p]);
            }
            out
        });
        let c = r.dep.counters();
        assert_eq!((c.rejected.get(Reason::PayloadType), c.rejected.get(Reason::Version)), (c.received, c.received));
    });
}

// Headers that lie.

/// Before each packet of frame 2 its bad twin, which has the same number.
fn bad_twins(packets: Vec<Sent>, spoil: impl Fn(&mut Sent)) -> (Vec<Sent>, u64) {
    let (mut out, mut bad) = (vec![], 0);
    for p in packets {
        if p.frame == 2 {
            let mut twin = p.clone();
            spoil(&mut twin);
            out.push(twin);
            bad += 1;
        }
        out.push(p);
    }
    (out, bad)
}

fn lies(reason: Reason, format: WireFormat, cut: Cut, spoil: impl Fn(&mut Sent)) {
    let mut expected = 0;
    let r = survives(format, cut, |p| {
        let (out, bad) = bad_twins(p, spoil);
        expected = bad;
        out
    });
    let c = r.dep.counters();
    assert!(c.rejected.get(reason) >= expected, "{format:?} {reason:?} {c:?}");
    assert_eq!(c.lost, 0);
}

/// One segment, so that the whole packet is bad.
fn one_segment(p: &mut Sent) {
    let len = usize::from(p.sources[0].len);
    let data_at = 14 + 6 * p.sources.len();
    let samples = p.octets[data_at..data_at + len].to_vec();
    p.octets.truncate(20);
    p.octets[18] &= 0x7f;
    p.octets.extend(samples);
    p.present = p.octets.len();
}

#[test]
fn wrong_row() {
    each(|format, cut| {
        lies(Reason::Row, format, cut, |p| {
            one_segment(p);
            p.octets[16] = p.octets[16] & 0x80 | 0x7f;
            p.octets[17] = 0xfe;
        });
        lies(Reason::Row, format, cut, |p| {
            one_segment(p);
            // The first row that the raster has no more.
            let rows = match (format.scan, p.field()) {
                (Scan::Progressive, _) => format.rows() * format.pgroup.rows,
                (_, false) => format.height.div_ceil(2),
                (_, true) => format.height / 2,
            };
            p.octets[16] = p.octets[16] & 0x80 | (rows >> 8) as u8;
            p.octets[17] = rows as u8;
        });
    });
}

#[test]
fn wrong_offset() {
    each(|format, cut| {
        lies(Reason::Offset, format, cut, |p| {
            one_segment(p);
            p.octets[18..20].copy_from_slice(&0x7ffcu16.to_be_bytes());
        });
        if format.pgroup.width() > 1 {
            lies(Reason::Offset, format, cut, |p| {
                one_segment(p);
                p.octets[19] |= 1;
            });
        }
    });
}

#[test]
fn segment_past_the_end_of_the_row() {
    each(|format, cut| {
        lies(Reason::Segment, format, cut, |p| {
            one_segment(p);
            let len = format.row_octets() as usize;
            p.octets.resize(20 + len, 0x99);
            p.octets[14..16].copy_from_slice(&(len as u16).to_be_bytes());
            let last = (format.row_pgroups() - 1) * format.pgroup.width();
            p.octets[18..20].copy_from_slice(&(last as u16).to_be_bytes());
            p.present = p.octets.len();
        });
    });
}

#[test]
fn wrong_length() {
    each(|format, cut| {
        // Longer than the packet.
        lies(Reason::SrdHeader, format, cut, |p| p.octets[14] = 0x70);
        // No whole pgroup.
        if format.pgroup.octets > 1 {
            lies(Reason::SrdHeader, format, cut, |p| {
                one_segment(p);
                let len = u16::from_be_bytes([p.octets[14], p.octets[15]]) - 1;
                p.octets[14..16].copy_from_slice(&len.to_be_bytes());
            });
        }
        // Shorter than its own header.
        lies(Reason::Length, format, cut, |p| {
            p.octets.truncate(15);
            p.present = 15;
        });
        // Headers that do not end before the packet does.
        lies(Reason::Length, format, cut, |p| {
            p.octets.truncate(14);
            p.octets.extend([0, 0, 0, 0, 0x80, 0].repeat(4));
            p.present = p.octets.len();
        });
    });
}

#[test]
fn good_segments_of_a_bad_packet_are_placed() {
    // Three rows a packet; the middle one names a row that does not exist, and comes again by itself.
    let format = hd_small(Scan::Progressive);
    let r = survives(format, Cut::Full { udp: 1460, segments: 3 }, |p| {
        let mut out = vec![];
        let mut sequence = 0;
        for mut p in p {
            let mut extra = None;
            if p.sources.len() == 3 {
                let mut alone = p.clone();
                let second = 32 + usize::from(p.sources[0].len);
                let samples = p.octets[second..second + usize::from(p.sources[1].len)].to_vec();
                alone.octets.truncate(14);
                alone.octets.extend(&p.octets[20..26]);
                alone.octets[18] &= 0x7f;
                alone.octets.extend(samples);
                alone.present = alone.octets.len();
                p.octets[22] = 0x7f;
                extra = Some(alone);
            }
            for mut p in [Some(p), extra].into_iter().flatten() {
                p.set_sequence(sequence);
                sequence += 1;
                out.push(p);
            }
        }
        out
    });
    assert!(r.dep.counters().rejected.get(Reason::Row) >= 5);
}

#[test]
fn field_bit_in_a_progressive_stream() {
    each_of(Scan::Progressive, |format, cut| {
        lies(Reason::Field, format, cut, |p| {
            one_segment(p);
            p.octets[16] |= 0x80;
        })
    });
}

// Interlaced and segmented.

#[test]
fn a_field_lost() {
    for scan in [Scan::Interlaced, Scan::Psf] {
        each_of(scan, |format, cut| {
            for field in [false, true] {
                let sent = Sender::plain(format, cut).frames(FRAMES);
                let is_lost = |p: &Sent| p.frame == 2 && p.field() == field;
                let kept: Vec<_> = sent.iter().filter(|p| !is_lost(p)).cloned().collect();
                let r = receive(format, &kept);
                assert_eq!(r.out.len(), FRAMES, "{:?}", fates(&r));
                for (n, out) in r.out.iter().enumerate() {
                    check(out, &picture(format, n), format);
                }
                assert_eq!(r.out[2].missing_octets(), octets_of(sent.iter().filter(|p| is_lost(p))));
                assert_eq!(r.out[2].end.timestamp, Sender::plain(format, cut).timestamps(2)[0]);
            }
        });
    }
}

#[test]
fn a_field_lost_at_an_unknown_rate() {
    each_of(Scan::Interlaced, |format, cut| {
        let sent = Sender::plain(format, cut).frames(FRAMES);
        let kept: Vec<_> = sent.iter().filter(|p| p.frame != 2 || !p.field()).cloned().collect();
        let mut r = Receiver::with(Config::new(format, 96, None));
        r.feed(&kept);
        r.finish();
        assert_eq!(r.out.len(), FRAMES);
        for (n, out) in r.out.iter().enumerate() {
            check(out, &picture(format, n), format);
        }
    });
}

/// Numbers the packets anew.
fn renumber(packets: &mut [Sent]) {
    for (n, p) in packets.iter_mut().enumerate() {
        p.set_sequence(65_500 + n as u32);
    }
}

#[test]
fn a_field_sent_again() {
    for scan in [Scan::Interlaced, Scan::Psf] {
        each_of(scan, |format, cut| {
            // With its own timestamp: nothing new.
            for field in [false, true] {
                survives(format, cut, |p| {
                    let again: Vec<_> = p.iter().filter(|p| p.frame == 2 && p.field() == field).cloned().collect();
                    let at = p.iter().rposition(|p| p.frame == 2 && p.field() == field).unwrap() + 1;
                    let mut out = p.clone();
                    out.splice(at..at, again);
                    renumber(&mut out);
                    out
                });
            }
        });
    }
    each_of(Scan::Interlaced, |format, cut| {
        // In place of the other field, with the other's timestamp: that field is missing, the repeated one a frame's
        // only field; nothing of an older frame is shown.
        let mut sent = Sender::plain(format, cut).frames(FRAMES);
        let second: Vec<_> = sent.iter().filter(|p| p.frame == 2 && p.field()).cloned().collect();
        let at = sent.iter().position(|p| p.frame == 3).unwrap();
        let timestamp = sent[at].timestamp();
        let first: Vec<_> = sent.iter().filter(|p| p.frame == 3 && !p.field()).cloned().collect();
        let mut repeated = second.clone();
        repeated.iter_mut().for_each(|p| p.set_timestamp(timestamp));
        sent.splice(at..at + first.len(), repeated);
        renumber(&mut sent);
        let r = receive(format, &sent);
        for out in &r.out {
            let n = (0..FRAMES).find(|n| Sender::plain(format, cut).timestamps(*n)[0] == out.end.timestamp);
            // The frame that the repeated field makes begins half a frame before frame 3.
            check(out, &picture(format, n.unwrap_or(2)), format);
        }
        assert_eq!(r.out.iter().filter(|o| o.end.fate == Fate::Complete).count(), FRAMES - 1);
        assert_eq!(r.out.len(), FRAMES + 1);
    });
}

#[test]
fn field_order_reversed() {
    each_of(Scan::Interlaced, |format, cut| {
        let mut style = Style::new(cut);
        style.second_first = true;
        // Aligned with the epoch: the order shows in the first timestamp.
        let r = receive(format, &Sender::new(format, style, 65_500).frames(FRAMES));
        check_all(&r, 0, FRAMES);
        // Free running: fields of two frames are woven, each in its rows; nothing stale is shown.
        let mut sender = Sender::new(format, style, 65_500);
        sender.offset = 400_000_777;
        let r = receive(format, &sender.frames(FRAMES));
        let row = format.row_octets() as usize;
        for (n, out) in r.shown().iter().enumerate() {
            let (even, odd) = (picture(format, n), picture(format, n + 1));
            for (k, got) in out.octets.chunks(row).enumerate() {
                let from = if k % 2 == 0 { &even } else { &odd };
                let stale = out.missing.iter().any(|m| m.row as usize == k);
                assert!(if stale { got.iter().all(|o| *o == STALE) } else { got == &from[k * row..][..row] });
            }
        }
        assert!(r.shown().len() >= FRAMES - 1);
    });
}

#[test]
fn fields_with_equal_timestamps() {
    each_of(Scan::Interlaced, |format, cut| {
        survives(format, cut, |mut p| {
            for p in p.iter_mut().filter(|p| p.field()) {
                let first = p.timestamp().wrapping_sub(1501);
                p.set_timestamp(first);
            }
            p
        });
    });
}

#[test]
fn half_frames_rounded_otherwise() {
    each_of(Scan::Interlaced, |format, cut| {
        for by in [1, 2, u32::MAX, u32::MAX - 1] {
            survives(format, cut, |mut p| {
                for p in p.iter_mut().filter(|p| p.field()) {
                    let other = p.timestamp().wrapping_add(by);
                    p.set_timestamp(other);
                }
                p
            });
        }
    });
}

#[test]
fn psf_with_the_marker_on_one_segment() {
    each_of(Scan::Psf, |format, cut| {
        survives(format, cut, |mut p| {
            p.iter_mut().filter(|p| !p.field()).for_each(|p| p.set_marker(false));
            p
        });
    });
}

#[test]
fn joining_at_the_second_field() {
    for scan in [Scan::Interlaced, Scan::Psf] {
        each_of(scan, |format, cut| {
            let sent = Sender::plain(format, cut).frames(FRAMES);
            let from = sent.iter().position(Sent::field).unwrap();
            let r = receive(format, &sent[from..]);
            assert_eq!(fates(&r)[0], Fate::Acquiring);
            check_all(&r, 1, FRAMES - 1);
        });
    }
}

// Senders that go their own way.

#[test]
fn rows_numbered_as_in_sdi() {
    each(|format, cut| {
        let field = (format.height.div_ceil(2)) as u16;
        let numberings = match format.scan {
            Scan::Progressive => [[42, 0], [1, 0], [2 * field + 9, 0]],
            _ => [[21, 584], [1, 1], [1, field + 4]],
        };
        for first_row in numberings {
            let mut style = Style::new(cut);
            style.first_row = first_row;
            let sent = Sender::new(format, style, 65_500).frames(FRAMES);
            let r = receive(format, &sent);
            // When all its rows were out of range, the first frame was not even opened.
            let unopened = r.out.len() == FRAMES - 1;
            assert!(unopened || fates(&r)[0] == Fate::Acquiring, "{format:?} {cut:?} {first_row:?}");
            check_all(&r, 1, FRAMES - 1);
            assert_eq!(r.dep.counters().rejected.total(), 0);
            // Joined in the middle of a frame: one more is needed to be sure.
            let r = receive(format, &sent[3..]);
            let shown = r.shown();
            assert!(shown.len() >= FRAMES - 2);
            check_all(&r, FRAMES - shown.len(), shown.len());
        }
    });
}

#[test]
fn the_numbering_is_reported() {
    for (scan, first_row, reported) in [
        (Scan::Progressive, [42, 0], [42, 42]),
        (Scan::Interlaced, [21, 584], [21, 584]),
        (Scan::Interlaced, [0, 0], [0, 0]),
    ] {
        let format = hd_small(scan);
        let mut style = Style::new(EVEN);
        style.first_row = first_row;
        let mut r = Receiver::new(format);
        r.feed(&Sender::new(format, style, 0).frames(2));
        let gdmedia::depacketise::Depacketiser::Video(video) = &r.dep;
        assert_eq!(video.first_rows(), Some(reported));
        assert!(!video.second_field_first());
        // The end does not make it forgotten.
        r.finish();
        assert_eq!(has(&remarks(&r), "SDI raster"), first_row != [0, 0]);
    }
}

#[test]
fn timestamps_that_stand_still() {
    each(|format, cut| {
        survives(format, cut, |mut p| {
            let stuck = |p: &Sent| if p.field() && format.scan == Scan::Interlaced { 1501 } else { 0 };
            p.iter_mut().for_each(|p| p.set_timestamp(4711 + stuck(p)));
            p
        });
    });
}

#[test]
fn a_clock_that_jumps_back() {
    each(|format, cut| {
        let mut sender = Sender::plain(format, cut);
        let mut packets = sender.frames(2);
        sender.offset = 0u32.wrapping_sub(90_000 * 37);
        packets.extend(sender.frames(3));
        let r = receive(format, &packets);
        check_all(&r, 0, FRAMES);
        assert_eq!((r.dep.counters().lost, r.dep.counters().restarts), (0, 0));
    });
}

#[test]
fn packets_cut_by_a_snap_length() {
    each(|format, cut| {
        let mut sent = Sender::plain(format, cut).frames(FRAMES);
        let mut cut_off = 0;
        for p in &mut sent {
            p.present = p.present.min(66);
            // Whole pgroups of each segment that are present.
            let mut at = 14 + 6 * p.sources.len();
            for s in &p.sources {
                let present = p.present.saturating_sub(at).min(usize::from(s.len));
                let placed = present as u32 / format.pgroup.octets * format.pgroup.octets;
                cut_off += u32::from(s.len) - placed;
                at += usize::from(s.len);
            }
        }
        let r = receive(format, &sent);
        assert_eq!(r.out.len(), FRAMES);
        for (n, out) in r.out.iter().enumerate() {
            check(out, &picture(format, n), format);
        }
        let missing: u32 = r.out.iter().map(Out::missing_octets).sum();
        assert_eq!((missing, r.dep.counters().lost), (cut_off, 0));
        let cut = sent
            .iter()
            .filter(|p| {
                p.octets.len() > p.present
                    && p.sources.iter().map(|s| usize::from(s.len)).sum::<usize>() + 14 + 6 * p.sources.len()
                        > p.present
            })
            .count();
        assert_eq!(r.dep.counters().rejected.get(Reason::Truncated), cut as u64);
    });
}

#[test]
fn a_second_sender_takes_over_when_the_first_is_silent() {
    let format = hd_small(Scan::Progressive);
    let ours = Sender::plain(format, EVEN).frames(2);
    let mut style = Style::new(EVEN);
    style.ssrc = 5;
    let mut other = Sender::new(format, style, 0x4321_0000);
    other.next = 2;
    let mut packets = vec![];
    let mut theirs = other.frames(8);
    // Interleaved for two frames, then alone.
    let later = theirs.split_off(ours.len());
    for (a, b) in ours.iter().zip(&theirs) {
        let mut b = b.clone();
        b.arrival = Tai(a.arrival.0 + 1000);
        packets.extend([a.clone(), b]);
    }
    packets.extend(later);
    let r = receive(format, &packets);
    let shown = r.shown();
    // Two frame times after our last packet.
    assert_eq!(shown.len(), 2 + 6, "{:?}", fates(&r));
    for (out, n) in shown.iter().zip([0, 1, 4, 5, 6, 7, 8, 9]) {
        check(out, &picture(format, n), format);
    }
    assert_eq!(r.dep.counters().restarts, 1);
}

// Streams that contradict their SDP.

fn remarks(r: &Receiver) -> Vec<String> {
    let mut out = vec![];
    r.dep.remarks(&mut out);
    // Nothing new: the list is not touched.
    let before: Vec<_> = out.iter().map(|o| o.as_ptr()).collect();
    r.dep.remarks(&mut out);
    assert_eq!(before, out.iter().map(|o| o.as_ptr()).collect::<Vec<_>>());
    out
}

fn has(remarks: &[String], what: &str) -> bool {
    remarks.iter().any(|r| r.contains(what))
}

/// Packets whose segments are all of one kind: none is placed.
fn nothing_fits(sdp: WireFormat, sent: &[Sent], reason: Reason, remark: &str) {
    let mut r = Receiver::new(sdp);
    r.feed(sent);
    let c = r.finish();
    assert_eq!(r.out.len(), 0, "{reason:?}: {:?}", fates(&r));
    let segments: usize = sent.iter().map(|p| p.sources.len()).sum();
    assert_eq!((c.rejected.get(reason), c.rejected.total()), (segments as u64, segments as u64), "{c:?}");
    assert_eq!((c.received, c.lost, c.restarts), (sent.len() as u64, 0, 0));
    assert!(has(&remarks(&r), remark), "{:?}", remarks(&r));
}

#[test]
fn sdp_with_too_little_height() {
    let stream = hd_small(Scan::Progressive);
    let sdp = format(Sampling::YCbCr422, Depth::D10, 64, 16, Scan::Progressive);
    for cut in cuts(stream) {
        let sent = Sender::plain(stream, cut).frames(20);
        let r = receive(sdp, &sent);
        // The upper half of each picture, whole.
        assert_eq!(r.out.len(), 20);
        for (n, out) in r.out.iter().enumerate() {
            assert_eq!(out.end.fate, Fate::Complete);
            check(out, &picture(stream, n)[..sdp.frame_octets() as usize], sdp);
        }
        let beyond = sent.iter().flat_map(|p| &p.sources).filter(|s| s.at >= sdp.frame_octets()).count() as u64;
        let c = r.dep.counters();
        assert_eq!((c.rejected.get(Reason::Row), c.rejected.total(), c.lost, c.late), (beyond, beyond, 0, 0));
        assert!(has(&remarks(&r), "compare height"), "{:?}", remarks(&r));
    }
}

#[test]
fn sdp_with_another_depth_or_width() {
    let stream = hd_small(Scan::Progressive);
    let eight = format(Sampling::YCbCr422, Depth::D8, 64, 32, Scan::Progressive);
    let narrow = format(Sampling::YCbCr422, Depth::D10, 32, 32, Scan::Progressive);
    // One row a packet: 160 octets of 10 bit, 128 of 8 bit.
    let cut = Cut::Full { udp: 200, segments: 1 };
    let ten_bit = Sender::plain(stream, cut).frames(20);
    nothing_fits(eight, &ten_bit, Reason::Segment, "compare width");
    nothing_fits(narrow, &ten_bit, Reason::Segment, "compare width");
    nothing_fits(stream, &Sender::plain(eight, cut).frames(20), Reason::SrdHeader, "depth differ");
}

#[test]
fn sdp_that_forgets_interlace() {
    let stream = hd_small(Scan::Interlaced);
    let sdp = hd_small(Scan::Progressive);
    for cut in cuts(stream) {
        let sent = Sender::plain(stream, cut).frames(20);
        let r = receive(sdp, &sent);
        // Second fields open nothing.
        assert_eq!(r.out.len(), 20);
        let second: usize = sent.iter().filter(|p| p.field()).map(|p| p.sources.len()).sum();
        assert_eq!(r.dep.counters().rejected.get(Reason::Field), second as u64);
        assert!(has(&remarks(&r), "`interlace` missing"), "{:?}", remarks(&r));
    }
}

#[test]
fn audio_on_the_port() {
    // L24, 1 ms of two channels in a packet; first a loud tone, then silence.
    let mut packets = vec![];
    for n in 0..4000u32 {
        let mut octets = vec![0x80, 96];
        octets.extend((n as u16).to_be_bytes());
        octets.extend((n * 48).to_be_bytes());
        octets.extend([0, 0, 0, 7]);
        for k in 0..48 {
            let tone = (f64::from(n * 48 + k) * 0.13).sin() * 8_000_000.0;
            let sample = if n < 2000 { tone as i32 } else { 0 };
            octets.extend([&sample.to_be_bytes()[1..], &sample.to_be_bytes()[1..]].concat());
        }
        let arrival = Tai(1_700_000_000_000_000_000 + u64::from(n) * 1_000_000);
        packets.push(Sent { present: octets.len(), octets, arrival, frame: 0, sources: vec![], marker: false, leg: 0 });
    }
    for scan in SCANS {
        let r = receive(hd_small(scan), &packets);
        assert_eq!(r.out.len(), 0, "{:?}", fates(&r));
        let c = r.dep.counters();
        assert!(c.rejected.get(Reason::SrdHeader) > 1000, "{c:?}");
        let remarks = remarks(&r);
        assert!(has(&remarks, "not ST 2110-20") && has(&remarks, "none holds samples"), "{remarks:?}");
    }
}

#[test]
fn packets_without_samples_end_the_frame_before() {
    each(|format, cut| {
        let mut sender = Sender::plain(format, cut);
        let mut sent = sender.frames(2);
        let later = sender.frame();
        let lost = sent.remove(sent.len() - 2);
        let sequence = later[0].sequence();
        for n in 0..300 {
            let mut empty = later[0].clone();
            empty.octets.truncate(20);
            empty.octets[14..20].fill(0);
            empty.present = 20;
            empty.set_sequence(sequence + n);
            sent.push(empty);
        }
        let mut r = Receiver::new(format);
        r.feed(&sent);
        assert_eq!(fates(&r), [Fate::Complete, Fate::Incomplete]);
        assert_eq!(r.out[1].missing_octets(), octets_of([&lost]));
        // The frame that they announced comes after all.
        let rest: Vec<_> = later
            .into_iter()
            .enumerate()
            .map(|(n, mut p)| {
                p.set_sequence(sequence + 300 + n as u32);
                p
            })
            .collect();
        r.feed(&rest);
        assert_eq!(r.finish().lost, 1);
        assert_eq!(fates(&r), [Fate::Complete, Fate::Incomplete, Fate::Complete]);
        check(&r.out[2], &picture(format, 2), format);
    });
}

#[test]
fn what_is_wrong_with_many_packets_is_said() {
    let format = hd_small(Scan::Progressive);
    let sent = Sender::plain(format, EVEN).frames(60);
    let (mut a, mut b) = (sent.clone(), sent.clone());
    a.iter_mut().for_each(|p| p.octets[1] = 97);
    let r = receive(format, &a);
    assert!(has(&remarks(&r), "another payload type") && r.out.is_empty());
    b.iter_mut().for_each(|p| {
        p.octets.truncate(15);
        p.present = 15;
    });
    assert!(has(&remarks(&receive(format, &b)), "shorter than their headers"));
    // An ordinary stream, a few bad packets, and a restart.
    let mut r = receive(format, &sent);
    assert_eq!(remarks(&r), Vec::<String>::new());
    r.feed(&a[..99]);
    assert_eq!(remarks(&r), Vec::<String>::new());
    let mut packets = sent;
    let mut second = Sender::new(format, Style::new(EVEN), 0x8123_4567);
    (second.offset, second.next) = (123_456_789, 60);
    packets.extend(second.frames(20));
    assert_eq!(remarks(&receive(format, &packets)), ["the sender started anew once"]);
}

#[test]
fn headers_behind_the_split_are_a_reason_of_their_own() {
    let wire = format(Sampling::YCbCr422, Depth::D10, 64, 32, Scan::Progressive);
    let sent = Sender::plain(wire, Cut::Full { udp: 400, segments: 3 }).frames(40);
    // One SRD header fits, two or three do not.
    let long = sent.iter().filter(|p| p.sources.len() > 1).count() as u64;
    let mut dep = Depacketiser::video(Config::new(wire, 96, Some(RATE)));
    dep.push(sent.iter().enumerate().map(|(n, p)| Packet {
        slot: n as u32,
        head: &p.octets[..20.min(p.octets.len())],
        octets: p.octets.len() as u16,
        wire_octets: p.octets.len() as u16,
        arrival: p.arrival,
        leg: 0,
    }));
    let counters = dep.counters();
    assert_eq!((counters.rejected.get(Reason::Split), counters.rejected.total()), (long, long));
    assert!(long >= 100, "{long}");
    let mut remarks = Vec::new();
    dep.remarks(&mut remarks);
    assert!(remarks.iter().any(|remark| remark.contains("split")), "{remarks:?}");
}
