//! A network card that writes packets into a ring and goes round it, whatever is leased: headers in the head plane, the
//! rest in the body plane.
#![allow(unsafe_code, dead_code)]

use crate::support::Sent;
use gdmedia::mem::{Host, Region};
use gdmedia::ring::{Geometry, SLACK, Slot, SplitRing};
use gdmedia::rx::{Memory, RxError};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// Octets of a packet that go to the head plane: RTP, the extended sequence number and one SRD header.
pub const CUT: usize = 20;
/// Packets of a lease.
pub const BATCH: usize = 8;

pub struct Nic {
    head: *mut u8,
    body: *mut u8,
    geometry: Geometry,
    sent: Vec<Sent>,
    /// Packets that were written, and slots of those that nobody has taken.
    pub written: usize,
    untaken: VecDeque<Slot>,
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
    let (head, body) = (CUT as u32, payload as u32);
    let geometry = Geometry { slots, rings: 1, head, body, margin, in_sequence };
    let plane = |stride: u32| Region::host((slots * stride) as usize + SLACK).unwrap();
    let (mut heads, mut bodies) = (plane(head), plane(body));
    let (head, body) = (heads.as_mut_ptr(), bodies.as_mut_ptr());
    let ring = SplitRing::split(heads, bodies).overwritten_in_time(geometry).unwrap();
    let nic = Nic { head, body, geometry, sent, written: 0, untaken: VecDeque::new() };
    (Shared(Arc::new(Mutex::new(nic))), ring)
}

/// A receiver of that ring; the card writes a batch when all that it wrote was taken.
pub fn receiver(nic: &Shared, ring: SplitRing<Host>, clock: Option<fn() -> gdmedia::time::Tai>) -> Memory<Host> {
    let nic = nic.clone();
    let fill = move |_: &mut SplitRing<Host>, _, slots: &mut Vec<Slot>| {
        let mut nic = nic.lock();
        if nic.untaken.is_empty() {
            nic.write(BATCH);
        }
        let count = nic.untaken.len().min(BATCH);
        slots.extend(nic.untaken.drain(..count));
        if slots.is_empty() { Err(RxError::End) } else { Ok(true) }
    };
    // More leases than anybody holds.
    Memory::new(ring, 256, BATCH, clock, Box::new(fill))
}

impl Nic {
    /// The next packets come in.
    pub fn write(&mut self, count: usize) {
        let end = (self.written + count).min(self.sent.len());
        for n in self.written..end {
            let packet = &self.sent[n];
            let at = if self.geometry.in_sequence { packet.sequence() } else { n as u32 } % self.geometry.slots;
            let (head_at, body_at) = (at * self.geometry.head, at * self.geometry.body);
            let (head, body) = packet.octets.split_at(CUT);
            assert!(body.len() <= self.geometry.body as usize);
            // SAFETY: slots lie in the planes, and hold so many octets.
            unsafe {
                self.body.add(body_at as usize).copy_from_nonoverlapping(body.as_ptr(), body.len());
                self.head.add(head_at as usize).copy_from_nonoverlapping(head.as_ptr(), head.len());
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
