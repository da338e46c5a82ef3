//! Kernels execute placements: they move octets from a ring into a frame and unpack them on the way.

mod convert;

pub use convert::{Colour, Conversion, Level, Run, RunFn};

use crate::frame::FrameBuf;
use crate::mem::Space;
use crate::plan::Placement;
use crate::ring::{Slot, SplitRing};

/// Executes placements. What it touches has been checked by the depacketiser; it checks again.
pub trait Kernel<R: Space, F: Space>: Send {
    /// Places octets of `slots` in `frame`; done when [`Kernel::done`] says so for the ticket.
    fn apply(
        &mut self,
        ring: &SplitRing<R>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<F>,
    ) -> Result<Ticket, KernelError>;
    /// Has the work behind `ticket`, and all before it, been done?
    fn done(&mut self, ticket: Ticket) -> bool;
    /// Which implementation runs, for the start block: `avx2`, `scalar` …
    fn name(&self) -> &'static str;
}

/// Names work that was handed to a kernel; later work has a higher number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A kernel cannot go on (a GPU was lost …); CPU kernels never say so.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KernelError(pub String);
