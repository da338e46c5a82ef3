//! The cards beneath an interface: a VLAN lies over another interface, a bond over several.

use super::{Root, pci};

/// Interfaces above each other are looked through so far: a VLAN over a bond over a card, and some more.
const DEEP: usize = 8;

/// The interfaces of cards by which an interface comes and goes, in the order of their names: itself, or those beneath it.
/// Empty for loopback, veth, and bridges without a port.
pub fn cards(root: &Root, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut level = vec![name.to_owned()];
    for _ in 0..DEEP {
        let mut next = Vec::new();
        for at in level {
            // Whatever somebody writes: no other folder than this.
            if at.is_empty() || at.contains('/') || at.starts_with('.') || found.contains(&at) {
                continue;
            }
            if root.has(&format!("sys/class/net/{at}/device")) {
                found.push(at);
                continue;
            }
            let names = root.names(&format!("sys/class/net/{at}"));
            next.extend(names.iter().filter_map(|n| n.strip_prefix("lower_")).map(str::to_owned));
        }
        level = next;
    }
    found
}

/// The NUMA node of the card of an interface; none where nobody says (`-1`, a machine with one node, a device that is no PCI
/// device).
pub fn node(root: &Root, card: &str) -> Option<u32> {
    let own = root.number(&format!("sys/class/net/{card}/device/numa_node"));
    own.or_else(|| pci::of_interface(root, card)?.node)
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Tree;
    use super::*;

    #[test]
    fn a_vlan_over_a_bond_over_two_cards() {
        let tree = Tree::new();
        tree.file("sys/class/net/eth0/device/numa_node", "0\n").file("sys/class/net/eth1/device/numa_node", "1\n");
        tree.link("sys/class/net/bond0/lower_eth1", "sys/class/net/eth1");
        tree.link("sys/class/net/bond0/lower_eth0", "sys/class/net/eth0");
        tree.link("sys/class/net/bond0.100/lower_bond0", "sys/class/net/bond0");
        tree.file("sys/class/net/veth0/mtu", "1500\n");
        let root = tree.root();
        assert_eq!(cards(&root, "bond0.100"), ["eth0", "eth1"]);
        assert_eq!(cards(&root, "eth1"), ["eth1"]);
        for none in ["veth0", "nosuch0", "", "..", "../net/eth0"] {
            assert!(cards(&root, none).is_empty(), "{none}");
        }
        assert_eq!((node(&root, "eth0"), node(&root, "eth1"), node(&root, "veth0")), (Some(0), Some(1), None));
    }

    #[test]
    fn interfaces_that_lie_above_each_other_end() {
        let tree = Tree::new();
        tree.file("sys/class/net/a/lower_b", "").file("sys/class/net/b/lower_a", "");
        assert!(cards(&tree.root(), "a").is_empty());
    }

    #[test]
    fn a_virtio_card_is_a_child_of_the_device_that_has_a_node() {
        let tree = Tree::new();
        let place = "pci0000:00/0000:00:03.0";
        let files = [("vendor", "0x1af4"), ("device", "0x1041"), ("class", "0x020000"), ("numa_node", "1")];
        tree.pci(place, &files, None);
        tree.file(&format!("sys/devices/{place}/virtio1/features"), "");
        tree.link("sys/class/net/eth0/device", &format!("sys/devices/{place}/virtio1"));
        assert_eq!(node(&tree.root(), "eth0"), Some(1));
        // The firmware names none.
        tree.file("sys/class/net/eth1/device/numa_node", "-1\n");
        assert_eq!(node(&tree.root(), "eth1"), None);
    }
}
