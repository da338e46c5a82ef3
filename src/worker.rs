//! The thread that repeats the step: receive until nothing is left, then sleep once.

#[cfg(not(gdmedia_loom))]
mod crew;
#[cfg(not(gdmedia_loom))]
pub mod seats;

#[cfg(not(gdmedia_loom))]
pub use crew::Crew;
#[cfg(not(gdmedia_loom))]
pub use seats::{Placement, Policy, Seat, Seats};

use crate::error::Error;
use crate::event::Event;
use crate::fault::FaultCounters;
use crate::kernel::Kernel;
use crate::mem::Space;
use crate::pipeline::{Pipeline, Progress};
use crate::rx::wait::Wait;
use crate::rx::{Receiver, RxError};
use crate::stats::{Busy, FrameCounters, LegComparison, LegCounters, PacketCounters, RxCounters};
use crate::sync::{Arc, AtomicBool, Builder, JoinHandle, Mutex};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError};
use std::time::Duration;

/// Counters of one pipeline at one moment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Of all receivers together.
    pub rx: RxCounters,
    /// Of each receiver, where there are several.
    pub receivers: Vec<RxCounters>,
    /// Of the sequence.
    pub packets: PacketCounters,
    /// Of the frames.
    pub frames: FrameCounters,
    /// Of copies by different legs, where they are compared.
    pub compared: Option<LegComparison>,
    /// How busy it is.
    pub busy: Busy,
    /// Of each leg.
    pub legs: Vec<LegCounters>,
    /// What has happened since the report before.
    pub events: Vec<Event>,
    /// Faults that were done on purpose, by leg.
    pub faults: Vec<FaultCounters>,
    /// What was learned about the sender, for people; changes seldom.
    pub remarks: Vec<String>,
    /// CPU time of the worker's thread, filled in at its end.
    pub cpu: Option<Duration>,
}

/// What the operating system's scheduler gave a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scheduled {
    /// Time on a core.
    pub cpu: Duration,
    /// Time for which it was ready and waited for one.
    pub waited: Duration,
}

/// A pipeline as a worker sees it: a step takes a whole batch, so the indirection costs nothing.
pub trait Stepper: Send {
    /// See [`Pipeline::step`].
    ///
    /// # Errors
    /// As there.
    fn step(&mut self) -> Result<Progress, RxError>;
    /// See [`Pipeline::finish`].
    ///
    /// # Errors
    /// As there.
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<(), Error>;
    /// Its counters, and what has happened since it was asked before.
    fn report(&mut self, into: &mut Report);
    /// See [`Receiver::wait`].
    fn wait(&mut self, at_most: Duration) -> bool {
        let _ = at_most;
        false
    }
}

impl<R: Receiver, F: Space, K: Kernel<R::Mem, F>> Stepper for Pipeline<R, F, K> {
    fn step(&mut self) -> Result<Progress, RxError> {
        Pipeline::step(self)
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<(), Error> {
        Pipeline::finish(self, remarks)
    }
    fn report(&mut self, into: &mut Report) {
        into.rx = self.rx();
        into.receivers.clear();
        if self.receivers().nth(1).is_some() {
            into.receivers.extend(self.receivers().map(Receiver::counters));
        }
        into.packets = self.depacketiser().counters();
        into.frames = self.frames();
        into.legs = self.depacketiser().legs();
        into.compared = self.compared();
        into.faults.clear();
        for (leg, faults) in self.receivers().flat_map(|receiver| receiver.faults().iter().enumerate()) {
            if into.faults.len() <= leg {
                into.faults.resize(leg + 1, FaultCounters::default());
            }
            into.faults[leg] = into.faults[leg] + *faults;
        }
        into.busy = self.busy();
        // Nobody may ever read them.
        if into.events.len() < MAX_EVENTS {
            self.take_events(&mut into.events);
        }
        self.depacketiser().remarks(&mut into.remarks);
        into.remarks.extend_from_slice(self.remarks());
    }
    fn wait(&mut self, at_most: Duration) -> bool {
        // Of several one would wait while another has packets.
        let mut receivers = self.receivers_mut();
        let first = receivers.next();
        if receivers.next().is_some() {
            return false;
        }
        first.is_some_and(|receiver| receiver.wait(at_most))
    }
}

/// How a worker came to its end.
#[derive(Debug)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// The input ended.
    EndOfInput,
    /// Something broke.
    Failed(Error),
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    home: Home,
    shared: Arc<Shared>,
}

/// Where a pipeline is stepped.
#[derive(Debug)]
enum Home {
    /// On a thread of its own.
    Own(JoinHandle<Ended>),
    /// On one with others; says how it came to its end.
    #[cfg(not(gdmedia_loom))]
    Shared(std::sync::Mutex<std::sync::mpsc::Receiver<Ended>>),
}

#[derive(Debug, Default)]
struct Shared {
    report: Mutex<Report>,
    stop: Arc<AtomicBool>,
    /// Where the kernel tells of its thread.
    accounts: OnceLock<PathBuf>,
    /// Rounds of the loop.
    beats: Beats,
    /// A pipeline that shares its thread has ended.
    #[cfg(not(gdmedia_loom))]
    ended: AtomicBool,
}

