//! What the counters say in words: which part of the SDP a stream contradicts.

use super::Video;
use crate::stats::Reason;
use std::fmt::{self, Display, Write};

/// Fewer rejections say nothing, nor do those of less than one packet in a hundred.
const MANY: u64 = 100;
/// Packets after which something should have been placed.
const TRIED: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Remark {
    Hint(&'static str),
    Rows([u32; 2]),
    Restarts(u64),
}

impl Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Remark::Hint(text) => f.write_str(text),
            Remark::Rows([a, b]) if a == b => {
                write!(f, "the sender numbers rows as in the SDI raster, from {a} on: corrected")
            }
            Remark::Rows([a, b]) => {
                write!(f, "the sender numbers rows as in the SDI raster, from {a} and {b} on: corrected")
            }
            Remark::Restarts(1) => f.write_str("the sender started anew once"),
            Remark::Restarts(n @ 2..10) => write!(f, "the sender started anew {n} times"),
            Remark::Restarts(n) => write!(f, "the sender started anew {n} times or more"),
        }
    }
}

/// What many rejections of a kind hint at.
const fn hint(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::PayloadType => "packets of another payload type than the SDP's",
        Reason::Ssrc => "a second sender on this address and port: its SSRC or its sequence differs",
        Reason::Length => "packets shorter than their headers: the payload is not ST 2110-20",
        Reason::SrdHeader => "the payload is not ST 2110-20, or sampling and depth differ from the SDP",
        Reason::Row => "rows beyond the SDP's height: compare height and interlace",
        Reason::Offset | Reason::Segment => {
            "offsets or segments beyond the SDP's width: compare width, sampling and depth"
        }
        Reason::Field => "second fields in a stream that the SDP calls progressive: is `interlace` missing?",
        Reason::Version => "datagrams that are not RTP",
        Reason::Split => {
            "headers longer than the split of headers and data: start again, or use a longer split (--rivermax split=32, split=none; --verbs cut=96, cut=none)"
        }
        Reason::Source | Reason::Truncated => return None,
    })
}

/// Replaces `out` when it holds anything else. Allocates only then.
pub(super) fn update(v: &Video, out: &mut Vec<String>) {
    let mut list = [None; Reason::COUNT + 4];
    let mut len = 0;
    let mut add = |remark| {
        if let Some(place) = list.get_mut(len) {
            *place = Some(remark);
            len += 1;
        }
    };
    if let Some(rows) = v.first_rows().filter(|rows| *rows != [0, 0]) {
        add(Remark::Rows(rows));
    }
    if v.second_field_first() {
        add(Remark::Hint("the sender's second field comes first (F=1 before F=0): paired by their timestamps"));
    }
    let c = v.counters();
    let rejected = c.rejected.total();
    if !v.has_begun() && c.received + rejected >= TRIED {
        add(Remark::Hint("packets come, but none holds samples that fit the SDP: is it this stream's?"));
    }
    if rejected >= MANY {
        // Packets with a bad segment are in both numbers, which matters little at one in a hundred.
        let packets = c.received + rejected;
        let of = |reason| c.rejected.get(reason);
        for reason in Reason::ALL {
            let count = match reason {
                Reason::Offset => of(Reason::Offset) + of(Reason::Segment),
                Reason::Segment => continue,
                reason => of(reason),
            };
            let Some(text) = hint(reason).filter(|_| count >= MANY) else { continue };
            // What has been said stays: the list is not to flicker.
            if count.saturating_mul(100) > packets || out.iter().any(|o| o == text) {
                add(Remark::Hint(text));
            }
        }
    }
    if c.restarts > 0 {
        add(Remark::Restarts(rounded(c.restarts)));
    }
    let list = list.get(..len).unwrap_or_default();
    let same = list.len() == out.len() && list.iter().flatten().zip(&*out).all(|(remark, o)| is(remark, o));
    if !same {
        out.clear();
        out.extend(list.iter().flatten().map(Remark::to_string));
    }
}

/// Down to one digit, so that it changes seldom.
fn rounded(n: u64) -> u64 {
    let unit = 10u64.pow(n.max(1).ilog10());
    n / unit * unit
}

/// Does the remark read so?
fn is(remark: &Remark, text: &str) -> bool {
    /// What is still to come.
    struct Rest<'a>(&'a str);
    impl Write for Rest<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(text);
    write!(rest, "{remark}").is_ok() && rest.0.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_are_compared_and_numbers_rounded() {
        assert_eq!([0, 1, 9, 10, 19, 20, 99, 345, 1000].map(rounded), [0, 1, 9, 10, 10, 20, 90, 300, 1000]);
        let rows = Remark::Rows([21, 584]);
        assert!(is(&rows, "the sender numbers rows as in the SDI raster, from 21 and 584 on: corrected"));
        assert!(!is(&rows, "the sender numbers rows as in the SDI raster, from 21 and 584 on: corrected."));
        assert!(!is(&rows, "the sender numbers rows as in the SDI raster, from 21 on: corrected"));
        assert_eq!(Remark::Restarts(1).to_string(), "the sender started anew once");
        assert_eq!(Remark::Restarts(9).to_string(), "the sender started anew 9 times");
        assert_eq!(Remark::Restarts(300).to_string(), "the sender started anew 300 times or more");
    }
}
