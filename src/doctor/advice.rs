//! What to do here, and why: from facts to words, nothing else. Figures are those of `benches/RESULTS.md` and name where
//! they were taken.

use super::flows::Stream;
use super::interface::gbits;
use super::pci::Near;
use super::report::Verdict;
use serde::Serialize;

/// Microseconds of the receiving thread's CPU a packet on loopback, merged by the kernel: 1080p59.94, and 2160p59.94.
/// Two cores of an AMD EPYC; what the kernel does for a card's packets comes on top and was not measured.
const PACKET_US: [f64; 2] = [0.42, 0.30];
/// Packets a second from which the second figure holds.
const FAST: u64 = 500_000;
/// The time from a frame's last packet to the frame, in microseconds, p50: on the CPU (AVX2, 10 s), on an H200 (60 s).
const CPU_US: f64 = 17.7;
const GPU_US: f64 = 27.7;
/// The same on the H200 when the whole frame is copied first (p50).
const WHOLE_US: f64 = 635.4;
/// What a copy to the GPU gets of its link: 55 GB/s on PCI Express 5 with 16 lanes, which has 63.
const LINK_SHARE: f64 = 0.87;
/// A receiver that has drained its socket sleeps so long (`--sleep`).
const SLEEP_US: f64 = 1000.0;
/// Of a core, from which on one thread is too near to its limit.
const THREAD_FULL: f64 = 0.7;
/// Of the idle cores.
const CORES_FULL: f64 = 0.5;
/// Of a link, from which on it is worth a word.
const LINK_FULL: f64 = 0.9;

/// Where the data comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// No SDP was given.
    #[default]
    Unknown,
    /// Packets of a card.
    Network,
    /// A capture in a file.
    Storage,
}

/// What is sent over a link, and what it carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Load {
    /// A port, or a link of the bus.
    pub link: String,
    /// Bits a second of all streams together, in one direction.
    pub wanted: u64,
    /// Bits a second; null where it is not known.
    pub capacity: Option<u64>,
    /// PCI Express rather than a port.
    #[serde(skip)]
    pub bus: bool,
}

/// The GPU that would be used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuFacts {
    /// gdmedia can unpack on it.
    pub usable: bool,
    /// How near the interface is.
    pub near: Option<Near>,
    /// What keeps cards from writing into its memory.
    pub closed: Vec<String>,
}

/// The facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// Where the data comes from.
    pub source: Source,
    /// What is to be received.
    pub streams: Vec<Stream>,
    /// Links and what they are to carry.
    pub loads: Vec<Load>,
    /// Cores that are on, and busy.
    pub cores: u32,
    /// Cores that are busy now, where it is known.
    pub busy: Option<f64>,
    /// Milliseconds that the smallest socket buffer holds.
    pub buffer_ms: Option<f64>,
    /// Ways past the kernel that gdmedia can use here.
    pub bypass: Vec<&'static str>,
    /// Those that could be mended.
    pub mendable: Vec<&'static str>,
    /// The card and its driver could write into memory of a GPU.
    pub direct_card: bool,
    /// Its driver, to say so.
    pub driver: String,
    /// The GPU.
    pub gpu: Option<GpuFacts>,
    /// GPUDirect Storage is installed.
    pub storage: bool,
    /// What keeps the SDP from being received.
    pub blocked: Vec<String>,
    /// Things that could be better.
    pub better: usize,
}

/// Whether something helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Helps {
    /// It does.
    Yes,
    /// It would work, and change little.
    Little,
    /// It cannot work here.
    Cannot,
    /// Not enough is known.
    NotKnown,
}

/// A technique and what it does here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Technique {
    /// `kernel-bypass`, `gpudirect-rdma`, `gpudirect-storage`, `stream-overlap`.
    pub name: &'static str,
    /// Whether it helps.
    pub helps: Helps,
    /// Why.
    pub reason: String,
}

/// CPU of the receiving threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cpu {
    /// Of all legs.
    pub packets_per_second: u64,
    /// Cores for it, as measured on loopback.
    pub cores_needed: f64,
    /// Cores that are idle now; null where it is not known.
    pub cores_idle: Option<f64>,
}

