//! Measures of a leg against the windows that they should lie in: the same for captures and for live flows.

use super::ancillary::Model;
use super::audio::Audio;
use super::frames::Frames;
use super::stamps::Trust;
use crate::report::number;
use crate::time::VIDEO_CLOCK;

/// A measure and its window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The measure.
    pub name: &'static str,
    /// It lies within.
    pub good: bool,
    /// A standard says so, and the stamps can carry it; else it is a habit of the field.
    pub required: bool,
    /// What was found.
    pub text: String,
    /// The clause of a standard; may be empty.
    pub clause: &'static str,
}

const US: f64 = 1000.0;

fn us(ns: i64) -> String {
    number(ns as f64 / US)
}

fn within(value: (i64, i64), window: (i64, i64)) -> bool {
    value.0 >= window.0 && value.1 <= window.1
}

/// Ticks that timestamps may lie behind their frame: TROFFSET, and the slack; never more than half of the clock.
pub fn rtp_offset(f: &Frames) -> (i64, i64) {
    let slack = f.config().rules.limits.rtp_offset_slack;
    let troffset = u128::from(f.config().schedule.offset_ns()) * u128::from(VIDEO_CLOCK);
    (-slack, i64::try_from(troffset.div_ceil(1_000_000_000)).unwrap_or(i64::MAX).saturating_add(slack))
}

/// Of a leg whose packets make frames.
pub fn of_frames(f: &Frames, trust: Option<&Trust>) -> Vec<Finding> {
    let config = f.config();
    let limits = &config.rules.limits;
    let exact = trust.is_some_and(|t| t.slack().is_some());
    let mut out = Vec::new();
    let mut add = |name, good, text, clause| out.push(Finding { name, good, required: false, text, clause });
    if config.cinst && config.epoch && f.latency.all.count > 0 {
        let l = f.latency.all;
        let text = format!("{} to {} us after the timestamp", us(l.min), us(l.max));
        add("latency", within((l.min, l.max), limits.video_latency_ns), text, "");
        let (o, window) = (f.rtp_offset.all, rtp_offset(f));
        let text =
            format!("{} to {} ticks after the frame's beginning, {} to {} expected", o.min, o.max, window.0, window.1);
        add("RTP offset", within((o.min, o.max), window), text, "ST 2110-10:2022, 7.6");
    }
    if let Some(window) = limits.fpt_ns.filter(|_| config.cinst && f.fpt.all.count > 0) {
        let fpt = f.fpt.all;
        let wanted = format!("{} to {} wanted", us(window.0), us(window.1));
        let text = format!("{} to {} us after the frame's beginning, {wanted}", us(fpt.min), us(fpt.max));
        add("FPT", within((fpt.min, fpt.max), window), text, "");
    }
    if let Some((least, most)) = limits.gap_ppm.filter(|_| config.cinst && exact && f.gap.all.count > 0) {
        let gap = f.gap.all;
        let ns = |ppm: i64| (i128::from(config.schedule.frame_ns()) * i128::from(ppm) / 1_000_000) as i64;
        let window = (ns(least), ns(most));
        let text = format!("{} to {} us, {} to {} wanted", us(gap.min), us(gap.max), us(window.0), us(window.1));
        add("gap", within((gap.min, gap.max), window), text, "");
    }
    if let Some(due) = f.due.as_ref().filter(|due| due.margin.all.count > 0) {
        let (m, off) = (due.margin.all, due.late + due.early);
        let model = match due.timing.model {
            Some(Model::LowLatency) => "LLTM",
            Some(Model::Compatible) => "CTM",
            None => "CTM, as no TM is signalled",
        };
        let required = exact && due.timing.model.is_some();
        let text = if off == 0 {
            format!("every packet came {} to {} us before its last instant ({model})", us(m.min), us(m.max))
        } else {
            let worst = if m.min < 0 { format!(", by up to {} us", us(-m.min)) } else { String::new() };
            format!(
                "of {} packets {} came too late{worst}, {} more than a frame too early ({model})",
                m.count, due.late, due.early
            )
        };
        out.push(Finding { name: "deadline", good: off == 0, required, text, clause: "ST 2110-40:2023, 6" });
    }
    out
}

/// Of a leg of audio; `aligned`: its timestamps and arrivals are of one clock.
pub fn of_audio(audio: &Audio, packet_ns: u64, aligned: bool, limits: &super::limits::Limits) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut add = |name, good, text| out.push(Finding { name, good, required: false, text, clause: "" });
    if aligned && audio.latency.all.count > 0 {
        let l = audio.latency.all;
        let text = format!("{} to {} us after the timestamp", us(l.min), us(l.max));
        add("latency", within((l.min, l.max), limits.audio_latency_ns), text);
    }
    // A handful has no mean that says anything.
    if audio.interval.all.count >= 100 {
        let i = audio.interval.all;
        let part = (i.mean() / packet_ns as f64 * 1e6).round() as i64;
        let most = i64::try_from(packet_ns.saturating_mul(limits.audio_spacing_most.into())).unwrap_or(i64::MAX);
        let good = within((part, part), limits.audio_spacing_ppm) && i.max <= most;
        let mean = number(i.mean() / US);
        add(
            "spacing",
            good,
            format!(
                "a packet every {mean} us on average, {} us at most; its time is {} us",
                us(i.max),
                us(packet_ns as i64)
            ),
        );
    }
    out
}
