//! A network interface: its link, its driver, and what the kernel does with what it brings.

use super::flows::{Stream, Way};
use super::machine::Machine;
use super::pci;
use super::report::{Finding, State};
use super::root::Root;
use super::system::{System, Xdp};
use crate::rx::socket::{self, igmp_version};
use crate::sdp::SourceFilter;
use crate::topology::cards;
use crate::unix::ethtool::Ethtool;
use crate::unix::netlink::Route;
use std::net::IpAddr;

/// What was read of an interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name, number, state and addresses.
    pub base: socket::Interface,
    /// The interface of the card: itself, or the one beneath it (of a VLAN, the first of a bond); none for loopback, veth,
    /// bridges without a port.
    pub card: Option<String>,
    /// Its driver.
    pub driver: Option<String>,
    /// Its place on PCI Express.
    pub device: Option<pci::Device>,
    /// Links from the card up to the host.
    pub links: Vec<pci::Link>,
    /// Megabits a second, where the driver knows.
    pub speed: Option<u64>,
    /// Octets of an IP packet at most.
    pub mtu: Option<u32>,
    /// Nanoseconds that merged packets wait, and polls before interrupts are on again.
    pub deferral: Option<(u64, u64)>,
    /// The stricter of `all` and its own.
    pub rp_filter: Option<u8>,
    /// `V3`; none where it has no group yet.
    pub igmp: Option<String>,
    /// Answers of the driver.
    pub ethtool: Ethtool,
    /// XDP there.
    pub xdp: Xdp,
    /// Where packets to the sources of its legs go; a text where the kernel does not say.
    pub routes: Vec<(IpAddr, Result<Option<Route>, String>)>,
}

