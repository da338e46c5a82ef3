//! Captures: what is sent is written to a file first.

use crate::setup::{Ability, Datagram, Opened, Setup, join};
use gdmedia::mem::Host;
use gdmedia::rx::{Pace, Pcap, Receiver, Tap};
use gdmedia::sdp::Leg;
use gdmedia::wire::capture::PcapWriter;
use gdmedia::wire::net::Route;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

pub struct Recorded {
    folder: tempfile::TempDir,
    tapped: bool,
}

impl Recorded {
    pub fn new() -> Self {
        Recorded { folder: tempfile::tempdir().unwrap(), tapped: false }
    }
    /// Everything is written to another file besides.
    pub fn tapped() -> Self {
        Recorded { tapped: true, ..Self::new() }
    }
}

impl Setup for Recorded {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        (ability == Ability::Silence)
            .then_some("a capture without packets of the flow is an error, which says what it holds")
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        0..=65_507
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
        let capture = Pcap::open(&path, Pace::Full).unwrap();
        let mut receiver: Box<dyn Receiver<Mem = Host>> = match self.tapped {
            true => Box::new(Tap::create(capture, &self.folder.path().join("tap.pcapng")).unwrap()),
            false => Box::new(capture),
        };
        join(receiver.as_mut(), first, legs);
        Opened::one(receiver, Box::new(|_| {}))
    }
}
