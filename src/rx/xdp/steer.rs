//! By which queue a flow comes: rules of the card (n-tuple, `ethtool -n`) that lead it to one are found, or made.
//!
//! A rule compares octets of headers under a mask. Of a flow some octets are known and others are not, so a rule takes all
//! of its packets, none, or some; the first rule (by its location) that takes any decides.
#![allow(unsafe_code)]

use super::device;
use super::filter::Lock;
use super::program::Wanted;
use crate::error::Result;
use std::fmt;
use std::io;
use std::mem::offset_of;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

/// `ETHTOOL_…` of linux/ethtool.h.
const RULE_COUNT: u32 = 0x2e;
const RULE: u32 = 0x2f;
const RULES: u32 = 0x30;
const REMOVE: u32 = 0x31;
const INSERT: u32 = 0x32;
const FLAGS: u32 = 0x25;
const FLAG_NTUPLE: u32 = 1 << 27;

/// `UDP_V4_FLOW`, `UDP_V6_FLOW`, `IPV4_USER_FLOW`, `IPV6_USER_FLOW`.
const UDP4: u32 = 2;
const UDP6: u32 = 6;
const IP4: u32 = 13;
const IP6: u32 = 14;
/// `FLOW_EXT`, `FLOW_MAC_EXT`, `FLOW_RSS`.
const WITH_VLAN: u32 = 1 << 31;
const WITH_MAC: u32 = 1 << 30;
const WITH_RSS: u32 = 1 << 29;

/// `RX_CLS_LOC_SPECIAL`: the driver can choose a location; `RX_CLS_LOC_ANY`: it is to.
const SPECIAL: u64 = 1 << 31;
const ANYWHERE: u32 = u32::MAX;

/// Rules that are read at most; odd, so that the structure has no end of padding.
const MOST: usize = 4095;

/// `struct ethtool_rx_flow_spec`. The unions are octets, in network order.
#[repr(C)]
#[derive(Clone, Copy)]
struct Spec {
    flow_type: u32,
    header: [u8; 52],
    extension: [u8; 20],
    header_mask: [u8; 52],
    extension_mask: [u8; 20],
    gap: u32,
    /// The queue; other bits lead to a virtual function, or to nobody.
    cookie: u64,
    location: u32,
    end: u32,
}

/// `struct ethtool_rxnfc`, with room for locations.
#[repr(C)]
pub struct Request {
    command: u32,
    flow_type: u32,
    data: u64,
    spec: Spec,
    count: u32,
    locations: [u32; MOST],
}

// As a C compiler lays out linux/ethtool.h; there a request is 192 octets with no location.
const _: () = {
    assert!(size_of::<Spec>() == 168);
    assert!(offset_of!(Spec, header) == 4 && offset_of!(Spec, extension) == 56);
    assert!(offset_of!(Spec, header_mask) == 76 && offset_of!(Spec, extension_mask) == 128);
    assert!(offset_of!(Spec, cookie) == 152 && offset_of!(Spec, location) == 160);
    assert!(offset_of!(Request, flow_type) == 4 && offset_of!(Request, data) == 8 && offset_of!(Request, spec) == 16);
    assert!(offset_of!(Request, count) == 184 && offset_of!(Request, locations) == 188);
    assert!(size_of::<Request>() == 188 + 4 * MOST && size_of::<Request>() >= 192);
};

/// Where VLAN and MAC address lie in `struct ethtool_flow_ext`.
const MAC: std::ops::Range<usize> = 2..8;
const VLAN_AND_MORE: std::ops::Range<usize> = 8..20;
const TCI: usize = 10;

const EMPTY: Spec = Spec {
    flow_type: 0,
    header: [0; 52],
    extension: [0; 20],
    header_mask: [0; 52],
    extension_mask: [0; 20],
    gap: 0,
    cookie: 0,
    location: 0,
    end: 0,
};

fn request(command: u32) -> Box<Request> {
    Box::new(Request { command, flow_type: 0, data: 0, spec: EMPTY, count: 0, locations: [0; MOST] })
}

