//! Sending in real time: each group of packets at its own absolute deadline, and no catching up in a burst.

use super::impair::Between;
use super::lateness::Lateness;
use super::pace::{Clock, FramePackets, Gather, Packets, thread_cpu};
use super::renew::Renewer;
use super::socket::Outlet;
use super::source::Source;
use super::stream::Stream;
use crate::error::Result;
use crate::fault::{FaultCounters, FaultPlan};
use crate::time::Tai;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// When to stop, and how to pace.
#[derive(Clone, Debug)]
pub struct Options {
    /// Frames to send at most.
    pub frames: Option<u64>,
    /// Time to send for at most.
    pub duration: Option<Duration>,
    /// Packets that leave together.
    pub group: usize,
    /// Use UDP_SEGMENT.
    pub segment: bool,
    /// TAI - UTC in seconds.
    pub utc_offset_s: u32,
    /// How long before a deadline to spin instead of sleep.
    pub spin: Duration,
    /// Faults on purpose.
    pub fault: Option<FaultPlan>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            frames: None,
            duration: None,
            group: 16,
            segment: true,
            utc_offset_s: 37,
            spin: Duration::from_micros(30),
            fault: None,
        }
    }
}

/// What has been achieved.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Frames sent.
    pub frames: u64,
    /// Frames whose time had passed when they could have begun: left out, not sent later in a burst.
    pub skipped: u64,
    /// Of the skipped ones: those for which the input had no frame in time.
    pub starved: u64,
    /// Packets sent, each counted once however many legs.
    pub packets: u64,
    /// UDP payload octets of these.
    pub octets: u64,
    /// Of each leg.
    pub legs: Vec<LegReport>,
    /// Packets that the kernel had no room for, all legs.
    pub dropped: u64,
    /// Times that a receiving host said that nobody listens on the port.
    pub refused: u64,
    /// From the first packet's time to the end of the last frame.
    pub seconds: f64,
    /// CPU time of the sending thread.
    pub cpu_seconds: f64,
    /// UDP_SEGMENT was in use to the end.
    pub segmented: bool,
    /// How late groups left.
    pub lateness: Lateness,
    /// Faults on purpose.
    pub faults: Option<FaultCounters>,
}

/// What has left by one leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LegReport {
    /// Packets sent.
    pub sent: u64,
    /// Packets that could not be sent because the interface was down or had gone.
    pub unsent: u64,
    /// Times that the leg was opened again on an interface that had been made anew.
    pub reopened: u64,
}

impl Report {
    pub(super) fn new(legs: usize) -> Self {
        Report { legs: vec![LegReport::default(); legs], ..Report::default() }
    }
    /// Sends packets to every leg and counts them.
    pub(super) fn send(&mut self, gather: &mut Gather, outlets: &[Outlet], packets: &impl Packets) -> Result<()> {
        // Those of the leg that most could be sent by.
        let mut most = (0, 0);
        for (leg, outlet) in outlets.iter().enumerate() {
            most = most.max(self.send_by(gather, leg, outlet, packets)?);
        }
        self.packets += most.0;
        self.octets += most.1;
        Ok(())
    }
    /// Sends packets by one leg; gives how many were sent, and their octets. A leg whose interface is down costs the others
    /// nothing.
    ///
    /// # Errors
    /// The network refuses; or it has never taken a packet by any leg.
    pub(super) fn send_by(
        &mut self,
        gather: &mut Gather,
        leg: usize,
        outlet: &Outlet,
        packets: &impl Packets,
    ) -> Result<(u64, u64)> {
        let sent = gather.send(outlet, packets).map_err(|e| outlet.error(e))?;
        if let Some(of_leg) = self.legs.get_mut(leg) {
            of_leg.sent += sent.packets;
            of_leg.unsent += sent.unsent;
        }
        self.dropped += sent.dropped;
        self.refused += sent.refused;
        match sent.away {
            Some(error) if leg + 1 >= self.legs.len() && self.legs.iter().all(|leg| leg.sent == 0) => {
                Err(outlet.error(error))
            }
            _ => Ok((sent.packets, sent.octets)),
        }
    }
    /// UDP payload bits a second that went out.
    pub fn bits_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.octets as f64 * 8.0 / self.seconds } else { 0.0 }
    }
    /// The share of the frames that the input gave and that went out, 0 to 1.
    pub fn share(&self) -> f64 {
        let due = self.frames + self.skipped - self.starved;
        if due == 0 { 1.0 } else { self.frames as f64 / due as f64 }
    }
}

/// A machine that sends less than this share of the frames is too slow.
pub const ENOUGH: f64 = 0.9;
/// When that is judged for the first time.
const JUDGE_AFTER_NS: u64 = 2_000_000_000;

