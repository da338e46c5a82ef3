//! The ring: both kinds of entries, where it wraps, what comes while it is full, what does not fit.

use crate::card::{Card, frame, octets, poll};
use crate::library::{ANY_MAC, LONG_LENGTHS, TOO_LONG_DROPS, TOO_LONG_KEEPS, Ways};
use crate::played::play;
use crate::support::{EVEN, Sender, Sent, format, picture};
use gdmedia::format::WireFormat;
use gdmedia::packetise::Cut as Packets;
use gdmedia::rx::Receiver;
use gdmedia::rx::verbs::Cut;
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::stats::Reason;

const CUTS: [Cut; 4] = [Cut::None, Cut::At(74), Cut::At(83), Cut::At(96)];

fn wire() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive)
}

#[test]
fn frames_come_whole_wherever_the_ring_wraps() {
    for cut in CUTS {
        for capacity in [64, 100, 257] {
            let sent = Sender::plain(wire(), EVEN).frames(6);
            let card = Card::new();
            let mut played = play(card.receiver(&card.options(cut, capacity)), wire());
            for part in sent.chunks(7) {
                card.deliver(part);
                played.step();
            }
            let outcome = played.finish();
            assert_eq!((outcome.frames.complete, outcome.packets.lost), (6, 0), "{cut:?} {capacity}");
            for (n, shown) in outcome.shown.iter().enumerate() {
                assert!(shown.complete && shown.octets == picture(wire(), n), "frame {n}, {cut:?} {capacity}");
            }
            assert_eq!((outcome.rx.datagrams, outcome.rx.kernel_dropped), (sent.len() as u64, 0));
        }
    }
}

/// Where the two pieces of an entry meet: the head plane has what is before the cut, less 42 octets of Ethernet, IPv4 and UDP.
#[test]
fn a_packet_is_cut_where_it_was_asked_for() {
    for (cut, head) in [(Cut::At(74), 32), (Cut::At(96), 54), (Cut::None, 1000)] {
        let card = Card::new();
        let mut receiver = card.receiver(&card.options(cut, 64));
        let packet: Vec<u8> = (0..1000).map(|n| if n == 0 { 0x80 } else { n as u8 }).collect();
        assert!(card.deliver_one(&packet, 0));
        let lease = receiver.poll().unwrap();
        let slot = lease.slots()[0];
        assert_eq!((slot.head, slot.octets, slot.wire_octets), (head, 1000, 1000), "{cut:?}");
        assert_eq!(receiver.ring().head(&slot), &packet[..head.into()]);
        assert_eq!(octets(&receiver, &slot), packet);
        receiver.release(lease);
    }
}

#[test]
fn packets_with_several_srds_show_all_of_them() {
    let small = format(Sampling::YCbCr422, Depth::D10, 64, 32, Scan::Progressive);
    for segments in [1u8, 2, 3] {
        for cut in CUTS {
            let sent = Sender::plain(small, Packets::Full { udp: 400, segments }).frames(4);
            let most = sent.iter().map(|packet| packet.sources.len()).max();
            assert_eq!(most, Some(usize::from(segments)), "so many SRDs a packet");
            let card = Card::new();
            let mut played = play(card.receiver(&card.options(cut, 64)), small);
            for part in sent.chunks(16) {
                card.deliver(part);
                played.step();
            }
            let outcome = played.finish();
            assert_eq!((outcome.frames.complete, outcome.packets.rejected.total()), (4, 0), "{segments} {cut:?}");
            assert!(outcome.shown.iter().enumerate().all(|(n, shown)| shown.octets == picture(small, n)));
        }
    }
}

