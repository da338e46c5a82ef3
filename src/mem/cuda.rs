//! Memory that the GPU reaches: pinned, registered, and its own.
#![allow(unsafe_code)]

use super::{CpuAccess, Host, ReadAs, Region, Space};
use crate::error::{Error, Kind, Result};
use crate::gpu::{Fault, Gpu, check, sys};
use std::any::Any;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// Page-locked memory of the host, which the GPU reads and writes at the same address. Never write-combined: the CPU
/// reads headers there.
#[derive(Debug)]
pub enum Pinned {}
impl Space for Pinned {
    type Head = Pinned;
}
impl CpuAccess for Pinned {}

/// Memory of the GPU; the CPU cannot touch it.
#[derive(Debug)]
pub enum Device {}
impl Space for Device {
    type Head = Pinned;
}

impl ReadAs<Host> for Pinned {}
impl ReadAs<Pinned> for Pinned {}
impl ReadAs<Device> for Pinned {}
impl ReadAs<Device> for Device {}

/// A space that the GPU reads and writes, at the address of [`Region::as_ptr`].
pub trait GpuAccess: Space<Head = Pinned> + ReadAs<Device> {
    /// It is the GPU's own memory, so that nothing has to cross the bus.
    const IN_DEVICE: bool;
}
impl GpuAccess for Pinned {
    const IN_DEVICE: bool = false;
}
impl GpuAccess for Device {
    const IN_DEVICE: bool = true;
}

impl<M: GpuAccess> Region<M> {
    /// Where the GPU finds it.
    pub fn address(&self) -> u64 {
        self.as_ptr() as u64
    }
}

/// Where every piece of a [`Slab`] begins, and the length of every device allocation: what exports of memory ask for.
pub const GRAIN: usize = 64 << 10;

impl Region<Pinned> {
    /// Zeroed pinned memory.
    ///
    /// # Errors
    /// The system locks no more memory, or the GPU is lost.
    pub fn pinned(gpu: &Arc<Gpu>, len: usize) -> Result<Self> {
        let refused = |fault: Fault| {
            Error::new(Kind::Unavailable, format!("no pinned memory for {} MiB", len.div_ceil(1 << 20)))
                .because(fault)
                .cure(
                    "free memory, raise the limit of locked memory (ulimit -l, container), or receive a smaller format",
                )
        };
        gpu.bind().map_err(refused)?;
        let mut start = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is bound; freed by the owner.
        gpu.note(check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut start, len.max(1), flags) }))
            .map_err(refused)?;
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(Error::new(Kind::Unavailable, "the GPU's driver gave no address"));
        };
        // SAFETY: fresh memory of this length.
        unsafe { start.as_ptr().write_bytes(0, len.max(1)) };
        let owner = PinnedMemory { gpu: gpu.clone(), start: start.as_ptr().cast() };
        // SAFETY: the driver's allocation lives as long as its owner, and nobody else knows it.
        Ok(unsafe { Region::from_owner(start, len, Box::new(owner)) })
    }

    /// The same memory, for code that knows nothing of GPUs.
    pub fn into_host(self) -> Region<Host> {
        let (start, len) = (NonNull::from(self.as_slice()).cast(), self.len());
        // SAFETY: pinned memory is memory of the host; `self` keeps it and is not reachable otherwise.
        unsafe { Region::from_owner(start, len, Box::new(self)) }
    }

    /// Makes memory that somebody else allocated (huge pages, AF_XDP's UMEM, a pool of mbufs, shared memory) reachable
    /// for the GPU, at its address, until the region is dropped.
    ///
    /// # Errors
    /// The system locks no more memory, part of it is registered already, or the GPU cannot reach it.
    ///
    /// # Safety
    /// As for [`Region::from_owner`]. Where somebody else writes there too (DMA, the kernel's receive calls, a ring that
    /// is handed over part by part), no octet is read while it is written.
    pub unsafe fn register(
        gpu: &Arc<Gpu>,
        start: NonNull<u8>,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let refused = |fault: Fault| {
            Error::new(Kind::Unavailable, format!("{} MiB cannot be pinned for the GPU", len.div_ceil(1 << 20)))
                .because(fault)
                .cure("raise the limit of locked memory (ulimit -l, container)")
        };
        gpu.bind().map_err(refused)?;
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        let raw = start.as_ptr().cast::<c_void>();
        // SAFETY: the range is valid, promised by the caller; unregistered by the owner.
        gpu.note(check("cuMemHostRegister", unsafe { sys::cuMemHostRegister_v2(raw, len, flags) })).map_err(refused)?;
        let registration = Registration { gpu: gpu.clone(), start: raw, _owner: owner };
        let mut address = 0;
        // SAFETY: registered above.
        let code = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, raw, 0) };
        check("cuMemHostGetDevicePointer", code).map_err(refused)?;
        if address != raw as u64 {
            return Err(Error::new(Kind::Unavailable, "this machine maps memory at other addresses for the GPU")
                .cure("run on the CPU (--gpu off)"));
        }
        // SAFETY: as promised by the caller; the registration holds the owner and ends before it.
        Ok(unsafe { Region::from_owner(start, len, Box::new(registration)) })
    }
}

