//! DPDK on virtual devices: over a veth pair with the kernel beside, over one without, and from a capture.

use crate::netns::Net;
use crate::setup::{Ability, Datagram, Opened, Setup, join};
use crate::socket::{by, live};
use gdmedia::mem::Host;
use gdmedia::rx::Dpdk;
use gdmedia::rx::dpdk::Options;
use gdmedia::sdp::Leg;
use gdmedia::wire::capture::PcapWriter;
use gdmedia::wire::net::Route;
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// DPDK starts once in a process: all tests say the same.
const EAL: &str = "eal=--no-huge -m 256";

fn open(ports: &str, first: u8, legs: &[Leg]) -> Dpdk<Host> {
    let mut options = Options::default();
    options.change(&format!("{ports};{EAL};descriptors=1024")).unwrap();
    let mut receiver = Dpdk::<Host>::open(options, &()).unwrap();
    join(&mut receiver, first, legs);
    receiver
}

/// Needs root.
pub struct Veth {
    net: RefCell<Rc<Net>>,
    driver: &'static str,
    /// Of Debian's 12 the library beneath `net_af_xdp` keeps the interface's queue until the process ends: each receiver has
    /// interfaces of its own.
    once: bool,
    opened: Cell<bool>,
}

impl Veth {
    /// `driver` such as `net_af_packet`. The calling thread is in the receiver's namespace from now on, for drivers look for
    /// their interface again when they end.
    pub fn new(driver: &'static str) -> Option<Self> {
        let net = Net::new()?;
        Net::enter(&net.rx);
        Some(Veth { net: RefCell::new(net.into()), driver, once: driver == "net_af_xdp", opened: Cell::new(false) })
    }
}

impl Setup for Veth {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        live(ability)
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        // The MTU less the headers of IPv4 and UDP.
        0..=1472
    }
    fn address(&self, leg: u8) -> IpAddr {
        Ipv4Addr::new(10, 77 + leg, 0, 10).into()
    }
    fn sources(&self) -> [IpAddr; 2] {
        [1, 2].map(|n| Ipv4Addr::new(10, 77, 0, n).into())
    }
    fn open_from(&self, first: u8, legs: &[Leg], _sent: &[Datagram]) -> Opened {
        let ports = format!("port={0},iface=rx0;port={0},iface=rx1", self.driver);
        if self.opened.replace(true) && self.once {
            let net = Net::new().unwrap();
            Net::enter(&net.rx);
            self.net.replace(net.into());
        }
        let net = self.net.borrow().clone();
        Opened::one(open(&ports, first, legs), by(move |from| net.sender(from)))
    }
}

/// A capture that is played by `net_pcap`.
pub struct Recorded {
    folder: tempfile::TempDir,
}

impl Recorded {
    pub fn new() -> Self {
        Recorded { folder: tempfile::tempdir().unwrap() }
    }
}

impl Setup for Recorded {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        (ability == Ability::End).then_some("to DPDK the end of a capture is silence")
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        0..=1472
    }
    fn address(&self, leg: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, 10 + leg).into()
    }
    fn sources(&self) -> [IpAddr; 2] {
        [1, 2].map(|n| Ipv4Addr::new(192, 0, 2, n).into())
    }
    fn open_from(&self, first: u8, legs: &[Leg], sent: &[Datagram]) -> Opened {
        let path = self.folder.path().join("sent.pcap");
        let mut writer = PcapWriter::create(&path).unwrap();
        for (n, datagram) in sent.iter().enumerate() {
            let route = Route::new(SocketAddr::new(datagram.from, 5000), datagram.to).unwrap();
            writer.datagram(1_700_000_000_000_000_000 + n as u64 * 1000, &route, &datagram.octets).unwrap();
        }
        writer.finish().unwrap();
        Opened::one(open(&format!("port=net_pcap,rx_pcap={}", path.display()), first, legs), Box::new(|_| {}))
    }
}
