//! What virtual drivers do not do: clocks and time stamps of a card, rules, memory that it is let reach, links, cards that are pulled out.
//! By the stand-in, which proves the order of calls and what is made of their answers, and nothing about a card.

use crate::stand_in::{Card, with_cards};
use gdmedia::error::{Error, Kind};
use gdmedia::event::What;
use gdmedia::mem::Host;
use gdmedia::ring::Slot;
use gdmedia::rx::dpdk::Options;
use gdmedia::rx::{Dpdk, Receiver, RxError};
use gdmedia::sdp::{Leg, SourceFilter};
use gdmedia::timing::Source;
use gdmedia::wire::net::Route;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const GROUP: [u8; 4] = [239, 1, 1, 7];

/// One that nobody has.
fn port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
}

fn leg(destination: impl Into<IpAddr>) -> Leg {
    Leg { destination: destination.into(), port: port(), sources: SourceFilter::Any, ttl: None, mid: None }
}

fn frame(to: [u8; 4], octets: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let route = Route::new(SocketAddr::from(([192, 0, 2, 1], 5000)), SocketAddr::from((to, port()))).unwrap();
    route.emit(octets, &mut out).unwrap();
    out
}

fn options(card: &Card, words: &str) -> Options {
    let mut options = Options { packets: 1000, ..Options::default() };
    let eal = crate::eal();
    options.change(&format!("port={};eal={eal};descriptors=64;{words}", card.name())).unwrap();
    options
}

/// One that DPDK has alone.
fn open(card: &Card, words: &str) -> Result<Dpdk<Host>, Error> {
    Dpdk::<Host>::open(options(card, &format!("address=192.0.2.7;{words}")), &())
}

/// Polls until `done` says so; all that came.
fn poll(receiver: &mut Dpdk<Host>, mut done: impl FnMut(&[Vec<u8>]) -> bool) -> Vec<Vec<u8>> {
    let (mut all, begun) = (Vec::new(), Instant::now());
    while !done(&all) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} packets, {:?}", all.len(), receiver.counters());
        let lease = receiver.poll().unwrap();
        all.extend(lease.slots().iter().map(|slot| receiver.ring().head(slot).to_vec()));
        receiver.release(lease);
    }
    all
}

fn notes(receiver: &Dpdk<Host>) -> String {
    receiver.caps().notes.join("\n")
}

fn remarks(receiver: &mut Dpdk<Host>) -> String {
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    remarks.join("\n")
}

/// The loopback interface's number: a card that shares it with the kernel.
const LO: i64 = 1;

#[test]
fn ticks_of_a_clock_that_is_read_before_it_cannot_be() {
    with_cards("cards::ticks_of_a_clock_that_is_read_before_it_cannot_be", || {
        // As ConnectX-5 is: 156.25 MHz, shared with the kernel, so isolated, where mlx5 lets nobody read it.
        let card = Card::new(0);
        card.driver("mlx5_pci").set("stamps", 1).set("clock", 156_250).set("interface", LO);
        let mut receiver = Dpdk::<Host>::open(options(&card, "stamps=hardware"), &()).unwrap();
        assert_eq!(card.get("only_rules"), 1);
        let said = notes(&receiver);
        let rate = said.split("time stamps of the card, ").nth(1).and_then(|text| text.split(' ').next());
        let rate: u64 = rate.unwrap().parse().unwrap_or_else(|_| panic!("{said}"));
        assert!(rate.abs_diff(156_250_000) < 156_250_000 / 500, "{said}");
        // Packets 100 us apart, by the card.
        receiver.join(0, &leg([127, 0, 0, 1])).unwrap();
        assert_eq!(card.get("rules"), 1);
        for n in 0..8u64 {
            assert!(card.feed(&frame([127, 0, 0, 1], &[n as u8; 100]), 1_000_000_000 + n * 15_625));
        }
        assert!(!card.feed(&frame([127, 0, 0, 2], &[0; 100]), 0), "what no rule names is the kernel's");
        let (mut arrivals, begun) = (Vec::new(), Instant::now());
        while arrivals.len() < 8 && begun.elapsed() < Duration::from_secs(10) {
            let lease = receiver.poll().unwrap();
            arrivals.extend(lease.slots().iter().map(|slot| slot.arrival));
            receiver.release(lease);
        }
        for pair in arrivals.windows(2) {
            let apart = pair[1].since(pair[0]);
            assert!((99_700..=100_300).contains(&apart), "{apart} ns instead of 100 us");
        }
        assert_eq!((arrivals.len(), receiver.caps().stamps), (8, Source::Hardware));
        drop(receiver);
        assert_eq!((card.get("rules"), card.get("reached")), (0, 0));
    });
}

