//! ST 2110-22: JPEG XS (RFC 9134), VC-2 and private codecs of constant rate.

use super::video;
use crate::CompressedVideo;
use crate::Ratio;
use crate::diagnostic::{At, Findings, clip};
use crate::params::Params;
use crate::rate;

const CLAUSE: &str = "ST 2110-22:2022 7.2";

pub(crate) fn read(
    encoding: &str,
    p: &Params<'_>,
    framerate: Option<(Ratio, At)>,
    bandwidth: Option<u32>,
    f: &mut Findings,
) -> CompressedVideo {
    let width = size(p, "width", f);
    let height = size(p, "height", f);
    video::sender_type(p, f);
    if let Some((value, item)) = p.value("SSN", f).filter(|(v, _)| !["ST2110-22:2019", "ST2110-22:2022"].contains(v)) {
        let what = format!("`{}` is not an edition of ST 2110-22", clip(value));
        let cure = "read as ST 2110-22; write SSN=ST2110-22:2019 or :2022";
        f.deviates("ssn", CLAUSE, item.value_at, "SSN", what, cure);
    }
    let jpeg_xs = encoding.eq_ignore_ascii_case("jxsv");
    if jpeg_xs {
        flag(p, "packetmode", true, f);
        flag(p, "transmode", false, f);
    }
    if bandwidth.is_none() {
        let what = "b=AS, the bit rate, is missing from the medium".to_owned();
        f.deviates(
            "missing-bandwidth",
            "ST 2110-22:2022 7.3",
            At { column: 0, ..p.at },
            "b=",
            what,
            "buffers are sized without it; write b=AS:<kbit/s>",
        );
    }
    let scan = video::scan(p, f);
    let written = p.value("exactframerate", f);
    let exact = written.and_then(|(value, item)| rate::exact(value, item.value_at, f));
    let rate = match (exact, framerate) {
        (Some(exact), Some((approximate, at))) if !rate::same(exact, approximate) => {
            let line = written.map_or(0, |(_, item)| item.at.line);
            let what =
                format!("a=framerate says {:.3}, exactframerate in line {line} says {exact}", approximate.as_f64());
            f.warn(
                "framerate-contradiction",
                CLAUSE,
                at,
                "framerate",
                what,
                "exactframerate is used; delete a=framerate or correct it",
            );
            Some(exact)
        }
        (Some(exact), Some((_, at))) => {
            f.note(
                "framerate-twice",
                CLAUSE,
                at,
                "framerate",
                "a=framerate repeats exactframerate".to_owned(),
                "exactframerate is used",
            );
            Some(exact)
        }
        (exact, framerate) => exact.or(framerate.map(|r| r.0)),
    };
    if rate.is_none() && written.is_none() {
        let what = "neither exactframerate nor a=framerate is given".to_owned();
        f.deviates(
            "missing-parameter",
            "ST 2110-22:2022 7.4",
            p.at,
            "exactframerate",
            what,
            "the rate is unknown; write for example exactframerate=25",
        );
    }
    video::ts_mode(p, f);
    let own = ["width", "height", "exactframerate", "interlace", "interlaced", "segmented", "psf", "progressive"];
    let parameters = p
        .iter()
        .filter(|i| !own.iter().any(|n| i.name.eq_ignore_ascii_case(n)))
        .map(|i| (i.name.to_owned(), i.value.unwrap_or("").to_owned()))
        .collect();
    CompressedVideo { encoding: encoding.to_owned(), width, height, rate, scan, parameters }
}

fn size(p: &Params<'_>, name: &str, f: &mut Findings) -> Option<u32> {
    let Some((value, item)) = p.value(name, f) else {
        if p.peek(name).is_none() {
            f.deviates(
                "missing-parameter",
                CLAUSE,
                p.at,
                name,
                format!("{name} is missing"),
                "taken from the codestream; write it",
            );
        }
        return None;
    };
    let number = value.parse::<u32>().ok().filter(|n| (1..=32767).contains(n));
    if number.is_none() {
        let what = format!("`{}` is not a number of pixels", clip(value));
        f.deviates("bad-size", CLAUSE, item.value_at, name, what, "taken from the codestream");
    }
    number
}

/// A parameter of RFC 9134 that is 0 or 1.
fn flag(p: &Params<'_>, name: &str, required: bool, f: &mut Findings) {
    const CLAUSE: &str = "RFC 9134 7.1";
    match p.value(name, f) {
        Some(("0" | "1", _)) => {}
        Some((value, item)) => {
            let what = format!("`{}` is neither 0 nor 1", clip(value));
            f.deviates("unknown-value", CLAUSE, item.value_at, name, what, "taken from the payload headers");
        }
        None if required => {
            f.deviates(
                "missing-parameter",
                CLAUSE,
                p.at,
                name,
                format!("{name} is missing"),
                "taken from the payload headers; write packetmode=0 or 1",
            );
        }
        None => {}
    }
}
