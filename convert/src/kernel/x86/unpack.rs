//! Wire octets to components: 16-bit words with the sample at the top, one vector a component. The bits below it mean
//! nothing; a packer shifts or masks them away.
//!
//! Every wire format is read in units of 4 pixels (4:2:0: of 4 by 2; key: 8) of at most 24 octets. A byte shuffle
//! brings the two octets that hold a sample, swapped, into a 16-bit word; a multiplication by 1, 4, 16 or 64 moves the
//! sample to the word's top. The tables follow from the bit positions, at compile time.
#![allow(unsafe_code)]

use super::vector::{Vector, each};

/// 32 pixels a lane, all components in full, in the order of the planes.
#[derive(Clone, Copy)]
pub(super) struct Full<V>(pub [[V; 4]; 3]);

/// 32 pixels a lane: Y, and Cb and Cr of every second pixel.
pub(super) struct Half<V> {
    pub y: [V; 4],
    pub c: [[V; 2]; 2],
}

/// 32 pixels a lane of two rows: Y of each, and Cb and Cr of the pair.
pub(super) struct Quarter<V> {
    pub y: [[V; 4]; 2],
    pub c: [[V; 2]; 2],
}

/// 32 pixels a lane of one component.
pub(super) struct One<V>(pub [V; 4]);

/// How 32 pixels a lane are read.
pub(super) trait Unpack {
    /// Columns of a pgroup.
    const GROUP: usize;
    /// Octets of 32 pixels.
    const LANE_OCTETS: usize;
    /// Octets that a block's loads may touch beyond it.
    const BEYOND: usize;
    /// The components.
    type Block<V: Vector>;

    /// # Safety
    /// The CPU has `V`; `V::LANES * LANE_OCTETS + BEYOND` octets can be read at `from`.
    unsafe fn block<V: Vector>(from: *const u8) -> Self::Block<V>;
}

/// 4:4:4, RGB and XYZ; in the `ORDER` of [`YCC`], [`RGB`] or [`XYZ`].
pub(super) struct W444<const BITS: u32, const ORDER: usize>;
/// Cb Y Cr on the wire, Y Cb Cr in planes.
pub(super) const YCC: usize = 0;
/// R G B on the wire, G B R in planes.
pub(super) const RGB: usize = 1;
/// X Y Z.
pub(super) const XYZ: usize = 2;
/// For each plane, its place on the wire.
const ORDERS: [[usize; 3]; 3] = [[1, 0, 2], [1, 2, 0], [0, 1, 2]];

/// 4:2:2.
pub(super) struct W422<const BITS: u32>;
/// 4:2:0.
pub(super) struct W420<const BITS: u32>;
/// Key.
pub(super) struct WKey<const BITS: u32>;

impl<const BITS: u32> Unpack for W422<BITS> {
    const GROUP: usize = 2;
    const LANE_OCTETS: usize = 64 * BITS as usize / 8;
    const BEYOND: usize = beyond(8, BITS);
    type Block<V: Vector> = Half<V>;

    #[inline(always)]
    unsafe fn block<V: Vector>(from: *const u8) -> Half<V> {
        // Y0 Y1 Y2 Y3 Cb0 Cb2 Cr0 Cr2
        let unit = const { &Words::<8>::new([1, 3, 5, 7, 0, 4, 2, 6], BITS, 0, 8) };
        // SAFETY: the caller's promise: unit `k < 8` ends at or before the lane's end, its load `BEYOND` behind it.
        let r: [V; 8] = each!(8, k => unsafe { unit.gather(from.add(k * BITS as usize), Self::LANE_OCTETS) });
        let c: [V; 4] = each!(4, i => r[2 * i].high64(r[2 * i + 1]).swap_middle());
        Half {
            y: each!(4, i => r[2 * i].low64(r[2 * i + 1])),
            c: [[c[0].low64(c[1]), c[2].low64(c[3])], [c[0].high64(c[1]), c[2].high64(c[3])]],
        }
    }
}

impl<const BITS: u32, const ORDER: usize> Unpack for W444<BITS, ORDER> {
    const GROUP: usize = if BITS == 10 {
        4
    } else if BITS == 12 {
        2
    } else {
        1
    };
    const LANE_OCTETS: usize = 96 * BITS as usize / 8;
    const BEYOND: usize = beyond(12, BITS);
    type Block<V: Vector> = Full<V>;

    #[inline(always)]
    unsafe fn block<V: Vector>(from: *const u8) -> Full<V> {
        // SAFETY: the caller's promise.
        let r: [(V, V); 8] = unsafe {
            twelve(
                from,
                Self::LANE_OCTETS,
                const { &Words::<8>::new([0, 3, 6, 9, 1, 4, 7, 10], BITS, 0, 12) },
                const { &Words::<4>::new([2, 5, 8, 11], BITS, 0, 12) },
            )
        };
        let wire = [
            each!(4, i => r[2 * i].0.low64(r[2 * i + 1].0)),
            each!(4, i => r[2 * i].0.high64(r[2 * i + 1].0)),
            each!(4, i => r[2 * i].1.low64(r[2 * i + 1].1)),
        ];
        Full([wire[ORDERS[ORDER][0]], wire[ORDERS[ORDER][1]], wire[ORDERS[ORDER][2]]])
    }
}

impl<const BITS: u32> Unpack for W420<BITS> {
    const GROUP: usize = if BITS == 10 { 4 } else { 2 };
    const LANE_OCTETS: usize = 96 * BITS as usize / 8;
    const BEYOND: usize = beyond(12, BITS);
    type Block<V: Vector> = Quarter<V>;

