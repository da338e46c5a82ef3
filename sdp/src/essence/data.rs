//! ST 2110-40 (ancillary data), -41 (fast metadata) and -43 (timed text).

use super::video;
use crate::diagnostic::{At, Findings, clip};
use crate::params::Params;
use crate::{Ancillary, FastMetadata, Ratio, TimedText};

const ANC: &str = "ST 2110-40:2018 7";
const FAST: &str = "ST 2110-41:2024 7";

pub(crate) fn ancillary(p: &Params<'_>, framerate: Option<Ratio>, f: &mut Findings) -> Ancillary {
    let mut anc = Ancillary::default();
    if p.is_empty() {
        let what = if p.present { "the fmtp line is empty" } else { "there is no fmtp line" };
        f.deviates(
            "missing-parameter",
            ANC,
            p.at,
            "fmtp",
            what.to_owned(),
            "received all the same; write SSN=ST2110-40:2018; exactframerate=<rate>",
        );
        anc.rate = framerate;
        return anc;
    }
    anc.rate = match p.peek("exactframerate") {
        Some(_) => video::frame_rate(p, framerate, crate::Scan::Progressive, f),
        None => {
            let cure = "received all the same; write the frame rate of the video, for example exactframerate=25";
            f.deviates("missing-parameter", ANC, p.at, "exactframerate", "exactframerate is missing".to_owned(), cure);
            framerate
        }
    };
    for item in p.iter().filter(|i| i.name.eq_ignore_ascii_case("DID_SDID")) {
        let value = item.value.unwrap_or("");
        match did_sdid(value) {
            Some(pair) if anc.did_sdid.len() < 256 => {
                if value.contains(' ') || !value.starts_with("{0x") {
                    let what = format!("`{}` is not of the form {{0xHH,0xHH}}", clip(value));
                    let cure = format!("read as {{0x{:02X},0x{:02X}}}", pair.0, pair.1);
                    f.deviates("did-sdid", "RFC 8331 4", item.value_at, "DID_SDID", what, &cure);
                }
                anc.did_sdid.push(pair);
            }
            Some(_) => {}
            None => {
                let what = format!("`{}` is not a pair of two-digit hexadecimal numbers", clip(value));
                f.deviates(
                    "did-sdid",
                    "RFC 8331 4",
                    item.value_at,
                    "DID_SDID",
                    what,
                    "ignored, all data is received; write for example {0x61,0x02}",
                );
            }
        }
    }
    if let Some((value, item)) = p.value("VPID_Code", f) {
        anc.vpid_code = value.parse().ok();
        if anc.vpid_code.is_none() {
            let hex = value.strip_prefix("0x").and_then(|h| u8::from_str_radix(h, 16).ok());
            let what = format!("`{}` is not a number from 0 to 255", clip(value));
            let cure = hex.map_or("ignored".to_owned(), |n| format!("read as {n}; it is written in decimal"));
            f.deviates("vpid-code", "RFC 8331 4", item.value_at, "VPID_Code", what, &cure);
            anc.vpid_code = hex;
        }
    }
    if let Some((value, item)) = p.value("TM", f) {
        let word = ["CTM", "LLTM"].into_iter().find(|w| w.eq_ignore_ascii_case(value));
        if word != Some(value) {
            let what = format!("`{}` is not a transmission model", clip(value));
            f.deviates("unknown-value", "ST 2110-40:2023 7", item.value_at, "TM", what, "write CTM or LLTM");
        }
        anc.transmission_model = word.map(str::to_owned);
    }
    anc.ssn = edition(p, &["ST2110-40:2018", "ST2110-40:2023", "ST2110-40:2021"], ANC, f);
    if anc.transmission_model.is_some() && anc.ssn.as_deref() == Some("ST2110-40:2018") {
        let at = p.peek("SSN").map_or(p.at, |i| i.value_at);
        f.deviates(
            "ssn",
            "ST 2110-40:2023 7",
            at,
            "SSN",
            "TM exists since the 2023 edition only".to_owned(),
            "read all the same; write SSN=ST2110-40:2023",
        );
    }
    video::ts_mode(p, f);
    let names = ["DID_SDID", "VPID_Code", "exactframerate", "SSN", "TM", "TROFF", "TSMODE", "TSDELAY", "MAXUDP", "TP"];
    p.report_unknown(&names, ANC, f);
    anc
}

