//! Which sinks a run has, what they want, and what became of them.

mod placed;
mod prepare;

pub use self::placed::Kind as SinkKind;
use self::placed::{EndsRun, Placed, Slot, fill};
#[cfg(feature = "daemon")]
pub use self::placed::{State, free};
pub use self::prepare::{Prepared, prepare};

use super::engine::Run;
#[cfg(feature = "preview")]
use super::preview::{self, Page};
use super::{Args, LENT, QUEUE};
#[cfg(feature = "gst")]
use gdmedia::encode::{self, Plan};
use gdmedia::error::{Error, Kind, Result};
use gdmedia::format::Layout;
use gdmedia::frame::Frame;
#[cfg(feature = "cuda")]
use gdmedia::gpu::Gpu;
use gdmedia::health::SinkLoad;
use gdmedia::kernel::{Colour, Conversion};
use gdmedia::latency::{Probe, Timed};
use gdmedia::mem::{Host, Space};
use gdmedia::record::Stats;
#[cfg(feature = "cuda")]
use gdmedia::record::{CufileSink, Way};
use gdmedia::sdp::{Flow, Video};
use gdmedia::send::pattern;
use gdmedia::sink::again::{Again, Start};
#[cfg(feature = "gst")]
use gdmedia::sink::gst::Overlay;
#[cfg(all(feature = "cuda", feature = "gst"))]
use gdmedia::sink::gst::{CudaCounters, CudaFit, Fragment};
use gdmedia::sink::{End, FileFormat, FileSink, RecordSink, Report, Sink, SinkQueue, Snapshot, Verdict, Verify};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
#[cfg(feature = "cuda")]
use {
    gdmedia::mem::{Device, Slab},
    gdmedia::sink::export::{self, Export},
    gdmedia::sink::{Download, DownloadCounters},
};

/// A file or a stream that is being finished may take so long.
const FINISH: Duration = Duration::from_secs(10);
/// An encoder looks ahead, and has frames to encode when no more come.
#[cfg(feature = "gst")]
const FINISH_CODED: Duration = Duration::from_secs(25);

/// The sinks of a run.
pub struct Sinks {
    queues: Vec<Placed>,
    /// Those that take frames where the GPU has them.
    #[cfg(feature = "cuda")]
    device: Vec<Placed<Device>>,
    #[cfg(feature = "cuda")]
    downloaded: Option<Arc<DownloadCounters>>,
    /// A fragment that takes frames where the GPU has them; opened when it is known that it will.
    #[cfg(all(feature = "cuda", feature = "gst"))]
    cuda: Option<(Fragment, CudaFit)>,
    /// It has been used up in vain: there is to be another for frames of the CPU.
    #[cfg(all(feature = "cuda", feature = "gst"))]
    used_up: bool,
    #[cfg(all(feature = "cuda", feature = "gst"))]
    in_gst: Slot<Arc<CudaCounters>>,
    #[cfg(feature = "cuda")]
    exported: Slot<Box<dyn Fn() -> export::Counts + Send>>,
    /// An encoder for frames of the GPU; opened when it is known that there are some.
    #[cfg(all(feature = "cuda", feature = "gst"))]
    encode: Option<Plan>,
    /// What takes its place on the CPU when the GPU is lost.
    #[cfg(all(feature = "cuda", feature = "gst"))]
    spare: Option<Arc<SinkQueue>>,
    #[cfg(feature = "gst")]
    encoded: Option<encode::Watch>,
    #[cfg(feature = "gst")]
    overlay: Slot<Overlay>,
    finished: Vec<(String, Report)>,
    recorded: Slot<Arc<Stats>>,
    /// A recording that takes frames where the GPU has them, if it can; opened when there are such.
    #[cfg(feature = "cuda")]
    to_record: Option<EndsRun>,
    /// It does.
    #[cfg(feature = "cuda")]
    by_cufile: bool,
    verdict: Option<Box<dyn Fn() -> Verdict + Send>>,
    lossless: bool,
    /// A sink that ends is started again.
    again: bool,
    /// A sink wants frames in memory of their own.
    keeps: bool,
    /// What a browser shows.
    #[cfg(feature = "preview")]
    page: Option<Page>,
    /// Of frames of the CPU for it, when frames of the GPU end.
    #[cfg(all(feature = "cuda", feature = "preview"))]
    page_spare: Option<Arc<SinkQueue>>,
    /// Why there is no window, and the like.
    pub notes: Vec<String>,
    probe: Probe,
    /// Sinks so far.
    count: u8,
}

