//! The form of a segment, octet by octet; `docs/recording.md` has the tables.
//!
//! ```text
//! header (pages) | slot 0: header page, octets | slot 1 | ...                        while it is written
//! header (pages) | slot 0 | slot 1 | ... | entries | tail page                       when it was finished
//! ```
//!
//! Everything begins at a multiple of 4096 octets, so that no write needs to read before, and numbers are little-endian.
//! A page that counts (header, head of a slot, tail) ends with its own CRC32C (Castagnoli, RFC 3720 B.4). This module is
//! pure: it turns values into octets and foreign octets into values, and touches no file.

mod header;
mod index;
mod slot;

pub use header::Header;
pub use index::{End, Entry, Tail, entries, put_entries};
pub use slot::{Coalesced, RUNS, SlotHeader};

use crate::error::{Error, Kind};

/// Octets of a page: everything in a segment begins at a multiple.
pub const PAGE: usize = 4096;
/// The version of the form.
pub const VERSION: u32 = 1;
/// How names of segments end.
pub const SUFFIX: &str = "gdr";

/// The first octets of a segment: as of PNG, they show a transfer that took it for text.
pub const MAGIC: [u8; 8] = *b"\x89GDR\r\n\x1a\n";
/// The first octets of a slot.
pub const SLOT_MAGIC: [u8; 8] = *b"GDR-SLOT";
/// The first octets of the tail page.
pub const TAIL_MAGIC: [u8; 8] = *b"GDR-TAIL";

/// Tells recordings apart.
pub type Id = [u8; 16];

/// Where the CRC of a page lies: in its last four octets.
const PAGE_CRC: usize = PAGE - 4;

/// Octets up to the next page.
pub const fn pages(octets: u64) -> u64 {
    octets.div_ceil(PAGE as u64).saturating_mul(PAGE as u64)
}

/// The CRC32C of octets (polynomial 0x1EDC6F41, reflected, both ends inverted).
pub fn crc(octets: &[u8]) -> u32 {
    crc32c::crc32c(octets)
}

/// Puts the CRC of a page at its end.
fn seal(page: &mut [u8]) {
    if let Some((covered, sum)) = page.split_at_mut_checked(PAGE_CRC) {
        let value = crc(covered);
        put(sum, 0, &value.to_le_bytes());
    }
}

/// The page's CRC is right.
fn is_sealed(page: &[u8]) -> bool {
    page.len() == PAGE && page.get(..PAGE_CRC).map(crc) == Some(u32_at(page, PAGE_CRC))
}

fn put(octets: &mut [u8], at: usize, value: &[u8]) {
    if let Some(room) = octets.get_mut(at..at + value.len()) {
        room.copy_from_slice(value);
    }
}

fn array_at<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    octets.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn u32_at(octets: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(octets, at))
}

fn u64_at(octets: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(octets, at))
}

/// Octets that are no recording, or not one of this version.
fn refuse(what: impl Into<String>) -> Error {
    Error::new(Kind::Data, what.into()).cure("give a .gdr file that gdmedia record wrote, whole and unchanged")
}

#[cfg(test)]
mod tests;
