//! Frames of the GPU as GStreamer's CUDA memory (`video/x-raw(memory:CUDAMemory)`).
//!
//! GStreamer 1.22 takes no memory of others: a frame is copied once, on the GPU, into a buffer of GStreamer's. From 1.24
//! on frames are lent, at most [`LENT`](super::LENT) at a time, where their planes lie as GStreamer would put them itself.
//! Elements of the fragment share the primary context of the GPU with the kernels that filled the frame.
#![allow(unsafe_code)]

mod library;

use super::feed::Feed;
use super::memory::fields;
use super::{CUDA_MEMORY, Fragment, LENT, caps};
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output};
use crate::frame::Frame;
use crate::gpu::{Event, EventKind, Gpu, Stream, check, sys};
use crate::mem::Device;
use crate::sink::{Next, Sink};
use gdmedia_sdp::Video;
use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_video as gst_video;
use library::{AllocWrapped, CONTEXT, Context, Library, brought, lend};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What every release since 1.22 has memory on the GPU for. Asked for another format, 1.22 ends the process.
const FORMATS: [&str; 13] = [
    "I420",
    "I420_10LE",
    "Y42B",
    "I422_10LE",
    "I422_12LE",
    "Y444",
    "Y444_16LE",
    "GBR",
    "NV12",
    "P010_10LE",
    "UYVY",
    "RGB",
    "RGBA",
];

/// A fragment takes the GPU's frames as they are: what [`Fragment::cuda`] found.
#[derive(Debug)]
pub struct CudaFit {
    gpu: Arc<Gpu>,
    library: &'static Library,
    context: Context,
    outputs: Vec<Output>,
}

impl CudaFit {
    /// Outputs that the fragment takes in CUDA memory, the most faithful first; at least one.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }
    /// The GPU whose frames it takes.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

impl Fragment {
    /// Outputs that the fragment takes in CUDA memory, the most faithful first; asks no GPU.
    ///
    /// # Errors
    /// It takes none; says why, for the start block.
    pub fn cuda_outputs(&self, video: &Video) -> std::result::Result<Vec<Output>, String> {
        let candidates = caps::candidates(video).map_err(|e| e.to_string())?;
        let takes = |info: &gst_video::VideoInfo, memory: &str| {
            in_memory(info, memory).is_some_and(|caps| !self.pad.query_caps(Some(&caps)).is_empty())
        };
        // `filesink` and its like take whatever comes, and would write CUDA memory with the gaps between its rows.
        if candidates.iter().any(|(_, info)| takes(info, "memory:OfNoKindAtAll")) {
            return Err("the fragment takes no CUDA memory: its elements do not look at what they get".into());
        }
        let fits = |(output, info): &(Output, gst_video::VideoInfo)| {
            (FORMATS.contains(&info.name()) && takes(info, CUDA_MEMORY)).then_some(*output)
        };
        let outputs: Vec<Output> = candidates.iter().filter_map(fits).collect();
        if outputs.is_empty() {
            return Err("the fragment takes no CUDA memory of a format that the flow can be brought to".into());
        }
        Ok(outputs)
    }

    /// Can the fragment take frames of `gpu` without a way over the CPU? Its elements get the GPU's primary context; one
    /// that has opened a context of its own (an encoder) is opened again.
    ///
    /// # Errors
    /// It cannot; says why, for the start block. The fragment can be opened for frames of the CPU as before.
    pub fn cuda(&self, video: &Video, gpu: &Arc<Gpu>) -> std::result::Result<CudaFit, String> {
        let outputs = self.cuda_outputs(video)?;
        let library = Library::find()?;
        library.start()?;
        let context = library.context(gpu)?;
        let shared = library.share(&context)?;
        if !self.adopt(&shared) {
            return Err(format!("the fragment does not open with the CUDA context of GPU {}", gpu.number()));
        }
        Ok(CudaFit { gpu: gpu.clone(), library, context, outputs })
    }

