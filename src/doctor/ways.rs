//! Ways from the network into memory, and what stands in the way of each.

use super::interface::Interface;
use super::machine::Machine;
use super::pci;
use super::report::{Finding, State};
use super::root::Root;
use super::system::System;
use crate::rx::xdp::{Attached, BTF};
use crate::unix::netlink::Features;

/// Ways other than sockets, for the recommendation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bypass {
    /// Those that gdmedia can use here.
    pub usable: Vec<&'static str>,
    /// What gdmedia could use if it were mended.
    pub mendable: Vec<&'static str>,
}

/// Cards that Rivermax takes: ConnectX-5 and later, BlueField.
const CONNECTX: [(u32, &str, bool); 13] = [
    (0x1013, "ConnectX-4", false),
    (0x1015, "ConnectX-4 Lx", false),
    (0x1017, "ConnectX-5", true),
    (0x1019, "ConnectX-5 Ex", true),
    (0x101b, "ConnectX-6", true),
    (0x101d, "ConnectX-6 Dx", true),
    (0x101f, "ConnectX-6 Lx", true),
    (0x1021, "ConnectX-7", true),
    (0x1023, "ConnectX-8", true),
    (0x1025, "ConnectX-9", true),
    (0xa2d2, "BlueField", true),
    (0xa2d6, "BlueField-2", true),
    (0xa2dc, "BlueField-3", true),
];

const MELLANOX: u32 = 0x15b3;

/// Name of a card, and whether Rivermax takes it.
fn connectx(device: &pci::Device) -> Option<(&'static str, bool)> {
    let known = |(id, name, fit): &(u32, &'static str, bool)| (*id == device.device).then_some((*name, *fit));
    if device.vendor == MELLANOX { CONNECTX.iter().find_map(known) } else { None }
}

/// Every way, for the interfaces that would be used.
pub fn findings(
    root: &Root,
    system: &dyn System,
    machine: &Machine,
    interfaces: &[Interface],
) -> (Vec<Finding>, Bypass) {
    let mut bypass = Bypass::default();
    let devices = pci::devices(root);
    let out = vec![
        sockets(machine),
        xdp(root, system, machine, interfaces, &mut bypass),
        verbs(root, system, machine, interfaces, &mut bypass),
        dpdk(system, machine, interfaces, &devices),
        rivermax(root, system, &devices, interfaces, &mut bypass),
    ];
    (out, bypass)
}

fn sockets(machine: &Machine) -> Finding {
    if machine.kernel_from(5, 0) {
        return Finding::good("sockets", "always; this kernel hands over merged packets (UDP_GRO)");
    }
    Finding::new("sockets", State::CouldBeBetter, "always, packet by packet: Linux 5.0 and later merge (UDP_GRO)")
        .see("uname -r")
}

fn xdp(root: &Root, system: &dyn System, machine: &Machine, interfaces: &[Interface], bypass: &mut Bypass) -> Finding {
    const ID: &str = "af-xdp";
    const GIVES: &str = "packets before the kernel's network stack, with no socket buffer to overflow";
    if !system.af_xdp() {
        let text = "this kernel has none (CONFIG_XDP_SOCKETS)";
        return Finding::new(ID, State::Missing, text).gives(GIVES).see("grep XDP_SOCKETS /boot/config-$(uname -r)");
    }
    if let Some((i, (id, attached))) = interfaces.iter().find_map(|i| Some((i, i.xdp.foreign?))) {
        let name = &i.base.name;
        let text = format!("another XDP program (number {id}) runs on {name}");
        // Without its place the kernel looks in the driver only.
        let place = match attached {
            Attached::Native => "xdpdrv",
            Attached::Generic => "xdpgeneric",
            Attached::Other => "xdp",
        };
        return Finding::new(ID, State::Missing, text)
            .gives(GIVES)
            .see(format!("ip link show {name}"))
            .fix(format!("ip link set {name} {place} off"));
    }
    let types = root.has(BTF.trim_start_matches('/'));
    let mode = |i: &Interface| {
        let how = match i.xdp.features {
            None => "generic or native: this kernel does not tell",
            Some(f) if f.native && f.zero_copy => "native, without a copy",
            Some(f) if f.native => "native, one copy",
            Some(_) => "generic, one copy: the driver has no XDP",
        };
        format!("{}: {how}{}", i.base.name, stamps(i.xdp.features, types))
    };
    let modes = interfaces.iter().map(mode).collect::<Vec<_>>().join("; ");
    let modes = if modes.is_empty() { "the kernel has it".to_owned() } else { modes };
    let missing = machine.missing_for_xdp();
    if missing.is_empty() {
        bypass.usable.push("AF_XDP");
        return Finding::good(ID, modes);
    }
    bypass.mendable.push("AF_XDP");
    Finding::new(ID, State::Missing, format!("{modes}; this user lacks {}", missing.join(", ")))
        .gives(GIVES)
        .fix(format!("setcap {}+ep $(command -v gdmedia)", missing.join(",")))
}

/// What the driver says of time stamps; a generic program has none to ask. `types`: the kernel says which number the call
/// for them has.
fn stamps(features: Option<Features>, types: bool) -> &'static str {
    match features.filter(|f| f.native).and_then(|f| f.stamps) {
        Some(true) if types => ", time stamps of the card taken where packets have them",
        Some(true) => ", time stamps of the card offered, and not taken: the kernel has no BTF",
        Some(false) => ", no time stamps of the card offered",
        None => "",
    }
}

