//! What a sender is by ST 2110-21:2022, 7.1, and why it is no better.

use super::frames::Frames;
use super::stamps::Trust;
use crate::sdp::SenderType;
use serde::Serialize;
use std::fmt;

/// Sender types by what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Within the limits of type N.
    Narrow,
    /// Within those of type NL.
    NarrowLinear,
    /// Within those of type W.
    Wide,
    /// Within none of these.
    NotCompliant,
}

impl Class {
    /// In the words of the field.
    pub const fn text(self) -> &'static str {
        match self {
            Class::Narrow => "narrow",
            Class::NarrowLinear => "narrow linear",
            Class::Wide => "wide",
            Class::NotCompliant => "not compliant",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// One sender type, and what exceeds its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The type.
    pub sender_type: SenderType,
    /// Nothing when it is met.
    pub failures: Vec<String>,
}

/// The verdict on one leg.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What it is; `None` where that cannot be measured.
    pub class: Option<Class>,
    /// Why it cannot be measured.
    pub not_measurable: Option<String>,
    /// What was held against each type, as far as it could be measured.
    pub types: Vec<Held>,
}

impl Verdict {
    /// What exceeds the limits of a type.
    pub fn failures(&self, sender_type: SenderType) -> &[String] {
        self.types.iter().find(|t| t.sender_type == sender_type).map(|t| t.failures.as_slice()).unwrap_or_default()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.class, &self.not_measurable) {
            (Some(class), _) => class.fmt(f),
            (None, Some(why)) => write!(f, "not measurable: {why}"),
            (None, None) => f.write_str("nothing measured"),
        }
    }
}

/// Why no sender of a raster is of type N.
pub const NO_GAPPED: &str = "ST 2110-21, 6.3 has no gapped schedule for this raster";

/// Holds the buckets of a leg against the three sender types.
pub fn judge(frames: &Frames, trust: &Trust) -> Verdict {
    let none = |why: String| Verdict { class: None, not_measurable: Some(why), types: Vec::new() };
    let slack = match trust {
        Trust::No { reason } => return none(reason.clone()),
        trust => trust.slack().unwrap_or(0),
    };
    let Some(cinst) = frames.cinst.as_ref().map(|c| c.all()).filter(|c| c.count > 0) else {
        return none("no buckets for this essence".into());
    };
    let types = [(SenderType::N, 0), (SenderType::Nl, 1), (SenderType::W, 1)].map(|(sender_type, pacing)| {
        let (cmax, full) = frames.held(sender_type);
        let mut failures = Vec::new();
        if sender_type == SenderType::N && !frames.config().gapped {
            failures.push(NO_GAPPED.to_owned());
        }
        match cmax {
            Some(cmax) if cinst.max - slack > i64::from(cmax) => {
                failures.push(format!("CINST reached {}, above CMAX = {cmax}", cinst.max));
            }
            Some(_) => {}
            None => failures.push("ST 2110-21 has no CMAX for it at 900 000 packets a second and more".into()),
        }
        if let Some(level) = frames.vrx.as_ref().and_then(|v| v.get(pacing)) {
            let (level, name) = (level.all(), ["gapped", "linear"][pacing]);
            if level.max - slack > i64::from(full) {
                failures.push(format!("VRX ({name}) reached {}, above VRXFULL = {full}", level.max));
            }
            if level.count > 0 && level.min + slack <= frames.underflow() {
                failures.push(format!(
                    "VRX ({name}) ran empty: packets came up to {} reads after their own",
                    frames.underflow() - level.min + 1
                ));
            }
        }
        Held { sender_type, failures }
    });
    let met = types.iter().find(|t| t.failures.is_empty()).map(|t| match t.sender_type {
        SenderType::N => Class::Narrow,
        SenderType::Nl => Class::NarrowLinear,
        SenderType::W => Class::Wide,
    });
    let exempt = !frames.vrx_applies();
    let (class, not_measurable) = if frames.vrx.is_some() || exempt {
        (Some(met.unwrap_or(Class::NotCompliant)), None)
    } else if met.is_none() {
        // CINST alone is beyond every type, whatever VRX would say.
        (Some(Class::NotCompliant), None)
    } else {
        (None, Some("VRX needs arrivals and timestamps of one clock, TAI".into()))
    };
    Verdict { class, not_measurable, types: types.into() }
}
