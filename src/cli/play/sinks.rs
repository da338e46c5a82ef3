//! Which sinks a run has, what they want, and what became of them.

use super::{Args, QUEUE};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::Frame;
use gdmedia::kernel::Colour;
use gdmedia::sdp::Video;
use gdmedia::send::pattern;
#[cfg(feature = "gst")]
use gdmedia::sink::gst::Fragment;
use gdmedia::sink::{End, FileFormat, FileSink, Report, Sink, SinkQueue, Snapshot, Verdict, Verify};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A file or a stream that is being finished may take so long.
const FINISH: Duration = Duration::from_secs(10);

/// The sinks of a run.
pub struct Sinks {
    queues: Vec<(Arc<SinkQueue>, EndsRun)>,
    finished: Vec<(String, Report)>,
    verdict: Option<Box<dyn Fn() -> Verdict + Send>>,
    lossless: bool,
    /// Why there is no window, and the like.
    pub notes: Vec<String>,
}

/// Does the end of this sink end the run?
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndsRun {
    Yes,
    No,
}

/// What was found out before anything is opened for good.
pub struct Prepared {
    #[cfg(feature = "gst")]
    fragment: Option<Fragment>,
    notes: Vec<String>,
    /// The layout that the options ask for, or that suits the sinks best.
    pub output: Output,
}

/// Finds the fragment or window that the options ask for, and the layout that suits it.
///
/// # Errors
/// A fragment that is wrong, or takes no layout of this flow.
pub fn prepare(args: &Args, video: &Video, wire: &WireFormat) -> Result<Prepared> {
    let mut notes = Vec::new();
    #[cfg(feature = "gst")]
    let fragment = fragment(args, video, &mut notes)?;
    #[cfg(feature = "gst")]
    let preferred = fragment.as_ref().map(|f| f.preferred_output(video)).transpose();
    #[cfg(not(feature = "gst"))]
    let preferred: Result<Option<Output>> = no_gst(args, &mut notes);
    let _ = video;
    let output = match args.output {
        Some(output) => output.into(),
        None => {
            preferred?.unwrap_or(if Layout::new(*wire, Output::Planar).is_ok() { Output::Planar } else { Output::Wire })
        }
    };
    Ok(Prepared {
        #[cfg(feature = "gst")]
        fragment,
        notes,
        output,
    })
}

/// Is a window wanted when nothing else is said?
fn by_default(args: &Args) -> bool {
    !args.headless && args.sink.is_none() && args.out.is_none() && args.snapshot.is_none()
}

#[cfg(feature = "gst")]
fn fragment(args: &Args, video: &Video, notes: &mut Vec<String>) -> Result<Option<Fragment>> {
    if let Some(text) = &args.sink {
        return Fragment::parse(text).map(Some);
    }
    if !by_default(args) {
        return Ok(None);
    }
    let fragment = Fragment::window(video);
    match &fragment {
        Ok(Some(_)) => {}
        Ok(None) => {
            notes.push("no window, there is no display: --out, --snapshot or --sink send frames elsewhere".into())
        }
        Err(error) => notes.push(error.to_string()),
    }
    Ok(fragment.unwrap_or_default())
}

#[cfg(not(feature = "gst"))]
fn no_gst(args: &Args, notes: &mut Vec<String>) -> Result<Option<Output>> {
    if args.sink.is_some() {
        return Err(Error::new(Kind::Unavailable, "this gdmedia was built without GStreamer")
            .cure("build it with the feature gst, or use --out or --snapshot"));
    }
    if by_default(args) {
        notes.push("no window: this gdmedia was built without GStreamer".into());
    }
    Ok(None)
}

/// Opens what the options ask for.
pub fn build(args: &Args, prepared: Prepared, video: &Video, layout: &Layout, colour: Colour) -> Result<Sinks> {
    let mut sinks = Sinks {
        queues: Vec::new(),
        finished: Vec::new(),
        verdict: None,
        lossless: args.lossless(),
        notes: prepared.notes,
    };
    #[cfg(feature = "gst")]
    if let Some(fragment) = prepared.fragment {
        sinks.add(Box::new(fragment.open(video, layout, !args.lossless())?), EndsRun::Yes)?;
    }
    if let Some(path) = &args.out {
        if args.format.is_none() {
            refuse_container(path)?;
        }
        let format = args.format.map_or_else(|| FileFormat::of_path(path), Into::into);
        sinks.add(Box::new(FileSink::create(path, format, video, layout)?), EndsRun::Yes)?;
    }
    if let Some(path) = &args.snapshot {
        // A lone snapshot is what the run is for; with anything else it is a by-product.
        let alone = args.out.is_none() && args.sink.is_none() && args.duration.is_none() && args.frames.is_none();
        let ends = if alone && !args.verify { EndsRun::Yes } else { EndsRun::No };
        sinks.add(Box::new(Snapshot::new(path, args.at, args.every, colour)?), ends)?;
    }
    if args.verify {
        let verify = Verify::new(|frame: &Frame| pattern::read_number(frame.layout(), frame.octets()));
        sinks.verdict = Some(Box::new(verify.watch()));
        sinks.add(Box::new(verify), EndsRun::No)?;
    }
    Ok(sinks)
}

