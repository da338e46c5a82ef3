//! What a run says: the start block, the status line, the summary; as text or as JSON.

use super::engine::{Engine, Run};
use super::gate::Gate;
use super::health::{Said, Watch};
use super::sinks::Sinks;
use super::time::Time;
use super::{Args, Now, limits};
use gdmedia::error::Error;
use gdmedia::format::{Layout, WireFormat};
use gdmedia::latency::{self, Figures, Hop, Recorder};
use gdmedia::merge::Class;
use gdmedia::packetise::{Cut, Packetiser, Style};
use gdmedia::pipeline;
use gdmedia::pipeline::meter::{LegTiming, Range};
use gdmedia::sdp::{Description, Flow, MediaClock, Packing, ReferenceClock, SenderType, Severity, SourceFilter, Video};
use gdmedia::stats::{LegComparison, LegDifference, Reason};
use gdmedia::worker::Report;
use hdrhistogram::Histogram;
use serde_json::json;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::{Duration, Instant};

/// Packets of a frame as senders usually cut them, and the bit rate with IP and UDP headers.
pub struct Expected {
    pub packets: Option<u32>,
    pub bit_rate: Option<u64>,
}

/// Of a video flow.
pub fn expected(flow: &Flow, video: &Video) -> Expected {
    let cut = match video.packing {
        Packing::Gpm => Cut::Even { udp: u16::try_from(video.max_udp).unwrap_or(u16::MAX) },
        Packing::Bpm => Cut::Bpm { fill: false },
    };
    let packets = WireFormat::from_video(video)
        .and_then(|wire| Packetiser::new(wire, Style::new(cut), 0))
        .map(|p| p.packets_per_frame());
    let octets = WireFormat::from_video(video).map(|w| u64::from(w.frame_octets()));
    let ip = flow.legs.first().map_or(20, |leg| if leg.destination.is_ipv6() { 40 } else { 20 });
    let bit_rate = match (packets, octets, video.rate) {
        (Some(packets), Some(octets), Some(rate)) => {
            let frame = (octets + u64::from(packets) * (ip + 8 + 12 + 8)) * 8;
            Some((u128::from(frame) * u128::from(rate.num) / u128::from(rate.den)) as u64)
        }
        _ => None,
    };
    Expected { packets, bit_rate }
}

/// Packets a second, for sizing rings; 0 when the SDP has no frame rate.
pub fn packet_rate(flow: &Flow, video: &Video) -> u64 {
    let packets = expected(flow, video).packets.map_or(0, u64::from);
    video.rate.map_or(0, |rate| packets * u64::from(rate.num) / u64::from(rate.den).max(1))
}

/// Bit rate for sizing buffers; 0 when the SDP has no frame rate.
pub fn bit_rate(flow: &Flow, video: &Video) -> u64 {
    expected(flow, video).bit_rate.unwrap_or(0)
}

/// How far the legs may lie apart, and what that takes.
fn legs(flow: &Flow, redundancy: Option<Class>) -> Option<String> {
    if flow.legs.len() < 2 {
        return redundancy.map(|_| "1: --redundancy is for flows of two".to_owned());
    }
    let class = redundancy.unwrap_or_default();
    let config = pipeline::config(flow, class).ok()?;
    let window = config.window.as_secs_f64() * 1e3;
    Some(format!("{}, window {window} ms ({class}), {} frames open", config.legs, config.open_frames()))
}

