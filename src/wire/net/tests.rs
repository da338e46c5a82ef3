use super::*;
use proptest::prelude::*;

const PAYLOAD: &[u8] = b"abcd";

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// IPv4 192.168.1.212:50000 to 239.0.1.2:50000, identification 0, no UDP checksum, payload `abcd`.
fn ipv4_by_hand() -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 168, 1, 212, 239, 0, 1, 2];
    p.extend([0xc3, 0x50, 0xc3, 0x50, 0, 12, 0, 0]);
    p.extend(PAYLOAD);
    p
}

fn ipv6_by_hand(next: u8, extensions: &[u8]) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0, 0, 12 + extensions.len() as u8, next, 64];
    p.extend("fe80::1".parse::<Ipv6Addr>().unwrap().octets());
    p.extend("ff15::2".parse::<Ipv6Addr>().unwrap().octets());
    p.extend(extensions);
    p.extend([0x13, 0x8c, 0x13, 0x8d, 0, 12, 0xaa, 0xbb]);
    p.extend(PAYLOAD);
    p
}

fn with(header: &[u8], rest: &[u8]) -> Vec<u8> {
    [header, rest].concat()
}

fn ethernet(tags: &[u8], ethertype: u16, rest: &[u8]) -> Vec<u8> {
    let mut p = vec![1, 0, 0x5e, 0, 1, 2, 2, 0, 0, 0, 0, 1];
    p.extend(tags);
    p.extend(ethertype.to_be_bytes());
    p.extend(rest);
    p
}

fn datagram(link: Link, frame: &[u8]) -> Datagram {
    match parse(link, frame) {
        Content::Udp(d) => {
            assert!(d.truncated() || frame[d.payload.clone()] == *PAYLOAD, "{frame:02x?}");
            d
        }
        other => panic!("{other:?} in {frame:02x?}"),
    }
}

#[test]
fn every_link_layer_leads_to_the_datagram() {
    let v4 = ipv4_by_hand();
    let v6 = ipv6_by_hand(17, &[]);
    let cooked = |ethertype: u16| {
        let mut h = vec![0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
        h.extend(ethertype.to_be_bytes());
        h
    };
    let cooked2 = |ethertype: u16| {
        let mut h = ethertype.to_be_bytes().to_vec();
        h.extend([0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0]);
        h
    };
    for (link, frame) in [
        (Link::Ethernet, ethernet(&[], 0x0800, &v4)),
        (Link::Ip, v4.clone()),
        (Link::Ipv4, v4.clone()),
        (Link::Null, with(&[2, 0, 0, 0], &v4)),
        (Link::Null, with(&[0, 0, 0, 2], &v4)),
        (Link::Loop, with(&[0, 0, 0, 2], &v4)),
        (Link::Cooked, with(&cooked(0x0800), &v4)),
        (Link::Cooked2, with(&cooked2(0x0800), &v4)),
    ] {
        let d = datagram(link, &frame);
        assert_eq!((d.source, d.destination), (addr("192.168.1.212:50000"), addr("239.0.1.2:50000")), "{link:?}");
        assert_eq!((d.octets, d.truncated(), d.vlans.as_slice()), (4, false, &[][..]));
    }
    for (link, frame) in [
        (Link::Ethernet, ethernet(&[], 0x86dd, &v6)),
        (Link::Ip, v6.clone()),
        (Link::Ipv6, v6.clone()),
        (Link::Null, with(&[30, 0, 0, 0], &v6)),
        (Link::Null, with(&[0, 0, 0, 28], &v6)),
        (Link::Loop, with(&[0, 0, 0, 24], &v6)),
        (Link::Cooked, with(&cooked(0x86dd), &v6)),
        (Link::Cooked2, with(&cooked2(0x86dd), &v6)),
    ] {
        let d = datagram(link, &frame);
        assert_eq!((d.source, d.destination), (addr("[fe80::1]:5004"), addr("[ff15::2]:5005")), "{link:?}");
    }
}

#[test]
fn numbers_of_link_layers() {
    for number in [0, 1, 101, 108, 113, 228, 229, 276] {
        assert_eq!(Link::from_number(number).map(Link::number), Some(number as u16));
    }
    assert_eq!((Link::from_number(12), Link::from_number(14)), (Some(Link::Ip), Some(Link::Ip)));
    assert_eq!(Link::from_number(105), None);
}

#[test]
fn tags_are_taken_off_and_remembered() {
    let d = datagram(Link::Ethernet, &ethernet(&[0x81, 0, 0xe0, 0x64], 0x0800, &ipv4_by_hand()));
    assert_eq!(d.vlans.as_slice(), [100]);
    let d = datagram(Link::Ethernet, &ethernet(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 8], 0x86dd, &ipv6_by_hand(17, &[])));
    assert_eq!(d.vlans.as_slice(), [7, 8]);
    let many = [0x81, 0, 0, 1].repeat(20);
    assert_eq!(parse(Link::Ethernet, &ethernet(&many, 0x0800, &ipv4_by_hand())), Content::Other);
}

