//! A node with receivers that only remember what they were told, served over TCP, and what looks at its answers.
#![allow(dead_code)]

pub mod registry;
pub mod schema;

use gdmedia_nmos::caps::{Allowed, Caps, ConstraintSet};
use gdmedia_nmos::{
    Activation, Asset, Chassis, ClockInfo, Endpoint, Format, Interface, Neighbour, Node, Receiver, Receivers, Saved,
    Settings, Tags, Transport, http, system_clock,
};
use gdmedia_sdp::{Colorimetry, Depth, Ratio, Sampling, Scan, SenderType, Tcs};
use serde_json::Value;
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longer than any stall of a machine under load: a test that waits for so long has failed.
pub const LONG: Duration = Duration::from_secs(60);

/// The tests' receivers.
pub struct Fake {
    pub list: Mutex<Vec<Receiver>>,
    /// Every activation, in order.
    pub activations: Mutex<Vec<(String, Activation)>>,
    /// What was given to be kept.
    pub kept: Mutex<Vec<(String, Saved)>>,
    /// Text of the next activation's failure, by receiver.
    pub failures: Mutex<HashMap<String, String>>,
    /// Text of every validation's failure.
    pub invalid: Mutex<Option<String>>,
    /// Done once, while something is validated.
    pub meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// An activation waits while it is closed.
    gate: (Mutex<Gate>, Condvar),
}

#[derive(Default)]
struct Gate {
    closed: bool,
    waiting: usize,
    most: usize,
}

impl Fake {
    pub fn new(list: Vec<Receiver>) -> Arc<Fake> {
        Arc::new(Fake {
            list: Mutex::new(list),
            activations: Mutex::default(),
            kept: Mutex::default(),
            failures: Mutex::default(),
            invalid: Mutex::default(),
            meanwhile: Mutex::default(),
            gate: Default::default(),
        })
    }
    pub fn close(&self) {
        self.gate.0.lock().unwrap().closed = true;
    }
    pub fn open(&self) {
        self.gate.0.lock().unwrap().closed = false;
        self.gate.1.notify_all();
    }
    /// How many activations wait at the gate.
    pub fn waiting(&self) -> usize {
        self.gate.0.lock().unwrap().waiting
    }
    /// How many were under way at once, at most.
    pub fn most(&self) -> usize {
        self.gate.0.lock().unwrap().most
    }
    pub fn done(&self) -> Vec<(String, Activation)> {
        self.activations.lock().unwrap().clone()
    }
}

impl Receivers for Fake {
    fn list(&self) -> Vec<Receiver> {
        self.list.lock().unwrap().clone()
    }
    fn validate(&self, _name: &str, _activation: &Activation) -> Result<(), String> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        meanwhile.into_iter().for_each(|work| work());
        self.invalid.lock().unwrap().clone().map_or(Ok(()), Err)
    }
    fn activate(&self, name: &str, activation: &Activation) -> Result<(), String> {
        let mut gate = self.gate.0.lock().unwrap();
        gate.waiting += 1;
        gate.most = gate.most.max(gate.waiting);
        while gate.closed {
            gate = self.gate.1.wait(gate).unwrap();
        }
        gate.waiting -= 1;
        drop(gate);
        if let Some(why) = self.failures.lock().unwrap().remove(name) {
            return Err(why);
        }
        self.activations.lock().unwrap().push((name.to_owned(), activation.clone()));
        Ok(())
    }
    fn activated(&self, name: &str, saved: &Saved) {
        self.kept.lock().unwrap().push((name.to_owned(), saved.clone()));
    }
}

/// `video` on two legs, with sets; `audio` on one, wide; `data` on one.
pub fn three() -> Vec<Receiver> {
    let hd = ConstraintSet {
        label: Some("up to UHD, 4:2:2".into()),
        media_types: vec!["video/raw".into()],
        grain_rate: Allowed::one_of([Ratio { num: 50, den: 1 }, Ratio { num: 60000, den: 1001 }]),
        frame_width: Allowed::range(16, 4096),
        frame_height: Allowed::range(16, 2160),
        interlace_modes: Scan::ALL.to_vec(),
        samplings: vec![Sampling::YCbCr422, Sampling::Rgb],
        depths: vec![Depth::D8, Depth::D10, Depth::D12],
        colorimetries: vec![Colorimetry::Bt709, Colorimetry::Bt2100],
        transfers: vec![Tcs::Sdr, Tcs::Pq, Tcs::Hlg],
        sender_types: SenderType::ALL.to_vec(),
        preference: Some(50),
        ..ConstraintSet::default()
    };
    let receiver = |name: &str, format, types: &[&str], legs: &[&str], sets| Receiver {
        name: name.into(),
        label: format!("Ingest 1 {name}"),
        description: String::new(),
        tags: Tags::from([("location".into(), vec!["rack 4".into()])]),
        group: Some(("ingest 1".into(), name.into())),
        format,
        transport: Transport::Rtp,
        legs: legs.iter().map(|leg| (*leg).to_owned()).collect(),
        caps: Caps { media_types: types.iter().map(|t| (*t).to_owned()).collect(), sets },
    };
    vec![
        receiver("video", Format::Video, &["video/raw"], &["rx0", "rx1"], vec![hd]),
        receiver("audio", Format::Audio, &["audio/L24", "audio/L16"], &["rx0"], vec![]),
        receiver("data", Format::Data, &["video/smpte291"], &["rx0"], vec![]),
    ]
}

