//! A flow that is received and goes to its sinks. Nothing here prints, waits for signals or ends the process: whoever has a
//! session looks at it again and again, and says what there is to say.

use super::backend::Inputs;
use super::engine::{self, Engine, Run};
use super::gate::Gate;
use super::health::{self, Said, Watch};
use super::limits::{self, Share};
use super::overlay::Words;
#[cfg(feature = "preview")]
use super::preview::Teller;
use super::report::{self, Start};
use super::sinks::{self, Sinks};
use super::time::{self, Time};
use super::{Args, Follow, Now, choose, recording};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::gpu::Gpu;
use gdmedia::kernel::{Colour, Conversion};
use gdmedia::latency::{self, Recorder};
use gdmedia::mem;
use gdmedia::pipeline::{self, meter::Metering};
use gdmedia::plan::FEW_OPEN;
use gdmedia::sdp::{Description, Flow, Video};
use gdmedia::worker::{Ended, Report, Seat, Worker, seats::Wanted};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Frames,
    Duration,
    Signal,
    Input,
    Closed,
    Source,
    NoMedia,
}

impl End {
    pub const fn name(self) -> &'static str {
        match self {
            End::Frames => "frames",
            End::Duration => "duration",
            End::Signal => "signal",
            End::Input => "end of input",
            End::Closed => "sink closed",
            End::Source => "sender ended",
            End::NoMedia => "no media",
        }
    }
}

/// A flow and what becomes of it, up to the gate.
pub(super) struct Plan {
    pub args: Arc<Args>,
    pub flow: Flow,
    pub video: Video,
    pub conversion: Conversion,
    pub gate: Arc<Gate>,
    /// Its number at the gate.
    pub line: u32,
    pub stop: Arc<AtomicBool>,
}

impl Plan {
    pub fn run(&self) -> Run<'_> {
        let Plan { args, flow, video, conversion, gate, line, stop } = self;
        Run { args, flow, video, conversion, gate, line: *line, stop }
    }
}

/// A pipeline at work.
pub(super) struct Line {
    pub plan: Plan,
    /// None when it has ended.
    pub worker: Option<Worker>,
    pub metering: Option<Metering>,
    #[cfg_attr(not(feature = "daemon"), allow(dead_code))]
    pub backend: String,
    /// Where frames are made.
    #[cfg_attr(not(feature = "daemon"), allow(dead_code))]
    pub processor: String,
    #[cfg_attr(not(feature = "daemon"), allow(dead_code))]
    pub on_gpu: bool,
    /// Where its thread is; others may have the place when this has ended.
    #[cfg_attr(not(feature = "daemon"), allow(dead_code))]
    pub seat: Seat,
    /// What its frames have of memory that receivers share.
    pub share: Option<Share>,
}

/// A thread for a flow, near the card that it comes by where somebody shares threads out.
pub(super) fn seat(args: &Args, flow: &Flow, video: &Video, gpu: Option<&Arc<Gpu>>) -> Seat {
    let Some((seats, id)) = &args.seats else { return Seat::own(args.core) };
    let interfaces = health::interfaces(args, flow);
    let gpu = gpu.map(address);
    let weight = report::packet_rate(flow, video);
    seats.take(&Wanted { id, core: args.core, interfaces: &interfaces, gpu: gpu.as_deref(), weight })
}

impl Line {
    /// Begins to receive: from here on the socket's buffer fills.
    pub fn join(engine: &mut Engine, plan: &Plan) -> Result<()> {
        let run = plan.run();
        if plan.args.compare_legs {
            engine.compare_legs(&run)?;
        }
        engine.join_all(&run)
    }
    /// The thread that steps it.
    pub fn start(
        mut engine: Engine,
        plan: Plan,
        sinks: &Sinks,
        processor: String,
        seat: Seat,
        share: Option<Share>,
    ) -> Result<Self> {
        let metering = plan.args.timing.then(|| engine.meter(&plan.flow, plan.args.rules));
        let (backend, on_gpu) = (engine.caps().0, engine.is_on_gpu());
        let pause = plan.args.pause(&backend);
        let stepper = engine.into_stepper(&plan.run(), sinks);
        let worker = match &seat.crew {
            Some(crew) => crew.add(stepper, plan.stop.clone())?,
            None => Worker::spawn(stepper, pause, seat.core, plan.stop.clone())?,
        };
        Ok(Line { plan, worker: Some(worker), metering, backend, processor, on_gpu, seat, share })
    }
    /// Ends it; others may have its memory.
    pub fn close(&mut self) -> (Ended, Report) {
        let ended = self.worker.take().map_or_else(|| (Ended::Stopped, Report::default()), Worker::join);
        self.share = None;
        ended
    }
}

