//! `--snapshot FILE.png [--at N]`: single frames as PNG.

use super::{Next, Sink, to_rgb};
use crate::error::{Error, Kind, Result};
use crate::frame::Frame;
use crate::kernel::Colour;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Writes one frame as PNG, or a series of them when the name has a `{n}` in it.
#[derive(Debug)]
pub struct Snapshot {
    path: PathBuf,
    colour: Colour,
    /// Number of the next frame to write.
    at: u64,
    every: Option<u64>,
    written: u64,
}

impl Snapshot {
    /// Frame `at` (the first that comes with this number or a higher one) goes to `path`. With `{n}` in the name of
    /// the file, every `every`th frame from there on is written, `{n}` being its number.
    ///
    /// # Errors
    /// The name ends in something else than `.png`.
    pub fn new(path: &Path, at: u64, every: u64, colour: Colour) -> Result<Self> {
        if !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("png")) {
            return Err(Error::new(Kind::Usage, format!("snapshots are PNG, and {} is not", path.display()))
                .cure("give it a name that ends in .png"));
        }
        let series = path.to_string_lossy().contains("{n}");
        Ok(Snapshot { path: path.to_owned(), colour, at, every: series.then_some(every.max(1)), written: 0 })
    }
    /// Everything asked for has been written.
    pub fn done(&self) -> bool {
        self.written > 0 && self.every.is_none()
    }
}

impl Sink for Snapshot {
    fn take(&mut self, frame: &Frame) -> Result<Next> {
        let number = frame.meta().number;
        if self.done() {
            return self.idle();
        }
        if number < self.at {
            return Ok(Next::More);
        }
        let path = match self.every {
            Some(every) => {
                self.at = number.saturating_add(every);
                PathBuf::from(self.path.to_string_lossy().replace("{n}", &number.to_string()))
            }
            None => self.path.clone(),
        };
        write_png(&path, frame, &self.colour)?;
        self.written += 1;
        Ok(Next::More)
    }

    fn idle(&mut self) -> Result<Next> {
        Ok(if self.done() { Next::Closed("written".into()) } else { Next::More })
    }

    fn finish(&mut self) -> Result<()> {
        if self.written > 0 {
            return Ok(());
        }
        let what = format!("no snapshot was written to {}: frame {} never came", self.path.display(), self.at);
        Err(Error::new(Kind::Output, what)
            .cure("receive longer (--duration, --frames) or choose an earlier frame (--at)"))
    }

    fn describe(&self) -> String {
        match self.every {
            Some(every) => format!("{} (PNG, every {every} frames from {})", self.path.display(), self.at),
            None => format!("{} (PNG, frame {})", self.path.display(), self.at),
        }
    }
}

/// Writes a frame as PNG of 8 bits. The file appears whole or not at all.
///
/// # Errors
/// The file cannot be written ([`Kind::Output`], [`Kind::Permission`]).
pub fn write_png(path: &Path, frame: &Frame, colour: &Colour) -> Result<()> {
    let rgb = to_rgb(frame, colour);
    let wire = &frame.layout().wire;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let result = encode(&part, wire.width, wire.height, &rgb).and_then(|()| fs::rename(&part, path));
    result.map_err(|error| {
        let _ = fs::remove_file(&part);
        let (kind, cure) = match error.kind() {
            io::ErrorKind::PermissionDenied => (Kind::Permission, "choose a folder that you may write to"),
            io::ErrorKind::NotFound => (Kind::Output, "create the folder first"),
            io::ErrorKind::StorageFull => (Kind::Output, "free space or write elsewhere"),
            _ => (Kind::Output, "choose another file"),
        };
        Error::new(kind, format!("cannot write {}", path.display())).because(error).cure(cure)
    })
}

fn encode(path: &Path, width: u32, height: u32, rgb: &[u8]) -> io::Result<()> {
    let mut encoder = png::Encoder::new(BufWriter::with_capacity(1 << 20, File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgb)?;
    writer.finish()?;
    Ok(())
}
