use super::*;
use crate::format::{Layout, Output, WireFormat};
use crate::frame::Meta;
use crate::plan::Missing;
use crate::time::Tai;
use gdmedia_sdp::{Depth, Essence, Flow, Mode, Sampling, Scan};
use proptest::prelude::*;

const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\n\
    a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width=16; height=4; exactframerate=60000/1001; depth=10; \
    TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
    a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:direct=0\r\n";

fn header(output: Output) -> Header {
    let flow: Flow = gdmedia_sdp::parse(SDP.as_bytes(), Mode::Lenient).flows.remove(0);
    let Essence::Video(video) = &flow.essence else { unreachable!() };
    let layout = Layout::new(WireFormat::from_video(video).unwrap(), output).unwrap();
    Header { id: [7; 16], created: 1_796_008_940_123_000_000, segment: 2, first_slot: 1000, flow, layout }
}

fn wire() -> WireFormat {
    WireFormat::new(Sampling::YCbCr422, Depth::D10, 16, 4, Scan::Progressive).unwrap()
}

#[test]
fn the_crc_is_castagnolis() {
    // RFC 3720 B.4, and the check value of every catalogue of CRCs.
    assert_eq!(crc(b"123456789"), 0xE306_9283);
    assert_eq!(crc(&[0; 32]), 0x8A91_36AA);
    assert_eq!(crc(&[0xFF; 32]), 0x62A8_AB43);
    assert_eq!(crc(&(0..32).collect::<Vec<u8>>()), 0x46DD_794E);
    assert_eq!(crc(&(0..32).rev().collect::<Vec<u8>>()), 0x113F_DB5C);
}

/// Bit by bit, as the standard has it.
fn slow_crc(octets: &[u8]) -> u32 {
    !octets.iter().fold(!0, |sum, octet| {
        (0..8).fold(sum ^ u32::from(*octet), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0x82F6_3B78 } else { sum >> 1 })
    })
}

