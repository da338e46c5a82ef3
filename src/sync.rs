//! What threads share: from the standard library, or from loom, which tries every order in which they may touch it.
//!
//! Only the files whose sharing is modelled take it from here: [`crate::frame`], [`crate::sink`]'s queue, [`crate::worker`],
//! [`crate::ring`]'s laps and AF_XDP's rings. Their models stand at their ends, and `make loom` runs them.

#[cfg(not(gdmedia_loom))]
mod chosen {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
    pub use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub use std::thread::{Builder, JoinHandle};
}

#[cfg(gdmedia_loom)]
mod chosen {
    pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
    pub use loom::sync::mpsc::Receiver;
    use loom::sync::mpsc::{Sender, channel};
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub use loom::thread::{Builder, JoinHandle};

    /// Loom has no bounded channel; whoever uses one here never fills it.
    #[derive(Debug)]
    pub struct SyncSender<T>(Sender<T>);

    impl<T> Clone for SyncSender<T> {
        fn clone(&self) -> Self {
            SyncSender(self.0.clone())
        }
    }

    impl<T> SyncSender<T> {
        pub fn try_send(&self, what: T) -> Result<(), std::sync::mpsc::SendError<T>> {
            self.0.send(what)
        }
    }

    pub fn sync_channel<T>(_bound: usize) -> (SyncSender<T>, Receiver<T>) {
        let (sender, receiver) = channel();
        (SyncSender(sender), receiver)
    }
}

pub(crate) use chosen::*;
