//! Frames to nvJPEG, and its pictures to GStreamer.

use super::nvjpeg::NvJpeg;
use super::plan::Plan;
use crate::error::{Error, Kind, Result};
use crate::format::Layout;
use crate::frame::Frame;
use crate::mem::Device;
use crate::sink::gst::{Coded, Coding};
use crate::sink::{Next, Sink};
use gdmedia_sdp::Video;

/// nvJPEG in front of a pipeline.
pub(super) struct NvJpegSink {
    encoder: NvJpeg,
    coded: Coded,
    text: String,
}

impl Sink<Device> for NvJpegSink {
    fn take(&mut self, frame: &Frame<Device>) -> Result<Next> {
        match self.coded.room()? {
            Next::More => {}
            closed => return Ok(closed),
        }
        match self.encoder.encode_frame(frame) {
            Ok(octets) => self.coded.push(octets, frame.meta(), true),
            Err(error) => {
                // A GPU that is lost takes nothing along that has been encoded.
                if self.encoder.is_lost() {
                    let _ = self.coded.finish();
                }
                Err(error)
            }
        }
    }
    fn idle(&mut self) -> Result<Next> {
        self.coded.idle()
    }
    fn finish(&mut self) -> Result<()> {
        self.coded.finish()
    }
    fn describe(&self) -> String {
        self.text.clone()
    }
}

impl Plan {
    pub(super) fn nvjpeg(&self, part: u32, video: &Video, layout: &Layout, live: bool) -> Result<NvJpegSink> {
        let gpu = self.gpu.as_ref().ok_or_else(|| Error::new(Kind::Unavailable, "no GPU for nvJPEG"))?;
        let encoder = NvJpeg::new(gpu, layout, self.spec.quality)?;
        let (line, finish) = self.coded(part, video, live);
        let coded = Coded::open(&line, Coding::Jpeg, video, layout, live, finish)?;
        Ok(NvJpegSink { encoder, coded, text: format!("nvJPEG ! {line}") })
    }
}
