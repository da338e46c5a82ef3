//! The NUMA node that a flow comes in at.

use super::{Root, card, cards, pci};

/// A node, and why it is that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Near {
    /// Its number.
    pub node: u32,
    /// For people: `where eth1 lies`.
    pub why: String,
}

/// The node of the cards by which the legs come in, the first leg first; where no card says, that of the GPU. What lies
/// elsewhere is said. `gpu`: its PCI address.
///
/// # Errors
/// Nobody says; for people: `eth0 is no card`.
pub fn near(root: &Root, interfaces: &[String], gpu: Option<&str>) -> Result<Near, String> {
    let mut all: Vec<(String, u32)> = Vec::new();
    let mut silent: Vec<String> = Vec::new();
    for interface in interfaces {
        let beneath = cards(root, interface);
        if beneath.is_empty() {
            silent.push(format!("{interface} has no card"));
        }
        for one in beneath {
            let name = if one == *interface { one.clone() } else { format!("{one} (beneath {interface})") };
            match card::node(root, &one) {
                Some(node) if !all.iter().any(|(other, _)| *other == name) => all.push((name, node)),
                Some(_) => {}
                None => silent.push(format!("{name} names no node")),
            }
        }
    }
    let of_gpu = gpu.filter(|address| !address.is_empty() && !address.contains('/'));
    let of_gpu = of_gpu.map(|address| (address.to_ascii_lowercase(), pci::node(root, address)));
    let Some((first, node)) = all.first().cloned() else {
        return match of_gpu {
            Some((address, Some(node))) => {
                let why = format!("where the GPU {address} lies");
                let why = if silent.is_empty() { why } else { format!("{why}, as {}", silent.join(" and ")) };
                Ok(Near { node, why })
            }
            Some((address, None)) => {
                silent.push(format!("the GPU {address} names no node"));
                Err(silent.join(" and "))
            }
            None if silent.is_empty() => Err("no interface is known".into()),
            None => Err(silent.join(" and ")),
        };
    };
    let mut why = format!("where {first} lies");
    let elsewhere = all.iter().filter(|(_, other)| *other != node).map(|(name, other)| (name.clone(), *other));
    let gpu = of_gpu.and_then(|(address, other)| Some((format!("the GPU {address}"), other.filter(|n| *n != node)?)));
    for (name, other) in elsewhere.chain(gpu) {
        why += &format!("; {name} lies on node {other}");
    }
    Ok(Near { node, why })
}

#[cfg(test)]
mod tests {
    use super::super::root::tests::Tree;
    use super::*;

    const GPU: &str = "0000:1B:00.0";

    fn tree() -> Tree {
        let tree = Tree::new();
        for (name, node) in [("eth0", "0"), ("eth1", "1"), ("eth2", "-1")] {
            tree.file(&format!("sys/class/net/{name}/device/numa_node"), node);
        }
        tree.file("sys/class/net/veth0/mtu", "1500");
        for lower in ["eth0", "eth1"] {
            tree.link(&format!("sys/class/net/bond0/lower_{lower}"), &format!("sys/class/net/{lower}"));
        }
        tree.link("sys/class/net/media/lower_bond0", "sys/class/net/bond0");
        tree.file("sys/bus/pci/devices/0000:1b:00.0/numa_node", "0\n");
        tree.file("sys/bus/pci/devices/0000:9b:00.0/numa_node", "-1\n");
        tree
    }

    fn of(interfaces: &[&str], gpu: Option<&str>) -> Result<(u32, String), String> {
        let interfaces: Vec<String> = interfaces.iter().map(|name| (*name).to_owned()).collect();
        near(&tree().root(), &interfaces, gpu).map(|Near { node, why }| (node, why))
    }

    #[test]
    fn the_card_goes_before_the_gpu() {
        assert_eq!(of(&["eth1"], None), Ok((1, "where eth1 lies".into())));
        assert_eq!(of(&["eth0"], Some(GPU)), Ok((0, "where eth0 lies".into())));
        let wanted = "where eth1 lies; the GPU 0000:1b:00.0 lies on node 0";
        assert_eq!(of(&["eth1"], Some(GPU)), Ok((1, wanted.into())));
        assert_eq!(of(&["eth1", "eth0"], None), Ok((1, "where eth1 lies; eth0 lies on node 0".into())));
        // One that says nothing does not count.
        assert_eq!(of(&["eth2", "eth1"], None), Ok((1, "where eth1 lies".into())));
    }

    #[test]
    fn what_lies_beneath_an_interface_counts() {
        let wanted = "where eth0 (beneath media) lies; eth1 (beneath media) lies on node 1";
        assert_eq!(of(&["media"], None), Ok((0, wanted.into())));
        assert_eq!(of(&["media", "media"], None), Ok((0, wanted.into())));
    }

    #[test]
    fn where_the_card_says_nothing_the_gpu_does() {
        assert_eq!(of(&["eth2"], Some(GPU)), Ok((0, "where the GPU 0000:1b:00.0 lies, as eth2 names no node".into())));
        assert_eq!(of(&["veth0"], Some(GPU)), Ok((0, "where the GPU 0000:1b:00.0 lies, as veth0 has no card".into())));
        let wanted = "eth2 names no node and the GPU 0000:9b:00.0 names no node";
        assert_eq!(of(&["eth2"], Some("0000:9B:00.0")), Err(wanted.into()));
        assert_eq!(of(&["veth0"], None), Err("veth0 has no card".into()));
        assert_eq!(of(&[], None), Err("no interface is known".into()));
        assert_eq!(of(&[], Some("../../x")), Err("no interface is known".into()));
    }
}
