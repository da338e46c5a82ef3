//! From the stamps of a network card to TAI, for whoever gets them: Rivermax, sockets, AF_XDP. Pure.
//!
//! A card's clock may run on TAI, on UTC, or freely. Which one it is shows at the first stamp. A clock that runs freely is
//! tied to the time at which stamps are read: that is never early, and the smallest distance within a while is the truest.
//! One that was set since, as `ptp4l` does when it is started, is judged anew, and so is one that only looked free.

use crate::time::Tai;
use crate::timing::Source;

/// Nanoseconds within which a clock is taken to be the one that it looks like.
const NEAR: i64 = 500_000_000;
/// Nanoseconds after which a free clock is tied anew, for it drifts.
const AGAIN: u64 = 1_000_000_000;

/// Readings that must be far off, one after the other for [`AGAIN`], before a clock is judged anew: one reading may be late by any time.
const FAR: u32 = 8;
/// Windows of [`AGAIN`] in which a free clock must look like TAI or UTC before it is taken for that.
const WINDOWS: u32 = 3;

/// Nanoseconds for which every packet must have had a stamp before the stamps count again.
const PROBATION: i64 = 1_000_000_000;

/// What a card's clock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing has been stamped.
    Unknown,
    /// TAI.
    Tai,
    /// UTC: whole seconds are added.
    Utc,
    /// Free: tied to the time of reading.
    Free,
}

/// The clock of one stream.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    kind: Kind,
    /// What TAI is ahead of UTC.
    utc: i64,
    /// What is added to a stamp.
    offset: i64,
    /// The smallest distance since `since`, by which the next window begins.
    least: i64,
    /// By how much the time of reading is ahead of the card's clock, where that does not run freely; with the time that reading
    /// takes at least.
    ahead: i64,
    since: u64,
    /// Windows in a row in which one that is taken to be free looks like TAI or UTC.
    windows: u32,
    /// Readings of late that are not near what the clock was taken for, and the first of them.
    far: u32,
    far_since: u64,
}

impl Clock {
    /// `utc` nanoseconds that TAI is ahead of UTC.
    pub const fn new(utc: i64) -> Self {
        let (kind, offset, least) = (Kind::Unknown, 0, i64::MAX);
        Clock { kind, utc, offset, least, ahead: 0, since: 0, windows: 0, far: 0, far_since: 0 }
    }

    /// A stamp was read at `now`: to be called once for each run of packets, with the last one's, before [`Clock::tai`].
    #[inline]
    pub fn read(&mut self, stamp: u64, now: Tai) {
        if stamp == 0 {
            return;
        }
        let distance = now.0.wrapping_sub(stamp) as i64;
        if matches!(self.kind, Kind::Tai | Kind::Utc) && self.was_set(distance.wrapping_sub(self.offset), now) {
            *self = Clock::new(self.utc);
        }
        match self.kind {
            Kind::Unknown => {
                (self.kind, self.offset) = if distance.unsigned_abs() < NEAR as u64 {
                    (Kind::Tai, 0)
                } else if distance.wrapping_sub(self.utc).unsigned_abs() < NEAR as u64 {
                    (Kind::Utc, self.utc)
                } else {
                    (Kind::Free, distance)
                };
                self.ahead = distance.wrapping_sub(self.offset);
                self.least = if matches!(self.kind, Kind::Free) { distance } else { self.ahead };
                self.since = now.0;
            }
            Kind::Free => {
                // An earlier reading than any before is the better one at once; a later one counts with the next window.
                self.least = self.least.min(distance);
                self.offset = self.offset.min(distance);
                if now.0.wrapping_sub(self.since) >= AGAIN {
                    let near = |to: i64| self.least.wrapping_sub(to).unsigned_abs() < NEAR as u64;
                    let (like_tai, like_utc) = (near(0), near(self.utc));
                    (self.offset, self.least, self.since) = (self.least, i64::MAX, now.0);
                    // One that looked free while our clock was wrong, or before its own was set.
                    self.windows = if like_tai || like_utc { self.windows.saturating_add(1) } else { 0 };
                    if self.windows >= WINDOWS {
                        let (kind, offset) = if like_tai { (Kind::Tai, 0) } else { (Kind::Utc, self.utc) };
                        let ahead = self.offset.wrapping_sub(offset);
                        *self = Clock { kind, offset, ahead, since: now.0, ..Clock::new(self.utc) };
                    }
                }
            }
            Kind::Tai | Kind::Utc => {
                let ahead = distance.wrapping_sub(self.offset);
                self.least = self.least.min(ahead);
                self.ahead = self.ahead.min(ahead);
                if now.0.wrapping_sub(self.since) >= AGAIN {
                    (self.ahead, self.least, self.since) = (self.least, i64::MAX, now.0);
                }
            }
        }
    }

