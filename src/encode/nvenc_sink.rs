//! Frames to NVENC, and what it makes of them to GStreamer.

use super::nvenc::{Coded as Picture, Input, Library, Nvenc, Settings, Wanted};
use super::plan::Plan;
use super::restart::{Encoder, Start};
use super::spec::{Codec, Preset};
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output};
use crate::frame::{Frame, Meta};
use crate::gpu::Gpu;
use crate::mem::{Device, Host};
use crate::sink::gst::{Coded, Coding};
use crate::sink::{Next, Sink};
use gdmedia_sdp::{Scan, Video};
use std::sync::Arc;

impl Coding {
    /// Of a codec.
    pub(super) const fn of(codec: Codec) -> Coding {
        match codec {
            Codec::H264 => Coding::H264,
            Codec::Hevc => Coding::Hevc,
            Codec::Av1 => Coding::Av1,
            Codec::Mjpeg => Coding::Jpeg,
        }
    }
}

/// What comes back with a compressed picture; the frame stays as it is until then.
pub(super) struct Tag {
    meta: Meta,
    _frame: Option<Frame<Device>>,
}

/// An encoder of the GPU in front of a pipeline.
pub(super) struct NvencSink {
    encoder: Nvenc<Tag>,
    coded: Coded,
    out: Vec<Picture<Tag>>,
    gpu: Option<Arc<Gpu>>,
    text: String,
}

impl NvencSink {
    pub fn new(encoder: Nvenc<Tag>, coded: Coded, gpu: Option<Arc<Gpu>>, text: String) -> Self {
        NvencSink { encoder, coded, out: Vec::new(), gpu, text }
    }

    fn bind(&self) -> Result<()> {
        Ok(self.gpu.as_ref().map_or(Ok(()), |gpu| gpu.bind())?)
    }
    fn encode(&mut self, input: Input<'_>, tag: Tag) -> Result<Next> {
        self.encoder.encode(input, tag, &mut self.out)?;
        self.hand_over()
    }
    fn hand_over(&mut self) -> Result<Next> {
        for Picture { octets, key, tag } in self.out.drain(..) {
            match self.coded.push(octets, &tag.meta, key)? {
                Next::More => {}
                closed => return Ok(closed),
            }
        }
        Ok(Next::More)
    }
    fn end(&mut self) -> Result<()> {
        if self.is_lost() {
            return self.coded.finish();
        }
        self.bind()?;
        self.encoder.finish(&mut self.out)?;
        self.hand_over()?;
        self.coded.finish()
    }
    fn is_lost(&self) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.is_lost())
    }
    /// A GPU that is lost takes nothing along that has been encoded.
    fn ended_well<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() && self.is_lost() {
            let _ = self.coded.finish();
        }
        result
    }
    /// The place of a frame in the GPU's memory.
    fn place(address: u64, layout: &Layout) -> Result<Input<'static>> {
        let pitch = pitch(layout).ok_or_else(|| Error::new(Kind::Internal, "planes do not lie as NVENC wants them"))?;
        Ok(Input::Device { address, pitch })
    }
}

/// Octets from row to row, where colour lies right behind luminance, as NVENC wants it.
fn pitch(layout: &Layout) -> Option<u32> {
    let [luminance, colour] = layout.planes.as_slice() else { return None };
    let behind = luminance.offset == 0 && colour.offset == luminance.stride * luminance.rows;
    let fits = matches!(layout.output, Output::Nv12 | Output::P010) && luminance.stride == colour.stride;
    u32::try_from(luminance.stride).ok().filter(|_| behind && fits)
}

impl Sink<Device> for NvencSink {
    fn take(&mut self, frame: &Frame<Device>) -> Result<Next> {
        match self.coded.room()? {
            Next::More => {}
            closed => return Ok(closed),
        }
        let taken = (|| {
            self.bind()?;
            // The encoder looks at no stream.
            if let Some(fence) = frame.fence() {
                fence.wait()?;
            }
            let input = Self::place(frame.start() as u64, frame.layout())?;
            self.encode(input, Tag { meta: frame.meta().clone(), _frame: Some(frame.clone()) })
        })();
        self.ended_well(taken)
    }
    fn idle(&mut self) -> Result<Next> {
        self.coded.idle()
    }
    fn finish(&mut self) -> Result<()> {
        self.end()
    }
    fn describe(&self) -> String {
        self.text.clone()
    }
}

