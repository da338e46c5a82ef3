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
//! | `port` | a port: attached, started, who has it beside us |
//! | `leg` | what a leg's packets look like, and what makes them come |
//! | `ticks` | what a card's clock counts |
//!
//! A port is a PCI device that is bound to `vfio-pci`, a card that shares its port with the kernel (mlx5), or a virtual device over
//! an interface (`net_af_packet`, `net_af_xdp`) or a capture (`net_pcap`). It serves one receiver, for both of its legs.
//!
//! Built with the feature `dpdk`, against the libraries of `libdpdk-dev`. Run on virtual devices; on no card yet.
#![allow(unsafe_code)]

mod abi;
mod eal;
mod leg;
mod options;
mod port;
mod ticks;

pub use options::Options;

use super::socket::{MAX_LEGS, tai_now, tai_offset};
use super::{Caps, Planes, Receiver, RxError};
use crate::error::{Error, Kind, Result};
use crate::event::{Event, What};
#[cfg(feature = "cuda")]
use crate::mem::Device;
use crate::ring::{Lease, Slot, SplitRing};
use crate::sdp::Leg;
use crate::stats::{Reason, RxCounters};
use crate::time::Tai;
use crate::timing::Source;
use abi::{Packet, Pool};
use leg::{JoinedLeg, Sorted, sort};
use port::{Port, Ports};

/// Packets in a lease at most.
const BATCH: usize = abi::BURST;
/// Rounds of one poll at most, when all that comes is of no use.
const ROUNDS: usize = 16;
/// Buffers for packets that wait and that are read, at least and at most.
const BUFFERS: std::ops::RangeInclusive<u64> = 4096..=131_072;
/// Headers before a UDP payload at most: Ethernet with a tag, IPv6 (or IPv4 with 20 octets of options), UDP.
const HEADERS: u32 = 18 + 40 + 8;
/// Octets that a frame has at least: `net_af_packet` takes no less.
const LEAST_ROOM: u32 = 2048;
/// Cards round a buffer's room down, so that frames come in two pieces: to 128 octets (i40e, ice), to 1024 (ixgbe).
const ROOM_UNIT: u32 = 1024;
/// Headers before a UDP payload as a card is to cut it: Ethernet, IPv4, UDP; a tag comes on top.
#[cfg(feature = "cuda")]
const CUT_BEFORE: u16 = 14 + 20 + 8;
/// Nanoseconds between two looks at what the ports count, and at what there is to say.
const LOOK_NANOS: u64 = 100_000_000;

/// Which DPDK this program was built with, such as `DPDK 22.11.11`.
pub fn version() -> &'static str {
    abi::version()
}

/// A flow as DPDK receives it, its body plane in the space `M`.
pub struct Dpdk<M: Planes> {
    // Drivers write to the pools, and pools lie in the ring: fields are dropped in this order.
    ports: Ports,
    bodies: Option<Pool>,
    pool: Pool,
    ring: SplitRing<M>,
    /// By leg number, as the options name them.
    port_of: Vec<usize>,
    options: Options,
    legs: [Option<JoinedLeg>; MAX_LEGS],
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
    tai_offset: i64,
}

impl<M: Planes> Dpdk<M> {
    /// Opens the ports that the options name; packets lie whole in memory of the host. `from` gives the memory. Nothing is received
    /// before [`Receiver::join`].
    ///
    /// # Errors
    /// DPDK does not start, a port cannot be had, or there is no memory; each has words of its own, and the process goes on.
    pub fn open(options: Options, from: &M::Source) -> Result<Self> {
        Self::build(options, false, |_, count, room, _| {
            let mut head = M::head(from, abi::octets_for(count, room).max(1))?;
            // SAFETY: the region becomes the ring's, to which DPDK alone writes, and which outlives the pool (the fields' order).
            let pool = unsafe { Pool::new(&mut head, count, room) }.map_err(|refused| no_pool(count, refused))?;
            Ok(Built { pool, bodies: None, ring: SplitRing::whole(head), split: None, place: M::NAME })
        })
    }

