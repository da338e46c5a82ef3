//! Packets that somebody forges from the address of the true sender.

use crate::support::*;
use gdmedia::depacketise::{Config, Depacketiser, Packet};
use gdmedia::event::Event;
use gdmedia::merge::Class;
use gdmedia::packetise::Style;
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::stats::Reason;
use gdmedia::time::Tai;

const FRAMES: usize = 12;
/// Forged packets for each true one.
const FORGED: usize = 20;

/// What somebody sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Octets without meaning.
    Noise,
    /// The right payload type; SSRC, sequence number, timestamp, row and offset by chance.
    AnySender,
    /// The same with the true SSRC.
    TrueSsrc,
    /// The same with the true SSRC and timestamp: only the sequence number is far off.
    TrueTimestamp,
    /// A sender that goes on by itself, with its own SSRC.
    SecondSender,
}

const KINDS: [Kind; 5] = [Kind::Noise, Kind::AnySender, Kind::TrueSsrc, Kind::TrueTimestamp, Kind::SecondSender];

struct Forger {
    kind: Kind,
    state: u64,
    count: u32,
}

impl Forger {
    fn new(kind: Kind) -> Self {
        Forger { kind, state: 1, count: 0 }
    }
    fn next(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 32) as u32
    }
    /// A packet that comes beside a true one.
    fn forge(&mut self, beside: &Sent) -> Sent {
        self.count += 1;
        let mut packet = beside.clone();
        packet.octets.truncate(20 + 160);
        packet.octets.resize(20 + 160, 0x66);
        packet.present = packet.octets.len();
        if self.kind == Kind::Noise {
            for at in 0..packet.octets.len() {
                packet.octets[at] = self.next() as u8;
            }
            return packet;
        }
        packet.octets[..2].copy_from_slice(&[0x80, 96 | (self.next() as u8 & 0x80)]);
        let (ssrc, sequence, timestamp, row) = (self.next(), self.next(), self.next(), self.next() % 40);
        packet.set_ssrc(if matches!(self.kind, Kind::TrueSsrc | Kind::TrueTimestamp) { 0 } else { ssrc });
        // Never among those that the true sender is about to use.
        let sequence = beside.sequence().wrapping_add(0x4000_0000 + sequence % 0x7000_0000);
        packet.set_sequence(sequence);
        if self.kind != Kind::TrueTimestamp {
            packet.set_timestamp(timestamp);
        }
        packet.octets[14..20].copy_from_slice(&[0, 160, 0, row as u8, 0, 0]);
        if self.kind == Kind::SecondSender {
            packet.set_ssrc(0x0bad_5eed);
            packet.set_sequence(0x7000_0000 + self.count);
            packet.set_timestamp(beside.timestamp() + 1000);
        }
        packet
    }
}

fn stream() -> (gdmedia::format::WireFormat, Vec<Sent>) {
    let format = format(Sampling::YCbCr422, Depth::D10, 64, 32, Scan::Progressive);
    (format, Sender::new(format, Style::new(EVEN), 65_500).frames(FRAMES))
}

/// A packet by a leg.
fn by(leg: u8, packet: &Sent) -> Sent {
    Sent { leg, ..packet.clone() }
}

/// The true stream with forged packets between.
fn beset(kind: Kind, sent: &[Sent]) -> Vec<Sent> {
    let mut forger = Forger::new(kind);
    let mut all = Vec::new();
    for (n, packet) in sent.iter().enumerate() {
        all.push(packet.clone());
        // Whoever comes first is the flow: the forger begins when a frame has come.
        if n >= 32 {
            all.extend((0..FORGED).map(|_| forger.forge(packet)));
        }
    }
    all
}

/// What a test says when it fails.
fn tell(kind: Kind, receiver: &Receiver) {
    let shown = receiver.shown();
    let frames: Vec<_> = shown.iter().map(|o| (o.end.fate, o.end.timestamp, o.end.packets, &o.missing)).collect();
    println!("{kind:?}: {frames:?}, {:?}, {:?}", receiver.dep.counters(), receiver.dep.legs());
}

