//! The socket receiver between two network namespaces that a veth pair joins: groups, sources, interfaces. What every
//! receiver does is in `receivers`.
#![allow(unsafe_code)]

mod netns;

use gdmedia::error::Kind;
use gdmedia::rx::socket::Options;
use gdmedia::rx::{Receiver, Socket};
use gdmedia::sdp::{Leg, SourceFilter};
use netns::Net;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 77, 1, 1));
const PORT: u16 = 5004;

trait Sockets {
    fn join(&self, interface: Option<&str>, group: IpAddr, sources: SourceFilter) -> gdmedia::error::Result<Socket>;
    /// `count` datagrams from an address of the sender's namespace, each filled with `mark`.
    fn send(&self, from: IpAddr, group: IpAddr, mark: u8, count: usize);
}

impl Sockets for Net {
    fn join(&self, interface: Option<&str>, group: IpAddr, sources: SourceFilter) -> gdmedia::error::Result<Socket> {
        let options = Options { interfaces: interface.map(str::to_owned).into_iter().collect(), ..Options::default() };
        Net::inside(&self.rx, || {
            let mut socket = Socket::open(options)?;
            socket.join(0, &Leg { destination: group, port: PORT, sources, ttl: None, mid: None })?;
            Ok(socket)
        })
    }

    fn send(&self, from: IpAddr, group: IpAddr, mark: u8, count: usize) {
        let socket = self.sender(from);
        for _ in 0..count {
            socket.send_to(&[mark; 200], (group, PORT)).unwrap();
        }
    }
}

/// The marks of all datagrams that are there; waits up to two seconds for `count` of them.
fn marks(rx: &mut Socket, count: usize) -> Vec<u8> {
    let mut got = Vec::new();
    let end = Instant::now() + Duration::from_secs(2);
    loop {
        let lease = rx.poll().unwrap();
        let empty = lease.is_empty();
        got.extend(lease.slots().iter().map(|s| rx.ring().head(s)[0]));
        rx.release(lease);
        if empty && (got.len() >= count || Instant::now() > end) {
            return got;
        }
    }
}

/// On veth a send has delivered when it returns, so whatever is to come is there.
fn marks_now(rx: &mut Socket) -> Vec<u8> {
    marks(rx, 0)
}

#[test]
fn any_source_joins_and_leaves() {
    let Some(net) = Net::new() else { return };
    assert!(!net.ip("maddress show dev rx0").contains("239.77.1.1"));
    let mut rx = net.join(Some("rx0"), GROUP, SourceFilter::Any).unwrap();
    assert!(net.ip("maddress show dev rx0").contains("239.77.1.1"));
    net.send(ONE, GROUP, 1, 3);
    net.send(TWO, GROUP, 2, 2);
    assert_eq!(marks(&mut rx, 5), [1, 1, 1, 2, 2]);
    assert_eq!(rx.counters().datagrams, 5);
    drop(rx);
    assert!(!net.ip("maddress show dev rx0").contains("239.77.1.1"), "left on drop");
}

#[test]
fn one_source_only() {
    let Some(net) = Net::new() else { return };
    let mut rx = net.join(Some("10.77.0.10"), GROUP, SourceFilter::Include(vec![ONE])).unwrap();
    // Device, group, source and the counts of sockets that include and exclude it: what an IGMPv3 report says.
    let filter = net.read("/proc/thread-self/net/mcfilter");
    assert!(filter.lines().any(|l| l.contains("rx0") && l.contains("0xef4d0101 0x0a4d0001      1      0")), "{filter}");
    net.send(TWO, GROUP, 2, 5);
    net.send(ONE, GROUP, 1, 5);
    assert_eq!(marks(&mut rx, 5), [1; 5]);
    assert_eq!(rx.counters().datagrams, 5);
    assert!(
        rx.caps().notes.iter().any(|n| n == "239.77.1.1 joined on rx0, only from 10.77.0.1"),
        "{:?}",
        rx.caps().notes
    );
    drop(rx);
    assert!(!net.read("/proc/thread-self/net/mcfilter").contains("0xef4d0101"));
}

#[test]
fn several_sources_and_excluded_ones() {
    let Some(net) = Net::new() else { return };
    let stranger = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 99));
    let mut both = net.join(Some("rx0"), GROUP, SourceFilter::Include(vec![ONE, TWO, stranger])).unwrap();
    let mut not_two = net.join(Some("rx0"), GROUP, SourceFilter::Exclude(vec![TWO])).unwrap();
    net.send(TWO, GROUP, 2, 2);
    net.send(ONE, GROUP, 1, 2);
    assert_eq!(marks(&mut both, 4), [2, 2, 1, 1]);
    assert_eq!(marks(&mut not_two, 2), [1, 1]);
}

