//! The sender on loopback, short runs, against a plain socket. Nothing here asserts a rate.

use gdmedia::kernel::Colour;
use gdmedia::sdp::{Colorimetry, Depth, Range, Ratio, Sampling, Scan, Tcs, Video};
use gdmedia::send::file::{DEFAULT_START, Extent, route, write};
use gdmedia::send::live::{self, Options, Report};
use gdmedia::send::pattern::Pattern;
use gdmedia::send::recording::{Choose, Recording};
use gdmedia::send::replay::{self, Tempo};
use gdmedia::send::schedule::Pacing;
use gdmedia::send::socket::{Outlet, Target};
use gdmedia::send::source::PatternSource;
use gdmedia::send::stream::{Choice, Stream};
use gdmedia::wire::capture::PcapWriter;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

fn video(scan: Scan) -> Video {
    Video { scan, ..Video::new(Sampling::YCbCr422, Depth::D10, 320, 90, Some(Ratio { num: 50, den: 1 })) }
}

fn stream(scan: Scan, choice: Choice) -> (Stream, PatternSource) {
    let stream = Stream::new(&video(scan), choice).unwrap();
    let colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
    let source = PatternSource::new(Pattern::new(stream.format, colour, 75, "LIVE"), 0);
    (stream, source)
}

/// A socket whose packets are collected until `done` is set and nothing more is there.
struct Ear {
    address: SocketAddr,
    done: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

impl Ear {
    fn new(address: &str) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20);
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let address = socket.local_addr().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let finished = done.clone();
        let thread = std::thread::spawn(move || {
            let mut packets = Vec::new();
            let mut buffer = [0; 9000];
            loop {
                match socket.recv(&mut buffer) {
                    Ok(n) => packets.push(buffer[..n].to_vec()),
                    Err(_) if finished.load(Ordering::Relaxed) => return packets,
                    Err(_) => {}
                }
            }
        });
        Ear { address, done, thread }
    }
    fn outlet(&self) -> Outlet {
        Outlet::open(Target { destination: self.address, interface: None, ttl: 1, loopback: true }).unwrap()
    }
    fn packets(self) -> Vec<Vec<u8>> {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn sequence(packet: &[u8]) -> u32 {
    u32::from_be_bytes([packet[12], packet[13], packet[2], packet[3]])
}

fn send(stream: &mut Stream, source: &mut PatternSource, outlets: &mut [Outlet], options: &Options) -> Report {
    live::run(stream, source, outlets, options, &AtomicBool::new(false), &mut |_| {}).unwrap()
}

#[test]
fn every_packet_arrives_in_order_and_size() {
    for (segment, scan, address) in [
        (true, Scan::Progressive, "127.0.0.1:0"),
        (false, Scan::Interlaced, "127.0.0.1:0"),
        (true, Scan::Psf, "[::1]:0"),
    ] {
        let ear = Ear::new(address);
        let first = 0x1_ffff - 40;
        let (mut stream, mut source) = stream(scan, Choice { sequence: first, ..Choice::new(Pacing::Linear) });
        let options = Options { frames: Some(10), segment, ..Options::default() };
        let report = send(&mut stream, &mut source, &mut [ear.outlet()], &options);
        assert_eq!((report.frames, report.packets, report.dropped, report.refused), (10, 900, 0, 0));
        assert_eq!(report.segmented, segment);
        let packets = ear.packets();
        assert_eq!(packets.len(), 900);
        for (index, packet) in packets.iter().enumerate() {
            assert_eq!(packet.len(), 12 + 8 + 800);
            assert_eq!(sequence(packet), first + index as u32);
        }
        // One timestamp a frame, two for fields; the marker at the end of each.
        let mut stamps: Vec<u32> = packets.iter().map(|p| u32::from_be_bytes(p[4..8].try_into().unwrap())).collect();
        stamps.dedup();
        assert_eq!(stamps.len(), if scan == Scan::Interlaced { 20 } else { 10 });
        let markers = packets.iter().filter(|p| p[1] & 0x80 != 0).count();
        assert_eq!(markers, if scan == Scan::Progressive { 10 } else { 20 });
    }
}

#[test]
fn two_legs_carry_the_same() {
    let (a, b) = (Ear::new("127.0.0.1:0"), Ear::new("127.0.0.1:0"));
    let (mut stream, mut source) = stream(Scan::Progressive, Choice::new(Pacing::Gapped));
    let options = Options { frames: Some(3), ..Options::default() };
    let report = send(&mut stream, &mut source, &mut [a.outlet(), b.outlet()], &options);
    assert_eq!(report.packets, 270, "each once");
    let a = a.packets();
    assert_eq!(a.len(), 270);
    assert!(a == b.packets());
}

#[test]
fn nobody_there_is_counted_and_the_flag_stops() {
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let outlet = Outlet::open(Target { destination: free, interface: None, ttl: 1, loopback: true }).unwrap();
    let (mut stream, mut source) = stream(Scan::Progressive, Choice::new(Pacing::Burst));
    let options = Options { frames: Some(2), duration: Some(Duration::from_secs(5)), ..Options::default() };
    let report = send(&mut stream, &mut source, &mut [outlet], &options);
    assert!(report.refused > 0);
    assert_eq!(report.packets, 180);
    let stop = AtomicBool::new(true);
    let none = live::run(&mut stream, &mut source, &mut [], &Options::default(), &stop, &mut |_| {}).unwrap();
    assert_eq!(none.frames, 0);
}

/// A capture that begins and ends within a frame, repeated: sequence and timestamps go on without a seam.
#[test]
fn a_recording_repeats_without_a_seam() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pcap");
    for scan in [Scan::Progressive, Scan::Interlaced] {
        let (mut stream, mut source) = stream(scan, Choice { sequence: 65_500, ..Choice::new(Pacing::Linear) });
        let whole = folder.path().join("whole.pcap");
        let to = route("127.0.0.1:5004".parse().unwrap(), None, 1).unwrap();
        let mut out = PcapWriter::create(&whole).unwrap();
        let extent = Extent { start: DEFAULT_START, frames: Some(6), duration: None };
        write(&mut stream, &mut source, &[to], &mut out, extent, None, &AtomicBool::new(false)).unwrap();
        out.finish().unwrap();
        // 24 octets of file header; records of 16 + 14 + 20 + 8 + 820.
        let file = std::fs::read(&whole).unwrap();
        let record = 878;
        assert_eq!(file.len(), 24 + 540 * record);
        std::fs::write(&path, [&file[..24], &file[24 + 30 * record..24 + 500 * record]].concat()).unwrap();

        let mut recording = Recording::open(&path, &Choose::Only).unwrap();
        assert_eq!(recording.packets.len(), 470);
        assert!(recording.extended);
        let repeat = recording.seamless(None).unwrap();
        // Frames 1 to 4 are whole: 360 packets, 80 ms, 7200 ticks.
        assert_eq!(recording.packets.len(), 360);
        assert_eq!((repeat.sequence, repeat.ticks, repeat.clock_rate), (360, 7200, 90_000));
        assert_eq!(repeat.period_ns, 80_000_000);

        let ear = Ear::new("127.0.0.1:0");
        let fields = if scan == Scan::Interlaced { 2 } else { 1 };
        let options = Options { frames: Some(10 * fields), ..Options::default() };
        let tempo = Tempo { speed: 4.0, repeat: Some(repeat), clock_rate: 90_000 };
        let report =
            replay::run(&mut recording, &mut [ear.outlet()], &options, tempo, &AtomicBool::new(false)).unwrap();
        assert_eq!((report.frames, report.packets), (10 * fields, 900));
        let packets = ear.packets();
        assert_eq!(packets.len(), 900);
        assert!(packets.windows(2).all(|w| sequence(&w[1]) == sequence(&w[0]) + 1));
        let mut stamps: Vec<u32> = packets.iter().map(|p| u32::from_be_bytes(p[4..8].try_into().unwrap())).collect();
        stamps.dedup();
        assert_eq!(stamps.len() as u64, 10 * fields);
        let step = 1800 / fields as u32;
        assert!(stamps.windows(2).all(|w| w[1].wrapping_sub(w[0]) == step), "{stamps:?}");
    }
}
