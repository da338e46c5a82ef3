//! What a worker has of the sinks.

#[cfg(feature = "daemon")]
use super::Sinks;
use gdmedia::frame::Frame;
use gdmedia::mem::{Host, Space};
use gdmedia::sink::SinkQueue;
use std::sync::{Arc, OnceLock};

/// The worker's side: hands every frame to every sink. The sinks may come later.
pub struct Offers<F: Space = Host> {
    pub(super) queues: Arc<OnceLock<Vec<Arc<SinkQueue<F>>>>>,
    pub(super) lossless: bool,
}

// By hand, because a derived one would ask spaces to be `Clone`.
impl<F: Space> Clone for Offers<F> {
    fn clone(&self) -> Self {
        Offers { queues: self.queues.clone(), lossless: self.lossless }
    }
}

#[cfg(feature = "daemon")]
impl Offers {
    /// For sinks that come later.
    pub fn later() -> Self {
        Offers { queues: Arc::default(), lossless: false }
    }
    /// Here they are.
    pub fn come(&self, sinks: &Sinks) {
        let _ = self.queues.set(sinks.offers().queues.get().cloned().unwrap_or_default());
    }
}

impl<F: Space> Offers<F> {
    /// Never waits for a sink, except when a capture is read as fast as possible; `stop` ends that wait.
    pub fn offer(&self, frame: Frame<F>, stop: impl Fn() -> bool) {
        for queue in self.queues.get().into_iter().flatten() {
            if self.lossless {
                queue.offer_waiting(frame.clone(), &stop);
            } else {
                queue.offer(frame.clone());
            }
        }
    }
}
