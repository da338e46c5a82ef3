//! Pictures of ST 2110-20 in memory: the wire format, the layouts that programs want, and the conversions between them.
//!
//! | module | knows |
//! | --- | --- |
//! | [`format`](mod@format) | the wire format, output layouts, their names in GStreamer, FFmpeg and y4m |
//! | [`kernel`] | one function a conversion: scalar (the law), SSSE3, AVX2; chosen once when a flow opens |
//! | [`scale`](mod@scale) | previews: a finished frame, smaller by a whole number, as RGBA |
//! | [`scope`](mod@scope) | waveform and vectorscope: how often which code occurs in a finished frame |
//!
//! A crate of its own because it compiles slowly and changes seldom, and so that it is optimised in debug builds too.
#![deny(unsafe_code)]

pub mod format;
pub mod kernel;
pub mod scale;
pub mod scope;
