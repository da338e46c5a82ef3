//! Vectors of 16-octet lanes: one source for SSSE3 (one lane) and AVX2 (two).
//!
//! A vector exists only inside a function that has its instruction set: [`Vector::load`] and [`Vector::octets`] are
//! unsafe for that reason, and everything else is safe because the value is the proof. All operations stay within a
//! lane; lane `l` of a block holds pixels `32 l .. 32 l + 32`, so that only the stores must know how many lanes there
//! are.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// An array of 2, 3, 4 or 8 elements in straight code: closures would not get the instruction set of the function around.
macro_rules! each {
    (2, $i:ident => $e:expr) => { each!(@ [0 1] $i $e) };
    (3, $i:ident => $e:expr) => { each!(@ [0 1 2] $i $e) };
    (4, $i:ident => $e:expr) => { each!(@ [0 1 2 3] $i $e) };
    (8, $i:ident => $e:expr) => { each!(@ [0 1 2 3 4 5 6 7] $i $e) };
    (@ [$($n:literal)*] $i:ident $e:expr) => { [$({ const N: usize = $n; let $i = N; $e }),*] };
}
pub(super) use each;

/// What kernels need of a vector.
pub(super) trait Vector: Copy {
    /// Lanes.
    const LANES: usize;

    /// Lane `l` from `from + l * stride`.
    ///
    /// # Safety
    /// The CPU has the instruction set; 16 octets can be read at each of these places.
    unsafe fn load(from: *const u8, stride: usize) -> Self;
    /// The same octets in each lane.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    unsafe fn octets(lane: [u8; 16]) -> Self;
    /// All `regs` of lane 0, then all of lane 1.
    ///
    /// Plain stores: non-temporal ones are a little faster for whole rows, but half as fast for packets, whose ends
    /// cut the lines of every plane, and they need a fence that waits for all of them.
    ///
    /// # Safety
    /// `16 * N * LANES` octets can be written at `to`; `N` is 1 or even.
    unsafe fn store<const N: usize>(regs: [Self; N], to: *mut u8);

    /// Fetches a line that will be written; any address will do.
    #[inline(always)]
    fn prefetch(line: *const u8) {
        // SAFETY: a hint, which every x86-64 has and which never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
    }

    /// Octet `i` becomes octet `order[i]`, or 0 where that is 0x80 or more.
    fn shuffle(self, order: Self) -> Self;
    /// Bitwise.
    fn and(self, other: Self) -> Self;
    /// Bitwise.
    fn or(self, other: Self) -> Self;
    /// 16-bit words, low halves of the products.
    fn mul16(self, other: Self) -> Self;
    /// Signed 16-bit words: `(a * b + (1 << 14)) >> 15`.
    fn mulround16(self, other: Self) -> Self;
    /// 16-bit words, high halves of the unsigned products.
    fn mulhi16(self, other: Self) -> Self;
    /// 16-bit words.
    fn sub16(self, other: Self) -> Self;
    /// 32-bit words.
    fn add32(self, other: Self) -> Self;
    /// Signed 16-bit words: products of neighbours, added.
    fn madd(self, other: Self) -> Self;
    /// 16-bit words, zeros from the left.
    fn shr16<const N: i32>(self) -> Self;
    /// 32-bit words.
    fn shl32<const N: i32>(self) -> Self;
    /// 32-bit words, zeros from the left.
    fn shr32<const N: i32>(self) -> Self;
    /// 32-bit words, sign from the left.
    fn sra32<const N: i32>(self) -> Self;
    /// Low halves, octet by octet.
    fn low8(self, other: Self) -> Self;
    /// High halves, octet by octet.
    fn high8(self, other: Self) -> Self;
    /// Low halves, 16-bit word by word.
    fn low16(self, other: Self) -> Self;
    /// High halves, 16-bit word by word.
    fn high16(self, other: Self) -> Self;
    /// Low half of each.
    fn low64(self, other: Self) -> Self;
    /// High half of each.
    fn high64(self, other: Self) -> Self;
    /// Signed 16-bit words to octets, saturating.
    fn pack8(self, other: Self) -> Self;
    /// Signed 32-bit words to signed 16-bit words, saturating.
    fn pack16(self, other: Self) -> Self;
    /// 32-bit words 0 2 1 3.
    fn swap_middle(self) -> Self;
    /// Each 16-bit word `value`.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    #[inline(always)]
    unsafe fn words(value: u16) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::pairs(value as i16, value as i16) }
    }
    /// 16-bit words `even` and `odd` in turn.
    ///
    /// # Safety
    /// The CPU has the instruction set.
    #[inline(always)]
    unsafe fn pairs(even: i16, odd: i16) -> Self {
        let ([a, b], [c, d]) = (even.to_le_bytes(), odd.to_le_bytes());
        // SAFETY: the caller's promise.
        unsafe { Self::octets([a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d]) }
    }
}

/// One lane.
#[derive(Clone, Copy)]
pub(super) struct Ssse3(__m128i);

/// Two lanes.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256i);

