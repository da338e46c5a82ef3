//! How frames begin and end in a plan.

use super::frames::{self, Query};
use super::{NO_FRAME, NONE, Video};
use crate::plan::{Fate, FrameEnd, Step};
use crate::sdp::Scan;
use crate::time::Tai;

impl Video {
    pub(super) fn open(&mut self, query: Query, key: u32, arrival: Tai) -> Option<u8> {
        if self.frames.is_full() {
            self.close_oldest();
        }
        let index = self.frames.begin(query, key, arrival)?;
        let (before, after) = self.frames.neighbours(index);
        let expires = self.patience();
        if let Some(open) = before.map(|i| self.frames.get(i)) {
            open.expires = open.expires.min(expires);
        }
        let joining_after = after.is_some_and(|i| self.frames.get(i).joining);
        let first = self.epoch.frames == 0;
        let open = self.frames.get(index);
        if after.is_some() {
            open.expires = expires;
        }
        open.joining = first || joining_after;
        self.epoch.frames = self.epoch.frames.saturating_add(1);
        self.ever = true;
        self.flush();
        self.plan.steps.push(Step::Open(frames::id(index)));
        self.next_expiry = self.frames.oldest().map_or(u64::MAX, |o| o.expires);
        Some(index)
    }

    /// The packet count up to which a frame is waited for when a later one has begun now.
    pub(super) fn patience(&self) -> u64 {
        // On trial it may be a stray: then the frame before is not over.
        self.count + u64::from(self.config.reorder).max(if self.track.on_trial() { 128 } else { 1 })
    }

    /// Closes what is whole or has waited long enough, in order.
    #[cold]
    #[inline(never)]
    pub(super) fn settle(&mut self) {
        while self.frames.oldest().is_some_and(|o| o.coverage.remaining() == 0 || o.expires <= self.count) {
            self.close_oldest();
        }
        self.next_expiry = self.frames.oldest().map_or(u64::MAX, |o| o.expires);
    }

    pub(super) fn close_oldest(&mut self) {
        if let Some(index) = self.frames.order().first().copied() {
            self.close(index, None);
        }
    }

    pub(super) fn close(&mut self, index: u8, fate: Option<Fate>) {
        self.flush();
        let first = 1 - self.pairing.second;
        let (row_pgroups, pgroup_octets) = (self.geometry.row_pgroups, self.geometry.pgroup_octets);
        let known = self.epoch.numbering.is_known();
        let same_epoch = self.frames.get(index).epoch == self.epoch.id;
        let open = self.frames.get(index);
        let whole = open.coverage.remaining() == 0;
        let fate = fate.unwrap_or(if open.tainted {
            Fate::Acquiring
        } else if whole {
            Fate::Complete
        } else if open.joining || (same_epoch && !known) {
            Fate::Acquiring
        } else {
            Fate::Incomplete
        });
        let start = self.plan.missing.len() as u32;
        open.coverage.missing(row_pgroups, pgroup_octets, &mut self.plan.missing);
        let interlaced = self.config.format.scan == Scan::Interlaced;
        let key = open.key;
        let end = FrameEnd {
            fate,
            timestamp: key,
            second_timestamp: if interlaced { open.fields[1 - first] } else { None },
            first_arrival: open.first_arrival,
            last_arrival: open.last_arrival,
            packets: open.packets,
            missing: start..self.plan.missing.len() as u32,
        };
        let tainted = open.tainted;
        self.plan.steps.push(Step::Close(frames::id(index), end));
        self.frames.end(index, whole);
        if self.current.index == index {
            self.current = NONE;
        }
        if same_epoch {
            self.epoch.last_closed = Some(key);
            if !known {
                self.epoch.numbering.frame_closed(whole && !tainted);
                self.numbering_settled();
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
