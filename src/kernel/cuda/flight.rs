//! What has been started and not been seen to end: tickets, events, and the memory that descriptions lie in.
#![allow(unsafe_code)]

use crate::error::Result;
use crate::frame::Fence;
use crate::gpu::{Event, EventKind, Fault, Gpu, Stream};
use crate::kernel::Ticket;
use crate::mem::{Pinned, Region};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events that nobody waits for any more are used again.
#[derive(Debug)]
struct Events {
    gpu: Arc<Gpu>,
    all: Vec<Arc<Event>>,
    next: usize,
}

impl Events {
    fn take(&mut self) -> std::result::Result<Arc<Event>, Fault> {
        for _ in 0..self.all.len() {
            self.next = (self.next + 1) % self.all.len();
            if Arc::strong_count(&self.all[self.next]) == 1 {
                return Ok(self.all[self.next].clone());
            }
        }
        // More frames are held than ever before.
        let event = Arc::new(Event::new(&self.gpu, EventKind::Order)?);
        self.all.push(event.clone());
        Ok(event)
    }
}

/// Pinned memory in equal areas, one for the descriptions of each batch.
#[derive(Debug)]
pub struct Areas {
    memory: Region<Pinned>,
    area: usize,
    count: usize,
    current: usize,
    busy: Vec<bool>,
}

impl Areas {
    fn new(gpu: &Arc<Gpu>, area: usize, count: usize) -> Result<Self> {
        let memory = Region::pinned(gpu, area * count)?;
        Ok(Areas { memory, area, count, current: 0, busy: vec![false; count] })
    }
    /// The area that is being filled, as values of a type of which any octets are one.
    pub fn current<T: Plain>(&mut self) -> &mut [T] {
        let start = self.current * self.area;
        let octets = &mut self.memory.as_mut_slice()[start..start + self.area];
        // SAFETY: any octets are a `T`; the areas begin at multiples of 64.
        unsafe { octets.align_to_mut().1 }
    }
    /// Where the GPU finds it.
    pub fn address(&self) -> u64 {
        self.memory.address() + (self.current * self.area) as u64
    }
    /// Its offset in the memory of all areas.
    pub const fn offset(&self) -> usize {
        self.current * self.area
    }
    /// Octets of all.
    pub fn octets(&self) -> usize {
        self.memory.len()
    }
}

/// A type of which any octets are a value.
///
/// # Safety
/// They are, and it is aligned to 64 octets at most.
pub unsafe trait Plain {}
// SAFETY: integers only.
unsafe impl Plain for super::abi::Span {}
// SAFETY: integers only, without padding (asserted in `abi`).
unsafe impl Plain for super::abi::Piece {}

/// Work that was started, oldest first.
#[derive(Debug)]
pub struct Flight {
    events: Events,
    started: VecDeque<(u64, Arc<Event>, Option<usize>)>,
    issued: u64,
    done: u64,
    last: Option<Arc<Event>>,
    /// Memory for descriptions.
    pub areas: Areas,
    /// How often all areas were busy: the GPU is slower than the stream.
    pub waited: u64,
}

impl Flight {
    /// `count` areas of `area` octets, a multiple of 64.
    ///
    /// # Errors
    /// No memory.
    pub fn new(gpu: &Arc<Gpu>, area: usize, count: usize) -> Result<Self> {
        let all =
            (0..32).map(|_| Event::new(gpu, EventKind::Order).map(Arc::new)).collect::<std::result::Result<_, _>>()?;
        Ok(Flight {
            events: Events { gpu: gpu.clone(), all, next: 0 },
            started: VecDeque::with_capacity(count + 64),
            issued: 0,
            done: 0,
            last: None,
            areas: Areas::new(gpu, area, count)?,
            waited: 0,
        })
    }

    /// The work that `stream` was given last gets a ticket; with it goes the current area when it was used.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn mark(&mut self, stream: &Stream, used_area: bool) -> std::result::Result<Ticket, Fault> {
        let event = self.events.take()?;
        stream.record(&event)?;
        self.issued += 1;
        let area = used_area.then_some(self.areas.current);
        self.started.push_back((self.issued, event.clone(), area));
        self.last = Some(event);
        if used_area {
            self.areas.busy[self.areas.current] = true;
            self.areas.current = (self.areas.current + 1) % self.areas.count;
            // Seldom: there are more areas than batches that a ring can hold.
            let mut waited = false;
            while self.areas.busy[self.areas.current] {
                if let Some((_, event, _)) = self.started.front() {
                    if !std::mem::replace(&mut waited, true) && !event.is_done()? {
                        self.waited += 1;
                    }
                    event.wait()?;
                }
                self.look()?;
            }
        }
        Ok(Ticket(self.issued))
    }

    /// Another event for the order of two streams.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn event(&mut self) -> std::result::Result<Arc<Event>, Fault> {
        self.events.take()
    }

    /// The ticket of the last work.
    pub const fn last(&self) -> Ticket {
        Ticket(self.issued)
    }
    /// The ticket that the next work will have.
    pub const fn next(&self) -> Ticket {
        Ticket(self.issued + 1)
    }
    /// Done when the last work is.
    pub fn fence(&self) -> Option<Arc<dyn Fence>> {
        self.last.clone().map(|event| event as Arc<dyn Fence>)
    }

    /// # Errors
    /// The work failed, or the GPU is lost.
    #[inline]
    pub fn is_done(&mut self, ticket: Ticket) -> std::result::Result<bool, Fault> {
        if ticket.0 > self.done {
            self.look()?;
        }
        Ok(ticket.0 <= self.done)
    }

    fn look(&mut self) -> std::result::Result<(), Fault> {
        while let Some((number, event, area)) = self.started.front() {
            if !event.is_done()? {
                break;
            }
            self.done = *number;
            if let Some(area) = area {
                self.areas.busy[*area] = false;
            }
            self.started.pop_front();
        }
        Ok(())
    }
}