macro_rules! operations {
    ($reg:ident: [$($name:ident = $intrinsic:ident;)*] [$($shift:ident = $by:ident;)*]) => {
        $(#[inline(always)]
        fn $name(self, other: Self) -> Self {
            // SAFETY: a value of this type is only made where the CPU has the instruction set.
            $reg(unsafe { $intrinsic(self.0, other.0) })
        })*
        $(#[inline(always)]
        fn $shift<const N: i32>(self) -> Self {
            // SAFETY: as above.
            $reg(unsafe { $by::<N>(self.0) })
        })*
    };
}

impl Vector for Ssse3 {
    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const u8, _: usize) -> Self {
        // SAFETY: the caller's promise.
        Ssse3(unsafe { _mm_loadu_si128(from.cast()) })
    }
    #[inline(always)]
    unsafe fn octets(lane: [u8; 16]) -> Self {
        // SAFETY: the caller's promise; `lane` has 16 octets.
        Ssse3(unsafe { _mm_loadu_si128(lane.as_ptr().cast()) })
    }
    #[inline(always)]
    unsafe fn store<const N: usize>(regs: [Self; N], to: *mut u8) {
        for (i, r) in regs.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { _mm_storeu_si128(to.add(16 * i).cast(), r.0) };
        }
    }
    #[inline(always)]
    fn swap_middle(self) -> Self {
        // SAFETY: a value of this type is only made where the CPU has the instruction set.
        Ssse3(unsafe { _mm_shuffle_epi32::<0b11_01_10_00>(self.0) })
    }
    operations! { Ssse3: [
        shuffle = _mm_shuffle_epi8; and = _mm_and_si128; or = _mm_or_si128;
        mul16 = _mm_mullo_epi16; mulhi16 = _mm_mulhi_epu16; mulround16 = _mm_mulhrs_epi16; sub16 = _mm_sub_epi16;
        add32 = _mm_add_epi32; madd = _mm_madd_epi16;
        low8 = _mm_unpacklo_epi8; high8 = _mm_unpackhi_epi8; low16 = _mm_unpacklo_epi16; high16 = _mm_unpackhi_epi16;
        low64 = _mm_unpacklo_epi64;
        high64 = _mm_unpackhi_epi64; pack8 = _mm_packus_epi16; pack16 = _mm_packs_epi32;
        ] [
        shr16 = _mm_srli_epi16; sra32 = _mm_srai_epi32; shr32 = _mm_srli_epi32; shl32 = _mm_slli_epi32;
        ]
    }
}

impl Vector for Avx2 {
    const LANES: usize = 2;

    #[inline(always)]
    unsafe fn load(from: *const u8, stride: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Avx2(_mm256_loadu2_m128i(from.add(stride).cast(), from.cast())) }
    }
    #[inline(always)]
    unsafe fn octets(lane: [u8; 16]) -> Self {
        // SAFETY: the caller's promise; `lane` has 16 octets.
        Avx2(unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(lane.as_ptr().cast())) })
    }
    #[inline(always)]
    unsafe fn store<const N: usize>(regs: [Self; N], to: *mut u8) {
        // SAFETY: the caller's promise; `N` is 1 or even, so that the places below fill `32 * N` octets.
        unsafe {
            if N == 1 {
                return _mm256_storeu_si256(to.cast(), regs[0].0);
            }
            for i in 0..N / 2 {
                let value = _mm256_permute2x128_si256::<0x20>(regs[2 * i].0, regs[2 * i + 1].0);
                _mm256_storeu_si256(to.add(32 * i).cast(), value);
            }
            for i in 0..N / 2 {
                let value = _mm256_permute2x128_si256::<0x31>(regs[2 * i].0, regs[2 * i + 1].0);
                _mm256_storeu_si256(to.add(32 * (N / 2 + i)).cast(), value);
            }
        }
    }
    #[inline(always)]
    fn swap_middle(self) -> Self {
        // SAFETY: a value of this type is only made where the CPU has the instruction set.
        Avx2(unsafe { _mm256_shuffle_epi32::<0b11_01_10_00>(self.0) })
    }
    operations! { Avx2: [
        shuffle = _mm256_shuffle_epi8; and = _mm256_and_si256; or = _mm256_or_si256;
        mul16 = _mm256_mullo_epi16; mulhi16 = _mm256_mulhi_epu16; mulround16 = _mm256_mulhrs_epi16; sub16 = _mm256_sub_epi16;
        add32 = _mm256_add_epi32; madd = _mm256_madd_epi16;
        low8 = _mm256_unpacklo_epi8; high8 = _mm256_unpackhi_epi8; low16 = _mm256_unpacklo_epi16;
        high16 = _mm256_unpackhi_epi16;
        low64 = _mm256_unpacklo_epi64; high64 = _mm256_unpackhi_epi64; pack8 = _mm256_packus_epi16;
        pack16 = _mm256_packs_epi32;
        ] [
        shr16 = _mm256_srli_epi16; sra32 = _mm256_srai_epi32; shr32 = _mm256_srli_epi32; shl32 = _mm256_slli_epi32;
        ]
    }
}
