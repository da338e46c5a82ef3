//! Memory of the GPU that a network card writes to by itself (GPUDirect RDMA).
//!
//! It is made with CUDA's virtual memory management, from one physical piece, since network drivers register ranges of
//! several pieces up to the end of the first only.
#![allow(unsafe_code)]

use super::Region;
use super::cuda::Device;
use crate::error::{Error, Kind, Result};
use crate::gpu::{Fault, Gpu, check, sys};
use std::ptr::NonNull;
use std::sync::Arc;
use sys::CUdevice_attribute as Attribute;

impl Region<Device> {
    /// Zeroed memory of the GPU that begins at a multiple of `align` (a power of two) and that other devices may be given.
    /// `notes` gets what cannot be known beforehand.
    ///
    /// # Errors
    /// The GPU or its driver cannot do it, BAR1 (the window of the bus) is too small, or there is not so much memory.
    pub fn direct(gpu: &Arc<Gpu>, len: usize, align: usize, notes: &mut Vec<String>) -> Result<Self> {
        capable(gpu)?;
        notes.push(match ordered(gpu)? {
            Order::Kept => format!("GPU {} keeps the order of a card's writes by itself", gpu.number()),
            Order::Asked => format!("GPU {} is asked to end a card's writes before each of our launches", gpu.number()),
        });
        window(gpu, len, notes)?;
        let taken = |fault| refused(gpu, len, fault);
        gpu.bind().map_err(taken)?;
        let driver = Driver { gpu: gpu.clone() };
        let grain = driver.granularity().map_err(taken)?.max(1);
        let octets = len.max(1).checked_next_multiple_of(grain).ok_or_else(|| {
            Error::new(Kind::Unavailable, "no GPU has so much memory").cure("use a smaller ring or fewer streams")
        })?;
        let share = Share::take(gpu, octets)?;
        let mapping = Mapping::new(driver, octets, align.max(grain)).map_err(taken)?;
        // SAFETY: fresh memory of this length.
        check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(mapping.address, 0, octets) }).map_err(taken)?;
        // SAFETY: no argument. The fill runs in the default stream, which others do not wait for.
        check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() }).map_err(taken)?;
        let Some(start) = NonNull::new(mapping.address as *mut u8) else {
            return Err(Error::new(Kind::Unavailable, "the GPU's driver gave no address"));
        };
        // SAFETY: the mapping lives as long as its owner, and nobody else knows it.
        Ok(unsafe { Region::from_owner(start, len, Box::new((mapping, share))) })
    }
}

/// What the GPU and its driver say about themselves.
fn capable(gpu: &Gpu) -> Result<()> {
    let number = gpu.number();
    for (attribute, what) in [
        (Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED, "virtual memory management"),
        (Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, "GPUDirect RDMA"),
        (
            Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
            "GPUDirect RDMA with virtual memory management",
        ),
    ] {
        if gpu.attribute(attribute)? == 0 {
            return Err(Error::new(Kind::Unavailable, format!("GPU {number} ({}) has no {what}", gpu.name()))
                .cure("use a workstation or data-centre GPU, or receive into pinned memory"));
        }
    }
    Ok(())
}

/// How the GPU's work comes to see all that a card has written before its completion was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// It does by itself.
    Kept,
    /// It is to be told to, by [`Gpu::end_writes`].
    Asked,
}

/// By what the driver says of its order (`CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING`) and of how it can be asked for
/// (`…_FLUSH_WRITES_OPTIONS`): none where there is no way for a call of ours.
fn order(kept: i32, ways: i32) -> Option<Order> {
    const OWNER: i32 = sys::CUGPUDirectRDMAWritesOrdering::CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER as i32;
    const HOST: i32 = sys::CUflushGPUDirectRDMAWritesOptions::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST as i32;
    match () {
        // Among its own work, or that of all GPUs: that is more.
        () if kept >= OWNER => Some(Order::Kept),
        () if ways & HOST != 0 => Some(Order::Asked),
        () => None,
    }
}

fn ordered(gpu: &Gpu) -> Result<Order> {
    let kept = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)?;
    let ways = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)?;
    order(kept, ways).ok_or_else(|| {
        let what = format!(
            "GPU {} ({}) does not say when what a card wrote is there: its driver keeps no order of GPUDirect writes, and has \
             no call that asks for it",
            gpu.number(),
            gpu.name()
        );
        Error::new(Kind::Unavailable, what).cure("receive into pinned memory")
    })
}

/// Whether work on memory that a card writes to needs [`Gpu::end_writes`] before it.
///
/// # Errors
/// The driver does not say, or knows no way.
pub fn needs_end_of_writes(gpu: &Gpu) -> Result<bool> {
    Ok(ordered(gpu)? == Order::Asked)
}

