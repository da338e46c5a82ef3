//! Segments and recordings that are there: opened, checked, scanned, mended.

use super::form::{self, End, Entry, Header, Id, PAGE, SlotHeader, Tail};
use crate::error::{Error, Kind, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where octets of a segment come from.
pub trait Octets: Send {
    /// How many there are.
    ///
    /// # Errors
    /// That cannot be told.
    fn count(&self) -> io::Result<u64>;
    /// Fills `room` with those from `at` on.
    ///
    /// # Errors
    /// There are not so many, or they cannot be read.
    fn read(&self, room: &mut [u8], at: u64) -> io::Result<()>;
}

impl Octets for File {
    fn count(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
    fn read(&self, room: &mut [u8], at: u64) -> io::Result<()> {
        self.read_exact_at(room, at)
    }
}

impl Octets for Vec<u8> {
    fn count(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
    fn read(&self, room: &mut [u8], at: u64) -> io::Result<()> {
        let from = usize::try_from(at).ok().and_then(|at| self.get(at..)?.get(..room.len()));
        room.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// How the slots of a segment are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// By its index.
    Index,
    /// By a scan: it has no index, or a damaged one.
    Scan,
}

/// One file of a recording, or octets like it.
#[derive(Debug)]
pub struct Segment<O: Octets = File> {
    octets: O,
    name: String,
    header: Header,
    entries: Vec<Entry>,
    known: Known,
    tail: Option<Tail>,
}

impl Segment<File> {
    /// Opens a file.
    ///
    /// # Errors
    /// It cannot be read, or is no segment of a recording.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| cannot_read(path, e))?;
        if file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(Error::new(Kind::Data, format!("{} is a folder, not a segment", path.display()))
                .cure("name a .gdr file in it"));
        }
        Segment::of(file, &path.display().to_string())
    }
}

impl<O: Octets> Segment<O> {
    /// Of these octets; `name` is said where they are wrong.
    ///
    /// # Errors
    /// They cannot be read, or are no segment.
    pub fn of(octets: O, name: &str) -> Result<Self> {
        let named = |e: Error| {
            let cure = e.cure_text().to_owned();
            Error::new(e.kind(), format!("{name}: {}", e.in_one_line())).cure(cure)
        };
        let unreadable =
            |e: io::Error| Error::new(Kind::Data, format!("cannot read {name}")).because(e).cure("check the disk");
        let count = octets.count().map_err(unreadable)?;
        let mut page = vec![0; PAGE.min(usize::try_from(count).unwrap_or(PAGE))];
        octets.read(&mut page, 0).map_err(unreadable)?;
        let size = Header::size(&page).map_err(named)?;
        let mut pages = vec![0; size.min(usize::try_from(count).unwrap_or(size))];
        octets.read(&mut pages, 0).map_err(unreadable)?;
        let header = Header::decode(&pages).map_err(named)?;
        let mut segment =
            Segment { octets, name: name.to_owned(), header, entries: Vec::new(), known: Known::Index, tail: None };
        match segment.index(size as u64, count) {
            Some((tail, entries)) => (segment.tail, segment.entries) = (Some(tail), entries),
            None => {
                segment.known = Known::Scan;
                segment.scan(size as u64, count).map_err(unreadable)?;
            }
        }
        Ok(segment)
    }

    /// The index, where there is one that is whole.
    fn index(&self, begin: u64, count: u64) -> Option<(Tail, Vec<Entry>)> {
        let mut page = [0; PAGE];
        let at = count.checked_sub(PAGE as u64)?;
        self.octets.read(&mut page, at).ok()?;
        let tail = Tail::decode(&page, &self.header.id)?;
        let end_of_slots = tail.slots.checked_mul(self.header.slot_octets())?.checked_add(begin)?;
        let octets = tail.index_octets()?;
        // Nothing is believed that does not lie in the file.
        if tail.index != end_of_slots || tail.index.checked_add(form::pages(octets))? != at {
            return None;
        }
        let mut all = vec![0; usize::try_from(octets).ok()?];
        self.octets.read(&mut all, tail.index).ok()?;
        Some((tail, form::entries(&all, &tail)?))
    }

    /// Looks at the head of every slot that the file has room for; of the last ones at their octets too, which may have been
    /// on their way when whoever wrote them was killed.
    fn scan(&mut self, begin: u64, count: u64) -> io::Result<()> {
        let slots = count.saturating_sub(begin) / self.header.slot_octets();
        let mut last = 0;
        for number in 0..slots {
            let head = self.head(number);
            if head.is_some() {
                last = number + 1;
            }
            self.entries.push(head.as_ref().map(Entry::from).unwrap_or_default());
        }
        self.entries.truncate(last as usize);
        let mut octets = vec![0; self.header.frame_octets()];
        for number in last.saturating_sub(IN_FLIGHT)..last {
            if self.load(number, &mut octets).is_err() {
                self.entries[number as usize].valid = false;
            }
        }
        while self.entries.last().is_some_and(|e| !e.valid) {
            self.entries.pop();
        }
        Ok(())
    }

    /// What its frames are.
    pub const fn header(&self) -> &Header {
        &self.header
    }
    /// Its file, for people.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// An entry for each of its slots.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
    /// How they are known.
    pub const fn known(&self) -> Known {
        self.known
    }
    /// Why it ends; none where it was not finished.
    pub fn end(&self) -> Option<End> {
        self.tail.map(|tail| tail.end)
    }
    /// Frames that came after its last slot and are not in the recording.
    pub fn gap_at_end(&self) -> u64 {
        self.tail.map_or(0, |tail| tail.gap)
    }
    /// Where slot `number` begins.
    pub fn place(&self, number: u64) -> u64 {
        self.header.octets().saturating_add(number.saturating_mul(self.header.slot_octets()))
    }

    /// The head of slot `number`; none where it is damaged, or was never written.
    pub fn head(&self, number: u64) -> Option<SlotHeader> {
        let mut page = [0; PAGE];
        self.octets.read(&mut page, self.place(number)).ok()?;
        let head = SlotHeader::decode(&page, &self.header.id, &self.header.layout.wire, self.header.frame_octets())?;
        (head.slot == self.header.first_slot.saturating_add(number)).then_some(head)
    }

    /// Reads the frame of slot `number` into `room`, which has at least [`Header::frame_octets`].
    ///
    /// # Errors
    /// Its head or its octets are damaged, or cannot be read; or there is not so much room.
    pub fn load(&self, number: u64, room: &mut [u8]) -> Result<SlotHeader> {
        let head = self.head(number).ok_or_else(|| self.damaged(number, "its head is damaged"))?;
        let octets = room
            .get_mut(..self.header.frame_octets())
            .ok_or_else(|| Error::new(Kind::Internal, "too little room for a frame"))?;
        self.octets
            .read(octets, self.place(number).saturating_add(PAGE as u64))
            .map_err(|e| self.damaged(number, "its octets cannot be read").because(e))?;
        if form::crc(octets) == head.crc {
            Ok(head)
        } else {
            Err(self.damaged(number, "the CRC of its octets is wrong"))
        }
    }

    fn damaged(&self, number: u64, why: &str) -> Error {
        Error::new(Kind::Data, format!("{}: slot {number}: {why}", self.name))
            .cure("the frame is lost; check the disk it lies on")
    }
}

/// Slots that may have been on their way at once, and one to spare.
const IN_FLIGHT: u64 = 2;

/// What a check of every slot found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Found {
    /// Slots whose head and octets are right.
    pub good: u64,
    /// Slots that the index has and that are not right.
    pub damaged: u64,
    /// Slots that were never written whole.
    pub empty: u64,
    /// Frames that are not complete.
    pub incomplete: u64,
    /// Frames that the recorder knew of and had to leave out.
    pub left_out: u64,
    /// The first that is damaged, and why.
    pub first: Option<String>,
}

impl Found {
    /// Everything together.
    pub fn add(&mut self, other: Found) {
        self.good += other.good;
        self.damaged += other.damaged;
        self.empty += other.empty;
        self.incomplete += other.incomplete;
        self.left_out += other.left_out;
        self.first = self.first.take().or(other.first);
    }
}

impl<O: Octets> Segment<O> {
    /// Reads every slot; `each` gets those that are right, with their octets.
    pub fn check(&self, mut each: impl FnMut(&SlotHeader, &[u8])) -> Found {
        let mut found = Found { left_out: self.gap_at_end(), ..Found::default() };
        let mut octets = vec![0; self.header.frame_octets()];
        for (number, entry) in self.entries.iter().enumerate() {
            match self.load(number as u64, &mut octets) {
                Ok(head) => {
                    found.good += 1;
                    found.incomplete += u64::from(!head.meta.complete);
                    found.left_out += head.gap;
                    each(&head, &octets);
                }
                Err(_) if !entry.valid => found.empty += 1,
                Err(error) => {
                    found.damaged += 1;
                    found.first.get_or_insert_with(|| error.in_one_line());
                }
            }
        }
        found
    }
}

/// Gives a segment that was not finished its index: what its scan found, and nothing of what lies behind.
///
/// # Errors
/// It cannot be written.
pub fn mend(path: &Path) -> Result<Segment> {
    let segment = Segment::open(path)?;
    if segment.known() == Known::Index {
        return Ok(segment);
    }
    let failed = |e: io::Error| {
        Error::new(Kind::Output, format!("cannot give {} an index", path.display()))
            .because(e)
            .cure("make it writable, or copy it to a disk with room; it can be read without an index too")
    };
    let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
    finish(&file, &segment.header, &segment.entries, 0, End::Recovered).map_err(failed)?;
    drop(file);
    Segment::open(path)
}

/// Writes index and tail behind the last slot, and cuts off what lies behind them.
pub(super) fn finish(file: &File, header: &Header, entries: &[Entry], gap: u64, end: End) -> io::Result<()> {
    let slots = entries.len() as u64;
    let at = header.octets() + slots * header.slot_octets();
    let (mut octets, crc) = form::put_entries(entries);
    octets.resize(form::pages(octets.len() as u64) as usize, 0);
    let tail = Tail { id: header.id, slots, index: at, gap, end, crc };
    octets.extend_from_slice(&tail.encode());
    // Room for it first, where the disk is full of what was to come.
    file.set_len(at)?;
    file.write_all_at(&octets, at)?;
    file.sync_data()
}

/// The segments of one recording, in order.
#[derive(Debug)]
pub struct Recording {
    segments: Vec<Segment>,
}

impl Recording {
    /// Opens a segment alone, or the one recording of a folder.
    ///
    /// # Errors
    /// There is none, there are several in the folder, or one of its segments cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            return Ok(Recording { segments: vec![Segment::open(path)?] });
        }
        let files = files(path)?;
        if files.is_empty() {
            return Err(Error::new(Kind::Data, format!("{} has no .gdr file", path.display()))
                .cure("name the folder that gdmedia record --to wrote into, or a .gdr file"));
        }
        let mut segments = files.iter().map(|file| Segment::open(file)).collect::<Result<Vec<_>>>()?;
        segments.sort_by_key(|s| (s.header.created, s.header.id, s.header.segment));
        let first: Id = segments[0].header.id;
        if let Some(other) = segments.iter().find(|s| s.header.id != first) {
            let what = format!(
                "{} holds several recordings: {} begins one, {} another",
                path.display(),
                segments[0].name,
                other.name
            );
            return Err(Error::new(Kind::Usage, what).cure("name one file, or give each recording a folder of its own"));
        }
        Ok(Recording { segments })
    }
    /// Does `path` name a recording: a file that begins like one, or a folder?
    pub fn is_at(path: &Path) -> bool {
        let mut page = [0; 8];
        match path.is_dir() {
            true => files(path).is_ok_and(|files| !files.is_empty()),
            false => {
                let regular = std::fs::metadata(path).is_ok_and(|m| m.is_file());
                regular && File::open(path).is_ok_and(|f| f.read_exact_at(&mut page, 0).is_ok()) && page == form::MAGIC
            }
        }
    }
    /// At least one.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
    /// What its frames are: the header of its first segment.
    pub fn header(&self) -> &Header {
        self.segments[0].header()
    }
    /// Places of all slots that hold a frame: segment and slot.
    pub fn places(&self) -> impl Iterator<Item = (usize, u64)> {
        let of = |(n, s): (usize, &Segment)| {
            let valid: Vec<_> =
                s.entries.iter().enumerate().filter(|(_, e)| e.valid).map(|(i, _)| (n, i as u64)).collect();
            valid
        };
        self.segments.iter().enumerate().flat_map(of).collect::<Vec<_>>().into_iter()
    }
    /// Frames that it holds.
    pub fn frames(&self) -> u64 {
        self.segments.iter().map(|s| s.entries.iter().filter(|e| e.valid).count() as u64).sum()
    }
    /// What is unusual about it, for people.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for segment in &self.segments {
            if segment.known == Known::Scan {
                remarks.push(format!("{} was not finished; its slots were found by a scan", segment.name));
            }
            let holes = segment.entries.iter().filter(|e| !e.valid).count();
            if holes > 0 {
                remarks.push(format!("{} has {holes} slots that were never written whole", segment.name));
            }
        }
        let mut numbers = self.segments.iter().map(|s| s.header.segment);
        if numbers.next().is_some_and(|first| numbers.enumerate().any(|(n, s)| s != first + n as u32 + 1)) {
            remarks.push("segments in the middle are missing".into());
        }
        remarks
    }
    /// Reads a frame; see [`Segment::load`].
    ///
    /// # Errors
    /// As there.
    pub fn load(&self, (segment, slot): (usize, u64), room: &mut [u8]) -> Result<SlotHeader> {
        let segment = self.segments.get(segment);
        segment.ok_or_else(|| Error::new(Kind::Internal, "no such segment"))?.load(slot, room)
    }
}

/// The segments that lie in a folder, by their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let cannot = |e| cannot_read(folder, e);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.extension().is_some_and(|e| e == form::SUFFIX) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn cannot_read(path: &Path, error: io::Error) -> Error {
    let (kind, cure) = match error.kind() {
        io::ErrorKind::NotFound => (Kind::Data, "check the name and the folder you are in"),
        io::ErrorKind::PermissionDenied => (Kind::Permission, "make it readable for this user"),
        _ => (Kind::Data, "check the file and its disk"),
    };
    Error::new(kind, format!("cannot read {}", path.display())).because(error).cure(cure)
}
