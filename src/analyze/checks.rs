//! What is judged of a capture and of its flows, and how badly each finding weighs.

use super::track::{Analysed, LegSeen};
use super::{Analysis, figures, report};
use crate::report::{Check, Severity, number};
use crate::rx::survey;
use crate::sdp::{self, ReferenceClock, SenderType};
use crate::time::Alignment as Lies;
use crate::timing::align::Alignment;
use crate::timing::audio::Audio;
use crate::timing::flow::Meter;
use crate::timing::frames::Frames;
use crate::timing::verdict::{Class, NO_GAPPED};
use crate::timing::windows::{self, Finding};

const US: f64 = 1000.0;

/// Gathers checks of one group.
struct Group<'a> {
    name: &'a str,
    out: Vec<Check>,
}

impl Group<'_> {
    fn add(&mut self, name: &str, severity: Severity, message: impl Into<String>, clause: &str) {
        self.out.push(Check {
            group: self.name.to_owned(),
            name: name.to_owned(),
            severity,
            message: message.into(),
            clause: clause.to_owned(),
        });
    }
    /// What was held against its window: where a standard has it and the stamps carry it, a failure.
    fn windows(&mut self, flow: &Analysed, m: usize, findings: Vec<Finding>) {
        for Finding { name, good, required, text, clause } in findings {
            let bad = if required { Severity::Failure } else { Severity::Warning };
            self.judge(&named(flow, m, name), good, bad, (text.clone(), text), clause);
        }
    }
    /// Passed with the one message, or not with the other.
    fn judge(&mut self, name: &str, good: bool, bad: Severity, messages: (String, String), clause: &str) {
        let (severity, message) = if good { (Severity::Pass, messages.0) } else { (bad, messages.1) };
        self.add(name, severity, message, clause);
    }
}

/// Of the file and the network.
pub(super) fn of_capture(a: &Analysis) -> Vec<Check> {
    let mut g = Group { name: "Capture", out: Vec::new() };
    let mut trouble = Vec::new();
    if a.capture.cut_short {
        trouble.push("the file ends within a record and was used up to there".to_owned());
    }
    for (count, what) in [
        (a.malformed, "frames have headers that contradict each other or are cut"),
        (a.fragments, "fragments of IP packets, which senders of ST 2110 may not make, were passed over"),
        (a.capture.other_link, "records are of link types that are not read here"),
        (a.beyond, "packets are of flows beyond those that are told apart"),
    ] {
        if count > 0 {
            trouble.push(format!("{count} {what}"));
        }
    }
    if a.stopped {
        trouble.push("the analysis was ended before the end of the file".into());
    }
    let good = format!("{} records were read", a.capture.records);
    g.judge("file", trouble.is_empty(), Severity::Warning, (good, trouble.join("; ")), "");
    let seen = a.flows.iter().any(|f| f.legs.iter().any(|l| l.packets > 0));
    if let Some(why) = &a.damaged {
        g.add("damage", Severity::Failure, format!("{why}; what lies before it was used"), "");
    }
    if !seen && a.flows.is_empty() {
        let severity = if a.ptp.messages > 0 { Severity::Warning } else { Severity::Failure };
        g.add("media", severity, "the capture holds no media flow", "");
    }
    for p in &a.pairs {
        let (least, most) = (number(p.skew.min as f64 / US), number(p.skew.max as f64 / US));
        let message = format!(
            "flows {} and {} are probably two legs of one: {} of {} sampled packets are the same, the second one {least} to {most} us \
             behind",
            p.flows.0, p.flows.1, p.compared.1, p.compared.0
        );
        g.add("legs", Severity::Pass, message, "ST 2022-7:2019");
    }
    if a.ptp.clock.count > 0 {
        let name = "capture's clock";
        match Lies::judge(a.ptp.clock.mean() as i64) {
            Lies::Aligned => g.add(name, Severity::Pass, "runs on PTP time, as Sync and Follow_Up say", ""),
            Lies::Utc => g.add(
                name,
                Severity::Warning,
                "lies 37 s from PTP time: it is UTC, not TAI; say --tai-offset 37 when the flows are TAI",
                "ST 2110-10:2022, 7.2",
            ),
            Lies::Free => {
                let s = a.ptp.clock.mean() / 1e9;
                g.add(name, Severity::Warning, format!("lies {} s from PTP time", number(s)), "");
            }
        }
    }
    if a.ptp.masters.len() > 1 {
        let names: Vec<String> =
            a.ptp.masters.iter().map(|m| format!("{} (domain {})", m.announce.grandmaster, m.domain)).collect();
        g.add("grandmaster", Severity::Warning, format!("several are announced: {}", names.join(", ")), "");
    }
    g.out
}

