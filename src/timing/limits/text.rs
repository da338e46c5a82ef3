//! Limits as people write them: a table `[limits]` of TOML, or single ones as `cmax=6`.

use super::Limits;
use crate::config;
use crate::error::{Error, Kind, Result};
use serde::Deserialize;
use std::path::Path;

/// A file of limits.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    limits: Keys,
}

/// Every key, absent where the limit stays as it is.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    cmax: Option<u32>,
    cmax_factor: Option<f64>,
    vrx_full: Option<u32>,
    vrx_full_factor: Option<f64>,
    gapped: Option<bool>,
    fpt_us: Option<[f64; 2]>,
    video_latency_us: Option<[f64; 2]>,
    rtp_offset_slack_ticks: Option<u32>,
    gap_percent: Option<[f64; 2]>,
    ancillary_delay_us: Option<f64>,
    audio_latency_us: Option<[f64; 2]>,
    audio_spacing_percent: Option<[f64; 2]>,
    audio_spacing_most: Option<u32>,
    ts_df_good: Option<u32>,
    ts_df: Option<u32>,
    skew_us: Option<f64>,
    lost: Option<u64>,
}

impl Limits {
    /// Takes over what a file says.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, has a key that is none, or a value that makes no sense.
    pub fn read(&mut self, path: &Path) -> Result<()> {
        let name = path.display().to_string();
        let text = config::text(path)?;
        let File { limits } = config::parse(&name, &text)?;
        limits.apply(self).map_err(|(key, why)| wrong(&name, key, &why))
    }

    /// Takes over one of them, `KEY=VALUE`; a pair of values may be written `0..700`.
    ///
    /// # Errors
    /// It is none, or its value makes no sense.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let name = format!("limit {text}");
        let Some((key, value)) = text.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
            return Err(
                Error::new(Kind::Usage, format!("{name}: no value")).cure("write it like cmax=6 or fpt_us=0..700")
            );
        };
        let value = match value.split_once("..") {
            Some((least, most)) => format!("[{least}, {most}]"),
            None => value.to_owned(),
        };
        // One line: a value that holds another line is no value.
        let line = format!("{key} = {value}").replace(['\n', '\r'], " ");
        let keys: Keys = config::parse(&name, &line)?;
        keys.apply(self).map_err(|(key, why)| wrong(&name, key, &why))
    }
}

fn wrong(name: &str, key: &str, why: &str) -> Error {
    Error::new(Kind::Usage, format!("{name}: {key}: {why}"))
        .cure("docs/timing.md lists every limit with its unit and default")
}

