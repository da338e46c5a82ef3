//! Two legs of ST 2022-7 with losses of their own: frames are whole wherever one leg had the packet.

use crate::card::{Card, alone, options, receiver};
use crate::played::{Dice, Outcome, play};
use crate::support::{EVEN, Sender, Sent, format, picture};
use gdmedia::format::WireFormat;
use gdmedia::rx::Receiver;
use gdmedia::rx::rivermax::{Order, Split};
use gdmedia::sdp::{Depth, Sampling, Scan};
use std::collections::BTreeSet;

const FRAMES: usize = 12;

fn wire() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive)
}

struct Case {
    order: Order,
    split: Split,
    /// Both legs come by ports of their own.
    ports: bool,
    /// Packets by which the second leg is behind.
    skew: usize,
}

/// What came, what both legs lost, and what both brought.
fn run(case: &Case, seed: u64) -> (Outcome, Vec<Sent>, BTreeSet<usize>, u64, Vec<String>) {
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    let per_frame = sent.len() / FRAMES;
    let mut dice = Dice(seed);
    let mut lost = BTreeSet::new();
    let mut both = 0;
    // Nothing of the first frame is lost, which would not be told from one that began before; nor the very last packet.
    let brings: Vec<[bool; 2]> = (0..sent.len())
        .map(|n| {
            let sure = n < per_frame || n + 1 == sent.len();
            let brings = [(); 2].map(|()| sure || !dice.one_in(6));
            if brings == [false; 2] {
                lost.insert(n);
            }
            both += u64::from(brings == [true; 2]);
            brings
        })
        .collect();
    let first = Card::new();
    let second = if case.ports { Card::new() } else { first };
    let cards = [first, second];
    let options = options(&cards, case.split, case.order, 4096);
    let legs = [first.leg(), gdmedia::sdp::Leg { port: crate::card::PORT + 2, ..second.leg() }];
    let mut receiver = gdmedia::rx::Rivermax::open(&options, &legs, &()).unwrap();
    receiver.join_all(&legs).unwrap();
    let notes = receiver.caps().notes.clone();
    let mut played = play(receiver, wire());
    let controls = crate::card::controls();
    let bring = |leg: usize, n: usize| {
        if brings[n][leg] {
            let mut packet = cards[leg].packet(&sent[n].octets);
            packet.destination.set_port(legs[leg].port);
            assert_eq!(controls.deliver(cards[leg].ip, &[packet]), 1);
        }
    };
    for n in 0..sent.len() + case.skew {
        if n < sent.len() {
            bring(0, n);
        }
        if let Some(n) = n.checked_sub(case.skew) {
            bring(1, n);
        }
        if dice.one_in(20) {
            played.step();
        }
    }
    played.step();
    (played.finish(), sent, lost, both, notes)
}

fn check(case: &Case, seed: u64) -> Vec<String> {
    let (outcome, sent, lost, both, notes) = run(case, seed);
    assert!(lost.len() > 10, "both legs lose some");
    let row = wire().row_octets();
    assert_eq!(outcome.shown.len(), FRAMES);
    let mut whole = 0;
    for (n, shown) in outcome.shown.iter().enumerate() {
        let of_frame = sent.iter().enumerate().filter(|(i, p)| p.frame == n && lost.contains(i));
        let expected: BTreeSet<u32> =
            of_frame.flat_map(|(_, p)| &p.sources).flat_map(|s| s.at..s.at + u32::from(s.len)).collect();
        let missing: BTreeSet<u32> =
            shown.missing.iter().flat_map(|m| (0..m.len).map(|i| m.row * row + m.octet + i)).collect();
        assert_eq!(missing, expected, "the loss map of frame {n}");
        let picture = picture(wire(), n);
        let wrong = (0..picture.len()).find(|at| shown.octets[*at] != picture[*at] && !missing.contains(&(*at as u32)));
        assert_eq!(wrong, None, "frame {n}");
        whole += u64::from(missing.is_empty());
    }
    assert_eq!((outcome.frames.complete, outcome.frames.torn), (whole, 0));
    assert_eq!((outcome.packets.lost, outcome.packets.duplicate), (lost.len() as u64, both), "{:?}", outcome.packets);
    assert_eq!(outcome.rx.datagrams, (sent.len() - lost.len()) as u64 + both);
    notes
}

#[test]
fn one_ring_takes_both_legs_of_two_ports() {
    let _alone = alone();
    for (seed, skew) in [(1, 0), (2, 40), (3, 100)] {
        for split in [Split::At(20), Split::None] {
            let notes = check(&Case { order: Order::Extended, split, ports: true, skew }, seed);
            assert!(notes.iter().any(|n| n.contains("share one ring")), "{notes:?}");
        }
    }
}

#[test]
fn one_ring_takes_both_legs_of_one_port() {
    let _alone = alone();
    let notes = check(&Case { order: Order::Auto, split: Split::At(20), ports: false, skew: 30 }, 4);
    assert!(notes.iter().any(|n| n.contains("share one ring")), "{notes:?}");
}

#[test]
fn rings_of_their_own_are_merged() {
    let _alone = alone();
    for (seed, ports) in [(5, true), (6, false)] {
        let notes = check(&Case { order: Order::Arrival, split: Split::At(20), ports, skew: 30 }, seed);
        assert!(!notes.iter().any(|n| n.contains("share one ring")), "{notes:?}");
    }
}

#[test]
fn legs_that_cannot_share_get_rings_of_their_own_and_it_is_said() {
    let _alone = alone();
    // The second stream over the same memory is refused.
    let cards = [Card::new(), Card::new()];
    cards[1].fail("rmx_input_create_stream", gdmedia::rx::rivermax::library::stand_in::NO_HARDWARE_RESOURCES, 1);
    let receiver = receiver(&cards, &options(&cards, Split::At(20), Order::Extended, 4096));
    let notes = &receiver.caps().notes;
    assert!(notes.iter().any(|n| n.contains("a ring of its own") && n.contains("resources")), "{notes:?}");
    assert_eq!(receiver.ring().laps().unwrap().geometry().rings, 2);
}

#[test]
fn cards_that_lay_out_their_rings_differently_are_an_error() {
    let _alone = alone();
    let long = gdmedia::rx::rivermax::library::stand_in::Device { extra_stride: 64, ..Default::default() };
    let cards = [Card::new(), Card::with(long)];
    let legs = cards.map(Card::leg);
    let options = options(&cards, Split::At(20), Order::Extended, 4096);
    let error = gdmedia::rx::Rivermax::<gdmedia::mem::Host>::open(&options, &legs, &()).err().unwrap();
    assert!(error.to_string().contains("differently") && !error.cure_text().is_empty(), "{error}");
}
