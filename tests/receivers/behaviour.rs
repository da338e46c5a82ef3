//! What every receiver does.

use crate::setup::{Ability, Datagram, Opened, Setup};
use crate::support::{self, EVEN, Sender, Sent};
use gdmedia::format::{Output, WireFormat};
use gdmedia::frame::Frame;
use gdmedia::merge::Class;
use gdmedia::pipeline::{HostPipeline, Incomplete, Progress, Settings};
use gdmedia::ring::{Lease, Slot};
use gdmedia::rx::{Receiver, RxError};
use gdmedia::sdp::{Depth, Flow, Leg, Sampling, Scan, SourceFilter};
use gdmedia::stats::{FrameCounters, LegCounters, PacketCounters, Reason};
use gdmedia::time::Tai;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PORT: u16 = 5004;
/// Datagrams that are sent before the receiver is asked again: fewer than any ring or buffer holds.
const AT_ONCE: usize = 32;
/// What has not come after this time does not come.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is not to come has so long to come after all.
const GRACE: Duration = Duration::from_millis(20);

/// Has the backend what a behaviour needs?
fn able(setup: &dyn Setup, ability: Ability) -> bool {
    match setup.lacks(ability) {
        None => true,
        Some(why) => {
            println!("left out: {why}");
            false
        }
    }
}

fn leg(destination: IpAddr, port: u16) -> Leg {
    Leg { destination, port, sources: SourceFilter::Any, ttl: None, mid: None }
}

/// Packet `n` of a stream, of so many octets: an RTP header with ST 2110-20's extension, then its number again and again.
fn packet(n: u32, octets: usize) -> Vec<u8> {
    let mut packet = vec![0x80, 96];
    packet.extend((n as u16).to_be_bytes());
    packet.extend((n / 100 * 3003).to_be_bytes());
    packet.extend([1, 2, 3, 4]);
    packet.extend(((n >> 16) as u16).to_be_bytes());
    packet.resize(octets, n as u8);
    packet
}

/// As many octets as wanted, or as near to it as the backend takes.
fn size(setup: &dyn Setup, wanted: usize) -> usize {
    wanted.clamp(*setup.sizes().start(), *setup.sizes().end())
}

/// A packet as it came.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    leg: u8,
    octets: Vec<u8>,
    arrival: Tai,
}

fn octets(receiver: &dyn Receiver<Mem = gdmedia::mem::Host>, slot: &Slot) -> Vec<u8> {
    let octets = receiver.ring().octets(slot, 0, slot.octets).unwrap();
    let all = [&octets.first[..octets.first_len], &octets.rest[..octets.rest_len]].concat();
    assert!(all.starts_with(receiver.ring().head(slot)), "headers are where the CPU reads them");
    assert_eq!(slot.octets, slot.wire_octets, "nothing was cut");
    all
}

fn take(opened: &mut Opened, got: &mut Vec<Got>) -> bool {
    match opened.receiver.poll() {
        Ok(lease) => {
            let slots = lease.slots().iter();
            got.extend(slots.map(|slot| Got {
                leg: slot.leg,
                octets: octets(opened.receiver.as_ref(), slot),
                arrival: slot.arrival,
            }));
            assert!(lease.slots().len() <= opened.receiver.caps().batch);
            opened.receiver.release(lease);
            true
        }
        Err(RxError::End) => false,
        Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{error}"),
    }
}

/// Sends all, and gives what comes: `count` packets, after which nothing more comes.
fn pass(opened: &mut Opened, sent: &[Datagram], count: usize) -> Vec<Got> {
    let mut got = Vec::new();
    let mut more = true;
    for part in sent.chunks(AT_ONCE) {
        part.iter().for_each(&mut opened.send);
        more = more && take(opened, &mut got);
    }
    let begun = Instant::now();
    while more && got.len() < count && begun.elapsed() < PATIENCE {
        more = take(opened, &mut got);
    }
    let full = Instant::now();
    while more && full.elapsed() < GRACE {
        more = take(opened, &mut got);
    }
    assert_eq!(got.len(), count, "{:?}", opened.receiver.counters());
    got
}

