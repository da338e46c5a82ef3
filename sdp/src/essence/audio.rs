//! ST 2110-30 (`L16`, `L24`) and -31 (`AM824`).

use crate::Audio;
use crate::diagnostic::{At, Findings, clip};
use crate::params::Params;
use crate::session::Attribute;

const PCM: &str = "ST 2110-30:2017 6.2";
const AM824: &str = "ST 2110-31:2018 6.1";
/// Octets of audio in a packet of the standard size: 1460 less UDP and RTP headers.
const ROOM: u64 = 1440;

/// Channel groups of ST 2110-30 and the channels of each.
const GROUPS: &[(&str, u32)] =
    &[("M", 1), ("DM", 2), ("ST", 2), ("LtRt", 2), ("51", 6), ("71", 8), ("222", 24), ("SGRP", 4), ("AES3", 2)];

/// What the rtpmap and the attributes of the medium say.
pub(crate) struct Said<'a, 'b> {
    pub encoding: &'b str,
    pub clock_rate: u32,
    pub channels: Option<u32>,
    pub rtpmap_at: At,
    pub ptime: Option<&'b Attribute<'a>>,
    pub framecount: Option<&'b Attribute<'a>>,
    pub maxptime: Option<&'b Attribute<'a>>,
}

impl Said<'_, '_> {
    fn is_aes3(&self) -> bool {
        self.encoding == "AM824"
    }
    fn clause(&self) -> &'static str {
        if self.is_aes3() { AM824 } else { PCM }
    }
    fn sample_octets(&self) -> u64 {
        match self.encoding {
            "L16" => 2,
            "L24" => 3,
            _ => 4,
        }
    }
}

pub(crate) fn read(said: &Said<'_, '_>, p: &Params<'_>, f: &mut Findings) -> Result<Audio, String> {
    let channels = channels(said, f)?;
    if ![44100, 48000, 96000].contains(&said.clock_rate) {
        let what = format!("a sampling rate of {} Hz", said.clock_rate);
        let cure = "taken as written; ST 2110 and AES67 have 48000, 96000 and 44100";
        match said.is_aes3() {
            true => f.deviates("sampling-rate", AM824, said.rtpmap_at, "rtpmap", what, cure),
            false => f.warn("sampling-rate", "ST 2110-30:2025 6.1", said.rtpmap_at, "rtpmap", what, cure),
        }
    }
    let time = packet_time(said, channels, p.at, f);
    let channel_order = channel_order(said, channels, p, f);
    p.report_unknown(&["channel-order", "TSMODE", "TSDELAY", "TROFF"], said.clause(), f);
    Ok(Audio {
        encoding: said.encoding.to_owned(),
        channels,
        samples_per_packet: time.map(|t| t.1),
        packet_time_us: time.map(|t| t.0),
        channel_order,
    })
}

fn channels(said: &Said<'_, '_>, f: &mut Findings) -> Result<u32, String> {
    let channels = match said.channels {
        Some(0) => {
            f.error(
                "channels",
                said.clause(),
                said.rtpmap_at,
                "rtpmap",
                "0 channels".to_owned(),
                "write the number of channels after the rate",
            );
            return Err("it has 0 channels".to_owned());
        }
        Some(n) => n,
        None if said.is_aes3() => {
            f.deviates(
                "channels",
                AM824,
                said.rtpmap_at,
                "rtpmap",
                "the number of subframes is missing".to_owned(),
                "2 assumed; write it after the rate",
            );
            2
        }
        None => {
            let what = "the number of channels is missing".to_owned();
            f.deviates(
                "channels",
                "RFC 8866 6.6",
                said.rtpmap_at,
                "rtpmap",
                what,
                "1 assumed (the default of RFC 8866); write it after the rate",
            );
            1
        }
    };
    if said.is_aes3() && channels % 2 == 1 {
        let what = format!("{channels} subframes; AES3 has pairs");
        f.deviates("channels", AM824, said.rtpmap_at, "rtpmap", what, "taken as written");
    }
    if channels > 64 && !said.is_aes3() {
        let what = format!("{channels} channels; no level of ST 2110-30 has more than 64");
        f.deviates("channels", PCM, said.rtpmap_at, "rtpmap", what, "taken as written");
    }
    Ok(channels)
}

