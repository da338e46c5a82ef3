//! Receiver: DPDK. Its drivers take packets from a port without the kernel's network stack, and put them into a pool that lies in
//! memory of ours: the ring. Leases hold the pool's buffers.
//!
//! ```text
//! driver -> burst -> frames of the flow -> slots -> lease
//!    ^          \--> all others: ARP, IGMP (crate::rx::host)
//!    |                                        |
//!    +---- pool of buffers, in the ring <-----+
//! ```
//!
//! | module | knows |
//! | --- | --- |
//! | `shim/*.c` | DPDK: its environment, pools, ports, rules. No structure of it crosses over |
//! | `abi` | the shim's calls |
//! | `eal` | one start for all receivers of a process |
//! | `port`, `name`, `failure` | a port: attached, started, who has it beside us; what it is called; the words for what is not had |
//! | `link` | whether its link is up |
//! | `leg` | what a leg's packets look like, and what makes them come |
//! | `revive` | one of several ports that comes back while the others receive |
//! | `open` | everything between the options and the first packet |
//! | `ticks` | what a card's clock counts |
//!
//! A port is a PCI device that is bound to `vfio-pci`, a card that shares its port with the kernel (mlx5), or a virtual device over
//! an interface (`net_af_packet`, `net_af_xdp`) or a capture (`net_pcap`). It serves one receiver, for both of its legs.
//!
//! Built with the feature `dpdk`, against the libraries of `libdpdk-dev`. Run on virtual devices; on no card yet.
#![allow(unsafe_code)]

mod abi;
mod eal;
mod failure;
mod leg;
mod link;
mod name;
mod open;
mod options;
mod port;
mod revive;
mod ticks;

pub use options::Options;

use super::socket::{MAX_LEGS, tai_now};
use super::{Caps, Planes, Receiver, RxError};
use crate::error::{Error, Kind, Result};
use crate::event::{Event, What};
use crate::ring::{Lease, Slot, SplitRing};
use crate::sdp::Leg;
use crate::stats::{Reason, RxCounters};
use crate::time::Tai;
use crate::timing::Source;
use abi::{Packet, Pool};
use leg::{JoinedLeg, Sorted, sort};
use port::{Port, Ports};
use revive::Reviver;
use std::sync::Arc;

/// Packets in a lease at most.
const BATCH: usize = abi::BURST;
/// Rounds of one poll at most, when all that comes is of no use.
const ROUNDS: usize = 16;
/// Nanoseconds between two looks at what the ports count, and at what there is to say.
const LOOK_NANOS: u64 = 100_000_000;
/// Nanoseconds between two tries to join a leg whose port is back.
const REJOIN_NANOS: u64 = 1_000_000_000;

/// Which DPDK this program was built with, such as `DPDK 22.11.11`.
pub fn version() -> &'static str {
    abi::version()
}

/// A flow as DPDK receives it, its body plane in the space `M`.
pub struct Dpdk<M: Planes> {
    // Drivers write to the pools, and pools lie in the ring: fields are dropped in this order.
    reviver: Option<Reviver>,
    ports: Ports,
    bodies: Option<Arc<Pool>>,
    pool: Arc<Pool>,
    ring: SplitRing<M>,
    /// By leg number, as the options name them.
    port_of: Vec<usize>,
    options: Options,
    legs: [Option<JoinedLeg>; MAX_LEGS],
    /// What they are to receive, those of a port that has gone among them.
    wanted: [Option<Leg>; MAX_LEGS],
    /// Counts polls: says which port and which queue is asked first.
    turn: usize,
    packets: Vec<Packet>,
    /// Places of packets that nobody gets.
    unwanted: Vec<u32>,
    stamps: Vec<u64>,
    spare: Vec<Vec<Slot>>,
    /// Buffers that leases hold, of so many.
    leased: usize,
    buffers: usize,
    caps: Caps,
    counters: RxCounters,
    /// Octets of a frame that have room.
    room: u32,
    /// Packets in more pieces than were asked for.
    scattered: u64,
    /// Packets that a driver put into memory of its own.
    outside: u64,
    /// Lost by ports that have gone, all in all and by leg.
    lost: u64,
    lost_by_leg: [u64; MAX_LEGS],
    /// The last port that has gone, once none is left.
    broken: Option<String>,
    events: Vec<Event>,
    looked: Tai,
    /// When legs without a port were tried last.
    rejoined: Tai,
    tai_offset: i64,
}

