//! Encoding on a GPU: what the real NVENC library says, nvJPEG's pictures, and the rung that runs after a refusal.
#![cfg(all(feature = "cuda", feature = "gst"))]

mod frames;

use frames::{layout, video};
use gdmedia::encode::nvenc::{Library, Wanted};
use gdmedia::encode::nvjpeg::{self, NvJpeg};
use gdmedia::encode::{Codec, Machine, Plan, Prober, Rung, Spec, Target, lines};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool, Meta};
use gdmedia::gpu::{Event, EventKind, Gpu, Stream};
use gdmedia::mem::{Device, Region};
use gdmedia::sdp::{Depth, Sampling, Video};
use gdmedia::sink::{Next, Sink};
use gdmedia::time::Tai;
use gstreamer as gst;
use gstreamer::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

fn gpu() -> Option<Arc<Gpu>> {
    Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
}

fn hd() -> Video {
    video(Sampling::YCbCr422, Depth::D10, 1920, 1080)
}

/// What the real library answers: a GPU with NVENC encodes, one without says so in these words.
#[test]
fn nvenc_answers_for_itself() {
    let Some(gpu) = gpu() else { return };
    let library = match Library::find() {
        Ok(library) => library,
        Err(why) => return println!("skipped: {why}"),
    };
    for codec in [Codec::H264, Codec::Hevc, Codec::Av1] {
        match library.probe(&gpu, &hd(), &Wanted::new(&hd(), codec)) {
            Ok(fits) => println!("{codec}: {fits:?}"),
            Err(why) => {
                println!("{codec}: {why}");
                let known = why == "open session answered unsupported device" || why.starts_with("it does not encode");
                assert!(known, "{why}");
            }
        }
    }
}

/// The ladder by the real prober: a refusal has its reason, and the rung after it is the one that runs.
#[test]
fn the_rung_after_a_refusal_runs() {
    let Some(gpu) = gpu() else { return };
    let wire = WireFormat::from_video(&hd()).unwrap();
    let mut machine = Machine {
        video: &hd(),
        wire: &wire,
        gpu: Some(&gpu),
        others: true,
        forced: None,
        picture: None,
        encodes: None,
    };
    let nvenc = machine.probe(Rung::NvencCuda(Codec::H264));
    let spec: Spec = "h264,bitrate=20M,preset=fastest".parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mkv");
    let target: Target = path.to_str().unwrap().parse().unwrap();
    let plan = Plan::new(&spec, &target, &hd(), Some(&gpu), true, None).unwrap();
    println!("{}", plan.describe());
    match nvenc {
        Ok(()) => assert_eq!(plan.rung(), Rung::NvencCuda(Codec::H264)),
        Err(why) => {
            assert_eq!(why, "GPU 0: no NVENC: open session answered unsupported device");
            assert!(
                plan.describe().contains(&format!("not NVENC, NVENC from system memory: {why}")),
                "{}",
                plan.describe()
            );
            assert!(matches!(plan.rung(), Rung::X264 | Rung::OpenH264 | Rung::NvJpeg), "{:?}", plan.rung());
        }
    }
    // It encodes.
    let layout = Layout::new(wire, plan.output()).unwrap();
    let pictures = 20;
    if plan.is_on_gpu() {
        let mut sink = plan.open_on_gpu(&hd(), &layout, false).unwrap();
        let mut source = Source::new(&gpu, &layout, 6);
        for n in 0..pictures {
            let frame = source.upload(&picture(&layout, n), n);
            assert_eq!(sink.take(&frame).unwrap(), Next::More);
        }
        sink.finish().unwrap();
    } else {
        let mut sink = plan.open(&hd(), &layout, false).unwrap();
        for n in 0..pictures {
            assert_eq!(sink.take(&picture(&layout, n)).unwrap(), Next::More);
        }
        sink.finish().unwrap();
    }
    assert_eq!(coded(&path).len() as u64, pictures);
    assert!(lines(&[]).is_empty());
}

