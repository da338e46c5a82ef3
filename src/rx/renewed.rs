//! A receiver that is opened anew when its interface has gone and is there again: for backends that end then (AF_XDP).
//!
//! Whoever polls is not kept waiting: a thread of its own tries, at first after a second, later every 8 s. Packets that are
//! leased lie in the memory of the old receiver, so the new one takes its place when they have come back.

use super::{Caps, Receiver, RxError};
use crate::error::Result;
use crate::event::{Event, What};
use crate::fault::FaultCounters;
use crate::mem::Host;
use crate::ring::{Lease, SplitRing};
use crate::sdp::Leg;
use crate::stats::RxCounters;
use crate::time::Tai;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The first pause between two attempts, and the longest.
const PERIOD: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(8);
/// The token of leases that are nobody's.
const NOBODY: u32 = u32::MAX;

type Inner = Box<dyn Receiver<Mem = Host>>;
/// Opens a receiver that has joined nothing yet.
pub type Open = Box<dyn Fn() -> Result<Inner> + Send + Sync>;

/// A receiver and how it is opened.
pub struct Renewed {
    inner: Inner,
    /// Its interface has gone.
    gone: bool,
    /// Leases that are out, empty ones apart.
    out: usize,
    keeper: Keeper,
    /// Legs that were joined.
    legs: Vec<(u8, Leg)>,
    /// What those before have counted.
    past: RxCounters,
    past_dropped: Vec<(u8, u64)>,
    events: Vec<Event>,
}

/// The thread that opens.
struct Keeper {
    shared: Arc<Shared>,
    /// None where the system gave none: then nothing is opened again.
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    open: Open,
    stop: AtomicBool,
    /// The legs that a new one is to have, while one is wanted.
    wanted: Mutex<Option<Vec<(u8, Leg)>>>,
    ready: AtomicBool,
    place: Mutex<Option<Inner>>,
}

impl Renewed {
    /// Opens the first one.
    ///
    /// # Errors
    /// As of `open`.
    pub fn new(open: Open) -> Result<Self> {
        let inner = open()?;
        let (legs, past, past_dropped, events) = (Vec::new(), RxCounters::default(), Vec::new(), Vec::new());
        Ok(Renewed { inner, gone: false, out: 0, keeper: Keeper::new(open), legs, past, past_dropped, events })
    }

    /// Is it an interface that has gone? Then another one is wanted.
    #[cold]
    fn lose(&mut self, why: RxError) -> std::result::Result<Lease, RxError> {
        self.inner.take_events(&mut self.events);
        match why {
            RxError::Gone(error) if self.keeper.thread.is_some() => {
                tracing::debug!("a receiver is to be opened anew: {}", error.in_one_line());
                self.gone = true;
                self.keeper.ask(&self.legs);
                Ok(Lease::new(Vec::new(), NOBODY))
            }
            why => Err(why),
        }
    }

    /// The new one takes the place of the old one.
    #[cold]
    fn renew(&mut self) {
        let Some(new) = self.keeper.take() else { return };
        for (leg, dropped) in &mut self.past_dropped {
            *dropped += self.inner.dropped(*leg);
        }
        self.past = self.past + self.inner.counters();
        self.inner = new;
        self.gone = false;
        let at = self.inner.now().unwrap_or_default();
        self.events.extend(self.legs.iter().map(|(leg, _)| Event { at, what: What::InterfaceBack { leg: *leg } }));
    }
}

impl Receiver for Renewed {
    type Mem = Host;

