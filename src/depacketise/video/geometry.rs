//! From a sample row data header to a run of pgroups (ST 2110-20, 6.2), with every bound checked.

use crate::format::WireFormat;
use crate::sdp::Scan;
use crate::stats::Reason;
use crate::wire::srd::Srd;

/// A run of pgroups of a wire-format frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// First pgroup, counted through the frame.
    pub(super) pgroup: u32,
    /// How many.
    pub(super) count: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) pgroup_octets: u32,
    pub(super) row_pgroups: u32,
    rows: u32,
    /// Pixels of a pgroup along a row are 1, 2 or 4.
    offset_shift: u32,
    /// 1 for 4:2:0, whose rows count in twos.
    row_shift: u32,
    /// 2^32 / pgroup octets, rounded up: lengths have 16 bits, so the product's upper half is the quotient.
    reciprocal: u64,
    pub(super) two_fields: bool,
    /// The number of the first row of each field; 0 by the standard.
    pub(super) first_row: [u32; 2],
}

impl Geometry {
    pub(super) fn new(format: &WireFormat) -> Self {
        let pgroup = format.pgroup;
        Geometry {
            pgroup_octets: pgroup.octets,
            row_pgroups: format.row_pgroups(),
            rows: format.rows(),
            offset_shift: pgroup.width().trailing_zeros(),
            row_shift: pgroup.rows.trailing_zeros(),
            reciprocal: (1u64 << 32).div_ceil(u64::from(pgroup.octets)),
            two_fields: format.scan != Scan::Progressive,
            first_row: [0, 0],
        }
    }

    pub(super) fn total(&self) -> u32 {
        self.row_pgroups * self.rows
    }

    /// Numbers that the rows of a frame or of field `f` use: 4:2:0 uses every second one.
    pub(super) fn row_span(&self, f: usize) -> u32 {
        if self.two_fields { (self.rows + 1 - f as u32) / 2 } else { self.rows << self.row_shift }
    }

    /// From one row's number to the next.
    pub(super) fn row_step(&self) -> u32 {
        1 << self.row_shift
    }

    /// Whole pgroups in `octets`.
    #[inline]
    pub(super) fn pgroups(&self, octets: u16) -> u32 {
        ((u64::from(octets) * self.reciprocal) >> 32) as u32
    }

    /// Where a segment belongs.
    #[inline]
    pub(super) fn spot(&self, srd: &Srd) -> Result<Spot, Reason> {
        let f = usize::from(srd.field);
        let count = self.pgroups(srd.length);
        if count * self.pgroup_octets != u32::from(srd.length) {
            return Err(Reason::SrdHeader);
        }
        let row = u32::from(srd.row).wrapping_sub(self.first_row[f]);
        let row = if self.two_fields {
            row.wrapping_mul(2).wrapping_add(f as u32)
        } else {
            if f != 0 {
                return Err(Reason::Field);
            }
            if row & self.row_shift != 0 {
                return Err(Reason::Row);
            }
            row >> self.row_shift
        };
        if row >= self.rows || u32::from(srd.row) < self.first_row[f] {
            return Err(Reason::Row);
        }
        let offset = u32::from(srd.offset);
        let at = offset >> self.offset_shift;
        if at << self.offset_shift != offset || at >= self.row_pgroups {
            return Err(Reason::Offset);
        }
        if at + count > self.row_pgroups {
            return Err(Reason::Segment);
        }
        Ok(Spot { pgroup: row * self.row_pgroups + at, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdp::{Depth, Sampling};

    fn geometry(sampling: Sampling, depth: Depth, width: u32, height: u32, scan: Scan) -> Geometry {
        Geometry::new(&WireFormat::new(sampling, depth, width, height, scan).unwrap())
    }
    fn srd(length: u16, field: bool, row: u16, offset: u16) -> Srd {
        Srd { length, field, row, offset }
    }

    #[test]
    fn placement_by_hand() {
        let p = geometry(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Progressive);
        assert_eq!(p.spot(&srd(1200, false, 2, 480)), Ok(Spot { pgroup: 2 * 960 + 240, count: 240 }));
        let i = geometry(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Interlaced);
        assert_eq!(i.spot(&srd(1200, true, 539, 1440)), Ok(Spot { pgroup: 1079 * 960 + 720, count: 240 }));
        assert_eq!((i.row_span(0), i.row_span(1)), (540, 540));
        // 4:2:0 10 bit: pgroups of 4 by 2 pixels.
        let q = geometry(Sampling::YCbCr420, Depth::D10, 1920, 1080, Scan::Progressive);
        assert_eq!(q.spot(&srd(1425, false, 6, 760)), Ok(Spot { pgroup: 3 * 480 + 190, count: 95 }));
        assert_eq!(q.spot(&srd(15, false, 7, 0)), Err(Reason::Row));
        assert_eq!(q.row_span(0), 1080);
    }

    #[test]
    fn each_bound_has_its_reason() {
        let p = geometry(Sampling::YCbCr422, Depth::D10, 64, 16, Scan::Progressive);
        assert_eq!(p.spot(&srd(160, false, 15, 0)), Ok(Spot { pgroup: 15 * 32, count: 32 }));
        assert_eq!(p.spot(&srd(160, false, 16, 0)), Err(Reason::Row));
        assert_eq!(p.spot(&srd(160, false, 0x7fff, 0)), Err(Reason::Row));
        assert_eq!(p.spot(&srd(160, true, 0, 0)), Err(Reason::Field));
        assert_eq!(p.spot(&srd(10, false, 0, 1)), Err(Reason::Offset));
        assert_eq!(p.spot(&srd(10, false, 0, 64)), Err(Reason::Offset));
        assert_eq!(p.spot(&srd(10, false, 0, 62)), Err(Reason::Segment));
        assert_eq!(p.spot(&srd(165, false, 0, 0)), Err(Reason::Segment));
        assert_eq!(p.spot(&srd(7, false, 0, 0)), Err(Reason::SrdHeader));
        assert_eq!(p.spot(&srd(0, false, 0, 0)), Ok(Spot { pgroup: 0, count: 0 }));
    }

    #[test]
    fn rows_that_do_not_begin_at_zero() {
        let mut i = geometry(Sampling::YCbCr422, Depth::D10, 64, 16, Scan::Interlaced);
        i.first_row = [21, 584];
        assert_eq!(i.spot(&srd(5, false, 21, 0)).map(|s| s.pgroup), Ok(0));
        assert_eq!(i.spot(&srd(5, true, 591, 0)).map(|s| s.pgroup), Ok(15 * 32));
        assert_eq!(i.spot(&srd(5, false, 20, 0)), Err(Reason::Row));
        assert_eq!(i.spot(&srd(5, false, 29, 0)), Err(Reason::Row));
        assert_eq!(i.spot(&srd(5, true, 583, 0)), Err(Reason::Row));
    }

    #[test]
    fn division_is_exact_for_every_length_and_pgroup() {
        for &sampling in Sampling::ALL {
            for &depth in Depth::ALL {
                let Some(format) = WireFormat::new(sampling, depth, 64, 16, Scan::Progressive) else { continue };
                let g = Geometry::new(&format);
                assert!(format.pgroup.width().is_power_of_two());
                for octets in 0..=u16::MAX {
                    assert_eq!(g.pgroups(octets), u32::from(octets) / format.pgroup.octets);
                }
            }
        }
    }
}
