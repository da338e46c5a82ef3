//! Streams, events and loaded kernels. Each holds its GPU; none of them is freed while the driver may use it.
#![allow(unsafe_code)]

use super::Gpu;
use super::driver::{Fault, check};
use cudarc::driver::sys::{self, CUresult};
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

/// An order of work on the GPU: one thing after the other, beside other streams.
#[derive(Debug)]
pub struct Stream {
    gpu: Arc<Gpu>,
    raw: sys::CUstream,
}

// SAFETY: a stream belongs to its context, not to a thread.
unsafe impl Send for Stream {}
// SAFETY: the driver orders calls that come from several threads.
unsafe impl Sync for Stream {}

impl Stream {
    /// `urgent`: its work goes before that of others where both wait.
    ///
    /// # Errors
    /// The driver has no more, or the GPU is lost.
    pub fn new(gpu: &Arc<Gpu>, urgent: bool) -> Result<Self, Fault> {
        gpu.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two numbers; the context is bound.
        check("cuCtxGetStreamPriorityRange", unsafe { sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest) })?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let priority = if urgent { greatest } else { least };
        // SAFETY: the context is bound; destroyed by `drop`.
        check("cuStreamCreateWithPriority", unsafe { sys::cuStreamCreateWithPriority(&mut raw, flags, priority) })?;
        Ok(Stream { gpu: gpu.clone(), raw })
    }
    /// Its GPU.
    pub const fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
    /// The driver's handle.
    pub const fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Copies octets between any two addresses that the GPU knows (device, pinned).
    ///
    /// # Errors
    /// The GPU is lost, or an address is none of its.
    ///
    /// # Safety
    /// Both ranges stay valid, and nobody writes to them, until the work is done.
    #[inline]
    pub unsafe fn copy(&self, to: u64, from: u64, octets: usize) -> Result<(), Fault> {
        self.gpu.bind()?;
        // SAFETY: promised by the caller.
        self.gpu.note(check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(to, from, octets, self.raw) }))
    }
    /// Copies `count` rows of `octets` each between planes whose rows lie further apart; an address and the octets from
    /// one row to the next, each.
    ///
    /// # Errors
    /// As for [`Stream::copy`]; rows that overlap.
    ///
    /// # Safety
    /// As for [`Stream::copy`], for all rows.
    #[inline]
    pub unsafe fn copy_rows(
        &self,
        to: (u64, usize),
        from: (u64, usize),
        octets: usize,
        count: usize,
    ) -> Result<(), Fault> {
        self.gpu.bind()?;
        let any = sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: any,
            srcHost: std::ptr::null(),
            srcDevice: from.0,
            srcArray: std::ptr::null_mut(),
            srcPitch: from.1,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: any,
            dstHost: std::ptr::null_mut(),
            dstDevice: to.0,
            dstArray: std::ptr::null_mut(),
            dstPitch: to.1,
            WidthInBytes: octets,
            Height: count,
        };
        // SAFETY: promised by the caller; the driver reads the description before it returns.
        self.gpu.note(check("cuMemcpy2DAsync", unsafe { sys::cuMemcpy2DAsync_v2(&copy, self.raw) }))
    }
    /// Work from now on waits for what has been started in streams that the driver orders with its default one: those
    /// of other libraries, as a rule. Streams of this crate are not among them.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn wait_for_others(&self, event: &Event) -> Result<(), Fault> {
        self.gpu.bind()?;
        // SAFETY: null names the default stream of the context that is bound; the event is of the same.
        self.gpu.note(check("cuEventRecord", unsafe { sys::cuEventRecord(event.raw, std::ptr::null_mut()) }))?;
        self.wait(event)
    }
    /// Sets octets.
    ///
    /// # Errors
    /// As for [`Stream::copy`].
    ///
    /// # Safety
    /// The range stays valid, and nobody else touches it, until the work is done.
    pub unsafe fn fill(&self, at: u64, octet: u8, octets: usize) -> Result<(), Fault> {
        self.gpu.bind()?;
        // SAFETY: promised by the caller.
        self.gpu.note(check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(at, octet, octets, self.raw) }))
    }
    /// Writes a number when all work so far is done: what the CPU can look at without asking the driver.
    ///
    /// # Errors
    /// The GPU is lost, or it cannot write there.
    ///
    /// # Safety
    /// `at` is the address of eight octets of pinned memory, a multiple of 8, that live until the work is done and that
    /// the CPU reads as an atomic.
    #[inline]
    pub unsafe fn write(&self, at: u64, value: u64) -> Result<(), Fault> {
        self.gpu.bind()?;
        // SAFETY: promised by the caller.
        let code = unsafe { sys::cuStreamWriteValue64_v2(self.raw, at, value, 0) };
        self.gpu.note(check("cuStreamWriteValue64", code))
    }
    /// Work from now on waits until the number at `at` is `value` or more; see [`Stream::write`].
    ///
    /// # Errors
    /// The GPU is lost, or it cannot read there.
    ///
    /// # Safety
    /// As for [`Stream::write`].
    pub unsafe fn wait_value(&self, at: u64, value: u64) -> Result<(), Fault> {
        self.gpu.bind()?;
        let least = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: promised by the caller.
        let code = unsafe { sys::cuStreamWaitValue64_v2(self.raw, at, value, least) };
        self.gpu.note(check("cuStreamWaitValue64", code))
    }
    /// Has all its work been done? Also where a fault of work that was started shows.
    ///
    /// # Errors
    /// Some work failed, or the GPU is lost.
    pub fn is_done(&self) -> Result<bool, Fault> {
        self.gpu.bind()?;
        // SAFETY: the stream exists.
        match unsafe { sys::cuStreamQuery(self.raw) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => self.gpu.note(check("cuStreamQuery", code)).map(|()| true),
        }
    }
    /// Starts a kernel.
    ///
    /// # Errors
    /// The GPU is lost, or the kernel cannot be started so.
    ///
    /// # Safety
    /// `parameters` point to values of the types that the kernel takes, and all memory that these name stays valid, and
    /// is touched by nobody else in a way that the kernel does not expect, until the work is done.
    #[inline]
    pub unsafe fn launch(
        &self,
        function: &Function,
        blocks: [u32; 3],
        threads: u32,
        parameters: &mut [*mut c_void],
    ) -> Result<(), Fault> {
        self.gpu.bind()?;
        let [x, y, z] = blocks;
        // SAFETY: promised by the caller; the module is kept by `function`.
        let code = unsafe {
            let none = std::ptr::null_mut();
            sys::cuLaunchKernel(function.raw, x, y, z, threads, 1, 1, 0, self.raw, parameters.as_mut_ptr(), none)
        };
        self.gpu.note(check("cuLaunchKernel", code))
    }
    /// The event happens when all work so far is done.
    ///
    /// # Errors
    /// The GPU is lost.
    #[inline]
    pub fn record(&self, event: &Event) -> Result<(), Fault> {
        self.gpu.bind()?;
        // SAFETY: both exist, in the same context.
        self.gpu.note(check("cuEventRecord", unsafe { sys::cuEventRecord(event.raw, self.raw) }))
    }
    /// Work from now on waits for the event.
    ///
    /// # Errors
    /// The GPU is lost.
    #[inline]
    pub fn wait(&self, event: &Event) -> Result<(), Fault> {
        self.gpu.bind()?;
        // SAFETY: both exist; events may be of another context.
        self.gpu.note(check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) }))
    }
    /// Waits on the CPU until all work is done.
    ///
    /// # Errors
    /// The GPU is lost, or some work failed.
    pub fn synchronize(&self) -> Result<(), Fault> {
        self.gpu.bind()?;
        // SAFETY: the stream exists.
        self.gpu.note(check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) }))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Work in flight names memory whose owner may go next.
        let _ = self.synchronize();
        // SAFETY: made in `new`, and nothing uses it any more.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
    }
}

