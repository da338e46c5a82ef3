//! The inverse of [`crate::depacketise`]: from a wire-format frame to packets. Pure: it says which octets go where, for
//! the sender and for tests.

use crate::format::WireFormat;
use crate::sdp::Scan;
use crate::wire::{rtp, srd};

/// Octets of RTP and payload header with three sample row data headers.
pub const MAX_HEADER: usize = rtp::HEADER + srd::header_octets(srd::MAX);

/// Standard UDP Size Limit: octets with the UDP header (ST 2110-10, 6.4).
pub const STANDARD_UDP: u16 = 1460;

/// Octets of sample data in a packet of block packing mode: 7 blocks of 180 (ST 2110-20, 6.3.3).
pub const BPM_OCTETS: u16 = 1260;
const BPM_BLOCK: u32 = 180;

/// How rows are cut into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// General packing mode as most senders do it: every row in equal parts, one segment a packet (1080 lines 4:2:2
    /// 10 bit: four of 1200 octets).
    Even {
        /// UDP size limit, with the UDP header.
        udp: u16,
    },
    /// General packing mode, packets as full as they can be.
    Full {
        /// UDP size limit, with the UDP header.
        udp: u16,
        /// Segments in a packet at most, 1 to 3; with 1 a packet ends with the row.
        segments: u8,
    },
    /// Block packing mode.
    Bpm {
        /// Zero-fill the last packet of a frame or field to full size.
        fill: bool,
    },
}

/// A run of octets of the wire-format frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// First octet in the frame.
    pub at: u32,
    /// Octets.
    pub len: u16,
}

/// One packet: its header, and where its samples lie in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    header: [u8; MAX_HEADER],
    header_len: u8,
    sources: [Source; srd::MAX],
    count: u8,
    /// Zero octets behind the samples.
    pub fill: u16,
    /// The last packet of a frame or field.
    pub marker: bool,
}

impl Built {
    /// RTP header and payload header.
    pub fn header(&self) -> &[u8] {
        self.header.get(..usize::from(self.header_len)).unwrap_or(&self.header)
    }
    /// The samples that follow, in order.
    pub fn sources(&self) -> &[Source] {
        self.sources.get(..usize::from(self.count)).unwrap_or(&self.sources)
    }
    /// Octets of the whole packet, from the RTP header on.
    pub fn octets(&self) -> usize {
        let samples: usize = self.sources().iter().map(|s| usize::from(s.len)).sum();
        self.header().len() + samples + usize::from(self.fill)
    }
    /// Appends the packet to `out`; samples that `frame` does not hold become zero.
    pub fn append(&self, frame: &[u8], out: &mut Vec<u8>) {
        let end = out.len() + self.octets();
        out.extend_from_slice(self.header());
        for source in self.sources() {
            let (at, len) = (source.at as usize, usize::from(source.len));
            let samples = frame.get(at..at + len).unwrap_or_default();
            out.extend_from_slice(samples);
            out.resize(out.len() + len - samples.len(), 0);
        }
        out.resize(end, 0);
    }
}

/// What a sender may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// How rows are cut.
    pub cut: Cut,
    /// RTP payload type.
    pub payload_type: u8,
    /// Synchronisation source.
    pub ssrc: u32,
    /// Leave the extended sequence number at zero, as some senders do.
    pub short_sequence: bool,
    /// The number of each field's first row: `[0, 0]` by the standard; some senders count as in the SDI raster.
    pub first_row: [u16; 2],
    /// Send the second field first: F=1, then F=0.
    pub second_first: bool,
}

impl Style {
    /// A sender that follows the standard, payload type 96.
    pub const fn new(cut: Cut) -> Self {
        Style { cut, payload_type: 96, ssrc: 0, short_sequence: false, first_row: [0, 0], second_first: false }
    }
}

/// Cuts frames of one flow into packets.
#[derive(Clone, Debug)]
pub struct Packetiser {
    format: WireFormat,
    style: Style,
    sequence: u32,
    /// Octets of a segment at most in [`Cut::Even`].
    even: u32,
    packets: u32,
}

