//! A port that a receiver has: by which name, whose it is beside us, and what was wrong when it could not be had.
#![allow(unsafe_code)]

use super::abi::{self, Counts, Info, Pool, Setup};
use super::eal;
use super::failure::{not_attached, not_reached, not_started};
use super::leg::{self, JoinedLeg};
use super::link::{Change, Link};
use super::name::Name;
use super::options::Options;
use super::ticks::{self, Clock, Ticks, Useless};
use crate::error::{Error, Kind, Result};
use crate::rx::card::Stamps;
use crate::rx::host::Host;
use crate::rx::socket::{Stamping, interfaces, tai_offset};
use crate::rx::xdp::program::Wanted;
use crate::sdp::Leg;
use crate::wire::igmp;
use crate::wire::net::mac_of;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// For how long a card's clock is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Between two questions to the driver, about its link and what it has counted: the card may be asked by way of its firmware.
const ASK: Duration = Duration::from_millis(250);
/// Takes an interface's queue whole, so that the kernel gets nothing of it any more.
pub const AF_XDP: &str = "net_af_xdp";

/// Who has a port beside us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The kernel has this interface, with its addresses and groups.
    Kernel(String),
    /// Nobody; ARP and groups are ours.
    Us,
    /// Nobody, and nobody asks: a recording, memory.
    Nobody,
}

/// A port.
pub struct Port {
    // Closed before the name is free.
    raw: abi::Port,
    name: Name,
    /// In the options.
    number: usize,
    info: Info,
    beside: Beside,
    /// What we say where nobody else does.
    host: Option<Host>,
    began: Instant,
    queues: u16,
    /// Only what rules name comes.
    isolated: bool,
    vlan: u16,
    /// Of the card, where its stamps are taken.
    pub stamps: Option<(Stamps, Ticks)>,
    /// As it said last.
    counts: Counts,
    /// The same when its first leg was joined: what was lost before that was not the flow's.
    base: Option<Counts>,
    link: Link,
    /// When its driver was asked last.
    asked: Duration,
    /// Of the network namespace that the interface beneath is in, where there is one.
    namespace: Option<socket2::Socket>,
    /// It is there no more.
    pub gone: bool,
}

