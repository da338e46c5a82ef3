//! Clock, sleep and gathered sends: the system calls of the sender.
#![allow(unsafe_code)]

use super::template::{Packet, Template};
use crate::time::Tai;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A clock that reads TAI and can be waited for.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// TAI - UTC in nanoseconds, as the machine's clock runs on UTC.
    utc_offset_ns: u64,
    /// The last of a wait is spent spinning, since a timer wakes late.
    spin_ns: u64,
}

impl Clock {
    /// The machine's clock plus `utc_offset_s`.
    pub fn new(utc_offset_s: u32, spin: Duration) -> Self {
        // The default slack of 50 us would be added to every sleep; it is a property of the thread.
        // SAFETY: sets a number of the calling thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
        Clock { utc_offset_ns: u64::from(utc_offset_s) * 1_000_000_000, spin_ns: spin.as_nanos() as u64 }
    }

    /// Now.
    pub fn now(&self) -> Tai {
        Tai(read(libc::CLOCK_REALTIME) + self.utc_offset_ns)
    }

    /// Returns at `time`, or when a signal arrives: first sleeps, then spins. At once when `time` has passed.
    pub fn wait(&self, time: Tai) -> Tai {
        let mut now = self.now();
        if time.since(now) > self.spin_ns as i64 {
            let until = time.0.saturating_sub(self.spin_ns + self.utc_offset_ns);
            let until = libc::timespec {
                tv_sec: (until / 1_000_000_000) as libc::time_t,
                tv_nsec: (until % 1_000_000_000) as _,
            };
            // SAFETY: `until` outlives the call; the remainder is not asked for.
            let rc = unsafe {
                libc::clock_nanosleep(libc::CLOCK_REALTIME, libc::TIMER_ABSTIME, &until, std::ptr::null_mut())
            };
            now = self.now();
            if rc != 0 {
                return now;
            }
        }
        while now < time {
            std::hint::spin_loop();
            now = self.now();
        }
        now
    }
}

/// CPU time that this thread has used.
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is writable and outlives the call.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Segments of a UDP_SEGMENT send at most (UDP_MAX_SEGMENTS of older kernels) and octets of one.
const MAX_SEGMENTS: usize = 64;
const MAX_OCTETS: usize = 65_000;

/// What became of a group of packets.
#[derive(Debug, Default)]
pub struct Sent {
    /// Packets handed to the kernel.
    pub packets: u64,
    /// UDP payload octets of these.
    pub octets: u64,
    /// Packets that the kernel had no room for.
    pub dropped: u64,
    /// Times that the other end said that nobody listens.
    pub refused: u64,
    /// Packets that no way led out for, and what the kernel said: the interface is down, or has gone.
    pub unsent: u64,
    /// The same in the kernel's words.
    pub away: Option<io::Error>,
}

/// Errors of an interface that is down or has gone, and that may come back.
fn is_away(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ENETDOWN | libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENODEV | libc::ENXIO | libc::EADDRNOTAVAIL
        )
    )
}

/// Sends groups of packets, gathered from headers and frame without a copy in user space.
#[derive(Debug)]
pub struct Gather {
    /// Cuts with UDP_SEGMENT; falls back to one message a packet where the kernel or the path cannot.
    pub segment: bool,
    pieces: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    sizes: Vec<Size>,
    plan: Vec<Message>,
}

/// One message: packets of one size, the last may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    packets: usize,
    pieces: usize,
    segment: usize,
    octets: usize,
}

/// Of a packet.
#[derive(Clone, Copy, Debug)]
struct Size {
    octets: usize,
    pieces: usize,
}

/// Packets to be sent, each in pieces that lie anywhere.
pub trait Packets {
    /// How many.
    fn count(&self) -> usize;
    /// Gives the pieces of one, in order.
    fn pieces<'a>(&'a self, index: usize, give: &mut dyn FnMut(&'a [u8]));
}

/// Packets of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FramePackets<'a> {
    /// Where headers are.
    pub template: &'a Template,
    /// Which packets.
    pub packets: &'a [Packet],
    /// The picture in wire format.
    pub frame: &'a [u8],
}

impl Packets for FramePackets<'_> {
    fn count(&self) -> usize {
        self.packets.len()
    }
    fn pieces<'a>(&'a self, index: usize, give: &mut dyn FnMut(&'a [u8])) {
        let Some(packet) = self.packets.get(index) else { return };
        give(self.template.header(packet));
        packet.pieces.iter().for_each(|(at, len)| give(self.frame.get(at..at + len).unwrap_or_default()));
        if packet.fill > 0 {
            give(self.template.fill(packet));
        }
    }
}

/// Room for one UDP_SEGMENT control message.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 24]);

// SAFETY: the pointers in it are only meaningful inside `send`, which writes them anew before every use.
unsafe impl Send for Gather {}

impl Gather {
    /// `segment`: try UDP_SEGMENT.
    pub fn new(segment: bool) -> Self {
        Gather { segment, pieces: Vec::new(), messages: Vec::new(), sizes: Vec::new(), plan: Vec::new() }
    }

