//! The health of a receiver, in the words of AMWA BCP-008-01 v1.0 (Receiver Status Monitoring, the model NcReceiverMonitor):
//! link, connection, external synchronisation, stream, and overall the worst of these. Pure: counters, states and a time go
//! in, words and messages come out.
//!
//! The rules of its section "Receiver status reporting delay", which [`Monitor`] follows:
//! - when a receiver is activated, connection and stream become Healthy at once, and for the reporting delay (3 s) no status
//!   becomes less healthy;
//! - after that a status becomes less healthy at once, and more healthy when it has been so for the reporting delay;
//! - when it is deactivated, overall, connection and stream become Inactive at once.
//!
//! Besides there is the [`Watchdog`], which names the stage that is too slow.

mod connection;
mod domain;
mod stream;
mod watchdog;

pub use watchdog::{Load, SinkLoad, Slow, Stage, Verdict, Watchdog};

use self::connection::Connection;
use self::domain::Machine;
use self::stream::Stream;
use crate::stats::{FrameCounters, LegCounters, PacketCounters, RxCounters};
use serde::Serialize;
use std::time::Duration;

/// How healthy something is. The numbers are those of the data types NcOverallStatus, NcLinkStatus and their like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Health {
    /// Says nothing: Inactive, or NotUsed.
    #[default]
    Neutral = 0,
    /// Good.
    Healthy = 1,
    /// Works, and something is not as it should be.
    PartiallyHealthy = 2,
    /// Does not work.
    Unhealthy = 3,
}

/// What a status is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// The worst of the others.
    Overall,
    /// Interfaces.
    Link,
    /// Packets.
    Connection,
    /// PTP.
    ExternalSynchronization,
    /// Frames.
    Stream,
}

impl Domain {
    /// Those that the overall status is made of: the first of those that are equally bad gives its message.
    pub const PARTS: [Domain; 4] = [Domain::Link, Domain::Connection, Domain::ExternalSynchronization, Domain::Stream];

    /// The standard's word for a state of this domain.
    pub const fn word(self, health: Health) -> &'static str {
        match (self, health) {
            (Domain::Link, Health::Neutral | Health::Healthy) => "AllUp",
            (Domain::Link, Health::PartiallyHealthy) => "SomeDown",
            (Domain::Link, Health::Unhealthy) => "AllDown",
            (Domain::ExternalSynchronization, Health::Neutral) => "NotUsed",
            (_, Health::Neutral) => "Inactive",
            (_, Health::Healthy) => "Healthy",
            (_, Health::PartiallyHealthy) => "PartiallyHealthy",
            (_, Health::Unhealthy) => "Unhealthy",
        }
    }
    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Domain::Overall => "overall",
            Domain::Link => "link",
            Domain::Connection => "connection",
            Domain::ExternalSynchronization => "synchronisation",
            Domain::Stream => "stream",
        }
    }
}

/// The status of one domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// How healthy.
    #[serde(skip)]
    pub health: Health,
    /// The standard's word for that.
    #[serde(rename = "status")]
    pub word: &'static str,
    /// Cause and figures; when it is healthy again, what it was before.
    pub message: Option<String>,
    /// How often it has become less healthy since the counters were reset; of overall, those of all domains together.
    pub transitions: u64,
}

/// What a leg is worth to the flow (ST 2022-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LegState {
    /// It brings packets, and so does another leg.
    Protected,
    /// It brings packets, and no other leg does: what it loses is lost.
    Unprotected,
    /// It brings none.
    Silent,
}

impl LegState {
    /// For people and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            LegState::Protected => "protected",
            LegState::Unprotected => "unprotected",
            LegState::Silent => "silent",
        }
    }
}

/// The status of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The worst of the others; Inactive while the receiver is.
    pub overall: Reading,
    /// Are the interfaces up?
    pub link: Reading,
    /// Do all packets come?
    pub connection: Reading,
    /// Is there a clock that frames can be judged by?
    pub external_synchronization: Reading,
    /// Do packets make frames?
    pub stream: Reading,
    /// `internal` when no external synchronisation is used, none when it is and no source is known.
    pub synchronization_source_id: Option<String>,
    /// Of each leg, in order.
    pub legs: Vec<LegState>,
}

impl Status {
    /// Of one domain.
    pub const fn of(&self, domain: Domain) -> &Reading {
        match domain {
            Domain::Overall => &self.overall,
            Domain::Link => &self.link,
            Domain::Connection => &self.connection,
            Domain::ExternalSynchronization => &self.external_synchronization,
            Domain::Stream => &self.stream,
        }
    }
    fn of_mut(&mut self, domain: Domain) -> &mut Reading {
        match domain {
            Domain::Overall => &mut self.overall,
            Domain::Link => &mut self.link,
            Domain::Connection => &mut self.connection,
            Domain::ExternalSynchronization => &mut self.external_synchronization,
            Domain::Stream => &mut self.stream,
        }
    }
}

