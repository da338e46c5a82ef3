//! The same on a GPU, and frames back from there.
#![allow(unsafe_code, dead_code)]

use crate::played::{COLOUR, Played, depacketiser, show};
use gdmedia::format::{Layout, Output, WireFormat};
use gdmedia::frame::{Frame, FramePool};
use gdmedia::gpu::{Gpu, check, sys};
use gdmedia::kernel::cuda::Options;
use gdmedia::kernel::{Conversion, CudaKernel, Kernel};
use gdmedia::mem::{Device, GpuAccess, Host, Slab};
use gdmedia::pipeline::{Incomplete, Pipeline};
use gdmedia::ring::SplitRing;
use gdmedia::rx::Receiver;
use gdmedia::sink::{Download, Sink};
use std::sync::{Arc, Mutex};

pub fn gpu() -> Option<Arc<Gpu>> {
    Gpu::open(0).map_err(|error| println!("skipped: no CUDA device: {error}")).ok()
}

/// What was started has been done.
pub fn settle(gpu: &Gpu) {
    gpu.bind().unwrap();
    // SAFETY: no argument; the context is bound.
    check("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() }).unwrap();
}

pub fn on_gpu<R>(gpu: &Arc<Gpu>, receiver: R, wire: WireFormat, output: Output) -> Played<R, CudaKernel, Device>
where
    R: Receiver,
    R::Mem: GpuAccess,
{
    on_gpu_by(gpu, receiver, wire, output, |kernel, _, _| kernel)
}

/// With what becomes of the kernel.
pub fn on_gpu_by<R, K>(
    gpu: &Arc<Gpu>,
    receiver: R,
    wire: WireFormat,
    output: Output,
    by: impl FnOnce(CudaKernel, &Conversion, &SplitRing<R::Mem>) -> K,
) -> Played<R, K, Device>
where
    R: Receiver,
    R::Mem: GpuAccess,
    K: Kernel<R::Mem, Device>,
{
    let conversion = Conversion { layout: Layout::new(wire, output).unwrap(), colour: COLOUR };
    let shown = Arc::new(Mutex::new(Vec::new()));
    let into = shown.clone();
    let keep = Box::new(move |frame: Frame<Host>| into.lock().unwrap().push(show(&frame)));
    let mut download = Download::new(gpu, &conversion.layout, 2, keep).unwrap();
    let deliver = Box::new(move |frame: Frame<Device>, _| {
        download.take(&frame).unwrap();
    });
    let mut slab = Slab::new(gpu, conversion.layout.size, 8).unwrap();
    let pool = FramePool::new(conversion.layout.clone(), slab.regions().into_iter(), |_, region| Ok(region)).unwrap();
    let kernel = CudaKernel::new(gpu, conversion.clone(), receiver.ring(), Options::default()).unwrap();
    let kernel = by(kernel, &conversion, receiver.ring());
    let pipeline = Pipeline::new(receiver, depacketiser(wire), kernel, pool, Incomplete::Show, None, deliver);
    Played { pipeline, shown }
}
