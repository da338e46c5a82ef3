//! Receiver: AF_XDP. A filter at the interface takes the packets of the flow before the kernel's network stack and puts
//! them into memory of this program; everything else goes on to the kernel.
//!
//! ```text
//! driver -> filter -> socket of the queue -> receive ring -> slots -> lease
//!              |                                                        |
//!              v                     fill ring <- free frames <---------+
//!           kernel
//! ```
//!
//! | module | knows |
//! | --- | --- |
//! | [`program`] | the filter's instructions, and what it looks for |
//! | `filter` | one filter an interface, shared by all receivers there, gone with the last one |
//! | `socket`, `ring`, `umem` | a queue, its rings, who has which frame of the memory |
//! | `stamps`, `btf` | whose time stamps packets have; the kernel's number of the call that gives the card's |
//! | `port`, `leg` | the queues of an interface that are served; what a leg's packets look like |
//! | `steer` | by which queue a flow comes: rules of the card |
//! | [`helper`] | the privileged part as a program of its own |
//! | `abi`, `device` | the kernel's calls |
//!
//! A queue of an interface belongs to one socket of the whole machine, so receivers of several programs need a queue each.
//! An ordinary socket beside has the port and joins the group; what reaches it instead of us (fragments, a queue that
//! another program has) is counted as dropped. UDP checksums are not checked: the card has checked the Ethernet frame,
//! virtual interfaces leave checksums unfinished, and reading every octet would cost more than all the rest.

mod abi;
mod btf;
pub(in crate::rx) mod device;
mod filter;
pub mod helper;
mod leg;
mod options;
mod port;
pub mod program;
mod ring;
mod socket;
mod stamps;
mod steer;
#[cfg(test)]
mod tests;
mod umem;
#[cfg(test)]
#[path = "../../../tests/veth/mod.rs"]
mod veth;

pub(crate) use btf::FILE as BTF;
pub use device::Attached;
#[cfg(feature = "verbs")]
pub(in crate::rx) use leg::admits;
pub use options::{BusyPoll, Mode, Options};

use super::socket::{MAX_LEGS, find_interface, open, tai_now, tai_offset};
use super::{Caps, Receiver, RxError};
use crate::error::{Error, Kind, Result};
use crate::event::{Event, What};
use crate::mem::Host;
use crate::ring::{Lease, Slot, SplitRing};
use crate::sdp::Leg;
use crate::stats::{Rejected, RxCounters};
use crate::time::Tai;
use crate::timing::Source;
use leg::{JoinedLeg, Sorted, sort};
use port::Port;
use program::{Wanted, stamp_before};
use socket::Queue;
use std::io;
use umem::{Frames, HEADROOM, chunk_for};

/// Packets in a lease at most.
const BATCH: usize = 256;
/// Rounds of one poll at most, when all that comes is rejected.
const ROUNDS: usize = 16;
/// Frames, at least and at most: 8 MiB to 512 MiB of 4096 octets.
const FRAMES: std::ops::RangeInclusive<u64> = 4096..=131_072;
/// Headers before a UDP payload at most: Ethernet with a tag, IPv6 (or IPv4 with 20 octets of options), UDP.
const HEADERS: u32 = 18 + 40 + 8;
/// Idle polls between two looks at the kernel's counters, and nanoseconds while packets come.
const LOOK_POLLS: u32 = 64;
const LOOK_NANOS: u64 = 100_000_000;

/// An XDP program that runs at an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its number.
    pub id: u32,
    /// Where it runs.
    pub attached: Attached,
    /// Its name; none without the right to know (CAP_SYS_ADMIN).
    pub name: Option<String>,
    /// It is the filter of this module.
    pub ours: bool,
}

/// The XDP program of an interface.
///
/// # Errors
/// There is no such interface.
pub fn running(interface: &str) -> Result<Option<Running>> {
    let interface = find_interface(interface)?;
    let device = device::query(interface.index).map_err(|e| {
        Error::new(Kind::Unavailable, format!("interface {} does not answer", interface.name)).because(e)
    })?;
    Ok(device.program.map(|(id, attached)| {
        let name = filter::name_of(id);
        Running { id, attached, ours: name.as_deref().is_some_and(filter::is_ours), name }
    }))
}

