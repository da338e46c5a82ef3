//! `gdmedia doctor` as a process: what it finds here, and in a network namespace with each fault made on purpose.
#![allow(unsafe_code)]

mod netns;
mod schema;

use gdmedia::rx::socket::Options;
use gdmedia::rx::{Receiver, Socket};
use gdmedia::sdp::{Leg, SourceFilter};
use netns::Net;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const SDP: &str = "v=0\r\no=- 1 1 IN IP4 10.77.0.1\r\ns=camera\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\n\
    c=IN IP4 239.77.1.1/64\r\na=source-filter: incl IN IP4 239.77.1.1 10.77.0.1\r\na=rtpmap:96 raw/90000\r\n\
    a=fmtp:96 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=60000/1001; depth=10; TCS=SDR; \
    colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
    a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n";

fn output(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the program starts")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// The report, which the schema describes.
fn read(out: &Output) -> Value {
    let report: Value = serde_json::from_slice(&out.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}{}", text(&out.stdout), text(&out.stderr)));
    let printed = output(Command::new(env!("CARGO_BIN_EXE_gdmedia")).args(["doctor", "--schema"]));
    assert_eq!(printed.status.code(), Some(0));
    let faults = schema::faults(&serde_json::from_slice(&printed.stdout).expect("a schema"), &report);
    assert!(faults.is_empty(), "{faults:#?}");
    assert_eq!(out.status.code(), report["exit"].as_i64().map(|n| n as i32), "{}", text(&out.stderr));
    report
}

fn findings(report: &Value) -> impl Iterator<Item = &Value> {
    report["sections"].as_array().expect("a list").iter().flat_map(|s| s["findings"].as_array().expect("a list"))
}

fn find<'a>(report: &'a Value, id: &str) -> &'a Value {
    findings(report).find(|f| f["id"] == id).unwrap_or_else(|| panic!("no {id} in {report:#}"))
}

#[test]
fn here() {
    let report = read(&output(Command::new(env!("CARGO_BIN_EXE_gdmedia")).args(["doctor", "--json"])));
    assert_eq!(report["recommendation"]["source"], "unknown");
    for id in ["cores", "rmem-max", "sockets", "af-xdp", "verbs", "dpdk", "rivermax", "gpu-driver", "cufile"] {
        find(&report, id);
    }
    let out = output(Command::new(env!("CARGO_BIN_EXE_gdmedia")).arg("doctor"));
    let said = text(&out.stdout);
    for title in ["Machine\n", "\nInterface ", "\nWays in\n", "\nTo the GPU\n", "\nRecommendation: "] {
        assert!(said.contains(title), "{title:?} is not in\n{said}");
    }
    assert_eq!(
        output(Command::new(env!("CARGO_BIN_EXE_gdmedia")).args(["doctor", "--sdp", "/no/such.sdp"])).status.code(),
        Some(65)
    );
    let usage = output(Command::new(env!("CARGO_BIN_EXE_gdmedia")).args(["doctor", "--pcap", "x.pcap"]));
    assert_eq!(usage.status.code(), Some(64), "a capture does not say what is in it");
}

#[test]
fn standard_output_that_is_closed_or_full() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let program = || Command::new(env!("CARGO_BIN_EXE_gdmedia"));
    let status = program().args(["doctor", "--schema"]).stdout(writer).stderr(Stdio::null()).status().expect("it runs");
    assert_eq!(status.code(), Some(0));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let status = program().args(["doctor", "--schema"]).stdout(full).stderr(Stdio::null()).status().expect("it runs");
    assert_eq!(status.code(), Some(74));
}

struct Place {
    net: Net,
    folder: tempfile::TempDir,
}

