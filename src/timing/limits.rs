//! What ST 2110-21 allows, and what the field tests for where the standard has no number; and what a user wants instead.

mod text;

use super::schedule::Schedule;
use crate::sdp::SenderType;
use serde::Serialize;
use std::fmt::Display;

/// Octets of an IP packet that the bucket sizes are reckoned with where `MAXUDP` is not signalled.
const STANDARD: u64 = 1500;
/// The Standard UDP Size Limit (ST 2110-10:2022, 6.3).
const STANDARD_UDP: u32 = 1460;
/// From here on ST 2110-21 defines no CMAX of wide senders, in packets a second.
const WIDE_UP_TO: u128 = 900_000;

/// Sizes of the two buckets for each sender type (ST 2110-21:2022, 6.6 and 7.1), in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Buckets {
    /// VRXFULL of types N and NL: `max(INT(1500*8/M), INT(NPACKETS/(27000*TFRAME)))`.
    pub vrx_narrow: u32,
    /// VRXFULL of type W: `max(INT(1500*720/M), INT(NPACKETS/(300*TFRAME)))`.
    pub vrx_wide: u32,
    /// CMAX of type N: `max(4, INT(NPACKETS/(43200*RACTIVE*TFRAME)))`.
    pub cmax_narrow: u32,
    /// CMAX of type NL: `max(4, INT(NPACKETS/(43200*TFRAME)))`.
    pub cmax_narrow_linear: u32,
    /// CMAX of type W: `max(16, INT(NPACKETS/(21600*TFRAME)))`, below 900 000 packets a second.
    pub cmax_wide: Option<u32>,
}

impl Buckets {
    /// For a read schedule and a largest datagram. M is 1500 with the standard limit, else `MAXUDP`; EBU LIST takes 1500
    /// always.
    pub fn new(schedule: &Schedule, max_udp: u32) -> Self {
        let m = if max_udp <= STANDARD_UDP { STANDARD } else { u64::from(max_udp) };
        let rate = schedule.rate();
        let (active, total) = schedule.active_lines();
        let packets = u128::from(schedule.packets()) * u128::from(rate.num);
        let den = u128::from(rate.den);
        let per = |n: u128| u32::try_from(packets / (n * den)).unwrap_or(u32::MAX);
        let gapped = packets * u128::from(total) / (43_200 * u128::from(active) * den);
        Buckets {
            vrx_narrow: per(27_000).max((STANDARD * 8 / m) as u32),
            vrx_wide: per(300).max((STANDARD * 720 / m) as u32),
            cmax_narrow: u32::try_from(gapped).unwrap_or(u32::MAX).max(4),
            cmax_narrow_linear: per(43_200).max(4),
            cmax_wide: (packets < WIDE_UP_TO * den).then(|| per(21_600).max(16)),
        }
    }

    /// CMAX and VRXFULL that a sender of a type is held against; no CMAX where ST 2110-21 has none.
    pub fn held(&self, sender_type: SenderType, limits: &Limits) -> (Option<u32>, u32) {
        let (cmax, full) = match sender_type {
            SenderType::N => (Some(self.cmax_narrow), self.vrx_narrow),
            SenderType::Nl => (Some(self.cmax_narrow_linear), self.vrx_narrow),
            SenderType::W => (self.cmax_wide, self.vrx_wide),
        };
        let times =
            |n: u32, thousandths: u32| u32::try_from(u64::from(n) * u64::from(thousandths) / 1000).unwrap_or(u32::MAX);
        let cmax = limits.cmax.or(cmax.map(|n| times(n, limits.cmax_thousandths)));
        (cmax, limits.vrx_full.unwrap_or_else(|| times(full, limits.vrx_full_thousandths)))
    }
}

