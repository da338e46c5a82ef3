//! What ST 2110-21 allows, and what the field tests for where the standard has no number.

use super::schedule::Schedule;
use serde::Serialize;

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
}

/// Windows that measures are held against, where they are no buckets of ST 2110-21. The defaults are those of EBU LIST
/// and of JT-NM Tested where the standards give none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// First packet of a frame after the instant of its timestamp, in nanoseconds: least and most.
    pub video_latency_ns: (i64, i64),
    /// Arrival of audio after the instant of its timestamp, in nanoseconds.
    pub audio_latency_ns: (i64, i64),
    /// TS-DF of audio in packet times that is good (EBU Tech 3337).
    pub ts_df_good: u32,
    /// TS-DF of audio in packet times at most (EBU Tech 3337; AES67:2018, 7.2 allows 17 packet times).
    pub ts_df: u32,
    /// Ticks that a timestamp may lie before its frame, and behind TROFFSET.
    pub rtp_offset_slack: i64,
    /// How far two legs may lie apart, in nanoseconds (ST 2022-7:2019, class A).
    pub skew_ns: i64,
    /// CMAX that stands in place of the standard's, as the SDP's does.
    pub cmax: Option<u32>,
    /// VRXFULL that stands in place of the standard's.
    pub vrx_full: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            video_latency_ns: (0, 1_000_000),
            audio_latency_ns: (0, 20_000_000),
            ts_df_good: 1,
            ts_df: 17,
            rtp_offset_slack: 1,
            skew_ns: 10_000_000,
            cmax: None,
            vrx_full: None,
        }
    }
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
