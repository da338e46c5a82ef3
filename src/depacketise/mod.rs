//! Depacketisers decide which octets of which packets belong where. Pure: no clock, socket, thread, and no allocation
//! per packet; time is an argument. The product is a [`Plan`].

mod remarks;
pub mod video;

pub use video::{Config, Video};

use crate::event::Event;
use crate::plan::{Fate, Plan};
use crate::stats::{LegCounters, PacketCounters};
use crate::time::Tai;

/// A received packet, as far as the CPU sees it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Index of its slot in the lease; placements name it.
    pub slot: u32,
    /// Its first octets, from the RTP header on; all headers are among them.
    pub head: &'a [u8],
    /// Octets that are present.
    pub octets: u16,
    /// Octets on the wire; more than are present when a capture or a slot cut it.
    pub wire_octets: u16,
    /// When it came.
    pub arrival: Tai,
    /// The leg it came by.
    pub leg: u8,
}

/// The depacketiser of one flow.
#[derive(Debug)]
pub enum Depacketiser {
    /// Uncompressed video, ST 2110-20.
    Video(Box<Video>),
}

impl Depacketiser {
    /// For uncompressed video.
    pub fn video(config: Config) -> Self {
        Depacketiser::Video(Box::new(Video::new(config)))
    }

    /// What a batch of packets, in the order of their arrival by each leg, amounts to. Packets of all legs of a flow may be
    /// among them, or each leg has its own batches.
    pub fn push<'a>(&mut self, packets: impl Iterator<Item = Packet<'a>>) -> &Plan {
        match self {
            Depacketiser::Video(v) => v.push(packets),
        }
    }

    /// Nothing has come for a while and it is `now`, on the clock of the arrivals: closes frames that wait in vain.
    pub fn idle(&mut self, now: Tai) -> &Plan {
        match self {
            Depacketiser::Video(v) => v.idle(now),
        }
    }

    /// Nothing will come any more: closes every frame, and counts as lost what is missing.
    pub fn finish(&mut self) -> &Plan {
        match self {
            Depacketiser::Video(v) => v.finish(),
        }
    }

    /// The flow has another format from now on, which a new SDP says. What was counted goes on. Gives the fates of frames
    /// that were open: nothing more is said of them.
    pub fn change(&mut self, config: Config) -> Vec<Fate> {
        match self {
            Depacketiser::Video(v) => v.change(config),
        }
    }

    /// What has been counted so far.
    pub fn counters(&self) -> PacketCounters {
        match self {
            Depacketiser::Video(v) => v.counters(),
        }
    }

    /// How many frames may be open at once.
    pub fn open_frames(&self) -> usize {
        match self {
            Depacketiser::Video(v) => v.config().open_frames(),
        }
    }

    /// Octets of memory that it took when it was made; it takes no more.
    pub fn memory(&self) -> usize {
        match self {
            Depacketiser::Video(v) => v.config().memory(),
        }
    }

    /// What has been counted of each leg, in their order.
    pub fn legs(&self) -> Vec<LegCounters> {
        match self {
            Depacketiser::Video(v) => v.legs(),
        }
    }

    /// When the last packet of the flow came by a leg, however late it was; none before the first.
    pub fn last_arrival(&self, leg: u8) -> Option<Tai> {
        match self {
            Depacketiser::Video(v) => v.last_arrival(leg),
        }
    }

    /// Appends to `out` what has happened to the flow since the call before.
    pub fn take_events(&mut self, out: &mut Vec<Event>) {
        match self {
            Depacketiser::Video(v) => v.take_events(out),
        }
    }

    /// Events that were not kept because there were too many: a sender that flaps makes a few a second.
    pub fn missed_events(&self) -> u64 {
        match self {
            Depacketiser::Video(v) => v.missed_events(),
        }
    }

    /// What there is to tell people about the sender: replaces the list in `out` when that holds anything else. To be
    /// called as often as one likes.
    pub fn remarks(&self, out: &mut Vec<String>) {
        let Depacketiser::Video(v) = self;
        remarks::update(v, out);
    }

    /// For tests and fuzzing.
    ///
    /// # Panics
    /// When the state contradicts itself: a fault of this module.
    pub fn check_invariants(&self) {
        match self {
            Depacketiser::Video(v) => v.check_invariants(),
        }
    }
}
