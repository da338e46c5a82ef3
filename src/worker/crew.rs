//! Several pipelines on one thread, for where there are more of them than cores.

use super::{Ended, Home, Shared, Stepper, Worker, finish, panicked, round};
use crate::error::{Error, Kind, Result};
use crate::rx::wait::{self, Wait};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A thread that steps pipelines in turn, one batch each, and sleeps when none of them has anything. One that fails or panics
/// ends by itself, and the others go on; one that stands still holds them up.
#[derive(Debug)]
pub struct Crew {
    inbox: Mutex<Sender<Word>>,
    members: Arc<AtomicUsize>,
}

/// What it is told.
enum Word {
    Member(Member),
    /// To stay on a core from now on; what came of it.
    Pin(usize, Sender<Result<()>>),
}

/// A pipeline of it.
struct Member {
    pipeline: Box<dyn Stepper>,
    steps: u32,
    shared: Arc<Shared>,
    end: Sender<Ended>,
}

impl Crew {
    /// Starts the thread, on a core if one is given. It ends when the crew is dropped and its last pipeline has ended.
    ///
    /// # Errors
    /// The operating system gives no thread, or refuses the core.
    pub fn start(period: Duration, core: Option<usize>) -> Result<Self> {
        let (inbox, heard) = channel();
        let (begun, has_begun) = channel();
        let members = Arc::new(AtomicUsize::new(0));
        let count = members.clone();
        std::thread::Builder::new()
            .name("receive".into())
            .spawn(move || {
                let pinned = core.map_or(Ok(()), wait::pin);
                let goes_on = pinned.is_ok();
                let _ = begun.send(pinned);
                if goes_on {
                    run(period, &heard, &count);
                }
            })
            .map_err(|e| Error::new(Kind::Unavailable, "no thread for receivers").because(e))?;
        has_begun.recv().unwrap_or(Ok(()))?;
        Ok(Crew { inbox: Mutex::new(inbox), members })
    }

    /// Pipelines that it steps.
    pub fn members(&self) -> usize {
        self.members.load(Ordering::Relaxed)
    }

    /// Steps this one as well, until it ends or `stop` is set.
    ///
    /// # Errors
    /// Its thread has died.
    pub fn add(&self, pipeline: Box<dyn Stepper>, stop: Arc<AtomicBool>) -> Result<Worker> {
        let shared = Arc::new(Shared { stop, ..Shared::default() });
        let (end, ended) = channel();
        let member = Member { pipeline, steps: 0, shared: shared.clone(), end };
        self.members.fetch_add(1, Ordering::Relaxed);
        self.tell(Word::Member(member))?;
        Ok(Worker { home: Home::Shared(Mutex::new(ended)), shared })
    }

    /// Goes to a core, with what it steps.
    ///
    /// # Errors
    /// The operating system refuses the core, or its thread has died; it goes on where it is.
    pub fn pin(&self, core: usize) -> Result<()> {
        let (to, from) = channel();
        self.tell(Word::Pin(core, to))?;
        from.recv().unwrap_or_else(|_| Err(died()))
    }

    fn tell(&self, word: Word) -> Result<()> {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.send(word).map_err(|_| died())
    }
}

fn died() -> Error {
    Error::new(Kind::Internal, "the thread of the receivers has died").cure("please report this")
}

