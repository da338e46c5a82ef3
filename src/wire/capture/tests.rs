use super::*;
use crate::wire::net::Route;
use proptest::prelude::*;
use std::io::Write;

/// Words of a file in one byte order.
struct Order(bool);

impl Order {
    fn w(&self, v: u32) -> [u8; 4] {
        if self.0 { v.to_be_bytes() } else { v.to_le_bytes() }
    }
    fn h(&self, v: u16) -> [u8; 2] {
        if self.0 { v.to_be_bytes() } else { v.to_le_bytes() }
    }
    fn pcap(&self, magic: u32, link: u32) -> Vec<u8> {
        [&self.w(magic)[..], &self.h(2), &self.h(4), &[0; 8], &self.w(65535), &self.w(link)].concat()
    }
    fn record(&self, seconds: u32, fraction: u32, octets: &[u8], wire: u32) -> Vec<u8> {
        [&self.w(seconds)[..], &self.w(fraction), &self.w(octets.len() as u32), &self.w(wire), octets].concat()
    }
    fn block(&self, kind: u32, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let total = self.w(body.len() as u32 + 12);
        [&self.w(kind)[..], &total, &body, &total].concat()
    }
    fn section(&self) -> Vec<u8> {
        self.block(0x0a0d_0d0a, &[&self.w(0x1a2b_3c4d)[..], &self.h(1), &self.h(0), &[0xff; 8]].concat())
    }
    fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut value_padded = value.to_vec();
        value_padded.resize(value.len().next_multiple_of(4), 0);
        [&self.h(code)[..], &self.h(value.len() as u16), &value_padded].concat()
    }
    fn interface(&self, link: u16, snap: u32, options: &[u8]) -> Vec<u8> {
        self.block(1, &[&self.h(link)[..], &[0, 0], &self.w(snap), options].concat())
    }
    fn enhanced(&self, interface: u32, units: u64, octets: &[u8], wire: u32) -> Vec<u8> {
        let mut data = octets.to_vec();
        data.resize(octets.len().next_multiple_of(4), 0);
        let head =
            [interface, (units >> 32) as u32, units as u32, octets.len() as u32, wire].map(|v| self.w(v)).concat();
        // A comment behind the data, as Wireshark writes them.
        self.block(6, &[&head[..], &data, &self.option(1, b"remark"), &[0; 4]].concat())
    }
}

type Read1 = (u64, u32, Vec<u8>, u32);

fn read(file: &[u8]) -> Result<(Vec<Read1>, Counters)> {
    let mut capture = Capture::new(file, "x.pcap")?;
    let mut out = Vec::new();
    while let Some(r) = capture.next_record()? {
        out.push((r.time, r.interface, r.octets.to_vec(), r.wire_octets));
    }
    assert!(capture.next_record()?.is_none(), "the end stays the end");
    Ok((out, capture.counters()))
}

fn refusal(file: &[u8]) -> String {
    let error = read(file).expect_err("must be refused");
    assert_eq!(error.kind(), Kind::Data);
    assert!(!error.cure_text().is_empty());
    error.to_string()
}

#[test]
fn pcap_in_both_byte_orders_and_resolutions() {
    for big in [false, true] {
        let o = Order(big);
        for (magic, unit) in [(0xa1b2_c3d4, 1000), (0xa1b2_3c4d, 1)] {
            // The upper bits: frames end with a check sequence of two halves.
            for link in [1, 0x2400_0001] {
                let file = [o.pcap(magic, link), o.record(3, 7, b"abc", 3), o.record(4, 0, b"de", 100)].concat();
                let (records, counters) = read(&file).unwrap();
                assert_eq!(records[0], (3_000_000_000 + 7 * unit, 0, b"abc".to_vec(), 3));
                assert_eq!(records[1], (4_000_000_000, 0, b"de".to_vec(), 100));
                assert_eq!(counters, Counters { records: 2, snapped: 1, other_link: 0, cut_short: false });
            }
        }
    }
}

#[test]
fn a_capture_cut_short_is_used_up_to_there() {
    let o = Order(false);
    let ng_head = [o.section(), o.interface(1, 0, &[])].concat();
    let pcap = [o.record(1, 0, b"abcd", 4), o.record(2, 0, b"efgh", 4)].concat();
    let ng = [o.enhanced(0, 1, b"abcd", 4), o.enhanced(0, 2, b"efgh", 4)].concat();
    for (head, body) in [(o.pcap(0xa1b2_c3d4, 1), pcap), (ng_head, ng)] {
        let half = body.len() / 2;
        let file = [&head[..], &body].concat();
        for cut in 0..=body.len() {
            let (records, counters) = read(&file[..head.len() + cut]).unwrap();
            let whole = cut == 0 || cut == half || cut == body.len();
            assert_eq!(counters.cut_short, !whole, "{cut}");
            assert_eq!(counters.records, records.len() as u64);
            // A packet whose octets are all there counts, whatever is missing behind them.
            assert!(records.len() == cut / half || records.len() == cut / half + 1, "{cut}: {}", records.len());
        }
    }
}

