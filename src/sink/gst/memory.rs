//! Frames as GStreamer's memory: lent where that is possible, copied where it is not.

use crate::error::{Error, Kind, Result};
use crate::format::Layout;
use crate::frame::Frame;
use gstreamer as gst;
use gstreamer::prelude::*;
use gstreamer_app as gst_app;
use gstreamer_video as gst_video;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// A frame in GStreamer's hands.
pub(super) struct Loan {
    frame: Frame,
    octets: usize,
    lent: Arc<AtomicUsize>,
}

impl Loan {
    pub fn new(frame: &Frame, octets: usize, lent: &Arc<AtomicUsize>) -> Loan {
        lent.fetch_add(1, Relaxed);
        Loan { frame: frame.clone(), octets, lent: lent.clone() }
    }
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        self.frame.octets().get(..self.octets).unwrap_or_default()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lent.fetch_sub(1, Relaxed);
    }
}

/// Where the octets of our frames lie, and where GStreamer would put them.
#[derive(Debug)]
pub(super) struct Placed {
    layout: Layout,
    info: gst_video::VideoInfo,
    /// Both are the same.
    plain: bool,
}

impl Placed {
    pub fn new(layout: &Layout, info: gst_video::VideoInfo) -> Placed {
        let planes = layout.planes.iter();
        let plain = planes.clone().map(|p| p.offset).eq(info.offset().iter().copied())
            && planes.map(|p| p.stride as i32).eq(info.stride().iter().copied());
        // GStreamer rounds odd heights up, which our memory may be too short for.
        let plain = plain && info.size() <= layout.size;
        Placed { layout: layout.clone(), info, plain }
    }
    /// Octets up to the end of the last plane.
    pub fn octets(&self) -> usize {
        let end = self.layout.planes.iter().map(|p| p.offset + p.stride * p.rows).max().unwrap_or(0);
        if self.plain { self.info.size() } else { end }
    }

    /// Says where the planes are, unless GStreamer finds them by itself.
    pub fn describe(&self, buffer: &mut gst::BufferRef) -> Result<()> {
        if self.plain {
            return Ok(());
        }
        let offsets: Vec<usize> = self.layout.planes.iter().map(|p| p.offset).collect();
        let strides: Vec<i32> = self.layout.planes.iter().map(|p| p.stride as i32).collect();
        let flags = fields(&self.info);
        let (format, width, height) = (self.info.format(), self.info.width(), self.info.height());
        gst_video::VideoMeta::add_full(buffer, flags, format, width, height, &offsets, &strides)
            .map_err(|e| Error::new(Kind::Internal, "GStreamer buffer").because(e))?;
        Ok(())
    }

    /// Asks what follows whether it reads that description, when the first buffer is about to go, because only then
    /// the formats are settled; if not, rows are moved to where GStreamer puts them.
    pub fn watch(self: Arc<Self>, appsrc: &gst_app::AppSrc) -> Result<()> {
        if self.plain {
            return Ok(());
        }
        let pad = appsrc.static_pad("src").ok_or_else(|| Error::new(Kind::Internal, "appsrc without a pad"))?;
        let copies = pool(self.info.size())?;
        let understood = OnceLock::new();
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, probe| {
            let Some(gst::PadProbeData::Buffer(buffer)) = &mut probe.data else { return gst::PadProbeReturn::Ok };
            let understood = *understood.get_or_init(|| {
                let mut query = gst::query::Allocation::new(pad.current_caps().as_ref(), false);
                pad.peer_query(&mut query) && query.find_allocation_meta::<gst_video::VideoMeta>().is_some()
            });
            if understood {
                return gst::PadProbeReturn::Ok;
            }
            match self.tight(buffer, &copies) {
                Some(tight) => {
                    *buffer = tight;
                    gst::PadProbeReturn::Ok
                }
                None => gst::PadProbeReturn::Drop,
            }
        });
        Ok(())
    }

    /// The same frame with its rows where GStreamer puts them.
    fn tight(&self, from: &gst::Buffer, copies: &gst::BufferPool) -> Option<gst::Buffer> {
        let mut to = copies.acquire_buffer(None).ok()?;
        {
            let to = to.get_mut()?;
            from.copy_into(to, gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS, ..).ok()?;
            let map = from.map_readable().ok()?;
            let mut out = to.map_writable().ok()?;
            for (index, plane) in self.layout.planes.iter().enumerate() {
                let (offset, stride) = (*self.info.offset().get(index)?, *self.info.stride().get(index)? as usize);
                let octets = plane.row_octets.min(stride);
                for row in 0..plane.rows {
                    let (src, dst) = (plane.offset + row * plane.stride, offset + row * stride);
                    out.get_mut(dst..dst + octets)?.copy_from_slice(map.get(src..src + octets)?);
                    out.get_mut(dst + octets..dst + stride)?.fill(0);
                }
            }
        }
        Some(to)
    }
}

/// Which fields a picture has.
pub(super) fn fields(info: &gst_video::VideoInfo) -> gst_video::VideoFrameFlags {
    if info.is_interlaced() {
        gst_video::VideoFrameFlags::INTERLACED | gst_video::VideoFrameFlags::TFF
    } else {
        gst_video::VideoFrameFlags::empty()
    }
}

/// Memory that GStreamer owns and uses again.
pub(super) fn pool(size: usize) -> Result<gst::BufferPool> {
    let unable = || Error::new(Kind::Unavailable, "GStreamer gives no memory").cure("receive a smaller format");
    let pool = gst::BufferPool::new();
    let mut config = pool.config();
    config.set_params(None, u32::try_from(size).map_err(|_| unable())?, 0, 0);
    pool.set_config(config).map_err(|e| unable().because(e))?;
    pool.set_active(true).map_err(|e| unable().because(e))?;
    Ok(pool)
}
