//! From frames to a file through the stand-in for NVENC, which gives back what an encoder of the CPU has made.
#![allow(unsafe_code)]

use super::*;
use crate::encode::nvenc::stand_in::{Script, library};
use crate::encode::{Rung, Spec, Target};
use crate::format::WireFormat;
use crate::frame::FramePool;
use crate::mem::Region;
use crate::time::Tai;
use gdmedia_sdp::{Depth, Ratio, Sampling};
use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

const PICTURES: usize = 20;

fn video() -> Video {
    Video::new(Sampling::YCbCr422, Depth::D8, 64, 64, Ratio::new(25, 1))
}

/// What an encoder of the CPU makes, a picture an element, in the form in which NVENC and nvJPEG give it; none where no such
/// encoder is installed.
fn coded_by_cpu(codec: Codec) -> Option<Vec<(Vec<u8>, bool)>> {
    gst::init().unwrap();
    let encoders: &[(&str, &str)] = match codec {
        Codec::H264 => &[
            ("x264enc", "x264enc bframes=0 tune=zerolatency key-int-max=5 aud=true"),
            ("openh264enc", "openh264enc gop-size=5"),
        ],
        Codec::Hevc => &[("x265enc", "x265enc tune=zerolatency key-int-max=5 speed-preset=ultrafast")],
        Codec::Av1 => &[(
            "av1enc",
            "av1enc usage-profile=realtime cpu-used=8 min-quantizer=2 max-quantizer=58 lag-in-frames=0 keyframe-max-dist=5",
        )],
        Codec::Mjpeg => &[("jpegenc", "jpegenc")],
    };
    let (_, encoder) = encoders.iter().find(|(name, _)| gst::ElementFactory::find(name).is_some())?;
    let form = match codec {
        Codec::H264 => "h264parse config-interval=-1 ! video/x-h264,stream-format=byte-stream,alignment=au",
        Codec::Hevc => "h265parse config-interval=-1 ! video/x-h265,stream-format=byte-stream,alignment=au",
        Codec::Av1 => "av1parse ! video/x-av1,stream-format=obu-stream,alignment=tu",
        Codec::Mjpeg => "image/jpeg",
    };
    let text = format!(
        "videotestsrc pattern=ball num-buffers={PICTURES} ! video/x-raw,format=I420,width=64,height=64,framerate=25/1 ! \
         {encoder} ! {form} ! appsink name=out sync=false"
    );
    let pipeline = gst::parse::launch(&text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut all = Vec::new();
    while let Ok(sample) = out.pull_sample() {
        let buffer = sample.buffer().unwrap();
        let key = !buffer.flags().contains(gst::BufferFlags::DELTA_UNIT);
        all.push((buffer.map_readable().unwrap().to_vec(), key));
    }
    pipeline.set_state(gst::State::Null).unwrap();
    assert_eq!(all.len(), PICTURES);
    Some(all)
}

fn pictures() -> Option<Vec<(Vec<u8>, bool)>> {
    coded_by_cpu(Codec::H264)
}

/// Every codec that is encoded here, into every file that holds it: pictures in, as many out, at their times.
#[test]
fn what_is_encoded_here_reaches_every_container() {
    let folder = tempfile::tempdir().unwrap();
    for codec in Codec::ALL {
        let Some(pictures) = coded_by_cpu(codec) else {
            println!("skipped: no encoder for {codec}");
            continue;
        };
        for name in ["a.mp4", "a.mov", "a.mkv", "a.ts"] {
            let path = folder.path().join(format!("{}-{name}", codec.word()));
            let target: Target = path.to_str().unwrap().parse().unwrap();
            if target.takes(codec).is_err() {
                continue;
            }
            let (rung, output) = match codec {
                Codec::Mjpeg => (Rung::NvJpeg, Output::Rgba),
                _ => (Rung::NvencCuda(codec), Output::Nv12),
            };
            let layout = Layout::new(WireFormat::from_video(&video()).unwrap(), output).unwrap();
            let plan = Plan::of_rung(codec.word().parse().unwrap(), target, rung, output);
            let (line, finish) = plan.coded(1, &video(), true);
            let mut coded = Coded::open(&line, Coding::of(codec), &video(), &layout, false, finish).unwrap();
            for (n, (octets, key)) in pictures.iter().enumerate() {
                assert_eq!(coded.room().unwrap(), Next::More, "{codec} {name}");
                assert_eq!(coded.push(octets.clone(), &meta(n as u64), *key).unwrap(), Next::More, "{codec} {name}");
            }
            coded.finish().unwrap();
            let demux = match name {
                "a.mkv" => "matroskademux",
                "a.ts" => "tsdemux",
                _ => "qtdemux",
            };
            let parse = match (name, codec) {
                ("a.ts", Codec::H264) => " ! h264parse ! video/x-h264,alignment=au",
                ("a.ts", _) => " ! h265parse ! video/x-h265,alignment=au",
                _ => "",
            };
            let times = pulled(&format!("filesrc location={} ! {demux}{parse}", path.display()));
            let steps: Vec<u64> = times.windows(2).map(|w| w[1] - w[0]).collect();
            assert_eq!((times.len(), steps), (PICTURES, vec![40; PICTURES - 1]), "{codec} {name}");
        }
    }
}

/// Decodes a file; the presentation times of its pictures, in milliseconds.
fn decoded(path: &Path) -> Vec<u64> {
    pulled(&format!("filesrc location={} ! decodebin", path.display()))
}

/// Of what comes out of a fragment.
fn pulled(text: &str) -> Vec<u64> {
    let text = format!("{text} ! appsink name=out sync=false");
    let pipeline = gst::parse::launch(&text).unwrap().downcast::<gst::Pipeline>().unwrap();
    let out = pipeline.by_name("out").unwrap().downcast::<gst_app::AppSink>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let mut times = Vec::new();
    while let Ok(sample) = out.pull_sample() {
        times.push(sample.buffer().unwrap().pts().unwrap().mseconds());
    }
    pipeline.set_state(gst::State::Null).unwrap();
    times
}

fn meta(n: u64) -> Meta {
    let time = Tai(1_000_000_000_000 + n * 40_000_000);
    Meta { number: n, complete: true, media_time: Some(time), first_arrival: time, ..Meta::default() }
}

fn layout() -> Layout {
    Layout::new(WireFormat::from_video(&video()).unwrap(), Output::Nv12).unwrap()
}

/// A sink over the stand-in that writes to `path`.
fn sink(script: &Arc<Script>, path: &Path) -> NvencSink {
    let (video, layout) = (video(), layout());
    let spec: Spec = "h264,bitrate=1M,gop=5,preset=medium".parse().unwrap();
    let target: Target = path.to_str().unwrap().parse().unwrap();
    let plan = Plan::of_rung(spec, target, Rung::NvencCuda(Codec::H264), Output::Nv12);
    let settings = plan.settings(&video, &layout, false);
    assert_eq!((settings.bits_a_second, settings.gop, settings.preset), (1_000_000, 5, 4));
    let encoder = Nvenc::open(library(), script.device(), settings).unwrap();
    let (line, _) = plan.coded(1, &video, true);
    let coded = Coded::open(&line, Coding::H264, &video, &layout, false, Duration::from_secs(20)).unwrap();
    NvencSink::new(encoder, coded, None, "NVENC".into())
}

#[test]
fn every_frame_is_in_the_file() {
    let Some(pictures) = pictures() else { return println!("skipped: no H.264 encoder") };
    if gst::ElementFactory::find("avdec_h264").is_none() && gst::ElementFactory::find("openh264dec").is_none() {
        return println!("skipped: no H.264 decoder");
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, delay) in [("a.mkv", 0), ("a.mp4", 0), ("a.ts", 3)] {
        let path = folder.path().join(name);
        let script = Arc::new(Script { pictures: pictures.clone(), delay, ..Script::default() });
        let mut sink = sink(&script, &path);
        let pool = FramePool::host(layout(), 1).unwrap();
        for n in 0..PICTURES as u64 {
            let mut buf = pool.take().expect("a frame of the CPU is not kept");
            *buf.meta_mut() = meta(n);
            assert_eq!(Sink::<Host>::take(&mut sink, &buf.seal()).unwrap(), Next::More);
        }
        Sink::<Host>::finish(&mut sink).unwrap();
        drop(sink);
        let times = decoded(&path);
        let steps: Vec<u64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!((times.len(), steps), (PICTURES, vec![40; PICTURES - 1]), "{name}");
        assert_eq!(script.calls().last().unwrap(), "destroy, left: 0 outputs, 0 inputs, 0 registered, 0 mapped");
    }
}

#[test]
fn frames_of_the_gpu_are_held_until_they_are_encoded_and_known_by_their_addresses() {
    let Some(pictures) = pictures() else { return println!("skipped: no H.264 encoder") };
    let folder = tempfile::tempdir().unwrap();
    let script = Arc::new(Script { pictures, delay: 2, ..Script::default() });
    let mut sink = sink(&script, &folder.path().join("a.mkv"));
    // No GPU reads these addresses.
    let pool = FramePool::<Device>::new(layout(), [1usize, 2, 3, 4].into_iter().map(|n| n * 0x10_0000), |size, at| {
        let start = NonNull::new(std::ptr::without_provenance_mut::<u8>(at)).unwrap();
        // SAFETY: the stand-in does not look there, and nobody else does.
        Ok(unsafe { Region::from_owner(start, size, Box::new(())) })
    })
    .unwrap();
    let mut free = Vec::new();
    for n in 0..6 {
        let mut buf = pool.take().expect("frames come back when they are encoded");
        *buf.meta_mut() = meta(n);
        assert_eq!(Sink::<Device>::take(&mut sink, &buf.seal()).unwrap(), Next::More);
        let idle: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        free.push(idle.len());
        idle.into_iter().for_each(|buf| buf.discard());
    }
    assert_eq!(free, [3, 2, 4, 3, 2, 4], "two stay in the encoder before three come out");
    Sink::<Device>::finish(&mut sink).unwrap();
    drop(sink);
    let calls = script.calls();
    assert!(calls.contains(&"register 0x100000 pitch 64".to_owned()), "{calls:?}");
    let registered = calls.iter().filter(|call| call.starts_with("register")).count();
    assert!((3..=4).contains(&registered), "{calls:?}");
    assert_eq!(calls.last().unwrap(), "destroy, left: 0 outputs, 0 inputs, 0 registered, 0 mapped");
}

#[test]
fn planes_lie_as_nvenc_wants_them() {
    let wire =
        |width, height| WireFormat::new(Sampling::YCbCr422, Depth::D10, width, height, Scan::Progressive).unwrap();
    let of = |width, height, output| pitch(&Layout::new(wire(width, height), output).unwrap());
    assert_eq!(of(1920, 1080, Output::Nv12), Some(1920));
    assert_eq!(of(1920, 1080, Output::P010), Some(3840));
    assert_eq!(of(722, 576, Output::Nv12), Some(768));
    assert_eq!(of(1920, 1080, Output::P210), None);
    assert_eq!(of(1920, 1080, Output::Planar), None);
}
