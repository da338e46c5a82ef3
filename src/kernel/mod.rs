//! Kernels execute placements: they move octets from a ring into a frame and unpack them on the way.

pub mod conceal;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod window;

pub use cpu::CpuKernel;
#[cfg(feature = "cuda")]
pub use cuda::CudaKernel;
pub use gdmedia_convert::kernel::{Colour, Conversion, Level, Pair, Run, RunFn, at, pairs, select};
pub use window::{Windows, why_not};

use crate::frame::{Frame, FrameBuf};
use crate::mem::Space;
use crate::plan::{Missing, Placement};
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
    /// Slots of a further ring are going to be placed, too: that of another receiver of the same flow.
    ///
    /// # Errors
    /// It can take no other ring, or has no memory for it.
    fn add_ring(&mut self, ring: &SplitRing<R>) -> Result<(), KernelError> {
        let _ = ring;
        Ok(())
    }
    /// Nothing more is placed in this frame, of which every octet came or not; `last` is the ticket of the last placements.
    /// Starts what waits for more. What was read for the frame is checked when the ticket is done that this gives, and only
    /// then follow holes and [`Kernel::finish`]. Only called where rings are overwritten in time; elsewhere frames are
    /// finished at once. Called again, with `whole` false, where a frame was whole and some of it has been overwritten.
    ///
    /// # Errors
    /// The kernel cannot go on.
    fn close(&mut self, frame: &mut FrameBuf<F>, whole: bool, last: Ticket) -> Result<Ticket, KernelError> {
        let _ = (frame, whole);
        self.flush()?;
        Ok(last)
    }
    /// Slots are read when a frame closes, not when the ticket of their placements is done.
    fn reads_at_close(&self) -> bool {
        false
    }
    /// Gives the octets of the loss map what the frame before showed there; a neutral picture when there is none.
    ///
    /// # Errors
    /// The kernel cannot go on.
    fn conceal(
        &mut self,
        frame: &mut FrameBuf<F>,
        missing: &[Missing],
        previous: Option<&Frame<F>>,
    ) -> Result<(), KernelError>;
    /// Paints the octets of the loss map, so that everybody sees them.
    ///
    /// # Errors
    /// The kernel cannot go on.
    fn paint(&mut self, frame: &mut FrameBuf<F>, missing: &[Missing]) -> Result<(), KernelError>;
    /// Nothing more comes for this frame: seals it, with a fence where its work may still be running. The ticket is that
    /// of its last work.
    ///
    /// # Errors
    /// The kernel cannot go on.
    fn finish(&mut self, frame: FrameBuf<F>) -> Result<(Frame<F>, Ticket), KernelError>;
    /// The frame is not wanted: back to its pool.
    fn discard(&mut self, frame: FrameBuf<F>) {
        frame.discard();
    }
    /// Starts what waits for more to come: the ring is full of it, so that no more can.
    ///
    /// # Errors
    /// The kernel cannot go on.
    fn flush(&mut self) -> Result<(), KernelError> {
        Ok(())
    }
    /// Others are going to read the rings' memory, where a card has written by itself: what it wrote is to be there for them.
    ///
    /// # Errors
    /// The kernel cannot go on.
    fn end_writes(&mut self) -> Result<(), KernelError> {
        Ok(())
    }
    /// Has the work behind `ticket`, and all before it, been done?
    ///
    /// # Errors
    /// The kernel cannot go on: the work failed, and so will all other.
    fn done(&mut self, ticket: Ticket) -> Result<bool, KernelError>;
    /// Which implementation runs: `avx2`, `scalar`, `cuda` …
    fn name(&self) -> &'static str;
    /// The same with what else there is to say, for the start block.
    fn describe(&self) -> String {
        format!("{} on the CPU", self.name())
    }
}

/// Names work that was handed to a kernel; later work has a higher number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A kernel cannot go on (a GPU was lost …); CPU kernels never say so.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KernelError(pub String);