fn verbs(
    root: &Root,
    system: &dyn System,
    machine: &Machine,
    interfaces: &[Interface],
    bypass: &mut Bypass,
) -> Finding {
    const ID: &str = "verbs";
    let mut used = false;
    let cards: Vec<String> = root
        .names("sys/class/infiniband")
        .into_iter()
        .map(|card| {
            let here = root.resolved(&format!("sys/class/infiniband/{card}/device"));
            let of = |i: &&Interface| i.device.as_ref().is_some_and(|d| Some(&d.path) == here.as_ref());
            let its = interfaces.iter().find(of);
            used |= its.is_some();
            its.map_or_else(|| card.clone(), |i| format!("{card} ({})", i.base.name))
        })
        .collect();
    let library = system.library(&["libibverbs.so.1"]);
    let gives = "header and payload apart, straight into memory of the program or of a GPU, without a licence";
    let missing = |text: String| Finding::new(ID, State::Missing, text).gives(gives);
    let have = cards.join(", ");
    match (cards.is_empty(), library) {
        (true, None) => return missing("no RDMA card, and libibverbs is not installed".into()),
        (true, Some(_)) => return missing("no RDMA card (nothing in /sys/class/infiniband)".into()),
        (false, None) => {
            return missing(format!("{have}, but libibverbs is not installed"))
                .fix("apt install libibverbs1 ibverbs-providers");
        }
        (false, Some(_)) => {}
    }
    if !system.uses().verbs {
        return missing(format!("{have}, library there; this gdmedia was built without it"));
    }
    if !used && !interfaces.is_empty() {
        return missing(format!("{have}, library there; none of them is the card of these interfaces"));
    }
    let rights = machine.missing_for_verbs();
    if rights.is_empty() {
        bypass.usable.push("verbs");
        return Finding::good(ID, format!("{have}, library there"));
    }
    bypass.mendable.push("verbs");
    missing(format!("{have}, library there; this user lacks {}", rights.join(", ")))
        .fix(format!("setcap {}+ep $(command -v gdmedia)", rights.join(",")))
}

