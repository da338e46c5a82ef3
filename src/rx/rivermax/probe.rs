//! What the first packets of a flow say about cutting it into headers and data. Pure.

use crate::wire::{rtp, srd};

/// Where a packet may be cut: behind one, two or three SRD headers (RTP header included).
pub const SPLITS: [u16; 3] = [20, 26, 32];

/// Packets that are looked at, as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Packets of ST 2110-20 with the payload type that is wanted.
    pub packets: u32,
    /// Octets of the longest headers.
    pub headers: u16,
    /// Octets of the largest packet.
    pub largest: u16,
    /// Packets with the marker: ends of frames or fields.
    pub markers: u32,
    /// The size of all packets but those with the marker; 0 as long as there is none.
    size: u16,
    /// Packets without the marker that have another size.
    others: u32,
}

impl Seen {
    /// Takes a packet into account, whole or from its RTP header on as far as it was received; `total` octets on the wire.
    pub fn look(&mut self, octets: &[u8], total: u16, payload_type: u8) {
        let Ok(header) = rtp::parse(octets, usize::from(total)) else { return };
        if header.payload_type != payload_type {
            return;
        }
        let Ok(srds) = srd::parse(octets, header.payload.clone()) else { return };
        self.packets += 1;
        self.headers = self.headers.max(srds.data_at);
        self.largest = self.largest.max(total);
        self.markers += u32::from(header.marker);
        if !header.marker {
            if self.size == 0 {
                self.size = total;
            }
            self.others += u32::from(self.size != total);
        }
    }

    /// A whole frame or field has been seen.
    pub const fn is_whole(&self) -> bool {
        self.markers >= 2
    }

    /// Every packet but the last of a frame has this size, and a whole frame has shown it.
    pub fn constant(&self) -> Option<u16> {
        (self.is_whole() && self.others == 0 && self.size == self.largest).then_some(self.size)
    }

    /// The shortest cut that leaves all headers before it; none when there is no such.
    pub fn split(&self) -> Option<u16> {
        SPLITS.into_iter().find(|split| self.headers <= *split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::srd::Srd;

    fn packet(csrcs: usize, srds: usize, octets: u16, marker: bool) -> Vec<u8> {
        let mut packet = rtp::emit(marker, 96, 1, 2, 3).to_vec();
        packet[0] |= csrcs as u8;
        packet.resize(12 + 4 * csrcs, 7);
        let at = packet.len();
        packet.resize(at + srd::header_octets(srds), 0);
        let segment = Srd { length: octets / srds as u16, field: false, row: 1, offset: 0 };
        srd::emit(0, &vec![segment; srds], &mut packet[at..]).unwrap();
        packet.resize(packet.len() + usize::from(octets), 0x55);
        packet
    }

    fn look(packets: &[Vec<u8>]) -> Seen {
        let mut seen = Seen::default();
        packets.iter().for_each(|p| seen.look(p, p.len() as u16, 96));
        seen
    }

    #[test]
    fn the_cut_follows_the_longest_headers() {
        let split = |packets: &[Vec<u8>]| look(packets).split();
        assert_eq!(split(&[packet(0, 1, 1200, false)]), Some(20));
        assert_eq!(split(&[packet(0, 1, 1260, false), packet(0, 2, 1260, false)]), Some(26));
        assert_eq!(split(&[packet(0, 3, 1260, false), packet(0, 1, 1260, false)]), Some(32));
        // A CSRC takes as much as two thirds of an SRD header.
        assert_eq!(split(&[packet(1, 1, 1200, false)]), Some(26));
        assert_eq!(split(&[packet(1, 3, 1200, false)]), None, "36 octets");
    }

    #[test]
    fn sizes_are_constant_but_for_the_last_packet() {
        let (full, last) = (packet(0, 1, 1200, false), packet(0, 1, 600, true));
        let frame = [full.clone(), full.clone(), last.clone()];
        assert_eq!(look(&frame).constant(), None, "its beginning was not seen");
        let two = [&frame[..], &frame[..]].concat();
        assert_eq!((look(&two).constant(), look(&two).largest), (Some(1220), 1220));
        assert_eq!(look(&[&two[..], &[packet(0, 1, 1000, false)]].concat()).constant(), None);
        let longer = packet(0, 1, 1400, true);
        assert_eq!(look(&[full.clone(), longer.clone(), full, longer]).constant(), None, "the last ones are larger");
    }

    #[test]
    fn what_is_something_else_does_not_count() {
        let mut other = packet(0, 3, 900, true);
        other[1] = 97;
        assert_eq!(look(&[other, vec![0x80, 96], vec![]]), Seen::default());
        // A packet that is larger than what was received of it.
        let mut seen = Seen::default();
        seen.look(&packet(0, 1, 1200, false)[..64], 1220, 96);
        assert_eq!((seen.packets, seen.largest, seen.headers), (1, 1220, 20));
    }
}
