//! From frames of the GPU to frames of the CPU: a copy into pinned memory, made beside reception.
#![allow(unsafe_code)]

use super::{Next, Sink};
use crate::error::Result;
use crate::format::Layout;
use crate::frame::{Frame, FramePool};
use crate::gpu::{Event, EventKind, Gpu, Stream};
use crate::mem::{Device, Host, Region};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Brings frames of the GPU to sinks of the CPU. What comes while all of its memory is in use is dropped and counted;
/// when the GPU is lost, the frames that were on it are, too.
pub struct Download {
    pool: FramePool<Host>,
    stream: Stream,
    copied: Event,
    deliver: Box<dyn FnMut(Frame<Host>) + Send>,
    counters: Arc<DownloadCounters>,
    text: String,
}

/// What became of frames; may be read at any time.
#[derive(Debug, Default)]
pub struct DownloadCounters {
    /// Handed on.
    pub taken: AtomicU64,
    /// No memory was free: sinks are slower than the stream.
    pub dropped: AtomicU64,
    /// They were on a GPU that was lost.
    pub lost: AtomicU64,
}

impl Download {
    /// `frames` frames in pinned memory; `deliver` gets each of them.
    ///
    /// # Errors
    /// No memory, or the GPU is lost.
    pub fn new(
        gpu: &Arc<Gpu>,
        layout: &Layout,
        frames: usize,
        deliver: Box<dyn FnMut(Frame<Host>) + Send>,
    ) -> Result<Self> {
        let pinned = |size, ()| Ok(Region::pinned(gpu, size)?.into_host());
        Ok(Download {
            pool: FramePool::new(layout.clone(), (0..frames).map(|_| ()), pinned)?,
            stream: Stream::new(gpu, false)?,
            copied: Event::new(gpu, EventKind::Sleep)?,
            deliver,
            counters: Arc::default(),
            text: format!("copies of the GPU's frames for the CPU, {frames} in pinned memory"),
        })
    }
    /// What became of frames.
    pub fn counters(&self) -> Arc<DownloadCounters> {
        self.counters.clone()
    }
}

impl Sink<Device> for Download {
    fn take(&mut self, frame: &Frame<Device>) -> Result<Next> {
        let Some(mut copy) = self.pool.take() else {
            self.counters.dropped.fetch_add(1, Relaxed);
            return Ok(Next::More);
        };
        copy.meta_mut().clone_from(frame.meta());
        let to = copy.region_mut().as_mut_ptr() as u64;
        let parts = frame.parts();
        let copied = (|| -> Result<()> {
            if let Some(fence) = frame.fence() {
                fence.queue(&self.stream)?;
            }
            // SAFETY: both are frames of the same layout, held until the copy is done; nobody writes to the first, but for a
            // network card to a window, which is looked at below; nobody knows the second.
            unsafe {
                self.stream.copy(to, parts[0].0 as u64, parts[0].1)?;
                if parts[1].1 > 0 {
                    self.stream.copy(to + parts[0].1 as u64, parts[1].0 as u64, parts[1].1)?;
                }
            }
            self.stream.record(&self.copied)?;
            Ok(self.copied.wait()?)
        })();
        if let Err(error) = copied {
            if !self.stream.gpu().is_lost() {
                return Err(error);
            }
            self.counters.lost.fetch_add(1, Relaxed);
            copy.discard();
            return Ok(Next::More);
        }
        if !frame.intact() {
            // Counted by whoever called.
            copy.discard();
            return Ok(Next::More);
        }
        self.counters.taken.fetch_add(1, Relaxed);
        (self.deliver)(copy.seal());
        Ok(Next::More)
    }

    fn takes_windows(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        self.text.clone()
    }
}
