//! `--record FOLDER`: frames as they are, to disk.

use super::{Next, Sink};
use crate::error::Result;
use crate::format::Layout;
use crate::frame::Frame;
use crate::record::{Options, Recorder, Stats};
use gdmedia_sdp::Flow;
use std::path::Path;
use std::sync::Arc;

/// Records frames of the CPU. One that its queue drops because the disk is too slow becomes a gap, counted in the next
/// frame's slot.
#[derive(Debug)]
pub struct RecordSink(Recorder);

impl RecordSink {
    /// Begins a recording in a folder.
    ///
    /// # Errors
    /// As of [`Recorder::create`].
    pub fn create(folder: &Path, flow: &Flow, layout: &Layout, options: &Options) -> Result<Self> {
        Recorder::create(folder, flow, layout, options).map(RecordSink)
    }
    /// What has been recorded; may be read at any time.
    pub fn stats(&self) -> Arc<Stats> {
        self.0.stats()
    }
}

impl Sink for RecordSink {
    fn take(&mut self, frame: &Frame) -> Result<Next> {
        self.0.write(frame).map(|()| Next::More)
    }
    fn finish(&mut self) -> Result<()> {
        self.0.finish()
    }
    fn describe(&self) -> String {
        self.0.describe().to_owned()
    }
}
