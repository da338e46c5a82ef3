//! Machines that nobody has at hand, written down: files, and what their kernels and drivers answer.

use super::root::tests::Tree;
use super::*;
use crate::ptp::ptp4l::tests::stand_in;
use crate::rx::socket;
use crate::rx::xdp::Attached;
use crate::sdp::Mode;
use advice::Helps;
use std::collections::BTreeMap;
use std::net::IpAddr;

#[path = "../../tests/schema/mod.rs"]
mod schema;

const VIDEO: &str = "v=0\r\no=- 1 1 IN IP4 10.0.0.9\r\ns=camera\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\n\
    c=IN IP4 239.1.1.1/64\r\na=source-filter: incl IN IP4 239.1.1.1 10.0.0.9\r\na=rtpmap:96 raw/90000\r\n\
    a=fmtp:96 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=60000/1001; depth=10; TCS=SDR; \
    colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
    a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127\r\na=mediaclk:direct=0\r\n";

const SWITCH: &str = "pci0000:15/0000:15:01.0/0000:16:00.0";

/// Answers of a machine.
#[derive(Default)]
struct Fake {
    interfaces: Vec<socket::Interface>,
    way: Option<String>,
    routes: BTreeMap<IpAddr, u32>,
    ethtool: Ethtool,
    xdp: Xdp,
    libraries: Vec<&'static str>,
    tai: Option<i64>,
    busy: f64,
    uses: Uses,
    cuda: Cuda,
    licence: Option<String>,
}

impl System for Fake {
    fn interfaces(&self) -> Vec<socket::Interface> {
        self.interfaces.clone()
    }
    fn way_to(&self, _: IpAddr) -> Option<String> {
        self.way.clone()
    }
    fn route(&self, to: IpAddr) -> Result<Option<Route>, String> {
        Ok(self.routes.get(&to).map(|index| Route { index: *index, gateway: None }))
    }
    fn ethtool(&self, _: &str) -> Ethtool {
        self.ethtool.clone()
    }
    fn xdp(&self, _: &socket::Interface) -> Xdp {
        self.xdp
    }
    fn library<'a>(&self, names: &[&'a str]) -> Option<&'a str> {
        names.iter().copied().find(|n| self.libraries.contains(n))
    }
    fn af_xdp(&self) -> bool {
        true
    }
    fn tai_offset(&self) -> Option<i64> {
        self.tai
    }
    fn busy_cores(&self) -> Option<f64> {
        Some(self.busy)
    }
    fn variable(&self, name: &str) -> Option<String> {
        self.licence.clone().filter(|_| name == "RIVERMAX_LICENSE_PATH")
    }
    fn uses(&self) -> Uses {
        self.uses
    }
    fn gpu(&self, _: Option<&str>) -> Cuda {
        self.cuda.clone()
    }
}

/// A machine and what it is asked.
struct Lab {
    tree: Tree,
    fake: Fake,
    request: Request,
}

fn interface(name: &str, index: u32, address: &str) -> socket::Interface {
    socket::Interface { name: name.into(), index, up: true, running: true, addresses: vec![address.parse().unwrap()] }
}

const CONNECTX6DX: [(&str, &str); 6] = [
    ("vendor", "0x15b3\n"),
    ("device", "0x101d\n"),
    ("class", "0x020000\n"),
    ("numa_node", "0\n"),
    ("current_link_speed", "16.0 GT/s PCIe\n"),
    ("current_link_width", "8\n"),
];
const GPU: [(&str, &str); 7] = [
    ("vendor", "0x10de\n"),
    ("device", "0x2335\n"),
    ("class", "0x030200\n"),
    ("numa_node", "0\n"),
    ("current_link_speed", "32.0 GT/s PCIe\n"),
    ("current_link_width", "16\n"),
    (
        "resource",
        "0x00003f0000000000 0x00003f0003ffffff 0x000000000014220c\n0x0 0x0 0x0\n\
         0x00003c0000000000 0x00003c3fffffffff 0x000000000014220c\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n",
    ),
];
const BRIDGE: [(&str, &str); 5] = [
    ("vendor", "0x1000\n"),
    ("device", "0xc030\n"),
    ("class", "0x060400\n"),
    ("current_link_speed", "16.0 GT/s PCIe\n"),
    ("current_link_width", "16\n"),
];

