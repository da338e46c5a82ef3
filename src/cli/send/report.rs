//! What `gdmedia send` says: a block at the start, one warning when the machine is too slow, a report at the end.

use super::choose::Plan;
use super::{Args, Outlet, Stream};
use crate::cli::say::say;
use gdmedia::fault::{FaultCounters, FaultPlan};
use gdmedia::send::file::Written;
use gdmedia::send::live::{ENOUGH, Options, Report};
use gdmedia::send::name;
use gdmedia::send::recording::{Recording, Repeat};
use gdmedia::send::schedule::Pacing;
use gdmedia::send::source::Source;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;

/// One block: what is sent, how and where.
pub fn start(
    args: &Args,
    plan: &Plan,
    stream: &Stream,
    source: &dyn Source,
    outlets: &[Outlet],
    options: Option<&Options>,
) {
    let video = &plan.video;
    let format = name::name(video.width, video.height, video.scan, video.rate);
    let legs: Vec<String> = plan.flow.legs.iter().map(|l| SocketAddr::new(l.destination, l.port).to_string()).collect();
    let packets = stream.template.packets.len();
    if args.json {
        let line = json!({
            "type": "start", "format": format, "sampling": video.sampling, "depth": video.depth, "legs": legs,
            "packets_per_frame": packets, "packets_per_second": stream.packets_per_second().round(),
            "bits_per_second": stream.bits_per_second().round(), "source": source.describe(), "rate_assumed": plan.rate_assumed,
        });
        say!("{line}");
        return;
    }
    let pacing = match plan.choice.pacing {
        Pacing::Gapped => "gapped",
        Pacing::Linear => "linear",
        Pacing::Burst => "burst",
    };
    say!(
        "gdmedia send: {format} {} {} bit {} {}, {}",
        video.sampling,
        video.depth,
        video.colorimetry,
        video.packing,
        source.describe()
    );
    if outlets.is_empty() {
        say!("  to      {} (in the capture)", legs.join(", "));
    }
    for outlet in outlets {
        let from = outlet.source().map_or(String::new(), |a| format!(" from {a}"));
        say!("  to      {}{from}", outlet.target().destination);
    }
    say!(
        "  rate    {:.3} Gb/s of UDP payload, {packets} packets a frame, {:.0} a second",
        stream.bits_per_second() / 1e9,
        stream.packets_per_second()
    );
    if let (true, Some(rate)) = (plan.rate_assumed, video.rate) {
        say!("  note    nobody says the frame rate: {rate} a second assumed; --rate sets another");
    }
    match options {
        None => say!("  pacing  {pacing}, virtual times in TAI"),
        Some(options) => {
            let by = if options.segment { "UDP_SEGMENT" } else { "sendmmsg" };
            say!("  pacing  {pacing}, groups of {} by {by}", options.group);
        }
    }
}

/// What is done on purpose.
pub fn faults(args: &Args, plan: Option<&FaultPlan>) {
    if let Some(plan) = plan {
        let message = format!("faults are injected on purpose: {plan}");
        if args.json {
            say!("{}", json!({"type": "warning", "code": "faults", "message": message}));
        } else {
            say!("  warning {message}");
        }
    }
}

/// What was done on purpose, all legs together.
fn add_faults(line: &mut serde_json::Value, counters: Option<FaultCounters>) {
    if let (Some(c), Some(line)) = (counters, line.as_object_mut()) {
        let faults = json!({
            "offered": c.seen, "sent": c.delivered, "dropped": c.removed, "lost": c.lost, "killed": c.killed,
            "limited": c.limited, "duplicated": c.duplicated, "delayed": c.held, "hurried": c.hurried,
            "corrupted": c.corrupted, "restarted": c.restarts,
        });
        line.insert("faults".into(), faults);
    }
}

fn say_faults(counters: Option<FaultCounters>) {
    if let Some(counters) = counters {
        say!("fault plan: {counters}; {} left", counters.delivered);
    }
}

/// What the source says at the end.
pub fn remark(args: &Args, remark: Option<String>) {
    match remark {
        Some(text) if args.json => say!("{}", json!({"type": "note", "message": text})),
        Some(text) => say!("{text}"),
        None => {}
    }
}

/// What a capture file got.
pub fn written(args: &Args, path: &Path, written: &Written) {
    if args.json {
        let frames = json!({"sent": written.frames, "skipped": 0});
        let packets = json!({"sent": written.packets});
        let mut line = json!({"type": "summary", "frames": frames, "packets": packets, "octets": written.octets});
        add_faults(&mut line, written.faults);
        say!("{line}");
    } else {
        say!("wrote {} frames, {} packets to {}", written.frames, written.packets, path.display());
        say_faults(written.faults);
    }
}

