//! From an SDP to transport parameters (IS-05, "Behaviour: RTP Transport Type", "Interpretation of SDP Files" and
//! "Operation with SMPTE 2022-7").

use crate::params::{Auto, LegParams};
use crate::receivers::Format;
use gdmedia_sdp::{Essence, Flow, Leg, Mode, Severity, SourceFilter};

/// What a receiver makes of an SDP.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// One a leg of the receiver, in the SDP's order; legs that the SDP does not have are off.
    pub legs: Vec<LegParams>,
    /// The flow that was taken: the first of the receiver's format that can be received, else the first of it.
    pub flow: Flow,
    /// Why that flow cannot be received, where it cannot.
    pub refusal: Option<String>,
}

/// Reads `text` for a receiver of `format` with `legs` legs. The parameters are there also for a flow that cannot be
/// received: [`Reading::refusal`].
///
/// # Errors
/// It is no SDP, or has nothing of this format; the text says what it has, with line numbers.
pub fn read(text: &str, format: Format, legs: usize) -> Result<Reading, String> {
    let description = gdmedia_sdp::parse(text.as_bytes(), Mode::Lenient);
    if description.flows.is_empty() {
        return Err(format!("the transport file is not usable: {}", findings(&description)));
    }
    let fits = |flow: &&Flow| Format::of(&flow.essence).is_none_or(|f| f == format);
    let best = description.usable_flows().find(fits).or_else(|| description.flows.iter().find(fits));
    let Some(flow) = best else {
        let has: Vec<_> = description.flows.iter().take(8).map(|flow| flow.essence.kind()).collect();
        return Err(format!("the transport file has no {}; it has: {}", format.word(), has.join(", ")));
    };
    let refusal = (!flow.usable).then(|| {
        let why = description.refusal(flow).unwrap_or("it is not complete");
        format!("the {} of the transport file cannot be received: {why} ({})", format.word(), findings(&description))
    });
    let off = LegParams { rtp_enabled: false, ..LegParams::default() };
    let legs = (0..legs).map(|at| flow.legs.get(at).map_or(off, params)).collect();
    Ok(Reading { legs, flow: flow.clone(), refusal })
}

/// The media type of a flow, as IS-04 lists them in `caps.media_types`.
pub fn media_type(essence: &Essence) -> Option<String> {
    Some(match essence {
        Essence::Video(_) => "video/raw".into(),
        Essence::CompressedVideo(video) => format!("video/{}", video.encoding),
        Essence::Audio(audio) | Essence::Aes3(audio) => format!("audio/{}", audio.encoding),
        Essence::Ancillary(_) => "video/smpte291".into(),
        Essence::FastMetadata(_) => "application/ST2110-41".into(),
        Essence::TimedText(_) => "application/ttml+xml".into(),
        Essence::Sdi2022_6 => "video/SMPTE2022-6".into(),
        Essence::Foreign { .. } => return None,
    })
}

fn params(leg: &Leg) -> LegParams {
    let multicast = leg.destination.is_multicast();
    // Who is excluded cannot be said in transport parameters; the SDP itself still says it.
    let source_ip = match &leg.sources {
        SourceFilter::Include(sources) => sources.first().copied(),
        SourceFilter::Any | SourceFilter::Exclude(_) => None,
    };
    LegParams {
        source_ip,
        multicast_ip: multicast.then_some(leg.destination),
        // An SDP without a destination means this machine, wherever.
        interface_ip: if multicast || leg.destination.is_unspecified() {
            Auto::Auto
        } else {
            Auto::Value(leg.destination)
        },
        destination_port: if leg.port == 0 { Auto::Auto } else { Auto::Value(leg.port) },
        rtp_enabled: true,
    }
}

/// The gravest findings, for one line.
fn findings(description: &gdmedia_sdp::Description) -> String {
    let errors = description.diagnostics.iter().filter(|d| d.severity == Severity::Error);
    let texts: Vec<_> = errors
        .take(3)
        .map(|d| {
            let place = if d.line > 0 { format!("line {}: ", d.line) } else { String::new() };
            let cure = if d.cure.is_empty() { String::new() } else { format!("; {}", d.cure) };
            format!("{place}{}{cure}", d.message)
        })
        .collect();
    if texts.is_empty() { "no more is known".into() } else { texts.join(" | ") }
}
