//! The head of a slot: what is known of its frame.

use super::{Id, PAGE, PAGE_CRC, SLOT_MAGIC, array_at, is_sealed, put, seal, u32_at, u64_at};
use crate::format::WireFormat;
use crate::frame::Meta;
use crate::plan::Missing;
use crate::time::Tai;

/// Where the loss map begins.
const MAP: usize = 160;
/// Octets of a run of the loss map.
const RUN: usize = 12;
/// Runs of the loss map that a slot has room for.
pub const RUNS: usize = (PAGE_CRC - MAP) / RUN;

const COMPLETE: u32 = 1;
const TORN: u32 = 2;
const MEDIA_TIME: u32 = 4;
const SECOND_TIMESTAMP: u32 = 8;
const COALESCED: u32 = 16;

/// How true a loss map is to what was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalesced {
    /// It names what is missing and nothing else.
    #[default]
    No,
    /// There were more holes than it has room for: those that lie close to each other were put together, and what lies
    /// between them is there.
    Yes,
}

/// The first page of a slot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotHeader {
    /// Of the recording.
    pub id: Id,
    /// Slots of the recording before this one.
    pub slot: u64,
    /// Frames of the flow between the slot before and this one that are not in the recording.
    pub gap: u64,
    /// CRC32C of the frame's octets.
    pub crc: u32,
    /// Octets that never came, also where the loss map says more.
    pub missing_octets: u64,
    /// Whether the loss map is exact.
    pub coalesced: Coalesced,
    /// What was known of the frame.
    pub meta: Meta,
}

impl SlotHeader {
    /// Its page, for frames of `octets` octets of this format. The loss map is put together as far as it has to be.
    pub fn encode(&self, wire: &WireFormat, octets: usize, page: &mut [u8; PAGE]) {
        let meta = &self.meta;
        let row = u64::from(wire.row_octets());
        // As positions in the wire-format frame, so that runs may reach over rows.
        let place = |m: &Missing| (u64::from(m.row) * row + u64::from(m.octet), u64::from(m.len));
        let fits = meta.missing.len() <= RUNS;
        let in_order = meta.missing.windows(2).all(|pair| {
            let (from, len) = place(&pair[0]);
            from + len <= place(&pair[1]).0
        });
        let exact = fits && in_order;
        let coalesced = if exact { Vec::new() } else { coalesce(meta.missing.iter().map(place)) };
        let runs = if exact { meta.missing.len() } else { coalesced.len() };
        let mut flags = 0;
        for (flag, set) in [
            (COMPLETE, meta.complete),
            (TORN, meta.torn),
            (MEDIA_TIME, meta.media_time.is_some()),
            (SECOND_TIMESTAMP, meta.second_timestamp.is_some()),
            (COALESCED, !fits || self.coalesced == Coalesced::Yes),
        ] {
            flags |= if set { flag } else { 0 };
        }
        page.fill(0);
        put(page, 0, &SLOT_MAGIC);
        put(page, 8, &flags.to_le_bytes());
        put(page, 12, &(runs as u32).to_le_bytes());
        put(page, 16, &self.slot.to_le_bytes());
        put(page, 24, &self.id);
        put(page, 40, &meta.number.to_le_bytes());
        put(page, 48, &self.gap.to_le_bytes());
        put(page, 56, &meta.media_time.unwrap_or_default().0.to_le_bytes());
        put(page, 64, &meta.first_arrival.0.to_le_bytes());
        put(page, 72, &meta.last_arrival.0.to_le_bytes());
        put(page, 80, &meta.timestamp.to_le_bytes());
        put(page, 84, &meta.second_timestamp.unwrap_or_default().to_le_bytes());
        put(page, 88, &meta.packets.to_le_bytes());
        put(page, 92, &self.crc.to_le_bytes());
        put(page, 96, &(octets as u64).to_le_bytes());
        put(page, 104, &self.missing_octets.to_le_bytes());
        let mut at = MAP;
        let mut add = |row: u32, octet: u32, len: u32| {
            for value in [row, octet, len] {
                put(page, at, &value.to_le_bytes());
                at += 4;
            }
        };
        if exact {
            meta.missing.iter().for_each(|m| add(m.row, m.octet, m.len));
        } else {
            coalesced.iter().for_each(|&(from, len)| add((from / row) as u32, (from % row) as u32, len as u32));
        }
        seal(page);
    }