#[test]
fn stamps_that_nobody_knows_the_unit_of_are_not_taken() {
    with_cards("cards::stamps_that_nobody_knows_the_unit_of_are_not_taken", || {
        let card = Card::new(0);
        card.driver("mlx5_pci").set("stamps", 1);
        let receiver = open(&card, "").unwrap();
        let said = notes(&receiver);
        assert!(said.contains("warning:") && said.contains("what driver mlx5_pci counts is not known"), "{said}");
        assert!(!said.contains("time stamps of the card, in nanoseconds"), "{said}");
        drop(receiver);
        let error = open(&card, "stamps=hardware").map(drop).unwrap_err();
        assert!(error.kind() == Kind::Unavailable && error.to_string().contains("is not known"), "{error}");
        // Of those that are known to count nanoseconds there is no doubt.
        card.driver("net_ice");
        let receiver = open(&card, "stamps=hardware").unwrap();
        assert!(notes(&receiver).contains("time stamps of the card, in nanoseconds"), "{}", notes(&receiver));
        drop(receiver);
        // And of clocks that can be read.
        card.driver("net_other").set("clock", 1_000_000);
        let receiver = open(&card, "stamps=hardware").unwrap();
        assert!(notes(&receiver).contains("time stamps of the card, in nanoseconds"), "{}", notes(&receiver));
    });
}

#[test]
fn memory_that_a_card_does_not_reach_is_a_failure() {
    with_cards("cards::memory_that_a_card_does_not_reach_is_a_failure", || {
        let card = Card::new(0);
        // VFIO gives no reason, and hotplug without a shared configuration leaves ENOTSUP behind.
        for map in [-1, libc::ENOMEM.into()] {
            card.set("map", map);
            let error = open(&card, "").map(drop).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), Kind::Unavailable);
            for word in ["port 0000:ca:fd.0", "is not let write to", "ulimit -l", "LimitMEMLOCK"] {
                assert!(text.contains(word), "{map}: {text}");
            }
            assert_eq!((card.get("started"), card.get("reached")), (0, 0), "{map}");
        }
        card.set("map", 0);
        let mut receiver = open(&card, "").unwrap();
        assert!(card.get("reached") > 4096 * 2048);
        receiver.join(0, &leg(GROUP)).unwrap();
        assert!(card.feed(&frame(GROUP, &[7; 200]), 0));
        assert_eq!(poll(&mut receiver, |all| all.len() == 1), [vec![7; 200]]);
        drop(receiver);
        assert_eq!(card.get("reached"), 0);
        // A driver without such a call, whose port is not on VFIO, makes the pool known to its card by itself.
        card.set("map", libc::ENOTSUP.into());
        let mut receiver = open(&card, "").unwrap();
        receiver.join(0, &leg(GROUP)).unwrap();
        assert!(card.feed(&frame(GROUP, &[8; 200]), 0));
        assert_eq!(poll(&mut receiver, |all| all.len() == 1), [vec![8; 200]]);
    });
}

/// Kinds of the IGMPv3 records for the group, and how often the address was announced.
fn said(frames: &[Vec<u8>]) -> (Vec<u8>, usize) {
    // Ethernet 14, IPv4 with its option 24, IGMP 8: then the record.
    let reports = frames.iter().filter(|f| f[12..14] == [8, 0] && f[23] == 2 && f[50..54] == GROUP).map(|f| f[46]);
    (reports.collect(), frames.iter().filter(|f| f[12..14] == [8, 6] && f[..6] == [0xff; 6]).count())
}

