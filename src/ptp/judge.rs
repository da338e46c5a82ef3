//! How the clocks fit together: PTP here against the SDP, and what TAI is ahead of UTC. Pure; what is wrong has a name.

use super::management::ClockIdentity;
use super::ptp4l::{Silent, State};
use crate::sdp::ReferenceClock;
use crate::time::Alignment;
use serde::Serialize;
use std::fmt;

/// Seconds that TAI is ahead of UTC since 2017-01-01, when nobody says another number.
pub const LEAP_SECONDS: i32 = 37;

/// Who says what TAI is ahead of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaiSource {
    /// The kernel, which a daemon told (`adjtimex`).
    Kernel,
    /// An option.
    Option,
    /// The grandmaster (currentUtcOffset, and that it is valid).
    Ptp,
    /// Nobody: what it has been since 2017.
    Assumed,
}

/// What TAI is ahead of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TaiOffset {
    /// In seconds.
    pub seconds: i32,
    /// Who says so.
    pub source: TaiSource,
}

/// What is known.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// What ptp4l said.
    pub ptp: &'a Result<State, Silent>,
    /// Reference clocks of the SDP.
    pub references: &'a [ReferenceClock],
    /// Seconds that the kernel's TAI is ahead of its UTC; none where nobody told it.
    pub kernel_tai: Option<i32>,
    /// Seconds that an option says.
    pub option: Option<i32>,
    /// Nanoseconds from the RTP time of a packet to its arrival, as measured; none where nothing came, or the sender's
    /// timestamps run free.
    pub latency_ns: Option<i64>,
}

/// Something that is wrong with time here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "warning", rename_all = "kebab-case")]
pub enum Warning {
    /// The SDP names PTP, and nothing here follows it.
    PtpAbsent {
        /// Why ptp4l says nothing.
        why: Silent,
    },
    /// ptp4l follows no master.
    PtpNotLocked {
        /// What it does.
        port: super::PortState,
    },
    /// It follows another domain than the SDP's.
    PtpDomain {
        /// Here.
        here: u8,
        /// In the SDP.
        sdp: u8,
    },
    /// It follows another grandmaster than the SDP's.
    PtpGrandmaster {
        /// Here.
        here: ClockIdentity,
        /// The first one in the SDP.
        sdp: ClockIdentity,
    },
    /// The grandmaster's time is no TAI (timescale ARB).
    PtpArbitrary,
    /// The kernel's TAI is its UTC: nobody told it.
    TaiZero {
        /// What is used instead.
        used: TaiOffset,
    },
    /// Two say different things about TAI.
    TaiDiffers {
        /// What is used.
        used: TaiOffset,
        /// What somebody else says.
        other: TaiOffset,
    },
    /// Timestamps and arrivals are a UTC offset apart: one side has UTC for TAI.
    TaiMistaken {
        /// Seconds from the RTP time to the arrival.
        latency_s: i64,
    },
}

impl Warning {
    /// Its name, for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Warning::PtpAbsent { .. } => "ptp-absent",
            Warning::PtpNotLocked { .. } => "ptp-not-locked",
            Warning::PtpDomain { .. } => "ptp-domain",
            Warning::PtpGrandmaster { .. } => "ptp-grandmaster",
            Warning::PtpArbitrary => "ptp-arbitrary",
            Warning::TaiZero { .. } => "tai-zero",
            Warning::TaiDiffers { .. } => "tai-differs",
            Warning::TaiMistaken { .. } => "tai-mistaken",
        }
    }
    /// What can be done about it.
    pub const fn cure(self) -> &'static str {
        match self {
            Warning::PtpAbsent { why: Silent::Absent } => "run ptp4l on the media interface, and phc2sys -a -r",
            Warning::PtpAbsent { why: Silent::Denied } => "let this user read ptp4l's socket (uds_ro_address)",
            Warning::PtpAbsent { why: Silent::Mute } => "is it in a domain that the SDP names? pmc -u -b 0 -d DOMAIN",
            Warning::PtpNotLocked { .. } => "does the network carry PTP to this port? pmc -u -b 0 'GET PORT_DATA_SET'",
            Warning::PtpDomain { .. } => "set domainNumber of ptp4l, or get the sender's SDP anew",
            Warning::PtpGrandmaster { .. } => "are both on one PTP network? get the sender's SDP anew",
            Warning::PtpArbitrary => "set the grandmaster to the PTP timescale",
            Warning::TaiZero { .. } => "phc2sys -a -r, or an NTP daemon with a leap second file, tells the kernel",
            Warning::TaiDiffers { .. } => "correct the one that is wrong; TAI - UTC has been 37 s since 2017",
            Warning::TaiMistaken { .. } => "see --tai-offset and the kernel's TAI here, or the sender's PTP timescale",
        }
    }
}

