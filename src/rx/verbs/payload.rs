//! What a ring's memory has to do with a device: how it is given away, and what the CPU can do there.

use super::failure;
use super::library::{Device, Memory};
use super::ring::Shape;
use crate::error::Result;
#[cfg(feature = "cuda")]
use crate::error::{Error, Kind};
#[cfg(feature = "cuda")]
use crate::mem;
use crate::mem::{CpuAccess, Host, Region, Space};
use crate::ring::SplitRing;
use crate::rx::planes::Planes;
#[cfg(feature = "cuda")]
use std::os::fd::AsFd;
use std::sync::Arc;

/// A space that the payload of packets is written to.
pub trait Payload: Planes {
    /// Packets are cut where nothing else is said: their payload is to go where the CPU does not reach.
    const CUT: bool;
    /// Gives the plane to a device, by the best of its ways; notes say which one, and why no better.
    ///
    /// # Errors
    /// The device cannot write there.
    fn give(
        device: &Arc<Device>,
        body: &Region<Self>,
        from: &Self::Source,
        notes: &mut Vec<String>,
    ) -> Result<Arc<Memory>>;
    /// Copies the beginning of what was cut off behind what was kept, in the head plane; how many octets. None where the CPU
    /// does not reach it.
    fn spill(ring: &mut SplitRing<Self>, shape: &Shape, slot: u32, octets: u16) -> u16;
}

fn registered<M: Space>(device: &Arc<Device>, plane: &Region<M>) -> Result<Arc<Memory>> {
    let mib = plane.len().div_ceil(1 << 20);
    device.register(plane).map_err(|why| failure::call(format_args!("giving {mib} MiB to the device"), why))
}

/// Of memory that the CPU reads and writes.
fn copied<M: CpuAccess<Head = M>>(ring: &mut SplitRing<M>, shape: &Shape, slot: u32, octets: u16) -> u16 {
    let more = octets.saturating_sub(shape.head).min(super::ring::SPILL);
    let (from, to) = (shape.body_at(slot), shape.head_at(slot) + usize::from(shape.head));
    let mut octets = [0; super::ring::SPILL as usize];
    let Some(octets) = octets.get_mut(..usize::from(more)) else { return 0 };
    let Some(source) = ring.body_plane().and_then(|body| body.as_slice().get(from..from + octets.len())) else {
        return 0;
    };
    octets.copy_from_slice(source);
    let Some(target) = ring.head_plane_mut().as_mut_slice().get_mut(to..to + octets.len()) else { return 0 };
    target.copy_from_slice(octets);
    more
}

impl Payload for Host {
    const CUT: bool = false;
    fn give(device: &Arc<Device>, body: &Region<Host>, (): &(), _notes: &mut Vec<String>) -> Result<Arc<Memory>> {
        registered(device, body)
    }
    fn spill(ring: &mut SplitRing<Host>, shape: &Shape, slot: u32, octets: u16) -> u16 {
        copied(ring, shape, slot, octets)
    }
}

#[cfg(feature = "cuda")]
impl Payload for mem::Pinned {
    const CUT: bool = false;
    fn give(
        device: &Arc<Device>,
        body: &Region<mem::Pinned>,
        _gpu: &Arc<crate::gpu::Gpu>,
        _notes: &mut Vec<String>,
    ) -> Result<Arc<Memory>> {
        registered(device, body)
    }
    fn spill(ring: &mut SplitRing<mem::Pinned>, shape: &Shape, slot: u32, octets: u16) -> u16 {
        copied(ring, shape, slot, octets)
    }
}

#[cfg(feature = "cuda")]
impl Payload for mem::Device {
    const CUT: bool = true;
    fn give(
        device: &Arc<Device>,
        body: &Region<mem::Device>,
        gpu: &Arc<crate::gpu::Gpu>,
        notes: &mut Vec<String>,
    ) -> Result<Arc<Memory>> {
        let number = gpu.number();
        let shared = body.dma_buf(gpu).and_then(|dma_buf| {
            let given = device.register_dma_buf(body, body.len(), dma_buf.as_fd());
            given.map_err(|why| failure::call(format_args!("giving memory of GPU {number} as a dma-buf"), why))
        });
        let why = match shared {
            Ok(memory) => {
                notes.push(format!("GPUDirect: payload goes to memory of GPU {number} by dma-buf"));
                return Ok(memory);
            }
            Err(error) => error.in_one_line(),
        };
        match device.register(body) {
            Ok(memory) => {
                notes.push(format!(
                    "GPUDirect: payload goes to memory of GPU {number} by nvidia-peermem; not by dma-buf: {why}"
                ));
                Ok(memory)
            }
            Err(failure) => {
                let error = failure::call(format_args!("giving memory of GPU {number} by nvidia-peermem"), failure);
                let what = format!("{}; by dma-buf: {why}", error.in_one_line());
                Err(Error::new(Kind::Unavailable, what).cure(
                    "install NVIDIA's open kernel modules (dma-buf), or modprobe nvidia-peermem; without them packets go to \
                     pinned memory of the host (docs/verbs.md)",
                ))
            }
        }
    }
    fn spill(_ring: &mut SplitRing<mem::Device>, _shape: &Shape, _slot: u32, _octets: u16) -> u16 {
        0
    }
}
