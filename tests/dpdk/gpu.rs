//! Packets that DPDK brings, unpacked on a GPU: the pool's memory is registered with CUDA, or pinned from the beginning. Frames are
//! those of the socket's, octet for octet. Needs a GPU; says "skipped" without one.

use crate::options;
use crate::support::{EVEN, RATE, Sender, Sent, format};
use gdmedia::depacketise::{Config, Depacketiser};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::gpu::Gpu;
use gdmedia::kernel::cuda::Options;
use gdmedia::kernel::{Colour, Conversion, CudaKernel};
use gdmedia::mem::{Device, GpuAccess, Host, Pinned, Slab};
use gdmedia::pipeline::{Incomplete, Pipeline, Progress};
use gdmedia::rx::{Dpdk, Receiver, Registered, RxError, Socket, socket};
use gdmedia::sdp::{Colorimetry, Depth, Leg, Range, Sampling, Scan, SourceFilter, Tcs};
use gdmedia::sink::{Download, Sink};
use gdmedia::wire::capture::PcapWriter;
use gdmedia::wire::net::Route;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

/// Number of the frame, whole, and its rows.
type Pictures = Vec<(u64, bool, Vec<u8>)>;

fn picture(frame: &Frame<Host>) -> (u64, bool, Vec<u8>) {
    let rows = frame.layout().planes.iter().enumerate().flat_map(|(p, plane)| (0..plane.rows).map(move |row| (p, row)));
    let octets = rows.flat_map(|(plane, row)| frame.row(plane, row).to_vec()).collect();
    (frame.meta().number, frame.meta().complete, octets)
}

/// Frames of a receiver, on the GPU and back. `send` sends the next packets, and says when there are none any more.
fn frames<R>(
    gpu: &Arc<Gpu>,
    mut receiver: R,
    leg: &Leg,
    wire: WireFormat,
    output: Output,
    mut send: impl FnMut() -> bool,
    count: u64,
) -> Pictures
where
    R: Receiver + 'static,
    R::Mem: GpuAccess,
{
    receiver.join(0, leg).unwrap();
    let conversion = Conversion { layout: Layout::new(wire, output).unwrap(), colour: COLOUR };
    let pictures = Arc::new(Mutex::new(Vec::new()));
    let into = pictures.clone();
    let keep = Box::new(move |frame: Frame<Host>| into.lock().unwrap().push(picture(&frame)));
    let mut download = Download::new(gpu, &conversion.layout, 2, keep).unwrap();
    let deliver = Box::new(move |frame: Frame<Device>, _| {
        download.take(&frame).unwrap();
    });
    let mut slab = Slab::new(gpu, conversion.layout.size, 8).unwrap();
    let pool = FramePool::new(conversion.layout.clone(), slab.regions().into_iter(), |_, region| Ok(region)).unwrap();
    let kernel = CudaKernel::new(gpu, conversion, receiver.ring(), Options::default()).unwrap();
    let depacketiser = Depacketiser::video(Config::new(wire, 96, Some(RATE)));
    let mut pipeline = Pipeline::new(receiver, depacketiser, kernel, pool, Incomplete::Show, None, deliver);
    let begun = Instant::now();
    let mut more = true;
    while (more || pipeline.depacketiser().counters().received < count) && begun.elapsed() < Duration::from_secs(30) {
        more = more && send();
        loop {
            match pipeline.step() {
                Ok(Progress::Busy) => {}
                Ok(Progress::Idle) | Err(RxError::End) => break,
                Err(RxError::Failed(error)) => panic!("{error}"),
            }
        }
    }
    assert_eq!((pipeline.depacketiser().counters().received, pipeline.depacketiser().counters().lost), (count, 0));
    pipeline.finish(&mut Vec::new()).unwrap();
    drop(pipeline);
    Arc::into_inner(pictures).unwrap().into_inner().unwrap()
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

#[test]
fn frames_on_the_gpu_are_those_of_sockets() {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => return println!("skipped: no CUDA device: {error}"),
    };
    for (sampling, depth, output) in [
        (Sampling::YCbCr422, Depth::D10, Output::Planar),
        (Sampling::YCbCr422, Depth::D10, Output::Wire),
        (Sampling::Rgb, Depth::D8, Output::Planar),
    ] {
        let wire = format(sampling, depth, 640, 90, Scan::Progressive);
        let sent = Sender::plain(wire, EVEN).frames(8);
        let count = sent.len() as u64;
        let by_socket = {
            let address: SocketAddr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let socket = Socket::open(socket::Options { cells: 1024, ..socket::Options::default() }).unwrap();
            let socket = Registered::new(socket, &gpu).map_err(|(error, _)| error).unwrap();
            let (sender, mut parts) = (UdpSocket::bind("127.0.0.1:0").unwrap(), sent.chunks(24));
            let send = || {
                let part = parts.next();
                part.into_iter().flatten().for_each(|packet| assert!(sender.send_to(&packet.octets, address).is_ok()));
                part.is_some()
            };
            frames(&gpu, socket, &leg(address.ip(), address.port()), wire, output, send, count)
        };
        assert_eq!(by_socket.len(), 8);
        assert!(by_socket.iter().all(|picture| picture.1));
        let folder = tempfile::tempdir().unwrap();
        let words = format!("port=net_pcap,rx_pcap={}", recorded(&folder, &sent));
        let group = leg("239.1.1.1".parse().unwrap(), 5004);
        // Ordinary memory with the pool in it, registered.
        let receiver = Dpdk::<Host>::open(options(&words), &()).unwrap();
        let receiver = Registered::new(receiver, &gpu).map_err(|(error, _)| error).unwrap();
        let registered = frames(&gpu, receiver, &group, wire, output, || false, count);
        assert!(registered == by_socket, "{sampling:?} {output:?}: registered memory");
        // Memory that CUDA has given.
        let receiver = Dpdk::<Pinned>::open(options(&words), &gpu).unwrap();
        let pinned = frames(&gpu, receiver, &group, wire, output, || false, count);
        assert!(pinned == by_socket, "{sampling:?} {output:?}: pinned memory");
        println!("{sampling:?} {output:?}: 8 frames of {count} packets are equal");
    }
    let refused = Dpdk::<Device>::open_split(options("port=net_null70"), &gpu).map(drop).unwrap_err();
    assert!(
        refused.to_string().contains("driver net_null of port net_null70 does not cut packets in two"),
        "{refused}"
    );
}
