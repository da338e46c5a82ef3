//! One `recvmmsg`: its headers, made once, and what the kernel writes into them.
#![allow(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;

/// Messages in a call at most.
pub(super) const MESSAGES: usize = 64;

/// Room for the three control messages (time 32 or, with the card's, 64; drop count 24, segment size 24 octets).
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 128]);

/// What the kernel says about one message: a datagram, or a chain of them that GRO merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Octets of the datagram or of the whole chain.
    pub octets: usize,
    /// Octets of each datagram of the chain, the last one may be shorter; 0 when it is a single datagram.
    pub stride: usize,
    /// Cut because the memory was too small.
    pub truncated: bool,
    /// Nanoseconds of UTC, when the kernel stamped it.
    pub time: Option<u64>,
    /// Nanoseconds of the card's clock, when it stamped it.
    pub card: Option<u64>,
    /// The socket's count of drops, modulo 2^32, when there were any.
    pub drops: Option<u32>,
}

/// Headers, vectors, names and control memory for [`MESSAGES`] messages.
pub(super) struct Batch {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    names: Box<[libc::sockaddr_in6]>,
    controls: Box<[Control]>,
    want_names: bool,
    /// Headers that the last call wrote to.
    used: usize,
}

// SAFETY: the raw pointers in the headers point to the boxes beside them, or to ring memory that is named anew
// before each call; nothing of it belongs to a thread.
unsafe impl Send for Batch {}

impl Batch {
    /// `want_names`: senders' addresses are needed.
    pub fn new(want_names: bool) -> Self {
        // SAFETY: all-zero octets are valid for these plain C structures.
        let (message, name) =
            unsafe { (std::mem::zeroed::<libc::mmsghdr>(), std::mem::zeroed::<libc::sockaddr_in6>()) };
        let vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut batch = Batch {
            messages: vec![message; MESSAGES].into_boxed_slice(),
            vectors: vec![vector; MESSAGES].into_boxed_slice(),
            names: vec![name; MESSAGES].into_boxed_slice(),
            controls: vec![Control([0; 128]); MESSAGES].into_boxed_slice(),
            want_names,
            used: MESSAGES,
        };
        for (i, message) in batch.messages.iter_mut().enumerate() {
            let header = &mut message.msg_hdr;
            header.msg_iov = &raw mut batch.vectors[i];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut batch.controls[i]).cast();
            if want_names {
                header.msg_name = (&raw mut batch.names[i]).cast();
            }
        }
        batch
    }

    /// Receives into `cells` pieces of memory of `len` octets each, without waiting; returns how many were filled.
    ///
    /// # Safety
    /// Each pointer is writable for `len` octets until the call returns, and nobody reads there meanwhile.
    pub unsafe fn receive(
        &mut self,
        socket: RawFd,
        cells: impl ExactSizeIterator<Item = *mut u8>,
        len: usize,
    ) -> std::io::Result<usize> {
        let count = cells.len().min(MESSAGES);
        for (vector, cell) in self.vectors.iter_mut().zip(cells) {
            *vector = libc::iovec { iov_base: cell.cast(), iov_len: len };
        }
        for message in &mut self.messages[..self.used] {
            message.msg_hdr.msg_controllen = size_of::<Control>() as _;
            message.msg_hdr.msg_flags = 0;
            message.msg_hdr.msg_namelen = if self.want_names { size_of::<libc::sockaddr_in6>() as _ } else { 0 };
        }
        self.used = 0;
        // SAFETY: the headers point to memory of this structure and to the caller's cells, all writable.
        let n = unsafe {
            libc::recvmmsg(
                socket,
                self.messages.as_mut_ptr(),
                count as _,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if n < 0 {
            // The kernel may have begun the first message.
            self.used = 1;
            return Err(std::io::Error::last_os_error());
        }
        self.used = n as usize;
        Ok(self.used)
    }

    /// What the kernel said about message `i` of the last call.
    #[inline]
    pub fn message(&self, i: usize) -> Message {
        let message = &self.messages[i];
        let len = message.msg_hdr.msg_controllen.min(size_of::<Control>());
        let mut out = Message {
            octets: message.msg_len as usize,
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            ..Message::default()
        };
        read_control(&self.controls[i].0[..len], &mut out);
        out
    }

    /// The sender of message `i`; `None` when names were not wanted or make no sense.
    #[inline]
    pub fn sender(&self, i: usize) -> Option<IpAddr> {
        let name = &self.names[i];
        match i32::from(name.sin6_family) {
            // A `sockaddr_in` has its address where a `sockaddr_in6` has its flow information.
            libc::AF_INET => Some(Ipv4Addr::from(u32::from_be(name.sin6_flowinfo)).into()),
            libc::AF_INET6 => Some(Ipv6Addr::from(name.sin6_addr.s6_addr).into()),
            _ => None,
        }
    }
}

/// Nanoseconds of a `timespec` (64-bit Linux).
#[inline]
fn timespec(data: &[u8], at: usize) -> Option<u64> {
    let long = |i: usize| data.get(i..i + 8).and_then(|b| b.try_into().ok()).map(i64::from_ne_bytes);
    Some((long(at)? as u64).wrapping_mul(1_000_000_000).wrapping_add(long(at + 8)? as u64))
}

/// Reads control messages: {length: usize, level: i32, type: i32, data}, each aligned to 8 octets (64-bit Linux).
#[inline]
fn read_control(mut rest: &[u8], out: &mut Message) {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let int = |at: &[u8], from: usize| -> Option<i32> {
        at.get(from..from + 4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes)
    };
    while rest.len() >= HEADER {
        let Some(len) = rest.first_chunk::<{ size_of::<usize>() }>().map(|b| usize::from_ne_bytes(*b)) else { return };
        if len < HEADER || len > rest.len() {
            return;
        }
        let at = size_of::<usize>();
        let (level, kind) = (int(rest, at), int(rest, at + 4));
        let data = &rest[HEADER..len];
        match (level, kind) {
            (Some(libc::SOL_SOCKET), Some(libc::SCM_TIMESTAMPNS)) => out.time = timespec(data, 0),
            // Three times: the kernel's, one that is not used any more, the card's; zero where there is none.
            (Some(libc::SOL_SOCKET), Some(libc::SCM_TIMESTAMPING)) => {
                out.time = timespec(data, 0).filter(|t| *t > 0);
                out.card = timespec(data, 32).filter(|t| *t > 0);
            }
            (Some(libc::SOL_SOCKET), Some(libc::SO_RXQ_OVFL)) => out.drops = int(data, 0).map(|n| n as u32),
            (Some(libc::SOL_UDP), Some(libc::UDP_GRO)) => {
                // Linux gives an int, and has given a u16 in the first kernels that had it.
                out.stride = match *data {
                    [a, b, ..] if data.len() < 4 => usize::from(u16::from_ne_bytes([a, b])),
                    _ => int(data, 0).and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
                };
            }
            _ => {}
        }
        let step = len.next_multiple_of(size_of::<usize>());
        rest = rest.get(step..).unwrap_or_default();
    }
}

/// How many messages to ask for: as many as keep one call's octets inside the second-level cache, so that they are
/// still there when they are placed. Single datagrams ask for all, chains of 64 KiB for four.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizer {
    limit: usize,
    messages: u32,
    datagrams: u32,
    octets: u64,
    chained: bool,
    /// A window has ended.
    judged: bool,
    /// Datagrams in a message, in the last window, times 16.
    mean16: u32,
}

