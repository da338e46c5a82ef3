use super::*;
use crate::wire::capture::PcapWriter;
use crate::wire::net::{Link, Route};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn route(source: &str, destination: &str) -> Route {
    Route::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap()
}

fn leg(destination: &str, sources: SourceFilter) -> Leg {
    let at: std::net::SocketAddr = destination.parse().unwrap();
    Leg { destination: at.ip(), port: at.port(), sources, ttl: None, mid: None }
}

/// A capture file of datagrams at times in nanoseconds.
fn capture(datagrams: &[(u64, &Route, &[u8])]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut w = PcapWriter::create(file.path()).unwrap();
    for (time, route, payload) in datagrams {
        w.datagram(*time, route, payload).unwrap();
    }
    w.finish().unwrap();
    file
}

/// What comes until the end: leg, arrival, octets.
fn drain(pcap: &mut Pcap) -> (Vec<(u8, u64, Vec<u8>)>, RxError) {
    let mut out = Vec::new();
    for _ in 0..10_000 {
        match pcap.poll() {
            Ok(lease) => {
                assert!(lease.slots().len() <= pcap.caps().batch);
                for slot in lease.slots() {
                    assert_eq!(slot.octets, slot.wire_octets);
                    out.push((slot.leg, slot.arrival.0, pcap.ring().head(slot).to_vec()));
                }
                pcap.release(lease);
            }
            Err(e) => return (out, e),
        }
    }
    panic!("no end");
}

#[test]
fn two_legs_are_told_from_all_else() {
    let (a, b) = (route("10.0.0.1:5000", "239.0.0.1:5004"), route("10.1.0.1:5000", "239.1.0.1:5004"));
    let wrong_port = route("10.0.0.1:5000", "239.0.0.1:5006");
    let wrong_source = route("10.9.0.1:5000", "239.1.0.1:5004");
    let file =
        capture(&[(1, &a, b"one"), (2, &b, b"two"), (3, &wrong_port, b"x"), (4, &wrong_source, b"y"), (5, &a, b"")]);
    let mut pcap = Pcap::open(file.path(), Pace::Full).unwrap();
    pcap.set_offset(37);
    pcap.join(0, &leg("239.0.0.1:5004", SourceFilter::Exclude(vec!["10.9.0.1".parse().unwrap()]))).unwrap();
    pcap.join(1, &leg("239.1.0.1:5004", SourceFilter::Include(vec!["10.1.0.1".parse().unwrap()]))).unwrap();
    let (got, end) = drain(&mut pcap);
    let tai = |n: u64| 37_000_000_000 + n;
    assert_eq!(got, [(0, tai(1), b"one".to_vec()), (1, tai(2), b"two".to_vec()), (0, tai(5), vec![])]);
    assert!(matches!(end, RxError::End));
    assert!(matches!(pcap.poll(), Err(RxError::End)));
    let counters = pcap.counters();
    assert_eq!((counters.datagrams, counters.octets, counters.rejected.get(Reason::Source)), (3, 6, 1));
}

#[test]
fn more_than_the_ring_holds_comes_whole_and_in_order() {
    let to = route("10.0.0.1:5000", "239.0.0.1:5004");
    let payloads: Vec<Vec<u8>> = (0..6000u32).map(|n| n.to_be_bytes().repeat(300 + n as usize % 60)).collect();
    let list: Vec<(u64, &Route, &[u8])> = payloads.iter().enumerate().map(|(n, p)| (n as u64, &to, &p[..])).collect();
    let file = capture(&list);
    let mut pcap = Pcap::open(file.path(), Pace::Full).unwrap();
    pcap.join(0, &leg("239.0.0.1:5004", SourceFilter::Any)).unwrap();
    let (got, _) = drain(&mut pcap);
    assert!(got.iter().map(|g| &g.2).eq(payloads.iter()));
}

#[test]
fn leases_that_are_out_keep_their_memory() {
    let to = route("10.0.0.1:5000", "239.0.0.1:5004");
    let payloads: Vec<Vec<u8>> = (0..4000u32).map(|n| n.to_be_bytes().to_vec()).collect();
    let list: Vec<(u64, &Route, &[u8])> = payloads.iter().enumerate().map(|(n, p)| (n as u64, &to, &p[..])).collect();
    let file = capture(&list);
    let mut pcap = Pcap::open(file.path(), Pace::Full).unwrap();
    pcap.join(0, &leg("239.0.0.1:5004", SourceFilter::Any)).unwrap();
    let mut out: Vec<Lease> = Vec::new();
    loop {
        let lease = pcap.poll().unwrap();
        let none = lease.is_empty();
        out.push(lease);
        if none {
            break;
        }
    }
    assert_eq!(out.len(), AREAS + 1, "and then nothing until one comes back");
    assert_eq!(pcap.counters().starved, 1);
    let mut expected = 0u32;
    for lease in out {
        for slot in lease.slots() {
            assert_eq!(pcap.ring().head(slot), expected.to_be_bytes());
            expected += 1;
        }
        pcap.release(lease);
    }
    let (rest, _) = drain(&mut pcap);
    assert_eq!((rest[0].2[..].to_vec(), rest.len()), (expected.to_be_bytes().to_vec(), 4000 - expected as usize));
}

