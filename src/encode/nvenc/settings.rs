//! What an encoder is to do.

use super::abi::*;
use super::library::zeroed;
use crate::encode::Codec;
use gdmedia_sdp::{Colorimetry, Depth, Range, Sampling, Scan, Tcs, Video};

/// What a GPU has to have for a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The codec; never MJPEG.
    pub codec: Codec,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// 8, or 10 where codec and flow have as many.
    pub bits: u32,
}

impl Wanted {
    /// Of a flow.
    pub fn new(video: &Video, codec: Codec) -> Wanted {
        // H.264 of 10 bits is no business of NVENC's.
        let ten = video.depth != Depth::D8 && matches!(codec, Codec::Hevc | Codec::Av1);
        Wanted { codec, width: video.width, height: video.height, bits: if ten { 10 } else { 8 } }
    }
    /// The codec's name in the library.
    pub const fn guid(&self) -> GUID {
        match self.codec {
            Codec::Hevc => NV_ENC_CODEC_HEVC_GUID,
            Codec::Av1 => NV_ENC_CODEC_AV1_GUID,
            Codec::H264 | Codec::Mjpeg => NV_ENC_CODEC_H264_GUID,
        }
    }
}

/// Everything that an encoder is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Codec, size, bits.
    pub wanted: Wanted,
    /// Fields are coded by themselves.
    pub fields: bool,
    /// Frames a second, as a fraction.
    pub rate: (u32, u32),
    /// Of the displayed picture.
    pub aspect: (u32, u32),
    /// Primaries, transfer, matrix by ITU-T H.273.
    pub colour: [u32; 3],
    /// Codes of full range.
    pub full_range: bool,
    /// Bits a second.
    pub bits_a_second: u32,
    /// Frames from one key frame to the next.
    pub gop: u32,
    /// 1, the fastest, to 7.
    pub preset: u8,
    /// For a stream: an even bit rate.
    pub low_latency: bool,
}

impl Settings {
    /// Of a flow; `bits_a_second`, `gop`, `preset` and `low_latency` as they are wanted.
    pub fn new(
        video: &Video,
        wanted: Wanted,
        fields: bool,
        bits_a_second: u64,
        gop: u32,
        preset: u8,
        low_latency: bool,
    ) -> Settings {
        let rate = video.rate.map_or((50, 1), |rate| (rate.num.max(1), rate.den.max(1)));
        let (x, y) =
            (u64::from(video.width) * u64::from(video.par.num), u64::from(video.height) * u64::from(video.par.den));
        let common = divisor(x, y).max(1);
        let aspect = match (u32::try_from(x / common), u32::try_from(y / common)) {
            (Ok(x), Ok(y)) if x > 0 && y > 0 => (x, y),
            _ => (video.width, video.height),
        };
        Settings {
            wanted,
            fields,
            rate,
            aspect,
            colour: colour(video),
            full_range: video.range != Range::Narrow,
            bits_a_second: u32::try_from(bits_a_second).unwrap_or(u32::MAX),
            gop: gop.max(1),
            preset: preset.clamp(1, 7),
            low_latency,
        }
    }

    /// Of the library's buffers.
    pub const fn format(&self) -> u32 {
        if self.wanted.bits == 10 { NV_ENC_BUFFER_FORMAT_YUV420_10BIT } else { NV_ENC_BUFFER_FORMAT_NV12 }
    }
    /// Of pictures that are handed over.
    pub const fn structure(&self) -> u32 {
        if self.fields { NV_ENC_PIC_STRUCT_FIELD_TOP_BOTTOM } else { NV_ENC_PIC_STRUCT_FRAME }
    }
    /// The preset's name in the library.
    pub const fn preset_guid(&self) -> GUID {
        match self.preset {
            1 => NV_ENC_PRESET_P1_GUID,
            2 => NV_ENC_PRESET_P2_GUID,
            3 => NV_ENC_PRESET_P3_GUID,
            4 => NV_ENC_PRESET_P4_GUID,
            5 => NV_ENC_PRESET_P5_GUID,
            6 => NV_ENC_PRESET_P6_GUID,
            _ => NV_ENC_PRESET_P7_GUID,
        }
    }
    /// What the preset is tuned for.
    pub const fn tuning(&self) -> u32 {
        if self.low_latency { NV_ENC_TUNING_INFO_LOW_LATENCY } else { NV_ENC_TUNING_INFO_HIGH_QUALITY }
    }

