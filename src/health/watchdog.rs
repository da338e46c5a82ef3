//! Which stage is too slow.

use crate::stats::{FrameCounters, RxCounters};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A share of its time that a thread or a stage of it may take before it is called full.
const FULL: f64 = 0.9;
/// Of a thread that is full: the share of the time above which it is the kernel that fills it.
const MOST: f64 = 0.6;
/// A share of the time that a thread may wait for a core.
const WAITING: f64 = 0.1;
/// Verdicts without a slow stage before it is said that there is none any more.
const CALM: u32 = 3;

/// A stage between the network and the sinks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "stage", content = "sink", rename_all = "snake_case")]
pub enum Stage {
    /// The network card, or the way from it into the machine's memory.
    NetworkCard,
    /// The socket's buffer: too small for the bursts, since the thread behind it is not busy.
    SocketBuffer,
    /// The receiving thread is not given its core.
    Core,
    /// The receiving thread fills its core, mostly with reading and deciding.
    ReceiveThread,
    /// The kernel that converts: the receiving thread fills its core with it, or a GPU gives the ring back too late.
    Kernel,
    /// The ring is overwritten before it is read.
    Ring,
    /// No frame memory is free: sinks hold it.
    FrameMemory,
    /// A sink, by its name.
    Sink(String),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::NetworkCard => "network card",
            Stage::SocketBuffer => "socket buffer",
            Stage::Core => "receive thread has no core",
            Stage::ReceiveThread => "receive thread",
            Stage::Kernel => "conversion",
            Stage::Ring => "ring",
            Stage::FrameMemory => "frame memory",
            Stage::Sink(name) => return write!(f, "sink {name}"),
        })
    }
}

/// A stage that is too slow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slow {
    /// Which.
    #[serde(flatten)]
    pub stage: Stage,
    /// By how much, and what it costs.
    pub message: String,
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.message)
    }
}

/// Which stages are too slow, the first cause first; none when all are fast enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict(pub Vec<Slow>);

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("fast enough again");
        }
        f.write_str("too slow: ")?;
        for (n, slow) in self.0.iter().enumerate() {
            write!(f, "{}{slow}", if n > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

/// What a sink has done since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkLoad {
    /// For people.
    pub name: String,
    /// Frames that it took.
    pub taken: u64,
    /// Frames that it was not given because its queue was full.
    pub dropped: u64,
    /// Time that it was at work with frames.
    pub busy: Duration,
}

/// What a receiver has done since it began: counters and times that only grow.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Of the receiver.
    pub rx: RxCounters,
    /// Of the frames.
    pub frames: FrameCounters,
    /// Time in the kernel.
    pub kernel: Duration,
    /// CPU time of the receiving thread, where it is known.
    pub cpu: Option<Duration>,
    /// Time for which the receiving thread waited for a core, where it is known.
    pub waited: Option<Duration>,
    /// Packets that network cards dropped, where they say so.
    pub card_dropped: Option<u64>,
    /// Of each sink.
    pub sinks: Vec<SinkLoad>,
}

/// Compares what a receiver has done from one second to the next.
#[derive(Debug)]
pub struct Watchdog {
    /// Time for a frame, where the rate is known.
    frame: Option<Duration>,
    before: Option<(Duration, Load)>,
    verdict: Verdict,
    calm: u32,
}

impl Watchdog {
    /// `frame` is the time from one frame to the next, where the SDP says so.
    pub const fn new(frame: Option<Duration>) -> Self {
        Watchdog { frame, before: None, verdict: Verdict(Vec::new()), calm: 0 }
    }

    /// As of the last call of [`Watchdog::update`].
    pub const fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// To be called once a second. Gives a verdict when other stages are too slow than before.
    pub fn update(&mut self, now: Duration, load: Load) -> Option<&Verdict> {
        let (then, before) = self.before.replace((now, load))?;
        let load = &self.before.as_ref()?.1;
        let period = now.saturating_sub(then);
        if period.is_zero() {
            return None;
        }
        let slow = Verdict(Interval { frame: self.frame, period, before: &before, load }.slow());
        if slow.0.is_empty() {
            self.calm += 1;
            // A stage that is too slow only now and then is said once.
            if self.verdict.0.is_empty() || self.calm < CALM {
                return None;
            }
            self.verdict = slow;
            return Some(&self.verdict);
        }
        self.calm = 0;
        let stages = |verdict: &Verdict| verdict.0.iter().map(|slow| slow.stage.clone()).collect::<Vec<_>>();
        let other = stages(&slow).iter().any(|stage| !stages(&self.verdict).contains(stage));
        if !other {
            // The same with newer figures; one that is over for a moment stays.
            for new in slow.0 {
                if let Some(old) = self.verdict.0.iter_mut().find(|old| old.stage == new.stage) {
                    *old = new;
                }
            }
            return None;
        }
        self.verdict = slow;
        Some(&self.verdict)
    }
}

/// From one call to the next.
struct Interval<'a> {
    frame: Option<Duration>,
    period: Duration,
    before: &'a Load,
    load: &'a Load,
}

