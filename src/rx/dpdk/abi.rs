//! The calls of our C shim, and what they mean. The other half is `shim/shim.h`.
#![allow(unsafe_code)]

use crate::mem::{Region, Space};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod port;

pub use port::{Info, Port, Rule, Setup};

const NAME: usize = 64;
/// Packets that one call gives at most, and queues of a port.
pub const BURST: usize = 256;

/// `struct gd_info`.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawInfo {
    driver: [c_char; NAME],
    if_index: u32,
    pci: u32,
    max_queues: u32,
    max_mtu: u32,
    spreads: u32,
    stamps: u32,
    splits: u32,
    mac: [u8; 6],
    headers: u16,
}

/// `struct gd_setup`.
#[repr(C)]
struct RawSetup {
    queues: u16,
    descriptors: u16,
    mtu: u16,
    split: u16,
    stamps: u32,
    isolated: u32,
    pool: *mut c_void,
    bodies: *mut c_void,
}

/// `struct gd_packet`: one as DPDK gave it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Packet {
    data: *const u8,
    body: *const u8,
    buffer: *mut c_void,
    /// Octets of the frame in the first piece.
    pub here: u32,
    /// Octets of the whole frame.
    pub octets: u32,
    /// The card's time stamp; 0 without.
    pub stamp: u64,
    /// How many pieces there are.
    pub pieces: u32,
    /// Octets of the frame in the second piece.
    pub rest: u32,
}

// SAFETY: addresses, which are compared with those of a region and followed by nobody here; DPDK frees from any thread.
unsafe impl Send for Packet {}

impl Packet {
    pub const EMPTY: Packet = Packet {
        data: std::ptr::null(),
        body: std::ptr::null(),
        buffer: std::ptr::null_mut(),
        here: 0,
        octets: 0,
        stamp: 0,
        pieces: 0,
        rest: 0,
    };
    /// Where it begins.
    pub fn data(&self) -> usize {
        self.data as usize
    }
    /// The driver has said the same of its length twice: of all that there is, and piece by piece. More pieces are nobody's.
    pub const fn is_whole(&self) -> bool {
        self.pieces > 2 || self.octets as u64 == self.here as u64 + self.rest as u64
    }
    /// Where the second piece begins; 0 without.
    pub fn body(&self) -> usize {
        self.body as usize
    }
    /// Gives it back to where it came from, which is no pool of ours: those get theirs by [`Pool::give_back`].
    ///
    /// # Safety
    /// It has come by [`Port::receive`], and is given back once.
    pub unsafe fn free(&self) {
        // SAFETY: as promised; without one nothing is done.
        unsafe { gd_free(self.buffer) };
    }
}

/// `struct gd_counts`: what a port has counted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub packets: u64,
    pub missed: u64,
    /// How often a driver found no buffer.
    pub no_buffer: u64,
    pub errors: u64,
}

/// Drivers that lose a packet whenever they find no buffer for it. All others leave it where it is and try again, or count what they
/// asked for: 32 buffers a try (i40e, ice, iavf), in each poll. What is lost then is in `missed`.
const LOSES_WITHOUT_BUFFER: &str = "net_pcap";

impl Counts {
    /// What was added since.
    pub const fn since(self, base: Counts) -> Counts {
        Counts {
            packets: self.packets.saturating_sub(base.packets),
            missed: self.missed.saturating_sub(base.missed),
            no_buffer: self.no_buffer.saturating_sub(base.no_buffer),
            errors: self.errors.saturating_sub(base.errors),
        }
    }
    /// Packets that did not come by this driver.
    pub fn lost(self, driver: &str) -> u64 {
        let no_buffer = if driver == LOSES_WITHOUT_BUFFER { self.no_buffer } else { 0 };
        self.missed.saturating_add(no_buffer).saturating_add(self.errors)
    }
}

/// `struct gd_rule`.
#[repr(C)]
struct RawRule {
    destination: u32,
    source: u32,
    port: u16,
    vlan: u16,
}