/// Packet time in microseconds and samples of one channel.
fn packet_time(said: &Said<'_, '_>, channels: u32, at: At, f: &mut Findings) -> Option<(u32, u32)> {
    let rate = f64::from(said.clock_rate);
    let frames = said.framecount.and_then(|a| framecount(a, f));
    let Some(attribute) = said.ptime else {
        let cure = match frames {
            Some(n) => format!("{n} samples a packet are taken from framecount; write a=ptime"),
            None => "taken from the packets that arrive; write for example a=ptime:1".to_owned(),
        };
        f.deviates(
            "missing-ptime",
            said.clause(),
            at,
            "ptime",
            "a=ptime, the packet time, is missing".to_owned(),
            &cure,
        );
        return frames.map(|n| ((f64::from(n) * 1e6 / rate).round() as u32, n));
    };
    let text = attribute.value.trim();
    let here = attribute.at(0);
    let bare = text.trim_end_matches("ms").trim_end().replace(',', ".");
    let plain = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = bare.parse::<f64>().ok().filter(|v| plain && *v > 0.0 && *v <= 100_000.0);
    let Some(mut ms) = value else {
        let what = format!("`{}` is not a packet time in milliseconds", clip(text));
        f.deviates(
            "ptime",
            said.clause(),
            here,
            "ptime",
            what,
            "taken from the packets that arrive; write for example a=ptime:1",
        );
        return frames.map(|n| ((f64::from(n) * 1e6 / rate).round() as u32, n));
    };
    if bare != text {
        f.deviates(
            "ptime",
            said.clause(),
            here,
            "ptime",
            format!("`{}` is not a plain number", clip(text)),
            &format!("read as {bare}"),
        );
    }
    let octets = |ms: f64| (ms * rate / 1000.0).round() as u64 * u64::from(channels) * said.sample_octets();
    // 125 and 1000 are microseconds: no packet can hold as much.
    if octets(ms) > ROOM && ms >= 80.0 && octets(ms / 1000.0) > 0 && octets(ms / 1000.0) <= ROOM {
        let what = format!("a packet time of {bare} ms does not fit a packet");
        ms /= 1000.0;
        f.deviates("ptime", said.clause(), here, "ptime", what, &format!("taken for microseconds; write {ms}"));
    } else if octets(ms) > ROOM {
        let what = format!("{channels} channels of {bare} ms are {} octets; a packet holds {ROOM}", octets(ms));
        f.deviates(
            "packet-size",
            said.clause(),
            here,
            "ptime",
            what,
            "taken as written; use a shorter packet time or fewer channels",
        );
    }
    let samples = (ms * rate / 1000.0).round();
    if !(1.0..=65535.0).contains(&samples) {
        f.deviates(
            "ptime",
            said.clause(),
            here,
            "ptime",
            format!("{bare} ms is not one sample"),
            "taken from the packets that arrive",
        );
        return None;
    }
    usual(said, &bare, samples as u32, here, f);
    // A written time is rounded to two digits (0.12, 1.09): the sample count is what it means.
    if let (Some(n), Some(a)) = (frames.filter(|n| *n != samples as u32), said.framecount) {
        let what = format!("framecount is {n}, the packet time of {bare} ms means {samples} samples");
        f.deviates("framecount", "AES67 7.2", a.at(0), "framecount", what, "the packet time is used");
    }
    if let Some(a) = said.maxptime
        && a.value.trim().parse::<f64>().is_ok_and(|max| max + 1e-9 < ms)
    {
        let what = format!("maxptime {} is shorter than ptime {bare}", clip(a.value));
        f.warn("maxptime", "RFC 8866 6.5", a.at(0), "maxptime", what, "ignored");
    }
    Some(((samples * 1e6 / rate).round() as u32, samples as u32))
}

/// Packet times of AES67, ST 2110-30 and -31.
fn usual(said: &Said<'_, '_>, text: &str, samples: u32, at: At, f: &mut Findings) {
    let rate = u64::from(said.clock_rate);
    let at_48k = (u64::from(samples) * 48000).checked_div(rate).unwrap_or(0);
    let near_44k = matches!(samples, 4 | 6 | 12 | 16 | 48 | 192) && rate == 44100;
    if said.is_aes3() {
        let right = match (if rate == 44100 { u64::from(samples) } else { at_48k }, rate == 44100) {
            (48, false) => Some("1"),
            (48, true) => Some("1.09"),
            (6, false) => Some("0.12"),
            (6, true) => Some("0.14"),
            (4, false) => Some("0.08"),
            (4, true) => Some("0.09"),
            _ => None,
        };
        match right {
            Some(right) if text != right => {
                let same =
                    text.parse::<f64>().ok().zip(right.parse::<f64>().ok()).is_some_and(|(a, b)| (a - b).abs() < 1e-9);
                let what = format!("ptime {text}; ST 2110-31 writes {right} for {samples} samples");
                if same {
                    f.note("ptime-form", AM824, at, "ptime", what, "read all the same");
                } else {
                    f.deviates("ptime-form", AM824, at, "ptime", what, "read all the same");
                }
            }
            Some(_) => {}
            None => {
                let what = format!("a packet time of {text} ms ({samples} samples)");
                f.deviates(
                    "ptime-unusual",
                    AM824,
                    at,
                    "ptime",
                    what,
                    "taken as written; ST 2110-31 has 1, 0.12 and 0.08 ms",
                );
            }
        }
        return;
    }
    if ![6, 12, 16, 48, 192].contains(&at_48k) && !near_44k {
        let what = format!("a packet time of {text} ms ({samples} samples)");
        f.warn(
            "ptime-unusual",
            PCM,
            at,
            "ptime",
            what,
            "taken as written; ST 2110-30 has 1 and 0.125 ms, AES67 also 0.25, 0.333 and 4 ms",
        );
    }
}

