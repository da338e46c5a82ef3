//! Payload header of uncompressed video: extended sequence number and sample row data headers (RFC 4175 section 4.1,
//! ST 2110-20 clause 6.2).
//!
//! ST 2110-20 allows one to three headers, and no more are written here. RFC 4175 has no bound, and its other senders
//! put as many short rows into a packet as it holds: all of them are read.

use super::be16;
use crate::stats::Reason;
use std::ops::Range;

/// Sample row data headers in a packet of ST 2110-20 at most (clause 6.2.1).
pub const MAX: usize = 3;

/// Octets of the payload header with `count` sample row data headers: 8, 14 or 20 in ST 2110-20.
pub const fn header_octets(count: usize) -> usize {
    2 + 6 * count
}

/// A sample row data header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Srd {
    /// Octets of sample data.
    pub length: u16,
    /// F: second field, or second segment of PsF.
    pub field: bool,
    /// Row in the frame, field or segment; 15 bits. For 4:2:0 the first row of the pair.
    pub row: u16,
    /// First pixel; 15 bits.
    pub offset: u16,
}

impl Srd {
    #[inline]
    fn read(b: &[u8; 6]) -> Self {
        let (row, offset) = (u16::from_be_bytes([b[2], b[3]]), u16::from_be_bytes([b[4], b[5]]));
        Srd {
            length: u16::from_be_bytes([b[0], b[1]]),
            field: row & 0x8000 != 0,
            row: row & 0x7fff,
            offset: offset & 0x7fff,
        }
    }
}

/// The payload header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Srds<'a> {
    /// High half of the sequence number; some senders leave it 0.
    pub extended: u16,
    /// The first sample row data header; there always is one.
    pub first: Srd,
    /// All of them as they came.
    headers: &'a [[u8; 6]],
    /// Octets of sample data of all segments.
    pub data_octets: u32,
    /// First octet of the first segment's samples, counted from the RTP header. The segments follow one another.
    pub data_at: u16,
}

impl<'a> Srds<'a> {
    /// The headers, in order.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Srd> + use<'a> {
        self.headers.iter().map(Srd::read)
    }
    /// How many headers there are: at least one.
    #[inline]
    pub fn count(&self) -> usize {
        self.headers.len()
    }
}

/// Reads the payload header of a packet whose RTP payload (on the wire) is `payload`, in octets counted from the RTP
/// header; `head` holds the packet's first octets.
///
/// Octets behind the last segment are allowed: the last packet of BPM may be zero-filled, and padding may be unseen.
/// Whether lengths are whole pgroups and where they belong is not known here.
///
/// # Errors
/// [`Reason::Length`] when the payload ends before the headers do; [`Reason::SrdHeader`] when their lengths exceed the
/// payload; [`Reason::Truncated`] when `head` ends within the headers.
#[inline]
pub fn parse(head: &[u8], payload: Range<u16>) -> Result<Srds<'_>, Reason> {
    let (start, end) = (usize::from(payload.start), usize::from(payload.end));
    let (present, _) = head.get(start + 2..).unwrap_or_default().as_chunks::<6>();
    let mut at = start + 2;
    let mut data_octets = 0u32;
    let mut count = 0;
    loop {
        at += 6;
        if at > end {
            return Err(Reason::Length);
        }
        let Some(b) = present.get(count) else { return Err(Reason::Truncated) };
        count += 1;
        data_octets += u32::from(u16::from_be_bytes([b[0], b[1]]));
        // C: another header follows.
        if b[4] & 0x80 == 0 {
            break;
        }
    }
    if at as u32 + data_octets > end as u32 {
        return Err(Reason::SrdHeader);
    }
    let extended = be16(head, start).ok_or(Reason::Truncated)?;
    let headers = present.get(..count).ok_or(Reason::Truncated)?;
    let first = headers.first().map(Srd::read).ok_or(Reason::Truncated)?;
    Ok(Srds { extended, first, headers, data_octets, data_at: at as u16 })
}

