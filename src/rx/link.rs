//! The links of interfaces, by name: up, without a carrier, off, gone.

use super::socket::{Interface, by_route, interfaces};
use crate::health::{Link, LinkState};
use crate::sdp::Leg;
use crate::topology::{self, Root};
use crate::unix::ethtool;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interface by which a leg comes in: the one that is named, by its name or an address; else the one where the routing
/// table leads, or that has the address. None where there is none.
pub fn of_leg(leg: &Leg, named: Option<&str>) -> Option<String> {
    let all = || interfaces().into_iter();
    let name = |interface: Interface| interface.name;
    match named {
        Some(text) => {
            let address = text.parse().ok();
            let meant = |i: &Interface| i.name == text || address.is_some_and(|a| i.addresses.contains(&a));
            all().find(meant).map(name)
        }
        None if leg.destination.is_multicast() => by_route(leg.destination).map(name),
        None => all().find(|i| i.addresses.contains(&leg.destination)).map(name),
    }
}

/// The links of these interfaces now, in the namespace of the calling thread. Asks the kernel: not for the receive thread.
pub fn read(names: &[String]) -> Vec<Link> {
    let all = interfaces();
    let state = |name: &String| {
        let Some(interface) = all.iter().find(|i| i.name == *name) else { return LinkState::Gone };
        // The flags of an interface lag behind its carrier for up to a second.
        match (interface.up, carrier(interface).unwrap_or(interface.running)) {
            (false, _) => LinkState::Off,
            (true, false) => LinkState::NoCarrier,
            (true, true) => LinkState::Up,
        }
    };
    names.iter().map(|name| Link { name: name.clone(), state: state(name) }).collect()
}

/// What sysfs says of the carrier; none where it shows the interfaces of another namespace.
fn carrier(interface: &Interface) -> Option<bool> {
    let class = Path::new("/sys/class/net").join(&interface.name);
    let number = |file: &str| std::fs::read_to_string(class.join(file)).ok()?.trim().parse::<u32>().ok();
    (number("ifindex")? == interface.index).then_some(())?;
    Some(number("carrier")? == 1)
}

/// Packets that a card dropped before the kernel saw them, since it began to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CardDrops {
    /// Interface of the card: of a VLAN or a bond those beneath it.
    pub interface: String,
    /// So many.
    pub packets: u64,
}

/// Names under which drivers count packets that found no room in memory of the host, as the kernel's own
/// `rx_missed_errors` and `rx_fifo_errors` may too: mlx5, i40e, ice.
const NO_ROOM: [&str; 3] = ["rx_out_of_buffer", "port.rx_dropped", "rx_dropped.nic"];
/// Names for packets that neither of these counts: no room in the card itself since PCI Express did not take them (mlx5), no
/// descriptor of a queue (ixgbe).
const BESIDES: [&str; 2] = ["rx_discards_phy", "rx_no_dma_resources"];
/// A driver is asked for its own counters no more often: it may have thousands, and holds up others meanwhile.
const EVERY: Duration = Duration::from_secs(5);

/// What the cards of these interfaces dropped, as far as they count it; each card once. Asks drivers: not for the receive
/// thread.
pub fn drops(names: &[String]) -> Vec<CardDrops> {
    let all = interfaces();
    let index = |name: &str| all.iter().find(|i| i.name == name).map(|i| i.index);
    dropped(&Root::new("/"), names, index, of_driver)
}

/// `index`: of an interface of this namespace, `own`: what its driver counts.
fn dropped(
    root: &Root,
    names: &[String],
    index: impl Fn(&str) -> Option<u32>,
    own: impl Fn(&str) -> Vec<(String, u64)>,
) -> Vec<CardDrops> {
    let mut found: Vec<CardDrops> = Vec::new();
    for name in names {
        // sysfs may show the interfaces of another namespace.
        let here = root.number::<u32>(&format!("sys/class/net/{name}/ifindex"));
        if here.is_none() || here != index(name) {
            continue;
        }
        for card in topology::cards(root, name) {
            let number = |file: &str| root.number::<u64>(&format!("sys/class/net/{card}/statistics/{file}"));
            let (Some(missed), Some(full)) = (number("rx_missed_errors"), number("rx_fifo_errors")) else { continue };
            if found.iter().any(|other| other.interface == card) {
                continue;
            }
            let own = own(&card);
            let of = |names: &'static [&str]| own.iter().filter(|(n, _)| names.contains(&n.as_str())).map(|(_, n)| *n);
            let no_room = of(&NO_ROOM).fold(missed.max(full), u64::max);
            let packets = of(&BESIDES).fold(no_room, u64::saturating_add);
            found.push(CardDrops { interface: card, packets });
        }
    }
    found
}

