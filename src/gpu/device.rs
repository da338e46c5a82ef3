//! GPUs: finding one, and holding its primary context.
#![allow(unsafe_code)]

use super::budget::Budget;
use super::driver::{self, Fault, check};
use super::{Choice, Found, near};
use crate::error::{Error, Kind, Result};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// One GPU and its primary context, which all of a process shares (with GStreamer, NVENC and others as well). Held once
/// a process: opening it again gives the same.
pub struct Gpu {
    number: u32,
    device: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    address: String,
    compute: (i32, i32),
    driver: i32,
    lost: AtomicBool,
    budget: Budget,
}

// SAFETY: a context belongs to the process; every thread binds it before it calls.
unsafe impl Send for Gpu {}
// SAFETY: as above; the driver's calls may come from many threads at once.
unsafe impl Sync for Gpu {}

/// The GPUs that are open.
static OPEN: Mutex<Vec<Weak<Gpu>>> = Mutex::new(Vec::new());

impl Gpu {
    /// Opens GPU `number`, as CUDA counts them.
    ///
    /// # Errors
    /// No driver, no such GPU, or it cannot be used.
    pub fn open(number: u32) -> Result<Arc<Self>> {
        let driver = driver::start()?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|gpu| gpu.strong_count() > 0);
        if let Some(gpu) = open.iter().filter_map(Weak::upgrade).find(|gpu| gpu.number == number) {
            return Ok(gpu);
        }
        let count = count()?;
        if number >= count {
            let have = if count == 1 { "the only one is 0".into() } else { format!("they are 0 to {}", count - 1) };
            return Err(Error::new(Kind::Unavailable, format!("there is no GPU {number}: {have}"))
                .cure("choose one of them with --gpu, or leave it to --gpu auto"));
        }
        let refused = |fault: Fault| Error::from(fault);
        let mut device = 0;
        // SAFETY: `number` is below the count of devices.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, number as c_int) }).map_err(refused)?;
        let compute = (
            attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).map_err(refused)?,
            attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).map_err(refused)?,
        );
        let name = name_of(device).map_err(refused)?;
        if compute < (7, 5) {
            let (major, minor) = compute;
            let what = format!("GPU {number} ({name}) has compute capability {major}.{minor}, needed is 7.5");
            return Err(Error::new(Kind::Unavailable, what).cure("use a GPU of the Turing generation or later"));
        }
        let address = address_of(device);
        let mut context = std::ptr::null_mut();
        // SAFETY: a valid device; released by `drop`.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })
            .map_err(refused)?;
        let address = address.unwrap_or_default();
        let gpu = Arc::new(Gpu {
            number,
            device,
            context,
            name,
            address,
            compute,
            driver,
            lost: false.into(),
            budget: Budget::default(),
        });
        gpu.bind().map_err(refused)?;
        open.push(Arc::downgrade(&gpu));
        Ok(gpu)
    }

    /// Opens the GPU of this [`Gpu::uuid`], whatever its number is in this process.
    ///
    /// # Errors
    /// As for [`Gpu::open`], or this process does not see it.
    pub fn open_uuid(uuid: [u8; 16]) -> Result<Arc<Self>> {
        driver::start()?;
        for number in 0..count()? {
            let mut device = 0;
            // SAFETY: `number` is below the count of devices.
            check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, number as c_int) })?;
            if uuid_of(device) == Ok(uuid) {
                return Gpu::open(number);
            }
        }
        Err(Error::new(Kind::Unavailable, "this process does not see the GPU that is meant")
            .cure("check CUDA_VISIBLE_DEVICES and the devices given to a container"))
    }

    /// Makes its context the calling thread's.
    ///
    /// # Errors
    /// The context is gone.
    #[inline]
    pub fn bind(&self) -> std::result::Result<(), Fault> {
        // SAFETY: the context is retained until `drop`.
        self.note(check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) }))
    }

    /// Passes a result on, and remembers a fault after which the GPU is of no more use.
    #[inline]
    pub fn note<T>(&self, result: std::result::Result<T, Fault>) -> std::result::Result<T, Fault> {
        if let Err(fault) = &result
            && fault.is_lost()
        {
            self.lost.store(true, Relaxed);
        }
        result
    }

    /// A fault said that the GPU is of no more use to this process.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }
    /// As CUDA counts them.
    pub const fn number(&self) -> u32 {
        self.number
    }
    /// Such as `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Its PCI address, `0000:1B:00.0`; empty where the driver has none.
    pub fn address(&self) -> &str {
        &self.address
    }
    /// What tells it from all other GPUs (a slice of one has its own), whatever number a process gives it.
    ///
    /// # Errors
    /// The driver has none.
    pub fn uuid(&self) -> std::result::Result<[u8; 16], Fault> {
        uuid_of(self.device)
    }
    /// Compute capability.
    pub const fn compute(&self) -> (i32, i32) {
        self.compute
    }
    /// The CUDA version of the driver, as 1000 * major + 10 * minor.
    pub const fn driver_version(&self) -> i32 {
        self.driver
    }
    /// The driver's context.
    pub const fn context(&self) -> sys::CUcontext {
        self.context
    }
    /// The driver's number of the device.
    pub const fn device(&self) -> sys::CUdevice {
        self.device
    }
    /// One of its attributes.
    ///
    /// # Errors
    /// The driver does not know the attribute.
    pub fn attribute(&self, which: Attribute) -> std::result::Result<i32, Fault> {
        attribute(self.device, which)
    }
    /// What cards have written to its memory, as far as their completions were seen, is there for all work that it is given from now
    /// on. Of the context that is bound; under a microsecond.
    ///
    /// # Errors
    /// The GPU cannot be asked, or is lost.
    #[inline]
    pub fn end_writes(&self) -> std::result::Result<(), Fault> {
        let target = sys::CUflushGPUDirectRDMAWritesTarget::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX;
        let scope = sys::CUflushGPUDirectRDMAWritesScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER;
        // SAFETY: numbers; a context is bound.
        self.note(check("cuFlushGPUDirectRDMAWrites", unsafe { sys::cuFlushGPUDirectRDMAWrites(target, scope) }))
    }
    /// Octets of its memory: free, and all.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn memory(&self) -> std::result::Result<(usize, usize), Fault> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers; the context is bound.
        self.note(check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) }))?;
        Ok((free, total))
    }
    /// What this process may use of its memory, and does.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }
    /// For the start block: `NVIDIA H200 (GPU 0, CUDA 13.0, 139 GiB)`.
    pub fn describe(&self) -> String {
        let memory = self.memory().map_or_else(|_| String::new(), |(_, all)| format!(", {} GiB", all >> 30));
        let (major, minor) = (self.driver / 1000, self.driver % 1000 / 10);
        format!("{} (GPU {}, CUDA {major}.{minor}{memory})", self.name, self.number)
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gpu({} {})", self.number, self.name)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`. Everything made in the context holds an `Arc` of this, so it is gone.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// The GPU that `--gpu` asks for; on `auto` the one nearest to `interface`.
///
/// # Errors
/// One is required and cannot be had.
pub fn choose(choice: Choice, interface: Option<&str>) -> Result<Found> {
    let found = match choice {
        Choice::Off => return Ok(Found { gpu: None, why: "not used: --gpu off".into() }),
        Choice::Index(number) => Gpu::open(number).map(|gpu| (gpu, "as --gpu says".to_owned())),
        Choice::Auto | Choice::Require => nearest(interface),
    };
    match found {
        Ok((gpu, why)) => Ok(Found { why: format!("{}, {why}", gpu.describe()), gpu: Some(gpu) }),
        Err(error) if choice.required() => Err(error),
        // Most machines have none, which needs no cure.
        Err(error) => {
            let text = error.to_string();
            Ok(Found { gpu: None, why: format!("none: {}", text.lines().next().unwrap_or_default()) })
        }
    }
}

/// The first GPU that can be opened, nearest to `interface` first.
fn nearest(interface: Option<&str>) -> Result<(Arc<Gpu>, String)> {
    driver::start()?;
    let count = count()?;
    if count == 1 {
        return Ok((Gpu::open(0)?, "the only one".into()));
    }
    let nic = interface.and_then(near::of_interface);
    let mut order: Vec<(usize, u32)> = (0..count)
        .map(|number| {
            let place = address(number).and_then(|a| near::of_pci(&a));
            let steps = nic.as_ref().zip(place).map_or(0, |(nic, gpu)| near::shared(nic, &gpu));
            (steps, number)
        })
        .collect();
    order.sort_by_key(|&(steps, number)| (std::cmp::Reverse(steps), number));
    let why = match (interface, &nic) {
        (Some(name), Some(_)) => format!("of {count} the nearest to {name}"),
        _ => format!("the first of {count}"),
    };
    let mut failed = None;
    for (_, number) in order {
        match Gpu::open(number) {
            Ok(gpu) => return Ok((gpu, failed.map_or(why, |_| "the first that can be opened".into()))),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(none))
}

fn none() -> Error {
    Error::new(Kind::Unavailable, "the NVIDIA driver sees no GPU")
        .cure("check nvidia-smi, and CUDA_VISIBLE_DEVICES and the devices given to a container")
}

/// How many GPUs there are; at least one.
fn count() -> Result<u32> {
    let mut count = 0;
    // SAFETY: writes a number; the driver has been started.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut count) })?;
    u32::try_from(count).ok().filter(|&n| n > 0).ok_or_else(none)
}

/// The numbers and names of all GPUs.
///
/// # Errors
/// No driver or no GPU.
pub fn list() -> Result<Vec<(u32, String)>> {
    driver::start()?;
    let name = |number: u32| {
        let mut device = 0;
        // SAFETY: below the count of devices.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, number as c_int) })?;
        name_of(device)
    };
    Ok((0..count()?).map(|n| (n, name(n).unwrap_or_else(|fault| fault.to_string()))).collect())
}

/// The PCI address of a GPU that need not be open.
fn address(number: u32) -> Option<String> {
    let mut device = 0;
    // SAFETY: below the count of devices.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&mut device, number as c_int) }).ok()?;
    address_of(device).ok()
}

fn name_of(device: sys::CUdevice) -> std::result::Result<String, Fault> {
    // SAFETY: writes at most `n` octets; the device is valid.
    text("cuDeviceGetName", |p, n| unsafe { sys::cuDeviceGetName(p, n, device) })
}

fn address_of(device: sys::CUdevice) -> std::result::Result<String, Fault> {
    // SAFETY: as above.
    text("cuDeviceGetPCIBusId", |p, n| unsafe { sys::cuDeviceGetPCIBusId(p, n, device) })
}

fn uuid_of(device: sys::CUdevice) -> std::result::Result<[u8; 16], Fault> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: writes 16 octets; the device is valid.
    check("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) })?;
    Ok(uuid.bytes.map(|octet| octet as u8))
}

fn attribute(device: sys::CUdevice, which: Attribute) -> std::result::Result<i32, Fault> {
    let mut value = 0;
    // SAFETY: writes a number; the device is valid.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, device) })?;
    Ok(value)
}

/// A text that the driver writes into memory of ours.
fn text(
    call: &'static str,
    read: impl FnOnce(*mut c_char, c_int) -> sys::CUresult,
) -> std::result::Result<String, Fault> {
    let mut octets = [0u8; 256];
    check(call, read(octets.as_mut_ptr().cast(), octets.len() as c_int - 1))?;
    Ok(CStr::from_bytes_until_nul(&octets).map(|s| s.to_string_lossy().into_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_is_off_and_auto_says_why() {
        let off = choose(Choice::Off, None).unwrap();
        assert!(off.gpu.is_none() && off.why.contains("--gpu off"));
        let auto = choose(Choice::Auto, Some("lo")).unwrap();
        assert!(!auto.why.is_empty());
        match auto.gpu {
            Some(gpu) => {
                assert!(Arc::ptr_eq(&gpu, &Gpu::open(gpu.number()).unwrap()), "a GPU is opened once");
                let (free, all) = gpu.memory().unwrap();
                assert!(Arc::ptr_eq(&gpu, &Gpu::open_uuid(gpu.uuid().unwrap()).unwrap()));
                assert!(Gpu::open_uuid([0; 16]).is_err());
                assert!(free <= all && gpu.compute() >= (7, 5) && !gpu.is_lost());
                let error = Gpu::open(4096).unwrap_err();
                assert!(error.to_string().contains("there is no GPU 4096"), "{error}");
            }
            None => {
                println!("skipped: no CUDA device: {}", auto.why);
                for choice in [Choice::Require, Choice::Index(0)] {
                    let error = choose(choice, None).unwrap_err();
                    assert_eq!(error.kind(), Kind::Unavailable);
                    assert!(!error.cure_text().is_empty());
                }
            }
        }
    }
}
