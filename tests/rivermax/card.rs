//! Cards of the stand-in.

use crate::support::Sent;
use gdmedia::mem::Host;
use gdmedia::rx::rivermax::library::{Library, Status, stand_in};
use gdmedia::rx::rivermax::{Options, Order, Split};
use gdmedia::rx::{Receiver, Rivermax};
use gdmedia::sdp::{Leg, SourceFilter};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub const PORT: u16 = 5004;

/// The library counts for the whole process: tests take turns, and each ends with nothing registered and nothing misused.
pub struct Alone(#[allow(dead_code)] MutexGuard<'static, ()>);

pub fn alone() -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    Alone(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for Alone {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!((controls().registered(), controls().misuse()), (0, 0), "registered memory, misused calls");
        }
    }
}

pub fn controls() -> stand_in::StandIn {
    Library::load(None).unwrap().stand_in()
}

/// A card with an address of the loopback network for itself. Packets go to that address.
#[derive(Clone, Copy, Debug)]
pub struct Card {
    pub ip: Ipv4Addr,
}

impl Card {
    pub fn new() -> Self {
        Self::with(stand_in::Device::default())
    }
    /// One that has these ways; packets are always brought by hand.
    pub fn with(device: stand_in::Device) -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let [a, b] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let card = Card { ip: Ipv4Addr::new(127, 0x20 | a, b, 1) };
        controls().set_device(card.ip, &stand_in::Device { manual: true, ..device });
        card
    }
    pub fn leg(self) -> Leg {
        Leg { destination: self.ip.into(), port: PORT, sources: SourceFilter::Any, ttl: None, mid: None }
    }
    pub fn packet(self, data: &[u8]) -> stand_in::Packet<'_> {
        let source = SocketAddrV4::new(Ipv4Addr::new(127, 9, 9, 9), 5000);
        stand_in::Packet { source, destination: SocketAddrV4::new(self.ip, PORT), time: 0, data }
    }
    /// Packets arrive.
    pub fn deliver(self, sent: &[Sent]) {
        for packet in sent {
            controls().deliver(self.ip, &[self.packet(&packet.octets[..packet.present])]);
        }
    }
    pub fn fail(self, call: &str, status: Status, times: usize) {
        controls().fail(Some(self.ip), call, status, times);
    }
}

/// Options for these cards: one a leg.
pub fn options(cards: &[Card], split: Split, order: Order, capacity: usize) -> Options {
    Options {
        interfaces: cards.iter().map(|card| card.ip.to_string()).collect(),
        split,
        order,
        capacity: Some(capacity),
        probe: Duration::from_millis(20),
        ..Options::default()
    }
}

/// A receiver that has joined.
pub fn receiver(cards: &[Card], options: &Options) -> Rivermax<Host> {
    let legs: Vec<Leg> = cards.iter().map(|card| card.leg()).collect();
    let mut receiver = Rivermax::open(options, &legs, &()).unwrap();
    receiver.join_all(&legs).unwrap();
    receiver
}