impl Port {
    /// Attaches what the user says, on behalf of port `number` of the options; [`Port::start`] has it receive.
    ///
    /// # Errors
    /// There is no such device, another receiver has it, or it lacks what is needed.
    pub fn open(spec: &str, number: usize, options: &Options, notes: &mut Vec<String>) -> Result<Self> {
        eal::filter_of_its_own(spec, abi::has_raised_rights())?;
        let (name, spec) = Name::take(spec)?;
        let text = |text: &str| CString::new(text).map_err(|_| Error::new(Kind::Usage, "a port with a zero octet"));
        let (raw, info) =
            abi::Port::open(&text(&spec)?, &text(&name.0)?).map_err(|refused| not_attached(&name.0, refused))?;
        let interface = (info.if_index != 0).then(|| interfaces().into_iter().find(|i| i.index == info.if_index));
        let interface = interface.flatten();
        let vlan = options.vlan.unwrap_or(0);
        let told = options.address(number);
        let (beside, address) = match (&interface, told) {
            (Some(interface), told) if info.driver == AF_XDP => {
                let own = interface.addresses.iter().find_map(|address| match address {
                    IpAddr::V4(address) => Some(*address),
                    IpAddr::V6(_) => None,
                });
                notes.push(format!("{} gets nothing any more while DPDK has it: ssh, PTP, ping", interface.name));
                (Beside::Us, told.or(own))
            }
            (Some(interface), None) => (Beside::Kernel(interface.name.clone()), None),
            (Some(interface), Some(_)) => {
                notes.push(format!("address= counts for nothing on {}: the kernel has its address", interface.name));
                (Beside::Kernel(interface.name.clone()), None)
            }
            (None, Some(address)) => (Beside::Us, Some(address)),
            (None, None) if info.pci => (Beside::Us, None),
            (None, None) => (Beside::Nobody, None),
        };
        if beside == Beside::Us && address.is_none() {
            return Err(Error::new(
                Kind::Usage,
                format!("port {} belongs to DPDK alone, and is told no address", name.0),
            )
            .cure("say which one it answers for, and joins groups with: address=IPV4"));
        }
        if options.stamps == Stamping::Hardware && !info.stamps {
            return Err(Error::new(
                Kind::Unavailable,
                format!("port {} gives no time stamps of a card (driver {})", name.0, info.driver),
            )
            .cure("leave stamps=hardware out"));
        }
        let socket = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).ok();
        let namespace = interface.as_ref().and_then(|_| socket());
        let host = address.map(|address| Host::new(info.mac, address, vlan, options.igmp));
        Ok(Port {
            raw,
            name,
            number,
            isolated: info.pci && interface.is_some(),
            info,
            beside,
            host,
            began: Instant::now(),
            queues: 0,
            vlan,
            stamps: None,
            counts: Counts::default(),
            base: None,
            link: Link::default(),
            asked: Duration::ZERO,
            namespace,
            gone: false,
        })
    }

    /// Begins to receive, into `pool` (and `split`). The pools outlive the port.
    ///
    /// # Safety
    /// As said.
    pub unsafe fn start(
        &mut self,
        options: &Options,
        pool: &Pool,
        split: Option<(u16, &Pool)>,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let info = &self.info;
        let queues = options.queues.min(u16::try_from(info.max_queues).unwrap_or(u16::MAX)).max(1);
        let stamps = options.stamps != Stamping::Software && info.stamps;
        // With the headers of IPv6 and UDP; never less than everybody's.
        let mtu = u16::try_from((u32::from(options.max_octets) + 48).max(1500)).unwrap_or(u16::MAX);
        let mtu = if info.pci { mtu } else { mtu.min(u16::try_from(info.max_mtu).unwrap_or(u16::MAX)) };
        let (descriptors, isolated) = (options.descriptors, self.isolated);
        let setup = Setup { queues, descriptors, mtu, split, stamps, isolated, pool };
        let (name, octets) = (&self.name.0, split.map_or(pool, |(_, bodies)| bodies).octets());
        // SAFETY: as promised by the caller.
        unsafe { self.raw.reach(&setup) }
            .map_err(|refused| not_reached(name, &self.info, octets, split.is_some(), refused))?;
        // What only takes what rules name may have no clock any more (mlx5).
        let before = (stamps && isolated).then(|| self.measure());
        // SAFETY: as promised by the caller.
        unsafe { self.raw.start(&setup) }.map_err(|refused| not_started(name, &self.info, split.is_some(), refused))?;
        self.queues = queues;
        let how = match &self.beside {
            Beside::Kernel(interface) => format!("the kernel has {interface} too: addresses and groups are its"),
            Beside::Us => match &self.host {
                Some(host) => format!("DPDK has it alone, ARP and IGMP as {}", host.address()),
                None => "DPDK has it alone".into(),
            },
            Beside::Nobody => "no network: nothing is joined".into(),
        };
        let spread = match (queues, options.queues) {
            (1, 1) => String::new(),
            (have, wanted) if have < wanted => format!("; {have} of {wanted} queues"),
            (have, _) if self.info.spreads => format!("; {have} queues by RSS"),
            (have, _) => format!("; {have} queues, the driver spreads packets"),
        };
        notes.push(format!("port {} (driver {}): {how}{spread}", self.name.0, self.info.driver));
        if self.info.driver == "net_af_packet" {
            notes.push("packets that come merged (GRO), or unsegmented (GSO of virtual interfaces), are too large and rejected".into());
        }
        if stamps {
            let clock = before.unwrap_or_else(|| self.measure());
            self.take_stamps(clock, options, notes)?;
        } else if options.stamps != Stamping::Software {
            notes.push(format!("port {}: time stamps by software: its driver has none of the card", self.name.0));
        }
        self.link.see(self.raw.link());
        if self.link.is_down() {
            let again = if self.host.is_some() { ", and groups are reported again then" } else { "" };
            notes.push(format!("port {}: its link is down: nothing comes before it is up{again}", self.name.0));
        }
        self.tick();
        Ok(())
    }

    /// Takes the card's stamps, or says why not.
    fn take_stamps(&mut self, clock: Clock, options: &Options, notes: &mut Vec<String>) -> Result<()> {
        let name = &self.name.0;
        let useless = match ticks::of(&self.info.driver, clock) {
            Ok(ticks) => {
                let tell =
                    ticks.per_second().map_or_else(|| "in nanoseconds".into(), |n| format!("{n} ticks a second"));
                notes.push(format!("port {name}: time stamps of the card, {tell}"));
                self.stamps = Some((Stamps::new(tai_offset(options.utc_offset_s), true), ticks));
                return Ok(());
            }
            Err(useless) => useless,
        };
        let (why, cure) = match useless {
            Useless::HeldUp => (
                "cannot be measured: this machine stands still too often".to_owned(),
                "start again when it has less to do, or leave stamps=hardware out",
            ),
            Useless::Unknown => (
                format!("cannot be read, and what driver {} counts is not known", self.info.driver),
                "leave stamps=hardware out",
            ),
        };
        if options.stamps == Stamping::Hardware {
            return Err(Error::new(Kind::Unavailable, format!("the clock of port {name} {why}")).cure(cure));
        }
        notes.push(format!("warning: port {name}: time stamps by software: the card's clock {why}"));
        Ok(())
    }

    /// Reads the card's clock twice, where there is one.
    fn measure(&self) -> Clock {
        if self.raw.clock().is_none() {
            return Clock::None;
        }
        let read = || ticks::read(|| self.raw.clock(), || self.began.elapsed());
        let Some(first) = read() else { return Clock::HeldUp };
        std::thread::sleep(LOOK);
        read().map_or(Clock::HeldUp, |last| Clock::Measured(Ticks::measured(first, last)))
    }

    pub fn name(&self) -> &str {
        &self.name.0
    }
    /// In the options: legs know it by that.
    pub const fn number(&self) -> usize {
        self.number
    }
    pub const fn info(&self) -> &Info {
        &self.info
    }
    /// Nothing comes from a network.
    pub fn is_recorded(&self) -> bool {
        self.beside == Beside::Nobody
    }
    pub const fn queues(&self) -> u16 {
        self.queues
    }
    pub const fn host(&self) -> Option<&Host> {
        self.host.as_ref()
    }
    /// Takes what has come by a queue.
    #[inline]
    pub fn receive(&mut self, queue: u16, packets: &mut [abi::Packet]) -> usize {
        self.raw.receive(queue, packets)
    }
    /// Frames of ours (ARP, IGMP) that it did not take.
    pub const fn unsent(&self) -> u64 {
        self.raw.unsent()
    }
    /// A frame that is of no leg.
    pub fn other(&mut self, frame: &[u8]) {
        let Port { raw, host, began, .. } = self;
        if let Some(host) = host {
            host.receive(frame, began.elapsed(), &mut |frame| raw.send(frame));
        }
    }
    /// Says what is due.
    pub fn tick(&mut self) {
        let Port { raw, host, began, .. } = self;
        if let Some(host) = host {
            host.tick(began.elapsed(), &mut |frame| raw.send(frame));
        }
    }

    /// Has a leg's packets come.
    ///
    /// # Errors
    /// The group cannot be joined, or a rule that is needed is refused.
    pub fn join(&mut self, number: u8, what: &Leg, options: &Options, notes: &mut Vec<String>) -> Result<JoinedLeg> {
        let wanted = Wanted::new(what, self.vlan);
        let (mut beside, mut group) = (None, None);
        match (&self.beside, what.destination) {
            (Beside::Kernel(interface), _) => beside = Some(leg::beside(what, interface, notes)?),
            (Beside::Us, IpAddr::V6(to)) => {
                return Err(Error::new(
                    Kind::Unavailable,
                    format!("{to} on port {}: DPDK has it alone, and what is said there is IPv4 only", self.name.0),
                )
                .cure("receive IPv6 with sockets or AF_XDP"));
            }
            (Beside::Us, IpAddr::V4(to)) => group = to.is_multicast().then_some(to),
            (Beside::Nobody, _) => {}
        }
        let rules = self.rules(&wanted, options, notes)?;
        if let Some(group) = group {
            let Port { raw, host, began, .. } = self;
            if let Some(host) = host {
                let mut send = |frame: &[u8]| raw.send(frame);
                host.join(number, group, &what.sources, began.elapsed(), &mut send);
                let addresses = addresses(host.groups());
                match raw.groups(&addresses) {
                    Ok(0) => {}
                    Ok(1) => notes.push(format!("port {}: all groups come, others are sorted out here", self.name.0)),
                    Ok(_) => notes.push(format!("port {}: everything comes, others are sorted out here", self.name.0)),
                    Err(refused) => {
                        notes.push(format!("warning: port {} may keep groups away: {refused}", self.name.0));
                    }
                }
                notes.push(format!("{group} joined by IGMP as {}", host.address()));
            }
        }
        let sources = what.sources.clone();
        Ok(JoinedLeg { port: self.number, wanted, sources, group, rules, _beside: beside })
    }

    /// Rules that lead a leg here, all or none. Without them everything comes, and is sorted out by us; where the kernel has the
    /// rest, they are needed.
    fn rules(&mut self, wanted: &Wanted, options: &Options, notes: &mut Vec<String>) -> Result<Vec<abi::Rule>> {
        let mut rules = Vec::new();
        let why = if !options.rules && !self.isolated {
            Some("not wished for".to_owned())
        } else {
            let flows = leg::flows(wanted);
            let made = flows.ok_or_else(|| "IPv6".to_owned()).and_then(|flows| {
                flows.iter().try_for_each(|(destination, source)| {
                    rules.push(self.raw.rule(*destination, *source, wanted.port, wanted.vlan)?);
                    Ok(())
                })
            });
            made.err()
        };
        let Some(why) = why else {
            notes.push(format!("port {}: {} rule(s) of the card lead the flow here", self.name.0, rules.len()));
            return Ok(rules);
        };
        rules.drain(..).for_each(abi::Rule::remove);
        if self.isolated {
            return Err(Error::new(
                Kind::Unavailable,
                format!("port {} takes no rule for the flow: {why}", self.name.0),
            )
            .cure(
                "it shares its interface with the kernel, and gets what rules name: receive with sockets or AF_XDP",
            ));
        }
        notes.push(format!("port {}: no rule of the card ({why}): all that comes is sorted here", self.name.0));
        Ok(rules)
    }

    /// Gives a leg up.
    pub fn leave(&mut self, number: u8, leg: JoinedLeg) {
        leg.rules.into_iter().for_each(abi::Rule::remove);
        let Port { raw, host, began, .. } = self;
        if let (Some(host), Some(group)) = (host, leg.group) {
            host.leave(number, group, began.elapsed(), &mut |frame| raw.send(frame));
        }
    }

    /// Keeps the last ones where it has none to say any more.
    fn read_counts(&mut self) {
        self.counts = self.raw.counts().unwrap_or(self.counts);
    }

    /// Counts from here on.
    pub fn begin_counting(&mut self) {
        self.read_counts();
        self.base = Some(self.counts);
    }

    /// Packets that it has lost since then.
    pub fn lost(&self) -> u64 {
        self.counted().lost(&self.info.driver)
    }

    /// What it has counted since [`Port::begin_counting`].
    pub fn counted(&self) -> Counts {
        self.base.map_or_else(Counts::default, |base| self.counts.since(base))
    }

    /// Asks its driver whether the link is up, and what it has counted.
    pub fn ask(&mut self) {
        self.asked = self.began.elapsed();
        self.read_counts();
        match self.link.see(self.raw.link()) {
            Some(Change::Up) => {
                tracing::info!("port {}: its link is up", self.name.0);
                let Port { raw, host, asked, .. } = self;
                if let Some(host) = host {
                    host.renew(*asked, &mut |frame| raw.send(frame));
                }
            }
            Some(Change::Down) => tracing::warn!("port {}: its link is down", self.name.0),
            None => {}
        }
    }

    /// Its link.
    pub const fn link(&self) -> Link {
        self.link
    }

    /// Looks whether it is there still, and now and then at what its driver says.
    pub fn look(&mut self) {
        if self.began.elapsed().saturating_sub(self.asked) >= ASK {
            self.ask();
        }
        let index = self.info.if_index;
        self.gone = self.raw.gone() || self.namespace.as_ref().is_some_and(|there| !has_interface(there, index));
    }
}