pub fn datagrams_come_whole_in_order_and_counted(setup: &dyn Setup) {
    let (to, from) = (SocketAddr::new(setup.address(0), PORT), setup.sources()[0]);
    let sizes = setup.sizes();
    let size = |n: u32| (sizes.start() + n as usize * 7).min(*sizes.end());
    let sent: Vec<_> = (0..200).map(|n| Datagram { from, to, octets: packet(n, size(n)) }).collect();
    let mut opened = setup.open(&[leg(to.ip(), PORT)], &sent);
    let got = pass(&mut opened, &sent, sent.len());
    assert!(got.iter().map(|g| &g.octets).eq(sent.iter().map(|s| &s.octets)));
    assert!(got.iter().all(|g| g.leg == 0));
    assert!(got.windows(2).all(|w| w[0].arrival <= w[1].arrival), "time does not go back");
    let c = opened.receiver.counters();
    assert_eq!((c.datagrams, c.kernel_dropped, c.cut, c.starved, c.rejected.total()), (200, 0, 0, 0, 0), "{c:?}");
    assert_eq!(c.octets, sent.iter().map(|s| s.octets.len() as u64).sum::<u64>());
    if let Some(now) = opened.receiver.now() {
        assert!(
            opened.receiver.caps().live
                && got.iter().all(|g| g.arrival <= now && now.since(g.arrival) < 60_000_000_000)
        );
    }
}

pub fn the_largest_datagram_is_not_cut(setup: &dyn Setup) {
    let (to, from) = (SocketAddr::new(setup.address(0), PORT), setup.sources()[0]);
    let sent = [7, 8].map(|n| Datagram { from, to, octets: packet(n, *setup.sizes().end()) });
    let mut opened = setup.open(&[leg(to.ip(), PORT)], &sent);
    let got = pass(&mut opened, &sent, 2);
    assert!(got.iter().map(|g| &g.octets).eq(sent.iter().map(|s| &s.octets)));
    assert_eq!(opened.receiver.counters().rejected.get(Reason::Truncated), 0);
}

pub fn nothing_comes_when_nothing_is_sent(setup: &dyn Setup) {
    if !able(setup, Ability::Silence) {
        return;
    }
    let mut opened = setup.open(&[leg(setup.address(0), PORT)], &[]);
    assert_eq!(pass(&mut opened, &[], 0), []);
    let c = opened.receiver.counters();
    assert_eq!((c.datagrams, c.octets, c.rejected.total()), (0, 0, 0));
}

pub fn an_input_that_ends_says_so_again_and_again(setup: &dyn Setup) {
    if !able(setup, Ability::End) {
        return;
    }
    let (to, from) = (SocketAddr::new(setup.address(0), PORT), setup.sources()[0]);
    let sent: Vec<_> = (0..10).map(|n| Datagram { from, to, octets: packet(n, size(setup, 100)) }).collect();
    let mut opened = setup.open(&[leg(to.ip(), PORT)], &sent);
    pass(&mut opened, &sent, 10);
    assert!((0..3).all(|_| matches!(opened.receiver.poll(), Err(RxError::End))));
}

/// Holds leases until the receiver has no more memory, or until 600 packets have come; then all of them are as they came.
pub fn leased_octets_stay_and_leases_go_back_in_order(setup: &dyn Setup) {
    let (to, from) = (SocketAddr::new(setup.address(0), PORT), setup.sources()[0]);
    let sent: Vec<_> = (0..1000).map(|n| Datagram { from, to, octets: packet(n, size(setup, 300)) }).collect();
    let mut opened = setup.open(&[leg(to.ip(), PORT)], &sent);
    if opened.receiver.ring().laps().is_some() {
        println!("left out: the ring is overwritten in time, whatever is leased");
        return;
    }
    let (mut next, mut held, mut seen) = (sent.iter(), Vec::<Lease>::new(), 0);
    let begun = Instant::now();
    while seen < sent.len() {
        assert!(begun.elapsed() < PATIENCE, "{seen} came, {:?}", opened.receiver.counters());
        // One by one, so that there are many leases.
        next.by_ref().take(1).for_each(&mut opened.send);
        let starved = opened.receiver.counters().starved;
        match opened.receiver.poll() {
            Ok(lease) => held.push(lease),
            Err(RxError::End) => {}
            Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{error}"),
        }
        let packets = held.iter().map(|lease| lease.slots().len()).sum::<usize>();
        if packets < 600 && opened.receiver.counters().starved == starved && seen + packets < sent.len() {
            continue;
        }
        let slots = held.iter().flat_map(Lease::slots);
        for (slot, sent) in slots.zip(&sent[seen..]) {
            assert_eq!(octets(opened.receiver.as_ref(), slot), sent.octets);
        }
        seen += packets;
        held.drain(..).for_each(|lease| opened.receiver.release(lease));
    }
    assert_eq!(opened.receiver.counters().datagrams, sent.len() as u64);
}

