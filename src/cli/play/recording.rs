//! A recording in place of a stream: `gdmedia play FOLDER`.

use super::engine::{self, Run};
use super::gate::Gate;
use super::session::{self, Line, Plan, Session};
use super::time::{self, Time};
use super::{Args, Follow, Pace, Start, accompany, limits, report, sinks};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::frame::FramePool;
use gdmedia::gpu::Found;
use gdmedia::latency;
use gdmedia::mem::Host;
use gdmedia::record::Recording;
use gdmedia::record::playback::{self, HostLoad, Playback};
use gdmedia::record::wire::Decoder;
use gdmedia::worker::{Seat, Stepper, Worker};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};

/// Between two looks whether a frame is due, or memory free.
const PAUSE: Duration = Duration::from_millis(1);

/// What is for packets has no place here.
fn refuse(args: &Args) -> Result<()> {
    let given = [
        (args.pcap.is_some(), "--pcap"),
        (args.tap.is_some(), "--tap"),
        (args.fault.is_some(), "--fault"),
        (args.timing, "--timing"),
        (args.compare_legs, "--compare-legs"),
        (args.redundancy.is_some(), "--redundancy"),
        (args.rivermax.is_some(), "--rivermax"),
        (args.verbs.is_some(), "--verbs"),
        (args.dpdk.is_some(), "--dpdk"),
        (args.xdp.is_some(), "--xdp"),
        (args.flow.is_some(), "--flow"),
    ];
    match given.into_iter().find(|(given, _)| *given) {
        Some((_, name)) => Err(Error::new(Kind::Usage, format!("{name} is for packets, and a recording has frames"))
            .cure("leave it out; gdmedia send --from sends a recording as packets")),
        None => Ok(()),
    }
}

/// There is nothing to play.
pub fn nothing(path: &Path) -> Error {
    Error::new(Kind::Data, format!("{} holds no whole frame", path.display()))
        .cure("give another recording; gdmedia record --check says what is wrong with this one")
}

/// Plays it.
pub fn play(mut args: Args, path: &Path, follow: &mut dyn Follow, stop: Arc<AtomicBool>) -> Result<ExitCode> {
    refuse(&args)?;
    let recording = Recording::open(path)?;
    let header = recording.header().clone();
    if recording.frames() == 0 {
        return Err(nothing(path));
    }
    args.recorded = Some(header.layout.output);
    let (flow, video) = (&header.flow, header.video()?);
    let time = Time::open(&args, flow)?;
    args.utc_offset = time.offset().seconds;
    let args = Arc::new(args);
    let chosen = engine::choose(&args)?;
    let prepared = sinks::prepare(&args, video, &header.layout.wire, chosen.gpu.as_ref())?;
    let layout = session::layout(header.layout.wire, prepared.output)?;
    let conversion = session::conversion(video, layout);
    let decoder = Decoder::new(&header, &conversion.layout, conversion.colour)?;
    let (probe, latency) = latency::channel(time::media(flow, video));
    let mut sinks = sinks::build(&args, prepared, flow, video, &conversion, &probe, chosen.gpu.is_some())?;
    let gate = Arc::new(Gate::new(args.frames, probe));
    let plan = Plan { args, flow: flow.clone(), video: video.clone(), conversion, gate, line: 0, stop };
    limits::check(&plan.conversion.layout, engine::frames(&sinks))?;
    let what = described(path, &recording);
    let gpu = chosen.gpu.clone();
    let Played { stepper, how, gpu: on_gpu, device } = stepper(&plan.run(), chosen, recording, decoder, &mut sinks)?;
    let start = Start::of_recording(&plan.run(), &what, &how, &on_gpu, &sinks);
    let worker = Worker::spawn(stepper, PAUSE, plan.args.core, plan.stop.clone())?;
    let line = Line {
        seat: Seat::own(plan.args.core),
        plan,
        worker: Some(worker),
        metering: None,
        backend: String::new(),
        processor: on_gpu,
        on_gpu: device,
        share: None,
    };
    let gpu = gpu.filter(|_| device);
    accompany(Session::of(line, start, sinks, latency, time, gpu), follow)
}

