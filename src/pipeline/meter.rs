//! ST 2110-21 and its kin of a flow that is being received: heads of packets into [`timing::Flow`], figures out once a
//! second. Costs something for each packet, and only where it is asked for.

use crate::mem::Space;
use crate::ring::{Slot, SplitRing};
use crate::sdp::{Essence, Flow};
use crate::time::Tai;
use crate::timing::flow::Meter as Measures;
use crate::timing::measure::Stat;
use crate::timing::windows;
use crate::timing::{self, Class, Rules, Source, Trust};
use crate::wire::{rtp, srd};
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};

/// Measures of a leg since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LegTiming {
    /// Counted from 0.
    pub leg: usize,
    /// Frames or fields.
    pub units: u64,
    /// How the timestamps lie to the arrivals.
    pub clocks: &'static str,
    /// The class, or why there is none.
    pub verdict: String,
    /// The class.
    pub class: Option<Class>,
    /// Network compatibility bucket; none where the clock of the arrivals cannot carry it.
    pub cinst: Option<Range>,
    /// Receiver's buffer, with the reads of the class that the sender claims, else gapped; none as above.
    pub vrx: Option<Range>,
    /// First packet after N * TFRAME, in nanoseconds.
    pub fpt_ns: Option<Range>,
    /// TROFFSET less that.
    pub margin_ns: Option<Range>,
    /// First packet after its RTP time, in nanoseconds.
    pub latency_ns: Option<Range>,
    /// Timestamp less that of N * TFRAME, in ticks.
    pub rtp_offset: Option<Range>,
    /// Ticks from one timestamp to the next.
    pub increment: Option<Range>,
    /// Packets of a frame or field.
    pub packets: Option<Range>,
    /// What lies outside of its window: latency, RTP offset, and what limits were given for.
    pub outside: Vec<String>,
    /// Why some are not shown.
    pub not_measurable: Option<String>,
}

/// Extremes and mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Range {
    /// Smallest.
    pub min: i64,
    /// Mean.
    pub mean: f64,
    /// Largest.
    pub max: i64,
}

impl Range {
    fn of(stat: &Stat) -> Option<Self> {
        (stat.count > 0).then(|| Range { min: stat.min, mean: stat.mean(), max: stat.max })
    }
}

/// Where the figures are read.
#[derive(Clone, Debug, Default)]
pub struct Metering(Arc<Mutex<Vec<LegTiming>>>);

impl Metering {
    /// The figures of each leg, at most a second old.
    pub fn read(&self) -> Vec<LegTiming> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The receiving thread's side.
#[derive(Debug)]
pub(super) struct Meter {
    flow: timing::Flow,
    payload_type: u8,
    video: bool,
    published: Tai,
    metering: Metering,
}

/// Between two publications, by the arrivals.
const EVERY_NS: i64 = 1_000_000_000;

impl Meter {
    pub fn new(flow: &Flow, source: Source, rules: Rules) -> (Self, Metering) {
        let metering = Metering::default();
        let meter = Meter {
            flow: timing::Flow::of(flow, source, rules),
            payload_type: flow.payload_type,
            video: matches!(flow.essence, Essence::Video(_)),
            published: Tai(0),
            metering: metering.clone(),
        };
        (meter, metering)
    }

    /// Packets that were received.
    pub fn look<M: Space>(&mut self, ring: &SplitRing<M>, slots: &[Slot]) {
        for slot in slots {
            if let Some(packet) = self.packet(ring.head(slot), slot) {
                self.flow.push(&packet);
            }
        }
        if let Some(newest) = slots.last().map(|slot| slot.arrival)
            && newest.since(self.published) >= EVERY_NS
        {
            self.published = newest;
            let figures = (0..self.flow.legs()).filter_map(|leg| figures(&self.flow, leg)).collect();
            // Who reads has it for a moment: then the next second does.
            if let Ok(mut place) = self.metering.0.try_lock() {
                *place = figures;
            }
        }
    }

    fn packet(&self, head: &[u8], slot: &Slot) -> Option<timing::Packet> {
        let header = rtp::parse(head, usize::from(slot.wire_octets)).ok()?;
        if header.payload_type != self.payload_type || rtp::is_rtcp(head) {
            return None;
        }
        let srds = if self.video { srd::parse(head, header.payload.clone()).ok() } else { None };
        Some(timing::Packet {
            arrival: slot.arrival,
            timestamp: header.timestamp,
            sequence: header.sequence,
            extended: srds.as_ref().map(|s| s.extended),
            ssrc: header.ssrc,
            marker: header.marker,
            second: srds.is_some_and(|s| s.first.field),
            leg: slot.leg,
            ancillary: None,
        })
    }
}

fn figures(flow: &timing::Flow, leg: usize) -> Option<LegTiming> {
    let Measures::Frames(frames) = flow.meter(leg)? else { return None };
    let trust = flow.trust(leg)?;
    let verdict = flow.verdict(leg);
    let exact = trust.slack().is_some();
    let linear = usize::from(matches!(verdict.as_ref().and_then(|v| v.class), Some(Class::NarrowLinear | Class::Wide)));
    let level = |level: Option<&timing::frames::Level>| level.filter(|_| exact).and_then(|l| Range::of(&l.all()));
    let all = |measure: &timing::measure::Measure| Range::of(&measure.all);
    Some(LegTiming {
        leg,
        units: frames.units,
        clocks: flow.clocks(leg).map_or("", |c| c.alignment.text()),
        verdict: verdict.as_ref().map(ToString::to_string).unwrap_or_default(),
        class: verdict.and_then(|v| v.class),
        cinst: level(frames.cinst.as_ref()),
        vrx: level(frames.vrx.as_ref().and_then(|v| v.get(linear))),
        fpt_ns: all(&frames.fpt),
        margin_ns: all(&frames.margin),
        latency_ns: all(&frames.latency),
        rtp_offset: all(&frames.rtp_offset),
        increment: all(&frames.increment),
        packets: all(&frames.packets),
        outside: windows::of_frames(frames, Some(&trust))
            .into_iter()
            .filter(|found| !found.good)
            .map(|found| format!("{}: {}", found.name, found.text))
            .collect(),
        not_measurable: if let Trust::No { .. } = &trust { Some(trust.to_string()) } else { None },
    })
}
