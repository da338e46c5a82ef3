//! Frames of a GPU in other processes: their octets, their release, the death of who holds them.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

mod frames;

use frames::video;
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::gpu::{Event, EventKind, Gpu, Stream, sys};
use gdmedia::mem::{Device, Pinned, Region, Slab};
use gdmedia::sdp::{Depth, Sampling, Video};
use gdmedia::sink::Sink;
use gdmedia::sink::export::{Consumer, Counts, Export, ExportKind, Target};
use gdmedia::time::Tai;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

const FRAMES: usize = 8;
const LONG: Duration = Duration::from_secs(60);
/// The part that a child process plays, and the socket.
const PART: &str = "GDMEDIA_EXPORT_TEST_PART";
const SOCKET: &str = "GDMEDIA_EXPORT_TEST_SOCKET";

/// Frame `n` has these octets from the `n`-th on.
fn pattern(len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8)
}

/// A GPU with frames, and what exports them.
struct Stage {
    dir: TempDir,
    stream: Stream,
    slab: Arc<Slab>,
    pool: FramePool<Device>,
    video: Video,
    layout: Layout,
    octets: Region<Pinned>,
    ballast: Region<Device>,
    number: u64,
}

const BALLAST: usize = 256 << 20;

impl Stage {
    fn new() -> Option<Self> {
        let gpu = Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()?;
        let video = video(Sampling::YCbCr422, Depth::D10, 1920, 1080);
        let layout = Layout::new(WireFormat::from_video(&video).unwrap(), Output::Planar).unwrap();
        let mut slab = Slab::new(&gpu, layout.size, FRAMES).unwrap();
        let pool = FramePool::new(layout.clone(), slab.regions().into_iter(), |_, region| Ok(region)).unwrap();
        let mut octets = Region::pinned(&gpu, layout.size + 256).unwrap();
        octets.as_mut_slice().iter_mut().zip(pattern(layout.size + 256)).for_each(|(to, octet)| *to = octet);
        Some(Stage {
            dir: tempfile::tempdir().unwrap(),
            stream: Stream::new(&gpu, false).unwrap(),
            slab: Arc::new(slab),
            pool,
            video,
            layout,
            octets,
            ballast: Region::device(&gpu, 2 * BALLAST).unwrap(),
            number: 0,
        })
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("frames")
    }

    fn export(&self, kind: ExportKind) -> gdmedia::error::Result<Export> {
        Export::new(&Target { kind, path: self.path() }, self.slab.clone(), &self.video, &self.layout)
    }

    /// The next frame, still being written by the GPU; about 25 ms behind other work when `slow`.
    fn frame(&mut self, slow: bool) -> Option<Frame<Device>> {
        let mut buf = self.pool.take()?;
        buf.meta_mut().number = self.number;
        buf.meta_mut().complete = true;
        let utc = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        buf.meta_mut().last_arrival = Tai(utc.as_nanos() as u64 + 37_000_000_000);
        // SAFETY: all of this memory lives until the stream is dropped, which waits, but for the frame, which is held
        // by whoever is offered it until the event has happened, and goes back to the pool at the earliest then.
        unsafe {
            for _ in 0..if slow { 200 } else { 0 } {
                let start = self.ballast.address();
                self.stream.copy(start, start + BALLAST as u64, BALLAST).unwrap();
            }
            let from = self.octets.address() + self.number % 256;
            self.stream.copy(buf.region_mut().address(), from, self.layout.size).unwrap();
        }
        self.number += 1;
        let event = Event::new(self.stream.gpu(), EventKind::Order).unwrap();
        self.stream.record(&event).unwrap();
        Some(buf.seal_after(Some(Arc::new(event))))
    }

    fn idle(&self) -> usize {
        let all: Vec<_> = std::iter::from_fn(|| self.pool.take()).collect();
        let idle = all.len();
        all.into_iter().for_each(gdmedia::frame::FrameBuf::discard);
        idle
    }

