use super::*;
use crate::sdp::{Depth, Sampling};
use crate::wire::capture::PcapWriter;
use crate::wire::net::Route;
use crate::wire::{rtp, srd};

/// A survey of packets from 10.0.0.1:5000 to 239.0.0.1 and this port.
fn found(port: u16, payloads: &[Vec<u8>]) -> FoundFlow {
    let destination = format!("239.0.0.1:{port}").parse().unwrap();
    let route = Route::new("10.0.0.1:5000".parse().unwrap(), destination).unwrap();
    let mut file = Vec::new();
    let mut w = PcapWriter::new(&mut file, "x", Link::Ethernet).unwrap();
    for (n, payload) in payloads.iter().enumerate() {
        w.datagram(n as u64, &route, payload).unwrap();
    }
    w.finish().unwrap();
    let survey = survey_of(&mut Capture::new(&file[..], "x").unwrap(), None).unwrap();
    assert_eq!(survey.flows.len(), 1);
    survey.flows.into_iter().next().unwrap()
}

/// RTP packets with consecutive numbers.
fn packets(n: u16, step: u32, marker: bool, payload: impl Fn(u16) -> Vec<u8>) -> Vec<Vec<u8>> {
    (0..n)
        .map(|k| [&rtp::emit(marker, 97, 65530u16.wrapping_add(k), u32::from(k) * step, 5)[..], &payload(k)].concat())
        .collect()
}

#[test]
fn aes3_is_told_from_audio_of_the_same_size() {
    // Two words a sample: F set in the first, audio behind.
    let aes3 = found(5004, &packets(20, 6, false, |_| [0x10, 1, 2, 3, 0x04, 4, 5, 6].repeat(6)));
    assert_eq!(aes3.essence, Essence::Aes3(FoundAudio { samples: 6, octets: 8 }));
    assert_eq!(aes3.essence.to_string(), "ST 2110-31 AES3 (2 subframes, 6 samples a packet)");
    let l16 = found(5004, &packets(20, 6, false, |_| [0x00, 1, 2, 3, 0x04, 4, 5, 6].repeat(6)));
    assert_eq!(l16.essence.to_string(), "ST 2110-30 audio (4 channels of L16, 6 samples a packet)");
    let rtp = l16.rtp.unwrap();
    assert_eq!((rtp.gaps, rtp.lost, rtp.steps, rtp.timestamps), (0, 0, Some((6, 6)), 20), "over the sequence's wrap");
}

#[test]
fn fast_metadata_is_a_chain_of_items() {
    // Type 0x200001 with one word, then type 1 without any.
    let item = [0x80, 0, 0x04, 1, 9, 9, 9, 9, 0, 0, 0x04, 0];
    let flow = found(5004, &packets(9, 0, false, |k| if k % 2 == 0 { item.to_vec() } else { item[8..].to_vec() }));
    assert_eq!(flow.essence, Essence::FastMetadata);
    let short = found(5004, &packets(9, 0, false, |_| item[..6].to_vec()));
    assert_eq!(short.essence, Essence::Rtp);
}

#[test]
fn video_in_blocks_with_two_segments_and_zero_fill() {
    // 4:2:2 10 bit, 8 pixels (20 octets) a row, 25 octets a packet: 20 and 5 of the next row, then 15 and zeros.
    let packet = |k: u16| {
        let row = 2 * (k / 2);
        let srds: &[srd::Srd] = if k.is_multiple_of(2) {
            &[
                srd::Srd { length: 20, field: false, row, offset: 0 },
                srd::Srd { length: 5, field: false, row: row + 1, offset: 0 },
            ]
        } else {
            &[srd::Srd { length: 15, field: false, row: row + 1, offset: 2 }]
        };
        let mut p = vec![0; 20];
        let n = srd::emit(0, srds, &mut p).unwrap();
        p.truncate(n);
        p.extend(vec![7; srds.iter().map(|s| usize::from(s.length)).sum()]);
        p.resize(n + 25, 0);
        p
    };
    let flow = found(5004, &packets(40, 0, false, packet));
    let Essence::Video(video) = flow.essence else { panic!("{:?}", flow.essence) };
    assert_eq!((video.width, video.height, video.fields, video.segments), (8, 40, false, 2));
    assert_eq!((video.density, video.formats[0]), (Some((5, 2)), (Sampling::YCbCr422, Depth::D10)));
}

#[test]
fn losses_repeats_and_reordering_are_counted() {
    let all = packets(12, 3000, true, |_| vec![0xff; 10]);
    let order = [0, 1, 1, 3, 2, 4, 8, 9, 10, 11];
    let rtp = found(5004, &order.map(|n| all[n].clone())).rtp.unwrap();
    assert_eq!((rtp.packets, rtp.repeated, rtp.reordered, rtp.gaps, rtp.lost), (10, 1, 1, 2, 3));
    assert_eq!((rtp.payload_types, rtp.ssrcs, rtp.markers), (vec![97], vec![5], 10));
}

#[test]
fn others_are_named_for_what_they_are() {
    assert_eq!(found(5005, &[vec![0x80, 200, 0, 6, 0, 0, 0, 0]]).essence, Essence::Rtcp);
    assert_eq!(found(319, &[vec![0, 0x12, 0, 44]]).essence, Essence::Ptp);
    assert_eq!(found(53, &[b"hello".to_vec(), vec![]]).essence, Essence::Udp);
    let unknown = found(5004, &packets(5, 90, false, |k| vec![0xa5; 100 + usize::from(k)]));
    assert_eq!(unknown.essence, Essence::Rtp);
    assert!(unknown.to_string().contains("RTP of an unknown kind, 5 packets, PT 97"));
}

#[test]
fn a_limit_ends_the_survey_and_many_flows_are_bounded() {
    let mut file = Vec::new();
    let mut w = PcapWriter::new(&mut file, "x", Link::Ethernet).unwrap();
    for n in 0..5000u16 {
        let ends = (format!("10.0.0.1:{n}").parse().unwrap(), "239.0.0.1:1".parse().unwrap());
        w.datagram(0, &Route::new(ends.0, ends.1).unwrap(), b"x").unwrap();
    }
    w.finish().unwrap();
    let of = |limit| survey_of(&mut Capture::new(&file[..], "x").unwrap(), limit).unwrap();
    assert_eq!((of(Some(10)).flows.len(), of(Some(10)).capture.records), (10, 10));
    let all = of(None);
    assert_eq!((all.flows.len(), all.beyond), (4096, 904));
}

proptest::proptest! {
    #[test]
    fn arbitrary_packets_never_panic(payloads in proptest::collection::vec(proptest::collection::vec(0u8.., 0..80), 1..20), port in proptest::sample::select(vec![319u16, 5004]), rtp: bool) {
        let payloads: Vec<Vec<u8>> = payloads.into_iter().enumerate().map(|(n, mut p)| {
            if rtp && p.len() > 20 {
                p[0] = 0x80;
                p[3] = n as u8;
                // Lengths that are often right.
                p[14] = 0;
                p[15] = p.len() as u8 - 20;
            }
            p
        }).collect();
        let flow = found(port, &payloads);
        proptest::prop_assert_eq!(flow.packets, payloads.len() as u64);
        let _ = (flow.to_string(), flow.why);
    }
}