#[test]
fn groups_are_reported_again_when_the_link_is_up() {
    with_cards("cards::groups_are_reported_again_when_the_link_is_up", || {
        let card = Card::new(0);
        card.set("link", 0);
        let mut receiver = open(&card, "").unwrap();
        assert!(notes(&receiver).contains("its link is down: nothing comes before it is up"), "{}", notes(&receiver));
        receiver.join(0, &leg(GROUP)).unwrap();
        // The second reports and announcements go nowhere as well.
        let begun = Instant::now();
        poll(&mut receiver, |_| begun.elapsed() > Duration::from_millis(2500));
        assert_eq!(card.sent(), Vec::<Vec<u8>>::new());
        for downs in 0..2 {
            card.set("link", 1);
            let mut all = Vec::new();
            poll(&mut receiver, |_| {
                all.extend(card.sent());
                said(&all).0.len() == 2 && said(&all).1 == 2
            });
            assert_eq!(said(&all).0, [4, 4], "TO_EX twice, as when it was joined");
            assert!(card.feed(&frame(GROUP, &[7; 200]), 0));
            assert_eq!(poll(&mut receiver, |all| all.len() == 1).len(), 1);
            let told = remarks(&mut receiver);
            assert_eq!(told.contains("its link went down 1 times"), downs == 1, "{told}");
            // The cable is pulled, and plugged in again.
            card.set("link", 0);
            let asked = card.get("links");
            poll(&mut receiver, |_| card.get("links") > asked + 1);
            card.sent();
        }
        let told = remarks(&mut receiver);
        assert!(told.contains("its link went down 2 times, and is down"), "{told}");
    });
}

#[test]
fn a_card_that_is_pulled_out_is_noticed() {
    with_cards("cards::a_card_that_is_pulled_out_is_noticed", || {
        let card = Card::new(0);
        // Told by its driver (mlx5), and by vfio-pci, whose drivers do not tell.
        for (removal, by_vfio) in [(1, false), (0, true), (1, true)] {
            card.set("removal", removal);
            let mut receiver = open(&card, "").unwrap();
            assert_eq!(card.get("removal_told"), removal);
            receiver.join(0, &leg(GROUP)).unwrap();
            assert!(card.feed(&frame(GROUP, &[7; 200]), 0));
            poll(&mut receiver, |all| all.len() == 1);
            card.pull(by_vfio);
            let begun = Instant::now();
            let error = loop {
                assert!(begun.elapsed() < Duration::from_secs(20), "it does not notice");
                match receiver.poll() {
                    Ok(lease) => receiver.release(lease),
                    Err(RxError::Failed(error) | RxError::Gone(error)) => break error,
                    Err(RxError::End) => panic!("no end"),
                }
            };
            assert!(error.to_string().contains("port 0000:ca:fd.0 has gone"), "{error}");
            let mut events = Vec::new();
            receiver.take_events(&mut events);
            assert!(events.iter().any(|e| e.what == What::InterfaceGone { leg: 0 }), "{events:?}");
            assert_eq!((card.get("started"), card.get("reached")), (0, 0), "the machine has it back");
        }
        // It is back: nobody has told of this one.
        let mut receiver = open(&card, "").unwrap();
        receiver.join(0, &leg(GROUP)).unwrap();
        assert!(card.feed(&frame(GROUP, &[7; 200]), 0));
        assert_eq!(poll(&mut receiver, |all| all.len() == 1).len(), 1);
    });
}

#[test]
fn tries_for_a_buffer_are_no_packets() {
    with_cards("cards::tries_for_a_buffer_are_no_packets", || {
        let card = Card::new(0);
        card.driver("net_ice").set("missed", 1000).set("no_buffer", 1000).set("errors", 1000);
        let mut receiver = open(&card, "").unwrap();
        receiver.join(0, &leg(GROUP)).unwrap();
        assert_eq!(receiver.counters().kernel_dropped, 0, "what was before is not the flow's");
        card.set("missed", 1005).set("errors", 1002).set("no_buffer", 3_000_000);
        poll(&mut receiver, |_| card.get("stats") > 20);
        assert_eq!((receiver.counters().kernel_dropped, receiver.dropped(0)), (7, 7));
        let told = remarks(&mut receiver);
        assert!(told.contains("lost: 5 because nobody took them in time, 2 with errors"), "{told}");
        assert!(told.contains("buffers ran out 2999000 times"), "{told}");
        // Its driver is asked four times a second, however often it is polled.
        let (asked, begun) = (card.get("stats"), Instant::now());
        poll(&mut receiver, |_| card.get("stats") >= asked + 4);
        assert!(begun.elapsed() >= Duration::from_millis(750), "{:?}", begun.elapsed());
    });
}

