//! The corpus: what its index counted with an independent parser, and which clocks it calls aligned.

use super::flows;
use gdmedia::analyze::{Analysis, Options, analyze};
use gdmedia::report::Severity;
use gdmedia::timing::align::Alignment::{self, Aligned, Apart, FreeRunning, Utc};
use gdmedia::timing::flow::Meter;
use gdmedia::timing::stamps::Trust;
use gdmedia::timing::{Class, Source};
use gdmedia::wire::capture::Capture;
use std::collections::BTreeSet;
use std::path::PathBuf;

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

fn of(file: &str, options: &Options) -> Option<Analysis> {
    let path = corpus()?.join(file);
    // By a thread that reads ahead.
    let mut capture = Capture::open_ahead(&path).unwrap();
    Some(analyze(&mut capture, options, &mut |_| true).unwrap())
}

fn plain(file: &str) -> Option<Analysis> {
    of(file, &Options::default())
}

#[test]
fn clocks_are_found_as_the_index_says() {
    // In the index's order. All that it does not call aligned have "a free-running offset"; which of them drift can be told
    // where they are long enough.
    let table: [(&str, &[Alignment]); 18] = [
        ("st2110-20_1080i5994_422-10_gpm_snap128.pcap", &[Aligned]),
        ("st2022-7_audio_two_legs.pcap", &[Aligned, Aligned]),
        ("st2022-7_audio_dropped_in_both.pcap", &[Aligned, Aligned]),
        ("st2110-22_jxs_125mbps_1080i5994.pcap", &[Apart]),
        ("st2110-30_l16_48k_2ch_1ms.pcap", &[FreeRunning]),
        ("st2110-30_l24_48k_8ch_125us.pcap", &[FreeRunning]),
        ("st2110-30_l24_48k_2ch_1ms_short.pcap", &[Apart]),
        ("st2110-40_5994i_timecode_cc.pcap", &[Apart]),
        ("st2110-40_5994i_timecode_cc_afd.pcap", &[Apart]),
        ("st2110-40_bad_did_checksum_parity.pcap", &[Apart]),
        ("st2110-40_one_bad_packet.pcap", &[Apart]),
        ("st2110-40_rtp_padding.pcap", &[Aligned]),
        ("st2110-40_empty_keepalive_50i.pcap", &[Aligned]),
        ("st2110-40_truncated_with_ptp.pcap.gz", &[Aligned]),
        ("st2110-40_720p5994_cc.pcap", &[FreeRunning]),
        ("st2110-40_50i_op47.pcap", &[Aligned]),
        ("st2110-40_5994p_timecode_cc.pcap", &[Apart]),
        ("st2022-6_one_frame_720p5994.pcap", &[Apart]),
    ];
    for (file, wanted) in table {
        let Some(analysis) = plain(file) else { return };
        let found: Vec<_> = analysis.flows.iter().map(|f| f.timing.clocks(0).unwrap().alignment).collect();
        assert_eq!(found, wanted, "{file}");
        // The same arrivals on UTC: named wherever timestamps are TAI, and nowhere else.
        let utc = of(file, &Options { tai_offset: -37, ..Options::default() }).unwrap();
        for (flow, wanted) in utc.flows.iter().zip(wanted) {
            let found = flow.timing.clocks(0).unwrap().alignment;
            assert_eq!(found == Utc, *wanted == Aligned, "{file}: {found:?}");
        }
    }
}

#[test]
fn the_capture_of_video() {
    let Some(analysis) = plain("st2110-20_1080i5994_422-10_gpm_snap128.pcap") else { return };
    let flow = &analysis.flows[0];
    let Some(Meter::Frames(f)) = flow.timing.meter(0) else { panic!() };
    // 611 to 622 us are 55 to 56 whole ticks.
    let ticks = |ns: i64| ns * 90_000 / 1_000_000_000;
    let latency = f.latency.all;
    assert_eq!((latency.count, ticks(latency.min), ticks(latency.max)), (10, 55, 56), "{latency:?}");
    assert_eq!((f.increment.all.count, f.increment.all.min, f.increment.all.max), (9, 1501, 1502));
    assert_eq!((f.increments_off, f.without_marker, f.behind_marker, f.units), (0, 0, 0, 10));
    assert_eq!((f.packets.all.count, f.packets.all.min, f.packets.all.max), (10, 2160, 2160));
    // About 693 us between fields, less where the next field comes early.
    assert_eq!((f.gap.all.max, f.gap.all.count), (693_000, 9));
    assert!(f.gap.all.min > 650_000 && f.seems_gapped());
    // Within a field the gapped 7.41 us, with the gaps 7.69 us.
    assert!((f.interval.mean() - 7_414.0).abs() < 5.0, "{}", f.interval.mean());
    let (first, last) = flow.timing.span(0);
    let spacing = last.since(first) as f64 / 21_599.0;
    assert!((spacing - 7_690.0).abs() < 10.0, "{spacing}");
    // TROFFSET 652.5 us: the first packet comes 30 to 46 us before its read, which is a level of 5 to 7.
    assert!(f.margin.all.min > 30_000 && f.margin.all.max < 46_000);
    assert_eq!(flow.timing.trust(0), Some(Trust::Coarse { resolution_ns: 1000, packets: 1 }));
    let verdict = flow.timing.verdict(0).unwrap();
    assert_eq!(verdict.class, Some(Class::Narrow));
    assert_eq!(f.vrx.as_ref().unwrap().each_ref().map(|l| l.all().max), [7, 93]);
    assert_eq!(f.cinst.as_ref().unwrap().all().max, 2);
    assert_eq!(analysis.report().verdict, Severity::Pass);

    // On UTC: the same, for the 37 s are found.
    let utc = of("st2110-20_1080i5994_422-10_gpm_snap128.pcap", &Options { tai_offset: -37, ..Options::default() });
    let utc = utc.unwrap();
    assert_eq!(utc.flows[0].timing.verdict(0).unwrap().class, Some(Class::Narrow));
    assert_eq!(utc.report().verdict, Severity::Warning);
    // By software: no verdict, and no failure.
    let software =
        of("st2110-20_1080i5994_422-10_gpm_snap128.pcap", &Options { source: Source::Software, ..Options::default() });
    let report = software.unwrap().report();
    assert_eq!(report.verdict, Severity::NotMeasurable);
    assert!(report.checks.iter().any(|c| c.name == "ST 2110-21" && c.message.contains("software stamps")));
}

