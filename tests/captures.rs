//! The corpus of captures: every expected value is from its index, counted there with an independent parser.
//! Where tshark is installed, it counts once more.

use gdmedia::rx::survey::{Ends, Essence, FoundAudio, FoundFlow, Survey, survey};
use gdmedia::rx::{Pace, Pcap, Receiver, RxError};
use gdmedia::sdp::{Depth, Leg, Sampling, SourceFilter};
use gdmedia::wire::capture::Capture;
use gdmedia::wire::net::{self, Content};
use gdmedia::wire::{rtp, srd};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn corpus() -> Option<PathBuf> {
    let root = std::env::var_os("GDMEDIA_CORPUS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"), PathBuf::from);
    let folder = root.join("pcap");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no corpus");
    None
}

/// What is expected of a flow that is RTP.
struct Expected {
    file: &'static str,
    ends: &'static str,
    essence: &'static str,
    packets: u64,
    payload_type: u8,
    markers: u64,
    timestamps: u64,
    steps: (i32, i32),
    gaps: u64,
    /// Octets of UDP payload in every packet; 0 where they differ.
    octets: u64,
}

macro_rules! flow {
    ($file:literal $ends:literal $essence:literal packets $packets:literal pt $pt:literal markers $markers:literal
     timestamps $timestamps:literal steps $from:literal $to:literal $(gaps $gaps:literal)? $(octets $octets:literal)?) => {
        Expected {
            file: $file,
            ends: $ends,
            essence: $essence,
            packets: $packets,
            payload_type: $pt,
            markers: $markers,
            timestamps: $timestamps,
            steps: ($from, $to),
            gaps: 0 $(+ $gaps)?,
            octets: 0 $(+ $octets)?,
        }
    };
}

