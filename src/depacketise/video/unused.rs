//! Packets that place nothing: they open no frame, but they are counted by reason, end what is open, and show how rows
//! are numbered.

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
                Err(Reason::Row) if !self.epoch.numbering.is_known() => self.epoch.row_rejects += 1,
                Err(reason) => self.track.counters_mut().rejected.add(reason),
            }
        }
        if u32::from(srds.data_at) + srds.data_octets > u32::from(p.octets) {
            self.track.counters_mut().rejected.add(Reason::Truncated);
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
            // Its timestamp says that the frame before is over.
            let expires = self.patience();
            if let Some(index) = self.frames.order().last().copied() {
                let open = self.frames.get(index);
                open.expires = open.expires.min(expires);
                self.next_expiry = self.frames.oldest().map_or(u64::MAX, |o| o.expires);
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
        if self.count >= self.next_expiry {
            self.settle();
        }
    }

    /// The first packet of a field shows with which row it begins.
    pub(super) fn field_begins(&mut self, f: usize, srds: &srd::Srds<'_>) {
        let known = self.epoch.numbering.is_known();
        self.epoch.numbering.begin(f, u32::from(srds.first.row), self.track.disorder());
        if !known {
            self.numbering_settled();
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
        let known = self.epoch.numbering.is_known();
        let learned = self.epoch.numbering.end(f, u32::from(last.row), step, span, self.track.disorder());
        if learned == Learned::Moved {
            self.geometry.first_row = self.epoch.numbering.first_row;
            self.epoch.row_rejects = 0;
            let epoch = self.epoch.id;
            self.frames.of_epoch(epoch).for_each(|open| open.tainted = true);
        } else if !known {
            self.numbering_settled();
        }
    }

    /// When rows begin where they should, those that were out of range were wrong.
    pub(super) fn numbering_settled(&mut self) {
        if self.epoch.numbering.is_known() {
            self.count_row_rejects();
        }
    }

    /// Rows out of range so far were wrong.
    pub(super) fn count_row_rejects(&mut self) {
        let rejects = std::mem::take(&mut self.epoch.row_rejects);
        self.track.counters_mut().rejected.0[Reason::Row as usize] += rejects;
    }
}
