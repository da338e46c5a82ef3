//! Receiver: NVIDIA Rivermax. The card writes packets into the ring by itself; octets never pass the kernel.
//!
//! Headers lie in memory of the host, where the CPU reads them, and what is cut off in memory of the host or of the GPU.
//! Where the cut is depends on the flow and is chosen from its first packets (`probe`). There is no way to give a slot
//! back: the card comes round, and what is read meanwhile is checked afterwards ([`crate::ring::Laps`]).
//!
//! Built with the feature `rivermax` against the user's own SDK, or with `rivermax-stand-in` against a library of this
//! project that makes the same calls over sockets. The second proves the order of calls, the rules on memory and the way of
//! the octets; it proves nothing about speed, GPUDirect or a card's time stamps.

mod chunks;
mod failure;
mod leg;
mod look;
mod open;
mod options;
mod probe;
mod shape;

pub use super::planes::Planes;
pub use options::{Options, Order, Split, Stamps};
/// The library's calls, and the controls of its stand-in.
#[cfg(feature = "rivermax-stand-in")]
pub use rivermax_sys as library;

use self::chunks::{Refusal, Source, Took};
use self::leg::Leg;
use self::open::Library;
use super::socket::{Interface, tai_now, tai_offset};
use super::{Caps, Receiver, RxError};
use crate::error::{Error, Kind, Result};
use crate::ring::{Lease, Slot, SplitRing};
use crate::rx::card::{self, Clock};
use crate::sdp;
use crate::stats::RxCounters;
use crate::time::Tai;
use crate::timing;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Packets of a lease, and leases that may be out; all their memory is taken beforehand.
const BATCH: usize = 2048;
const LEASES: usize = 256;
/// Completions with errors in a row after which the card is given up.
const ISSUES: u32 = 1000;
/// How long the rest of a ring is taken after its flows are detached.
const DRAIN: Duration = Duration::from_millis(200);
/// Polls in a row that bring nothing, after which the ring is empty.
const VAIN: u32 = 16;
/// How long to look for packets that are too large, at the end.
const LAST_LOOK: Duration = Duration::from_millis(100);
/// Token of leases without packets.
const NONE: u32 = u32::MAX;
const FULL: u32 = 0;

/// A flow as a card receives it, its body plane in the space `M`.
pub struct Rivermax<M: Planes> {
    ring: SplitRing<M>,
    sources: Vec<Source>,
    legs: Vec<Leg>,
    /// The source that is asked first by the next poll.
    turn: usize,
    spare: Vec<Vec<Slot>>,
    counters: RxCounters,
    caps: Caps,
    options: Options,
    /// Octets of a packet that a slot holds at most.
    octets: u16,
    /// Why waiting for events was refused.
    unarmed: Option<rivermax_sys::Error>,
    tai_offset: i64,
    issues: u32,
    /// Flows are detached, and the rest is taken until then.
    drained: Option<Instant>,
    library: Library,
}

impl<M: Planes> Rivermax<M> {
    /// Prepares everything for a flow with these legs, but receives nothing of it yet: [`Receiver::join`] does. `from` gives
    /// the memory: a GPU, where the space is one of its.
    ///
    /// # Errors
    /// No library, licence, card or memory; each has words of its own.
    pub fn open(options: &Options, legs: &[sdp::Leg], from: &M::Source) -> Result<Self> {
        Self::open_while(options, legs, from, &|| true)
    }

    /// The same, without looking at first packets any longer when `goes_on` says no.
    ///
    /// # Errors
    /// As of [`Rivermax::open`].
    pub fn open_while(
        options: &Options,
        legs: &[sdp::Leg],
        from: &M::Source,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let mut notes = Vec::new();
        let library = Library::open(options, &mut notes)?;
        let legs = leg::legs(&library, legs, options, &mut notes)?;
        if let Some(leg) = legs.first() {
            open::clock(&library, leg, options, &mut notes);
        }
        let looks = options.exact || options.split == Split::Probe;
        let seen = if looks { look::look(&library, &legs, options, goes_on)? } else { probe::Seen::default() };
        let mut built = match Self::in_windows(&library, &legs, options, seen, from, &mut notes) {
            Some(built) => built,
            None => {
                let shape = shape::shape(options, seen, &mut notes);
                open::build::<M>(&library, &legs, options, shape, from, &mut notes)?
            }
        };
        // What is refused is to be known while something else can be used yet; looking has shown it.
        for (leg, source) in legs.iter().zip(&mut built.sources).filter(|_| !looks) {
            source.attempt(&leg.flows).map_err(|error| leg.not_attached(error))?;
        }
        let tai_offset = tai_offset(options.utc_offset_s);
        built.sources.iter_mut().for_each(|source| source.set_clock(Clock::new(tai_offset)));
        notes.push(ring_note(&built, options, M::NAME));
        let caps = Caps {
            backend: "rivermax",
            notes,
            batch: BATCH,
            buffer_octets: 0,
            live: true,
            stamps: timing::Source::Hardware,
        };
        Ok(Rivermax {
            ring: built.ring,
            sources: built.sources,
            legs,
            turn: 0,
            spare: (0..LEASES).map(|_| Vec::with_capacity(BATCH)).collect(),
            counters: RxCounters::default(),
            caps,
            options: options.clone(),
            octets: built.octets,
            unarmed: None,
            tai_offset,
            issues: 0,
            drained: None,
            library,
        })
    }

