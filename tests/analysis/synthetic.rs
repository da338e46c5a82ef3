//! Senders of known timing, and faults of known number, in captures that are made here.

use super::{analysis, flows};
use gdmedia::analyze::Options;
use gdmedia::report::Severity;
use gdmedia::sdp::{Flow, Ratio, Scan};
use gdmedia::time::Tai;
use gdmedia::timing::flow::Meter;
use gdmedia::timing::frames::Frames;
use gdmedia::timing::schedule::{Pacing, Schedule};
use gdmedia::timing::{Class, Rules, Source, buckets};
use gdmedia::wire::capture::PcapWriter;
use gdmedia::wire::net::{Link, Route};
use gdmedia::wire::{rtp, srd};
use std::net::SocketAddr;

const RATE: Ratio = Ratio { num: 60000, den: 1001 };
/// Packets of a frame: one a row, of eight pixels.
const PACKETS: u32 = 1080;

/// 8x1080p59.94: as few octets as a picture of 1080 rows can have.
pub fn sdp(more: &str) -> String {
    let medium = |group: &str, mid: &str| {
        format!(
            "m=video 5004 RTP/AVP 96\r\nc=IN IP4 {group}/64\r\na=rtpmap:96 raw/90000\r\n\
             a=fmtp:96 sampling=YCbCr-4:2:2; width=8; height=1080; exactframerate=60000/1001; depth=10; colorimetry=BT709; \
             PM=2110GPM; SSN=ST2110-20:2017{more}; \r\na=mid:{mid}\r\n\
             a=ts-refclk:ptp=IEEE1588-2008:08-00-11-FF-FE-22-39-E4:127\r\na=mediaclk:direct=0\r\n"
        )
    };
    let legs = medium("239.1.1.1", "a") + &medium("239.1.1.2", "b");
    format!("v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=synthetic\r\nt=0 0\r\na=group:DUP a b\r\n{legs}")
}

/// The same with its first leg only.
fn one_leg(more: &str) -> Vec<Flow> {
    let mut all = flows(&sdp(more));
    all.iter_mut().for_each(|f| f.legs.truncate(1));
    all
}

/// The picture of 8 pixels has the schedules of 1920.
fn as_hd() -> Rules {
    let mut rules = Rules::default();
    rules.limits.gapped = Some(true);
    rules
}

/// A packet on its way: leg, time, payload.
pub struct Sent {
    pub leg: u8,
    pub at: u64,
    pub payload: Vec<u8>,
}

/// Frames of a leg; `when` moves packet `index` of frame `n` from its read, in nanoseconds.
pub fn frames(leg: u8, pacing: Pacing, count: u64, when: impl Fn(u64, u32) -> i64) -> Vec<Sent> {
    let schedule = Schedule::new(RATE, 1080, Scan::Progressive, pacing, PACKETS, None, None).unwrap();
    let first = schedule.frame_at(Tai(1_700_000_037_000_000_000));
    let mut sequence = 65_000u32;
    let mut out = Vec::new();
    for n in 0..count {
        let timestamp = schedule.timestamps(first + n, Scan::Progressive).0;
        for index in 0..PACKETS {
            let mut payload = rtp::emit(index + 1 == PACKETS, 96, sequence as u16, timestamp, 5).to_vec();
            let row = srd::Srd { length: 20, field: false, row: index as u16, offset: 0 };
            let mut header = [0; 8];
            srd::emit((sequence >> 16) as u16, &[row], &mut header).unwrap();
            payload.extend(header);
            payload.extend([0x80; 20]);
            let at = schedule.packet(first + n, index).0.saturating_add_signed(when(n, index));
            out.push(Sent { leg, at, payload });
            sequence = sequence.wrapping_add(1);
        }
    }
    out
}

pub fn capture(mut sent: Vec<Sent>) -> Vec<u8> {
    sent.sort_by_key(|s| s.at);
    let route = |group: &str| {
        let to: SocketAddr = format!("{group}:5004").parse().unwrap();
        Route::new("192.0.2.1:5004".parse().unwrap(), to).unwrap()
    };
    let routes = [route("239.1.1.1"), route("239.1.1.2")];
    let mut file = Vec::new();
    let mut writer = PcapWriter::new(&mut file, "test", Link::Ethernet).unwrap();
    for s in &sent {
        writer.datagram(s.at, &routes[usize::from(s.leg)], &s.payload).unwrap();
    }
    writer.finish().unwrap();
    file
}

