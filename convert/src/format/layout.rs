//! Which outputs a wire format has, and how they lie in memory.

use super::{Layout, Output, Plane, WireFormat};
use gdmedia_sdp::{Depth, Sampling, Scan, Subsampling};

/// An output that a wire format does not have, with the reason and what to choose instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {} output of {sampling}, {depth} bit: {reason}", .output.word())]
pub struct Unsupported {
    sampling: Sampling,
    depth: Depth,
    output: Output,
    reason: &'static str,
    cure: &'static str,
}

impl Unsupported {
    /// Why not.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
    /// What to choose instead.
    pub const fn cure(&self) -> &'static str {
        self.cure
    }
}

/// Readable and writable octets behind the last plane.
const SLACK: usize = 64;
/// Planes and, but for wire octets, rows begin at multiples of this.
const ALIGN: usize = 64;

impl Layout {
    /// How `output` of a picture lies in memory.
    ///
    /// # Errors
    /// The wire format has no such output.
    pub fn new(wire: WireFormat, output: Output) -> Result<Layout, Unsupported> {
        check(&wire, output)?;
        let (width, height) = (wire.width as usize, wire.height as usize);
        // What a wire row holds, beyond the width too.
        let held = (wire.row_pgroups() * wire.pgroup.width()) as usize;
        let half = |n: usize| n.div_ceil(2);
        let colour_rows = if wire.scan == Scan::Interlaced { half(height).next_multiple_of(2) } else { half(height) };
        let mut planes = Planes::default();
        match output {
            Output::Wire => {
                let row = wire.row_octets() as usize;
                planes.push(row, row, wire.rows() as usize);
            }
            Output::Planar => {
                let size = if wire.depth == Depth::D8 { 1 } else { 2 };
                planes.padded(width * size, held * size, height);
                let (colour_width, colour_held, rows) = match wire.sampling.subsampling() {
                    Subsampling::One => (0, 0, 0),
                    Subsampling::Full444 => (width, held, height),
                    Subsampling::Half422 => (half(width), half(held), height),
                    Subsampling::Quarter420 => (half(width), half(held), half(height)),
                };
                if rows > 0 {
                    planes.padded(colour_width * size, colour_held * size, rows);
                    planes.padded(colour_width * size, colour_held * size, rows);
                }
            }
            Output::P010 | Output::Nv12 => {
                let size = if output == Output::P010 { 2 } else { 1 };
                planes.padded(width * size, held * size, height);
                planes.padded(half(width) * 2 * size, half(held) * 2 * size, colour_rows);
            }
            Output::P210 => {
                planes.padded(width * 2, held * 2, height);
                planes.padded(half(width) * 4, half(held) * 4, height);
            }
            Output::Uyvy => planes.padded(half(width) * 4, half(held) * 4, height),
            // Rows of whole 128-octet blocks, as everybody stores v210.
            Output::V210 => planes.push(width.div_ceil(6) * 16, width.div_ceil(48) * 128, height),
            Output::Rgba => planes.padded(width * 4, held * 4, height),
            Output::Rgb16f => (0..3).for_each(|_| planes.padded(width * 2, held * 2, height)),
        }
        Ok(Layout { wire, output, planes: planes.planes, size: planes.end + SLACK })
    }
}