/// `48` or `48-48`.
fn framecount(a: &Attribute<'_>, f: &mut Findings) -> Option<u32> {
    let text = a.value.trim();
    let number = text.split('-').next().and_then(|n| n.trim().parse::<u32>().ok()).filter(|n| (1..=65535).contains(n));
    if number.is_none() {
        let what = format!("`{}` is not a number of samples", clip(text));
        f.deviates("framecount", "AES67 7.2", a.at(0), "framecount", what, "ignored");
    }
    number
}

fn channel_order(said: &Said<'_, '_>, channels: u32, p: &Params<'_>, f: &mut Findings) -> Option<String> {
    const CLAUSE: &str = "ST 2110-30:2017 6.2.2";
    let (value, item) = p.value("channel-order", f)?;
    let mut said_wrong =
        |what: String, cure: &str| f.deviates("channel-order", CLAUSE, item.value_at, "channel-order", what, cure);
    let kept = Some(value.chars().take(512).collect());
    let Some((convention, groups)) = value.split_once('.') else {
        said_wrong(
            format!("`{}` has no convention", clip(value)),
            "the order of the channels is taken as undefined; write for example SMPTE2110.(ST)",
        );
        return None;
    };
    if convention != "SMPTE2110" {
        if !convention.eq_ignore_ascii_case("SMPTE2110") {
            let what = format!("channel-order of another convention, {}", clip(convention));
            f.note(
                "channel-order",
                CLAUSE,
                item.value_at,
                "channel-order",
                what,
                "the order of the channels is taken as undefined",
            );
            return kept;
        }
        said_wrong(format!("`{}` in place of SMPTE2110", clip(convention)), "read as the latter");
    }
    let inner = groups.strip_prefix('(').and_then(|g| g.strip_suffix(')'));
    if inner.is_none() {
        said_wrong(
            format!("the groups of `{}` are not in parentheses", clip(value)),
            "read all the same; write for example SMPTE2110.(ST)",
        );
    }
    let mut sum = 0u32;
    for group in inner.unwrap_or(groups.trim_matches(['(', ')'])).split(',').take(256) {
        let name = group.trim();
        let undefined = name.strip_prefix('U').filter(|d| d.len() == 2).and_then(|d| d.parse::<u32>().ok());
        match GROUPS.iter().find(|g| g.0 == name) {
            Some((_, n)) => sum += n,
            None if undefined.is_some_and(|n| (1..=64).contains(&n)) => sum += undefined.unwrap_or(0),
            None => match GROUPS.iter().find(|g| g.0.eq_ignore_ascii_case(name)) {
                Some((right, n)) => {
                    said_wrong(format!("`{}` in place of {right}", clip(name)), "read as the latter");
                    sum += n;
                }
                None => {
                    said_wrong(
                        format!("`{}` is not a channel group", clip(name)),
                        "these channels are undefined; write M, DM, ST, LtRt, 51, 71, 222, SGRP or U01 to U64",
                    );
                    return kept;
                }
            },
        }
    }
    // Not forbidden: ST 2110-30 takes what one has more than the other as undefined.
    if sum > channels {
        let what = format!("channel-order names {sum} channels, the rtpmap has {channels}");
        f.warn("channel-order", CLAUSE, item.value_at, "channel-order", what, "the rtpmap is used; correct either");
    } else if sum < channels && !said.is_aes3() {
        let what = format!("channel-order names {sum} of {channels} channels");
        f.note("channel-order", CLAUSE, item.value_at, "channel-order", what, "the others are undefined");
    }
    kept
}
