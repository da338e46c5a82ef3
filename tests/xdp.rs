//! AF_XDP on a veth pair: odd packets, memory that runs out, several programs on one interface, rights. Needs root, and
//! says "skipped" without.
#![allow(unsafe_code)]

mod veth;

use gdmedia::error::Kind;
use gdmedia::ring::Lease;
use gdmedia::rx::socket::Stamping;
use gdmedia::rx::xdp::helper::Helper;
use gdmedia::rx::xdp::{Attached, BusyPoll, Mode, Options, running};
use gdmedia::rx::{Receiver, RxError, Xdp};
use gdmedia::sdp::{Leg, SourceFilter};
use gdmedia::stats::Reason;
use gdmedia::timing::Source;
use gdmedia::wire::net::Route;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use veth::{Net, enter, inside};

const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 10));
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 77, 1, 1));
const PORT: u16 = 5004;
const PATIENCE: Duration = Duration::from_secs(5);

fn leg(destination: IpAddr, port: u16) -> Leg {
    Leg { destination, port, sources: SourceFilter::Any, ttl: None, mid: None }
}

fn options() -> Options {
    // As little memory as there can be.
    Options { interfaces: vec!["rx0".into()], packets: 1, ..Options::default() }
}

fn open(net: &Net, options: Options, leg: &Leg) -> gdmedia::error::Result<Xdp> {
    inside(&net.rx, || {
        let mut receiver = Xdp::open(options)?;
        receiver.join(0, leg)?;
        Ok(receiver)
    })
}

/// The first octet of each packet, until `count` have come and a while after.
fn marks(receiver: &mut Xdp, count: usize) -> Vec<u8> {
    let (mut got, begun) = (Vec::new(), Instant::now());
    let mut quiet = Instant::now();
    while (got.len() < count && begun.elapsed() < PATIENCE) || quiet.elapsed() < Duration::from_millis(30) {
        let lease = receiver.poll().unwrap();
        if !lease.is_empty() {
            quiet = Instant::now();
        }
        got.extend(lease.slots().iter().map(|slot| receiver.ring().head(slot)[0]));
        receiver.release(lease);
    }
    got
}

fn remarks(receiver: &mut Xdp) -> String {
    let mut all = Vec::new();
    receiver.finish(&mut all).unwrap();
    all.join("\n")
}

/// A datagram in an Ethernet frame.
fn frame(from: &str, to: SocketAddr, vlan: Option<u16>, mark: u8) -> Vec<u8> {
    let mut route = Route::new(SocketAddr::new(from.parse().unwrap(), 4000), to).unwrap();
    route.vlan = vlan;
    let mut out = Vec::new();
    route.emit(&[mark; 100], &mut out).unwrap();
    out
}

fn both_modes(test: impl Fn(Net, Mode)) {
    for mode in [Mode::Native, Mode::Generic] {
        if let Some(net) = Net::new(1, 3000) {
            test(net, mode);
        }
    }
}

#[test]
fn odd_packets_of_ipv4_are_received_passed_on_or_counted() {
    both_modes(|net, mode| {
        let other = inside(&net.rx, || UdpSocket::bind((OWN, 6000)).unwrap());
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rx = open(&net, Options { mode: Some(mode), ..options() }, &leg(GROUP, PORT)).unwrap();
        let plain = |mark| frame("10.77.0.1", (GROUP, PORT).into(), None, mark);
        let changed = |mark, at: usize, with: &[u8]| {
            let mut frame = plain(mark);
            frame[at..at + with.len()].copy_from_slice(with);
            frame
        };
        // An IPv4 header of 24 octets: total length and header length are one word more; its checksum is nobody's business.
        let mut with_options = changed(4, 14, &[0x46]);
        with_options[17] += 4;
        with_options.splice(34..34, [1, 1, 1, 0]);
        let mut cut = plain(9);
        cut.truncate(40);
        net.send_raw(&[
            plain(1),
            // UDP checksums: none, a wrong one.
            changed(2, 40, &[0, 0]),
            changed(3, 40, &[0x12, 0x34]),
            with_options,
            // A tag for priority only; another VLAN; two tags.
            frame("10.77.0.1", (GROUP, PORT).into(), Some(0), 5),
            frame("10.77.0.1", (GROUP, PORT).into(), Some(7), 9),
            {
                let mut twice = frame("10.77.0.1", (GROUP, PORT).into(), Some(0), 9);
                twice.splice(12..12, [0x88, 0xa8, 0, 5]);
                twice
            },
            // A header that is too short, another version, TCP, less than headers.
            changed(9, 14, &[0x44]),
            changed(9, 14, &[0x65]),
            changed(9, 23, &[6]),
            cut,
            // A UDP length beyond the packet.
            changed(9, 38, &[0xff, 0xff]),
            plain(6),
        ]);
        assert_eq!(marks(&mut rx, 6), [1, 2, 3, 4, 5, 6], "{mode:?}");
        let c = rx.counters();
        assert_eq!((c.datagrams, c.octets, c.kernel_dropped), (6, 600, 0), "{mode:?} {c:?}");
        assert_eq!((c.rejected.get(Reason::Length), c.rejected.total()), (1, 1), "{mode:?}");

        // Too large for a frame of AF_XDP, and fragments, which the kernel puts together.
        let sender = net.sender(ONE);
        sender.send_to(&[7; 2000], (GROUP, PORT)).unwrap();
        sender.send_to(&[8; 4000], (GROUP, PORT)).unwrap();
        sender.send_to(&[8; 4000], (GROUP, PORT)).unwrap();
        sender.send_to(&[9; 100], (OWN, 6000)).unwrap();
        assert_eq!(other.recv(&mut [0; 200]).unwrap(), 100, "what is not wanted goes on");
        assert_eq!(marks(&mut rx, 0), [0u8; 0]);
        let remarks = remarks(&mut rx);
        assert!(remarks.contains("2 datagrams of the flow went past AF_XDP"), "{mode:?} {remarks}");
        assert!(remarks.contains("1 dropped by the kernel"), "{mode:?} {remarks}");
        assert_eq!(rx.counters().kernel_dropped, 3, "{mode:?}");
    });
}

