//! Receiver: libibverbs. A card of Mellanox or NVIDIA (mlx5) writes frames into the ring by itself, by a queue of raw packets;
//! no licence, and the port stays the kernel's, which gets all but the flow.
//!
//! ```text
//! card -> rules -> queue -> completions -> slots -> lease
//!                    ^                               |
//!                    +------- free slots <-----------+
//! ```
//!
//! Frames are cut at a fixed octet where their payload goes to memory of a GPU: the card writes what is before it to memory of
//! the host, where the CPU reads headers, and the rest to the GPU. Else they lie whole in memory of the host.
//!
//! | module | knows |
//! | --- | --- |
//! | `shim.c`, `library` | the calls; the library is opened when it is asked for |
//! | `port` | which device an interface belongs to, and what it counts |
//! | `leg` | what a leg's packets look like, its rules, its group |
//! | `ring`, `payload` | where slots lie, and how memory is given to a device |
//! | `slots`, `feed` | who has which slot; a queue and what comes back from it |
//! | `packet` | from a frame to its UDP payload |
//! | `events` | queues in error, devices that go |
//! | `open`, `failure` | what is opened once, and the words for what is not |

mod events;
mod failure;
mod feed;
mod leg;
mod library;
mod open;
mod options;
mod packet;
mod payload;
mod port;
mod ring;
mod slots;

pub use options::{CUTS, Cut, Options};
pub use payload::Payload;

use self::feed::Feed;
use self::leg::Leg;
use self::library::{Completion, Failure};
use self::packet::{Found, Sorted};
use self::ring::Shape;
use super::socket::{Interface, tai_now, tai_offset};
use super::{Caps, Receiver, RxError};
use crate::error::{Error, Kind, Result};
use crate::event::Event;
use crate::ring::{Lease, Slot, SplitRing};
use crate::sdp;
use crate::stats::{Reason, RxCounters};
use crate::time::Tai;
use crate::timing::Source;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::Duration;

/// Packets of a lease at most.
const BATCH: usize = 256;
/// Leases whose lists are taken beforehand; there may be more.
const LEASES: usize = 32;
/// Rounds of one poll at most, when all that comes is rejected.
const ROUNDS: usize = 16;
/// Idle polls between two looks at events and counters, and nanoseconds while packets come.
const LOOK_POLLS: u32 = 64;
const LOOK_NANOS: u64 = 100_000_000;
/// The counters are the card's own, and asking for them is no small matter for it.
const COUNT_NANOS: u64 = 250_000_000;

/// A flow as a card receives it, its payload in the space `M`.
pub struct Verbs<M: Payload> {
    // Ends before `ring`, in whose memory the card writes: fields are dropped in this order.
    feeds: Vec<Feed>,
    ring: SplitRing<M>,
    shape: Shape,
    legs: Vec<Leg>,
    /// The leg that is asked first by the next poll.
    turn: usize,
    spare: Vec<Vec<Slot>>,
    counters: RxCounters,
    caps: Caps,
    options: Options,
    tai_offset: i64,
    /// Packets of no leg.
    strange: u64,
    /// Packets whose headers may reach beyond the cut, where the CPU cannot see them.
    deep: u64,
    events: Vec<Event>,
    broken: Option<RxError>,
    idle: u32,
    looked: Tai,
    counted: Tai,
    /// Waiting for the card was refused.
    unarmed: Option<Failure>,
}

impl<M: Payload> Verbs<M> {
    /// Prepares everything for a flow with these legs, but receives nothing of it yet: [`Receiver::join`] does. `from` gives
    /// the memory: a GPU, where the space is one of its.
    ///
    /// # Errors
    /// No library, device, rights or memory; each has words of its own.
    pub fn open(options: &Options, legs: &[sdp::Leg], from: &M::Source) -> Result<Self> {
        let mut notes = Vec::new();
        let library = open::library(options, &mut notes)?;
        let legs = leg::legs(legs, options, &mut notes)?;
        let open::Built { ring, mut feeds, shape } = open::build::<M>(library, &legs, options, from, &mut notes)?;
        // What is refused is to be known while something else can be used yet.
        for (leg, feed) in legs.iter().zip(&mut feeds) {
            feed.attempt(&leg.rules).map_err(|why| not_attached(leg, why))?;
        }
        let mut caps = Caps {
            backend: "verbs",
            notes,
            batch: BATCH,
            buffer_octets: u64::from(shape.slots) * u64::from(options.max_octets),
            live: true,
            stamps: Source::Software,
        };
        caps.stamps = source(&feeds);
        Ok(Verbs {
            feeds,
            ring,
            shape,
            legs,
            turn: 0,
            spare: (0..LEASES).map(|_| Vec::with_capacity(BATCH)).collect(),
            counters: RxCounters::default(),
            caps,
            options: options.clone(),
            tai_offset: tai_offset(options.utc_offset_s),
            strange: 0,
            deep: 0,
            events: Vec::new(),
            broken: None,
            idle: 0,
            looked: Tai(0),
            counted: Tai(0),
            unarmed: None,
        })
    }