const FLOWS: [Expected; 21] = [
    flow!("st2110-20_1080i5994_422-10_gpm_snap128.pcap" "192.168.1.212:50000 -> 239.0.1.2:50000"
        "ST 2110-20 video (at least 1920x1080 in fields, YCbCr-4:2:2 10 bit or alike)"
        packets 21600 pt 96 markers 10 timestamps 10 steps 1501 1502 octets 1220),
    flow!("st2022-7_audio_two_legs.pcap" "192.168.130.2:6000 -> 239.1.2.2:6000"
        "ST 2110-30 audio (1 channel of L24, 6 samples a packet)"
        packets 16000 pt 96 markers 0 timestamps 16000 steps 6 6 octets 30),
    flow!("st2022-7_audio_two_legs.pcap" "192.168.120.2:6000 -> 239.1.2.1:6000"
        "ST 2110-30 audio (1 channel of L24, 6 samples a packet)"
        packets 16000 pt 96 markers 0 timestamps 16000 steps 6 6 octets 30),
    flow!("st2022-7_audio_dropped_in_both.pcap" "192.168.120.2:6000 -> 239.1.2.1:6000"
        "ST 2110-30 audio (1 channel of L24, 6 samples a packet)"
        packets 189 pt 96 markers 0 timestamps 189 steps 6 42 gaps 2 octets 30),
    flow!("st2022-7_audio_dropped_in_both.pcap" "192.168.130.2:6000 -> 239.1.2.2:6000"
        "ST 2110-30 audio (1 channel of L24, 6 samples a packet)"
        packets 185 pt 96 markers 0 timestamps 185 steps 6 36 gaps 1 octets 30),
    flow!("st2110-22_jxs_125mbps_1080i5994.pcap" "192.168.1.2:4660 -> 224.2.1.1:20000"
        "ST 2110-22 JPEG XS video"
        packets 1085 pt 100 markers 5 timestamps 5 steps 1501 1502),
    flow!("st2110-30_l16_48k_2ch_1ms.pcap" "192.168.61.114:5004 -> 239.31.114.5:5004"
        "ST 2110-30 audio (2 channels of L16, 48 samples a packet)"
        packets 10062 pt 98 markers 0 timestamps 10062 steps 48 48 octets 204),
    flow!("st2110-30_l24_48k_8ch_125us.pcap" "192.168.62.37:5004 -> 239.32.37.1:50030"
        "ST 2110-30 audio (8 channels of L24 or 12 channels of L16, 6 samples a packet)"
        packets 10000 pt 97 markers 0 timestamps 10000 steps 6 6 octets 156),
    flow!("st2110-30_l24_48k_2ch_1ms_short.pcap" "192.168.10.144:10000 -> 239.30.144.1:50030"
        "ST 2110-30 audio (2 channels of L24 or 3 channels of L16, 48 samples a packet)"
        packets 128 pt 97 markers 0 timestamps 128 steps 48 48 octets 300),
    flow!("st2110-40_5994i_timecode_cc.pcap" "192.168.10.144:10000 -> 239.40.144.1:50040"
        "ST 2110-40 ancillary data" packets 90 pt 100 markers 30 timestamps 31 steps 1501 1502),
    flow!("st2110-40_5994i_timecode_cc_afd.pcap" "192.168.38.22:10000 -> 239.0.1.20:20000"
        "ST 2110-40 ancillary data" packets 199 pt 100 markers 50 timestamps 50 steps 1501 1502),
    flow!("st2110-40_bad_did_checksum_parity.pcap" "192.168.38.22:10000 -> 239.0.1.20:20000"
        "ST 2110-40 ancillary data" packets 100 pt 100 markers 25 timestamps 26 steps 1501 1502),
    flow!("st2110-40_one_bad_packet.pcap" "192.168.38.22:10000 -> 239.0.1.20:20000"
        "ST 2110-40 ancillary data" packets 100 pt 100 markers 25 timestamps 26 steps 1501 1502),
    flow!("st2110-40_rtp_padding.pcap" "192.168.200.71:49154 -> 239.0.40.1:50040"
        "ST 2110-40 ancillary data" packets 50 pt 100 markers 17 timestamps 18 steps 1501 1502),
    flow!("st2110-40_empty_keepalive_50i.pcap" "192.168.41.201:50040 -> 239.100.1.2:50040"
        "ST 2110-40 ancillary data" packets 50 pt 100 markers 50 timestamps 50 steps 1800 1800 octets 20),
    flow!("st2110-40_truncated_with_ptp.pcap.gz" "192.168.200.105:7000 -> 239.200.3.1:7000"
        "ST 2110-40 ancillary data" packets 100 pt 100 markers 50 timestamps 50 steps 1800 1800),
    flow!("st2110-40_720p5994_cc.pcap" "192.168.10.2:5000 -> 239.1.40.1:5000"
        "ST 2110-40 ancillary data" packets 3599 pt 100 markers 1800 timestamps 1800 steps 1501 1502),
    flow!("st2110-40_50i_op47.pcap" "10.10.164.200:20000 -> 228.164.200.209:20000"
        "ST 2110-40 ancillary data" packets 1336 pt 100 markers 1336 timestamps 1336 steps 1800 1800),
    flow!("st2110-40_5994p_timecode_cc.pcap" "192.168.0.1:10000 -> 239.0.1.20:20000"
        "ST 2110-40 ancillary data" packets 1000 pt 100 markers 250 timestamps 251 steps 1501 1502),
    flow!("st2110-43_ttml_four_packets.pcap" "127.0.0.1:34157 -> 127.0.0.1:1312"
        "ST 2110-43 timed text" packets 12 pt 96 markers 3 timestamps 3 steps 1003 1003),
    flow!("st2110-43_ttml_truncated_start.pcap" "127.0.0.1:34157 -> 127.0.0.1:1312"
        "ST 2110-43 timed text" packets 10 pt 96 markers 3 timestamps 3 steps 1003 1003),
];

/// Files, flows in them, records, records cut by a snap length.
const FILES: [(&str, usize, u64, u64); 23] = [
    ("ptp_management.pcapng", 1, 10, 0),
    ("ptp_v2_mixed.pcap", 5, 39, 0),
    ("st2022-6_one_frame_720p5994.pcap", 1, 2249, 0),
    ("st2022-7_audio_dropped_in_both.pcap", 2, 374, 0),
    ("st2022-7_audio_two_legs.pcap", 2, 32000, 0),
    ("st2110-20_1080i5994_422-10_gpm_snap128.pcap", 1, 21600, 21600),
    ("st2110-22_jxs_125mbps_1080i5994.pcap", 1, 1085, 0),
    ("st2110-30_l16_48k_2ch_1ms.pcap", 1, 10062, 0),
    ("st2110-30_l24_48k_2ch_1ms_short.pcap", 1, 128, 0),
    ("st2110-30_l24_48k_8ch_125us.pcap", 1, 10000, 0),
    ("st2110-40_50i_op47.pcap", 1, 1336, 0),
    ("st2110-40_5994i_timecode_cc.pcap", 1, 90, 0),
    ("st2110-40_5994i_timecode_cc_afd.pcap", 1, 199, 0),
    ("st2110-40_5994p_timecode_cc.pcap", 1, 1000, 0),
    ("st2110-40_720p5994_cc.pcap", 1, 3599, 0),
    ("st2110-40_bad_did_checksum_parity.pcap", 1, 100, 0),
    ("st2110-40_empty_keepalive_50i.pcap", 1, 50, 0),
    ("st2110-40_one_bad_packet.pcap", 1, 100, 0),
    ("st2110-40_rtp_padding.pcap", 1, 50, 0),
    ("st2110-40_truncated_with_ptp.pcap.gz", 3, 128, 127),
    ("st2110-43_ttml_four_packets.pcap", 1, 12, 0),
    ("st2110-43_ttml_single_packet.pcap", 1, 4, 0),
    ("st2110-43_ttml_truncated_start.pcap", 1, 10, 0),
];

