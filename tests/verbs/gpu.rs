//! Rings that a GPU reads: headers in memory of the host, payload in memory of the GPU, written there by the stand-in's own
//! copies. Frames are those of ordinary memory on the CPU, octet for octet. Needs a GPU; says "skipped" without one.

use crate::card::Card;
use crate::library::{ANY_MAC, NO_DMABUF, PEERMEM, Ways};
use crate::on_gpu::{self, gpu, settle};
use crate::played::{Outcome, reference};
use crate::support::{EVEN, Sender, Sent, format};
use gdmedia::format::{Output, WireFormat};
use gdmedia::gpu::Gpu;
use gdmedia::mem::{Device, GpuAccess, Pinned};
use gdmedia::packetise::Cut as Packets;
use gdmedia::rx::verbs::{Cut, Options, Payload};
use gdmedia::rx::{Receiver, Verbs};
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::stats::Reason;
use std::sync::Arc;

/// Through a ring in the space `M`, and what was said; nothing where the GPU has no such memory.
fn on_gpu<M>(
    gpu: &Arc<Gpu>,
    card: &Card,
    options: &Options,
    wire: WireFormat,
    sent: &[Sent],
) -> Option<(Outcome, String)>
where
    M: Payload<Source = Arc<Gpu>> + GpuAccess,
{
    let mut receiver = match Verbs::<M>::open(options, &[card.leg()], gpu) {
        Ok(receiver) => receiver,
        Err(error) => {
            println!("skipped: {}: {error}", M::NAME);
            return None;
        }
    };
    receiver.join_all(&[card.leg()]).unwrap();
    let mut said = receiver.caps().notes.clone();
    let mut played = on_gpu::on_gpu(gpu, receiver, wire, Output::Wire);
    // What the card writes is there for whoever reads it, as behind a bus: the stand-in's copies are.
    for part in sent.chunks(24) {
        card.deliver(part);
        played.step();
        settle(gpu);
        played.step();
    }
    let outcome = played.finish();
    said.extend(outcome.remarks.iter().cloned());
    Some((outcome, said.join("\n")))
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
            for (outcome, _) in all.into_iter().flatten() {
                outcome.has_frames_of(&expected, &std::format!("{wire:?} {cut:?}"));
                assert_eq!(outcome.packets, expected.packets, "{wire:?} {cut:?}");
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
    let Some((Outcome { shown, .. }, said)) = on_gpu::<Device>(&gpu, &card, &options, wire, &sent) else { return };
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
    let (Outcome { shown, frames, packets, .. }, said) = on_gpu::<Pinned>(&gpu, &card, &options, wire, &sent).unwrap();
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
        let Some((Outcome { frames, packets, .. }, said)) = came else { return };
        assert_eq!(frames.complete, if whole { 3 } else { 0 }, "{cut:?} {packets:?}");
        let split = packets.rejected.get(Reason::Split);
        assert_eq!(split > 0, !whole, "{packets:?}");
        assert!(said.contains("use --verbs cut=96, or cut=none"), "{said}");
    }
}
