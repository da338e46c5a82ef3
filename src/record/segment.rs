//! Segments that are being written: which file, where in it, and when the next one begins.

use super::form::{self, End, Entry, Header, PAGE};
use super::read;
use super::write::disk;
use crate::error::{Error, Kind, Result};
use crate::time::{self, Tai};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// When a segment has enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Octets of the file; it holds at least one frame.
    Octets(u64),
    /// From its first frame's arrival to that of the next segment's.
    Time(Duration),
}

impl Default for Limit {
    /// 10 GiB.
    fn default() -> Self {
        Limit::Octets(10 << 30)
    }
}

impl FromStr for Limit {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wanted = || "a size (10GiB, 500MB) or a time (60s, 10min) is wanted".to_owned();
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wanted())?;
        let (scale, is_time) = match unit.trim() {
            "kB" => (1e3, false),
            "MB" => (1e6, false),
            "GB" => (1e9, false),
            "TB" => (1e12, false),
            "KiB" => (1024.0, false),
            "MiB" => (1_048_576.0, false),
            "GiB" => (1_073_741_824.0, false),
            "TiB" => (1_099_511_627_776.0, false),
            "s" => (1.0, true),
            "min" => (60.0, true),
            "h" => (3600.0, true),
            _ => return Err(wanted()),
        };
        let value = number * scale;
        match is_time {
            true if value >= 1e-3 => Duration::try_from_secs_f64(value).map(Limit::Time).map_err(|_| wanted()),
            false if (1.0..1e19).contains(&value) => Ok(Limit::Octets(value as u64)),
            _ => Err(wanted()),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Octets(octets) if *octets >= 1 << 30 => write!(f, "{:.4} GiB", *octets as f64 / f64::from(1 << 30)),
            Limit::Octets(octets) => write!(f, "{:.4} MiB", *octets as f64 / f64::from(1 << 20)),
            Limit::Time(time) => write!(f, "{time:?}"),
        }
    }
}

/// Octets that are asked of the file system beforehand at a time.
const STEP: u64 = 256 << 20;

/// The files of a recording that is being written.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// Of the next segment.
    header: Header,
    limit: Limit,
    /// What names of its files begin with.
    stem: String,
    /// Octets are to go past the page cache.
    pub direct: bool,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    /// Through the page cache, for header and index.
    file: File,
    direct: Option<File>,
    path: PathBuf,
    header: Header,
    entries: Vec<Entry>,
    /// Arrival of its first frame.
    begun: Option<Tai>,
    /// Up to here the file system has given room; everything where it does not do that.
    room: u64,
}

/// Where a slot goes.
pub(super) struct Place<'a> {
    pub file: &'a File,
    pub at: u64,
    /// Its number in the recording.
    pub slot: u64,
}

impl Files {
    /// Begins the first segment.
    ///
    /// # Errors
    /// The folder is not there, may not be written to, or is full.
    pub fn create(folder: &Path, header: Header, limit: Limit, direct: bool) -> Result<Self> {
        // Nothing is recorded that could not be read.
        let again = Header::decode(&header.encode()?).map_err(|e| {
            Error::new(Kind::Data, format!("the SDP of this flow cannot be kept in a recording: {}", e.in_one_line()))
                .cure("gdmedia sdp says what is wrong with it")
        })?;
        if again.layout != header.layout {
            let what = "the SDP of this flow describes another picture than the frames have";
            return Err(Error::new(Kind::Internal, what));
        }
        let created = SystemTime::UNIX_EPOCH + Duration::from_nanos(header.created);
        let stem: String = time::utc(created).chars().filter(|c| !"-:.".contains(*c)).collect();
        let mut files = Files { folder: folder.to_owned(), header, limit, stem, direct, open: None };
        files.begin()?;
        Ok(files)
    }