    /// Gives the context to its elements; closes and opens them where one has made a context by itself.
    fn adopt(&self, shared: &gst::Context) -> bool {
        let theirs = self.pipeline.context(CONTEXT).and_then(|context| brought(&context));
        let again = theirs.is_some() && theirs != brought(shared);
        if again {
            let _ = self.pipeline.set_state(gst::State::Null);
        }
        // Elements that ask later are answered by the pipeline.
        self.pipeline.set_context(shared);
        !again || self.pipeline.set_state(gst::State::Ready).is_ok()
    }

    /// Starts the pipeline for frames of `layout` on the GPU; else as [`Fragment::open`].
    ///
    /// # Errors
    /// The layout is of none of [`CudaFit::outputs`], the GPU has no room, or the fragment does not start.
    pub fn open_cuda(self, fit: CudaFit, video: &Video, layout: &Layout, live: bool) -> Result<GstCudaSink> {
        let info = caps::info(video, layout)?;
        let CudaFit { gpu, library, context, outputs } = fit;
        let refused = || {
            let words: Vec<_> = outputs.iter().map(|output| output.word()).collect();
            let what = format!("the fragment does not take {} in CUDA memory", info.name());
            Error::new(Kind::Usage, what).cure(format!("choose the output {}", words.join(" or ")))
        };
        let caps = in_memory(&info, CUDA_MEMORY).filter(|_| outputs.contains(&layout.output)).ok_or_else(refused)?;
        let room = |e| {
            Error::new(Kind::Unavailable, "GStreamer gets no GPU memory")
                .because(e)
                .cure("free GPU memory, see nvidia-smi")
        };
        let pool = library.pool(&context, &caps, u32::try_from(info.size()).unwrap_or(u32::MAX)).map_err(room)?;
        let align = gpu.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT)?;
        let placed = library.lender().zip(as_placed(&info, layout, usize::try_from(align).unwrap_or(usize::MAX)));
        let feed = Feed::new(self, video, &caps, live)?.ok_or_else(refused)?;
        feed.play()?;
        let reads = gpu.clone();
        Ok(GstCudaSink {
            feed,
            lender: placed.map(|(lend, info)| Lender {
                lend,
                info,
                finished: Arc::new(move || wait_for_reads(&reads)),
            }),
            pool,
            stream: Stream::new(&gpu, false)?,
            ready: Event::new(&gpu, EventKind::Sleep)?,
            others: Event::new(&gpu, EventKind::Order)?,
            library,
            context,
            lent: Arc::default(),
            counters: Arc::default(),
        })
    }
}

/// Caps of pictures in some kind of memory.
fn in_memory(info: &gst_video::VideoInfo, memory: &str) -> Option<gst::Caps> {
    let mut caps = info.to_caps().ok()?;
    caps.make_mut().set_features_simple(Some(gst::CapsFeatures::new([memory])));
    Some(caps)
}

/// What became of frames; may be read at any time.
#[derive(Debug, Default)]
pub struct CudaCounters {
    /// Copied on the GPU: GStreamer takes no memory of others, or held on to what it was lent.
    pub copied: AtomicU64,
    /// They were on a GPU that was lost.
    pub lost: AtomicU64,
}

/// A running pipeline that frames of the GPU are pushed into.
#[derive(Debug)]
pub struct GstCudaSink {
    // First: elements let go of memory and context before these go.
    feed: Feed,
    lender: Option<Lender>,
    pool: gst::BufferPool,
    stream: Stream,
    ready: Event,
    others: Event,
    library: &'static Library,
    context: Context,
    lent: Arc<AtomicUsize>,
    counters: Arc<CudaCounters>,
}

impl GstCudaSink {
    /// What became of frames.
    pub fn counters(&self) -> Arc<CudaCounters> {
        self.counters.clone()
    }
    /// Frames whose memory GStreamer holds now.
    pub fn lent(&self) -> usize {
        self.lent.load(Relaxed)
    }

