//! Reception by DPDK, on virtual devices, and on a stand-in for cards. What every receiver does is in `receivers`; here is what is
//! DPDK's own: what is missing and how it is said, ports that come and go in one process, who answers ARP and queries, what cards
//! do, and the program.
#![cfg(feature = "dpdk")]

mod cards;
#[path = "../common/mod.rs"]
mod common;
mod corpus;
mod failures;
#[cfg(feature = "cuda")]
mod gpu;
#[path = "../netns/mod.rs"]
mod netns;
#[cfg(feature = "cuda")]
#[path = "../support/on_gpu.rs"]
mod on_gpu;
#[cfg(feature = "cuda")]
#[path = "../support/played.rs"]
mod played;
mod ports;
mod program;
mod stand_in;
#[path = "../support/mod.rs"]
mod support;

/// DPDK starts once in a process: all tests that start it here say the same.
const EAL: &str = "--no-huge -m 192";

/// What DPDK is told, and a few buffers only.
fn options(words: &str) -> gdmedia::rx::dpdk::Options {
    let mut options = gdmedia::rx::dpdk::Options { packets: 1000, ..Default::default() };
    options.change(&format!("{words};eal={};descriptors=512", eal())).unwrap();
    options
}

/// Drivers that are not where DPDK looks for them: a file or a folder of them, in `GDMEDIA_DPDK_DRIVERS`.
fn eal() -> String {
    let elsewhere = std::env::var("GDMEDIA_DPDK_DRIVERS").map(|path| format!(" -d {path}")).unwrap_or_default();
    format!("{EAL}{elsewhere}")
}
