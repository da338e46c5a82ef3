//! What does the work: a pipeline on a GPU where one is to be used and can be, else on the CPU; and why.

use super::Args;
use super::backend::{HostReceiver, Inputs, Opened, Passed};
use super::gate::Gate;
use super::report;
#[cfg(any(feature = "cuda", feature = "daemon"))]
use super::sinks::Offers;
use super::sinks::Sinks;
use gdmedia::error::{self, Error, Result};
use gdmedia::gpu::{self, Choice, Found};
use gdmedia::kernel::{Conversion, Level};
use gdmedia::mem::{Host, Space};
use gdmedia::pipeline::meter::Metering;
use gdmedia::pipeline::{Deliver, HostPipeline, Memory, Settings};
use gdmedia::ring::SplitRing;
#[cfg(feature = "cuda")]
use gdmedia::rx::socket;
use gdmedia::rx::{Caps, Receiver};
use gdmedia::sdp::{Flow, Leg, Video};
use gdmedia::timing::{Rules, Source};
use gdmedia::worker::Stepper;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[cfg(feature = "cuda")]
use {
    super::backend::Receiving,
    gdmedia::gpu::Gpu,
    gdmedia::kernel::cuda::Options,
    gdmedia::mem::{Device, Slab},
    gdmedia::pipeline::{GpuPipeline, Moving, Observe, Refused},
    gdmedia::rx::Registered,
};

/// Frames of the pipeline alone: being filled, kept for concealment.
const POOL: usize = 6;

/// Packets that are remembered for comparison where their rate is not known.
const COMPARED: u32 = 1 << 18;

/// Packets of all legs lie at the place of their number.
fn is_shared<M: Space>(ring: &SplitRing<M>) -> bool {
    ring.laps().is_some_and(|laps| laps.geometry().in_sequence && laps.geometry().rings == 1)
}

/// A pipeline that is ready.
pub struct Engine {
    kind: Kind,
    /// For the start block: the GPU, or why none is used.
    pub gpu: String,
    /// Backends that are not used, and why.
    pub passed: Vec<Passed>,
    /// Of each leg: who receives it.
    legs: Vec<usize>,
    /// The GPU that frames are unpacked on.
    #[cfg(feature = "cuda")]
    device: Option<Arc<Gpu>>,
}

enum Kind {
    Cpu(Box<HostPipeline>),
    #[cfg(feature = "cuda")]
    Gpu(Box<GpuPipeline>),
    /// The ring lies in memory of the GPU, which nothing can take the place of.
    #[cfg(all(feature = "cuda", feature = "bypass"))]
    Direct(Box<DirectPipeline>),
}

#[cfg(all(feature = "cuda", feature = "bypass"))]
type DirectPipeline = GpuPipeline<Box<dyn Receiver<Mem = Device>>>;

/// Finds the GPU that the options ask for.
///
/// # Errors
/// One is required and cannot be had.
pub fn choose(args: &Args) -> Result<Found> {
    let contradiction = match (args.gpu, args.kernel, args.gpu_memory) {
        (Choice::Off, _, Some(_)) => Some("--gpu-memory limits a GPU, and --gpu off forbids it".to_owned()),
        (gpu, Some(level), _) if gpu.required() => {
            Some(format!("--kernel {} runs on the CPU, and --gpu wants a GPU", Level::from(level).name()))
        }
        _ => None,
    };
    if let Some(what) = contradiction {
        return Err(Error::new(error::Kind::Usage, what).cure("leave one of them out"));
    }
    let on_cpu = args.kernel.filter(|_| args.gpu == Choice::Auto).map(|level| Level::from(level).name());
    let nearest_to = args.interface.first().map(String::as_str);
    let Some(target) = &args.export else {
        return match on_cpu {
            Some(level) => Ok(Found { gpu: None, why: format!("not used: --kernel {level} runs on the CPU") }),
            None => gpu::choose(args.gpu, nearest_to),
        };
    };
    let contradicted = match on_cpu {
        _ if args.gpu == Choice::Off => Some("--gpu off forbids it".to_owned()),
        on_cpu => on_cpu.map(|level| format!("--kernel {level} runs on the CPU")),
    };
    if let Some(why) = contradicted {
        return Err(Error::new(error::Kind::Usage, format!("--export {target} needs a GPU, and {why}"))
            .cure("leave one of them out"));
    }
    let choice = if args.gpu == Choice::Auto { Choice::Require } else { args.gpu };
    gpu::choose(choice, nearest_to).map_err(|error| {
        let text = error.to_string();
        let why = text.split("\n  cure: ").next().unwrap_or_default();
        let cure = error.cure_text().replace("run on the CPU (--gpu off)", "leave --export out");
        Error::new(error.kind(), format!("--export {target} needs a GPU: {why}")).cure(cure)
    })
}

