//! A port that a receiver has: by which name, whose it is beside us, and what was wrong when it could not be had.
#![allow(unsafe_code)]

use super::abi::{self, Counts, Info, Pool, Refused, Setup};
use super::eal;
use super::leg::{self, JoinedLeg};
use super::options::Options;
use super::ticks::{self, Ticks};
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
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long a card's clock is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Takes an interface's queue whole, so that the kernel gets nothing of it any more.
const AF_XDP: &str = "net_af_xdp";

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
        let host = address.map(|address| Host::new(info.mac, address, vlan, options.igmp));
        Ok(Port {
            raw,
            name,
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
        // SAFETY: as promised by the caller.
        unsafe { self.raw.start(&setup) }.map_err(|refused| not_started(&self.name.0, &self.info, refused))?;
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
        let ticks = stamps.then(|| self.measure()).flatten();
        if let Some(ticks) = ticks {
            let tell = ticks.per_second().map_or_else(|| "in nanoseconds".into(), |n| format!("{n} ticks a second"));
            notes.push(format!("port {}: time stamps of the card, {tell}", self.name.0));
            self.stamps = Some((Stamps::new(tai_offset(options.utc_offset_s), true), ticks));
        } else if stamps {
            if options.stamps == Stamping::Hardware {
                return Err(Error::new(
                    Kind::Unavailable,
                    format!(
                        "the clock of port {} cannot be measured: this machine stands still too often",
                        self.name.0
                    ),
                )
                .cure("start again when it has less to do, or leave stamps=hardware out"));
            }
            notes.push(format!(
                "warning: port {}: time stamps by software: the card's clock could not be measured, this machine stands still too often",
                self.name.0
            ));
        } else if options.stamps != Stamping::Software {
            notes.push(format!("port {}: time stamps by software: its driver has none of the card", self.name.0));
        }
        self.tick();
        Ok(())
    }

    /// What the card counts its stamps in: nanoseconds where it has no clock to read. None: it has, and that was not possible in
    /// time.
    fn measure(&self) -> Option<Ticks> {
        if self.raw.clock().is_none() {
            return Some(Ticks::NANOSECONDS);
        }
        let read = || ticks::read(|| self.raw.clock(), || self.began.elapsed());
        let first = read()?;
        std::thread::sleep(LOOK);
        Some(Ticks::measured(first, read()?))
    }

    pub fn name(&self) -> &str {
        &self.name.0
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
    pub fn join(
        &mut self,
        number: u8,
        index: usize,
        what: &Leg,
        options: &Options,
        notes: &mut Vec<String>,
    ) -> Result<JoinedLeg> {
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
        Ok(JoinedLeg { port: index, wanted, sources, group, rules, beside })
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

    /// What it has counted since [`Port::begin_counting`].
    pub fn counted(&self) -> Counts {
        self.base.map_or_else(Counts::default, |base| self.counts.since(base))
    }

    /// Looks whether it is there still, and at what it has counted.
    pub fn look(&mut self, legs: &[Option<JoinedLeg>], index: usize) {
        self.read_counts();
        let mut sockets = legs.iter().flatten().filter(|leg| leg.port == index).filter_map(|leg| leg.beside.as_ref());
        self.gone = self.raw.gone() || sockets.next().is_some_and(|socket| !has_interface(socket, self.info.if_index));
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

/// Names of ports that receivers of this process have.
static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The name of a port, which nobody else has meanwhile.
struct Name(String);

impl Name {
    /// And what DPDK is told to attach it.
    fn take(spec: &str) -> Result<(Self, String)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (device, rest) = spec.split_once(',').map_or((spec, ""), |(device, _)| (device, &spec[device.len()..]));
        let name = match pci(device) {
            Some(address) => address,
            None if device.is_empty() || !device.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                return Err(Error::new(Kind::Usage, format!("`{spec}` names no port")).cure(
                    "a PCI address (0000:3b:00.0), or a virtual device and what its driver is told \
                     (net_af_packet,iface=eth1)",
                ));
            }
            None if device.ends_with(|c: char| c.is_ascii_digit()) => device.to_owned(),
            None => format!("{device}_gd{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        };
        if !TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
            return Err(Error::new(Kind::Unavailable, format!("another receiver of this process has port {name}"))
                .cure("a port serves one receiver: name another one, or end the other"));
        }
        let spec = format!("{name}{rest}");
        Ok((Name(name), spec))
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// A PCI address, with its domain; none where it is none.
fn pci(text: &str) -> Option<String> {
    let hex = |part: &str, digits: usize| part.len() == digits && part.chars().all(|c| c.is_ascii_hexdigit());
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0000"));
    let right = hex(function, 1) && hex(device, 2) && hex(bus, 2) && hex(domain, 4) && parts.next().is_none();
    right.then(|| format!("{domain}:{bus}:{device}.{function}").to_ascii_lowercase())
}

/// Drivers of interfaces say no more than that they failed: is it for want of rights?
fn lacks_rights(name: &str) -> bool {
    let raw = || socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None);
    name.starts_with("net_af_") && raw().is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

fn not_attached(name: &str, refused: Refused) -> Error {
    if lacks_rights(name) {
        let what = format!("DPDK cannot have port {name}: this process may not use raw sockets (CAP_NET_RAW)");
        return Error::new(Kind::Permission, what)
            .because(refused)
            .cure("run it as root, or: setcap cap_net_raw,cap_net_admin+ep gdmedia (cap_bpf too for net_af_xdp)");
    }
    let cure = match pci(name) {
        _ if refused.errno == libc::EEXIST => {
            "DPDK has it already, by eal=: leave -a, --allow and --vdev out there, for port= names what is attached"
                .into()
        }
        Some(address) if std::path::Path::new("/sys/bus/pci/devices").join(&address).exists() => format!(
            "the kernel has it, or no driver of DPDK is for it: dpdk-devbind.py --bind=vfio-pci {address} (cards of NVIDIA \
             keep their driver, and need DPDK's mlx5)"
        ),
        Some(_) => "dpdk-devbind.py --status names the devices of this machine".into(),
        None if name.starts_with("net_af_") => {
            "see that the interface is there, and that gdmedia may open it: root, or CAP_NET_RAW and CAP_NET_ADMIN"
                .into()
        }
        None => "see that its driver is installed (librte-net-…), and that what it is told is right".into(),
    };
    Error::new(Kind::Unavailable, format!("DPDK cannot have port {name}")).because(refused).cure(cure)
}

fn not_started(name: &str, info: &Info, refused: Refused) -> Error {
    let cure = match refused.errno {
        libc::ENOMEM if info.driver == "net_af_packet" => {
            "frames of its ring are larger than a packet's room: room=OCTETS, or framesz="
        }
        libc::ENOMEM => "give DPDK more memory (eal=… -m MIB), or ask for fewer descriptors",
        // libxdp 1.3 does not close the socket when it is told to.
        _ if info.driver == AF_XDP => {
            "another AF_XDP socket has the queue; with the libxdp of Debian 12 also one of this process that has ended: start \
             gdmedia again, or take --backend xdp"
        }
        libc::EINVAL if info.max_mtu < 1500 => "its packets are too small for the flow",
        _ => "receive with sockets, or see docs/dpdk.md",
    };
    Error::new(Kind::Unavailable, format!("port {name} (driver {}) does not start", info.driver))
        .because(refused)
        .cure(cure)
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

    #[test]
    fn ports_are_named_by_address_or_device_and_taken_once() {
        assert_eq!(pci("3B:00.1").as_deref(), Some("0000:3b:00.1"));
        assert_eq!(pci("0001:3b:00.0").as_deref(), Some("0001:3b:00.0"));
        for wrong in ["3b:00", "3b.00.0", "1:0000:3b:00.0", "net_pcap0", "3b:00.10", "", "000:3b:00.0"] {
            assert_eq!(pci(wrong), None, "{wrong}");
        }
        let (one, spec) = Name::take("net_null77,size=64").unwrap();
        assert_eq!((one.0.as_str(), spec.as_str()), ("net_null77", "net_null77,size=64"));
        let error = Name::take("net_null77").map(drop).unwrap_err().to_string();
        assert!(error.contains("another receiver of this process has port net_null77"), "{error}");
        drop(one);
        let (_one, _) = Name::take("net_null77").unwrap();
        // Without a number there is no other.
        let (first, spec) = Name::take("net_null,size=64").unwrap();
        let (second, _) = Name::take("net_null").unwrap();
        assert_ne!(first.0, second.0);
        assert_eq!(spec, format!("{},size=64", first.0));
        let (device, spec) = Name::take("3B:00.7,x=1").unwrap();
        assert_eq!((device.0.as_str(), spec.as_str()), ("0000:3b:00.7", "0000:3b:00.7,x=1"));
        assert!(Name::take("").is_err() && Name::take("7:8").is_err());
    }
}
