//! libibverbs by way of `shim.c`: the library, a device, memory that it may write to, a queue, its rules. The structures here
//! are those of `shim.h`.
#![allow(unsafe_code)]

use crate::mem::{Region, Space};
use crate::rx::socket::MAX_LEGS;
use std::any::Any;
use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The call, as the header names it.
    pub call: String,
    /// What errno was; 0 where there is none.
    pub error: i32,
    /// More, where there is more.
    pub text: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.call)?;
        if self.error != 0 {
            write!(f, ": {}", std::io::Error::from_raw_os_error(self.error))?;
        }
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// What a call gives.
pub type Answer<T> = std::result::Result<T, Failure>;

mod raw {
    use super::{Completion, Limits, Rule, c_char};

    /// What `shim.c` keeps to itself.
    macro_rules! opaque {
        ($($name:ident),*) => { $(#[repr(C)] pub struct $name { _nothing: [u8; 0] })* };
    }
    opaque!(Library, Device, Memory, Queue, Flow);

    #[repr(C)]
    pub struct Failure {
        pub error: i32,
        pub call: [c_char; 60],
        pub text: [c_char; 512],
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Plane {
        pub memory: *const Memory,
        pub start: u64,
        pub stride: u32,
        pub octets: u32,
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Wish {
        pub head: Plane,
        pub body: Plane,
        pub port: u32,
        pub entries: u32,
        pub stamps: u32,
        pub events: u32,
    }

    unsafe extern "C" {
        pub fn gdm_verbs_load(path: *const c_char, why: *mut Failure) -> *mut Library;
        pub fn gdm_verbs_devices(library: *const Library, names: *mut c_char, room: u32, why: *mut Failure) -> i32;
        pub fn gdm_verbs_status(library: *const Library, status: u32) -> *const c_char;
        pub fn gdm_verbs_open(
            library: *const Library,
            name: *const c_char,
            limits: *mut Limits,
            why: *mut Failure,
        ) -> *mut Device;
        pub fn gdm_verbs_close(device: *mut Device);
        pub fn gdm_verbs_event(device: *mut Device, event: *mut i32, port: *mut i32) -> i32;
        pub fn gdm_verbs_register(device: *mut Device, start: *mut u8, octets: u64, why: *mut Failure) -> *mut Memory;
        pub fn gdm_verbs_register_dmabuf(
            device: *mut Device,
            fd: i32,
            octets: u64,
            address: u64,
            why: *mut Failure,
        ) -> *mut Memory;
        pub fn gdm_verbs_deregister(memory: *mut Memory);
        pub fn gdm_verbs_queue(
            device: *mut Device,
            wish: *const Wish,
            stamps: *mut u32,
            why: *mut Failure,
        ) -> *mut Queue;
        pub fn gdm_verbs_end(queue: *mut Queue);
        pub fn gdm_verbs_in_error(queue: *mut Queue) -> i32;
        pub fn gdm_verbs_reset(queue: *mut Queue, why: *mut Failure) -> i32;
        pub fn gdm_verbs_post(queue: *mut Queue, slots: *const u32, count: u32, error: *mut i32) -> u32;
        pub fn gdm_verbs_poll(queue: *mut Queue, to: *mut Completion, most: u32) -> i32;
        pub fn gdm_verbs_arm(queue: *mut Queue, why: *mut Failure) -> i32;
        pub fn gdm_verbs_descriptor(queue: *const Queue) -> i32;
        pub fn gdm_verbs_heard(queue: *mut Queue);
        pub fn gdm_verbs_attach(queue: *mut Queue, rule: *const Rule, why: *mut Failure) -> *mut Flow;
        pub fn gdm_verbs_detach(flow: *mut Flow) -> i32;
    }
}

/// What a device takes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Receive entries of a queue at most.
    pub entries: u32,
    /// Pieces of an entry at most.
    pub pieces: u32,
    /// Completions of a queue at most.
    pub completions: u32,
    /// Ports.
    pub ports: u32,
    /// Not 0: it tells whether checksums are right.
    pub checksums: u32,
    _reserved: u32,
    /// Its counter in kHz; 0 where it does not say.
    pub clock_khz: u64,
    /// Bits of a stamp that count.
    pub stamp_mask: u64,
}

/// A packet that came, or an entry that is given back without one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// When it came, as [`Stamping`] says; 0: not known.
    pub stamp: u64,
    /// Where it lies.
    pub slot: u32,
    /// Octets of the frame.
    pub octets: u32,
    /// 0: a packet came.
    pub status: u32,
    /// Not 0: its checksums are right.
    pub checksums: u32,
}

/// `IBV_WC_LOC_LEN_ERR`: the packet is longer than the entry.
pub const TOO_LONG: u32 = 1;
/// `IBV_WC_WR_FLUSH_ERR`: the queue is in error, entries come back.
pub const FLUSHED: u32 = 5;

/// Packets that a queue is to get. Addresses as they are on the wire.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Destination on the Ethernet.
    pub mac: [u8; 6],
    /// VLAN; 0: whichever.
    pub vlan: u16,
    /// Group or own address.
    pub destination: [u8; 4],
    /// Sender; zeros: whoever.
    pub source: [u8; 4],
    /// UDP port.
    pub port: u16,
    /// Port of the device.
    pub device_port: u16,
}

/// Which time stamps completions have, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Stamping {
    /// None.
    None = 0,
    /// The device's counter.
    Ticks = 1,
    /// Nanoseconds of the device's clock.
    Nanos = 2,
}

