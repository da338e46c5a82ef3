//! What a receiver is to do next. Pure: no clock, no thread; time is an argument.
//!
//! ```text
//!             start            opened            a frame
//! Stopped ----------> Starting -------> Waiting <-------> Receiving
//!    ^                 |   ^               |   silence        |
//!    | stop            |   | it is time    | ended            | ended
//!    |                 v   |               v                  v
//!  (all)   Failed <----+  Retrying <---------------------------
//!     only another configuration or SDP cures it
//! ```

use super::State;
use std::time::Duration;

/// The first pause before another try; each further one is twice as long …
const FIRST: Duration = Duration::from_secs(1);
/// … up to this.
const LONGEST: Duration = Duration::from_secs(60);
/// A receiver that has received for so long works: its next failure is a new one.
const WORKS: Duration = Duration::from_secs(30);
/// While it waits it is asked again so often why.
const AGAIN: Duration = Duration::from_secs(3);
/// Until there is something to say.
const NOT_YET: &str = "no frame has come yet";

/// The life of one receiver.
#[derive(Clone, Debug)]
pub struct Life {
    state: State,
    reason: Option<String>,
    /// In this state since then.
    since: Duration,
    /// Failures in a row.
    failures: u32,
    /// When it is tried again.
    due: Duration,
    restarts: u64,
    /// Times are counted from the beginning of the daemon, so that receivers that fail together come back one after another.
    seed: u64,
    frames: u64,
    /// When the last frame came; before the first one, when it was opened.
    heard: Duration,
    /// When frames began to come without a pause.
    well: Duration,
    /// When it was last asked why it waits.
    asked: Duration,
}

/// A receiver's state changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub from: State,
    /// Now.
    pub to: State,
    /// Why.
    pub reason: Option<String>,
    /// It is the same as before but for figures in the reason: worth showing, and not worth an event.
    pub same: bool,
}

impl Life {
    /// Of a receiver that has not begun.
    pub fn new(id: &str, reason: &str) -> Self {
        Life {
            state: State::Stopped,
            reason: Some(reason.to_owned()),
            since: Duration::ZERO,
            failures: 0,
            due: Duration::ZERO,
            restarts: 0,
            seed: seed(id),
            frames: 0,
            heard: Duration::ZERO,
            well: Duration::ZERO,
            asked: Duration::ZERO,
        }
    }

    /// What it does.
    pub const fn state(&self) -> State {
        self.state
    }
    /// Why.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
    /// Times that it was begun again after a failure.
    pub const fn restarts(&self) -> u64 {
        self.restarts
    }
    /// It is open.
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Waiting | State::Receiving)
    }

    /// It is to receive.
    pub fn start(&mut self, now: Duration) -> Option<Change> {
        if self.is_open() {
            return None;
        }
        self.failures = 0;
        self.due = now;
        self.to(now, State::Starting, None)
    }
    /// It is to be begun anew, whatever it did: what is open is closed first.
    pub fn anew(&mut self, now: Duration) -> Option<Change> {
        self.failures = 0;
        self.due = now;
        self.to(now, State::Starting, None)
    }
    /// It is to do nothing, for this reason.
    pub fn stop(&mut self, now: Duration, reason: &str) -> Option<Change> {
        self.to(now, State::Stopped, Some(reason.to_owned()))
    }
    /// Is it to be opened now? Says so once.
    pub fn is_due(&mut self, now: Duration) -> (bool, Option<Change>) {
        match self.state {
            State::Starting => (true, None),
            State::Retrying if now >= self.due => {
                self.restarts += 1;
                (true, self.to(now, State::Starting, None))
            }
            _ => (false, None),
        }
    }
    /// When it is to be opened next, if nothing happens.
    pub fn due(&self) -> Option<Duration> {
        match self.state {
            State::Starting => Some(Duration::ZERO),
            State::Retrying => Some(self.due),
            _ => None,
        }
    }

    /// It has been opened.
    pub fn opened(&mut self, now: Duration) -> Option<Change> {
        (self.frames, self.heard, self.well) = (0, now, now);
        self.to(now, State::Waiting, Some(NOT_YET.to_owned()))
    }
    /// It has been switched: its frames are counted from nothing, and why none of the flow before came says nothing any more.
    pub fn switched(&mut self, now: Duration) -> Option<Change> {
        (self.frames, self.heard, self.well) = (0, now, now);
        match self.state {
            State::Waiting => self.to(now, State::Waiting, Some(NOT_YET.to_owned())),
            _ => None,
        }
    }
    /// It could not be opened, or has ended. `last`: a further try would end in the same way.
    pub fn failed(&mut self, now: Duration, last: bool, reason: String) -> Option<Change> {
        if last {
            return self.to(now, State::Failed, Some(reason));
        }
        if self.state == State::Receiving && now.saturating_sub(self.well) >= WORKS {
            self.failures = 0;
        }
        let pause = self.pause();
        self.failures = self.failures.saturating_add(1);
        self.due = now + pause;
        let text = format!("{reason}; tried again in {:.1} s", pause.as_secs_f64());
        self.to(now, State::Retrying, Some(text))
    }

    /// So many frames have come since it was opened. Where none came for `silence`, `why` says why; it is asked again every few
    /// seconds, for what comes may be something else by then.
    pub fn seen(
        &mut self,
        now: Duration,
        frames: u64,
        silence: Duration,
        why: impl FnOnce() -> String,
    ) -> Option<Change> {
        if !self.is_open() {
            return None;
        }
        if frames != self.frames {
            (self.frames, self.heard) = (frames, now);
            if self.state == State::Waiting {
                self.well = now;
            }
            if now.saturating_sub(self.well) >= WORKS {
                self.failures = 0;
            }
            return self.to(now, State::Receiving, None);
        }
        if now.saturating_sub(self.heard) < silence {
            return None;
        }
        let first = self.state == State::Receiving || self.reason.as_deref() == Some(NOT_YET);
        if !first && now.saturating_sub(self.asked) < AGAIN {
            return None;
        }
        self.asked = now;
        self.to(now, State::Waiting, Some(why()))
    }

    fn to(&mut self, now: Duration, state: State, reason: Option<String>) -> Option<Change> {
        if self.state == state && self.reason == reason {
            return None;
        }
        let from = std::mem::replace(&mut self.state, state);
        if from != state {
            self.since = now;
        }
        let before = std::mem::replace(&mut self.reason, reason.clone());
        let same = from == state && words(before.as_deref()).eq(words(reason.as_deref()));
        Some(Change { from, to: state, reason, same })
    }

    /// Twice as long each time, and up to a quarter longer: by how much depends on the id, so that it is the same in every run.
    fn pause(&self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        let mixed = (self.seed ^ u64::from(self.failures)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        pause + pause.mul_f64(mixed as f64 / f64::from(1 << 16) / 4.0)
    }
}