/// What is said when a run starts.
#[derive(Clone)]
pub struct Start {
    lines: Vec<(&'static str, String)>,
    json: serde_json::Value,
    begun: Instant,
}

/// Counters at one moment, for rates since then.
pub struct Since {
    at: Instant,
    frames: u64,
    octets: u64,
}

impl Since {
    /// From now on, when nothing was counted yet.
    pub fn now() -> Self {
        Since { at: Instant::now(), frames: 0, octets: 0 }
    }
    /// What there was a second since, and begins anew.
    pub fn rates(&mut self, report: &Report, latency: &Recorder) -> Rates {
        let now = Instant::now();
        let seconds = now.duration_since(self.at).as_secs_f64().max(1e-6);
        let (frames, octets) = (report.frames.complete + report.frames.incomplete, report.rx.octets);
        let rates = Rates {
            fps: frames.saturating_sub(self.frames) as f64 / seconds,
            bits: octets.saturating_sub(self.octets) as f64 * 8.0 / seconds,
            ready: ready(latency).map(|l| (l.mean, l.max)),
        };
        *self = Since { at: now, frames, octets };
        rates
    }
}

impl Start {
    /// Everything that was decided, and why.
    pub fn new(description: &Description, run: &Run<'_>, engine: &Engine, sinks: &Sinks, time: &Time) -> Self {
        let Run { args, flow, video, conversion, .. } = run;
        let (backend, caps) = engine.caps();
        let memory = engine.memory();
        let (kernel, kernel_text) = engine.kernel();
        let layout = &conversion.layout;
        let remark = conversion.remark();
        let Expected { packets, bit_rate } = expected(flow, video);
        let mut lines = vec![("flow", picture(video)), ("name", flow.name.clone())];
        for (n, leg) in flow.legs.iter().enumerate() {
            let from = match &leg.sources {
                SourceFilter::Any => "any source".to_owned(),
                SourceFilter::Include(list) => format!("from {}", join(list)),
                SourceFilter::Exclude(list) => format!("from all but {}", join(list)),
            };
            let name = leg.mid.as_deref().map(|mid| format!(" ({mid})")).unwrap_or_default();
            lines.push(("leg", format!("{n}{name}: {} port {}, {from}", leg.destination, leg.port)));
        }
        lines.extend(legs(flow, args.redundancy).map(|text| ("legs", text)));
        lines.push(("clock", clock(flow)));
        lines.extend(time.lines().map(|line| ("", line)));
        let wrong = description.diagnostics.iter().filter(|d| d.severity >= Severity::Warning);
        lines.extend(wrong.clone().map(|d| ("SDP", format!("line {}: {} ({})", d.line, d.message, d.cure))));
        let rate = bit_rate.map_or_else(|| "rate unknown".into(), |b| format!("{:.3} Gb/s", b as f64 / 1e9));
        let cut = packets.map_or_else(String::new, |n| format!(", {n} packets a frame as usually cut"));
        lines.extend(args.rules.limits.differences().into_iter().map(|text| ("limits", text)));
        lines.push(("expect", format!("{rate}{cut}")));
        lines.push(("backend", backend.clone()));
        lines.extend(engine.passed.iter().map(|p| ("", format!("not {}: {}", p.backend, p.reason))));
        lines.extend(caps.notes.iter().map(|note| ("", note.clone())));
        if let (Some(rate), true) = (bit_rate, caps.buffer_octets > 0) {
            let ms = caps.buffer_octets as f64 * 8e3 / rate as f64;
            lines.push(("buffer", format!("{} KiB, {ms:.0} ms of this stream at most", caps.buffer_octets >> 10)));
        }
        lines.push(("memory", limits::text(&memory, args, flow.legs.len(), &backend)));
        lines.push(("gpu", engine.gpu.lines().map(str::trim).collect::<Vec<_>>().join("; ")));
        lines.push(("kernel", format!("{kernel_text}, to {}", layout_name(layout))));
        lines.extend(remark.map(|r| ("", r.to_owned())));
        if sinks.is_empty() {
            lines.push(("sink", "none: counting only".into()));
        }
        lines.extend(sinks.describe().map(|s| ("sink", s.to_owned())));
        lines.extend(sinks.notes.iter().map(|n| ("", n.clone())));
        let json = json!({
            "type": "start",
            "flow": flow,
            "diagnostics": wrong.collect::<Vec<_>>(),
            "expected": { "packets_per_frame": packets, "bit_rate": bit_rate },
            "redundancy": legs(flow, args.redundancy),
            "time": time.json(),
            "backend": backend,
            "backends_passed": engine.passed,
            "notes": caps.notes.iter().chain(&sinks.notes).collect::<Vec<_>>(),
            "buffer_octets": caps.buffer_octets,
            "memory": memory,
            "gpu": engine.gpu,
            "kernel": kernel,
            "kernel_text": kernel_text,
            "layout": layout_name(layout),
            "remark": remark,
            "sinks": sinks.describe().collect::<Vec<_>>(),
            "preview": preview(sinks),
        });
        Start { lines, json, begun: Instant::now() }
    }

