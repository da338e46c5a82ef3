//! Where the two planes of a ring are taken from, in each memory space.

use crate::error::Result;
use crate::mem::{Host, Region, Space};
#[cfg(feature = "cuda")]
use crate::{
    gpu::Gpu,
    mem::{Device, Pinned},
};
#[cfg(feature = "cuda")]
use std::sync::Arc;

/// What placement by sequence number asks for.
#[cfg_attr(not(feature = "rivermax"), allow(dead_code))]
pub const PAGE: usize = 4096;

/// A space that a card writes to.
pub trait Planes: Space + Sized {
    /// Who gives the memory.
    type Source;

    /// Memory for headers, or for whole packets.
    ///
    /// # Errors
    /// There is not so much.
    fn head(source: &Self::Source, len: usize) -> Result<Region<Self::Head>>;
    /// Memory for what is cut off.
    ///
    /// # Errors
    /// There is not so much, or a card cannot write there.
    fn body(source: &Self::Source, len: usize, notes: &mut Vec<String>) -> Result<Region<Self>>;
    /// For the start block.
    const NAME: &'static str;
}

impl Planes for Host {
    type Source = ();
    const NAME: &'static str = "memory of the host";
    fn head((): &(), len: usize) -> Result<Region<Host>> {
        Region::host(len)
    }
    fn body((): &(), len: usize, _notes: &mut Vec<String>) -> Result<Region<Host>> {
        Region::host(len)
    }
}

#[cfg(feature = "cuda")]
impl Planes for Pinned {
    type Source = Arc<Gpu>;
    const NAME: &'static str = "pinned memory of the host";
    fn head(gpu: &Arc<Gpu>, len: usize) -> Result<Region<Pinned>> {
        Region::pinned(gpu, len)
    }
    fn body(gpu: &Arc<Gpu>, len: usize, _notes: &mut Vec<String>) -> Result<Region<Pinned>> {
        Region::pinned(gpu, len)
    }
}

#[cfg(feature = "cuda")]
impl Planes for Device {
    type Source = Arc<Gpu>;
    const NAME: &'static str = "memory of the GPU";
    fn head(gpu: &Arc<Gpu>, len: usize) -> Result<Region<Pinned>> {
        Region::pinned(gpu, len)
    }
    fn body(gpu: &Arc<Gpu>, len: usize, notes: &mut Vec<String>) -> Result<Region<Device>> {
        Region::direct(gpu, len, PAGE, notes)
    }
}
