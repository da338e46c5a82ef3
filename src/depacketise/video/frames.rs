//! Open frames: which one a timestamp belongs to, in which order they close, and what is remembered of closed ones.

use super::coverage::Coverage;
use crate::plan::{FrameId, MAX_OPEN};
use crate::time::Tai;

/// Closed frames that are remembered besides as many as may be open, to judge late packets.
const REMEMBERED: usize = 4;
/// Fields a tenth of a second apart are not a pair at any rate.
const UNKNOWN_RATE_PAIR: i32 = 9_000;
/// Ticks by which timestamps of frames are rounded at most: what is reckoned from them is never earlier than it was.
const ROUNDING: i64 = 2;
/// Senders round the half frame one way or the other.
const HALF_TOLERANCE: u32 = 2;

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
            Some(half) => (ticks as u32).wrapping_sub(half).cast_signed().unsigned_abs() <= HALF_TOLERANCE,
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
    pub(super) epoch: u64,
    /// Of packets that placed something: the lowest number, and, where there are several legs, the highest.
    pub(super) low: u64,
    pub(super) high: u64,
    /// Lower numbers are of another frame with the same timestamp.
    floor: u64,
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
    /// The time (see [`crate::merge::Merge::arrives`]) at which it is not waited for any longer.
    pub(super) expires: u64,
    /// Whose it is will be decided later: it waits.
    pub(super) held: bool,
}

/// What is remembered of a closed frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    epoch: u64,
    key: u32,
    fields: [Option<u32>; 2],
    end: Option<End>,
    floor: u64,
    whole: bool,
    /// What comes from then on was too late.
    pub(super) expires: u64,
    /// The highest number that it held; none when it has been taken notice of that nothing waits for it any more.
    high: Option<u64>,
}

/// Where a packet belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Open(u8),
    Closed { whole: bool, at: u8 },
    Nowhere,
}

/// What is asked about a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query {
    pub(super) epoch: u64,
    pub(super) f: usize,
    pub(super) timestamp: u32,
    /// The packet's number, and whether none was higher.
    pub(super) number: u64,
    pub(super) newest: bool,
    /// Row and offset of its first segment, as one number.
    pub(super) place: u32,
}

#[derive(Debug)]
pub(super) struct Frames {
    open: Box<[Open; MAX_OPEN]>,
    /// Indices of open frames, oldest first.
    order: [u8; MAX_OPEN],
    len: usize,
    /// At most so many are open at once.
    capacity: usize,
    closed: Vec<Option<Closed>>,
    next_closed: usize,
    /// How long frames of several legs wait, in nanoseconds.
    window: u64,
    /// Ticks from frame to frame; 0 when that is not known.
    pub(super) step: u32,
}

impl Frames {
    /// `capacity` frames of `pgroups` may be open at once; at most [`MAX_OPEN`].
    pub(super) fn new(pgroups: u32, capacity: usize, window: u64, step: u32) -> Self {
        let capacity = capacity.clamp(1, MAX_OPEN);
        let open = |index| Open {
            epoch: 0,
            low: 0,
            high: 0,
            floor: 0,
            key: 0,
            fields: [None; 2],
            ends: [None; 2],
            coverage: Coverage::new(if index < capacity { pgroups } else { 0 }),
            first_arrival: Tai(0),
            last_arrival: Tai(0),
            packets: 0,
            joining: false,
            tainted: false,
            expires: u64::MAX,
            held: false,
        };
        Frames {
            open: Box::new(std::array::from_fn(open)),
            order: [0; MAX_OPEN],
            len: 0,
            capacity,
            closed: vec![None; capacity + REMEMBERED],
            next_closed: 0,
            window,
            step,
        }
    }

    #[inline]
    pub(super) fn get(&mut self, index: u8) -> &mut Open {
        const { assert!(MAX_OPEN.is_power_of_two()) };
        // Indices come from `begin`, so the mask never changes one; it spares the check.
        &mut self.open[usize::from(index) & (MAX_OPEN - 1)]
    }

    /// The oldest frame of a sequence.
    pub(super) fn first_of(&self, epoch: u64) -> Option<u8> {
        let of = |i: &u8| self.open.get(usize::from(*i)).is_some_and(|o| o.epoch == epoch);
        self.order().iter().copied().find(of)
    }

    /// The oldest frame of a sequence that is not whole.
    pub(super) fn unfinished_of(&self, epoch: u64) -> Option<u8> {
        let of =
            |i: &u8| self.open.get(usize::from(*i)).is_some_and(|o| o.epoch == epoch && o.coverage.remaining() > 0);
        self.order().iter().copied().find(of)
    }

    /// Indices of open frames, oldest first.
    pub(super) fn order(&self) -> &[u8] {
        self.order.get(..self.len).unwrap_or(&self.order)
    }

