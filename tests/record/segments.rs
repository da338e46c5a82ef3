//! Written and read in one process.

use super::{files, flow, frames, meta, numbered, record};
use gdmedia::Kind;
use gdmedia::format::Output;
use gdmedia::record::form::{End as SegmentEnd, PAGE};
use gdmedia::record::read::{Known, mend};
use gdmedia::record::{Limit, Options, Recorder, Recording, Segment, Way};
use gdmedia::sdp::{Depth, Sampling};
use gdmedia::sink::{End, RecordSink, SinkQueue};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

fn options(way: Way) -> Options {
    Options { way, ..Options::default() }
}

/// Numbers and octets of all frames that are good.
fn read(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let recording = Recording::open(path).unwrap();
    let mut octets = vec![0; recording.header().frame_octets()];
    let places: Vec<_> = recording.places().collect();
    let load =
        |place| recording.load(place, &mut octets).ok().map(|head| head.meta.number).map(|n| (n, octets.clone()));
    places.into_iter().filter_map(load).collect()
}

#[test]
fn every_layout_comes_back_by_every_way() {
    let dir = tempfile::tempdir().unwrap();
    for (index, (video, layout)) in frames::layouts(34, 6).enumerate() {
        let folder = dir.path().join(index.to_string());
        std::fs::create_dir(&folder).unwrap();
        let way = if index % 2 == 0 { Way::Auto } else { Way::Pwrite };
        record(&folder, &video, &layout, &options(way), 0..3);
        let recording = Recording::open(&folder).unwrap();
        assert_eq!(*recording.header().video().unwrap(), flow_video(&video));
        assert_eq!(recording.header().layout, layout);
        assert!(recording.remarks().is_empty(), "{:?}", recording.remarks());
        let segment = &recording.segments()[0];
        assert_eq!(
            (segment.known(), segment.end(), segment.entries().len()),
            (Known::Index, Some(SegmentEnd::Finished), 3)
        );
        let mut octets = vec![0; layout.size];
        for (n, place) in recording.places().enumerate() {
            let head = recording.load(place, &mut octets).unwrap();
            assert_eq!(head.meta, meta(n as u64));
            let frame = numbered(&layout, n as u64);
            let used = recording.header().frame_octets();
            assert!(octets[..used] == frame.octets()[..used], "{layout:?}");
        }
    }
}

/// What an SDP keeps of a picture: writing fills in what the standards demand.
fn flow_video(video: &gdmedia::sdp::Video) -> gdmedia::sdp::Video {
    let text = gdmedia::sdp::write(&[flow(video)]);
    let again = gdmedia::sdp::parse(text.as_bytes(), gdmedia::sdp::Mode::Lenient).flows.remove(0);
    let gdmedia::sdp::Essence::Video(video) = again.essence else { panic!("video") };
    video
}