impl Region<Device> {
    /// Zeroed memory of the GPU.
    ///
    /// # Errors
    /// There is not so much.
    pub fn device(gpu: &Arc<Gpu>, len: usize) -> Result<Self> {
        let memory = DeviceMemory::new(gpu, len)?;
        // SAFETY: the allocation lives as long as its owner, and nobody else knows it.
        Ok(unsafe { Region::from_owner(memory.start, len, Box::new(memory)) })
    }
}

/// The driver puts smaller allocations together, and other processes that open one of them see its neighbours.
const ALONE: usize = 2 << 20;

/// Octets from piece to piece, and those of `count` pieces.
fn cut(len: usize, count: usize) -> Result<(usize, usize)> {
    let stride = len.max(1).checked_next_multiple_of(GRAIN);
    stride
        .and_then(|stride| Some((stride, stride.checked_mul(count)?.checked_next_multiple_of(ALONE)?)))
        .ok_or_else(|| Error::new(Kind::Unavailable, "no GPU has so much memory").cure("use fewer or smaller frames"))
}

/// One allocation of the GPU, cut into pieces of equal size: the frames of a pool.
#[derive(Debug)]
pub struct Slab {
    memory: Arc<DeviceMemory>,
    len: usize,
    stride: usize,
    count: usize,
    handed_out: bool,
}

impl Slab {
    /// `count` pieces of `len` octets each.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn new(gpu: &Arc<Gpu>, len: usize, count: usize) -> Result<Self> {
        let (stride, all) = cut(len, count)?;
        Ok(Slab { memory: Arc::new(DeviceMemory::new(gpu, all)?), len, stride, count, handed_out: false })
    }
    /// The pieces, as regions; once, for they are written to.
    pub fn regions(&mut self) -> Vec<Region<Device>> {
        let count = if std::mem::replace(&mut self.handed_out, true) { 0 } else { self.count };
        (0..count)
            .map(|i| {
                // SAFETY: inside of the allocation, `i` being below the count.
                let start = unsafe { self.memory.start.add(i * self.stride) };
                // SAFETY: pieces do not overlap, each is handed out once, and each holds the allocation.
                unsafe { Region::from_owner(start, self.len, Box::new(self.memory.clone())) }
            })
            .collect()
    }
    /// First octet, where the GPU finds it.
    pub fn address(&self) -> u64 {
        self.memory.start.as_ptr() as u64
    }
    /// Octets from one piece to the next.
    pub const fn stride(&self) -> usize {
        self.stride
    }
    /// Octets of a piece.
    pub const fn piece(&self) -> usize {
        self.len
    }
    /// Pieces.
    pub const fn count(&self) -> usize {
        self.count
    }
    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.memory.gpu
    }
    /// Octets of the whole allocation, a multiple of 2 MiB.
    pub fn octets(&self) -> usize {
        self.memory.len
    }
    /// Which piece begins at `address`.
    pub fn index(&self, address: u64) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.address())?).ok()?;
        (offset < self.count * self.stride && offset.is_multiple_of(self.stride)).then_some(offset / self.stride)
    }
}

struct PinnedMemory {
    gpu: Arc<Gpu>,
    start: *mut c_void,
}

// SAFETY: an allocation belongs to the process; the owner only frees it.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let _ = self.gpu.bind();
        // SAFETY: allocated in `pinned`; waits for work that uses it. On a lost GPU it fails, and the memory stays.
        let _ = unsafe { sys::cuMemFreeHost(self.start) };
    }
}

