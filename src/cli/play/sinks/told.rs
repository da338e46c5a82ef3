//! What became of sinks, for the summary.

use super::{Sinks, placed};
use gdmedia::record::Stats;
use gdmedia::sink::{End, Report, Verdict};
use serde_json::json;
use std::sync::atomic::Ordering::Relaxed;

impl Sinks {
    /// What became of them, for the summary.
    pub fn reports(&self) -> serde_json::Value {
        let one = |(name, report): &(String, Report)| {
            let end = match &report.end {
                End::Finished => "finished".to_owned(),
                End::Closed(why) => why.clone(),
                End::Failed(_) => "failed".to_owned(),
            };
            json!({ "sink": name, "taken": report.taken, "dropped": report.dropped, "torn": report.torn, "end": end })
        };
        #[allow(unused_mut)]
        let mut all: Vec<_> = self.finished.iter().map(one).collect();
        all.extend(placed::look(&self.recorded, |stats| json!({ "recording": recorded(stats) })));
        #[cfg(feature = "cuda")]
        all.extend(placed::look(&self.exported, |counts| json!({ "export": counts() })));
        #[cfg(feature = "cuda")]
        all.extend(self.downloaded.iter().map(|c| {
            json!({ "copies": { "taken": c.taken.load(Relaxed), "dropped": c.dropped.load(Relaxed), "lost": c.lost.load(Relaxed) } })
        }));
        #[cfg(all(feature = "cuda", feature = "gst"))]
        all.extend(placed::look(
            &self.in_gst,
            |c| json!({ "gstreamer": { "copied": c.copied.load(Relaxed), "lost": c.lost.load(Relaxed) } }),
        ));
        #[cfg(feature = "gst")]
        all.extend(
            self.encoded
                .iter()
                .map(|watch| json!({ "encode": { "starts": watch.starts(), "dropped": watch.dropped() } })),
        );
        all.into()
    }
    /// The same for people.
    pub fn texts(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .finished
            .iter()
            .map(|(name, report)| {
                let end = if let End::Closed(why) = &report.end { format!(", {why}") } else { String::new() };
                let torn =
                    if report.torn > 0 { format!(", {} overwritten in the ring", report.torn) } else { String::new() };
                format!("{name}: {} frames taken, {} dropped{torn}{end}", report.taken, report.dropped)
            })
            .collect();
        #[cfg(feature = "cuda")]
        if let Some(counters) = self.downloaded.as_ref().filter(|c| c.dropped.load(Relaxed) + c.lost.load(Relaxed) > 0)
        {
            let (dropped, lost) = (counters.dropped.load(Relaxed), counters.lost.load(Relaxed));
            lines.push(format!("copies from the GPU: {dropped} dropped for want of memory, {lost} lost with the GPU"));
        }
        #[cfg(all(feature = "cuda", feature = "gst"))]
        if let Some(lost) = placed::look(&self.in_gst, |c| c.lost.load(Relaxed)).filter(|lost| *lost > 0) {
            lines.push(format!("GStreamer: {lost} lost with the GPU"));
        }
        #[cfg(feature = "cuda")]
        lines.extend(placed::look(&self.exported, |counts| format!("export: {}", counts())));
        lines.extend(placed::look(&self.recorded, |stats| recorded_text(stats)));
        #[cfg(feature = "gst")]
        if let Some(watch) = self.encoded.as_ref().filter(|watch| watch.starts() > 1 || watch.dropped() > 0) {
            let (starts, dropped) = (watch.starts(), watch.dropped());
            lines.push(format!("encode: started {starts} times, {dropped} frames came while no encoder ran"));
        }
        if let Some(v) = self.verified() {
            lines.push(format!(
                "frame numbers: in order {}, repeated {}, skipped {}, backward {}, unreadable {}",
                v.in_order, v.repeated, v.skipped, v.backward, v.unreadable
            ));
        }
        lines
    }
    /// What `--verify` found.
    pub fn verified(&self) -> Option<Verdict> {
        self.verdict.as_ref().map(|read| read())
    }
}

/// Figures of a recording.
fn recorded(stats: &Stats) -> serde_json::Value {
    json!({
        "frames": stats.frames.load(Relaxed), "octets": stats.octets.load(Relaxed), "segments": stats.segments.load(Relaxed),
        "gaps": stats.gaps.load(Relaxed), "left_out": stats.left_out.load(Relaxed), "disk_ns": stats.latency(),
    })
}

fn recorded_text(stats: &Stats) -> String {
    let [frames, segments, gaps, left_out] =
        [&stats.frames, &stats.segments, &stats.gaps, &stats.left_out].map(|n| n.load(Relaxed));
    let gib = stats.octets.load(Relaxed) as f64 / f64::from(1 << 30);
    let mut text = format!("recording: {frames} frames, {gib:.3} GiB in {segments} segments");
    if gaps > 0 {
        text += &format!(", {gaps} gaps of {left_out} frames");
    }
    if let Some(disk) = stats.latency() {
        let ms = |ns: u64| ns as f64 / 1e6;
        let (p50, p99, max) = (ms(disk.p50), ms(disk.p99), ms(disk.max));
        text += &format!("; the disk took {p50:.3} ms for half of them, {p99:.3} for 99 %, {max:.3} at most");
    }
    text
}