/// A status that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Which.
    pub domain: Domain,
    /// The word until then.
    pub from: &'static str,
    /// The word since then.
    pub to: &'static str,
    /// Why.
    pub message: Option<String>,
}

/// The link of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Of the interface.
    pub name: String,
    /// What it is.
    pub state: LinkState,
}

/// What the link of an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Switched on, with a carrier.
    Up,
    /// Switched on, without a carrier.
    NoCarrier,
    /// Switched off.
    Off,
    /// There is no such interface any more.
    Gone,
}

/// What is known of the clock of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Synchronization {
    /// No external synchronisation is used.
    #[default]
    NotUsed,
    /// Locked to a source.
    Locked {
        /// Its identity, best with the interface: `00:0c:ec:ff:fe:0a:2b:a1 on eth0`.
        source: String,
        /// What is not as it should be although it is locked, such as an interface that brings no PTP.
        but: Option<String>,
    },
    /// It is to be used, and is not locked.
    NotLocked {
        /// Why.
        why: String,
    },
}

/// A named figure, as GetLostPacketCounters and GetLatePacketCounters give them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// Such as `leg 0`.
    pub name: String,
    /// Since the counters were reset.
    pub value: u64,
    /// What is counted.
    pub description: &'static str,
}

/// What a [`Monitor`] judges by. Counters count from the beginning of the receiver and never go back.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// Of the interfaces of all legs, each once.
    pub links: &'a [Link],
    /// Of the receiver.
    pub rx: RxCounters,
    /// After the merge of the legs.
    pub packets: PacketCounters,
    /// Of each leg.
    pub legs: &'a [LegCounters],
    /// Of the frames.
    pub frames: FrameCounters,
    /// Of the clock.
    pub synchronization: &'a Synchronization,
}

/// How a [`Monitor`] judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `statusReportingDelay`.
    pub reporting_delay: Duration,
    /// `autoResetCountersAndMessages`: an activation resets them.
    pub auto_reset: bool,
    /// A leg that brings nothing for so long is silent: some frames' time at least.
    pub silence: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { reporting_delay: Duration::from_secs(3), auto_reset: true, silence: Duration::from_millis(100) }
    }
}

/// Keeps the status of one receiver. Times are those of any clock that does not go back, such as the time since the start.
#[derive(Debug)]
pub struct Monitor {
    settings: Settings,
    /// Since when the receiver is active.
    active: Option<Duration>,
    machines: [Machine; Domain::PARTS.len()],
    connection: Connection,
    stream: Stream,
    /// The last one that was known.
    source: Option<String>,
    status: Status,
    changes: Vec<Change>,
    /// Lost and late packets of each leg at the last update, and when the counters were reset.
    counted: Vec<[u64; 2]>,
    reset_at: Vec<[u64; 2]>,
}

/// What was found out about a domain: how healthy it is, and why it is not.
type Found = (Health, Option<String>);

impl Monitor {
    /// Of a receiver that is not active.
    pub fn new(settings: Settings) -> Self {
        let mut monitor = Monitor {
            settings,
            active: None,
            machines: Default::default(),
            connection: Connection::default(),
            stream: Stream::default(),
            source: None,
            status: Status::default(),
            changes: Vec::new(),
            counted: Vec::new(),
            reset_at: Vec::new(),
        };
        // An interface is taken to be up until somebody looked.
        monitor.machines[0].set(Health::Healthy);
        monitor.publish();
        monitor.changes.clear();
        monitor
    }

    /// The receiver was activated, or received another stream from now on.
    pub fn activate(&mut self, now: Duration) {
        self.active = Some(now);
        if self.settings.auto_reset {
            self.reset_counters_and_messages();
        }
        self.connection.begin(now);
        self.stream.begin(now);
        for (domain, machine) in Domain::PARTS.into_iter().zip(&mut self.machines) {
            machine.forget();
            if matches!(domain, Domain::Connection | Domain::Stream) {
                machine.set(Health::Healthy);
            }
        }
        self.publish();
    }

    /// The receiver was deactivated.
    pub fn deactivate(&mut self) {
        self.active = None;
        for (domain, machine) in Domain::PARTS.into_iter().zip(&mut self.machines) {
            if matches!(domain, Domain::Connection | Domain::Stream) {
                machine.set(Health::Neutral);
            }
        }
        self.publish();
    }

    /// `ResetCountersAndMessages`.
    pub fn reset_counters_and_messages(&mut self) {
        self.machines.iter_mut().for_each(Machine::reset);
        self.reset_at.clone_from(&self.counted);
        self.publish();
    }