/// The rounds of a worker's loop: a number that stands still when the loop does. Cheap to clone, and may outlive the worker.
#[derive(Clone, Debug, Default)]
pub struct Beats(std::sync::Arc<Rounds>);

#[derive(Debug, Default)]
struct Rounds {
    count: AtomicU64,
    ended: std::sync::atomic::AtomicBool,
}

impl Beats {
    /// Rounds so far, modulo 2^64.
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }
    /// A round, of the one thread that does them: no read-modify-write is needed.
    pub fn beat(&self) {
        self.0.count.store(self.0.count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
    /// There are no more rounds: the loop has returned, and its pipeline is gone.
    pub fn have_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }
    /// The loop has returned: a number that stands still means nothing from here on.
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

/// However a loop ends, by a panic too, its beats say so.
struct EndsBeats(Beats);

impl Drop for EndsBeats {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Shared {
    fn take(&self) -> Report {
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let events = std::mem::take(&mut report.events);
        Report { events, ..report.clone() }
    }
}

/// Events that wait to be read; further ones wait where they come from.
const MAX_EVENTS: usize = 1000;
/// Steps between two publications while packets never cease; there is one before every sleep as well.
const PUBLISH_EVERY: u32 = 256;

impl Worker {
    /// Starts a thread that steps `pipeline` until it ends or `stop` is set.
    ///
    /// # Errors
    /// The operating system gives no thread, or refuses the core.
    pub fn spawn(
        pipeline: Box<dyn Stepper>,
        wait: Duration,
        core: Option<usize>,
        stop: Arc<AtomicBool>,
    ) -> crate::error::Result<Self> {
        let shared = Arc::new(Shared { stop, ..Shared::default() });
        let theirs = shared.clone();
        let thread = Builder::new()
            .name("receive".into())
            .spawn(move || {
                // In this order: a driver may stand still while it is closed as well.
                let _ends = EndsBeats(theirs.beats.clone());
                let mut pipeline = pipeline;
                if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
                    let _ = theirs.accounts.set(Path::new("/proc").join(thread).join("schedstat"));
                }
                if let Some(Err(error)) = core.map(crate::rx::wait::pin) {
                    return Ended::Failed(error);
                }
                let ended = run(pipeline.as_mut(), wait, &theirs);
                let ended = finish(pipeline.as_mut(), ended, &theirs);
                let mut report = theirs.report.lock().unwrap_or_else(PoisonError::into_inner);
                report.cpu = scheduled(Path::new("/proc/thread-self/schedstat")).map(|s| s.cpu);
                ended
            })
            .map_err(|e| Error::new(crate::Kind::Unavailable, "no thread for the receiver").because(e))?;
        Ok(Worker { home: Home::Own(thread), shared })
    }

    /// A copy of its counters, at most one sleep old, and what has happened since the last one was taken.
    pub fn report(&self) -> Report {
        self.shared.take()
    }

    /// What its thread has had of the machine so far; none when it has ended, or where the kernel does not tell.
    pub fn scheduled(&self) -> Option<Scheduled> {
        scheduled(self.shared.accounts.get()?)
    }

    /// The rounds of its loop.
    pub fn beats(&self) -> Beats {
        self.shared.beats.clone()
    }

    /// Has it ended by itself?
    #[cfg(not(gdmedia_loom))]
    pub fn is_finished(&self) -> bool {
        match &self.home {
            Home::Own(thread) => thread.is_finished(),
            Home::Shared(_) => self.shared.ended.load(Ordering::Acquire),
        }
    }

    /// Stops it and waits for its last report.
    pub fn join(self) -> (Ended, Report) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let ended = match self.home {
            Home::Own(thread) => thread.join().ok(),
            #[cfg(not(gdmedia_loom))]
            Home::Shared(ended) => ended.into_inner().unwrap_or_else(PoisonError::into_inner).recv().ok(),
        };
        (ended.unwrap_or_else(panicked), self.shared.take())
    }
}

fn panicked() -> Ended {
    Ended::Failed(Error::new(crate::Kind::Internal, "the receiver's thread panicked").cure("please report this"))
}

fn run(pipeline: &mut dyn Stepper, period: Duration, shared: &Shared) -> Ended {
    let mut steps = 0;
    let mut wait = Wait::new(period);
    loop {
        let idle = match round(pipeline, &mut steps, shared) {
            Ok(idle) => idle,
            Err(ended) => return ended,
        };
        if idle && !(period > Duration::ZERO && pipeline.wait(period)) {
            wait.sleep();
        }
    }
}