/// One block: which capture, and where to.
pub fn start_replay(args: &Args, path: &Path, recording: &Recording, outlets: &[Outlet], repeat: Option<&Repeat>) {
    let legs: Vec<String> = outlets.iter().map(|o| o.target().destination.to_string()).collect();
    let seconds = recording.packets.last().map_or(0, |p| p.time) as f64 / 1e9;
    if args.json {
        let line = json!({
            "type": "start", "replay": path, "packets": recording.packets.len(), "seconds": seconds, "legs": legs,
            "snapped": recording.snapped, "period_seconds": repeat.map(|r| r.period_ns as f64 / 1e9),
        });
        say!("{line}");
        return;
    }
    say!("gdmedia send: {}, {} packets in {seconds:.3} s", path.display(), recording.packets.len());
    say!("  to      {}", legs.join(", "));
    if args.speed != 1.0 {
        say!("  speed   {} times as recorded", args.speed);
    }
    if let Some(repeat) = repeat {
        let (seconds, ticks) = (repeat.period_ns as f64 / 1e9, repeat.ticks);
        say!("  again   every {seconds:.6} s ({ticks} ticks, {} packets), whole frames only", repeat.sequence);
    }
    if recording.snapped > 0 {
        say!("  note    {} packets were cut by a snap length: their missing octets are zeros", recording.snapped);
    }
}

/// The machine does not keep up.
pub fn slow(json: bool, report: &Report) {
    if json {
        say!(
            "{}",
            json!({"type": "warning", "code": "too-slow", "frames": counts(report), "message": verdict(report)})
        );
    } else {
        say!("gdmedia: {}", verdict(report));
    }
}

/// What went out.
pub fn end(args: &Args, report: &Report, wanted: Option<f64>) {
    let cpu = 100.0 * report.cpu_seconds / report.seconds.max(1e-9);
    if args.json {
        let mut line = json!({
            "type": "summary",
            "frames": counts(report),
            "packets": {"sent": report.packets, "dropped": report.dropped, "refused": report.refused},
            "legs": report.legs,
            "octets": report.octets,
            "seconds": report.seconds,
            "bits_per_second": report.bits_per_second().round(),
            "wanted_bits_per_second": wanted.map(f64::round),
            "cpu_percent": (cpu * 10.0).round() / 10.0,
            "cpu_us_per_packet": per_packet(report),
            "segmented": report.segmented,
            "lateness": report.lateness,
        });
        add_faults(&mut line, report.faults);
        say!("{line}");
        return;
    }
    say!(
        "sent {} frames ({} skipped), {} packets, {:.3} Gb/s in {:.2} s",
        report.frames,
        report.skipped,
        report.packets,
        report.bits_per_second() / 1e9,
        report.seconds
    );
    let us = |share| report.lateness.permille(share) as f64 / 1000.0;
    say!(
        "groups left late by {:.1} us (half of them at most), {:.1} us (99 %), {:.1} us (99.9 %), {:.1} us (worst)",
        us(500),
        us(990),
        us(999),
        report.lateness.max() as f64 / 1000.0
    );
    say_faults(report.faults);
    say!("CPU {cpu:.1} % of a core, {:.2} us a packet", per_packet(report));
    if args_segment(args) && !report.segmented {
        say!("UDP_SEGMENT does not work on this path: packets went one by one, which costs about five times the CPU");
    }
    if report.starved > 0 {
        say!("{} frames were skipped because the input had none in time", report.starved);
    }
    if report.dropped > 0 {
        say!("{} packets were dropped here: the send buffer was full", report.dropped);
    }
    for (number, leg) in report.legs.iter().enumerate().filter(|(_, leg)| leg.unsent > 0) {
        let again = match leg.reopened {
            0 => String::new(),
            1 => "; it was made anew, and the leg went on there".into(),
            n => format!("; it was made anew {n} times, and the leg went on there"),
        };
        say!("leg {number}: {} packets sent, {} not: its interface was down or had gone{again}", leg.sent, leg.unsent);
    }
    if report.refused > 0 {
        say!("nobody listened on the port at times ({} answers)", report.refused);
    }
    if report.share() < ENOUGH {
        say!("gdmedia: {}", verdict(report));
    }
}

fn args_segment(args: &Args) -> bool {
    !args.fine.no_segment
}

fn per_packet(report: &Report) -> f64 {
    if report.packets == 0 { 0.0 } else { (report.cpu_seconds * 1e9 / report.packets as f64).round() / 1e3 }
}

fn counts(report: &Report) -> serde_json::Value {
    json!({"sent": report.frames, "skipped": report.skipped, "starved": report.starved})
}

fn verdict(report: &Report) -> String {
    format!(
        "this machine cannot send that rate: {:.0} % of the frames went out ({} sent, {} skipped)\n  \
         cure: larger groups (--group 32), a jumbo --max-udp, a smaller format or rate, or a faster machine",
        100.0 * report.share(),
        report.frames,
        report.skipped
    )
}
