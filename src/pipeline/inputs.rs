//! The receivers of a pipeline, each with a ring of its own: polled in turn, one batch at a time, so that none waits for
//! another; and one that fails does not end the others.

use crate::error::Error;
use crate::event::{Event, What};
use crate::ring::{Lease, SplitRing};
use crate::rx::{Receiver, RxError};
use crate::stats::RxCounters;
use crate::time::Tai;
use crate::timing::Source;

/// Leases that are given up at most, so that it ends where packets never cease.
const DISCARDED: usize = 1 << 14;

/// The receivers.
pub(super) struct Inputs<R> {
    list: Vec<Input<R>>,
    /// Who is asked first by the next poll.
    turn: usize,
    /// The time before all were asked in vain.
    before: Option<Tai>,
    remarks: Vec<String>,
    events: Vec<Event>,
}

/// One receiver.
struct Input<R> {
    receiver: R,
    /// Its count when it was last seen.
    starved: u64,
    /// Nothing more comes from it.
    over: bool,
}

/// What a poll brought.
pub(super) enum Polled {
    /// Packets of the receiver with this number.
    Packets(usize, Lease),
    /// None of them had anything.
    Nothing,
    /// A ring is full of what is leased; packets may wait behind it.
    Starved,
}

impl<R> Inputs<R> {
    pub fn new(receiver: R) -> Self {
        let list = Vec::with_capacity(2);
        let mut inputs = Inputs { list, turn: 0, before: None, remarks: Vec::new(), events: Vec::new() };
        inputs.add(receiver);
        inputs
    }
    pub fn add(&mut self, receiver: R) {
        self.list.push(Input { receiver, starved: 0, over: false });
    }
    pub fn len(&self) -> usize {
        self.list.len()
    }
    /// The same receivers, seen in another way.
    pub fn map<S>(self, mut change: impl FnMut(R) -> S) -> Inputs<S> {
        let Inputs { list, turn, before, remarks, events } = self;
        let list = list.into_iter().map(|Input { receiver, starved, over }| {
            let receiver = change(receiver);
            Input { receiver, starved, over }
        });
        Inputs { list: list.collect(), turn, before, remarks, events }
    }
    pub fn iter(&self) -> impl Iterator<Item = &R> {
        self.list.iter().map(|input| &input.receiver)
    }
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut R> {
        self.list.iter_mut().map(|input| &mut input.receiver)
    }
    pub fn into_vec(self) -> Vec<R> {
        self.list.into_iter().map(|input| input.receiver).collect()
    }
    /// The one that a pipeline was made with.
    pub fn first(&self) -> &R {
        &self.list[0].receiver
    }
    pub fn first_mut(&mut self) -> &mut R {
        &mut self.list[0].receiver
    }
    /// What became of single ones, for people.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }
}

impl<R: Receiver> Inputs<R> {
    /// Nothing more comes from it; the others go on.
    ///
    /// # Errors
    /// There are no others: that is what is told.
    pub fn give_up(&mut self, number: usize, why: RxError) -> Result<(), RxError> {
        if let Some(input) = self.list.get_mut(number) {
            input.over = true;
        }
        if self.list.iter().all(|input| input.over) {
            return Err(why);
        }
        if let RxError::Failed(error) | RxError::Gone(error) = &why {
            let backend = self.list.get(number).map_or("", |input| input.receiver.caps().backend);
            let why = error.in_one_line();
            self.remarks.push(format!("receiver {number} ({backend}) failed, the others go on: {why}"));
            let what = What::ReceiverFailed { receiver: u8::try_from(number).unwrap_or(u8::MAX) };
            self.events.push(Event { at: self.before.unwrap_or_default(), what });
        }
        Ok(())
    }
    /// The ring of a receiver. Numbers are those of [`Polled::Packets`]; the first one's where nothing lies in a ring.
    pub fn ring(&self, number: usize) -> &SplitRing<R::Mem> {
        self.list.get(number).unwrap_or(&self.list[0]).receiver.ring()
    }
    /// The clock of the arrivals; none where one of them reads a recording. Where clocks differ, the one that is behind.
    pub fn now(&self) -> Option<Tai> {
        self.list.iter().map(|input| input.receiver.now()).min().flatten()
    }
    /// Shows a receiver and the time on its clock; not where its arrivals are those of a recording.
    pub fn see(&self, number: usize, mut look: impl FnMut(&R, Tai)) {
        if let Some(receiver) = self.list.get(number).map(|input| &input.receiver)
            && let Some(now) = receiver.now()
        {
            look(receiver, now);
        }
    }
    /// Nothing has come from any of them: since when that holds. A thread that is stopped between the question and the look
    /// at the clock does not take what waits meanwhile for late.
    pub fn quiet_since(&mut self) -> Option<Tai> {
        let now = self.now();
        std::mem::replace(&mut self.before, now)
    }
    /// A batch of the next one that has any; `in_vain` is told who has none.
    ///
    /// # Errors
    /// [`RxError::End`] when all have ended; [`RxError::Failed`] when none is left.
    pub fn poll(&mut self, mut in_vain: impl FnMut(usize)) -> Result<Polled, RxError> {
        let mut nothing = Polled::Nothing;
        for _ in 0..self.list.len() {
            let number = self.turn;
            self.turn = if number + 1 < self.list.len() { number + 1 } else { 0 };
            let Some(input) = self.list.get_mut(number).filter(|input| !input.over) else { continue };
            match input.receiver.poll() {
                Ok(lease) if !lease.is_empty() => return Ok(Polled::Packets(number, lease)),
                Ok(lease) => {
                    input.receiver.release(lease);
                    let starved = input.receiver.counters().starved;
                    if starved == std::mem::replace(&mut input.starved, starved) {
                        in_vain(number);
                    } else {
                        nothing = Polled::Starved;
                    }
                }
                Err(why) => self.give_up(number, why)?,
            }
        }
        Ok(nothing)
    }
    /// What the arrivals of all carry: what one of them cannot is not told of any.
    pub fn stamps(&self) -> Source {
        let of_all = self.list.iter().filter(|input| !input.over).map(|input| input.receiver.caps().stamps);
        of_all.into_iter().find(|stamps| *stamps != Source::Hardware).unwrap_or(Source::Hardware)
    }
    /// Takes what has come so far, and gives it up.
    pub fn discard(&mut self) {
        for input in self.list.iter_mut().filter(|input| !input.over) {
            for _ in 0..DISCARDED {
                // What fails here fails again.
                let Ok(lease) = input.receiver.poll() else { break };
                let is_empty = lease.is_empty();
                input.receiver.release(lease);
                if is_empty {
                    break;
                }
            }
        }
    }
    /// Gives a lease back to the receiver that it is of.
    pub fn release(&mut self, number: usize, lease: Lease) {
        if let Some(input) = self.list.get_mut(number) {
            input.receiver.release(lease);
        }
    }
    /// What has happened to them and their legs.
    pub fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
        self.iter_mut().for_each(|receiver| receiver.take_events(events));
    }
    /// Of all together.
    pub fn counters(&self) -> RxCounters {
        self.iter().map(Receiver::counters).fold(RxCounters::default(), |sum, one| sum + one)
    }
    /// # Errors
    /// The first one that could not finish; all are asked to.
    pub fn finish(&mut self, remarks: &mut Vec<String>) -> Result<(), Error> {
        self.iter_mut().map(|receiver| receiver.finish(remarks)).fold(Ok(()), Result::and)
    }
}
