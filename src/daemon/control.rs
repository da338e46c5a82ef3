//! What a daemon shows of itself, and what it can be told.

use crate::encode::Codec;
use crate::format::Output;
use crate::health;
use crate::pipeline::meter::LegTiming;
use crate::preview::Source;
use crate::ptp;
use crate::rx::link::CardDrops;
use crate::worker::{Placement, Report};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{broadcast, oneshot};

/// A running daemon, as its API, its metrics and its NMOS node see it. No call waits for a receiver: what takes time is
/// answered by a [`Reply`].
pub trait Control: Send + Sync + 'static {
    /// The daemon itself.
    fn overview(&self) -> Overview;
    /// All receivers as they are, in the order of their ids.
    fn receivers(&self) -> Vec<Arc<Receiver>>;
    /// One of them.
    fn receiver(&self, id: &str) -> Option<Arc<Receiver>> {
        self.receivers().into_iter().find(|receiver| receiver.id == id)
    }
    /// Tells a receiver what to do.
    fn act(&self, id: &str, action: Action) -> Reply<()>;
    /// Reads the configuration again. Receivers that are the same in it lose no packet; a configuration that is wrong changes
    /// nothing.
    fn reload(&self) -> Reply<Reloaded>;
    /// Something happened to what shows and steers the daemon, such as its API: told as an event.
    fn note(&self, message: String);
    /// What happens from now on. A reader that is too slow misses the oldest.
    fn events(&self) -> broadcast::Receiver<Arc<Event>>;
    /// The last events, oldest first, as many as are kept.
    fn history(&self) -> Vec<Arc<Event>>;
}

/// What is answered later, when it is done; an error when the daemon ends meanwhile.
pub type Reply<T> = oneshot::Receiver<Result<T, Refusal>>;

/// One that is answered already.
pub fn reply<T>(answer: Result<T, Refusal>) -> Reply<T> {
    let (to, from) = oneshot::channel();
    // The receiver is in hand.
    let _ = to.send(answer);
    from
}

/// The daemon itself.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// Its version.
    pub version: &'static str,
    /// When it started, RFC 3339.
    #[serde(serialize_with = "rfc3339")]
    pub started: SystemTime,
    /// It is ready: the configuration is in force, and each receiver has been begun once.
    pub ready: bool,
    /// The receive loops move; false when one stands still, which the service manager's watchdog hears of.
    pub alive: bool,
    /// Configurations that were taken since the start, the first one included.
    pub generation: u64,
    /// Why the last configuration was not taken; none when it was.
    pub refused: Option<String>,
}

/// A receiver as it is. `status` is what `gdmedia play --json` says every interval.
#[derive(Clone, Debug, Serialize)]
pub struct Receiver {
    /// Of the configuration: letters, digits, `-` and `_`.
    pub id: String,
    /// For people.
    pub label: String,
    /// What it does.
    pub state: State,
    /// Why: of [`State::Waiting`], [`State::Retrying`] and [`State::Failed`], with the cure. In every state while what it had is
    /// being closed: that, which takes as long as its driver and its files do.
    pub reason: Option<String>,
    /// In this state since then, RFC 3339.
    #[serde(serialize_with = "rfc3339")]
    pub since: SystemTime,
    /// Its SDP; none where it has no flow yet.
    #[serde(skip)]
    pub sdp: Option<Arc<str>>,
    /// What the SDP says, as in the preview's status: `name`, `format`, `legs`, `width`, ...
    pub flow: Option<serde_json::Value>,
    /// Who receives, for example `socket`, or `xdp, socket` of two legs.
    pub backend: Option<String>,
    /// Where frames are made: the GPU's name, or `cpu`.
    pub processor: Option<String>,
    /// Where its receiving thread is, and why; none while it is stopped.
    pub placement: Option<Placement>,
    /// Times that it was begun again after a failure.
    pub restarts: u64,
    /// Times that it was switched to another SDP.
    pub switches: u64,
    /// The status object of its last interval; none before.
    pub status: Option<serde_json::Value>,
    /// Its health in the words of BCP-008-01; none while it is stopped.
    #[serde(skip)]
    pub health: Option<health::Status>,
    /// Its counters, since it was begun or switched; none while it is stopped.
    #[serde(skip)]
    pub report: Option<Arc<Report>>,
    /// How long frames take, hop by hop, since it was begun.
    #[serde(skip)]
    pub latency: Vec<Hop>,
    /// The sender's timing, leg by leg; empty where it is not measured.
    #[serde(skip)]
    pub timing: Vec<LegTiming>,
    /// What PTP does here, as this receiver saw it since it was begun; none of a capture and while it is stopped.
    #[serde(skip)]
    pub ptp: Option<ptp::Seen>,
    /// What the cards that its packets come by dropped, as far as they count it.
    #[serde(skip)]
    pub cards: Vec<CardDrops>,
    /// Of the GPU that it uses.
    #[serde(skip)]
    pub gpu_memory: Option<GpuMemory>,
    /// Where its frames go.
    pub sinks: Vec<SinkState>,
    /// Its picture; none where the configuration wants none.
    #[serde(skip)]
    pub preview: Option<Source>,
    /// Where it is connected to networks.
    #[serde(skip)]
    pub side: Side,
}

