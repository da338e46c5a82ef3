//! When packets of ancillary data are due (ST 2110-40:2023, clause 6).
//!
//! A packet leaves no later than `TFST + TEPO + TD`, and no more than a frame before that. TFST is the beginning of the
//! frame that it belongs to, N * TFRAME. TEPO is when the line of its earliest ANC packet would pass in SDI, counted from
//! there; a packet without data has that of the last line of the field's vertical ancillary space. TD is 1 ms, or 8 lines
//! where the SDP says `TM=LLTM`. Lines are counted whole: a packet may be late by less than one without being found so.
//!
//! Which frame that is, its timestamp says: the nearest N. A sender that delays the picture and keeps its timestamps is
//! found late by the delay.

use super::measure::Measure;
use crate::sdp::{Ratio, Scan};
use crate::time::{MediaClock, Tai};
use crate::wire::{be16, be32};

/// What a packet says of its place in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// `F` (RFC 8331, 2.1): 2 the first field, 3 the second, 0 a frame or nothing said.
    pub field: u8,
    /// The lowest line of its ANC packets; none where there are none, or none that names its line.
    pub line: Option<u16>,
}

/// Octets of the payload header, and of the head of an ANC packet.
const HEADER: usize = 8;
/// Line numbers from here on are codes: too large, anywhere in VANC, nowhere (RFC 8331, 2.1).
const CODES: u16 = 0x7fd;

impl Head {
    /// Of an RTP payload as far as it was captured; `None` where even its header is cut.
    pub fn of(payload: &[u8]) -> Option<Head> {
        let count = payload.get(4)?;
        let field = payload.get(5)? >> 6;
        let mut at = HEADER;
        let mut line: Option<u16> = None;
        for _ in 0..*count {
            let Some(place) = be16(payload, at) else { break };
            // C, then 11 bits of the line.
            let own = place >> 4 & 0x7ff;
            if own < CODES {
                line = Some(line.map_or(own, |lowest| lowest.min(own)));
            }
            // DID, SDID, Data_Count of 10 bits each; the words and their sum follow, to the next 32 bits.
            let Some(words) = be32(payload, at + 4) else { break };
            let count = (words >> 2 & 0xff) as usize;
            at += 4 + ((count + 4) * 10).div_ceil(32) * 4;
        }
        Some(Head { field, line })
    }
}

/// Lines of a picture as SDI has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Of a frame.
    pub total: u32,
    /// The line with which the frame begins (ST 2059-1: 4 of 525, else 1).
    first: u32,
    /// The line with which the second field begins.
    second: u32,
    /// The last of the vertical ancillary space, of a frame, of the first and of the second field.
    last: [u32; 3],
}

impl Lines {
    const HD: Lines = Lines { total: 1125, first: 1, second: 564, last: [41, 20, 583] };
    const SMALL: Lines = Lines { total: 750, first: 1, second: 751, last: [25, 25, 25] };
    const NTSC: Lines = Lines { total: 525, first: 4, second: 266, last: [19, 19, 282] };
    const PAL: Lines = Lines { total: 625, first: 1, second: 314, last: [22, 22, 335] };

    /// As `VPID_Code` (ST 352) names the interface, and the frame rate its system; 1125 lines where there is none, which
    /// larger pictures have too.
    pub fn of(vpid_code: Option<u8>, rate: Option<Ratio>) -> Lines {
        match vpid_code {
            Some(0x81..=0x83) if rate.is_some_and(|r| u64::from(r.num) == 25 * u64::from(r.den)) => Lines::PAL,
            Some(0x81..=0x83) => Lines::NTSC,
            Some(0x84 | 0x88 | 0x8b) => Lines::SMALL,
            _ => Lines::HD,
        }
    }

    /// Lines from the beginning of the frame to the end of the one that a packet belongs to.
    fn until(&self, head: &Head, scan: Scan, second: bool) -> u32 {
        let place = match (scan, second) {
            (Scan::Progressive, _) => 0,
            (_, false) => 1,
            (_, true) => 2,
        };
        let line = head.line.map_or(self.last[place], u32::from).clamp(1, self.total);
        // Lines before the first one end the frame.
        (line + self.total - self.first) % self.total + 1
    }