    /// The frame in memory that GStreamer knows, finished on the GPU: not all elements look at streams.
    fn buffer(&mut self, frame: &Frame<Device>) -> Result<gst::Buffer> {
        if let Some(fence) = frame.fence() {
            fence.queue(&self.stream)?;
        }
        if let Some(lender) = self.lender.as_ref().filter(|_| self.lent.load(Relaxed) < LENT) {
            self.stream.record(&self.ready)?;
            self.ready.wait()?;
            if let Some(buffer) = lender.buffer(&self.context, frame, &self.lent) {
                return Ok(buffer);
            }
        }
        self.counters.copied.fetch_add(1, Relaxed);
        self.copy(frame)
    }

    fn copy(&self, frame: &Frame<Device>) -> Result<gst::Buffer> {
        let mut buffer = self
            .pool
            .acquire_buffer(None)
            .map_err(|e| Error::new(Kind::Output, "GStreamer gives no GPU memory").because(e))?;
        let unusable = || Error::new(Kind::Internal, "GStreamer's CUDA buffer is not as expected");
        let writable = buffer.get_mut().ok_or_else(unusable)?;
        let (mut offsets, mut strides) = ([0; 4], [0; 4]);
        {
            let meta = writable.meta::<gst_video::VideoMeta>().ok_or_else(unusable)?;
            offsets.iter_mut().zip(meta.offset()).for_each(|(o, v)| *o = *v);
            strides.iter_mut().zip(meta.stride()).for_each(|(s, v)| *s = usize::try_from(*v).unwrap_or(0));
        }
        // The buffer's last picture may still be read.
        self.stream.wait_for_others(&self.others)?;
        let from = frame.start() as u64;
        let copied = self.library.write(writable, |to, size| {
            for rows in planes(frame.layout(), &offsets, &strides, size) {
                let (to, from) = ((to + rows.to as u64, rows.to_next), (from + rows.from as u64, rows.from_next));
                // SAFETY: rows lie inside of both; nobody writes to a finished frame, which is held until the event, and
                // nobody else has the buffer.
                unsafe { self.stream.copy_rows(to, from, rows.octets, rows.count) }?;
            }
            self.stream.record(&self.ready)?;
            self.ready.wait()
        });
        copied.ok_or_else(unusable)??;
        Ok(buffer)
    }
}

impl Sink<Device> for GstCudaSink {
    fn take(&mut self, frame: &Frame<Device>) -> Result<Next> {
        match self.feed.room()? {
            Next::More => {}
            closed => return Ok(closed),
        }
        match self.buffer(frame) {
            Ok(buffer) => self.feed.push(buffer, frame.meta()),
            Err(_) if self.stream.gpu().is_lost() => {
                self.counters.lost.fetch_add(1, Relaxed);
                Ok(Next::More)
            }
            Err(error) => Err(error),
        }
    }

    fn idle(&mut self) -> Result<Next> {
        self.feed.idle()
    }

    fn finish(&mut self) -> Result<()> {
        self.feed.finish()
    }

    fn describe(&self) -> String {
        let how = if self.lender.is_some() { "lent" } else { "copied once, on the GPU" };
        format!("{} ({how})", self.feed.describe())
    }
}

/// One plane's way into GStreamer's memory, in octets from the start of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rows {
    from: usize,
    from_next: usize,
    to: usize,
    to_next: usize,
    octets: usize,
    count: usize,
}

/// Where each plane goes in memory of `size` octets. What has no place there is left out: GStreamer rounds the rows of
/// colour down where we have one more.
fn planes(layout: &Layout, offsets: &[usize; 4], strides: &[usize; 4], size: usize) -> impl Iterator<Item = Rows> {
    let last = layout.planes.len().saturating_sub(1);
    layout.planes.iter().zip(offsets.iter().zip(strides)).enumerate().map(move |(index, (plane, (&to, &stride)))| {
        let end = if index < last { offsets[index + 1].min(size) } else { size };
        let places = end.saturating_sub(to).checked_div(stride).unwrap_or(0);
        Rows {
            from: plane.offset,
            from_next: plane.stride,
            to,
            to_next: stride,
            octets: plane.row_octets.min(stride),
            count: plane.rows.min(places),
        }
    })
}