/// AF_XDP sockets as a receiver.
pub struct Xdp {
    // Ends before `ring`, in whose memory the kernel writes: fields are dropped in this order.
    ports: Vec<Port>,
    ring: SplitRing<Host>,
    frames: Frames,
    options: Options,
    legs: [Option<JoinedLeg>; MAX_LEGS],
    /// Counts polls: says which port and which queue is asked first.
    turn: usize,
    /// Memory for slots, and for the card's stamps of a batch.
    spare: Vec<Vec<Slot>>,
    stamps: Vec<u64>,
    caps: Caps,
    counters: RxCounters,
    /// Packets of no leg.
    strange: u64,
    /// What passed legs that were given up.
    left: u64,
    /// The last interface has gone: its name, and why.
    broken: Option<(String, io::Error)>,
    events: Vec<Event>,
    idle: u32,
    looked: Tai,
    tai_offset: i64,
}

impl Xdp {
    /// A receiver that does not receive anything yet; [`Receiver::join`] takes queues.
    ///
    /// # Errors
    /// Packets are too large for a frame, or there is no memory.
    pub fn open(options: Options) -> Result<Self> {
        let chunk = chunk_for(u32::from(options.max_octets) + HEADERS).ok_or_else(|| {
            Error::new(
                Kind::Unavailable,
                format!("packets of {} octets do not fit into a frame of AF_XDP (one page)", options.max_octets),
            )
            .cure("receive with sockets, or let the sender use the standard UDP size limit (1460)")
        })?;
        let wanted = match u128::from(options.packets) * options.hold.as_nanos() / 1_000_000_000 {
            _ if options.packets == 0 => 32_768,
            wanted => u64::try_from(wanted).unwrap_or(u64::MAX),
        };
        let count = wanted.clamp(*FRAMES.start(), *FRAMES.end()) as u32;
        let (frames, region) = Frames::new(count, chunk)?;
        let mut note = format!("{count} frames of {chunk} octets in huge pages where the kernel gives them");
        if options.packets > 0 {
            let ms = f64::from(count) * 1e3 / options.packets as f64;
            note = format!("{note}: {ms:.0} ms at {} packets/s", options.packets);
        }
        let caps = Caps {
            backend: "xdp",
            notes: vec![note, "UDP checksums are not checked; no merging (GRO)".into()],
            batch: BATCH,
            buffer_octets: u64::from(count) * u64::from(options.max_octets),
            live: true,
            stamps: Source::Software,
        };
        let tai_offset = tai_offset(options.utc_offset_s);
        Ok(Xdp {
            ports: Vec::new(),
            ring: SplitRing::whole(region),
            frames,
            options,
            legs: [None, None],
            turn: 0,
            spare: (0..8).map(|_| Vec::with_capacity(BATCH)).collect(),
            stamps: Vec::with_capacity(BATCH),
            caps,
            counters: RxCounters::default(),
            strange: 0,
            left: 0,
            broken: None,
            events: Vec::new(),
            idle: 0,
            looked: Tai(0),
            tai_offset,
        })
    }

    fn clock(&self) -> Option<Tai> {
        tai_now(self.tai_offset)
    }

    /// What the arrivals carry now: the least of all interfaces.
    #[inline]
    fn source(&self) -> Source {
        let of_port = |port: &Port| port.stamps().map_or(Source::Software, |stamps| stamps.source());
        let all = self.ports.iter().all(|port| of_port(port) == Source::Hardware);
        if all { Source::Hardware } else { Source::Software }
    }

    /// The port of an interface, which is opened when it is new, with the queues of a flow; and the rule made for it.
    fn port(&mut self, index: u32, wanted: &Wanted, notes: &mut Vec<String>) -> Result<(usize, Option<steer::Rule>)> {
        let known = self.ports.iter().position(|port| port.index() == index);
        if let Some((number, port)) = known.and_then(|number| Some((number, self.ports.get_mut(number)?))) {
            return Ok((number, port.serve(wanted, &self.options, &mut self.frames, notes)?));
        }
        let mut port = Port::open(index, &self.options, notes)?;
        let rule = port.serve(wanted, &self.options, &mut self.frames, notes)?;
        self.ports.push(port);
        Ok((self.ports.len() - 1, rule))
    }

