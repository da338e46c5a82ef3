//! Frames in memory of the GPU: made small and counted there, so that only what is shown crosses the bus.
#![allow(unsafe_code)]

use crate::error::{Error, Kind, Result};
use crate::frame::{Frame, FramePool};
use crate::gpu::{Event, EventKind, Gpu, Stream};
use crate::kernel::Conversion;
use crate::kernel::cuda::{Counter, Scaler};
use crate::mem::{Device, Host, Pinned, Region};
use crate::scale::Picture;
use crate::scope::Scope;
use std::sync::Arc;

/// Looks at frames of one layout on a GPU.
pub struct DeviceEye {
    stream: Stream,
    done: Event,
    /// By their factors; none of outputs that the GPU does not make small.
    scalers: Vec<(u32, Scaler)>,
    /// Made when scopes are first asked for.
    counter: Option<Counter>,
    conversion: Conversion,
    gpu: Arc<Gpu>,
    /// What is made on the GPU, and the same here.
    made: Region<Device>,
    here: Region<Pinned>,
    /// One frame of pinned memory, made when it is first needed.
    whole: Option<FramePool<Host>>,
}

/// What counts may take besides pictures.
const COUNTS: usize = 8 << 20;

impl DeviceEye {
    /// For pictures that are smaller by these factors.
    ///
    /// # Errors
    /// The GPU has no memory or no kernels.
    pub fn new(gpu: &Arc<Gpu>, conversion: &Conversion, factors: [u32; 3]) -> Result<Self> {
        let mut scalers = Vec::new();
        for factor in factors {
            match Scaler::load(gpu, conversion, factor) {
                Ok(scaler) => scalers.push((factor, scaler)),
                // Wire octets and rgb16f come here whole.
                Err(error) if error.kind() == Kind::Usage => break,
                Err(error) => return Err(error),
            }
        }
        let octets = scalers.iter().map(|(_, scaler)| scaler.octets()).max().unwrap_or(0).max(COUNTS);
        Ok(DeviceEye {
            stream: Stream::new(gpu, false)?,
            done: Event::new(gpu, EventKind::Sleep)?,
            scalers,
            counter: None,
            conversion: conversion.clone(),
            made: Region::device(gpu, octets)?,
            here: Region::pinned(gpu, octets)?,
            whole: None,
            gpu: gpu.clone(),
        })
    }

    /// The frame smaller by a factor; none where the GPU does not make it so.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn picture(&mut self, frame: &Frame<Device>, factor: u32) -> Result<Option<Picture>> {
        let Some((_, scaler)) = self.scalers.iter().find(|(f, _)| *f == factor).filter(|_| !frame.is_window()) else {
            return Ok(None);
        };
        self.after(frame)?;
        // SAFETY: a frame of the layout, held until the work has been waited for; `made` has room for every scaler's picture.
        unsafe { scaler.run(&self.stream, frame.start() as u64, self.made.address()) }?;
        let (width, height, octets) = (scaler.width(), scaler.height(), scaler.octets());
        Ok(Some(Picture { width, height, octets: self.bring(octets)?.to_vec() }))
    }

    /// The frame's scopes; none where the GPU does not count them.
    ///
    /// # Errors
    /// The GPU is lost, or has no kernels.
    pub fn scope(&mut self, frame: &Frame<Device>, columns: usize) -> Result<Option<Scope>> {
        if frame.is_window() || self.scalers.is_empty() {
            return Ok(None);
        }
        if self.counter.is_none() {
            self.counter = Some(Counter::load(&self.gpu, &self.conversion, columns)?);
        }
        let Some(counter) = self.counter.as_ref().filter(|counter| counter.octets() <= self.made.len()) else {
            return Ok(None);
        };
        self.after(frame)?;
        // SAFETY: a frame of the layout, held until the work has been waited for; `made` has room, as was just seen.
        unsafe { counter.run(&self.stream, frame.start() as u64, self.made.address()) }?;
        let octets = counter.octets();
        self.bring(octets)?;
        let counter = self.counter.as_ref();
        Ok(counter.map(|counter| counter.read(self.here.as_slice().get(..octets).unwrap_or_default())))
    }

    /// The whole frame, in memory of the CPU.
    ///
    /// # Errors
    /// The GPU is lost, no memory can be pinned, or the last one is still in use.
    pub fn download(&mut self, frame: &Frame<Device>) -> Result<Frame<Host>> {
        let pool = match &self.whole {
            Some(pool) => pool,
            None => {
                let pinned = |size, ()| Ok(Region::pinned(&self.gpu, size)?.into_host());
                let pool = FramePool::new(self.conversion.layout.clone(), std::iter::once(()), pinned)?;
                self.whole.insert(pool)
            }
        };
        let Some(mut copy) = pool.take() else {
            return Err(Error::new(Kind::Internal, "the last frame that was brought from the GPU is still in use"));
        };
        self.after(frame)?;
        copy.meta_mut().clone_from(frame.meta());
        let mut to = copy.region_mut().as_mut_ptr() as u64;
        for (from, octets) in frame.parts().into_iter().filter(|(_, octets)| *octets > 0) {
            // SAFETY: both are frames of the same layout, held until the copy is done; nobody writes to the first, nobody
            // knows the second.
            unsafe { self.stream.copy(to, from as u64, octets) }?;
            to += octets as u64;
        }
        self.stream.record(&self.done)?;
        self.done.wait()?;
        Ok(copy.seal())
    }

    /// Work from now on comes after the frame's own.
    fn after(&self, frame: &Frame<Device>) -> Result<()> {
        match frame.fence() {
            Some(fence) => fence.queue(&self.stream),
            None => Ok(()),
        }
    }
    /// The first octets of what was made.
    fn bring(&mut self, octets: usize) -> Result<&[u8]> {
        let octets = octets.min(self.made.len()).min(self.here.len());
        // SAFETY: both regions hold them, and nobody touches them until the wait is over.
        unsafe { self.stream.copy(self.here.address(), self.made.address(), octets) }?;
        self.stream.record(&self.done)?;
        self.done.wait()?;
        Ok(self.here.as_slice().get(..octets).unwrap_or_default())
    }
}
