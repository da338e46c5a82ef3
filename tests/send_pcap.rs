//! What the sender writes into captures, read back: every format, packing and scan; times by the schedule.

use gdmedia::depacketise::{Config, Depacketiser, Packet};
use gdmedia::format::{Output, WireFormat};
use gdmedia::kernel::{Colour, Conversion, Level, Run, pairs, select};
use gdmedia::plan::{Fate, Plan, Step};
use gdmedia::sdp::{Colorimetry, Depth, Packing, Range, Ratio, Sampling, Scan, Tcs, Video};
use gdmedia::send::file::{DEFAULT_START, Extent, route, write};
use gdmedia::send::pattern::{Pattern, read_number};
use gdmedia::send::schedule::Pacing;
use gdmedia::send::source::PatternSource;
use gdmedia::send::stream::{Choice, Stream};
use gdmedia::time::Tai;
use gdmedia::wire::capture::{Capture, PcapWriter};
use gdmedia::wire::net::{Content, Link, parse};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

const P5994: Ratio = Ratio { num: 60000, den: 1001 };
const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

fn video(sampling: Sampling, depth: Depth, width: u32, height: u32, scan: Scan) -> Video {
    Video {
        scan,
        colorimetry: COLOUR.colorimetry,
        tcs: COLOUR.tcs,
        range: COLOUR.range,
        ..Video::new(sampling, depth, width, height, Some(P5994))
    }
}

fn pattern(stream: &Stream) -> Pattern {
    Pattern::new(stream.format, COLOUR, 75, "TEST")
}

/// The capture file of the first frames of a stream.
fn capture(stream: &mut Stream, frames: u64, legs: &[&str]) -> Vec<u8> {
    let mut source = PatternSource::new(pattern(stream), 0);
    let routes: Vec<_> = legs.iter().map(|leg| route(leg.parse().unwrap(), None, 16).unwrap()).collect();
    let mut file = Vec::new();
    let mut out = PcapWriter::new(&mut file, "test", Link::Ethernet).unwrap();
    let extent = Extent { start: DEFAULT_START, frames: Some(frames), duration: None };
    let written = write(stream, &mut source, &routes, &mut out, extent, None, &AtomicBool::new(false)).unwrap();
    assert_eq!(written.frames, frames);
    assert_eq!(written.packets, frames * stream.template.packets.len() as u64);
    out.finish().unwrap();
    file
}

/// Time, destination and UDP payload of every record.
fn records(file: &[u8]) -> Vec<(u64, String, Vec<u8>)> {
    let mut capture = Capture::new(file, "test").unwrap();
    let mut records = Vec::new();
    while let Some(record) = capture.next_record().unwrap() {
        let Content::Udp(datagram) = parse(record.link, record.octets) else { panic!("not UDP") };
        let payload = record.octets[datagram.payload.clone()].to_vec();
        assert_eq!(payload.len(), usize::from(datagram.octets));
        records.push((record.time, datagram.destination.to_string(), payload));
    }
    records
}

/// Places octets as a kernel of the wire format would.
struct Placer {
    format: WireFormat,
    open: BTreeMap<u8, Vec<u8>>,
    whole: Vec<Vec<u8>>,
}

impl Placer {
    fn apply(&mut self, plan: &Plan, packets: &[&[u8]]) {
        for step in &plan.steps {
            match step {
                Step::Open(id) => {
                    self.open.insert(id.0, vec![0xee; self.format.frame_octets() as usize]);
                }
                Step::Place(id, range) => {
                    let frame = self.open.get_mut(&id.0).unwrap();
                    for p in &plan.placements[range.start as usize..range.end as usize] {
                        let source = &packets[p.slot as usize][p.src as usize..][..p.len as usize];
                        frame[p.dst as usize..][..p.len as usize].copy_from_slice(source);
                    }
                }
                Step::Close(id, end) => {
                    assert_eq!(end.fate, Fate::Complete);
                    self.whole.push(self.open.remove(&id.0).unwrap());
                }
            }
        }
    }
}

fn decode(format: WireFormat, file: &[u8]) -> Vec<Vec<u8>> {
    let mut depacketiser = Depacketiser::video(Config::new(format, 96, Some(P5994)));
    let mut placer = Placer { format, open: BTreeMap::new(), whole: Vec::new() };
    for (time, _, packet) in records(file) {
        let octets = packet.len() as u16;
        let one = Packet { slot: 0, head: &packet, octets, wire_octets: octets, arrival: Tai(time), leg: 0 };
        let plan = depacketiser.push(std::iter::once(one));
        placer.apply(plan, &[&packet]);
    }
    placer.apply(depacketiser.finish(), &[]);
    let counters = depacketiser.counters();
    assert_eq!((counters.lost, counters.duplicate, counters.rejected.total()), (0, 0, 0));
    placer.whole
}

fn formats() -> impl Iterator<Item = (Sampling, Depth, Scan)> {
    Sampling::ALL.iter().flat_map(|&s| {
        Depth::ALL.iter().flat_map(move |&d| {
            Scan::ALL
                .iter()
                .filter(move |&&scan| WireFormat::new(s, d, 64, 64, scan).is_some())
                .map(move |&scan| (s, d, scan))
        })
    })
}