struct Registration {
    gpu: Arc<Gpu>,
    start: *mut c_void,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: a registration belongs to the process; the owner only ends it.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Drop for Registration {
    fn drop(&mut self) {
        let _ = self.gpu.bind();
        // SAFETY: registered in `register`; the memory still exists, its owner goes after this.
        let _ = unsafe { sys::cuMemHostUnregister(self.start) };
    }
}

#[derive(Debug)]
struct DeviceMemory {
    gpu: Arc<Gpu>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: device memory is never touched through this pointer by the CPU.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    fn new(gpu: &Arc<Gpu>, len: usize) -> Result<Self> {
        let refused = |fault: Fault| {
            let mib = |octets: usize| octets >> 20;
            let left = gpu
                .memory()
                .map_or_else(|_| String::new(), |(free, all)| format!(", {} of {} MiB are free", mib(free), mib(all)));
            Error::new(Kind::Unavailable, format!("GPU {} has no {} MiB{left}", gpu.number(), len.div_ceil(1 << 20)))
                .because(fault)
                .cure("free GPU memory (nvidia-smi shows who has it), or choose another GPU (--gpu N) or the CPU (--gpu off)")
        };
        gpu.bind().map_err(refused)?;
        let len = len.max(1).checked_next_multiple_of(GRAIN).unwrap_or(usize::MAX);
        gpu.budget().take(len).map_err(|(used, limit)| {
            let [len, used, limit] = [len, used, limit].map(|octets| octets.div_ceil(1 << 20));
            let what = format!("{len} MiB more of GPU {}, {used} in use, and {limit} are allowed", gpu.number());
            Error::new(Kind::Unavailable, what).cure("raise --gpu-memory, or receive fewer or smaller streams")
        })?;
        let mut address = 0;
        // SAFETY: the context is bound; freed by `drop`.
        let allocated = gpu.note(check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, len) }));
        let start = match (allocated, NonNull::new(address as *mut u8)) {
            (Ok(()), Some(start)) => start,
            (failed, _) => {
                gpu.budget().give_back(len);
                failed.map_err(refused)?;
                return Err(Error::new(Kind::Unavailable, "the GPU's driver gave no address"));
            }
        };
        let memory = DeviceMemory { gpu: gpu.clone(), start, len };
        // SAFETY: fresh memory of this length.
        check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(address, 0, len) }).map_err(refused)?;
        // SAFETY: no argument. The fill runs in the default stream, which others do not wait for.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() }).map_err(refused)?;
        Ok(memory)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let _ = self.gpu.bind();
        // SAFETY: allocated in `new`; waits for work that uses it.
        let _ = unsafe { sys::cuMemFree_v2(self.start.as_ptr() as u64) };
        self.gpu.budget().give_back(self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Stream;

    fn gpu() -> Option<Arc<Gpu>> {
        Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
    }

    #[test]
    fn pieces_that_no_gpu_can_hold_are_an_error() {
        assert_eq!(cut(100_000, 3).unwrap(), (131_072, 2 << 20));
        assert_eq!(cut(0, 2).unwrap(), (65_536, 2 << 20));
        for (len, count) in [(usize::MAX, 1), (usize::MAX / 2, 3), (usize::MAX - GRAIN, 1)] {
            assert_eq!(cut(len, count).unwrap_err().kind(), Kind::Unavailable, "{len} {count}");
        }
    }

    #[test]
    fn octets_go_to_the_gpu_and_come_back() {
        let Some(gpu) = gpu() else { return };
        let stream = Stream::new(&gpu, false).unwrap();
        let mut there = Region::pinned(&gpu, 100_000).unwrap();
        assert!(there.as_slice().iter().all(|&o| o == 0));
        there.as_mut_slice().iter_mut().zip((0..251u8).cycle()).for_each(|(o, v)| *o = v);
        // Registered memory of the host comes back.
        let host = Region::host(100_000).unwrap();
        let start = NonNull::from(host.as_slice()).cast();
        // SAFETY: `host` is moved into the region, which nobody else knows.
        let back = unsafe { Region::register(&gpu, start, host.len(), Box::new(host)) }.unwrap();
        let mut slab = Slab::new(&gpu, 100_000, 3).unwrap();
        let pieces = slab.regions();
        assert_eq!((pieces.len(), slab.regions().len(), slab.stride()), (3, 0, 131_072));
        assert_eq!(slab.index(pieces[2].address()), Some(2));
        assert_eq!(slab.index(pieces[2].address() + 1), None);
        assert_eq!(slab.index(slab.address() + 3 * slab.stride() as u64), None);
        assert_eq!((slab.octets(), slab.count(), slab.piece()), (2 << 20, 3, 100_000));
        // SAFETY: all of them live until the stream has been waited for.
        unsafe {
            stream.copy(pieces[1].address(), there.address(), 100_000).unwrap();
            stream.copy(back.address(), pieces[1].address(), 100_000).unwrap();
        }
        stream.synchronize().unwrap();
        assert!(back.as_slice() == there.as_slice());
        let host = there.into_host();
        assert_eq!(host.as_slice()[250..252], [250, 0]);
    }

    #[test]
    fn too_much_is_an_error_that_says_how_much_there_is() {
        let Some(gpu) = gpu() else { return };
        let error = Region::device(&gpu, 1 << 50).unwrap_err();
        assert!(error.to_string().contains("MiB are free"), "{error}");
        assert!(Slab::new(&gpu, usize::MAX / 2, 3).is_err());
        // More in all than other tests, whose memory comes and goes, have at a time.
        let used = gpu.budget().used();
        for _ in 0..256 {
            let region = Region::device(&gpu, 64 << 20).unwrap();
            assert!(gpu.budget().used() >= region.len());
        }
        let begun = std::time::Instant::now();
        while gpu.budget().used() > used + (8 << 30) {
            assert!(begun.elapsed().as_secs() < 30, "what was given back is still counted");
            std::thread::yield_now();
        }
        assert!(!gpu.is_lost());
    }
}