impl Place {
    /// A namespace in which rx0 stands well: GRO on, interrupts deferred.
    fn new() -> Option<Self> {
        let place = Place { net: Net::new()?, folder: tempfile::tempdir().expect("a folder") };
        std::fs::write(place.sdp(), SDP).expect("written");
        place.gro(true);
        place.shell(
            "echo 200000 > /sys/class/net/rx0/gro_flush_timeout; echo 2 > /sys/class/net/rx0/napi_defer_hard_irqs",
        );
        Some(place)
    }
    /// The kernel takes a moment to notice that the other end is up.
    fn carrier(&self) {
        let up = || self.net.ip("link show dev rx0").contains("state UP");
        let waited = (0..100).any(|_| {
            up() || {
                std::thread::sleep(Duration::from_millis(50));
                false
            }
        });
        assert!(waited, "no carrier");
    }
    fn sdp(&self) -> PathBuf {
        self.folder.path().join("stream.sdp")
    }
    /// In the namespace, with its own view of sysfs.
    fn shell(&self, script: &str) -> Output {
        output(Command::new("ip").args(["netns", "exec", &self.net.rx, "sh", "-c", script]))
    }
    fn doctor(&self, options: &str) -> Output {
        let program = env!("CARGO_BIN_EXE_gdmedia");
        self.shell(&format!("exec {program} doctor --sdp {} {options}", self.sdp().display()))
    }
    fn report(&self, options: &str) -> Value {
        read(&self.doctor(&format!("--json {options}")))
    }
    /// ETHTOOL_SGRO: the tool of that name need not be there.
    fn gro(&self, on: bool) {
        Net::inside(&self.net.rx, || {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
            // SAFETY: plain C data.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            for (to, octet) in request.ifr_name.iter_mut().zip(b"rx0") {
                *to = *octet as _;
            }
            let mut value = [0x2cu32, on.into()];
            request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
            // SAFETY: the kernel reads the two numbers, which outlive the call.
            let rc = unsafe { libc::ioctl(socket.as_raw_fd(), 0x8946, &raw mut request) };
            assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
        });
    }
}

#[test]
fn each_fault_in_a_namespace_is_named() {
    let Some(place) = Place::new() else { return };
    let report = place.report("--interface rx0");
    let interface = report["sections"].as_array().expect("a list").iter().find(|s| s["about"] == "interface");
    let findings_there = interface.expect("its section")["findings"].as_array().expect("a list");
    let better: Vec<&Value> = findings_there.iter().filter(|f| f["state"] == "could-be-better").collect();
    assert!(better.is_empty(), "nothing of it is to be bettered: {better:#?}");
    assert!(findings(&report).all(|f| f["blocks"] == false), "{report:#}");
    assert_eq!(report["recommendation"]["receive_by"], "sockets");
    assert_eq!(report["streams"][0]["legs"][0]["interface"], "rx0");
    assert_eq!(find(&report, "driver")["text"], "veth, no card");
    // Older kernels do not say what the driver offers.
    let stamps = find(&report, "af-xdp")["text"].as_str().expect("a text").to_owned();
    let old = !stamps.contains("stamps of the card");
    assert!(old || stamps.contains("time stamps of the card taken where packets have them"), "{stamps}");
    assert_eq!(find(&report, "source-route")["text"], "10.77.0.1: this interface");
    assert_eq!(find(&report, "igmp")["text"], "version 3");

    let fault = |id: &str, state: &str, blocks: bool, text: &str, fix: &str| {
        let report = place.report("--interface rx0");
        let f = find(&report, id);
        assert_eq!((&f["state"], &f["blocks"]), (&state.into(), &blocks.into()), "{f:#}");
        assert!(f["text"].as_str().expect("a text").contains(text), "{f:#}");
        assert_eq!(f["fix"][0], fix, "{f:#}");
        assert_eq!(
            report["exit"],
            if blocks { 2 } else { 1 },
            "{id}: {:#?}",
            findings(&report).filter(|f| f["blocks"] == true).collect::<Vec<_>>()
        );
    };
    place.net.ip("link set rx0 mtu 1200");
    fault("mtu", "missing", true, "1200; packets as usually cut have 1248 octets", "ip link set rx0 mtu 1500");
    place.net.ip("link set rx0 mtu 1300");
    fault(
        "mtu",
        "could-be-better",
        false,
        "1300; senders may use packets of up to 1480 octets",
        "ip link set rx0 mtu 1500",
    );
    place.net.ip("link set rx0 mtu 1500");

    place.gro(false);
    fault("gro", "could-be-better", false, "off", "ethtool -K rx0 gro on");
    place.gro(true);

    place.shell("echo 0 > /sys/class/net/rx0/napi_defer_hard_irqs");
    let fix = "echo 200000 > /sys/class/net/rx0/gro_flush_timeout";
    fault("interrupt-deferral", "could-be-better", false, "napi_defer_hard_irqs 0", fix);
    place.shell("echo 2 > /sys/class/net/rx0/napi_defer_hard_irqs");

    // The sender's network moves to another interface, and strict checking drops what still comes by rx0.
    place.shell("echo 1 > /proc/sys/net/ipv4/conf/rx0/rp_filter");
    place.net.ip("route add 10.77.0.1/32 dev rx1");
    let fix = "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.rx0.rp_filter=0";
    fault("rp-filter", "missing", true, "strict: packets from 10.77.0.1 are dropped", fix);
    place.net.ip("route del 10.77.0.1/32 dev rx1");
    place.shell("echo 0 > /proc/sys/net/ipv4/conf/rx0/rp_filter");

    place.shell("echo 2 > /proc/sys/net/ipv4/conf/rx0/force_igmp_version");
    let fix = "sysctl -w net.ipv4.conf.rx0.force_igmp_version=3";
    fault("igmp", "could-be-better", false, "version 2, which cannot name sources", fix);
    place.shell("echo 0 > /proc/sys/net/ipv4/conf/rx0/force_igmp_version");

    place.shell("echo 0 > /proc/sys/net/ipv4/igmp_max_memberships");
    fault("igmp-limits", "missing", true, "0 groups a socket", "sysctl -w net.ipv4.igmp_max_memberships=20");
    place.shell("echo 20 > /proc/sys/net/ipv4/igmp_max_memberships");

    place.net.ip("link set rx0 down");
    fault("link", "missing", true, "down", "ip link set rx0 up");
    place.net.ip("link set rx0 up");
    place.carrier();
    place.net.ip("address flush dev rx0");
    fault(
        "link",
        "missing",
        true,
        "no IPv4 address, so it cannot join 239.77.1.1",
        "ip address add ADDRESS/PREFIX dev rx0",
    );
}