/// How frames are lent.
struct Lender {
    lend: AllocWrapped,
    info: gst_video::VideoInfo,
    /// Waits until elements have read what they were lent.
    finished: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Lender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lender({:?})", self.info)
    }
}

impl Lender {
    /// The frame's memory in a buffer; none when GStreamer does not take it.
    fn buffer(&self, context: &Context, frame: &Frame<Device>, lent: &Arc<AtomicUsize>) -> Option<gst::Buffer> {
        lent.fetch_add(1, Relaxed);
        let loan = Loan { _frame: frame.clone(), lent: lent.clone(), finished: self.finished.clone() };
        // SAFETY: the function and the context come from the library; `info` is the frame's layout and no longer than
        // it; the loan holds the frame, which is finished and no longer written.
        let memory = unsafe { lend(self.lend, context, &self.info, frame.start() as u64, loan) }?;
        let mut buffer = gst::Buffer::new();
        let writable = buffer.get_mut()?;
        writable.append_memory(memory);
        let info = &self.info;
        let (format, width, height) = (info.format(), info.width(), info.height());
        gst_video::VideoMeta::add_full(writable, fields(info), format, width, height, info.offset(), info.stride())
            .ok()?;
        Some(buffer)
    }
}

/// A frame in GStreamer's hands.
struct Loan {
    _frame: Frame<Device>,
    lent: Arc<AtomicUsize>,
    finished: Arc<dyn Fn() + Send + Sync>,
}

impl Drop for Loan {
    fn drop(&mut self) {
        (self.finished)();
        self.lent.fetch_sub(1, Relaxed);
    }
}

/// Elements may let go of a buffer while work of theirs still reads it. Their streams are ordered with the default one,
/// ours are not, so that reception is not waited for.
fn wait_for_reads(gpu: &Gpu) {
    if gpu.bind().is_ok() {
        // SAFETY: null names the default stream of the context that is bound.
        let _ = gpu.note(check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) }));
    }
}

