//! What is decided when a flow is opened: the cut, the size of slots, the clock.

use crate::card::{Card, alone, controls, options, receiver};
use crate::support::{EVEN, Sender, Sent, format};
use gdmedia::format::WireFormat;
use gdmedia::packetise::{Cut, Style};
use gdmedia::rx::Receiver;
use gdmedia::rx::rivermax::library::stand_in;
use gdmedia::rx::rivermax::{Options, Order, Split, Stamps};
use gdmedia::sdp::{Depth, Sampling, Scan};
use std::time::Duration;

fn wire() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive)
}

/// Opens while these packets arrive again and again, five a millisecond, for longer than anybody looks.
fn open_while(sent: &[Sent], change: impl FnOnce(&mut Options)) -> (Vec<String>, gdmedia::ring::Geometry) {
    let card = Card::new();
    let begin = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let packets: Vec<_> = sent
        .iter()
        .cycle()
        .take(20_000)
        .enumerate()
        .map(|(n, p)| stand_in::Packet { time: begin + n as u64 * 200_000, ..card.packet(&p.octets) })
        .collect();
    assert_eq!(controls().queue(card.ip, &packets, &stand_in::Faults::default()), Some(packets.len()));
    controls().play(card.ip);
    let mut options = Options { probe: Duration::from_secs(20), ..options(&[card], Split::Probe, Order::Arrival, 512) };
    change(&mut options);
    let receiver = receiver(&[card], &options);
    (receiver.caps().notes.clone(), *receiver.ring().laps().unwrap().geometry())
}

#[test]
fn the_cut_is_chosen_from_the_first_packets() {
    let _alone = alone();
    let small = format(Sampling::YCbCr422, Depth::D10, 64, 32, Scan::Progressive);
    let segments = |segments| Sender::plain(small, Cut::Full { udp: 400, segments }).frames(4);
    for (sent, split) in [
        (Sender::plain(wire(), EVEN).frames(2), Some(20)),
        (segments(2), Some(26)),
        (segments(3), Some(32)),
        // One contributing source: 36 octets of headers.
        (with_csrc(segments(3)), None),
    ] {
        let (notes, geometry) = open_while(&sent, |_| {});
        match split {
            Some(split) => {
                assert!(notes.iter().any(|n| n.contains(&format!("behind octet {split}:"))), "{notes:?}");
                assert_eq!(geometry.head, split);
                assert_eq!(geometry.body, 1452 - split, "slots take what the SDP allows");
            }
            None => {
                assert!(notes.iter().any(|n| n.contains("not split") && n.contains("36 octets")), "{notes:?}");
                assert_eq!((geometry.head, geometry.body), (1452, 0));
            }
        }
    }
}

fn with_csrc(mut sent: Vec<Sent>) -> Vec<Sent> {
    for packet in &mut sent {
        packet.octets[0] |= 1;
        packet.octets.splice(12..12, [1, 2, 3, 4]);
        packet.present = packet.octets.len();
    }
    sent
}

#[test]
fn slots_may_be_as_large_as_the_packets_that_come() {
    let _alone = alone();
    let sent = Sender::plain(wire(), EVEN).frames(3);
    let size = sent[0].octets.len() as u32;
    let (notes, geometry) = open_while(&sent, |options| options.exact = true);
    assert!(notes.iter().any(|n| n.contains(&format!("exactly {size} octets"))), "{notes:?}");
    assert_eq!((geometry.head, geometry.body), (20, size - 20));
    // Not where they differ.
    let mixed = Sender::new(wire(), Style::new(Cut::Full { udp: 1000, segments: 2 }), 0).frames(3);
    let (notes, geometry) = open_while(&mixed, |options| options.exact = true);
    assert!(notes.iter().any(|n| n.contains("several sizes")), "{notes:?}");
    assert_eq!(geometry.head + geometry.body, 1452);
}

#[test]
fn without_packets_there_is_room_for_three_srds() {
    let _alone = alone();
    let card = Card::new();
    let receiver = receiver(&[card], &options(&[card], Split::Probe, Order::Arrival, 512));
    let notes = &receiver.caps().notes;
    assert!(notes.iter().any(|n| n.contains("no packet came") && n.contains("octet 32")), "{notes:?}");
    assert_eq!(receiver.ring().laps().unwrap().geometry().head, 32);
}

#[test]
fn what_the_library_makes_of_it_is_read_back() {
    let _alone = alone();
    let device = stand_in::Device { capacity_multiple: 300, extra_stride: 28, ..Default::default() };
    let card = Card::with(device);
    let receiver = receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 512));
    let geometry = receiver.ring().laps().unwrap().geometry();
    assert_eq!((geometry.slots, geometry.head, geometry.body), (600, 48, 1432 + 28));
    let notes = &receiver.caps().notes;
    assert!(notes.iter().any(|n| n.contains("600 packets long, 512 were asked for")), "{notes:?}");
    assert!(receiver.ring().head_plane().len() >= 600 * 48);
}

#[test]
fn a_card_that_does_not_split_gives_whole_packets_and_it_is_said() {
    let _alone = alone();
    let card = Card::with(stand_in::Device { no_split: true, ..Default::default() });
    let receiver = receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 512));
    assert!(receiver.ring().body_plane().is_none());
    let notes = &receiver.caps().notes;
    assert!(notes.iter().any(|n| n.contains("does not split")), "{notes:?}");
}

#[test]
fn a_ptp_clock_that_is_in_use_is_taken_as_it_is() {
    let _alone = alone();
    let synced = |card: Card| {
        let options = Options { stamps: Stamps::Synced, ..options(&[card], Split::At(20), Order::Arrival, 256) };
        receiver(&[card], &options)
    };
    let first = synced(Card::new());
    let second = synced(Card::new());
    let says = |receiver: &gdmedia::rx::Rivermax<gdmedia::mem::Host>, words: &str| {
        let notes = receiver.caps().notes.clone();
        assert!(notes.iter().any(|n| n.contains(words)), "{notes:?}");
    };
    says(&first, "by the PTP clock of lo");
    says(&second, "in use already");
}

#[test]
fn arrivals_are_on_tai_by_every_clock() {
    let _alone = alone();
    let sent = Sender::plain(wire(), EVEN).frames(1);
    for (offset, stamps) in
        [(0, Stamps::Raw), (37_000_000_000, Stamps::Raw), (-1 << 60, Stamps::Raw), (0, Stamps::Synced)]
    {
        let card = Card::with(stand_in::Device { raw_clock_offset: offset, ..Default::default() });
        let options = Options { stamps, ..options(&[card], Split::At(20), Order::Arrival, 512) };
        let mut receiver = receiver(&[card], &options);
        let before = receiver.now().unwrap();
        card.deliver(&sent);
        let lease = receiver.poll().unwrap();
        let after = receiver.now().unwrap();
        assert_eq!(lease.slots().len(), sent.len());
        // By a free clock it is as true as the poll; the span of the packets is right by all.
        let ends = [0, sent.len() - 1].map(|n| lease.slots()[n].arrival);
        assert!(ends[0] <= ends[1] && ends[1] <= after, "{offset} {stamps:?}");
        assert!(ends[0].since(before) > -1_000_000, "{offset} {stamps:?}: {} ns", ends[0].since(before));
        receiver.release(lease);
    }
}
