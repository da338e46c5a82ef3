//! From a capture through injected faults to frames: the loss maps name exactly what was removed, and the counters add up.

mod support;

use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::fault::FaultCounters;
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel};
use gdmedia::packetise::Cut;
use gdmedia::pipeline::{Incomplete, Pipeline};
use gdmedia::rx::fault::Done;
use gdmedia::rx::pcap::{Pace, Pcap};
use gdmedia::rx::{Fault, FaultPlan, Receiver as _, RxError};
use gdmedia::sdp::{Colorimetry, Depth, Leg, Range, Sampling, Scan, SourceFilter, Tcs};
use gdmedia::stats::{FrameCounters, PacketCounters};
use gdmedia::wire::capture::PcapWriter;
use gdmedia::wire::net::Route;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::{RATE, Sender, Sent, format, formats, picture};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
const FRAMES: usize = 6;

/// What came out.
struct Outcome {
    frames: Vec<Frame>,
    packets: PacketCounters,
    counts: FrameCounters,
    faults: FaultCounters,
    /// Numbers of the packets that were removed.
    removed: BTreeSet<usize>,
}

fn write(sent: &[Sent], path: &Path) -> Leg {
    let (from, to) = (SocketAddr::from(([192, 0, 2, 1], 5000)), SocketAddr::from(([239, 1, 1, 1], 5004)));
    let route = Route::new(from, to).unwrap();
    let mut writer = PcapWriter::create(path).unwrap();
    for p in sent {
        writer.datagram(p.arrival.0, &route, &p.octets).unwrap();
    }
    writer.finish().unwrap();
    Leg {
        destination: Ipv4Addr::new(239, 1, 1, 1).into(),
        port: 5004,
        sources: SourceFilter::Any,
        ttl: None,
        mid: None,
    }
}

fn play(wire: WireFormat, sent: &[Sent], plan: &FaultPlan) -> Outcome {
    let file = tempfile::NamedTempFile::new().unwrap();
    let leg = write(sent, file.path());
    let mut fault = Fault::new(Pcap::open(file.path(), Pace::Full).unwrap(), plan.clone()).unwrap();
    fault.join(0, &leg).unwrap();

    let layout = Layout::new(wire, Output::Wire).unwrap();
    let pool = FramePool::host(layout.clone(), FRAMES + 6).unwrap();
    let kernel = CpuKernel::new(Conversion { layout, colour: COLOUR }, None);
    let frames = Arc::new(Mutex::new(Vec::new()));
    let into = frames.clone();
    let deliver = Box::new(move |frame, _| into.lock().unwrap().push(frame));
    let depacketiser = Depacketiser::video(Config::new(wire, 96, Some(RATE)));
    let mut pipeline = Pipeline::new(fault, depacketiser, kernel, pool, Incomplete::Conceal, None, deliver);
    loop {
        match pipeline.step() {
            Ok(_) => pipeline.depacketiser().check_invariants(),
            Err(RxError::End) => break,
            Err(RxError::Failed(e) | RxError::Gone(e)) => panic!("{e}"),
        }
    }
    pipeline.finish(&mut Vec::new()).unwrap();
    let log = pipeline.receiver().log();
    let outcome = Outcome {
        removed: log.iter().filter(|e| e.done == Done::Removed).map(|e| e.index as usize).collect(),
        packets: pipeline.depacketiser().counters(),
        counts: pipeline.frames(),
        faults: pipeline.receiver().fault_counters(),
        frames: std::mem::take(&mut *frames.lock().unwrap()),
    };
    // The log's headers are those of the packets that were sent.
    for event in log {
        let octets = &sent[event.index as usize].octets;
        assert_eq!(event.header[..], octets[..32.min(octets.len())]);
    }
    outcome
}

/// Which octets of the wire-format frame its loss map names.
fn missing(frame: &Frame, wire: WireFormat) -> BTreeSet<u32> {
    let runs = frame.meta().missing.iter();
    runs.flat_map(|m| (0..m.len).map(move |i| m.row * wire.row_octets() + m.octet + i)).collect()
}

