//! Previews: a finished frame, made smaller by a whole number, as RGBA of 8 bits.
//!
//! # The law, exact
//!
//! All numbers are integers, so that a GPU gives the same octets.
//!
//! 1. The picture has `width / factor` columns and `height / factor` rows, rounded down, but one at least. Pixel
//!    `(u, v)` is made of a box: columns `u * factor ..` and rows `v * factor ..`, `factor` each, or as many as the frame
//!    has where that is fewer. What is left on the right and below is not shown.
//! 2. Every sample of the box is brought to ten bits, from what is in the frame: planar samples as in step 1 of
//!    [`rgba`]'s law (half floats by its table), P010 and P210 their upper ten bits, v210 as they are, NV12 and UYVY
//!    `<< 2`. Subsampled colour is repeated: pixel `x` has that of column `x & !1`; rows of 4:2:0 by the rule of
//!    [`Layout`](crate::format::Layout), which keeps fields apart.
//! 3. The average of each component over the box's `n` pixels is `(sum + n / 2) / n`.
//! 4. The averages go through step 3 of [`rgba`]'s law, once a pixel, with the offsets and the matrix of [`law`].
//!    A is 255.
//!
//! RGBA frames have R, G and B averaged as in step 3, without a matrix.

use crate::format::Output;
use crate::kernel::Conversion;
use crate::kernel::scalar::rgba::{self, Law, Table};
use gdmedia_sdp::{Depth, Scan, Subsampling};

/// A picture of R G B A, 8 bits each, full range; row `y` is the `width * 4` octets from `y * width * 4` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Columns, at least one.
    pub width: u32,
    /// Rows, at least one.
    pub height: u32,
    /// `width * height * 4` octets, rows without padding.
    pub octets: Vec<u8>,
}

/// The numbers of step 4, for kernels elsewhere. `None` where there is no matrix: RGBA frames, and those that are not
/// scaled.
///
/// Codes that went through eight bits reach to 1020 in ten, so in full range they have another matrix than finer ones:
/// that is so where the wire or the frame has eight bits.
pub fn law(conversion: &Conversion) -> Option<&'static Law> {
    let depth = match conversion.output() {
        Output::Planar | Output::P010 | Output::P210 | Output::V210 => conversion.wire().depth,
        Output::Nv12 | Output::Uyvy => Depth::D8,
        Output::Wire | Output::Rgba | Output::Rgb16f => return None,
    };
    Some(rgba::law_at(conversion, depth))
}

/// `frame`, which `conversion` has filled, smaller by `factor` (0 counts as 1). `None` for wire octets and rgb16f.
///
/// # Panics
/// `frame` is shorter than its layout.
pub fn scale(conversion: &Conversion, frame: &[u8], factor: u32) -> Option<Picture> {
    if matches!(conversion.output(), Output::Wire | Output::Rgb16f) {
        return None;
    }
    assert!(frame.len() >= conversion.layout.size, "memory holds a frame");
    Some(match Words::of(conversion, frame, factor) {
        Some(mut words) => averages(conversion, factor, |v, sums| words.sums(v, sums)),
        None => by_pixels(conversion, frame, factor),
    })
}

/// Columns and rows of a box.
fn a_box(conversion: &Conversion, factor: u32) -> [usize; 2] {
    let wire = conversion.wire();
    [wire.width, wire.height].map(|n| n.min(factor.max(1)) as usize)
}

/// The law, pixel by pixel.
fn by_pixels(conversion: &Conversion, frame: &[u8], factor: u32) -> Picture {
    let [across, down] = a_box(conversion, factor);
    let reader = Reader::new(conversion, frame);
    let mut line = [0; 3].map(|_| vec![0; conversion.wire().width as usize]);
    averages(conversion, factor, |v, sums: &mut [Vec<u64>; 3]| {
        for y in v * down..(v + 1) * down {
            reader.row(y, &mut line);
            for (sums, line) in sums.iter_mut().zip(&line) {
                for (sum, samples) in sums.iter_mut().zip(line.chunks_exact(across)) {
                    *sum += samples.iter().map(|&s| u64::from(s)).sum::<u64>();
                }
            }
        }
    })
}