/// Latency of the path.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// A frame takes so long to arrive: the sender's doing.
    pub frame_ms: f64,
    /// From its last packet until the receiver looks, at most.
    pub sleep_ms: f64,
    /// From then to the finished frame, p50, as measured.
    pub finish_ms: f64,
}

/// The recommendation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// How it stands.
    #[serde(skip)]
    pub verdict: Verdict,
    /// Where the data comes from.
    pub source: Source,
    /// What receives: `sockets`, `rivermax`, `verbs`, `capture`; null when nothing can.
    pub receive_by: Option<&'static str>,
    /// What unpacks: `cpu`, `gpu`; null when nothing is received.
    pub unpack_on: Option<&'static str>,
    /// In one or two sentences.
    pub summary: String,
    /// CPU; null where there is no rate.
    pub cpu: Option<Cpu>,
    /// Latency; null where there is no rate, or nothing is received from the network.
    pub latency: Option<Latency>,
    /// Links and the sums that they carry.
    pub loads: Vec<Load>,
    /// What helps, what not, and why.
    pub techniques: Vec<Technique>,
}

impl Load {
    /// What of it is used.
    fn share(&self) -> Option<f64> {
        // No link of the bus gets all of its octets to packets.
        let usable = if self.bus { LINK_SHARE } else { 1.0 };
        self.capacity.map(|c| self.wanted as f64 / (c as f64 * usable))
    }
    /// `2.59 Gb/s of 25 Gb/s on the port eno1`.
    pub fn words(&self) -> String {
        let capacity = self.capacity.map_or_else(|| "an unknown rate".into(), gbits);
        format!("{} of {capacity} on {}", gbits(self.wanted), self.link)
    }
}

/// Packets a second of all legs, and what they cost: all together, and the dearest stream (one thread each).
fn cpu(s: &Situation) -> Option<(u64, f64, f64)> {
    let each = s.streams.iter().map(|stream| {
        let packets = stream.packets_per_second * stream.legs.len().max(1) as u64;
        let us = if stream.packets_per_second >= FAST { PACKET_US[1] } else { PACKET_US[0] };
        (packets, packets as f64 * us / 1e6)
    });
    let (packets, all, most) =
        each.fold((0, 0.0, 0.0_f64), |(p, a, m), (packets, cores)| (p + packets, a + cores, m.max(cores)));
    (packets > 0).then_some((packets, all, most))
}

/// The recommendation for these facts.
pub fn advise(s: &Situation) -> Advice {
    let over: Vec<&Load> = s.loads.iter().filter(|l| l.share().is_some_and(|x| x > 1.0)).collect();
    let near_full = s.loads.iter().any(|l| l.share().is_some_and(|x| x > LINK_FULL));
    let cannot = !s.blocked.is_empty() || !over.is_empty();
    let full = cpu(s).is_some_and(|(_, all, most)| most > THREAD_FULL || idle(s).is_some_and(|i| all > i * CORES_FULL));
    let verdict = match (cannot, s.better > 0 || near_full || (full && s.source == Source::Network)) {
        (true, _) => Verdict::CannotReceive,
        (_, true) => Verdict::CouldBeBetter,
        _ => Verdict::Good,
    };
    let gpu = s.gpu.as_ref().is_some_and(|g| g.usable);
    let frame_us = s.streams.iter().map(|s| s.frame_us).filter(|us| *us > 0).min();
    Advice {
        verdict,
        source: s.source,
        receive_by: (!cannot).then_some(match s.source {
            Source::Storage => "capture",
            _ if s.bypass.contains(&"Rivermax") => "rivermax",
            _ if s.bypass.contains(&"verbs") => "verbs",
            _ => "sockets",
        }),
        unpack_on: (!cannot).then_some(if gpu { "gpu" } else { "cpu" }),
        summary: summary(s, &over, gpu),
        cpu: cpu(s).map(|(packets, cores, _)| Cpu {
            packets_per_second: packets,
            cores_needed: round(cores),
            cores_idle: idle(s).map(round),
        }),
        latency: frame_us.filter(|_| !cannot && s.source == Source::Network).map(|us| Latency {
            frame_ms: round(us as f64 / 1e3),
            sleep_ms: SLEEP_US / 1e3,
            finish_ms: round(if gpu { GPU_US } else { CPU_US } / 1e3),
        }),
        loads: s.loads.clone(),
        techniques: vec![bypass(s, cannot), rdma(s), gds(s), overlap(s, gpu)],
    }
}