/// Opens what the options ask for.
pub fn build(
    args: &Args,
    prepared: Prepared,
    flow: &Flow,
    video: &Video,
    conversion: &Conversion,
    probe: &Probe,
    on_gpu: bool,
) -> Result<Sinks> {
    let Prepared {
        #[cfg(feature = "gst")]
        fragment,
        #[cfg(all(feature = "cuda", feature = "gst"))]
        fit,
        #[cfg(feature = "gst")]
        encode,
        notes,
        ..
    } = prepared;
    let (layout, colour) = (&conversion.layout, conversion.colour);
    let _ = on_gpu;
    let mut sinks = Sinks {
        queues: Vec::new(),
        #[cfg(feature = "cuda")]
        device: Vec::new(),
        #[cfg(feature = "cuda")]
        downloaded: None,
        #[cfg(all(feature = "cuda", feature = "gst"))]
        cuda: None,
        #[cfg(all(feature = "cuda", feature = "gst"))]
        used_up: false,
        #[cfg(all(feature = "cuda", feature = "gst"))]
        in_gst: Slot::default(),
        #[cfg(feature = "cuda")]
        exported: Slot::default(),
        #[cfg(all(feature = "cuda", feature = "gst"))]
        encode: None,
        #[cfg(all(feature = "cuda", feature = "gst"))]
        spare: None,
        #[cfg(feature = "gst")]
        encoded: None,
        #[cfg(feature = "gst")]
        overlay: Slot::default(),
        finished: Vec::new(),
        recorded: Slot::default(),
        #[cfg(feature = "cuda")]
        to_record: None,
        #[cfg(feature = "cuda")]
        by_cufile: false,
        verdict: None,
        #[cfg(feature = "preview")]
        page: None,
        #[cfg(all(feature = "cuda", feature = "preview"))]
        page_spare: None,
        lossless: args.lossless(),
        again: args.again,
        keeps: args.export.is_some(),
        notes,
        probe: probe.clone(),
        count: 0,
    };
    sinks.preview(args, prepared.alone, layout, colour)?;
    #[cfg(all(feature = "cuda", feature = "gst"))]
    let fragment = match (fragment, fit) {
        (Some(fragment), Some(fit)) => {
            sinks.cuda = Some((fragment, fit));
            sinks.keeps = true;
            None
        }
        (fragment, _) => fragment,
    };
    #[cfg(feature = "gst")]
    if let Some(fragment) = fragment {
        sinks.add_fragment(args, video, layout, Some(fragment))?;
    }
    #[cfg(feature = "gst")]
    if let Some(plan) = encode {
        sinks.add_encoder(args, plan, video, layout)?;
    }
    if let Some(path) = args.file() {
        if args.format.is_none() {
            refuse_container(path)?;
        }
        let format = args.format.map_or_else(|| FileFormat::of_path(path), Into::into);
        let (path, video, layout, again) = (path.to_owned(), video.clone(), layout.clone(), args.again);
        let target = path.display().to_string();
        let make = move |_| -> Result<Box<dyn Sink>> {
            // What was written before is somebody's.
            let path = if again { placed::free(&path)? } else { path.clone() };
            Ok(Box::new(FileSink::create(&path, format, &video, &layout)?))
        };
        sinks.add(SinkKind::File, target, EndsRun::Yes, Box::new(make))?;
    }
    if let Some(path) = &args.snapshot {
        // A lone snapshot is what the run is for; with anything else it is a by-product.
        let limited = args.duration.is_some() || args.frames.is_some();
        let others =
            args.out.is_some() || args.sink.is_some() || args.export.is_some() || args.verify || args.preview.is_some();
        let ends = if limited || others { EndsRun::No } else { EndsRun::Yes };
        let snapshot = Snapshot::new(path, args.at, args.every, colour)?;
        sinks.add_once(SinkKind::Snapshot, path.display().to_string(), ends, Box::new(snapshot))?;
    }
    if let Some(folder) = &args.record {
        // Where it is all there is, its end is that of the run; elsewhere the others go on without it.
        let others = args.out.is_some() || args.sink.is_some() || args.export.is_some() || args.preview.is_some();
        let ends = if others { EndsRun::No } else { EndsRun::Yes };
        #[cfg(feature = "cuda")]
        let later = on_gpu && matches!(args.recording().way, Way::Auto | Way::Cufile);
        #[cfg(not(feature = "cuda"))]
        let later = false;
        if later {
            #[cfg(feature = "cuda")]
            {
                sinks.to_record = Some(ends);
                sinks.keeps = true;
            }
        } else {
            sinks.add_recorder(folder, flow, layout, args, ends)?;
        }
    }
    if args.verify {
        let verify = Verify::new(|frame: &Frame| pattern::read_number(frame.layout(), frame.octets()));
        sinks.verdict = Some(Box::new(verify.watch()));
        sinks.add_once(SinkKind::Verify, String::new(), EndsRun::No, Box::new(verify))?;
    }
    Ok(sinks)
}

