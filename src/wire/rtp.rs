//! RTP header (RFC 3550 section 5.1), read from the part of a packet that the CPU sees.

use super::be16;
use crate::stats::Reason;
use std::ops::Range;

/// Octets of the header without CSRCs and extension.
pub const HEADER: usize = 12;

/// A checked RTP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Last packet of a frame or field (ST 2110-20 clause 6.1.3 and others).
    pub marker: bool,
    /// Payload type.
    pub payload_type: u8,
    /// Low half of the sequence number.
    pub sequence: u16,
    /// Media time, in ticks of the RTP clock.
    pub timestamp: u32,
    /// The sender; 0 is used in the field.
    pub ssrc: u32,
    /// The payload, in octets counted from the RTP header, without padding that could be seen.
    pub payload: Range<u16>,
    /// There is padding, but its count (the packet's last octet) lies outside the head: `payload` still holds it.
    /// SRD lengths say where the samples end, so a receiver of video needs no more.
    pub padding_unseen: bool,
}

/// Reads the header of a packet of `total` octets on the wire, of which `head` are the first. The head may be shorter
/// than the packet (header-data split, snap length); only padding looks at the far end.
///
/// # Errors
/// [`Reason::Length`] when the packet is shorter than its header or its padding says, or longer than UDP allows;
/// [`Reason::Version`] when the version is not 2; [`Reason::Truncated`] when the packet has the header whole but `head` has not.
#[inline]
pub fn parse(head: &[u8], total: usize) -> Result<Header, Reason> {
    let head = &head[..head.len().min(total)];
    let short = if head.len() < total { Reason::Truncated } else { Reason::Length };
    let Some(fixed) = head.first_chunk::<HEADER>() else {
        return Err(if total < HEADER { Reason::Length } else { short });
    };
    let Ok(end) = u16::try_from(total) else { return Err(Reason::Length) };
    let flags = fixed[0];
    if flags >> 6 != 2 {
        return Err(Reason::Version);
    }
    let mut start = HEADER;
    let mut payload_end = end;
    let mut padding_unseen = false;
    // Version 2 and nothing else is what nearly every packet has.
    if flags != 0x80 {
        start += 4 * usize::from(flags & 0x0f);
        if flags & 0x10 != 0 {
            if start + 4 > total {
                return Err(Reason::Length);
            }
            let words = be16(head, start + 2).ok_or(short)?;
            start += 4 + 4 * usize::from(words);
        }
        if start > total {
            return Err(Reason::Length);
        }
        if flags & 0x20 != 0 {
            if head.len() == total {
                let count = head.last().copied().unwrap_or(0);
                if count == 0 || usize::from(count) > total - start {
                    return Err(Reason::Length);
                }
                payload_end = end - u16::from(count);
            } else {
                padding_unseen = true;
            }
        }
    }
    Ok(Header {
        marker: fixed[1] & 0x80 != 0,
        payload_type: fixed[1] & 0x7f,
        sequence: u16::from_be_bytes([fixed[2], fixed[3]]),
        timestamp: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
        ssrc: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
        payload: start as u16..payload_end,
        padding_unseen,
    })
}

/// The twelve octets of a header without CSRC, extension and padding.
#[inline]
pub fn emit(marker: bool, payload_type: u8, sequence: u16, timestamp: u32, ssrc: u32) -> [u8; HEADER] {
    let mut out = [0; HEADER];
    out[0] = 0x80;
    out[1] = u8::from(marker) << 7 | payload_type & 0x7f;
    out[2..4].copy_from_slice(&sequence.to_be_bytes());
    out[4..8].copy_from_slice(&timestamp.to_be_bytes());
    out[8..12].copy_from_slice(&ssrc.to_be_bytes());
    out
}

