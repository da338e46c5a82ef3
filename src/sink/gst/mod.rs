//! Frames to GStreamer: `appsrc` in front of a window or of any pipeline fragment.
//!
//! Frames go in without a copy: a buffer borrows the frame's memory and gives it back to its pool when GStreamer drops
//! it. At most two frames are lent at a time; a fragment that keeps more (an encoder that looks ahead) gets copies, so
//! that it never holds up reception. A fragment whose first element cannot place planes freely (it has no
//! `GstVideoMeta`: `filesink`) gets rows as GStreamer puts them by itself.
//!
//! Frames of a GPU stay there where the fragment begins with elements that take CUDA memory (`cudadownload`,
//! `cudaconvert`, `nvh264enc`; feature `cuda`): see [`Fragment::cuda`]. Other fragments get copies in system memory.

mod caps;
mod coded;
#[cfg(feature = "cuda")]
mod cuda;
mod display;
mod feed;
mod memory;
mod overlay;
mod stamp;
mod words;

pub use coded::{Coded, Coding, NoElement, formats_of, require};
#[cfg(feature = "cuda")]
pub use cuda::{CudaCounters, CudaFit, GstCudaSink};
pub use overlay::Overlay;

use super::{Next, Sink};
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output};
use crate::frame::Frame;
use feed::Feed;
use gdmedia_sdp::{Scan, Video};
use gstreamer as gst;
use gstreamer::prelude::*;
use memory::{Loan, Placed, pool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// How long muxers and files have for their end.
const FINISH: Duration = Duration::from_secs(5);
/// Frames lent to GStreamer at a time; more are copied. A pool has to have so many above what the queue holds.
pub const LENT: usize = 2;
/// How caps say that memory is a GPU's.
const CUDA_MEMORY: &str = "memory:CUDAMemory";

/// A fragment that has been parsed, found whole and opened as far as devices and displays go; not running yet.
#[derive(Debug)]
pub struct Fragment {
    pipeline: Pipeline,
    bin: gst::Element,
    pad: gst::Pad,
    text: String,
    window: bool,
    finish: Duration,
}

impl Fragment {
    /// Parses what `--sink` says: elements as for `gst-launch-1.0`, the first one with a free input.
    ///
    /// # Errors
    /// Wrong syntax or properties ([`Kind::Usage`]), an element that is not installed ([`Kind::Unavailable`], names
    /// the package), a device that cannot be opened.
    pub fn parse(text: &str) -> Result<Self> {
        init()?;
        let text = text.trim();
        let mut context = gst::ParseContext::new();
        let flags = gst::ParseFlags::FATAL_ERRORS | gst::ParseFlags::PLACE_IN_BIN;
        let bin = gst::parse::bin_from_description_full(text, true, Some(&mut context), flags)
            .map_err(|e| words::parse_error(text, &e, &context.missing_elements()))?;
        let unusable = |why: &str, cure: &str| {
            Error::new(Kind::Usage, format!("the GStreamer fragment `{text}` {why}")).cure(cure)
        };
        let Some(pad) = bin.sink_pads().into_iter().next() else {
            return Err(unusable("has no free input", "leave its source away: frames come from the flow"));
        };
        if !bin.src_pads().is_empty() {
            return Err(unusable("ends without a sink", "end it with one, such as `autovideosink` or `filesink`"));
        }
        let pipeline = Pipeline(gst::Pipeline::with_name("gdmedia"));
        pipeline.add(&bin).map_err(|e| Error::new(Kind::Internal, "GStreamer pipeline").because(e))?;
        let fragment = Fragment { pipeline, bin, pad, text: text.to_owned(), window: false, finish: FINISH };
        // Devices and displays open now, so that a failure is seen before packets are asked for.
        if fragment.pipeline.set_state(gst::State::Ready).is_err() {
            return Err(failure(&fragment.pipeline, text));
        }
        Ok(fragment)
    }

    /// How long its elements have for their end, when there are no more frames.
    #[must_use]
    pub fn finish_within(self, finish: Duration) -> Self {
        Fragment { finish, ..self }
    }

    /// A window on the display, or none where there is no display (neither `WAYLAND_DISPLAY` nor `DISPLAY`).
    /// Interlaced pictures are shown field by field.
    ///
    /// # Errors
    /// There is a display, but no window can be opened on it ([`Kind::Unavailable`]).
    pub fn window(video: &Video) -> Result<Option<Self>> {
        let sinks = display::sinks()?;
        if sinks.is_empty() {
            return Ok(None);
        }
        init()?;
        let exists = |name: &str| gst::ElementFactory::find(name).is_some();
        let bob = if video.scan == Scan::Interlaced && exists("deinterlace") { "deinterlace ! " } else { "" };
        let words = overlay::element();
        let mut failed = None;
        for sink in sinks.iter().filter(|sink| exists(sink)) {
            match Self::parse(&format!("{bob}{words}videoconvert ! videoscale ! {sink}")) {
                Ok(fragment) => return Ok(Some(Fragment { window: true, ..fragment })),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| {
            Error::new(Kind::Unavailable, "GStreamer has no element that opens a window on this display")
                .cure("install the package gstreamer1.0-gl or gstreamer1.0-x (Debian, Ubuntu)")
        }))
    }

    /// The output that suits the fragment: one that it takes as it is, the most faithful first; for a window RGBA,
    /// because our conversion costs less than GStreamer's.
    ///
    /// # Errors
    /// It takes none that the flow can be brought to; says what it takes and what helps.
    pub fn preferred_output(&self, video: &Video) -> Result<Output> {
        if self.window {
            return Ok(Output::Rgba);
        }
        let candidates = caps::candidates(video)?;
        candidates
            .iter()
            .find(|(_, info)| info.to_caps().is_ok_and(|caps| !self.pad.query_caps(Some(&caps)).is_empty()))
            .map(|(output, _)| *output)
            .ok_or_else(|| {
                self.refused(video, &candidates.iter().map(|(_, i)| i.name()).collect::<Vec<_>>().join(", "))
            })
    }

    /// Starts the pipeline for frames of `layout`. `live`: frames come as they are sent (a network, a capture at its
    /// pace), and sinks keep time; else they come as fast as they are taken.
    ///
    /// # Errors
    /// GStreamer has no such format, the fragment does not take it, or it does not start (a file that cannot be
    /// written).
    pub fn open(self, video: &Video, layout: &Layout, live: bool) -> Result<GstSink> {
        let info = caps::info(video, layout)?;
        let caps = info.to_caps().map_err(|e| Error::new(Kind::Internal, "GStreamer caps").because(e))?;
        if self.pad.query_caps(Some(&caps)).is_empty() {
            return Err(self.refused(video, info.name()));
        }
        let refused = self.refused(video, info.name());
        let feed = Feed::new(self, video, &caps, live)?.ok_or(refused)?;
        let placed = Arc::new(Placed::new(layout, info));
        placed.clone().watch(feed.appsrc())?;
        let copies = pool(placed.octets())?;
        feed.play()?;
        Ok(GstSink { feed, placed, copies, lent: Arc::default(), copied: Arc::default() })
    }

    fn refused(&self, video: &Video, offered: &str) -> Error {
        let takes = self.pad.query_caps(None);
        let mut formats: Vec<String> = Vec::new();
        for structure in takes.iter().filter(|s| s.name() == "video/x-raw") {
            if let Ok(one) = structure.get::<String>("format") {
                formats.push(one);
            } else if let Ok(list) = structure.get::<gst::List>("format") {
                formats.extend(list.iter().filter_map(|v| v.get::<String>().ok()));
            }
        }
        formats.dedup();
        let takes = match formats.len() {
            0 => "it takes no raw video of any format".to_owned(),
            n if n > 12 => format!("it takes {} and {} more formats", formats[..12].join(", "), n - 12),
            _ => format!("it takes {}", formats.join(", ")),
        };
        let (width, height, scan) = (video.width, video.height, video.scan);
        let what =
            format!("the GStreamer fragment `{}` does not take {offered} {width}x{height} {scan}; {takes}", self.text);
        Error::new(Kind::Usage, what).cure("put `videoconvert !` (and `videoscale !`) in front of it")
    }
}

/// A running pipeline that frames are pushed into.
#[derive(Debug)]
pub struct GstSink {
    feed: Feed,
    placed: Arc<Placed>,
    copies: gst::BufferPool,
    lent: Arc<AtomicUsize>,
    copied: Arc<AtomicU64>,
}

impl GstSink {
    /// Frames that had to be copied because the fragment held on to others.
    pub fn copied(&self) -> Arc<AtomicU64> {
        self.copied.clone()
    }
    /// Frames whose memory GStreamer holds now.
    pub fn lent(&self) -> usize {
        self.lent.load(Relaxed)
    }
    /// Words over the picture of a window; none where there is no window.
    pub fn overlay(&self) -> Option<Overlay> {
        self.feed.overlay()
    }

    fn buffer(&self, frame: &Frame) -> Result<gst::Buffer> {
        let internal = |e| Error::new(Kind::Internal, "GStreamer buffer").because(e);
        let octets = frame.octets().get(..self.placed.octets()).unwrap_or_default();
        if self.lent.load(Relaxed) < LENT {
            let loan = Loan::new(frame, octets.len(), &self.lent);
            let mut buffer = gst::Buffer::new();
            buffer.make_mut().append_memory(gst::Memory::from_slice(loan));
            return Ok(buffer);
        }
        self.copied.fetch_add(1, Relaxed);
        let mut buffer = self
            .copies
            .acquire_buffer(None)
            .map_err(|e| Error::new(Kind::Output, "GStreamer gives no memory").because(e))?;
        buffer.make_mut().copy_from_slice(0, octets).map_err(|_| internal("too small"))?;
        Ok(buffer)
    }
}

impl Sink for GstSink {
    fn take(&mut self, frame: &Frame) -> Result<Next> {
        match self.feed.room()? {
            Next::More => {}
            closed => return Ok(closed),
        }
        let mut buffer = self.buffer(frame)?;
        self.placed.describe(buffer.make_mut())?;
        self.feed.push(buffer, frame.meta())
    }

    fn idle(&mut self) -> Result<Next> {
        self.feed.idle()
    }

    fn finish(&mut self) -> Result<()> {
        self.feed.finish()
    }

    fn describe(&self) -> String {
        self.feed.describe()
    }
}

/// A pipeline that goes down with its owner, as GStreamer demands.
#[derive(Debug)]
struct Pipeline(gst::Pipeline);

impl std::ops::Deref for Pipeline {
    type Target = gst::Pipeline;
    fn deref(&self) -> &gst::Pipeline {
        &self.0
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let _ = self.0.set_state(gst::State::Null);
    }
}

fn init() -> Result<()> {
    gst::init().map_err(|e| {
        Error::new(Kind::Unavailable, "GStreamer does not start")
            .because(e)
            .cure("check the GStreamer installation with `gst-inspect-1.0`")
    })
}

/// Why a pipeline did not change its state.
fn failure(pipeline: &gst::Pipeline, text: &str) -> Error {
    let message = pipeline
        .bus()
        .and_then(|bus| bus.timed_pop_filtered(gst::ClockTime::from_mseconds(100), &[gst::MessageType::Error]));
    match message.as_ref().map(|m| m.view()) {
        Some(gst::MessageView::Error(e)) => words::element_error(e, text),
        _ => Error::new(Kind::Output, format!("GStreamer cannot start `{text}`"))
            .cure("try it with `gst-launch-1.0 videotestsrc ! FRAGMENT`"),
    }
}

/// Caps as people read them.
fn describe(caps: &gst::Caps) -> String {
    let Some(s) = caps.structure(0) else { return caps.to_string() };
    let word = |name: &str| s.get::<String>(name).unwrap_or_default();
    let number = |name: &str| s.get::<i32>(name).unwrap_or_default();
    let text = format!("{} {}x{} {}", word("format"), number("width"), number("height"), word("colorimetry"));
    let cuda = caps.features(0).is_some_and(|features| features.contains(CUDA_MEMORY));
    let memory = if cuda { " in CUDA memory" } else { "" };
    format!("{}{memory}", text.trim_end())
}