const TWO_LEGS: &str = "v=0\r\no=- 1 1 IN IP4 192.168.130.2\r\ns=legs\r\nt=0 0\r\na=group:DUP a b\r\n\
    m=audio 6000 RTP/AVP 96\r\nc=IN IP4 239.1.2.2/64\r\na=rtpmap:96 L24/48000/1\r\na=ptime:0.125\r\na=mid:a\r\n\
    a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n\
    m=audio 6000 RTP/AVP 96\r\nc=IN IP4 239.1.2.1/64\r\na=rtpmap:96 L24/48000/1\r\na=ptime:0.125\r\na=mid:b\r\n\
    a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n";

#[test]
fn two_legs_make_one_flow() {
    let options = Options { flows: flows(TWO_LEGS), ..Options::default() };
    let Some(whole) = of("st2022-7_audio_two_legs.pcap", &options) else { return };
    assert_eq!(whole.flows.len(), 1);
    let w = whole.flows[0].timing.window();
    assert_eq!([w.leg(0).received, w.leg(1).received, w.leg(0).lost, w.leg(1).lost], [16_000, 16_000, 0, 0]);
    // The second leg begins, and ends, one packet later.
    assert_eq!((w.received(), w.lost()), (16_001, 0));
    assert!(w.leg(1).skew.max_ns.abs() < 100_000, "{:?}", w.leg(1).skew);

    let cut = of("st2022-7_audio_dropped_in_both.pcap", &options).unwrap();
    let w = cut.flows[0].timing.window();
    // Counted once more with sets.
    let mut legs = [BTreeSet::new(), BTreeSet::new()];
    let path = corpus().unwrap().join("st2022-7_audio_dropped_in_both.pcap");
    let mut capture = Capture::open(&path).unwrap();
    while let Some(record) = capture.next_record().unwrap() {
        let octets = record.octets;
        // Ethernet, IPv4, UDP, RTP: the destination's last octet and the sequence number.
        legs[usize::from(octets[33] == 1)].insert(u16::from_be_bytes([octets[44], octets[45]]));
    }
    let lost = |set: &BTreeSet<u16>| u64::from(set.last().unwrap() - set.first().unwrap()) + 1 - set.len() as u64;
    assert_eq!([w.leg(0).received, w.leg(1).received], [185, 189]);
    assert_eq!([w.leg(0).lost, w.leg(1).lost], [lost(&legs[0]), lost(&legs[1])]);
    let both: BTreeSet<u16> = legs[0].union(&legs[1]).copied().collect();
    assert_eq!((w.received(), w.lost()), (both.len() as u64, lost(&both)));
    assert!(w.lost() > 0 && w.lost() < w.leg(0).lost + w.leg(1).lost);
}

/// Nothing describes them: they are found by what they have in common.
#[test]
fn two_legs_are_found_without_an_sdp() {
    let Some(whole) = plain("st2022-7_audio_two_legs.pcap") else { return };
    let [pair] = whole.pairs[..] else { panic!("{:?}", whole.pairs) };
    assert_eq!(pair.flows, (0, 1));
    assert!(pair.compared.1 * 100 > pair.compared.0 * 95 && pair.skew.max.abs() < 100_000, "{pair:?}");
    // Other captures have none.
    for other in ["st2110-30_l16_48k_2ch_1ms.pcap", "st2110-40_truncated_with_ptp.pcap.gz"] {
        assert_eq!(plain(other).unwrap().pairs, [], "{other}");
    }
}

#[test]
fn ptp_in_a_capture_is_named() {
    let Some(analysis) = plain("st2110-40_truncated_with_ptp.pcap.gz") else { return };
    assert_eq!((analysis.ptp.messages, analysis.ptp.domains().collect::<Vec<_>>()), (27, vec![127]));
    let mixed = plain("ptp_v2_mixed.pcap").unwrap();
    assert_eq!(mixed.ptp.messages, 39);
    assert!(mixed.flows.is_empty());
}

#[test]
fn every_capture_makes_every_form_of_report() {
    let Some(folder) = corpus() else { return };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "md") {
            continue;
        }
        let mut capture = Capture::open(&path).unwrap();
        let report = analyze(&mut capture, &Options::default(), &mut |_| true).unwrap().report();
        let html = gdmedia::report::html::render(&report);
        assert!(!html.contains("NaN") && html.ends_with("</html>\n"), "{}", path.display());
        assert_eq!(gdmedia::report::Report::from_json(&report.json().unwrap()).unwrap().checks, report.checks);
    }
}
