//! `gdmedia play`: receive a flow; show, write and count it.

mod backend;
mod choose;
#[cfg(feature = "daemon")]
mod configured;
mod engine;
mod gate;
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
mod session;
#[cfg(feature = "daemon")]
mod shown;
mod sinks;
#[cfg(feature = "daemon")]
mod switch;
mod time;

pub use self::engine::Run;
use self::health::Watch;
#[cfg(not(feature = "daemon"))]
use self::limits::Budget;
pub use self::report::Start;
use self::report::Status;
#[cfg(not(feature = "daemon"))]
use self::session::Session;
use self::session::{End, Looked};
use self::sinks::Sinks;
use self::time::Time;
#[cfg(feature = "daemon")]
pub use self::{
    choose::seen,
    configured::Given,
    health::Said,
    limits::Budget,
    report::Since,
    session::Session,
    switch::{Begun, Progress},
};
use super::held::Held;
use super::usage::wanted;
use super::{same, stop};
use clap::ValueEnum;
use gdmedia::encode::Spec;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::fault::FaultPlan;
use gdmedia::format::Output;
use gdmedia::gpu::Choice;
#[cfg(feature = "cuda")]
use gdmedia::gpu::Gpu;
use gdmedia::kernel;
use gdmedia::latency::Recorder;
use gdmedia::merge::Class;
use gdmedia::pipeline;
use gdmedia::pipeline::meter::LegTiming;
use gdmedia::record::{self, Limit, Way};
use gdmedia::rx::socket;
use gdmedia::sink::FileFormat;
use gdmedia::sink::export::Target;
use gdmedia::timing::Rules;
use gdmedia::worker::{Report, Seats};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// SDP of the stream: a file, `-` for standard input, or an http:// or https:// address; or a recording: a .gdr file, or its folder
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
    /// What ibverbs is told
    #[arg(long, value_name = "WORDS", conflicts_with = "pcap")]
    verbs: Option<String>,
    /// What DPDK is told, with semicolons between, for example 'port=0000:3b:00.0;address=192.0.2.7' or
    /// 'port=net_af_packet,iface=eth1;eal=--no-huge -m 256'
    #[arg(long, value_name = "WORDS", conflicts_with = "pcap")]
    dpdk: Option<String>,
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
    /// A sink that ends is started again, and no file is written over.
    #[arg(skip)]
    again: bool,
    /// So long another flow has for its first whole frame.
    #[arg(skip)]
    #[cfg_attr(not(feature = "daemon"), allow(dead_code))]
    patience: Duration,
    /// Somebody else serves the preview.
    #[arg(skip)]
    #[cfg_attr(not(feature = "preview"), allow(dead_code))]
    preview_elsewhere: bool,
    /// Who shares threads and cores out, and whose this run is there.
    #[arg(skip)]
    seats: Option<(Arc<Seats>, String)>,
    /// Sockets of ptp4l; none: where linuxptp puts them.
    #[arg(skip)]
    ptp4l: Vec<PathBuf>,
    /// What it and others have for their frames; none: as the machine has it.
    #[arg(skip)]
    memory: Option<Arc<Budget>>,
    /// A file of frames beside what --out encodes.
    #[arg(skip)]
    also: Option<PathBuf>,
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
        let of_name = self.file().map(FileFormat::of_path);
        self.format.map(FileFormat::from).or(of_name) == Some(FileFormat::Raw)
    }
    /// The file that frames are written to as they are.
    fn file(&self) -> Option<&Path> {
        self.out.as_deref().filter(|_| self.encode.is_none()).or(self.also.as_deref())
    }
    /// Where what is encoded goes.
    #[cfg(feature = "gst")]
    fn encode_to(&self) -> String {
        self.out.as_ref().map(|out| out.display().to_string()).unwrap_or_default()
    }
    /// Options that contradict each other, and those that others make.
    fn settle(&mut self) -> Result<()> {
        if self.pcap.is_none() && matches!(self.pace, Pace::Recorded) {
            return Err(Error::new(Kind::Usage, "--pace is for captures and recordings; a network has its own")
                .cure("leave it out, or give --pcap or a recording"));
        }
        if !self.timing && !self.held.is_empty() {
            return Err(
                Error::new(Kind::Usage, "limits of timing were given, and timing is not measured").cure("add --timing")
            );
        }
        self.rules.limits = self.held.limits()?;
        Ok(())
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
pub fn run_with(args: Args, follow: &mut dyn Follow) -> Result<ExitCode> {
    let json = args.json;
    told(receive(args, follow), json)
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
    pub health: &'a Watch,
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
fn receive(mut args: Args, follow: &mut dyn Follow) -> Result<ExitCode> {
    let stop = stop::install()?;
    same::refuse(&args.inputs(), &args.outputs())?;
    if let Some(path) = args.sdp().map(Path::new).filter(|path| record::Recording::is_at(path)) {
        let path = path.to_owned();
        return recording::play(args, &path, follow, stop);
    }
    args.settle()?;
    let description = choose::description(args.sdp(), args.pcap.as_deref(), args.called)?;
    let session = Session::open(args, &description, stop)?;
    accompany(session, follow)
}

/// From the first frame to the last word.
fn accompany(mut session: Session, follow: &mut dyn Follow) -> Result<ExitCode> {
    let json = session.args().json;
    session.start().print(json);
    session.begin(follow)?;
    let mut status = Status::new(session.args());
    let mut events = Vec::new();
    let end = loop {
        std::thread::sleep(Duration::from_millis(20));
        let Looked { report, said } = session.look();
        for said in said {
            events.extend(said.what().map(str::to_owned));
            status.say(said);
        }
        if let Some(end) = session.end(&report) {
            break end;
        }
        if follow.failed() {
            break End::Source;
        }
        if status.is_due() {
            for said in session.times() {
                events.extend(said.what().map(str::to_owned));
                status.say(said);
            }
            let mut now = session.now(&report, &events);
            status.print(&mut now, follow.status());
            follow.interval(&mut now);
            now.latency.next_interval();
            events.clear();
        }
    };
    status.end_line();
    let (report, outcome, said) = session.finish(end);
    for said in said {
        report::tell(json, said);
    }
    let name = if outcome.is_err() && end != End::NoMedia { "failed" } else { end.name() };
    if let (Err(error), true) = (&outcome, json) {
        report::error(error);
    }
    let (start, gate) = (session.start().clone(), session.gate().clone());
    let mut now = session.now(&report, &[]);
    report::summary(json, &now, &gate, &start, name);
    let followed = follow.end(&mut now, name);
    match outcome {
        // Told already: the summary is the last line.
        Err(error) if json => Ok(ExitCode::from(error.kind().exit_code())),
        outcome => outcome.and(followed),
    }
}

/// How long a GPU may take to give memory back, for the size of the ring: many times what it needs.
const HOLD: Duration = Duration::from_millis(2);