/// Frames of a pipeline alone.
#[cfg(feature = "cuda")]
pub const fn frames_of_pipeline() -> usize {
    POOL
}

/// Frames of a pipeline of the CPU, with those that its sinks hold.
pub fn frames(sinks: &Sinks) -> usize {
    POOL + sinks.held()
}

/// What a run consists of, besides its sinks.
pub struct Run<'a> {
    pub args: &'a Args,
    pub flow: &'a Flow,
    pub video: &'a Video,
    pub conversion: &'a Conversion,
    pub(super) gate: &'a Arc<Gate>,
    /// Number of its pipeline at the gate.
    pub(super) line: u32,
    pub stop: &'a Arc<AtomicBool>,
}

impl Run<'_> {
    fn inputs(&self) -> Inputs<'_> {
        Inputs { args: self.args, flow: self.flow, video: self.video, layout: &self.conversion.layout, stop: self.stop }
    }
    fn settings(&self, sinks: &Sinks) -> Settings {
        Settings {
            output: self.conversion.output(),
            incomplete: self.args.incomplete.into(),
            frames: frames(sinks),
            redundancy: self.args.redundancy.unwrap_or_default(),
            level: self.args.kernel.map(Into::into),
            windows: sinks.windows(),
        }
    }
    /// For a pipeline of the CPU.
    fn deliver(&self, sinks: &Sinks) -> Deliver<Host> {
        self.gate.clone().deliver(self.line, sinks.offers(), self.stop.clone())
    }
}

impl Engine {
    /// Prepares everything but the legs.
    ///
    /// # Errors
    /// No memory; on a GPU that is required, whatever it lacks.
    pub fn open(run: &Run<'_>, chosen: Found, opened: Opened, sinks: &mut Sinks) -> Result<Self> {
        let Opened { receiver, more, legs, mut passed } = opened;
        let receivers = (receiver, more);
        #[cfg(feature = "cuda")]
        let ((receiver, more), gpu) = match &chosen.gpu {
            None => (receivers, chosen.why),
            Some(device) => match on_gpu(run, device, receivers, sinks) {
                Ok(kind) => {
                    let mib = device.budget().used() >> 20;
                    let short = if kind.has_sockets() { short_ring(run) } else { String::new() };
                    let gpu = format!("{}, {mib} MiB of its memory in use{short}", chosen.why);
                    return Ok(Engine { kind, gpu, passed, legs, device: chosen.gpu });
                }
                Err(refused) if run.args.needs_gpu() => return Err(refused.error),
                Err(refused) => (refused.receiver, format!("not used: {}", refused.error)),
            },
        };
        #[cfg(not(feature = "cuda"))]
        let ((receiver, more), gpu) = (receivers, chosen.why);
        let receiver = run.inputs().in_host(receiver, &mut passed)?;
        sinks.without_gpu(run)?;
        let mut pipeline = HostPipeline::open(receiver, run.flow, &run.settings(sinks), run.deliver(sinks))?;
        pipeline.observe(run.gate.clone().observe());
        for receiver in more {
            pipeline.add(receiver).map_err(|(error, _)| error)?;
        }
        #[cfg(feature = "cuda")]
        let device = None;
        Ok(Engine {
            kind: Kind::Cpu(Box::new(pipeline)),
            gpu,
            passed,
            legs,
            #[cfg(feature = "cuda")]
            device,
        })
    }