/// Of a flow.
pub(super) fn of_flow(a: &Analysis, flow: &Analysed, name: &str) -> Vec<Check> {
    let mut g = Group { name, out: Vec::new() };
    if flow.legs.iter().all(|l| l.packets == 0) {
        g.add("packets", Severity::Failure, "the SDP describes it, and nothing of it is in the capture", "");
        return g.out;
    }
    for (m, leg) in flow.legs.iter().enumerate() {
        of_leg(flow, m, leg, &mut g);
    }
    losses(flow, &mut g);
    if let Some(described) = &flow.described {
        reference(a, described, &mut g);
    }
    for m in 0..flow.legs.len() {
        let Some(meter) = flow.timing.meter(m) else { continue };
        clocks(flow, m, &mut g);
        match meter {
            Meter::Frames(frames) => of_frames(flow, m, frames, &mut g),
            Meter::Audio(audio) => of_audio(a, flow, m, audio, &mut g),
            Meter::Packets(_) => {}
            Meter::None(why) => g.add(&named(flow, m, "timing"), Severity::NotMeasurable, *why, ""),
        }
    }
    g.out
}

fn named(flow: &Analysed, m: usize, what: &str) -> String {
    if flow.legs.len() > 1 { format!("{what}, leg {m}") } else { what.to_owned() }
}

fn of_leg(flow: &Analysed, m: usize, leg: &LegSeen, g: &mut Group<'_>) {
    if leg.packets == 0 {
        g.add(&named(flow, m, "packets"), Severity::Failure, "nothing came by this leg", "ST 2022-7:2019");
        return;
    }
    if leg.strangers > 0 {
        let message = format!("{} other sources send to its address; the first one is measured", leg.strangers);
        g.add(&named(flow, m, "senders"), Severity::Warning, message, "");
    }
    let mut odd = Vec::new();
    if leg.malformed > 0 {
        odd.push(format!("{} packets are no RTP", leg.malformed));
    }
    if leg.other_payload_type > 0 {
        let wanted = leg.payload_type;
        odd.push(format!("{} packets have another payload type than {wanted}", leg.other_payload_type));
    }
    let good = format!("payload type {}", leg.payload_type);
    g.judge(&named(flow, m, "RTP"), odd.is_empty(), Severity::Warning, (good, odd.join("; ")), "RFC 3550, 5.1");
    if let (Some(described), Some(found)) = (&flow.described, &leg.found)
        && contradicts(&described.essence, &found.essence)
    {
        let message = format!("the SDP says {}, the packets look like {}", report::what(flow), found.essence);
        g.add(&named(flow, m, "essence"), Severity::Failure, message, "");
    }
}

/// The packets look like something else than what is described; what they look like may be unknown.
fn contradicts(described: &sdp::Essence, found: &survey::Essence) -> bool {
    use survey::Essence as F;
    let fits = match described {
        sdp::Essence::Video(_) => matches!(found, F::Video(_)),
        sdp::Essence::CompressedVideo(_) => matches!(found, F::CompressedVideo),
        sdp::Essence::Audio(_) | sdp::Essence::Aes3(_) => matches!(found, F::Audio(_) | F::Aes3(_)),
        sdp::Essence::Ancillary(_) => matches!(found, F::Ancillary),
        sdp::Essence::FastMetadata(_) => matches!(found, F::FastMetadata),
        sdp::Essence::TimedText(_) => matches!(found, F::TimedText),
        sdp::Essence::Sdi2022_6 => matches!(found, F::Sdi2022_6),
        sdp::Essence::Foreign { .. } => true,
    };
    !fits && !matches!(found, F::Rtp | F::Udp | F::Rtcp)
}