#[test]
fn the_true_stream_stays_whole_beside_twenty_times_as_much() {
    let (format, sent) = stream();
    for kind in KINDS {
        let mut receiver = Receiver::new(format);
        let all = beset(kind, &sent);
        receiver.feed(&all);
        receiver.finish();
        tell(kind, &receiver);
        check_all(&receiver, 0, FRAMES);
        let counts = receiver.dep.counters();
        assert_eq!((counts.received, counts.lost), (sent.len() as u64, 0), "{kind:?}: {counts:?}");
        let forged = (all.len() - sent.len()) as u64;
        let counted = counts.rejected.total() + counts.late + counts.duplicate;
        assert!(counted >= forged, "{kind:?}: {forged} were forged: {counts:?}");
        if kind != Kind::Noise {
            assert!(counts.rejected.get(Reason::Ssrc) > forged / 2, "{kind:?}: {counts:?}");
        }
    }
}

/// As a busy machine finds them: thousands between two packets of a frame.
#[test]
fn forged_packets_in_long_runs_close_no_frame() {
    let (format, sent) = stream();
    // Sixty-four packets in order are a sender that took over.
    for kind in KINDS.into_iter().filter(|kind| *kind != Kind::SecondSender) {
        let mut receiver = Receiver::new(format);
        let mut forger = Forger::new(kind);
        for (n, packet) in sent.iter().enumerate() {
            receiver.feed(std::slice::from_ref(packet));
            if n >= 32 && n % 8 == 5 {
                let run: Vec<Sent> = (0..1000).map(|_| forger.forge(packet)).collect();
                receiver.feed(&run);
            }
        }
        receiver.finish();
        tell(kind, &receiver);
        check_all(&receiver, 0, FRAMES);
        let counts = receiver.dep.counters();
        assert_eq!((counts.received, counts.lost, counts.late), (sent.len() as u64, 0, 0), "{kind:?}: {counts:?}");
    }
}

#[test]
fn one_leg_that_is_beset_does_not_touch_the_other() {
    let (format, sent) = stream();
    for kind in KINDS {
        let config = Config::new(format, 96, Some(RATE)).with_legs(2, Class::A).unwrap();
        let mut receiver = Receiver::with(config);
        let mut forger = Forger::new(kind);
        for (n, packet) in sent.iter().enumerate() {
            // The leg that is beset loses every packet of three frames as well.
            if !(100..196).contains(&n) {
                receiver.feed(&[by(0, packet)]);
            }
            if n >= 32 {
                let forged: Vec<Sent> = (0..FORGED).map(|_| forger.forge(packet)).collect();
                receiver.feed(&forged);
            }
            receiver.feed(&[by(1, packet)]);
        }
        receiver.finish();
        tell(kind, &receiver);
        check_all(&receiver, 0, FRAMES);
        let (counts, legs) = (receiver.dep.counters(), receiver.dep.legs());
        let all = sent.len() as u64;
        assert_eq!((counts.received, counts.lost), (all, 0), "{kind:?}: {counts:?}");
        assert_eq!((legs[1].received, legs[1].lost, legs[1].foreign), (all, 0, 0), "{kind:?}: {legs:?}");
        assert_eq!(legs[0].received + legs[0].lost, all, "{kind:?}: {legs:?}");
        // Another sender may take the leg over while its own one is silent; the flow goes on by the other leg.
        if kind != Kind::SecondSender {
            assert_eq!(legs[0].lost, 96, "{kind:?}: {legs:?}");
        }
    }
}

