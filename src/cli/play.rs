//! `gdmedia play`: receive a flow; show, write and count it.

mod backend;
mod choose;
mod engine;
mod health;
mod limits;
mod overlay;
#[cfg(feature = "preview")]
mod preview;
#[cfg(not(feature = "preview"))]
#[path = "play/no_preview.rs"]
mod preview;
mod recording;
mod report;
mod sinks;
mod time;

use self::backend::Inputs;
use self::engine::Engine;
pub use self::engine::Run;
use self::health::{Said, Watch};
use self::overlay::Words;
pub use self::report::Start;
use self::report::Status;
use self::sinks::Sinks;
use self::time::Time;
use super::held::Held;
use super::usage::wanted;
use super::{same, stop};
use clap::ValueEnum;
use gdmedia::encode::Spec;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::fault::FaultPlan;
use gdmedia::format::{Layout, Output};
use gdmedia::frame::Frame;
use gdmedia::gpu::{Choice, Gpu};
use gdmedia::kernel::{self, Colour, Conversion};
use gdmedia::latency::{self, Probe, Recorder};
use gdmedia::mem::Space;
use gdmedia::merge::Class;
use gdmedia::pipeline::meter::{LegTiming, Metering};
use gdmedia::pipeline::{self, Deliver, Observe};
use gdmedia::plan::FEW_OPEN;
use gdmedia::record::{self, Limit, Way};
use gdmedia::rx::socket;
use gdmedia::sink::FileFormat;
use gdmedia::sink::export::Target;
use gdmedia::timing::Rules;
use gdmedia::worker::{Ended, Report, Worker};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// SDP of the stream: a file, `-` for standard input, or an http:// address; or a recording: a .gdr file, or its folder
    #[arg(long, value_name = "FILE|-|URL")]
    sdp: Option<String>,
    /// The same, without the option's name
    #[arg(value_name = "SDP", conflicts_with = "sdp")]
    input: Option<String>,
    /// Which flow of the SDP, by its number (`gdmedia sdp` lists them)
    #[arg(long, value_name = "N")]
    flow: Option<usize>,
    /// Read packets from a capture (pcap, pcapng, gzip) instead of the network
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Pace of a capture or a recording: as fast as possible, or as it was recorded
    #[arg(long, value_enum, default_value = "full")]
    pace: Pace,
    /// Clock of a capture: TAI (PTP time stamps of hardware) or UTC (software time stamps)
    #[arg(long, value_enum, default_value = "tai", requires = "pcap")]
    pcap_clock: CaptureClock,
    /// Where packets come from; auto takes the best that there is, and says why it is not another. One for each leg:
    /// xdp,socket; the last one counts for all further legs
    #[arg(long, value_enum, value_delimiter = ',', default_value = "auto", conflicts_with = "pcap")]
    backend: Vec<backend::Backend>,
    /// What Rivermax is told, for example split=26,order=extended,hold=40ms,stamps=synced,cores=2+3,events
    #[arg(long, value_name = "WORDS", conflicts_with = "pcap")]
    rivermax: Option<String>,
    /// What AF_XDP is told, for example mode=native,stamps=hardware,queue=3,steer,vlan=100,hold=200ms,busy-poll=20us,helper=/run/gdmedia-xdp
    #[arg(long, value_name = "WORDS", conflicts_with = "pcap")]
    xdp: Option<String>,
    /// Network interface, by name or address, for multicast; given twice: one for each leg
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Vec<String>,
    /// Show frames with this GStreamer fragment instead of a window
    #[arg(long, value_name = "FRAGMENT")]
    sink: Option<String>,
    /// Write format, rate, loss and latency over the window's picture; the key `o` shows and hides it
    #[arg(long, conflicts_with_all = ["sink", "headless", "out"])]
    overlay: bool,
    /// Neither window nor fragment: count, and write what --out and --snapshot say
    #[arg(long, conflicts_with = "sink")]
    headless: bool,
    /// Write frames to a file or to standard output; with --encode, to a file or a network
    #[arg(long, value_name = "FILE|-|URL")]
    out: Option<PathBuf>,
    /// Encode frames into --out (.mp4, .mov, .mkv, .ts, srt://host:port, rtp://host:port): h264, hevc, av1 or mjpeg, then
    /// options: h264,bitrate=20M,gop=50,preset=fast,rung=auto
    #[arg(long, value_name = "CODEC[,OPTIONS]", requires = "out", conflicts_with_all = ["sink", "format"])]
    encode: Option<Spec>,
    /// Container of --out; by default y4m where the name ends so, else raw
    #[arg(long, value_enum, requires = "out")]
    format: Option<Container>,
    /// Record frames as they are into this folder, in segments; no window then, and wire octets unless --output says otherwise
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// When a segment of a recording has enough: a size (10GiB) or a time (60s)
    #[arg(long, value_name = "SIZE|TIME", default_value = "10GiB")]
    segment: Limit,
    /// How a recording comes to the disk; auto takes the best that there is, and says why it is not another
    #[arg(long, value_enum, default_value = "auto")]
    way: RecordWay,
    /// Layout of the frames in memory; by default what the sinks want
    #[arg(long, value_enum, value_name = "LAYOUT")]
    output: Option<Pixels>,
    /// Show frames and status in a browser, at this address (an address, a port, or both; without one 127.0.0.1:8110, for
    /// this machine alone); by default where there is neither a display nor another sink
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:8110",
          value_parser = preview::address)]
    preview: Option<SocketAddr>,
    /// Columns of the preview's live picture, about
    #[arg(long, value_name = "N", default_value_t = 960, value_parser = clap::value_parser!(u32).range(16..=7680))]
    #[cfg_attr(not(feature = "preview"), allow(dead_code, reason = "the option says so"))]
    preview_width: u32,
    /// Pictures a second of the preview at most
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=60))]
    #[cfg_attr(not(feature = "preview"), allow(dead_code, reason = "the option says so"))]
    preview_rate: u32,
    /// Write one frame as a PNG picture
    #[arg(long, value_name = "FILE.png")]
    snapshot: Option<PathBuf>,
    /// Which frame --snapshot takes, counted from 0
    #[arg(long, value_name = "N", requires = "snapshot", default_value_t = 0)]
    at: u64,
    /// When the snapshot's name holds an n in braces: write every Nth frame, its number there
    #[arg(long, value_name = "N", requires = "snapshot", default_value_t = 25)]
    every: u64,
    /// Check the frame numbers that `gdmedia send` codes in its test pattern
    #[arg(long)]
    verify: bool,
    /// What to do with frames that lack octets
    #[arg(long, value_enum, default_value = "conceal")]
    incomplete: IncompleteArg,
    /// End after this time
    #[arg(long, alias = "for", value_name = "TIME", value_parser = super::duration)]
    duration: Option<Duration>,
    /// End after so many frames
    #[arg(long, value_name = "N")]
    frames: Option<u64>,
    /// Give up when no packet has come after this time (exit code 3); 0 waits for ever
    #[arg(long, value_name = "TIME", value_parser = super::duration, default_value = "10s")]
    wait: Duration,
    /// One JSON object a line on standard error instead of text
    #[arg(long)]
    json: bool,
    /// Seconds between status lines
    #[arg(long, value_name = "TIME", value_parser = super::duration, default_value = "1s")]
    interval: Duration,
    /// Also write every packet to a pcapng file
    #[arg(long, value_name = "FILE.pcapng")]
    tap: Option<PathBuf>,
    /// Impair reception on purpose: loss=1/1000,dup=1/500,reorder=32,seed=7, or a plan in FILE.toml (@FILE)
    #[arg(long, value_name = "PLAN")]
    fault: Option<String>,
    /// Compare the copies of packets that the legs bring, octet for octet: for a fault of the sender to be found
    #[arg(long)]
    compare_legs: bool,
    /// How far the legs of a flow may lie apart (ST 2022-7): class A (10 ms), B (50 ms), C (450 ms, or 150 ms from 270 Mbit/s
    /// on), D (150 us), or a time such as 25ms; A when not given
    #[arg(long, value_name = "A|B|C|D|TIME", value_parser = class)]
    redundancy: Option<Class>,
    /// Sleep between two drains of the socket; 0 spins (isolated core only)
    #[arg(long, value_name = "TIME", value_parser = super::duration, default_value = "1ms")]
    sleep: Duration,
    /// Pin the receiving thread to this core
    #[arg(long, value_name = "N")]
    core: Option<usize>,
    /// Socket buffer to ask for, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    buffer: usize,
    /// Seconds that TAI is ahead of UTC, where the kernel was not told; by default as PTP says, else 37
    #[arg(long, alias = "utc-offset", value_name = "SECONDS")]
    tai_offset: Option<i32>,
    /// The same, once it is known.
    #[arg(skip)]
    utc_offset: i32,
    /// How the verb is called, for those who called it wrong.
    #[arg(skip = "gdmedia")]
    called: &'static str,
    /// The input is a recording, of frames like this.
    #[arg(skip)]
    recorded: Option<Output>,
    /// Who stamps arrivals at sockets and by AF_XDP: the card, told to if need be (rights); software; or the card where it does so already
    #[arg(long, value_enum, default_value = "auto")]
    stamps: Stamps,
    /// Measure the sender's timing (ST 2110-21), as far as the stamps of the arrivals can carry it
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    held: Held,
    /// What timing is held against, once it is known.
    #[arg(skip)]
    rules: Rules,
    /// Conversion kernel of the CPU; by default the best that it has
    #[arg(long, value_enum)]
    kernel: Option<Level>,
    /// Offer frames in GPU memory to other processes, at a Unix socket that is made for it: cuda-ipc=PATH or dma-buf=PATH;
    /// needs a GPU
    #[arg(long, value_name = "KIND=PATH")]
    export: Option<Target>,
    /// GPU that frames are unpacked on: auto (the nearest, else the CPU), off, require, or its number
    #[arg(long, value_name = "auto|off|require|N", value_parser = gpu_choice, default_value = "auto")]
    gpu: Choice,
    /// GPU memory that this run may use at most, in MiB (GStreamer's elements take their own)
    #[arg(long, value_name = "MIB", value_parser = mebibytes)]
    gpu_memory: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Pace {
    Full,
    Recorded,
}