    fn clock(&self) -> Option<Tai> {
        tai_now(self.tai_offset)
    }

    /// One round over all legs. `true` when something came.
    fn receive(&mut self, slots: &mut Vec<Slot>) -> bool {
        // Arrivals without a stamp have one time in all legs: however long this thread is held up between them, they came
        // together as far as anybody knows.
        let Some(now) = self.clock() else { return false };
        let count = self.feeds.len();
        let mut came = 0;
        for n in 0..count {
            let number = self.turn.wrapping_add(n) % count.max(1);
            came += self.take(number, now, slots);
        }
        self.turn = self.turn.wrapping_add(1);
        if came > 0 {
            self.counters.calls += 1;
            self.caps.stamps = source(&self.feeds);
        }
        came > 0
    }

    /// Takes a run of one leg's packets; how many completions there were.
    fn take(&mut self, number: usize, now: Tai, slots: &mut Vec<Slot>) -> usize {
        let offset = self.tai_offset;
        let (Some(feed), Some(leg)) = (self.feeds.get_mut(number), self.legs.get(number)) else { return 0 };
        if feed.gone {
            return 0;
        }
        let came = match feed.poll(BATCH - slots.len()) {
            Ok(came) => came,
            Err(why) => {
                self.failed(number, format_args!("taking completions"), why);
                return 0;
            }
        };
        if came == 0 {
            feed.replenish();
            return 0;
        }
        // Now that they have come: a stamp is not later than its reading.
        let read = tai_now(offset).unwrap_or(now);
        let sums = feed.device.limits().checksums != 0;
        let (mut wrong, mut good, mut vain, mut outside) = (false, false, None, false);
        let (run, held, mut clock) = feed.run();
        if let Some(clock) = &mut clock {
            clock.read(run, read);
        }
        let mut too_long = 0;
        for one in run.iter() {
            if !held.complete(one.slot) {
                outside = true;
                continue;
            }
            if one.status != 0 {
                // The rest of the queue comes back in the same way, which is no news.
                match one.status {
                    library::TOO_LONG => too_long += 1,
                    library::FLUSHED => {}
                    _ => self.counters.hardware_issues += 1,
                }
                vain.get_or_insert(one.status);
                held.give(one.slot);
                continue;
            }
            if one.octets > u32::from(self.shape.head) + u32::from(self.shape.body) {
                // Longer than the entry that it is in: what is beyond is another packet's.
                self.counters.hardware_issues += 1;
                held.give(one.slot);
                continue;
            }
            good = true;
            let (found, head) = match look(&mut self.ring, &self.shape, leg, one) {
                (Sorted::Wanted(found), head) => (found, head),
                (sorted, _) => {
                    held.give(one.slot);
                    match sorted {
                        Sorted::Rejected(reason) => self.counters.rejected.add(reason),
                        Sorted::Longer => self.counters.rejected.add(Reason::Split),
                        Sorted::Wanted(_) | Sorted::Strange => self.strange += 1,
                    }
                    continue;
                }
            };
            wrong |= sums && found.summed && one.checksums == 0;
            self.deep += u64::from(found.deep);
            let arrival = match &mut clock {
                Some(clock) => clock.stamps.arrival(one.stamp, now),
                None => now,
            };
            let (head_at, body_at, head) = packet::place(&self.shape, one.slot, found, head);
            let octets = found.octets;
            self.counters.datagrams += 1;
            self.counters.octets += u64::from(octets);
            slots.push(Slot { head_at, body_at, head, octets, wire_octets: octets, leg: number as u8, arrival });
        }
        if let Some(clock) = clock {
            clock.stamps.judge(read);
        }
        self.counters.checksum_issues += u64::from(wrong);
        feed.too_long += too_long;
        if good {
            feed.vain = 0;
        }
        if let Some(status) = vain {
            self.reset(number, status);
        }
        if outside {
            self.broken.get_or_insert_with(|| {
                let what = "verbs: the device names entries that it was not given";
                RxError::Failed(Error::new(Kind::Internal, what).cure("please report this"))
            });
        }
        if let Some(feed) = self.feeds.get_mut(number).filter(|feed| !feed.gone) {
            feed.replenish();
        }
        came
    }

