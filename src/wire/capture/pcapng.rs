//! pcapng (draft-ietf-opsawg-pcapng): sections of blocks, each section with its byte order and its interfaces.

use super::input::Input;
use super::{Found, MAX_RECORD, Stop};
use crate::wire::net::Link;
use std::io::Read;

/// Interfaces of a section at most; files have a handful.
const MAX_INTERFACES: usize = 1 << 12;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

#[derive(Clone, Copy)]
struct Interface {
    link: Option<Link>,
    snap: u32,
    unit: Unit,
    /// Seconds to add to every time.
    offset: i64,
}

/// Resolution of times.
#[derive(Clone, Copy)]
enum Unit {
    /// Nanoseconds of a unit.
    Multiply(u64),
    /// Units of a nanosecond.
    Divide(u64),
    /// 2^-n seconds.
    Binary(u32),
}

impl Unit {
    /// From `if_tsresol`; `None` when 64 bits cannot hold a second of it.
    fn from_option(resolution: u8) -> Option<Self> {
        let exponent = u32::from(resolution & 0x7f);
        Some(match resolution & 0x80 != 0 {
            true if exponent < 64 => Unit::Binary(exponent),
            true => return None,
            false if exponent <= 9 => Unit::Multiply(10u64.pow(9 - exponent)),
            false => Unit::Divide(10u64.checked_pow(exponent - 9)?),
        })
    }
    fn nanoseconds(self, units: u64) -> u64 {
        match self {
            Unit::Multiply(by) => units.saturating_mul(by),
            Unit::Divide(by) => units / by,
            Unit::Binary(n) => u64::try_from((u128::from(units) * 1_000_000_000) >> n).unwrap_or(u64::MAX),
        }
    }
}

#[derive(Default)]
pub(super) struct Pcapng {
    big: bool,
    begun: bool,
    interfaces: Vec<Interface>,
    /// Interfaces of the sections before.
    before: u32,
    refused_link: Option<u32>,
    /// Simple packets have no time: they get that of the packet before.
    last_time: u64,
    /// Octets of the packet's block behind its data, to be passed over before the next block.
    owed: u32,
}

impl Pcapng {
    /// A link type that is not read here, if there was one.
    pub(super) fn refused_link(&self) -> Option<u32> {
        self.refused_link
    }

    pub(super) fn next<R: Read>(&mut self, input: &mut Input<R>, other_link: &mut u64) -> Result<Option<Found>, Stop> {
        loop {
            let owed = std::mem::take(&mut self.owed);
            if !input.skip(u64::from(owed))? {
                return Err(Stop::CutShort);
            }
            let Some(start) = input.array::<8>()? else {
                return if input.look(1)?.is_empty() { Ok(None) } else { Err(Stop::CutShort) };
            };
            let [a, b, c, d, length @ ..] = start;
            // The section header's type reads the same in both byte orders.
            let kind = self.word([a, b, c, d]);
            if kind == SECTION {
                self.section(input, length)?;
                continue;
            }
            if !self.begun {
                return Err(Stop::Damaged("no section header".into()));
            }
            let total = self.word(length);
            // Lengths are multiples of four; some writers forget to count the padding.
            let Some(body) = total.checked_next_multiple_of(4).and_then(|t| t.checked_sub(12)) else {
                return Err(Stop::Damaged(format!("a block says that it has {total} octets")));
            };
            match kind {
                INTERFACE => self.interface(input, body)?,
                ENHANCED_PACKET | OLD_PACKET | SIMPLE_PACKET => {
                    if let Some(found) = self.packet(input, kind, body)? {
                        return Ok(Some(found));
                    }
                    *other_link += 1;
                }
                _ => {
                    if !input.skip(u64::from(body) + 4)? {
                        return Err(Stop::CutShort);
                    }
                }
            }
        }
    }

    fn section<R: Read>(&mut self, input: &mut Input<R>, length: [u8; 4]) -> Result<(), Stop> {
        let Some(head) = input.array::<8>()? else { return Err(Stop::CutShort) };
        let [a, b, c, d, major @ .., _, _] = head;
        self.big = match [a, b, c, d] {
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            _ => return Err(Stop::Damaged("a section header without its byte order mark".into())),
        };
        if self.half(major) != 1 {
            return Err(Stop::Damaged(format!("pcapng version {} is not known", self.half(major))));
        }
        let total = self.word(length);
        let Some(rest) = total.checked_next_multiple_of(4).and_then(|t| t.checked_sub(16)).filter(|r| *r >= 12) else {
            return Err(Stop::Damaged(format!("a section header says that it has {total} octets")));
        };
        if !input.skip(u64::from(rest))? {
            return Err(Stop::CutShort);
        }
        self.before = self.before.saturating_add(self.interfaces.len() as u32);
        self.interfaces.clear();
        self.begun = true;
        Ok(())
    }