impl<M: Planes> Dpdk<M> {
    fn clock(&self) -> Option<Tai> {
        tai_now(self.tai_offset)
    }

    /// What the arrivals carry now: the least of all ports.
    fn source(&self) -> Source {
        let hardware = |port: &Port| port.stamps.is_some_and(|(stamps, _)| stamps.source() == Source::Hardware);
        if self.ports.iter().all(hardware) { Source::Hardware } else { Source::Software }
    }

    /// One round over all queues. `true` when something came.
    fn receive(&mut self, slots: &mut Vec<Slot>) -> bool {
        let Some(now) = self.clock() else { return false };
        let (mut came, mut outside) = (0, 0);
        let count = self.ports.len();
        for n in 0..count {
            let number = self.turn.wrapping_add(n) % count;
            let Some(port) = self.ports.get_mut(number) else { continue };
            for queue in 0..port.queues() {
                // A queue that fills the batch is not the first one next time: two legs may come by two queues.
                let queue = (self.turn as u16).wrapping_add(queue) % port.queues();
                let room = BATCH.saturating_sub(slots.len());
                let Some(packets) = self.packets.get_mut(..room).filter(|packets| !packets.is_empty()) else { break };
                let got = port.receive(queue, packets);
                let memory = self.ring.head_plane().as_slice();
                let (before, recorded) = (slots.len(), port.is_recorded());
                self.stamps.clear();
                for packet in packets.iter().take(got) {
                    let Some(at) = self.pool.place(packet.data()) else {
                        outside += 1;
                        // SAFETY: it came just now, and nobody else has it.
                        unsafe { packet.free() };
                        continue;
                    };
                    if !packet.is_whole() {
                        // What it names beyond its pieces is old, or another packet's.
                        self.counters.hardware_issues += 1;
                        self.unwanted.push(at);
                        continue;
                    }
                    let start = at as usize;
                    let frame = memory.get(start..start.saturating_add(packet.here as usize)).unwrap_or_default();
                    let sorted = sort(frame, packet.octets, recorded, &self.legs, port.number());
                    let (leg, from, octets, wire) = match sorted {
                        Sorted::Wanted { leg, at, octets, wire } => (leg, at, octets, wire),
                        Sorted::Rejected(reason) => {
                            self.counters.rejected.add(reason);
                            self.unwanted.push(at);
                            continue;
                        }
                        Sorted::Other => {
                            port.other(frame);
                            self.unwanted.push(at);
                            continue;
                        }
                    };
                    let head = packet.here.saturating_sub(from).min(octets.into()) as u16;
                    let body = match (&self.bodies, head < octets) {
                        (_, false) => Some(0),
                        (Some(bodies), true) if packet.pieces == 2 => bodies.place(packet.body()),
                        _ => None,
                    };
                    let Some(body_at) = body else {
                        // Larger than its room, in pieces: no ring of ours holds it so.
                        self.scattered += 1;
                        self.counters.rejected.add(Reason::Truncated);
                        self.unwanted.push(at);
                        continue;
                    };
                    self.counters.datagrams += 1;
                    self.counters.cut += u64::from(octets < wire);
                    self.counters.octets += u64::from(octets);
                    if port.stamps.is_some() {
                        self.stamps.push(packet.stamp);
                    }
                    slots.push(Slot {
                        head_at: at + from,
                        body_at,
                        head,
                        octets,
                        wire_octets: wire,
                        leg,
                        arrival: now,
                    });
                }
                let new = slots.get_mut(before..).unwrap_or_default();
                if let Some((card, ticks)) = port.stamps.as_mut().filter(|_| !new.is_empty()) {
                    // Now that they have come: a stamp is not later than its reading.
                    let read = tai_now(self.tai_offset).unwrap_or(now);
                    let last = self.stamps.iter().rev().copied().find(|stamp| *stamp != 0).unwrap_or(0);
                    card.read(ticks.nanoseconds(last), read);
                    for (slot, stamp) in new.iter_mut().zip(self.stamps.iter()) {
                        slot.arrival = card.arrival(ticks.nanoseconds(*stamp), now);
                    }
                    card.judge(read);
                }
                if !self.unwanted.is_empty() {
                    self.pool.give_back(&self.unwanted);
                    self.unwanted.clear();
                }
                came += got;
            }
        }
        self.turn = self.turn.wrapping_add(1);
        self.outside += outside;
        if came > 0 {
            self.counters.calls += 1;
            self.caps.stamps = self.source();
        } else if self.leased * 2 > self.buffers && self.pool.left() == 0 {
            self.counters.starved += 1;
        }
        if now.0.wrapping_sub(self.looked.0) >= LOOK_NANOS {
            self.looked = now;
            self.look(now);
        }
        came > 0
    }

