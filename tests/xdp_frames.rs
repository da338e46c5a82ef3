//! The same stream over a veth pair by sockets and by AF_XDP, to frames of the CPU and of a GPU: octet for octet the same.
//! Prints what a packet costs the receiving thread. Needs root and nothing else; says "skipped: not root", and without a
//! GPU "skipped: no CUDA device".
#![allow(unsafe_code)]

mod support;
mod veth;

use gdmedia::format::{Output, WireFormat};
use gdmedia::frame::Frame;
use gdmedia::mem::Host;
use gdmedia::pipeline::{HostPipeline, Incomplete, Progress, Settings};
use gdmedia::rx::xdp::Mode;
use gdmedia::rx::{Receiver, Socket, Xdp, socket, xdp};
use gdmedia::sdp::{Depth, Flow, Sampling, Scan};
use gdmedia::worker::{Report, Stepper};
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{EVEN, Sender, Sent};
use veth::{Net, inside};

const FRAMES: usize = 30;
/// Packets that are sent before the receiver is asked again.
const AT_ONCE: usize = 120;

fn wire() -> WireFormat {
    support::format(Sampling::YCbCr422, Depth::D10, 640, 180, Scan::Progressive)
}

fn flow() -> Flow {
    let text = "v=0\r\no=- 1 1 IN IP4 10.77.0.1\r\ns=test\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 239.77.1.1/32\r\n\
                a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=640; height=180; \
                exactframerate=30000/1001; depth=10; TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
                a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:sender\r\n";
    gdmedia::sdp::parse(text.as_bytes(), gdmedia::sdp::Mode::Lenient).flows.remove(0)
}

fn settings() -> Settings {
    Settings { output: Output::Planar, incomplete: Incomplete::Show, frames: FRAMES + 6, ..Settings::default() }
}

/// A receiver in the receiver's namespace that has joined the flow.
type Open = fn(&Net) -> Box<dyn Receiver<Mem = Host>>;

fn by_socket(net: &Net) -> Box<dyn Receiver<Mem = Host>> {
    let interfaces = vec!["rx0".into()];
    inside(&net.rx, || {
        let mut receiver = Socket::open(socket::Options { interfaces, ..Default::default() }).unwrap();
        receiver.join_all(&flow().legs).unwrap();
        Box::new(receiver)
    })
}

fn by_xdp(net: &Net, mode: Mode) -> Box<dyn Receiver<Mem = Host>> {
    let interfaces = vec!["rx0".into()];
    inside(&net.rx, || {
        let mut receiver = Xdp::open(xdp::Options { interfaces, mode: Some(mode), ..Default::default() }).unwrap();
        receiver.join_all(&flow().legs).unwrap();
        Box::new(receiver)
    })
}

const WAYS: [(&str, Open); 3] = [
    ("sockets", by_socket),
    ("AF_XDP, native", |net| by_xdp(net, Mode::Native)),
    ("AF_XDP, generic", |net| by_xdp(net, Mode::Generic)),
];

type Pictures = Arc<Mutex<Vec<Vec<u8>>>>;

/// Sends all, steps meanwhile, and says what a packet cost: the middle of all parts in which no frame was delivered, whose
/// copy costs more than the rest.
fn play(name: &str, mut pipeline: Box<dyn Stepper>, sender: &UdpSocket, sent: &[Sent], pictures: &Pictures) {
    let mut costs = Vec::new();
    for part in sent.chunks(AT_ONCE) {
        for packet in part {
            sender.send_to(&packet.octets, "239.77.1.1:5004").unwrap();
        }
        let before = pictures.lock().unwrap().len();
        let begun = thread_cpu();
        while pipeline.step().unwrap() == Progress::Busy {}
        let each = (thread_cpu() - begun).as_secs_f64() * 1e6 / part.len() as f64;
        if pictures.lock().unwrap().len() == before {
            costs.push(each);
        }
    }
    costs.sort_by(f64::total_cmp);
    let begun = Instant::now();
    while pictures.lock().unwrap().len() < FRAMES && begun.elapsed() < Duration::from_secs(5) {
        pipeline.step().unwrap();
    }
    pipeline.finish(&mut Vec::new()).unwrap();
    let mut report = Report::default();
    pipeline.report(&mut report);
    let (middle, parts) = (costs.get(costs.len() / 2).copied().unwrap_or_default(), costs.len());
    println!("{name}: {middle:.3} us of the receiving thread a packet, middle of {parts} parts of {AT_ONCE} packets");
    assert_eq!((report.packets.received, report.packets.lost), (sent.len() as u64, 0), "{name} {:?}", report.rx);
    assert_eq!(report.frames.complete, FRAMES as u64, "{name} {:?}", report.frames);
}

