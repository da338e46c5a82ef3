//! Streams that make receivers stumble: each cell sends known pictures and compares whole frames.

mod support;

use gdmedia::format::WireFormat;
use gdmedia::packetise::Cut;
use gdmedia::sdp::Scan;
use support::*;

const FRAMES: usize = 5;
const SCANS: [Scan; 3] = [Scan::Progressive, Scan::Interlaced, Scan::Psf];

/// Runs `cell` for every format, cut and scan.
fn each(mut cell: impl FnMut(WireFormat, Cut)) {
    for scan in SCANS {
        for format in formats(scan) {
            for cut in cuts(format) {
                cell(format, cut);
            }
        }
    }
}

/// Sends five frames through `harm` and expects all of them whole.
fn survives(format: WireFormat, cut: Cut, harm: impl FnOnce(Vec<Sent>) -> Vec<Sent>) -> Receiver {
    let sent = Sender::plain(format, cut).frames(FRAMES);
    let mut r = Receiver::new(format);
    r.feed(&harm(sent));
    r.finish();
    check_all(&r, 0, FRAMES);
    r
}

#[test]
fn in_order() {
    each(|format, cut| {
        let r = survives(format, cut, |p| p);
        let c = r.dep.counters();
        assert_eq!((c.lost, c.late, c.duplicate, c.reordered, c.restarts, c.rejected.total()), (0, 0, 0, 0, 0, 0));
        let half = if format.scan == Scan::Interlaced { Some(1501) } else { None };
        for out in &r.out {
            assert_eq!(out.end.second_timestamp.map(|s| s.wrapping_sub(out.end.timestamp)), half);
        }
    });
}
