//! ST 2110-20 and -21: `raw/90000`.

mod delivery;

pub(crate) use delivery::{sender_type, ts_mode};

use crate::diagnostic::{Findings, clip};
use crate::params::{Param, Params};
use crate::rate;
use crate::tokens::squeezed;
use crate::{Colorimetry, Depth, Packing, Range, Ratio, Sampling, Scan, SenderType, Tcs, Video};
use delivery::{max_udp, par, positive, ssn, troff, ts_delay};
use std::str::FromStr;

const FMTP: &str = "ST 2110-20:2022 7.2";
const NAMES: &[&str] = &[
    "sampling",
    "depth",
    "width",
    "height",
    "exactframerate",
    "colorimetry",
    "PM",
    "SSN",
    "TP",
    "interlace",
    "segmented",
    "TCS",
    "RANGE",
    "PAR",
    "MAXUDP",
    "TROFF",
    "CMAX",
    "TSMODE",
    "TSDELAY",
    "interlaced",
    "progressive",
];

/// Reads the parameters; `framerate` is what `a=framerate` says. The error is the reason why nothing can be received.
pub(crate) fn read(p: &Params<'_>, framerate: Option<Ratio>, f: &mut Findings) -> Result<Video, String> {
    let need = ["sampling", "depth", "width", "height"];
    // One without a value is as good as none; that of a size has an error of its own.
    let lacks = |name: &&str| match p.peek(name) {
        Some(item) => !matches!(*name, "width" | "height") && item.value.is_none_or(str::is_empty),
        None => true,
    };
    let missing: Vec<&str> = need.into_iter().filter(lacks).collect();
    if !missing.is_empty() {
        let line = if p.present { "the fmtp line lacks" } else { "there is no fmtp line; it must give" };
        let what = format!("{line} {}", missing.join(", "));
        let cure = "samples cannot be placed without; write for example sampling=YCbCr-4:2:2; width=1920; height=1080; depth=10";
        f.error("missing-parameter", FMTP, p.at, missing.first().unwrap_or(&""), what.clone(), cure);
    }
    let sampling = sampling(p, f);
    let depth = depth(p, f);
    let width = size(p, "width", f);
    let height = size(p, "height", f);
    let scan = scan(p, f);
    let rate = frame_rate(p, framerate, scan, f);
    let colorimetry = colorimetry(p, f);
    let tcs = tcs(p, f);
    let range = word::<Range>(p, "RANGE", "NARROW", f).unwrap_or(Range::Narrow);
    let packing = packing(p, f);
    let sender_type = sender_type(p, f);
    let ssn = ssn(p, colorimetry, tcs, f);
    let max_udp = max_udp(p, packing, f);
    let troff_us = troff(p, rate, f);
    let cmax = positive(p, "CMAX", "ST 2110-21:2022 8.2", f);
    let ts_mode = ts_mode(p, f);
    let ts_delay_us = ts_delay(p, f);
    let par = par(p, f);
    p.report_unknown(NAMES, FMTP, f);

    let (Some(sampling), Some(depth), Some(width), Some(height)) = (sampling, depth, width, height) else {
        return Err(match missing.as_slice() {
            [] => "its fmtp parameters cannot be read".to_owned(),
            list => format!("{} missing in fmtp", list.join(", ")),
        });
    };
    let mut video = Video {
        sampling,
        depth,
        width,
        height,
        rate,
        scan,
        colorimetry,
        tcs,
        range,
        par,
        packing,
        max_udp,
        sender_type,
        troff_us,
        cmax,
        ts_mode,
        ts_delay_us,
        ssn,
    };
    together(&video, p, f)?;
    if video.sampling == Sampling::Key {
        video.tcs = Tcs::Sdr;
    }
    Ok(video)
}

