//! A daemon that receives nothing: what the API is tried with. Pictures of its receivers are those of the test pattern.
#![allow(dead_code, reason = "each user needs a part of it")]

use gdmedia::daemon::{
    Action, Control, Event, EventKind, Hop, Overview, Receiver, Refusal, Reloaded, Reply, Side, SinkState, State, reply,
};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::FramePool;
use gdmedia::health;
use gdmedia::kernel::{Colour, Conversion, Level, Run, select};
use gdmedia::mem::Host;
use gdmedia::preview::{Options, Post, Preview};
use gdmedia::ptp::{Seen, Silent};
use gdmedia::sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
use gdmedia::send::pattern::Pattern;
use gdmedia::sink::Sink;
use gdmedia::stats::{FrameCounters, LegCounters, PacketCounters, Reason, RxCounters, Skew};
use gdmedia::worker::{Placement, Report};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;

/// The SDP that its receivers have.
pub const SDP: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=fake\r\nt=0 0\r\n";

pub struct Fake {
    pub receivers: Mutex<Vec<Arc<Receiver>>>,
    /// What it was told.
    pub told: Mutex<Vec<(String, Action)>>,
    /// What it answers, whatever it is told.
    pub answer: Mutex<Option<Result<(), Refusal>>>,
    pub reloaded: Mutex<Option<Result<Reloaded, Refusal>>>,
    /// Seconds since 1970.
    pub started: AtomicU64,
    pub ready: AtomicBool,
    pub alive: AtomicBool,
    pub refused: Mutex<Option<String>>,
    history: Mutex<Vec<Arc<Event>>>,
    /// Events that are kept.
    pub keep: usize,
    events: broadcast::Sender<Arc<Event>>,
}

impl Fake {
    pub fn new(receivers: Vec<Receiver>) -> Self {
        Fake {
            receivers: Mutex::new(receivers.into_iter().map(Arc::new).collect()),
            told: Mutex::default(),
            answer: Mutex::new(Some(Ok(()))),
            reloaded: Mutex::new(Some(Ok(Reloaded::default()))),
            started: AtomicU64::new(1_000),
            ready: AtomicBool::new(true),
            alive: AtomicBool::new(true),
            refused: Mutex::default(),
            history: Mutex::default(),
            keep: 1000,
            events: broadcast::channel(64).0,
        }
    }
    pub fn happen(&self, receiver: Option<&str>, kind: EventKind, message: &str) {
        let mut history = self.history.lock().unwrap();
        let number = history.last().map_or(1, |last| last.number + 1);
        let (at, receiver, message) = (SystemTime::now(), receiver.map(Into::into), message.into());
        let event = Arc::new(Event { number, at, receiver, kind, message });
        history.push(event.clone());
        if history.len() > self.keep {
            history.remove(0);
        }
        // Nobody may listen.
        let _ = self.events.send(event);
    }
    pub fn change(&self, id: &str, change: impl FnOnce(&mut Receiver)) {
        let mut receivers = self.receivers.lock().unwrap();
        let receiver = receivers.iter_mut().find(|receiver| receiver.id == id).unwrap();
        let mut new = (**receiver).clone();
        change(&mut new);
        *receiver = Arc::new(new);
    }
}

impl Control for Fake {
    fn overview(&self) -> Overview {
        Overview {
            version: "1.2.3",
            started: SystemTime::UNIX_EPOCH + Duration::from_secs(self.started.load(Relaxed)),
            ready: self.ready.load(Relaxed),
            alive: self.alive.load(Relaxed),
            generation: 2,
            refused: self.refused.lock().unwrap().clone(),
        }
    }
    fn receivers(&self) -> Vec<Arc<Receiver>> {
        self.receivers.lock().unwrap().clone()
    }
    fn act(&self, id: &str, action: Action) -> Reply<()> {
        self.told.lock().unwrap().push((id.into(), action.clone()));
        let answer = self.answer.lock().unwrap().clone();
        let Some(answer) = answer else {
            // As a daemon that ends meanwhile.
            return tokio::sync::oneshot::channel().1;
        };
        if answer.is_ok() {
            let (state, word) = match action {
                Action::Start | Action::Switch { .. } | Action::Follow | Action::Connect(_) => {
                    (State::Receiving, "receiving")
                }
                Action::Stop => (State::Stopped, "stopped"),
            };
            self.change(id, |receiver| {
                receiver.state = state;
                if let Action::Switch { sdp } = action {
                    receiver.sdp = Some(sdp.into());
                    receiver.switches += 1;
                }
            });
            self.happen(Some(id), EventKind::State, word);
        }
        reply(answer)
    }
    fn reload(&self) -> Reply<Reloaded> {
        match self.reloaded.lock().unwrap().clone() {
            Some(answer) => reply(answer),
            None => tokio::sync::oneshot::channel().1,
        }
    }
    fn note(&self, message: String) {
        self.happen(None, EventKind::Daemon, &message);
    }
    fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }
    fn history(&self) -> Vec<Arc<Event>> {
        self.history.lock().unwrap().clone()
    }
}