/// A smooth picture that moves, in any layout of 8 or 10 bits: octets and words count up.
fn picture(layout: &Layout, n: u64) -> Frame {
    let mut buf = FramePool::host(layout.clone(), 1).unwrap().take().unwrap();
    let deep = matches!(layout.output, Output::P010 | Output::P210)
        || layout.output == Output::Planar && layout.wire.depth != Depth::D8;
    let shift = if matches!(layout.output, Output::P010 | Output::P210) { 6 } else { 0 };
    for plane in layout.planes.clone() {
        for row in 0..plane.rows {
            let at = plane.offset + row * plane.stride;
            let octets = &mut buf.region_mut().as_mut_slice()[at..at + plane.row_octets];
            if deep {
                octets.chunks_exact_mut(2).enumerate().for_each(|(x, word)| {
                    let level = 256 + ((x + row + 4 * n as usize) % 512) as u16;
                    word.copy_from_slice(&(level << shift).to_le_bytes());
                });
            } else {
                octets
                    .iter_mut()
                    .enumerate()
                    .for_each(|(x, o)| *o = ((x / 8 + row / 2 + 2 * n as usize) % 200 + 20) as u8);
            }
        }
    }
    *buf.meta_mut() = meta(n);
    buf.seal()
}

fn meta(number: u64) -> Meta {
    let time = Tai(1_000_000_000_000 + number * 20_000_000);
    Meta { number, complete: true, media_time: Some(time), first_arrival: time, ..Meta::default() }
}

/// Brings pictures to the GPU; a frame is finished when its event has happened.
struct Source {
    gpu: Arc<Gpu>,
    stream: Stream,
    pool: FramePool<Device>,
    pinned: Vec<Region<gdmedia::mem::Pinned>>,
}

impl Source {
    fn new(gpu: &Arc<Gpu>, layout: &Layout, frames: usize) -> Source {
        let pool = FramePool::new(layout.clone(), (0..frames).map(|_| ()), |size, ()| Region::device(gpu, size));
        let stream = Stream::new(gpu, false).unwrap();
        Source { gpu: gpu.clone(), stream, pool: pool.unwrap(), pinned: Vec::new() }
    }
    fn upload(&mut self, picture: &Frame, number: u64) -> Frame<Device> {
        let mut buf = self.pool.take().expect("the encoder holds too many frames");
        let mut pinned = Region::pinned(&self.gpu, picture.octets().len()).unwrap();
        pinned.as_mut_slice().copy_from_slice(picture.octets());
        let event = Event::new(&self.gpu, EventKind::Order).unwrap();
        let to = buf.region_mut().as_mut_ptr() as u64;
        // SAFETY: both live until the stream is gone, and nobody else touches them.
        unsafe { self.stream.copy(to, pinned.address(), pinned.len()) }.unwrap();
        self.stream.record(&event).unwrap();
        self.pinned.push(pinned);
        *buf.meta_mut() = meta(number);
        buf.seal_after(Some(Arc::new(event)))
    }
}

/// What comes out of a pipeline that ends with an `appsink` of the name `out`; it has to be told nothing.
fn pulled(text: &str) -> Vec<Vec<u8>> {
    gst::init().unwrap();
    let pipeline = gst::parse::launch(&format!("{text} ! appsink name=out sync=false")).unwrap();
    let pipeline = pipeline.downcast::<gst::Pipeline>().unwrap();
    let out = pipeline.by_name("out").unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut all = Vec::new();
    while let Some(sample) = out.emit_by_name::<Option<gst::Sample>>("pull-sample", &[]) {
        all.push(sample.buffer().unwrap().map_readable().unwrap().to_vec());
    }
    pipeline.set_state(gst::State::Null).unwrap();
    all
}

/// The compressed pictures of a Matroska file.
fn coded(path: &Path) -> Vec<Vec<u8>> {
    pulled(&format!("filesrc location={} ! matroskademux", path.display()))
}

fn psnr(a: &[u8], b: &[u8]) -> f64 {
    let sum: u64 = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2)).sum();
    10.0 * (255.0f64 * 255.0 / (sum as f64 / a.len() as f64).max(1e-9)).log10()
}

