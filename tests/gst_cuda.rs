//! Frames of the GPU to GStreamer: which fragments take them, and what arrives at their other end.
#![cfg(all(feature = "gst", feature = "cuda"))]

mod frames;

use frames::{flat, layout, painted, rows, video};
use gdmedia::format::{Layout, Output};
use gdmedia::frame::{Fence, Frame, FramePool, Meta};
use gdmedia::gpu::{Event, EventKind, Gpu, Stream};
use gdmedia::mem::{Device, Region};
use gdmedia::sdp::{Depth, Sampling, Video};
use gdmedia::sink::gst::{Fragment, LENT};
use gdmedia::sink::{Next, Sink};
use gdmedia::time::Tai;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

fn outputs(text: &str, video: &Video) -> Result<Vec<Output>, String> {
    Fragment::parse(text).unwrap().cuda_outputs(video)
}

/// Takes CUDA memory alone, and needs no driver to say so.
fn cuda_only(formats: &str) -> String {
    format!("capsfilter caps=\"video/x-raw(memory:CUDAMemory),format={{{formats}}}\"")
}

#[test]
fn fragments_that_take_no_cuda_memory_say_so() {
    let video = video(Sampling::YCbCr422, Depth::D10, 64, 8);
    for text in [
        "fakesink",
        "queue ! identity ! fakesink",
        "filesink location=/dev/null",
        "capsfilter caps=video/x-raw ! fakesink",
        "capsfilter caps=\"video/x-raw(memory:CUDAMemory),format=BGRA\" ! fakesink",
        "capsfilter caps=\"video/x-raw(memory:GLMemory)\" ! fakesink",
        // GStreamer has a name for it, and no memory on a GPU.
        "capsfilter caps=\"video/x-raw(memory:CUDAMemory),format=v210\" ! fakesink",
    ] {
        let why = outputs(text, &video).unwrap_err();
        assert!(why.starts_with("the fragment takes no CUDA memory"), "{text}: {why}");
    }
}

#[test]
fn fragments_that_take_cuda_memory_name_the_most_faithful_output_first() {
    use Output::*;
    let v = video(Sampling::YCbCr422, Depth::D10, 64, 8);
    let found = |formats: &str, video: &Video| outputs(&format!("queue ! {} ! fakesink", cuda_only(formats)), video);
    assert_eq!(found("NV12,P010_10LE,RGBA", &v).unwrap(), [P010, Nv12, Rgba]);
    assert_eq!(found("RGBA,I422_10LE,v210,UYVP", &v).unwrap(), [Planar, Rgba]);
    assert_eq!(found("NV12,Y444", &video(Sampling::YCbCr444, Depth::D8, 64, 8)).unwrap(), [Planar, Nv12]);
    // Not its size.
    let text = "capsfilter caps=\"video/x-raw(memory:CUDAMemory),width=65\" ! fakesink";
    assert!(outputs(text, &v).is_err());
}

#[test]
fn a_fragment_that_was_asked_is_used_for_the_cpu_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.raw");
    let video = video(Sampling::YCbCr422, Depth::D10, 48, 8);
    let layout = layout(&video, Output::Nv12).unwrap();
    let fragment = Fragment::parse(&format!("filesink location={}", path.display())).unwrap();
    assert!(fragment.cuda_outputs(&video).is_err());
    let mut sink = fragment.open(&video, &layout, false).unwrap();
    let picture = painted(&layout, 3);
    sink.take(&picture).unwrap();
    sink.finish().unwrap();
    assert!(fs::read(&path).unwrap() == rows(&picture));
}

// --- with a GPU ---

fn gpu() -> Option<Arc<Gpu>> {
    Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
}

fn has(elements: &[&str]) -> bool {
    gstreamer::init().unwrap();
    let missing = elements.iter().find(|e| gstreamer::ElementFactory::find(e).is_none());
    missing.inspect(|e| println!("skipped: GStreamer has no {e}")).is_none()
}

/// Work that a frame waits for; every other one can be waited for on the GPU.
#[derive(Debug)]
struct Copied(Event, bool);

impl Fence for Copied {
    fn is_done(&self) -> gdmedia::error::Result<bool> {
        Ok(self.0.is_done()?)
    }
    fn wait(&self) -> gdmedia::error::Result<()> {
        Ok(self.0.wait()?)
    }
    fn queue(&self, stream: &Stream) -> gdmedia::error::Result<()> {
        if self.1 { Ok(stream.wait(&self.0)?) } else { self.wait() }
    }
}

/// Brings pictures to the GPU, late.
struct Source {
    gpu: Arc<Gpu>,
    stream: Stream,
    pool: FramePool<Device>,
    pinned: Vec<Region<gdmedia::mem::Pinned>>,
    ballast: Region<Device>,
}

