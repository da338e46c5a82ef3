//! Which encoder runs: the first rung that answers when it is tried. Pure: who tries them is a [`Prober`].
//!
//! ```text
//! NVENC from frames in GPU memory -> NVENC from system memory -> encoders of the CPU -> MJPEG on the GPU -> MJPEG on the CPU
//! ```
//!
//! The last two stand in for other codecs where the container holds MJPEG, and are what `mjpeg` asks for.

use super::spec::{Codec, Spec, Wrong, wrong};
use super::target::Target;
use crate::error::{Error, Kind, Result};

/// One encoder and where it takes frames from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rung {
    /// The GPU's encoder, frames in the GPU's memory.
    NvencCuda(Codec),
    /// The GPU's encoder, frames in system memory.
    NvencHost(Codec),
    /// x264 (H.264).
    X264,
    /// OpenH264 (H.264, 8 bit 4:2:0).
    OpenH264,
    /// x265 (HEVC).
    X265,
    /// SVT-AV1 (AV1).
    SvtAv1,
    /// libaom (AV1).
    Aom,
    /// JPEG pictures by the cores of the GPU.
    NvJpeg,
    /// JPEG pictures by the CPU.
    Jpeg,
}

impl Rung {
    /// What it makes.
    pub const fn codec(self) -> Codec {
        match self {
            Rung::NvencCuda(codec) | Rung::NvencHost(codec) => codec,
            Rung::X264 | Rung::OpenH264 => Codec::H264,
            Rung::X265 => Codec::Hevc,
            Rung::SvtAv1 | Rung::Aom => Codec::Av1,
            Rung::NvJpeg | Rung::Jpeg => Codec::Mjpeg,
        }
    }
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        match self {
            Rung::NvencCuda(_) => "NVENC",
            Rung::NvencHost(_) => "NVENC from system memory",
            Rung::X264 => "x264",
            Rung::OpenH264 => "OpenH264",
            Rung::X265 => "x265",
            Rung::SvtAv1 => "SVT-AV1",
            Rung::Aom => "libaom",
            Rung::NvJpeg => "nvJPEG",
            Rung::Jpeg => "jpeg on the CPU",
        }
    }
    /// The GStreamer element that encodes; none where this program does it.
    pub const fn element(self) -> Option<&'static str> {
        match self {
            Rung::NvencCuda(_) | Rung::NvencHost(_) | Rung::NvJpeg => None,
            Rung::X264 => Some("x264enc"),
            Rung::OpenH264 => Some("openh264enc"),
            Rung::X265 => Some("x265enc"),
            Rung::SvtAv1 => Some("svtav1enc"),
            Rung::Aom => Some("av1enc"),
            Rung::Jpeg => Some("jpegenc"),
        }
    }
    /// It takes frames where the GPU has them.
    pub const fn is_on_gpu(self) -> bool {
        matches!(self, Rung::NvencCuda(_) | Rung::NvJpeg)
    }
}

/// Which rungs may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// All of them.
    Auto,
    /// NVENC alone.
    Nvenc,
    /// Encoders of the CPU alone.
    Cpu,
    /// This one alone.
    Only(Rung),
}

impl Wish {
    /// The word after `rung=`.
    pub(super) fn parse(word: &str, codec: Codec) -> std::result::Result<Wish, Wrong> {
        let named = match word {
            "auto" => return Ok(Wish::Auto),
            "cpu" => return Ok(Wish::Cpu),
            "nvenc" if codec == Codec::Mjpeg => {
                return Err(wrong("NVENC does not make MJPEG", "choose rung=nvjpeg, jpeg or auto"));
            }
            "nvenc" => return Ok(Wish::Nvenc),
            "x264" => Rung::X264,
            "openh264" => Rung::OpenH264,
            "x265" => Rung::X265,
            "svt" | "svtav1" => Rung::SvtAv1,
            "aom" => Rung::Aom,
            "nvjpeg" => Rung::NvJpeg,
            "jpeg" => Rung::Jpeg,
            _ => return Err(wrong(format!("no rung `{word}`"), format!("choose {}", words(codec)))),
        };
        if named.codec() != codec {
            return Err(wrong(format!("`{word}` does not make {codec}"), format!("choose {}", words(codec))));
        }
        Ok(Wish::Only(named))
    }
}

/// The words for a codec's rungs.
const fn words(codec: Codec) -> &'static str {
    match codec {
        Codec::H264 => "auto, nvenc, cpu, x264 or openh264",
        Codec::Hevc => "auto, nvenc, cpu or x265",
        Codec::Av1 => "auto, nvenc, cpu, svt or aom",
        Codec::Mjpeg => "auto, cpu, nvjpeg or jpeg",
    }
}

