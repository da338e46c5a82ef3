//! From a ring to frames on the GPU and back: octet for octet what the CPU makes of the same packets, whole or with
//! holes, however octets travel. Needs a GPU; says "skipped" without one.
#![cfg(feature = "cuda")]

mod support;

use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::gpu::Gpu;
use gdmedia::kernel::cuda::{Options, Schedule, Transfer};
use gdmedia::kernel::{Colour, Conversion, CpuKernel, CudaKernel, Windows};
use gdmedia::mem::{Device, Host, Region, Slab};
use gdmedia::packetise::Cut;
use gdmedia::pipeline::{GpuFrames, GpuPipeline, Incomplete, Pipeline};
use gdmedia::ring::{Slot, SplitRing};
use gdmedia::rx::{Memory, Receiver, Registered, RxError};
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use gdmedia::sink::{Download, Sink};
use gdmedia::stats::FrameCounters;
use std::sync::{Arc, Mutex};
use support::{EVEN, RATE, Sender, Sent, format};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
/// Packets of a lease, octets from one to the next, leases that may be out.
const BATCH: usize = 40;
const STRIDE: usize = 1600;
const AREAS: usize = 24;

fn gpu() -> Option<Arc<Gpu>> {
    Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
}

/// Packets of some frames, with a few of them gone.
fn packets(wire: WireFormat, cut: Cut, holes: bool) -> Vec<Sent> {
    let mut sent = Sender::plain(wire, cut).frames(8);
    if holes {
        let mut n = 0;
        sent.retain(|p| {
            n += 1;
            // Single packets of some frames, and a long run in the fifth.
            !(p.frame % 3 == 1 && n % 37 == 0 || p.frame == 4 && n % 64 > 30)
        });
    }
    sent
}

/// Every packet lies at its place in an area, leases hold up to [`BATCH`] of them.
fn receiver(sent: Vec<Sent>) -> Box<dyn Receiver<Mem = Host>> {
    let mut sent = sent.into_iter().peekable();
    let ring = SplitRing::whole(Region::host(AREAS * BATCH * STRIDE + 64).unwrap());
    Box::new(Memory::new(
        ring,
        AREAS,
        BATCH,
        None,
        Box::new(move |ring, area, slots| {
            if sent.peek().is_none() {
                return Err(RxError::End);
            }
            let memory = ring.head_plane_mut().as_mut_slice();
            for (n, packet) in sent.by_ref().take(BATCH).enumerate() {
                let at = (area * BATCH + n) * STRIDE;
                memory[at..at + packet.octets.len()].copy_from_slice(&packet.octets);
                let octets = packet.octets.len() as u16;
                let slot = Slot {
                    head_at: at as u32,
                    body_at: 0,
                    head: octets,
                    octets,
                    wire_octets: octets,
                    leg: 0,
                    arrival: packet.arrival,
                };
                slots.push(slot);
            }
            Ok(true)
        }),
    ))
}

/// What came out, rows without padding.
type Pictures = Vec<(u64, bool, Vec<u8>)>;

fn picture(frame: &Frame<Host>) -> (u64, bool, Vec<u8>) {
    let rows = frame.layout().planes.iter().enumerate().flat_map(|(p, plane)| (0..plane.rows).map(move |row| (p, row)));
    let octets = rows.flat_map(|(plane, row)| frame.row(plane, row).to_vec()).collect();
    (frame.meta().number, frame.meta().complete, octets)
}

fn depacketiser(wire: WireFormat) -> Depacketiser {
    Depacketiser::video(Config::new(wire, 96, Some(RATE)))
}

fn on_cpu(conversion: &Conversion, sent: Vec<Sent>, policy: Incomplete) -> (Pictures, FrameCounters) {
    let pictures = Arc::new(Mutex::new(Vec::new()));
    let into = pictures.clone();
    let deliver = Box::new(move |frame: Frame<Host>, _| into.lock().unwrap().push(picture(&frame)));
    let pool = FramePool::host(conversion.layout.clone(), 8).unwrap();
    let kernel = CpuKernel::new(conversion.clone(), None);
    let mut pipeline =
        Pipeline::new(receiver(sent), depacketiser(*conversion.wire()), kernel, pool, policy, None, deliver);
    pipeline.run_to_end().unwrap();
    let counters = pipeline.frames();
    drop(pipeline);
    (Arc::into_inner(pictures).unwrap().into_inner().unwrap(), counters)
}