/// The page as the table of docs/recording.md has it, by hand.
#[test]
fn a_slot_header_placed_by_hand() {
    let head = SlotHeader {
        id: *b"0123456789abcdef",
        slot: 0x0102_0304_0506_0708,
        gap: 9,
        crc: 0xE306_9283,
        missing_octets: 25,
        coalesced: Coalesced::No,
        meta: Meta {
            number: 0x1122,
            complete: false,
            torn: true,
            timestamp: 0xA1A2_A3A4,
            second_timestamp: Some(0xB1B2_B3B4),
            media_time: Some(Tai(1_700_000_037_123_456_789)),
            first_arrival: Tai(0x0A0B),
            last_arrival: Tai(0x0C0D),
            packets: 4,
            missing: vec![Missing { row: 1, octet: 10, len: 20 }, Missing { row: 3, octet: 0, len: 5 }],
        },
    };
    let mut wanted = [0u8; PAGE];
    let mut at = |place: usize, octets: &[u8]| wanted[place..place + octets.len()].copy_from_slice(octets);
    at(0, b"GDR-SLOT");
    // Torn, media time known, second timestamp known.
    at(8, &[2 + 4 + 8, 0, 0, 0]);
    at(12, &[2, 0, 0, 0]);
    at(16, &[8, 7, 6, 5, 4, 3, 2, 1]);
    at(24, b"0123456789abcdef");
    at(40, &[0x22, 0x11, 0, 0, 0, 0, 0, 0]);
    at(48, &[9, 0, 0, 0, 0, 0, 0, 0]);
    at(56, &1_700_000_037_123_456_789u64.to_le_bytes());
    at(64, &[0x0B, 0x0A]);
    at(72, &[0x0D, 0x0C]);
    at(80, &[0xA4, 0xA3, 0xA2, 0xA1]);
    at(84, &[0xB4, 0xB3, 0xB2, 0xB1]);
    at(88, &[4, 0, 0, 0]);
    at(92, &[0x83, 0x92, 0x06, 0xE3]);
    // 16 x 4 of 4:2:2 10 bit: 5 octets for two pixels.
    at(96, &[160, 0, 0, 0]);
    at(104, &[25, 0, 0, 0]);
    at(160, &[1, 0, 0, 0, 10, 0, 0, 0, 20, 0, 0, 0]);
    at(172, &[3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0]);
    let sum = slow_crc(&wanted[..4092]);
    wanted[4092..].copy_from_slice(&sum.to_le_bytes());
    let mut page = [0xEE; PAGE];
    head.encode(&wire(), 160, &mut page);
    assert!(page == wanted);
    assert_eq!(SlotHeader::decode(&page, &head.id, &wire(), 160), Some(head.clone()));
    assert_eq!(SlotHeader::decode(&page, &[0; 16], &wire(), 160), None, "of another recording");
    assert_eq!(SlotHeader::decode(&page, &head.id, &wire(), 161), None, "of other frames");
    for bit in [0, 8 * 20 + 3, 8 * 200, 8 * 4091 + 7, 8 * 4095] {
        let mut page = page;
        page[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(SlotHeader::decode(&page, &head.id, &wire(), 160), None, "bit {bit}");
    }
}

#[test]
fn a_header_placed_by_hand() {
    let header = header(Output::Planar);
    let page = header.encode().unwrap();
    let text = gdmedia_sdp::write(std::slice::from_ref(&header.flow));
    assert_eq!(page.len(), PAGE);
    let mut wanted = vec![0u8; PAGE];
    let mut at = |place: usize, octets: &[u8]| wanted[place..place + octets.len()].copy_from_slice(octets);
    at(0, b"\x89GDR\r\n\x1a\n");
    at(8, &[1, 0, 0, 0]);
    at(12, &[0, 16, 0, 0]);
    // Y: 4 rows of 64 octets (16 samples of 2, to the next multiple of 64); Cb, Cr the same with 16 of them used.
    at(16, &8192u64.to_le_bytes());
    at(24, &768u64.to_le_bytes());
    at(32, &[2, 0, 0, 0]);
    at(36, &(text.len() as u32).to_le_bytes());
    at(40, &1000u64.to_le_bytes());
    at(48, &[7; 16]);
    at(64, &1_796_008_940_123_000_000u64.to_le_bytes());
    // Planar is the second output.
    at(72, &[1, 0, 0, 0]);
    at(76, &[3, 0, 0, 0]);
    for (i, row) in [(0u64, 32u64), (256, 16), (512, 16)].into_iter().enumerate() {
        for (n, value) in [row.0, 64, row.1, 4].into_iter().enumerate() {
            at(80 + 32 * i + 8 * n, &value.to_le_bytes());
        }
    }
    for (n, value) in [16u32, 4, 60000, 1001, 10, 5].into_iter().enumerate() {
        at(176 + 4 * n, &value.to_le_bytes());
    }
    at(256, text.as_bytes());
    let sum = slow_crc(&[&wanted[..252], &wanted[256..]].concat());
    wanted[252..256].copy_from_slice(&sum.to_le_bytes());
    assert!(page == wanted);
    let again = Header::decode(&page).unwrap();
    assert_eq!(again, header);
    assert_eq!((again.octets(), again.slot_octets(), again.frame_octets()), (4096, 8192, 768));
}

#[test]
fn every_output_has_a_header_and_damage_is_told() {
    for output in Output::ALL {
        let header = header(output);
        let page = header.encode().unwrap();
        assert_eq!(Header::decode(&page).unwrap(), header);
        for bit in (0..300 * 8).step_by(13) {
            let mut page = page.clone();
            page[bit / 8] ^= 1 << (bit % 8);
            let error = Header::decode(&page).unwrap_err();
            assert!(error.kind() == Kind::Data && !error.cure_text().is_empty(), "{error}");
        }
        for cut in [0, 7, 100, PAGE - 1] {
            assert!(Header::decode(&page[..cut]).is_err());
        }
    }
}

/// A header of two pages is rare but right.
#[test]
fn a_long_sdp_takes_more_pages_and_one_without_end_is_refused() {
    let mut header = header(Output::Wire);
    header.flow.name = "x".repeat(5000);
    let page = header.encode().unwrap();
    assert_eq!((page.len(), header.octets()), (2 * PAGE, 2 * PAGE as u64));
    // The parser of SDPs cuts names that no person reads.
    let name = Header::decode(&page).unwrap().flow.name;
    assert!(name.len() > 100 && name.bytes().all(|octet| octet == b'x'));
    header.flow.name = "x".repeat(70_000);
    assert!(header.encode().unwrap_err().cure_text().contains("64 KiB"));
}

#[test]
fn more_holes_than_there_is_room_for_are_put_together() {
    // 1080 rows, every second octet of the first ones missing: 400 runs one octet apart, and one far away.
    let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Progressive).unwrap();
    let mut missing: Vec<Missing> = (0..400).map(|n| Missing { row: 0, octet: n * 2, len: 1 }).collect();
    missing.push(Missing { row: 1000, octet: 17, len: 3 });
    let octets = wire.frame_octets() as usize;
    let head = SlotHeader { missing_octets: 403, meta: Meta { missing, ..Meta::default() }, ..SlotHeader::default() };
    let mut page = [0; PAGE];
    head.encode(&wire, octets, &mut page);
    let again = SlotHeader::decode(&page, &head.id, &wire, octets).unwrap();
    assert_eq!((again.coalesced, again.missing_octets, again.meta.missing.len()), (Coalesced::Yes, 403, RUNS));
    assert_eq!(again.meta.missing.last(), Some(&Missing { row: 1000, octet: 17, len: 3 }));
    assert!(covers(&again.meta.missing, &head.meta.missing));
    // What was put together stays so when it is written again.
    again.encode(&wire, octets, &mut page);
    assert_eq!(SlotHeader::decode(&page, &head.id, &wire, octets), Some(again));
}

