//! What a run says about its health: status words, what happened to the flow, which stage is too slow.

use super::Args;
use super::sinks::Sinks;
use gdmedia::event::Event;
use gdmedia::health::{
    Change, Domain, Health, Inputs, LegState, Link, Load, Monitor, Settings, Synchronization, Verdict, Watchdog,
};
use gdmedia::rx::link::{self, CardDrops};
use gdmedia::sdp::Flow;
use gdmedia::stats::{LegCounters, Skew};
use gdmedia::worker::{Report, Worker};
use gdmedia::{pipeline, time};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

/// Between two looks at interfaces, and two verdicts of the watchdog.
const PERIOD: Duration = Duration::from_secs(1);

/// Follows a run. A capture has no health: its time is not ours.
pub struct Watch {
    begun: Instant,
    looked: Option<Instant>,
    monitor: Option<Monitor>,
    watchdog: Watchdog,
    /// Of the legs, each once.
    interfaces: Vec<String>,
    links: Vec<Link>,
    cards: Vec<CardDrops>,
}

/// Interfaces by which the legs come in, each once.
pub(super) fn interfaces(args: &Args, flow: &Flow) -> Vec<String> {
    let named = |n: usize| args.interface.get(n).or(args.interface.last()).map(String::as_str);
    let mut interfaces: Vec<String> = Vec::new();
    for name in flow.legs.iter().enumerate().filter_map(|(n, leg)| link::of_leg(leg, named(n))) {
        if args.live() && !interfaces.contains(&name) {
            interfaces.push(name);
        }
    }
    interfaces
}

/// One line of its own.
pub struct Said {
    /// What happened, for people; none of what JSON alone tells.
    text: Option<String>,
    /// The same as an object, without type and time.
    json: Value,
}

impl Watch {
    /// Of a run that is about to begin.
    pub fn new(args: &Args, flow: &Flow) -> Self {
        let live = args.live();
        let frame = pipeline::frame_time(flow);
        let settings = Settings::default();
        let silence = settings.silence.max(3 * frame.unwrap_or_default());
        let mut monitor = Monitor::new(Settings { silence, ..settings });
        monitor.activate(Duration::ZERO);
        monitor.take_changes();
        Watch {
            begun: Instant::now(),
            looked: None,
            monitor: live.then_some(monitor),
            watchdog: Watchdog::new(frame),
            interfaces: interfaces(args, flow),
            links: Vec::new(),
            cards: Vec::new(),
        }
    }

    /// What there is to say since the last look.
    pub fn look(
        &mut self,
        worker: &Worker,
        report: &Report,
        sinks: &Sinks,
        synchronization: &Synchronization,
    ) -> Vec<Said> {
        let mut said: Vec<Said> = report.events.iter().map(happened).collect();
        let Some(monitor) = &mut self.monitor else { return said };
        let now = self.begun.elapsed();
        let due = self.looked.is_none_or(|looked| looked.elapsed() >= PERIOD);
        if due {
            self.looked = Some(Instant::now());
            self.links = link::read(&self.interfaces);
        }
        monitor.update(
            now,
            &Inputs {
                links: &self.links,
                rx: report.rx,
                packets: report.packets,
                legs: &report.legs,
                frames: report.frames,
                synchronization,
            },
        );
        said.extend(monitor.take_changes().iter().map(changed));
        if due {
            self.cards = link::drops(&self.interfaces);
            let scheduled = worker.scheduled();
            let load = Load {
                rx: report.rx,
                frames: report.frames,
                kernel: Duration::from_nanos(report.busy.kernel_ns),
                cpu: scheduled.map(|s| s.cpu),
                waited: scheduled.map(|s| s.waited),
                card_dropped: self.cards.iter().map(|card| card.packets).reduce(u64::saturating_add),
                sinks: sinks.loads(),
            };
            said.extend(self.watchdog.update(now, load).map(too_slow));
        }
        said
    }

    /// For the status line: nothing where all is well, else the legs that are silent, or the overall word.
    pub fn short(&self) -> Option<String> {
        let status = self.monitor.as_ref()?.status();
        let silent = status.legs.iter().enumerate().filter(|(_, state)| **state == LegState::Silent);
        let legs: Vec<String> = silent.map(|(n, _)| format!("leg {n} silent")).collect();
        match (legs.is_empty() || legs.len() == status.legs.len(), status.overall.health > Health::Healthy) {
            (false, _) => Some(format!("[{}]", legs.join(", "))),
            (true, true) => Some(format!("[{}]", status.overall.word)),
            (true, false) => None,
        }
    }

