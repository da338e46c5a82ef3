//! Frames that are windows of the ring: the same octets as copied ones, in one piece or two; copied after all where a packet
//! is missing or of another size; and not believed once the ring came round.
#![allow(unsafe_code)]

mod nic;
mod support;

use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FrameBuf, FramePool};
use gdmedia::kernel::{Colour, Conversion, CpuKernel, Kernel, KernelError, Ticket, Windows, why_not};
use gdmedia::mem::{Host, Region};
use gdmedia::packetise::Cut;
use gdmedia::pipeline::{Incomplete, Pipeline};
use gdmedia::plan::{Missing, Placement};
use gdmedia::ring::{Geometry, Slot, SplitRing};
use gdmedia::rx::Memory;
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use gdmedia::sink::{FileFormat, FileSink, Next, Sink, SinkQueue};
use gdmedia::stats::FrameCounters;
use nic::Shared;
use std::ops::Range as Span;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{EVEN, RATE, Sender, Sent, format, picture};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
const FRAMES: usize = 9;
/// A frame has 180 packets of 800 octets, two of them a row.
const PER_FRAME: usize = 180;
const PAYLOAD: usize = 800;
/// More than six frames, and an odd number, so that the ring's end is in the middle of a row.
const SLOTS: usize = 1201;
const MARGIN: usize = 16;

fn wire() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive)
}

fn conversion() -> Conversion {
    Conversion { layout: Layout::new(wire(), Output::Wire).unwrap(), colour: COLOUR }
}

type HostWindows<K> = Pipeline<Memory<Host>, Host, Windows<K, Host>>;

/// A pipeline of packets whose frames go to `deliver`, and the card that receives them.
fn pipeline(
    sent: Vec<Sent>,
    wanted: Result<(), &str>,
    policy: Incomplete,
    deliver: impl FnMut(Frame) + Send + 'static,
) -> (HostWindows<CpuKernel>, Shared) {
    pipeline_of(sent, wanted, policy, |_, kernel| kernel, deliver)
}

fn pipeline_of<K: Kernel<Host, Host>>(
    sent: Vec<Sent>,
    wanted: Result<(), &str>,
    policy: Incomplete,
    kernel: impl FnOnce(&Shared, CpuKernel) -> K,
    deliver: impl FnMut(Frame) + Send + 'static,
) -> (HostWindows<K>, Shared) {
    let (nic, ring) = nic::nic(sent, SLOTS as u32, MARGIN as u32, true, PAYLOAD);
    let receiver = nic::receiver(&nic, ring);
    let conversion = conversion();
    let pool = FramePool::host(conversion.layout.clone(), FRAMES + 4).unwrap();
    let kernel = kernel(&nic, CpuKernel::new(conversion.clone(), None));
    let kernel = Windows::new(kernel, &conversion, gdmedia::rx::Receiver::ring(&receiver), wanted);
    let depacketiser = Depacketiser::video(Config::new(wire(), 96, Some(RATE)));
    let mut deliver = deliver;
    let deliver = Box::new(move |frame: Frame, _| deliver(frame));
    (Pipeline::new(receiver, depacketiser, kernel, pool, policy, None, deliver), nic)
}

/// A frame as whoever gets it reads it.
#[derive(Debug, PartialEq)]
struct Seen {
    number: u64,
    window: bool,
    pieces: usize,
    torn: bool,
    missing: Vec<gdmedia::plan::Missing>,
    octets: Vec<u8>,
}

fn see(frame: &Frame) -> Seen {
    let meta = frame.meta();
    let octets = frame.octets()[..wire().frame_octets() as usize].to_vec();
    let pieces = frame.range(0..octets.len());
    assert_eq!(pieces.concat(), octets);
    assert!(frame.range(0..frame.octets().len() + 1).iter().all(|piece| piece.is_empty()));
    let rows: Vec<u8> = (0..wire().rows() as usize).flat_map(|row| frame.row(0, row)).copied().collect();
    assert_eq!(rows, octets);
    let [first, second] = frame.parts();
    assert_eq!((first.0, pieces[0].len()), (pieces[0].as_ptr(), first.1.min(octets.len())));
    assert_eq!(second.1, pieces[1].len());
    assert!(frame.intact());
    Seen {
        number: meta.number,
        window: frame.is_window(),
        pieces: pieces.iter().filter(|piece| !piece.is_empty()).count(),
        torn: meta.torn,
        missing: meta.missing.clone(),
        octets,
    }
}

