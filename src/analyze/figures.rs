//! The figures and plots of a flow.

use super::Analysis;
use super::track::Analysed;
use crate::report::{Bin, Fact, Limit, Line, MapCell, MapRow, Plot, Point, Section, Table, number};
use crate::sdp::SenderType;
use crate::timing::align::Clocks;
use crate::timing::audio::Audio;
use crate::timing::flow::Meter;
use crate::timing::frames::{Frames, Level};
use crate::timing::limits::Limits;
use crate::timing::measure::{Histogram, Measure, Series, Stat};
use crate::timing::stamps::Trust;
use crate::timing::verdict::Class;
use crate::timing::windows;
use crate::wire::ptp;
use std::collections::BTreeMap;

type Metrics = BTreeMap<String, f64>;

const US: f64 = 1000.0;
const MS: f64 = 1_000_000.0;

/// The section of a flow; its numbers go to `metrics` too.
pub(super) fn section(a: &Analysis, flow: &Analysed, title: String, number: usize, metrics: &mut Metrics) -> Section {
    let mut s = Section { title, ..Section::default() };
    let window = flow.timing.window();
    let prefix = format!("flow{number}");
    let mut count = |name: &str, value: u64| {
        metrics.insert(format!("{prefix}.{name}"), value as f64);
    };
    count("received", window.received());
    count("lost", window.lost());
    count("restarts", window.restarts());
    for m in 0..flow.legs.len() {
        let leg = window.leg(m);
        for (name, value) in [
            ("received", leg.received),
            ("lost", leg.lost),
            ("duplicate", leg.duplicate),
            ("reordered", leg.reordered),
            ("late", leg.late),
        ] {
            count(&format!("leg{m}.{name}"), value);
        }
    }
    general(flow, &mut s);
    if flow.legs.len() > 1 {
        s.tables.push(legs(flow));
    }
    for m in 0..flow.legs.len() {
        leg_figures(a, flow, m, &format!("{prefix}.leg{m}"), &mut s, metrics);
    }
    if let Some(map) = loss_map(a, flow) {
        s.plots.push(map);
    }
    s
}

fn fact(name: &str, value: impl Into<String>, hint: impl Into<String>) -> Fact {
    Fact { name: name.into(), value: value.into(), hint: hint.into() }
}

fn general(flow: &Analysed, s: &mut Section) {
    let Some(leg) = flow.legs.iter().find(|l| l.packets > 0) else {
        s.note = "nothing of it is in the capture".into();
        return;
    };
    let window = flow.timing.window();
    s.facts.push(fact("packets", window.received().to_string(), format!("{} lost", window.lost())));
    let seconds = leg.span.1.since(leg.span.0) as f64 / 1e9;
    if seconds > 0.0 {
        let bits = leg.octets as f64 * 8.0 / seconds;
        let rate =
            if bits >= 1e9 { format!("{} Gb/s", number(bits / 1e9)) } else { format!("{} Mb/s", number(bits / 1e6)) };
        let mean = leg.octets / leg.packets.max(1);
        let spacing = seconds * 1e6 / leg.packets.saturating_sub(1).max(1) as f64;
        s.facts.push(fact("mean spacing", format!("{} us", number(spacing)), "gaps between frames included"));
        s.facts.push(fact("rate", rate, format!("UDP payload, {mean} octets a packet on average")));
    }
    if let Some(found) = &leg.found {
        let ssrcs = found
            .rtp
            .as_ref()
            .map_or(String::new(), |r| r.ssrcs.iter().map(|s| format!("{s:08x}")).collect::<Vec<_>>().join(", "));
        s.facts.push(fact("payload type", leg.payload_type.to_string(), format!("SSRC {ssrcs}")));
        if flow.described.is_none() {
            s.note = format!("No SDP describes it; it is taken as this because {}.", found.why);
        }
    }
}

fn legs(flow: &Analysed) -> Table {
    let columns = ["leg", "received", "lost", "duplicates", "reordered", "late", "skew least us", "skew most us"];
    let rows = (0..flow.legs.len()).map(|m| {
        let c = flow.timing.window().leg(m);
        let skew = |ns: i64| if c.skew.samples == 0 { "-".into() } else { number(ns as f64 / US) };
        vec![
            m.to_string(),
            c.received.to_string(),
            c.lost.to_string(),
            c.duplicate.to_string(),
            c.reordered.to_string(),
            c.late.to_string(),
            skew(c.skew.min_ns),
            skew(c.skew.max_ns),
        ]
    });
    Table { title: "Legs (ST 2022-7)".into(), columns: columns.map(String::from).to_vec(), rows: rows.collect() }
}

