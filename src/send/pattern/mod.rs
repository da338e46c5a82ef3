//! The test picture: colour bars, a ramp, a moving box, the frame number for people and for receivers.
//!
//! ```text
//! code of the number (top strip)
//! colour bars, with the format and the frame number burnt in
//! a box that moves from left to right
//! ramp from black to white
//! code of the number (bottom strip)
//! ```

mod code;
mod codes;
mod font;
#[cfg(feature = "cuda")]
mod gpu;
mod paint;

pub use code::{Codes, NUMBERS, read_codes, read_number};
#[cfg(feature = "cuda")]
pub use gpu::NumberReader;

use crate::format::WireFormat;
use crate::kernel::Colour;
use code::{Place, Strips};
use codes::Coder;
use gdmedia_sdp::Scan;
use paint::{Area, Canvas, Ink};

/// Digits of the burnt-in number.
const DIGITS: u32 = 8;
/// Frames that the box takes to cross the picture.
const CROSSING: u64 = 120;

/// A test picture in wire format. What changes between frames is a few rows, so that one core can send any format.
#[derive(Clone, Debug)]
pub struct Pattern {
    format: WireFormat,
    /// Frame without number, octet by octet.
    still: Vec<u8>,
    /// Pgroups of a black and of a white pixel.
    black: Vec<u8>,
    white: Vec<u8>,
    strips: Option<Strips>,
    band: Option<Band>,
    text: Option<Text>,
    /// Rows that are made new in every frame, the same for all rows of a block.
    scratch: Vec<u8>,
}

/// The rows in which the box moves.
#[derive(Clone, Debug)]
struct Band {
    first_row: u32,
    rows: u32,
    /// Two wire rows of background with the box at the start of the second.
    template: Vec<u8>,
}

/// The burnt-in number.
#[derive(Clone, Debug)]
struct Text {
    /// First wire row, and octet in it.
    row: u32,
    octet: u32,
    rows: u32,
    /// Octets of one row of a digit.
    width: u32,
    /// Pictures of the ten digits.
    digits: Vec<Vec<u8>>,
}

impl Pattern {
    /// Paints the picture. `percent` is the level of the coloured bars, 75 or 100; `label` is burnt in, such as
    /// `1080p59.94`.
    pub fn new(format: WireFormat, colour: Colour, percent: u32, label: &str) -> Self {
        let coder = Coder::new(&format, colour);
        let strips = Strips::new(&format);
        let margin = strips.map_or(0, |s| s.height());
        let picture = Area {
            x: 0,
            y: margin,
            width: format.width,
            height: strips.map_or(format.height, |s| s.first_rows[1]) - margin,
        };
        let mut canvas = Canvas::new(&format, coder);
        let band_rows = (picture.height / 16).min(48) & !1;
        let bars_height = (picture.height * 3 / 4) & !1;
        let bars = Area { height: bars_height, ..picture };
        canvas.bars(bars, f64::from(percent.min(100)) / 100.0);
        let below = picture.y + bars_height + band_rows;
        let ramp = Area { y: below, height: picture.y + picture.height - below, ..picture };
        canvas.ramp(ramp);
        let text = Text::new(&format, coder, bars, &mut canvas, label);
        let band = (band_rows > 0).then(|| Band::new(&format, coder, picture.y + bars_height, band_rows));
        let black = paint::group(&format, coder, Ink::BLACK);
        let white = paint::group(&format, coder, Ink::WHITE);
        Pattern {
            still: canvas.pack(),
            scratch: vec![0; format.row_octets() as usize],
            format,
            black,
            white,
            strips,
            band,
            text,
        }
    }

    /// The format of its frames.
    pub const fn format(&self) -> &WireFormat {
        &self.format
    }

    /// Writes frame `number` whole. `out` has [`WireFormat::frame_octets`].
    pub fn frame(&mut self, number: u64, out: &mut [u8]) {
        if out.len() == self.still.len() {
            out.copy_from_slice(&self.still);
            self.update(number, out);
        }
    }

    /// Makes frame `number` out of another frame of this pattern: writes only what differs.
    pub fn update(&mut self, number: u64, out: &mut [u8]) {
        if out.len() != self.still.len() {
            return;
        }
        self.codes(number, out);
        if let Some(band) = &self.band {
            band.draw(&self.format, number, out);
        }
        if let Some(text) = &self.text {
            text.draw(&self.format, number, out);
        }
    }

    /// Compares a frame in wire format with what frame `number` should be: the first octet that differs, if any.
    pub fn verify(&mut self, number: u64, frame: &[u8]) -> Option<usize> {
        if frame.len() < self.still.len() {
            return Some(frame.len());
        }
        let mut expected = self.still.clone();
        self.update(number, &mut expected);
        expected.iter().zip(frame).position(|(a, b)| a != b)
    }