#[test]
fn two_receivers_of_one_group_each_have_their_own_source() {
    let Some(net) = Net::new() else { return };
    let mut one = net.join(Some("rx0"), GROUP, SourceFilter::Include(vec![ONE])).unwrap();
    let mut two = net.join(Some("rx0"), GROUP, SourceFilter::Include(vec![TWO])).unwrap();
    net.send(ONE, GROUP, 1, 3);
    net.send(TWO, GROUP, 2, 3);
    assert_eq!(marks(&mut one, 3), [1; 3]);
    assert_eq!(marks(&mut two, 3), [2; 3]);
    drop(one);
    net.send(TWO, GROUP, 2, 1);
    assert_eq!(marks(&mut two, 1), [2], "one receiver's leave is not the other's");
}

#[test]
fn a_group_that_another_socket_joined_on_another_interface_stays_away() {
    let Some(net) = Net::new() else { return };
    let mut right = net.join(Some("rx0"), GROUP, SourceFilter::Any).unwrap();
    let mut wrong = net.join(Some("rx1"), GROUP, SourceFilter::Any).unwrap();
    net.send(ONE, GROUP, 1, 4);
    assert_eq!(marks(&mut right, 4), [1; 4]);
    assert_eq!(marks_now(&mut wrong), [0u8; 0]);
    net.send(IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1)), GROUP, 3, 4);
    assert_eq!(marks(&mut wrong, 4), [3; 4]);
    assert_eq!(marks_now(&mut right), [0u8; 0]);
}

#[test]
fn a_membership_survives_an_interface_that_goes_down_and_up() {
    let Some(net) = Net::new() else { return };
    let mut rx = net.join(Some("rx0"), GROUP, SourceFilter::Include(vec![ONE])).unwrap();
    net.send(ONE, GROUP, 1, 2);
    assert_eq!(marks(&mut rx, 2), [1, 1]);
    net.ip("link set rx0 down");
    net.send(ONE, GROUP, 2, 2);
    assert_eq!(marks_now(&mut rx), [0u8; 0], "no error either");
    net.ip("link set rx0 up");
    // The carrier may take a moment.
    let got = (0..50).find_map(|_| {
        net.send(ONE, GROUP, 3, 1);
        std::thread::sleep(Duration::from_millis(20));
        marks_now(&mut rx).first().copied()
    });
    assert_eq!(got, Some(3));
}

#[test]
fn ipv6_groups_and_sources() {
    let Some(net) = Net::new() else { return };
    let (one, two) = (IpAddr::V6("fd77::1".parse().unwrap()), IpAddr::V6("fd77::2".parse().unwrap()));
    let group = IpAddr::V6("ff3e::7701".parse().unwrap());
    let mut any = net.join(Some("rx0"), group, SourceFilter::Any).unwrap();
    let mut only_one = net.join(Some("fd77::10"), group, SourceFilter::Include(vec![one])).unwrap();
    let filter = net.read("/proc/thread-self/net/mcfilter6");
    assert!(filter.lines().any(|l| l.contains("fd770000000000000000000000000001")), "{filter}");
    // IPv6 needs a moment on a new interface.
    let warm = (0..100).any(|_| {
        net.send(one, group, 0, 1);
        std::thread::sleep(Duration::from_millis(20));
        !marks_now(&mut any).is_empty()
    });
    assert!(warm, "nothing came");
    marks_now(&mut only_one);
    net.send(one, group, 1, 2);
    net.send(two, group, 2, 2);
    assert_eq!(marks(&mut any, 4), [1, 1, 2, 2]);
    assert_eq!(marks(&mut only_one, 2), [1, 1]);
    drop(only_one);
    drop(any);
    assert!(!net.ip("-6 maddress show dev rx0").contains("ff3e::7701"), "left on drop");
}

#[test]
fn the_routing_table_chooses_when_no_interface_is_named() {
    let Some(net) = Net::new() else { return };
    let error = net.join(None, GROUP, SourceFilter::Any).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    let text = error.to_string();
    assert!(text.starts_with("no route leads to the multicast group 239.77.1.1"), "{text}");
    assert!(text.contains("--interface, one of: ") && text.contains("rx0 (10.77.0.10"), "{text}");
    net.ip("route add 239.0.0.0/8 dev rx0");
    let mut rx = net.join(None, GROUP, SourceFilter::Any).unwrap();
    assert!(rx.caps().notes.iter().any(|n| n.starts_with("interface rx0 chosen")), "{:?}", rx.caps().notes);
    net.send(ONE, GROUP, 1, 1);
    assert_eq!(marks(&mut rx, 1), [1]);
}