/// Tries a rung for real: opens the library, a session, an element.
pub trait Prober {
    /// Whether it can be used, else the reason in a few words: "GPU 0: no NVENC: open session answered unsupported
    /// device".
    ///
    /// # Errors
    /// The reason.
    fn probe(&mut self, rung: Rung) -> std::result::Result<(), String>;
}

/// A rung that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which.
    pub rung: Rung,
    /// Why.
    pub why: String,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The rung that runs.
    pub rung: Rung,
    /// Those before it.
    pub refused: Vec<Refusal>,
}

/// The rungs for what is wanted, in the order in which they are tried.
pub fn rungs(spec: &Spec, target: &Target) -> Vec<Rung> {
    let codec = spec.codec;
    let cpu: &[Rung] = match codec {
        Codec::H264 => &[Rung::X264, Rung::OpenH264],
        Codec::Hevc => &[Rung::X265],
        Codec::Av1 => &[Rung::SvtAv1, Rung::Aom],
        Codec::Mjpeg => &[Rung::Jpeg],
    };
    let nvenc = [Rung::NvencCuda(codec), Rung::NvencHost(codec)];
    match spec.rung {
        Wish::Only(rung) => vec![rung],
        Wish::Nvenc => nvenc.to_vec(),
        Wish::Cpu => cpu.to_vec(),
        Wish::Auto if codec == Codec::Mjpeg => vec![Rung::NvJpeg, Rung::Jpeg],
        Wish::Auto => {
            let mut all = nvenc.to_vec();
            all.extend(cpu);
            // A receiver of a stream expects the codec that it was told.
            if target.path().is_some() && target.takes(Codec::Mjpeg).is_ok() {
                all.extend([Rung::NvJpeg, Rung::Jpeg]);
            }
            all
        }
    }
}

/// Tries the rungs until one answers.
///
/// # Errors
/// None does; says why not, rung by rung ([`Kind::Unavailable`]).
pub fn choose(spec: &Spec, target: &Target, prober: &mut dyn Prober) -> Result<Choice> {
    let mut refused = Vec::new();
    for rung in rungs(spec, target) {
        match prober.probe(rung) {
            Ok(()) => return Ok(Choice { rung, refused }),
            Err(why) => refused.push(Refusal { rung, why }),
        }
    }
    let what = format!("no encoder for {} to {target}: {}", spec.codec, lines(&refused).join("; "));
    let package = refused.iter().find_map(|r| r.why.split_once("the package ")).map(|(_, name)| name.to_owned());
    let cure = match package {
        Some(name) => format!("install the package {name}"),
        None if spec.rung != Wish::Auto => "leave rung out, so that others are tried".into(),
        None => "choose another codec: h264, hevc, av1 or mjpeg".into(),
    };
    Err(Error::new(Kind::Unavailable, what).cure(cure))
}

