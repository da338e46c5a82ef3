//! Files, snapshots and the queue before every sink.

mod frames;

use frames::{colour, flat, frame, layout, layouts, painted, rows, video};
use gdmedia::format::{Layout, Output};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::mem::Host;
use gdmedia::sdp::{Colorimetry, Depth, Range, Ratio, Sampling, Scan, Tcs, Video};
use gdmedia::sink::{End, FileFormat, FileSink, Next, Sink, SinkQueue, Snapshot, Verify, to_rgb, write_png};
use gdmedia::{Error, Kind};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

fn write(path: &Path, format: FileFormat, video: &Video, frames: &[Frame]) {
    let mut sink = FileSink::create(path, format, video, frames[0].layout()).unwrap();
    for frame in frames {
        assert_eq!(sink.take(frame).unwrap(), Next::More);
    }
    sink.finish().unwrap();
}

#[test]
fn y4m_octet_by_octet() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.Y4M");
    let mut video = video(Sampling::YCbCr422, Depth::D10, 2, 2);
    video.scan = Scan::Interlaced;
    video.rate = Ratio::new(25, 1);
    video.par = Ratio { num: 16, den: 11 };
    let layout = layout(&video, Output::Planar).unwrap();
    let picture = frame(&layout, 0, |plane, row, at| (plane * 16 + row * 4 + at) as u8);
    assert_eq!(FileFormat::of_path(&path), FileFormat::Y4m);
    write(&path, FileFormat::Y4m, &video, &[picture.clone(), picture]);
    let mut expected = b"YUV4MPEG2 W2 H2 F25:1 It A16:11 C422p10 XCOLORRANGE=LIMITED\n".to_vec();
    for _ in 0..2 {
        expected.extend_from_slice(b"FRAME\n\x00\x01\x02\x03\x04\x05\x06\x07\x10\x11\x14\x15\x20\x21\x24\x25");
    }
    assert_eq!(fs::read(&path).unwrap(), expected);
}

#[test]
fn raw_is_rows_without_padding() {
    let dir = tempfile::tempdir().unwrap();
    for (index, (video, layout)) in layouts(13, 5).enumerate() {
        let path = dir.path().join(format!("{index}.raw"));
        let pictures = [painted(&layout, 0), painted(&layout, 1)];
        write(&path, FileFormat::of_path(&path), &video, &pictures);
        let expected = [rows(&pictures[0]), rows(&pictures[1])].concat();
        assert_eq!(fs::read(&path).unwrap(), expected, "{layout:?}");
    }
}

#[test]
fn a_stream_without_frames_is_still_a_y4m_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none.y4m");
    let mut video = video(Sampling::Key, Depth::D8, 4, 4);
    (video.range, video.rate) = (Range::Full, None);
    let layout = layout(&video, Output::Planar).unwrap();
    FileSink::create(&path, FileFormat::Y4m, &video, &layout).unwrap().finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"YUV4MPEG2 W4 H4 F0:0 Ip A1:1 Cmono XCOLORRANGE=FULL\n");
}

#[test]
fn what_y4m_cannot_hold_is_refused_and_the_way_out_named() {
    let refused = |sampling, depth, output| {
        let video = video(sampling, depth, 8, 4);
        let layout = layout(&video, output).unwrap();
        let error = FileSink::create(Path::new("/nowhere/x.y4m"), FileFormat::Y4m, &video, &layout).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        error.to_string()
    };
    let text = refused(Sampling::Rgb, Depth::D10, Output::Planar);
    assert!(text.contains("y4m does not hold RGB of 10 bits as planar") && text.contains("--format raw"), "{text}");
    let text = refused(Sampling::YCbCr422, Depth::D10, Output::V210);
    assert!(text.contains("as v210") && text.contains("choose the planar output"), "{text}");
    refused(Sampling::YCbCr444, Depth::F16, Output::Planar);
}