    /// `splits`: only ports that cut packets in two will do.
    fn build(
        options: Options,
        splits: bool,
        memory: impl FnOnce(&Options, u32, u32, &mut Vec<String>) -> Result<Built<M>>,
    ) -> Result<Self> {
        if options.ports.is_empty() {
            return Err(Error::new(Kind::Usage, "DPDK is told no port").cure(
                "name one for each leg: --dpdk port=0000:3b:00.0, or --dpdk 'port=net_af_packet,iface=eth1;eal=--no-huge'",
            ));
        }
        eal::start(&options.eal)?;
        let mut notes = vec![abi::version().to_owned()];
        let (mut ports, mut port_of) = (Ports::default(), Vec::new());
        for (number, spec) in options.ports.iter().enumerate() {
            let same = options.ports.iter().take(number).position(|other| other == spec);
            let known = same.and_then(|same| port_of.get(same).copied());
            if known.is_none() {
                ports.push(Port::open(spec, number, &options, &mut notes)?);
            }
            port_of.push(known.unwrap_or(ports.len() - 1));
        }
        if let Some(port) = ports.iter().find(|port| splits && !port.info().splits) {
            return Err(Error::new(
                Kind::Unavailable,
                format!(
                    "driver {} of port {} does not cut packets in two (buffer split)",
                    port.info().driver,
                    port.name()
                ),
            )
            .cure("packets go into pinned memory, from where the GPU reads them"));
        }
        let needed = u32::from(options.max_octets) + HEADERS;
        let room = options.room.map_or_else(|| needed.max(LEAST_ROOM), u32::from);
        if room < needed {
            return Err(Error::new(
                Kind::Usage,
                format!("room={room} is too small for packets of {} octets", options.max_octets),
            )
            .cure(format!("at least room={needed}")));
        }
        let room = room.next_multiple_of(ROOM_UNIT);
        let wanted = match u128::from(options.packets) * options.hold.as_nanos() / 1_000_000_000 {
            _ if options.packets == 0 => 16_384,
            wanted => u64::try_from(wanted).unwrap_or(u64::MAX),
        };
        let wanted = wanted.clamp(*BUFFERS.start(), *BUFFERS.end()) as u32;
        let queues = ports.len() as u32 * u32::from(options.queues);
        let count = wanted + queues * u32::from(options.descriptors);
        // Places in a pool are numbers of 32 bits, and the pool of bodies is no larger.
        let octets = abi::octets_for(count, room);
        if u32::try_from(octets).is_err() {
            return Err(Error::new(
                Kind::Usage,
                format!("{count} buffers of {room} octets are {} MiB, and a receiver has 4095 at most", octets >> 20),
            )
            .cure("ask for fewer: queues=, descriptors=, hold=, room="));
        }
        let built = memory(&options, count, room, &mut notes)?;
        let mib = |octets: usize| octets.div_ceil(1 << 20);
        let mut note = format!("{count} buffers of {room} octets, {} MiB of {}", mib(built.ring.size()), built.place);
        if options.packets > 0 {
            let ms = f64::from(wanted) * 1e3 / options.packets as f64;
            note = format!("{note}: {ms:.0} ms at {} packets/s", options.packets);
        }
        notes.push(note);
        let split = built.split.zip(built.bodies.as_ref());
        // SAFETY: pools are dropped after ports: here, and by the fields' order.
        let mut start = |port: &mut Port| unsafe { port.start(&options, &built.pool, split, &mut notes) };
        if let Err(error) = ports.iter_mut().try_for_each(&mut start) {
            drop(ports);
            return Err(error);
        }
        if let gpus @ 1.. = abi::gpus() {
            notes.push(format!(
                "DPDK has a driver for {gpus} GPU(s) (rte_gpu); gdmedia registers memory with CUDA itself"
            ));
        }
        notes.push("UDP checksums are not checked; no merging (GRO)".into());
        let caps = Caps {
            backend: "dpdk",
            notes,
            batch: BATCH,
            buffer_octets: u64::from(count) * u64::from(options.max_octets),
            live: true,
            stamps: Source::Software,
        };
        let tai_offset = tai_offset(options.utc_offset_s);
        let mut new = Dpdk {
            ports,
            bodies: built.bodies,
            pool: built.pool,
            ring: built.ring,
            port_of,
            options,
            legs: [None, None],
            turn: 0,
            packets: vec![Packet::EMPTY; BATCH],
            unwanted: Vec::with_capacity(BATCH),
            stamps: Vec::with_capacity(BATCH),
            spare: (0..8).map(|_| Vec::with_capacity(BATCH)).collect(),
            leased: 0,
            buffers: count as usize,
            caps,
            counters: RxCounters::default(),
            room,
            scattered: 0,
            outside: 0,
            lost: 0,
            lost_by_leg: [0; MAX_LEGS],
            broken: None,
            events: Vec::new(),
            looked: Tai(0),
            tai_offset,
        };
        new.caps.stamps = new.source();
        Ok(new)
    }

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
            let Some(port) = self.ports.get_mut(number).filter(|port| !port.gone) else { continue };
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
                    let start = at as usize;
                    let frame = memory.get(start..start.saturating_add(packet.here as usize)).unwrap_or_default();
                    let sorted = sort(frame, packet.octets, recorded, &self.legs, number);
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