/// The side of a receiver that looks at networks, as its configuration has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Interfaces of its legs, by name or address; the last one counts for all further legs. Empty: the kernel chooses.
    pub interfaces: Vec<String>,
    /// Legs: one, or two for ST 2022-7; 0 where nothing is known of it yet.
    pub legs: usize,
    /// Ports of its legs that no kernel has, one for each; the last one counts for all further legs. None: `interfaces` says it.
    pub ports: Vec<Option<Port>>,
    /// Which flow it receives where the SDP has several; none: the only one of video.
    pub flow: Option<usize>,
    /// The layout of frames that it is to make; none: one that suits.
    pub output: Option<Output>,
    /// What its frames are compressed by.
    pub codec: Option<Codec>,
    /// Of [`Connection::note`]; none where the last that it was told was something else.
    pub note: Option<Arc<str>>,
}

/// A port of DPDK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// As DPDK is told: a PCI address, or a virtual device with its options.
    pub name: String,
    /// What it answers for, where that is said.
    pub address: Option<Ipv4Addr>,
}

/// What a receiver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing: it was told so, or has no SDP.
    Stopped,
    /// It is being opened.
    Starting,
    /// It listens, and no frame has come for a while (see the reason).
    Waiting,
    /// Frames come.
    Receiving,
    /// It failed, and will be begun again.
    Retrying,
    /// It cannot run as it is configured, so that it is not tried again before that is changed.
    Failed,
}

impl State {
    /// As in JSON, and as a label of metrics.
    pub const fn name(self) -> &'static str {
        match self {
            State::Stopped => "stopped",
            State::Starting => "starting",
            State::Waiting => "waiting",
            State::Receiving => "receiving",
            State::Retrying => "retrying",
            State::Failed => "failed",
        }
    }
    /// All of them.
    pub const ALL: [State; 6] =
        [State::Stopped, State::Starting, State::Waiting, State::Receiving, State::Retrying, State::Failed];
}

/// Times of one hop of all frames so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Hop {
    /// As in the status: `complete`, `gpu`, `sink`, ...
    pub name: &'static str,
    /// Frames.
    pub count: u64,
    /// Their times together, in seconds.
    pub sum: f64,
    /// Quantiles (0 to 1) and their times in seconds.
    pub quantiles: Vec<(f64, f64)>,
}

/// Memory that this process has of a GPU, all its receivers together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuMemory {
    /// Its PCI address, `0000:1b:00.0`; its name where the driver knows none.
    pub gpu: String,
    /// Octets.
    pub octets: u64,
}

