//! How packets are sent and stamped: ST 2110-10 and -21 parameters, edition, pixel shape.

use super::*;

/// `TP` of ST 2110-21.
pub(crate) fn sender_type(p: &Params<'_>, f: &mut Findings) -> Option<SenderType> {
    const CLAUSE: &str = "ST 2110-21:2022 8.1";
    let Some((value, item)) = p.value("TP", f) else {
        if p.present && p.peek("TP").is_none() {
            let what = "TP, the sender type, is missing".to_owned();
            f.deviates(
                "missing-parameter",
                CLAUSE,
                p.at,
                "TP",
                what,
                "treated as wide; write TP=2110TPN, 2110TPNL or 2110TPW",
            );
        }
        return None;
    };
    if let Some(tp) = SenderType::ALL.iter().find(|t| t.as_str() == value) {
        return Some(*tp);
    }
    let squeezed = squeezed(value);
    let meant = SenderType::ALL.iter().find(|t| {
        let word = t.as_str();
        squeezed == word || squeezed == word.trim_start_matches("2110") || squeezed == word.trim_start_matches("2110TP")
    });
    match meant {
        Some(tp) => repaired("TP", value, tp.as_str(), &item, f),
        None => {
            let what = format!("`{}` is not a sender type", clip(value));
            f.deviates(
                "unknown-value",
                CLAUSE,
                item.value_at,
                "TP",
                what,
                "treated as wide; write 2110TPN, 2110TPNL or 2110TPW",
            );
        }
    }
    meant.copied()
}

pub(super) fn ssn(p: &Params<'_>, colorimetry: Colorimetry, tcs: Tcs, f: &mut Findings) -> Option<String> {
    let Some((value, item)) = p.value("SSN", f) else {
        if p.present {
            f.deviates(
                "missing-parameter",
                FMTP,
                p.at,
                "SSN",
                "SSN is missing".to_owned(),
                "not needed to receive; write SSN=ST2110-20:2017",
            );
        }
        return None;
    };
    let needs_2022 = colorimetry == Colorimetry::Alpha || tcs == Tcs::St2115LogS3;
    match value {
        "ST2110-20:2017" if needs_2022 => {
            let what = "ALPHA and ST2115LOGS3 exist since the 2022 edition only".to_owned();
            f.deviates("ssn", FMTP, item.value_at, "SSN", what, "read all the same; write SSN=ST2110-20:2022");
        }
        "ST2110-20:2017" => {}
        "ST2110-20:2022" if !needs_2022 => {
            let what = "SSN says 2022, though nothing of that edition is used".to_owned();
            f.note(
                "ssn",
                FMTP,
                item.value_at,
                "SSN",
                what,
                "receivers of 2017 may refuse it; write SSN=ST2110-20:2017",
            );
        }
        "ST2110-20:2022" => {}
        _ => {
            let what = format!("`{}` is not an edition of ST 2110-20", clip(value));
            f.deviates(
                "ssn",
                FMTP,
                item.value_at,
                "SSN",
                what,
                "read as ST 2110-20; write SSN=ST2110-20:2017 or :2022",
            );
        }
    }
    Some(value.chars().take(64).collect())
}

pub(super) fn max_udp(p: &Params<'_>, packing: Packing, f: &mut Findings) -> u32 {
    const CLAUSE: &str = "ST 2110-10:2022 8.6";
    let Some((value, item)) = p.value("MAXUDP", f) else { return 1460 };
    let Ok(size) = value.parse::<u32>() else {
        let what = format!("`{}` is not a number of octets", clip(value));
        f.deviates("maxudp", CLAUSE, item.value_at, "MAXUDP", what, "1460 assumed");
        return 1460;
    };
    if size > 8960 {
        f.deviates(
            "maxudp",
            CLAUSE,
            item.value_at,
            "MAXUDP",
            format!("{size} is beyond the extended limit of 8960"),
            "read as 8960",
        );
        return 8960;
    }
    if size < 1460 {
        f.deviates(
            "maxudp",
            CLAUSE,
            item.value_at,
            "MAXUDP",
            format!("{size} is below the standard limit of 1460"),
            "read as 1460; leave MAXUDP out",
        );
        return 1460;
    }
    if packing == Packing::Bpm && size > 1460 {
        let what = "block packing (2110BPM) has packets of the standard size, MAXUDP does not go with it".to_owned();
        f.deviates("maxudp", "ST 2110-20:2022 6.3.3", item.at, "MAXUDP", what, "ignored; leave MAXUDP out");
        return 1460;
    }
    if size > 1460 {
        let what = format!("packets of up to {size} octets");
        f.note("maxudp", CLAUSE, item.at, "MAXUDP", what, "the network and the interface need an MTU above that");
    }
    size
}

