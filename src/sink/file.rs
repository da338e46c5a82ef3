//! `--out FILE|-`: frames one after the other, as YUV4MPEG2 (y4m) or raw.

use super::{Next, Sink};
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output};
use crate::frame::Frame;
use gdmedia_sdp::{Range, Scan, Video};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Rows are gathered to this size; a plane without padding goes out in one call whatever its size.
const BUFFER: usize = 1 << 20;

/// How frames lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// YUV4MPEG2: a line of text that says what follows, then planar pictures; what `ffplay -` and `mpv -` read.
    Y4m,
    /// Planes one after the other, rows without padding, no header.
    Raw,
}

impl FromStr for FileFormat {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        match s.to_ascii_lowercase().as_str() {
            "y4m" | "yuv4mpeg" | "yuv4mpegpipe" => Ok(FileFormat::Y4m),
            "raw" | "rawvideo" => Ok(FileFormat::Raw),
            _ => Err(Error::new(Kind::Usage, format!("no such file format: {s}")).cure("choose y4m or raw")),
        }
    }
}

impl FileFormat {
    /// What the name of a file asks for; `-` is read by players, so it is y4m.
    pub fn of_path(path: &Path) -> FileFormat {
        let y4m = path == Path::new("-") || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("y4m"));
        if y4m { FileFormat::Y4m } else { FileFormat::Raw }
    }
}

/// Writes frames to a file or to standard output.
#[derive(Debug)]
pub struct FileSink {
    out: BufWriter<File>,
    /// `None`: standard output.
    path: Option<PathBuf>,
    format: FileFormat,
    header: String,
    frames: u64,
}

impl FileSink {
    /// Opens `path` (`-` is standard output) for frames of `layout`.
    ///
    /// # Errors
    /// The layout does not fit the format ([`Kind::Usage`]); the file cannot be created.
    pub fn create(path: &Path, format: FileFormat, video: &Video, layout: &Layout) -> Result<Self> {
        let header = match format {
            FileFormat::Y4m => y4m_header(video, layout)?,
            FileFormat::Raw => String::new(),
        };
        let (file, path) = if path == Path::new("-") {
            let stdout = io::stdout();
            if stdout.is_terminal() {
                return Err(Error::new(Kind::Usage, "pictures are not written to a terminal")
                    .cure("pipe them into a program (`| ffplay -`) or name a file"));
            }
            let fd = stdout.as_fd().try_clone_to_owned().map_err(|e| create_error(Path::new("-"), e))?;
            (File::from(fd), None)
        } else {
            // What it holds stays until the first frame comes: a run without media destroys nothing.
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            (file.map_err(|e| create_error(path, e))?, Some(path.to_owned()))
        };
        Ok(FileSink { out: BufWriter::with_capacity(BUFFER, file), path, format, header, frames: 0 })
    }

    fn write(&mut self, frame: &Frame) -> io::Result<()> {
        if self.frames == 0 && self.out.get_ref().metadata().is_ok_and(|m| m.is_file()) && self.path.is_some() {
            self.out.get_ref().set_len(0)?;
        }
        if self.format == FileFormat::Y4m {
            if self.frames == 0 {
                self.out.write_all(self.header.as_bytes())?;
            }
            self.out.write_all(b"FRAME\n")?;
        }
        write_rows(&mut self.out, frame)?;
        // The reader of a pipe sees each frame when it is there, and `frames` never says more than was written.
        self.out.flush()
    }

    fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| "standard output".into(), |p| p.display().to_string())
    }

    fn failed(&self, error: io::Error) -> Result<Next> {
        let broken = error.kind() == io::ErrorKind::BrokenPipe;
        if broken && self.path.is_none() {
            return Ok(Next::Closed(format!("standard output was closed by its reader after {} frames", self.frames)));
        }
        let cure = match error.kind() {
            io::ErrorKind::StorageFull => "free space, write elsewhere, or record less (--frames, --duration)",
            io::ErrorKind::QuotaExceeded => "free some of the quota or write elsewhere",
            io::ErrorKind::FileTooLarge => "raise the file size limit (ulimit -f) or choose another file system",
            io::ErrorKind::BrokenPipe => "keep the program that reads it running",
            _ => "check the disk or the program that reads it",
        };
        let what = format!("writing to {} failed after {} frames", self.name(), self.frames);
        Err(Error::new(Kind::Output, what).because(error).cure(cure))
    }
}