    /// Forgets what has come by a port before anything was joined: rings of drivers fill from the moment when a port is attached, and
    /// may be full of old packets, behind which others are lost already.
    fn forget(&mut self, number: usize) {
        let Dpdk { ports, packets, pool, ring, unwanted, .. } = self;
        let Some(port) = ports.of_mut(number) else { return };
        for queue in 0..if port.is_recorded() { 0 } else { port.queues() } {
            // More than any ring holds.
            for _ in 0..4096 {
                let got = port.receive(queue, packets);
                if got == 0 {
                    break;
                }
                for packet in packets.iter().take(got) {
                    let Some(at) = pool.place(packet.data()) else {
                        // SAFETY: it came just now, and nobody else has it.
                        unsafe { packet.free() };
                        continue;
                    };
                    let start = at as usize;
                    let frame = ring.head_plane().as_slice().get(start..start + packet.here as usize);
                    port.other(frame.unwrap_or_default());
                    unwanted.push(at);
                }
                pool.give_back(unwanted);
                unwanted.clear();
            }
        }
        port.begin_counting();
    }

    /// Asks the ports what they have dropped, and says what is due.
    fn look(&mut self, now: Tai) {
        while let Some(port) = self.reviver.as_ref().and_then(Reviver::take) {
            self.regain(port, now);
        }
        if now.0.wrapping_sub(self.rejoined.0) >= REJOIN_NANOS && (0..MAX_LEGS as u8).any(|leg| self.is_left_out(leg)) {
            self.rejoin(now);
        }
        self.look_at_ports(now);
    }

    fn look_at_ports(&mut self, now: Tai) {
        for port in self.ports.iter_mut() {
            port.look();
            port.tick();
        }
        while let Some(port) = self.ports.take_gone() {
            self.lose(port, now);
        }
        self.counters.kernel_dropped = self.lost + self.ports.iter().map(Port::lost).sum::<u64>();
    }

    /// A port has gone. The last one ends this receiver: the next one may have the same ports, while buffers of these are read still.
    #[cold]
    fn lose(&mut self, port: Port, now: Tai) {
        tracing::debug!("port {} has gone", port.name());
        let (number, lost) = (port.number(), port.lost());
        self.lost += lost;
        for (leg, joined) in self.legs.iter_mut().enumerate() {
            if joined.take_if(|leg| leg.port == number).is_some() {
                self.events.push(Event { at: now, what: What::InterfaceGone { leg: leg as u8 } });
                if let Some(of_leg) = self.lost_by_leg.get_mut(leg) {
                    *of_leg += lost;
                }
            }
        }
        if self.ports.is_empty() {
            self.broken = Some(port.name().to_owned());
            self.reviver = None;
        } else if let Some(reviver) = &self.reviver {
            reviver.lose(port);
        }
    }

