//! Of each receiver. Snapshots are read, and nothing is computed that could make a counter go back.

use super::text::{Kind, Text};
use super::unix;
use crate::daemon::control::{Receiver, SinkState, State as Doing};
use crate::health::{Domain, LegState};
use crate::pipeline::meter::{LegTiming, Range};
use crate::stats::{LegCounters, Reason};
use crate::timing::Class;
use crate::worker::Report;
use std::collections::HashSet;
use std::sync::Arc;

/// RTP's ticks a second in video.
const TICKS: f64 = 90_000.0;

type All<'a> = &'a [Arc<Receiver>];
/// What is counted, of what it is counted in.
type Count<T> = fn(&T) -> u64;
/// A metric's name, its help, and its value.
type Counter<T> = (&'static str, &'static str, Count<T>);

pub(super) fn write(text: &mut Text, all: All<'_>) {
    doing(text, all);
    health(text, all);
    legs(text, all);
    packets(text, all);
    frames(text, all);
    timing(text, all);
    latency(text, all);
    sinks(text, all);
}

fn doing(text: &mut Text, all: All<'_>) {
    text.metric("gdmedia_receiver_info", Kind::Gauge, "What a receiver is, always 1.");
    for r in all {
        let format = r.flow.as_ref().and_then(|flow| flow["format"].as_str()).unwrap_or_default();
        text.count(
            &[
                ("receiver", &r.id),
                ("label", &r.label),
                ("format", format),
                ("backend", r.backend.as_deref().unwrap_or_default()),
                ("processor", r.processor.as_deref().unwrap_or_default()),
            ],
            1,
        );
    }
    text.metric("gdmedia_receiver_state", Kind::Gauge, "What a receiver does: 1 for the state that it is in, else 0.");
    for r in all {
        for state in Doing::ALL {
            text.count(&[("receiver", &r.id), ("state", state.name())], (r.state == state).into());
        }
    }
    text.metric(
        "gdmedia_receiver_state_since_seconds",
        Kind::Gauge,
        "When it came into its state, seconds since 1970.",
    );
    all.iter().for_each(|r| text.sample(&[("receiver", &r.id)], unix(r.since)));
    text.metric(
        "gdmedia_receiver_restarts_total",
        Kind::Counter,
        "Times that a receiver was begun again after a failure.",
    );
    all.iter().for_each(|r| text.count(&[("receiver", &r.id)], r.restarts));
    text.metric("gdmedia_receiver_switches_total", Kind::Counter, "Times that a receiver was switched to another SDP.");
    all.iter().for_each(|r| text.count(&[("receiver", &r.id)], r.switches));
}

fn health(text: &mut Text, all: All<'_>) {
    const DOMAINS: [(Domain, &str); 5] = [
        (Domain::Overall, "overall"),
        (Domain::Link, "link"),
        (Domain::Connection, "connection"),
        (Domain::ExternalSynchronization, "sync"),
        (Domain::Stream, "stream"),
    ];
    let readings = || {
        all.iter()
            .filter_map(|r| Some((r, r.health.as_ref()?)))
            .flat_map(|(r, health)| DOMAINS.map(|(domain, name)| (r.id.as_str(), name, health.of(domain))))
    };
    text.metric(
        "gdmedia_status",
        Kind::Gauge,
        "Status of BCP-008-01: 0 inactive or not used, 1 healthy, 2 partially healthy, 3 unhealthy.",
    );
    for (id, domain, reading) in readings() {
        text.count(&[("receiver", id), ("domain", domain)], reading.health as u64);
    }
    text.metric("gdmedia_status_transitions_total", Kind::Counter, "Times that a status became less healthy.");
    for (id, domain, reading) in readings() {
        text.count(&[("receiver", id), ("domain", domain)], reading.transitions);
    }
    text.metric(
        "gdmedia_leg_state",
        Kind::Gauge,
        "What a leg is worth (ST 2022-7): 1 for the state that it is in, else 0.",
    );
    for r in all {
        for (n, state) in r.health.iter().flat_map(|health| &health.legs).enumerate() {
            for one in [LegState::Protected, LegState::Unprotected, LegState::Silent] {
                let labels = [("receiver", r.id.as_str()), ("leg", &*n.to_string()), ("state", one.name())];
                text.count(&labels, (*state == one).into());
            }
        }
    }
}

fn reports<'a>(all: All<'a>) -> impl Iterator<Item = (&'a str, &'a Report)> {
    all.iter().filter_map(|r| Some((r.id.as_str(), r.report.as_deref()?)))
}