/// Steps 3 and 4, from the sums of each component in each box of a row `v` of boxes.
fn averages<T: Copy + Default + Into<u64>>(
    conversion: &Conversion,
    factor: u32,
    mut add: impl FnMut(usize, &mut [Vec<T>; 3]),
) -> Picture {
    let (law, wire) = (law(conversion), conversion.wire());
    let [across, down] = a_box(conversion, factor);
    let [columns, rows] = [wire.width as usize / across, wire.height as usize / down];
    let n = across as u64 * down as u64;
    // Boxes of a power of two are the common ones, and a division costs more than all else here.
    let shift = n.is_power_of_two().then(|| n.trailing_zeros());
    let mean = |sum: u64| match shift {
        Some(shift) => (sum + n / 2) >> shift,
        None => (sum + n / 2) / n,
    };
    let mut sums = [0; 3].map(|_| vec![T::default(); columns]);
    let mut octets = Vec::with_capacity(columns * rows * 4);
    for v in 0..rows {
        sums.iter_mut().for_each(|sums| sums.fill(T::default()));
        add(v, &mut sums);
        let [first, second, third] = &sums;
        for ((&a, &b), &c) in first.iter().zip(second).zip(third) {
            let average = [a, b, c].map(|sum| mean(sum.into()) as u16);
            let [r, g, b] = law.map_or(average.map(|s| s as u8), |law| law.pixel(average));
            octets.extend([r, g, b, 255]);
        }
    }
    Picture { width: columns as u32, height: rows as u32, octets }
}

/// Sums of planar integers of more than eight bits, straight from their planes: what a receiver has by default.
struct Words<'a> {
    reader: Reader<'a>,
    across: usize,
    down: usize,
    /// Columns and rows that share a colour sample.
    pair: usize,
    two_rows: usize,
    /// Brings a sample's highest bit to bit 15.
    top: u32,
}

impl<'a> Words<'a> {
    /// `None` where samples are others, boxes cut pairs of columns, or their sums need more than 32 bits.
    fn of(conversion: &'a Conversion, frame: &'a [u8], factor: u32) -> Option<Self> {
        let wire = conversion.wire();
        let [across, down] = a_box(conversion, factor);
        let (pair, two_rows) = shared(conversion);
        let words = conversion.output() == Output::Planar && !matches!(wire.depth, Depth::D8 | Depth::F16);
        let fits = across as u64 * down as u64 * 1023 <= u64::from(u32::MAX);
        (words && fits && (across == 1 || across.is_multiple_of(pair))).then(|| Words {
            reader: Reader::new(conversion, frame),
            across,
            down,
            pair,
            two_rows,
            top: 16 - wire.depth.bits(),
        })
    }

    fn sums(&mut self, v: usize, sums: &mut [Vec<u32>; 3]) {
        let planes = self.reader.conversion.layout.planes.len();
        for y in v * self.down..(v + 1) * self.down {
            for (i, sums) in sums.iter_mut().enumerate().take(planes) {
                let (pair, two_rows) = if i == 0 { (1, 1) } else { (self.pair, self.two_rows) };
                let row = self.reader.octets(i, y / two_rows).as_chunks::<2>().0;
                if self.across == 1 && pair == 2 {
                    for (x, sum) in sums.iter_mut().enumerate() {
                        *sum += ten(row[x / 2], self.top);
                    }
                    continue;
                }
                let times = pair as u32;
                match self.across / pair {
                    1 => add::<1>(sums, row, self.top, times),
                    2 => add::<2>(sums, row, self.top, times),
                    4 => add::<4>(sums, row, self.top, times),
                    8 => add::<8>(sums, row, self.top, times),
                    n => {
                        for (sum, samples) in sums.iter_mut().zip(row.chunks_exact(n)) {
                            *sum += times * samples.iter().map(|&s| ten(s, self.top)).sum::<u32>();
                        }
                    }
                }
            }
        }
    }
}

