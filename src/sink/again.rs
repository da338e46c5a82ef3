//! A sink that is started again when it ends: for those who run around the clock.

use super::{Next, Sink};
use crate::error::{Error, Kind, Result};
use crate::frame::Frame;
use crate::mem::Space;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The first pause before another start; each further one is twice as long …
const FIRST: Duration = Duration::from_millis(500);
/// … up to this.
const LONGEST: Duration = Duration::from_secs(30);
/// A sink that has taken so many frames works: its next failure is a new one.
const WORKS: u64 = 100;
/// Events that wait to be told.
const TOLD: usize = 16;

/// Starts the sink, counted from 1. It is called on the sink's thread, but for the first time.
pub type Start<F> = Box<dyn FnMut(u64) -> Result<Box<dyn Sink<F>>> + Send>;

/// What became of a sink that is started again, readable from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    running: AtomicBool,
    starts: AtomicU64,
    missed: AtomicU64,
    reason: Mutex<Option<String>>,
    events: Mutex<VecDeque<String>>,
}

impl Watch {
    /// It takes frames.
    pub fn is_running(&self) -> bool {
        self.0.running.load(Relaxed)
    }
    /// Why it does not.
    pub fn reason(&self) -> Option<String> {
        lock(&self.0.reason).clone()
    }
    /// Times that it was started.
    pub fn starts(&self) -> u64 {
        self.0.starts.load(Relaxed)
    }
    /// Frames that came while it did not run.
    pub fn missed(&self) -> u64 {
        self.0.missed.load(Relaxed)
    }
    /// What happened since the last call.
    pub fn events(&self) -> Vec<String> {
        lock(&self.0.events).drain(..).collect()
    }
    fn say(&self, text: String) {
        let mut events = lock(&self.0.events);
        if events.len() == TOLD {
            events.pop_front();
        }
        events.push_back(text);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lives longer than the sink in it: one that fails, panics or is closed is started again, later each time. It never ends by
/// itself.
pub struct Again<F: Space> {
    start: Start<F>,
    running: Option<Box<dyn Sink<F>>>,
    /// Frames that the running sink has taken.
    taken: u64,
    pause: Duration,
    due: Duration,
    clock: Box<dyn Fn() -> Duration + Send>,
    watch: Watch,
    text: String,
}

impl<F: Space> fmt::Debug for Again<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Again").field("text", &self.text).field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl<F: Space> Again<F> {
    /// Starts the sink for the first time; `name` is what it is called where that fails.
    ///
    /// # Errors
    /// It cannot start as it is asked to ([`Kind::Usage`]). Whatever else it lacks may come later.
    pub fn new(start: Start<F>, name: &str) -> Result<Self> {
        let begun = Instant::now();
        Self::with(start, name, Box::new(move || begun.elapsed()))
    }

    fn with(start: Start<F>, name: &str, clock: Box<dyn Fn() -> Duration + Send>) -> Result<Self> {
        let mut again = Again {
            start,
            running: None,
            taken: 0,
            pause: FIRST,
            due: Duration::ZERO,
            clock,
            watch: Watch::default(),
            text: name.to_owned(),
        };
        match again.begin() {
            Err(error) if error.kind() == Kind::Usage => return Err(error),
            Err(error) => again.failed(&error.in_one_line()),
            Ok(()) => {}
        }
        Ok(again)
    }

    /// What becomes of it, readable from elsewhere.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    fn begin(&mut self) -> Result<()> {
        let nth = self.watch.0.starts.fetch_add(1, Relaxed) + 1;
        let started = catch_unwind(AssertUnwindSafe(|| (self.start)(nth)));
        let sink = started.unwrap_or_else(|_| Err(panicked()))?;
        self.text = sink.describe();
        self.running = Some(sink);
        *lock(&self.watch.0.reason) = None;
        self.watch.0.running.store(true, Relaxed);
        Ok(())
    }

    /// It is gone: another is started later.
    fn failed(&mut self, why: &str) {
        let running = self.running.take();
        // What is half broken may break when it goes.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(running)));
        self.watch.0.running.store(false, Relaxed);
        let (pause, taken) = (self.pause, std::mem::take(&mut self.taken));
        self.due = (self.clock)() + pause;
        self.pause = (pause * 2).min(LONGEST);
        let after = if taken > 0 { format!(" after {taken} frames") } else { String::new() };
        let seconds = pause.as_secs_f64();
        self.watch.say(format!("{} ended{after}: {why}; started again in {seconds:.1} s", self.text));
        *lock(&self.watch.0.reason) = Some(why.to_owned());
    }

    /// A sink runs, or has been started because it was time.
    fn is_running(&mut self) -> bool {
        if self.running.is_some() {
            return true;
        }
        if (self.clock)() < self.due {
            return false;
        }
        match self.begin() {
            Ok(()) => self.watch.say(format!("started again: {}", self.text)),
            Err(error) => self.failed(&error.in_one_line()),
        }
        self.running.is_some()
    }

    /// Lets the sink do something; true when it goes on.
    fn try_with(&mut self, work: impl FnOnce(&mut dyn Sink<F>) -> Result<Next>) -> bool {
        let Some(sink) = &mut self.running else { return false };
        let done = catch_unwind(AssertUnwindSafe(|| work(sink.as_mut()))).unwrap_or_else(|_| Err(panicked()));
        match done {
            Ok(Next::More) => true,
            Ok(Next::Closed(why)) => {
                self.failed(&why);
                false
            }
            Err(error) => {
                self.failed(&error.in_one_line());
                false
            }
        }
    }
}

