//! pcap (draft-ietf-opsawg-pcap): a file header and records, with micro- or nanoseconds, in either byte order.

use super::input::Input;
use super::{Found, MAX_RECORD, Stop, link_error};
use crate::error::{Error, Kind, Result};
use crate::wire::net::Link;
use std::io::Read;

pub(super) struct Pcap {
    big: bool,
    /// Nanoseconds of a unit of the fraction.
    unit: u64,
    link: Link,
}

impl Pcap {
    /// Reads the file header; `None`, and nothing taken, when it is not one.
    pub(super) fn begin<R: Read>(input: &mut Input<R>, name: &str) -> Result<Option<Self>> {
        let first = input.look(24).map_err(|e| super::read_error(name, e))?;
        let Some(&magic) = first.first_chunk::<4>() else { return Ok(None) };
        let (big, unit) = match (u32::from_be_bytes(magic), u32::from_le_bytes(magic)) {
            (0xa1b2_c3d4, _) => (true, 1000),
            (_, 0xa1b2_c3d4) => (false, 1000),
            (0xa1b2_3c4d, _) => (true, 1),
            (_, 0xa1b2_3c4d) => (false, 1),
            (0xa1b2_cd34, _) | (_, 0xa1b2_cd34) => {
                return Err(Error::new(
                    Kind::Data,
                    format!("{name} is a capture in the modified pcap format of patched libpcaps"),
                )
                .cure("rewrite it: editcap -F pcap in.pcap out.pcap"));
            }
            _ => return Ok(None),
        };
        let Some(header) = input.array::<24>().map_err(|e| super::read_error(name, e))? else {
            return Err(Error::new(Kind::Data, format!("the capture {name} ends within its header"))
                .cure("copy the file again; it has fewer than 24 octets"));
        };
        // The upper bits say whether frames end with a check sequence, which does not matter: IP has its own length.
        let number = word(big, [header[20], header[21], header[22], header[23]]) & 0x03ff_ffff;
        let link = Link::from_number(number).ok_or_else(|| link_error(number, name))?;
        Ok(Some(Pcap { big, unit, link }))
    }

    pub(super) fn next<R: Read>(&mut self, input: &mut Input<R>) -> std::result::Result<Option<Found>, Stop> {
        let Some(header) = input.array::<16>()? else {
            return if input.look(1)?.is_empty() { Ok(None) } else { Err(Stop::CutShort) };
        };
        let field = |at: usize| word(self.big, [header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let octets = field(8);
        if octets > MAX_RECORD {
            return Err(Stop::Damaged(format!("a record says that it has {octets} octets")));
        }
        if input.take(octets as usize)?.is_none() {
            return Err(Stop::CutShort);
        }
        let time = u64::from(field(0)) * 1_000_000_000 + u64::from(field(4)) * self.unit;
        Ok(Some(Found { time, link: self.link, interface: 0, octets, wire_octets: field(12) }))
    }
}

fn word(big: bool, octets: [u8; 4]) -> u32 {
    if big { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) }
}
