//! The read schedules of ST 2110-21:2022, clause 6, in exact arithmetic: when a sender's packets are due, and when the
//! virtual receiver takes them.

use crate::time::{self, Tai, VIDEO_CLOCK};
use gdmedia_sdp::{Ratio, Scan};

/// How the packets of a frame are spread over its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pacing {
    /// Over the active lines; the vertical blanking stays free (sender type N).
    Gapped,
    /// Evenly over the whole frame (sender types NL and W).
    Linear,
    /// All at once when the frame begins. No sender type allows it; it finds out what a receiver can take.
    Burst,
}

/// The read schedule of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Frames a second.
    rate: Ratio,
    /// Packets of a frame, both fields together.
    packets: u32,
    pacing: Pacing,
    /// Packets from here on belong to the second field or segment; `packets` when there is none.
    second: u32,
    raster: Raster,
    /// TROFFSET in nanoseconds times `rate.num`, so that it is whole.
    offset: u128,
}

/// Lines of a raster: total, active, and before the first active one (per frame).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raster {
    total: u32,
    active: u32,
    before: u32,
}

/// ST 2110-21:2022, 6.3 gives a gapped schedule to the rasters of ITU-R BT.656, BT.709, BT.1543, BT.1847 and BT.2020; senders
/// of all others are linear, so that none is of type N.
pub const fn has_gapped(width: u32, height: u32, scan: Scan) -> bool {
    matches!(
        (width, height, scan),
        (1920, 1080, _)
            | (1280, 720, Scan::Progressive)
            | (3840, 2160, Scan::Progressive)
            | (7680, 4320, Scan::Progressive)
            | (720, 480..=487 | 576, Scan::Interlaced | Scan::Psf)
    )
}

impl Raster {
    fn new(height: u32, scan: Scan) -> Self {
        let (total, active, before) = match (scan, height) {
            // RACTIVE is 1080/1125 for all progressive rasters; TRODEFAULT is 28/750 for the small ones.
            (Scan::Progressive, ..1080) => (1125, 1080, 42),
            (Scan::Progressive, _) => (1125, 1080, 43),
            (_, ..=487) => (525, 487, 20),
            (_, 488..=576) => (625, 576, 26),
            (_, 577..=1080) => (1125, height, (1125 - height) / 2),
            _ => (1125, 1080, 22),
        };
        Raster { total, active, before }
    }
}

const SECOND: u128 = 1_000_000_000;

impl Schedule {
    /// `packets` of a frame; `second` is the first of its second field or segment, where there is one. `troff_us` is
    /// the SDP's `TROFF`. `None` when the rate or the count is zero.
    pub fn new(
        rate: Ratio,
        height: u32,
        scan: Scan,
        pacing: Pacing,
        packets: u32,
        second: Option<u32>,
        troff_us: Option<u32>,
    ) -> Option<Self> {
        if rate.num == 0 || rate.den == 0 || packets == 0 {
            return None;
        }
        let raster = Raster::new(height, scan);
        let offset = match troff_us {
            Some(us) => u128::from(us) * 1000 * u128::from(rate.num) * u128::from(raster.total),
            None => u128::from(raster.before) * SECOND * u128::from(rate.den),
        };
        Some(Schedule { rate, packets, pacing, second: second.unwrap_or(packets).min(packets), raster, offset })
    }

    /// TFRAME, rounded down to nanoseconds.
    pub fn frame_ns(&self) -> u64 {
        time::frame_nanos(self.rate)
    }

    /// When frame `frame` since the epoch begins: N * TFRAME.
    pub fn frame_start(&self, frame: u64) -> Tai {
        Tai((u128::from(frame) * SECOND * u128::from(self.rate.den) / u128::from(self.rate.num)) as u64)
    }

    /// The frame since the epoch in which an instant lies.
    pub fn frame_at(&self, instant: Tai) -> u64 {
        let frame = time::frame_number(instant, self.rate);
        // Starts are rounded down to nanoseconds.
        if self.frame_start(frame + 1) <= instant { frame + 1 } else { frame }
    }

