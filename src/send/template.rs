//! The packets of a frame as they are the same in every frame: headers with blanks for sequence and time, and where
//! the samples lie.

use crate::packetise::{Packetiser, Source};
use std::ops::Range;

/// One packet of every frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Its header in [`Template::headers`]: RTP, extended sequence number, SRD headers.
    pub header: Range<u32>,
    /// Its samples in the wire-format frame, pieces that touch already joined.
    pub pieces: Pieces,
    /// Zero octets behind the samples.
    pub fill: u16,
    /// Octets of the UDP payload.
    pub octets: u16,
    /// Of the second field or segment.
    pub second: bool,
}

/// One to three pieces of a frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    count: u8,
    pieces: [(u32, u16); 3],
}

impl Pieces {
    /// Joins pieces that touch, as those of two rows of a progressive frame do.
    fn new(sources: &[Source]) -> Self {
        let mut joined = Pieces::default();
        for source in sources {
            let count = usize::from(joined.count);
            if let Some(last) = count.checked_sub(1).and_then(|i| joined.pieces.get_mut(i))
                && last.0 + u32::from(last.1) == source.at
            {
                last.1 += source.len;
            } else if let Some(free) = joined.pieces.get_mut(count) {
                *free = (source.at, source.len);
                joined.count += 1;
            }
        }
        joined
    }
    /// First octet and length of each.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.pieces.iter().take(self.count.into()).map(|&(at, len)| (at as usize, len.into()))
    }
}

/// The packets of a frame. Only sequence (octets 2 and 3, 12 and 13) and timestamp (4 to 7) change between frames.
#[derive(Clone, Debug)]
pub struct Template {
    /// In the order of sending.
    pub packets: Vec<Packet>,
    /// All headers, one after the other.
    pub headers: Vec<u8>,
    /// First packet of the second field or segment.
    pub second: Option<u32>,
    zeros: Vec<u8>,
    extended_zero: bool,
}

impl Template {
    /// The packets that `packetiser` makes of every frame.
    pub fn new(mut packetiser: Packetiser, extended_zero: bool) -> Self {
        let mut template =
            Template { packets: Vec::new(), headers: Vec::new(), zeros: Vec::new(), second: None, extended_zero };
        // Timestamps that tell which part of the frame a packet is of.
        for (index, built) in packetiser.frame(0, 1).enumerate() {
            let header = built.header();
            let start = template.headers.len() as u32;
            template.headers.extend_from_slice(header);
            let second = header.get(7) == Some(&1);
            if second && template.second.is_none() {
                template.second = Some(index as u32);
            }
            if usize::from(built.fill) > template.zeros.len() {
                template.zeros.resize(built.fill.into(), 0);
            }
            template.packets.push(Packet {
                header: start..start + header.len() as u32,
                pieces: Pieces::new(built.sources()),
                fill: built.fill,
                octets: built.octets() as u16,
                second,
            });
        }
        template
    }

    /// Writes the sequence number and the timestamps of a frame into the headers of `range`; `sequence` is that of the
    /// frame's first packet.
    pub fn stamp(&mut self, range: Range<usize>, sequence: u32, timestamps: (u32, u32)) {
        let mut number = sequence.wrapping_add(range.start as u32);
        for packet in self.packets.get(range).unwrap_or_default() {
            let header = self.headers.get_mut(packet.header.start as usize..packet.header.end as usize);
            if let Some([_, _, s0, s1, t0, t1, t2, t3, _, _, _, _, e0, e1, ..]) = header {
                let [high0, high1, low0, low1] = number.to_be_bytes();
                let timestamp = if packet.second { timestamps.1 } else { timestamps.0 };
                (*s0, *s1) = (low0, low1);
                [*t0, *t1, *t2, *t3] = timestamp.to_be_bytes();
                (*e0, *e1) = if self.extended_zero { (0, 0) } else { (high0, high1) };
            }
            number = number.wrapping_add(1);
        }
    }

    /// Octets 12 and 13 are the high half of the sequence number.
    pub const fn extended(&self) -> bool {
        !self.extended_zero
    }

    /// The header of a packet.
    pub fn header(&self, packet: &Packet) -> &[u8] {
        self.headers.get(packet.header.start as usize..packet.header.end as usize).unwrap_or_default()
    }

    /// The zero octets behind a packet's samples.
    pub fn fill(&self, packet: &Packet) -> &[u8] {
        self.zeros.get(..packet.fill.into()).unwrap_or_default()
    }

    /// Appends a whole RTP packet to `out`.
    pub fn write(&self, packet: &Packet, frame: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.header(packet));
        for (at, len) in packet.pieces.iter() {
            out.extend_from_slice(frame.get(at..at + len).unwrap_or_default());
        }
        out.extend_from_slice(self.fill(packet));
    }

    /// UDP payload octets of a frame.
    pub fn octets(&self) -> u64 {
        self.packets.iter().map(|p| u64::from(p.octets)).sum()
    }
}
