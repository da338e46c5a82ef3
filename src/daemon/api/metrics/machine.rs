//! Of the machine that receivers are on: clocks, cards, GPUs, cores.

use super::text::{Kind, Text};
use crate::daemon::control::Receiver;
use crate::ptp;
use std::collections::BTreeMap;
use std::sync::Arc;

type All<'a> = &'a [Arc<Receiver>];

pub(super) fn write(text: &mut Text, all: All<'_>) {
    clock(text, all);
    cards(text, all);
    gpus(text, all);
    cores(text, all);
}

/// What ptp4l says, as each receiver asks it: in the domains that its SDP names. Nothing where it does not answer.
fn clock(text: &mut Text, all: All<'_>) {
    let seen = || all.iter().filter_map(|r| Some((r.id.as_str(), r.ptp?)));
    let states = || seen().filter_map(|(id, seen)| Some((id, seen.ptp.ok()?)));
    text.metric(
        "gdmedia_ptp_locked",
        Kind::Gauge,
        "1: this machine follows a PTP master and is settled; absent where ptp4l does not answer.",
    );
    let locked = |state: &ptp::State| state.is_locked() && state.grandmaster.is_some();
    states().for_each(|(id, state)| text.count(&[("receiver", id)], locked(&state).into()));
    text.metric("gdmedia_ptp_offset_seconds", Kind::Gauge, "How far ptp4l's clock is ahead of its master.");
    for (id, state) in states() {
        if let Some(ns) = state.offset_ns {
            text.sample(&[("receiver", id)], ns as f64 / 1e9);
        }
    }
    text.metric("gdmedia_ptp_path_delay_seconds", Kind::Gauge, "The way to the master.");
    for (id, state) in states() {
        if let Some(ns) = state.path_delay_ns {
            text.sample(&[("receiver", id)], ns as f64 / 1e9);
        }
    }
    text.metric("gdmedia_ptp_card_offset_seconds", Kind::Gauge, "How far the card's clock is ahead of the system's.");
    for (id, seen) in seen() {
        if let Some(ns) = seen.card_ahead_ns {
            text.sample(&[("receiver", id)], ns as f64 / 1e9);
        }
    }
    text.metric("gdmedia_ptp_grandmaster_info", Kind::Gauge, "The grandmaster and its PTP domain, always 1.");
    for (id, state) in states() {
        if let Some(gm) = state.grandmaster {
            text.count(&[("receiver", id), ("gm", &gm.to_string()), ("domain", &state.domain.to_string())], 1);
        }
    }
    text.metric(
        "gdmedia_ptp_source_changes_total",
        Kind::Counter,
        "Times that the grandmaster was another one than before.",
    );
    // Nobody who never had one has changed it.
    let used = |seen: &ptp::Seen| seen.ptp.is_ok() || seen.grandmaster_changes > 0 || seen.unlocked > 0;
    for (id, seen) in seen().filter(|(_, seen)| used(seen)) {
        text.count(&[("receiver", id)], seen.grandmaster_changes);
    }
    text.metric("gdmedia_ptp_unlocked_total", Kind::Counter, "Times that it stopped following a master.");
    for (id, seen) in seen().filter(|(_, seen)| used(seen)) {
        text.count(&[("receiver", id)], seen.unlocked);
    }
}

/// A card that several receivers have is the same card.
fn cards(text: &mut Text, all: All<'_>) {
    let mut cards: BTreeMap<&str, u64> = BTreeMap::new();
    for card in all.iter().flat_map(|r| &r.cards) {
        let packets = cards.entry(&card.interface).or_default();
        *packets = card.packets.max(*packets);
    }
    text.metric(
        "gdmedia_nic_hw_drops_total",
        Kind::Counter,
        "Packets that a network card dropped before the kernel saw them, since the card began to count.",
    );
    for (interface, packets) in cards {
        text.count(&[("interface", interface)], packets);
    }
}

fn gpus(text: &mut Text, all: All<'_>) {
    let mut gpus: BTreeMap<&str, u64> = BTreeMap::new();
    for memory in all.iter().filter_map(|r| r.gpu_memory.as_ref()) {
        // The one that looked last is not known; they look every second.
        let octets = gpus.entry(&memory.gpu).or_default();
        *octets = memory.octets.max(*octets);
    }
    text.metric("gdmedia_gpu_mem_bytes", Kind::Gauge, "Memory of a GPU that the receivers have, all together.");
    for (gpu, octets) in gpus {
        text.count(&[("gpu", gpu)], octets);
    }
}

fn cores(text: &mut Text, all: All<'_>) {
    let optional = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    text.metric(
        "gdmedia_worker_info",
        Kind::Gauge,
        "Core and NUMA node of the receiving thread, empty where the scheduler chooses; always 1.",
    );
    for r in all {
        if let Some(placement) = &r.placement {
            let core = optional(placement.core.map(|core| core as u64));
            let node = optional(placement.node.map(u64::from));
            text.count(&[("receiver", &r.id), ("core", &core), ("node", &node)], 1);
        }
    }
}