fn run(sent: Vec<Sent>, wanted: Result<(), &str>, ahead: Option<(usize, usize)>) -> (Vec<Seen>, FrameCounters, String) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = seen.clone();
    let (mut pipeline, nic) =
        pipeline(sent, wanted, Incomplete::Conceal, move |frame| into.lock().unwrap().push(see(&frame)));
    nic.lock().ahead = ahead;
    pipeline.run_to_end().unwrap();
    let said = pipeline.describe_kernel();
    let counts = pipeline.frames();
    drop(pipeline);
    (Arc::into_inner(seen).unwrap().into_inner().unwrap(), counts, said)
}

fn all() -> Vec<Sent> {
    Sender::plain(wire(), EVEN).frames(FRAMES)
}

#[test]
fn windows_are_what_copies_are() {
    let (windows, counts, said) = run(all(), Ok(()), None);
    assert_eq!(said, "copy on the CPU; frames are windows of the ring, without a copy");
    assert_eq!((counts.complete, counts.windows), (FRAMES as u64, FRAMES as u64));
    let (copies, counts, said) = run(all(), Err("somebody keeps them"), None);
    assert_eq!(said, "copy on the CPU; copied from the ring: somebody keeps them");
    assert_eq!((counts.complete, counts.windows), (FRAMES as u64, 0));
    let mut in_two = 0;
    for (n, (window, copy)) in windows.iter().zip(&copies).enumerate() {
        assert!(window.window && !copy.window && window.number == copy.number);
        assert!(window.octets == copy.octets && copy.octets == picture(wire(), n), "frame {n}");
        in_two += usize::from(window.pieces == 2);
    }
    assert_eq!((windows.len(), copies.len()), (FRAMES, FRAMES));
    // 1620 packets go round a ring of 1201 once or twice.
    assert!((1..=2).contains(&in_two), "{in_two}");
}

#[test]
fn a_frame_that_lacks_packets_is_copied_and_shows_the_window_before() {
    // Each frame but the first in turn: some follow a frame in two pieces.
    for holed in 1..FRAMES {
        let mut sent = all();
        let gone =
            sent.drain(holed * PER_FRAME + 30..holed * PER_FRAME + 33).flat_map(|p| p.sources).collect::<Vec<_>>();
        let (seen, counts, _) = run(sent, Ok(()), None);
        assert_eq!((counts.complete, counts.incomplete, counts.windows), (8, 1, 8), "{counts:?}");
        for (n, frame) in seen.iter().enumerate() {
            let mut expected = picture(wire(), n);
            if n == holed {
                let before = picture(wire(), n - 1);
                for source in &gone {
                    let span = source.at as usize..source.at as usize + usize::from(source.len);
                    expected[span.clone()].copy_from_slice(&before[span]);
                }
            }
            assert_eq!((frame.window, frame.missing.is_empty()), (n != holed, n != holed), "frame {n}, {holed} holed");
            assert!(frame.octets == expected, "frame {n}, {holed} holed");
        }
    }
}

#[test]
fn packets_of_another_size_than_the_rings_are_copied() {
    // Half as long as the ring has room for, so that they do not follow one another in it; 360 a frame.
    let cut = Cut::Even { udp: 8 + 20 + 400 };
    let sent = Sender::plain(wire(), cut).frames(4);
    assert_eq!(sent.len(), 4 * 360);
    let (seen, counts, _) = run(sent, Ok(()), None);
    assert_eq!((counts.complete, counts.windows), (4, 0));
    assert!(seen.iter().enumerate().all(|(n, frame)| !frame.window && frame.octets == picture(wire(), n)));
}

#[test]
fn a_window_that_is_overwritten_before_it_is_delivered_is_mended() {
    // Frame 2 ends with packet 539. When the lease with it comes, the card has written on: to a margin before packet 370.
    let (last, ahead) = (544, SLOTS - MARGIN + 370 - 544);
    let sent = all();
    let torn: Vec<_> = sent[360..370].iter().flat_map(|p| p.sources.clone()).collect();
    let (seen, counts, _) = run(sent, Ok(()), Some((last, ahead)));
    assert_eq!((counts.complete, counts.incomplete, counts.torn, counts.windows), (8, 1, 1, 8), "{counts:?}");
    for (n, frame) in seen.iter().enumerate() {
        let mut expected = picture(wire(), n);
        if n == 2 {
            // The frame before is gone as well, so it shows black: 512, 64, 512, 64 in 10 bits each.
            let spans = torn.iter().map(|s| s.at as usize..s.at as usize + usize::from(s.len));
            let black = [128, 4, 8, 0, 64].repeat(PAYLOAD / 5);
            spans.for_each(|span: Span<usize>| expected[span].copy_from_slice(&black));
            assert_eq!(frame.missing.iter().map(|m| m.len).sum::<u32>(), 10 * PAYLOAD as u32);
        }
        assert_eq!((frame.torn, frame.window), (n == 2, n != 2), "frame {n}");
        assert!(frame.octets == expected, "frame {n}");
    }
}

