//! Frames from a file or standard input: y4m, planar samples, or wire octets as they are.

use super::pack::{pack_planar, planar_octets};
use super::source::Source;
use super::y4m::{self, Header};
use crate::error::{Error, Kind, Result};
use crate::format::WireFormat;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How samples lie in a file that has no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// Planes in the order Y, Cb, Cr; G, B, R; X, Y, Z: an octet a sample for 8 bits, else two, little-endian.
    Planar,
    /// Rows of pgroups.
    Wire,
}

/// An opened input whose format is not settled yet.
pub struct Input {
    path: PathBuf,
    reader: BufReader<Box<dyn Read + Send>>,
    header: Option<Header>,
}

impl Input {
    /// Opens a file, or standard input for `-`, and reads a y4m header where there is one.
    ///
    /// # Errors
    /// The file cannot be read, or is a y4m file that cannot be sent.
    pub fn open(path: &Path) -> Result<Self> {
        let read: Box<dyn Read + Send> = if path.as_os_str() == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path).map_err(|e| cannot_read(path, e))?)
        };
        let mut reader = BufReader::with_capacity(1 << 20, read);
        let begin = reader.fill_buf().map_err(|e| cannot_read(path, e))?;
        if begin.is_empty() {
            return Err(Error::new(Kind::Data, format!("{} is empty", name(path))).cure("give a file with frames"));
        }
        let header = if begin.starts_with(y4m::MAGIC) {
            let line = line(&mut reader).map_err(|e| cannot_read(path, e))?;
            let header = y4m::parse(&line).map_err(|what| {
                Error::new(Kind::Data, format!("{}: {what}", name(path)))
                    .cure("convert it, for example: ffmpeg -i IN -pix_fmt yuv422p10le -strict -1 OUT.y4m")
            })?;
            Some(header)
        } else {
            None
        };
        Ok(Input { path: path.to_owned(), reader, header })
    }

    /// What a y4m file says.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Its frames in wire format.
    ///
    /// # Errors
    /// A y4m file of another format; a loop over what cannot be read twice.
    pub fn frames(self, format: WireFormat, samples: Samples, repeat: bool) -> Result<Frames> {
        if let Some(h) = &self.header {
            let wire = (format.width, format.height, format.sampling.subsampling(), format.depth);
            if (h.width, h.height, h.subsampling, h.depth) != wire {
                return Err(Error::new(
                    Kind::Usage,
                    format!(
                        "{} holds {}x{} {} {} bit, the stream is {}x{} {} {} bit",
                        name(&self.path),
                        h.width,
                        h.height,
                        h.subsampling,
                        h.depth,
                        format.width,
                        format.height,
                        format.sampling,
                        format.depth
                    ),
                )
                .cure("convert the file, or leave --format, --sampling and --depth to it"));
            }
        }
        if repeat && (self.path.as_os_str() == "-" || !self.path.is_file()) {
            return Err(Error::new(Kind::Usage, format!("{} cannot be repeated", name(&self.path)))
                .cure("write it to a file first, or leave --loop out"));
        }
        let planar = self.header.is_some() || samples == Samples::Planar;
        let octets = if planar { planar_octets(&format) } else { format.frame_octets() as usize };
        Ok(Frames {
            input: self,
            format,
            planar,
            repeat,
            read: 0,
            cut: false,
            octets: vec![0; octets],
            frame: vec![0; format.frame_octets() as usize],
        })
    }
}

/// The frames of an input.
pub struct Frames {
    input: Input,
    format: WireFormat,
    planar: bool,
    repeat: bool,
    /// Whole frames read so far.
    read: u64,
    /// The file ended within a frame.
    cut: bool,
    octets: Vec<u8>,
    frame: Vec<u8>,
}