/// What an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Asked for, and waited for by spinning.
    Order,
    /// Waited for asleep: the CPU is free meanwhile.
    Sleep,
    /// Its time can be compared with another's.
    Time,
    /// Other processes can wait for it.
    Shared,
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    gpu: Arc<Gpu>,
    raw: sys::CUevent,
}

// SAFETY: an event belongs to its context, not to a thread.
unsafe impl Send for Event {}
// SAFETY: the driver orders calls that come from several threads.
unsafe impl Sync for Event {}

impl Event {
    /// An event that has happened.
    ///
    /// # Errors
    /// The GPU is lost.
    pub fn new(gpu: &Arc<Gpu>, kind: EventKind) -> Result<Self, Fault> {
        use sys::CUevent_flags_enum::*;
        gpu.bind()?;
        let flags = match kind {
            EventKind::Order => CU_EVENT_DISABLE_TIMING as u32,
            EventKind::Sleep => CU_EVENT_DISABLE_TIMING as u32 | CU_EVENT_BLOCKING_SYNC as u32,
            EventKind::Time => CU_EVENT_DEFAULT as u32,
            EventKind::Shared => CU_EVENT_DISABLE_TIMING as u32 | CU_EVENT_INTERPROCESS as u32,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is bound; destroyed by `drop`.
        gpu.note(check("cuEventCreate", unsafe { sys::cuEventCreate(&mut raw, flags) }))?;
        Ok(Event { gpu: gpu.clone(), raw })
    }
    /// An event of another process, from its [`Event::handle`].
    ///
    /// # Errors
    /// It is of another GPU or of this process, or it is gone.
    pub fn open(gpu: &Arc<Gpu>, handle: &[u8; 64]) -> Result<Self, Fault> {
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        let handle = sys::CUipcEventHandle { reserved: handle.map(|octet| octet as c_char) };
        // SAFETY: the context is bound; the driver checks the handle; destroyed by `drop`.
        gpu.note(check("cuIpcOpenEventHandle", unsafe { sys::cuIpcOpenEventHandle(&mut raw, handle) }))?;
        Ok(Event { gpu: gpu.clone(), raw })
    }
    /// What other processes open it by; only for [`EventKind::Shared`].
    ///
    /// # Errors
    /// The event is of another kind, or the system shares none.
    pub fn handle(&self) -> Result<[u8; 64], Fault> {
        self.gpu.bind()?;
        let mut handle = sys::CUipcEventHandle { reserved: [0; 64] };
        // SAFETY: the event exists; writes 64 octets.
        check("cuIpcGetEventHandle", unsafe { sys::cuIpcGetEventHandle(&mut handle, self.raw) })?;
        Ok(handle.reserved.map(|octet| octet as u8))
    }
    /// The driver's handle.
    pub const fn raw(&self) -> sys::CUevent {
        self.raw
    }
    /// Has it happened?
    ///
    /// # Errors
    /// The work before it failed, or the GPU is lost.
    #[inline]
    pub fn is_done(&self) -> Result<bool, Fault> {
        self.gpu.bind()?;
        // SAFETY: the event exists.
        match unsafe { sys::cuEventQuery(self.raw) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => self.gpu.note(check("cuEventQuery", code)).map(|()| true),
        }
    }
    /// Waits on the CPU until it happens.
    ///
    /// # Errors
    /// The work before it failed, or the GPU is lost.
    pub fn wait(&self) -> Result<(), Fault> {
        self.gpu.bind()?;
        // SAFETY: the event exists.
        self.gpu.note(check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.raw) }))
    }
    /// Milliseconds since an earlier event; both of [`EventKind::Time`].
    ///
    /// # Errors
    /// One of them has not happened, or has no time.
    pub fn since(&self, earlier: &Event) -> Result<f32, Fault> {
        self.gpu.bind()?;
        let mut ms = 0.0;
        // SAFETY: both exist; writes a number.
        check("cuEventElapsedTime", unsafe { sys::cuEventElapsedTime(&mut ms, earlier.raw, self.raw) })?;
        Ok(ms)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.gpu.bind();
        // SAFETY: made in `new`; the driver keeps it until work that waits for it is done.
        let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
    }
}