#[test]
fn odd_packets_of_ipv6_are_received_or_passed_on() {
    both_modes(|net, mode| {
        let group: IpAddr = "ff3e::7701".parse().unwrap();
        let mut rx = open(&net, Options { mode: Some(mode), ..options() }, &leg(group, PORT)).unwrap();
        let plain = |mark| frame("fd77::1", (group, PORT).into(), None, mark);
        // Hop-by-hop options: the next header is UDP, eight octets, padding.
        let mut extended = plain(9);
        extended[20] = 0;
        extended[19] += 8;
        extended.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
        let mut other_version = plain(9);
        other_version[14] = 0x40;
        net.send_raw(&[
            plain(1),
            extended,
            other_version,
            frame("fd77::1", (group, PORT).into(), Some(3), 9),
            plain(2),
        ]);
        assert_eq!(marks(&mut rx, 2), [1, 2], "{mode:?}");
        let remarks = remarks(&mut rx);
        assert!(remarks.contains("1 datagrams of the flow went past AF_XDP"), "{mode:?} {remarks}");
    });
}

#[test]
fn a_vlan_is_received_and_no_other() {
    both_modes(|net, mode| {
        let options = Options { mode: Some(mode), vlan: Some(100), ..options() };
        let mut rx = open(&net, options, &leg(GROUP, PORT)).unwrap();
        let tagged = |vlan, mark| frame("10.77.0.1", (GROUP, PORT).into(), vlan, mark);
        // The priority in the tag does not matter.
        let mut urgent = tagged(Some(100), 2);
        urgent[14] |= 0xe0;
        net.send_raw(&[tagged(Some(100), 1), tagged(None, 9), tagged(Some(101), 9), urgent]);
        assert_eq!(marks(&mut rx, 2), [1, 2], "{mode:?}");
    });
}

#[test]
fn memory_that_is_all_leased_is_told_and_what_is_dropped_is_counted() {
    both_modes(|net, mode| {
        let mut rx = open(&net, Options { mode: Some(mode), ..options() }, &leg(OWN, PORT)).unwrap();
        let sender = net.sender(ONE);
        let (mut held, mut sent, mut number) = (Vec::<Lease>::new(), 0u64, 0u32);
        let mut send = |count: u32| {
            for _ in 0..count {
                sender.send_to(&number.to_be_bytes(), (OWN, PORT)).unwrap();
                (sent, number) = (sent + 1, number + 1);
            }
            number
        };
        let drain = |rx: &mut Xdp, held: &mut Vec<Lease>| loop {
            let lease = rx.poll().unwrap();
            if lease.is_empty() {
                return rx.release(lease);
            }
            held.push(lease);
        };
        // Three times all frames: leases are kept until it is said that there are too many, and longer.
        for round in 0..3 {
            let begun = rx.counters();
            while rx.counters().starved == begun.starved {
                assert!(send(64) < 60_000, "{mode:?} round {round}: {:?}", rx.counters());
                drain(&mut rx, &mut held);
            }
            assert_eq!(rx.counters().kernel_dropped, begun.kernel_dropped, "it is said in time");
            send(600);
            drain(&mut rx, &mut held);
            let slots = held.iter().flat_map(Lease::slots);
            let got: Vec<u32> =
                slots.map(|slot| u32::from_be_bytes(rx.ring().head(slot).try_into().unwrap())).collect();
            assert_eq!(got.len(), 4096, "{mode:?} round {round}: every frame is leased");
            assert!(got.windows(2).all(|w| w[0] < w[1]), "in order, none twice");
            held.drain(..).for_each(|lease| rx.release(lease));
            // The kernel gets the frames back.
            assert_eq!(marks(&mut rx, 0), [0u8; 0]);
        }
        for _ in 0..10 {
            sender.send_to(&[5; 100], (OWN, PORT)).unwrap();
        }
        assert_eq!(marks(&mut rx, 10), [5; 10]);
        remarks(&mut rx);
        let c = rx.counters();
        assert!(c.kernel_dropped > 3 * 200, "{mode:?} {c:?}");
        assert_eq!(c.datagrams + c.kernel_dropped, sent + 10, "{mode:?} {c:?}");
    });
}

