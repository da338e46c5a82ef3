//! A GPU is lost in the middle of a stream: the stream goes on on the CPU, nothing is hidden. Alone in its process: what
//! is done to the GPU here spoils its context for good.
#![cfg(feature = "cuda")]

mod support;

use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::gpu::{Gpu, Module, Stream};
use gdmedia::kernel::cuda::Options;
use gdmedia::kernel::{Colour, Conversion, CudaKernel, Windows};
use gdmedia::mem::{Device, Host, Region, Slab};
use gdmedia::pipeline::{GpuPipeline, Incomplete, Moving, Pipeline, Settings};
use gdmedia::ring::{Slot, SplitRing};
use gdmedia::rx::{Memory, Receiver, Registered, RxError};
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use gdmedia::sink::{Download, Sink};
use gdmedia::worker::{Report, Stepper};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use support::{EVEN, RATE, Sender, format, picture};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
const FRAMES: usize = 12;
const BATCH: usize = 32;

#[allow(unsafe_code)]
fn lose(gpu: &Arc<Gpu>) {
    const TRAP: &[u8] = b".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry lose() { trap; }\n\0";
    // SAFETY: PTX with its closing zero.
    let module = unsafe { Module::load(gpu, TRAP) }.unwrap();
    let stream = Stream::new(gpu, false).unwrap();
    // SAFETY: the kernel takes nothing and touches nothing.
    unsafe { stream.launch(&module.function(c"lose").unwrap(), [1, 1, 1], 32, &mut []) }.unwrap();
    assert!(stream.synchronize().unwrap_err().is_lost());
}

#[test]
fn the_stream_goes_on_on_the_cpu() {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => return println!("skipped: no CUDA device: {error}"),
    };
    let wire = format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive);
    let layout = Layout::new(wire, Output::Wire).unwrap();
    let conversion = Conversion { layout: layout.clone(), colour: COLOUR };
    let mut sent = Sender::plain(wire, EVEN).frames(FRAMES).into_iter().peekable();
    let lost = Arc::new(AtomicBool::new(false));
    let ring = SplitRing::whole(Region::host(64 * BATCH * 1500 + 64).unwrap());
    let (theirs, at) = (gpu.clone(), lost.clone());
    let fill = move |ring: &mut SplitRing<Host>, area: usize, slots: &mut Vec<Slot>| {
        let Some(next) = sent.peek() else { return Err(RxError::End) };
        // In the middle of the sixth frame.
        if next.frame == 5 && next.octets[17] > 40 && !at.swap(true, Relaxed) {
            lose(&theirs);
        }
        for (n, packet) in sent.by_ref().take(BATCH).enumerate() {
            let at = (area * BATCH + n) * 1500;
            let octets = packet.octets.len() as u16;
            ring.head_plane_mut().as_mut_slice()[at..at + packet.octets.len()].copy_from_slice(&packet.octets);
            slots.push(Slot {
                head_at: at as u32,
                body_at: 0,
                head: octets,
                octets,
                wire_octets: octets,
                leg: 0,
                arrival: packet.arrival,
            });
        }
        Ok(true)
    };
    let receiver: Box<dyn Receiver<Mem = Host>> = Box::new(Memory::new(ring, 64, BATCH, None, Box::new(fill)));
    let receiver = Registered::new(receiver, &gpu).map_err(|(error, _)| error).unwrap();
    let frames = Arc::new(Mutex::new(Vec::new()));
    let (from_gpu, from_cpu) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let keep = |count: &Arc<AtomicU64>| {
        let (frames, count) = (frames.clone(), count.clone());
        move |frame: Frame<Host>| {
            count.fetch_add(1, Relaxed);
            frames.lock().unwrap().push((frame.meta().number, frame.meta().complete, frame.octets()[..].to_vec()));
        }
    };
    let mut download = Download::new(&gpu, &layout, 4, Box::new(keep(&from_gpu))).unwrap();
    let counters = download.counters();
    let on_gpu = Box::new(move |frame: Frame<Device>, _| {
        download.take(&frame).unwrap();
    });
    let on_cpu = keep(&from_cpu);
    let mut slab = Slab::new(&gpu, layout.size, 8).unwrap();
    let pool = FramePool::new(layout.clone(), slab.regions().into_iter(), |_, region| Ok(region)).unwrap();
    let kernel = CudaKernel::new(&gpu, conversion, receiver.ring(), Options::default()).unwrap();
    let depacketiser = Depacketiser::video(Config::new(wire, 96, Some(RATE)));
    let pipeline: GpuPipeline =
        Pipeline::new(receiver, depacketiser, Windows::off(kernel), pool, Incomplete::Conceal, None, on_gpu);
    let settings = Settings { output: Output::Wire, frames: 8, ..Settings::default() };
    let mut moving = Moving::new(pipeline, &settings, Box::new(move |frame, _| on_cpu(frame)));
    loop {
        match moving.step() {
            Ok(_) => {}
            Err(RxError::End) => break,
            Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{error}"),
        }
    }
    moving.finish(&mut Vec::new()).unwrap();
    assert!(lost.load(Relaxed) && gpu.is_lost());
    let mut report = Report::default();
    moving.report(&mut report);
    println!("{report:?}");
    assert!(report.remarks.iter().any(|r| r.contains("goes on on the CPU")), "{:?}", report.remarks);
    assert_eq!(report.packets.lost, 0);
    assert!(from_gpu.load(Relaxed) >= 3 && from_cpu.load(Relaxed) >= 5, "{from_gpu:?} {from_cpu:?}");
    // Every frame that closed is delivered, or counted as dropped or lost with the GPU.
    let delivered = frames.lock().unwrap();
    let counted = report.frames.complete + report.frames.incomplete;
    let gone = report.frames.dropped + counters.lost.load(Relaxed) + counters.dropped.load(Relaxed);
    assert_eq!(delivered.len() as u64 + gone, counted, "{:?}", report.frames);
    let numbers: Vec<u64> = delivered.iter().map(|f| f.0).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    // The first frame may be one that reception began in the middle of.
    let first = FRAMES - counted as usize;
    for (number, complete, octets) in &*delivered {
        assert!(*complete);
        let sent = picture(wire, first + *number as usize);
        assert!(octets[..sent.len()] == sent, "frame {number}");
    }
}