/// Windows that measures are held against, where they are no buckets of ST 2110-21. The defaults are those of EBU LIST
/// and of JT-NM Tested where the standards give none. [`Limits::read`] and [`Limits::set`] take them from people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// CMAX that stands in place of the standard's, as the SDP's does.
    pub cmax: Option<u32>,
    /// The standard's CMAX is multiplied by so many thousandths.
    pub cmax_thousandths: u32,
    /// VRXFULL that stands in place of the standard's.
    pub vrx_full: Option<u32>,
    /// The standard's VRXFULL is multiplied by so many thousandths.
    pub vrx_full_thousandths: u32,
    /// The raster has a gapped schedule, or has none, whatever ST 2110-21 says.
    pub gapped: Option<bool>,
    /// FPT in nanoseconds; where there is none it is shown beside TROFFSET and not judged.
    pub fpt_ns: Option<(i64, i64)>,
    /// First packet of a frame after the instant of its timestamp, in nanoseconds: least and most.
    pub video_latency_ns: (i64, i64),
    /// Ticks that a timestamp may lie before its frame, and behind TROFFSET.
    pub rtp_offset_slack: i64,
    /// Gap between frames or fields in millionths of TFRAME; where there is none it is shown and not judged.
    pub gap_ppm: Option<(i64, i64)>,
    /// TD of ST 2110-40 in nanoseconds, in place of the standard's.
    pub ancillary_delay_ns: Option<i64>,
    /// Arrival of audio after the instant of its timestamp, in nanoseconds.
    pub audio_latency_ns: (i64, i64),
    /// Mean time between packets of audio in millionths of a packet time (JT-NM Tested).
    pub audio_spacing_ppm: (i64, i64),
    /// Time between two packets of audio at most, in packet times (JT-NM Tested).
    pub audio_spacing_most: u32,
    /// TS-DF of audio in packet times that is good (EBU Tech 3337).
    pub ts_df_good: u32,
    /// TS-DF of audio in packet times at most (EBU Tech 3337; AES67:2018, 7.2 allows 17 packet times).
    pub ts_df: u32,
    /// How far two legs may lie apart, in nanoseconds (ST 2022-7:2019, class A).
    pub skew_ns: i64,
    /// Packets of a flow that may be missing.
    pub lost: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            cmax: None,
            cmax_thousandths: 1000,
            vrx_full: None,
            vrx_full_thousandths: 1000,
            gapped: None,
            fpt_ns: None,
            video_latency_ns: (0, 1_000_000),
            rtp_offset_slack: 1,
            gap_ppm: None,
            ancillary_delay_ns: None,
            audio_latency_ns: (0, 20_000_000),
            audio_spacing_ppm: (990_000, 1_010_000),
            audio_spacing_most: 17,
            ts_df_good: 1,
            ts_df: 17,
            skew_ns: 10_000_000,
            lost: 0,
        }
    }
}

impl Limits {
    /// What is held otherwise than by default, in words: reports say it, for their verdicts rest on it.
    pub fn differences(&self) -> Vec<String> {
        let d = Limits::default();
        let mut out = Vec::new();
        let mut add = |differs: bool, text: String| out.extend(differs.then_some(text));
        let us = |ns: i64| ns as f64 / 1e3;
        let percent = |ppm: i64| ppm as f64 / 1e4;
        let optional = |value: Option<u32>| value.map_or_else(String::new, |n| n.to_string());
        add(self.cmax != d.cmax, format!("CMAX is {} packets, not that of ST 2110-21, 6.6.1", optional(self.cmax)));
        let times = |thousandths: u32| f64::from(thousandths) / 1e3;
        add(
            self.cmax_thousandths != d.cmax_thousandths,
            format!("CMAX is {} times that of ST 2110-21, 6.6.1", times(self.cmax_thousandths)),
        );
        add(
            self.vrx_full != d.vrx_full,
            format!("VRXFULL is {} packets, not that of ST 2110-21, 6.6.2", optional(self.vrx_full)),
        );
        add(
            self.vrx_full_thousandths != d.vrx_full_thousandths,
            format!("VRXFULL is {} times that of ST 2110-21, 6.6.2", times(self.vrx_full_thousandths)),
        );
        let has = if self.gapped == Some(true) { "a" } else { "no" };
        add(self.gapped != d.gapped, format!("rasters have {has} gapped schedule, whatever ST 2110-21, 6.3 says"));
        let span = |window: Option<(i64, i64)>, of: &dyn Fn(i64) -> f64| {
            window.map_or_else(String::new, |(least, most)| from_to(of(least), of(most)))
        };
        add(self.fpt_ns != d.fpt_ns, format!("FPT is held within {} us", span(self.fpt_ns, &us)));
        let window = |name: &str, now: (i64, i64), usual: (i64, i64), of: &dyn Fn(i64) -> f64, unit: &str| {
            let (now, usual) = (span(Some(now), of), span(Some(usual), of));
            format!("{name} is held within {now} {unit}, not {usual}")
        };
        add(
            self.video_latency_ns != d.video_latency_ns,
            window("video latency", self.video_latency_ns, d.video_latency_ns, &us, "us"),
        );
        add(
            self.rtp_offset_slack != d.rtp_offset_slack,
            format!("RTP offset may miss by {} ticks, not {}", self.rtp_offset_slack, d.rtp_offset_slack),
        );
        let gap = span(self.gap_ppm, &percent);
        add(self.gap_ppm != d.gap_ppm, format!("the gap between frames or fields is held within {gap} % of a frame"));
        let delay = self.ancillary_delay_ns.map_or_else(String::new, |ns| us(ns).to_string());
        add(
            self.ancillary_delay_ns != d.ancillary_delay_ns,
            format!("TD of ancillary data is {delay} us, not that of ST 2110-40, 6"),
        );
        add(
            self.audio_latency_ns != d.audio_latency_ns,
            window("audio latency", self.audio_latency_ns, d.audio_latency_ns, &us, "us"),
        );
        add(
            self.audio_spacing_ppm != d.audio_spacing_ppm,
            window(
                "mean spacing of audio",
                self.audio_spacing_ppm,
                d.audio_spacing_ppm,
                &percent,
                "% of a packet time",
            ),
        );
        let most = |name: &str, now: u32, usual: u32| format!("{name} is {now} packet times, not {usual}");
        add(
            self.audio_spacing_most != d.audio_spacing_most,
            most("largest spacing of audio", self.audio_spacing_most, d.audio_spacing_most),
        );
        add(self.ts_df_good != d.ts_df_good, most("good TS-DF", self.ts_df_good, d.ts_df_good));
        add(self.ts_df != d.ts_df, most("largest TS-DF", self.ts_df, d.ts_df));
        let skew = format!("legs may lie {} us apart, not {} (class A)", us(self.skew_ns), us(d.skew_ns));
        add(self.skew_ns != d.skew_ns, skew);
        add(self.lost != d.lost, format!("{} packets of a flow may be missing", self.lost));
        out
    }
}