impl Sink<Host> for NvencSink {
    fn take(&mut self, frame: &Frame) -> Result<Next> {
        match self.coded.room()? {
            Next::More => {}
            closed => return Ok(closed),
        }
        self.bind()?;
        let row = |plane: usize, row: usize| frame.row(plane, row);
        self.encode(Input::Host(&row), Tag { meta: frame.meta().clone(), _frame: None })
    }
    fn idle(&mut self) -> Result<Next> {
        self.coded.idle()
    }
    fn finish(&mut self) -> Result<()> {
        self.end()
    }
    fn describe(&self) -> String {
        self.text.clone()
    }
}

impl Plan {
    /// What NVENC is told.
    pub(super) fn settings(&self, video: &Video, layout: &Layout, fields: bool) -> Settings {
        let line = self.line(video, true, &self.target);
        let fps = if line.fps > 0.0 { line.fps } else { 50.0 };
        let bits = self.spec.bits(video.width, video.height, fps);
        let preset = match self.spec.preset {
            Preset::Fastest => 1,
            Preset::Fast => 3,
            Preset::Medium => 4,
            Preset::Slow => 6,
            Preset::Slowest => 7,
        };
        let ten = layout.output == Output::P010;
        let wanted = Wanted { bits: if ten { 10 } else { 8 }, ..Wanted::new(video, self.choice.rung.codec()) };
        let gop = self.spec.key_distance(fps);
        Settings::new(video, wanted, fields, bits, gop, preset, line.low_latency())
    }

    fn nvenc(&self, part: u32, video: &Video, layout: &Layout, live: bool) -> Result<NvencSink> {
        let unavailable = |why: String| Error::new(Kind::Unavailable, why).cure("rung=cpu encodes on the CPU");
        let gpu = self.gpu.clone().ok_or_else(|| unavailable("no GPU for NVENC".into()))?;
        let library = Library::find().map_err(unavailable)?;
        let wanted = Wanted::new(video, self.choice.rung.codec());
        let fields = library.probe(&gpu, video, &wanted).map_err(unavailable)?.fields && video.scan == Scan::Interlaced;
        let encoder = Nvenc::open(*library, gpu.context().cast(), self.settings(video, layout, fields))?;
        let (line, finish) = self.coded(part, video, live);
        let coded = Coded::open(&line, Coding::of(self.choice.rung.codec()), video, layout, live, finish)?;
        Ok(NvencSink::new(encoder, coded, Some(gpu), format!("NVENC ! {line}")))
    }

    pub(super) fn nvenc_from_host(
        &self,
        part: u32,
        video: &Video,
        layout: &Layout,
        live: bool,
    ) -> Result<Box<dyn Sink>> {
        Ok(Box::new(self.nvenc(part, video, layout, live)?))
    }

    /// Starts the encoder for frames of the GPU.
    ///
    /// # Errors
    /// It takes frames of the CPU; or it, its file or its network does not start.
    pub fn open_on_gpu(self, video: &Video, layout: &Layout, live: bool) -> Result<Encoder<Device>> {
        let (watch, text) = (self.watch(), self.describe());
        let (video, layout) = (video.clone(), layout.clone());
        let rung = self.choice.rung;
        let start: Start<Device> = match rung {
            super::Rung::NvencCuda(_) => {
                Box::new(move |part| Ok(Box::new(self.nvenc(part, &video, &layout, live)?) as Box<dyn Sink<Device>>))
            }
            super::Rung::NvJpeg => {
                Box::new(move |part| Ok(Box::new(self.nvjpeg(part, &video, &layout, live)?) as Box<dyn Sink<Device>>))
            }
            _ => return Err(Error::new(Kind::Internal, format!("{} takes frames of the CPU", rung.name()))),
        };
        Encoder::new(start, watch, text)
    }
}

#[cfg(test)]
#[path = "nvenc_sink/tests.rs"]
mod tests;
