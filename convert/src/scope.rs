//! Waveform and vectorscope: how often which code occurs where, from the samples of a finished frame.
//!
//! # The law, exact
//!
//! 1. Every pixel's components are brought to ten bits as in step 2 of [`crate::scale`]'s law, subsampled colour repeated;
//!    the eight bits of RGBA frames are shifted up by two.
//! 2. The level of a sample is its upper eight bits, `code >> 2`: 0 to 255, black of narrow range at 16, white at 235.
//! 3. Waveform: pixel `(x, y)` adds one to the cell of its level in column `x * columns / width`. Y'CbCr and its kin, and
//!    keys, have one trace, that of their first component; R'G'B' and X'Y'Z' have three, in this order.
//! 4. Vectorscope: pixel `(x, y)` adds one to the cell of its levels of Cb and Cr (Ct and Cp). R'G'B', X'Y'Z' and keys
//!    have none.
//!
//! [`scope`] at [`Level::Scalar`] is the law pixel by pixel; at [`Level::Avx2`] planar integers of more than eight bits, which
//! is what a receiver has by default, go a faster way to the same counts. Other frames go by the law at every level.

use crate::format::Output;
use crate::kernel::{Conversion, Level};
use crate::scale::Reader;
use gdmedia_sdp::{Depth, Sampling, Subsampling};

/// Levels of a trace, and of either axis of the vectorscope.
pub const LEVELS: usize = 256;

/// Counts of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Columns of a trace, at least one.
    pub columns: usize,
    /// Traces: one or three.
    pub traces: usize,
    /// The cell of a trace, a column and a level is `(trace * columns + column) * LEVELS + level`.
    pub waveform: Vec<u32>,
    /// The cell of two levels is `Cb * LEVELS + Cr`; empty where there is no colour difference.
    pub vectorscope: Vec<u32>,
}

impl Scope {
    /// Cells without counts for frames of a conversion. At most `columns` columns, and no more than the frame has; `None` where
    /// frames cannot be read: wire octets and rgb16f.
    pub fn empty(conversion: &Conversion, columns: usize) -> Option<Scope> {
        if matches!(conversion.output(), Output::Wire | Output::Rgb16f) {
            return None;
        }
        let columns = columns.clamp(1, conversion.wire().width as usize);
        let traces = if shows_rgb(conversion) { 3 } else { 1 };
        let colour = traces == 1 && conversion.wire().sampling != Sampling::Key;
        Some(Scope {
            columns,
            traces,
            waveform: vec![0; traces * columns * LEVELS],
            vectorscope: vec![0; if colour { LEVELS * LEVELS } else { 0 }],
        })
    }

    /// The counts of one trace in one column, by level; empty where there is none.
    pub fn column(&self, trace: usize, column: usize) -> &[u32] {
        let at = (trace * self.columns + column) * LEVELS;
        if column < self.columns { self.waveform.get(at..at + LEVELS).unwrap_or_default() } else { &[] }
    }
}

/// What is in the frame is R, G and B, or X, Y and Z.
pub fn shows_rgb(conversion: &Conversion) -> bool {
    conversion.output() == Output::Rgba || matches!(conversion.wire().sampling, Sampling::Rgb | Sampling::Xyz)
}

/// Which component, in the order of the planes, a trace shows: planes of R'G'B' are G, B, R.
pub fn component(conversion: &Conversion, trace: usize) -> usize {
    let planes_of_rgb = conversion.output() == Output::Planar && conversion.wire().sampling == Sampling::Rgb;
    if planes_of_rgb { [2, 0, 1].get(trace).copied().unwrap_or(0) } else { trace }
}

/// The counts of `frame`, which `conversion` has filled, by the best way up to `limit`. `None` for wire octets and rgb16f.
///
/// # Panics
/// `frame` is shorter than its layout.
pub fn scope(conversion: &Conversion, frame: &[u8], columns: usize, limit: Level) -> Option<Scope> {
    let mut scope = Scope::empty(conversion, columns)?;
    assert!(frame.len() >= conversion.layout.size, "memory holds a frame");
    let wire = conversion.wire();
    let words = conversion.output() == Output::Planar && !matches!(wire.depth, Depth::D8 | Depth::F16);
    if words && limit >= Level::Avx2 && Level::Avx2.available() {
        planar(conversion, frame, &mut scope);
    } else {
        pixels(conversion, frame, &mut scope);
    }
    Some(scope)
}

