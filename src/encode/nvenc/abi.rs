//! What `libnvidia-encode` is called with: NVIDIA's `nvEncodeAPI.h`, version 12.1, as bindgen reads it.
//!
//! Made from the header of Debian's package libffmpeg-nvenc-dev 12.1.14.0 and cut down to what is used: functions that are
//! not called are addresses, enumerations are numbers, bit fields are words with the masks below. Sizes and offsets at the end
//! are those that gcc gives for the header. Drivers take it from
//! version 530 (Linux) on.
//!
//! The header's own notice:
//!
//! ```text
//! This copyright notice applies to this header file only:
//!
//! Copyright (c) 2010-2023 NVIDIA Corporation
//!
//! Permission is hereby granted, free of charge, to any person
//! obtaining a copy of this software and associated documentation
//! files (the "Software"), to deal in the Software without
//! restriction, including without limitation the rights to use,
//! copy, modify, merge, publish, distribute, sublicense, and/or sell
//! copies of the software, and to permit persons to whom the
//! software is furnished to do so, subject to the following
//! conditions:
//!
//! The above copyright notice and this permission notice shall be
//! included in all copies or substantial portions of the Software.
//!
//! THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
//! EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
//! OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
//! NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT
//! HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY,
//! WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING
//! FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR
//! OTHER DEALINGS IN THE SOFTWARE.
//! ```
#![allow(missing_docs, non_camel_case_types, non_snake_case, unsafe_code)]

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;

/// `NVENCAPI_VERSION`.
pub const API_VERSION: u32 = 12 | 1 << 24;

/// `NVENCAPI_STRUCT_VERSION`.
const fn version(of: u32) -> u32 {
    API_VERSION | of << 16 | 7 << 28
}

const fn guid(Data1: u32, Data2: u16, Data3: u16, Data4: [u8; 8]) -> GUID {
    GUID { Data1, Data2, Data3, Data4 }
}

/// `NVENCSTATUS`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

/// What calls answer, by number.
pub const STATUS: [&str; 27] = [
    "success",
    "no encode device",
    "unsupported device",
    "invalid encoder device",
    "invalid device",
    "device does not exist",
    "invalid pointer",
    "invalid event",
    "invalid parameter",
    "invalid call",
    "out of memory",
    "encoder not initialized",
    "unsupported parameter",
    "lock busy",
    "not enough buffer",
    "invalid version",
    "map failed",
    "need more input",
    "encoder busy",
    "event not registered",
    "generic",
    "incompatible client key",
    "unimplemented",
    "resource register failed",
    "resource not registered",
    "resource not mapped",
    "need more output",
];
pub const NV_ENC_SUCCESS: Status = Status(0);
pub const NV_ENC_ERR_UNSUPPORTED_DEVICE: Status = Status(2);
pub const NV_ENC_ERR_INVALID_PARAM: Status = Status(8);
pub const NV_ENC_ERR_INVALID_CALL: Status = Status(9);
pub const NV_ENC_ERR_INVALID_VERSION: Status = Status(15);
pub const NV_ENC_ERR_NEED_MORE_INPUT: Status = Status(17);

pub const NV_ENC_CAPS_PARAM_VER: u32 = version(1);
pub const NV_ENC_CREATE_INPUT_BUFFER_VER: u32 = version(1);
pub const NV_ENC_CREATE_BITSTREAM_BUFFER_VER: u32 = version(1);
pub const NV_ENC_RC_PARAMS_VER: u32 = version(1);
pub const NV_ENC_CONFIG_VER: u32 = version(8) | 1 << 31;
pub const NV_ENC_INITIALIZE_PARAMS_VER: u32 = version(6) | 1 << 31;
pub const NV_ENC_PRESET_CONFIG_VER: u32 = version(4) | 1 << 31;
pub const NV_ENC_PIC_PARAMS_VER: u32 = version(6) | 1 << 31;
pub const NV_ENC_LOCK_BITSTREAM_VER: u32 = version(1) | 1 << 31;
pub const NV_ENC_LOCK_INPUT_BUFFER_VER: u32 = version(1);
pub const NV_ENC_MAP_INPUT_RESOURCE_VER: u32 = version(4);
pub const NV_ENC_REGISTER_RESOURCE_VER: u32 = version(4);
pub const NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS_VER: u32 = version(1);
pub const NV_ENCODE_API_FUNCTION_LIST_VER: u32 = version(2);