fn losses(flow: &Analysed, g: &mut Group<'_>) {
    let w = flow.timing.window();
    let (gaps, more) = w.gaps();
    let gaps = gaps.len() as u64 + more;
    let sent = w.received() + w.lost();
    let bad = format!("{} of {sent} packets are missing, in {gaps} gap{}", w.lost(), if gaps == 1 { "" } else { "s" });
    let good = if w.lost() == 0 { format!("all {sent} packets are there") } else { format!("{bad}, as is allowed") };
    g.judge("loss", w.lost() <= flow.timing.rules().limits.lost, Severity::Failure, (good, bad), "");
    if w.restarts() > 0 {
        let message = format!("the sender started anew {} times (SSRC or sequence number)", w.restarts());
        g.add("sender", Severity::Warning, message, "RFC 3550, 8");
    }
    let several = flow.legs.len() > 1;
    for m in 0..flow.legs.len() {
        let c = w.leg(m);
        if several && c.received > 0 {
            let good = format!("all {} packets came by it", c.received);
            let bad = format!("{} packets did not come by it; {} of these by no leg", c.lost, w.lost());
            g.judge(&named(flow, m, "leg's loss"), c.lost == 0, Severity::Warning, (good, bad), "ST 2022-7:2019");
        }
        if c.skew.samples > 0 {
            let most = c.skew.max_ns.max(-c.skew.min_ns);
            let text = format!("{} us behind the first leg at most, {}", number(most as f64 / US), skew_class(most));
            let limit = a_limit(flow);
            g.judge(
                &named(flow, m, "skew"),
                most <= limit,
                Severity::Warning,
                (text.clone(), text),
                "ST 2022-7:2019, 6.3",
            );
        }
        let odd = [(c.duplicate, "copies"), (c.reordered, "out of order"), (c.late, "too late to be told from lost")];
        let odd: Vec<String> = odd.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        let good = "every packet came once, in order".to_owned();
        g.judge(&named(flow, m, "order"), odd.is_empty(), Severity::Warning, (good, odd.join(", ")), "");
    }
}

fn a_limit(flow: &Analysed) -> i64 {
    flow.timing.rules().limits.skew_ns
}

fn skew_class(ns: i64) -> &'static str {
    const CLASSES: [(i64, &str); 4] = [
        (150_000, "class D (150 us)"),
        (10_000_000, "class A (10 ms)"),
        (50_000_000, "class B (50 ms)"),
        (450_000_000, "class C (150 ms, or 450 ms below 270 Mb/s)"),
    ];
    CLASSES.iter().find(|(most, _)| ns <= *most).map_or("beyond every class", |(_, name)| name)
}

fn reference(a: &Analysis, described: &sdp::Flow, g: &mut Group<'_>) {
    if a.ptp.masters.is_empty() {
        return;
    }
    let seen: Vec<String> =
        a.ptp.masters.iter().map(|m| format!("{} in domain {}", m.announce.grandmaster, m.domain)).collect();
    let seen = seen.join(", ");
    let mut named = false;
    for clock in &described.reference_clocks {
        let ReferenceClock::Ptp { grandmaster: Some(id), domain, .. } = clock else { continue };
        named = true;
        if a.ptp.has(id, *domain) {
            let message = format!("the SDP's grandmaster {id} is announced in the capture");
            g.add("reference clock", Severity::Pass, message, "ST 2110-10:2022, 8.2");
            return;
        }
    }
    if named {
        let message = format!("the SDP's grandmaster is not the one that is announced: {seen}");
        g.add("reference clock", Severity::Warning, message, "ST 2110-10:2022, 8.2");
    }
}

fn clocks(flow: &Analysed, m: usize, g: &mut Group<'_>) {
    let Some(clocks) = flow.timing.clocks(m) else { return };
    let name = named(flow, m, "clock");
    let own = matches!(flow.described.as_ref().map(|d| &d.media_clock), Some(sdp::MediaClock::Sender));
    let message = format!("{}: {}", clocks.alignment.text(), figures::distance(&clocks));
    let severity = match clocks.alignment {
        Alignment::Aligned => Severity::Pass,
        Alignment::Unknown => Severity::NotMeasurable,
        // The SDP says that it would be so.
        _ if own => Severity::Pass,
        _ => Severity::Warning,
    };
    g.add(&name, severity, message, "ST 2110-10:2022, 7.5");
}

