//! What a batch of packets means for frames: the product of [`crate::depacketise`], executed by a [`crate::kernel`].

use crate::time::Tai;
use std::ops::Range;

/// Octets of one slot that belong at an octet of a wire-format frame. Layout is shared with GPU kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Index of the slot in the lease.
    pub slot: u32,
    /// First octet in the wire-format frame (see [`crate::format::WireFormat`]); a pgroup boundary.
    pub dst: u32,
    /// First octet in the packet, counted from its RTP header.
    pub src: u16,
    /// Octets; a multiple of the pgroup, inside one wire row.
    pub len: u16,
}

/// A frame that is being filled. Small: an index into the open frames, reused after its close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameId(pub u8);

/// Frames open at once at most. Flows of one leg have up to [`FEW_OPEN`], those of several as many as their window needs.
pub const MAX_OPEN: usize = 64;

/// Frames open at once of a flow of one leg.
pub const FEW_OPEN: usize = 4;

/// One step of a plan; steps are executed in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A frame begins.
    Open(FrameId),
    /// These placements (a range of [`Plan::placements`]) go into this frame.
    Place(FrameId, Range<u32>),
    /// Nothing more will be placed in this frame.
    Close(FrameId, FrameEnd),
}

/// How a frame ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Every octet has been placed.
    Complete,
    /// Octets are missing; the loss map says which.
    Incomplete,
    /// Not whole because reception began in the middle of it, or ended there: nobody's fault, not to be shown.
    Acquiring,
}

/// What is known of a frame when it closes.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameEnd {
    /// Whole, not whole, or still joining.
    pub fate: Fate,
    /// RTP timestamp of the frame or of its first field.
    pub timestamp: u32,
    /// RTP timestamp of the second field (interlaced only, when it was seen).
    pub second_timestamp: Option<u32>,
    /// Arrival of its first packet.
    pub first_arrival: Tai,
    /// Arrival of its last packet.
    pub last_arrival: Tai,
    /// Packets that placed octets in it.
    pub packets: u32,
    /// Its part of [`Plan::missing`]; empty where it is of packets that turned out not to be the flow's.
    pub missing: Range<u32>,
}

/// Octets of a wire row that never came: one run of the loss map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Missing {
    /// Wire row: a row, or for 4:2:0 a pair of rows; counted in the frame, fields woven.
    pub row: u32,
    /// First octet in that row.
    pub octet: u32,
    /// Octets.
    pub len: u32,
}

/// What one batch of packets amounts to.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In order.
    pub steps: Vec<Step>,
    /// Referred to by [`Step::Place`].
    pub placements: Vec<Placement>,
    /// Referred to by [`FrameEnd::missing`].
    pub missing: Vec<Missing>,
}

impl Plan {
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.steps.clear();
        self.placements.clear();
        self.missing.clear();
    }
}