    fn codes(&mut self, number: u64, out: &mut [u8]) {
        let Some(strips) = self.strips else { return };
        let row_octets = self.format.row_octets() as usize;
        let rows_of_group = self.format.pgroup.rows;
        let groups_of_block = (strips.block_width / self.format.pgroup.width()) as usize;
        for (bottom, field) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
            if field >= strips.fields() {
                continue;
            }
            let word = strips.word(number, Place { bottom, field });
            for tier in 0..strips.tiers() {
                // The strip beside the last block stays black.
                fill(&mut self.scratch, &self.black);
                let mut at = self.scratch.chunks_exact_mut(self.black.len() * groups_of_block);
                for column in 0..strips.columns {
                    let lit = word >> (63 - tier * strips.columns - column) & 1 == 1;
                    if let Some(block) = at.next().filter(|_| lit) {
                        fill(block, &self.white);
                    }
                }
                let first = strips.first_rows[usize::from(bottom)] + tier * strips.block_height;
                let step = strips.fields().max(rows_of_group);
                for y in (first + field..first + strips.block_height).step_by(step as usize) {
                    let start = (y / rows_of_group) as usize * row_octets;
                    if let Some(row) = out.get_mut(start..start + row_octets) {
                        row.copy_from_slice(&self.scratch);
                    }
                }
            }
        }
    }
}

/// Repeats a pgroup.
fn fill(out: &mut [u8], group: &[u8]) {
    for out in out.chunks_exact_mut(group.len()) {
        out.copy_from_slice(group);
    }
}

impl Band {
    fn new(format: &WireFormat, coder: Coder, first_row: u32, rows: u32) -> Self {
        let back = paint::group(format, coder, Ink::GREY);
        let front = paint::group(format, coder, Ink::WHITE);
        let groups = format.row_pgroups() as usize;
        let template = (0..2 * groups)
            .flat_map(|g| if g % groups < groups.div_ceil(12) { front.iter() } else { back.iter() })
            .copied()
            .collect();
        Band { first_row, rows, template }
    }

    fn draw(&self, format: &WireFormat, number: u64, out: &mut [u8]) {
        let (groups, octets) = (u64::from(format.row_pgroups()), format.pgroup.octets as usize);
        let row_octets = format.row_octets() as usize;
        let rows_of_group = format.pgroup.rows;
        for y in (self.first_row..self.first_row + self.rows).step_by(rows_of_group as usize) {
            // Interlaced: the second field is half a frame later, so is its box.
            let half = u64::from(format.scan == Scan::Interlaced && y % 2 == 1);
            let moved = (2 * number + half) % (2 * CROSSING) * groups / (2 * CROSSING);
            let from = (groups - moved) as usize * octets;
            let start = (y / rows_of_group) as usize * row_octets;
            if let (Some(row), Some(source)) =
                (out.get_mut(start..start + row_octets), self.template.get(from..from + row_octets))
            {
                row.copy_from_slice(source);
            }
        }
    }
}

impl Text {
    /// Burns the label in and finds the place of the number; `None` when the bars are too small to read it.
    fn new(format: &WireFormat, coder: Coder, bars: Area, canvas: &mut Canvas, label: &str) -> Option<Self> {
        let scale = (format.height / 120).min(format.width / (2 * DIGITS * font::CELL_WIDTH)).max(1);
        let width = (font::CELL_WIDTH * scale).next_multiple_of(4);
        let rows = (font::CELL_HEIGHT * scale).next_multiple_of(2);
        let x = (format.width.checked_sub(DIGITS * width)? / 2) & !3;
        let y = (bars.y + bars.height.checked_sub(3 * rows)? / 2) & !1;
        canvas.text(label, scale, x + DIGITS * width / 2, y + rows);
        let cell = WireFormat { width, height: rows, scan: Scan::Progressive, ..*format };
        let digits = (b'0'..=b'9')
            .map(|digit| {
                let mut canvas = Canvas::new(&cell, coder);
                canvas.character(digit, scale, 0, 0);
                canvas.pack()
            })
            .collect();
        let group = format.pgroup;
        Some(Text {
            row: y / group.rows,
            octet: x / group.width() * group.octets,
            rows: rows / group.rows,
            width: cell.row_octets(),
            digits,
        })
    }

