//! What is not ST 2110, by its name.

/// Static payload types of RFC 3551: encoding and clock.
pub(crate) fn static_type(payload_type: u8) -> Option<(&'static str, u32)> {
    Some(match payload_type {
        0 => ("PCMU", 8000),
        3 => ("GSM", 8000),
        4 => ("G723", 8000),
        5 | 6 => ("DVI4", 8000),
        7 => ("LPC", 8000),
        8 => ("PCMA", 8000),
        9 => ("G722", 8000),
        10 | 11 => ("L16", 44100),
        12 => ("QCELP", 8000),
        13 => ("CN", 8000),
        14 => ("MPA", 90000),
        15 => ("G728", 8000),
        18 => ("G729", 8000),
        25 => ("CelB", 90000),
        26 => ("JPEG", 90000),
        28 => ("nv", 90000),
        31 => ("H261", 90000),
        32 => ("MPV", 90000),
        33 => ("MP2T", 90000),
        34 => ("H263", 90000),
        _ => return None,
    })
}

/// A name that an engineer knows, for an RTP encoding that is not ST 2110.
pub(crate) fn name(encoding: &str) -> Option<&'static str> {
    const NAMES: &[(&str, &str)] = &[
        ("H261", "H.261 video"),
        ("H263", "H.263 video"),
        ("h263-1998", "H.263+ video"),
        ("h263-2000", "H.263++ video"),
        ("H264", "H.264 video"),
        ("H264-SVC", "H.264 SVC video"),
        ("H265", "H.265 (HEVC) video"),
        ("H266", "H.266 (VVC) video"),
        ("HEVC", "H.265 (HEVC) video"),
        ("VP8", "VP8 video"),
        ("VP9", "VP9 video"),
        ("AV1", "AV1 video"),
        ("JPEG", "JPEG video (RFC 2435)"),
        ("jpeg2000", "JPEG 2000 video (RFC 5371)"),
        ("jpeg2000-scl", "JPEG 2000 video"),
        ("MP4V-ES", "MPEG-4 video"),
        ("MPV", "MPEG-1/-2 video"),
        ("MP1S", "MPEG-1 system stream"),
        ("MP2P", "MPEG-2 program stream"),
        ("MP2T", "MPEG transport stream"),
        ("theora", "Theora video"),
        ("DV", "DV video"),
        ("SMPTE292M", "SDI in RTP (RFC 3497)"),
        ("vc1", "VC-1 video"),
        ("PCMU", "G.711 mu-law audio"),
        ("PCMA", "G.711 A-law audio"),
        ("opus", "Opus audio"),
        ("G722", "G.722 audio"),
        ("G723", "G.723 audio"),
        ("G726-32", "G.726 audio"),
        ("G728", "G.728 audio"),
        ("G729", "G.729 audio"),
        ("GSM", "GSM audio"),
        ("iLBC", "iLBC audio"),
        ("speex", "Speex audio"),
        ("AMR", "AMR audio"),
        ("AMR-WB", "AMR-WB audio"),
        ("MPA", "MPEG audio"),
        ("mpa-robust", "MPEG audio"),
        ("MPEG4-GENERIC", "MPEG-4 (AAC) audio"),
        ("MP4A-LATM", "AAC audio"),
        ("ac3", "AC-3 audio"),
        ("eac3", "E-AC-3 audio"),
        ("vorbis", "Vorbis audio"),
        ("L8", "8-bit PCM audio (RFC 3551)"),
        ("L20", "20-bit PCM audio (RFC 3190)"),
        ("DAT12", "12-bit DAT audio (RFC 3190)"),
        ("DVI4", "DVI4 audio"),
        ("CN", "comfort noise"),
        ("telephone-event", "telephone events (DTMF)"),
        ("red", "redundant coding (RFC 2198)"),
        ("rtx", "retransmissions (RFC 4588)"),
        ("ulpfec", "forward error correction"),
        ("flexfec-03", "forward error correction"),
        ("parityfec", "forward error correction"),
        ("1d-interleaved-parityfec", "forward error correction (ST 2022-5)"),
        ("t140", "T.140 text"),
        ("BFCP", "BFCP floor control"),
        ("vnd.onvif.metadata", "ONVIF camera metadata"),
        ("smpte336m", "KLV metadata (RFC 6597)"),
        ("rtp-midi", "MIDI (RFC 6295)"),
    ];
    NAMES.iter().find(|n| n.0.eq_ignore_ascii_case(encoding)).map(|n| n.1)
}

/// A name for a medium that is not RTP over UDP; `None` when it is.
pub(crate) fn transport(proto: &str, format: &str) -> Option<String> {
    let upper = proto.to_ascii_uppercase();
    let what = match upper.as_str() {
        "RTP/AVP" | "RTP/AVPF" => return None,
        "RTP/SAVP" | "RTP/SAVPF" => "encrypted RTP (SRTP)".to_owned(),
        p if p.contains("SAVP") || p.contains("DTLS") => "a WebRTC stream (encrypted RTP)".to_owned(),
        "UDP" if format.eq_ignore_ascii_case("mp2t") => "an MPEG transport stream over plain UDP".to_owned(),
        p if p.starts_with("RTP/AVP/TCP") || p.starts_with("TCP/RTP") => "RTP inside an RTSP/TCP connection".to_owned(),
        "TCP" => format!("a TCP connection ({})", crate::diagnostic::clip(format)),
        "UDP" => format!("plain UDP ({})", crate::diagnostic::clip(format)),
        _ => format!("the transport {}", crate::diagnostic::clip(proto)),
    };
    Some(what)
}
