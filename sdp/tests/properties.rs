//! What holds for every text and every flow.

use gdmedia_sdp::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Texts to mutate: two of everything that the reader knows.
const SEEDS: &[&str] = &[
    "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=camera\r\nt=0 0\r\na=group:DUP one two\r\nm=video 5004 RTP/AVP 96\r\n\
     c=IN IP4 239.1.1.1/64\r\na=source-filter: incl IN IP4 239.1.1.1 192.0.2.1\r\na=rtpmap:96 raw/90000\r\n\
     a=fmtp:96 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=30000/1001; depth=10; TCS=SDR; \
     colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN; interlace; MAXUDP=1460; PAR=12:11; TROFF=600\r\n\
     a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-33-44:127\r\na=mediaclk:direct=0\r\na=mid:one\r\n\
     m=video 5006 RTP/AVP 96\r\nc=IN IP4 239.1.2.1/64\r\na=rtpmap:96 raw/90000\r\n\
     a=fmtp:96 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=30000/1001; depth=10; interlace\r\n\
     a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:sender\r\na=mid:two\r\n",
    "v=0\no=- 1 1 IN IP6 2001:db8::1\ns=x\nc=IN IP6 ff3e::8000:1\nt=0 0\na=source-filter: incl IN IP6 * 2001:db8::1\n\
     m=audio 5004 RTP/AVP 97\ni=left and right\na=rtpmap:97 L24/48000/2\na=fmtp:97 channel-order=SMPTE2110.(ST)\n\
     a=ptime:0.125\na=framecount:6\nm=video 5008 RTP/AVP 100\nb=AS:1000\na=rtpmap:100 smpte291/90000\n\
     a=fmtp:100 SSN=ST2110-40:2018; exactframerate=25; DID_SDID={0x61,0x02};VPID_Code=133;\n\
     m=application 5010 RTP/AVP 101\na=rtpmap:101 ST2110-41/48000\na=fmtp:101 SSN=ST2110-41:2024; DIT=100,3FFFFF\n\
     m=video 5012 RTP/AVP 112\nb=AS:116000\na=rtpmap:112 jxsv/90000\na=fmtp:112 packetmode=0; width=1280; height=720\n\
     a=framerate:59.94\nm=audio 5014 RTP/AVP 8\n",
];

/// A corpus of what text mutations like to be.
const PIECES: &[&str] = &[
    "\n",
    "\r",
    "\r\n",
    "\0",
    "\t",
    " ",
    ";",
    "; ",
    "=",
    ":",
    "/",
    ",",
    "a=",
    "m=video 5 RTP/AVP 96\n",
    "c=IN IP4 ",
    "v=0\n",
    "a=mid:one\n",
    "a=group:DUP one two\n",
    "a=fmtp:96 ",
    "a=rtpmap:96 raw/90000\n",
    "18446744073709551616",
    "-1",
    "0",
    "239.1.1.1",
    "\u{feff}",
    "é",
    "width=",
    "interlace",
    "exactframerate=",
    "{0x",
    "}",
    "\\",
    "\\r\\n",
    "#",
    "\"",
    "ts-refclk:",
    "a=ts-refclk:ptp=",
    "a=source-filter: excl IN * * ",
    "a=ssrc-group:DUP 1 2\n",
    "m=",
    "ptime:",
    "m=audio 5 RTP/AVP 0\n",
];

#[derive(Clone, Debug)]
enum Edit {
    Insert(Index, &'static str),
    Delete(Index, usize),
    Set(Index, u8),
    Copy(Index, Index, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (any::<Index>(), select(PIECES)).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        (any::<Index>(), 1usize..40).prop_map(|(at, n)| Edit::Delete(at, n)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, octet)| Edit::Set(at, octet)),
        (any::<Index>(), any::<Index>(), 1usize..80).prop_map(|(a, b, n)| Edit::Copy(a, b, n)),
    ]
}

