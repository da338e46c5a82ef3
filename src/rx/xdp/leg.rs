//! A leg that was joined: what its packets look like, and what the socket beside says.

use super::program::Wanted;
use super::socket::Descriptor;
use super::steer;
use crate::rx::socket::open;
use crate::sdp::SourceFilter;
use crate::stats::{Reason, Rejected};
use crate::wire::net::{self, Content, Link};
use std::net::IpAddr;

/// What a leg's packets look like, and the socket beside.
pub struct JoinedLeg {
    /// Whose packets it takes.
    pub port: usize,
    pub wanted: Wanted,
    /// Leads it to its queue, where that was wished.
    pub _rule: Option<steer::Rule>,
    pub sources: SourceFilter,
    pub beside: socket2::Socket,
    /// Datagrams of the flow that went past us, and those that the socket beside dropped of these.
    pub passed: u64,
    pub overflowed: u32,
}

/// What a received packet is.
pub enum Sorted {
    /// Of a leg: where its UDP payload begins, and its octets.
    Wanted { leg: u8, at: u32, octets: u16 },
    /// Of a leg, and not wanted.
    Rejected(Reason),
    /// Of no leg: the filter was changed while it was on its way.
    Strange,
}

/// Looks at a packet. What the filter has checked is checked again: it may have been another program's.
#[inline]
pub fn sort(memory: &[u8], packet: &Descriptor, legs: &[Option<JoinedLeg>], port: usize) -> Sorted {
    let Ok(start) = usize::try_from(packet.addr) else { return Sorted::Strange };
    let frame = memory.get(start..start.saturating_add(packet.len as usize)).unwrap_or_default();
    let datagram = match net::parse(Link::Ethernet, frame) {
        Content::Udp(datagram) => datagram,
        Content::Malformed => return Sorted::Rejected(Reason::Length),
        _ => return Sorted::Strange,
    };
    let mut answer = Sorted::Strange;
    for (number, leg) in legs.iter().enumerate() {
        let Some(leg) = leg.as_ref().filter(|leg| leg.port == port && leg.wanted.matches(&datagram)) else { continue };
        if !admits(&leg.sources, datagram.source.ip()) {
            answer = Sorted::Rejected(Reason::Source);
            continue;
        }
        if datagram.truncated() {
            return Sorted::Rejected(Reason::Length);
        }
        let Ok(at) = u32::try_from(start + datagram.payload.start) else { return Sorted::Strange };
        return Sorted::Wanted { leg: number as u8, at, octets: datagram.octets };
    }
    answer
}

/// Whether a filter lets a sender through.
pub fn admits(sources: &SourceFilter, source: IpAddr) -> bool {
    match sources {
        SourceFilter::Any => true,
        SourceFilter::Include(list) => list.contains(&source),
        SourceFilter::Exclude(list) => !list.contains(&source),
    }
}

impl JoinedLeg {
    /// Counts what the socket beside got.
    pub fn look_beside(&mut self, rejected: &mut Rejected) {
        let mut octets = [std::mem::MaybeUninit::uninit(); 16];
        // It holds a few hundred datagrams.
        for _ in 0..1024 {
            match self.beside.recv_from_with_flags(&mut octets, libc::MSG_DONTWAIT | libc::MSG_TRUNC) {
                Ok((_, from)) if from.as_socket().is_none_or(|from| admits(&self.sources, from.ip())) => {
                    self.passed += 1;
                }
                Ok(_) => rejected.add(Reason::Source),
                Err(_) => break,
            }
        }
        if let Some(drops) = open::drops(&self.beside) {
            self.passed += u64::from(drops.wrapping_sub(self.overflowed));
            self.overflowed = drops;
        }
    }
}
