//! Sinks of frames that lie in memory of the GPU.

use super::placed;
use super::placed::{EndsRun, Placed, fill};
use super::{Offers, SinkKind, Sinks};
use crate::cli::play::engine::Run;
use crate::cli::play::{Args, LENT, QUEUE};
use gdmedia::error::Result;
#[cfg(feature = "gst")]
use gdmedia::error::{Error, Kind};
use gdmedia::gpu::Gpu;
use gdmedia::mem::{Device, Slab};
use gdmedia::record::{CufileSink, Way};
use gdmedia::sink::again::{Again, Start};
use gdmedia::sink::export::{self, Export};
#[cfg(feature = "gst")]
use gdmedia::sink::gst::{CudaFit, Fragment};
use gdmedia::sink::{Download, Sink, SinkQueue};
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "daemon")]
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

impl Sinks {
    /// The same for frames of the GPU.
    pub(super) fn add_device_sink(
        &mut self,
        kind: SinkKind,
        target: String,
        ends: EndsRun,
        mut make: Start<Device>,
    ) -> Result<()> {
        let (sink, watch, ends): (Box<dyn Sink<Device>>, _, _) = if self.again {
            let sink = Again::new(make, kind.name())?;
            let watch = sink.watch();
            (Box::new(sink), Some(watch), EndsRun::No)
        } else {
            (make(1)?, None, ends)
        };
        let sink = self.timed(sink);
        self.device.push(Placed { again: watch, ..Placed::new(kind, target, ends, sink)? });
        Ok(())
    }
    /// Frames of the GPU that all sinks together may have in hand.
    pub fn held_by_device(&self, args: &Args) -> usize {
        let download = if self.queues.is_empty() && self.to_record.is_none() { 0 } else { QUEUE + 1 };
        let download = download + if self.to_record.is_none() { 0 } else { QUEUE + 1 + CufileSink::HOLDS };
        let export = if args.export.is_none() { 0 } else { QUEUE + 1 + Export::holds() } + self.held_by_page();
        #[cfg(feature = "gst")]
        let export = export + if self.cuda.is_none() { 0 } else { QUEUE + LENT };
        #[cfg(feature = "gst")]
        let export = export + if self.encode.is_none() { 0 } else { QUEUE + LENT };
        download + export
    }
    /// For the worker of a GPU; the sinks come with [`Sinks::add_device`].
    pub fn device_offers(&self) -> Offers<Device> {
        Offers { queues: Arc::default(), lossless: self.lossless }
    }
    /// The same for another pipeline with the same sinks.
    #[cfg(feature = "daemon")]
    pub fn same_device_offers(&self) -> Offers<Device> {
        let queues = self.device.iter().map(|placed| placed.queue.clone()).collect::<Vec<_>>();
        Offers { queues: Arc::new(OnceLock::from(queues)), lossless: self.lossless }
    }
    /// Frames of the GPU that the sinks that there are may have in hand.
    #[cfg(feature = "daemon")]
    pub fn held_by_same_device(&self) -> usize {
        self.device.len() * (QUEUE + LENT) + self.held_by_page()
    }
    /// A sink knows the memory of its frames, so that it takes no others.
    #[cfg(feature = "daemon")]
    pub fn are_bound(&self) -> bool {
        self.by_cufile || self.device.iter().any(|placed| placed.kind == SinkKind::Export)
    }
    /// A sink takes nothing but frames of the GPU.
    pub fn need_gpu(&self) -> bool {
        #[cfg(feature = "gst")]
        return placed::look(&self.in_gst, |_| ()).is_some() || self.by_cufile;
        #[cfg(not(feature = "gst"))]
        self.by_cufile
    }
    /// Sinks for frames of the GPU: copies for those of the CPU, and the offer to other processes.
    ///
    /// # Errors
    /// No memory or thread; the path of the offer is in use.
    pub fn add_device(
        &mut self,
        run: &Run<'_>,
        gpu: &Arc<Gpu>,
        slab: &Arc<Slab>,
        offers: &Offers<Device>,
    ) -> Result<()> {
        let layout = &run.conversion.layout;
        if let Some(target) = run.args.export.clone() {
            let (exported, slab, video, text) =
                (self.exported.clone(), slab.clone(), run.video.clone(), target.to_string());
            let layout = layout.clone();
            let make = move |_| -> Result<Box<dyn Sink<Device>>> {
                let export = Export::new(&target, slab.clone(), &video, &layout)?;
                let watch: Box<dyn Fn() -> export::Counts + Send> = Box::new(export.watch());
                fill(&exported, Some(watch));
                Ok(Box::new(export))
            };
            self.add_device_sink(SinkKind::Export, text, EndsRun::Yes, Box::new(make))?;
        }
        #[cfg(feature = "gst")]
        if let Some((fragment, fit)) = self.cuda.take() {
            self.used_up = true;
            if let Err(error) = self.add_cuda_fragment(run, gpu, fragment, fit) {
                self.notes.push(format!("GStreamer gets copies over the CPU: {error}"));
                self.add_another(run)?;
            }
        }
        #[cfg(feature = "gst")]
        if let Some(plan) = self.encode.clone() {
            let (video, layout, live) = (run.video.clone(), layout.clone(), !run.args.lossless());
            let make = move |_| -> Result<Box<dyn Sink<Device>>> {
                Ok(Box::new(plan.clone().open_on_gpu(&video, &layout, live)?))
            };
            self.add_device_sink(SinkKind::Encode, run.args.encode_to(), EndsRun::Yes, Box::new(make))?;
        }
        #[cfg(feature = "preview")]
        if let Some(mut page) = self.page.take() {
            let started = page.start(Some(gpu));
            let (post, target) = (page.post(), page.target());
            self.page = Some(page);
            match started {
                Ok(()) => {
                    let post = self.timed(Box::new(post));
                    self.device.push(Placed::new(SinkKind::Preview, target, EndsRun::No, post)?);
                }
                // The run does not do without its GPU for that.
                Err(error) => self.notes.push(format!("no preview of frames on the GPU: {}", error.in_one_line())),
            }
        }
        if let (Some(ends), Some(folder)) = (self.to_record.take(), &run.args.record) {
            match self.add_cufile(run, gpu, slab, folder, ends) {
                Ok(()) => self.by_cufile = true,
                Err(error) if run.args.recording().way == Way::Cufile => return Err(error),
                Err(error) => {
                    self.notes.push(error.in_one_line());
                    self.add_recorder(folder, run.flow, layout, run.args, ends)?;
                }
            }
        }
        if !self.queues.is_empty() {
            let (to, stop) = (self.offers(), run.stop.clone());
            let deliver = Box::new(move |frame| to.offer(frame, || stop.load(Relaxed)));
            let download = Download::new(gpu, layout, 2 + self.held(), deliver)?;
            self.downloaded = Some(download.counters());
            self.device.push(Placed::new(SinkKind::Copies, String::new(), EndsRun::Yes, Box::new(download))?);
        }
        // Last: it takes no copies, but frames of the CPU when the GPU is lost.
        #[cfg(feature = "gst")]
        if let Some(plan) = self.encode.clone().filter(|_| !run.args.needs_gpu()) {
            let spare = plan.open_when_needed(run.video, layout, !run.args.lossless());
            let spare = self.timed(Box::new(spare));
            self.spare = Some(Arc::new(SinkQueue::spawn(spare, QUEUE)?));
        }
        #[cfg(feature = "preview")]
        if let Some(page) = self.page.as_ref().filter(|_| !run.args.needs_gpu()) {
            self.page_spare = Some(Arc::new(SinkQueue::spawn(Box::new(page.post()), QUEUE)?));
        }
        let _ = offers.queues.set(self.device.iter().map(|placed| placed.queue.clone()).collect());
        Ok(())
    }
    /// A recording of frames of the GPU. Where it cannot be begun the CPU has them.
    pub(super) fn add_cufile(
        &mut self,
        run: &Run<'_>,
        gpu: &Arc<Gpu>,
        slab: &Arc<Slab>,
        folder: &Path,
        ends: EndsRun,
    ) -> Result<()> {
        let (gpu, slab, flow, layout) = (gpu.clone(), slab.clone(), run.flow.clone(), run.conversion.layout.clone());
        let (recorded, options) = (self.recorded.clone(), run.args.recording());
        let (folder, target) = (folder.to_owned(), folder.display().to_string());
        let again = self.again;
        let begin = move || {
            placed::in_own_folder(again, &folder, |folder| {
                CufileSink::create(&gpu, slab.clone(), folder, &flow, &layout, &options)
            })
        };
        let mut first = Some(begin()?);
        let make = move |_| -> Result<Box<dyn Sink<Device>>> {
            let sink = match first.take() {
                Some(first) => first,
                None => begin()?,
            };
            fill(&recorded, Some(sink.stats()));
            Ok(Box::new(sink))
        };
        self.add_device_sink(SinkKind::Record, target, ends, Box::new(make))
    }
    /// A fragment that takes frames where the GPU has them.
    #[cfg(feature = "gst")]
    pub(super) fn add_cuda_fragment(
        &mut self,
        run: &Run<'_>,
        gpu: &Arc<Gpu>,
        fragment: Fragment,
        fit: CudaFit,
    ) -> Result<()> {
        let (video, layout, live) = (run.video.clone(), run.conversion.layout.clone(), !run.args.lossless());
        let (gpu, text, counters) = (gpu.clone(), run.args.sink.clone(), self.in_gst.clone());
        let target = text.clone().unwrap_or_else(|| "window".into());
        let mut first = Some(fragment.open_cuda(fit, &video, &layout, live)?);
        let make = move |_| -> Result<Box<dyn Sink<Device>>> {
            let sink = match first.take() {
                Some(first) => first,
                None => {
                    let fragment = match &text {
                        Some(text) => Fragment::parse(text)?,
                        None => Fragment::window(&video)?
                            .ok_or_else(|| Error::new(Kind::Unavailable, "no window, there is no display"))?,
                    };
                    let fit = fragment.cuda(&video, &gpu).map_err(|why| Error::new(Kind::Unavailable, why))?;
                    fragment.open_cuda(fit, &video, &layout, live)?
                }
            };
            fill(&counters, Some(sink.counters()));
            Ok(Box::new(sink))
        };
        self.add_device_sink(SinkKind::Gst, target, EndsRun::Yes, Box::new(make))
    }
}
