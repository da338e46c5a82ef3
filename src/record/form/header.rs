//! The header of a segment: what its frames are.

use super::{Id, MAGIC, PAGE, VERSION, array_at, crc, pages, put, refuse, u32_at, u64_at};
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output, Plane, WireFormat};
use gdmedia_sdp::{Essence, Flow, Mode, Video};

/// Where the SDP begins.
const TEXT: usize = 256;
/// Where the header's CRC lies: it covers everything before and after.
const CRC: usize = TEXT - 4;
/// Pages of a header at most.
const MAX_PAGES: usize = 16;
/// Planes that a layout has at most.
const PLANES: usize = 3;

/// The beginning of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Of the recording: the same in all its segments and slots.
    pub id: Id,
    /// When the recording began, in nanoseconds of UTC since 1970.
    pub created: u64,
    /// Which segment of the recording, from 0.
    pub segment: u32,
    /// Slots of the recording before this segment.
    pub first_slot: u64,
    /// The flow; ST 2110-20 video.
    pub flow: Flow,
    /// How frames lie in their slots.
    pub layout: Layout,
}

impl Header {
    /// What its frames are on the wire.
    ///
    /// # Errors
    /// The flow is no video, which no header that was read says.
    pub fn video(&self) -> Result<&Video> {
        video(&self.flow)
    }
    /// Octets of a frame: up to the end of its last plane.
    pub fn frame_octets(&self) -> usize {
        frame_octets(&self.layout)
    }
    /// Octets of a slot: its head page and the frame's, up to the next page.
    pub fn slot_octets(&self) -> u64 {
        PAGE as u64 + pages(self.frame_octets() as u64)
    }
    /// Octets of the header itself.
    pub fn octets(&self) -> u64 {
        pages((TEXT + gdmedia_sdp::write(std::slice::from_ref(&self.flow)).len()) as u64)
    }

