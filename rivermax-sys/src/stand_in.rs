//! Controls of the stand-in, for tests.
//!
//! Switches belong to a device, which is named by its IP address. Any address of 127.0.0.0/8 is a device, so tests that
//! use different ones do not see each other's switches and packets. What belongs to the process (the PTP clock, Ctrl-C,
//! failures without an address) is for tests that are alone in theirs.
//!
//! For programs that are run as they are, `RIVERMAX_STAND_IN` and other variables do the same: see
//! `stand-in/include/rivermax_stand_in.h`.

use crate::library::Library;
use crate::raw;
use crate::status::Status;
use crate::stream::Stream;
use std::ffi::{CString, c_int};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident = $constant:ident,)*) => {
        $($(#[$doc])* pub const $name: Status = Status::Other(raw::$constant as c_int);)*
    };
}

answers! {
    /// The first argument is wrong.
    INVALID_PARAM_1 = rmx_status_RMX_INVALID_PARAM_1,
    /// No interface has the address.
    NO_SUCH_DEVICE = rmx_status_RMX_NO_SUCH_DEVICE,
    /// No licence.
    LICENSE_REFUSED = rmx_status_RMX_LICENSE_REFUSED,
    /// Too many streams, flows or bytes.
    NO_HARDWARE_RESOURCES = rmx_status_RMX_NO_HARDWARE_RESOURCES,
    /// Memory that is not registered, or cannot be.
    MEMORY_NOT_REGISTERED = rmx_status_RMX_MEMORY_NOT_REGISTERED,
    /// Memory that does not begin at a cache line or, with placement, at a page.
    MEMORY_NOT_ALIGNED = rmx_status_RMX_MEMORY_NOT_ALIGNED,
    /// The stream has the flow already.
    ALREADY_ATTACHED = rmx_status_RMX_ALREADY_ATTACHED,
    /// The stream does not have the flow.
    NOT_ATTACHED = rmx_status_RMX_NOT_ATTACHED,
}

/// How a device behaves: of streams that are created from now on, `after_detach` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// No sockets and no thread: only what [`StandIn::deliver`] and [`StandIn::step`] bring.
    pub manual: bool,
    /// The NIC cannot split: the header block has length 0, packets lie whole in the other one.
    pub no_split: bool,
    /// A slot's payload is written before its header.
    pub payload_first: bool,
    /// So many polls in vain before each chunk.
    pub idle_polls: usize,
    /// Bytes between the largest entry and the next one.
    pub extra_stride: usize,
    /// The capacity is rounded up to a multiple; 0: it is as asked.
    pub capacity_multiple: usize,
    /// What a poll answers when nothing is attached any more and all is read.
    pub after_detach: Status,
    /// Raw time stamps are this many ns off UTC.
    pub raw_clock_offset: i64,
}

impl Default for Device {
    fn default() -> Self {
        Device {
            manual: false,
            no_split: false,
            payload_first: false,
            idle_polls: 0,
            extra_stride: 0,
            capacity_multiple: 0,
            after_detach: Status::Ok,
            raw_clock_offset: 0,
        }
    }
}

/// A UDP packet on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Where it comes from.
    pub source: SocketAddrV4,
    /// Where it goes.
    pub destination: SocketAddrV4,
    /// When it arrives: UTC since 1970 in ns. 0: now.
    pub time: u64,
    /// Its payload, from the RTP header on.
    pub data: &'a [u8],
}

/// What happens to packets on their way into a queue, each to one in so many (0: to none), as the seed says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The same seed, the same faults.
    pub seed: u64,
    /// Lost.
    pub lose: u32,
    /// There twice.
    pub duplicate: u32,
    /// Moved behind others.
    pub reorder: u32,
    /// Behind so many at most.
    pub reorder_by: u32,
    /// Late.
    pub delay: u32,
    /// By so many ns.
    pub delay_ns: u64,
}

/// What a stream has seen since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Slots written, duplicates included.
    pub written: u64,
    /// Packets that no entry holds, dropped in silence.
    pub too_long: u64,
    /// Packets too short for a sequence number, with placement: dropped in silence.
    pub no_header: u64,
    /// Slots written again before their completion was taken.
    pub lapped: u64,
    /// Completions of lapped slots that were dropped in silence.
    pub forgotten: u64,
    /// Packets in chunks.
    pub taken: u64,
}

/// The controls of an open stand-in.
#[derive(Clone, Copy, Debug)]
pub struct StandIn {
    // The calls lead somewhere.
    _library: &'static Library,
}

impl Library {
    /// The controls of the stand-in.
    pub fn stand_in(&'static self) -> StandIn {
        StandIn { _library: self }
    }
}

fn raw_ip(ip: Ipv4Addr) -> u32 {
    u32::from_ne_bytes(ip.octets())
}