/// What is known of a flow's packets: octets, and a mask of those that are known.
#[derive(Clone)]
pub struct Flow {
    flow_type: u32,
    addresses: usize,
    header: [u8; 52],
    known: [u8; 52],
    vlan: [u8; 2],
}

/// Which of a flow's packets a rule takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    None,
    Some,
    All,
}

impl Flow {
    /// The source counts where there is exactly one.
    pub fn new(wanted: &Wanted) -> Self {
        let source = match wanted.sources.as_slice() {
            [one] if one.is_ipv4() == wanted.destination.is_ipv4() => Some(*one),
            _ => None,
        };
        let octets = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let (flow_type, width) = if wanted.destination.is_ipv4() { (UDP4, 4) } else { (UDP6, 16) };
        let mut flow =
            Flow { flow_type, addresses: 2 * width, header: [0; 52], known: [0; 52], vlan: wanted.vlan.to_be_bytes() };
        // Source address, destination address, source port, destination port.
        if let Some(source) = source {
            flow.put(0, &octets(source));
        }
        flow.put(width, &octets(wanted.destination));
        flow.put(2 * width + 2, &wanted.port.to_be_bytes());
        flow
    }

    fn put(&mut self, at: usize, octets: &[u8]) {
        for ((to, known), octet) in self.header.iter_mut().zip(&mut self.known).skip(at).zip(octets) {
            (*to, *known) = (*octet, 0xff);
        }
    }

    /// The rule that leads it to a queue.
    fn rule(&self, queue: u32, location: u32) -> Spec {
        let (header, header_mask) = (self.header, self.known);
        Spec { flow_type: self.flow_type, header, header_mask, cookie: queue.into(), location, ..EMPTY }
    }

    /// Which of its packets a rule takes. Rules of other protocols and of Ethernet types take none.
    fn fit(&self, rule: &Spec) -> Fit {
        let user_type = if self.flow_type == UDP4 { IP4 } else { IP6 };
        let kind = rule.flow_type & !(WITH_VLAN | WITH_MAC | WITH_RSS);
        // Those of IP begin with the addresses too; what follows there is not compared, so it is not known.
        let known = match kind {
            kind if kind == self.flow_type => self.known.len(),
            kind if kind == user_type => self.addresses,
            _ => return Fit::None,
        };
        let (mut extension, mut extension_known) = ([0; 20], [0; 20]);
        extension[TCI..TCI + 2].copy_from_slice(&self.vlan);
        extension_known[TCI..TCI + 2].copy_from_slice(&[0x0f, 0xff]);
        let headers = (0..52).map(|n| {
            let known = if n < known { self.known[n] } else { 0 };
            (rule.header[n], rule.header_mask[n], self.header[n], known)
        });
        let part = |flag, range: std::ops::Range<usize>| if rule.flow_type & flag == 0 { 0..0 } else { range };
        let extensions = part(WITH_MAC, MAC)
            .chain(part(WITH_VLAN, VLAN_AND_MORE))
            .map(|n| (rule.extension[n], rule.extension_mask[n], extension[n], extension_known[n]));
        let mut fit = Fit::All;
        for (theirs, mask, ours, known) in headers.chain(extensions) {
            if mask & known & (theirs ^ ours) != 0 {
                return Fit::None;
            }
            if mask & !known != 0 {
                fit = Fit::Some;
            }
        }
        fit
    }
}

/// Why there is no rule.
#[derive(Debug)]
pub enum Refusal {
    /// The driver knows no rules.
    Unknown(io::Error),
    /// They are switched off.
    Off,
    /// More than are read.
    Many(u32),
    /// The rule there takes some of the packets, or came meanwhile.
    Some(u32),
    /// The rule there leads to several queues.
    Spread(u32),
    /// The rule there leads to no queue that can be served.
    Away(u32),
    /// No room for one more.
    Full,
    /// The driver or the kernel refuses a new one.
    Failed(io::Error),
}

