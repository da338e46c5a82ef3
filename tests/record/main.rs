//! Recordings: what is written comes back, whatever happens in between.

#[path = "../common/mod.rs"]
mod common;
#[path = "../frames/mod.rs"]
mod frames;

mod again;
mod disks;
mod program;
mod segments;

use gdmedia::format::Layout;
use gdmedia::frame::{Frame, FramePool, Meta};
use gdmedia::mem::Host;
use gdmedia::plan::Missing;
use gdmedia::record::{Options, Recorder};
use gdmedia::sdp::{Essence, Flow, Mode, Video};
use gdmedia::time::Tai;
use std::path::Path;

/// A flow of this picture.
pub fn flow(video: &Video) -> Flow {
    let mut flow = gdmedia::sdp::parse(common::sdp(5004).as_bytes(), Mode::Lenient).flows.remove(0);
    flow.essence = Essence::Video(video.clone());
    flow
}

/// What is known of frame `n` of 25 a second; every third one lacks something.
pub fn meta(n: u64) -> Meta {
    let media = Tai(1_700_000_000_000_000_000 + n * 40_000_000);
    let missing = if n % 3 == 1 { vec![Missing { row: 1, octet: 5, len: 10 }] } else { Vec::new() };
    Meta {
        number: n,
        complete: missing.is_empty(),
        timestamp: (n * 3600) as u32,
        media_time: Some(media),
        first_arrival: Tai(media.0 + 1_000_000),
        last_arrival: Tai(media.0 + 39_000_000),
        packets: 7,
        missing,
        ..Meta::default()
    }
}

/// Frame `n`, painted.
pub fn numbered(layout: &Layout, n: u64) -> Frame {
    let pool = FramePool::<Host>::host(layout.clone(), 1).unwrap();
    let mut buf = pool.take().unwrap();
    buf.region_mut().as_mut_slice().copy_from_slice(frames::painted(layout, n).octets());
    *buf.meta_mut() = meta(n);
    buf.seal()
}

/// Records these frames.
pub fn record(
    folder: &Path,
    video: &Video,
    layout: &Layout,
    options: &Options,
    numbers: impl IntoIterator<Item = u64>,
) {
    let mut recorder = Recorder::create(folder, &flow(video), layout, options).unwrap();
    for n in numbers {
        recorder.write(&numbered(layout, n)).unwrap();
    }
    recorder.finish().unwrap();
}

/// The `.gdr` files of a folder, by name.
pub fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "gdr"));
    files.sort();
    files
}
