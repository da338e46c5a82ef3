//! Rings that a GPU reads: headers in memory of the host, payload in memory of the GPU, written there by the stand-in's own
//! copies. Frames are those of ordinary memory on the CPU, octet for octet. Needs a GPU; says "skipped" without one.
#![allow(unsafe_code)]

use crate::card::{COLOUR, Card, Shown, depacketiser, reference, show};
use crate::library::{ANY_MAC, NO_DMABUF, PEERMEM, Ways};
use crate::support::{EVEN, Sender, Sent, format};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::gpu::{Gpu, check, sys};
use gdmedia::kernel::cuda::{Options as Way, Transfer};
use gdmedia::kernel::{Conversion, CudaKernel};
use gdmedia::mem::{Device, GpuAccess, Host, Pinned, Slab};
use gdmedia::packetise::Cut as Packets;
use gdmedia::pipeline::{Incomplete, Pipeline, Progress};
use gdmedia::rx::verbs::{Cut, Options, Payload};
use gdmedia::rx::{Receiver, RxError, Verbs};
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::sink::{Download, Sink};
use gdmedia::stats::{FrameCounters, PacketCounters, Reason};
use std::sync::{Arc, Mutex};

fn gpu() -> Option<Arc<Gpu>> {
    Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
}

/// What the card writes is there for whoever reads it, as behind a bus: the stand-in's copies are.
fn settle(gpu: &Gpu) {
    gpu.bind().unwrap();
    // SAFETY: no argument; the context is bound.
    check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() }).unwrap();
}

/// Frames as they came out, counters, and what was said.
type Came = (Vec<Shown>, FrameCounters, PacketCounters, String);

