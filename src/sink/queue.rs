//! The bounded queue between the worker and a sink, and the sink's thread.

use super::{Next, Sink};
use crate::error::{Error, Kind, Result};
use crate::frame::Frame;
use crate::mem::{Host, Space};
use crate::sync::{Arc, AtomicBool, AtomicU64, Builder, Condvar, Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often a sink without frames is asked whether it is still there.
const IDLE: Duration = Duration::from_millis(100);

/// A sink on its thread, and the frames that wait for it. At most `depth + 1` frames are held: the queue's, and the
/// one that the sink has in hand (a sink may hold more by itself and then says so).
///
/// Dropping it without [`SinkQueue::finish`] abandons the frames that wait; the sink still finishes its file.
#[derive(Debug)]
pub struct SinkQueue<F: Space = Host> {
    shared: Arc<Shared<F>>,
    depth: usize,
    description: String,
}

#[derive(Debug)]
struct Shared<F: Space> {
    state: Mutex<State<F>>,
    /// Something to do for the sink.
    work: Condvar,
    /// Room in the queue, or the end.
    room: Condvar,
    ended: AtomicBool,
    taken: AtomicU64,
    dropped: AtomicU64,
    torn: AtomicU64,
    /// Nanoseconds that the sink was at work.
    busy: AtomicU64,
}

#[derive(Debug)]
struct State<F: Space> {
    waiting: VecDeque<Frame<F>>,
    closing: bool,
    end: Option<End>,
}

/// How a sink came to its end.
#[derive(Debug)]
pub enum End {
    /// It took what it was offered and finished.
    Finished,
    /// It wants no more, which is no failure: window closed, reader of the pipe gone. Says which.
    Closed(String),
    /// It failed.
    Failed(Error),
}

/// What became of the frames that were offered to a sink.
#[derive(Debug)]
pub struct Report {
    /// Frames that the sink took.
    pub taken: u64,
    /// Frames that it did not: the queue was full, or the sink had failed. What comes after [`End::Closed`] is not
    /// wanted and not counted.
    pub dropped: u64,
    /// Windows that were overwritten in their ring before the sink had read them: some it was not given, of others it read
    /// what was not theirs.
    pub torn: u64,
    /// How it ended.
    pub end: End,
}

impl Report {
    /// The error, when there was one; a closed window is none.
    ///
    /// # Errors
    /// The sink's failure.
    pub fn into_result(self) -> Result<()> {
        match self.end {
            End::Failed(error) => Err(error),
            End::Finished | End::Closed(_) => Ok(()),
        }
    }
}

impl<F: Space> SinkQueue<F> {
    /// Starts the sink's thread. At most `depth` frames (at least one) wait for it.
    ///
    /// # Errors
    /// The operating system gives no thread.
    pub fn spawn(sink: Box<dyn Sink<F>>, depth: usize) -> Result<Self> {
        let depth = depth.max(1);
        let shared = Arc::new(Shared {
            state: Mutex::new(State { waiting: VecDeque::with_capacity(depth), closing: false, end: None }),
            work: Condvar::new(),
            room: Condvar::new(),
            ended: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            torn: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        });
        let description = sink.describe();
        let theirs = shared.clone();
        Builder::new().name("sink".into()).spawn(move || theirs.run(sink)).map_err(|e| {
            Error::new(Kind::Unavailable, "no thread for the sink")
                .because(e)
                .cure("raise the limit of processes (ulimit -u)")
        })?;
        Ok(SinkQueue { shared, depth, description })
    }

    /// Hands a frame over, or drops and counts it when the queue is full or the sink has failed. Never waits for the
    /// sink.
    pub fn offer(&self, frame: Frame<F>) -> bool {
        let mut state = self.shared.lock();
        if matches!(state.end, Some(End::Closed(_))) {
            return false;
        }
        if state.waiting.len() >= self.depth || state.closing || state.end.is_some() {
            drop(state);
            self.shared.dropped.fetch_add(1, Relaxed);
            return false;
        }
        state.waiting.push_back(frame);
        drop(state);
        self.shared.work.notify_one();
        true
    }

    /// Hands a frame over and waits for room as long as `stop` says no and the sink lives: for sources that can wait
    /// (a capture at full speed), never for a network.
    pub fn offer_waiting(&self, frame: Frame<F>, stop: impl Fn() -> bool) -> bool {
        let mut state = self.shared.lock();
        while state.waiting.len() >= self.depth && !state.closing && state.end.is_none() && !stop() {
            state = self.shared.room.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        self.offer(frame)
    }

    /// The sink has ended by itself: it failed or was closed; [`SinkQueue::finish`] says how.
    pub fn ended(&self) -> bool {
        self.shared.ended.load(Relaxed)
    }
    /// Frames that the sink took.
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Relaxed)
    }
    /// Frames that it did not take, because the queue was full or the sink had failed.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Relaxed)
    }
    /// Windows that were overwritten before it had read them.
    pub fn torn(&self) -> u64 {
        self.shared.torn.load(Relaxed)
    }
    /// How long the sink has been at work with the frames that it took.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.shared.busy.load(Relaxed))
    }
    /// Frames that wait.
    pub fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }
    /// What the sink is, for the start block.
    pub fn describe(&self) -> &str {
        &self.description
    }

    /// No more frames come: lets the sink take what waits and finish, and does not wait for that. Of several sinks that end
    /// together none holds up another so.
    pub fn close(&self) {
        self.shared.lock().closing = true;
        self.shared.work.notify_one();
        self.shared.room.notify_all();
    }
    /// Lets the sink take what waits and finish, at most for `timeout`; then leaves it alone. Call it once: it takes the
    /// end along.
    pub fn finish(&self, timeout: Duration) -> Report {
        self.finish_by(Instant::now(), timeout)
    }
    /// The same, with a time that began at `begun`: what has finished until then has, whenever it is asked.
    pub fn finish_by(&self, begun: Instant, timeout: Duration) -> Report {
        let shared = &self.shared;
        let deadline = begun + timeout;
        self.close();
        let mut state = shared.lock();
        while state.end.is_none() {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else { break };
            state = shared.room.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let end = state.end.take().unwrap_or_else(|| {
            // Frames that nobody will take must not count against their pool.
            let left = state.waiting.len();
            state.waiting.clear();
            shared.dropped.fetch_add(left as u64, Relaxed);
            End::Failed(
                Error::new(
                    Kind::Output,
                    format!(
                        "{} did not finish within {:.1} s after {} frames",
                        self.description,
                        timeout.as_secs_f64(),
                        shared.taken.load(Relaxed)
                    ),
                )
                .cure("look for a disk, a pipe or a GStreamer element that stands still"),
            )
        });
        drop(state);
        Report { taken: self.taken(), dropped: self.dropped(), torn: self.torn(), end }
    }
}

