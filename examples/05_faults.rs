//! Impairs a capture on purpose and shows that what is missing is counted and located.
//!
//!     gdmedia send --to test.pcap --write-sdp test.sdp --frames 5
//!     cargo run --example 05_faults -- test.sdp test.pcap examples/faults.toml

use gdmedia::fault::FaultPlan;
use gdmedia::frame::Frame;
use gdmedia::pipeline::{HostPipeline, Settings};
use gdmedia::rx::Receiver;
use gdmedia::rx::fault::Fault;
use gdmedia::rx::pcap::{Pace, Pcap};
use gdmedia::sdp::{Mode, parse};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [sdp, capture, plan] = args.as_slice() else {
        return Err("usage: 05_faults STREAM.sdp CAPTURE.pcap loss=1/1000,reorder=32,seed=7|PLAN.toml".into());
    };
    let description = parse(&std::fs::read(sdp)?, Mode::Lenient);
    let flow = description.usable_flows().next().ok_or("no flow in this SDP can be received")?;

    let mut receiver = Fault::new(Pcap::open(Path::new(capture), Pace::Full)?, FaultPlan::named(plan)?)?;
    receiver.join_all(&flow.legs)?;
    let deliver = Box::new(|frame: Frame, _now| {
        for hole in &frame.meta().missing {
            let number = frame.meta().number;
            println!("frame {number}: row {} lacks octets {}..{}", hole.row, hole.octet, hole.octet + hole.len);
        }
    });
    let mut pipeline = HostPipeline::open(receiver, flow, &Settings::default(), deliver)?;
    pipeline.run_to_end()?;

    println!("{:?}", pipeline.depacketiser().counters());
    println!("{:?}", pipeline.frames());
    Ok(())
}
