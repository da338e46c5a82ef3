//! What every way into a fragment shares: `appsrc` in front of it, stamps, the bus, the end.

use super::overlay::Overlay;
use super::stamp::Stamper;
use super::{Fragment, Pipeline, describe, failure, words};
use crate::error::{Error, Kind, Result};
use crate::frame::Meta;
use crate::sink::Next;
use gdmedia_sdp::{Scan, Video};
use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use gstreamer_video as gst_video;
use gstreamer_video::prelude::*;
use std::time::{Duration, Instant};

/// Frames that wait in `appsrc`.
const WAITING: u64 = 1;
/// While `appsrc` is full, how often to look again.
const LOOK: gst::ClockTime = gst::ClockTime::from_mseconds(2);

/// A pipeline that buffers are pushed into. What they hold is the business of its owner.
#[derive(Debug)]
pub(super) struct Feed {
    pipeline: Pipeline,
    bus: gst::Bus,
    appsrc: gst_app::AppSrc,
    stamper: Stamper,
    interlaced: bool,
    caps: String,
    text: String,
    window: bool,
    taken: u64,
    finish: Duration,
    overlay: Option<Overlay>,
}

impl Feed {
    /// Puts `appsrc` in front of the fragment; none when the fragment does not link to it. Not running yet.
    pub fn new(fragment: Fragment, video: &Video, caps: &gst::Caps, live: bool) -> Result<Option<Self>> {
        let stamper = Stamper::new(video.rate);
        let appsrc = gst_app::AppSrc::builder()
            .caps(caps)
            .format(gst::Format::Time)
            .is_live(live)
            .max_buffers(WAITING)
            .max_bytes(0)
            // A frame is there when its last packet is: one period after its time.
            .min_latency(if live { stamper.period().unwrap_or(0) as i64 } else { -1 })
            .build();
        let Fragment { pipeline, bin, text, window, finish, .. } = fragment;
        pipeline.add(&appsrc).map_err(|e| Error::new(Kind::Internal, "GStreamer pipeline").because(e))?;
        if appsrc.link(&bin).is_err() {
            return Ok(None);
        }
        let overlay = if window { Overlay::of(&pipeline, &appsrc) } else { None };
        Ok(Some(Feed {
            bus: pipeline.bus().ok_or_else(|| Error::new(Kind::Internal, "GStreamer pipeline without a bus"))?,
            pipeline,
            appsrc,
            stamper,
            interlaced: video.scan == Scan::Interlaced,
            caps: describe(caps),
            text,
            window,
            taken: 0,
            finish,
            overlay,
        }))
    }
    /// Words over the picture of a window.
    pub fn overlay(&self) -> Option<Overlay> {
        self.overlay.clone()
    }
    /// Where buffers come out.
    pub fn appsrc(&self) -> &gst_app::AppSrc {
        &self.appsrc
    }
    /// Starts the pipeline.
    pub fn play(&self) -> Result<()> {
        match self.pipeline.set_state(gst::State::Playing) {
            Ok(_) => Ok(()),
            Err(_) => Err(failure(&self.pipeline, &self.text)),
        }
    }

    /// Waits until the fragment has room; says otherwise when it wants no more.
    pub fn room(&mut self) -> Result<Next> {
        // The queue before this sink drops frames while a slow fragment is waited for here.
        let mut next = self.listen(gst::ClockTime::ZERO)?;
        while next == Next::More && self.appsrc.current_level_buffers() >= WAITING {
            next = self.listen(LOOK)?;
        }
        Ok(next)
    }

    /// The same of what has been encoded in the order in which it is shown.
    pub fn push_coded(&mut self, mut buffer: gst::Buffer, meta: &Meta, key: bool) -> Result<Next> {
        self.stamp(&mut buffer, meta);
        let coded = buffer.make_mut();
        coded.set_dts(coded.pts());
        if !key {
            coded.set_flags(gst::BufferFlags::DELTA_UNIT);
        }
        self.hand_over(buffer)
    }

    /// Stamps a buffer as the frame that is described by `meta`, and hands it over.
    pub fn push(&mut self, mut buffer: gst::Buffer, meta: &Meta) -> Result<Next> {
        self.stamp(&mut buffer, meta);
        self.hand_over(buffer)
    }

    fn stamp(&mut self, buffer: &mut gst::Buffer, meta: &Meta) {
        let running = if self.appsrc.is_live() { self.pipeline.current_running_time() } else { None };
        let stamp = self.stamper.stamp(meta, running.map_or(0, gst::ClockTime::nseconds));
        let buffer = buffer.make_mut();
        buffer.set_pts(gst::ClockTime::from_nseconds(stamp.pts));
        buffer.set_duration(self.stamper.period().map(gst::ClockTime::from_nseconds));
        buffer.set_offset(meta.number);
        let mut flags = gst::BufferFlags::empty();
        flags.set(gst::BufferFlags::DISCONT, stamp.discont);
        flags.set(gst::BufferFlags::CORRUPTED, !meta.complete);
        buffer.set_flags(flags);
        if self.interlaced {
            let fields = gst_video::VideoBufferFlags::INTERLACED | gst_video::VideoBufferFlags::TFF;
            buffer.set_video_flags(fields);
        }
    }

    fn hand_over(&mut self, buffer: gst::Buffer) -> Result<Next> {
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

    /// What the pipeline has to say now.
    pub fn idle(&mut self) -> Result<Next> {
        self.listen(gst::ClockTime::ZERO)
    }

    /// Sends the end through the fragment and waits for it.
    pub fn finish(&mut self) -> Result<()> {
        let _ = self.appsrc.end_of_stream();
        let deadline = Instant::now() + self.finish;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            let wait = gst::ClockTime::try_from(left).unwrap_or(LOOK).min(gst::ClockTime::from_mseconds(100));
            if self.listen(wait)? != Next::More {
                return Ok(());
            }
        }
        let what =
            format!("`{}` did not finish within {} s after {} frames", self.text, self.finish.as_secs(), self.taken);
        Err(Error::new(Kind::Output, what).cure("look for an element that stands still; its file may be incomplete"))
    }

    /// For the start block.
    pub fn describe(&self) -> String {
        let what = if self.window { "window" } else { "GStreamer" };
        format!("{what}: {} ! {}", self.caps, self.text)
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
}
