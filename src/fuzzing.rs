//! Bodies of the fuzz targets, compiled by every build so that an API change cannot leave them behind.
//! One function a target; each takes foreign octets and must not panic.

mod faults;
mod pipeline;
mod record;
mod rings;

pub use faults::faults;
pub use pipeline::pipeline;
pub use record::record;
pub use rings::rings;

/// Captures of any kind: container, link layers, RTP, and what the survey makes of it.
pub fn capture(octets: &[u8]) {
    use crate::rx::survey::survey_of;
    use crate::wire::capture::Capture;
    let Ok(mut capture) = Capture::new(octets, "fuzz") else { return };
    if let Ok(survey) = survey_of(&mut capture, None) {
        for flow in &survey.flows {
            assert!(!flow.to_string().is_empty() && !flow.why.is_empty());
        }
    }
    let counters = capture.counters();
    assert!(counters.snapped <= counters.records);
    assert!(matches!(capture.next_record(), Ok(None)));
}

/// Captures, analysed and reported on in every form; the first octet says how.
pub fn analyze(octets: &[u8]) {
    use crate::analyze::{Options, analyze};
    use crate::report::{Form, Report, render};
    use crate::sdp::{Mode, parse};
    use crate::timing::buckets::{Method, Tvd};
    use crate::timing::{Rules, Source};
    use crate::wire::capture::Capture;
    const SDP: &[u8] = b"v=0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 239.1.1.1/64\r\na=rtpmap:96 raw/90000\r\n\
        a=fmtp:96 sampling=YCbCr-4:2:2; width=8; height=8; exactframerate=50; depth=10; TP=2110TPW\r\n";
    let Some((how, rest)) = octets.split_first() else { return };
    let Ok(mut capture) = Capture::new(rest, "fuzz") else { return };
    let options = Options {
        flows: if how & 1 == 0 { Vec::new() } else { parse(SDP, Mode::Lenient).flows },
        source: [Source::Capture, Source::Hardware][usize::from(how >> 1 & 1)],
        rules: Rules {
            method: [Method::Standard, Method::List][usize::from(how >> 2 & 1)],
            tvd: [Tvd::Epoch, Tvd::FirstPacket][usize::from(how >> 3 & 1)],
            ..Rules::default()
        },
        tai_offset: i64::from(how >> 4) * 37,
    };
    let Ok(analysis) = analyze(&mut capture, &options, &mut |_| true) else { return };
    let report = analysis.report();
    for form in [Form::Text, Form::Junit, Form::Html] {
        assert!(render(&report, form).is_ok_and(|text| !text.is_empty()));
    }
    let json = report.json().unwrap_or_default();
    assert!(Report::from_json(&json).is_ok_and(|again| again.verdict == report.verdict));
}

/// PTP: a message as the network brings it and as ptp4l answers; the first octet says which data set it answers with.
pub fn ptp(octets: &[u8]) {
    use crate::ptp::management::{self, Id};
    use crate::time::Tai;
    use crate::wire::ptp;
    let Some((which, rest)) = octets.split_first() else { return };
    if let Some(header) = ptp::header(rest) {
        assert!(header.kind < 16 && !header.source.to_string().is_empty());
        if let Some(announce) = ptp::announce(rest) {
            let text = announce.grandmaster.to_string();
            assert_eq!(text.parse::<management::ClockIdentity>().map(|id| id.0), Ok(announce.grandmaster.0));
        }
        let _ = ptp::origin(rest).map(|ns| Tai(ns).since(Tai(0)));
    }
    let _ = management::response(rest);
    // The same octets as the data of a proper answer, which raw ones seldom are.
    let id = Id::ALL[usize::from(*which) % Id::ALL.len()];
    let mut answer = management::get(rest.first().copied().unwrap_or(0), 7, id).to_vec();
    answer[46] = 2;
    let data = rest.get(..rest.len().min(1400)).unwrap_or_default();
    answer[50..52].copy_from_slice(&(data.len() as u16 + 2).to_be_bytes());
    answer.extend(data);
    if let Some(response) = management::response(&answer) {
        assert_eq!((response.domain, response.sequence), (answer[4], 7));
        let mut state = crate::ptp::State::default();
        state.take(&response);
        assert!(state.port != crate::ptp::PortState::Slave || data.len() > 10);
    }
}

/// ARP and IGMP: frames of the network to a host that receives groups; what it answers is whole. Frames are cut from the input,
/// each behind its length.
pub fn igmp_arp(octets: &[u8]) {
    use crate::rx::host::Host;
    use crate::sdp::SourceFilter;
    use crate::wire::igmp;
    use std::net::Ipv4Addr;
    use std::time::Duration;
    let Some(([how, seconds], mut rest)) = octets.split_first_chunk::<2>() else { return };
    let vlan = u16::from(*how & 1) * 100;
    let mut host = Host::new([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 0, 0, 1), vlan, None);
    let mut whole = |frame: &[u8]| {
        assert!(frame.len() >= 60);
        let packet = frame.get(14 + 4 * usize::from(vlan > 0)..).unwrap_or_default();
        assert!(crate::wire::arp::parse(packet).is_some() || igmp::inside(packet).is_some());
    };
    let groups = [1, 2].map(|n| Ipv4Addr::new(239, 0, 0, n));
    host.join(0, groups[0], &SourceFilter::Any, Duration::ZERO, &mut whole);
    host.join(1, groups[1], &SourceFilter::Include(vec![[10, 0, 0, 9].into()]), Duration::ZERO, &mut whole);
    let mut now = Duration::ZERO;
    while let Some((len, more)) = rest.split_first() {
        let (frame, later) = more.split_at(usize::from(*len).min(more.len()));
        host.receive(frame, now, &mut whole);
        now += Duration::from_secs(u64::from(*seconds));
        host.tick(now, &mut whole);
        rest = later;
    }
    host.leave(0, groups[0], now, &mut whole);
    assert_eq!(host.groups().collect::<Vec<_>>(), [groups[1]]);
}