/// With a contributing source, a header extension, or IP options, headers reach beyond the cut: of memory that the CPU reaches
/// nothing is lost by that.
#[test]
fn headers_behind_the_cut_are_fetched_where_the_cpu_reaches_them() {
    let small = format(Sampling::YCbCr422, Depth::D10, 64, 32, Scan::Progressive);
    let csrcs = |packet: &mut Vec<u8>, count: u8| {
        packet[0] |= count;
        packet.splice(12..12, vec![7; 4 * usize::from(count)]);
    };
    let extension = |packet: &mut Vec<u8>, words: u16| {
        packet[0] |= 0x10;
        let mut octets = [[0xbe, 0xde], words.to_be_bytes()].concat();
        octets.resize(4 + 4 * usize::from(words), 9);
        packet.splice(12..12, octets);
    };
    for (what, change) in [
        ("4 CSRCs", &(|packet: &mut Vec<u8>| csrcs(packet, 4)) as &dyn Fn(&mut Vec<u8>)),
        ("15 CSRCs", &|packet: &mut Vec<u8>| csrcs(packet, 15)),
        ("an extension of 3 words", &|packet: &mut Vec<u8>| extension(packet, 3)),
        ("both", &|packet: &mut Vec<u8>| {
            extension(packet, 1);
            csrcs(packet, 2);
        }),
    ] {
        for cut in CUTS {
            let mut sent = Sender::plain(small, Packets::Full { udp: 400, segments: 3 }).frames(4);
            for packet in &mut sent {
                change(&mut packet.octets);
                packet.present = packet.octets.len();
            }
            let card = Card::new();
            let mut played = play(card.receiver(&card.options(cut, 64)), small);
            for part in sent.chunks(16) {
                card.deliver(part);
                played.step();
            }
            let outcome = played.finish();
            assert_eq!(outcome.frames.complete, 4, "{what} {cut:?}: {:?}", outcome.packets);
            assert!(outcome.shown.iter().enumerate().all(|(n, shown)| shown.octets == picture(small, n)), "{what}");
            assert!(outcome.remarks.iter().all(|remark| !remark.contains("beyond octet")), "{:?}", outcome.remarks);
        }
    }
}

#[test]
fn options_of_ip_move_the_packet_and_not_its_octets() {
    let card = Card::new();
    for cut in CUTS {
        let mut receiver = card.receiver(&card.options(cut, 64));
        let packet: Vec<u8> = (0..700).map(|n| if n == 0 { 0x80 } else { n as u8 }).collect();
        for words in [1, 6, 10] {
            let mut octets = frame(&card.route(), &packet);
            // Ethernet has 14 octets; the header's length is told in words, and the whole length grows.
            octets.splice(34..34, vec![1; 4 * words]);
            octets[14] += words as u8;
            let length = u16::from_be_bytes([octets[16], octets[17]]) + 4 * words as u16;
            octets[16..18].copy_from_slice(&length.to_be_bytes());
            assert!(card.bring(&octets, 0));
            assert_eq!(poll(&mut receiver), std::slice::from_ref(&packet), "{words} words, {cut:?}");
        }
    }
}

#[test]
fn a_reader_that_keeps_everything_starves_the_card_and_not_itself() {
    for cut in CUTS {
        let card = Card::new();
        let mut receiver = card.receiver(&card.options(cut, 64));
        let packet = |n: usize| vec![n as u8; 600];
        let mut held = Vec::new();
        for n in 0..100 {
            assert_eq!(card.deliver_one(&packet(n), 0), n < 64, "{n}: an entry for each slot");
            held.push(receiver.poll().unwrap());
        }
        assert_eq!(card.control.counts().out_of_buffer, 36);
        let slots: Vec<_> = held.iter().flat_map(|lease| lease.slots().to_vec()).collect();
        assert_eq!(slots.len(), 64);
        assert!(receiver.counters().starved >= 36);
        for (n, slot) in slots.iter().enumerate() {
            assert_eq!(octets(&receiver, slot), packet(n), "what is leased stays");
        }
        held.into_iter().for_each(|lease| receiver.release(lease));
        // Each slot is there again, once.
        for n in 0..64 {
            assert!(card.deliver_one(&packet(n), 0), "{n}");
        }
        let mut got = 0;
        while got < 64 {
            let all = poll(&mut receiver);
            assert!(!all.is_empty());
            got += all.len();
        }
        let mut remarks = Vec::new();
        receiver.finish(&mut remarks).unwrap();
        assert_eq!((receiver.counters().kernel_dropped, receiver.dropped(0)), (36, 36));
        assert!(remarks.iter().any(|r| r.contains("36 packets") && r.contains("out_of_buffer")), "{remarks:?}");
    }
}