fn apply(text: &mut Vec<u8>, edit: &Edit) {
    if text.is_empty() {
        return;
    }
    let len = text.len();
    match edit {
        Edit::Insert(at, piece) => {
            let at = at.index(len);
            text.splice(at..at, piece.bytes());
        }
        Edit::Delete(at, n) => {
            let at = at.index(len);
            text.drain(at..(at + n).min(len));
        }
        Edit::Set(at, octet) => text[at.index(len)] = *octet,
        Edit::Copy(from, to, n) => {
            let from = from.index(len);
            let part = text[from..(from + n).min(len)].to_vec();
            let to = to.index(len);
            text.splice(to..to, part);
        }
    }
}

fn ratio() -> impl Strategy<Value = Ratio> {
    select(vec![(24, 1), (25, 1), (50, 1), (60, 1), (24000, 1001), (30000, 1001), (60000, 1001), (120, 1)])
        .prop_map(|(num, den)| Ratio { num, den })
}

fn picture() -> impl Strategy<Value = Essence> {
    let shape = (select(Sampling::ALL), select(Depth::ALL), 1u32..8000, 1u32..4500, select(Scan::ALL), ratio());
    let look = (select(Colorimetry::ALL), select(Tcs::ALL), select(Range::ALL), (1u32..100, 1u32..100));
    let transport = (select(Packing::ALL), 1460u32..=8960, option::of(select(SenderType::ALL)));
    let extra = (
        option::of(1u32..5000),
        option::of(1u32..100),
        option::of(select(vec!["SAMP", "NEW", "PRES"])),
        option::of(0u32..100_000),
    );
    (shape, look, transport, extra).prop_filter_map("no such picture", |(shape, look, transport, extra)| {
        let (sampling, depth, width, mut height, scan, mut rate) = shape;
        let pgroup = sampling.pgroup(depth)?;
        if pgroup.rows == 2 && scan != Scan::Progressive {
            return None;
        }
        height += height % pgroup.rows;
        let width = if sampling.subsampling() == Subsampling::Half422 { width + width % 2 } else { width };
        if scan != Scan::Progressive {
            height = if height == 720 { 576 } else { height };
            rate = Ratio { num: 25, den: 1 };
        }
        let (mut colorimetry, mut tcs, mut range, (w, h)) = look;
        if sampling == Sampling::Key {
            (colorimetry, tcs) = (Colorimetry::Alpha, Tcs::Sdr);
        } else if colorimetry == Colorimetry::Alpha {
            colorimetry = Colorimetry::Bt709;
        }
        if depth != Depth::F16 && matches!(tcs, Tcs::Linear | Tcs::Bt2100LinPq | Tcs::Bt2100LinHlg | Tcs::St2065_1) {
            tcs = Tcs::Sdr;
        }
        if matches!(colorimetry, Colorimetry::Bt601 | Colorimetry::Bt709) && matches!(tcs, Tcs::Pq | Tcs::Hlg) {
            tcs = Tcs::Sdr;
        }
        if colorimetry == Colorimetry::Bt2100 && range == Range::FullProtect {
            range = Range::Full;
        }
        let (mut packing, max_udp, sender_type) = transport;
        if pgroup.octets == 8 {
            packing = Packing::Gpm;
        }
        let edition = if colorimetry == Colorimetry::Alpha || tcs == Tcs::St2115LogS3 { 2022 } else { 2017 };
        Some(Essence::Video(Video {
            sampling,
            depth,
            width,
            height,
            rate: Some(rate),
            scan,
            colorimetry,
            tcs,
            range,
            par: Ratio { num: w, den: h },
            packing,
            max_udp: if packing == Packing::Bpm { 1460 } else { max_udp },
            // Its absence is a warning, so a right description has one.
            sender_type: sender_type.or(Some(SenderType::W)),
            troff_us: extra.0,
            cmax: extra.1,
            ts_mode: extra.2.map(str::to_owned),
            ts_delay_us: extra.3,
            ssn: Some(format!("ST2110-20:{edition}")),
        }))
    })
}

fn sound() -> impl Strategy<Value = (Essence, u32)> {
    let pcm = (select(vec!["L16", "L24"]), 1u32..=10, select(vec![6u32, 48]), select(vec![48000u32, 96000])).prop_map(
        |(encoding, channels, samples, rate)| {
            let samples = samples * (rate / 48000);
            let channels = if samples > 48 { channels.min(4) } else { channels };
            let order = Some(format!("SMPTE2110.(U{channels:02})"));
            (Essence::Audio(audio(encoding, channels, samples, rate, order)), rate)
        },
    );
    let aes3 = (1u32..=3, select(vec![4u32, 6, 48]), select(vec![44100u32, 48000]))
        .prop_map(|(pairs, samples, rate)| (Essence::Aes3(audio("AM824", 2 * pairs, samples, rate, None)), rate));
    prop_oneof![pcm, aes3]
}

