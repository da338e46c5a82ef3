//! Reads an SDP and says what it describes and what is wrong with it.
//!
//!     cargo run --example 01_parse_sdp -- sdp/examples/1080p50.sdp

use gdmedia::sdp::{Essence, Mode, parse};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "sdp/examples/1080p50.sdp".into());
    let description = parse(&std::fs::read(file)?, Mode::Lenient);
    for flow in &description.flows {
        println!("flow {}: payload type {}, {} Hz", flow.index, flow.payload_type, flow.clock_rate);
        for leg in &flow.legs {
            println!("  leg to {} port {}, sources {:?}", leg.destination, leg.port, leg.sources);
        }
        if let Essence::Video(video) = &flow.essence {
            let rate = video.rate.map_or_else(|| "an unknown rate".into(), |r| r.to_string());
            println!("  {}x{} {} at {rate}", video.width, video.height, video.scan);
            println!("  {} {} bit, {}", video.sampling, video.depth, video.colorimetry);
        }
    }
    for d in &description.diagnostics {
        println!("{:?} in line {}: {} ({})", d.severity, d.line, d.message, d.cure);
    }
    Ok(())
}
