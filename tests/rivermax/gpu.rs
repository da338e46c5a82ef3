//! Rings that a GPU reads: headers in memory of the host, data in memory of the GPU, written there by the stand-in's own
//! copies. Frames are those of ordinary memory on the CPU, octet for octet. Needs a GPU; says "skipped" without one.

use crate::card::{Card, alone, options};
use crate::on_gpu::{self, gpu, settle};
use crate::played::{Outcome, reference};
use crate::support::{EVEN, Sender, Sent, format, picture};
use gdmedia::format::{Output, WireFormat};
use gdmedia::gpu::Gpu;
use gdmedia::kernel::Windows;
use gdmedia::mem::{Device, GpuAccess, Pinned};
use gdmedia::packetise::Cut;
use gdmedia::rx::rivermax::{Options, Order, Planes, Split};
use gdmedia::rx::{Receiver, Rivermax};
use gdmedia::sdp::{Depth, Sampling, Scan};
use std::sync::Arc;

/// Through a ring in the space `M`; nothing where the GPU has no such memory.
fn on_gpu<M>(gpu: &Arc<Gpu>, wire: WireFormat, sent: &[Sent], split: Split, order: Order) -> Option<Outcome>
where
    M: Planes<Source = Arc<Gpu>> + GpuAccess,
{
    let card = Card::new();
    let mut receiver = match Rivermax::<M>::open(&options(&[card], split, order, 512), &[card.leg()], gpu) {
        Ok(receiver) => receiver,
        Err(error) => {
            println!("skipped: {}: {error}", M::NAME);
            return None;
        }
    };
    receiver.join_all(&[card.leg()]).unwrap();
    assert_eq!(receiver.ring().body_plane().is_some(), split != Split::None);
    let mut played = on_gpu::on_gpu(gpu, receiver, wire, Output::Wire);
    // The card goes on only when what was started has been read: laps are a matter of their own.
    for part in sent.chunks(24) {
        card.deliver(part);
        played.step();
        settle(gpu);
        played.step();
    }
    Some(played.finish())
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
                for outcome in all.into_iter().flatten() {
                    outcome.has_frames_of(&expected, &std::format!("{wire:?} {cut:?} {split:?} {order:?}"));
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
    let windows = |kernel, conversion: &_, ring: &_| Windows::new(kernel, conversion, ring, Ok(()));
    let mut played = on_gpu::on_gpu_by(&gpu, receiver, wire, Output::Wire, windows);
    for part in sent.chunks(24) {
        card.deliver(part);
        played.step();
        settle(&gpu);
    }
    let Outcome { frames, shown, .. } = played.finish();
    assert_eq!((frames.complete, frames.windows, frames.torn), (12, 12, 0), "{frames:?}");
    assert!(shown.len() == 12 && shown.iter().enumerate().all(|(n, shown)| shown.octets == picture(wire, n)));
}
