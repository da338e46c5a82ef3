//! Painting the still part of the picture, pixel by pixel; done once.

use super::codes::Coder;
use super::font;
use crate::format::WireFormat;
use crate::send::pack;

/// An index into the palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ink(u16);

impl Ink {
    pub(super) const BLACK: Ink = Ink(0);
    pub(super) const WHITE: Ink = Ink(1);
    pub(super) const GREY: Ink = Ink(2);
    const BARS: u16 = 3;
    const RAMP: u16 = Self::BARS + 8;
    /// Steps of the ramp.
    const STEPS: u16 = 1024;
}

/// Red, green and blue of the eight bars, in the order of falling luminance.
const BARS: [[u8; 3]; 8] = [[1, 1, 1], [1, 1, 0], [0, 1, 1], [0, 1, 0], [1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 0]];

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub x: u32,
    pub y: u32,
    pub width: u32,
    pub height: u32,
}

/// A picture of palette indices.
pub(super) struct Canvas {
    format: WireFormat,
    coder: Coder,
    pixels: Vec<Ink>,
    /// Codes of each ink.
    palette: Vec<[u16; 3]>,
}

impl Canvas {
    /// All black.
    pub(super) fn new(format: &WireFormat, coder: Coder) -> Self {
        let pixels = vec![Ink::BLACK; format.width as usize * format.height as usize];
        let palette = [0.0, 1.0, 0.4].map(|e| coder.codes([e; 3])).to_vec();
        Canvas { format: *format, coder, pixels, palette }
    }

    /// Eight bars; `level` is the amplitude of the colours.
    pub(super) fn bars(&mut self, area: Area, level: f64) {
        self.palette.truncate(Ink::BARS.into());
        self.palette.extend(BARS.map(|rgb| self.coder.codes(rgb.map(|c| f64::from(c) * level))));
        self.columns(area, |x| Ink(Ink::BARS + (x * 8 / area.width.max(1)) as u16));
    }

    /// From black to white; after [`Canvas::bars`].
    pub(super) fn ramp(&mut self, area: Area) {
        self.palette.truncate(Ink::RAMP.into());
        let last = f64::from(Ink::STEPS - 1);
        self.palette.extend((0..Ink::STEPS).map(|step| self.coder.codes([f64::from(step) / last; 3])));
        let last = area.width.saturating_sub(1).max(1);
        self.columns(area, |x| Ink(Ink::RAMP + (u64::from(x) * u64::from(Ink::STEPS - 1) / u64::from(last)) as u16));
    }

    /// White on black, its centre at `x`.
    pub(super) fn text(&mut self, text: &str, scale: u32, x: u32, y: u32) {
        let width = font::CELL_WIDTH * scale;
        let start = x.saturating_sub(text.len() as u32 * width / 2);
        for (character, at) in text.bytes().zip((start..).step_by(width as usize)) {
            self.character(character, scale, at, y);
        }
    }

    /// One character in its cell.
    pub(super) fn character(&mut self, character: u8, scale: u32, x: u32, y: u32) {
        for dy in 0..font::CELL_HEIGHT * scale {
            for dx in 0..font::CELL_WIDTH * scale {
                let lit = font::lit(character, dx / scale, dy / scale);
                self.set(x + dx, y + dy, if lit { Ink::WHITE } else { Ink::BLACK });
            }
        }
    }

    /// The picture in wire format.
    pub(super) fn pack(&self) -> Vec<u8> {
        let (width, height) = (self.format.width as usize, self.format.height as usize);
        let plane = |c: usize| -> Vec<u16> {
            let (w, h) = pack::plane_size(&self.format, c);
            if w * h == 0 {
                return Vec::new();
            }
            // Chroma is cosited with the first pixel of its group.
            let (step_x, step_y) = (width.div_ceil(w), height.div_ceil(h));
            let rows = self.pixels.chunks_exact(width).step_by(step_y);
            rows.flat_map(|row| row.iter().step_by(step_x)).map(|&ink| self.code(ink, c)).collect()
        };
        let planes = [plane(0), plane(1), plane(2)];
        let mut out = vec![0; self.format.frame_octets() as usize];
        pack::pack16(&self.format, [&planes[0], &planes[1], &planes[2]], &mut out);
        out
    }

    fn code(&self, ink: Ink, component: usize) -> u16 {
        self.palette.get(usize::from(ink.0)).map_or(0, |codes| codes[component])
    }

    fn columns(&mut self, area: Area, ink: impl Fn(u32) -> Ink) {
        let row: Vec<Ink> = (0..area.width).map(ink).collect();
        let width = self.format.width as usize;
        for pixels in self.pixels.chunks_exact_mut(width).skip(area.y as usize).take(area.height as usize) {
            if let Some(pixels) = pixels.get_mut(area.x as usize..area.x as usize + row.len()) {
                pixels.copy_from_slice(&row);
            }
        }
    }

    fn set(&mut self, x: u32, y: u32, ink: Ink) {
        if x < self.format.width && y < self.format.height {
            self.pixels[y as usize * self.format.width as usize + x as usize] = ink;
        }
    }
}

/// The octets of a pgroup of one ink among the first three.
pub(super) fn group(format: &WireFormat, coder: Coder, ink: Ink) -> Vec<u8> {
    let group = format.pgroup;
    let one = WireFormat { width: group.width(), height: group.rows, ..*format };
    let mut canvas = Canvas::new(&one, coder);
    canvas.pixels.fill(ink);
    canvas.pack()
}
