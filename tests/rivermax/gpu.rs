//! Rings that a GPU reads: headers in memory of the host, data in memory of the GPU, written there by the stand-in's own
//! copies. Frames are those of ordinary memory on the CPU, octet for octet. Needs a GPU; says "skipped" without one.
#![allow(unsafe_code)]

use crate::card::{COLOUR, Card, Shown, alone, depacketiser, options, reference, show};
use crate::support::{EVEN, Sender, Sent, format, picture};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::gpu::{Gpu, check, sys};
use gdmedia::kernel::cuda::{Options as Way, Transfer};
use gdmedia::kernel::{Conversion, CudaKernel, Windows};
use gdmedia::mem::{Device, GpuAccess, Host, Pinned, Slab};
use gdmedia::packetise::Cut;
use gdmedia::pipeline::{Incomplete, Pipeline, Progress};
use gdmedia::rx::rivermax::{Options, Order, Planes, Split};
use gdmedia::rx::{Receiver, Rivermax, RxError};
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::sink::{Download, Sink};
use gdmedia::stats::FrameCounters;
use std::sync::{Arc, Mutex};

fn gpu() -> Option<Arc<Gpu>> {
    Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
}

/// The card goes on only when what was started has been read: laps are a matter of their own.
fn settle(gpu: &Gpu) {
    gpu.bind().unwrap();
    // SAFETY: no argument; the context is bound.
    check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() }).unwrap();
}

/// Through a ring in the space `M`; nothing where the GPU has no such memory.
fn on_gpu<M>(
    gpu: &Arc<Gpu>,
    wire: WireFormat,
    sent: &[Sent],
    split: Split,
    order: Order,
) -> Option<(Vec<Shown>, FrameCounters)>
where
    M: Planes<Source = Arc<Gpu>> + GpuAccess,
{
    let card = Card::new();
    let conversion = Conversion { layout: Layout::new(wire, Output::Wire).unwrap(), colour: COLOUR };
    let mut receiver = match Rivermax::<M>::open(&options(&[card], split, order, 512), &[card.leg()], gpu) {
        Ok(receiver) => receiver,
        Err(error) => {
            println!("skipped: {}: {error}", M::NAME);
            return None;
        }
    };
    receiver.join_all(&[card.leg()]).unwrap();
    assert_eq!(receiver.ring().body_plane().is_some(), split != Split::None);
    let shown = Arc::new(Mutex::new(Vec::new()));
    let into = shown.clone();
    let keep = Box::new(move |frame: Frame<Host>| into.lock().unwrap().push(show(&frame)));
    let mut download = Download::new(gpu, &conversion.layout, 2, keep).unwrap();
    let deliver = Box::new(move |frame: Frame<Device>, _| {
        download.take(&frame).unwrap();
    });
    let mut slab = Slab::new(gpu, conversion.layout.size, 8).unwrap();
    let pool = FramePool::new(conversion.layout.clone(), slab.regions().into_iter(), |_, region| Ok(region)).unwrap();
    let way = Way { transfer: Transfer::Auto, ..Way::default() };
    let kernel = CudaKernel::new(gpu, conversion, receiver.ring(), way).unwrap();
    let mut pipeline = Pipeline::new(receiver, depacketiser(wire), kernel, pool, Incomplete::Show, None, deliver);
    let step = |pipeline: &mut Pipeline<Rivermax<M>, Device, CudaKernel>| loop {
        match pipeline.step() {
            Ok(Progress::Busy) => {}
            Ok(Progress::Idle) | Err(RxError::End) => return,
            Err(RxError::Failed(error)) => panic!("{error}"),
        }
    };
    for part in sent.chunks(24) {
        card.deliver(part);
        step(&mut pipeline);
        settle(gpu);
        step(&mut pipeline);
    }
    pipeline.finish(&mut Vec::new()).unwrap();
    let counters = pipeline.frames();
    drop(pipeline);
    Some((std::mem::take(&mut *shown.lock().unwrap()), counters))
}