#[test]
fn packets_that_no_frame_holds_and_queues_that_are_not_there_are_refused() {
    let error = Xdp::open(Options { max_octets: 8952, ..options() }).map(drop).unwrap_err();
    assert!(error.kind() == Kind::Unavailable && error.to_string().contains("8952 octets do not fit"), "{error}");
    let Some(net) = Net::new(1, 1500) else { return };
    let error = open(&net, Options { queue: Some(1), ..options() }, &leg(GROUP, PORT)).map(drop).unwrap_err();
    assert!(error.to_string().contains("rx0 has no queue 1"), "{error}");
    let error =
        open(&net, Options { mode: Some(Mode::ZeroCopy), ..options() }, &leg(GROUP, PORT)).map(drop).unwrap_err();
    assert!(
        error.to_string().contains("cannot take queue 0 of rx0") && error.to_string().contains("zero copy"),
        "{error}"
    );
    assert_eq!(inside(&net.rx, || running("rx0")).unwrap(), None, "nothing is left of it");
}

#[test]
fn the_modes_are_tried_in_order_and_refusals_are_said() {
    let Some(net) = Net::new(1, 1500) else { return };
    let rx = open(&net, options(), &leg(GROUP, PORT)).unwrap();
    let notes = rx.caps().notes.join("\n");
    assert!(notes.contains("AF_XDP on rx0: native mode, packets are copied once (zero copy: "), "{notes}");
    let there = inside(&net.rx, || running("rx0")).unwrap().unwrap();
    let name = there.name.unwrap_or_default();
    assert!(there.ours && there.attached == Attached::Native && name.starts_with("gdmedia_xdp1"), "{name}");
    drop(rx);
    // The loopback device has no XDP of its own.
    let lo = Options { interfaces: vec!["lo".into()], ..options() };
    let rx = open(&net, lo, &leg(Ipv4Addr::LOCALHOST.into(), PORT)).unwrap();
    let notes = rx.caps().notes.join("\n");
    assert!(notes.contains("no XDP in the driver of lo: ") && notes.contains("AF_XDP on lo: generic mode"), "{notes}");
}

/// The kernel can hand stamps of cards to programs, and says which drivers do (Linux 6.8, with BTF).
fn knows_stamps() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
    let knows = (numbers.next(), numbers.next()) >= (Some(6), Some(8)) && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !knows {
        println!("skipped: this kernel does not say");
    }
    knows
}

/// veth has the call for time stamps (and none to give), loopback has not.
#[test]
fn the_start_says_whose_time_stamps_there_are_and_why() {
    let Some(net) = Net::new(1, 1500) else { return };
    if !knows_stamps() {
        return;
    }
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let poll = "arrival times are those of the poll: ";
    let else_poll = "time stamps by the card where packets have them, else arrival times are those of the poll: ";
    for (interface, to, words, says) in [
        ("rx0", OWN, "", [else_poll, "rx0 cannot stamp every packet"]),
        ("rx0", OWN, "mode=native", [else_poll, "rx0 cannot stamp every packet"]),
        ("rx0", OWN, "mode=generic", [poll, "generic mode has no metadata of packets"]),
        ("rx0", OWN, "stamps=software", [poll, "stamps of software were asked for"]),
        ("lo", local, "", [poll, "the driver of lo offers none"]),
    ] {
        let mut options = Options { interfaces: vec![interface.into()], ..options() };
        options.change(words).unwrap();
        let rx = open(&net, options, &leg(to, PORT)).unwrap();
        let line = says.concat();
        assert!(rx.caps().notes.contains(&line), "{interface} {words}: {:?}", rx.caps().notes);
        assert_eq!(rx.caps().stamps, Source::Software);
    }
}

