//! Captures: pcap and pcapng, gzipped or not, as streams in constant memory; and their writers.
//!
//! ```no_run
//! # fn main() -> gdmedia::error::Result<()> {
//! let mut capture = gdmedia::wire::capture::Capture::open("a.pcap".as_ref())?;
//! while let Some(record) = capture.next_record()? {
//!     println!("{} ns: {} octets of {}", record.time, record.octets.len(), record.wire_octets);
//! }
//! # Ok(())
//! # }
//! ```

mod input;
mod pcap;
mod pcapng;
mod sniff;
mod write;

use crate::error::{Error, Kind, Result};
use crate::wire::net::Link;
use input::Input;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub use write::{PcapWriter, PcapngWriter};

/// Octets of a record at most: what the readers in the field accept (262144), and room beyond.
const MAX_RECORD: u32 = 1 << 20;

/// One captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since 1970 by the capture's clock, which may run on UTC or TAI.
    pub time: u64,
    /// How `octets` begin.
    pub link: Link,
    /// The interface, counted over all sections of the file; 0 in pcap.
    pub interface: u32,
    /// What the capture holds of the frame.
    pub octets: &'a [u8],
    /// Octets that the frame had on the wire: more than `octets` has when a snap length cut it.
    pub wire_octets: u32,
}

/// What was met on the way through a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records handed over.
    pub records: u64,
    /// Of these: cut by a snap length.
    pub snapped: u64,
    /// Records not handed over, of interfaces whose link layer does not lead to UDP here.
    pub other_link: u64,
    /// The file ends within a record: it was cut short, and used up to there.
    pub cut_short: bool,
}

/// Container formats.
enum Format {
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
}

/// A capture that is being read.
pub struct Capture<R: Read = Box<dyn Read + Send>> {
    input: Input<R>,
    format: Format,
    name: String,
    counters: Counters,
    ended: bool,
}

impl Capture {
    /// Opens a capture file.
    ///
    /// # Errors
    /// When it cannot be opened; when it is no capture, with what it is instead; when its link layer has no way to UDP.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        Capture::new(open_file(path, &name)?, &name)
    }
    /// As [`Capture::open`]; a thread reads (and decompresses) ahead. For large files that are looked through once.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn open_ahead(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let input = Input::new(open_file(path, &name)?).and_then(Input::ahead);
        Capture::begin(input.map_err(|e| read_error(&name, e))?, &name)
    }
}

fn open_file(path: &Path, name: &str) -> Result<Box<dyn Read + Send>> {
    let file = File::open(path).map_err(|e| open_error(name, e))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(Error::new(Kind::Data, format!("{name} is a folder")).cure("name a capture file in it"));
    }
    Ok(Box::new(file))
}

impl<R: Read> Capture<R> {
    /// Reads a capture from `read`, which errors call `name`.
    ///
    /// # Errors
    /// As [`Capture::open`].
    pub fn new(read: R, name: &str) -> Result<Self> {
        Self::begin(Input::new(read).map_err(|e| read_error(name, e))?, name)
    }
    fn begin(mut input: Input<R>, name: &str) -> Result<Self> {
        let first = input.look(8).map_err(|e| read_error(name, e))?;
        let format = match first.get(..4) {
            Some([0x0a, 0x0d, 0x0d, 0x0a]) => Some(Format::Pcapng(pcapng::Pcapng::default())),
            Some(_) => pcap::Pcap::begin(&mut input, name)?.map(Format::Pcap),
            None => None,
        };
        let Some(format) = format else {
            return Err(sniff::not_a_capture(&mut input, name));
        };
        Ok(Capture { input, format, name: name.to_owned(), counters: Counters::default(), ended: false })
    }

    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// When the file cannot be read or is damaged; after an error there is nothing more.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        if self.ended {
            return Ok(None);
        }
        // Until something says otherwise: an error or the end leaves by one of the returns below.
        self.ended = true;
        let found = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.input),
            Format::Pcapng(pcapng) => pcapng.next(&mut self.input, &mut self.counters.other_link),
        };
        match found {
            Ok(Some(found)) => {
                self.ended = false;
                let octets = self.input.taken(found.octets);
                let wire_octets = found.wire_octets.max(octets.len() as u32);
                self.counters.records += 1;
                self.counters.snapped += u64::from(octets.len() < wire_octets as usize);
                Ok(Some(Record { time: found.time, link: found.link, interface: found.interface, octets, wire_octets }))
            }
            Ok(None) => self.end(),
            Err(Stop::CutShort) => {
                self.counters.cut_short = true;
                self.end()
            }
            Err(Stop::Read(e)) => Err(read_error(&self.name, e)),
            Err(Stop::Damaged(what)) => {
                let at = self.input.position();
                Err(Error::new(Kind::Data, format!("the capture {} is damaged at octet {at}: {what}", self.name))
                    .cure("capture again, or repair the file (pcapfix)"))
            }
        }
    }

    fn end(&self) -> Result<Option<Record<'_>>> {
        match &self.format {
            Format::Pcapng(pcapng) if self.counters.records == 0 => match pcapng.refused_link() {
                Some(number) => Err(link_error(number, &self.name)),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// What has been met so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
    /// Octets of the file, decompressed where it was gzip, that have been passed.
    pub fn position(&self) -> u64 {
        self.input.position()
    }
    /// The file is gzip.
    pub fn gzip(&self) -> bool {
        self.input.gzip()
    }
    /// The name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<R: Read> std::fmt::Debug for Capture<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("name", &self.name).field("counters", &self.counters).finish_non_exhaustive()
    }
}

/// A record whose octets were the last that the input handed out.
struct Found {
    time: u64,
    link: Link,
    interface: u32,
    octets: u32,
    wire_octets: u32,
}

/// Why reading stops before the end.
#[derive(Debug)]
enum Stop {
    CutShort,
    Damaged(String),
    Read(std::io::Error),
}

impl From<std::io::Error> for Stop {
    fn from(e: std::io::Error) -> Self {
        Stop::Read(e)
    }
}

fn open_error(name: &str, error: std::io::Error) -> Error {
    let (kind, cure) = match error.kind() {
        std::io::ErrorKind::NotFound => (Kind::Data, "correct the path"),
        std::io::ErrorKind::PermissionDenied => (Kind::Permission, "change the file's permissions"),
        _ => (Kind::Data, "check the path and the disk"),
    };
    Error::new(kind, format!("cannot open the capture {name}")).because(error).cure(cure)
}

fn read_error(name: &str, error: std::io::Error) -> Error {
    let cure = match error.kind() {
        // What a decompressor says.
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => {
            "the gzip data is damaged: copy the file again"
        }
        _ => "check the disk, or copy the file again",
    };
    Error::new(Kind::Data, format!("cannot read the capture {name}")).because(error).cure(cure)
}

fn link_error(number: u32, name: &str) -> Error {
    Error::new(
        Kind::Data,
        format!("the capture {name} has link type {number} ({}), which is not read here", sniff::link_name(number)),
    )
    .cure("capture on an Ethernet interface, on `lo` or on `any`: tcpdump -i eth0 -s 0 -w file.pcap udp")
}

#[cfg(test)]
mod tests;