fn idle(s: &Situation) -> Option<f64> {
    s.busy.map(|busy| (f64::from(s.cores) - busy).max(0.0))
}

fn summary(s: &Situation, over: &[&Load], gpu: bool) -> String {
    if let Some(first) = s.blocked.first() {
        let more = s.blocked.len() - 1;
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        return format!("this SDP cannot be received here: {first}{more}");
    }
    if let Some(load) = over.first() {
        let way = if load.bus {
            "put streams on a card behind another link"
        } else {
            "receive fewer streams here, or by a faster port or a second one"
        };
        return format!("these streams cannot be received here: {}; {way}", load.words());
    }
    let on = if gpu { "unpacked on the GPU" } else { "unpacked on the CPU" };
    let cost = cpu(s).map(|(packets, cores, _)| {
        format!(
            "{packets} packets a second cost {} of a core (measured on loopback, without the kernel's part)",
            percent(cores)
        )
    });
    match (s.source, cost) {
        (Source::Unknown, _) => format!(
            "no SDP was given: with --sdp FILE links, buffers and CPU are compared with what it needs; frames would be {on}"
        ),
        (Source::Storage, _) => format!("a capture is read by the CPU as fast as it goes, {on}"),
        (Source::Network, cost) if by_card(s).is_some() => {
            let sockets = cost.map_or_else(String::new, |cost| format!("; with sockets {cost}"));
            format!("{} receives it, {on}{sockets}", by_card(s).unwrap_or_default())
        }
        (Source::Network, Some(cost)) => format!("sockets receive it: {cost}; {on}"),
        (Source::Network, None) => format!("sockets receive it, {on}; the SDP has no frame rate to compare with"),
    }
}

/// The way in by which a card writes into memory by itself, the one that is taken first.
fn by_card(s: &Situation) -> Option<&'static str> {
    ["Rivermax", "verbs"].into_iter().find(|way| s.bypass.contains(way))
}

fn bypass(s: &Situation, cannot: bool) -> Technique {
    let it = |helps, reason: String| Technique { name: "kernel-bypass", helps, reason };
    let Some((packets, all, most)) = cpu(s) else {
        return match s.source {
            Source::Storage => it(Helps::Cannot, "data comes from a file, not from a card".into()),
            _ => it(Helps::NotKnown, "no rate to judge by".into()),
        };
    };
    if s.source == Source::Storage {
        return it(Helps::Cannot, "data comes from a file, not from a card".into());
    }
    if cannot {
        return it(Helps::Cannot, "it changes nothing about what keeps these streams out".into());
    }
    let with = match (s.bypass.as_slice(), s.mendable.as_slice()) {
        ([first, ..], _) => format!("{first} is there (--backend {})", option(first)),
        ([], [first, ..]) => format!("{first} could be had: see the ways in"),
        ([], []) => "none that gdmedia can use is there".into(),
    };
    let idle = idle(s);
    let beside = idle.map_or_else(String::new, |i| format!(", {i:.1} of {} cores are idle", s.cores));
    if most > THREAD_FULL {
        return it(Helps::Yes, format!("one stream takes {} of its thread's core with sockets; {with}", percent(most)));
    }
    if idle.is_some_and(|i| all > i * CORES_FULL) {
        let share = format!("sockets take {} of a core for {packets} packets a second{beside}", percent(all));
        // What others take is not given back by a leaner way in.
        if all < 0.25 * f64::from(s.cores) {
            return it(Helps::Little, format!("{share}: stop or move what keeps them busy; {with}"));
        }
        return it(Helps::Yes, format!("{share}; {with}"));
    }
    if let Some(ms) = s.buffer_ms.filter(|ms| *ms < 5.0) {
        let reason =
            format!("the socket buffer holds {ms:.1} ms only; raising net.core.rmem_max is the simpler cure; {with}");
        return it(Helps::Yes, reason);
    }
    it(Helps::Little, format!("sockets take {} of a core{beside}; {with}", percent(all)))
}

