//! Cards of the stand-in.

use crate::library::{self, Control, Ways};
use crate::played::Dice;
use crate::support::Sent;
use gdmedia::mem::Host;
use gdmedia::ring::Slot;
use gdmedia::rx::verbs::{Cut, Options};
use gdmedia::rx::{Receiver, Verbs};
use gdmedia::sdp::{Leg, SourceFilter};
use gdmedia::wire::net::Route;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

pub const PORT: u16 = 5004;

/// A card behind the loopback interface, to which frames are brought by hand. They go to an address of its own.
pub struct Card {
    pub name: String,
    pub ip: Ipv4Addr,
    pub control: Control,
    sysfs: tempfile::TempDir,
}

impl Card {
    pub fn new() -> Self {
        Self::with(Ways::default())
    }
    pub fn with(ways: Ways) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let [a, b] = number.to_be_bytes();
        let (name, sysfs) = (format!("mlx5_{number}"), tempfile::tempdir().unwrap());
        // The loopback interface has no address on the Ethernet.
        let ways = Ways { flags: ways.flags | library::ANY_MAC, ..ways };
        let control = Control::add(&name, None, "lo", sysfs.path(), ways);
        Card { name, ip: Ipv4Addr::new(127, 0x60 | a, b, 1), control, sysfs }
    }
    pub fn leg(&self) -> Leg {
        Leg { destination: self.ip.into(), port: PORT, sources: SourceFilter::Any, ttl: None, mid: None }
    }
    pub fn options(&self, cut: Cut, capacity: usize) -> Options {
        Options {
            interfaces: vec!["lo".into()],
            cut,
            capacity: Some(capacity),
            library: Some(library::path().into()),
            sysfs: self.sysfs.path().into(),
            ..Options::default()
        }
    }
    /// A receiver that has joined one leg.
    pub fn receiver(&self, options: &Options) -> Verbs<Host> {
        let mut receiver = Verbs::open(options, &[self.leg()], &()).unwrap();
        receiver.join(0, &self.leg()).unwrap();
        receiver
    }
    pub fn route(&self) -> Route {
        Route::new(SocketAddr::from(([127, 9, 9, 9], 5000)), SocketAddr::new(self.ip.into(), PORT)).unwrap()
    }
    /// A packet arrives; whether it was written somewhere.
    pub fn deliver_one(&self, octets: &[u8], stamp: u64) -> bool {
        self.bring(&frame(&self.route(), octets), stamp)
    }
    /// A frame arrives.
    pub fn bring(&self, frame: &[u8], stamp: u64) -> bool {
        let before = self.control.counts().delivered;
        self.control.inject(frame, stamp);
        self.control.counts().delivered > before
    }
    /// Packets arrive.
    pub fn deliver(&self, sent: &[Sent]) {
        for packet in sent {
            self.control.inject(&frame(&self.route(), &packet.octets[..packet.present]), 0);
        }
    }
}

pub fn frame(route: &Route, octets: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    route.emit(octets, &mut frame).unwrap();
    frame
}

/// All octets of a packet, from both planes.
pub fn octets<R: Receiver<Mem = Host> + ?Sized>(receiver: &R, slot: &Slot) -> Vec<u8> {
    let octets = receiver.ring().octets(slot, 0, slot.octets).unwrap();
    [&octets.first[..octets.first_len], &octets.rest[..octets.rest_len]].concat()
}

/// What one poll brings: legs and octets.
pub fn poll(receiver: &mut Verbs<Host>) -> Vec<Vec<u8>> {
    let lease = receiver.poll().unwrap();
    let all = lease.slots().iter().map(|slot| octets(receiver, slot)).collect();
    receiver.release(lease);
    all
}

/// Any octets, of any length up to so many.
pub fn any(dice: &mut Dice, most: u64) -> Vec<u8> {
    (0..dice.roll(most + 1)).map(|_| dice.roll(256) as u8).collect()
}
