//! PTP messages in a capture: which grandmasters there are, and whether the capture's own clock runs on their time.

use crate::time::Tai;
use crate::timing::measure::Stat;
use crate::wire::ptp::{self, ClockId, kind};

/// Grandmasters that are told apart at most.
const MAX_MASTERS: usize = 16;

/// A grandmaster in a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Master {
    /// Domain.
    pub domain: u8,
    /// Its last Announce.
    pub announce: ptp::Announce,
    /// The flags of it.
    pub flags: u16,
    /// Announce messages.
    pub count: u64,
    /// When the first and the last one came.
    pub span: (Tai, Tai),
}

/// What was seen of PTP.
#[derive(Clone, Debug, Default)]
pub struct PtpSeen {
    /// Messages of version 2.
    pub messages: u64,
    /// Messages of each type.
    pub kinds: [u64; 16],
    /// Domains of messages, a bit for each of the first 128.
    domains: u128,
    /// Grandmasters, in the order of their first Announce.
    pub masters: Vec<Master>,
    /// Arrival of Sync and Follow_Up less the time in them, in nanoseconds.
    pub clock: Stat,
}

impl PtpSeen {
    /// A message; false when it is none of version 2.
    pub(super) fn message(&mut self, arrival: Tai, octets: &[u8]) -> bool {
        let Some(header) = ptp::header(octets) else { return false };
        self.messages += 1;
        if let Some(count) = self.kinds.get_mut(usize::from(header.kind)) {
            *count += 1;
        }
        self.domains |= 1u128.checked_shl(u32::from(header.domain)).unwrap_or(0);
        match header.kind {
            kind::ANNOUNCE => self.announce(arrival, &header, octets),
            // A Sync that a Follow_Up goes with has no time of its own.
            kind::SYNC if header.flags & ptp::TWO_STEP == 0 => self.time(arrival, octets),
            kind::FOLLOW_UP => self.time(arrival, octets),
            _ => {}
        }
        true
    }

    fn announce(&mut self, arrival: Tai, header: &ptp::Header, octets: &[u8]) {
        let Some(announce) = ptp::announce(octets) else { return };
        let same = |m: &&mut Master| (m.domain, m.announce.grandmaster) == (header.domain, announce.grandmaster);
        if let Some(master) = self.masters.iter_mut().find(same) {
            (master.announce, master.flags, master.span.1) = (announce, header.flags, arrival);
            master.count += 1;
        } else if self.masters.len() < MAX_MASTERS {
            let (domain, flags, span) = (header.domain, header.flags, (arrival, arrival));
            self.masters.push(Master { domain, announce, flags, count: 1, span });
        }
    }

    fn time(&mut self, arrival: Tai, octets: &[u8]) {
        if let Some(origin) = ptp::origin(octets).filter(|t| *t > 0) {
            self.clock.add(arrival.since(Tai(origin)));
        }
    }

    /// Domains that messages were of.
    pub fn domains(&self) -> impl Iterator<Item = u8> + '_ {
        (0..128).filter(|d| self.domains >> d & 1 == 1)
    }

    /// Whether a grandmaster was announced, in a domain where that is given.
    pub fn has(&self, grandmaster: &str, domain: Option<u8>) -> bool {
        let is = |id: &ClockId| id.to_string().eq_ignore_ascii_case(grandmaster);
        self.masters.iter().any(|m| is(&m.announce.grandmaster) && domain.is_none_or(|d| d == m.domain))
    }
}
