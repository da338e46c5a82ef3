//! The machine: memory that sockets may take, cores, clocks.

use super::flows::{Stream, buffer_ms, buffer_wanted};
use super::report::{Finding, State};
use super::root::Root;
use super::system::System;
use crate::ptp::{self, PortState, Silent, Warning};
use crate::sdp::SourceFilter;
use crate::topology::cores::list;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// `6.18.44`.
    pub kernel: String,
    /// Cores that are on.
    pub cores: u32,
    /// Cores kept from the scheduler, as the kernel lists them.
    pub isolated: String,
    /// Governors of the cores, each once; empty where the clock is not the kernel's to set.
    pub governors: Vec<String>,
    /// Cores of each NUMA node.
    pub nodes: Vec<(u32, String)>,
    /// Tasks that want a core, on average over a minute.
    pub load: Option<f64>,
    /// Cores that are busy.
    pub busy: Option<f64>,
    /// Octets of a socket buffer that anybody may take.
    pub rmem_max: Option<u64>,
    /// Octets that may be locked; none: no limit.
    pub memlock: Option<Option<u64>>,
    /// Huge pages: octets of each, number, free.
    pub huge: Option<(u64, u64, u64)>,
    /// Effective capabilities, as bits.
    pub rights: u64,
    /// Groups a socket may join, and sources of a group.
    pub igmp: (Option<u32>, Option<u32>),
    /// Seconds of TAI before UTC.
    pub tai: Option<i64>,
}

/// `CAP_…` of linux/capability.h.
pub const NET_ADMIN: u32 = 12;
pub const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

/// Octets that may be locked, with which nothing is short.
const LOCKED: u64 = 512 << 20;

