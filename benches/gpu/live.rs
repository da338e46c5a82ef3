//! A sender in a process of its own, and a receiving thread that never sleeps.

use super::Args;
use gdmedia::format::Output;
use gdmedia::frame::Frame;
use gdmedia::gpu::{Event, EventKind, Gpu, Stream};
use gdmedia::kernel::cuda::{CudaCounters, Options, Schedule, Transfer};
use gdmedia::mem::{Device, Pinned, Region};
use gdmedia::pipeline::{GpuPipeline, HostPipeline, Settings};
use gdmedia::rx::{Receiver, socket};
use gdmedia::sdp::{self, Flow, Mode};
use gdmedia::send::pattern::{self, NumberReader};
use gdmedia::stats::{FrameCounters, PacketCounters, RxCounters};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A frame of 2160p, if it must be, as single datagrams.
const CELLS: usize = 4096;

/// `gdmedia send` to this machine.
pub struct Sender {
    child: Child,
    pub flow: Flow,
}

impl Sender {
    pub fn start(port: u16, args: &Args) -> Self {
        let program = std::env::var_os("GDMEDIA_SEND").map_or_else(beside, PathBuf::from);
        let sdp = std::env::temp_dir().join(format!("gdmedia-bench-{}-{port}.sdp", std::process::id()));
        let child = Command::new(&program)
            .args(["send", "--to", &format!("udp://127.0.0.1:{port}"), "--format", &args.format])
            .args(["--duration", &format!("{}s", args.seconds as u64 + 6), "--write-sdp"])
            .arg(&sdp)
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        let begun = Instant::now();
        let text = loop {
            match std::fs::read(&sdp) {
                Ok(text) if !text.is_empty() => break text,
                _ if begun.elapsed() > Duration::from_secs(5) => panic!("the sender wrote no SDP"),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let _ = std::fs::remove_file(&sdp);
        let flow = sdp::parse(&text, Mode::Lenient).flows.into_iter().next().expect("a flow");
        Sender { child, flow }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn beside() -> PathBuf {
    let folder = std::env::current_exe().unwrap_or_default();
    folder.ancestors().nth(2).unwrap_or(&folder).join("gdmedia")
}

/// What became of a stream.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Nanoseconds from the arrival of a frame's last packet to its finished frame.
    pub latency: Vec<u64>,
    /// Of these, to the moment when all work for it had been started.
    pub started: Vec<u64>,
    pub packets: PacketCounters,
    pub frames: FrameCounters,
    pub rx: RxCounters,
    pub numbers: Numbers,
    pub kernel: CudaCounters,
    pub described: String,
}

/// Frame numbers, read where the frames are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    pub in_order: u64,
    pub wrong: u64,
    pub unreadable: u64,
    last: Option<u64>,
}

impl Numbers {
    fn add(&mut self, number: Option<u64>) {
        match (self.last, number) {
            (_, None) => self.unreadable += 1,
            (Some(last), Some(n)) if n != last + 1 => self.wrong += 1,
            _ => self.in_order += 1,
        }
        self.last = number.or(self.last);
    }
}

/// Reads the numbers of frames on the GPU, in a stream of its own.
pub struct Reader {
    reader: NumberReader,
    stream: Stream,
    results: Region<Pinned>,
    next: usize,
    waiting: VecDeque<(Event, usize, Frame<Device>)>,
    idle: Vec<Event>,
    pub numbers: Numbers,
}

impl Reader {
    pub fn new(gpu: &Arc<Gpu>, layout: &gdmedia::format::Layout) -> Self {
        let idle = (0..16).map(|_| Event::new(gpu, EventKind::Order).unwrap()).collect();
        Reader {
            reader: NumberReader::load(gpu, layout).unwrap(),
            stream: Stream::new(gpu, false).unwrap(),
            results: Region::pinned(gpu, 64 * 8).unwrap(),
            next: 0,
            waiting: VecDeque::new(),
            idle,
            numbers: Numbers::default(),
        }
    }

    /// Starts to read this one; takes what has been read meanwhile.
    pub fn add(&mut self, frame: Frame<Device>) {
        self.take(false);
        let Some(event) = self.idle.pop() else { return self.numbers.add(None) };
        if let Some(fence) = frame.fence() {
            fence.queue(&self.stream).unwrap();
        }
        let to = self.results.address() + 8 * self.next as u64;
        // SAFETY: frame and result are held until the event has happened.
        unsafe { self.reader.run(&self.stream, frame.start() as u64, to) }.unwrap();
        self.stream.record(&event).unwrap();
        self.waiting.push_back((event, self.next, frame));
        self.next = (self.next + 1) % 64;
    }

    pub fn take(&mut self, all: bool) {
        while let Some((event, ..)) = self.waiting.front() {
            if all {
                event.wait().unwrap();
            } else if !event.is_done().unwrap() {
                return;
            }
            let Some((event, at, _)) = self.waiting.pop_front() else { return };
            let octets = self.results.as_slice()[8 * at..8 * at + 8].try_into().unwrap();
            let number = u64::from_le_bytes(octets);
            self.numbers.add((number != u64::MAX).then_some(number));
            self.idle.push(event);
        }
    }
}

/// Receives for this long, after the first frames have come.
pub fn receive(gpu: &Arc<Gpu>, flow: &Flow, mode: &str, time: Duration) -> Outcome {
    let receiver = socket::Socket::open(socket::Options {
        max_octets: 1452,
        cells: CELLS,
        buffer_octets: 256 << 20,
        ..socket::Options::default()
    })
    .unwrap();
    let receiver: Box<dyn Receiver<Mem = gdmedia::mem::Host>> = Box::new(receiver);
    let settings = Settings { output: Output::P210, frames: 12, ..Settings::default() };
    let latency = Arc::new(Mutex::new(Vec::with_capacity(100_000)));
    let into = latency.clone();
    let observe = Box::new(move |f: gdmedia::pipeline::Finished| {
        into.lock().unwrap().push(f.at.since(f.last_arrival).max(0) as u64);
    });
    if mode == "cpu" {
        let numbers = Arc::new(Mutex::new(Numbers::default()));
        let into = numbers.clone();
        let deliver = Box::new(move |frame: Frame, _| {
            into.lock().unwrap().add(pattern::read_number(frame.layout(), frame.octets()));
        });
        let mut pipeline = HostPipeline::open(receiver, flow, &settings, deliver).unwrap();
        pipeline.observe(observe);
        pipeline.receiver_mut().join_all(&flow.legs).unwrap();
        let clear = || {
            latency.lock().unwrap().clear();
            *numbers.lock().unwrap() = Numbers::default();
        };
        run(|| pipeline.step().unwrap(), time, clear);
        return Outcome {
            packets: pipeline.depacketiser().counters(),
            frames: pipeline.frames(),
            rx: pipeline.receiver().counters(),
            described: pipeline.describe_kernel(),
            latency: std::mem::take(&mut latency.lock().unwrap()),
            numbers: *numbers.lock().unwrap(),
            ..Outcome::default()
        };
    }
    let schedule = if mode == "whole" { Schedule::WholeFrame } else { Schedule::SubFrame };
    // A whole frame is soonest there by copy engines.
    let transfer = match mode {
        "whole" | "copy" => Transfer::Copy,
        "mapped" => Transfer::Mapped,
        _ => Transfer::Auto,
    };
    let options = Options { schedule, transfer };
    let layout = gdmedia::format::Layout::new(
        gdmedia::pipeline::wire(gdmedia::pipeline::video(flow).unwrap()).unwrap(),
        Output::P210,
    )
    .unwrap();
    let reader = Arc::new(Mutex::new(Reader::new(gpu, &layout)));
    // Numbers are read when a frame is finished, not before: what that takes is not part of the frame's time.
    let fresh = Arc::new(Mutex::new(Vec::<Frame<Device>>::with_capacity(16)));
    let started = Arc::new(Mutex::new(Vec::with_capacity(100_000)));
    let (into, times) = (fresh.clone(), started.clone());
    let deliver = Box::new(move |frame: Frame<Device>, now: Option<gdmedia::time::Tai>| {
        let since = now.map_or(0, |now| now.since(frame.meta().last_arrival).max(0) as u64);
        times.lock().unwrap().push(since);
        into.lock().unwrap().push(frame);
    });
    let opened = GpuPipeline::open(receiver, flow, gpu, &settings, options, None, deliver);
    let (mut pipeline, _frames) = opened.unwrap_or_else(|refused| panic!("{}", refused.error));
    let finished = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (seen, observe) = (finished.clone(), observe);
    pipeline.observe(Box::new(move |f| {
        observe(f);
        seen.store(true, Relaxed);
    }));
    pipeline.receiver_mut().join_all(&flow.legs).unwrap();
    let clear = || {
        latency.lock().unwrap().clear();
        started.lock().unwrap().clear();
        reader.lock().unwrap().numbers = Numbers::default();
    };
    let step = || {
        pipeline.step().unwrap();
        if finished.swap(false, Relaxed) {
            for frame in fresh.lock().unwrap().drain(..) {
                reader.lock().unwrap().add(frame);
            }
        }
    };
    run(step, time, clear);
    reader.lock().unwrap().take(true);
    let numbers = reader.lock().unwrap().numbers;
    Outcome {
        packets: pipeline.depacketiser().counters(),
        frames: pipeline.frames(),
        rx: pipeline.receiver().counters(),
        described: pipeline.describe_kernel(),
        kernel: pipeline.kernel().counters(),
        latency: std::mem::take(&mut latency.lock().unwrap()),
        started: std::mem::take(&mut started.lock().unwrap()),
        numbers,
    }
}

/// Steps without a pause: one second to settle, then `clear`, then for `time`.
fn run<T>(mut step: impl FnMut() -> T, time: Duration, clear: impl Fn()) {
    let mut until = |time: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            for _ in 0..64 {
                step();
            }
        }
    };
    until(Duration::from_secs(1));
    clear();
    until(time);
}
