//! What a file is that is no capture, and what its link type is called: for messages.

use super::input::Input;
use crate::error::{Error, Kind};
use std::io::Read;

/// The error for a file that is neither pcap nor pcapng.
pub(super) fn not_a_capture<R: Read>(input: &mut Input<R>, name: &str) -> Error {
    let gzip = input.gzip();
    let first = match input.look(512) {
        Ok(first) => first,
        Err(e) => return super::read_error(name, e),
    };
    let (what, cure) = kind_of(first);
    let what = if gzip { format!("{what}, gzipped") } else { what.to_owned() };
    Error::new(Kind::Data, format!("{name} is not a capture: it is {what}")).cure(cure)
}

const CURE: &str = "give a pcap or pcapng file, as tcpdump and Wireshark write them";
const EDITCAP: &str = "convert it: editcap -F pcapng in out.pcapng";
const UNPACK: &str = "decompress it first; gzip is the only compression that is read here";

/// What the first octets of a file say that it is, and what to do about it.
fn kind_of(first: &[u8]) -> (&'static str, &'static str) {
    const KNOWN: [(&[u8], &str, &str); 19] = [
        (b"snoop\0\0\0", "a snoop capture", EDITCAP),
        (b"GMBU", "a Microsoft Network Monitor capture", EDITCAP),
        (b"RTSS", "a Microsoft Network Monitor 1 capture", EDITCAP),
        (b"TRSNIFF data", "a Sniffer capture", EDITCAP),
        (b"XCP\0", "a NetXRay capture", EDITCAP),
        (&[0x28, 0xb5, 0x2f, 0xfd], "a Zstandard file", UNPACK),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "an xz file", UNPACK),
        (b"BZh", "a bzip2 file", UNPACK),
        (&[0x04, 0x22, 0x4d, 0x18], "an LZ4 file", UNPACK),
        (b"PK\x03\x04", "a zip archive", UNPACK),
        (&[0x1f, 0x8b], "a gzip file", UNPACK),
        (b"v=0", "an SDP", "give it with --sdp, and the capture with --pcap"),
        (b"\x89PNG", "a PNG image", CURE),
        (&[0xff, 0xd8, 0xff], "a JPEG image", CURE),
        (b"\x7fELF", "a program", CURE),
        (b"%PDF", "a PDF document", CURE),
        (b"YUV4MPEG2", "a y4m video", CURE),
        (b"RIFF", "a RIFF file (WAV, AVI)", CURE),
        (b"\0\0\x00\x00", "full of zeros at its start", "copy the file again: its first octets are zero"),
    ];
    if first.is_empty() {
        return ("empty", "capture again, and check that the disk was not full");
    }
    if let Some((_, what, cure)) = KNOWN.iter().find(|(magic, ..)| first.starts_with(magic)) {
        return (what, cure);
    }
    if first.get(4..8) == Some(b"ftyp") {
        return ("an MP4 or QuickTime video", CURE);
    }
    // The last character may be cut in two.
    let text = match std::str::from_utf8(first) {
        Ok(_) => true,
        Err(e) => e.error_len().is_none() && e.valid_up_to() > 0,
    };
    if text && !first.iter().any(|b| *b < 9) {
        return ("text", CURE);
    }
    ("data of an unknown format", CURE)
}

/// Name of a link type (tcpdump.org/linktypes.html), for those that people meet.
pub(super) fn link_name(number: u32) -> &'static str {
    match number {
        3 => "AX.25",
        6 => "token ring",
        8 => "SLIP",
        9 => "PPP",
        10 => "FDDI",
        50 => "PPP in HDLC framing",
        51 => "PPPoE",
        104 => "Cisco HDLC",
        105 => "IEEE 802.11",
        107 => "frame relay",
        117 => "OpenBSD pflog",
        119 => "IEEE 802.11 with Prism header",
        122 => "IP over Fibre Channel",
        127 => "IEEE 802.11 with radiotap header",
        138 => "IP over IEEE 1394",
        143 => "DOCSIS",
        147..=162 => "private use",
        187 | 201 => "Bluetooth HCI",
        189 | 220 | 249 => "USB",
        192 => "PPI",
        195 | 230 => "IEEE 802.15.4",
        197 => "ERF",
        227 => "CAN",
        239 => "NFLOG",
        242 => "IP over InfiniBand",
        243 => "MPEG-2 transport stream",
        247 => "InfiniBand",
        252 => "Wireshark upper PDU",
        253 => "netlink",
        274 => "Ethernet with mPacket",
        _ => "a type without a name here",
    }
}