/// Five datagrams of each sender to `to`, by turns.
fn of_both(setup: &dyn Setup, to: SocketAddr) -> Vec<Datagram> {
    let sources = setup.sources();
    (0..10).map(|n| Datagram { from: sources[n as usize % 2], to, octets: packet(n, size(setup, 200)) }).collect()
}

/// Of datagrams by both senders those of the first come, and no others.
fn only_the_first(setup: &dyn Setup, to: IpAddr, sources: SourceFilter) {
    let sent = of_both(setup, (to, PORT).into());
    let mut opened = setup.open(&[Leg { sources, ..leg(to, PORT) }], &sent);
    let got = pass(&mut opened, &sent, 5);
    assert!(got.iter().map(|g| &g.octets).eq(sent.iter().step_by(2).map(|s| &s.octets)));
    let c = opened.receiver.counters();
    // Where a network card or the system filters, nobody counts.
    assert_eq!((c.datagrams, c.rejected.total()), (5, c.rejected.get(Reason::Source)));
    assert!([0, 5].contains(&c.rejected.total()));
}

pub fn only_sources_that_are_included_come(setup: &dyn Setup) {
    if able(setup, Ability::Addresses) {
        only_the_first(setup, setup.address(0), SourceFilter::Include(vec![setup.sources()[0]]));
        only_the_first(setup, setup.group(1), SourceFilter::Include(vec![setup.sources()[0]]));
    }
}

pub fn sources_that_are_excluded_stay_away(setup: &dyn Setup) {
    if able(setup, Ability::Addresses) && able(setup, Ability::Exclusion) {
        only_the_first(setup, setup.address(0), SourceFilter::Exclude(vec![setup.sources()[1]]));
        only_the_first(setup, setup.group(1), SourceFilter::Exclude(vec![setup.sources()[1]]));
    }
}

pub fn groups_are_joined_and_others_stay_away(setup: &dyn Setup) {
    if !able(setup, Ability::Addresses) {
        return;
    }
    let [group, other] = [1, 2].map(|n| setup.group(n));
    let [mut wrong_group, mut wrong_port, mut unicast] =
        [(other, PORT), (group, PORT + 2), (setup.address(0), PORT)].map(|to| of_both(setup, to.into()));
    let right = of_both(setup, (group, PORT).into());
    let mut sent = right[..5].to_vec();
    [&mut wrong_group, &mut wrong_port, &mut unicast].into_iter().for_each(|wrong| sent.append(wrong));
    sent.extend_from_slice(&right[5..]);
    let mut opened = setup.open(&[leg(group, PORT)], &sent);
    let got = pass(&mut opened, &sent, right.len());
    assert!(got.iter().map(|g| &g.octets).eq(right.iter().map(|s| &s.octets)));
    assert_eq!(opened.receiver.counters().datagrams, right.len() as u64);
}

pub fn two_legs_come_through_one_receiver(setup: &dyn Setup) {
    let to = [0, 1].map(|leg| SocketAddr::new(setup.address(leg), PORT + 2 * u16::from(leg)));
    let from = setup.sources()[0];
    let octets = |n: u32, leg: usize| packet(2 * n + leg as u32, size(setup, 200));
    let both = (0..50_u32).flat_map(|n| [0, 1].map(|leg: usize| (n, leg)));
    let sent: Vec<_> = both.map(|(n, leg)| Datagram { from, to: to[leg], octets: octets(n, leg) }).collect();
    let mut opened = setup.open(&to.map(|to| leg(to.ip(), to.port())), &sent);
    let got = pass(&mut opened, &sent, sent.len());
    for leg in 0..2 {
        let of_leg = got.iter().filter(|g| usize::from(g.leg) == leg).map(|g| &g.octets);
        assert!(of_leg.eq(sent.iter().skip(leg).step_by(2).map(|s| &s.octets)), "leg {leg}");
    }
}