#[test]
fn ffmpeg_reads_our_y4m() {
    if Command::new("ffmpeg").arg("-version").output().is_err()
        || Command::new("ffprobe").arg("-version").output().is_err()
    {
        eprintln!("skipped: no ffmpeg");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut formats = 0;
    for (mut video, layout) in layouts(22, 6).filter(|(_, l)| l.y4m().is_some()) {
        // 4:2:2 of 4:4:4 and so on share their layouts; the names of the samplings do not matter here.
        if !matches!(video.sampling, Sampling::YCbCr444 | Sampling::YCbCr422 | Sampling::YCbCr420 | Sampling::Key) {
            continue;
        }
        formats += 1;
        video.par = Ratio { num: 12, den: 11 };
        if formats % 2 == 0 {
            video.range = Range::Full;
        }
        let path = dir.path().join("x.y4m");
        let pictures = [painted(&layout, 0), painted(&layout, 1), painted(&layout, 2)];
        write(&path, FileFormat::Y4m, &video, &pictures);
        let pix_fmt = layout.pix_fmt().unwrap();
        let probe = Command::new("ffprobe")
            .args(["-v", "error", "-show_entries"])
            .arg("stream=pix_fmt,width,height,r_frame_rate,sample_aspect_ratio,color_range,field_order")
            .args(["-of", "default=nw=1"])
            .arg(&path)
            .output()
            .unwrap();
        let probe = String::from_utf8(probe.stdout).unwrap();
        let range = if video.range == Range::Full { "pc" } else { "tv" };
        for wanted in [
            format!("pix_fmt={pix_fmt}\n"),
            "width=22\nheight=6\n".into(),
            "r_frame_rate=60000/1001".into(),
            "sample_aspect_ratio=12:11".into(),
            format!("color_range={range}"),
            "field_order=progressive".into(),
        ] {
            assert!(probe.contains(&wanted), "{wanted} is not in\n{probe}");
        }
        let decoded = Command::new("ffmpeg")
            .args(["-v", "error", "-i"])
            .arg(&path)
            .args(["-f", "rawvideo", "-pix_fmt", pix_fmt, "-"])
            .output()
            .unwrap();
        assert!(decoded.status.success(), "{}", String::from_utf8_lossy(&decoded.stderr));
        assert!(decoded.stdout == pictures.iter().flat_map(rows).collect::<Vec<_>>(), "{pix_fmt}");
    }
    assert_eq!(formats, 15);
}

#[test]
fn a_full_disk_is_an_error_that_counts_the_frames() {
    let video = video(Sampling::YCbCr422, Depth::D10, 64, 4);
    let layout = layout(&video, Output::Planar).unwrap();
    let sink = FileSink::create(Path::new("/dev/full"), FileFormat::Raw, &video, &layout).unwrap();
    let queue = SinkQueue::spawn(Box::new(sink), 2).unwrap();
    assert!(queue.offer(painted(&layout, 0)));
    let report = queue.finish(LONG);
    assert_eq!((report.taken, report.dropped), (0, 1));
    let error = report.into_result().unwrap_err();
    assert_eq!(error.kind(), Kind::Output);
    let text = error.to_string();
    assert!(text.starts_with("writing to /dev/full failed after 0 frames: No space left on device"), "{text}");
    assert!(text.contains("cure: free space"), "{text}");
}

#[test]
fn a_pipe_without_reader_is_an_error_that_counts_the_frames() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let video = video(Sampling::YCbCr422, Depth::D8, 64, 4);
    let layout = layout(&video, Output::Planar).unwrap();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || {
            let mut first = vec![0; 512];
            fs::File::open(fifo).unwrap().read_exact(&mut first).unwrap();
            first
        }
    });
    let mut sink = FileSink::create(&fifo, FileFormat::Raw, &video, &layout).unwrap();
    let picture = painted(&layout, 0);
    sink.take(&picture).unwrap();
    assert_eq!(reader.join().unwrap(), rows(&picture));
    let error = sink.take(&picture).unwrap_err();
    assert_eq!(error.kind(), Kind::Output);
    let text = error.to_string();
    assert!(text.contains("failed after 1 frames: Broken pipe") && text.contains("keep the program"), "{text}");
}