/// `TROFF` of ST 2110-21: a positive number of microseconds, less than a frame.
pub(super) fn troff(p: &Params<'_>, rate: Option<Ratio>, f: &mut Findings) -> Option<u32> {
    let troff = positive(p, "TROFF", "ST 2110-21:2022 8.2", f)?;
    let frame_us = rate.map(|r| 1e6 / r.as_f64());
    if let (Some(frame), Some(item)) = (frame_us.filter(|frame| f64::from(troff) >= *frame), p.peek("TROFF")) {
        let what = format!("TROFF is {troff} us, a frame lasts {frame:.0} us");
        f.deviates(
            "troff",
            "ST 2110-21:2022 8.2",
            item.value_at,
            "TROFF",
            what,
            "ignored; the default offset is assumed",
        );
        return None;
    }
    Some(troff)
}

pub(super) fn positive(p: &Params<'_>, name: &str, clause: &'static str, f: &mut Findings) -> Option<u32> {
    let (value, item) = p.value(name, f)?;
    // Clause 6.2 of ST 2110-21 allows an offset of 0.
    let least = u32::from(name != "TROFF");
    let number = value.parse::<u32>().ok().filter(|n| *n >= least);
    if number.is_none() {
        let what = format!("`{}` is not a positive integer", clip(value));
        f.deviates("bad-number", clause, item.value_at, name, what, "ignored; the default is assumed");
    }
    number
}

/// `TSMODE` of ST 2110-10.
pub(crate) fn ts_mode(p: &Params<'_>, f: &mut Findings) -> Option<String> {
    let (value, item) = p.value("TSMODE", f)?;
    let word = ["SAMP", "NEW", "PRES"].into_iter().find(|w| w.eq_ignore_ascii_case(value));
    if word != Some(value) {
        let what = format!("`{}` is not a timestamp mode", clip(value));
        f.deviates("unknown-value", "ST 2110-10:2022 8.6", item.value_at, "TSMODE", what, "write SAMP, NEW or PRES");
    }
    word.map(str::to_owned)
}

pub(super) fn ts_delay(p: &Params<'_>, f: &mut Findings) -> Option<u32> {
    let (value, item) = p.value("TSDELAY", f)?;
    let number = value.parse::<u32>().ok();
    if number.is_none() {
        let what = format!("`{}` is not a number of microseconds", clip(value));
        f.deviates("bad-number", "ST 2110-10:2022 8.7", item.value_at, "TSDELAY", what, "ignored");
    }
    number
}

pub(super) fn par(p: &Params<'_>, f: &mut Findings) -> Ratio {
    const SQUARE: Ratio = Ratio { num: 1, den: 1 };
    let Some((value, item)) = p.value("PAR", f) else { return SQUARE };
    let ratio = value.split_once([':', '/']).and_then(|(w, h)| {
        let ratio = Ratio::new(w.trim().parse().ok()?, h.trim().parse().ok()?)?;
        (ratio.num > 0).then_some(ratio)
    });
    let Some(ratio) = ratio else {
        let what = format!("`{}` is not a pixel aspect ratio", clip(value));
        f.deviates("par", "ST 2110-20:2022 7.3", item.value_at, "PAR", what, "1:1 assumed; write for example 12:11");
        return SQUARE;
    };
    if !value.contains(':') {
        f.deviates(
            "par",
            "ST 2110-20:2022 7.3",
            item.value_at,
            "PAR",
            format!("`{}` in place of a ratio with a colon", clip(value)),
            "read as such",
        );
    }
    ratio
}
