//! A receiver of the CPU whose ring the GPU reaches as well: its memory is registered with CUDA.
#![allow(unsafe_code)]

use super::{Caps, Receiver, RxError};
use crate::error::{Error, Kind, Result};
use crate::event::Event;
use crate::fault::FaultCounters;
use crate::gpu::Gpu;
use crate::mem::{Host, Pinned, Region};
use crate::ring::{Lease, SplitRing};
use crate::sdp::Leg;
use crate::stats::RxCounters;
use crate::time::Tai;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

/// Any receiver that fills memory of the host (sockets, captures, what faults and taps wrap), as one for the GPU.
pub struct Registered<R> {
    // Ends before `inner`, whose memory it is: fields are dropped in this order.
    ring: SplitRing<Pinned>,
    inner: R,
}

impl<R: Receiver<Mem = Host>> Registered<R> {
    /// Registers the ring.
    ///
    /// # Errors
    /// The system locks no more memory, or the GPU cannot reach it.
    pub fn new(inner: R, gpu: &Arc<Gpu>) -> std::result::Result<Self, (Error, R)> {
        match register(inner.ring(), gpu) {
            Ok(ring) => Ok(Registered { ring, inner }),
            Err(error) => Err((error, inner)),
        }
    }

    /// The receiver as it was. No work of the GPU may read its ring any more.
    pub fn into_inner(self) -> R {
        let Registered { ring, inner } = self;
        drop(ring);
        inner
    }
}

fn register(ring: &SplitRing<Host>, gpu: &Arc<Gpu>) -> Result<SplitRing<Pinned>> {
    if ring.body_plane().is_some() {
        return Err(Error::new(Kind::Internal, "a ring of two planes in host memory cannot be registered"));
    }
    let plane = ring.head_plane();
    let start = NonNull::from(plane.as_slice()).cast::<u8>();
    // SAFETY: `inner` owns the memory and outlives the registration (the order of the fields, and of `into_inner`). It is
    // filled by `inner` alone, in `poll`, which borrows this receiver exclusively; what is read through the registration
    // belongs to a lease, which `inner` does not write to.
    let plane = unsafe { Region::register(gpu, start, plane.len(), Box::new(())) }?;
    Ok(SplitRing::whole(plane).with_laps(ring.laps().cloned()))
}

impl<R: Receiver<Mem = Host>> Receiver for Registered<R> {
    type Mem = Pinned;

    fn ring(&self) -> &SplitRing<Pinned> {
        &self.ring
    }
    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        self.inner.poll()
    }
    fn release(&mut self, lease: Lease) {
        self.inner.release(lease);
    }
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }
    fn join(&mut self, leg: u8, what: &Leg) -> Result<()> {
        self.inner.join(leg, what)
    }
    fn counters(&self) -> RxCounters {
        self.inner.counters()
    }
    fn dropped(&self, leg: u8) -> u64 {
        self.inner.dropped(leg)
    }
    fn faults(&self) -> &[FaultCounters] {
        self.inner.faults()
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        self.inner.finish(remarks)
    }
    fn take_events(&mut self, events: &mut Vec<Event>) {
        self.inner.take_events(events);
    }
    fn now(&self) -> Option<Tai> {
        self.inner.now()
    }
    fn wait(&mut self, at_most: Duration) -> bool {
        self.inner.wait(at_most)
    }
}