fn audio(encoding: &str, channels: u32, samples: u32, rate: u32, order: Option<String>) -> Audio {
    Audio {
        encoding: encoding.to_owned(),
        channels,
        samples_per_packet: Some(samples),
        packet_time_us: Some((f64::from(samples) * 1e6 / f64::from(rate)).round() as u32),
        channel_order: order,
    }
}

fn data() -> impl Strategy<Value = (Essence, u32)> {
    let anc = (vec(any::<(u8, u8)>(), 0..4), option::of(any::<u8>()), ratio(), option::of(select(vec!["CTM", "LLTM"])))
        .prop_map(|(did_sdid, vpid_code, rate, tm)| {
            let ssn = Some(format!("ST2110-40:{}", if tm.is_some() { 2023 } else { 2018 }));
            let transmission_model = tm.map(str::to_owned);
            Essence::Ancillary(Ancillary { did_sdid, vpid_code, rate: Some(rate), ssn, transmission_model })
        });
    let fast = vec(0u32..1 << 22, 0..5).prop_map(|data_item_types| {
        Essence::FastMetadata(FastMetadata { data_item_types, ssn: Some("ST2110-41:2024".to_owned()) })
    });
    let text = select(vec!["im1t", "im2t", "im3t"])
        .prop_map(|codecs| Essence::TimedText(TimedText { codecs: Some(codecs.to_owned()) }));
    let xs = (1u32..8000, 1u32..4000, ratio()).prop_map(|(width, height, rate)| {
        let parameters =
            [("packetmode", "0"), ("TP", "2110TPN"), ("sampling", "YCbCr-4:2:2"), ("SSN", "ST2110-22:2019")];
        Essence::CompressedVideo(CompressedVideo {
            encoding: "jxsv".to_owned(),
            width: Some(width),
            height: Some(height),
            rate: Some(rate),
            scan: Scan::Progressive,
            parameters: parameters.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec(),
        })
    });
    prop_oneof![
        anc.prop_map(|e| (e, 90_000)),
        fast.prop_map(|e| (e, 48_000)),
        text.prop_map(|e| (e, 90_000)),
        xs.prop_map(|e| (e, 90_000))
    ]
}

fn address(six: bool) -> impl Strategy<Value = IpAddr> {
    any::<u32>().prop_map(move |n| match six {
        false => IpAddr::V4(Ipv4Addr::from(0x0A00_0000 | (n & 0x00FF_FFFF).max(1))),
        true => IpAddr::V6(Ipv6Addr::from(0x2001_0db8_0000_0000_0000_0000_0000_0000u128 | u128::from(n))),
    })
}

fn leg() -> impl Strategy<Value = Leg> {
    (any::<bool>(), any::<bool>()).prop_flat_map(|(six, group)| {
        (address(six), vec(address(six), 1..3), 1024u16.., any::<u8>(), 0u8..3).prop_map(
            move |(a, mut sources, port, ttl, mode)| {
                let destination = match a {
                    IpAddr::V4(v4) if group => IpAddr::V4(Ipv4Addr::from(u32::from(v4) | 0xEF00_0000)),
                    IpAddr::V6(v6) if group => {
                        IpAddr::V6(Ipv6Addr::from(u128::from(v6) & 0xFFFF_FFFF | 0xff3e_u128 << 112))
                    }
                    other => other,
                };
                sources.dedup();
                let sources = match mode {
                    0 => SourceFilter::Any,
                    1 => SourceFilter::Include(sources),
                    _ => SourceFilter::Exclude(sources),
                };
                let ttl = (destination.is_multicast() && destination.is_ipv4()).then_some(ttl.max(1));
                Leg { destination, port, sources, ttl, mid: None }
            },
        )
    })
}

