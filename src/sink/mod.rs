//! Sinks: where frames go. None of them ever blocks reception: between the worker and a sink stands a bounded queue.

use crate::error::Result;
use crate::frame::Frame;
use crate::mem::{Host, Space};

/// Takes finished frames, on a thread of its own.
pub trait Sink<F: Space = Host>: Send {
    /// Shows, writes or sends one frame; may take its time.
    ///
    /// # Errors
    /// The sink cannot go on: disk full, broken pipe, window closed ([`crate::Kind::Output`]).
    fn take(&mut self, frame: &Frame<F>) -> Result<()>;
    /// No more frames: flush, finish the file, close the window.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    /// For the start block.
    fn describe(&self) -> String;
}
