//! What somebody else has encoded, to parsers, muxers and networks of GStreamer; and what its encoders take.

use super::feed::Feed;
use super::{Fragment, caps, init, words};
use crate::error::{Error, Kind, Result};
use crate::format::Layout;
use crate::frame::Meta;
use crate::sink::Next;
use gdmedia_sdp::Video;
use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_video as gst_video;
use std::fmt;
use std::time::Duration;

/// How what comes is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// H.264, start codes before each unit, a picture a buffer.
    H264,
    /// HEVC, likewise.
    Hevc,
    /// AV1, open bitstream units, a temporal unit a buffer.
    Av1,
    /// JPEG files.
    Jpeg,
}

/// A running pipeline that takes encoded pictures in the order in which they are shown.
#[derive(Debug)]
pub struct Coded {
    feed: Feed,
}

impl Coded {
    /// Starts the fragment `text` for pictures of a flow that were encoded from frames of `layout`.
    ///
    /// # Errors
    /// As of [`Fragment::parse`] and [`Fragment::open`].
    pub fn open(
        text: &str,
        coding: Coding,
        video: &Video,
        layout: &Layout,
        live: bool,
        finish: Duration,
    ) -> Result<Coded> {
        let fragment = Fragment::parse(text)?.finish_within(finish);
        let caps = coded_caps(coding, &caps::info(video, layout)?)?;
        let feed = Feed::new(fragment, video, &caps, live)?.ok_or_else(|| {
            Error::new(Kind::Usage, format!("the GStreamer fragment `{text}` does not take {caps}"))
                .cure("begin it with a parser")
        })?;
        feed.play()?;
        Ok(Coded { feed })
    }

    /// Waits until there is room.
    ///
    /// # Errors
    /// The pipeline has failed.
    pub fn room(&mut self) -> Result<Next> {
        self.feed.room()
    }
    /// Hands over one picture; `key`: it needs no other.
    ///
    /// # Errors
    /// The pipeline has failed.
    pub fn push(&mut self, octets: Vec<u8>, meta: &Meta, key: bool) -> Result<Next> {
        self.feed.push_coded(gst::Buffer::from_mut_slice(octets), meta, key)
    }
    /// What the pipeline has to say meanwhile.
    ///
    /// # Errors
    /// It has failed.
    pub fn idle(&mut self) -> Result<Next> {
        self.feed.idle()
    }
    /// No more pictures: ends the file.
    ///
    /// # Errors
    /// It cannot be ended.
    pub fn finish(&mut self) -> Result<()> {
        self.feed.finish()
    }
}

fn coded_caps(coding: Coding, info: &gst_video::VideoInfo) -> Result<gst::Caps> {
    let raw = info.to_caps().map_err(|e| Error::new(Kind::Internal, "GStreamer caps").because(e))?;
    let (name, form) = match coding {
        Coding::H264 => ("video/x-h264", Some(("byte-stream", "au"))),
        Coding::Hevc => ("video/x-h265", Some(("byte-stream", "au"))),
        Coding::Av1 => ("video/x-av1", Some(("obu-stream", "tu"))),
        Coding::Jpeg => ("image/jpeg", None),
    };
    let mut coded = gst::Structure::new_empty(name);
    if let Some((format, alignment)) = form {
        coded.set("stream-format", format);
        coded.set("alignment", alignment);
    }
    let copied: &[&str] = match coding {
        Coding::Jpeg => &["width", "height", "framerate", "pixel-aspect-ratio", "interlace-mode"],
        _ => &["width", "height", "framerate", "pixel-aspect-ratio", "interlace-mode", "field-order", "colorimetry"],
    };
    if let Some(from) = raw.structure(0) {
        for field in copied {
            if let Ok(value) = from.value(*field) {
                coded.set_value(*field, value.clone());
            }
        }
    }
    Ok(gst::Caps::builder_full().structure(coded).build())
}

/// An element that is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoElement {
    /// Its name.
    pub element: String,
    /// Debian's and Ubuntu's package of it, where it is known.
    pub package: Option<&'static str>,
}

impl fmt::Display for NoElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GStreamer has no element `{}`", self.element)?;
        self.package.map_or(Ok(()), |package| write!(f, ", of the package {package}"))
    }
}

/// All of these elements are there.
///
/// # Errors
/// GStreamer does not start, or has not all of them ([`Kind::Unavailable`]; the package is named).
pub fn require(elements: &[&str]) -> Result<()> {
    init()?;
    let missing: Vec<String> = elements
        .iter()
        .filter(|name| gst::ElementFactory::find(name).is_none())
        .map(|name| (*name).to_owned())
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(words::missing_elements(&missing)) }
}

/// GStreamer's names of the raw formats that an element takes for pictures of this size; it is made, so that it is known to
/// be whole. Empty where it takes none of this size.
///
/// # Errors
/// It is not installed; GStreamer does not start.
pub fn formats_of(element: &str, width: u32, height: u32) -> Result<std::result::Result<Vec<String>, NoElement>> {
    init()?;
    let missing = || NoElement { element: element.to_owned(), package: words::package(element) };
    let Ok(made) = gst::ElementFactory::make(element).build() else { return Ok(Err(missing())) };
    let Some(pad) = made.static_pad("sink") else { return Ok(Err(missing())) };
    let size = |n| i32::try_from(n).unwrap_or(i32::MAX);
    let wanted = gst::Caps::builder("video/x-raw").field("width", size(width)).field("height", size(height)).build();
    let mut formats = Vec::new();
    for structure in pad.pad_template_caps().intersect(&wanted).iter() {
        if let Ok(one) = structure.get::<String>("format") {
            formats.push(one);
        } else if let Ok(list) = structure.get::<gst::List>("format") {
            formats.extend(list.iter().filter_map(|v| v.get::<String>().ok()));
        }
    }
    Ok(Ok(formats))
}
