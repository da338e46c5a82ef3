//! What a stream shows by itself: how its rows are numbered, and which field comes first.

use super::{Epoch, Video};
use crate::sdp::Ratio;
use crate::time::{MediaClock, Tai, VIDEO_CLOCK, frame_phase, half_frame_ticks};

/// Frames after which rows are taken to begin at 0 although nothing has shown it.
const PATIENCE: u32 = 4;

/// Nanoseconds from the timestamp to the arrival of an aligned sender at most, either way.
const MAX_LATENCY: u64 = 250_000_000;

/// Numbering of rows. By the standard a frame or field begins with row 0; some senders count as in the SDI raster (42
/// for 1080p, 21 and 584 for 1080i) or from 1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbering {
    known: [bool; 2],
    pub(super) first_row: [u32; 2],
    frames: u32,
    /// The field in progress: its bit, its first row, and the track's disorder then.
    start: Option<(usize, u32, u64)>,
}

/// What the end of a field has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Learned {
    Nothing,
    /// Rows begin elsewhere than thought: what has been placed lies in wrong rows.
    Moved,
}

impl Numbering {
    pub(super) fn is_known(&self) -> bool {
        self.known == [true; 2]
    }

    pub(super) fn begin(&mut self, f: usize, row: u32, disorder: u64) {
        self.start = Some((f, row, disorder));
        // No row of the SDI raster has the number 0.
        if row == 0 && self.first_row == [0; 2] {
            self.known = [true; 2];
        }
    }

    /// The packet with the marker: its last row ends the field, which spans `span` numbers in steps of `step`.
    pub(super) fn end(&mut self, f: usize, last_row: u32, step: u32, span: u32, disorder: u64) -> Learned {
        let start = self.start.take();
        if last_row + step == self.first_row[f] + span {
            self.known[f] = true;
            return Learned::Nothing;
        }
        match start {
            Some((field, first, then)) if field == f && then == disorder && last_row + step == first + span => {
                self.first_row[f] = first;
                self.known[f] = true;
                Learned::Moved
            }
            _ => Learned::Nothing,
        }
    }

    /// Progressive streams have one field only.
    pub(super) fn only_first(&mut self) {
        self.known[1] = true;
    }

    /// A frame has closed; `whole` ones have shown that rows are where they were thought to be.
    pub(super) fn frame_closed(&mut self, whole: bool) {
        self.frames = self.frames.saturating_add(1);
        if whole || self.frames >= PATIENCE {
            self.known = [true; 2];
        }
    }
}

/// Which field comes first. F=0 by the standard; a sender that is aligned with the epoch shows it, because its first
/// fields have timestamps of whole frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// The field bit of the second field.
    pub(super) second: usize,
    pub(super) known: bool,
    against: u32,
}

impl Order {
    pub(super) const STANDARD: Order = Order { second: 1, known: false, against: 0 };

    /// Field `f` begins.
    pub(super) fn observe(&mut self, f: usize, timestamp: u32, arrival: Tai, rate: Ratio) {
        let u = MediaClock::VIDEO.unwrap(timestamp, arrival);
        // A free-running clock that happens to be near shows nothing.
        let (true, Ok(ticks)) = (u.latency_ns.unsigned_abs() < MAX_LATENCY, u64::try_from(u.ticks)) else { return };
        let half = half_frame_ticks(rate, VIDEO_CLOCK);
        let phase = frame_phase(ticks, rate, VIDEO_CLOCK);
        if half < 8 {
            return;
        }
        let second = if phase.abs_diff(half) <= 2 {
            f
        } else if phase <= 2 || phase + 2 >= 2 * half {
            1 - f
        } else {
            return;
        };
        if second == self.second {
            (self.known, self.against) = (true, 0);
            return;
        }
        // Once known, one odd timestamp does not change it.
        self.against += 1;
        if !self.known || self.against >= 4 {
            *self = Order { second, known: true, against: 0 };
        }
    }
}

impl Video {
    /// The numbers of the first row of both fields (progressive: of the frame, twice), once the stream has shown them:
    /// `[0, 0]` by the standard, others for senders that count as in the SDI raster.
    pub fn first_rows(&self) -> Option<[u32; 2]> {
        let numbering = self.settled_epoch().numbering;
        let rows = numbering.first_row;
        let rows = if self.geometry.two_fields { rows } else { [rows[0]; 2] };
        numbering.is_known().then_some(rows).or(self.shown_rows)
    }

    /// The sender's timestamps say that F=1 comes before F=0.
    pub fn second_field_first(&self) -> bool {
        let order = self.settled_epoch().order;
        if order.known { order.second == 0 } else { self.shown_second_first }
    }

    /// What strays show is nothing.
    fn settled_epoch(&self) -> &Epoch {
        self.epochs.get(usize::from(self.merge.settled())).unwrap_or(self.epoch())
    }

    /// Has any packet held samples that fit the format?
    pub fn has_begun(&self) -> bool {
        self.ever
    }
}