impl Interval<'_> {
    fn since(&self, of: impl Fn(&Load) -> u64) -> u64 {
        of(self.load).saturating_sub(of(self.before))
    }
    /// The share of the period that a time has grown by.
    fn share(&self, of: impl Fn(&Load) -> Option<Duration>) -> Option<f64> {
        let (now, before) = (of(self.load)?, of(self.before)?);
        Some(now.saturating_sub(before).as_secs_f64() / self.period.as_secs_f64())
    }
    fn frames(&self) -> u64 {
        self.since(|l| l.frames.complete + l.frames.incomplete)
    }
    /// `41.0 ms a frame, 16.7 ms available`.
    fn a_frame(&self, time: Duration, frames: u64) -> String {
        let available = self.frame.map_or_else(String::new, |frame| format!(", {} available", milliseconds(frame)));
        let each = time.checked_div(u32::try_from(frames).unwrap_or(u32::MAX));
        each.map_or_else(|| "no frame is finished".into(), |each| format!("{} a frame{available}", milliseconds(each)))
    }

    fn slow(&self) -> Vec<Slow> {
        let mut slow = Vec::new();
        slow.extend(self.card());
        slow.extend(self.receiving());
        slow.extend(self.memory());
        slow.extend(self.sinks());
        slow
    }

    fn card(&self) -> Option<Slow> {
        let dropped = self.since(|l| l.card_dropped.unwrap_or(0));
        let both = self.load.card_dropped.is_some() && self.before.card_dropped.is_some();
        (both && dropped > 0).then(|| Slow {
            stage: Stage::NetworkCard,
            message: format!("{dropped} packets dropped before they reached this machine's memory"),
        })
    }

    fn memory(&self) -> Option<Slow> {
        let none = self.since(|l| l.frames.no_memory);
        (none > 0).then(|| Slow {
            stage: Stage::FrameMemory,
            message: format!("none was free for {none} of {} frames, sinks hold it", self.frames()),
        })
    }

    fn sinks(&self) -> Vec<Slow> {
        let mut slow = Vec::new();
        for (n, sink) in self.load.sinks.iter().enumerate() {
            let nothing = SinkLoad::default();
            let before = self.before.sinks.get(n).filter(|before| before.name == sink.name).unwrap_or(&nothing);
            let dropped = sink.dropped.saturating_sub(before.dropped);
            if dropped > 0 {
                let taken = sink.taken.saturating_sub(before.taken);
                let time = self.a_frame(sink.busy.saturating_sub(before.busy), taken);
                slow.push(Slow {
                    stage: Stage::Sink(sink.name.clone()),
                    message: format!("{time}; {dropped} of {} frames dropped there", taken + dropped),
                });
            }
        }
        slow
    }

    /// What costs packets or frames on the way to the frame.
    fn receiving(&self) -> Option<Slow> {
        let shed = self.since(|l| l.frames.shed);
        let kernel_dropped = self.since(|l| l.rx.kernel_dropped);
        let overwritten = self.since(|l| l.rx.overwritten);
        let costs: Vec<String> = [
            (shed, format!("{shed} of {} frames shed", self.frames())),
            (kernel_dropped, format!("{kernel_dropped} datagrams dropped by the socket buffer")),
            (overwritten, format!("{overwritten} packets overwritten before they were read")),
        ]
        .into_iter()
        .filter_map(|(n, text)| (n > 0).then_some(text))
        .collect();
        if costs.is_empty() {
            return None;
        }
        let cpu = self.share(|l| l.cpu);
        let waited = self.share(|l| l.waited).unwrap_or(0.0);
        let kernel = self.share(|l| Some(l.kernel)).unwrap_or(0.0);
        let percent = |share: f64| format!("{:.0} % of a core", share * 100.0);
        let (stage, why) = if waited >= WAITING && waited >= kernel {
            (Stage::Core, format!("it waited {:.0} % of the time for one", waited * 100.0))
        } else if kernel >= MOST {
            let filled = self.frames().saturating_sub(shed);
            let time = self.load.kernel.saturating_sub(self.before.kernel);
            (Stage::Kernel, self.a_frame(time, filled))
        } else if cpu.is_some_and(|cpu| cpu >= FULL) {
            (Stage::ReceiveThread, percent(cpu.unwrap_or(1.0)))
        } else if self.since(|l| l.rx.starved) > 0 {
            (Stage::Kernel, "it gives the ring back too late".into())
        } else if overwritten > 0 {
            (Stage::Ring, "it comes round before it is read".into())
        } else {
            let thread = cpu.map_or_else(String::new, |cpu| format!(", the receive thread takes {}", percent(cpu)));
            (Stage::SocketBuffer, format!("too small for what comes at once{thread}"))
        };
        Some(Slow { stage, message: format!("{why}; {}", costs.join(", ")) })
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);
    const FRAME: Option<Duration> = Some(Duration::from_micros(16_683));

    /// A second of 60 frames, of which the thread was busy a little.
    fn load(seconds: u64) -> Load {
        Load {
            frames: FrameCounters { complete: 60 * seconds, ..FrameCounters::default() },
            kernel: Duration::from_millis(100 * seconds),
            cpu: Some(Duration::from_millis(200 * seconds)),
            waited: Some(Duration::ZERO),
            card_dropped: Some(0),
            sinks: vec![SinkLoad {
                name: "gst".into(),
                taken: 60 * seconds,
                dropped: 0,
                busy: Duration::from_millis(300 * seconds),
            }],
            ..Load::default()
        }
    }
    /// What is said of the second in which `change` happened.
    fn said(change: impl FnOnce(&mut Load)) -> String {
        let mut dog = Watchdog::new(FRAME);
        assert_eq!(dog.update(S, load(1)), None);
        let mut second = load(2);
        change(&mut second);
        dog.update(2 * S, second).map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn nothing_is_said_of_what_is_fast_enough() {
        assert_eq!(said(|_| {}), "");
        // Busy, and nothing was dropped.
        assert_eq!(said(|l| l.cpu = Some(Duration::from_millis(1190))), "");
    }

    #[test]
    fn each_stage_by_what_it_costs() {
        let sink = |l: &mut Load| {
            l.sinks[0] =
                SinkLoad { name: "gst".into(), taken: 96, dropped: 24, busy: Duration::from_millis(300 + 1476) };
        };
        assert_eq!(said(sink), "too slow: sink gst: 41.0 ms a frame, 16.7 ms available; 24 of 60 frames dropped there");
        let kernel = |l: &mut Load| {
            l.frames.shed = 20;
            l.kernel += Duration::from_millis(860);
            l.cpu = Some(Duration::from_millis(1190));
        };
        assert_eq!(said(kernel), "too slow: conversion: 24.0 ms a frame, 16.7 ms available; 20 of 60 frames shed");
        let thread = |l: &mut Load| {
            l.rx.kernel_dropped = 300;
            l.cpu = Some(Duration::from_millis(1190));
        };
        assert_eq!(
            said(thread),
            "too slow: receive thread: 99 % of a core; 300 datagrams dropped by the socket buffer"
        );
        let core = |l: &mut Load| {
            l.rx.kernel_dropped = 300;
            l.waited = Some(Duration::from_millis(430));
        };
        assert_eq!(
            said(core),
            "too slow: receive thread has no core: it waited 43 % of the time for one; 300 datagrams dropped by the socket buffer"
        );
        assert_eq!(
            said(|l| l.rx.kernel_dropped = 300),
            "too slow: socket buffer: too small for what comes at once, the receive thread takes 20 % of a core; \
             300 datagrams dropped by the socket buffer"
        );
        assert_eq!(
            said(|l| l.rx.overwritten = 7),
            "too slow: ring: it comes round before it is read; 7 packets overwritten before they were read"
        );
        assert_eq!(
            said(|l| l.frames.no_memory = 9),
            "too slow: frame memory: none was free for 9 of 60 frames, sinks hold it"
        );
        assert_eq!(
            said(|l| l.card_dropped = Some(5)),
            "too slow: network card: 5 packets dropped before they reached this machine's memory"
        );
        assert_eq!(
            said(|l| (l.rx.starved, l.frames.shed) = (9, 3)),
            "too slow: conversion: it gives the ring back too late; 3 of 60 frames shed"
        );
    }

    #[test]
    fn it_is_said_when_it_changes_and_when_it_has_been_over_for_a_while() {
        let mut dog = Watchdog::new(FRAME);
        let (mut lines, mut dropped) = (Vec::new(), 0);
        for second in 1..=12u64 {
            if (3..=5).contains(&second) || second == 7 {
                dropped += 10;
            }
            let mut load = load(second);
            load.sinks[0].dropped = dropped;
            load.frames.no_memory = u64::from(second >= 5);
            lines.extend(dog.update(S * second as u32, load).map(|v| (second, v.0.len())));
        }
        assert_eq!(lines, [(3, 1), (5, 2), (10, 0)]);
    }

    #[test]
    fn a_sink_that_stands_still_is_named() {
        let stuck = |l: &mut Load| {
            l.sinks[0] = SinkLoad { name: "file".into(), taken: 0, dropped: 60, busy: Duration::ZERO };
        };
        assert_eq!(said(stuck), "too slow: sink file: no frame is finished; 60 of 60 frames dropped there");
    }

    #[test]
    fn as_json() {
        let slow = Slow { stage: Stage::Sink("gst".into()), message: "41 ms".into() };
        let wanted = serde_json::json!([{ "stage": "sink", "sink": "gst", "message": "41 ms" }]);
        assert_eq!(serde_json::to_value(Verdict(vec![slow])).unwrap(), wanted);
        let slow = Slow { stage: Stage::SocketBuffer, message: String::new() };
        assert_eq!(serde_json::to_value(slow).unwrap(), serde_json::json!({ "stage": "socket_buffer", "message": "" }));
    }
}
