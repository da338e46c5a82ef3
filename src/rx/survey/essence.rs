//! What a flow carries: every packet is held against the payload format of each standard, and the one that nearly all
//! packets fit wins. The formats exclude one another by their length fields; the order of [`Evidence::judge`] decides
//! where they do not.

use super::flow::{Ends, FoundFlow, FoundRtp};
use crate::sdp::{Depth, Sampling};
use crate::wire::{be16, be32, rtp, srd};
use std::fmt;

/// What a flow carries.
#[derive(Clone, Debug, PartialEq)]
pub enum Essence {
    /// ST 2110-20.
    Video(FoundVideo),
    /// ST 2110-22, JPEG XS (RFC 9134).
    CompressedVideo,
    /// ST 2110-30 or AES67.
    Audio(FoundAudio),
    /// ST 2110-31 (AM824).
    Aes3(FoundAudio),
    /// ST 2110-40 (RFC 8331).
    Ancillary,
    /// ST 2110-41.
    FastMetadata,
    /// ST 2110-43 (RFC 8759).
    TimedText,
    /// ST 2022-6.
    Sdi2022_6,
    /// IEEE 1588.
    Ptp,
    /// RTCP.
    Rtcp,
    /// RTP, of what is not known.
    Rtp,
    /// UDP, of what is not known.
    Udp,
}

impl fmt::Display for Essence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Essence::Video(v) => write!(f, "ST 2110-20 video ({v})"),
            Essence::CompressedVideo => f.write_str("ST 2110-22 JPEG XS video"),
            Essence::Audio(a) => write!(f, "ST 2110-30 audio ({a})"),
            Essence::Aes3(a) => {
                write!(f, "ST 2110-31 AES3 ({} subframes, {} samples a packet)", a.octets / 4, a.samples)
            }
            Essence::Ancillary => f.write_str("ST 2110-40 ancillary data"),
            Essence::FastMetadata => f.write_str("ST 2110-41 fast metadata"),
            Essence::TimedText => f.write_str("ST 2110-43 timed text"),
            Essence::Sdi2022_6 => f.write_str("ST 2022-6 (SDI over IP)"),
            Essence::Ptp => f.write_str("PTP"),
            Essence::Rtcp => f.write_str("RTCP"),
            Essence::Rtp => f.write_str("RTP of an unknown kind"),
            Essence::Udp => f.write_str("unknown"),
        }
    }
}

/// What can be said of uncompressed video without its SDP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundVideo {
    /// Pixels a row at least.
    pub width: u32,
    /// Rows of the frame at least; both fields.
    pub height: u32,
    /// Second fields, or segments, occur.
    pub fields: bool,
    /// Most sample row data headers in a packet.
    pub segments: u8,
    /// Octets and the pixels that they hold, where neighbouring segments of a row tell.
    pub density: Option<(u16, u16)>,
    /// Combinations of sampling and depth with that density.
    pub formats: Vec<(Sampling, Depth)>,
}

impl fmt::Display for FoundVideo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (width, height, fields) = (self.width, self.height, if self.fields { " in fields" } else { "" });
        write!(f, "at least {width}x{height}{fields}")?;
        // One name is enough for people: the others have the same density.
        match self.formats.first() {
            Some((sampling, depth)) => write!(f, ", {sampling} {depth} bit or alike"),
            None => Ok(()),
        }
    }
}

/// What can be said of audio without its SDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundAudio {
    /// Samples of a channel in a packet.
    pub samples: u32,
    /// Octets of one sample of all channels.
    pub octets: u32,
}

impl fmt::Display for FoundAudio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels = |n: u32, what: &str| format!("{n} channel{} of {what}", if n == 1 { "" } else { "s" });
        let mut ways = Vec::new();
        if self.octets.is_multiple_of(3) {
            ways.push(channels(self.octets / 3, "L24"));
        }
        if self.octets.is_multiple_of(2) {
            ways.push(channels(self.octets / 2, "L16"));
        }
        write!(f, "{}, {} samples a packet", ways.join(" or "), self.samples)
    }
}

