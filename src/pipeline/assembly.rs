//! Everything behind the plan: frames are filled, mended, sealed and delivered.

use super::guard::{Closing, Guard, Read};
use super::inputs::Inputs;
use super::{Deliver, Incomplete};
use crate::error::{Error, Kind};
use crate::format::WireFormat;
use crate::frame::{Frame, FrameBuf, FramePool};
use crate::kernel::{Kernel, KernelError, Ticket};
use crate::mem::Space;
use crate::plan::{Fate, FrameEnd, FrameId, MAX_OPEN, Missing, Plan, Step};
use crate::ring::Slot;
use crate::rx::Receiver;
use crate::stats::FrameCounters;
use crate::time::{Alignment, MediaClock, Tai};
use std::collections::VecDeque;

/// Why a frame has no memory.
#[derive(Clone, Copy, Default)]
enum Without {
    /// The pipeline has to catch up.
    Shed,
    /// All of it is in use.
    NoMemory,
    /// It was taken away: the kernel cannot go on.
    #[default]
    Kernel,
}

/// A pipeline without its receiver and depacketiser.
pub(super) struct Assembly<F: Space, K> {
    pub kernel: K,
    pool: FramePool<F>,
    open: Vec<Option<FrameBuf<F>>>,
    /// Why those that are open and have no memory have none.
    without: Vec<Without>,
    /// Frames that open get no memory.
    pub shedding: bool,
    pub policy: Incomplete,
    pub clock: Option<MediaClock>,
    previous: Option<Frame<F>>,
    deliver: Deliver<F>,
    pub counters: FrameCounters,
    pub number: u64,
    pub last_ticket: Ticket,
    // Delivered frames whose work may still be running: ticket, number, last arrival.
    pub unfinished: VecDeque<(Ticket, u64, Tai)>,
    // Where the ring is overwritten in time.
    pub guard: Option<Guard<F>>,
    // The kernel cannot go on.
    pub broken: bool,
}

impl<F: Space, K> Assembly<F, K> {
    pub fn new(
        kernel: K,
        pool: FramePool<F>,
        policy: Incomplete,
        clock: Option<MediaClock>,
        deliver: Deliver<F>,
        guard: Option<Guard<F>>,
    ) -> Self {
        Assembly {
            kernel,
            pool,
            open: (0..MAX_OPEN).map(|_| None).collect(),
            without: (0..MAX_OPEN).map(|_| Without::default()).collect(),
            shedding: false,
            policy,
            clock,
            previous: None,
            deliver,
            counters: FrameCounters::default(),
            number: 0,
            last_ticket: Ticket::default(),
            unfinished: VecDeque::with_capacity(64),
            guard,
            broken: false,
        }
    }

    /// The format of its frames on the wire.
    pub fn wire(&self) -> &WireFormat {
        &self.pool.layout().wire
    }

    /// Frames, and octets of each.
    pub fn memory(&self) -> (usize, usize) {
        (self.pool.frames(), self.pool.layout().size)
    }

    pub fn is_done<M: Space>(&mut self, ticket: Ticket) -> Result<bool, Error>
    where
        K: Kernel<M, F>,
    {
        let done = self.kernel.done(ticket);
        self.judge(done)
    }

    /// Passes a kernel's result on, and remembers that it cannot go on.
    pub fn judge<T>(&mut self, result: Result<T, KernelError>) -> Result<T, Error> {
        self.broken |= result.is_err();
        result.map_err(|error| Error::new(Kind::Unavailable, "the kernel cannot go on").because(error))
    }

