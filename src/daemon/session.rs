//! What runs a receiver, as whoever supervises it sees it. One of each kind is in the program; the others are in tests.

use super::{GpuMemory, Hop, SinkState, config};
use crate::error::{Error, Result};
use crate::health;
use crate::pipeline::meter::LegTiming;
use crate::preview::Source;
use crate::ptp;
use crate::rx::link::CardDrops;
use crate::worker::{Beats, Placement, Report};
use std::sync::Arc;

/// Opens receivers.
pub trait Opener: Send + Sync + 'static {
    /// Opens a receiver for an SDP, with its sinks, and begins to receive. May take its time.
    ///
    /// # Errors
    /// Whatever is in the way. [`crate::Kind::Usage`] and [`crate::Kind::Data`] are what only another configuration or SDP
    /// cures.
    fn open(&self, receiver: &config::Receiver, sdp: &str) -> Result<Box<dyn Session>>;
}

/// A receiver that is open. It is dropped where it was opened.
pub trait Session {
    /// What has happened; called several times a second.
    fn look(&mut self) -> Look;
    /// As it is; called once an interval.
    fn show(&mut self) -> Shown;
    /// Why no frame comes, and what to do about it.
    fn why_nothing(&mut self) -> Error;
    /// Could it receive this SDP's flow instead? By the text alone: nothing is touched.
    ///
    /// # Errors
    /// What is wrong with it.
    fn check(&self, sdp: &str) -> Result<()> {
        let _ = sdp;
        Ok(())
    }
    /// Gives up a switch that goes on. True: it is too late for that, the new flow has taken the old one's place.
    fn give_up(&mut self) -> bool {
        false
    }
    /// Begins to receive another SDP's flow; [`Look::switch`] says how that ends. One that goes on is given up before.
    ///
    /// # Errors
    /// It cannot; everything is as it was.
    fn switch(&mut self, sdp: &str) -> Result<Begun>;
    /// Leaves the groups and lets the sinks finish.
    ///
    /// # Errors
    /// A sink could not.
    fn close(&mut self) -> Result<()>;
    /// Of the loop that receives; none where there is none.
    fn beats(&self) -> Option<Beats> {
        None
    }
}

/// How a switch began.
#[derive(Debug)]
pub enum Begun {
    /// It goes on: see [`Look::switch`].
    Beside,
    /// It is done; what there is to say.
    Done(String),
    /// Not both at once, for this reason: the session has to be closed before another one is opened.
    Apart(String),
}

/// What has happened since the last look.
#[derive(Debug, Default)]
pub struct Look {
    /// Frames so far, whole or not.
    pub frames: u64,
    /// For people, in order.
    pub said: Vec<Said>,
    /// Reception has ended by itself.
    pub ended: Option<Error>,
    /// A switch has ended.
    pub switch: Option<Switched>,
}

/// Something to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// What it is about.
    pub kind: super::EventKind,
    /// For people.
    pub text: String,
}

/// How a switch ended.
#[derive(Debug)]
pub enum Switched {
    /// The new flow is received; what there is to say.
    Done(String),
    /// The old one goes on.
    Refused(Error),
    /// Neither does: the session has to be closed.
    Broken(Error),
}

/// What a receiver shows of itself; see [`super::Receiver`].
#[derive(Clone, Debug)]
pub struct Shown {
    /// What its SDP says.
    pub flow: serde_json::Value,
    /// Who receives.
    pub backend: String,
    /// Where frames are made.
    pub processor: String,
    /// Where its thread is, and why.
    pub placement: Option<Placement>,
    /// The status object of the last interval.
    pub status: Option<serde_json::Value>,
    /// Its health.
    pub health: Option<health::Status>,
    /// Its counters.
    pub report: Arc<Report>,
    /// How long frames take.
    pub latency: Vec<Hop>,
    /// The sender's timing.
    pub timing: Vec<LegTiming>,
    /// What PTP does here.
    pub ptp: Option<ptp::Seen>,
    /// What its cards dropped.
    pub cards: Vec<CardDrops>,
    /// Of the GPU that it uses.
    pub gpu_memory: Option<GpuMemory>,
    /// Where its frames go.
    pub sinks: Vec<SinkState>,
    /// Its picture.
    pub preview: Option<Source>,
}