    /// Puts them into the configuration that the library has for the preset.
    pub fn apply(&self, config: &mut NV_ENC_CONFIG) {
        let Wanted { codec, bits, .. } = self.wanted;
        config.version = NV_ENC_CONFIG_VER;
        config.profileGUID = match (codec, bits) {
            (Codec::Hevc, 10) => NV_ENC_HEVC_PROFILE_MAIN10_GUID,
            (Codec::Hevc, _) => NV_ENC_HEVC_PROFILE_MAIN_GUID,
            (Codec::Av1, _) => NV_ENC_AV1_PROFILE_MAIN_GUID,
            (Codec::H264 | Codec::Mjpeg, _) => NV_ENC_H264_PROFILE_HIGH_GUID,
        };
        config.gopLength = self.gop;
        // No picture refers to a later one: they leave in the order in which they come.
        config.frameIntervalP = 1;
        config.frameFieldMode =
            if self.fields { NV_ENC_PARAMS_FRAME_FIELD_MODE_FIELD } else { NV_ENC_PARAMS_FRAME_FIELD_MODE_FRAME };
        let rc = &mut config.rcParams;
        rc.version = NV_ENC_RC_PARAMS_VER;
        rc.averageBitRate = self.bits_a_second;
        if self.low_latency {
            rc.rateControlMode = NV_ENC_PARAMS_RC_CBR;
            rc.maxBitRate = self.bits_a_second;
            // Half a second.
            rc.vbvBufferSize = self.bits_a_second / 2;
        } else {
            rc.rateControlMode = NV_ENC_PARAMS_RC_VBR;
            rc.maxBitRate = self.bits_a_second.saturating_add(self.bits_a_second / 2);
        }
        let ten = bits == 10;
        match codec {
            Codec::Hevc => {
                let mut hevc = config.encodeCodecConfig.hevc();
                hevc.idrPeriod = self.gop;
                hevc.bits &= !(HEVC_CHROMA | HEVC_BIT_DEPTH);
                hevc.bits |=
                    HEVC_REPEAT_SPS_PPS | HEVC_OUTPUT_AUD | HEVC_CHROMA_420 | if ten { HEVC_10_BIT } else { 0 };
                self.describe(&mut hevc.hevcVUIParameters);
                config.encodeCodecConfig = NV_ENC_CODEC_CONFIG { hevcConfig: hevc };
            }
            Codec::Av1 => {
                let mut av1 = config.encodeCodecConfig.av1();
                av1.idrPeriod = self.gop;
                av1.bits &= !(AV1_CHROMA | AV1_BIT_DEPTH | AV1_INPUT_BIT_DEPTH);
                av1.bits |= AV1_REPEAT_SEQUENCE_HEADER | AV1_CHROMA_420;
                av1.bits |= if ten { AV1_10_BIT | AV1_INPUT_10_BIT } else { 0 };
                [av1.colorPrimaries, av1.transferCharacteristics, av1.matrixCoefficients] = self.colour;
                av1.colorRange = self.full_range.into();
                config.encodeCodecConfig = NV_ENC_CODEC_CONFIG { av1Config: av1 };
            }
            Codec::H264 | Codec::Mjpeg => {
                let mut h264 = config.encodeCodecConfig.h264();
                h264.idrPeriod = self.gop;
                h264.chromaFormatIDC = 1;
                h264.bits |= H264_REPEAT_SPS_PPS | H264_OUTPUT_AUD;
                self.describe(&mut h264.h264VUIParameters);
                config.encodeCodecConfig = NV_ENC_CODEC_CONFIG { h264Config: h264 };
            }
        }
    }

