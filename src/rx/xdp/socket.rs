//! One AF_XDP socket: a queue of an interface, with its fill ring and its receive ring.
#![allow(unsafe_code)]

use super::options::BusyPoll;
use super::ring::{Consumer, Producer, Shared};
use super::umem::Frames;
use libc::{SOL_XDP, XDP_COPY, XDP_USE_NEED_WAKEUP, XDP_ZEROCOPY};
use std::any::Any;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// A received packet, as the ring has it.
pub type Descriptor = libc::xdp_desc;

/// A socket that is bound to no queue yet.
///
/// # Errors
/// Needs CAP_NET_RAW.
pub fn new() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let raw = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: made above.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// What a queue has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Too large for a frame, or no frame was free.
    pub dropped: u64,
    /// The receive ring was full.
    pub ring_full: u64,
    /// Times that the fill ring was found empty.
    pub fill_empty: u64,
}

/// A queue that receives.
pub struct Queue {
    fd: OwnedFd,
    /// Its number.
    pub number: u32,
    rings: Rings,
    statistics: Statistics,
    /// Packets that came by it.
    pub packets: u64,
    /// Packets go from the card to the frame without a copy.
    pub zero_copy: bool,
    busy: bool,
}

/// Whether zero copy is wanted; without a wish it is tried first.
pub type ZeroCopy = Option<bool>;