/// A sink of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SinkState {
    /// As the configuration names it.
    pub name: String,
    /// `encode`, `record`, `preview`, `export` or `gst`.
    pub kind: &'static str,
    /// Where it writes to, for people.
    pub target: String,
    /// It takes frames.
    pub running: bool,
    /// Why it does not.
    pub reason: Option<String>,
    /// Frames that it took.
    pub frames: u64,
    /// Frames that it was too slow for.
    pub dropped: u64,
    /// Frames that wait for it now.
    pub queued: u64,
    /// Times that it was begun again after a failure.
    pub restarts: u64,
}

/// What a receiver can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// To receive.
    Start,
    /// To leave its groups and close its files. It stays in the configuration. Kept for the next start, as long as the
    /// configuration's `enabled` is what it was, and until it is told to start.
    Stop,
    /// To receive this SDP from now on: the new flow is received before the old one is left, and sinks go from a whole frame
    /// of the old one to a whole frame of the new one. A receiver that was stopped is started.
    Switch {
        /// SDP text.
        sdp: String,
    },
    /// To receive what the configuration says again, after [`Action::Switch`] or [`Action::Connect`].
    Follow,
    /// What a controller connected it to; kept for the next start as a whole. Groups are left and joined anew where they are
    /// the same.
    Connect(Box<Connection>),
}

/// A connection that a controller makes, or breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// To receive; else as [`Action::Stop`].
    pub enabled: bool,
    /// Text of an SDP with one flow, whose legs are those of `legs`; empty: nobody has said yet what there is to receive.
    pub sdp: String,
    /// Which of the receiver's legs receive, from 0.
    pub legs: Vec<usize>,
    /// Whatever is to be kept with it.
    pub note: String,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such receiver.
    Unknown,
    /// What was given is wrong: nothing has changed.
    Invalid(String),
    /// It cannot be done here or now: nothing has changed.
    Unavailable(String),
}

/// What a new configuration changed: ids of receivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reloaded {
    /// New ones.
    pub added: Vec<String>,
    /// Those that are there no more.
    pub removed: Vec<String>,
    /// Those that were begun anew, or switched.
    pub changed: Vec<String>,
    /// Those that lost no packet.
    pub unchanged: Vec<String>,
    /// Those that did not say in time what became of it, as they are busy with something else; they do it when they can.
    pub unanswered: Vec<String>,
}

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Counted from 1 since the daemon started.
    pub number: u64,
    /// When, RFC 3339.
    #[serde(serialize_with = "rfc3339")]
    pub at: SystemTime,
    /// Which receiver; none: the daemon itself.
    pub receiver: Option<String>,
    /// What it is about.
    pub kind: EventKind,
    /// For people.
    pub message: String,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A receiver's [`State`] changed.
    State,
    /// A word of its health changed, or something happened to its flow.
    Health,
    /// A sink began, failed, or said something.
    Sink,
    /// A receiver was switched to another SDP.
    Switch,
    /// The configuration.
    Config,
    /// The daemon itself: its start, its end, its NMOS registration.
    Daemon,
}

fn rfc3339<S: serde::Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&crate::time::utc(*time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_named_alike_everywhere() {
        for state in State::ALL {
            assert_eq!(serde_json::json!(state), state.name());
        }
    }

    #[test]
    fn a_reply_that_is_there_already() {
        assert_eq!(reply::<u8>(Err(Refusal::Unknown)).try_recv(), Ok(Err(Refusal::Unknown)));
    }

    #[test]
    fn an_event_as_json() {
        let event = Event {
            number: 7,
            at: SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_500),
            receiver: Some("cam1".into()),
            kind: EventKind::State,
            message: "receiving".into(),
        };
        let wanted = serde_json::json!({ "number": 7, "at": "1970-01-01T00:00:01.500Z", "receiver": "cam1",
            "kind": "state", "message": "receiving" });
        assert_eq!(serde_json::json!(event), wanted);
    }
}
