//! What checkers of kernels share: random cases that are the same in every run, and which bits of a frame belong to which
//! pixels.
#![allow(dead_code)]

use gdmedia::format::{Layout, Output};
use gdmedia::sdp::{Depth, Scan, Subsampling};

/// xorshift64*: the same cases in every run.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }
    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u32) as usize]
    }
    pub fn fill(&mut self, octets: &mut [u8]) {
        for chunk in octets.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Which bits of the frame's memory belong to these columns of a wire row, and which are padding of its rows.
pub struct Mask {
    pub pixels: Vec<u8>,
    pub ignored: Vec<u8>,
}

impl Mask {
    pub fn new(layout: &Layout) -> Self {
        Mask { pixels: vec![0; layout.size], ignored: vec![0; layout.size] }
    }

    /// Pixel by pixel, from the definition of every output.
    pub fn add(&mut self, layout: &Layout, wire_row: usize, columns: std::ops::Range<usize>) {
        let wire = &layout.wire;
        let (width, rows) = (wire.width as usize, wire.pgroup.rows as usize);
        let size = match layout.output {
            Output::Planar if wire.depth != Depth::D8 => 2,
            Output::P010 | Output::P210 | Output::Rgb16f => 2,
            _ => 1,
        };
        for row in wire_row * rows..(wire_row * rows + rows).min(wire.height as usize) {
            for x in columns.start..columns.end.min(width) {
                let even = x % 2 == 0;
                match layout.output {
                    Output::Wire => {}
                    Output::Rgba => self.octets(layout, 0, row, x * 4, 4),
                    Output::Uyvy if even => self.octets(layout, 0, row, x * 2, 3),
                    Output::Uyvy => self.octets(layout, 0, row, x * 2 + 1, 1),
                    Output::V210 if even => (0..3).for_each(|i| self.v210(layout, row, x * 2 + i)),
                    Output::V210 => self.v210(layout, row, x * 2 + 1),
                    Output::Planar => {
                        self.octets(layout, 0, row, x * size, size);
                        let colour = match wire.sampling.subsampling() {
                            Subsampling::Full444 => Some((x, row)),
                            Subsampling::Half422 if even => Some((x / 2, row)),
                            Subsampling::Quarter420 if even && row % 2 == 0 => Some((x / 2, row / 2)),
                            _ => None,
                        };
                        if let Some((x, row)) = colour {
                            self.octets(layout, 1, row, x * size, size);
                            self.octets(layout, 2, row, x * size, size);
                        }
                    }
                    Output::Rgb16f => (0..3).for_each(|plane| self.octets(layout, plane, row, x * size, size)),
                    Output::P210 => {
                        self.octets(layout, 0, row, x * size, size);
                        if even {
                            self.octets(layout, 1, row, x * size, 2 * size);
                        }
                    }
                    Output::P010 | Output::Nv12 => {
                        self.octets(layout, 0, row, x * size, size);
                        let (field, row) = if wire.scan == Scan::Interlaced { (row % 2, row / 2) } else { (0, row) };
                        if even && row % 2 == 0 {
                            let row = if wire.scan == Scan::Interlaced { row / 2 * 2 + field } else { row / 2 };
                            self.octets(layout, 1, row, x * size, 2 * size);
                        }
                    }
                }
            }
            match layout.output {
                Output::Uyvy if width % 2 == 1 => self.padding(layout, 0, row, width * 2 + 1),
                Output::V210 => {
                    // Samples beyond the width in the last word of the picture, and the words behind it.
                    let samples = width * 2 + width % 2;
                    self.padding(layout, 0, row, samples.div_ceil(3) * 4);
                    if samples % 3 > 0 {
                        let at = layout.planes[0].offset + row * layout.planes[0].stride + samples / 3 * 4;
                        let bits = (u32::MAX << (samples % 3 * 10)).to_le_bytes();
                        self.ignored[at..at + 4].copy_from_slice(&bits);
                    }
                }
                _ => {}
            }
        }
        if layout.output == Output::Wire {
            let (octets, pixels) = (wire.pgroup.octets as usize, wire.pgroup.width() as usize);
            let (start, end) = (columns.start / pixels * octets, columns.end.div_ceil(pixels) * octets);
            self.octets(layout, 0, wire_row, start, end - start);
        }
    }

    fn octets(&mut self, layout: &Layout, plane: usize, row: usize, start: usize, n: usize) {
        let p = &layout.planes[plane];
        assert!(row < p.rows && start + n <= p.row_octets, "a pixel outside of its plane");
        let at = p.offset + row * p.stride + start;
        self.pixels[at..at + n].fill(0xff);
        self.padding(layout, plane, row, p.row_octets);
    }

    fn v210(&mut self, layout: &Layout, row: usize, sample: usize) {
        let p = &layout.planes[0];
        let at = p.offset + row * p.stride + sample / 3 * 4;
        // The two unused bits belong to everybody in the word.
        let bits = 0x3ffu32 << (sample % 3 * 10) | 0xc000_0000;
        for (octet, bits) in self.pixels[at..at + 4].iter_mut().zip(bits.to_le_bytes()) {
            *octet |= bits;
        }
    }

    fn padding(&mut self, layout: &Layout, plane: usize, row: usize, from: usize) {
        let p = &layout.planes[plane];
        let at = p.offset + row * p.stride;
        self.ignored[at + from..at + p.stride].fill(0xff);
    }
}

/// The run's octets: random, or a cycle of 251 so that swapped blocks cannot look alike.
pub fn paint(rng: &mut Rng, octets: &mut [u8]) {
    if rng.below(2) == 0 {
        rng.fill(octets);
    } else {
        octets.iter_mut().zip((0..251u8).cycle()).for_each(|(o, v)| *o = v);
    }
}