impl Lab {
    /// A server of two sockets with a 25G port, a GPU behind the same switch, and nothing to complain of.
    fn new() -> Self {
        let tree = Tree::new();
        tree.file("proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
            .file("proc/sys/net/core/rmem_max", "67108864\n")
            .file("proc/sys/net/ipv4/igmp_max_memberships", "20\n")
            .file("proc/sys/net/ipv4/igmp_max_msf", "10\n")
            .file("proc/loadavg", "0.50 0.4 0.3 1/200 999\n")
            .file("proc/self/status", "Name:\tgdmedia\nCapEff:\t0000000000000000\n")
            .file("proc/self/limits", "Limit  Soft Hard Units\nMax locked memory         unlimited  unlimited  bytes\n")
            .file(
                "proc/meminfo",
                "MemTotal: 1 kB\nHugePages_Total:    1024\nHugePages_Free:     1000\nHugepagesize:       2048 kB\n",
            )
            .file("proc/modules", "nvidia_peermem 16384 0 - Live 0x0\nmlx5_core 1 1 - Live 0x0\n")
            .file("sys/devices/system/cpu/online", "0-15\n")
            .file("sys/devices/system/cpu/isolated", "4-7\n")
            .file("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
            .file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "performance\n")
            .file("sys/devices/system/node/node0/cpulist", "0-7\n")
            .file("sys/devices/system/node/node1/cpulist", "8-15\n");
        let mut machine = Lab { tree, fake: Fake::default(), request: Request::default() };
        machine.tree.pci("pci0000:15/0000:15:01.0", &BRIDGE, Some("pcieport")).pci(SWITCH, &BRIDGE, Some("pcieport"));
        machine.tree.pci(&format!("{SWITCH}/0000:17:02.0"), &BRIDGE[..3], Some("pcieport"));
        machine.port("ens1", 7, "10.0.0.1", &format!("{SWITCH}/0000:17:02.0/0000:1a:00.0"), 25_000);
        machine.gpu(&format!("{SWITCH}/0000:17:00.0/0000:18:00.0"), "0");
        machine.fake = Fake {
            way: Some("ens1".into()),
            routes: BTreeMap::from([([10, 0, 0, 9].into(), 7)]),
            ethtool: Ethtool {
                driver: Some("mlx5_core".into()),
                firmware: "22.39.1002".into(),
                ring: Some((8192, 8192)),
                gro: Some(true),
                stamps: Some(Stamps { hardware: true, clock: Some(2) }),
            },
            xdp: Xdp { features: Some(Features { native: true, zero_copy: true, stamps: Some(false) }), foreign: None },
            libraries: vec!["libibverbs.so.1", "libnvidia-encode.so.1"],
            tai: Some(37),
            busy: 1.0,
            cuda: Cuda {
                why: "NVIDIA H200 (GPU 0, CUDA 13.0, 139 GiB), the only one".into(),
                address: Some("0000:18:00.0".into()),
                dma_buf: Some(true),
                bar1_free: Some(255 << 30),
            },
            ..machine.fake
        };
        machine.sdp(VIDEO);
        machine
    }

    fn sdp(&mut self, text: &str) -> &mut Self {
        let name = format!("{}.sdp", self.request.sdps.len());
        self.request.sdps.push((name, crate::sdp::parse(text.as_bytes(), Mode::Lenient)));
        self
    }

    /// A port of a ConnectX-6 Dx.
    fn port(&mut self, name: &str, index: u32, address: &str, path: &str, speed: u32) -> &mut Self {
        self.tree.pci(path, &CONNECTX6DX, Some("mlx5_core"));
        let class = format!("sys/class/net/{name}");
        self.tree
            .link(&format!("{class}/device"), &format!("sys/devices/{path}"))
            .file(&format!("{class}/speed"), &format!("{speed}\n"))
            .file(&format!("{class}/mtu"), "1500\n")
            .file(&format!("{class}/gro_flush_timeout"), "200000\n")
            .file(&format!("{class}/napi_defer_hard_irqs"), "2\n")
            .file("proc/sys/net/ipv4/conf/all/rp_filter", "0\n")
            .file(&format!("proc/sys/net/ipv4/conf/{name}/rp_filter"), "0\n")
            .link(&format!("sys/class/infiniband/mlx5_{index}/device"), &format!("sys/devices/{path}"));
        let mut table = self.tree.root().text("proc/net/igmp").unwrap_or_default();
        table += &format!("\n{index}\t{name}      :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n");
        self.tree.file("proc/net/igmp", &table);
        self.fake.interfaces.push(interface(name, index, address));
        self
    }

    fn gpu(&mut self, path: &str, node: &str) -> &mut Self {
        let mut files = GPU;
        files[3].1 = node;
        self.tree.pci(path, &files, Some("nvidia"));
        self.tree.file(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159  Release\n",
        );
        self
    }

    /// What is found; always in the shape that the schema promises.
    fn examine(&self) -> Report {
        let report = examine(&self.request, &self.tree.root(), &self.fake);
        let schema = serde_json::from_str(SCHEMA).unwrap();
        let faults = schema::faults(&schema, &serde_json::to_value(&report).unwrap());
        assert!(faults.is_empty(), "{faults:#?}");
        report
    }
}

fn find<'a>(report: &'a Report, id: &str) -> &'a Finding {
    let all: Vec<&Finding> = report.sections.iter().flat_map(|s| &s.findings).collect();
    all.iter().find(|f| f.id == id).unwrap_or_else(|| panic!("no {id} in {all:#?}"))
}

fn technique<'a>(report: &'a Report, name: &str) -> (Helps, &'a str) {
    let all = &report.recommendation.techniques;
    all.iter().find(|t| t.name == name).map(|t| (t.helps, t.reason.as_str())).unwrap()
}

#[test]
fn a_good_machine_is_good() {
    let machine = Lab::new();
    stand_in(&machine.tree.file("run/folder", "").root().path("run/ptp4lro"));
    let report = machine.examine();
    let bad: Vec<&Finding> = report
        .sections
        .iter()
        .filter(|s| s.about != About::WaysIn && s.about != About::ToTheGpu)
        .flat_map(|s| &s.findings)
        .filter(|f| f.state != State::Good)
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!((report.verdict, report.exit), (Verdict::Good, 0), "{report:#?}");
    assert_eq!(report.streams[0].legs[0].interface.as_deref(), Some("ens1"));
    for (id, words) in [
        ("rate", "2.59 Gb/s, 258941 packets a second, 1920x1080 progressive 59.94, YCbCr-4:2:2 10 bit"),
        ("interface", "leg 0: 239.1.1.1 port 5004 from 10.0.0.9, by ens1, as the routing table says"),
        // 128 MiB of 2304 octets for each datagram of 1452: 58 254 of them.
        ("rmem-max", "64 MiB a socket: 261.7 ms at 2.59 Gb/s"),
        ("driver", "mlx5_core, firmware 22.39.1002, PCI 0000:1a:00.0, NUMA node 0 with cores 0-7"),
        ("speed", "25 Gb/s; wanted: 2.59 Gb/s, 10 % of it"),
        ("mtu", "1500, packets have up to 1480 octets"),
        ("rx-ring", "8192 of 8192 packets: 31.6 ms of these flows"),
        ("source-route", "10.0.0.9: this interface"),
        ("time-stamps", "by the card, clock /dev/ptp2"),
        ("ptp4l", "SLAVE in domain 127, -37 ns from its master, grandmaster 08-00-11-FF-FE-22-33-44"),
        ("numa", "nodes 0 (cores 0-7), 1 (cores 8-15)"),
        ("hugepages", "1024 of 2 MiB, 1000 free"),
        ("distance", "ens1 is behind the same PCIe switch; NUMA node 0, cores 0-7"),
        ("bar1", "256 GiB, 255 GiB free"),
        ("verbs", "mlx5_7 (ens1), library there; this gdmedia was built without it"),
        ("dpdk", "ens1 can be shared with the kernel; 1024 huge pages; this gdmedia was built without it"),
        (
            "af-xdp",
            "ens1: native, without a copy, no time stamps of the card offered; this user lacks cap_net_raw, cap_net_admin, cap_bpf",
        ),
        ("rivermax", "ConnectX-6 Dx; library not installed; no licence at /opt/mellanox/rivermax/rivermax.lic"),
    ] {
        assert!(find(&report, id).text.contains(words), "{id}: {:?} has no {words:?}", find(&report, id).text);
    }
    assert_eq!(technique(&report, "kernel-bypass").0, Helps::Little);
    assert_eq!(technique(&report, "stream-overlap").0, Helps::Yes);
    let (helps, reason) = technique(&report, "gpudirect-rdma");
    assert_eq!(helps, Helps::Little);
    assert!(reason.contains("behind the same PCIe switch"), "{reason}");
    assert!(report.recommendation.summary.contains("258941 packets a second cost 11 % of a core"));
}