impl<F: Space> Drop for SinkQueue<F> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closing = true;
        if state.end.is_none() {
            let left = state.waiting.len();
            state.waiting.clear();
            self.shared.dropped.fetch_add(left as u64, Relaxed);
        }
        drop(state);
        self.shared.work.notify_one();
    }
}

impl<F: Space> Shared<F> {
    fn lock(&self) -> MutexGuard<'_, State<F>> {
        // The state is whole at every instant, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut sink: Box<dyn Sink<F>>) {
        let in_hand = Cell::new(false);
        let end = catch_unwind(AssertUnwindSafe(|| {
            let end = self.serve(sink.as_mut(), &in_hand);
            // A sink's own drop may take its time (a pipeline going down): it belongs to its end.
            drop(sink);
            end
        }))
        .unwrap_or_else(|_| End::Failed(Error::new(Kind::Internal, "the sink's thread panicked")));
        let mut state = self.lock();
        let left = state.waiting.len() + usize::from(in_hand.get());
        state.waiting.clear();
        if !matches!(end, End::Closed(_)) {
            self.dropped.fetch_add(left as u64, Relaxed);
        }
        state.end = Some(end);
        drop(state);
        self.ended.store(true, Relaxed);
        self.room.notify_all();
    }

    /// `in_hand`: a frame is with the sink, and nobody has counted it yet.
    fn serve(&self, sink: &mut dyn Sink<F>, in_hand: &Cell<bool>) -> End {
        loop {
            let next = match self.next() {
                Work::Frame(frame) if !frame.intact() => {
                    self.torn.fetch_add(1, Relaxed);
                    Ok(Next::More)
                }
                Work::Frame(frame) => {
                    in_hand.set(true);
                    let begun = Instant::now();
                    let next = sink.take(&frame);
                    let busy = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    self.busy.fetch_add(busy, Relaxed);
                    if matches!(next, Ok(Next::More)) {
                        in_hand.set(false);
                        let count = if frame.intact() { &self.taken } else { &self.torn };
                        count.fetch_add(1, Relaxed);
                    }
                    next
                }
                Work::Idle => sink.idle(),
                Work::Finish => return sink.finish().map_or_else(End::Failed, |()| End::Finished),
            };
            match next {
                Ok(Next::More) => {}
                Ok(Next::Closed(why)) => return End::Closed(why),
                Err(error) => return End::Failed(error),
            }
        }
    }

    fn next(&self) -> Work<F> {
        let mut state = self.lock();
        if state.waiting.is_empty() && !state.closing {
            state = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner).0;
        }
        match state.waiting.pop_front() {
            Some(frame) => {
                drop(state);
                self.room.notify_all();
                Work::Frame(frame)
            }
            None if state.closing => Work::Finish,
            None => Work::Idle,
        }
    }
}