    /// In the words of BCP-008-01; none of a capture.
    #[cfg(feature = "daemon")]
    pub fn status(&self) -> Option<gdmedia::health::Status> {
        self.monitor.as_ref().map(|monitor| monitor.status().clone())
    }
    /// What the cards of its interfaces dropped.
    #[cfg(feature = "daemon")]
    pub fn cards(&self) -> &[CardDrops] {
        &self.cards
    }
    /// For the status object and the summary.
    pub fn json(&self) -> Value {
        json!(self.monitor.as_ref().map(Monitor::status))
    }
    /// Which stages are too slow.
    pub fn too_slow(&self) -> Value {
        json!(self.watchdog.verdict())
    }

    /// Each leg as an object.
    pub fn legs(&self, legs: &[LegCounters]) -> Value {
        let status = self.monitor.as_ref().map(Monitor::status);
        let one = |(n, leg): (usize, &LegCounters)| {
            let mut value = json!(leg);
            if let Some(object) = value.as_object_mut() {
                object.insert("leg".into(), n.into());
                object.insert("state".into(), json!(status.and_then(|status| status.legs.get(n))));
            }
            value
        };
        legs.iter().enumerate().map(one).collect()
    }

    /// For the summary of people: of a flow with one leg its packets say it all.
    pub fn texts(&self, legs: &[LegCounters]) -> Vec<(String, String)> {
        if legs.len() < 2 {
            return Vec::new();
        }
        let mut lines: Vec<_> = legs.iter().enumerate().map(|(n, leg)| (format!("leg {n}"), leg_text(leg))).collect();
        if let Some(status) = self.monitor.as_ref().map(Monitor::status).filter(|s| s.overall.transitions > 0) {
            let times = |domain: Domain| match status.of(domain).transitions {
                0 => None,
                1 => Some(format!("{} once", domain.name())),
                n => Some(format!("{} {n} times", domain.name())),
            };
            let each: Vec<String> = Domain::PARTS.into_iter().filter_map(times).collect();
            lines.push(("health".into(), format!("became less healthy: {}", each.join(", "))));
        }
        lines
    }
}

fn leg_text(leg: &LegCounters) -> String {
    let LegCounters { received, lost, late, used, redundant, duplicate, reordered, .. } = leg;
    let mut text = format!("received {received}, lost {lost}, late {late}, used {used}, redundant {redundant}");
    for (what, n) in [("duplicate", *duplicate), ("reordered", *reordered), ("of a second sender", leg.foreign)] {
        if n > 0 {
            let _ = write!(text, ", {what} {n}");
        }
    }
    let Skew { samples, last_ns, min_ns, max_ns } = leg.skew;
    if samples > 0 {
        let ms = |ns: i64| ns as f64 / 1e6;
        let (last, min, max) = (ms(last_ns), ms(min_ns), ms(max_ns));
        let _ = write!(text, "; behind the first by {last:.3} ms at last, {min:.3} to {max:.3}");
    }
    text
}

fn happened(event: &Event) -> Said {
    let mut json = json!(event);
    if let Some(object) = json.as_object_mut() {
        object.insert("message".into(), event.what.to_string().into());
    }
    Said { text: Some(event.what.to_string()), json }
}

fn changed(change: &Change) -> Said {
    let Change { domain, from, to, message } = change;
    let text = match message.as_deref().map(|why| why.strip_prefix("Previously: ").ok_or(why)) {
        Some(Ok(before)) => format!("{} {to}, it was {from}: {before}", domain.name()),
        Some(Err(why)) => format!("{} {to}: {why}", domain.name()),
        None => format!("{} {to}, it was {from}", domain.name()),
    };
    let mut json = json!(change);
    if let Some(object) = json.as_object_mut() {
        object.insert("event".into(), "status".into());
    }
    // What makes the overall status is said by itself.
    Said { text: (*domain != Domain::Overall).then_some(text), json }
}

fn too_slow(verdict: &Verdict) -> Said {
    let event = if verdict.0.is_empty() { "fast_enough" } else { "too_slow" };
    let text = verdict.to_string();
    let json = json!({ "event": event, "stages": verdict, "message": text });
    Said { text: Some(text), json }
}