/// How many packets fit each format.
#[derive(Default)]
pub(super) struct Evidence {
    packets: u64,
    ptp: u64,
    rtcp: u64,
    video: u64,
    video_found: FoundVideo,
    last_srd: Option<(u16, srd::Srd)>,
    ancillary: u64,
    text: u64,
    jpegxs: u64,
    jpegxs_starts: u64,
    sdi: u64,
    metadata: u64,
    aes3: u64,
    /// Wire octets of the payload of every packet, and the timestamp step of every following packet.
    payload: Option<(u16, bool)>,
    step: Option<(u32, bool)>,
}

impl Evidence {
    /// PTP and RTCP, which are no media; counted.
    pub(super) fn not_media(&mut self, ends: &Ends, octets: &[u8]) -> bool {
        self.packets += 1;
        let ptp_port = match ends {
            Ends::Ethernet(..) => true,
            Ends::Udp(_, destination) => matches!(destination.port(), 319 | 320),
        };
        // The version is in the lower half of the second octet (1 and 2 are in use).
        if ptp_port && octets.get(1).is_some_and(|b| matches!(b & 0x0f, 1 | 2)) {
            self.ptp += 1;
            return true;
        }
        let rtcp = rtp::is_rtcp(octets);
        self.rtcp += u64::from(rtcp);
        rtcp
    }

    pub(super) fn add(&mut self, header: &rtp::Header, octets: &[u8], last: Option<(u16, u32)>) {
        let wire = header.payload.end - header.payload.start;
        let from = usize::from(header.payload.start).min(octets.len());
        let payload = octets.get(from..octets.len().min(usize::from(header.payload.end))).unwrap_or_default();
        self.video += u64::from(self.video_packet(header, octets));
        self.ancillary += u64::from(ancillary(payload, wire));
        self.text += u64::from(timed_text(header, payload, wire));
        if let Some(start) = jpeg_xs(header, payload) {
            self.jpegxs += 1;
            self.jpegxs_starts += u64::from(start);
        }
        self.sdi += u64::from(sdi(payload, wire));
        self.metadata += u64::from(fast_metadata(header, payload, wire));
        self.aes3 += u64::from(am824(payload));
        let (octets, same) = self.payload.unwrap_or((wire, true));
        self.payload = Some((octets, same && octets == wire));
        if let Some((sequence, timestamp)) = last
            && header.sequence == sequence.wrapping_add(1)
        {
            let step = header.timestamp.wrapping_sub(timestamp);
            let (first, same) = self.step.unwrap_or((step, true));
            self.step = Some((first, same && first == step));
        }
    }

    /// Segments that fill the payload.
    fn video_packet(&mut self, header: &rtp::Header, octets: &[u8]) -> bool {
        let Ok(srds) = srd::parse(octets, header.payload.clone()) else { return false };
        // BPM's last packet may be as long as the others by zeros; otherwise nothing follows the segments.
        let (data_end, end) = (u32::from(srds.data_at) + srds.data_octets, usize::from(header.payload.end));
        let tail = octets.get(data_end as usize..octets.len().min(end)).unwrap_or_default();
        let filled = header.padding_unseen || tail.iter().all(|b| *b == 0);
        if !filled || srds.iter().any(|s| s.length == 0) {
            return false;
        }
        let found = &mut self.video_found;
        found.segments = found.segments.max(u8::try_from(srds.count()).unwrap_or(u8::MAX));
        for srd in srds.iter() {
            found.fields |= srd.field;
            found.height = found.height.max(u32::from(srd.row) + 1);
            if let Some((sequence, last)) = self.last_srd
                && header.sequence.wrapping_sub(sequence) <= 1
                && (last.row, last.field) == (srd.row, srd.field)
                && srd.offset > last.offset
            {
                found.density.get_or_insert((last.length, srd.offset - last.offset));
            }
            if let Some((length, pixels)) = found.density {
                let end = u32::from(srd.offset) + u32::from(srd.length) * u32::from(pixels) / u32::from(length);
                found.width = found.width.max(end);
            }
            self.last_srd = Some((header.sequence, srd));
        }
        true
    }

