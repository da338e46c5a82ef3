//! Memory and who may touch it: the space is part of the type.
#![allow(unsafe_code)]

#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "cuda")]
mod direct;
#[cfg(feature = "cuda")]
mod share;

#[cfg(feature = "cuda")]
pub use share::Foreign;

#[cfg(feature = "cuda")]
pub use cuda::{Device, GpuAccess, Pinned, Slab};
#[cfg(feature = "cuda")]
pub(crate) use direct::needs_end_of_writes;

use crate::error::{Error, Kind, Result};
use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

/// A memory space.
pub trait Space: Send + Sync + 'static {
    /// Where the head plane of a ring in this space lies: always readable by the CPU.
    type Head: CpuAccess;
}

/// A space that the CPU reads and writes.
pub trait CpuAccess: Space {}

/// Ordinary memory.
#[derive(Debug)]
pub enum Host {}
impl Space for Host {
    type Head = Host;
}
impl CpuAccess for Host {}

/// Whoever may read memory of `F` may read memory of this space, at the same addresses.
pub trait ReadAs<F: Space>: Space {}
impl ReadAs<Host> for Host {}

/// A piece of memory in one space, with the owner that keeps it alive.
pub struct Region<M: Space> {
    start: NonNull<u8>,
    len: usize,
    owner: Arc<dyn Any + Send + Sync>,
    _space: PhantomData<M>,
}

// SAFETY: the region owns its memory (through `owner`); shared access only reads, exclusive access is by `&mut`.
unsafe impl<M: Space> Send for Region<M> {}
// SAFETY: as above.
unsafe impl<M: Space> Sync for Region<M> {}

impl<M: Space> Region<M> {
    /// Octets.
    pub const fn len(&self) -> usize {
        self.len
    }
    /// No octets.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// First octet; dereferencing it is the business of the space.
    pub const fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }
    /// First octet, for writing.
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
    /// Memory that somebody else allocated.
    ///
    /// # Safety
    /// `start .. start + len` belongs to space `M`, is initialised, stays valid while `owner` lives and is touched by
    /// nobody else (DMA and the kernel's receive calls excepted, on the terms of the ring that it becomes part of).
    pub unsafe fn from_owner(start: NonNull<u8>, len: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        Region { start, len, owner: owner.into(), _space: PhantomData }
    }
    /// The same memory for whoever reads it from elsewhere; it stays as long as that.
    pub(crate) fn view<F: Space>(&self) -> View<F>
    where
        M: ReadAs<F>,
    {
        View { start: self.start, len: self.len, _owner: self.owner(), _space: PhantomData }
    }
    /// A second region over the same memory, which stays as long as either.
    ///
    /// # Safety
    /// Nothing is written by way of either.
    pub(crate) unsafe fn again(&self) -> Self {
        Region { start: self.start, len: self.len, owner: self.owner(), _space: PhantomData }
    }
    /// What keeps the memory alive, for whoever looks at it by other ways than this.
    pub(crate) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        self.owner.clone()
    }
}

/// Memory of a region, for reading alone. Others may write there meanwhile (a network card): who reads it finds out
/// afterwards whether they did.
pub(crate) struct View<M: Space> {
    start: NonNull<u8>,
    len: usize,
    _owner: Arc<dyn Any + Send + Sync>,
    _space: PhantomData<M>,
}

// SAFETY: `_owner` keeps the memory, which is only read.
unsafe impl<M: Space> Send for View<M> {}
// SAFETY: as above.
unsafe impl<M: Space> Sync for View<M> {}

impl<M: Space> std::fmt::Debug for View<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({} octets at {:p})", self.len, self.start)
    }
}

impl<M: Space> View<M> {
    /// Octet `at`, which lies in it; dereferencing it is the business of the space.
    pub fn octet(&self, at: usize) -> *const u8 {
        // Never outside of the allocation.
        self.start.as_ptr().wrapping_add(at.min(self.len))
    }
}

impl<M: CpuAccess> View<M> {
    /// For reading.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `_owner` keeps `len` initialised octets at `start`, readable by the CPU. Those that others write meanwhile
        // have any value, and whoever reads them relies on none before it has asked whether they were written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<M: CpuAccess> Region<M> {
    /// For reading.
    #[inline]
    pub const fn as_slice(&self) -> &[u8] {
        // SAFETY: the region owns `len` initialised octets at `start`; `M` is readable by the CPU.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
    /// For writing.
    #[inline]
    pub const fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<M: Space> std::fmt::Debug for Region<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({} octets at {:p})", self.len, self.start)
    }
}

impl Region<Host> {
    /// Zeroed pages, every one of them touched (no page fault later), in huge pages where the kernel gives them.
    pub fn host(len: usize) -> Result<Self> {
        let map = Map::new(len.max(1))?;
        let start = map.start;
        // SAFETY: `map` owns at least `len` zeroed octets at `start` and moves into the region.
        Ok(unsafe { Region::from_owner(start, len, Box::new(map)) })
    }
}

