//! Devices of PCI Express: their links, and how far they lie from each other.

use super::root::Root;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A device.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// `0000:1b:00.0`.
    pub address: String,
    /// Who made it: 0x15b3 Mellanox, 0x10de NVIDIA.
    pub vendor: u32,
    /// What it is, in its maker's numbers.
    pub device: u32,
    /// Class in the upper octets: 0x02.... network, 0x03.... display.
    pub class: u32,
    /// The kernel's driver for it.
    pub driver: Option<String>,
    /// NUMA node, where the firmware names one.
    pub node: Option<u32>,
    /// Octets of its second memory window (BAR1, by which other devices reach a GPU's memory).
    pub bar1: Option<u64>,
    /// Its place in the tree of bridges.
    pub path: PathBuf,
}

/// A link, as it runs now.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The device at its lower end.
    pub address: String,
    /// Transfers a second and lane, in thousands of millions.
    pub speed: f64,
    /// Lanes.
    pub lanes: u32,
}

/// How near two devices are, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Near {
    /// Behind one switch: they reach each other without the CPU's root complex.
    Switch,
    /// Below one host bridge.
    Root,
    /// At the same NUMA node.
    Node,
    /// Neither.
    Far,
}

impl Near {
    /// For people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Near::Switch => "behind the same PCIe switch",
            Near::Root => "below the same root complex",
            Near::Node => "at the same NUMA node, below another root complex",
            Near::Far => "at another NUMA node",
        }
    }
}

impl Link {
    /// Bits a second in each direction, after line coding.
    pub fn bits_per_second(&self) -> u64 {
        let coding = match self.speed {
            s if s <= 5.0 => 8.0 / 10.0,
            s if s <= 32.0 => 128.0 / 130.0,
            // Flits of 256 octets, 242 of them for packets.
            _ => 242.0 / 256.0,
        };
        (self.speed * f64::from(self.lanes) * coding * 1e9) as u64
    }
}

/// All devices.
pub fn devices(root: &Root) -> Vec<Device> {
    root.names("sys/bus/pci/devices").iter().filter_map(|address| device(root, address)).collect()
}

/// The device of this address.
pub fn device(root: &Root, address: &str) -> Option<Device> {
    let base = format!("sys/bus/pci/devices/{}", address.to_ascii_lowercase());
    let hex = |name: &str| {
        root.text(&format!("{base}/{name}")).and_then(|t| u32::from_str_radix(t.trim_start_matches("0x"), 16).ok())
    };
    Some(Device {
        address: address.to_ascii_lowercase(),
        vendor: hex("vendor")?,
        device: hex("device")?,
        class: hex("class")?,
        driver: root.target(&format!("{base}/driver")),
        node: node(root, address),
        bar1: root.text(&format!("{base}/resource")).and_then(|t| bar1(&t)),
        path: root.resolved(&base)?,
    })
}

/// The NUMA node of the device of this address; none where the firmware names none (-1).
pub fn node(root: &Root, address: &str) -> Option<u32> {
    root.number(&format!("sys/bus/pci/devices/{}/numa_node", address.to_ascii_lowercase()))
}

/// The device of a network interface; none for those that are none (loopback, veth, bond) and those of other busses.
pub fn of_interface(root: &Root, name: &str) -> Option<Device> {
    let path = root.resolved(&format!("sys/class/net/{name}/device"))?;
    // A virtio device is a child of the PCI device.
    path.ancestors().filter_map(|p| p.file_name()?.to_str()).find(|n| is_address(n)).and_then(|a| device(root, a))
}

/// The links from a device up to the host, its own first.
pub fn links(root: &Root, path: &Path) -> Vec<Link> {
    // Both ends of a link are devices of the path, the lower one first.
    path.ancestors()
        .filter_map(|place| Some((place, place.file_name()?.to_str().filter(|n| is_address(n))?)))
        .step_by(2)
        .filter_map(|(place, address)| {
            let read = |name: &str| root.text(&format!("{}/{name}", place.to_str()?));
            let speed = read("current_link_speed")?;
            let speed = speed.split_ascii_whitespace().next()?.parse().ok()?;
            let lanes = read("current_link_width")?.parse().ok().filter(|n| *n > 0)?;
            Some(Link { address: address.to_owned(), speed, lanes })
        })
        .collect()
}

/// How near two devices are.
pub fn near(a: &Device, b: &Device) -> Near {
    let common: Vec<&str> = a
        .path
        .components()
        .zip(b.path.components())
        .take_while(|(a, b)| a == b)
        .filter_map(|(a, _)| a.as_os_str().to_str())
        .collect();
    // A root port and the switch below it.
    if common.iter().filter(|name| is_address(name)).count() >= 2 {
        Near::Switch
    } else if common.iter().any(|name| name.starts_with("pci")) {
        Near::Root
    } else if a.node.is_some() && a.node == b.node {
        Near::Node
    } else {
        Near::Far
    }
}

