//! The usual pipeline: an SDP's video flow, on the CPU.

use super::{Deliver, Incomplete, Pipeline};
use crate::depacketise::{Config, Depacketiser};
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output, WireFormat};
use crate::frame::FramePool;
use crate::kernel::{Colour, Conversion, CpuKernel, Level, Windows};
use crate::mem::Host;
use crate::merge::Class;
use crate::plan::FEW_OPEN;
use crate::rx::Receiver;
use crate::sdp::{Essence, Flow, MediaClock, Video};
use crate::time;
use std::time::Duration;

/// From any receiver into ordinary memory, on the CPU.
pub type HostPipeline = Pipeline<Box<dyn Receiver<Mem = Host>>, Host, Windows<CpuKernel, Host>>;

/// What may be chosen.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Layout of the frames.
    pub output: Output,
    /// What to do with holes.
    pub incomplete: Incomplete,
    /// Frames that may be in use at once: being filled, kept for concealment, waiting for sinks. Where the legs of a flow lie
    /// so far apart that more than [`FEW_OPEN`] are filled at once, there are as many more.
    pub frames: usize,
    /// How far the legs of a flow may lie apart, where it has more than one.
    pub redundancy: Class,
    /// Best instruction set to use; the best of this CPU when not given.
    pub level: Option<Level>,
    /// May frames be windows of the receiver's ring, where it lends itself to that? Else why those who get them want memory of
    /// the frames' own. See [`Frame::is_window`](crate::frame::Frame::is_window).
    pub windows: std::result::Result<(), &'static str>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            output: Output::Planar,
            incomplete: Incomplete::Conceal,
            frames: 10,
            redundancy: Class::A,
            level: None,
            windows: Err("not asked for"),
        }
    }
}

/// The video of a flow.
///
/// # Errors
/// The flow carries something else, or cannot be received as its SDP describes it.
pub fn video(flow: &Flow) -> Result<&Video> {
    match &flow.essence {
        Essence::Video(video) if flow.usable => Ok(video),
        Essence::Video(_) => Err(Error::new(Kind::Data, "this flow cannot be received as its SDP describes it")
            .cure("gdmedia sdp shows the lines that are wrong, with the cure of each")),
        _ => Err(Error::new(Kind::Data, "this flow is no ST 2110-20 video").cure("choose a video flow")),
    }
}

/// Bits a second beyond which no stream is believed.
const MAX_BITS: u128 = 1_000_000_000_000;

/// The wire format of a video.
///
/// # Errors
/// ST 2110-20 has no such combination, or no network carries it.
pub fn wire(video: &Video) -> Result<WireFormat> {
    let wire = wire_of(video)?;
    let Some(rate) = video.rate else { return Ok(wire) };
    let bits = u128::from(wire.frame_octets()) * 8 * u128::from(rate.num) / u128::from(rate.den).max(1);
    if bits > MAX_BITS {
        let (Video { width, height, .. }, gigabits) = (video, bits / 1_000_000_000);
        let what =
            format!("{width}x{height} at {rate} frames a second, {gigabits} Gb/s, is more than any network carries");
        return Err(Error::new(Kind::Data, what).cure("check exactframerate, width and height in the SDP"));
    }
    Ok(wire)
}

fn wire_of(video: &Video) -> Result<WireFormat> {
    WireFormat::from_video(video).ok_or_else(|| {
        let Video { sampling, depth, width, height, scan, .. } = video;
        if sampling.pgroup(*depth).is_some()
            && (*width > 32767 || *height > 32767 || u64::from(*width) * u64::from(*height) > 1 << 28)
        {
            return Error::new(Kind::Data, format!("a picture of {width}x{height} is too large"))
                .cure("sides reach to 32767 and a frame to 2 GiB; check width and height in the SDP");
        }
        Error::new(Kind::Data, format!("no kernel for {sampling} {depth} bit, {width}x{height} {scan}"))
            .cure("ST 2110-20 defines no such combination; check sampling, depth and the interlace flag in the SDP")
    })
}

/// From one frame to the next, where the SDP says so.
pub fn frame_time(flow: &Flow) -> Option<Duration> {
    let Essence::Video(Video { rate: Some(rate), .. }) = &flow.essence else { return None };
    Some(Duration::from_nanos(time::frame_nanos(*rate))).filter(|time| !time.is_zero())
}

/// How the sender's timestamps relate to TAI, unless they run free.
pub fn clock(flow: &Flow) -> Option<time::MediaClock> {
    match flow.media_clock {
        // Taken modulo 2^32, as timestamps are.
        MediaClock::Direct { offset } => Some(time::MediaClock { rate: flow.clock_rate, offset: offset as u32 }),
        // Not said: believed when the first frames prove it.
        MediaClock::Unknown => Some(time::MediaClock { rate: flow.clock_rate, offset: 0 }),
        MediaClock::Sender | MediaClock::Other { .. } => None,
    }
}

/// The conversion that a flow and the settings ask for.
///
/// # Errors
/// The flow is no video that can be received, or the layout does not exist for it.
pub(super) fn conversion(flow: &Flow, settings: &Settings) -> Result<Conversion> {
    let video = video(flow)?;
    let layout = Layout::new(wire(video)?, settings.output)
        .map_err(|e| Error::new(Kind::Usage, e.to_string()).cure("choose another layout (--output)"))?;
    let colour = Colour { colorimetry: video.colorimetry, tcs: video.tcs, range: video.range };
    Ok(Conversion { layout, colour })
}

/// What the depacketiser of a flow has to know.
///
/// # Errors
/// The flow is no video that can be received, or its legs may lie too far apart.
pub fn config(flow: &Flow, class: Class) -> Result<Config> {
    let video = video(flow)?;
    Config::new(wire(video)?, flow.payload_type, video.rate).with_legs(flow.legs.len().max(1), class)
}

/// How many frames there are to be.
pub(super) fn frames(settings: &Settings, config: &Config) -> usize {
    settings.frames + config.open_frames() - FEW_OPEN
}

impl HostPipeline {
    /// Prepares everything from a receiver that has joined the legs of `flow` to `deliver`.
    ///
    /// # Errors
    /// The flow is no video that can be received, the layout does not exist for it, or there is no memory.
    pub fn open(
        receiver: impl Receiver<Mem = Host> + 'static,
        flow: &Flow,
        settings: &Settings,
        deliver: Deliver<Host>,
    ) -> Result<Self> {
        let conversion = conversion(flow, settings)?;
        let config = config(flow, settings.redundancy)?;
        let pool = FramePool::host(conversion.layout.clone(), frames(settings, &config))?;
        let receiver: Box<dyn Receiver<Mem = Host>> = Box::new(receiver);
        let kernel = CpuKernel::new(conversion.clone(), settings.level);
        let kernel = Windows::new(kernel, &conversion, receiver.ring(), settings.windows);
        let depacketiser = Depacketiser::video(config);
        let mut pipeline =
            Pipeline::new(receiver, depacketiser, kernel, pool, settings.incomplete, clock(flow), deliver);
        if let Some(frame) = frame_time(flow) {
            pipeline.shed(frame);
        }
        Ok(pipeline)
    }

    /// The conversion that runs.
    pub fn conversion(&self) -> &Conversion {
        self.assembly.kernel.inner().conversion()
    }
}
