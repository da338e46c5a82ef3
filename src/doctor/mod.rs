//! `gdmedia doctor`: what this machine has for an SDP, what is missing, and what to do about it. Reads only: nothing is
//! changed, no packet is sent, no group is joined, and root is not needed (what it would take to read something is said).
//!
//! ```text
//! files (sysfs, procfs) + answers (kernel, drivers, ptp4l) -> findings -> recommendation
//! ```
//!
//! Files are read below a [`Root`], and the kernel is asked through [`System`], so that machines which nobody has at hand
//! can be written down as trees and answers.

pub mod advice;
mod flows;
mod gpu;
mod interface;
mod library;
mod machine;
pub mod report;
mod system;
#[cfg(test)]
mod tests;
mod ways;

pub use crate::topology::Root;
pub use crate::unix::ethtool::{Ethtool, Stamps};
pub use crate::unix::netlink::{Features, Route};
pub use flows::{Stream, Way};
pub use report::{Finding, Report, SCHEMA, Section, State, Verdict};
pub use system::{Cuda, Here, System, Uses, Xdp};

use crate::ptp;
use crate::sdp::Description;
use crate::topology::{pci, root};
use advice::{GpuFacts, Load, Situation, Source};
use interface::Interface;
use machine::Machine;
use report::About;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// SDPs with their names; without one the machine is looked at for its own sake.
    pub sdps: Vec<(String, Description)>,
    /// Interface of each leg, as of [`crate::rx::socket::Options::interfaces`].
    pub interfaces: Vec<String>,
    /// The packets come from this capture.
    pub capture: Option<PathBuf>,
}

/// Looks at everything.
pub fn examine(request: &Request, root: &Root, system: &dyn System) -> Report {
    let network = request.capture.is_none();
    let mut sections = Vec::new();
    let machine = Machine::read(root, system);
    let (streams, flow_sections) = flow_sections(request, network, system);
    let interfaces = interfaces(request, network, &streams, root, system);

    let ptp = if network {
        let domains = ptp::domains(streams.iter().flat_map(|s| &s.clocks));
        ptp::ask(ptp::SOCKETS.map(|socket| root.path(socket)), &domains)
    } else {
        Err(ptp::Silent::Absent)
    };
    sections.push(section(About::Machine, "", machine.findings(&streams, network, &ptp)));
    sections.extend(flow_sections);
    for interface in &interfaces {
        let findings = interface.findings(&machine, &legs_of(&streams, &interface.base.name));
        sections.push(section(About::Interface, &interface.base.name, findings));
    }
    let (ways_in, bypass) = ways::findings(root, system, &machine, &interfaces);
    if network {
        sections.push(section(About::WaysIn, "", ways_in));
    }
    let (steps, gpu) = gpu::findings(root, system, &machine, &interfaces);
    sections.push(section(About::ToTheGpu, "", steps));

    let found = || sections.iter().flat_map(|s| s.findings.iter().map(move |f| (s, f)));
    let blocked = found().filter(|(_, f)| f.blocks).map(|(s, f)| {
        let at = if s.about == About::Interface { format!("{}: ", s.name) } else { String::new() };
        format!("{at}{} {}", f.id, f.text)
    });
    let buffer_ms = machine
        .buffer()
        .and_then(|given| streams.iter().filter_map(|s| flows::buffer_ms(given, s)).min_by(f64::total_cmp));
    let situation = Situation {
        source: match (network, request.sdps.is_empty()) {
            (false, _) => Source::Storage,
            (true, true) => Source::Unknown,
            (true, false) => Source::Network,
        },
        loads: if network { loads(&streams, &interfaces, gpu.as_ref()) } else { Vec::new() },
        cores: machine.cores,
        busy: machine.busy,
        buffer_ms,
        bypass: bypass.usable,
        mendable: bypass.mendable,
        direct_card: interfaces.iter().any(Interface::mlx5),
        driver: interfaces
            .iter()
            .filter_map(|i| i.driver.clone())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
            .join(", "),
        gpu: gpu.map(|g| GpuFacts { usable: g.usable, near: g.near.map(|(near, _)| near), closed: g.closed }),
        storage: gpu::storage(root, system),
        blocked: blocked.collect(),
        better: found().filter(|(_, f)| f.state == State::CouldBeBetter).count(),
        streams,
    };
    let recommendation = advice::advise(&situation);
    Report {
        version: env!("CARGO_PKG_VERSION"),
        verdict: recommendation.verdict,
        exit: recommendation.verdict.exit_code(),
        streams: situation.streams,
        sections,
        recommendation,
    }
}

fn section(about: About, name: &str, findings: Vec<Finding>) -> Section {
    Section { about, name: name.into(), findings }
}

