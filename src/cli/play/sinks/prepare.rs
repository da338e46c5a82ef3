//! What the sinks of a run want, found out before anything is opened for good.

use super::super::Args;
#[cfg(feature = "gst")]
use super::placed::free;
#[cfg(feature = "gst")]
use gdmedia::encode::{Plan, Target};
use gdmedia::error::Result;
#[cfg(not(feature = "gst"))]
use gdmedia::error::{Error, Kind};
use gdmedia::format::{Layout, Output, WireFormat};
#[cfg(feature = "gst")]
use gdmedia::gpu::Choice;
use gdmedia::gpu::Gpu;
use gdmedia::sdp::Video;
#[cfg(all(feature = "cuda", feature = "gst"))]
use gdmedia::sink::gst::CudaFit;
#[cfg(feature = "gst")]
use gdmedia::sink::gst::{Fragment, Overlay};
use std::sync::Arc;

/// What was found out before anything is opened for good.
pub struct Prepared {
    #[cfg(feature = "gst")]
    pub(super) fragment: Option<Fragment>,
    #[cfg(all(feature = "cuda", feature = "gst"))]
    pub(super) fit: Option<CudaFit>,
    #[cfg(feature = "gst")]
    pub(super) encode: Option<Plan>,
    pub(super) notes: Vec<String>,
    /// The layout that the options ask for, or that suits the sinks best.
    pub output: Output,
    /// Nothing would show that frames come: no display, no other sink.
    pub(super) alone: bool,
}

#[cfg(feature = "daemon")]
impl Prepared {
    /// A sink is to take frames where a GPU has them.
    #[allow(clippy::unused_self, reason = "without GPU or GStreamer there is none")]
    pub fn wants_gpu(&self) -> bool {
        #[cfg(all(feature = "cuda", feature = "gst"))]
        return self.fit.is_some() || self.encode.as_ref().is_some_and(Plan::is_on_gpu);
        #[cfg(not(all(feature = "cuda", feature = "gst")))]
        false
    }
}

/// Finds the fragment or window that the options ask for, and the layout that suits it.
///
/// # Errors
/// A fragment that is wrong, or takes no layout of this flow.
pub fn prepare(args: &Args, video: &Video, wire: &WireFormat, gpu: Option<&Arc<Gpu>>) -> Result<Prepared> {
    let mut notes = Vec::new();
    #[cfg(feature = "gst")]
    let encode = encode(args, video, gpu)?;
    #[cfg(feature = "gst")]
    let fragment = fragment(args, video, &mut notes)?;
    #[cfg(all(feature = "cuda", feature = "gst"))]
    let fit = fragment.as_ref().zip(gpu).and_then(|(fragment, gpu)| fit(args, fragment, video, gpu, &mut notes));
    #[cfg(all(feature = "cuda", feature = "gst"))]
    let on_gpu = fit.as_ref().and_then(|fit| fit.outputs().first().copied());
    #[cfg(all(not(feature = "cuda"), feature = "gst"))]
    let on_gpu = None;
    #[cfg(feature = "gst")]
    let preferred = match (on_gpu, &fragment) {
        _ if encode.is_some() => Ok(encode.as_ref().map(Plan::output)),
        (Some(output), _) => Ok(Some(output)),
        (None, fragment) => fragment.as_ref().map(|f| f.preferred_output(video)).transpose(),
    };
    let _ = gpu;
    #[cfg(not(feature = "gst"))]
    let preferred: Result<Option<Output>> = no_gst(args, &mut notes);
    let _ = video;
    let output = match args.output {
        Some(output) => output.into(),
        None => {
            // Frames for files of y4m are planar; others are taken as they come, from the wire or a recording.
            let as_it_is = args.file().is_none() || args.raw_out();
            let planar = Layout::new(*wire, Output::Planar).is_ok();
            let otherwise = match args.recorded {
                Some(output) if as_it_is => output,
                None if as_it_is && args.record.is_some() => Output::Wire,
                _ if planar => Output::Planar,
                _ => Output::Wire,
            };
            preferred?.unwrap_or(otherwise)
        }
    };
    #[cfg(feature = "gst")]
    let no_window = fragment.is_none();
    #[cfg(not(feature = "gst"))]
    let no_window = true;
    Ok(Prepared {
        alone: no_window && by_default(args) && args.export.is_none() && !args.verify && !args.lossless(),
        #[cfg(feature = "gst")]
        fragment,
        #[cfg(all(feature = "cuda", feature = "gst"))]
        fit,
        #[cfg(feature = "gst")]
        encode,
        notes,
        output,
    })
}

/// The encoder that runs, tried.
#[cfg(feature = "gst")]
fn encode(args: &Args, video: &Video, gpu: Option<&Arc<Gpu>>) -> Result<Option<Plan>> {
    let (Some(spec), Some(out)) = (&args.encode, &args.out) else { return Ok(None) };
    let mut target: Target = out.to_string_lossy().parse()?;
    if let (true, Target::File { path, .. }) = (args.again, &mut target) {
        // What was encoded before is somebody's.
        *path = free(path)?;
    }
    let others = args.gpu != Choice::Off;
    Plan::new(spec, &target, video, gpu, others, args.output.map(Into::into)).map(Some)
}

/// Does the fragment take frames where the GPU has them, in the layout that is wanted?
#[cfg(all(feature = "cuda", feature = "gst"))]
fn fit(args: &Args, fragment: &Fragment, video: &Video, gpu: &Arc<Gpu>, notes: &mut Vec<String>) -> Option<CudaFit> {
    let wanted: Option<Output> = args.output.map(Into::into);
    let why = match fragment.cuda(video, gpu) {
        Ok(fit) if wanted.is_none_or(|output| fit.outputs().contains(&output)) => return Some(fit),
        Ok(fit) => {
            let words: Vec<_> = fit.outputs().iter().map(|o| o.word()).collect();
            format!("on the GPU it takes {} and not what --output says", words.join(", "))
        }
        Err(why) => why,
    };
    notes.push(format!("GStreamer gets copies over the CPU: {why}"));
    None
}

/// Is a window wanted when nothing else is said?
fn by_default(args: &Args) -> bool {
    !args.headless && args.sink.is_none() && args.out.is_none() && args.snapshot.is_none() && args.record.is_none()
}

#[cfg(feature = "gst")]
fn fragment(args: &Args, video: &Video, notes: &mut Vec<String>) -> Result<Option<Fragment>> {
    if let Some(text) = &args.sink {
        return Fragment::parse(text).map(Some);
    }
    if !by_default(args) {
        return Ok(None);
    }
    let fragment = Fragment::window(video);
    match &fragment {
        Ok(Some(_)) => notes.extend(Overlay::available().err()),
        Ok(None) => {
            notes.push("no window, there is no display: --out, --snapshot or --sink send frames elsewhere".into())
        }
        Err(error) => notes.push(error.to_string()),
    }
    Ok(fragment.unwrap_or_default())
}

#[cfg(not(feature = "gst"))]
fn no_gst(args: &Args, notes: &mut Vec<String>) -> Result<Option<Output>> {
    if args.sink.is_some() || args.encode.is_some() {
        return Err(Error::new(Kind::Unavailable, "this gdmedia was built without GStreamer")
            .cure("build it with the feature gst, or use --out or --snapshot"));
    }
    if by_default(args) {
        notes.push("no window: this gdmedia was built without GStreamer".into());
    }
    Ok(None)
}