unsafe extern "C" {
    fn gd_version() -> *const c_char;
    fn gd_drivers() -> *const c_char;
    fn gd_start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn gd_quiet();
    fn gd_loud();
    fn gd_listen();
    fn gd_said(text: *mut c_char, room: usize) -> usize;
    fn gd_addresses_are_virtual() -> c_int;
    fn gd_gpus() -> c_int;
    fn gd_thread_begin() -> c_int;
    fn gd_thread_end();
    fn gd_pool_octets(count: u32, room: u32) -> u64;
    fn gd_pool_new(start: *mut c_void, octets: u64, count: u32, room: u32, pool: *mut *mut c_void) -> c_int;
    fn gd_pool_over(start: *mut c_void, octets: u64, count: u32, room: u32, pool: *mut *mut c_void) -> c_int;
    fn gd_pool_end(pool: *mut c_void, start: *mut c_void, octets: u64);
    fn gd_pool_left(pool: *const c_void) -> u32;
    fn gd_give_back(pool: *mut c_void, start: *const u8, at: *const u32, count: u32);
    fn gd_reach(port: u16, vfio: c_int, start: *mut c_void, octets: u64) -> c_int;
    fn gd_unreach(port: u16, start: *mut c_void, octets: u64);
    fn gd_port_open(spec: *const c_char, name: *const c_char, port: *mut u16, info: *mut RawInfo) -> c_int;
    fn gd_port_start(port: u16, setup: *const RawSetup) -> c_int;
    fn gd_port_stop(port: u16);
    fn gd_port_close(port: u16);
    fn gd_port_gone(port: u16) -> c_int;
    fn gd_link(port: u16) -> c_int;
    fn gd_receive(port: u16, queue: u16, packets: *mut Packet, most: u32) -> u32;
    fn gd_free(buffer: *mut c_void);
    fn gd_send(port: u16, frame: *const u8, octets: u32) -> c_int;
    fn gd_counts(port: u16, counts: *mut Counts) -> c_int;
    fn gd_clock(port: u16, ticks: *mut u64) -> c_int;
    fn gd_groups(port: u16, addresses: *const u8, count: u32) -> c_int;
    fn gd_rule(port: u16, rule: *const RawRule, handle: *mut *mut c_void, why: *mut c_char, room: usize) -> c_int;
    fn gd_unrule(port: u16, handle: *mut c_void);
}

/// DPDK refused: its errno, and the lines that it logged meanwhile.
#[derive(Debug)]
pub struct Refused {
    pub errno: i32,
    pub said: String,
}

impl fmt::Display for Refused {
    /// What whoever noticed first has said; who passed it on has nothing to add.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.said.lines().find(|line| !is_noise(line)) {
            Some(line) => f.write_str(line.trim()),
            None => io::Error::from_raw_os_error(self.errno).fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

/// Lines that come with every failure of their kind, or with none.
fn is_noise(line: &str) -> bool {
    let line = line.trim();
    line.is_empty()
        || ["Driver cannot attach the device", "Failed to attach device", "libbpf: elf: skipping", "libxdp: No bpffs"]
            .iter()
            .chain(&["libxdp: Can't use dispatcher", "libxdp: Falling back"])
            .any(|noise| line.starts_with(noise))
}

/// DPDK lets one thread at a time change ports and pools; polling needs no lock.
static CHANGING: Mutex<()> = Mutex::new(());

/// Held while something is changed. What DPDK and the libraries beneath it print is collected meanwhile.
struct Change {
    _lock: MutexGuard<'static, ()>,
}

impl Change {
    fn begin() -> Self {
        let lock = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no argument; the lock is held, so that streams are exchanged and given back in pairs.
        unsafe {
            gd_listen();
            gd_quiet();
        }
        Change { _lock: lock }
    }
    /// The result of a call that was made meanwhile.
    fn result(&self, rc: c_int) -> Result<(), Refused> {
        result(rc)
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        // SAFETY: no argument; `begin` has exchanged the streams.
        unsafe { gd_loud() };
    }
}

/// The result of a call, and what was said since the last `gd_listen`.
fn result(rc: c_int) -> Result<(), Refused> {
    if rc >= 0 {
        return Ok(());
    }
    let mut text = [0u8; 1024];
    // SAFETY: writable for this length.
    let len = unsafe { gd_said(text.as_mut_ptr().cast(), text.len()) };
    let said = String::from_utf8_lossy(text.get(..len).unwrap_or_default()).into_owned();
    Err(Refused { errno: -rc, said })
}

/// Such as `DPDK 22.11.11`.
pub fn version() -> &'static str {
    // SAFETY: a text that never changes.
    unsafe { CStr::from_ptr(gd_version()) }.to_str().unwrap_or("DPDK")
}