/// Writes a payload header and returns how many octets it has; `None` when there are not 1 to 3 headers, `out` is too
/// short, or a row or offset has more than 15 bits.
#[inline]
pub fn emit(extended: u16, srds: &[Srd], out: &mut [u8]) -> Option<usize> {
    if srds.is_empty() || srds.len() > MAX {
        return None;
    }
    let octets = header_octets(srds.len());
    let (sequence, headers) = out.get_mut(..octets)?.split_at_mut(2);
    sequence.copy_from_slice(&extended.to_be_bytes());
    for (n, (srd, b)) in srds.iter().zip(headers.chunks_exact_mut(6)).enumerate() {
        if (srd.row | srd.offset) & 0x8000 != 0 {
            return None;
        }
        let more = n + 1 < srds.len();
        b[0..2].copy_from_slice(&srd.length.to_be_bytes());
        b[2..4].copy_from_slice(&(srd.row | u16::from(srd.field) << 15).to_be_bytes());
        b[4..6].copy_from_slice(&(srd.offset | u16::from(more) << 15).to_be_bytes());
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Twelve octets of RTP header, the payload header, and `data` octets of samples.
    fn packet(header: &[u8], data: usize) -> Vec<u8> {
        let mut p = vec![0x80; 12];
        p.extend(header);
        p.resize(p.len() + data, 0x55);
        p
    }

    fn read(p: &[u8]) -> Result<Srds<'_>, Reason> {
        parse(p, 12..p.len() as u16)
    }

    fn all(s: &Srds<'_>) -> Vec<Srd> {
        s.iter().collect()
    }

    #[test]
    fn one_header_by_hand() {
        // Extended 22103, length 1200, F=1 row 539, C=0 offset 1440.
        let p = packet(&[0x56, 0x57, 0x04, 0xb0, 0x82, 0x1b, 0x05, 0xa0], 1200);
        let s = read(&p).unwrap();
        assert_eq!((s.extended, s.count(), s.data_at, s.data_octets), (22103, 1, 20, 1200));
        assert_eq!(all(&s), [Srd { length: 1200, field: true, row: 539, offset: 1440 }]);
        // What a snap length of 128 leaves is enough.
        assert_eq!(parse(&p[..86], 12..1220), Ok(s));
        assert_eq!(parse(&p[..19], 12..1220), Err(Reason::Truncated));
    }

    #[test]
    fn three_headers_by_hand() {
        // 1080-line BPM needs two; three are the most: 5, 10 and 15 octets in rows 7, 8, 9.
        let header = [
            0, 1, 0, 5, 0, 7, 0x87, 0x7e, // C=1, offset 1918
            0, 10, 0, 8, 0x80, 0, // C=1, offset 0
            0, 15, 0, 9, 0, 2, // C=0, offset 2
        ];
        let p = packet(&header, 30);
        let s = read(&p).unwrap();
        let srd = |length, row, offset| Srd { length, field: false, row, offset };
        assert_eq!(all(&s), [srd(5, 7, 1918), srd(10, 8, 0), srd(15, 9, 2)]);
        assert_eq!((s.first, s.count(), s.data_at, s.data_octets), (srd(5, 7, 1918), 3, 32, 30));
        // One octet fewer than the lengths say; zero fill behind them.
        assert_eq!(read(&packet(&header, 29)), Err(Reason::SrdHeader));
        assert_eq!(read(&packet(&header, 35)), Ok(s));
        // The third says that a fourth follows: RFC 4175 allows it, ST 2110-20 does not.
        let mut four = header.to_vec();
        four[18] |= 0x80;
        four.extend([0, 5, 0, 10, 0, 0]);
        let p = packet(&four, 35);
        let s = read(&p).unwrap();
        assert_eq!(all(&s), [srd(5, 7, 1918), srd(10, 8, 0), srd(15, 9, 2), srd(5, 10, 0)]);
        assert_eq!((s.data_at, s.data_octets), (38, 35));
        assert_eq!(read(&packet(&four, 34)), Err(Reason::SrdHeader));
        assert_eq!(read(&packet(&four[..20], 0)), Err(Reason::Length));
        assert_eq!(parse(&p[..37], 12..73), Err(Reason::Truncated));
        // The headers do not end before the payload does.
        assert_eq!(read(&packet(&header[..14], 0)), Err(Reason::Length));
        let mut out = [0; 20];
        assert_eq!(emit(1, &[srd(5, 7, 1918), srd(10, 8, 0), srd(15, 9, 2)], &mut out), Some(20));
        assert_eq!(out, header);
    }

    #[test]
    fn empty_packets_and_short_ones() {
        assert_eq!(read(&packet(&[0, 0, 0, 0, 0, 0, 0, 0], 0)).unwrap().data_octets, 0);
        assert_eq!(read(&packet(&[0, 0, 0, 0, 0, 0, 0], 0)), Err(Reason::Length));
        assert_eq!(read(&packet(&[], 0)), Err(Reason::Length));
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let good = Srd { length: 5, field: false, row: 1, offset: 2 };
        let mut out = [0; 20];
        assert_eq!(emit(0, &[], &mut out), None);
        assert_eq!(emit(0, &[good; 4], &mut out), None);
        assert_eq!(emit(0, &[good; 3], &mut out[..19]), None);
        assert_eq!(emit(0, &[Srd { row: 0x8000, ..good }], &mut out), None);
        assert_eq!(emit(0, &[Srd { offset: 0x8000, ..good }], &mut out), None);
    }

    proptest! {
        #[test]
        fn never_panics(head in prop::collection::vec(any::<u8>(), 0..64), payload: Range<u16>) {
            if let Ok(s) = parse(&head, payload.clone()) {
                prop_assert!(s.count() >= 1 && s.iter().next() == Some(s.first));
                prop_assert_eq!(s.iter().map(|s| u32::from(s.length)).sum::<u32>(), s.data_octets);
                prop_assert_eq!(usize::from(s.data_at), usize::from(payload.start) + header_octets(s.count()));
                prop_assert!(u32::from(s.data_at) + s.data_octets <= u32::from(payload.end));
            }
        }

        #[test]
        fn reads_what_it_writes(extended: u16, raw in prop::collection::vec((0u16..2000, any::<bool>(), 0u16..0x8000, 0u16..0x8000), 1..=3)) {
            let srds: Vec<Srd> = raw.iter().map(|&(length, field, row, offset)| Srd { length, field, row, offset }).collect();
            let mut p = vec![0; 12 + 20];
            let n = emit(extended, &srds, &mut p[12..]).unwrap();
            p.truncate(12 + n);
            p.resize(p.len() + srds.iter().map(|s| usize::from(s.length)).sum::<usize>(), 0);
            let s = read(&p).unwrap();
            prop_assert_eq!(all(&s), &srds[..]);
            prop_assert_eq!((s.extended, usize::from(s.data_at)), (extended, 12 + n));
        }
    }
}
