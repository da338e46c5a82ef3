//! What a host has to say on a network, where no kernel says it: who has an address (ARP), which groups are received (IGMP).
//! For receivers that have a port to themselves. Pure: frames and times go in, frames come out. IPv4 only.
//!
//! Groups are reported when they are joined, twice; in answer to queries; and by itself every minute, for switches without a
//! querier. Who asks in an older version gets answers of that version until it has been silent for 400 s (RFC 3376 section 7.2).

use crate::sdp::SourceFilter;
use crate::wire::arp::{self, Arp, Operation};
use crate::wire::igmp::{self, Kind, Older, Version};
use crate::wire::net::mac_of;
use crate::wire::{be16, be32};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Reports by itself come this far apart.
pub const EVERY: Duration = Duration::from_secs(60);
/// Older versions count for so long after their last query.
pub const OLDER: Duration = Duration::from_secs(400);
/// What is told twice is told again after this time (RFC 3376 section 8.11: at most a second).
const AGAIN: Duration = Duration::from_millis(400);
/// Sources of a report at most: a frame of 1500 octets has room for more.
const SOURCES: usize = 64;
/// Shortest frame of Ethernet, without its check sequence.
const LEAST: usize = 60;
const BROADCAST: [u8; 6] = [0xff; 6];

/// A host with one address.
#[derive(Debug)]
pub struct Host {
    mac: [u8; 6],
    address: Ipv4Addr,
    /// 0: none.
    vlan: u16,
    /// The only version that is spoken.
    fixed: Option<Version>,
    /// An older version was asked in, and until when that counts.
    older: Option<(Version, Duration)>,
    groups: Vec<Group>,
    /// The address is announced again then.
    announce: Option<Duration>,
    frame: Vec<u8>,
    random: u64,
    /// Others that said they have our address.
    conflicts: u64,
    answered: u64,
}

#[derive(Debug)]
struct Group {
    address: Ipv4Addr,
    /// Who receives it, and from whom.
    members: Vec<(u8, Filter)>,
    /// As it was told last.
    told: Filter,
    /// A change is told again then.
    again: Option<Duration>,
    /// The next report of how it is.
    due: Duration,
}

/// Whose packets of a group are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Filter {
    /// Only these sources, else all but these.
    only: bool,
    sources: Vec<Ipv4Addr>,
}

impl Filter {
    fn new(filter: &SourceFilter) -> Self {
        let v4 = |list: &[IpAddr]| {
            let mut list: Vec<Ipv4Addr> = list
                .iter()
                .filter_map(|source| match source {
                    IpAddr::V4(source) => Some(*source),
                    IpAddr::V6(_) => None,
                })
                .collect();
            list.sort_unstable();
            list.dedup();
            list
        };
        match filter {
            SourceFilter::Any => Filter { only: false, sources: Vec::new() },
            SourceFilter::Include(list) => Filter { only: true, sources: v4(list) },
            SourceFilter::Exclude(list) => Filter { only: false, sources: v4(list) },
        }
    }
    /// How a change to it is reported.
    const fn change(&self) -> Kind {
        if self.only { Kind::Allow } else { Kind::ToExclude }
    }
    /// What several receivers of a group want together (RFC 3376 section 3.2).
    fn together(members: &[(u8, Filter)]) -> Self {
        let mut all = members.iter().map(|member| &member.1);
        let Some(first) = all.next() else { return Filter { only: true, sources: Vec::new() } };
        all.fold(first.clone(), |sum, one| {
            let kept = |from: &Filter, by: &Filter, in_it: bool| {
                from.sources.iter().filter(|s| by.sources.contains(s) == in_it).copied().collect()
            };
            match (sum.only, one.only) {
                (true, true) => {
                    let mut sources = [sum.sources.as_slice(), &one.sources].concat();
                    sources.sort_unstable();
                    sources.dedup();
                    Filter { only: true, sources }
                }
                (false, false) => Filter { only: false, sources: kept(&sum, one, true) },
                (false, true) => Filter { only: false, sources: kept(&sum, one, false) },
                (true, false) => Filter { only: false, sources: kept(one, &sum, false) },
            }
        })
    }
}