    fn interface<R: Read>(&mut self, input: &mut Input<R>, body: u32) -> Result<(), Stop> {
        if !(8..=MAX_RECORD).contains(&body) || self.interfaces.len() == MAX_INTERFACES {
            return Err(Stop::Damaged(format!("an interface description of {body} octets")));
        }
        let big = self.big;
        let Some(octets) = input.take(body as usize + 4)? else { return Err(Stop::CutShort) };
        let (fixed, rest) = octets.split_at(8);
        let number = half(big, [fixed[0], fixed[1]]);
        let mut interface = Interface {
            link: Link::from_number(u32::from(number)),
            snap: word(big, [fixed[4], fixed[5], fixed[6], fixed[7]]),
            unit: Unit::Multiply(1000),
            offset: 0,
        };
        let mut options = rest.get(..rest.len() - 4).unwrap_or_default();
        while let [c0, c1, l0, l1, tail @ ..] = options {
            let (code, octets) = (half(big, [*c0, *c1]), usize::from(half(big, [*l0, *l1])));
            let Some(value) = tail.get(..octets) else { break };
            match (code, value) {
                (0, _) => break,
                (9, [resolution, ..]) => {
                    interface.unit = Unit::from_option(*resolution)
                        .ok_or_else(|| Stop::Damaged(format!("time resolution {resolution:#04x} is beyond 64 bits")))?;
                }
                (14, value) => {
                    if let Ok(octets) = <[u8; 8]>::try_from(value) {
                        interface.offset = if big { i64::from_be_bytes(octets) } else { i64::from_le_bytes(octets) };
                    }
                }
                _ => {}
            }
            options = tail.get(octets.next_multiple_of(4)..).unwrap_or_default();
        }
        if interface.link.is_none() {
            self.refused_link.get_or_insert(u32::from(number));
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// A packet, or `None` when its interface has a link layer that is not read here.
    fn packet<R: Read>(&mut self, input: &mut Input<R>, kind: u32, body: u32) -> Result<Option<Found>, Stop> {
        let fixed = if kind == SIMPLE_PACKET { 4 } else { 20 };
        let Some(room) = body.checked_sub(fixed) else {
            return Err(Stop::Damaged(format!("a packet block with a body of {body} octets")));
        };
        let mut head = [0; 20];
        let Some(octets) = input.take(fixed as usize)? else { return Err(Stop::CutShort) };
        for (to, from) in head.iter_mut().zip(octets) {
            *to = *from;
        }
        let field = |at: usize| self.word([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let number = match kind {
            SIMPLE_PACKET => 0,
            OLD_PACKET => u32::from(self.half([head[0], head[1]])),
            _ => field(0),
        };
        let Some(interface) = self.interfaces.get(number as usize).copied() else {
            return Err(Stop::Damaged(format!("a packet of interface {number}, which is not described")));
        };
        let (octets, wire_octets) = if kind == SIMPLE_PACKET {
            let wire = field(0);
            let snap = if interface.snap == 0 { u32::MAX } else { interface.snap };
            (wire.min(snap).min(room), wire)
        } else {
            (field(12), field(16))
        };
        if octets > room || octets > MAX_RECORD {
            return Err(Stop::Damaged(format!(
                "a packet says that it has {octets} octets, in a block with room for {room}"
            )));
        }
        if kind != SIMPLE_PACKET {
            let units = u64::from(field(4)) << 32 | u64::from(field(8));
            let offset = i128::from(interface.offset) * 1_000_000_000;
            let time = i128::from(interface.unit.nanoseconds(units)) + offset;
            self.last_time = u64::try_from(time.max(0)).unwrap_or(u64::MAX);
        }
        let Some(link) = interface.link else {
            return if input.skip(u64::from(room) + 4)? { Ok(None) } else { Err(Stop::CutShort) };
        };
        if input.take(octets as usize)?.is_none() {
            return Err(Stop::CutShort);
        }
        self.owed = room - octets + 4;
        Ok(Some(Found {
            time: self.last_time,
            link,
            interface: self.before.saturating_add(number),
            octets,
            wire_octets,
        }))
    }

    fn word(&self, octets: [u8; 4]) -> u32 {
        word(self.big, octets)
    }
    fn half(&self, octets: [u8; 2]) -> u16 {
        half(self.big, octets)
    }
}

fn word(big: bool, octets: [u8; 4]) -> u32 {
    if big { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) }
}

fn half(big: bool, octets: [u8; 2]) -> u16 {
    if big { u16::from_be_bytes(octets) } else { u16::from_le_bytes(octets) }
}
