//! Receiver: UDP sockets of the operating system.
//!
//! Each poll is one `recvmmsg` that does not wait. Memory is cut into cells of a whole GRO chain (64 KiB); a single
//! datagram uses the beginning of one. So both shapes, merged and single, may come in any call, and no switch between
//! modes can cut or lose a datagram (senders that write UDP checksum 0 are never merged, a network card may merge or
//! not from one moment to the next). Cells that were given back last are filled first, to stay in the cache; a cell
//! that is leased is never written to.
#![allow(unsafe_code)]

mod batch;
mod interface;
mod keep;
pub(super) mod open;
pub(super) mod stamps;

pub use interface::{Interface, by_route, find as find_interface, interfaces};
#[cfg(feature = "bypass")]
#[cfg_attr(not(feature = "rivermax"), allow(unused_imports))]
pub(in crate::rx) use open::member;
pub(crate) use open::{igmp_version, payload_held};

use super::{Caps, Receiver, RxError};
use crate::error::{Error, Kind, Result};
use crate::event::Event;
use crate::mem::{Host, Region};
use crate::ring::{Lease, SLACK, Slot, SplitRing};
use crate::rx::card::Stamps;
use crate::sdp::{Leg, SourceFilter};
use crate::stats::{Reason, RxCounters};
use crate::time::Tai;
use crate::timing::Source;
use batch::{Batch, MESSAGES, Message, Shape, Sizer};
use keep::Keeper;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Legs that one receiver takes (ST 2022-7).
pub const MAX_LEGS: usize = 2;

/// Octets of a UDP datagram, or of a chain, at most.
const CHAIN: usize = 65_536;
/// Cells of a ring, when nothing else is asked for: a CPU gives them back before it asks for the next.
pub const CELLS: usize = 256;
/// Cells of a ring at most: 268 MiB.
pub const MAX_CELLS: usize = 4096;
/// Calls of one poll at most, when all that comes is rejected.
const CALLS: usize = 16;

/// How to open a [`Socket`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Interface of each leg, by name or by one of its addresses; the last one counts for all further legs; with
    /// none, multicast groups are joined where the routing table leads.
    pub interfaces: Vec<String>,
    /// UDP payload octets of a packet at most (ST 2110-20 MAXUDP, else 1460 less the UDP header); for sizing.
    pub max_octets: u16,
    /// Wanted size of the socket buffer.
    pub buffer_octets: usize,
    /// Expected bits a second of UDP payload, to tell what the buffer is worth; 0 when not known.
    pub rate: u64,
    /// Seconds that TAI is ahead of UTC, used when the kernel was never told (its TAI equals its UTC).
    pub utc_offset_s: i32,
    /// Whose time stamps are wanted.
    pub stamps: Stamping,
    /// Let the kernel merge datagrams.
    pub gro: bool,
    /// Cells of the ring, [`CELLS`] to [`MAX_CELLS`]; each takes a datagram or a merged chain of them. A GPU gives them
    /// back later than a CPU, see [`cells_for`].
    pub cells: usize,
}

/// Whose time stamps are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stamping {
    /// The card's, where it stamps every packet already; else the kernel's.
    #[default]
    Auto,
    /// The kernel's.
    Software,
    /// The card's: it is told to stamp every packet, which needs rights. Else opening fails.
    Hardware,
}

/// Cells that hold what arrives in `hold` at `packets` a second, were every datagram to come alone.
pub fn cells_for(packets: u64, hold: Duration) -> usize {
    let wanted = u128::from(packets) * hold.as_nanos() / 1_000_000_000;
    usize::try_from(wanted).unwrap_or(MAX_CELLS).next_multiple_of(64).clamp(CELLS, MAX_CELLS)
}

impl Default for Options {
    fn default() -> Self {
        Options {
            interfaces: Vec::new(),
            max_octets: 1452,
            buffer_octets: 64 << 20,
            rate: 0,
            utc_offset_s: 37,
            stamps: Stamping::Auto,
            gro: true,
            cells: CELLS,
        }
    }
}

impl Options {
    /// The interface that leg `number` is to use.
    fn interface(&self, number: u8) -> Option<&str> {
        self.interfaces.get(usize::from(number)).or(self.interfaces.last()).map(String::as_str)
    }
}