pub const NV_ENC_PIC_STRUCT_FRAME: u32 = 1;
pub const NV_ENC_PIC_STRUCT_FIELD_TOP_BOTTOM: u32 = 2;
pub const NV_ENC_BUFFER_FORMAT_NV12: u32 = 1;
pub const NV_ENC_BUFFER_FORMAT_YUV420_10BIT: u32 = 65536;
pub const NV_ENC_PARAMS_RC_VBR: u32 = 1;
pub const NV_ENC_PARAMS_RC_CBR: u32 = 2;
pub const NV_ENC_DEVICE_TYPE_CUDA: u32 = 1;
pub const NV_ENC_INPUT_RESOURCE_TYPE_CUDADEVICEPTR: u32 = 1;
pub const NV_ENC_INPUT_IMAGE: u32 = 0;
pub const NV_ENC_CAPS_WIDTH_MAX: u32 = 16;
pub const NV_ENC_CAPS_HEIGHT_MAX: u32 = 17;
pub const NV_ENC_CAPS_SUPPORT_10BIT_ENCODE: u32 = 39;
pub const NV_ENC_CAPS_SUPPORT_FIELD_ENCODING: u32 = 2;
pub const NV_ENC_PIC_FLAG_EOS: u32 = 8;
pub const NV_ENC_PIC_FLAG_FORCEIDR: u32 = 2;
pub const NV_ENC_PIC_TYPE_IDR: u32 = 3;
pub const NV_ENC_TUNING_INFO_HIGH_QUALITY: u32 = 1;
pub const NV_ENC_TUNING_INFO_LOW_LATENCY: u32 = 2;
pub const NV_ENC_PARAMS_FRAME_FIELD_MODE_FRAME: u32 = 1;
pub const NV_ENC_PARAMS_FRAME_FIELD_MODE_FIELD: u32 = 2;

/// `repeatSPSPPS`.
pub const H264_REPEAT_SPS_PPS: u32 = 0x1000;
/// `outputAUD`.
pub const H264_OUTPUT_AUD: u32 = 0x40;
/// `repeatSPSPPS`.
pub const HEVC_REPEAT_SPS_PPS: u32 = 0x80;
/// `outputAUD`.
pub const HEVC_OUTPUT_AUD: u32 = 0x10;
/// `chromaFormatIDC`.
pub const HEVC_CHROMA_420: u32 = 0x200;
/// `pixelBitDepthMinus8`.
pub const HEVC_10_BIT: u32 = 0x1000;
/// All bits of `pixelBitDepthMinus8`.
pub const HEVC_BIT_DEPTH: u32 = 0x3800;
/// All bits of `chromaFormatIDC`.
pub const HEVC_CHROMA: u32 = 0x600;
/// `repeatSeqHdr`.
pub const AV1_REPEAT_SEQUENCE_HEADER: u32 = 0x20;
/// `chromaFormatIDC`.
pub const AV1_CHROMA_420: u32 = 0x80;
/// All bits of `chromaFormatIDC`.
pub const AV1_CHROMA: u32 = 0x180;
/// `inputPixelBitDepthMinus8`.
pub const AV1_INPUT_10_BIT: u32 = 0x2000;
/// `pixelBitDepthMinus8`.
pub const AV1_10_BIT: u32 = 0x10000;
/// All bits of `inputPixelBitDepthMinus8`.
pub const AV1_INPUT_BIT_DEPTH: u32 = 0x7000;
/// All bits of `pixelBitDepthMinus8`.
pub const AV1_BIT_DEPTH: u32 = 0x38000;

pub const NV_ENC_CODEC_H264_GUID: GUID =
    guid(0x6bc82762, 0x4e63, 0x4ca4, [0xaa, 0x85, 0x1e, 0x50, 0xf3, 0x21, 0xf6, 0xbf]);
pub const NV_ENC_CODEC_HEVC_GUID: GUID =
    guid(0x790cdc88, 0x4522, 0x4d7b, [0x94, 0x25, 0xbd, 0xa9, 0x97, 0x5f, 0x76, 0x03]);
pub const NV_ENC_CODEC_AV1_GUID: GUID =
    guid(0x0a352289, 0x0aa7, 0x4759, [0x86, 0x2d, 0x5d, 0x15, 0xcd, 0x16, 0xd2, 0x54]);
pub const NV_ENC_CODEC_PROFILE_AUTOSELECT_GUID: GUID =
    guid(0xbfd6f8e7, 0x233c, 0x4341, [0x8b, 0x3e, 0x48, 0x18, 0x52, 0x38, 0x03, 0xf4]);
pub const NV_ENC_H264_PROFILE_HIGH_GUID: GUID =
    guid(0xe7cbc309, 0x4f7a, 0x4b89, [0xaf, 0x2a, 0xd5, 0x37, 0xc9, 0x2b, 0xe3, 0x10]);
pub const NV_ENC_HEVC_PROFILE_MAIN_GUID: GUID =
    guid(0xb514c39a, 0xb55b, 0x40fa, [0x87, 0x8f, 0xf1, 0x25, 0x3b, 0x4d, 0xfd, 0xec]);
