//! What is to be received: the video flows of the SDPs, their rates, and the interfaces of their legs.

use super::report::{Finding, State};
use super::system::System;
use crate::rx::socket::{Interface, Options};
use crate::sdp::{Description, Essence, Flow, Leg, ReferenceClock, Severity, SourceFilter, Video};
use serde::Serialize;
use std::net::IpAddr;

/// A flow that is to be received.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stream {
    /// The SDP that names it.
    pub sdp: String,
    /// Its number there.
    pub flow: usize,
    /// Picture and rate, for people.
    pub picture: String,
    /// Of one leg, from the IP header up; 0 where the SDP has no frame rate.
    pub bits_per_second: u64,
    /// Of one leg.
    pub packets_per_second: u64,
    /// IP octets of a packet, as senders usually cut it.
    pub packet_octets: u32,
    /// IP octets of a packet at most.
    pub packet_octets_max: u32,
    /// Microseconds from frame to frame.
    pub frame_us: u64,
    /// Where it comes in.
    pub legs: Vec<Way>,
    /// Reference clocks that it names.
    #[serde(skip)]
    pub clocks: Vec<ReferenceClock>,
}

/// A leg and its interface.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Way {
    /// Group or address.
    pub destination: IpAddr,
    /// UDP port.
    pub port: u16,
    /// Who may send.
    pub sources: SourceFilter,
    /// The interface; none where there is none for it.
    pub interface: Option<String>,
}

/// What can be received of a description, and a finding about each flow and about what cannot be.
pub fn streams(
    name: &str,
    description: &Description,
    named: &[String],
    system: &dyn System,
) -> Vec<(Option<Stream>, Vec<Finding>)> {
    let mut out = Vec::new();
    let see = format!("gdmedia sdp {}", quoted(name));
    for (number, flow) in description.flows.iter().enumerate() {
        let refusal = description.refusal(flow).filter(|_| !flow.usable);
        out.push(match (&flow.essence, refusal) {
            (Essence::Video(video), None) => {
                let (stream, findings) = stream(name, number, flow, video, named, system);
                (Some(stream), findings)
            }
            (_, Some(why)) => {
                let text = format!("flow {number} cannot be received: {why}");
                (None, vec![Finding::new("flow", State::Missing, text).see(see.clone())])
            }
            (other, None) => {
                let text = format!("flow {number}, {}: gdmedia does not receive it yet", other.kind());
                (None, vec![Finding::new("flow", State::NotApplicable, text)])
            }
        });
    }
    if out.iter().all(|(stream, _)| stream.is_none()) {
        let mut refused: Vec<&mut Finding> =
            out.iter_mut().flat_map(|(_, f)| f).filter(|f| f.state == State::Missing).collect();
        refused.iter_mut().for_each(|f| f.blocks = true);
        if refused.is_empty() {
            let wrong = description.diagnostics.iter().find(|d| d.severity == Severity::Error);
            let why = wrong
                .map_or_else(|| "it has no ST 2110-20 video".into(), |d| format!("line {}: {}", d.line, d.message));
            let text = format!("nothing of it can be received: {why}");
            out.push((None, vec![Finding::new("flow", State::Missing, text).see(see).blocks()]));
        }
    }
    out
}