    /// `slots` are those of the receiver number `from`.
    pub fn execute<R: Receiver>(
        &mut self,
        plan: &Plan,
        inputs: &Inputs<R>,
        from: usize,
        slots: &[Slot],
    ) -> Result<(), Error>
    where
        K: Kernel<R::Mem, F>,
    {
        let ring = inputs.ring(from);
        let mut result = Ok(());
        for step in &plan.steps {
            match step {
                Step::Open(id) => {
                    let (frame, why) = match (self.broken, self.shedding) {
                        (true, _) => (None, Without::Kernel),
                        (false, true) => (None, Without::Shed),
                        (false, false) => (self.pool.take(), Without::NoMemory),
                    };
                    let at = usize::from(id.0);
                    if let (Some(place), Some(without)) = (self.open.get_mut(at), self.without.get_mut(at)) {
                        *without = if frame.is_some() { Without::Kernel } else { why };
                        *place = frame;
                    }
                    if let Some(guard) = &mut self.guard {
                        guard.open(*id);
                    }
                }
                Step::Place(id, range) => {
                    let Some(Some(frame)) = self.open.get_mut(usize::from(id.0)) else { continue };
                    let placements = plan.placements.get(range.start as usize..range.end as usize).unwrap_or_default();
                    let applied = self.kernel.apply(ring, slots, placements, frame);
                    if let Some(guard) = &mut self.guard {
                        guard.place(*id, placements);
                    }
                    match self.judge(applied) {
                        Ok(ticket) => self.last_ticket = ticket,
                        Err(error) => result = self.give_up(result, error),
                    }
                }
                Step::Close(id, end) => {
                    let frame = self.open.get_mut(usize::from(id.0)).and_then(Option::take);
                    let missing = plan.missing.get(end.missing.start as usize..end.missing.end as usize);
                    if let Err(error) = self.close(*id, frame, end, missing.unwrap_or_default(), inputs) {
                        result = self.give_up(result, error);
                    }
                }
            }
        }
        result
    }

    /// The kernel cannot go on. Frames that were being filled are given up; they are counted when they close.
    fn give_up(&mut self, result: Result<(), Error>, error: Error) -> Result<(), Error> {
        self.open.fill_with(|| None);
        result.and(Err(error))
    }

    fn close<R: Receiver>(
        &mut self,
        id: FrameId,
        mut frame: Option<FrameBuf<F>>,
        end: &FrameEnd,
        missing: &[Missing],
        inputs: &Inputs<R>,
    ) -> Result<(), Error>
    where
        K: Kernel<R::Mem, F>,
    {
        if end.fate == Fate::Acquiring {
            self.counters.acquiring += 1;
            if let Some(guard) = &mut self.guard {
                guard.give_up(id);
            }
            if let Some(frame) = frame {
                self.kernel.discard(frame);
            }
            return Ok(());
        }
        if frame.is_none() {
            self.counters.dropped += 1;
            match self.without.get(usize::from(id.0)) {
                Some(Without::Shed) => self.counters.shed += 1,
                Some(Without::NoMemory) => self.counters.no_memory += 1,
                Some(Without::Kernel) | None => {}
            }
        }
        let number = self.number;
        self.number += 1;
        let Some(guard) = &mut self.guard else {
            return self.conclude(number, frame, end, missing, false, inputs);
        };
        let closed = match &mut frame {
            Some(frame) => self.kernel.close(frame, end.fate == Fate::Complete, self.last_ticket),
            None => Ok(Ticket::default()),
        };
        guard.close(id, (number, frame), end, missing, *closed.as_ref().unwrap_or(&Ticket::default()));
        self.judge(closed.map(|_| ()))
    }

    /// The oldest frame that was closed and waits has been read.
    pub fn next_is_read<M: Space>(&mut self) -> Result<bool, Error>
    where
        K: Kernel<M, F>,
    {
        let Some(ticket) = self.guard.as_ref().and_then(Guard::next_ticket) else { return Ok(false) };
        self.is_done::<M>(ticket)
    }

