//! What a disk holds: its own speed by a plain loop, and that of the recorder on it, in one run.

#[cfg(feature = "cuda")]
mod gpu;

#[cfg(feature = "cuda")]
pub use gpu::on_gpu;

use super::form::PAGE;
use super::read::{Recording, Segment};
use super::recorder::{Options, Recorder};
use super::segment::Limit;
use super::write::{self, Way, disk};
use crate::error::{Error, Kind, Result};
use crate::format::Layout;
use crate::frame::{Frame, FramePool, Meta};
use crate::latency::Figures;
use crate::mem::{Host, Region};
use crate::time::Tai;
use gdmedia_sdp::Flow;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One way, measured.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Measured {
    /// For people.
    pub what: String,
    /// Octets that were written.
    pub octets: u64,
    /// Until they were with the disk (fdatasync).
    pub seconds: f64,
    /// Of a slot, or of all where there are none.
    pub disk: Option<Figures>,
    /// Of reading everything back, with its CRCs; none where nothing is read.
    pub read_seconds: Option<f64>,
}

impl Measured {
    /// Octets a second.
    pub fn speed(&self) -> f64 {
        self.octets as f64 / self.seconds.max(1e-9)
    }
    /// The same of reading.
    pub fn read_speed(&self) -> Option<f64> {
        self.read_seconds.map(|seconds| self.octets as f64 / seconds.max(1e-9))
    }
}

/// Octets of the memory that a plain loop writes from.
const BUFFER: usize = 64 << 20;

/// The disk's own speed: one file, room made beforehand, as many large writes in flight as the recorder has, past the page
/// cache where the file system can.
///
/// # Errors
/// The folder cannot be written to.
pub fn plain(folder: &Path, octets: u64) -> Result<Measured> {
    let path = folder.join(format!(".gdmedia-bench-{}", std::process::id()));
    let _gone = Gone(path.clone());
    let failed = |e: std::io::Error| {
        let cure = "choose a folder that may be written to and has room (--size)";
        Error::new(Kind::Output, format!("cannot write {}", path.display())).because(e).cure(cure)
    };
    let (mut way, _) = write::choose(Way::Auto)?;
    let mut file = OpenOptions::new();
    file.write(true).create_new(true);
    let direct = way.direct().then(|| file.clone().custom_flags(libc::O_DIRECT).open(&path).ok()).flatten();
    let how = match (&direct, way.direct()) {
        (Some(_), _) => way.describe(),
        (None, true) => "io_uring through the page cache (no O_DIRECT there)".into(),
        (None, false) => way.describe(),
    };
    let file = match direct {
        Some(file) => file,
        None => file.create_new(false).create(true).truncate(false).open(&path).map_err(failed)?,
    };
    let octets = octets.next_multiple_of(PAGE as u64);
    match disk::allocate(&file, 0, octets) {
        Err(e) if !e.raw_os_error().is_some_and(|c| c == libc::EOPNOTSUPP || c == libc::ENOSYS) => {
            return Err(failed(e));
        }
        _ => {}
    }
    let mut memory = Region::<Host>::host(BUFFER)?;
    paint(memory.as_mut_slice(), 0);
    let begun = Instant::now();
    let mut at = 0;
    while at < octets {
        // Enough at once that its end is no matter.
        let mut pieces = Vec::new();
        while pieces.len() < 16 && at < octets {
            let len = (octets - at).min(BUFFER as u64);
            pieces.push((memory.as_slice().get(..len as usize).unwrap_or_default(), at));
            at += len;
        }
        way.write(&file, &pieces).map_err(failed)?;
    }
    file.sync_data().map_err(failed)?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Measured { what: format!("a plain loop, {how}"), octets, seconds, disk: None, read_seconds: None })
}

/// Removes a file, or a folder with recordings in it, at the end.
struct Gone(PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        if self.0.is_dir() {
            let _ = std::fs::remove_dir_all(&self.0);
        } else {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

/// Octets that no disk makes smaller.
fn paint(octets: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for word in octets.as_chunks_mut::<8>().0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *word = state.to_le_bytes();
    }
}

/// Frames that are recorded again and again.
const FRAMES: usize = 8;

/// The recorder's speed: frames of this layout as fast as they are taken, read back and compared.
///
/// # Errors
/// The folder cannot be written to, the way is not there, or what was read back differs.
pub fn recorder(
    folder: &Path,
    flow: &Flow,
    layout: &Layout,
    way: Way,
    octets: u64,
    stop: &AtomicBool,
) -> Result<Measured> {
    let (inner, gone) = inner_folder(folder, way)?;
    let pool = FramePool::host(layout.clone(), FRAMES)?;
    let frames: Vec<Frame<Host>> = std::iter::from_fn(|| pool.take())
        .enumerate()
        .map(|(n, mut frame)| {
            paint(frame.region_mut().as_mut_slice(), n as u64 + 1);
            frame.seal()
        })
        .collect();
    let mut recorder = Recorder::create(&inner, flow, layout, &Options { limit: Limit::default(), way })?;
    let what = recorder.describe().split(" (").nth(1).unwrap_or_default().trim_end_matches(')').to_owned();
    let stats = recorder.stats();
    let begun = Instant::now();
    let mut number = 0;
    while stats.octets.load(Relaxed) < octets && !stop.load(Relaxed) {
        let meta = Meta { number, complete: true, last_arrival: Tai(number), ..Meta::default() };
        recorder.write_as(&frames[number as usize % FRAMES], meta)?;
        number += 1;
    }
    recorder.finish()?;
    let seconds = begun.elapsed().as_secs_f64();
    let written = stats.octets.load(Relaxed);
    let begun = Instant::now();
    let recording = Recording::open(&inner)?;
    let mut wrong = 0;
    let mut good = 0;
    for segment in recording.segments() {
        let found = Segment::check(segment, |head, octets| {
            let frame = &frames[head.meta.number as usize % FRAMES];
            wrong += u64::from(frame.octets().get(..octets.len()) != Some(octets));
        });
        good += found.good;
    }
    let read = begun.elapsed();
    drop(gone);
    if wrong > 0 || good != number {
        let what = format!("{good} of {number} frames came back, {wrong} of them changed");
        return Err(Error::new(Kind::Output, what).cure("do not trust this disk: see dmesg"));
    }
    Ok(Measured {
        what: format!("the recorder, {what}"),
        octets: written,
        seconds,
        disk: stats.latency(),
        read_seconds: Some(read.max(Duration::from_nanos(1)).as_secs_f64()),
    })
}

/// A folder of its own, which goes away.
fn inner_folder(folder: &Path, way: Way) -> Result<(PathBuf, impl Drop + use<>)> {
    let inner = folder.join(format!(".gdmedia-bench-{}-{}", std::process::id(), way.word()));
    std::fs::create_dir(&inner).map_err(|e| {
        let kind = if e.kind() == std::io::ErrorKind::PermissionDenied { Kind::Permission } else { Kind::Output };
        Error::new(kind, format!("cannot create {}", inner.display()))
            .because(e)
            .cure("choose a folder that you may write to")
    })?;
    Ok((inner.clone(), Gone(inner)))
}
