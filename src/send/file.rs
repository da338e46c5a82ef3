//! A stream into a capture file, every packet with the exact time that its schedule gives it. No clock is read, so
//! the file is the same every time.

use super::impair::Impaired;
use super::source::Source;
use super::stream::Stream;
use crate::error::{Error, Kind, Result};
use crate::fault::{FaultCounters, FaultPlan};
use crate::time::Tai;
use crate::wire::capture::PcapWriter;
use crate::wire::net::Route;
use serde::Serialize;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// When a file begins if nobody says: 2023-11-14 22:13:20 UTC, in TAI.
pub const DEFAULT_START: Tai = Tai(1_700_000_037_000_000_000);

/// How much to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first frame is the first that begins at this time or later.
    pub start: Tai,
    /// Frames at most.
    pub frames: Option<u64>,
    /// Time to fill at most.
    pub duration: Option<Duration>,
}

/// What has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Frames.
    pub frames: u64,
    /// Packets of these, each counted once however many legs and whatever faults did to it.
    pub packets: u64,
    /// UDP payload octets of these.
    pub octets: u64,
    /// Faults on purpose.
    pub faults: Option<FaultCounters>,
}

/// The way of a leg's packets: from `source`, or from an address of the documentation range where that is not known.
///
/// # Errors
/// The two addresses are of different families.
pub fn route(destination: SocketAddr, source: Option<IpAddr>, ttl: u8) -> Result<Route> {
    let source = source.unwrap_or(match destination.ip() {
        ip if ip.is_loopback() => ip,
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    });
    let mut route = Route::new(SocketAddr::new(source, destination.port()), destination).ok_or_else(|| {
        Error::new(Kind::Usage, format!("{destination} cannot be reached from {source}: one is IPv4, one IPv6"))
            .cure("use addresses of one family")
    })?;
    if destination.ip().is_multicast() {
        route.ttl = ttl;
    }
    Ok(route)
}

/// Writes frames until the extent is filled, the source ends or `stop` is set, with the faults of
/// `plan`. Times in the file are TAI.
///
/// # Errors
/// The source fails; the file cannot be written (disk full, broken pipe).
pub fn write<W: Write>(
    stream: &mut Stream,
    source: &mut dyn Source,
    routes: &[Route],
    out: &mut PcapWriter<W>,
    extent: Extent,
    plan: Option<&FaultPlan>,
    stop: &AtomicBool,
) -> Result<Written> {
    let schedule = stream.schedule;
    let first = schedule.frame_at(Tai(extent.start.0.saturating_sub(1))) + 1;
    let end = extent.duration.map(|d| schedule.frame_start(first) + d);
    let mut written = Written::default();
    let mut packet_octets = Vec::new();
    let mut impaired = plan.map(|plan| Impaired::new(plan, stream.template.extended()));
    let count = stream.template.packets.len();
    while extent.frames.is_none_or(|n| written.frames < n) && !stop.load(Ordering::Relaxed) {
        let frame = first + written.frames;
        if end.is_some_and(|end| schedule.frame_start(frame) >= end) {
            break;
        }
        let Some(octets) = source.next()? else { break };
        stream.template.stamp(0..count, stream.sequence, schedule.timestamps(frame, stream.format.scan));
        for (index, packet) in stream.template.packets.iter().enumerate() {
            packet_octets.clear();
            stream.template.write(packet, octets, &mut packet_octets);
            let at = schedule.packet(frame, index as u32);
            for (leg, route) in routes.iter().enumerate() {
                match &mut impaired {
                    None => out.datagram(at.0, route, &packet_octets)?,
                    Some(impaired) => {
                        impaired.packet(leg as u8, at, &packet_octets, &mut |leg, at, octets| {
                            put(out, routes, leg, at, octets)
                        })?;
                    }
                }
            }
        }
        stream.sequence = stream.sequence.wrapping_add(count as u32);
        written.frames += 1;
        written.packets += count as u64;
        written.octets += stream.template.octets();
    }
    if let Some(impaired) = &mut impaired {
        impaired.finish(&mut |leg, at, octets| put(out, routes, leg, at, octets))?;
        written.faults = Some(impaired.counters());
    }
    Ok(written)
}

fn put<W: Write>(out: &mut PcapWriter<W>, routes: &[Route], leg: u8, at: Tai, octets: &[u8]) -> Result<()> {
    routes.get(usize::from(leg)).map_or(Ok(()), |route| out.datagram(at.0, route, octets))
}