impl Machine {
    /// Reads it.
    pub fn read(root: &Root, system: &dyn System) -> Self {
        let cpu = "sys/devices/system/cpu";
        let online = root.text(&format!("{cpu}/online")).unwrap_or_default();
        let mut governors: Vec<String> = root
            .names(cpu)
            .iter()
            .filter_map(|name| root.text(&format!("{cpu}/{name}/cpufreq/scaling_governor")))
            .collect();
        governors.sort();
        governors.dedup();
        let node = |name: &String| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            Some((number, root.text(&format!("sys/devices/system/node/{name}/cpulist"))?))
        };
        let status = root.text("proc/self/status").unwrap_or_default();
        let rights = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
        Machine {
            kernel: root.text("proc/sys/kernel/osrelease").unwrap_or_default(),
            cores: list(&online).map_or(0, |cores| cores.len() as u32),
            isolated: root.text(&format!("{cpu}/isolated")).unwrap_or_default(),
            governors,
            nodes: root.names("sys/devices/system/node").iter().filter_map(node).collect(),
            load: root.text("proc/loadavg").and_then(|t| t.split_ascii_whitespace().next()?.parse().ok()),
            busy: system.busy_cores(),
            rmem_max: root.number("proc/sys/net/core/rmem_max"),
            memlock: root.text("proc/self/limits").and_then(|t| memlock(&t)),
            huge: root.text("proc/meminfo").and_then(|t| huge(&t)),
            rights: rights.and_then(|t| u64::from_str_radix(t.trim(), 16).ok()).unwrap_or(0),
            igmp: (
                root.number("proc/sys/net/ipv4/igmp_max_memberships"),
                root.number("proc/sys/net/ipv4/igmp_max_msf"),
            ),
            tai: system.tai_offset(),
        }
    }

    /// This process has the capability.
    pub const fn may(&self, capability: u32) -> bool {
        self.rights >> capability & 1 == 1
    }

    /// It may load programs into the kernel, open AF_XDP sockets and lock their memory; else what is missing.
    pub fn missing_for_xdp(&self) -> Vec<&'static str> {
        let bpf = self.may(BPF) || self.may(SYS_ADMIN);
        let few = matches!(self.memlock, Some(Some(n)) if n < LOCKED);
        let each = [
            (self.may(NET_RAW), "cap_net_raw"),
            (self.may(NET_ADMIN), "cap_net_admin"),
            (bpf, "cap_bpf"),
            (!few || self.may(IPC_LOCK), "cap_ipc_lock"),
        ];
        each.into_iter().filter(|(have, _)| !have).map(|(_, name)| name).collect()
    }

    /// It may take raw packets of a card and lock their memory; else what is missing.
    pub fn missing_for_verbs(&self) -> Vec<&'static str> {
        let of_it = |name: &&'static str| matches!(*name, "cap_net_raw" | "cap_ipc_lock");
        self.missing_for_xdp().into_iter().filter(of_it).collect()
    }

    /// Octets of the kernel's memory that a receiver's socket gets: twice what is asked for.
    pub fn buffer(&self) -> Option<u64> {
        let most = if self.may(NET_ADMIN) { u64::MAX } else { self.rmem_max? };
        Some(2 * buffer_wanted().min(most))
    }

    /// Version of the kernel is at least this.
    pub fn kernel_from(&self, major: u32, minor: u32) -> bool {
        let mut parts = self.kernel.split(['.', '-']).map_while(|p| p.parse::<u32>().ok());
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
    }

    /// What it says for these streams.
    pub fn findings(&self, streams: &[Stream], network: bool, ptp: &Result<ptp::State, Silent>) -> Vec<Finding> {
        let mut out = vec![self.cores_finding(), self.governor_finding(), self.isolated_finding()];
        if network {
            out.push(self.buffer_finding(streams));
            out.extend(self.group_findings(streams));
        }
        out.extend([self.memlock_finding(), self.huge_finding(), self.numa_finding()]);
        if network {
            out.push(self.tai_finding());
            out.push(ptp_finding(ptp, streams));
        }
        out
    }

    fn cores_finding(&self) -> Finding {
        let busy = self.busy.map_or_else(String::new, |b| format!(", {b:.1} of them busy now"));
        let load = self.load.map_or_else(String::new, |l| format!(", load {l:.1}"));
        let text = format!("{} cores{busy}{load}, Linux {}", self.cores, self.kernel);
        let full = self.busy.is_some_and(|b| b > 0.8 * f64::from(self.cores));
        if full {
            Finding::new("cores", State::CouldBeBetter, text).see("top -H")
        } else {
            Finding::good("cores", text)
        }
    }

    fn governor_finding(&self) -> Finding {
        let id = "governor";
        match self.governors.as_slice() {
            [] => Finding::new(id, State::NotApplicable, "the clock of the cores is not this kernel's to set"),
            [one] if one == "performance" => Finding::good(id, "performance on every core"),
            some => {
                Finding::new(id, State::CouldBeBetter, format!("{}: cores slow down between packets", some.join(", ")))
                    .fix("cpupower frequency-set -g performance")
            }
        }
    }

    fn isolated_finding(&self) -> Finding {
        if !self.isolated.is_empty() {
            return Finding::good("isolated-cores", format!("cores {} are kept from the scheduler", self.isolated));
        }
        Finding::new("isolated-cores", State::Missing, "none")
            .gives("receivers that never sleep (--sleep 0), by the kernel parameter isolcpus=; others need none")
    }

    fn buffer_finding(&self, streams: &[Stream]) -> Finding {
        const ID: &str = "rmem-max";
        let (Some(most), Some(given)) = (self.rmem_max, self.buffer()) else {
            return Finding::new(ID, State::NotKnown, "cannot be read").see("sysctl net.core.rmem_max");
        };
        let wanted = buffer_wanted();
        let worth = streams
            .iter()
            .filter_map(|s| Some((buffer_ms(given, s)?, s.bits_per_second)))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let time =
            worth.map_or_else(String::new, |(ms, bits)| format!(": {ms:.1} ms at {:.2} Gb/s", bits as f64 / 1e9));
        let text = if self.may(NET_ADMIN) && most < wanted {
            format!("{} for others; this user may take {} all the same{time}", size(most), size(wanted))
        } else {
            format!("{} a socket{time}", size(given / 2))
        };
        if given / 2 >= wanted {
            return Finding::good(ID, text);
        }
        let lost = if worth.is_some_and(|(ms, _)| ms < 5.0) {
            "; packets are lost whenever the receiver is held up"
        } else {
            ""
        };
        Finding::new(ID, State::CouldBeBetter, format!("{text}{lost} (wanted: {})", size(wanted)))
            .fix(format!("sysctl -w net.core.rmem_max={wanted}"))
    }

    /// A receiver joins one group a socket, from the sources that the SDP names.
    fn group_findings(&self, streams: &[Stream]) -> Vec<Finding> {
        let groups =
            streams.iter().flat_map(|s| &s.legs).filter(|l| l.destination.is_multicast() && l.destination.is_ipv4());
        let legs: Vec<_> = groups.collect();
        if legs.is_empty() && !streams.is_empty() {
            return vec![Finding::new("igmp-limits", State::NotApplicable, "no IPv4 group is to be joined")];
        }
        let sources = |l: &&super::flows::Way| match &l.sources {
            SourceFilter::Any => 0,
            SourceFilter::Include(list) | SourceFilter::Exclude(list) => list.len() as u32,
        };
        let most = legs.iter().map(sources).max().unwrap_or(0);
        let (Some(groups), Some(filters)) = self.igmp else {
            let text = "the limits of groups cannot be read";
            return vec![
                Finding::new("igmp-limits", State::NotKnown, text)
                    .see("sysctl net.ipv4.igmp_max_memberships net.ipv4.igmp_max_msf"),
            ];
        };
        let text =
            format!("{groups} groups a socket (gdmedia joins one in each), {filters} sources a group (wanted: {most})");
        let mut finding = Finding::good("igmp-limits", text);
        if groups == 0 {
            finding = finding.fix("sysctl -w net.ipv4.igmp_max_memberships=20");
        }
        if filters < most {
            finding = finding.fix(format!("sysctl -w net.ipv4.igmp_max_msf={}", most.max(64)));
        }
        if !finding.fix.is_empty() {
            finding.state = State::Missing;
            finding.blocks = !legs.is_empty();
        }
        vec![finding]
    }

    fn memlock_finding(&self) -> Finding {
        const ID: &str = "memlock";
        let gives = "memory for AF_XDP, verbs and DPDK; sockets need none";
        match self.memlock {
            None => Finding::new(ID, State::NotKnown, "cannot be read").see("ulimit -l"),
            Some(None) => Finding::good(ID, "no limit"),
            Some(Some(n)) if self.may(IPC_LOCK) => Finding::good(ID, format!("{}, and this user is above it", size(n))),
            Some(Some(n)) if n >= LOCKED => Finding::good(ID, size(n)),
            Some(Some(n)) => {
                Finding::new(ID, State::Missing, format!("{} at most", size(n))).gives(gives).fix("ulimit -l unlimited")
            }
        }
    }

    fn huge_finding(&self) -> Finding {
        const ID: &str = "hugepages";
        match self.huge {
            None => Finding::new(ID, State::NotKnown, "cannot be read").see("grep Huge /proc/meminfo"),
            Some((_, 0, _)) => Finding::new(ID, State::Missing, "none")
                .gives("memory for DPDK and Rivermax; sockets need none")
                .fix("sysctl -w vm.nr_hugepages=1024"),
            Some((each, all, free)) => Finding::good(ID, format!("{all} of {}, {free} free", size(each))),
        }
    }

    fn numa_finding(&self) -> Finding {
        match self.nodes.as_slice() {
            [] | [_] => Finding::good("numa", "one node: everything is near"),
            nodes => {
                let each: Vec<String> = nodes.iter().map(|(n, cores)| format!("{n} (cores {cores})")).collect();
                Finding::good("numa", format!("nodes {}", each.join(", ")))
            }
        }
    }

    fn tai_finding(&self) -> Finding {
        match self.tai {
            Some(s) => Finding::good("tai-offset", format!("the kernel knows that TAI is {s} s ahead")),
            None => Finding::new(
                "tai-offset",
                State::Missing,
                "the kernel was never told; gdmedia adds 37 s (--tai-offset)",
            )
            .gives("the right time after the next leap second")
            .fix("phc2sys -a -r"),
        }
    }

    /// Cores of a NUMA node.
    pub fn cores_of(&self, node: u32) -> Option<&str> {
        self.nodes.iter().find(|(n, _)| *n == node).map(|(_, cores)| cores.as_str())
    }
}