/// The law.
fn pixels(conversion: &Conversion, frame: &[u8], scope: &mut Scope) {
    let wire = conversion.wire();
    let reader = Reader::new(conversion, frame);
    let up = if conversion.output() == Output::Rgba { 2 } else { 0 };
    let width = wire.width as usize;
    let mut lines = [0; 3].map(|_| vec![0; width]);
    let level = |sample: u16| usize::from(sample << up >> 2 & 0xff);
    for y in 0..wire.height as usize {
        reader.row(y, &mut lines);
        for trace in 0..scope.traces {
            for (x, &sample) in lines[component(conversion, trace)].iter().enumerate() {
                let column = trace * scope.columns + x * scope.columns / width;
                scope.waveform[column * LEVELS + level(sample)] += 1;
            }
        }
        if !scope.vectorscope.is_empty() {
            for (&b, &r) in lines[1].iter().zip(&lines[2]) {
                scope.vectorscope[level(b) * LEVELS + level(r)] += 1;
            }
        }
    }
}

/// The same of planar words: cells are reckoned many at a time, and what colour samples count twice for is added at once.
fn planar(conversion: &Conversion, frame: &[u8], scope: &mut Scope) {
    let wire = conversion.wire();
    let width = wire.width as usize;
    let down = wire.depth.bits() - 8;
    let bases: Vec<u32> = (0..width).map(|x| (x * scope.columns / width * LEVELS) as u32).collect();
    let (pair, two_rows) = match wire.sampling.subsampling() {
        Subsampling::Half422 => (2, 1),
        Subsampling::Quarter420 => (2, 2),
        Subsampling::Full444 | Subsampling::One => (1, 1),
    };
    let row = |plane: usize, row: usize| {
        let plane = &conversion.layout.planes[plane];
        let octets = &frame[plane.offset + row * plane.stride..][..plane.row_octets];
        octets.as_chunks::<2>().0
    };
    let mut cells = vec![0u32; width];
    for y in 0..wire.height as usize {
        for trace in 0..scope.traces {
            let samples = row(component(conversion, trace), y);
            levels(samples, down, &bases, &mut cells);
            let counts = &mut scope.waveform[trace * scope.columns * LEVELS..][..scope.columns * LEVELS];
            cells.iter().for_each(|&cell| counts[cell as usize] += 1);
        }
        if !scope.vectorscope.is_empty() {
            let (b, r) = (row(1, y / two_rows), row(2, y / two_rows));
            let cells = &mut cells[..b.len()];
            pairs(b, r, down, cells);
            let counts = &mut scope.vectorscope[..];
            cells.iter().for_each(|&cell| counts[cell as usize] += pair);
            // An odd width ends with a sample that has one pixel.
            if pair == 2
                && width % 2 == 1
                && let Some(&cell) = cells.last()
            {
                counts[cell as usize] -= 1;
            }
        }
    }
}

/// The cells of a row's samples: `bases[x] + level`.
fn levels(samples: &[[u8; 2]], down: u32, bases: &[u32], cells: &mut [u32]) {
    #[cfg(target_arch = "x86_64")]
    if crate::kernel::x86::scope::levels(samples, down, bases, cells) {
        return;
    }
    levels_portable(samples, down, bases, cells);
}

/// The cells of a row's colour: `Cb * LEVELS + Cr`.
fn pairs(b: &[[u8; 2]], r: &[[u8; 2]], down: u32, cells: &mut [u32]) {
    #[cfg(target_arch = "x86_64")]
    if crate::kernel::x86::scope::pairs(b, r, down, cells) {
        return;
    }
    pairs_portable(b, r, down, cells);
}