/// Through a ring in the space `M`; nothing where the GPU has no such memory.
fn on_gpu<M>(gpu: &Arc<Gpu>, card: &Card, options: &Options, wire: WireFormat, sent: &[Sent]) -> Option<Came>
where
    M: Payload<Source = Arc<Gpu>> + GpuAccess,
{
    let conversion = Conversion { layout: Layout::new(wire, Output::Wire).unwrap(), colour: COLOUR };
    let mut receiver = match Verbs::<M>::open(options, &[card.leg()], gpu) {
        Ok(receiver) => receiver,
        Err(error) => {
            println!("skipped: {}: {error}", M::NAME);
            return None;
        }
    };
    receiver.join_all(&[card.leg()]).unwrap();
    let mut said = receiver.caps().notes.clone();
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
    let step = |pipeline: &mut Pipeline<Verbs<M>, Device, CudaKernel>| loop {
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
    pipeline.finish(&mut said).unwrap();
    let (counters, packets) = (pipeline.frames(), pipeline.depacketiser().counters());
    drop(pipeline);
    let shown = std::mem::take(&mut *shown.lock().unwrap());
    Some((shown, counters, packets, said.join("\n")))
}

/// Every 41st packet is missing, but for the first frame's.
fn holed(wire: WireFormat, cut: Packets) -> Vec<Sent> {
    let mut sent = Sender::plain(wire, cut).frames(5);
    let first = sent.iter().filter(|p| p.frame == 0).count();
    let mut n = 0;
    sent.retain(|_| {
        n += 1;
        n <= first || n % 41 != 0
    });
    sent
}

#[test]
fn frames_by_memory_of_the_gpu_are_those_of_sockets() {
    let Some(gpu) = gpu() else { return };
    let ten = |width, height, scan| format(Sampling::YCbCr422, Depth::D10, width, height, scan);
    let cases = [
        (ten(640, 90, Scan::Progressive), EVEN),
        (ten(640, 90, Scan::Progressive), Packets::Bpm { fill: true }),
        (ten(642, 60, Scan::Interlaced), Packets::Full { udp: 1400, segments: 3 }),
        (format(Sampling::Rgb, Depth::D10, 333, 61, Scan::Progressive), Packets::Full { udp: 900, segments: 2 }),
        (format(Sampling::YCbCr420, Depth::D10, 644, 62, Scan::Progressive), EVEN),
    ];
    for (wire, packets) in cases {
        let sent = holed(wire, packets);
        let expected = reference(&sent, wire);
        assert!(expected.frames.incomplete > 0 && expected.shown.len() == 5);
        for cut in [Cut::Auto, Cut::At(74), Cut::At(83), Cut::None] {
            // By dma-buf where there is one, else as by nvidia-peermem.
            let card = Card::with(Ways { flags: PEERMEM, ..Ways::default() });
            let options = card.options(cut, 512);
            let all = [
                on_gpu::<Device>(&gpu, &card, &options, wire, &sent),
                on_gpu::<Pinned>(&gpu, &card, &options, wire, &sent),
            ];
            for (shown, counters, packets, _) in all.into_iter().flatten() {
                assert_eq!(counters, expected.frames, "{wire:?} {cut:?}");
                assert_eq!(packets, expected.packets, "{wire:?} {cut:?}");
                assert_eq!(shown.len(), expected.shown.len());
                for (got, expected) in shown.iter().zip(&expected.shown) {
                    assert_eq!(
                        (got.number, got.complete, &got.missing),
                        (expected.number, expected.complete, &expected.missing)
                    );
                    let wrong = got.octets.iter().zip(&expected.octets).position(|(a, b)| a != b);
                    assert_eq!(wrong, None, "{wire:?} {cut:?} frame {}", got.number);
                }
            }
        }
    }
}

#[test]
fn each_way_into_the_gpu_is_said_with_the_reason() {
    let Some(gpu) = gpu() else { return };
    let wire = format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive);
    let sent = Sender::plain(wire, EVEN).frames(2);
    let card = Card::with(Ways { flags: NO_DMABUF | PEERMEM, ..Ways::default() });
    let options = card.options(Cut::Auto, 256);
    let Some((shown, _, _, said)) = on_gpu::<Device>(&gpu, &card, &options, wire, &sent) else { return };
    assert!(shown.len() == 2 && said.contains("by nvidia-peermem; not by dma-buf: "), "{said}");
    assert!(said.contains("the first 96 octets of frames in 1 MiB of the host, the rest in "), "{said}");
    // Neither way: all is given back, and both reasons are in one line.
    card.control.set_flags(NO_DMABUF | ANY_MAC);
    let error = Verbs::<Device>::open(&options, &[card.leg()], &gpu).err().unwrap();
    let line = error.in_one_line();
    assert!(line.contains("nvidia-peermem") && line.contains("by dma-buf: "), "{line}");
    assert!(error.cure_text().contains("pinned memory"), "{error}");
    assert_eq!(card.control.counts().mrs, 0);
    // In pinned memory packets lie whole.
    let (shown, frames, packets, said) = on_gpu::<Pinned>(&gpu, &card, &options, wire, &sent).unwrap();
    assert_eq!(shown.len(), 2, "{frames:?} {packets:?} {said}");
    assert!(said.contains("packets whole in 1 MiB, pinned memory of the host"), "{said}");
}

/// Where the CPU does not reach what was cut off, headers that reach beyond the cut are counted, and the remedy is named.
#[test]
fn headers_that_end_in_memory_of_the_gpu_are_counted_with_the_cure() {
    let Some(gpu) = gpu() else { return };
    let wire = format(Sampling::YCbCr422, Depth::D10, 64, 32, Scan::Progressive);
    let mut sent = Sender::plain(wire, Packets::Full { udp: 400, segments: 3 }).frames(3);
    for packet in &mut sent {
        packet.octets[0] |= 2;
        packet.octets.splice(12..12, [7; 8]);
        packet.present = packet.octets.len();
    }
    let card = Card::with(Ways { flags: PEERMEM, ..Ways::default() });
    // 42 octets before RTP, then 12, 8 of contributing sources, 20: 82.
    for (cut, whole) in [(Cut::At(82), true), (Cut::At(81), false)] {
        let came = on_gpu::<Device>(&gpu, &card, &card.options(cut, 256), wire, &sent);
        let Some((_, frames, packets, said)) = came else { return };
        assert_eq!(frames.complete, if whole { 3 } else { 0 }, "{cut:?} {packets:?}");
        let split = packets.rejected.get(Reason::Split);
        assert_eq!(split > 0, !whole, "{packets:?}");
        assert!(said.contains("use --verbs cut=96, or cut=none"), "{said}");
    }
}