#[test]
fn drops_of_the_card_are_counted_while_it_receives() {
    let card = Card::new();
    let mut receiver = card.receiver(&card.options(Cut::None, 64));
    let mut held = Vec::new();
    for _ in 0..80 {
        card.deliver_one(&[0x80; 100], 0);
        held.push(receiver.poll().unwrap());
    }
    let begun = std::time::Instant::now();
    while receiver.counters().kernel_dropped == 0 && begun.elapsed().as_secs() < 20 {
        let lease = receiver.poll().unwrap();
        receiver.release(lease);
    }
    assert_eq!(receiver.counters().kernel_dropped, 16);
    held.into_iter().for_each(|lease| receiver.release(lease));
}

/// A frame that is longer than its entry puts the queue into error, or is dropped, as the firmware will: reception goes on.
#[test]
fn frames_that_do_not_fit_a_slot_cost_no_more_than_their_run() {
    for (flags, resets) in [(0, true), (TOO_LONG_KEEPS, true), (TOO_LONG_DROPS, false)] {
        for cut in CUTS {
            let card = Card::with(Ways { flags, mtu: 9000, ..Ways::default() });
            let mut receiver = card.receiver(&card.options(cut, 64));
            let mut came = 0;
            for n in 0..200 {
                let long = n % 50 == 25;
                card.deliver_one(&vec![n as u8; if long { 3000 } else { 1400 }], 0);
                let all = poll(&mut receiver);
                assert!(all.iter().all(|packet| *packet == vec![n as u8; 1400]));
                came += all.len();
            }
            // The queue begins anew before the next one comes.
            assert_eq!((came, receiver.counters().hardware_issues), (196, 0), "{flags} {cut:?}");
            let mut remarks = Vec::new();
            receiver.finish(&mut remarks).unwrap();
            let told = remarks.iter().any(|r| r.contains("4 frames were longer") && r.contains("MAXUDP"));
            assert_eq!(told, resets, "{flags} {cut:?}: {remarks:?}");
        }
    }
}

/// A completion that names more octets than its entry has: nothing of it is read, and the entry is given again.
#[test]
fn completions_that_are_longer_than_their_entry_bring_nothing() {
    for cut in CUTS {
        let card = Card::new();
        let mut receiver = card.receiver(&card.options(cut, 64));
        card.control.set_flags(ANY_MAC | LONG_LENGTHS);
        for n in 0..200 {
            assert!(card.deliver_one(&[0x80; 300], 0), "{n}: entries are given again");
            assert!(poll(&mut receiver).is_empty());
        }
        let counters = receiver.counters();
        assert_eq!((counters.hardware_issues, counters.datagrams, counters.rejected.total()), (200, 0, 0), "{cut:?}");
        card.control.set_flags(ANY_MAC);
        assert!(card.deliver_one(&[0x80; 300], 0));
        assert_eq!(poll(&mut receiver), [vec![0x80; 300]]);
    }
}

#[test]
fn a_sender_of_nothing_but_frames_that_do_not_fit_is_told() {
    let card = Card::with(Ways { mtu: 9000, ..Ways::default() });
    let mut receiver = card.receiver(&card.options(Cut::At(96), 64));
    let error = (0..1000).find_map(|_| {
        card.deliver_one(&[0x80; 3000], 0);
        match receiver.poll() {
            Ok(lease) => {
                assert!(lease.is_empty());
                receiver.release(lease);
                None
            }
            Err(gdmedia::rx::RxError::Failed(error) | gdmedia::rx::RxError::Gone(error)) => Some(error),
            Err(gdmedia::rx::RxError::End) => panic!("no end"),
        }
    });
    let text = error.expect("it is given up").to_string();
    assert!(text.contains("gives errors and nothing else on leg 0") && text.contains("MAXUDP"), "{text}");
}

/// The largest packet that an SDP allows fits with every header that may be before it.
#[test]
fn the_largest_packet_fits() {
    for cut in CUTS {
        let card = Card::with(Ways { mtu: 9000, ..Ways::default() });
        let options = gdmedia::rx::verbs::Options { max_octets: 8952, ..card.options(cut, 64) };
        let mut receiver = card.receiver(&options);
        let packet: Vec<u8> = (0..8952).map(|n| (n * 7) as u8).collect();
        assert!(card.deliver_one(&packet, 0));
        assert_eq!(poll(&mut receiver), [packet], "{cut:?}");
    }
}