/// How far the two clocks lie apart, in words.
pub(super) fn distance(clocks: &Clocks) -> String {
    let latency = clocks.latency_ns.mean() / 1e9;
    let thousandths = |ppm: f64| (ppm * 1000.0).round() / 1000.0;
    let drift = clocks.sure_drift_ppm().map(thousandths);
    let drift = drift.map_or(String::new(), |ppm| format!(", drift {} ppm", number(ppm)));
    format!("arrivals lie {latency:.6} s behind the timestamps on average{drift}")
}

/// A measure: its name, its unit, its name among the metrics.
#[derive(Clone, Copy)]
struct Named(&'static str, &'static str, &'static str);

/// Measures of time are nanoseconds, and are shown in microseconds.
fn scale_of(unit: &str) -> f64 {
    if unit == "us" { US } else { 1.0 }
}

/// The measures of one leg as rows, metrics and plots.
struct Figures<'a> {
    a: &'a Analysis,
    /// Added to times of series to make them the capture's.
    shift_ns: i64,
    prefix: &'a str,
    leg: String,
    rows: Vec<Vec<String>>,
    plots: Vec<Plot>,
    metrics: &'a mut Metrics,
}

impl Figures<'_> {
    fn row(&mut self, Named(name, unit, key): Named, stat: &Stat, held: String) {
        let scale = scale_of(unit);
        if stat.count == 0 {
            return;
        }
        let of = |v: f64| number(v / scale);
        let named = if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") };
        self.rows.push(vec![named, of(stat.min as f64), of(stat.mean()), of(stat.max as f64), held]);
        let mut put = |what: &str, v: f64| self.metrics.insert(format!("{}.{key}.{what}", self.prefix), v / scale);
        put("min", stat.min as f64);
        put("mean", stat.mean());
        put("max", stat.max as f64);
    }

    fn measure(&mut self, named: Named, measure: &Measure, held: String, limits: &[Limit]) {
        let Named(name, unit, _) = named;
        self.row(named, &measure.all, held);
        if measure.all.count > 0 {
            let line = self.line("", &measure.series, scale_of(unit));
            self.series(name, unit, vec![line], limits.to_vec());
        }
    }

    fn line(&self, name: &str, series: &Series, scale: f64) -> Line {
        let begin = series.begin().map_or(0.0, |b| self.a.seconds(b) - self.shift_ns as f64 / 1e9);
        let width = series.width() as f64 / 1e9;
        let points = series.buckets().iter().enumerate().filter(|(_, b)| b.count > 0).map(|(n, b)| Point {
            t: begin + n as f64 * width,
            min: b.min as f64 / scale,
            mean: b.mean() / scale,
            max: b.max as f64 / scale,
        });
        Line { name: name.into(), points: points.collect() }
    }

    fn series(&mut self, name: &str, unit: &str, lines: Vec<Line>, limits: Vec<Limit>) {
        let title = format!("{name}{}", self.leg);
        self.plots.push(Plot::Series { title, unit: unit.into(), lines, limits });
    }

    fn histogram(&mut self, name: &str, unit: &str, histogram: &Histogram, limits: Vec<Limit>) {
        let scale = scale_of(unit);
        let below = (histogram.below > 0).then_some(Bin { from: -1.0, to: 0.0, count: histogram.below });
        let bins =
            histogram.bins().map(|(from, to, count)| Bin { from: from as f64 / scale, to: to as f64 / scale, count });
        let title = format!("{name}{}", self.leg);
        self.plots.push(Plot::Histogram {
            title,
            unit: unit.into(),
            bins: below.into_iter().chain(bins).collect(),
            limits,
        });
    }

    fn level(&mut self, name: &'static str, key: &'static str, level: &Level, held: String, limit: Option<u32>) {
        self.row(Named(name, "packets", key), &level.all(), held.clone());
        let line = self.line("", &level.measure.series, 1.0);
        let limits: Vec<Limit> = limit.map(|l| Limit { name: held, value: f64::from(l) }).into_iter().collect();
        self.series(name, "packets", vec![line], limits.clone());
        self.histogram(&format!("{name}, how often"), "packets", &level.histogram, limits);
    }
}

