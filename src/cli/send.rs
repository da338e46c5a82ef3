//! `gdmedia send`.

mod again;
mod choose;
mod report;

use super::usage::wanted;
use super::{duration, stop};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::fault::FaultPlan;
use gdmedia::record::Recording;
use gdmedia::sdp::{Colorimetry, Depth, Packing, Range, Ratio, Sampling, Tcs};
use gdmedia::send::file::{self, Extent};
use gdmedia::send::input::{Input, Samples};
use gdmedia::send::live;
use gdmedia::send::name::{self, Named};
use gdmedia::send::schedule::Pacing;
use gdmedia::send::socket::Outlet;
use gdmedia::send::stream::Stream;
use gdmedia::time::Tai;
use gdmedia::wire::capture::PcapWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// Where to: udp://ADDRESS:PORT, or a FILE.pcap (or any name with a /) that gets the packets with exact virtual times
    #[arg(long, value_name = "URL|FILE.pcap")]
    to: Option<String>,
    /// A leg (ADDRESS:PORT); give it twice for ST 2022-7
    #[arg(long = "leg", value_name = "ADDRESS:PORT", conflicts_with = "to")]
    legs: Vec<String>,
    /// Take format, addresses and the rest from an SDP
    #[arg(long, value_name = "FILE|-|URL")]
    sdp: Option<String>,
    /// Which flow of the SDP, or of the capture to replay
    #[arg(long, value_name = "N")]
    flow: Option<usize>,
    /// Frames of a file instead of the test picture: y4m, or raw samples
    #[arg(long, value_name = "FILE|-", conflicts_with = "replay")]
    input: Option<PathBuf>,
    /// Frames of a recording instead, a .gdr file or its folder; the flow is the recorded one, but for what other options say
    #[arg(long, value_name = "FILE|FOLDER", conflicts_with_all = ["input", "replay", "sdp"])]
    from: Option<PathBuf>,
    /// How samples lie in a raw --input
    #[arg(long, value_name = "planar|wire", value_parser = samples, default_value = "planar")]
    layout: Samples,
    /// Send a capture again, at its own pace
    #[arg(long, value_name = "FILE.pcap")]
    replay: Option<PathBuf>,
    /// Pace of --replay: 2 is twice as fast
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = speed)]
    speed: f64,
    /// Begin again when --input, --from or --replay ends
    #[arg(long = "loop")]
    repeat: bool,
    /// Raster, scan and rate: 1080p59.94, 1080i50, 1080psf25, 640x480p30
    #[arg(long, value_name = "NAME", value_parser = named)]
    format: Option<Named>,
    /// Frames a second: 50, 59.94, 60000/1001
    #[arg(long, value_name = "RATE", value_parser = rate)]
    rate: Option<Ratio>,
    /// Component structure, such as YCbCr-4:2:2, RGB, KEY
    #[arg(long, value_parser = word::<Sampling>)]
    sampling: Option<Sampling>,
    /// Bits a sample: 8, 10, 12, 16, 16f
    #[arg(long, value_parser = word::<Depth>)]
    depth: Option<Depth>,
    /// BT601, BT709, BT2020, BT2100 …
    #[arg(long, value_parser = word::<Colorimetry>)]
    colorimetry: Option<Colorimetry>,
    /// Transfer characteristic: SDR, PQ, HLG …
    #[arg(long, value_parser = word::<Tcs>)]
    tcs: Option<Tcs>,
    /// NARROW, FULL, FULLPROTECT
    #[arg(long, value_parser = word::<Range>)]
    range: Option<Range>,
    /// Packing mode: gpm or bpm
    #[arg(long, value_parser = packing)]
    packing: Option<Packing>,
    /// When packets leave: gapped, linear or burst
    #[arg(long, value_parser = pacing)]
    pacing: Option<Pacing>,
    /// Level of the coloured bars in percent: 75 or 100
    #[arg(long, default_value_t = 75, value_parser = clap::value_parser!(u32).range(1..=100))]
    bars: u32,
    /// Network interface, by name or own address; given twice: one for each leg
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Vec<String>,
    /// Multicast TTL
    #[arg(long, default_value_t = 16)]
    ttl: u8,
    /// End after so many frames
    #[arg(long, value_name = "N")]
    frames: Option<u64>,
    /// End after this time, such as 30s, 500ms, 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Impair what is sent on purpose: loss=1/1000,dup=1/500,reorder=32,seed=7, or a plan in FILE.toml (@FILE)
    #[arg(long, value_name = "PLAN")]
    fault: Option<String>,
    /// Write an SDP of the stream
    #[arg(long, value_name = "FILE|-")]
    write_sdp: Option<PathBuf>,
    /// Report as one JSON object on standard error
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    fine: Fine,
}