fn measured(file: &[u8], options: &Options) -> (Option<Class>, Severity, Frames) {
    let a = analysis(file, options);
    let flow = &a.flows[0];
    let Some(Meter::Frames(f)) = flow.timing.meter(0) else { panic!("{:?}", flow.timing.meter(0)) };
    let report = a.report();
    let check = report.checks.iter().find(|c| c.name == "ST 2110-21").unwrap();
    (flow.timing.verdict(0).unwrap().class, check.severity, (**f).clone())
}

#[test]
fn senders_are_what_they_are() {
    let of = |pacing, more: &str, when: &dyn Fn(u64, u32) -> i64| {
        let file = capture(frames(0, pacing, 8, when));
        measured(
            &file,
            &Options { flows: one_leg(more), source: Source::Hardware, rules: as_hd(), ..Options::default() },
        )
    };
    // On time, to the nanosecond: levels never leave 1, and a packet may come at its very read.
    let (class, check, f) = of(Pacing::Gapped, "; TP=2110TPN", &|_, _| 0);
    assert_eq!((class, check), (Some(Class::Narrow), Severity::Pass));
    let [gapped, _] = f.vrx.clone().unwrap();
    assert_eq!((gapped.all().min, gapped.all().max), (1, 1));
    assert_eq!((f.fpt.all.count, f.fpt.all.min / 1000, f.fpt.all.max / 1000), (8, 637, 637));
    assert_eq!((f.margin.all.min.abs() < 2, f.latency.all.count), (true, 8));
    // Linear, described as N: the gapped reads are faster than the packets, and find nothing.
    let (class, check, f) = of(Pacing::Linear, "; TP=2110TPN", &|_, _| 0);
    assert_eq!((class, check), (Some(Class::NarrowLinear), Severity::Failure));
    assert!(f.vrx.unwrap()[0].all().min < -30);
    // Linear and 2 ms early: beyond 8 packets, well within the 720 of W.
    let (class, check, f) = of(Pacing::Linear, "; TP=2110TPW", &|_, _| -2_000_000);
    assert_eq!((class, check), (Some(Class::Wide), Severity::Pass));
    assert_eq!(f.vrx.unwrap()[1].all().max, 130, "1 + floor(2 ms / 15.4475 us)");
    // Late by 100 ns in the whole of one frame.
    let (class, check, f) = of(Pacing::Gapped, "; TP=2110TPN", &|n, _| if n == 5 { 100 } else { 0 });
    assert_eq!((class, check, f.vrx.unwrap()[0].all().min), (Some(Class::NotCompliant), Severity::Failure, 0));
    // 30 us early: two reads ahead.
    let (class, _, f) = of(Pacing::Gapped, "; TP=2110TPN", &|_, _| -30_000);
    assert_eq!((class, f.vrx.unwrap()[0].all().max), (Some(Class::Narrow), 3));
    // Bursts of 40 at a time: CINST of 38 or so is beyond every type's CMAX.
    let (class, check, f) = of(Pacing::Linear, "; TP=2110TPW", &|_, index| -i64::from(index % 40) * 15_447 - 700_000);
    assert_eq!((class, check), (Some(Class::NotCompliant), Severity::Failure));
    assert!((36..=40).contains(&f.cinst.unwrap().all().max));
    // The same burst with what the SDP allows: CMAX=40.
    let (class, check, _) =
        of(Pacing::Linear, "; TP=2110TPW; CMAX=40", &|_, index| -i64::from(index % 40) * 15_447 - 700_000);
    assert_eq!((class, check), (Some(Class::Wide), Severity::Pass));
}

