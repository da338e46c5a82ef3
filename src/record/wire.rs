//! Frames of other layouts back to pgroups, where nothing was lost on the way there; and from pgroups to any layout.

use super::form::Header;
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output, Plane};
use crate::frame::FrameBuf;
use crate::kernel::{Colour, Conversion, CpuKernel, Kernel};
use crate::mem::{Host, Region};
use crate::plan::Placement;
use crate::ring::{SLACK, Slot, SplitRing};
use crate::send::pack::{pack16, plane_size};
use crate::time::Tai;
use gdmedia_sdp::{Depth, Sampling, Subsampling};

/// Packs frames of one layout.
#[derive(Debug)]
pub struct ToWire {
    layout: Layout,
    planes: [Vec<u16>; 3],
}

impl ToWire {
    /// For this layout.
    ///
    /// # Errors
    /// It holds less than the wire does: fewer bits, less colour, other colours.
    pub fn new(layout: &Layout) -> Result<Self> {
        let wire = &layout.wire;
        let (half, quarter) = (Subsampling::Half422, Subsampling::Quarter420);
        let holds_all = match layout.output {
            Output::Wire | Output::Planar => true,
            Output::V210 | Output::P210 => (wire.sampling.subsampling(), wire.depth) == (half, Depth::D10),
            Output::Uyvy => (wire.sampling.subsampling(), wire.depth) == (half, Depth::D8),
            Output::P010 => (wire.sampling.subsampling(), wire.depth) == (quarter, Depth::D10),
            Output::Nv12 => (wire.sampling.subsampling(), wire.depth) == (quarter, Depth::D8),
            Output::Rgba | Output::Rgb16f => false,
        };
        if !holds_all {
            let (sampling, depth, word) = (wire.sampling, wire.depth, layout.output.word());
            let what =
                format!("frames recorded as {word} have not all that {sampling} of {depth} bits has on the wire");
            return Err(
                Error::new(Kind::Usage, what).cure("record with --output wire or planar; or use these as they are")
            );
        }
        let planes = std::array::from_fn(|c| {
            let (width, height) = plane_size(wire, c);
            vec![0; if layout.output == Output::Wire { 0 } else { width * height }]
        });
        Ok(ToWire { layout: layout.clone(), planes })
    }

    /// Packs the octets of a frame into those of the wire. Pixels beyond the width become zero, unless they were recorded.
    pub fn pack(&mut self, octets: &[u8], wire: &mut [u8]) {
        if self.layout.output == Output::Wire {
            let len = wire.len().min(octets.len());
            if let (Some(to), Some(from)) = (wire.get_mut(..len), octets.get(..len)) {
                to.copy_from_slice(from);
            }
            return;
        }
        for (component, plane) in self.planes.iter_mut().enumerate() {
            let (width, _) = plane_size(&self.layout.wire, component);
            if width == 0 {
                continue;
            }
            for (y, row) in plane.chunks_exact_mut(width).enumerate() {
                samples(&self.layout, octets, component, y, row);
            }
        }
        let [a, b, c] = &self.planes;
        pack16(&self.layout.wire, [a, b, c], wire);
    }
}

