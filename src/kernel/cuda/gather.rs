//! From placements to pieces: where octets lie in a ring, checked, as the GPU is told. And which parts of the ring they
//! are, for copies. Pure.

use super::abi::{Piece, SEGMENTS, Segment};
use crate::kernel::cpu::Place;
use crate::plan::Placement;
use crate::ring::Slot;

/// Sizes of a ring's planes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planes {
    /// Octets of the head plane.
    pub head: u32,
    /// Octets of the body plane; 0 where there is none.
    pub body: u32,
}

/// The piece of a placement; `None` when it does not lie in its packet, its ring or its frame.
#[inline]
pub fn piece(slot: &Slot, placement: &Placement, planes: Planes, place: &mut Place) -> Option<Piece> {
    place.locate(placement)?;
    let (src, len, head) = (u32::from(placement.src), u32::from(placement.len), u32::from(slot.head));
    let end = src + len;
    if end > u32::from(slot.octets) {
        return None;
    }
    let first = end.min(head).saturating_sub(src);
    let (mut at, mut rest) = (0, 0);
    if first > 0 {
        at = slot.head_at.checked_add(src)?;
        if at.checked_add(first)? > planes.head {
            return None;
        }
    }
    if first < len {
        rest = slot.body_at.checked_add(src.max(head) - head)?;
        if rest.checked_add(len - first)? > planes.body {
            return None;
        }
    }
    Some(Piece { src: at, dst: placement.dst, rest, len: placement.len, first: first as u16 })
}

/// The pieces of a batch as runs: packets that lie equally far apart and follow one another in the frame.
#[derive(Debug)]
pub struct Runs {
    runs: Vec<Segment>,
    planes: Planes,
    /// More than a launch takes.
    many: bool,
}

impl Runs {
    /// None, of a ring of this size.
    pub fn new(planes: Planes) -> Self {
        Runs { runs: Vec::with_capacity(SEGMENTS), planes, many: false }
    }

    /// The next ones are of a ring of this size.
    pub fn set_planes(&mut self, planes: Planes) {
        self.planes = planes;
    }

    /// Adds piece number `index` of the batch.
    #[inline]
    pub fn add(&mut self, piece: Piece, frame: u64, index: u32) {
        if let Some(run) = self.runs.last_mut() {
            let (last, n) = (run.piece, run.end - run.begin);
            let plain = piece.first == 0 && last.first == 0 || piece.first == piece.len && last.first == last.len;
            let distance =
                if piece.first == 0 { piece.rest.checked_sub(last.rest) } else { piece.src.checked_sub(last.src) };
            let follows = plain
                && run.frame == frame
                && piece.len == last.len
                && piece.dst.wrapping_sub(last.dst) == n * u32::from(last.len);
            // The second piece says how far apart they lie; no run wraps around.
            let next = distance.filter(|&d| n == 1 && d > 0 || n.checked_mul(run.pitch) == Some(d));
            if let Some(distance) = next.filter(|_| follows) {
                run.pitch = if n == 1 { distance } else { run.pitch };
                run.end = index + 1;
                return;
            }
        }
        if self.many || self.runs.len() == SEGMENTS {
            self.many = true;
            return;
        }
        self.runs.push(Segment {
            frame,
            begin: index,
            end: index + 1,
            piece,
            head_octets: self.planes.head,
            body_octets: self.planes.body,
            pitch: 1,
            ..Segment::default()
        });
    }
    /// All of them, when a launch takes so many.
    pub fn all(&mut self) -> Option<&mut Vec<Segment>> {
        (!self.many).then_some(&mut self.runs)
    }
    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.many = false;
    }
}

/// Parts of a plane, `start .. end`, that hold what a batch needs.
#[derive(Debug, Default)]
pub struct Parts {
    parts: Vec<(u32, u32)>,
    octets: u64,
}

/// Parts that lie so near are copied as one: what lies between costs less than another copy.
const NEAR: u32 = 8 << 10;

