//! Ports: many in one process, one after the other and at once; what is said on a network that no kernel has.

use crate::netns::Net;
use crate::options;
use gdmedia::event::What;
use gdmedia::mem::Host;
use gdmedia::ring::Lease;
use gdmedia::rx::{Dpdk, Receiver, RxError};
use gdmedia::sdp::{Leg, SourceFilter};
use gdmedia::wire::capture::PcapWriter;
use gdmedia::wire::igmp;
use gdmedia::wire::net::Route;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 10);

fn leg(destination: impl Into<IpAddr>) -> Leg {
    Leg { destination: destination.into(), port: 5004, sources: SourceFilter::Any, ttl: None, mid: None }
}

/// Polls until so many packets have come, or nothing more does; their payloads.
fn take(receiver: &mut Dpdk<Host>, count: usize) -> Vec<Vec<u8>> {
    let (mut all, begun) = (Vec::new(), Instant::now());
    while all.len() < count && begun.elapsed() < Duration::from_secs(5) {
        let lease = receiver.poll().unwrap();
        all.extend(lease.slots().iter().map(|slot| receiver.ring().head(slot).to_vec()));
        receiver.release(lease);
    }
    all
}

fn recorded(folder: &tempfile::TempDir, count: u16) -> String {
    let path = folder.path().join("flow.pcap");
    let mut writer = PcapWriter::create(&path).unwrap();
    let route = Route::new("192.0.2.1:5000".parse().unwrap(), "239.1.1.1:5004".parse().unwrap()).unwrap();
    for n in 0..count {
        writer.datagram(u64::from(n) * 1000, &route, &n.to_be_bytes().repeat(100)).unwrap();
    }
    writer.finish().unwrap();
    path.display().to_string()
}

#[test]
fn receivers_come_and_go_in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = recorded(&folder, 600);
    let open = |name: &str| {
        let mut receiver = Dpdk::<Host>::open(options(&format!("port={name},rx_pcap={path}")), &()).unwrap();
        receiver.join(0, &leg([239, 1, 1, 1])).unwrap();
        receiver
    };
    for _ in 0..3 {
        // The same name again, and two at once.
        let (mut one, mut two) = (open("net_pcap30"), open("net_pcap"));
        for receiver in [&mut one, &mut two] {
            let all = take(receiver, 600);
            assert!(all.iter().enumerate().all(|(n, octets)| *octets == (n as u16).to_be_bytes().repeat(100)));
            assert_eq!((all.len(), receiver.counters().datagrams), (600, 600));
            // Its end is silence.
            assert!(take_nothing(receiver));
        }
        let mut remarks = Vec::new();
        one.finish(&mut remarks).unwrap();
        assert!(remarks[0].starts_with("net_pcap30: 600 packets; lost: 0"), "{remarks:?}");
    }
}

fn take_nothing(receiver: &mut Dpdk<Host>) -> bool {
    (0..100).all(|_| {
        let lease = receiver.poll().unwrap();
        let empty = lease.is_empty();
        receiver.release(lease);
        empty
    })
}

#[test]
fn buffers_have_room_in_whole_kib() {
    for (words, max, room) in
        [("", 1452, 2048), ("room=2100;", 1452, 3072), ("", 8952, 9216), ("room=1600;", 1452, 2048)]
    {
        let mut options = options(&format!("{words}port=net_null"));
        options.max_octets = max;
        let receiver = Dpdk::<Host>::open(options, &()).unwrap();
        let said = receiver.caps().notes.join("\n");
        assert!(said.contains(&format!("buffers of {room} octets")), "{words} {max}: {said}");
    }
}

#[test]
fn leases_that_are_kept_starve_the_receiver_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = recorded(&folder, 6000);
    let mut receiver = Dpdk::<Host>::open(options(&format!("port=net_pcap,rx_pcap={path}")), &()).unwrap();
    receiver.join(0, &leg([239, 1, 1, 1])).unwrap();
    let mut kept: Vec<Lease> = Vec::new();
    let begun = Instant::now();
    while receiver.counters().starved == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", receiver.counters());
        kept.push(receiver.poll().unwrap());
    }
    let count: usize = kept.iter().map(|lease| lease.slots().len()).sum();
    assert!((4096..6000).contains(&count), "{count}");
    let octets = |n: usize| (n as u16).to_be_bytes().repeat(100);
    let all = kept.iter().flat_map(Lease::slots).enumerate();
    assert!(all.into_iter().all(|(n, slot)| receiver.ring().head(slot) == octets(n)), "what is leased stays");
    kept.drain(..).for_each(|lease| receiver.release(lease));
    assert!(!take(&mut receiver, 1000).is_empty());
}

