//! What has been started and not been seen to end: tickets, and the memory that descriptions lie in.
//!
//! Behind each batch the GPU writes its ticket to memory of the host, where the receiving thread looks without asking
//! the driver: a driver that many threads ask all the time is slow for all of them. Other streams wait for that number as
//! well, so that a batch costs two calls, its start and the number.
#![allow(unsafe_code)]

use crate::error::{Error, Kind, Result};
use crate::frame::Fence;
use crate::gpu::{Event, EventKind, Fault, Gpu, Stream};
use crate::kernel::Ticket;
use crate::mem::{Pinned, Region};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::time::{Duration, Instant};

/// Events that bring streams into order; those that nobody holds any more are used again.
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
        // More are held at once than ever before.
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
    /// The ticket of the batch that each describes.
    tickets: Vec<u64>,
}

impl Areas {
    fn new(gpu: &Arc<Gpu>, area: usize, count: usize) -> Result<Self> {
        let memory = Region::pinned(gpu, area * count)?;
        Ok(Areas { memory, area, count, current: 0, tickets: vec![0; count] })
    }
    /// The area that is being filled, as values of a type of which any octets are one.
    #[inline]
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

/// Looks at the memory of the host in vain before the driver is asked whether the GPU still lives.
const PATIENCE: u32 = 1 << 14;

/// Work that was started.
#[derive(Debug)]
pub struct Flight {
    events: Events,
    issued: u64,
    done: Arc<Flag>,
    in_vain: u32,
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
        let all = (0..8).map(|_| Event::new(gpu, EventKind::Order).map(Arc::new));
        Ok(Flight {
            events: Events { gpu: gpu.clone(), all: all.collect::<std::result::Result<_, _>>()?, next: 0 },
            issued: 0,
            done: Arc::new(Flag { memory: Region::pinned(gpu, 64)?, gpu: gpu.clone() }),
            in_vain: 0,
            areas: Areas::new(gpu, area, count)?,
            waited: 0,
        })
    }

    /// Tries what every batch and every fence needs, so that a system without it is known before the first packet.
    ///
    /// # Errors
    /// Streams cannot write numbers to memory of the host, or not wait for them.
    pub fn prove(&self, stream: &Stream) -> Result<()> {
        let at = self.done.memory.address();
        // SAFETY: as in `mark`; the number is the one that stands there.
        let tried = unsafe { stream.write(at, self.issued).and_then(|()| stream.wait_value(at, self.issued)) };
        tried.and_then(|()| stream.synchronize()).map_err(|fault| {
            Error::new(Kind::Unavailable, "streams of this GPU cannot tell the CPU by memory what they have done")
                .because(fault)
                .cure("run on a Linux without virtual GPUs, or on the CPU (--gpu off)")
        })
    }

    /// The work that `stream` was given last, which the current area describes, gets a ticket.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn mark(&mut self, stream: &Stream) -> std::result::Result<Ticket, Fault> {
        self.issued += 1;
        // SAFETY: the memory is aligned, and lives as long as this, which outlives the stream's work (`CudaKernel::drop`).
        unsafe { stream.write(self.done.memory.address(), self.issued) }?;
        self.areas.tickets[self.areas.current] = self.issued;
        self.areas.current = (self.areas.current + 1) % self.areas.count;
        // Seldom: there are more areas than batches that a ring can hold.
        let next = Ticket(self.areas.tickets[self.areas.current]);
        if !self.is_done(next, stream)? {
            self.waited += 1;
            while !self.is_done(next, stream)? {
                std::hint::spin_loop();
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
    pub fn fence(&self) -> Arc<dyn Fence> {
        Arc::new(Reached { flag: self.done.clone(), ticket: self.issued })
    }

    /// Has the work been done?
    ///
    /// # Errors
    /// Work of `stream` failed, or the GPU is lost.
    #[inline]
    pub fn is_done(&mut self, ticket: Ticket, stream: &Stream) -> std::result::Result<bool, Fault> {
        if ticket.0 <= self.done.seen() {
            self.in_vain = 0;
            return Ok(true);
        }
        self.in_vain += 1;
        if self.in_vain >= PATIENCE {
            self.in_vain = 0;
            stream.is_done()?;
        }
        Ok(false)
    }
}

/// Where the GPU writes the ticket of what it has done.
#[derive(Debug)]
struct Flag {
    memory: Region<Pinned>,
    gpu: Arc<Gpu>,
}

impl Flag {
    #[inline]
    fn seen(&self) -> u64 {
        // SAFETY: eight aligned octets of a region that this owns; the GPU writes them, nobody reads them otherwise.
        unsafe { AtomicU64::from_ptr(self.memory.as_ptr().cast_mut().cast()) }.load(Acquire)
    }
}

/// The GPU has done a ticket, and all before it.
#[derive(Debug)]
struct Reached {
    flag: Arc<Flag>,
    ticket: u64,
}

/// How long a CPU looks without a pause for what the GPU does: longer than a frame's last batch takes.
const SPIN: Duration = Duration::from_micros(100);

impl Fence for Reached {
    fn is_done(&self) -> Result<bool> {
        if self.flag.seen() >= self.ticket {
            return Ok(true);
        }
        // Asks the driver, which knows of faults.
        if self.flag.gpu.is_lost() {
            self.flag.gpu.memory()?;
            return Err(Error::new(Kind::Unavailable, "the GPU was lost before the frame was finished"));
        }
        Ok(false)
    }

    fn wait(&self) -> Result<()> {
        let begun = Instant::now();
        while !self.is_done()? {
            if begun.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(SPIN);
                // A fault that nobody has met yet.
                self.flag.gpu.memory()?;
            }
        }
        Ok(())
    }

    fn queue(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the memory lives as long as this, and whoever queues holds the frame, and so this, until the work is done.
        Ok(unsafe { stream.wait_value(self.flag.memory.address(), self.ticket) }?)
    }
}
