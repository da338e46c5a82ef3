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
    /// What the receivers said last of their arrivals.
    said: Source,
    payload_type: u8,
    video: bool,
    published: Tai,
    metering: Metering,
}

/// Between two publications, by the arrivals.
const EVERY_NS: i64 = 1_000_000_000;

impl Meter {
    /// `said`: what the receivers say now.
    pub fn new(flow: &Flow, source: Source, said: Source, rules: Rules) -> (Self, Metering) {
        let metering = Metering::default();
        let meter = Meter {
            flow: timing::Flow::of(flow, source, rules),
            said,
            payload_type: flow.payload_type,
            video: matches!(flow.essence, Essence::Video(_)),
            published: Tai(0),
            metering: metering.clone(),
        };
        (meter, metering)
    }

    /// Packets that were received, and what the receivers say of their arrivals.
    pub fn look<M: Space>(&mut self, ring: &SplitRing<M>, slots: &[Slot], said: Source) {
        if said != self.said {
            self.turn(said);
        }
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

    /// Stamps of a card have ceased to come: no verdict any more. When they come again the measures begin anew, for those
    /// so far have arrivals among them that nobody stamped on the wire.
    #[cold]
    fn turn(&mut self, source: Source) {
        self.said = source;
        match source {
            Source::Hardware => self.flow = self.flow.anew(source),
            Source::Capture | Source::Software => self.flow.set_source(source),
        }
        // Soon, and not with the next second.
        self.published = Tai(0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::WireFormat;
    use crate::mem::{Host, Region};
    use crate::packetise::{Cut, Packetiser, STANDARD_UDP, Style};
    use crate::sdp::{Depth, Mode, Sampling, Scan};
    use crate::timing::buckets::Tvd;

    const SDP: &str = "v=0\r\no=- 1 1 IN IP4 10.0.0.1\r\ns=x\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 239.1.1.1/32\r\n\
                       a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=64; height=32; exactframerate=25; depth=10; \
                       TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPNL\r\n\
                       a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:sender\r\n";
    const FRAME_NS: u64 = 40_000_000;

    /// A linear sender: 32 packets a frame, 1.25 ms apart.
    struct Linear {
        packetiser: Packetiser,
        ring: SplitRing<Host>,
        next: u64,
    }

    impl Linear {
        fn new() -> Self {
            let format = WireFormat::new(Sampling::YCbCr422, Depth::D10, 64, 32, Scan::Progressive).unwrap();
            let packetiser = Packetiser::new(format, Style::new(Cut::Even { udp: STANDARD_UDP }), 7).unwrap();
            assert_eq!(packetiser.packets_per_frame(), 32);
            Linear { packetiser, ring: SplitRing::whole(Region::host(1 << 16).unwrap()), next: 42_500_000_000 }
        }
        fn frames(&mut self, count: u64, meter: &mut Meter, said: Source) {
            for _ in 0..count {
                let (at, mut octets, mut slots) = (Tai(self.next * FRAME_NS), Vec::new(), Vec::new());
                for (n, packet) in self.packetiser.frame((self.next * 3600) as u32, 0).enumerate() {
                    let (head_at, len) = (octets.len() as u32, packet.octets() as u16);
                    packet.append(&[], &mut octets);
                    let arrival = Tai(at.0 + n as u64 * 1_250_000);
                    let (head, octets, wire_octets) = (len, len, len);
                    slots.push(Slot { head_at, body_at: 0, head, octets, wire_octets, leg: 0, arrival });
                }
                self.ring.head_plane_mut().as_mut_slice()[..octets.len()].copy_from_slice(&octets);
                meter.look(&self.ring, &slots, said);
                self.next += 1;
            }
        }
    }

    #[test]
    fn verdicts_are_given_while_a_card_stamps_and_begin_anew_when_it_does_again() {
        let flow = crate::sdp::parse(SDP.as_bytes(), Mode::Lenient).flows.remove(0);
        let rules = Rules { tvd: Tvd::FirstPacket, ..Rules::default() };
        let (mut meter, metering) = Meter::new(&flow, Source::Hardware, Source::Hardware, rules);
        let mut sender = Linear::new();
        sender.frames(80, &mut meter, Source::Hardware);
        let leg = metering.read().remove(0);
        assert_eq!((leg.class, leg.not_measurable), (Some(Class::NarrowLinear), None), "{}", leg.verdict);
        let before = leg.units;
        assert!(before > 40 && leg.cinst.is_some_and(|c| c.max == 1), "{before} {:?}", leg.cinst);

        // A packet without a stamp: what was measured stays, and is no verdict.
        sender.frames(1, &mut meter, Source::Software);
        let leg = metering.read().remove(0);
        assert!(leg.units >= before && leg.class.is_none() && leg.cinst.is_none() && leg.vrx.is_none(), "{leg:?}");
        assert!(leg.verdict.contains("software stamps do not say"), "{}", leg.verdict);

        sender.frames(60, &mut meter, Source::Hardware);
        let leg = metering.read().remove(0);
        assert_eq!((leg.class, leg.not_measurable), (Some(Class::NarrowLinear), None), "{}", leg.verdict);
        assert!(leg.units < before, "{} since it stamps again", leg.units);
    }

    #[test]
    fn what_the_caller_knows_better_counts_while_receivers_say_the_same() {
        let flow = crate::sdp::parse(SDP.as_bytes(), Mode::Lenient).flows.remove(0);
        let rules = Rules { tvd: Tvd::FirstPacket, ..Rules::default() };
        let (mut meter, metering) = Meter::new(&flow, Source::Hardware, Source::Capture, rules);
        Linear::new().frames(80, &mut meter, Source::Capture);
        assert_eq!(metering.read().remove(0).class, Some(Class::NarrowLinear));
    }
}