#[test]
fn options_fragments_and_lengths_of_ipv4() {
    let mut options = ipv4_by_hand();
    options[0] = 0x46;
    options[3] = 36;
    options.splice(20..20, [0x94, 4, 0, 0]);
    datagram(Link::Ip, &options);
    for flags in [[0x20, 0], [0, 1], [0x3f, 0xff]] {
        let mut p = ipv4_by_hand();
        p[6..8].copy_from_slice(&flags);
        assert_eq!(parse(Link::Ip, &p), Content::Fragment);
    }
    // Ethernet pads short frames; the UDP length says where the payload ends.
    datagram(Link::Ip, &with(&ipv4_by_hand(), &[0; 14]));
    let change = |at: usize, value: u8| {
        let mut p = ipv4_by_hand();
        p[at] = value;
        parse(Link::Ip, &p)
    };
    assert_eq!(change(0, 0x44), Content::Malformed, "header shorter than 20");
    assert_eq!(change(0, 0x55), Content::Malformed, "version 5");
    assert_eq!(change(3, 31), Content::Malformed, "IP shorter than UDP");
    assert_eq!(change(3, 19), Content::Malformed, "IP shorter than its header");
    assert_eq!(change(25, 7), Content::Malformed, "UDP shorter than its header");
    assert_eq!(change(9, 6), Content::Other);
    assert!(matches!(change(3, 0), Content::Udp(_)), "length left to the network card");
}

#[test]
fn extension_headers_of_ipv6() {
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    datagram(Link::Ip, &ipv6_by_hand(0, &options));
    datagram(Link::Ip, &ipv6_by_hand(0, &with(&[60, 0, 1, 4, 0, 0, 0, 0], &options)));
    // An atomic fragment is whole (RFC 6946), others are not.
    datagram(Link::Ip, &ipv6_by_hand(44, &[17, 0, 0, 0, 0, 0, 0, 1]));
    assert_eq!(parse(Link::Ip, &ipv6_by_hand(44, &[17, 0, 0, 1, 0, 0, 0, 1])), Content::Fragment);
    let endless = [0, 0, 1, 4, 0, 0, 0, 0].repeat(12);
    assert_eq!(parse(Link::Ip, &ipv6_by_hand(0, &endless)), Content::Malformed);
    assert_eq!(parse(Link::Ip, &ipv6_by_hand(58, &[])), Content::Other);
}

#[test]
fn a_cut_frame_says_so() {
    let whole = ethernet(&[], 0x0800, &ipv4_by_hand());
    let d = datagram(Link::Ethernet, &whole[..44]);
    assert_eq!((d.payload.clone(), d.octets, d.truncated()), (42..44, 4, true));
    assert!(datagram(Link::Ethernet, &whole[..42]).payload.is_empty());
    for cut in 0..42 {
        assert_eq!(parse(Link::Ethernet, &whole[..cut]), Content::Malformed, "{cut}");
    }
}

#[test]
fn ptp_over_ethernet_and_others() {
    assert_eq!(parse(Link::Ethernet, &ethernet(&[], 0x88f7, &[0; 44])), Content::Ptp(14..58));
    assert_eq!(parse(Link::Ethernet, &ethernet(&[], 0x0806, &[0; 28])), Content::Other);
    assert_eq!(parse(Link::Null, &[7, 0, 0, 0]), Content::Other);
    assert_eq!(parse(Link::Ip, &[0x12]), Content::Malformed);
}

