//! Recordings as files that other programs read: y4m, raw, PNG, MOV.

use super::read::Recording;
use super::wire::Decoder;
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output};
use crate::frame::FramePool;
use crate::kernel::Colour;
use crate::mem::Host;
use crate::sink::{FileFormat, FileSink, Next, Sink, write_png};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What became of the frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Exported {
    /// Written.
    pub frames: u64,
    /// Damaged, and left out.
    pub damaged: u64,
    /// The first that is damaged, and why.
    pub first: Option<String>,
}

/// Which frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// Of those that the recording has, from 0.
    pub first: u64,
    /// So many at most.
    pub frames: Option<u64>,
}

/// The kinds of files, by their names.
enum Kinds {
    File(FileFormat),
    /// The file's name; a series has `%d` or the like in it.
    Png(Series),
    #[cfg(feature = "gst")]
    Mov,
}

/// Writes a recording to a file, whose name says how: `.y4m`, `.raw`, `.png` (one frame, or a series where the name has `%d`,
/// `%06d`), `.mov` (v210 or UYVY, by GStreamer).
///
/// # Errors
/// The name says nothing known; the recording has not what such a file holds; the file cannot be written.
pub fn export(recording: &Recording, to: &Path, part: Part, stop: &AtomicBool) -> Result<Exported> {
    let header = recording.header();
    let video = header.video()?;
    let colour = Colour { colorimetry: video.colorimetry, tcs: video.tcs, range: video.range };
    let wire = header.layout.wire;
    let as_layout = |output| Layout::new(wire, output).map_err(Error::from);
    let kind = kind(to)?;
    let (layout, mut sink): (Layout, Box<dyn Sink>) = match kind {
        Kinds::File(format) => {
            // y4m is planar; raw frames are as they were recorded.
            let layout = if format == FileFormat::Y4m { as_layout(Output::Planar)? } else { header.layout.clone() };
            let sink = FileSink::create(to, format, video, &layout)?;
            (layout, Box::new(sink))
        }
        Kinds::Png(series) => {
            let limit = if series.is_one() { Some(1) } else { None };
            (header.layout.clone(), Box::new(Pictures { series, colour, written: 0, limit }))
        }
        #[cfg(feature = "gst")]
        Kinds::Mov => {
            let text = format!("capsfilter caps=video/x-raw ! qtmux ! filesink location={:?}", to.to_string_lossy());
            let fragment = crate::sink::gst::Fragment::parse(&text)?;
            let layout = as_layout(fragment.preferred_output(video)?)?;
            let sink = fragment.open(video, &layout, false)?;
            (layout, Box::new(sink))
        }
    };
    let mut decoder = Decoder::new(header, &layout, colour)?;
    // GStreamer may hold some of them for a while.
    let pool = FramePool::<Host>::host(layout, 8)?;
    let mut done = Exported::default();
    let places = recording.places().skip(usize::try_from(part.first).unwrap_or(usize::MAX));
    for place in places.take(part.frames.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))) {
        if stop.load(Relaxed) {
            break;
        }
        let mut frame = loop {
            match pool.take() {
                Some(frame) => break frame,
                None => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        if let Err(error) = decoder.frame(&mut frame, |room| recording.load(place, room)) {
            frame.discard();
            if error.kind() == Kind::Internal {
                return Err(error);
            }
            done.damaged += 1;
            done.first.get_or_insert_with(|| error.in_one_line());
            continue;
        }
        let next = sink.take(&frame.seal())?;
        done.frames += 1;
        if let Next::Closed(_) = next {
            return Ok(done);
        }
    }
    if done.frames == 0 {
        let why = done.first.map(|first| format!(": {first}")).unwrap_or_default();
        return Err(Error::new(Kind::Data, format!("there is no whole frame in this part of the recording{why}"))
            .cure("choose another part, or another recording"));
    }
    sink.finish()?;
    Ok(done)
}

fn kind(to: &Path) -> Result<Kinds> {
    let suffix = to.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    match suffix.as_str() {
        "y4m" => Ok(Kinds::File(FileFormat::Y4m)),
        "raw" | "yuv" => Ok(Kinds::File(FileFormat::Raw)),
        "png" => Series::parse(to).map(Kinds::Png),
        "mov" => mov(),
        _ if to == Path::new("-") => Ok(Kinds::File(FileFormat::Y4m)),
        _ => Err(Error::new(Kind::Usage, format!("{}: no kind of file is known by this name", to.display()))
            .cure("end it with .y4m, .raw, .png or .mov, or write - for y4m on standard output")),
    }
}

#[cfg(feature = "gst")]
#[allow(clippy::unnecessary_wraps, reason = "the other one fails")]
fn mov() -> Result<Kinds> {
    Ok(Kinds::Mov)
}

#[cfg(not(feature = "gst"))]
fn mov() -> Result<Kinds> {
    Err(Error::new(Kind::Unavailable, "MOV files are written by GStreamer, and this gdmedia was built without it")
        .cure("build it with the feature gst, or export .y4m and let ffmpeg make a .mov of it"))
}

/// Names of pictures.
#[derive(Debug)]
struct Series {
    /// Before and behind the number; a name without a number is all before.
    parts: (String, Option<(usize, String)>),
}

impl Series {
    /// Numbers are written as printf does `%d` and `%06d`.
    fn parse(to: &Path) -> Result<Self> {
        let text = to.to_string_lossy().into_owned();
        let Some((before, rest)) = text.split_once('%') else { return Ok(Series { parts: (text, None) }) };
        let wrong = || {
            Error::new(Kind::Usage, format!("{text}: no number is written so"))
                .cure("write %d or %06d for the number, once")
        };
        let (width, behind) = rest.split_once('d').ok_or_else(wrong)?;
        let width = match width {
            "" => 0,
            digits if digits.starts_with('0') => digits.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        };
        if behind.contains('%') || width > 20 {
            return Err(wrong());
        }
        Ok(Series { parts: (before.to_owned(), Some((width, behind.to_owned()))) })
    }
    const fn is_one(&self) -> bool {
        self.parts.1.is_none()
    }
    fn name(&self, number: u64) -> PathBuf {
        match &self.parts {
            (name, None) => name.into(),
            (before, Some((width, behind))) => format!("{before}{number:0width$}{behind}").into(),
        }
    }
}

/// A picture, or one for each frame; numbered from 0.
struct Pictures {
    series: Series,
    colour: Colour,
    written: u64,
    limit: Option<u64>,
}

impl Sink for Pictures {
    fn take(&mut self, frame: &crate::frame::Frame) -> Result<Next> {
        write_png(&self.series.name(self.written), frame, &self.colour)?;
        self.written += 1;
        Ok(if self.limit == Some(self.written) { Next::Closed("written".into()) } else { Next::More })
    }
    fn describe(&self) -> String {
        format!("{} (PNG)", self.series.name(0).display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_series() {
        let name = |text: &str, n| Series::parse(Path::new(text)).unwrap().name(n).to_string_lossy().into_owned();
        assert_eq!(name("a/b%06d.png", 12), "a/b000012.png");
        assert_eq!(name("b%d.png", 12), "b12.png");
        assert_eq!(name("b.png", 12), "b.png");
        for wrong in ["%x.png", "%6d.png", "%d%d.png", "%", "%0999d.png", "%0-1d.png"] {
            let error = Series::parse(Path::new(wrong)).unwrap_err();
            assert!(error.cure_text().contains("%06d"), "{wrong}");
        }
    }
}
