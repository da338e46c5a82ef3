//! Tries rungs on this machine.

use super::ladder::{Prober, Rung};
use super::picture::{self, Picture};
use super::spec::Codec;
use crate::format::{Output, WireFormat};
use crate::gpu::Gpu;
use crate::sink::gst::formats_of;
use gdmedia_sdp::{Scan, Video};
use std::sync::Arc;

/// For interlaced video.
const WOVEN: &str = "fields are coded woven, as frames: this encoder does not code fields";

/// What a flow is to be encoded with.
pub struct Machine<'a> {
    /// Its pictures.
    pub video: &'a Video,
    /// The same as the wire has them.
    pub wire: &'a WireFormat,
    /// Where frames lie, when they lie on a GPU.
    pub gpu: Option<&'a Arc<Gpu>>,
    /// A GPU may be used though frames do not lie there.
    pub others: bool,
    /// Another layout may not be used.
    pub forced: Option<Output>,
    /// How pictures go to the rung that answered last.
    pub picture: Option<Picture>,
    /// The GPU that it encodes on, where frames come from system memory.
    pub encodes: Option<Arc<Gpu>>,
}

impl Prober for Machine<'_> {
    fn probe(&mut self, rung: Rung) -> Result<(), String> {
        self.picture = None;
        let picture = match (rung, rung.element()) {
            (_, Some(element)) => self.element(element, rung.codec())?,
            (Rung::NvJpeg, _) => self.nvjpeg()?,
            _ => self.nvenc(rung)?,
        };
        self.picture = Some(picture);
        Ok(())
    }
}

impl Machine<'_> {
    fn element(&self, element: &str, codec: Codec) -> Result<Picture, String> {
        let (width, height) = (self.wire.width, self.wire.height);
        let formats = formats_of(element, width, height).map_err(|e| e.in_one_line())?.map_err(|e| e.to_string())?;
        if formats.is_empty() {
            return Err(format!("`{element}` takes no pictures of {width}x{height}"));
        }
        let takes: Vec<&str> = formats.iter().map(String::as_str).collect();
        let mut picture = picture::choose(self.wire, codec, &takes, self.forced)?;
        if self.wire.scan == Scan::Interlaced && element != "x264enc" {
            picture.notes.push(WOVEN.into());
        }
        Ok(picture)
    }

    #[cfg(not(feature = "cuda"))]
    fn nvenc(&mut self, _: Rung) -> Result<Picture, String> {
        Err("this gdmedia was built without CUDA".into())
    }
    #[cfg(not(feature = "cuda"))]
    fn nvjpeg(&self) -> Result<Picture, String> {
        Err("this gdmedia was built without CUDA".into())
    }

    #[cfg(feature = "cuda")]
    fn nvenc(&mut self, rung: Rung) -> Result<Picture, String> {
        use super::nvenc::{Library, Wanted};
        let gpu = match (self.gpu, rung) {
            (Some(gpu), _) => gpu.clone(),
            (None, Rung::NvencHost(_)) if self.others => Gpu::open(0).map_err(|e| e.in_one_line())?,
            (None, Rung::NvencHost(_)) => return Err("no GPU is used".into()),
            (None, _) => return Err("frames do not lie on a GPU".into()),
        };
        let no = |why: String| format!("GPU {}: no NVENC: {why}", gpu.number());
        let library = Library::find().map_err(no)?;
        let names = |ten| if ten { ["P010_10LE"] } else { ["NV12"] };
        let wanted = Wanted::new(self.video, rung.codec());
        let fits = library.probe(&gpu, self.video, &wanted).map_err(no)?;
        let ten = wanted.bits == 10 && fits.ten_bit;
        let mut picture = picture::choose(self.wire, rung.codec(), &names(ten), self.forced)?;
        if let Some(output) = self.forced.filter(|_| picture.convert.is_some()) {
            return Err(format!("NVENC takes the outputs nv12 and p010, not {}", output.word()));
        }
        if picture.convert.is_some() {
            return Err(format!("NVENC takes Y'CbCr of 4:2:0, which {} does not become here", self.video.sampling));
        }
        if picture.crop != (0, 0) {
            return Err(format!("NVENC takes even sizes, not {}x{}", self.wire.width, self.wire.height));
        }
        if self.wire.scan == Scan::Interlaced && !fits.fields {
            picture.notes.push(WOVEN.into());
        }
        self.encodes = Some(gpu);
        Ok(picture)
    }

    #[cfg(feature = "cuda")]
    fn nvjpeg(&self) -> Result<Picture, String> {
        let gpu = self.gpu.ok_or("frames do not lie on a GPU")?;
        if self.forced.is_some_and(|forced| forced != Output::Rgba) {
            return Err("nvJPEG is given the output rgba here".into());
        }
        super::nvjpeg::probe(gpu).map_err(|why| format!("GPU {}: {why}", gpu.number()))?;
        let notes = picture::choose(self.wire, Codec::Mjpeg, &["Y42B"], None)?.notes;
        Ok(Picture { output: Output::Rgba, convert: None, crop: (0, 0), notes })
    }
}