#[test]
fn frames_by_memory_of_the_gpu_are_those_of_sockets() {
    let Some(gpu) = gpu() else { return };
    let _alone = alone();
    let ten = |width, height, scan| format(Sampling::YCbCr422, Depth::D10, width, height, scan);
    let cases = [
        (ten(640, 90, Scan::Progressive), EVEN),
        (ten(640, 90, Scan::Progressive), Cut::Bpm { fill: true }),
        (ten(640, 60, Scan::Interlaced), Cut::Bpm { fill: false }),
        (ten(642, 60, Scan::Interlaced), Cut::Full { udp: 1400, segments: 3 }),
        (format(Sampling::Rgb, Depth::D10, 333, 61, Scan::Progressive), Cut::Full { udp: 900, segments: 2 }),
        (format(Sampling::YCbCr420, Depth::D10, 644, 62, Scan::Progressive), EVEN),
    ];
    for (wire, cut) in cases {
        let mut sent = Sender::plain(wire, cut).frames(5);
        let mut n = 0;
        let first = sent.iter().filter(|p| p.frame == 0).count();
        sent.retain(|_| {
            n += 1;
            n <= first || n % 41 != 0
        });
        let expected = reference(&sent, wire);
        assert!(expected.frames.incomplete > 0 && expected.shown.len() == 5);
        let headers = sent.iter().map(|p| 14 + 6 * p.sources.len()).max().unwrap() as u16;
        for order in [Order::Arrival, Order::Extended] {
            for split in [Split::At(headers), Split::At(47), Split::None] {
                let all = [
                    on_gpu::<Device>(&gpu, wire, &sent, split, order),
                    on_gpu::<Pinned>(&gpu, wire, &sent, split, order),
                ];
                for (shown, counters) in all.into_iter().flatten() {
                    assert_eq!(counters, expected.frames, "{wire:?} {cut:?} {split:?} {order:?}");
                    for (got, expected) in shown.iter().zip(&expected.shown) {
                        assert_eq!(
                            (got.number, got.complete, &got.missing),
                            (expected.number, expected.complete, &expected.missing)
                        );
                        let wrong = got.octets.iter().zip(&expected.octets).position(|(a, b)| a != b);
                        assert_eq!(wrong, None, "{wire:?} {cut:?} {split:?} {order:?} frame {}", got.number);
                    }
                    assert_eq!(shown.len(), expected.shown.len());
                }
            }
        }
    }
}

#[test]
fn frames_that_are_windows_of_the_ring_are_right_too() {
    let Some(gpu) = gpu() else { return };
    let _alone = alone();
    let wire = format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive);
    let sent = Sender::plain(wire, EVEN).frames(12);
    let card = Card::new();
    let exact = Options { max_octets: 820, ..options(&[card], Split::At(20), Order::Extended, 2048) };
    let mut receiver = match Rivermax::<Device>::open(&exact, &[card.leg()], &gpu) {
        Ok(receiver) => receiver,
        Err(error) => return println!("skipped: {error}"),
    };
    receiver.join_all(&[card.leg()]).unwrap();
    let conversion = Conversion { layout: Layout::new(wire, Output::Wire).unwrap(), colour: COLOUR };
    let shown = Arc::new(Mutex::new(Vec::new()));
    let into = shown.clone();
    let keep = Box::new(move |frame: Frame<Host>| into.lock().unwrap().push(show(&frame)));
    let mut download = Download::new(&gpu, &conversion.layout, 2, keep).unwrap();
    let deliver = Box::new(move |frame: Frame<Device>, _| {
        download.take(&frame).unwrap();
    });
    let mut slab = Slab::new(&gpu, conversion.layout.size, 8).unwrap();
    let pool = FramePool::new(conversion.layout.clone(), slab.regions().into_iter(), |_, region| Ok(region)).unwrap();
    let kernel = CudaKernel::new(&gpu, conversion.clone(), receiver.ring(), Way::default()).unwrap();
    let kernel = Windows::new(kernel, &conversion, receiver.ring(), Ok(()));
    let mut pipeline = Pipeline::new(receiver, depacketiser(wire), kernel, pool, Incomplete::Show, None, deliver);
    for part in sent.chunks(24) {
        card.deliver(part);
        while matches!(pipeline.step(), Ok(Progress::Busy)) {}
        settle(&gpu);
    }
    pipeline.finish(&mut Vec::new()).unwrap();
    let counters = pipeline.frames();
    drop(pipeline);
    assert_eq!((counters.complete, counters.windows, counters.torn), (12, 12, 0), "{counters:?}");
    let shown = shown.lock().unwrap();
    assert!(shown.len() == 12 && shown.iter().enumerate().all(|(n, shown)| shown.octets == picture(wire, n)));
}