fn ptp_finding(ptp: &Result<ptp::State, Silent>, streams: &[Stream]) -> Finding {
    const ID: &str = "ptp4l";
    let by = streams.iter().flat_map(|s| &s.legs).find_map(|l| l.interface.as_deref());
    let gives = "latency against the sender's clock, and times that agree with other machines";
    let ptp = match ptp {
        Ok(ptp) => ptp,
        Err(Silent::Absent) => {
            return Finding::new(ID, State::Missing, "does not run here (no socket of it)")
                .gives(gives)
                .fix(format!("ptp4l -i {} -s -m", by.unwrap_or("INTERFACE")));
        }
        Err(Silent::Denied) => {
            let text = "its socket is root's only";
            return Finding::new(ID, State::NotKnown, text).see("sudo pmc -u -b 0 'GET TIME_STATUS_NP'");
        }
        Err(Silent::Mute) => {
            let text = "there is a socket of it, but no answer in half a second, in any domain that the SDP may mean";
            return Finding::new(ID, State::NotKnown, text).see("pmc -u -b 0 -d DOMAIN 'GET TIME_STATUS_NP'");
        }
    };
    let offset = ptp.offset_ns.map_or_else(String::new, |ns| format!(", {ns} ns from its master"));
    let master = ptp.grandmaster.as_ref().map_or_else(String::new, |m| format!(", grandmaster {m}"));
    let text = format!("{} in domain {}{offset}{master}", ptp.port.name(), ptp.domain);
    if !ptp.is_locked() {
        let why = if ptp.port == PortState::Uncalibrated {
            "it has a master and is not settled yet"
        } else {
            "it follows nobody"
        };
        return Finding::new(ID, State::CouldBeBetter, format!("{text}: {why}")).see("pmc -u -b 0 'GET PORT_DATA_SET'");
    }
    let clocks: Vec<_> = streams.iter().flat_map(|s| s.clocks.clone()).collect();
    let named = match ptp::judge::against_sdp(ptp, &clocks) {
        Some(Warning::PtpGrandmaster { sdp, .. }) => sdp.to_string(),
        Some(Warning::PtpDomain { sdp, .. }) => format!("domain {sdp}"),
        _ => return Finding::good(ID, text),
    };
    let text = format!("{text}; the SDP names {named}");
    Finding::new(ID, State::CouldBeBetter, text).see("pmc -u -b 0 'GET PARENT_DATA_SET'")
}

