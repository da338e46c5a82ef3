//! Time stamps through the filter, on a veth pair: the call into the driver, which has none to give; and, with the kernel's
//! clock in place of a card, the whole way from the filter to a verdict. Needs root, and says "skipped" without.

use super::program::{MARK, METADATA};
use super::veth::{Net, inside};
use super::*;
use crate::format::{Output, WireFormat};
use crate::packetise::{Cut, Packetiser, STANDARD_UDP, Style};
use crate::pipeline::meter::LegTiming;
use crate::pipeline::{HostPipeline, Settings};
use crate::rx::socket::Stamping;
use crate::sdp::{Depth, Flow, Sampling, Scan, SourceFilter};
use crate::timing::Rules;
use crate::timing::buckets::Tvd;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const GROUP: &str = "239.77.1.1:5004";
/// Ethernet, IPv4 and UDP before the payload.
const BEFORE: u32 = 42;

fn leg() -> Leg {
    let destination = "239.77.1.1".parse().unwrap();
    Leg { destination, port: 5004, sources: SourceFilter::Any, ttl: None, mid: None }
}

fn open(net: &Net, options: Options) -> Xdp {
    inside(&net.rx, || {
        let mut receiver = Xdp::open(Options { interfaces: vec!["rx0".into()], packets: 1, ..options }).unwrap();
        receiver.join(0, &leg()).unwrap();
        receiver
    })
}

/// Arrivals of `count` packets, and what stands before each of them in memory.
fn received(rx: &mut Xdp, count: usize) -> Vec<(Tai, [u64; 2])> {
    let (mut all, begun) = (Vec::new(), Instant::now());
    while all.len() < count && begun.elapsed() < Duration::from_secs(5) {
        let lease = rx.poll().unwrap();
        for slot in lease.slots() {
            let start = (slot.head_at - BEFORE) as usize;
            let memory = rx.ring().head_plane().as_slice();
            let word = |at: usize| u64::from_ne_bytes(memory[start - METADATA + at..][..8].try_into().unwrap());
            all.push((slot.arrival, [word(0), word(8)]));
        }
        rx.release(lease);
    }
    assert_eq!(all.len(), count);
    all
}

fn send(sender: &UdpSocket, count: usize) {
    (0..count).for_each(|_| assert_eq!(sender.send_to(&[7; 100], GROUP).unwrap(), 100));
}

/// The driver is called for each packet, answers that there is no stamp, and that is counted.
#[test]
fn the_driver_is_asked_and_packets_without_a_stamp_are_counted() {
    let Some(net) = Net::new(1, 1500) else { return };
    let sender = net.sender("10.77.0.1".parse().unwrap());
    let mut rx = open(&net, Options::default());
    let notes = rx.caps().notes.join("\n");
    if !notes.contains("time stamps by the card where packets have them") {
        println!("skipped: {notes}");
        assert!(notes.contains("BTF") || notes.contains("Linux 6.3"), "{notes}");
        return;
    }
    assert!(notes.contains("rx0 cannot stamp every packet"), "{notes}");
    let name = inside(&net.rx, || running("rx0")).unwrap().unwrap();
    assert_eq!((name.name.as_deref(), name.ours, name.attached), (Some("gdmedia_xdp1ts"), true, Attached::Native));
    send(&sender, 20);
    for (_, before) in received(&mut rx, 20) {
        assert_eq!(before, [MARK, 0], "written by the filter: veth has no stamp");
    }
    assert_eq!((rx.caps().stamps, rx.ports[0].stamps().unwrap().without()), (Source::Software, 20));
    let mut remarks = Vec::new();
    rx.finish(&mut remarks).unwrap();
    let told = "rx0: 20 of 20 packets without a stamp of the card, they have the time of the poll";
    assert!(remarks.iter().any(|remark| remark == told), "{remarks:?}");
}

/// Without a wish for them, and behind the driver, nothing is written before packets.
#[test]
fn the_plain_filter_writes_nothing() {
    let Some(net) = Net::new(1, 1500) else { return };
    let sender = net.sender("10.77.0.1".parse().unwrap());
    let generic = Options { mode: Some(Mode::Generic), ..Options::default() };
    for (options, why) in [
        (Options { stamps: Stamping::Software, ..Options::default() }, "stamps of software were asked for"),
        (generic, "generic mode has no metadata of packets"),
    ] {
        let mut rx = open(&net, options);
        let note = format!("arrival times are those of the poll: {why}");
        assert!(rx.caps().notes.contains(&note), "{:?}", rx.caps().notes);
        assert_eq!(inside(&net.rx, || running("rx0")).unwrap().unwrap().name.as_deref(), Some("gdmedia_xdp1"));
        send(&sender, 3);
        assert!(received(&mut rx, 3).iter().all(|(_, before)| *before == [0, 0]));
        let mut remarks = Vec::new();
        rx.finish(&mut remarks).unwrap();
        assert!(!remarks.iter().any(|remark| remark.contains("stamp of the card")), "{remarks:?}");
    }
}

