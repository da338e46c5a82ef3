//! Packets that DPDK brings, unpacked on a GPU: the pool's memory is registered with CUDA, or pinned from the beginning. Frames are
//! those of the socket's, octet for octet. Needs a GPU; says "skipped" without one.

use crate::on_gpu::{gpu, on_gpu};
use crate::options;
use crate::played::Outcome;
use crate::stand_in::{Card, with_cards};
use crate::support::{EVEN, Sender, Sent, format};
use gdmedia::format::{Output, WireFormat};
use gdmedia::gpu::Gpu;
use gdmedia::mem::{Device, GpuAccess, Host, Pinned};
use gdmedia::rx::{Dpdk, Receiver, Registered, Socket, socket};
use gdmedia::sdp::{Depth, Leg, Sampling, Scan, SourceFilter};
use gdmedia::wire::capture::PcapWriter;
use gdmedia::wire::net::Route;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Frames of a receiver, on the GPU and back. `send` sends the next packets, and says when there are none any more.
fn frames<R>(
    gpu: &Arc<Gpu>,
    mut receiver: R,
    leg: &Leg,
    wire: WireFormat,
    output: Output,
    mut send: impl FnMut() -> bool,
    count: u64,
) -> Outcome
where
    R: Receiver + 'static,
    R::Mem: GpuAccess,
{
    receiver.join(0, leg).unwrap();
    let mut played = on_gpu(gpu, receiver, wire, output);
    let received = |played: &crate::played::Played<R, _, _>| played.pipeline.depacketiser().counters().received;
    let (begun, mut more) = (Instant::now(), true);
    while (more || received(&played) < count) && begun.elapsed() < Duration::from_secs(30) {
        more = more && send();
        played.step();
    }
    let outcome = played.finish();
    assert_eq!((outcome.packets.received, outcome.packets.lost), (count, 0));
    outcome
}

fn leg(destination: IpAddr, port: u16) -> Leg {
    Leg { destination, port, sources: SourceFilter::Any, ttl: None, mid: None }
}

fn recorded(folder: &tempfile::TempDir, sent: &[Sent]) -> String {
    let path = folder.path().join("flow.pcap");
    let mut writer = PcapWriter::create(&path).unwrap();
    let route = Route::new("192.0.2.1:5000".parse().unwrap(), "239.1.1.1:5004".parse().unwrap()).unwrap();
    for (n, packet) in sent.iter().enumerate() {
        writer.datagram(n as u64 * 1000, &route, &packet.octets).unwrap();
    }
    writer.finish().unwrap();
    path.display().to_string()
}

/// What sockets make of it.
fn by_socket(gpu: &Arc<Gpu>, sent: &[Sent], wire: WireFormat, output: Output) -> Outcome {
    let address: SocketAddr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let socket = Socket::open(socket::Options { cells: 1024, ..socket::Options::default() }).unwrap();
    let socket = Registered::new(socket, gpu).map_err(|(error, _)| error).unwrap();
    let (sender, mut parts) = (UdpSocket::bind("127.0.0.1:0").unwrap(), sent.chunks(24));
    let send = || {
        let part = parts.next();
        part.into_iter().flatten().for_each(|packet| assert!(sender.send_to(&packet.octets, address).is_ok()));
        part.is_some()
    };
    frames(gpu, socket, &leg(address.ip(), address.port()), wire, output, send, sent.len() as u64)
}

#[test]
fn frames_on_the_gpu_are_those_of_sockets() {
    let Some(gpu) = gpu() else { return };
    for (sampling, depth, output) in [
        (Sampling::YCbCr422, Depth::D10, Output::Planar),
        (Sampling::YCbCr422, Depth::D10, Output::Wire),
        (Sampling::Rgb, Depth::D8, Output::Planar),
    ] {
        let wire = format(sampling, depth, 640, 90, Scan::Progressive);
        let sent = Sender::plain(wire, EVEN).frames(8);
        let count = sent.len() as u64;
        let by_socket = by_socket(&gpu, &sent, wire, output);
        assert_eq!((by_socket.shown.len(), by_socket.frames.complete), (8, 8));
        let folder = tempfile::tempdir().unwrap();
        let words = format!("port=net_pcap,rx_pcap={}", recorded(&folder, &sent));
        let group = leg("239.1.1.1".parse().unwrap(), 5004);
        // Ordinary memory with the pool in it, registered.
        let receiver = Dpdk::<Host>::open(options(&words), &()).unwrap();
        let receiver = Registered::new(receiver, &gpu).map_err(|(error, _)| error).unwrap();
        let registered = frames(&gpu, receiver, &group, wire, output, || false, count);
        registered.has_frames_of(&by_socket, &std::format!("{sampling:?} {output:?}: registered memory"));
        // Memory that CUDA has given.
        let receiver = Dpdk::<Pinned>::open(options(&words), &gpu).unwrap();
        let pinned = frames(&gpu, receiver, &group, wire, output, || false, count);
        pinned.has_frames_of(&by_socket, &std::format!("{sampling:?} {output:?}: pinned memory"));
        println!("{sampling:?} {output:?}: 8 frames of {count} packets are equal");
    }
    let refused = Dpdk::<Device>::open_split(options("port=net_null70"), &gpu).map(drop).unwrap_err();
    assert!(
        refused.to_string().contains("driver net_null of port net_null70 does not cut packets in two"),
        "{refused}"
    );
}

