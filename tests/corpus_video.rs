//! The ST 2110-20 capture of the corpus through the depacketiser; expected values are from its index.

use gdmedia::depacketise::{Config, Depacketiser, Packet};
use gdmedia::format::WireFormat;
use gdmedia::plan::{Fate, FrameEnd, Missing, Step};
use gdmedia::rx::{Pace, Pcap, Receiver, RxError};
use gdmedia::sdp::{Depth, Leg, Ratio, Sampling, Scan, SourceFilter};
use gdmedia::stats::Reason;
use gdmedia::time::{Alignment, MediaClock};
use std::path::PathBuf;

fn capture(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("GDMEDIA_CORPUS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"), PathBuf::from);
    let path = root.join("pcap").join(name);
    if path.is_file() {
        return Some(path);
    }
    println!("skipped: no corpus");
    None
}

#[test]
fn fields_of_1080i_cut_by_a_snap_length() {
    let Some(path) = capture("st2110-20_1080i5994_422-10_gpm_snap128.pcap") else { return };
    let mut rx = Pcap::open(&path, Pace::Full).unwrap();
    rx.join(0, &leg()).unwrap();
    let format = WireFormat::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Interlaced).unwrap();
    let rate = Ratio { num: 30000, den: 1001 };
    let mut dep = Depacketiser::video(Config::new(format, 96, Some(rate)));
    let mut frames: Vec<(FrameEnd, Vec<Missing>)> = vec![];
    let mut placed = vec![0u8; format.frame_octets() as usize];
    let mut octets = 0u64;
    loop {
        let lease = match rx.poll() {
            Ok(lease) => lease,
            Err(RxError::End) => break,
            Err(RxError::Failed(e) | RxError::Gone(e)) => panic!("{e}"),
        };
        let ring = rx.ring();
        let slots = lease.slots();
        let plan = dep.push(slots.iter().enumerate().map(|(slot, s)| Packet {
            slot: slot as u32,
            head: ring.head(s),
            octets: s.octets,
            wire_octets: s.wire_octets,
            arrival: s.arrival,
            leg: s.leg,
        }));
        for p in &plan.placements {
            // 66 octets of 1200 are present: thirteen pgroups of five, behind 20 octets of headers.
            assert_eq!((p.src, p.len, p.dst % 1200), (20, 65, 0));
            placed[p.dst as usize] += 1;
            octets += u64::from(p.len);
        }
        frames.extend(plan.steps.iter().filter_map(|step| match step {
            Step::Close(_, end) => {
                let missing = &plan.missing[end.missing.start as usize..end.missing.end as usize];
                Some((end.clone(), missing.to_vec()))
            }
            _ => None,
        }));
        dep.check_invariants();
        rx.release(lease);
    }
    let plan = dep.finish();
    for step in &plan.steps {
        if let Step::Close(_, end) = step {
            let missing = &plan.missing[end.missing.start as usize..end.missing.end as usize];
            frames.push((end.clone(), missing.to_vec()));
        }
    }
    let c = dep.counters();
    assert_eq!((c.received, c.lost, c.late, c.duplicate, c.reordered, c.restarts), (21600, 0, 0, 0, 0, 0));
    assert_eq!((c.rejected.get(Reason::Truncated), c.rejected.total()), (21600, 21600));
    assert_eq!(octets, 21600 * 65);

    // Ten fields are five frames, every packet in its place in each of them.
    assert_eq!(frames.len(), 5);
    assert!((0..1080 * 4).all(|k| placed[k * 1200] == 5));
    assert_eq!(frames[0].0.fate, Fate::Acquiring);
    assert!(frames[1..].iter().all(|(end, _)| end.fate == Fate::Incomplete));
    let cut: Vec<_> =
        (0..1080).flat_map(|row| (0..4).map(move |n| Missing { row, octet: n * 1200 + 65, len: 1135 })).collect();
    for (n, (end, missing)) in frames.iter().enumerate() {
        assert_eq!(missing, &cut);
        assert_eq!(end.packets, 4320);
        let second = end.second_timestamp.unwrap();
        assert!((1501..=1502).contains(&second.wrapping_sub(end.timestamp)));
        if n > 0 {
            assert_eq!(end.timestamp.wrapping_sub(frames[n - 1].0.timestamp), 3003);
        }
        // The capture clock is TAI: the first packet comes 611 to 622 us after its timestamp.
        let latency = MediaClock::VIDEO.unwrap(end.timestamp, end.first_arrival).latency_ns;
        assert_eq!(Alignment::judge(latency), Alignment::Aligned);
        assert!((611_000..623_000).contains(&latency), "{latency}");
    }
    let Depacketiser::Video(video) = &dep;
    assert!(!video.second_field_first());
}

fn leg() -> Leg {
    let destination = "239.0.1.2".parse().unwrap();
    Leg { destination, port: 50000, sources: SourceFilter::Any, ttl: None, mid: None }
}
