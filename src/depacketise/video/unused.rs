//! Packets that place nothing: they open no frame, but they are counted by reason, end what is open, and show how rows
//! are numbered.

use super::frames::deadline;
use super::learn::Learned;
use super::{Video, spot};
use crate::depacketise::Packet;
use crate::stats::Reason;
use crate::track::Verdict;
use crate::wire::{rtp, srd};

impl Video {
    /// Has the packet at least one pgroup for a frame?
    pub(super) fn fills(&self, p: &Packet<'_>, srds: &srd::Srds<'_>) -> bool {
        let mut at = srds.data_at;
        srds.iter().any(|segment| {
            let src = at;
            at = at.wrapping_add(segment.length);
            let present = at.min(p.octets).saturating_sub(src);
            self.geometry.pgroups(present) > 0 && spot(&self.geometry, srds, &segment).is_ok()
        })
    }

    /// Counts what is wrong with the segments of a packet that is not placed.
    pub(super) fn refuse(&mut self, p: &Packet<'_>, srds: &srd::Srds<'_>) {
        for segment in srds.iter() {
            match spot(&self.geometry, srds, &segment) {
                Ok(_) => {}
                Err(Reason::Row) if !self.epoch().numbering.is_known() => self.epoch_mut().row_rejects += 1,
                Err(reason) => self.rejected.add(reason),
            }
        }
        if u32::from(srds.data_at) + srds.data_octets > u32::from(p.octets) {
            self.rejected.add(Reason::Truncated);
        }
    }

    /// A packet of a frame that is not open, and that it cannot open. `begins`: the first such packet of its field.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn opens_nothing(
        &mut self,
        p: &Packet<'_>,
        h: &rtp::Header,
        srds: &srd::Srds<'_>,
        f: usize,
        verdict: Verdict,
        newest: bool,
        begins: bool,
    ) {
        if newest && begins {
            self.field_begins(f, srds);
            // Its timestamp says that the frame before is over, but where nobody knows whose it is.
            let expires = if self.several { deadline(p.arrival.0, self.window) } else { self.patience() };
            let held = self.merge.is_held(self.epoch().id);
            if let Some(index) = self.frames.order().last().copied().filter(|_| !held) {
                let open = self.frames.get(index);
                open.expires = open.expires.min(expires);
                self.set_next_expiry();
            }
            self.unopened = Some((f, h.timestamp));
        }
        self.refuse(p, srds);
        if newest && h.marker {
            self.field_ends(f, srds, verdict);
        }
        self.settle_if_due();
    }

    /// Frames expire by packets of every kind.
    pub(super) fn settle_if_due(&mut self) {
        if self.clock >= self.next_expiry {
            self.settle();
        }
    }

    /// The first packet of a field shows with which row it begins.
    pub(super) fn field_begins(&mut self, f: usize, srds: &srd::Srds<'_>) {
        let known = self.epoch().numbering.is_known();
        let disorder = self.merge.disorder();
        self.epoch_mut().numbering.begin(f, u32::from(srds.first.row), disorder);
        if !known {
            self.numbering_settled(self.at);
        }
    }

    /// The packet with the marker shows with which row a field ends.
    pub(super) fn field_ends(&mut self, f: usize, srds: &srd::Srds<'_>, verdict: Verdict) {
        let Some(last) = srds.iter().next_back() else { return };
        if verdict == Verdict::Reordered || last.length == 0 {
            return;
        }
        let step = self.geometry.row_step();
        let span = self.geometry.row_span(f);
        let known = self.epoch().numbering.is_known();
        let disorder = self.merge.disorder();
        let learned = self.epoch_mut().numbering.end(f, u32::from(last.row), step, span, disorder);
        if learned == Learned::Moved {
            self.geometry.first_row = self.epoch().numbering.first_row;
            self.epoch_mut().row_rejects = 0;
            let epoch = self.epoch().id;
            self.frames.of_epoch(epoch).for_each(|open| open.tainted = true);
        } else if !known {
            self.numbering_settled(self.at);
        }
    }

    /// When rows of an epoch begin where they should, those that were out of range were wrong.
    pub(super) fn numbering_settled(&mut self, at: usize) {
        if self.epochs.get(at).is_some_and(|e| e.numbering.is_known()) {
            self.count_row_rejects(at);
        }
    }

    /// Rows out of range so far were wrong.
    pub(super) fn count_row_rejects(&mut self, at: usize) {
        let Some(epoch) = self.epochs.get_mut(at) else { return };
        self.rejected.0[Reason::Row as usize] += std::mem::take(&mut epoch.row_rejects);
    }
}
