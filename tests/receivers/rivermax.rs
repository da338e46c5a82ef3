//! Rivermax, with the stand-in in place of library and card. Every device has an address of the loopback network.

use crate::setup::{Ability, Datagram, Opened, Setup, join};
use gdmedia::mem::Host;
use gdmedia::rx::Rivermax;
use gdmedia::rx::rivermax::library::{Library, stand_in};
use gdmedia::rx::rivermax::{Options, Order, Split};
use gdmedia::sdp::Leg;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU16, Ordering};

const ROOM: usize = 1452;

pub struct Device {
    id: [u8; 2],
    split: Split,
    order: Order,
    stand_in: stand_in::Device,
}

/// Packets whole in one plane.
pub fn whole() -> Device {
    Device::new(Split::None, Order::Arrival)
}
/// Cut behind one SRD header; each leg has a ring of its own.
pub fn split() -> Device {
    Device::new(Split::At(20), Order::Arrival)
}
/// Cut with room for three; slots by sequence number, one ring for both legs.
pub fn in_sequence() -> Device {
    Device::new(Split::At(32), Order::Extended)
}
/// Slots lie further apart than packets are long.
pub fn long_strides() -> Device {
    Device::new(Split::At(26), Order::Auto).with(|device| device.extra_stride = 108)
}
/// Most polls bring nothing, although packets wait.
pub fn idle_polls() -> Device {
    Device::new(Split::At(20), Order::Arrival).with(|device| device.idle_polls = 3)
}
/// A card that does not split.
pub fn no_split() -> Device {
    Device::new(Split::At(20), Order::Auto).with(|device| device.no_split = true)
}

impl Device {
    fn new(split: Split, order: Order) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        Device {
            id: [id[0] | 0x40, id[1]],
            split,
            order,
            stand_in: stand_in::Device { manual: true, ..Default::default() },
        }
    }
    /// The card's ways.
    fn with(mut self, change: impl FnOnce(&mut stand_in::Device)) -> Self {
        change(&mut self.stand_in);
        self
    }
    fn host(&self, n: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.id[0], self.id[1], n)
    }
}

fn v4(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => panic!("{address}"),
    }
}

impl Setup for Device {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::End => Some("a network does not end"),
            Ability::Exclusion => Some("its flows name senders that come, and the network keeps others away"),
            Ability::Addresses | Ability::Silence => None,
        }
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        // Sequence numbers have to be there where slots go by them.
        14..=ROOM
    }
    fn address(&self, leg: u8) -> IpAddr {
        self.host(1 + leg).into()
    }
    fn sources(&self) -> [IpAddr; 2] {
        [self.host(11).into(), self.host(12).into()]
    }
    fn group(&self, n: u8) -> IpAddr {
        Ipv4Addr::new(239, self.id[0], self.id[1], n).into()
    }
    fn open_from(&self, first: u8, legs: &[Leg], _sent: &[Datagram]) -> Opened {
        let controls = Library::load(None).unwrap().stand_in();
        let devices = [0, 1].map(|leg| v4(self.address(leg)));
        devices.iter().for_each(|device| controls.set_device(*device, &self.stand_in));
        let options = Options {
            interfaces: devices.iter().map(ToString::to_string).collect(),
            split: self.split,
            order: self.order,
            capacity: Some(4096),
            ..Options::default()
        };
        let mut receiver = Rivermax::<Host>::open(&options, legs, &()).unwrap();
        join(&mut receiver, first, legs);
        let send = move |datagram: &Datagram| {
            let packet = stand_in::Packet {
                source: SocketAddrV4::new(v4(datagram.from), 5000),
                destination: SocketAddrV4::new(v4(datagram.to.ip()), datagram.to.port()),
                time: 0,
                data: &datagram.octets,
            };
            // The network brings it to both ports; each takes what it is told to.
            devices.iter().for_each(|device| {
                controls.deliver(*device, &[packet]);
            });
        };
        Opened::one(receiver, Box::new(send))
    }
}
