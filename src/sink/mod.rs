//! Sinks: where frames go. None of them ever blocks reception: between the worker and a sink stands a bounded queue.
//!
//! A [`Sink`] runs on the thread of its [`SinkQueue`]. The worker offers frames to the queue; a full queue drops the
//! frame and counts it, apart from loss. A reader of a capture that runs as fast as it can uses
//! [`SinkQueue::offer_waiting`] instead, which loses nothing.
//!
//! A sink is made for one layout and one set of SDP parameters. When they change, finish it and open another.

pub mod again;
#[cfg(feature = "cuda")]
mod download;
pub mod export;
mod file;
#[cfg(feature = "gst")]
pub mod gst;
mod picture;
mod queue;
mod record;
mod snapshot;
mod verify;

#[cfg(feature = "cuda")]
pub use download::{Download, DownloadCounters};
pub use file::{FileFormat, FileSink};
pub use picture::to_rgb;
pub use queue::{End, Report, SinkQueue};
pub use record::RecordSink;
pub use snapshot::{Snapshot, write_png};
pub use verify::{Verdict, Verify};

use crate::error::Result;
use crate::frame::Frame;
use crate::mem::{Host, Space};

/// Takes finished frames, on a thread of its own.
pub trait Sink<F: Space = Host>: Send {
    /// Shows, writes or sends one frame; may take its time.
    ///
    /// # Errors
    /// The sink cannot go on: disk full, broken pipe ([`crate::Kind::Output`]).
    fn take(&mut self, frame: &Frame<F>) -> Result<Next>;
    /// Called now and then while no frame comes, so that a closed window is noticed.
    ///
    /// # Errors
    /// As for [`Sink::take`].
    fn idle(&mut self) -> Result<Next> {
        Ok(Next::More)
    }
    /// No more frames: flush, finish the file, close the window. Not called after an error or [`Next::Closed`].
    ///
    /// # Errors
    /// What was taken could not be finished.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    /// It reads frames by their parts and keeps none, so that they may be windows of a ring
    /// ([`Frame::is_window`]). What was overwritten meanwhile is counted by its
    /// [`SinkQueue`].
    fn takes_windows(&self) -> bool {
        false
    }
    /// For the start block.
    fn describe(&self) -> String;
}

/// Does a sink want more frames?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Yes.
    More,
    /// No, and that is no failure: the window was closed, the reader of the pipe has gone. Says which.
    Closed(String),
}
