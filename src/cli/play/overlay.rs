//! Words over the picture of a window: format, rate, loss, latency, once a second.

#![cfg_attr(not(feature = "gst"), allow(dead_code, reason = "there is no window then"))]

use super::report::{expected_rate, picture};
use super::sinks::Sinks;
use gdmedia::latency::Recorder;
#[cfg(feature = "gst")]
use gdmedia::latency::{self, Hop};
use gdmedia::sdp::Video;
use gdmedia::worker::Report;
use std::time::{Duration, Instant};

/// Between two texts.
const PERIOD: Duration = Duration::from_secs(1);

/// What is written.
pub struct Words {
    format: String,
    wanted: Option<f64>,
    shown: bool,
    written: Option<Instant>,
    before: Counts,
    /// Mean and greatest, in milliseconds, when they were last known.
    latency: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    frames: u64,
    octets: u64,
}

impl Words {
    /// Of a flow. `shown`: from the beginning on.
    pub fn new(video: &Video, shown: bool) -> Self {
        // Sizes and rate in a line, samples and colour in the next.
        let format = picture(video).replacen(", ", "\n", 1);
        let before = Counts::default();
        Words { format, wanted: expected_rate(video), shown, written: None, before, latency: None }
    }

    /// Writes them anew when it is time.
    pub fn show(&mut self, sinks: &Sinks, report: &Report, latency: &Recorder) {
        #[cfg(feature = "gst")]
        if let Some(overlay) = sinks.overlay() {
            if std::mem::take(&mut self.shown) {
                overlay.show(true);
            }
            // Intervals of the status begin when they like, so that this looks often.
            if overlay.is_shown() {
                let ready = [Hop::Gpu, Hop::Complete].iter().find_map(|hop| latency::figures(latency.interval(*hop)));
                self.latency = ready.map(|f| (f.mean / 1e6, f.max as f64 / 1e6)).or(self.latency);
            }
            let since = self.written.map(|at| at.elapsed());
            if since.is_none_or(|since| since >= PERIOD) {
                overlay.write(&self.text(report, since, sinks.dropped()));
                (self.written, self.before) = (Some(Instant::now()), counts(report));
            }
        }
        let _ = (sinks, latency, report);
    }

    fn text(&self, report: &Report, since: Option<Duration>, dropped: u64) -> String {
        let now = counts(report);
        let seconds = since.map_or(0.0, |since| since.as_secs_f64());
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let mut lines = vec![self.format.clone()];
        if seconds > 0.0 {
            let wanted = self.wanted.map(|fps| format!(" of {fps:.2}")).unwrap_or_default();
            let fps = rate(now.frames, self.before.frames);
            let bits = rate(now.octets, self.before.octets) * 8.0 / 1e9;
            lines.push(format!("rate     {fps:.2}{wanted} frames/s, {bits:.3} Gb/s"));
        }
        let (p, f) = (&report.packets, &report.frames);
        lines.push(format!("packets  lost {}, late {}, reordered {}", p.lost, p.late, p.reordered));
        lines.push(format!("frames   incomplete {}, dropped {}", f.incomplete, f.dropped + dropped));
        lines.push(match self.latency {
            Some((mean, max)) => format!("latency  {mean:.1} ms, at most {max:.1}"),
            None => "latency  not known".into(),
        });
        lines.join("\n")
    }
}

fn counts(report: &Report) -> Counts {
    Counts { frames: report.frames.complete + report.frames.incomplete, octets: report.rx.octets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written() {
        let mut words = Words {
            format: "1920x1080 progressive".into(),
            wanted: Some(59.94),
            shown: false,
            written: None,
            before: Counts { frames: 100, octets: 1_000_000 },
            latency: Some((1.25, 3.5)),
        };
        let mut report = Report::default();
        (report.frames.complete, report.frames.incomplete, report.frames.dropped) = (128, 2, 1);
        report.rx.octets = 126_000_000;
        (report.packets.lost, report.packets.late, report.packets.reordered) = (7, 1, 3);
        let text = words.text(&report, Some(Duration::from_millis(500)), 4);
        assert_eq!(
            text,
            "1920x1080 progressive\nrate     60.00 of 59.94 frames/s, 2.000 Gb/s\npackets  lost 7, late 1, reordered 3\n\
             frames   incomplete 2, dropped 5\nlatency  1.2 ms, at most 3.5"
        );
        words.latency = None;
        assert!(words.text(&report, None, 0).ends_with("latency  not known"));
    }
}
