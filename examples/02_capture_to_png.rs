//! Takes the first whole frame out of a capture and writes it as a picture.
//!
//!     gdmedia send --to test.pcap --write-sdp test.sdp --frames 5
//!     cargo run --example 02_capture_to_png -- test.sdp test.pcap frame.png

use gdmedia::kernel::Colour;
use gdmedia::pipeline::{HostPipeline, Settings, video};
use gdmedia::rx::Receiver;
use gdmedia::rx::pcap::{Pace, Pcap};
use gdmedia::sdp::{Mode, parse};
use gdmedia::sink::write_png;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [sdp, capture, picture] = names.as_slice() else {
        return Err("usage: 02_capture_to_png STREAM.sdp CAPTURE.pcap FRAME.png".into());
    };
    let description = parse(&std::fs::read(sdp)?, Mode::Lenient);
    let flow = description.usable_flows().next().ok_or("no flow in this SDP can be received")?;
    let video = video(flow)?;

    let mut receiver = Pcap::open(capture, Pace::Full)?;
    receiver.join_all(&flow.legs)?;
    // Room for one frame: the others are dropped here and go back to their pool.
    let (keep, first) = std::sync::mpsc::sync_channel(1);
    let deliver = Box::new(move |frame, _now| drop(keep.try_send(frame)));
    let mut pipeline = HostPipeline::open(receiver, flow, &Settings::default(), deliver)?;
    pipeline.run_to_end()?;

    let frame = first.try_recv().map_err(|_| "the capture holds no whole frame of this flow")?;
    let colour = Colour { colorimetry: video.colorimetry, tcs: video.tcs, range: video.range };
    write_png(picture, &frame, &colour)?;
    println!("{}: timestamp {}, {} packets", picture.display(), frame.meta().timestamp, frame.meta().packets);
    Ok(())
}
