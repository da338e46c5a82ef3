//! What does the work: a pipeline on a GPU where one is to be used and can be, else on the CPU; and why.

use super::backend::{Inputs, Opened, Passed};
#[cfg(feature = "cuda")]
use super::report;
use super::sinks::Sinks;
use super::{Args, Gate};
use gdmedia::error::{self, Error, Result};
use gdmedia::gpu::{self, Choice, Found};
use gdmedia::kernel::{Conversion, Level};
use gdmedia::mem::Host;
use gdmedia::pipeline::{Deliver, HostPipeline, Settings};
#[cfg(feature = "cuda")]
use gdmedia::rx::socket;
use gdmedia::rx::{Caps, Receiver};
use gdmedia::sdp::{Flow, Leg, Video};
use gdmedia::worker::Stepper;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[cfg(all(feature = "cuda", feature = "rivermax"))]
use gdmedia::mem::Device;
#[cfg(feature = "cuda")]
use {
    super::backend::Receiving,
    gdmedia::gpu::Gpu,
    gdmedia::kernel::cuda::Options,
    gdmedia::pipeline::{GpuPipeline, Moving, Observe, Refused},
};

/// Frames of the pipeline alone: being filled, kept for concealment.
const POOL: usize = 6;

/// A pipeline that is ready.
pub struct Engine {
    kind: Kind,
    /// For the start block: the GPU, or why none is used.
    pub gpu: String,
    /// Backends that are not used, and why.
    pub passed: Vec<Passed>,
}

enum Kind {
    Cpu(Box<HostPipeline>),
    #[cfg(feature = "cuda")]
    Gpu(Box<GpuPipeline>),
    /// The ring lies in memory of the GPU, which nothing can take the place of.
    #[cfg(all(feature = "cuda", feature = "rivermax"))]
    Direct(Box<DirectPipeline>),
}

#[cfg(all(feature = "cuda", feature = "rivermax"))]
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

/// What a run consists of, besides its sinks.
pub struct Run<'a> {
    pub args: &'a Args,
    pub flow: &'a Flow,
    pub video: &'a Video,
    pub conversion: &'a Conversion,
    pub gate: &'a Arc<Gate>,
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
            frames: POOL + sinks.held(),
            level: self.args.kernel.map(Into::into),
            windows: sinks.windows(),
        }
    }
    /// For a pipeline of the CPU.
    fn deliver(&self, sinks: &Sinks) -> Deliver<Host> {
        self.gate.clone().deliver(sinks.offers(), self.stop.clone())
    }
}

impl Engine {
    /// Prepares everything but the legs.
    ///
    /// # Errors
    /// No memory; on a GPU that is required, whatever it lacks.
    pub fn open(run: &Run<'_>, chosen: Found, opened: Opened, sinks: &mut Sinks) -> Result<Self> {
        let Opened { receiver, mut passed } = opened;
        #[cfg(feature = "cuda")]
        let (receiver, gpu) = match &chosen.gpu {
            None => (receiver, chosen.why),
            Some(device) => match on_gpu(run, device, receiver, sinks) {
                Ok(kind) => {
                    let mib = device.budget().used() >> 20;
                    let short = if kind.has_sockets() { short_ring(run) } else { String::new() };
                    let gpu = format!("{}, {mib} MiB of its memory in use{short}", chosen.why);
                    return Ok(Engine { kind, gpu, passed });
                }
                Err(refused) if run.args.needs_gpu() => return Err(refused.error),
                Err(refused) => (refused.receiver, format!("not used: {}", refused.error)),
            },
        };
        #[cfg(not(feature = "cuda"))]
        let gpu = chosen.why;
        let receiver = run.inputs().in_host(receiver, &mut passed)?;
        sinks.without_gpu(run)?;
        let mut pipeline = HostPipeline::open(receiver, run.flow, &run.settings(sinks), run.deliver(sinks))?;
        pipeline.observe(run.gate.clone().observe());
        Ok(Engine { kind: Kind::Cpu(Box::new(pipeline)), gpu, passed })
    }

