//! From a run to steps of whole vectors, and what is left at its ends.
#![allow(unsafe_code)]

use super::pack::{Pack, Places, Row, STREAMS, Stream};
use super::unpack::Unpack;
use super::vector::{Avx2, Ssse3, Vector};
use crate::kernel::scalar::{self, write::colour_row};
use crate::kernel::{Conversion, Level, Run, RunFn};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// What is done again and again along a run.
pub(super) trait Step {
    /// Pixels a lane.
    const PIXELS: usize;
    /// Octets of these.
    const LANE_OCTETS: usize;
    /// Octets that loads may touch behind a step's.
    const BEYOND: usize;
    /// Columns of a pgroup.
    const GROUP: usize;
    /// Steps begin in columns that are multiples of this, itself a multiple of `GROUP`.
    const ALIGN: usize;
    /// Pixels that can be written apart from others.
    const ATOM: usize;
    /// What is written.
    const STREAMS: &'static [Stream];
    /// What is made ready once a run.
    type Setup<V: Vector>;

    /// # Safety
    /// The CPU has `V`.
    unsafe fn setup<V: Vector>(conversion: &Conversion) -> Self::Setup<V>;
    /// # Safety
    /// The CPU has `V`; `LANES * LANE_OCTETS + BEYOND` octets can be read at `from`; `to[i]` is null or
    /// `STREAMS[i].span(PIXELS * LANES)` octets can be written there.
    unsafe fn step<V: Vector>(setup: &Self::Setup<V>, from: *const u8, to: &Places);
}

/// Unpacker and packer in one.
pub(super) struct Fused<W, P>(PhantomData<(W, P)>);

impl<W: Unpack, P: Pack<W>> Step for Fused<W, P> {
    const PIXELS: usize = 32;
    const LANE_OCTETS: usize = W::LANE_OCTETS;
    const BEYOND: usize = W::BEYOND;
    const GROUP: usize = W::GROUP;
    const ALIGN: usize = {
        let (mut align, mut i) = (W::GROUP, 0);
        while i < P::STREAMS.len() {
            if W::GROUP == 1 && P::STREAMS[i].pixels > align {
                align = P::STREAMS[i].pixels;
            }
            i += 1;
        }
        align
    };
    const ATOM: usize = 1;
    const STREAMS: &'static [Stream] = P::STREAMS;
    type Setup<V: Vector> = P::Setup<V>;

    #[inline(always)]
    unsafe fn setup<V: Vector>(conversion: &Conversion) -> Self::Setup<V> {
        // SAFETY: the caller's promise.
        unsafe { P::setup::<V>(conversion) }
    }
    #[inline(always)]
    unsafe fn step<V: Vector>(setup: &Self::Setup<V>, from: *const u8, to: &Places) {
        // SAFETY: the caller's promise.
        unsafe { P::block::<V>(setup, W::block::<V>(from), to) }
    }
}

/// The conversion for a level that [`super::select`] has found available.
pub(super) fn by_level<S: Step>(level: Level) -> Option<RunFn> {
    match level {
        Level::Scalar => None,
        Level::Ssse3 => Some(ssse3::<S>),
        Level::Avx2 => Some(avx2::<S>),
    }
}

fn ssse3<S: Step>(conversion: &Conversion, run: Run<'_>, frame: &mut [u8]) {
    #[target_feature(enable = "ssse3")]
    fn inner<S: Step>(conversion: &Conversion, run: Run<'_>, frame: &mut [u8]) {
        // SAFETY: this function has SSSE3.
        unsafe { convert::<Ssse3, S>(conversion, run, frame) }
    }
    // SAFETY: `select` has seen that the CPU has SSSE3.
    unsafe { inner::<S>(conversion, run, frame) }
}

fn avx2<S: Step>(conversion: &Conversion, run: Run<'_>, frame: &mut [u8]) {
    #[target_feature(enable = "avx2")]
    fn inner<S: Step>(conversion: &Conversion, run: Run<'_>, frame: &mut [u8]) {
        // SAFETY: this function has AVX2.
        unsafe { convert::<Avx2, S>(conversion, run, frame) }
    }
    // SAFETY: `select` has seen that the CPU has AVX2.
    unsafe { inner::<S>(conversion, run, frame) }
}