fn covers(all: &[Missing], some: &[Missing]) -> bool {
    let holds = |m: &Missing, octet| all.iter().any(|a| a.row == m.row && (a.octet..a.octet + a.len).contains(&octet));
    some.iter().all(|m| (m.octet..m.octet + m.len).all(|octet| holds(m, octet)))
}

#[test]
fn an_index_and_its_tail() {
    let one = Entry { valid: true, complete: true, timestamp: 0x0102_0304, number: 5, media_time: 6 };
    let all = [one, Entry::default(), Entry { complete: false, ..one }];
    let (octets, sum) = put_entries(&all);
    assert_eq!(octets.len(), 72);
    assert_eq!(octets[..24], [3, 0, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(sum, slow_crc(&octets));
    let tail = Tail { id: [3; 16], slots: 3, index: 12345, gap: 2, end: End::Full, crc: sum };
    let page = tail.encode();
    assert_eq!(Tail::decode(&page, &tail.id), Some(tail));
    assert_eq!(Tail::decode(&page, &[4; 16]), None);
    assert_eq!(entries(&octets, &tail).unwrap(), all);
    assert_eq!(entries(&octets[..48], &tail), None);
    assert_eq!(entries(&octets, &Tail { crc: sum ^ 1, ..tail }), None);
}

prop_compose! {
    fn a_loss_map()(runs in proptest::collection::vec((0u32..200, 1u32..300), 0..500)) -> Vec<Missing> {
        let row = 4800;
        let (mut at, mut missing) = (0, Vec::new());
        for (between, len) in runs {
            let from = at + between;
            let len = len.min(row - from % row);
            at = from + len;
            missing.push(Missing { row: from / row, octet: from % row, len });
        }
        missing
    }
}

proptest! {
    #[test]
    fn heads_come_back(
        missing in a_loss_map(), slot: u64, number: u64, gap: u64, crc: u32, stamps: [u32; 2], times: [u64; 3], flags: u8,
    ) {
        let wire = WireFormat::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, Scan::Progressive).unwrap();
        let octets = wire.frame_octets() as usize;
        let meta = Meta {
            number,
            complete: flags & 1 != 0,
            torn: flags & 2 != 0,
            timestamp: stamps[0],
            second_timestamp: (flags & 4 != 0).then_some(stamps[1]),
            media_time: (flags & 8 != 0).then_some(Tai(times[0])),
            first_arrival: Tai(times[1]),
            last_arrival: Tai(times[2]),
            packets: crc,
            missing,
        };
        let missing_octets = meta.missing.iter().map(|m| u64::from(m.len)).sum();
        let head = SlotHeader { id: [9; 16], slot, gap, crc, missing_octets, coalesced: Coalesced::No, meta };
        let mut page = [0xAA; PAGE];
        head.encode(&wire, octets, &mut page);
        let again = SlotHeader::decode(&page, &head.id, &wire, octets).unwrap();
        if head.meta.missing.len() <= RUNS {
            // Runs that touch may have become one; then they are in order all the same.
            prop_assert_eq!(&again.meta.missing, &head.meta.missing);
            prop_assert_eq!(again, head);
        } else {
            prop_assert_eq!(again.coalesced, Coalesced::Yes);
            prop_assert!(covers(&again.meta.missing, &head.meta.missing));
            prop_assert_eq!(Meta { missing: Vec::new(), ..again.meta }, Meta { missing: Vec::new(), ..head.meta });
        }
    }

    #[test]
    fn any_page_is_read_or_refused(mut octets in proptest::collection::vec(any::<u8>(), 0..PAGE + 1), sealed: bool) {
        octets.resize(PAGE, 0);
        octets[..8].copy_from_slice(&SLOT_MAGIC);
        octets[24..40].fill(0);
        octets[96..104].copy_from_slice(&160u64.to_le_bytes());
        octets[12..16].copy_from_slice(&3u32.to_le_bytes());
        if sealed {
            seal(&mut octets);
        }
        if let Some(head) = SlotHeader::decode(&octets, &[0; 16], &wire(), 160) {
            prop_assert!(sealed);
            prop_assert!(head.meta.missing.iter().all(|m| m.row < 4 && m.octet + m.len <= 40 && m.len > 0));
        }
    }
}