enum Work<F: Space> {
    Frame(Frame<F>),
    Idle,
    Finish,
}

/// `make loom`: no frame is lost uncounted and no wake-up is missed, in every order of worker and sink. Loom's waits have no
/// timeout, so that one who depends on it stands still, which is a failure.
#[cfg(all(test, gdmedia_loom))]
mod models {
    use super::*;
    use crate::format::{Layout, Output, WireFormat};
    use crate::frame::FramePool;
    use gdmedia_sdp::{Depth, Sampling, Scan};

    const LONG: Duration = Duration::from_secs(3600);

    /// Takes so many frames, then says that it wants no more, or fails.
    struct Taker {
        left: u32,
        fails: bool,
    }

    impl Sink for Taker {
        fn take(&mut self, _: &Frame<Host>) -> Result<Next> {
            if self.left > 0 {
                self.left -= 1;
                return Ok(Next::More);
            }
            if self.fails { Err(Error::new(Kind::Output, "no")) } else { Ok(Next::Closed("enough".into())) }
        }
        fn finish(&mut self) -> Result<()> {
            Ok(())
        }
        fn describe(&self) -> String {
            String::new()
        }
    }

    fn pool(frames: usize) -> FramePool<Host> {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 4, 1, Scan::Progressive).unwrap();
        FramePool::host(Layout::new(wire, Output::Wire).unwrap(), frames).unwrap()
    }

    fn model(check: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(check);
    }

    #[test]
    fn loom_every_frame_is_taken_or_counted_as_dropped() {
        model(|| {
            let pool = pool(2);
            let queue = SinkQueue::spawn(Box::new(Taker { left: 9, fails: false }), 1).unwrap();
            let offered = [0, 1].map(|_| queue.offer(pool.take().unwrap().seal()));
            let report = queue.finish(LONG);
            assert!(matches!(report.end, End::Finished), "{report:?}");
            assert_eq!(
                (report.taken, report.dropped),
                (offered.iter().filter(|o| **o).count() as u64, 2 - report.taken)
            );
            assert_eq!(std::iter::from_fn(|| pool.take()).count(), 2, "frames come back");
        });
    }

    #[test]
    fn loom_a_source_that_waits_for_room_is_woken() {
        model(|| {
            let pool = pool(3);
            let queue = SinkQueue::spawn(Box::new(Taker { left: 9, fails: false }), 1).unwrap();
            assert!((0..3).all(|_| queue.offer_waiting(pool.take().unwrap().seal(), || false)));
            let report = queue.finish(LONG);
            assert_eq!((report.taken, report.dropped), (3, 0), "{report:?}");
        });
    }

    #[test]
    fn loom_a_sink_that_fails_lets_nobody_wait_and_everything_is_counted() {
        model(|| {
            let pool = pool(3);
            let queue = SinkQueue::spawn(Box::new(Taker { left: 1, fails: true }), 1).unwrap();
            for _ in 0..3 {
                queue.offer_waiting(pool.take().unwrap().seal(), || false);
            }
            let report = queue.finish(LONG);
            assert!(matches!(report.end, End::Failed(_)), "{report:?}");
            assert_eq!((report.taken, report.dropped), (1, 2), "{report:?}");
            assert_eq!(std::iter::from_fn(|| pool.take()).count(), 3, "frames come back");
        });
    }

    #[test]
    fn loom_a_queue_that_is_dropped_lets_its_sink_end() {
        model(|| {
            let pool = pool(1);
            let queue = SinkQueue::spawn(Box::new(Taker { left: 0, fails: false }), 1).unwrap();
            queue.offer(pool.take().unwrap().seal());
        });
    }
}