    /// Of a recording: what it is, how it is read, and the GPU or why none is used.
    pub fn of_recording(
        run: &Run<'_>,
        (what, json): &(Vec<String>, serde_json::Value),
        how: &str,
        gpu: &str,
        sinks: &Sinks,
    ) -> Self {
        let mut lines = vec![("flow", picture(run.video)), ("name", run.flow.name.clone())];
        let labels = std::iter::once("from").chain(std::iter::repeat(""));
        lines.extend(labels.zip(what.iter().cloned()));
        lines.push(("gpu", gpu.lines().map(str::trim).collect::<Vec<_>>().join("; ")));
        lines.push(("frames", how.to_owned()));
        if sinks.is_empty() {
            lines.push(("sink", "none: counting only".into()));
        }
        lines.extend(sinks.describe().map(|s| ("sink", s.to_owned())));
        lines.extend(sinks.notes.iter().map(|n| ("", n.clone())));
        let json = json!({
            "type": "start",
            "flow": run.flow,
            "recording": json,
            "notes": what.iter().skip(1).chain(&sinks.notes).collect::<Vec<_>>(),
            "gpu": gpu,
            "frames_text": how,
            "layout": layout_name(&run.conversion.layout),
            "sinks": sinks.describe().collect::<Vec<_>>(),
        });
        Start { lines, json, begun: Instant::now() }
    }

    /// Its lines, for a report.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        let mut last = "";
        self.lines.iter().filter(|(_, what)| !what.is_empty()).map(move |(name, what)| {
            last = if name.is_empty() { last } else { name };
            format!("{last}: {what}")
        })
    }

    /// On standard error.
    pub fn print(&self, json: bool) {
        if json {
            return line(&self.json);
        }
        let mut text = String::new();
        for (name, what) in self.lines.iter().filter(|(_, what)| !what.is_empty()) {
            let _ = writeln!(text, "{name:>8}  {what}");
        }
        say(&text);
    }
}

