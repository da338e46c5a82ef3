//! The preview of a run: where it is served, and what its page is told.

use super::Args;
use super::health::Watch;
use super::report::{Rates, picture, status};
use super::sinks::Sinks;
use gdmedia::error::Result;
use gdmedia::kernel::Conversion;
use gdmedia::latency::{Hop, Recorder};
use gdmedia::pipeline::meter::Metering;
use gdmedia::preview::{Hosts, Options, Post, Preview, Server, Source, router};
use gdmedia::sdp::{Colorimetry, Flow, Sampling, Video};
use gdmedia::worker::Report;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Where the preview is when nothing else is said.
pub const PORT: u16 = 8110;
/// Between two statuses for the page.
const PERIOD: Duration = Duration::from_millis(500);
/// Rates are those of so many periods, so that they stand still while nothing changes.
const PERIODS: usize = 4;

/// A page that is served.
pub struct Page {
    // First, so that nobody asks any more when the preview goes.
    server: Option<Server>,
    preview: Preview,
}

impl Page {
    /// Pictures of frames of this conversion, for somebody else to serve.
    pub fn unserved(args: &Args, conversion: &Conversion) -> Page {
        let options = Options { width: args.preview_width, rate: args.preview_rate, ..Options::default() };
        Page { server: None, preview: Preview::new(conversion, options) }
    }
    /// Serves a page for frames of this conversion at an address.
    ///
    /// # Errors
    /// As of [`Server::open`].
    pub fn open(args: &Args, address: SocketAddr, conversion: &Conversion) -> Result<Page> {
        let options = Options { width: args.preview_width, rate: args.preview_rate, ..Options::default() };
        let Page { mut preview, .. } = Page::unserved(args, conversion);
        let server = Server::open(address, router(preview.source()), Hosts::of_this_machine())?;
        let (width, height) = preview.size();
        let url = url(server.address());
        preview.set_text(format!(
            "preview ({url}, {width}x{height}, {} pictures a second while somebody watches)",
            options.rate
        ));
        Ok(Page { server: Some(server), preview })
    }
    /// Starts to render.
    ///
    /// # Errors
    /// As of [`Preview::start`].
    #[cfg(feature = "cuda")]
    pub fn start(&mut self, gpu: Option<&std::sync::Arc<gdmedia::gpu::Gpu>>) -> Result<()> {
        self.preview.start(gpu)
    }
    /// Starts to render.
    ///
    /// # Errors
    /// As of [`Preview::start`].
    #[cfg(not(feature = "cuda"))]
    pub fn start(&mut self) -> Result<()> {
        self.preview.start()
    }
    /// A sink of it.
    pub fn post(&self) -> Post {
        self.preview.post()
    }
    /// Frames that it may hold besides those in its sinks' queues.
    pub fn holds(&self) -> usize {
        self.preview.holds()
    }
    /// Where it is, if it is served here.
    pub fn url(&self) -> Option<String> {
        self.server.as_ref().map(|server| url(server.address()))
    }
    /// The same for people.
    pub fn target(&self) -> String {
        self.url().unwrap_or_else(|| "the daemon's API".into())
    }
    /// Its pictures.
    #[cfg(feature = "daemon")]
    pub fn source(&self) -> Source {
        self.preview.source()
    }
    /// What whoever started it should know.
    pub fn warning(&self) -> Option<String> {
        let address = self.server.as_ref()?.address();
        (!address.ip().is_loopback()).then(|| {
            let from = if address.ip().is_unspecified() { "on any address of this machine" } else { "there" };
            format!("the preview asks for no password: whoever reaches port {} {from} sees the picture", address.port())
        })
    }
}

fn url(address: SocketAddr) -> String {
    let here = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port())),
        _ => address,
    };
    format!("http://{here}/")
}

/// An address of `--preview`: `PORT`, `IP`, `IP:PORT`, `localhost:PORT`.
pub fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let text = text.replacen("localhost", "127.0.0.1", 1);
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok((ip, PORT).into());
    }
    text.parse().map_err(|_| {
        "an address is wanted, such as 127.0.0.1:8110, 0.0.0.0:8110 or a port alone; an SDP has its own option, --sdp".into()
    })
}

/// Tells the page how the stream is.
pub struct Teller {
    source: Source,
    flow: Value,
    begun: Instant,
    next: Instant,
    /// When, frames, and octets, of the last periods.
    before: VecDeque<(Instant, u64, u64)>,
}