    fn luma_mean(&self, number: u64) -> f64 {
        let plane = self.layout.planes[0];
        let octets = &self.octets.as_slice()[(number % 256) as usize..];
        let mut sum = 0u64;
        for row in 0..plane.rows {
            let row = &octets[plane.offset + row * plane.stride..][..plane.row_octets];
            sum += row.chunks_exact(2).map(|s| u64::from(u16::from_le_bytes([s[0], s[1]]))).sum::<u64>();
        }
        sum as f64 / (plane.rows * plane.row_octets / 2) as f64
    }
}

/// Serves the socket until the counts are as they should be.
fn serve_until(export: &mut Export, what: &str, done: impl Fn(Counts) -> bool) {
    let start = Instant::now();
    let counts = export.watch();
    while !done(counts()) {
        assert!(start.elapsed() < LONG, "{what}: {:?}", counts());
        export.idle().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// This program once more, in another part.
fn child(part: &str, socket: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
        .env(PART, part)
        .env(SOCKET, socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn output(mut child: Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    text
}

/// No test: the other process of those below, which start it.
#[test]
#[ignore = "is started by the other tests, in a process of its own"]
fn the_other_process() {
    let (Ok(part), Some(socket)) = (std::env::var(PART), std::env::var_os(SOCKET)) else {
        return println!("skipped: is started by the other tests");
    };
    let consumer = Consumer::connect(Path::new(&socket)).unwrap();
    consumer.set_patience(Some(LONG)).unwrap();
    let hello = consumer.hello().clone();
    let mapped = consumer.map().unwrap();
    let mut to = Region::pinned(mapped.gpu(), hello.frame_octets).unwrap();
    let octets: Vec<u8> = pattern(hello.frame_octets + 256).collect();
    println!();
    let mut kept = Vec::new();
    while let Some(offer) = consumer.next().unwrap() {
        mapped.read(&offer, 0..hello.frame_octets, &mut to).unwrap();
        let expected = &octets[(offer.number % 256) as usize..][..hello.frame_octets];
        let right = if to.as_slice() == expected { "right" } else { "WRONG" };
        println!("frame {} index {} {right}", offer.number, offer.index);
        if part == "hold" { kept.push(offer) } else { consumer.release(offer).unwrap() }
    }
}

#[test]
fn another_process_reads_the_octets() {
    let Some(mut stage) = Stage::new() else { return };
    let mut export = stage.export(ExportKind::CudaIpc).unwrap();
    let reader = child("read", &stage.path());
    serve_until(&mut export, "connect", |counts| counts.connected == 1);
    let mut early = 0;
    for number in 0..40 {
        let slow = number % 5 == 0;
        let frame = stage.frame(slow).expect("a frame that is not held");
        export.take(&frame).unwrap();
        early += usize::from(!frame.fence().unwrap().is_done().unwrap());
        drop(frame);
        serve_until(&mut export, "release", |counts| counts.released == number + 1);
    }
    export.finish().unwrap();
    let text = output(reader);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("frame ")).collect();
    assert_eq!(lines.len(), 40, "{text}");
    for (number, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("frame {number} ")) && line.ends_with(" right"), "{line}");
    }
    assert!(early >= 8, "{early} frames were offered before they were finished");
    assert_eq!(stage.idle(), FRAMES);
    let counts = export.watch()();
    assert_eq!((counts.offered, counts.released, counts.skipped, counts.misbehaved), (40, 40, 0, 0));
    println!("{early} of 40 frames were offered before the GPU had finished them; {counts}");
}

#[test]
fn who_is_killed_gives_its_frames_back() {
    let Some(mut stage) = Stage::new() else { return };
    let mut export = stage.export(ExportKind::CudaIpc).unwrap();
    let error = stage.export(ExportKind::CudaIpc).unwrap_err();
    assert!(error.to_string().contains("belongs to a program that runs"), "{error}");
    let mut holder = child("hold", &stage.path());
    // The second export only looked whether somebody listens, and has gone.
    serve_until(&mut export, "connect", |counts| counts.connected == 1 && counts.accepted == 1);
    for _ in 0..5 {
        let frame = stage.frame(false).unwrap();
        export.take(&frame).unwrap();
    }
    let counts = export.watch();
    assert_eq!((counts().offered, counts().skipped, stage.idle()), (3, 2, FRAMES - 3));
    holder.kill().unwrap();
    holder.wait().unwrap();
    serve_until(&mut export, "death", |counts| counts.connected == 0);
    assert_eq!((stage.idle(), counts().released), (FRAMES, 0));
    // The next one finds all in order.
    let reader = child("read", &stage.path());
    serve_until(&mut export, "connect again", |counts| counts.connected == 1);
    let frame = stage.frame(true).unwrap();
    export.take(&frame).unwrap();
    serve_until(&mut export, "release", |counts| counts.released == 1);
    export.finish().unwrap();
    assert!(output(reader).contains("frame 5 index"));
}

#[test]
fn a_dma_buf_arrives_whole_and_its_frames_are_finished() {
    let Some(mut stage) = Stage::new() else { return };
    let supported = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED;
    let mut export = match stage.export(ExportKind::DmaBuf) {
        Ok(export) => export,
        Err(error) => {
            assert_eq!(stage.slab.gpu().attribute(supported).unwrap(), 0, "{error}");
            return println!("skipped: {error}");
        }
    };
    let connecting = std::thread::spawn({
        let path = stage.path();
        move || Consumer::connect(&path).unwrap()
    });
    serve_until(&mut export, "connect", |counts| counts.connected == 1);
    let mut consumer = connecting.join().unwrap();
    assert!(consumer.map().unwrap_err().to_string().contains("dma-buf"));
    let mut file = File::from(consumer.take_dma_buf().unwrap());
    let link = std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap();
    println!("the descriptor is {}", link.display());
    assert!(link.to_string_lossy().contains("dmabuf"), "{}", link.display());
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), stage.slab.octets() as u64);
    let frame = stage.frame(true).unwrap();
    assert!(!frame.fence().unwrap().is_done().unwrap(), "the GPU is at it");
    export.take(&frame).unwrap();
    assert!(frame.fence().unwrap().is_done().unwrap());
    let offer = consumer.next().unwrap().unwrap();
    assert_eq!((offer.number, offer.complete), (0, true));
    consumer.release(offer).unwrap();
    serve_until(&mut export, "release", |counts| counts.released == 1);
    export.finish().unwrap();
    assert!(consumer.next().unwrap().is_none());
}