/// `{0x61,0x02}`; blanks and missing prefixes or braces are forgiven.
fn did_sdid(value: &str) -> Option<(u8, u8)> {
    let (did, sdid) = value.trim().trim_start_matches('{').trim_end_matches('}').split_once(',')?;
    let hex = |text: &str| {
        let text = text.trim();
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
        let good = (1..=2).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        good.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
    };
    Some((hex(did)?, hex(sdid)?))
}

/// `SSN` against the editions that exist.
fn edition(p: &Params<'_>, editions: &[&str], clause: &'static str, f: &mut Findings) -> Option<String> {
    let right = editions.first().copied().unwrap_or("");
    let Some((value, item)) = p.value("SSN", f) else {
        f.deviates(
            "missing-parameter",
            clause,
            p.at,
            "SSN",
            "SSN is missing".to_owned(),
            &format!("not needed to receive; write SSN={right}"),
        );
        return None;
    };
    if !editions.contains(&value) {
        let part = right.split(':').next().unwrap_or("");
        let what = format!("`{}` is not an edition of this standard", clip(value));
        f.deviates("ssn", clause, item.value_at, "SSN", what, &format!("read as {part}; write SSN={right}"));
    }
    Some(value.chars().take(64).collect())
}

pub(crate) fn fast_metadata(p: &Params<'_>, f: &mut Findings) -> FastMetadata {
    let ssn = edition(p, &["ST2110-41:2024", "SMPTE2110-41:2024"], FAST, f);
    let mut types = Vec::new();
    if let Some((value, item)) = p.value("DIT", f) {
        let mut offset = 0;
        for text in value.split(',') {
            let at = At { column: item.value_at.column + offset as u32, ..item.value_at };
            offset += text.len() + 1;
            let bare = text.trim().trim_start_matches("0x").trim_start_matches("0X");
            match u32::from_str_radix(bare, 16) {
                Ok(dit) if dit < 1 << 22 && !bare.starts_with('+') => {
                    if types.len() < 4096 {
                        types.push(dit);
                    }
                    if bare.len() != text.len() {
                        let what = format!("`{}` has a prefix or blanks", clip(text));
                        f.deviates("dit", FAST, at, "DIT", what, &format!("read as {bare}"));
                    }
                }
                _ if bare.is_empty() => {
                    f.deviates(
                        "dit",
                        FAST,
                        at,
                        "DIT",
                        "an empty item between commas".to_owned(),
                        "ignored; delete one comma",
                    );
                }
                Ok(_) => {
                    let what = format!("`{}` is beyond 22 bits", clip(text));
                    f.deviates("dit", FAST, at, "DIT", what, "ignored; a data item type is at most 3FFFFF");
                }
                Err(_) if bare.len() > 6 && bare.bytes().all(|b| b.is_ascii_hexdigit()) => {
                    let what = format!("`{}` is beyond 22 bits", clip(text));
                    f.deviates("dit", FAST, at, "DIT", what, "ignored; a data item type is at most 3FFFFF");
                }
                Err(_) => {
                    let what = format!("`{}` is not hexadecimal", clip(text));
                    f.deviates("dit", FAST, at, "DIT", what, "ignored; write for example DIT=100");
                }
            }
        }
    }
    video::ts_mode(p, f);
    p.report_unknown(&["SSN", "DIT", "TSMODE", "TSDELAY", "MAXUDP"], FAST, f);
    FastMetadata { data_item_types: types, ssn }
}

pub(crate) fn timed_text(p: &Params<'_>, f: &mut Findings) -> TimedText {
    const CLAUSE: &str = "RFC 8759 11";
    let codecs = p.value("codecs", f).map(|(value, _)| value.chars().take(64).collect());
    if codecs.is_none() {
        f.note(
            "missing-parameter",
            CLAUSE,
            p.at,
            "codecs",
            "codecs is missing".to_owned(),
            "the profile of TTML is unknown; write for example codecs=im2t",
        );
    }
    video::ts_mode(p, f);
    p.report_unknown(&["charset", "codecs", "TSMODE", "TSDELAY", "MAXUDP"], "ST 2110-43:2021 6", f);
    TimedText { codecs }
}
