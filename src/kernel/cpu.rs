//! The kernel for rings and frames that the CPU can touch.

use super::conceal::{self, Paint};
use super::{Conversion, Kernel, KernelError, Level, Run, RunFn, Ticket, select};
use crate::format::{Output, WireFormat};
use crate::frame::{Frame, FrameBuf};
use crate::mem::CpuAccess;
use crate::plan::{Missing, Placement};
use crate::ring::{Octets, SLACK, Slot, SplitRing};

/// Executes placements on the CPU; everything is done when a call returns.
#[derive(Debug)]
pub struct CpuKernel {
    conversion: Conversion,
    run: RunFn,
    level: Level,
    place: Place,
    black: Paint,
    mark: Paint,
    refused: u64,
    ticket: Ticket,
}

impl CpuKernel {
    /// The best implementation that this CPU has, or the best up to `limit`. It stays the same for the kernel's life.
    pub fn new(conversion: Conversion, limit: Option<Level>) -> Self {
        let (run, level) = select(&conversion, limit.unwrap_or(Level::Avx2));
        CpuKernel {
            run,
            level,
            place: Place::new(conversion.wire()),
            black: Paint::black(&conversion),
            mark: Paint::mark(&conversion),
            refused: 0,
            ticket: Ticket::default(),
            conversion,
        }
    }
    /// What it does.
    pub const fn conversion(&self) -> &Conversion {
        &self.conversion
    }
    /// The instruction set that it uses.
    pub const fn level(&self) -> Level {
        self.level
    }
    /// Placements that were not executed because they lie outside of their packet or frame: none, unless
    /// whoever made them is wrong.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    fn check(&self, frame: &FrameBuf<impl CpuAccess>) -> Result<(), KernelError> {
        if **frame.layout() == self.conversion.layout {
            return Ok(());
        }
        Err(KernelError("a frame of another layout than the kernel's".into()))
    }
}

impl<R: CpuAccess, F: CpuAccess> Kernel<R, F> for CpuKernel {
    fn apply(
        &mut self,
        ring: &SplitRing<R>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<F>,
    ) -> Result<Ticket, KernelError> {
        self.check(frame)?;
        let memory = frame.region_mut().as_mut_slice();
        let wire_octets = self.conversion.output() == Output::Wire;
        for placement in placements {
            let octets = slots.get(placement.slot as usize).and_then(|s| ring.octets(s, placement.src, placement.len));
            let done = octets.and_then(|octets| {
                if wire_octets {
                    copy(self.conversion.wire(), placement, octets, memory)
                } else {
                    convert(&self.conversion, self.run, &mut self.place, placement, octets, memory)
                }
            });
            self.refused += u64::from(done.is_none());
        }
        self.ticket.0 += 1;
        Ok(self.ticket)
    }

    fn conceal(
        &mut self,
        frame: &mut FrameBuf<F>,
        missing: &[Missing],
        previous: Option<&Frame<F>>,
    ) -> Result<(), KernelError> {
        self.check(frame)?;
        let memory = frame.region_mut().as_mut_slice();
        match previous.filter(|p| *p.layout() == self.conversion.layout) {
            Some(previous) if previous.is_window() => conceal::ranges(previous.layout(), missing, |start, end| {
                let [first, rest] = previous.range(start..end);
                let (before, after) = memory[start..end].split_at_mut(first.len());
                before.copy_from_slice(first);
                after.copy_from_slice(rest);
            }),
            Some(previous) => conceal::copy(&self.conversion.layout, missing, memory, previous.octets()),
            None => self.black.fill(&self.conversion, self.run, missing, memory),
        }
        Ok(())
    }

    fn paint(&mut self, frame: &mut FrameBuf<F>, missing: &[Missing]) -> Result<(), KernelError> {
        self.check(frame)?;
        self.mark.fill(&self.conversion, self.run, missing, frame.region_mut().as_mut_slice());
        Ok(())
    }

    fn finish(&mut self, frame: FrameBuf<F>) -> Result<(Frame<F>, Ticket), KernelError> {
        Ok((frame.seal(), self.ticket))
    }

    fn done(&mut self, ticket: Ticket) -> Result<bool, KernelError> {
        Ok(ticket <= self.ticket)
    }

