//! One step of reception: take what has arrived, decide where it belongs, move it, hand on what is finished.

mod assembly;
mod compare;
#[cfg(feature = "cuda")]
mod gpu;
mod guard;
mod inputs;
pub mod meter;
mod overload;
mod video;

#[cfg(feature = "cuda")]
pub use gpu::{GpuFrames, GpuPipeline, Moving, Refused};
pub use video::{HostPipeline, Settings, clock, config, frame_time, video, wire};

use self::assembly::Assembly;
use self::compare::{Compare, Comparison};
use self::guard::{Guard, Held};
use self::inputs::{Inputs, Polled};
use self::meter::{Meter, Metering};
use self::overload::Overload;
use crate::depacketise::{Config, Depacketiser, Packet};
use crate::error::{Error, Kind};
use crate::event::Event;
use crate::format::WireFormat;
use crate::frame::{Frame, FramePool};
use crate::kernel::Kernel;
use crate::mem::{CpuAccess, Space};
use crate::plan::Fate;
use crate::ring::Reader;
use crate::rx::{Receiver, RxError};
use crate::sdp::Flow;
use crate::stats::{Busy, FrameCounters, LegComparison, RxCounters};
use crate::time::{MediaClock, Tai};
use crate::timing::{Rules, Source};
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
    /// Packets were taken, and there may be more; or a frame is about to be finished.
    Busy,
    /// Nothing has arrived.
    Idle,
}

/// From receivers to finished frames; see the crate's picture. One receiver may take all legs of a flow; or several take
/// some each ([`Pipeline::add`]), of whatever backends: they are polled in turn on one thread, and one that fails does not
/// end the others.
pub struct Pipeline<R: Receiver, F: Space, K: Kernel<R::Mem, F>> {
    // Ends before `inputs`, in whose rings its kernel may still be reading: fields are dropped in this order.
    assembly: Assembly<F, K>,
    inputs: Inputs<R>,
    depacketiser: Depacketiser,
    // Leases whose kernel work may still be running, oldest first.
    held: VecDeque<Held>,
    /// Packets that were overwritten before they were read for good.
    overwritten: u64,
    /// Where copies by different legs are compared.
    compare: Option<Compare<R::Mem>>,
    overload: Overload,
    /// Time in the kernel.
    kernel_time: Duration,
    observe: Option<Observe>,
    /// Where the timing of the sender is measured.
    meter: Option<Meter>,
}

/// Memory that a pipeline takes at its opening; it takes no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Memory {
    /// Octets of the receivers' rings.
    pub rings: usize,
    /// Frames that may be in use at once.
    pub frames: usize,
    /// Octets of each.
    pub frame_octets: usize,
    /// Octets for sequence numbers of all legs, and what is known of the frames that are open.
    pub sequence: usize,
}

/// What a pipeline leaves to the next one.
pub struct Parts<R> {
    inputs: Inputs<R>,
    depacketiser: Depacketiser,
    policy: Incomplete,
    clock: Option<MediaClock>,
    counters: FrameCounters,
    number: u64,
    overwritten: u64,
    readers: Vec<Option<Reader>>,
    comparison: Option<Comparison>,
    overload: Overload,
    kernel_time: Duration,
    observe: Option<Observe>,
    meter: Option<Meter>,
}

impl<R> Parts<R> {
    /// With other receivers, or the same seen in another way.
    pub fn map<S>(self, change: impl FnMut(R) -> S) -> Parts<S> {
        let Parts { inputs, depacketiser, policy, clock, counters, number, overwritten, readers, .. } = self;
        let Parts { comparison, overload, kernel_time, observe, meter, .. } = self;
        Parts {
            inputs: inputs.map(change),
            depacketiser,
            policy,
            clock,
            counters,
            number,
            overwritten,
            readers,
            comparison,
            overload,
            kernel_time,
            observe,
            meter,
        }
    }
}