/// Compares what is asked for with what the bus's window has left.
fn window(gpu: &Gpu, len: usize, notes: &mut Vec<String>) -> Result<()> {
    let number = gpu.number();
    match gpu.bar1() {
        Ok(bar1) if bar1.free < len as u64 => {
            let [len, free, total] = [len as u64, bar1.free, bar1.total].map(|octets| octets.div_ceil(1 << 20));
            let what = format!("a ring of {len} MiB does not fit BAR1 of GPU {number}: {free} of {total} MiB are free");
            Err(Error::new(Kind::Unavailable, what).cure(
                "use a shorter ring, enable Resizable BAR (Above 4G Decoding) in the BIOS, or receive into pinned memory",
            ))
        }
        Ok(_) => Ok(()),
        Err(why) => {
            notes.push(format!("BAR1 of GPU {number} could not be checked: {why}"));
            Ok(())
        }
    }
}

fn refused(gpu: &Gpu, len: usize, fault: Fault) -> Error {
    let mib = len.div_ceil(1 << 20);
    let left = gpu
        .memory()
        .map_or_else(|_| String::new(), |(free, all)| format!(", {} of {} MiB are free", free >> 20, all >> 20));
    let what = format!("GPU {} gives no {mib} MiB that a network card can write to{left}", gpu.number());
    Error::new(Kind::Unavailable, what)
        .because(fault)
        .cure("free GPU memory (nvidia-smi shows who has it), use a shorter ring, or receive into pinned memory")
}

/// Its part of what this process may use.
struct Share {
    gpu: Arc<Gpu>,
    octets: usize,
}

impl Share {
    fn take(gpu: &Arc<Gpu>, octets: usize) -> Result<Self> {
        gpu.budget().take(octets).map_err(|(used, limit)| {
            let [more, used, limit] = [octets, used, limit].map(|octets| octets.div_ceil(1 << 20));
            let what = format!("{more} MiB more of GPU {}, {used} in use, and {limit} are allowed", gpu.number());
            Error::new(Kind::Unavailable, what).cure("raise --gpu-memory, or receive fewer or smaller streams")
        })?;
        Ok(Share { gpu: gpu.clone(), octets })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.gpu.budget().give_back(self.octets);
    }
}

/// The driver's calls, in the order in which they are made and, in the second half, undone.
trait Calls {
    fn reserve(&self, octets: usize, align: usize) -> std::result::Result<u64, Fault>;
    fn create(&self, octets: usize) -> std::result::Result<u64, Fault>;
    fn map(&self, address: u64, octets: usize, handle: u64) -> std::result::Result<(), Fault>;
    fn allow(&self, address: u64, octets: usize) -> std::result::Result<(), Fault>;
    /// Copies and fills of it end before their calls return, so that what a device writes is never overtaken.
    fn order(&self, address: u64) -> std::result::Result<(), Fault>;
    fn release(&self, handle: u64);
    fn unmap(&self, address: u64, octets: usize);
    fn free(&self, address: u64, octets: usize);
}

/// A range of addresses with memory behind it.
struct Mapping<C: Calls> {
    calls: C,
    address: u64,
    octets: usize,
    mapped: bool,
}

impl<C: Calls> Mapping<C> {
    /// Every step that fails undoes those before it.
    fn new(calls: C, octets: usize, align: usize) -> std::result::Result<Self, Fault> {
        let address = calls.reserve(octets, align)?;
        let mut mapping = Mapping { calls, address, octets, mapped: false };
        let handle = mapping.calls.create(octets)?;
        let mapped = mapping.calls.map(address, octets, handle);
        // What is mapped keeps its memory without the handle.
        mapping.calls.release(handle);
        mapped?;
        mapping.mapped = true;
        mapping.calls.allow(address, octets)?;
        mapping.calls.order(address)?;
        Ok(mapping)
    }
}

impl<C: Calls> Drop for Mapping<C> {
    fn drop(&mut self) {
        if self.mapped {
            self.calls.unmap(self.address, self.octets);
        }
        self.calls.free(self.address, self.octets);
    }
}

struct Driver {
    gpu: Arc<Gpu>,
}