    fn name(&self) -> &'static str {
        if self.conversion.output() == Output::Wire { "copy" } else { self.level.name() }
    }
}

/// Wire output: the frame's address space is the placement's. `None` when the placement is refused.
#[inline]
fn copy(wire: &WireFormat, placement: &Placement, octets: Octets<'_>, memory: &mut [u8]) -> Option<()> {
    let start = placement.dst as usize;
    let end = start + usize::from(placement.len);
    if end > wire.frame_octets() as usize {
        return None;
    }
    let (first, rest) = memory.get_mut(start..end)?.split_at_mut_checked(octets.first_len)?;
    first.copy_from_slice(octets.first.get(..octets.first_len)?);
    rest.copy_from_slice(octets.rest.get(..octets.rest_len)?);
    Some(())
}

/// One placement: one run, or up to three where the packet is split between two planes of the ring.
#[inline]
fn convert(
    conversion: &Conversion,
    convert: RunFn,
    place: &mut Place,
    placement: &Placement,
    octets: Octets<'_>,
    memory: &mut [u8],
) -> Option<()> {
    let (row, group, groups) = place.locate(placement)?;
    if octets.rest_len == 0 {
        convert(conversion, Run { src: octets.first, groups, row, group }, memory);
        return Some(());
    }
    let size = conversion.wire().pgroup.octets as usize;
    let whole = octets.first_len / size;
    let (before, cut) = octets.first.get(..octets.first_len)?.split_at(whole * size);
    let mut group = group;
    let mut run = |src: &[u8], groups: u32| {
        if groups > 0 {
            convert(conversion, Run { src, groups, row, group }, memory);
            group += groups;
        }
    };
    run(before, whole as u32);
    let mut rest = octets.rest;
    let mut left = groups - whole as u32;
    if !cut.is_empty() {
        // The pgroup that the ring splits is put together first.
        let (end, after) = rest.split_at_checked(size - cut.len())?;
        let mut joined = [0; 16 + SLACK];
        joined[..cut.len()].copy_from_slice(cut);
        joined[cut.len()..size].copy_from_slice(end);
        run(&joined, 1);
        rest = after;
        left -= 1;
    }
    run(rest, left);
    Some(())
}

/// Finds the wire row and pgroup of an octet. Placements mostly follow one another, so a row is divided out only when
/// it is neither the last one nor the next; pgroups are found by multiplication.
#[derive(Debug)]
pub(super) struct Place {
    row_octets: u32,
    frame_octets: u32,
    group_octets: u32,
    // 2^32 / group_octets, rounded up.
    reciprocal: u64,
    row: u32,
    row_start: u32,
}

impl Place {
    pub(super) fn new(wire: &WireFormat) -> Self {
        let group_octets = wire.pgroup.octets;
        Place {
            row_octets: wire.row_octets(),
            frame_octets: wire.frame_octets(),
            group_octets,
            reciprocal: (1u64 << 32).div_ceil(u64::from(group_octets)),
            row: 0,
            row_start: 0,
        }
    }

    /// `n / group_octets` and whether nothing remains. The error of the reciprocal is less than `group_octets <= 15` in
    /// 2^32, so this is exact for all n below 2^32 / 15: a row has 262136 octets at most.
    #[inline]
    fn groups(&self, n: u32) -> (u32, bool) {
        let groups = ((u64::from(n) * self.reciprocal) >> 32) as u32;
        (groups, groups * self.group_octets == n)
    }

    /// Row, group and groups; `None` when the placement is no run of whole pgroups inside one row.
    #[inline]
    pub(super) fn locate(&mut self, placement: &Placement) -> Option<(u32, u32, u32)> {
        if placement.dst >= self.frame_octets {
            return None;
        }
        // Both are below 2^31, so a row before the last one wraps to a large number.
        let mut offset = placement.dst.wrapping_sub(self.row_start);
        if offset >= self.row_octets {
            let next = offset.wrapping_sub(self.row_octets);
            if next < self.row_octets {
                self.row += 1;
            } else {
                self.row = placement.dst / self.row_octets;
            }
            self.row_start = self.row * self.row_octets;
            offset = placement.dst - self.row_start;
        }
        let len = u32::from(placement.len);
        let (group, whole) = self.groups(offset);
        let (groups, whole_too) = self.groups(len);
        let fits = offset + len <= self.row_octets;
        (fits && whole && whole_too && groups > 0).then_some((self.row, group, groups))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Layout;
    use crate::frame::FramePool;
    use crate::kernel::Colour;
    use crate::mem::{Host, Region};
    use crate::time::Tai;
    use gdmedia_sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs};
    use proptest::prelude::*;