fn rdma(s: &Situation) -> Technique {
    let it = |helps, reason: String| Technique { name: "gpudirect-rdma", helps, reason };
    if s.source == Source::Storage {
        return it(Helps::Cannot, "data comes from a file, not from a card".into());
    }
    let Some(gpu) = &s.gpu else { return it(Helps::Cannot, "there is no GPU".into()) };
    if !s.direct_card {
        let driver = if s.driver.is_empty() { "no card" } else { &s.driver };
        return it(Helps::Cannot, format!("cards of the mlx5 family write into memory of a GPU; here: {driver}"));
    }
    match gpu.near {
        Some(Near::Switch | Near::Root) => {}
        Some(near) => {
            return it(
                Helps::Cannot,
                format!(
                    "the card is {}: writes from device to device between root complexes are slow or lost",
                    near.as_str()
                ),
            );
        }
        None => return it(Helps::NotKnown, "how near card and GPU are is not known".into()),
    }
    if !gpu.closed.is_empty() {
        return it(Helps::Cannot, format!("{}: see the steps to the GPU", gpu.closed.join("; ")));
    }
    let wanted: u64 = s.streams.iter().map(|s| s.bits_per_second * s.legs.len().max(1) as u64).sum();
    let crossing = s
        .loads
        .iter()
        .filter(|l| l.bus && l.wanted > 0)
        .max_by(|a, b| a.share().unwrap_or(0.0).total_cmp(&b.share().unwrap_or(0.0)));
    let near = gpu.near.map_or("", Near::as_str);
    let busiest = crossing.and_then(|l| Some((l, l.share()?)));
    let uses = by_card(s).map_or_else(|| "gdmedia cannot use it yet".to_owned(), |way| format!("{way} does it"));
    match busiest {
        Some((load, share)) if share > 0.5 => it(
            Helps::Yes,
            format!("card and GPU are {near}, and by way of the host the bus carries {}; {uses}", load.words()),
        ),
        _ if wanted == 0 => it(Helps::NotKnown, format!("card and GPU are {near}; no rate to judge by; {uses}")),
        _ => it(
            Helps::Little,
            format!(
                "card and GPU are {near}, but {} by way of the host is little for the bus, and costs {:.0} us a frame (H200, p50, loopback); {uses}",
                gbits(wanted),
                GPU_US
            ),
        ),
    }
}

fn gds(s: &Situation) -> Technique {
    let it = |helps, reason: &str| Technique { name: "gpudirect-storage", helps, reason: reason.into() };
    match s.source {
        Source::Network => it(Helps::Cannot, "data comes from the network: there is no file to read"),
        Source::Unknown => {
            it(Helps::NotKnown, "it reads and writes files; no flow from the network gets anything from it")
        }
        Source::Storage if s.gpu.is_none() => it(Helps::Cannot, "there is no GPU to read into"),
        Source::Storage => {
            let there = if s.storage { "it is installed, but " } else { "it is not installed, and " };
            let reason = format!(
                "{there}a capture has headers between its payload, which the CPU must read; gdmedia does not use it"
            );
            Technique { name: "gpudirect-storage", helps: Helps::Cannot, reason }
        }
    }
}

fn overlap(s: &Situation, gpu: bool) -> Technique {
    let it = |helps, reason: String| Technique { name: "stream-overlap", helps, reason };
    if !gpu {
        let why = if s.gpu.is_some() { "the GPU cannot be used" } else { "there is no GPU" };
        return it(
            Helps::Cannot,
            format!("{why}; the CPU unpacks while packets leave the receive buffer, so nothing is left to overlap"),
        );
    }
    it(
        Helps::Yes,
        format!(
            "always done: copies and kernels run while a frame arrives; {:.0} us after its last packet instead of {WHOLE_US:.0} (H200, 2160p59.94, p50)",
            GPU_US
        ),
    )
}

/// What `--backend` calls a way in.
fn option(way: &str) -> &'static str {
    match way {
        "Rivermax" => "rivermax",
        "verbs" => "verbs",
        _ => "xdp",
    }
}

fn percent(cores: f64) -> String {
    if cores < 0.1 { format!("{:.1} %", cores * 100.0) } else { format!("{:.0} %", cores * 100.0) }
}

