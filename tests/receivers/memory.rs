//! Rings that a program fills.

use crate::setup::{Ability, Datagram, Opened, Setup, join};
use gdmedia::mem::Region;
use gdmedia::ring::{SLACK, Slot, SplitRing};
use gdmedia::rx::Memory;
use gdmedia::rx::memory::Fill;
use gdmedia::sdp::Leg;
use gdmedia::time::Tai;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::sync::mpsc;

pub struct Filled;

const AREAS: usize = 8;
const BATCH: usize = 16;
const ROOM: usize = 1500;

impl Setup for Filled {
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        match ability {
            Ability::Addresses | Ability::Exclusion => Some("who fills it chooses what goes in"),
            Ability::End => Some("who fills it says when it ends"),
            Ability::Silence => None,
        }
    }
    fn sizes(&self) -> RangeInclusive<usize> {
        1..=ROOM
    }
    fn address(&self, leg: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, 10 + leg).into()
    }
    fn sources(&self) -> [IpAddr; 2] {
        [1, 2].map(|n| Ipv4Addr::new(192, 0, 2, n).into())
    }
    fn open_from(&self, first: u8, legs: &[Leg], _sent: &[Datagram]) -> Opened {
        let (send, sent) = mpsc::channel::<(u8, Vec<u8>)>();
        let mut time = 1_700_000_000_000_000_000;
        let fill: Fill<gdmedia::mem::Host> = Box::new(move |ring, area, slots| {
            for (n, (leg, packet)) in sent.try_iter().take(BATCH).enumerate() {
                let at = (area * BATCH + n) * ROOM;
                ring.head_plane_mut().as_mut_slice()[at..at + packet.len()].copy_from_slice(&packet);
                let octets = packet.len() as u16;
                time += 1000;
                let (head_at, arrival) = (at as u32, Tai(time));
                slots.push(Slot { head_at, body_at: 0, head: octets, octets, wire_octets: octets, leg, arrival });
            }
            Ok(!slots.is_empty())
        });
        let ring = SplitRing::whole(Region::host(AREAS * BATCH * ROOM + SLACK).unwrap());
        let mut receiver = Memory::new(ring, AREAS, BATCH, None, fill);
        join(&mut receiver, first, legs);
        let legs = legs.to_vec();
        let send = Box::new(move |datagram: &Datagram| {
            let to = |leg: &Leg| (leg.destination, leg.port) == (datagram.to.ip(), datagram.to.port());
            let leg = legs.iter().position(to).unwrap();
            send.send((first + leg as u8, datagram.octets.clone())).unwrap();
        });
        Opened::one(receiver, send)
    }
}
