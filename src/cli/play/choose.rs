//! Which flow is received, and what to say when none can be.

use super::Args;
use crate::cli::load;
use gdmedia::error::{Error, Kind, Result};
use gdmedia::sdp::{Description, Essence, Flow, Mode, Severity, SourceFilter, Video};
use gdmedia::stats::Reason;
use gdmedia::worker::Report;
use std::path::Path;

/// Loads and parses the SDP. `called` is how the verb is called.
pub fn description(name: Option<&str>, pcap: Option<&Path>, called: &str) -> Result<Description> {
    let Some(name) = name else {
        let mut error = Error::new(Kind::Usage, "no SDP given").cure(format!("{called} --sdp stream.sdp"));
        if let Some(path) = pcap {
            error = Error::new(
                Kind::Usage,
                format!("a capture does not say its format: give the stream's SDP too{}", found(path)),
            )
            .cure(format!("{called} --pcap {} --sdp stream.sdp", path.display()));
        }
        return Err(error);
    };
    let text = load::sdp_text(name)?;
    let description = gdmedia::sdp::parse(&text, Mode::Lenient);
    if description.flows.is_empty() {
        let why = description.diagnostics.iter().find(|d| d.severity == Severity::Error);
        return Err(Error::new(
            Kind::Data,
            format!("{name}: no flow in this SDP{}", why.map(|d| format!(": {}", d.message)).unwrap_or_default()),
        )
        .cure(why.map_or_else(|| format!("look at it with: gdmedia sdp {name}"), |d| d.cure.clone())));
    }
    Ok(description)
}

/// The flow that `--flow` names, or the only video flow.
pub fn flow(description: &Description, number: Option<usize>) -> Result<&Flow> {
    let list = || {
        let line = |(n, flow): (usize, &Flow)| {
            let why = description.refusal(flow).map(|why| format!(": {why}")).unwrap_or_default();
            format!("\n  {n}: {}{why}", summary(flow))
        };
        description.flows.iter().enumerate().map(line).collect::<String>()
    };
    if let Some(number) = number {
        return description.flows.get(number).ok_or_else(|| {
            Error::new(Kind::Usage, format!("no flow {number} in this SDP; it has:{}", list()))
                .cure("choose one of these with --flow")
        });
    }
    let is_video = |flow: &&Flow| matches!(flow.essence, Essence::Video(_));
    let mut video = description.flows.iter().filter(|f| f.usable).filter(is_video);
    match (video.next(), video.next()) {
        (Some(flow), None) => Ok(flow),
        (Some(_), Some(_)) => Err(Error::new(Kind::Usage, format!("this SDP has several video flows:{}", list()))
            .cure("choose one with --flow N")),
        (None, _) => {
            if let Some(flow) = description.flows.iter().find(is_video) {
                return Ok(flow);
            }
            // A description that is wrong says more than one that holds something else.
            if let Some(wrong) = description.diagnostics.iter().find(|d| d.severity == Severity::Error) {
                let what = format!("no flow of this SDP can be received: line {}: {}", wrong.line, wrong.message);
                return Err(Error::new(Kind::Data, format!("{what}; it has:{}", list())).cure(wrong.cure.clone()));
            }
            Err(Error::new(Kind::Data, format!("no ST 2110-20 video in this SDP; it has:{}", list()))
                .cure("gdmedia receives uncompressed video; other essences are recognised only"))
        }
    }
}

/// What would be received of an SDP, in one line.
#[cfg(feature = "daemon")]
pub fn seen(description: &Description, number: Option<usize>) -> Result<String> {
    let flow = flow(description, number)?;
    gdmedia::pipeline::wire(video(flow, description)?)?;
    Ok(summary(flow))
}

/// The video of a flow that can be received.
pub fn video<'a>(flow: &'a Flow, description: &Description) -> Result<&'a Video> {
    match &flow.essence {
        Essence::Video(video) if flow.usable => Ok(video),
        Essence::Video(_) => {
            let why = description.refusal(flow).map(|why| format!(": {why}")).unwrap_or_default();
            let error = Error::new(Kind::Data, format!("this flow cannot be received{why} ({})", summary(flow)));
            Err(match description.diagnostics.iter().find(|d| d.severity == Severity::Error) {
                Some(wrong) => error.cure(format!("line {}: {}", wrong.line, wrong.cure)),
                None => error.cure("gdmedia sdp shows the lines that are wrong, with the cure of each"),
            })
        }
        _ => Err(Error::new(Kind::Data, format!("this flow is no ST 2110-20 video: {}", summary(flow)))
            .cure("choose a video flow with --flow N")),
    }
}

/// One line about a flow.
pub fn summary(flow: &Flow) -> String {
    let leg = flow.legs.first().map(|l| format!(" to {}:{}", l.destination, l.port)).unwrap_or_default();
    let legs = if flow.legs.len() > 1 { format!(" and {} more leg(s)", flow.legs.len() - 1) } else { String::new() };
    format!("{}{leg}{legs}", essence(&flow.essence))
}