/// The folder that DPDK takes drivers from by itself.
pub fn drivers() -> &'static str {
    // SAFETY: a text that never changes.
    unsafe { CStr::from_ptr(gd_drivers()) }.to_str().unwrap_or_default()
}

/// The program has more rights than its user (file capabilities, setuid).
pub fn has_raised_rights() -> bool {
    // SAFETY: a number of the kernel's.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Starts the environment. DPDK keeps the words, so they are never freed.
pub fn start(words: &[CString]) -> Result<(), Refused> {
    let copies = words.iter().map(|word| word.clone().into_raw());
    let list: &'static mut [*mut c_char] = copies.chain([std::ptr::null_mut()]).collect::<Vec<_>>().leak();
    // `gd_start` exchanges the streams by itself: there are none before.
    let _lock = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: as many texts as said and a null pointer behind them, for good.
    let rc = unsafe {
        gd_listen();
        gd_start(words.len() as c_int, list.as_mut_ptr())
    };
    result(rc)
}

/// Whether devices are given the addresses of the process.
pub fn addresses_are_virtual() -> bool {
    // SAFETY: no argument; DPDK runs.
    unsafe { gd_addresses_are_virtual() != 0 }
}

/// GPUs that DPDK has a driver for.
pub fn gpus() -> i32 {
    // SAFETY: no argument; DPDK runs.
    unsafe { gd_gpus() }
}

/// Makes DPDK know the calling thread until it ends, so that pools keep some packets for it.
pub fn know_this_thread() {
    struct Known(bool);
    impl Drop for Known {
        fn drop(&mut self) {
            if self.0 {
                // SAFETY: this thread was registered, and ends.
                unsafe { gd_thread_end() };
            }
        }
    }
    thread_local!(static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) });
    // While a thread ends there is nothing to know.
    let _ = KNOWN.try_with(|known| {
        if let Ok(mut known) = known.try_borrow_mut() {
            // SAFETY: no argument; DPDK runs.
            known.get_or_insert_with(|| Known(unsafe { gd_thread_begin() } == 0));
        }
    });
}

/// Octets that `count` packets of `room` octets need, with DPDK's own headers.
pub fn octets_for(count: u32, room: u32) -> usize {
    // SAFETY: numbers.
    usize::try_from(unsafe { gd_pool_octets(count, room) }).unwrap_or(usize::MAX)
}

/// Packet buffers in memory of ours.
pub struct Pool {
    raw: NonNull<c_void>,
    start: usize,
    octets: usize,
    /// A port on `vfio-pci` reaches it, and so do all others: they have one mapping together.
    is_mapped: Arc<AtomicBool>,
}

// SAFETY: pools of DPDK may be used by any thread at any time.
unsafe impl Send for Pool {}
// SAFETY: and by several at once.
unsafe impl Sync for Pool {}

impl Pool {
    /// Over the whole of `region`, which outlives it: whoever calls drops the pool first.
    ///
    /// # Safety
    /// Nobody writes to the region but DPDK, and nobody reads there what no packet of a lease is.
    pub unsafe fn new<M: Space>(region: &mut Region<M>, count: u32, room: u32) -> Result<Self, Refused> {
        let (start, octets) = (region.as_mut_ptr(), region.len());
        let mut raw = std::ptr::null_mut();
        let change = Change::begin();
        // SAFETY: the memory is the caller's, as promised.
        change.result(unsafe { gd_pool_new(start.cast(), octets as u64, count, room, &mut raw) })?;
        Self::of(raw, start, octets)
    }