#[test]
fn what_cannot_be_measured_is_no_verdict() {
    // Bursts of 32 as a kernel stamps them: the same octets are a verdict with a card's stamps, and none without.
    let file = capture(frames(0, Pacing::Linear, 8, |_, index| -i64::from(index % 32) * 15_100));
    let options = |source| Options { flows: one_leg("; TP=2110TPW"), source, ..Options::default() };
    let (class, check, _) = measured(&file, &options(Source::Hardware));
    assert_eq!((class, check), (Some(Class::NotCompliant), Severity::Failure));
    for source in [Source::Capture, Source::Software] {
        let (class, check, _) = measured(&file, &options(source));
        assert_eq!((class, check), (None, Severity::NotMeasurable), "{source:?}");
    }
    // Arrivals that are an hour off: CINST is told, VRX is not, and neither is a verdict.
    let options = Options { tai_offset: 3600, ..options(Source::Hardware) };
    let (class, check, f) = measured(&capture(frames(0, Pacing::Linear, 8, |_, _| 0)), &options);
    assert_eq!((class, check), (None, Severity::NotMeasurable));
    assert!(f.vrx.is_none() && f.fpt.all.count == 0 && f.cinst.unwrap().all().max <= 2);
    // From the first packet, where the clocks have nothing to do with each other.
    let rules = Rules { tvd: buckets::Tvd::FirstPacket, ..Rules::default() };
    let (class, _, f) = measured(&capture(frames(0, Pacing::Linear, 8, |_, _| 0)), &Options { rules, ..options });
    assert_eq!(f.vrx.unwrap()[1].all().max, 1);
    assert!(class.is_some());
}

/// ST 2110-21 gives no gapped schedule to pictures of 8 pixels: a sender that spreads its packets so is at best NL, whatever its SDP
/// says, and is held against that.
#[test]
fn rasters_without_a_gapped_schedule_are_linear() {
    let file = capture(frames(0, Pacing::Linear, 8, |_, _| 0));
    let of = |more: &str| {
        let options = Options { flows: one_leg(more), source: Source::Hardware, ..Options::default() };
        let report = analysis(&file, &options).report();
        let check = report.checks.iter().find(|c| c.name == "ST 2110-21").unwrap().clone();
        (check.severity, check.message)
    };
    let (severity, message) = of("; TP=2110TPN");
    assert_eq!(severity, Severity::Warning, "{message}");
    assert!(message.contains("no gapped schedule") && message.contains("narrow linear"), "{message}");
    let (severity, message) = of("; TP=2110TPNL");
    assert_eq!(severity, Severity::Pass, "{message}");
    // Gapped, of a small picture: within NL here, and never N.
    let file = capture(frames(0, Pacing::Gapped, 8, |_, _| 0));
    let options = Options { flows: one_leg(""), source: Source::Hardware, ..Options::default() };
    let (class, _, _) = measured(&file, &options);
    assert!(class != Some(Class::Narrow), "{class:?}");
}

/// Ancillary data of 50 fields a second: on line 9 and 571, then an empty packet with the marker.
#[test]
fn the_deadline_of_ancillary_data() {
    let sdp = |tm: &str| {
        format!(
            "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=anc\r\nt=0 0\r\nm=video 5004 RTP/AVP 100\r\nc=IN IP4 239.1.1.1/64\r\n\
             a=rtpmap:100 smpte291/90000\r\na=fmtp:100 exactframerate=25;{tm} SSN=ST2110-40:2023\r\n\
             a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n"
        )
    };
    // Nanoseconds behind the beginning of the field at which its data, and its end, come.
    let fields = |data: i64, end: i64| {
        let mut sent = Vec::new();
        for n in 0..20u64 {
            let begin = 1_700_000_037_000_000_000 + n * 20_000_000;
            let stamp = gdmedia::time::rtp_from_tai(Tai(begin), 90_000);
            let second = n % 2 == 1;
            let (f, line) = if second { (3u8, 571u32) } else { (2, 9) };
            for (marker, at) in [(false, data), (true, end)] {
                let sequence = (2 * n + u64::from(marker)) as u16;
                let mut payload = rtp::emit(marker, 100, sequence, stamp, 5).to_vec();
                let count = u8::from(!marker);
                payload.extend([0, 0, 0, if marker { 0 } else { 12 }, count, f << 6, 0, 0]);
                if !marker {
                    payload.extend((line << 20).to_be_bytes());
                    payload.extend([0; 8]);
                }
                sent.push(Sent { leg: 0, at: begin.saturating_add_signed(at), payload });
            }
        }
        capture(sent)
    };
    let of = |file: &[u8], tm: &str| {
        let options = Options { flows: flows(&sdp(tm)), source: Source::Hardware, ..Options::default() };
        let a = analysis(file, &options);
        let check = a.report().checks.into_iter().find(|c| c.name == "deadline").expect("a deadline");
        let Some(Meter::Frames(f)) = a.flows[0].timing.meter(0) else { panic!() };
        let due = f.due.clone().unwrap();
        (check.severity, due.late, due.early, due.timing.scan)
    };
    // A line lasts 35.6 us. Line 9 ends 320 us, line 20 711 us into the field; the second field's a half line later or so.
    let good = fields(300_000, 400_000);
    assert_eq!(of(&good, ""), (Severity::Pass, 0, 0, Scan::Interlaced));
    assert_eq!(of(&good, " TM=CTM;"), (Severity::Pass, 0, 0, Scan::Interlaced));
    // Data 1.4 ms into the field: 80 us late; the end of the field is due at 1.7 ms.
    let late = fields(1_400_000, 1_450_000);
    assert_eq!(of(&late, " TM=CTM;"), (Severity::Failure, 20, 0, Scan::Interlaced));
    // Who signals no model has promised nothing.
    assert_eq!(of(&late, ""), (Severity::Warning, 20, 0, Scan::Interlaced));
    // Low latency: 8 lines are 284 us.
    assert_eq!(of(&good, " TM=LLTM;"), (Severity::Pass, 0, 0, Scan::Interlaced));
    assert_eq!(of(&fields(700_000, 710_000), " TM=LLTM;"), (Severity::Failure, 20, 0, Scan::Interlaced));
    // 45 ms before its time.
    assert_eq!(of(&fields(-45_000_000, 0), "").2, 20);
}