/// # Safety
/// The CPU has `V`.
#[inline(always)]
unsafe fn convert<V: Vector, S: Step>(conversion: &Conversion, mut run: Run<'_>, frame: &mut [u8]) {
    run.check(conversion, frame.len());
    assert!(conversion.wire().pgroup.width() as usize == S::GROUP);
    // Up to a column where a step can begin.
    let lead = run.group as usize * S::GROUP % S::ALIGN;
    if lead > 0 {
        let groups = run.groups.min(((S::ALIGN - lead) / S::GROUP) as u32);
        law(conversion, &mut run, groups, frame);
        if run.groups == 0 {
            return;
        }
    }
    let rest = {
        let work = Work::new::<S>(conversion, run, frame);
        // SAFETY: the caller's promise.
        unsafe { work.steps::<V, S>(&S::setup::<V>(conversion)) }
    };
    if rest > 0 {
        let groups = run.groups - (rest / S::GROUP) as u32;
        run.src = &run.src[octets::<S>(groups as usize * S::GROUP)..];
        run.group += groups;
        run.groups -= groups;
        let groups = run.groups;
        law(conversion, &mut run, groups, frame);
    }
}

/// The scalar law for some groups at a run's end, which leave the run.
#[cold]
#[inline(never)]
fn law(conversion: &Conversion, run: &mut Run<'_>, groups: u32, frame: &mut [u8]) {
    scalar::select(conversion)(conversion, Run { groups, ..*run }, frame);
    run.src = &run.src[groups as usize * conversion.wire().pgroup.octets as usize..];
    run.group += groups;
    run.groups -= groups;
}

/// Octets of whole pgroups.
const fn octets<S: Step>(pixels: usize) -> usize {
    pixels * S::LANE_OCTETS / S::PIXELS
}

/// A run that has been checked: where it is read, and where its streams are written.
struct Work<'a> {
    src: &'a [u8],
    /// Those of the run that are picture.
    pixels: usize,
    to: Places,
}

impl<'a> Work<'a> {
    #[inline(always)]
    fn new<S: Step>(conversion: &Conversion, run: Run<'a>, frame: &'a mut [u8]) -> Self {
        let wire = conversion.wire();
        let x = run.group as usize * S::GROUP;
        let row = run.row as usize;
        let held = run.groups as usize * S::GROUP;
        // Where a part is written, nothing behind the width is; what an atom holds beyond it is padding.
        let pixels = held.min((wire.width as usize - x).next_multiple_of(S::ATOM));
        let mut to = [std::ptr::null_mut(); STREAMS];
        for (to, stream) in to.iter_mut().zip(S::STREAMS) {
            let plane = &conversion.layout.planes[stream.plane];
            let row = match stream.row {
                Row::First => Some(row * wire.pgroup.rows as usize),
                Row::Second => Some(row * 2 + 1).filter(|&row| wire.pgroup.rows == 2 && row < plane.rows),
                Row::Colour => colour_row(wire, row),
                Row::Wire => Some(row),
            };
            if let Some(row) = row {
                let at = plane.offset + row * plane.stride + stream.span(x);
                *to = frame[at..at + stream.span(pixels)].as_mut_ptr();
            }
        }
        Work { src: run.src, pixels, to }
    }

    /// Returns the pixels at the end that are less than an atom: the law's.
    ///
    /// # Safety
    /// The CPU has `V`.
    #[inline(always)]
    unsafe fn steps<V: Vector, S: Step>(self, setup: &S::Setup<V>) -> usize {
        let Work { src, pixels, to } = self;
        let step = S::PIXELS * V::LANES;
        let loads = octets::<S>(step) + S::BEYOND;
        let end = pixels - pixels % S::ATOM;
        let mut bounce = Bounce::new::<V, S>();
        let mut x = 0;
        while x < end {
            let mut from = octets::<S>(x);
            let mut whole = x + step <= end && from + loads <= src.len();
            if !whole && x + step > end && end >= step && (end - step) % S::ALIGN == 0 {
                // The last step once more, so that it ends where the run ends.
                let last = octets::<S>(end - step);
                if last + loads <= src.len() {
                    (x, from, whole) = (end - step, last, true);
                }
            }
            // SAFETY: a whole step lies in the run's pixels and its loads in `src`; else it goes by way of the stack,
            // which has room for the largest step, and the pixels that are copied lie in the run.
            unsafe {
                let there = places::<S>(&to, x);
                if whole {
                    for (place, stream) in there.iter().zip(S::STREAMS) {
                        for line in 0..stream.span(step).div_ceil(64) {
                            V::prefetch(place.wrapping_add(AHEAD + 64 * line));
                        }
                    }
                    S::step::<V>(setup, src.as_ptr().add(from), &there);
                } else {
                    let (from, here) = bounce.before::<S>(&src[from..], loads, &there);
                    S::step::<V>(setup, from, &here);
                    for (i, stream) in S::STREAMS.iter().enumerate() {
                        if !here[i].is_null() {
                            copy(here[i], there[i], stream.span(step.min(end - x)));
                        }
                    }
                }
            }
            x += step;
        }
        pixels - end
    }
}

