//! Frames of several legs: what is in time, and how long one waits for another.

use super::{CLOSED, Current, NONE, Video};
use crate::depacketise::Packet;
use crate::event::What;
use crate::time::{Tai, VIDEO_CLOCK, frame_ticks};
use crate::track::Verdict;
use crate::wire::srd;

/// Timestamps that are so many ticks away from where they were expected have jumped (10 ms; half a second where packets
/// were lost between).
const JUMP: i64 = 900;
const JUMP_ACROSS_LOSS: i64 = 45_000;

/// The field before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    last: Option<(u64, u32, Tai, u64)>,
    jumped: bool,
}

impl Video {
    /// Is a packet to be placed in its frame?
    #[inline(never)]
    pub(super) fn is_in_time(
        &mut self,
        p: &Packet<'_>,
        srds: &srd::Srds<'_>,
        index: u8,
        marker: bool,
        verdict: Verdict,
    ) -> bool {
        if index >= CLOSED {
            // It is whole: nearly always a copy by a leg that lies behind.
            let expires = self.frames.closed(index - CLOSED).map_or(0, |closed| closed.expires);
            if p.arrival.0 >= expires {
                self.merge.too_late(verdict);
            } else if verdict != Verdict::Duplicate {
                self.refuse(p, srds);
            }
            if marker {
                self.current[self.leg_of(p)] = NONE;
            }
            self.settle_if_due();
            return false;
        }
        let number = self.merge.number();
        let open = self.frames.get(index);
        if p.arrival.0 >= open.expires {
            self.merge.too_late(verdict);
            self.settle_if_due();
            return false;
        }
        if verdict != Verdict::Duplicate {
            open.low = open.low.min(number);
            open.high = open.high.max(number);
        }
        true
    }

    /// A frame has been opened, or a leg brings the first packet of one: when did it begin?
    pub(super) fn came_first(&mut self, index: u8, arrival: Tai) {
        let open = self.frames.get(index);
        if arrival < open.first_arrival {
            open.first_arrival = arrival;
            self.set_deadlines();
        }
    }

    pub(super) fn set_deadlines(&mut self) {
        self.frames.set_deadlines();
        self.set_next_expiry();
    }

    /// It has been decided whose frames that were held are.
    pub(super) fn release(&mut self) {
        let mut released = false;
        for at in 0..self.frames.order().len() {
            let Some(index) = self.frames.order().get(at).copied() else { break };
            let open = self.frames.get(index);
            if open.held && !self.merge.is_held(open.epoch) {
                open.held = false;
                released = true;
            }
        }
        if released {
            self.set_deadlines();
            self.settle();
        }
    }

    /// Until when the oldest frame is waited for: one that is whole for those before it of which nothing has come yet.
    pub(super) fn oldest_until(&self) -> u64 {
        let Some(oldest) = self.frames.oldest() else { return u64::MAX };
        if oldest.held {
            return u64::MAX;
        }
        if oldest.coverage.remaining() > 0 {
            return oldest.expires;
        }
        let before = self.epochs.iter().find(|e| e.id == oldest.epoch).and_then(|e| e.highest_closed);
        let gap = before.is_some_and(|before| self.merge.unseen(oldest.epoch, before + 1, oldest.low) > 0);
        if gap { self.frames.deadline_before_oldest() } else { 0 }
    }

    /// A leg is at a frame that is closed now. `at` is its place among those that are remembered, and no other's any more.
    pub(super) fn closed_for_legs(&mut self, index: u8, whole: bool, at: u8) {
        self.current.iter_mut().filter(|current| current.index == CLOSED + at).for_each(|current| *current = NONE);
        for current in self.current.iter_mut().filter(|current| current.index == index) {
            *current = if whole && self.several { Current { index: CLOSED + at, ..*current } } else { NONE };
        }
    }

    /// So many ticks from one frame to the next: where the SDP has another rate, the stream is believed.
    fn frame_step(&mut self, ticks: i64) {
        let said = self.config.rate.map_or(0, |rate| frame_ticks(1, rate, VIDEO_CLOCK) as i64);
        // A rate such as 60000/1001 takes turns.
        let same = (ticks - said).abs() <= 2;
        self.frames.step = u32::try_from(if same { said } else { ticks }).unwrap_or(0);
    }

    /// A field begins in order: do its timestamps go on as time does?
    pub(super) fn field_announced(&mut self, f: usize, timestamp: u32, arrival: Tai) {
        self.merge.tick(arrival);
        if self.pairing.two_fields && f == self.pairing.second {
            return;
        }
        let now = (self.epoch().id, timestamp, arrival, self.merge.disorder());
        let Some((id, before, then, disorder)) = self.pace.last.replace(now) else { return };
        if id != now.0 {
            return;
        }
        let ticks = i64::from(timestamp.wrapping_sub(before) as i32);
        let elapsed = arrival.since(then) / 1_000_000 * 90;
        let step = self.config.rate.map_or(elapsed, |rate| frame_ticks(1, rate, VIDEO_CLOCK) as i64);
        let tolerance = if disorder == now.3 && self.config.rate.is_some() { JUMP } else { JUMP_ACROSS_LOSS };
        if disorder == now.3 && ticks > 0 && ticks < JUMP_ACROSS_LOSS {
            self.frame_step(ticks);
        }
        let jumped = (ticks - step).abs() > tolerance && (ticks - elapsed).abs() > tolerance;
        if jumped && !std::mem::replace(&mut self.pace.jumped, jumped) {
            self.merge.happened(arrival, What::TimestampJump { ticks: ticks - step });
        }
        self.pace.jumped = jumped;
    }
}