impl Drop for Line {
    /// Whatever becomes of a session: no thread goes on without one, and memory is others' when it is given back.
    fn drop(&mut self) {
        self.close();
    }
}

/// See above.
pub struct Session {
    pub(super) line: Line,
    /// One that is to take its place.
    #[cfg(feature = "daemon")]
    pub(super) next: Option<super::switch::Next>,
    pub(super) sinks: Sinks,
    pub(super) latency: Recorder,
    pub(super) time: Time,
    pub(super) gpu: Option<Arc<Gpu>>,
    pub(super) health: Watch,
    start: Start,
    begun: Instant,
    heard: bool,
    pub(super) words: Words,
    #[cfg(feature = "preview")]
    pub(super) teller: Option<Teller>,
}

/// What a look at a session shows.
pub struct Looked {
    pub report: Report,
    /// What happened since the last one.
    pub said: Vec<Said>,
}

/// The layout of frames that are wanted so.
pub(super) fn layout(wire: WireFormat, output: Output) -> Result<Layout> {
    Layout::new(wire, output)
        .map_err(|e| Error::new(Kind::Usage, e.to_string()).cure("choose another --output, or leave it out"))
}

/// What frames of a video are made like.
pub(super) fn conversion(video: &Video, layout: Layout) -> Conversion {
    let colour = Colour { colorimetry: video.colorimetry, tcs: video.tcs, range: video.range };
    Conversion { layout, colour }
}

/// The frames must fit into the memory that is free; of what receivers share they take theirs.
pub(super) fn take_memory(plan: &Plan, sinks: &Sinks) -> Result<Option<Share>> {
    let config = pipeline::config(&plan.flow, plan.args.redundancy.unwrap_or_default())?;
    let frames = engine::frames(sinks) + config.open_frames().saturating_sub(FEW_OPEN);
    limits::check(&plan.conversion.layout, frames)?;
    plan.args.memory.as_ref().map(|budget| budget.take(&plan.conversion.layout, frames)).transpose()
}

impl Session {
    /// Opens everything, and begins to receive. `stop` ends it.
    ///
    /// # Errors
    /// Whatever is in the way.
    pub fn open(mut args: Args, description: &Description, stop: Arc<AtomicBool>) -> Result<Self> {
        let flow = choose::flow(description, args.flow)?;
        let video = choose::video(flow, description)?;
        let time = Time::open(&args, flow)?;
        args.utc_offset = time.offset().seconds;
        let args = Arc::new(args);
        let wire = pipeline::wire(video)?;
        let chosen = engine::choose(&args)?;
        let seat = seat(&args, flow, video, chosen.gpu.as_ref());
        // Pages are touched here, and used there.
        let _near = mem::near(seat.node());
        let prepared = sinks::prepare(&args, video, &wire, chosen.gpu.as_ref())?;
        let layout = layout(wire, prepared.output)?;
        let opened = Inputs { args: &args, flow, video, layout: &layout, stop: &stop }.open(chosen.gpu.as_ref())?;
        let conversion = conversion(video, layout);
        let (probe, mut latency) = latency::channel(time::media(flow, video));
        let mut sinks = sinks::build(&args, prepared, flow, video, &conversion, &probe, chosen.gpu.is_some())?;
        let gate = Arc::new(Gate::new(args.frames, probe));
        let plan = Plan { args, flow: flow.clone(), video: video.clone(), conversion, gate, line: 0, stop };
        let share = take_memory(&plan, &sinks)?;
        let gpu = chosen.gpu.clone();
        let mut engine = Engine::open(&plan.run(), chosen, opened, &mut sinks)?;
        Line::join(&mut engine, &plan)?;
        let start = Start::new(description, &plan.run(), &engine, &sinks, &time);
        latency.set_gpu(engine.is_on_gpu());
        let processor = engine.processor();
        let line = Line::start(engine, plan, &sinks, processor, seat, share)?;
        Ok(Session::of(line, start, sinks, latency, time, gpu))
    }

    /// Of what has been begun.
    pub(super) fn of(
        line: Line,
        start: Start,
        sinks: Sinks,
        latency: Recorder,
        time: Time,
        gpu: Option<Arc<Gpu>>,
    ) -> Self {
        let Plan { args, flow, video, .. } = &line.plan;
        Session {
            health: Watch::new(args, flow),
            words: Words::new(video, args.overlay),
            #[cfg(feature = "preview")]
            teller: sinks.page().map(|page| Teller::new(page, flow, video)),
            line,
            #[cfg(feature = "daemon")]
            next: None,
            sinks,
            latency,
            time,
            gpu,
            start,
            begun: Instant::now(),
            heard: false,
        }
    }