/// Step 2 for a word.
#[inline(always)]
fn ten(word: [u8; 2], top: u32) -> u32 {
    u32::from(u16::from_le_bytes(word) << top >> 6)
}

#[inline(always)]
fn add<const N: usize>(sums: &mut [u32], row: &[[u8; 2]], top: u32, times: u32) {
    for (sum, samples) in sums.iter_mut().zip(row.as_chunks::<N>().0) {
        *sum += times * samples.iter().map(|&s| ten(s, top)).sum::<u32>();
    }
}

/// Columns and rows of a planar frame that share a colour sample.
fn shared(conversion: &Conversion) -> (usize, usize) {
    match conversion.wire().sampling.subsampling() {
        Subsampling::Half422 => (2, 1),
        Subsampling::Quarter420 => (2, 2),
        Subsampling::Full444 | Subsampling::One => (1, 1),
    }
}

/// Brings rows of a frame to ten bits; those of RGBA stay at eight.
pub(crate) struct Reader<'a> {
    conversion: &'a Conversion,
    frame: &'a [u8],
    tables: [Option<&'static Table>; 2],
}

impl<'a> Reader<'a> {
    /// Of a frame that holds its layout, in neither wire octets nor rgb16f.
    pub(crate) fn new(conversion: &'a Conversion, frame: &'a [u8]) -> Self {
        Reader { conversion, frame, tables: rgba::tables(conversion) }
    }

    /// Row `y` of the picture, one line a component in the order of the planes; R, G, B of RGBA.
    pub(crate) fn row(&self, y: usize, lines: &mut [Vec<u16>; 3]) {
        let output = self.conversion.output();
        match output {
            Output::Planar => self.planar(y, lines),
            Output::P010 | Output::P210 | Output::Nv12 => {
                let row = if output == Output::P210 { y } else { self.colour_row(y) };
                let (luma, colour) = (self.octets(0, y), self.octets(1, row));
                let sample = |row: &[u8], at| {
                    if output == Output::Nv12 { u16::from(row[at]) << 2 } else { word(row, at) >> 6 }
                };
                fill(lines, |i, x| if i == 0 { sample(luma, x) } else { sample(colour, (x & !1) + i - 1) });
            }
            Output::Uyvy => {
                let row = self.octets(0, y);
                fill(lines, |i, x| u16::from(row[cb_y_cr_y(i, x)]) << 2);
            }
            Output::V210 => {
                let row = self.octets(0, y);
                let sample = |at: usize| {
                    let (low, high) = (word(row, at / 3 * 2), word(row, at / 3 * 2 + 1));
                    ((u32::from(high) << 16 | u32::from(low)) >> (at % 3 * 10) & 0x3ff) as u16
                };
                fill(lines, |i, x| sample(cb_y_cr_y(i, x)));
            }
            Output::Rgba => {
                let row = self.octets(0, y);
                fill(lines, |i, x| u16::from(row[x * 4 + i]));
            }
            Output::Wire | Output::Rgb16f => {}
        }
    }

    fn planar(&self, y: usize, lines: &mut [Vec<u16>; 3]) {
        let wire = self.conversion.wire();
        let (pair, two_rows) = shared(self.conversion);
        let top = 16 - wire.depth.bits();
        // A key has one plane, and its matrix takes nothing of the others.
        for (i, line) in lines.iter_mut().enumerate().take(self.conversion.layout.planes.len()) {
            let (pair, two_rows) = if i == 0 { (1, 1) } else { (pair, two_rows) };
            let row = self.octets(i, y / two_rows);
            let code = |at: usize| match wire.depth {
                Depth::D8 => u16::from(row[at]),
                _ => word(row, at),
            };
            for (x, s) in line.iter_mut().enumerate() {
                *s = match self.tables[i.min(1)] {
                    None => code(x / pair) << top >> 6,
                    Some(table) => table[usize::from(code(x / pair))],
                };
            }
        }
    }

    /// A row of a plane, without its padding.
    fn octets(&self, plane: usize, row: usize) -> &[u8] {
        let plane = &self.conversion.layout.planes[plane];
        &self.frame[plane.offset + row * plane.stride..][..plane.row_octets]
    }

