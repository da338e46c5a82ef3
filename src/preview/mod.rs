//! Preview in a browser: a page with the live picture, the status, and the tools of whoever looks for a fault.
//!
//! ```text
//! worker --queue--> Post --mailbox--> a thread of low priority --watch--> HTTP server --> viewers
//!                          newest       scales, encodes once               one thread
//!                          frame        for all viewers
//! ```
//!
//! Reception never waits for a viewer: a frame is put into a slot that the next one takes over, and a thread of its own makes
//! pictures of it, so many a second at most, and none while nobody watches. All viewers get the same octets; one that is too
//! slow skips pictures, and one that does not read at all is cut off.
//!
//! A [`Preview`] is the side of the frames: [`Preview::post`] is the sink, [`Preview::source`] what is served. A [`Source`] is
//! one stream's pictures and status; [`router`] serves it below any path, so that a server may have many. A [`Server`] serves
//! a router at an address, to browsers that were not led there by a foreign name.
//!
//! Built with the feature `preview`.

mod draw;
mod eye;
#[cfg(feature = "cuda")]
mod gpu;
mod hosts;
mod mailbox;
pub(crate) mod patient;
mod render;
pub(crate) mod routes;
mod server;

pub use hosts::Hosts;
pub use mailbox::Post;
pub use routes::router;
pub use server::Server;

use self::mailbox::{Answer, Ask, Mailbox};
use self::render::Renderer;
use crate::error::{Error, Kind, Result};
#[cfg(feature = "cuda")]
use crate::gpu::Gpu;
use crate::kernel::Conversion;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// How pictures are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Columns of the live picture, about: it is smaller than the frame by a whole number.
    pub width: u32,
    /// Pictures a second at most.
    pub rate: u32,
    /// Quality of JPEG, 1 to 100.
    pub quality: u8,
}

impl Default for Options {
    fn default() -> Self {
        Options { width: 960, rate: 15, quality: 80 }
    }
}

/// Frames that can be stepped through, where they are small enough.
const KEEP: usize = 8;
/// What these may take.
const KEEP_OCTETS: usize = 128 << 20;
/// Sets of frozen pictures that are remembered.
const FROZEN: usize = 4;

/// The pictures of one stream: takes its frames, serves a [`Source`].
#[derive(Debug)]
pub struct Preview {
    source: Source,
    text: String,
    conversion: Conversion,
    options: Options,
    thread: Option<JoinHandle<()>>,
}

impl Preview {
    /// For frames of this conversion. Nothing is rendered before [`Preview::start`].
    pub fn new(conversion: &Conversion, options: Options) -> Self {
        let keep = (KEEP_OCTETS / conversion.layout.size.max(1)).clamp(2, KEEP);
        let shared = Shared {
            mailbox: Arc::new(Mailbox::new(keep)),
            live: watch::Sender::new(None),
            stats: watch::Sender::new(Bytes::from_static(b"{}")),
            frozen: Mutex::default(),
            rendered: AtomicU64::new(0),
            rate: options.rate,
        };
        Preview {
            source: Source(Arc::new(shared)),
            text: "preview".into(),
            conversion: conversion.clone(),
            options,
            thread: None,
        }
    }
    /// What is served.
    pub fn source(&self) -> Source {
        self.source.clone()
    }
    /// Says in the sink's description where it is served.
    pub fn set_text(&mut self, text: impl Into<String>) {
        self.text = text.into();
    }
    /// Columns and rows of the live picture.
    pub fn size(&self) -> (u32, u32) {
        let wire = self.conversion.wire();
        let factor = eye::factor(wire.width, self.options.width);
        ((wire.width / factor).max(1), (wire.height / factor.min(wire.height)).max(1))
    }
    /// Frames that it may hold besides those in its sink's queue.
    pub fn holds(&self) -> usize {
        self.source.0.mailbox.holds()
    }
    /// The sink, for frames of the CPU or of the GPU; there may be several.
    pub fn post(&self) -> Post {
        Post::new(self.source.0.mailbox.clone(), self.text.clone())
    }

    /// Starts the thread that renders; once. With a GPU, frames that lie in its memory are made small there.
    ///
    /// # Errors
    /// The operating system gives no thread; the GPU has no memory or no kernels.
    #[cfg(feature = "cuda")]
    pub fn start(&mut self, gpu: Option<&Arc<Gpu>>) -> Result<()> {
        let renderer = Renderer::new(self.source.clone(), &self.conversion, self.options, gpu)?;
        self.spawn(renderer)
    }
    /// Starts the thread that renders; once.
    ///
    /// # Errors
    /// The operating system gives no thread.
    #[cfg(not(feature = "cuda"))]
    pub fn start(&mut self) -> Result<()> {
        let renderer = Renderer::new(self.source.clone(), &self.conversion, self.options);
        self.spawn(renderer)
    }
    fn spawn(&mut self, mut renderer: Renderer) -> Result<()> {
        if self.thread.is_some() {
            return Ok(());
        }
        let thread = std::thread::Builder::new().name("preview".into()).spawn(move || renderer.run()).map_err(|e| {
            Error::new(Kind::Unavailable, "no thread for the preview")
                .because(e)
                .cure("raise the limit of processes (ulimit -u)")
        })?;
        self.thread = Some(thread);
        Ok(())
    }
}

