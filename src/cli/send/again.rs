//! `gdmedia send --replay`.

use super::{Args, Error, Kind, Outlet, Result, choose, report};
use gdmedia::sdp::Leg;
use gdmedia::sdp::SourceFilter;
use gdmedia::send::live::Options;
use gdmedia::send::recording::{Choose, Recording};
use gdmedia::send::replay::{self, Tempo};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Sends a capture again: to where it went, or to where the options say.
pub fn run(args: &Args, path: &Path, options: &Options, stop: &AtomicBool) -> Result<ExitCode> {
    let described = args.sdp.as_deref().map(|from| choose::sdp_flow(from, args.flow).map(|d| d.flow)).transpose()?;
    let chosen = match (&described, args.flow) {
        (Some(flow), _) => Choose::Flow(flow),
        (None, Some(number)) => Choose::Number(number),
        (None, None) => Choose::Only,
    };
    let mut recording = Recording::open(path, &chosen)?;
    let known = described.as_ref().map(|f| f.clock_rate);
    let repeat = if args.repeat { Some(recording.seamless(known)?) } else { None };
    let clock_rate = known.or(repeat.map(|r| r.clock_rate)).unwrap_or_else(|| recording.clock_rate());

    let mut flow = described.clone().unwrap_or_else(choose::own_flow);
    if described.is_none() {
        let leg = |to: &std::net::SocketAddr| Leg {
            destination: to.ip(),
            port: to.port(),
            sources: SourceFilter::Any,
            ttl: None,
            mid: None,
        };
        flow.legs = recording.destinations.iter().map(leg).collect();
    }
    if choose::legs(args, &mut flow)?.is_some() {
        return Err(Error::new(Kind::Usage, "a capture is replayed to the network, not to a file")
            .cure("write --to udp://ADDRESS:PORT; to cut a capture use editcap"));
    }
    let mut outlets = choose::targets(args, &flow).into_iter().map(Outlet::open).collect::<Result<Vec<_>>>()?;
    report::start_replay(args, path, &recording, &outlets, repeat.as_ref());
    report::faults(args, options.fault.as_ref());
    let tempo = Tempo { speed: args.speed, repeat, clock_rate };
    let done = replay::run(&mut recording, &mut outlets, options, tempo, stop)?;
    report::end(args, &done, None);
    Ok(ExitCode::SUCCESS)
}
