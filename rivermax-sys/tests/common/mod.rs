//! What the tests share: a device for each test, packets, and memory.
#![allow(dead_code)] // each test binary uses some of it

use rivermax_sys::stand_in::{Device, Packet, StandIn};
use rivermax_sys::{Chunk, EntrySize, Flow, Library, Session, Stream, StreamOption, StreamParams};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

pub const SOURCE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 20000);
pub const GROUP: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 3), 5004);
/// 2020-09-13T12:26:40Z.
pub const TIME: u64 = 1_600_000_000_000_000_000;

pub struct Bench {
    pub session: Session,
    pub ip: Ipv4Addr,
    pub stand_in: StandIn,
}

/// A device of its own for each test: `n` tells them apart.
pub fn bench(n: u8, device: Device) -> Bench {
    let library = Library::load(None).expect("the stand-in was built");
    let (ip, stand_in) = (Ipv4Addr::new(127, 77, 0, n), library.stand_in());
    stand_in.set_device(ip, &device);
    Bench { session: library.session().expect("nothing keeps it from being initialised"), ip, stand_in }
}

pub fn manual(n: u8) -> Bench {
    bench(n, Device { manual: true, ..Device::default() })
}

impl Bench {
    pub fn params(&self) -> StreamParams {
        StreamParams::new(&self.session, self.ip).option(StreamOption::InfoPerPacket)
    }

    /// Whole packets in order of arrival, from [`GROUP`].
    pub fn whole(&self, capacity: usize) -> Stream {
        let params = self.params().capacity(capacity).sub_blocks(&[EntrySize::up_to(200)]);
        ready(params, 1000)
    }

    /// Packets that arrive one ns after the other, from [`TIME`] on.
    pub fn deliver(&self, packets: &[Vec<u8>]) -> usize {
        self.stand_in.deliver(self.ip, &in_flight(packets))
    }
}

pub fn in_flight(packets: &[Vec<u8>]) -> Vec<Packet<'_>> {
    packets.iter().zip(TIME..).map(|(data, time)| Packet { source: SOURCE, destination: GROUP, time, data }).collect()
}

/// A stream with at most `max` packets a chunk, with [`GROUP`] attached under the tag 7.
pub fn ready(params: StreamParams, max: usize) -> Stream {
    let mut stream = params.determine().expect("good parameters").create().expect("memory of the library");
    stream.set_completion_moderation(0, max, 0).expect("good numbers");
    stream.attach(&Flow::to(GROUP).tag(7)).expect("not attached yet");
    stream
}

/// RTP (RFC 3550, 5.1) with the high half of the sequence number behind it (ST 2110-20:2017, 6.1.2), then octets that
/// follow from the number.
pub fn packet(sequence: u32, len: usize) -> Vec<u8> {
    let mut data = vec![0x80, 96];
    data.extend((sequence as u16).to_be_bytes());
    data.extend([0; 8]);
    data.extend(((sequence >> 16) as u16).to_be_bytes());
    data.extend((data.len()..len).map(|i| (sequence as usize * 31 + i) as u8));
    data.truncate(len);
    data
}

pub fn packets(sequences: impl IntoIterator<Item = u32>) -> Vec<Vec<u8>> {
    sequences.into_iter().map(|sequence| packet(sequence, 100)).collect()
}

/// What lies at a packet's place in a sub-block.
pub fn octets(chunk: &Chunk<'_>, stride: usize, sub_block: usize, i: usize) -> Vec<u8> {
    let info = chunk.packet(i).expect("a packet of the chunk");
    let first = chunk.first(sub_block).expect("a chunk with packets");
    // SAFETY: in the ring, which nobody writes to meanwhile: the devices are manual, or the senders are done.
    unsafe { std::slice::from_raw_parts(first.as_ptr().add(i * stride), info.size(sub_block)) }.to_vec()
}

/// All packets that can be had now, whole.
pub fn drain(stream: &mut Stream) -> Vec<Vec<u8>> {
    let blocks = stream.layout().blocks.clone();
    let mut all = Vec::new();
    loop {
        let chunk = stream.next_chunk().expect("no failure is injected");
        if chunk.is_empty() {
            return all;
        }
        for i in 0..chunk.len() {
            let pieces = (0..blocks.len())
                .map(|b| if chunk.first(b).is_some() { octets(&chunk, blocks[b].stride, b, i) } else { Vec::new() });
            all.push(pieces.collect::<Vec<_>>().concat());
        }
    }
}

/// Like [`drain`], until there are `n` or some seconds have passed.
pub fn wait_for(stream: &mut Stream, n: usize) -> Vec<Vec<u8>> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut all = Vec::new();
    while all.len() < n && Instant::now() < end {
        all.extend(drain(stream));
        std::thread::sleep(Duration::from_millis(1));
    }
    all
}

/// pcap with nanoseconds: one Ethernet frame for each packet, with a VLAN tag on the odd ones.
pub fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (i, data) in packets.iter().enumerate() {
        let mut frame = vec![1; 12];
        if i % 2 == 1 {
            frame.extend([0x81, 0, 0, 5]);
        }
        frame.extend([8, 0]);
        let (udp, ip) = (8 + data.len() as u16, 28 + data.len() as u16);
        frame.extend([0x45, 0]);
        frame.extend(ip.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend(SOURCE.ip().octets());
        frame.extend(GROUP.ip().octets());
        for word in [SOURCE.port(), GROUP.port(), udp, 0] {
            frame.extend(word.to_be_bytes());
        }
        frame.extend(data);
        let (seconds, nanos) = ((TIME / 1_000_000_000) as u32, i as u32 * 1000);
        for word in [seconds, nanos, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// Zeroed memory that begins at a page, or so many bytes behind one.
pub struct Pages {
    layout: std::alloc::Layout,
    at: NonNull<u8>,
}

// SAFETY: plain memory.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    pub fn new(len: usize) -> Self {
        let layout = std::alloc::Layout::from_size_align(len + 4096, 4096).expect("a size");
        // SAFETY: not of size 0.
        let at = unsafe { std::alloc::alloc_zeroed(layout) };
        Pages { layout, at: NonNull::new(at).expect("memory") }
    }
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= 4096);
        // SAFETY: a page more than asked for was allocated.
        unsafe { self.at.add(offset) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated so.
        unsafe { std::alloc::dealloc(self.at.as_ptr(), self.layout) }
    }
}