impl<R> Parts<R> {
    /// The flow has another format, which a new SDP says: the next pipeline has a kernel and frames for that. Counters and
    /// numbers of frames go on; frames that were being filled count as dropped.
    #[must_use]
    pub fn change(mut self, config: Config) -> Self {
        for fate in self.depacketiser.change(config) {
            let counters = &mut self.counters;
            match fate {
                Fate::Acquiring => counters.acquiring += 1,
                Fate::Complete => (counters.complete, counters.dropped) = (counters.complete + 1, counters.dropped + 1),
                Fate::Incomplete => {
                    (counters.incomplete, counters.dropped) = (counters.incomplete + 1, counters.dropped + 1);
                }
            }
            self.number += u64::from(fate != Fate::Acquiring);
        }
        self
    }
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
        Self::of(Inputs::new(receiver), depacketiser, kernel, pool, policy, clock, deliver)
    }

    fn of(
        inputs: Inputs<R>,
        depacketiser: Depacketiser,
        kernel: K,
        pool: FramePool<F>,
        policy: Incomplete,
        clock: Option<MediaClock>,
        deliver: Deliver<F>,
    ) -> Self {
        let guard = guard_of(&inputs, &kernel, &pool.layout().wire);
        Pipeline {
            inputs,
            depacketiser,
            assembly: Assembly::new(kernel, pool, policy, clock, deliver, guard),
            held: VecDeque::with_capacity(64),
            overwritten: 0,
            compare: None,
            overload: Overload::default(),
            kernel_time: Duration::ZERO,
            observe: None,
            meter: None,
        }
    }

    /// One receiver more, for legs that the others do not take; before the first step.
    ///
    /// # Errors
    /// The kernel cannot read its ring. The receiver is given back.
    pub fn add(&mut self, receiver: R) -> Result<(), (Error, R)> {
        if let Err(error) = self.assembly.kernel.add_ring(receiver.ring()) {
            let error = Error::new(Kind::Unavailable, "frames cannot be filled from one receiver more").because(error);
            return Err((error, receiver));
        }
        self.inputs.add(receiver);
        self.assembly.guard = guard_of(&self.inputs, &self.assembly.kernel, self.assembly.wire());
        Ok(())
    }

    /// Gives up what has come so far, before the first step. Where to begin to receive a leg takes long, more has come by the
    /// others than their rings hold, with holes that are nobody's loss.
    pub fn discard(&mut self) {
        self.inputs.discard();
    }

    /// From now on `observe` is told when a frame is finished.
    pub fn observe(&mut self, observe: Observe) {
        self.observe = Some(observe);
    }

    /// From now on the timing of the sender is measured (ST 2110-21), as far as the clock of the arrivals can carry it. Costs
    /// about 80 ns a packet.
    pub fn meter(&mut self, flow: &Flow, source: Source, rules: Rules) -> Metering {
        let (meter, metering) = Meter::new(flow, source, self.inputs.stamps(), rules);
        self.meter = Some(meter);
        metering
    }

    /// From now on frames are shed when this machine is too slow for the stream, whose frames are so far apart: they open
    /// without memory until reading has caught up, so that whole frames are lost and no packets. Never where arrivals are
    /// those of a recording.
    pub fn shed(&mut self, frame: Duration) {
        let octets = self.assembly.wire().frame_octets().into();
        self.overload = Overload::new(frame, octets, self.depacketiser.legs().len());
    }

    /// One batch of one receiver; the next step asks the next one first.
    ///
    /// # Errors
    /// [`RxError::End`] when the input has ended (then call [`Pipeline::finish`]), [`RxError::Failed`] when the
    /// kernel broke, or the last receiver that was left.
    pub fn step(&mut self) -> Result<Progress, RxError> {
        self.give_back().map_err(RxError::Failed)?;
        let (guard, overload) = (&mut self.assembly.guard, &mut self.overload);
        let in_vain = |from| {
            guard.iter_mut().for_each(|guard| guard.in_vain(from));
            overload.drained(from);
        };
        let (from, lease) = match self.inputs.poll(in_vain)? {
            Polled::Packets(from, lease) => (from, lease),
            Polled::Starved => {
                // A ring is full of what the kernel has not begun or not done. Packets wait to be read meanwhile, so that
                // the time says nothing of those that are missing.
                let flushed = self.assembly.kernel.flush();
                self.assembly.judge(flushed).map_err(RxError::Failed)?;
                return Ok(self.idle());
            }
            Polled::Nothing => {
                self.overload.all_drained();
                self.assembly.shedding = false;
                let Some(since) = self.inputs.quiet_since() else { return Ok(self.idle()) };
                // Frames that wait for packets which never come; a capture's time is that of its packets.
                let plan = self.depacketiser.idle(since);
                self.assembly.execute(plan, &self.inputs, 0, &[]).map_err(RxError::Failed)?;
                return Ok(self.idle());
            }
        };
        let ring = self.inputs.ring(from);
        let slots = lease.slots();
        if let Some(guard) = &mut self.assembly.guard {
            guard.take(from, slots);
        }
        if let Some(compare) = &mut self.compare {
            compare.look(ring, slots);
        }
        if let Some(meter) = &mut self.meter {
            meter.look(ring, slots, self.inputs.stamps());
        }
        let (overload, depacketiser) = (&mut self.overload, &self.depacketiser);
        self.inputs.see(from, |receiver, now| {
            overload.read(now, slots, receiver, from, |leg| depacketiser.last_arrival(leg));
        });
        self.assembly.shedding = self.overload.sheds();
        let plan = self.depacketiser.push(slots.iter().enumerate().map(|(index, slot)| Packet {
            slot: index as u32,
            head: ring.head(slot),
            octets: slot.octets,
            wire_octets: slot.wire_octets,
            arrival: slot.arrival,
            leg: slot.leg,
        }));
        let begun = Instant::now();
        let done = self.assembly.execute(plan, &self.inputs, from, slots);
        self.kernel_time += begun.elapsed();
        let read = self.assembly.guard.as_mut().and_then(Guard::taken);
        self.held.push_back(Held { from, lease, ticket: self.assembly.last_ticket, read });
        done.and_then(|()| self.give_back()).map_err(RxError::Failed)?;
        Ok(Progress::Busy)
    }

    /// Closes what is open and hands it on; `remarks` gets what the receivers have to tell.
    ///
    /// # Errors
    /// The kernel broke, or a receiver could not finish what it writes.
    pub fn finish(&mut self, remarks: &mut Vec<String>) -> Result<(), Error> {
        let closed = self.close_all();
        // Also after a kernel that broke: what was recorded so far is wanted all the more.
        let finished = self.inputs.finish(remarks);
        closed.and(finished)
    }

    fn close_all(&mut self) -> Result<(), Error> {
        let closed = self.close_in_time();
        self.assembly.abandon::<R::Mem>();
        closed
    }

    fn close_in_time(&mut self) -> Result<(), Error> {
        if self.assembly.broken {
            return Ok(());
        }
        let plan = self.depacketiser.finish();
        self.assembly.execute(plan, &self.inputs, 0, &[])?;
        // The last work of a GPU takes microseconds; one that has hung is not waited for.
        let begun = Instant::now();
        while self.assembly.is_at_work() && begun.elapsed() < FINISH {
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
                Err(RxError::Failed(error) | RxError::Gone(error)) => return Err(error),
            }
        }
    }

    /// The kernel cannot go on: its GPU was lost.
    pub fn is_broken(&self) -> bool {
        self.assembly.broken
    }

    /// Takes it apart: frames that were being filled are given up, leases go back. For another kernel to go on with.
    pub fn into_parts(self) -> Parts<R> {
        let overwritten = self.overwritten();
        let Pipeline {
            mut inputs,
            depacketiser,
            mut assembly,
            compare,
            overload,
            kernel_time,
            observe,
            meter,
            held,
            ..
        } = self;
        assembly.abandon::<R::Mem>();
        let Assembly { policy, clock, counters, number, guard, .. } = assembly;
        // The kernel ends first, and waits for work that reads what is leased.
        drop(assembly.kernel);
        for held in held {
            inputs.release(held.from, held.lease);
        }
        let readers = guard.map(Guard::into_readers).unwrap_or_default();
        let comparison = compare.map(|compare| compare.comparison);
        Parts {
            inputs,
            depacketiser,
            policy,
            clock,
            counters,
            number,
            overwritten,
            readers,
            comparison,
            overload,
            kernel_time,
            observe,
            meter,
        }
    }

    /// The receivers alone.
    pub fn into_receivers(self) -> Vec<R> {
        self.into_parts().inputs.into_vec()
    }

    /// Goes on where another pipeline stopped; comparing legs is begun again where it is wanted.
    pub fn resume(parts: Parts<R>, mut kernel: K, pool: FramePool<F>, deliver: Deliver<F>) -> Self {
        let Parts { mut inputs, depacketiser, policy, clock, counters, number, overwritten, readers, .. } = parts;
        for number in 1..inputs.len() {
            if let Err(error) = kernel.add_ring(inputs.ring(number)) {
                let what = "frames cannot be filled from it any more";
                let why = RxError::Failed(Error::new(Kind::Unavailable, what).because(error));
                // The first one is left.
                let _ = inputs.give_up(number, why);
            }
        }
        let mut pipeline = Self::of(inputs, depacketiser, kernel, pool, policy, clock, deliver);
        (pipeline.assembly.counters, pipeline.assembly.number) = (counters, number);
        (pipeline.overwritten, pipeline.observe) = (overwritten, parts.observe);
        pipeline.meter = parts.meter;
        (pipeline.overload, pipeline.kernel_time) = (parts.overload, parts.kernel_time);
        if let Some(guard) = &mut pipeline.assembly.guard {
            guard.resume(readers);
        }
        pipeline
    }

    /// Adds to `events` what has happened since it was asked before.
    pub fn take_events(&mut self, events: &mut Vec<Event>) {
        self.depacketiser.take_events(events);
        self.inputs.take_events(events);
    }
    /// What has been found of legs that are compared.
    pub fn compared(&self) -> Option<LegComparison> {
        self.compare.as_ref().map(|compare| compare.comparison.counts())
    }
    /// The receiver that it was made with, for its counters and notes.
    pub fn receiver(&self) -> &R {
        self.inputs.first()
    }
    /// The same, to join legs.
    pub fn receiver_mut(&mut self) -> &mut R {
        self.inputs.first_mut()
    }
    /// All receivers, in the order in which they were added.
    pub fn receivers(&self) -> impl Iterator<Item = &R> {
        self.inputs.iter()
    }
    /// The same, to join legs.
    pub fn receivers_mut(&mut self) -> impl Iterator<Item = &mut R> {
        self.inputs.iter_mut()
    }
    /// What became of single receivers, for people.
    pub fn remarks(&self) -> &[String] {
        self.inputs.remarks()
    }
    /// The depacketiser, for its counters.
    pub fn depacketiser(&self) -> &Depacketiser {
        &self.depacketiser
    }
    /// What the receivers have counted together, and how many packets were overwritten before they were read for good.
    pub fn rx(&self) -> RxCounters {
        let counters = self.inputs.counters();
        RxCounters { overwritten: counters.overwritten + self.overwritten(), ..counters }
    }
    /// What became of frames.
    pub fn frames(&self) -> FrameCounters {
        self.assembly.counters
    }
    /// Memory that it has taken.
    pub fn memory(&self) -> Memory {
        let (frames, frame_octets) = self.assembly.memory();
        let rings = self.inputs.iter().map(|receiver| receiver.ring().size()).sum();
        Memory { rings, frames, frame_octets, sequence: self.depacketiser.memory() }
    }
    /// How busy it is.
    pub fn busy(&self) -> Busy {
        let lag = self.overload.lag_ns();
        Busy {
            kernel_ns: u64::try_from(self.kernel_time.as_nanos()).unwrap_or(u64::MAX),
            lag_ns: u64::try_from(lag).unwrap_or(0),
            shedding: self.assembly.shedding,
        }
    }
    /// Which kernel runs.
    pub fn kernel_name(&self) -> &'static str {
        self.assembly.kernel.name()
    }
    /// The same with what else there is to say.
    pub fn describe_kernel(&self) -> String {
        self.assembly.kernel.describe()
    }

    fn overwritten(&self) -> u64 {
        self.overwritten + self.assembly.guard.as_ref().map_or(0, Guard::overwritten)
    }

    /// Work that frames wait for takes microseconds: nobody sleeps over it.
    fn idle(&self) -> Progress {
        let waiting = self.assembly.guard.as_ref().is_some_and(Guard::is_waiting);
        if waiting { Progress::Busy } else { Progress::Idle }
    }

    fn give_back(&mut self) -> Result<(), Error> {
        while let Some(held) = self.held.front() {
            if !self.assembly.is_done::<R::Mem>(held.ticket)? {
                break;
            }
            let Some(Held { from, lease, read, .. }) = self.held.pop_front() else { break };
            if let (Some(guard), Some(read)) = (&mut self.assembly.guard, read) {
                guard.check(read);
            }
            self.inputs.release(from, lease);
        }
        while self.assembly.next_is_read::<R::Mem>()? {
            self.assembly.conclude_next(self.held.iter().filter_map(|held| held.read.as_ref()), &self.inputs)?;
        }
        while let Some(&(ticket, number, last_arrival)) = self.assembly.unfinished.front() {
            if !self.assembly.is_done::<R::Mem>(ticket)? {
                break;
            }
            self.assembly.unfinished.pop_front();
            if let (Some(observe), Some(at)) = (&mut self.observe, self.inputs.now()) {
                observe(Finished { number, last_arrival, at });
            }
        }
        Ok(())
    }
}

