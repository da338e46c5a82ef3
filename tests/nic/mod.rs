//! A network card that writes packets into a ring and goes round it, whatever is leased: headers in the head plane, the
//! rest in the body plane.
#![allow(unsafe_code, dead_code)]

use crate::support::Sent;
use gdmedia::mem::{Host, Region, Space};
use gdmedia::ring::{Geometry, SLACK, Slot, SplitRing};
use gdmedia::rx::{Memory, RxError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// Octets of a packet that go to the head plane: RTP, the extended sequence number and one SRD header.
pub const CUT: usize = 20;
/// Packets of a lease.
pub const BATCH: usize = 8;

/// Writes octets at a place of the body plane.
type Write = Box<dyn FnMut(*mut u8, &[u8]) + Send>;

pub struct Nic {
    head: *mut u8,
    body: *mut u8,
    write_body: Write,
    geometry: Geometry,
    sent: Vec<Sent>,
    /// Packets that were written, and slots of those that nobody has taken.
    pub written: usize,
    untaken: VecDeque<Slot>,
    /// So many packets more are written when so many have been.
    pub ahead: Option<(usize, usize)>,
    /// So many packets that nobody is told of have been begun: of one there is the header, of the next the payload.
    pub begun: usize,
}

// SAFETY: the planes belong to the ring, which the tests keep as long as the card; nobody else writes there.
unsafe impl Send for Nic {}

#[derive(Clone)]
pub struct Shared(Arc<Mutex<Nic>>);

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Nic> {
        self.0.lock().unwrap()
    }
}

/// A card that is going to receive `sent`, and its ring. `payload` is what the body plane has for a packet.
pub fn nic(sent: Vec<Sent>, slots: u32, margin: u32, in_sequence: bool, payload: usize) -> (Shared, SplitRing<Host>) {
    let geometry = Geometry { slots, rings: 1, head: CUT as u32, body: payload as u32, margin, in_sequence };
    let [heads, bodies] = planes(&geometry).map(|octets| Region::host(octets).unwrap());
    // SAFETY: `write` asks for places in the plane.
    let write = |to: *mut u8, octets: &[u8]| unsafe { to.copy_from_nonoverlapping(octets.as_ptr(), octets.len()) };
    over(sent, geometry, heads, bodies, Box::new(write))
}

/// Octets of the planes.
pub fn planes(geometry: &Geometry) -> [usize; 2] {
    [geometry.head, geometry.body].map(|stride| (geometry.slots * stride) as usize + SLACK)
}

/// The same over planes in any memory.
pub fn over<M: Space>(
    sent: Vec<Sent>,
    geometry: Geometry,
    mut heads: Region<M::Head>,
    mut bodies: Region<M>,
    write_body: Write,
) -> (Shared, SplitRing<M>) {
    let (head, body) = (heads.as_mut_ptr(), bodies.as_mut_ptr());
    let ring = SplitRing::split(heads, bodies).overwritten_in_time(geometry).unwrap();
    let (written, untaken) = (0, VecDeque::new());
    let nic = Nic { head, body, write_body, geometry, sent, written, untaken, ahead: None, begun: 0 };
    (Shared(Arc::new(Mutex::new(nic))), ring)
}

/// A receiver of that ring; the card writes a batch when all that it wrote was taken.
pub fn receiver<M: Space>(nic: &Shared, ring: SplitRing<M>) -> Memory<M> {
    let nic = nic.clone();
    let fill = move |_: &mut SplitRing<M>, _, slots: &mut Vec<Slot>| {
        let mut nic = nic.lock();
        if nic.untaken.is_empty() {
            nic.write(BATCH);
        }
        if let Some((_, count)) = nic.ahead.filter(|(at, _)| nic.written >= *at) {
            nic.ahead = None;
            nic.write(count);
        }
        let count = nic.untaken.len().min(BATCH);
        slots.extend(nic.untaken.drain(..count));
        if slots.is_empty() { Err(RxError::End) } else { Ok(true) }
    };
    // More leases than anybody holds.
    Memory::new(ring, 256, BATCH, None, Box::new(fill))
}

impl Nic {
    /// The next packets come in.
    pub fn write(&mut self, count: usize) {
        let end = (self.written + count).min(self.sent.len());
        for n in self.written..(end + self.begun).min(self.sent.len()) {
            let packet = &self.sent[n];
            let at = if self.geometry.in_sequence { packet.sequence() } else { n as u32 } % self.geometry.slots;
            let (head_at, body_at) = (at * self.geometry.head, at * self.geometry.body);
            let (head, body) = packet.octets.split_at(CUT);
            assert!(body.len() <= self.geometry.body as usize);
            // SAFETY: slots lie in the planes, and hold so many octets.
            unsafe {
                if n < end || n.is_multiple_of(2) {
                    (self.write_body)(self.body.add(body_at as usize), body);
                }
                if n < end || !n.is_multiple_of(2) {
                    self.head.add(head_at as usize).copy_from_nonoverlapping(head.as_ptr(), head.len());
                }
            }
            if n >= end {
                continue;
            }
            let octets = packet.octets.len() as u16;
            let (head, arrival) = (CUT as u16, packet.arrival);
            self.untaken.push_back(Slot { head_at, body_at, head, octets, wire_octets: octets, leg: 0, arrival });
        }
        self.written = end;
    }
    /// Octets of the body plane, as they are now.
    pub fn octets(&self, at: usize, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        assert!(at + len <= (self.geometry.slots * self.geometry.body) as usize);
        // SAFETY: in the plane.
        unsafe { octets.as_mut_ptr().copy_from_nonoverlapping(self.body.add(at), len) };
        octets
    }
}
