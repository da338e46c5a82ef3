//! ibverbs, with the stand-in in place of library and card: behind the loopback interface, where frames are brought by hand,
//! and with the frames of a veth pair, a device each.

use crate::library::{self, Control, Ways};
use crate::netns::Net;
use crate::setup::{Ability, Datagram, Opened, Setup, join};
use crate::socket::{by, live};
use gdmedia::mem::Host;
use gdmedia::rx::Verbs;
use gdmedia::rx::verbs::{Cut, Options};
use gdmedia::sdp::Leg;
use gdmedia::wire::net::Route;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

const ROOM: usize = 1452;

fn number() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Both legs by one device.
pub struct Card {
    id: [u8; 2],
    cut: Cut,
    control: Rc<Control>,
    sysfs: tempfile::TempDir,
}

/// Packets whole in one plane.
pub fn whole() -> Card {
    Card::new(Cut::None, 0)
}
/// Cut where three SRDs just have room.
pub fn cut_short() -> Card {
    Card::new(Cut::At(74), 0)
}
/// Cut with room to spare.
pub fn cut_long() -> Card {
    Card::new(Cut::At(96), 0)
}
/// A device without the extended calls.
pub fn classic() -> Card {
    Card::new(Cut::At(96), library::NO_CQ_EX)
}

impl Card {
    fn new(cut: Cut, flags: u32) -> Self {
        let (id, sysfs) = (number(), tempfile::tempdir().unwrap());
        // The loopback interface has no address on the Ethernet.
        let ways = Ways { flags: flags | library::ANY_MAC, ..Ways::default() };
        let control = Control::add(&format!("mlx5_{id}"), None, "lo", sysfs.path(), ways);
        let [a, b] = id.to_be_bytes();
        Card { id: [a | 0x20, b], cut, control: control.into(), sysfs }
    }
    fn host(&self, n: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.id[0], self.id[1], n)
    }
}

impl Setup for Card {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        live(ability)
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        0..=ROOM
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
        let options = Options {
            interfaces: vec!["lo".into()],
            cut: self.cut,
            capacity: Some(1024),
            library: Some(library::path().into()),
            sysfs: self.sysfs.path().into(),
            ..Options::default()
        };
        let mut receiver = Verbs::<Host>::open(&options, legs, &()).unwrap();
        join(&mut receiver, first, legs);
        let control = self.control.clone();
        let send = move |datagram: &Datagram| {
            let route = Route::new(SocketAddr::new(datagram.from, 5000), datagram.to).unwrap();
            let mut frame = Vec::new();
            route.emit(&datagram.octets, &mut frame).unwrap();
            control.inject(&frame, 0);
        };
        Opened::one(receiver, Box::new(send))
    }
}

/// A device for each leg. Needs root.
pub struct Veth {
    net: Rc<Net>,
    controls: Rc<[Control; 2]>,
    sysfs: tempfile::TempDir,
}

impl Veth {
    pub fn new() -> Option<Self> {
        let net = Net::new()?;
        let (id, sysfs) = (number(), tempfile::tempdir().unwrap());
        let controls = [0, 1].map(|leg| {
            let (name, interface) = (format!("mlx5_{id}_{leg}"), format!("rx{leg}"));
            Control::add(&name, Some(&interface), &interface, sysfs.path(), Ways::default())
        });
        Some(Veth { net: net.into(), controls: controls.into(), sysfs })
    }
}

impl Setup for Veth {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        live(ability)
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        0..=ROOM
    }
    fn address(&self, leg: u8) -> IpAddr {
        Ipv4Addr::new(10, 77 + leg, 0, 10).into()
    }
    fn sources(&self) -> [IpAddr; 2] {
        [1, 2].map(|n| Ipv4Addr::new(10, 77, 0, n).into())
    }
    fn open_from(&self, first: u8, legs: &[Leg], _sent: &[Datagram]) -> Opened {
        let options = Options {
            interfaces: vec!["rx0".into(), "rx1".into()],
            cut: Cut::At(96),
            capacity: Some(1024),
            library: Some(library::path().into()),
            sysfs: self.sysfs.path().into(),
            ..Options::default()
        };
        let receiver = Net::inside(&self.net.rx, || {
            let mut receiver = Verbs::<Host>::open(&options, legs, &()).unwrap();
            join(&mut receiver, first, legs);
            receiver
        });
        let (net, controls) = (self.net.clone(), self.controls.clone());
        let mut send = by(move |from| net.sender(from));
        // A thread of each card's takes what comes, and one must not be behind the other for as long as it likes.
        let arrived = move || controls.iter().map(|control| control.counts().arrived).sum::<u64>();
        let send = move |datagram: &Datagram| {
            let before = arrived();
            send(datagram);
            let begun = Instant::now();
            while arrived() == before && begun.elapsed() < Duration::from_secs(2) {
                std::thread::yield_now();
            }
        };
        Opened::one(receiver, Box::new(send))
    }
}
