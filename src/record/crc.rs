//! CRC32C of octets in the GPU's memory: pieces there, put together here, so that frames need not come to the CPU.
#![allow(unsafe_code)]

use crate::error::Result;
use crate::gpu::{Event, EventKind, Function, Gpu, Stream};
use crate::kernel::cuda::image::{self, Wanted};
use crate::mem::{Device, Pinned, Region};
use std::ffi::c_void;
use std::sync::Arc;

/// Octets that a thread of the GPU reckons; a multiple of 16.
const PIECE: usize = 1024;
/// Threads of a block, as in `kernels/crc.cu`.
const BLOCK: usize = 256;

/// Puts CRCs of pieces together: what a CRC becomes when a piece of zeros follows is linear, and so four look-ups.
struct Together(Box<[[u32; 256]; 4]>);

impl Together {
    fn new() -> Self {
        let follows = |sum: u32| crc32c::crc32c_combine(sum, 0, PIECE);
        let bits: [u32; 32] = std::array::from_fn(|bit| follows(1 << bit));
        let of = |octet: usize, value: usize| {
            (0..8).filter(|bit| value >> bit & 1 == 1).fold(0, |sum, bit| sum ^ bits[octet * 8 + bit])
        };
        Together(Box::new(std::array::from_fn(|octet| std::array::from_fn(|value| of(octet, value)))))
    }
    /// Of pieces that follow one another, the last of which has `last` octets.
    fn all(&self, sums: &[u32], last: usize) -> u32 {
        let Some((end, whole)) = sums.split_last() else { return 0 };
        let sum = whole.iter().fold(0, |sum, piece| {
            let [a, b, c, d] = u32::to_le_bytes(sum).map(usize::from);
            let [t0, t1, t2, t3] = &*self.0;
            t0[a] ^ t1[b] ^ t2[c] ^ t3[d] ^ piece
        });
        if whole.is_empty() { *end } else { crc32c::crc32c_combine(sum, *end, last) }
    }
}

/// CRC32C of frames of one size.
pub struct GpuCrc {
    function: Function,
    together: Together,
    octets: usize,
    sums: Region<Device>,
    here: Region<Pinned>,
    done: Event,
}

impl GpuCrc {
    /// For frames of `octets` octets.
    ///
    /// # Errors
    /// There is no code for the GPU, or it has no memory for the pieces.
    pub fn load(gpu: &Arc<Gpu>, octets: usize) -> Result<Self> {
        let (function, _) = image::load(gpu, &Wanted::of("crc", "crc.cu", "crc32c"))?;
        let room = octets.div_ceil(PIECE) * 4;
        Ok(GpuCrc {
            function,
            together: Together::new(),
            octets,
            sums: Region::device(gpu, room)?,
            here: Region::pinned(gpu, room)?,
            done: Event::new(gpu, EventKind::Sleep)?,
        })
    }

    /// Of the frame at `address`, after all that is in the stream so far; waits for it.
    ///
    /// # Errors
    /// The GPU is lost.
    ///
    /// # Safety
    /// `address` is that of a frame of this size, a multiple of 16, that nobody writes but work that the stream waits for.
    pub unsafe fn of(&mut self, stream: &Stream, address: u64) -> Result<u32> {
        // SAFETY: promised by the caller; waited for by `end`.
        unsafe { self.begin(stream, address)? };
        self.end()
    }

    /// The same without waiting; [`GpuCrc::end`] does, before this is called again.
    ///
    /// # Errors
    /// The GPU is lost.
    ///
    /// # Safety
    /// As of [`GpuCrc::of`], and the frame stays as it is until [`GpuCrc::end`] returns.
    pub unsafe fn begin(&mut self, stream: &Stream, address: u64) -> Result<()> {
        let pieces = self.pieces();
        let blocks = [pieces.div_ceil(BLOCK) as u32, 1, 1];
        let (mut from, mut octets, mut piece, mut sums) =
            (address, self.octets as u64, PIECE as u32, self.sums.address());
        let mut parameters: [*mut c_void; 4] =
            [(&raw mut from).cast(), (&raw mut octets).cast(), (&raw mut piece).cast(), (&raw mut sums).cast()];
        // SAFETY: the types of crc.cu; the frame is promised by the caller, and the sums have a place for each piece.
        unsafe {
            stream.launch(&self.function, blocks, BLOCK as u32, &mut parameters)?;
            stream.copy(self.here.address(), self.sums.address(), pieces * 4)?;
        }
        Ok(stream.record(&self.done)?)
    }

    /// Waits for what was begun.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn end(&mut self) -> Result<u32> {
        self.done.wait()?;
        let pieces = self.pieces();
        let sums: Vec<u32> =
            self.here.as_slice().as_chunks::<4>().0.iter().take(pieces).map(|sum| u32::from_le_bytes(*sum)).collect();
        Ok(self.together.all(&sums, self.octets - (pieces.max(1) - 1) * PIECE))
    }

    const fn pieces(&self) -> usize {
        self.octets.div_ceil(PIECE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(count: usize) -> Vec<u8> {
        (0..count).map(|i| (i * 31 + i / 257) as u8).collect()
    }

    #[test]
    fn pieces_are_put_together() {
        let together = Together::new();
        for count in [1, 9, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE, 7 * PIECE + 333] {
            let octets = octets(count);
            let sums: Vec<u32> = octets.chunks(PIECE).map(crc32c::crc32c).collect();
            assert_eq!(together.all(&sums, (count - 1) % PIECE + 1), crc32c::crc32c(&octets), "{count}");
        }
        assert_eq!(together.all(&[crc32c::crc32c(b"123456789")], 9), 0xE306_9283);
    }

    #[test]
    fn the_gpu_reckons_the_same() {
        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(error) => return println!("skipped: no CUDA device: {error}"),
        };
        let stream = Stream::new(&gpu, false).unwrap();
        for count in [1, 15, 16, 1023, 1024, 1025, 300_000, 5_184_000, 8_294_401] {
            let octets = octets(count);
            let mut here = Region::pinned(&gpu, count).unwrap();
            here.as_mut_slice().copy_from_slice(&octets);
            let there = Region::device(&gpu, count).unwrap();
            let mut crc = GpuCrc::load(&gpu, count).unwrap();
            // SAFETY: both live until `of` has waited for the stream.
            let sum = unsafe {
                stream.copy(there.address(), here.address(), count).unwrap();
                crc.of(&stream, there.address()).unwrap()
            };
            assert_eq!(sum, crc32c::crc32c(&octets), "{count}");
        }
    }
}