/// For tests and for measuring.
#[derive(clap::Args)]
#[command(next_help_heading = "Fine print")]
struct Fine {
    /// Packets that leave together
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    group: u16,
    /// One message a packet instead of UDP_SEGMENT
    #[arg(long)]
    no_segment: bool,
    /// Spin this long before a deadline, since timers wake late
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30us")]
    spin: Duration,
    /// Seconds from UTC to TAI
    #[arg(long, value_name = "SECONDS", default_value_t = 37)]
    utc_offset: u32,
    /// Virtual time of a capture's first frame, in seconds of TAI since 1970
    #[arg(long, value_name = "SECONDS", default_value_t = 1_700_000_037)]
    at: u64,
    /// Number of the first frame, as coded in the pattern
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Largest UDP size, with the UDP header
    #[arg(long, value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(64..=8960))]
    max_udp: Option<u32>,
    /// Fill packets with up to so many SRD headers instead of cutting rows evenly
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=3))]
    srds: Option<u8>,
    /// RTP payload type
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=127))]
    payload_type: Option<u8>,
    /// Synchronisation source
    #[arg(long, value_name = "N", default_value_t = 0x6764_6d31)]
    ssrc: u32,
    /// 32-bit sequence number of the first packet
    #[arg(long, value_name = "N", default_value_t = 0)]
    sequence: u32,
    /// Leave the extended sequence number zero, as some senders do
    #[arg(long)]
    extended_zero: bool,
}

pub use choose::own_flow;

/// Frames of a capture file when nobody says.
const DEFAULT_FRAMES: u64 = 10;

/// Runs the verb.
pub fn run(args: Args) -> Result<ExitCode> {
    choose::refuse_same(&args)?;
    let stop = stop::install()?;
    let options = live::Options {
        frames: args.frames,
        duration: args.duration,
        group: args.fine.group.into(),
        segment: !args.fine.no_segment,
        utc_offset_s: args.fine.utc_offset,
        spin: args.fine.spin,
        fault: args.fault.as_deref().map(FaultPlan::named).transpose()?,
    };
    if let Some(path) = &args.replay {
        return again::run(&args, path, &options, &stop);
    }
    let input = args.input.as_deref().map(Input::open).transpose()?;
    let recording = args.from.as_deref().map(Recording::open).transpose()?;
    let recorded = recording.as_ref().map(|recording| &recording.header().flow);
    let plan = choose::plan(&args, input.as_ref().and_then(|i| i.header()), recorded)?;
    let mut stream = Stream::new(&plan.video, plan.choice)?;
    let mut source = choose::source(&args, &plan, &stream, input, recording, &stop)?;
    let Some(path) = &plan.file else {
        let mut outlets =
            choose::targets(&args, &plan.flow).into_iter().map(Outlet::open).collect::<Result<Vec<_>>>()?;
        if let Some(path) = &args.write_sdp {
            let sources: Vec<_> = outlets.iter().map(Outlet::source).collect();
            choose::write_sdp(path, &plan.flow, &sources)?;
        }
        report::start(&args, &plan, &stream, source.as_ref(), &outlets, Some(&options));
        report::faults(&args, options.fault.as_ref());
        let mut slow = |r: &live::Report| report::slow(args.json, r);
        let done = live::run(&mut stream, source.as_mut(), &mut outlets, &options, &stop, &mut slow)?;
        report::remark(&args, source.remark());
        report::end(&args, &done, Some(stream.bits_per_second()));
        return Ok(ExitCode::from(u8::from(done.share() < live::ENOUGH)));
    };
    let extent = Extent {
        start: Tai(args.fine.at.saturating_mul(1_000_000_000)),
        frames: args
            .frames
            .or((args.duration.is_none() && args.input.is_none() && args.from.is_none()).then_some(DEFAULT_FRAMES)),
        duration: args.duration,
    };
    if extent.frames.is_none() && extent.duration.is_none() && args.repeat {
        return Err(Error::new(Kind::Usage, "a capture file that never ends was asked for")
            .cure("say how much with --frames or --duration, or leave --loop out"));
    }
    let routes = choose::routes(&args, &plan.flow)?;
    if let Some(path) = &args.write_sdp {
        let sources: Vec<_> = routes.iter().map(|r| Some(r.source().ip())).collect();
        choose::write_sdp(path, &plan.flow, &sources)?;
    }
    let mut out = PcapWriter::create(path)?;
    report::start(&args, &plan, &stream, source.as_ref(), &[], None);
    report::faults(&args, options.fault.as_ref());
    let fault = options.fault.as_ref();
    let written = file::write(&mut stream, source.as_mut(), &routes, &mut out, extent, fault, &stop)?;
    out.finish()?;
    report::remark(&args, source.remark());
    report::written(&args, path, &written);
    Ok(ExitCode::SUCCESS)
}