    /// Scheduled read (TPRj) of packet `packet` of frame `frame`, rounded down to nanoseconds.
    pub fn packet(&self, frame: u64, packet: u32) -> Tai {
        let (num, den) = (u128::from(self.rate.num), u128::from(self.rate.den));
        let (total, active) = (u128::from(self.raster.total), u128::from(self.raster.active));
        let (packets, j) = (u128::from(self.packets), u128::from(packet));
        // Everything in nanoseconds times num * total * packets * 2.
        let frame_time = SECOND * den;
        let scale = total * packets * 2;
        let start = u128::from(frame) * frame_time * scale + self.offset * packets * 2;
        let within = match self.pacing {
            Pacing::Burst => 0,
            Pacing::Linear => j * frame_time * total * 2,
            Pacing::Gapped if packet < self.second => j * frame_time * active * 2,
            Pacing::Gapped => {
                // TFRAME/2 + TLINE/2, then from the second field's first packet on.
                (total + 1) * frame_time * packets + (j - u128::from(self.second)) * frame_time * active * 2
            }
        };
        Tai(((start + within) / (num * scale)) as u64)
    }

    /// TROFFSET, rounded down to nanoseconds.
    pub fn offset_ns(&self) -> u64 {
        (self.offset / (u128::from(self.rate.num) * u128::from(self.raster.total))) as u64
    }

    /// Time between packets (TRS) in nanoseconds, for people and for sizing.
    pub fn spacing_ns(&self) -> f64 {
        let frame = SECOND as f64 / self.rate.as_f64() / f64::from(self.packets);
        match self.pacing {
            Pacing::Burst => 0.0,
            Pacing::Linear => frame,
            Pacing::Gapped => frame * f64::from(self.raster.active) / f64::from(self.raster.total),
        }
    }

    /// RACTIVE as a fraction: active lines and all lines (ST 2110-21:2022, 6.3).
    pub const fn active_lines(&self) -> (u32, u32) {
        (self.raster.active, self.raster.total)
    }

    /// TROFFSET in nanoseconds times `rate.num` times the raster's lines, where it is whole.
    pub(super) const fn scaled_offset(&self) -> u128 {
        self.offset
    }

    /// Frames a second.
    pub const fn rate(&self) -> Ratio {
        self.rate
    }

    /// The first packet of the second field or segment; [`Schedule::packets`] where there is none.
    pub const fn second(&self) -> u32 {
        self.second
    }

