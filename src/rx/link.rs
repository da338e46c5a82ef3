//! The links of interfaces, by name: up, without a carrier, off, gone.

use super::socket::{Interface, by_route, interfaces};
use crate::health::{Link, LinkState};
use crate::sdp::Leg;
use std::path::Path;

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

/// Packets that the cards of these interfaces dropped before the kernel saw them, as far as they count them
/// (`rx_missed_errors`, and `rx_fifo_errors` of older drivers). None where no interface tells.
pub fn card_dropped(names: &[String]) -> Option<u64> {
    let all = interfaces();
    let of = |name: &String| {
        let class = Path::new("/sys/class/net").join(name);
        let number = |file: &str| std::fs::read_to_string(class.join(file)).ok()?.trim().parse::<u64>().ok();
        let interface = all.iter().find(|i| i.name == *name)?;
        (number("ifindex")? == u64::from(interface.index) && class.join("device").exists()).then_some(())?;
        Some(number("statistics/rx_missed_errors")?.max(number("statistics/rx_fifo_errors")?))
    };
    names.iter().filter_map(of).reduce(|a, b| a.saturating_add(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdp::SourceFilter;

    #[test]
    fn the_loopback_interface_is_up_and_one_that_is_not_there_has_gone() {
        let names = ["lo".to_owned(), "nosuch0".to_owned()];
        let states: Vec<_> = read(&names).into_iter().map(|link| link.state).collect();
        assert_eq!(states, [LinkState::Up, LinkState::Gone]);
        assert_eq!(card_dropped(&names), None, "no card");
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