    /// The segment that is open.
    pub fn path(&self) -> Option<&Path> {
        self.open.as_ref().map(|open| open.path.as_path())
    }
    /// The file that slots go to.
    #[cfg(feature = "cuda")]
    pub fn file(&self) -> Option<&File> {
        self.open.as_ref().map(|open| open.direct.as_ref().unwrap_or(&open.file))
    }
    /// Of the segment that is open, or the next one.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next segment. Its name sorts in time: the beginning of the recording in UTC, then its number.
    fn begin(&mut self) -> Result<()> {
        let name = format!("gdmedia-{}-{:05}.{}", self.stem, self.header.segment, form::SUFFIX);
        let path = self.folder.join(name);
        let cannot = |e| create_error(&path, &self.folder, e);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(cannot)?;
        let mut open = Open {
            file,
            direct: None,
            path: path.clone(),
            header: self.header.clone(),
            entries: Vec::new(),
            begun: None,
            room: 0,
        };
        let begun = open
            .reserve(self.limit)
            .and_then(|()| open.file.write_all_at(&self.header.encode()?, 0).map_err(Broken::from));
        if let Err(broken) = begun {
            let _ = std::fs::remove_file(&path);
            return Err(broken.because_of(&path));
        }
        if self.direct {
            match OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path) {
                Ok(direct) => open.direct = Some(direct),
                Err(_) => self.direct = false,
            }
        }
        self.open = Some(open);
        Ok(())
    }

    /// The segment has enough: the next slot, of a frame that arrived at `arrival`, belongs to another.
    pub fn is_over(&self, arrival: Tai) -> bool {
        let Some(open) = &self.open else { return true };
        match (self.limit, open.begun) {
            (_, None) => false,
            (Limit::Octets(limit), Some(_)) => open.end_with(open.entries.len() as u64 + 1) > limit,
            (Limit::Time(time), Some(begun)) => {
                arrival.since(begun) >= i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
            }
        }
    }

    /// Where the next slot goes, in the next segment when this one has enough: all slots before are written then.
    ///
    /// # Errors
    /// There is no room, or the folder or the file has gone.
    pub fn slot(&mut self, arrival: Tai) -> Result<Place<'_>> {
        if self.is_over(arrival) {
            self.end(0, End::Continued)?;
            self.begin()?;
        }
        let Some(open) = &mut self.open else { return Err(Error::new(Kind::Internal, "no segment is open")) };
        open.begun.get_or_insert(arrival);
        if open.file.metadata().is_ok_and(|m| m.nlink() == 0) {
            return Err(Error::new(
                Kind::Output,
                format!("{} was removed while it was being recorded", open.path.display()),
            )
            .cure("keep the folder until the recording has ended; what was recorded since its last segment is lost"));
        }
        open.reserve(self.limit).map_err(|broken| broken.because_of(&open.path))?;
        let number = open.entries.len() as u64;
        Ok(Place {
            file: open.direct.as_ref().unwrap_or(&open.file),
            at: open.header.octets() + number * open.header.slot_octets(),
            slot: open.header.first_slot + number,
        })
    }

    /// From now on octets go through the page cache.
    pub fn without_direct(&mut self) {
        self.direct = false;
        if let Some(open) = &mut self.open {
            open.direct = None;
        }
    }

    /// The slot was written.
    pub fn took(&mut self, entry: Entry) {
        if let Some(open) = &mut self.open {
            open.entries.push(entry);
        }
    }

    /// Slots from this one on (of the whole recording) were not written after all; returns how many of them were taken.
    #[cfg(feature = "cuda")]
    pub fn forget(&mut self, slot: u64) -> u64 {
        let Some(open) = &mut self.open else { return 0 };
        let keep = usize::try_from(slot.saturating_sub(open.header.first_slot)).unwrap_or(usize::MAX);
        let forgotten = open.entries.len().saturating_sub(keep);
        open.entries.truncate(keep);
        forgotten as u64
    }

    /// Finishes the segment that is open; one without a slot is removed. `gap`: frames that came after its last slot and are
    /// not in it.
    ///
    /// # Errors
    /// Its index cannot be written; its slots can be read without.
    pub fn end(&mut self, gap: u64, end: End) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        if open.entries.is_empty() {
            let _ = std::fs::remove_file(&open.path);
            return Ok(());
        }
        self.header.segment += 1;
        self.header.first_slot += open.entries.len() as u64;
        drop(open.direct);
        read::finish(&open.file, &open.header, &open.entries, gap, end).map_err(|e| {
            Error::new(Kind::Output, format!("{} has no index", open.path.display()))
                .because(e)
                .cure("its frames are there: gdmedia record --check FILE makes the index")
        })
    }
}