fn of_frames(flow: &Analysed, m: usize, f: &Frames, g: &mut Group<'_>) {
    let config = f.config();
    if let Some(verdict) = flow.timing.verdict(m) {
        let name = named(flow, m, "ST 2110-21");
        let clause = "ST 2110-21:2022, 7.1";
        let levels = levels(f);
        match (verdict.class, config.sender_type) {
            (None, _) => {
                let why = verdict.not_measurable.as_deref().unwrap_or("nothing measured");
                g.add(&name, Severity::NotMeasurable, format!("not measurable with this clock: {why}"), clause);
            }
            (Some(class), Some(SenderType::N)) if !config.gapped => {
                let failures = verdict.failures(SenderType::Nl).join("; ");
                let said = format!("described as {}, but {NO_GAPPED}", SenderType::N);
                let good = format!("{said}; it is {class}, which the SDP should say: {levels}");
                let (severity, text) = match failures.is_empty() {
                    true => (Severity::Warning, good),
                    false => (Severity::Failure, format!("{said}; it is {class}: {failures}")),
                };
                g.add(&name, severity, text, "ST 2110-21:2022, 6.3");
            }
            (Some(class), Some(said)) => {
                let failures = verdict.failures(said).join("; ");
                let good = format!("described as {said} and is {class}: {levels}");
                let bad = format!("described as {said}, is {class}: {failures}");
                g.judge(&name, failures.is_empty(), Severity::Failure, (good, bad), clause);
            }
            (Some(class), None) => {
                let why: Vec<String> =
                    verdict.types.iter().map(|t| format!("{}: {}", t.sender_type, t.failures.join(", "))).collect();
                let messages = (format!("{class}: {levels}"), format!("not compliant. {}", why.join(". ")));
                g.judge(&name, class != Class::NotCompliant, Severity::Failure, messages, clause);
            }
        }
    }
    let increments = f.increment.all;
    if increments.count > 0 {
        let range = format!("{} to {} ticks from one timestamp to the next", increments.min, increments.max);
        let bad = format!("{} of {} increments do not fit the frame rate: {range}", f.increments_off, increments.count);
        g.judge(
            &named(flow, m, "timestamps"),
            f.increments_off == 0,
            Severity::Failure,
            (range, bad),
            "ST 2110-20:2022, 7.2",
        );
    }
    if config.cinst && f.packets.all.count > 0 {
        let p = f.packets.all;
        // Fields of an odd number of packets differ by one.
        let (all, first) = (config.schedule.packets(), config.schedule.second());
        let odd = config.scan != sdp::Scan::Progressive && first != all - first;
        let constant = p.max - p.min <= i64::from(odd);
        let text = if p.min == p.max { format!("always {}", p.min) } else { format!("{} to {}", p.min, p.max) };
        g.judge(&named(flow, m, "packets a frame"), constant, Severity::Warning, (text.clone(), text), "");
    }
    let marks = f.without_marker + f.behind_marker;
    if f.units > 0 {
        let good = "every frame or field ends with its marker".to_owned();
        let bad = format!("{} frames end without, {} packets come behind it", f.without_marker, f.behind_marker);
        g.judge(&named(flow, m, "marker"), marks == 0, Severity::Failure, (good, bad), "ST 2110-20:2022, 6.1.3");
    }
    g.windows(flow, m, windows::of_frames(f, flow.timing.trust(m).as_ref()));
}

/// The peaks of the buckets, in words.
fn levels(f: &Frames) -> String {
    let mut parts = Vec::new();
    if let Some(cinst) = &f.cinst {
        parts.push(format!("CINST up to {}", cinst.all().max));
    }
    if let Some([gapped, linear]) = &f.vrx {
        let (g, l) = (gapped.all(), linear.all());
        parts.push(format!("VRX {} to {} gapped, {} to {} linear", g.min, g.max, l.min, l.max));
    }
    parts.join(", ")
}

fn of_audio(a: &Analysis, flow: &Analysed, m: usize, audio: &Audio, g: &mut Group<'_>) {
    let limits = &a.options.rules.limits;
    let samples = audio.samples.unwrap_or(0);
    let good = format!("every packet moves the timestamp by {samples} samples");
    let bad = format!("{} steps are not the {samples} samples of a packet", audio.steps_off);
    g.judge(
        &named(flow, m, "timestamps"),
        audio.steps_off == 0,
        Severity::Failure,
        (good, bad),
        "ST 2110-30:2017, 6.2",
    );
    let Some(packet) = audio.packet_time_ns().filter(|p| *p > 0) else { return };
    let times = |n: u32| i64::try_from(packet.saturating_mul(n.into())).unwrap_or(i64::MAX);
    let aligned = flow.timing.clocks(m).is_some_and(|c| matches!(c.alignment, Alignment::Aligned | Alignment::Utc));
    g.windows(flow, m, windows::of_audio(audio, packet, aligned, limits));
    if audio.ts_df.all.count > 0 {
        let most = audio.ts_df.all.max;
        let text =
            format!("TS-DF up to {} us, a packet is {} us", number(most as f64 / US), number(packet as f64 / US));
        let severity = match most {
            m if m <= times(limits.ts_df_good) => Severity::Pass,
            m if m <= times(limits.ts_df) => Severity::Warning,
            _ => Severity::Failure,
        };
        g.add(&named(flow, m, "jitter"), severity, text, "EBU Tech 3337");
    }
}