#[test]
fn stamps_that_are_demanded_and_not_there_are_an_error_and_nothing_stays() {
    let Some(net) = Net::new(1, 1500) else { return };
    if !knows_stamps() {
        return;
    }
    let hardware = |words: &str, interface: &str| {
        let mut options = Options { interfaces: vec![interface.into()], ..options() };
        options.change("stamps=hardware").unwrap();
        options.change(words).unwrap();
        options
    };
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for (interface, to, words, why) in [
        ("rx0", OWN, "", "rx0 cannot stamp every packet"),
        ("rx0", OWN, "mode=generic", "generic mode has no metadata of packets"),
        ("lo", local, "", "the driver of lo offers none"),
    ] {
        let error = open(&net, hardware(words, interface), &leg(to, PORT)).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Unavailable);
        assert!(error.to_string().contains(&format!("no time stamps of the card: {why}")), "{error}");
        assert!(error.cure_text().contains("leave --stamps out"), "{error}");
        assert_eq!(inside(&net.rx, || running(interface)).unwrap(), None, "{interface} {words}");
    }
    // A filter that takes none is there already.
    let mut plain = options();
    plain.change("stamps=software").unwrap();
    let rx = open(&net, plain, &leg(OWN, PORT)).unwrap();
    let error = open(&net, hardware("", "rx0"), &leg(OWN, PORT + 2)).map(drop).unwrap_err();
    assert!(error.to_string().contains("the filter there, of another gdmedia, takes none"), "{error}");
    drop(rx);
}

#[test]
fn an_interface_may_go_down_and_up_and_one_that_is_removed_is_an_error() {
    both_modes(|net, mode| {
        let mut rx = open(&net, Options { mode: Some(mode), ..options() }, &leg(GROUP, PORT)).unwrap();
        let sender = net.sender(ONE);
        sender.send_to(&[1; 100], (GROUP, PORT)).unwrap();
        assert_eq!(marks(&mut rx, 1), [1]);
        inside(&net.rx, || veth::switch("rx0", false));
        sender.send_to(&[9; 100], (GROUP, PORT)).unwrap();
        assert_eq!(marks(&mut rx, 0), [0u8; 0]);
        inside(&net.rx, || veth::switch("rx0", true));
        // The carrier may take a moment.
        let begun = Instant::now();
        while {
            sender.send_to(&[2; 100], (GROUP, PORT)).unwrap();
            marks(&mut rx, 0).is_empty()
        } {
            assert!(begun.elapsed() < PATIENCE, "{mode:?}: nothing comes any more");
        }
        inside(&net.rx, || veth::remove("rx0"));
        let begun = Instant::now();
        let error = loop {
            match rx.poll() {
                Ok(lease) => rx.release(lease),
                Err(RxError::Failed(error) | RxError::Gone(error)) => break error,
                Err(RxError::End) => panic!("not an end"),
            }
            assert!(begun.elapsed() < PATIENCE, "{mode:?}: no error");
        };
        assert!(error.to_string().contains("interface rx0 has gone"), "{error}");
    });
}

#[test]
fn busy_polling_is_taken_and_packets_come() {
    both_modes(|net, mode| {
        let busy_poll = Some(BusyPoll { micros: 20, budget: 64 });
        let mut rx = open(&net, Options { mode: Some(mode), busy_poll, ..options() }, &leg(GROUP, PORT)).unwrap();
        assert!(!rx.caps().notes.iter().any(|n| n.contains("no busy polling")), "{:?}", rx.caps().notes);
        net.sender(ONE).send_to(&[1; 100], (GROUP, PORT)).unwrap();
        assert_eq!(marks(&mut rx, 1), [1], "{mode:?}");
    });
}

/// `bpf`, for what the library does not do.
fn bpf<const N: usize>(command: i32, argument: &mut [u32; N]) -> i32 {
    // SAFETY: every caller's array is what the command reads, and what its pointers lead to is borrowed there.
    unsafe { libc::syscall(libc::SYS_bpf, command, argument.as_mut_ptr(), 4 * N) as i32 }
}