/// What an SDP says of itself is foreign: it makes no markup, no lines and no colours.
#[test]
fn names_from_strangers_stay_text() {
    let hostile = "<script>alert(1)</script>&\"'\u{1b}[31m";
    let described = flows(&sdp("; TP=2110TPN").replace("s=synthetic", &format!("s={hostile}")));
    assert!(described[0].name.contains("<script>"), "{}", described[0].name);
    let file = capture(frames(0, Pacing::Gapped, 2, |_, _| 0));
    let report = analysis(&file, &Options { flows: described, ..Options::default() }).report();
    use gdmedia::report::{Form, render};
    for form in [Form::Html, Form::Junit] {
        let text = render(&report, form).unwrap();
        assert!(
            !text.contains("<script>alert") && text.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;"),
            "{form:?}"
        );
        assert!(!text.contains('\u{1b}'), "{form:?}");
    }
    let text = render(&report, Form::Text).unwrap();
    assert!(text.contains("<script>") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn two_legs_without_an_sdp_are_probably_two_legs() {
    let mut sent = frames(0, Pacing::Gapped, 4, |_, _| -10_000);
    sent.extend(frames(1, Pacing::Gapped, 4, |_, _| 240_000));
    let a = analysis(&capture(sent), &Options { source: Source::Hardware, ..Options::default() });
    assert_eq!((a.flows.len(), a.pairs.len()), (2, 1));
    let pair = a.pairs[0];
    assert_eq!((pair.flows, pair.skew.min, pair.skew.max), ((0, 1), 250_000, 250_000));
    assert_eq!(pair.compared.0, pair.compared.1);
    let report = a.report();
    assert!(report.checks.iter().any(|c| c.message.contains("flows 0 and 1 are probably two legs of one")));
    assert!(report.sections.iter().any(|s| s.title.contains("ST 2022-7")));
}

#[test]
fn utc_is_found_and_made_good() {
    let file = capture(frames(0, Pacing::Gapped, 8, |_, _| -10_000));
    let options =
        Options { flows: one_leg("; TP=2110TPN"), source: Source::Hardware, rules: as_hd(), ..Options::default() };
    let (class, _, right) = measured(&file, &options);
    let (utc_class, _, utc) = measured(&file, &Options { tai_offset: -37, ..options });
    assert_eq!((class, utc_class), (Some(Class::Narrow), Some(Class::Narrow)));
    assert_eq!((right.fpt.all, right.latency.all), (utc.fpt.all, utc.latency.all));
}

#[test]
fn list_reckons_otherwise() {
    let file = capture(frames(0, Pacing::Gapped, 8, |n, _| if n == 5 { 100 } else { 0 }));
    let rules = Rules { method: buckets::Method::List, ..as_hd() };
    let options = Options { flows: one_leg("; TP=2110TPN"), source: Source::Hardware, rules, ..Options::default() };
    let (class, _, f) = measured(&file, &options);
    // Late by less than a TRS is not late for LIST, its first packet counts nothing, and its levels are one lower.
    assert_eq!((class, f.vrx.unwrap()[0].all().min), (Some(Class::Narrow), 0));
    assert_eq!(f.cinst.unwrap().all().min, 0);
}

#[test]
fn losses_are_the_planned_ones() {
    let lost = |leg: u8, n: u64, index: u32| match (leg, n, index) {
        // On both legs, on one of them, on the other.
        (_, 2, 100..110) | (0, 3, 7) | (1, 4, 1000..1080) => true,
        (_, 5, 0) => true,
        _ => false,
    };
    let mut sent = Vec::new();
    for leg in [0u8, 1] {
        let skew = i64::from(leg) * 250_000;
        let all = frames(leg, Pacing::Gapped, 8, |_, _| skew);
        let kept = all.into_iter().enumerate().filter(|(k, _)| !lost(leg, *k as u64 / 1080, (*k % 1080) as u32));
        sent.extend(kept.map(|(_, s)| s));
    }
    let file = capture(sent);
    let a = analysis(
        &file,
        &Options { flows: flows(&sdp("; TP=2110TPN")), source: Source::Hardware, ..Options::default() },
    );
    let flow = &a.flows[0];
    let w = flow.timing.window();
    assert_eq!((w.received(), w.lost()), (8 * 1080 - 11, 11));
    assert_eq!([w.leg(0).lost, w.leg(1).lost], [12, 91]);
    let gaps: Vec<_> = w.gaps().0.iter().map(|g| (g.first, g.packets)).collect();
    assert_eq!(gaps, [(65_000 + 2 * 1080 + 100, 10), (65_000 + 5 * 1080, 1)]);
    assert_eq!((w.leg(1).skew.min_ns, w.leg(1).skew.max_ns), (250_000, 250_000));
    let report = a.report();
    assert_eq!((report.verdict, report.events.len()), (Severity::Failure, 2));
    // A frame that lacks its first packet says nothing of FPT; the others are as before.
    let Some(Meter::Frames(f)) = flow.timing.meter(0) else { panic!() };
    assert_eq!((f.fpt.all.count, f.without_marker, f.packets.all.min), (7, 0, 1080));
    assert_eq!(f.vrx.as_ref().unwrap()[0].all().max, 1, "a packet that is lost moves no other one");
}

#[test]
fn without_an_sdp_the_same_is_guessed() {
    let file = capture(frames(0, Pacing::Gapped, 8, |_, _| -20_000));
    let a = analysis(&file, &Options { source: Source::Hardware, ..Options::default() });
    let flow = &a.flows[0];
    let Some(Meter::Frames(f)) = flow.timing.meter(0) else { panic!() };
    assert_eq!((f.config().schedule.rate(), f.config().schedule.packets()), (RATE, PACKETS));
    assert_eq!(flow.timing.verdict(0).unwrap().class, Some(Class::Narrow));
    // An SDP of something else: nothing came of it, and what came is judged by itself.
    let other = flows(&sdp("").replace("239.1.1.", "239.9.9."));
    let a = analysis(&file, &Options { flows: other, ..Options::default() });
    assert_eq!(a.flows.len(), 2);
    assert!(a.report().checks.iter().any(|c| c.severity == Severity::Failure && c.message.contains("nothing of it")));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]
    /// What the fuzz target does, here with captures that are nearly right.
    #[test]
    fn damaged_captures_make_reports_too(how: u8, damage in proptest::collection::vec((0usize..40_000, 0u8..), 0..30), cut in 0usize..40_000) {
        let mut sent = frames(0, Pacing::Linear, 1, |_, _| 0);
        sent.truncate(300);
        // Several short frames.
        for (n, s) in sent.iter_mut().enumerate() {
            s.payload[1] = if n % 60 == 59 { 0xe0 } else { 0x60 };
            s.payload[4..8].copy_from_slice(&(n as u32 / 60 * 1800).to_be_bytes());
        }
        let mut file = vec![how];
        file.extend(capture(sent));
        for (at, octet) in damage {
            if let Some(place) = file.get_mut(at + 25) {
                *place = octet;
            }
        }
        file.truncate(file.len().saturating_sub(cut / 8));
        gdmedia::fuzzing::analyze(&file);
    }
}
