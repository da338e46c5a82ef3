//! What a backend brings along to be put through the behaviours.

use gdmedia::mem::Host;
use gdmedia::rx::Receiver;
use gdmedia::sdp::Leg;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

/// A datagram on its way to a receiver.
#[derive(Clone, Debug)]
pub struct Datagram {
    pub from: IpAddr,
    pub to: SocketAddr,
    pub octets: Vec<u8>,
}

/// A receiver that has joined its legs, and the way to send to it.
pub struct Opened {
    pub receiver: Box<dyn Receiver<Mem = Host>>,
    /// Those of further legs.
    pub more: Vec<Box<dyn Receiver<Mem = Host>>>,
    /// Sends a datagram. Of a recording it does nothing: what is sent was written before it was opened.
    pub send: Box<dyn FnMut(&Datagram)>,
}

impl Opened {
    /// One receiver of all legs.
    pub fn one(receiver: impl Receiver<Mem = Host> + 'static, send: Box<dyn FnMut(&Datagram)>) -> Self {
        Opened { receiver: Box::new(receiver), more: Vec::new(), send }
    }
}

/// Begins to receive `legs`, which are those from number `first` on.
pub fn join(receiver: &mut dyn Receiver<Mem = Host>, first: u8, legs: &[Leg]) {
    for (number, leg) in (first..).zip(legs) {
        receiver.join(number, leg).unwrap();
    }
}

/// What a backend may be unable to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Wait for a first datagram that does not come.
    Silence,
    /// Tell addresses, groups and ports apart.
    Addresses,
    /// Keep single senders away.
    Exclusion,
    /// Come to an end.
    End,
}

/// A backend, with the network or the file that it receives from. Each behaviour has one of its own.
pub trait Setup {
    /// Why it is not able to do something; the behaviours that need it are left out, and the reason is printed.
    fn lacks(&self, ability: Ability) -> Option<&'static str>;
    /// UDP payload octets that it takes.
    fn sizes(&self) -> RangeInclusive<usize>;
    /// The address that leg `leg` has for unicast.
    fn address(&self, leg: u8) -> IpAddr;
    /// Two senders.
    fn sources(&self) -> [IpAddr; 2];
    /// Group number `n`, that nobody else uses.
    fn group(&self, n: u8) -> IpAddr {
        Ipv4Addr::new(239, 77, 1, n).into()
    }
    /// The sender of a leg.
    fn source_of(&self, _leg: u8) -> IpAddr {
        self.sources()[0]
    }
    /// A receiver that has joined `legs`, to which `sent` is going to be sent and nothing else.
    fn open(&self, legs: &[Leg], sent: &[Datagram]) -> Opened {
        self.open_from(0, legs, sent)
    }
    /// The same where `legs` are those from number `first` on; others have those before.
    fn open_from(&self, first: u8, legs: &[Leg], sent: &[Datagram]) -> Opened;
}
