//! From options and SDP to what is sent where.

use super::{Args, Error, Kind, Result};
use crate::cli::{load, same};
use gdmedia::fault::FaultPlan;
use gdmedia::format::WireFormat;
use gdmedia::kernel::Colour;
use gdmedia::record::Recording;
use gdmedia::record::source::RecordedSource;
use gdmedia::rx::socket::{by_route, find_interface};
use gdmedia::sdp::{
    Colorimetry, Depth, Essence, Flow, Leg, MediaClock, Mode, ReferenceClock, Sampling, SenderType, Severity,
    SourceFilter, Subsampling, Video,
};
use gdmedia::send::file;
use gdmedia::send::input::{Ahead, Input};
use gdmedia::send::name::{self, Named};
use gdmedia::send::pattern::Pattern;
use gdmedia::send::schedule::{Pacing, has_gapped};
use gdmedia::send::socket::Target;
use gdmedia::send::source::{PatternSource, Source};
use gdmedia::send::stream::{Choice, DEFAULT_RATE, Stream};
use gdmedia::send::y4m::Header;
use gdmedia::wire::net::Route;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is to be sent, and where to.
pub struct Plan {
    /// The flow; its essence is `video`.
    pub flow: Flow,
    pub video: Video,
    pub choice: Choice,
    /// A capture file instead of the network.
    pub file: Option<PathBuf>,
    /// SDP, file or --format came without a rate.
    pub rate_assumed: bool,
}

/// Where the legs of a flow go.
pub fn targets(args: &Args, flow: &Flow) -> Vec<Target> {
    let target = |(number, leg): (usize, &Leg)| Target {
        destination: SocketAddr::new(leg.destination, leg.port),
        // The SDP may say who sends: if that is us, receivers will look for it.
        interface: interface(args, number).map(str::to_owned).or_else(|| own_source(leg).map(|a| a.to_string())),
        ttl: leg.ttl.unwrap_or(args.ttl),
        loopback: true,
    };
    flow.legs.iter().enumerate().map(target).collect()
}

/// The interface of a leg; the last one counts for all further legs.
fn interface(args: &Args, leg: usize) -> Option<&str> {
    args.interface.get(leg).or(args.interface.last()).map(String::as_str)
}

/// The first source that the SDP admits, when this machine has it.
fn own_source(leg: &Leg) -> Option<IpAddr> {
    let SourceFilter::Include(sources) = &leg.sources else { return None };
    sources.iter().copied().find(|a| find_interface(&a.to_string()).is_ok())
}

/// The way of each leg's packets in a capture file.
pub fn routes(args: &Args, flow: &Flow) -> Result<Vec<Route>> {
    let legs = flow.legs.iter().enumerate();
    legs.map(|(number, leg)| {
        let own = interface(args, number).and_then(|text| text.parse().ok());
        let admitted = match &leg.sources {
            SourceFilter::Include(sources) => sources.first().copied(),
            _ => None,
        };
        file::route(SocketAddr::new(leg.destination, leg.port), own.or(admitted), leg.ttl.unwrap_or(args.ttl))
    })
    .collect()
}

/// What an SDP says of the flow to send.
pub struct Described {
    pub flow: Flow,
    /// Its rate where that makes no sense.
    pub unread_rate: Option<String>,
}

/// The flow that an SDP describes: the one that `number` names, else the only one of video.
pub fn sdp_flow(from: &str, number: Option<usize>) -> Result<Described> {
    let description = gdmedia::sdp::parse(&load::sdp_text(from)?, Mode::Lenient);
    let described =
        |flow: &Flow| Described { flow: flow.clone(), unread_rate: description.unread_rate(flow).map(str::to_owned) };
    let list = || -> String {
        let flows = description.flows.iter().enumerate();
        flows.map(|(n, flow)| format!("\n  {n}: {}, {}", flow.essence.kind(), flow.name)).collect()
    };
    if description.flows.is_empty() {
        let worst = description.diagnostics.iter().find(|d| d.severity == Severity::Error);
        let (why, cure) = worst.map_or(("", ""), |d| (d.message.as_str(), d.cure.as_str()));
        return Err(Error::new(Kind::Data, format!("no flow in {from}: {why}")).cure(cure));
    }
    if let Some(number) = number {
        return description.flows.get(number).map(described).ok_or_else(|| {
            Error::new(Kind::Usage, format!("{from} has no flow {number}; it has:{}", list()))
                .cure("choose one of these with --flow N")
        });
    }
    let mut video = description.usable_flows().filter(|f| matches!(f.essence, Essence::Video(_)));
    match (video.next(), video.next()) {
        (Some(flow), None) => Ok(described(flow)),
        (Some(_), Some(_)) => Err(Error::new(Kind::Usage, format!("{from} has several video flows:{}", list()))
            .cure("choose one of these with --flow N")),
        (None, _) => {
            let why = description.refusals.first().map(|(_, why)| format!(": {why}")).unwrap_or_default();
            Err(Error::new(
                Kind::Data,
                format!("{from} has no ST 2110-20 video that can be sent{why}; it has:{}", list()),
            )
            .cure("gdmedia sdp shows what is wrong; other essences can be replayed from a capture (--replay)"))
        }
    }
}