/// What is said of a recording.
fn described(path: &Path, recording: &Recording) -> (Vec<String>, serde_json::Value) {
    let (frames, segments) = (recording.frames(), recording.segments().len());
    let created = gdmedia::time::utc(UNIX_EPOCH + Duration::from_nanos(recording.header().created));
    let word = recording.header().layout.output.word();
    let first = format!("{}: {frames} frames as {word} in {segments} segments, begun {created}", path.display());
    let json = json!({ "path": path, "frames": frames, "segments": segments, "created": created, "layout": word });
    (std::iter::once(first).chain(recording.remarks()).collect(), json)
}

/// What plays.
struct Played {
    stepper: Box<dyn Stepper>,
    how: String,
    /// The GPU, or why none is used.
    gpu: String,
    device: bool,
}

fn pace(args: &Args) -> playback::Pace {
    match args.pace {
        Pace::Full => playback::Pace::Full,
        Pace::Recorded => playback::Pace::Recorded,
    }
}

/// On the GPU where frames lie there as they are recorded, else on the CPU.
fn stepper(
    run: &Run<'_>,
    chosen: Found,
    recording: Recording,
    decoder: Decoder,
    sinks: &mut sinks::Sinks,
) -> Result<Played> {
    #[cfg(feature = "cuda")]
    let (recording, why) = match &chosen.gpu {
        None => (recording, chosen.why),
        Some(_) if recording.header().layout != run.conversion.layout => {
            let word = recording.header().layout.output.word();
            let why = format!("frames are recorded as {word} and unpacked on the CPU");
            if run.args.needs_gpu() {
                return Err(Error::new(Kind::Usage, why)
                    .cure(format!("leave --gpu out, or take them as they are (--output {word})")));
            }
            (recording, format!("not used: {why}"))
        }
        Some(gpu) => match on_gpu(run, gpu, &recording, sinks) {
            Ok((load, deliver)) => {
                let how = load.describe();
                let stepper = Box::new(Playback::new(recording, Box::new(load), pace(run.args), deliver));
                return Ok(Played { stepper, how, gpu: chosen.why, device: true });
            }
            Err(error) if run.args.needs_gpu() => return Err(error),
            Err(error) => (recording, format!("not used: {}", error.in_one_line())),
        },
    };
    #[cfg(not(feature = "cuda"))]
    let why = chosen.why;
    sinks.without_gpu(run)?;
    let pool = FramePool::<Host>::host(run.conversion.layout.clone(), engine::frames(sinks))?;
    let how = format!("{}, to {}", decoder.describe(), report::layout_name(&run.conversion.layout));
    let deliver = run.gate.clone().deliver(run.line, sinks.offers(), run.stop.clone());
    let stepper = Box::new(Playback::new(recording, Box::new(HostLoad::new(decoder, pool)), pace(run.args), deliver));
    Ok(Played { stepper, how, gpu: why, device: false })
}

#[cfg(feature = "cuda")]
fn on_gpu(
    run: &Run<'_>,
    gpu: &Arc<gdmedia::gpu::Gpu>,
    recording: &Recording,
    sinks: &mut sinks::Sinks,
) -> Result<(gdmedia::record::DeviceLoad, gdmedia::pipeline::Deliver<gdmedia::mem::Device>)> {
    use gdmedia::pipeline::GpuFrames;
    if let Some(mib) = run.args.gpu_memory {
        gpu.budget().set_limit(mib.saturating_mul(1 << 20));
    }
    let count = engine::frames_of_pipeline() + sinks.held_by_device(run.args);
    let frames = GpuFrames::new(gpu, run.conversion.layout.clone(), count)?;
    let way = run.args.recording().way;
    let load = gdmedia::record::DeviceLoad::new(gpu, recording, frames.pool().clone(), frames.slab(), way)?;
    let offers = sinks.device_offers();
    let deliver = run.gate.clone().deliver(run.line, offers.clone(), run.stop.clone());
    sinks.add_device(run, gpu, frames.slab(), &offers)?;
    Ok((load, deliver))
}
