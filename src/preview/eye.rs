//! From frames of the CPU to small pictures, counts of scopes, and full ones.

use crate::format::{Layout, Output};
use crate::frame::Frame;
use crate::kernel::{Conversion, Level, Run, RunFn, select};
use crate::mem::Host;
use crate::scale::{self, Picture};
use crate::scope::{self, Scope};
use crate::sink::to_rgb;

/// The whole number by which a picture of `width` columns is made smaller to have about `wanted`.
pub const fn factor(width: u32, wanted: u32) -> u32 {
    let wanted = if wanted == 0 { 1 } else { wanted };
    let factor = (width + wanted / 2) / wanted;
    if factor == 0 { 1 } else { factor }
}

/// Looks at frames of one layout.
pub struct Eye {
    conversion: Conversion,
    unpacked: Option<Unpacked>,
}

/// Wire octets are brought into planes first.
struct Unpacked {
    conversion: Conversion,
    unpack: RunFn,
    memory: Vec<u8>,
}

impl Eye {
    /// For frames of this conversion.
    pub fn new(conversion: &Conversion) -> Self {
        let wire = *conversion.wire();
        let planar = Layout::new(wire, Output::Planar).ok().filter(|_| conversion.output() == Output::Wire);
        let unpacked = planar.map(|layout| {
            let conversion = Conversion { layout, colour: conversion.colour };
            let (unpack, _) = select(&conversion, Level::Avx2);
            // Taken when the first frame is looked at.
            Unpacked { conversion, unpack, memory: Vec::new() }
        });
        Eye { conversion: conversion.clone(), unpacked }
    }

    /// What the frame is read as, and its octets.
    fn read<'a>(&'a mut self, frame: &'a Frame<Host>) -> (&'a Conversion, &'a [u8]) {
        let octets = frame.octets();
        let Some(Unpacked { conversion, unpack, memory }) = &mut self.unpacked else {
            return (&self.conversion, octets);
        };
        let wire = *conversion.wire();
        memory.resize(conversion.layout.size, 0);
        for (row, src) in octets.chunks_exact(wire.row_octets() as usize).take(wire.rows() as usize).enumerate() {
            unpack(conversion, Run { src, groups: wire.row_pgroups(), row: row as u32, group: 0 }, memory);
        }
        (conversion, memory)
    }

    /// The frame smaller by `factor`.
    pub fn picture(&mut self, frame: &Frame<Host>, factor: u32) -> Picture {
        let colour = self.conversion.colour;
        let (conversion, octets) = self.read(frame);
        let picture = (octets.len() >= conversion.layout.size).then(|| scale::scale(conversion, octets, factor));
        picture.flatten().unwrap_or_else(|| {
            let wire = frame.layout().wire;
            boxes(&to_rgb(frame, &colour), wire.width, wire.height, factor)
        })
    }

    /// The frame's scopes; none where it has half floats of R, G and B.
    pub fn scope(&mut self, frame: &Frame<Host>, columns: usize) -> Option<Scope> {
        let (conversion, octets) = self.read(frame);
        if octets.len() < conversion.layout.size {
            return None;
        }
        scope::scope(conversion, octets, columns, Level::Avx2)
    }

    /// The frame as it is: columns, rows, and R G B of 8 bits.
    pub fn full(&self, frame: &Frame<Host>) -> (u32, u32, Vec<u8>) {
        let wire = frame.layout().wire;
        (wire.width, wire.height, to_rgb(frame, &self.conversion.colour))
    }
}

