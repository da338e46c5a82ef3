//! An analysis as a report.

use super::track::Analysed;
use super::{Analysis, checks, figures};
use crate::report::{Event, Report, Section, Severity, Table, number};
use crate::sdp;
use crate::time::Tai;
use crate::timing::Source;
use crate::timing::buckets::{Method, Tvd};

/// Events of a flow that are listed at most.
const EVENTS: usize = 200;

impl Analysis {
    /// The report on it.
    pub fn report(&self) -> Report {
        let mut report = Report::new("analyze", self.name.clone());
        for check in checks::of_capture(self) {
            report.check(check);
        }
        report.sections.push(self.overview());
        report.sections.extend(self.probable_legs());
        for (n, flow) in self.flows.iter().enumerate() {
            let name = flow_name(n, flow);
            for check in checks::of_flow(self, flow, &name) {
                report.check(check);
            }
            report.sections.push(figures::section(self, flow, name.clone(), n, &mut report.metrics));
            self.events(flow, &name, &mut report);
        }
        if self.ptp.messages > 0 {
            report.sections.push(figures::ptp(self));
        }
        report.events.sort_by(|a, b| a.at.total_cmp(&b.at));
        report.summary = self.summary();
        report.decisions = self.decisions();
        report.environment = vec![
            ("gdmedia".into(), env!("CARGO_PKG_VERSION").into()),
            ("capture".into(), self.name.clone()),
            ("records".into(), self.capture.records.to_string()),
            ("octets".into(), self.octets.to_string()),
            ("first record".into(), format!("{} s since 1970", self.span.0)),
            ("last record".into(), format!("{} s since 1970", self.span.1)),
        ];
        report
    }

    /// Seconds from the first record.
    pub(super) fn seconds(&self, at: Tai) -> f64 {
        at.since(self.span.0) as f64 / 1e9
    }

    fn summary(&self) -> String {
        let seen = self.flows.iter().filter(|f| f.legs.iter().any(|l| l.packets > 0)).count();
        let lost: u64 = self.flows.iter().map(|f| f.timing.window().lost()).sum();
        let seconds = self.seconds(self.span.1);
        let s = if seen == 1 { "" } else { "s" };
        let losses = if lost == 0 { "no packet lost".into() } else { format!("{lost} packets lost") };
        let stopped = match (self.stopped, &self.damaged) {
            (true, _) => "; ended before the end of the file",
            (false, Some(_)) => "; the file is damaged behind them",
            (false, None) => "",
        };
        match self.capture.records {
            0 => "the capture holds nothing".into(),
            records if seen == 0 => format!("no media flow in {records} records{stopped}"),
            records => format!("{seen} media flow{s} in {seconds:.3} s and {records} records, {losses}{stopped}"),
        }
    }

    fn overview(&self) -> Section {
        let columns = ["flow", "what", "packets", "lost", "seconds", "timing"].map(String::from).to_vec();
        let rows = self.flows.iter().enumerate().map(|(n, flow)| {
            let packets: u64 = flow.legs.iter().map(|l| l.packets).sum();
            let span = flow.legs.iter().filter(|l| l.packets > 0).map(|l| l.span.1.since(l.span.0)).max().unwrap_or(0);
            let verdict = match flow.timing.verdict(0) {
                Some(verdict) => verdict.class.map_or("not measurable", |c| c.text()),
                None => "",
            };
            vec![
                n.to_string(),
                what(flow),
                packets.to_string(),
                flow.timing.window().lost().to_string(),
                format!("{:.3}", span as f64 / 1e9),
                verdict.to_owned(),
            ]
        });
        let table = Table { title: String::new(), columns, rows: rows.collect() };
        let tables = if self.flows.is_empty() { Vec::new() } else { vec![table] };
        Section { title: "Flows".into(), tables, ..Section::default() }
    }