#[test]
fn frames_that_are_no_packets_of_the_flow_are_counted_and_give_their_slots_back() {
    let card = Card::new();
    let mut receiver = card.receiver(&card.options(Cut::At(96), 64));
    let good = frame(&card.route(), &[0x80; 500]);
    let mut short = good.clone();
    short.truncate(300);
    let mut tagged = card.route();
    tagged.vlan = Some(9);
    let tagged = frame(&tagged, &[0x80; 500]);
    for _ in 0..100 {
        for frame in [&short, &tagged, &good] {
            card.bring(frame, 0);
        }
        assert_eq!(poll(&mut receiver).len(), 1);
    }
    let counters = receiver.counters();
    assert_eq!((counters.datagrams, counters.rejected.get(Reason::Length)), (100, 100));
    assert_eq!((counters.rejected.total(), counters.kernel_dropped), (100, 0));
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    assert!(remarks.iter().any(|r| r.contains("100 packets came that belong to no leg")), "{remarks:?}");
}

#[test]
fn wrong_checksums_are_counted_and_handed_over_and_absent_ones_are_right() {
    let card = Card::new();
    let mut receiver = card.receiver(&card.options(Cut::None, 64));
    let good = frame(&card.route(), &[0x80; 500]);
    let (mut wrong, mut absent) = (good.clone(), good.clone());
    wrong[41] ^= 1;
    absent[40..42].fill(0);
    for (frame, issues) in [(&good, 0), (&absent, 0), (&wrong, 1), (&good, 1)] {
        assert!(card.bring(frame, 0));
        assert_eq!(poll(&mut receiver).len(), 1);
        assert_eq!(receiver.counters().checksum_issues, issues);
    }
}

#[test]
fn waiting_ends_when_a_packet_comes_and_loses_none() {
    for flags in [0, crate::library::NO_CQ_EX] {
        let card = Card::with(Ways { flags, ..Ways::default() });
        let options = gdmedia::rx::verbs::Options { events: true, ..card.options(Cut::None, 64) };
        let mut receiver = card.receiver(&options);
        let long = std::time::Duration::from_secs(20);
        let mut came = 0;
        for n in 0..300u32 {
            // Before it is armed, and after.
            if n % 2 == 0 {
                card.deliver_one(&n.to_be_bytes(), 0);
                assert!(receiver.wait(long));
            } else {
                std::thread::scope(|scope| {
                    scope.spawn(|| card.deliver_one(&n.to_be_bytes(), 0));
                    assert!(receiver.wait(long));
                });
            }
            // A wait may end for what came before.
            let begun = std::time::Instant::now();
            let mut got = Vec::new();
            while got.is_empty() && begun.elapsed().as_secs() < 20 {
                got = poll(&mut receiver);
            }
            assert_eq!(got, [n.to_be_bytes().to_vec()]);
            came += 1;
        }
        assert_eq!((came, receiver.counters().datagrams), (300, 300));
    }
}

/// Both legs by one device: two queues over one ring.
#[test]
fn two_legs_by_one_device_have_a_part_of_the_ring_each() {
    let sent: Vec<Sent> = Sender::plain(wire(), EVEN).frames(4);
    for cut in CUTS {
        let card = Card::new();
        let other = gdmedia::sdp::Leg { port: crate::card::PORT + 2, ..card.leg() };
        let legs = [card.leg(), other];
        let mut receiver = gdmedia::rx::Verbs::open(&card.options(cut, 100), &legs, &()).unwrap();
        receiver.join_all(&legs).unwrap();
        let mut to_other = card.route();
        let destination = std::net::SocketAddr::new(card.ip.into(), legs[1].port);
        to_other = gdmedia::wire::net::Route::new(to_other.source(), destination).unwrap();
        let mut played = play(receiver, wire());
        for (n, packet) in sent.iter().enumerate() {
            if n % 7 != 3 {
                card.control.inject(&frame(&card.route(), &packet.octets), 0);
            }
            if n % 5 != 3 || n % 7 == 3 {
                card.control.inject(&frame(&to_other, &packet.octets), 0);
            }
            if n % 9 == 0 {
                played.step();
            }
        }
        played.step();
        let outcome = played.finish();
        assert_eq!((outcome.frames.complete, outcome.packets.lost), (4, 0), "{cut:?} {:?}", outcome.packets);
        assert!(outcome.shown.iter().enumerate().all(|(n, shown)| shown.octets == picture(wire(), n)));
        assert_eq!(card.control.counts().registered, 0, "given back");
    }
}