    pub(super) fn oldest(&self) -> Option<&Open> {
        self.order().first().and_then(|i| self.open.get(usize::from(*i)))
    }

    pub(super) fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    pub(super) fn of_epoch(&mut self, epoch: u64) -> impl Iterator<Item = &mut Open> {
        let used = self.used();
        let frames = self.open.iter_mut().enumerate();
        frames.filter(move |(i, o)| used & 1 << i != 0 && o.epoch == epoch).map(|(_, o)| o)
    }

    /// A bit for each index that is in use.
    fn used(&self) -> u64 {
        self.order().iter().fold(0, |set, i| set | 1 << i)
    }

    /// A closed frame that [`Frames::find`] found.
    pub(super) fn closed(&self, at: u8) -> Option<&Closed> {
        self.closed.get(usize::from(at))?.as_ref()
    }

    pub(super) fn find(&self, q: Query, pairing: Pairing) -> Found {
        for (age, index) in self.order().iter().rev().enumerate() {
            let Some(open) = self.open.get(usize::from(*index)) else { continue };
            if open.epoch != q.epoch || q.number < open.floor || !pairing.fits(&open.fields, q.f, q.timestamp, age == 0)
            {
                continue;
            }
            if !starts_again(q, pairing, &open.ends) {
                return Found::Open(*index);
            }
        }
        // The newest first: timestamps may come again.
        let count = self.closed.len();
        for age in 1..=count {
            let at = (self.next_closed + count - age) % count;
            let Some(Some(closed)) = self.closed.get(at) else { break };
            if closed.epoch != q.epoch
                || q.number < closed.floor
                || !pairing.fits(&closed.fields, q.f, q.timestamp, false)
            {
                continue;
            }
            if !starts_again(q, pairing, &[closed.end; 2]) {
                return Found::Closed { whole: closed.whole, at: at as u8 };
            }
        }
        Found::Nowhere
    }

    /// The end of the newest frame that has the timestamp of a packet: what begins again with it lies behind.
    fn floor(&self, q: Query) -> u64 {
        let same = |epoch: u64, fields: &[Option<u32>; 2]| epoch == q.epoch && fields[q.f] == Some(q.timestamp);
        let open = self.order().iter().filter_map(|i| self.open.get(usize::from(*i)));
        let open = open.filter(|o| same(o.epoch, &o.fields)).filter_map(|o| o.ends[0].max(o.ends[1]));
        let closed = self.closed.iter().flatten().filter(|c| same(c.epoch, &c.fields)).filter_map(|c| c.end);
        open.chain(closed).max().map_or(0, |end| end.number + 1)
    }

    /// Where a frame belongs in the order: that of sequences and numbers.
    fn place(&self, q: Query) -> usize {
        let newer = |i: &u8| self.open.get(usize::from(*i)).is_some_and(|o| (o.epoch, o.low) > (q.epoch, q.number));
        self.order().iter().position(newer).unwrap_or(self.len)
    }

    /// Until when a frame that is not open, but would be opened by a packet, is waited for.
    pub(super) fn deadline_of(&self, q: Query, key: u32) -> u64 {
        self.deadline(q.epoch, key, self.order().get(self.place(q)..).unwrap_or_default())
    }

    /// Until when those before the oldest frame are waited for.
    pub(super) fn deadline_before_oldest(&self) -> u64 {
        self.oldest().map_or(u64::MAX, |o| self.deadline(o.epoch, o.key.wrapping_sub(self.step), self.order()))
    }

    /// Until when a frame is waited for, where `later` are those behind it: for as long as legs may lie apart after the next
    /// one began. Where that has not come, those behind it say when that was, by their timestamps.
    fn deadline(&self, epoch: u64, key: u32, later: &[u8]) -> u64 {
        let step = i64::from(self.step);
        let later = later.iter().filter_map(|i| self.open.get(usize::from(*i))).filter(|o| !o.held);
        let began = later.map(|o| {
            let ticks = i64::from(o.key.wrapping_sub(key) as i32) - step - ROUNDING;
            // Timestamps that jump say nothing, nor do those of another sender.
            let known = o.epoch == epoch && step > 0 && (0..=MAX_OPEN as i64 * step).contains(&ticks);
            let since = if known { ticks as u64 * 100_000 / 9 } else { 0 };
            o.first_arrival.0.saturating_sub(since)
        });
        began.min().map_or(u64::MAX, |began| deadline(began, self.window))
    }

