//! From wire octets to samples: first the bits (samples concatenated, most significant first), then their order.

use super::{Samples, WIDE};
use crate::format::WireFormat;
use gdmedia_sdp::{Depth, Sampling, Subsampling};

/// Reads whole pgroups, at most [`WIDE`] pixels.
pub type Reader = fn(&[u8], &mut Samples);

/// The reader of a wire format (ST 2110-20:2022, 6.2).
pub fn reader(wire: &WireFormat) -> Reader {
    fn of<const ORDER: u8>(depth: Depth) -> Reader {
        match depth {
            Depth::D8 => read::<8, ORDER>,
            Depth::D10 => read::<10, ORDER>,
            Depth::D12 => read::<12, ORDER>,
            Depth::D16 | Depth::F16 => read::<16, ORDER>,
        }
    }
    match (wire.sampling, wire.sampling.subsampling()) {
        (Sampling::Rgb, _) => of::<RGB>(wire.depth),
        (Sampling::Xyz, _) => of::<XYZ>(wire.depth),
        (_, Subsampling::Full444) => of::<YCC444>(wire.depth),
        (_, Subsampling::Half422) => of::<YCC422>(wire.depth),
        (_, Subsampling::Quarter420) => of::<YCC420>(wire.depth),
        (_, Subsampling::One) => of::<KEY>(wire.depth),
    }
}

const YCC444: u8 = 0;
const RGB: u8 = 1;
const XYZ: u8 = 2;
const YCC422: u8 = 3;
const YCC420: u8 = 4;
const KEY: u8 = 5;

fn read<const BITS: u8, const ORDER: u8>(octets: &[u8], out: &mut Samples) {
    // Three samples a pixel at most, 4:2:0 included (twelve for two by four pixels).
    let mut flat = [0; 3 * WIDE];
    let flat = unpack::<BITS>(octets, &mut flat);
    let Samples { first: [row0, row1], second, third } = out;
    match ORDER {
        YCC444 | RGB | XYZ => {
            // In the order of the wire.
            let [p, q, r] = match ORDER {
                YCC444 => [second, row0, third],
                RGB => [third, row0, second],
                _ => [row0, second, third],
            };
            for (i, s) in flat.chunks_exact(3).enumerate() {
                [p[i], q[i], r[i]] = [s[0], s[1], s[2]];
            }
        }
        YCC422 => {
            for (i, s) in flat.chunks_exact(4).enumerate() {
                [second[i], row0[2 * i], third[i], row0[2 * i + 1]] = [s[0], s[1], s[2], s[3]];
            }
        }
        YCC420 => {
            for (i, s) in flat.chunks_exact(6).enumerate() {
                [row0[2 * i], row0[2 * i + 1], row1[2 * i], row1[2 * i + 1]] = [s[0], s[1], s[2], s[3]];
                [second[i], third[i]] = [s[4], s[5]];
            }
        }
        _ => row0[..flat.len()].copy_from_slice(flat),
    }
}

/// Samples of `BITS` bits, concatenated most significant bit first.
fn unpack<'a, const BITS: u8>(octets: &[u8], out: &'a mut [u16]) -> &'a [u16] {
    let out = &mut out[..octets.len() * 8 / usize::from(BITS)];
    match BITS {
        8 => {
            for (s, &o) in out.iter_mut().zip(octets) {
                *s = u16::from(o);
            }
        }
        10 => {
            for (s, o) in out.chunks_exact_mut(4).zip(octets.chunks_exact(5)) {
                let w = u32::from_be_bytes([o[0], o[1], o[2], o[3]]);
                s[0] = (w >> 22) as u16;
                s[1] = (w >> 12 & 0x3ff) as u16;
                s[2] = (w >> 2 & 0x3ff) as u16;
                s[3] = ((w & 3) << 8) as u16 | u16::from(o[4]);
            }
        }
        12 => {
            for (s, o) in out.chunks_exact_mut(2).zip(octets.chunks_exact(3)) {
                s[0] = u16::from(o[0]) << 4 | u16::from(o[1]) >> 4;
                s[1] = u16::from(o[1] & 15) << 8 | u16::from(o[2]);
            }
        }
        _ => {
            for (s, o) in out.iter_mut().zip(octets.chunks_exact(2)) {
                *s = u16::from_be_bytes([o[0], o[1]]);
            }
        }
    }
    out
}
