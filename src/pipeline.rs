//! One step of reception: take what has arrived, decide where it belongs, move it, hand on what is finished.

#[cfg(feature = "cuda")]
mod gpu;
mod video;

#[cfg(feature = "cuda")]
pub use gpu::{GpuFrames, GpuPipeline, Moving, Refused};
pub use video::{HostPipeline, Settings, video, wire};

use crate::depacketise::{Depacketiser, Packet};
use crate::error::{Error, Kind};
use crate::frame::{Frame, FrameBuf, FramePool};
use crate::kernel::{Kernel, KernelError, Ticket};
use crate::mem::Space;
use crate::plan::{Fate, FrameEnd, MAX_OPEN, Missing, Plan, Step};
use crate::ring::{Lease, Slot};
use crate::rx::{Receiver, RxError};
use crate::stats::FrameCounters;
use crate::time::{Alignment, MediaClock, Tai};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What to do with a frame whose loss map is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Incomplete {
    /// Missing octets show what the frame before showed there.
    #[default]
    Conceal,
    /// Missing octets are painted, so that everybody sees them.
    Show,
    /// The frame is not delivered.
    Drop,
}

/// How long the last work may take.
const FINISH: Duration = Duration::from_secs(2);

/// Takes a finished frame, and the time on the clock of the arrivals where they are not a recording's.
pub type Deliver<F> = Box<dyn FnMut(Frame<F>, Option<Tai>) + Send>;

/// A frame that is finished: nothing is written to it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Its number; see [`crate::frame::Meta::number`].
    pub number: u64,
    /// Arrival of its last packet.
    pub last_arrival: Tai,
    /// When that was seen, on the clock of the arrivals.
    pub at: Tai,
}

/// Told when a delivered frame is finished. Frames of the CPU are when they are delivered; frames of a GPU a little later.
pub type Observe = Box<dyn FnMut(Finished) + Send>;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Packets were taken; there may be more.
    Busy,
    /// Nothing has arrived.
    Idle,
}

/// From a receiver to finished frames; see the crate's picture.
pub struct Pipeline<R: Receiver, F: Space, K: Kernel<R::Mem, F>> {
    // Ends before `receiver`, in whose ring its kernel may still be reading: fields are dropped in this order.
    assembly: Assembly<F, K>,
    receiver: R,
    depacketiser: Depacketiser,
    // Leases whose kernel work may still be running, oldest first.
    held: VecDeque<(Lease, Ticket)>,
    /// The receiver's count when it was last seen.
    starved: u64,
    observe: Option<Observe>,
}

/// What a pipeline leaves to the next one.
pub struct Parts<R> {
    receiver: R,
    depacketiser: Depacketiser,
    policy: Incomplete,
    clock: Option<MediaClock>,
    counters: FrameCounters,
    number: u64,
    observe: Option<Observe>,
}

impl<R> Parts<R> {
    /// With another receiver, or the same seen in another way.
    pub fn map<S>(self, change: impl FnOnce(R) -> S) -> Parts<S> {
        let Parts { receiver, depacketiser, policy, clock, counters, number, observe } = self;
        Parts { receiver: change(receiver), depacketiser, policy, clock, counters, number, observe }
    }
}

/// Everything behind the plan.
struct Assembly<F: Space, K> {
    kernel: K,
    pool: FramePool<F>,
    open: [Option<FrameBuf<F>>; MAX_OPEN],
    policy: Incomplete,
    clock: Option<MediaClock>,
    previous: Option<Frame<F>>,
    deliver: Deliver<F>,
    counters: FrameCounters,
    number: u64,
    last_ticket: Ticket,
    // Delivered frames whose work may still be running: ticket, number, last arrival.
    unfinished: VecDeque<(Ticket, u64, Tai)>,
    // The kernel cannot go on.
    broken: bool,
}

impl<R: Receiver, F: Space, K: Kernel<R::Mem, F>> Pipeline<R, F, K> {
    /// `clock` relates RTP timestamps to TAI; none when the sender's run free. `deliver` gets every finished frame and
    /// must not wait.
    pub fn new(
        receiver: R,
        depacketiser: Depacketiser,
        kernel: K,
        pool: FramePool<F>,
        policy: Incomplete,
        clock: Option<MediaClock>,
        deliver: Deliver<F>,
    ) -> Self {
        Pipeline {
            receiver,
            depacketiser,
            assembly: Assembly {
                kernel,
                pool,
                open: std::array::from_fn(|_| None),
                policy,
                clock,
                previous: None,
                deliver,
                counters: FrameCounters::default(),
                number: 0,
                last_ticket: Ticket::default(),
                unfinished: VecDeque::with_capacity(64),
                broken: false,
            },
            held: VecDeque::with_capacity(64),
            starved: 0,
            observe: None,
        }
    }

    /// From now on `observe` is told when a frame is finished.
    pub fn observe(&mut self, observe: Observe) {
        self.observe = Some(observe);
    }