/// What is said about reverse paths is what the kernel does with packets.
#[test]
fn packets_are_dropped_where_the_doctor_says_so() {
    let Some(place) = Place::new() else { return };
    let (source, group) = (Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(239, 77, 1, 1));
    std::fs::write(place.sdp(), SDP.replace("10.77.0.1", "10.99.0.1")).expect("written");
    let tx = |words: &str| {
        let out = output(Command::new("ip").args(["-n", &place.net.tx]).args(words.split(' ')));
        assert!(out.status.success(), "{}", text(&out.stderr));
    };
    tx("address add 10.99.0.1/32 dev tx0");
    let routes = ["", "route add 10.99.0.1/32 dev rx1", "route replace 10.99.0.1/32 dev rx0"];
    for (n, route) in routes.into_iter().enumerate() {
        if !route.is_empty() {
            place.net.ip(route);
        }
        for mode in 0..3 {
            place.shell(&format!("echo {mode} > /proc/sys/net/ipv4/conf/rx0/rp_filter"));
            let leg = Leg {
                destination: group.into(),
                port: 5004,
                sources: SourceFilter::Include(vec![source.into()]),
                ttl: None,
                mid: None,
            };
            let options = Options { interfaces: vec!["rx0".into()], ..Options::default() };
            let mut rx = Net::inside(&place.net.rx, || {
                let mut rx = Socket::open(options).expect("open");
                rx.join(0, &leg).expect("joined");
                rx
            });
            place.net.sender(source.into()).send_to(&[1; 100], (group, 5004)).expect("sent");
            // On veth a send has delivered when it returns, but for threads of the kernel that poll.
            let arrived = (0..20).any(|_| {
                let lease = rx.poll().expect("polled");
                let got = !lease.is_empty();
                rx.release(lease);
                got || {
                    std::thread::sleep(Duration::from_millis(5));
                    false
                }
            });
            let report = place.report("--interface rx0");
            let f = find(&report, "rp-filter");
            assert_eq!(f["blocks"], !arrived, "rp_filter {mode}, route {n}: {f:#}");
            let lost = matches!((mode, n), (1, 0 | 1) | (2, 0));
            assert_eq!(arrived, !lost, "rp_filter {mode}, route {n}");
        }
    }
}

