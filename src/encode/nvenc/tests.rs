//! NVENC against the stand-in: every call that the real library would get.

use super::abi::*;
use super::library::{Fits, Session, zeroed};
use super::stand_in::{Script, library};
use super::*;
use crate::encode::Codec;
use crate::format::{Layout, Output, WireFormat};
use crate::frame::FramePool;
use gdmedia_sdp::{Colorimetry, Depth, Range, Ratio, Sampling, Scan, Tcs, Video};
use std::sync::Arc;

fn video(width: u32, height: u32) -> Video {
    Video::new(Sampling::YCbCr422, Depth::D10, width, height, Ratio::new(60000, 1001))
}

fn settings(codec: Codec, bits: u32) -> Settings {
    let video = video(64, 32);
    Settings::new(&video, Wanted { bits, ..Wanted::new(&video, codec) }, false, 5_000_000, 25, 4, false)
}

fn script() -> Script {
    Script { pictures: vec![(vec![0, 0, 1, 7], true), (vec![0, 0, 1, 8, 8], false)], ..Script::default() }
}

#[test]
fn a_gpu_without_nvenc_says_so() {
    let script = Arc::new(Script { open: NV_ENC_ERR_UNSUPPORTED_DEVICE.0, ..script() });
    let fault = Session::open(library(), script.device()).unwrap_err();
    assert_eq!(fault.to_string(), "open session answered unsupported device");
    assert_eq!(script.calls(), ["open"], "what was not opened is not destroyed");
}

#[test]
fn what_a_gpu_has_is_asked() {
    let most = |width| vec![(NV_ENC_CAPS_WIDTH_MAX, width), (NV_ENC_CAPS_HEIGHT_MAX, 4096)];
    let ask = |codecs: Vec<GUID>, capabilities: Vec<(u32, i32)>, codec| {
        let script = Arc::new(Script { codecs, capabilities, ..script() });
        let fits = Session::open(library(), script.device()).unwrap().fits(&Wanted::new(&video(3840, 2160), codec));
        assert!(script.calls().last().unwrap().starts_with("destroy"));
        fits
    };
    let hevc = vec![NV_ENC_CODEC_H264_GUID, NV_ENC_CODEC_HEVC_GUID];
    let mut capabilities = most(4096);
    capabilities.push((NV_ENC_CAPS_SUPPORT_10BIT_ENCODE, 1));
    assert_eq!(ask(hevc.clone(), capabilities, Codec::Hevc), Ok(Fits { ten_bit: true, fields: false }));
    assert_eq!(ask(hevc.clone(), most(4096), Codec::H264), Ok(Fits { ten_bit: false, fields: false }));
    assert_eq!(ask(hevc.clone(), most(4096), Codec::Av1).unwrap_err(), "it does not encode AV1");
    assert_eq!(ask(hevc, most(2048), Codec::H264).unwrap_err(), "it encodes H.264 up to 2048x4096");
}

#[test]
fn pictures_in_memory_of_the_gpu() {
    let script = Arc::new(script());
    let mut encoder = Nvenc::open(library(), script.device(), settings(Codec::H264, 8)).unwrap();
    let mut out = Vec::new();
    for (n, address) in [0x7000u64, 0x8000, 0x7000].into_iter().enumerate() {
        encoder.encode(Input::Device { address, pitch: 128 }, n, &mut out).unwrap();
        assert_eq!(out.len(), n + 1, "each comes out at once");
    }
    encoder.finish(&mut out).unwrap();
    let got: Vec<_> = out.iter().map(|c| (c.octets.len(), c.key, c.tag)).collect();
    assert_eq!(got, [(4, true, 0), (5, false, 1), (4, true, 2)]);
    drop(encoder);
    assert_eq!(
        script.calls(),
        [
            "open",
            "preset 1",
            "initialise 64x32 2:1 60000/1001 gop 25 rate 5000000",
            "register 0x7000 pitch 128",
            "encode 0 of 0x1 as 1 key",
            "register 0x8000 pitch 128",
            "encode 1 of 0x1 as 1",
            "encode 2 of 0x1 as 1",
            "end",
            "destroy, left: 0 outputs, 0 inputs, 0 registered, 0 mapped"
        ]
    );
}