#[test]
fn joins_that_cannot_work_say_why() {
    let Some(net) = Net::new() else { return };
    let refused = |interface: &str, sources| {
        let error = net.join(Some(interface), GROUP, sources).map(drop).unwrap_err();
        assert_ne!(error.cure_text(), "");
        error.to_string()
    };
    let text = refused("nosuch0", SourceFilter::Any);
    assert!(
        text.contains("no interface nosuch0") && text.contains("rx0 (10.77.0.10") && text.contains("rx1"),
        "{text}"
    );

    net.ip("link set rx1 down");
    let text = refused("rx1", SourceFilter::Any);
    assert!(text.contains("interface rx1 is down") && text.contains("ip link set rx1 up"), "{text}");
    assert!(
        text.contains("or choose one of: lo (127.0.0.1") && !text.contains("rx1 ("),
        "only those that could do it: {text}"
    );

    net.ip("link set rx1 up");
    net.ip("address flush dev rx1");
    let text = refused("rx1", SourceFilter::Any);
    assert!(text.contains("rx1 has no IPv4 address") && text.contains("ip address add"), "{text}");

    let text = refused("rx0", SourceFilter::Include(vec!["fd77::1".parse().unwrap()]));
    assert!(text.contains("no source of the group's address family"), "{text}");

    let limit = |name: &str, value: &str| {
        Net::inside(&net.rx, || std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value).unwrap());
    };
    limit("igmp_max_msf", "1");
    let text = refused("rx0", SourceFilter::Include(vec![ONE, TWO]));
    assert!(
        text.contains("cannot join 239.77.1.1 from 10.77.0.2 on rx0") && text.contains("igmp_max_msf=64"),
        "{text}"
    );
    limit("igmp_max_memberships", "0");
    let text = refused("rx0", SourceFilter::Any);
    assert!(text.contains("cannot join 239.77.1.1 on rx0") && text.contains("igmp_max_memberships=256"), "{text}");
}

#[test]
fn somebody_without_rights_is_told_what_is_missing() {
    let Some(net) = Net::new() else { return };
    let own = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 10));
    // More than this machine allows to everybody, whatever that is.
    let allowed: usize = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let wanted = (allowed + 1).max(64 << 20);
    let (refused, notes) = Net::inside(&net.rx, || {
        // By number, so that it concerns this thread only and not the process.
        // SAFETY: takes numbers only; the thread ends soon.
        let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        assert_eq!(rc, 0, "setresuid");
        let mut socket =
            Socket::open(Options { rate: 1_000_000_000_000_000, buffer_octets: wanted, ..Options::default() }).unwrap();
        let leg = |port| Leg { destination: own, port, sources: SourceFilter::Any, ttl: None, mid: None };
        let refused = socket.join(0, &leg(80)).unwrap_err();
        socket.join(0, &leg(PORT)).unwrap();
        (refused, socket.caps().notes.join("\n"))
    });
    assert_eq!(refused.kind(), Kind::Permission);
    let text = refused.to_string();
    assert!(text.starts_with("no permission for UDP port 80") && text.contains("port from 1024 on"), "{text}");
    let cure = format!("sysctl -w net.core.rmem_max={wanted}");
    assert!(notes.contains(&cure), "the buffer is what the system allows: {notes}");
    assert!(notes.contains("warning: socket buffer"), "which is short at such a rate: {notes}");
}

#[test]
fn igmp_of_an_older_version_and_a_unicast_address_of_another_interface_are_told() {
    let Some(net) = Net::new() else { return };
    Net::inside(&net.rx, || std::fs::write("/proc/sys/net/ipv4/conf/rx0/force_igmp_version", "2").unwrap());
    let rx = net.join(Some("rx0"), GROUP, SourceFilter::Include(vec![ONE])).unwrap();
    assert!(rx.caps().notes.iter().any(|n| n.contains("rx0 speaks IGMP V2")), "{:?}", rx.caps().notes);
    let rx = net.join(Some("rx1"), IpAddr::V4(Ipv4Addr::new(10, 77, 0, 10)), SourceFilter::Any).unwrap();
    assert!(rx.caps().notes.iter().any(|n| n.contains("10.77.0.10 is no address of rx1")), "{:?}", rx.caps().notes);
}

#[test]
fn a_source_specific_group_without_source_and_a_strict_reverse_path_are_told() {
    let Some(net) = Net::new() else { return };
    Net::inside(&net.rx, || std::fs::write("/proc/sys/net/ipv4/conf/rx0/rp_filter", "1").unwrap());
    let rx = net.join(Some("rx0"), IpAddr::V4(Ipv4Addr::new(232, 1, 1, 1)), SourceFilter::Any).unwrap();
    let notes = rx.caps().notes.join("\n");
    assert!(notes.contains("232.1.1.1 is source-specific"), "{notes}");
    assert!(notes.contains("rp_filter is strict on rx0"), "{notes}");
}
