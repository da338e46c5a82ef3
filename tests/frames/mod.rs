//! Frames made by hand, for tests of sinks.
#![allow(dead_code)] // Each test binary uses its part.

use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool, Meta};
use gdmedia::kernel::Colour;
use gdmedia::sdp::{Depth, Ratio, Sampling, Subsampling, Video};

pub fn video(sampling: Sampling, depth: Depth, width: u32, height: u32) -> Video {
    Video::new(sampling, depth, width, height, Ratio::new(60000, 1001))
}

pub fn colour(video: &Video) -> Colour {
    Colour { colorimetry: video.colorimetry, tcs: video.tcs, range: video.range }
}

pub fn layout(video: &Video, output: Output) -> Option<Layout> {
    Layout::new(WireFormat::from_video(video)?, output).ok()
}

/// Every combination that has a layout.
pub fn layouts(width: u32, height: u32) -> impl Iterator<Item = (Video, Layout)> {
    let formats = Sampling::ALL.iter().flat_map(|&s| Depth::ALL.iter().map(move |&d| (s, d)));
    formats.flat_map(move |(sampling, depth)| {
        let video = video(sampling, depth, width, height);
        Output::ALL.into_iter().filter_map(move |output| Some((video.clone(), layout(&video, output)?)))
    })
}

/// A frame whose padding is 0xEE and whose octets are what `octet(plane, row, position)` says.
pub fn frame(layout: &Layout, number: u64, mut octet: impl FnMut(usize, usize, usize) -> u8) -> Frame {
    let pool = FramePool::host(layout.clone(), 1).unwrap();
    fill(&pool, number, &mut octet)
}

pub fn fill(
    pool: &FramePool<gdmedia::mem::Host>,
    number: u64,
    octet: &mut dyn FnMut(usize, usize, usize) -> u8,
) -> Frame {
    let mut buf = pool.take().expect("an idle frame");
    let layout = buf.layout().clone();
    let octets = buf.region_mut().as_mut_slice();
    octets.fill(0xEE);
    for (index, plane) in layout.planes.iter().enumerate() {
        for row in 0..plane.rows {
            for at in 0..plane.row_octets {
                octets[plane.offset + row * plane.stride + at] = octet(index, row, at);
            }
        }
    }
    *buf.meta_mut() = Meta { number, complete: true, ..Meta::default() };
    buf.seal()
}

/// A cycle of 251 octets: swapped rows or planes cannot look alike. Sixteen-bit samples stay below 2^10.
pub fn painted(layout: &Layout, number: u64) -> Frame {
    let wide = layout.output == Output::Planar && layout.wire.depth != Depth::D8;
    frame(layout, number, |plane, row, at| {
        let value = (plane * 97 + row * 41 + at + number as usize * 7) % 251;
        if wide && at % 2 == 1 { (value % 4) as u8 } else { value as u8 }
    })
}

/// All rows of all planes without padding.
pub fn rows(frame: &Frame) -> Vec<u8> {
    let planes = &frame.layout().planes;
    (0..planes.len()).flat_map(|p| (0..planes[p].rows).flat_map(move |r| frame.row(p, r).to_vec())).collect()
}

/// A frame of one colour: `codes` (Y Cb Cr, R G B, X Y Z, K) at the bits that the output holds.
pub fn flat(layout: &Layout, codes: [u16; 3]) -> Frame {
    let wire = layout.wire;
    let [a, b, c] = codes;
    let bits = wire.depth.bits() as usize;
    let samples: Vec<u16> = match wire.sampling.subsampling() {
        Subsampling::One => vec![a],
        Subsampling::Full444 if matches!(wire.sampling, Sampling::Rgb | Sampling::Xyz) => vec![a, b, c],
        Subsampling::Full444 => vec![b, a, c],
        Subsampling::Half422 => vec![b, a, c, a],
        Subsampling::Quarter420 => vec![a, a, a, a, b, c],
    };
    frame(layout, 0, |plane, _, at| match layout.output {
        Output::Wire => (0..8).fold(0, |octet, bit| {
            let at = at * 8 + bit;
            let sample = samples[at / bits % samples.len()];
            octet << 1 | (sample >> (bits - 1 - at % bits) & 1) as u8
        }),
        Output::Planar => {
            let code = if wire.sampling == Sampling::Rgb { [b, c, a][plane] } else { codes[plane] };
            if bits == 8 { code as u8 } else { code.to_le_bytes()[at % 2] }
        }
        Output::P010 | Output::P210 => {
            let code = if plane == 0 { a } else { [b, c][at / 2 % 2] };
            (code << 6).to_le_bytes()[at % 2]
        }
        Output::Nv12 => (if plane == 0 { a } else { [b, c][at % 2] }) as u8,
        Output::Uyvy => [b, a, c, a][at % 4] as u8,
        Output::V210 => {
            let s = [b, a, c, a].map(u32::from);
            let word = at / 4 * 3;
            let packed = s[word % 4] | s[(word + 1) % 4] << 10 | s[(word + 2) % 4] << 20;
            packed.to_le_bytes()[at % 4]
        }
        Output::Rgba => [a as u8, b as u8, c as u8, 255][at % 4],
        Output::Rgb16f => codes[plane].to_le_bytes()[at % 2],
    })
}