/// One step, and what is told of it; true when nothing has come.
fn round(pipeline: &mut dyn Stepper, steps: &mut u32, shared: &Shared) -> Result<bool, Ended> {
    if shared.stop.load(Ordering::Relaxed) {
        return Err(Ended::Stopped);
    }
    let idle = match pipeline.step() {
        Ok(Progress::Busy) => false,
        Ok(Progress::Idle) => true,
        Err(RxError::End) => return Err(Ended::EndOfInput),
        Err(RxError::Failed(error) | RxError::Gone(error)) => return Err(Ended::Failed(error)),
    };
    *steps = steps.wrapping_add(1);
    shared.beats.beat();
    if idle || steps.is_multiple_of(PUBLISH_EVERY) {
        // A reader may hold the lock: the next step publishes then. Reception never waits.
        if let Ok(mut report) = shared.report.try_lock() {
            pipeline.report(&mut report);
        }
    }
    Ok(idle)
}

/// The last report, and what the pipeline's end makes of its own.
fn finish(pipeline: &mut dyn Stepper, mut ended: Ended, shared: &Shared) -> Ended {
    let mut remarks = Vec::new();
    if let Err(error) = pipeline.finish(&mut remarks)
        && !matches!(ended, Ended::Failed(_))
    {
        ended = Ended::Failed(error);
    }
    let mut report = shared.report.lock().unwrap_or_else(PoisonError::into_inner);
    pipeline.report(&mut report);
    report.remarks.append(&mut remarks);
    ended
}

/// The scheduler's accounts of a thread: nanoseconds on a core, and of waiting for one.
fn scheduled(path: &Path) -> Option<Scheduled> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut words = text.split_whitespace().map(|word| word.parse().map(Duration::from_nanos));
    Some(Scheduled { cpu: words.next()?.ok()?, waited: words.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_reported_once() {
        let shared = Shared::default();
        let event = Event { at: crate::time::Tai(5), what: crate::event::What::LegSilent { leg: 1 } };
        shared.report.lock().unwrap().events.push(event);
        shared.report.lock().unwrap().frames.complete = 7;
        assert_eq!(shared.take().events, [event]);
        let again = shared.take();
        assert_eq!((again.events.len(), again.frames.complete), (0, 7));
    }

    /// Does nothing until it ends, in a way of its own.
    struct Ender(fn() -> RxError);

    impl Stepper for Ender {
        fn step(&mut self) -> Result<Progress, RxError> {
            Err((self.0)())
        }
        fn finish(&mut self, _: &mut Vec<String>) -> Result<(), Error> {
            Ok(())
        }
        fn report(&mut self, _: &mut Report) {}
    }

    #[test]
    #[cfg(not(gdmedia_loom))]
    fn beats_end_with_their_loop_however_that_ends() {
        let all: [fn() -> RxError; 2] = [|| RxError::End, || panic!("on purpose")];
        for how in all {
            let worker = Worker::spawn(Box::new(Ender(how)), Duration::ZERO, None, Arc::default()).unwrap();
            let beats = worker.beats();
            worker.join();
            assert!(beats.have_ended());
        }
        assert!(!Beats::default().have_ended());
    }

    #[test]
    fn accounts_of_the_scheduler() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("schedstat");
        std::fs::write(&path, "1500000000 20000000 77\n").unwrap();
        let wanted = Scheduled { cpu: Duration::from_millis(1500), waited: Duration::from_millis(20) };
        assert_eq!(scheduled(&path), Some(wanted));
        std::fs::write(&path, "15").unwrap();
        assert_eq!(scheduled(&path), None);
        assert_eq!(scheduled(&dir.path().join("none")), None);
    }
}

/// `make loom`: what a worker reports is of one moment, and the last report has everything, in every order.
#[cfg(all(test, gdmedia_loom))]
mod models {
    use super::*;

    /// Takes a packet a step, and counts it in two places.
    struct Counter {
        taken: u64,
        end: u64,
    }

    impl Stepper for Counter {
        fn step(&mut self) -> Result<Progress, RxError> {
            if self.taken == self.end {
                return Err(RxError::End);
            }
            self.taken += 1;
            Ok(Progress::Idle)
        }
        fn finish(&mut self, remarks: &mut Vec<String>) -> Result<(), Error> {
            remarks.push("finished".into());
            Ok(())
        }
        fn report(&mut self, into: &mut Report) {
            (into.rx.datagrams, into.packets.received) = (self.taken, self.taken);
        }
        fn wait(&mut self, _: Duration) -> bool {
            loom::thread::yield_now();
            true
        }
    }

    #[test]
    fn loom_reports_are_of_one_moment_and_the_last_one_is_whole() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let worker =
                Worker::spawn(Box::new(Counter { taken: 0, end: 2 }), Duration::from_millis(1), None, Arc::default());
            let worker = worker.unwrap();
            let early = worker.report();
            assert_eq!(early.rx.datagrams, early.packets.received);
            let (ended, last) = worker.join();
            assert!(last.rx.datagrams >= early.rx.datagrams && last.remarks == ["finished"], "{last:?}");
            assert_eq!(last.rx.datagrams, last.packets.received);
            match ended {
                Ended::EndOfInput => assert_eq!(last.rx.datagrams, 2),
                Ended::Stopped => assert!(last.rx.datagrams <= 2),
                Ended::Failed(error) => panic!("{error}"),
            }
        });
    }
}
