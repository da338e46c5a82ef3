//! The library for this process: devices, clock, registered memory.

use crate::library::Library;
use crate::raw;
use crate::status::{Error, Status, check};
use std::any::Any;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::net::Ipv4Addr;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};

/// How many [`Session`]s there are.
static OPEN: Mutex<usize> = Mutex::new(0);

fn open() -> MutexGuard<'static, usize> {
    OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The library, initialised. The last one of the process cleans up; streams and registrations hold one each.
#[derive(Debug)]
pub struct Session {
    library: &'static Library,
}

impl Session {
    pub(crate) fn open(library: &'static Library) -> Result<Self, Error> {
        let mut sessions = open();
        if *sessions == 0 {
            // SAFETY: the library is open and, by the count, not initialised.
            check("rmx_init", unsafe { raw::rmx_init() })?;
        }
        *sessions += 1;
        Ok(Session { library })
    }

    /// What was opened.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// The port of a NIC that has this address.
    ///
    /// # Errors
    /// None has, or the library cannot use it.
    pub fn iface(&self, ip: Ipv4Addr) -> Result<Iface, Error> {
        let mut raw = Box::new(MaybeUninit::uninit());
        let address = libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
        // SAFETY: both are valid for the call, which fills the first when it answers OK.
        unsafe {
            let status = raw::rmx_retrieve_device_iface_ipv4(raw.as_mut_ptr(), (&raw const address).cast());
            check("rmx_retrieve_device_iface_ipv4", status)?;
            Ok(Iface(Arc::new(Found { raw: raw.assume_init(), ip })))
        }
    }

    /// Makes the NIC's PTP clock the clock of the library, for the process. The second time the library answers
    /// [`Status::Busy`].
    ///
    /// # Errors
    /// As the library answers.
    pub fn use_ptp_clock(&self, iface: &Iface) -> Result<(), Error> {
        let mut params = MaybeUninit::uninit();
        // SAFETY: the first call fills the parameters, and nothing is kept of them or of the interface.
        unsafe {
            raw::rmx_init_ptp_clock(params.as_mut_ptr());
            raw::rmx_set_ptp_clock_device(params.as_mut_ptr(), iface.raw());
            check("rmx_use_ptp_clock", raw::rmx_use_ptp_clock(params.as_mut_ptr()))
        }
    }

    /// The clock has settled.
    ///
    /// # Errors
    /// As the library answers, except busy, which means "not yet".
    pub fn clock_is_steady(&self) -> Result<bool, Error> {
        // SAFETY: the library is initialised.
        match check("rmx_check_clock_steady", unsafe { raw::rmx_check_clock_steady() }) {
            Err(Error { status: Status::Busy, .. }) => Ok(false),
            answer => answer.map(|()| true),
        }
    }

    /// The time of the PTP clock in ns (TAI since 1970).
    ///
    /// # Errors
    /// As the library answers.
    pub fn ptp_time(&self) -> Result<u64, Error> {
        let mut time = 0;
        // SAFETY: the time is valid for the call.
        check("rmx_get_time", unsafe { raw::rmx_get_time(raw::GDMEDIA_TIME_PTP as i64, &mut time) })?;
        Ok(time)
    }

    /// Registers memory with a NIC, for [`DeterminedStream::set_registered`](crate::DeterminedStream::set_registered).
    /// `keep` is what keeps the memory: it is dropped when the memory is deregistered.
    ///
    /// # Safety
    /// The memory is valid for `length` bytes for as long as `keep` lives, and whoever else reads or writes it expects
    /// that the NIC writes to it at any time.
    ///
    /// # Errors
    /// As the library answers: not aligned, not enough to be locked, too much for BAR1.
    pub unsafe fn register(
        &self,
        iface: &Iface,
        address: NonNull<u8>,
        length: usize,
        keep: impl Any + Send + Sync,
    ) -> Result<Registration, Error> {
        let iface = iface.clone();
        let mut region = Box::new(MaybeUninit::zeroed());
        let mut params = MaybeUninit::uninit();
        // SAFETY: the region is a plain record of the library, set by the shim; the memory is the caller's promise.
        unsafe {
            raw::gdmedia_region_set(region.as_mut_ptr(), address.as_ptr().cast(), length);
            raw::rmx_init_mem_registry(params.as_mut_ptr(), iface.raw());
            check("rmx_register_memory", raw::rmx_register_memory(region.as_mut_ptr(), params.as_mut_ptr()))?;
            let keep: Box<dyn Any + Send + Sync> = Box::new(keep);
            let held = ManuallyDrop::new((keep, self.clone()));
            Ok(Registration { region: region.assume_init(), iface, length, held })
        }
    }
}

impl Clone for Session {
    fn clone(&self) -> Self {
        *open() += 1;
        Session { library: self.library }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut sessions = open();
        *sessions -= 1;
        if *sessions == 0 {
            // SAFETY: initialised once for the first session, and this is the last. There is nobody to tell of a
            // failure.
            unsafe { raw::rmx_cleanup() };
        }
    }
}

/// A port of a NIC.
#[derive(Clone)]
pub struct Iface(Arc<Found>);

struct Found {
    // Stays where the library has filled it.
    raw: Box<raw::rmx_device_iface>,
    ip: Ipv4Addr,
}

// SAFETY: a record that the library fills once and only reads afterwards.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

impl Iface {
    /// The address that it was found by.
    pub fn ip(&self) -> Ipv4Addr {
        self.0.ip
    }
    fn raw(&self) -> *const raw::rmx_device_iface {
        &*self.0.raw
    }
}

impl fmt::Debug for Iface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Iface").field(&self.0.ip).finish()
    }
}

/// Memory that a NIC may write to. Streams that use it hold it, so that it is deregistered after they are destroyed.
pub struct Registration {
    pub(crate) region: Box<raw::rmx_mem_region>,
    iface: Iface,
    length: usize,
    // Dropped after the memory is deregistered, the memory first; for good where it was not.
    held: ManuallyDrop<(Box<dyn Any + Send + Sync>, Session)>,
}

// SAFETY: the region is only read once it is registered, and the library may be called from any thread.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("iface", &self.iface).field("length", &self.length).finish_non_exhaustive()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered with this interface, and no stream uses it: each holds the registration. There is nobody
        // to tell of a failure; memory that a NIC has kept is not given back. What is held is dropped once, here.
        unsafe {
            let status = raw::rmx_deregister_memory(&mut *self.region, self.iface.raw());
            if check("rmx_deregister_memory", status).is_ok() {
                ManuallyDrop::drop(&mut self.held);
            }
        }
    }
}