    /// One round over all queues. `true` when something came.
    fn receive(&mut self, slots: &mut Vec<Slot>) -> bool {
        let Some(now) = self.clock() else { return false };
        let (mut came, mut low) = (0, false);
        for n in 0..self.ports.len() {
            let number = self.turn.wrapping_add(n) % self.ports.len();
            let Some(port) = self.ports.get_mut(number).filter(|port| !port.gone) else { continue };
            // A queue that fills the batch is not the first one next time: two legs may come by two queues.
            let (queues, mut card) = port.queues_from(self.turn);
            for queue in queues.into_iter().flatten() {
                let memory = self.ring.head_plane().as_slice();
                let (frames, legs) = (&mut self.frames, &self.legs);
                let (counters, strange) = (&mut self.counters, &mut self.strange);
                let (stamps, stamped) = (&mut self.stamps, card.is_some());
                let before = slots.len();
                stamps.clear();
                let rings = queue.rings();
                let got = rings.receive(BATCH - slots.len(), |packet| {
                    let slot = match sort(memory, &packet, legs, number) {
                        Sorted::Wanted { leg, at, octets } => {
                            counters.datagrams += 1;
                            counters.octets += u64::from(octets);
                            if stamped {
                                stamps.push(stamp_before(memory, packet.addr as usize));
                            }
                            let arrival = now;
                            Slot { head_at: at, body_at: 0, head: octets, octets, wire_octets: octets, leg, arrival }
                        }
                        Sorted::Rejected(reason) => {
                            counters.rejected.add(reason);
                            return frames.give(packet.addr);
                        }
                        Sorted::Strange => {
                            *strange += 1;
                            return frames.give(packet.addr);
                        }
                    };
                    slots.push(slot);
                });
                let new = slots.get_mut(before..).unwrap_or_default();
                if let Some(card) = card.as_mut().filter(|_| !new.is_empty()) {
                    // Now that they have come: a stamp is not later than its reading.
                    let read = tai_now(self.tai_offset).unwrap_or(now);
                    card.read(stamps.iter().rev().copied().find(|stamp| *stamp != 0).unwrap_or(0), read);
                    for (slot, stamp) in new.iter_mut().zip(stamps.iter()) {
                        slot.arrival = card.arrival(*stamp, now);
                    }
                    card.judge(read);
                }
                came += got;
                low |= rings.is_low();
                if rings.is_behind() {
                    let more = frames.promise(rings.depth());
                    rings.set_depth(rings.depth() + more);
                }
                rings.refill(frames);
                queue.packets += got as u64;
                queue.wake();
            }
        }
        self.turn = self.turn.wrapping_add(1);
        if came == 0 {
            self.counters.starved += u64::from(low && self.frames.free() == 0);
            self.idle += 1;
        } else {
            self.counters.calls += 1;
            self.caps.stamps = self.source();
        }
        if self.idle >= LOOK_POLLS || now.0.wrapping_sub(self.looked.0) >= LOOK_NANOS {
            (self.idle, self.looked) = (0, now);
            self.look();
        }
        came > 0
    }

    /// Asks the kernel what it has dropped.
    fn look(&mut self) {
        for number in 0..self.ports.len() {
            let Some(port) = self.ports.get_mut(number).filter(|port| !port.gone) else { continue };
            if let Err(e) = port.queues().iter_mut().try_for_each(Queue::refresh) {
                port.gone = true;
                let name = port.name().to_owned();
                self.tell_gone(number, name, e);
            }
        }
        for leg in self.legs.iter_mut().flatten() {
            leg.look_beside(&mut self.counters.rejected);
        }
        let of_queues = self.ports.iter().flat_map(Port::statistics).map(|(_, _, s)| s.dropped + s.ring_full);
        let passed = self.legs.iter().flatten().map(|leg| leg.passed);
        self.counters.kernel_dropped = of_queues.chain(passed).sum::<u64>() + self.left;
    }

    /// An interface has gone, and its legs with it. That ends this receiver when it was the last one.
    fn tell_gone(&mut self, number: usize, name: String, e: io::Error) {
        tracing::debug!("interface {name} has gone: {e}");
        let at = self.clock().unwrap_or_default();
        let of_it = self.legs.iter().enumerate().filter(|(_, leg)| leg.as_ref().is_some_and(|leg| leg.port == number));
        let what = |leg: usize| What::InterfaceGone { leg: leg as u8 };
        self.events.extend(of_it.map(|(leg, _)| Event { at, what: what(leg) }));
        if self.ports.iter().all(|port| port.gone) {
            self.broken = Some((name, e));
        }
    }

    /// Gives a leg up.
    fn leave(&mut self, leg: u8) {
        let Some(leg) = self.legs.get_mut(usize::from(leg)).and_then(Option::take) else { return };
        self.left += leg.passed;
        if let Some(port) = self.ports.get_mut(leg.port) {
            port.remove(&leg.wanted);
        }
    }
}

impl Receiver for Xdp {
    type Mem = Host;