fn join<T: ToString>(list: &[T]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A picture format as people say it.
pub fn picture(video: &Video) -> String {
    let rate = video.rate.map_or_else(|| "unknown rate".into(), |r| format!("{:.5} frames/s", r.as_f64()));
    let rate = rate.replace(".00000", "");
    let kind = video.sender_type.map(|t: SenderType| format!(", type {t}")).unwrap_or_default();
    format!(
        "{}x{} {} at {rate}, {} {} bit, {} {} {}, {}{kind}",
        video.width,
        video.height,
        video.scan,
        video.sampling,
        video.depth,
        video.colorimetry,
        video.tcs,
        video.range,
        video.packing
    )
}

/// Frames a second, where the SDP says them.
pub fn expected_rate(video: &Video) -> Option<f64> {
    video.rate.map(|rate| rate.as_f64())
}

fn clock(flow: &Flow) -> String {
    let reference = flow.reference_clocks.first().map_or_else(
        || "no reference clock".into(),
        |clock| match clock {
            ReferenceClock::Ptp { version, grandmaster, domain } => {
                let master = grandmaster.as_deref().unwrap_or("traceable");
                let domain = domain.map(|d| format!(", domain {d}")).unwrap_or_default();
                format!("PTP {version} {master}{domain}")
            }
            ReferenceClock::LocalMac { mac } => format!("sender's own clock ({mac})"),
            ReferenceClock::Other { text } => text.clone(),
        },
    );
    let media = match &flow.media_clock {
        MediaClock::Unknown => "media clock unknown".to_owned(),
        MediaClock::Direct { offset } => format!("timestamps direct, offset {offset}"),
        MediaClock::Sender => "timestamps run free".to_owned(),
        MediaClock::Other { text } => text.clone(),
    };
    format!("{reference}; {media}")
}

/// GStreamer's name for a layout, or our own word.
pub fn layout_name(layout: &Layout) -> String {
    layout.name().map_or_else(|| format!("{:?}", layout.output).to_lowercase(), str::to_owned)
}

/// The line that is printed again and again.
pub struct Status {
    interval: Duration,
    json: bool,
    terminal: bool,
    next: Instant,
    since: Since,
    /// Remarks that were told.
    told: Vec<String>,
    printed: bool,
}

impl Status {
    /// Prints every `--interval`.
    pub fn new(args: &Args) -> Self {
        let now = Instant::now();
        Status {
            interval: args.interval.max(Duration::from_millis(100)),
            json: args.json,
            terminal: std::io::stderr().is_terminal(),
            next: now + args.interval,
            since: Since::now(),
            told: Vec::new(),
            printed: false,
        }
    }

    /// It is time to print.
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// One line; `more` is added to it.
    pub fn print(&mut self, now: &mut Now<'_>, more: Option<String>) {
        let Now { report, sinks, health, timing, .. } = &*now;
        let latency = &*now.latency;
        self.next = Instant::now() + self.interval;
        let rates = self.since.rates(report, latency);
        let told = std::mem::replace(&mut self.told, report.remarks.clone());
        for remark in report.remarks.iter().filter(|r| !told.contains(r)) {
            self.say(Said::remark(remark));
        }
        let p = &report.packets;
        let f = &report.frames;
        let dropped = f.dropped + sinks.dropped();
        if self.json {
            line(&status(report, latency, sinks, health, timing, rates));
        } else {
            // Short: it has to fit in 80 columns.
            let mut text = format!(
                "{:.2} fps {:.3} Gb/s lost {} late {} reordered {} incomplete {}",
                rates.fps,
                rates.bits / 1e9,
                p.lost,
                p.late,
                p.reordered,
                f.incomplete
            );
            if dropped > 0 {
                let _ = write!(text, " dropped {dropped}");
            }
            let rejected = p.rejected.total() + report.rx.rejected.total();
            if rejected > 0 {
                let _ = write!(text, " not used {rejected}");
            }
            if report.rx.kernel_dropped > 0 {
                let _ = write!(text, " overflow {}", report.rx.kernel_dropped);
            }
            if report.rx.overwritten > 0 {
                let _ = write!(text, " overwritten {}", report.rx.overwritten);
            }
            if let Some((mean, _)) = rates.ready {
                let _ = write!(text, " latency {:.1} ms", mean / 1e6);
            }
            for leg in timing {
                let what = leg.class.map_or_else(|| "-21 not measurable".into(), |class| format!("-21 {class}"));
                let _ = write!(text, " {what}");
            }
            if let Some(more) = more {
                let _ = write!(text, " {more}");
            }
            if let Some(words) = health.short() {
                let _ = write!(text, " {words}");
            }
            if self.terminal {
                say(&format!("\r{text}\x1b[K"));
                self.printed = true;
            } else {
                say(&format!("{text}\n"));
            }
        }
    }

    /// A change of state: one line of its own.
    pub fn say(&mut self, said: Said) {
        if self.json {
            line(&said.into_json());
        } else if let Some(text) = said.text() {
            self.end_line();
            say(&format!("{text}\n"));
        }
    }

    /// The terminal's cursor stands at the start of a line.
    pub fn end_line(&mut self) {
        if std::mem::take(&mut self.printed) {
            say("\n");
        }
    }
}

/// Where the preview is.
fn preview(sinks: &Sinks) -> Option<String> {
    #[cfg(feature = "preview")]
    return sinks.page().and_then(|page| page.url());
    #[cfg(not(feature = "preview"))]
    {
        let _ = sinks;
        None
    }
}

/// What is reckoned from one status to the next.
pub struct Rates {
    /// Frames a second.
    pub fps: f64,
    /// Bits a second.
    pub bits: f64,
    /// Mean and greatest latency of frames that are ready, in nanoseconds.
    pub ready: Option<(f64, u64)>,
}

/// The object of `--json`.
pub fn status(
    report: &Report,
    latency: &Recorder,
    sinks: &Sinks,
    health: &Watch,
    timing: &[LegTiming],
    rates: Rates,
) -> serde_json::Value {
    let (p, f) = (&report.packets, &report.frames);
    json!({
        "type": "status", "fps": round(rates.fps), "bit_rate": rates.bits as u64,
        "lost": p.lost, "late": p.late, "reordered": p.reordered, "duplicate": p.duplicate,
        "kernel_dropped": report.rx.kernel_dropped, "overwritten": report.rx.overwritten,
        "rejected": p.rejected.total() + report.rx.rejected.total(),
        "frames": { "complete": f.complete, "incomplete": f.incomplete, "torn": f.torn,
                    "dropped": f.dropped + sinks.dropped(), "shed": f.shed, "no_memory": f.no_memory,
                    "acquiring": f.acquiring },
        "legs": health.legs(&report.legs), "health": health.json(), "too_slow": health.too_slow(),
        "lag_us": report.busy.lag_ns / 1000,
        "latency_us": rates.ready.map(|(mean, max)| json!({ "mean": mean / 1e3, "max": max as f64 / 1e3 })),
        "latency": hops(|hop| latency.interval(hop)),
        "timing": timing,
    })
}

/// The sender's timing on a leg, for people.
fn timing_lines(leg: &LegTiming) -> Vec<String> {
    let us = |name: &str, range: Option<Range>| {
        let Range { min, mean, max } = range?;
        let us = |ns: f64| ns / 1e3;
        Some(format!("{name} {:.0} us ({:.0} to {:.0})", us(mean), us(min as f64), us(max as f64)))
    };
    let plain = |name: &str, range: Option<Range>| range.map(|r| format!("{name} {} to {}", r.min, r.max));
    let all = |parts: Vec<Option<String>>| parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let mut lines = vec![format!("leg {}: {}; {}", leg.leg, leg.verdict, leg.clocks)];
    lines.push(all(vec![
        us("FPT", leg.fpt_ns),
        us("margin to TROFFSET", leg.margin_ns),
        us("latency of the first packet", leg.latency_ns),
    ]));
    lines.push(all(vec![
        plain("CINST", leg.cinst),
        plain("VRX", leg.vrx),
        plain("RTP offset", leg.rtp_offset),
        plain("RTP increment", leg.increment),
        plain("packets", leg.packets),
    ]));
    lines.extend(leg.outside.iter().map(|found| format!("outside of its window: {found}")));
    lines.retain(|line| !line.is_empty());
    lines
}

/// Of frames that are ready: on the GPU, else handed over.
fn ready(latency: &Recorder) -> Option<Figures> {
    [Hop::Gpu, Hop::Complete].iter().find_map(|hop| latency::figures(latency.interval(*hop)))
}

/// Figures of the hops that there are, in nanoseconds, by their names.
fn hops<'a>(histogram: impl Fn(Hop) -> &'a Histogram<u64>) -> serde_json::Value {
    let figures = |hop: &Hop| Some((hop.name().to_owned(), json!(latency::figures(histogram(*hop))?)));
    serde_json::Value::Object(Hop::ALL.iter().filter_map(figures).collect())
}

