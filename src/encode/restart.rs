//! An encoder that dies is started again, later each time, and what it was given meanwhile is counted.

use crate::error::{Error, Kind, Result};
use crate::frame::Frame;
use crate::mem::Space;
use crate::sink::{Next, Sink};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The first pause before another start; each further one is twice as long …
const FIRST: Duration = Duration::from_millis(500);
/// … up to this.
const LONGEST: Duration = Duration::from_secs(30);
/// An encoder that has taken so many frames works: its next failure is a new one.
const WORKS: u64 = 100;
/// One that never worked is not tried more often.
const TRIES: u32 = 3;
/// Events that wait to be told.
const TOLD: usize = 16;

/// What an encoder did, readable from elsewhere while it runs and after it.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    dropped: AtomicU64,
    starts: AtomicU32,
    events: Mutex<VecDeque<String>>,
}

impl Watch {
    /// Frames that came while no encoder ran.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Relaxed)
    }
    /// How often an encoder was started.
    pub fn starts(&self) -> u32 {
        self.0.starts.load(Relaxed)
    }
    /// What happened since the last call.
    pub fn events(&self) -> Vec<String> {
        self.lock().drain(..).collect()
    }
    /// The next part's number, counted from 1.
    pub(super) fn next_part(&self) -> u32 {
        self.0.starts.fetch_add(1, Relaxed) + 1
    }
    pub(super) fn say(&self, text: String) {
        let mut events = self.lock();
        if events.len() == TOLD {
            events.pop_front();
        }
        events.push_back(text);
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<String>> {
        self.0.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the `part`th encoder.
pub(super) type Start<F> = Box<dyn FnMut(u32) -> Result<Box<dyn Sink<F>>> + Send>;

/// A sink that lives longer than the encoder in it.
pub struct Encoder<F: Space> {
    start: Start<F>,
    running: Option<Box<dyn Sink<F>>>,
    /// Frames that the running encoder has taken.
    taken: u64,
    /// Some encoder took frames until it worked.
    worked: bool,
    failures: u32,
    pause: Duration,
    due: Duration,
    clock: Box<dyn Fn() -> Duration + Send>,
    watch: Watch,
    text: String,
}

impl<F: Space> Encoder<F> {
    /// Starts the first encoder. `text` is what it is, for the start block.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn new(mut start: Start<F>, watch: Watch, text: String) -> Result<Self> {
        let running = start(watch.next_part())?;
        let begun = Instant::now();
        Ok(Self::with(start, Some(running), watch, text, Box::new(move || begun.elapsed())))
    }
    /// None is started before the first frame comes.
    pub(super) fn waiting(start: Start<F>, watch: Watch, text: String) -> Self {
        let begun = Instant::now();
        Self::with(start, None, watch, text, Box::new(move || begun.elapsed()))
    }

    fn with(
        start: Start<F>,
        running: Option<Box<dyn Sink<F>>>,
        watch: Watch,
        text: String,
        clock: Box<dyn Fn() -> Duration + Send>,
    ) -> Self {
        let (pause, due) = (FIRST, Duration::ZERO);
        Encoder { start, running, taken: 0, worked: false, failures: 0, pause, due, clock, watch, text }
    }

    /// What it does, readable from elsewhere.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// The encoder is gone: when is another one tried, if at all?
    fn failed(&mut self, error: Error) -> Result<Next> {
        self.running = None;
        self.failures += 1;
        if is_final(&error) || (!self.worked && self.failures >= TRIES) {
            return Err(error);
        }
        let (pause, taken) = (self.pause, std::mem::take(&mut self.taken));
        self.due = (self.clock)() + pause;
        self.pause = (pause * 2).min(LONGEST);
        let after = if taken > 0 { format!(" after {taken} frames") } else { String::new() };
        let seconds = pause.as_secs_f64();
        self.watch.say(format!("the encoder failed{after}: {}; started again in {seconds:.1} s", error.in_one_line()));
        Ok(Next::More)
    }

    /// A running encoder; none while it is too early for another, or when it does not start.
    fn running(&mut self) -> Result<bool> {
        if self.running.is_some() {
            return Ok(true);
        }
        if (self.clock)() < self.due {
            return Ok(false);
        }
        let part = self.watch.next_part();
        match (self.start)(part) {
            Ok(sink) => {
                if part > 1 {
                    self.watch.say(format!("the encoder was started again: {}", sink.describe()));
                }
                self.running = Some(sink);
                Ok(true)
            }
            Err(error) => self.failed(error).map(|_| false),
        }
    }
}

/// Another start would end in the same way.
fn is_final(error: &Error) -> bool {
    let text = error.to_string();
    let hopeless =
        ["No space left", "Disk quota", "File too large", "Read-only file system", "No such file or directory"];
    matches!(error.kind(), Kind::Usage | Kind::Data | Kind::Permission)
        || hopeless.iter().any(|words| text.contains(words))
}

impl<F: Space> Sink<F> for Encoder<F> {
    fn take(&mut self, frame: &Frame<F>) -> Result<Next> {
        let running = self.running()?;
        let Some(sink) = self.running.as_mut().filter(|_| running) else {
            self.watch.0.dropped.fetch_add(1, Relaxed);
            return Ok(Next::More);
        };
        match sink.take(frame) {
            Ok(Next::More) => {
                self.taken += 1;
                if self.taken >= WORKS {
                    (self.worked, self.failures, self.pause) = (true, 0, FIRST);
                }
                Ok(Next::More)
            }
            Ok(closed) => Ok(closed),
            Err(error) => {
                self.watch.0.dropped.fetch_add(1, Relaxed);
                self.failed(error)
            }
        }
    }

    fn idle(&mut self) -> Result<Next> {
        match self.running.as_mut().map(|sink| sink.idle()) {
            None => Ok(Next::More),
            Some(Err(error)) => self.failed(error),
            Some(next) => next,
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.running.as_mut().map_or(Ok(()), |sink| sink.finish())
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

    /// What the encoders of a test do, part by part: frames that they take before they fail; none: they do not start.
    struct Script {
        parts: Vec<Option<u64>>,
        kind: Kind,
        words: &'static str,
        finished: Arc<AtomicU32>,
    }

    struct Fake {
        part: u32,
        left: u64,
        kind: Kind,
        words: &'static str,
        finished: Arc<AtomicU32>,
    }

    impl Sink for Fake {
        fn take(&mut self, _: &Frame) -> Result<Next> {
            if self.left == 0 {
                return Err(Error::new(self.kind, self.words));
            }
            self.left -= 1;
            Ok(Next::More)
        }
        fn finish(&mut self) -> Result<()> {
            self.finished.store(self.part, Relaxed);
            Ok(())
        }
        fn describe(&self) -> String {
            format!("part {}", self.part)
        }
    }

    fn encoder(script: Script) -> (Encoder<Host>, Arc<Mutex<Duration>>) {
        let Script { parts, kind, words, finished } = script;
        let start: Start<Host> = Box::new(move |part| match parts.get(part as usize - 1).copied().flatten() {
            Some(left) => Ok(Box::new(Fake { part, left, kind, words, finished: finished.clone() })),
            None => Err(Error::new(Kind::Unavailable, "no encoder")),
        });
        let now = Arc::new(Mutex::new(Duration::ZERO));
        let clock = now.clone();
        let read = Box::new(move || *clock.lock().unwrap());
        (Encoder::with(start, None, Watch::default(), "fake".into(), read), now)
    }

    fn frame() -> Frame {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D8, 4, 1, Scan::Progressive).unwrap();
        FramePool::host(Layout::new(wire, Output::Wire).unwrap(), 1).unwrap().take().unwrap().seal()
    }

    #[test]
    fn a_dead_encoder_is_started_again_later_each_time() {
        let finished = Arc::new(AtomicU32::new(0));
        let script = Script {
            parts: vec![Some(200), None, Some(0), Some(1000)],
            kind: Kind::Output,
            words: "it broke",
            finished: finished.clone(),
        };
        let (mut encoder, now) = encoder(script);
        let watch = encoder.watch();
        let frame = frame();
        let mut take = |ms: u64| {
            *now.lock().unwrap() = Duration::from_millis(ms);
            assert_eq!(encoder.take(&frame).unwrap(), Next::More);
        };
        (0..201).for_each(|_| take(0));
        assert_eq!((watch.starts(), watch.dropped()), (1, 1));
        assert_eq!(watch.events(), ["the encoder failed after 200 frames: it broke; started again in 0.5 s"]);
        take(499);
        assert_eq!((watch.starts(), watch.dropped()), (1, 2), "not yet");
        take(500);
        assert_eq!((watch.starts(), watch.dropped()), (2, 3), "it does not start");
        take(1499);
        take(1500);
        assert_eq!((watch.starts(), watch.dropped()), (3, 5), "it starts and takes nothing");
        take(3499);
        take(3500);
        assert_eq!((watch.starts(), watch.dropped()), (4, 6), "it runs");
        assert_eq!(
            watch.events(),
            [
                "the encoder failed: no encoder; started again in 1.0 s",
                "the encoder was started again: part 3",
                "the encoder failed: it broke; started again in 2.0 s",
                "the encoder was started again: part 4"
            ]
        );
        encoder.finish().unwrap();
        assert_eq!(finished.load(Relaxed), 4);
    }

    #[test]
    fn one_that_never_worked_ends_the_run_and_so_does_a_full_disk() {
        let run = |parts: Vec<Option<u64>>, kind, words| {
            let (mut encoder, now) = encoder(Script { parts, kind, words, finished: Arc::default() });
            let frame = frame();
            let mut taken = 0;
            let error = loop {
                *now.lock().unwrap() += Duration::from_secs(60);
                match encoder.take(&frame) {
                    Ok(_) => taken += 1,
                    Err(error) => break error,
                }
                assert!(taken < 1000);
            };
            (encoder.watch().starts(), error.kind())
        };
        assert_eq!(run(vec![None; 9], Kind::Output, ""), (3, Kind::Unavailable));
        assert_eq!(run(vec![Some(5); 9], Kind::Output, "broken"), (3, Kind::Output));
        assert_eq!(run(vec![Some(200), Some(0)], Kind::Output, "No space left on device"), (1, Kind::Output));
        assert_eq!(run(vec![Some(200), Some(0)], Kind::Permission, "no"), (1, Kind::Permission));
    }

    #[test]
    fn pauses_grow_to_half_a_minute_and_shrink_when_it_works_again() {
        let mut parts = vec![Some(100)];
        parts.resize(9, Some(0));
        parts.push(Some(150));
        let (mut encoder, now) = encoder(Script { parts, kind: Kind::Output, words: "gone", finished: Arc::default() });
        let frame = frame();
        let watch = encoder.watch();
        let mut pauses = Vec::new();
        for _ in 0..400 {
            *now.lock().unwrap() += Duration::from_secs(31);
            encoder.take(&frame).unwrap();
            let said = watch.events();
            pauses.extend(
                said.iter().filter_map(|text| text.rsplit_once("again in ")?.1.strip_suffix(" s")?.parse::<f64>().ok()),
            );
            if pauses.len() == 10 {
                break;
            }
        }
        assert_eq!(pauses, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 0.5]);
    }
}