pub const NV_ENC_HEVC_PROFILE_MAIN10_GUID: GUID =
    guid(0xfa4d2b6c, 0x3a5b, 0x411a, [0x80, 0x18, 0x0a, 0x3f, 0x5e, 0x3c, 0x9b, 0xe5]);
pub const NV_ENC_AV1_PROFILE_MAIN_GUID: GUID =
    guid(0x5f2a39f5, 0xf14e, 0x4f95, [0x9a, 0x9e, 0xb7, 0x6d, 0x56, 0x8f, 0xcf, 0x97]);
pub const NV_ENC_PRESET_P1_GUID: GUID =
    guid(0xfc0a8d3e, 0x45f8, 0x4cf8, [0x80, 0xc7, 0x29, 0x88, 0x71, 0x59, 0x0e, 0xbf]);
pub const NV_ENC_PRESET_P2_GUID: GUID =
    guid(0xf581cfb8, 0x88d6, 0x4381, [0x93, 0xf0, 0xdf, 0x13, 0xf9, 0xc2, 0x7d, 0xab]);
pub const NV_ENC_PRESET_P3_GUID: GUID =
    guid(0x36850110, 0x3a07, 0x441f, [0x94, 0xd5, 0x36, 0x70, 0x63, 0x1f, 0x91, 0xf6]);
pub const NV_ENC_PRESET_P4_GUID: GUID =
    guid(0x90a7b826, 0xdf06, 0x4862, [0xb9, 0xd2, 0xcd, 0x6d, 0x73, 0xa0, 0x86, 0x81]);
pub const NV_ENC_PRESET_P5_GUID: GUID =
    guid(0x21c6e6b4, 0x297a, 0x4cba, [0x99, 0x8f, 0xb6, 0xcb, 0xde, 0x72, 0xad, 0xe3]);
pub const NV_ENC_PRESET_P6_GUID: GUID =
    guid(0x8e75c279, 0x6299, 0x4ab6, [0x83, 0x02, 0x0b, 0x21, 0x5a, 0x33, 0x5c, 0xf5]);