#[test]
fn somebody_elses_program_is_named_and_stays() {
    let Some(net) = Net::new(1, 1500) else { return };
    // r0 = XDP_PASS; exit
    let insns = [0x0000_0002_0000_00b7_u64, 0x95];
    let halves = |p: u64| [p as u32, (p >> 32) as u32];
    let [code, code_high] = halves(insns.as_ptr() as u64);
    let [license, license_high] = halves(c"GPL".as_ptr() as u64);
    let name = |part: &[u8; 4]| u32::from_ne_bytes(*part);
    let mut load =
        [6, 2, code, code_high, license, license_high, 0, 0, 0, 0, 0, 0, name(b"some"), name(b"body"), 0, 0, 0, 37];
    let program = bpf(5, &mut load);
    assert!(program >= 0, "{}", std::io::Error::last_os_error());
    let link = inside(&net.rx, || bpf(28, &mut [program as u32, veth::index("rx0"), 37, 0]));
    assert!(link >= 0, "{}", std::io::Error::last_os_error());
    let there = inside(&net.rx, || running("rx0")).unwrap().unwrap();
    assert!(!there.ours && there.name.as_deref() == Some("somebody"), "{there:?}");
    let error = open(&net, options(), &leg(GROUP, PORT)).map(drop).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("XDP program somebody (number {}) runs on rx0", there.id)), "{text}");
    assert!(error.cure_text().contains("ip link set dev rx0 xdp off"), "{text}");
    assert_eq!(inside(&net.rx, || running("rx0")).unwrap(), Some(there));
    // SAFETY: made above.
    unsafe { (libc::close(link), libc::close(program)) };
}

#[test]
fn two_receivers_on_one_interface_share_its_filter_and_not_its_flows() {
    let Some(net) = Net::new(2, 1500) else { return };
    let of = |queue| Options { queue: Some(queue), ..options() };
    let first = open(&net, of(0), &leg(GROUP, PORT)).unwrap();
    let id = |net: &Net| inside(&net.rx, || running("rx0")).unwrap().map(|p| p.id);
    let filter = id(&net).unwrap();
    let taken = open(&net, of(0), &leg(GROUP, PORT + 2)).map(drop).unwrap_err().to_string();
    assert!(taken.contains("queue 0 of rx0 belongs to another AF_XDP socket"), "{taken}");
    let same = open(&net, of(1), &leg(GROUP, PORT)).map(drop).unwrap_err().to_string();
    assert!(same.contains("239.77.1.1:5004 is received by AF_XDP on rx0 already"), "{same}");
    let generic = Options { mode: Some(Mode::Generic), ..of(1) };
    let other_mode = open(&net, generic, &leg(GROUP, PORT + 2)).map(drop).unwrap_err().to_string();
    assert!(other_mode.contains("receives on rx0 in native mode"), "{other_mode}");

    let mut second = open(&net, of(1), &leg(GROUP, PORT + 2)).unwrap();
    assert_eq!(id(&net), Some(filter), "the same filter");
    drop(first);
    assert_eq!(id(&net), Some(filter), "the second one keeps it");
    // Senders whose packets come by queue 1 are received, others are counted.
    let (mut got, mut sent) = (0, 0);
    while got == 0 {
        net.sender(ONE).send_to(&[1; 100], (GROUP, PORT + 2)).unwrap();
        sent += 1;
        got = marks(&mut second, 0).len();
        assert!(sent < 64, "no sender came by queue 1");
    }
    remarks(&mut second);
    assert_eq!(second.counters().kernel_dropped, sent - 1);
    // A free queue again, and the flow of the first one.
    let third = open(&net, of(0), &leg(GROUP, PORT)).unwrap();
    drop((second, third));
    assert_eq!(id(&net), None, "and is gone with the last one");
}

#[test]
fn a_flow_that_comes_by_several_queues_is_received_by_all_of_them() {
    for steer in [false, true] {
        let Some(net) = Net::new(4, 1500) else { return };
        let mut rx = open(&net, Options { steer, ..options() }, &leg(GROUP, PORT)).unwrap();
        let notes = rx.caps().notes.join("\n");
        // The virtual interface has no rules.
        let refused = "the flow is led to no queue of rx0: its driver knows no n-tuple rules: ";
        assert_eq!(notes.contains(refused), steer, "{notes}");
        assert_eq!(notes.contains("all free queues are served"), steer, "{notes}");
        assert!(notes.contains("; queue 0, 1, 2, 3"), "{notes}");
        // The queue hangs on the source port: many senders come by all of them.
        let senders: Vec<UdpSocket> = (0..128).map(|_| net.sender(ONE)).collect();
        for (n, sender) in senders.iter().enumerate() {
            sender.send_to(&[n as u8; 100], (GROUP, PORT)).unwrap();
        }
        let mut got = marks(&mut rx, senders.len());
        got.sort_unstable();
        assert_eq!(got, (0..128).collect::<Vec<u8>>());
        let remarks = remarks(&mut rx);
        let carried = (0..4).filter(|queue| remarks.contains(&format!("rx0 queue {queue}: "))).count();
        assert!(carried > 1, "{remarks}");
        assert_eq!(rx.counters().kernel_dropped, 0, "{remarks}");
    }
}