    /// The packet is of the second field, where there are fields: it says so, or its line does where it says nothing; none where
    /// neither does.
    fn is_second(&self, head: &Head) -> Option<bool> {
        match head.field {
            3 => Some(true),
            2 => Some(false),
            _ => head.line.map(|line| (self.second..=self.last[2]).contains(&u32::from(line))),
        }
    }

    /// Packets are of fields: they say so, or their lines do where they say nothing. A timestamp with lines of both fields is that
    /// of a frame.
    pub fn is_interlaced(&self, packets: impl Iterator<Item = (u32, Head)>) -> bool {
        let mut found = false;
        let mut last: Option<(u32, bool)> = None;
        for (timestamp, head) in packets {
            if matches!(head.field, 2 | 3) {
                return true;
            }
            let Some(second) = self.is_second(&head) else { continue };
            found |= second;
            if last.is_some_and(|(before, other)| before == timestamp && other != second) {
                return false;
            }
            last = Some((timestamp, second));
        }
        found
    }
}

/// Transmission models (clause 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// CTM, the compatible one.
    Compatible,
    /// LLTM, low latency.
    LowLatency,
}

/// When the packets of a flow are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Frames a second, of which fields are halves.
    pub rate: Ratio,
    /// Progressive or interlaced.
    pub scan: Scan,
    /// Lines of the picture.
    pub lines: Lines,
    /// `TM` of the SDP; none where it says nothing, which is CTM for receivers, and promises nothing by a sender.
    pub model: Option<Model>,
    /// TD in nanoseconds in place of the standard's.
    pub delay_ns: Option<i64>,
}

const SECOND: i128 = 1_000_000_000;
/// TD of the compatible model.
const COMPATIBLE_NS: i64 = 1_000_000;

impl Timing {
    /// TD in nanoseconds.
    pub fn delay_ns(&self) -> i64 {
        let lines = 8 * SECOND * i128::from(self.rate.den);
        let low = lines / (i128::from(self.rate.num.max(1)) * i128::from(self.lines.total));
        self.delay_ns.unwrap_or(if self.model == Some(Model::LowLatency) { low as i64 } else { COMPATIBLE_NS })
    }

    /// The last instant at which a packet of this timestamp may leave; `near` is about when it came.
    pub fn due(&self, clock: MediaClock, timestamp: u32, head: &Head, near: Tai) -> Tai {
        let media = i128::from(near.0) - i128::from(clock.unwrap(timestamp, near).latency_ns);
        // TFRAME is `frame / num` nanoseconds.
        let (frame, num) = (SECOND * i128::from(self.rate.den.max(1)), i128::from(self.rate.num.max(1)));
        // Where nothing else says it: the field that begins nearest to the timestamp.
        let odd = || (4 * media * num + frame).div_euclid(2 * frame).rem_euclid(2) == 1;
        let second = self.scan != Scan::Progressive && self.lines.is_second(head).unwrap_or_else(odd);
        let half = if second { frame / 2 } else { 0 };
        // The nearest N; what is cut off a timestamp does not matter.
        let n = (2 * (media * num - half) + frame).div_euclid(2 * frame);
        let lines = i128::from(self.lines.until(head, self.scan, second));
        let end = (n * frame + frame * lines / i128::from(self.lines.total)) / num + i128::from(self.delay_ns());
        Tai(u64::try_from(end).unwrap_or(0))
    }

    /// TFRAME, rounded down to nanoseconds.
    fn frame_ns(&self) -> i64 {
        (SECOND * i128::from(self.rate.den) / i128::from(self.rate.num.max(1))) as i64
    }
}

/// The packets of a leg against the time at which they are due.
#[derive(Clone, Debug)]
pub struct Due {
    /// When they are.
    pub timing: Timing,
    /// How long before its last instant each came, in nanoseconds; negative where it was late.
    pub margin: Measure,
    /// Packets after their last instant.
    pub late: u64,
    /// Packets more than a frame before it.
    pub early: u64,
}

impl Due {
    /// None yet.
    pub fn new(timing: Timing) -> Self {
        Due { timing, margin: Measure::new(timing.frame_ns().unsigned_abs()), late: 0, early: 0 }
    }