    /// A ring of which frames can be windows, where they are wanted so; why there is none is among the notes.
    fn in_windows(
        library: &Library,
        legs: &[Leg],
        options: &Options,
        seen: probe::Seen,
        from: &M::Source,
        notes: &mut Vec<String>,
    ) -> Option<open::Built<M>> {
        let wire = options.lets_windows()?;
        let mut said = Vec::new();
        let built = shape::windows(options, wire, seen, legs.len()).and_then(|options| {
            let shape = shape::shape(&options, seen, &mut said);
            let built = open::build::<M>(library, legs, &options, shape, from, &mut said);
            let built = built.map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
            let gapless = built.payload == shape.split.map(|split| (shape.octets - split).into());
            if gapless {
                Ok(built)
            } else {
                Err("the library leaves gaps in it, or gives each leg one of its own".into())
            }
        });
        match built {
            Ok(built) => {
                notes.append(&mut said);
                Some(built)
            }
            Err(why) => {
                notes.push(format!("frames are no windows of the ring: {why}"));
                None
            }
        }
    }

    /// Receives no more. Polls give what is in the ring still, and then [`RxError::End`].
    ///
    /// # Errors
    /// The library refuses.
    pub fn detach(&mut self) -> Result<()> {
        let mut answer = Ok(());
        for source in &mut self.sources {
            answer = answer.and(source.detach());
        }
        self.drained.get_or_insert_with(|| Instant::now() + DRAIN);
        answer.map_err(|error| failure::call("detaching a flow", error))
    }

    /// Whether packets come that are too large for slots, which is not to be seen otherwise: where slots are no larger than
    /// the packets that were seen first, or nothing came.
    fn look_for_larger(&self, remarks: &mut Vec<String>) {
        let told = self.counters.datagrams > 0 && self.octets >= self.options.max_octets;
        let options = Options { probe: LAST_LOOK.min(self.options.probe), ..self.options.clone() };
        let seen = (!told).then(|| look::look(&self.library, &self.legs, &options, &|| true));
        let Some(Ok(seen)) = seen else { return };
        if seen.largest > self.octets {
            remarks.push(format!(
                "Rivermax: packets of {} octets come, and slots take {}: larger ones are lost; start again, or correct \
                 MAXUDP in the SDP",
                seen.largest, self.octets
            ));
        }
    }

