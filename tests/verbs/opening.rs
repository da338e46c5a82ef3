//! What is opened: rules, entries, and what is said of it.

use crate::card::{Card, frame, poll};
use crate::library::Ways;
use gdmedia::rx::verbs::{self, Cut, Options};
use gdmedia::rx::{Receiver, Verbs};
use gdmedia::sdp::{Leg, SourceFilter};
use gdmedia::wire::net::Route;
use std::net::{IpAddr, SocketAddr};

fn notes(receiver: &impl Receiver) -> String {
    receiver.caps().notes.join("\n")
}

#[test]
fn a_leg_has_a_rule_for_each_source() {
    let card = Card::new();
    let group: IpAddr = [239, 129, 7, 8].into();
    let sources: Vec<IpAddr> = vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    for (destination, sources, vlan, rules) in [
        (card.ip.into(), SourceFilter::Any, None, vec!["", "ipv4 dst"]),
        (
            group,
            SourceFilter::Any,
            Some(7),
            vec!["01:00:5e:01:07:08", "vlan 7/0fff", "dst 239.129.7.8", "udp dst 5004"],
        ),
        (
            group,
            SourceFilter::Include(sources.clone()),
            None,
            vec!["src 10.0.0.1 dst 239.129.7.8", "src 10.0.0.2 dst 239.129.7.8"],
        ),
        (group, SourceFilter::Exclude(sources), None, vec!["ipv4 dst 239.129.7.8"]),
    ] {
        let leg = Leg { destination, sources, ..card.leg() };
        let options = Options { vlan, ..card.options(Cut::None, 64) };
        let mut receiver = Verbs::<gdmedia::mem::Host>::open(&options, std::slice::from_ref(&leg), &()).unwrap();
        assert_eq!(card.control.counts().flows, 0, "not before it is joined");
        receiver.join(0, &leg).unwrap();
        let text = card.control.rules();
        assert!(rules.iter().all(|rule| text.contains(rule)), "{rules:?}: {text}");
        let expected = if text.contains("src") { 2 } else { 1 };
        assert_eq!((text.lines().count(), card.control.counts().flows), (expected, expected as u64), "{text}");
    }
}

#[test]
fn a_tagged_flow_comes_by_its_vlan() {
    let card = Card::new();
    let mut receiver = card.receiver(&Options { vlan: Some(7), ..card.options(Cut::At(74), 64) });
    for (vlan, came) in [(Some(7), 1), (Some(8), 0), (None, 0)] {
        let mut route = card.route();
        route.vlan = vlan;
        card.control.inject(&frame(&route, &[0x80; 300]), 0);
        assert_eq!(poll(&mut receiver).len(), came, "{vlan:?}");
    }
}

#[test]
fn excluded_senders_take_no_slot_for_long() {
    let card = Card::new();
    let excluded: IpAddr = [10, 0, 0, 9].into();
    let leg = Leg { sources: SourceFilter::Exclude(vec![excluded]), ..card.leg() };
    let mut receiver = Verbs::open(&card.options(Cut::None, 64), std::slice::from_ref(&leg), &()).unwrap();
    receiver.join(0, &leg).unwrap();
    let bad = Route::new(SocketAddr::new(excluded, 5000), card.route().destination()).unwrap();
    for _ in 0..200 {
        card.control.inject(&frame(&bad, &[0x80; 300]), 0);
        assert!(poll(&mut receiver).is_empty());
    }
    assert!(card.deliver_one(&[0x80; 300], 0));
    assert_eq!((poll(&mut receiver).len(), receiver.counters().rejected.total()), (1, 200));
}

#[test]
fn a_ring_may_be_longer_than_the_devices_queue() {
    let card = Card::with(Ways { max_qp_wr: 32, ..Ways::default() });
    let mut receiver = card.receiver(&Options { rate: 1000, ..card.options(Cut::At(96), 200) });
    assert!(notes(&receiver).contains("takes 32 entries at a time, 32 ms; the ring has 200"), "{}", notes(&receiver));
    assert_eq!(card.control.counts().posted, 32);
    let mut held = Vec::new();
    let mut came = 0;
    // More than the queue holds, while all of them are kept.
    for n in 0..200u8 {
        assert!(card.deliver_one(&[n; 300], 0), "{n}");
        let lease = receiver.poll().unwrap();
        came += lease.slots().len();
        held.push(lease);
    }
    assert_eq!(came, 200);
    held.into_iter().for_each(|lease| receiver.release(lease));
    assert_eq!(card.control.counts().posted, 32);
}

#[test]
fn the_start_block_says_what_there_is() {
    let card = Card::new();
    let said = |cut| notes(&card.receiver(&Options { rate: 10_000, ..card.options(cut, 1000) }));
    let whole = said(Cut::Auto);
    assert!(whole.contains("ring of 1000 packets, 100 ms: packets whole in 2 MiB, memory of the host"), "{whole}");
    let split = said(Cut::At(96));
    assert!(
        split.contains("the first 96 octets of frames in 1 MiB of the host, the rest in 2 MiB, memory of the host"),
        "{split}"
    );
    assert!(split.contains(&format!("port 1 of {} (lo)", card.name)), "{split}");
    assert!(split.contains("verbs by the library "), "what stands in is named: {split}");
}

#[test]
fn a_port_is_looked_at_before_it_is_opened() {
    let card = Card::new();
    let options = card.options(Cut::None, 64);
    assert_eq!(verbs::usable(Some("lo"), card.ip.into(), &options).unwrap().name, "lo");
    assert_eq!(verbs::usable(Some(&card.ip.to_string()), card.ip.into(), &options).unwrap().name, "lo");
    assert!(verbs::usable(Some("lo"), "::1".parse().unwrap(), &options).is_err());
    assert_eq!(card.control.counts().devices, 0);
}

/// Packets that come while a receiver is opened, and before it is joined, are none of its.
#[test]
fn what_comes_before_it_is_joined_is_not_received() {
    let card = Card::new();
    let mut receiver = Verbs::<gdmedia::mem::Host>::open(&card.options(Cut::None, 64), &[card.leg()], &()).unwrap();
    assert!(!card.deliver_one(&[0x80; 300], 0));
    assert!(poll(&mut receiver).is_empty());
    receiver.join(0, &card.leg()).unwrap();
    assert!(card.deliver_one(&[0x80; 300], 0));
    assert_eq!(poll(&mut receiver).len(), 1);
}