/// Runs a program of `examples/` against frames; its lines end with what is expected of them.
fn example(mut command: Command) {
    let Some(mut stage) = Stage::new() else { return };
    let mut export = stage.export(ExportKind::CudaIpc).unwrap();
    let program = command.arg(stage.path()).stdout(Stdio::piped()).spawn().unwrap();
    serve_until(&mut export, "connect", |counts| counts.connected == 1);
    for number in 0..10 {
        let frame = stage.frame(number % 2 == 0).expect("a frame that is not held");
        export.take(&frame).unwrap();
        drop(frame);
        serve_until(&mut export, "release", |counts| counts.released == number + 1 || counts.connected == 0);
    }
    export.finish().unwrap();
    let text = output(program);
    println!("{text}");
    for number in 0..10 {
        let line = text.lines().find(|line| line.starts_with(&format!("frame {number} "))).expect("a line a frame");
        let mean = format!(" mean {:.3} ", stage.luma_mean(number));
        assert!(line.contains(&mean), "{mean} in {line}");
    }
    assert_eq!(stage.idle(), FRAMES);
}

#[test]
fn the_example_in_rust_sees_the_same_picture() {
    let program = std::env::current_exe().unwrap();
    let program = program.parent().unwrap().join("../examples/06_gpu_consumer");
    if !program.exists() {
        return println!("skipped: the example is not built (cargo build --example 06_gpu_consumer)");
    }
    example(Command::new(program));
}

#[test]
fn the_example_in_python_sees_the_same_picture() {
    let check = "import cupy; cupy.cuda.runtime.getDeviceCount()";
    let cupy = Command::new("python3").args(["-c", check]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !cupy.is_ok_and(|status| status.success()) {
        return println!("skipped: no CuPy");
    }
    let mut command = Command::new("python3");
    command.arg("examples/06_gpu_consumer.py");
    example(command);
}
