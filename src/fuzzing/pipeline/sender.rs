//! Senders whose octets say whose they are, and packets that are not quite theirs.

use super::Setup;
use crate::format::WireFormat;
use crate::packetise::Packetiser;
use crate::sdp::{Ratio, Scan};
use crate::time::{VIDEO_CLOCK, frame_nanos, frame_ticks, half_frame_ticks};
use std::collections::VecDeque;

/// When the first frame begins, in seconds since the epoch: a time in 2023.
const BEGIN: u64 = 1_700_000_000;
/// Synchronisation source of the first sender.
pub(super) const SSRC: u32 = 0x5eed;

/// A packet on its way.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub octets: Vec<u8>,
    /// Octets that arrive; the others were cut.
    pub present: usize,
    /// When it is sent.
    pub at: u64,
    /// Whose picture it is a part of, where its octets are as they were sent.
    pub of: Option<Picture>,
    /// Counts packets of its sender.
    pub number: u64,
}

/// A picture: who sends it, and which one of its pictures it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Picture {
    pub origin: u16,
    pub frame: u64,
}

impl Picture {
    /// Its octet at a place of the frame: no two pictures have many in common.
    pub fn octet(self, at: usize) -> u8 {
        let mixed = (u64::from(self.origin) << 48 ^ self.frame << 20 ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8
    }
}

/// A sender that is aligned with the epoch.
pub(super) struct Sender {
    format: WireFormat,
    rate: Ratio,
    packetiser: Packetiser,
    origin: u16,
    /// The next frame, since the epoch.
    frame: u64,
    /// Added to every timestamp.
    offset: u32,
    queue: VecDeque<Packet>,
    sent: u64,
}

impl Sender {
    pub fn new(setup: &Setup, origin: u16, sequence: u32) -> Option<Self> {
        let packetiser = Packetiser::new(setup.format, setup.style, sequence)?;
        let rate = setup.rate;
        let frame = BEGIN * u64::from(rate.num) / u64::from(rate.den);
        let (format, queue) = (setup.format, VecDeque::new());
        Some(Sender { format, rate, packetiser, origin, frame, offset: 0, queue, sent: 0 })
    }

    /// Nanoseconds of a frame.
    pub fn frame_time(&self) -> u64 {
        frame_nanos(self.rate)
    }

    /// When the next frame begins.
    pub fn time(&self) -> u64 {
        let ticks = frame_ticks(self.frame, self.rate, VIDEO_CLOCK);
        (u128::from(ticks) * 1_000_000_000 / 90_000) as u64 + 600_000
    }

    /// RTP timestamp of the next frame.
    fn timestamp(&self) -> u32 {
        (frame_ticks(self.frame, self.rate, VIDEO_CLOCK) as u32).wrapping_add(self.offset)
    }

    /// It has begun a frame and not finished it.
    pub fn is_inside(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Leaves out frames that should have begun by now.
    pub fn skip_to(&mut self, now: u64) {
        while self.time() < now {
            self.frame += 1;
        }
    }

    /// Takes over from another one: with its SSRC or an own one, with its timestamps or others.
    pub fn follow(&mut self, other: &Sender, argument: u8) {
        if argument & 1 != 0 {
            self.packetiser.style_mut().ssrc = SSRC + u32::from(self.origin);
        }
        self.frame = other.frame;
        self.offset = if argument & 2 != 0 { u32::from(argument) << 20 } else { other.offset };
    }

    /// Its timestamps jump, while its sequence goes on.
    pub fn jump(&mut self, argument: u8) {
        self.offset = self.offset.wrapping_add(u32::from(argument) << 12);
    }

    /// The next packet.
    pub fn next(&mut self) -> Packet {
        loop {
            if let Some(packet) = self.queue.pop_front() {
                return packet;
            }
            self.build();
        }
    }

    fn build(&mut self) {
        let picture = Picture { origin: self.origin, frame: self.frame };
        let octets: Vec<u8> = (0..self.format.frame_octets() as usize).map(|at| picture.octet(at)).collect();
        let first = self.timestamp();
        let half = if self.format.scan == Scan::Interlaced { half_frame_ticks(self.rate, VIDEO_CLOCK) } else { 0 };
        let begin = self.time();
        let step = self.frame_time() * 9 / 10 / u64::from(self.packetiser.packets_per_frame().max(1));
        for (n, built) in self.packetiser.frame(first, first.wrapping_add(half)).enumerate() {
            let mut packet = Vec::with_capacity(built.octets());
            built.append(&octets, &mut packet);
            let (present, at) = (packet.len(), begin + n as u64 * step);
            self.queue.push_back(Packet { octets: packet, present, at, of: Some(picture), number: self.sent });
            self.sent += 1;
        }
        self.frame += 1;
    }

    /// A packet that somebody else has made up: octets without meaning, or headers that nearly fit.
    pub fn forged(&self, argument: u8) -> Packet {
        let noise = Picture { origin: 0x8000 | u16::from(argument), frame: self.sent };
        let mut octets: Vec<u8> = (0..20 + usize::from(argument)).map(|at| noise.octet(at)).collect();
        if argument & 0x80 != 0 {
            octets[..2].copy_from_slice(&[0x80, 96 | argument << 6 & 0x80]);
            if argument & 4 != 0 {
                octets[4..8].copy_from_slice(&self.timestamp().to_be_bytes());
            }
            if argument & 8 != 0 {
                octets[8..12].copy_from_slice(&SSRC.to_be_bytes());
            }
            if argument & 16 != 0 {
                let [high @ .., low0, low1] = self.packetiser.next_sequence().to_be_bytes();
                octets[2..4].copy_from_slice(&[low0, low1]);
                octets[12..14].copy_from_slice(&high);
            }
            octets[14..16].copy_from_slice(&(self.format.pgroup.octets as u16).to_be_bytes());
            octets[16..20].copy_from_slice(&[0, argument & 3, 0, 0]);
        }
        Packet { present: octets.len(), octets, at: 0, of: None, number: u64::MAX }
    }
}

impl Packet {
    /// Another packet than was sent.
    pub fn change(&mut self, kind: u8, argument: u8) {
        let at = usize::from(argument);
        match kind {
            // Other samples.
            20 => self.octets.iter_mut().skip(20).for_each(|octet| *octet ^= argument | 1),
            // Another payload header.
            21 => {
                let at = 14 + at % 6;
                self.octets[at] = self.octets[at].wrapping_add(argument >> 3 | 1);
            }
            // Another RTP header.
            22 => self.octets[at % 12] ^= 1 << (argument >> 5),
            // Cut.
            _ => self.present = self.present.min(at),
        }
        self.of = self.of.filter(|_| kind == 23);
    }

    /// The last packet of a frame or field.
    pub fn has_marker(&self) -> bool {
        self.octets.get(1).is_some_and(|octet| octet & 0x80 != 0)
    }
}