    /// Takes an idle frame into use, in the order of sequences and numbers. There must be room.
    pub(super) fn begin(&mut self, q: Query, key: u32, arrival: Tai) -> Option<u8> {
        let index = (!self.used()).trailing_zeros() as u8;
        if usize::from(index) >= self.capacity {
            return None;
        }
        let floor = if q.newest { self.floor(q) } else { 0 };
        let place = self.place(q);
        self.order.copy_within(place..self.len, place + 1);
        self.order[place] = index;
        self.len += 1;
        let open = self.get(index);
        open.coverage.clear();
        (open.epoch, open.key, open.fields, open.ends) = (q.epoch, key, [None; 2], [None; 2]);
        (open.low, open.high, open.floor) = (q.number, q.number, floor);
        (open.first_arrival, open.last_arrival, open.packets) = (arrival, arrival, 0);
        (open.joining, open.tainted, open.expires, open.held) = (false, false, u64::MAX, false);
        Some(index)
    }

    /// After a frame has been opened, or turned out to have begun earlier: until when are the others waited for?
    pub(super) fn set_deadlines(&mut self) {
        for at in 0..self.len {
            let Some(index) = self.order.get(at).copied() else { break };
            let Some(open) = self.open.get(usize::from(index)).filter(|o| !o.held) else { continue };
            let later = self.order().get(at + 1..).unwrap_or_default();
            let expires = open.expires.min(self.deadline(open.epoch, open.key, later));
            self.get(index).expires = expires;
        }
        for at in 0..self.closed.len() {
            let Some(Some(closed)) = self.closed.get(at) else { break };
            let expires = closed.expires.min(self.deadline(closed.epoch, closed.key, self.order()));
            if let Some(Some(closed)) = self.closed.get_mut(at) {
                closed.expires = expires;
            }
        }
    }

    /// The frames before and after `index` in the order: is one older, is one newer?
    pub(super) fn neighbours(&self, index: u8) -> (Option<u8>, Option<u8>) {
        let order = self.order();
        let at = order.iter().position(|i| *i == index).unwrap_or(0);
        (at.checked_sub(1).and_then(|n| order.get(n)).copied(), order.get(at + 1).copied())
    }

    /// Remembers an open frame as closed and takes it out of the order. Gives its place among those that are remembered.
    pub(super) fn end(&mut self, index: u8, whole: bool) -> u8 {
        let open = self.get(index);
        let Open { epoch, key, fields, ends, floor, expires, high, .. } = *open;
        let at = self.next_closed;
        if let Some(place) = self.closed.get_mut(at) {
            *place =
                Some(Closed { epoch, key, fields, end: ends[0].max(ends[1]), floor, whole, expires, high: Some(high) });
        }
        self.next_closed = (at + 1) % self.closed.len();
        if let Some(at) = self.order().iter().position(|i| *i == index) {
            self.order.copy_within(at + 1..self.len, at);
            self.len -= 1;
        }
        at as u8
    }

    /// Of a frame that is closed and not waited for any more by any leg: its sequence, and the highest number that it held. Each
    /// once.
    pub(super) fn next_retired(&mut self, clock: u64) -> Option<(u64, u64)> {
        let mut closed = self.closed.iter_mut().flatten().filter(|c| c.expires <= clock);
        closed.find_map(|c| Some((c.epoch, c.high.take()?)))
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.len <= self.capacity);
        for (n, index) in self.order().iter().enumerate() {
            assert!(usize::from(*index) < MAX_OPEN && !self.order()[..n].contains(index), "{:?}", self.order());
            let open = &self.open[usize::from(*index)];
            open.coverage.check_invariants();
            assert!(open.fields != [None; 2]);
            assert!(open.packets > 0, "nothing was placed in a frame that is open");
        }
    }
}

/// The first nanosecond that is too late.
pub(super) const fn deadline(began: u64, window: u64) -> u64 {
    began.saturating_add(window).saturating_add(1)
}

/// The sender repeats a timestamp: the packet comes after the end of the frame that has it and lies no further down, so
/// it is of another frame. A second field that is sent again is none, nor is a frame with a marker too many.
fn starts_again(q: Query, pairing: Pairing, ends: &[Option<End>; 2]) -> bool {
    if !q.newest {
        return false;
    }
    let ended = |end: &Option<End>| end.is_some_and(|end| end.number < q.number);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_pairs_with_one_that_is_half_a_frame_away_and_no_other() {
        // 1080i50: 1800 ticks from field to field.
        let pairing = Pairing { two_fields: true, half: Some(1800), second: 1 };
        let second = |first: u32, timestamp: u32| pairing.fits(&[Some(first), None], 1, timestamp, true);
        assert_eq!([0, 1797, 1798, 1800, 1802, 1803].map(|t| second(0, t)), [true, false, true, true, true, false]);
        assert!(second(u32::MAX - 99, 1700), "across the wrap");
        assert!(pairing.fits(&[None, Some(1700)], 0, u32::MAX - 99, true));
        // Half the clock away, where a distance has no absolute value in 32 bits.
        assert_eq!([0x8000_0707, 0x8000_0708, 0x8000_0709, 0x8000_0000].map(|t| second(0, t)), [false; 4]);
    }
}
