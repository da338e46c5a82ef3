//! The frame number coded in pixels: black and white blocks in fixed places, with a checksum, that survive every
//! output conversion. One strip lies at the top and one at the bottom, and each field has its own, so that a frame
//! made of two is found out.

use crate::format::{Layout, Output, WireFormat};
use crate::send::pack::{luma_component, order};
use gdmedia_sdp::{Depth, Scan};

/// Blocks of a strip: white, black, 6 bits of place, 40 bits of number, 16 bits of checksum.
const BLOCKS: u32 = 64;
const NUMBER_BITS: u32 = 40;
/// A block is this wide at least: the widest pgroup, so that blocks are whole pgroups.
const MIN_WIDTH: u32 = 4;

/// Numbers are counted modulo this.
pub const NUMBERS: u64 = 1 << NUMBER_BITS;

/// Where a strip is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub bottom: bool,
    pub field: u32,
}

/// Where the blocks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strips {
    /// Blocks side by side.
    pub columns: u32,
    /// Width of a block in pixels; whole pgroups.
    pub block_width: u32,
    /// Height of a block in rows of the frame; even.
    pub block_height: u32,
    /// First row of the strip at the top and of the one at the bottom; even.
    pub first_rows: [u32; 2],
    scan: Scan,
}

impl Strips {
    /// `None` when the raster is too small for a code.
    pub(super) fn new(format: &WireFormat) -> Option<Self> {
        let columns = [64, 32, 16, 8].into_iter().find(|c| format.width / c >= MIN_WIDTH)?;
        let tiers = BLOCKS / columns;
        let block_width = format.width / columns / MIN_WIDTH * MIN_WIDTH;
        // Half of the picture at most is code.
        let block_height = (format.height / 64).min(format.height / (4 * tiers)).min(16) & !1;
        let block_height = block_height.max(2);
        let height = tiers * block_height;
        let bottom = (format.height.checked_sub(height)?) & !1;
        (bottom >= height).then_some(Strips {
            columns,
            block_width,
            block_height,
            first_rows: [0, bottom],
            scan: format.scan,
        })
    }

    /// Rows of a strip.
    pub(super) const fn height(&self) -> u32 {
        self.tiers() * self.block_height
    }

    pub(super) const fn tiers(&self) -> u32 {
        BLOCKS / self.columns
    }

    /// Fields that have a code of their own.
    pub(super) fn fields(&self) -> u32 {
        if self.scan == Scan::Progressive { 1 } else { 2 }
    }

    /// How the code says the scan.
    pub(super) const fn scan_code(&self) -> u32 {
        match self.scan {
            Scan::Progressive => 0,
            Scan::Interlaced => 1,
            Scan::Psf => 2,
        }
    }

    /// The 64 bits that say `number` at a place, first block at the top bit.
    pub(super) fn word(&self, number: u64, place: Place) -> u64 {
        let tag = u64::from(self.scan_code()) << 2 | u64::from(place.bottom) << 1 | u64::from(place.field);
        let body = (0b10 << (NUMBER_BITS + 6)) | (tag << NUMBER_BITS) | (number % NUMBERS);
        body << 16 | u64::from(crc16(body))
    }

    /// The number that these 64 bits say at a place.
    fn number(&self, word: u64, place: Place) -> Option<u64> {
        let number = word >> 16 & (NUMBERS - 1);
        (self.word(number, place) == word).then_some(number)
    }
}

/// CRC-16/CCITT-FALSE over 48 bits.
fn crc16(body: u64) -> u16 {
    body.to_be_bytes()[2..].iter().fold(0xffff, |crc, &octet| {
        (0..8).fold(crc ^ u16::from(octet) << 8, |c, _| if c & 0x8000 == 0 { c << 1 } else { c << 1 ^ 0x1021 })
    })
}

/// The numbers found in a frame; `None` where a code is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codes {
    /// At the top: first field (or the whole frame), second field.
    pub top: [Option<u64>; 2],
    /// At the bottom.
    pub bottom: [Option<u64>; 2],
}

impl Codes {
    /// The one number of a frame that is all of one piece.
    pub fn number(&self) -> Option<u64> {
        let [first, ..] = self.top;
        (self.top == [first; 2] && self.bottom == [first; 2]).then_some(first)?
    }
}