fn find<'a>(survey: &'a Survey, ends: &str) -> &'a FoundFlow {
    survey.flows.iter().find(|f| f.ends.to_string() == ends).unwrap_or_else(|| panic!("no flow {ends}"))
}

#[test]
fn every_file_is_read_to_its_end() {
    let Some(folder) = corpus() else { return };
    for (file, flows, records, cut) in FILES {
        let survey = survey(&folder.join(file), None).unwrap();
        let counters = survey.capture;
        assert_eq!(
            (survey.flows.len(), counters.records, counters.snapped, counters.cut_short, counters.other_link),
            (flows, records, cut, false, 0),
            "{file}"
        );
        assert_eq!((survey.fragments, survey.malformed, survey.beyond), (0, 0, 0), "{file}");
        let seen: u64 = survey.flows.iter().map(|f| f.packets).sum();
        assert_eq!(seen + survey.other, records, "{file}");
    }
}

#[test]
fn every_media_flow_is_recognised_and_counted() {
    let Some(folder) = corpus() else { return };
    for e in FLOWS {
        let survey = survey(&folder.join(e.file), None).unwrap();
        let flow = find(&survey, e.ends);
        let rtp = flow.rtp.as_ref().unwrap();
        assert_eq!(flow.essence.to_string(), e.essence, "{}", e.file);
        assert_eq!((flow.packets, rtp.packets), (e.packets, e.packets), "{}", e.file);
        assert_eq!(rtp.payload_types, [e.payload_type], "{}", e.file);
        assert_eq!((rtp.markers, rtp.timestamps, rtp.steps), (e.markers, e.timestamps, Some(e.steps)), "{}", e.file);
        assert_eq!((rtp.gaps, rtp.lost > 0, rtp.reordered, rtp.repeated), (e.gaps, e.gaps > 0, 0, 0), "{}", e.file);
        assert!(e.octets == 0 || flow.octets == e.octets * e.packets, "{}", e.file);
    }
}

#[test]
fn what_is_special_in_some_files() {
    let Some(folder) = corpus() else { return };
    let of = |file: &str| survey(&folder.join(file), None).unwrap();
    // Both legs carry the same stream; the second leg in the file begins one packet later.
    let legs = of("st2022-7_audio_two_legs.pcap");
    let [a, b] = [0, 1].map(|n| legs.flows[n].rtp.clone().unwrap());
    assert_eq!((a.first_sequence, b.first_sequence), (0x6132, 0x6133));
    assert_eq!((a.ssrcs, b.ssrcs), (vec![0x0102_0304], vec![0x0102_0304]));
    assert_eq!(legs.flows[0].essence, Essence::Audio(FoundAudio { samples: 6, octets: 3 }));
    // Empty packets with four octets of padding.
    assert_eq!(of("st2110-40_rtp_padding.pcap").flows[0].rtp.as_ref().unwrap().padded, 17);
    // JPEG XS of constant size, video with 2160 packets a field.
    let jxs = of("st2110-22_jxs_125mbps_1080i5994.pcap");
    assert_eq!(jxs.flows[0].rtp.as_ref().unwrap().run, Some((217, 217)));
    assert_eq!(jxs.flows[0].octets, 5 * (216 * 1216 + 80));
    assert!(jxs.flows[0].why.contains("5 pictures that begin as JPEG XS"));
    let video = of("st2110-20_1080i5994_422-10_gpm_snap128.pcap");
    assert_eq!(video.flows[0].rtp.as_ref().unwrap().run, Some((2160, 2160)));
    let Essence::Video(found) = &video.flows[0].essence else { panic!() };
    assert_eq!((found.density, found.formats[0]), (Some((1200, 480)), (Sampling::YCbCr422, Depth::D10)));
    assert_eq!((found.width, found.height, found.fields, found.segments), (1920, 1080, true, 1));
    // SDI in RTP, one marker; its timestamps step by 199 to 201 with few exceptions.
    let sdi = of("st2022-6_one_frame_720p5994.pcap");
    assert_eq!((&sdi.flows[0].essence, sdi.flows[0].packets), (&Essence::Sdi2022_6, 2249));
    assert_eq!((sdi.flows[0].octets, sdi.flows[0].rtp.as_ref().unwrap().markers), (2249 * 1400, 1));
    assert_eq!(sdi.flows[0].rtp.as_ref().unwrap().payload_types, [98]);
    // One document a packet.
    let text = of("st2110-43_ttml_single_packet.pcap");
    assert_eq!((&text.flows[0].essence, text.flows[0].rtp.as_ref().unwrap().markers), (&Essence::TimedText, 4));
    // PTP over UDP and over Ethernet.
    let ptp = of("ptp_v2_mixed.pcap");
    assert!(ptp.flows.iter().all(|f| f.essence == Essence::Ptp));
    assert_eq!(ptp.flows.iter().filter(|f| matches!(f.ends, Ends::Ethernet(..))).map(|f| f.packets).sum::<u64>(), 14);
    assert_eq!(of("ptp_management.pcapng").flows[0].essence, Essence::Ptp);
    let both = of("st2110-40_truncated_with_ptp.pcap.gz");
    let ptp: Vec<u64> = both.flows.iter().filter(|f| f.essence == Essence::Ptp).map(|f| f.packets).collect();
    assert_eq!(ptp, [19, 8]);
    assert_eq!(find(&both, "192.168.200.105:7000 -> 239.200.3.1:7000").cut, 100);
}