    /// Looks at events now and then, and at what devices have dropped.
    fn look_around(&mut self, came: bool) {
        self.idle = if came { self.idle } else { self.idle + 1 };
        let Some(now) = self.clock() else { return };
        if self.idle < LOOK_POLLS && now.0.wrapping_sub(self.looked.0) < LOOK_NANOS {
            return;
        }
        (self.idle, self.looked) = (0, now);
        for number in 0..self.feeds.len() {
            self.hear(number);
        }
        if now.0.wrapping_sub(self.counted.0) >= COUNT_NANOS {
            self.counted = now;
            self.count();
        }
    }

    /// Reads the devices' counters.
    fn count(&mut self) {
        for (feed, leg) in self.feeds.iter_mut().zip(&self.legs).filter(|(feed, _)| !feed.gone) {
            if let Some(now) = leg.port.out_of_buffer() {
                feed.dropped = now.saturating_sub(feed.before);
            }
        }
        // Legs by one port have one counter, which those that were given up do not read any more.
        let of_leg = |leg: &Leg| {
            let same = self.feeds.iter().zip(&self.legs).filter(|(_, other)| other.port == leg.port);
            same.map(|(feed, _)| feed.dropped).max().unwrap_or(0)
        };
        let first = |n: usize, leg: &Leg| !self.legs.iter().take(n).any(|before| before.port == leg.port);
        let of_ports = self.legs.iter().enumerate().filter(|(n, leg)| first(*n, leg));
        self.counters.kernel_dropped = of_ports.map(|(_, leg)| of_leg(leg)).sum();
    }
}

fn not_attached(leg: &Leg, why: Failure) -> Error {
    failure::call(format_args!("a rule for {} on {}", leg.destination(), leg.port.device), why)
}

/// What the arrivals carry now: the least of all legs.
fn source(feeds: &[Feed]) -> Source {
    let of = |feed: &Feed| feed.clock.as_ref().map_or(Source::Software, |clock| clock.stamps.source());
    if feeds.iter().all(|feed| of(feed) == Source::Hardware) { Source::Hardware } else { Source::Software }
}

/// Looks at a frame; with as much of it as lies in the head plane then.
#[inline]
fn look<M: Payload>(ring: &mut SplitRing<M>, shape: &Shape, leg: &Leg, one: &Completion) -> (Sorted, u16) {
    let total = one.octets as usize;
    let seen = |ring: &SplitRing<M>, head: u16| {
        let at = shape.head_at(one.slot);
        let frame = ring.head_plane().as_slice().get(at..at + usize::from(head)).unwrap_or_default();
        packet::sort(frame, total, &leg.wanted, &leg.what.sources)
    };
    let head = shape.head.min(u16::try_from(total).unwrap_or(u16::MAX));
    let sorted = seen(ring, head);
    if !matches!(sorted, Sorted::Longer | Sorted::Wanted(Found { deep: true, .. })) {
        return (sorted, head);
    }
    // Where the CPU reaches the rest, it copies what headers may need of it.
    let more = M::spill(ring, shape, one.slot, u16::try_from(total).unwrap_or(u16::MAX));
    match more {
        0 => (sorted, head),
        more => match seen(ring, head + more) {
            // What is still not seen is for the depacketiser to judge.
            Sorted::Wanted(found) => (Sorted::Wanted(Found { deep: false, ..found }), head + more),
            sorted => (sorted, head + more),
        },
    }
}

/// Is `interface` (by name or address; else the one that the routing table names) a port that verbs can use? Its interface, or
/// the reason where it is none, for choosing a backend.
///
/// # Errors
/// No library, no device, no rights to open it.
pub fn usable(interface: Option<&str>, destination: IpAddr, options: &Options) -> Result<Interface> {
    let library = open::library(options, &mut Vec::new())?;
    let interface = leg::place(interface, destination)?;
    let (port, ..) = leg::port_of(&interface, options)?;
    open::device(library, &port.device)?;
    Ok(interface)
}

impl<M: Payload> Receiver for Verbs<M> {
    type Mem = M;

