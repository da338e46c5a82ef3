//! A node whose receivers only print what they are told: to look at with a controller, and to run AMWA's test suite against.
//!
//! ```text
//! cargo run -p gdmedia-nmos --example node -- 192.0.2.7:8080 [http://registry:8010 | mdns=eth0]
//! ```
//!
//! Registers at the registry, or at one that mDNS finds on the interface; without either it only serves. Ends with Enter.

use gdmedia_nmos::caps::{Allowed, Caps, ConstraintSet};
use gdmedia_nmos::registration::client::Plain;
use gdmedia_nmos::registration::machine::Timing;
use gdmedia_nmos::registration::mdns::Mdns;
use gdmedia_nmos::registration::{Find, Registration};
use gdmedia_nmos::{
    Activation, Asset, Chassis, ClockInfo, Endpoint, Format, Interface, Node, Receiver, Receivers, Settings, Tags,
    Transport, http, system_clock,
};
use gdmedia_sdp::{Sampling, Scan};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

struct Printer;

impl Receivers for Printer {
    fn list(&self) -> Vec<Receiver> {
        let progressive = ConstraintSet {
            label: Some("progressive, up to UHD".into()),
            media_types: vec!["video/raw".into()],
            frame_width: Allowed::range(16, 4096),
            frame_height: Allowed::range(16, 2160),
            interlace_modes: vec![Scan::Progressive],
            samplings: vec![Sampling::YCbCr422],
            ..ConstraintSet::default()
        };
        let receiver = |name: &str, format, kind: &str, legs: usize, sets| Receiver {
            name: name.into(),
            label: name.into(),
            description: String::new(),
            tags: Tags::new(),
            group: Some(("example".into(), name.into())),
            format,
            transport: Transport::Rtp,
            legs: vec!["eth0".into(); legs],
            caps: Caps { media_types: vec![kind.into()], sets },
        };
        vec![
            receiver("video", Format::Video, "video/raw", 2, vec![progressive]),
            receiver("audio", Format::Audio, "audio/L24", 1, vec![]),
        ]
    }
    fn validate(&self, _name: &str, _activation: &Activation) -> Result<(), String> {
        Ok(())
    }
    fn activate(&self, name: &str, activation: &Activation) -> Result<(), String> {
        println!("{name}: {} {:?}", if activation.master_enable { "on" } else { "off" }, activation.legs);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let address: SocketAddr = words.next().ok_or("say at which address to serve, such as 127.0.0.1:8080")?.parse()?;
    let settings = Settings {
        seed: format!("example at {address}"),
        label: "gdmedia example".into(),
        description: "receivers that only print".into(),
        tags: Tags::new(),
        hostname: None,
        asset: Asset::default(),
        interfaces: vec![Interface {
            name: "eth0".into(),
            mac: [0x02, 0, 0, 0, 0, 1],
            chassis: Chassis::Unknown,
            neighbour: None,
            addresses: vec![address.ip()],
        }],
        clocks: vec![ClockInfo::Internal { name: "clk0".into() }],
        endpoints: vec![Endpoint {
            host: address.ip().to_string(),
            port: address.port(),
            secure: false,
            authorization: false,
        }],
        listening: vec![address],
    };
    let node = Node::new(settings, Arc::new(Printer), system_clock(37))?;
    let runtime = tokio::runtime::Runtime::new()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind(address))?;
    let router = http::standalone(node.clone());
    runtime.spawn(async move { axum::serve(listener, router).await });
    println!("http://{address}/x-nmos/node/v1.3/");
    let find = match words.next() {
        None => None,
        Some(word) => Some(match word.strip_prefix("mdns=") {
            Some(interface) => Find::Discovered(Box::new(Mdns::new(&[interface.to_owned()])?)),
            None => Find::Named(vec![word]),
        }),
    };
    let registration = match find {
        Some(find) => Some(Registration::start(node, find, Box::new(Plain::new()), Timing::default())?),
        None => None,
    };
    std::io::stdin().read_line(&mut String::new())?;
    if let Some(registration) = registration {
        println!("{:?}", registration.status());
        registration.stop(Duration::from_secs(5));
    }
    Ok(())
}