    const COLOUR: Colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: Range::Narrow };

    fn kernel(sampling: Sampling, depth: Depth, output: Output, width: u32, height: u32) -> CpuKernel {
        let wire = WireFormat::new(sampling, depth, width, height, Scan::Progressive).unwrap();
        CpuKernel::new(Conversion { layout: Layout::new(wire, output).unwrap(), colour: COLOUR }, None)
    }

    fn pool(kernel: &CpuKernel) -> FramePool<Host> {
        FramePool::host(kernel.conversion.layout.clone(), 2).unwrap()
    }

    /// One packet of `octets` after a header of 20, split at octet `head`.
    fn ring(octets: &[u8], head: usize) -> (SplitRing<Host>, Slot) {
        let packet: Vec<u8> = std::iter::repeat_n(0xaa, 20).chain(octets.iter().copied()).collect();
        let region = |octets: &[u8]| {
            let mut region = Region::host(octets.len().max(1)).unwrap();
            region.as_mut_slice()[..octets.len()].copy_from_slice(octets);
            region
        };
        let (a, b) = packet.split_at(head.min(packet.len()));
        let len = packet.len() as u16;
        let slot = Slot {
            head_at: 0,
            body_at: 0,
            head: a.len() as u16,
            octets: len,
            wire_octets: len,
            leg: 0,
            arrival: Tai(0),
        };
        (SplitRing::split(region(a), region(b)), slot)
    }

    fn apply(kernel: &mut CpuKernel, octets: &[u8], head: usize, placements: &[Placement], frame: &mut FrameBuf<Host>) {
        let (ring, slot) = ring(octets, head);
        kernel.apply(&ring, &[slot], placements, frame).unwrap();
    }

    #[test]
    fn a_packet_split_anywhere_gives_the_same_picture() {
        for (sampling, depth, output) in [
            (Sampling::YCbCr422, Depth::D10, Output::Planar),
            (Sampling::YCbCr422, Depth::D10, Output::V210),
            (Sampling::YCbCr420, Depth::D10, Output::Nv12),
            (Sampling::Rgb, Depth::D10, Output::Rgba),
            (Sampling::YCbCr422, Depth::D10, Output::Wire),
        ] {
            let mut k = kernel(sampling, depth, output, 48, 8);
            let row = k.conversion.wire().row_octets();
            let octets: Vec<u8> = (0..row).map(|i| (i * 7 % 251) as u8).collect();
            let placement = Placement { slot: 0, dst: 2 * row, src: 20, len: row as u16 };
            let mut results = (20..=20 + octets.len()).map(|head| {
                let frames = pool(&k);
                let mut frame = frames.take().unwrap();
                apply(&mut k, &octets, head, &[placement], &mut frame);
                frame.seal().octets().to_vec()
            });
            let whole = results.next().unwrap();
            assert!(whole.iter().any(|&o| o != 0));
            assert!(results.all(|r| r == whole), "{sampling} {output:?}");
            assert_eq!(k.refused(), 0);
        }
    }

    #[test]
    fn placements_out_of_bounds_are_counted_and_touch_nothing() {
        for output in [Output::Planar, Output::Wire] {
            let mut k = kernel(Sampling::YCbCr422, Depth::D10, output, 16, 4);
            let frames = pool(&k);
            let mut frame = frames.take().unwrap();
            let octets = [0xff; 60];
            let bad = [
                Placement { slot: 1, dst: 0, src: 20, len: 5 },
                Placement { slot: 0, dst: 160, src: 20, len: 5 },
                Placement { slot: 0, dst: u32::MAX - 1, src: 20, len: 5 },
                Placement { slot: 0, dst: 0, src: 76, len: 10 },
                Placement { slot: 0, dst: 0, src: 65535, len: 65535 },
                Placement { slot: 0, dst: 155, src: 20, len: 10 },
            ];
            apply(&mut k, &octets, 30, &bad, &mut frame);
            assert_eq!(k.refused(), 6);
            if output == Output::Planar {
                // Not whole pgroups, across a row's end, empty.
                let bad = [(1, 5), (0, 4), (35, 10), (0, 0)];
                let bad = bad.map(|(dst, len)| Placement { slot: 0, dst, src: 20, len });
                apply(&mut k, &octets, 30, &bad, &mut frame);
                assert_eq!(k.refused(), 10);
            }
            assert!(frame.seal().octets().iter().all(|&o| o == 0));
        }
    }

    #[test]
    fn a_frame_of_another_layout_is_an_error() {
        let mut k = kernel(Sampling::YCbCr422, Depth::D10, Output::Planar, 16, 4);
        let frames = pool(&kernel(Sampling::YCbCr422, Depth::D10, Output::Planar, 18, 4));
        let mut frame = frames.take().unwrap();
        let (ring, slot) = ring(&[0; 5], 25);
        assert!(k.apply(&ring, &[slot], &[], &mut frame).is_err());
    }

    proptest! {
        #[test]
        fn no_placement_makes_it_panic(
            wire in (prop::sample::select(Sampling::ALL), prop::sample::select(Depth::ALL), 1u32..100, 1u32..9),
            output in prop::sample::select(&Output::ALL[..]),
            head in 0usize..1500,
            body in any::<(u32, u32, u16, u16)>(),
            placements in prop::collection::vec(any::<(u8, u32, u16, u16, bool)>(), 0..40),
        ) {
            let (sampling, depth, width, height) = wire;
            let Some(wire) = WireFormat::new(sampling, depth, width, height, Scan::Progressive) else { return Ok(()) };
            let Ok(layout) = Layout::new(wire, output) else { return Ok(()) };
            let mut k = CpuKernel::new(Conversion { layout, colour: COLOUR }, None);
            let frames = pool(&k);
            let mut frame = frames.take().unwrap();
            let (ring, slot) = ring(&[0x5a; 1430], head);
            // A slot that lies in the ring, and one that may not.
            let (head_at, body_at, head, octets) = body;
            let slots = [slot, Slot { head_at, body_at, head, octets, ..slot }];
            let placements: Vec<Placement> = placements
                .into_iter()
                .map(|(slot, dst, src, len, near)| {
                    let slot = u32::from(slot % 3);
                    let placement = Placement { slot, dst, src, len };
                    if near {
                        let dst = dst % wire.frame_octets();
                        Placement { dst, src: src % 1500, len: len % 1500, ..placement }
                    } else {
                        placement
                    }
                })
                .collect();
            k.apply(&ring, &slots, &placements, &mut frame).unwrap();
            prop_assert!(k.refused() <= placements.len() as u64);
        }

        #[test]
        fn rows_and_groups_are_found_as_by_division(
            width in 1u32..32768,
            octets in prop::collection::vec((any::<prop::sample::Index>(), 0u16..2000), 1..50),
            sampling in prop::sample::select(Sampling::ALL),
            depth in prop::sample::select(Depth::ALL),
        ) {
            let Some(wire) = WireFormat::new(sampling, depth, width, 1080, Scan::Progressive) else { return Ok(()) };
            let mut place = Place::new(&wire);
            let (row_octets, size) = (wire.row_octets(), wire.pgroup.octets);
            for (index, len) in octets {
                let dst = index.index(wire.frame_octets() as usize + 100) as u32;
                // Half of them on a boundary.
                let dst = if dst.is_multiple_of(2) { dst / row_octets * row_octets + dst % row_octets / size * size } else { dst };
                let (row, offset) = (dst / row_octets, dst % row_octets);
                let fits = row < wire.rows()
                    && offset + u32::from(len) <= row_octets
                    && offset.is_multiple_of(size)
                    && len > 0
                    && u32::from(len).is_multiple_of(size);
                let expected = fits.then_some((row, offset / size, u32::from(len) / size));
                prop_assert_eq!(place.locate(&Placement { slot: 0, dst, src: 0, len }), expected);
            }
        }
    }
}
