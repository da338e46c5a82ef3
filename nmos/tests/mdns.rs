//! Multicast DNS between two namespaces: on one side this crate, on the other a registry whose messages are made by hand
//! (RFC 1035, RFC 6762, RFC 6763). Needs root and `ip netns`; elsewhere it says that it was skipped.

mod support;

use gdmedia_nmos::registration::mdns::{Discovery, Mdns, NodeAdvert};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use support::{LONG, until};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const REGISTER: &str = "_nmos-register._tcp.local";
const NODE: &str = "_nmos-node._tcp.local";
const ROLE: &str = "GDMEDIA_NMOS_MDNS_ROLE";

#[test]
fn a_registry_is_found_and_the_node_announced() {
    match std::env::var(ROLE).as_deref() {
        Ok("node") => node_side(),
        Ok("registry") => registry_side(),
        _ => both_sides(),
    }
}

struct Net(String);

impl Net {
    fn new() -> Option<Net> {
        let net = Net(format!("gdn{}", std::process::id()));
        let name = &net.0;
        let commands = format!(
            "netns add {name}n
             netns add {name}r
             -n {name}n link add name node0 type veth peer name reg0 netns {name}r
             -n {name}n address add 10.79.0.2/24 dev node0
             -n {name}r address add 10.79.0.1/24 dev reg0
             -n {name}n link set node0 up
             -n {name}r link set reg0 up
             -n {name}r route add 224.0.0.0/4 dev reg0
             -n {name}n link set lo up"
        );
        for command in commands.lines() {
            let out = Command::new("ip").args(command.split_whitespace()).output();
            if !out.as_ref().is_ok_and(|o| o.status.success()) {
                println!("skipped: needs root and ip netns ({}: {out:?})", command.trim());
                return None;
            }
        }
        Some(net)
    }
    fn run(&self, side: &str, role: &str) -> Child {
        let own = std::env::current_exe().unwrap();
        Command::new("ip")
            .args(["netns", "exec", &format!("{}{side}", self.0)])
            .arg(own)
            .args(["--exact", "a_registry_is_found_and_the_node_announced", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for side in ["n", "r"] {
            let _ = Command::new("ip").args(["netns", "delete", &format!("{}{side}", self.0)]).output();
        }
    }
}

fn both_sides() {
    let Some(net) = Net::new() else { return };
    let (mut registry, mut node) = (net.run("r", "registry"), net.run("n", "node"));
    let (registry, node) = (registry.wait().unwrap(), node.wait().unwrap());
    assert!(node.success(), "the node's side");
    assert!(registry.success(), "the registry's side");
}

fn node_side() {
    let mut mdns = Mdns::new(&["node0".to_owned()]).unwrap();
    until("the registry is found", || !mdns.registries().is_empty());
    let found = mdns.registries();
    let [registry] = &found[..] else { panic!("{found:?}") };
    assert_eq!(registry.addresses, ["10.79.0.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(registry.port, 8010);
    let txt = [("api_auth", "false"), ("api_proto", "http"), ("api_ver", "v1.2,v1.3"), ("pri", "10")];
    assert_eq!(registry.txt, txt.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect());

    let txt = [("api_ver", "v1.3"), ("ver_rcv", "7")];
    let mut advert = NodeAdvert {
        name: "gdmedia-test".into(),
        addresses: vec!["10.79.0.2".parse().unwrap()],
        port: 8080,
        txt: txt.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<BTreeMap<_, _>>(),
    };
    mdns.announce(&advert);
    // The registry says farewell when it has seen that.
    until("the registry is gone", || mdns.registries().is_empty());
    advert.txt.insert("ver_rcv".into(), "8".into());
    mdns.announce(&advert);
    // It comes back when it has seen the change.
    until("the registry is back", || !mdns.registries().is_empty());
    mdns.withdraw();
}

fn registry_side() {
    let socket = UdpSocket::bind("0.0.0.0:5353").unwrap();
    socket.join_multicast_v4(&GROUP, &Ipv4Addr::new(10, 79, 0, 1)).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    let mut here = true;
    let mut step = 0;
    let mut octets = [0; 9000];
    let start = Instant::now();
    while step < 3 {
        assert!(start.elapsed() < LONG, "step {step} never came");
        let Ok((length, from)) = socket.recv_from(&mut octets) else { continue };
        if from.ip() != Ipv4Addr::new(10, 79, 0, 2) {
            continue;
        }
        let message = Message::read(&octets[..length]);
        if !message.response && here && message.questions.iter().any(|name| name == REGISTER) {
            socket.send_to(&advert(4500), (GROUP, 5353)).unwrap();
        }
        // Not in a probe (RFC 6762, 8.1), which is a question.
        let said = |r: &Record| message.response && r.kind == 16 && r.ttl > 0;
        let text = |text: &str| message.records.iter().any(|r| said(r) && r.has(text));
        match step {
            0 if text("\u{9}ver_rcv=7") => {
                let service = message.records.iter().find(|r| r.kind == 33).unwrap();
                assert_eq!(service.name, format!("gdmedia-test.{NODE}"));
                assert_eq!(service.data[4..6], 8080_u16.to_be_bytes());
                assert!(text("\u{c}api_ver=v1.3"));
                here = false;
                socket.send_to(&advert(0), (GROUP, 5353)).unwrap();
                step = 1;
            }
            1 if text("\u{9}ver_rcv=8") => {
                here = true;
                socket.send_to(&advert(4500), (GROUP, 5353)).unwrap();
                step = 2;
            }
            2 if message.records.iter().any(|r| r.kind == 12 && r.name == NODE && r.ttl == 0) => step = 3,
            _ => {}
        }
    }
}

/// A message as far as this test reads it.
struct Message {
    response: bool,
    questions: Vec<String>,
    records: Vec<Record>,
}

struct Record {
    name: String,
    kind: u16,
    ttl: u32,
    data: Vec<u8>,
}

impl Record {
    fn has(&self, text: &str) -> bool {
        self.data.windows(text.len()).any(|w| w == text.as_bytes())
    }
}

impl Message {
    fn read(octets: &[u8]) -> Message {
        let number = |at: usize| usize::from(u16::from_be_bytes([octets[at], octets[at + 1]]));
        let name = |mut at: usize| {
            let (mut text, mut next) = (String::new(), None);
            loop {
                let length = usize::from(octets[at]);
                if length == 0 {
                    return (text, next.unwrap_or(at + 1));
                }
                if length >= 0xc0 {
                    next = next.or(Some(at + 2));
                    at = number(at) & 0x3fff;
                    continue;
                }
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(std::str::from_utf8(&octets[at + 1..at + 1 + length]).unwrap());
                at += 1 + length;
            }
        };
        let mut at = 12;
        let mut questions = vec![];
        for _ in 0..number(4) {
            let (text, next) = name(at);
            questions.push(text);
            at = next + 4;
        }
        let mut records = vec![];
        for _ in 0..number(6) + number(8) + number(10) {
            let (text, next) = name(at);
            let (kind, length) = (number(next) as u16, number(next + 8));
            let ttl = u32::from_be_bytes(octets[next + 4..next + 8].try_into().unwrap());
            let data = octets[next + 10..next + 10 + length].to_vec();
            records.push(Record { name: text, kind, ttl, data });
            at = next + 10 + length;
        }
        Message { response: octets[2] & 0x80 != 0, questions, records }
    }
}

/// The registry's announcement, or with a TTL of 0 its farewell.
fn advert(ttl: u32) -> Vec<u8> {
    let name = |text: &str| {
        let labels = text.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
        labels.chain([0]).collect::<Vec<u8>>()
    };
    let record = |owner: &str, kind: u16, class: u16, data: &[u8]| {
        let mut out = name(owner);
        out.extend(kind.to_be_bytes());
        out.extend(class.to_be_bytes());
        out.extend(ttl.to_be_bytes());
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
        out
    };
    let instance = format!("registry-1.{REGISTER}");
    let texts = ["api_proto=http", "api_ver=v1.2,v1.3", "api_auth=false", "pri=10"];
    let txt: Vec<u8> = texts.iter().flat_map(|text| [&[text.len() as u8], text.as_bytes()].concat()).collect();
    // Priority, weight, port, target.
    let srv = [&[0, 0, 0, 0][..], &8010_u16.to_be_bytes(), &name("registry-1.local")].concat();
    [
        // An authoritative answer with four records; all but the shared one flush the cache.
        vec![0, 0, 0x84, 0, 0, 0, 0, 4, 0, 0, 0, 0],
        record(REGISTER, 12, 1, &name(&instance)),
        record(&instance, 33, 0x8001, &srv),
        record(&instance, 16, 0x8001, &txt),
        record("registry-1.local", 1, 0x8001, &[10, 79, 0, 1]),
    ]
    .concat()
}
