//! What will encode, and its start.

use super::ladder::{self, Choice, Rung};
use super::line::{Line, media_lines};
use super::picture::Picture;
use super::probe::Machine;
use super::restart::{Encoder, Start, Watch};
use super::spec::{Codec, Spec, Wrong};
use super::target::Target;
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output, WireFormat};
use crate::gpu::Gpu;
use crate::mem::Host;
use crate::sink::gst::{Fragment, require};
use gdmedia_sdp::Video;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Frames that an encoder has seen and not given back yet may take so long at the end.
const FINISH: Duration = Duration::from_secs(20);
/// Names that are tried for a further file.
const PLACES: u32 = 1000;
/// Width and height are counted in 8 pixels, by an octet (RFC 2435, 3.1.5 and 3.1.6).
const RTP_JPEG: u32 = 2040;

/// An encoder that was tried, and how frames go there.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) spec: Spec,
    pub(super) target: Target,
    pub(super) choice: Choice,
    pub(super) picture: Picture,
    pub(super) watch: Watch,
    /// Frames lie there, or are brought there to be encoded.
    pub(super) gpu: Option<Arc<Gpu>>,
}

impl From<Wrong> for Error {
    fn from(wrong: Wrong) -> Error {
        Error::new(Kind::Usage, wrong.what).cure(wrong.cure)
    }
}

impl Plan {
    /// Tries the encoders for a flow. `gpu` has the frames, if there is one; `others`: a GPU may encode what it has not;
    /// `forced`: no other output may be used.
    ///
    /// # Errors
    /// Codec and container do not fit ([`Kind::Usage`]); no encoder, or no muxer, is there ([`Kind::Unavailable`]).
    pub fn new(
        spec: &Spec,
        target: &Target,
        video: &Video,
        gpu: Option<&Arc<Gpu>>,
        others: bool,
        forced: Option<Output>,
    ) -> Result<Plan> {
        target.takes(spec.codec)?;
        let jpeg_by_rtp = spec.codec == Codec::Mjpeg && matches!(target, Target::Rtp { .. });
        if jpeg_by_rtp && (video.width > RTP_JPEG || video.height > RTP_JPEG) {
            let what =
                format!("RTP carries JPEG pictures up to {RTP_JPEG}x{RTP_JPEG}, not {}x{}", video.width, video.height);
            return Err(Error::new(Kind::Usage, what).cure("choose h264 or hevc, or write to .mkv"));
        }
        let wire = WireFormat::from_video(video)
            .ok_or_else(|| Error::new(Kind::Data, "a picture that ST 2110-20 does not have").cure("check the SDP"))?;
        let mut machine = Machine { video, wire: &wire, gpu, others, forced, picture: None, encodes: None };
        let choice = ladder::choose(spec, target, &mut machine)?;
        let picture =
            machine.picture.take().ok_or_else(|| Error::new(Kind::Internal, "an encoder without pictures"))?;
        let gpu = machine.encodes.take().or(gpu.cloned());
        let plan = Plan { spec: spec.clone(), target: target.clone(), choice, picture, watch: Watch::default(), gpu };
        require(&plan.line(video, true, target).elements())?;
        Ok(plan)
    }

    /// What the pipeline has to unpack to.
    pub const fn output(&self) -> Output {
        self.picture.output
    }
    /// Who encodes.
    pub const fn rung(&self) -> Rung {
        self.choice.rung
    }
    /// Frames are taken where the GPU has them.
    pub const fn is_on_gpu(&self) -> bool {
        self.choice.rung.is_on_gpu()
    }
    /// What the encoder does, readable from elsewhere.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// The same with frames of the CPU, when there is no GPU after all or no longer. The layout stays, as do the numbers of
    /// parts.
    ///
    /// # Errors
    /// As of [`Plan::new`].
    pub fn without_gpu(&self, video: &Video, output: Output) -> Result<Plan> {
        let mut plan = Plan::new(&self.spec, &self.target, video, None, false, Some(output))?;
        plan.watch = self.watch.clone();
        Ok(plan)
    }

    /// A line for the start block: who encodes to where, who does not and why, what is lost.
    pub fn describe(&self) -> String {
        let Plan { spec, target, choice, picture, .. } = self;
        let codec = choice.rung.codec();
        let mut text = format!("encode: {codec} by {} to {target}", choice.rung.name());
        if codec != spec.codec {
            text += &format!(" in place of {}", spec.codec);
        }
        for line in ladder::lines(&choice.refused) {
            text += "; ";
            text += &line;
        }
        for note in &picture.notes {
            text += "; ";
            text += note;
        }
        if let Target::Rtp { host, port } = target {
            text += &format!("; SDP: {}", media_lines(codec, host, *port));
        }
        text
    }

    pub(super) fn line<'a>(&'a self, video: &Video, live: bool, target: &'a Target) -> Line<'a> {
        Line {
            spec: &self.spec,
            target,
            rung: self.choice.rung,
            picture: &self.picture,
            size: (video.width, video.height),
            fps: video.rate.map_or(0.0, |rate| rate.as_f64()),
            live,
        }
    }

    /// Starts the encoder for frames of the CPU.
    ///
    /// # Errors
    /// It takes frames of the GPU; or it, its file or its network does not start.
    pub fn open(self, video: &Video, layout: &Layout, live: bool) -> Result<Encoder<Host>> {
        let (watch, text) = (self.watch(), self.describe());
        let (video, layout) = (video.clone(), layout.clone());
        Encoder::new(self.starts(video, layout, live)?, watch, text)
    }