    /// One more for sinks that have a pipeline already; on the GPU where that is. `later`: the sinks come later.
    ///
    /// # Errors
    /// No memory.
    #[cfg(feature = "daemon")]
    pub fn beside(
        run: &Run<'_>,
        chosen: Found,
        opened: Opened,
        sinks: &Sinks,
        later: Option<Offers<Host>>,
    ) -> Result<Self> {
        let Opened { receiver, more, legs, mut passed } = opened;
        #[cfg(feature = "cuda")]
        if let Some(device) = &chosen.gpu {
            let settings = Settings { frames: POOL + sinks.held_by_same_device(), ..run.settings(sinks) };
            let opened = gpu_pipeline(run, device, (receiver, more), &settings, &sinks.same_device_offers());
            let (mut kind, _) = opened.map_err(|refused| refused.error)?;
            kind.observe(run.gate.clone().observe());
            return Ok(Engine { kind, gpu: chosen.why, passed, legs, device: chosen.gpu });
        }
        let receiver = run.inputs().in_host(receiver, &mut passed)?;
        let deliver = run.gate.clone().deliver(run.line, later.unwrap_or_else(|| sinks.offers()), run.stop.clone());
        let mut pipeline = HostPipeline::open(receiver, run.flow, &run.settings(sinks), deliver)?;
        pipeline.observe(run.gate.clone().observe());
        for receiver in more {
            pipeline.add(receiver).map_err(|(error, _)| error)?;
        }
        Ok(Engine {
            kind: Kind::Cpu(Box::new(pipeline)),
            gpu: chosen.why,
            passed,
            legs,
            #[cfg(feature = "cuda")]
            device: None,
        })
    }

    /// The timing of the sender is to be measured.
    pub fn meter(&mut self, flow: &Flow, rules: Rules) -> Metering {
        let source = self.caps().1.stamps;
        match &mut self.kind {
            Kind::Cpu(pipeline) => pipeline.meter(flow, source, rules),
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => pipeline.meter(flow, source, rules),
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            Kind::Direct(pipeline) => pipeline.meter(flow, source, rules),
        }
    }
    /// Copies by different legs are to be compared.
    ///
    /// # Errors
    /// There is one leg, or copies cannot be compared where they lie.
    pub fn compare_legs(&mut self, run: &Run<'_>) -> Result<()> {
        let refused =
            |kind, what: &str, cure: &str| Err(Error::new(kind, format!("--compare-legs: {what}")).cure(cure));
        if run.flow.legs.len() < 2 {
            return refused(error::Kind::Usage, "this flow has one leg", "leave it out, or give an SDP with two legs");
        }
        let numbers = match report::packet_rate(run.flow, run.video) {
            0 => COMPARED,
            // Legs lie apart by half a second at most.
            rate => u32::try_from(rate / 2).unwrap_or(COMPARED),
        };
        let payload_type = run.flow.payload_type;
        let shared = match &mut self.kind {
            Kind::Cpu(pipeline) => {
                pipeline.compare_legs(payload_type, numbers);
                pipeline.receivers().any(|receiver| is_shared(receiver.ring()))
            }
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => {
                pipeline.compare_legs(payload_type, numbers);
                pipeline.receivers().any(|receiver| is_shared(receiver.ring()))
            }
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            Kind::Direct(_) => {
                let what = "payload lies in memory of the GPU, which the CPU cannot read";
                return refused(error::Kind::Unavailable, what, "receive into memory of the host: --gpu off");
            }
        };
        match shared {
            true => refused(
                error::Kind::Unavailable,
                "both legs share one ring, where one copy overwrites the other",
                "give each leg a ring of its own: --rivermax order=arrival",
            ),
            false => Ok(()),
        }
    }