#[test]
fn no_route_to_the_group_and_then_one() {
    let Some(place) = Place::new() else { return };
    let report = place.report("");
    let f = find(&report, "interface");
    assert_eq!((&f["blocks"], &report["exit"]), (&true.into(), &2.into()), "{f:#}");
    assert_eq!(f["text"], "leg 0: no route leads to the group 239.77.1.1, and no interface is named");
    assert_eq!(f["fix"][1], "ip route add 224.0.0.0/4 dev rx0");
    let said = text(&place.doctor("").stdout);
    assert!(said.contains("  BLOCKS  interface           leg 0: no route leads to the group"), "{said}");
    assert!(said.contains("\nRecommendation: cannot be received here\n"), "{said}");
    place.net.ip("route add 224.0.0.0/4 dev rx0");
    let report = place.report("");
    assert_eq!(report["streams"][0]["legs"][0]["interface"], "rx0", "{report:#}");
    assert_eq!(find(&report, "interface")["blocks"], false);
}

#[test]
fn somebody_without_rights_and_a_small_buffer() {
    let Some(place) = Place::new() else { return };
    // The machine's own limit stays as it is: another file lies over it, for this process only.
    let small = place.folder.path().join("rmem_max");
    std::fs::write(&small, "212992\n").expect("written");
    let mut open = std::fs::metadata(place.folder.path()).expect("there").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut open, 0o755);
    std::fs::set_permissions(place.folder.path(), open).expect("set");
    // The program may lie in a folder that only root can enter.
    let copy = place.folder.path().join("gdmedia");
    std::fs::copy(env!("CARGO_BIN_EXE_gdmedia"), &copy).expect("copied");
    let over = format!("mount --bind {} /proc/sys/net/core/rmem_max && exec ", small.display());
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all";
    let out = place.shell(&format!(
        "{over} {nobody} {} doctor --json --interface rx0 --sdp {}",
        copy.display(),
        place.sdp().display()
    ));
    let report = read(&out);
    let f = find(&report, "rmem-max");
    assert_eq!(f["state"], "could-be-better", "{f:#}");
    let text = f["text"].as_str().expect("a text");
    assert!(text.starts_with("208 KiB a socket: 0.8 ms at 2.59 Gb/s; packets are lost"), "{text}");
    assert_eq!(f["fix"][0], "sysctl -w net.core.rmem_max=67108864");
    assert_eq!(report["exit"], 1);
    let techniques = report["recommendation"]["techniques"].as_array().expect("a list");
    assert!(
        techniques[0]["reason"].as_str().expect("a text").contains("holds 0.8 ms only")
            || techniques[0]["helps"] == "little"
    );
    // All that root was told is there for everybody.
    for id in ["link", "driver", "mtu", "gro", "interrupt-deferral", "rp-filter", "igmp", "source-route", "af-xdp"] {
        assert_ne!(find(&report, id)["state"], "not-known", "{id}: {report:#}");
    }
}

#[test]
fn two_legs_and_several_sdps() {
    let Some(place) = Place::new() else { return };
    let (head, medium) = SDP.split_once("m=video").expect("a medium");
    let other = medium.replace("239.77.1.1", "239.77.1.2").replace("10.77.0.1", "10.78.0.1");
    let two = format!("{head}a=group:DUP a b\r\nm=video{medium}a=mid:a\r\nm=video{other}a=mid:b\r\n");
    std::fs::write(place.sdp(), two).expect("written");
    let second = place.folder.path().join("second.sdp");
    std::fs::write(&second, SDP).expect("written");
    let report = place.report(&format!("--interface rx0 --interface rx1 --sdp {}", second.display()));
    let legs = |n: usize| {
        report["streams"][n]["legs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|l| l["interface"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!((legs(0), legs(1)), (vec!["rx0".into(), "rx1".into()], vec!["rx0".into()]));
    let speed = |name: &str| {
        let sections = report["sections"].as_array().expect("a list");
        let section = sections.iter().find(|s| s["about"] == "interface" && s["name"] == name).expect("its section");
        section["findings"].as_array().expect("a list").iter().find(|f| f["id"] == "speed").expect("its speed")["text"]
            .clone()
    };
    assert_eq!(speed("rx0"), "no port of a card; wanted: 5.17 Gb/s");
    assert_eq!(speed("rx1"), "no port of a card; wanted: 2.59 Gb/s");
    // Three legs of 258941.8 packets a second.
    assert_eq!(report["recommendation"]["cpu"]["packets_per_second"], 776_823);
}