/// `4 MiB`.
pub fn size(octets: u64) -> String {
    match octets {
        n if n >= 1 << 30 => format!("{} GiB", n >> 30),
        n if n >= 1 << 20 => format!("{} MiB", n >> 20),
        n => format!("{} KiB", n >> 10),
    }
}

/// The soft limit of `Max locked memory` in /proc/self/limits.
fn memlock(limits: &str) -> Option<Option<u64>> {
    let line = limits.lines().find_map(|l| l.strip_prefix("Max locked memory"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// Octets of a page, pages, free ones.
fn huge(meminfo: &str) -> Option<(u64, u64, u64)> {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim_start_matches(':').split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Some((field("Hugepagesize")? << 10, field("HugePages_Total")?, field("HugePages_Free")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_by_their_columns() {
        let limits =
            |soft: &str| format!("Limit  Soft  Hard  Units\nMax locked memory         {soft}     unlimited  bytes\n");
        assert_eq!(memlock(&limits("8388608")), Some(Some(8_388_608)));
        assert_eq!(memlock(&limits("unlimited")), Some(None));
        assert_eq!(memlock("Max open files 1 2\n"), None);
        let meminfo =
            "HugePages_Total:      12\nHugePages_Free:        5\nHugePages_Rsvd: 0\nHugepagesize:    2048 kB\n";
        assert_eq!(huge(meminfo), Some((2 << 20, 12, 5)));
        assert_eq!(huge("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn kernels_are_compared_by_number() {
        let machine = |kernel: &str| Machine { kernel: kernel.into(), ..Machine::default() };
        assert!(machine("6.8.0-45-generic").kernel_from(5, 0) && machine("5.0.0").kernel_from(5, 0));
        assert!(machine("5.10-rc1").kernel_from(5, 10) && !machine("5.9.1").kernel_from(5, 10));
        assert!(!machine("4.19.0").kernel_from(5, 0) && !machine("").kernel_from(5, 0));
    }

    #[test]
    fn rights_are_bits() {
        let machine = |rights| Machine { rights, ..Machine::default() };
        assert_eq!(machine(0).missing_for_xdp(), ["cap_net_raw", "cap_net_admin", "cap_bpf"]);
        // CAP_NET_ADMIN and CAP_NET_RAW; CAP_SYS_ADMIN stands for CAP_BPF.
        assert_eq!(machine(0x3000).missing_for_xdp(), ["cap_bpf"]);
        assert_eq!(machine(0x20_3000).missing_for_xdp(), [""; 0]);
        assert_eq!(machine(1 << 39 | 0x3000).missing_for_xdp(), [""; 0]);
        // Memory of AF_XDP is locked: CAP_IPC_LOCK is above the limit.
        let locked = |rights, memlock| Machine { memlock, ..machine(rights) }.missing_for_xdp();
        assert_eq!(locked(0x20_3000, Some(Some(8 << 20))), ["cap_ipc_lock"]);
        assert_eq!(locked(0x20_7000, Some(Some(8 << 20))), [""; 0]);
        assert_eq!(locked(0x20_3000, Some(None)), [""; 0]);
    }
}