    fn ring(&self) -> &SplitRing<Host> {
        &self.ring
    }

    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        let mut slots = self.spare.pop().unwrap_or_default();
        for _ in 0..ROUNDS {
            if !self.receive(&mut slots) || !slots.is_empty() {
                break;
            }
        }
        if slots.is_empty()
            && let Some((name, e)) = self.broken.take()
        {
            let error = Error::new(Kind::Unavailable, format!("interface {name} has gone")).because(e);
            return Err(RxError::Gone(error.cure("start again when it is back")));
        }
        Ok(Lease::new(slots, 0))
    }

    fn release(&mut self, lease: Lease) {
        let mut slots = lease.slots;
        for slot in slots.drain(..) {
            self.frames.give(u64::from(slot.head_at));
        }
        self.spare.push(slots);
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn join(&mut self, leg: u8, what: &Leg) -> Result<()> {
        if usize::from(leg) >= MAX_LEGS {
            return Err(Error::new(Kind::Usage, format!("leg {leg}: a receiver takes {MAX_LEGS} legs at most"))
                .cure("receive the further legs with a second receiver"));
        }
        // The old one first: it may be the same flow.
        self.leave(leg);
        let mut notes = Vec::new();
        let (beside, interface) = open::beside(what, self.options.interface(leg), &mut notes)?;
        let interface = interface.ok_or_else(|| {
            Error::new(
                Kind::Unavailable,
                format!("AF_XDP needs an interface, and none has the address {}", what.destination),
            )
            .cure("name it with --interface, and send to one of its addresses")
        })?;
        let device = device::query(interface.index).map_err(|e| {
            Error::new(Kind::Unavailable, format!("interface {} does not answer", interface.name)).because(e)
        })?;
        let (index, vlan) = device.vlan_of.unwrap_or((interface.index, 0));
        let vlan = self.options.vlan.unwrap_or(vlan);
        let wanted = Wanted::new(what, vlan);
        let (port, _rule) = self.port(index, &wanted, &mut notes)?;
        if let Some(place) = self.ports.get_mut(port) {
            place.add(&wanted, &beside)?;
            notes.extend(place.warnings(vlan, self.frames.chunk() - HEADROOM));
        }
        let mut joined =
            JoinedLeg { port, wanted, _rule, sources: what.sources.clone(), beside, passed: 0, overflowed: 0 };
        // What came before the filter knew the flow was not lost by it.
        joined.look_beside(&mut Rejected::default());
        joined.passed = 0;
        if let Some(place) = self.legs.get_mut(usize::from(leg)) {
            *place = Some(joined);
        }
        self.caps.stamps = self.source();
        let prefix = |note: String| if leg == 0 { note } else { format!("leg {leg}: {note}") };
        self.caps.notes.extend(notes.into_iter().map(prefix));
        Ok(())
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }
    fn dropped(&self, leg: u8) -> u64 {
        let Some(leg) = self.legs.get(usize::from(leg)).and_then(Option::as_ref) else { return 0 };
        let of_port = self.ports.get(leg.port).into_iter().flat_map(Port::statistics);
        of_port.map(|(_, _, s)| s.dropped + s.ring_full).sum::<u64>() + leg.passed
    }

    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        self.look();
        for (name, queue, s) in self.ports.iter().flat_map(Port::statistics) {
            let packets = queue.packets;
            if packets + s.dropped + s.ring_full + s.fill_empty > 0 {
                remarks.push(format!(
                    "{name} queue {}: {packets} packets, {} dropped by the kernel (too large, or no frame), {} because the receive ring was full; the fill ring was empty {} times",
                    queue.number, s.dropped, s.ring_full, s.fill_empty
                ));
            }
        }
        for port in &self.ports {
            if let Some(stamps) = port.stamps() {
                stamps.tell(port.name(), "the poll", remarks);
            }
        }
        let passed: u64 = self.legs.iter().flatten().map(|leg| leg.passed).sum();
        if passed > 0 {
            remarks.push(format!(
                "{passed} datagrams of the flow went past AF_XDP to the kernel: fragments, IPv6 extension headers, or by a queue that is not served; they are counted as dropped"
            ));
        }
        if self.strange > 0 {
            remarks.push(format!("{} packets came that belong to no leg", self.strange));
        }
        Ok(())
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }
    fn now(&self) -> Option<Tai> {
        let now = self.clock()?;
        let of_cards = self.ports.iter().map(|port| port.stamps().map_or(now, |stamps| stamps.now(now)));
        Some(of_cards.min().unwrap_or(now))
    }
}

impl Drop for Xdp {
    fn drop(&mut self) {
        for leg in 0..MAX_LEGS as u8 {
            self.leave(leg);
        }
    }
}