impl Driver {
    fn properties(&self) -> sys::CUmemAllocationProp {
        sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: self.location(),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: 1,
                usage: 0,
                reserved: [0; 4],
            },
        }
    }
    fn location(&self) -> sys::CUmemLocation {
        sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.gpu.device() }
    }
    /// For the whole context. Drivers before CUDA 12.1 cannot; all copies of this crate are ordered by streams, and none
    /// depends on it.
    fn order_all(&self) -> std::result::Result<(), Fault> {
        let (mut version, mut flags) = (0, 0);
        // SAFETY: writes a number.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
        if version < 12_010 {
            return Ok(());
        }
        // SAFETY: writes a number; a context is bound.
        self.gpu.note(check("cuCtxGetFlags", unsafe { sys::cuCtxGetFlags(&mut flags) }))?;
        let flags = flags | sys::CUctx_flags::CU_CTX_SYNC_MEMOPS as u32;
        // SAFETY: the context's own flags and one more, which only makes calls wait longer that wait anyway.
        self.gpu.note(check("cuCtxSetFlags", unsafe { sys::cuCtxSetFlags(flags) }))
    }
    fn granularity(&self) -> std::result::Result<usize, Fault> {
        let (mut octets, properties) = (0, self.properties());
        let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        // SAFETY: writes a number; the properties are whole.
        let code = unsafe { sys::cuMemGetAllocationGranularity(&mut octets, &properties, least) };
        check("cuMemGetAllocationGranularity", code)?;
        Ok(octets)
    }
}

