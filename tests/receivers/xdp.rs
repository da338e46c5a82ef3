//! AF_XDP on a veth pair: in the driver, and behind it.

use crate::netns::Net;
use crate::setup::{Ability, Datagram, Opened, Setup, join};
use crate::socket::{by, live};
use gdmedia::rx::Xdp;
use gdmedia::rx::xdp::{Mode, Options};
use gdmedia::sdp::Leg;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Needs root, and a kernel with AF_XDP.
pub struct Veth {
    net: Rc<Net>,
    mode: Mode,
}

impl Veth {
    pub fn new(mode: Mode) -> Option<Self> {
        Net::new().map(|net| Veth { net: net.into(), mode })
    }
}

fn open(mode: Mode, first: u8, legs: &[Leg]) -> Xdp {
    let interfaces = vec!["rx0".into(), "rx1".into()];
    let mut receiver = Xdp::open(Options { interfaces, mode: Some(mode), ..Options::default() }).unwrap();
    join(&mut receiver, first, legs);
    receiver
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
        let mode = self.mode;
        let receiver = Net::inside(&self.net.rx, || open(mode, first, legs));
        let net = self.net.clone();
        Opened::one(receiver, by(move |from| net.sender(from)))
    }
}