fn leg_figures(a: &Analysis, flow: &Analysed, m: usize, prefix: &str, s: &mut Section, metrics: &mut Metrics) {
    let Some(meter) = flow.timing.meter(m) else { return };
    let several = flow.legs.len() > 1;
    let name = |what: &str| if several { format!("{what}, leg {m}") } else { what.to_owned() };
    if let Some(clocks) = flow.timing.clocks(m) {
        let latency = clocks.latency_ns.mean() / 1e9;
        let hint = distance(&clocks);
        s.facts.push(fact(&name("clocks"), clocks.alignment.text(), hint));
        metrics.insert(format!("{prefix}.clock.latency_s"), latency);
        if let Some(ppm) = clocks.drift_ppm {
            metrics.insert(format!("{prefix}.clock.drift_ppm"), ppm);
        }
    }
    let leg = if several { format!(", leg {m}") } else { String::new() };
    let mut f = Figures { a, shift_ns: 0, prefix, leg, rows: Vec::new(), plots: Vec::new(), metrics };
    match meter {
        Meter::Frames(frames) => {
            let trust = flow.timing.trust(m);
            f.shift_ns = frames.config().shift_ns;
            if let (Some(trust), true) = (&trust, frames.cinst.is_some()) {
                s.facts.push(fact(&name("measures within frames"), trust.to_string(), ""));
            }
            if let Some(verdict) = flow.timing.verdict(m) {
                s.facts.push(fact(&name("ST 2110-21"), verdict.to_string(), sender(frames)));
            }
            frame_figures(frames, trust.as_ref(), flow.timing.verdict(m).and_then(|v| v.class), &mut f);
        }
        Meter::Audio(audio) => audio_figures(audio, &flow.timing.rules().limits, &mut f),
        Meter::Packets(packets) => {
            f.row(Named("time between packets", "us", "interval_us"), &packets.interval, String::new());
            f.histogram("time between packets, how often", "us", &packets.intervals, Vec::new());
        }
        Meter::None(why) => s.facts.push(fact(&name("not measured"), *why, "")),
    }
    let (rows, plots) = (f.rows, f.plots);
    if !rows.is_empty() {
        let columns = ["measure", "least", "mean", "most", "held against"].map(String::from).to_vec();
        s.tables.push(Table { title: name("Measures"), columns, rows });
    }
    s.plots.extend(plots);
}

/// What a sender says that it is, and the schedule that goes with it.
fn sender(frames: &Frames) -> String {
    let config = frames.config();
    let said = config.sender_type.map_or("no TP described".to_owned(), |t| format!("described as {t}"));
    let seems = if frames.seems_gapped() { "looks gapped" } else { "looks linear" };
    let (n, rate) = (config.schedule.packets(), config.schedule.rate());
    format!("{said}, {seems}; {n} packets a frame, {rate} frames a second, {}", config.scan)
}

fn limit(name: String, value: f64) -> Limit {
    Limit { name, value }
}

fn frame_figures(frames: &Frames, trust: Option<&Trust>, class: Option<Class>, f: &mut Figures<'_>) {
    let config = frames.config();
    let troffset = config.schedule.offset_ns() as f64 / US;
    let (low, high) = config.rules.limits.video_latency_ns;
    let shown = trust.is_none_or(|t| t.slack().is_some());
    let gapped = frames.seems_gapped();
    // The type that the buckets are held against in the pictures: the described one, else what it is.
    let said = config.sender_type.filter(|said| config.gapped || *said != SenderType::N);
    let kind = said.unwrap_or(match class {
        Some(Class::NarrowLinear) => SenderType::Nl,
        Some(Class::Wide) => SenderType::W,
        Some(Class::Narrow) => SenderType::N,
        _ if gapped && config.gapped => SenderType::N,
        _ => SenderType::Nl,
    });
    let (cmax, full) = frames.held(kind);
    if shown {
        if let Some(cinst) = &frames.cinst {
            let held = cmax.map_or(format!("no CMAX of {kind}"), |c| format!("CMAX {c} ({kind})"));
            f.level("CINST", "cinst", cinst, held, cmax);
        }
        if let Some([g, l]) = &frames.vrx {
            let held = || format!("VRXFULL {full} ({kind})");
            if config.gapped {
                f.level("VRX, gapped reads", "vrx_gapped", g, held(), Some(full));
            }
            f.level("VRX, linear reads", "vrx_linear", l, held(), Some(full));
        }
    }
    let tro = vec![limit("TROFFSET".into(), troffset)];
    f.measure(Named("FPT", "us", "fpt_us"), &frames.fpt, format!("TROFFSET {}", number(troffset)), &tro);
    f.row(Named("margin to TROFFSET", "us", "margin_us"), &frames.margin.all, "TROFFSET - FPT".into());
    let window = format!("{} to {}", number(low as f64 / US), number(high as f64 / US));
    let name = if config.cinst { "video latency" } else { "latency" };
    f.measure(Named(name, "us", "latency_us"), &frames.latency, window, &[]);
    f.row(Named("last packet after the timestamp", "us", "complete_us"), &frames.complete.all, String::new());
    let (least, most) = windows::rtp_offset(frames);
    let held = if config.cinst { format!("{least} to {most}") } else { String::new() };
    f.measure(Named("RTP offset", "ticks", "rtp_offset"), &frames.rtp_offset, held, &[]);
    if let Some(due) = &frames.due {
        let held = format!("0 to a frame; TD {} us", number(due.timing.delay_ns() as f64 / US));
        let zero = vec![limit("last instant".into(), 0.0)];
        f.measure(Named("margin to the deadline", "us", "deadline_margin_us"), &due.margin, held, &zero);
    }
    f.row(Named("timestamp increment", "ticks", "increment"), &frames.increment.all, String::new());
    f.row(Named("packets of a frame or field", "", "packets"), &frames.packets.all, "constant".into());
    if shown {
        let period = frames.spacing_ns() as f64 * f64::from(config.schedule.packets());
        let (least, most) = config.rules.limits.gap_ppm.unwrap_or((0, 40_000));
        let part = |ppm: i64| number(period * ppm as f64 / 1e6 / US);
        let held =
            format!("{} to {} ({} to {} % of a frame)", part(least), part(most), least as f64 / 1e4, most as f64 / 1e4);
        f.measure(Named("gap between frames or fields", "us", "gap_us"), &frames.gap, held, &[]);
        f.row(Named("time between packets", "us", "interval_us"), &frames.interval, String::new());
        f.histogram("time between packets, how often", "us", &frames.intervals, Vec::new());
    }
}