#[test]
fn a_queue_that_is_named_is_served_alone_and_a_refused_rule_is_said() {
    let Some(net) = Net::new(4, 1500) else { return };
    let rx = open(&net, Options { queue: Some(2), steer: true, ..options() }, &leg(GROUP, PORT)).unwrap();
    let notes = rx.caps().notes.join("\n");
    assert!(notes.contains("knows no n-tuple rules: ") && notes.contains("; queue 2 is served"), "{notes}");
    assert!(notes.contains("packets are copied once") && !notes.contains("queue 0"), "{notes}");
    // The others are free, and are taken by who wants all.
    let second = open(&net, options(), &leg(GROUP, PORT + 2)).unwrap();
    let notes = second.caps().notes.join("\n");
    assert!(notes.contains("; queue 0, 1, 3") && notes.contains("warning: queue 2 belongs to another"), "{notes}");
}

/// Another process: this test, told by the environment to be one.
fn child(net: &Net, words: &str) -> Child {
    let namespace = format!("/proc/{}/fd/{}", std::process::id(), net.rx.as_raw_fd());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "flows_of_several_programs_come_and_go_and_nothing_stays", "--nocapture"])
        .env("GDMEDIA_TEST_CHILD", format!("{namespace} {words}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Receivers on a queue, one after the other, each with some flows one after the other.
fn be_child(words: &str) {
    let words: Vec<&str> = words.split(' ').collect();
    let number = |n: usize| words[n].parse::<u32>().unwrap();
    enter(&File::open(words[0]).unwrap());
    let (queue, receivers, flows) = (number(1), number(2), number(3));
    for _ in 0..receivers {
        let mut receiver = Xdp::open(Options { queue: Some(queue), ..options() }).unwrap();
        for n in 0..flows {
            let port = PORT + (queue * 1000 + n * 2) as u16;
            receiver.join(0, &leg(GROUP, port)).unwrap();
            let lease = receiver.poll().unwrap();
            receiver.release(lease);
        }
    }
}

/// A connection that sends and gets back all the time.
fn echo(net: &Net, stop: &AtomicBool, count: &AtomicU64) {
    let listener = inside(&net.rx, || TcpListener::bind((OWN, 7000)).unwrap());
    let mut out = inside(&net.tx, || TcpStream::connect((OWN, 7000)).unwrap());
    let (mut back, _) = listener.accept().unwrap();
    out.set_read_timeout(Some(PATIENCE)).unwrap();
    back.set_read_timeout(Some(PATIENCE)).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let n = count.fetch_add(1, Ordering::Relaxed);
        let mut octets = [0; 1000];
        out.write_all(&[n as u8; 1000]).unwrap();
        back.read_exact(&mut octets).unwrap();
        back.write_all(&octets).unwrap();
        out.read_exact(&mut octets).unwrap();
        assert_eq!(octets, [n as u8; 1000]);
    }
}

#[test]
fn flows_of_several_programs_come_and_go_and_nothing_stays() {
    if let Ok(words) = std::env::var("GDMEDIA_TEST_CHILD") {
        return be_child(&words);
    }
    let Some(net) = Net::new(2, 1500) else { return };
    let (stop, count, seen) = (AtomicBool::new(false), AtomicU64::new(0), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        s.spawn(|| echo(&net, &stop, &count));
        s.spawn(|| {
            enter(&net.rx);
            while !stop.load(Ordering::Relaxed) {
                let mut seen = seen.lock().unwrap();
                seen.extend(running("rx0").unwrap().map(|p| p.id));
                seen.dedup();
                drop(seen);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let result = std::panic::catch_unwind(|| {
            // One that works to its end, beside others that are killed at any moment.
            let mut steady = child(&net, "0 20 50");
            for n in 0..12 {
                let mut victim = child(&net, "1 1000 7");
                std::thread::sleep(Duration::from_millis(60 + 17 * n));
                victim.kill().unwrap();
                assert!(!victim.wait().unwrap().success());
            }
            assert!(steady.wait().unwrap().success(), "the steady one");
            assert!(child(&net, "1 2 50").wait().unwrap().success(), "after those that were killed");
        });
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
    assert!(count.load(Ordering::Relaxed) > 100, "the connection went on");
    let begun = Instant::now();
    while inside(&net.rx, || running("rx0")).unwrap().is_some() {
        assert!(begun.elapsed() < PATIENCE, "a program stays");
        std::thread::sleep(Duration::from_millis(5));
    }
    let seen = seen.into_inner().unwrap();
    assert!(!seen.is_empty());
    for id in seen {
        // BPF_PROG_GET_FD_BY_ID; with a program go its maps, and with these the sockets in them.
        let begun = Instant::now();
        loop {
            let fd = bpf(13, &mut [id, 0, 0]);
            if fd < 0 {
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOENT));
                break;
            }
            // SAFETY: made above.
            unsafe { libc::close(fd) };
            assert!(begun.elapsed() < PATIENCE, "program {id} stays");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    // Both queues are free.
    drop(open(&net, options(), &leg(GROUP, PORT)).unwrap());
}

/// A user without rights. The limit of locked memory counts for all that a user runs, so each test has one of its own.
fn nobody(test: u32) -> u32 {
    60_000 + 2_000 * test + std::process::id() % 2_000
}

/// Runs `work` on a thread in the receiver's namespace that is a user without rights.
fn as_nobody<T: Send>(net: &Net, work: impl FnOnce() -> T + Send) -> T {
    let user = nobody(0);
    inside(&net.rx, || {
        // By number, so that it concerns this thread only and not the process.
        // SAFETY: takes numbers only; the thread ends soon.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setresgid, user, user, user), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, user, user, user), 0);
        }
        work()
    })
}

/// Runs `work` as somebody who has these capabilities and no other: CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, and CAP_IPC_LOCK
/// for the memory.
fn with_few_rights<T: Send>(net: &Net, work: impl FnOnce() -> T + Send) -> T {
    inside(&net.rx, || {
        let user = nobody(2);
        // struct __user_cap_header_struct (version 3, this thread); effective, permitted, inheritable, of 32 bits each.
        let header = [0x2008_0522u32, 0];
        let (low, high) = (1u32 << 12 | 1 << 13 | 1 << 14, 1u32 << (39 - 32));
        let rights = [low, low, 0, high, high, 0];
        // SAFETY: numbers and readable memory; the call itself changes this thread only.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, user, user, user), 0);
            assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), rights.as_ptr()), 0);
        }
        work()
    })
}