    fn ring(&self) -> &SplitRing<Host> {
        self.inner.ring()
    }

    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        if self.gone {
            if self.out == 0 && self.keeper.is_ready() {
                self.renew();
            }
            return Ok(Lease::new(Vec::new(), NOBODY));
        }
        match self.inner.poll() {
            Ok(lease) => {
                self.out += usize::from(!lease.is_empty());
                Ok(lease)
            }
            Err(why) => self.lose(why),
        }
    }

    fn release(&mut self, lease: Lease) {
        if lease.token == NOBODY && lease.is_empty() {
            return;
        }
        self.out -= usize::from(!lease.is_empty());
        self.inner.release(lease);
    }

    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn join(&mut self, leg: u8, what: &Leg) -> Result<()> {
        self.inner.join(leg, what)?;
        self.legs.retain(|(other, _)| *other != leg);
        self.legs.push((leg, what.clone()));
        if !self.past_dropped.iter().any(|(other, _)| *other == leg) {
            self.past_dropped.push((leg, 0));
        }
        Ok(())
    }

    fn counters(&self) -> RxCounters {
        self.past + self.inner.counters()
    }
    fn dropped(&self, leg: u8) -> u64 {
        let past = self.past_dropped.iter().find(|(other, _)| *other == leg).map_or(0, |(_, dropped)| *dropped);
        past + self.inner.dropped(leg)
    }
    fn faults(&self) -> &[FaultCounters] {
        self.inner.faults()
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        self.inner.finish(remarks)
    }
    fn take_events(&mut self, events: &mut Vec<Event>) {
        // Those of the old one before those of the new one.
        events.append(&mut self.events);
        self.inner.take_events(events);
    }
    fn now(&self) -> Option<Tai> {
        self.inner.now()
    }
    fn wait(&mut self, at_most: Duration) -> bool {
        !self.gone && self.inner.wait(at_most)
    }
}