/// Code on the GPU.
#[derive(Debug)]
pub struct Module {
    gpu: Arc<Gpu>,
    raw: sys::CUmodule,
}

// SAFETY: a module belongs to its context, not to a thread.
unsafe impl Send for Module {}
// SAFETY: it is read only.
unsafe impl Sync for Module {}

impl Module {
    /// Loads PTX (with its closing zero), a cubin or a fat binary.
    ///
    /// # Errors
    /// The driver is too old for it, or the GPU has no room.
    ///
    /// # Safety
    /// `image` is a whole image that a CUDA compiler made.
    pub unsafe fn load(gpu: &Arc<Gpu>, image: &[u8]) -> Result<Arc<Self>, Fault> {
        gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: promised by the caller; the driver copies it.
        gpu.note(check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut raw, image.as_ptr().cast()) }))?;
        Ok(Arc::new(Module { gpu: gpu.clone(), raw }))
    }
    /// A kernel by its name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn function(self: &Arc<Self>, name: &CStr) -> Result<Function, Fault> {
        self.gpu.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module exists; the name ends with a zero.
        check("cuModuleGetFunction", unsafe { sys::cuModuleGetFunction(&mut raw, self.raw, name.as_ptr()) })?;
        Ok(Function { raw, _module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.gpu.bind();
        // SAFETY: made in `load`; functions of it hold it.
        let _ = unsafe { sys::cuModuleUnload(self.raw) };
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Function {
    raw: sys::CUfunction,
    _module: Arc<Module>,
}

// SAFETY: a function belongs to its module, which it holds.
unsafe impl Send for Function {}
// SAFETY: it is read only.
unsafe impl Sync for Function {}

impl Function {
    /// The driver's handle.
    pub const fn raw(&self) -> sys::CUfunction {
        self.raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_wait_for_events_of_others() {
        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(error) => return println!("skipped: no CUDA device: {error}"),
        };
        let (a, b) = (Stream::new(&gpu, false).unwrap(), Stream::new(&gpu, true).unwrap());
        let [start, end] = [0, 1].map(|_| Event::new(&gpu, EventKind::Time).unwrap());
        a.record(&start).unwrap();
        b.wait(&start).unwrap();
        b.record(&end).unwrap();
        end.wait().unwrap();
        assert!(end.is_done().unwrap() && start.is_done().unwrap());
        assert!(end.since(&start).unwrap() >= 0.0);
        let order = Event::new(&gpu, EventKind::Order).unwrap();
        assert!(order.is_done().unwrap(), "an event that nobody recorded has happened");
    }

    #[test]
    fn rows_go_from_one_pitch_to_another() {
        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(error) => return println!("skipped: no CUDA device: {error}"),
        };
        let stream = Stream::new(&gpu, false).unwrap();
        let mut memory = [0; 3].map(|_| 0u64);
        for address in &mut memory {
            // SAFETY: the context is bound; freed below.
            check("cuMemAllocHost", unsafe { sys::cuMemAllocHost_v2(std::ptr::from_mut(address).cast(), 64) }).unwrap();
            // SAFETY: fresh memory of this length.
            unsafe { (*address as *mut u8).write_bytes(0xEE, 64) };
        }
        let [from, device, to] = memory;
        // SAFETY: as above; nothing runs on the GPU yet.
        let source = unsafe { std::slice::from_raw_parts_mut(from as *mut u8, 64) };
        source[..12].copy_from_slice(&[1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0]);
        let event = Event::new(&gpu, EventKind::Sleep).unwrap();
        stream.wait_for_others(&event).unwrap();
        // SAFETY: all rows lie within 64 octets, and the stream is waited for.
        unsafe {
            stream.copy_rows((device, 16), (from, 4), 3, 3).unwrap();
            stream.copy_rows((to, 5), (device, 16), 3, 3).unwrap();
            stream.synchronize().unwrap();
            let got = std::slice::from_raw_parts(to as *const u8, 64);
            assert_eq!(got[..14], [1, 2, 3, 0xEE, 0xEE, 4, 5, 6, 0xEE, 0xEE, 7, 8, 9, 0xEE]);
            assert!(stream.copy_rows((to, 2), (device, 16), 3, 3).is_err(), "rows longer than their pitch");
            for address in memory {
                check("cuMemFreeHost", sys::cuMemFreeHost(address as *mut _)).unwrap();
            }
        }
    }

    #[test]
    fn code_that_is_none_is_refused() {
        let gpu = match Gpu::open(0) {
            Ok(gpu) => gpu,
            Err(error) => return println!("skipped: no CUDA device: {error}"),
        };
        // SAFETY: PTX as text, with its closing zero.
        assert!(unsafe { Module::load(&gpu, b"no code\0") }.is_err());
    }
}