    /// The same for memory that the CPU cannot touch.
    ///
    /// # Safety
    /// As of [`Pool::new`].
    pub unsafe fn over<M: Space>(region: &mut Region<M>, count: u32, room: u32) -> Result<Self, Refused> {
        let (start, octets) = (region.as_mut_ptr(), region.len());
        let mut raw = std::ptr::null_mut();
        let change = Change::begin();
        // SAFETY: the memory is the caller's, as promised.
        change.result(unsafe { gd_pool_over(start.cast(), octets as u64, count, room, &mut raw) })?;
        Self::of(raw, start, octets)
    }

    fn of(raw: *mut c_void, start: *mut u8, octets: usize) -> Result<Self, Refused> {
        let none = || Refused { errno: libc::ENOMEM, said: String::new() };
        Ok(Pool { raw: NonNull::new(raw).ok_or_else(none)?, start: start as usize, octets, is_mapped: Arc::default() })
    }

    /// Of its memory.
    pub const fn octets(&self) -> usize {
        self.octets
    }
    /// Buffers that nobody has.
    pub fn left(&self) -> u32 {
        // SAFETY: the pool lives.
        unsafe { gd_pool_left(self.raw.as_ptr()) }
    }
    /// Where in its memory an address lies.
    #[inline]
    pub fn place(&self, address: usize) -> Option<u32> {
        let at = address.checked_sub(self.start).filter(|at| *at < self.octets)?;
        u32::try_from(at).ok()
    }
    /// Gives back the packets that lie at these places, once each.
    #[inline]
    pub fn give_back(&self, at: &[u32]) {
        // SAFETY: the pool lives, its memory begins at `start`; places beyond it are left out.
        unsafe { gd_give_back(self.raw.as_ptr(), self.start as *const u8, at.as_ptr(), at.len() as u32) };
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _change = Change::begin();
        // SAFETY: made by `gd_pool_new` over this memory; ports that used it have been closed.
        unsafe { gd_pool_end(self.raw.as_ptr(), self.start as *mut c_void, self.octets as u64) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_noticed_first_is_quoted() {
        let said = |said: &str| Refused { errno: libc::ENODEV, said: said.into() }.to_string();
        assert_eq!(
            said(
                "rte_pmd_init_internals(): no such device\nDriver cannot attach the device (x)\nFailed to attach device on primary process"
            ),
            "rte_pmd_init_internals(): no such device"
        );
        assert_eq!(
            said("libbpf: elf: skipping unrecognized data section(8) .x\n xsk_configure(): no \n"),
            "xsk_configure(): no"
        );
        assert_eq!(said("Failed to attach device on primary process"), "No such device (os error 19)");
    }

    #[test]
    fn losses_count_from_their_base() {
        let of = |packets, missed, no_buffer, errors| Counts { packets, missed, no_buffer, errors };
        assert_eq!(of(100, 12, 7, 3).since(of(40, 10, 4, 2)), of(60, 2, 3, 1));
        // A driver that begins anew.
        assert_eq!(of(1, 0, 0, 0).since(of(40, 10, 4, 2)).lost("net_ice"), 0);
        // Tries are no packets, but of one that takes a packet before it looks for a buffer.
        let tries = of(60, 2, 3_000_000, 1);
        assert_eq!(["net_ice", "net_af_packet", "mlx5_pci"].map(|driver| tries.lost(driver)), [3; 3]);
        assert_eq!(of(60, 0, 5, 1).lost("net_pcap"), 6);
    }

    #[test]
    fn a_packet_is_as_long_as_its_pieces() {
        let of = |octets, here, rest, pieces| Packet { octets, here, rest, pieces, ..Packet::EMPTY };
        assert!(
            of(1400, 1400, 0, 1).is_whole() && of(1400, 74, 1326, 2).is_whole() && of(9000, 2000, 2000, 5).is_whole()
        );
        assert!(!of(1400, 74, 1200, 2).is_whole() && !of(1400, 1000, 0, 1).is_whole());
        assert!(!of(10, u32::MAX, 11, 2).is_whole());
    }
}
