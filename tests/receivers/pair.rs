//! Two receivers of two backends, each with one leg of a flow.

use crate::setup::{Ability, Datagram, Opened, Setup};
use crate::socket::{self, Loopback};
use crate::xdp;
use gdmedia::rx::xdp::Mode;
use gdmedia::sdp::Leg;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Leg 0 goes by the first one, leg 1 by the second one.
pub struct Pair([Box<dyn Setup>; 2]);

pub fn sockets() -> Option<Box<dyn Setup>> {
    Pair::of_both(Some(Loopback::new()), Some(Loopback::new()))
}

pub fn xdp_and_socket() -> Option<Box<dyn Setup>> {
    Pair::of_both(xdp::Veth::new(Mode::Native), socket::Veth::new())
}

#[cfg(feature = "rivermax-stand-in")]
pub fn rivermax_and_socket() -> Option<Box<dyn Setup>> {
    Pair::of_both(Some(crate::rivermax::split()), Some(Loopback::new()))
}

#[cfg(feature = "verbs")]
pub fn verbs_and_socket() -> Option<Box<dyn Setup>> {
    Pair::of_both(Some(crate::verbs::cut_long()), Some(Loopback::new()))
}

impl Pair {
    fn of_both(first: Option<impl Setup + 'static>, second: Option<impl Setup + 'static>) -> Option<Box<dyn Setup>> {
        Some(Box::new(Pair([Box::new(first?), Box::new(second?)])))
    }
    fn of(&self, leg: u8) -> &dyn Setup {
        self.0[usize::from(leg)].as_ref()
    }
}

impl Setup for Pair {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        self.of(0).lacks(ability).or_else(|| self.of(1).lacks(ability))
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        let [a, b] = [0, 1].map(|leg| self.of(leg).sizes());
        *a.start().max(b.start())..=*a.end().min(b.end())
    }
    fn address(&self, leg: u8) -> IpAddr {
        self.of(leg).address(leg)
    }
    fn sources(&self) -> [IpAddr; 2] {
        self.of(0).sources()
    }
    fn source_of(&self, leg: u8) -> IpAddr {
        self.of(leg).sources()[0]
    }
    fn open_from(&self, first: u8, legs: &[Leg], sent: &[Datagram]) -> Opened {
        assert!(first == 0 && legs.len() == 2, "one leg each");
        let addresses = [0, 1].map(|leg| self.address(leg));
        let [one, other] = [0_u8, 1].map(|leg| {
            let is_its = |datagram: &&Datagram| datagram.to.ip() == addresses[usize::from(leg)];
            let sent: Vec<_> = sent.iter().filter(is_its).cloned().collect();
            self.of(leg).open_from(leg, &legs[usize::from(leg)..][..1], &sent)
        });
        let mut sends = [one.send, other.send];
        let send = move |datagram: &Datagram| sends[usize::from(datagram.to.ip() == addresses[1])](datagram);
        Opened { receiver: one.receiver, more: vec![other.receiver], send: Box::new(send) }
    }
}