impl Open {
    /// Where the file ends with so many slots.
    fn end_with(&self, slots: u64) -> u64 {
        self.header.octets() + slots * self.header.slot_octets() + form::pages(slots * 24) + PAGE as u64
    }

    /// Room for one slot more, and for the index with it.
    fn reserve(&mut self, limit: Limit) -> std::result::Result<(), Broken> {
        let needed = self.end_with(self.entries.len() as u64 + 1);
        if needed <= self.room {
            return Ok(());
        }
        let most = match limit {
            Limit::Octets(octets) => octets.max(needed),
            Limit::Time(_) => u64::MAX,
        };
        let mut to = form::pages(self.room.saturating_add(STEP).min(most).max(needed));
        loop {
            match disk::allocate(&self.file, self.room, to - self.room) {
                Ok(()) => break self.room = to,
                // A little less may be there.
                Err(e) if e.kind() == io::ErrorKind::StorageFull && to > needed => {
                    to = needed.max(form::pages(self.room + (to - self.room) / 2));
                }
                Err(e) if e.raw_os_error().is_some_and(|c| c == libc::EOPNOTSUPP || c == libc::ENOSYS) => {
                    break self.room = u64::MAX;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// What can go wrong with a file that is being written.
enum Broken {
    Io(io::Error),
    Other(Error),
}

impl From<io::Error> for Broken {
    fn from(e: io::Error) -> Self {
        Broken::Io(e)
    }
}
impl From<Error> for Broken {
    fn from(e: Error) -> Self {
        Broken::Other(e)
    }
}

impl Broken {
    fn because_of(self, path: &Path) -> Error {
        match self {
            Broken::Io(e) => write_error(path, e),
            Broken::Other(e) => e,
        }
    }
}

/// Writing to a segment failed.
pub(super) fn write_error(path: &Path, error: io::Error) -> Error {
    let (what, cure) = match error.kind() {
        io::ErrorKind::StorageFull => {
            ("no room for", "free space or record elsewhere; what was recorded until now is whole")
        }
        io::ErrorKind::QuotaExceeded => ("no quota for", "free some of the quota or record elsewhere"),
        io::ErrorKind::FileTooLarge => ("too large:", "make segments smaller (--segment), or raise ulimit -f"),
        io::ErrorKind::ReadOnlyFilesystem => ("cannot write", "the file system went read-only: see dmesg"),
        _ => ("cannot write", "check the disk (dmesg)"),
    };
    Error::new(Kind::Output, format!("{what} {}", path.display())).because(error).cure(cure)
}

/// Why a recording ends that this happened to.
pub(super) fn end_of(error: &Error) -> End {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    if source.is_some_and(|e| full.contains(&e.kind())) { End::Full } else { End::Failed }
}

fn create_error(path: &Path, folder: &Path, error: io::Error) -> Error {
    let (kind, cure) = match error.kind() {
        io::ErrorKind::PermissionDenied => (Kind::Permission, "choose a folder that you may write to"),
        io::ErrorKind::NotFound => (Kind::Output, "create the folder, or find out who removed it"),
        io::ErrorKind::NotADirectory => (Kind::Output, "name a folder"),
        io::ErrorKind::ReadOnlyFilesystem => {
            (Kind::Output, "the file system is read-only: choose another, or remount it")
        }
        io::ErrorKind::StorageFull => (Kind::Output, "free space or record elsewhere"),
        io::ErrorKind::AlreadyExists => {
            (Kind::Output, "another recording began here at the same time: choose another folder")
        }
        _ => (Kind::Output, "choose another folder"),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Error::new(kind, format!("cannot create {name} in {}", folder.display())).because(error).cure(cure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_as_people_write_them() {
        for (text, wanted) in [
            ("10GiB", Limit::Octets(10 << 30)),
            ("1.5 MB", Limit::Octets(1_500_000)),
            ("60s", Limit::Time(Duration::from_secs(60))),
            ("0.5min", Limit::Time(Duration::from_secs(30))),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
        for text in ["", "10", "-1s", "0s", "0MB", "1e3MB", "GiB", "1e400s", "9e99GiB", "5 parsecs"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
        assert_eq!(Limit::default().to_string(), "10.0000 GiB");
    }
}
