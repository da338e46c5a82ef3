//! Open frames: which one a timestamp belongs to, in which order they close, and what is remembered of closed ones.

use super::coverage::Coverage;
use crate::plan::{FrameId, MAX_OPEN};
use crate::time::Tai;

/// Closed frames that are remembered, to judge late packets.
const REMEMBERED: usize = 8;
/// Fields a tenth of a second apart are not a pair at any rate.
const UNKNOWN_RATE_PAIR: i32 = 9_000;
/// Senders round the half frame one way or the other.
const HALF_TOLERANCE: i32 = 2;

/// How fields find their frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairing {
    pub(super) two_fields: bool,
    /// Ticks from the first field to the second; unknown without a rate.
    pub(super) half: Option<u32>,
    /// The field bit of the field that comes second.
    pub(super) second: usize,
}

impl Pairing {
    /// The timestamp of the frame that a field belongs to.
    pub(super) fn key(&self, f: usize, timestamp: u32, same_instant: bool) -> u32 {
        match self.half {
            Some(half) if self.two_fields && f == self.second && !same_instant => timestamp.wrapping_sub(half),
            _ => timestamp,
        }
    }

    /// Does field `f` of this timestamp belong to a frame whose fields have these?
    fn fits(&self, fields: &[Option<u32>; 2], f: usize, timestamp: u32, newest: bool) -> bool {
        if let Some(own) = fields[f] {
            return own == timestamp;
        }
        let (true, Some(other)) = (self.two_fields, fields[1 - f]) else { return false };
        let ticks = if f == self.second { timestamp.wrapping_sub(other) } else { other.wrapping_sub(timestamp) } as i32;
        match self.half {
            _ if ticks == 0 => true,
            Some(half) => (ticks.wrapping_sub(half as i32)).abs() <= HALF_TOLERANCE,
            None => newest && (1..=UNKNOWN_RATE_PAIR).contains(&ticks),
        }
    }
}

/// A packet with the marker: its number, and where its first segment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    pub(super) number: u64,
    pub(super) place: u32,
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) epoch: u32,
    /// Timestamp of the first field, or what it must have been.
    pub(super) key: u32,
    /// Timestamps of the fields, by field bit.
    pub(super) fields: [Option<u32>; 2],
    /// The packets with the marker.
    pub(super) ends: [Option<End>; 2],
    pub(super) coverage: Coverage,
    pub(super) first_arrival: Tai,
    pub(super) last_arrival: Tai,
    pub(super) packets: u32,
    /// The first of its epoch, or older.
    pub(super) joining: bool,
    /// Holds octets in the wrong rows.
    pub(super) tainted: bool,
    /// The packet count at which it is not waited for any longer.
    pub(super) expires: u64,
}

/// What is remembered of a closed frame.
#[derive(Clone, Copy, Debug)]
struct Closed {
    epoch: u32,
    fields: [Option<u32>; 2],
    end: Option<End>,
    whole: bool,
}

/// Where a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Open(u8),
    Closed { whole: bool },
    Nowhere,
}

/// What is asked about a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) epoch: u32,
    pub(super) f: usize,
    pub(super) timestamp: u32,
    /// The packet's number when none had a higher one.
    pub(super) newest: Option<u64>,
    /// Row and offset of its first segment, as one number.
    pub(super) place: u32,
}

#[derive(Debug)]
pub(super) struct Frames {
    open: [Open; MAX_OPEN],
    /// Indices of open frames, oldest first.
    order: [u8; MAX_OPEN],
    len: usize,
    closed: [Option<Closed>; REMEMBERED],
    next_closed: usize,
}

impl Frames {
    pub(super) fn new(pgroups: u32) -> Self {
        let open = || Open {
            epoch: 0,
            key: 0,
            fields: [None; 2],
            ends: [None; 2],
            coverage: Coverage::new(pgroups),
            first_arrival: Tai(0),
            last_arrival: Tai(0),
            packets: 0,
            joining: false,
            tainted: false,
            expires: u64::MAX,
        };
        Frames {
            open: std::array::from_fn(|_| open()),
            order: [0; MAX_OPEN],
            len: 0,
            closed: [None; REMEMBERED],
            next_closed: 0,
        }
    }

    #[inline]
    pub(super) fn get(&mut self, index: u8) -> &mut Open {
        const { assert!(MAX_OPEN.is_power_of_two()) };
        // Indices come from `begin`, so the mask never changes one; it spares the check.
        &mut self.open[usize::from(index) & (MAX_OPEN - 1)]
    }

    pub(super) fn peek(&self, index: u8) -> Option<&Open> {
        self.open.get(usize::from(index))
    }

    /// Indices of open frames, oldest first.
    pub(super) fn order(&self) -> &[u8] {
        self.order.get(..self.len).unwrap_or(&self.order)
    }

