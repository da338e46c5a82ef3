//! Frame rates: `exactframerate` (ST 2110-20) and `a=framerate` (RFC 8866).

use crate::Ratio;
use crate::diagnostic::{At, Findings, clip};

/// Numerators over 1001 that exist.
const OVER_1001: [u32; 6] = [24000, 30000, 48000, 60000, 120_000, 240_000];
const CLAUSE: &str = "ST 2110-20:2022 7.2";

/// Reads `exactframerate`; whatever is not an integer or a reduced fraction is repaired where its meaning is plain.
pub(crate) fn exact(text: &str, at: At, f: &mut Findings) -> Option<Ratio> {
    const NAME: &str = "exactframerate";
    if let Some(ratio) = strict(text) {
        return Some(unusual(ratio, at, f));
    }
    let bare = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let meant = fraction(bare).or_else(|| decimal(bare));
    match meant {
        Some(ratio) => {
            let what = format!("`{}` is neither an integer nor a reduced fraction", clip(text));
            f.deviates("framerate", CLAUSE, at, NAME, what, &format!("read as {ratio}; write that"));
            Some(unusual(ratio, at, f))
        }
        None => {
            let what = format!("the rate `{}` cannot be a frame rate", clip(text));
            f.deviates("framerate", CLAUSE, at, NAME, what, "taken as unknown; write for example 25 or 60000/1001");
            None
        }
    }
}

/// Reads `a=framerate`, a decimal number.
pub(crate) fn approximate(text: &str, at: At, f: &mut Findings) -> Option<Ratio> {
    let text = text.trim();
    let ratio = decimal(text).or_else(|| fraction(text));
    if ratio.is_none() {
        let what = format!("the rate `{}` cannot be a frame rate", clip(text));
        f.deviates("framerate", "RFC 8866 6.13", at, "framerate", what, "ignored");
    }
    ratio
}

/// Whether two rates mean the same: 29.97 and 30000/1001 do.
pub(crate) fn same(a: Ratio, b: Ratio) -> bool {
    (a.as_f64() / b.as_f64() - 1.0).abs() < 2e-4
}

/// An integer or a reduced fraction, as the standard writes them.
fn strict(text: &str) -> Option<Ratio> {
    let plain = |t: &str| t.bytes().all(|b| b.is_ascii_digit()) && !t.starts_with('0');
    match text.split_once('/') {
        None if plain(text) => Ratio::new(text.parse().ok()?, 1),
        Some((n, d)) if plain(n) && plain(d) => {
            let ratio = Ratio::new(n.parse().ok()?, d.parse().ok()?)?;
            (ratio.den > 1 && gcd(ratio.num, ratio.den) == 1).then_some(ratio)
        }
        _ => None,
    }
    .filter(|r| r.num > 0 && r.as_f64() <= 1000.0)
}

fn fraction(text: &str) -> Option<Ratio> {
    let (n, d) = text.split_once(['/', ':'])?;
    reduced(n.trim().parse().ok()?, d.trim().parse().ok()?)
}

/// 59.94 is 60000/1001, 25.00 is 25.
fn decimal(text: &str) -> Option<Ratio> {
    let text = text.replace(',', ".");
    let value: f64 =
        if text.bytes().all(|b| b.is_ascii_digit() || b == b'.') { text.parse().ok()? } else { return None };
    if !(0.01..=1000.0).contains(&value) {
        return None;
    }
    if (value - value.round()).abs() < 1e-3 {
        return reduced(value.round() as u64, 1);
    }
    // 23.98 and 29.97 are rounded to two digits: half of the last one is the error.
    let ntsc = OVER_1001.iter().find(|n| (f64::from(**n) / 1001.0 - value).abs() < 0.006);
    match ntsc {
        Some(n) => reduced(u64::from(*n), 1001),
        None => reduced((value * 1000.0).round() as u64, 1000),
    }
}

fn reduced(n: u64, d: u64) -> Option<Ratio> {
    if n == 0 || d == 0 {
        return None;
    }
    let (mut a, mut b) = (n, d);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let ratio = Ratio::new(u32::try_from(n / a).ok()?, u32::try_from(d / a).ok()?)?;
    (ratio.as_f64() <= 1000.0).then_some(ratio)
}

fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A rate that nothing sends is most likely a slip of a digit.
fn unusual(ratio: Ratio, at: At, f: &mut Findings) -> Ratio {
    const NAME: &str = "exactframerate";
    let common = match ratio.den {
        1 => [24, 25, 30, 48, 50, 60, 72, 75, 90, 96, 100, 120, 144, 200, 240].contains(&ratio.num),
        1001 => OVER_1001.contains(&ratio.num),
        _ => false,
    };
    if common {
        return ratio;
    }
    let slip = OVER_1001.iter().find(|n| {
        ratio.den == 1001 && (ratio.num.checked_mul(10) == Some(**n) || n.checked_mul(10) == Some(ratio.num))
    });
    let what = format!("{ratio} is {:.3} frames a second, which nothing uses", ratio.as_f64());
    match slip {
        Some(n) => {
            f.warn("framerate-unusual", CLAUSE, at, NAME, what, &format!("taken for a slip and read as {n}/1001"));
            Ratio { num: *n, den: 1001 }
        }
        None => {
            f.warn("framerate-unusual", CLAUSE, at, NAME, what, "taken as written; check it with the sender");
            ratio
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<(u32, u32)>, Vec<&'static str>) {
        let mut f = Findings::new(false);
        let ratio = exact(text, At::TEXT, &mut f).map(|r| (r.num, r.den));
        (ratio, f.finish().iter().map(|d| d.code).collect())
    }

    #[test]
    fn the_forms_of_the_standard_are_silent() {
        for (text, ratio) in
            [("25", (25, 1)), ("60000/1001", (60000, 1001)), ("24000/1001", (24000, 1001)), ("120", (120, 1))]
        {
            assert_eq!(read(text), (Some(ratio), vec![]), "{text}");
        }
    }

    #[test]
    fn other_forms_are_repaired_and_reported() {
        let cases = [
            ("59.94", (60000, 1001)),
            ("29.97", (30000, 1001)),
            ("23.976", (24000, 1001)),
            ("23.98", (24000, 1001)),
            ("119.88", (120_000, 1001)),
            ("50.0", (50, 1)),
            ("60/1", (60, 1)),
            ("50000/1000", (50, 1)),
            ("120000/2002", (60000, 1001)),
            ("25fps", (25, 1)),
            ("59,94", (60000, 1001)),
            ("59.94p", (60000, 1001)),
        ];
        for (text, ratio) in cases {
            assert_eq!(read(text), (Some(ratio), vec!["framerate"]), "{text}");
        }
        assert_eq!(read("6000/1001"), (Some((60000, 1001)), vec!["framerate-unusual"]));
        assert_eq!(read("17"), (Some((17, 1)), vec!["framerate-unusual"]));
    }

    #[test]
    fn what_cannot_be_a_rate_is_unknown() {
        for text in
            ["0", "0/1", "25/0", "-25", "fast", "", "18446744073709551615/9223372036854775807", "1e300", "99999", "nan"]
        {
            assert_eq!(read(text), (None, vec!["framerate"]), "{text}");
        }
    }
}