/// What happened to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It is gone.
    Removed,
    /// The cable of a port is out.
    PortDown(u8),
    /// It is in again.
    PortUp(u8),
    /// A queue is in error.
    Queue,
    /// A completion queue is in error.
    Completions,
    /// Something that does not matter here.
    Other,
}

fn call<T>(make: impl FnOnce(*mut raw::Failure) -> *mut T) -> Answer<NonNull<T>> {
    let mut why = raw::Failure { error: 0, call: [0; 60], text: [0; 512] };
    NonNull::new(make(&mut why)).ok_or_else(|| told(&why))
}

fn told(why: &raw::Failure) -> Failure {
    let text = |octets: &[c_char]| {
        let octets: Vec<u8> = octets.iter().map(|octet| *octet as u8).take_while(|octet| *octet != 0).collect();
        String::from_utf8_lossy(&octets).into_owned()
    };
    Failure { call: text(&why.call), error: why.error, text: text(&why.text) }
}

/// The library; it stays for good.
#[derive(Clone, Copy, Debug)]
pub struct Library(NonNull<raw::Library>);

// SAFETY: a table of functions that nobody changes; libibverbs takes calls from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// What Debian and everybody else calls it.
pub const NAME: &str = "libibverbs.so.1";

impl Library {
    /// Opens it, or finds it open.
    pub fn load(path: Option<&Path>) -> Answer<Self> {
        static OPEN: Mutex<Vec<(PathBuf, Library)>> = Mutex::new(Vec::new());
        let path = path.unwrap_or(Path::new(NAME));
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, library)) = open.iter().find(|(name, _)| name == path) {
            return Ok(*library);
        }
        let name = text(path.as_os_str(), "dlopen")?;
        // SAFETY: a C string; the libraries that are opened so are libibverbs and what stands in for it.
        let library = Library(call(|why| unsafe { raw::gdm_verbs_load(name.as_ptr(), why) })?);
        open.push((path.to_owned(), library));
        Ok(library)
    }

    /// Names of all devices.
    pub fn devices(self) -> Answer<Vec<String>> {
        let mut names = [0 as c_char; 8192];
        let mut why = raw::Failure { error: 0, call: [0; 60], text: [0; 512] };
        // SAFETY: writes a C string of at most so many octets.
        let count =
            unsafe { raw::gdm_verbs_devices(self.0.as_ptr(), names.as_mut_ptr(), names.len() as u32, &mut why) };
        if count < 0 {
            return Err(told(&why));
        }
        // SAFETY: a C string, empty where there is no device.
        let names = unsafe { CStr::from_ptr(names.as_ptr()) }.to_string_lossy();
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// What a status of a completion means.
    pub fn status(self, status: u32) -> String {
        // SAFETY: the library has a text for every number, and keeps it.
        let text = unsafe { raw::gdm_verbs_status(self.0.as_ptr(), status) };
        match NonNull::new(text.cast_mut()) {
            // SAFETY: a C string of the library's own.
            Some(text) => unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned(),
            None => format!("status {status}"),
        }
    }
}

fn text(of: &OsStr, call: &str) -> Answer<CString> {
    CString::new(of.as_bytes()).map_err(|error| Failure { call: call.into(), error: 0, text: error.to_string() })
}

/// A device that is open, with a protection domain.
#[derive(Debug)]
pub struct Device {
    raw: NonNull<raw::Device>,
    library: Library,
    limits: Limits,
}