/// RTP, sample row data headers and the depacketiser: a format, then packets, raw ones and ones that are nearly right.
pub fn depacketise(octets: &[u8]) {
    use crate::depacketise::{Config, Depacketiser, Packet};
    use crate::format::WireFormat;
    use crate::plan::Step;
    use crate::sdp::{Depth, Ratio, Sampling, Scan};
    use crate::time::Tai;

    let Some((setup, mut rest)) = octets.split_first_chunk::<8>() else { return };
    let of = |n: usize, len: usize| usize::from(setup[n]) % len;
    let (sampling, depth) = (Sampling::ALL[of(0, Sampling::ALL.len())], Depth::ALL[of(1, Depth::ALL.len())]);
    let (width, height) = (u32::from(setup[2]) + 1, u32::from(setup[3] % 64) + 1);
    let Some(format) = WireFormat::new(sampling, depth, width, height, Scan::ALL[of(4, Scan::ALL.len())]) else {
        return;
    };
    let rate = [None, Ratio::new(30000, 1001), Ratio::new(25, 1), Ratio::new(0, 1)][of(5, 4)];
    let mut config = Config::new(format, 96, rate);
    config.reorder = u32::from(setup[6]);
    config.numbers = usize::from(setup[7]);
    config.legs = setup[5] >> 6;
    config.window = std::time::Duration::from_millis(u64::from(setup[4]) >> 3);
    let mut depacketiser = Depacketiser::video(config);

    let mut arrival = Tai(1_700_000_000_000_000_000);
    let mut open = [false; crate::plan::MAX_OPEN];
    let mut packet = Vec::new();
    while let Some(([op, delay, size], tail)) = rest.split_first_chunk::<3>() {
        rest = tail;
        arrival.0 += u64::from(*delay) << 16;
        let slot = u32::from(*size);
        let plan = match op % 8 {
            0 => depacketiser.idle(arrival),
            1 if *size == 0 => depacketiser.finish(),
            kind => {
                packet.clear();
                if kind < 3 {
                    let (raw, tail) = rest.split_at(usize::from(*size).min(rest.len()));
                    rest = tail;
                    packet.extend_from_slice(raw);
                } else {
                    let Some((b, tail)) = rest.split_first_chunk::<8>() else { break };
                    rest = tail;
                    // Extension, sequence, timestamp, SSRC, row, offset, length, F and marker.
                    packet.extend([
                        0x80,
                        b[7] << 7 | 96,
                        b[0] & 1,
                        b[1],
                        0,
                        0,
                        b[2] >> 4,
                        b[2] << 4,
                        0,
                        0,
                        0,
                        b[0] >> 6,
                    ]);
                    let len = u16::from(*size).wrapping_mul(format.pgroup.octets as u16);
                    let offset = u16::from(b[5]).wrapping_mul(format.pgroup.width() as u16);
                    packet.extend([0, b[3] & 1]);
                    packet.extend(len.to_be_bytes());
                    packet.extend([b[7] << 6 & 0x80, b[4] & 0x7f]);
                    packet.extend(offset.to_be_bytes());
                    packet.resize(packet.len() + usize::from(len), b[6]);
                }
                let wire_octets = packet.len() as u16;
                let present = if op & 0x80 == 0 { packet.len() } else { packet.len() / 2 };
                let head = packet.get(..present.min(64)).unwrap_or(&packet);
                let whole = Packet { slot, head, octets: present as u16, wire_octets, arrival, leg: op >> 6 & 1 };
                depacketiser.push(std::iter::once(whole))
            }
        };
        for placement in &plan.placements {
            assert!(placement.slot == slot && usize::from(placement.src + placement.len) <= packet.len());
        }
        for step in &plan.steps {
            match step {
                Step::Open(id) => assert!(!std::mem::replace(&mut open[usize::from(id.0)], true)),
                Step::Place(id, _) => assert!(open[usize::from(id.0)]),
                Step::Close(id, _) => assert!(std::mem::replace(&mut open[usize::from(id.0)], false)),
            }
        }
        depacketiser.check_invariants();
    }
    depacketiser.finish();
    depacketiser.check_invariants();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_octets(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
            faults(&octets);
            rings(&octets);
            record(&octets);
        }

        #[test]
        fn a_reader_beside_a_card(deeds in proptest::collection::vec(any::<u8>(), 4..600)) {
            rings(&deeds);
        }
    }

    #[test]
    fn plans_as_people_write_them() {
        for text in ["loss=1/100,dup=every/7,reorder=32,seed=7", include_str!("../examples/faults.toml")] {
            faults(text.as_bytes());
        }
    }
}
