//! Which sinks a run has, what they want, and what became of them.

use super::{Args, QUEUE};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::Frame;
use gdmedia::kernel::Colour;
use gdmedia::sdp::Video;
use gdmedia::send::pattern;
use gdmedia::sink::{End, FileFormat, FileSink, Report, Sink, SinkQueue, Snapshot, Verdict, Verify};
use serde_json::json;
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

/// The layout that the options ask for, or that suits the sinks best.
pub fn output(args: &Args, video: &Video, wire: &WireFormat) -> Output {
    if let Some(output) = args.output {
        return output.into();
    }
    let planar_fits = Layout::new(*wire, Output::Planar).is_ok();
    #[cfg(feature = "gst")]
    if window(args) {
        return gdmedia::sink::gst::preferred_output(video);
    }
    let _ = video;
    if planar_fits { Output::Planar } else { Output::Wire }
}

/// Frames go to GStreamer: asked for, or there is a display and nothing else was asked for.
fn window(args: &Args) -> bool {
    if args.headless {
        return false;
    }
    args.sink.is_some() || (args.out.is_none() && args.snapshot.is_none() && has_display())
}

fn has_display() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()))
}

/// Opens what the options ask for.
pub fn build(args: &Args, video: &Video, layout: &Layout, colour: Colour) -> Result<Sinks> {
    let mut sinks =
        Sinks { queues: Vec::new(), finished: Vec::new(), verdict: None, lossless: args.lossless(), notes: Vec::new() };
    if window(args) {
        sinks.add_window(args, video, layout)?;
    } else if args.out.is_none() && args.snapshot.is_none() && !args.headless {
        sinks.notes.push("no window: there is no display (DISPLAY and WAYLAND_DISPLAY are empty)".into());
    }
    if let Some(path) = &args.out {
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

    #[cfg(feature = "gst")]
    fn add_window(&mut self, args: &Args, video: &Video, layout: &Layout) -> Result<()> {
        let sink = gdmedia::sink::gst::GstSink::new(args.sink.as_deref(), video, layout)?;
        self.add(Box::new(sink), EndsRun::Yes)
    }

    #[cfg(not(feature = "gst"))]
    fn add_window(&mut self, args: &Args, _video: &Video, _layout: &Layout) -> Result<()> {
        if args.sink.is_some() {
            return Err(Error::new(Kind::Unavailable, "this gdmedia was built without GStreamer")
                .cure("build it with the feature gst, or use --out or --snapshot"));
        }
        self.notes.push("no window: this gdmedia was built without GStreamer".into());
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
