//! In which layout a frame goes to an encoder, and what that costs of it. Pure.

use super::spec::Codec;
use crate::format::{Layout, Output, WireFormat};
use gdmedia_sdp::{Depth, Sampling, Scan, Subsampling};

/// How pictures reach an encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// What the pipeline unpacks to.
    pub output: Output,
    /// GStreamer's name of the format that `videoconvert` makes of it; none where the encoder takes it as it is.
    pub convert: Option<String>,
    /// Columns and rows that are left out at the right and at the bottom.
    pub crop: (u32, u32),
    /// What is lost, and the like.
    pub notes: Vec<String>,
}

/// Samples of two pixels, and their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grain {
    samples: u32,
    bits: u32,
}

impl Grain {
    const fn amount(self) -> u32 {
        self.samples * self.bits
    }
    fn least(self, other: Grain) -> Grain {
        Grain { samples: self.samples.min(other.samples), bits: self.bits.min(other.bits) }
    }
    /// For people.
    fn text(self) -> String {
        let structure = match self.samples {
            2 => "one component",
            3 => "4:2:0",
            4 => "4:2:2",
            _ => "4:4:4",
        };
        format!("{structure} {} bit", self.bits)
    }
}

/// What GStreamer's format of this name holds; none of those that no encoder is fed with.
fn grain_of(name: &str) -> Option<Grain> {
    let (samples, bits) = match name {
        "GRAY8" => (2, 8),
        "GRAY16_LE" | "GRAY16_BE" => (2, 16),
        "I420" | "NV12" => (3, 8),
        "I420_10LE" | "P010_10LE" => (3, 10),
        "I420_12LE" => (3, 12),
        "Y42B" | "UYVY" => (4, 8),
        "I422_10LE" | "v210" | "UYVP" => (4, 10),
        "I422_12LE" => (4, 12),
        "Y444" | "IYU2" | "GBR" | "RGB" | "RGBA" => (6, 8),
        "Y444_10LE" | "GBR_10LE" => (6, 10),
        "Y444_12LE" | "GBR_12LE" => (6, 12),
        "Y444_16LE" => (6, 16),
        _ => return None,
    };
    Some(Grain { samples, bits })
}

/// What the wire has.
fn grain_of_wire(wire: &WireFormat) -> Grain {
    let samples = match wire.sampling.subsampling() {
        Subsampling::One => 2,
        Subsampling::Quarter420 => 3,
        Subsampling::Half422 => 4,
        Subsampling::Full444 => 6,
    };
    Grain { samples, bits: wire.depth.bits() }
}

/// Outputs that frames may be brought to; the first ones lose nothing.
const OUTPUTS: [Output; 7] =
    [Output::Planar, Output::P010, Output::Uyvy, Output::Nv12, Output::Wire, Output::V210, Output::Rgba];

/// The layout that keeps most for an encoder that takes the formats `takes`; where several do, one that needs no further
/// conversion. `forced`: no other output may be used.
///
/// # Errors
/// There is none, which is told in a few words.
pub fn choose(wire: &WireFormat, codec: Codec, takes: &[&str], forced: Option<Output>) -> Result<Picture, String> {
    let source = grain_of_wire(wire);
    // JPEG files are of full range and BT.601, whatever was sent, so that pictures are always brought to that.
    let always = codec == Codec::Mjpeg;
    let targets = takes.iter().filter_map(|name| Some((*name, grain_of(name)?)));
    let targets = targets.filter(|(name, grain)| match codec {
        // Main profile; few decoders have the others.
        Codec::Av1 => grain.samples == 3,
        Codec::Mjpeg => matches!(*name, "I420" | "Y42B" | "Y444"),
        _ => true,
    });
    let mut best: Option<((u32, bool, u32), Picture, Grain)> = None;
    for (name, target) in targets {
        for output in OUTPUTS.into_iter().filter(|output| forced.is_none_or(|forced| forced == *output)) {
            let Ok(layout) = Layout::new(*wire, output) else { continue };
            let Some(offered) = layout.name() else { continue };
            let Some(here) = grain_of(offered) else { continue };
            let kept = source.least(here).least(target);
            let direct = offered == name && !always;
            // What is moved for nothing: a larger layout than is kept, or a larger format than the layout.
            let waste = here.amount().abs_diff(kept.amount()) + target.amount().abs_diff(kept.amount());
            let rank = (kept.amount(), direct, u32::MAX - waste);
            if best.as_ref().is_none_or(|(other, ..)| rank > *other) {
                let convert = (!direct).then(|| name.to_owned());
                let (crop, cropped) = crop(wire, target);
                let picture = Picture { output, convert, crop, notes: cropped.into_iter().collect() };
                best = Some((rank, picture, kept));
            }
        }
    }
    let Some((_, mut picture, kept)) = best else {
        return Err(match forced {
            Some(output) => format!("it takes nothing that --output {} can be brought to", output.word()),
            None => format!("it takes no {} of {} bits", wire.sampling, wire.depth),
        });
    };
    picture.notes.extend(loss(wire, source, kept, codec));
    Ok(picture)
}

