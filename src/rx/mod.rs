//! Receivers: from a network or a capture into a ring of slots.

mod card;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod fault;
pub mod host;
pub mod link;
pub mod memory;
pub mod pcap;
#[cfg(feature = "bypass")]
mod planes;
#[cfg(feature = "cuda")]
pub mod registered;
pub mod renewed;
#[cfg(feature = "rivermax")]
pub mod rivermax;
pub mod socket;
pub mod survey;
pub mod tap;
#[cfg(feature = "verbs")]
pub mod verbs;
pub mod wait;
mod words;
pub mod xdp;

#[cfg(feature = "dpdk")]
pub use dpdk::Dpdk;
pub use fault::{Fault, FaultPlan};
pub use memory::Memory;
pub use pcap::{Pace, Pcap};
#[cfg(feature = "bypass")]
pub use planes::Planes;
#[cfg(feature = "cuda")]
pub use registered::Registered;
pub use renewed::Renewed;
#[cfg(feature = "rivermax")]
pub use rivermax::Rivermax;
pub use socket::Socket;
pub use tap::Tap;
#[cfg(feature = "verbs")]
pub use verbs::Verbs;
pub use wait::Wait;
pub use xdp::Xdp;

use crate::error::Result;
use crate::event::Event;
use crate::fault::FaultCounters;
use crate::mem::Space;
use crate::ring::{Lease, SplitRing};
use crate::sdp::Leg;
use crate::stats::RxCounters;
use crate::time::Tai;
use crate::timing::Source;
use std::fmt;
use std::time::Duration;

/// What every backend does.
pub trait Receiver: Send {
    /// Where the body plane of its ring lies.
    type Mem: Space;
    /// The ring that leases point into. One that a NIC overwrites in time, whatever is leased, says so
    /// ([`SplitRing::overwritten_in_time`]); whoever reads its packets checks afterwards what they were.
    fn ring(&self) -> &SplitRing<Self::Mem>;
    /// Takes what has arrived, at most one batch, and never waits: an empty lease means "nothing now".
    ///
    /// # Errors
    /// [`RxError::End`] when nothing will come any more; [`RxError::Failed`] when the backend is broken.
    fn poll(&mut self) -> std::result::Result<Lease, RxError>;
    /// Gives a lease back, empty or not. Those with packets go back in the order in which they were taken; an empty one
    /// may go back at once.
    fn release(&mut self, lease: Lease);
    /// What it is and can do.
    fn caps(&self) -> &Caps;
    /// Begins to receive a leg.
    fn join(&mut self, leg: u8, what: &Leg) -> Result<()>;
    /// Begins to receive every leg of a flow.
    ///
    /// # Errors
    /// As of [`Receiver::join`], for the first leg that cannot be received.
    fn join_all(&mut self, legs: &[Leg]) -> Result<()> {
        for (number, leg) in legs.iter().enumerate() {
            let number = u8::try_from(number).unwrap_or(u8::MAX);
            self.join(number, leg)?;
        }
        Ok(())
    }
    /// What it has counted so far.
    fn counters(&self) -> RxCounters;
    /// Packets that there was no room for, of [`RxCounters::kernel_dropped`], as far as they are known to be of this leg; all of
    /// them where that is not known.
    fn dropped(&self, leg: u8) -> u64 {
        let _ = leg;
        self.counters().kernel_dropped
    }
    /// Faults that were done on purpose so far, by leg; none where there is no plan.
    fn faults(&self) -> &[FaultCounters] {
        &[]
    }
    /// Nothing will be polled any more: finishes what it writes, and adds what is worth telling to `remarks`.
    ///
    /// # Errors
    /// What it writes could not be finished.
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        let _ = remarks;
        Ok(())
    }
    /// Adds to `events` what has happened to its legs since it was asked before.
    fn take_events(&mut self, events: &mut Vec<Event>) {
        let _ = events;
    }
    /// The clock that arrivals are stamped with, now; none where arrivals are those of a recording.
    fn now(&self) -> Option<Tai> {
        None
    }
    /// Waits until there may be packets to poll, at most so long; `false`: it cannot be told, and the caller sleeps by
    /// itself.
    fn wait(&mut self, at_most: Duration) -> bool {
        let _ = at_most;
        false
    }
}

/// What a receiver is, for people and for sizing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Such as `socket` or `pcap`.
    pub backend: &'static str,
    /// How it works here and why not better, one fact a line, for the start block.
    pub notes: Vec<String>,
    /// Packets in a lease at most.
    pub batch: usize,
    /// Octets that the operating system buffers for it; 0 when that means nothing.
    pub buffer_octets: u64,
    /// Arrival times are those of a wall clock now (a capture's are not).
    pub live: bool,
    /// Who stamps the arrivals, which says what they can carry. Changes where stamps of a card cease to come, or come again.
    pub stamps: Source,
}

/// Why a poll brought nothing.
#[derive(Debug)]
pub enum RxError {
    /// End of the capture.
    End,
    /// The backend failed.
    Failed(crate::Error),
    /// The interface of the last leg has gone: when it is back, the same receiver can be opened anew ([`Renewed`]).
    Gone(crate::Error),
}

impl fmt::Display for RxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RxError::End => f.write_str("end of input"),
            RxError::Failed(e) | RxError::Gone(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for RxError {}

impl<R: Receiver + ?Sized> Receiver for Box<R> {
    type Mem = R::Mem;
    fn ring(&self) -> &SplitRing<Self::Mem> {
        (**self).ring()
    }
    fn poll(&mut self) -> std::result::Result<Lease, RxError> {
        (**self).poll()
    }
    fn release(&mut self, lease: Lease) {
        (**self).release(lease);
    }
    fn caps(&self) -> &Caps {
        (**self).caps()
    }
    fn join(&mut self, leg: u8, what: &Leg) -> Result<()> {
        (**self).join(leg, what)
    }
    fn counters(&self) -> RxCounters {
        (**self).counters()
    }
    fn dropped(&self, leg: u8) -> u64 {
        (**self).dropped(leg)
    }
    fn faults(&self) -> &[FaultCounters] {
        (**self).faults()
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        (**self).finish(remarks)
    }
    fn take_events(&mut self, events: &mut Vec<Event>) {
        (**self).take_events(events);
    }
    fn now(&self) -> Option<Tai> {
        (**self).now()
    }
    fn wait(&mut self, at_most: Duration) -> bool {
        (**self).wait(at_most)
    }
}
