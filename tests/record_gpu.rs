//! Frames of a GPU to disk and back: by cuFile, and over pinned memory. Needs a GPU; says "skipped" without one.
//!
//! GDMEDIA_RECORD_DISK names a folder on the disk that is meant (default: that of temporary files).
#![cfg(feature = "cuda")]

mod frames;

use gdmedia::Kind;
use gdmedia::format::{Layout, Output};
use gdmedia::gpu::Gpu;
use gdmedia::record::Way;
use gdmedia::record::bench;
use gdmedia::record::write::cufile;
use gdmedia::sdp::{Depth, Essence, Flow, Mode, Sampling};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn gpu() -> Option<Arc<Gpu>> {
    Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
}

fn folder() -> tempfile::TempDir {
    match std::env::var_os("GDMEDIA_RECORD_DISK") {
        Some(disk) => tempfile::tempdir_in(disk).unwrap(),
        None => tempfile::tempdir().unwrap(),
    }
}

/// An odd width, so that frames are no whole pages.
fn flow(output: Output) -> (Flow, Layout) {
    let video = frames::video(Sampling::YCbCr422, Depth::D10, 1278, 719);
    let layout = frames::layout(&video, output).unwrap();
    let sdp = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\n\
         a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=16; height=16; exactframerate=25; depth=10; TCS=SDR; \
         colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\na=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\n\
         a=mediaclk:direct=0\r\n";
    let mut flow = gdmedia::sdp::parse(sdp.as_bytes(), Mode::Lenient).flows.remove(0);
    flow.essence = Essence::Video(video);
    (flow, layout)
}

/// Recorded, read back to the GPU and compared there with what was recorded: [`bench::on_gpu`] fails where they differ.
fn there_and_back(gpu: &Arc<Gpu>, way: Way) -> Result<(), gdmedia::Error> {
    for output in [Output::Wire, Output::Planar, Output::P210] {
        let (flow, layout) = flow(output);
        let dir = folder();
        let measured = bench::on_gpu(gpu, dir.path(), &flow, &layout, way, 64 << 20, &AtomicBool::new(false))?;
        println!("{}: {:.2} GB/s, read {:.2?}", measured.what, measured.speed() / 1e9, measured.read_seconds);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    }
    Ok(())
}

#[test]
fn over_pinned_memory() {
    let Some(gpu) = gpu() else { return };
    there_and_back(&gpu, Way::Auto).unwrap();
    there_and_back(&gpu, Way::Pwrite).unwrap();
}

#[test]
fn by_cufile_or_why_not() {
    let Some(gpu) = gpu() else { return };
    if let Err(why) = cufile::library() {
        return println!("skipped: no libcufile: {why}");
    }
    match there_and_back(&gpu, Way::Cufile) {
        Ok(()) => {}
        Err(error) => {
            println!("refused: {error}");
            assert_eq!(error.kind(), Kind::Unavailable, "{error}");
            let text = error.to_string();
            assert!(text.contains("cuFile") && !error.cure_text().is_empty(), "{text}");
            assert!(!text.contains("5027") || text.contains("udev"), "{text}");
        }
    }
}