impl Parts {
    /// With room for so many, so that adding does not allocate.
    pub fn with_capacity(parts: usize) -> Self {
        Parts { parts: Vec::with_capacity(parts), octets: 0 }
    }
    /// Adds what a piece has in the bulk plane: the body plane, or the head plane of a ring that does not split.
    pub fn add_piece(&mut self, piece: &Piece, is_body: bool) {
        let (at, octets) = if is_body { (piece.rest, piece.len - piece.first) } else { (piece.src, piece.len) };
        if octets > 0 {
            self.add(at, at + u32::from(octets), u64::from(octets));
        }
    }
    /// Adds what a run has there.
    pub fn add_run(&mut self, run: &Segment, is_body: bool) {
        let count = run.end - run.begin;
        let (at, octets) =
            if is_body { (run.piece.rest, run.piece.len - run.piece.first) } else { (run.piece.src, run.piece.len) };
        let octets = u32::from(octets);
        if octets == 0 || count == 0 {
            return;
        }
        if run.pitch <= octets + NEAR {
            let last = at + (count - 1) * run.pitch;
            self.add(at, last + octets, u64::from(count) * u64::from(octets));
        } else {
            (0..count).for_each(|n| self.add(at + n * run.pitch, at + n * run.pitch + octets, octets.into()));
        }
    }
    /// Adds `start .. end`, where `octets` are wanted.
    #[inline]
    fn add(&mut self, start: u32, end: u32, octets: u64) {
        self.octets += octets;
        match self.parts.last_mut() {
            Some((from, to)) if start >= *from && start <= to.saturating_add(NEAR) => *to = (*to).max(end),
            _ => self.parts.push((start, end)),
        }
    }
    /// Brings them into order and joins what is near.
    pub fn join(&mut self) -> &[(u32, u32)] {
        self.parts.sort_unstable();
        self.parts.dedup_by(|next, part| {
            let near = next.0 <= part.1.saturating_add(NEAR);
            if near {
                part.1 = part.1.max(next.1);
            }
            near
        });
        &self.parts
    }
    /// Octets that were added.
    pub const fn octets(&self) -> u64 {
        self.octets
    }
    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.octets = 0;
    }
}

/// How many parts from the first on lie equally far apart, so that one copy brings them: their number, the octets from one
/// to the next, and the longest of them. Where one is shorter, another part lies behind it, so that nothing behind the plane
/// is read.
pub fn rows(parts: &[(u32, u32)]) -> Option<(usize, usize, usize)> {
    let (&(start, end), others) = parts.split_first()?;
    let pitch = others.first().map_or(0, |second| second.0 - start);
    let mut width = end - start;
    let mut count = 1;
    for (n, &(from, to)) in others.iter().enumerate() {
        // A row reaches as far as the longest, and no further than the plane surely does.
        if from - start != pitch * (n as u32 + 1) || to - from > width {
            break;
        }
        count = n + 2;
    }
    let last = parts[count - 1];
    if count > 1 && last.1 - last.0 < width {
        // The last one alone, exactly.
        count -= 1;
    }
    if count == 1 {
        width = end - start;
    }
    Some((count, pitch as usize, width as usize))
}

