//! Which sinks a run has, what they want, and what became of them.

#[cfg(feature = "cuda")]
mod device;
mod finish;
mod offers;
mod placed;
mod prepare;
mod told;

pub use self::offers::Offers;
pub use self::placed::Kind as SinkKind;
#[cfg(feature = "daemon")]
pub use self::placed::State;
use self::placed::{EndsRun, Placed, Slot, fill};
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
use gdmedia::health::SinkLoad;
use gdmedia::kernel::{Colour, Conversion};
use gdmedia::latency::{Probe, Timed};
use gdmedia::mem::{Host, Space};
use gdmedia::record::Stats;
#[cfg(feature = "cuda")]
use gdmedia::record::Way;
use gdmedia::sdp::{Flow, Video};
use gdmedia::send::pattern;
#[cfg(all(feature = "cuda", any(feature = "gst", feature = "preview")))]
use gdmedia::sink::SinkQueue;
use gdmedia::sink::again::{Again, Start};
#[cfg(feature = "gst")]
use gdmedia::sink::gst::Overlay;
#[cfg(all(feature = "cuda", feature = "gst"))]
use gdmedia::sink::gst::{CudaCounters, CudaFit, Fragment};
use gdmedia::sink::{FileFormat, FileSink, RecordSink, Report, Sink, Snapshot, Verdict, Verify};
use std::path::Path;
#[cfg(feature = "cuda")]
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
#[cfg(feature = "cuda")]
use {gdmedia::mem::Device, gdmedia::sink::DownloadCounters, gdmedia::sink::export};

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
        let again = self.again;
        let (folder, flow, layout) = (folder.to_owned(), flow.clone(), layout.clone());
        let make = move |_| -> Result<Box<dyn Sink>> {
            let sink =
                placed::in_own_folder(again, &folder, |folder| RecordSink::create(folder, &flow, &layout, &options))?;
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
        #[allow(unused_mut, reason = "there are more with a GPU or with GStreamer")]
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
        let all = self.queues.iter().filter_map(Placed::state);
        #[cfg(feature = "cuda")]
        let all = all.chain(self.device.iter().filter_map(Placed::state));
        all.collect()
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

    /// What recordings have to tell since they were asked before.
    pub fn news(&self) -> Vec<String> {
        placed::look(&self.recorded, |stats| stats.take_news()).unwrap_or_default()
    }
}

/// A run that fails early leaves no socket behind: the sink's thread removes it.
#[cfg(feature = "cuda")]
impl Drop for Sinks {
    fn drop(&mut self) {
        self.close_device();
    }
}
