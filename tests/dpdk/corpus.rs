//! The ST 2110-20 capture of the corpus by `net_pcap`: packet for packet what our own reading of it gives.

use crate::options;
use gdmedia::mem::Host;
use gdmedia::rx::{Dpdk, Pace, Pcap, Receiver, RxError};
use gdmedia::sdp::{Leg, SourceFilter};
use gdmedia::stats::RxCounters;
use std::path::Path;
use std::time::{Duration, Instant};

const CAPTURE: &str = "pcap/st2110-20_1080i5994_422-10_gpm_snap128.pcap";

#[test]
fn packets_of_the_corpus_are_those_that_the_capture_has() {
    let root = std::env::var("GDMEDIA_CORPUS");
    let root = root.unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus").into());
    let path = Path::new(&root).join(CAPTURE);
    if !path.is_file() {
        return println!("skipped: no corpus");
    }
    let destination = first_destination(&path);
    let leg = Leg { destination: destination.0, port: destination.1, sources: SourceFilter::Any, ttl: None, mid: None };
    let mut ours = Pcap::open(&path, Pace::Full).unwrap();
    ours.join(0, &leg).unwrap();
    let mut theirs = Dpdk::<Host>::open(options(&format!("port=net_pcap,rx_pcap={}", path.display())), &()).unwrap();
    theirs.join(0, &leg).unwrap();
    let (ours, theirs) = (Packets::of(&mut ours), Packets::of(&mut theirs));
    assert!(
        ours.list.len() > 10_000 && ours.list.len() == theirs.list.len(),
        "{} {}",
        ours.list.len(),
        theirs.list.len()
    );
    assert!(ours.list.iter().all(|(octets, wire)| octets.len() < usize::from(*wire)), "cut by the snap length");
    assert!(ours.list == theirs.list);
    assert_eq!((ours.counters.datagrams, ours.counters.cut), (theirs.counters.datagrams, theirs.counters.cut));
    assert_eq!((theirs.counters.rejected.total(), theirs.counters.starved), (0, 0));
}

/// All that came.
struct Packets {
    /// The octets that are there, and how many there were on the wire.
    list: Vec<(Vec<u8>, u16)>,
    counters: RxCounters,
}

impl Packets {
    fn of<R: Receiver<Mem = Host>>(receiver: &mut R) -> Self {
        let (mut list, mut idle, begun) = (Vec::new(), 0, Instant::now());
        // To DPDK the end is silence.
        while idle < 1000 && begun.elapsed() < Duration::from_secs(20) {
            match receiver.poll() {
                Ok(lease) => {
                    idle = if lease.is_empty() { idle + 1 } else { 0 };
                    let slots = lease.slots().iter();
                    list.extend(slots.map(|slot| (receiver.ring().head(slot).to_vec(), slot.wire_octets)));
                    receiver.release(lease);
                }
                Err(RxError::End) => break,
                Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{error}"),
            }
        }
        Packets { list, counters: receiver.counters() }
    }
}

fn first_destination(path: &Path) -> (std::net::IpAddr, u16) {
    use gdmedia::wire::net::{Content, Link, parse};
    let octets = std::fs::read(path).unwrap();
    // Of a classic capture: 24 octets, then 16 before each frame.
    match parse(Link::Ethernet, &octets[40..40 + 128]) {
        Content::Udp(datagram) => (datagram.destination.ip(), datagram.destination.port()),
        other => panic!("{other:?}"),
    }
}