/// What changed at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Datagrams come one by one.
    Single,
    /// Datagrams come merged.
    Chained,
}

impl Sizer {
    const WINDOW: u32 = 256;
    const CALL_OCTETS: u64 = 256 << 10;

    pub fn new() -> Self {
        Sizer { limit: 8, messages: 0, datagrams: 0, octets: 0, chained: false, judged: false, mean16: 16 }
    }

    /// Messages to ask for.
    #[inline]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Datagrams in a message on average.
    pub fn mean(&self) -> f32 {
        self.mean16 as f32 / 16.0
    }

    /// Datagrams in `chains` that were dropped unseen. The kernel counts a chain once, so they are taken to have been as
    /// long as others lately, or as the one of `now` datagrams that follows: exact for single datagrams.
    #[inline]
    pub fn datagrams_in(&self, chains: u32, now: u32) -> u64 {
        let (messages, datagrams) = match (self.messages, self.judged) {
            (0, false) => (1, now),
            (0, true) => (16, self.mean16),
            (messages, _) => (messages, self.datagrams),
        };
        (u64::from(chains) * u64::from(datagrams) + u64::from(messages) / 2) / u64::from(messages)
    }

    /// Takes the sums of one call; says so when the shape of the traffic has changed. Chains begin at a mean of 4 and
    /// end under 2, so that a stream between the two does not change back and forth.
    #[inline]
    pub fn add(&mut self, messages: u32, datagrams: u32, octets: u64) -> Option<Shape> {
        self.messages += messages;
        self.datagrams = self.datagrams.saturating_add(datagrams);
        self.octets += octets;
        if self.messages < Self::WINDOW {
            return None;
        }
        let mean_octets = (self.octets / u64::from(self.messages)).max(1);
        self.limit = (Self::CALL_OCTETS / mean_octets).clamp(4, MESSAGES as u64) as usize;
        self.judged = true;
        self.mean16 = (u64::from(self.datagrams) * 16 / u64::from(self.messages)) as u32;
        (self.messages, self.datagrams, self.octets) = (0, 0, 0);
        let chained = if self.chained { self.mean16 >= 32 } else { self.mean16 >= 64 };
        if chained == self.chained {
            return None;
        }
        self.chained = chained;
        Some(if chained { Shape::Chained } else { Shape::Single })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cmsg(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut out = (16 + data.len()).to_ne_bytes().to_vec();
        out.extend(level.to_ne_bytes());
        out.extend(kind.to_ne_bytes());
        out.extend(data);
        out.resize(out.len().next_multiple_of(8), 0xee);
        out
    }

    #[test]
    fn control_messages_are_read_in_any_order() {
        let time = [1_700_000_000_i64.to_ne_bytes(), 123_456_789_i64.to_ne_bytes()].concat();
        let mut all = cmsg(libc::SOL_UDP, libc::UDP_GRO, &1260_i32.to_ne_bytes());
        all.extend(cmsg(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &u32::MAX.to_ne_bytes()));
        all.extend(cmsg(libc::IPPROTO_IP, 77, &[1]));
        all.extend(cmsg(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time));
        let mut out = Message::default();
        read_control(&all, &mut out);
        let want = Message { stride: 1260, drops: Some(u32::MAX), time: Some(1_700_000_000_123_456_789), ..out };
        assert_eq!(out, want);
    }

    #[test]
    fn the_cards_stamp_stands_behind_the_kernels() {
        let times = |software: [i64; 2], card: [i64; 2]| {
            let all = [software, [0, 0], card].concat();
            cmsg(
                libc::SOL_SOCKET,
                libc::SCM_TIMESTAMPING,
                &all.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<_>>(),
            )
        };
        let read = |octets: &[u8]| {
            let mut out = Message::default();
            read_control(octets, &mut out);
            (out.time, out.card)
        };
        let utc = 1_700_000_000_123_456_789;
        assert_eq!(read(&times([1_700_000_000, 123_456_789], [0, 0])), (Some(utc), None));
        let both = times([1_700_000_000, 123_456_789], [1_700_000_037, 123_450_001]);
        assert_eq!(both.len(), 64);
        assert_eq!(read(&both), (Some(utc), Some(1_700_000_037_123_450_001)));
        assert_eq!(read(&times([0, 0], [5, 6])), (None, Some(5_000_000_006)));
        assert_eq!(read(&cmsg(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &[1; 20])).1, None, "cut short");
    }

    #[test]
    fn broken_control_memory_ends_the_reading() {
        for bad in [
            vec![],
            vec![0; 15],
            vec![0; 16],
            [usize::MAX.to_ne_bytes(), [1; 8]].concat(),
            [17_usize.to_ne_bytes(), [1; 8]].concat(),
        ] {
            let mut out = Message::default();
            read_control(&bad, &mut out);
            assert_eq!(out, Message::default());
        }
        let mut out = Message::default();
        read_control(&cmsg(libc::SOL_UDP, libc::UDP_GRO, &(-5_i32).to_ne_bytes()), &mut out);
        assert_eq!(out.stride, 0);
    }

    proptest::proptest! {
        #[test]
        fn any_control_memory_is_read_without_harm(octets in proptest::collection::vec(0_u8.., 0..128)) {
            read_control(&octets, &mut Message::default());
        }
    }

    #[test]
    fn single_datagrams_ask_for_many_and_long_chains_for_few() {
        let mut sizer = Sizer::new();
        assert_eq!(sizer.add(256, 256, 256 * 1260), None);
        assert_eq!(sizer.limit(), 64);
        assert_eq!(sizer.add(256, 256 * 32, 256 * 32 * 1260), Some(Shape::Chained));
        assert_eq!((sizer.limit(), sizer.mean()), (6, 32.0));
        assert_eq!(sizer.add(256, 256 * 51, 256 * 65_000), None);
        assert_eq!(sizer.limit(), 4);
        assert_eq!(sizer.add(256, 256 * 3, 256 * 3 * 1260), None, "between 2 and 4 nothing changes");
        assert_eq!(sizer.add(256, 256, 256 * 1260), Some(Shape::Single));
        assert_eq!(sizer.add(256, 256 * 3, 256 * 3 * 1260), None, "neither the other way round");
        assert_eq!(sizer.datagrams_in(5, 1), 15, "dropped chains were as long as others");
        assert_eq!(Sizer::new().datagrams_in(5, 7), 35);
        assert_eq!(sizer.add(255, 255 * 64, 0), None, "a window is not judged before it is full");
    }
}