    /// Packets of a frame.
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// RTP timestamp of a frame since the epoch at 90 kHz, and of its second field: `floor(N * 90000 * TFRAME)` and
    /// half a frame later (PsF: the same).
    pub fn timestamps(&self, frame: u64, scan: Scan) -> (u32, u32) {
        let first = time::frame_timestamp(frame, self.rate, VIDEO_CLOCK);
        let half = if scan == Scan::Interlaced { time::half_frame_ticks(self.rate, VIDEO_CLOCK) } else { 0 };
        (first, first.wrapping_add(half))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P5994: Ratio = Ratio { num: 60000, den: 1001 };
    const P2997: Ratio = Ratio { num: 30000, den: 1001 };
    const P25: Ratio = Ratio { num: 25, den: 1 };

    fn schedule(rate: Ratio, height: u32, scan: Scan, pacing: Pacing, packets: u32) -> Schedule {
        let second = (scan != Scan::Progressive).then_some(packets / 2);
        Schedule::new(rate, height, scan, pacing, packets, second, None).unwrap()
    }

    /// Worked values of ST 2110-21 for 4:2:2 10 bit: TRODEFAULT, TRS gapped, TRS linear in microseconds.
    #[test]
    fn worked_values() {
        use Scan::*;
        let table = [
            (P5994, 1080, Progressive, 4320, 637.674, 3.7074, 3.8619),
            (P5994, 1080, Progressive, 4115, 637.674, 3.8921, 4.0543),
            (Ratio { num: 50, den: 1 }, 1080, Progressive, 4320, 764.444, 4.4444, 4.6296),
            (P2997, 1080, Interlaced, 4320, 652.504, 7.4148, 7.7238),
            (P25, 1080, Psf, 4320, 782.222, 8.8889, 9.2593),
            (P5994, 720, Progressive, 1920, 622.844, 8.3417, 8.6892),
            (P5994, 2160, Progressive, 17280, 637.674, 0.9269, 0.9655),
            (P25, 576, Interlaced, 864, 1664.0, 42.667, 46.296),
        ];
        for (rate, height, scan, packets, offset, gapped, linear) in table {
            let g = schedule(rate, height, scan, Pacing::Gapped, packets);
            let l = schedule(rate, height, scan, Pacing::Linear, packets);
            let near = |ns: f64, us: f64, digits: i32| (ns / 1000.0 - us).abs() <= 0.51 * 10f64.powi(-digits);
            assert!((g.offset_ns() as f64 - offset * 1000.0).abs() < 1.01, "{height} {scan}: {} ns", g.offset_ns());
            assert!(near(g.spacing_ns(), gapped, if gapped > 10.0 { 3 } else { 4 }), "{height} {scan}");
            assert!(near(l.spacing_ns(), linear, if linear > 10.0 { 3 } else { 4 }), "{height} {scan}");
        }
    }

    /// 1080p59.94 gapped, by hand: TFRAME = 1001/60000 s, TVD = N * TFRAME + 43/1125 * TFRAME.
    #[test]
    fn progressive_by_hand() {
        let s = schedule(P5994, 1080, Scan::Progressive, Pacing::Gapped, 4320);
        assert_eq!(s.frame_start(60_000), Tai(1_001_000_000_000));
        // 637 674.07 ns; TRS = 3707.407... ns, so packet 27 lies 100 100 ns later.
        assert_eq!(s.packet(60_000, 0), Tai(1_001_000_637_674));
        assert_eq!(s.packet(60_000, 27), Tai(1_001_000_737_774));
        // The last one: 4319 * 3707.407 = 16 012 292.6.
        assert_eq!(s.packet(60_000, 4319), Tai(1_001_016_649_966));
        // Linear: TRS = 3861.882 ns.
        let s = schedule(P5994, 1080, Scan::Progressive, Pacing::Linear, 4320);
        assert_eq!(s.packet(0, 1), Tai(637_674 + 3_861));
        assert_eq!(s.packet(0, 4320), Tai(637_674 + 16_683_333));
        let s = schedule(P5994, 1080, Scan::Progressive, Pacing::Burst, 4320);
        assert_eq!(s.packet(0, 4319), Tai(637_674));
    }

    /// 1080i50: TLINE = 40 ms / 1125; the second field starts half a frame and half a line later.
    #[test]
    fn interlaced_by_hand() {
        let s = schedule(P25, 1080, Scan::Interlaced, Pacing::Gapped, 4320);
        assert_eq!(s.packet(0, 0), Tai(782_222));
        assert_eq!(s.packet(0, 2159), Tai(782_222 + 19_191_111));
        // 782 222.22 + 20 000 000 + 17 777.78 = 20 800 000.
        assert_eq!(s.packet(0, 2160), Tai(20_800_000));
        assert_eq!(s.packet(1, 2160), Tai(60_800_000));
    }

    #[test]
    fn rasters_with_a_gapped_schedule() {
        use Scan::*;
        for (width, height, scan, has) in [
            (1920, 1080, Progressive, true),
            (1920, 1080, Interlaced, true),
            (1280, 720, Progressive, true),
            (3840, 2160, Progressive, true),
            (7680, 4320, Progressive, true),
            (720, 486, Interlaced, true),
            (720, 576, Interlaced, true),
            (1920, 1200, Progressive, false),
            (2048, 1080, Progressive, false),
            (4096, 2160, Progressive, false),
            (720, 576, Progressive, false),
        ] {
            assert_eq!(has_gapped(width, height, scan), has, "{width}x{height} {scan}");
        }
    }

    #[test]
    fn troff_is_microseconds() {
        let s = Schedule::new(P5994, 1080, Scan::Progressive, Pacing::Linear, 10, None, Some(1000)).unwrap();
        assert_eq!(s.packet(0, 0), Tai(1_000_000));
        assert_eq!(s.offset_ns(), 1_000_000);
    }

    /// Frame numbers and timestamps at TAI 1 700 000 037.123 456 789 s.
    #[test]
    fn epoch_aligned_timestamps() {
        let now = Tai(1_700_000_037_123_456_789);
        let p = schedule(P5994, 1080, Scan::Progressive, Pacing::Gapped, 4320);
        let n = p.frame_at(now);
        assert_eq!(n, 101_898_104_123);
        let stamps: Vec<u32> = (n..n + 4).map(|n| p.timestamps(n, Scan::Progressive).0).collect();
        assert_eq!(stamps, [383_355_276, 383_356_778, 383_358_279, 383_359_781]);
        let i = schedule(P2997, 1080, Scan::Interlaced, Pacing::Gapped, 4320);
        let n = i.frame_at(now);
        assert_eq!(n, 50_949_052_061);
        assert_eq!(i.timestamps(n, Scan::Interlaced), (383_353_775, 383_355_276));
        assert_eq!(i.timestamps(n, Scan::Psf), (383_353_775, 383_353_775));
        assert_eq!(p.frame_at(p.frame_start(101_898_104_123)), 101_898_104_123);
    }
}
