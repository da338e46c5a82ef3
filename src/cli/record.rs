//! `gdmedia record`: receive a flow and record its frames; check recordings; measure a disk.

use super::{play, say, send, stop};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::record::bench::{self, Measured};
use gdmedia::record::read::{self, Known};
use gdmedia::record::{Found, Limit, Recording, Segment, Way};
use gdmedia::sdp::{Essence, Flow, Leg, SourceFilter};
use gdmedia::send::name;
use serde_json::json;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of the verb: those of play, and these.
#[derive(clap::Args)]
#[group(id = "recording")]
pub struct Args {
    #[command(flatten)]
    play: play::Args,
    #[command(flatten)]
    own: Own,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Recording")]
struct Own {
    /// The folder that gets the recording
    #[arg(long, value_name = "FOLDER", conflicts_with = "record")]
    to: Option<PathBuf>,
    /// Receive nothing: read every frame of a recording, and give segments that were not finished their index
    #[arg(long, value_name = "FILE|FOLDER", conflicts_with_all = ["to", "record"])]
    check: Option<PathBuf>,
    /// Receive nothing: say what the disk of this folder holds. Writes --size octets by a plain loop, then as a recording
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["to", "record", "check"])]
    bench: Option<PathBuf>,
    /// Octets of --bench, each way
    #[arg(long, value_name = "SIZE", default_value = "1GiB", requires = "bench")]
    size: Limit,
    /// Format of the frames of --bench
    #[arg(long, value_name = "NAME", default_value = "2160p59.94", requires = "bench")]
    bench_format: String,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<ExitCode> {
    let Args { mut play, own } = args;
    if let Some(path) = &own.check {
        return check(path, play.json());
    }
    if let Some(folder) = &own.bench {
        return bench(folder, &own, &play);
    }
    if let Some(folder) = own.to {
        play.record_to(folder);
    }
    if !play.records() {
        return Err(Error::new(Kind::Usage, "where to? no folder is given for the recording")
            .cure("gdmedia record --sdp stream.sdp --to FOLDER"));
    }
    play.called("gdmedia record");
    play.count_only_by_default();
    play::run(play)
}

/// A flow of this format, 4:2:2 10 bit.
fn flow(format: &str) -> Result<(Flow, Layout)> {
    let wrong =
        || Error::new(Kind::Usage, format!("{format} is no format")).cure("write it like 1080p59.94 or 2160p50");
    let named = name::parse(format).ok_or_else(wrong)?;
    let mut flow = send::own_flow();
    let Essence::Video(video) = &mut flow.essence else { return Err(wrong()) };
    (video.width, video.height, video.scan) = (named.width, named.height, named.scan);
    video.rate = named.rate;
    flow.legs.push(Leg {
        destination: Ipv4Addr::LOCALHOST.into(),
        port: 5004,
        sources: SourceFilter::Any,
        ttl: None,
        mid: None,
    });
    let wire = WireFormat::from_video(video).ok_or_else(wrong)?;
    let layout = Layout::new(wire, Output::Wire)?;
    Ok((flow, layout))
}

/// Measures a disk.
fn bench(folder: &Path, own: &Own, play: &play::Args) -> Result<ExitCode> {
    let stop = stop::install()?;
    let Limit::Octets(octets) = own.size else {
        return Err(Error::new(Kind::Usage, "--size is a size").cure("write it like 8GiB"));
    };
    let (flow, layout) = flow(&own.bench_format)?;
    let Essence::Video(video) = &flow.essence else { return Err(Error::new(Kind::Internal, "no video")) };
    let frame = u64::from(layout.wire.frame_octets());
    let needed = video.rate.map(|rate| frame as f64 * rate.as_f64());
    let plain = bench::plain(folder, octets)?;
    told(&plain, None, needed, &own.bench_format, play.json());
    for way in [Way::Uring, Way::Pwrite] {
        match bench::recorder(folder, &flow, &layout, way, octets, &stop) {
            Ok(measured) => told(&measured, Some(&plain), needed, &own.bench_format, play.json()),
            Err(error) if error.kind() == Kind::Unavailable => {
                say::say!("{}: not there: {}", way.word(), error.in_one_line())
            }
            Err(error) => return Err(error),
        }
    }
    #[cfg(feature = "cuda")]
    for measured in on_gpu(folder, &flow, &layout, octets, play, &stop)? {
        told(&measured, Some(&plain), needed, &own.bench_format, play.json());
    }
    Ok(ExitCode::SUCCESS)
}