/// A reason without its figures, which change all the time.
fn words(reason: Option<&str>) -> impl Iterator<Item = char> {
    reason.unwrap_or_default().chars().filter(|c| !c.is_ascii_digit())
}

/// FNV-1a.
fn seed(id: &str) -> u64 {
    id.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, octet| (hash ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SILENCE: Duration = Duration::from_secs(2);

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }
    fn state(change: Option<Change>) -> Option<State> {
        change.map(|change| change.to)
    }
    fn why() -> String {
        "not one packet came".into()
    }

    #[test]
    fn a_life() {
        let mut life = Life::new("cam1", "not begun");
        assert!(!life.is_due(s(0.0)).0);
        assert_eq!(state(life.start(s(1.0))), Some(State::Starting));
        assert!(life.is_due(s(1.0)).0);
        assert_eq!(state(life.opened(s(1.5))), Some(State::Waiting));
        assert_eq!(life.seen(s(2.0), 0, SILENCE, why), None, "too early to say why");
        let change = life.seen(s(3.5), 0, SILENCE, why).unwrap();
        assert_eq!((change.to, change.reason), (State::Waiting, Some(why())));
        assert_eq!(life.seen(s(9.0), 0, SILENCE, why), None, "said once");
        assert_eq!(state(life.seen(s(10.0), 1, SILENCE, why)), Some(State::Receiving));
        assert_eq!(life.seen(s(11.0), 2, SILENCE, why), None);
        assert_eq!(life.seen(s(12.9), 2, SILENCE, why), None);
        assert_eq!(state(life.seen(s(13.0), 2, SILENCE, why)), Some(State::Waiting));
        assert_eq!(state(life.seen(s(14.0), 3, SILENCE, why)), Some(State::Receiving));
        assert_eq!(state(life.failed(s(15.0), false, "the cable was pulled".into())), Some(State::Retrying));
        assert!(life.reason().unwrap().starts_with("the cable was pulled; tried again in 1."));
        assert_eq!(state(life.failed(s(15.0), true, "wrong".into())), Some(State::Failed));
        assert!(!life.is_due(s(1e6)).0);
        assert_eq!(state(life.stop(s(16.0), "told to")), Some(State::Stopped));
        assert_eq!(life.stop(s(17.0), "told to"), None);
    }

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew_when_it_worked() {
        let mut life = Life::new("cam1", "");
        let mut now = s(0.0);
        life.start(now);
        for n in 0..10 {
            life.failed(now, false, "no".into());
            let pause = life.due().unwrap() - now;
            let base = LONGEST.min(FIRST * (1 << n));
            assert!(pause >= base && pause <= base.mul_f64(1.25), "{n}: {pause:?}");
            now = life.due().unwrap();
            assert!(!life.is_due(now - Duration::from_millis(1)).0 && life.is_due(now).0);
        }
        assert_eq!(life.restarts(), 10);
        life.opened(now);
        life.seen(now, 1, SILENCE, why);
        life.failed(now + WORKS, false, "no".into());
        assert!(life.due().unwrap() - (now + WORKS) <= FIRST.mul_f64(1.25));
        let other = |id: &str| {
            let mut life = Life::new(id, "");
            life.start(s(0.0));
            life.failed(s(0.0), false, "no".into());
            life.due().unwrap()
        };
        assert_eq!(other("cam1"), other("cam1"));
        assert_ne!(other("cam1"), other("cam2"));
    }

    #[test]
    fn why_it_waits_is_asked_again() {
        let mut life = Life::new("cam1", "");
        life.start(s(0.0));
        life.opened(s(0.0));
        let say = |text: &'static str| move || text.to_owned();
        let told = |change: Option<Change>| change.map(|change| (change.reason.unwrap(), change.same));
        assert!(life.seen(s(2.0), 0, SILENCE, say("not one packet")).is_some());
        assert_eq!(life.seen(s(4.9), 0, SILENCE, say("wrong type (5 packets)")), None, "not yet");
        let change = told(life.seen(s(5.0), 0, SILENCE, say("wrong type (5 packets)")));
        assert_eq!(change, Some(("wrong type (5 packets)".to_owned(), false)));
        let change = told(life.seen(s(8.0), 0, SILENCE, say("wrong type (1234 packets)")));
        assert_eq!(change, Some(("wrong type (1234 packets)".to_owned(), true)), "no event for figures");
        assert_eq!(life.seen(s(11.0), 0, SILENCE, say("wrong type (1234 packets)")), None);
        // Another flow: what was wrong with the one before is not said of it.
        assert_eq!(told(life.switched(s(12.0))), Some((NOT_YET.to_owned(), false)));
        assert_eq!(life.seen(s(13.9), 0, SILENCE, say("not one packet")), None);
        assert!(life.seen(s(14.0), 0, SILENCE, say("not one packet")).is_some());
        life.seen(s(15.0), 1, SILENCE, why);
        assert_eq!((life.switched(s(16.0)), life.state()), (None, State::Receiving), "until it is silent");
    }

    #[test]
    fn what_worked_and_then_waited_fails_for_the_first_time() {
        let mut life = Life::new("cam1", "");
        life.start(s(0.0));
        for n in 0..10 {
            life.failed(s(100.0 * f64::from(n)), false, "no".into());
        }
        life.is_due(s(2000.0));
        life.opened(s(2000.0));
        life.seen(s(2001.0), 1, SILENCE, why);
        life.seen(s(2040.0), 2, SILENCE, why);
        assert_eq!(state(life.seen(s(2100.0), 2, SILENCE, why)), Some(State::Waiting));
        life.failed(s(2200.0), false, "the cable was pulled".into());
        assert!(life.due().unwrap() - s(2200.0) <= FIRST.mul_f64(1.25), "{:?}", life.due());
    }

    #[derive(Clone, Debug)]
    enum Input {
        Start,
        Stop,
        Opened,
        Failed(bool),
        Seen(u64),
        Switched,
        Anew,
        Due,
    }

    proptest! {
        /// Whatever happens: it is opened only when it is to be, never sooner than a second after a failure, and it always has
        /// a way on or says why not.
        #[test]
        fn it_is_never_stuck(inputs in prop::collection::vec((0..20u64, prop_oneof![
            Just(Input::Start), Just(Input::Stop), Just(Input::Opened), any::<bool>().prop_map(Input::Failed),
            (0..3u64).prop_map(Input::Seen), Just(Input::Due), Just(Input::Switched), Just(Input::Anew),
        ]), 0..80)) {
            let mut life = Life::new("x", "not begun");
            let (mut now, mut failed_at) = (Duration::ZERO, None);
            for (pause, input) in inputs {
                now += Duration::from_millis(pause * 250);
                match input {
                    Input::Start => {
                        let open = life.is_open();
                        life.start(now);
                        prop_assert!(open == life.is_open() && (open || life.is_due(now).0));
                        failed_at = None;
                    }
                    Input::Stop => { life.stop(now, "told to"); }
                    Input::Switched => { life.switched(now); }
                    Input::Anew => {
                        life.anew(now);
                        prop_assert!(life.is_due(now).0);
                        failed_at = None;
                    }
                    // What is not being opened is not opened.
                    Input::Opened if life.state() == State::Starting => { life.opened(now); }
                    Input::Failed(last) if life.is_open() || life.state() == State::Starting => {
                        life.failed(now, last, "no".into());
                        failed_at = Some(now);
                    }
                    Input::Seen(frames) => {
                        let before = life.state();
                        life.seen(now, frames, SILENCE, why);
                        prop_assert!(life.is_open() == matches!(before, State::Waiting | State::Receiving));
                    }
                    Input::Due => {
                        let retrying = life.state() == State::Retrying;
                        if life.is_due(now).0 && retrying {
                            prop_assert!(failed_at.is_some_and(|at| now - at >= FIRST));
                        }
                    }
                    _ => {}
                }
                match life.state() {
                    State::Retrying => prop_assert!(life.due().is_some_and(|due| due <= now + LONGEST.mul_f64(1.25))),
                    State::Starting => prop_assert!(life.due().is_some()),
                    State::Receiving => prop_assert!(life.reason().is_none()),
                    State::Stopped | State::Waiting | State::Failed => prop_assert!(life.reason().is_some()),
                }
            }
        }
    }
}
