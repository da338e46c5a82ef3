//! What happened to a flow, for people and logs: rare, and each with the time at which it was seen.

use crate::time::Tai;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When, on the clock of the arrivals.
    pub at: Tai,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// The first packet of the flow by a leg.
    LegBegan {
        /// Counted from 0.
        leg: u8,
        /// Its synchronisation source.
        ssrc: u32,
    },
    /// Nothing of the flow has come by a leg for longer than the window: what the others lose is lost.
    LegSilent {
        /// Counted from 0.
        leg: u8,
    },
    /// A leg brings packets again.
    LegBack {
        /// Counted from 0.
        leg: u8,
        /// For how long it brought none, in nanoseconds.
        silent_ns: i64,
    },
    /// A leg cannot be received any more: its interface has gone. It is tried again; the others are received.
    InterfaceGone {
        /// Counted from 0.
        leg: u8,
    },
    /// A leg whose interface had gone is received again.
    InterfaceBack {
        /// Counted from 0.
        leg: u8,
    },
    /// A receiver failed, with all legs that it had; the others go on.
    ReceiverFailed {
        /// Counted from 0.
        receiver: u8,
    },
    /// A leg lies further behind than the window reaches: what only it brings comes too late.
    SkewBeyondWindow {
        /// Counted from 0.
        leg: u8,
        /// In nanoseconds.
        skew_ns: i64,
        /// In nanoseconds.
        window_ns: i64,
    },
    /// The sender started anew: another SSRC, sequence number, or both.
    Restarted {
        /// The leg that showed it first, counted from 0.
        leg: u8,
        /// Synchronisation source until then.
        from: u32,
        /// Synchronisation source since then.
        to: u32,
    },
    /// Another sender took the place of one that fell silent.
    Switched {
        /// The leg that showed it first, counted from 0.
        leg: u8,
        /// Synchronisation source until then.
        from: u32,
        /// Synchronisation source since then.
        to: u32,
    },
    /// A second sender on a leg; its packets are counted and not used.
    SecondSender {
        /// Counted from 0.
        leg: u8,
        /// Its synchronisation source.
        ssrc: u32,
    },
    /// The sender's timestamps jumped, while its sequence went on.
    TimestampJump {
        /// How far from where they were expected, in ticks of the RTP clock.
        ticks: i64,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: i64| ns as f64 / 1e6;
        match *self {
            What::LegBegan { leg, ssrc } => write!(f, "leg {leg} began, SSRC {ssrc:08x}"),
            What::LegSilent { leg } => write!(f, "leg {leg} fell silent"),
            What::LegBack { leg, silent_ns } => write!(f, "leg {leg} is back after {:.1} ms", ms(silent_ns)),
            What::InterfaceGone { leg } => write!(f, "the interface of leg {leg} has gone"),
            What::InterfaceBack { leg } => write!(f, "the interface of leg {leg} is back, its group was joined anew"),
            What::ReceiverFailed { receiver } => write!(f, "receiver {receiver} failed"),
            What::SkewBeyondWindow { leg, skew_ns, window_ns } => {
                let (skew, window) = (ms(skew_ns), ms(window_ns));
                write!(f, "leg {leg} lies {skew:.1} ms behind, beyond the window of {window:.1} ms")
            }
            What::Restarted { leg, from, to } if from == to => {
                write!(f, "the sender started anew, SSRC {from:08x} (leg {leg})")
            }
            What::Restarted { leg, from, to } => {
                write!(f, "the sender started anew, SSRC {to:08x} after {from:08x} (leg {leg})")
            }
            What::Switched { leg, from, to } => {
                write!(f, "another sender took over, SSRC {to:08x} after {from:08x} (leg {leg})")
            }
            What::SecondSender { leg, ssrc } => {
                write!(f, "a second sender on leg {leg}, SSRC {ssrc:08x}; its packets are not used")
            }
            What::TimestampJump { ticks } => write!(f, "the sender's timestamps jumped by {ticks} ticks"),
        }
    }
}

/// Events that wait to be taken.
const WAITING: usize = 64;
/// Events of one second at most: a sender that flaps says no more with a thousand.
const A_SECOND: u32 = 8;

/// Events until they are taken. Never grows: what is too much is counted.
#[derive(Debug)]
pub struct Queue {
    waiting: VecDeque<Event>,
    missed: u64,
    /// When the second that is counted began, and how many it has had.
    second: Tai,
    count: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Queue { waiting: VecDeque::with_capacity(WAITING), missed: 0, second: Tai(0), count: 0 }
    }
}

impl Queue {
    /// Something happened. Does not allocate.
    pub fn push(&mut self, at: Tai, what: What) {
        if !(0..1_000_000_000).contains(&at.since(self.second)) {
            (self.second, self.count) = (at, 0);
        }
        self.count += 1;
        if self.count > A_SECOND {
            self.missed += 1;
            return;
        }
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
            self.missed += 1;
        }
        self.waiting.push_back(Event { at, what });
    }
    /// Appends them to `out`.
    pub fn take(&mut self, out: &mut Vec<Event>) {
        out.extend(self.waiting.drain(..));
    }
    /// How many were not kept.
    pub const fn missed(&self) -> u64 {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_text_and_as_json() {
        let event = Event { at: Tai(5), what: What::Restarted { leg: 1, from: 0xab, to: 0xcd } };
        assert_eq!(event.what.to_string(), "the sender started anew, SSRC 000000cd after 000000ab (leg 1)");
        let json = serde_json::to_value(event).unwrap();
        assert_eq!(json, serde_json::json!({"at": 5, "event": "restarted", "leg": 1, "from": 0xab, "to": 0xcd}));
    }

    #[test]
    fn a_queue_keeps_few_events_a_second_and_the_newest() {
        let mut queue = Queue::default();
        let mut out = vec![];
        let event = |n: u64| What::TimestampJump { ticks: n as i64 };
        for n in 0..100 {
            queue.push(Tai(n), event(n));
        }
        queue.take(&mut out);
        assert_eq!((out.len(), queue.missed()), (8, 92));
        out.clear();
        for n in 0..100 {
            queue.push(Tai(n * 1_000_000_000), event(n));
        }
        queue.take(&mut out);
        assert_eq!((out.len(), queue.missed()), (64, 92 + 36));
        assert_eq!((out[0].what, out[63].what), (event(36), event(99)));
    }
}