#[test]
fn frames_by_hand_with_checksums() {
    // Checksums: IP and UDP sums added up by hand from the words of RFC 1071.
    let route = Route::new(addr("192.168.1.212:50000"), addr("239.129.1.2:50000")).unwrap();
    let mut frame = Vec::new();
    route.emit(PAYLOAD, &mut frame).unwrap();
    assert_eq!(frame[..14], [0x01, 0, 0x5e, 1, 1, 2, 2, 0, 192, 168, 1, 212, 8, 0]);
    // 4588+0020+0000+4000+4011+c0a8+01d4+ef81+0102 = 278b8 -> 78ba -> ~ = 8745
    assert_eq!(frame[24..26], [0x87, 0x45]);
    // c0a8+01d4+ef81+0102+0011+000c + c350+c350+000c + 6162+6364 = 3fe8e -> fe91 -> ~ = 016e
    assert_eq!(frame[40..42], [0x01, 0x6e]);
    datagram(Link::Ethernet, &frame);
    let mut tagged = Vec::new();
    Route { vlan: Some(300), ..route.clone() }.emit(PAYLOAD, &mut tagged).unwrap();
    assert_eq!(datagram(Link::Ethernet, &tagged).vlans.as_slice(), [300]);
    assert_eq!(route.emit(&vec![0; 65508], &mut frame), None);
    assert_eq!(Route::new(addr("1.2.3.4:5"), addr("[::1]:5")), None);
    assert_eq!(mac_of("ff15::1:2".parse().unwrap()), [0x33, 0x33, 0, 1, 0, 2]);
    assert_eq!(mac_of("239.255.0.1".parse().unwrap()), [1, 0, 0x5e, 0x7f, 0, 1]);
}

/// Adds up a pseudo header and a UDP datagram the slow way: all ones when the checksum is right.
fn folded(words: &[u8]) -> u16 {
    let mut padded = words.to_vec();
    padded.resize(words.len().next_multiple_of(2), 0);
    padded.chunks(2).fold(0u32, |sum, w| {
        let sum = sum + u32::from(w[0]) * 256 + u32::from(w[1]);
        (sum & 0xffff) + (sum >> 16)
    }) as u16
}

proptest! {
    #[test]
    fn never_panics(octets in prop::collection::vec(any::<u8>(), 0..160), ethertype in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100, 0x88f7])) {
        for link in [Link::Ethernet, Link::Ip, Link::Ipv4, Link::Ipv6, Link::Null, Link::Loop, Link::Cooked, Link::Cooked2] {
            if let Content::Udp(d) = parse(link, &octets) {
                prop_assert!(octets.get(d.payload.clone()).is_some());
            }
        }
        if let Content::Udp(d) = parse(Link::Ethernet, &ethernet(&[], ethertype, &octets)) {
            prop_assert!(d.payload.end <= octets.len() + 14);
        }
    }

    #[test]
    fn reads_what_it_writes(v6: bool, ports: (u16, u16), hosts: (u32, u32), vlan in prop::option::of(0u16..4096), payload in prop::collection::vec(any::<u8>(), 0..3000)) {
        let ip = |n: u32| if v6 { IpAddr::V6(Ipv6Addr::from(u128::from(n) << 64 | 7)) } else { IpAddr::V4(Ipv4Addr::from(n)) };
        let (source, destination) = (SocketAddr::new(ip(hosts.0), ports.0), SocketAddr::new(ip(hosts.1), ports.1));
        let mut route = Route::new(source, destination).unwrap();
        route.vlan = vlan;
        let mut frame = Vec::new();
        route.emit(&payload, &mut frame).unwrap();
        let Content::Udp(d) = parse(Link::Ethernet, &frame) else { panic!() };
        prop_assert_eq!((d.source, d.destination, usize::from(d.octets)), (source, destination, payload.len()));
        prop_assert_eq!(&frame[d.payload.clone()], &payload[..]);
        prop_assert_eq!(d.vlans.as_slice(), vlan.as_slice());
        let udp = d.payload.start - 8;
        let addresses = if v6 { &frame[udp - 32..udp] } else { &frame[udp - 8..udp] };
        let pseudo = with(&with(addresses, &[0, 17]), &(payload.len() as u16 + 8).to_be_bytes());
        prop_assert_eq!(folded(&with(&pseudo, &frame[udp..])), 0xffff);
        if !v6 {
            prop_assert_eq!(folded(&frame[udp - 20..udp]), 0xffff);
        }
    }
}