#[test]
fn the_ways_write_the_same_octets() {
    let video = frames::video(Sampling::YCbCr422, Depth::D10, 130, 33);
    let layout = frames::layout(&video, Output::Wire).unwrap();
    let mut written = Vec::new();
    for way in [Way::Uring, Way::Pwrite] {
        let dir = tempfile::tempdir().unwrap();
        let Ok(mut recorder) = Recorder::create(dir.path(), &flow(&video), &layout, &options(way)) else {
            println!("skipped: no {}", way.word());
            continue;
        };
        assert!(recorder.describe().contains(if way == Way::Uring { "O_DIRECT" } else { "page cache" }));
        (0..20).for_each(|n| recorder.write(&numbered(&layout, n)).unwrap());
        recorder.finish().unwrap();
        assert!(recorder.stats().latency().is_some_and(|l| l.count == 20));
        let mut octets = std::fs::read(&files(dir.path())[0]).unwrap();
        // But for what tells recordings apart, and the CRCs over it.
        let slot = PAGE + (layout.size - 64).next_multiple_of(PAGE);
        for at in (0..20).map(|n| PAGE + n * slot) {
            octets[at + 24..at + 40].fill(0);
            octets[at + PAGE - 4..at + PAGE].fill(0);
        }
        octets.drain(..PAGE);
        octets.truncate(octets.len() - PAGE);
        written.push(octets);
    }
    assert!(written.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn frames_that_are_left_out_are_gaps() {
    let video = frames::video(Sampling::YCbCr422, Depth::D8, 16, 4);
    let layout = frames::layout(&video, Output::Planar).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(dir.path(), &flow(&video), &layout, &Options::default()).unwrap();
    for n in [5, 6, 9, 10, 20] {
        recorder.write(&numbered(&layout, n)).unwrap();
    }
    recorder.finish().unwrap();
    let stats = recorder.stats();
    assert_eq!((stats.frames.load(Relaxed), stats.gaps.load(Relaxed), stats.left_out.load(Relaxed)), (5, 2, 11));
    let segment = Segment::open(&files(dir.path())[0]).unwrap();
    let gaps: Vec<u64> = (0..5).map(|n| segment.head(n).unwrap().gap).collect();
    assert_eq!(gaps, [0, 0, 2, 0, 9]);
    let found = segment.check(|_, _| {});
    assert_eq!((found.good, found.damaged, found.left_out, found.incomplete), (5, 0, 11, 1));
}

/// Frames come faster than any disk takes them: whatever the queue drops is in a gap, or came last.
#[test]
fn a_disk_that_is_too_slow_leaves_gaps_and_nothing_is_uncounted() {
    let video = frames::video(Sampling::YCbCr422, Depth::D10, 640, 360);
    let layout = frames::layout(&video, Output::Wire).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let sink = RecordSink::create(dir.path(), &flow(&video), &layout, &Options::default()).unwrap();
    let stats = sink.stats();
    let queue = SinkQueue::spawn(Box::new(sink), 2).unwrap();
    let ready: Vec<_> = (0..60).map(|n| numbered(&layout, n)).collect();
    let offered = ready.into_iter().map(|frame| queue.offer(frame)).filter(|taken| *taken).count() as u64;
    let report = queue.finish(Duration::from_secs(60));
    assert!(matches!(report.end, End::Finished), "{report:?}");
    assert_eq!((report.taken, report.dropped), (offered, 60 - offered));
    let segment = Segment::open(&files(dir.path())[0]).unwrap();
    let last = segment.entries().last().unwrap().number;
    let found = segment.check(|_, _| {});
    assert_eq!((found.good, found.good + found.left_out), (offered, last + 1));
    assert_eq!(stats.left_out.load(Relaxed), found.left_out);
}

#[test]
fn segments_by_size_and_by_time_follow_one_another() {
    let video = frames::video(Sampling::YCbCr422, Depth::D8, 16, 4);
    let layout = frames::layout(&video, Output::Wire).unwrap();
    // A slot has two pages, header, index and tail one each: four slots in 11 pages.
    let size = Limit::Octets(11 * PAGE as u64);
    // 25 frames a second.
    let time = Limit::Time(Duration::from_millis(160));
    for limit in [size, time, Limit::Octets(1)] {
        let dir = tempfile::tempdir().unwrap();
        record(dir.path(), &video, &layout, &Options { limit, way: Way::Auto }, 0..10);
        let each = if limit == Limit::Octets(1) { 1 } else { 4 };
        let recording = Recording::open(dir.path()).unwrap();
        let slots: Vec<usize> = recording.segments().iter().map(|s| s.entries().len()).collect();
        assert_eq!(slots, if each == 4 { vec![4, 4, 2] } else { vec![1; 10] });
        let firsts: Vec<u64> = recording.segments().iter().map(|s| s.header().first_slot).collect();
        assert!(firsts.iter().enumerate().all(|(n, first)| *first == n as u64 * each));
        let ends: Vec<_> = recording.segments().iter().map(|s| s.end().unwrap()).collect();
        assert!(ends.split_last().is_some_and(|(last, others)| {
            *last == SegmentEnd::Finished && others.iter().all(|end| *end == SegmentEnd::Continued)
        }));
        assert_eq!(read(dir.path()).iter().map(|f| f.0).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        // A file alone is its part.
        let second = &files(dir.path())[1];
        assert_eq!(read(second)[0].0, each);
        if limit == size {
            assert!(std::fs::metadata(second).unwrap().len() <= 11 * PAGE as u64);
        }
        // Without one in the middle the rest is still read, and it is said.
        std::fs::remove_file(second).unwrap();
        let recording = Recording::open(dir.path()).unwrap();
        assert!(recording.remarks().iter().any(|r| r.contains("missing")), "{:?}", recording.remarks());
    }
}

/// A recording of eight frames, cut and damaged in every way that a crash or a disk has.
#[test]
fn damage_costs_the_frames_that_it_hits() {
    let video = frames::video(Sampling::YCbCr422, Depth::D10, 130, 33);
    let layout = frames::layout(&video, Output::Planar).unwrap();
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), &video, &layout, &Options::default(), 0..8);
    let path = files(dir.path()).remove(0);
    let whole = std::fs::read(&path).unwrap();
    let (begin, slot) = {
        let segment = Segment::open(&path).unwrap();
        (segment.header().octets(), segment.header().slot_octets())
    };
    let numbers = || read(&path).into_iter().map(|f| f.0).collect::<Vec<_>>();
    let again = |octets: &[u8]| std::fs::write(&path, octets).unwrap();
    let flip = |at: u64| {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut octet = [0];
        file.read_exact_at(&mut octet, at).unwrap();
        file.write_all_at(&[octet[0] ^ 0x10], at).unwrap();
    };

    // An octet of a frame, of a head, of a loss map: that frame is gone, and no other.
    for (at, lost) in [(PAGE as u64 + 1000, 3), (20, 0), (170, 7), (slot - PAGE as u64, 5)] {
        again(&whole);
        flip(begin + lost * slot + at);
        let wanted: Vec<u64> = (0..8).filter(|n| *n != lost).collect();
        assert_eq!(numbers(), wanted, "octet {at} of slot {lost}");
        let found = Segment::open(&path).unwrap().check(|_, _| {});
        assert_eq!((found.good, found.damaged), (7, 1));
        assert!(found.first.is_some_and(|text| text.contains(&format!("slot {lost}"))));
    }
    // The index, the tail: nothing is lost, and the index comes back.
    for at in [begin + 8 * slot + 3, whole.len() as u64 - 4000] {
        again(&whole);
        flip(at);
        assert_eq!(Segment::open(&path).unwrap().known(), Known::Scan);
        assert_eq!(numbers(), (0..8).collect::<Vec<_>>());
        let mended = mend(&path).unwrap();
        assert_eq!(
            (mended.known(), mended.end(), mended.entries().len()),
            (Known::Index, Some(SegmentEnd::Recovered), 8)
        );
        assert_eq!(std::fs::metadata(&path).unwrap().len(), whole.len() as u64);
        assert_eq!(numbers(), (0..8).collect::<Vec<_>>());
    }
    // Killed while it was written: cut anywhere, and with room behind.
    for (cut, frames) in
        [(begin, 0), (begin + PAGE as u64 + 100, 0), (begin + 3 * slot + 5000, 3), (begin + 8 * slot, 8)]
    {
        for room in [0, 5 * slot] {
            again(&whole[..cut as usize]);
            OpenOptions::new().write(true).open(&path).unwrap().set_len(cut + room).unwrap();
            // What follows a head that is right has to be right as well.
            assert_eq!(numbers(), (0..frames).collect::<Vec<_>>(), "cut at {cut}");
            let mended = mend(&path).unwrap();
            assert_eq!(mended.entries().len() as u64, frames);
            assert_eq!(numbers(), (0..frames).collect::<Vec<_>>());
        }
    }
    // A hole: a slot whose write was cut short, and one behind it that was not.
    again(&whole[..(begin + 6 * slot) as usize]);
    File::options().write(true).open(&path).unwrap().write_all_at(&[0; PAGE], begin + 4 * slot).unwrap();
    assert_eq!(numbers(), [0, 1, 2, 3, 5]);
    assert!(Recording::open(&path).unwrap().remarks().iter().any(|r| r.contains("1 slots")));
    // Slots that are not where they belong.
    let swapped = [&whole[..begin as usize], &whole[(begin + slot) as usize..]].concat();
    again(&swapped);
    assert_eq!(numbers(), [0; 0]);
}

#[test]
fn what_is_no_recording_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.gdr");
    for octets in [&b""[..], b"hello", b"\x89GDR\r\n\x1a\n", &[0; 9000]] {
        std::fs::write(&path, octets).unwrap();
        let error = Segment::open(&path).unwrap_err();
        assert!(error.kind() == Kind::Data && error.to_string().contains("x.gdr"), "{error}");
    }
    let mut future = std::fs::read(&path).unwrap();
    future[..8].copy_from_slice(b"\x89GDR\r\n\x1a\n");
    future[8] = 2;
    std::fs::write(&path, future).unwrap();
    assert!(Segment::open(&path).unwrap_err().to_string().contains("version 2"));
    std::fs::remove_file(&path).unwrap();
    let error = Recording::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("no .gdr file"), "{error}");
    assert_eq!(Recording::open(&path).unwrap_err().kind(), Kind::Data);
    assert!(!Recording::is_at(&path) && !Recording::is_at(dir.path()));
}

