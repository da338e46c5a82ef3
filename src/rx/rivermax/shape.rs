//! How packets are cut and how large slots are, from what was asked for and what was seen. Pure.

use super::options::{Options, Split};
use super::probe::Seen;
use crate::format::WireFormat;
use crate::sdp::Scan;

/// How packets are to be cut, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub split: Option<u16>,
    /// Octets of a packet at most.
    pub octets: u16,
}

/// From what was seen and what was asked for.
pub fn shape(options: &Options, seen: Seen, notes: &mut Vec<String>) -> Shape {
    let allowed = options.max_octets.max(64);
    let octets = match (options.exact, seen.constant()) {
        (true, Some(size)) => {
            notes.push(format!(
                "slots of exactly {size} octets, the size of all packets seen; larger ones would be lost"
            ));
            size
        }
        (true, None) if seen.packets > 0 => {
            notes.push("packets are of several sizes: slots are as large as the largest may be".into());
            allowed.max(seen.largest)
        }
        _ => allowed.max(seen.largest),
    };
    if seen.largest > allowed {
        let largest = seen.largest;
        notes.push(format!(
            "warning: packets of {largest} octets come, the SDP allows {allowed}: MAXUDP is wrong there"
        ));
    }
    let split = match options.split {
        Split::None => {
            notes.push("headers and data are not split".into());
            None
        }
        Split::At(octets) => {
            notes.push(format!("headers split behind octet {octets}, as asked for"));
            Some(octets)
        }
        Split::Probe if seen.packets == 0 => {
            let waited = options.probe;
            notes.push(format!("no packet came within {waited:?}: headers split behind octet 32, room for three SRDs"));
            Some(32)
        }
        Split::Probe => match seen.split() {
            Some(octets) => {
                let (n, headers) = (seen.packets, seen.headers);
                notes.push(format!(
                    "headers split behind octet {octets}: {n} packets have headers of {headers} at most"
                ));
                Some(octets)
            }
            None => {
                let headers = seen.headers;
                notes.push(format!("headers and data are not split: packets come with headers of {headers} octets"));
                None
            }
        },
    };
    Shape { split: split.filter(|split| *split < octets), octets }
}

/// Octets before the payload of a packet with one SRD and nothing else.
const ONE_SRD: u16 = 20;

/// How to receive packets of which frames can be windows; else why they cannot.
pub fn windows(options: &Options, wire: WireFormat, seen: Seen, legs: usize) -> Result<Options, String> {
    if wire.scan != Scan::Progressive {
        return Err("rows of two fields lie apart in it".into());
    }
    if !seen.is_whole() {
        return Err(format!("no whole frame came within {:?} that would show the sizes of packets", options.probe));
    }
    let Some(size) = seen.constant() else { return Err("packets are of several sizes".into()) };
    if seen.headers != ONE_SRD {
        return Err(format!("packets have headers of {} octets", seen.headers));
    }
    let (payload, row) = (size.saturating_sub(ONE_SRD), wire.row_octets());
    if payload == 0 || !row.is_multiple_of(payload.into()) {
        return Err(format!("payloads of {payload} octets do not fill rows of {row}"));
    }
    options.in_windows(wire, payload, legs).ok_or_else(|| "it would be too long".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rx::rivermax::Order;
    use crate::sdp::{Depth, Sampling};
    use crate::wire::{rtp, srd};

    fn seen(sizes: &[(u16, bool)]) -> Seen {
        let mut seen = Seen::default();
        for (octets, marker) in sizes {
            let mut packet = rtp::emit(*marker, 96, 1, 2, 3).to_vec();
            packet.resize(20, 0);
            let segment = srd::Srd { length: octets - 20, ..srd::Srd::default() };
            srd::emit(0, &[segment], &mut packet[12..]).unwrap();
            seen.look(&packet, *octets, 96);
        }
        seen
    }

    fn decide(options: &Options, seen: Seen) -> (Shape, String) {
        let mut notes = Vec::new();
        let shape = shape(options, seen, &mut notes);
        (shape, notes.join("\n"))
    }

    #[test]
    fn nothing_seen_means_room_for_everything() {
        let (shape, notes) = decide(&Options::default(), Seen::default());
        assert_eq!(shape, Shape { split: Some(32), octets: 1452 });
        assert!(notes.contains("no packet came"), "{notes}");
    }

    #[test]
    fn slots_are_exact_only_where_that_was_asked_for_and_shown() {
        let frames = [(1220, false), (1220, false), (620, true)].repeat(2);
        let plain = Options::default();
        assert_eq!(decide(&plain, seen(&frames)).0, Shape { split: Some(20), octets: 1452 });
        let exact = Options { exact: true, ..Options::default() };
        assert_eq!(decide(&exact, seen(&frames)).0, Shape { split: Some(20), octets: 1220 });
        let (shape, notes) = decide(&exact, seen(&[(1220, false), (1000, false), (1220, true), (1220, true)]));
        assert_eq!(shape.octets, 1452);
        assert!(notes.contains("several sizes"), "{notes}");
    }

    #[test]
    fn windows_need_packets_of_one_size_that_fill_rows() {
        let wire = |scan| WireFormat::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, scan).unwrap();
        let progressive = wire(Scan::Progressive);
        let decide = |wire, packets: &[(u16, bool)]| windows(&Options::default(), wire, seen(packets), 1);
        let frames = [(1220, false), (1220, true)].repeat(2);
        let options = decide(progressive, &frames).unwrap();
        // 12 frames of 4320 packets.
        assert_eq!((options.order, options.exact, options.capacity), (Order::Extended, true, Some(65_536)));
        for (wire, packets, why) in [
            (wire(Scan::Interlaced), &frames[..], "two fields"),
            (wire(Scan::Psf), &frames, "two fields"),
            (progressive, &[], "no whole frame"),
            (progressive, &frames[..3], "no whole frame"),
            (progressive, &[(1220, false), (900, false), (1220, true), (1220, true)], "several sizes"),
            (
                progressive,
                &[(1280, false), (1280, true), (1280, false), (1280, true)],
                "1260 octets do not fill rows of 4800",
            ),
            // A frame would have 103 680 packets, of which no ring holds twelve times as many.
            (progressive, &[(70, false), (70, true), (70, false), (70, true)], "too long"),
        ] {
            let error = decide(wire, packets).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
        for said in ["split=20", "order=arrival", "exact", "capacity=4096", "split=none"] {
            let mut options = Options { windows: Some(progressive), ..Options::default() };
            assert_eq!(options.lets_windows(), Some(progressive));
            options.change(said).unwrap();
            assert_eq!(options.lets_windows(), None, "{said}");
        }
    }

    #[test]
    fn packets_beyond_what_the_sdp_allows_are_received_and_told() {
        let (shape, notes) = decide(&Options::default(), seen(&[(8020, false)]));
        assert_eq!(shape.octets, 8020);
        assert!(notes.contains("MAXUDP"), "{notes}");
    }

    #[test]
    fn what_is_asked_for_counts_more_than_what_was_seen() {
        let at = |split| decide(&Options { split, ..Options::default() }, seen(&[(1220, false)])).0.split;
        assert_eq!((at(Split::At(26)), at(Split::None), at(Split::Probe)), (Some(26), None, Some(20)));
        let small = Options { split: Split::At(200), max_octets: 100, ..Options::default() };
        assert_eq!(decide(&small, Seen::default()).0.split, None, "nothing is left to cut off");
    }
}