    /// Checks what was read for it, and delivers it. `held` are leases that have not been checked.
    pub fn conclude_next<'a, R: Receiver>(
        &mut self,
        held: impl Iterator<Item = &'a Read>,
        inputs: &Inputs<R>,
    ) -> Result<(), Error>
    where
        K: Kernel<R::Mem, F>,
    {
        let Some(mut closing) = self.guard.as_mut().and_then(|guard| guard.next_checked(held)) else { return Ok(()) };
        if let Some(frame) = &mut closing.frame
            && (closing.is_torn && closing.in_ring && self.policy != Incomplete::Drop)
        {
            // A window that is none any more. The ring comes round while it is copied, too.
            let closed = self.kernel.close(frame, false, self.last_ticket);
            if let Some(guard) = &mut self.guard {
                guard.read_again(closing, *closed.as_ref().unwrap_or(&Ticket::default()));
            }
            return self.judge(closed.map(|_| ()));
        }
        if let Some(guard) = &mut self.guard {
            guard.settle(&mut closing);
        }
        let frame = closing.frame.take();
        let Closing { number, end, missing, is_torn, .. } = &closing;
        let concluded = self.conclude(*number, frame, end, missing, *is_torn, inputs);
        if let Some(guard) = &mut self.guard {
            guard.recycle(closing);
        }
        concluded
    }

    /// Everything about a frame is known: it is delivered, unless it lacks something that is asked for.
    pub fn conclude<R: Receiver>(
        &mut self,
        number: u64,
        frame: Option<FrameBuf<F>>,
        end: &FrameEnd,
        missing: &[Missing],
        torn: bool,
        inputs: &Inputs<R>,
    ) -> Result<(), Error>
    where
        K: Kernel<R::Mem, F>,
    {
        self.count(end, missing, torn);
        let Some(mut frame) = frame else { return Ok(()) };
        let complete = end.fate == Fate::Complete && !torn;
        if !complete && self.policy == Incomplete::Drop {
            self.counters.withheld += 1;
            self.kernel.discard(frame);
            return Ok(());
        }
        let media_time = self.clock.map(|clock| clock.unwrap(end.timestamp, end.first_arrival));
        let media_time = media_time.filter(|t| Alignment::judge(t.latency_ns) == Alignment::Aligned).map(|t| t.media);
        let meta = frame.meta_mut();
        meta.number = number;
        meta.complete = complete;
        meta.torn = torn;
        meta.timestamp = end.timestamp;
        meta.second_timestamp = end.second_timestamp;
        meta.media_time = media_time;
        meta.first_arrival = end.first_arrival;
        meta.last_arrival = end.last_arrival;
        meta.packets = end.packets;
        meta.missing.clear();
        meta.missing.extend_from_slice(missing);
        let finished = match (complete, self.policy) {
            (true, _) | (_, Incomplete::Drop) => Ok(()),
            (false, Incomplete::Conceal) => self.kernel.conceal(&mut frame, missing, self.previous.as_ref()),
            (false, Incomplete::Show) => self.kernel.paint(&mut frame, missing),
        }
        .and_then(|()| self.kernel.finish(frame));
        let (frame, ticket) = self.judge(finished).inspect_err(|_| self.counters.dropped += 1)?;
        self.counters.windows += u64::from(frame.is_window());
        self.unfinished.push_back((ticket, number, end.last_arrival));
        if self.policy == Incomplete::Conceal {
            self.previous = Some(frame.clone());
        }
        (self.deliver)(frame, inputs.now());
        Ok(())
    }

    /// A frame that was not acquiring.
    fn count(&mut self, end: &FrameEnd, missing: &[Missing], torn: bool) {
        if end.fate == Fate::Complete && !torn {
            self.counters.complete += 1;
        } else {
            self.counters.incomplete += 1;
            self.counters.torn += u64::from(torn);
            self.counters.missing_octets += missing.iter().map(|m| u64::from(m.len)).sum::<u64>();
        }
    }

    /// Work of frames is not done.
    pub fn is_at_work(&self) -> bool {
        !self.unfinished.is_empty() || self.guard.as_ref().is_some_and(Guard::is_waiting)
    }

    /// Frames that are being filled go back to their pool, and frames that wait to be checked are dropped: there is nobody who
    /// will.
    pub fn abandon<M: Space>(&mut self)
    where
        K: Kernel<M, F>,
    {
        for frame in self.open.iter_mut().filter_map(Option::take) {
            self.kernel.discard(frame);
        }
        while let Some(closing) = self.guard.as_mut().and_then(Guard::next) {
            self.count(&closing.end, &closing.missing, false);
            if let Some(frame) = closing.frame {
                self.counters.dropped += 1;
                self.kernel.discard(frame);
            }
        }
    }
}