impl Frames {
    /// Reads the samples of the next frame; false at the end.
    fn read(&mut self) -> Result<bool> {
        let path = &self.input.path;
        if self.input.header.is_some() {
            let line = line(&mut self.input.reader).map_err(|e| cannot_read(path, e))?;
            if line.is_empty() {
                return Ok(false);
            }
            if !line.starts_with(b"FRAME") {
                return Err(Error::new(
                    Kind::Data,
                    format!("{}: no frame where frame {} should begin", name(path), self.read),
                )
                .cure("the file is damaged: write it again"));
            }
        }
        let mut have = 0;
        while have < self.octets.len() {
            match self.input.reader.read(self.octets.get_mut(have..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(cannot_read(path, e)),
            }
        }
        if have == self.octets.len() {
            self.read += 1;
            return Ok(true);
        }
        if self.read == 0 {
            let what = format!("{} ends within the first frame: {have} of {} octets", name(path), self.octets.len());
            return Err(Error::new(Kind::Data, what).cure("check --format, --sampling and --depth against the file"));
        }
        self.cut = have > 0;
        Ok(false)
    }
}

impl Source for Frames {
    fn format(&self) -> &WireFormat {
        &self.format
    }
    fn next(&mut self) -> Result<Option<&[u8]>> {
        if !self.read()? {
            if !self.repeat {
                return Ok(None);
            }
            let again = Input::open(&self.input.path)?;
            if again.header != self.input.header {
                return Err(Error::new(
                    Kind::Data,
                    format!("{} has changed while it was read", name(&self.input.path)),
                ));
            }
            self.input = again;
            if !self.read()? {
                return Ok(None);
            }
        }
        if !self.planar {
            return Ok(Some(&self.octets));
        }
        pack_planar(&self.format, &self.octets, &mut self.frame);
        Ok(Some(&self.frame))
    }
    fn describe(&self) -> String {
        let kind = match (&self.input.header, self.planar) {
            (Some(_), _) => "y4m",
            (None, true) => "planar samples",
            (None, false) => "wire octets",
        };
        format!("{} ({kind}){}", name(&self.input.path), if self.repeat { ", again and again" } else { "" })
    }
    fn remark(&self) -> Option<String> {
        self.cut.then(|| format!("{} ends within a frame, which was left out", name(&self.input.path)))
    }
}

/// Frames of another source, read ahead by a thread of its own, so that a slow disk does not stop the packets.
pub struct Ahead {
    format: WireFormat,
    described: String,
    full: Receiver<Result<Vec<u8>>>,
    empty: SyncSender<Vec<u8>>,
    frame: Vec<u8>,
    stop: Arc<AtomicBool>,
    remark: Arc<std::sync::Mutex<Option<String>>>,
}

/// Frames that are ready at most.
const READY: usize = 3;

impl Ahead {
    /// Reads `source` ahead. [`Source::next`] gives up when `stop` is set.
    pub fn new(mut source: Box<dyn Source>, stop: Arc<AtomicBool>) -> Self {
        let (full_in, full) = sync_channel(READY);
        let (empty, empty_out) = sync_channel::<Vec<u8>>(READY + 1);
        let format = *source.format();
        let described = source.describe();
        let remark = Arc::<std::sync::Mutex<Option<String>>>::default();
        let told = remark.clone();
        for _ in 0..READY {
            let _ = empty.try_send(vec![0; format.frame_octets() as usize]);
        }
        // It ends when either channel does; a read that hangs ends with the process.
        std::thread::spawn(move || {
            while let Ok(mut buffer) = empty_out.recv() {
                let next = match source.next() {
                    Ok(Some(frame)) => {
                        buffer.copy_from_slice(frame);
                        Ok(buffer)
                    }
                    Ok(None) => {
                        *told.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = source.remark();
                        return;
                    }
                    Err(e) => Err(e),
                };
                let failed = next.is_err();
                if full_in.send(next).is_err() || failed {
                    return;
                }
            }
        });
        Ahead { format, described, full, empty, frame: Vec::new(), stop, remark }
    }
}

impl Source for Ahead {
    fn format(&self) -> &WireFormat {
        &self.format
    }
    fn next(&mut self) -> Result<Option<&[u8]>> {
        if !self.frame.is_empty() {
            let _ = self.empty.try_send(std::mem::take(&mut self.frame));
        }
        loop {
            match self.full.recv_timeout(Duration::from_millis(50)) {
                Ok(frame) => {
                    self.frame = frame?;
                    return Ok(Some(&self.frame));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.stop.load(Ordering::Relaxed) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
    fn describe(&self) -> String {
        self.described.clone()
    }
    fn remark(&self) -> Option<String> {
        self.remark.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

/// A line without its end, empty at the end of the file; bounded.
fn line(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.take(y4m::MAX_LINE as u64).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(line)
}

fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() }
}

fn cannot_read(path: &Path, error: io::Error) -> Error {
    let (kind, cure) = match error.kind() {
        io::ErrorKind::NotFound => (Kind::Data, "check the name and the folder you are in"),
        io::ErrorKind::PermissionDenied => (Kind::Permission, "make the file readable for this user"),
        io::ErrorKind::IsADirectory => (Kind::Data, "name a file in it"),
        _ => (Kind::Data, "check the file and its disk"),
    };
    Error::new(kind, format!("cannot read {}", name(path))).because(error).cure(cure)
}