    /// One batch.
    ///
    /// # Errors
    /// [`RxError::End`] when the input has ended (then call [`Pipeline::finish`]), [`RxError::Failed`] when the
    /// receiver or the kernel broke.
    pub fn step(&mut self) -> Result<Progress, RxError> {
        self.give_back().map_err(RxError::Failed)?;
        let lease = self.receiver.poll()?;
        if lease.is_empty() {
            self.receiver.release(lease);
            let starved = self.receiver.counters().starved;
            if starved != std::mem::replace(&mut self.starved, starved) {
                // The ring is full of what the kernel has not begun or not done. Packets wait to be read meanwhile, so that
                // the time says nothing of those that are missing.
                let flushed = self.assembly.kernel.flush();
                self.assembly.judge(flushed).map_err(RxError::Failed)?;
            } else if let Some(now) = self.receiver.now() {
                // Frames that wait for packets which never come; a capture's time is that of its packets.
                let plan = self.depacketiser.idle(now);
                self.assembly.execute(plan, &self.receiver, &[]).map_err(RxError::Failed)?;
            }
            return Ok(Progress::Idle);
        }
        let ring = self.receiver.ring();
        let slots = lease.slots();
        let plan = self.depacketiser.push(slots.iter().enumerate().map(|(index, slot)| Packet {
            slot: index as u32,
            head: ring.head(slot),
            octets: slot.octets,
            wire_octets: slot.wire_octets,
            arrival: slot.arrival,
            leg: slot.leg,
        }));
        let done = self.assembly.execute(plan, &self.receiver, slots);
        self.held.push_back((lease, self.assembly.last_ticket));
        done.and_then(|()| self.give_back()).map_err(RxError::Failed)?;
        Ok(Progress::Busy)
    }

    /// Closes what is open and hands it on; `remarks` gets what the receiver has to tell.
    ///
    /// # Errors
    /// The kernel broke, or the receiver could not finish what it writes.
    pub fn finish(&mut self, remarks: &mut Vec<String>) -> Result<(), Error> {
        let closed = self.close_all();
        // Also after a kernel that broke: what was recorded so far is wanted all the more.
        let finished = self.receiver.finish(remarks);
        closed.and(finished)
    }

    fn close_all(&mut self) -> Result<(), Error> {
        if self.assembly.broken {
            return Ok(());
        }
        let plan = self.depacketiser.finish();
        self.assembly.execute(plan, &self.receiver, &[])?;
        // The last work of a GPU takes microseconds; one that has hung is not waited for.
        let begun = Instant::now();
        while !self.assembly.unfinished.is_empty() && begun.elapsed() < FINISH {
            self.give_back()?;
        }
        Ok(())
    }

    /// Steps until the input ends, then finishes: for captures. A network has no end; see [`crate::worker`].
    ///
    /// # Errors
    /// As of [`Pipeline::step`] and [`Pipeline::finish`].
    pub fn run_to_end(&mut self) -> Result<(), Error> {
        loop {
            match self.step() {
                Ok(Progress::Busy) => {}
                Ok(Progress::Idle) => std::thread::yield_now(),
                Err(RxError::End) => return self.finish(&mut Vec::new()),
                Err(RxError::Failed(error)) => return Err(error),
            }
        }
    }

    /// The kernel cannot go on: its GPU was lost.
    pub fn is_broken(&self) -> bool {
        self.assembly.broken
    }

    /// Takes it apart: frames that were being filled are given up, leases go back. For another kernel to go on with.
    pub fn into_parts(self) -> Parts<R> {
        let Pipeline { mut receiver, depacketiser, assembly, observe, held, .. } = self;
        let Assembly { policy, clock, counters, number, .. } = assembly;
        // The kernel ends first, and waits for work that reads what is leased.
        drop(assembly.kernel);
        for (lease, _) in held {
            receiver.release(lease);
        }
        Parts { receiver, depacketiser, policy, clock, counters, number, observe }
    }

    /// The receiver alone.
    pub fn into_receiver(self) -> R {
        self.into_parts().receiver
    }

    /// Goes on where another pipeline stopped.
    pub fn resume(parts: Parts<R>, kernel: K, pool: FramePool<F>, deliver: Deliver<F>) -> Self {
        let Parts { receiver, depacketiser, policy, clock, counters, number, observe } = parts;
        let mut pipeline = Self::new(receiver, depacketiser, kernel, pool, policy, clock, deliver);
        (pipeline.assembly.counters, pipeline.assembly.number) = (counters, number);
        pipeline.observe = observe;
        pipeline
    }