    fn draw(&self, format: &WireFormat, number: u64, out: &mut [u8]) {
        let (width, row_octets) = (self.width as usize, format.row_octets() as usize);
        let mut rest = number;
        for place in (0..DIGITS as usize).rev() {
            let Some(picture) = self.digits.get((rest % 10) as usize) else { return };
            rest /= 10;
            let start = self.row as usize * row_octets + self.octet as usize + place * width;
            for (row, source) in picture.chunks_exact(width).take(self.rows as usize).enumerate() {
                let at = start + row * row_octets;
                if let Some(out) = out.get_mut(at..at + width) {
                    out.copy_from_slice(source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Layout, Output, Plane};
    use gdmedia_sdp::{Colorimetry, Depth, Range, Sampling, Tcs};

    const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

    fn wire_layout(wire: WireFormat) -> Layout {
        let (row, rows) = (wire.row_octets() as usize, wire.rows() as usize);
        let planes = vec![Plane { offset: 0, stride: row, row_octets: row, rows }];
        Layout { wire, output: Output::Wire, planes, size: row * rows }
    }

    fn every_format(width: u32, height: u32) -> impl Iterator<Item = WireFormat> {
        Sampling::ALL.iter().flat_map(move |&sampling| {
            Depth::ALL.iter().flat_map(move |&depth| {
                Scan::ALL.iter().filter_map(move |&scan| WireFormat::new(sampling, depth, width, height, scan))
            })
        })
    }

    #[test]
    fn the_number_can_be_read_in_every_format() {
        let mut formats = 0;
        for format in every_format(132, 67).chain(every_format(1281, 90)) {
            let mut pattern = Pattern::new(format, COLOUR, 75, "TEST");
            let mut frame = vec![0; format.frame_octets() as usize];
            pattern.frame(7, &mut frame);
            assert_eq!(read_number(&wire_layout(format), &frame), Some(7), "{format:?}");
            pattern.update(987_654_321_012, &mut frame);
            assert_eq!(read_number(&wire_layout(format), &frame), Some(987_654_321_012), "{format:?}");
            assert_eq!(pattern.verify(987_654_321_012, &frame), None, "an updated frame equals a new one: {format:?}");
            let middle = frame.len() / 2;
            frame[middle] ^= 1;
            assert_eq!(pattern.verify(987_654_321_012, &frame), Some(middle));
            formats += 1;
        }
        // 52 combinations of sampling and depth; 4:2:0 is progressive only.
        assert_eq!(formats, 2 * (3 * 43 + 9));
    }

    #[test]
    fn a_stale_field_is_found() {
        let format = WireFormat::new(Sampling::YCbCr422, Depth::D10, 720, 576, Scan::Interlaced).unwrap();
        let mut pattern = Pattern::new(format, COLOUR, 75, "625I25");
        let row = format.row_octets() as usize;
        let (mut old, mut new) = (vec![0; format.frame_octets() as usize], vec![0; format.frame_octets() as usize]);
        pattern.frame(41, &mut old);
        pattern.frame(42, &mut new);
        for (old, new) in old.chunks_exact(row).zip(new.chunks_exact_mut(row)).skip(1).step_by(2) {
            new.copy_from_slice(old);
        }
        let codes = read_codes(&wire_layout(format), &new).unwrap();
        assert_eq!(codes, Codes { top: [Some(42), Some(41)], bottom: [Some(42), Some(41)] });
        assert_eq!(codes.number(), None);
        // Fields in each other's place carry no valid code at all.
        pattern.frame(42, &mut new);
        let mut swapped = new.clone();
        for (pair, from) in swapped.chunks_exact_mut(2 * row).zip(new.chunks_exact(2 * row)) {
            pair[..row].copy_from_slice(&from[row..]);
            pair[row..].copy_from_slice(&from[..row]);
        }
        assert_eq!(read_codes(&wire_layout(format), &swapped).unwrap().top, [None, None]);
    }

    /// The bars at their place, by hand: 4:2:2 8 bit, BT.709, 75 %: white 180, yellow 168 44 136, black 16.
    #[test]
    fn bars_lie_where_they_should() {
        let format = WireFormat::new(Sampling::YCbCr422, Depth::D8, 640, 480, Scan::Progressive).unwrap();
        let mut pattern = Pattern::new(format, COLOUR, 75, "");
        let mut frame = vec![0; format.frame_octets() as usize];
        pattern.frame(0, &mut frame);
        let at = |x: usize, y: usize| &frame[y * 1280 + x * 2..][..4];
        assert_eq!(at(40, 40), [128, 180, 128, 180]);
        assert_eq!(at(120, 40), [44, 168, 136, 168]);
        assert_eq!(at(600, 40), [128, 16, 128, 16]);
        // The ramp ends in white, above the strip at the bottom.
        assert_eq!(at(638, 460)[3], 235);
    }

    #[test]
    fn rasters_without_room_have_bars_only() {
        for (width, height) in [(1, 1), (2, 2), (7, 3), (31, 200), (200, 3), (16, 16)] {
            for format in every_format(width, height) {
                let mut pattern = Pattern::new(format, COLOUR, 100, "ANY");
                let mut frame = vec![0; format.frame_octets() as usize];
                pattern.frame(1, &mut frame);
                assert_eq!(pattern.verify(1, &frame), None);
            }
        }
    }
}