    /// A packet.
    pub fn add(&mut self, clock: MediaClock, timestamp: u32, head: &Head, arrival: Tai) {
        let margin = self.timing.due(clock, timestamp, head, arrival).since(arrival);
        self.margin.add(arrival, margin);
        self.late += u64::from(margin < 0);
        self.early += u64::from(margin > self.timing.frame_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::rtp_from_tai;
    use proptest::prelude::*;

    /// Payload header (extended number, length, ANC_Count, F) and ANC packets of a line and so many words.
    fn payload(field: u8, packets: &[(u16, u8)]) -> Vec<u8> {
        let mut out = vec![0, 0, 0, 0, packets.len() as u8, field << 6, 0, 0];
        for (line, words) in packets {
            out.extend((u32::from(*line) << 20 | 0xfff << 8).to_be_bytes());
            // DID 0x161, SDID 0x102, Data_Count.
            let mut bits = vec![0u8; ((usize::from(*words) + 4) * 10).div_ceil(32) * 4];
            bits[..4].copy_from_slice(&(0x161 << 22 | 0x102 << 12 | u32::from(*words) << 2).to_be_bytes());
            out.extend(bits);
        }
        out
    }

    #[test]
    fn heads_by_hand() {
        let head = |field, packets: &[(u16, u8)]| Head::of(&payload(field, packets)).unwrap();
        assert_eq!(head(0, &[]), Head { field: 0, line: None });
        assert_eq!(head(3, &[(571, 16)]), Head { field: 3, line: Some(571) });
        // 4 + 4 * ceil((n + 4) * 10 / 32) octets: the lowest line counts wherever it stands, and codes do not.
        assert_eq!(head(2, &[(12, 255), (0x7fe, 0), (9, 3), (11, 7)]), Head { field: 2, line: Some(9) });
        assert_eq!(head(0, &[(0x7ff, 4), (0x7fd, 4)]), Head { field: 0, line: None });
        // An octet string from RFC 8331: C=0, line 9, offset 0, S=0, stream 0: 0000 0000 1001 0000 ....
        assert_eq!(Head::of(&[0, 1, 0, 12, 1, 0, 0, 0, 0x00, 0x90]), Some(Head { field: 0, line: Some(9) }));
        assert_eq!(Head::of(&[0, 1, 0, 12, 1]), None);
    }

    const P5994: Ratio = Ratio { num: 60000, den: 1001 };
    const P25: Ratio = Ratio { num: 25, den: 1 };

    fn timing(rate: Ratio, scan: Scan, low_latency: bool) -> Timing {
        let model = low_latency.then_some(Model::LowLatency);
        Timing { rate, scan, lines: Lines::HD, model, delay_ns: None }
    }

    /// Nanoseconds from the beginning of frame N to the last instant, by hand.
    fn after(t: &Timing, media_ns: u64, begin_ns: u64, field: u8, line: Option<u16>) -> i64 {
        let at = Tai(begin_ns + 500_000);
        let stamp = rtp_from_tai(Tai(media_ns), 90_000);
        t.due(MediaClock::VIDEO, stamp, &Head { field, line }, at).since(Tai(begin_ns))
    }

    #[test]
    fn last_instants_by_hand() {
        // Frame 101 898 104 123 at 59.94 begins at 1 700 000 037.118 716 666 s; a line lasts 14.8296 us.
        let begin = 1_700_000_037_118_716_666;
        let compatible = timing(P5994, Scan::Progressive, false);
        assert_eq!(after(&compatible, begin, begin, 0, Some(9)), 9 * 14_829 + 6 + 1_000_000);
        // Without data: line 41, the last before the picture.
        assert_eq!((after(&compatible, begin, begin, 0, None) - 1_000_000 - 41 * 14_829) / 100, 0);
        // Low latency: 8 lines, 118.6 us.
        let low = timing(P5994, Scan::Progressive, true);
        assert_eq!(low.delay_ns(), 118_637);
        assert_eq!((after(&low, begin, begin, 0, Some(9)) - 17 * 14_829) / 100, 0);
        // A timestamp that lies a little before or behind its frame belongs to it.
        for off in [-3_000_000i64, 3_000_000] {
            let media = begin.wrapping_add_signed(off);
            assert_eq!(after(&compatible, media, begin, 0, Some(9)), 9 * 14_829 + 6 + 1_000_000);
        }
        // What a user says.
        let own = Timing { delay_ns: Some(5_000_000), ..compatible };
        assert_eq!(after(&own, begin, begin, 0, Some(9)), 9 * 14_829 + 6 + 5_000_000);
    }

    #[test]
    fn fields_by_hand() {
        // 25 frames a second: a line lasts 35.556 us. The second field's timestamp is 20 ms later, its line 571 passes 20.302 ms
        // after the beginning of the frame.
        let begin = 1_700_000_037_000_000_000;
        let t = timing(P25, Scan::Interlaced, false);
        assert_eq!(after(&t, begin, begin, 2, Some(9)), 320_000 + 1_000_000);
        assert_eq!(after(&t, begin + 20_000_000, begin, 3, Some(571)), 20_302_222 + 1_000_000);
        // Senders that say nothing of fields: the line does.
        assert_eq!(after(&t, begin + 20_000_000, begin, 0, Some(571)), 20_302_222 + 1_000_000);
        // Nor of lines: the timestamp does.
        assert_eq!(after(&t, begin + 20_000_000, begin, 0, None), 20_728_888 + 1_000_000);
        assert_eq!(after(&t, begin + 40_000_000, begin + 40_000_000, 0, None), 711_111 + 1_000_000);
        // Without data: lines 20 and 583.
        assert_eq!(after(&t, begin, begin, 2, None), 711_111 + 1_000_000);
        assert_eq!(after(&t, begin + 20_000_000, begin, 3, None), 20_728_888 + 1_000_000);
        // 525 lines: the frame begins with line 4.
        let ntsc = Lines::of(Some(0x81), Some(Ratio { num: 30000, den: 1001 }));
        assert_eq!(ntsc.until(&Head { field: 2, line: Some(10) }, Scan::Interlaced, false), 7);
        assert_eq!(ntsc.until(&Head { field: 3, line: Some(3) }, Scan::Interlaced, true), 525);
        assert_eq!(Lines::of(Some(0x81), Some(P25)).total, 625);
    }

    #[test]
    fn fields_are_told_from_frames() {
        let is = |packets: &[(u32, u8, Option<u16>)]| {
            Lines::HD.is_interlaced(packets.iter().map(|(t, field, line)| (*t, Head { field: *field, line: *line })))
        };
        assert!(is(&[(0, 2, Some(9)), (1800, 3, None)]));
        assert!(is(&[(0, 0, Some(9)), (0, 0, None), (1800, 0, Some(571)), (1800, 0, None)]));
        assert!(!is(&[(0, 0, Some(9)), (1501, 0, Some(9)), (1501, 0, None)]));
        // Both in one: a sender of frames, each line at its own time.
        assert!(!is(&[(0, 0, Some(9)), (0, 0, Some(571)), (0, 0, None), (1501, 0, Some(9)), (1501, 0, Some(571))]));
        assert!(!is(&[]));
    }

    #[test]
    fn late_and_early_are_counted() {
        let begin = 1_700_000_037_000_000_000u64;
        let mut due = Due::new(timing(P25, Scan::Progressive, false));
        let head = Head { field: 0, line: Some(9) };
        // 1.32 ms after the beginning is the last instant; 40 ms before that the first.
        for (at, late, early) in
            [(1_320_000i64, 0, 0), (1_320_001, 1, 0), (-38_680_000, 1, 0), (-38_680_001, 1, 1), (500_000, 1, 1)]
        {
            let stamp = rtp_from_tai(Tai(begin), 90_000);
            due.add(MediaClock::VIDEO, stamp, &head, Tai(begin.wrapping_add_signed(at)));
            assert_eq!((due.late, due.early), (late, early), "{at}");
        }
        assert_eq!((due.margin.all.min, due.margin.all.count), (-1, 5));
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(octets in prop::collection::vec(0u8.., 0..200)) {
            if let Some(head) = Head::of(&octets) {
                prop_assert!(head.field < 4 && head.line.is_none_or(|line| line < CODES));
            }
        }

        #[test]
        fn no_time_and_no_rate_overflows(num: u32, den: u32, stamp: u32, at: u64, line in prop::option::of(0u16..2048), field in 0u8..4) {
            let t = timing(Ratio { num, den }, [Scan::Progressive, Scan::Interlaced][usize::from(field & 1)], field > 1);
            let mut due = Due::new(t);
            due.add(MediaClock::VIDEO, stamp, &Head { field, line }, Tai(at));
            prop_assert_eq!(due.margin.all.count, 1);
        }
    }
}