    /// A port is back, and its legs are joined anew.
    #[cold]
    fn regain(&mut self, port: Port, now: Tai) {
        let number = port.number();
        tracing::debug!("port {} is back", port.name());
        self.ports.push(port);
        self.forget(number);
        for leg in 0..MAX_LEGS as u8 {
            let Some(what) = self.wanted.get(usize::from(leg)).cloned().flatten() else { continue };
            if self.port_of(leg) != number {
                continue;
            }
            match self.join_by_port(leg, &what, &mut Vec::new()) {
                Ok(()) => self.events.push(Event { at: now, what: What::InterfaceBack { leg } }),
                Err(error) => tracing::debug!("leg {leg} cannot be joined yet: {}", error.in_one_line()),
            }
        }
    }

    /// Legs whose port is there and which could not be joined when it came back: its interface may have had no address yet.
    #[cold]
    fn rejoin(&mut self, now: Tai) {
        self.rejoined = now;
        for leg in 0..MAX_LEGS as u8 {
            if self.is_left_out(leg)
                && let Some(what) = self.wanted.get(usize::from(leg)).cloned().flatten()
                && self.join_by_port(leg, &what, &mut Vec::new()).is_ok()
            {
                self.events.push(Event { at: now, what: What::InterfaceBack { leg } });
            }
        }
    }
    fn is_left_out(&self, leg: u8) -> bool {
        let of = usize::from(leg);
        self.legs.get(of).is_some_and(Option::is_none)
            && self.wanted.get(of).is_some_and(Option::is_some)
            && self.ports.of(self.port_of(leg)).is_some()
    }

    /// The number of a leg's port.
    fn port_of(&self, leg: u8) -> usize {
        self.port_of.get(usize::from(leg)).or(self.port_of.last()).copied().unwrap_or(0)
    }

    /// Has a leg's packets come, now or when its port is back.
    fn join_by_port(&mut self, leg: u8, what: &Leg, notes: &mut Vec<String>) -> Result<()> {
        let number = self.port_of(leg);
        let Some(port) = self.ports.of_mut(number) else {
            notes.push("its port has gone: joined when it is back".into());
            self.events.extend(self.clock().map(|at| Event { at, what: What::InterfaceGone { leg } }));
            return Ok(());
        };
        let joined = port.join(leg, what, &self.options, notes)?;
        if let Some(place) = self.legs.get_mut(usize::from(leg)) {
            *place = Some(joined);
        }
        Ok(())
    }

    /// What a leg's port has lost.
    fn lost_of(&self, leg: usize) -> u64 {
        let joined = self.legs.get(leg).and_then(Option::as_ref);
        let port = joined.and_then(|leg| self.ports.of(leg.port));
        self.lost_by_leg.get(leg).copied().unwrap_or(0) + port.map_or(0, Port::lost)
    }

    /// Gives a leg up.
    fn leave(&mut self, leg: u8) {
        if let Some(wanted) = self.wanted.get_mut(usize::from(leg)) {
            *wanted = None;
        }
        let Some(joined) = self.legs.get_mut(usize::from(leg)).and_then(Option::take) else { return };
        if let Some(port) = self.ports.of_mut(joined.port) {
            port.leave(leg, joined);
        }
    }
}

impl<M: Planes> Receiver for Dpdk<M> {
    type Mem = M;