impl Refusal {
    /// It is about this flow, not about the card.
    const fn is_of_flow(&self) -> bool {
        matches!(self, Refusal::Some(_) | Refusal::Spread(_) | Refusal::Away(_))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Unknown(e) => write!(f, "its driver knows no n-tuple rules: {e}"),
            Refusal::Off => write!(f, "n-tuple rules are switched off (ethtool -K … ntuple on)"),
            Refusal::Many(count) => write!(f, "it has {count} n-tuple rules, too many to read"),
            Refusal::Some(at) => write!(f, "rule {at} takes some of the flow's packets"),
            Refusal::Spread(at) => write!(f, "rule {at} leads the flow to an RSS context"),
            Refusal::Away(at) => write!(f, "rule {at} leads the flow to no queue that can be served"),
            Refusal::Full => write!(f, "its table of n-tuple rules is full"),
            Refusal::Failed(e) if e.raw_os_error() == Some(libc::EPERM) => {
                write!(
                    f,
                    "a rule needs CAP_NET_ADMIN, a helper makes none; one that root made is found (ethtool -N): {e}"
                )
            }
            Refusal::Failed(e) => write!(f, "it refuses the rule: {e}"),
        }
    }
}

/// What is asked of a card.
pub trait Calls {
    /// N-tuple rules are switched on.
    fn is_on(&self) -> io::Result<bool>;
    /// One of the commands of `struct ethtool_rxnfc`.
    fn ask(&self, request: &mut Request) -> io::Result<()>;
}

/// An interface, asked by `SIOCETHTOOL`.
pub struct Card {
    /// Stays in the namespace where the interface was found.
    socket: OwnedFd,
    name: String,
}

impl Card {
    /// Of this name, in the namespace of this thread.
    pub fn open(name: &str) -> io::Result<Self> {
        Ok(Card { socket: device::ethtool_socket()?, name: name.to_owned() })
    }
}

impl Calls for Card {
    fn is_on(&self) -> io::Result<bool> {
        // struct ethtool_value.
        let mut value = [FLAGS, 0];
        // SAFETY: as long as that structure.
        unsafe { device::ethtool(self.socket.as_fd(), &self.name, &mut value) }?;
        Ok(value[1] & FLAG_NTUPLE != 0)
    }
    fn ask(&self, request: &mut Request) -> io::Result<()> {
        // SAFETY: as long as `struct ethtool_rxnfc`, and `count` says for how many locations there is room.
        unsafe { device::ethtool(self.socket.as_fd(), &self.name, request) }
    }
}

/// Locations of all rules in their order, how many there may be, and whether the driver chooses them.
struct Table {
    used: Vec<u32>,
    size: u32,
    chooses: bool,
}

fn table(calls: &impl Calls) -> std::result::Result<Table, Refusal> {
    let mut ask = request(RULE_COUNT);
    calls.ask(&mut ask).map_err(Refusal::Unknown)?;
    if !calls.is_on().map_err(Refusal::Unknown)? {
        return Err(Refusal::Off);
    }
    let (count, chooses) = (ask.count, ask.data & SPECIAL != 0);
    if count as usize > MOST {
        return Err(Refusal::Many(count));
    }
    let mut ask = request(RULES);
    ask.count = count;
    calls.ask(&mut ask).map_err(Refusal::Unknown)?;
    let mut used: Vec<u32> = ask.locations.iter().copied().take(ask.count as usize).collect();
    used.sort_unstable();
    Ok(Table { used, size: u32::try_from(ask.data).unwrap_or(u32::MAX), chooses })
}

fn rule(calls: &impl Calls, location: u32) -> io::Result<Spec> {
    let mut ask = request(RULE);
    ask.spec.location = location;
    calls.ask(&mut ask)?;
    Ok(ask.spec)
}

/// The rule that leads a flow to one of `count` queues: its location, and the queue.
fn find(
    calls: &impl Calls,
    table: &Table,
    flow: &Flow,
    count: u32,
) -> std::result::Result<Option<(u32, u32)>, Refusal> {
    for &location in &table.used {
        // One that has gone meanwhile takes nothing.
        let Ok(rule) = rule(calls, location) else { continue };
        match flow.fit(&rule) {
            Fit::None => {}
            Fit::Some => return Err(Refusal::Some(location)),
            Fit::All if rule.flow_type & WITH_RSS != 0 => return Err(Refusal::Spread(location)),
            Fit::All => {
                let queue = u32::try_from(rule.cookie).ok().filter(|queue| *queue < count);
                return queue.map(|queue| Some((location, queue))).ok_or(Refusal::Away(location));
            }
        }
    }
    Ok(None)
}