/// RTP header and payload of every packet to a port.
fn each_rtp(path: &Path, port: u16, mut f: impl FnMut(u64, &rtp::Header, &[u8])) {
    let mut capture = Capture::open(path).unwrap();
    while let Some(record) = capture.next_record().unwrap() {
        let Content::Udp(d) = net::parse(record.link, record.octets) else { continue };
        if d.destination.port() == port {
            let octets = &record.octets[d.payload.clone()];
            let header = rtp::parse(octets, usize::from(d.octets)).unwrap();
            let payload = &octets[usize::from(header.payload.start)..usize::from(header.payload.end).min(octets.len())];
            f(record.time, &header, payload);
        }
    }
}

#[test]
fn ancillary_headers_are_where_the_index_says() {
    let Some(folder) = corpus() else { return };
    // File, port, packets without ANC data, and those with F 0, 2 and 3.
    for (file, port, empty, fields) in [
        ("st2110-40_5994i_timecode_cc.pcap", 50040, 30, [0, 60, 30]),
        ("st2110-40_5994i_timecode_cc_afd.pcap", 20000, 50, [0, 125, 74]),
        ("st2110-40_empty_keepalive_50i.pcap", 50040, 50, [0, 25, 25]),
        ("st2110-40_rtp_padding.pcap", 50040, 17, [50, 0, 0]),
        ("st2110-40_720p5994_cc.pcap", 5000, 1800, [3599, 0, 0]),
        ("st2110-40_5994p_timecode_cc.pcap", 20000, 250, [1000, 0, 0]),
    ] {
        let (mut none, mut found) = (0, [0u32; 4]);
        each_rtp(&folder.join(file), port, |_, header, payload| {
            assert_eq!(usize::from(u16::from_be_bytes([payload[2], payload[3]])) + 8, payload.len(), "{file}");
            none += u32::from(payload[4] == 0);
            assert!(payload[4] != 0 || header.marker, "{file}: the empty packet carries the marker");
            found[usize::from(payload[5] >> 6)] += 1;
        });
        assert_eq!((none, found), (empty, [fields[0], 0, fields[1], fields[2]]), "{file}");
    }
}

