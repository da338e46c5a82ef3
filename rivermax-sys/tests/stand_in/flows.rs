use crate::common::{GROUP, SOURCE, bench, drain, manual, packet, packets, ready, wait_for};
use rivermax_sys::stand_in::{ALREADY_ATTACHED, Device, Packet};
use rivermax_sys::{EntrySize, Flow, Status, TimestampFormat};
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

const SPLIT: [EntrySize; 2] = [EntrySize::exactly(20), EntrySize::up_to(80)];

#[test]
fn the_most_specific_flow_takes_a_packet_and_marks_it() {
    let bench = manual(50);
    let mut stream = bench.params().capacity(64).sub_blocks(&SPLIT).determine().unwrap().create().unwrap();
    stream.set_completion_moderation(0, 100, 0).unwrap();
    let any_port = SocketAddrV4::new(*SOURCE.ip(), 0);
    let other_group = SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, 4), 0);
    stream.attach(&Flow::to(GROUP).tag(1)).unwrap();
    stream.attach(&Flow::to(GROUP).from(any_port).tag(2)).unwrap();
    stream.attach(&Flow::to(GROUP).from(SOURCE).tag(3)).unwrap();
    stream.attach(&Flow::to(other_group).tag(4)).unwrap();
    let from = |host, port| SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), port);
    let to = |group, port| SocketAddrV4::new(Ipv4Addr::new(239, 1, 2, group), port);
    let data = packet(1, 100);
    let mut tag = |source, destination| {
        bench.stand_in.deliver(bench.ip, &[Packet { source, destination, time: 0, data: &data }]);
        let chunk = stream.next_chunk().unwrap();
        chunk.packet(0).map(|info| info.flow_tag())
    };
    assert_eq!(tag(from(9, 20000), GROUP), Some(1));
    assert_eq!(tag(from(1, 20001), GROUP), Some(2));
    assert_eq!(tag(from(1, 20000), GROUP), Some(3));
    assert_eq!(tag(from(1, 20000), to(4, 1)), Some(4));
    assert_eq!(tag(from(1, 20000), to(3, 5005)), None);
    assert_eq!(tag(from(1, 20000), to(5, 5004)), None);
}

#[test]
fn a_flow_is_attached_once_and_detached_once() {
    let bench = manual(51);
    let mut stream = bench.whole(8);
    // The tag makes no difference to what is received.
    let error = stream.attach(&Flow::to(GROUP).tag(8)).unwrap_err();
    assert_eq!((error.call, error.status), ("rmx_input_attach_flow", ALREADY_ATTACHED));
    stream.detach(&Flow::to(GROUP).tag(7)).unwrap();
    assert_eq!(stream.detach(&Flow::to(GROUP).tag(7)).unwrap_err().status, Status::InvalidParam2);
    stream.attach(&Flow::to(GROUP).tag(8)).unwrap();
    bench.deliver(&packets([1]));
    assert_eq!(stream.next_chunk().unwrap().packet(0).map(|info| info.flow_tag()), Some(8));
}

/// Sends to groups through the loopback interface.
fn sender() -> UdpSocket {
    let socket = UdpSocket::from(Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap());
    socket2::SockRef::from(&socket).set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    socket2::SockRef::from(&socket).bind(&SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    socket
}

/// A port that nobody has now.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().unwrap().port()
}

#[test]
fn a_group_comes_through_a_socket() {
    let bench = bench(52, Device::default());
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 77, 52, 1), free_port());
    let mut stream = bench.params().capacity(64).sub_blocks(&SPLIT).determine().unwrap().create().unwrap();
    stream.set_completion_moderation(0, 100, 0).unwrap();
    stream.attach(&Flow::to(group).tag(1)).unwrap();
    let sender = sender();
    let sent = packets(0..20);
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    sent.iter().for_each(|data| assert_eq!(sender.send_to(data, group).unwrap(), 100));
    sender.send_to(&packet(99, 101), group).unwrap();
    assert_eq!(wait_for(&mut stream, 20), sent);
    sender.send_to(&sent[0], group).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let time = loop {
        let chunk = stream.next_chunk().unwrap();
        if !chunk.is_empty() || std::time::Instant::now() > end {
            break chunk.timestamp_first();
        }
    };
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    assert!((before..=after).contains(&time), "{before} {time} {after}");
    assert_eq!(bench.stand_in.counts(&stream).too_long, 1);
}