impl Packetiser {
    /// `None` when the limit does not hold a pgroup, or block packing does not suit the format (pgroups of 8 octets).
    pub fn new(format: WireFormat, style: Style, first_sequence: u32) -> Option<Self> {
        let pgroup = format.pgroup.octets;
        let even = match style.cut {
            Cut::Even { udp } => even_segment(format.row_pgroups(), pgroup, room(udp, 1)?)?,
            Cut::Full { udp, segments } => {
                if !(1..=srd::MAX as u8).contains(&segments) || room(udp, usize::from(segments))? < pgroup {
                    return None;
                }
                0
            }
            Cut::Bpm { .. } if !BPM_BLOCK.is_multiple_of(pgroup) => return None,
            Cut::Bpm { .. } => 0,
        };
        let mut this = Packetiser { format, style, sequence: first_sequence, even, packets: 0 };
        this.packets = this.clone().frame(0, 0).count() as u32;
        Some(this)
    }

    /// Packets of every frame, both fields together.
    pub fn packets_per_frame(&self) -> u32 {
        self.packets
    }

    /// The number of the next packet.
    pub fn next_sequence(&self) -> u32 {
        self.sequence
    }

    /// Goes on with another number, as a sender that started anew.
    pub fn set_sequence(&mut self, sequence: u32) {
        self.sequence = sequence;
    }

    /// What the sender chose; may be changed between frames.
    pub fn style_mut(&mut self) -> &mut Style {
        &mut self.style
    }

    /// The packets of one frame. `timestamps` are those of the frame or first field in time and of the second;
    /// progressive frames have only the first.
    pub fn frame(&mut self, timestamp: u32, second_timestamp: u32) -> Packets<'_> {
        Packets { of: self, timestamps: [timestamp, second_timestamp], part: 0, at: 0 }
    }

    const fn parts(&self) -> u32 {
        match self.format.scan {
            Scan::Progressive => 1,
            Scan::Interlaced | Scan::Psf => 2,
        }
    }

    /// Wire rows of the frame or of field `f`.
    const fn rows(&self, f: u32) -> u32 {
        (self.format.rows() + self.parts() - 1 - f) / self.parts()
    }

    /// Octets of samples of the packet that begins at octet `at` of a part with `left` octets left.
    fn take(&self, at: u32, left: u32) -> u32 {
        let row = self.format.row_octets();
        let row_left = row - at % row;
        let pgroup = self.format.pgroup.octets;
        match self.style.cut {
            Cut::Even { .. } => self.even.min(row_left),
            Cut::Full { udp, segments } => {
                // Each further segment costs six octets of header.
                let mut take = 0;
                for n in 1..=segments {
                    let most = room(udp, usize::from(n)).unwrap_or(0) / pgroup * pgroup;
                    let reach = row_left + u32::from(n - 1) * row;
                    take = take.max(most.min(reach));
                }
                take.min(left)
            }
            Cut::Bpm { .. } => {
                let most = u32::from(BPM_OCTETS).min(left);
                let reach = row_left + 2 * row;
                if reach >= most {
                    most
                } else {
                    // Rows so short that three do not fill a packet: as many blocks as they hold, or, when that is
                    // none, the three rows.
                    let blocks = reach / BPM_BLOCK * BPM_BLOCK;
                    if blocks > 0 { blocks } else { reach }
                }
            }
        }
    }
}

/// Octets of samples that fit with `segments` segments.
fn room(udp: u16, segments: usize) -> Option<u32> {
    let header = 8 + rtp::HEADER + srd::header_octets(segments);
    u32::from(udp).checked_sub(header as u32)
}

/// The largest equal part of a row that fits. Rows that divide badly get a shorter last part.
fn even_segment(row_pgroups: u32, pgroup: u32, room: u32) -> Option<u32> {
    let most = room / pgroup;
    if most == 0 {
        return None;
    }
    let least = row_pgroups.div_ceil(most);
    // Packets below 1000 octets belong at the end of a frame only (ST 2110-20, 6.3.2).
    let good = |n: &u32| row_pgroups.is_multiple_of(*n) && row_pgroups / n * pgroup >= 1000;
    let parts = (least..=2 * least).find(good).unwrap_or(least);
    Some(row_pgroups.div_ceil(parts) * pgroup)
}

/// Packets of one frame, in order.
#[derive(Debug)]
pub struct Packets<'a> {
    of: &'a mut Packetiser,
    timestamps: [u32; 2],
    part: u32,
    at: u32,
}