    /// Whether the card's clock or ours must have been set since it was judged: it has been `ahead` of the other by far for a while.
    #[inline]
    const fn was_set(&mut self, ahead: i64, now: Tai) -> bool {
        if ahead.unsigned_abs() < NEAR as u64 {
            self.far = 0;
            return false;
        }
        if self.far == 0 {
            self.far_since = now.0;
        }
        self.far = self.far.saturating_add(1);
        self.far >= FAR && now.0.wrapping_sub(self.far_since) >= AGAIN
    }

    /// What time it is by the clock that arrivals are stamped with, where it is `now` by that of reading: the two may be apart,
    /// and who waits by one must not look at the other. Never later than it is.
    pub const fn now(&self, now: Tai) -> Tai {
        match self.kind {
            Kind::Tai | Kind::Utc => Tai(now.0.wrapping_add_signed(self.ahead.wrapping_neg())),
            Kind::Unknown | Kind::Free => now,
        }
    }

    /// When a packet with this stamp came; without a stamp `now`.
    #[inline]
    pub const fn tai(&self, stamp: u64, now: Tai) -> Tai {
        if stamp == 0 { now } else { Tai(stamp.wrapping_add_signed(self.offset)) }
    }

    /// What it turned out to be.
    pub const fn kind(&self) -> Kind {
        self.kind
    }
}

/// The packets of a card that stamps, or is said to: its clock, and whether the stamps really come.
///
/// Measures within a frame are of use while every packet has a stamp of its own. From the first one without, the arrivals
/// count as stamped by software, until for a second every packet has one again.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    clock: Clock,
    stamped: u64,
    without: u64,
    /// Of these, when the last run was judged.
    judged: (u64, u64),
    exact: bool,
    /// When the first run came after which none was without.
    since: Option<Tai>,
}