impl Sink for FileSink {
    fn take(&mut self, frame: &Frame) -> Result<Next> {
        match self.write(frame) {
            Ok(()) => {
                self.frames += 1;
                Ok(Next::More)
            }
            Err(error) => self.failed(error),
        }
    }

    fn finish(&mut self) -> Result<()> {
        // A new y4m file without frames still says what it would have held.
        let old = self.path.is_some() && self.out.get_ref().metadata().is_ok_and(|m| m.len() > 0);
        let nothing = self.frames == 0 && self.format == FileFormat::Y4m && !old;
        let result = if nothing { self.out.write_all(self.header.as_bytes()) } else { Ok(()) };
        match result.and_then(|()| self.out.flush()) {
            Ok(()) => Ok(()),
            Err(error) => self.failed(error).map(|_| ()),
        }
    }

    fn takes_windows(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        let format = match self.format {
            FileFormat::Y4m => "y4m",
            FileFormat::Raw => "raw",
        };
        format!("{} ({format})", self.name())
    }
}

/// All rows of all planes without padding; planes that have none go out whole.
fn write_rows(out: &mut impl Write, frame: &Frame) -> io::Result<()> {
    for (index, plane) in frame.layout().planes.iter().enumerate() {
        if plane.stride == plane.row_octets {
            let whole = plane.offset..plane.offset + plane.rows * plane.stride;
            frame.range(whole).into_iter().try_for_each(|octets| out.write_all(octets))?;
        } else {
            (0..plane.rows).try_for_each(|row| out.write_all(frame.row(index, row)))?;
        }
    }
    Ok(())
}

fn create_error(path: &Path, error: io::Error) -> Error {
    let (kind, cure) = match error.kind() {
        io::ErrorKind::PermissionDenied => (Kind::Permission, "choose a folder that you may write to"),
        io::ErrorKind::NotFound => (Kind::Output, "create the folder first"),
        io::ErrorKind::IsADirectory => (Kind::Output, "name a file in that folder"),
        io::ErrorKind::StorageFull => (Kind::Output, "free space or write elsewhere"),
        _ => (Kind::Output, "choose another file"),
    };
    Error::new(kind, format!("cannot create {}", path.display())).because(error).cure(cure)
}

/// The first line of a y4m file, as mjpegtools defined it and FFmpeg extended it (`C422p10`, `XCOLORRANGE`).
fn y4m_header(video: &Video, layout: &Layout) -> Result<String> {
    let Some(tag) = layout.y4m() else {
        let (wire, word) = (&layout.wire, layout.output.word());
        let planar = Layout { output: Output::Planar, ..layout.clone() };
        let cure = if planar.y4m().is_some() {
            "choose the planar output, or raw frames (--format raw)"
        } else {
            "write raw frames (--format raw), or give them to a GStreamer fragment (--sink)"
        };
        let what = format!("y4m does not hold {} of {} bits as {word}", wire.sampling, wire.depth);
        return Err(Error::new(Kind::Usage, what).cure(cure));
    };
    // The first field has the upper rows (row in the frame = 2 * row + F), so it is the top field in every system.
    let scan = if video.scan == Scan::Interlaced { 't' } else { 'p' };
    let (num, den) = video.rate.map_or((0, 0), |r| (r.num, r.den));
    let range = if video.range == Range::Narrow { "LIMITED" } else { "FULL" };
    Ok(format!(
        "YUV4MPEG2 W{} H{} F{num}:{den} I{scan} A{}:{} C{tag} XCOLORRANGE={range}\n",
        layout.wire.width, layout.wire.height, video.par.num, video.par.den
    ))
}