/// A receiver that has `rx0` alone, in the namespace of the receiver, where this thread is from now on.
fn alone(net: &Net, words: &str) -> Dpdk<Host> {
    Net::enter(&net.rx);
    Dpdk::<Host>::open(options(&format!("port=net_af_xdp,iface=rx0;{words}")), &()).unwrap()
}

/// Frames that come to the sender of the veth pair.
struct Watch(socket2::Socket);

impl Watch {
    fn new(net: &Net) -> Self {
        Net::inside(&net.tx, || {
            // ETH_P_ALL; the namespace's `tx0` is one of two interfaces, and the other one is silent.
            let all = socket2::Protocol::from(i32::from(0x0003u16.to_be()));
            let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, Some(all)).unwrap();
            socket.set_nonblocking(true).unwrap();
            Watch(socket)
        })
    }
    /// The next one of which `wanted` says something, while the receiver is polled.
    fn next<T>(&self, receiver: &mut Dpdk<Host>, wanted: impl Fn(&[u8]) -> Option<T>) -> T {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            let lease = receiver.poll().unwrap();
            receiver.release(lease);
            let mut octets = [std::mem::MaybeUninit::new(0u8); 2048];
            let Ok(len) = self.0.recv(&mut octets) else { continue };
            let frame: Vec<u8> = octets[..len]
                .iter()
                .map(|o| {
                    // Written by the call, or at its beginning.
                    #[allow(unsafe_code)]
                    // SAFETY: all octets are initialised above.
                    unsafe {
                        o.assume_init()
                    }
                })
                .collect();
            if let Some(found) = wanted(&frame) {
                return found;
            }
        }
        panic!("no such frame came");
    }
}

/// Kind of record and group of a version 3 report, of the octets behind the IPv4 header.
fn report(frame: &[u8], from: Ipv4Addr) -> Option<(u8, Vec<u8>)> {
    let (source, octets) = igmp::inside(frame.get(14..).filter(|_| frame.get(12..14) == Some(&[8, 0]))?)?;
    (source == from && octets[0] == 0x22).then(|| (octets[8], octets[12..16].to_vec()))
}

#[test]
fn a_port_without_a_kernel_answers_for_itself() {
    let Some(net) = Net::new() else { return };
    let watch = Watch::new(&net);
    let mut receiver = alone(&net, "");
    let said = receiver.caps().notes.join("\n");
    assert!(said.contains("ARP and IGMP as 10.77.0.10") && said.contains("rx0 gets nothing any more"), "{said}");
    assert!(!said.contains("link is down"), "drivers of interfaces say that theirs is up: {said}");
    // Unicast: the sender's kernel asks who has the address before it sends.
    receiver.join(0, &leg(OWN)).unwrap();
    let sender = net.sender("10.77.0.1".parse().unwrap());
    sender.send_to(b"unicast", SocketAddr::from((OWN, 5004))).unwrap();
    assert_eq!(take(&mut receiver, 1), [b"unicast"]);
    // A group: reported when it is joined, in answer to a query, and when it is left.
    let group = [239, 77, 1, 9];
    receiver.join(0, &leg(group)).unwrap();
    assert_eq!(watch.next(&mut receiver, |f| report(f, OWN)), (4, group.to_vec()));
    let query = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(2.into()));
    let query = Net::inside(&net.tx, || {
        let socket =
            query.and_then(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, Some(2.into())));
        let socket = socket.unwrap();
        socket.set_multicast_if_v4(&Ipv4Addr::new(10, 77, 0, 1)).unwrap();
        socket
    });
    // General, version 3, half a second: 0x1105 + 0x027d = 0x1382.
    let octets = [0x11, 5, 0xec, 0x7d, 0, 0, 0, 0, 2, 125, 0, 0];
    query.send_to(&octets, &SocketAddr::from(([224, 0, 0, 1], 0)).into()).unwrap();
    assert_eq!(watch.next(&mut receiver, |f| report(f, OWN).filter(|r| r.0 == 2)), (2, group.to_vec()));
    sender.send_to(b"multicast", SocketAddr::from((group, 5004))).unwrap();
    assert_eq!(take(&mut receiver, 1), [b"multicast"]);
    receiver.join(0, &leg(OWN)).unwrap();
    assert_eq!(watch.next(&mut receiver, |f| report(f, OWN).filter(|r| r.0 == 3)), (3, group.to_vec()));
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    assert!(remarks.iter().any(|r| r.contains("questions of the network (ARP, IGMP) answered")), "{remarks:?}");
    // IPv6 is said by nobody there.
    let error = receiver.join(0, &leg("ff3e::1".parse::<IpAddr>().unwrap())).unwrap_err();
    assert!(error.to_string().contains("IPv4 only"), "{error}");
}