/// UDP sockets as a receiver: one socket a leg, one thread for all.
pub struct Socket {
    options: Options,
    ring: SplitRing<Host>,
    cells: Cells,
    legs: [Option<LegSocket>; MAX_LEGS],
    /// The leg that is asked first by the next poll.
    turn: usize,
    caps: Caps,
    counters: RxCounters,
    /// Of [`RxCounters::kernel_dropped`], by leg.
    dropped: [u64; MAX_LEGS],
    /// What TAI is ahead of UTC, in nanoseconds.
    tai_offset: i64,
    /// From the first leg on.
    keeper: Option<Keeper>,
    events: Vec<Event>,
}

/// One leg's socket.
struct LegSocket {
    socket: socket2::Socket,
    batch: Batch,
    sizer: Sizer,
    sources: SourceFilter,
    /// The socket's drop count when it was last seen.
    drops: u32,
    /// The last arrival, for a message without a time.
    arrival: Tai,
    /// Of the card, where it stamps.
    card: Option<Stamps>,
    /// Which of `Caps::notes` tells the shape of the traffic, once that is known.
    note: Option<usize>,
}

impl Socket {
    /// A receiver that does not receive anything yet; [`Receiver::join`] opens the legs.
    pub fn open(options: Options) -> Result<Self> {
        let cells = options.cells.clamp(CELLS, MAX_CELLS);
        let ring = SplitRing::whole(Region::host(Cells::region_octets(cells))?);
        let caps = Caps {
            backend: "socket",
            notes: vec!["kernel sockets: work everywhere".into()],
            batch: MESSAGES * 128,
            buffer_octets: 0,
            live: true,
            stamps: Source::Software,
        };
        let tai_offset = tai_offset(options.utc_offset_s);
        Ok(Socket {
            options,
            ring,
            cells: Cells::new(cells),
            legs: [None, None],
            turn: 0,
            caps,
            counters: RxCounters::default(),
            dropped: [0; MAX_LEGS],
            tai_offset,
            keeper: None,
            events: Vec::new(),
        })
    }

    /// Puts a socket in the place of a leg.
    fn put(&mut self, number: usize, socket: socket2::Socket, sources: SourceFilter, card: bool) {
        let card = card.then(|| Stamps::new(self.tai_offset, true));
        if let Some(place) = self.legs.get_mut(number) {
            *place = Some(LegSocket {
                socket,
                batch: Batch::new(sources != SourceFilter::Any),
                sizer: Sizer::new(),
                sources,
                drops: 0,
                arrival: Tai::default(),
                card,
                note: None,
            });
        }
        self.caps.stamps = self.source();
    }

    /// What the arrivals carry now: the least of all legs.
    #[inline]
    fn source(&self) -> Source {
        let of_leg = |leg: &LegSocket| leg.card.map_or(Source::Software, |card| card.source());
        let all = self.legs.iter().flatten().all(|leg| of_leg(leg) == Source::Hardware);
        if all { Source::Hardware } else { Source::Software }
    }

    /// A leg's socket broke. Others go on, and it is opened anew.
    ///
    /// # Errors
    /// There are no others.
    fn lose(&mut self, number: usize, why: RxError) -> std::result::Result<(), RxError> {
        let others = self.legs.iter().enumerate().any(|(n, leg)| n != number && leg.is_some());
        match &self.keeper {
            Some(keeper) if others => {
                keeper.fail(number);
                self.legs[number] = None;
                Ok(())
            }
            _ => Err(why),
        }
    }

    /// Legs that were opened anew because their interfaces had gone.
    #[cold]
    fn renew(&mut self) {
        let Some(keeper) = &self.keeper else { return };
        for (number, opened) in keeper.take(&mut self.events).into_iter().enumerate() {
            if let Some((opened, sources)) = opened {
                self.put(number, opened.socket, sources, opened.card);
            }
        }
    }

