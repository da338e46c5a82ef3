//! Instants and clocks: TAI, RTP timestamps, frame numbers since the epoch.
//!
//! All arithmetic is in integers and truncates, as ST 2110-10 (7.5) and ST 2059-1 have it: a rate with 1001 below the
//! line has no exact floating point value, and nanoseconds times ticks overflow 64 bits.

use crate::sdp::Ratio;
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

const NANOS: u128 = 1_000_000_000;

/// Ticks a second of the RTP clock of video, ancillary data and compressed video (ST 2110-10, 7.5).
pub const VIDEO_CLOCK: u32 = 90_000;

/// An instant: nanoseconds of TAI since 1970-01-01 00:00:00 TAI (the SMPTE and PTP epoch).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Tai(pub u64);

impl Tai {
    /// Nanoseconds from `earlier` to `self`, negative when `self` is earlier.
    pub const fn since(self, earlier: Tai) -> i64 {
        self.0.wrapping_sub(earlier.0) as i64
    }
}

impl Add<Duration> for Tai {
    type Output = Tai;
    fn add(self, d: Duration) -> Tai {
        Tai(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Tai {
    type Output = Tai;
    fn sub(self, d: Duration) -> Tai {
        Tai(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Tai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A time of the system's clock as people and logs write it (RFC 3339, UTC, milliseconds): `2026-11-30T03:22:20.123Z`.
/// Years are those of the Gregorian calendar; what lies before 1970 is 1970.
pub fn utc(time: std::time::SystemTime) -> String {
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Years begin in March, so that the day that may be missing is their last; eras have 400 of them.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// The RTP timestamp of an instant: `floor(t * rate) mod 2^32` (ST 2110-10, 7.5; offset zero).
pub const fn rtp_from_tai(tai: Tai, rate: u32) -> u32 {
    ticks_since_epoch(tai, rate) as u32
}

/// Whole ticks of a clock since the epoch, not wrapped.
pub const fn ticks_since_epoch(tai: Tai, rate: u32) -> u64 {
    // At most 2^64 / 10^9 * 2^32 < 2^67: saturated for a rate that no essence has.
    let ticks = tai.0 as u128 * rate as u128 / NANOS;
    if ticks > u64::MAX as u128 { u64::MAX } else { ticks as u64 }
}

/// The clock behind the RTP timestamps of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaClock {
    /// Ticks a second.
    pub rate: u32,
    /// What `a=mediaclk:direct=` says: the timestamp at the epoch. Zero in ST 2110, not in AES67.
    pub offset: u32,
}

/// An RTP timestamp put on the time line with the help of its arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwrapped {
    /// Ticks since the epoch, without wrap.
    pub ticks: i64,
    /// The instant that the timestamp names (its tick's beginning).
    pub media: Tai,
    /// Nanoseconds from that instant to the arrival; negative when the timestamp lies in the future.
    pub latency_ns: i64,
}

impl MediaClock {
    /// 90 kHz, no offset.
    pub const VIDEO: MediaClock = MediaClock { rate: VIDEO_CLOCK, offset: 0 };

    /// The RTP timestamp of an instant.
    pub const fn rtp(self, tai: Tai) -> u32 {
        rtp_from_tai(tai, self.rate).wrapping_add(self.offset)
    }

    /// The instant that `rtp` names, taken to be the nearest to `arrival`: right while the latency stays under half a
    /// wrap, 6.6 hours at 90 kHz.
    pub const fn unwrap(self, rtp: u32, arrival: Tai) -> Unwrapped {
        let now = ticks_since_epoch(arrival, self.rate);
        let ahead = rtp.wrapping_sub(self.offset).wrapping_sub(now as u32) as i32;
        let ticks = (now as i64).wrapping_add(ahead as i64);
        let rate = if self.rate == 0 { 1 } else { self.rate };
        let nanos = ticks as i128 * NANOS as i128 / rate as i128;
        let media = Tai(if nanos < 0 { 0 } else { nanos as u64 });
        let latency = arrival.0 as i128 - nanos;
        Unwrapped { ticks, media, latency_ns: latency as i64 }
    }
}

/// The number of the frame that runs at an instant, counted from the epoch: `floor(t * num / den)`.
pub const fn frame_number(tai: Tai, rate: Ratio) -> u64 {
    (tai.0 as u128 * rate.num as u128 / (NANOS * rate.den as u128)) as u64
}

/// Ticks since the epoch at which frame `number` begins, not wrapped: `floor(N * clock * den / num)`.
pub const fn frame_ticks(number: u64, rate: Ratio, clock: u32) -> u64 {
    if rate.num == 0 {
        return 0;
    }
    (number as u128 * clock as u128 * rate.den as u128 / rate.num as u128) as u64
}

/// The RTP timestamp of frame `number` of a sender that is aligned with the epoch.
pub const fn frame_timestamp(number: u64, rate: Ratio, clock: u32) -> u32 {
    frame_ticks(number, rate, clock) as u32
}

/// Ticks from the first field to the second: `floor(clock * TFRAME / 2)` (ST 2110-20, 7.2). Zero for a zero rate.
pub const fn half_frame_ticks(rate: Ratio, clock: u32) -> u32 {
    if rate.num == 0 {
        return 0;
    }
    let ticks = clock as u64 * rate.den as u64 / (2 * rate.num as u64);
    if ticks > u32::MAX as u64 { u32::MAX } else { ticks as u32 }
}

/// Nanoseconds of a frame, rounded down. Zero for a zero rate.
pub const fn frame_nanos(rate: Ratio) -> u64 {
    if rate.num == 0 {
        return 0;
    }
    (NANOS as u64).saturating_mul(rate.den as u64) / rate.num as u64
}

/// Ticks from the beginning of the frame that runs at `ticks` to `ticks`; `ticks` counts from the epoch. A first field of
/// an aligned sender has phase 0, a second field the phase [`half_frame_ticks`].
pub const fn frame_phase(ticks: u64, rate: Ratio, clock: u32) -> u32 {
    if rate.num == 0 || rate.den == 0 || clock == 0 {
        return 0;
    }
    // The largest N whose floor(N * T) is not beyond `ticks`: floor(((ticks + 1) * num - 1) / (clock * den)).
    let number = ((ticks as u128 + 1) * rate.num as u128).saturating_sub(1) / (clock as u128 * rate.den as u128);
    ticks.saturating_sub(frame_ticks(number as u64, rate, clock)) as u32
}

/// How the RTP clock of a sender lies to the clock that stamped the arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// Latency under a second: timestamps are TAI.
    Aligned,
    /// About 37 s apart: the arrivals are UTC, or the timestamps are (leap seconds: 37 since 2017).
    Utc,
    /// Neither: a free-running clock, media time is not to be trusted.
    Free,
}

/// TAI - UTC since 2017-01-01, in seconds. Only for this judgement; times are converted with what PTP announces.
const LEAP_SECONDS: i64 = 37;

impl Alignment {
    /// What a latency says about the two clocks.
    pub const fn judge(latency_ns: i64) -> Alignment {
        const SECOND: i64 = 1_000_000_000;
        let size = latency_ns.saturating_abs();
        if size <= SECOND {
            Alignment::Aligned
        } else if size.saturating_sub(LEAP_SECONDS * SECOND).saturating_abs() <= SECOND {
            Alignment::Utc
        } else {
            Alignment::Free
        }
    }
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Alignment::Aligned => "RTP aligned with TAI",
            Alignment::Utc => "RTP 37 s off: one side is UTC, not TAI",
            Alignment::Free => "RTP not aligned with TAI",
        }
    }
}

/// No time that somebody gives is longer.
const LONGEST: Duration = Duration::from_secs(36_525 * 86_400);

/// A time with its unit: `500us`, `20ms`, `1.5s`, `10min`, `2h`, `1d`; a bare number is in seconds.
///
/// # Errors
/// It is none, or longer than a hundred years.
pub fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(format!("unknown unit {unit:?}: us, ms, s, min, h or d")),
    };
    let number: f64 = number.parse().map_err(|_| "a number with its unit is wanted".to_owned())?;
    let time = Duration::try_from_secs_f64(number * scale).map_err(|e| e.to_string())?;
    // Far from where the clock of a computer ends.
    if time > LONGEST { Err("more than a hundred years".into()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NTSC: Ratio = Ratio { num: 60000, den: 1001 };
    const NTSC_I: Ratio = Ratio { num: 30000, den: 1001 };
    // 1 700 000 037.123 456 789 s.
    const T: Tai = Tai(1_700_000_037_123_456_789);

    #[test]
    fn rtp_of_an_instant() {
        assert_eq!(rtp_from_tai(T, 90_000), 383_355_703);
        assert_eq!(rtp_from_tai(T, 48_000), 4_213_092_517);
        assert_eq!(rtp_from_tai(T, 96_000), 4_131_217_739);
        assert_eq!(rtp_from_tai(T, 27_000_000), 3_337_561_237);
        // RFC 7273's example.
        assert_eq!(rtp_from_tai(Tai(1_356_998_400_000_000_000), 90_000), 2_460_938_240);
        assert_eq!(rtp_from_tai(Tai(1_563_924_787_420_727_121), 90_000), 2_857_610_649);
    }

    #[test]
    fn utc_as_people_write_it() {
        // Dates by date(1).
        for (milliseconds, wanted) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_868_799_000, "2000-02-29T23:59:59.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_709_251_199_001, "2024-02-29T23:59:59.001Z"),
            (1_796_008_940_123, "2026-11-30T03:22:20.123Z"),
            (4_102_444_799_000, "2099-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(milliseconds);
            assert_eq!(utc(time), wanted);
        }
    }

    #[test]
    fn frames_since_the_epoch() {
        let n = frame_number(T, NTSC);
        assert_eq!(n, 101_898_104_123);
        let ts = [0, 1, 2, 3].map(|k| frame_timestamp(n + k, NTSC, 90_000));
        assert_eq!(ts, [383_355_276, 383_356_778, 383_358_279, 383_359_781]);
        let fifty = Ratio { num: 50, den: 1 };
        assert_eq!(frame_number(Tai(1_563_924_787_420_727_121), fifty), 78_196_239_371);
    }

    #[test]
    fn fields() {
        let half = half_frame_ticks(NTSC_I, 90_000);
        assert_eq!(half, 1501);
        let first = [0, 1].map(|k| frame_timestamp(50_949_052_061 + k, NTSC_I, 90_000));
        assert_eq!(first, [383_353_775, 383_356_778]);
        assert_eq!(first.map(|t| t + half), [383_355_276, 383_358_279]);
        assert_eq!(half_frame_ticks(Ratio { num: 25, den: 1 }, 90_000), 1800);
    }

    #[test]
    fn increments() {
        let steps = |rate, n: u64| {
            (0..n).map(|k| frame_ticks(k + 1, rate, 90_000) - frame_ticks(k, rate, 90_000)).collect::<Vec<_>>()
        };
        assert_eq!(steps(NTSC, 4), [1501, 1502, 1501, 1502]);
        assert_eq!(steps(NTSC_I, 3), [3003, 3003, 3003]);
        assert_eq!(steps(Ratio { num: 50, den: 1 }, 2), [1800, 1800]);
        assert!(steps(Ratio { num: 24000, den: 1001 }, 8).iter().all(|s| *s == 3753 || *s == 3754));
        assert!(steps(Ratio { num: 120000, den: 1001 }, 8).iter().all(|s| *s == 750 || *s == 751));
    }

    #[test]
    fn phase_of_fields() {
        for n in [0, 1, 50_949_052_061, 50_949_052_062] {
            let first = frame_ticks(n, NTSC_I, 90_000);
            assert_eq!(frame_phase(first, NTSC_I, 90_000), 0);
            assert_eq!(frame_phase(first + 1501, NTSC_I, 90_000), 1501);
            assert_eq!(frame_phase(first + 3002, NTSC_I, 90_000), 3002);
        }
        for n in [101_898_104_123, 101_898_104_124] {
            assert_eq!(frame_phase(frame_ticks(n, NTSC, 90_000), NTSC, 90_000), 0);
        }
    }

    #[test]
    fn unwrap_by_arrival() {
        // Sent 652 us before T, received at T.
        let sent = T - std::time::Duration::from_micros(652);
        let u = MediaClock::VIDEO.unwrap(rtp_from_tai(sent, 90_000), T);
        assert!((652_000..652_000 + 11_112).contains(&u.latency_ns), "{u:?}");
        assert_eq!(Alignment::judge(u.latency_ns), Alignment::Aligned);
        // A timestamp from the future, and an offset as AES67 has it.
        let audio = MediaClock { rate: 48_000, offset: 2_911_906_980 };
        let later = T + std::time::Duration::from_millis(2);
        let u = audio.unwrap(audio.rtp(later), T);
        assert!((-2_000_000..-1_979_000).contains(&u.latency_ns), "{u:?}");
        // Across the wrap of 32 bits.
        let wrap = Tai(2u64.pow(32) * 1_000_000_000 / 90_000 + 5_000);
        let u = MediaClock::VIDEO.unwrap(u32::MAX, wrap);
        assert!(u.latency_ns > 0 && u.latency_ns < 30_000, "{u:?}");
        assert_eq!(u.ticks, i64::from(u32::MAX));
    }

    #[test]
    fn judgement() {
        assert_eq!(Alignment::judge(37_000_600_000), Alignment::Utc);
        assert_eq!(Alignment::judge(-36_999_400_000), Alignment::Utc);
        assert_eq!(Alignment::judge(-3_660_477_000_000), Alignment::Free);
        assert_eq!(Alignment::judge(i64::MIN), Alignment::Free);
        assert_eq!(Alignment::judge(-900_000_000), Alignment::Aligned);
    }

    proptest! {
        #[test]
        fn unwrap_finds_the_instant_again(t in 0u64..u64::MAX / 2, late in -20_000_000_000_000i64..20_000_000_000_000) {
            let media = Tai(t.max(30_000_000_000_000));
            let arrival = Tai(media.0.wrapping_add_signed(late));
            let u = MediaClock::VIDEO.unwrap(rtp_from_tai(media, 90_000), arrival);
            prop_assert!(media.since(u.media) >= 0 && media.since(u.media) < 11_112);
            prop_assert_eq!(u.latency_ns, arrival.since(u.media));
        }

        #[test]
        fn nothing_overflows(t: u64, rtp: u32, num: u32, den in 1u32.., rate: u32) {
            let ratio = Ratio { num, den };
            let _ = (frame_number(Tai(t), ratio), frame_ticks(t, ratio, rate), half_frame_ticks(ratio, rate));
            let _ = (frame_phase(t, ratio, rate), frame_nanos(ratio));
            let _ = MediaClock { rate, offset: rtp }.unwrap(rtp, Tai(t));
        }
    }

    #[test]
    fn durations() {
        for (text, wanted) in [
            ("500us", Duration::from_micros(500)),
            ("20ms", Duration::from_millis(20)),
            ("1.5s", Duration::from_millis(1500)),
            ("7", Duration::from_secs(7)),
            ("2h", Duration::from_secs(7200)),
            ("0", Duration::ZERO),
        ] {
            assert_eq!(duration(text), Ok(wanted), "{text}");
        }
        for text in ["", "s", "-1s", "1 fortnight", "1e400", "9999999999999999999999d", "500000000000d", "1.2.3s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