/// What the driver counts of these names, as of at most [`EVERY`] ago.
fn of_driver(card: &str) -> Vec<(String, u64)> {
    type Asked = BTreeMap<String, (Instant, Vec<(String, u64)>)>;
    static ASKED: Mutex<Asked> = Mutex::new(BTreeMap::new());
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, counters)) = asked.get(card).filter(|(at, _)| at.elapsed() < EVERY) {
        return counters.clone();
    }
    let mut counters = ethtool::statistics(card);
    counters.retain(|(name, _)| NO_ROOM.contains(&name.as_str()) || BESIDES.contains(&name.as_str()));
    asked.insert(card.to_owned(), (Instant::now(), counters.clone()));
    counters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdp::SourceFilter;
    use crate::topology::root::tests::Tree;

    #[test]
    fn the_loopback_interface_is_up_and_one_that_is_not_there_has_gone() {
        let names = ["lo".to_owned(), "nosuch0".to_owned()];
        let states: Vec<_> = read(&names).into_iter().map(|link| link.state).collect();
        assert_eq!(states, [LinkState::Up, LinkState::Gone]);
        assert_eq!(drops(&names), [], "no card");
    }

    #[test]
    fn packets_that_cards_dropped() {
        let tree = Tree::new();
        let card = |name: &str, missed: &str, full: &str| {
            let at = format!("sys/class/net/{name}");
            tree.file(&format!("{at}/device/vendor"), "0x15b3").file(&format!("{at}/ifindex"), "3\n");
            tree.file(&format!("{at}/statistics/rx_missed_errors"), missed);
            tree.file(&format!("{at}/statistics/rx_fifo_errors"), full);
        };
        card("eth0", "5\n", "0\n");
        card("eth1", "0\n", "2\n");
        card("eth2", "none\n", "0\n");
        card("eth3", "0\n", "0\n");
        for lower in ["eth0", "eth1"] {
            tree.link(&format!("sys/class/net/bond0/lower_{lower}"), &format!("sys/class/net/{lower}"));
        }
        tree.file("sys/class/net/bond0/ifindex", "3\n").file("sys/class/net/veth0/ifindex", "3\n");
        let own = |card: &str| match card {
            // The kernel's 5 are among the 7; the 4 are others.
            "eth0" => vec![("rx_out_of_buffer".into(), 7), ("rx_discards_phy".into(), 4), ("rx_packets".into(), 1000)],
            _ => Vec::new(),
        };
        let of = |names: &[&str], index: Option<u32>| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let all = dropped(&tree.root(), &names, |_| index, own);
            all.into_iter().map(|drops| (drops.interface, drops.packets)).collect::<Vec<_>>()
        };
        let (eth0, eth1) = (("eth0".to_owned(), 11), ("eth1".to_owned(), 2));
        assert_eq!(of(&["bond0", "eth1"], Some(3)), [eth0, eth1]);
        assert_eq!(of(&["eth3"], Some(3)), [("eth3".to_owned(), 0)]);
        assert_eq!(of(&["eth2", "veth0", "nosuch0"], Some(3)), [], "what is not known is not 0");
        assert_eq!((of(&["eth0"], Some(4)), of(&["eth0"], None)), (vec![], vec![]), "of another namespace");
    }

    #[test]
    fn the_interface_of_a_leg() {
        let leg = |destination: &str| Leg {
            destination: destination.parse().unwrap(),
            port: 5004,
            sources: SourceFilter::Any,
            ttl: None,
            mid: None,
        };
        let of = |destination, named| of_leg(&leg(destination), named);
        assert_eq!(of("127.0.0.1", None).as_deref(), Some("lo"));
        assert_eq!(of("192.0.2.7", Some("lo")).as_deref(), Some("lo"));
        assert_eq!(of("239.1.1.1", Some("127.0.0.1")).as_deref(), Some("lo"));
        assert_eq!((of("192.0.2.7", None), of("127.0.0.1", Some("nosuch0"))), (None, None));
    }
}