/// A name that promises a container which is not written.
fn refuse_container(path: &Path) -> Result<()> {
    const CONTAINERS: [&str; 10] = ["mp4", "mov", "mkv", "mxf", "avi", "ts", "webm", "png", "jpg", "pcap"];
    let suffix = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    if !CONTAINERS.contains(&suffix.as_str()) {
        return Ok(());
    }
    Err(Error::new(Kind::Usage, format!("--out writes y4m or raw, and {} says .{suffix}", path.display())).cure(
        "name it .y4m or .raw, or add --encode h264; other containers are made by \
         --sink '… ! matroskamux ! filesink location=…', pictures by --snapshot, captures by --tap",
    ))
}

/// The worker's side: hands every frame to every sink. The sinks may come later.
pub struct Offers<F: Space = Host> {
    queues: Arc<OnceLock<Vec<Arc<SinkQueue<F>>>>>,
    lossless: bool,
}

// By hand, because a derived one would ask spaces to be `Clone`.
impl<F: Space> Clone for Offers<F> {
    fn clone(&self) -> Self {
        Offers { queues: self.queues.clone(), lossless: self.lossless }
    }
}

#[cfg(feature = "daemon")]
impl Offers {
    /// For sinks that come later.
    pub fn later() -> Self {
        Offers { queues: Arc::default(), lossless: false }
    }
    /// Here they are.
    pub fn come(&self, sinks: &Sinks) {
        let _ = self.queues.set(sinks.offers().queues.get().cloned().unwrap_or_default());
    }
}

impl<F: Space> Offers<F> {
    /// Never waits for a sink, except when a capture is read as fast as possible; `stop` ends that wait.
    pub fn offer(&self, frame: Frame<F>, stop: impl Fn() -> bool) {
        for queue in self.queues.get().into_iter().flatten() {
            if self.lossless {
                queue.offer_waiting(frame.clone(), &stop);
            } else {
                queue.offer(frame.clone());
            }
        }
    }
}