    /// Judges anew. To be called several times a second, since a status becomes less healthy with the call that sees why.
    pub fn update(&mut self, now: Duration, inputs: &Inputs<'_>) -> &Status {
        self.counted.clear();
        self.counted.extend(inputs.legs.iter().map(|leg| [leg.lost, leg.late]));
        self.reset_at.resize(self.counted.len(), [0; 2]);
        let active = self.active.is_some();
        let good = |machines: &[Machine], at: usize| machines[at].health() <= Health::Healthy;
        let connection = self.connection.judge(now, inputs, self.settings.silence, good(&self.machines, 1));
        let silence = self.settings.silence;
        let stream = self.stream.judge(now, inputs, silence, self.connection.silent(), good(&self.machines, 3));
        self.status.legs.clear();
        self.status.legs.extend_from_slice(self.connection.legs());
        let found = [link(inputs.links), connection, self.synchronization(inputs.synchronization), stream];
        let held = self.active.is_some_and(|since| now.saturating_sub(since) < self.settings.reporting_delay);
        for ((domain, machine), (health, message)) in Domain::PARTS.into_iter().zip(&mut self.machines).zip(found) {
            if active || !matches!(domain, Domain::Connection | Domain::Stream) {
                machine.see(now, health, message, held, self.settings.reporting_delay);
            }
        }
        self.publish();
        &self.status
    }

    /// As of the last call.
    pub const fn status(&self) -> &Status {
        &self.status
    }

    /// What has changed since it was asked last, oldest first.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// `GetLostPacketCounters`: packets that a leg did not bring in time, since the counters were reset.
    pub fn lost_packets(&self) -> Vec<Counter> {
        self.counters(0, "packets that this leg did not bring in time")
    }
    /// `GetLatePacketCounters`: packets that a leg brought too late, since the counters were reset.
    pub fn late_packets(&self) -> Vec<Counter> {
        self.counters(1, "packets that this leg brought too late to be used")
    }
    fn counters(&self, which: usize, description: &'static str) -> Vec<Counter> {
        let both = self.counted.iter().zip(&self.reset_at);
        both.enumerate()
            .map(|(leg, (now, before))| Counter {
                name: format!("leg {leg}"),
                value: now[which].saturating_sub(before[which]),
                description,
            })
            .collect()
    }

    fn synchronization(&mut self, seen: &Synchronization) -> Found {
        match seen {
            Synchronization::NotUsed => {
                self.source = None;
                self.status.synchronization_source_id = Some("internal".into());
                (Health::Neutral, None)
            }
            Synchronization::NotLocked { why } => {
                self.status.synchronization_source_id = None;
                (Health::Unhealthy, Some(why.clone()))
            }
            Synchronization::Locked { source, but } => {
                self.status.synchronization_source_id = Some(source.clone());
                let before = self.source.replace(source.clone()).filter(|before| before != source);
                match (before, but) {
                    (Some(before), _) => (Health::PartiallyHealthy, Some(format!("Source change from: {before}"))),
                    (None, Some(but)) => (Health::PartiallyHealthy, Some(but.clone())),
                    (None, None) => (Health::Healthy, None),
                }
            }
        }
    }

    /// Takes over what the machines say.
    fn publish(&mut self) {
        let mut worst = Health::Healthy;
        let (mut message, mut transitions) = (None, 0);
        for machine in &self.machines {
            transitions += machine.transitions();
            if machine.health() > worst {
                worst = machine.health();
                message = machine.message();
            }
        }
        if worst == Health::Healthy {
            message = self.machines.iter().find_map(Machine::message);
        }
        if self.active.is_none() {
            (worst, message) = (Health::Neutral, None);
        }
        let message = message.map(str::to_owned);
        let parts = Domain::PARTS.into_iter().zip(&self.machines);
        let readings = parts.map(|(d, m)| (d, m.health(), m.message().map(str::to_owned), m.transitions()));
        let all = readings.chain([(Domain::Overall, worst, message, transitions)]);
        for (domain, health, message, transitions) in all {
            let word = domain.word(health);
            let reading = self.status.of_mut(domain);
            if reading.word != word {
                self.changes.push(Change { domain, from: reading.word, to: word, message: message.clone() });
            }
            *reading = Reading { health, word, message, transitions };
        }
    }
}

fn link(links: &[Link]) -> Found {
    let text = |link: &Link| {
        let why = match link.state {
            LinkState::Up => return None,
            LinkState::NoCarrier => "no carrier",
            LinkState::Off => "switched off",
            LinkState::Gone => "no such interface",
        };
        Some(format!("{} ({why})", link.name))
    };
    let down: Vec<String> = links.iter().filter_map(text).collect();
    match down.len() {
        0 => (Health::Healthy, None),
        n => {
            let verb = if n == 1 { "is" } else { "are" };
            let health = if n == links.len() { Health::Unhealthy } else { Health::PartiallyHealthy };
            (health, Some(format!("{} {verb} down", down.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests;
