//! Cost of the depacketiser a packet: 1080p, 4:2:2 10 bit, in batches of 256. Of two legs every packet counts, copies too.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gdmedia::depacketise::{Config, Depacketiser, Packet};
use gdmedia::format::WireFormat;
use gdmedia::merge::Class;
use gdmedia::packetise::{Cut, Packetiser, STANDARD_UDP, Style};
use gdmedia::sdp::{Depth, Ratio, Sampling, Scan};
use gdmedia::time::{Tai, VIDEO_CLOCK, frame_ticks};
use std::hint::black_box;

const RATE: Ratio = Ratio { num: 60000, den: 1001 };
const FRAMES: u64 = 8;
/// Nanoseconds from packet to packet.
const STEP: u64 = 3_800;

/// The first 64 octets of every packet, which is all that the depacketiser looks at, and its length.
struct Stream {
    heads: Vec<[u8; 64]>,
    octets: Vec<u16>,
}

fn stream(scan: Scan, cut: Cut, shuffle: bool) -> Stream {
    let format = WireFormat::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, scan).expect("a format of the standard");
    let mut packetiser = Packetiser::new(format, Style::new(cut), 0).expect("a cut that suits the format");
    let mut stream = Stream { heads: vec![], octets: vec![] };
    for n in 0..FRAMES {
        let timestamp = frame_ticks(n, RATE, VIDEO_CLOCK) as u32;
        for built in packetiser.frame(timestamp, timestamp + 750) {
            let mut head = [0; 64];
            head[..built.header().len()].copy_from_slice(built.header());
            stream.heads.push(head);
            stream.octets.push(built.octets() as u16);
        }
    }
    if shuffle {
        // One packet in eight is late by up to 31 places.
        let mut seed = 1u64;
        for n in 0..stream.heads.len() - 32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if seed >> 61 == 0 {
                let by = 1 + (seed >> 32) as usize % 31;
                stream.heads.swap(n, n + by);
                stream.octets.swap(n, n + by);
            }
        }
    }
    stream
}

fn depacketise(c: &mut Criterion) {
    let mut group = c.benchmark_group("depacketise");
    let even = Cut::Even { udp: STANDARD_UDP };
    for (name, scan, cut, shuffle, legs) in [
        ("gpm in order", Scan::Progressive, even, false, 1),
        ("gpm reordered", Scan::Progressive, even, true, 1),
        ("gpm interlaced", Scan::Interlaced, even, false, 1),
        ("bpm in order", Scan::Progressive, Cut::Bpm { fill: false }, false, 1),
        ("two legs", Scan::Progressive, even, false, 2),
    ] {
        let stream = stream(scan, cut, shuffle);
        let format = WireFormat::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, scan).expect("as above");
        group.throughput(Throughput::Elements((stream.heads.len() * legs) as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            let config = Config::new(format, 96, Some(RATE)).with_legs(legs, Class::A).expect("a window that fits");
            let mut depacketiser = Depacketiser::video(config);
            let mut now = 0;
            b.iter(|| {
                for (heads, octets) in stream.heads.chunks(256).zip(stream.octets.chunks(256)) {
                    // Each leg has its own batches.
                    for leg in 0..legs {
                        let packets = heads.iter().zip(octets).enumerate().map(|(slot, (head, octets))| Packet {
                            slot: slot as u32,
                            head,
                            octets: *octets,
                            wire_octets: *octets,
                            arrival: Tai(now + slot as u64 * STEP),
                            leg: leg as u8,
                        });
                        black_box(depacketiser.push(packets));
                    }
                    now += 256 * STEP;
                }
                depacketiser.finish();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, depacketise);
criterion_main!(benches);