fn dpdk(system: &dyn System, machine: &Machine, interfaces: &[Interface], devices: &[pci::Device]) -> Finding {
    const ID: &str = "dpdk";
    let network = |d: &&pci::Device| d.class >> 16 == 2;
    let bound = |d: &pci::Device| matches!(d.driver.as_deref(), Some("vfio-pci" | "igb_uio" | "uio_pci_generic"));
    let taken: Vec<&str> = devices.iter().filter(network).filter(|d| bound(d)).map(|d| d.address.as_str()).collect();
    let mut have = Vec::new();
    if !taken.is_empty() {
        have.push(format!("ports given to it: {}", taken.join(", ")));
    }
    have.extend(
        interfaces.iter().filter(|i| i.mlx5()).map(|i| format!("{} can be shared with the kernel", i.base.name)),
    );
    let huge = machine.huge.filter(|(_, all, _)| *all > 0);
    have.push(huge.map_or_else(|| "no huge pages".into(), |(_, all, _)| format!("{all} huge pages")));
    let port = !taken.is_empty() || interfaces.iter().any(Interface::mlx5);
    if !port {
        have.push("no port for it (vfio-pci or mlx5)".into());
    }
    let built = system.uses().dpdk;
    have.push(built.map_or_else(|| "this gdmedia was built without it".into(), str::to_owned));
    let gives = "packets without the kernel, on cores that do nothing else; it has to be asked for: --backend dpdk";
    match (built, port && huge.is_some()) {
        (Some(_), true) => Finding::good(ID, have.join("; ")),
        (Some(_), false) if huge.is_none() => {
            Finding::new(ID, State::Missing, have.join("; ")).gives(gives).fix("sysctl -w vm.nr_hugepages=512")
        }
        _ => Finding::new(ID, State::Missing, have.join("; ")).gives(gives),
    }
}

fn rivermax(
    root: &Root,
    system: &dyn System,
    devices: &[pci::Device],
    interfaces: &[Interface],
    bypass: &mut Bypass,
) -> Finding {
    const ID: &str = "rivermax";
    let gives = "a card that places packets by itself, in memory of the program or of a GPU";
    let used =
        |d: &pci::Device| interfaces.iter().any(|i| i.device.as_ref().is_some_and(|own| own.address == d.address));
    let cards: Vec<&pci::Device> = devices.iter().filter(|d| d.vendor == MELLANOX && d.class >> 16 == 2).collect();
    let card = cards.iter().find(|d| used(d)).or(cards.first());
    let named = card.and_then(|d| connectx(d));
    let library = system.library(&["librivermax.so.1", "librivermax.so.0", "librivermax.so"]);
    let licence = system.variable("RIVERMAX_LICENSE_PATH").unwrap_or_else(|| LICENCE.into());
    let supported = system.uses().rivermax;
    let mut lacking = Vec::new();
    match (card, named) {
        (None, _) => lacking.push("no NVIDIA card (ConnectX-5 or later)".to_owned()),
        (Some(_), Some((name, false))) => lacking.push(format!("{name} is too old (ConnectX-5 or later)")),
        (Some(d), _) if !interfaces.is_empty() && !used(d) => {
            lacking.push(format!("the card {} is not the one of these interfaces", d.address))
        }
        _ => {}
    }
    if library.is_none() {
        lacking.push("library not installed".into());
    }
    if !root.has(licence.trim_start_matches('/')) {
        lacking.push(format!("no licence at {licence}"));
    }
    if !supported {
        lacking.push("this gdmedia was built without it".into());
    }
    let have = named.map_or_else(String::new, |(name, _)| format!("{name}; "));
    if lacking.is_empty() {
        bypass.usable.push("Rivermax");
        return Finding::good(ID, format!("{have}library and licence are there"));
    }
    if supported && card.is_some() && named.is_none_or(|(_, fit)| fit) {
        bypass.mendable.push("Rivermax");
    }
    Finding::new(ID, State::Missing, format!("{have}{}", lacking.join("; "))).gives(gives)
}

/// Where NVIDIA's guides have the licence put.
const LICENCE: &str = "/opt/mellanox/rivermax/rivermax.lic";