#[test]
fn pictures_that_stay_in_the_encoder_come_out_in_order() {
    let script = Arc::new(Script { delay: 3, ..script() });
    let mut encoder = Nvenc::open(library(), script.device(), settings(Codec::Hevc, 10)).unwrap();
    let mut out = Vec::new();
    let mut counts = Vec::new();
    for n in 0..6u64 {
        encoder.encode(Input::Device { address: 0x1000 * (n + 1), pitch: 256 }, n, &mut out).unwrap();
        counts.push(out.len());
    }
    assert_eq!(counts, [0, 0, 0, 4, 4, 4]);
    encoder.finish(&mut out).unwrap();
    assert_eq!(out.iter().map(|c| c.tag).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    drop(encoder);
    assert_eq!(script.calls().last().unwrap(), "destroy, left: 0 outputs, 0 inputs, 0 registered, 0 mapped");
}

#[test]
fn an_encoder_that_keeps_all_is_given_up_and_leaves_nothing_behind() {
    let script = Arc::new(Script { delay: 99, ..script() });
    let mut encoder = Nvenc::open(library(), script.device(), settings(Codec::H264, 8)).unwrap();
    let mut out = Vec::new();
    let mut n = 0;
    let error = loop {
        let picture = Input::Device { address: 0x1000 * (n + 1), pitch: 256 };
        match encoder.encode(picture, n, &mut out) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((n, error.to_string().as_str()), (8, "NVENC keeps more than 8 pictures"));
    drop(encoder);
    assert_eq!(script.calls().last().unwrap(), "destroy, left: 0 outputs, 0 inputs, 0 registered, 0 mapped");
}

#[test]
fn pictures_in_system_memory_are_copied_row_by_row() {
    let wire = WireFormat::from_video(&video(64, 32)).unwrap();
    let layout = Layout::new(wire, Output::Nv12).unwrap();
    let mut buf = FramePool::host(layout, 1).unwrap().take().unwrap();
    buf.region_mut().as_mut_slice().iter_mut().enumerate().for_each(|(n, octet)| *octet = (n % 251) as u8);
    let frame = buf.seal();
    let script = Arc::new(script());
    let mut encoder = Nvenc::open(library(), script.device(), settings(Codec::H264, 8)).unwrap();
    let mut out = Vec::new();
    let row = |plane, row| frame.row(plane, row);
    encoder.encode(Input::Host(&row), (), &mut out).unwrap();
    encoder.encode(Input::Host(&row), (), &mut out).unwrap();
    drop(encoder);
    let calls = script.calls();
    assert_eq!(calls[3..6], ["input 64x32 of 0x1", "written [00, 01, 02, 03]", "encode 0 of 0x1 as 1 key"]);
    assert_eq!(calls.iter().filter(|call| call.starts_with("input")).count(), 1, "its buffer is used again");
    assert_eq!(calls.last().unwrap(), "destroy, left: 0 outputs, 0 inputs, 0 registered, 0 mapped");
}

#[test]
fn a_failure_has_the_librarys_words() {
    let script = Arc::new(Script { fails_at: Some(1), ..script() });
    let mut encoder = Nvenc::open(library(), script.device(), settings(Codec::H264, 8)).unwrap();
    let mut out = Vec::new();
    encoder.encode(Input::Device { address: 0x1000, pitch: 256 }, (), &mut out).unwrap();
    let error = encoder.encode(Input::Device { address: 0x2000, pitch: 256 }, (), &mut out).unwrap_err();
    assert_eq!(error.in_one_line(), "NVENC fails: encode picture answered invalid parameter (the encoder is tired)");
    assert!(error.cure_text().contains("rung=cpu"));
}

#[test]
fn settings_in_the_librarys_words() {
    let config = |codec, bits, change: fn(&mut Video)| {
        let mut video = video(720, 576);
        change(&mut video);
        let wanted = Wanted { bits, ..Wanted::new(&video, codec) };
        let settings = Settings::new(&video, wanted, video.scan == Scan::Interlaced, 8_000_000, 12, 1, true);
        let mut config: NV_ENC_CONFIG = zeroed();
        config.frameIntervalP = 3;
        settings.apply(&mut config);
        let parameters = settings.parameters(&mut config);
        (config, (parameters.darWidth, parameters.darHeight), parameters.presetGUID)
    };
    let (h264, aspect, preset) = config(Codec::H264, 8, |v| {
        (v.scan, v.colorimetry, v.rate) = (Scan::Interlaced, Colorimetry::Bt601, Ratio::new(25, 1));
        v.par = Ratio { num: 16, den: 15 };
    });
    assert_eq!((aspect, preset), ((4, 3), NV_ENC_PRESET_P1_GUID));
    assert_eq!((h264.profileGUID, h264.frameFieldMode), (NV_ENC_H264_PROFILE_HIGH_GUID, 2));
    let rc = &h264.rcParams;
    assert_eq!(
        (rc.rateControlMode, rc.averageBitRate, rc.maxBitRate, rc.vbvBufferSize),
        (2, 8_000_000, 8_000_000, 4_000_000)
    );
    let part = h264.encodeCodecConfig.h264();
    // outputAUD is bit 6, repeatSPSPPS bit 12 of the first word.
    assert_eq!((part.bits, part.idrPeriod, part.chromaFormatIDC), (1 << 6 | 1 << 12, 12, 1));
    let vui = part.h264VUIParameters;
    // H.273: BT.601 of 625 lines.
    assert_eq!((vui.colourPrimaries, vui.transferCharacteristics, vui.colourMatrix), (5, 6, 5));
    assert_eq!((vui.videoSignalTypePresentFlag, vui.videoFullRangeFlag, vui.colourDescriptionPresentFlag), (1, 0, 1));

    let (hevc, ..) = config(Codec::Hevc, 10, |v| {
        (v.colorimetry, v.tcs, v.range) = (Colorimetry::Bt2100, Tcs::Pq, Range::Full);
    });
    assert_eq!(hevc.profileGUID, NV_ENC_HEVC_PROFILE_MAIN10_GUID);
    let part = hevc.encodeCodecConfig.hevc();
    // outputAUD 4, repeatSPSPPS 7, chromaFormatIDC 9 and 10, pixelBitDepthMinus8 11 to 13.
    assert_eq!((part.bits, part.idrPeriod), (1 << 4 | 1 << 7 | 1 << 9 | 2 << 11, 12));
    let vui = part.hevcVUIParameters;
    assert_eq!(
        (vui.colourPrimaries, vui.transferCharacteristics, vui.colourMatrix, vui.videoFullRangeFlag),
        (9, 16, 9, 1)
    );

    let (av1, aspect, _) = config(Codec::Av1, 10, |v| (v.colorimetry, v.tcs) = (Colorimetry::Bt2100, Tcs::Hlg));
    let part = av1.encodeCodecConfig.av1();
    // repeatSeqHdr 5, chromaFormatIDC 7 and 8, inputPixelBitDepthMinus8 12 to 14, pixelBitDepthMinus8 15 to 17.
    assert_eq!((part.bits, part.idrPeriod, aspect), (1 << 5 | 1 << 7 | 2 << 12 | 2 << 15, 12, (720, 576)));
    assert_eq!(
        (part.colorPrimaries, part.transferCharacteristics, part.matrixCoefficients, part.colorRange),
        (9, 18, 9, 0)
    );
}

#[test]
fn the_real_library_where_there_is_one() {
    let gpu = match crate::gpu::Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => return println!("skipped: no CUDA device: {error}"),
    };
    let library = match Library::find() {
        Ok(library) => library,
        Err(why) => return println!("skipped: {why}"),
    };
    let wanted = Wanted::new(&video(1920, 1080), Codec::H264);
    match library.probe(&gpu, &video(1920, 1080), &wanted) {
        Ok(fits) => println!("NVENC: {fits:?}"),
        Err(why) => {
            println!("no NVENC: {why}");
            assert!(why.contains("answered") || why.contains("encode"), "{why}");
        }
    }
}