    /// Takes what has come by all legs, alternately; says whether anything was wrong that ends reception.
    fn take(&mut self, slots: &mut Vec<Slot>) -> std::result::Result<(), RxError> {
        let Some(now) = self.now() else { return Ok(()) };
        let count = self.sources.len();
        let room = if count > 1 { open::CHUNK_OF_TWO } else { open::CHUNK };
        let mut silent = 0;
        while silent < count && slots.len() + room <= BATCH {
            let number = self.turn;
            self.turn = (self.turn + 1) % count;
            let Some(source) = self.sources.get_mut(number) else { break };
            let before = slots.len();
            match source.take(now, slots, &mut self.counters) {
                Ok(Took::Packets(more)) => {
                    self.issues = 0;
                    silent = if more { 0 } else { silent + 1 };
                }
                Ok(Took::Nothing) => {
                    self.issues = 0;
                    silent += 1;
                }
                Err(refusal) => {
                    slots.truncate(before);
                    silent += 1;
                    self.refused(number, refusal)?;
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn refused(&mut self, number: usize, refusal: Refusal) -> std::result::Result<(), RxError> {
        let failed = |error: Error| Err(RxError::Failed(error));
        match refusal {
            // What a library answers after its flows are detached differs.
            _ if self.drained.is_some() => {
                self.drained = Some(Instant::now());
                Ok(())
            }
            Refusal::Signal => Err(RxError::End),
            Refusal::Hardware => {
                self.issues += 1;
                if self.issues < ISSUES {
                    return Ok(());
                }
                failed(
                    Error::new(Kind::Unavailable, format!("the card of leg {number} reports errors and nothing else"))
                        .cure("see dmesg, the card's firmware and its cable; start again"),
                )
            }
            Refusal::Outside => failed(
                Error::new(Kind::Internal, "Rivermax names packets outside of the ring's memory")
                    .cure("please report this"),
            ),
            Refusal::Other(error) => failed(failure::call(format_args!("receiving on leg {number}"), error)),
        }
    }
}

/// A port that Rivermax can use. Keeps the library started, so that receivers which are tried one after the other do not
/// start it again and again.
pub struct Usable {
    /// The port.
    pub interface: Interface,
    _library: Library,
}

/// Is `interface` (by name or address; else the one that the routing table names) a port that Rivermax can use? The reason
/// where it is none, for choosing a backend.
///
/// # Errors
/// No library, licence or card.
pub fn usable(interface: Option<&str>, destination: IpAddr, options: &Options) -> Result<Usable> {
    let (interface, address) = leg::place(interface, destination)?;
    let library = Library::open(options, &mut Vec::new())?;
    library.port(&interface, address)?;
    Ok(Usable { interface, _library: library })
}

fn ring_note<M: Planes>(built: &open::Built<M>, options: &Options, name: &str) -> String {
    let (heads, body) = (built.ring.head_plane().len(), built.ring.body_plane().map(crate::mem::Region::len));
    let mib = |octets: usize| (octets as f64 / f64::from(1 << 20)).ceil();
    let time = match options.rate {
        0 => String::new(),
        rate => format!(", {:.0} ms", built.slots as f64 * 1e3 / rate as f64),
    };
    let place = match body {
        Some(body) => format!("headers in {} MiB of the host, data in {} MiB, {name}", mib(heads), mib(body)),
        None => format!("packets whole in {} MiB of the host", mib(heads)),
    };
    format!("ring of {} packets{time}: {place}", built.slots)
}

impl<M: Planes> Receiver for Rivermax<M> {
    type Mem = M;

    fn ring(&self) -> &SplitRing<M> {
        &self.ring
    }

    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        let Some(mut slots) = self.spare.pop() else {
            // The ring goes on: what is read too late is found out by its laps.
            self.counters.starved += 1;
            return Ok(Lease::new(Vec::new(), NONE));
        };
        let taken = self.take(&mut slots);
        if !slots.is_empty() {
            // What is wrong will be wrong again.
            return Ok(Lease::new(slots, FULL));
        }
        self.spare.push(slots);
        taken?;
        if self.drained.is_some_and(|until| Instant::now() >= until) {
            return Err(RxError::End);
        }
        Ok(Lease::new(Vec::new(), NONE))
    }

    fn release(&mut self, lease: Lease) {
        if lease.token == FULL {
            let mut slots = lease.slots;
            slots.clear();
            self.spare.push(slots);
        }
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn join(&mut self, leg: u8, what: &sdp::Leg) -> Result<()> {
        let place = usize::from(leg);
        let known = self.legs.get(place).filter(|known| known.what == *what);
        let (Some(known), Some(source)) = (known, self.sources.get_mut(place)) else {
            return Err(Error::new(
                Kind::Usage,
                format!("leg {leg} is none of those that this receiver was opened for"),
            )
            .cure("open another one"));
        };
        if source.is_attached() {
            return Ok(());
        }
        source.attach(&known.flows).map_err(|error| known.not_attached(error))
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }

    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        // What was received is received.
        remarks
            .extend(self.detach().err().map(|error| error.to_string().lines().next().unwrap_or_default().to_owned()));
        let counted = self.counters.datagrams;
        // Single polls may bring nothing although packets wait.
        let mut vain = 0;
        while vain < VAIN
            && let Ok(lease) = self.poll()
        {
            vain = if lease.is_empty() { vain + 1 } else { 0 };
            self.release(lease);
        }
        let rest = self.counters.datagrams - counted;
        if rest > 0 {
            remarks.push(format!("Rivermax: {rest} packets were in the ring still when reception ended"));
        }
        if let Some(error) = self.unarmed {
            remarks
                .push(format!("Rivermax: waiting for the card was refused ({error}): it was polled every millisecond"));
        }
        self.look_for_larger(remarks);
        for source in &self.sources {
            remarks.push(match source.clock().kind() {
                card::Kind::Free => {
                    format!(
                        "Rivermax: leg {}: the card's clock runs freely: arrivals are by the time of polling",
                        source.leg()
                    )
                }
                card::Kind::Utc => format!("Rivermax: leg {}: the card's clock runs on UTC", source.leg()),
                card::Kind::Tai | card::Kind::Unknown => continue,
            });
        }
        Ok(())
    }

    fn now(&self) -> Option<Tai> {
        let now = tai_now(self.tai_offset)?;
        Some(self.sources.iter().map(|source| source.clock().now(now)).min().unwrap_or(now))
    }

    fn wait(&mut self, at_most: Duration) -> bool {
        if !self.options.events {
            return false;
        }
        let mut fds = [-1; open::MAX_LEGS];
        for (source, fd) in self.sources.iter_mut().zip(&mut fds) {
            match source.arm() {
                Ok(Some(armed)) => *fd = armed,
                Ok(None) => return true,
                Err(error) => {
                    self.unarmed.get_or_insert(error);
                    std::thread::sleep(at_most.min(Duration::from_millis(1)));
                    return true;
                }
            }
        }
        // Rounded up: half a millisecond is no spinning.
        chunks::wait(&fds, i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        true
    }
}
