//! The socket receiver on the loopback interface: both families, merged and single datagrams, filters, drops, and what it
//! says when it cannot open. What every receiver does is in `receivers`.
#![allow(unsafe_code)]

use gdmedia::error::Kind;
use gdmedia::rx::socket::Options;
use gdmedia::rx::{Receiver, Socket};
use gdmedia::sdp::{Leg, SourceFilter};
use gdmedia::stats::Reason;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const LO: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn leg(destination: IpAddr, port: u16) -> Leg {
    Leg { destination, port, sources: SourceFilter::Any, ttl: None, mid: None }
}

/// A port that nobody used a moment ago.
fn free_port(on: IpAddr) -> u16 {
    UdpSocket::bind((on, 0)).unwrap().local_addr().unwrap().port()
}

fn receiver(on: IpAddr, options: Options) -> (Socket, u16) {
    open(on, SourceFilter::Any, options)
}

fn open(on: IpAddr, sources: SourceFilter, options: Options) -> (Socket, u16) {
    let mut socket = Socket::open(options).unwrap();
    // Another test may take the port in between.
    let mut tries = (0..10).map(|_| free_port(on));
    let port = tries.find(|p| socket.join(0, &Leg { sources: sources.clone(), ..leg(on, *p) }).is_ok());
    (socket, port.expect("a free port"))
}

/// A datagram that says its number and fills the rest with it.
fn datagram(number: u32, octets: usize) -> Vec<u8> {
    let mut d = number.to_be_bytes().to_vec();
    d.resize(octets, number as u8);
    d
}

/// Sends `packets` as one buffer that the kernel cuts every `stride` octets.
fn send_segmented(from: &UdpSocket, packets: &[Vec<u8>], stride: u16) {
    let on = i32::from(stride);
    // SAFETY: `on` is readable for its size.
    let rc = unsafe { libc::setsockopt(from.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const on).cast(), 4) };
    assert_eq!(rc, 0, "UDP_SEGMENT");
    let all = packets.concat();
    assert_eq!(from.send(&all).unwrap(), all.len());
}

/// Polls until `count` datagrams have come or two seconds have passed; checks each lease, and gives it back.
fn collect(rx: &mut Socket, count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let end = Instant::now() + Duration::from_secs(2);
    while got.len() < count && Instant::now() < end {
        let lease = rx.poll().unwrap();
        got.extend(lease.slots().iter().map(|s| octets(rx, s)));
        rx.release(lease);
    }
    got
}

fn octets(rx: &Socket, slot: &gdmedia::ring::Slot) -> Vec<u8> {
    let run = rx.ring().octets(slot, 0, slot.octets).unwrap();
    assert_eq!(rx.ring().head(slot), &run.first[..run.first_len], "a whole ring has all octets in its head plane");
    run.first[..run.first_len].to_vec()
}

fn sender(to: IpAddr, port: u16) -> UdpSocket {
    let from = UdpSocket::bind((to, 0)).unwrap();
    from.connect((to, port)).unwrap();
    from
}

#[test]
fn merged_datagrams_are_cut_at_their_stride_and_single_ones_between_them_stay_whole() {
    let (mut rx, port) = receiver(LO, Options::default());
    let (merged, single) = (sender(LO, port), sender(LO, port));
    let mut sent = Vec::new();
    for round in 0..5 {
        // 32 of a size and a short one at the end, then one alone, then an empty one.
        let mut chain: Vec<_> = (0..32).map(|n| datagram(round * 100 + n, 1260)).collect();
        chain.push(datagram(round * 100 + 32, 700));
        send_segmented(&merged, &chain, 1260);
        sent.extend(chain);
        for d in [datagram(round * 100 + 33, 1400), Vec::new()] {
            single.send(&d).unwrap();
            sent.push(d);
        }
    }
    assert_eq!(collect(&mut rx, sent.len()), sent);
    let c = rx.counters();
    assert_eq!((c.datagrams, c.merged), (5 * 35, 5 * 33), "the chains came as chains");
}

#[test]
fn without_gro_the_same_chains_come_cut() {
    let (mut rx, port) = receiver(LO, Options { gro: false, ..Options::default() });
    let chain: Vec<_> = (0..40).map(|n| datagram(n, 1260)).collect();
    send_segmented(&sender(LO, port), &chain, 1260);
    assert_eq!(collect(&mut rx, 40), chain);
    assert_eq!(rx.counters().merged, 0);
    assert!(rx.caps().notes.iter().any(|n| n.contains("switched off")), "{:?}", rx.caps().notes);
}

