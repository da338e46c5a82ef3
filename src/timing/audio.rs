//! The measures of a leg whose packets each have their own timestamp: audio, and what is not known better.

use super::Packet;
use super::align::Aligner;
use super::measure::{Histogram, Measure, Stat};
use super::sequence::Fate;
use super::stamps::Stamps;
use crate::time::{MediaClock, Tai};

/// Window of TS-DF (EBU Tech 3337): its first packet is the reference.
const TS_DF_NS: i64 = 200_000_000;

/// A window of TS-DF.
#[derive(Clone, Copy, Debug)]
struct Window {
    arrival: Tai,
    timestamp: u32,
    least: i64,
    most: i64,
}

/// Measures of one leg. Times are nanoseconds.
#[derive(Clone, Debug)]
pub struct Audio {
    clock: MediaClock,
    /// Samples of a channel in a packet; from the first two packets where nothing said so.
    pub samples: Option<u32>,
    /// Arrival less media time.
    pub latency: Measure,
    /// Time between packets.
    pub interval: Measure,
    /// The same, how often.
    pub intervals: Histogram,
    /// TS-DF of each window: `max D - min D`, `D = (R - R0) - (S - S0) / rate`.
    pub ts_df: Measure,
    /// Steps of the timestamp that are not the samples of a packet.
    pub steps_off: u64,
    /// Clocks.
    pub aligner: Aligner,
    /// Stamps.
    pub stamps: Stamps,
    last: Option<(i64, Packet)>,
    window: Option<Window>,
    shift_ns: i64,
}

impl Audio {
    /// `shift_ns` is added to arrivals: 37 s where they are UTC.
    pub fn new(clock: MediaClock, samples: Option<u32>, shift_ns: i64) -> Self {
        let measure = || Measure::new(1_000_000);
        Audio {
            clock,
            samples,
            latency: measure(),
            interval: measure(),
            intervals: Histogram::default(),
            ts_df: Measure::new(TS_DF_NS as u64),
            steps_off: 0,
            aligner: Aligner::new(clock),
            stamps: Stamps::default(),
            last: None,
            window: None,
            shift_ns,
        }
    }

    /// A packet, and what it is to its flow.
    pub fn push(&mut self, p: &Packet, fate: Fate) {
        self.stamps.add(p.arrival);
        let Fate::New(number) = fate else { return };
        let unwrapped = self.aligner.add(p.timestamp, p.arrival);
        self.latency.add(p.arrival, unwrapped.latency_ns.saturating_add(self.shift_ns));
        self.ts_df(p);
        if let Some((before, last)) = self.last
            && number > before
        {
            let step = p.timestamp.wrapping_sub(last.timestamp);
            let packets = u32::try_from(number - before).unwrap_or(u32::MAX);
            if packets == 1 {
                self.samples.get_or_insert(step);
                let interval = p.arrival.since(last.arrival);
                self.interval.add(p.arrival, interval);
                self.intervals.add(interval);
            }
            let right = self.samples.is_none_or(|samples| step == samples.wrapping_mul(packets));
            self.steps_off += u64::from(!right);
        }
        if self.last.is_none_or(|(before, _)| number > before) {
            self.last = Some((number, *p));
        }
    }

    fn ts_df(&mut self, p: &Packet) {
        let rate = i64::from(self.clock.rate.max(1));
        match &mut self.window {
            Some(w) if p.arrival.since(w.arrival) < TS_DF_NS => {
                let media = i64::from(p.timestamp.wrapping_sub(w.timestamp) as i32) * 1_000_000_000 / rate;
                let d = p.arrival.since(w.arrival).saturating_sub(media);
                (w.least, w.most) = (w.least.min(d), w.most.max(d));
            }
            open => {
                if let Some(w) = open {
                    self.ts_df.add(w.arrival, w.most.saturating_sub(w.least));
                }
                *open = Some(Window { arrival: p.arrival, timestamp: p.timestamp, least: 0, most: 0 });
            }
        }
    }

    /// There is nothing more. A window that is not over counts when there is no other.
    pub fn finish(&mut self) {
        if let (Some(w), 0) = (self.window.take(), self.ts_df.all.count) {
            self.ts_df.add(w.arrival, w.most.saturating_sub(w.least));
        }
    }

    /// Nanoseconds of a packet, where its samples are known.
    pub fn packet_time_ns(&self) -> Option<u64> {
        let samples = u64::from(self.samples.filter(|s| *s > 0)?);
        Some(samples * 1_000_000_000 / u64::from(self.clock.rate.max(1)))
    }
}

/// What can be said of packets of any kind.
#[derive(Clone, Debug)]
pub struct Packets {
    /// Time between packets.
    pub interval: Stat,
    /// The same, how often.
    pub intervals: Histogram,
    /// Clocks, by the first packet of each timestamp.
    pub aligner: Aligner,
    last: Option<Packet>,
}

impl Packets {
    /// Of timestamps of this clock.
    pub fn new(clock: MediaClock) -> Self {
        let aligner = Aligner::new(clock);
        Packets { interval: Stat::default(), intervals: Histogram::default(), aligner, last: None }
    }
    /// A packet.
    pub fn push(&mut self, p: &Packet) {
        let last = self.last.replace(*p);
        if let Some(last) = last {
            let interval = p.arrival.since(last.arrival);
            self.interval.add(interval);
            self.intervals.add(interval);
        }
        if last.is_none_or(|last| last.timestamp != p.timestamp) {
            self.aligner.add(p.timestamp, p.arrival);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 1_700_000_037_000_000_000;

    /// 1 ms packets of 48 kHz; every 100th comes 400 us late.
    #[test]
    fn ts_df_by_hand() {
        let clock = MediaClock { rate: 48_000, offset: 0 };
        let mut a = Audio::new(clock, None, 0);
        for n in 0..1000u32 {
            let sent = Tai(T + u64::from(n) * 1_000_000);
            let arrival = Tai(sent.0 + 1_000_000 + if n % 100 == 50 { 400_000 } else { 0 });
            let p = Packet {
                arrival,
                timestamp: clock.rtp(sent),
                sequence: n as u16,
                extended: None,
                ssrc: 1,
                marker: false,
                second: false,
                leg: 0,
                ancillary: None,
            };
            a.push(&p, Fate::New(i64::from(n)));
        }
        a.finish();
        assert_eq!((a.samples, a.packet_time_ns(), a.steps_off), (Some(48), Some(1_000_000), 0));
        // 1000 packets in five windows, of which the last is not over.
        assert_eq!((a.ts_df.all.count, a.ts_df.all.min, a.ts_df.all.max), (4, 400_000, 400_000));
        assert_eq!((a.latency.all.min, a.latency.all.max), (1_000_000, 1_400_000));
        assert_eq!((a.interval.all.min, a.interval.all.max), (600_000, 1_400_000));
    }
}