/// Headers in memory of the host, what follows in that of the GPU, as a card does that cuts packets.
#[test]
fn frames_that_a_card_cuts_are_those_of_sockets() {
    if gpu().is_none() {
        return;
    }
    with_cards("gpu::frames_that_a_card_cuts_are_those_of_sockets", || {
        let Some(gpu) = gpu() else { return };
        let card = Card::new(0);
        let open = || {
            let words = options(&format!("port={};address=192.0.2.7", card.name()));
            Dpdk::<Device>::open_split(words, &gpu)
        };
        let refused = |why: &str| {
            let error = open().map(drop).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("pinned memory"), "{error}");
            assert_eq!((card.get("started"), card.get("reached")), (0, 0));
        };
        refused("does not cut packets in two");
        // Behind headers of its choice only, as ice: that is not where we want it.
        card.set("splits", 1).set("headers", 12);
        refused("does not cut packets in two");
        card.set("headers", 0);
        let receiver = open();
        if let Err(error) = receiver {
            return println!("skipped: {error}");
        }
        drop(receiver);
        card.set("map", libc::EINVAL.into());
        let error = open().map(drop).unwrap_err().to_string();
        assert!(error.contains("memory of the GPU") && error.contains("nvidia-peermem"), "{error}");
        card.set("map", 0);
        for (sampling, depth, output) in [
            (Sampling::YCbCr422, Depth::D10, Output::Planar),
            (Sampling::YCbCr422, Depth::D10, Output::Wire),
            (Sampling::Rgb, Depth::D8, Output::Planar),
        ] {
            let wire = format(sampling, depth, 640, 90, Scan::Progressive);
            let sent = Sender::plain(wire, EVEN).frames(8);
            let expected = by_socket(&gpu, &sent, wire, output);
            let route = Route::new("192.0.2.1:5000".parse().unwrap(), "239.1.1.1:5004".parse().unwrap()).unwrap();
            let mut parts = sent.chunks(24);
            let send = || {
                let part = parts.next();
                for packet in part.into_iter().flatten() {
                    let mut frame = Vec::new();
                    route.emit(&packet.octets, &mut frame).unwrap();
                    assert!(card.feed(&frame, 0));
                }
                part.is_some()
            };
            let group = leg("239.1.1.1".parse().unwrap(), 5004);
            let receiver = open().unwrap();
            let notes = receiver.caps().notes.join("\n");
            assert!(notes.contains("MiB of memory of the GPU"), "{notes}");
            let cut = frames(&gpu, receiver, &group, wire, output, send, sent.len() as u64);
            cut.has_frames_of(&expected, &std::format!("{sampling:?} {output:?}: cut into memory of the GPU"));
            println!("{sampling:?} {output:?}: 8 frames of {} packets are equal", sent.len());
        }
        // What a card says of its second piece is looked at as well.
        let mut receiver = open().unwrap();
        receiver.join(0, &leg("239.1.1.1".parse().unwrap(), 5004)).unwrap();
        card.set("longer", 100);
        let route = Route::new("192.0.2.1:5000".parse().unwrap(), "239.1.1.1:5004".parse().unwrap()).unwrap();
        let mut frame = Vec::new();
        route.emit(&[0x80; 400], &mut frame).unwrap();
        assert!(card.feed(&frame, 0));
        let begun = Instant::now();
        while receiver.counters().hardware_issues == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", receiver.counters());
            let lease = receiver.poll().unwrap();
            assert!(lease.is_empty());
            receiver.release(lease);
        }
    });
}