/// Writes the SDP of what is sent; `sources` are the addresses that the legs are sent from.
pub fn write_sdp(path: &Path, flow: &Flow, sources: &[Option<IpAddr>]) -> Result<()> {
    let mut flow = flow.clone();
    for (leg, source) in flow.legs.iter_mut().zip(sources) {
        if let (true, SourceFilter::Any, Some(source)) = (leg.destination.is_multicast(), &leg.sources, source) {
            leg.sources = SourceFilter::Include(vec![*source]);
        }
    }
    if let Some(mac) = flow.legs.first().and_then(|leg| own_mac(leg.destination)) {
        for clock in &mut flow.reference_clocks {
            if let ReferenceClock::LocalMac { mac: own } = clock {
                own.clone_from(&mac);
            }
        }
    }
    let text = gdmedia::sdp::write(std::slice::from_ref(&flow));
    let written = if path.as_os_str() == "-" {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    } else {
        std::fs::write(path, text)
    };
    written.map_err(|e| {
        let (kind, cure) = match e.kind() {
            std::io::ErrorKind::PermissionDenied => (Kind::Permission, "choose a folder that you may write to"),
            std::io::ErrorKind::NotFound => (Kind::Output, "create the folder first"),
            std::io::ErrorKind::StorageFull => (Kind::Output, "free space or write elsewhere"),
            std::io::ErrorKind::BrokenPipe => (Kind::Output, "keep the program at the pipe's end alive"),
            _ => (Kind::Output, "choose another file"),
        };
        Error::new(kind, format!("cannot write the SDP to {}", path.display())).because(e).cure(cure)
    })
}

/// The MAC address of the interface that leads to a receiver, as `a=ts-refclk:localmac` wants it.
fn own_mac(to: IpAddr) -> Option<String> {
    let interface = by_route(to)?;
    let text = std::fs::read_to_string(format!("/sys/class/net/{}/address", interface.name)).ok()?;
    let mac = text.trim().to_ascii_uppercase().replace(':', "-");
    (mac.len() == 17 && mac != "00-00-00-00-00-00").then_some(mac)
}

/// Where packets go when nobody says.
const DEFAULT_TO: &str = "127.0.0.1:5004";

/// Puts options over what the SDP says over defaults.
pub fn plan(args: &Args, header: Option<&Header>, recorded: Option<&Flow>) -> Result<Plan> {
    let Described { mut flow, unread_rate } = match (&args.sdp, recorded) {
        (Some(from), _) => sdp_flow(from, args.flow)?,
        (None, Some(flow)) => Described { flow: flow.clone(), unread_rate: None },
        (None, None) => Described { flow: own_flow(), unread_rate: None },
    };
    let Essence::Video(mut video) = flow.essence.clone() else {
        return Err(Error::new(Kind::Data, format!("flow {} of the SDP is not ST 2110-20 video", flow.index))
            .cure("choose another flow with --flow, or replay a capture of this one with --replay"));
    };
    if let Some(header) = header.filter(|_| args.sdp.is_none()) {
        from_file(header, &mut video)?;
    }
    let wanted_rate = args.rate.or(args.format.and_then(|f| f.rate));
    if let (Some(text), None) = (unread_rate, wanted_rate) {
        return Err(Error::new(Kind::Data, format!("the SDP says exactframerate={text}, which is no frame rate"))
            .cure("correct it in the SDP, for example exactframerate=60000/1001, or give --rate"));
    }
    let told = args.sdp.is_some() || recorded.is_some() || header.is_some() || args.format.is_some();
    let rate_assumed = told && wanted_rate.or(video.rate).is_none();
    override_video(args, &mut video);
    let file = legs(args, &mut flow)?;
    let pacing = args.pacing.unwrap_or(match video.sender_type {
        Some(SenderType::Nl | SenderType::W) => Pacing::Linear,
        // What is not described is as good as it can be.
        None if !has_gapped(video.width, video.height, video.scan) => Pacing::Linear,
        Some(SenderType::N) | None => Pacing::Gapped,
    });
    let live = file.is_none();
    // Groups make no narrow sender: CMAX of type N is 4 or so. To a file, every packet has its exact time.
    if (args.sdp.is_none() && recorded.is_none()) || args.pacing.is_some() {
        video.sender_type = Some(match pacing {
            Pacing::Gapped if !live || args.fine.group <= 4 => SenderType::N,
            Pacing::Linear if !live || args.fine.group <= 4 => SenderType::Nl,
            _ => SenderType::W,
        });
    }
    if let Some(payload_type) = args.fine.payload_type {
        flow.payload_type = payload_type;
    }
    let choice = Choice {
        pacing,
        payload_type: flow.payload_type,
        ssrc: args.fine.ssrc,
        sequence: args.fine.sequence,
        extended_zero: args.fine.extended_zero,
        srds: args.fine.srds,
    };
    if let Some(Essence::Video(was)) = recorded.map(|flow| &flow.essence)
        && WireFormat::from_video(was) != WireFormat::from_video(&video)
    {
        let what = "the recording has another picture than --format, --sampling and --depth say";
        return Err(Error::new(Kind::Usage, what).cure("leave these out, or export the recording and convert it"));
    }
    flow.essence = Essence::Video(video.clone());
    Ok(Plan { flow, video, choice, file, rate_assumed })
}

