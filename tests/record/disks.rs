//! Disks that are full, slow, or go away. Small ones are mounted where the tests run as root.

use super::common::{free_port, gdmedia, send_to_pcap, temp};
use super::{files, flow, frames, numbered};
use gdmedia::Kind;
use gdmedia::format::Output;
use gdmedia::record::form::End;
use gdmedia::record::read::Known;
use gdmedia::record::{Options, Recorder, Segment, Way};
use gdmedia::sdp::{Depth, Sampling};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

/// A file system of its own.
pub struct Mounted(pub tempfile::TempDir);

impl Mounted {
    /// In memory; none where that is not allowed.
    pub fn tmpfs(octets: u64) -> Option<Self> {
        Self::mount(&["-t", "tmpfs", "-o", &format!("size={octets}"), "gdmedia-record"])
    }
    /// ext4 in a file; none where that is not allowed.
    pub fn ext4(mib: u64) -> Option<Self> {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(mib << 20).unwrap();
        let path = image.path().to_str().unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", path]).output();
        if !made.is_ok_and(|o| o.status.success()) {
            println!("skipped: no mkfs.ext4");
            return None;
        }
        // The mount holds the image; its name may go.
        Self::mount(&["-o", "loop", path])
    }
    fn mount(args: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(args).arg(dir.path()).output();
        if mounted.is_ok_and(|o| o.status.success()) {
            return Some(Mounted(dir));
        }
        println!("skipped: mount needs root, and loop devices");
        None
    }
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_ends_a_recording_that_is_whole() {
    let video = frames::video(Sampling::YCbCr422, Depth::D10, 640, 360);
    let layout = frames::layout(&video, Output::Wire).unwrap();
    for (way, disk) in [
        (Way::Auto, Mounted::ext4(24)),
        (Way::Pwrite, Mounted::ext4(24)),
        (Way::Auto, Mounted::tmpfs(8 << 20)),
        (Way::Pwrite, Mounted::tmpfs(8 << 20)),
    ] {
        let Some(disk) = disk else { continue };
        let options = Options { way, ..Options::default() };
        let mut recorder = Recorder::create(disk.path(), &flow(&video), &layout, &options).unwrap();
        let mut written = 0;
        let error = loop {
            match recorder.write(&numbered(&layout, written)) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 1000, "the disk is never full");
        };
        assert_eq!(error.kind(), Kind::Output);
        assert!(error.to_string().contains("no room for") && !error.cure_text().is_empty(), "{error}");
        let stats = recorder.stats();
        let kept = stats.frames.load(Relaxed);
        assert!(kept > 3 && kept <= written, "{kept} of {written}");
        assert!(stats.take_news().iter().any(|n| n.contains(&format!("ended after {kept} frames"))));
        let segment = Segment::open(&files(disk.path())[0]).unwrap();
        assert_eq!((segment.known(), segment.end()), (Known::Index, Some(End::Full)));
        let found = segment.check(|head, octets| {
            let frame = numbered(&layout, head.meta.number);
            assert!(frame.octets()[..octets.len()] == *octets);
        });
        assert_eq!((found.good, found.damaged, found.empty, found.left_out), (kept, 0, 0, 1));
        // Nothing that was given to it beforehand is kept.
        drop(segment);
        let error = recorder.write(&numbered(&layout, 9999)).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
}

/// Where there is another sink, reception goes on; where there is none, the run ends. Both say why.
#[test]
fn a_full_disk_ends_the_recording_and_not_what_else_is_done() {
    let dir = temp();
    let capture = dir.join("in.pcap");
    let stream = send_to_pcap(&capture, free_port(), &["--frames", "60"]);
    for other in [true, false] {
        let Some(disk) = Mounted::tmpfs(2 << 20) else { return };
        let (to, from, out) = (disk.path().to_str().unwrap(), capture.to_str().unwrap(), dir.join("out.raw"));
        let mut args = vec!["record", "--sdp", &stream, "--pcap", from, "--to", to, "--output", "wire", "--json"];
        if other {
            args.extend(["--out", out.to_str().unwrap()]);
        }
        let done = gdmedia(&args);
        assert_eq!(done.code, 74, "{}", done.stderr);
        assert!(
            done.stderr.contains("\"event\":\"recording\"") && done.stderr.contains("has ended after"),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains("no room for"), "{}", done.stderr);
        let summary = done.summary();
        let recording = summary["sinks"].as_array().unwrap().iter().find_map(|s| s.get("recording")).unwrap().clone();
        let frames = recording["frames"].as_u64().unwrap();
        assert!((3..60).contains(&frames), "{summary}");
        // 320 x 180 in wire octets.
        let written = std::fs::metadata(&out).map_or(0, |m| m.len()) / (320 * 180 * 5 / 2);
        assert_eq!(written, if other { 60 } else { 60 * u64::from(out.exists()) }, "{summary}");
        let segment = Segment::open(&files(disk.path())[0]).unwrap();
        assert_eq!((segment.end(), segment.check(|_, _| {}).good), (Some(End::Full), frames));
    }
}

#[test]
fn a_recording_that_is_removed_is_told() {
    let video = frames::video(Sampling::YCbCr422, Depth::D8, 16, 4);
    let layout = frames::layout(&video, Output::Wire).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("rec");
    std::fs::create_dir(&folder).unwrap();
    let mut recorder = Recorder::create(&folder, &flow(&video), &layout, &Options::default()).unwrap();
    recorder.write(&numbered(&layout, 0)).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let error = (1..10).find_map(|n| recorder.write(&numbered(&layout, n)).err()).expect("it goes on into nothing");
    assert!(error.kind() == Kind::Output && error.to_string().contains("was removed"), "{error}");
}

#[test]
fn a_folder_that_may_not_be_written_to_is_told() {
    let video = frames::video(Sampling::YCbCr422, Depth::D8, 16, 4);
    let layout = frames::layout(&video, Output::Wire).unwrap();
    if let Some(disk) = Mounted::tmpfs(1 << 20) {
        let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(disk.path()).status();
        assert!(remounted.is_ok_and(|s| s.success()));
        let error = Recorder::create(disk.path(), &flow(&video), &layout, &Options::default()).unwrap_err();
        assert!(error.kind() == Kind::Output && error.to_string().contains("read-only"), "{error}");
    }
    // A disk that has not even room for the first frame.
    if let Some(disk) = Mounted::tmpfs(8 << 10) {
        let error = Recorder::create(disk.path(), &flow(&video), &layout, &Options::default()).unwrap_err();
        assert!(error.to_string().contains("no room for") && files(disk.path()).is_empty(), "{error}");
    }
}