#[test]
fn a_report_with_many_sources_has_room() {
    let Some(net) = Net::new() else { return };
    let watch = Watch::new(&net);
    let mut receiver = alone(&net, "");
    let all = (1..=64).map(|n| IpAddr::from([10, 77, 1, n])).collect();
    let many = Leg { sources: SourceFilter::Include(all), ..leg([239, 77, 1, 9]) };
    receiver.join(0, &many).unwrap();
    // Ethernet, IPv4 with an option, then IGMP; its count of sources and the last one.
    let wanted = |frame: &[u8]| {
        let long = frame.len() == 14 + 24 + 16 + 64 * 4 && frame[12..15] == [8, 0, 0x46];
        long.then(|| (frame[38], frame[48..50].to_vec(), frame[frame.len() - 4..].to_vec()))
    };
    assert_eq!(watch.next(&mut receiver, wanted), (0x22, vec![0, 64], vec![10, 77, 1, 64]));
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    assert!(!remarks.iter().any(|remark| remark.contains("not sent")), "{remarks:?}");
}

/// So many packets while nobody polls.
fn flood(net: &Net, to: [u8; 4], count: usize) {
    let sender = net.sender("10.77.0.1".parse().unwrap());
    for _ in 0..count {
        sender.send_to(&[7; 200], SocketAddr::from((to, 5004))).unwrap();
    }
}

#[test]
fn what_is_lost_before_the_join_is_not_the_flows() {
    let Some(net) = Net::new() else { return };
    Net::enter(&net.rx);
    let mut options = options("port=net_af_xdp,iface=rx0");
    // More than the driver gives the kernel to write to, which is what it counts.
    options.descriptors = 4096;
    let mut receiver = Dpdk::<Host>::open(options, &()).unwrap();
    let group = [239, 77, 1, 6];
    let lost = |receiver: &mut Dpdk<Host>| {
        receiver.finish(&mut Vec::new()).unwrap();
        assert_eq!(receiver.dropped(0), receiver.counters().kernel_dropped);
        receiver.dropped(0)
    };
    flood(&net, group, 6000);
    assert_eq!(lost(&mut receiver), 0);
    receiver.join(0, &leg(group)).unwrap();
    assert_eq!(lost(&mut receiver), 0);
    // The same flood again, which shows that it is more than the driver holds and that the driver says so.
    flood(&net, group, 6000);
    let before = lost(&mut receiver);
    assert!((1..6000).contains(&before), "{before}");
}

#[test]
fn losses_are_known_after_the_port_has_gone() {
    let Some(net) = Net::new() else { return };
    Net::enter(&net.rx);
    let group = [239, 77, 1, 5];
    // That of net_af_packet does not say what its ring has lost.
    let mut receiver = Dpdk::<Host>::open(options("port=net_pcap,iface=rx0"), &()).unwrap();
    receiver.join(0, &leg(group)).unwrap();
    let begun = Instant::now();
    while receiver.counters().kernel_dropped == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", receiver.counters());
        flood(&net, group, 20_000);
        receiver.finish(&mut Vec::new()).unwrap();
    }
    let before = receiver.dropped(0);
    net.ip("link delete rx0");
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(5));
        match receiver.poll() {
            Ok(lease) => receiver.release(lease),
            Err(RxError::Failed(_) | RxError::Gone(_)) => break,
            Err(RxError::End) => panic!("a network does not end"),
        }
    }
    assert!(before > 0 && receiver.dropped(0) >= before, "{before}");
    assert_eq!(receiver.dropped(0), receiver.counters().kernel_dropped);
}