impl Interface {
    /// Reads it; `ways` are the legs that come in there.
    pub fn read(root: &Root, system: &dyn System, mut base: socket::Interface, ways: &[&Way]) -> Self {
        let class = format!("sys/class/net/{}", base.name);
        // The flags of an interface lag behind it for up to a second.
        if let Some(carrier) = root.number::<u8>(&format!("{class}/carrier")) {
            base.running = carrier == 1;
        }
        let name = &base.name;
        let card = cards(root, name).into_iter().next();
        let beneath = card.as_deref().unwrap_or(name);
        let device = pci::of_interface(root, beneath);
        let mut ethtool = system.ethtool(beneath);
        if beneath != name {
            ethtool.gro = system.ethtool(name).gro;
        }
        let driver = root.target(&format!("sys/class/net/{beneath}/device/driver")).or_else(|| ethtool.driver.clone());
        // A pair of veth says 10 Gb/s, which means nothing.
        let told = root.number::<i64>(&format!("{class}/speed")).filter(|_| driver.as_deref() != Some("veth"));
        let filter = |scope: &str| root.number::<u8>(&format!("proc/sys/net/ipv4/conf/{scope}/rp_filter"));
        let mut sources: Vec<IpAddr> = Vec::new();
        for way in ways {
            if let SourceFilter::Include(list) = &way.sources {
                sources.extend(list.iter().filter(|s| s.is_ipv4() == way.destination.is_ipv4()));
            }
        }
        sources.sort();
        sources.dedup();
        Interface {
            links: device.as_ref().map_or_else(Vec::new, |d| pci::links(root, &d.path)),
            device,
            speed: told.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0),
            mtu: root.number(&format!("{class}/mtu")),
            deferral: root
                .number(&format!("{class}/gro_flush_timeout"))
                .zip(root.number(&format!("{class}/napi_defer_hard_irqs"))),
            rp_filter: filter("all").max(filter(name)),
            igmp: root.text("proc/net/igmp").and_then(|t| igmp_version(&t, name).map(str::to_owned)),
            xdp: system.xdp(&base),
            routes: sources.into_iter().map(|s| (s, system.route(s))).collect(),
            ethtool,
            driver,
            card,
            base,
        }
    }

    /// Bits a second of the port.
    pub fn bits_per_second(&self) -> Option<u64> {
        self.speed.map(|megabits| megabits.saturating_mul(1_000_000))
    }

    /// It is a card of the mlx5 family.
    pub fn mlx5(&self) -> bool {
        self.driver.as_deref() == Some("mlx5_core")
    }

    /// What commands about the card are to name.
    fn card_name(&self) -> &str {
        self.card.as_deref().unwrap_or(&self.base.name)
    }

    fn loopback(&self) -> bool {
        self.base.addresses.iter().any(IpAddr::is_loopback)
    }

    /// What it says for the legs that come in there: a stream once for each.
    pub fn findings(&self, machine: &Machine, legs: &[(&Stream, &Way)]) -> Vec<Finding> {
        let mut out = vec![self.link(legs), self.driver(machine)];
        out.extend([self.speed(legs), self.mtu(legs), self.ring(legs), self.gro(), self.deferral()]);
        out.extend(self.reverse_path(legs));
        out.extend([self.igmp(legs), self.stamps()]);
        out
    }

    fn link(&self, legs: &[(&Stream, &Way)]) -> Finding {
        const ID: &str = "link";
        let name = &self.base.name;
        let missing = |text: &str| {
            let finding = Finding::new(ID, State::Missing, text);
            if legs.is_empty() { finding } else { finding.blocks() }
        };
        if !self.base.up {
            return missing("down").fix(format!("ip link set {name} up"));
        }
        if !self.base.running {
            return missing("up, but no carrier: cable, transceiver or switch port")
                .see(format!("ethtool -m {}", self.card_name()));
        }
        for (_, way) in legs.iter().filter(|(_, way)| way.destination.is_multicast()) {
            if !self.base.has_family_of(way.destination) {
                let family = if way.destination.is_ipv4() { "IPv4" } else { "IPv6" };
                return missing(&format!("no {family} address, so it cannot join {}", way.destination))
                    .fix(format!("ip address add ADDRESS/PREFIX dev {name}"));
            }
        }
        let addresses: Vec<String> = self.base.addresses.iter().map(ToString::to_string).collect();
        Finding::good(
            ID,
            format!("up, {}", if addresses.is_empty() { "no address".into() } else { addresses.join(", ") }),
        )
    }

    fn driver(&self, machine: &Machine) -> Finding {
        let driver = self.driver.as_deref().unwrap_or("unknown driver");
        let firmware = Some(self.ethtool.firmware.as_str()).filter(|f| !f.is_empty() && *f != "N/A");
        let firmware = firmware.map_or_else(String::new, |f| format!(", firmware {f}"));
        let place = self.device.as_ref().map_or_else(String::new, |d| {
            let node = d.node.map_or_else(String::new, |n| {
                let cores = machine.cores_of(n).map_or_else(String::new, |cores| format!(" with cores {cores}"));
                format!(", NUMA node {n}{cores}")
            });
            format!(", PCI {}{node}", d.address)
        });
        let card = match self.card.as_deref() {
            None => ", no card".into(),
            Some(card) if card != self.base.name => format!(", card {card}"),
            Some(_) => String::new(),
        };
        Finding::good("driver", format!("{driver}{firmware}{place}{card}"))
    }

    fn speed(&self, legs: &[(&Stream, &Way)]) -> Finding {
        const ID: &str = "speed";
        let wanted = wanted(legs);
        let flows = if legs.is_empty() { String::new() } else { format!("; wanted: {}", gbits(wanted)) };
        let Some(port) = self.bits_per_second() else {
            if self.card.is_some() {
                let text = format!("the driver does not tell{flows}");
                return Finding::new(ID, State::NotKnown, text).see(format!("ethtool {}", self.card_name()));
            }
            return Finding::new(ID, State::NotApplicable, format!("no port of a card{flows}"));
        };
        let share = wanted as f64 / port as f64;
        let text = format!("{}{flows}", gbits(port));
        if share > 1.0 {
            let text = format!("{text}: {} too much", gbits(wanted - port));
            return Finding::new(ID, State::Missing, text).see(format!("ethtool {}", self.card_name())).blocks();
        }
        if share > 0.9 {
            return Finding::new(ID, State::CouldBeBetter, format!("{text}, {:.0} % of it", share * 100.0))
                .see(format!("ethtool {}", self.card_name()));
        }
        Finding::good(ID, if legs.is_empty() { text } else { format!("{text}, {:.0} % of it", share * 100.0) })
    }

    fn mtu(&self, legs: &[(&Stream, &Way)]) -> Finding {
        const ID: &str = "mtu";
        let name = &self.base.name;
        let Some(mtu) = self.mtu else {
            return Finding::new(ID, State::NotKnown, "cannot be read").see(format!("ip link show {name}"));
        };
        let usual = legs.iter().map(|(s, _)| s.packet_octets).max().unwrap_or(0);
        // Without an SDP: the standard size of ST 2110-10, 1460 octets with the UDP header, and IPv6.
        let most = legs.iter().map(|(s, _)| s.packet_octets_max).max().unwrap_or(1500);
        let fix = |finding: Finding| {
            finding.fix(format!("ip link set {name} mtu {}", if most <= 1500 { 1500 } else { 9000 }))
        };
        if mtu < usual {
            let text = format!("{mtu}; packets as usually cut have {usual} octets and are dropped");
            return fix(Finding::new(ID, State::Missing, text)).blocks();
        }
        if mtu < most {
            let text = format!("{mtu}; senders may use packets of up to {most} octets, which would be dropped");
            return fix(Finding::new(ID, State::CouldBeBetter, text));
        }
        Finding::good(
            ID,
            if legs.is_empty() { format!("{mtu}") } else { format!("{mtu}, packets have up to {most} octets") },
        )
    }

    fn ring(&self, legs: &[(&Stream, &Way)]) -> Finding {
        const ID: &str = "rx-ring";
        let name = self.card_name();
        let Some((now, most)) = self.ethtool.ring else {
            if self.card.is_some() {
                return Finding::new(ID, State::NotKnown, "the driver does not tell").see(format!("ethtool -g {name}"));
            }
            return Finding::new(ID, State::NotApplicable, "no ring of a card");
        };
        let packets: u64 = legs.iter().map(|(s, _)| s.packets_per_second).sum();
        let ms = (packets > 0).then(|| f64::from(now) * 1e3 / packets as f64);
        let time = ms.map_or_else(String::new, |ms| format!(": {ms:.1} ms of these flows"));
        let text = format!("{now} of {most} packets{time}");
        // What a kernel may be kept from its poll, with room to spare.
        if now < most && ms.is_some_and(|ms| ms < 5.0) {
            return Finding::new(ID, State::CouldBeBetter, text).fix(format!("ethtool -G {name} rx {most}"));
        }
        Finding::good(ID, text)
    }

    fn gro(&self) -> Finding {
        const ID: &str = "gro";
        let name = &self.base.name;
        match self.ethtool.gro {
            _ if self.loopback() => {
                Finding::new(ID, State::NotApplicable, "loopback keeps a sender's packets together by itself")
            }
            None => Finding::new(ID, State::NotKnown, "the driver does not tell").see(format!("ethtool -k {name}")),
            Some(true) => Finding::good(ID, "on: packets of equal size, with a UDP checksum, are handed over merged"),
            Some(false) => {
                Finding::new(ID, State::CouldBeBetter, "off: every packet goes through the kernel by itself")
                    .fix(format!("ethtool -K {name} gro on"))
            }
        }
    }

    fn deferral(&self) -> Finding {
        const ID: &str = "interrupt-deferral";
        let class = format!("/sys/class/net/{}", self.base.name);
        let Some((flush, defer)) = self.deferral else {
            let text = "cannot be read (Linux 5.7 and later have it)";
            return Finding::new(ID, State::NotKnown, text).see(format!("cat {class}/gro_flush_timeout"));
        };
        if self.loopback() {
            return Finding::new(ID, State::NotApplicable, "loopback has no interrupts");
        }
        let text = format!("gro_flush_timeout {flush} ns, napi_defer_hard_irqs {defer}");
        if flush > 0 && defer > 0 {
            return Finding::good(ID, text);
        }
        Finding::new(ID, State::CouldBeBetter, format!("{text}: interrupts come every few packets, so few are merged"))
            .fix(format!("echo 200000 > {class}/gro_flush_timeout"))
            .fix(format!("echo 2 > {class}/napi_defer_hard_irqs"))
    }

    /// `rp_filter` and the routes to the sources: IPv4 only.
    fn reverse_path(&self, legs: &[(&Stream, &Way)]) -> Vec<Finding> {
        let name = &self.base.name;
        let mut out = Vec::new();
        let routed = |(source, route): &(IpAddr, Result<Option<Route>, String>)| match route {
            Ok(Some(r)) => {
                let by = r.gateway.map_or_else(String::new, |g| format!(" by router {g}"));
                let here = if r.index == self.base.index { "this interface" } else { "another interface" };
                format!("{source}: {here}{by}")
            }
            Ok(None) => format!("{source}: none"),
            Err(why) => format!("{source}: not known ({why})"),
        };
        if !self.routes.is_empty() {
            let text = self.routes.iter().map(routed).collect::<Vec<_>>().join("; ");
            let known = self.routes.iter().all(|(_, r)| r.is_ok());
            let state = if known { State::Good } else { State::NotKnown };
            out.push(Finding::new("source-route", state, text));
        }
        const ID: &str = "rp-filter";
        let four = legs.iter().any(|(_, w)| w.destination.is_ipv4());
        if !legs.is_empty() && !four {
            out.push(Finding::new(ID, State::NotApplicable, "the kernel has it for IPv4 only"));
            return out;
        }
        let fix = |finding: Finding| {
            finding.fix(format!("sysctl -w net.ipv4.conf.all.rp_filter=0 {}=0", setting(name, "rp_filter")))
        };
        let lost = |strict: bool| {
            let fails = |(s, r): &&(IpAddr, Result<Option<Route>, String>)| {
                s.is_ipv4() && matches!(r, Ok(to) if to.is_none_or(|to| strict && to.index != self.base.index))
            };
            self.routes.iter().filter(fails).map(|(s, _)| s.to_string()).collect::<Vec<_>>()
        };
        let any_source = legs.iter().any(|(_, w)| !matches!(w.sources, SourceFilter::Include(_)));
        out.push(match self.rp_filter {
            None => Finding::new(ID, State::NotKnown, "cannot be read")
                .see(format!("sysctl {}", setting(name, "rp_filter"))),
            Some(0) => Finding::good(ID, "off"),
            Some(mode) => {
                let (word, needs) =
                    if mode == 1 { ("strict", "leads back by this interface") } else { ("loose", "exists") };
                let lost = lost(mode == 1);
                if !lost.is_empty() {
                    let text =
                        format!("{word}: packets from {} are dropped, since no route to it {needs}", lost.join(", "));
                    fix(Finding::new(ID, State::Missing, text)).blocks()
                } else if mode == 1 && (any_source || legs.is_empty()) {
                    let text = "strict: packets of senders to which no route leads back by this interface are dropped";
                    fix(Finding::new(ID, State::CouldBeBetter, text))
                } else {
                    Finding::good(ID, format!("{word}, and the route to every source of the SDP {needs}"))
                }
            }
        });
        out
    }

    fn igmp(&self, legs: &[(&Stream, &Way)]) -> Finding {
        const ID: &str = "igmp";
        let name = &self.base.name;
        let groups = legs.iter().filter(|(_, w)| w.destination.is_multicast() && w.destination.is_ipv4());
        let (mut groups, mut filtered) = (groups.peekable(), false);
        if groups.peek().is_none() && !legs.is_empty() {
            return Finding::new(ID, State::NotApplicable, "no IPv4 group is joined here");
        }
        for (_, way) in groups {
            filtered |= matches!(way.sources, SourceFilter::Include(_));
        }
        match self.igmp.as_deref() {
            Some("V3") => Finding::good(ID, "version 3"),
            Some(old) if filtered => {
                let version = old.trim_start_matches('V');
                let text = format!(
                    "version {version}, which cannot name sources to the network: the filter works in this machine only"
                );
                Finding::new(ID, State::CouldBeBetter, text)
                    .fix(format!("sysctl -w {}=3", setting(name, "force_igmp_version")))
            }
            Some(old) => {
                Finding::good(ID, format!("version {}, and no source is to be named", old.trim_start_matches('V')))
            }
            None => Finding::new(ID, State::NotKnown, "no group on it yet").see("cat /proc/net/igmp"),
        }
    }

    fn stamps(&self) -> Finding {
        const ID: &str = "time-stamps";
        let gives = "spacing of packets on the wire, and so verdicts by ST 2110-21";
        match self.ethtool.stamps {
            Some(stamps) => {
                let clock = stamps.clock.map_or_else(|| "no clock of its own".into(), |n| format!("clock /dev/ptp{n}"));
                if stamps.hardware {
                    Finding::good(ID, format!("by the card, {clock}"))
                } else if self.card.is_some() {
                    Finding::new(ID, State::Missing, format!("by the kernel, {clock}")).gives(gives)
                } else {
                    Finding::new(ID, State::NotApplicable, "by the kernel: no card")
                }
            }
            None => Finding::new(ID, State::NotKnown, "the driver does not tell")
                .see(format!("ethtool -T {}", self.card_name())),
        }
    }
}

/// A setting of an interface as `sysctl` reads it: with a dot in the name, parts are told apart by slashes.
fn setting(interface: &str, key: &str) -> String {
    let separator = if interface.contains('.') { "/" } else { "." };
    ["net", "ipv4", "conf", interface, key].join(separator)
}

/// Bits a second of all legs together.
pub fn wanted(legs: &[(&Stream, &Way)]) -> u64 {
    legs.iter().map(|(s, _)| s.bits_per_second).fold(0, u64::saturating_add)
}

/// `2.59 Gb/s`.
pub fn gbits(bits: u64) -> String {
    match bits as f64 {
        b if b >= 1e9 => {
            let text = format!("{:.2}", b / 1e9);
            format!("{} Gb/s", text.trim_end_matches('0').trim_end_matches('.'))
        }
        b => format!("{:.0} Mb/s", b / 1e6),
    }
}