impl Source {
    fn new(gpu: &Arc<Gpu>, layout: &Layout, frames: usize) -> Source {
        let pool = FramePool::new(layout.clone(), (0..frames).map(|_| ()), |size, ()| Region::device(gpu, size));
        Source {
            gpu: gpu.clone(),
            stream: Stream::new(gpu, false).unwrap(),
            pool: pool.unwrap(),
            pinned: Vec::new(),
            ballast: Region::device(gpu, 256 << 20).unwrap(),
        }
    }

    fn upload(&mut self, picture: &Frame, number: u64) -> Frame<Device> {
        let mut buf = self.pool.take().expect("the fragment holds too many frames");
        let mut pinned = Region::pinned(&self.gpu, picture.octets().len()).unwrap();
        pinned.as_mut_slice().copy_from_slice(picture.octets());
        let event = Event::new(&self.gpu, EventKind::Order).unwrap();
        let to = buf.region_mut().as_mut_ptr() as u64;
        // SAFETY: all memory lives until the stream is gone, and nobody else touches it. The work before the copy takes
        // a while: who does not wait for the fence reads what was there before.
        unsafe {
            self.stream.fill(to, 0x55, pinned.len()).unwrap();
            for octet in 0..4 {
                self.stream.fill(self.ballast.address(), octet, self.ballast.len()).unwrap();
            }
            self.stream.copy(to, pinned.address(), pinned.len()).unwrap();
        }
        self.stream.record(&event).unwrap();
        self.pinned.push(pinned);
        let time = Tai(1_000_000_000_000 + number * 1_001_000_000 / 60);
        *buf.meta_mut() =
            Meta { number, complete: true, media_time: Some(time), first_arrival: time, ..Meta::default() };
        buf.seal_after(Some(Arc::new(Copied(event, number.is_multiple_of(2)))))
    }
}

/// Pushes ten pictures through a fragment that writes a file; the pictures, and what was written.
fn through(gpu: &Arc<Gpu>, text: &str, video: &Video, output: Output) -> (Vec<Frame>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.raw");
    let fragment = Fragment::parse(&format!("{text} ! filesink location={}", path.display())).unwrap();
    let fit = fragment.cuda(video, gpu).unwrap();
    assert!(fit.outputs().contains(&output), "{:?}", fit.outputs());
    let layout = layout(video, output).unwrap();
    let mut sink = fragment.open_cuda(fit, video, &layout, false).unwrap();
    assert!(sink.describe().contains("in CUDA memory"), "{}", sink.describe());
    let mut source = Source::new(gpu, &layout, 2 + LENT);
    let pictures: Vec<Frame> = (0..10).map(|n| painted(&layout, n)).collect();
    for (number, picture) in pictures.iter().enumerate() {
        assert_eq!(sink.take(&source.upload(picture, number as u64)).unwrap(), Next::More);
        assert!(sink.lent() <= LENT);
    }
    sink.finish().unwrap();
    let counters = sink.counters();
    println!("{}, {} copied", sink.describe(), counters.copied.load(Relaxed));
    assert_eq!(counters.lost.load(Relaxed), 0);
    drop(sink);
    assert_eq!(std::iter::from_fn(|| source.pool.take()).count(), 2 + LENT, "frames come back");
    (pictures, fs::read(&path).unwrap())
}

/// Every format that both have, read back from GStreamer's memory by GStreamer, with the gaps between its rows.
#[test]
fn octets_in_cuda_memory_are_those_of_the_frame() {
    let Some(gpu) = gpu() else { return };
    let mut formats = std::collections::BTreeSet::new();
    for (sampling, depth, width) in [
        (Sampling::YCbCr422, Depth::D8, 48),
        (Sampling::YCbCr422, Depth::D10, 48),
        (Sampling::YCbCr422, Depth::D12, 1280),
        (Sampling::YCbCr444, Depth::D8, 48),
        (Sampling::YCbCr444, Depth::D16, 64),
        (Sampling::YCbCr420, Depth::D8, 48),
        (Sampling::YCbCr420, Depth::D10, 1280),
        (Sampling::Rgb, Depth::D8, 48),
    ] {
        let video = video(sampling, depth, width, 8);
        let text = "capsfilter caps=video/x-raw(memory:CUDAMemory)";
        for output in outputs(&format!("{text} ! fakesink"), &video).unwrap() {
            let (pictures, octets) = through(&gpu, text, &video, output);
            let name = pictures[0].layout().name().unwrap();
            formats.insert(name);
            // Rows of all planes are equally far apart there, and planes follow each other.
            let tall = match name {
                "I420" | "I420_10LE" => 16,
                // Some releases have room for as many rows of colour as of luma. Rows are apart by their octets, rounded up to
                // 512.
                "NV12" | "P010_10LE" => {
                    let pitch = pictures[0].layout().planes[0].row_octets.next_multiple_of(512);
                    if octets.len() == pitch * 12 * 10 { 12 } else { 16 }
                }
                _ => 8 * pictures[0].layout().planes.len(),
            };
            let pitch = octets.len() / 10 / tall;
            assert_eq!(octets.len(), pitch * tall * 10, "{name}");
            for (picture, octets) in pictures.iter().zip(octets.chunks(pitch * tall)) {
                for (index, plane) in picture.layout().planes.iter().enumerate() {
                    let first = if index == 2 && name.starts_with("I420") { 12 } else { index * 8 };
                    for row in 0..plane.rows {
                        let got = &octets[(first + row) * pitch..][..plane.row_octets];
                        assert!(got == picture.row(index, row), "{name}: plane {index} row {row}");
                    }
                }
            }
        }
    }
    println!("{formats:?}");
    assert_eq!(formats.len(), 13);
}