/// What a flow carries, as people say it.
fn essence(essence: &Essence) -> String {
    match essence {
        Essence::Video(video) => super::report::picture(video),
        Essence::CompressedVideo(v) => format!("{} compressed video (ST 2110-22)", v.encoding),
        Essence::Audio(a) => format!("{} audio, {} channels (ST 2110-30)", a.encoding, a.channels),
        Essence::Aes3(a) => format!("AES3 audio, {} subframes (ST 2110-31)", a.channels),
        Essence::Ancillary(_) => "ancillary data (ST 2110-40)".into(),
        Essence::FastMetadata(_) => "fast metadata (ST 2110-41)".into(),
        Essence::TimedText(_) => "timed text (ST 2110-43)".into(),
        Essence::Sdi2022_6 => "SDI over IP (ST 2022-6)".into(),
        Essence::Foreign { what } => format!("{what} (not ST 2110)"),
    }
}

/// Why nothing came: what did come says it.
pub fn no_media(args: &Args, flow: &Flow, report: &Report) -> Error {
    let rejected = |reason: Reason| report.packets.rejected.get(reason) + report.rx.rejected.get(reason);
    let wanted = summary(flow);
    let (kind, waited) = match &args.pcap {
        Some(path) => (Kind::Data, format!("{}: no media ({wanted})", path.display())),
        None => {
            let waited = args.duration.map_or(args.wait, |d| if args.wait.is_zero() { d } else { d.min(args.wait) });
            // A daemon waits for ever.
            let within = if waited.is_zero() { String::new() } else { format!(" within {waited:?}") };
            (Kind::NoMedia, format!("no media{within} ({wanted})"))
        }
    };
    for (reason, cause, cure) in [
        (
            Reason::PayloadType,
            "packets come, but with another payload type than the SDP's",
            "compare a=rtpmap with what the sender uses; is the SDP up to date?",
        ),
        (
            Reason::Source,
            "packets come, but not from the source that the SDP's source-filter allows",
            "correct a=source-filter, or the sender's address",
        ),
        (Reason::Version, "packets come that are not RTP version 2", "is something else sent to this port?"),
        (
            Reason::SrdHeader,
            "packets come whose payload is not ST 2110-20",
            "is the essence of this flow really uncompressed video? see: gdmedia sdp",
        ),
        (
            Reason::Row,
            "packets come whose rows lie beyond the SDP's height",
            "compare height and interlace in the SDP with the sender",
        ),
        (
            Reason::Offset,
            "packets come whose offsets do not fit the SDP's width or sampling",
            "compare width, sampling and depth in the SDP with the sender",
        ),
        (
            Reason::Segment,
            "packets come whose segments pass the end of the row",
            "compare width, sampling and depth in the SDP with the sender",
        ),
        (
            Reason::Length,
            "packets come that are shorter than their headers say",
            "is the SDP's sampling and depth what the sender uses?",
        ),
    ] {
        let count = rejected(reason);
        if count > 0 {
            return Error::new(kind, format!("{waited}: {cause} ({count} packets)")).cure(cure);
        }
    }
    if report.rx.datagrams > 0 {
        return Error::new(
            Kind::NoMedia,
            format!("{waited}: {} packets came, but no whole frame", report.rx.datagrams),
        )
        .cure("compare width, height and rate in the SDP with the sender");
    }
    if report.rx.kernel_dropped > 0 {
        return Error::new(
            kind,
            format!("{waited}: {} packets came, and the system handed over none of them", report.rx.kernel_dropped),
        )
        .cure("see what the receiver remarks; sockets take what AF_XDP cannot (--backend socket)");
    }
    let multicast = flow.legs.iter().any(|l| l.destination.is_multicast());
    let sources: Vec<String> = flow
        .legs
        .iter()
        .filter_map(|leg| match &leg.sources {
            SourceFilter::Include(list) => Some(list.iter().map(ToString::to_string)),
            _ => None,
        })
        .flatten()
        .collect();
    let error = Error::new(kind, format!("{waited}: not one packet came"));
    if multicast && !sources.is_empty() {
        return error.cure(format!(
            "is the sender on, and is its address {}, the only source that was joined? does --interface name the media \
             network? does the switch forward the group (IGMPv3), and does rp_filter or a firewall drop it?",
            sources.join(" or ")
        ));
    }
    error.cure(if multicast {
        "is the sender on? does --interface name the media network? does the switch forward the group (IGMP), and does rp_filter or a firewall drop it?"
    } else {
        "is the sender on, and does it send to this address and port? does a firewall drop it?"
    })
}

/// The flows that a capture does hold, for an error.
fn found(path: &Path) -> String {
    match gdmedia::rx::survey::survey(path, None) {
        Ok(survey) if survey.flows.is_empty() => "; it holds no UDP flow at all".into(),
        Ok(survey) => survey.flows.iter().fold(String::from("; it holds:"), |text, flow| format!("{text}\n  {flow}")),
        // Then the capture itself cannot be read, and that is what is reported elsewhere.
        Err(_) => String::new(),
    }
}