/// Copies, but not before the card has written on.
struct Held {
    nic: Shared,
    inner: CpuKernel,
    ahead: usize,
    /// How often what the card wrote was to be there for others.
    ended: Arc<Mutex<u64>>,
}

impl Kernel<Host, Host> for Held {
    fn apply(
        &mut self,
        ring: &SplitRing<Host>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<Host>,
    ) -> Result<Ticket, KernelError> {
        self.nic.lock().write(std::mem::take(&mut self.ahead));
        self.inner.apply(ring, slots, placements, frame)
    }
    fn conceal(
        &mut self,
        frame: &mut FrameBuf<Host>,
        missing: &[Missing],
        previous: Option<&Frame<Host>>,
    ) -> Result<(), KernelError> {
        Kernel::<Host, Host>::conceal(&mut self.inner, frame, missing, previous)
    }
    fn paint(&mut self, frame: &mut FrameBuf<Host>, missing: &[Missing]) -> Result<(), KernelError> {
        Kernel::<Host, Host>::paint(&mut self.inner, frame, missing)
    }
    fn finish(&mut self, frame: FrameBuf<Host>) -> Result<(Frame<Host>, Ticket), KernelError> {
        Kernel::<Host, Host>::finish(&mut self.inner, frame)
    }
    fn end_writes(&mut self) -> Result<(), KernelError> {
        *self.ended.lock().unwrap() += 1;
        Ok(())
    }
    fn done(&mut self, ticket: Ticket) -> Result<bool, KernelError> {
        Kernel::<Host, Host>::done(&mut self.inner, ticket)
    }
    fn name(&self) -> &'static str {
        "held"
    }
}

#[test]
fn what_is_overwritten_while_a_window_is_copied_after_all_is_located() {
    for policy in [Incomplete::Conceal, Incomplete::Show, Incomplete::Drop] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let ended = Arc::new(Mutex::new(0));
        let kernel = |nic: &Shared, inner| Held { nic: nic.clone(), inner, ahead: 40, ended: ended.clone() };
        let deliver = move |frame: Frame| into.lock().unwrap().push(see(&frame));
        let (mut pipeline, nic) = pipeline_of(all(), Ok(()), policy, kernel, deliver);
        // As above, and 40 packets more while the frame is copied.
        nic.lock().ahead = Some((544, SLOTS - MARGIN + 370 - 544));
        pipeline.run_to_end().unwrap();
        let counts = pipeline.frames();
        assert_eq!((counts.complete, counts.incomplete, counts.torn, counts.windows), (8, 1, 1, 8), "{counts:?}");
        assert_eq!(*ended.lock().unwrap(), 8, "for each window, whose readers no work of the kernel precedes");
        let seen = seen.lock().unwrap();
        if policy == Incomplete::Drop {
            assert_eq!((seen.len(), counts.withheld, pipeline.rx().overwritten), (FRAMES - 1, 1, 10));
            continue;
        }
        assert_eq!((seen.len(), pipeline.rx().overwritten), (FRAMES, 50));
        let (frame, sent) = (&seen[2], picture(wire(), 2));
        let at = |m: &Missing| (m.row * wire().row_octets() + m.octet) as usize;
        let missing: Vec<_> = frame.missing.iter().map(|m| at(m)..at(m) + m.len as usize).collect();
        assert_eq!(missing.iter().map(|span| span.len()).sum::<usize>(), 50 * PAYLOAD);
        let wrong =
            (0..sent.len()).find(|at| frame.octets[*at] != sent[*at] && !missing.iter().any(|m| m.contains(at)));
        assert_eq!(wrong, None);
    }
}

#[test]
fn a_window_is_not_intact_once_the_ring_comes_round() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let into = held.clone();
    let (mut pipeline, nic) =
        pipeline(all(), Ok(()), Incomplete::Conceal, move |frame| into.lock().unwrap().push(frame));
    while held.lock().unwrap().is_empty() {
        pipeline.step().unwrap();
    }
    let frame = held.lock().unwrap()[0].clone();
    // Packet 0 is a margin away when 1185 have come.
    let written = nic.lock().written;
    nic.lock().write(SLOTS - MARGIN - written);
    assert!(frame.is_window() && frame.intact());
    nic.lock().write(1);
    assert!(!frame.intact());
    // The memory stays as long as the frame.
    drop(pipeline);
    drop(nic);
    assert_eq!(frame.octets().len(), wire().frame_octets() as usize);
}