#[test]
fn pcapng_sections_interfaces_and_times() {
    let (le, be) = (Order(false), Order(true));
    let offset = |o: &Order, s: i64| o.option(14, &if o.0 { s.to_be_bytes() } else { s.to_le_bytes() });
    let file = [
        le.section(),
        le.interface(1, 0, &[]), // microseconds
        le.interface(101, 0, &[le.option(2, b"eth1"), le.option(9, &[9]), offset(&le, 10), le.option(0, &[])].concat()),
        le.interface(1, 0, &le.option(9, &[0x80 | 10])), // 1/1024 s
        le.interface(1, 0, &[le.option(9, &[12]), offset(&le, -1)].concat()), // picoseconds
        le.block(4, b"names to be passed over"),
        le.enhanced(0, 1_500_000, b"a", 1),
        le.enhanced(1, 2_000_000_001, b"bb", 2),
        le.block(0x0bad, &[0; 1000]),
        le.enhanced(2, 1536, b"ccc", 9),
        le.enhanced(3, 5_000_000_001_999, b"dddd", 4),
        le.enhanced(3, 5, b"before 1970", 11),
        be.section(),
        be.interface(1, 3, &be.option(9, &[0])), // seconds
        be.enhanced(0, 7, b"eeeee", 5),
        be.block(3, &[&be.w(100)[..], b"simple"].concat()),
        be.block(2, &[&be.h(0)[..], &be.h(0), &be.w(0), &be.w(9), &be.w(3), &be.w(3), b"old\0"].concat()),
    ]
    .concat();
    let (records, counters) = read(&file).unwrap();
    let r = |time, interface, octets: &[u8], wire| (time, interface, octets.to_vec(), wire);
    assert_eq!(
        records,
        [
            r(1_500_000_000, 0, b"a", 1),
            r(12_000_000_001, 1, b"bb", 2),
            r(1_500_000_000, 2, b"ccc", 9),
            r(4_000_000_001, 3, b"dddd", 4),
            r(0, 3, b"before 1970", 11),
            r(7_000_000_000, 4, b"eeeee", 5),
            r(7_000_000_000, 4, b"sim", 100),
            r(9_000_000_000, 4, b"old", 3),
        ]
    );
    assert_eq!(counters, Counters { records: 8, snapped: 2, other_link: 0, cut_short: false });
}

#[test]
fn other_link_layers_are_counted_or_refused_by_name() {
    let o = Order(true);
    assert!(refusal(&o.pcap(0xa1b2_c3d4, 105)).contains("link type 105 (IEEE 802.11)"));
    let wifi = [o.section(), o.interface(127, 0, &[]), o.enhanced(0, 1, b"x", 1)].concat();
    assert!(refusal(&wifi).contains("link type 127 (IEEE 802.11 with radiotap header)"));
    let both = [wifi, o.interface(1, 0, &[]), o.enhanced(1, 2, b"y", 1)].concat();
    let (records, counters) = read(&both).unwrap();
    assert_eq!((records.len(), counters.other_link), (1, 1));
}

#[test]
fn what_is_no_capture_is_named_with_a_cure() {
    for (file, what) in [
        (&b""[..], "empty"),
        (b"\n", "text"),
        (b"v=0\r\no=- 1 1 IN IP4 1.2.3.4\r\n", "an SDP"),
        (b"hello world, this is some text", "text"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"PK\x03\x04", "zip"),
        (b"snoop\0\0\0\0\0\0\x02", "editcap"),
        (&[0x28, 0xb5, 0x2f, 0xfd, 0], "Zstandard"),
        (&[0; 100], "zero"),
        (&[1, 2, 3, 250, 251], "unknown format"),
        (&[0x34, 0xcd, 0xb2, 0xa1, 2, 0, 4, 0], "modified pcap"),
        (&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0], "ends within its header"),
    ] {
        let message = refusal(file);
        assert!(message.contains(what) && message.contains("x.pcap"), "{message}");
    }
    assert!(refusal(&gzip(b"some text here")).contains("it is text, gzipped"));
    assert!(refusal(&gzip(b"")).contains("empty, gzipped"));
    assert!(refusal(&[0x1f, 0x8b, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]).contains("gzip data is damaged"));
    let none = Capture::open("/nonexistent/a.pcap".as_ref()).unwrap_err();
    assert!(none.to_string().contains("cannot open"));
    assert!(Capture::open(std::env::temp_dir().as_ref()).unwrap_err().to_string().contains("is a folder"));
}