/// RTCP in place of RTP: the second octet is 200 to 204 (RFC 5761 section 4).
#[inline]
pub fn is_rtcp(octets: &[u8]) -> bool {
    matches!(octets, [first, 200..=204, ..] if first >> 6 == 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: [u8; 16] =
        [0x80, 0xe0, 0xcf, 0xa0, 0x01, 0x02, 0x03, 0x04, 0xde, 0xad, 0xbe, 0xef, 0x56, 0x57, 0x58, 0x59];

    #[test]
    fn plain_header_by_hand() {
        let h = parse(&PLAIN, 16).unwrap();
        let expected = Header {
            marker: true,
            payload_type: 96,
            sequence: 0xcfa0,
            timestamp: 0x0102_0304,
            ssrc: 0xdead_beef,
            payload: 12..16,
            padding_unseen: false,
        };
        assert_eq!(h, expected);
        assert_eq!(emit(true, 96, 0xcfa0, 0x0102_0304, 0xdead_beef), PLAIN[..12]);
    }

    #[test]
    fn csrcs_extension_and_padding_are_taken_off() {
        // V=2 P=1 X=1 CC=2; two CSRCs; profile 0xBEDE with one word; four payload octets, of which three are padding.
        let mut p = vec![0xb2, 0x60, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        p.extend([1, 1, 1, 1, 2, 2, 2, 2]);
        p.extend([0xbe, 0xde, 0, 1, 9, 9, 9, 9]);
        p.extend([0x77, 0, 0, 3]);
        let h = parse(&p, p.len()).unwrap();
        assert_eq!((h.payload, h.padding_unseen), (28..29, false));
        // The same packet seen by its first 28 octets only.
        let h = parse(&p[..28], p.len()).unwrap();
        assert_eq!((h.payload, h.padding_unseen), (28..32, true));
        // A head that ends inside the extension header cannot say where the payload begins.
        assert_eq!(parse(&p[..22], p.len()), Err(Reason::Truncated));
        // Padding may fill the payload, and no more.
        let last = p.len() - 1;
        p[last] = 4;
        assert_eq!(parse(&p, p.len()).unwrap().payload, 28..28);
        p[last] = 5;
        assert_eq!(parse(&p, p.len()), Err(Reason::Length));
        p[last] = 0;
        assert_eq!(parse(&p, p.len()), Err(Reason::Length));
    }

    #[test]
    fn what_is_no_rtp_packet_is_named() {
        assert_eq!(parse(&PLAIN[..11], 11), Err(Reason::Length));
        assert_eq!(parse(&PLAIN[..11], 16), Err(Reason::Truncated));
        assert_eq!(parse(&[], 0), Err(Reason::Length));
        assert_eq!(parse(&PLAIN, 65536), Err(Reason::Length));
        let mut p = PLAIN;
        p[0] = 0x40;
        assert_eq!(parse(&p, 16), Err(Reason::Version));
        // 15 CSRCs in 16 octets; an extension header that is not there; one that is too long.
        p[0] = 0x8f;
        assert_eq!(parse(&p, 16), Err(Reason::Length));
        p[0] = 0x90;
        assert_eq!(parse(&p, 14), Err(Reason::Length));
        p[14..].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(parse(&p, 16), Err(Reason::Length));
        assert!(is_rtcp(&[0x81, 200, 0, 6]) && !is_rtcp(&PLAIN) && !is_rtcp(&[0x80]));
    }

    proptest! {
        #[test]
        fn agrees_with_rtp_rs(mut octets in prop::collection::vec(any::<u8>(), 0..200), v2: bool, small: bool) {
            if let (true, Some(first)) = (v2, octets.first_mut()) {
                *first = 0x80 | *first & 0x3f;
            }
            if let (true, Some(first)) = (small, octets.first_mut()) {
                *first &= 0xf3;
            }
            if let (true, true) = (small, octets.len() > 36) {
                for n in [12, 16, 20, 24] {
                    octets[n + 2..n + 4].copy_from_slice(&[0, n as u8]);
                }
                let last = octets.len() - 1;
                octets[last] &= 0x1f;
            }
            let ours = parse(&octets, octets.len());
            match rtp_rs::RtpReader::new(&octets) {
                Ok(theirs) => {
                    let ours = ours.unwrap();
                    prop_assert_eq!(ours.marker, theirs.mark());
                    prop_assert_eq!(ours.payload_type, theirs.payload_type());
                    prop_assert_eq!(ours.sequence, u16::from(theirs.sequence_number()));
                    prop_assert_eq!(ours.timestamp, theirs.timestamp());
                    prop_assert_eq!(ours.ssrc, theirs.ssrc());
                    prop_assert_eq!(&octets[usize::from(ours.payload.start)..usize::from(ours.payload.end)], theirs.payload());
                }
                Err(rtp_rs::RtpReaderError::UnsupportedVersion(_)) => prop_assert_eq!(ours, Err(Reason::Version)),
                Err(_) => prop_assert_eq!(ours, Err(Reason::Length)),
            }
        }

        #[test]
        fn a_cut_head_says_the_same_or_truncated(octets in prop::collection::vec(any::<u8>(), 1..200), cut in 0usize..200) {
            let cut = cut.min(octets.len());
            let (Ok(part), Ok(whole)) = (parse(&octets[..cut], octets.len()), parse(&octets, octets.len())) else { return Ok(()) };
            prop_assert_eq!(part.payload.start, whole.payload.start);
            prop_assert!(part.payload.end >= whole.payload.end);
            prop_assert!(part.padding_unseen || part == whole);
        }
    }
}