fn thread_cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// All rows of all planes.
fn picture(frame: &Frame<Host>) -> Vec<u8> {
    let planes = frame.layout().planes.iter().enumerate();
    planes.flat_map(|(p, plane)| (0..plane.rows).flat_map(move |row| frame.row(p, row).to_vec())).collect()
}

fn kept(pictures: Pictures) -> Vec<Vec<u8>> {
    Arc::into_inner(pictures).unwrap().into_inner().unwrap()
}

fn on_cpu(name: &str, net: &Net, open: Open, sent: &[Sent]) -> Vec<Vec<u8>> {
    let pictures = Pictures::default();
    let into = pictures.clone();
    let deliver = Box::new(move |frame: Frame<Host>, _| into.lock().unwrap().push(picture(&frame)));
    let pipeline = HostPipeline::open(open(net), &flow(), &settings(), deliver).unwrap();
    let sender = net.sender("10.77.0.1".parse().unwrap());
    play(name, Box::new(pipeline), &sender, sent, &pictures);
    kept(pictures)
}

#[test]
fn frames_by_af_xdp_are_those_by_sockets() {
    let Some(net) = Net::new(1, 1500) else { return };
    let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
    let [by_sockets, native, generic] = WAYS.map(|(name, open)| on_cpu(name, &net, open, &sent));
    assert_eq!(by_sockets.len(), FRAMES);
    assert!(by_sockets == native && by_sockets == generic);
}

#[cfg(feature = "cuda")]
mod gpu {
    use super::*;
    use gdmedia::format::Layout;
    use gdmedia::gpu::Gpu;
    use gdmedia::kernel::cuda::Options;
    use gdmedia::mem::Device;
    use gdmedia::pipeline::GpuPipeline;
    use gdmedia::sink::{Download, Sink};

    fn on_gpu(name: &str, gpu: &Arc<Gpu>, net: &Net, open: Open, sent: &[Sent]) -> Vec<Vec<u8>> {
        let pictures = Pictures::default();
        let into = pictures.clone();
        let keep = Box::new(move |frame: Frame<Host>| into.lock().unwrap().push(picture(&frame)));
        let layout = Layout::new(wire(), Output::Planar).unwrap();
        let mut download = Download::new(gpu, &layout, 2, keep).unwrap();
        let deliver = Box::new(move |frame: Frame<Device>, _| {
            download.take(&frame).unwrap();
        });
        let opened = GpuPipeline::open(open(net), &flow(), gpu, &settings(), Options::default(), None, deliver);
        let (pipeline, _frames) = opened.map_err(|refused| refused.error).unwrap();
        let sender = net.sender("10.77.0.1".parse().unwrap());
        play(&format!("on the GPU, {name}"), Box::new(pipeline), &sender, sent, &pictures);
        kept(pictures)
    }

    #[test]
    fn frames_of_a_gpu_by_af_xdp_are_those_by_sockets() {
        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(error) => return println!("skipped: no CUDA device: {error}"),
        };
        let Some(net) = Net::new(1, 1500) else { return };
        let sent = Sender::plain(wire(), EVEN).frames(FRAMES);
        let expected = on_cpu("on the CPU, sockets", &net, by_socket, &sent);
        for (name, open) in WAYS {
            let got = on_gpu(name, &gpu, &net, open, &sent);
            assert!(got == expected, "{name}");
        }
    }
}