/// What `--to` names.
enum To {
    File(PathBuf),
    Address(String),
}

fn to(text: &str) -> Result<To> {
    const FORMS: &str = "write --to udp://ADDRESS:PORT for the network, or --to FILE.pcap for a capture file";
    if let Some((scheme, address)) = text.split_once("://") {
        if scheme.eq_ignore_ascii_case("udp") {
            return Ok(To::Address(address.to_owned()));
        }
        return Err(Error::new(Kind::Usage, format!("cannot send to {text}: only udp:// is supported")).cure(FORMS));
    }
    if text == "-" {
        return Err(Error::new(Kind::Usage, "packets are not written to standard output").cure(FORMS));
    }
    if text.contains('/') || text.to_ascii_lowercase().ends_with(".pcap") {
        return Ok(To::File(PathBuf::from(text)));
    }
    if text.parse::<SocketAddr>().is_ok() {
        return Ok(To::Address(text.to_owned()));
    }
    Err(Error::new(Kind::Usage, format!("{text} is neither an address with a port nor the name of a capture file"))
        .cure(FORMS))
}

/// Refuses options that would destroy what is to be sent; before anything is opened for writing.
pub fn refuse_same(args: &Args) -> Result<()> {
    let file = match args.to.as_deref().map(to).transpose()? {
        Some(To::File(path)) => Some(path),
        _ => None,
    };
    let plan = args.fault.as_deref().and_then(FaultPlan::file_of);
    let inputs =
        [args.input.as_deref(), args.from.as_deref(), args.replay.as_deref(), args.sdp.as_deref().map(Path::new), plan];
    let inputs: Vec<&Path> = inputs.into_iter().flatten().collect();
    let outputs: Vec<&Path> = [file.as_deref(), args.write_sdp.as_deref()].into_iter().flatten().collect();
    same::refuse(&inputs, &outputs)
}

/// Puts the legs that the options name over those of the flow; gives the capture file where one is named instead.
pub fn legs(args: &Args, flow: &mut Flow) -> Result<Option<PathBuf>> {
    let mut file = None;
    let mut legs: Vec<String> = args.legs.clone();
    match args.to.as_deref().map(to).transpose()? {
        Some(To::File(path)) => file = Some(path),
        Some(To::Address(address)) => legs.push(address),
        None => {}
    }
    if legs.is_empty() && flow.legs.is_empty() {
        legs.push(DEFAULT_TO.into());
    }
    if !legs.is_empty() {
        let many = legs.len() > 1;
        flow.legs = legs.iter().enumerate().map(|(i, text)| leg(text, i, many, args.ttl)).collect::<Result<_>>()?;
    }
    if flow.legs.len() > 2 {
        return Err(Error::new(Kind::Usage, format!("{} legs: ST 2022-7 has two", flow.legs.len()))
            .cure("give --leg twice at most"));
    }
    Ok(file)
}