    /// Reads a page of the recording `id`, for frames of `octets` octets of this format; `None` where it is none, or its
    /// CRC is wrong, or what it says cannot be.
    pub fn decode(page: &[u8], id: &Id, wire: &WireFormat, octets: usize) -> Option<Self> {
        if !page.starts_with(&SLOT_MAGIC) || !is_sealed(page) || array_at::<16>(page, 24) != *id {
            return None;
        }
        let (flags, runs) = (u32_at(page, 8), u32_at(page, 12) as usize);
        if u64_at(page, 96) != octets as u64 || runs > RUNS {
            return None;
        }
        let has = |flag| flags & flag != 0;
        Some(SlotHeader {
            id: *id,
            slot: u64_at(page, 16),
            gap: u64_at(page, 48),
            crc: u32_at(page, 92),
            missing_octets: u64_at(page, 104),
            coalesced: if has(COALESCED) { Coalesced::Yes } else { Coalesced::No },
            meta: Meta {
                number: u64_at(page, 40),
                complete: has(COMPLETE),
                torn: has(TORN),
                timestamp: u32_at(page, 80),
                second_timestamp: has(SECOND_TIMESTAMP).then(|| u32_at(page, 84)),
                media_time: has(MEDIA_TIME).then(|| Tai(u64_at(page, 56))),
                first_arrival: Tai(u64_at(page, 64)),
                last_arrival: Tai(u64_at(page, 72)),
                packets: u32_at(page, 88),
                missing: map(page, runs, wire)?,
            },
        })
    }
}

/// The loss map of a page, cut at the ends of rows; `None` where runs do not follow one another within the frame.
fn map(page: &[u8], runs: usize, wire: &WireFormat) -> Option<Vec<Missing>> {
    let (row, all) = (u64::from(wire.row_octets()), u64::from(wire.frame_octets()));
    let mut missing = Vec::with_capacity(runs);
    let mut end = 0;
    for run in 0..runs {
        let [at, octet, len] = [0, 4, 8].map(|part| u64::from(u32_at(page, MAP + run * RUN + part)));
        let mut from = at * row + octet;
        if octet >= row || len == 0 || from < end || from + len > all {
            return None;
        }
        end = from + len;
        while from < end {
            let piece = (row - from % row).min(end - from);
            missing.push(Missing { row: (from / row) as u32, octet: (from % row) as u32, len: piece as u32 });
            from += piece;
        }
    }
    Some(missing)
}

/// Puts runs in order and together: those that touch, then those with the least between them, until there is room for all.
fn coalesce(runs: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut runs: Vec<_> = runs.collect();
    runs.sort_unstable();
    let between = |a: &(u64, u64), b: &(u64, u64)| b.0.saturating_sub(a.0 + a.1);
    let mut gaps: Vec<(u64, usize)> =
        runs.windows(2).enumerate().map(|(n, pair)| (between(&pair[0], &pair[1]), n)).collect();
    gaps.sort_unstable();
    let mut joined = vec![false; runs.len()];
    for (_, n) in gaps.iter().take(runs.len().saturating_sub(RUNS)) {
        joined[*n] = true;
    }
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(RUNS);
    for (n, (from, len)) in runs.into_iter().enumerate() {
        match out.last_mut() {
            Some(last) if n > 0 && (joined[n - 1] || from <= last.0 + last.1) => {
                last.1 = (from + len).max(last.0 + last.1) - last.0;
            }
            _ => out.push((from, len)),
        }
    }
    out
}
