//! Words over the picture of a window: shown and hidden with the key `o`.

use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use gstreamer_video as gst_video;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The element's name in the pipeline.
const NAME: &str = "gdmedia-words";
/// The key that shows and hides it.
pub(super) const KEY: &str = "o";

/// The element for a window's fragment, silent at first; nothing where it is not installed.
pub(super) fn element() -> String {
    if gst::ElementFactory::find("textoverlay").is_none() {
        return String::new();
    }
    format!(
        "textoverlay name={NAME} silent=true halignment=left valignment=top line-alignment=left shaded-background=true \
         font-desc=\"Monospace 11\" wrap-mode=none ! "
    )
}

/// What is written over a window's picture. Clones are of the same window.
#[derive(Clone, Debug)]
pub struct Overlay {
    element: gst::Element,
    shown: Arc<AtomicBool>,
}

impl Overlay {
    /// Of a pipeline with the element; keys arrive as events at the source of frames.
    pub(super) fn of(pipeline: &gst::Pipeline, source: &gst_app::AppSrc) -> Option<Overlay> {
        let overlay = Overlay { element: pipeline.by_name(NAME)?, shown: Arc::default() };
        let pad = source.static_pad("src")?;
        let theirs = overlay.clone();
        pad.add_probe(gst::PadProbeType::EVENT_UPSTREAM, move |_, probe| {
            if let Some(gst::PadProbeData::Event(event)) = &probe.data
                && let Ok(gst_video::NavigationEvent::KeyPress { key, .. }) = gst_video::NavigationEvent::parse(event)
                && key.eq_ignore_ascii_case(KEY)
            {
                theirs.show(!theirs.is_shown());
            }
            gst::PadProbeReturn::Ok
        });
        Some(overlay)
    }

    /// Can words be shown at all?
    ///
    /// # Errors
    /// The package that is missing, in a sentence.
    pub fn available() -> Result<(), String> {
        if super::init().is_ok() && gst::ElementFactory::find("textoverlay").is_some() {
            return Ok(());
        }
        Err("no words over the window's picture: GStreamer has no element `textoverlay`, install the package \
             gstreamer1.0-x (Debian, Ubuntu)"
            .into())
    }

    /// Shows or hides the words.
    pub fn show(&self, shown: bool) {
        self.shown.store(shown, Relaxed);
        self.element.set_property("silent", !shown);
    }
    /// Are they shown now?
    pub fn is_shown(&self) -> bool {
        self.shown.load(Relaxed)
    }
    /// Writes other words, several lines.
    pub fn write(&self, text: &str) {
        self.element.set_property("text", plain(text));
    }
}

/// Pango reads markup.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_markup_is_written_as_it_is() {
        assert_eq!(plain("a < b & c > d"), "a &lt; b &amp; c &gt; d");
    }

    #[test]
    fn the_key_shows_and_hides_and_other_keys_do_not() {
        gst::init().unwrap();
        if let Err(why) = Overlay::available() {
            return println!("skipped: {why}");
        }
        let pipeline = gst::Pipeline::new();
        let source = gst_app::AppSrc::builder().build();
        let rest = gst::parse::bin_from_description(&format!("{}fakesink", element()), true).unwrap();
        pipeline.add(&source).unwrap();
        pipeline.add(&rest).unwrap();
        source.link(&rest).unwrap();
        let overlay = Overlay::of(&pipeline, &source).unwrap();
        // So that pads pass events on.
        pipeline.set_state(gst::State::Paused).unwrap();
        assert!(!overlay.is_shown() && overlay.element.property::<bool>("silent"));
        overlay.write("1080p");
        // As a video sink sends them.
        let press = |key: &str| {
            let event = gst_video::NavigationEvent::new_key_press(key);
            rest.static_pad("sink").unwrap().push_event(event.build());
        };
        let shown = ["o", "x", "O", "Left", "o"].map(|key| {
            press(key);
            (overlay.is_shown(), overlay.element.property::<bool>("silent"))
        });
        pipeline.set_state(gst::State::Null).unwrap();
        assert_eq!(shown, [(true, false), (true, false), (false, true), (false, true), (true, false)]);
    }
}