impl Drop for Preview {
    fn drop(&mut self) {
        self.source.0.mailbox.close();
        self.source.0.mailbox.clear();
        if let Some(thread) = self.thread.take() {
            // It is busy for a picture at most; a panic there is nobody's any more.
            let _ = thread.join();
        }
    }
}

/// Pictures and status of one stream, for those who serve them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Source(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    mailbox: Arc<Mailbox>,
    live: watch::Sender<Option<Arc<Live>>>,
    /// JSON.
    stats: watch::Sender<Bytes>,
    frozen: Mutex<VecDeque<Arc<Frozen>>>,
    rendered: AtomicU64,
    rate: u32,
}

/// A live picture.
#[derive(Debug)]
struct Live {
    /// A part of `multipart/x-mixed-replace`: headers, JPEG, and the boundary behind it.
    part: Bytes,
    /// The JPEG in it.
    jpeg: Bytes,
    /// Of its frame.
    number: u64,
}

/// Pictures of the last frames, oldest first, as they were when somebody froze them.
#[derive(Debug)]
pub(crate) struct Frozen {
    id: u64,
    pictures: Vec<Still>,
}

/// One of them.
#[derive(Debug)]
struct Still {
    jpeg: Bytes,
    number: u64,
    timestamp: u32,
    complete: bool,
    /// Octets that never came.
    missing: u64,
}

/// What the preview says about itself, among the stream's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct State {
    /// Number of the frame that the live picture shows; none while nobody watches.
    pub frame: Option<u64>,
    /// Since the newest frame came; none before the first.
    pub age_ms: Option<u64>,
    /// Those who watch the live picture.
    pub viewers: usize,
    /// Live pictures that were rendered.
    pub rendered: u64,
    /// Live pictures a second at most.
    pub rate: u32,
}

impl Source {
    /// The stream's status from now on, a JSON object.
    pub fn set_stats(&self, stats: &serde_json::Value) {
        self.0.stats.send_replace(stats.to_string().into());
    }
    /// How the preview is.
    pub fn state(&self) -> State {
        let age = self.0.mailbox.age();
        State {
            frame: self.0.live.borrow().as_ref().map(|live| live.number),
            age_ms: age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            viewers: self.0.mailbox.viewers(),
            rendered: self.0.rendered.load(Relaxed),
            rate: self.0.rate,
        }
    }

    /// Somebody watches the live picture, as long as the guard lives.
    fn watch(&self) -> Viewer {
        self.0.mailbox.join();
        Viewer(self.clone())
    }
    /// What is asked for; none when it takes too long or the stream has ended.
    async fn ask(&self, ask: Ask) -> Option<Answer> {
        let answer = self.0.mailbox.ask(ask);
        tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
    }
    /// The newest frame as a small JPEG, a second old at most, and its number: made once for all who ask. Otherwise why there
    /// is none.
    pub(crate) async fn thumbnail(&self) -> std::result::Result<(Bytes, u64), String> {
        match self.ask(Ask::Thumbnail).await {
            Some(Answer::Picture(file, number)) => Ok((file, number)),
            Some(Answer::None(why)) => Err(why),
            _ => Err(GONE.into()),
        }
    }
    /// A set of frozen pictures; the newest one where no number is given.
    fn frozen(&self, id: Option<u64>) -> Option<Arc<Frozen>> {
        let frozen = self.0.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        frozen.iter().rev().find(|set| id.is_none_or(|id| set.id == id)).cloned()
    }
    fn keep_frozen(&self, pictures: Vec<Still>) -> Arc<Frozen> {
        let mut frozen = self.0.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        let id = frozen.back().map_or(1, |last| last.id + 1);
        let set = Arc::new(Frozen { id, pictures });
        frozen.push_back(set.clone());
        if frozen.len() > FROZEN {
            frozen.pop_front();
        }
        set
    }
}

/// A viewer waits so long for what he asks for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why nothing is answered.
const GONE: &str = "the stream has ended, or this machine is too busy";

/// Somebody who watches.
#[derive(Debug)]
struct Viewer(Source);

impl Drop for Viewer {
    fn drop(&mut self) {
        if self.0.0.mailbox.leave() {
            // Whoever comes next is not to see this one first.
            self.0.0.live.send_replace(None);
        }
    }
}