fn pool(slab: &mut Slab, layout: &Layout) -> FramePool<Device> {
    FramePool::new(layout.clone(), slab.regions().into_iter(), |_, region| Ok(region)).unwrap()
}

fn on_gpu(
    gpu: &Arc<Gpu>,
    conversion: &Conversion,
    sent: Vec<Sent>,
    policy: Incomplete,
    options: Options,
) -> (Pictures, FrameCounters, String) {
    let pictures = Arc::new(Mutex::new(Vec::new()));
    let into = pictures.clone();
    let layout = &conversion.layout;
    let keep = Box::new(move |frame: Frame<Host>| into.lock().unwrap().push(picture(&frame)));
    let mut download = Download::new(gpu, layout, 2, keep).unwrap();
    // At once, on the receiving thread: a test may take its time.
    let deliver = Box::new(move |frame: Frame<Device>, _| {
        download.take(&frame).unwrap();
    });
    let receiver = Registered::new(receiver(sent), gpu).map_err(|(error, _)| error).unwrap();
    let mut slab = Slab::new(gpu, layout.size, 8).unwrap();
    let kernel = Windows::off(CudaKernel::new(gpu, conversion.clone(), receiver.ring(), options).unwrap());
    let mut pipeline: GpuPipeline = Pipeline::new(
        receiver,
        depacketiser(*conversion.wire()),
        kernel,
        pool(&mut slab, layout),
        policy,
        None,
        deliver,
    );
    pipeline.run_to_end().unwrap();
    let (counters, kernel) = (pipeline.frames(), pipeline.kernel().counters());
    assert_eq!(kernel.refused, 0);
    assert!(kernel.pieces > 0);
    match options.transfer {
        Transfer::Copy => assert!(kernel.copied > 0, "{kernel:?}"),
        Transfer::Mapped => assert!(kernel.copied == 0 && kernel.mapped > 0, "{kernel:?}"),
        Transfer::Auto => {}
    }
    let text = pipeline.describe_kernel();
    drop(pipeline);
    (Arc::into_inner(pictures).unwrap().into_inner().unwrap(), counters, text)
}

#[test]
fn frames_of_the_gpu_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let ten = |sampling, width, height, scan| format(sampling, Depth::D10, width, height, scan);
    let cases = [
        (ten(Sampling::YCbCr422, 640, 90, Scan::Progressive), EVEN, Output::Planar),
        (ten(Sampling::YCbCr422, 642, 60, Scan::Interlaced), EVEN, Output::V210),
        (ten(Sampling::YCbCr422, 642, 60, Scan::Interlaced), Cut::Full { udp: 1400, segments: 3 }, Output::P010),
        (ten(Sampling::YCbCr420, 644, 62, Scan::Progressive), EVEN, Output::Nv12),
        (ten(Sampling::Rgb, 333, 61, Scan::Progressive), Cut::Bpm { fill: true }, Output::Rgba),
        (ten(Sampling::YCbCr422, 640, 60, Scan::Psf), Cut::Bpm { fill: false }, Output::Wire),
        (format(Sampling::YCbCr444, Depth::F16, 300, 40, Scan::Progressive), EVEN, Output::Rgb16f),
    ];
    for (wire, cut, output) in cases {
        let conversion = Conversion { layout: Layout::new(wire, output).unwrap(), colour: COLOUR };
        for (holes, policy) in [
            (false, Incomplete::Conceal),
            (true, Incomplete::Conceal),
            (true, Incomplete::Show),
            (true, Incomplete::Drop),
        ] {
            let (expected, counted) = on_cpu(&conversion, packets(wire, cut, holes), policy);
            assert!(expected.len() >= if policy == Incomplete::Drop { 4 } else { 7 }, "{} frames", expected.len());
            assert_eq!(counted.incomplete > 0, holes);
            for transfer in [Transfer::Copy, Transfer::Mapped, Transfer::Auto] {
                for schedule in [Schedule::SubFrame, Schedule::WholeFrame] {
                    let options = Options { transfer, schedule };
                    let (got, counters, text) = on_gpu(&gpu, &conversion, packets(wire, cut, holes), policy, options);
                    assert_eq!(counters, counted);
                    assert_eq!(got.len(), expected.len());
                    for (got, expected) in got.iter().zip(&expected) {
                        assert_eq!((got.0, got.1), (expected.0, expected.1));
                        let wrong = got.2.iter().zip(&expected.2).position(|(a, b)| a != b);
                        assert_eq!(wrong, None, "{wire:?} {output:?} {policy:?} {options:?} frame {}", got.0);
                    }
                    println!("{output:?} {policy:?} {options:?}: {} frames, {text}", got.len());
                }
            }
        }
    }
}