thread_local! {
    /// Where this thread takes memory of the host from; none: where the kernel does.
    static NODE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Until it is dropped this thread takes memory of the host ([`Region::host`]) from one NUMA node, as far as that has any: the
/// one of the thread that is going to use it. Threads that it starts meanwhile do not. Where the kernel refuses (a container
/// without `mbind`), memory comes from the node that this thread runs on.
#[derive(Debug)]
pub struct Near {
    before: Option<u32>,
    /// It is this thread's.
    _here: PhantomData<*const ()>,
}

/// See [`Near`]; none changes nothing.
pub fn near(node: Option<u32>) -> Near {
    let before = NODE.get();
    NODE.set(node.or(before));
    Near { before, _here: PhantomData }
}

impl Drop for Near {
    fn drop(&mut self) {
        NODE.set(self.before);
    }
}

/// An anonymous mapping.
struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Map {}
// SAFETY: as above; `Map` itself never reads or writes it after `new`.
unsafe impl Sync for Map {}

const HUGE: usize = 2 << 20;

impl Map {
    fn new(len: usize) -> Result<Self> {
        let refused = || {
            Error::new(Kind::Unavailable, format!("no memory for {} MiB", len.div_ceil(1 << 20)))
                .because(std::io::Error::last_os_error())
                .cure("free memory, raise the memory limit (ulimit -v, container), or receive a smaller format")
        };
        let align = if len >= HUGE { HUGE } else { 4096 };
        let len = len.checked_next_multiple_of(align).ok_or_else(refused)?;
        // The kernel aligns to small pages only, so map more and give the ends back.
        let mapped = len.checked_add(align - 4096).ok_or_else(refused)?;
        // SAFETY: a new anonymous mapping; nothing else can be affected.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(refused());
        }
        let start = start.cast::<u8>();
        let before = start.align_offset(align);
        let after = mapped - len - before;
        // SAFETY: both ends lie in the mapping made above, outside of the part that is kept.
        let start = unsafe {
            if before > 0 {
                libc::munmap(start.cast(), before);
            }
            if after > 0 {
                libc::munmap(start.add(before + len).cast(), after);
            }
            start.add(before)
        };
        let start = NonNull::new(start).ok_or_else(refused)?;
        let map = Map { start, len };
        if let Some(node) = NODE.get() {
            prefer(&map, node);
        }
        // SAFETY: advice on and writes to our own fresh mapping.
        unsafe {
            libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE);
            for page in (0..len).step_by(4096) {
                start.as_ptr().add(page).write_volatile(0);
            }
        }
        Ok(map)
    }
}

/// Pages of a mapping that nobody has touched come from this node, as long as it has any.
fn prefer(map: &Map, node: u32) {
    // MPOL_PREFERRED of linux/mempolicy.h; nodes are bits.
    const PREFERRED: libc::c_int = 1;
    const BITS: u32 = 1024;
    if node >= BITS {
        return;
    }
    let mut nodes = [0u64; BITS as usize / 64];
    nodes[(node / 64) as usize] = 1 << (node % 64);
    // The kernel takes one bit less than it is told.
    let bits = libc::c_ulong::from(BITS) + 1;
    // SAFETY: a hint on a mapping of our own; `nodes` outlives the call and has `BITS` bits. What is refused changes nothing.
    unsafe {
        libc::syscall(libc::SYS_mbind, map.start.as_ptr(), map.len, PREFERRED, nodes.as_ptr(), bits, 0);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this range, and nobody else holds it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says of the memory at an address: how it is taken, and from which of the first 64 nodes.
    fn policy(at: *const u8) -> Option<(libc::c_int, u64)> {
        const ADDRESS: libc::c_ulong = 2;
        let (mut mode, mut nodes) = (-1, [0u64; 17]);
        // SAFETY: writes a number and 1024 bits, for which there is room.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut mode,
                nodes.as_mut_ptr(),
                1024 as libc::c_ulong,
                at,
                ADDRESS,
            )
        };
        (rc == 0).then_some((mode, nodes[0]))
    }

    #[test]
    fn memory_comes_from_the_node_that_is_asked_for() {
        let anywhere = Region::host(1 << 16).unwrap();
        let Some(default) = policy(anywhere.as_ptr()) else {
            println!("skipped: the kernel tells no memory policy here");
            return;
        };
        let guard = near(Some(0));
        let there = Region::host(1 << 16).unwrap();
        // A thread that begins meanwhile has nothing to do with it.
        let other = std::thread::spawn(|| Region::host(1 << 16).unwrap()).join().unwrap();
        // Twice, and nothing in between.
        let inner = near(None);
        let too = Region::host(3 << 20).unwrap();
        drop((inner, guard));
        let after = Region::host(1 << 16).unwrap();
        // MPOL_PREFERRED, node 0.
        assert_eq!([&there, &too].map(|region| policy(region.as_ptr())), [Some((1, 1)); 2]);
        assert_eq!([&other, &after].map(|region| policy(region.as_ptr())), [Some(default); 2]);
        assert!(there.as_slice().iter().chain(too.as_slice()).all(|octet| *octet == 0));
    }

    #[test]
    fn a_node_that_is_not_there_is_no_obstacle() {
        for node in [63, 1023, 1024, u32::MAX] {
            let _guard = near(Some(node));
            assert_eq!(Region::host(1 << 16).unwrap().len(), 1 << 16);
        }
    }

    #[test]
    fn host_memory_is_zeroed_and_writable() {
        let mut region = Region::host(5_000_000).unwrap();
        assert_eq!(region.len(), 5_000_000);
        assert!(region.as_slice().iter().all(|&b| b == 0));
        region.as_mut_slice()[4_999_999] = 7;
        assert_eq!(region.as_slice()[4_999_999], 7);
    }

    #[test]
    fn large_regions_begin_at_a_huge_page() {
        for len in [HUGE, 5_000_000, 3 * HUGE] {
            assert_eq!(Region::host(len).unwrap().as_ptr().align_offset(HUGE), 0);
        }
        assert_eq!(Region::host(100).unwrap().as_ptr().align_offset(4096), 0);
    }

    #[test]
    fn an_impossible_size_is_an_error_with_a_cure() {
        let error = Region::host(usize::MAX - 4096).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.to_string().contains("cure"));
    }
}