#[test]
fn a_group_comes_from_its_source_only() {
    let bench = bench(53, Device::default());
    let group = SocketAddrV4::new(Ipv4Addr::new(239, 77, 53, 1), free_port());
    let (wanted, other) = (sender(), sender());
    let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port(&wanted));
    let mut stream = bench.params().capacity(64).sub_blocks(&SPLIT).determine().unwrap().create().unwrap();
    stream.set_completion_moderation(0, 100, 0).unwrap();
    // A member for a source that does not send: nothing comes of the first two.
    let silent = Flow::to(group).from(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 9), 0));
    stream.attach(&silent).unwrap();
    // 239.77.53.1 and 127.0.0.9: the system, too, lets no other source in.
    let filters = std::fs::read_to_string("/proc/net/mcfilter").unwrap();
    assert!(filters.contains("0xef4d3501 0x7f000009"), "{filters}");
    wanted.send_to(&packet(1, 100), group).unwrap();
    stream.attach(&Flow::to(group).from(from)).unwrap();
    other.send_to(&packet(2, 100), group).unwrap();
    wanted.send_to(&packet(3, 100), group).unwrap();
    assert_eq!(wait_for(&mut stream, 1), [packet(3, 100)]);
}

#[test]
fn flows_of_one_address_share_its_packets_by_their_sources() {
    let bench = bench(54, Device::default());
    let to = SocketAddrV4::new(bench.ip, free_port());
    let (a, b) = (sender(), sender());
    let from = |socket| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port(socket));
    let mut stream = bench.params().capacity(64).sub_blocks(&SPLIT).determine().unwrap().create().unwrap();
    stream.set_completion_moderation(0, 100, 0).unwrap();
    let (flow_a, flow_b) = (Flow::to(to).from(from(&a)).tag(1), Flow::to(to).from(from(&b)).tag(2));
    stream.attach(&flow_a).unwrap();
    stream.attach(&flow_b).unwrap();
    a.send_to(&packet(1, 100), to).unwrap();
    b.send_to(&packet(2, 100), to).unwrap();
    assert_eq!(wait_for(&mut stream, 2), [packet(1, 100), packet(2, 100)]);
    stream.detach(&flow_a).unwrap();
    a.send_to(&packet(3, 100), to).unwrap();
    b.send_to(&packet(4, 100), to).unwrap();
    assert_eq!(wait_for(&mut stream, 1), [packet(4, 100)]);
}

#[test]
fn every_address_is_a_destination_and_no_port_is_refused() {
    let bench = bench(55, Device::default());
    let port = free_port();
    let mut stream = bench.params().capacity(64).sub_blocks(&SPLIT).determine().unwrap().create().unwrap();
    stream.set_completion_moderation(0, 100, 0).unwrap();
    stream.attach(&Flow::to(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))).unwrap();
    sender().send_to(&packet(1, 100), (bench.ip, port)).unwrap();
    assert_eq!(wait_for(&mut stream, 1), packets([1]));
    let error = stream.attach(&Flow::to(SocketAddrV4::new(bench.ip, 0))).unwrap_err();
    assert_eq!(error.status, Status::InvalidParam2);
}

#[test]
fn a_reader_that_sleeps_is_lapped_by_the_network() {
    let bench = bench(56, Device::default());
    let to = SocketAddrV4::new(bench.ip, free_port());
    let params = bench.params().capacity(16).sub_blocks(&SPLIT).timestamp_format(TimestampFormat::Synced);
    let mut stream = ready(params, 1000);
    stream.attach(&Flow::to(to)).unwrap();
    let sender = sender();
    packets(0..40).iter().for_each(|data| assert_eq!(sender.send_to(data, to).unwrap(), 100));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while bench.stand_in.counts(&stream).written < 40 {
        assert!(std::time::Instant::now() < end, "not all arrive");
    }
    let got = drain(&mut stream);
    assert_eq!(got.len(), 32, "two laps");
    assert_eq!(got[16..], got[..16], "the same slots, twice");
    let mut newest = got[..16].to_vec();
    newest.sort();
    assert_eq!(newest, packets(24..40));
}