fn wire() -> WireFormat {
    support::format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive)
}

/// What a flow of that format by these legs says of itself.
fn flow(legs: &[SocketAddr]) -> Flow {
    let mut text = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\n".to_owned();
    if legs.len() > 1 {
        text += "a=group:DUP 0 1\r\n";
    }
    for (n, to) in legs.iter().enumerate() {
        text += &format!(
            "m=video {} RTP/AVP 96\r\nc=IN IP4 {}\r\na=rtpmap:96 raw/90000\r\n\
             a=fmtp:96 sampling=YCbCr-4:2:2; width=640; height=90; exactframerate=30000/1001; depth=10; TCS=SDR; \
             colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
             a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:sender\r\na=mid:{n}\r\n",
            to.port(),
            to.ip()
        );
    }
    let flow = gdmedia::sdp::parse(text.as_bytes(), gdmedia::sdp::Mode::Lenient).flows.remove(0);
    assert!(flow.usable && flow.legs.len() == legs.len());
    flow
}

const FRAMES: usize = 6;

/// What became of a stream.
struct Outcome {
    frames: Vec<Frame>,
    packets: PacketCounters,
    legs: Vec<LegCounters>,
    counts: FrameCounters,
}

/// Receives what was sent of a stream of [`FRAMES`] frames; each packet goes by the legs that `legs_of` says.
fn play(setup: &dyn Setup, sent: &[Sent], legs: u8, legs_of: impl Fn(usize) -> &'static [usize]) -> Outcome {
    let to: Vec<_> = (0..legs).map(|leg| SocketAddr::new(setup.address(leg), PORT + 2 * u16::from(leg))).collect();
    let flow = flow(&to);
    let packets = sent.iter().enumerate();
    let datagrams: Vec<_> = packets
        .flat_map(|(n, packet)| {
            legs_of(n).iter().map(|&leg| {
                let from = setup.source_of(leg as u8);
                Datagram { from, to: to[leg], octets: packet.octets.clone() }
            })
        })
        .collect();
    let Opened { receiver, more, mut send } = setup.open(&flow.legs, &datagrams);
    let live = more.iter().all(|receiver| receiver.caps().live) && receiver.caps().live;
    let frames = Arc::new(Mutex::new(Vec::new()));
    let into = frames.clone();
    // A machine that stalls between the two copies of a packet makes one leg seem so much later than the other.
    let redundancy = Class::Other(Duration::from_secs(1));
    let (output, incomplete, frames_at_most) = (Output::Wire, Incomplete::Show, FRAMES + 6);
    let settings = Settings { output, incomplete, redundancy, frames: frames_at_most, ..Settings::default() };
    let deliver = Box::new(move |frame: Frame, _| into.lock().unwrap().push(frame));
    let mut pipeline = HostPipeline::open(receiver, &flow, &settings, deliver).unwrap();
    for receiver in more {
        pipeline.add(receiver).map_err(|(error, _)| error).unwrap();
    }
    let mut step = || match pipeline.step() {
        Ok(progress) => progress,
        Err(RxError::End) => Progress::Idle,
        Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{error}"),
    };
    for part in datagrams.chunks(AT_ONCE) {
        part.iter().for_each(&mut send);
        while step() == Progress::Busy {}
    }
    // Frames with holes end by the time that passes; a recording has none but that of its packets.
    let begun = Instant::now();
    while live && frames.lock().unwrap().len() < FRAMES && begun.elapsed() < PATIENCE {
        step();
    }
    pipeline.finish(&mut Vec::new()).unwrap();
    let (packets, counts) = (pipeline.depacketiser().counters(), pipeline.frames());
    let legs = pipeline.depacketiser().legs();
    drop(pipeline);
    let frames = std::mem::take(&mut *frames.lock().unwrap());
    Outcome { frames, packets, legs, counts }
}

