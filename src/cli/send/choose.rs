//! From options and SDP to what is sent where.

use super::{Args, Error, Kind, Result, Target};
use gdmedia::kernel::Colour;
use gdmedia::sdp::{
    Colorimetry, Depth, Essence, Flow, Leg, MediaClock, Packing, Range, Ratio, ReferenceClock, Sampling, Scan,
    SenderType, SourceFilter, Tcs, Video,
};
use gdmedia::send::file;
use gdmedia::send::name::{self, Named};
use gdmedia::send::pattern::Pattern;
use gdmedia::send::schedule::Pacing;
use gdmedia::send::source::{PatternSource, Source};
use gdmedia::send::stream::{Choice, DEFAULT_RATE, Stream};
use gdmedia::wire::net::Route;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// What is to be sent, and where to.
pub struct Plan {
    /// The flow; its essence is `video`.
    pub flow: Flow,
    pub video: Video,
    pub choice: Choice,
    /// A capture file instead of the network.
    pub file: Option<PathBuf>,
}

impl Plan {
    pub fn targets(&self, args: &Args) -> Vec<Target> {
        let target = |leg: &Leg| Target {
            destination: SocketAddr::new(leg.destination, leg.port),
            interface: args.interface.clone(),
            ttl: leg.ttl.unwrap_or(args.ttl),
            loopback: true,
        };
        self.flow.legs.iter().map(target).collect()
    }

    /// For a capture file.
    pub fn routes(&self, args: &Args) -> Result<Vec<Route>> {
        let own = args.interface.as_ref().and_then(|text| text.parse().ok());
        self.flow
            .legs
            .iter()
            .map(|leg| {
                let admitted = match &leg.sources {
                    SourceFilter::Include(sources) => sources.first().copied(),
                    _ => None,
                };
                let to = SocketAddr::new(leg.destination, leg.port);
                file::route(to, own.or(admitted), leg.ttl.unwrap_or(args.ttl))
            })
            .collect()
    }
}

/// Where packets go when nobody says.
const DEFAULT_TO: &str = "127.0.0.1:5004";

/// Puts options over what the SDP says over defaults.
pub fn plan(args: &Args) -> Result<Plan> {
    let mut flow = match &args.sdp {
        Some(from) => super::sdp_flow(from, args.flow)?,
        None => own_flow(),
    };
    let Essence::Video(mut video) = flow.essence.clone() else {
        return Err(Error::new(Kind::Data, format!("flow {} of the SDP is not ST 2110-20 video", flow.index))
            .cure("choose another flow with --flow, or replay a capture of this one with --replay"));
    };
    override_video(args, &mut video);
    let mut file = None;
    let mut legs: Vec<String> = args.legs.clone();
    if let Some(to) = &args.to {
        match to.strip_prefix("udp://") {
            Some(address) => legs.push(address.to_owned()),
            None if to.contains("://") => {
                return Err(Error::new(Kind::Usage, format!("cannot send to {to}: only udp:// is supported"))
                    .cure("write udp://ADDRESS:PORT, or the name of a capture file"));
            }
            None if !to.contains('.') || to.parse::<SocketAddr>().is_err() => file = Some(PathBuf::from(to)),
            None => legs.push(to.clone()),
        }
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
    let pacing = args.pacing.unwrap_or(match video.sender_type {
        Some(SenderType::Nl | SenderType::W) => Pacing::Linear,
        Some(SenderType::N) | None => Pacing::Gapped,
    });
    let live = file.is_none();
    // Groups make no narrow sender: CMAX of type N is 4 or so. To a file, every packet has its exact time.
    if args.sdp.is_none() || args.pacing.is_some() {
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
    flow.essence = Essence::Video(video.clone());
    Ok(Plan { flow, video, choice, file })
}

/// The frames to send.
pub fn source(args: &Args, plan: &Plan, stream: &Stream) -> Result<Box<dyn Source>> {
    let video = &plan.video;
    let colour = Colour { colorimetry: video.colorimetry, tcs: video.tcs, range: video.range };
    let label =
        format!("{} {} {}", name::name(video.width, video.height, video.scan, video.rate), video.sampling, video.depth);
    let pattern = Pattern::new(stream.format, colour, args.bars, &label);
    Ok(Box::new(PatternSource::new(pattern, args.fine.first)))
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
fn own_flow() -> Flow {
    let video = Video {
        sampling: Sampling::YCbCr422,
        depth: Depth::D10,
        width: 1920,
        height: 1080,
        rate: None,
        scan: Scan::Progressive,
        colorimetry: Colorimetry::Bt709,
        tcs: Tcs::Sdr,
        range: Range::Narrow,
        par: Ratio { num: 1, den: 1 },
        packing: Packing::Gpm,
        max_udp: 1460,
        sender_type: None,
        troff_us: None,
        cmax: None,
        ts_mode: None,
        ts_delay_us: None,
        ssn: Some("ST2110-20:2017".into()),
    };
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