    /// One receiver more, before the first step.
    fn add(&mut self, receiver: HostReceiver) -> Result<()> {
        match &mut self.kind {
            Kind::Cpu(pipeline) => pipeline.add(receiver).map_err(|(error, _)| error),
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => match &self.device {
                Some(device) => add_on_gpu(pipeline, device, receiver).map_err(|(error, _)| error),
                None => Err(Error::new(error::Kind::Internal, "a GPU that is not known")),
            },
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            Kind::Direct(_) => Err(Error::new(error::Kind::Internal, "a second receiver in memory of the GPU")),
        }
    }
    fn on_gpu(&self) -> bool {
        !matches!(self.kind, Kind::Cpu(_))
    }

    /// Begins to receive. A leg whose interface does not do with AF_XDP comes by a socket, where another leg has AF_XDP.
    ///
    /// # Errors
    /// As of [`Receiver::join`].
    pub fn join_all(&mut self, run: &Run<'_>) -> Result<()> {
        let mut refused = Vec::new();
        let mut joined = 0;
        for (number, leg) in run.flow.legs.iter().enumerate() {
            let receiver = self.legs.get(number).copied().unwrap_or(0);
            let Some(backend) = self.receivers().get(receiver).map(|caps| caps.backend) else { continue };
            match self.join(receiver, number, leg) {
                Ok(()) => joined += usize::from(backend == "xdp"),
                Err(error) if backend == "xdp" => refused.push((number, leg, error)),
                Err(error) => return Err(error),
            }
        }
        for (number, leg, error) in refused {
            if joined == 0 {
                return Err(error);
            }
            let reason = format!("leg {number} comes by a socket: {}", error.in_one_line());
            self.passed.push(Passed { backend: "xdp", reason });
            let sockets = self.receivers().iter().position(|caps| caps.backend == "socket");
            let receiver = match sockets {
                Some(receiver) => receiver,
                None => {
                    self.add(run.inputs().socket(self.on_gpu())?)?;
                    self.receivers().len() - 1
                }
            };
            self.join(receiver, number, leg)?;
        }
        if self.receivers().len() > 1 {
            match &mut self.kind {
                Kind::Cpu(pipeline) => pipeline.discard(),
                #[cfg(feature = "cuda")]
                Kind::Gpu(pipeline) => pipeline.discard(),
                #[cfg(all(feature = "cuda", feature = "bypass"))]
                Kind::Direct(pipeline) => pipeline.discard(),
            }
        }
        Ok(())
    }

    fn join(&mut self, receiver: usize, number: usize, leg: &Leg) -> Result<()> {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        let joined = match &mut self.kind {
            Kind::Cpu(pipeline) => pipeline.receivers_mut().nth(receiver).map(|r| r.join(number, leg)),
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => pipeline.receivers_mut().nth(receiver).map(|r| r.join(number, leg)),
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            Kind::Direct(pipeline) => pipeline.receivers_mut().nth(receiver).map(|r| r.join(number, leg)),
        };
        joined.unwrap_or(Ok(()))
    }

