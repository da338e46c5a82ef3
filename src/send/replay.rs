//! Sending a recording again, at its own pace.

use super::impair::Between;
use super::live::{Options, Report};
use super::pace::{Clock, Gather, Packets, thread_cpu};
use super::recording::{Recorded, Recording, Repeat};
use super::renew::Renewer;
use super::socket::Outlet;
use crate::error::Result;
use crate::time::{Tai, ticks_since_epoch};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How to replay.
#[derive(Clone, Copy, Debug)]
pub struct Tempo {
    /// 1 as recorded, 2 twice as fast.
    pub speed: f64,
    /// Go on with the first packet after the last.
    pub repeat: Option<Repeat>,
    /// The RTP clock's rate.
    pub clock_rate: u32,
}

/// Packets of a recording that lie next to each other and go to one leg.
struct Run<'a> {
    recording: &'a Recording,
    packets: &'a [Recorded],
}

impl Packets for Run<'_> {
    fn count(&self) -> usize {
        self.packets.len()
    }
    fn pieces<'a>(&'a self, index: usize, give: &mut dyn FnMut(&'a [u8])) {
        if let Some(packet) = self.packets.get(index) {
            give(self.recording.octets.get(packet.place.clone()).unwrap_or_default());
        }
    }
}

/// Packets that were recorded within this time may leave together.
const TOGETHER_NS: u64 = 100_000;
/// A recording that is so late goes on from here and now, with what follows at its own distances.
const LOST_NS: i64 = 50_000_000;

/// Sends the recording until it ends, a limit is reached, or `stop` is set. Timestamps are moved so that they lie to
/// the time of sending as they lay to the time of recording. `frames` of the options counts timestamps.
///
/// # Errors
/// The network refuses.
pub fn run(
    recording: &mut Recording,
    outlets: &mut [Outlet],
    options: &Options,
    tempo: Tempo,
    stop: &AtomicBool,
) -> Result<Report> {
    let clock = Clock::new(options.utc_offset_s, options.spin);
    let mut gather = Gather::new(options.segment);
    let mut report = Report::new(outlets.len());
    let cpu = thread_cpu();
    let legs = outlets.len();
    let mut faults = options.fault.as_ref().map(|plan| Between::new(plan, recording.extended, legs, legs));
    let mut base = clock.now() + Duration::from_millis(20);
    let begin = base;
    let end = options.duration.map(|d| begin + d);
    let moved = |to: u64, from: u64| {
        ticks_since_epoch(Tai(to), tempo.clock_rate).wrapping_sub(ticks_since_epoch(Tai(from), tempo.clock_rate))
    };
    recording.advance(0, moved(base.0, recording.start) as u32);
    let scaled = |ns: u64| Duration::from_nanos((ns as f64 / tempo.speed) as u64);
    let (mut last_timestamp, mut finished) = (None, false);
    let (mut renewer, mut looked) = (Renewer::new(legs), 0);
    'rounds: loop {
        let mut first = 0;
        while let Some(packet) = recording.packets.get(first) {
            let due = base + scaled(packet.time);
            if stop.load(Ordering::Relaxed) || end.is_some_and(|end| due >= end) {
                break 'rounds;
            }
            let together = recording.packets.iter().skip(first).take(options.group.max(1));
            let count = together.take_while(|p| p.leg == packet.leg && p.time - packet.time <= TOGETHER_NS).count();
            let mut packets = recording.packets.get(first..first + count).unwrap_or_default();
            for (index, packet) in packets.iter().enumerate().filter(|(_, p)| p.leg == 0) {
                let timestamp = Some(recording.timestamp(packet));
                if last_timestamp != timestamp {
                    if options.frames == Some(report.frames) {
                        packets = packets.get(..index).unwrap_or_default();
                        finished = true;
                        break;
                    }
                    last_timestamp = timestamp;
                    report.frames += 1;
                }
            }
            if let Some(faults) = &mut faults {
                faults.post_until(due, &clock, &mut gather, outlets, &mut report, stop)?;
            }
            let left = clock.wait(due);
            let late = left.since(due);
            report.lateness.add(late);
            if late > LOST_NS {
                base = base + Duration::from_nanos(late as u64);
                report.skipped += 1;
            }
            let leg = usize::from(packet.leg).min(outlets.len().saturating_sub(1));
            if let Some(faults) = &mut faults {
                for packet in packets {
                    let octets = recording.octets.get(packet.place.clone()).unwrap_or_default();
                    faults.packet(leg as u8, base + scaled(packet.time), octets)?;
                }
                faults.post(&mut gather, outlets, &mut report)?;
            } else if let Some(outlet) = outlets.get(leg) {
                let (sent, octets) = report.send_by(&mut gather, leg, outlet, &Run { recording, packets })?;
                report.packets += sent;
                report.octets += octets;
            }
            if finished {
                break 'rounds;
            }
            first += count;
            if looked != report.frames {
                looked = report.frames;
                renewer.look(left, outlets, &mut report);
            }
        }
        let Some(repeat) = tempo.repeat else { break };
        recording.advance(repeat.sequence, repeat.ticks);
        base = base + scaled(repeat.period_ns);
    }
    if let Some(faults) = &mut faults {
        faults.finish(&clock, &mut gather, outlets, &mut report, stop)?;
    }
    report.seconds = clock.now().since(begin).max(0) as f64 / 1e9;
    report.cpu_seconds = (thread_cpu() - cpu).as_secs_f64();
    report.segmented = gather.segment;
    Ok(report)
}
