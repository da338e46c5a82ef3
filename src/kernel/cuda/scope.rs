//! Scopes on the GPU: the counts of [`crate::scope`].
#![allow(unsafe_code)]

use super::super::Conversion;
use super::image::{self, Wanted};
use super::program::tables;
use super::scale::{Scale, numbers};
use crate::error::{Error, Kind, Result};
use crate::format::Output;
use crate::gpu::{Fault, Function, Gpu, Stream};
use crate::mem::{Device, Region};
use crate::scope::{self, LEVELS, Scope};
use std::sync::Arc;

/// Threads of a block, as in `kernels/frame.cu`.
const BLOCK: u32 = 256;

/// The same in `kernels/frame.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    frame: Scale,
    waveform: u64,
    vectorscope: u64,
    width: u32,
    height: u32,
    columns: u32,
    traces: u32,
    component: [u32; 3],
    up: u32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Count>() == 216 && offset_of!(Count, waveform) == 168 && offset_of!(Count, component) == 200);
};

/// Counts the samples of finished frames of one layout.
#[derive(Debug)]
pub struct Counter {
    function: Function,
    count: Count,
    empty: Scope,
    _tables: Option<Region<Device>>,
}

impl Counter {
    /// With so many columns at most.
    ///
    /// # Errors
    /// The output has no scopes (wire octets and rgb16f); there is no code for the GPU, or it has no memory for tables.
    pub fn load(gpu: &Arc<Gpu>, conversion: &Conversion, columns: usize) -> Result<Counter> {
        let Some(empty) = Scope::empty(conversion, columns) else {
            let what = format!("no scopes of {} frames", conversion.output().word());
            return Err(Error::new(Kind::Usage, what).cure("choose another output, such as planar or p210"));
        };
        let (function, _) = image::load(gpu, &Wanted::of_frame("count"))?;
        let (tables, addresses) =
            if conversion.output() == Output::Planar { tables(gpu, conversion)? } else { (None, [0; 2]) };
        let count = Count {
            frame: numbers(conversion, 1, addresses),
            width: conversion.wire().width,
            height: conversion.wire().height,
            columns: empty.columns as u32,
            traces: empty.traces as u32,
            component: [0, 1, 2].map(|trace| scope::component(conversion, trace) as u32),
            up: if conversion.output() == Output::Rgba { 2 } else { 0 },
            ..Count::default()
        };
        Ok(Counter { function, count, empty, _tables: tables })
    }
    /// Octets of all counts.
    pub fn octets(&self) -> usize {
        (self.empty.waveform.len() + self.empty.vectorscope.len()) * size_of::<u32>()
    }

    /// Writes the counts of the frame at address `frame` to address `to`; [`Counter::read`] takes them from there.
    ///
    /// # Errors
    /// The GPU is lost.
    ///
    /// # Safety
    /// `frame` is the address of a frame of the layout, a multiple of 64, that nobody writes until the work is done; `to`
    /// that of [`Counter::octets`] octets, a multiple of 4, which nobody else touches until then.
    pub unsafe fn run(&self, stream: &Stream, frame: u64, to: u64) -> std::result::Result<(), Fault> {
        let behind = to + (self.empty.waveform.len() * size_of::<u32>()) as u64;
        let mut count = Count {
            waveform: to,
            vectorscope: if self.empty.vectorscope.is_empty() { 0 } else { behind },
            ..self.count
        };
        count.frame.frame = frame;
        // SAFETY: promised by the caller.
        unsafe { stream.fill(to, 0, self.octets()) }?;
        // SAFETY: the kernel takes one `Count`; the rest is promised by the caller.
        unsafe { stream.launch(&self.function, [count.columns, 1, 1], BLOCK, &mut [(&raw mut count).cast()]) }
    }

    /// The counts, from octets that were brought to the CPU; what is missing counts as nothing.
    pub fn read(&self, octets: &[u8]) -> Scope {
        let mut scope = self.empty.clone();
        let cells = scope.waveform.iter_mut().chain(&mut scope.vectorscope);
        cells.zip(octets.as_chunks().0).for_each(|(cell, &octets)| *cell = u32::from_le_bytes(octets));
        scope
    }
}

const _: () = assert!(LEVELS == 256, "as in kernels/frame.cu");
