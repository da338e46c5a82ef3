//! Keeps the memberships of a receiver. A group that was joined on an interface is joined no more when that is deleted, and
//! nothing says so to the socket; one that is made anew under the same name is another interface. So a thread of its own
//! looks once a second, opens the leg's socket again where that is needed, and lays it ready for the receiver, which looks
//! there when nothing has come. An interface that goes down and up keeps its memberships.

use super::open::{self, Opened};
use super::{MAX_LEGS, Options, interface};
use crate::event::{Event, What};
use crate::sdp::{Leg, SourceFilter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it looks; and how long it waits at most between two attempts to open a leg.
const PERIOD: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(8);

/// The thread and what it knows.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    /// None where the system gave none: then nothing is kept.
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    options: Options,
    tai_offset: i64,
    stop: AtomicBool,
    /// There is something for the receiver.
    ready: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    legs: [Option<Watched>; MAX_LEGS],
    opened: [Option<(Opened, SourceFilter)>; MAX_LEGS],
    events: Vec<Event>,
}

/// A leg.
struct Watched {
    what: Leg,
    /// The interface that its group was joined on.
    joined: Option<u32>,
    /// Its socket failed, or its interface has gone: since when, and when it is tried again.
    lost: Option<Lost>,
}

struct Lost {
    next: Instant,
    pause: Duration,
}

impl Keeper {
    pub fn new(options: &Options, tai_offset: i64) -> Self {
        let shared = Arc::new(Shared {
            options: options.clone(),
            tai_offset,
            stop: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            state: Mutex::default(),
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("legs".into()).spawn(move || theirs.run()).ok();
        Keeper { shared, thread }
    }

    /// A leg was opened.
    pub fn watch(&self, number: usize, what: &Leg, joined: Option<u32>) {
        let mut state = self.shared.lock();
        if let Some(leg) = state.legs.get_mut(number) {
            *leg = Some(Watched { what: what.clone(), joined, lost: None });
        }
        if let Some(opened) = state.opened.get_mut(number) {
            *opened = None;
        }
    }
    /// The socket of a leg failed.
    pub fn fail(&self, number: usize) {
        self.shared.lock().lose(number, self.shared.tai_offset);
        self.shared.ready.store(true, Ordering::Release);
    }
    /// Something lies ready.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Relaxed)
    }
    /// What lies ready: sockets of legs that were opened anew, with whom they take packets from. Events are added to
    /// `events`.
    pub fn take(&self, events: &mut Vec<Event>) -> [Option<(Opened, SourceFilter)>; MAX_LEGS] {
        // The thread holds it for moments only; whoever polls comes again.
        let Ok(mut state) = self.shared.state.try_lock() else { return Default::default() };
        self.shared.ready.store(false, Ordering::Relaxed);
        events.append(&mut state.events);
        std::mem::take(&mut state.opened)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl State {
    /// Once, when it was lost.
    fn lose(&mut self, number: usize, tai_offset: i64) {
        let Some(leg) = self.legs.get_mut(number).and_then(Option::as_mut).filter(|leg| leg.lost.is_none()) else {
            return;
        };
        leg.lost = Some(Lost { next: Instant::now(), pause: PERIOD });
        self.tell(What::InterfaceGone { leg: number as u8 }, tai_offset);
    }
    fn tell(&mut self, what: What, tai_offset: i64) {
        if let Some(at) = super::tai_now(tai_offset) {
            self.events.push(Event { at, what });
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(PERIOD);
            (0..MAX_LEGS).for_each(|number| self.look(number));
        }
    }

    /// Opens a leg anew if that is needed and can be done.
    fn look(&self, number: usize) {
        let what = {
            let mut state = self.lock();
            let Some(leg) = state.legs.get(number).and_then(Option::as_ref) else { return };
            if leg.joined.is_some_and(|index| !interface::exists(index)) {
                state.lose(number, self.tai_offset);
                self.ready.store(true, Ordering::Release);
            }
            let leg = state.legs.get(number).and_then(Option::as_ref);
            let due =
                leg.and_then(|leg| Some((leg, leg.lost.as_ref()?))).filter(|(_, lost)| lost.next <= Instant::now());
            let Some((leg, _)) = due else { return };
            leg.what.clone()
        };
        // Without the lock: it may take a while.
        let opened = open::open(number as u8, &what, &self.options);
        let mut state = self.lock();
        let Some(leg) = state.legs.get_mut(number).and_then(Option::as_mut).filter(|leg| leg.what == what) else {
            return;
        };
        match opened {
            Ok(opened) => {
                (leg.joined, leg.lost) = (opened.joined, None);
                if let Some(place) = state.opened.get_mut(number) {
                    *place = Some((opened, what.sources));
                }
                state.tell(What::InterfaceBack { leg: number as u8 }, self.tai_offset);
                self.ready.store(true, Ordering::Release);
            }
            Err(error) => {
                tracing::debug!("leg {number} cannot be opened yet: {}", error.in_one_line());
                if let Some(lost) = &mut leg.lost {
                    lost.next = Instant::now() + lost.pause;
                    lost.pause = (lost.pause * 2).min(PATIENCE);
                }
            }
        }
    }
}
