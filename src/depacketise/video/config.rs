//! What a video depacketiser has to know.

use crate::error::{Error, Kind, Result};
use crate::format::WireFormat;
use crate::merge::{self, Class, MAX_LEGS};
use crate::plan::{FEW_OPEN, MAX_OPEN};
use crate::sdp::Ratio;
use crate::time::frame_nanos;
use crate::track::WINDOW;
use std::time::Duration;

/// Frames a second at most, where the rate is not known.
const FASTEST: u64 = 120;
/// Octets of samples in a packet at least, but for the last of a frame (ST 2110-20:2022, 6.3.2).
const SMALLEST: u64 = 1000;
/// Numbers that are remembered at most: more than class C has of 8K at 120 frames a second.
const MOST: u64 = 1 << 23;

/// A sender that brings nothing for so long is silent, as [`crate::health`] has it; it may have stood still before.
const STALL: Duration = Duration::from_millis(100);

/// What a video depacketiser has to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The picture on the wire.
    pub format: WireFormat,
    /// RTP payload type.
    pub payload_type: u8,
    /// Frames a second, where known: pairs fields and sets times.
    pub rate: Option<Ratio>,
    /// Legs of the flow, from 1 to [`MAX_LEGS`]. Packets say by which they came; those of one leg need not.
    pub legs: u8,
    /// How long an incomplete frame of several legs stays open after a later one has begun: how far legs may lie apart.
    pub window: Duration,
    /// Packets of later frames for which an incomplete frame of one leg stays open.
    pub reorder: u32,
    /// Without a packet for so long, a frame closes when [`super::super::Depacketiser::idle`] is called: one whose last packet
    /// has come, or behind which another one has begun.
    pub idle: Duration,
    /// The same for the newest frame while its last packet has not come: a sender that stands still in the middle of a frame
    /// may go on with it.
    pub stall: Duration,
    /// Sequence numbers that are remembered (see [`crate::track::Track`]).
    pub numbers: usize,
}

impl Config {
    /// One leg, with the defaults: 256 packets; two frame times (100 ms without a rate), and at least 100 ms for a frame
    /// that its sender may go on with; [`WINDOW`] numbers.
    pub fn new(format: WireFormat, payload_type: u8, rate: Option<Ratio>) -> Self {
        let rate = rate.filter(|r| r.num > 0 && r.den > 0);
        let idle = Duration::from_nanos(rate.map_or(100_000_000, |r| 2 * frame_nanos(r)));
        let (window, stall) = (Duration::ZERO, idle.max(STALL));
        Config { format, payload_type, rate, legs: 1, window, reorder: 256, idle, stall, numbers: WINDOW }
    }

    /// So many legs that lie no further apart than their class says. Of one leg the class means nothing.
    ///
    /// # Errors
    /// More legs than [`MAX_LEGS`], or a time that more frames take than may be open at once.
    pub fn with_legs(mut self, legs: usize, class: Class) -> Result<Self> {
        self.legs = u8::try_from(legs).ok().filter(|legs| (1..=MAX_LEGS).contains(legs)).ok_or_else(|| {
            Error::new(Kind::Data, format!("a flow of {legs} legs: at most {MAX_LEGS} are merged"))
                .cure("take legs out of the SDP's group (a=group:DUP)")
        })?;
        if legs == 1 {
            return Ok(self);
        }
        self.window = class.window(self.bits_per_second());
        self.idle = self.idle.max(self.window * 2);
        self.stall = self.stall.max(self.idle);
        let packets =
            (self.bits_per_second() / 8 / SMALLEST).saturating_mul(self.window.as_micros() as u64) / 1_000_000;
        self.numbers = (2 * packets).clamp(WINDOW as u64, MOST) as usize;
        if self.open_frames() > MAX_OPEN {
            let (ms, open) = (self.window.as_secs_f64() * 1e3, self.open_frames());
            return Err(Error::new(
                Kind::Usage,
                format!("legs that lie {ms} ms apart keep {open} frames open at once, and {MAX_OPEN} can be"),
            )
            .cure("choose a shorter time (--redundancy)"));
        }
        Ok(self)
    }

    /// Octets of samples a second, times eight.
    fn bits_per_second(&self) -> u64 {
        let octets = u64::from(self.format.frame_octets());
        octets * 8 * 1_000_000_000 / self.frame_nanos()
    }

    fn frame_nanos(&self) -> u64 {
        self.rate.map_or(1_000_000_000 / FASTEST, frame_nanos).max(1)
    }

    /// How many frames may be open at once.
    pub fn open_frames(&self) -> usize {
        if self.legs < 2 {
            return FEW_OPEN;
        }
        let frames = self.window.as_nanos().div_ceil(u128::from(self.frame_nanos())) + 2;
        usize::try_from(frames).unwrap_or(usize::MAX).max(FEW_OPEN)
    }

    /// Octets of memory that a depacketiser takes, all of it when it is made.
    pub fn memory(&self) -> usize {
        let format = &self.format;
        let pgroups = format.frame_octets() / format.pgroup.octets.max(1);
        let coverage = self.open_frames().min(MAX_OPEN) * (pgroups as usize).div_ceil(64) * 8;
        self.merge().octets() + coverage + super::plan_octets(format)
    }

    /// For the merge of the legs.
    pub(super) fn merge(&self) -> merge::Settings {
        let silence_ns = self.rate.map_or(100_000_000, |r| 2 * frame_nanos(r));
        merge::Settings { legs: self.legs, numbers: self.numbers, window: self.window, silence_ns }
    }
}