#[test]
fn datagrams_without_checksum_are_taken_too() {
    let (mut rx, port) = receiver(LO, Options::default());
    let from = sender(LO, port);
    let on = 1_i32;
    // SAFETY: `on` is readable for its size.
    unsafe { libc::setsockopt(from.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, (&raw const on).cast(), 4) };
    let sent: Vec<_> = (0..100).map(|n| datagram(n, 1260)).collect();
    for d in &sent {
        from.send(d).unwrap();
    }
    assert_eq!(collect(&mut rx, 100), sent);
}

#[test]
fn ipv6_works_the_same_way() {
    let on = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let (mut rx, port) = receiver(on, Options::default());
    let chain: Vec<_> = (0..32).map(|n| datagram(n, 1260)).collect();
    send_segmented(&sender(on, port), &chain, 1260);
    assert_eq!(collect(&mut rx, 32), chain);
    assert_eq!(rx.counters().merged, 32);
}

#[test]
fn arrival_is_tai_and_one_time_a_chain() {
    let (mut rx, port) = receiver(LO, Options { utc_offset_s: 37, ..Options::default() });
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let chain: Vec<_> = (0..8).map(|n| datagram(n, 1000)).collect();
    send_segmented(&sender(LO, port), &chain, 1000);
    let lease = (0..2000).map(|_| rx.poll().unwrap()).find(|l| !l.is_empty()).unwrap();
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let times: Vec<u64> = lease.slots().iter().map(|s| s.arrival.0).collect();
    assert!(times.windows(2).all(|w| w[0] == w[1]), "{times:?}");
    let utc = times[0] - 37_000_000_000;
    assert!((before..=after).contains(&utc), "{before} {utc} {after}");
    assert!(rx.now().unwrap().0 >= times[0], "the receiver reads the clock that it stamps with");
    rx.release(lease);
}

#[test]
fn datagrams_of_other_sources_are_counted_and_not_handed_over() {
    let friend = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let send = |port: u16| {
        for from in [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3)] {
            let from_socket = UdpSocket::bind((from, 0)).unwrap();
            from_socket.connect((LO, port)).unwrap();
            let chain: Vec<_> = (0..5).map(|n| datagram(u32::from(from.octets()[3]) * 10 + n, 500)).collect();
            send_segmented(&from_socket, &chain, 500);
        }
    };
    let numbers = |got: Vec<Vec<u8>>| got.iter().map(|d| d[3]).collect::<Vec<_>>();

    let (mut rx, port) = open(LO, SourceFilter::Include(vec![friend]), Options::default());
    send(port);
    let got = collect(&mut rx, 5);
    assert!(rx.poll().unwrap().is_empty());
    assert_eq!(numbers(got), [20, 21, 22, 23, 24]);
    assert_eq!((rx.counters().datagrams, rx.counters().rejected.get(Reason::Source)), (5, 5));
    drop(rx);

    let (mut rx, port) = open(LO, SourceFilter::Exclude(vec![friend]), Options::default());
    send(port);
    let got = collect(&mut rx, 5);
    assert_eq!(numbers(got), [30, 31, 32, 33, 34]);
    assert_eq!((rx.counters().datagrams, rx.counters().rejected.get(Reason::Source)), (5, 5));
}

#[test]
fn what_the_kernel_drops_is_counted_and_adds_up() {
    let (mut rx, port) = receiver(LO, Options { buffer_octets: 20_000, ..Options::default() });
    let from = sender(LO, port);
    for n in 0..2000 {
        from.send(&datagram(n, 1260)).unwrap();
    }
    let mut got = collect_now(&mut rx);
    assert!(got < 2000, "a buffer of 20 kB does not hold 2000 datagrams");
    // The kernel tells of drops with the next datagram that it does take.
    from.send(&datagram(2000, 1260)).unwrap();
    got += collect_now(&mut rx);
    let c = rx.counters();
    assert_eq!(c.kernel_dropped + got, 2001);
    assert_eq!(c.datagrams, got);
}

fn collect_now(rx: &mut Socket) -> u64 {
    let mut got = 0;
    loop {
        let lease = rx.poll().unwrap();
        if lease.is_empty() {
            return got;
        }
        got += lease.slots().len() as u64;
        rx.release(lease);
    }
}