impl Keeper {
    /// The thread is in the network namespace of this one.
    fn new(open: Open) -> Self {
        let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { open, stop, wanted: Mutex::default(), ready, place: Mutex::default() });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("renew".into()).spawn(move || theirs.run()).ok();
        Keeper { shared, thread }
    }

    fn ask(&self, legs: &[(u8, Leg)]) {
        *lock(&self.shared.wanted) = Some(legs.to_vec());
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }
    #[inline]
    fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Relaxed)
    }
    fn take(&self) -> Option<Inner> {
        // The thread holds it for a moment only; whoever polls comes again.
        let taken = self.shared.place.try_lock().ok().and_then(|mut place| place.take());
        if taken.is_some() {
            self.shared.ready.store(false, Ordering::Relaxed);
        }
        taken
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

impl Shared {
    fn run(&self) {
        let mut pause = PERIOD;
        while !self.stop.load(Ordering::Relaxed) {
            let Some(legs) = lock(&self.wanted).clone() else {
                pause = PERIOD;
                std::thread::park();
                continue;
            };
            std::thread::park_timeout(pause);
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            match self.attempt(&legs) {
                Ok(new) => {
                    *lock(&self.wanted) = None;
                    *lock(&self.place) = Some(new);
                    self.ready.store(true, Ordering::Release);
                }
                Err(error) => {
                    tracing::debug!("a receiver cannot be opened yet: {}", error.in_one_line());
                    pause = (pause * 2).min(PATIENCE);
                }
            }
        }
    }

    fn attempt(&self, legs: &[(u8, Leg)]) -> Result<Inner> {
        let mut new = (self.open)()?;
        legs.iter().try_for_each(|(leg, what)| new.join(*leg, what))?;
        Ok(new)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, Kind};
    use crate::mem::Region;
    use crate::ring::Slot;
    use crate::sdp::SourceFilter;
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicU32;

    /// Brings what is in its list: a packet, or the end of its interface.
    struct Scripted {
        ring: SplitRing<Host>,
        caps: Caps,
        number: u32,
        coming: VecDeque<bool>,
        counters: RxCounters,
        events: Vec<Event>,
        joined: Arc<Mutex<Vec<(u32, u8)>>>,
    }

    impl Receiver for Scripted {
        type Mem = Host;
        fn ring(&self) -> &SplitRing<Host> {
            &self.ring
        }
        fn poll(&mut self) -> std::result::Result<Lease, RxError> {
            match self.coming.pop_front() {
                Some(true) => {
                    self.counters.datagrams += 1;
                    let arrival = Tai(self.number.into());
                    let slot = Slot { head_at: 0, body_at: 0, head: 4, octets: 4, wire_octets: 4, leg: 1, arrival };
                    Ok(Lease::new(vec![slot], self.number))
                }
                Some(false) => {
                    self.events.push(Event { at: Tai(7), what: What::InterfaceGone { leg: 1 } });
                    Err(RxError::Gone(Error::new(Kind::Unavailable, "the interface has gone")))
                }
                None => Ok(Lease::new(Vec::new(), self.number)),
            }
        }
        fn release(&mut self, lease: Lease) {
            assert_eq!(lease.token, self.number, "a lease of another receiver");
        }
        fn caps(&self) -> &Caps {
            &self.caps
        }
        fn join(&mut self, leg: u8, _: &Leg) -> Result<()> {
            lock(&self.joined).push((self.number, leg));
            Ok(())
        }
        fn counters(&self) -> RxCounters {
            self.counters
        }
        fn take_events(&mut self, events: &mut Vec<Event>) {
            events.append(&mut self.events);
        }
        fn now(&self) -> Option<Tai> {
            Some(Tai(100))
        }
    }

    #[test]
    fn the_new_one_comes_when_the_leases_of_the_old_one_are_back() {
        let joined = Arc::<Mutex<Vec<(u32, u8)>>>::default();
        let (numbers, theirs) = (AtomicU32::new(0), joined.clone());
        let open = move || -> Result<Inner> {
            let number = numbers.fetch_add(1, Ordering::Relaxed);
            if number == 1 {
                return Err(Error::new(Kind::Unavailable, "not yet"));
            }
            Ok(Box::new(Scripted {
                ring: SplitRing::whole(Region::host(64 + crate::ring::SLACK)?),
                caps: Caps::default(),
                number,
                coming: VecDeque::from([true, true, false]),
                counters: RxCounters::default(),
                events: Vec::new(),
                joined: theirs.clone(),
            }))
        };
        let mut r = Renewed::new(Box::new(open)).unwrap();
        let destination = "239.1.1.1".parse().unwrap();
        r.join(1, &Leg { destination, port: 5004, sources: SourceFilter::Any, ttl: None, mid: None }).unwrap();
        let (first, second) = (r.poll().unwrap(), r.poll().unwrap());
        assert_eq!((first.slots().len(), second.slots().len()), (1, 1));
        r.release(first);
        let empty = r.poll().unwrap();
        assert!(empty.is_empty() && r.gone);
        r.release(empty);
        // The second attempt succeeds, and the lease that is out keeps it waiting.
        while !r.keeper.is_ready() {
            let lease = r.poll().unwrap();
            r.release(lease);
            std::thread::yield_now();
        }
        let lease = r.poll().unwrap();
        assert!(lease.is_empty() && r.gone, "its memory is still read");
        r.release(lease);
        r.release(second);
        let lease = loop {
            let lease = r.poll().unwrap();
            if !lease.is_empty() {
                break lease;
            }
            r.release(lease);
        };
        assert_eq!((lease.slots()[0].arrival, r.counters().datagrams), (Tai(2), 3));
        r.release(lease);
        let mut events = Vec::new();
        r.take_events(&mut events);
        let whats: Vec<What> = events.iter().map(|e| e.what).collect();
        assert_eq!(whats, [What::InterfaceGone { leg: 1 }, What::InterfaceBack { leg: 1 }]);
        assert_eq!(*lock(&joined), [(0, 1), (2, 1)]);
    }

    #[test]
    fn what_fails_otherwise_fails() {
        struct Broken(Scripted);
        let scripted = Scripted {
            ring: SplitRing::whole(Region::host(64 + crate::ring::SLACK).unwrap()),
            caps: Caps::default(),
            number: 0,
            coming: VecDeque::new(),
            counters: RxCounters::default(),
            events: Vec::new(),
            joined: Arc::default(),
        };
        impl Receiver for Broken {
            type Mem = Host;
            fn ring(&self) -> &SplitRing<Host> {
                self.0.ring()
            }
            fn poll(&mut self) -> std::result::Result<Lease, RxError> {
                Err(RxError::Failed(Error::new(Kind::Unavailable, "a fault of the card")))
            }
            fn release(&mut self, lease: Lease) {
                self.0.release(lease);
            }
            fn caps(&self) -> &Caps {
                self.0.caps()
            }
            fn join(&mut self, leg: u8, what: &Leg) -> Result<()> {
                self.0.join(leg, what)
            }
            fn counters(&self) -> RxCounters {
                self.0.counters()
            }
        }
        let place = Mutex::new(Some(Broken(scripted)));
        let open = move || -> Result<Inner> {
            let taken = lock(&place).take();
            taken.map(|one| Box::new(one) as Inner).ok_or_else(|| Error::new(Kind::Internal, "opened again"))
        };
        let mut r = Renewed::new(Box::new(open)).unwrap();
        assert!(matches!(r.poll(), Err(RxError::Failed(e)) if e.to_string().contains("a fault of the card")));
    }
}