/// A line for each reason; rungs that give the same one share it.
pub fn lines(refused: &[Refusal]) -> Vec<String> {
    let mut lines: Vec<(String, &str)> = Vec::new();
    for Refusal { rung, why } in refused {
        match lines.iter_mut().find(|(_, other)| other == why) {
            Some((names, _)) => {
                names.push_str(", ");
                names.push_str(rung.name());
            }
            None => lines.push((rung.name().to_owned(), why)),
        }
    }
    lines.into_iter().map(|(names, why)| format!("not {names}: {why}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Codec::*;
    use Rung::*;

    /// Answers for each rung, and what was asked.
    struct Fake {
        has: Vec<Rung>,
        asked: Vec<Rung>,
    }

    impl Prober for Fake {
        fn probe(&mut self, rung: Rung) -> std::result::Result<(), String> {
            self.asked.push(rung);
            if self.has.contains(&rung) { Ok(()) } else { Err(format!("{} is away", rung.name())) }
        }
    }

    fn spec(text: &str) -> Spec {
        text.parse().unwrap()
    }
    fn target(text: &str) -> Target {
        text.parse().unwrap()
    }

    #[test]
    fn the_order_of_the_rungs() {
        let of = |text, to| rungs(&spec(text), &target(to));
        let nvenc = |codec| [NvencCuda(codec), NvencHost(codec)];
        let all = |codec, rest: &[Rung]| [&nvenc(codec)[..], rest].concat();
        assert_eq!(of("h264", "a.mp4"), all(H264, &[X264, OpenH264]));
        assert_eq!(of("h264", "a.mkv"), all(H264, &[X264, OpenH264, NvJpeg, Jpeg]));
        assert_eq!(of("hevc", "a.mov"), all(Hevc, &[X265, NvJpeg, Jpeg]));
        assert_eq!(of("hevc", "rtp://h:1"), all(Hevc, &[X265]), "who receives expects HEVC");
        assert_eq!(of("av1", "a.mp4"), all(Av1, &[SvtAv1, Aom]));
        assert_eq!(of("mjpeg", "a.mkv"), [NvJpeg, Jpeg]);
        assert_eq!(of("h264,rung=nvenc", "a.mkv"), nvenc(H264));
        assert_eq!(of("h264,rung=cpu", "a.mkv"), [X264, OpenH264]);
        assert_eq!(of("av1,rung=aom", "a.mkv"), [Aom]);
        assert_eq!(of("mjpeg,rung=cpu", "a.mkv"), [Jpeg]);
    }

    /// Every set of rungs that a machine may have, for every codec, place and wish: the first one there is runs, those before
    /// it are refused with their reasons, and none after it is tried.
    #[test]
    fn every_combination() {
        let mut cases = 0;
        for codec in Codec::ALL {
            for to in ["a.mp4", "a.mov", "a.mkv", "a.ts", "srt://h:1", "rtp://h:1"].map(target) {
                if to.takes(codec).is_err() {
                    continue;
                }
                for wish in ["", ",rung=cpu", ",rung=nvenc"] {
                    if codec == Mjpeg && wish == ",rung=nvenc" {
                        continue;
                    }
                    let spec = spec(&format!("{}{wish}", codec.word()));
                    let rungs = rungs(&spec, &to);
                    assert!(rungs.iter().all(|rung| to.takes(rung.codec()).is_ok()), "{spec:?} {to}");
                    for set in 0..1u32 << rungs.len() {
                        cases += 1;
                        let has: Vec<Rung> =
                            rungs.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1).map(|(_, r)| *r).collect();
                        let mut fake = Fake { has: has.clone(), asked: Vec::new() };
                        let chosen = choose(&spec, &to, &mut fake);
                        let before = set.trailing_zeros().min(rungs.len() as u32) as usize;
                        match has.first() {
                            Some(first) => {
                                let Choice { rung, refused } = chosen.unwrap();
                                assert_eq!(rung, *first);
                                assert_eq!(refused.iter().map(|r| r.rung).collect::<Vec<_>>(), rungs[..before]);
                                assert!(refused.iter().all(|r| r.why == format!("{} is away", r.rung.name())));
                                assert_eq!(fake.asked, rungs[..=before]);
                            }
                            None => {
                                let error = chosen.unwrap_err();
                                assert_eq!(error.kind(), Kind::Unavailable);
                                assert!(rungs.iter().all(|r| error.to_string().contains(r.name())), "{error}");
                                assert_eq!(fake.asked, rungs);
                            }
                        }
                    }
                }
            }
        }
        assert!(cases > 500, "{cases}");
    }

    #[test]
    fn one_line_for_one_reason() {
        let why = "GPU 0: no NVENC: open session answered unsupported device";
        let refusal = |rung, why: &str| Refusal { rung, why: why.into() };
        let refused = [refusal(NvencCuda(H264), why), refusal(NvencHost(H264), why), refusal(X264, "gone")];
        assert_eq!(
            lines(&refused),
            [
                "not NVENC, NVENC from system memory: GPU 0: no NVENC: open session answered unsupported device",
                "not x264: gone"
            ]
        );
    }

    #[test]
    fn nothing_at_all_names_the_package() {
        struct Bare;
        impl Prober for Bare {
            fn probe(&mut self, rung: Rung) -> std::result::Result<(), String> {
                match rung {
                    X265 => Err("GStreamer has no element `x265enc`, of the package gstreamer1.0-plugins-bad".into()),
                    _ => Err("no GPU is used".into()),
                }
            }
        }
        let error = choose(&spec("hevc"), &target("a.mp4"), &mut Bare).unwrap_err();
        assert!(
            error.to_string().starts_with("no encoder for HEVC to a.mp4: not NVENC, NVENC from system memory: no GPU")
        );
        assert_eq!(error.cure_text(), "install the package gstreamer1.0-plugins-bad");
        let error = choose(&spec("hevc,rung=nvenc"), &target("a.mp4"), &mut Bare).unwrap_err();
        assert!(error.cure_text().contains("leave rung out"));
    }
}