    /// Its options.
    pub fn args(&self) -> &Args {
        &self.line.plan.args
    }
    /// What was decided at its start.
    pub const fn start(&self) -> &Start {
        &self.start
    }
    pub(super) const fn gate(&self) -> &Arc<Gate> {
        &self.line.plan.gate
    }
    /// Somebody follows it.
    ///
    /// # Errors
    /// He cannot.
    pub fn begin(&self, follow: &mut dyn Follow) -> Result<()> {
        follow.begin(&self.line.plan.run(), &self.start)
    }

    /// What there is to see; several times a second, so that nothing waits long.
    pub fn look(&mut self) -> Looked {
        let Some(worker) = &self.line.worker else {
            return Looked { report: Report::default(), said: Vec::new() };
        };
        let report = worker.report();
        let mut said = self.health.look(worker, &report, &self.sinks, self.time.synchronization());
        said.extend(self.sinks.news().iter().map(|text| Said::recording(text)));
        said.extend(self.sinks.events().iter().map(|text| Said::sink(text)));
        self.words.show(&self.sinks, &report, &self.latency);
        self.heard |= report.frames.complete + report.frames.incomplete > 0;
        self.latency.drain();
        #[cfg(feature = "preview")]
        if let Some(teller) = &mut self.teller {
            let metering = self.line.metering.as_ref();
            teller.tell(&report, &mut self.latency, &self.sinks, &self.health, metering);
        }
        Looked { report, said }
    }
    /// Something ends the run.
    pub fn end(&self, report: &Report) -> Option<End> {
        let Plan { args, gate, stop, .. } = &self.line.plan;
        let elapsed = self.begun.elapsed();
        if gate.is_reached() {
            return Some(End::Frames);
        }
        if stop.load(Ordering::Relaxed) {
            return Some(End::Signal);
        }
        if self.has_ended() {
            let none = report.frames.complete + report.frames.incomplete + report.frames.acquiring == 0;
            return Some(if none { End::NoMedia } else { End::Input });
        }
        if self.sinks.ended() {
            return Some(End::Closed);
        }
        if !self.heard && !args.wait.is_zero() && elapsed >= args.wait {
            return Some(End::NoMedia);
        }
        let over = args.duration.is_some_and(|d| elapsed >= d);
        over.then_some(if self.heard { End::Duration } else { End::NoMedia })
    }
    /// Reception has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.line.worker.as_ref().is_none_or(Worker::is_finished)
    }
    /// What is new about the clocks, once an interval.
    pub fn times(&mut self) -> Vec<Said> {
        self.time.update(self.latency.rtp_latency_ns()).iter().map(|text| Said::time(text)).collect()
    }
    /// Where it stands.
    pub fn now<'a>(&'a mut self, report: &'a Report, events: &'a [String]) -> Now<'a> {
        Now {
            report,
            sinks: &self.sinks,
            health: &self.health,
            time: &self.time,
            gpu_memory: self.gpu.as_ref().map(memory_of),
            events,
            timing: self.line.metering.as_ref().map(Metering::read).unwrap_or_default(),
            latency: &mut self.latency,
        }
    }

    /// Ends it, and lets its sinks finish. The last report, what came of it, and what there is to say about its end.
    pub fn finish(&mut self, end: End) -> (Report, Result<()>, Vec<Said>) {
        #[cfg(feature = "daemon")]
        self.give_up_next();
        let (ended, report) = self.line.close();
        let sunk = self.sinks.finish();
        let said = self.sinks.news().iter().map(|text| Said::recording(text)).collect();
        let Plan { args, flow, gate, .. } = &self.line.plan;
        self.latency.finish(gate.probe.now());
        let outcome = match (end, ended) {
            (_, Ended::Failed(error)) => Err(error),
            (End::NoMedia, _) if args.recorded.is_some() => {
                Err(recording::nothing(Path::new(args.sdp().unwrap_or_default())))
            }
            (End::NoMedia, _) => Err(choose::no_media(args, flow, &report)),
            _ => sunk,
        };
        (report, outcome, said)
    }
}

/// Its PCI address; empty where the driver has none.
#[cfg(feature = "cuda")]
pub(super) fn address(gpu: &Arc<Gpu>) -> String {
    gpu.address().to_ascii_lowercase()
}
#[cfg(not(feature = "cuda"))]
pub(super) fn address(gpu: &Arc<Gpu>) -> String {
    match **gpu {}
}

/// Octets that this process has of a GPU.
#[cfg(feature = "cuda")]
pub(super) fn memory_of(gpu: &Arc<Gpu>) -> u64 {
    gpu.budget().used() as u64
}
#[cfg(not(feature = "cuda"))]
pub(super) fn memory_of(gpu: &Arc<Gpu>) -> u64 {
    match **gpu {}
}