    fn describe(&self, vui: &mut NV_ENC_CONFIG_H264_VUI_PARAMETERS) {
        vui.videoSignalTypePresentFlag = 1;
        // 5: unspecified.
        vui.videoFormat = 5;
        vui.videoFullRangeFlag = self.full_range.into();
        vui.colourDescriptionPresentFlag = 1;
        [vui.colourPrimaries, vui.transferCharacteristics, vui.colourMatrix] = self.colour;
    }

    /// What an encoder is opened with; `config` has been through [`Settings::apply`] and outlives the call.
    pub fn parameters(&self, config: &mut NV_ENC_CONFIG) -> NV_ENC_INITIALIZE_PARAMS {
        let mut all: NV_ENC_INITIALIZE_PARAMS = zeroed();
        all.version = NV_ENC_INITIALIZE_PARAMS_VER;
        all.encodeGUID = self.wanted.guid();
        all.presetGUID = self.preset_guid();
        (all.encodeWidth, all.encodeHeight) = (self.wanted.width, self.wanted.height);
        (all.darWidth, all.darHeight) = self.aspect;
        if self.wanted.codec == Codec::Av1 {
            // There it is the size to show the picture at.
            (all.darWidth, all.darHeight) = (self.wanted.width, self.wanted.height);
        }
        (all.frameRateNum, all.frameRateDen) = self.rate;
        all.enablePTD = 1;
        all.tuningInfo = self.tuning();
        all.encodeConfig = config;
        all
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Primaries, transfer and matrix by the numbers of ITU-T H.273, tables 2 to 4; 2 is "unspecified".
fn colour(video: &Video) -> [u32; 3] {
    // 625 lines have 576 rows, up to 608 with blanking.
    let lines_625 = (513..=608).contains(&video.height);
    let primaries = match video.colorimetry {
        Colorimetry::Bt709 => 1,
        Colorimetry::Bt601 if lines_625 => 5,
        Colorimetry::Bt601 => 6,
        Colorimetry::Bt2020 | Colorimetry::Bt2100 => 9,
        Colorimetry::Xyz => 10,
        _ => 2,
    };
    let transfer = match (video.tcs, video.colorimetry) {
        (Tcs::Pq, _) => 16,
        (Tcs::Hlg, _) => 18,
        (Tcs::Linear, _) => 8,
        (Tcs::Sdr, Colorimetry::Bt709) => 1,
        (Tcs::Sdr, Colorimetry::Bt601) => 6,
        (Tcs::Sdr, Colorimetry::Bt2020 | Colorimetry::Bt2100) if matches!(video.depth, Depth::D8 | Depth::D10) => 14,
        (Tcs::Sdr, Colorimetry::Bt2020 | Colorimetry::Bt2100) => 15,
        _ => 2,
    };
    let matrix = match (video.sampling, video.colorimetry) {
        (Sampling::Rgb, _) => 0,
        (Sampling::ClYCbCr444 | Sampling::ClYCbCr422 | Sampling::ClYCbCr420, _) => 10,
        (Sampling::ICtCp444 | Sampling::ICtCp422 | Sampling::ICtCp420, _) => 14,
        (_, Colorimetry::Bt709) => 1,
        (_, Colorimetry::Bt601) if lines_625 => 5,
        (_, Colorimetry::Bt601) => 6,
        (_, Colorimetry::Bt2020 | Colorimetry::Bt2100) => 9,
        _ => 2,
    };
    [primaries, transfer, matrix]
}

/// Does a flow have fields to be coded?
pub(super) fn has_fields(video: &Video) -> bool {
    video.scan == Scan::Interlaced
}
