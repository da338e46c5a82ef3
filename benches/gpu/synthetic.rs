//! A stream of 2160p59.94, 4:2:2 10 bit, whose packets lie in pinned memory one after the other, as merged datagrams do.
//! Only their sequence numbers and timestamps are written anew for each frame.

use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::gpu::Gpu;
use gdmedia::kernel::cuda::{CudaKernel, Options};
use gdmedia::kernel::{Colour, Conversion};
use gdmedia::mem::{CpuAccess, Device, Pinned, Region, Slab, Space};
use gdmedia::packetise::{Cut, Packetiser, STANDARD_UDP, Style};
use gdmedia::pipeline::{Deliver, Incomplete, Pipeline};
use gdmedia::ring::{Slot, SplitRing};
use gdmedia::rx::{Memory, Receiver};
use gdmedia::sdp::{Colorimetry, Depth, Range, Ratio, Sampling, Scan, Tcs};
use gdmedia::send::template::Template;
use gdmedia::time::{Tai, VIDEO_CLOCK, frame_nanos, frame_ticks};
use std::sync::Arc;

pub const RATE: Ratio = Ratio { num: 60000, den: 1001 };
/// Frames that the ring holds: more than the caches of the CPU do.
const FRAMES: usize = 8;
/// A frame of the year 2025.
const FIRST: u64 = 105_000_000_000;

pub fn wire() -> WireFormat {
    WireFormat::new(Sampling::YCbCr422, Depth::D10, 3840, 2160, Scan::Progressive).unwrap()
}

pub fn conversion(output: Output) -> Conversion {
    let colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
    Conversion { layout: Layout::new(wire(), output).unwrap(), colour }
}

/// The packets of a frame.
pub struct Packets {
    pub template: Template,
    /// All of them, one after the other.
    pub octets: Vec<u8>,
    /// Where each begins.
    pub at: Vec<u32>,
}

impl Packets {
    pub fn new() -> Self {
        let packetiser = Packetiser::new(wire(), Style::new(Cut::Even { udp: STANDARD_UDP }), 0).unwrap();
        let template = Template::new(packetiser, false);
        let picture: Vec<u8> =
            (0..wire().frame_octets()).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let (mut octets, mut at) = (Vec::new(), Vec::new());
        for packet in &template.packets {
            at.push(octets.len() as u32);
            template.write(packet, &picture, &mut octets);
        }
        Packets { template, octets, at }
    }
}

/// How packets lie in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Leases that a frame is cut into.
    pub cuts: usize,
    /// Headers in a plane of their own, payload in the other.
    pub split: bool,
    /// Octets are copied into the ring for every frame, as the operating system does when it receives.
    pub copy: bool,
}

/// Packets one after the other, a frame in five leases.
pub const WHOLE: Shape = Shape { cuts: 5, split: false, copy: false };

/// Octets between two headers in a plane of their own.
const HEAD: usize = 64;