impl Iterator for Packets<'_> {
    type Item = Built;

    fn next(&mut self) -> Option<Built> {
        let parts = self.of.parts();
        let (format, style) = (self.of.format, self.of.style);
        let field = |part| if parts == 2 && style.second_first { 1 - part } else { part };
        // A frame of one row has no second field.
        while self.part < parts && self.of.rows(field(self.part)) == 0 {
            self.part += 1;
        }
        if self.part >= parts {
            return None;
        }
        let f = field(self.part);
        let row_octets = format.row_octets();
        let left = self.of.rows(f) * row_octets - self.at;
        let mut take = self.of.take(self.at, left);
        let marker = take == left;
        let fill = match style.cut {
            Cut::Bpm { fill: true } if marker => u32::from(BPM_OCTETS).saturating_sub(take) as u16,
            _ => 0,
        };

        let mut srds = [srd::Srd::default(); srd::MAX];
        let mut sources = [Source::default(); srd::MAX];
        let mut count = 0u8;
        for (srd, source) in srds.iter_mut().zip(&mut sources) {
            if take == 0 {
                break;
            }
            let (row, octet) = (self.at / row_octets, self.at % row_octets);
            let len = take.min(row_octets - octet);
            let first = style.first_row.get(f as usize).copied().unwrap_or(0);
            *srd = srd::Srd {
                length: len as u16,
                field: f == 1,
                row: first.wrapping_add((row * format.pgroup.rows) as u16) & 0x7fff,
                offset: (octet / format.pgroup.octets * format.pgroup.width()) as u16,
            };
            *source = Source { at: (row * parts + f) * row_octets + octet, len: len as u16 };
            self.at += len;
            take -= len;
            count += 1;
        }

        let sequence = self.of.sequence;
        self.of.sequence = sequence.wrapping_add(1);
        let timestamp = self.timestamps.get(self.part as usize).copied().unwrap_or(0);
        let mut header = [0; MAX_HEADER];
        header[..rtp::HEADER].copy_from_slice(&rtp::emit(
            marker,
            style.payload_type,
            sequence as u16,
            timestamp,
            style.ssrc,
        ));
        let extended = if style.short_sequence { 0 } else { (sequence >> 16) as u16 };
        let used = srd::emit(extended, srds.get(..usize::from(count))?, &mut header[rtp::HEADER..])?;
        if marker {
            self.part += 1;
            self.at = 0;
        }
        Some(Built { header, header_len: (rtp::HEADER + used) as u8, sources, count, fill, marker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdp::{Depth, Sampling};

    fn format(sampling: Sampling, depth: Depth, width: u32, height: u32, scan: Scan) -> WireFormat {
        WireFormat::new(sampling, depth, width, height, scan).unwrap()
    }
    fn hd(scan: Scan) -> WireFormat {
        format(Sampling::YCbCr422, Depth::D10, 1920, 1080, scan)
    }
    fn packets(format: WireFormat, cut: Cut) -> Vec<Built> {
        let mut p = Packetiser::new(format, Style::new(cut), 0).unwrap();
        let all: Vec<_> = p.frame(0, 0).collect();
        assert_eq!(all.len() as u32, p.packets_per_frame());
        all
    }
    const EVEN: Cut = Cut::Even { udp: STANDARD_UDP };

    #[test]
    fn packets_per_frame_of_the_standard_formats() {
        let all = packets(hd(Scan::Progressive), EVEN);
        assert_eq!(all.len(), 4320);
        assert!(all.iter().all(|p| p.octets() == 1220 && p.sources().len() == 1));
        let bpm = packets(hd(Scan::Progressive), Cut::Bpm { fill: false });
        assert_eq!(bpm.len(), 4115);
        assert_eq!(bpm[4114].octets(), 20 + 360);
        let two = bpm[..80].iter().filter(|p| p.sources().len() == 2).count();
        assert_eq!((two, bpm[..80].iter().filter(|p| p.sources().len() > 2).count()), (20, 0));
        let fields = packets(hd(Scan::Interlaced), Cut::Bpm { fill: false });
        assert_eq!(fields.len(), 2 * 2058);
        assert_eq!(fields[2057].octets(), 20 + 180);
        assert_eq!(packets(format(Sampling::YCbCr422, Depth::D10, 3840, 2160, Scan::Progressive), EVEN).len(), 17280);
        assert_eq!(packets(format(Sampling::YCbCr422, Depth::D10, 1280, 720, Scan::Progressive), EVEN).len(), 2160);
        assert_eq!(packets(format(Sampling::YCbCr422, Depth::D10, 720, 576, Scan::Interlaced), EVEN).len(), 2 * 576);
    }

    #[test]
    fn full_packets_hold_what_the_facts_say() {
        let largest = |sampling, depth| {
            let f = format(sampling, depth, 3840, 2160, Scan::Progressive);
            packets(f, Cut::Full { udp: STANDARD_UDP, segments: 1 })[0].sources()[0].len
        };
        assert_eq!(largest(Sampling::YCbCr422, Depth::D8), 1432);
        assert_eq!(largest(Sampling::YCbCr422, Depth::D10), 1430);
        assert_eq!(largest(Sampling::YCbCr422, Depth::D12), 1428);
        assert_eq!(largest(Sampling::Rgb, Depth::D8), 1431);
        assert_eq!(largest(Sampling::Rgb, Depth::D10), 1425);
        assert_eq!(largest(Sampling::Rgb, Depth::D16), 1428);
        assert_eq!(largest(Sampling::YCbCr420, Depth::D8), 1428);
        assert_eq!(largest(Sampling::YCbCr420, Depth::D10), 1425);
        assert_eq!(largest(Sampling::YCbCr420, Depth::D12), 1431);
    }

    #[test]
    fn headers_by_hand() {
        // Packet 4 of a 1080i frame's second field: row 1, offset 0.
        let mut style = Style::new(EVEN);
        style.ssrc = 0x0102_0304;
        let mut p = Packetiser::new(hd(Scan::Interlaced), style, 0x0001_fffe).unwrap();
        let all: Vec<_> = p.frame(3000, 4501).collect();
        let expected = [
            0x80, 96, 0x08, 0x72, 0, 0, 0x11, 0x95, 1, 2, 3, 4, // 0x1fffe + 2164 = 0x20872, 4501
            0x00, 0x02, 0x04, 0xb0, 0x80, 0x01, 0x00, 0x00,
        ];
        assert_eq!(all[2164].header(), expected);
        assert_eq!(all[2164].sources(), [Source { at: 3 * 4800, len: 1200 }]);
        assert_eq!(all.iter().filter(|p| p.marker).count(), 2);
        assert!(all[2159].marker && all[4319].marker);
    }

    #[test]
    fn rows_of_420_count_in_pairs() {
        let f = format(Sampling::YCbCr420, Depth::D10, 32, 8, Scan::Progressive);
        let all = packets(f, EVEN);
        assert_eq!(all.len(), 4);
        assert_eq!(all[1].header()[12..], [0, 0, 0, 120, 0, 2, 0, 0]);
    }

    #[test]
    fn every_octet_is_sent_once() {
        for &sampling in Sampling::ALL {
            for &depth in Depth::ALL {
                for (width, height) in [(64, 16), (37, 7), (1, 1), (900, 5)] {
                    for scan in [Scan::Progressive, Scan::Interlaced, Scan::Psf] {
                        let Some(f) = WireFormat::new(sampling, depth, width, height, scan) else { continue };
                        for cut in [
                            EVEN,
                            Cut::Full { udp: STANDARD_UDP, segments: 1 },
                            Cut::Full { udp: 500, segments: 2 },
                            Cut::Full { udp: 8960, segments: 3 },
                            Cut::Bpm { fill: true },
                        ] {
                            let Some(mut p) = Packetiser::new(f, Style::new(cut), 7) else { continue };
                            let mut seen = vec![0u8; f.frame_octets() as usize];
                            for packet in p.frame(0, 0) {
                                assert!(!packet.sources().is_empty());
                                for s in packet.sources() {
                                    assert!(u32::from(s.len).is_multiple_of(f.pgroup.octets));
                                    seen[s.at as usize..][..usize::from(s.len)].iter_mut().for_each(|n| *n += 1);
                                }
                            }
                            assert!(seen.iter().all(|n| *n == 1), "{f:?} {cut:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_packed_is_refused() {
        let f = format(Sampling::YCbCr422, Depth::D16, 64, 16, Scan::Progressive);
        assert!(Packetiser::new(f, Style::new(Cut::Bpm { fill: false }), 0).is_none());
        assert!(Packetiser::new(f, Style::new(Cut::Even { udp: 30 }), 0).is_none());
        assert!(Packetiser::new(f, Style::new(Cut::Full { udp: 1460, segments: 4 }), 0).is_none());
    }
}