/// nvJPEG's files decode to the pictures that went in, odd widths too.
#[test]
fn nvjpeg_pictures_decode_to_what_went_in() {
    let Some(gpu) = gpu() else { return };
    if let Err(why) = nvjpeg::probe(&gpu) {
        return println!("skipped: {why}");
    }
    for (width, height) in [(1920, 1080), (3840, 2160), (721, 577), (33, 17)] {
        let video = video(Sampling::YCbCr422, Depth::D10, width, height);
        let layout = layout(&video, Output::Rgba).unwrap();
        let mut source = Source::new(&gpu, &layout, 2);
        let mut encoder = NvJpeg::new(&gpu, &layout, 95).unwrap();
        let picture = smooth(&layout);
        let frame = source.upload(&picture, 0);
        let jpeg = encoder.encode_frame(&frame).unwrap();
        assert_eq!((&jpeg[..2], &jpeg[jpeg.len() - 2..]), (&[0xff, 0xd8][..], &[0xff, 0xd9][..]));
        let begun = Instant::now();
        let rounds = 20;
        (0..rounds).for_each(|_| drop(encoder.encode_frame(&frame).unwrap()));
        let each = begun.elapsed() / rounds;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        std::fs::write(&path, &jpeg).unwrap();
        let pictures =
            pulled(&format!("filesrc location={} ! jpegdec ! videoconvert ! video/x-raw,format=RGB", path.display()));
        let stride = (width as usize * 3).next_multiple_of(4);
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for row in 0..height as usize {
            theirs.extend_from_slice(&pictures[0][row * stride..][..width as usize * 3]);
            ours.extend(picture.row(0, row).chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]));
        }
        let db = psnr(&ours, &theirs);
        println!("{width}x{height}: {} octets, {db:.1} dB, {each:?} a picture", jpeg.len());
        assert!(db > 38.0, "{width}x{height}: {db} dB");
    }
}

/// Colours that change slowly in both directions, different in each component.
fn smooth(layout: &Layout) -> Frame {
    let mut buf = FramePool::host(layout.clone(), 1).unwrap().take().unwrap();
    let plane = layout.planes[0];
    let (width, height) = (layout.wire.width as usize, layout.wire.height as usize);
    for row in 0..height {
        for x in 0..width {
            let at = plane.offset + row * plane.stride + 4 * x;
            // Slowly in small pictures as well: half of the chroma is left out.
            let (a, b) = ((x * 200 / width.max(200)) as u8, (row * 200 / height.max(200)) as u8);
            buf.region_mut().as_mut_slice()[at..at + 4].copy_from_slice(&[20 + a, 20 + b, 220 - a / 2 - b / 2, 255]);
        }
    }
    buf.seal()
}

/// MJPEG on the GPU as a whole: every frame is in the file.
#[test]
fn mjpeg_on_the_gpu_writes_every_frame() {
    let Some(gpu) = gpu() else { return };
    if let Err(why) = nvjpeg::probe(&gpu) {
        return println!("skipped: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mkv");
    let spec: Spec = "mjpeg,quality=90".parse().unwrap();
    let target: Target = path.to_str().unwrap().parse().unwrap();
    let plan = Plan::new(&spec, &target, &hd(), Some(&gpu), true, None).unwrap();
    assert_eq!((plan.rung(), plan.output()), (Rung::NvJpeg, Output::Rgba));
    println!("{}", plan.describe());
    let layout = layout(&hd(), Output::Rgba).unwrap();
    let mut sink = plan.open_on_gpu(&hd(), &layout, false).unwrap();
    let mut source = Source::new(&gpu, &layout, 3);
    for n in 0..25 {
        let frame = source.upload(&smooth(&layout), n);
        assert_eq!(sink.take(&frame).unwrap(), Next::More);
    }
    sink.finish().unwrap();
    let pictures = coded(&path);
    assert_eq!(pictures.len(), 25);
    assert!(pictures.iter().all(|jpeg| jpeg.starts_with(&[0xff, 0xd8])));
}