#[derive(Clone, Copy, ValueEnum)]
enum CaptureClock {
    Tai,
    Utc,
}

#[derive(Clone, Copy, ValueEnum)]
enum IncompleteArg {
    /// Missing octets show what the frame before showed there
    Conceal,
    /// Missing octets are painted
    Show,
    /// Incomplete frames are not delivered
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pixels {
    /// Octets as they came
    Wire,
    /// One plane a component
    Planar,
    P010,
    P210,
    Nv12,
    Uyvy,
    V210,
    Rgba,
    /// Planes of R, G and B, half floats from 0 to 1
    Rgb16f,
}

impl From<Pixels> for Output {
    fn from(pixels: Pixels) -> Self {
        match pixels {
            Pixels::Wire => Output::Wire,
            Pixels::Planar => Output::Planar,
            Pixels::P010 => Output::P010,
            Pixels::P210 => Output::P210,
            Pixels::Nv12 => Output::Nv12,
            Pixels::Uyvy => Output::Uyvy,
            Pixels::V210 => Output::V210,
            Pixels::Rgba => Output::Rgba,
            Pixels::Rgb16f => Output::Rgb16f,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum RecordWay {
    Auto,
    /// From memory of the GPU, past the CPU (GPUDirect Storage)
    Cufile,
    /// io_uring with O_DIRECT
    Uring,
    /// Through the page cache
    Pwrite,
}

impl From<RecordWay> for Way {
    fn from(way: RecordWay) -> Self {
        match way {
            RecordWay::Auto => Way::Auto,
            RecordWay::Cufile => Way::Cufile,
            RecordWay::Uring => Way::Uring,
            RecordWay::Pwrite => Way::Pwrite,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Stamps {
    Auto,
    Software,
    Hardware,
}

impl From<Stamps> for socket::Stamping {
    fn from(stamps: Stamps) -> Self {
        match stamps {
            Stamps::Auto => socket::Stamping::Auto,
            Stamps::Software => socket::Stamping::Software,
            Stamps::Hardware => socket::Stamping::Hardware,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Scalar,
    Ssse3,
    Avx2,
}

impl From<Level> for kernel::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Scalar => kernel::Level::Scalar,
            Level::Ssse3 => kernel::Level::Ssse3,
            Level::Avx2 => kernel::Level::Avx2,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Container {
    Y4m,
    Raw,
}

impl From<Container> for gdmedia::sink::FileFormat {
    fn from(container: Container) -> Self {
        match container {
            Container::Y4m => gdmedia::sink::FileFormat::Y4m,
            Container::Raw => gdmedia::sink::FileFormat::Raw,
        }
    }
}

impl From<IncompleteArg> for pipeline::Incomplete {
    fn from(arg: IncompleteArg) -> Self {
        match arg {
            IncompleteArg::Conceal => pipeline::Incomplete::Conceal,
            IncompleteArg::Show => pipeline::Incomplete::Show,
            IncompleteArg::Drop => pipeline::Incomplete::Drop,
        }
    }
}

impl Args {
    /// Everything on standard error is JSON.
    pub const fn json(&self) -> bool {
        self.json
    }
    /// The fault plan, if there is one.
    ///
    /// # Errors
    /// It is not understood.
    pub fn fault(&self) -> Result<Option<FaultPlan>> {
        self.fault.as_deref().map(FaultPlan::named).transpose()
    }
    /// Another verb than play takes these options.
    pub const fn called(&mut self, called: &'static str) {
        self.called = called;
    }
    /// Files that are read.
    pub fn inputs(&self) -> Vec<&Path> {
        let plan = self.fault.as_deref().and_then(gdmedia::rx::FaultPlan::file_of);
        [self.sdp().map(Path::new), self.pcap.as_deref(), plan, self.held.file()].into_iter().flatten().collect()
    }
    /// Files that are written.
    pub fn outputs(&self) -> Vec<&Path> {
        let export = self.export.as_ref().map(|target| target.path.as_path());
        let all = [self.out.as_deref(), self.tap.as_deref(), self.snapshot.as_deref(), export];
        all.into_iter().flatten().collect()
    }
    /// No window where none is asked for.
    pub fn count_only_by_default(&mut self) {
        self.headless |= self.sink.is_none();
    }
    /// Seconds that TAI is ahead of UTC, as arrivals are reckoned.
    pub const fn utc_offset(&self) -> i32 {
        self.utc_offset
    }
    /// The interface of a leg, where one is named.
    pub fn interface(&self, leg: usize) -> Option<&str> {
        self.interface.get(leg).or(self.interface.last()).map(String::as_str)
    }
    /// Records into this folder.
    pub fn record_to(&mut self, folder: PathBuf) {
        self.record = Some(folder);
    }
    /// It records.
    pub const fn records(&self) -> bool {
        self.record.is_some()
    }
    /// The GPU that `--gpu` asks for by name; none where it leaves the choice.
    ///
    /// # Errors
    /// It is not there.
    #[cfg(feature = "cuda")]
    pub fn gpu(&self) -> Result<Option<Arc<Gpu>>> {
        if self.gpu.required() { gdmedia::gpu::choose(self.gpu, None).map(|found| found.gpu) } else { Ok(None) }
    }
    /// `--out` takes frames of any layout.
    fn raw_out(&self) -> bool {
        let of_name = self.out.as_deref().map(FileFormat::of_path);
        self.format.map(FileFormat::from).or(of_name) == Some(FileFormat::Raw)
    }
    /// How to record.
    pub fn recording(&self) -> record::Options {
        record::Options { limit: self.segment, way: self.way.into() }
    }
    fn sdp(&self) -> Option<&str> {
        self.sdp.as_deref().or(self.input.as_deref())
    }
    /// Without a GPU the run fails.
    #[cfg(feature = "cuda")]
    fn needs_gpu(&self) -> bool {
        self.gpu.required() || self.export.is_some() || (self.record.is_some() && matches!(self.way, RecordWay::Cufile))
    }
    /// Between polls of this backend: one that waits by itself ends its wait when packets come.
    fn pause(&self, backend: &str) -> Duration {
        let events = self.rivermax.as_deref().is_some_and(|words| words.split(',').any(|word| word.trim() == "events"));
        if events && backend == "rivermax" { EVENTS } else { self.sleep }
    }
    /// Packets come from a network, now.
    const fn live(&self) -> bool {
        self.pcap.is_none() && self.recorded.is_none()
    }
    /// A capture at full speed can wait for its sinks, a network cannot.
    fn lossless(&self) -> bool {
        !self.live() && matches!(self.pace, Pace::Full)
    }
}

/// How long to wait for an event, so that a stop and silence are noticed in time.
const EVENTS: Duration = Duration::from_millis(20);
/// Frames that may wait for a sink.
const QUEUE: usize = 4;
/// Frames that a sink may have in hand besides.
const LENT: usize = 3;

/// More than none: who wants none has `--gpu off`.
fn mebibytes(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(0) => Err(wanted("no frame fits", "give a whole number of MiB, such as 512, or --gpu off for no GPU")),
        Ok(mib) => Ok(mib),
        Err(_) => Err(wanted("no whole number of MiB", "give one, such as 512")),
    }
}

fn class(text: &str) -> std::result::Result<Class, String> {
    text.parse().map_err(|why: String| wanted(why, "A, B, C or D, or a time from 1us to 10s, such as 25ms"))
}

fn gpu_choice(text: &str) -> std::result::Result<Choice, String> {
    text.parse().map_err(|why: String| wanted(why, "auto, off, require, or a number as nvidia-smi has it"))
}

/// What the command line's parser says, where everything is JSON.
pub fn usage_error(text: &str) {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let what = text.split("\n\n").next().unwrap_or_default();
    let (what, cure) = what.split_once("\n  cure: ").unwrap_or((what, "see gdmedia --help"));
    report::error(&Error::new(Kind::Usage, what.trim_end()).cure(cure.trim_end()));
}

/// Runs the verb.
pub fn run(args: Args) -> Result<ExitCode> {
    run_with(args, &mut Alone)
}

/// The same, followed.
pub fn run_with(mut args: Args, follow: &mut dyn Follow) -> Result<ExitCode> {
    let result = receive(&mut args, follow);
    told(result, args.json)
}

/// Where everything on standard error is JSON, so is an error.
pub fn told(result: Result<ExitCode>, json: bool) -> Result<ExitCode> {
    match result {
        Err(error) if json => {
            report::error(&error);
            Ok(ExitCode::from(error.kind().exit_code()))
        }
        result => result,
    }
}

/// Who follows a run besides the status line.
pub trait Follow {
    /// Packets are about to be received.
    ///
    /// # Errors
    /// It cannot follow.
    fn begin(&mut self, run: &Run<'_>, start: &Start) -> Result<()>;
    /// A status interval has ended.
    fn interval(&mut self, now: &mut Now<'_>);
    /// It cannot go on, so that the run is to end.
    fn failed(&self) -> bool;
    /// What is added to the status line.
    fn status(&self) -> Option<String>;
    /// The run has ended, for this reason; the exit code, when it was no failure.
    ///
    /// # Errors
    /// What it makes of it could not be written.
    fn end(&mut self, now: &mut Now<'_>, why: &str) -> Result<ExitCode>;
}

/// Where a run stands.
pub struct Now<'a> {
    pub report: &'a Report,
    pub sinks: &'a Sinks,
    pub latency: &'a mut Recorder,
    pub time: &'a Time,
    /// Octets of the GPU's memory that the run uses.
    pub gpu_memory: Option<u64>,
    /// What happened in the interval, in words.
    pub events: &'a [String],
    /// The sender's timing, leg by leg; empty where it is not measured.
    pub timing: Vec<LegTiming>,
}

/// Nobody does.
struct Alone;

impl Follow for Alone {
    fn begin(&mut self, _: &Run<'_>, _: &Start) -> Result<()> {
        Ok(())
    }
    fn interval(&mut self, _: &mut Now<'_>) {}
    fn failed(&self) -> bool {
        false
    }
    fn status(&self) -> Option<String> {
        None
    }
    fn end(&mut self, _: &mut Now<'_>, _: &str) -> Result<ExitCode> {
        Ok(ExitCode::SUCCESS)
    }
}

/// Receives until something ends it.
fn receive(args: &mut Args, follow: &mut dyn Follow) -> Result<ExitCode> {
    let stop = stop::install()?;
    same::refuse(&args.inputs(), &args.outputs())?;
    if let Some(path) = args.sdp().map(Path::new).filter(|path| record::Recording::is_at(path)) {
        let path = path.to_owned();
        return recording::play(args, &path, follow, &stop);
    }
    if args.pcap.is_none() && matches!(args.pace, Pace::Recorded) {
        return Err(Error::new(Kind::Usage, "--pace is for captures and recordings; a network has its own")
            .cure("leave it out, or give --pcap or a recording"));
    }
    if !args.timing && !args.held.is_empty() {
        return Err(
            Error::new(Kind::Usage, "limits of timing were given, and timing is not measured").cure("add --timing")
        );
    }
    args.rules.limits = args.held.limits()?;
    let description = choose::description(args.sdp(), args.pcap.as_deref(), args.called)?;
    let flow = choose::flow(&description, args.flow)?;
    let video = choose::video(flow, &description)?;
    let time = Time::open(args, flow)?;
    args.utc_offset = time.offset().seconds;
    let args = &*args;
    let wire = pipeline::wire(video)?;
    let chosen = engine::choose(args)?;
    let prepared = sinks::prepare(args, video, &wire, chosen.gpu.as_ref())?;
    let output = prepared.output;
    let layout = Layout::new(wire, output)
        .map_err(|e| Error::new(Kind::Usage, e.to_string()).cure("choose another --output, or leave it out"))?;
    let colour = Colour { colorimetry: video.colorimetry, tcs: video.tcs, range: video.range };

    let opened = Inputs { args, flow, video, layout: &layout, stop: &stop }.open(chosen.gpu.as_ref())?;
    let conversion = Conversion { layout, colour };
    let (probe, mut latency) = latency::channel(time::media(flow, video));
    let mut sinks = sinks::build(args, prepared, flow, video, &conversion, &probe, chosen.gpu.is_some())?;
    let gate = Arc::new(Gate::new(args.frames, probe));
    let run = Run { args, flow, video, conversion: &conversion, gate: &gate, stop: &stop };
    let config = pipeline::config(flow, args.redundancy.unwrap_or_default())?;
    limits::check(&conversion.layout, engine::frames(&sinks) + config.open_frames().saturating_sub(FEW_OPEN))?;
    let gpu = chosen.gpu.clone();
    let mut engine = Engine::open(&run, chosen, opened, &mut sinks)?;
    if args.compare_legs {
        engine.compare_legs(&run)?;
    }
    // Last: from here on the socket's buffer fills.
    engine.join_all(&run)?;
    let start = Start::new(&description, &run, &engine, &sinks, &time);
    start.print(args.json);
    latency.set_gpu(engine.is_on_gpu());
    let metering = args.timing.then(|| engine.meter(flow, args.rules));
    let pause = args.pause(&engine.caps().0);
    let stepper = engine.into_stepper(&run, &sinks);
    let worker = Worker::spawn(stepper, pause, args.core, stop.clone())?;
    follow.begin(&run, &start)?;
    accompany(&run, &start, worker, sinks, latency, time, gpu.as_ref(), metering, follow)
}

/// From the first frame to the last word.
#[allow(clippy::too_many_arguments, reason = "all that is watched")]
fn accompany(
    run: &Run<'_>,
    start: &Start,
    worker: Worker,
    mut sinks: Sinks,
    mut latency: Recorder,
    mut time: Time,
    gpu: Option<&Arc<Gpu>>,
    metering: Option<Metering>,
    follow: &mut dyn Follow,
) -> Result<ExitCode> {
    let Run { args, flow, gate, .. } = *run;
    let mut health = Watch::new(args, flow);
    let end = watch(run, &worker, &sinks, &mut latency, &mut time, gpu, metering.as_ref(), &mut health, follow);
    let (ended, report) = worker.join();
    let sunk = sinks.finish();
    for text in sinks.news() {
        report::tell(args.json, Said::recording(&text));
    }
    latency.finish(gate.probe.now());
    let outcome = match (end, ended) {
        (_, Ended::Failed(error)) => Err(error),
        (End::NoMedia, _) if args.recorded.is_some() => {
            Err(recording::nothing(Path::new(args.sdp().unwrap_or_default())))
        }
        (End::NoMedia, _) => Err(choose::no_media(args, flow, &report)),
        _ => sunk,
    };
    let name = if outcome.is_err() && end != End::NoMedia { "failed" } else { end.name() };
    if let (Err(error), true) = (&outcome, args.json) {
        report::error(error);
    }
    let timing = metering.as_ref().map(Metering::read).unwrap_or_default();
    report::summary(args.json, &report, &sinks, gate, &health, &latency, &timing, start, name);
    let gpu_memory = gpu.map(memory_of);
    let mut now =
        Now { report: &report, sinks: &sinks, latency: &mut latency, time: &time, gpu_memory, events: &[], timing };
    let followed = follow.end(&mut now, name);
    match outcome {
        // Told already: the summary is the last line.
        Err(error) if args.json => Ok(ExitCode::from(error.kind().exit_code())),
        outcome => outcome.and(followed),
    }
}

/// Octets that this run has of a GPU.
#[cfg(feature = "cuda")]
fn memory_of(gpu: &Arc<Gpu>) -> u64 {
    gpu.budget().used() as u64
}
#[cfg(not(feature = "cuda"))]
fn memory_of(gpu: &Arc<Gpu>) -> u64 {
    match **gpu {}
}

/// How long a GPU may take to give memory back, for the size of the ring: many times what it needs.
const HOLD: Duration = Duration::from_millis(2);

/// Why the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Frames,
    Duration,
    Signal,
    Input,
    Closed,
    Source,
    NoMedia,
}

impl End {
    const fn name(self) -> &'static str {
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

/// Stands between the pipeline and the sinks: counts what is delivered and ends the run after `--frames`.
struct Gate {
    /// Frames that are delivered at most.
    limit: u64,
    delivered: AtomicU64,
    reached: AtomicBool,
    probe: Probe,
}

impl Gate {
    fn new(limit: Option<u64>, probe: Probe) -> Self {
        Gate {
            limit: limit.unwrap_or(u64::MAX),
            delivered: 0.into(),
            reached: AtomicBool::new(limit == Some(0)),
            probe,
        }
    }

    /// What the pipeline calls when a frame is finished.
    fn observe(self: Arc<Self>) -> Observe {
        Box::new(move |f| self.probe.finished(f.number, f.last_arrival, f.at))
    }

    /// What the pipeline calls with every frame.
    fn deliver<F: Space>(self: Arc<Self>, offers: sinks::Offers<F>, stop: Arc<AtomicBool>) -> Deliver<F> {
        Box::new(move |frame: Frame<F>, now| {
            let nth = self.delivered.load(Ordering::Relaxed);
            if nth >= self.limit {
                return;
            }
            if let Some(now) = now {
                let meta = frame.meta();
                self.probe.delivered(meta.number, meta.timestamp, meta.first_arrival, meta.last_arrival, now);
            }
            offers.offer(frame, || stop.load(Ordering::Relaxed));
            self.delivered.store(nth + 1, Ordering::Relaxed);
            if nth + 1 >= self.limit {
                self.reached.store(true, Ordering::Relaxed);
            }
        })
    }
}

/// Waits until something ends the run; prints the status meanwhile.
#[allow(clippy::too_many_arguments, reason = "all that is watched")]
fn watch(
    run: &Run<'_>,
    worker: &Worker,
    sinks: &Sinks,
    latency: &mut Recorder,
    time: &mut Time,
    gpu: Option<&Arc<Gpu>>,
    metering: Option<&Metering>,
    health: &mut Watch,
    follow: &mut dyn Follow,
) -> End {
    let Run { args, gate, stop, .. } = run;
    let mut status = Status::new(args);
    let begun = Instant::now();
    let mut heard = false;
    let mut events = Vec::new();
    let mut words = Words::new(run.video, run.args.overlay);
    #[cfg(feature = "preview")]
    let mut teller = sinks.page().map(|page| preview::Teller::new(page, run.flow, run.video));
    let end = loop {
        std::thread::sleep(Duration::from_millis(20));
        let report = worker.report();
        for said in health.look(worker, &report, sinks, time.synchronization()) {
            events.extend(said.what().map(str::to_owned));
            status.say(said);
        }
        for text in sinks.news() {
            status.say(Said::recording(&text));
            events.push(text);
        }
        for text in sinks.events() {
            status.say(Said::sink(&text));
            events.push(text);
        }
        words.show(sinks, &report, latency);
        if gate.reached.load(Ordering::Relaxed) {
            break End::Frames;
        }
        if stop.load(Ordering::Relaxed) {
            break End::Signal;
        }
        if worker.is_finished() {
            let none = report.frames.complete + report.frames.incomplete + report.frames.acquiring == 0;
            break if none { End::NoMedia } else { End::Input };
        }
        if sinks.ended() {
            break End::Closed;
        }
        if follow.failed() {
            break End::Source;
        }
        let elapsed = begun.elapsed();
        heard |= report.frames.complete + report.frames.incomplete > 0;
        if !heard && !args.wait.is_zero() && elapsed >= args.wait {
            break End::NoMedia;
        }
        if args.duration.is_some_and(|d| elapsed >= d) {
            break if heard { End::Duration } else { End::NoMedia };
        }
        latency.drain();
        #[cfg(feature = "preview")]
        if let Some(teller) = &mut teller {
            teller.tell(&report, latency, sinks, health, metering);
        }
        if status.is_due() {
            for text in time.update(latency.rtp_latency_ns()) {
                status.say(Said::time(&text));
                events.push(text);
            }
            let gpu_memory = gpu.map(memory_of);
            let timing = metering.map(Metering::read).unwrap_or_default();
            status.print(&report, latency, sinks, health, &timing, follow.status());
            follow.interval(&mut Now { report: &report, sinks, latency, time, gpu_memory, events: &events, timing });
            latency.next_interval();
            events.clear();
        }
    };
    status.end_line();
    end
}