/// How many copies bring these parts.
pub fn copies(mut parts: &[(u32, u32)]) -> u64 {
    let mut count = 0;
    while let Some((taken, ..)) = rows(parts) {
        count += 1;
        parts = parts.get(taken..).unwrap_or_default();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::WireFormat;
    use crate::time::Tai;
    use gdmedia_sdp::{Depth, Sampling, Scan};

    fn place() -> Place {
        Place::new(&WireFormat::new(Sampling::YCbCr422, Depth::D10, 96, 4, Scan::Progressive).unwrap())
    }

    fn slot(head: u16, octets: u16) -> Slot {
        Slot { head_at: 1000, body_at: 5000, head, octets, wire_octets: octets, leg: 0, arrival: Tai(0) }
    }

    #[test]
    fn octets_are_found_in_both_planes() {
        let planes = Planes { head: 4000, body: 6000 };
        let placement = Placement { slot: 0, dst: 240, src: 20, len: 40 };
        let piece = |head| piece(&slot(head, 60), &placement, planes, &mut place());
        let all = Piece { src: 1020, dst: 240, rest: 0, len: 40, first: 40 };
        assert_eq!(piece(60), Some(all));
        assert_eq!(piece(20), Some(Piece { src: 0, rest: 5000, first: 0, ..all }));
        // Cut before the payload: it begins a little into the body plane.
        assert_eq!(piece(12), Some(Piece { src: 0, rest: 5008, first: 0, ..all }));
        // Inside of the second pgroup.
        assert_eq!(piece(27), Some(Piece { rest: 5000, first: 7, ..all }));
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let piece = |slot: Slot, placement: Placement, head, body| {
            piece(&slot, &placement, Planes { head, body }, &mut place())
        };
        let whole = slot(60, 60);
        let good = Placement { slot: 0, dst: 240, src: 20, len: 40 };
        assert!(piece(whole, good, 1060, 0).is_some());
        assert!(piece(whole, good, 1059, 0).is_none(), "behind the head plane");
        assert!(piece(slot(30, 60), good, 4000, 5030).is_some());
        assert!(piece(slot(30, 60), good, 4000, 5029).is_none(), "behind the body plane");
        assert!(piece(slot(30, 60), good, 4000, 0).is_none(), "no body plane");
        assert!(piece(whole, Placement { src: 25, ..good }, 4000, 0).is_none(), "behind the packet");
        assert!(piece(whole, Placement { dst: 960, ..good }, 4000, 0).is_none(), "behind the frame");
        assert!(piece(whole, Placement { dst: 201, ..good }, 4000, 0).is_none(), "no pgroup");
        assert!(piece(Slot { head_at: u32::MAX - 10, ..whole }, good, u32::MAX, 0).is_none(), "wraps");
        assert!(piece(Slot { body_at: u32::MAX - 10, ..slot(20, 60) }, good, 4000, u32::MAX).is_none(), "wraps");
    }

    /// The pieces that a kernel makes of a run.
    fn expand(runs: &[Segment]) -> Vec<(u64, Piece)> {
        let one = |run: &Segment, n: u32| {
            let Piece { src, dst, rest, len, first } = run.piece;
            let piece = Piece {
                src: src.wrapping_add(n * run.pitch),
                dst: dst + n * u32::from(len),
                rest: rest.wrapping_add(n * run.pitch),
                len,
                first,
            };
            // What means nothing.
            let piece = Piece {
                src: if first == 0 { 0 } else { piece.src },
                rest: if first == len { 0 } else { piece.rest },
                ..piece
            };
            (run.frame, piece)
        };
        runs.iter().flat_map(|run| (0..run.end - run.begin).map(move |n| one(run, n))).collect()
    }

    #[test]
    fn packets_of_a_chain_are_one_run() {
        let mut runs = Runs::new(Planes { head: 1 << 20, body: 0 });
        let chain =
            |n: u32, at: u32| Piece { src: at + n % 53 * 1220 + 20, dst: n * 1200, rest: 0, len: 1200, first: 1200 };
        for n in 0..106 {
            runs.add(chain(n, n / 53 * 67_008), 64, n);
        }
        // The next frame begins.
        runs.add(chain(0, 200_000), 128, 106);
        let all = runs.all().unwrap().clone();
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].begin, all[0].end, all[0].pitch, all[0].piece.src), (0, 53, 1220, 20));
        assert_eq!((all[1].begin, all[1].end, all[1].piece.dst, all[1].frame), (53, 106, 53 * 1200, 64));
        assert_eq!((all[2].begin, all[2].end, all[2].frame), (106, 107, 128));
        runs.clear();
        for n in 0..17 {
            runs.add(chain(n * 2, 0), 64, n);
        }
        assert!(runs.all().is_none(), "gaps in the frame: more runs than a launch takes");
        runs.clear();
        assert!(runs.all().unwrap().is_empty());
    }

    #[test]
    fn no_run_wraps_around() {
        let mut runs = Runs::new(Planes { head: u32::MAX, body: 0 });
        let piece = |n: u32, src: u32| Piece { src, dst: n * 10, rest: 0, len: 10, first: 10 };
        let mut parts = Parts::default();
        // The fifth lies where the first does: 4 GiB further, were there so much.
        for n in 0..5 {
            runs.add(piece(n, (n << 30).wrapping_add(100)), 64, n);
        }
        let ends = |runs: &mut Runs| runs.all().unwrap().iter().map(|run| (run.begin, run.end)).collect::<Vec<_>>();
        assert_eq!(ends(&mut runs), [(0, 4), (4, 5)]);
        runs.all().unwrap().iter().for_each(|run| parts.add_run(run, false));
        assert_eq!(parts.octets(), 50);
        assert_eq!(parts.join().len(), 4, "the last is the first again");
        runs.clear();
        // Three times as far on is as far back.
        for (n, src) in [1 << 31, 3 << 30, 0].into_iter().enumerate() {
            runs.add(piece(n as u32, src), 64, n as u32);
        }
        assert_eq!(ends(&mut runs), [(0, 2), (2, 3)]);
    }

    proptest::proptest! {
        #[test]
        fn runs_are_the_pieces_that_were_added(
            pieces in proptest::collection::vec((0u32..4, 0u32..3, 1u16..3, 0u16..3, 0u64..2), 1..40),
        ) {
            let mut runs = Runs::new(Planes { head: u32::MAX, body: u32::MAX });
            let (mut at, mut dst) = (0, 0);
            let mut added = Vec::new();
            for (n, (gap, skip, len, first, frame)) in pieces.into_iter().enumerate() {
                let len = len * 5;
                at += gap.saturating_sub(1) * 10;
                dst += skip.saturating_sub(1) * 5;
                let first = [0, len, 3][usize::from(first)];
                let piece = Piece { src: if first == 0 { 0 } else { at }, dst, rest: if first == len { 0 } else { at }, len, first };
                dst += u32::from(len);
                runs.add(piece, frame * 64, n as u32);
                added.push((frame * 64, piece));
            }
            if let Some(runs) = runs.all() {
                proptest::prop_assert_eq!(expand(runs), added);
            }
        }
    }

    #[test]
    fn parts_that_lie_equally_far_apart_are_rows() {
        assert_eq!(rows(&[]), None);
        assert_eq!(rows(&[(100, 300)]), Some((1, 0, 200)));
        let cells = [(20, 1220), (67_028, 68_228), (134_036, 135_236)];
        assert_eq!(rows(&cells), Some((3, 67_008, 1200)));
        // The last one is short: it is brought alone, or what lies behind it would be read.
        assert_eq!(rows(&[cells[0], cells[1], (134_036, 135_000)]), Some((2, 67_008, 1200)));
        assert_eq!(copies(&[cells[0], cells[1], (134_036, 135_000), (900_000, 900_100)]), 3);
        // One in the middle may be short, one that is longer is not among them.
        assert_eq!(rows(&[cells[0], (67_028, 67_100), cells[2]]), Some((3, 67_008, 1200)));
        assert_eq!(rows(&[cells[0], (67_028, 69_000)]), Some((1, 67_008, 1200)));
        assert_eq!(rows(&[cells[0], (67_030, 68_000)]), Some((1, 67_010, 1200)));
    }

    #[test]
    fn runs_are_one_part_where_their_pieces_are_near() {
        let piece = Piece { src: 20, dst: 0, rest: 7000, len: 1200, first: 1200 };
        let run = Segment { begin: 5, end: 58, piece, pitch: 1220, ..Segment::default() };
        let mut parts = Parts::default();
        parts.add_run(&run, false);
        assert_eq!((parts.octets(), parts.join()), (53 * 1200, &[(20, 20 + 52 * 1220 + 1200)][..]));
        parts.clear();
        // Each in a cell of its own.
        parts.add_run(&Segment { end: 8, pitch: 67_008, ..run }, false);
        assert_eq!((parts.octets(), parts.join().len()), (3600, 3));
        parts.clear();
        // Nothing of it lies in the body plane.
        parts.add_run(&run, true);
        parts.add_piece(&piece, true);
        assert_eq!((parts.octets(), parts.join().len()), (0, 0));
        parts.add_piece(&Piece { first: 200, ..piece }, true);
        assert_eq!((parts.octets(), parts.join()), (1000, &[(7000, 8000)][..]));
    }

    #[test]
    fn near_parts_become_one() {
        let mut parts = Parts::default();
        for cell in [3u32, 2, 1, 7] {
            let start = cell * 67_008;
            for packet in 0..53 {
                parts.add(start + packet * 1220 + 20, start + packet * 1220 + 1220, 1200);
            }
        }
        assert_eq!(parts.octets(), 4 * 53 * 1200);
        let end = |cell: u32| cell * 67_008 + 53 * 1220;
        // Cells follow one another with less than 8 KiB between their packets.
        assert_eq!(parts.join(), [(67_028, end(3)), (7 * 67_008 + 20, end(7))]);
        parts.clear();
        assert_eq!((parts.join().len(), parts.octets()), (0, 0));
    }

    #[test]
    fn a_part_that_lies_before_the_last_one_is_kept_apart_until_they_are_joined() {
        let mut parts = Parts::default();
        parts.add(100_000, 101_000, 1000);
        parts.add(50_000, 51_000, 1000);
        parts.add(95_000, 96_000, 1000);
        assert_eq!(parts.join(), [(50_000, 51_000), (95_000, 101_000)]);
    }
}