impl Host {
    /// A host that says nothing yet. `fixed`: the only version of IGMP that it speaks, whatever is asked.
    pub fn new(mac: [u8; 6], address: Ipv4Addr, vlan: u16, fixed: Option<Version>) -> Self {
        let random = mac.iter().fold(u64::from(address.to_bits()), |n, o| n << 5 ^ n >> 7 ^ u64::from(*o)) | 1;
        Host {
            mac,
            address,
            vlan,
            fixed,
            older: None,
            groups: Vec::new(),
            announce: Some(Duration::ZERO),
            frame: Vec::with_capacity(2 * LEAST + 4 * SOURCES),
            random,
            conflicts: 0,
            answered: 0,
        }
    }
    /// Its address.
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }
    /// How often another host said that it has this address.
    pub const fn conflicts(&self) -> u64 {
        self.conflicts
    }
    /// Questions that were answered.
    pub const fn answered(&self) -> u64 {
        self.answered
    }
    /// The groups that are received.
    pub fn groups(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.groups.iter().map(|group| group.address)
    }

    /// `member` receives a group from now on.
    pub fn join(
        &mut self,
        member: u8,
        address: Ipv4Addr,
        sources: &SourceFilter,
        now: Duration,
        send: &mut dyn FnMut(&[u8]),
    ) {
        let filter = Filter::new(sources);
        match self.groups.iter_mut().find(|group| group.address == address) {
            Some(group) => {
                group.members.retain(|(other, _)| *other != member);
                group.members.push((member, filter));
            }
            None => {
                let told = Filter { only: true, sources: Vec::new() };
                let members = vec![(member, filter)];
                self.groups.push(Group { address, members, told, again: None, due: now + EVERY });
            }
        }
        self.tell_change(address, now, send);
    }

    /// `member` receives a group no more.
    pub fn leave(&mut self, member: u8, address: Ipv4Addr, now: Duration, send: &mut dyn FnMut(&[u8])) {
        let Some(group) = self.groups.iter_mut().find(|group| group.address == address) else { return };
        group.members.retain(|(other, _)| *other != member);
        if !group.members.is_empty() {
            return self.tell_change(address, now, send);
        }
        let told = group.told.clone();
        self.groups.retain(|group| group.address != address);
        // There may be no later: the second time is now.
        (0..2).for_each(|_| self.tell_left(address, &told, send));
    }

    /// What was said before is known to nobody: the link is up again, or at last. All of it is said as if it were new, twice.
    pub fn renew(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        self.announce = Some(Duration::ZERO);
        for n in 0..self.groups.len() {
            let Some(group) = self.groups.get_mut(n) else { break };
            (group.again, group.due) = (Some(now + AGAIN), now + EVERY);
            let (address, filter) = (group.address, group.told.clone());
            self.say(address, filter.change(), &filter.sources, send);
        }
    }

    /// Looks at a frame that is none of the flow, and answers.
    pub fn receive(&mut self, frame: &[u8], now: Duration, send: &mut dyn FnMut(&[u8])) {
        match self.look(frame) {
            Some(Seen::Arp(arp)) => self.arp(&arp, send),
            Some(Seen::Query(query)) => self.asked(&query, now),
            None => {}
        }
    }

    /// Says what is due.
    pub fn tick(&mut self, now: Duration, send: &mut dyn FnMut(&[u8])) {
        if self.older.is_some_and(|(_, until)| now >= until) {
            self.older = None;
        }
        if self.announce.is_some_and(|at| now >= at) {
            // Twice, as RFC 5227 section 2.3 has it, for neighbours that know the port by another address.
            self.announce =
                self.announce.filter(|at| at.is_zero()).map(|_| now.max(Duration::from_nanos(1)) + AGAIN * 5);
            let question = self.of_arp(Operation::Request, [0; 6], self.address);
            self.send_arp(BROADCAST, &question, send);
        }
        for n in 0..self.groups.len() {
            let Some(group) = self.groups.get_mut(n) else { break };
            let address = group.address;
            if group.again.is_some_and(|at| now >= at) {
                group.again = None;
                let filter = group.told.clone();
                self.say(address, filter.change(), &filter.sources, send);
            }
            let Some(group) = self.groups.get_mut(n).filter(|group| now >= group.due) else { continue };
            group.due = now + EVERY;
            let filter = group.told.clone();
            self.say(address, if filter.only { Kind::IsInclude } else { Kind::IsExclude }, &filter.sources, send);
        }
    }

    fn look(&self, frame: &[u8]) -> Option<Seen> {
        let (mut ethertype, mut at, mut vlan) = (be16(frame, 12)?, 14, 0);
        if matches!(ethertype, 0x8100 | 0x88a8) {
            vlan = be16(frame, at)? & 0x0fff;
            (ethertype, at) = (be16(frame, at + 2)?, at + 4);
        }
        // A tag of VLAN 0 gives a priority only.
        if vlan != self.vlan || frame.get(6..12)? == self.mac {
            return None;
        }
        let rest = frame.get(at..)?;
        match ethertype {
            0x0806 => arp::parse(rest).map(Seen::Arp),
            0x0800 => {
                // To all hosts, or to the group that is asked for (RFC 3376 section 4.1.12).
                let to = Ipv4Addr::from_bits(be32(rest, 16)?);
                igmp::inside(rest)
                    .filter(|_| to.is_multicast())
                    .and_then(|(_, octets)| igmp::query(octets))
                    .map(Seen::Query)
            }
            _ => None,
        }
    }

    fn arp(&mut self, arp: &Arp, send: &mut dyn FnMut(&[u8])) {
        if arp.sender_address == self.address && arp.sender != self.mac {
            self.conflicts += 1;
            return;
        }
        if arp.operation == Operation::Request && arp.target_address == self.address {
            let answer = self.of_arp(Operation::Reply, arp.sender, arp.sender_address);
            self.send_arp(arp.sender, &answer, send);
            self.answered += 1;
        }
    }

    const fn of_arp(&self, operation: Operation, target: [u8; 6], target_address: Ipv4Addr) -> Arp {
        Arp { operation, sender: self.mac, sender_address: self.address, target, target_address }
    }

    /// Answers come at any time within what the query allows, so that not all hosts answer at once.
    fn asked(&mut self, query: &igmp::Query, now: Duration) {
        self.answered += 1;
        if query.version < Version::V3 {
            let oldest = self.older.map_or(query.version, |(older, _)| older.min(query.version));
            self.older = Some((oldest, now + OLDER));
        }
        for n in 0..self.groups.len() {
            let delay = query.within.mul_f64(self.next_random());
            let Some(group) = self.groups.get_mut(n) else { break };
            if query.group.is_none_or(|asked| asked == group.address) {
                group.due = group.due.min(now + delay);
            }
        }
    }

    /// In 0..1.
    fn next_random(&mut self) -> f64 {
        // xorshift64, which never becomes 0.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn version(&self) -> Version {
        self.fixed.or(self.older.map(|(older, _)| older)).unwrap_or(Version::V3)
    }

    /// Tells how a group has become, compared with what was told (RFC 3376 section 5.1).
    fn tell_change(&mut self, address: Ipv4Addr, now: Duration, send: &mut dyn FnMut(&[u8])) {
        let Some(group) = self.groups.iter_mut().find(|group| group.address == address) else { return };
        let filter = Filter::together(&group.members);
        if filter == group.told {
            return;
        }
        let before = std::mem::replace(&mut group.told, filter.clone());
        group.again = Some(now + AGAIN);
        let missing = |from: &Filter, of: &Filter| -> Vec<Ipv4Addr> {
            from.sources.iter().filter(|s| !of.sources.contains(s)).copied().collect()
        };
        match (before.only, filter.only) {
            (true, true) => {
                for (kind, list) in [(Kind::Allow, missing(&filter, &before)), (Kind::Block, missing(&before, &filter))]
                {
                    if !list.is_empty() {
                        self.say(address, kind, &list, send);
                    }
                }
            }
            (_, false) => self.say(address, Kind::ToExclude, &filter.sources, send),
            (false, true) => self.say(address, Kind::ToInclude, &filter.sources, send),
        }
    }

    fn tell_left(&mut self, address: Ipv4Addr, told: &Filter, send: &mut dyn FnMut(&[u8])) {
        match (self.version(), told.only) {
            (Version::V1, _) => {}
            (Version::V2, _) => {
                self.begin_igmp(igmp::ROUTERS, igmp::OLDER_OCTETS);
                igmp::older(Older::Leave, address, &mut self.frame);
                self.end(send);
            }
            (Version::V3, true) => self.say(address, Kind::Block, &told.sources, send),
            (Version::V3, false) => self.say(address, Kind::ToInclude, &[], send),
        }
    }

    /// Reports a group, in the version that is spoken.
    fn say(&mut self, address: Ipv4Addr, kind: Kind, sources: &[Ipv4Addr], send: &mut dyn FnMut(&[u8])) {
        let older = match self.version() {
            Version::V1 => Older::Report1,
            Version::V2 => Older::Report2,
            Version::V3 => {
                let mut rest = sources;
                loop {
                    let (some, later) = rest.split_at(rest.len().min(SOURCES));
                    self.begin_igmp(igmp::REPORTS, igmp::report_octets(some.len()));
                    igmp::report(kind, address, some, &mut self.frame);
                    self.end(send);
                    rest = later;
                    if rest.is_empty() {
                        return;
                    }
                }
            }
        };
        // Older versions know no sources; one that is blocked does not end the group.
        if kind != Kind::Block {
            self.begin_igmp(address, igmp::OLDER_OCTETS);
            igmp::older(older, address, &mut self.frame);
            self.end(send);
        }
    }

    /// Begins a frame of `octets` of IGMP, which are to be appended.
    fn begin_igmp(&mut self, to: Ipv4Addr, octets: usize) {
        self.begin(mac_of(to.into()), 0x0800);
        igmp::header(self.address, to, u16::try_from(octets).unwrap_or(0), &mut self.frame);
    }

    fn send_arp(&mut self, to: [u8; 6], arp: &Arp, send: &mut dyn FnMut(&[u8])) {
        self.begin(to, 0x0806);
        arp::emit(arp, &mut self.frame);
        self.end(send);
    }

    fn begin(&mut self, to: [u8; 6], ethertype: u16) {
        self.frame.clear();
        self.frame.extend(to);
        self.frame.extend(self.mac);
        if self.vlan != 0 {
            self.frame.extend(0x8100u16.to_be_bytes());
            self.frame.extend(self.vlan.to_be_bytes());
        }
        self.frame.extend(ethertype.to_be_bytes());
    }

    fn end(&mut self, send: &mut dyn FnMut(&[u8])) {
        self.frame.resize(self.frame.len().max(LEAST), 0);
        send(&self.frame);
    }
}