/// Runs by itself in [`a_closed_standard_output_is_a_clean_end`]; otherwise it has nothing to do.
#[test]
fn child_that_writes_to_standard_output() {
    if std::env::var_os("GDMEDIA_TEST_STDOUT").is_none() {
        return;
    }
    let video = video(Sampling::YCbCr422, Depth::D8, 640, 400);
    let layout = layout(&video, Output::Planar).unwrap();
    let mut sink = FileSink::create(Path::new("-"), FileFormat::of_path(Path::new("-")), &video, &layout).unwrap();
    let picture = painted(&layout, 0);
    for _ in 0..1000 {
        match sink.take(&picture) {
            Ok(Next::More) => {}
            Ok(Next::Closed(why)) => {
                eprintln!("closed: {why}");
                std::process::exit(7);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_closed_standard_output_is_a_clean_end() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes_to_standard_output", "--nocapture", "--test-threads=1"])
        .env("GDMEDIA_TEST_STDOUT", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut head = vec![0; 600_000];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let at = head.windows(10).position(|w| w == b"YUV4MPEG2 ").expect("a y4m header");
    assert!(head[at..].windows(6).any(|w| w == b"FRAME\n"));
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("closed: standard output was closed by its reader after "), "{text}");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn a_file_that_cannot_be_created() {
    let video = video(Sampling::YCbCr422, Depth::D8, 4, 4);
    let layout = layout(&video, Output::Planar).unwrap();
    let error = FileSink::create(Path::new("/no/such/folder/x.raw"), FileFormat::Raw, &video, &layout).unwrap_err();
    assert_eq!(error.kind(), Kind::Output);
    assert!(error.to_string().contains("create the folder first"), "{error}");
    assert_eq!("ogg".parse::<FileFormat>().unwrap_err().kind(), Kind::Usage);
}

// --- the queue ---

/// Waits for a word before it takes each frame.
struct Slow {
    go: Receiver<()>,
    begun: Sender<u64>,
}

impl Sink for Slow {
    fn take(&mut self, frame: &Frame) -> gdmedia::error::Result<Next> {
        let _ = self.begun.send(frame.meta().number);
        let _ = self.go.recv();
        Ok(Next::More)
    }
    fn describe(&self) -> String {
        "a slow sink".into()
    }
}

fn slow() -> (Slow, Sender<()>, Receiver<u64>) {
    let (say, go) = channel();
    let (begun, hear) = channel();
    (Slow { go, begun }, say, hear)
}

fn small() -> Layout {
    layout(&video(Sampling::YCbCr422, Depth::D8, 4, 2), Output::Planar).unwrap()
}

#[test]
fn a_slow_sink_never_blocks_and_drops_are_counted() {
    let (sink, go, begun) = slow();
    let queue = SinkQueue::spawn(Box::new(sink), 2).unwrap();
    let pool = FramePool::<Host>::host(small(), 4).unwrap();
    let mut offer = |number| queue.offer(frames::fill(&pool, number, &mut |_, _, _| 0));
    assert!(offer(0));
    assert_eq!(begun.recv_timeout(LONG), Ok(0));
    // The sink holds frame 0 for as long as this test likes; nobody waits for it.
    let taken: Vec<bool> = (1..=10).map(&mut offer).collect();
    assert_eq!(taken, [true, true, false, false, false, false, false, false, false, false]);
    assert_eq!((queue.taken(), queue.dropped(), queue.waiting()), (0, 8, 2));
    // Three frames are held and no more: the pool of four still has one.
    assert!(pool.take().is_some_and(|buf| {
        buf.discard();
        true
    }));
    (0..3).for_each(|_| go.send(()).unwrap());
    let report = queue.finish(LONG);
    assert_eq!((report.taken, report.dropped), (3, 8));
    assert!(matches!(report.end, End::Finished));
    assert_eq!(begun.try_iter().collect::<Vec<_>>(), [1, 2]);
    assert_eq!((0..5).map_while(|_| pool.take()).count(), 4);
}

#[test]
fn a_queue_that_another_thread_still_knows_finishes_and_reports() {
    let queue = Arc::new(SinkQueue::spawn(Box::new(Verify::new(|f: &Frame| Some(f.meta().number))), 2).unwrap());
    let elsewhere = queue.clone();
    assert!(queue.offer(painted(&small(), 0)));
    let report = queue.finish(LONG);
    assert_eq!((report.taken, report.dropped), (1, 0));
    assert!(matches!(report.end, End::Finished));
    // What comes too late is dropped and counted, and nobody waits for it.
    assert!(!elsewhere.offer_waiting(painted(&small(), 1), || false));
    assert_eq!((elsewhere.taken(), elsewhere.dropped()), (1, 1));
}

#[test]
fn waiting_offers_lose_nothing() {
    let (begun, hear) = channel();
    let sink = Verify::new(move |frame: &Frame| {
        let _ = begun.send(());
        Some(frame.meta().number)
    });
    let verdict = sink.watch();
    let queue = SinkQueue::spawn(Box::new(sink), 1).unwrap();
    let pool = FramePool::<Host>::host(small(), 4).unwrap();
    for number in 0..300 {
        assert!(queue.offer_waiting(frames::fill(&pool, number, &mut |_, _, _| 0), || false));
    }
    let report = queue.finish(LONG);
    assert_eq!((report.taken, report.dropped), (300, 0));
    assert_eq!(hear.try_iter().count(), 300);
    assert!(verdict().clean() && verdict().in_order == 300);
}

#[test]
fn a_waiting_offer_gives_up_when_told_and_finish_gives_up_in_time() {
    let (sink, go, begun) = slow();
    let queue = SinkQueue::spawn(Box::new(sink), 1).unwrap();
    let layout = small();
    assert!(queue.offer(painted(&layout, 0)));
    begun.recv_timeout(LONG).unwrap();
    assert!(queue.offer(painted(&layout, 1)));
    assert!(!queue.offer_waiting(painted(&layout, 2), || true));
    let report = queue.finish(Duration::from_millis(50));
    assert_eq!((report.taken, report.dropped), (0, 2));
    let error = report.into_result().unwrap_err();
    assert_eq!(error.kind(), Kind::Output);
    assert!(error.to_string().starts_with("a slow sink did not finish within 0.1 s after 0 frames"), "{error}");
    drop(go);
}

/// Ends after some frames, in one way or the other.
struct Ending(u64, Finale);

type Finale = fn() -> gdmedia::error::Result<Next>;

impl Sink for Ending {
    fn take(&mut self, frame: &Frame) -> gdmedia::error::Result<Next> {
        if frame.meta().number < self.0 { Ok(Next::More) } else { (self.1)() }
    }
    fn describe(&self) -> String {
        "an ending sink".into()
    }
}

#[test]
fn an_end_is_seen_at_once_and_told_apart() {
    let ends: [(Finale, &str); 3] = [
        (|| Ok(Next::Closed("the window was closed".into())), "the window was closed"),
        (|| Err(Error::new(Kind::Output, "disk full")), "disk full"),
        (|| panic!("on purpose"), "the sink's thread panicked"),
    ];
    for (end, text) in ends {
        let queue = SinkQueue::spawn(Box::new(Ending(2, end)), 4).unwrap();
        let layout = small();
        for number in 0..3 {
            assert!(queue.offer_waiting(painted(&layout, number), || false));
        }
        let begin = std::time::Instant::now();
        while !queue.ended() && begin.elapsed() < LONG {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(queue.ended());
        assert!(!queue.offer(painted(&layout, 3)));
        let report = queue.finish(LONG);
        // What a closed window did not show, nobody misses.
        let dropped = if matches!(report.end, End::Closed(_)) { 0 } else { 2 };
        assert_eq!((report.taken, report.dropped), (2, dropped));
        match report.end {
            End::Closed(why) => assert_eq!(why, text),
            End::Failed(error) => assert_eq!(error.to_string(), text),
            End::Finished => panic!("{text}"),
        }
    }
}

// --- pictures ---

/// `codes` of 12 bits, in what the layout holds.
fn at_depth(layout: &Layout, codes: [u16; 3]) -> [u16; 3] {
    let bits = match layout.output {
        Output::P010 | Output::P210 | Output::V210 => 10,
        Output::Nv12 | Output::Uyvy | Output::Rgba => 8,
        Output::Wire | Output::Planar => layout.wire.depth.bits(),
        // Half floats are bits, not codes.
        Output::Rgb16f => return codes,
    };
    codes.map(|c| if bits <= 12 { (c + (1 << 12 >> bits >> 1)) >> (12 - bits) } else { c << (bits - 12) })
}

#[test]
fn every_layout_becomes_rgb() {
    let mut seen = 0;
    for (mut video, layout) in layouts(13, 6) {
        use Sampling::*;
        if video.depth == Depth::F16 && !matches!(layout.output, Output::Rgba | Output::Rgb16f) {
            continue;
        }
        // By hand: (0.6, 0.3, 0.45) by BT.709, by BT.2020 constant luminance, by ICtCp PQ; white of ST 428-1.
        let (codes, expected) = match video.sampling {
            _ if layout.output == Output::Rgba => ([153 << 4, 77 << 4, 115 << 4], [153, 77, 115]),
            // 0.6, 0.302 and 0.451.
            _ if layout.output == Output::Rgb16f => ([0x38cd, 0x34d5, 0x3737], [153, 77, 115]),
            YCbCr444 | YCbCr422 | YCbCr420 => ([1569, 2194, 2561], [153, 77, 115]),
            ClYCbCr444 | ClYCbCr422 | ClYCbCr420 => {
                video.colorimetry = Colorimetry::Bt2020;
                ([1690, 2140, 2736], [153, 77, 115])
            }
            ICtCp444 | ICtCp422 | ICtCp420 => {
                (video.colorimetry, video.tcs) = (Colorimetry::Bt2100, Tcs::Pq);
                ([1947, 2473, 3131], [153, 77, 115])
            }
            Rgb => ([256 + 2102, 256 + 1051, 256 + 1577], [153, 77, 115]),
            Xyz => {
                (video.colorimetry, video.tcs) = (Colorimetry::Xyz, Tcs::St428_1);
                ([3883, 3960, 4092], [255, 255, 255])
            }
            Key => ([256 + 2102, 0, 0], [153, 153, 153]),
        };
        let picture = flat(&layout, at_depth(&layout, codes));
        let rgb = to_rgb(&picture, &colour(&video));
        assert_eq!(rgb.len(), 13 * 6 * 3);
        let coarse = match (layout.output, layout.wire.depth) {
            (Output::Rgba | Output::Rgb16f, _) => 0,
            (Output::Nv12 | Output::Uyvy, _) | (Output::Wire | Output::Planar, Depth::D8) => 3,
            _ => 1,
        };
        for pixel in rgb.chunks(3) {
            let near = pixel.iter().zip(expected).all(|(&got, wanted)| got.abs_diff(wanted) <= coarse);
            assert!(near, "{pixel:?} is not {expected:?}: {video:?} {layout:?}");
        }
        seen += 1;
    }
    assert!(seen > 150, "{seen}");
}

#[test]
fn matrix_and_range_follow_the_sdp() {
    let red = |colorimetry, range, codes| {
        let mut video = video(Sampling::YCbCr444, Depth::D10, 1, 1);
        (video.colorimetry, video.range) = (colorimetry, range);
        to_rgb(&flat(&layout(&video, Output::Planar).unwrap(), codes), &colour(&video))
    };
    // Red of each system: Y = Kr, Cb = -Kr / (2 (1 - Kb)), Cr = 1/2.
    assert_eq!(red(Colorimetry::Bt601, Range::Narrow, [326, 361, 960]), [255, 0, 0]);
    assert_eq!(red(Colorimetry::Bt709, Range::Narrow, [250, 409, 960]), [255, 0, 0]);
    assert_eq!(red(Colorimetry::Bt2020, Range::Narrow, [294, 387, 960]), [255, 0, 0]);
    assert_eq!(red(Colorimetry::Bt709, Range::Full, [217, 395, 1023]), [255, 0, 0]);
}

#[test]
fn half_floats() {
    let mut video = video(Sampling::Rgb, Depth::F16, 1, 1);
    (video.range, video.tcs) = (Range::Full, Tcs::Linear);
    for output in [Output::Planar, Output::Wire] {
        // 1.0, 0.18 and the smallest number; 0.18 is 0.409 on the curve of BT.709.
        let picture = flat(&layout(&video, output).unwrap(), [0x3C00, 0x31C3, 0x0001]);
        assert_eq!(to_rgb(&picture, &colour(&video)), [255, 104, 0]);
    }
}

#[test]
fn colours_of_interlaced_pictures_stay_in_their_field() {
    let mut video = video(Sampling::YCbCr422, Depth::D8, 2, 8);
    (video.scan, video.colorimetry) = (Scan::Interlaced, Colorimetry::Bt601);
    let layout = layout(&video, Output::Nv12).unwrap();
    // Field 0 red, field 1 blue: rows alternate, and so do the rows of colour.
    let picture = frame(&layout, 0, |plane, row, at| match (plane, row % 2) {
        (0, 0) => 81,
        (0, _) => 41,
        (_, 0) => [90, 240][at],
        (_, _) => [240, 110][at],
    });
    let rgb = to_rgb(&picture, &colour(&video));
    for (y, row) in rgb.chunks(6).enumerate() {
        let wanted = if y % 2 == 0 { [254, 0, 0] } else { [0, 0, 255] };
        assert!(row[..3].iter().zip(wanted).all(|(a, b)| a.abs_diff(b) <= 2), "row {y}: {row:?}");
    }
}

// --- snapshots ---

fn read_png(path: &Path) -> (u32, u32, Vec<u8>) {
    let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(path).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut octets = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut octets).unwrap();
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
    (info.width, info.height, octets)
}

#[test]
fn a_snapshot_is_one_frame_and_decodes_to_its_pixels() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shot.png");
    let video = video(Sampling::YCbCr422, Depth::D10, 13, 5);
    let layout = layout(&video, Output::Rgba).unwrap();
    let mut sink = Snapshot::new(&path, 2, 1, colour(&video)).unwrap();
    // Frame 2 was dropped on the way: the next one serves.
    for number in [0, 1, 3] {
        assert_eq!(sink.idle().unwrap(), Next::More);
        assert_eq!(sink.take(&painted(&layout, number)).unwrap(), Next::More);
    }
    // Nothing is left to wait for.
    assert_eq!(sink.idle().unwrap(), Next::Closed("written".into()));
    assert_eq!(sink.take(&painted(&layout, 4)).unwrap(), Next::Closed("written".into()));
    sink.finish().unwrap();
    let (width, height, pixels) = read_png(&path);
    assert_eq!((width, height), (13, 5));
    let expected: Vec<u8> = rows(&painted(&layout, 3)).chunks(4).flat_map(|p| p[..3].to_vec()).collect();
    assert_eq!(pixels, expected);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["shot.png"]);
}

#[test]
fn a_series_of_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let video = video(Sampling::YCbCr420, Depth::D8, 6, 4);
    let layout = layout(&video, Output::Planar).unwrap();
    let mut sink = Snapshot::new(&dir.path().join("a{n}.png"), 1, 3, colour(&video)).unwrap();
    (0..9).for_each(|number| assert_eq!(sink.take(&painted(&layout, number)).unwrap(), Next::More));
    sink.finish().unwrap();
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a1.png", "a4.png", "a7.png"]);
    assert_eq!(read_png(&dir.path().join("a4.png")).2, to_rgb(&painted(&layout, 4), &colour(&video)));
}

#[test]
fn snapshots_that_fail() {
    let video = video(Sampling::YCbCr422, Depth::D8, 4, 4);
    let picture = painted(&layout(&video, Output::Uyvy).unwrap(), 0);
    assert_eq!(Snapshot::new(Path::new("x.jpg"), 0, 1, colour(&video)).unwrap_err().kind(), Kind::Usage);
    let error = write_png(Path::new("/no/such/folder/x.png"), &picture, &colour(&video)).unwrap_err();
    assert_eq!(error.kind(), Kind::Output);
    assert!(error.to_string().contains("create the folder first"), "{error}");
    let mut sink = Snapshot::new(Path::new("x.png"), 5, 1, colour(&video)).unwrap();
    sink.take(&picture).unwrap();
    let error = sink.finish().unwrap_err();
    assert!(error.to_string().contains("frame 5 never came"), "{error}");
}
