//! Writers of captures, with nanoseconds.

use crate::error::{Error, Kind, Result};
use crate::wire::net::{Link, Route};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What readers of captures accept as the longest record.
const SNAP: u32 = 262_144;

/// A buffered file, and its name for errors.
struct Out<W: Write> {
    out: BufWriter<W>,
    name: String,
    scratch: Vec<u8>,
}

impl<W: Write> Out<W> {
    fn new(out: W, name: String) -> Self {
        Out { out: BufWriter::with_capacity(1 << 18, out), name, scratch: Vec::with_capacity(2048) }
    }
    fn put(&mut self, pieces: &[&[u8]]) -> Result<()> {
        pieces.iter().try_for_each(|p| self.out.write_all(p)).map_err(|e| output_error(&self.name, e))
    }
    fn finish(&mut self) -> Result<()> {
        self.out.flush().map_err(|e| output_error(&self.name, e))
    }
    /// The Ethernet frame of a datagram, in `scratch`.
    fn frame(&mut self, route: &Route, payload: &[u8], wire_octets: usize) -> Result<()> {
        self.scratch.clear();
        route.emit_cut(payload, wire_octets, &mut self.scratch).ok_or_else(|| {
            Error::new(Kind::Internal, format!("{} octets do not fit into a UDP datagram", payload.len()))
        })
    }
}

fn create(path: &Path) -> Result<Out<File>> {
    let name = path.display().to_string();
    match File::create(path) {
        Ok(file) => Ok(Out::new(file, name)),
        Err(e) => Err(output_error(&name, e)),
    }
}

/// An error of writing, with what helps against it.
fn output_error(name: &str, error: io::Error) -> Error {
    let (kind, what, cure) = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (
            Kind::Output,
            format!("cannot write {name}: the disk is full"),
            "free some space, or write to another disk; what has been written so far is usable",
        ),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
            Kind::Permission,
            format!("cannot write {name}"),
            "choose a folder that you may write to, or change its permissions",
        ),
        io::ErrorKind::NotFound => {
            (Kind::Output, format!("cannot write {name}"), "create the folder first, or correct the path")
        }
        io::ErrorKind::BrokenPipe => (
            Kind::Output,
            format!("cannot write {name}: its reader has gone"),
            "keep the program at the pipe's end alive",
        ),
        _ => (Kind::Output, format!("cannot write {name}"), "check the disk and the path"),
    };
    Error::new(kind, what).because(error).cure(cure)
}

/// Writes pcap with nanoseconds (magic `a1b23c4d`) in the byte order of little-endian machines.
pub struct PcapWriter<W: Write> {
    out: Out<W>,
}

impl PcapWriter<File> {
    /// Creates a file for Ethernet frames.
    pub fn create(path: &Path) -> Result<Self> {
        Self::start(create(path)?, Link::Ethernet)
    }
}

impl<W: Write> PcapWriter<W> {
    /// Writes to `out`, which errors call `name`.
    pub fn new(out: W, name: &str, link: Link) -> Result<Self> {
        Self::start(Out::new(out, name.to_owned()), link)
    }
    fn start(mut out: Out<W>, link: Link) -> Result<Self> {
        let mut header = [0; 24];
        header[0..4].copy_from_slice(&0xa1b2_3c4du32.to_le_bytes());
        header[4] = 2;
        header[6] = 4;
        header[16..20].copy_from_slice(&SNAP.to_le_bytes());
        header[20..22].copy_from_slice(&link.number().to_le_bytes());
        out.put(&[&header])?;
        Ok(PcapWriter { out })
    }
    /// A frame; `wire_octets` is its length on the wire where `frame` is not all of it. Times count nanoseconds since
    /// 1970 and reach to 2106.
    pub fn frame(&mut self, time: u64, frame: &[u8], wire_octets: u32) -> Result<()> {
        self.out.put(&[&record_header(time, frame, wire_octets), frame])
    }
    /// A datagram, in an Ethernet frame.
    pub fn datagram(&mut self, time: u64, route: &Route, payload: &[u8]) -> Result<()> {
        self.out.frame(route, payload, payload.len())?;
        let Out { out, name, scratch } = &mut self.out;
        let header = record_header(time, scratch, 0);
        out.write_all(&header).and_then(|()| out.write_all(scratch)).map_err(|e| output_error(name, e))
    }
    /// Writes what is buffered. Without it the end of the file may be missing and nobody hears of a full disk.
    pub fn finish(mut self) -> Result<()> {
        self.out.finish()
    }
}

