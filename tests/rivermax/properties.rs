//! Whatever sizes, cuts, losses, copies, disorder and ring: the frames of the same packets by sockets.

use crate::card::{Card, alone, options, receiver};
use crate::played::{Dice, play, reference};
use crate::support::{Sender, Sent, cuts, formats};
use gdmedia::rx::rivermax::library::stand_in;
use gdmedia::rx::rivermax::{Order, Split};
use gdmedia::sdp::Scan;
use proptest::prelude::*;

/// Loses, doubles and moves packets, by less than the margin of any ring here (an eighth of it: what comes later than that
/// counts as overwritten); nothing of the first frame is lost or moved.
fn disturb(sent: Vec<Sent>, per_frame: usize, dice: &mut Dice) -> Vec<Sent> {
    let mut keyed = Vec::new();
    for (n, packet) in sent.into_iter().enumerate() {
        let safe = n < per_frame;
        let (lose, double, hold) = (dice.one_in(40), dice.one_in(40), dice.one_in(25));
        if lose && !safe {
            continue;
        }
        let behind = if hold && !safe { 1 + dice.roll(8) as usize } else { 0 };
        keyed.push((2 * (n + behind) + usize::from(behind > 0), packet.clone()));
        if double {
            keyed.push((2 * (n + 1 + dice.roll(8) as usize) + 1, packet));
        }
    }
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, packet)| packet).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn frames_are_those_of_sockets(
        seed: u64,
        format in 0usize..6,
        cut in 0usize..5,
        scan in 0usize..3,
        order in prop::sample::select(vec![Order::Arrival, Order::Extended]),
        split in prop::sample::select(vec![None, Some(20u16), Some(26), Some(32), Some(47)]),
        capacity in 160usize..600,
        extra_stride in 0usize..100,
        batch in 1usize..40,
        payload_first: bool,
    ) {
        let _alone = alone();
        let scan = [Scan::Progressive, Scan::Interlaced, Scan::Psf][scan];
        let formats = formats(scan);
        let wire = formats[format % formats.len()];
        let cuts = cuts(wire);
        let sent = Sender::plain(wire, cuts[cut % cuts.len()]).frames(6);
        // A cut that leaves all headers before it; others are a matter of their own.
        let headers = sent.iter().map(|p| 14 + 6 * p.sources.len()).max().unwrap_or(20);
        let split = match split {
            Some(octets) if usize::from(octets) >= headers => Split::At(octets),
            Some(_) => Split::At(headers as u16),
            None => Split::None,
        };
        let per_frame = sent.len() / 6;
        let sent = disturb(sent, per_frame, &mut Dice(seed));
        let card = Card::with(stand_in::Device { extra_stride, payload_first, ..Default::default() });
        let mut played = play(receiver(&[card], &options(&[card], split, order, capacity)), wire);
        for part in sent.chunks(batch) {
            card.deliver(part);
            played.step();
        }
        let outcome = played.finish();
        let expected = reference(&sent, wire);
        prop_assert_eq!(outcome.packets, expected.packets);
        prop_assert_eq!(outcome.frames, expected.frames);
        prop_assert!(outcome.shown == expected.shown, "the frames differ");
        prop_assert_eq!(outcome.rx.datagrams, sent.len() as u64);
    }
}
