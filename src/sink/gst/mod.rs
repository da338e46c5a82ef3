//! Frames to GStreamer: `appsrc` in front of a window or of any pipeline fragment.
//!
//! Frames go in without a copy: a buffer borrows the frame's memory and gives it back to its pool when GStreamer drops
//! it. At most two frames are lent at a time; a fragment that keeps more (an encoder that looks ahead) gets copies, so
//! that it never holds up reception. A fragment whose first element cannot place planes freely (it has no
//! `GstVideoMeta`: `filesink`) gets rows as GStreamer puts them by itself.

mod caps;
mod display;
mod memory;
mod stamp;
mod words;

use super::{Next, Sink};
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output};
use crate::frame::Frame;
use gdmedia_sdp::{Scan, Video};
use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use gstreamer_video as gst_video;
use gstreamer_video::prelude::*;
use memory::{Loan, Placed, pool};
use stamp::Stamper;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Frames lent to GStreamer at a time; more are copied. A pool has to have so many above what the queue holds.
pub const LENT: usize = 2;
/// Frames that wait in `appsrc`.
const WAITING: u64 = 1;
/// How long muxers and files have for their end.
const FINISH: Duration = Duration::from_secs(5);
/// While `appsrc` is full, how often to look again.
const LOOK: gst::ClockTime = gst::ClockTime::from_mseconds(2);