/// A word of the standard; an unknown one is reported and taken as absent.
fn word<T: FromStr + Copy + std::fmt::Display>(
    p: &Params<'_>,
    name: &str,
    default: &str,
    f: &mut Findings,
) -> Option<T> {
    let (value, item) = p.value(name, f)?;
    match value.parse::<T>() {
        Ok(word) => {
            if word.to_string() != value {
                let what = format!("`{}` in place of {word}", clip(value));
                f.deviates("value-case", FMTP, item.value_at, name, what, "read as the latter");
            }
            Some(word)
        }
        Err(_) => {
            let what = format!("`{}` is not a value of {name}", clip(value));
            f.deviates("unknown-value", FMTP, item.value_at, name, what, &format!("taken as {default}"));
            None
        }
    }
}

fn repaired(name: &str, value: &str, right: &str, item: &Param<'_>, f: &mut Findings) {
    let what = format!("`{}` in place of {right}", clip(value));
    f.deviates("unknown-value", FMTP, item.value_at, name, what, "read as the latter");
}

fn sampling(p: &Params<'_>, f: &mut Findings) -> Option<Sampling> {
    let (value, item) = p.value("sampling", f)?;
    if let Some(s) = Sampling::ALL.iter().find(|s| s.as_str() == value) {
        return Some(*s);
    }
    let squeezed = squeezed(value);
    let bare = squeezed.replace("YUV", "YCBCR").replace("YCRCB", "YCBCR");
    let bare = if bare.bytes().all(|b| b.is_ascii_digit()) { format!("YCBCR{bare}") } else { bare };
    let meant = Sampling::ALL.iter().find(|s| crate::tokens::squeezed(s.as_str()) == bare);
    if let Some(sampling) = meant {
        repaired("sampling", value, sampling.as_str(), &item, f);
        return Some(*sampling);
    }
    let what = match squeezed.as_str() {
        "BGR" | "RGBA" | "BGRA" | "YCBCR411" => {
            format!("{} is a sampling of RFC 4175 that ST 2110-20 does not have", clip(value))
        }
        _ => format!("`{}` is not a sampling", clip(value)),
    };
    f.error(
        "unknown-value",
        "ST 2110-20:2022 7.4.1",
        item.value_at,
        "sampling",
        what,
        "samples cannot be placed; write for example YCbCr-4:2:2 or RGB",
    );
    None
}

fn depth(p: &Params<'_>, f: &mut Findings) -> Option<Depth> {
    let (value, item) = p.value("depth", f)?;
    if let Some(d) = Depth::ALL.iter().find(|d| d.as_str() == value) {
        return Some(*d);
    }
    let squeezed = squeezed(value);
    let bare = squeezed.trim_end_matches("BITS").trim_end_matches("BIT");
    let bare = if bare == "FLOAT16" || bare == "HALF" { "16F" } else { bare };
    if let Some(d) = Depth::ALL.iter().find(|d| d.as_str().eq_ignore_ascii_case(bare)) {
        repaired("depth", value, d.as_str(), &item, f);
        return Some(*d);
    }
    let what = format!("`{}` is not a depth", clip(value));
    f.error(
        "unknown-value",
        "ST 2110-20:2022 7.4.2",
        item.value_at,
        "depth",
        what,
        "samples cannot be placed; write 8, 10, 12, 16 or 16f",
    );
    None
}

fn size(p: &Params<'_>, name: &str, f: &mut Findings) -> Option<u32> {
    let (value, item) = p.value(name, f).or_else(|| {
        if let Some(item) = p.peek(name) {
            f.error("bad-size", FMTP, item.at, name, format!("{name} has no value"), "write the number of pixels");
        }
        None
    })?;
    match value.parse::<u64>() {
        Ok(n) if (1..=32767).contains(&n) => {
            if value.starts_with(['0', '+']) {
                f.deviates(
                    "number-form",
                    FMTP,
                    item.value_at,
                    name,
                    format!("`{}`", clip(value)),
                    &format!("read as {n}"),
                );
            }
            return Some(n as u32);
        }
        _ => {}
    }
    let bare = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if let Some(n) = bare.parse::<u32>().ok().filter(|n| (1..=32767).contains(n) && bare.len() != value.len()) {
        repaired(name, value, &n.to_string(), &item, f);
        return Some(n);
    }
    let what = match value.parse::<i128>() {
        Ok(_) => format!("{name} is {}; it must be from 1 to 32767", clip(value)),
        Err(_) => format!("{name} is `{}`, which is not a number", clip(value)),
    };
    f.error("bad-size", FMTP, item.value_at, name, what, "samples cannot be placed; write the number of pixels");
    None
}