/// A rule that was made here, and is removed with this.
pub struct Rule<C: Calls = Card> {
    calls: C,
    flow: Flow,
    queue: u32,
    location: u32,
}

impl<C: Calls> Rule<C> {
    /// Makes one that leads a flow to a queue, behind those that are there.
    fn insert(calls: C, flow: Flow, queue: u32, count: u32) -> std::result::Result<Self, Refusal> {
        let table = table(&calls)?;
        if let Some((location, _)) = find(&calls, &table, &flow, count)? {
            return Err(Refusal::Some(location));
        }
        let location = if table.chooses {
            ANYWHERE
        } else {
            (0..table.size).rev().find(|at| table.used.binary_search(at).is_err()).ok_or(Refusal::Full)?
        };
        let mut ask = request(INSERT);
        ask.spec = flow.rule(queue, location);
        calls.ask(&mut ask).map_err(|e| match e.raw_os_error() {
            Some(libc::ENOSPC) => Refusal::Full,
            _ => Refusal::Failed(e),
        })?;
        Ok(Rule { calls, flow, queue, location: ask.spec.location })
    }
}

impl<C: Calls> Drop for Rule<C> {
    fn drop(&mut self) {
        // Somebody may have removed it, and the location may have another one.
        let ours = rule(&self.calls, self.location)
            .is_ok_and(|rule| self.flow.fit(&rule) == Fit::All && rule.cookie == u64::from(self.queue));
        if ours {
            let mut ask = request(REMOVE);
            ask.spec.location = self.location;
            let _ = self.calls.ask(&mut ask);
        }
    }
}

/// Queues that are to be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// This one.
    One(u32),
    /// One that is served already, else a free one.
    Any,
    /// All that are free.
    All,
}

/// What is wished of a flow's queue.
pub struct Wish<'a> {
    /// The interface, and how many queues it has.
    pub name: &'a str,
    pub count: u32,
    /// The only queue that may be served.
    pub queue: Option<u32>,
    /// A rule may be made.
    pub steer: bool,
}

/// Finds the queue of a flow or makes a rule, and takes the queues that are to be served. `take` takes some and returns
/// one of them. What was found, made or refused is said in `notes`.
///
/// # Errors
/// Those of `take`.
pub fn serve<C: Calls>(
    calls: C,
    flow: Flow,
    wish: &Wish<'_>,
    notes: &mut Vec<String>,
    take: &mut dyn FnMut(Which, &mut Vec<String>) -> Result<u32>,
) -> Result<Option<Rule<C>>> {
    let Wish { name, count, queue: only, steer } = *wish;
    let rest = only.map_or(Which::All, Which::One);
    let look = || find(&calls, &table(&calls)?, &flow, count);
    match look() {
        Ok(Some((location, queue))) if only.is_none_or(|only| only == queue) => {
            take(Which::One(queue), notes)?;
            // A receiver that had the queue until now may have had the rule too.
            if matches!(look(), Ok(Some((_, still))) if still == queue) {
                notes.push(format!(
                    "rule {location} of {name} leads the flow to queue {queue}; it stays (ethtool -N {name} delete {location} removes it)"
                ));
                return Ok(None);
            }
        }
        Ok(Some((location, queue))) => {
            notes.push(format!(
                "warning: rule {location} of {name} leads the flow to queue {queue}, which is not served"
            ));
        }
        Ok(None) if steer => {
            let queue = take(only.map_or(Which::Any, Which::One), notes)?;
            let lock = Lock::take()?;
            let made = Rule::insert(calls, flow, queue, count);
            drop(lock);
            match made {
                Ok(rule) => {
                    let location = rule.location;
                    notes.push(format!(
                        "rule {location} of {name} was made and leads the flow to queue {queue}; it goes with this receiver (after a crash: ethtool -N {name} delete {location})"
                    ));
                    return Ok(Some(rule));
                }
                Err(why) => notes.push(not_steered(name, &why, only)),
            }
        }
        Err(why) if steer || why.is_of_flow() => notes.push(not_steered(name, &why, only)),
        Ok(None) | Err(_) => {}
    }
    take(rest, notes)?;
    Ok(None)
}