#[test]
fn a_third_leg_is_refused() {
    let (mut rx, _) = receiver(LO, Options::default());
    rx.join(1, &leg(LO, free_port(LO))).unwrap();
    let error = rx.join(2, &leg(LO, free_port(LO))).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.to_string().contains("2 legs at most"), "{error}");
}

#[test]
fn the_start_block_says_how_it_receives() {
    let (rx, _) = receiver(LO, Options { rate: 2_250_000_000, ..Options::default() });
    let notes = rx.caps().notes.join("\n");
    for part in ["UDP_GRO", "socket buffer", " ms at 2.25 Gb/s"] {
        assert!(notes.contains(part), "{part} in {notes}");
    }
    assert!(!notes.contains("one by one"), "nothing has come yet: {notes}");
    assert!(rx.caps().live && rx.caps().buffer_octets > 0);
}

#[test]
fn the_shape_of_the_traffic_is_noticed() {
    let (mut rx, port) = receiver(LO, Options::default());
    let from = sender(LO, port);
    let chain: Vec<_> = (0..16).map(|n| datagram(n, 1000)).collect();
    for _ in 0..300 {
        send_segmented(&from, &chain, 1000);
        collect(&mut rx, 16);
    }
    assert!(rx.caps().notes.iter().any(|n| n.contains("merged, 16 a message")), "{:?}", rx.caps().notes);
}

#[test]
fn a_unicast_port_in_use_is_an_error_that_names_the_process() {
    let (_first, port) = receiver(LO, Options::default());
    let error = Socket::open(Options::default()).unwrap().join(0, &leg(LO, port)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    let text = error.to_string();
    assert!(text.starts_with(&format!("UDP port {port} on 127.0.0.1 is in use by ")), "{text}");
    assert!(text.contains(&format!("(process {})", std::process::id())), "{text}");
    assert!(text.contains("cure: stop the other receiver or choose another port"), "{text}");
}

#[test]
fn an_address_that_is_not_local_lists_those_that_are() {
    let error = Socket::open(Options::default())
        .unwrap()
        .join(0, &leg(Ipv4Addr::new(192, 0, 2, 1).into(), free_port(LO)))
        .unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("192.0.2.1 is no address of this machine") && text.contains("lo (127.0.0.1"), "{text}");
}

#[test]
fn port_zero_and_unknown_interfaces_are_refused() {
    let mut rx = Socket::open(Options::default()).unwrap();
    let error = rx.join(0, &leg(LO, 0)).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    assert!(error.to_string().contains("port 0"), "{error}");
    let mut rx = Socket::open(Options { interfaces: vec!["nosuch0".into()], ..Options::default() }).unwrap();
    for to in [LO, Ipv4Addr::new(239, 1, 1, 1).into()] {
        let text = rx.join(0, &leg(to, free_port(LO))).unwrap_err().to_string();
        assert!(text.contains("no interface nosuch0") && text.contains("choose one of: lo ("), "{text}");
    }
}

#[test]
fn multicast_on_the_loopback_interface() {
    let group = IpAddr::V4(Ipv4Addr::new(239, 255, 77, 1));
    let port = free_port(LO);
    let options = Options { interfaces: vec!["lo".into()], ..Options::default() };
    let open = || {
        let mut rx = Socket::open(options.clone()).unwrap();
        rx.join(0, &leg(group, port)).unwrap();
        rx
    };
    let (mut a, mut b) = (open(), open());
    let from = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    from.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    from.connect(&std::net::SocketAddr::new(group, port).into()).unwrap();
    let from = UdpSocket::from(from);
    let chain: Vec<_> = (0..10).map(|n| datagram(n, 1000)).collect();
    send_segmented(&from, &chain, 1000);
    assert_eq!(collect(&mut a, 10), chain);
    assert_eq!(collect(&mut b, 10), chain, "two receivers of one group both get it");
}

#[test]
fn dropped_chains_are_counted_too() {
    let (mut rx, port) = receiver(LO, Options { buffer_octets: 200_000, ..Options::default() });
    let from = sender(LO, port);
    let chain: Vec<_> = (0..32).map(|n| datagram(n, 1260)).collect();
    for _ in 0..100 {
        send_segmented(&from, &chain, 1260);
    }
    let mut got = collect_now(&mut rx);
    send_segmented(&from, &chain, 1260);
    got += collect_now(&mut rx);
    let dropped = rx.counters().kernel_dropped;
    assert_eq!(dropped + got, 101 * 32);
}
