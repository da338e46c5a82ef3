//! Whatever sizes, cuts, rings and leases: octets come through unchanged, and counts are right.

use crate::card::{Card, any, frame, octets};
use crate::library::{NO_CQ_EX, Ways};
use crate::played::{Dice, play, reference};
use crate::support::{Sender, Sent, cuts, formats};
use gdmedia::ring::Lease;
use gdmedia::rx::Receiver;
use gdmedia::rx::verbs::{Cut, Options};
use gdmedia::sdp::Scan;
use proptest::prelude::*;
use std::collections::VecDeque;

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![Just(Cut::None), (74u16..=96).prop_map(Cut::At)]
}

/// Loses, doubles and moves packets; nothing of the first frame is lost or moved.
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

/// A lease that is kept, and what was in its slots.
type Kept = (Lease, Vec<Vec<u8>>);

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Packets of any octets, with frames of no leg between, and leases that are kept for any time and given back in order.
    #[test]
    fn octets_come_through_unchanged(
        seed: u64,
        cut in cut(),
        capacity in 64usize..300,
        entries in 16u32..400,
        old: bool,
        steps in proptest::collection::vec((0u8..4, 1usize..40), 1..80),
    ) {
        let flags = if old { NO_CQ_EX } else { 0 };
        let card = Card::with(Ways { flags, max_qp_wr: entries, ..Ways::default() });
        let mut receiver = card.receiver(&Options { ..card.options(cut, capacity) });
        let mut dice = Dice(seed);
        let (mut expected, mut kept) = (VecDeque::new(), VecDeque::<Kept>::new());
        let (mut brought, mut strange) = (0u64, 0u64);
        for (step, n) in steps {
            match step {
                0 | 1 => for _ in 0..n {
                    if dice.one_in(10) {
                        let mut other = card.route();
                        other.vlan = Some(5);
                        strange += u64::from(card.bring(&frame(&other, &any(&mut dice, 100)), 0));
                        continue;
                    }
                    let packet = any(&mut dice, 1452);
                    brought += 1;
                    if card.deliver_one(&packet, 0) {
                        expected.push_back(packet);
                    }
                },
                2 => {
                    let lease = receiver.poll().unwrap();
                    let got: Vec<_> = lease.slots().iter().map(|slot| octets(&receiver, slot)).collect();
                    for packet in &got {
                        let sent = expected.pop_front();
                        prop_assert_eq!(Some(packet), sent.as_ref());
                    }
                    kept.push_back((lease, got));
                }
                _ => for _ in 0..n {
                    let Some((lease, was)) = kept.pop_front() else { break };
                    for (slot, was) in lease.slots().iter().zip(&was) {
                        prop_assert!(octets(&receiver, slot) == *was, "what is leased stays");
                    }
                    receiver.release(lease);
                }
            }
        }
        for (lease, was) in kept.drain(..) {
            prop_assert!(lease.slots().iter().zip(&was).all(|(slot, was)| octets(&receiver, slot) == *was));
            receiver.release(lease);
        }
        loop {
            let lease = receiver.poll().unwrap();
            if lease.is_empty() {
                break;
            }
            for slot in lease.slots() {
                prop_assert_eq!(Some(octets(&receiver, slot)), expected.pop_front());
            }
            receiver.release(lease);
        }
        prop_assert!(expected.is_empty());
        receiver.finish(&mut Vec::new()).unwrap();
        let (counters, of_card) = (receiver.counters(), card.control.counts());
        prop_assert_eq!(counters.datagrams + strange, of_card.delivered);
        prop_assert_eq!(counters.kernel_dropped, of_card.out_of_buffer);
        prop_assert!(counters.datagrams <= brought && counters.rejected.total() == 0);
        // All but less than a batch.
        let most = capacity.min(entries as usize);
        let posted = of_card.posted as usize;
        prop_assert!(posted <= most && posted + 64.min(most.div_ceil(4)) > most, "{} of {}", posted, most);
    }

    #[test]
    fn frames_are_those_of_sockets(
        seed: u64,
        format in 0usize..6,
        packets in 0usize..5,
        scan in 0usize..3,
        cut in cut(),
        capacity in 64usize..400,
        batch in 1usize..40,
    ) {
        let scan = [Scan::Progressive, Scan::Interlaced, Scan::Psf][scan];
        let formats = formats(scan);
        let wire = formats[format % formats.len()];
        let cuts = cuts(wire);
        let sent = Sender::plain(wire, cuts[packets % cuts.len()]).frames(6);
        let per_frame = sent.len() / 6;
        let sent = disturb(sent, per_frame, &mut Dice(seed));
        let card = Card::new();
        let mut played = play(card.receiver(&card.options(cut, capacity)), wire);
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