impl fmt::Display for TaiOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.source {
            TaiSource::Kernel => "by the kernel",
            TaiSource::Option => "by option",
            TaiSource::Ptp => "by PTP",
            TaiSource::Assumed => "as since 2017, nobody says otherwise",
        };
        write!(f, "{} s {by}", self.seconds)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name())?;
        match self {
            Warning::PtpAbsent { why } => {
                let why = match why {
                    Silent::Absent => "ptp4l does not run here",
                    Silent::Denied => "this user may not ask ptp4l",
                    Silent::Mute => "ptp4l does not answer in the domains that it may mean",
                };
                write!(f, "the SDP names PTP, and {why}: latencies are as good as this machine's clock")
            }
            Warning::PtpNotLocked { port } => write!(f, "ptp4l follows nobody ({})", port.name()),
            Warning::PtpDomain { here, sdp } => write!(f, "PTP domain {here} here, {sdp} in the SDP"),
            Warning::PtpGrandmaster { here, sdp } => write!(f, "grandmaster {here} here, {sdp} in the SDP"),
            Warning::PtpArbitrary => f.write_str("the grandmaster's time is not TAI (timescale ARB)"),
            Warning::TaiZero { used } => write!(f, "the kernel takes TAI for UTC; used: {used}"),
            Warning::TaiDiffers { used, other } => write!(f, "TAI is ahead of UTC {used}, and {other}"),
            Warning::TaiMistaken { latency_s } => {
                write!(f, "packets come {latency_s} s after their RTP time: one side has UTC for TAI")
            }
        }
    }
}

impl TaiOffset {
    /// The first of: kernel, option, PTP where it is valid, and 37 s.
    pub fn choose(kernel: Option<i32>, option: Option<i32>, ptp: Option<&State>) -> Self {
        let of = |seconds, source| TaiOffset { seconds, source };
        let valid = ptp.filter(|s| s.time.utc_offset_valid && s.time.ptp_timescale && s.grandmaster.is_some());
        kernel
            .map(|s| of(s, TaiSource::Kernel))
            .or(option.map(|s| of(s, TaiSource::Option)))
            .or(valid.map(|s| of(s.time.utc_offset_s.into(), TaiSource::Ptp)))
            .unwrap_or(of(LEAP_SECONDS, TaiSource::Assumed))
    }
}