/// The flags `interlace` and `segmented`, and what senders write in their place.
pub(crate) fn scan(p: &Params<'_>, f: &mut Findings) -> Scan {
    const CLAUSE: &str = "ST 2110-20:2022 7.3";
    let mut flag = |name: &'static str, also: &str| -> Option<Param<'_>> {
        let item = match p.peek(name) {
            Some(_) => p.get(name, f)?,
            None => {
                let item = p.peek(also).filter(|_| !also.is_empty())?;
                let what = format!("`{}` in place of {name}", clip(item.name));
                f.deviates("flag", CLAUSE, item.at, name, what, "read as the latter");
                item
            }
        };
        let value = item.value?.to_ascii_lowercase();
        let off = matches!(value.as_str(), "0" | "false" | "no" | "off" | "progressive");
        let what = format!("{name} is a flag and takes no value (`{}`)", clip(&value));
        let cure = if off { "taken as absent; leave it out" } else { "taken as set; write the name alone" };
        f.deviates("flag", CLAUSE, item.at, name, what, cure);
        (!off).then_some(item)
    };
    // A flag without value returns early above, so presence is asked for apart.
    let set = |p: &Params<'_>, name: &str, also: &str, read: Option<Param<'_>>| {
        read.is_some()
            || p.peek(name).or_else(|| p.peek(also).filter(|_| !also.is_empty())).is_some_and(|i| i.value.is_none())
    };
    let read = flag("interlace", "interlaced");
    let interlace = set(p, "interlace", "interlaced", read);
    let read = flag("segmented", "psf");
    let segmented = set(p, "segmented", "psf", read);
    if let Some(item) = p.peek("progressive") {
        let (what, cure) = match interlace {
            true => ("progressive and interlace contradict each other", "interlace is used; delete one"),
            false => ("there is no flag `progressive`", "ignored; progressive is what the absence of interlace says"),
        };
        f.deviates("flag", CLAUSE, item.at, "progressive", what.to_owned(), cure);
    }
    if segmented && !interlace {
        let at = p.peek("segmented").or_else(|| p.peek("psf")).map_or(p.at, |i| i.at);
        f.deviates(
            "flag",
            CLAUSE,
            at,
            "segmented",
            "segmented without interlace".to_owned(),
            "read as PsF; write interlace; segmented",
        );
    }
    match (interlace, segmented) {
        (_, true) => Scan::Psf,
        (true, false) => Scan::Interlaced,
        (false, false) => Scan::Progressive,
    }
}

/// `exactframerate`, or what `a=framerate` says in its place.
pub(crate) fn frame_rate(p: &Params<'_>, framerate: Option<Ratio>, scan: Scan, f: &mut Findings) -> Option<Ratio> {
    let Some((value, item)) = p.value("exactframerate", f) else {
        let cure = match framerate {
            Some(rate) => format!("a=framerate is used ({rate}); write exactframerate={rate}"),
            None => "buffers are sized for 60 frames a second; write for example exactframerate=25".to_owned(),
        };
        if p.present && p.peek("exactframerate").is_none() {
            let what = "exactframerate is missing".to_owned();
            f.deviates("missing-parameter", FMTP, p.at, "exactframerate", what, &cure);
        }
        return framerate;
    };
    let rate = rate::exact(value, item.value_at, f)?;
    if scan == Scan::Interlaced && rate.as_f64() > 31.0 {
        let what = format!("interlace with {rate}: exactframerate counts frames, not fields");
        let cure = format!(
            "taken as written ({:.0} fields a second); write half of it if that is the field rate",
            2.0 * rate.as_f64()
        );
        f.warn("interlace-rate", FMTP, item.value_at, "exactframerate", what, &cure);
    }
    Some(rate)
}