/// Row `y` of a component, in the low bits.
fn samples(layout: &Layout, octets: &[u8], component: usize, y: usize, to: &mut [u16]) {
    let row = |index: usize| {
        let Plane { offset, stride, row_octets, .. } = layout.planes.get(index).copied().unwrap_or_default();
        octets.get(offset + y * stride..).and_then(|rest| rest.get(..row_octets)).unwrap_or_default()
    };
    let words = |row: &[u8], first: usize, step: usize, to: &mut [u16]| {
        let from = row.as_chunks::<2>().0.iter().skip(first).step_by(step);
        to.iter_mut().zip(from).for_each(|(to, word)| *to = u16::from_le_bytes(*word));
    };
    let bytes = |row: &[u8], first: usize, step: usize, to: &mut [u16]| {
        to.iter_mut().zip(row.iter().skip(first).step_by(step)).for_each(|(to, octet)| *to = u16::from(*octet));
    };
    // Y CbCr, of which the second has Cb and Cr in turn.
    let (plane, first, step) = if component == 0 { (0, 0, 1) } else { (1, component - 1, 2) };
    match layout.output {
        Output::Planar => {
            // Planes are G, B, R; components R, G, B.
            let plane = if layout.wire.sampling == Sampling::Rgb { (component + 2) % 3 } else { component };
            if layout.wire.depth == Depth::D8 { bytes(row(plane), 0, 1, to) } else { words(row(plane), 0, 1, to) }
        }
        Output::P010 | Output::P210 => {
            words(row(plane), first, step, to);
            to.iter_mut().for_each(|sample| *sample >>= 6);
        }
        Output::Nv12 => bytes(row(plane), first, step, to),
        // Cb Y Cr Y
        Output::Uyvy => {
            let (first, step) = [(1, 2), (0, 4), (2, 4)][component.min(2)];
            bytes(row(0), first, step, to);
        }
        Output::V210 => {
            let (first, step) = [(1, 2), (0, 4), (2, 4)][component.min(2)];
            let words = row(0).as_chunks::<4>().0;
            for (n, sample) in to.iter_mut().enumerate() {
                let at = first + n * step;
                let word = words.get(at / 3).copied().map_or(0, u32::from_le_bytes);
                *sample = (word >> (at % 3 * 10) & 0x3ff) as u16;
            }
        }
        Output::Wire | Output::Rgba | Output::Rgb16f => {}
    }
}

/// Unpacks wire octets into frames of any layout, by the kernels that reception has.
#[derive(Debug)]
pub struct FromWire {
    kernel: CpuKernel,
    ring: SplitRing<Host>,
    slots: Vec<Slot>,
    placements: Vec<Placement>,
    octets: usize,
}

/// Octets of a run at most: what a packet may have.
const RUN: u32 = 60_000;

impl FromWire {
    /// To this layout.
    ///
    /// # Errors
    /// No memory.
    pub fn new(layout: &Layout, colour: Colour) -> Result<Self> {
        let wire = layout.wire;
        let octets = wire.frame_octets() as usize;
        let (mut slots, mut placements) = (Vec::new(), Vec::new());
        let run = RUN / wire.pgroup.octets * wire.pgroup.octets;
        for row in 0..wire.rows() {
            for from in (0..wire.row_octets()).step_by(run as usize) {
                let len = (wire.row_octets() - from).min(run) as u16;
                let at = row * wire.row_octets() + from;
                placements.push(Placement { slot: slots.len() as u32, dst: at, src: 0, len });
                slots.push(Slot {
                    head_at: at,
                    body_at: 0,
                    head: len,
                    octets: len,
                    wire_octets: len,
                    leg: 0,
                    arrival: Tai::default(),
                });
            }
        }
        let ring = SplitRing::whole(Region::host(octets + SLACK)?);
        let kernel = CpuKernel::new(Conversion { layout: layout.clone(), colour }, None);
        Ok(FromWire { kernel, ring, slots, placements, octets })
    }
    /// Where the wire octets of the next frame are put.
    pub fn wire(&mut self) -> &mut [u8] {
        self.ring.head_plane_mut().as_mut_slice().get_mut(..self.octets).unwrap_or_default()
    }
    /// Unpacks them.
    ///
    /// # Errors
    /// The frame has another layout.
    pub fn unpack(&mut self, frame: &mut FrameBuf<Host>) -> Result<()> {
        let done = self.kernel.apply(&self.ring, &self.slots, &self.placements, frame);
        done.map(|_| ()).map_err(|e| Error::new(Kind::Internal, "a recorded frame cannot be unpacked").because(e))
    }
}

/// From recorded frames to frames of any layout.
#[derive(Debug)]
pub struct Decoder {
    way: Decode,
    octets: usize,
}

#[derive(Debug)]
enum Decode {
    AsItIs,
    Wire(Box<FromWire>),
    Packed(Box<ToWire>, Vec<u8>, Box<FromWire>),
}