/// What TAI is ahead of UTC, and everything that is wrong.
pub fn judge(facts: &Facts<'_>) -> (TaiOffset, Vec<Warning>) {
    let state = facts.ptp.as_ref().ok();
    let used = TaiOffset::choose(facts.kernel_tai, facts.option, state);
    let mut warnings = Vec::new();
    match facts.ptp {
        Ok(state) => warnings.extend(against_sdp(state, facts.references)),
        Err(why) if facts.references.iter().any(|r| matches!(r, ReferenceClock::Ptp { .. })) => {
            warnings.push(Warning::PtpAbsent { why: *why });
        }
        Err(_) => {}
    }
    if state.is_some_and(|s| s.grandmaster.is_some() && !s.time.ptp_timescale) {
        warnings.push(Warning::PtpArbitrary);
    }
    if facts.kernel_tai.is_none() {
        warnings.push(Warning::TaiZero { used });
    }
    // Each that speaks, against the one that is used.
    for other in [TaiOffset::choose(None, facts.option, None), TaiOffset::choose(None, None, state)] {
        if other.source != TaiSource::Assumed && other.seconds != used.seconds {
            warnings.push(Warning::TaiDiffers { used, other });
        }
    }
    if let Some(ns) = facts.latency_ns.filter(|ns| Alignment::judge(*ns) == Alignment::Utc) {
        warnings.push(Warning::TaiMistaken { latency_s: (ns + ns.signum() * 500_000_000) / 1_000_000_000 });
    }
    (used, warnings)
}