// SAFETY: the library locks what several threads may change of a device; its events are read by one receiver.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device of this name.
    pub fn open(library: Library, name: &str) -> Answer<Arc<Self>> {
        let name = text(OsStr::new(name), "ibv_open_device")?;
        let mut limits = Limits::default();
        // SAFETY: the library stays; a C string; writes limits.
        let raw = call(|why| unsafe { raw::gdm_verbs_open(library.0.as_ptr(), name.as_ptr(), &mut limits, why) })?;
        Ok(Arc::new(Device { raw, library, limits }))
    }
    /// What it takes.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }
    /// Its library.
    pub const fn library(&self) -> Library {
        self.library
    }
    /// The next thing that happened to it.
    pub fn event(&self) -> Option<Happened> {
        let (mut event, mut port) = (0, 0);
        // SAFETY: the device is open; writes two numbers.
        match unsafe { raw::gdm_verbs_event(self.raw.as_ptr(), &mut event, &mut port) } {
            0 => None,
            1 => Some(match event {
                1 => Happened::Removed,
                2 => Happened::PortDown(port as u8),
                3 => Happened::PortUp(port as u8),
                4 => Happened::Queue,
                5 => Happened::Completions,
                _ => Happened::Other,
            }),
            // Its file answers with errors when the device has gone.
            _ => Some(Happened::Removed),
        }
    }
    /// Gives it a plane to write to, whose owner is kept until that ends.
    pub fn register<M: Space>(self: &Arc<Self>, plane: &Region<M>) -> Answer<Arc<Memory>> {
        let (start, octets) = (plane.as_ptr().cast_mut(), plane.len() as u64);
        // SAFETY: the plane is valid for so long as its owner is kept, which the registration does; the ring that it is part
        // of reads no slot that the device may write to.
        let raw = call(|why| unsafe { raw::gdm_verbs_register(self.raw.as_ptr(), start, octets, why) })?;
        Ok(Arc::new(Memory { raw, _device: self.clone(), _owner: plane.owner() }))
    }
    /// The same by a dma-buf of the plane.
    pub fn register_dma_buf<M: Space>(
        self: &Arc<Self>,
        plane: &Region<M>,
        octets: usize,
        fd: BorrowedFd<'_>,
    ) -> Answer<Arc<Memory>> {
        let (fd, address) = (fd.as_raw_fd(), plane.as_ptr() as u64);
        // SAFETY: the descriptor is open; as above.
        let raw =
            call(|why| unsafe { raw::gdm_verbs_register_dmabuf(self.raw.as_ptr(), fd, octets as u64, address, why) })?;
        Ok(Arc::new(Memory { raw, _device: self.clone(), _owner: plane.owner() }))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: opened in `open`; queues and memory of it hold it.
        unsafe { raw::gdm_verbs_close(self.raw.as_ptr()) };
    }
}

/// Memory that a device may write to.
pub struct Memory {
    raw: NonNull<raw::Memory>,
    // Fields end after `drop`, in this order: the device, then the memory itself.
    _device: Arc<Device>,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: a registration belongs to the process; it is only read, and ended once.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: registered once; queues that use it hold it.
        unsafe { raw::gdm_verbs_deregister(self.raw.as_ptr()) };
    }
}

/// A plane of a ring, as a queue's entries lie in it.
#[derive(Clone)]
pub struct Plane {
    /// The plane.
    pub memory: Arc<Memory>,
    /// Address of the first slot.
    pub start: u64,
    /// Octets from slot to slot.
    pub stride: u32,
    /// Octets of a packet that a slot takes here.
    pub octets: u32,
}

impl Plane {
    fn raw(&self) -> raw::Plane {
        raw::Plane { memory: self.memory.raw.as_ptr(), start: self.start, stride: self.stride, octets: self.octets }
    }
}

/// A queue of raw packets with its completions.
pub struct Queue {
    raw: NonNull<raw::Queue>,
    stamps: Stamping,
    // What it writes to and belongs to, which ends after it.
    _planes: [Option<Plane>; 2],
    _device: Arc<Device>,
}

// SAFETY: a queue is used by one thread at a time (`&mut`), whichever that is.
unsafe impl Send for Queue {}