#[test]
fn the_rights_that_are_asked_for_are_enough_for_both_forms_of_the_filter() {
    let Some(net) = Net::new(1, 1500) else { return };
    let sender = net.sender(ONE);
    for (words, name) in [
        ("mode=native,stamps=software", "gdmedia_xdp1"),
        ("mode=generic", "gdmedia_xdp1"),
        ("mode=native", "gdmedia_xdp1ts"),
    ] {
        let mut options = options();
        options.change(words).unwrap();
        let mut rx = with_few_rights(&net, || {
            let mut rx = Xdp::open(options).unwrap();
            rx.join(0, &leg(GROUP, PORT)).unwrap();
            rx
        });
        let there = inside(&net.rx, || running("rx0")).unwrap().unwrap();
        if name == "gdmedia_xdp1" || knows_stamps() {
            assert_eq!(there.name.as_deref(), Some(name), "{words} {:?}", rx.caps().notes);
        }
        sender.send_to(&[3; 100], (GROUP, PORT)).unwrap();
        assert_eq!(marks(&mut rx, 1), [3], "{words}");
    }
}

#[test]
fn without_rights_a_helper_hands_over_the_sockets() {
    let Some(net) = Net::new(1, 1500) else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.path().join("xdp");

    let alone = as_nobody(&net, || Xdp::open(options()).and_then(|mut rx| rx.join(0, &leg(GROUP, PORT)))).unwrap_err();
    assert!(alone.kind() == Kind::Permission && alone.cure_text().contains("CAP_BPF"), "{alone}");
    let with = |net: &Net, port: u16| {
        let options = Options { helper: Some(path.clone()), ..options() };
        as_nobody(net, move || {
            let mut receiver = Xdp::open(options)?;
            receiver.join(0, &leg(GROUP, port)).map(|()| receiver)
        })
    };
    let missing = with(&net, PORT).map(drop).unwrap_err();
    assert!(missing.to_string().contains("no xdp-helper at"), "{missing}");

    // Serves while `work` runs, whatever becomes of that.
    let during = |users: &[u32], work: &dyn Fn()| {
        let helper = Helper::open(&path, users).unwrap();
        let stop = AtomicBool::new(false);
        let result = std::thread::scope(|s| {
            s.spawn(|| {
                enter(&net.rx);
                helper.serve(&stop);
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            stop.store(true, Ordering::Relaxed);
            result
        });
        result.unwrap_or_else(|e| std::panic::resume_unwind(e));
    };
    during(&[], &|| {
        let refused = with(&net, PORT).map(drop).unwrap_err();
        assert_eq!(refused.kind(), Kind::Permission);
        assert!(refused.to_string().contains(&format!("does not serve user {}", nobody(0))), "{refused}");
    });
    during(&[nobody(0)], &|| {
        let options = Options { helper: Some(path.clone()), stamps: Stamping::Hardware, ..options() };
        let refused = as_nobody(&net, move || Xdp::open(options)?.join(0, &leg(GROUP, PORT))).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.to_string().contains("no time stamps of the card: "), "{refused}");
    });
    let sender = net.sender(ONE);
    let survivor = std::sync::Mutex::new(None);
    during(&[nobody(0)], &|| {
        let mut rx = with(&net, PORT).unwrap();
        assert!(
            rx.caps().notes.iter().any(|n| n.contains("sockets come from the xdp-helper")),
            "{:?}",
            rx.caps().notes
        );
        sender.send_to(&[3; 100], (GROUP, PORT)).unwrap();
        assert_eq!(marks(&mut rx, 1), [3]);
        if knows_stamps() {
            let asked = "time stamps by the card where packets have them";
            assert!(rx.caps().notes.iter().any(|n| n.starts_with(asked)), "{:?}", rx.caps().notes);
            assert!(remarks(&mut rx).contains("rx0: 1 of 1 packets without a stamp of the card"));
        }
        as_nobody(&net, || rx.join(0, &leg(GROUP, PORT + 2))).unwrap();
        sender.send_to(&[4; 100], (GROUP, PORT + 2)).unwrap();
        assert_eq!(marks(&mut rx, 1), [4]);
        *survivor.lock().unwrap() = Some(rx);
    });
    // The helper has ended, the receiver goes on; its filter goes with it.
    let mut rx = survivor.into_inner().unwrap().unwrap();
    sender.send_to(&[5; 100], (GROUP, PORT + 2)).unwrap();
    assert_eq!(marks(&mut rx, 1), [5]);
    drop(rx);
    let begun = Instant::now();
    while inside(&net.rx, || running("rx0")).unwrap().is_some() {
        assert!(begun.elapsed() < PATIENCE, "the filter stays");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The program in a namespace, as somebody.
fn program(namespace: &File, user: u32, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gdmedia"));
    command.args(args).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").stdin(Stdio::null());
    let namespace = namespace.as_raw_fd();
    // SAFETY: these calls are allowed between fork and exec, and take numbers.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
            if libc::setns(namespace, libc::CLONE_NEWNET) != 0 || libc::setgid(user) != 0 || libc::setuid(user) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command
}

#[test]
fn the_program_receives_by_itself_and_by_its_helper() {
    let Some(net) = Net::new(1, 1500) else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (sdp, helper, user) = (at("stream.sdp"), at("helper"), nobody(1));
    let to = ["send", "--to", "udp://10.77.0.10:5004", "--format", "320x180p25", "--group", "1", "--write-sdp", &sdp];
    let mut sender = program(&net.tx, 0, &to).stderr(Stdio::null()).spawn().unwrap();
    let mut helping = program(&net.rx, 0, &["xdp-helper", &helper, "--allow", &user.to_string()]).spawn().unwrap();
    let begun = Instant::now();
    while !Path::new(&sdp).exists() || !Path::new(&helper).exists() {
        assert!(begun.elapsed() < PATIENCE, "no sender, or no helper");
        std::thread::sleep(Duration::from_millis(5));
    }
    let play = |user: u32, words: &str| {
        let args =
            ["--sdp", &sdp, "--headless", "--gpu", "off", "--frames", "5", "--verify", "--json", "--backend", "xdp"];
        let output = program(&net.rx, user, &[&args[..], &["--interface", "rx0", "--xdp", words]].concat()).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let results = [play(0, "mode=native"), play(0, "mode=generic"), play(user, &format!("helper={helper}"))];
    let alone = play(user, "");
    let hardware = [play(0, "stamps=hardware"), play(user, &format!("helper={helper},stamps=hardware"))];
    let end = |child: &mut Child| {
        // SAFETY: our own child, which has not been waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        child.wait().unwrap();
    };
    end(&mut sender);
    end(&mut helping);
    for (code, said) in hardware {
        assert_eq!(code, Some(69), "{said}");
        assert!(said.contains("no time stamps of the card: ") && said.contains("leave --stamps out"), "{said}");
    }
    for (code, said) in results {
        assert_eq!(code, Some(0), "{said}");
        let lines: Vec<serde_json::Value> = said.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
        assert_eq!(lines.first().unwrap()["backend"], "xdp", "{said}");
        let summary = lines.last().unwrap();
        assert!(summary["frames"]["complete"].as_u64().unwrap() >= 5, "{said}");
        assert!(summary["receiver"]["datagrams"].as_u64().unwrap() > 0, "{said}");
    }
    let without = ["--sdp", &sdp, "--headless", "--gpu", "off", "--xdp", "queue=0"];
    let without = program(&net.rx, 0, &without).output().unwrap();
    assert_eq!(without.status.code(), Some(64), "{without:?}");
    assert_eq!(alone.0, Some(77), "{}", alone.1);
    assert!(alone.1.contains("xdp-helper"), "{}", alone.1);
}