/// A receiver that always has packets.
pub fn receiver<M: Space<Head = M> + CpuAccess>(
    packets: &Arc<Packets>,
    memory: impl Fn(usize) -> Region<M>,
    shape: Shape,
) -> Memory<M> {
    let Shape { cuts, split, copy } = shape;
    let count = packets.at.len();
    let batch = count / cuts;
    assert_eq!(batch * cuts, count);
    // Of one frame: what lies in the bulk plane, and where each packet begins there.
    let mut bulk = Vec::new();
    let mut at = Vec::new();
    for (begin, packet) in packets.at.iter().zip(&packets.template.packets) {
        let skip = if split { packet.header.len() } else { 0 };
        at.push(bulk.len());
        bulk.extend_from_slice(&packets.octets[*begin as usize + skip..][..usize::from(packet.octets) - skip]);
    }
    at.push(bulk.len());
    let mut region = memory(bulk.len() * FRAMES + 64);
    for frame in 0..FRAMES {
        region.as_mut_slice()[frame * bulk.len()..][..bulk.len()].copy_from_slice(&bulk);
    }
    let mut heads = memory(if split { count * FRAMES * HEAD } else { 64 });
    for n in (0..count * FRAMES).filter(|_| split) {
        let header = packets.template.header(&packets.template.packets[n % count]);
        heads.as_mut_slice()[n * HEAD..][..header.len()].copy_from_slice(header);
    }
    let ring = if split { SplitRing::split(heads, region) } else { SplitRing::whole(region) };
    let theirs = packets.clone();
    let mut number = 0u64;
    let fill = move |ring: &mut SplitRing<M>, area: usize, slots: &mut Vec<Slot>| {
        let (frame, cut) = (number / cuts as u64, number as usize % cuts);
        number += 1;
        let base = area / cuts * bulk.len();
        let timestamp = (frame_ticks(FIRST + frame, RATE, VIDEO_CLOCK) as u32).to_be_bytes();
        let arrival = Tai((u128::from(FIRST + frame) * u128::from(frame_nanos(RATE))) as u64);
        if copy {
            let (from, to) = (at[cut * batch], at[(cut + 1) * batch]);
            let plane = if split { ring.body_plane_mut() } else { Some(ring.head_plane_mut()) };
            plane.unwrap().as_mut_slice()[base + from..base + to].copy_from_slice(&bulk[from..to]);
        }
        let octets = ring.head_plane_mut().as_mut_slice();
        for (n, begin) in at.iter().enumerate().take((cut + 1) * batch).skip(cut * batch) {
            let sequence = (frame as u32).wrapping_mul(count as u32).wrapping_add(n as u32).to_be_bytes();
            let packet = &theirs.template.packets[n];
            let here = base + begin;
            let head_at = if split { (area / cuts * count + n) * HEAD } else { here };
            let header = &mut octets[head_at..head_at + 14];
            header[2..4].copy_from_slice(&sequence[2..]);
            header[4..8].copy_from_slice(&timestamp);
            header[12..14].copy_from_slice(&sequence[..2]);
            slots.push(Slot {
                head_at: head_at as u32,
                body_at: here as u32,
                head: if split { packet.header.len() as u16 } else { packet.octets },
                octets: packet.octets,
                wire_octets: packet.octets,
                leg: 0,
                arrival,
            });
        }
        Ok(true)
    };
    Memory::new(ring, FRAMES * cuts, batch, None, Box::new(fill))
}

/// Memory of the host in huge pages, as receivers have it, that the GPU reaches.
pub fn registered(gpu: &Arc<Gpu>, octets: usize) -> Region<Pinned> {
    let host = Region::host(octets).unwrap();
    let start = std::ptr::NonNull::from(host.as_slice()).cast();
    // SAFETY: `host` is moved into the region, which nobody else knows.
    unsafe { Region::register(gpu, start, octets, Box::new(host)) }.unwrap()
}

pub fn depacketiser() -> Depacketiser {
    Depacketiser::video(Config::new(wire(), 96, Some(RATE)))
}

/// From pinned memory to frames of the GPU.
pub type Flow = Pipeline<Memory<Pinned>, Device, CudaKernel>;

pub fn flow(
    gpu: &Arc<Gpu>,
    packets: &Arc<Packets>,
    output: Output,
    shape: Shape,
    frames: usize,
    options: Options,
    deliver: Deliver<Device>,
) -> Flow {
    let conversion = conversion(output);
    let receiver = receiver(packets, |octets| registered(gpu, octets), shape);
    let mut slab = Slab::new(gpu, conversion.layout.size, frames).unwrap();
    let pool = FramePool::new(conversion.layout.clone(), slab.regions().into_iter(), |_, region| Ok(region)).unwrap();
    let kernel = CudaKernel::new(gpu, conversion, receiver.ring(), options).unwrap();
    Pipeline::new(receiver, depacketiser(), kernel, pool, Incomplete::Conceal, None, deliver)
}

/// Nobody wants them.
pub fn nobody<M: Space>() -> Deliver<M> {
    Box::new(|_: Frame<M>, _| {})
}
