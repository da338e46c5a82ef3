//! The recorder's speed with frames of a GPU.
#![allow(unsafe_code)]

use super::{FRAMES, Measured, inner_folder, paint};
use crate::error::{Error, Kind, Result};
use crate::format::Layout;
use crate::frame::Frame;
use crate::gpu::{Gpu, Stream};
use crate::mem::{Device, Pinned, Region};
use crate::pipeline::GpuFrames;
use crate::record::gpu::{CufileSink, DeviceLoad};
use crate::record::playback::Load;
use crate::record::recorder::Options;
use crate::record::{Limit, Recording, Way};
use crate::sink::{Download, Next, RecordSink, Sink, SinkQueue};
use gdmedia_sdp::Flow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long the last frames may take to the disk.
const FINISH: Duration = Duration::from_secs(60);

/// Frames in memory of a GPU, as fast as they are taken: over pinned memory to the recorder of the CPU, or by cuFile. Read back
/// to the GPU and compared.
///
/// # Errors
/// As of [`super::recorder`]; the GPU has no memory for the frames.
pub fn on_gpu(
    gpu: &Arc<Gpu>,
    folder: &Path,
    flow: &Flow,
    layout: &Layout,
    way: Way,
    octets: u64,
    stop: &AtomicBool,
) -> Result<Measured> {
    let (inner, gone) = inner_folder(folder, way)?;
    let frames = GpuFrames::new(gpu, layout.clone(), FRAMES)?;
    let mut compare = Compare::new(gpu, layout)?;
    let filled = compare.painted(&frames)?;
    let options = Options { limit: Limit::default(), way };
    let (mut sink, stats): (Box<dyn Sink<Device>>, _) = if way == Way::Cufile {
        let sink = CufileSink::create(gpu, frames.slab().clone(), &inner, flow, layout, &options)?;
        let stats = sink.stats();
        (Box::new(sink), stats)
    } else {
        let sink = RecordSink::create(&inner, flow, layout, &options)?;
        let stats = sink.stats();
        (Box::new(OverTheCpu::new(gpu, layout, sink)?), stats)
    };
    let what = sink.describe().split(" (").nth(1).unwrap_or_default().trim_end_matches(')').to_owned();
    let begun = Instant::now();
    for frame in filled.iter().cycle() {
        if stats.octets.load(Relaxed) >= octets || stop.load(Relaxed) {
            break;
        }
        sink.take(frame)?;
    }
    sink.finish()?;
    let seconds = begun.elapsed().as_secs_f64();
    drop(sink);
    let (written, recorded) = (stats.octets.load(Relaxed), stats.frames.load(Relaxed));
    let back = GpuFrames::new(gpu, layout.clone(), 2)?;
    let recording = Recording::open(&inner)?;
    let mut load = DeviceLoad::new(gpu, &recording, back.pool().clone(), back.slab(), way)?;
    let (mut read, mut same) = (Duration::ZERO, 0);
    for place in recording.places() {
        let begun = Instant::now();
        let frame = load.load(&recording, place)?;
        read += begun.elapsed();
        let Some(frame) = frame else { return Err(Error::new(Kind::Internal, "no frame is free")) };
        if let Some(wanted) = filled.get(frame.meta().number as usize) {
            same += u64::from(compare.equal(wanted, &frame, recording.header().frame_octets())?);
        }
    }
    drop(gone);
    if same != recorded || recorded == 0 {
        let what = format!("{same} of {recorded} frames came back to the GPU as they were");
        return Err(Error::new(Kind::Output, what).cure("do not trust this disk: see dmesg"));
    }
    Ok(Measured {
        what: format!("frames of the GPU, {what}"),
        octets: written,
        seconds,
        disk: stats.latency(),
        read_seconds: Some(read.as_secs_f64()),
    })
}

/// Copies in pinned memory, and the recorder of the CPU behind its queue, which waits instead of dropping.
struct OverTheCpu {
    download: Download,
    queue: Arc<SinkQueue>,
    text: String,
}

impl OverTheCpu {
    fn new(gpu: &Arc<Gpu>, layout: &Layout, sink: RecordSink) -> Result<Self> {
        let text = sink.describe().replace(" (", " (pinned memory, ");
        let queue = Arc::new(SinkQueue::spawn(Box::new(sink), 2)?);
        let to = queue.clone();
        let deliver = Box::new(move |frame| {
            to.offer_waiting(frame, || false);
        });
        // Those that wait, those that the recorder holds, and one that is being copied.
        Ok(OverTheCpu { download: Download::new(gpu, layout, 6, deliver)?, queue, text })
    }
}

impl Sink<Device> for OverTheCpu {
    fn take(&mut self, frame: &Frame<Device>) -> Result<Next> {
        self.download.take(frame)
    }
    fn finish(&mut self) -> Result<()> {
        self.queue.finish(FINISH).into_result()
    }
    fn describe(&self) -> String {
        self.text.clone()
    }
}

/// Frames of the GPU, seen by the CPU.
struct Compare {
    stream: Stream,
    here: [Region<Pinned>; 2],
}

impl Compare {
    fn new(gpu: &Arc<Gpu>, layout: &Layout) -> Result<Self> {
        let here = [Region::pinned(gpu, layout.size)?, Region::pinned(gpu, layout.size)?];
        Ok(Compare { stream: Stream::new(gpu, false)?, here })
    }
    /// All frames of a pool, each with octets and a number of its own.
    fn painted(&mut self, frames: &GpuFrames) -> Result<Vec<Frame<Device>>> {
        let mut filled = Vec::new();
        while let Some(mut frame) = frames.pool().take() {
            let number = filled.len() as u64;
            let [here, _] = &mut self.here;
            paint(here.as_mut_slice(), number + 1);
            // SAFETY: both have the octets of the layout, and live until the stream has been waited for.
            unsafe { self.stream.copy(frame.region_mut().address(), here.address(), here.len())? };
            self.stream.synchronize()?;
            (frame.meta_mut().number, frame.meta_mut().complete) = (number, true);
            filled.push(frame.seal());
        }
        Ok(filled)
    }
    fn equal(&mut self, a: &Frame<Device>, b: &Frame<Device>, octets: usize) -> Result<bool> {
        for (frame, here) in [a, b].into_iter().zip(&self.here) {
            // SAFETY: as above; nobody writes to a frame that is sealed.
            unsafe { self.stream.copy(here.address(), frame.start() as u64, octets.min(here.len()))? };
        }
        self.stream.synchronize()?;
        let [a, b] = self.here.each_ref().map(|here| here.as_slice().get(..octets));
        Ok(a.is_some() && a == b)
    }
}