/// R G B of 8 bits, smaller by `factor`, with the boxes of [`crate::scale`].
fn boxes(rgb: &[u8], width: u32, height: u32, factor: u32) -> Picture {
    let [across, down] = [width, height].map(|n| n.min(factor.max(1)) as usize);
    let [columns, rows] = [width as usize / across, height as usize / down];
    let n = (across * down) as u32;
    let mut octets = Vec::with_capacity(columns * rows * 4);
    for v in 0..rows {
        for u in 0..columns {
            let mut sums = [0u32; 3];
            for y in v * down..(v + 1) * down {
                let at = (y * width as usize + u * across) * 3;
                for pixel in rgb.get(at..at + across * 3).unwrap_or_default().chunks_exact(3) {
                    sums.iter_mut().zip(pixel).for_each(|(sum, &s)| *sum += u32::from(s));
                }
            }
            let [r, g, b] = sums.map(|sum| ((sum + n / 2) / n) as u8);
            octets.extend([r, g, b, 255]);
        }
    }
    Picture { width: columns as u32, height: rows as u32, octets }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::WireFormat;
    use crate::frame::FramePool;
    use crate::kernel::Colour;
    use crate::send::pattern::Pattern;
    use gdmedia_sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};

    const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

    #[test]
    fn widths_come_near_the_wanted_one() {
        let widths = [1, 320, 720, 1280, 1440, 1920, 2048, 3840, 4096, 7680].map(|w| w / factor(w, 960));
        assert_eq!(widths, [1, 320, 720, 1280, 720, 960, 1024, 960, 1024, 960]);
        assert_eq!((factor(1920, 0), factor(0, 960)), (1920, 1));
    }

    /// A frame of the test pattern in every output: the small pictures are alike, whatever lies in memory.
    #[test]
    fn every_output_shows_the_same_picture() {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 320, 180, Scan::Progressive).unwrap();
        let mut octets = vec![0; wire.frame_octets() as usize];
        Pattern::new(wire, COLOUR, 75, "TEST").frame(5, &mut octets);
        let mut first: Option<Picture> = None;
        for output in Output::ALL {
            let layout = Layout::new(wire, output).unwrap();
            let conversion = Conversion { layout: layout.clone(), colour: COLOUR };
            let pool = FramePool::host(layout, 1).unwrap();
            let mut frame = pool.take().unwrap();
            let (run, _) = select(&conversion, Level::Avx2);
            for (row, src) in octets.chunks_exact(wire.row_octets() as usize).enumerate() {
                let run_of = Run { src, groups: wire.row_pgroups(), row: row as u32, group: 0 };
                run(&conversion, run_of, frame.region_mut().as_mut_slice());
            }
            let frame = frame.seal();
            let mut eye = Eye::new(&conversion);
            let picture = eye.picture(&frame, 2);
            assert_eq!((picture.width, picture.height), (160, 90));
            let first = first.get_or_insert_with(|| picture.clone());
            // 4:2:0 takes every other row of colour: between bars and strips a pixel may differ, in the bars none does.
            for (u, v) in [(10, 30), (30, 30), (50, 30), (70, 20), (90, 20), (110, 30), (130, 30), (150, 30)] {
                let at = (v * 160 + u) * 4;
                let (a, b) = (&picture.octets[at..at + 3], &first.octets[at..at + 3]);
                assert!(a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= 2), "{output:?} {u} {v}: {a:?} {b:?}");
            }
            let scope = eye.scope(&frame, 64);
            assert_eq!(scope.is_none(), output == Output::Rgb16f, "{output:?}");
            let (width, height, rgb) = eye.full(&frame);
            assert_eq!((width, height, rgb.len()), (320, 180, 320 * 180 * 3));
        }
    }

    #[test]
    fn boxes_are_averaged_and_rounded() {
        let rgb: Vec<u8> = [[0, 10, 255], [1, 20, 255], [9; 3], [0, 30, 255], [1, 40, 254], [9; 3]].concat();
        let picture = boxes(&rgb, 3, 2, 2);
        assert_eq!((picture.width, picture.height), (1, 1));
        // 2 / 4 is rounded up; 100 / 4; 1019 / 4 = 254.75.
        assert_eq!(picture.octets, [1, 25, 255, 255]);
    }
}