enum Seen {
    Arp(Arp),
    Query(igmp::Query),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x10];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 10);
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 7);

    fn host(vlan: u16) -> Host {
        Host::new(MAC, ADDRESS, vlan, None)
    }
    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }
    /// What is sent meanwhile.
    fn sent(work: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        work(&mut |frame| all.push(frame.to_vec()));
        all
    }
    fn include(last: &[u8]) -> SourceFilter {
        SourceFilter::Include(last.iter().map(|n| Ipv4Addr::new(10, 77, 0, *n).into()).collect())
    }
    /// Destination and octets of the IGMP in a frame without a tag.
    fn igmp_of(frame: &[u8]) -> (Ipv4Addr, Vec<u8>) {
        assert_eq!((&frame[6..12], be16(frame, 12)), (&MAC[..], Some(0x0800)));
        let to = Ipv4Addr::from_bits(be32(frame, 30).unwrap());
        assert_eq!(frame[..6], mac_of(to.into()));
        let (from, octets) = igmp::inside(&frame[14..]).unwrap();
        assert_eq!((from, igmp::checksum(octets)), (ADDRESS, 0));
        (to, octets.to_vec())
    }
    /// A frame of the router's.
    fn query(to: Ipv4Addr, octets: &[u8]) -> Vec<u8> {
        let mut octets = octets.to_vec();
        let sum = igmp::checksum(&octets);
        octets[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut frame = [&mac_of(to.into())[..], &OTHER, &[8, 0]].concat();
        igmp::header(Ipv4Addr::new(10, 77, 0, 1), to, octets.len() as u16, &mut frame);
        frame.extend(octets);
        frame.resize(60, 0);
        frame
    }
    const ALL: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
    /// A general query of version 3 that allows a second.
    const V3: [u8; 12] = [0x11, 10, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0];
    const V2: [u8; 8] = [0x11, 10, 0, 0, 0, 0, 0, 0];

    #[test]
    fn a_question_for_the_address_is_answered_and_no_other() {
        let question = |target: Ipv4Addr, tag: &[u8]| {
            let arp = Arp {
                operation: Operation::Request,
                sender: OTHER,
                sender_address: Ipv4Addr::new(10, 77, 0, 1),
                target: [0; 6],
                target_address: target,
            };
            let mut frame = [&BROADCAST[..], &OTHER, tag, &[8, 6]].concat();
            arp::emit(&arp, &mut frame);
            frame
        };
        let mut one = host(0);
        let answers = sent(|send| one.receive(&question(ADDRESS, &[]), at(0), send));
        let mut wanted = [&OTHER[..], &MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]].concat();
        wanted.extend([2, 0, 0, 0, 0, 0x10, 10, 77, 0, 10, 2, 0, 0, 0, 0, 1, 10, 77, 0, 1]);
        wanted.resize(60, 0);
        assert_eq!(answers, [wanted]);
        assert_eq!(sent(|send| one.receive(&question(Ipv4Addr::new(10, 77, 0, 11), &[]), at(0), send)).len(), 0);
        assert_eq!(sent(|send| one.receive(&question(ADDRESS, &[0x81, 0, 0, 100]), at(0), send)).len(), 0);
        let mut tagged = host(100);
        let answers = sent(|send| tagged.receive(&question(ADDRESS, &[0x81, 0, 0x20, 100]), at(0), send));
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0][12..18], [0x81, 0, 0, 100, 8, 6]);
        // Another host with this address: nothing is said, it is counted.
        let mut claim = question(ADDRESS, &[]);
        claim[28..32].copy_from_slice(&ADDRESS.octets());
        assert_eq!((sent(|send| one.receive(&claim, at(0), send)).len(), one.conflicts()), (0, 1));
    }

    #[test]
    fn the_address_is_announced_twice() {
        let mut one = host(0);
        let first = sent(|send| one.tick(at(0), send));
        assert_eq!((first.len(), &first[0][..6]), (1, &BROADCAST[..]));
        let arp = arp::parse(&first[0][14..]).unwrap();
        assert_eq!((arp.sender_address, arp.target_address, arp.sender), (ADDRESS, ADDRESS, MAC));
        assert_eq!(sent(|send| one.tick(at(1000), send)).len(), 0);
        assert_eq!(sent(|send| one.tick(at(2100), send)).len(), 1);
        assert_eq!(sent(|send| one.tick(at(9000), send)).len(), 0);
    }

    #[test]
    fn a_group_is_reported_twice_when_joined_and_left_aloud() {
        let mut one = host(0);
        let frames = sent(|send| one.join(0, GROUP, &SourceFilter::Any, at(0), send));
        assert_eq!(frames.len(), 1);
        let joined = vec![0x22, 0, 0xe9, 0xf5, 0, 0, 0, 1, 4, 0, 0, 0, 239, 1, 1, 7];
        assert_eq!(igmp_of(&frames[0]), (igmp::REPORTS, joined.clone()));
        sent(|send| one.tick(at(100), send));
        let again = sent(|send| one.tick(at(500), send));
        assert_eq!(again.iter().map(|f| igmp_of(f).1).collect::<Vec<_>>(), [joined]);
        // A minute later as it is: kind 2. The address is announced meanwhile, too.
        let later = sent(|send| one.tick(at(60_001), send));
        let alive: Vec<_> =
            later.iter().filter(|f| f[12..14] == [8, 0]).map(|f| igmp_of(f).1[8]).filter(|k| *k == 2).collect();
        assert_eq!(alive, [2]);
        let left = sent(|send| one.leave(0, GROUP, at(61_000), send));
        assert_eq!(left.iter().map(|f| igmp_of(f).1[8]).collect::<Vec<_>>(), [3, 3], "TO_IN of nobody, twice");
        assert_eq!(one.groups().count(), 0);
        assert_eq!(sent(|send| one.leave(0, GROUP, at(61_000), send)).len(), 0);
    }

    #[test]
    fn all_is_said_again_when_the_link_is_up() {
        let mut one = host(0);
        let other = Ipv4Addr::new(239, 1, 1, 8);
        // Into a link that is not there.
        sent(|send| one.join(0, GROUP, &SourceFilter::Any, at(0), send));
        sent(|send| one.join(1, other, &include(&[1]), at(0), send));
        for ms in [0, 500, 2100, 3000] {
            sent(|send| one.tick(at(ms), send));
        }
        assert_eq!(sent(|send| one.tick(at(4900), send)).len(), 0);
        // TO_EX of nobody (kind 4), ALLOW of one source (kind 5): as when they were joined.
        let joined = [vec![4, 0, 0, 0, 239, 1, 1, 7], vec![5, 0, 0, 1, 239, 1, 1, 8, 10, 77, 0, 1]];
        let reports = |frames: &[Vec<u8>]| -> Vec<Vec<u8>> {
            frames.iter().filter(|f| f[12..14] == [8, 0]).map(|f| igmp_of(f).1[8..].to_vec()).collect()
        };
        let announced =
            |frames: &[Vec<u8>]| frames.iter().filter(|f| f[..6] == BROADCAST && f[12..14] == [8, 6]).count();
        let first = sent(|send| one.renew(at(5000), send));
        assert_eq!(reports(&first), joined);
        let then = sent(|send| one.tick(at(5010), send));
        assert_eq!((announced(&then), reports(&then).len()), (1, 0));
        let again = sent(|send| one.tick(at(5400), send));
        assert_eq!(reports(&again), joined);
        let later = sent(|send| one.tick(at(7100), send));
        assert_eq!((announced(&later), reports(&later).len()), (1, 0), "the address twice, too");
        assert_eq!(sent(|send| one.tick(at(64_000), send)).len(), 0);
        // A minute after the renewal: as they are.
        let alive = sent(|send| one.tick(at(65_000), send));
        assert_eq!(reports(&alive).iter().map(|r| r[0]).collect::<Vec<_>>(), [2, 1]);
        // A host without groups only says its address.
        let mut bare = host(0);
        sent(|send| bare.tick(at(0), send));
        assert_eq!(sent(|send| bare.renew(at(100), send)).len(), 0);
        assert_eq!(announced(&sent(|send| bare.tick(at(110), send))), 1);
    }

    #[test]
    fn sources_are_named() {
        let mut one = host(0);
        let frames = sent(|send| one.join(0, GROUP, &include(&[1]), at(0), send));
        assert_eq!(igmp_of(&frames[0]).1, [0x22, 0, 0xde, 0xa6, 0, 0, 0, 1, 5, 0, 0, 1, 239, 1, 1, 7, 10, 77, 0, 1]);
        // A second leg of the group wants another source: that one is allowed too.
        let frames = sent(|send| one.join(1, GROUP, &include(&[2]), at(0), send));
        assert_eq!(igmp_of(&frames[0]).1[8..], [5, 0, 0, 1, 239, 1, 1, 7, 10, 77, 0, 2]);
        // One of them goes: its source is blocked, the group stays.
        let frames = sent(|send| one.leave(0, GROUP, at(0), send));
        assert_eq!(igmp_of(&frames[0]).1[8..], [6, 0, 0, 1, 239, 1, 1, 7, 10, 77, 0, 1]);
        // The other wants anybody but one.
        let exclude = SourceFilter::Exclude(vec![IpAddr::from([10, 77, 0, 9])]);
        let frames = sent(|send| one.join(1, GROUP, &exclude, at(0), send));
        assert_eq!(igmp_of(&frames[0]).1[8..], [4, 0, 0, 1, 239, 1, 1, 7, 10, 77, 0, 9]);
        let many = SourceFilter::Include((0..130).map(|n| Ipv4Addr::from_bits(0x0a00_0000 + n).into()).collect());
        let frames = sent(|send| host(0).join(0, GROUP, &many, at(0), send));
        assert_eq!(frames.iter().map(|f| igmp_of(f).1[11]).collect::<Vec<_>>(), [64, 64, 2]);
    }

    #[test]
    fn queries_are_answered_in_time_and_in_their_version() {
        let mut one = host(0);
        sent(|send| one.join(0, GROUP, &include(&[1]), at(0), send));
        sent(|send| one.tick(at(3000), send));
        sent(|send| one.tick(at(6000), send));
        assert_eq!(sent(|send| one.receive(&query(ALL, &V3), at(10_000), send)).len(), 0, "not at once");
        let answers = sent(|send| one.tick(at(11_000), send));
        assert_eq!(answers.iter().map(|f| igmp_of(f).1[8]).collect::<Vec<_>>(), [1]);
        // For another group: nothing.
        let mut other = V3;
        other[4..8].copy_from_slice(&[239, 9, 9, 9]);
        sent(|send| one.receive(&query(Ipv4Addr::new(239, 9, 9, 9), &other), at(12_000), send));
        assert_eq!(sent(|send| one.tick(at(14_000), send)).len(), 0);
        // A querier of version 2: reports of version 2, to the group.
        sent(|send| one.receive(&query(ALL, &V2), at(15_000), send));
        let answers = sent(|send| one.tick(at(16_000), send));
        let older = vec![0x16, 0, 0xf9, 0xf6, 239, 1, 1, 7];
        assert_eq!(answers.iter().map(|f| igmp_of(f)).collect::<Vec<_>>(), [(GROUP, older)]);
        // It has been silent for 400 s: version 3 again.
        let answers = sent(|send| one.tick(at(16_000 + 400_001), send));
        assert_eq!(answers.iter().map(|f| igmp_of(f).0).collect::<Vec<_>>(), [igmp::REPORTS]);
        // Fixed: whatever is asked.
        let mut fixed = Host::new(MAC, ADDRESS, 0, Some(Version::V2));
        sent(|send| fixed.join(0, GROUP, &SourceFilter::Any, at(0), send));
        let left = sent(|send| fixed.leave(0, GROUP, at(0), send));
        assert_eq!(igmp_of(&left[0]), (igmp::ROUTERS, vec![0x17, 0, 0xf8, 0xf6, 239, 1, 1, 7]));
    }

    proptest! {
        /// Whatever comes and is asked for, what goes out is whole, and groups are those of who is in them.
        #[test]
        fn what_goes_out_is_whole(vlan in prop_oneof![Just(0u16), 1u16..4095],
                                  steps in proptest::collection::vec((0u8..5, 0u8..3, 0u8..3, proptest::collection::vec(any::<u8>(), 0..80)), 0..60)) {
            let mut one = host(vlan);
            let mut members = std::collections::BTreeSet::new();
            for (n, (step, member, group, octets)) in steps.into_iter().enumerate() {
                let now = at(n as u64 * 700);
                let group_address = Ipv4Addr::new(239, 1, 1, group);
                let mut whole = true;
                let mut check = |frame: &[u8]| {
                    let at = if vlan == 0 { 12 } else { 16 };
                    whole &= frame.len() >= 60 && frame[6..12] == MAC && match be16(frame, at) {
                        Some(0x0800) => igmp::inside(&frame[at + 2..]).is_some_and(|(_, octets)| igmp::checksum(octets) == 0),
                        Some(0x0806) => arp::parse(&frame[at + 2..]).is_some(),
                        _ => false,
                    };
                };
                match step {
                    0 => { one.join(member, group_address, &include(&octets), now, &mut check); members.insert((group, member)); }
                    1 => { one.join(member, group_address, &SourceFilter::Any, now, &mut check); members.insert((group, member)); }
                    2 => { one.leave(member, group_address, now, &mut check); members.remove(&(group, member)); }
                    3 => one.receive(&octets, now, &mut check),
                    _ => one.tick(now, &mut check),
                }
                prop_assert!(whole);
                let groups: std::collections::BTreeSet<u8> = one.groups().map(|g| g.octets()[3]).collect();
                prop_assert_eq!(groups, members.iter().map(|(group, _)| *group).collect());
            }
        }
    }
}