#[test]
fn streams_share_frames() {
    let Some(gpu) = gpu() else { return };
    let wire = format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive);
    let conversion = Conversion { layout: Layout::new(wire, Output::Planar).unwrap(), colour: COLOUR };
    let layout = &conversion.layout;
    // Fewer than two streams would have by themselves; each keeps one to conceal with.
    let frames = GpuFrames::new(&gpu, layout.clone(), 8).unwrap();
    let mut streams: Vec<(GpuPipeline, Arc<Mutex<Pictures>>, bool)> = [false, true]
        .into_iter()
        .map(|holes| {
            let pictures = Arc::new(Mutex::new(Vec::new()));
            let into = pictures.clone();
            let keep = Box::new(move |frame: Frame<Host>| into.lock().unwrap().push(picture(&frame)));
            let mut download = Download::new(&gpu, layout, 2, keep).unwrap();
            let deliver = Box::new(move |frame: Frame<Device>, _| {
                download.take(&frame).unwrap();
            });
            let receiver = receiver(packets(wire, EVEN, holes));
            let receiver = Registered::new(receiver, &gpu).map_err(|(error, _)| error).unwrap();
            let kernel = CudaKernel::new(&gpu, conversion.clone(), receiver.ring(), Options::default());
            let kernel = Windows::off(kernel.unwrap());
            let pool = frames.pool().clone();
            let policy = Incomplete::Conceal;
            let pipeline = Pipeline::new(receiver, depacketiser(wire), kernel, pool, policy, None, deliver);
            (pipeline, pictures, holes)
        })
        .collect();
    let mut ended = [false; 2];
    while ended != [true; 2] {
        for ((pipeline, ..), ended) in streams.iter_mut().zip(&mut ended).filter(|(_, ended)| !**ended) {
            match pipeline.step() {
                Ok(_) => {}
                Err(RxError::End) => {
                    pipeline.finish(&mut Vec::new()).unwrap();
                    *ended = true;
                }
                Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{error}"),
            }
        }
    }
    for (pipeline, pictures, holes) in streams {
        let (expected, counted) = on_cpu(&conversion, packets(wire, EVEN, holes), Incomplete::Conceal);
        assert_eq!(pipeline.frames(), counted);
        drop(pipeline);
        assert!(*pictures.lock().unwrap() == expected, "holes: {holes}");
    }
    assert_eq!(std::iter::from_fn(|| frames.pool().take()).count(), 8, "all frames come back");
}

#[test]
fn too_little_memory_is_an_error_and_no_harm() {
    let Some(gpu) = gpu() else { return };
    let (free, _) = gpu.memory().unwrap();
    // All but little.
    let mut held = Vec::new();
    let mut piece = free;
    while piece > 8 << 20 {
        match Region::device(&gpu, piece) {
            Ok(region) => held.push(region),
            Err(_) => piece /= 2,
        }
    }
    let wire = format(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Progressive);
    let layout = Layout::new(wire, Output::Planar).unwrap();
    let error = Slab::new(&gpu, layout.size, 64).unwrap_err();
    assert!(error.to_string().contains("MiB are free"), "{error}");
    assert!(!error.cure_text().is_empty());
    drop(held);
    assert!(Slab::new(&gpu, layout.size, 64).is_ok() && !gpu.is_lost());
}
