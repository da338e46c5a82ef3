//! What flows a capture holds, and what each of them carries, judged by its octets alone.

mod essence;
mod flow;

pub use essence::{Essence, FoundAudio, FoundVideo};
pub(crate) use flow::Tally;
pub use flow::{Ends, FoundFlow, FoundRtp};

use crate::error::Result;
use crate::wire::capture::{self, Capture};
use crate::wire::net::{self, Content, Link};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// Flows that are told apart at most; a port scan has more.
const MAX_FLOWS: usize = 4096;

/// What a capture holds.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// In the order of their first packets.
    pub flows: Vec<FoundFlow>,
    /// Packets of flows beyond the first 4096.
    pub beyond: u64,
    /// What was met in the file.
    pub capture: capture::Counters,
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Frames that are neither UDP nor PTP.
    pub other: u64,
    /// Frames whose headers contradict each other or are cut.
    pub malformed: u64,
}

/// Looks through a capture file, at `limit` records of it where that is given.
///
/// # Errors
/// Those of [`Capture::open`] and of a damaged file.
pub fn survey(path: &Path, limit: Option<u64>) -> Result<Survey> {
    survey_of(&mut Capture::open(path)?, limit)
}

/// As [`survey`], of a capture that is open already.
///
/// # Errors
/// Those of a damaged file.
pub fn survey_of<R: Read>(capture: &mut Capture<R>, limit: Option<u64>) -> Result<Survey> {
    let mut out = Survey::default();
    let mut tallies: Vec<Tally> = Vec::new();
    let mut index: HashMap<Ends, usize> = HashMap::new();
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(record) = capture.next_record()? else { break };
        left -= 1;
        let (ends, range, wire_octets, vlans) = match net::parse(record.link, record.octets) {
            Content::Udp(d) => (Ends::Udp(d.source, d.destination), d.payload, d.octets, d.vlans),
            Content::Ptp(range) => {
                let cut = record.wire_octets.saturating_sub(record.octets.len() as u32);
                let octets = u16::try_from(range.len() as u64 + u64::from(cut)).unwrap_or(u16::MAX);
                (Ends::of_ethernet(record.link == Link::Ethernet, record.octets), range, octets, net::Vlans::default())
            }
            Content::Fragment => {
                out.fragments += 1;
                continue;
            }
            Content::Other => {
                out.other += 1;
                continue;
            }
            Content::Malformed => {
                out.malformed += 1;
                continue;
            }
        };
        let known = tallies.len();
        let at = *index.entry(ends).or_insert(known);
        if at == known {
            if known == MAX_FLOWS {
                index.remove(&ends);
                out.beyond += 1;
                continue;
            }
            tallies.push(Tally::new(ends, vlans));
        }
        if let Some(tally) = tallies.get_mut(at) {
            tally.add(record.time, record.octets.get(range).unwrap_or_default(), wire_octets);
        }
    }
    out.flows = tallies.into_iter().map(Tally::finish).collect();
    out.capture = capture.counters();
    Ok(out)
}

#[cfg(test)]
mod tests;