/// In straight code, so that it can be compiled for any instruction set.
#[inline(always)]
pub(crate) fn levels_portable(samples: &[[u8; 2]], down: u32, bases: &[u32], cells: &mut [u32]) {
    for ((cell, &sample), &base) in cells.iter_mut().zip(samples).zip(bases) {
        *cell = base + (u32::from(u16::from_le_bytes(sample)) >> down & 0xff);
    }
}

/// In straight code, so that it can be compiled for any instruction set.
#[inline(always)]
pub(crate) fn pairs_portable(b: &[[u8; 2]], r: &[[u8; 2]], down: u32, cells: &mut [u32]) {
    for ((cell, &b), &r) in cells.iter_mut().zip(b).zip(r) {
        let level = |sample: [u8; 2]| u32::from(u16::from_le_bytes(sample)) >> down & 0xff;
        *cell = level(b) << 8 | level(r);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Layout, WireFormat};
    use crate::kernel::{Colour, Run, pairs as all_pairs, scalar};
    use gdmedia_sdp::{Colorimetry, Range, Scan, Tcs};

    const NARROW: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

    fn conversion(sampling: Sampling, depth: Depth, size: (u32, u32), output: Output) -> Conversion {
        let wire = WireFormat::new(sampling, depth, size.0, size.1, Scan::Progressive).unwrap();
        Conversion { layout: Layout::new(wire, output).unwrap(), colour: NARROW }
    }

    /// A planar frame of ten bits whose sample of a plane at a column is this.
    fn planar_frame(conversion: &Conversion, sample: impl Fn(usize, usize) -> u16) -> Vec<u8> {
        let mut memory = vec![0xee; conversion.layout.size];
        for (i, plane) in conversion.layout.planes.iter().enumerate() {
            for row in 0..plane.rows {
                for x in 0..plane.row_octets / 2 {
                    let at = plane.offset + row * plane.stride + x * 2;
                    memory[at..at + 2].copy_from_slice(&sample(i, x).to_le_bytes());
                }
            }
        }
        memory
    }

    /// 75 % bars of BT.709 in ten bits, narrow range, from the equations of BT.709-6, items 3.2 to 3.4: with
    /// E'Y = 0.2126 R + 0.7152 G + 0.0722 B, Y = 876 E'Y + 64, Cb = 896 (B - E'Y) / 1.8556 + 512,
    /// Cr = 896 (R - E'Y) / 1.5748 + 512, rounded. Yellow: E'Y = 0.75 * 0.9278 = 0.69585.
    const BARS: [[u16; 3]; 8] = [
        [721, 512, 512], // white
        [674, 176, 543], // yellow
        [581, 589, 176], // cyan
        [534, 253, 207], // green
        [251, 771, 817], // magenta
        [204, 435, 848], // red
        [111, 848, 481], // blue
        [64, 512, 512],  // black
    ];

    #[test]
    fn bars_of_75_percent_lie_where_they_should() {
        let c = conversion(Sampling::YCbCr422, Depth::D10, (64, 4), Output::Planar);
        let frame = planar_frame(&c, |plane, x| BARS[if plane == 0 { x / 8 } else { x / 4 }][plane]);
        for limit in [Level::Scalar, Level::Avx2] {
            let scope = scope(&c, &frame, 8, limit).unwrap();
            assert_eq!((scope.columns, scope.traces), (8, 1));
            // White 721 / 4, yellow 674 / 4 ... black 64 / 4: 8 columns of 4 rows each.
            for (column, level) in [180, 168, 145, 133, 62, 51, 27, 16].into_iter().enumerate() {
                let counts = scope.column(0, column);
                assert_eq!(counts[level], 32, "column {column}, level {level}");
                assert_eq!(counts.iter().sum::<u32>(), 32);
            }
            assert!(scope.column(0, 8).is_empty() && scope.column(1, 0).is_empty());
            // Cb and Cr by 4: the targets of a vectorscope, and white and black in the middle.
            let targets = [
                (44, 135, 32),
                (147, 44, 32),
                (63, 51, 32),
                (192, 204, 32),
                (108, 212, 32),
                (212, 120, 32),
                (128, 128, 64),
            ];
            for (b, r, count) in targets {
                assert_eq!(scope.vectorscope[b * LEVELS + r], count, "Cb {b}, Cr {r}");
            }
            assert_eq!(scope.vectorscope.iter().sum::<u32>(), 256);
        }
    }

    #[test]
    fn columns_share_the_width_and_an_odd_one_counts_once() {
        let c = conversion(Sampling::YCbCr422, Depth::D10, (5, 2), Output::Planar);
        let frame = planar_frame(&c, |plane, x| if plane == 0 { 100 * x as u16 } else { 400 + 4 * x as u16 });
        for limit in [Level::Scalar, Level::Avx2] {
            let scope = scope(&c, &frame, 2, limit).unwrap();
            // x * 2 / 5 is 0 0 0 1 1; levels are 0, 25, 50, 75, 100.
            for (column, levels) in [(0, &[0, 25, 50][..]), (1, &[75, 100])] {
                for level in 0..LEVELS {
                    let wanted = if levels.contains(&level) { 2 } else { 0 };
                    assert_eq!(scope.column(0, column)[level], wanted, "{column} {level}");
                }
            }
            for (level, count) in [(100, 4), (101, 4), (102, 2)] {
                assert_eq!(scope.vectorscope[level * LEVELS + level], count);
            }
        }
        // More columns than the picture has are as many as it has.
        assert_eq!(scope(&c, &frame, 1000, Level::Scalar).unwrap().columns, 5);
    }

    #[test]
    fn traces_of_rgb_are_in_this_order() {
        let c = conversion(Sampling::Rgb, Depth::D12, (4, 2), Output::Planar);
        // Planes are G, B, R.
        let frame = planar_frame(&c, |plane, _| [1600, 3200, 160][plane]);
        for limit in [Level::Scalar, Level::Avx2] {
            let scope = scope(&c, &frame, 4, limit).unwrap();
            assert_eq!(scope.traces, 3);
            for (trace, level) in [(0, 10), (1, 100), (2, 200)] {
                assert_eq!(scope.column(trace, 3)[level], 2, "{trace}");
            }
            assert!(scope.vectorscope.is_empty());
        }
    }

    /// Every output of every format that can be read, with random octets: the fast way counts as the law does.
    #[test]
    fn both_ways_count_the_same() {
        let mut fast = 0;
        for pair in all_pairs() {
            for size in [(48, 6), (37, 5), (2, 2), (131, 3)] {
                let Some(wire) = WireFormat::new(pair.sampling, pair.depth, size.0, size.1, Scan::Progressive) else {
                    continue;
                };
                let c = Conversion { layout: Layout::new(wire, pair.output).unwrap(), colour: NARROW };
                let mut state = 0x2545_f491u32;
                let mut octets = vec![0u8; wire.row_octets() as usize];
                let mut memory = vec![0; c.layout.size];
                for row in 0..wire.rows() {
                    octets.fill_with(|| {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (state >> 24) as u8
                    });
                    scalar::select(&c)(
                        &c,
                        Run { src: &octets, groups: wire.row_pgroups(), row, group: 0 },
                        &mut memory,
                    );
                }
                let law = scope(&c, &memory, 16, Level::Scalar);
                assert_eq!(law.is_none(), matches!(pair.output, Output::Wire | Output::Rgb16f), "{pair}");
                assert_eq!(law, scope(&c, &memory, 16, Level::Avx2), "{pair} {size:?}");
                let Some(law) = law else { continue };
                let pixels = size.0 * size.1;
                assert_eq!(law.waveform.iter().sum::<u32>(), pixels * law.traces as u32, "{pair} {size:?}");
                let colour = if law.vectorscope.is_empty() { 0 } else { pixels };
                assert_eq!(law.vectorscope.iter().sum::<u32>(), colour, "{pair} {size:?}");
                fast += u32::from(pair.output == Output::Planar && wire.depth == Depth::D10);
            }
        }
        assert!(fast > 0);
    }
}
