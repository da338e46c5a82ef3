//! From chunks to slots: the hot path.
#![allow(unsafe_code)]

use crate::ring::Slot;
use crate::rx::card::Clock;
use crate::stats::RxCounters;
use crate::time::Tai;
use rivermax_sys::{Chunk, Error, Flow, Notification, Status, Stream};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;

/// One plane of a ring, as far as slots lie in it.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Address of the first slot.
    pub base: usize,
    /// Octets from slot to slot.
    pub stride: usize,
    /// Octets of all slots; 0 where there is no such plane.
    pub octets: usize,
    /// Octets of a packet that a slot holds at most.
    pub entry: usize,
}

impl Plane {
    /// Where a run of `count` slots lies that begins at `first`; none when it does not lie in the plane, slot by slot.
    #[inline]
    fn locate(&self, first: Option<NonNull<u8>>, count: usize) -> Option<usize> {
        if self.octets == 0 {
            return Some(0);
        }
        let at = (first?.as_ptr() as usize).checked_sub(self.base)?;
        let end = at.checked_add(count.checked_mul(self.stride)?)?;
        (at.is_multiple_of(self.stride) && end <= self.octets).then_some(at)
    }
}

/// One leg's stream.
pub struct Source {
    stream: Stream,
    leg: u8,
    planes: [Plane; 2],
    clock: Clock,
    flows: Vec<Flow>,
}

/// What a chunk was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// No packets: nothing has come.
    Nothing,
    /// Packets; `true` when there are more.
    Packets(bool),
}

/// Why there is no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A signal asked the process to stop.
    Signal,
    /// The hardware reported a completion with an error; the next one may be right.
    Hardware,
    /// Packets were named that do not lie in the ring.
    Outside,
    /// Another answer.
    Other(Error),
}

impl Source {
    pub fn new(stream: Stream, leg: u8, planes: [Plane; 2], clock: Clock) -> Self {
        Source { stream, leg, planes, clock, flows: Vec::new() }
    }
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }
    pub const fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }
    pub const fn leg(&self) -> u8 {
        self.leg
    }
    /// Flows are attached.
    pub const fn is_attached(&self) -> bool {
        !self.flows.is_empty()
    }

    /// Begins to receive.
    pub fn attach(&mut self, flows: &[Flow]) -> Result<(), Error> {
        for flow in flows {
            if let Err(error) = self.stream.attach(flow) {
                // All or none; what is wrong has been told.
                let _ = self.detach();
                return Err(error);
            }
            self.flows.push(*flow);
        }
        Ok(())
    }
    /// Begins and ends to receive, and forgets what came.
    pub fn attempt(&mut self, flows: &[Flow]) -> Result<(), Error> {
        self.attach(flows)?;
        self.detach()?;
        while self.stream.next_chunk().is_ok_and(|chunk| !chunk.is_empty()) {}
        Ok(())
    }
    /// Receives no more; what is in the ring can still be taken.
    pub fn detach(&mut self) -> Result<(), Error> {
        let mut answer = Ok(());
        for flow in self.flows.drain(..) {
            answer = answer.and(self.stream.detach(&flow));
        }
        answer
    }

    /// Takes the next chunk.
    #[inline]
    pub fn take(&mut self, now: Tai, slots: &mut Vec<Slot>, counters: &mut RxCounters) -> Result<Took, Refusal> {
        counters.calls += 1;
        let chunk = match self.stream.next_chunk() {
            Ok(chunk) => chunk,
            Err(Error { status: Status::Signal, .. }) => return Err(Refusal::Signal),
            Err(Error { status: Status::HwCompletionIssue, .. }) => {
                counters.hardware_issues += 1;
                return Err(Refusal::Hardware);
            }
            Err(error) => return Err(Refusal::Other(error)),
        };
        counters.checksum_issues += u64::from(chunk.checksum_issue());
        let count = chunk.len();
        if count == 0 {
            return Ok(Took::Nothing);
        }
        let [head_plane, body_plane] = self.planes;
        let (Some(head_at), Some(body_at)) =
            (head_plane.locate(chunk.first(0), count), body_plane.locate(chunk.first(1), count))
        else {
            return Err(Refusal::Outside);
        };
        self.clock.read(chunk.timestamp_last(), now);
        for i in 0..count {
            let Some(info) = chunk.packet(i) else { return Err(Refusal::Outside) };
            let (head, body) = (info.size(0).min(head_plane.entry), info.size(1).min(body_plane.entry));
            let octets = (head + body) as u16;
            counters.octets += u64::from(octets);
            slots.push(Slot {
                head_at: (head_at + i * head_plane.stride) as u32,
                body_at: (body_at + i * body_plane.stride) as u32,
                head: head as u16,
                octets,
                wire_octets: octets,
                leg: self.leg,
                arrival: self.clock.tai(info.timestamp(), now),
            });
        }
        counters.datagrams += count as u64;
        Ok(Took::Packets(chunk.more()))
    }

    /// What to wait on until packets come; none where there is no need to wait.
    pub fn arm(&mut self) -> Result<Option<RawFd>, Error> {
        match self.stream.request_notification()? {
            Notification::Armed => Ok(self.stream.events().map(|fd| fd.as_raw_fd())),
            // Packets or a signal, which the next poll tells.
            Notification::Busy | Notification::Signal => Ok(None),
        }
    }
}

/// Waits until one of them is readable, at most so many milliseconds.
pub fn wait(fds: &[RawFd], milliseconds: i32) {
    let mut list = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; super::open::MAX_LEGS];
    for (entry, fd) in list.iter_mut().zip(fds) {
        entry.fd = *fd;
    }
    // SAFETY: the list is an array of this length; negative descriptors are left out.
    unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, milliseconds) };
}

/// Shows the packets of a chunk, whose one block the library allocated in memory of the host: their first octets, and how
/// many they have.
pub fn show(chunk: &Chunk<'_>, stride: usize, mut to: impl FnMut(&[u8], u16)) {
    let Some(first) = chunk.first(0) else { return };
    for i in 0..chunk.len() {
        let Some(info) = chunk.packet(i) else { continue };
        let octets = info.size(0).min(stride);
        let mut head = [0; 128];
        let len = octets.min(head.len());
        // SAFETY: the library names a packet of so many octets there, in memory that its stream keeps.
        unsafe { first.as_ptr().add(i * stride).copy_to_nonoverlapping(head.as_mut_ptr(), len) };
        to(&head[..len], u16::try_from(octets).unwrap_or(u16::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_outside_of_the_plane_are_not_found() {
        let plane = Plane { base: 0x10_000, stride: 64, octets: 640, entry: 60 };
        let at = |address: usize, count| plane.locate(NonNull::new(address as *mut u8), count);
        assert_eq!((at(0x10_000, 10), at(0x10_040, 9)), (Some(0), Some(64)));
        for (address, count) in [(0x10_000, 11), (0x10_040, 10), (0x10_001, 1), (0xffff, 1), (0x10_280, 1), (0, 1)] {
            assert_eq!(at(address, count), None, "{address:#x} {count}");
        }
        assert_eq!(at(0x10_000, usize::MAX), None);
        assert_eq!(Plane { octets: 0, ..plane }.locate(None, 5), Some(0), "no such plane");
    }
}