    fn ring(&self) -> &SplitRing<M> {
        &self.ring
    }

    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        let mut slots = self.spare.pop().unwrap_or_default();
        let mut came = false;
        for _ in 0..ROUNDS {
            let more = self.receive(&mut slots);
            came |= more;
            // Packets of all legs go into one lease while they keep coming.
            if !more || slots.len() + feed::TAKEN > BATCH {
                break;
            }
        }
        // All slots are out: what comes is dropped by the card, and counted there.
        let empty = self.feeds.iter().any(|feed| !feed.gone && feed.slots.posted() == 0);
        self.counters.starved += u64::from(empty);
        self.look_around(came);
        if slots.is_empty()
            && let Some(why) = self.broken.take()
        {
            self.spare.push(slots);
            return Err(why);
        }
        Ok(Lease::new(slots, 0))
    }

    fn release(&mut self, lease: Lease) {
        let mut slots = lease.slots;
        for slot in slots.drain(..) {
            let (number, leg) = self.shape.slot(slot.head_at);
            if let Some(feed) = self.feeds.get_mut(leg) {
                feed.slots.give(number);
            }
        }
        self.spare.push(slots);
        for feed in self.feeds.iter_mut().filter(|feed| !feed.gone) {
            feed.replenish();
        }
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn join(&mut self, leg: u8, what: &sdp::Leg) -> Result<()> {
        let place = usize::from(leg);
        let known = self.legs.get(place).filter(|known| known.what == *what);
        let (Some(known), Some(feed)) = (known, self.feeds.get_mut(place)) else {
            return Err(Error::new(
                Kind::Usage,
                format!("leg {leg} is none of those that this receiver was opened for"),
            )
            .cure("open another one"));
        };
        if feed.is_attached() {
            return Ok(());
        }
        feed.attach(&known.rules).map_err(|why| not_attached(known, why))
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }

    fn dropped(&self, leg: u8) -> u64 {
        self.feeds.get(usize::from(leg)).map_or(0, |feed| feed.dropped)
    }

    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        self.feeds.iter_mut().for_each(Feed::detach);
        self.count();
        for (number, (feed, leg)) in self.feeds.iter().zip(&self.legs).enumerate() {
            let name = &leg.port.device;
            let mut tell = |what: String| remarks.push(format!("verbs: leg {number} ({name}): {what}"));
            if feed.too_long > 0 {
                let most = u32::from(self.shape.head) + u32::from(self.shape.body);
                tell(format!(
                    "{} frames were longer than the {most} octets of a slot, and each of them cost those behind it: correct MAXUDP \
                     in the SDP",
                    feed.too_long
                ));
            }
            if feed.resets > 0 {
                tell(format!("its queue began anew {} times after an error", feed.resets));
            }
            if let Some(why) = &feed.ended {
                tell(format!("nothing came by it any more: {why}"));
            }
            if let Some(error) = feed.refused {
                let why = std::io::Error::from_raw_os_error(error);
                tell(format!("the device took fewer entries than it had said: {why}"));
            }
            if feed.dropped > 0 {
                tell(format!(
                    "{} packets came while the device had no entry (out_of_buffer): make the ring longer (--verbs hold=…)",
                    feed.dropped
                ));
            }
            if let Some(clock) = &feed.clock {
                clock.stamps.tell(name, "the poll", remarks);
            }
        }
        if self.deep > 0 {
            remarks.push(format!(
                "verbs: {} packets had contributing sources, header extensions or IP options, so that their headers may reach \
                 beyond octet {}, where the CPU sees none: use --verbs cut={}, or cut=none",
                self.deep,
                self.shape.head,
                CUTS.end()
            ));
        }
        if self.strange > 0 {
            remarks.push(format!("verbs: {} packets came that belong to no leg", self.strange));
        }
        if let Some(why) = &self.unarmed {
            remarks.push(format!("verbs: waiting for the card was refused ({why}): it was polled every millisecond"));
        }
        Ok(())
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }

    fn now(&self) -> Option<Tai> {
        let now = self.clock()?;
        let of = |feed: &Feed| feed.clock.as_ref().map_or(now, |clock| clock.stamps.now(now));
        Some(self.feeds.iter().map(of).min().unwrap_or(now))
    }

    fn wait(&mut self, at_most: Duration) -> bool {
        if !self.options.events {
            return false;
        }
        let mut fds: [RawFd; super::socket::MAX_LEGS] = [-1; super::socket::MAX_LEGS];
        for (feed, fd) in self.feeds.iter_mut().zip(&mut fds).filter(|(feed, _)| !feed.gone) {
            match feed.arm() {
                Ok(Some(armed)) => *fd = armed,
                Ok(None) => return true,
                Err(why) => {
                    self.unarmed.get_or_insert(why);
                    std::thread::sleep(at_most.min(Duration::from_millis(1)));
                    return true;
                }
            }
        }
        library::wait(&fds, at_most);
        true
    }
}