    /// Flows with the same packets, which an SDP would name as legs.
    fn probable_legs(&self) -> Option<Section> {
        if self.pairs.is_empty() {
            return None;
        }
        let columns = ["flow", "and flow", "compared", "in both", "skew least us", "skew mean us", "skew most us"];
        let rows = self.pairs.iter().map(|p| {
            let us = |ns: f64| number(ns / 1e3);
            let skew = p.skew;
            vec![
                p.flows.0.to_string(),
                p.flows.1.to_string(),
                p.compared.0.to_string(),
                p.compared.1.to_string(),
                us(skew.min as f64),
                us(skew.mean()),
                us(skew.max as f64),
            ]
        });
        Some(Section {
            title: "Probably legs of one flow (ST 2022-7)".into(),
            note: "Sampled packets have the same SSRC, payload type, sequence number and timestamp. Give the SDP to have the legs \
                   judged as one flow, and losses that one makes good for the other."
                .into(),
            tables: vec![Table {
                title: String::new(),
                columns: columns.map(String::from).to_vec(),
                rows: rows.collect(),
            }],
            ..Section::default()
        })
    }

    fn events(&self, flow: &Analysed, name: &str, report: &mut Report) {
        let (gaps, more) = flow.timing.window().gaps();
        for gap in gaps.iter().take(EVENTS) {
            let s = if gap.packets == 1 { "" } else { "s" };
            report.events.push(Event {
                at: self.seconds(gap.at),
                severity: Severity::Failure,
                group: name.to_owned(),
                text: format!("{} packet{s} lost, from sequence number {}", gap.packets, gap.first),
            });
        }
        report.events_left_out += more + gaps.len().saturating_sub(EVENTS) as u64;
    }

    fn decisions(&self) -> Vec<String> {
        let mut out = Vec::new();
        out.push(match self.options.source {
            Source::Hardware => "arrivals are taken as stamped on the wire, as was said".into(),
            Source::Software => {
                "arrivals are taken as stamped by software, as was said: bucket levels are not shown".into()
            }
            Source::Capture => {
                "the capture does not say who stamped the arrivals: they are judged by what can be seen of them"
                    .to_owned()
            }
        });
        match self.options.tai_offset {
            0 => {}
            n => out.push(format!("{n} s are added to the capture's times, as was said")),
        }
        if self.options.rules.method == Method::List {
            out.push("buckets are reckoned as EBU LIST does, not as ST 2110-21 has it".into());
        }
        if self.options.rules.tvd == Tvd::FirstPacket {
            out.push("TVD is reckoned from the first packet of the first frame, not from the epoch".into());
        }
        out.extend(
            self.options.rules.limits.differences().into_iter().map(|text| format!("limits: {text}, as was said")),
        );
        for (n, flow) in self.flows.iter().enumerate() {
            let Some(found) = flow.legs.first().and_then(|l| l.found.as_ref()) else { continue };
            if flow.described.is_none() {
                out.push(format!("flow {n} is taken as {}: {}", found.essence, found.why));
            }
        }
        out
    }
}

/// The heading of a flow, which its checks are grouped by.
fn flow_name(number: usize, flow: &Analysed) -> String {
    let to = match (flow.legs.iter().find_map(|l| l.ends), &flow.described) {
        (_, Some(described)) => {
            let legs: Vec<String> =
                described.legs.iter().map(|l| std::net::SocketAddr::new(l.destination, l.port).to_string()).collect();
            legs.join(" + ")
        }
        (Some(ends), None) => ends.to_string(),
        (None, None) => String::new(),
    };
    let name = match &flow.described {
        Some(described) if !described.name.is_empty() => format!(" \"{}\"", described.name),
        _ => String::new(),
    };
    format!("Flow {number}{name}: {to}, {}", what(flow))
}

/// What a flow carries.
pub(super) fn what(flow: &Analysed) -> String {
    match (&flow.described, flow.legs.first().and_then(|l| l.found.as_ref())) {
        (Some(described), _) => match &described.essence {
            sdp::Essence::Video(v) => {
                let rate = v.rate.map_or(String::new(), |r| format!(" {r}"));
                format!("ST 2110-20 video ({}x{} {}{rate}, {} {} bit)", v.width, v.height, v.scan, v.sampling, v.depth)
            }
            essence => essence.kind().to_owned(),
        },
        (None, Some(found)) => found.essence.to_string(),
        (None, None) => "unknown".into(),
    }
}