    /// One call on one leg.
    fn receive(&mut self, number: usize) -> std::result::Result<Received, RxError> {
        let Some(leg) = &mut self.legs[number] else { return Ok(Received::Nothing) };
        let want = leg.sizer.limit().min(self.cells.free.len());
        if want == 0 {
            self.counters.starved += 1;
            return Ok(Received::Nothing);
        }
        let start = self.ring.head_plane_mut().as_mut_ptr();
        let next = self.cells.free.iter().rev().take(want);
        // SAFETY: `at` of a cell and CHAIN octets behind it lie in the region, which `&mut self` makes ours.
        let next = next.map(|cell| unsafe { start.add(Cells::at(*cell)) });
        self.counters.calls += 1;
        // SAFETY: free cells are disjoint, belong to no lease, and the ring is borrowed exclusively.
        let filled = match unsafe { leg.batch.receive(leg.socket.as_raw_fd(), next, CHAIN) } {
            Ok(0) => return Ok(Received::Nothing),
            Ok(filled) => filled,
            Err(e) if transient(&e) => return Ok(Received::Nothing),
            Err(e) => {
                return Err(RxError::Failed(
                    Error::new(Kind::Unavailable, format!("receiving on leg {number} failed")).because(e),
                ));
            }
        };
        let read = leg.card.and_then(|_| tai_now(self.tai_offset));
        if let (Some(card), Some(now)) = (&mut leg.card, read) {
            let last = (0..filled).rev().find_map(|i| leg.batch.message(i).card);
            card.read(last.unwrap_or(0), now);
        }
        let mut lease = self.cells.lease();
        let (datagrams, octets) = (self.counters.datagrams, self.counters.octets);
        let dropped = self.counters.kernel_dropped;
        for i in 0..filled {
            let Some(cell) = self.cells.free.pop() else { break };
            let message = leg.batch.message(i);
            let wanted = leg.admits(i);
            let before = lease.slots.len();
            leg.take(
                message,
                number as u8,
                Cells::at(cell),
                wanted,
                self.tai_offset,
                &mut lease.slots,
                &mut self.counters,
            );
            if lease.slots.len() > before {
                self.cells.hold(&lease, cell);
            } else {
                self.cells.spare.push(cell);
            }
        }
        if let (Some(card), Some(now)) = (&mut leg.card, read) {
            card.judge(now);
        }
        if let Some(of_leg) = self.dropped.get_mut(number) {
            *of_leg += self.counters.kernel_dropped - dropped;
        }
        // Only now, so that the loop above pops what the call filled.
        self.cells.free.append(&mut self.cells.spare);
        let (datagrams, octets) = (self.counters.datagrams - datagrams, self.counters.octets - octets);
        if let Some(shape) = leg.sizer.add(filled as u32, datagrams as u32, octets) {
            let note = shape_note(number, shape, leg.sizer.mean());
            match leg.note.and_then(|n| self.caps.notes.get_mut(n)) {
                Some(old) => *old = note,
                None => {
                    leg.note = Some(self.caps.notes.len());
                    self.caps.notes.push(note);
                }
            }
        }
        if read.is_some() {
            self.caps.stamps = self.source();
        }
        Ok(if lease.slots.is_empty() {
            self.cells.release(lease);
            Received::OnlyRejected
        } else {
            Received::Packets(lease)
        })
    }
}

/// What a call brought.
enum Received {
    Packets(Lease),
    OnlyRejected,
    Nothing,
}

impl LegSocket {
    /// The source filter; the kernel has one too, but not for unicast, and not against every stray.
    #[inline]
    fn admits(&self, message: usize) -> bool {
        let of = |list: &[IpAddr]| self.batch.sender(message).is_some_and(|a| list.contains(&a));
        match &self.sources {
            SourceFilter::Any => true,
            SourceFilter::Include(list) => of(list),
            SourceFilter::Exclude(list) => !of(list),
        }
    }