    fn receivers(&self) -> Vec<&Caps> {
        match &self.kind {
            Kind::Cpu(pipeline) => pipeline.receivers().map(Receiver::caps).collect(),
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => pipeline.receivers().map(Receiver::caps).collect(),
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            Kind::Direct(pipeline) => pipeline.receivers().map(Receiver::caps).collect(),
        }
    }
    /// Of the receivers; where there are several, their notes say whose they are.
    pub fn caps(&self) -> (String, Caps) {
        let all = self.receivers();
        let name = all.iter().map(|caps| caps.backend).collect::<Vec<_>>().join(", ");
        let mut sum = all.first().map(|caps| (*caps).clone()).unwrap_or_default();
        if all.len() > 1 {
            let notes = all.iter().flat_map(|caps| caps.notes.iter().map(|note| format!("{}: {note}", caps.backend)));
            sum.notes = notes.collect();
            // What one of them cannot carry is not told of all.
            if let Some(other) = all.iter().map(|caps| caps.stamps).find(|s| *s != Source::Hardware) {
                sum.stamps = other;
            }
            sum.buffer_octets = all.iter().map(|caps| caps.buffer_octets).filter(|o| *o > 0).min().unwrap_or(0);
        }
        (name, sum)
    }
    /// Memory that was taken.
    pub fn memory(&self) -> Memory {
        match &self.kind {
            Kind::Cpu(pipeline) => pipeline.memory(),
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => pipeline.memory(),
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            Kind::Direct(pipeline) => pipeline.memory(),
        }
    }
    /// Frames are finished on a GPU.
    pub const fn is_on_gpu(&self) -> bool {
        !matches!(self.kind, Kind::Cpu(_))
    }
    /// Where frames are made: the GPU's name, or `cpu`.
    pub fn processor(&self) -> String {
        #[cfg(feature = "cuda")]
        if let (true, Some(gpu)) = (self.is_on_gpu(), &self.device) {
            return gpu.name().to_owned();
        }
        "cpu".to_owned()
    }
    /// Its name, and what else there is to say.
    pub fn kernel(&self) -> (&'static str, String) {
        match &self.kind {
            Kind::Cpu(pipeline) => (pipeline.kernel_name(), pipeline.describe_kernel()),
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => (pipeline.kernel_name(), pipeline.describe_kernel()),
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            Kind::Direct(pipeline) => (pipeline.kernel_name(), pipeline.describe_kernel()),
        }
    }

    /// For the worker. A GPU that is lost is followed by the CPU, unless the GPU is required, a sink can take no frames
    /// but those of the GPU, or packets lie in its memory.
    pub fn into_stepper(self, run: &Run<'_>, sinks: &Sinks) -> Box<dyn Stepper> {
        let _ = (run, sinks);
        match self.kind {
            Kind::Cpu(pipeline) => pipeline,
            #[cfg(all(feature = "cuda", feature = "bypass"))]
            Kind::Direct(pipeline) => pipeline,
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) if run.args.needs_gpu() || sinks.need_gpu() => pipeline,
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => Box::new(Moving::new(*pipeline, &run.settings(sinks), run.deliver(sinks))),
        }
    }
}

/// A warning where the ring of sockets is shorter than the time for which a GPU may hold what lies in it.
#[cfg(feature = "cuda")]
fn short_ring(run: &Run<'_>) -> String {
    let packets = report::packet_rate(run.flow, run.video);
    let holds = socket::MAX_CELLS as f64 * 1e3 / packets.max(1) as f64;
    if run.args.pcap.is_some() || holds >= super::HOLD.as_secs_f64() * 1e3 {
        return String::new();
    }
    format!("; warning: the ring holds {holds:.1} ms of datagrams that come one by one, merged ones (GRO) are needed")
}

#[cfg(feature = "cuda")]
impl Kind {
    /// The ring's length was not chosen for a GPU.
    fn has_sockets(&self) -> bool {
        matches!(self, Kind::Gpu(pipeline) if pipeline.receivers().any(|r| r.caps().backend == "socket"))
    }
    fn observe(&mut self, observe: Observe) {
        match self {
            Kind::Cpu(pipeline) => pipeline.observe(observe),
            Kind::Gpu(pipeline) => pipeline.observe(observe),
            #[cfg(feature = "bypass")]
            Kind::Direct(pipeline) => pipeline.observe(observe),
        }
    }
    fn into_receivers(self) -> Receivers {
        match self {
            Kind::Cpu(pipeline) => in_host(pipeline.into_receivers()),
            Kind::Gpu(pipeline) => in_host(unregistered(*pipeline)),
            #[cfg(feature = "bypass")]
            Kind::Direct(pipeline) => (Receiving::Device(pipeline.into_receivers().remove(0)), Vec::new()),
        }
    }
}