fn run(period: Duration, inbox: &Receiver<Word>, count: &AtomicUsize) {
    let accounts = std::fs::read_link("/proc/thread-self").ok().map(|at| Path::new("/proc").join(at).join("schedstat"));
    let mut wait = Wait::new(period);
    let mut members: Vec<Member> = Vec::new();
    let hear = |word: Word, members: &mut Vec<Member>| match word {
        Word::Member(member) => {
            accounts.iter().for_each(|at| drop(member.shared.accounts.set(at.clone())));
            members.push(member);
        }
        // Whoever asked may have gone.
        Word::Pin(core, reply) => drop(reply.send(wait::pin(core))),
    };
    loop {
        while let Ok(word) = inbox.try_recv() {
            hear(word, &mut members);
        }
        if members.is_empty() {
            // Nobody can bring another one when the crew is gone.
            let Ok(word) = inbox.recv() else { return };
            hear(word, &mut members);
            continue;
        }
        let mut idle = true;
        let mut at = 0;
        while let Some(member) = members.get_mut(at) {
            match member.step() {
                Ok(nothing) => {
                    idle &= nothing;
                    at += 1;
                }
                Err(ended) => {
                    members.remove(at).end(ended);
                    count.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        if idle {
            wait.sleep();
        }
    }
}

impl Member {
    fn step(&mut self) -> std::result::Result<bool, Ended> {
        let Member { pipeline, steps, shared, .. } = self;
        catch_unwind(AssertUnwindSafe(|| round(pipeline.as_mut(), steps, shared))).unwrap_or_else(|_| Err(panicked()))
    }
    fn end(self, ended: Ended) {
        let Member { mut pipeline, shared, end, .. } = self;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let ended = finish(pipeline.as_mut(), ended, &shared);
            drop(pipeline);
            ended
        }))
        .unwrap_or_else(|_| panicked());
        shared.beats.end();
        // In this order: whoever sees that it has ended finds how.
        let _ = end.send(ended);
        shared.ended.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Report;
    use super::*;
    use crate::pipeline::Progress;
    use crate::rx::RxError;

    /// Takes packets until something happens.
    struct Counter {
        taken: u64,
        end: u64,
        how: fn() -> RxError,
    }

    impl Stepper for Counter {
        fn step(&mut self) -> std::result::Result<Progress, RxError> {
            if self.taken == self.end {
                return Err((self.how)());
            }
            self.taken += 1;
            Ok(if self.taken.is_multiple_of(3) { Progress::Idle } else { Progress::Busy })
        }
        fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
            remarks.push("finished".into());
            Ok(())
        }
        fn report(&mut self, into: &mut Report) {
            into.rx.datagrams = self.taken;
            into.remarks.clear();
        }
    }

    #[test]
    fn one_that_fails_or_panics_ends_alone() {
        let crew = Crew::start(Duration::from_micros(100), None).unwrap();
        let add = |end, how| crew.add(Box::new(Counter { taken: 0, end, how }), Arc::default()).unwrap();
        let lasts = add(u64::MAX, || RxError::End);
        let others = [
            add(5, || RxError::End),
            add(7, || RxError::Failed(Error::new(Kind::Unavailable, "the cable was pulled"))),
            add(9, || panic!("on purpose")),
        ];
        for (worker, (count, what)) in others.into_iter().zip([(5, "input"), (7, "cable"), (9, "panicked")]) {
            while !worker.is_finished() {
                std::thread::yield_now();
            }
            let beats = worker.beats();
            let (ended, report) = worker.join();
            assert!(beats.have_ended());
            assert_eq!((report.rx.datagrams, report.remarks.as_slice()), (count, &["finished".to_owned()][..]));
            let told = match ended {
                Ended::EndOfInput => "input".to_owned(),
                Ended::Failed(error) => error.to_string(),
                Ended::Stopped => String::new(),
            };
            assert!(told.contains(what), "{told}");
        }
        let beats = lasts.beats();
        let before = beats.count();
        while beats.count() == before {
            std::thread::yield_now();
        }
        assert!(!lasts.is_finished() && crew.members() == 1);
        let later = add(4, || RxError::End);
        let (ended, report) = lasts.join();
        assert!(matches!(ended, Ended::Stopped) && report.rx.datagrams > 9);
        drop(crew);
        // What it has goes on without the handle.
        while !later.is_finished() {
            std::thread::yield_now();
        }
        assert_eq!(later.join().1.rx.datagrams, 4);
    }

    #[test]
    fn a_core_that_is_not_there_is_said() {
        assert!(Crew::start(Duration::ZERO, Some(100_000)).is_err());
        let crew = Crew::start(Duration::ZERO, None).unwrap();
        assert!(crew.pin(100_000).is_err());
        // It goes on all the same.
        let counter = Counter { taken: 0, end: 3, how: || RxError::End };
        let worker = crew.add(Box::new(counter), Arc::default()).unwrap();
        assert!(matches!(worker.join().0, Ended::EndOfInput | Ended::Stopped));
    }
}