/// Subsampled pictures have even sizes; fields, too.
fn crop(wire: &WireFormat, target: Grain) -> ((u32, u32), Option<String>) {
    let fields = if wire.scan == Scan::Interlaced { 2 } else { 1 };
    let across = if target.samples < 6 { 2 } else { 1 };
    let down = fields * if target.samples == 3 { 2 } else { 1 };
    let crop = (wire.width % across, wire.height % down);
    if crop == (0, 0) || wire.width < 4 || wire.height < 8 {
        return ((0, 0), None);
    }
    let (width, height) = (wire.width - crop.0, wire.height - crop.1);
    let note =
        format!("{}x{} is cut to {width}x{height}: {} has no such sizes", wire.width, wire.height, target.text());
    (crop, Some(note))
}

/// What is kept, where it is not all, and what else becomes of it.
fn loss(wire: &WireFormat, source: Grain, kept: Grain, codec: Codec) -> Option<String> {
    let mut words = Vec::new();
    if source != kept {
        words.push(format!("{} becomes {}", source.text(), kept.text()));
    }
    if wire.sampling == Sampling::Rgb {
        words.push("RGB becomes Y'CbCr".into());
    }
    if wire.depth == Depth::F16 {
        words.push("half floats become whole numbers".into());
    }
    if codec == Codec::Mjpeg {
        words.push("levels become those of JPEG files (full range, BT.601 matrix)".into());
    }
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(sampling: Sampling, depth: Depth, width: u32, height: u32, scan: Scan) -> WireFormat {
        WireFormat::new(sampling, depth, width, height, scan).unwrap()
    }
    fn hd(sampling: Sampling, depth: Depth) -> WireFormat {
        wire(sampling, depth, 1920, 1080, Scan::Progressive)
    }

    /// What the encoders' elements of GStreamer 1.22 take.
    const X264: [&str; 8] = ["Y444", "Y42B", "I420", "YV12", "NV12", "Y444_10LE", "I422_10LE", "I420_10LE"];
    const OPENH264: [&str; 1] = ["I420"];
    const AOM: [&str; 4] = ["I420", "Y42B", "Y444", "YV12"];
    const JPEG: [&str; 8] = ["I420", "YUY2", "UYVY", "Y42B", "Y444", "NV12", "RGB", "GRAY8"];

    #[test]
    fn what_an_encoder_takes_goes_there_as_it_is() {
        use Depth::*;
        use Sampling::*;
        for (sampling, depth) in [(YCbCr422, D10), (YCbCr422, D8), (YCbCr444, D10), (YCbCr420, D10), (YCbCr420, D8)] {
            let picture = choose(&hd(sampling, depth), Codec::H264, &X264, None).unwrap();
            let plain = Picture { output: Output::Planar, convert: None, crop: (0, 0), notes: vec![] };
            assert_eq!(picture, plain, "{sampling} {depth}");
        }
    }

    #[test]
    fn what_is_lost_is_said() {
        let wire = hd(Sampling::YCbCr422, Depth::D10);
        let picture = choose(&wire, Codec::H264, &OPENH264, None).unwrap();
        assert_eq!((picture.output, picture.convert.as_deref()), (Output::Nv12, Some("I420")));
        assert_eq!(picture.notes, ["4:2:2 10 bit becomes 4:2:0 8 bit"]);
        let picture = choose(&hd(Sampling::YCbCr422, Depth::D12), Codec::H264, &X264, None).unwrap();
        assert_eq!((picture.output, picture.convert.as_deref()), (Output::V210, Some("I422_10LE")));
        assert_eq!(picture.notes, ["4:2:2 12 bit becomes 4:2:2 10 bit"]);
        let picture = choose(&wire, Codec::Av1, &AOM, None).unwrap();
        assert_eq!((picture.output, picture.convert.as_deref()), (Output::Nv12, Some("I420")));
        let picture = choose(&wire, Codec::Mjpeg, &JPEG, None).unwrap();
        assert_eq!((picture.output, picture.convert.as_deref()), (Output::Uyvy, Some("Y42B")));
        assert_eq!(
            picture.notes,
            ["4:2:2 10 bit becomes 4:2:2 8 bit, levels become those of JPEG files (full range, BT.601 matrix)"]
        );
        let picture = choose(&hd(Sampling::Rgb, Depth::D10), Codec::H264, &X264, None).unwrap();
        assert_eq!((picture.output, picture.convert.as_deref()), (Output::Planar, Some("Y444_10LE")));
        assert_eq!(picture.notes, ["RGB becomes Y'CbCr"]);
    }

    #[test]
    fn every_flow_has_a_way_into_every_encoder() {
        for &sampling in Sampling::ALL {
            for &depth in Depth::ALL {
                let Some(wire) = WireFormat::new(sampling, depth, 1920, 1080, Scan::Progressive) else { continue };
                for (codec, takes) in
                    [(Codec::H264, &X264[..]), (Codec::H264, &OPENH264), (Codec::Av1, &AOM), (Codec::Mjpeg, &JPEG)]
                {
                    let picture = choose(&wire, codec, takes, None).unwrap();
                    assert!(Layout::new(wire, picture.output).is_ok(), "{wire:?}");
                    let lost = grain_of_wire(&wire).amount() > 60 || depth == Depth::F16;
                    assert!(!lost || !picture.notes.is_empty(), "{wire:?} {picture:?}");
                }
            }
        }
    }

    #[test]
    fn an_output_that_is_forced_is_used_or_refused() {
        let wire = hd(Sampling::YCbCr422, Depth::D10);
        let picture = choose(&wire, Codec::H264, &X264, Some(Output::V210)).unwrap();
        assert_eq!((picture.output, picture.convert.as_deref()), (Output::V210, Some("I422_10LE")));
        assert_eq!(picture.notes, [""; 0]);
        let picture = choose(&wire, Codec::H264, &X264, Some(Output::Nv12)).unwrap();
        assert_eq!((picture.output, picture.convert), (Output::Nv12, None));
        let why = choose(&wire, Codec::H264, &X264, Some(Output::Rgb16f)).unwrap_err();
        assert_eq!(why, "it takes nothing that --output rgb16f can be brought to");
        assert_eq!(choose(&wire, Codec::H264, &[], None).unwrap_err(), "it takes no YCbCr-4:2:2 of 10 bits");
    }

    #[test]
    fn odd_sizes_are_cut_to_what_the_structure_has() {
        let odd = |sampling, depth, scan, takes: &[&str]| {
            choose(&wire(sampling, depth, 1921, 1083, scan), Codec::H264, takes, None).unwrap()
        };
        let picture = odd(Sampling::YCbCr422, Depth::D10, Scan::Progressive, &X264);
        assert_eq!(picture.crop, (1, 0));
        assert_eq!(picture.notes, ["1921x1083 is cut to 1920x1083: 4:2:2 10 bit has no such sizes"]);
        assert_eq!(odd(Sampling::YCbCr422, Depth::D10, Scan::Interlaced, &X264).crop, (1, 1));
        assert_eq!(odd(Sampling::YCbCr422, Depth::D10, Scan::Progressive, &["I420"]).crop, (1, 1));
        assert_eq!(odd(Sampling::YCbCr422, Depth::D10, Scan::Interlaced, &["I420"]).crop, (1, 3));
        assert_eq!(odd(Sampling::YCbCr444, Depth::D10, Scan::Progressive, &X264).crop, (0, 0));
    }
}