    pub(super) fn oldest(&self) -> Option<&Open> {
        self.order().first().and_then(|i| self.open.get(usize::from(*i)))
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == MAX_OPEN
    }

    pub(super) fn of_epoch(&mut self, epoch: u32) -> impl Iterator<Item = &mut Open> {
        let used = self.order[..self.len.min(MAX_OPEN)].iter().fold(0u32, |set, i| set | 1 << i);
        let frames = self.open.iter_mut().enumerate();
        frames.filter(move |(i, o)| used & 1 << i != 0 && o.epoch == epoch).map(|(_, o)| o)
    }

    pub(super) fn find(&self, q: Query, pairing: Pairing) -> Found {
        for (age, index) in self.order().iter().rev().enumerate() {
            let Some(open) = self.open.get(usize::from(*index)) else { continue };
            if open.epoch != q.epoch || !pairing.fits(&open.fields, q.f, q.timestamp, age == 0) {
                continue;
            }
            if !starts_again(q, pairing, &open.ends) {
                return Found::Open(*index);
            }
        }
        for closed in self.closed.iter().flatten() {
            if closed.epoch != q.epoch || !pairing.fits(&closed.fields, q.f, q.timestamp, false) {
                continue;
            }
            if !starts_again(q, pairing, &[closed.end; 2]) {
                return Found::Closed { whole: closed.whole };
            }
        }
        Found::Nowhere
    }

    /// Takes an idle frame into use. It is the newest when `newest`, else it goes where its key belongs. There must be
    /// room.
    pub(super) fn begin(&mut self, q: Query, key: u32, arrival: Tai) -> Option<u8> {
        let index = (0..MAX_OPEN as u8).find(|i| !self.order().contains(i))?;
        let mut place = self.len;
        if q.newest.is_none() {
            let newer =
                |i: &u8| self.open.get(usize::from(*i)).is_some_and(|o| o.epoch == q.epoch && older(key, o.key));
            place = self.order().iter().position(newer).unwrap_or(self.len);
        }
        self.order.copy_within(place..self.len, place + 1);
        self.order[place] = index;
        self.len += 1;
        let open = self.get(index);
        open.coverage.clear();
        (open.epoch, open.key, open.fields, open.ends) = (q.epoch, key, [None; 2], [None; 2]);
        (open.first_arrival, open.last_arrival, open.packets) = (arrival, arrival, 0);
        (open.joining, open.tainted, open.expires) = (false, false, u64::MAX);
        Some(index)
    }

    /// The frames before and after `index` in the order: is one older, is one newer?
    pub(super) fn neighbours(&self, index: u8) -> (Option<u8>, Option<u8>) {
        let order = self.order();
        let at = order.iter().position(|i| *i == index).unwrap_or(0);
        (at.checked_sub(1).and_then(|n| order.get(n)).copied(), order.get(at + 1).copied())
    }

    /// Remembers an open frame as closed and takes it out of the order.
    pub(super) fn end(&mut self, index: u8, whole: bool) {
        let open = self.get(index);
        let closed = Closed { epoch: open.epoch, fields: open.fields, end: open.ends[0].max(open.ends[1]), whole };
        self.closed[self.next_closed % REMEMBERED] = Some(closed);
        self.next_closed = (self.next_closed + 1) % REMEMBERED;
        if let Some(at) = self.order().iter().position(|i| *i == index) {
            self.order.copy_within(at + 1..self.len, at);
            self.len -= 1;
        }
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.len <= MAX_OPEN);
        for (n, index) in self.order().iter().enumerate() {
            assert!(usize::from(*index) < MAX_OPEN && !self.order()[..n].contains(index), "{:?}", self.order());
            let open = &self.open[usize::from(*index)];
            open.coverage.check_invariants();
            assert!(open.fields != [None; 2]);
            assert!(open.packets > 0, "nothing was placed in a frame that is open");
        }
    }
}

/// Is timestamp `a` before `b`?
pub(super) fn older(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// The sender repeats a timestamp: the packet comes after the end of the frame that has it and lies no further down, so
/// it is of another frame. A second field that is sent again is none, nor is a frame with a marker too many.
fn starts_again(q: Query, pairing: Pairing, ends: &[Option<End>; 2]) -> bool {
    let Some(number) = q.newest else { return false };
    let ended = |end: &Option<End>| end.is_some_and(|end| end.number < number);
    let further_down = ends[q.f].is_some_and(|end| q.place > end.place);
    if pairing.two_fields {
        q.f != pairing.second && ends.iter().all(ended) && !further_down
    } else {
        ended(&ends[0]) && !further_down
    }
}

/// The name of an open frame in a plan.
pub(super) fn id(index: u8) -> FrameId {
    FrameId(index)
}
