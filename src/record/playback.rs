//! A recording to sinks: instead of a pipeline.

use super::read::Recording;
use super::wire::Decoder;
use crate::error::{Error, Result};
use crate::frame::{Frame, FramePool};
use crate::mem::{Host, Space};
use crate::pipeline::{Deliver, Progress};
use crate::rx::RxError;
use crate::stats::FrameCounters;
use crate::time::Tai;
use crate::worker::{Report, Stepper};
use std::time::Instant;

/// When frames are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as they are taken.
    Full,
    /// As far apart as they were.
    Recorded,
}

/// Fills a frame with a recorded one.
pub trait Load<M: Space>: Send {
    /// The frame at `place`, in memory of `M`; `None` where no memory is free.
    ///
    /// # Errors
    /// It is damaged, or cannot be read.
    fn load(&mut self, recording: &Recording, place: (usize, u64)) -> Result<Option<Frame<M>>>;
}

/// Into memory of the CPU, in any layout.
pub struct HostLoad {
    decoder: Decoder,
    pool: FramePool<Host>,
}

impl HostLoad {
    /// Frames of `pool`.
    pub fn new(decoder: Decoder, pool: FramePool<Host>) -> Self {
        HostLoad { decoder, pool }
    }
}

impl Load<Host> for HostLoad {
    fn load(&mut self, recording: &Recording, place: (usize, u64)) -> Result<Option<Frame<Host>>> {
        let Some(mut frame) = self.pool.take() else { return Ok(None) };
        match self.decoder.frame(&mut frame, |room| recording.load(place, room)) {
            Ok(()) => Ok(Some(frame.seal())),
            Err(error) => {
                frame.discard();
                Err(error)
            }
        }
    }
}

/// Delivers the frames of a recording, one a step.
pub struct Playback<M: Space> {
    recording: Recording,
    places: std::vec::IntoIter<(usize, u64)>,
    load: Box<dyn Load<M>>,
    deliver: Deliver<M>,
    pace: Pace,
    /// The place that is next, when its frame could not be loaded yet.
    waiting: Option<(usize, u64)>,
    /// Loaded, and not due.
    ready: Option<Frame<M>>,
    /// When the first frame was delivered, and its time.
    begun: Option<(Instant, Tai)>,
    frames: FrameCounters,
    damaged: u64,
    first: Option<String>,
}

impl<M: Space> Playback<M> {
    /// Of all frames that `recording` has.
    pub fn new(recording: Recording, load: Box<dyn Load<M>>, pace: Pace, deliver: Deliver<M>) -> Self {
        let places: Vec<_> = recording.places().collect();
        Playback {
            recording,
            places: places.into_iter(),
            load,
            deliver,
            pace,
            waiting: None,
            ready: None,
            begun: None,
            frames: FrameCounters::default(),
            damaged: 0,
            first: None,
        }
    }

    /// The frame is not due yet.
    fn is_early(&mut self, frame: &Frame<M>) -> bool {
        if self.pace == Pace::Full {
            return false;
        }
        let meta = frame.meta();
        let time = meta.media_time.unwrap_or(meta.last_arrival);
        let (begun, first) = *self.begun.get_or_insert((Instant::now(), time));
        let due = u64::try_from(time.since(first)).unwrap_or(0);
        // A recording that jumps (its sender was set anew) goes on at once.
        let due = if due > JUMP_NS + begun.elapsed().as_nanos() as u64 {
            self.begun = Some((Instant::now(), time));
            0
        } else {
            due
        };
        (begun.elapsed().as_nanos() as u64) < due
    }

    fn next(&mut self) -> std::result::Result<Progress, RxError> {
        let frame = match self.ready.take() {
            Some(frame) => frame,
            None => {
                let place = match self.waiting.take() {
                    Some(place) => place,
                    None => self.places.next().ok_or(RxError::End)?,
                };
                match self.load.load(&self.recording, place) {
                    Ok(Some(frame)) => frame,
                    Ok(None) => {
                        self.waiting = Some(place);
                        return Ok(Progress::Idle);
                    }
                    Err(error) => {
                        self.damaged += 1;
                        self.first.get_or_insert_with(|| error.in_one_line());
                        return Ok(Progress::Busy);
                    }
                }
            }
        };
        if self.is_early(&frame) {
            self.ready = Some(frame);
            return Ok(Progress::Idle);
        }
        let meta = frame.meta();
        if meta.complete {
            self.frames.complete += 1;
        } else {
            self.frames.incomplete += 1;
            self.frames.torn += u64::from(meta.torn);
            self.frames.missing_octets += meta.missing.iter().map(|m| u64::from(m.len)).sum::<u64>();
        }
        (self.deliver)(frame, None);
        Ok(Progress::Busy)
    }
}

/// Frames that are further apart than this are not waited for.
const JUMP_NS: u64 = 10_000_000_000;

impl<M: Space> Stepper for Playback<M> {
    fn step(&mut self) -> std::result::Result<Progress, RxError> {
        self.next()
    }
    fn finish(&mut self, remarks: &mut Vec<String>) -> std::result::Result<(), Error> {
        self.ready = None;
        remarks.append(&mut self.recording.remarks());
        if self.damaged > 0 {
            let first = self.first.take().unwrap_or_default();
            remarks.push(format!("{} damaged frames were left out; the first: {first}", self.damaged));
        }
        Ok(())
    }
    fn report(&mut self, into: &mut Report) {
        into.frames = self.frames;
    }
}