#[test]
fn damage_is_an_error_with_its_place() {
    let o = Order(false);
    let file = [o.pcap(0xa1b2_c3d4, 1), o.record(1, 0, b"abcd", 4), vec![0xff; 40]].concat();
    assert!(refusal(&file).contains("damaged at octet 60"));
    let ng = [o.section(), o.interface(1, 0, &[])].concat();
    for (bad, what) in [
        (o.enhanced(7, 0, b"a", 1), "interface 7"),
        ([&o.w(6)[..], &o.w(8)].concat(), "8 octets"),
        (o.block(6, &[0; 16]), "body of 16"),
        (o.block(6, &[&[0; 12][..], &o.w(5), &o.w(5)].concat()), "room for 0"),
        (o.interface(1, 0, &o.option(9, &[80])), "resolution"),
        (o.block(0x0a0d_0d0a, &[0; 16]), "byte order mark"),
        (o.block(0x0a0d_0d0a, &[&o.w(0x1a2b_3c4d)[..], &o.h(2), &[0; 10]].concat()), "version 2"),
    ] {
        let message = refusal(&[&ng[..], &bad].concat());
        assert!(message.contains(what), "{message}");
    }
}

fn gzip(octets: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(octets).unwrap();
    out.finish().unwrap()
}

#[test]
fn gzip_is_taken_off_also_in_several_members_and_when_cut() {
    let o = Order(false);
    let records: Vec<u8> = (0..2000u32).flat_map(|n| o.record(n, 0, &[n as u8; 700], 700)).collect();
    let plain = [o.pcap(0xa1b2_c3d4, 1), records].concat();
    assert_eq!(read(&gzip(&plain)).unwrap(), read(&plain).unwrap());
    let members = [gzip(&plain[..1000]), gzip(&plain[1000..])].concat();
    assert_eq!(read(&members).unwrap(), read(&plain).unwrap());
    let cut = gzip(&plain);
    let (some, counters) = read(&cut[..cut.len() / 2]).unwrap();
    assert!(!some.is_empty() && some.len() < 2000 && counters.cut_short);
}

/// Gives a few octets at a time.
struct Dribble<'a>(&'a [u8]);

impl std::io::Read for Dribble<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let n = into.len().min(7);
        self.0.read(&mut into[..n])
    }
}

#[test]
fn large_files_pass_in_constant_memory_and_small_reads() {
    let o = Order(true);
    let octets: Vec<u8> = (0..9000u32).map(|n| n as u8).collect();
    let records: Vec<u8> = (0..200).flat_map(|n| o.record(n, 0, &octets, 9000)).collect();
    let file = [o.pcap(0xa1b2_3c4d, 1), records].concat();
    let mut capture = Capture::new(Dribble(&file), "dribble").unwrap();
    let mut count = 0;
    while let Some(r) = capture.next_record().unwrap() {
        assert_eq!(r.octets, octets);
        count += 1;
    }
    assert_eq!(count, 200);
}

/// Records over the ends of the thread's buffers, the largest ones too; gzipped; cut short; and left in the middle.
#[test]
fn reading_ahead_reads_the_same() {
    let o = Order(false);
    let mut file = o.pcap(0xa1b2_c3d4, 1);
    for n in 0..3000u32 {
        let octets = vec![n as u8; if n % 1000 == 7 { MAX_RECORD as usize } else { 1300 + n as usize % 57 }];
        file.extend(o.record(n, n, &octets, octets.len() as u32));
    }
    let cut = file[..file.len() - 5].to_vec();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for octets in [file, cut, gzip.finish().unwrap()] {
        std::fs::write(&path, &octets).unwrap();
        let (mut plain, mut ahead) = (Capture::open(&path).unwrap(), Capture::open_ahead(&path).unwrap());
        loop {
            let (a, b) = (plain.next_record().unwrap(), ahead.next_record().unwrap());
            assert_eq!(a, b);
            if a.is_none() {
                break;
            }
        }
        assert_eq!((plain.counters(), plain.position()), (ahead.counters(), ahead.position()));
        let mut left = Capture::open_ahead(&path).unwrap();
        assert!(left.next_record().unwrap().is_some());
    }
    std::fs::write(&path, b"").unwrap();
    assert!(Capture::open_ahead(&path).unwrap_err().to_string().contains("empty"));
}