    /// Its pages.
    ///
    /// # Errors
    /// The SDP of the flow is longer than a header is.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let text = gdmedia_sdp::write(std::slice::from_ref(&self.flow));
        let size = pages((TEXT + text.len()) as u64) as usize;
        if size > MAX_PAGES * PAGE {
            return Err(Error::new(Kind::Usage, format!("the SDP of this flow has {} octets", text.len()))
                .cure("shorten it: a recording keeps at most 64 KiB of it"));
        }
        let (wire, rate) = (&self.layout.wire, self.video()?.rate);
        let mut page = vec![0; size];
        let mut at = 0;
        let mut add = |value: &[u8]| {
            put(&mut page, at, value);
            at += value.len();
        };
        add(&MAGIC);
        add(&VERSION.to_le_bytes());
        add(&(size as u32).to_le_bytes());
        add(&self.slot_octets().to_le_bytes());
        add(&(self.frame_octets() as u64).to_le_bytes());
        add(&self.segment.to_le_bytes());
        add(&(text.len() as u32).to_le_bytes());
        add(&self.first_slot.to_le_bytes());
        add(&self.id);
        add(&self.created.to_le_bytes());
        add(&number(self.layout.output).to_le_bytes());
        add(&(self.layout.planes.len() as u32).to_le_bytes());
        for plane in planes(&self.layout) {
            for value in [plane.offset, plane.stride, plane.row_octets, plane.rows] {
                add(&(value as u64).to_le_bytes());
            }
        }
        let (num, den) = rate.map_or((0, 0), |r| (r.num, r.den));
        for value in [wire.width, wire.height, num, den, wire.depth.bits(), wire.pgroup.octets] {
            add(&value.to_le_bytes());
        }
        put(&mut page, TEXT, text.as_bytes());
        let sum = header_crc(&page);
        put(&mut page, CRC, &sum.to_le_bytes());
        Ok(page)
    }

    /// How many octets the header has that begins with this page.
    ///
    /// # Errors
    /// It is no header, or one of another version.
    pub fn size(page: &[u8]) -> Result<usize> {
        if !page.starts_with(&MAGIC) {
            return Err(refuse("this is no recording"));
        }
        match u32_at(page, 8) {
            VERSION => {}
            other => {
                return Err(Error::new(Kind::Data, format!("a recording of version {other}, and {VERSION} is known"))
                    .cure("read it with the gdmedia that wrote it"));
            }
        }
        let size = u32_at(page, 12) as usize;
        let fits = size.is_multiple_of(PAGE) && (1..=MAX_PAGES).contains(&(size / PAGE));
        if fits { Ok(size) } else { Err(refuse(format!("its header says that it has {size} octets"))) }
    }

    /// Reads its pages.
    ///
    /// # Errors
    /// They are no header, damaged, or describe what this version of the program lays out otherwise.
    pub fn decode(octets: &[u8]) -> Result<Self> {
        let size = Self::size(octets)?;
        let page = octets.get(..size).ok_or_else(|| refuse("it ends within its header"))?;
        if header_crc(page) != u32_at(page, CRC) {
            return Err(refuse("its header is damaged: its CRC is wrong"));
        }
        let length = u32_at(page, 36) as usize;
        let text = page.get(TEXT..TEXT.saturating_add(length)).ok_or_else(|| refuse("its SDP is cut off"))?;
        let flow = gdmedia_sdp::parse(text, Mode::Lenient).flows.into_iter().next();
        let flow = flow.ok_or_else(|| refuse("its SDP has no flow"))?;
        let wire = WireFormat::from_video(video(&flow)?).ok_or_else(|| refuse("its SDP is of no known picture"))?;
        let output = *Output::ALL.get(u32_at(page, 72) as usize).ok_or_else(|| refuse("its layout is not known"))?;
        let layout = Layout::new(wire, output).map_err(|e| refuse(e.to_string()))?;
        let said = |i: usize| [0, 8, 16, 24].map(|part| u64_at(page, 80 + 32 * i + part));
        let same = planes(&layout)
            .enumerate()
            .all(|(i, p)| said(i) == [p.offset, p.stride, p.row_octets, p.rows].map(|v| v as u64));
        let header = Header {
            id: array_at(page, 48),
            created: u64_at(page, 64),
            segment: u32_at(page, 32),
            first_slot: u64_at(page, 40),
            flow,
            layout,
        };
        let sizes = [header.slot_octets(), header.frame_octets() as u64];
        if !same
            || [u64_at(page, 16), u64_at(page, 24)] != sizes
            || u32_at(page, 76) != header.layout.planes.len() as u32
        {
            return Err(Error::new(Kind::Data, "its frames lie otherwise than this gdmedia lays them")
                .cure("read it with the gdmedia that wrote it"));
        }
        Ok(header)
    }
}

fn video(flow: &Flow) -> Result<&Video> {
    match &flow.essence {
        Essence::Video(video) => Ok(video),
        other => Err(refuse(format!("it is of {} and not of ST 2110-20 video", other.kind()))),
    }
}

/// Octets of a frame of this layout: up to the end of its last plane.
pub(in crate::record) fn frame_octets(layout: &Layout) -> usize {
    layout.planes.iter().map(|p| p.offset + p.stride * p.rows).max().unwrap_or(0)
}

/// Three of them, whatever there is.
fn planes(layout: &Layout) -> impl Iterator<Item = Plane> {
    (0..PLANES).map(|i| layout.planes.get(i).copied().unwrap_or_default())
}

fn number(output: Output) -> u32 {
    Output::ALL.iter().position(|&o| o == output).unwrap_or_default() as u32
}

fn header_crc(page: &[u8]) -> u32 {
    let (before, rest) = page.split_at_checked(CRC).unwrap_or((page, &[]));
    crc32c::crc32c_append(crc(before), rest.get(4..).unwrap_or_default())
}