    pub(super) fn judge(mut self, flow: &FoundFlow, rtp: &FoundRtp) -> (Essence, String) {
        let most = |n: u64, of: u64| of > 0 && n * 10 >= of * 9;
        let of = rtp.packets;
        let said = |n: u64, what: &str| format!("{n} of {of} RTP packets {what}");
        if most(self.ptp, self.packets) {
            return (Essence::Ptp, "UDP port 319 or 320, or EtherType 88f7, with a PTP version".into());
        }
        if most(self.rtcp, self.packets) {
            return (Essence::Rtcp, "RTCP packet types".into());
        }
        if !most(of, self.packets - self.ptp - self.rtcp) {
            return (Essence::Udp, format!("{of} of {} packets begin like RTP", flow.packets));
        }
        if most(self.ancillary, of) {
            return (Essence::Ancillary, said(self.ancillary, "have the structure of RFC 8331"));
        }
        if most(self.sdi, of) {
            return (Essence::Sdi2022_6, said(self.sdi, "hold 1376 octets behind an ST 2022-6 header"));
        }
        if most(self.text, of) {
            return (Essence::TimedText, said(self.text, "hold text behind the length of RFC 8759"));
        }
        if most(self.jpegxs, of) && self.jpegxs_starts > 0 {
            let why = format!("the header of RFC 9134, and {} pictures that begin as JPEG XS", self.jpegxs_starts);
            return (Essence::CompressedVideo, said(self.jpegxs, &format!("have {why}")));
        }
        if most(self.video, of) {
            let why = said(self.video, "have row headers (RFC 4175) whose lengths fill the packet");
            return (Essence::Video(self.finish_video()), why);
        }
        if let (Some((octets, true)), Some((samples, true))) = (self.payload, self.step)
            && let Some(audio) = audio(u32::from(octets), samples)
        {
            let why = format!("every packet has {octets} octets and moves the timestamp by {samples}");
            if most(self.aes3, of) && audio.octets.is_multiple_of(8) {
                return (Essence::Aes3(audio), why + ", and the words have AM824's first bits");
            }
            return (Essence::Audio(audio), why);
        }
        if most(self.metadata, of) {
            return (Essence::FastMetadata, said(self.metadata, "are a chain of ST 2110-41 data items"));
        }
        (Essence::Rtp, "RTP, but no payload format of ST 2110 fits".into())
    }

    fn finish_video(&mut self) -> FoundVideo {
        let mut found = std::mem::take(&mut self.video_found);
        if found.fields {
            found.height *= 2;
        }
        let Some((octets, pixels)) = found.density else { return found };
        // The usual ones first.
        let samplings = [Sampling::YCbCr422, Sampling::Rgb, Sampling::YCbCr420];
        let others = Sampling::ALL.iter().copied().filter(|s| !samplings.contains(s));
        for sampling in samplings.into_iter().chain(others) {
            for depth in Depth::ALL.iter().copied() {
                let fits = sampling.pgroup(depth).is_some_and(|p| {
                    u64::from(octets) * u64::from(p.width()) == u64::from(pixels) * u64::from(p.octets)
                });
                if fits {
                    found.formats.push((sampling, depth));
                }
            }
        }
        found
    }
}