/// What a card is to let in, once each: the groups, and all hosts (224.0.0.1), to whom queriers speak. It may keep everything
/// else away.
fn addresses(groups: impl Iterator<Item = Ipv4Addr>) -> Vec<[u8; 6]> {
    let all = groups.chain([igmp::HOSTS]).map(|group| mac_of(group.into()));
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The ports of a receiver, which write to the same pools.
#[derive(Default)]
pub struct Ports(Vec<Port>);

impl Ports {
    /// That of this number, while it is there.
    pub fn of(&self, number: usize) -> Option<&Port> {
        self.0.iter().find(|port| port.number == number)
    }
    /// The same.
    pub fn of_mut(&mut self, number: usize) -> Option<&mut Port> {
        self.0.iter_mut().find(|port| port.number == number)
    }
    /// Takes out one that has gone. What others reach by the same mapping as it they go on reaching.
    pub fn take_gone(&mut self) -> Option<Port> {
        let place = self.0.iter().position(|port| port.gone)?;
        let mut port = self.0.remove(place);
        self.0.iter_mut().for_each(|other| other.raw.inherit(&mut port.raw));
        Some(port)
    }
    /// Ends them all: those on `vfio-pci` reach the pools by one mapping, which is not to go while any of them receives still.
    pub fn close(&mut self) {
        self.0.iter_mut().for_each(|port| port.raw.stop());
        self.0.iter_mut().for_each(|port| port.raw.unreach());
        self.0.clear();
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        self.close();
    }
}

impl Deref for Ports {
    type Target = Vec<Port>;
    fn deref(&self) -> &Vec<Port> {
        &self.0
    }
}

impl DerefMut for Ports {
    fn deref_mut(&mut self) -> &mut Vec<Port> {
        &mut self.0
    }
}

/// Whether the interface with this number is there, in the network namespace of a socket.
fn has_interface(socket: &socket2::Socket, index: u32) -> bool {
    // SAFETY: plain C data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = index as libc::c_int;
    // SAFETY: the request is writable; the call fills in the name.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFNAME, &raw mut request) };
    rc == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_come_through_a_card_that_filters_groups() {
        let all = [0x01, 0x00, 0x5e, 0, 0, 1];
        let of = |groups: &[[u8; 4]]| addresses(groups.iter().map(|group| Ipv4Addr::from(*group)));
        assert_eq!(of(&[]), [all]);
        assert_eq!(of(&[[239, 129, 2, 3]]), [all, [0x01, 0x00, 0x5e, 1, 2, 3]]);
        // The upper five bits of a group are not in its address (RFC 1112 section 6.4): three of the same.
        assert_eq!(of(&[[239, 0, 0, 1], [239, 128, 0, 1]]), [all]);
    }
}