#[test]
fn recorded_pace_follows_the_clock() {
    let to = route("10.0.0.1:5000", "239.0.0.1:5004");
    let file = capture(&[(1000, &to, b"a"), (1500, &to, b"b"), (3000, &to, b"c"), (2900, &to, b"d")]);
    let time = Arc::new(AtomicU64::new(77));
    let clock = time.clone();
    let clock: Clock = Box::new(move || Duration::from_nanos(clock.load(Ordering::Relaxed)));
    let mut pcap = Pcap::with_clock(file.path(), Pace::Recorded, clock).unwrap();
    pcap.join(0, &leg("239.0.0.1:5004", SourceFilter::Any)).unwrap();
    let mut due = |at: u64| {
        time.store(at, Ordering::Relaxed);
        let Ok(lease) = pcap.poll() else { return "end".to_owned() };
        let text = lease.slots().iter().map(|s| String::from_utf8(pcap.ring().head(s).to_vec()).unwrap()).collect();
        pcap.release(lease);
        text
    };
    assert_eq!(due(77), "a");
    assert_eq!(due(77 + 499), "");
    assert_eq!(due(77 + 500), "b");
    assert_eq!(due(77 + 1999), "");
    // The last one was recorded out of order: it follows at once.
    assert_eq!(due(77 + 2000), "cd");
    assert_eq!(due(77 + 2000), "end");
}

#[test]
fn a_capture_without_the_flow_says_what_it_holds() {
    let other = route("10.0.0.1:5000", "239.0.0.9:5004");
    let file = capture(&[(1, &other, b"hello")]);
    let failure = |destination: &str, sources: SourceFilter| {
        let mut pcap = Pcap::open(file.path(), Pace::Full).unwrap();
        pcap.join(0, &leg(destination, sources)).unwrap();
        match drain(&mut pcap).1 {
            RxError::Failed(e) | RxError::Gone(e) => e.to_string(),
            RxError::End => panic!("must fail"),
        }
    };
    let message = failure("239.0.0.1:5004", SourceFilter::Any);
    assert!(message.contains("no packet for 239.0.0.1:5004"), "{message}");
    assert!(message.contains("10.0.0.1:5000 -> 239.0.0.9:5004: unknown, 1 packets"), "{message}");
    let message = failure("239.0.0.9:5004", SourceFilter::Include(vec!["10.0.0.2".parse().unwrap()]));
    assert!(message.contains("from the sources that the SDP allows (1 from others)"), "{message}");
    let empty = capture(&[]);
    let mut pcap = Pcap::open(empty.path(), Pace::Full).unwrap();
    pcap.join(0, &leg("239.0.0.1:5004", SourceFilter::Any)).unwrap();
    assert!(drain(&mut pcap).1.to_string().contains("no UDP flow at all"));
}

#[test]
fn what_comes_before_damage_is_used() {
    let to = route("10.0.0.1:5000", "239.0.0.1:5004");
    let file = capture(&[(1, &to, b"good")]);
    let mut octets = std::fs::read(file.path()).unwrap();
    octets.extend([0xff; 64]);
    std::fs::write(file.path(), &octets).unwrap();
    let mut pcap = Pcap::open(file.path(), Pace::Full).unwrap();
    pcap.join(0, &leg("239.0.0.1:5004", SourceFilter::Any)).unwrap();
    let (got, end) = drain(&mut pcap);
    assert_eq!(got.len(), 1);
    assert!(matches!(end, RxError::Failed(e) if e.to_string().contains("damaged")));
}

#[test]
fn cut_packets_say_how_long_they_were() {
    let to = route("10.0.0.1:5000", "239.0.0.1:5004");
    let mut frame = Vec::new();
    to.emit(&[9; 1220], &mut frame).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut w = PcapWriter::new(std::fs::File::create(file.path()).unwrap(), "x", Link::Ethernet).unwrap();
    w.frame(1, &frame[..128], frame.len() as u32).unwrap();
    w.finish().unwrap();
    let mut pcap = Pcap::open(file.path(), Pace::Full).unwrap();
    pcap.join(0, &leg("239.0.0.1:5004", SourceFilter::Any)).unwrap();
    let lease = pcap.poll().unwrap();
    let slot = lease.slots()[0];
    assert_eq!((slot.octets, slot.head, slot.wire_octets), (86, 86, 1220));
    assert_eq!(pcap.ring().octets(&slot, 20, 66).map(|o| o.first_len), Some(66));
    assert!(pcap.ring().octets(&slot, 20, 67).is_none());
    pcap.release(lease);
    assert_eq!((pcap.capture_counters().snapped, pcap.counters().cut), (1, 1));
}