/// RFC 8331: Length and ANC_Count agree with the chain of ANC packets, as far as it is there.
fn ancillary(payload: &[u8], wire: u16) -> bool {
    let (Some(length), Some(word)) = (be16(payload, 2), be32(payload, 4)) else { return false };
    let (count, field, reserved) = (word >> 24, word >> 22 & 3, word & 0x3f_ffff);
    if length.checked_add(8) != Some(wire) || field == 1 || reserved != 0 || (count == 0) != (length == 0) {
        return false;
    }
    let mut at = 0;
    for _ in 0..count {
        // DID, SDID and Data_Count are the 30 bits behind the first word; the count's low eight are bits 9 to 2.
        let Some(word) = be32(payload, 8 + at + 4) else { return payload.len() < usize::from(wire) };
        let octets = 4 + 4 * ((((word >> 2) & 0xff) as usize + 4) * 10).div_ceil(32);
        at += octets;
        if at > usize::from(length) {
            return false;
        }
    }
    at == usize::from(length)
}

/// RFC 8759: reserved, a length that is the rest, and text.
fn timed_text(header: &rtp::Header, payload: &[u8], wire: u16) -> bool {
    let (Some(0), Some(length)) = (be16(payload, 0), be16(payload, 2)) else { return false };
    if length.checked_add(4) != Some(wire) {
        return false;
    }
    let text = payload.get(4..).unwrap_or_default();
    match length {
        0 => header.marker,
        // No control characters; fragments may begin and end within a character.
        _ => !text.is_empty() && text.iter().all(|b| *b >= 0x20 || matches!(b, 9 | 10 | 13)),
    }
}

/// RFC 9134: the header is consistent; and whether a picture begins here as a box or a codestream.
fn jpeg_xs(header: &rtp::Header, payload: &[u8]) -> Option<bool> {
    let word = be32(payload, 0)?;
    let (slices, last, interlace) = (word >> 30 & 1 == 1, word >> 29 & 1 == 1, word >> 27 & 3);
    let (unit, packet) = (word >> 11 & 0x7ff, word & 0x7ff);
    if interlace == 1 || (header.marker && !last) || (!slices && last != header.marker) {
        return None;
    }
    let begins = payload.get(8..12) == Some(b"jpvs") || be16(payload, 4) == Some(0xff10);
    match (unit, packet, begins) {
        (0, 0, false) if payload.len() >= 12 => None,
        (0, 0, begins) => Some(begins),
        _ => Some(false),
    }
}

/// ST 2022-6: 1376 octets of SDI behind 8 octets of header, 12 when the clock field says that a time stamp follows.
fn sdi(payload: &[u8], wire: u16) -> bool {
    let Some(word) = be32(payload, 0) else { return false };
    let extension = word >> 28;
    let clock = word >> 5 & 0xf;
    extension == 0 && wire == if clock == 0 { 1384 } else { 1388 }
}

/// ST 2110-41: data items of allotted types follow one another to the end.
fn fast_metadata(header: &rtp::Header, payload: &[u8], wire: u16) -> bool {
    let mut at = 0;
    while let Some(word) = be32(payload, at) {
        let kind = word >> 10;
        if kind > 0x2f_ffff && kind < 0x3f_f000 {
            return false;
        }
        at += 4 + 4 * (word & 0x1ff) as usize;
    }
    !header.marker && at == usize::from(wire)
}

/// ST 2110-31: words begin with two zero bits, and every second one begins an AES3 frame.
fn am824(payload: &[u8]) -> bool {
    let words = payload.chunks_exact(4);
    !payload.is_empty()
        && words.remainder().is_empty()
        && words
            .enumerate()
            .all(|(n, word)| word.first().is_some_and(|b| b >> 6 == 0 && (b >> 4 & 1 == 1) == (n % 2 == 0)))
}

/// Audio of so many octets a packet: whole samples of 16 or 24 bits, 80 channels of 32 at most.
fn audio(octets: u32, samples: u32) -> Option<FoundAudio> {
    if samples == 0 || samples > 1024 || !octets.is_multiple_of(samples) {
        return None;
    }
    let octets = octets / samples;
    ((2..=320).contains(&octets) && (octets.is_multiple_of(2) || octets.is_multiple_of(3)))
        .then_some(FoundAudio { samples, octets })
}