/// A receiver with every figure that there can be; without a picture.
pub fn receiver(id: &str) -> Receiver {
    let report = report();
    let leg = |n: usize| {
        json!({ "leg": n, "state": "protected", "received": report.legs[n].received, "lost": report.legs[n].lost,
            "late": report.legs[n].late })
    };
    let health = healthy();
    let status = json!({
        "type": "status", "fps": 25.0, "bit_rate": 1_037_000_000u64, "lost": report.packets.lost,
        "late": report.packets.late, "reordered": report.packets.reordered, "duplicate": 0, "kernel_dropped": 0,
        "overwritten": 0, "rejected": report.packets.rejected.total(),
        "frames": { "complete": report.frames.complete, "incomplete": report.frames.incomplete, "torn": 0, "dropped": 0,
            "shed": 0, "no_memory": 0, "acquiring": 1 },
        "legs": [leg(0), leg(1)], "health": health, "too_slow": [], "lag_us": 12,
        "latency_us": { "mean": 412.5, "max": 903.0 }, "latency": {}, "timing": [], "seconds": 61.5,
        "received": report.packets.received,
    });
    let flow = json!({
        "name": format!("Stream of {id}"), "format": "1920x1080p25 YCbCr-4:2:2 10 bit BT709 SDR",
        "legs": ["239.1.1.1:5004", "239.1.2.1:5004"], "width": 1920, "height": 1080, "par": [1, 1], "rate": 25.0,
        "scan": "progressive", "sampling": "YCbCr-4:2:2", "depth": "10", "colorimetry": "BT709", "tcs": "SDR",
        "range": "NARROW", "luma": [0.2126, 0.0722],
    });
    let quantiles = vec![(0.5, 0.0004), (0.99, 0.0009)];
    Receiver {
        id: id.into(),
        label: format!("Label of {id}"),
        state: State::Receiving,
        reason: None,
        since: SystemTime::UNIX_EPOCH + Duration::from_secs(2_000),
        sdp: Some(SDP.into()),
        flow: Some(flow),
        backend: Some("socket, socket".into()),
        processor: Some("cpu".into()),
        placement: Some(Placement { core: Some(5), node: Some(1), shared: false, why: "where eth1 lies".into() }),
        restarts: 1,
        switches: 0,
        status: Some(status),
        health: Some(health),
        report: Some(Arc::new(report)),
        latency: vec![Hop { name: "complete", count: 1500, sum: 0.625, quantiles }],
        timing: Vec::new(),
        ptp: Some(Seen::first(Err(Silent::Absent))),
        cards: Vec::new(),
        gpu_memory: None,
        sinks: vec![SinkState {
            name: "archive".into(),
            kind: "record",
            target: "/var/lib/gdmedia/archive".into(),
            running: true,
            reason: None,
            frames: 1499,
            dropped: 1,
            queued: 2,
            restarts: 0,
        }],
        preview: None,
        side: Side::default(),
    }
}

/// One that does not receive, and says why.
pub fn dead(id: &str, state: State, reason: &str) -> Receiver {
    let mut receiver = receiver(id);
    (receiver.state, receiver.reason) = (state, Some(reason.into()));
    (receiver.status, receiver.health, receiver.report) = (None, None, None);
    (receiver.placement, receiver.ptp) = (None, None);
    receiver.latency.clear();
    receiver.sinks[0].running = false;
    receiver
}

fn report() -> Report {
    let rx = RxCounters { datagrams: 9_000, octets: 12_600_000, kernel_dropped: 3, ..RxCounters::default() };
    let mut packets = PacketCounters { received: 4_500, lost: 7, late: 2, reordered: 1, ..PacketCounters::default() };
    packets.rejected.add(Reason::PayloadType);
    let frames = FrameCounters {
        complete: 1_500,
        incomplete: 4,
        acquiring: 1,
        dropped: 3,
        shed: 2,
        no_memory: 1,
        ..FrameCounters::default()
    };
    let mut late = LegCounters { received: 4_480, lost: 27, late: 2, redundant: 4_473, ..LegCounters::default() };
    late.skew = Skew { samples: 9, last_ns: 250_000, min_ns: 0, max_ns: 300_000 };
    let legs = vec![LegCounters { received: 4_493, lost: 14, used: 4_493, ..LegCounters::default() }, late];
    Report { rx, packets, frames, legs, ..Report::default() }
}

/// A status that a monitor gives to a receiver that was just activated.
fn healthy() -> health::Status {
    let mut monitor = health::Monitor::new(health::Settings::default());
    monitor.activate(Duration::ZERO);
    let mut status = monitor.status().clone();
    status.legs = vec![health::LegState::Protected, health::LegState::Protected];
    status
}

/// Pictures of the test pattern.
pub struct Picture {
    pub preview: Preview,
    post: Post,
    pool: FramePool<Host>,
    pattern: Pattern,
    conversion: Conversion,
    octets: Vec<u8>,
    number: u64,
}

impl Picture {
    pub fn new(width: u32, height: u32, name: &str) -> Self {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, width, height, Scan::Progressive).unwrap();
        let colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
        let layout = Layout::new(wire, Output::Planar).unwrap();
        let conversion = Conversion { layout: layout.clone(), colour };
        let mut preview = Preview::new(&conversion, Options::default());
        #[cfg(feature = "cuda")]
        preview.start(None).unwrap();
        #[cfg(not(feature = "cuda"))]
        preview.start().unwrap();
        let pool = FramePool::host(layout, preview.holds() + 2).unwrap();
        let pattern = Pattern::new(wire, colour, 75, name);
        let octets = vec![0; wire.frame_octets() as usize];
        Picture { post: preview.post(), preview, pool, pattern, conversion, octets, number: 0 }
    }
    /// The next one.
    pub fn step(&mut self) {
        let wire = *self.conversion.wire();
        self.pattern.frame(self.number, &mut self.octets);
        let Some(mut frame) = self.pool.take() else { return };
        let (run, _) = select(&self.conversion, Level::Avx2);
        for (row, src) in self.octets.chunks_exact(wire.row_octets() as usize).enumerate() {
            let of = Run { src, groups: wire.row_pgroups(), row: row as u32, group: 0 };
            run(&self.conversion, of, frame.region_mut().as_mut_slice());
        }
        let meta = frame.meta_mut();
        (meta.number, meta.complete) = (self.number, true);
        self.post.take(&frame.seal()).unwrap();
        self.number += 1;
    }
}