/// A fault, and what is found then: identifier, state, blocks, words, the first command (of `fix`, else of `see`), exit code.
type Fault = (fn(&mut Lab), &'static str, State, bool, &'static str, &'static str, u8);

#[test]
fn every_fault_has_its_name_and_its_cure() {
    use State::{CouldBeBetter, Good, Missing, NotApplicable, NotKnown};
    let faults: &[Fault] = &[
        (|b| b.fake.interfaces[0].up = false, "link", Missing, true, "down", "ip link set ens1 up", 2),
        (|b| b.fake.interfaces[0].running = false, "link", Missing, true, "no carrier", "ethtool -m ens1", 2),
        (
            |b| b.fake.interfaces[0].addresses = vec!["fe80::1".parse().unwrap()],
            "link",
            Missing,
            true,
            "no IPv4 address, so it cannot join 239.1.1.1",
            "ip address add ADDRESS/PREFIX dev ens1",
            2,
        ),
        (
            |b| b.fake.way = None,
            "interface",
            Missing,
            true,
            "no route leads to the group 239.1.1.1",
            "gdmedia doctor --sdp 0.sdp --interface ens1",
            2,
        ),
        (
            |b| b.request.interfaces = vec!["eth9".into()],
            "interface",
            Missing,
            true,
            "no interface eth9; there are: ens1",
            "gdmedia doctor --sdp 0.sdp --interface ens1",
            2,
        ),
        (
            |b| {
                b.tree.file("sys/class/net/ens1/speed", "1000");
            },
            "speed",
            Missing,
            true,
            "1 Gb/s; wanted: 2.59 Gb/s: 1.59 Gb/s too much",
            "ethtool ens1",
            2,
        ),
        (
            |b| {
                b.tree.file("sys/class/net/ens1/speed", "-1");
            },
            "speed",
            NotKnown,
            false,
            "the driver does not tell",
            "ethtool ens1",
            0,
        ),
        (
            |b| {
                b.tree.file("sys/class/net/ens1/mtu", "1200");
            },
            "mtu",
            Missing,
            true,
            "1200; packets as usually cut have 1248 octets and are dropped",
            "ip link set ens1 mtu 1500",
            2,
        ),
        (
            |b| {
                b.tree.file("sys/class/net/ens1/mtu", "1400");
            },
            "mtu",
            CouldBeBetter,
            false,
            "up to 1480 octets",
            "ip link set ens1 mtu 1500",
            1,
        ),
        (
            |b| b.fake.ethtool.ring = Some((1024, 8192)),
            "rx-ring",
            CouldBeBetter,
            false,
            "4.0 ms",
            "ethtool -G ens1 rx 8192",
            1,
        ),
        (|b| b.fake.ethtool.ring = Some((2048, 8192)), "rx-ring", Good, false, "7.9 ms", "", 0),
        (|b| b.fake.ethtool.gro = Some(false), "gro", CouldBeBetter, false, "off", "ethtool -K ens1 gro on", 1),
        (
            |b| {
                b.tree.file("sys/class/net/ens1/gro_flush_timeout", "0");
            },
            "interrupt-deferral",
            CouldBeBetter,
            false,
            "gro_flush_timeout 0 ns, napi_defer_hard_irqs 2",
            "echo 200000 > /sys/class/net/ens1/gro_flush_timeout",
            1,
        ),
        // Strict, and the route back leads elsewhere, or nowhere.
        (
            |b| {
                b.tree.file("proc/sys/net/ipv4/conf/ens1/rp_filter", "1");
                b.fake.routes.clear();
            },
            "rp-filter",
            Missing,
            true,
            "strict: packets from 10.0.0.9 are dropped",
            "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.ens1.rp_filter=0",
            2,
        ),
        (
            |b| {
                b.tree.file("proc/sys/net/ipv4/conf/all/rp_filter", "1");
                b.fake.routes = BTreeMap::from([([10, 0, 0, 9].into(), 3)]);
            },
            "rp-filter",
            Missing,
            true,
            "strict",
            "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.ens1.rp_filter=0",
            2,
        ),
        // Loose is content with any route, and strict with the right one.
        (
            |b| {
                b.tree.file("proc/sys/net/ipv4/conf/ens1/rp_filter", "2");
                b.fake.routes = BTreeMap::from([([10, 0, 0, 9].into(), 3)]);
            },
            "rp-filter",
            Good,
            false,
            "loose",
            "",
            0,
        ),
        (
            |b| {
                b.tree.file("proc/sys/net/ipv4/conf/ens1/rp_filter", "2");
                b.fake.routes.clear();
            },
            "rp-filter",
            Missing,
            true,
            "loose",
            "sysctl -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.ens1.rp_filter=0",
            2,
        ),
        (
            |b| {
                b.tree.file("proc/sys/net/ipv4/conf/ens1/rp_filter", "1");
            },
            "rp-filter",
            Good,
            false,
            "strict",
            "",
            0,
        ),
        (
            |b| {
                b.tree.file("proc/net/igmp", "7\tens1      :     1      V2\n");
            },
            "igmp",
            CouldBeBetter,
            false,
            "version 2, which cannot name sources",
            "sysctl -w net.ipv4.conf.ens1.force_igmp_version=3",
            1,
        ),
        (
            |b| {
                b.tree.file("proc/net/igmp", "");
            },
            "igmp",
            NotKnown,
            false,
            "no group",
            "cat /proc/net/igmp",
            0,
        ),
        (
            |b| {
                b.tree.file("proc/sys/net/ipv4/igmp_max_memberships", "0");
            },
            "igmp-limits",
            Missing,
            true,
            "0 groups a socket",
            "sysctl -w net.ipv4.igmp_max_memberships=20",
            2,
        ),
        (
            |b| {
                b.tree.file("proc/sys/net/ipv4/igmp_max_msf", "0");
            },
            "igmp-limits",
            Missing,
            true,
            "0 sources",
            "sysctl -w net.ipv4.igmp_max_msf=64",
            2,
        ),
        (
            |b| b.fake.ethtool.stamps = Some(Stamps { hardware: false, clock: None }),
            "time-stamps",
            Missing,
            false,
            "by the kernel",
            "",
            0,
        ),
        (
            |b| {
                b.tree.file("proc/sys/net/core/rmem_max", "212992");
            },
            "rmem-max",
            CouldBeBetter,
            false,
            "208 KiB a socket: 0.8 ms at 2.59 Gb/s; packets are lost whenever the receiver is held up (wanted: 64 MiB)",
            "sysctl -w net.core.rmem_max=67108864",
            1,
        ),
        // CAP_NET_ADMIN may take more than others.
        (
            |b| {
                b.tree
                    .file("proc/sys/net/core/rmem_max", "212992")
                    .file("proc/self/status", "CapEff:\t0000000000001000\n");
            },
            "rmem-max",
            Good,
            false,
            "208 KiB for others; this user may take 64 MiB all the same: 261.7 ms",
            "",
            0,
        ),
        (
            |b| {
                b.tree.file("proc/self/limits", "Max locked memory  8388608 8388608 bytes\n");
            },
            "memlock",
            Missing,
            false,
            "8 MiB at most",
            "ulimit -l unlimited",
            0,
        ),
        (
            |b| {
                b.tree.file("proc/meminfo", "HugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n");
            },
            "hugepages",
            Missing,
            false,
            "none",
            "sysctl -w vm.nr_hugepages=1024",
            0,
        ),
        (
            |b| {
                b.tree.file("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave");
            },
            "governor",
            CouldBeBetter,
            false,
            "performance, powersave",
            "cpupower frequency-set -g performance",
            1,
        ),
        (
            |b| {
                b.tree.file("sys/devices/system/cpu/isolated", "\n");
            },
            "isolated-cores",
            Missing,
            false,
            "none",
            "",
            0,
        ),
        (|b| b.fake.busy = 15.0, "cores", CouldBeBetter, false, "16 cores, 15.0 of them busy now", "top -H", 1),
        (|b| b.fake.tai = None, "tai-offset", Missing, false, "never told", "phc2sys -a -r", 0),
        (
            |b| b.fake.xdp.foreign = Some((99, Attached::Native)),
            "af-xdp",
            Missing,
            false,
            "another XDP program (number 99) runs on ens1",
            "ip link set ens1 xdpdrv off",
            0,
        ),
        (
            |b| b.fake.xdp.foreign = Some((99, Attached::Generic)),
            "af-xdp",
            Missing,
            false,
            "another XDP program (number 99) runs on ens1",
            "ip link set ens1 xdpgeneric off",
            0,
        ),
        (
            |b| {
                b.fake.xdp.features = None;
            },
            "af-xdp",
            Missing,
            false,
            "ens1: generic or native: this kernel does not tell; this user lacks cap_net_raw, cap_net_admin, cap_bpf",
            "setcap cap_net_raw,cap_net_admin,cap_bpf+ep $(command -v gdmedia)",
            0,
        ),
        (
            |b| b.fake.xdp.features = Some(Features { native: true, zero_copy: false, stamps: Some(true) }),
            "af-xdp",
            Missing,
            false,
            "ens1: native, one copy, time stamps of the card offered, and not taken: the kernel has no BTF; this user",
            "setcap cap_net_raw,cap_net_admin,cap_bpf+ep $(command -v gdmedia)",
            0,
        ),
        (
            |b| {
                b.fake.xdp.features = Some(Features { native: true, zero_copy: false, stamps: Some(true) });
                b.tree.file("sys/kernel/btf/vmlinux", "types");
            },
            "af-xdp",
            Missing,
            false,
            "ens1: native, one copy, time stamps of the card taken where packets have them; this user",
            "setcap cap_net_raw,cap_net_admin,cap_bpf+ep $(command -v gdmedia)",
            0,
        ),
        (
            |b| {
                b.tree.file("proc/self/status", "CapEff:\t000001ffffffffff\n");
            },
            "af-xdp",
            Good,
            false,
            "native, without a copy",
            "",
            0,
        ),
        (
            |b| {
                b.tree.file("proc/sys/kernel/osrelease", "4.19.0");
            },
            "sockets",
            CouldBeBetter,
            false,
            "packet by packet",
            "uname -r",
            1,
        ),
        (
            |b| b.fake.libraries.clear(),
            "verbs",
            Missing,
            false,
            "libibverbs is not installed",
            "apt install libibverbs1 ibverbs-providers",
            0,
        ),
        (
            |b| b.fake.cuda.dma_buf = Some(false),
            "dma-buf",
            Missing,
            false,
            "does not hand memory",
            "apt install nvidia-open",
            0,
        ),
        (
            |b| {
                b.tree.file("proc/modules", "");
            },
            "peermem",
            Missing,
            false,
            "not loaded",
            "modprobe nvidia_peermem",
            0,
        ),
        (|b| b.fake.libraries.clear(), "nvenc", Missing, false, "not installed", "apt install libnvidia-encode1", 0),
        (|_| {}, "nvenc", NotKnown, false, "whether this GPU has an encoder", "gst-inspect-1.0 nvcodec", 0),
        (
            |b| {
                b.fake.interfaces[0].addresses = vec![[10, 0, 0, 2].into()];
                unicast(b, "10.0.0.1");
            },
            "interface",
            Missing,
            true,
            "10.0.0.1 is no address of this machine",
            "ip address add 10.0.0.1/32 dev ens1",
            2,
        ),
        (|b| unicast(b, "10.0.0.1"), "igmp", NotApplicable, false, "no IPv4 group", "", 0),
    ];
    for (n, (make, id, state, blocks, words, fix, exit)) in faults.iter().enumerate() {
        let mut machine = Lab::new();
        make(&mut machine);
        let report = machine.examine();
        let f = find(&report, id);
        assert_eq!((f.state, f.blocks), (*state, *blocks), "{n} {id}: {f:#?}");
        assert!(f.text.contains(words), "{n} {id}: {:?} has no {words:?}", f.text);
        assert_eq!(f.fix.first().or(f.see.first()).map_or("", String::as_str), *fix, "{n} {id}");
        assert_eq!(report.exit, *exit, "{n} {id}: {report:#?}");
        if *blocks {
            let summary = &report.recommendation.summary;
            assert!(
                summary.starts_with("this SDP cannot be received here: ") && summary.contains(&f.text),
                "{summary}"
            );
            assert_eq!(report.recommendation.receive_by, None);
        }
    }
}

fn unicast(b: &mut Lab, to: &str) {
    b.request.sdps.clear();
    let text = VIDEO.replace("a=source-filter: incl IN IP4 239.1.1.1 10.0.0.9\r\n", "");
    b.sdp(&text.replace("239.1.1.1/64", to));
}

#[test]
fn a_vlan_has_the_card_beneath_it() {
    let mut machine = Lab::new();
    machine
        .tree
        .link("sys/class/net/ens1.100/lower_ens1", "sys/class/net/ens1")
        .file("sys/class/net/ens1.100/mtu", "1500");
    machine.tree.file("sys/class/net/ens1.100/speed", "25000").file("sys/class/net/ens1.100/gro_flush_timeout", "0");
    machine.fake.interfaces.push(interface("ens1.100", 12, "10.0.0.3"));
    machine.tree.file("proc/sys/net/ipv4/conf/ens1.100/rp_filter", "1");
    machine.fake.ethtool.ring = Some((1024, 8192));
    machine.request.interfaces = vec!["10.0.0.3".into()];
    let report = machine.examine();
    let fix = "sysctl -w net.ipv4.conf.all.rp_filter=0 net/ipv4/conf/ens1.100/rp_filter=0";
    assert_eq!(find(&report, "rp-filter").fix, [fix], "the route back is by ens1");
    assert!(find(&report, "driver").text.ends_with("PCI 0000:1a:00.0, NUMA node 0 with cores 0-7, card ens1"));
    assert_eq!(find(&report, "rx-ring").fix, ["ethtool -G ens1 rx 8192"]);
    assert_eq!(find(&report, "distance").state, State::Good);
    assert_eq!(find(&report, "speed").text, "25 Gb/s; wanted: 2.59 Gb/s, 10 % of it");
}

#[test]
fn groups_of_ipv6() {
    let mut machine = Lab::new();
    machine.request.sdps.clear();
    let group =
        VIDEO.replace("IP4 239.1.1.1/64", "IP6 ff3e::7701").replace("IP4 239.1.1.1 10.0.0.9", "IP6 ff3e::7701 fd00::9");
    machine.sdp(&group);
    let report = machine.examine();
    assert_eq!(find(&report, "link").text, "no IPv6 address, so it cannot join ff3e::7701");
    machine.fake.interfaces[0].addresses.push("fd00::1".parse().unwrap());
    machine.fake.routes.insert("fd00::9".parse().unwrap(), 7);
    let report = machine.examine();
    assert_eq!(report.exit, 0, "{report:#?}");
    for id in ["rp-filter", "igmp", "igmp-limits"] {
        assert_eq!(find(&report, id).state, State::NotApplicable, "{id}");
    }
    assert_eq!(find(&report, "source-route").text, "fd00::9: this interface");
    // 20 octets more than IPv4.
    assert_eq!(find(&report, "mtu").text, "1500, packets have up to 1500 octets");
    assert_eq!(report.streams[0].packet_octets, 1268);
    machine.fake.way = None;
    let report = machine.examine();
    assert_eq!(find(&report, "interface").fix[1], "ip route add ff00::/8 dev ens1");
}

#[test]
fn where_the_gpu_lies() {
    let place = |path: &str, node: &str| {
        let mut machine = Lab::new();
        machine.gpu(path, node);
        machine.fake.cuda.address = path.rsplit('/').next().map(str::to_owned);
        machine.examine()
    };
    for (path, node, state, words, helps) in [
        (format!("{SWITCH}/0000:17:04.0/0000:1c:00.0"), "0", State::Good, "behind the same PCIe switch", Helps::Little),
        ("pci0000:15/0000:15:03.0/0000:20:00.0".into(), "0", State::Good, "below the same root complex", Helps::Little),
        (
            "pci0000:40/0000:40:01.0/0000:41:00.0".into(),
            "0",
            State::CouldBeBetter,
            "below another root complex",
            Helps::Cannot,
        ),
        (
            "pci0000:80/0000:80:01.0/0000:81:00.0".into(),
            "1",
            State::CouldBeBetter,
            "at another NUMA node; NUMA node 1, cores 8-15",
            Helps::Cannot,
        ),
    ] {
        let report = place(&path, node);
        let f = find(&report, "distance");
        assert_eq!(f.state, state, "{path}: {f:?}");
        assert!(f.text.contains(words), "{path}: {f:?}");
        assert_eq!(technique(&report, "gpudirect-rdma").0, helps, "{path}: {:?}", technique(&report, "gpudirect-rdma"));
    }
}

#[test]
fn a_gpu_that_cannot_be_used_says_why() {
    let mut machine = Lab::new();
    machine.fake.cuda = Cuda { why: "none: the NVIDIA driver is too old: it has CUDA 11.4".into(), ..Cuda::default() };
    machine
        .tree
        .file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May\n");
    let report = machine.examine();
    let f = find(&report, "gpu-driver");
    assert_eq!(f.text, "GPU 0000:18:00.0 has driver 470.256.02, needed is 525 or later (CUDA 12.0)");
    assert_eq!((f.state, report.exit, report.recommendation.unpack_on), (State::CouldBeBetter, 1, Some("cpu")));
    assert!(technique(&report, "stream-overlap").1.contains("the GPU cannot be used"));

    let machine = Lab { fake: machine.fake, ..Lab::new() };
    std::fs::remove_file(machine.tree.root().path("proc/driver/nvidia/version")).unwrap();
    let report = machine.examine();
    let f = find(&report, "gpu-driver");
    assert!(f.text.contains("kernel module is not loaded"), "{f:?}");
    assert_eq!(f.fix[0], "modprobe nvidia");
    assert_eq!(find(&report, "dma-buf").state, State::NotKnown);
}

#[test]
fn a_small_window_of_the_gpu_keeps_cards_out() {
    let machine = Lab::new();
    let resource = "0xf6000000 0xf6ffffff 0x40200\n0xe0000000 0xefffffff 0x14220c\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n";
    machine.tree.file(&format!("sys/devices/{SWITCH}/0000:17:00.0/0000:18:00.0/resource"), resource);
    let report = machine.examine();
    assert!(find(&report, "bar1").text.starts_with("256 MiB, 255 GiB free: little room"));
    let (helps, reason) = technique(&report, "gpudirect-rdma");
    assert_eq!(helps, Helps::Cannot);
    assert!(reason.contains("BAR1 has 256 MiB only"), "{reason}");
}

#[test]
fn ports_that_dpdk_has_and_cards_that_rivermax_does_not_take() {
    let mut machine = Lab::new();
    machine.tree.pci("pci0000:80/0000:80:02.0/0000:82:00.0", &CONNECTX6DX, Some("vfio-pci"));
    let report = machine.examine();
    assert!(
        find(&report, "dpdk").text.starts_with("ports given to it: 0000:82:00.0; ens1 can be shared"),
        "{report:#?}"
    );
    assert_eq!(find(&report, "dpdk").state, State::Missing);
    machine.fake.uses.dpdk = Some("DPDK 22.11.11");
    let report = machine.examine();
    let dpdk = find(&report, "dpdk");
    assert!(dpdk.state == State::Good && dpdk.text.ends_with("1024 huge pages; DPDK 22.11.11"), "{dpdk:#?}");

    machine.tree.file(&format!("sys/devices/{SWITCH}/0000:17:02.0/0000:1a:00.0/device"), "0x1015");
    machine.fake.libraries.push("librivermax.so.1");
    machine.fake.uses.rivermax = true;
    let report = machine.examine();
    assert!(find(&report, "rivermax").text.contains("ConnectX-4 Lx is too old (ConnectX-5 or later)"), "{report:#?}");

    machine.tree.file(&format!("sys/devices/{SWITCH}/0000:17:02.0/0000:1a:00.0/device"), "0x101d");
    machine.tree.file("etc/own.lic", "");
    machine.fake.licence = Some("/etc/own.lic".into());
    let report = machine.examine();
    assert_eq!(find(&report, "rivermax").state, State::Good);
    assert!(technique(&report, "kernel-bypass").1.contains("Rivermax is there"));
    assert!(technique(&report, "gpudirect-rdma").1.ends_with("; Rivermax does it"));
    assert_eq!(report.recommendation.receive_by, Some("rivermax"));
    assert!(
        report.recommendation.summary.starts_with("Rivermax receives it, unpacked on the GPU; with sockets 258941")
    );
}

#[test]
fn streams_of_one_port_and_of_one_switch_add_up() {
    let uhd = VIDEO.replace("width=1920; height=1080", "width=3840; height=2160");
    let mut machine = Lab::new();
    machine.request.sdps.clear();
    machine.sdp(&uhd).sdp(&uhd);
    let report = machine.examine();
    assert_eq!(find(&report, "speed").text, "25 Gb/s; wanted: 20.68 Gb/s, 83 % of it");
    let load = |report: &Report, link: &str| {
        let all = &report.recommendation.loads;
        all.iter()
            .find(|l| l.link.contains(link))
            .map(|l| (l.wanted / 10_000_000, l.capacity.map(|c| c / 1_000_000_000)))
            .unwrap()
    };
    assert_eq!(load(&report, "the port ens1"), (2068, Some(25)));
    // 16 GT/s, 8 lanes for the card, 16 for the switch: 126 and 252 Gb/s.
    assert_eq!(load(&report, "0000:1a:00.0 (ens1)"), (2068, Some(126)));
    assert_eq!(load(&report, "0000:16:00.0 (ens1)"), (2068, Some(252)));
    assert_eq!(load(&report, "0000:16:00.0 (down to the GPU)"), (2068, Some(252)));
    assert_eq!(report.exit, 0);

    // Four do not fit.
    machine.sdp(&uhd).sdp(&uhd);
    let report = machine.examine();
    assert_eq!(report.exit, 2);
    assert!(find(&report, "speed").text.contains("wanted: 41.36 Gb/s: 16.36 Gb/s too much"));

    // Two ports of 100 Gb/s behind a switch whose own link is narrow.
    let mut machine = Lab::new();
    machine.tree.file("sys/class/net/ens1/speed", "100000");
    machine.port("ens2", 8, "10.0.1.1", &format!("{SWITCH}/0000:17:02.0/0000:1a:00.1"), 100_000);
    machine.tree.file(&format!("sys/devices/{SWITCH}/current_link_width"), "4");
    machine.request.interfaces = vec!["ens1".into(), "10.0.1.1".into()];
    machine.request.sdps.clear();
    let (head, medium) = uhd.split_once("m=video").unwrap();
    let other = medium.replace("239.1.1.1", "239.1.1.2");
    let two = format!("{head}a=group:DUP a b\r\nm=video{medium}a=mid:a\r\nm=video{other}a=mid:b\r\n");
    for _ in 0..3 {
        machine.sdp(&two);
    }
    let report = machine.examine();
    assert_eq!(
        report.streams[0].legs.iter().map(|l| l.interface.as_deref().unwrap()).collect::<Vec<_>>(),
        ["ens1", "ens2"]
    );
    assert_eq!(load(&report, "0000:16:00.0 (ens1, ens2)"), (6204, Some(63)));
    let summary = &report.recommendation.summary;
    assert!(summary.contains("62.05 Gb/s of 63.02 Gb/s on the PCIe link 0000:16:00.0 (ens1, ens2)"), "{summary}");
    assert_eq!(report.exit, 2, "87 % of a link is what a copy gets");
}

#[test]
fn rivermax_could_be_had_where_the_card_is() {
    let mut machine = Lab::new();
    machine.fake.uses.rivermax = true;
    let mendable = |machine: &Lab| {
        let root = machine.tree.root();
        let read = |i: &socket::Interface| Interface::read(&root, &machine.fake, i.clone(), &[]);
        let interfaces: Vec<_> = machine.fake.interfaces.iter().map(read).collect();
        ways::findings(&root, &machine.fake, &Machine::read(&root, &machine.fake), &interfaces).1
    };
    assert_eq!(mendable(&machine).mendable, ["AF_XDP", "Rivermax"]);
    machine.fake.uses.rivermax = false;
    assert_eq!(mendable(&machine).mendable, ["AF_XDP"], "not built in");
}

#[test]
fn verbs_is_there_with_card_library_and_rights() {
    let mut machine = Lab::new();
    machine.fake.uses.verbs = true;
    let report = machine.examine();
    let text = &find(&report, "verbs").text;
    assert!(text.contains("mlx5_7 (ens1), library there; this user lacks cap_net_raw"), "{text}");
    assert!(find(&report, "verbs").fix.iter().any(|fix| fix.contains("setcap cap_net_raw")), "{report:#?}");
    // CAP_NET_RAW and CAP_IPC_LOCK.
    machine.tree.file("proc/self/status", "CapEff:\t0000000000006000\n");
    let report = machine.examine();
    assert_eq!(find(&report, "verbs").state, State::Good, "{report:#?}");
    assert!(technique(&report, "kernel-bypass").1.contains("verbs is there (--backend verbs)"), "{report:#?}");
    assert!(technique(&report, "gpudirect-rdma").1.ends_with("; verbs does it"), "{report:#?}");
    assert_eq!(report.recommendation.receive_by, Some("verbs"));
    assert!(report.recommendation.summary.starts_with("verbs receives it, unpacked on the GPU"), "{report:#?}");
}

#[test]
fn without_a_gpu_nothing_of_it_is_missing() {
    let mut machine = Lab::new();
    std::fs::remove_file(machine.tree.root().path("sys/bus/pci/devices/0000:18:00.0")).unwrap();
    machine.fake.cuda = Cuda { why: "none".into(), ..Cuda::default() };
    machine.fake.libraries.clear();
    let report = machine.examine();
    for id in ["distance", "bar1", "dma-buf", "peermem", "nvenc"] {
        let f = find(&report, id);
        assert_eq!((f.state, f.fix.len()), (State::NotApplicable, 0), "{f:?}");
    }
}

#[test]
fn the_buffer_counts_that_is_the_shortest() {
    let mut machine = Lab::new();
    machine.sdp(&VIDEO.replace("width=1920; height=1080", "width=3840; height=2160"));
    machine.tree.file("proc/sys/net/core/rmem_max", "2097152");
    let report = machine.examine();
    let (helps, reason) = technique(&report, "kernel-bypass");
    assert_eq!(helps, Helps::Yes, "{reason}");
    assert!(reason.starts_with("the socket buffer holds 2.0 ms only"), "{reason}");
}

#[test]
fn vlans_of_one_port_share_it() {
    let mut machine = Lab::new();
    for (n, name) in ["ens1.100", "ens1.200"].into_iter().enumerate() {
        let class = format!("sys/class/net/{name}");
        machine.tree.link(&format!("{class}/lower_ens1"), "sys/class/net/ens1");
        machine.tree.file(&format!("{class}/mtu"), "1500").file(&format!("{class}/speed"), "25000");
        machine.fake.interfaces.push(interface(name, 12 + n as u32, &format!("10.0.{n}.3")));
    }
    let uhd = VIDEO.replace("width=1920; height=1080", "width=3840; height=2160");
    let (head, medium) = uhd.split_once("m=video").unwrap();
    let other = medium.replace("239.1.1.1", "239.1.1.2");
    machine.request.sdps.clear();
    machine.request.interfaces = vec!["ens1.100".into(), "ens1.200".into()];
    for _ in 0..2 {
        machine.sdp(&format!("{head}a=group:DUP a b\r\nm=video{medium}a=mid:a\r\nm=video{other}a=mid:b\r\n"));
    }
    // Each VLAN carries 20.68 of 25 Gb/s, and both have the same port.
    let report = machine.examine();
    assert_eq!(report.exit, 2);
    let summary = &report.recommendation.summary;
    assert!(summary.contains("41.36 Gb/s of 25 Gb/s on the port ens1 (ens1.100, ens1.200)"), "{summary}");
}

#[test]
fn files_with_anything_in_them_are_read_without_harm() {
    fn files(folder: &std::path::Path, out: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => files(&entry.path(), out),
                kind if kind.is_file() => out.push(entry.path()),
                _ => {}
            }
        }
    }
    let machine = Lab::new();
    let mut all = Vec::new();
    files(&machine.tree.root().path(""), &mut all);
    assert!(all.len() > 40, "{all:?}");
    let long = "0x7fffffffffffffff ".repeat(100_000);
    let numbers = "18446744073709551615 9223372036854775807 -1 NaN inf 0-4294967295,0-4294967295\n".repeat(7);
    let odd: [&[u8]; 11] = [
        b"",
        b"\n",
        b"\0\xff\xfe\x80 \x1b[2J",
        b"18446744073709551615\n",
        b"-9223372036854775808",
        b"0-4294967295",
        b"NaN",
        b"0x0 0xffffffffffffffff 0x200\n0x0 0xffffffffffffffff 0x200\n",
        b"cpu:::::\n: : :\n%s%n\n\n",
        numbers.as_bytes(),
        long.as_bytes(),
    ];
    for path in &all {
        let good = std::fs::read(path).unwrap();
        for octets in odd.into_iter().chain([&good[..good.len() / 2]]) {
            std::fs::write(path, octets).unwrap();
            let _ = machine.examine();
        }
        std::fs::remove_file(path).unwrap();
        let _ = machine.examine();
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
        let _ = machine.examine();
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, good).unwrap();
    }
}