fn from_to(least: impl Display, most: impl Display) -> String {
    format!("{least} to {most}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdp::{Ratio, Scan};
    use crate::timing::schedule::Pacing;

    /// The worked values of ST 2110-21 for 4:2:2 10 bit: VRX of N and W, CMAX of N, NL and W.
    #[test]
    fn worked_values() {
        use Scan::*;
        let r = |num, den| Ratio { num, den };
        let table = [
            (r(60000, 1001), 1080, Progressive, 4320, (9, 863), (6, 5, Some(16))),
            (r(60000, 1001), 1080, Progressive, 4115, (9, 822), (5, 5, Some(16))),
            (r(50, 1), 1080, Progressive, 4320, (8, 720), (5, 5, Some(16))),
            (r(30000, 1001), 1080, Progressive, 4320, (8, 720), (4, 4, Some(16))),
            (r(24000, 1001), 1080, Progressive, 4320, (8, 720), (4, 4, Some(16))),
            (r(30000, 1001), 1080, Interlaced, 4320, (8, 720), (4, 4, Some(16))),
            (r(25, 1), 1080, Interlaced, 4320, (8, 720), (4, 4, Some(16))),
            (r(60000, 1001), 720, Progressive, 1920, (8, 720), (4, 4, Some(16))),
            (r(50, 1), 720, Progressive, 1920, (8, 720), (4, 4, Some(16))),
            (r(60000, 1001), 2160, Progressive, 17280, (38, 3452), (24, 23, None)),
            (r(50, 1), 2160, Progressive, 17280, (32, 2880), (20, 20, Some(40))),
            (r(25, 1), 576, Interlaced, 864, (8, 720), (4, 4, Some(16))),
        ];
        for (rate, height, scan, packets, (narrow, wide), (n, nl, w)) in table {
            let schedule = Schedule::new(rate, height, scan, Pacing::Gapped, packets, None, None).unwrap();
            let b = Buckets::new(&schedule, 1460);
            assert_eq!((b.vrx_narrow, b.vrx_wide), (narrow, wide), "{height} {scan} {rate}");
            assert_eq!((b.cmax_narrow, b.cmax_narrow_linear, b.cmax_wide), (n, nl, w), "{height} {scan} {rate}");
        }
    }

    #[test]
    fn limits_of_a_user_stand_in_place_of_the_standards() {
        let rate = Ratio { num: 60000, den: 1001 };
        let schedule = Schedule::new(rate, 2160, Scan::Progressive, Pacing::Gapped, 17280, None, None).unwrap();
        let b = Buckets::new(&schedule, 1460);
        let of = |limits: Limits| [SenderType::N, SenderType::Nl, SenderType::W].map(|t| b.held(t, &limits));
        let d = Limits::default();
        assert_eq!(of(d), [(Some(24), 38), (Some(23), 38), (None, 3452)]);
        let half = Limits { cmax_thousandths: 500, vrx_full_thousandths: 1500, ..d };
        assert_eq!(of(half), [(Some(12), 57), (Some(11), 57), (None, 5178)]);
        let fixed = Limits { cmax: Some(7), vrx_full: Some(9), ..half };
        assert_eq!(of(fixed), [(Some(7), 9); 3]);
    }

    /// 8960 octets: INT(1500 * 8 / 8960) = 1, INT(1500 * 720 / 8960) = 120.
    #[test]
    fn larger_datagrams_make_smaller_buckets() {
        let rate = Ratio { num: 25, den: 1 };
        let schedule = Schedule::new(rate, 1080, Scan::Progressive, Pacing::Linear, 600, None, None).unwrap();
        let b = Buckets::new(&schedule, 8960);
        assert_eq!((b.vrx_narrow, b.vrx_wide), (1, 120));
        assert_eq!(Buckets::new(&schedule, 1460).vrx_narrow, 8);
    }
}