impl Sinks {
    /// A sink that is made as often as it is needed.
    fn add(&mut self, kind: SinkKind, target: String, ends: EndsRun, mut make: Start<Host>) -> Result<()> {
        if !self.again {
            let sink = make(1)?;
            return self.add_once(kind, target, ends, sink);
        }
        let sink = Again::new(make, kind.name())?;
        let watch = sink.watch();
        self.add_once(kind, target, EndsRun::No, Box::new(sink))?;
        self.queues.last_mut().into_iter().for_each(|placed| placed.again = Some(watch.clone()));
        Ok(())
    }
    /// A sink that there is once.
    fn add_once(&mut self, kind: SinkKind, target: String, ends: EndsRun, sink: Box<dyn Sink>) -> Result<()> {
        // One that is not running yet does not say so.
        self.keeps |= !sink.takes_windows() || self.again;
        let sink = self.timed(sink);
        let ends = if self.again { EndsRun::No } else { ends };
        self.queues.push(Placed::new(kind, target, ends, sink)?);
        Ok(())
    }
    /// The same for frames of the GPU.
    #[cfg(feature = "cuda")]
    fn add_device_sink(
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

    /// A fragment, or the window; the first one where it was prepared.
    #[cfg(feature = "gst")]
    fn add_fragment(&mut self, args: &Args, video: &Video, layout: &Layout, mut first: Option<Fragment>) -> Result<()> {
        let (text, live, overlay) = (args.sink.clone(), !args.lossless(), self.overlay.clone());
        let target = text.clone().unwrap_or_else(|| "window".into());
        let (video, layout) = (video.clone(), layout.clone());
        let make = move |_| -> Result<Box<dyn Sink>> {
            let fragment = match (first.take(), &text) {
                (Some(first), _) => first,
                (None, Some(text)) => Fragment::parse(text)?,
                (None, None) => Fragment::window(&video)?
                    .ok_or_else(|| Error::new(Kind::Unavailable, "no window, there is no display"))?,
            };
            let sink = fragment.open(&video, &layout, live)?;
            fill(&overlay, sink.overlay());
            Ok(Box::new(sink))
        };
        self.add(SinkKind::Gst, target, EndsRun::Yes, Box::new(make))
    }

    /// An encoder: here where it takes frames of the CPU, else when the GPU is ready.
    #[cfg(feature = "gst")]
    fn add_encoder(&mut self, args: &Args, plan: Plan, video: &Video, layout: &Layout) -> Result<()> {
        self.encoded = Some(plan.watch());
        #[cfg(feature = "cuda")]
        if plan.is_on_gpu() {
            self.keeps = true;
            self.encode = Some(plan);
            return Ok(());
        }
        let (video, layout, live) = (video.clone(), layout.clone(), !args.lossless());
        let make = move |_| -> Result<Box<dyn Sink>> { Ok(Box::new(plan.clone().open(&video, &layout, live)?)) };
        self.add(SinkKind::Encode, args.encode_to(), EndsRun::Yes, Box::new(make))
    }

    /// A recording of frames of the CPU.
    fn add_recorder(&mut self, folder: &Path, flow: &Flow, layout: &Layout, args: &Args, ends: EndsRun) -> Result<()> {
        let (recorded, options, target) = (self.recorded.clone(), args.recording(), folder.display().to_string());
        let (folder, flow, layout) = (folder.to_owned(), flow.clone(), layout.clone());
        let make = move |_| -> Result<Box<dyn Sink>> {
            let sink = RecordSink::create(&folder, &flow, &layout, &options)?;
            fill(&recorded, Some(sink.stats()));
            Ok(Box::new(sink))
        };
        self.add(SinkKind::Record, target, ends, Box::new(make))
    }

    /// The same, measured.
    fn timed<F: Space>(&mut self, sink: Box<dyn Sink<F>>) -> Box<dyn Sink<F>> {
        self.count = self.count.saturating_add(1);
        Box::new(Timed::new(sink, self.count - 1, self.probe.clone()))
    }

    /// Serves the preview where it is asked for, or where nothing else would show that frames come.
    #[cfg(feature = "preview")]
    fn preview(&mut self, args: &Args, alone: bool, layout: &Layout, colour: Colour) -> Result<()> {
        let conversion = Conversion { layout: layout.clone(), colour };
        let page = match (args.preview, alone) {
            _ if args.preview_elsewhere => Page::unserved(args, &conversion),
            (Some(address), _) => Page::open(args, address, &conversion)?,
            (None, true) => {
                let at = |port| Page::open(args, (std::net::Ipv4Addr::LOCALHOST, port).into(), &conversion);
                // Nobody asked for it, so that nothing fails for it.
                match at(preview::PORT).or_else(|_| at(0)) {
                    Ok(page) => page,
                    Err(error) => {
                        self.notes.push(format!("no preview: {}", error.in_one_line()));
                        return Ok(());
                    }
                }
            }
            (None, false) => return Ok(()),
        };
        self.notes.extend(page.warning());
        self.keeps = true;
        self.page = Some(page);
        Ok(())
    }
    #[cfg(not(feature = "preview"))]
    fn preview(&mut self, args: &Args, _: bool, _: &Layout, _: Colour) -> Result<()> {
        match args.preview {
            None => Ok(()),
            Some(_) => Err(Error::new(Kind::Unavailable, "this gdmedia was built without the preview")
                .cure("build it with the feature preview, or use --out, --snapshot or --sink")),
        }
    }
    /// What a browser shows.
    #[cfg(feature = "preview")]
    pub const fn page(&self) -> Option<&Page> {
        self.page.as_ref()
    }
    /// Frames that the preview may hold in one kind of memory.
    fn held_by_page(&self) -> usize {
        #[cfg(feature = "preview")]
        return self.page.as_ref().map_or(0, |page| QUEUE + 1 + page.holds());
        #[cfg(not(feature = "preview"))]
        0
    }

    /// For the worker: also for one that goes on without its GPU.
    pub fn offers(&self) -> Offers {
        let queues = self.queues.iter().map(|placed| placed.queue.clone());
        #[cfg(all(feature = "cuda", feature = "gst"))]
        let queues = queues.chain(self.spare.clone());
        #[cfg(all(feature = "cuda", feature = "preview"))]
        let queues = queues.chain(self.page_spare.clone());
        let queues: Vec<_> = queues.collect();
        Offers { queues: Arc::new(OnceLock::from(queues)), lossless: self.lossless }
    }
    /// Frames of the CPU that all sinks together may have in hand.
    pub fn held(&self) -> usize {
        #[cfg(all(feature = "cuda", feature = "gst"))]
        let spare = usize::from(self.spare.is_some());
        #[cfg(not(all(feature = "cuda", feature = "gst")))]
        let spare = 0;
        (self.queues.len() + spare) * (QUEUE + LENT) + self.held_by_page()
    }
    /// May frames be windows of the ring that they came by?
    ///
    /// # Errors
    /// Not for these sinks.
    pub const fn windows(&self) -> std::result::Result<(), &'static str> {
        if self.keeps { Err("a sink keeps frames, or wants them in one piece") } else { Ok(()) }
    }
    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.describe().next().is_none()
    }
    /// A sink that the run is for has ended by itself.
    pub fn ended(&self) -> bool {
        let host = self.queues.iter().any(Placed::ends_run);
        #[cfg(feature = "cuda")]
        let host = host || self.device.iter().any(Placed::ends_run);
        #[cfg(all(feature = "cuda", feature = "gst"))]
        let host = host || self.spare.as_ref().is_some_and(|queue| queue.ended());
        host
    }
    /// Frames that sinks did not take.
    pub fn dropped(&self) -> u64 {
        let dropped = self.queues.iter().map(Placed::dropped).sum::<u64>()
            + self.finished.iter().map(|(_, report)| report.dropped).sum::<u64>();
        #[cfg(feature = "cuda")]
        let dropped = dropped
            + self.device.iter().map(Placed::dropped).sum::<u64>()
            + self.downloaded.as_ref().map_or(0, |c| c.dropped.load(Relaxed) + c.lost.load(Relaxed));
        #[cfg(all(feature = "cuda", feature = "gst"))]
        let dropped = dropped
            + placed::look(&self.in_gst, |c| c.lost.load(Relaxed)).unwrap_or(0)
            + self.spare.as_ref().map_or(0, |queue| queue.dropped());
        #[cfg(feature = "gst")]
        let dropped = dropped + self.encoded.as_ref().map_or(0, encode::Watch::dropped);
        dropped
    }
    /// What happened to sinks since the last call.
    pub fn events(&self) -> Vec<String> {
        let mut events: Vec<String> = self.queues.iter().flat_map(Placed::events).collect();
        #[cfg(feature = "cuda")]
        events.extend(self.device.iter().flat_map(Placed::events));
        #[cfg(feature = "gst")]
        events.extend(self.encoded.iter().flat_map(encode::Watch::events));
        events
    }
    /// Each of them, as it is; those that only hand on to others left out.
    #[cfg(feature = "daemon")]
    pub fn states(&self) -> Vec<State> {
        let mut all: Vec<State> = self.queues.iter().filter_map(Placed::state).collect();
        #[cfg(feature = "cuda")]
        all.extend(self.device.iter().filter_map(Placed::state));
        all
    }
    /// Words over the window's picture, where they can be shown.
    #[cfg(feature = "gst")]
    pub fn overlay(&self) -> Option<Overlay> {
        placed::look(&self.overlay, Overlay::clone)
    }
    /// What each has done.
    pub fn loads(&self) -> Vec<SinkLoad> {
        fn load<F: Space>(placed: &Placed<F>) -> SinkLoad {
            let queue = &placed.queue;
            // What it is, without how.
            let text = queue.describe();
            let end = [": ", " (", ", "].iter().filter_map(|cut| text.find(cut)).min().unwrap_or(text.len());
            let name = text.get(..end).unwrap_or(text).to_owned();
            SinkLoad { name, taken: queue.taken(), dropped: queue.dropped(), busy: queue.busy() }
        }
        let host = self.queues.iter().map(load);
        #[cfg(feature = "cuda")]
        let host = self.device.iter().map(load).chain(host);
        host.collect()
    }
    /// A line each.
    pub fn describe(&self) -> impl Iterator<Item = &str> {
        let host = self.queues.iter().map(|placed| placed.queue.describe());
        #[cfg(feature = "cuda")]
        let host = self.device.iter().map(|placed| placed.queue.describe()).chain(host);
        host
    }

    /// Frames of the GPU that all sinks together may have in hand.
    #[cfg(feature = "cuda")]
    pub fn held_by_device(&self, args: &Args) -> usize {
        let download = if self.queues.is_empty() && self.to_record.is_none() { 0 } else { QUEUE + 1 };
        let download = download + if self.to_record.is_none() { 0 } else { QUEUE + 1 };
        let export = if args.export.is_none() { 0 } else { QUEUE + 1 + Export::holds() } + self.held_by_page();
        #[cfg(feature = "gst")]
        let export = export + if self.cuda.is_none() { 0 } else { QUEUE + LENT };
        #[cfg(feature = "gst")]
        let export = export + if self.encode.is_none() { 0 } else { QUEUE + LENT };
        download + export
    }

    /// For the worker of a GPU; the sinks come with [`Sinks::add_device`].
    #[cfg(feature = "cuda")]
    pub fn device_offers(&self) -> Offers<Device> {
        Offers { queues: Arc::default(), lossless: self.lossless }
    }
    /// The same for another pipeline with the same sinks.
    #[cfg(all(feature = "cuda", feature = "daemon"))]
    pub fn same_device_offers(&self) -> Offers<Device> {
        let queues = self.device.iter().map(|placed| placed.queue.clone()).collect::<Vec<_>>();
        Offers { queues: Arc::new(OnceLock::from(queues)), lossless: self.lossless }
    }
    /// Frames of the GPU that the sinks that there are may have in hand.
    #[cfg(all(feature = "cuda", feature = "daemon"))]
    pub fn held_by_same_device(&self) -> usize {
        self.device.len() * (QUEUE + LENT) + self.held_by_page()
    }
    /// A sink knows the memory of its frames, so that it takes no others.
    #[cfg(all(feature = "cuda", feature = "daemon"))]
    pub fn are_bound(&self) -> bool {
        self.by_cufile || self.device.iter().any(|placed| placed.kind == SinkKind::Export)
    }

    /// No GPU after all: what was to take its frames takes those of the CPU.
    ///
    /// # Errors
    /// It does not.
    pub fn without_gpu(&mut self, run: &Run<'_>) -> Result<()> {
        #[cfg(feature = "cuda")]
        {
            // What was opened before the GPU refused must have let go of its files.
            self.close_device();
            self.downloaded = None;
            #[cfg(feature = "preview")]
            {
                self.page_spare = None;
            }
            let ends = self.to_record.take().or(std::mem::take(&mut self.by_cufile).then_some(EndsRun::Yes));
            if let (Some(ends), Some(folder)) = (ends, &run.args.record) {
                self.add_recorder(folder, run.flow, &run.conversion.layout, run.args, ends)?;
            }
        }
        #[cfg(all(feature = "cuda", feature = "gst"))]
        {
            self.used_up |= placed::empty(&self.in_gst);
            self.spare = None;
            if let Some(plan) = self.encode.take() {
                let (video, layout) = (run.video, &run.conversion.layout);
                self.add_encoder(run.args, plan.without_gpu(video, layout.output)?, video, layout)?;
            }
            match self.cuda.take() {
                Some((fragment, _)) => {
                    self.add_fragment(run.args, run.video, &run.conversion.layout, Some(fragment))?
                }
                None if self.used_up => self.add_another(run)?,
                None => {}
            }
        }
        #[cfg(feature = "preview")]
        if let Some(mut page) = self.page.take() {
            #[cfg(feature = "cuda")]
            let started = page.start(None);
            #[cfg(not(feature = "cuda"))]
            let started = page.start();
            let (post, target) = (page.post(), page.target());
            self.page = Some(page);
            started?;
            self.add_once(SinkKind::Preview, target, EndsRun::No, Box::new(post))?;
        }
        let _ = run;
        Ok(())
    }

    /// A fragment for frames of the CPU in place of one that is used up.
    #[cfg(all(feature = "cuda", feature = "gst"))]
    fn add_another(&mut self, run: &Run<'_>) -> Result<()> {
        let fragment = match &run.args.sink {
            Some(text) => Some(Fragment::parse(text)?),
            None => Fragment::window(run.video)?,
        };
        if fragment.is_some() {
            self.add_fragment(run.args, run.video, &run.conversion.layout, fragment)?;
        }
        self.used_up = false;
        Ok(())
    }
    /// A sink takes nothing but frames of the GPU.
    #[cfg(feature = "cuda")]
    pub fn need_gpu(&self) -> bool {
        #[cfg(feature = "gst")]
        return placed::look(&self.in_gst, |_| ()).is_some() || self.by_cufile;
        #[cfg(not(feature = "gst"))]
        self.by_cufile
    }
    /// Ends what takes frames of the GPU.
    #[cfg(feature = "cuda")]
    fn close_device(&mut self) {
        for placed in self.device.drain(..) {
            placed.queue.finish(FINISH);
        }
    }

    /// Sinks for frames of the GPU: copies for those of the CPU, and the offer to other processes.
    ///
    /// # Errors
    /// No memory or thread; the path of the offer is in use.
    #[cfg(feature = "cuda")]
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
    #[cfg(feature = "cuda")]
    fn add_cufile(
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
        let mut first = Some(CufileSink::create(&gpu, slab.clone(), &folder, &flow, &layout, &options)?);
        let make = move |_| -> Result<Box<dyn Sink<Device>>> {
            let sink = match first.take() {
                Some(first) => first,
                None => CufileSink::create(&gpu, slab.clone(), &folder, &flow, &layout, &options)?,
            };
            fill(&recorded, Some(sink.stats()));
            Ok(Box::new(sink))
        };
        self.add_device_sink(SinkKind::Record, target, ends, Box::new(make))
    }

    /// A fragment that takes frames where the GPU has them.
    #[cfg(all(feature = "cuda", feature = "gst"))]
    fn add_cuda_fragment(&mut self, run: &Run<'_>, gpu: &Arc<Gpu>, fragment: Fragment, fit: CudaFit) -> Result<()> {
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

    /// How long they have for that.
    fn finish_time(&self) -> Duration {
        #[cfg(feature = "gst")]
        if self.encoded.is_some() {
            return FINISH_CODED;
        }
        FINISH
    }

    /// Lets them finish; the worker must be gone.
    ///
    /// # Errors
    /// The first failure of a sink.
    pub fn finish(&mut self) -> Result<()> {
        let time = self.finish_time();
        // First those that hand on to others.
        #[cfg(feature = "cuda")]
        for Placed { queue, .. } in self.device.drain(..) {
            self.finished.push((queue.describe().to_owned(), queue.finish(time)));
        }
        for Placed { queue, .. } in self.queues.drain(..) {
            self.finished.push((queue.describe().to_owned(), queue.finish(time)));
        }
        #[cfg(all(feature = "cuda", feature = "gst"))]
        if let Some(queue) = self.spare.take() {
            let report = queue.finish(time);
            if report.taken + report.dropped > 0 {
                self.finished.push((queue.describe().to_owned(), report));
            }
        }
        for (_, report) in &mut self.finished {
            if let End::Failed(error) = &mut report.end {
                return Err(std::mem::replace(error, Error::new(Kind::Output, "failed")));
            }
        }
        Ok(())
    }

    /// What recordings have to tell since they were asked before.
    pub fn news(&self) -> Vec<String> {
        placed::look(&self.recorded, |stats| stats.take_news()).unwrap_or_default()
    }

    /// What became of them, for the summary.
    pub fn reports(&self) -> serde_json::Value {
        let one = |(name, report): &(String, Report)| {
            let end = match &report.end {
                End::Finished => "finished".to_owned(),
                End::Closed(why) => why.clone(),
                End::Failed(_) => "failed".to_owned(),
            };
            json!({ "sink": name, "taken": report.taken, "dropped": report.dropped, "torn": report.torn, "end": end })
        };
        #[allow(unused_mut)]
        let mut all: Vec<_> = self.finished.iter().map(one).collect();
        all.extend(placed::look(&self.recorded, |stats| json!({ "recording": recorded(stats) })));
        #[cfg(feature = "cuda")]
        all.extend(placed::look(&self.exported, |counts| json!({ "export": counts() })));
        #[cfg(feature = "cuda")]
        all.extend(self.downloaded.iter().map(|c| {
            json!({ "copies": { "taken": c.taken.load(Relaxed), "dropped": c.dropped.load(Relaxed), "lost": c.lost.load(Relaxed) } })
        }));
        #[cfg(all(feature = "cuda", feature = "gst"))]
        all.extend(placed::look(
            &self.in_gst,
            |c| json!({ "gstreamer": { "copied": c.copied.load(Relaxed), "lost": c.lost.load(Relaxed) } }),
        ));
        #[cfg(feature = "gst")]
        all.extend(
            self.encoded
                .iter()
                .map(|watch| json!({ "encode": { "starts": watch.starts(), "dropped": watch.dropped() } })),
        );
        all.into()
    }
    /// The same for people.
    pub fn texts(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .finished
            .iter()
            .map(|(name, report)| {
                let end = if let End::Closed(why) = &report.end { format!(", {why}") } else { String::new() };
                let torn =
                    if report.torn > 0 { format!(", {} overwritten in the ring", report.torn) } else { String::new() };
                format!("{name}: {} frames taken, {} dropped{torn}{end}", report.taken, report.dropped)
            })
            .collect();
        #[cfg(feature = "cuda")]
        if let Some(counters) = self.downloaded.as_ref().filter(|c| c.dropped.load(Relaxed) + c.lost.load(Relaxed) > 0)
        {
            let (dropped, lost) = (counters.dropped.load(Relaxed), counters.lost.load(Relaxed));
            lines.push(format!("copies from the GPU: {dropped} dropped for want of memory, {lost} lost with the GPU"));
        }
        #[cfg(all(feature = "cuda", feature = "gst"))]
        if let Some(lost) = placed::look(&self.in_gst, |c| c.lost.load(Relaxed)).filter(|lost| *lost > 0) {
            lines.push(format!("GStreamer: {lost} lost with the GPU"));
        }
        #[cfg(feature = "cuda")]
        lines.extend(placed::look(&self.exported, |counts| format!("export: {}", counts())));
        lines.extend(placed::look(&self.recorded, |stats| recorded_text(stats)));
        #[cfg(feature = "gst")]
        if let Some(watch) = self.encoded.as_ref().filter(|watch| watch.starts() > 1 || watch.dropped() > 0) {
            let (starts, dropped) = (watch.starts(), watch.dropped());
            lines.push(format!("encode: started {starts} times, {dropped} frames came while no encoder ran"));
        }
        if let Some(v) = self.verified() {
            lines.push(format!(
                "frame numbers: in order {}, repeated {}, skipped {}, backward {}, unreadable {}",
                v.in_order, v.repeated, v.skipped, v.backward, v.unreadable
            ));
        }
        lines
    }
    /// What `--verify` found.
    pub fn verified(&self) -> Option<Verdict> {
        self.verdict.as_ref().map(|read| read())
    }
}