    /// The row of P010 and NV12 that holds the colour of row `y`; see [`crate::format::Layout`].
    fn colour_row(&self, y: usize) -> usize {
        if self.conversion.wire().scan == Scan::Interlaced { y / 4 * 2 + y % 2 } else { y / 2 }
    }
}

/// Component `i` of column `x` is `sample(i, x)`.
fn fill(lines: &mut [Vec<u16>; 3], sample: impl Fn(usize, usize) -> u16) {
    for (i, line) in lines.iter_mut().enumerate() {
        line.iter_mut().enumerate().for_each(|(x, s)| *s = sample(i, x));
    }
}

/// Word `at` of a row of little-endian ones.
fn word(row: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([row[at * 2], row[at * 2 + 1]])
}

/// The place of Y, Cb or Cr of column `x` in a row of Cb Y Cr Y.
fn cb_y_cr_y(component: usize, x: usize) -> usize {
    [x * 2 + 1, (x & !1) * 2, (x & !1) * 2 + 2][component]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Layout, WireFormat};
    use crate::kernel::{Colour, Run, pairs, scalar};
    use gdmedia_sdp::{Colorimetry, Range, Sampling, Tcs};

    const NARROW: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
    const FULL: Colour = Colour { range: Range::Full, ..NARROW };

    fn conversion(wire: (Sampling, Depth), size: (u32, u32), scan: Scan, output: Output) -> Conversion {
        let wire = WireFormat::new(wire.0, wire.1, size.0, size.1, scan).unwrap();
        Conversion { layout: Layout::new(wire, output).unwrap(), colour: NARROW }
    }

    /// A frame whose planes have these rows, and anything in their padding.
    fn frame(conversion: &Conversion, planes: &[&[&[u8]]]) -> Vec<u8> {
        let mut memory = vec![0xee; conversion.layout.size];
        for (plane, rows) in conversion.layout.planes.iter().zip(planes) {
            assert_eq!(plane.rows, rows.len());
            for (row, octets) in rows.iter().enumerate() {
                memory[plane.offset + row * plane.stride..][..octets.len()].copy_from_slice(octets);
            }
        }
        memory
    }

    fn words(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    fn pixels(conversion: &Conversion, frame: &[u8], factor: u32) -> (u32, u32, Vec<[u8; 4]>) {
        let Picture { width, height, octets } = scale(conversion, frame, factor).unwrap();
        assert_eq!(octets.len(), (width * height * 4) as usize);
        (width, height, octets.as_chunks().0.to_vec())
    }

    const TEN: (Sampling, Depth) = (Sampling::YCbCr422, Depth::D10);

    #[test]
    fn planar_422_of_ten_bits() {
        let c = conversion(TEN, (4, 4), Scan::Progressive, Output::Planar);
        let y0 = words(&[64, 64, 940, 939]);
        let y1 = words(&[64, 65, 940, 940]);
        let y2 = words(&[500, 504, 300, 300]);
        let y3 = words(&[502, 502, 300, 300]);
        let grey = words(&[512, 512]);
        let (red, blue) = (words(&[512, 608]), words(&[512, 416]));
        let planes: [&[&[u8]]; 3] = [&[&y0, &y1, &y2, &y3], &[&grey, &grey, &grey, &blue], &[&grey, &grey, &red, &red]];
        let f = frame(&c, &planes);
        // Y 64.25 is 64, black; 939.75 is 940, white; 502 is 438 * 9539 / 32768 = 127.5, 128. The last box: Y 300,
        // Cb (512 + 416) / 2 = 464, Cr 608; d = 236, -48, 96: R (2251204 + 1409856) / 32768 = 111.73,
        // G (2251204 + 83856 - 419136) / 32768 = 58.47, B (2251204 - 830640) / 32768 = 43.35.
        let expected = vec![[0, 0, 0, 255], [255; 4], [128, 128, 128, 255], [112, 58, 43, 255]];
        assert_eq!(pixels(&c, &f, 2), (2, 2, expected));
        // Pixel by pixel: two columns share their colour.
        let (_, _, all) = pixels(&c, &f, 1);
        assert_eq!(all[10], all[11]);
        assert_eq!(all[12], [128, 128, 128, 255]);
        // The whole: Y (64 * 3 + 65 + 940 * 3 + 939 + 500 + 504 + 502 * 2 + 300 * 4) / 16 = 451.5 is 452; Cb (14 * 512 + 2 * 416) / 16 = 500; Cr (12 * 512 + 4 * 608) / 16 = 536; d = 388, -12, 24.
        // R (3701132 + 352464) / 32768 = 123.71, G (3701132 + 20964 - 104784) / 32768 = 110.39,
        // B (3701132 - 207660) / 32768 = 106.61.
        for factor in [4, 5, u32::MAX] {
            assert_eq!(pixels(&c, &f, factor), (1, 1, vec![[124, 110, 107, 255]]));
        }
        assert_eq!(pixels(&c, &f, 0), pixels(&c, &f, 1));
        // Three columns and three rows of four; the rest is not shown: Y (64 * 3 + 65 + 940 * 2 + 500 + 504 + 300) / 9 =
        // 382.3 is 382; Cb 512; Cr (8 * 512 + 608) / 9 = 522.7 is 523; d = 318, 0, 11: R (3033402 + 161546) / 32768 =
        // 97.502 is 98, G (3033402 - 48026) / 32768 = 91.1, B 92.57.
        assert_eq!(pixels(&c, &f, 3), (1, 1, vec![[98, 91, 93, 255]]));
    }

    #[test]
    fn nv12_by_its_colour_rows() {
        // Colour rows 0 and 1 are red and blue of BT.709: of rows 0, 1 and 2, 3; in fields of rows 0, 2 and 1, 3.
        let rows: [&[u8]; 4] = [&[63; 4], &[32; 4], &[63; 4], &[32; 4]];
        let colours: [&[u8]; 2] = [&[102, 240, 102, 240], &[240, 118, 240, 118]];
        let (red, blue) = ([255, 1, 0, 255], [0, 0, 255, 255]);
        let c = conversion(TEN, (4, 4), Scan::Interlaced, Output::Nv12);
        let f = frame(&c, &[&rows, &colours]);
        let (_, _, all) = pixels(&c, &f, 1);
        let near = |a: [u8; 4], b: [u8; 4]| a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= 1);
        assert!(near(all[0], red) && near(all[8], red), "{all:?}");
        assert!(near(all[4], blue) && near(all[12], blue), "{all:?}");
        // Boxes of two rows: Y (63 + 32) / 2 = 47.5, in ten bits 190; Cb 171, 684; Cr 179, 716; d = 126, 172, 204.
        // R (1201914 + 2995944) / 32768 = 128.1, G (1201914 - 300484 - 890664) / 32768 = 0.33,
        // B (1201914 + 2976460) / 32768 = 127.5.
        assert_eq!(pixels(&c, &f, 2), (2, 2, vec![[128, 0, 128, 255]; 4]));
        let c = conversion(TEN, (4, 4), Scan::Progressive, Output::Nv12);
        let f = frame(&c, &[&rows, &colours]);
        // The upper boxes: d = 126, -104, 448: R (1201914 + 6579328) / 32768 = 237.5 is 237 (.47);
        // G (1201914 + 181688 - 1955968) < 0; B < 0.
        assert_eq!(pixels(&c, &f, 2).2[0], [237, 0, 0, 255]);
    }

    #[test]
    fn full_range_of_eight_bits_is_white() {
        // From ten bits: what is in the frame counts. Of eight bits on the wire: what was on the wire counts.
        for (wire, output) in [
            (TEN, Output::Nv12),
            (TEN, Output::Uyvy),
            ((Sampling::YCbCr422, Depth::D8), Output::P010),
            ((Sampling::YCbCr422, Depth::D8), Output::Planar),
        ] {
            let c = Conversion { colour: FULL, ..conversion(wire, (2, 2), Scan::Progressive, output) };
            let law = law(&c).unwrap();
            assert_eq!((law.offset, law.matrix[0][0]), ([0, 512, 512], 8192), "{output:?}");
            assert_eq!(law.pixel([1020, 512, 512]), [255; 3]);
        }
        let c = Conversion { colour: FULL, ..conversion(TEN, (2, 2), Scan::Progressive, Output::P010) };
        assert_eq!(law(&c).unwrap().matrix[0][0], 8168);
        let c = conversion(TEN, (2, 2), Scan::Progressive, Output::Rgba);
        assert_eq!(law(&c), None);
    }

    #[test]
    fn v210() {
        // Cb Y Cr | Y Cb Y | Cr Y: four columns of a block of six.
        let c = conversion(TEN, (4, 4), Scan::Progressive, Output::V210);
        let block = |s: [u32; 8]| {
            let w = [s[0] | s[1] << 10 | s[2] << 20, s[3] | s[4] << 10 | s[5] << 20, s[6] | s[7] << 10 | 7 << 20, 9];
            w.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>()
        };
        let upper = block([512, 64, 512, 66, 512, 940, 512, 940]);
        let lower = block([512, 66, 512, 68, 464, 300, 608, 300]);
        let f = frame(&c, &[&[&upper, &upper, &lower, &lower]]);
        // Y 65 is black: 9539 / 32768 = 0.29; 67 is 0.87. The last box as in planar_422_of_ten_bits.
        let expected = vec![[0, 0, 0, 255], [255; 4], [1, 1, 1, 255], [112, 58, 43, 255]];
        assert_eq!(pixels(&c, &f, 2), (2, 2, expected));
    }

    #[test]
    fn rgba_has_no_matrix() {
        let c = conversion((Sampling::Rgb, Depth::D8), (4, 4), Scan::Progressive, Output::Rgba);
        let odd: Vec<u8> = [[1, 2, 3, 255], [2, 2, 4, 255], [10, 0, 255, 255], [10, 0, 255, 255]].concat();
        let even: Vec<u8> = [[1, 3, 3, 255], [2, 3, 3, 255], [10, 0, 255, 255], [13, 1, 255, 255]].concat();
        let f = frame(&c, &[&[&odd, &even, &even, &even]]);
        // 1.5 and 2.5 go up, 3.25 down; 10.75 and 0.25; below 1.5, 3, 3 and 11.5, 0.5.
        let expected = vec![[2, 3, 3, 255], [11, 0, 255, 255], [2, 3, 3, 255], [12, 1, 255, 255]];
        assert_eq!(pixels(&c, &f, 2), (2, 2, expected));
        // Three by three: R 39 / 9 = 4.33, G (4 + 6 * 2) / 9 = 1.78, B (262 + 261 * 2) / 9 = 87.1.
        assert_eq!(pixels(&c, &f, 3), (1, 1, vec![[4, 2, 87, 255]]));
        assert_eq!(pixels(&c, &f, 1).2.concat(), [odd, even.clone(), even.clone(), even].concat());
    }

    #[test]
    fn p210_has_every_row_of_colour() {
        let c = conversion(TEN, (2, 2), Scan::Interlaced, Output::P210);
        let luma = words(&[300 << 6, 300 << 6]);
        let (upper, lower) = (words(&[512 << 6, 608 << 6]), words(&[416 << 6, 608 << 6 | 63]));
        let f = frame(&c, &[&[&luma, &luma], &[&upper, &lower]]);
        assert_eq!(pixels(&c, &f, 2), (1, 1, vec![[112, 58, 43, 255]]));
    }

    /// A picture of one colour, as the scalar law makes it of wire octets.
    fn flat(wire: WireFormat, output: Output, colour: Colour, samples: [u16; 3]) -> (Conversion, Vec<u8>) {
        let [a, b, c] = samples;
        let order: &[u16] = match (wire.sampling, wire.sampling.subsampling()) {
            (Sampling::Rgb, _) => &[c, a, b],
            (Sampling::Xyz, _) => &[a, b, c],
            (_, Subsampling::Full444) => &[b, a, c],
            (_, Subsampling::Half422) => &[b, a, c, a],
            (_, Subsampling::Quarter420) => &[a, a, a, a, b, c],
            (_, Subsampling::One) => &[a],
        };
        let bits = wire.depth.bits() as usize;
        let octets: Vec<u8> = (0..wire.row_octets() as usize)
            .map(|at| {
                (at * 8..at * 8 + 8).fold(0, |octet, bit| {
                    octet << 1 | (order[bit / bits % order.len()] >> (bits - 1 - bit % bits) & 1) as u8
                })
            })
            .collect();
        let conversion = Conversion { layout: Layout::new(wire, output).unwrap(), colour };
        let mut memory = vec![0xee; conversion.layout.size];
        for row in 0..wire.rows() {
            let run = Run { src: &octets, groups: wire.row_pgroups(), row, group: 0 };
            scalar::select(&conversion)(&conversion, run, &mut memory);
        }
        (conversion, memory)
    }

    /// Random frames of every planar format: sums of words are those of pixels.
    #[test]
    fn words_are_summed_as_pixels_are() {
        let (mut fast, mut state) = (0, 0x9e37_79b9u32);
        for pair in pairs().filter(|pair| pair.output == Output::Planar) {
            for (width, height) in [(64, 10), (37, 9), (2, 2), (130, 3)] {
                let Some(layout) = pair.layout(width, height, Scan::Progressive) else { continue };
                let c = Conversion { layout, colour: NARROW };
                let mut memory = vec![0u8; c.layout.size];
                memory.fill_with(|| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                });
                // Bits above a sample are no part of it.
                for factor in [0, 1, 2, 3, 4, 6, 8, 16, 100] {
                    let Some(mut words) = Words::of(&c, &memory, factor) else { continue };
                    let got = averages(&c, factor, |v, sums| words.sums(v, sums));
                    assert_eq!(got, by_pixels(&c, &memory, factor), "{pair} {width}x{height} by {factor}");
                    fast += 1;
                }
            }
        }
        assert!(fast > 100, "{fast}");
    }

    #[test]
    fn flat_grey_stays_the_same_grey() {
        for pair in pairs() {
            for scan in Scan::ALL.iter().copied() {
                // Odd, and no multiple of any factor below.
                let Some(wire) = WireFormat::new(pair.sampling, pair.depth, 13, 7, scan) else { continue };
                let up = pair.depth.bits() - 8;
                let top = ((1u32 << pair.depth.bits()) - 1) as u16;
                // Codes that lose nothing in eight bits; full range black and white.
                let cases = if pair.depth == Depth::F16 {
                    let d = if pair.sampling == Sampling::Xyz || pair.sampling == Sampling::Rgb { 0x3800 } else { 0 };
                    vec![(FULL, 0x3800, d)]
                } else {
                    let same = matches!(pair.sampling, Sampling::Rgb | Sampling::Xyz);
                    [(NARROW, 125 << up), (NARROW, 16 << up), (NARROW, 235 << up), (FULL, 0), (FULL, top)]
                        .map(|(colour, y)| (colour, y, if same { y } else { 128 << up }))
                        .to_vec()
                };
                for (colour, y, other) in cases {
                    let (reference, rgba) = flat(wire, Output::Rgba, colour, [y, other, other]);
                    let grey = &rgba[reference.layout.planes[0].offset..][..4];
                    let (c, memory) = flat(wire, pair.output, colour, [y, other, other]);
                    if matches!(pair.output, Output::Wire | Output::Rgb16f) {
                        assert_eq!(scale(&c, &memory, 2), None);
                        continue;
                    }
                    for factor in [1, 2, 3, 5, 7, 100] {
                        let (width, height, pixels) = pixels(&c, &memory, factor);
                        assert_eq!((width, height), ((13 / factor).max(1), (7 / factor).max(1)));
                        assert!(pixels.iter().all(|p| p == grey), "{pair} {scan} {factor}: {:?}, {grey:?}", pixels[0]);
                    }
                }
            }
        }
    }
}