/// The streams `x` pixels on.
///
/// # Safety
/// They are that long.
#[inline(always)]
unsafe fn places<S: Step>(to: &Places, x: usize) -> Places {
    let mut there = *to;
    for (there, stream) in there.iter_mut().zip(S::STREAMS) {
        if !there.is_null() {
            // SAFETY: the caller's promise.
            *there = unsafe { there.add(stream.span(x)) };
        }
    }
    there
}

/// How far in front of its stores a step fetches lines, so that it does not wait for memory: measured. The run that
/// comes next mostly begins where this one ends.
const AHEAD: usize = 1024;

/// Octets and a stream's octets of the largest step.
const MOST_OCTETS: usize = 64 * 6 + 16;
const MOST_SPAN: usize = 256;

/// Where a step reads and writes that would touch more than the run.
#[repr(align(64))]
struct Bounce {
    streams: MaybeUninit<[[u8; MOST_SPAN]; STREAMS]>,
    octets: MaybeUninit<[u8; MOST_OCTETS]>,
}

impl Bounce {
    #[inline(always)]
    fn new<V: Vector, S: Step>() -> Self {
        const {
            assert!(S::LANE_OCTETS * V::LANES + S::BEYOND <= MOST_OCTETS);
            let mut i = 0;
            while i < S::STREAMS.len() {
                assert!(S::STREAMS[i].span(S::PIXELS * V::LANES) <= MOST_SPAN);
                i += 1;
            }
        }
        Bounce { streams: MaybeUninit::uninit(), octets: MaybeUninit::uninit() }
    }
    /// Where to read and to write instead.
    #[inline(always)]
    fn before<S: Step>(&mut self, src: &[u8], loads: usize, to: &Places) -> (*const u8, Places) {
        let mut from = src.as_ptr();
        if src.len() < loads {
            // Octets behind those of the run come from nowhere, but go nowhere either.
            let octets = self.octets.write([0; MOST_OCTETS]);
            octets[..src.len()].copy_from_slice(src);
            from = octets.as_ptr();
        }
        let start = self.streams.as_mut_ptr().cast::<u8>();
        let mut here = *to;
        for (i, place) in here.iter_mut().enumerate() {
            if !place.is_null() {
                *place = start.wrapping_add(i * MOST_SPAN);
            }
        }
        (from, here)
    }
}

/// Copies a few octets without a call; the last vectors overlap.
///
/// # Safety
/// `len` octets can be read at `from` and written at `to`.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[inline(always)]
    unsafe fn ends<T>(from: *const u8, to: *mut u8, len: usize) {
        let last = len - size_of::<T>();
        // SAFETY: `len` is between one and two `T`.
        unsafe {
            let (a, b) = (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
            to.cast::<T>().write_unaligned(a);
            to.add(last).cast::<T>().write_unaligned(b);
        }
    }
    let mut at = 0;
    // SAFETY: all within the first `len` octets.
    unsafe {
        while len - at > 32 {
            ends::<u128>(from.add(at), to.add(at), 32);
            at += 32;
        }
        let (from, to, len) = (from.add(at), to.add(at), len - at);
        match len {
            16.. => ends::<u128>(from, to, len),
            8.. => ends::<u64>(from, to, len),
            4.. => ends::<u32>(from, to, len),
            2.. => ends::<u16>(from, to, len),
            1 => to.write(from.read()),
            0 => {}
        }
    }
}
