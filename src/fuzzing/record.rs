//! Recordings: foreign octets, and ones that are nearly right.

use crate::format::{Layout, Output, WireFormat};
use crate::frame::Meta;
use crate::record::form::{self, Coalesced, End, Entry, Header, PAGE, SlotHeader, Tail};
use crate::record::read::Segment;
use crate::sdp::{Depth, Mode, Sampling, Scan, parse};

const SDP: &[u8] =
    b"v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\n\
    a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=16; height=4; exactframerate=25; depth=10; TCS=SDR; \
    colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\na=ts-refclk:ptp=IEEE1588-2008:traceable\r\n\
    a=mediaclk:direct=0\r\n";

/// A segment: as it is, and made of the octets so that the CRCs of its pages are right.
pub fn record(octets: &[u8]) {
    look(octets.to_vec());
    let Some((how, rest)) = octets.split_first_chunk::<4>() else { return };
    let Some(flow) = parse(SDP, Mode::Lenient).flows.into_iter().next() else { return };
    let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 16, 4, Scan::Progressive);
    let output = Output::ALL[usize::from(how[0]) % Output::ALL.len()];
    let Some(Ok(layout)) = wire.map(|wire| Layout::new(wire, output)) else { return };
    let header = Header { id: [1; 16], created: 1, segment: 0, first_slot: u64::from(how[1] >> 6), flow, layout };
    let Ok(mut file) = header.encode() else { return };
    let slots = u64::from(how[1] & 7);
    for slot in 0..slots {
        let mut octets: Vec<u8> =
            rest.iter().copied().cycle().skip(slot as usize).take(header.frame_octets()).collect();
        octets.resize(header.frame_octets(), 0);
        let head = SlotHeader {
            id: header.id,
            slot: header.first_slot + slot,
            crc: form::crc(&octets),
            coalesced: Coalesced::No,
            meta: Meta { number: slot, complete: true, ..Meta::default() },
            ..SlotHeader::default()
        };
        let mut page = [0; PAGE];
        head.encode(&header.layout.wire, header.frame_octets(), &mut page);
        file.extend_from_slice(&page);
        octets.resize(form::pages(octets.len() as u64) as usize, 0);
        file.extend_from_slice(&octets);
    }
    if how[2] & 1 == 0 {
        let index = file.len() as u64;
        let (entries, crc) = form::put_entries(&vec![Entry::default(); slots as usize]);
        file.extend_from_slice(&entries);
        file.resize(form::pages(file.len() as u64) as usize, 0);
        let tail = Tail { id: header.id, slots, index, gap: 0, end: End::Finished, crc };
        file.extend_from_slice(&tail.encode());
    }
    assert!(look(file.clone()) == slots, "what was written is read");
    // What follows is damage: pairs of a place and an octet, and an end.
    for deed in rest.chunks_exact(4).take(16) {
        let at = usize::from(u16::from_le_bytes([deed[0], deed[1]])) * (1 + usize::from(deed[2] & 7));
        if let Some(octet) = file.get_mut(at) {
            *octet ^= deed[3];
        }
    }
    let len = file.len();
    file.truncate(len.saturating_sub(usize::from(how[3]) * 64));
    look(file);
}

/// Reads everything; how many slots are good.
fn look(octets: Vec<u8>) -> u64 {
    let len = octets.len() as u64;
    let Ok(segment) = Segment::of(octets, "fuzz") else { return 0 };
    let octets = segment.header().frame_octets() as u64;
    assert!(segment.entries().is_empty() || octets <= len, "a slot is no longer than its file");
    let found = segment.check(|head, octets| assert_eq!(head.crc, form::crc(octets)));
    assert_eq!(found.good + found.damaged + found.empty, segment.entries().len() as u64);
    found.good
}