impl Calls for Driver {
    fn reserve(&self, octets: usize, align: usize) -> std::result::Result<u64, Fault> {
        let mut address = 0;
        // SAFETY: writes an address; any range will do.
        let code = unsafe { sys::cuMemAddressReserve(&mut address, octets, align, 0, 0) };
        self.gpu.note(check("cuMemAddressReserve", code)).map(|()| address)
    }
    fn create(&self, octets: usize) -> std::result::Result<u64, Fault> {
        let (mut handle, properties) = (0, self.properties());
        // SAFETY: writes a handle; the properties are whole, and the size is a multiple of their granularity.
        let code = unsafe { sys::cuMemCreate(&mut handle, octets, &properties, 0) };
        self.gpu.note(check("cuMemCreate", code)).map(|()| handle)
    }
    fn map(&self, address: u64, octets: usize, handle: u64) -> std::result::Result<(), Fault> {
        // SAFETY: a range that was reserved, and a handle that was made, of this size.
        self.gpu.note(check("cuMemMap", unsafe { sys::cuMemMap(address, octets, 0, handle, 0) }))
    }
    fn allow(&self, address: u64, octets: usize) -> std::result::Result<(), Fault> {
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location: self.location(), flags };
        // SAFETY: a range that is mapped; one description is read.
        self.gpu.note(check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(address, octets, &access, 1) }))
    }
    fn order(&self, address: u64) -> std::result::Result<(), Fault> {
        let on: u32 = 1;
        let which = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
        // SAFETY: this attribute reads an `unsigned int`; the address is mapped.
        let code = unsafe { sys::cuPointerSetAttribute((&raw const on).cast(), which, address) };
        match code {
            // Drivers know it for other memory than that of virtual memory management, there for a whole context only.
            sys::CUresult::CUDA_ERROR_NOT_SUPPORTED => self.order_all(),
            code => self.gpu.note(check("cuPointerSetAttribute", code)),
        }
    }
    fn release(&self, handle: u64) {
        // SAFETY: made by `create`, and released once.
        let _ = unsafe { sys::cuMemRelease(handle) };
    }
    fn unmap(&self, address: u64, octets: usize) {
        let _ = self.gpu.bind();
        // Unmapping does not wait for work, as freeing would.
        // SAFETY: no argument.
        let _ = unsafe { sys::cuCtxSynchronize() };
        // SAFETY: the whole of what was mapped.
        let _ = unsafe { sys::cuMemUnmap(address, octets) };
    }
    fn free(&self, address: u64, octets: usize) {
        // SAFETY: the whole of what was reserved, with nothing mapped in it.
        let _ = unsafe { sys::cuMemAddressFree(address, octets) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Stream;
    use crate::mem::Pinned;
    use std::cell::RefCell;

    /// Remembers what is held, and fails at one step.
    struct Fake<'a> {
        fails: usize,
        log: &'a RefCell<Vec<&'static str>>,
    }

    impl Fake<'_> {
        fn step(&self, number: usize, name: &'static str) -> std::result::Result<u64, Fault> {
            if self.fails == number {
                return Err(Fault { call: name, code: sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY });
            }
            self.log.borrow_mut().push(name);
            Ok(4096)
        }
    }

    impl Calls for Fake<'_> {
        fn reserve(&self, _: usize, _: usize) -> std::result::Result<u64, Fault> {
            self.step(0, "reserve")
        }
        fn create(&self, _: usize) -> std::result::Result<u64, Fault> {
            self.step(1, "create")
        }
        fn map(&self, _: u64, _: usize, _: u64) -> std::result::Result<(), Fault> {
            self.step(2, "map").map(|_| ())
        }
        fn allow(&self, _: u64, _: usize) -> std::result::Result<(), Fault> {
            self.step(3, "allow").map(|_| ())
        }
        fn order(&self, _: u64) -> std::result::Result<(), Fault> {
            self.step(4, "order").map(|_| ())
        }
        fn release(&self, _: u64) {
            self.log.borrow_mut().push("release");
        }
        fn unmap(&self, _: u64, _: usize) {
            self.log.borrow_mut().push("unmap");
        }
        fn free(&self, _: u64, _: usize) {
            self.log.borrow_mut().push("free");
        }
    }

    #[test]
    fn writes_of_a_card_are_in_order_or_are_asked_to_be() {
        // NONE, OWNER, ALL_DEVICES; no way, by the host, by work of a stream, by both.
        let of = |kept| [0, 1, 2, 3].map(|ways| order(kept, ways));
        assert_eq!(of(0), [None, Some(Order::Asked), None, Some(Order::Asked)]);
        assert_eq!(of(100), [Some(Order::Kept); 4]);
        assert_eq!(of(200), [Some(Order::Kept); 4]);
    }

    #[test]
    fn a_gpu_says_which_it_is_and_can_be_asked() {
        let Some(gpu) = gpu() else { return };
        let kept = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING).unwrap();
        let ways = gpu.attribute(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS).unwrap();
        println!("order {kept}, ways {ways}");
        assert_eq!(needs_end_of_writes(&gpu).unwrap(), kept == 0 && ways & 1 != 0);
        if ways & 1 != 0 {
            gpu.end_writes().unwrap();
        }
    }

    #[test]
    fn a_step_that_fails_gives_everything_back() {
        let whole = ["reserve", "create", "map", "release", "allow", "order", "unmap", "free"];
        for (fails, expected) in [
            (0, &[][..]),
            (1, &["reserve", "free"]),
            (2, &["reserve", "create", "release", "free"]),
            (3, &["reserve", "create", "map", "release", "unmap", "free"]),
            (4, &["reserve", "create", "map", "release", "allow", "unmap", "free"]),
            (5, &whole),
        ] {
            let log = RefCell::default();
            let mapping = Mapping::new(Fake { fails, log: &log }, 4096, 4096);
            assert_eq!(mapping.is_ok(), fails == 5);
            drop(mapping);
            assert_eq!(*log.borrow(), expected, "step {fails} fails");
        }
    }

    fn gpu() -> Option<Arc<Gpu>> {
        Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
    }

    /// Some GPUs have none of it, and say so.
    fn direct(gpu: &Arc<Gpu>, len: usize) -> Option<Region<Device>> {
        let mut notes = Vec::new();
        let region = Region::direct(gpu, len, 4096, &mut notes);
        println!("{notes:?}");
        match region {
            Ok(region) => Some(region),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Unavailable);
                assert!(!error.cure_text().is_empty());
                println!("skipped: {error}");
                None
            }
        }
    }

    #[test]
    fn it_is_memory_of_the_gpu_like_any_other() {
        let Some(gpu) = gpu() else { return };
        let Some(region) = direct(&gpu, 3_000_000) else { return };
        assert_eq!((region.len(), region.address() % 4096), (3_000_000, 0));
        let stream = Stream::new(&gpu, false).unwrap();
        let mut there = Region::<Pinned>::pinned(&gpu, 3_000_000).unwrap();
        let back = Region::<Pinned>::pinned(&gpu, 3_000_000).unwrap();
        // SAFETY: all of them live until the stream has been waited for.
        unsafe { stream.copy(back.address(), region.address(), 3_000_000).unwrap() };
        stream.synchronize().unwrap();
        assert!(back.as_slice().iter().all(|&octet| octet == 0));
        there.as_mut_slice().iter_mut().zip((0..251u8).cycle()).for_each(|(o, v)| *o = v);
        // SAFETY: as above.
        unsafe {
            stream.copy(region.address(), there.address(), 3_000_000).unwrap();
            stream.copy(back.address(), region.address(), 3_000_000).unwrap();
        }
        stream.synchronize().unwrap();
        assert!(back.as_slice() == there.as_slice());
    }

    #[test]
    fn too_much_is_an_error_and_gives_the_budget_back() {
        let Some(gpu) = gpu() else { return };
        let error = Region::direct(&gpu, 1 << 50, 4096, &mut Vec::new()).unwrap_err();
        assert!(!error.cure_text().is_empty(), "{error}");
        assert!(Region::direct(&gpu, usize::MAX, 4096, &mut Vec::new()).is_err());
        // Other tests have memory of their own, which comes and goes: 2^50 octets are none of theirs.
        assert!(gpu.budget().used() < 1 << 49 && !gpu.is_lost());
        // Again and again: neither addresses nor memory run out.
        let (free, _) = gpu.memory().unwrap();
        for _ in 0..64 {
            if direct(&gpu, free / 8).is_none() {
                return;
            }
        }
    }
}
