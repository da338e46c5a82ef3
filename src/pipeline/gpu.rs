//! An SDP's video flow into frames of the GPU; and what happens when the GPU is lost.

use super::video::{clock, config, conversion, frame_time, frames as frames_of};
use super::{Deliver, HostPipeline, Pipeline, Progress, Settings};
use crate::depacketise::Depacketiser;
use crate::error::{Error, Kind, Result};
use crate::format::Layout;
use crate::frame::FramePool;
use crate::gpu::Gpu;
use crate::kernel::cuda::{CudaKernel, Options};
use crate::kernel::{Conversion, CpuKernel, Level, Windows};
use crate::mem::{Device, GpuAccess, Host, Slab};
use crate::plan::FEW_OPEN;
use crate::rx::{Receiver, Registered, RxError};
use crate::sdp::Flow;
use crate::worker::{Report, Stepper};
use std::sync::Arc;
use std::time::Duration;

/// Any receiver of the CPU.
type HostReceiver = Box<dyn Receiver<Mem = Host>>;

/// Into frames of the GPU, from a receiver whose ring the GPU reads: any receiver of the CPU through pinned memory, where
/// nothing else is said.
pub type GpuPipeline<R = Registered<HostReceiver>> = Pipeline<R, Device, Windows<CudaKernel, <R as Receiver>::Mem>>;

/// Frames on a GPU, in one piece of memory. A clone has the same frames: streams of one layout may share them, so that
/// together they need fewer. One whose sinks are slow can take them all, which the others count as dropped frames.
#[derive(Clone, Debug)]
pub struct GpuFrames {
    slab: Arc<Slab>,
    pool: FramePool<Device>,
}

impl GpuFrames {
    /// So many frames.
    ///
    /// # Errors
    /// The GPU has no memory for them.
    pub fn new(gpu: &Arc<Gpu>, layout: Layout, count: usize) -> Result<Self> {
        let mut slab = Slab::new(gpu, layout.size, count)?;
        let pool = FramePool::new(layout, slab.regions().into_iter(), |_, region| Ok(region))?;
        Ok(GpuFrames { slab: Arc::new(slab), pool })
    }
    /// The memory that they lie in.
    pub const fn slab(&self) -> &Arc<Slab> {
        &self.slab
    }
    /// The frames.
    pub const fn pool(&self) -> &FramePool<Device> {
        &self.pool
    }
}

/// A pipeline that could not be opened gives its receiver back.
pub struct Refused<R = HostReceiver> {
    /// Why.
    pub error: Error,
    /// As it was.
    pub receiver: R,
}

impl GpuPipeline {
    /// As [`GpuPipeline::over`], from a receiver whose ring is pinned first.
    ///
    /// # Errors
    /// As there, or the ring cannot be pinned.
    pub fn open(
        receiver: HostReceiver,
        flow: &Flow,
        gpu: &Arc<Gpu>,
        settings: &Settings,
        options: Options,
        frames: Option<GpuFrames>,
        deliver: Deliver<Device>,
    ) -> std::result::Result<(Self, GpuFrames), Refused> {
        let receiver = match Registered::new(receiver, gpu) {
            Ok(receiver) => receiver,
            Err((error, receiver)) => return Err(Refused { error, receiver }),
        };
        Self::over(receiver, flow, gpu, settings, options, frames, deliver)
            .map_err(|Refused { error, receiver }| Refused { error, receiver: receiver.into_inner() })
    }
}

impl<R: Receiver> GpuPipeline<R>
where
    R::Mem: GpuAccess,
{
    /// Prepares everything from a receiver to `deliver`. `frames` are those of other streams, to be shared, or none: then
    /// there are as many as the settings say. Gives the frames that it uses.
    ///
    /// # Errors
    /// As of [`HostPipeline::open`]; no memory on the GPU, no kernel for it; shared frames of another layout.
    pub fn over(
        receiver: R,
        flow: &Flow,
        gpu: &Arc<Gpu>,
        settings: &Settings,
        options: Options,
        frames: Option<GpuFrames>,
        deliver: Deliver<Device>,
    ) -> std::result::Result<(Self, GpuFrames), Refused<R>> {
        match prepare(&receiver, flow, gpu, settings, options, frames) {
            Ok((depacketiser, kernel, frames)) => {
                let (policy, clock, pool) = (settings.incomplete, clock(flow), frames.pool.clone());
                let mut pipeline = Pipeline::new(receiver, depacketiser, kernel, pool, policy, clock, deliver);
                if let Some(frame) = frame_time(flow) {
                    pipeline.shed(frame);
                }
                Ok((pipeline, frames))
            }
            Err(error) => Err(Refused { error, receiver }),
        }
    }

    /// The conversion that runs.
    pub fn conversion(&self) -> &Conversion {
        self.assembly.kernel.inner().conversion()
    }
    /// The kernel, for its counters.
    pub fn kernel(&self) -> &CudaKernel {
        self.assembly.kernel.inner()
    }
}

type Prepared<M> = (Depacketiser, Windows<CudaKernel, M>, GpuFrames);

