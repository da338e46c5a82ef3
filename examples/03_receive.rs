//! Receives a flow from the network for some seconds and counts frames, loss and delay.
//!
//!     gdmedia send --to udp://127.0.0.1:5004 --write-sdp test.sdp --duration 10s &
//!     cargo run --release --example 03_receive -- test.sdp 5

use gdmedia::frame::Frame;
use gdmedia::pipeline::{HostPipeline, Settings};
use gdmedia::rx::Receiver;
use gdmedia::rx::socket::{Options, Socket};
use gdmedia::sdp::{Mode, parse};
use gdmedia::worker::{Ended, Worker};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let sdp = args.next().ok_or("usage: 03_receive STREAM.sdp [SECONDS]")?;
    let seconds = args.next().map_or(Ok(5), |s| s.parse())?;
    let description = parse(&std::fs::read(sdp)?, Mode::Lenient);
    let flow = description.usable_flows().next().ok_or("no flow in this SDP can be received")?;

    let mut receiver = Socket::open(Options::default())?;
    receiver.join_all(&flow.legs)?;
    for note in &receiver.caps().notes {
        println!("{note}");
    }
    // Called on the receiving thread, so it must not wait: a real program puts the frame into a queue.
    let deliver = Box::new(|frame: Frame, now: Option<gdmedia::time::Tai>| {
        let meta = frame.meta();
        let delay_us = now.map_or(0, |now| now.since(meta.last_arrival)) / 1000;
        println!("frame {} timestamp {} complete {} after {delay_us} us", meta.number, meta.timestamp, meta.complete);
    });
    let pipeline = HostPipeline::open(receiver, flow, &Settings::default(), deliver)?;
    let worker = Worker::spawn(Box::new(pipeline), Duration::from_micros(500), None, Arc::new(AtomicBool::new(false)))?;
    std::thread::sleep(Duration::from_secs(seconds));

    let (ended, report) = worker.join();
    println!("{:?}", report.packets);
    println!("{:?}", report.frames);
    match ended {
        Ended::Failed(error) => Err(error.into()),
        _ => Ok(()),
    }
}