    /// Forgets what has come before anything was joined: rings of drivers fill from the moment when a port is attached, and may be
    /// full of old packets, behind which others are lost already.
    fn forget(&mut self) {
        let Dpdk { ports, packets, pool, ring, unwanted, .. } = self;
        for port in ports.iter_mut().filter(|port| !port.is_recorded()) {
            for queue in 0..port.queues() {
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
        }
    }

    /// Asks the ports what they have dropped, and says what is due.
    fn look(&mut self, now: Tai) {
        let Dpdk { ports, legs, events, .. } = self;
        for (number, port) in ports.iter_mut().enumerate().filter(|(_, port)| !port.gone) {
            port.look(legs, number);
            port.tick();
            if port.gone {
                tracing::debug!("port {} has gone", port.name());
                let of_it =
                    legs.iter().enumerate().filter(|(_, leg)| leg.as_ref().is_some_and(|leg| leg.port == number));
                events.extend(of_it.map(|(leg, _)| Event { at: now, what: What::InterfaceGone { leg: leg as u8 } }));
            }
        }
        self.counters.kernel_dropped = self.lost + self.ports.iter().map(lost).sum::<u64>();
        if !self.ports.is_empty() && self.ports.iter().all(|port| port.gone) {
            // That ends this receiver. The next one may have the same ports, while buffers of these are read still.
            self.broken = self.ports.last().map(|port| port.name().to_owned());
            self.lost = self.counters.kernel_dropped;
            self.lost_by_leg = std::array::from_fn(|leg| self.lost_of(leg));
            self.legs = [None, None];
            self.ports.close();
        }
    }

    /// What a leg's port has lost.
    fn lost_of(&self, leg: usize) -> u64 {
        let joined = self.legs.get(leg).and_then(Option::as_ref);
        let port = joined.and_then(|leg| self.ports.get(leg.port));
        port.map_or_else(|| self.lost_by_leg.get(leg).copied().unwrap_or(0), lost)
    }

    /// Gives a leg up.
    fn leave(&mut self, leg: u8) {
        let Some(joined) = self.legs.get_mut(usize::from(leg)).and_then(Option::take) else { return };
        if let Some(port) = self.ports.get_mut(joined.port) {
            port.leave(leg, joined);
        }
    }
}

#[cfg(feature = "cuda")]
impl Dpdk<Device> {
    /// The same with what follows the headers in memory of the GPU, where the driver cuts packets in two.
    ///
    /// # Errors
    /// As of [`Dpdk::open`]; or a driver does not, which is all but a few of PCI cards.
    pub fn open_split(options: Options, gpu: &std::sync::Arc<crate::gpu::Gpu>) -> Result<Self> {
        Self::build(options, true, |options, count, room, notes| {
            let cut = CUT_BEFORE + options.split + if options.vlan.is_some() { 4 } else { 0 };
            let mut head = <Device as Planes>::head(gpu, abi::octets_for(count, u32::from(cut)))?;
            let stride = room as usize + HEADROOM;
            let octets = (stride * count as usize).next_multiple_of(super::planes::PAGE);
            let mut body = <Device as Planes>::body(gpu, octets, notes)?;
            // SAFETY: the regions become the ring's, to which DPDK alone writes, and which outlives the pools.
            let pools = unsafe { (Pool::new(&mut head, count, u32::from(cut)), Pool::over(&mut body, count, room)) };
            let pool = pools.0.map_err(|refused| no_pool(count, refused))?;
            let bodies = pools.1.map_err(|refused| no_pool(count, refused))?;
            let ring = SplitRing::split(head, body);
            Ok(Built { pool, bodies: Some(bodies), ring, split: Some(cut), place: <Device as Planes>::NAME })
        })
    }
}

/// What DPDK keeps free before a packet (`RTE_PKTMBUF_HEADROOM`).
#[cfg(feature = "cuda")]
const HEADROOM: usize = 128;

/// Memory, and the pools in it.
struct Built<M: Planes> {
    pool: Pool,
    bodies: Option<Pool>,
    ring: SplitRing<M>,
    /// Octets of a frame that go to the first pool.
    split: Option<u16>,
    place: &'static str,
}

fn no_pool(count: u32, refused: abi::Refused) -> Error {
    let cure = match refused.errno {
        libc::ENOMEM | libc::ENOSPC => {
            "give DPDK more memory (eal=… -m MIB), or hold packets for a shorter time (hold=)"
        }
        _ => "see docs/dpdk.md",
    };
    Error::new(Kind::Unavailable, format!("DPDK makes no pool of {count} buffers")).because(refused).cure(cure)
}

/// What a port has lost.
fn lost(port: &Port) -> u64 {
    port.counted().lost()
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
            return Err(RxError::Failed(error.cure("start again when it is back")));
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
        if self.legs.iter().all(Option::is_none) {
            self.forget();
            self.ports.iter_mut().for_each(Port::begin_counting);
        }
        // The old one first: it may be the same flow.
        self.leave(leg);
        let mut notes = Vec::new();
        let number = self.port_of.get(usize::from(leg)).or(self.port_of.last()).copied().unwrap_or(0);
        let Some(port) = self.ports.get_mut(number) else {
            return Err(Error::new(Kind::Internal, "a receiver without ports"));
        };
        let joined = port.join(leg, number, what, &self.options, &mut notes)?;
        if let Some(place) = self.legs.get_mut(usize::from(leg)) {
            *place = Some(joined);
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
        self.look(now);
        for port in self.ports.iter() {
            let (name, c) = (port.name(), port.counted());
            remarks.push(format!(
                "{name}: {} packets; lost: {} because nobody took them in time, {} without a buffer, {} with errors",
                c.packets, c.missed, c.no_buffer, c.errors
            ));
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
