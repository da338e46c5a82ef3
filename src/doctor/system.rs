//! What is asked of the kernel and the drivers, as against what is read from files: so that tests can answer for machines
//! that they do not have.

use super::library;
use crate::gpu::{self, Choice};
use crate::rx::socket::{self, Interface};
use crate::rx::xdp;
use crate::unix::ethtool::{self, Ethtool};
use crate::unix::netlink::{self, Features, Route};
use std::net::IpAddr;
use std::time::Duration;

/// The answers.
pub trait System {
    /// All network interfaces.
    fn interfaces(&self) -> Vec<Interface>;
    /// The interface on which the receiver joins a group when none is named.
    fn way_to(&self, group: IpAddr) -> Option<String>;
    /// Where packets to an address go: interface and router; none where no route leads there.
    fn route(&self, to: IpAddr) -> Result<Option<Route>, String>;
    /// The driver of an interface.
    fn ethtool(&self, interface: &str) -> Ethtool;
    /// XDP at an interface.
    fn xdp(&self, interface: &Interface) -> Xdp;
    /// The first of these libraries that is installed.
    fn library<'a>(&self, names: &[&'a str]) -> Option<&'a str>;
    /// The kernel has AF_XDP.
    fn af_xdp(&self) -> bool;
    /// Seconds that the kernel's TAI is ahead of its UTC; none where it was never told.
    fn tai_offset(&self) -> Option<i64>;
    /// Cores that are busy on average, measured for a moment.
    fn busy_cores(&self) -> Option<f64>;
    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;
    /// Which ways in this gdmedia can use, besides sockets.
    fn uses(&self) -> Uses;
    /// The GPU that a run would use, nearest to an interface.
    fn gpu(&self, near: Option<&str>) -> Cuda;
}

/// XDP at a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xdp {
    /// What the driver can do; none where the kernel does not say.
    pub features: Option<Features>,
    /// A program there that is not gdmedia's: its number, and where it runs.
    pub foreign: Option<(u32, xdp::Attached)>,
}

/// Ways in that this gdmedia was built with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// NVIDIA Rivermax.
    pub rivermax: bool,
    /// ibverbs.
    pub verbs: bool,
    /// DPDK, and which one.
    pub dpdk: Option<&'static str>,
}

/// A GPU as its driver tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cuda {
    /// Which one, or why none.
    pub why: String,
    /// PCI address of the one that is used.
    pub address: Option<String>,
    /// Its memory can be given to other drivers as dma-buf.
    pub dma_buf: Option<bool>,
    /// Free octets of BAR1.
    pub bar1_free: Option<u64>,
}

/// This machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Here;

impl System for Here {
    fn interfaces(&self) -> Vec<Interface> {
        socket::interfaces()
    }
    fn way_to(&self, group: IpAddr) -> Option<String> {
        socket::by_route(group).map(|i| i.name)
    }
    fn route(&self, to: IpAddr) -> Result<Option<Route>, String> {
        netlink::route(to).map_err(|e| e.to_string())
    }
    fn ethtool(&self, interface: &str) -> Ethtool {
        ethtool::ask(interface)
    }
    fn xdp(&self, interface: &Interface) -> Xdp {
        let running = xdp::running(&interface.name).ok().flatten();
        Xdp {
            features: netlink::features(interface.index),
            foreign: running.filter(|r| !r.ours).map(|r| (r.id, r.attached)),
        }
    }
    fn library<'a>(&self, names: &[&'a str]) -> Option<&'a str> {
        library::first(names)
    }
    fn af_xdp(&self) -> bool {
        let made = socket2::Socket::new(socket2::Domain::from(libc::AF_XDP), socket2::Type::from(libc::SOCK_RAW), None);
        // Without the right to open one the kernel says so; without AF_XDP it does not know the family.
        made.map_or_else(|e| e.raw_os_error() == Some(libc::EPERM), |_| true)
    }
    fn tai_offset(&self) -> Option<i64> {
        socket::kernel_tai_offset().map(|ns| ns / 1_000_000_000)
    }
    fn busy_cores(&self) -> Option<f64> {
        let before = busy_ticks()?;
        std::thread::sleep(Duration::from_millis(200));
        let after = busy_ticks()?;
        let all = after.1.checked_sub(before.1).filter(|n| *n > 0)?;
        let cores = std::thread::available_parallelism().ok()?.get() as f64;
        Some(after.0.saturating_sub(before.0) as f64 / all as f64 * cores)
    }
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|v| !v.is_empty())
    }
    fn uses(&self) -> Uses {
        #[cfg(feature = "dpdk")]
        let dpdk = Some(crate::rx::dpdk::version());
        #[cfg(not(feature = "dpdk"))]
        let dpdk = None;
        Uses { rivermax: cfg!(feature = "rivermax"), verbs: cfg!(feature = "verbs"), dpdk }
    }
    #[cfg(feature = "cuda")]
    fn gpu(&self, near: Option<&str>) -> Cuda {
        use gpu::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED as DMA_BUF;
        match gpu::choose(Choice::Auto, near) {
            Ok(gpu::Found { gpu: Some(gpu), why }) => Cuda {
                why,
                address: Some(gpu.address().to_ascii_lowercase()).filter(|a| !a.is_empty()),
                dma_buf: gpu.attribute(DMA_BUF).ok().map(|n| n != 0),
                bar1_free: gpu.bar1().ok().map(|b| b.free),
            },
            Ok(gpu::Found { gpu: None, why }) => Cuda { why, ..Cuda::default() },
            Err(error) => Cuda { why: error.to_string(), ..Cuda::default() },
        }
    }
    #[cfg(not(feature = "cuda"))]
    fn gpu(&self, near: Option<&str>) -> Cuda {
        let why = gpu::choose(Choice::Auto, near).map_or_else(|e| e.to_string(), |found| found.why);
        Cuda { why, ..Cuda::default() }
    }
}

/// Busy and all ticks since the start, from the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq,
/// steal.
fn busy_ticks() -> Option<(u64, u64)> {
    ticks(&std::fs::read_to_string("/proc/stat").ok()?)
}

fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Vec<u64> = line.split_ascii_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    let all: u64 = numbers.iter().sum();
    let idle = numbers.get(3)? + numbers.get(4).unwrap_or(&0);
    Some((all - idle, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_busy_or_idle() {
        assert_eq!(ticks("cpu  10 1 5 100 20 2 3 4 7 7\ncpu0 1 2"), Some((25, 145)));
        assert_eq!(ticks("cpu0 1 2 3 4"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn this_machine_answers() {
        let here = Here;
        let lo = here.interfaces().into_iter().find(|i| i.name == "lo").unwrap();
        assert_eq!(here.way_to([127, 0, 0, 1].into()).as_deref(), Some("lo"));
        assert_eq!(here.route([127, 0, 0, 1].into()).unwrap().map(|r| r.index), Some(lo.index));
        let cores = std::thread::available_parallelism().unwrap().get() as f64;
        assert!((0.0..=cores).contains(&here.busy_cores().unwrap()));
        assert!(!here.gpu(None).why.is_empty());
    }
}