impl Teller {
    /// Of a run's page.
    pub fn new(page: &Page, flow: &Flow, video: &Video) -> Self {
        let now = Instant::now();
        Teller {
            source: page.preview.source(),
            flow: described(flow, video),
            begun: now,
            next: now,
            before: VecDeque::new(),
        }
    }

    /// Twice a second.
    pub fn tell(
        &mut self,
        report: &Report,
        latency: &mut Recorder,
        sinks: &Sinks,
        health: &Watch,
        metering: Option<&Metering>,
    ) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + PERIOD;
        let (frames, octets) = (report.frames.complete + report.frames.incomplete, report.rx.octets);
        let (then, frames_then, octets_then) = *self.before.front().unwrap_or(&(self.begun, 0, 0));
        let seconds = now.duration_since(then).as_secs_f64().max(1e-3);
        if self.before.len() >= PERIODS {
            self.before.pop_front();
        }
        self.before.push_back((now, frames, octets));
        let recent = [Hop::Gpu, Hop::Complete].map(|hop| latency.take_recent(hop));
        let ready = recent.iter().find_map(|recent| Some((recent.mean()?, recent.max)));
        let rates = Rates {
            fps: frames.saturating_sub(frames_then) as f64 / seconds,
            bits: octets.saturating_sub(octets_then) as f64 * 8.0 / seconds,
            ready,
        };
        let timing = metering.map(Metering::read).unwrap_or_default();
        let mut status = status(report, latency, sinks, health, &timing, rates);
        if let Some(object) = status.as_object_mut() {
            object.insert("seconds".into(), json!(self.begun.elapsed().as_secs_f64()));
            object.insert("received".into(), report.packets.received.into());
            object.insert("flow".into(), self.flow.clone());
            object.insert("preview".into(), json!(self.source.state()));
        }
        self.source.set_stats(&status);
    }
}

/// What a page shows of a flow.
pub fn described(flow: &Flow, video: &Video) -> Value {
    // Luma coefficients of red and blue, for the targets of a vectorscope; others have none.
    let luma = match (video.sampling, video.colorimetry) {
        (
            Sampling::ICtCp444
            | Sampling::ICtCp422
            | Sampling::ICtCp420
            | Sampling::Rgb
            | Sampling::Xyz
            | Sampling::Key,
            _,
        ) => None,
        (_, Colorimetry::Bt601) => Some([0.299, 0.114]),
        (_, Colorimetry::Bt2020 | Colorimetry::Bt2100) => Some([0.2627, 0.0593]),
        (_, Colorimetry::Bt709) => Some([0.2126, 0.0722]),
        _ => None,
    };
    let legs = flow.legs.iter().map(|leg| SocketAddr::new(leg.destination, leg.port).to_string());
    json!({
        "name": flow.name, "format": picture(video), "legs": legs.collect::<Vec<_>>(),
        "width": video.width, "height": video.height, "par": [video.par.num, video.par.den],
        "rate": video.rate.map(|rate| rate.as_f64()), "scan": video.scan.to_string(),
        "sampling": video.sampling.to_string(), "depth": video.depth.to_string(),
        "colorimetry": video.colorimetry.to_string(), "tcs": video.tcs.to_string(), "range": video.range.to_string(),
        "luma": luma,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, wanted) in [
            ("8110", "127.0.0.1:8110"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0", "0.0.0.0:8110"),
            ("10.1.2.3:80", "10.1.2.3:80"),
            ("localhost", "127.0.0.1:8110"),
            ("localhost:9", "127.0.0.1:9"),
            ("::1", "[::1]:8110"),
            ("[::1]", "[::1]:8110"),
            ("[::]:9000", "[::]:9000"),
        ] {
            assert_eq!(address(text), Ok(wanted.parse().unwrap()), "{text}");
        }
        for text in ["", "stream.sdp", "example.org:80", "70000", "127.0.0.1:", ":80", "127.0.0.1:8110/", "-"] {
            assert!(address(text).is_err_and(|why| why.contains("--sdp")), "{text}");
        }
    }

    #[test]
    fn what_is_shown_can_be_opened_here() {
        let url_of = |text: &str| url(text.parse().unwrap());
        assert_eq!(url_of("0.0.0.0:8110"), "http://127.0.0.1:8110/");
        assert_eq!(url_of("[::]:1"), "http://[::1]:1/");
        assert_eq!(url_of("10.1.2.3:80"), "http://10.1.2.3:80/");
    }
}
