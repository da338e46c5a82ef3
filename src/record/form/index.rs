//! The end of a segment that was finished: an entry for each slot, and a page that says where they are.

use super::{Id, PAGE, SlotHeader, TAIL_MAGIC, array_at, crc, is_sealed, put, seal, u32_at, u64_at};

/// Octets of an entry.
const ENTRY: usize = 24;

const VALID: u32 = 1;
const COMPLETE: u32 = 2;

/// What the index says of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// There is a frame; none where a write was cut short.
    pub valid: bool,
    /// It is complete.
    pub complete: bool,
    /// RTP timestamp.
    pub timestamp: u32,
    /// The frame's number in its flow.
    pub number: u64,
    /// TAI of its first sample in nanoseconds; 0 where that is not known.
    pub media_time: u64,
}

impl From<&SlotHeader> for Entry {
    fn from(head: &SlotHeader) -> Self {
        let meta = &head.meta;
        Entry {
            valid: true,
            complete: meta.complete,
            timestamp: meta.timestamp,
            number: meta.number,
            media_time: meta.media_time.unwrap_or_default().0,
        }
    }
}

/// Why a segment ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The recording was ended.
    #[default]
    Finished,
    /// It goes on in the next segment.
    Continued,
    /// The disk was full.
    Full,
    /// Writing failed.
    Failed,
    /// It was not finished; its index was made later, by a scan.
    Recovered,
}

impl End {
    const ALL: [End; 5] = [End::Finished, End::Continued, End::Full, End::Failed, End::Recovered];
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            End::Finished => "finished",
            End::Continued => "goes on in the next segment",
            End::Full => "the disk was full",
            End::Failed => "writing failed",
            End::Recovered => "was not finished",
        }
    }
}

/// The last page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Of the recording.
    pub id: Id,
    /// Slots, and so entries.
    pub slots: u64,
    /// Where the entries begin.
    pub index: u64,
    /// Frames that came after the last slot and are not in the recording, as far as the recorder knew.
    pub gap: u64,
    /// Why it ends.
    pub end: End,
    /// CRC32C of the entries.
    pub crc: u32,
}

impl Tail {
    /// Its page.
    pub fn encode(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        put(&mut page, 0, &TAIL_MAGIC);
        put(&mut page, 8, &(End::ALL.iter().position(|&e| e == self.end).unwrap_or_default() as u32).to_le_bytes());
        put(&mut page, 12, &self.crc.to_le_bytes());
        put(&mut page, 16, &self.id);
        put(&mut page, 32, &self.slots.to_le_bytes());
        put(&mut page, 40, &self.index.to_le_bytes());
        put(&mut page, 48, &self.gap.to_le_bytes());
        seal(&mut page);
        page
    }
    /// Reads a page; `None` where it is none of recording `id`.
    pub fn decode(page: &[u8], id: &Id) -> Option<Self> {
        if !page.starts_with(&TAIL_MAGIC) || !is_sealed(page) || array_at::<16>(page, 16) != *id {
            return None;
        }
        Some(Tail {
            id: *id,
            slots: u64_at(page, 32),
            index: u64_at(page, 40),
            gap: u64_at(page, 48),
            end: *End::ALL.get(u32_at(page, 8) as usize)?,
            crc: u32_at(page, 12),
        })
    }
    /// Octets of its entries.
    pub fn index_octets(&self) -> Option<u64> {
        self.slots.checked_mul(ENTRY as u64)
    }
}

/// The octets of entries, and their CRC.
pub fn put_entries(entries: &[Entry]) -> (Vec<u8>, u32) {
    let mut octets = Vec::with_capacity(entries.len() * ENTRY);
    for entry in entries {
        let flags = if entry.valid { VALID } else { 0 } | if entry.complete { COMPLETE } else { 0 };
        octets.extend_from_slice(&flags.to_le_bytes());
        octets.extend_from_slice(&entry.timestamp.to_le_bytes());
        octets.extend_from_slice(&entry.number.to_le_bytes());
        octets.extend_from_slice(&entry.media_time.to_le_bytes());
    }
    let sum = crc(&octets);
    (octets, sum)
}

/// Entries from their octets; `None` where the CRC is not that of the tail.
pub fn entries(octets: &[u8], tail: &Tail) -> Option<Vec<Entry>> {
    if tail.index_octets() != Some(octets.len() as u64) || crc(octets) != tail.crc {
        return None;
    }
    let one = |e: &[u8]| Entry {
        valid: u32_at(e, 0) & VALID != 0,
        complete: u32_at(e, 0) & COMPLETE != 0,
        timestamp: u32_at(e, 4),
        number: u64_at(e, 8),
        media_time: u64_at(e, 16),
    };
    Some(octets.chunks_exact(ENTRY).map(one).collect())
}