fn check(wire: WireFormat, sent: &[Sent], outcome: &Outcome, sender: &Sender) {
    let (mut shown, mut cut, mut whole_before) = (0, 0, false);
    for n in 0..FRAMES {
        let removed: BTreeSet<u32> = sent
            .iter()
            .enumerate()
            .filter(|(i, p)| p.frame == n && outcome.removed.contains(i))
            .flat_map(|(_, p)| p.sources.iter().flat_map(|s| s.at..s.at + u32::from(s.len)))
            .collect();
        let timestamp = sender.timestamps(n)[0];
        let frame = outcome.frames.iter().find(|f| f.meta().timestamp == timestamp);
        let Some(frame) = frame else {
            // The first one, or the last one when its end never came.
            let end = sent.iter().rposition(|p| p.frame == n).unwrap();
            let excused = n == 0 || (n == FRAMES - 1 && outcome.removed.contains(&end));
            assert!(excused && !removed.is_empty(), "frame {n} is not shown");
            cut += 1;
            continue;
        };
        shown += 1;
        assert_eq!(missing(frame, wire), removed, "the loss map of frame {n}");
        assert_eq!(frame.meta().complete, removed.is_empty());
        // What is not missing is right; what is missing shows the frame before.
        let (picture, before) = (picture(wire, n), n.checked_sub(1).map(|n| picture(wire, n)));
        let octets = frame.octets();
        for (at, sent) in picture.iter().enumerate() {
            if !removed.contains(&(at as u32)) {
                assert_eq!(octets[at], *sent, "frame {n}, octet {at}");
            } else if let Some(before) = before.as_ref().filter(|_| whole_before) {
                assert_eq!(octets[at], before[at], "frame {n}, octet {at}, concealed");
            }
        }
        whole_before = removed.is_empty();
    }
    assert_eq!(outcome.frames.len(), shown);
    assert_eq!(outcome.counts.acquiring, cut);
    let (c, f) = (outcome.packets, outcome.faults);
    // What was removed before the first packet that came, or behind the last one, nobody can know of.
    let came = |i: &usize| !outcome.removed.contains(i);
    let (first, last) = ((0..sent.len()).find(came).unwrap(), (0..sent.len()).rfind(came).unwrap());
    let lost = outcome.removed.range(first..=last).count() as u64;
    assert_eq!(c.lost, lost, "{c:?} {f:?}");
    assert_eq!(c.received + c.lost, (last - first + 1) as u64, "sent = received + lost: {c:?} {f:?}");
    assert_eq!(c.duplicate, f.duplicated, "{c:?} {f:?}");
    assert_eq!((c.late, c.restarts, c.rejected.total()), (0, 0, 0), "{c:?}");
}

fn run(wire: WireFormat, cut: Cut, plan: &FaultPlan) -> Outcome {
    let mut sender = Sender::plain(wire, cut);
    let sent = sender.frames(FRAMES);
    let outcome = play(wire, &sent, plan);
    check(wire, &sent, &outcome, &sender);
    outcome
}

fn small() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 64, 64, Scan::Progressive)
}

/// Two packets a row, 128 a frame.
const HALVES: Cut = Cut::Full { udp: 8 + 20 + 80, segments: 1 };

#[test]
fn nothing_is_missing_when_nothing_is_removed() {
    let outcome = run(small(), HALVES, &"dup=1/7,reorder=32,seed=1".parse().unwrap());
    assert_eq!(outcome.counts, FrameCounters { complete: FRAMES as u64, ..FrameCounters::default() });
    assert!(outcome.faults.duplicated > 50 && outcome.faults.held > 50, "{:?}", outcome.faults);
    assert!(outcome.packets.reordered > 50, "{:?}", outcome.packets);
}

#[test]
fn one_packet_in_a_thousand_of_a_large_picture() {
    let wire = format(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Progressive);
    let cut = Cut::Even { udp: 1460 };
    let outcome = run(wire, cut, &"loss=1/1000,dup=1/500,reorder=32@1/50,seed=7".parse().unwrap());
    assert_eq!(outcome.faults.seen, 4320 * FRAMES as u64);
    assert!((5..60).contains(&outcome.removed.len()), "{}", outcome.removed.len());
    assert!(outcome.counts.incomplete > 0);
}

#[test]
fn one_removed_packet_is_concealed_from_the_frame_before() {
    // The 300th packet: number 43 of the third frame, row 21, second half.
    let outcome = run(small(), HALVES, &"loss=every/300,reorder=8@1/3".parse().unwrap());
    assert_eq!(outcome.removed.iter().next(), Some(&299));
    let m = &outcome.frames[2].meta().missing;
    assert_eq!(m.iter().map(|m| (m.row, m.octet, m.len)).collect::<Vec<_>>(), [(21, 80, 80)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn loss_maps_and_counters_are_right_for_every_seed(
        seed: u64,
        which in 0_usize..14,
        interlaced: bool,
        loss in 8_u32..200,
        depth in 1_u32..=32,
        full: bool,
    ) {
        let list = formats(if interlaced { Scan::Interlaced } else { Scan::Progressive });
        let wire = list[which % list.len()];
        let cut = if full { Cut::Full { udp: 400, segments: 3 } } else { Cut::Full { udp: 300, segments: 1 } };
        let plan = format!("loss=1/{loss},dup=1/9,reorder={depth}@1/5,seed={seed}").parse().unwrap();
        run(wire, cut, &plan);
    }
}