/// Groups follow each other no faster than this share of their scheduled distance, so that a stall is made good
/// slowly: TDRAIN of ST 2110-21 allows 1 / 1.1.
const CATCH_UP: (u64, u64) = (10, 11);

/// Sends until a limit is reached, the source ends or `stop` is set. `slow` is told once, after two seconds, when
/// the machine does not keep up.
///
/// # Errors
/// The source fails; the network refuses.
pub fn run(
    stream: &mut Stream,
    source: &mut dyn Source,
    outlets: &mut [Outlet],
    options: &Options,
    stop: &AtomicBool,
    slow: &mut dyn FnMut(&Report),
) -> Result<Report> {
    let clock = Clock::new(options.utc_offset_s, options.spin);
    let mut gather = Gather::new(options.segment);
    let mut report = Report::new(outlets.len());
    let group = options.group.max(1);
    let count = stream.template.packets.len();
    let schedule = stream.schedule;
    let spacing = schedule.spacing_ns() as u64;
    let cpu = thread_cpu();
    let mut faults =
        options.fault.as_ref().map(|plan| Between::new(plan, stream.template.extended(), outlets.len(), 1));
    let mut whole = Vec::new();
    let mut renewer = Renewer::new(outlets.len());

    // Time to wake up and to have the first frame ready.
    let mut frame = schedule.frame_at(clock.now() + Duration::from_millis(20)) + 1;
    let begin = schedule.packet(frame, 0);
    let end = options.duration.map(|d| begin + d);
    let mut earliest = Tai(0);
    let mut judged = false;
    let mut waited = false;

    while !stop.load(Ordering::Relaxed) && options.frames.is_none_or(|n| report.frames < n) {
        let due = schedule.packet(frame, 0);
        let now = clock.now();
        if now.since(due) > schedule.frame_ns() as i64 {
            let next = schedule.frame_at(now - Duration::from_nanos(schedule.offset_ns())) + 1;
            report.skipped += next - frame;
            report.starved += if waited { next - frame } else { 0 };
            frame = next;
        } else if due.since(now) > 1_000_000_000 + 2 * schedule.frame_ns() as i64 {
            // The clock went back.
            frame = schedule.frame_at(now) + 1;
        }
        if end.is_some_and(|end| schedule.packet(frame, 0) >= end) {
            break;
        }
        let Some(octets) = source.next()? else { break };
        waited = clock.now() > schedule.packet(frame, 0) && now <= due;
        let timestamps = schedule.timestamps(frame, stream.format.scan);
        for first in (0..count).step_by(group) {
            let range = first..(first + group).min(count);
            stream.template.stamp(range.clone(), stream.sequence, timestamps);
            let due = schedule.packet(frame, first as u32);
            if let Some(faults) = &mut faults {
                faults.post_until(due.max(earliest), &clock, &mut gather, outlets, &mut report, stop)?;
            }
            let left = clock.wait(due.max(earliest));
            report.lateness.add(left.since(due));
            earliest = left + Duration::from_nanos(spacing * range.len() as u64 * CATCH_UP.0 / CATCH_UP.1);
            let packets = stream.template.packets.get(range).unwrap_or_default();
            if let Some(faults) = &mut faults {
                for (index, packet) in (first as u32..).zip(packets) {
                    whole.clear();
                    stream.template.write(packet, octets, &mut whole);
                    for leg in 0..outlets.len() {
                        faults.packet(leg as u8, schedule.packet(frame, index), &whole)?;
                    }
                }
                faults.post(&mut gather, outlets, &mut report)?;
                continue;
            }
            let packets = FramePackets { template: &stream.template, packets, frame: octets };
            report.send(&mut gather, outlets, &packets)?;
        }
        stream.sequence = stream.sequence.wrapping_add(count as u32);
        report.frames += 1;
        frame += 1;
        renewer.look(clock.now(), outlets, &mut report);
        if !judged && clock.now().since(begin) >= JUDGE_AFTER_NS as i64 {
            judged = true;
            if report.share() < ENOUGH {
                report.seconds = clock.now().since(begin) as f64 / 1e9;
                slow(&report);
            }
        }
    }
    if let Some(faults) = &mut faults {
        faults.finish(&clock, &mut gather, outlets, &mut report, stop)?;
    }
    // A frame is over when its time is: that makes the rates true for short runs.
    let over = schedule.packet(frame, 0).max(clock.now());
    report.seconds = if report.frames == 0 { 0.0 } else { over.since(begin).max(0) as f64 / 1e9 };
    report.cpu_seconds = (thread_cpu() - cpu).as_secs_f64();
    report.segmented = gather.segment;
    Ok(report)
}