/// `0000:1b:00.0`.
fn is_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    parts.len() == 4 && parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Size of the second window: lines of `resource` are start, end and flags; a window of 64 bits has two lines.
fn bar1(resources: &str) -> Option<u64> {
    const MEMORY: u64 = 0x200;
    const WIDE: u64 = 0x0010_0000;
    let hex = |t: &str| u64::from_str_radix(t.trim_start_matches("0x"), 16).ok();
    let mut lines = resources.lines().take(6);
    let mut windows = Vec::new();
    while let Some(line) = lines.next() {
        let mut words = line.split_ascii_whitespace().map(hex);
        let (start, end, flags) = (words.next()??, words.next()??, words.next()??);
        if flags & WIDE != 0 {
            lines.next();
        }
        if flags & MEMORY != 0 && end > start {
            windows.push((end - start).saturating_add(1));
        }
    }
    windows.get(1).copied()
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Tree;
    use super::*;

    #[test]
    fn nearness_goes_by_the_bridges() {
        let at = |path: &str, node| Device {
            address: String::new(),
            vendor: 0,
            device: 0,
            class: 0,
            driver: None,
            node,
            bar1: None,
            path: path.into(),
        };
        let nic = at("sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0", Some(0));
        let switch = at("sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", Some(0));
        assert_eq!(near(&nic, &switch), Near::Switch);
        assert_eq!(near(&nic, &at("sys/devices/pci0000:15/0000:15:03.0/0000:20:00.0", Some(0))), Near::Root);
        assert_eq!(near(&nic, &at("sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0", Some(0))), Near::Node);
        assert_eq!(near(&nic, &at("sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", Some(1))), Near::Far);
        let no_node = at("sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", None);
        assert_eq!(
            near(&at("sys/devices/pci0000:15/x", None), &no_node),
            Near::Far,
            "nothing known is nothing in common"
        );
    }

    #[test]
    fn links_are_read_up_to_the_host() {
        let tree = Tree::new();
        let switch = "pci0000:15/0000:15:01.0/0000:16:00.0";
        let link = |speed, lanes| {
            [
                ("vendor", "0x8086"),
                ("device", "0x1"),
                ("class", "0x060400"),
                ("current_link_speed", speed),
                ("current_link_width", lanes),
            ]
        };
        tree.pci("pci0000:15/0000:15:01.0", &link("16.0 GT/s PCIe", "16"), None);
        tree.pci(switch, &link("16.0 GT/s PCIe", "16"), None);
        tree.pci(&format!("{switch}/0000:17:00.0"), &link("8.0 GT/s PCIe", "8"), None);
        let nic = format!("{switch}/0000:17:00.0/0000:18:00.0");
        tree.pci(&nic, &link("8.0 GT/s PCIe", "8"), Some("mlx5_core"));
        tree.link("sys/class/net/eth7/device", &format!("sys/devices/{nic}"));
        let root = tree.root();
        let device = of_interface(&root, "eth7").unwrap();
        assert_eq!((device.address.as_str(), device.driver.as_deref()), ("0000:18:00.0", Some("mlx5_core")));
        let links = links(&root, &device.path);
        let addresses: Vec<&str> = links.iter().map(|l| l.address.as_str()).collect();
        assert_eq!(addresses, ["0000:18:00.0", "0000:16:00.0"]);
        // 8 GT/s, 8 lanes, 128 of 130 bits: 63.0 Gb/s.
        assert_eq!(links[0].bits_per_second() / 100_000_000, 630);
        assert_eq!(of_interface(&root, "lo"), None);
        assert_eq!(devices(&root).len(), 4);
    }

    #[test]
    fn rates_of_the_generations() {
        let gbits = |speed, lanes| Link { address: String::new(), speed, lanes }.bits_per_second() / 1_000_000_000;
        assert_eq!(
            [gbits(2.5, 1), gbits(5.0, 4), gbits(16.0, 16), gbits(32.0, 16), gbits(64.0, 16)],
            [2, 16, 252, 504, 968]
        );
    }

    #[test]
    fn the_second_window_is_told_from_the_upper_half_of_the_first() {
        let h200 = "0x00003f0000000000 0x00003f0003ffffff 0x000000000014220c\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x00003c0000000000 0x00003c3fffffffff 0x000000000014220c\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        assert_eq!(bar1(h200), Some(256 << 30));
        let old = "0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200\n\
                   0x00000000e0000000 0x00000000efffffff 0x000000000014220c\n\
                   0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        assert_eq!(bar1(old), Some(256 << 20));
        assert_eq!(bar1("words"), None);
        assert_eq!(bar1(""), None);
    }
}
