//! Receives a flow and hands its frames to a GStreamer fragment.
//!
//!     gdmedia send --to udp://127.0.0.1:5004 --write-sdp test.sdp --duration 10s &
//!     cargo run --release --example 04_gstreamer_sink -- test.sdp 'videoconvert ! autovideosink' 5

use gdmedia::format::Layout;
use gdmedia::frame::Frame;
use gdmedia::pipeline::{HostPipeline, Settings, video, wire};
use gdmedia::rx::Receiver;
use gdmedia::rx::socket::{Options, Socket};
use gdmedia::sdp::{Mode, parse};
use gdmedia::sink::SinkQueue;
use gdmedia::sink::gst::Fragment;
use gdmedia::worker::Worker;
use std::sync::Arc;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(sdp), Some(fragment)) = (args.next(), args.next()) else {
        return Err("usage: 04_gstreamer_sink STREAM.sdp FRAGMENT [SECONDS]".into());
    };
    let seconds = args.next().map_or(Ok(5), |s| s.parse())?;
    let description = parse(&std::fs::read(sdp)?, Mode::Lenient);
    let flow = description.usable_flows().next().ok_or("no flow in this SDP can be received")?;
    let video = video(flow)?;

    let fragment = Fragment::parse(&fragment)?;
    let output = fragment.preferred_output(video)?;
    let layout = Layout::new(wire(video)?, output)?;
    let queue = Arc::new(SinkQueue::spawn(Box::new(fragment.open(video, &layout, true)?), 4)?);

    let mut receiver = Socket::open(Options::default())?;
    receiver.join_all(&flow.legs)?;
    let offer = queue.clone();
    // A full queue drops the frame and counts it; reception never waits for GStreamer.
    let deliver = Box::new(move |frame: Frame, _now| {
        offer.offer(frame);
    });
    let settings = Settings { output, ..Settings::default() };
    let pipeline = HostPipeline::open(receiver, flow, &settings, deliver)?;
    let worker = Worker::spawn(Box::new(pipeline), Duration::from_micros(500), None, Arc::default())?;
    std::thread::sleep(Duration::from_secs(seconds));

    let (_, report) = worker.join();
    println!("{:?}\n{:?}", report.packets, report.frames);
    if let Some(queue) = Arc::into_inner(queue) {
        let report = queue.finish(Duration::from_secs(5));
        println!("GStreamer took {} frames, {} were dropped", report.taken, report.dropped);
        report.into_result()?;
    }
    Ok(())
}