fn named(text: &str) -> std::result::Result<Named, String> {
    let cure = "write it like 1080p59.94, 1080i50, 1080psf25, 640x480p30";
    name::parse(text).ok_or_else(|| wanted("no raster, scan and rate", cure))
}

fn rate(text: &str) -> std::result::Result<Ratio, String> {
    name::rate(text).ok_or_else(|| wanted("no rate of frames", "write it like 50, 59.94 or 60000/1001"))
}

fn word<T: Words>(text: &str) -> std::result::Result<T, String> {
    text.parse().map_err(|_| {
        let all: Vec<String> = T::all().iter().map(ToString::to_string).collect();
        wanted("no word of the standard", format!("one of {}", all.join(", ")))
    })
}

/// Enumerations of the standard.
trait Words: FromStr + std::fmt::Display + 'static {
    fn all() -> &'static [Self];
}

macro_rules! words {
    ($($t:ty),+) => { $(impl Words for $t { fn all() -> &'static [Self] { <$t>::ALL } })+ };
}
words!(Sampling, Depth, Colorimetry, Tcs, Range);

fn samples(text: &str) -> std::result::Result<Samples, String> {
    match text {
        "planar" => Ok(Samples::Planar),
        "wire" => Ok(Samples::Wire),
        _ => Err(wanted("samples do not lie so", "planar or wire")),
    }
}

fn speed(text: &str) -> std::result::Result<f64, String> {
    let wrong = |why| wanted(why, "give a number from 0.001 to 1000, such as 1 or 0.5");
    let speed: f64 = text.parse().map_err(|_| wrong("no number"))?;
    if (0.001..=1000.0).contains(&speed) { Ok(speed) } else { Err(wrong("out of bounds")) }
}

fn packing(text: &str) -> std::result::Result<Packing, String> {
    match text.to_ascii_lowercase().as_str() {
        "gpm" | "2110gpm" => Ok(Packing::Gpm),
        "bpm" | "2110bpm" => Ok(Packing::Bpm),
        _ => Err(wanted("no packing mode", "gpm or bpm")),
    }
}

fn pacing(text: &str) -> std::result::Result<Pacing, String> {
    match text {
        "gapped" => Ok(Pacing::Gapped),
        "linear" => Ok(Pacing::Linear),
        "burst" => Ok(Pacing::Burst),
        _ => Err(wanted("no pacing", "gapped, linear or burst")),
    }
}