#[test]
fn octets_go_through_cudadownload() {
    let Some(gpu) = gpu() else { return };
    if !has(&["cudadownload"]) {
        return;
    }
    // GStreamer's own rows of this width have no gaps.
    let video = video(Sampling::YCbCr422, Depth::D10, 64, 8);
    for output in outputs("cudadownload ! video/x-raw ! fakesink", &video).unwrap() {
        let (pictures, octets) = through(&gpu, "cudadownload ! video/x-raw", &video, output);
        let expected: Vec<u8> = pictures.iter().flat_map(rows).collect();
        assert!(octets == expected, "{output:?}");
    }
}

#[test]
fn colours_survive_cudaconvert() {
    let Some(gpu) = gpu() else { return };
    if !has(&["cudaconvert", "cudadownload"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.raw");
    let video = video(Sampling::YCbCr422, Depth::D10, 640, 360);
    let text = "cudaconvert ! video/x-raw(memory:CUDAMemory),format=NV12 ! cudadownload ! video/x-raw";
    let fragment = Fragment::parse(&format!("{text} ! filesink location={}", path.display())).unwrap();
    let fit = fragment.cuda(&video, &gpu).unwrap();
    let layout = layout(&video, fit.outputs()[0]).unwrap();
    let mut sink = fragment.open_cuda(fit, &video, &layout, false).unwrap();
    let mut source = Source::new(&gpu, &layout, 2 + LENT);
    for number in 0..10 {
        // Green of BT.709.
        sink.take(&source.upload(&flat(&layout, [691, 167, 105]), number)).unwrap();
    }
    sink.finish().unwrap();
    let octets = fs::read(&path).unwrap();
    assert_eq!(octets.len(), 640 * 540 * 10);
    for picture in octets.chunks(640 * 540) {
        let (y, c) = picture.split_at(640 * 360);
        assert!(y.iter().all(|y| y.abs_diff(173) <= 1), "{:?}", &y[..8]);
        assert!(c.chunks(2).all(|c| c[0].abs_diff(42) <= 1 && c[1].abs_diff(26) <= 1), "{:?}", &c[..8]);
    }
}

#[test]
fn an_encoder_takes_frames_of_the_gpu() {
    let Some(gpu) = gpu() else { return };
    if !has(&["nvh264enc"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.h264");
    let video = video(Sampling::YCbCr422, Depth::D10, 640, 360);
    let fragment = Fragment::parse(&format!("nvh264enc ! filesink location={}", path.display())).unwrap();
    let fit = fragment.cuda(&video, &gpu).unwrap();
    let layout = layout(&video, fit.outputs()[0]).unwrap();
    let mut sink = fragment.open_cuda(fit, &video, &layout, false).unwrap();
    let mut source = Source::new(&gpu, &layout, 2 + LENT);
    for number in 0..30 {
        sink.take(&source.upload(&painted(&layout, number), number)).unwrap();
    }
    sink.finish().unwrap();
    assert!(fs::read(&path).unwrap().starts_with(&[0, 0, 0, 1]));
}

#[test]
fn what_a_copy_on_the_gpu_costs() {
    let Some(gpu) = gpu() else { return };
    let video = video(Sampling::YCbCr422, Depth::D10, 1920, 1080);
    for output in [Output::Planar, Output::P010] {
        let text = "capsfilter caps=video/x-raw(memory:CUDAMemory) ! fakesink";
        let fragment = Fragment::parse(text).unwrap();
        let fit = fragment.cuda(&video, &gpu).unwrap();
        let layout = layout(&video, output).unwrap();
        let mut sink = fragment.open_cuda(fit, &video, &layout, false).unwrap();
        let mut source = Source::new(&gpu, &layout, 1);
        let frame = source.upload(&painted(&layout, 0), 0);
        frame.fence().unwrap().wait().unwrap();
        // Memory of the pool is there after the first ones.
        for _ in 0..10 {
            sink.take(&frame).unwrap();
        }
        let begin = Instant::now();
        for _ in 0..200 {
            sink.take(&frame).unwrap();
        }
        let each = begin.elapsed() / 200;
        println!("{}: {:.0} us a frame", sink.describe(), each.as_secs_f64() * 1e6);
        sink.finish().unwrap();
        assert!(each.as_millis() < 100);
    }
}
