//! Shorter ways for 4:2:2 10 bit, the format of most flows.

use super::write::store_v210;
use crate::kernel::{Conversion, Run};

/// One pgroup: Cb Y Cr Y.
#[inline(always)]
fn pgroup(o: &[u8; 5]) -> [u16; 4] {
    let w = u64::from_be_bytes([0, 0, 0, o[0], o[1], o[2], o[3], o[4]]);
    [(w >> 30) as u16, (w >> 20 & 0x3ff) as u16, (w >> 10 & 0x3ff) as u16, (w & 0x3ff) as u16]
}

fn pgroups(octets: &[u8]) -> impl Iterator<Item = [u16; 4]> {
    octets.as_chunks().0.iter().map(pgroup)
}

/// To three planes of 16 bits.
pub fn planar_422_10(conversion: &Conversion, run: Run<'_>, frame: &mut [u8]) {
    let octets = run.check(conversion, frame.len());
    let (groups, group, row) = (run.groups as usize, run.group as usize, run.row as usize);
    let [y, b, r] = [0, 1, 2].map(|i| {
        let plane = &conversion.layout.planes[i];
        plane.offset + row * plane.stride + group * if i == 0 { 4 } else { 2 }
    });
    // Planes follow one another, so that the frame can be cut between them.
    let (luma, rest) = frame.split_at_mut(b);
    let (blue, red) = rest.split_at_mut(r - b);
    let luma = luma[y..y + groups * 4].as_chunks_mut::<4>().0;
    let blue = blue[..groups * 2].as_chunks_mut::<2>().0;
    let red = red[..groups * 2].as_chunks_mut::<2>().0;
    for (((y, b), r), s) in luma.iter_mut().zip(blue).zip(red).zip(pgroups(&run.src[..octets])) {
        *y = (u32::from(s[1]) | u32::from(s[3]) << 16).to_le_bytes();
        *b = s[0].to_le_bytes();
        *r = s[2].to_le_bytes();
    }
}

/// To UYVY: the upper eight bits.
pub fn uyvy_422_10(conversion: &Conversion, run: Run<'_>, frame: &mut [u8]) {
    let octets = run.check(conversion, frame.len());
    let plane = &conversion.layout.planes[0];
    let at = plane.offset + run.row as usize * plane.stride + run.group as usize * 4;
    let out = frame[at..at + run.groups as usize * 4].as_chunks_mut::<4>().0;
    for (o, s) in out.iter_mut().zip(pgroups(&run.src[..octets])) {
        *o = s.map(|s| (s >> 2) as u8);
    }
}

/// To v210: the same samples in the same order, in other words.
pub fn v210_422_10(conversion: &Conversion, run: Run<'_>, frame: &mut [u8]) {
    let octets = run.check(conversion, frame.len());
    let plane = &conversion.layout.planes[0];
    let at = plane.offset + run.row as usize * plane.stride;
    let row = &mut frame[at..at + plane.stride];
    let start = run.group as usize * 4;
    // Up to the first block of twelve samples, whole blocks, the rest.
    let head = (run.groups as usize).min((12 - start % 12) % 12 / 4);
    let (first, rest) = run.src[..octets].split_at(head * 5);
    let mut some = [0; 12];
    let mut partly = |row: &mut [u8], start: usize, octets: &[u8]| {
        let mut n = 0;
        for s in pgroups(octets) {
            some[n..n + 4].copy_from_slice(&s);
            n += 4;
        }
        store_v210(row, start, &some[..n]);
    };
    partly(row, start, first);
    let start = start + head * 4;
    let (blocks, rest) = rest.as_chunks::<15>();
    for (o, b) in row[start / 12 * 16..].as_chunks_mut::<16>().0.iter_mut().zip(blocks) {
        let [[a, b, c, d], [e, f, g, h], [i, j, k, l]] =
            [0, 5, 10].map(|i| pgroup(&[b[i], b[i + 1], b[i + 2], b[i + 3], b[i + 4]]).map(u32::from));
        let words = [a | b << 10 | c << 20, d | e << 10 | f << 20, g | h << 10 | i << 20, j | k << 10 | l << 20];
        for (o, word) in o.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *o = word.to_le_bytes();
        }
    }
    partly(row, start + blocks.len() * 12, rest);
}