    /// Sends packets through a connected socket.
    ///
    /// # Errors
    /// What the kernel says, unless it is about room, about nobody listening, or about an interface that is down, which are
    /// counted.
    pub fn send(&mut self, socket: &impl AsRawFd, packets: &impl Packets) -> io::Result<Sent> {
        self.pieces.clear();
        self.sizes.clear();
        for index in 0..packets.count() {
            let before = self.pieces.len();
            let mut octets = 0;
            packets.pieces(index, &mut |piece| {
                octets += piece.len();
                self.pieces.push(libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
            });
            self.sizes.push(Size { octets, pieces: self.pieces.len() - before });
        }
        let mut sent = Sent::default();
        let mut first = 0;
        let mut first_piece = 0;
        while first < self.sizes.len() {
            plan(self.sizes.get(first..).unwrap_or_default(), self.segment, &mut self.plan);
            match self.call(socket.as_raw_fd(), first_piece) {
                Ok(messages) => {
                    for message in self.plan.iter().take(messages) {
                        sent.packets += message.packets as u64;
                        sent.octets += message.octets as u64;
                        first_piece += message.pieces;
                        first += message.packets;
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // The answer to an earlier packet; this one was not sent.
                    Some(libc::ECONNREFUSED) => sent.refused += 1,
                    Some(libc::ENOBUFS | libc::EAGAIN | libc::ENOMEM) => {
                        let Some(lost) = self.plan.first() else { return Err(error) };
                        sent.dropped += lost.packets as u64;
                        first_piece += lost.pieces;
                        first += lost.packets;
                    }
                    _ if is_away(&error) => {
                        sent.unsent += (self.sizes.len() - first) as u64;
                        sent.away = Some(error);
                        break;
                    }
                    // No checksum offload, no support, a segment larger than the path: one by one says which.
                    Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOPROTOOPT | libc::EMSGSIZE)
                        if self.segment =>
                    {
                        self.segment = false;
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(sent)
    }

    /// One sendmmsg over the plan; how many messages went.
    fn call(&mut self, fd: i32, first_piece: usize) -> io::Result<usize> {
        const MESSAGES: usize = 64;
        let mut controls = [Control([0; 24]); MESSAGES];
        self.messages.clear();
        let mut piece = first_piece;
        for (message, control) in self.plan.iter().zip(&mut controls) {
            // SAFETY: all zeros is a valid msghdr.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            let Some(pieces) = self.pieces.get_mut(piece..piece + message.pieces) else { break };
            header.msg_iov = pieces.as_mut_ptr();
            header.msg_iovlen = pieces.len() as _;
            piece += message.pieces;
            if message.packets > 1 {
                header.msg_control = control.0.as_mut_ptr().cast();
                // SAFETY: `Control` is aligned as cmsghdr is and has room for one with two octets of data.
                unsafe {
                    header.msg_controllen = libc::CMSG_SPACE(2) as _;
                    let c = libc::CMSG_FIRSTHDR(&header);
                    (*c).cmsg_level = libc::SOL_UDP;
                    (*c).cmsg_type = libc::UDP_SEGMENT;
                    (*c).cmsg_len = libc::CMSG_LEN(2) as _;
                    libc::CMSG_DATA(c).cast::<u16>().write_unaligned(message.segment as u16);
                }
            }
            self.messages.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        // SAFETY: every message points to pieces that point into `packets`, which `send` borrows, and to `controls`,
        // which outlives the call; the kernel only reads them.
        let n = unsafe { libc::sendmmsg(fd, self.messages.as_mut_ptr(), self.messages.len() as _, 0) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}

/// Divides packets into messages: with `segment`, runs of one size of which the last may be shorter.
fn plan(packets: &[Size], segment: bool, out: &mut Vec<Message>) {
    out.clear();
    let mut closed = true;
    for &Size { octets, pieces } in packets {
        match out.last_mut() {
            Some(m)
                if segment
                    && !closed
                    && octets <= m.segment
                    && m.packets < MAX_SEGMENTS
                    && m.octets + octets <= MAX_OCTETS =>
            {
                m.packets += 1;
                m.pieces += pieces;
                m.octets += octets;
                closed = octets < m.segment;
            }
            _ => {
                out.push(Message { packets: 1, pieces, segment: octets, octets });
                closed = octets == 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(sizes: &[usize], segment: bool) -> Vec<(usize, usize)> {
        let sizes: Vec<_> = sizes.iter().map(|&octets| Size { octets, pieces: 2 }).collect();
        let mut out = Vec::new();
        plan(&sizes, segment, &mut out);
        assert!(out.iter().all(|m| m.pieces == 2 * m.packets && m.octets <= MAX_OCTETS));
        out.iter().map(|m| (m.packets, m.segment)).collect()
    }

    #[test]
    fn segments_are_equal_but_for_the_last() {
        assert_eq!(planned(&[1220; 4], true), [(4, 1220)]);
        assert_eq!(planned(&[1220, 1220, 500, 500, 1220], true), [(3, 1220), (1, 500), (1, 1220)]);
        assert_eq!(planned(&[1280, 1280, 1286, 1280], true), [(2, 1280), (2, 1286)]);
        assert_eq!(planned(&[1220; 3], false), [(1, 1220); 3]);
        assert_eq!(planned(&[8000; 10], true), [(8, 8000), (2, 8000)]);
        assert_eq!(planned(&[100; 65], true), [(64, 100), (1, 100)]);
        assert_eq!(planned(&[0, 0], true), [(1, 0), (1, 0)]);
        assert_eq!(planned(&[], true), []);
    }

    #[test]
    fn waits_until_the_time_and_not_for_the_past() {
        let clock = Clock::new(37, Duration::from_micros(30));
        let time = clock.now() + Duration::from_millis(2);
        assert!(clock.wait(time) >= time);
        assert!(clock.wait(Tai(0)) >= time);
    }
}