fn raw_packets(packets: &[Packet<'_>]) -> Vec<raw::rmx_stand_in_packet> {
    let raw = |p: &Packet<'_>| raw::rmx_stand_in_packet {
        source: raw_ip(*p.source.ip()),
        destination: raw_ip(*p.destination.ip()),
        source_port: p.source.port(),
        destination_port: p.destination.port(),
        time: p.time,
        data: p.data.as_ptr(),
        length: p.data.len(),
    };
    packets.iter().map(raw).collect()
}

fn raw_faults(faults: &Faults) -> raw::rmx_stand_in_faults {
    raw::rmx_stand_in_faults {
        seed: faults.seed,
        lose: faults.lose,
        duplicate: faults.duplicate,
        reorder: faults.reorder,
        reorder_by: faults.reorder_by,
        delay: faults.delay,
        delay_ns: faults.delay_ns,
    }
}

impl StandIn {
    /// How a device behaves.
    pub fn set_device(&self, ip: Ipv4Addr, device: &Device) {
        let raw = raw::rmx_stand_in_device {
            manual: device.manual,
            no_split: device.no_split,
            payload_first: device.payload_first,
            idle_polls: device.idle_polls,
            extra_stride: device.extra_stride,
            capacity_multiple: device.capacity_multiple,
            after_detach: device.after_detach.raw() as raw::rmx_status,
            raw_clock_offset: device.raw_clock_offset,
        };
        // SAFETY: the switches are copied.
        unsafe { raw::rmx_stand_in_set_device(raw_ip(ip), &raw) };
    }

    /// The next `times` calls of this name about a device, or about anything, answer `status`. A poll with
    /// [`Status::ChecksumIssue`] delivers its data. A poll counts only when there is something to be had.
    pub fn fail(&self, ip: Option<Ipv4Addr>, call: &str, status: Status, times: usize) {
        let call = CString::new(call).unwrap_or_default();
        let ip = ip.map_or(0, raw_ip);
        // SAFETY: the name is copied.
        unsafe { raw::rmx_stand_in_fail(ip, call.as_ptr(), status.raw() as raw::rmx_status, times) };
    }

    /// Packets arrive at a device, all of them before this returns. Says how many slots were written.
    pub fn deliver(&self, ip: Ipv4Addr, packets: &[Packet<'_>]) -> usize {
        let raw = raw_packets(packets);
        // SAFETY: the packets are valid for the call.
        unsafe { raw::rmx_stand_in_deliver(raw_ip(ip), raw.as_ptr(), raw.len()) }
    }

    /// Puts packets in the queue of a device. Says how many the queue has now; none when memory is short.
    pub fn queue(&self, ip: Ipv4Addr, packets: &[Packet<'_>], faults: &Faults) -> Option<usize> {
        let raw = raw_packets(packets);
        // SAFETY: the packets and the faults are copied.
        let n = unsafe { raw::rmx_stand_in_queue(raw_ip(ip), raw.as_ptr(), raw.len(), &raw_faults(faults)) };
        n.try_into().ok()
    }

    /// Puts the packets of a capture (pcap, Ethernet, IPv4, UDP) in the queue of a device. None: it cannot be read to
    /// its end.
    pub fn queue_capture(&self, ip: Ipv4Addr, path: &Path, faults: &Faults) -> Option<usize> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the path is valid for the call.
        let n = unsafe { raw::rmx_stand_in_queue_capture(raw_ip(ip), path.as_ptr(), &raw_faults(faults)) };
        n.try_into().ok()
    }

    /// The next packets of the queue arrive. Says how many did: fewer at its end.
    pub fn step(&self, ip: Ipv4Addr, count: usize) -> usize {
        // SAFETY: numbers only.
        unsafe { raw::rmx_stand_in_step(raw_ip(ip), count) }
    }

    /// A thread lets the queue arrive from now on, spaced as its times are. [`Status::Busy`]: it does so already.
    pub fn play(&self, ip: Ipv4Addr) -> Status {
        // SAFETY: a number only.
        Status::from_raw(unsafe { raw::rmx_stand_in_play(raw_ip(ip)) } as c_int)
    }

    /// What a stream has seen.
    pub fn counts(&self, stream: &Stream) -> Counts {
        let mut counts = MaybeUninit::zeroed();
        // SAFETY: valid for the call, and zeros are counts too.
        let counts = unsafe {
            raw::rmx_stand_in_count(stream.id(), counts.as_mut_ptr());
            counts.assume_init()
        };
        Counts {
            written: counts.written,
            too_long: counts.too_long,
            no_header: counts.no_header,
            lapped: counts.lapped,
            forgotten: counts.forgotten,
            taken: counts.taken,
        }
    }

    /// Regions that are registered, in the process.
    pub fn registered(&self) -> usize {
        // SAFETY: no argument.
        unsafe { raw::rmx_stand_in_registered() }
    }

    /// What was done in a wrong order, in the process: memory deregistered twice or under a stream, cleaned up with
    /// streams or memory left, parameters moved.
    pub fn misuse(&self) -> usize {
        // SAFETY: no argument.
        unsafe { raw::rmx_stand_in_misuse() }
    }
}