/// A name that promises a container which is not written.
fn refuse_container(path: &Path) -> Result<()> {
    const CONTAINERS: [&str; 10] = ["mp4", "mov", "mkv", "mxf", "avi", "ts", "webm", "png", "jpg", "pcap"];
    let suffix = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    if !CONTAINERS.contains(&suffix.as_str()) {
        return Ok(());
    }
    Err(Error::new(Kind::Usage, format!("--out writes y4m or raw, and {} says .{suffix}", path.display())).cure(
        "name it .y4m or .raw; containers are made by --sink '… ! matroskamux ! filesink location=…', \
         pictures by --snapshot, captures by --tap",
    ))
}

/// The worker's side: hands every frame to every sink.
pub struct Offers {
    queues: Vec<Arc<SinkQueue>>,
    lossless: bool,
}

impl Offers {
    /// Never waits for a sink, except when a capture is read as fast as possible; `stop` ends that wait.
    pub fn offer(&self, frame: Frame, stop: impl Fn() -> bool) {
        for queue in &self.queues {
            if self.lossless {
                queue.offer_waiting(frame.clone(), &stop);
            } else {
                queue.offer(frame.clone());
            }
        }
    }
}

impl Sinks {
    fn add(&mut self, sink: Box<dyn Sink>, ends: EndsRun) -> Result<()> {
        self.queues.push((Arc::new(SinkQueue::spawn(sink, QUEUE)?), ends));
        Ok(())
    }

    /// For the worker.
    pub fn offers(&self) -> Offers {
        Offers { queues: self.queues.iter().map(|(queue, _)| queue.clone()).collect(), lossless: self.lossless }
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.queues.len()
    }
    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
    /// A sink that the run is for has ended by itself.
    pub fn ended(&self) -> bool {
        self.queues.iter().any(|(queue, ends)| *ends == EndsRun::Yes && queue.ended())
    }
    /// Frames that sinks did not take.
    pub fn dropped(&self) -> u64 {
        self.queues.iter().map(|(queue, _)| queue.dropped()).sum::<u64>()
            + self.finished.iter().map(|(_, report)| report.dropped).sum::<u64>()
    }
    /// A line each.
    pub fn describe(&self) -> impl Iterator<Item = &str> {
        self.queues.iter().map(|(queue, _)| queue.describe())
    }

    /// Lets them finish; the worker must be gone.
    ///
    /// # Errors
    /// The first failure of a sink.
    pub fn finish(&mut self) -> Result<()> {
        for (queue, _) in self.queues.drain(..) {
            let name = queue.describe().to_owned();
            if let Ok(queue) = Arc::try_unwrap(queue) {
                self.finished.push((name, queue.finish(FINISH)));
            }
        }
        for (_, report) in &mut self.finished {
            if let End::Failed(error) = &mut report.end {
                return Err(std::mem::replace(error, Error::new(Kind::Output, "failed")));
            }
        }
        Ok(())
    }

    /// What became of them, for the summary.
    pub fn reports(&self) -> serde_json::Value {
        let one = |(name, report): &(String, Report)| {
            let end = match &report.end {
                End::Finished => "finished".to_owned(),
                End::Closed(why) => why.clone(),
                End::Failed(_) => "failed".to_owned(),
            };
            json!({ "sink": name, "taken": report.taken, "dropped": report.dropped, "end": end })
        };
        self.finished.iter().map(one).collect()
    }
    /// The same for people.
    pub fn texts(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .finished
            .iter()
            .map(|(name, report)| {
                let end = if let End::Closed(why) = &report.end { format!(", {why}") } else { String::new() };
                format!("{name}: {} frames taken, {} dropped{end}", report.taken, report.dropped)
            })
            .collect();
        if let Some(v) = self.verified() {
            lines.push(format!(
                "frame numbers: in order {}, repeated {}, skipped {}, backward {}, unreadable {}",
                v.in_order, v.repeated, v.skipped, v.backward, v.unreadable
            ));
        }
        lines
    }
    /// What `--verify` found.
    pub fn verified(&self) -> Option<Verdict> {
        self.verdict.as_ref().map(|read| read())
    }
}