#[test]
fn groups_of_a_port_with_a_kernel_are_joined_by_it() {
    let Some(net) = Net::new() else { return };
    Net::enter(&net.rx);
    let mut receiver = Dpdk::<Host>::open(options("port=net_af_packet,iface=rx0;address=10.9.9.9"), &()).unwrap();
    receiver.join(0, &leg([239, 77, 1, 8])).unwrap();
    let said = receiver.caps().notes.join("\n");
    for words in [
        "the kernel has rx0 too",
        "address= counts for nothing on rx0",
        "no rule of the card",
        "239.77.1.8 joined on rx0",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("link is down"), "{said}");
    // The kernel writes addresses back to front.
    let joined = || std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap().contains("08014DEF");
    assert!(joined());
    // The socket beside has nothing to keep, and the sender hears of no closed port.
    let sender = net.sender("10.77.0.1".parse().unwrap());
    sender.send_to(b"octets", "239.77.1.8:5004").unwrap();
    assert_eq!(take(&mut receiver, 1), [b"octets"]);
    drop(receiver);
    // Programs that other tests start have its socket, too, until they are loaded.
    let begun = Instant::now();
    while joined() {
        assert!(begun.elapsed() < Duration::from_secs(5), "it is never left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `rx0` is deleted.
fn goes(net: &Net, receiver: &mut Dpdk<Host>, name: &str) {
    receiver.join(0, &leg(OWN)).unwrap();
    assert!(take_nothing(receiver));
    net.ip("link delete rx0");
    let begun = Instant::now();
    let error = loop {
        assert!(begun.elapsed() < Duration::from_secs(5));
        match receiver.poll() {
            Ok(lease) => receiver.release(lease),
            Err(RxError::Failed(error) | RxError::Gone(error)) => break error,
            Err(RxError::End) => panic!("a network does not end"),
        }
    };
    assert!(error.to_string().contains(&format!("port {name} has gone")), "{error}");
    let mut events = Vec::new();
    receiver.take_events(&mut events);
    assert_eq!(events.iter().map(|e| e.what).collect::<Vec<_>>(), [What::InterfaceGone { leg: 0 }]);
}

/// The other one goes on, and loses nothing while it is had again.
#[test]
fn one_of_two_interfaces_comes_back_by_itself() {
    let Some(net) = Net::new() else { return };
    Net::enter(&net.rx);
    let words = "port=net_af_packet42,iface=rx0;port=net_af_packet43,iface=rx1";
    let mut receiver = Dpdk::<Host>::open(options(words), &()).unwrap();
    let two = Ipv4Addr::new(10, 78, 0, 10);
    receiver.join(0, &leg(OWN)).unwrap();
    receiver.join(1, &leg(two)).unwrap();
    let sender = net.sender("10.77.0.1".parse().unwrap());
    let (mut sent, mut came) = (0u32, Vec::new());
    // A packet on the first one for each poll, and all that comes by either until the event.
    let mut until = |receiver: &mut Dpdk<Host>, wanted: What| {
        let (mut events, begun) = (Vec::new(), Instant::now());
        while !events.iter().any(|event: &gdmedia::event::Event| event.what == wanted) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{wanted:?}: {events:?}");
            sender.send_to(&sent.to_be_bytes(), SocketAddr::from((OWN, 5004))).unwrap();
            sent += 1;
            std::thread::sleep(Duration::from_millis(2));
            let lease = receiver.poll().unwrap();
            came.extend(lease.slots().iter().map(|slot| receiver.ring().head(slot).to_vec()));
            receiver.release(lease);
            receiver.take_events(&mut events);
        }
    };
    for late in [false, true] {
        net.ip("link delete rx1");
        until(&mut receiver, What::InterfaceGone { leg: 1 });
        net.ip(&format!("link add name rx1 type veth peer name tx1 netns {}", net.tx));
        net.ip("link set rx1 up");
        if late {
            // The port is there before its interface has the leg's address.
            let (begun, mut events) = (Instant::now(), Vec::new());
            while begun.elapsed() < Duration::from_secs(3) {
                let lease = receiver.poll().unwrap();
                assert!(lease.is_empty());
                receiver.release(lease);
                receiver.take_events(&mut events);
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(events.is_empty(), "{events:?}");
        }
        net.ip("address add 10.78.0.10/24 dev rx1");
        until(&mut receiver, What::InterfaceBack { leg: 1 });
    }
    Net::inside(&net.tx, || {
        for words in ["address add 10.78.0.1/24 dev tx1", "link set tx1 up"] {
            assert!(std::process::Command::new("ip").args(words.split(' ')).status().unwrap().success());
        }
    });
    let last = net.sender("10.78.0.1".parse().unwrap());
    last.send_to(b"the second", SocketAddr::from((two, 5004))).unwrap();
    came.extend(take(&mut receiver, sent as usize + 1 - came.len()));
    let (first, second): (Vec<_>, Vec<_>) = came.into_iter().partition(|octets| octets.len() == 4);
    assert_eq!(second, [b"the second"]);
    assert!(first.iter().enumerate().all(|(n, octets)| *octets == (n as u32).to_be_bytes()), "one is missing");
    assert_eq!(first.len(), sent as usize);
}

/// Where DPDK has it alone there is no socket beside that would tell.
#[test]
fn an_interface_that_goes_is_noticed_without_a_socket_beside() {
    let Some(net) = Net::new() else { return };
    Net::enter(&net.rx);
    let mut receiver = Dpdk::<Host>::open(options("port=net_af_xdp41,iface=rx0"), &()).unwrap();
    goes(&net, &mut receiver, "net_af_xdp41");
}

#[test]
fn an_interface_that_goes_ends_the_receiver_and_its_name_is_free() {
    let Some(net) = Net::new() else { return };
    Net::enter(&net.rx);
    let mut receiver = Dpdk::<Host>::open(options("port=net_af_packet40,iface=rx0"), &()).unwrap();
    goes(&net, &mut receiver, "net_af_packet40");
    // Another one may have the name while this one is there still.
    Dpdk::<Host>::open(options("port=net_af_packet40,iface=rx1"), &()).map(drop).unwrap();
    let lease = receiver.poll().unwrap();
    receiver.release(lease);
}

#[test]
fn a_flow_in_a_vlan_has_its_tag() {
    let Some(net) = Net::new() else { return };
    let ip = |words: &str| {
        let out =
            std::process::Command::new("ip").args(["-n", &net.tx]).args(words.split_whitespace()).output().unwrap();
        assert!(out.status.success(), "ip {words}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let add = ["-n", &net.tx, "link", "add", "link", "tx0", "name", "tx0.100", "type", "vlan", "id", "100"];
    let made = std::process::Command::new("ip").args(add).output().unwrap();
    if !made.status.success() {
        return println!("skipped: this kernel has no VLANs");
    }
    ip("address add 10.79.0.1/24 dev tx0.100");
    ip("link set tx0.100 up");
    Net::enter(&net.rx);
    let group = [239, 77, 1, 7];
    // The kernel takes the tag off, and the driver puts it back.
    let mut tagged = Dpdk::<Host>::open(options("port=net_af_packet,iface=rx0;vlan=100"), &()).unwrap();
    let mut plain = Dpdk::<Host>::open(options("port=net_af_packet,iface=rx0"), &()).unwrap();
    tagged.join(0, &leg(group)).unwrap();
    plain.join(0, &leg(group)).unwrap();
    let send = |from: [u8; 4], octets: &[u8]| {
        let sender = net.sender(from.into());
        sender.send_to(octets, SocketAddr::from((group, 5004))).unwrap();
    };
    send([10, 79, 0, 1], b"in the VLAN");
    send([10, 77, 0, 1], b"beside it");
    assert_eq!(
        (take(&mut tagged, 1), take(&mut plain, 1)),
        (vec![b"in the VLAN".to_vec()], vec![b"beside it".to_vec()])
    );
    assert!(take_nothing(&mut tagged) && take_nothing(&mut plain));
}