impl<R: Receiver, F: Space, K: Kernel<R::Mem, F>> Pipeline<R, F, K>
where
    R::Mem: CpuAccess,
{
    /// From now on copies of packets of this payload type that different legs bring are compared, for a fault of the sender
    /// to be found; `numbers` of packets are remembered, which should be those of the time that legs may lie apart. Costs
    /// about 0.3 us a packet. Copies that lie in one ring at the place of their number cannot be compared: one
    /// overwrites the other.
    pub fn compare_legs(&mut self, payload_type: u8, numbers: u32) {
        self.compare = Some(Compare::new(Comparison::new(payload_type, numbers)));
    }
    #[cfg(feature = "cuda")]
    fn go_on_comparing(&mut self, comparison: Option<Comparison>) {
        self.compare = comparison.map(Compare::new);
    }
}

/// Where a ring is overwritten in time.
fn guard_of<R: Receiver, F: Space>(
    inputs: &Inputs<R>,
    kernel: &impl Kernel<R::Mem, F>,
    wire: &WireFormat,
) -> Option<Guard<F>> {
    let laps = || inputs.iter().map(|receiver| receiver.ring().laps().cloned());
    laps().any(|laps| laps.is_some()).then(|| Guard::new(laps(), wire, kernel.reads_at_close()))
}