fn colorimetry(p: &Params<'_>, f: &mut Findings) -> Colorimetry {
    const CLAUSE: &str = "ST 2110-20:2022 7.5";
    let Some((value, item)) = p.value("colorimetry", f) else {
        if p.present {
            let what = "colorimetry is missing".to_owned();
            f.deviates(
                "missing-parameter",
                CLAUSE,
                p.at,
                "colorimetry",
                what,
                "UNSPECIFIED assumed; write for example BT709",
            );
        }
        return Colorimetry::Unspecified;
    };
    if let Some(c) = Colorimetry::ALL.iter().find(|c| c.as_str() == value) {
        return *c;
    }
    // RFC 4175 writes BT709-2 and BT601-5, people write BT.709, ITU-R BT.2020 or Rec709.
    let squeezed = squeezed(value).replace("ITUR", "").replace("ITU", "").replace("REC", "BT");
    let meant = Colorimetry::ALL.iter().find(|c| {
        let word = crate::tokens::squeezed(c.as_str());
        squeezed == word || (word.starts_with("BT") && squeezed.starts_with(&word) && squeezed.len() <= word.len() + 1)
    });
    match meant {
        Some(c) => {
            repaired("colorimetry", value, c.as_str(), &item, f);
            *c
        }
        None => {
            let what = format!("`{}` is not a colorimetry", clip(value));
            f.deviates(
                "unknown-value",
                CLAUSE,
                item.value_at,
                "colorimetry",
                what,
                "UNSPECIFIED assumed; write for example BT709",
            );
            Colorimetry::Unspecified
        }
    }
}

fn tcs(p: &Params<'_>, f: &mut Findings) -> Tcs {
    if let Some((value, item)) = p.value("TCS", f).filter(|(v, _)| Tcs::from_str(v).is_err()) {
        let squeezed = squeezed(value);
        let meant = match squeezed.as_str() {
            "HDR10" | "ST2084" | "SMPTE2084" | "HDRPQ" => Some(Tcs::Pq),
            "ARIBSTDB67" | "HDRHLG" => Some(Tcs::Hlg),
            _ => Tcs::ALL.iter().find(|t| crate::tokens::squeezed(t.as_str()) == squeezed).copied(),
        };
        if let Some(tcs) = meant {
            repaired("TCS", value, tcs.as_str(), &item, f);
            return tcs;
        }
    }
    word(p, "TCS", "SDR", f).unwrap_or(Tcs::Sdr)
}

fn packing(p: &Params<'_>, f: &mut Findings) -> Packing {
    const CLAUSE: &str = "ST 2110-20:2022 6.3";
    let Some((value, item)) = p.value("PM", f) else {
        if p.present {
            f.deviates(
                "missing-parameter",
                CLAUSE,
                p.at,
                "PM",
                "PM is missing".to_owned(),
                "2110GPM assumed; write PM=2110GPM or PM=2110BPM",
            );
        }
        return Packing::Gpm;
    };
    if let Some(packing) = Packing::ALL.iter().find(|m| m.as_str() == value) {
        return *packing;
    }
    let squeezed = squeezed(value);
    let packing = if squeezed.ends_with("BPM") { Packing::Bpm } else { Packing::Gpm };
    if squeezed.ends_with(packing.as_str().trim_start_matches("2110")) {
        repaired("PM", value, packing.as_str(), &item, f);
    } else {
        let what = format!("`{}` is not a packing mode", clip(value));
        f.deviates(
            "unknown-value",
            CLAUSE,
            item.value_at,
            "PM",
            what,
            "2110GPM assumed; receiving works in either mode",
        );
    }
    packing
}