/// The first one, and the others.
#[cfg(feature = "cuda")]
type Receivers = (Receiving, Vec<HostReceiver>);

#[cfg(feature = "cuda")]
fn in_host(mut receivers: Vec<HostReceiver>) -> Receivers {
    let more = receivers.split_off(1);
    (Receiving::Host(receivers.remove(0)), more)
}

#[cfg(feature = "cuda")]
fn unregistered(pipeline: GpuPipeline) -> Vec<HostReceiver> {
    pipeline.into_receivers().into_iter().map(Registered::into_inner).collect()
}

/// One receiver more, whose ring is registered; gives it back where that fails.
#[cfg(feature = "cuda")]
#[allow(clippy::result_large_err)]
fn add_on_gpu(
    pipeline: &mut GpuPipeline,
    gpu: &Arc<Gpu>,
    receiver: HostReceiver,
) -> std::result::Result<(), (Error, HostReceiver)> {
    let registered = Registered::new(receiver, gpu)?;
    pipeline.add(registered).map_err(|(error, receiver)| (error, receiver.into_inner()))
}

/// A pipeline on the GPU; or the reason why there is none, and the receiver as it was.
#[cfg(feature = "cuda")]
#[allow(clippy::result_large_err)]
fn on_gpu(
    run: &Run<'_>,
    gpu: &Arc<Gpu>,
    receivers: Receivers,
    sinks: &mut Sinks,
) -> std::result::Result<Kind, Refused<Receivers>> {
    // The sinks need the memory that frames lie in, so they come after the pipeline and before its first frame.
    let offers = sinks.device_offers();
    let settings = Settings { frames: POOL + sinks.held_by_device(run.args), ..run.settings(sinks) };
    let (mut kind, slab) = gpu_pipeline(run, gpu, receivers, &settings, &offers)?;
    match sinks.add_device(run, gpu, &slab, &offers) {
        Ok(()) => {
            kind.observe(run.gate.clone().observe());
            Ok(kind)
        }
        Err(error) => Err(Refused { error, receiver: kind.into_receivers() }),
    }
}

/// The same without its sinks, and where its frames lie.
#[cfg(feature = "cuda")]
#[allow(clippy::result_large_err)]
fn gpu_pipeline(
    run: &Run<'_>,
    gpu: &Arc<Gpu>,
    (receiver, more): Receivers,
    settings: &Settings,
    offers: &Offers<Device>,
) -> std::result::Result<(Kind, Arc<Slab>), Refused<Receivers>> {
    if let Some(mib) = run.args.gpu_memory {
        gpu.budget().set_limit(mib.saturating_mul(1 << 20));
    }
    let deliver = run.gate.clone().deliver(run.line, offers.clone(), run.stop.clone());
    let options = Options::default();
    match receiver {
        Receiving::Host(receiver) => match GpuPipeline::open(receiver, run.flow, gpu, settings, options, None, deliver)
        {
            Ok((mut pipeline, frames)) => {
                let mut more = more.into_iter();
                while let Some(receiver) = more.next() {
                    if let Err((error, receiver)) = add_on_gpu(&mut pipeline, gpu, receiver) {
                        let mut all = unregistered(pipeline);
                        all.push(receiver);
                        all.extend(more);
                        return Err(Refused { error, receiver: in_host(all) });
                    }
                }
                Ok((Kind::Gpu(Box::new(pipeline)), frames.slab().clone()))
            }
            Err(Refused { error, receiver }) => Err(Refused { error, receiver: (Receiving::Host(receiver), more) }),
        },
        #[cfg(feature = "bypass")]
        Receiving::Device(receiver) => {
            match GpuPipeline::over(receiver, run.flow, gpu, settings, options, None, deliver) {
                Ok((pipeline, frames)) => Ok((Kind::Direct(Box::new(pipeline)), frames.slab().clone())),
                Err(Refused { error, receiver }) => {
                    Err(Refused { error, receiver: (Receiving::Device(receiver), more) })
                }
            }
        }
    }
}