/// A fragment that has been parsed, found whole and opened as far as devices and displays go; not running yet.
#[derive(Debug)]
pub struct Fragment {
    pipeline: Pipeline,
    bin: gst::Element,
    pad: gst::Pad,
    text: String,
    window: bool,
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
        let fragment = Fragment { pipeline, bin, pad, text: text.to_owned(), window: false };
        // Devices and displays open now, so that a failure is seen before packets are asked for.
        if fragment.pipeline.set_state(gst::State::Ready).is_err() {
            return Err(failure(&fragment.pipeline, text));
        }
        Ok(fragment)
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
        let mut failed = None;
        for sink in sinks.iter().filter(|sink| exists(sink)) {
            match Self::parse(&format!("{bob}videoconvert ! videoscale ! {sink}")) {
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
        let stamper = Stamper::new(video.rate);
        let appsrc = gst_app::AppSrc::builder()
            .caps(&caps)
            .format(gst::Format::Time)
            .is_live(live)
            .max_buffers(WAITING)
            .max_bytes(0)
            // A frame is there when its last packet is: one period after its time.
            .min_latency(if live { stamper.period().unwrap_or(0) as i64 } else { -1 })
            .build();
        let internal = |e: gst::glib::BoolError| Error::new(Kind::Internal, "GStreamer pipeline").because(e);
        self.pipeline.add(&appsrc).map_err(internal)?;
        appsrc.link(&self.bin).map_err(|_| self.refused(video, info.name()))?;
        let placed = Arc::new(Placed::new(layout, info));
        placed.clone().watch(&appsrc)?;
        let size = placed.octets();
        let sink = GstSink {
            bus: self.pipeline.bus().ok_or_else(|| Error::new(Kind::Internal, "GStreamer pipeline without a bus"))?,
            pipeline: self.pipeline,
            appsrc,
            placed,
            copies: pool(size)?,
            stamper,
            lent: Arc::new(AtomicUsize::new(0)),
            copied: Arc::new(AtomicU64::new(0)),
            caps: describe(&caps),
            text: self.text,
            window: self.window,
            taken: 0,
            finish: FINISH,
        };
        if sink.pipeline.set_state(gst::State::Playing).is_err() {
            return Err(failure(&sink.pipeline, &sink.text));
        }
        Ok(sink)
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
    pipeline: Pipeline,
    bus: gst::Bus,
    appsrc: gst_app::AppSrc,
    placed: Arc<Placed>,
    copies: gst::BufferPool,
    stamper: Stamper,
    lent: Arc<AtomicUsize>,
    copied: Arc<AtomicU64>,
    caps: String,
    text: String,
    window: bool,
    taken: u64,
    finish: Duration,
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

    /// What the pipeline has to say; waits for it at most for `wait`.
    fn listen(&mut self, wait: gst::ClockTime) -> Result<Next> {
        let mut wait = Some(wait);
        while let Some(message) = self.bus.timed_pop(wait.take().unwrap_or_default()) {
            match message.view() {
                gst::MessageView::Error(e) if words::window_closed(e) => {
                    return Ok(Next::Closed("the window was closed".into()));
                }
                gst::MessageView::Error(e) => return Err(words::element_error(e, &self.caps)),
                gst::MessageView::Eos(_) => {
                    return Ok(Next::Closed(format!("the GStreamer fragment ended after {} frames", self.taken)));
                }
                gst::MessageView::Warning(w) => tracing::warn!("GStreamer: {}", w.error()),
                gst::MessageView::Latency(_) => {
                    let _ = self.pipeline.recalculate_latency();
                }
                _ => {}
            }
        }
        Ok(Next::More)
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
        // The queue before this sink drops frames while a slow fragment is waited for here.
        let mut next = self.listen(gst::ClockTime::ZERO)?;
        while next == Next::More && self.appsrc.current_level_buffers() >= WAITING {
            next = self.listen(LOOK)?;
        }
        if next != Next::More {
            return Ok(next);
        }
        let meta = frame.meta();
        let running = if self.appsrc.is_live() { self.pipeline.current_running_time() } else { None };
        let stamp = self.stamper.stamp(meta, running.map_or(0, gst::ClockTime::nseconds));
        let mut buffer = self.buffer(frame)?;
        {
            let buffer = buffer.make_mut();
            buffer.set_pts(gst::ClockTime::from_nseconds(stamp.pts));
            buffer.set_duration(self.stamper.period().map(gst::ClockTime::from_nseconds));
            buffer.set_offset(meta.number);
            let mut flags = gst::BufferFlags::empty();
            flags.set(gst::BufferFlags::DISCONT, stamp.discont);
            flags.set(gst::BufferFlags::CORRUPTED, !meta.complete);
            buffer.set_flags(flags);
            if self.placed.info().is_interlaced() {
                let fields = gst_video::VideoBufferFlags::INTERLACED | gst_video::VideoBufferFlags::TFF;
                buffer.set_video_flags(fields);
            }
            self.placed.describe(buffer)?;
        }
        match self.appsrc.push_buffer(buffer) {
            Ok(_) => {
                self.taken += 1;
                Ok(Next::More)
            }
            // The reason is on the bus, or on its way there.
            Err(flow) => match self.listen(gst::ClockTime::from_mseconds(500))? {
                Next::More if flow == gst::FlowError::Eos => Ok(Next::Closed("the GStreamer fragment ended".into())),
                Next::More => Err(Error::new(Kind::Output, format!("GStreamer takes no more frames: {flow}"))),
                closed => Ok(closed),
            },
        }
    }

    fn idle(&mut self) -> Result<Next> {
        self.listen(gst::ClockTime::ZERO)
    }

    fn finish(&mut self) -> Result<()> {
        let _ = self.appsrc.end_of_stream();
        let deadline = Instant::now() + self.finish;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let wait = gst::ClockTime::try_from(left).unwrap_or(LOOK).min(gst::ClockTime::from_mseconds(100));
            if self.listen(wait)? != Next::More {
                return Ok(());
            }
        }
        let what = format!("`{}` did not finish within {} s after {} frames", self.text, FINISH.as_secs(), self.taken);
        Err(Error::new(Kind::Output, what).cure("look for an element that stands still; its file may be incomplete"))
    }

    fn describe(&self) -> String {
        let what = if self.window { "window" } else { "GStreamer" };
        format!("{what}: {} ! {}", self.caps, self.text)
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
    format!("{} {}x{} {}", word("format"), number("width"), number("height"), word("colorimetry")).trim_end().to_owned()
}