/// Every frame is there; its loss map names the octets of these packets, and all others are right.
fn check(outcome: &Outcome, sent: &[Sent], lost: &BTreeSet<usize>) {
    let row = wire().row_octets();
    assert_eq!(outcome.frames.len(), FRAMES, "{:?} {:?}", outcome.counts, outcome.packets);
    for (n, frame) in outcome.frames.iter().enumerate() {
        let of_frame = sent.iter().enumerate().filter(|(i, p)| p.frame == n && lost.contains(i));
        let expected: BTreeSet<u32> =
            of_frame.flat_map(|(_, p)| &p.sources).flat_map(|s| s.at..s.at + u32::from(s.len)).collect();
        let runs = frame.meta().missing.iter();
        let missing: BTreeSet<u32> = runs.flat_map(|m| (0..m.len).map(|i| m.row * row + m.octet + i)).collect();
        assert_eq!(missing, expected, "the loss map of frame {n}");
        assert_eq!((frame.meta().number, frame.meta().complete), (n as u64, expected.is_empty()));
        let picture = support::picture(wire(), n);
        let wrong =
            (0..picture.len()).find(|at| frame.octets()[*at] != picture[*at] && !missing.contains(&(*at as u32)));
        assert_eq!(wrong, None, "frame {n}");
    }
    let (whole, holed) = (outcome.frames.iter().filter(|f| f.meta().complete).count(), &outcome.counts);
    assert_eq!((holed.complete, holed.incomplete), (whole as u64, (FRAMES - whole) as u64));
    assert_eq!((holed.dropped, outcome.packets.lost), (0, lost.len() as u64), "{:?}", outcome.packets);
}

pub fn a_stream_becomes_the_frames_that_were_sent(setup: &dyn Setup) {
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    let outcome = play(setup, &sent, 1, |_| &[0]);
    check(&outcome, &sent, &BTreeSet::new());
    assert_eq!(outcome.packets.received, sent.len() as u64);
}

pub fn what_was_lost_is_located(setup: &dyn Setup) {
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    let per_frame = sent.len() / FRAMES;
    // One, a run, the end of a frame with the beginning of the next; not the first and the last, of which nobody can know.
    let mut lost: BTreeSet<usize> = [per_frame + 7].into();
    lost.extend(2 * per_frame + 40..2 * per_frame + 60);
    lost.extend(4 * per_frame - 3..4 * per_frame + 2);
    let came: Vec<_> = sent.iter().enumerate().filter(|(n, _)| !lost.contains(n)).map(|(_, p)| p.clone()).collect();
    let outcome = play(setup, &came, 1, |_| &[0]);
    check(&outcome, &sent, &lost);
}

pub fn two_legs_make_up_for_each_other(setup: &dyn Setup) {
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    // Every seventh packet is missing on one leg, every fifth on the other, and every 35th on both: not in the first frame,
    // which would not be told from one that began before.
    let first = sent.len() / FRAMES;
    let legs = move |n: usize| -> &'static [usize] {
        match (n % 7 == 3, n % 5 == 3) {
            (false, false) => &[0, 1],
            (true, false) => &[1],
            (false, true) => &[0],
            (true, true) if n < first => &[0],
            (true, true) => &[],
        }
    };
    let lost: BTreeSet<usize> = (0..sent.len()).filter(|n| legs(*n).is_empty()).collect();
    let outcome = play(setup, &sent, 2, legs);
    check(&outcome, &sent, &lost);
    let count = |wanted: &dyn Fn(&[usize]) -> bool| (0..sent.len()).filter(|n| wanted(legs(*n))).count() as u64;
    let redundant: u64 = outcome.legs.iter().map(|leg| leg.redundant).sum();
    assert_eq!((outcome.packets.duplicate, redundant), (0, count(&|by| by.len() == 2)), "{:?}", outcome.legs);
    for (number, leg) in outcome.legs.iter().enumerate() {
        assert_eq!((leg.received, leg.late), (count(&|by| by.contains(&number)), 0), "leg {number}: {leg:?}");
        assert_eq!(leg.received + leg.lost, sent.len() as u64, "leg {number}: {leg:?}");
    }
}

pub fn one_of_two_legs_is_enough(setup: &dyn Setup) {
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    // The first one dies in the middle of a frame, and the second one begins to live.
    let half = sent.len() / 2 + 7;
    let outcome = play(setup, &sent, 2, |n| if n < half { &[0] } else { &[1] });
    check(&outcome, &sent, &BTreeSet::new());
    assert_eq!((outcome.packets.received, outcome.packets.duplicate), (sent.len() as u64, 0));
    let used: Vec<u64> = outcome.legs.iter().map(|leg| leg.used).collect();
    assert_eq!(used, [half as u64, (sent.len() - half) as u64]);
}
