//! Rings that are overwritten in time: a card that writes, a reader that takes, checks and falls behind, in any order.

use crate::mem::{Host, Region};
use crate::ring::{Geometry, Mark, Reader, Slot, SplitRing};
use crate::time::Tai;
use std::collections::VecDeque;

const HEAD: u32 = 20;
/// Slots that a reader has taken and not checked at most.
const TAKEN: usize = 64;

/// A slot that was taken: its mark, the packet that lay there, and the one that the reader was told of.
struct Taken {
    mark: Mark,
    lay: u64,
    told: u64,
}

/// The first octets say how the ring is made, the others are deeds of the card and the reader.
///
/// # Panics
/// A slot was said to hold that had been overwritten, or to have been overwritten that was far from it.
pub fn rings(octets: &[u8]) {
    let Some(([slots, margin, first, order], deeds)) = octets.split_first_chunk::<4>() else { return };
    let slots = u32::from(slots % 60) + 4;
    let margin = u32::from(*margin) % (slots / 2) + 1;
    let in_sequence = order & 1 != 0;
    let geometry = Geometry { slots, rings: 1, head: HEAD, body: 0, margin, in_sequence };
    let Ok(head) = Region::<Host>::host((slots * HEAD) as usize) else { return };
    let Ok(mut ring) = SplitRing::<Host>::whole(head).overwritten_in_time(geometry) else { return };
    let Some(laps) = ring.laps().cloned() else { return };
    let mut reader = Reader::new(laps.clone());

    // Packet `n` lies in slot `n mod slots`; packets of a frame share a timestamp.
    let begin = u64::from(*first) << 8;
    let (mut written, mut next) = (begin, begin);
    let mut taken: VecDeque<Taken> = VecDeque::new();
    // A reader that has been behind may take later packets for overwritten ones, until it has seen the end of the ring.
    let mut was_behind = false;
    for deed in deeds {
        let count = u64::from(deed >> 2) + 1;
        match deed & 3 {
            // The card writes, and may overtake the reader.
            0 | 1 => {
                for n in written..written + count {
                    write(&mut ring, (n % u64::from(slots)) as u32, n);
                }
                written += count;
            }
            // The reader takes what it was told of.
            2 => {
                was_behind |= next < written && written - 1 + u64::from(margin) >= next + u64::from(slots);
                for told in next..written.min(next + count) {
                    let place = (told % u64::from(slots)) as u32;
                    // A reader that has fallen behind finds a packet of a later round.
                    let lay = told + (written - 1 - told) / u64::from(slots) * u64::from(slots);
                    taken.push_back(Taken { mark: reader.take(&slot(place)), lay, told });
                    taken.truncate(TAKEN);
                }
                next = written.min(next + count);
                if next == written && deed & 0x80 != 0 {
                    reader.caught_up();
                }
            }
            // It checks what it took.
            _ => {
                for taken in taken.drain(..taken.len().min(count as usize)) {
                    let newest = written - 1;
                    let holds = laps.holds(&taken.mark);
                    let Taken { lay, told, .. } = taken;
                    let gone = newest >= lay + u64::from(slots);
                    assert!(!(holds && gone), "packet {lay} was said to hold, with {newest} written: {geometry:?}");
                    let near = newest + u64::from(margin) >= told + u64::from(slots);
                    assert!(holds || near || was_behind, "packet {lay} was said to be gone at {newest}: {geometry:?}");
                }
            }
        }
    }
}

fn slot(place: u32) -> Slot {
    let octets = HEAD as u16;
    Slot { head_at: place * HEAD, body_at: 0, head: octets, octets, wire_octets: octets, leg: 0, arrival: Tai(0) }
}

/// Packet `n` of a stream with ten packets a frame.
fn write(ring: &mut SplitRing<Host>, place: u32, n: u64) {
    let at = (place * HEAD) as usize;
    let Some(header) = ring.head_plane_mut().as_mut_slice().get_mut(at..at + HEAD as usize) else { return };
    let [.., h0, h1, l0, l1] = n.to_be_bytes();
    header[2..4].copy_from_slice(&[l0, l1]);
    header[4..8].copy_from_slice(&((n / 10 * 3003) as u32 + 1).to_be_bytes());
    header[12..14].copy_from_slice(&[h0, h1]);
}
