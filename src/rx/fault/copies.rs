//! Copies of packets in a ring of their own: octets are changed there, and never where a network card or the owner of
//! another lease has them.

use crate::error::Result;
use crate::mem::{Host, Region, Space};
use crate::ring::{Slot, SplitRing};

/// Octets of the ring: 20 ms of 10 Gb/s, and many of a receiver's batches.
const OCTETS: usize = 32 << 20;
/// Packets begin at a multiple of this, as vectors and the GPU like it.
const ALIGN: usize = 64;

/// Copies, freed in the order in which they were made. `M` is the space of the packets and of their copies.
pub struct Copies<M: Space> {
    ring: SplitRing<M>,
    read: Read<M>,
    /// Octets used and freed so far; the ring begins anew at each multiple of its length.
    end: u64,
    freed: u64,
}

/// Copies a packet's octets, as many as there is room for; the CPU can read this space.
type Read<M> = fn(&SplitRing<M>, &Slot, &mut [u8]) -> Option<()>;

impl Copies<Host> {
    /// Room for copies.
    ///
    /// # Errors
    /// No memory.
    pub fn new() -> Result<Self> {
        Self::of(OCTETS)
    }

    /// Room for so many octets.
    pub fn of(octets: usize) -> Result<Self> {
        Ok(Copies { ring: SplitRing::whole(Region::host(octets)?), read, end: 0, freed: 0 })
    }
}

fn read(ring: &SplitRing<Host>, slot: &Slot, to: &mut [u8]) -> Option<()> {
    let octets = ring.octets(slot, 0, slot.octets)?;
    let pieces = octets.first.iter().take(octets.first_len).chain(octets.rest.iter().take(octets.rest_len));
    to.iter_mut().zip(pieces).for_each(|(to, octet)| *to = *octet);
    Some(())
}

/// Octets that a packet takes.
fn room(slot: &Slot) -> usize {
    usize::from(slot.octets).next_multiple_of(ALIGN)
}

impl<M: Space> Copies<M> {
    /// Where they lie.
    pub const fn ring(&self) -> &SplitRing<M> {
        &self.ring
    }
    /// What was copied up to now is freed by [`Copies::free_to`] with this.
    pub const fn end(&self) -> u64 {
        self.end
    }
    /// What was copied before is not needed any more.
    pub fn free_to(&mut self, end: u64) {
        self.freed = end;
    }
    /// Whether all of these can be copied now.
    pub fn have_room(&self, slots: &[Slot]) -> bool {
        // One at most does not fit before the end of the ring.
        let wasted = slots.iter().map(room).max().unwrap_or(0);
        let needed = slots.iter().map(room).sum::<usize>() + wasted;
        needed as u64 + (self.end - self.freed) <= self.ring.head_plane().len() as u64
    }
    /// A copy of a packet; none when it was overwritten meanwhile. There is room for it.
    pub fn copy(&mut self, from: &SplitRing<M>, slot: &Slot) -> Option<(Slot, &mut [u8])> {
        let (room, length) = (room(slot), self.ring.head_plane().len());
        let mut at = (self.end % length as u64) as usize;
        if at + room > length {
            self.end += (length - at) as u64;
            at = 0;
        }
        self.end += room as u64;
        let mark = from.laps().map(|laps| (laps, laps.mark(slot)));
        let octets = self.ring.head_plane_mut().as_mut_slice().get_mut(at..at + usize::from(slot.octets))?;
        (self.read)(from, slot, octets)?;
        if mark.is_some_and(|(laps, mark)| !laps.holds(&mark)) {
            return None;
        }
        Some((Slot { head_at: at as u32, body_at: 0, head: slot.octets, ..*slot }, octets))
    }
}