    /// Turns a message into slots.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn take(
        &mut self,
        message: Message,
        leg: u8,
        at: usize,
        wanted: bool,
        tai_offset: i64,
        slots: &mut Vec<Slot>,
        counters: &mut RxCounters,
    ) {
        if let Some(time) = message.time {
            self.arrival = Tai(time.wrapping_add_signed(tai_offset));
        }
        let octets = message.octets.min(CHAIN);
        let stride = if message.stride == 0 { octets } else { message.stride.min(octets) };
        let count = if stride == 0 { 1 } else { octets.div_ceil(stride) };
        if let Some(drops) = message.drops.filter(|d| *d != self.drops) {
            counters.kernel_dropped += self.sizer.datagrams_in(drops.wrapping_sub(self.drops), count as u32);
            self.drops = drops;
        }
        if !wanted {
            counters.rejected.0[Reason::Source as usize] += count as u64;
            return;
        }
        if let Some(card) = &mut self.card {
            self.arrival = card.arrival(message.card.unwrap_or(0), self.arrival);
            card.shared(count as u64 - 1);
        }
        counters.datagrams += count as u64;
        counters.octets += octets as u64;
        if count > 1 {
            counters.merged += count as u64;
        }
        let mut from = 0;
        for _ in 0..count {
            let len = stride.min(octets - from);
            let Ok(len16) = u16::try_from(len) else { return };
            slots.push(Slot {
                head_at: (at + from) as u32,
                body_at: 0,
                head: len16,
                octets: len16,
                wire_octets: len16,
                leg,
                arrival: self.arrival,
            });
            from += len;
        }
        if message.truncated && slots.pop().is_some() {
            // Only the last one can be cut.
            counters.datagrams -= 1;
            counters.rejected.add(Reason::Truncated);
        }
    }
}

impl Receiver for Socket {
    type Mem = Host;

    fn ring(&self) -> &SplitRing<Host> {
        &self.ring
    }

    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        for _ in 0..CALLS {
            let mut rejected = false;
            for _ in 0..MAX_LEGS {
                let number = self.turn;
                self.turn = (self.turn + 1) % MAX_LEGS;
                match self.receive(number) {
                    Ok(Received::Packets(lease)) => return Ok(lease),
                    Ok(Received::OnlyRejected) => rejected = true,
                    Ok(Received::Nothing) => {}
                    Err(why) => self.lose(number, why)?,
                }
            }
            if !rejected {
                break;
            }
        }
        if self.keeper.as_ref().is_some_and(Keeper::is_ready) {
            self.renew();
        }
        Ok(Lease::new(Vec::new(), Cells::NONE))
    }

    fn release(&mut self, lease: Lease) {
        self.cells.release(lease);
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn join(&mut self, leg: u8, what: &Leg) -> Result<()> {
        let Some(place) = self.legs.get_mut(usize::from(leg)) else {
            return Err(Error::new(Kind::Usage, format!("leg {leg}: a receiver takes {MAX_LEGS} legs at most"))
                .cure("receive the further legs with a second receiver"));
        };
        // The old socket first: it may hold the same port.
        *place = None;
        let opened = open::open(leg, what, &self.options)?;
        let prefix = |note: String| if leg == 0 { note } else { format!("leg {leg}: {note}") };
        self.caps.notes.extend(opened.notes.into_iter().map(prefix));
        self.caps.buffer_octets = match self.caps.buffer_octets {
            0 => opened.buffer_octets,
            other => other.min(opened.buffer_octets),
        };
        let number = usize::from(leg);
        self.put(number, opened.socket, what.sources.clone(), opened.card);
        let keeper = self.keeper.get_or_insert_with(|| Keeper::new(&self.options, self.tai_offset));
        keeper.watch(number, what, opened.joined);
        Ok(())
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }
    fn dropped(&self, leg: u8) -> u64 {
        self.dropped.get(usize::from(leg)).copied().unwrap_or(0)
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        for (number, leg) in self.legs.iter().enumerate() {
            if let Some(card) = leg.as_ref().and_then(|leg| leg.card) {
                card.tell(&format!("leg {number}"), "the kernel", remarks);
            }
        }
        Ok(())
    }
    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }

    fn now(&self) -> Option<Tai> {
        let now = tai_now(self.tai_offset)?;
        let of_cards = self.legs.iter().flatten().map(|leg| leg.card.map_or(now, |card| card.now(now)));
        Some(of_cards.min().unwrap_or(now))
    }
}