#[test]
fn two_recordings_in_a_folder_are_told_apart() {
    let video = frames::video(Sampling::YCbCr422, Depth::D8, 16, 4);
    let layout = frames::layout(&video, Output::Wire).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        record(dir.path(), &video, &layout, &Options::default(), 0..2);
        std::thread::sleep(Duration::from_millis(2));
    }
    let files = files(dir.path());
    assert_eq!(files.len(), 2, "names differ by milliseconds");
    let error = Recording::open(dir.path()).unwrap_err();
    assert!(error.kind() == Kind::Usage && error.to_string().contains("several recordings"), "{error}");
    assert!(files.iter().all(|file| read(file).len() == 2 && Recording::is_at(file)));
}

#[test]
fn nothing_recorded_leaves_nothing_behind() {
    let video = frames::video(Sampling::YCbCr422, Depth::D8, 16, 4);
    let layout = frames::layout(&video, Output::Wire).unwrap();
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), &video, &layout, &Options::default(), []);
    assert!(files(dir.path()).is_empty());
    // One that is dropped without an end still has its index.
    let mut recorder = Recorder::create(dir.path(), &flow(&video), &layout, &Options::default()).unwrap();
    recorder.write(&numbered(&layout, 0)).unwrap();
    drop(recorder);
    assert_eq!(Segment::open(&files(dir.path())[0]).unwrap().known(), Known::Index);
}