    /// The receiver, for its counters and notes.
    pub fn receiver(&self) -> &R {
        &self.receiver
    }
    /// The receiver, to join legs.
    pub fn receiver_mut(&mut self) -> &mut R {
        &mut self.receiver
    }
    /// The depacketiser, for its counters.
    pub fn depacketiser(&self) -> &Depacketiser {
        &self.depacketiser
    }
    /// What became of frames.
    pub fn frames(&self) -> FrameCounters {
        self.assembly.counters
    }
    /// Which kernel runs.
    pub fn kernel_name(&self) -> &'static str {
        self.assembly.kernel.name()
    }
    /// The same with what else there is to say.
    pub fn describe_kernel(&self) -> String {
        self.assembly.kernel.describe()
    }

    fn give_back(&mut self) -> Result<(), Error> {
        while let Some((_, ticket)) = self.held.front() {
            if !self.assembly.is_done::<R::Mem>(*ticket)? {
                break;
            }
            if let Some((lease, _)) = self.held.pop_front() {
                self.receiver.release(lease);
            }
        }
        while let Some(&(ticket, number, last_arrival)) = self.assembly.unfinished.front() {
            if !self.assembly.is_done::<R::Mem>(ticket)? {
                break;
            }
            self.assembly.unfinished.pop_front();
            if let (Some(observe), Some(at)) = (&mut self.observe, self.receiver.now()) {
                observe(Finished { number, last_arrival, at });
            }
        }
        Ok(())
    }
}

impl<F: Space, K> Assembly<F, K> {
    fn is_done<M: Space>(&mut self, ticket: Ticket) -> Result<bool, Error>
    where
        K: Kernel<M, F>,
    {
        let done = self.kernel.done(ticket);
        self.judge(done)
    }

    /// Passes a kernel's result on, and remembers that it cannot go on.
    fn judge<T>(&mut self, result: Result<T, KernelError>) -> Result<T, Error> {
        self.broken |= result.is_err();
        result.map_err(|error| Error::new(Kind::Unavailable, "the kernel cannot go on").because(error))
    }

    fn execute<R: Receiver>(&mut self, plan: &Plan, receiver: &R, slots: &[Slot]) -> Result<(), Error>
    where
        K: Kernel<R::Mem, F>,
    {
        let ring = receiver.ring();
        let mut result = Ok(());
        for step in &plan.steps {
            match step {
                Step::Open(id) => {
                    if let Some(place) = self.open.get_mut(usize::from(id.0)) {
                        *place = if self.broken { None } else { self.pool.take() };
                    }
                }
                Step::Place(id, range) => {
                    let Some(Some(frame)) = self.open.get_mut(usize::from(id.0)) else { continue };
                    let placements = plan.placements.get(range.start as usize..range.end as usize).unwrap_or_default();
                    let applied = self.kernel.apply(ring, slots, placements, frame);
                    match self.judge(applied) {
                        Ok(ticket) => self.last_ticket = ticket,
                        Err(error) => result = self.give_up(result, error),
                    }
                }
                Step::Close(id, end) => {
                    let frame = self.open.get_mut(usize::from(id.0)).and_then(Option::take);
                    let missing = plan.missing.get(end.missing.start as usize..end.missing.end as usize);
                    if let Err(error) = self.close(frame, end, missing.unwrap_or_default(), receiver) {
                        self.counters.dropped += 1;
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
        frame: Option<FrameBuf<F>>,
        end: &FrameEnd,
        missing: &[Missing],
        receiver: &R,
    ) -> Result<(), Error>
    where
        K: Kernel<R::Mem, F>,
    {
        let complete = match end.fate {
            Fate::Complete => {
                self.counters.complete += 1;
                true
            }
            Fate::Incomplete => {
                self.counters.incomplete += 1;
                self.counters.missing_octets += missing.iter().map(|m| u64::from(m.len)).sum::<u64>();
                false
            }
            Fate::Acquiring => {
                self.counters.acquiring += 1;
                if let Some(frame) = frame {
                    self.kernel.discard(frame);
                }
                return Ok(());
            }
        };
        let number = self.number;
        self.number += 1;
        let Some(mut frame) = frame else {
            // The pool was empty when it opened: sinks are slower than the stream.
            self.counters.dropped += 1;
            return Ok(());
        };
        if !complete {
            let filled = match self.policy {
                Incomplete::Drop => {
                    self.counters.withheld += 1;
                    self.kernel.discard(frame);
                    return Ok(());
                }
                Incomplete::Conceal => self.kernel.conceal(&mut frame, missing, self.previous.as_ref()),
                Incomplete::Show => self.kernel.paint(&mut frame, missing),
            };
            self.judge(filled)?;
        }
        let media_time = self.clock.map(|clock| clock.unwrap(end.timestamp, end.first_arrival));
        let media_time = media_time.filter(|t| Alignment::judge(t.latency_ns) == Alignment::Aligned).map(|t| t.media);
        let meta = frame.meta_mut();
        meta.number = number;
        meta.complete = complete;
        meta.timestamp = end.timestamp;
        meta.second_timestamp = end.second_timestamp;
        meta.media_time = media_time;
        meta.first_arrival = end.first_arrival;
        meta.last_arrival = end.last_arrival;
        meta.packets = end.packets;
        meta.missing.clear();
        meta.missing.extend_from_slice(missing);
        let finished = self.kernel.finish(frame);
        let (frame, ticket) = self.judge(finished)?;
        self.unfinished.push_back((ticket, number, end.last_arrival));
        if self.policy == Incomplete::Conceal {
            self.previous = Some(frame.clone());
        }
        (self.deliver)(frame, receiver.now());
        Ok(())
    }
}