fn record_header(time: u64, frame: &[u8], wire_octets: u32) -> [u8; 16] {
    let octets = frame.len() as u32;
    let seconds = u32::try_from(time / 1_000_000_000).unwrap_or(u32::MAX);
    let fraction = (time % 1_000_000_000) as u32;
    let mut header = [0; 16];
    for (field, value) in header.chunks_exact_mut(4).zip([seconds, fraction, octets, wire_octets.max(octets)]) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    header
}

/// Writes pcapng (draft-ietf-opsawg-pcapng) with nanoseconds, one interface for each leg.
pub struct PcapngWriter<W: Write> {
    out: Out<W>,
    interfaces: u32,
}

impl PcapngWriter<File> {
    /// Creates a file.
    pub fn create(path: &Path) -> Result<Self> {
        Self::start(create(path)?)
    }
}

impl<W: Write> PcapngWriter<W> {
    /// Writes to `out`, which errors call `name`.
    pub fn new(out: W, name: &str) -> Result<Self> {
        Self::start(Out::new(out, name.to_owned()))
    }
    fn start(out: Out<W>) -> Result<Self> {
        let mut writer = PcapngWriter { out, interfaces: 0 };
        let mut body = Vec::new();
        body.extend(0x1a2b_3c4du32.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        option(&mut body, 4, concat!("gdmedia ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(&mut body, 0, &[]);
        writer.block(0x0a0d_0d0a, &body, &[])?;
        Ok(writer)
    }
    /// Describes an interface and returns its number; they count from 0.
    pub fn interface(&mut self, name: &str, link: Link) -> Result<u32> {
        let mut body = Vec::new();
        body.extend(link.number().to_le_bytes());
        body.extend([0, 0]);
        body.extend(SNAP.to_le_bytes());
        option(&mut body, 2, name.as_bytes());
        option(&mut body, 9, &[9]);
        option(&mut body, 0, &[]);
        self.block(1, &body, &[])?;
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }
    /// A frame of an interface; `wire_octets` is its length on the wire where `frame` is not all of it.
    pub fn frame(&mut self, interface: u32, time: u64, frame: &[u8], wire_octets: u32) -> Result<()> {
        self.block(6, &packet_header(interface, time, frame, wire_octets), frame)
    }
    /// A datagram, in an Ethernet frame; `payload` may lack the last of its `wire_octets`.
    pub fn datagram(
        &mut self,
        interface: u32,
        time: u64,
        route: &Route,
        payload: &[u8],
        wire_octets: u16,
    ) -> Result<()> {
        let cut = usize::from(wire_octets).saturating_sub(payload.len());
        self.out.frame(route, payload, usize::from(wire_octets))?;
        let frame = std::mem::take(&mut self.out.scratch);
        let result = self.frame(interface, time, &frame, (frame.len() + cut) as u32);
        self.out.scratch = frame;
        result
    }
    /// Writes what is buffered. Without it the end of the file may be missing and nobody hears of a full disk.
    pub fn finish(mut self) -> Result<()> {
        self.out.finish()
    }
    fn block(&mut self, kind: u32, header: &[u8], data: &[u8]) -> Result<()> {
        let inner = header.len() + data.len();
        let padding = inner.next_multiple_of(4) - inner;
        let total = ((inner + padding + 12) as u32).to_le_bytes();
        self.out.put(&[&kind.to_le_bytes(), &total, header, data, &[0; 3][..padding], &total])
    }
}

fn packet_header(interface: u32, time: u64, frame: &[u8], wire_octets: u32) -> [u8; 20] {
    let octets = frame.len() as u32;
    let mut header = [0; 20];
    let fields = [interface, (time >> 32) as u32, time as u32, octets, wire_octets.max(octets)];
    for (field, value) in header.chunks_exact_mut(4).zip(fields) {
        field.copy_from_slice(&value.to_le_bytes());
    }
    header
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..value.len().min(1024)).unwrap_or_default();
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