fn check(wire: &WireFormat, output: Output) -> Result<(), Unsupported> {
    let no = |reason, cure| Err(Unsupported { sampling: wire.sampling, depth: wire.depth, output, reason, cure });
    match (output, wire.sampling) {
        (Output::Wire | Output::Planar | Output::Rgba | Output::Rgb16f, _) => Ok(()),
        (_, Sampling::Rgb) => {
            no("it would need a matrix to Y'CbCr, which no conversion here has", "choose rgba or planar")
        }
        (_, Sampling::Xyz) => no("it is not Y'CbCr", "choose planar, or rgba for a preview"),
        (_, Sampling::Key) => no("a key has no colour", "choose planar or rgba"),
        _ if wire.depth == Depth::F16 => {
            no("half floats have no integer code range", "choose planar, or rgba for a preview")
        }
        (Output::P010 | Output::Nv12, _) if wire.scan == Scan::Interlaced && wire.height % 4 == 1 => {
            no("fields of this height do not share colour rows evenly", "choose planar, p210, uyvy or v210")
        }
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Planes {
    planes: Vec<Plane>,
    end: usize,
}

impl Planes {
    fn padded(&mut self, row_octets: usize, held_octets: usize, rows: usize) {
        self.push(row_octets, held_octets.next_multiple_of(ALIGN), rows);
    }
    fn push(&mut self, row_octets: usize, stride: usize, rows: usize) {
        let offset = self.end.next_multiple_of(ALIGN);
        self.planes.push(Plane { offset, stride, row_octets, rows });
        self.end = offset + stride * rows;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sampling: Sampling, depth: Depth, width: u32, height: u32, scan: Scan, output: Output) -> Layout {
        Layout::new(WireFormat::new(sampling, depth, width, height, scan).unwrap(), output).unwrap()
    }

    #[test]
    fn known_layouts() {
        let l = layout(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Progressive, Output::Planar);
        let y = Plane { offset: 0, stride: 3840, row_octets: 3840, rows: 1080 };
        let cb = Plane { offset: 4_147_200, stride: 1920, row_octets: 1920, rows: 1080 };
        assert_eq!(l.planes, [y, cb, Plane { offset: 6_220_800, ..cb }]);
        assert_eq!(l.size, 8_294_400 + 64);

        let l = layout(Sampling::YCbCr422, Depth::D10, 1280, 720, Scan::Progressive, Output::V210);
        assert_eq!(l.planes, [Plane { offset: 0, stride: 3456, row_octets: 3424, rows: 720 }]);

        // 4:2:0 10 bit: a pgroup covers four columns, so five columns are carried as eight.
        let l = layout(Sampling::YCbCr420, Depth::D10, 5, 3, Scan::Progressive, Output::Planar);
        let y = Plane { offset: 0, stride: 64, row_octets: 10, rows: 3 };
        let cb = Plane { offset: 192, stride: 64, row_octets: 6, rows: 2 };
        assert_eq!(l.planes, [y, cb, Plane { offset: 320, ..cb }]);

        let l = layout(Sampling::YCbCr422, Depth::D10, 1920, 1082, Scan::Interlaced, Output::Nv12);
        assert_eq!(l.planes[1], Plane { offset: 1920 * 1082, stride: 1920, row_octets: 1920, rows: 542 });

        // All rows of colour, at any height of an interlaced picture; nine columns share five samples.
        let l = layout(Sampling::YCbCr422, Depth::D10, 9, 5, Scan::Interlaced, Output::P210);
        let y = Plane { offset: 0, stride: 64, row_octets: 18, rows: 5 };
        assert_eq!(l.planes, [y, Plane { offset: 320, stride: 64, row_octets: 20, rows: 5 }]);

        let l = layout(Sampling::YCbCr420, Depth::D8, 1920, 1080, Scan::Progressive, Output::Rgb16f);
        let r = Plane { offset: 0, stride: 3840, row_octets: 3840, rows: 1080 };
        assert_eq!(l.planes, [r, Plane { offset: 4_147_200, ..r }, Plane { offset: 8_294_400, ..r }]);

        let l = layout(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Interlaced, Output::Wire);
        assert_eq!(l.planes, [Plane { offset: 0, stride: 4800, row_octets: 4800, rows: 1080 }]);
    }

    #[test]
    fn what_is_carried_fits_the_stride() {
        for &sampling in Sampling::ALL {
            for &depth in Depth::ALL {
                for width in 1..=130 {
                    for output in Output::ALL {
                        let Some(wire) = WireFormat::new(sampling, depth, width, 6, Scan::Progressive) else {
                            continue;
                        };
                        let Ok(l) = Layout::new(wire, output) else { continue };
                        let held = (wire.row_pgroups() * wire.pgroup.width()) as usize;
                        let mut end = 0;
                        for (i, p) in l.planes.iter().enumerate() {
                            assert!(p.offset % 64 == 0 && p.offset >= end);
                            end = p.offset + p.stride * p.rows;
                            let needed = match output {
                                Output::Wire => wire.row_octets() as usize,
                                Output::Planar => {
                                    let size = if depth == Depth::D8 { 1 } else { 2 };
                                    let full = i == 0 || sampling.subsampling() == Subsampling::Full444;
                                    if full { held * size } else { held / 2 * size }
                                }
                                Output::P010 | Output::P210 => held.next_multiple_of(2) * 2,
                                Output::Nv12 => held.next_multiple_of(2),
                                Output::Uyvy => held.next_multiple_of(2) * 2,
                                Output::V210 => held.div_ceil(6) * 16,
                                Output::Rgba => held * 4,
                                Output::Rgb16f => held * 2,
                            };
                            assert!(p.stride >= needed, "{wire:?} {output:?}");
                            assert!(p.row_octets <= p.stride);
                        }
                        assert!(l.size >= end + 64);
                    }
                }
            }
        }
    }

    #[test]
    fn refusals_say_what_to_choose() {
        let wire = WireFormat::new(Sampling::Rgb, Depth::D10, 16, 16, Scan::Progressive).unwrap();
        let error = Layout::new(wire, Output::P010).unwrap_err();
        assert!(error.to_string().starts_with("no p010 output of RGB, 10 bit: "), "{error}");
        assert_eq!(error.cure(), "choose rgba or planar");
        let wire = WireFormat::new(Sampling::YCbCr444, Depth::F16, 16, 16, Scan::Progressive).unwrap();
        assert!(Layout::new(wire, Output::Uyvy).is_err());
        assert!(Layout::new(wire, Output::P210).is_err());
        assert!(Layout::new(wire, Output::Rgba).is_ok());
        assert!(Layout::new(wire, Output::Rgb16f).is_ok());
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D8, 16, 5, Scan::Interlaced).unwrap();
        assert!(Layout::new(wire, Output::Nv12).is_err());
    }
}
