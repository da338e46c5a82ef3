//! Timing of ST 2110-10 and -21, and `analyze`.

mod corpus;
mod model;
mod program;
mod synthetic;

use gdmedia::analyze::{Analysis, Options, analyze};
use gdmedia::sdp::{Flow, Mode, parse};
use gdmedia::wire::capture::Capture;

/// The flows of an SDP.
fn flows(sdp: &str) -> Vec<Flow> {
    parse(sdp.as_bytes(), Mode::Lenient).flows
}

fn analysis(file: &[u8], options: &Options) -> Analysis {
    analyze(&mut Capture::new(file, "test").unwrap(), options, &mut |_| true).unwrap()
}