/// Reads the code out of a frame of any output format; `None` when the raster is too small to hold one.
pub fn read_codes(layout: &Layout, octets: &[u8]) -> Option<Codes> {
    let strips = Strips::new(&layout.wire)?;
    let read = |bottom: bool, field: u32| {
        let place = Place { bottom, field };
        let first = strips.first_rows[usize::from(bottom)];
        let level = |block: u32| {
            let x = block % strips.columns * strips.block_width + strips.block_width / 2;
            let y = first + block / strips.columns * strips.block_height + strips.block_height / 2;
            // The row of the wanted parity next to the middle.
            let y = if strips.fields() == 2 { (y & !1) + field } else { y };
            luma(layout, octets, x, y)
        };
        let middle = (level(0)? + level(1)?) / 2;
        let mut word = 0u64;
        for block in 0..BLOCKS {
            word = word << 1 | u64::from(level(block)? > middle);
        }
        strips.number(word, place)
    };
    let second = strips.fields() - 1;
    Some(Codes { top: [read(false, 0), read(false, second)], bottom: [read(true, 0), read(true, second)] })
}

/// The number of a frame of the test pattern, in any output format, when every code in it says the same.
pub fn read_number(layout: &Layout, octets: &[u8]) -> Option<u64> {
    read_codes(layout, octets)?.number()
}

/// The sample at a pixel that carries the luminance; some monotonous measure of it.
fn luma(layout: &Layout, octets: &[u8], x: u32, y: u32) -> Option<u32> {
    let wire = &layout.wire;
    // Green is the middle one of R, G and B.
    let plane = layout.planes.get(usize::from(layout.output == Output::Rgb16f))?;
    let row = |y: u32| octets.get(plane.offset + y as usize * plane.stride..);
    let octet = |at: usize| row(y)?.get(at).copied().map(u32::from);
    let word = |at: usize| Some(octet(at)? | octet(at + 1)? << 8);
    let x_ = x as usize;
    match layout.output {
        Output::Wire => {
            let (width, rows) = (wire.pgroup.width(), wire.pgroup.rows);
            let luma = luma_component(wire.sampling);
            let slot = order(wire)
                .iter()
                .position(|p| p.component == luma && u32::from(p.dx) == x % width && u32::from(p.dy) == y % rows)?
                as u32;
            let bit = x / width * wire.pgroup.octets * 8 + slot * wire.depth.bits();
            let row = row(y / rows)?;
            let at = (bit / 8) as usize;
            // A sample of at most 16 bits lies in three octets.
            let three = (0..3).fold(0u32, |w, i| w << 8 | u32::from(row.get(at + i).copied().unwrap_or(0)));
            Some(three << (8 + bit % 8) >> (32 - wire.depth.bits()))
        }
        Output::Planar if wire.depth == Depth::D8 => octet(x_),
        // The bits of half floats that are not negative rise with their values.
        Output::Planar | Output::P010 | Output::P210 | Output::Rgb16f => word(2 * x_),
        Output::Nv12 => octet(x_),
        Output::Uyvy => octet(2 * x_ + 1),
        Output::V210 => {
            // Twelve samples in sixteen octets: Cb Y Cr | Y Cb Y | Cr Y Cb | Y Cr Y.
            let sample = x_ % 6 * 2 + 1;
            let at = x_ / 6 * 16 + sample / 3 * 4;
            Some((word(at)? | word(at + 2)? << 16) >> (sample % 3 * 10) & 0x3ff)
        }
        Output::Rgba => octet(4 * x_ + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_ccitt() {
        // "123456" by CRC-16/CCITT-FALSE.
        assert_eq!(crc16(0x3132_3334_3536), 0x2ef4);
    }

    #[test]
    fn every_damage_of_one_block_is_found() {
        let format =
            WireFormat::new(gdmedia_sdp::Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Interlaced).unwrap();
        let strips = Strips::new(&format).unwrap();
        let place = Place { bottom: false, field: 1 };
        let word = strips.word(123_456_789_012, place);
        assert_eq!(strips.number(word, place), Some(123_456_789_012));
        assert!((0..64).all(|bit| strips.number(word ^ 1 << bit, place).is_none()));
        assert_eq!(strips.number(word, Place { bottom: false, field: 0 }), None, "a field in the other's place");
    }

    #[test]
    fn strips_fit_their_raster() {
        for (width, height) in
            [(32, 32), (33, 37), (64, 64), (720, 576), (720, 487), (1920, 1080), (3840, 2160), (7680, 4320)]
        {
            let format =
                WireFormat::new(gdmedia_sdp::Sampling::YCbCr422, Depth::D10, width, height, Scan::Progressive).unwrap();
            let strips = Strips::new(&format).expect("large enough");
            assert!(strips.columns * strips.block_width <= width);
            assert!(strips.first_rows[0] + strips.height() <= strips.first_rows[1]);
            assert!(strips.first_rows[1] + strips.height() <= height);
            assert!(strips.block_height.is_multiple_of(2) && strips.first_rows[1].is_multiple_of(2));
        }
        let tiny = WireFormat::new(gdmedia_sdp::Sampling::Key, Depth::D8, 16, 16, Scan::Progressive).unwrap();
        assert_eq!(Strips::new(&tiny), None);
    }
}