    /// The same, but not before the first frame comes: for when the GPU is lost. It is chosen then, too.
    pub fn open_when_needed(self, video: &Video, layout: &Layout, live: bool) -> Encoder<Host> {
        let watch = self.watch();
        let (video, layout) = (video.clone(), layout.clone());
        let mut starts: Option<Start<Host>> = None;
        let start: Start<Host> = Box::new(move |part| {
            if starts.is_none() {
                let plan = self.without_gpu(&video, layout.output)?;
                self.watch.say(plan.describe());
                starts = Some(plan.starts(video.clone(), layout.clone(), live)?);
            }
            match &mut starts {
                Some(start) => start(part),
                None => Err(Error::new(Kind::Internal, "no encoder")),
            }
        });
        Encoder::waiting(start, watch, "encode: on the CPU, when the GPU is lost".into())
    }

    /// What starts an encoder for frames of the CPU, each to its own part.
    fn starts(self, video: Video, layout: Layout, live: bool) -> Result<Start<Host>> {
        match self.choice.rung {
            #[cfg(feature = "cuda")]
            Rung::NvencHost(_) => Ok(Box::new(move |part| self.nvenc_from_host(part, &video, &layout, live))),
            rung if rung.element().is_some() => Ok(Box::new(move |part| {
                let target = self.place(part);
                let text = self.line(&video, live, &target).from_pictures();
                let fragment = Fragment::parse(&text)?.finish_within(FINISH);
                Ok(Box::new(fragment.open(&video, &layout, live)?))
            })),
            rung => Err(Error::new(Kind::Internal, format!("{} does not take frames of the CPU", rung.name()))),
        }
    }

    /// One that nobody has tried.
    #[cfg(all(test, feature = "cuda"))]
    pub(super) fn of_rung(spec: Spec, target: Target, rung: Rung, output: Output) -> Plan {
        let choice = Choice { rung, refused: Vec::new() };
        let picture = Picture { output, convert: None, crop: (0, 0), notes: Vec::new() };
        Plan { spec, target, choice, picture, watch: Watch::default(), gpu: None }
    }

    /// The fragment for what is encoded here, of the `part`th start; and how long it has for its end.
    #[cfg(feature = "cuda")]
    pub(super) fn coded(&self, part: u32, video: &Video, live: bool) -> (String, Duration) {
        let target = self.place(part);
        (self.line(video, live, &target).from_coded(), FINISH)
    }

    /// Where the `part`th start writes: the first one where it was told to, further ones over no file that is there.
    fn place(&self, part: u32) -> Target {
        let free = |target: &Target| part < 2 || !target.path().is_some_and(Path::exists);
        (part..part.saturating_add(PLACES))
            .map(|part| self.target.part(part))
            .find(free)
            .unwrap_or(self.target.part(part))
    }
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;
    use crate::frame::{FramePool, Meta};
    use crate::sink::{Next, Sink};
    use crate::time::Tai;
    use gdmedia_sdp::{Depth, Ratio, Sampling};

    fn video() -> Video {
        Video::new(Sampling::YCbCr422, Depth::D10, 128, 64, Ratio::new(25, 1))
    }

    #[test]
    fn large_jpeg_pictures_do_not_go_by_rtp() {
        let large = Video { width: 2048, ..video() };
        let target: Target = "rtp://127.0.0.1:5004".parse().unwrap();
        let error = Plan::new(&"mjpeg".parse().unwrap(), &target, &large, None, false, None).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().starts_with("RTP carries JPEG pictures up to 2040x2040, not 2048x64"), "{error}");
    }

    /// nvJPEG has written a part when its GPU is lost: frames of the CPU, in the layout that was chosen for it, go on in the
    /// next one, and nothing is opened before they come.
    #[test]
    fn an_encoder_of_the_cpu_takes_over_in_a_file_of_its_own() {
        if require(&["jpegenc", "matroskamux"]).is_err() {
            return println!("skipped: no jpegenc");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mkv");
        let target: Target = path.to_str().unwrap().parse().unwrap();
        let plan = Plan::of_rung("mjpeg".parse().unwrap(), target, Rung::NvJpeg, Output::Rgba);
        let watch = plan.watch();
        assert_eq!(watch.next_part(), 1, "the GPU's");
        let layout = Layout::new(WireFormat::from_video(&video()).unwrap(), Output::Rgba).unwrap();
        let mut spare = plan.open_when_needed(&video(), &layout, false);
        assert_eq!(spare.idle().unwrap(), Next::More);
        // An earlier run has left its second part.
        std::fs::write(folder.path().join("a-002.mkv"), b"mine").unwrap();
        let second = folder.path().join("a-003.mkv");
        let pool = FramePool::host(layout, 4).unwrap();
        for n in 0..20 {
            let mut buf = loop {
                match pool.take() {
                    Some(buf) => break buf,
                    None => std::thread::yield_now(),
                }
            };
            let time = Tai(1_000_000_000_000 + n * 40_000_000);
            let meta =
                Meta { number: n, complete: true, media_time: Some(time), first_arrival: time, ..Meta::default() };
            *buf.meta_mut() = meta;
            assert_eq!(spare.take(&buf.seal()).unwrap(), Next::More);
        }
        spare.finish().unwrap();
        assert_eq!(std::fs::read(folder.path().join("a-002.mkv")).unwrap(), b"mine");
        assert!(!path.exists() && std::fs::metadata(&second).unwrap().len() > 1000);
        let said = watch.events();
        assert!(said[0].starts_with("encode: MJPEG by jpeg on the CPU to ") && said.len() == 2, "{said:?}");
        assert!(said[1].starts_with("the encoder was started again: "), "{said:?}");
        assert_eq!((watch.starts(), watch.dropped()), (2, 0));
    }
}