#[test]
fn frames_that_are_longer_than_their_pieces_bring_nothing() {
    with_cards("cards::frames_that_are_longer_than_their_pieces_bring_nothing", || {
        let card = Card::new(0);
        let mut receiver = open(&card, "").unwrap();
        receiver.join(0, &leg(GROUP)).unwrap();
        // More often than there are buffers: each is given back.
        card.set("longer", 600);
        let (mut fed, count) = (0, 6000);
        while fed < count {
            fed += u64::from(card.feed(&frame(GROUP, &[7; 200]), 0));
            let lease = receiver.poll().unwrap();
            assert!(lease.is_empty());
            receiver.release(lease);
        }
        card.set("longer", 0);
        assert!(card.feed(&frame(GROUP, &[8; 200]), 0));
        assert_eq!(poll(&mut receiver, |all| !all.is_empty()), [vec![8; 200]]);
        let counters = receiver.counters();
        assert_eq!((counters.hardware_issues, counters.rejected.total(), counters.datagrams), (count, 0, 1));
    });
}

/// All octets of a packet, from both planes.
fn octets(receiver: &Dpdk<Host>, slot: &Slot) -> Vec<u8> {
    let octets = receiver.ring().octets(slot, 0, slot.octets).unwrap();
    [&octets.first[..octets.first_len], &octets.rest[..octets.rest_len]].concat()
}

#[test]
fn packets_are_cut_in_two_pools() {
    with_cards("cards::packets_are_cut_in_two_pools", || {
        let card = Card::new(0);
        let open = || Dpdk::<Host>::open_split_in_host(options(&card, "address=192.0.2.7;split=26"));
        let refused = |why: &[&str]| {
            let error = open().map(drop).unwrap_err().to_string();
            assert!(why.iter().all(|why| error.contains(why)) && error.contains("pinned memory"), "{error}");
            assert_eq!((card.get("started"), card.get("reached")), (0, 0));
        };
        refused(&["does not cut packets in two"]);
        // Behind headers of its choice only, as ice: that is not where we want it.
        card.set("splits", 1).set("headers", 12);
        refused(&["does not cut packets in two"]);
        card.set("headers", 0).set("map", libc::EINVAL.into());
        refused(&["memory of the GPU", "nvidia-peermem"]);
        card.set("map", 0);
        let mut receiver = open().unwrap();
        receiver.join(0, &leg(GROUP)).unwrap();
        // More of them than there are buffers, of all lengths: shorter than the cut, just as long, longer.
        let payload = |n: usize| (0..1 + n * 7 % 1400).map(|at| (n + at * 3) as u8).collect::<Vec<u8>>();
        let (mut fed, mut came) = (0, 0);
        let begun = Instant::now();
        while came < 6000 {
            assert!(begun.elapsed() < Duration::from_secs(30), "{came} of {fed}, {:?}", receiver.counters());
            while fed < 6000 && fed < came + 100 && card.feed(&frame(GROUP, &payload(fed)), 0) {
                fed += 1;
            }
            let lease = receiver.poll().unwrap();
            for slot in lease.slots() {
                let wanted = payload(came);
                // Ethernet, IPv4 and UDP are 42 octets of the 68 before the cut.
                assert_eq!(usize::from(slot.head), wanted.len().min(26));
                assert_eq!(octets(&receiver, slot), wanted, "{came}");
                came += 1;
            }
            receiver.release(lease);
        }
        assert_eq!((receiver.counters().datagrams, receiver.counters().rejected.total()), (6000, 0));
        // The second piece is shorter than the card says.
        card.set("longer", 100);
        assert!(card.feed(&frame(GROUP, &[7; 400]), 0));
        poll(&mut receiver, |all| {
            assert!(all.is_empty());
            card.get("packets") == 6001
        });
        assert_eq!((receiver.counters().hardware_issues, receiver.counters().datagrams), (1, 6000));
    });
}

#[test]
fn rules_lead_a_flow_or_are_said_to_be_refused() {
    with_cards("cards::rules_lead_a_flow_or_are_said_to_be_refused", || {
        let card = Card::new(0);
        let mut receiver = open(&card, "").unwrap();
        receiver.join(0, &leg(GROUP)).unwrap();
        assert_eq!((card.get("rules"), card.get("groups")), (1, 2), "the group, and all hosts");
        assert!(notes(&receiver).contains("1 rule(s) of the card lead the flow here"), "{}", notes(&receiver));
        drop(receiver);
        assert_eq!(card.get("rules"), 0);
        card.set("no_rules", 1);
        let mut receiver = open(&card, "").unwrap();
        receiver.join(0, &leg(GROUP)).unwrap();
        let said = notes(&receiver);
        assert!(said.contains("no rule of the card (the stand-in takes no rules)"), "{said}");
        drop(receiver);
        // Where the kernel has the rest nothing would come without them.
        card.set("interface", LO);
        let mut receiver = Dpdk::<Host>::open(options(&card, ""), &()).unwrap();
        let error = receiver.join(0, &leg([127, 0, 0, 1])).unwrap_err().to_string();
        assert!(error.contains("takes no rule for the flow") && error.contains("AF_XDP"), "{error}");
    });
}