impl Queue {
    /// Makes one that takes packets at once, where it has entries and rules. `entries` may be posted at most.
    pub fn open(
        device: &Arc<Device>,
        port: u8,
        planes: [Option<Plane>; 2],
        entries: u32,
        stamps: Stamping,
        events: bool,
    ) -> Answer<Self> {
        let none = raw::Plane { memory: std::ptr::null(), start: 0, stride: 0, octets: 0 };
        let [head, body] = &planes;
        let wish = raw::Wish {
            head: head.as_ref().map_or(none, Plane::raw),
            body: body.as_ref().map_or(none, Plane::raw),
            port: port.into(),
            entries,
            stamps: stamps as u32,
            events: events.into(),
        };
        if wish.head.memory.is_null() {
            return Err(Failure { call: "ibv_create_qp".into(), error: libc::EINVAL, text: String::new() });
        }
        let mut got = 0;
        // SAFETY: device and planes are held by the queue; reads the wish, writes a number.
        let raw = call(|why| unsafe { raw::gdm_verbs_queue(device.raw.as_ptr(), &wish, &mut got, why) })?;
        let stamps = match got {
            2 => Stamping::Nanos,
            1 => Stamping::Ticks,
            _ => Stamping::None,
        };
        Ok(Queue { raw, stamps, _planes: planes, _device: device.clone() })
    }
    /// Which stamps come.
    pub const fn stamps(&self) -> Stamping {
        self.stamps
    }
    /// Hands slots to the device; how many it took, and why not all.
    ///
    /// # Safety
    /// The slots lie in the planes, and nobody reads them until their completions come or the queue is reset.
    pub unsafe fn post(&mut self, slots: &[u32]) -> (usize, i32) {
        let mut error = 0;
        // SAFETY: reads so many numbers; what they name is promised by the caller.
        let posted = unsafe { raw::gdm_verbs_post(self.raw.as_ptr(), slots.as_ptr(), slots.len() as u32, &mut error) };
        (posted as usize, error)
    }
    /// Takes what is complete; how many.
    pub fn poll(&mut self, to: &mut [Completion]) -> Answer<usize> {
        // SAFETY: writes at most so many.
        let got = unsafe { raw::gdm_verbs_poll(self.raw.as_ptr(), to.as_mut_ptr(), to.len() as u32) };
        usize::try_from(got).map(|got| got.min(to.len())).map_err(|_| Failure {
            call: "ibv_start_poll".into(),
            error: got.wrapping_neg(),
            text: String::new(),
        })
    }
    /// It is in error, or does not say.
    pub fn in_error(&mut self) -> bool {
        // SAFETY: the queue is open.
        unsafe { raw::gdm_verbs_in_error(self.raw.as_ptr()) != 0 }
    }
    /// Forgets all that was posted and takes entries again.
    pub fn reset(&mut self) -> Answer<()> {
        let mut why = raw::Failure { error: 0, call: [0; 60], text: [0; 512] };
        // SAFETY: the queue is open.
        if unsafe { raw::gdm_verbs_reset(self.raw.as_ptr(), &mut why) } < 0 { Err(told(&why)) } else { Ok(()) }
    }
    /// The next completion makes the descriptor readable, which is given where there is one.
    pub fn arm(&mut self) -> Answer<Option<RawFd>> {
        // SAFETY: the queue is open.
        unsafe { raw::gdm_verbs_heard(self.raw.as_ptr()) };
        let mut why = raw::Failure { error: 0, call: [0; 60], text: [0; 512] };
        // SAFETY: the queue is open.
        if unsafe { raw::gdm_verbs_arm(self.raw.as_ptr(), &mut why) } < 0 {
            return Err(told(&why));
        }
        // SAFETY: the queue is open.
        let fd = unsafe { raw::gdm_verbs_descriptor(self.raw.as_ptr()) };
        Ok((fd >= 0).then_some(fd))
    }
    /// Has it get packets. The rule ends when it is dropped, which has to be before the queue.
    pub fn attach(&mut self, rule: &Rule) -> Answer<Flow> {
        // SAFETY: the queue is open; reads the rule.
        call(|why| unsafe { raw::gdm_verbs_attach(self.raw.as_ptr(), rule, why) }).map(Flow)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: made in `open`; its rules have ended.
        unsafe { raw::gdm_verbs_end(self.raw.as_ptr()) };
    }
}

/// A rule by which a queue gets packets.
pub struct Flow(NonNull<raw::Flow>);

// SAFETY: belongs to the process; it is only ended.
unsafe impl Send for Flow {}

impl Drop for Flow {
    fn drop(&mut self) {
        // SAFETY: made by `attach`, ended once. Of a device that has gone it fails, and there is nothing left to end.
        let _ = unsafe { raw::gdm_verbs_detach(self.0.as_ptr()) };
    }
}

/// Waits until one of them is readable, at most so long.
pub fn wait(fds: &[RawFd; MAX_LEGS], at_most: Duration) {
    let mut list = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // Rounded up: half a millisecond is no spinning.
    let milliseconds = i32::try_from(at_most.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: the list is an array of this length; negative descriptors are left out.
    unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, milliseconds) };
}

/// The program has rights that whoever starts it has not: file capabilities, setuid, setgid.
pub fn has_rights_of_its_own() -> bool {
    // SAFETY: reads a number that the kernel gave the process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_and_one_that_is_another_are_told_apart() {
        let none = Library::load(Some(Path::new("/nowhere/libibverbs.so.1"))).unwrap_err();
        assert!(none.call == "dlopen" && none.text.contains("/nowhere/libibverbs.so.1"), "{none}");
        let other = Library::load(Some(Path::new("libm.so.6"))).unwrap_err();
        assert_eq!(other.call, "dlsym");
        assert!(other.text.starts_with("ibv_get_device_list, ibv_free_device_list, "), "{other}");
        assert!(other.text.ends_with("ibv_wc_status_str"), "all are named: {other}");
    }
}
