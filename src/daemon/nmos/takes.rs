//! What can be received: one function that says it of a video, and constraint sets (BCP-004-01) that are found by asking it.

use crate::daemon::Side;
use crate::encode::{Codec, choose_picture};
use crate::error::{Error, Kind, Result};
use crate::format::{Layout, Output};
use crate::pipeline;
use crate::sdp::{Colorimetry, Depth, Ratio, Sampling, Scan, SenderType, Tcs, Video};
use gdmedia_nmos::caps::{Allowed, ConstraintSet};

/// The longest side that is told; 8K has 8192 columns at most. More is received where it fits.
const SIDE: u32 = 8192;
/// Frames a second, likewise.
const RATE: u32 = 300;

/// What is made of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Their layout; none: one that suits.
    pub output: Option<Output>,
    /// What they are compressed by.
    pub codec: Option<Codec>,
}

impl Takes {
    /// What a receiver makes of them.
    pub fn of(side: &Side) -> Self {
        Takes { output: side.output, codec: side.codec }
    }
}

/// Every encoder can be fed with this one, by conversion from whatever a conversion can be made from.
const EVERY_ENCODER: [&str; 1] = ["I420"];

/// Whether there are kernels for such a video, and the layout that is wanted, and a way from that into an encoder: what `play`
/// asks too. Memory, sizes that an encoder has not, and interfaces have their say when it is opened.
///
/// # Errors
/// Why not ([`Kind::Data`], [`Kind::Usage`]).
pub fn check(video: &Video, takes: Takes) -> Result<()> {
    let Takes { output, codec } = takes;
    let wire = pipeline::wire(video)?;
    if let Some(codec) = codec {
        choose_picture(&wire, codec, &EVERY_ENCODER, output).map_err(|why| {
            Error::new(Kind::Usage, format!("no encoder of {codec} can be fed: {why}"))
                .cure("choose another output for this receiver, or none")
        })?;
    }
    if let Some(output) = output {
        Layout::new(wire, output).map_err(|error| {
            Error::new(Kind::Usage, error.to_string()).cure("choose another output for this receiver, or none")
        })?;
    }
    Ok(())
}

/// A video of the largest size and rate that are told.
fn video(sampling: Sampling, depth: Depth, scan: Scan) -> Video {
    Video { scan, ..Video::new(sampling, depth, SIDE, SIDE, Ratio::new(RATE, 1)) }
}

/// Sets in which every combination is received by a receiver that makes this of frames.
pub fn sets(takes: Takes) -> Vec<ConstraintSet> {
    let takes = |sampling, depth, scan| check(&video(sampling, depth, scan), takes).is_ok();
    let mut sets: Vec<ConstraintSet> = vec![];
    for sampling in Sampling::ALL {
        // Depths that go with the same ways of scanning.
        let mut groups: Vec<(Vec<Scan>, Vec<Depth>)> = vec![];
        for depth in Depth::ALL {
            let scans: Vec<Scan> = Scan::ALL.iter().copied().filter(|scan| takes(*sampling, *depth, *scan)).collect();
            match groups.iter_mut().find(|(of, _)| *of == scans) {
                _ if scans.is_empty() => {}
                Some((_, depths)) => depths.push(*depth),
                None => groups.push((scans, vec![*depth])),
            }
        }
        for (scans, depths) in groups {
            match sets.iter_mut().find(|set| set.interlace_modes == scans && set.depths == depths) {
                Some(set) => set.samplings.push(*sampling),
                None => sets.push(set(*sampling, depths, scans)),
            }
        }
    }
    sets
}