pub const NV_ENC_PRESET_P7_GUID: GUID =
    guid(0x84848c12, 0x6f71, 0x4c13, [0x93, 0x1b, 0x53, 0xe2, 0x83, 0xf5, 0x79, 0x74]);

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GUID {
    pub Data1: u32,
    pub Data2: u16,
    pub Data3: u16,
    pub Data4: [u8; 8],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_CAPS_PARAM {
    pub version: u32,
    pub capsToQuery: u32,
    pub reserved: [u32; 62],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_CREATE_INPUT_BUFFER {
    pub version: u32,
    pub width: u32,
    pub height: u32,
    pub memoryHeap: u32,
    pub bufferFmt: u32,
    pub reserved: u32,
    pub inputBuffer: *mut c_void,
    pub pSysMemBuffer: *mut c_void,
    pub reserved1: [u32; 57],
    pub reserved2: [*mut c_void; 63],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_CREATE_BITSTREAM_BUFFER {
    pub version: u32,
    pub size: u32,
    pub memoryHeap: u32,
    pub reserved: u32,
    pub bitstreamBuffer: *mut c_void,
    pub bitstreamBufferPtr: *mut c_void,
    pub reserved1: [u32; 58],
    pub reserved2: [*mut c_void; 64],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_QP {
    pub qpInterP: u32,
    pub qpInterB: u32,
    pub qpIntra: u32,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_RC_PARAMS {
    pub version: u32,
    pub rateControlMode: u32,
    pub constQP: NV_ENC_QP,
    pub averageBitRate: u32,
    pub maxBitRate: u32,
    pub vbvBufferSize: u32,
    pub vbvInitialDelay: u32,
    pub bits: u32,
    pub minQP: NV_ENC_QP,
    pub maxQP: NV_ENC_QP,
    pub initialRCQP: NV_ENC_QP,
    pub temporallayerIdxMask: u32,
    pub temporalLayerQP: [u8; 8],
    pub targetQuality: u8,
    pub targetQualityLSB: u8,
    pub lookaheadDepth: u16,
    pub lowDelayKeyFrameScale: u8,
    pub yDcQPIndexOffset: i8,
    pub uDcQPIndexOffset: i8,
    pub vDcQPIndexOffset: i8,
    pub qpMapMode: u32,
    pub multiPass: u32,
    pub alphaLayerBitrateRatio: u32,
    pub cbQPIndexOffset: i8,
    pub crQPIndexOffset: i8,
    pub reserved2: u16,
    pub reserved: [u32; 4],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_CONFIG_H264_VUI_PARAMETERS {
    pub overscanInfoPresentFlag: u32,
    pub overscanInfo: u32,
    pub videoSignalTypePresentFlag: u32,
    pub videoFormat: u32,
    pub videoFullRangeFlag: u32,
    pub colourDescriptionPresentFlag: u32,
    pub colourPrimaries: u32,
    pub transferCharacteristics: u32,
    pub colourMatrix: u32,
    pub chromaSampleLocationFlag: u32,
    pub chromaSampleLocationTop: u32,
    pub chromaSampleLocationBot: u32,
    pub bitstreamRestrictionFlag: u32,
    pub timingInfoPresentFlag: u32,
    pub numUnitInTicks: u32,
    pub timeScale: u32,
    pub reserved: [u32; 12],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_CONFIG_H264 {
    pub bits: u32,
    pub level: u32,
    pub idrPeriod: u32,
    pub separateColourPlaneFlag: u32,
    pub disableDeblockingFilterIDC: u32,
    pub numTemporalLayers: u32,
    pub spsId: u32,
    pub ppsId: u32,
    pub adaptiveTransformMode: u32,
    pub fmoMode: u32,
    pub bdirectMode: u32,
    pub entropyCodingMode: u32,
    pub stereoMode: u32,
    pub intraRefreshPeriod: u32,
    pub intraRefreshCnt: u32,
    pub maxNumRefFrames: u32,
    pub sliceMode: u32,
    pub sliceModeData: u32,
    pub h264VUIParameters: NV_ENC_CONFIG_H264_VUI_PARAMETERS,
    pub ltrNumFrames: u32,
    pub ltrTrustMode: u32,
    pub chromaFormatIDC: u32,
    pub maxTemporalLayers: u32,
    pub useBFramesAsRef: u32,
    pub numRefL0: u32,
    pub numRefL1: u32,
    pub reserved1: [u32; 267],
    pub reserved2: [*mut c_void; 64],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_CONFIG_HEVC {
    pub level: u32,
    pub tier: u32,
    pub minCUSize: u32,
    pub maxCUSize: u32,
    pub bits: u32,
    pub idrPeriod: u32,
    pub intraRefreshPeriod: u32,
    pub intraRefreshCnt: u32,
    pub maxNumRefFramesInDPB: u32,
    pub ltrNumFrames: u32,
    pub vpsId: u32,
    pub spsId: u32,
    pub ppsId: u32,
    pub sliceMode: u32,
    pub sliceModeData: u32,
    pub maxTemporalLayersMinus1: u32,
    pub hevcVUIParameters: NV_ENC_CONFIG_H264_VUI_PARAMETERS,
    pub ltrTrustMode: u32,
    pub useBFramesAsRef: u32,
    pub numRefL0: u32,
    pub numRefL1: u32,
    pub reserved1: [u32; 214],
    pub reserved2: [*mut c_void; 64],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_CONFIG_AV1 {
    pub level: u32,
    pub tier: u32,
    pub minPartSize: u32,
    pub maxPartSize: u32,
    pub bits: u32,
    pub idrPeriod: u32,
    pub intraRefreshPeriod: u32,
    pub intraRefreshCnt: u32,
    pub maxNumRefFramesInDPB: u32,
    pub numTileColumns: u32,
    pub numTileRows: u32,
    pub tileWidths: *mut u32,
    pub tileHeights: *mut u32,
    pub maxTemporalLayersMinus1: u32,
    pub colorPrimaries: u32,
    pub transferCharacteristics: u32,
    pub matrixCoefficients: u32,
    pub colorRange: u32,
    pub chromaSamplePosition: u32,
    pub useBFramesAsRef: u32,
    pub filmGrainParams: *mut c_void,
    pub numFwdRefs: u32,
    pub numBwdRefs: u32,
    pub reserved1: [u32; 235],
    pub reserved2: [*mut c_void; 62],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_CONFIG {
    pub version: u32,
    pub profileGUID: GUID,
    pub gopLength: u32,
    pub frameIntervalP: i32,
    pub monoChromeEncoding: u32,
    pub frameFieldMode: u32,
    pub mvPrecision: u32,
    pub rcParams: NV_ENC_RC_PARAMS,
    pub encodeCodecConfig: NV_ENC_CODEC_CONFIG,
    pub reserved: [u32; 278],
    pub reserved2: [*mut c_void; 64],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_INITIALIZE_PARAMS {
    pub version: u32,
    pub encodeGUID: GUID,
    pub presetGUID: GUID,
    pub encodeWidth: u32,
    pub encodeHeight: u32,
    pub darWidth: u32,
    pub darHeight: u32,
    pub frameRateNum: u32,
    pub frameRateDen: u32,
    pub enableEncodeAsync: u32,
    pub enablePTD: u32,
    pub bits: u32,
    pub privDataSize: u32,
    pub privData: *mut c_void,
    pub encodeConfig: *mut NV_ENC_CONFIG,
    pub maxEncodeWidth: u32,
    pub maxEncodeHeight: u32,
    pub maxMEHintCountsPerBlock: [[u32; 4]; 2],
    pub tuningInfo: u32,
    pub bufferFormat: u32,
    pub numStateBuffers: u32,
    pub outputStatsLevel: u32,
    pub reserved: [u32; 285],
    pub reserved2: [*mut c_void; 64],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_PRESET_CONFIG {
    pub version: u32,
    pub presetCfg: NV_ENC_CONFIG,
    pub reserved1: [u32; 255],
    pub reserved2: [*mut c_void; 64],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_PIC_PARAMS {
    pub version: u32,
    pub inputWidth: u32,
    pub inputHeight: u32,
    pub inputPitch: u32,
    pub encodePicFlags: u32,
    pub frameIdx: u32,
    pub inputTimeStamp: u64,
    pub inputDuration: u64,
    pub inputBuffer: *mut c_void,
    pub outputBitstream: *mut c_void,
    pub completionEvent: *mut c_void,
    pub bufferFmt: u32,
    pub pictureStruct: u32,
    pub pictureType: u32,
    pub codecPicParams: [u64; 194],
    pub meHintCountsPerBlock: [[u32; 4]; 2],
    pub meExternalHints: *mut c_void,
    pub reserved1: [u32; 6],
    pub reserved2: [*mut c_void; 2],
    pub qpDeltaMap: *mut i8,
    pub qpDeltaMapSize: u32,
    pub reservedBitFields: u32,
    pub meHintRefPicDist: [u16; 2],
    pub alphaBuffer: *mut c_void,
    pub meExternalSbHints: *mut c_void,
    pub meSbHintsCount: u32,
    pub stateBufferIdx: u32,
    pub outputReconBuffer: *mut c_void,
    pub reserved3: [u32; 284],
    pub reserved4: [*mut c_void; 57],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_LOCK_BITSTREAM {
    pub version: u32,
    pub bits: u32,
    pub outputBitstream: *mut c_void,
    pub sliceOffsets: *mut u32,
    pub frameIdx: u32,
    pub hwEncodeStatus: u32,
    pub numSlices: u32,
    pub bitstreamSizeInBytes: u32,
    pub outputTimeStamp: u64,
    pub outputDuration: u64,
    pub bitstreamBufferPtr: *mut c_void,
    pub pictureType: u32,
    pub pictureStruct: u32,
    pub frameAvgQP: u32,
    pub frameSatd: u32,
    pub ltrFrameIdx: u32,
    pub ltrFrameBitmap: u32,
    pub temporalId: u32,
    pub intraMBCount: u32,
    pub interMBCount: u32,
    pub averageMVX: i32,
    pub averageMVY: i32,
    pub alphaLayerSizeInBytes: u32,
    pub outputStatsPtrSize: u32,
    pub outputStatsPtr: *mut c_void,
    pub frameIdxDisplay: u32,
    pub reserved1: [u32; 220],
    pub reserved2: [*mut c_void; 63],
    pub reservedInternal: [u32; 8],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_LOCK_INPUT_BUFFER {
    pub version: u32,
    pub bits: u32,
    pub inputBuffer: *mut c_void,
    pub bufferDataPtr: *mut c_void,
    pub pitch: u32,
    pub reserved1: [u32; 251],
    pub reserved2: [*mut c_void; 64],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_MAP_INPUT_RESOURCE {
    pub version: u32,
    pub subResourceIndex: u32,
    pub inputResource: *mut c_void,
    pub registeredResource: *mut c_void,
    pub mappedResource: *mut c_void,
    pub mappedBufferFmt: u32,
    pub reserved1: [u32; 251],
    pub reserved2: [*mut c_void; 63],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_REGISTER_RESOURCE {
    pub version: u32,
    pub resourceType: u32,
    pub width: u32,
    pub height: u32,
    pub pitch: u32,
    pub subResourceIndex: u32,
    pub resourceToRegister: *mut c_void,
    pub registeredResource: *mut c_void,
    pub bufferFormat: u32,
    pub bufferUsage: u32,
    pub pInputFencePoint: *mut c_void,
    pub chromaOffset: [u32; 2],
    pub reserved1: [u32; 245],
    pub reserved2: [*mut c_void; 61],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS {
    pub version: u32,
    pub deviceType: u32,
    pub device: *mut c_void,
    pub reserved: *mut c_void,
    pub apiVersion: u32,
    pub reserved1: [u32; 253],
    pub reserved2: [*mut c_void; 64],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NV_ENCODE_API_FUNCTION_LIST {
    pub version: u32,
    pub reserved: u32,
    pub nvEncOpenEncodeSession: *mut c_void,
    pub nvEncGetEncodeGUIDCount:
        Option<unsafe extern "C" fn(encoder: *mut c_void, encodeGUIDCount: *mut u32) -> Status>,
    pub nvEncGetEncodeProfileGUIDCount: *mut c_void,
    pub nvEncGetEncodeProfileGUIDs: *mut c_void,
    pub nvEncGetEncodeGUIDs: Option<
        unsafe extern "C" fn(encoder: *mut c_void, GUIDs: *mut GUID, guidArraySize: u32, GUIDCount: *mut u32) -> Status,
    >,
    pub nvEncGetInputFormatCount: *mut c_void,
    pub nvEncGetInputFormats: *mut c_void,
    pub nvEncGetEncodeCaps: Option<
        unsafe extern "C" fn(
            encoder: *mut c_void,
            encodeGUID: GUID,
            capsParam: *mut NV_ENC_CAPS_PARAM,
            capsVal: *mut c_int,
        ) -> Status,
    >,
    pub nvEncGetEncodePresetCount: *mut c_void,
    pub nvEncGetEncodePresetGUIDs: *mut c_void,
    pub nvEncGetEncodePresetConfig: *mut c_void,
    pub nvEncInitializeEncoder:
        Option<unsafe extern "C" fn(encoder: *mut c_void, createEncodeParams: *mut NV_ENC_INITIALIZE_PARAMS) -> Status>,
    pub nvEncCreateInputBuffer: Option<
        unsafe extern "C" fn(encoder: *mut c_void, createInputBufferParams: *mut NV_ENC_CREATE_INPUT_BUFFER) -> Status,
    >,
    pub nvEncDestroyInputBuffer: Option<unsafe extern "C" fn(encoder: *mut c_void, inputBuffer: *mut c_void) -> Status>,
    pub nvEncCreateBitstreamBuffer: Option<
        unsafe extern "C" fn(
            encoder: *mut c_void,
            createBitstreamBufferParams: *mut NV_ENC_CREATE_BITSTREAM_BUFFER,
        ) -> Status,
    >,
    pub nvEncDestroyBitstreamBuffer:
        Option<unsafe extern "C" fn(encoder: *mut c_void, bitstreamBuffer: *mut c_void) -> Status>,
    pub nvEncEncodePicture:
        Option<unsafe extern "C" fn(encoder: *mut c_void, encodePicParams: *mut NV_ENC_PIC_PARAMS) -> Status>,
    pub nvEncLockBitstream: Option<
        unsafe extern "C" fn(encoder: *mut c_void, lockBitstreamBufferParams: *mut NV_ENC_LOCK_BITSTREAM) -> Status,
    >,
    pub nvEncUnlockBitstream:
        Option<unsafe extern "C" fn(encoder: *mut c_void, bitstreamBuffer: *mut c_void) -> Status>,
    pub nvEncLockInputBuffer: Option<
        unsafe extern "C" fn(encoder: *mut c_void, lockInputBufferParams: *mut NV_ENC_LOCK_INPUT_BUFFER) -> Status,
    >,
    pub nvEncUnlockInputBuffer: Option<unsafe extern "C" fn(encoder: *mut c_void, inputBuffer: *mut c_void) -> Status>,
    pub nvEncGetEncodeStats: *mut c_void,
    pub nvEncGetSequenceParams: *mut c_void,
    pub nvEncRegisterAsyncEvent: *mut c_void,
    pub nvEncUnregisterAsyncEvent: *mut c_void,
    pub nvEncMapInputResource:
        Option<unsafe extern "C" fn(encoder: *mut c_void, mapInputResParams: *mut NV_ENC_MAP_INPUT_RESOURCE) -> Status>,
    pub nvEncUnmapInputResource:
        Option<unsafe extern "C" fn(encoder: *mut c_void, mappedInputBuffer: *mut c_void) -> Status>,
    pub nvEncDestroyEncoder: Option<unsafe extern "C" fn(encoder: *mut c_void) -> Status>,
    pub nvEncInvalidateRefFrames: *mut c_void,
    pub nvEncOpenEncodeSessionEx: Option<
        unsafe extern "C" fn(
            openSessionExParams: *mut NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS,
            encoder: *mut *mut c_void,
        ) -> Status,
    >,
    pub nvEncRegisterResource:
        Option<unsafe extern "C" fn(encoder: *mut c_void, registerResParams: *mut NV_ENC_REGISTER_RESOURCE) -> Status>,
    pub nvEncUnregisterResource:
        Option<unsafe extern "C" fn(encoder: *mut c_void, registeredRes: *mut c_void) -> Status>,
    pub nvEncReconfigureEncoder: *mut c_void,
    pub reserved1: *mut c_void,
    pub nvEncCreateMVBuffer: *mut c_void,
    pub nvEncDestroyMVBuffer: *mut c_void,
    pub nvEncRunMotionEstimationOnly: *mut c_void,
    pub nvEncGetLastErrorString: Option<unsafe extern "C" fn(encoder: *mut c_void) -> *const c_char>,
    pub nvEncSetIOCudaStreams: *mut c_void,
    pub nvEncGetEncodePresetConfigEx: Option<
        unsafe extern "C" fn(
            encoder: *mut c_void,
            encodeGUID: GUID,
            presetGUID: GUID,
            tuningInfo: u32,
            presetConfig: *mut NV_ENC_PRESET_CONFIG,
        ) -> Status,
    >,
    pub nvEncGetSequenceParamEx: *mut c_void,
    pub nvEncRestoreEncoderState: *mut c_void,
    pub nvEncLookaheadPicture: *mut c_void,
    pub reserved2: [*mut c_void; 275],
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union NV_ENC_CODEC_CONFIG {
    pub h264Config: NV_ENC_CONFIG_H264,
    pub hevcConfig: NV_ENC_CONFIG_HEVC,
    pub av1Config: NV_ENC_CONFIG_AV1,
    pub reserved: [u32; 320],
}
const _: () = {
    assert!(size_of::<GUID>() == 16);
    assert!(offset_of!(GUID, Data4) == 8);
    assert!(size_of::<NV_ENC_CAPS_PARAM>() == 256);
    assert!(offset_of!(NV_ENC_CAPS_PARAM, capsToQuery) == 4);
    assert!(size_of::<NV_ENC_CREATE_INPUT_BUFFER>() == 776);
    assert!(offset_of!(NV_ENC_CREATE_INPUT_BUFFER, bufferFmt) == 16);
    assert!(offset_of!(NV_ENC_CREATE_INPUT_BUFFER, inputBuffer) == 24);
    assert!(size_of::<NV_ENC_CREATE_BITSTREAM_BUFFER>() == 776);
    assert!(offset_of!(NV_ENC_CREATE_BITSTREAM_BUFFER, bitstreamBuffer) == 16);
    assert!(size_of::<NV_ENC_QP>() == 12);
    assert!(size_of::<NV_ENC_RC_PARAMS>() == 128);
    assert!(offset_of!(NV_ENC_RC_PARAMS, averageBitRate) == 20);
    assert!(offset_of!(NV_ENC_RC_PARAMS, qpMapMode) == 96);
    assert!(offset_of!(NV_ENC_RC_PARAMS, lookaheadDepth) == 90);
    assert!(size_of::<NV_ENC_CONFIG_H264_VUI_PARAMETERS>() == 112);
    assert!(offset_of!(NV_ENC_CONFIG_H264_VUI_PARAMETERS, videoFullRangeFlag) == 16);
    assert!(offset_of!(NV_ENC_CONFIG_H264_VUI_PARAMETERS, colourMatrix) == 32);
    assert!(offset_of!(NV_ENC_CONFIG_H264_VUI_PARAMETERS, timeScale) == 60);
    assert!(size_of::<NV_ENC_CONFIG_H264>() == 1792);
    assert!(offset_of!(NV_ENC_CONFIG_H264, level) == 4);
    assert!(offset_of!(NV_ENC_CONFIG_H264, idrPeriod) == 8);
    assert!(offset_of!(NV_ENC_CONFIG_H264, h264VUIParameters) == 72);
    assert!(offset_of!(NV_ENC_CONFIG_H264, chromaFormatIDC) == 192);
    assert!(size_of::<NV_ENC_CONFIG_HEVC>() == 1560);
    assert!(offset_of!(NV_ENC_CONFIG_HEVC, idrPeriod) == 20);
    assert!(offset_of!(NV_ENC_CONFIG_HEVC, hevcVUIParameters) == 64);
    assert!(size_of::<NV_ENC_CONFIG_AV1>() == 1552);
    assert!(offset_of!(NV_ENC_CONFIG_AV1, idrPeriod) == 20);
    assert!(offset_of!(NV_ENC_CONFIG_AV1, colorPrimaries) == 68);
    assert!(offset_of!(NV_ENC_CONFIG_AV1, colorRange) == 80);
    assert!(size_of::<NV_ENC_CONFIG>() == 3584);
    assert!(offset_of!(NV_ENC_CONFIG, gopLength) == 20);
    assert!(offset_of!(NV_ENC_CONFIG, frameIntervalP) == 24);
    assert!(offset_of!(NV_ENC_CONFIG, rcParams) == 40);
    assert!(offset_of!(NV_ENC_CONFIG, encodeCodecConfig) == 168);
    assert!(size_of::<NV_ENC_INITIALIZE_PARAMS>() == 1808);
    assert!(offset_of!(NV_ENC_INITIALIZE_PARAMS, encodeConfig) == 88);
    assert!(offset_of!(NV_ENC_INITIALIZE_PARAMS, maxEncodeWidth) == 96);
    assert!(offset_of!(NV_ENC_INITIALIZE_PARAMS, tuningInfo) == 136);
    assert!(offset_of!(NV_ENC_INITIALIZE_PARAMS, reserved) == 152);
    assert!(size_of::<NV_ENC_PRESET_CONFIG>() == 5128);
    assert!(offset_of!(NV_ENC_PRESET_CONFIG, presetCfg) == 8);
    assert!(size_of::<NV_ENC_PIC_PARAMS>() == 3360);
    assert!(offset_of!(NV_ENC_PIC_PARAMS, inputTimeStamp) == 24);
    assert!(offset_of!(NV_ENC_PIC_PARAMS, inputBuffer) == 40);
    assert!(offset_of!(NV_ENC_PIC_PARAMS, outputBitstream) == 48);
    assert!(offset_of!(NV_ENC_PIC_PARAMS, bufferFmt) == 64);
    assert!(offset_of!(NV_ENC_PIC_PARAMS, pictureStruct) == 68);
    assert!(offset_of!(NV_ENC_PIC_PARAMS, codecPicParams) == 80);
    assert!(size_of::<NV_ENC_LOCK_BITSTREAM>() == 1552);
    assert!(offset_of!(NV_ENC_LOCK_BITSTREAM, outputBitstream) == 8);
    assert!(offset_of!(NV_ENC_LOCK_BITSTREAM, bitstreamSizeInBytes) == 36);
    assert!(offset_of!(NV_ENC_LOCK_BITSTREAM, outputTimeStamp) == 40);
    assert!(offset_of!(NV_ENC_LOCK_BITSTREAM, bitstreamBufferPtr) == 56);
    assert!(offset_of!(NV_ENC_LOCK_BITSTREAM, pictureType) == 64);
    assert!(size_of::<NV_ENC_LOCK_INPUT_BUFFER>() == 1544);
    assert!(offset_of!(NV_ENC_LOCK_INPUT_BUFFER, inputBuffer) == 8);
    assert!(offset_of!(NV_ENC_LOCK_INPUT_BUFFER, bufferDataPtr) == 16);
    assert!(offset_of!(NV_ENC_LOCK_INPUT_BUFFER, pitch) == 24);
    assert!(size_of::<NV_ENC_MAP_INPUT_RESOURCE>() == 1544);
    assert!(offset_of!(NV_ENC_MAP_INPUT_RESOURCE, registeredResource) == 16);
    assert!(offset_of!(NV_ENC_MAP_INPUT_RESOURCE, mappedResource) == 24);
    assert!(offset_of!(NV_ENC_MAP_INPUT_RESOURCE, mappedBufferFmt) == 32);
    assert!(size_of::<NV_ENC_REGISTER_RESOURCE>() == 1536);
    assert!(offset_of!(NV_ENC_REGISTER_RESOURCE, pitch) == 16);
    assert!(offset_of!(NV_ENC_REGISTER_RESOURCE, resourceToRegister) == 24);
    assert!(offset_of!(NV_ENC_REGISTER_RESOURCE, registeredResource) == 32);
    assert!(offset_of!(NV_ENC_REGISTER_RESOURCE, bufferFormat) == 40);
    assert!(offset_of!(NV_ENC_REGISTER_RESOURCE, bufferUsage) == 44);
    assert!(size_of::<NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS>() == 1552);
    assert!(offset_of!(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS, deviceType) == 4);
    assert!(offset_of!(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS, device) == 8);
    assert!(offset_of!(NV_ENC_OPEN_ENCODE_SESSION_EX_PARAMS, apiVersion) == 24);
    assert!(size_of::<NV_ENCODE_API_FUNCTION_LIST>() == 2552);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncOpenEncodeSession) == 8);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncGetEncodeCaps) == 64);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncInitializeEncoder) == 96);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncCreateInputBuffer) == 104);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncEncodePicture) == 136);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncLockBitstream) == 144);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncMapInputResource) == 208);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncDestroyEncoder) == 224);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncOpenEncodeSessionEx) == 240);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncRegisterResource) == 248);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncGetLastErrorString) == 304);
    assert!(offset_of!(NV_ENCODE_API_FUNCTION_LIST, nvEncGetEncodePresetConfigEx) == 320);
    assert!(size_of::<NV_ENC_CODEC_CONFIG>() == 1792);
};