/// What is wrong with PTP here for an SDP that names these clocks, of which one has to fit.
pub fn against_sdp(state: &State, references: &[ReferenceClock]) -> Option<Warning> {
    let named = |r: &ReferenceClock| match r {
        ReferenceClock::Ptp { grandmaster, domain, .. } => {
            Some((grandmaster.as_deref().and_then(|g| g.parse::<ClockIdentity>().ok()), *domain))
        }
        _ => None,
    };
    let all: Vec<_> = references.iter().filter_map(named).collect();
    if !all.is_empty() && !state.is_locked() {
        return Some(Warning::PtpNotLocked { port: state.port });
    }
    let in_domain = |domain: &Option<u8>| domain.is_none_or(|d| d == state.domain);
    if all.iter().any(|(master, domain)| in_domain(domain) && master.is_none_or(|m| Some(m) == state.grandmaster)) {
        return None;
    }
    // The first that has the domain says which grandmaster was meant.
    match (all.iter().find(|(_, domain)| in_domain(domain)).or(all.first())?, state.grandmaster) {
        ((_, Some(domain)), _) if *domain != state.domain => {
            Some(Warning::PtpDomain { here: state.domain, sdp: *domain })
        }
        ((Some(sdp), _), Some(here)) => Some(Warning::PtpGrandmaster { here, sdp: *sdp }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{PortState, TimeProperties};
    use super::*;

    const GM: &str = "08-00-11-FF-FE-22-33-44";

    fn state() -> State {
        State {
            port: PortState::Slave,
            domain: 127,
            grandmaster: GM.parse().ok(),
            time: TimeProperties {
                utc_offset_s: 37,
                utc_offset_valid: true,
                ptp_timescale: true,
                ..Default::default()
            },
            ..State::default()
        }
    }

    fn reference(grandmaster: Option<&str>, domain: Option<u8>) -> ReferenceClock {
        ReferenceClock::Ptp { version: "IEEE1588-2008".into(), grandmaster: grandmaster.map(Into::into), domain }
    }

    fn names(ptp: Result<State, Silent>, references: &[ReferenceClock]) -> Vec<&'static str> {
        let facts = Facts { ptp: &ptp, references, kernel_tai: Some(37), option: None, latency_ns: Some(600_000) };
        judge(&facts).1.iter().map(|w| w.name()).collect()
    }

    #[test]
    fn ptp_against_the_sdp() {
        let none: [&str; 0] = [];
        assert_eq!(names(Ok(state()), &[reference(Some(GM), Some(127))]), none);
        assert_eq!(names(Ok(state()), &[reference(None, None)]), none, "traceable: any grandmaster");
        assert_eq!(names(Ok(state()), &[reference(Some(GM), None)]), none);
        assert_eq!(names(Ok(state()), &[reference(Some(GM), Some(0))]), ["ptp-domain"]);
        let other = "08-00-12-FF-FE-22-33-44";
        assert_eq!(names(Ok(state()), &[reference(Some(other), Some(127))]), ["ptp-grandmaster"]);
        // One of several is enough.
        assert_eq!(names(Ok(state()), &[reference(Some(other), Some(127)), reference(Some(GM), Some(127))]), none);
        assert_eq!(
            names(Ok(state()), &[reference(Some(other), Some(0)), reference(Some(other), Some(127))]),
            ["ptp-grandmaster"]
        );
        let listening = State { port: PortState::Listening, ..state() };
        assert_eq!(names(Ok(listening), &[reference(Some(GM), Some(0))]), ["ptp-not-locked"]);
        assert_eq!(names(Err(Silent::Absent), &[reference(Some(GM), Some(0))]), ["ptp-absent"]);
        // A sender on its own clock needs no PTP here.
        let local = ReferenceClock::LocalMac { mac: "02-00-00-00-00-01".into() };
        assert_eq!(names(Err(Silent::Absent), &[local]), none);
        let arbitrary = State { time: TimeProperties::default(), ..state() };
        assert_eq!(names(Ok(arbitrary), &[]), ["ptp-arbitrary"]);
    }

    #[test]
    fn the_offset_of_tai_and_who_says_it() {
        let facts = |kernel_tai, option, ptp, latency_ns| {
            judge(&Facts { ptp, references: &[], kernel_tai, option, latency_ns })
        };
        let of = |seconds, source| TaiOffset { seconds, source };
        let (locked, silent) = (Ok(state()), Err(Silent::Absent));
        assert_eq!(facts(Some(37), None, &locked, None), (of(37, TaiSource::Kernel), vec![]));
        let used = of(37, TaiSource::Assumed);
        assert_eq!(facts(None, None, &silent, None), (used, vec![Warning::TaiZero { used }]));
        let used = of(37, TaiSource::Ptp);
        assert_eq!(facts(None, None, &locked, None), (used, vec![Warning::TaiZero { used }]));
        // An old leap second file in the kernel.
        let (used, other) = (of(36, TaiSource::Kernel), of(37, TaiSource::Ptp));
        assert_eq!(facts(Some(36), None, &locked, None), (used, vec![Warning::TaiDiffers { used, other }]));
        let (used, other) = (of(37, TaiSource::Kernel), of(0, TaiSource::Option));
        assert_eq!(facts(Some(37), Some(0), &locked, None), (used, vec![Warning::TaiDiffers { used, other }]));
        // Not valid: it does not count.
        let time = TimeProperties { utc_offset_valid: false, utc_offset_s: 0, ..state().time };
        assert_eq!(facts(Some(37), None, &Ok(State { time, ..state() }), None).1, []);
    }

    #[test]
    fn a_latency_of_37_seconds_is_named() {
        for (ns, seconds) in [(37_000_600_000, 37), (-36_999_400_000, -37)] {
            let facts = Facts {
                ptp: &Err(Silent::Absent),
                references: &[],
                kernel_tai: Some(37),
                option: None,
                latency_ns: Some(ns),
            };
            assert_eq!(judge(&facts).1, [Warning::TaiMistaken { latency_s: seconds }]);
        }
    }

    #[test]
    fn every_warning_says_what_it_is_and_what_to_do() {
        let used = TaiOffset { seconds: 37, source: TaiSource::Assumed };
        let all = [
            Warning::PtpAbsent { why: Silent::Absent },
            Warning::PtpNotLocked { port: PortState::Listening },
            Warning::PtpDomain { here: 0, sdp: 127 },
            Warning::PtpArbitrary,
            Warning::TaiZero { used },
            Warning::TaiMistaken { latency_s: 37 },
        ];
        for warning in all {
            let json = serde_json::to_value(warning).unwrap();
            assert_eq!(json["warning"], warning.name());
            assert!(warning.to_string().starts_with(warning.name()) && !warning.cure().is_empty());
        }
        assert_eq!(
            Warning::PtpDomain { here: 0, sdp: 127 }.to_string(),
            "ptp-domain: PTP domain 0 here, 127 in the SDP"
        );
    }
}