pub fn settings(port: u16) -> Settings {
    let interface = |name: &str, last: u8, addresses: &[&str]| Interface {
        name: name.into(),
        mac: [0x02, 0, 0, 0, 0, last],
        chassis: Chassis::Mac([0x02, 0, 0, 0, 0, 0xff]),
        neighbour: Some(Neighbour { chassis: "02-00-00-00-0a-00".into(), port: "Ethernet1/7".into() }),
        addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
    };
    Settings {
        seed: "test machine".into(),
        label: "gdmedia".into(),
        description: "a test".into(),
        tags: Tags::from([("room".into(), vec!["MCR".into()])]),
        hostname: Some("rx1.example.org".into()),
        asset: Asset { instance: Some("4711".into()), ..Asset::default() },
        interfaces: vec![
            interface("rx0", 1, &["10.46.16.34", "fd46::34"]),
            interface("rx1", 2, &["10.47.16.34", "fd47::34"]),
        ],
        clocks: vec![
            ClockInfo::Internal { name: "clk0".into() },
            ClockInfo::Ptp {
                name: "clk1".into(),
                grandmaster: [0x00, 0x1b, 0x19, 0xff, 0xfe, 0, 0x0a, 0xbc],
                traceable: true,
                locked: true,
            },
        ],
        endpoints: vec![Endpoint { host: "127.0.0.1".into(), port, secure: false, authorization: false }],
        listening: vec![],
    }
}

/// A node that is served.
pub struct Served {
    pub node: Node,
    pub fake: Arc<Fake>,
    pub address: SocketAddr,
    // Ends the server when it is dropped.
    _runtime: tokio::runtime::Runtime,
}

impl Served {
    pub fn new() -> Served {
        Served::with(three(), |_| {})
    }

    pub fn with(list: Vec<Receiver>, change: impl FnOnce(&mut Settings)) -> Served {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let fake = Fake::new(list);
        let mut settings = settings(address.port());
        change(&mut settings);
        let node = Node::new(settings, fake.clone(), system_clock(37)).unwrap();
        let router = http::standalone(node.clone());
        runtime.spawn(async move {
            axum::serve(tokio::net::TcpListener::from_std(listener).unwrap(), router).await.unwrap();
        });
        Served { node, fake, address, _runtime: runtime }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
    pub fn id(&self, name: &str) -> String {
        self.node.settings().receiver_id(name).to_string()
    }
    /// The path of something below a receiver in IS-05.
    pub fn single(&self, name: &str, what: &str) -> String {
        format!("/x-nmos/connection/v1.1/single/receivers/{}/{what}", self.id(name))
    }
    pub fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, None);
        assert_eq!(answer.code, 200, "{path}: {}", answer.text);
        answer.json()
    }
    pub fn receiver(&self, name: &str) -> Value {
        self.get(&format!("/x-nmos/node/v1.3/receivers/{}", self.id(name)))
    }
    pub fn patch(&self, name: &str, body: &Value) -> Answer {
        self.ask("PATCH", &self.single(name, "staged"), Some(body.to_string().into_bytes()))
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<Vec<u8>>) -> Answer {
        ask(method, &self.url(path), body)
    }
}

/// An answer of HTTP.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: HashMap<String, String>,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
    /// Its text for people, after a look at the form of an error.
    pub fn error(&self) -> String {
        let body = self.json();
        assert_eq!(body["code"], self.code, "{body}");
        assert!(body.as_object().unwrap().contains_key("debug"), "{body}");
        body["error"].as_str().unwrap().to_owned()
    }
}

pub fn ask(method: &str, url: &str, body: Option<Vec<u8>>) -> Answer {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(LONG))
        .allow_non_standard_methods(true)
        .build();
    let agent: ureq::Agent = config.into();
    let request = axum::http::Request::builder().method(method).uri(url);
    let request = request.header("content-type", "application/json");
    let mut response = match body {
        Some(body) => agent.run(request.body(body).unwrap()).unwrap(),
        None => agent.run(request.body(()).unwrap()).unwrap(),
    };
    let headers = response.headers().iter();
    let headers = headers.map(|(k, v)| (k.as_str().to_owned(), v.to_str().unwrap().to_owned())).collect();
    let code = response.status().as_u16();
    let text = response.body_mut().with_config().limit(64 << 20).read_to_string().unwrap();
    Answer { code, headers, text }
}

/// Waits until it is so. Fails where it never becomes so, not where it takes long.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An SDP of video on two legs that every stage accepts.
pub const VIDEO: &str = "v=0\r\no=- 1497010742 1497010742 IN IP4 172.29.26.24\r\ns=camera 1\r\nt=0 0\r\n\
    a=group:DUP one two\r\n\
    m=video 5000 RTP/AVP 103\r\nc=IN IP4 232.21.21.133/32\r\n\
    a=source-filter: incl IN IP4 232.21.21.133 172.29.226.24\r\na=rtpmap:103 raw/90000\r\n\
    a=fmtp:103 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=50; depth=10; TCS=SDR; \
    colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
    a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\na=mid:one\r\n\
    m=video 5002 RTP/AVP 103\r\nc=IN IP4 232.21.22.133/32\r\n\
    a=source-filter: incl IN IP4 232.21.22.133 172.30.226.24\r\na=rtpmap:103 raw/90000\r\n\
    a=fmtp:103 sampling=YCbCr-4:2:2; width=1920; height=1080; exactframerate=50; depth=10; TCS=SDR; \
    colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
    a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\na=mid:two\r\n";

/// An SDP of audio.
pub const AUDIO: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=mic\r\nt=0 0\r\nm=audio 5004 RTP/AVP 97\r\n\
    c=IN IP4 239.1.1.1/64\r\na=rtpmap:97 L24/48000/2\r\na=ptime:1\r\n\
    a=ts-refclk:ptp=IEEE1588-2008:traceable\r\na=mediaclk:direct=0\r\n";