fn flow_sections(request: &Request, network: bool, system: &dyn System) -> (Vec<Stream>, Vec<Section>) {
    let mut streams = Vec::new();
    let mut sections = Vec::new();
    for (name, description) in &request.sdps {
        let mut findings = Vec::new();
        for (stream, found) in flows::streams(name, description, &request.interfaces, system) {
            streams.extend(stream);
            // From a capture no interface is needed.
            findings.extend(found.into_iter().filter(|f| network || f.id != "interface"));
        }
        if let Some(path) = request.capture.as_ref() {
            findings.push(capture(path));
        }
        sections.push(section(About::Flow, name, findings));
    }
    (streams, sections)
}

fn capture(path: &std::path::Path) -> Finding {
    // A pipe is not waited for.
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    match file.and_then(|f| f.metadata()) {
        Ok(meta) if meta.is_dir() => {
            Finding::new("capture", State::Missing, format!("{}: a folder", path.display())).blocks()
        }
        Ok(meta) => Finding::good("capture", format!("{}, {}", path.display(), machine::size(meta.len()))),
        Err(e) => Finding::new("capture", State::Missing, format!("{}: {e}", path.display())).blocks(),
    }
}

/// Those that the legs use; without an SDP those that are named, else all that are up, loopback only where it is alone.
fn interfaces(
    request: &Request,
    network: bool,
    streams: &[Stream],
    root: &Root,
    system: &dyn System,
) -> Vec<Interface> {
    if !network {
        return Vec::new();
    }
    let all = system.interfaces();
    let ways: Vec<&Way> = streams.iter().flat_map(|s| &s.legs).collect();
    let used: BTreeSet<&str> = ways.iter().filter_map(|w| w.interface.as_deref()).collect();
    let named = |i: &crate::rx::socket::Interface| {
        request.interfaces.iter().any(|n| *n == i.name || n.parse().is_ok_and(|a| i.addresses.contains(&a)))
    };
    let loopback = |i: &crate::rx::socket::Interface| i.addresses.iter().any(std::net::IpAddr::is_loopback);
    let others = all.iter().any(|i| i.up && !loopback(i));
    all.into_iter()
        .filter(|i| {
            if !request.sdps.is_empty() {
                used.contains(i.name.as_str())
            } else if !request.interfaces.is_empty() {
                named(i)
            } else {
                i.up && (!others || !loopback(i))
            }
        })
        .map(|base| {
            let here: Vec<&Way> = ways.iter().copied().filter(|w| w.interface.as_deref() == Some(&base.name)).collect();
            Interface::read(root, system, base, &here)
        })
        .collect()
}

/// Each leg that comes in at an interface, with its stream.
fn legs_of<'a>(streams: &'a [Stream], name: &str) -> Vec<(&'a Stream, &'a Way)> {
    let legs = streams.iter().flat_map(|s| s.legs.iter().map(move |w| (s, w)));
    legs.filter(|(_, w)| w.interface.as_deref() == Some(name)).collect()
}

/// What ports and links of the bus are to carry. Packets cross a card's links once, up to the host; on their way from
/// there to the GPU they cross the GPU's links down, which is the other direction of those that both share.
fn loads(streams: &[Stream], interfaces: &[Interface], gpu: Option<&gpu::Gpu>) -> Vec<Load> {
    let mut out = Vec::new();
    // VLANs have the port of the card beneath them.
    let mut ports = BTreeMap::<&str, (u64, Option<u64>, Vec<&str>)>::new();
    let mut up = BTreeMap::<&str, (u64, u64, Vec<&str>)>::new();
    let mut all = 0u64;
    for i in interfaces {
        let wanted = interface::wanted(&legs_of(streams, &i.base.name));
        all = all.saturating_add(wanted);
        if let Some(card) = &i.card {
            let entry = ports.entry(card).or_default();
            entry.0 = entry.0.saturating_add(wanted);
            entry.1 = entry.1.max(i.bits_per_second());
            entry.2.push(&i.base.name);
        }
        for link in &i.links {
            let entry = up.entry(&link.address).or_insert((0, link.bits_per_second(), Vec::new()));
            entry.0 = entry.0.saturating_add(wanted);
            entry.2.push(&i.base.name);
        }
    }
    out.extend(ports.into_iter().map(|(card, (wanted, capacity, names))| {
        let link = if names == [card] {
            format!("the port {card}")
        } else {
            format!("the port {card} ({})", names.join(", "))
        };
        Load { link, wanted, capacity, bus: false }
    }));
    out.extend(up.into_iter().map(|(address, (wanted, capacity, names))| Load {
        link: format!("the PCIe link {address} ({})", names.join(", ")),
        wanted,
        capacity: Some(capacity),
        bus: true,
    }));
    if let Some(gpu) = gpu.filter(|g| g.usable) {
        out.extend(gpu.links.iter().min_by_key(|l| l.bits_per_second()).map(|link| Load {
            link: format!("the PCIe link {} (down to the GPU)", link.address),
            wanted: all,
            capacity: Some(link.bits_per_second()),
            bus: true,
        }));
    }
    out
}