/// Figures of a recording.
fn recorded(stats: &Stats) -> serde_json::Value {
    json!({
        "frames": stats.frames.load(Relaxed), "octets": stats.octets.load(Relaxed), "segments": stats.segments.load(Relaxed),
        "gaps": stats.gaps.load(Relaxed), "left_out": stats.left_out.load(Relaxed), "disk_ns": stats.latency(),
    })
}

fn recorded_text(stats: &Stats) -> String {
    let [frames, segments, gaps, left_out] =
        [&stats.frames, &stats.segments, &stats.gaps, &stats.left_out].map(|n| n.load(Relaxed));
    let gib = stats.octets.load(Relaxed) as f64 / f64::from(1 << 30);
    let mut text = format!("recording: {frames} frames, {gib:.3} GiB in {segments} segments");
    if gaps > 0 {
        text += &format!(", {gaps} gaps of {left_out} frames");
    }
    if let Some(disk) = stats.latency() {
        let ms = |ns: u64| ns as f64 / 1e6;
        let (p50, p99, max) = (ms(disk.p50), ms(disk.p99), ms(disk.max));
        text += &format!("; the disk took {p50:.3} ms for half of them, {p99:.3} for 99 %, {max:.3} at most");
    }
    text
}

/// A run that fails early leaves no socket behind: the sink's thread removes it.
#[cfg(feature = "cuda")]
impl Drop for Sinks {
    fn drop(&mut self) {
        self.close_device();
    }
}