/// Frames in memory of a GPU, where one is asked for.
#[cfg(feature = "cuda")]
fn on_gpu(
    folder: &Path,
    flow: &Flow,
    layout: &Layout,
    octets: u64,
    play: &play::Args,
    stop: &std::sync::atomic::AtomicBool,
) -> Result<Vec<Measured>> {
    let Some(gpu) = play.gpu()? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for way in [Way::Uring, Way::Cufile] {
        match bench::on_gpu(&gpu, folder, flow, layout, way, octets, stop) {
            Ok(measured) => all.push(measured),
            Err(error) if error.kind() == Kind::Unavailable => {
                say::say!("{} on the GPU: not there: {}", way.word(), error.in_one_line())
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// One line of figures.
fn told(measured: &Measured, plain: Option<&Measured>, needed: Option<f64>, format: &str, json: bool) {
    let share = plain.map(|plain| measured.speed() / plain.speed());
    let streams = needed.map(|needed| measured.speed() / needed);
    if json {
        say::say!(
            "{}",
            json!({
                "type": "measured", "what": measured.what, "octets": measured.octets, "seconds": measured.seconds,
                "octets_per_second": measured.speed().round(), "read_octets_per_second": measured.read_speed().map(f64::round),
                "share_of_plain": share, "streams": streams, "format": format, "disk_ns": measured.disk,
            })
        );
        return;
    }
    let mut text = format!("{}: {:.2} GB/s", measured.what, measured.speed() / 1e9);
    if let Some(share) = share {
        text += &format!(", {:.0} % of the plain loop", share * 100.0);
    }
    if let Some(streams) = streams {
        text += &format!("; {streams:.1} streams of {format} 4:2:2 10 bit");
    }
    if let Some(disk) = measured.disk {
        text += &format!(
            "; {:.2} ms a frame (half), {:.2} (99 %), {:.2} (most)",
            disk.p50 as f64 / 1e6,
            disk.p99 as f64 / 1e6,
            disk.max as f64 / 1e6
        );
    }
    if let Some(read) = measured.read_speed() {
        text += &format!("; read back equal at {:.2} GB/s", read / 1e9);
    }
    say::say!("{text}");
}

/// Reads every slot.
fn check(path: &Path, json: bool) -> Result<ExitCode> {
    let mut all = Found::default();
    let mut frames = 0;
    for segment in Recording::open(path)?.segments() {
        let file = Path::new(segment.name());
        let made = segment.known() == Known::Scan;
        if made {
            read::mend(file)?;
        }
        let segment = Segment::open(file)?;
        let found = segment.check(|_, _| {});
        frames += segment.entries().len();
        let end = segment.end().map_or("was not finished", |end| end.text());
        if json {
            say::say!("{}", json!({ "type": "segment", "file": file, "index_made": made, "end": end, "found": found }));
        } else {
            let index = if made { ", index made" } else { "" };
            say::say!(
                "{}: {} frames good, {} damaged, {} never written whole{index}; {end}",
                file.display(),
                found.good,
                found.damaged,
                found.empty
            );
        }
        all.add(found);
    }
    let sound = all.damaged + all.empty == 0;
    if json {
        say::say!("{}", json!({ "type": "summary", "slots": frames, "found": all }));
    } else {
        say::say!(
            "{} of {frames} frames good, {} incomplete as they came; {} left out while it was recorded",
            all.good,
            all.incomplete,
            all.left_out
        );
        all.first.iter().for_each(|first| say::say!("  {first}"));
    }
    Ok(ExitCode::from(if sound { 0 } else { 2 }))
}