    #[inline(always)]
    unsafe fn block<V: Vector>(from: *const u8) -> Quarter<V> {
        // SAFETY: the caller's promise.
        let r: [(V, V); 8] = unsafe {
            twelve(
                from,
                Self::LANE_OCTETS,
                const { &Words::<8>::new([0, 1, 6, 7, 2, 3, 8, 9], BITS, 0, 12) },
                const { &Words::<4>::new([4, 10, 5, 11], BITS, 0, 12) },
            )
        };
        // Cb0 Cb1 Cr0 Cr1 of two units: Cb x 4, Cr x 4
        let c: [V; 4] = each!(4, i => r[2 * i].1.low64(r[2 * i + 1].1).swap_middle());
        Quarter {
            y: [each!(4, i => r[2 * i].0.low64(r[2 * i + 1].0)), each!(4, i => r[2 * i].0.high64(r[2 * i + 1].0))],
            c: [[c[0].low64(c[1]), c[2].low64(c[3])], [c[0].high64(c[1]), c[2].high64(c[3])]],
        }
    }
}

impl<const BITS: u32> Unpack for WKey<BITS> {
    const GROUP: usize = if BITS == 10 {
        4
    } else if BITS == 12 {
        2
    } else {
        1
    };
    const LANE_OCTETS: usize = 32 * BITS as usize / 8;
    const BEYOND: usize = beyond(8, BITS);
    type Block<V: Vector> = One<V>;

    #[inline(always)]
    unsafe fn block<V: Vector>(from: *const u8) -> One<V> {
        let unit = const { &Words::<8>::new([0, 1, 2, 3, 4, 5, 6, 7], BITS, 0, 8) };
        // SAFETY: the caller's promise, as for 4:2:2.
        One(each!(4, k => unsafe { unit.gather(from.add(k * BITS as usize), Self::LANE_OCTETS) }))
    }
}

/// Octets that a 16-octet load touches behind a unit of `samples`.
pub(super) const fn beyond(samples: u32, bits: u32) -> usize {
    16usize.saturating_sub((samples * bits / 8) as usize)
}

/// Eight units of twelve samples: `first` in one vector, `then` in the low half of another.
///
/// # Safety
/// The CPU has `V`; lanes of `stride` octets (and what a load touches behind them) can be read at `from`.
#[inline(always)]
unsafe fn twelve<V: Vector>(
    from: *const u8,
    stride: usize,
    first: &'static Words<8>,
    then: &'static Words<4>,
) -> [(V, V); 8] {
    each!(8, k => {
        // SAFETY: the caller's promise.
        unsafe {
            let at = from.add(k * first.end);
            (first.gather(at, stride), then.gather(at, stride))
        }
    })
}

/// Which samples go to which words of a lane.
pub(super) struct Words<const N: usize> {
    /// Octet behind the last sample.
    end: usize,
    /// Where 16 octets are loaded, and where their octets go.
    loads: [Option<(usize, [u8; 16])>; 3],
    /// Factors that bring each sample to the top of its word, where they are not all 1.
    factors: Option<[u8; 16]>,
}

/// A word that holds no sample.
pub(super) const NONE: u8 = 0xff;

impl<const N: usize> Words<N> {
    /// `samples` of those that begin with number `first` and end before `end`.
    pub(super) const fn new(samples: [u8; N], bits: u32, first: usize, end: usize) -> Self {
        let bits = bits as usize;
        let (start, end) = (first * bits / 8, (end * bits).div_ceil(8));
        // One load reaches 16 octets; one that ends with the unit makes it 31; else one between them is needed.
        let far = if end < start + 16 { start } else { end - 16 };
        let near = [start, start + 12, far];
        let mut shuffles = [[0x80; 16]; 3];
        let mut used = [false; 3];
        let mut factors = [0; 16];
        let mut i = 0;
        while i < N {
            if samples[i] != NONE {
                let bit = samples[i] as usize * bits;
                let (high, low) = (bit / 8, bit / 8 + (bits > 8) as usize);
                let load = if low < start + 16 {
                    0
                } else if high >= far {
                    2
                } else {
                    1
                };
                used[load] = true;
                if bits > 8 {
                    shuffles[load][2 * i] = (low - near[load]) as u8;
                }
                shuffles[load][2 * i + 1] = (high - near[load]) as u8;
                factors[2 * i] = 1 << (bit % 8);
            }
            i += 1;
        }
        let mut loads = [None; 3];
        let mut i = 0;
        while i < 3 {
            if used[i] {
                loads[i] = Some((near[i], shuffles[i]));
            }
            i += 1;
        }
        Words { end, loads, factors: if bits.is_multiple_of(8) { None } else { Some(factors) } }
    }

    /// The samples at the tops of their words.
    ///
    /// # Safety
    /// The CPU has `V`; at each lane's place as many octets as the samples take can be read, and at least 16 from their
    /// start.
    #[inline(always)]
    pub(super) unsafe fn gather<V: Vector>(&self, from: *const u8, stride: usize) -> V {
        // SAFETY: the caller's promise; loads but the first end at or before the last sample.
        unsafe {
            let mut words = V::octets([0; 16]);
            if let Some((at, shuffle)) = self.loads[0] {
                words = V::load(from.add(at), stride).shuffle(V::octets(shuffle));
            }
            if let Some((at, shuffle)) = self.loads[1] {
                words = words.or(V::load(from.add(at), stride).shuffle(V::octets(shuffle)));
            }
            if let Some((at, shuffle)) = self.loads[2] {
                words = words.or(V::load(from.add(at), stride).shuffle(V::octets(shuffle)));
            }
            match self.factors {
                Some(factors) => words.mul16(V::octets(factors)),
                None => words,
            }
        }
    }
}