impl Queue {
    /// Registers the memory of `frames`, makes rings of `entries` and binds `fd` to a queue. `refusal` gets the reason why
    /// packets are copied although they need not be. A queue that another socket has is waited for `until` then.
    ///
    /// # Safety
    /// The memory of `frames` lives longer than the queue, and nobody but the kernel writes there to frames that were put
    /// into the fill ring and have not come back.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn open(
        fd: OwnedFd,
        ifindex: u32,
        number: u32,
        frames: &Frames,
        entries: u32,
        zero_copy: ZeroCopy,
        until: Instant,
        refusal: &mut Option<io::Error>,
    ) -> io::Result<Self> {
        let memory = libc::xdp_umem_reg_v1 {
            addr: frames.start() as u64,
            len: frames.octets(),
            chunk_size: frames.chunk(),
            headroom: 0,
        };
        set(fd.as_fd(), SOL_XDP, libc::XDP_UMEM_REG, &memory)?;
        set(fd.as_fd(), SOL_XDP, libc::XDP_UMEM_FILL_RING, &entries)?;
        // Wanted although nothing is sent.
        set(fd.as_fd(), SOL_XDP, libc::XDP_UMEM_COMPLETION_RING, &2u32)?;
        set(fd.as_fd(), SOL_XDP, libc::XDP_RX_RING, &entries)?;
        let offsets = offsets(fd.as_fd())?;
        let rings = Rings {
            fill: Producer::new(map(fd.as_fd(), libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t, &offsets.fr, entries)?),
            received: Consumer::new(map(fd.as_fd(), libc::XDP_PGOFF_RX_RING, &offsets.rx, entries)?),
            lent: 0,
            depth: entries,
            size: entries,
        };
        let zero_copy = loop {
            match bind(fd.as_fd(), ifindex, number, zero_copy, refusal) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                result => break result?,
            }
        };
        let statistics = Statistics::default();
        Ok(Queue { fd, number, rings, statistics, packets: 0, zero_copy, busy: false })
    }

    /// Lets the kernel look at the card within our calls instead of by interrupts.
    pub fn poll_busily(&mut self, how: BusyPoll) -> io::Result<()> {
        const SO_PREFER_BUSY_POLL: libc::c_int = 69;
        const SO_BUSY_POLL: libc::c_int = 46;
        const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
        set(self.fd.as_fd(), libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1i32)?;
        set(self.fd.as_fd(), libc::SOL_SOCKET, SO_BUSY_POLL, &(how.micros as i32))?;
        set(self.fd.as_fd(), libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, &(how.budget as i32))?;
        self.busy = true;
        Ok(())
    }

    /// The rings.
    pub const fn rings(&mut self) -> &mut Rings {
        &mut self.rings
    }

    /// Calls the kernel where it wants to be called: it takes new frames, or looks at the card.
    #[inline]
    pub fn wake(&self) {
        if self.busy || self.rings.fill.wants_call() {
            // SAFETY: receives nothing, it only makes the kernel look.
            unsafe { libc::recv(self.fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
        }
    }

    /// Asks the kernel for what it has counted.
    ///
    /// # Errors
    /// The interface has gone.
    pub fn refresh(&mut self) -> io::Result<()> {
        let mut error = 0i32;
        get(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, &mut error)?;
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let mut said = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        get(self.fd.as_fd(), SOL_XDP, libc::XDP_STATISTICS, &mut said)?;
        self.statistics = Statistics {
            dropped: said.rx_dropped,
            ring_full: said.rx_ring_full,
            fill_empty: said.rx_fill_ring_empty_descs,
        };
        Ok(())
    }
    /// As of the last [`Queue::refresh`].
    pub const fn statistics(&self) -> Statistics {
        self.statistics
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What a queue and the kernel hand to each other: frames to fill, packets in frames.
pub struct Rings {
    fill: Producer<u64>,
    received: Consumer<Descriptor>,
    /// Frames that the kernel has: to fill, or filled and not taken yet.
    lent: u32,
    /// How many it is to have.
    depth: u32,
    size: u32,
}

impl Rings {
    /// How many frames the kernel is to have; as many as the rings hold at most.
    pub fn set_depth(&mut self, depth: u32) {
        self.depth = depth.clamp(1, self.size);
    }
    /// Gives free frames to the kernel.
    #[inline]
    pub fn refill(&mut self, frames: &mut Frames) {
        // Few at a time cost as much as many.
        if self.depth - self.lent.min(self.depth) < (self.depth / 16).max(1) {
            return;
        }
        let mut room = self.fill.room();
        while self.lent < self.depth && room.left() > 0 {
            let Some(address) = frames.take() else { break };
            room.put(address);
            self.lent += 1;
        }
    }
    /// Takes what has come, `most` at most.
    #[inline]
    pub fn receive(&mut self, most: usize, mut packet: impl FnMut(Descriptor)) -> usize {
        let mut count = 0;
        for descriptor in self.received.take(u32::try_from(most).unwrap_or(u32::MAX)) {
            count += 1;
            packet(descriptor);
        }
        self.lent = self.lent.saturating_sub(count);
        count as usize
    }
    /// So many packets wait that more frames would be good.
    pub fn is_behind(&self) -> bool {
        self.received.ready() > self.depth / 4
    }
    /// How many frames the kernel is to have.
    pub const fn depth(&self) -> u32 {
        self.depth
    }
    /// The kernel has hardly a frame left.
    pub const fn is_low(&self) -> bool {
        self.lent <= self.depth / 8
    }
}

/// Zero copy where the driver can and nobody forbids it, else a copy. Returns which.
fn bind(
    fd: BorrowedFd<'_>,
    ifindex: u32,
    queue: u32,
    zero_copy: ZeroCopy,
    refusal: &mut Option<io::Error>,
) -> io::Result<bool> {
    let attempt = |flag: u16| {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flag | XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: ifindex,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: `address` is readable for `len` octets.
        let rc = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    if zero_copy != Some(false) {
        match attempt(XDP_ZEROCOPY) {
            Ok(()) => return Ok(true),
            Err(e) if zero_copy.is_some() || e.raw_os_error() == Some(libc::EBUSY) => return Err(e),
            Err(e) => *refusal = Some(e),
        }
    }
    attempt(XDP_COPY).map(|()| false)
}

fn set<T>(fd: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is readable for `len` octets.
    let rc = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn get<T>(fd: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for `len` octets, and plain integers.
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, std::ptr::from_mut(value).cast(), &mut len) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: plain integers.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get(fd, SOL_XDP, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

/// A mapped ring.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}
// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and the ring that points into it goes with it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Maps a ring of `entries`, which the kernel has made.
fn map<T: Copy>(
    fd: BorrowedFd<'_>,
    at: libc::off_t,
    offsets: &libc::xdp_ring_offset,
    entries: u32,
) -> io::Result<Shared<T>> {
    let len = offsets.desc as usize + entries as usize * size_of::<T>();
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), at) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let Some(start) = NonNull::new(start.cast::<u8>()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    };
    let owner: Box<dyn Any + Send> = Box::new(Mapping { start, len });
    // SAFETY: the kernel gives offsets of words and entries inside of the ring, aligned for them.
    let (words, entries_at) = unsafe {
        let words = [offsets.producer, offsets.consumer, offsets.flags].map(|o| start.add(o as usize).cast());
        (words, start.add(offsets.desc as usize).cast())
    };
    // SAFETY: the mapping lives as long as its owner; the kernel is the other side, and entries are plain integers.
    Ok(unsafe { Shared::new(words, entries_at, entries, owner) })
}

#[cfg(test)]
pub(super) mod mock {
    use super::*;
    use crate::rx::xdp::ring::mock::ring;

    /// The kernel's side of a queue.
    pub struct Kernel {
        pub fill: Consumer<u64>,
        pub received: Producer<Descriptor>,
    }

    /// A queue's rings, without a kernel.
    pub fn rings(size: u32, start: u32) -> (Rings, Kernel) {
        let (fill, kernel_fill) = ring(size, start, 0);
        let (kernel_received, received) = ring(size, start, Descriptor { addr: 0, len: 0, options: 0 });
        let rings = Rings { fill, received, lent: 0, depth: size, size };
        (rings, Kernel { fill: kernel_fill, received: kernel_received })
    }
}