fn clock() -> impl Strategy<Value = ReferenceClock> {
    let octets =
        |n| vec(1u8.., n..=n).prop_map(|v: Vec<u8>| v.iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join("-"));
    prop_oneof![
        (octets(8), 0u8..=127).prop_map(|(id, domain)| ReferenceClock::Ptp {
            version: "IEEE1588-2008".to_owned(),
            grandmaster: Some(id),
            domain: Some(domain),
        }),
        Just(ReferenceClock::Ptp { version: "IEEE1588-2008".to_owned(), grandmaster: None, domain: None }),
        octets(6).prop_map(|mac| ReferenceClock::LocalMac { mac }),
    ]
}

fn flow() -> impl Strategy<Value = Flow> {
    let essence = prop_oneof![picture().prop_map(|e| (e, 90_000)), sound(), data()];
    let clocks = (vec(clock(), 1..3), select(vec![MediaClock::Direct { offset: 0 }, MediaClock::Sender]));
    (
        essence,
        vec(leg(), 1..=2),
        96u8..=127,
        clocks,
        option::of(1u32..10_000_000),
        "[A-Za-z0-9][A-Za-z0-9 ,é]{0,20}[A-Za-z0-9]",
    )
        .prop_map(
            |((essence, clock_rate), legs, payload_type, (reference_clocks, media_clock), bandwidth, name)| Flow {
                index: 0,
                name,
                bandwidth_kbps: bandwidth.or(matches!(essence, Essence::CompressedVideo(_)).then_some(100_000)),
                essence,
                payload_type,
                clock_rate,
                legs,
                reference_clocks,
                media_clock,
                usable: true,
            },
        )
}

/// Flows as one description has them: numbered by their first medium, pairs with mids that nobody else has.
fn flows() -> impl Strategy<Value = Vec<Flow>> {
    vec(flow(), 1..4).prop_map(|mut flows| {
        let mut media = 0;
        for flow in &mut flows {
            flow.index = media;
            flow.legs.dedup();
            media += flow.legs.len();
            if flow.legs.len() > 1 {
                for (n, leg) in flow.legs.iter_mut().enumerate() {
                    leg.mid = Some(format!("m{}-{n}", flow.index));
                }
            }
        }
        flows
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_descriptions_keep_the_invariants(seed in select(SEEDS), edits in vec(edit(), 0..12)) {
        let mut text = seed.as_bytes().to_vec();
        for edit in &edits {
            apply(&mut text, edit);
        }
        fuzzing::sdp(&text);
    }

    #[test]
    fn any_octets_keep_the_invariants(text in vec(any::<u8>(), 0..600)) {
        fuzzing::sdp(&text);
    }

    #[test]
    fn what_is_written_is_read_again(flows in flows()) {
        let text = write(&flows);
        for mode in [Mode::Lenient, Mode::Strict] {
            let d = parse(text.as_bytes(), mode);
            prop_assert!(d.worst() <= Some(Severity::Note), "{text}\n{:#?}", d.diagnostics);
            prop_assert_eq!(&d.flows, &flows, "{}", text);
            prop_assert!(d.usable);
        }
        let d = parse(text.as_bytes(), Mode::Lenient);
        let corrected = d.corrected().expect("usable");
        let again = parse(corrected.as_bytes(), Mode::Lenient);
        prop_assert_eq!(&again.flows, &flows, "{}", corrected);
    }

    /// What sdp-types types of an attribute is what is read here.
    #[test]
    fn sdp_types_agrees(flows in flows()) {
        let text = write(&flows);
        let session = sdp_types::Session::parse(text.as_bytes()).expect("it is written by sdp-types");
        let legs: Vec<(&Flow, &Leg)> = flows.iter().flat_map(|f| f.legs.iter().map(move |l| (f, l))).collect();
        prop_assert_eq!(session.medias.len(), legs.len());
        for (medium, (flow, leg)) in session.medias.iter().zip(legs) {
            prop_assert_eq!(medium.port, leg.port);
            prop_assert_eq!(medium.connections[0].try_address().map(|a| (a.ip, a.ttl)), Ok((leg.destination, leg.ttl)));
            let map = medium.get_first_attribute_typed::<sdp_types::RtpMap>().expect("there").expect("right");
            prop_assert_eq!((map.payload_type, map.clock_rate), (flow.payload_type, flow.clock_rate));
        }
    }
}