#[test]
fn sdps_with_nothing_to_receive_block_with_their_reason() {
    for (text, words) in [
        ("v=0\r\n", "nothing of it can be received"),
        (&VIDEO.replace("width=1920", "width=wide"), "its fmtp parameters cannot be read"),
        (&VIDEO.replace("m=video", "m=audio").replace("raw/90000", "L24/48000/2"), "nothing of it can be received: "),
    ] {
        let mut machine = Lab::new();
        machine.request.sdps.clear();
        machine.sdp(text);
        let report = machine.examine();
        assert_eq!(report.exit, 2, "{words}");
        let blocks = report.sections.iter().flat_map(|s| &s.findings).find(|f| f.blocks).unwrap();
        assert!(blocks.text.contains(words), "{blocks:?}");
        assert_eq!(blocks.see, ["gdmedia sdp 0.sdp"]);
    }
}

#[test]
fn without_an_sdp_the_machine_is_looked_at_and_nothing_blocks() {
    let mut machine = Lab::new();
    machine.request.sdps.clear();
    machine.fake.interfaces.push(interface("lo", 1, "127.0.0.1"));
    machine.fake.interfaces.push(socket::Interface { up: false, ..interface("ens9", 9, "10.9.0.1") });
    let names = |report: &Report| {
        let all = report.sections.iter().filter(|s| s.about == About::Interface);
        all.map(|s| s.name.clone()).collect::<Vec<_>>()
    };
    let report = machine.examine();
    assert_eq!((report.exit, names(&report)), (0, vec!["ens1".to_owned()]));
    assert_eq!(report.recommendation.source, Source::Unknown);
    machine.request.interfaces = vec!["10.9.0.1".into()];
    let report = machine.examine();
    assert_eq!((report.exit, names(&report)), (0, vec!["ens9".to_owned()]), "down, and not needed");
    machine.fake.interfaces = vec![interface("lo", 1, "127.0.0.1")];
    machine.request.interfaces.clear();
    assert_eq!(names(&machine.examine()), ["lo"]);
}

