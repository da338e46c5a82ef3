//! The packets of a frame as the sender prepares them, against numbers worked out by hand.

use gdmedia::format::WireFormat;
use gdmedia::packetise::{Cut, Packetiser, Style};
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::send::template::Template;
use gdmedia::send::y4m;

fn template(scan: Scan, cut: Cut) -> Template {
    let format = WireFormat::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, scan).unwrap();
    Template::new(Packetiser::new(format, Style::new(cut), 0).unwrap(), false)
}

/// BPM of 1080 lines: 4115 packets of 1260 octets, the last with 360; of 80 packets (21 rows) 20 reach into a
/// second row. Rows of a progressive frame follow one another, so such a packet is one piece; rows of a field
/// do not.
#[test]
fn block_packing() {
    let t = template(Scan::Progressive, Cut::Bpm { fill: false });
    assert_eq!((t.packets.len(), t.second), (4115, None));
    let sizes: Vec<u16> = t.packets.iter().take(80).map(|p| p.octets).collect();
    assert_eq!(sizes.iter().filter(|&&s| s == 12 + 14 + 1260).count(), 20);
    assert_eq!(sizes.iter().filter(|&&s| s == 12 + 8 + 1260).count(), 60);
    assert_eq!(t.packets.last().map(|p| p.octets), Some(12 + 8 + 360));
    assert!(t.packets.iter().all(|p| p.pieces.iter().count() == 1));
    assert_eq!(
        t.octets(),
        1920 * 1080 * 5 / 2 + 4115 * 20 + 6 * t.packets.iter().filter(|p| p.header.len() == 26).count() as u64
    );

    let t = template(Scan::Interlaced, Cut::Bpm { fill: true });
    assert_eq!((t.packets.len(), t.second), (4116, Some(2058)));
    assert_eq!(t.packets[3].pieces.iter().collect::<Vec<_>>(), [(3780, 1020), (9600, 240)]);
    assert_eq!((t.packets[2057].fill, t.packets[2057].octets), (1080, 12 + 8 + 1260));
    assert_eq!(t.packets[2058].pieces.iter().next(), Some((4800, 1260)));
}

#[test]
fn stamps_sequence_and_both_timestamps() {
    let mut t = template(Scan::Interlaced, Cut::Even { udp: 1460 });
    assert_eq!((t.packets.len(), t.second), (4320, Some(2160)));
    t.stamp(2159..2161, 0x0001_fffe - 2159, (0x0102_0304, 0x0506_0708));
    let first = t.header(&t.packets[2159]);
    assert_eq!((&first[2..8], &first[12..14]), (&[0xff, 0xfe, 1, 2, 3, 4][..], &[0, 1][..]));
    assert_eq!(first[1] & 0x80, 0x80, "the marker ends the field");
    let second = t.header(&t.packets[2160]);
    assert_eq!((&second[2..8], &second[12..14]), (&[0xff, 0xff, 5, 6, 7, 8][..], &[0, 1][..]));
}

proptest::proptest! {
    #[test]
    fn no_line_breaks_the_y4m_reader(line in proptest::collection::vec(0u8..128, 0..80)) {
        let _ = y4m::parse(&line);
        let _ = y4m::parse(&[y4m::MAGIC, &line].concat());
    }
}