/// The frames to send.
pub fn source(
    args: &Args,
    plan: &Plan,
    stream: &Stream,
    input: Option<Input>,
    recording: Option<Recording>,
    stop: &Arc<AtomicBool>,
) -> Result<Box<dyn Source>> {
    if let Some(input) = input {
        let frames = input.frames(stream.format, args.layout, args.repeat)?;
        return Ok(Box::new(Ahead::new(Box::new(frames), stop.clone())));
    }
    if let Some(recording) = recording {
        let frames = RecordedSource::new(recording, args.repeat)?;
        return Ok(Box::new(Ahead::new(Box::new(frames), stop.clone())));
    }
    let video = &plan.video;
    let colour = Colour { colorimetry: video.colorimetry, tcs: video.tcs, range: video.range };
    let label =
        format!("{} {} {}", name::name(video.width, video.height, video.scan, video.rate), video.sampling, video.depth);
    let pattern = Pattern::new(stream.format, colour, args.bars, &label);
    Ok(Box::new(PatternSource::new(pattern, args.fine.first)))
}

/// What a y4m file says about its frames.
fn from_file(header: &Header, video: &mut Video) -> Result<()> {
    (video.width, video.height, video.scan) = (header.width, header.height, header.scan);
    video.depth = header.depth;
    video.sampling = match header.subsampling {
        Subsampling::Full444 => Sampling::YCbCr444,
        Subsampling::Half422 => Sampling::YCbCr422,
        Subsampling::Quarter420 => Sampling::YCbCr420,
        Subsampling::One => Sampling::Key,
    };
    if header.height <= 576 {
        video.colorimetry = Colorimetry::Bt601;
    }
    video.rate = header.rate.or(video.rate);
    video.range = header.range.unwrap_or(video.range);
    video.par = header.par.unwrap_or(video.par);
    if WireFormat::from_video(video).is_none() {
        return Err(Error::new(
            Kind::Data,
            format!("ST 2110-20 has no {} of {} bits {}", video.sampling, video.depth, video.scan),
        )
        .cure("convert the file, for example: ffmpeg -i IN -pix_fmt yuv422p10le -strict -1 OUT.y4m"));
    }
    Ok(())
}

fn override_video(args: &Args, video: &mut Video) {
    if let Some(Named { width, height, scan, rate }) = args.format {
        (video.width, video.height, video.scan) = (width, height, scan);
        video.rate = rate.or(video.rate);
    }
    video.rate = args.rate.or(video.rate).or(Some(DEFAULT_RATE));
    video.sampling = args.sampling.unwrap_or(video.sampling);
    video.depth = args.depth.unwrap_or(video.depth);
    if video.sampling == Sampling::Key {
        video.colorimetry = Colorimetry::Alpha;
    }
    if video.sampling == Sampling::Xyz {
        video.colorimetry = Colorimetry::Xyz;
    }
    video.colorimetry = args.colorimetry.unwrap_or(video.colorimetry);
    video.tcs = args.tcs.unwrap_or(video.tcs);
    video.range = args.range.unwrap_or(video.range);
    video.packing = args.packing.unwrap_or(video.packing);
    video.max_udp = args.fine.max_udp.unwrap_or(video.max_udp);
}

fn leg(text: &str, index: usize, many: bool, ttl: u8) -> Result<Leg> {
    let address: SocketAddr = text.parse().map_err(|_| {
        Error::new(Kind::Usage, format!("{text} is no address with a port"))
            .cure("write ADDRESS:PORT, such as 239.1.1.1:5004 or [ff15::1]:5004")
    })?;
    Ok(Leg {
        destination: address.ip(),
        port: address.port(),
        sources: SourceFilter::Any,
        ttl: matches!(address.ip(), IpAddr::V4(a) if a.is_multicast()).then_some(ttl),
        mid: many.then(|| if index == 0 { "primary".into() } else { "secondary".into() }),
    })
}

/// 1080p50 4:2:2 10 bit, what every receiver takes.
pub fn own_flow() -> Flow {
    let video =
        Video { ssn: Some("ST2110-20:2017".into()), ..Video::new(Sampling::YCbCr422, Depth::D10, 1920, 1080, None) };
    Flow {
        index: 0,
        name: "gdmedia test pattern".into(),
        essence: Essence::Video(video),
        payload_type: 96,
        clock_rate: 90_000,
        legs: Vec::new(),
        reference_clocks: vec![ReferenceClock::LocalMac { mac: "02-00-00-00-00-01".into() }],
        media_clock: MediaClock::Direct { offset: 0 },
        bandwidth_kbps: None,
        usable: true,
    }
}