/// What must fit together.
fn together(v: &Video, p: &Params<'_>, f: &mut Findings) -> Result<(), String> {
    let at = |name: &str| p.peek(name).map_or(p.at, |i| i.value_at);
    let Some(pgroup) = v.sampling.pgroup(v.depth) else {
        let what = format!("ST 2110-20 defines no pixel group for {} at depth {}", v.sampling, v.depth);
        f.error(
            "no-pgroup",
            "ST 2110-20:2022 6.2",
            at("depth"),
            "depth",
            what.clone(),
            "samples cannot be placed; check sampling and depth",
        );
        return Err(what);
    };
    if pgroup.rows == 2 && v.scan != Scan::Progressive {
        let what = format!("{} exists for progressive pictures only", v.sampling);
        f.error(
            "interlaced-420",
            "ST 2110-20:2022 6.2.5",
            at("sampling"),
            "interlace",
            what.clone(),
            "rows cannot be placed; write 4:2:2, or leave interlace out",
        );
        return Err(what);
    }
    if pgroup.rows == 2 && v.height % 2 == 1 {
        let what = format!("height {} is odd, 4:2:0 has pairs of rows", v.height);
        f.deviates("odd-size", "ST 2110-20:2022 6.2.5", at("height"), "height", what, "the last pair is half empty");
    }
    if v.sampling.subsampling() == crate::Subsampling::Half422 && v.width % 2 == 1 {
        let what = format!("width {} is odd, 4:2:2 has pairs of pixels", v.width);
        f.deviates("odd-size", "ST 2110-20:2022 6.2.4", at("width"), "width", what, "the last pair is half empty");
    }
    if v.scan != Scan::Progressive && v.height == 720 {
        let what = "720 rows are always progressive (ST 296); interlaced there is no such format".to_owned();
        f.warn(
            "interlaced-720",
            FMTP,
            at("height"),
            "interlace",
            what,
            "fields of 360 rows are assumed; check the flag",
        );
    }
    let key = v.sampling == Sampling::Key;
    if key != (v.colorimetry == Colorimetry::Alpha) {
        let what = format!("sampling {} with colorimetry {}: KEY and ALPHA go together", v.sampling, v.colorimetry);
        f.deviates("key-alpha", "ST 2110-20:2022 7.5", at("colorimetry"), "colorimetry", what, "taken as written");
    }
    if key && p.peek("TCS").is_some() {
        let what = "a key signal has no TCS".to_owned();
        f.deviates("key-tcs", "ST 2110-20:2022 7.6", at("TCS"), "TCS", what, "ignored; leave it out");
    }
    let linear = matches!(v.tcs, Tcs::Linear | Tcs::Bt2100LinPq | Tcs::Bt2100LinHlg | Tcs::St2065_1);
    if linear && v.depth != Depth::F16 {
        let what = format!("TCS {} means floating point, depth is {}", v.tcs, v.depth);
        f.deviates(
            "tcs-depth",
            "ST 2110-20:2022 7.6",
            at("TCS"),
            "TCS",
            what,
            "the depth is taken as written; write depth=16f",
        );
    }
    if v.depth == Depth::F16 && !linear && v.tcs != Tcs::Unspecified && !key {
        let what = format!("depth 16f with TCS {}: floating point goes with linear light", v.tcs);
        f.note("tcs-depth", "ST 2110-20:2022 7.6", at("depth"), "depth", what, "taken as written");
    }
    if v.colorimetry == Colorimetry::Bt2100 && v.range == Range::FullProtect {
        let what = "BT2100 has NARROW or FULL range".to_owned();
        f.deviates("range", "ST 2110-20:2022 7.7", at("RANGE"), "RANGE", what, "taken as written");
    }
    if matches!(v.tcs, Tcs::Pq | Tcs::Hlg) && matches!(v.colorimetry, Colorimetry::Bt601 | Colorimetry::Bt709) {
        let what = format!("TCS {} with colorimetry {}", v.tcs, v.colorimetry);
        f.warn(
            "tcs-colorimetry",
            "ST 2110-20:2022 7.6",
            at("colorimetry"),
            "colorimetry",
            what,
            "taken as written; HDR is BT2100 or BT2020",
        );
    }
    if v.packing == Packing::Bpm && 180 % pgroup.octets != 0 {
        let what = format!("pixel groups of {} octets do not divide a block of 180", pgroup.octets);
        f.warn("bpm-pgroup", "ST 2110-20:2022 6.3.3", at("PM"), "PM", what, "taken as written");
    }
    Ok(())
}
