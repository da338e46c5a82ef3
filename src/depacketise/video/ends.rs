//! How frames begin and end in a plan.

use super::frames::{self, Query};
use super::{NO_FRAME, Video};
use crate::plan::{Fate, FrameEnd, Step};
use crate::sdp::Scan;
use crate::time::Tai;

/// Why a frame closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Whole or not, nothing more is waited for.
    Over,
    /// Reception ends in the middle of it.
    Cut,
    /// Its sequence is not the flow, or may not be: nobody asks what it lacks.
    Nobodys,
}

impl Video {
    /// Opens the frame of a packet; nothing when it came too late for that.
    pub(super) fn open(&mut self, query: Query, key: u32, arrival: Tai) -> Option<u8> {
        let held = self.merge.is_held(query.epoch);
        if self.several && !held && arrival.0 >= self.frames.deadline_of(query, key) {
            return None;
        }
        if self.frames.is_full() {
            match self.frames.order().last().copied() {
                // A frame of nobody knows whom gives way.
                _ if held => return None,
                Some(newest) if self.frames.get(newest).held => self.close(newest, Why::Nobodys),
                // Those of a sequence on trial push out one another, and not the frames before them.
                _ => match self.frames.unfinished_of(query.epoch).filter(|_| self.merge.on_trial()) {
                    Some(own) => self.close(own, Why::Nobodys),
                    None => self.close_oldest(),
                },
            }
        }
        let index = self.frames.begin(query, key, arrival)?;
        let (before, after) = self.frames.neighbours(index);
        let expires = self.patience();
        if !self.several
            && let Some(open) = before.map(|i| self.frames.get(i))
        {
            open.expires = open.expires.min(expires);
        }
        let joining_after = after.is_some_and(|i| self.frames.get(i).joining);
        let first = self.epoch().frames == 0;
        let open = self.frames.get(index);
        if after.is_some() && !self.several {
            open.expires = expires;
        }
        open.joining = first || joining_after;
        open.held = held;
        let epoch = self.epoch_mut();
        epoch.frames = epoch.frames.saturating_add(1);
        self.ever = true;
        self.flush();
        self.plan.steps.push(Step::Open(frames::id(index)));
        if self.several {
            self.frames.set_deadlines();
        }
        self.set_next_expiry();
        Some(index)
    }

    /// The time up to which a frame of one leg is waited for when a later one has begun now.
    pub(super) fn patience(&self) -> u64 {
        // On trial it may be a stray: then the frame before is not over.
        self.clock + u64::from(self.config.reorder).max(if self.merge.on_trial() { 128 } else { 1 })
    }

    pub(super) fn set_next_expiry(&mut self) {
        self.next_expiry =
            if self.several { self.oldest_until() } else { self.frames.oldest().map_or(u64::MAX, |o| o.expires) };
    }

    /// Closes what is whole or has waited long enough, in order.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&mut self) {
        while let Some(oldest) = self.frames.oldest() {
            let over = if self.several {
                self.oldest_until() <= self.clock
            } else {
                oldest.coverage.remaining() == 0 || oldest.expires <= self.clock
            };
            if !over {
                break;
            }
            self.close_oldest();
        }
        if self.several {
            while let Some((id, high)) = self.frames.next_retired(self.clock) {
                self.merge.retire(id, high + 1);
            }
        }
        self.set_next_expiry();
    }

    pub(super) fn close_oldest(&mut self) {
        if let Some(index) = self.frames.order().first().copied() {
            self.close(index, Why::Over);
        }
    }

    pub(super) fn close(&mut self, index: u8, why: Why) {
        self.flush();
        let epoch = self.frames.get(index).epoch;
        let epoch = self.epochs.iter().position(|e| e.id == epoch);
        let of_epoch = epoch.and_then(|at| self.epochs.get(at));
        let second = of_epoch.map_or(self.pairing.second, |e| e.order.second);
        let known = of_epoch.is_none_or(|e| e.numbering.is_known());
        let (row_pgroups, pgroup_octets) = (self.geometry.row_pgroups, self.geometry.pgroup_octets);
        let open = self.frames.get(index);
        let whole = open.coverage.remaining() == 0;
        let fate = if why != Why::Over || open.tainted {
            Fate::Acquiring
        } else if whole {
            Fate::Complete
        } else if open.joining || !known {
            Fate::Acquiring
        } else {
            Fate::Incomplete
        };
        let start = self.plan.missing.len() as u32;
        // Every forged packet may begin a frame: what all of it lacks is no small matter.
        if why != Why::Nobodys {
            open.coverage.missing(row_pgroups, pgroup_octets, &mut self.plan.missing);
        }
        let interlaced = self.config.format.scan == Scan::Interlaced;
        let key = open.key;
        // When the order of the fields was learned after the frame began, it was reckoned from what is now the second one.
        let second = if open.fields[1 - second].is_some_and(|t| t != key) { 1 - second } else { second };
        let end = FrameEnd {
            fate,
            timestamp: key,
            second_timestamp: if interlaced { open.fields[second] } else { None },
            first_arrival: open.first_arrival,
            last_arrival: open.last_arrival,
            packets: open.packets,
            missing: start..self.plan.missing.len() as u32,
        };
        let (tainted, low, high) = (open.tainted, open.low, open.high);
        self.plan.steps.push(Step::Close(frames::id(index), end));
        let at = self.frames.end(index, whole);
        self.closed_for_legs(index, whole, at);
        if let Some(at) = epoch
            && let Some(epoch) = self.epochs.get_mut(at)
        {
            epoch.last_closed = epoch.last_closed.max(Some(low));
            epoch.highest_closed = epoch.highest_closed.max(Some(high));
            if !known {
                epoch.numbering.frame_closed(whole && !tainted);
                self.numbering_settled(at);
            }
        }
    }

    /// Ends the run of placements.
    pub(super) fn flush(&mut self) {
        let end = self.plan.placements.len() as u32;
        close_run(&mut self.plan.steps, self.run, self.run_start, end);
        (self.run, self.run_start) = (NO_FRAME, end);
    }
}

/// Ends a run of placements.
pub(super) fn close_run(steps: &mut Vec<Step>, run: u8, start: u32, end: u32) {
    if run != NO_FRAME && end > start {
        steps.push(Step::Place(frames::id(run), start..end));
    }
}