fn set(sampling: Sampling, depths: Vec<Depth>, scans: Vec<Scan>) -> ConstraintSet {
    ConstraintSet {
        media_types: vec!["video/raw".into()],
        grain_rate: Allowed { maximum: Ratio::new(RATE, 1), ..Allowed::default() },
        frame_width: Allowed::range(1, SIDE),
        frame_height: Allowed::range(1, SIDE),
        interlace_modes: scans,
        samplings: vec![sampling],
        depths,
        colorimetries: Colorimetry::ALL.to_vec(),
        transfers: Tcs::ALL.to_vec(),
        sender_types: SenderType::ALL.to_vec(),
        ..ConstraintSet::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdp::{Essence, Mode, parse};

    /// As a sender would describe it.
    fn described(set: (Sampling, Depth, Scan, Colorimetry, Tcs), side: u32, rate: u32) -> String {
        let (sampling, depth, scan, colorimetry, tcs) = set;
        let scan = match scan {
            Scan::Progressive => "",
            Scan::Interlaced => "; interlace",
            Scan::Psf => "; interlace; segmented",
        };
        format!(
            "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=x\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nc=IN IP4 239.1.1.1/8\r\n\
             a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling={sampling}; width={side}; height={side}; exactframerate={rate}; \
             depth={depth}; TCS={tcs}; colorimetry={colorimetry}; PM=2110GPM; SSN=ST2110-20:2022; TP=2110TPN{scan}\r\n\
             a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n"
        )
    }
    fn received(text: &str, takes: Takes) -> bool {
        let description = parse(text.as_bytes(), Mode::Lenient);
        description
            .usable_flows()
            .next()
            .is_some_and(|flow| matches!(&flow.essence, Essence::Video(video) if check(video, takes).is_ok()))
    }

    /// From the SDP to the kernels, in all combinations of sampling, depth and scan, at both ends of what is told.
    #[test]
    fn sets_tell_what_is_received_and_nothing_else() {
        let outputs = [None, Some(Output::Planar), Some(Output::P010), Some(Output::V210)];
        let plain = outputs.map(|output| Takes { output, codec: None });
        let encoded = Takes { output: Some(Output::Wire), codec: Some(Codec::H264) };
        for takes in plain.into_iter().chain([encoded]) {
            let sets = sets(takes);
            let mut told = 0;
            for sampling in Sampling::ALL {
                for depth in Depth::ALL {
                    for scan in Scan::ALL {
                        let is_told = sets.iter().any(|set| {
                            set.samplings.contains(sampling)
                                && set.depths.contains(depth)
                                && set.interlace_modes.contains(scan)
                        });
                        told += usize::from(is_told);
                        let colours = (Colorimetry::Bt2100, Tcs::Hlg);
                        for (side, rate) in [(SIDE, RATE), (64, 25)] {
                            let text = described((*sampling, *depth, *scan, colours.0, colours.1), side, rate);
                            assert_eq!(received(&text, takes), is_told, "{takes:?}: {text}");
                        }
                    }
                }
            }
            assert!(told > 0, "{takes:?}");
        }
    }

    /// A layout that no encoder can be fed with is none that a receiver with an encoder takes.
    #[test]
    fn what_an_encoder_cannot_be_fed_with_is_not_told() {
        let of = |output, codec| sets(Takes { output, codec });
        for codec in Codec::ALL {
            // Without a layout of its own there is always one.
            assert_eq!(of(None, Some(codec)), of(None, None), "{codec}");
            assert!(!of(Some(Output::Planar), Some(codec)).is_empty(), "{codec}");
            assert_eq!(of(Some(Output::Rgb16f), Some(codec)), [], "{codec}");
            // Octets as they came are a format of pictures in few cases.
            let pairs =
                |sets: Vec<ConstraintSet>| sets.iter().map(|set| set.samplings.len() * set.depths.len()).sum::<usize>();
            let (encoded, all) = (pairs(of(Some(Output::Wire), Some(codec))), pairs(of(Some(Output::Wire), None)));
            assert!(0 < encoded && encoded < all, "{codec}: {encoded} of {all}");
        }
        assert!(!of(Some(Output::Rgb16f), None).is_empty());
        let video = video(Sampling::YCbCr422, Depth::D10, Scan::Progressive);
        let error = check(&video, Takes { output: Some(Output::Rgb16f), codec: Some(Codec::H264) }).unwrap_err();
        assert!(error.to_string().contains("no encoder of H.264") && !error.cure_text().is_empty(), "{error}");
    }

    /// ST 2110-20:2022, tables 1 to 4: 4:2:0 is progressive and has 8, 10 and 12 bits.
    #[test]
    fn the_words_are_those_of_the_standard() {
        let sets = sets(Takes::default());
        let of = |sampling| sets.iter().filter(|set| set.samplings.contains(&sampling)).collect::<Vec<_>>();
        let [set] = of(Sampling::YCbCr420)[..] else { panic!("{sets:?}") };
        assert_eq!(set.interlace_modes, [Scan::Progressive]);
        assert_eq!(set.depths, [Depth::D8, Depth::D10, Depth::D12]);
        assert!(of(Sampling::YCbCr422).iter().any(|set| set.interlace_modes == Scan::ALL && set.depths.len() == 5));
    }

    /// No colour keeps a stream out.
    #[test]
    fn every_colorimetry_and_transfer_is_received() {
        let set = sets(Takes::default()).into_iter().find(|set| set.samplings.contains(&Sampling::Rgb)).unwrap();
        assert!(!set.colorimetries.is_empty() && !set.transfers.is_empty());
        for colorimetry in set.colorimetries {
            for tcs in &set.transfers {
                let text = described((Sampling::Rgb, Depth::D12, Scan::Progressive, colorimetry, *tcs), 64, 25);
                assert!(received(&text, Takes::default()), "{text}");
            }
        }
    }
}
