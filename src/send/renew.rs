//! Legs whose interface was deleted and made anew under the same name: their sockets still name the old one, and nothing says so
//! but that packets cannot be sent. An interface that goes down and up needs nothing.

use super::live::Report;
use super::socket::Outlet;
use crate::time::Tai;
use std::time::Duration;

/// How long packets are not sent before it is looked for, and the pause between two looks at most.
const PERIOD: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(8);

/// Looks after the legs of a sender.
pub(super) struct Renewer(Vec<Leg>);

#[derive(Clone, Copy)]
struct Leg {
    /// Packets that could not be sent when it was looked at last.
    unsent: u64,
    /// When its interface is looked for.
    next: Option<Tai>,
    pause: Duration,
}

impl Renewer {
    pub fn new(legs: usize) -> Self {
        Renewer(vec![Leg { unsent: 0, next: None, pause: PERIOD }; legs])
    }

    /// To be called between frames. A look takes a fraction of a millisecond, and there is one a second at most.
    pub fn look(&mut self, now: Tai, outlets: &mut [Outlet], report: &mut Report) {
        for ((leg, outlet), counts) in self.0.iter_mut().zip(outlets).zip(&mut report.legs) {
            let suffers = counts.unsent > std::mem::replace(&mut leg.unsent, counts.unsent);
            if leg.is_due(now, suffers) && outlet.is_left() {
                match Outlet::open(outlet.target().clone()) {
                    Ok(anew) => {
                        *outlet = anew;
                        counts.reopened += 1;
                    }
                    Err(error) => tracing::debug!("a leg cannot be opened yet: {}", error.in_one_line()),
                }
            }
        }
    }
}

impl Leg {
    /// `suffers`: packets could not be sent lately.
    fn is_due(&mut self, now: Tai, suffers: bool) -> bool {
        if !suffers {
            (self.next, self.pause) = (None, PERIOD);
            return false;
        }
        let next = *self.next.get_or_insert(now + self.pause);
        let due = now >= next;
        if due {
            self.pause = (self.pause * 2).min(PATIENCE);
            self.next = Some(now + self.pause);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_after_a_second_and_then_less_and_less_often() {
        let mut leg = Leg { unsent: 0, next: None, pause: PERIOD };
        let mut looks = |from: u64, to: u64, suffers: bool| -> Vec<u64> {
            (from..to).step_by(100).filter(|ms| leg.is_due(Tai(ms * 1_000_000), suffers)).collect()
        };
        assert_eq!(looks(0, 30_000, true), [1_000, 3_000, 7_000, 15_000, 23_000]);
        assert_eq!(looks(30_000, 30_100, false), [0; 0]);
        assert_eq!(looks(40_000, 44_000, true), [41_000, 43_000]);
    }
}
