//! What happens to queues and devices while they receive: queues that begin anew, legs that are given up. Cold.

use super::library::{self, Failure, Happened};
use super::payload::Payload;
use super::{Verbs, failure};
use crate::error::{Error, Kind};
use crate::event::{Event, What};
use crate::rx::RxError;

/// Resets of a queue in a row, without a good packet between, after which it is given up.
const VAIN: u32 = 100;
/// Events that are read at a time.
const EVENTS: usize = 64;

impl<M: Payload> Verbs<M> {
    /// A queue in error begins anew.
    #[cold]
    pub(super) fn reset(&mut self, number: usize, status: u32) {
        let before = self.feeds.get(number).map(|feed| feed.resets);
        self.hear(number);
        let Some(feed) = self.feeds.get_mut(number).filter(|feed| !feed.gone) else { return };
        if feed.vain >= VAIN {
            let text = feed.device.library().status(status);
            let name = self.legs.get(number).map_or("", |leg| &leg.port.device);
            let what = format!("{name} gives errors and nothing else on leg {number}: {text}");
            let cure = match status {
                library::TOO_LONG => "frames are longer than the SDP allows: correct its MAXUDP",
                _ => "see dmesg, the card's firmware and its cable; start again",
            };
            return self.give_up(number, Error::new(Kind::Unavailable, what).cure(cure), false);
        }
        // An event has told of it already.
        if before != Some(feed.resets) {
            return;
        }
        if let Err(why) = feed.reset() {
            self.failed(number, format_args!("beginning anew"), why);
        }
    }

    /// A call failed that ends a leg. Where its device has gone, that is told.
    #[cold]
    pub(super) fn failed(&mut self, number: usize, what: std::fmt::Arguments<'_>, why: Failure) {
        self.hear(number);
        let name = self.legs.get(number).map_or("", |leg| &leg.port.device);
        let has_gone = why.error == libc::EIO;
        let error = if has_gone { gone(name) } else { failure::call(format_args!("{what} on {name}"), why) };
        self.give_up(number, error, has_gone);
    }

    /// What happened to the device of a leg.
    pub(super) fn hear(&mut self, number: usize) {
        for _ in 0..EVENTS {
            let Some(feed) = self.feeds.get(number) else { return };
            let Some(event) = feed.device.event() else { return };
            let name = self.legs.get(number).map(|leg| leg.port.device.clone()).unwrap_or_default();
            tracing::debug!("{name}: {event:?}");
            let same = |n: &usize| self.legs.get(*n).is_some_and(|leg| leg.port.device == name);
            let of_it: Vec<usize> = (0..self.feeds.len()).filter(same).collect();
            match event {
                Happened::Removed => {
                    of_it.iter().for_each(|n| self.give_up(*n, gone(&name), true));
                    return;
                }
                // A queue that has no packets to tell of its state by. One that began anew since, or another one, is in order.
                Happened::Queue => {
                    for n in of_it {
                        let Some(feed) = self.feeds.get_mut(n).filter(|feed| !feed.gone) else { continue };
                        if !feed.in_error() {
                            continue;
                        }
                        let Err(why) = feed.reset() else { continue };
                        let has_gone = why.error == libc::EIO;
                        let error = match has_gone {
                            true => gone(&name),
                            false => failure::call(format_args!("beginning anew on {name}"), why),
                        };
                        self.give_up(n, error, has_gone);
                    }
                }
                Happened::Completions => {
                    let lost = || {
                        Error::new(Kind::Unavailable, format!("{name} has lost completions (IBV_EVENT_CQ_ERR)"))
                            .cure("start again; please report this")
                    };
                    of_it.iter().for_each(|n| self.give_up(*n, lost(), false));
                }
                // The link is watched by whoever shows it; the queue goes on when it is back.
                Happened::PortDown(_) | Happened::PortUp(_) | Happened::Other => {}
            }
        }
    }

    /// Nothing comes by a leg any more: its device `has_gone`, or is there and of no use. That ends this receiver when it was the last
    /// one; what has not gone does not come back by being opened again, and the error alone tells of it.
    #[cold]
    fn give_up(&mut self, number: usize, error: Error, has_gone: bool) {
        let at = self.clock().unwrap_or_default();
        let Some(feed) = self.feeds.get_mut(number).filter(|feed| !feed.gone) else { return };
        feed.gone = true;
        feed.ended = Some(error.in_one_line());
        // What still comes is the kernel's again.
        feed.detach();
        let is_last = self.feeds.iter().all(|feed| feed.gone);
        if has_gone || !is_last {
            self.events.push(Event { at, what: What::InterfaceGone { leg: number as u8 } });
        }
        if is_last {
            self.broken.get_or_insert(if has_gone { RxError::Gone(error) } else { RxError::Failed(error) });
        }
    }
}

fn gone(name: &str) -> Error {
    Error::new(Kind::Unavailable, format!("device {name} has gone")).cure("start again when it is back")
}