impl Stamps {
    /// `utc` nanoseconds that TAI is ahead of UTC; `told`: the card is known to stamp every packet, so that this is believed until
    /// one has no stamp.
    pub const fn new(utc: i64, told: bool) -> Self {
        Stamps { clock: Clock::new(utc), stamped: 0, without: 0, judged: (0, 0), exact: told, since: None }
    }
    /// As [`Clock::read`].
    #[inline]
    pub fn read(&mut self, stamp: u64, now: Tai) {
        self.clock.read(stamp, now);
    }
    /// When a packet came, which is counted: by its stamp, without one `otherwise`.
    #[inline]
    pub const fn arrival(&mut self, stamp: u64, otherwise: Tai) -> Tai {
        match stamp {
            0 => self.without += 1,
            _ => self.stamped += 1,
        }
        self.clock.tai(stamp, otherwise)
    }
    /// So many packets had to share another's.
    #[inline]
    pub const fn shared(&mut self, packets: u64) {
        self.without += packets;
    }
    /// All packets of a run that was read at `now` are counted.
    #[inline]
    pub fn judge(&mut self, now: Tai) {
        let (stamped, without) = (self.stamped - self.judged.0, self.without - self.judged.1);
        self.judged = (self.stamped, self.without);
        if without > 0 {
            (self.exact, self.since) = (false, None);
        } else if stamped > 0 && !self.exact {
            self.exact = now.since(*self.since.get_or_insert(now)) >= PROBATION;
        }
    }
    /// What the arrivals carry now.
    pub const fn source(&self) -> Source {
        if self.exact { Source::Hardware } else { Source::Software }
    }
    /// As [`Clock::now`].
    pub const fn now(&self, now: Tai) -> Tai {
        self.clock.now(now)
    }
    /// Packets without a stamp of their own.
    #[cfg(test)]
    pub const fn without(&self) -> u64 {
        self.without
    }
    /// What there is to tell at the end, of the packets of `whose` card; those without a stamp have the time of `otherwise`.
    pub fn tell(&self, whose: &str, otherwise: &str, remarks: &mut Vec<String>) {
        if self.without > 0 {
            let all = self.stamped + self.without;
            remarks.push(format!(
                "{whose}: {} of {all} packets without a stamp of the card, they have the time of {otherwise}",
                self.without
            ));
        }
        match self.clock.kind() {
            Kind::Free => remarks.push(format!(
                "{whose}: the card's clock runs freely: arrivals are tied to the time of reading, their spacing is the card's"
            )),
            Kind::Utc => remarks.push(format!("{whose}: the card's clock runs on UTC")),
            Kind::Tai | Kind::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of packets with and without stamps, a run every 100 ms: what the arrivals carry after each.
    #[test]
    fn stamps_count_while_they_come() {
        let source = |stamps: &mut Stamps, n: u64, with: u64, without: u64| {
            let now = Tai(NOW + n * 100_000_000);
            stamps.read(now.0 - 5_000, now);
            (0..with).for_each(|_| assert_eq!(stamps.arrival(now.0 - 5_000, now), Tai(now.0 - 5_000)));
            (0..without).for_each(|_| assert_eq!(stamps.arrival(0, now), now));
            stamps.judge(now);
            stamps.source()
        };
        let mut told = Stamps::new(UTC, true);
        assert_eq!(told.source(), Source::Hardware, "as the card was told");
        for n in 0..30 {
            assert_eq!(source(&mut told, n, 64, 0), Source::Hardware);
        }
        assert_eq!(source(&mut told, 30, 63, 1), Source::Software, "one is enough");
        // A run with nothing in it says nothing.
        assert_eq!(source(&mut told, 31, 0, 0), Source::Software);
        for n in 40..50 {
            assert_eq!(source(&mut told, n, 64, 0), Source::Software, "{n}");
        }
        assert_eq!(source(&mut told, 50, 64, 0), Source::Hardware, "a second after the first of run 40");
        told.shared(3);
        told.judge(Tai(NOW + 5_100_000_000));
        assert_eq!((told.source(), told.without()), (Source::Software, 4), "merged ones share a stamp");

        let mut asked = Stamps::new(UTC, false);
        assert_eq!(asked.source(), Source::Software, "not before they come");
        for n in 0..20 {
            assert_eq!(source(&mut asked, n, 0, 7), Source::Software, "they never do");
        }
        for n in 20..30 {
            assert_eq!(source(&mut asked, n, 7, 0), Source::Software);
        }
        assert_eq!(source(&mut asked, 30, 7, 0), Source::Hardware, "the card was told by somebody");
        let mut remarks = Vec::new();
        asked.tell("eth1", "the poll", &mut remarks);
        assert_eq!(remarks, ["eth1: 140 of 217 packets without a stamp of the card, they have the time of the poll"]);
    }

    const UTC: i64 = 37_000_000_000;
    const NOW: u64 = 1_700_000_037_000_000_000;

    #[test]
    fn clocks_are_told_by_their_first_stamp() {
        for (stamp, kind, tai) in [
            (NOW - 50_000, Kind::Tai, NOW - 50_000),
            (NOW - 37_000_050_000, Kind::Utc, NOW - 50_000),
            (12_345, Kind::Free, NOW),
        ] {
            let mut clock = Clock::new(UTC);
            clock.read(stamp, Tai(NOW));
            assert_eq!((clock.kind(), clock.tai(stamp, Tai(1))), (kind, Tai(tai)));
        }
        let mut clock = Clock::new(UTC);
        clock.read(0, Tai(NOW));
        assert_eq!((clock.kind(), clock.tai(0, Tai(NOW))), (Kind::Unknown, Tai(NOW)), "no stamp");
    }

    #[test]
    fn the_time_is_that_of_the_card_where_the_two_clocks_are_apart() {
        for (kind, apart, utc) in
            [(Kind::Tai, 60_000_000i64, 0), (Kind::Tai, -60_000_000, 0), (Kind::Utc, 60_000_000, UTC)]
        {
            let mut clock = Clock::new(UTC);
            assert_eq!(clock.now(Tai(NOW)), Tai(NOW), "nothing has been stamped");
            // The card says so long ago what is read so much later.
            for (after, late) in [(0, 80_000), (1_000_000, 10_000), (2_000_000, 60_000)] {
                let stamp = NOW.wrapping_add_signed(after - apart - utc);
                clock.read(stamp, Tai(NOW.wrapping_add_signed(after + late)));
            }
            assert_eq!(clock.kind(), kind);
            let (now, stamp) = (Tai(NOW + 3_000_000), NOW.wrapping_add_signed(3_000_000 - apart - utc));
            assert_eq!(clock.tai(stamp, now).since(clock.now(now)), 10_000, "{kind:?} {apart}");
            // The system's clock is set by 50 ms: that counts at once, or with the next second but one.
            for n in 0..300u64 {
                let at = 10_000_000 * n as i64;
                let step = if apart < 0 { 50_000_000 } else { -50_000_000 };
                let stamp = NOW.wrapping_add_signed(10_000_000 + at - apart - utc);
                clock.read(stamp, Tai(NOW.wrapping_add_signed(10_000_000 + at + step + 10_000)));
                let lag = clock.tai(stamp, now).since(clock.now(Tai(NOW.wrapping_add_signed(10_000_000 + at + step))));
                assert!(lag == 10_000 || (step > 0 && n < 210), "{n}: {lag}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_is_judged_anew() {
        // `ptp4l` sets a clock that ran on UTC to TAI; another one back; a third to 1970, from where it runs freely.
        for (before, step, kind) in [
            (-UTC, UTC, Kind::Tai),
            (0, -UTC, Kind::Utc),
            (0, -1_000_000_000_000_000_000, Kind::Free),
            (-UTC, 3_600_000_000_000, Kind::Free),
        ] {
            let mut clock = Clock::new(UTC);
            let first = clock.kind();
            let read = |clock: &mut Clock, ms: u64, apart: i64| {
                let now = NOW + ms * 1_000_000;
                let stamp = now.wrapping_add_signed(apart) - 20_000;
                clock.read(stamp, Tai(now));
                clock.tai(stamp, Tai(0)).since(Tai(now))
            };
            (0..50).for_each(|n| assert_eq!(read(&mut clock, n * 100, before), -20_000));
            let judged = clock.kind();
            assert!(first == Kind::Unknown && matches!(judged, Kind::Tai | Kind::Utc));
            // For a second it is off by the step, and then it is right.
            for n in 50..60 {
                assert_eq!(read(&mut clock, n * 100, before + step), step - 20_000, "{n}");
                assert_eq!(clock.kind(), judged);
            }
            for n in 60..200 {
                let error = read(&mut clock, n * 100, before + step);
                assert!((-20_000..=0).contains(&error), "{kind:?} {n}: {error}");
            }
            assert_eq!(clock.kind(), kind);
            let now = Tai(NOW + 20_000_000_000);
            assert!(clock.now(now).since(now).abs() <= 20_000, "and so is the time that others wait by");
        }
    }

    #[test]
    fn a_clock_that_looked_free_is_judged_anew() {
        // On TAI all the time, while ours is 20 s ahead for 5 s; and one that begins at 0 and is set to UTC after 5 s.
        for (utc, apart) in [(0, 20_000_000_000), (UTC, NOW as i64)] {
            let mut clock = Clock::new(UTC);
            let mut read = |n: u64| {
                let now = NOW + n * 100_000_000;
                let (reading, stamp) = match n {
                    0..50 if utc == 0 => (now + apart as u64, now - 20_000),
                    0..50 => (now, now - apart as u64 + 1),
                    _ => (now, now - utc as u64 - 20_000),
                };
                clock.read(stamp, Tai(reading));
                (clock.kind(), clock.tai(stamp, Tai(0)).since(Tai(reading)))
            };
            (0..50).for_each(|n| assert_eq!(read(n).0, Kind::Free));
            let judged: Vec<_> = (50..150).map(read).collect();
            assert_eq!(judged[99], (if utc == 0 { Kind::Tai } else { Kind::Utc }, -20_000));
            // It is never early, and never more than the step late.
            assert!(judged.iter().skip(40).all(|(kind, late)| *kind != Kind::Free && *late == -20_000), "{judged:?}");
        }
    }

    #[test]
    fn readings_that_are_late_are_no_reason_to_judge_a_clock_anew() {
        let mut clock = Clock::new(UTC);
        clock.read(NOW - 20_000, Tai(NOW));
        // Whoever reads is held up for 2 s, again and again: the packets that waited are late, those behind them are not.
        for n in 1..100u64 {
            let now = NOW + n * 3_000_000_000;
            for late in [2_000_000_000, 1_900_000_000, 700_000_000, 20_000] {
                clock.read(now - late, Tai(now));
                assert_eq!((clock.kind(), clock.tai(now, Tai(0))), (Kind::Tai, Tai(now)));
            }
        }
        // A few packets a second, all of them late, say nothing within a second.
        let now = NOW + 400_000_000_000;
        for n in 0..u64::from(FAR) - 1 {
            clock.read(now + n * 500_000_000 - 900_000_000, Tai(now + n * 500_000_000));
            assert_eq!(clock.kind(), Kind::Tai);
        }
    }

    #[test]
    fn a_free_clock_is_tied_by_its_smallest_distance_and_follows_drift() {
        let mut clock = Clock::new(UTC);
        // Read 80 us late, then 10 us, then 60.
        for (after, late) in [(0, 80_000), (1_000_000, 10_000), (2_000_000, 60_000)] {
            clock.read(1_000 + after, Tai(NOW + after + late));
        }
        assert_eq!(clock.tai(1_000, Tai(0)), Tai(NOW + 10_000));
        // It runs 100 ppm slow: after three seconds it is 300 us behind.
        for n in 1..=300u64 {
            let true_time = n * 10_000_000;
            clock.read(1_000 + true_time - true_time / 10_000, Tai(NOW + true_time + 10_000));
        }
        let stamp = 1_000 + 3_000_000_000 - 300_000;
        let error = clock.tai(stamp, Tai(0)).since(Tai(NOW + 3_000_000_000));
        assert!((-200_000..=10_000).contains(&error), "{error} ns");
    }
}
