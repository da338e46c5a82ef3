//! The own sender of a soak test, on a thread of its own.

use super::super::play::Run;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::kernel::Colour;
use gdmedia::sdp::{Flow, SenderType, Video};
use gdmedia::send::live::{self, Options};
use gdmedia::send::name;
use gdmedia::send::pattern::Pattern;
use gdmedia::send::recording::{Choose, Recording};
use gdmedia::send::replay::{self, Tempo};
use gdmedia::send::schedule::Pacing;
use gdmedia::send::socket::{Outlet, Target};
use gdmedia::send::source::PatternSource;
use gdmedia::send::stream::{Choice, Stream};
use gdmedia::soak::Record;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// What `--source` calls the test pattern.
pub const PATTERN: &str = "pattern";

/// Sends until it is told to stop.
type Work = Box<dyn FnOnce(&AtomicBool) -> Result<live::Report> + Send>;

/// A sender that runs.
pub struct Source {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<live::Report>>,
    ended: Arc<Mutex<Option<live::Report>>>,
}

impl Source {
    /// Sends the pattern, or a capture again and again, to the legs of the run's flow.
    ///
    /// # Errors
    /// The capture does not fit, or there is no way to the legs.
    pub fn start(from: &str, run: &Run<'_>) -> Result<Self> {
        let mut outlets = targets(run).into_iter().map(Outlet::open).collect::<Result<Vec<_>>>()?;
        let options = Options {
            // The receiver reckons with the same.
            utc_offset_s: u32::try_from(run.args.utc_offset()).unwrap_or(0),
            ..Options::default()
        };
        let work: Work = if from == PATTERN {
            let (mut stream, mut source) = pattern(run.flow, run.video)?;
            Box::new(move |stop| live::run(&mut stream, &mut source, &mut outlets, &options, stop, &mut |_| {}))
        } else {
            let mut recording = Recording::open(Path::new(from), &Choose::Flow(run.flow))?;
            let repeat = recording.seamless(Some(run.flow.clock_rate))?;
            let tempo = Tempo { speed: 1.0, repeat: Some(repeat), clock_rate: run.flow.clock_rate };
            Box::new(move |stop| replay::run(&mut recording, &mut outlets, &options, tempo, stop))
        };
        let stop = Arc::new(AtomicBool::new(false));
        let ended = Arc::new(Mutex::new(None));
        let (theirs, report) = (stop.clone(), ended.clone());
        let thread = std::thread::Builder::new()
            .name("send".into())
            .spawn(move || {
                let sent = work(&theirs)?;
                *report.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent.clone());
                Ok(sent)
            })
            .map_err(|e| Error::new(Kind::Unavailable, "no thread for the sender").because(e))?;
        Ok(Source { stop, thread, ended })
    }

    /// What was sent, when it has ended by itself.
    pub fn ended(&self) -> Option<live::Report> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// It has ended, and not by being told to.
    pub fn has_failed(&self) -> bool {
        self.thread.is_finished() && self.ended().is_none()
    }

    /// Ends it.
    ///
    /// # Errors
    /// It failed.
    pub fn stop(self) -> Result<live::Report> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(Error::new(Kind::Internal, "the sender's thread panicked")))
    }
}

/// Figures of the sender.
pub fn note(record: &mut Record, sent: &live::Report) {
    record.set("source.frames", sent.frames as f64);
    record.set("source.skipped", sent.skipped as f64);
    record.set("source.dropped", sent.dropped as f64);
}

fn targets(run: &Run<'_>) -> Vec<Target> {
    let leg = |(n, leg): (usize, &gdmedia::sdp::Leg)| Target {
        destination: SocketAddr::new(leg.destination, leg.port),
        interface: run.args.interface(n).map(str::to_owned),
        ttl: leg.ttl.unwrap_or(1),
        loopback: true,
    };
    run.flow.legs.iter().enumerate().map(leg).collect()
}

fn pattern(flow: &Flow, video: &Video) -> Result<(Stream, PatternSource)> {
    let pacing = match video.sender_type {
        Some(SenderType::Nl | SenderType::W) => Pacing::Linear,
        Some(SenderType::N) | None => Pacing::Gapped,
    };
    let stream = Stream::new(video, Choice { payload_type: flow.payload_type, ..Choice::new(pacing) })?;
    let colour = Colour { colorimetry: video.colorimetry, tcs: video.tcs, range: video.range };
    let label = name::name(video.width, video.height, video.scan, video.rate);
    let pattern = Pattern::new(stream.format, colour, 75, &label);
    Ok((stream, PatternSource::new(pattern, 0)))
}