#[test]
fn from_a_capture_the_network_does_not_matter() {
    let mut machine = Lab::new();
    machine.tree.file("x.pcap", "some octets");
    machine.fake.interfaces[0].up = false;
    machine.request.capture = Some(machine.tree.root().path("x.pcap"));
    let report = machine.examine();
    assert_eq!(report.exit, 0, "{report:#?}");
    assert!(report.sections.iter().all(|s| s.about != About::Interface && s.about != About::WaysIn));
    assert_eq!((report.recommendation.source, report.recommendation.receive_by), (Source::Storage, Some("capture")));
    let (helps, reason) = technique(&report, "gpudirect-storage");
    assert_eq!(helps, Helps::Cannot);
    assert!(reason.contains("headers between its payload"), "{reason}");
    assert_eq!(technique(&report, "kernel-bypass"), (Helps::Cannot, "data comes from a file, not from a card"));
    for path in ["/no/such/capture", "/"] {
        machine.request.capture = Some(path.into());
        assert_eq!(machine.examine().exit, 2, "{path}");
    }
    // A pipe to which nobody writes.
    let pipe = machine.tree.root().path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    machine.request.capture = Some(pipe);
    assert_eq!(machine.examine().exit, 0);
}

#[test]
fn another_grandmaster_than_the_sdps_is_told() {
    let mut machine = Lab::new();
    stand_in(&machine.tree.file("run/folder", "").root().path("run/ptp4lro"));
    machine.request.sdps.clear();
    machine.sdp(&VIDEO.replace("08-00-11", "08-00-12"));
    let report = machine.examine();
    let f = find(&report, "ptp4l");
    assert_eq!(f.state, State::CouldBeBetter);
    assert!(f.text.contains("the SDP names 08-00-12-FF-FE-22-33-44"), "{f:?}");
}
