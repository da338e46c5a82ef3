//! Depacketisers decide which octets of which packets belong where. Pure: no clock, socket, thread, and no allocation
//! per packet; time is an argument. The product is a [`Plan`].

mod remarks;
pub mod video;

pub use video::{Config, Video};

use crate::plan::Plan;
use crate::stats::PacketCounters;
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

    /// What a batch of packets, in the order of their arrival, amounts to. Packets of both legs of a flow may be among
    /// them: the second copy is a duplicate.
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

    /// What has been counted so far.
    pub fn counters(&self) -> PacketCounters {
        match self {
            Depacketiser::Video(v) => v.counters(),
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