fn shape_note(leg: usize, shape: Shape, mean: f32) -> String {
    let leg = if leg == 0 { String::new() } else { format!("leg {leg}: ") };
    match shape {
        Shape::Single => format!("{leg}datagrams come one by one, {MESSAGES} a call at most"),
        Shape::Chained => format!("{leg}datagrams come merged, {mean:.0} a message on average"),
    }
}

/// Errors that say nothing about the socket: no data, a signal, memory pressure, or news of some other host.
fn transient(e: &std::io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(
            libc::EAGAIN
                | libc::EINTR
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ENETDOWN
        )
    )
}

/// Nanoseconds that TAI is ahead of UTC: as the kernel was told, else so many seconds.
pub(in crate::rx) fn tai_offset(seconds: i32) -> i64 {
    kernel_tai_offset().unwrap_or_else(|| i64::from(seconds) * 1_000_000_000)
}

/// The time now.
pub(in crate::rx) fn tai_now(offset: i64) -> Option<Tai> {
    let utc = u64::try_from(read_clock(libc::CLOCK_REALTIME)?).ok()?;
    Some(Tai(utc.wrapping_add_signed(offset)))
}

/// The offset between the kernel's TAI and its UTC, when somebody (a PTP or NTP daemon) told it.
pub(crate) fn kernel_tai_offset() -> Option<i64> {
    let (utc, tai) = (read_clock(libc::CLOCK_REALTIME)?, read_clock(libc::CLOCK_TAI)?);
    whole_seconds(tai - utc)
}

/// Nanoseconds.
pub(super) fn read_clock(clock: libc::clockid_t) -> Option<i64> {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable and outlives the call.
    (unsafe { libc::clock_gettime(clock, &mut t) } == 0).then(|| t.tv_sec * 1_000_000_000 + t.tv_nsec)
}

/// The two clocks are read one after the other, so the difference is a little more than whole seconds.
fn whole_seconds(difference: i64) -> Option<i64> {
    let seconds = difference.div_euclid(1_000_000_000);
    (seconds != 0).then_some(seconds * 1_000_000_000)
}

/// Who holds which cell.
struct Cells {
    /// The last one is filled next.
    free: Vec<u16>,
    /// Cells of messages that were rejected, until the end of the call.
    spare: Vec<u16>,
    /// Cells of each lease that is out, by its token.
    held: Vec<Vec<u16>>,
    /// Tokens of no lease.
    tokens: Vec<u32>,
    /// Memory for slots.
    slots: Vec<Vec<Slot>>,
}

impl Cells {
    /// The token of leases that hold nothing.
    const NONE: u32 = u32::MAX;
    /// From cell to cell: 23 cache lines more than a chain, so that the beginnings of cells do not compete for the
    /// same cache sets.
    const STRIDE: usize = CHAIN + 23 * 64;

    fn new(cells: usize) -> Self {
        Cells {
            free: (0..cells as u16).rev().collect(),
            spare: Vec::with_capacity(cells),
            held: (0..cells).map(|_| Vec::with_capacity(MESSAGES)).collect(),
            tokens: (0..cells as u32).rev().collect(),
            slots: (0..8).map(|_| Vec::with_capacity(MESSAGES * 16)).collect(),
        }
    }

    const fn region_octets(cells: usize) -> usize {
        cells * Self::STRIDE + SLACK
    }

    const fn at(cell: u16) -> usize {
        cell as usize * Self::STRIDE
    }

    /// A lease without cells. There are as many tokens as cells, and a lease that is out holds a cell at least, so a
    /// free cell means a free token.
    fn lease(&mut self) -> Lease {
        let token = self.tokens.pop().unwrap_or(Self::NONE);
        Lease::new(self.slots.pop().unwrap_or_default(), token)
    }

    fn hold(&mut self, lease: &Lease, cell: u16) {
        if let Some(held) = self.held.get_mut(lease.token as usize) {
            held.push(cell);
        }
    }

    fn release(&mut self, lease: Lease) {
        let Lease { mut slots, token } = lease;
        if let Some(held) = self.held.get_mut(token as usize) {
            self.free.append(held);
            self.tokens.push(token);
        }
        if slots.capacity() > 0 {
            slots.clear();
            self.slots.push(slots);
        }
    }
}

#[cfg(test)]
mod tests;
