//! Time of a run: what TAI is ahead of UTC, what PTP does, and warnings about both.

use super::Args;
use gdmedia::error::Result;
use gdmedia::health::Synchronization;
use gdmedia::latency::Media;
use gdmedia::pipeline;
use gdmedia::ptp::{self, Facts, Seen, Silent, TaiOffset, Warning, Watch, watch::Target};
use gdmedia::sdp::{Flow, ReferenceClock, Video};
use serde_json::json;

/// What is known about time, and is asked again while the run goes on.
pub struct Time {
    watch: Option<Watch>,
    references: Vec<ReferenceClock>,
    option: Option<i32>,
    offset: TaiOffset,
    warnings: Vec<Warning>,
    synchronization: Synchronization,
}

/// How frames of a flow follow each other.
pub fn media(flow: &Flow, video: &Video) -> Media {
    Media { rate: video.rate, clock: pipeline::clock(flow), clock_rate: flow.clock_rate }
}

/// What PTP here is for the status of the receiver. Where nothing follows PTP, it is not used.
fn synchronization(seen: &Seen, warnings: &[Warning]) -> Synchronization {
    let Ok(state) = seen.ptp else { return Synchronization::NotUsed };
    match state.grandmaster.filter(|_| state.is_locked()) {
        Some(master) => Synchronization::Locked {
            source: format!("{master} in domain {}", state.domain),
            but: warnings.iter().find(|w| !matches!(w, Warning::TaiZero { .. })).map(ToString::to_string),
        },
        None => Synchronization::NotLocked { why: format!("ptp4l is {}", state.port.name()) },
    }
}

impl Time {
    /// Asks a first time. A capture's time is its own.
    ///
    /// # Errors
    /// There is no thread to ask on.
    pub fn open(args: &Args, flow: &Flow) -> Result<Self> {
        let live = args.live();
        let domains = ptp::domains(flow.reference_clocks.iter());
        let target = Target::here(domains, args.interface.first().cloned()).at(&args.ptp4l);
        let watch = if live { Some(Watch::start(target)?) } else { None };
        let references = if live { flow.reference_clocks.clone() } else { Vec::new() };
        let offset = TaiOffset { seconds: ptp::judge::LEAP_SECONDS, source: ptp::TaiSource::Assumed };
        let mut time = Time {
            watch,
            references,
            option: args.tai_offset,
            offset,
            warnings: Vec::new(),
            synchronization: Synchronization::NotUsed,
        };
        let seen = time.seen();
        let (offset, warnings) = ptp::judge(&time.facts(&seen.ptp, None));
        time.offset = offset;
        time.warnings = if live { warnings } else { Vec::new() };
        time.synchronization = synchronization(&seen, &time.warnings);
        Ok(time)
    }

    fn facts<'a>(&'a self, ptp: &'a std::result::Result<ptp::State, Silent>, latency_ns: Option<i64>) -> Facts<'a> {
        Facts {
            ptp,
            references: &self.references,
            kernel_tai: ptp::kernel_tai_offset(),
            option: self.option,
            latency_ns,
        }
    }

    /// What arrivals are reckoned with.
    pub const fn offset(&self) -> TaiOffset {
        self.offset
    }
    /// What PTP does.
    pub fn seen(&self) -> Seen {
        self.watch.as_ref().map_or(Seen::first(Err(Silent::Absent)), Watch::seen)
    }

    /// The same; none of a capture.
    #[cfg(feature = "daemon")]
    pub fn watched(&self) -> Option<Seen> {
        self.watch.as_ref().map(Watch::seen)
    }

    /// The same in the words of health.
    pub const fn synchronization(&self) -> &Synchronization {
        &self.synchronization
    }

    /// Looks again; what is new, and what is over.
    pub fn update(&mut self, rtp_latency_ns: Option<i64>) -> Vec<String> {
        if self.watch.is_none() {
            return Vec::new();
        }
        let seen = self.seen();
        let (_, warnings) = ptp::judge(&self.facts(&seen.ptp, rtp_latency_ns));
        let has = |list: &[Warning], w: &Warning| list.iter().any(|other| other.name() == w.name());
        let came = warnings.iter().filter(|w| !has(&self.warnings, w)).map(|w| format!("{w}; {}", w.cure()));
        let went = self.warnings.iter().filter(|w| !has(&warnings, w)).map(|w| format!("{}: over", w.name()));
        let texts = came.chain(went).collect();
        self.warnings = warnings;
        self.synchronization = synchronization(&seen, &self.warnings);
        texts
    }

    /// For the start block.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let ptp = self.watch.as_ref().and_then(|watch| watch.seen().ptp.ok()).map(|s| {
            let master = s.grandmaster.map_or_else(String::new, |g| format!(", grandmaster {g}"));
            format!("PTP here: {} in domain {}{master}", s.port.name(), s.domain)
        });
        let offset = self.watch.is_some().then(|| format!("TAI is ahead of UTC: {}", self.offset));
        let warnings = self.warnings.iter().map(|w| format!("warning: {w}"));
        ptp.into_iter().chain(offset).chain(warnings)
    }

    /// For the start object.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "tai_offset": self.offset,
            "ptp": self.watch.as_ref().map(Watch::seen),
            "warnings": self.warnings,
        })
    }
}