#[test]
fn writers_by_hand() {
    let mut out = Vec::new();
    let mut w = PcapWriter::new(&mut out, "x", Link::Ethernet).unwrap();
    w.frame(5_000_000_006, b"ab", 0).unwrap();
    w.finish().unwrap();
    let o = Order(false);
    let header = [&[0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0][..], &[0; 8], &[0, 0, 4, 0], &[1, 0, 0, 0]].concat();
    assert_eq!(out, [header, o.record(5, 6, b"ab", 2)].concat());
}

#[test]
fn a_full_disk_is_said() {
    let full = std::path::Path::new("/dev/full");
    let route = Route::new("10.0.0.1:1".parse().unwrap(), "239.0.0.1:2".parse().unwrap()).unwrap();
    let mut w = PcapWriter::create(full).unwrap();
    let error = (0..1000).find_map(|n| w.datagram(n, &route, &[0; 1400]).err()).unwrap();
    assert_eq!(error.kind(), Kind::Output);
    assert!(error.to_string().contains("/dev/full: the disk is full"), "{error}");
    let w = PcapngWriter::create(full).unwrap();
    assert_eq!(w.finish().unwrap_err().kind(), Kind::Output);
    assert_eq!(PcapWriter::create("/nonexistent/x.pcap".as_ref()).err().map(|e| e.kind()), Some(Kind::Output));
}

/// Times that a capture holds, payload and length on the wire.
fn packets() -> impl Strategy<Value = Vec<(u64, Vec<u8>, u16)>> {
    let time = 0..u64::from(u32::MAX) * 1_000_000_000;
    prop::collection::vec((time, prop::collection::vec(any::<u8>(), 0..1500), 0u16..3000), 0..20)
}

proptest! {
    #[test]
    fn pcap_reads_what_it_writes(packets in packets()) {
        let route = Route::new("[::1]:5000".parse().unwrap(), "[ff15::1]:5004".parse().unwrap()).unwrap();
        let mut file = Vec::new();
        let mut w = PcapWriter::new(&mut file, "x", Link::Ethernet).unwrap();
        for (time, payload, _) in &packets {
            w.datagram(*time, &route, payload).unwrap();
        }
        w.finish().unwrap();
        let (records, counters) = read(&file).unwrap();
        prop_assert_eq!((records.len(), counters.snapped, counters.cut_short), (packets.len(), 0, false));
        for ((time, payload, _), (read_time, _, frame, _)) in packets.iter().zip(&records) {
            prop_assert_eq!(time, read_time);
            prop_assert_eq!(&frame[14 + 40 + 8..], &payload[..]);
        }
    }

    #[test]
    fn pcapng_reads_what_it_writes(packets in packets()) {
        let route = Route::new("10.0.0.1:5000".parse().unwrap(), "239.0.0.1:5004".parse().unwrap()).unwrap();
        let mut file = Vec::new();
        let mut w = PcapngWriter::new(&mut file, "x").unwrap();
        prop_assert_eq!(w.interface("leg 0", Link::Ethernet).unwrap(), 0);
        prop_assert_eq!(w.interface("leg 1", Link::Ethernet).unwrap(), 1);
        for (n, (time, payload, wire)) in packets.iter().enumerate() {
            w.datagram(n as u32 % 2, *time, &route, payload, *wire).unwrap();
        }
        w.finish().unwrap();
        let (records, counters) = read(&file).unwrap();
        prop_assert_eq!((records.len(), counters.cut_short), (packets.len(), false));
        for (n, ((time, payload, wire), record)) in packets.iter().zip(&records).enumerate() {
            let octets = payload.len().max(usize::from(*wire));
            prop_assert_eq!((record.0, record.1, record.3), (*time, n as u32 % 2, octets as u32 + 42));
            let crate::wire::net::Content::Udp(d) = crate::wire::net::parse(Link::Ethernet, &record.2) else { panic!() };
            prop_assert_eq!(usize::from(d.octets), octets);
            prop_assert_eq!(&record.2[d.payload.clone()], &payload[..]);
        }
    }

    #[test]
    fn arbitrary_octets_never_panic(octets in prop::collection::vec(any::<u8>(), 0..400), head in 0..5) {
        let o = Order(head == 1);
        let head = match head {
            0 => vec![],
            1 | 2 => o.pcap(0xa1b2_c3d4, 1),
            3 => o.section(),
            _ => [o.section(), o.interface(1, 0, &[])].concat(),
        };
        let _ = read(&[head, octets].concat());
    }

    #[test]
    fn damaged_captures_never_panic(at in 0usize..400, value: u8, big: bool) {
        let o = Order(big);
        let mut file = [o.section(), o.interface(1, 0, &o.option(9, &[6])), o.enhanced(0, 9, &[1; 60], 60), o.block(3, &[0; 40])].concat();
        if let Some(place) = file.get_mut(at) {
            *place = value;
        }
        let _ = read(&file);
    }
}
