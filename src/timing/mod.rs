//! Time: what ST 2110-10, -21, -30 and -40 measure of a flow. One implementation for captures and for live flows.
//!
//! Everything here is pure: no clock, no input or output, and no allocation once a flow has been learned. The time of a
//! packet is part of it.
//!
//! | module | knows |
//! | --- | --- |
//! | [`schedule`] | when packets are due: the read schedules of ST 2110-21 |
//! | [`limits`] | bucket sizes of the sender types, and the windows of other measures |
//! | [`buckets`] | CINST and VRX, exactly |
//! | [`sequence`] | what is lost, on each leg and on all |
//! | [`align`] | how the sender's clock lies to the clock of the arrivals |
//! | [`stamps`] | what the time stamps of the arrivals can carry |
//! | [`learn`] | packets a frame, frame rate and scan from the first packets |
//! | [`frames`], [`audio`] | the measures of a leg: by frames, by packets |
//! | [`ancillary`] | when ancillary data is due (ST 2110-40) |
//! | [`windows`] | measures against the windows that they should lie in |
//! | [`verdict`] | narrow, narrow linear, wide, not compliant, and why |
//! | [`flow`] | a flow with its legs: packets in, measures out |
//! | [`measure`] | extremes, histograms and series of bounded size |
//!
//! Numbers that a time source cannot carry are not shown: see [`stamps::Trust`].

pub mod align;
pub mod ancillary;
pub mod audio;
pub mod buckets;
pub mod flow;
pub mod frames;
mod grid;
pub mod learn;
pub mod limits;
pub mod measure;
pub mod schedule;
pub mod sequence;
pub mod stamps;
pub mod verdict;
pub mod windows;

pub use flow::{Flow, Subject};
pub use stamps::{Source, Trust};
pub use verdict::{Class, Verdict};

use crate::time::Tai;

/// What the head of a packet says, and when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it came.
    pub arrival: Tai,
    /// RTP timestamp.
    pub timestamp: u32,
    /// RTP sequence number.
    pub sequence: u16,
    /// High half of the sequence number, where the payload header has it (RFC 4175, RFC 8331).
    pub extended: Option<u16>,
    /// Synchronisation source.
    pub ssrc: u32,
    /// Last packet of a frame or field.
    pub marker: bool,
    /// Of the second field or segment of video; false for all else.
    pub second: bool,
    /// Counted from 0.
    pub leg: u8,
    /// Of ancillary data: its place in the picture.
    pub ancillary: Option<ancillary::Head>,
}

/// How the buckets are reckoned, and what they are held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// As the standard has it, or as EBU LIST does.
    pub method: buckets::Method,
    /// Where the first read of a frame is reckoned from.
    pub tvd: buckets::Tvd,
    /// Windows.
    pub limits: limits::Limits,
}