/// The last words.
pub fn summary(json: bool, now: &Now<'_>, gate: &Gate, start: &Start, end: &str) {
    let Now { report, sinks, health, timing, .. } = now;
    let latency = &*now.latency;
    let seconds = start.begun.elapsed().as_secs_f64();
    let p = &report.packets;
    let f = &report.frames;
    let dropped = f.dropped + sinks.dropped();
    let delivered = gate.delivered();
    let per_packet = report.cpu.filter(|_| p.received > 0).map(|cpu| cpu.as_secs_f64() * 1e6 / p.received as f64);
    if json {
        return line(&json!({
            "type": "summary", "end": end, "seconds": round(seconds),
            "packets": p,
            "compared": report.compared,
            "legs": health.legs(&report.legs),
            "health": health.json(),
            "frames": { "complete": f.complete, "incomplete": f.incomplete, "dropped": dropped, "shed": f.shed,
                        "no_memory": f.no_memory, "acquiring": f.acquiring, "missing_octets": f.missing_octets, "torn": f.torn,
                        "windows": f.windows, "withheld": f.withheld, "delivered": delivered },
            "receiver": report.rx,
            "sinks": sinks.reports(),
            "verify": sinks.verified(),
            "latency": hops(|hop| latency.total(hop)),
            "timing": timing,
            "cpu": { "receiver_seconds": report.cpu.map(|c| c.as_secs_f64()), "us_per_packet": per_packet.map(round) },
            "remarks": report.remarks,
        }));
    }
    let mut text = String::new();
    let _ = writeln!(text, "{:>8}  {end}, after {seconds:.1} s", "end");
    let _ = writeln!(
        text,
        "{:>8}  received {}, lost {}, late {}, duplicate {}, reordered {}",
        "packets", p.received, p.lost, p.late, p.duplicate, p.reordered
    );
    for (name, what) in health.texts(&report.legs) {
        let _ = writeln!(text, "{name:>8}  {what}");
    }
    if let Some(compared) = &report.compared {
        let _ = writeln!(text, "{:>8}  {}", "legs", comparison(compared));
    }
    let (checksums, hardware) = (report.rx.checksum_issues, report.rx.hardware_issues);
    if checksums + hardware > 0 {
        let what = format!("runs with wrong checksums {checksums}, with errors of the card {hardware}");
        let _ = writeln!(text, "{:>8}  {what}", "");
    }
    if report.rx.kernel_dropped > 0 {
        let _ = writeln!(
            text,
            "{:>8}  socket overflow {}: this machine's loss, not the network's",
            "", report.rx.kernel_dropped
        );
    }
    if report.rx.overwritten > 0 {
        let _ = writeln!(
            text,
            "{:>8}  overwritten in the ring before they were read {}, in {} frames: this machine is too slow, or the ring too small",
            "", report.rx.overwritten, f.torn
        );
    }
    for reason in Reason::ALL {
        let n = p.rejected.get(reason) + report.rx.rejected.get(reason);
        if n > 0 {
            let how = if reason == Reason::Truncated { "cut short, used as far as they go" } else { "not used" };
            let _ = writeln!(text, "{:>8}  {how}: {n} ({})", "", reason.name());
        }
    }
    let _ = writeln!(
        text,
        "{:>8}  complete {}, incomplete {} ({} octets missing), dropped {dropped}, cut by start or end {}",
        "frames", f.complete, f.incomplete, f.missing_octets, f.acquiring
    );
    if f.shed + f.no_memory > 0 {
        let (shed, memory) = (f.shed, f.no_memory);
        let _ = writeln!(
            text,
            "{:>8}  of the dropped ones: shed so that no packet is lost {shed}, without memory {memory}, at sinks {}",
            "",
            sinks.dropped()
        );
    }
    if f.windows > 0 {
        let _ = writeln!(text, "{:>8}  {} were windows of the ring, the others were copied", "", f.windows);
    }
    if f.withheld > 0 {
        let _ = writeln!(text, "{:>8}  withheld {} that were not whole (--incomplete drop)", "", f.withheld);
    }
    if let Some(us) = per_packet {
        let _ = writeln!(text, "{:>8}  {us:.3} us of CPU a packet in the receiving thread", "cpu");
    }
    for (n, (hop, f)) in Hop::ALL.iter().filter_map(|h| Some((h, latency::figures(latency.total(*h))?))).enumerate() {
        let ms = |ns: u64| ns as f64 / 1e6;
        let name = if n == 0 { "latency" } else { "" };
        let (p50, p99, max) = (ms(f.p50), ms(f.p99), ms(f.max));
        let _ = writeln!(
            text,
            "{name:>8}  {}: half of the frames within {p50:.3} ms, 99 % {p99:.3}, all {max:.3}",
            hop.name()
        );
    }
    for leg in timing {
        for (n, line) in timing_lines(leg).into_iter().enumerate() {
            let _ = writeln!(text, "{:>8}  {line}", if n == 0 { "timing" } else { "" });
        }
    }
    for remark in &report.remarks {
        let _ = writeln!(text, "{:>8}  {remark}", "note");
    }
    for text_line in sinks.texts() {
        let _ = writeln!(text, "{:>8}  {text_line}", "sink");
    }
    say(&text);
}

/// What comparing the legs has found.
fn comparison(found: &LegComparison) -> String {
    match found.first {
        None => format!("{} copies compared, all the same", found.compared),
        Some(LegDifference { leg, first_leg, sequence, timestamp, .. }) => format!(
            "{} of {} copies differ from the first one; at first leg {leg} from leg {first_leg}, sequence number {sequence}, \
             timestamp {timestamp}",
            found.different, found.compared
        ),
    }
}

/// Something that happened when the status line has ended.
pub fn tell(json: bool, said: Said) {
    if json {
        line(&said.into_json());
    } else if let Some(text) = said.text() {
        say(&format!("{text}\n"));
    }
}

/// A failure, where everything is JSON.
pub fn error(error: &Error) {
    let message = error.to_string();
    let what = message.split("\n  cure: ").next().unwrap_or_default();
    line(&json!({
        "type": "error", "kind": format!("{:?}", error.kind()), "exit": error.kind().exit_code(),
        "message": what, "cure": error.cure_text(),
    }));
}

/// Words for people. Nobody reads them when standard error is closed, and that is no reason to stop.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn line(value: &serde_json::Value) {
    // One write a line, so that lines of several threads do not mix.
    let mut text = value.to_string();
    text.push('\n');
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn round(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}