fn legs(text: &mut Text, all: All<'_>) {
    const COUNTERS: [Counter<LegCounters>; 7] = [
        ("gdmedia_rx_packets_total", "Packets of the flow that a leg brought in time.", |leg| leg.received),
        ("gdmedia_rx_lost_packets_total", "Packets that a leg did not bring in time, before legs are merged.", |leg| {
            leg.lost
        }),
        ("gdmedia_rx_late_packets_total", "Packets that a leg brought too late to be used.", |leg| leg.late),
        ("gdmedia_rx_reordered_total", "Packets that came after one with a higher number by this leg.", |leg| {
            leg.reordered
        }),
        ("gdmedia_rx_duplicate_packets_total", "Further copies of a packet by the same leg.", |leg| leg.duplicate),
        ("gdmedia_rx_redundant_packets_total", "Packets that another leg had brought before.", |leg| leg.redundant),
        ("gdmedia_rx_foreign_packets_total", "Packets of another sender than the one that is followed.", |leg| {
            leg.foreign
        }),
    ];
    for (name, help, count) in COUNTERS {
        text.metric(name, Kind::Counter, help);
        for (id, report) in reports(all) {
            for (n, leg) in report.legs.iter().enumerate() {
                text.count(&[("receiver", id), ("leg", &n.to_string())], count(leg));
            }
        }
    }
    text.metric(
        "gdmedia_leg_skew_seconds",
        Kind::Gauge,
        "How far a leg lies behind the first one, last packet that was measured.",
    );
    for (id, report) in reports(all) {
        for (n, leg) in report.legs.iter().enumerate().filter(|(_, leg)| leg.skew.samples > 0) {
            text.sample(&[("receiver", id), ("leg", &n.to_string())], leg.skew.last_ns as f64 / 1e9);
        }
    }
}

fn packets(text: &mut Text, all: All<'_>) {
    const COUNTERS: [Counter<Report>; 9] = [
        ("gdmedia_rx_bytes_total", "UDP payload that was received, by all legs.", |r| r.rx.octets),
        ("gdmedia_rx_datagrams_total", "Datagrams that were received, by all legs.", |r| r.rx.datagrams),
        ("gdmedia_rx_unrecovered_packets_total", "Packets that no leg brought in time.", |r| r.packets.lost),
        ("gdmedia_rx_merged_packets_total", "Packets of the flow, after legs were merged.", |r| r.packets.received),
        ("gdmedia_rx_sender_restarts_total", "Times that the sender started anew.", |r| r.packets.restarts),
        ("gdmedia_socket_drops_total", "Datagrams that this machine's socket buffer had no room for.", |r| {
            r.rx.kernel_dropped
        }),
        (
            "gdmedia_rx_overwritten_packets_total",
            "Packets that were overwritten in the ring before they were read.",
            |r| r.rx.overwritten,
        ),
        ("gdmedia_rx_starved_total", "Times that no memory was free for packets.", |r| r.rx.starved),
        ("gdmedia_nic_errors_total", "Completions that a network card gave with an error.", |r| r.rx.hardware_issues),
    ];
    for (name, help, count) in COUNTERS {
        text.metric(name, Kind::Counter, help);
        reports(all).for_each(|(id, report)| text.count(&[("receiver", id)], count(report)));
    }
    text.metric(
        "gdmedia_rx_rejected_packets_total",
        Kind::Counter,
        "Datagrams and segments that were not used, by reason.",
    );
    for (id, report) in reports(all) {
        for reason in Reason::ALL {
            let n = report.rx.rejected.get(reason) + report.packets.rejected.get(reason);
            text.count(&[("receiver", id), ("reason", reason.name())], n);
        }
    }
    text.metric("gdmedia_rx_lag_seconds", Kind::Gauge, "How far reading lies behind what arrives.");
    reports(all).for_each(|(id, report)| text.sample(&[("receiver", id)], report.busy.lag_ns as f64 / 1e9));
    text.metric("gdmedia_rx_shedding", Kind::Gauge, "1: whole frames are being dropped so that reading catches up.");
    reports(all).for_each(|(id, report)| text.count(&[("receiver", id)], report.busy.shedding.into()));
    text.metric("gdmedia_kernel_seconds_total", Kind::Counter, "Time in unpacking and in handing frames on.");
    reports(all).for_each(|(id, report)| text.sample(&[("receiver", id)], report.busy.kernel_ns as f64 / 1e9));
}