    fn ring(&self) -> &SplitRing<M> {
        &self.ring
    }

    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        abi::know_this_thread();
        let mut slots = self.spare.pop().unwrap_or_default();
        for _ in 0..ROUNDS {
            if !self.receive(&mut slots) || !slots.is_empty() {
                break;
            }
        }
        self.leased += slots.len();
        if slots.is_empty()
            && let Some(name) = self.broken.take()
        {
            let error = Error::new(Kind::Unavailable, format!("port {name} has gone"));
            return Err(RxError::Gone(error.cure("start again when it is back")));
        }
        Ok(Lease::new(slots, 0))
    }

    fn release(&mut self, lease: Lease) {
        let mut slots = lease.slots;
        self.leased = self.leased.saturating_sub(slots.len());
        let mut places = [0; 64];
        for some in slots.chunks(places.len()) {
            for (place, slot) in places.iter_mut().zip(some) {
                *place = slot.head_at;
            }
            self.pool.give_back(places.get(..some.len()).unwrap_or_default());
        }
        slots.clear();
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
        if self.wanted.iter().all(Option::is_none) {
            (0..self.options.ports.len()).for_each(|number| self.forget(number));
        }
        // The old one first: it may be the same flow.
        self.leave(leg);
        let mut notes = Vec::new();
        self.join_by_port(leg, what, &mut notes)?;
        if let Some(wanted) = self.wanted.get_mut(usize::from(leg)) {
            *wanted = Some(what.clone());
        }
        let prefix = |note: String| if leg == 0 { note } else { format!("leg {leg}: {note}") };
        self.caps.notes.extend(notes.into_iter().map(prefix));
        Ok(())
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }
    fn dropped(&self, leg: u8) -> u64 {
        self.lost_of(usize::from(leg))
    }

    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        let now = self.clock().unwrap_or_default();
        self.ports.iter_mut().for_each(Port::ask);
        self.look_at_ports(now);
        for port in self.ports.iter() {
            let (name, c) = (port.name(), port.counted());
            remarks.push(format!(
                "{name}: {} packets; lost: {} because nobody took them in time, {} with errors",
                c.packets, c.missed, c.errors
            ));
            if c.no_buffer > 0 {
                remarks.push(format!("{name}: buffers ran out {} times: hold packets for longer (hold=)", c.no_buffer));
            }
            if port.link().downs() > 0 || port.link().is_down() {
                let now = if port.link().is_down() { ", and is down" } else { "" };
                remarks.push(format!("warning: {name}: its link went down {} times{now}", port.link().downs()));
            }
            if let Some(host) = port.host() {
                remarks.push(format!("{name}: {} questions of the network (ARP, IGMP) answered", host.answered()));
                if host.conflicts() > 0 {
                    remarks.push(format!("warning: another host has {} too", host.address()));
                }
            }
            if port.unsent() > 0 {
                remarks.push(format!(
                    "warning: {name}: {} frames of ours (ARP, IGMP) were not sent: the driver took none",
                    port.unsent()
                ));
            }
            if let Some((stamps, _)) = port.stamps {
                stamps.tell(name, "the poll", remarks);
            }
        }
        if self.outside > 0 {
            remarks.push(format!(
                "warning: the driver put {} packets into memory of its own, not into the ring: they were thrown away (with mlx5 \
                 leave mprq_en=1 out of port=)",
                self.outside
            ));
        }
        if self.scattered > 0 {
            remarks.push(format!(
                "{} packets were larger than the room of {} octets for a packet: they are rejected (room=, or MAXUDP in the SDP)",
                self.scattered, self.room
            ));
        }
        Ok(())
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }
    fn now(&self) -> Option<Tai> {
        let now = self.clock()?;
        let of_cards = self.ports.iter().map(|port| port.stamps.as_ref().map_or(now, |(stamps, _)| stamps.now(now)));
        Some(of_cards.min().unwrap_or(now))
    }
}

impl<M: Planes> Drop for Dpdk<M> {
    fn drop(&mut self) {
        for leg in 0..MAX_LEGS as u8 {
            self.leave(leg);
        }
    }
}