#[test]
fn two_cards_have_a_leg_each() {
    with_cards("cards::two_cards_have_a_leg_each", || {
        let (one, two) = (Card::new(0), Card::new(1));
        let words = format!("port={};port={};address=192.0.2.7;address=192.0.3.7", one.name(), two.name());
        let open_both = || {
            let mut options = options(&one, "");
            options.change(&words).unwrap();
            Dpdk::<Host>::open(options, &()).unwrap()
        };
        let mut receiver = open_both();
        receiver.join(0, &leg(GROUP)).unwrap();
        receiver.join(1, &leg([239, 2, 2, 2])).unwrap();
        two.set("missed", 9);
        assert!(one.feed(&frame(GROUP, &[1; 100]), 0) && two.feed(&frame([239, 2, 2, 2], &[2; 100]), 0));
        let mut all = poll(&mut receiver, |all| all.len() == 2);
        all.sort();
        assert_eq!(all, [vec![1; 100], vec![2; 100]]);
        remarks(&mut receiver);
        assert_eq!((receiver.dropped(0), receiver.dropped(1), receiver.counters().kernel_dropped), (0, 9, 9));
        // One goes, the other is received.
        one.pull(true);
        let mut events = Vec::new();
        let begun = Instant::now();
        while events.is_empty() && begun.elapsed() < Duration::from_secs(10) {
            let lease = receiver.poll().unwrap();
            receiver.release(lease);
            receiver.take_events(&mut events);
        }
        assert!(matches!(events[..], [e] if e.what == What::InterfaceGone { leg: 0 }), "{events:?}");
        assert!(two.feed(&frame([239, 2, 2, 2], &[4; 100]), 0));
        poll(&mut receiver, |all| all.iter().any(|octets| octets[0] == 4));
        // It is back by itself, again and again, while the other goes on.
        one.set("missed", 4);
        for n in 5..8 {
            events.clear();
            let begun = Instant::now();
            while events.is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(20), "it does not come back");
                assert!(two.feed(&frame([239, 2, 2, 2], &[n; 100]), 0));
                assert!(poll(&mut receiver, |all| !all.is_empty()).iter().all(|octets| octets[0] == n));
                receiver.take_events(&mut events);
            }
            assert!(matches!(events[..], [e] if e.what == What::InterfaceBack { leg: 0 }), "{events:?}");
            assert!(one.feed(&frame(GROUP, &[n; 200]), 0));
            poll(&mut receiver, |all| all.iter().any(|octets| octets.len() == 200));
            // What it loses from then on counts beside what was lost before.
            one.set("missed", one.get("missed") + 2);
            remarks(&mut receiver);
            let lost = 2 * u64::from(n - 4);
            assert_eq!((receiver.dropped(0), receiver.counters().kernel_dropped), (lost, 9 + lost));
            one.pull(true);
            events.clear();
            let begun = Instant::now();
            while events.is_empty() && begun.elapsed() < Duration::from_secs(10) {
                let lease = receiver.poll().unwrap();
                receiver.release(lease);
                receiver.take_events(&mut events);
            }
            assert!(matches!(events[..], [e] if e.what == What::InterfaceGone { leg: 0 }), "{events:?}");
        }
        // Both are gone: that is the end of this receiver, and the next one has them.
        two.pull(true);
        let begun = Instant::now();
        let error = loop {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not notice");
            match receiver.poll() {
                Ok(lease) => receiver.release(lease),
                Err(RxError::Failed(error) | RxError::Gone(error)) => break error,
                Err(RxError::End) => panic!("no end"),
            }
        };
        assert!(error.to_string().contains("has gone"), "{error}");
        assert_eq!((one.get("started"), two.get("started")), (0, 0));
        let mut next = open_both();
        next.join(0, &leg(GROUP)).unwrap();
        assert!(one.feed(&frame(GROUP, &[9; 100]), 0));
        poll(&mut next, |all| all.len() == 1);
    });
}