fn frames(text: &mut Text, all: All<'_>) {
    text.metric("gdmedia_frames_total", Kind::Counter, "Frames by what became of them; corrupt: octets are missing.");
    for (id, report) in reports(all) {
        let f = &report.frames;
        let states =
            [("complete", f.complete), ("corrupt", f.incomplete), ("dropped", f.dropped), ("skipped", f.acquiring)];
        for (state, n) in states {
            text.count(&[("receiver", id), ("state", state)], n);
        }
    }
    text.metric(
        "gdmedia_frames_dropped_total",
        Kind::Counter,
        "Frames that this machine dropped since it is too slow, by reason.",
    );
    for (id, report) in reports(all) {
        let f = &report.frames;
        text.count(&[("receiver", id), ("reason", "shed")], f.shed);
        text.count(&[("receiver", id), ("reason", "no_memory")], f.no_memory);
    }
    const COUNTERS: [Counter<Report>; 3] = [
        ("gdmedia_frames_torn_total", "Corrupt frames that were overwritten before they were read.", |r| r.frames.torn),
        (
            "gdmedia_frames_withheld_total",
            "Corrupt frames that were not delivered, as whole ones alone are wanted.",
            |r| r.frames.withheld,
        ),
        ("gdmedia_frames_missing_bytes_total", "Octets that are missing in corrupt frames.", |r| {
            r.frames.missing_octets
        }),
    ];
    for (name, help, count) in COUNTERS {
        text.metric(name, Kind::Counter, help);
        reports(all).for_each(|(id, report)| text.count(&[("receiver", id)], count(report)));
    }
}

fn timing(text: &mut Text, all: All<'_>) {
    let mut gauge = |name, help, value: fn(&LegTiming) -> Option<f64>| {
        text.metric(name, Kind::Gauge, help);
        for r in all {
            for leg in &r.timing {
                if let Some(value) = value(leg) {
                    text.sample(&[("receiver", &r.id), ("leg", &leg.leg.to_string())], value);
                }
            }
        }
    };
    fn mean(range: Option<Range>, unit: f64) -> Option<f64> {
        range.map(|range| range.mean / unit)
    }
    fn most(range: Option<Range>) -> Option<f64> {
        range.map(|range| range.max as f64)
    }
    gauge("gdmedia_first_packet_time_seconds", "First packet of a frame after N * TFRAME (ST 2110-21), mean.", |t| {
        mean(t.fpt_ns, 1e9)
    });
    gauge("gdmedia_vrx_packets", "Fill of the virtual receiver buffer (ST 2110-21), largest so far.", |t| most(t.vrx));
    gauge("gdmedia_cinst_packets", "Fill of the network compatibility bucket (ST 2110-21), largest so far.", |t| {
        most(t.cinst)
    });
    gauge("gdmedia_st2110_21_class", "Class of the sender: 1 narrow, 2 narrow linear, 3 wide, 0 none of them.", |t| {
        t.class.map(|class| match class {
            Class::NotCompliant => 0.0,
            Class::Narrow => 1.0,
            Class::NarrowLinear => 2.0,
            Class::Wide => 3.0,
        })
    });
    gauge("gdmedia_rtp_offset_seconds", "Timestamp of RTP less that of N * TFRAME, mean.", |t| {
        mean(t.rtp_offset, TICKS)
    });
    gauge("gdmedia_rtp_latency_seconds", "First packet of a frame after its time of RTP, mean.", |t| {
        mean(t.latency_ns, 1e9)
    });
}

fn latency(text: &mut Text, all: All<'_>) {
    text.metric(
        "gdmedia_frame_latency_seconds",
        Kind::Summary,
        "How long frames take to come to a hop, after their last packet.",
    );
    for r in all {
        for hop in &r.latency {
            for (quantile, seconds) in &hop.quantiles {
                text.sample(&[("receiver", &r.id), ("hop", hop.name), ("quantile", &quantile.to_string())], *seconds);
            }
            let labels = [("receiver", r.id.as_str()), ("hop", hop.name)];
            text.part("_sum", &labels, hop.sum);
            text.part("_count", &labels, hop.count as f64);
        }
    }
}

fn sinks(text: &mut Text, all: All<'_>) {
    let sinks: Vec<(&str, String, &SinkState)> = all
        .iter()
        .flat_map(|r| {
            let mut names = HashSet::new();
            r.sinks.iter().map(move |sink| {
                // Two samples with the same labels would spoil the page.
                let mut name = sink.name.clone();
                let mut n = 1;
                while !names.insert(name.clone()) {
                    n += 1;
                    name = format!("{}#{n}", sink.name);
                }
                (r.id.as_str(), name, sink)
            })
        })
        .collect();
    const METRICS: [(&str, Kind, &str, Count<SinkState>); 5] = [
        ("gdmedia_sink_up", Kind::Gauge, "1: the sink takes frames.", |sink| sink.running.into()),
        ("gdmedia_sink_frames_total", Kind::Counter, "Frames that a sink took.", |sink| sink.frames),
        ("gdmedia_sink_drops_total", Kind::Counter, "Frames that a sink was too slow for.", |sink| sink.dropped),
        ("gdmedia_sink_queue_depth", Kind::Gauge, "Frames that wait for a sink.", |sink| sink.queued),
        ("gdmedia_sink_restarts_total", Kind::Counter, "Times that a sink was begun again after a failure.", |sink| {
            sink.restarts
        }),
    ];
    for (name, kind, help, value) in METRICS {
        text.metric(name, kind, help);
        for (receiver, sink, state) in &sinks {
            text.count(&[("receiver", receiver), ("sink", sink)], value(state));
        }
    }
}