impl Said {
    /// Something about the recording.
    pub fn recording(text: &str) -> Self {
        Said { text: Some(text.to_owned()), json: json!({ "event": "recording", "message": text }) }
    }
    /// What is told about the sender or a receiver.
    pub fn remark(text: &str) -> Self {
        Said { text: Some(text.to_owned()), json: json!({ "event": "remark", "message": text }) }
    }
    /// What is told about a sink.
    pub fn sink(text: &str) -> Self {
        Said { text: Some(text.to_owned()), json: json!({ "event": "sink", "message": text }) }
    }
    /// What is told about the clocks.
    pub fn time(text: &str) -> Self {
        Said { text: Some(text.to_owned()), json: json!({ "event": "time", "message": text }) }
    }
    /// It is about a sink.
    #[cfg(feature = "daemon")]
    pub fn is_of_sink(&self) -> bool {
        matches!(self.json.get("event").and_then(Value::as_str), Some("sink" | "recording"))
    }
    /// What happened, for people.
    pub fn what(&self) -> Option<&str> {
        self.text.as_deref()
    }
    /// As a line of text with the time of day; none of what JSON alone tells.
    pub fn text(&self) -> Option<String> {
        let time = time::utc(SystemTime::now());
        Some(format!("{} {}", time.get(11..23)?, self.text.as_ref()?))
    }
    /// As an object with type and time.
    pub fn into_json(self) -> Value {
        let mut json = self.json;
        if let Some(object) = json.as_object_mut() {
            object.insert("type".into(), "event".into());
            object.insert("time".into(), time::utc(SystemTime::now()).into());
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdmedia::event::What;
    use gdmedia::health::{Slow, Stage};
    use gdmedia::time::Tai;

    #[test]
    fn a_change_of_a_status_says_why_or_what_was() {
        let change = |domain, to, message: Option<&str>| {
            changed(&Change { domain, from: "Healthy", to, message: message.map(str::to_owned) })
        };
        let said = change(Domain::Connection, "Unhealthy", Some("9 packets lost"));
        assert_eq!(said.text.as_deref(), Some("connection Unhealthy: 9 packets lost"));
        let wanted = json!({ "event": "status", "domain": "connection", "from": "Healthy", "to": "Unhealthy", "message": "9 packets lost" });
        assert_eq!(said.json, wanted);
        let said = change(Domain::Stream, "Healthy", Some("Previously: 3 frames incomplete"));
        assert_eq!(said.text.as_deref(), Some("stream Healthy, it was Healthy: 3 frames incomplete"));
        assert_eq!(change(Domain::Link, "AllUp", None).text.as_deref(), Some("link AllUp, it was Healthy"));
        assert_eq!(change(Domain::Overall, "Unhealthy", Some("9 packets lost")).text, None, "said by its part");
    }

    #[test]
    fn events_have_a_time_a_name_and_a_message() {
        let said = happened(&Event { at: Tai(7), what: What::LegSilent { leg: 1 } });
        let text = said.text().unwrap();
        assert!(text.ends_with(" leg 1 fell silent") && text.len() == "03:22:20.123 leg 1 fell silent".len(), "{text}");
        let json = said.into_json();
        assert_eq!((&json["type"], &json["event"], &json["at"]), (&json!("event"), &json!("leg_silent"), &json!(7)));
        assert_eq!((&json["leg"], &json["message"]), (&json!(1), &json!("leg 1 fell silent")));
        assert_eq!(json["time"].as_str().map(str::len), Some("2026-11-30T03:22:20.123Z".len()));
        let slow = Slow { stage: Stage::Sink("window".into()), message: "41 ms a frame".into() };
        let json = too_slow(&Verdict(vec![slow])).into_json();
        assert_eq!((&json["event"], &json["stages"][0]["sink"]), (&json!("too_slow"), &json!("window")));
        assert_eq!(json["message"], "too slow: sink window: 41 ms a frame");
        assert_eq!(too_slow(&Verdict::default()).json["event"], "fast_enough");
    }

    #[test]
    fn a_leg_in_one_line() {
        let mut leg = LegCounters { received: 10, lost: 2, late: 1, used: 7, redundant: 3, ..LegCounters::default() };
        assert_eq!(leg_text(&leg), "received 10, lost 2, late 1, used 7, redundant 3");
        (leg.duplicate, leg.foreign) = (4, 5);
        [1_000_000, -250_000].into_iter().for_each(|ns| leg.skew.add(ns));
        let wanted = "received 10, lost 2, late 1, used 7, redundant 3, duplicate 4, of a second sender 5; \
                      behind the first by -0.250 ms at last, -0.250 to 1.000";
        assert_eq!(leg_text(&leg), wanted);
    }
}