#[test]
fn events_about_forged_packets_are_few() {
    let (format, sent) = stream();
    for kind in KINDS {
        let config = Config::new(format, 96, Some(RATE)).with_legs(2, Class::A).unwrap();
        let mut receiver = Receiver::with(config);
        let (mut events, mut forger) = (Vec::<Event>::new(), Forger::new(kind));
        for packet in &sent {
            receiver.feed(&[by(0, packet)]);
            receiver.feed(&[by(1, packet)]);
            let forged: Vec<Sent> = (0..FORGED).map(|_| forger.forge(packet)).collect();
            receiver.feed(&forged);
            receiver.dep.take_events(&mut events);
        }
        // Less than half a second, and some thousand forged packets.
        assert!(events.len() < 32, "{kind:?}: {} events: {events:?}", events.len());
    }
}

/// What forged packets cost: run under callgrind with two numbers of packets, and divide the difference.
///
///     GDMEDIA_FORGED=AnySender,100000 valgrind --tool=callgrind TEST_BINARY --ignored cost_of_a_packet
#[test]
#[ignore = "measures nothing by itself"]
fn cost_of_a_packet() {
    let wanted = std::env::var("GDMEDIA_FORGED").unwrap_or_else(|_| "true,10000".into());
    let (name, count) = wanted.split_once(',').unwrap();
    let count: usize = count.parse().unwrap();
    let kind = KINDS.into_iter().find(|kind| format!("{kind:?}") == name);
    let format = format(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Progressive);
    let sent = Sender::new(format, Style::new(EVEN), 0).frames(1);
    let legs: usize = std::env::var("GDMEDIA_LEGS").map_or(1, |legs| legs.parse().unwrap());
    let config = Config::new(format, 96, Some(RATE)).with_legs(legs, Class::A).unwrap();
    let mut depacketiser = Depacketiser::video(config);
    let mut forger = kind.map(Forger::new);
    // One true packet, then either the true ones that follow or as many forged ones.
    let heads: Vec<[u8; 64]> = sent
        .iter()
        .map(|beside| {
            let packet = forger.as_mut().map_or_else(|| beside.clone(), |forger| forger.forge(beside));
            packet.octets[..64].try_into().unwrap()
        })
        .collect();
    let (mut sequence, mut at, mut batch) = (0u32, 1_700_000_000_000_000_000u64, Vec::with_capacity(64));
    for (n, head) in heads.iter().cycle().take(count).enumerate() {
        let mut head = *head;
        if kind.is_none() {
            // The true sender goes on.
            let frame = sequence / sent.len() as u32;
            head[2..4].copy_from_slice(&(sequence as u16).to_be_bytes());
            head[4..8].copy_from_slice(&(frame * 3003).to_be_bytes());
            head[12..14].copy_from_slice(&((sequence >> 16) as u16).to_be_bytes());
            sequence += 1;
        }
        at += 7_000;
        batch.push((head, at));
        if batch.len() == 64 {
            let leg = if legs > 1 { (n / 64 % 2) as u8 } else { 0 };
            depacketiser.push(batch.iter().enumerate().map(|(slot, (head, at))| Packet {
                slot: slot as u32,
                head,
                octets: 1220,
                wire_octets: 1220,
                arrival: Tai(*at),
                leg,
            }));
            batch.clear();
        }
    }
    println!("{:?}", depacketiser.counters());
}

proptest::proptest! {
    /// What a host without a kernel answers to frames that are nearly right: see [`gdmedia::fuzzing::igmp_arp`].
    #[test]
    fn frames_to_a_host_that_answers_for_itself(how in 0u8..2, frames in proptest::collection::vec((0usize..4, proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)), 0..40)) {
        // Ethernet and ARP; IPv4 with IGMP; a tag; nothing of it.
        let starts: [&[u8]; 4] = [
            &[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &[1, 0, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0, 0x46, 0xc0, 0, 32, 0, 0, 0x40, 0, 1, 2],
            &[255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 9, 0x81, 0, 0, 100, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &[],
        ];
        let mut octets = vec![how, 30];
        for (start, rest) in frames {
            let frame = [starts[start], &rest].concat();
            octets.push(frame.len() as u8);
            octets.extend(frame);
        }
        gdmedia::fuzzing::igmp_arp(&octets);
    }
}