/// Packets that wait for one poll together have a time each, and that is when they came.
#[test]
fn arrivals_are_the_stamps_that_the_filter_has_written() {
    let Some(net) = Net::new(1, 1500) else { return };
    let sender = net.sender("10.77.0.1".parse().unwrap());
    let mut rx = open(&net, Options { stand_in: true, ..Options::default() });
    assert!(rx.caps().notes.iter().any(|note| note == "time stamps by the card"), "{:?}", rx.caps().notes);
    let clock = || tai_now(tai_offset(37)).unwrap();
    let mut times = vec![clock()];
    for _ in 0..20 {
        send(&sender, 1);
        times.push(clock());
    }
    let all = received(&mut rx, 20);
    for (between, (arrival, before)) in times.windows(2).zip(&all) {
        assert_eq!(before[0], MARK);
        assert!(*arrival >= between[0], "not before it was sent");
    }
    assert!(all.windows(2).all(|two| two[0].0 < two[1].0), "one after the other: {all:?}");
    // A veth pair hands packets over in the sender's call, or soon after.
    assert!(all.iter().all(|(arrival, _)| *arrival <= clock()));
    assert_eq!((rx.caps().stamps, rx.ports[0].stamps().unwrap().without()), (Source::Hardware, 0));
    assert!(rx.now().unwrap() >= all[19].0);
}

/// Receivers of one interface share its filter, whatever stamps they want.
#[test]
fn a_receiver_without_stamps_shares_the_filter_that_has_them() {
    let Some(net) = Net::new(2, 1500) else { return };
    let sender = net.sender("10.77.0.1".parse().unwrap());
    let first = open(&net, Options { stand_in: true, queue: Some(0), ..Options::default() });
    let options = Options {
        interfaces: vec!["rx0".into()],
        packets: 1,
        queue: Some(1),
        stamps: Stamping::Software,
        ..Options::default()
    };
    let mut rx = Xdp::open(options).unwrap();
    inside(&net.rx, || rx.join(0, &Leg { port: 6004, ..leg() })).unwrap();
    assert_eq!(rx.caps().stamps, Source::Software);
    assert!(rx.caps().notes.iter().any(|note| note.ends_with("stamps of software were asked for")));
    drop(first);
    // By which of the two queues packets come hangs on the sender's port: those of the other go to the socket beside.
    let begun = Instant::now();
    while rx.counters().datagrams == 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "nothing comes");
        let other = net.sender("10.77.0.1".parse().unwrap());
        (0..8).for_each(|_| assert_eq!(other.send_to(&[1; 100], "239.77.1.1:6004").unwrap(), 100));
        let lease = rx.poll().unwrap();
        rx.release(lease);
    }
    drop(sender);
}

fn flow() -> Flow {
    let text = "v=0\r\no=- 1 1 IN IP4 10.77.0.1\r\ns=test\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 239.77.1.1/32\r\n\
                a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=64; height=32; exactframerate=50; depth=10; \
                TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPW\r\n\
                a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:sender\r\n";
    crate::sdp::parse(text.as_bytes(), crate::sdp::Mode::Lenient).flows.remove(0)
}

/// What is measured of a real sender until there is a verdict, or one that is not to be had is said.
fn timing(net: &Net, options: Options) -> LegTiming {
    let receiver = open(net, options);
    let said = receiver.caps().stamps;
    let settings = Settings { output: Output::Wire, ..Settings::default() };
    let mut pipeline = HostPipeline::open(receiver, &flow(), &settings, Box::new(|_, _| {})).unwrap();
    let metering = pipeline.meter(&flow(), said, Rules { tvd: Tvd::FirstPacket, ..Rules::default() });
    let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 64, 32, Scan::Progressive).unwrap();
    let mut packetiser = Packetiser::new(wire, Style::new(Cut::Even { udp: STANDARD_UDP }), 7).unwrap();
    let sender = net.sender("10.77.0.1".parse().unwrap());
    let begun = Instant::now();
    for n in 0.. {
        let mut octets = Vec::new();
        for packet in packetiser.frame(n * 1800, 0) {
            octets.clear();
            packet.append(&[], &mut octets);
            sender.send_to(&octets, GROUP).unwrap();
            pipeline.step().unwrap();
        }
        if let Some(leg) = metering.read().pop() {
            return leg;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing is measured");
        std::thread::sleep(Duration::from_millis(5));
    }
    unreachable!()
}

/// From the filter to the class: which one it is hangs on this machine, that there is one does not.
#[test]
fn stamps_of_the_filter_carry_a_verdict_and_those_of_the_poll_none() {
    let Some(net) = Net::new(1, 1500) else { return };
    let leg = timing(&net, Options { stand_in: true, ..Options::default() });
    assert!(leg.class.is_some() && leg.not_measurable.is_none(), "{leg:?}");
    assert!(leg.cinst.is_some() && leg.vrx.is_some(), "{leg:?}");
    let leg = timing(&net, Options::default());
    assert!(leg.class.is_none() && leg.cinst.is_none() && leg.vrx.is_none(), "{leg:?}");
    assert!(leg.not_measurable.is_some_and(|why| why.contains("software stamps do not say")));
}