fn audio_figures(audio: &Audio, limits: &Limits, f: &mut Figures<'_>) {
    let packet = audio.packet_time_ns().map(|ns| ns as f64 / US);
    let about = |times: f64| packet.map_or(String::new(), |us| format!("{} us", number(us * times)));
    f.measure(Named("latency", "us", "latency_us"), &audio.latency, format!("a packet time is {}", about(1.0)), &[]);
    let lines: Vec<Limit> = packet.map(|us| limit("1 packet time".into(), us)).into_iter().collect();
    let held = format!("good to {}, at most {}", about(limits.ts_df_good.into()), about(limits.ts_df.into()));
    f.measure(Named("TS-DF", "us", "ts_df_us"), &audio.ts_df, held, &lines);
    f.measure(Named("time between packets", "us", "interval_us"), &audio.interval, about(1.0), &[]);
    f.histogram("time between packets, how often", "us", &audio.intervals, Vec::new());
}

fn loss_map(a: &Analysis, flow: &Analysed) -> Option<Plot> {
    let window = flow.timing.window();
    flow.legs.iter().find(|l| l.packets > 0)?;
    let row = |name: String, series: &Series| {
        let begin = series.begin().map_or(0.0, |b| a.seconds(b));
        let width = series.width() as f64 / 1e9;
        let cells = series.buckets().iter().enumerate().filter(|(_, b)| b.count > 0).map(|(n, b)| MapCell {
            from: begin + n as f64 * width,
            to: begin + (n + 1) as f64 * width,
            amount: b.sum() as f64,
        });
        MapRow { name, cells: cells.collect() }
    };
    let mut rows = Vec::new();
    if flow.legs.len() > 1 {
        rows.extend((0..flow.legs.len()).filter_map(|m| Some(row(format!("leg {m}"), window.leg_losses(m)?))));
    }
    let merged = if flow.legs.len() > 1 { "merged" } else { "flow" };
    rows.push(row(merged.into(), window.losses()));
    Some(Plot::Map { title: "Losses over time".into(), unit: "packets".into(), seconds: a.seconds(a.span.1), rows })
}

/// PTP in the capture.
pub(super) fn ptp(a: &Analysis) -> Section {
    let mut s = Section { title: "PTP".into(), ..Section::default() };
    let seen = &a.ptp;
    let domains: Vec<String> = seen.domains().map(|d| d.to_string()).collect();
    s.facts.push(fact("messages", seen.messages.to_string(), format!("domain {}", domains.join(", "))));
    if seen.clock.count > 0 {
        let ms = seen.clock.mean() / MS;
        s.facts.push(fact("capture's clock less PTP time", format!("{} ms", number(ms)), "by Sync and Follow_Up"));
    }
    let rows = seen.masters.iter().map(|m| {
        let flag = |bit: u16, yes: &str, no: &str| if m.flags & bit != 0 { yes.to_owned() } else { no.to_owned() };
        vec![
            m.announce.grandmaster.to_string(),
            m.domain.to_string(),
            m.count.to_string(),
            m.announce.class.to_string(),
            format!("{:#04x}", m.announce.accuracy),
            flag(ptp::UTC_OFFSET_VALID, &format!("{} s", m.announce.utc_offset), "not valid"),
            flag(ptp::TIME_TRACEABLE, "yes", "no"),
            m.announce.steps_removed.to_string(),
        ]
    });
    let columns = ["grandmaster", "domain", "announced", "class", "accuracy", "TAI - UTC", "traceable", "steps"];
    let table =
        Table { title: "Grandmasters".into(), columns: columns.map(String::from).to_vec(), rows: rows.collect() };
    if !table.rows.is_empty() {
        s.tables.push(table);
    }
    s
}