/// Lets the card write on while it has the second frame in hand.
struct Slow {
    nic: Shared,
    taken: u64,
    inner: FileSink,
}

impl Sink for Slow {
    fn take(&mut self, frame: &Frame) -> gdmedia::error::Result<Next> {
        let next = self.inner.take(frame);
        if self.taken == 1 {
            self.nic.lock().write(SLOTS);
        }
        self.taken += 1;
        next
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[test]
fn a_sink_that_is_too_slow_for_a_window_is_told() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let into = held.clone();
    let (mut pipeline, nic) =
        pipeline(all(), Ok(()), Incomplete::Conceal, move |frame| into.lock().unwrap().push(frame));
    while held.lock().unwrap().len() < 3 {
        pipeline.step().unwrap();
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let flow = include_bytes!("../sdp/examples/1080p50.sdp");
    let flow = gdmedia::sdp::parse(flow, gdmedia::sdp::Mode::Lenient).flows.remove(0);
    let video = gdmedia::pipeline::video(&flow).unwrap();
    let inner = FileSink::create(file.path(), FileFormat::Raw, video, &conversion().layout).unwrap();
    assert!(inner.takes_windows());
    let queue = SinkQueue::spawn(Box::new(Slow { nic, taken: 0, inner }), 4).unwrap();
    // The first is read in time, of the second nobody knows, the third is gone before.
    held.lock().unwrap().drain(..).for_each(|frame| assert!(queue.offer(frame)));
    let report = queue.finish(Duration::from_secs(10));
    assert_eq!((report.taken, report.torn, report.dropped), (1, 2, 0));
    let written = std::fs::read(file.path()).unwrap();
    assert!(written == [picture(wire(), 0), picture(wire(), 1)].concat(), "what was read was still there");
}

#[test]
fn it_is_said_why_frames_are_not_windows() {
    let good = Geometry { slots: 1201, rings: 1, head: 20, body: 800, margin: 16, in_sequence: true };
    let ring = |geometry: Geometry| {
        let [head, body] = nic::planes(&geometry).map(|octets| Region::<Host>::host(octets).unwrap());
        if geometry.body == 0 { SplitRing::whole(head) } else { SplitRing::split(head, body) }
            .overwritten_in_time(geometry)
            .unwrap()
    };
    let why = |output, geometry, wanted| why_not(&Layout::new(wire(), output).unwrap(), &ring(geometry), wanted);
    assert_eq!(why(Output::Wire, good, Ok(())), None);
    for (output, geometry, wanted, expected) in [
        (Output::Planar, good, Ok(()), "the layout planar is not that of the wire"),
        (Output::Wire, good, Err("a sink keeps them"), "a sink keeps them"),
        (Output::Wire, Geometry { in_sequence: false, ..good }, Ok(()), "packets lie in it as they arrived"),
        (Output::Wire, Geometry { body: 0, head: 1500, ..good }, Ok(()), "headers lie among the payload"),
        (Output::Wire, Geometry { body: 1000, ..good }, Ok(()), "payloads of 1000 octets do not fill rows of 1600"),
        (Output::Wire, Geometry { slots: 1071, ..good }, Ok(()), "it holds 5.95 frames, and 6 are needed"),
    ] {
        assert_eq!(why(output, geometry, wanted).as_deref(), Some(expected));
    }
    let ordinary = SplitRing::<Host>::whole(Region::host(1000).unwrap());
    for scan in [Scan::Interlaced, Scan::Psf] {
        let wire = format(Sampling::YCbCr422, Depth::D10, 640, 90, scan);
        let said = why_not(&Layout::new(wire, Output::Wire).unwrap(), &ring(good), Ok(())).unwrap();
        assert!(said.contains("two fields"), "{said}");
    }
    let said = why_not(&conversion().layout, &ordinary, Ok(())).unwrap();
    assert_eq!(said, "its memory is used again when packets are given back");
    // Nobody asked in that case, so nothing is said.
    let kernel = Windows::new(CpuKernel::new(conversion(), None), &conversion(), &ordinary, Ok(()));
    assert_eq!(Kernel::<Host, Host>::describe(&kernel), "copy on the CPU");
}

#[cfg(feature = "cuda")]
mod on_a_gpu {
    use super::*;
    use gdmedia::gpu::{Gpu, Stream};
    use gdmedia::kernel::CudaKernel;
    use gdmedia::kernel::cuda::Options;
    use gdmedia::mem::{Device, GpuAccess, Pinned, Slab};
    use gdmedia::sink::Download;

    /// Does frame `n` lack a packet, where some do?
    const fn has_hole(n: usize) -> bool {
        n > 0 && n.is_multiple_of(2)
    }

    /// The same stream by a ring with its payload in memory `M`, into frames of the GPU, and back.
    fn windows<M: GpuAccess>(gpu: &Arc<Gpu>, bodies: impl FnOnce(usize) -> Region<M>, holed: bool) {
        let mut sent = all();
        if holed {
            // Every second frame: after windows in one piece, and after the one in two, frame 3.
            let mut n = 0;
            sent.retain(|p| {
                n += 1;
                !has_hole(p.frame) || n % PER_FRAME != 50
            });
        }
        let has_hole = move |n: usize| holed && has_hole(n);
        let (slots, margin) = (SLOTS as u32, MARGIN as u32);
        let geometry = Geometry { slots, rings: 1, head: 20, body: PAYLOAD as u32, margin, in_sequence: true };
        let [head, body] = nic::planes(&geometry);
        let mut staged = Region::pinned(gpu, PAYLOAD).unwrap();
        let stream = Stream::new(gpu, false).unwrap();
        let write = move |to: *mut u8, octets: &[u8]| {
            staged.as_mut_slice()[..octets.len()].copy_from_slice(octets);
            // SAFETY: both live as long as the ring, and are touched by nobody else until the stream has ended.
            unsafe { stream.copy(to as u64, staged.as_ptr() as u64, octets.len()) }.unwrap();
            stream.synchronize().unwrap();
        };
        let (nic, ring) = nic::over(sent, geometry, Region::pinned(gpu, head).unwrap(), bodies(body), Box::new(write));
        let receiver = nic::receiver(&nic, ring);
        let conversion = conversion();
        let kernel =
            CudaKernel::new(gpu, conversion.clone(), gdmedia::rx::Receiver::ring(&receiver), Options::default());
        let kernel = Windows::new(kernel.unwrap(), &conversion, gdmedia::rx::Receiver::ring(&receiver), Ok(()));
        let mut slab = Slab::new(gpu, conversion.layout.size, 8).unwrap();
        let pool = FramePool::new(conversion.layout.clone(), slab.regions().into_iter(), |_, region| Ok(region));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = seen.clone();
        let copies = Box::new(move |frame: Frame<Host>| into.lock().unwrap().push(see(&frame)));
        let mut download = Download::new(gpu, &conversion.layout, 4, copies).unwrap();
        let deliver = Box::new(move |frame: Frame<Device>, _| {
            assert!(frame.is_window() != has_hole(frame.meta().number as usize));
            download.take(&frame).unwrap();
        });
        let depacketiser = Depacketiser::video(Config::new(wire(), 96, Some(RATE)));
        let policy = Incomplete::Conceal;
        let mut pipeline = Pipeline::new(receiver, depacketiser, kernel, pool.unwrap(), policy, None, deliver);
        pipeline.run_to_end().unwrap();
        let counts = pipeline.frames();
        assert_eq!((counts.complete + counts.incomplete, counts.torn), (FRAMES as u64, 0), "{counts:?}");
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), FRAMES);
        let mut shown = Vec::new();
        for (n, frame) in seen.iter().enumerate() {
            let mut expected = picture(wire(), n);
            for run in &frame.missing {
                let at = (run.row * wire().row_octets() + run.octet) as usize;
                let span = at..at + run.len as usize;
                expected[span.clone()].copy_from_slice(&Vec::<u8>::as_slice(&shown)[span]);
            }
            assert_eq!(frame.missing.is_empty(), !has_hole(n));
            assert!(frame.octets == expected, "frame {n}");
            shown = expected;
        }
    }

    fn gpu() -> Option<Arc<Gpu>> {
        Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
    }

    #[test]
    fn windows_of_memory_of_the_gpu() {
        let Some(gpu) = gpu() else { return };
        windows::<Device>(&gpu, |octets| Region::device(&gpu, octets).unwrap(), false);
        windows::<Device>(&gpu, |octets| Region::device(&gpu, octets).unwrap(), true);
    }

    #[test]
    fn windows_of_pinned_memory() {
        let Some(gpu) = gpu() else { return };
        windows::<Pinned>(&gpu, |octets| Region::pinned(&gpu, octets).unwrap(), false);
        windows::<Pinned>(&gpu, |octets| Region::pinned(&gpu, octets).unwrap(), true);
    }
}
