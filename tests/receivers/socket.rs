//! Sockets: on the loopback interface, and on a veth pair between two namespaces.

use crate::netns::Net;
use crate::setup::{Ability, Datagram, Opened, Setup, join};
use gdmedia::rx::Socket;
use gdmedia::rx::socket::Options;
use gdmedia::sdp::Leg;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU16, Ordering};

/// Of IPv4: 65 535 less the headers of IP and UDP.
const LARGEST: usize = 65_507;

fn open(options: Options, first: u8, legs: &[Leg]) -> Socket {
    let mut socket = Socket::open(options).unwrap();
    join(&mut socket, first, legs);
    socket
}

/// Sends by one socket for each source.
pub fn by(socket: impl Fn(IpAddr) -> UdpSocket + 'static) -> Box<dyn FnMut(&Datagram)> {
    let mut sockets = HashMap::new();
    Box::new(move |datagram| {
        let socket = sockets.entry(datagram.from).or_insert_with_key(|from| socket(*from));
        assert_eq!(socket.send_to(&datagram.octets, datagram.to).unwrap(), datagram.octets.len());
    })
}

pub fn live(ability: Ability) -> Option<&'static str> {
    (ability == Ability::End).then_some("a network does not end")
}

/// Each has addresses of the loopback network for itself, so that ports of other tests are no matter.
pub struct Loopback {
    id: [u8; 2],
}

impl Loopback {
    pub fn new() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Runs that are going on at once differ by their processes.
        let id = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add((std::process::id() as u16).wrapping_mul(64));
        Loopback { id: [id.to_be_bytes()[0] | 0x80, id.to_be_bytes()[1]] }
    }
    fn host(&self, n: u8) -> IpAddr {
        Ipv4Addr::new(127, self.id[0], self.id[1], n).into()
    }
}

impl Setup for Loopback {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        live(ability)
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        0..=LARGEST
    }
    fn address(&self, leg: u8) -> IpAddr {
        self.host(1 + leg)
    }
    fn sources(&self) -> [IpAddr; 2] {
        [self.host(11), self.host(12)]
    }
    fn group(&self, n: u8) -> IpAddr {
        Ipv4Addr::new(239, self.id[0], self.id[1], n).into()
    }
    fn open_from(&self, first: u8, legs: &[Leg], _sent: &[Datagram]) -> Opened {
        let options = Options { interfaces: vec!["lo".into()], ..Options::default() };
        let sender = |from: IpAddr| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
            socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
            socket.bind(&std::net::SocketAddr::new(from, 0).into()).unwrap();
            UdpSocket::from(socket)
        };
        Opened::one(open(options, first, legs), by(sender))
    }
}

/// Needs root.
pub struct Veth {
    net: std::rc::Rc<Net>,
}

impl Veth {
    pub fn new() -> Option<Self> {
        Net::new().map(|net| Veth { net: net.into() })
    }
}

impl Setup for Veth {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        live(ability)
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        0..=LARGEST
    }
    fn address(&self, leg: u8) -> IpAddr {
        Ipv4Addr::new(10, 77 + leg, 0, 10).into()
    }
    fn sources(&self) -> [IpAddr; 2] {
        [1, 2].map(|n| Ipv4Addr::new(10, 77, 0, n).into())
    }
    fn open_from(&self, first: u8, legs: &[Leg], _sent: &[Datagram]) -> Opened {
        let options = Options { interfaces: vec!["rx0".into(), "rx1".into()], ..Options::default() };
        let receiver = Net::inside(&self.net.rx, || open(options, first, legs));
        let net = self.net.clone();
        Opened::one(receiver, by(move |from| net.sender(from)))
    }
}