/// Of the video capture: place, time and header of every one of its 21600 packets, through the receiver.
#[test]
fn every_video_packet_is_where_it_belongs() {
    let Some(folder) = corpus() else { return };
    let path = folder.join("st2110-20_1080i5994_422-10_gpm_snap128.pcap");
    let mut pcap = Pcap::open(&path, Pace::Full).unwrap();
    let only = SourceFilter::Include(vec!["192.168.1.212".parse().unwrap()]);
    let destination = "239.0.1.2".parse().unwrap();
    pcap.join(0, &Leg { destination, port: 50000, sources: only, ttl: None, mid: None }).unwrap();
    let mut n = 0u32;
    let (mut first, mut last, mut field_start) = (None, 0, Vec::new());
    let mut timestamps = Vec::new();
    loop {
        let lease = match pcap.poll() {
            Ok(lease) => lease,
            Err(RxError::End) => break,
            Err(e) => panic!("{e}"),
        };
        for slot in lease.slots() {
            let head = pcap.ring().head(slot);
            assert_eq!((slot.octets, slot.wire_octets), (86, 1220));
            let header = rtp::parse(head, usize::from(slot.wire_octets)).unwrap();
            let srds = srd::parse(head, header.payload.clone()).unwrap();
            let (field, packet) = (n / 2160, n % 2160);
            assert_eq!((header.payload_type, header.ssrc, header.marker), (96, 0, packet == 2159), "packet {n}");
            // The 32-bit sequence runs on over the wrap of its lower half.
            let sequence = u32::from(srds.extended) << 16 | u32::from(header.sequence);
            assert_eq!(sequence, (22103 << 16 | 0xcfa0) + n, "packet {n}");
            let srd = srds.first;
            assert_eq!(srds.count(), 1, "packet {n}");
            assert_eq!((srd.length, srds.data_at), (1200, 20), "packet {n}");
            assert_eq!((u32::from(srd.row), u32::from(srd.offset)), (packet / 4, packet % 4 * 480), "packet {n}");
            let second = *first.get_or_insert(srd.field) != (field % 2 == 1);
            assert_eq!(srd.field, second, "fields alternate");
            if packet == 0 {
                timestamps.push(header.timestamp);
                field_start.push((slot.arrival.0, last));
            }
            assert_eq!(header.timestamp, timestamps[field as usize]);
            last = slot.arrival.0;
            n += 1;
        }
        pcap.release(lease);
    }
    assert_eq!((n, pcap.counters().datagrams, pcap.counters().rejected.total()), (21600, 21600, 0));
    assert_eq!(pcap.capture_counters().snapped, 21600);
    let steps: Vec<u32> = timestamps.windows(2).map(|w| w[1].wrapping_sub(w[0])).collect();
    assert!(steps.windows(2).all(|w| w[0] + w[1] == 3003) && (1501..=1502).contains(&steps[0]), "{steps:?}");
    // The capture's clock is TAI: 55 or 56 whole ticks (611 or 622 us) from the media time to the first packet.
    for ((arrival, _), timestamp) in field_start.iter().zip(&timestamps) {
        let ticks = (u128::from(*arrival) * 90_000 / 1_000_000_000) as u32;
        let latency = ticks.wrapping_sub(*timestamp);
        assert!((55..=56).contains(&latency), "{latency} ticks");
    }
    // 7.69 us a packet over all; 7.41 us within a field (a gapped sender), and 663 and 692 us between fields in turn.
    let gaps: Vec<u64> = field_start.iter().skip(1).map(|(begin, before)| begin - before).collect();
    assert!(gaps.iter().all(|g| (660_000..=695_000).contains(g)), "{gaps:?}");
    let span = last - field_start[0].0;
    let within = span - gaps.iter().sum::<u64>();
    assert_eq!((span / 21_599, within / (10 * 2159)), (7693, 7413));
}

#[test]
fn tshark_counts_the_same() {
    let Some(folder) = corpus() else { return };
    // One of every kind: tshark takes a second to start.
    for file in [
        "ptp_management.pcapng",
        "ptp_v2_mixed.pcap",
        "st2022-7_audio_dropped_in_both.pcap",
        "st2110-20_1080i5994_422-10_gpm_snap128.pcap",
        "st2110-22_jxs_125mbps_1080i5994.pcap",
        "st2110-40_truncated_with_ptp.pcap.gz",
        "st2110-43_ttml_four_packets.pcap",
    ] {
        let path = folder.join(file);
        let out = std::process::Command::new("tshark")
            .args(["-n", "-T", "fields", "-E", "separator= ", "-Y", "udp"])
            .args(["-e", "ip.src", "-e", "udp.srcport", "-e", "ip.dst", "-e", "udp.dstport", "-e", "udp.length", "-r"])
            .arg(&path)
            .output();
        let Ok(out) = out else {
            println!("skipped: no tshark");
            return;
        };
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let mut theirs: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for line in String::from_utf8(out.stdout).unwrap().lines() {
            let [source, from, destination, to, length] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let flow = theirs.entry(format!("{source}:{from} -> {destination}:{to}")).or_default();
            *flow = (flow.0 + 1, flow.1 + length.parse::<u64>().unwrap() - 8);
        }
        let survey = survey(&path, None).unwrap();
        let udp = survey.flows.iter().filter(|f| matches!(f.ends, Ends::Udp(..)));
        let ours: BTreeMap<String, (u64, u64)> = udp.map(|f| (f.ends.to_string(), (f.packets, f.octets))).collect();
        assert_eq!(ours, theirs, "{file}");
    }
}