/// For a shell.
pub fn quoted(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-:@%+=,".contains(&b);
    if !name.is_empty() && name.bytes().all(plain) { name.into() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}

fn stream(
    name: &str,
    number: usize,
    flow: &Flow,
    video: &Video,
    named: &[String],
    system: &dyn System,
) -> (Stream, Vec<Finding>) {
    let ip = if flow.legs.first().is_some_and(|leg| leg.destination.is_ipv6()) { 40 } else { 20 };
    let estimate = flow.estimate();
    let packets = estimate.map_or(0.0, |e| e.packets_per_second);
    let bits = estimate.map_or(0.0, |e| e.bits_per_second);
    let mut findings = Vec::new();
    findings.push(if packets > 0.0 {
        let text = format!("{:.2} Gb/s, {packets:.0} packets a second, {}", bits / 1e9, picture(video));
        Finding::good("rate", text)
    } else {
        let text = format!("the SDP has no frame rate, so nothing can be compared with it; {}", picture(video));
        Finding::new("rate", State::NotKnown, text).see(format!("gdmedia sdp {}", quoted(name)))
    });
    let mut legs = Vec::new();
    for (n, leg) in flow.legs.iter().enumerate() {
        let wanted = named.get(n).or(named.last()).map(String::as_str);
        let (interface, finding) = way(name, n, leg, wanted, system);
        findings.push(finding);
        let sources = leg.sources.clone();
        legs.push(Way { destination: leg.destination, port: leg.port, sources, interface });
    }
    let stream = Stream {
        sdp: name.into(),
        flow: number,
        picture: picture(video),
        bits_per_second: bits as u64,
        packets_per_second: packets as u64,
        packet_octets: if packets > 0.0 { (bits / packets / 8.0).round() as u32 } else { 0 },
        // MAXUDP counts the UDP header.
        packet_octets_max: video.max_udp + ip,
        frame_us: video.rate.map_or(0, |r| u64::from(r.den) * 1_000_000 / u64::from(r.num).max(1)),
        legs,
        clocks: flow.reference_clocks.clone(),
    };
    (stream, findings)
}

fn picture(v: &Video) -> String {
    let rate = v.rate.map_or_else(|| "unknown rate".into(), |r| format!("{:.2}", r.as_f64()));
    let rate = rate.trim_end_matches("0").trim_end_matches('.').to_owned();
    format!("{}x{} {} {rate}, {} {} bit", v.width, v.height, v.scan, v.sampling, v.depth)
}

/// The interface of a leg, as [`crate::rx::Socket`] chooses it.
fn way(sdp: &str, number: usize, leg: &Leg, named: Option<&str>, system: &dyn System) -> (Option<String>, Finding) {
    let to = leg.destination;
    let all = system.interfaces();
    let is =
        |i: &&Interface, text: &str| i.name == text || text.parse().is_ok_and(|a: IpAddr| i.addresses.contains(&a));
    let names = || all.iter().filter(|i| i.up && i.has_family_of(to)).map(|i| i.name.as_str()).collect::<Vec<_>>();
    let missing = |text: String| Finding::new("interface", State::Missing, text).blocks();
    let from = match &leg.sources {
        SourceFilter::Any => "any source".into(),
        SourceFilter::Include(list) => join(list),
        SourceFilter::Exclude(list) => format!("any source but {}", join(list)),
    };
    let found = |i: &Interface, how: &str| {
        let text = format!("leg {number}: {to} port {} from {from}, by {}{how}", leg.port, i.name);
        (Some(i.name.clone()), Finding::good("interface", text))
    };
    if !to.is_multicast() {
        return match all.iter().find(|i| i.addresses.contains(&to)) {
            Some(i) => found(i, ""),
            None if to.is_unspecified() => {
                (None, Finding::good("interface", format!("leg {number}: port {} of every interface", leg.port)))
            }
            None => {
                let on = named.or(names().iter().find(|n| **n != "lo").copied()).unwrap_or("INTERFACE");
                let bits = if to.is_ipv4() { 32 } else { 128 };
                let text = format!("leg {number}: {to} is no address of this machine");
                (None, missing(text).fix(format!("ip address add {to}/{bits} dev {on}")))
            }
        };
    }
    let chosen = match named {
        Some(text) => match all.iter().find(|i| is(i, text)) {
            Some(i) => Ok((i, "")),
            None => Err(format!("leg {number}: there is no interface {text}; there are: {}", names().join(", "))),
        },
        None => match system.way_to(to).and_then(|name| all.iter().find(|i| i.name == name)) {
            Some(i) => Ok((i, ", as the routing table says")),
            None => Err(format!("leg {number}: no route leads to the group {to}, and no interface is named")),
        },
    };
    match chosen {
        Ok((i, how)) => found(i, how),
        Err(text) => {
            let on = names().iter().find(|n| **n != "lo").copied().unwrap_or("INTERFACE").to_owned();
            let net = if to.is_ipv4() { "224.0.0.0/4" } else { "ff00::/8" };
            let finding = missing(text).fix(format!("gdmedia doctor --sdp {} --interface {on}", quoted(sdp)));
            (None, if named.is_none() { finding.fix(format!("ip route add {net} dev {on}")) } else { finding })
        }
    }
}

fn join(list: &[IpAddr]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Milliseconds of a stream that a socket buffer holds: what its datagrams weigh in the kernel's memory is charged.
pub fn buffer_ms(given: u64, stream: &Stream) -> Option<f64> {
    (stream.bits_per_second > 0).then(|| {
        let ip = if stream.legs.first().is_some_and(|leg| leg.destination.is_ipv6()) { 40 } else { 20 };
        let payload = stream.packet_octets_max.saturating_sub(ip + 8).clamp(1, u32::from(u16::MAX));
        let holds = crate::rx::socket::payload_held(given as usize, payload as u16);
        holds as f64 * 8e3 / stream.bits_per_second as f64
    })
}

/// Octets of the buffer that receivers ask for.
pub fn buffer_wanted() -> u64 {
    Options::default().buffer_octets as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_a_shell() {
        assert_eq!(quoted("a/b-1.sdp"), "a/b-1.sdp");
        assert_eq!(quoted("it's here"), "'it'\\''s here'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn a_buffer_in_milliseconds_is_that_of_the_receiver() {
        let stream = Stream {
            sdp: String::new(),
            flow: 0,
            picture: String::new(),
            bits_per_second: 225_000 * 1260 * 8,
            packets_per_second: 225_000,
            packet_octets: 1288,
            packet_octets_max: 1288,
            frame_us: 0,
            legs: Vec::new(),
            clocks: Vec::new(),
        };
        // As in the receiver's own test: 58 254 datagrams of 1260 octets.
        assert_eq!(buffer_ms(128 << 20, &stream).map(|ms| ms.round()), Some(259.0));
        assert_eq!(buffer_ms(128 << 20, &Stream { bits_per_second: 0, ..stream }), None);
    }
}