type Wrong = (&'static str, String);

impl Keys {
    fn apply(self, to: &mut Limits) -> std::result::Result<(), Wrong> {
        let new = Limits {
            cmax: self.cmax.or(to.cmax),
            cmax_thousandths: factor("cmax_factor", self.cmax_factor)?.unwrap_or(to.cmax_thousandths),
            vrx_full: self.vrx_full.or(to.vrx_full),
            vrx_full_thousandths: factor("vrx_full_factor", self.vrx_full_factor)?.unwrap_or(to.vrx_full_thousandths),
            gapped: self.gapped.or(to.gapped),
            fpt_ns: window("fpt_us", self.fpt_us, 1e3)?.or(to.fpt_ns),
            video_latency_ns: window("video_latency_us", self.video_latency_us, 1e3)?.unwrap_or(to.video_latency_ns),
            rtp_offset_slack: self.rtp_offset_slack_ticks.map_or(to.rtp_offset_slack, i64::from),
            gap_ppm: window("gap_percent", self.gap_percent, 1e4)?.or(to.gap_ppm),
            ancillary_delay_ns: scaled("ancillary_delay_us", self.ancillary_delay_us)?.or(to.ancillary_delay_ns),
            audio_latency_ns: window("audio_latency_us", self.audio_latency_us, 1e3)?.unwrap_or(to.audio_latency_ns),
            audio_spacing_ppm: window("audio_spacing_percent", self.audio_spacing_percent, 1e4)?
                .unwrap_or(to.audio_spacing_ppm),
            audio_spacing_most: self.audio_spacing_most.unwrap_or(to.audio_spacing_most),
            ts_df_good: self.ts_df_good.unwrap_or(to.ts_df_good),
            ts_df: self.ts_df.unwrap_or(to.ts_df),
            skew_ns: scaled("skew_us", self.skew_us)?.unwrap_or(to.skew_ns),
            lost: self.lost.unwrap_or(to.lost),
        };
        if new.ts_df < new.ts_df_good {
            return Err(("ts_df", format!("{} is below ts_df_good, {}", new.ts_df, new.ts_df_good)));
        }
        *to = new;
        Ok(())
    }
}

/// Times of more than this are a mistake: an hour, in nanoseconds.
const MOST: f64 = 3.6e12;

fn whole(key: &'static str, value: f64, scale: f64) -> std::result::Result<i64, Wrong> {
    let scaled = (value * scale).round();
    if scaled.abs() <= MOST { Ok(scaled as i64) } else { Err((key, format!("{value} is no sensible value"))) }
}

fn window(key: &'static str, pair: Option<[f64; 2]>, scale: f64) -> std::result::Result<Option<(i64, i64)>, Wrong> {
    let Some([least, most]) = pair else { return Ok(None) };
    let window = (whole(key, least, scale)?, whole(key, most, scale)?);
    if window.0 > window.1 { Err((key, format!("{least} to {most} holds nothing"))) } else { Ok(Some(window)) }
}

fn scaled(key: &'static str, us: Option<f64>) -> std::result::Result<Option<i64>, Wrong> {
    match us.map(|us| whole(key, us, 1e3)).transpose()? {
        Some(ns) if ns < 0 => Err((key, "it may not be negative".into())),
        ns => Ok(ns),
    }
}

fn factor(key: &'static str, value: Option<f64>) -> std::result::Result<Option<u32>, Wrong> {
    match value {
        Some(f) if !(0.001..=1000.0).contains(&f) => Err((key, format!("{f} is not between 0.001 and 1000"))),
        value => Ok(value.map(|f| (f * 1000.0).round() as u32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> Result<Limits> {
        let mut limits = Limits::default();
        limits.set(text).map(|()| limits)
    }

    #[test]
    fn every_key_is_read_in_its_unit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.toml");
        let text = "[limits]\ncmax = 6\ncmax_factor = 1.5\nvrx_full = 9\nvrx_full_factor = 2\ngapped = true\nfpt_us = [-1, 700.5]\n\
                    video_latency_us = [0, 2000]\nrtp_offset_slack_ticks = 3\ngap_percent = [0, 4]\nancillary_delay_us = 1500\n\
                    audio_latency_us = [0, 3000]\naudio_spacing_percent = [98, 102]\naudio_spacing_most = 5\nts_df_good = 2\n\
                    ts_df = 9\nskew_us = 150\nlost = 3\n";
        std::fs::write(&path, text).unwrap();
        let mut limits = Limits::default();
        limits.read(&path).unwrap();
        let wanted = Limits {
            cmax: Some(6),
            cmax_thousandths: 1500,
            vrx_full: Some(9),
            vrx_full_thousandths: 2000,
            gapped: Some(true),
            fpt_ns: Some((-1000, 700_500)),
            video_latency_ns: (0, 2_000_000),
            rtp_offset_slack: 3,
            gap_ppm: Some((0, 40_000)),
            ancillary_delay_ns: Some(1_500_000),
            audio_latency_ns: (0, 3_000_000),
            audio_spacing_ppm: (980_000, 1_020_000),
            audio_spacing_most: 5,
            ts_df_good: 2,
            ts_df: 9,
            skew_ns: 150_000,
            lost: 3,
        };
        assert_eq!(limits, wanted);
        // Every one of them differs from the default, and is told.
        assert_eq!(limits.differences().len(), text.lines().count() - 1);
        assert_eq!(Limits::default().differences(), [""; 0]);
        // What a later one does not name stays.
        limits.set("cmax=7").unwrap();
        assert_eq!(limits, Limits { cmax: Some(7), ..wanted });
    }

    #[test]
    fn single_ones() {
        assert_eq!(set("fpt_us=0..700").unwrap().fpt_ns, Some((0, 700_000)));
        assert_eq!(set("fpt_us = [0, 700]").unwrap().fpt_ns, Some((0, 700_000)));
        assert_eq!(set("video_latency_us=-5..1e3").unwrap().video_latency_ns, (-5000, 1_000_000));
        assert_eq!(set("cmax=6").unwrap().cmax, Some(6));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_cure() {
        for (text, says, cure) in [
            ("cmaxx=6", "unknown field `cmaxx`", "did you mean 'cmax'?"),
            ("cmax", "no value", "cmax=6"),
            ("cmax=-1", "cmax", ""),
            ("cmax=six", "cmax=six", ""),
            ("fpt_us=700..0", "holds nothing", "docs/timing.md"),
            ("fpt_us=5", "fpt_us", ""),
            ("fpt_us=0..inf", "no sensible value", "docs/timing.md"),
            ("fpt_us=nan..1", "no sensible value", "docs/timing.md"),
            ("skew_us=-1", "negative", "docs/timing.md"),
            ("cmax_factor=0", "between 0.001", "docs/timing.md"),
            ("ts_df=0", "below ts_df_good", "docs/timing.md"),
            ("cmax=1\nlost=2", "cmax", ""),
            ("", "no value", "cmax=6"),
        ] {
            let error = set(text).unwrap_err();
            assert!(error.kind() == Kind::Usage && error.to_string().contains(says), "{text}: {error}");
            assert!(!error.cure_text().is_empty() && error.cure_text().contains(cure), "{text}: {error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l.toml");
        for (text, says) in [
            ("[limits]\ncmax = 6\nvrx_ful = 9\n", "line 3: unknown field `vrx_ful`"),
            ("cmax = 6\n", "unknown field `cmax`"),
            ("", "missing field `limits`"),
        ] {
            std::fs::write(&path, text).unwrap();
            let mut limits = Limits::default();
            let error = limits.read(&path).unwrap_err();
            assert!(error.to_string().contains("l.toml") && error.to_string().contains(says), "{error}");
            assert_eq!(limits, Limits::default());
        }
    }
}