    /// Begins to receive.
    ///
    /// # Errors
    /// As of [`Receiver::join`].
    pub fn join_all(&mut self, legs: &[Leg]) -> Result<()> {
        match &mut self.kind {
            Kind::Cpu(pipeline) => pipeline.receiver_mut().join_all(legs),
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => pipeline.receiver_mut().join_all(legs),
            #[cfg(all(feature = "cuda", feature = "rivermax"))]
            Kind::Direct(pipeline) => pipeline.receiver_mut().join_all(legs),
        }
    }
    /// Of the receiver.
    pub fn caps(&self) -> &Caps {
        match &self.kind {
            Kind::Cpu(pipeline) => pipeline.receiver().caps(),
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => pipeline.receiver().caps(),
            #[cfg(all(feature = "cuda", feature = "rivermax"))]
            Kind::Direct(pipeline) => pipeline.receiver().caps(),
        }
    }
    /// Its name, and what else there is to say.
    pub fn kernel(&self) -> (&'static str, String) {
        match &self.kind {
            Kind::Cpu(pipeline) => (pipeline.kernel_name(), pipeline.describe_kernel()),
            #[cfg(feature = "cuda")]
            Kind::Gpu(pipeline) => (pipeline.kernel_name(), pipeline.describe_kernel()),
            #[cfg(all(feature = "cuda", feature = "rivermax"))]
            Kind::Direct(pipeline) => (pipeline.kernel_name(), pipeline.describe_kernel()),
        }
    }

    /// For the worker. A GPU that is lost is followed by the CPU, unless the GPU is required, a sink can take no frames
    /// but those of the GPU, or packets lie in its memory.
    pub fn into_stepper(self, run: &Run<'_>, sinks: &Sinks) -> Box<dyn Stepper> {
        let _ = (run, sinks);
        match self.kind {
            Kind::Cpu(pipeline) => pipeline,
            #[cfg(all(feature = "cuda", feature = "rivermax"))]
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
        matches!(self, Kind::Gpu(pipeline) if pipeline.receiver().caps().backend == "socket")
    }
    fn observe(&mut self, observe: Observe) {
        match self {
            Kind::Cpu(pipeline) => pipeline.observe(observe),
            Kind::Gpu(pipeline) => pipeline.observe(observe),
            #[cfg(feature = "rivermax")]
            Kind::Direct(pipeline) => pipeline.observe(observe),
        }
    }
    fn into_receiver(self) -> Receiving {
        match self {
            Kind::Cpu(pipeline) => Receiving::Host(pipeline.into_receivers().remove(0)),
            Kind::Gpu(pipeline) => Receiving::Host(pipeline.into_receivers().remove(0).into_inner()),
            #[cfg(feature = "rivermax")]
            Kind::Direct(pipeline) => Receiving::Device(pipeline.into_receivers().remove(0)),
        }
    }
}

/// A pipeline on the GPU; or the reason why there is none, and the receiver as it was.
#[cfg(feature = "cuda")]
#[allow(clippy::result_large_err)]
fn on_gpu(
    run: &Run<'_>,
    gpu: &Arc<Gpu>,
    receiver: Receiving,
    sinks: &mut Sinks,
) -> std::result::Result<Kind, Refused<Receiving>> {
    if let Some(mib) = run.args.gpu_memory {
        gpu.budget().set_limit(mib.saturating_mul(1 << 20));
    }
    // The sinks need the memory that frames lie in, so they come after the pipeline and before its first frame.
    let offers = sinks.device_offers();
    let deliver = run.gate.clone().deliver(offers.clone(), run.stop.clone());
    let settings = Settings { frames: POOL + sinks.held_by_device(run.args), ..run.settings(sinks) };
    let options = Options::default();
    let (mut kind, frames) = match receiver {
        Receiving::Host(receiver) => {
            match GpuPipeline::open(receiver, run.flow, gpu, &settings, options, None, deliver) {
                Ok((pipeline, frames)) => (Kind::Gpu(Box::new(pipeline)), frames),
                Err(Refused { error, receiver }) => {
                    return Err(Refused { error, receiver: Receiving::Host(receiver) });
                }
            }
        }
        #[cfg(feature = "rivermax")]
        Receiving::Device(receiver) => {
            match GpuPipeline::over(receiver, run.flow, gpu, &settings, options, None, deliver) {
                Ok((pipeline, frames)) => (Kind::Direct(Box::new(pipeline)), frames),
                Err(Refused { error, receiver }) => {
                    return Err(Refused { error, receiver: Receiving::Device(receiver) });
                }
            }
        }
    };
    match sinks.add_device(run, gpu, frames.slab(), &offers) {
        Ok(()) => {
            kind.observe(run.gate.clone().observe());
            Ok(kind)
        }
        Err(error) => Err(Refused { error, receiver: kind.into_receiver() }),
    }
}