fn prepare<R: Receiver>(
    receiver: &R,
    flow: &Flow,
    gpu: &Arc<Gpu>,
    settings: &Settings,
    options: Options,
    frames: Option<GpuFrames>,
) -> Result<Prepared<R::Mem>>
where
    R::Mem: GpuAccess,
{
    let conversion = conversion(flow, settings)?;
    let config = config(flow, settings.redundancy)?;
    let frames = match frames {
        Some(frames) if **frames.pool.layout() == conversion.layout => frames,
        Some(_) => {
            return Err(Error::new(Kind::Usage, "frames of another layout cannot be shared")
                .cure("share frames among streams of one format and output"));
        }
        None => GpuFrames::new(gpu, conversion.layout.clone(), frames_of(settings, &config))?,
    };
    let kernel = CudaKernel::new(gpu, conversion.clone(), receiver.ring(), options)?;
    let kernel = Windows::new(kernel, &conversion, receiver.ring(), settings.windows);
    Ok((Depacketiser::video(config), kernel, frames))
}

/// A pipeline of the GPU that goes on on the CPU when the GPU is lost: the same receiver, the same sequence; frames that
/// were being filled are dropped and counted.
pub struct Moving {
    state: State,
    plan: Option<Fallback>,
    remark: Option<String>,
}

enum State {
    Gpu(Box<GpuPipeline>),
    Cpu(Box<HostPipeline>),
    /// Only while it changes.
    Ended,
}

/// What the CPU's pipeline needs.
struct Fallback {
    frames: usize,
    level: Option<Level>,
    deliver: Deliver<Host>,
}

impl Moving {
    /// `deliver` gets the frames of the CPU, should it come to that.
    pub fn new(pipeline: GpuPipeline, settings: &Settings, deliver: Deliver<Host>) -> Self {
        let more = pipeline.depacketiser().open_frames() - FEW_OPEN;
        let plan = Fallback { frames: settings.frames + more, level: settings.level, deliver };
        Moving { state: State::Gpu(Box::new(pipeline)), plan: Some(plan), remark: None }
    }

    /// Where the CPU has no memory for frames everything stays as it is, so that it can still be finished and reported.
    fn move_over(&mut self, error: Error) -> std::result::Result<(), RxError> {
        let (State::Gpu(pipeline), Some(plan)) = (&self.state, &self.plan) else {
            return Err(RxError::Failed(error));
        };
        let conversion = pipeline.conversion().clone();
        let pool = FramePool::host(conversion.layout.clone(), plan.frames).map_err(|none| {
            let what = format!("the GPU was lost ({error}), and the CPU cannot go on in its place");
            RxError::Failed(Error::new(none.kind(), what).because(none))
        })?;
        let (State::Gpu(pipeline), Some(Fallback { level, deliver, .. })) =
            (std::mem::replace(&mut self.state, State::Ended), self.plan.take())
        else {
            return Err(RxError::Failed(error));
        };
        let mut parts = pipeline.into_parts().map(Registered::into_inner);
        let comparison = parts.comparison.take();
        let remark = format!("the GPU was lost, the stream goes on on the CPU: {error}");
        tracing::warn!("{remark}");
        let kernel = Windows::off(CpuKernel::new(conversion, level));
        let mut pipeline = Pipeline::resume(parts, kernel, pool, deliver);
        pipeline.go_on_comparing(comparison);
        self.state = State::Cpu(Box::new(pipeline));
        self.remark = Some(remark);
        Ok(())
    }
}

impl Stepper for Moving {
    fn step(&mut self) -> std::result::Result<Progress, RxError> {
        let stepped = match &mut self.state {
            State::Gpu(pipeline) => pipeline.step(),
            State::Cpu(pipeline) => return pipeline.step(),
            State::Ended => return Err(RxError::End),
        };
        match (stepped, &self.state) {
            (Err(RxError::Failed(error)), State::Gpu(pipeline)) if pipeline.is_broken() => {
                self.move_over(error)?;
                Ok(Progress::Busy)
            }
            (stepped, _) => stepped,
        }
    }

    fn finish(&mut self, remarks: &mut Vec<String>) -> Result<()> {
        match &mut self.state {
            State::Gpu(pipeline) => pipeline.finish(remarks),
            State::Cpu(pipeline) => pipeline.finish(remarks),
            State::Ended => Ok(()),
        }
    }

    fn wait(&mut self, at_most: Duration) -> bool {
        match &mut self.state {
            State::Gpu(pipeline) => Stepper::wait(pipeline.as_mut(), at_most),
            State::Cpu(pipeline) => Stepper::wait(pipeline.as_mut(), at_most),
            State::Ended => false,
        }
    }

    fn report(&mut self, into: &mut Report) {
        match &mut self.state {
            State::Gpu(pipeline) => Stepper::report(pipeline.as_mut(), into),
            State::Cpu(pipeline) => Stepper::report(pipeline.as_mut(), into),
            State::Ended => {}
        }
        into.remarks.extend(self.remark.clone());
    }
}