impl Decoder {
    /// From recorded ones to `layout`, which is of the same picture.
    ///
    /// # Errors
    /// What was recorded is not enough for it.
    pub fn new(header: &Header, layout: &Layout, colour: Colour) -> Result<Self> {
        let octets = header.frame_octets();
        let way = if header.layout == *layout {
            Decode::AsItIs
        } else if header.layout.output == Output::Wire {
            Decode::Wire(Box::new(FromWire::new(layout, colour)?))
        } else {
            let to_wire = ToWire::new(&header.layout)?;
            Decode::Packed(Box::new(to_wire), vec![0; octets], Box::new(FromWire::new(layout, colour)?))
        };
        Ok(Decoder { way, octets })
    }
    /// Gives `frame` what `load` reads: the octets of a recorded frame, and what is known of it.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn frame(
        &mut self,
        frame: &mut FrameBuf<Host>,
        load: impl FnOnce(&mut [u8]) -> Result<super::form::SlotHeader>,
    ) -> Result<()> {
        let head = match &mut self.way {
            Decode::AsItIs => load(frame.region_mut().as_mut_slice().get_mut(..self.octets).unwrap_or_default())?,
            Decode::Wire(from_wire) => {
                let head = load(from_wire.wire())?;
                from_wire.unpack(frame)?;
                head
            }
            Decode::Packed(to_wire, octets, from_wire) => {
                let head = load(octets)?;
                to_wire.pack(octets, from_wire.wire());
                from_wire.unpack(frame)?;
                head
            }
        };
        *frame.meta_mut() = head.meta;
        Ok(())
    }
    /// For people.
    pub const fn describe(&self) -> &'static str {
        match self.way {
            Decode::AsItIs => "as they were recorded",
            Decode::Wire(_) => "unpacked on the CPU",
            Decode::Packed(..) => "packed and unpacked again on the CPU",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::WireFormat;
    use crate::frame::FramePool;
    use gdmedia_sdp::{Colorimetry, Range, Scan, Tcs};

    /// Every layout that holds all of the wire gives it back, octet for octet.
    #[test]
    fn what_is_unpacked_is_packed_again() {
        let colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };
        let mut count = 0;
        for &sampling in Sampling::ALL {
            for &depth in Depth::ALL {
                // A width of whole pgroups: what lies beyond the width is not kept.
                let Some(wire) = WireFormat::new(sampling, depth, 48, 6, Scan::Progressive) else { continue };
                let octets: Vec<u8> = (0..wire.frame_octets()).map(|i| (i * 7 + i / 251) as u8).collect();
                for output in Output::ALL {
                    let Ok(layout) = Layout::new(wire, output) else { continue };
                    let Ok(mut to_wire) = ToWire::new(&layout) else { continue };
                    let mut from_wire = FromWire::new(&layout, colour).unwrap();
                    from_wire.wire().copy_from_slice(&octets);
                    let mut frame = FramePool::host(layout.clone(), 1).unwrap().take().unwrap();
                    from_wire.unpack(&mut frame).unwrap();
                    let mut again = vec![0xEE; octets.len()];
                    to_wire.pack(frame.region_mut().as_slice(), &mut again);
                    assert!(again == octets, "{sampling} {depth} as {}", output.word());
                    count += 1;
                }
            }
        }
        // Wire and planar of all of them, and the others of those that they are made for.
        assert!(count > 60, "{count}");
    }

    #[test]
    fn what_holds_less_is_refused() {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 48, 6, Scan::Progressive).unwrap();
        for output in [Output::Nv12, Output::P010, Output::Uyvy, Output::Rgba, Output::Rgb16f] {
            let error = ToWire::new(&Layout::new(wire, output).unwrap()).unwrap_err();
            assert!(error.kind() == Kind::Usage && error.cure_text().contains("--output wire"), "{error}");
        }
        for output in [Output::Wire, Output::Planar, Output::V210, Output::P210] {
            ToWire::new(&Layout::new(wire, output).unwrap()).unwrap();
        }
    }
}
