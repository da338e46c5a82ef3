//! What the frames say.

use super::connection::{packets, seconds};
use super::{Found, Health, Inputs};
use crate::stats::{FrameCounters, Reason, Rejected};
use std::time::Duration;

/// Without a frame for so long, while packets come, the stream cannot be decoded; for longer where frames come seldom.
const PATIENCE: Duration = Duration::from_millis(500);

/// What was seen of the frames before.
#[derive(Debug, Default)]
pub(super) struct Stream {
    before: Counts,
    /// When the stream was healthy for the last time: messages count from there.
    base: Counts,
    /// When a frame came for the last time.
    moved: Duration,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    frames: FrameCounters,
    rejected: Rejected,
    restarts: u64,
    foreign: u64,
}

impl Stream {
    pub fn begin(&mut self, now: Duration) {
        self.moved = now;
    }

    /// `silence`: as of [`super::Settings`], some frames long. `silent`: no packets come. `good`: what is reported is healthy.
    pub fn judge(&mut self, now: Duration, inputs: &Inputs<'_>, silence: Duration, silent: bool, good: bool) -> Found {
        let counts = Counts {
            frames: inputs.frames,
            rejected: inputs.packets.rejected,
            restarts: inputs.packets.restarts,
            foreign: inputs.legs.iter().map(|leg| leg.foreign).sum(),
        };
        let decoded = |counts: &Counts| counts.frames.complete + counts.frames.incomplete;
        if decoded(&counts) > decoded(&self.before) {
            self.moved = now;
        }
        if good {
            self.base.clone_from(&self.before);
        }
        let waited = now.saturating_sub(self.moved);
        let found = if waited >= PATIENCE.max(silence) {
            let (before, since) = (&self.before.rejected, seconds(waited));
            let message = match counts.rejected.since(before).most() {
                _ if silent => format!("no frame for {since}: no packets"),
                Some((reason, _)) => format!("no frame for {since}: {}", unusable(reason)),
                None => format!("no frame for {since}, although packets come"),
            };
            (Health::Unhealthy, Some(message))
        } else {
            let parts = self.inconsistencies(&counts);
            match parts.is_empty() {
                true => (Health::Healthy, None),
                false => (Health::PartiallyHealthy, Some(parts.join("; "))),
            }
        };
        self.before = counts;
        found
    }

    /// What has come since the last call that is not as it should be, with figures since the stream was healthy.
    fn inconsistencies(&self, counts: &Counts) -> Vec<String> {
        let mut parts = Vec::new();
        let (now, before) = (&counts.frames, &self.before.frames);
        let since = |of: fn(&FrameCounters) -> u64| of(now).saturating_sub(of(&self.base.frames));
        if now.incomplete > before.incomplete {
            let (frames, octets, torn) = (since(|f| f.incomplete), since(|f| f.missing_octets), since(|f| f.torn));
            let torn = if torn > 0 { format!(", {torn} of them overwritten in the ring") } else { String::new() };
            parts.push(format!("{} incomplete, {octets} octets missing{torn}", frames_text(frames)));
        }
        if now.dropped > before.dropped {
            let (dropped, shed, memory) = (since(|f| f.dropped), since(|f| f.shed), since(|f| f.no_memory));
            parts.push(format!("{} dropped here ({shed} shed, {memory} without memory)", frames_text(dropped)));
        }
        if let Some((reason, _)) = counts.rejected.since(&self.before.rejected).most() {
            let all = counts.rejected.since(&self.base.rejected).get(reason);
            parts.push(format!("{} not used: {}", packets(all), unusable(reason)));
        }
        if counts.restarts > self.before.restarts {
            parts.push("the sender started anew".into());
        }
        if counts.foreign > self.before.foreign && counts.rejected.since(&self.before.rejected).get(Reason::Ssrc) == 0 {
            parts.push(format!("{} of a second sender", packets(counts.foreign.saturating_sub(self.base.foreign))));
        }
        parts
    }
}

fn frames_text(n: u64) -> String {
    if n == 1 { "1 frame".into() } else { format!("{n} frames") }
}

/// What a rejection says about the stream.
const fn unusable(reason: Reason) -> &'static str {
    match reason {
        Reason::Source => "from another source than the SDP's",
        Reason::Version => "no RTP version 2",
        Reason::PayloadType => "payload type does not match the SDP",
        Reason::Ssrc => "a second sender",
        Reason::Length => "shorter than their headers say",
        Reason::SrdHeader => "payload is not ST 2110-20",
        Reason::Row => "rows beyond the SDP's height",
        Reason::Offset | Reason::Segment => "samples beyond the SDP's width",
        Reason::Field => "second fields, and the SDP says progressive",
        Reason::Truncated => "cut short",
        Reason::Split => "headers beyond the part that the CPU sees",
    }
}