fn not_steered(name: &str, why: &Refusal, only: Option<u32>) -> String {
    let served = only.map_or_else(|| "all free queues are served".into(), |queue| format!("queue {queue} is served"));
    format!("the flow is led to no queue of {name}: {why}; {served}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// A card with a table, as the kernel answers for it.
    struct Fake {
        rules: RefCell<BTreeMap<u32, Spec>>,
        size: u32,
        chooses: bool,
        on: bool,
        /// What a command is refused with.
        refuses: Option<(u32, i32)>,
        log: RefCell<Vec<(u32, u32)>>,
    }

    impl Fake {
        fn new(size: u32) -> Self {
            let (rules, log) = Default::default();
            Fake { rules, size, chooses: false, on: true, refuses: None, log }
        }
        fn with(self, location: u32, rule: Spec) -> Self {
            self.rules.borrow_mut().insert(location, Spec { location, ..rule });
            self
        }
        fn locations(&self) -> Vec<u32> {
            self.rules.borrow().keys().copied().collect()
        }
    }

    impl Calls for &Fake {
        fn is_on(&self) -> io::Result<bool> {
            Ok(self.on)
        }
        fn ask(&self, request: &mut Request) -> io::Result<()> {
            let fails = |code| Err(io::Error::from_raw_os_error(code));
            if let Some((_, code)) = self.refuses.filter(|(command, _)| *command == request.command) {
                return fails(code);
            }
            let mut rules = self.rules.borrow_mut();
            match request.command {
                // ETHTOOL_GRXCLSRLCNT
                0x2e => {
                    request.count = rules.len() as u32;
                    request.data = if self.chooses { 0x8000_0000 } else { 0 };
                }
                // ETHTOOL_GRXCLSRULE
                0x2f => match rules.get(&request.spec.location) {
                    Some(rule) => request.spec = *rule,
                    None => return fails(libc::ENOENT),
                },
                // ETHTOOL_GRXCLSRLALL
                0x30 => {
                    if (request.count as usize) < rules.len() {
                        return fails(libc::EMSGSIZE);
                    }
                    (request.count, request.data) = (rules.len() as u32, self.size.into());
                    // In no order.
                    request.locations.iter_mut().zip(rules.keys().rev()).for_each(|(to, at)| *to = *at);
                }
                // ETHTOOL_SRXCLSRLDEL
                0x31 => {
                    self.log.borrow_mut().push((0x31, request.spec.location));
                    if rules.remove(&request.spec.location).is_none() {
                        return fails(libc::ENOENT);
                    }
                }
                // ETHTOOL_SRXCLSRLINS
                0x32 => {
                    if request.spec.location == u32::MAX && self.chooses {
                        match (0..self.size).find(|at| !rules.contains_key(at)) {
                            Some(free) => request.spec.location = free,
                            None => return fails(libc::ENOSPC),
                        }
                    }
                    if request.spec.location >= self.size {
                        return fails(libc::EINVAL);
                    }
                    self.log.borrow_mut().push((0x32, request.spec.location));
                    assert!(rules.insert(request.spec.location, request.spec).is_none(), "none is overwritten");
                }
                other => panic!("command {other:#x}"),
            }
            Ok(())
        }
    }

    fn wanted(destination: &str, port: u16, sources: &[&str]) -> Wanted {
        let sources = sources.iter().map(|s| s.parse().unwrap()).collect();
        Wanted { destination: destination.parse().unwrap(), port, sources, vlan: 0 }
    }

    fn flow() -> Flow {
        Flow::new(&wanted("239.1.2.3", 5004, &[]))
    }

    fn wish(steer: bool) -> Wish<'static> {
        Wish { name: "eth1", count: 8, queue: None, steer }
    }

    /// What was asked to be served, the notes, and the rule. Of `Any` queue 7 is free.
    fn serve_with<'a>(card: &'a Fake, flow: Flow, wish: &Wish<'_>) -> (Vec<Which>, String, Option<Rule<&'a Fake>>) {
        let (mut taken, mut notes) = (Vec::new(), Vec::new());
        let rule = serve(card, flow, wish, &mut notes, &mut |which, _| {
            taken.push(which);
            Ok(if let Which::One(queue) = which { queue } else { 7 })
        });
        (taken, notes.join("; "), rule.unwrap())
    }

    #[test]
    fn a_rule_of_ipv4_has_its_octets_where_the_kernel_reads_them() {
        let rule = flow().rule(3, 9);
        let mut header = [0; 52];
        // struct ethtool_tcpip4_spec: source 0, destination 4, ports 8 and 10.
        header[4..8].copy_from_slice(&[239, 1, 2, 3]);
        header[10..12].copy_from_slice(&[0x13, 0x8c]);
        let mut mask = [0; 52];
        mask[4..8].fill(255);
        mask[10..12].fill(255);
        assert_eq!((rule.flow_type, rule.cookie, rule.location), (2, 3, 9));
        assert_eq!((rule.header, rule.header_mask, rule.extension_mask), (header, mask, [0; 20]));
        let one = Flow::new(&wanted("239.1.2.3", 5004, &["192.0.2.1"])).rule(3, 9);
        header[..4].copy_from_slice(&[192, 0, 2, 1]);
        mask[..4].fill(255);
        assert_eq!((one.header, one.header_mask), (header, mask));
        let two = Flow::new(&wanted("239.1.2.3", 5004, &["192.0.2.1", "192.0.2.2"])).rule(3, 9);
        assert_eq!((two.header, two.header_mask), (rule.header, rule.header_mask));
    }

    #[test]
    fn a_rule_of_ipv6_has_its_octets_where_the_kernel_reads_them() {
        let rule = Flow::new(&wanted("ff3e::1:2", 0x1234, &["2001:db8::5"])).rule(0, 1);
        let (mut header, mut mask) = ([0; 52], [0; 52]);
        // struct ethtool_tcpip6_spec: source 0, destination 16, ports 32 and 34.
        header[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        header[15] = 5;
        (header[16], header[17], header[29], header[31]) = (0xff, 0x3e, 1, 2);
        (header[34], header[35]) = (0x12, 0x34);
        mask[..32].fill(255);
        mask[34..36].fill(255);
        assert_eq!((rule.flow_type, rule.header, rule.header_mask), (6, header, mask));
    }

    #[test]
    fn rules_take_all_packets_some_or_none() {
        let flow = flow();
        let same = flow.rule(0, 0);
        let changed = |change: &dyn Fn(&mut Spec)| {
            let mut rule = same;
            change(&mut rule);
            flow.fit(&rule)
        };
        let tag = |rule: &mut Spec, tci: [u8; 2], mask: [u8; 2]| {
            rule.flow_type |= 1 << 31;
            rule.extension[10..12].copy_from_slice(&tci);
            rule.extension_mask[10..12].copy_from_slice(&mask);
        };
        type Change<'a> = &'a dyn Fn(&mut Spec);
        let cases: [(Fit, Change<'_>); 17] = [
            (Fit::All, &|_| ()),
            (Fit::All, &|r| r.header_mask[10..12].fill(0)),
            (Fit::All, &|r| r.header_mask = [0; 52]),
            // 239.1.2.0/24, and the same of another network.
            (Fit::All, &|r| (r.header[7], r.header_mask[7]) = (0, 0)),
            (Fit::None, &|r| (r.header[6], r.header_mask[7]) = (9, 0)),
            (Fit::None, &|r| r.header[11] ^= 1),
            // One source, one source port, one type of service.
            (Fit::Some, &|r| r.header_mask[0] = 255),
            (Fit::Some, &|r| r.header_mask[9] = 1),
            (Fit::Some, &|r| r.header_mask[12] = 255),
            // TCP, IPv6.
            (Fit::None, &|r| r.flow_type = 1),
            (Fit::None, &|r| r.flow_type = 6),
            // A rule of IPv4: the same address; the rest of it is not known.
            (Fit::Some, &|r| r.flow_type = 13),
            (Fit::All, &|r| {
                r.flow_type = 13;
                r.header_mask[8..].fill(0);
            }),
            // VLANs: none, another one, one priority.
            (Fit::All, &|r| tag(r, [0, 0], [0x0f, 0xff])),
            (Fit::None, &|r| tag(r, [0, 5], [0x0f, 0xff])),
            (Fit::Some, &|r| tag(r, [0, 0], [0xff, 0xff])),
            // One MAC address.
            (Fit::Some, &|r| {
                r.flow_type |= 1 << 30;
                r.extension_mask[2..8].fill(255);
            }),
        ];
        for (n, (fit, change)) in cases.into_iter().enumerate() {
            assert_eq!(changed(change), fit, "case {n}");
        }
        // What is masked there does not count without its flag.
        assert_eq!(changed(&|r| r.extension_mask = [255; 20]), Fit::All);
        let mut on_vlan = flow.rule(0, 0);
        tag(&mut on_vlan, [0, 5], [0x0f, 0xff]);
        let five = Wanted { vlan: 5, ..wanted("239.1.2.3", 5004, &[]) };
        assert_eq!(Flow::new(&five).fit(&on_vlan), Fit::All);
    }

    #[test]
    fn a_rule_is_made_where_room_is_and_removed() {
        for (chooses, at) in [(false, 15), (true, 0)] {
            let card = Fake { chooses, ..Fake::new(16) };
            let (taken, notes, rule) = serve_with(&card, flow(), &wish(true));
            assert_eq!(taken, [Which::Any]);
            assert!(notes.starts_with(&format!("rule {at} of eth1 was made and leads the flow to queue 7")), "{notes}");
            assert_eq!(card.rules.borrow()[&at].cookie, 7);
            drop(rule);
            assert_eq!(*card.log.borrow(), [(0x32, at), (0x31, at)]);
        }
        // Only when it is asked for.
        let card = Fake::new(16);
        let (taken, notes, rule) = serve_with(&card, flow(), &wish(false));
        assert_eq!((taken, notes.as_str(), rule.is_none()), (vec![Which::All], "", true));
        // To the queue that is named.
        let named = Wish { queue: Some(2), ..wish(true) };
        let (taken, _, rule) = serve_with(&card, flow(), &named);
        assert_eq!((taken, card.rules.borrow()[&15].cookie), (vec![Which::One(2)], 2));
        // Another rule came to its place: that one stays.
        card.rules.borrow_mut().insert(15, flow().rule(4, 15));
        drop(rule);
        assert_eq!(card.locations(), [15]);
    }

    #[test]
    fn a_rule_that_is_there_is_used_and_stays() {
        let card = Fake::new(16).with(4, flow().rule(6, 4)).with(9, flow().rule(1, 9));
        for steer in [false, true] {
            let (taken, notes, rule) = serve_with(&card, flow(), &wish(steer));
            assert_eq!((taken, rule.is_none()), (vec![Which::One(6)], true));
            assert!(notes.contains("rule 4 of eth1 leads the flow to queue 6; it stays"), "{notes}");
        }
        let other = Wish { queue: Some(1), ..wish(true) };
        let (taken, notes, _) = serve_with(&card, flow(), &other);
        assert_eq!(taken, [Which::One(1)]);
        assert!(notes.contains("warning: rule 4 of eth1 leads the flow to queue 6, which is not served"), "{notes}");
        assert!(card.log.borrow().is_empty());
        // It goes while its queue is being taken.
        let (mut taken, mut notes) = (Vec::new(), Vec::new());
        serve(&card, flow(), &wish(false), &mut notes, &mut |which, _| {
            card.rules.borrow_mut().clear();
            taken.push(which);
            Ok(6)
        })
        .unwrap();
        assert_eq!((taken, notes.len()), (vec![Which::One(6), Which::All], 0));
    }

    #[test]
    fn what_leads_elsewhere_is_said_and_nothing_is_made() {
        let flow = flow();
        let part = |mut rule: Spec| {
            rule.header_mask[8..10].fill(255);
            rule
        };
        let cookie = |cookie| Spec { cookie, ..flow.rule(0, 0) };
        for (rule, said) in [
            (part(flow.rule(2, 0)), "rule 3 takes some of the flow's packets"),
            (Spec { flow_type: 2 | 1 << 29, ..flow.rule(2, 0) }, "rule 3 leads the flow to an RSS context"),
            // RX_CLS_FLOW_DISC, a virtual function, a queue beyond.
            (cookie(u64::MAX), "rule 3 leads the flow to no queue that can be served"),
            (cookie(1 << 32 | 2), "rule 3 leads the flow to no queue that can be served"),
            (cookie(8), "rule 3 leads the flow to no queue that can be served"),
        ] {
            // One behind it does not count.
            let card = Fake::new(16).with(3, rule).with(5, flow.rule(1, 5));
            for steer in [false, true] {
                let (taken, notes, rule) = serve_with(&card, flow.clone(), &wish(steer));
                assert_eq!((taken, rule.is_none()), (vec![Which::All], true), "{said}");
                assert!(notes.contains(said) && notes.contains("all free queues are served"), "{notes}");
            }
            assert!(card.log.borrow().is_empty());
        }
    }

    #[test]
    fn refusals_are_said_and_all_queues_served() {
        let new = || Fake::new(16);
        let refuses = |command, code| Fake { refuses: Some((command, code)), ..new() };
        for (card, before, said) in [
            (refuses(0x2e, libc::EOPNOTSUPP), vec![], "its driver knows no n-tuple rules"),
            (Fake { on: false, ..new() }, vec![], "n-tuple rules are switched off"),
            (Fake::new(0), vec![Which::Any], "its table of n-tuple rules is full"),
            (refuses(0x32, libc::ENOSPC), vec![Which::Any], "its table of n-tuple rules is full"),
            (refuses(0x32, libc::EPERM), vec![Which::Any], "a rule needs CAP_NET_ADMIN"),
            (refuses(0x32, libc::EINVAL), vec![Which::Any], "it refuses the rule: Invalid argument"),
        ] {
            let (taken, notes, rule) = serve_with(&card, flow(), &wish(true));
            assert_eq!((taken, rule.is_none()), ([before, vec![Which::All]].concat(), true), "{said}");
            assert!(notes.contains(said) && notes.contains("all free queues are served"), "{notes}");
            // Without the wish there is nothing to be said.
            let (taken, notes, _) = serve_with(&card, flow(), &wish(false));
            assert_eq!((taken, notes.as_str()), (vec![Which::All], ""), "{said}");
            assert!(card.rules.borrow().is_empty());
        }
    }

    #[test]
    fn of_two_legs_the_second_may_be_refused_and_nothing_stays() {
        let card = Fake::new(1);
        let (_, _, first) = serve_with(&card, flow(), &wish(true));
        let second = Flow::new(&wanted("239.9.2.3", 5004, &[]));
        let (taken, notes, none) = serve_with(&card, second.clone(), &wish(true));
        assert_eq!((taken, none.is_none()), (vec![Which::Any, Which::All], true));
        assert!(notes.contains("full"), "{notes}");
        assert_eq!(card.locations(), [0], "the first one's is used still");
        drop(first);
        assert!(card.rules.borrow().is_empty());
        // An error of the second ends the receiver.
        let (_, _, first) = serve_with(&card, flow(), &wish(true));
        let failed = serve(&card, second, &wish(true), &mut Vec::new(), &mut |_, _| {
            Err(crate::error::Error::new(crate::error::Kind::Unavailable, "no queue"))
        });
        assert!(failed.is_err());
        drop(first);
        assert_eq!(*card.log.borrow(), [(0x32, 0), (0x31, 0), (0x32, 0), (0x31, 0)]);
    }
}