#[test]
fn every_format_decodes_to_the_frames_sent() {
    let mut streams = 0;
    for (sampling, depth, scan) in formats() {
        for (width, height) in [(160, 90), (61, 33)] {
            for (packing, srds) in [(Packing::Gpm, None), (Packing::Gpm, Some(3)), (Packing::Bpm, None)] {
                let what = format!("{sampling} {depth} {width}x{height} {scan} {packing} {srds:?}");
                let video = Video { packing, ..video(sampling, depth, width, height, scan) };
                let choice = Choice { srds, sequence: 0xffff_fff0, ..Choice::new(Pacing::Gapped) };
                let mut stream = match Stream::new(&video, choice) {
                    Ok(stream) => stream,
                    Err(e) => {
                        let pgroup = sampling.pgroup(depth).unwrap().octets;
                        assert!(packing == Packing::Bpm && 180 % pgroup != 0, "{what}: {e}");
                        continue;
                    }
                };
                let mut pattern = pattern(&stream);
                let file = capture(&mut stream, 3, &["239.1.1.1:5004"]);
                let frames = decode(stream.format, &file);
                assert_eq!(frames.len(), 3, "{what}");
                for (number, frame) in (0..).zip(&frames) {
                    assert_eq!(pattern.verify(number, frame), None, "{what}, frame {number}");
                }
                streams += 1;
            }
        }
    }
    // 52 rows of the table, of which 9 are progressive only: 138 with their scans; six 4:2:2 rows of 16 bits have no BPM.
    assert_eq!(streams, 2 * (3 * (3 * 43 + 9) - 3 * 6));
}

/// The numbers in the picture survive every conversion.
#[test]
fn the_number_is_read_in_every_output() {
    let mut read = 0;
    for pair in pairs() {
        for scan in Scan::ALL {
            for (width, height) in [(128, 72), (349, 91)] {
                let Some(layout) = pair.layout(width, height, *scan) else { continue };
                let conversion = Conversion { layout, colour: COLOUR };
                let format = *conversion.wire();
                let mut wire = vec![0; format.frame_octets() as usize];
                Pattern::new(format, COLOUR, 75, "").frame(0xab_cdef_0123, &mut wire);
                let mut out = vec![0; conversion.layout.size];
                if conversion.output() == Output::Wire {
                    out[..wire.len()].copy_from_slice(&wire);
                } else {
                    let (run, _) = select(&conversion, Level::Avx2);
                    for (row, src) in (0..).zip(wire.chunks_exact(format.row_octets() as usize)) {
                        run(&conversion, Run { src, groups: format.row_pgroups(), row, group: 0 }, &mut out);
                    }
                }
                let number = read_number(&conversion.layout, &out);
                assert_eq!(number, Some(0xab_cdef_0123), "{pair} {width}x{height} {scan}");
                read += 1;
            }
        }
    }
    assert!(read > 500, "{read}");
}

/// 1080p59.94 gapped by hand, from 1 700 000 037 s on: N = ceil(1 700 000 037 * 60000 / 1001) = 101 898 104 116,
/// N * TFRAME = 1 700 000 037.001 933 333 s, then 43/1125 of a frame (637.674 us), then TRS = 3.7074 us.
#[test]
fn virtual_times_are_those_of_the_schedule() {
    let mut stream =
        Stream::new(&video(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Progressive), Choice::new(Pacing::Gapped))
            .unwrap();
    let records = records(&capture(&mut stream, 2, &["127.0.0.1:5004"]));
    assert_eq!(records.len(), 2 * 4320);
    assert_eq!(records[0].0, 1_700_000_037_002_571_007);
    let within: Vec<u64> = records.iter().map(|r| r.0 - records[0].0).collect();
    for (packet, ns) in [(1, 3_707), (27, 100_100), (4319, 16_012_292), (4320, 16_683_333)] {
        assert!(within[packet].abs_diff(ns) <= 1, "packet {packet}: {}", within[packet]);
    }
    // floor(101 898 104 116 * 1501.5) mod 2^32, and the next.
    let timestamp = |r: &(u64, String, Vec<u8>)| u32::from_be_bytes(r.2[4..8].try_into().unwrap());
    assert_eq!(timestamp(&records[0]), 383_344_766);
    assert_eq!(timestamp(&records[4320]), 383_346_267);
    // Four packets of 1200 octets a row.
    assert!(records.iter().all(|r| r.2.len() == 1220));
    assert_eq!(records.iter().filter(|r| r.2[1] & 0x80 != 0).count(), 2);
}

#[test]
fn the_same_file_every_time() {
    let video = video(Sampling::YCbCr422, Depth::D10, 160, 90, Scan::Interlaced);
    let file = || capture(&mut Stream::new(&video, Choice::new(Pacing::Linear)).unwrap(), 2, &["[ff15::1]:5004"]);
    let first = file();
    assert!(first == file());
}

#[test]
fn both_legs_carry_the_same_packets() {
    let video = video(Sampling::YCbCr422, Depth::D10, 160, 90, Scan::Progressive);
    let mut stream = Stream::new(&video, Choice { sequence: 65_535, ..Choice::new(Pacing::Linear) }).unwrap();
    let records = records(&capture(&mut stream, 1, &["239.1.1.1:5004", "239.2.2.2:5006"]));
    assert_eq!(records.len(), 180);
    for pair in records.chunks(2) {
        assert_eq!((pair[0].1.as_str(), pair[1].1.as_str()), ("239.1.1.1:5004", "239.2.2.2:5006"));
        assert_eq!((pair[0].0, &pair[0].2), (pair[1].0, &pair[1].2));
    }
    // The 16-bit number wraps, the extended one counts on.
    assert_eq!(records[0].2[2..4], [0xff, 0xff]);
    assert_eq!(records[2].2[2..4], [0, 0]);
    assert_eq!((&records[0].2[12..14], &records[2].2[12..14]), (&[0u8, 0][..], &[0u8, 1][..]));
}