fn panicked() -> Error {
    Error::new(Kind::Internal, "the sink panicked").cure("please report this")
}

impl<F: Space> Sink<F> for Again<F> {
    fn take(&mut self, frame: &Frame<F>) -> Result<Next> {
        if self.is_running() && self.try_with(|sink| sink.take(frame)) {
            self.taken += 1;
            if self.taken == WORKS {
                self.pause = FIRST;
            }
        } else {
            self.watch.0.missed.fetch_add(1, Relaxed);
        }
        Ok(Next::More)
    }
    fn idle(&mut self) -> Result<Next> {
        if self.is_running() {
            self.try_with(|sink| sink.idle());
        }
        Ok(Next::More)
    }
    fn finish(&mut self) -> Result<()> {
        let Some(mut sink) = self.running.take() else { return Ok(()) };
        self.watch.0.running.store(false, Relaxed);
        sink.finish()
    }
    fn takes_windows(&self) -> bool {
        self.running.as_ref().is_some_and(|sink| sink.takes_windows())
    }
    fn describe(&self) -> String {
        self.text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Layout, Output, WireFormat};
    use crate::frame::FramePool;
    use crate::mem::Host;
    use gdmedia_sdp::{Depth, Sampling, Scan};

    /// What each sink does, one after the other.
    #[derive(Clone, Copy)]
    enum Life {
        Refuses(Kind),
        Fails(u64),
        Panics(u64),
        Closes(u64),
        Lasts,
    }

    struct Mortal(Life, u64);

    impl Sink for Mortal {
        fn take(&mut self, _: &Frame) -> Result<Next> {
            self.1 += 1;
            match self.0 {
                Life::Fails(n) if self.1 > n => Err(Error::new(Kind::Output, "disk full")),
                Life::Panics(n) if self.1 > n => panic!("on purpose"),
                Life::Closes(n) if self.1 > n => Ok(Next::Closed("window closed".into())),
                _ => Ok(Next::More),
            }
        }
        fn describe(&self) -> String {
            "mortal".into()
        }
    }

    type Clock = Arc<AtomicU64>;

    fn again(lives: &[Life]) -> (Result<Again<Host>>, Clock) {
        let clock = Clock::default();
        let (lives, ours) = (lives.to_vec(), clock.clone());
        let start = move |nth: u64| -> Result<Box<dyn Sink>> {
            match lives.get(nth as usize - 1).copied().unwrap_or(Life::Lasts) {
                Life::Refuses(kind) => Err(Error::new(kind, "not now")),
                life => Ok(Box::new(Mortal(life, 0))),
            }
        };
        (Again::with(Box::new(start), "sink", Box::new(move || Duration::from_millis(ours.load(Relaxed)))), clock)
    }

    fn frames(again: &mut Again<Host>, count: u64) {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 4, 1, Scan::Progressive).unwrap();
        let pool = FramePool::host(Layout::new(wire, Output::Wire).unwrap(), 1).unwrap();
        for _ in 0..count {
            let frame = pool.take().unwrap().seal();
            assert_eq!(again.take(&frame).unwrap(), Next::More);
        }
    }

    #[test]
    fn a_sink_that_fails_panics_or_is_closed_is_started_again_later_each_time() {
        let (again, clock) = again(&[Life::Fails(3), Life::Panics(0), Life::Refuses(Kind::Output), Life::Closes(2)]);
        let mut again = again.unwrap();
        let watch = again.watch();
        frames(&mut again, 5);
        assert_eq!((watch.is_running(), watch.starts(), watch.missed()), (false, 1, 2));
        assert_eq!(watch.reason().as_deref(), Some("disk full"));
        assert_eq!(watch.events(), ["mortal ended after 3 frames: disk full; started again in 0.5 s"]);
        for (at, starts, reason) in
            [(499, 1, "disk full"), (500, 2, "the sink panicked"), (1499, 2, "the sink panicked")]
        {
            clock.store(at, Relaxed);
            frames(&mut again, 1);
            assert_eq!((watch.starts(), watch.reason().as_deref()), (starts, Some(reason)), "{at}");
        }
        clock.store(1500, Relaxed);
        frames(&mut again, 1);
        assert_eq!((watch.starts(), watch.reason().as_deref()), (3, Some("not now")));
        clock.store(3500, Relaxed);
        frames(&mut again, 3);
        assert_eq!((watch.starts(), watch.reason().as_deref()), (4, Some("window closed")));
        clock.store(60_000, Relaxed);
        frames(&mut again, 150);
        assert_eq!((watch.is_running(), watch.starts(), watch.reason()), (true, 5, None));
        assert!(watch.events().iter().any(|e| e.contains("window closed; started again in 4.0 s")));
        again.finish().unwrap();
        assert!(!watch.is_running());
    }

    #[test]
    fn what_is_wrong_with_the_options_is_told_and_the_rest_waits() {
        let (refused, _) = again(&[Life::Refuses(Kind::Usage)]);
        assert_eq!(refused.unwrap_err().kind(), Kind::Usage);
        let (waits, clock) = again(&[Life::Refuses(Kind::Unavailable)]);
        let mut waits = waits.unwrap();
        clock.store(500, Relaxed);
        // Without frames as well.
        waits.idle().unwrap();
        assert!(waits.watch().is_running());
    }
}