/// The layout in GStreamer's words, when its planes lie as GStreamer puts them on a GPU: rows of all planes equally far
/// apart, one plane right after the other (encoders know no other), each where textures may begin.
fn as_placed(info: &gst_video::VideoInfo, layout: &Layout, align: usize) -> Option<gst_video::VideoInfo> {
    let first = layout.planes.first()?;
    let last = layout.planes.last()?;
    let height = usize::try_from(info.height()).ok()?;
    let alike = |(index, plane): (usize, &crate::format::Plane)| {
        plane.stride == first.stride
            && plane.offset == index * first.stride * height
            && plane.offset.is_multiple_of(align.max(1))
    };
    let (size, stride) = (last.offset + last.stride * last.rows, i32::try_from(first.stride).ok()?);
    if !layout.planes.iter().enumerate().all(alike) || size > layout.size {
        return None;
    }
    let offsets: Vec<usize> = layout.planes.iter().map(|p| p.offset).collect();
    let strides = vec![stride; offsets.len()];
    gst_video::VideoInfo::builder(info.format(), info.width(), info.height())
        .fps(info.fps())
        .par(info.par())
        .interlace_mode(info.interlace_mode())
        .colorimetry(&info.colorimetry())
        .chroma_site(info.chroma_site())
        .size(size)
        .offset(&offsets)
        .stride(&strides)
        .build()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::WireFormat;
    use crate::frame::FramePool;
    use crate::mem::Region;
    use gdmedia_sdp::{Depth, Ratio, Sampling, Scan};
    use std::ptr::NonNull;

    fn video(sampling: Sampling, depth: Depth, width: u32, height: u32) -> Video {
        Video::new(sampling, depth, width, height, Ratio::new(50, 1))
    }

    fn layout(video: &Video, output: Output) -> Layout {
        Layout::new(WireFormat::from_video(video).unwrap(), output).unwrap()
    }

    #[test]
    fn the_library_has_what_is_needed_or_says_why_not() {
        gst::init().unwrap();
        let library = match Library::find() {
            Ok(library) => library,
            Err(why) => {
                assert!(why.starts_with("GStreamer's CUDA library"), "{why}");
                return println!("skipped: {why}");
            }
        };
        match (library.start(), Gpu::open(0)) {
            (Ok(()), Ok(gpu)) => {
                let context = library.context(&gpu).unwrap();
                assert_eq!(context.raw(), library.context(&gpu).unwrap().raw(), "one context a GPU");
                let shared = library.share(&context).unwrap();
                assert_eq!(shared.context_type(), CONTEXT);
                assert_eq!(brought(&shared).unwrap().as_ptr(), context.raw());
            }
            (Ok(()), Err(error)) => println!("skipped: no CUDA device: {error}"),
            (Err(why), gpu) => {
                assert!(gpu.is_err(), "{why}");
                assert_eq!(why, "GStreamer's CUDA library finds no NVIDIA driver (libcuda.so.1)");
                println!("skipped: no CUDA device: {why}");
            }
        }
    }

    #[test]
    fn planes_go_where_gstreamer_has_room_for_them() {
        // 4:2:2, 10 bit, 50x6: rows of 128 and 64 octets here, of 512 there.
        let l = layout(&video(Sampling::YCbCr422, Depth::D10, 50, 6), Output::Planar);
        let got: Vec<Rows> = planes(&l, &[0, 3072, 6144, 0], &[512; 4], 9216).collect();
        let y = Rows { from: 0, from_next: 128, to: 0, to_next: 512, octets: 100, count: 6 };
        let cb = Rows { from: 768, from_next: 64, to: 3072, to_next: 512, octets: 50, count: 6 };
        assert_eq!(got, [y, cb, Rows { from: 1152, to: 6144, ..cb }]);
        // NV12 of interlaced pictures: 542 rows of colour here, 541 there.
        let interlaced = Video { scan: Scan::Interlaced, ..video(Sampling::YCbCr422, Depth::D10, 1920, 1082) };
        let l = layout(&interlaced, Output::Nv12);
        let got: Vec<Rows> = planes(&l, &[0, 2048 * 1082, 0, 0], &[2048; 4], 2048 * 1623).collect();
        assert_eq!((got[0].count, got[1].count, got[1].octets), (1082, 541, 1920));
        // No room, no rows.
        assert!(planes(&l, &[0; 4], &[0; 4], 100).all(|rows| rows.count == 0));
        assert!(planes(&l, &[0, usize::MAX, 0, 0], &[2048; 4], 4096).all(|rows| rows.count <= 2));
    }

    #[test]
    fn only_planes_as_gstreamer_puts_them_are_lent() {
        gst::init().unwrap();
        let placed = |sampling, depth, width, height, output| {
            let v = video(sampling, depth, width, height);
            let l = layout(&v, output);
            as_placed(&caps::info(&v, &l).unwrap(), &l, 512)
        };
        let nv12 = placed(Sampling::YCbCr422, Depth::D10, 1920, 1080, Output::Nv12).unwrap();
        assert_eq!((nv12.offset(), nv12.stride()), (&[0, 2_073_600][..], &[1920, 1920][..]));
        assert_eq!(nv12.size(), 1920 * 1620);
        let p010 = placed(Sampling::YCbCr422, Depth::D10, 1920, 1080, Output::P010).unwrap();
        assert_eq!((p010.size(), p010.stride()), (3840 * 1620, &[3840, 3840][..]));
        let rgba = placed(Sampling::Rgb, Depth::D10, 1280, 720, Output::Rgba).unwrap();
        assert_eq!((rgba.size(), rgba.offset()), (5120 * 720, &[0][..]));
        // Rows of colour are shorter; no texture begins at 64 * 6.
        assert!(placed(Sampling::YCbCr422, Depth::D10, 1920, 1080, Output::Planar).is_none());
        assert!(placed(Sampling::YCbCr422, Depth::D8, 48, 6, Output::Nv12).is_none());
    }

    /// Takes memory as `gst_cuda_allocator_alloc_wrapped` does, without a GPU.
    unsafe extern "C" fn wrapped(
        allocator: gst::glib::ffi::gpointer,
        context: *mut gst::ffi::GstObject,
        stream: gst::glib::ffi::gpointer,
        info: *const gst_video::ffi::GstVideoInfo,
        address: u64,
        data: gst::glib::ffi::gpointer,
        notify: gst::glib::ffi::GDestroyNotify,
    ) -> *mut gst::ffi::GstMemory {
        assert!(allocator.is_null() && stream.is_null() && !context.is_null());
        // SAFETY: as promised by the caller.
        let size = unsafe { (*info).size };
        // SAFETY: the memory outlives the loan.
        unsafe {
            gst::ffi::gst_memory_new_wrapped(
                gst::ffi::GST_MEMORY_FLAG_READONLY,
                address as *mut _,
                size,
                0,
                size,
                data,
                notify,
            )
        }
    }

    /// Takes none.
    unsafe extern "C" fn refused(
        _: gst::glib::ffi::gpointer,
        _: *mut gst::ffi::GstObject,
        _: gst::glib::ffi::gpointer,
        _: *const gst_video::ffi::GstVideoInfo,
        _: u64,
        _: gst::glib::ffi::gpointer,
        _: gst::glib::ffi::GDestroyNotify,
    ) -> *mut gst::ffi::GstMemory {
        std::ptr::null_mut()
    }

    #[test]
    fn what_is_lent_comes_back_after_the_last_read() {
        gst::init().unwrap();
        let v = video(Sampling::YCbCr422, Depth::D10, 1920, 1080);
        let l = layout(&v, Output::Nv12);
        let info = as_placed(&caps::info(&v, &l).unwrap(), &l, 512).unwrap();
        // Memory of the host in the place of the GPU's: nothing here looks at its octets.
        let pool = FramePool::<Device>::new(l, (0..1).map(|_| ()), |size, ()| {
            let host = Region::host(size)?;
            let start = NonNull::from(host.as_slice()).cast();
            // SAFETY: moved into the region, which nobody else knows.
            Ok(unsafe { Region::from_owner(start, size, Box::new(host)) })
        })
        .unwrap();
        let waits = Arc::new(AtomicUsize::new(0));
        let waited = waits.clone();
        let finished = Arc::new(move || {
            waited.fetch_add(1, Relaxed);
        });
        let mut lender = Lender { lend: wrapped, info, finished };
        let (context, lent) = (Context::stand_in(gst::Pipeline::new().upcast()), Arc::default());
        let frame = pool.take().unwrap().seal();
        let buffer = lender.buffer(&context, &frame, &lent).unwrap();
        assert_eq!(buffer.map_readable().unwrap().as_ptr(), frame.start());
        assert_eq!(buffer.meta::<gst_video::VideoMeta>().unwrap().offset(), [0, 2_073_600]);
        drop(frame);
        assert!(pool.take().is_none() && lent.load(Relaxed) == 1 && waits.load(Relaxed) == 0);
        let second = buffer.copy();
        drop(buffer);
        assert!(pool.take().is_none(), "a second buffer of the same memory");
        drop(second);
        assert_eq!((lent.load(Relaxed), waits.load(Relaxed)), (0, 1));
        let frame = pool.take().unwrap().seal();
        // What GStreamer refuses is not lost.
        lender.lend = refused;
        assert!(lender.buffer(&context, &frame, &lent).is_none());
        assert_eq!(lent.load(Relaxed), 0);
        drop(frame);
        assert!(pool.take().is_some());
    }

    /// An element that wants a CUDA context when it opens, as encoders do, and makes one when it gets none.
    mod wanting {
        use gstreamer as gst;
        use gstreamer::glib;
        use gstreamer::prelude::*;
        use gstreamer::subclass::prelude::*;
        use std::sync::{LazyLock, Mutex};

        #[derive(Default)]
        pub struct Wanting {
            pub has: Mutex<Option<gst::Context>>,
        }

        #[glib::object_subclass]
        impl ObjectSubclass for Wanting {
            const NAME: &'static str = "GdmediaWanting";
            type Type = Element;
            type ParentType = gst::Element;
        }

        glib::wrapper! {
            pub struct Element(ObjectSubclass<Wanting>) @extends gst::Element, gst::Object;
        }

        impl ObjectImpl for Wanting {
            fn constructed(&self) {
                self.parent_constructed();
                let obj = self.obj();
                obj.add_pad(&gst::Pad::from_template(&obj.pad_template("sink").unwrap())).unwrap();
                obj.set_element_flags(gst::ElementFlags::SINK);
            }
        }

        impl GstObjectImpl for Wanting {}

        impl ElementImpl for Wanting {
            fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
                static DATA: LazyLock<gst::subclass::ElementMetadata> =
                    LazyLock::new(|| gst::subclass::ElementMetadata::new("Wanting", "Sink", "For tests", "gdmedia"));
                Some(&DATA)
            }
            fn pad_templates() -> &'static [gst::PadTemplate] {
                static PADS: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
                    let caps = gst::Caps::new_any();
                    let presence = gst::PadPresence::Always;
                    vec![gst::PadTemplate::new("sink", gst::PadDirection::Sink, presence, &caps).unwrap()]
                });
                &PADS
            }
            fn set_context(&self, context: &gst::Context) {
                // One that it has is not replaced.
                self.has.lock().unwrap().get_or_insert_with(|| context.clone());
                self.parent_set_context(context);
            }
            fn change_state(
                &self,
                transition: gst::StateChange,
            ) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
                let none = || self.has.lock().unwrap().is_none();
                let obj = self.obj();
                if transition == gst::StateChange::NullToReady && none() {
                    let message = gst::message::NeedContext::builder(super::CONTEXT).src(&*obj).build();
                    let _ = obj.post_message(message);
                    if none() {
                        let own = super::sharing(&gst::Bus::new().upcast());
                        obj.set_context(&own);
                        let _ = obj.post_message(gst::message::HaveContext::builder(own).src(&*obj).build());
                    }
                }
                let done = self.parent_change_state(transition);
                if transition == gst::StateChange::ReadyToNull {
                    *self.has.lock().unwrap() = None;
                }
                done
            }
        }
    }

    /// A context that elements share.
    fn sharing(object: &gst::Object) -> gst::Context {
        let mut context = gst::Context::new(CONTEXT, true);
        context.get_mut().unwrap().structure_mut().set(CONTEXT, object);
        context
    }

    #[test]
    fn elements_that_made_a_context_by_themselves_get_ours() {
        gst::init().unwrap();
        gst::Element::register(None, "gdmediawanting", gst::Rank::NONE, wanting::Element::static_type()).unwrap();
        let fragment = Fragment::parse("queue ! gdmediawanting name=it").unwrap();
        let element = fragment.pipeline.by_name("it").unwrap().downcast::<wanting::Element>().unwrap();
        let has = || gst::subclass::prelude::ObjectSubclassIsExt::imp(&element).has.lock().unwrap().clone();
        let own = has().and_then(|context| brought(&context)).expect("a context of its own");
        let ours: gst::Object = gst::Bus::new().upcast();
        assert!(fragment.adopt(&sharing(&ours)));
        assert_eq!(has().and_then(|context| brought(&context)), Some(ours.clone()));
        assert_ne!(own, ours);
        // It stays so, and is kept when the element opens again.
        assert!(fragment.adopt(&sharing(&ours)));
        fragment.pipeline.set_state(gst::State::Null).unwrap();
        assert!(has().is_none());
        fragment.pipeline.set_state(gst::State::Ready).unwrap();
        assert_eq!(has().and_then(|context| brought(&context)), Some(ours));
        // One that asks nobody is not closed.
        let fragment = Fragment::parse("fakesink").unwrap();
        assert!(fragment.adopt(&sharing(&gst::Bus::new().upcast())));
    }
}