fn round(x: f64) -> f64 {
    (x * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1920x1080 or 3840x2160, 59.94, 4:2:2 10 bit, as the estimate of an SDP has them.
    fn hd() -> Stream {
        Stream {
            sdp: "x.sdp".into(),
            flow: 0,
            picture: String::new(),
            bits_per_second: 2_585_267_532,
            packets_per_second: 258_941,
            packet_octets: 1248,
            packet_octets_max: 1480,
            frame_us: 16_683,
            legs: Vec::new(),
            clocks: Vec::new(),
        }
    }
    fn uhd() -> Stream {
        Stream { bits_per_second: 10_341_070_129, packets_per_second: 1_035_764, ..hd() }
    }

    fn port(gigabits: u64, streams: &[Stream]) -> Load {
        let wanted = streams.iter().map(|s| s.bits_per_second).sum();
        Load { link: "the port eno1".into(), wanted, capacity: Some(gigabits * 1_000_000_000), bus: false }
    }

    /// 16 cores, of which one is busy, and no GPU.
    fn server(gigabits: u64, streams: Vec<Stream>) -> Situation {
        Situation {
            source: Source::Network,
            loads: vec![port(gigabits, &streams)],
            streams,
            cores: 16,
            busy: Some(1.0),
            buffer_ms: Some(260.0),
            driver: "mlx5_core".into(),
            direct_card: true,
            ..Situation::default()
        }
    }

    fn gpu(near: Near) -> Option<GpuFacts> {
        Some(GpuFacts { usable: true, near: Some(near), closed: Vec::new() })
    }

    fn bus(gigabits: u64, streams: &[Stream]) -> Load {
        Load { link: "the PCIe link 0000:16:00.0 (eno1)".into(), bus: true, ..port(gigabits, streams) }
    }

    struct Case {
        name: &'static str,
        facts: Situation,
        verdict: Verdict,
        /// Kernel bypass, GPUDirect RDMA, GPUDirect Storage, overlap.
        helps: [Helps; 4],
        /// Words of the summary, and of one reason.
        words: [&'static str; 2],
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn a_dozen_situations() {
        use Helps::{Cannot, Little, NotKnown, Yes};
        use Verdict::{CannotReceive, CouldBeBetter, Good};
        let four = || vec![uhd(), uhd(), uhd(), uhd()];
        let cases = [
            Case {
                name: "1080p59.94 on a port of 1 Gb/s",
                facts: server(1, vec![hd()]),
                verdict: CannotReceive,
                helps: [Cannot, Cannot, Cannot, Cannot],
                words: ["2.59 Gb/s of 1 Gb/s on the port eno1", "changes nothing about what keeps"],
            },
            Case {
                name: "1080p59.94 on 10 Gb/s, no GPU",
                facts: server(10, vec![hd()]),
                verdict: Good,
                helps: [Little, Cannot, Cannot, Cannot],
                words: [
                    "258941 packets a second cost 11 % of a core",
                    "sockets take 11 % of a core, 15.0 of 16 cores are idle; none",
                ],
            },
            Case {
                name: "four of 2160p59.94 on 25 Gb/s, no GPU",
                facts: server(25, four()),
                verdict: CannotReceive,
                helps: [Cannot, Cannot, Cannot, Cannot],
                words: [
                    "41.36 Gb/s of 25 Gb/s on the port eno1; receive fewer streams here, or by a faster port",
                    "there is no GPU",
                ],
            },
            Case {
                name: "the same on 100 Gb/s",
                facts: server(100, four()),
                verdict: Good,
                helps: [Little, Cannot, Cannot, Cannot],
                words: ["4143056 packets a second cost 124 % of a core", "sockets take 124 % of a core"],
            },
            Case {
                name: "the same with 3 cores",
                facts: Situation { cores: 3, ..server(100, four()) },
                verdict: CouldBeBetter,
                helps: [Yes, Cannot, Cannot, Cannot],
                words: [
                    "4143056 packets",
                    "sockets take 124 % of a core for 4143056 packets a second, 2.0 of 3 cores are idle; none that gdmedia can use",
                ],
            },
            Case {
                name: "a stream that is too much for one thread, AF_XDP there",
                facts: Situation {
                    bypass: vec!["AF_XDP"],
                    ..server(
                        100,
                        vec![Stream { packets_per_second: 2_500_000, bits_per_second: 25_000_000_000, ..uhd() }],
                    )
                },
                verdict: CouldBeBetter,
                helps: [Yes, Cannot, Cannot, Cannot],
                words: [
                    "75 % of a core",
                    "one stream takes 75 % of its thread's core with sockets; AF_XDP is there (--backend xdp)",
                ],
            },
            Case {
                name: "others keep all cores busy",
                facts: Situation { busy: Some(15.9), ..server(10, vec![hd()]) },
                verdict: CouldBeBetter,
                helps: [Little, Cannot, Cannot, Cannot],
                words: ["11 % of a core", "0.1 of 16 cores are idle: stop or move what keeps them busy"],
            },
            Case {
                name: "a socket buffer of 0.8 ms, AF_XDP mendable",
                facts: Situation {
                    buffer_ms: Some(0.8),
                    mendable: vec!["AF_XDP"],
                    better: 1,
                    ..server(10, vec![hd()])
                },
                verdict: CouldBeBetter,
                helps: [Yes, Cannot, Cannot, Cannot],
                words: [
                    "sockets receive it",
                    "holds 0.8 ms only; raising net.core.rmem_max is the simpler cure; AF_XDP could be had",
                ],
            },
            Case {
                name: "four with a GPU behind the same switch, by way of the host little for the bus",
                facts: {
                    let s = server(100, four());
                    Situation { gpu: gpu(Near::Switch), loads: vec![port(100, &four()), bus(252, &four())], ..s }
                },
                verdict: Good,
                helps: [Little, Little, Cannot, Yes],
                words: [
                    "unpacked on the GPU",
                    "behind the same PCIe switch, but 41.36 Gb/s by way of the host is little for the bus, and costs 28 us a frame",
                ],
            },
            Case {
                name: "the same where the switch's own link is narrow",
                facts: {
                    let s = server(100, four());
                    Situation { gpu: gpu(Near::Switch), loads: vec![port(100, &four()), bus(63, &four())], ..s }
                },
                verdict: Good,
                helps: [Little, Yes, Cannot, Yes],
                words: [
                    "unpacked on the GPU",
                    "the bus carries 41.36 Gb/s of 63 Gb/s on the PCIe link 0000:16:00.0 (eno1); gdmedia cannot use it yet",
                ],
            },
            Case {
                name: "the same where it is too narrow",
                facts: {
                    let s = server(100, four());
                    Situation { gpu: gpu(Near::Switch), loads: vec![port(100, &four()), bus(31, &four())], ..s }
                },
                verdict: CannotReceive,
                helps: [Cannot, Yes, Cannot, Yes],
                words: [
                    "41.36 Gb/s of 31 Gb/s on the PCIe link 0000:16:00.0 (eno1); put streams on a card behind another link",
                    "28 us after its last packet instead of 635",
                ],
            },
            Case {
                name: "a GPU at another NUMA node",
                facts: Situation { gpu: gpu(Near::Far), better: 1, ..server(100, vec![uhd()]) },
                verdict: CouldBeBetter,
                helps: [Little, Cannot, Cannot, Yes],
                words: ["unpacked on the GPU", "the card is at another NUMA node: writes from device to device"],
            },
            Case {
                name: "a GPU, and a card that cannot write to it",
                facts: Situation {
                    gpu: gpu(Near::Root),
                    direct_card: false,
                    driver: "ice".into(),
                    ..server(100, vec![uhd()])
                },
                verdict: Good,
                helps: [Little, Cannot, Cannot, Yes],
                words: ["unpacked on the GPU", "cards of the mlx5 family write into memory of a GPU; here: ice"],
            },
            Case {
                name: "a GPU whose memory is closed to cards",
                facts: Situation {
                    gpu: Some(GpuFacts { closed: vec!["BAR1 has 256 MiB only".into()], ..gpu(Near::Switch).unwrap() }),
                    ..server(100, vec![uhd()])
                },
                verdict: Good,
                helps: [Little, Cannot, Cannot, Yes],
                words: [
                    "1035764 packets a second cost 31 % of a core",
                    "BAR1 has 256 MiB only: see the steps to the GPU",
                ],
            },
            Case {
                name: "from a file, with a GPU",
                facts: Situation {
                    source: Source::Storage,
                    gpu: gpu(Near::Far),
                    storage: true,
                    ..server(100, vec![hd()])
                },
                verdict: Good,
                helps: [Cannot, Cannot, Cannot, Yes],
                words: [
                    "a capture is read by the CPU as fast as it goes, unpacked on the GPU",
                    "it is installed, but a capture has headers between its payload",
                ],
            },
            Case {
                name: "a port that is nearly full",
                facts: Situation {
                    loads: vec![Load {
                        link: "the port eno1".into(),
                        wanted: 23_000_000_000,
                        capacity: Some(25_000_000_000),
                        bus: false,
                    }],
                    ..server(100, vec![hd()])
                },
                verdict: CouldBeBetter,
                helps: [Little, Cannot, Cannot, Cannot],
                words: ["sockets receive it", "there is no GPU"],
            },
            Case {
                name: "from a file, which may take the time that it needs",
                facts: Situation { source: Source::Storage, cores: 3, ..server(100, four()) },
                verdict: Good,
                helps: [Cannot, Cannot, Cannot, Cannot],
                words: ["a capture is read by the CPU as fast as it goes", "data comes from a file"],
            },
            Case {
                name: "no SDP",
                facts: Situation { source: Source::Unknown, loads: Vec::new(), ..server(100, Vec::new()) },
                verdict: Good,
                helps: [NotKnown, Cannot, NotKnown, Cannot],
                words: ["no SDP was given", "no rate to judge by"],
            },
            Case {
                name: "interface down",
                facts: Situation { blocked: vec!["eno1: link down".into(), "x".into()], ..server(10, vec![hd()]) },
                verdict: CannotReceive,
                helps: [Cannot, Cannot, Cannot, Cannot],
                words: ["this SDP cannot be received here: eno1: link down, and 1 more", "changes nothing"],
            },
        ];
        for case in cases {
            let advice = advise(&case.facts);
            assert_eq!(advice.verdict, case.verdict, "{}: {advice:#?}", case.name);
            let helps: Vec<Helps> = advice.techniques.iter().map(|t| t.helps).collect();
            assert_eq!(helps, case.helps, "{}: {advice:#?}", case.name);
            let [summary, reason] = case.words;
            assert!(advice.summary.contains(summary), "{}: {}", case.name, advice.summary);
            assert!(advice.techniques.iter().any(|t| t.reason.contains(reason)), "{}: {advice:#?}", case.name);
            assert_eq!(advice.receive_by.is_none(), case.verdict == CannotReceive, "{}", case.name);
        }
    }

    #[test]
    fn figures_are_those_of_the_table_of_results() {
        let one = advise(&server(10, vec![hd()]));
        assert_eq!(one.cpu, Some(Cpu { packets_per_second: 258_941, cores_needed: 0.109, cores_idle: Some(15.0) }));
        assert_eq!(one.latency, Some(Latency { frame_ms: 16.683, sleep_ms: 1.0, finish_ms: 0.018 }));
        let results = include_str!("../../benches/RESULTS.md");
        for figure in [
            "| 1080p59.94 | 1 of 60 s | 3596 | 0 | 0 | 0 | 0 | 0.419 |",
            "| 2160p59.94 | 1 of 30 s | 1793 | 0 | 0 | 0 | 0 | 0.301 |",
            "| while it arrives | 1 | 60 s | 3572 | 27.7 |",
            "| whole frame after the marker | 1 | 60 s | 3596 | 635.4 |",
            "| on the CPU (AVX2), to compare | 1 | 10 s | 600 | 17.7 |",
        ] {
            assert!(results.contains(figure), "{figure} is no longer in benches/RESULTS.md");
        }
    }

    #[test]
    fn two_legs_are_twice_the_packets() {
        use super::super::flows::Way;
        let leg = Way {
            destination: [239, 1, 1, 1].into(),
            port: 5004,
            sources: crate::sdp::SourceFilter::Any,
            interface: None,
        };
        let two = Stream { legs: vec![leg.clone(), leg], ..hd() };
        assert_eq!(advise(&server(100, vec![two])).cpu.map(|c| c.packets_per_second), Some(517_882));
    }
}
