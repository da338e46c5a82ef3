//! Received packets in memory, and the right to read them.

mod laps;

pub use laps::{Geometry, Laps, Mark, Reader};

use crate::error::Result;
use crate::mem::{CpuAccess, Region, Space};
use crate::time::Tai;
use std::sync::Arc;

/// One packet's place in a ring. Octets count from its RTP header: octet `n` lies in the head plane when `n < head`,
/// else in the body plane, at `body_at + n - head`. Rings that do not split have all octets in the head plane.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// First octet in the head plane.
    pub head_at: u32,
    /// Octet `head` in the body plane.
    pub body_at: u32,
    /// Octets in the head plane; always enough for every header.
    pub head: u16,
    /// Octets of the packet that are here.
    pub octets: u16,
    /// Octets of the packet as it was on the wire: more than `octets` where a capture's snap length cut it.
    /// Headers are checked against this one, octets are placed from the other.
    pub wire_octets: u16,
    /// The leg it came by.
    pub leg: u8,
    /// When it came.
    pub arrival: Tai,
}

/// Octets of a packet: in one piece, or in two where they cross from the head plane to the body plane.
#[derive(Clone, Copy, Debug)]
pub struct Octets<'a> {
    /// The first piece; may be followed by up to [`SLACK`] further readable octets of no meaning.
    pub first: &'a [u8],
    /// How many octets of `first` are meant.
    pub first_len: usize,
    /// The second piece, empty when there is none.
    pub rest: &'a [u8],
    /// How many octets of `rest` are meant.
    pub rest_len: usize,
}

/// Readable octets behind a run, where the plane has them, so that a kernel may load whole vectors.
pub const SLACK: usize = 64;

/// The two planes of a ring.
#[derive(Debug)]
pub struct SplitRing<M: Space> {
    head: Region<M::Head>,
    body: Option<Region<M>>,
    laps: Option<Arc<Laps>>,
}

impl<M: Space> SplitRing<M> {
    /// A ring that does not split: packets lie whole in `head`.
    pub fn whole(head: Region<M::Head>) -> Self {
        SplitRing { head, body: None, laps: None }
    }
    /// A ring that splits.
    pub fn split(head: Region<M::Head>, body: Region<M>) -> Self {
        SplitRing { head, body: Some(body), laps: None }
    }
    /// The ring is overwritten in time, whatever is leased: slots follow one another as `geometry` says, and whoever reads
    /// them asks afterwards whether they still held what they held ([`Laps`]). From now on its memory is written by whoever
    /// overwrites it, and not by way of this ring.
    ///
    /// # Errors
    /// The planes have not so many slots, or the margin is no part of them.
    pub fn overwritten_in_time(self, geometry: Geometry) -> Result<Self> {
        let laps = Laps::new(&self.head, self.body.as_ref().map(Region::len), geometry)?;
        Ok(SplitRing { laps: Some(Arc::new(laps)), ..self })
    }
    /// The same for another ring over the memory of one that is.
    #[must_use]
    pub fn with_laps(self, laps: Option<Arc<Laps>>) -> Self {
        SplitRing { laps, ..self }
    }
    /// What tells whether slots were overwritten; none where that happens only after a lease was given back.
    pub const fn laps(&self) -> Option<&Arc<Laps>> {
        self.laps.as_ref()
    }
    /// The octets of a packet that the CPU can read, from the RTP header on; all headers are among them.
    /// Empty when the slot does not lie in the ring.
    #[inline]
    pub fn head(&self, slot: &Slot) -> &[u8] {
        let at = slot.head_at as usize;
        self.head.as_slice().get(at..at + usize::from(slot.head)).unwrap_or_default()
    }
    /// The head plane, for the receiver that fills it.
    pub fn head_plane_mut(&mut self) -> &mut Region<M::Head> {
        &mut self.head
    }
    /// The head plane.
    pub fn head_plane(&self) -> &Region<M::Head> {
        &self.head
    }
    /// Octets of its planes.
    pub fn size(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, Region::len)
    }
    /// The body plane, where there is one.
    pub fn body_plane(&self) -> Option<&Region<M>> {
        self.body.as_ref()
    }
    /// The body plane, for the receiver that fills it.
    pub fn body_plane_mut(&mut self) -> Option<&mut Region<M>> {
        self.body.as_mut()
    }
}

impl<M: CpuAccess> SplitRing<M> {
    /// Octets `from .. from + len` of a packet; `None` when the packet has not so many.
    #[inline]
    pub fn octets(&self, slot: &Slot, from: u16, len: u16) -> Option<Octets<'_>> {
        let (from, len, head) = (usize::from(from), usize::from(len), usize::from(slot.head));
        let end = from + len;
        if end > usize::from(slot.octets) {
            return None;
        }
        fn piece(plane: &[u8], at: usize, len: usize) -> Option<&[u8]> {
            let end = at.checked_add(len)?;
            if end > plane.len() {
                return None;
            }
            Some(&plane[at..(end + SLACK).min(plane.len())])
        }
        let first_len = end.min(head).saturating_sub(from);
        let rest_len = len - first_len;
        let empty: &[u8] = &[];
        let first =
            if first_len == 0 { empty } else { piece(self.head.as_slice(), slot.head_at as usize + from, first_len)? };
        let rest = if rest_len == 0 {
            empty
        } else {
            piece(self.body.as_ref()?.as_slice(), slot.body_at as usize + from.max(head) - head, rest_len)?
        };
        if first_len == 0 {
            return Some(Octets { first: rest, first_len: rest_len, rest: empty, rest_len: 0 });
        }
        Some(Octets { first, first_len, rest, rest_len })
    }
}

/// The right to read some slots. Memory behind them is not reused before the lease is given back to the receiver
/// that made it; a lease that is dropped instead keeps its memory from being reused for good. Rings that are overwritten
/// in time ([`SplitRing::laps`]) are the exception.
#[must_use = "a lease must be given back with Receiver::release"]
#[derive(Debug)]
pub struct Lease {
    pub(crate) slots: Vec<Slot>,
    pub(crate) token: u32,
}

impl Lease {
    /// A lease; `token` means something to the receiver that makes it.
    pub(crate) fn new(slots: Vec<Slot>, token: u32) -> Self {
        Lease { slots, token }
    }
    /// The packets, in the order of their arrival.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }
    /// No packet.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}
