//! Connections that wait, and addresses that change while it runs. What is answered over them is tried in tests/daemon_api.rs.

use super::super::Listen;
use super::*;
use crate::daemon::{Action, Event, Overview, Receiver, Refusal, Reloaded, Reply, reply};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;
use tokio::sync::broadcast;

/// Longer than any stall of a machine that tests share.
const LONG: Duration = Duration::from_secs(60);
/// Longer than it takes to connect and to ask; the limit that these tests have.
const LIMIT: Duration = Duration::from_secs(1);

/// A daemon without receivers that reads its configuration again when the test says so.
#[derive(Default)]
struct Slow(Mutex<Vec<oneshot::Sender<std::result::Result<Reloaded, Refusal>>>>);

impl Control for Slow {
    fn overview(&self) -> Overview {
        Overview {
            version: "1.2.3",
            started: SystemTime::UNIX_EPOCH,
            ready: true,
            alive: true,
            generation: 1,
            refused: None,
        }
    }
    fn receivers(&self) -> Vec<Arc<Receiver>> {
        Vec::new()
    }
    fn act(&self, _: &str, _: Action) -> Reply<()> {
        reply(Err(Refusal::Unknown))
    }
    fn reload(&self) -> Reply<Reloaded> {
        let (to, from) = oneshot::channel();
        self.0.lock().unwrap().push(to);
        from
    }
    fn note(&self, _: String) {}
    fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        broadcast::channel(1).1
    }
    fn history(&self) -> Vec<Arc<Event>> {
        Vec::new()
    }
}

fn open(listen: &[SocketAddr], slow: &Arc<Slow>) -> Server {
    // Nothing else cuts off.
    let mut settings = Settings { listen: Listen(listen.to_vec()), open: true, ..Settings::default() };
    settings.limits.request_seconds = 600;
    Server::open_with(slow.clone(), &settings, LIMIT).unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn send(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// All that comes until the server hangs up.
fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    // What came before it was broken off counts.
    let _ = stream.read_to_end(&mut all);
    String::from_utf8(all).unwrap()
}

const RELOAD: &str = "POST /api/v1/config/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";

#[test]
fn whoever_waits_for_an_answer_is_not_cut_off() {
    let slow = Arc::new(Slow::default());
    let server = open(&[at("127.0.0.1:0")], &slow);
    let address = server.addresses()[0];
    // One without a body, and one with a body that nobody reads.
    let mut waiting =
        vec![send(address, &format!("{RELOAD}\r\n")), send(address, &format!("{RELOAD}Content-Length: 2\r\n\r\n{{}}"))];
    let begun = Instant::now();
    while slow.0.lock().unwrap().len() < waiting.len() {
        assert!(begun.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(LIMIT * 3);
    for to in slow.0.lock().unwrap().drain(..) {
        to.send(Ok(Reloaded::default())).unwrap();
    }
    for stream in &mut waiting {
        let answer = rest(stream);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
    }
}

#[test]
fn whoever_is_waited_for_is_cut_off() {
    let slow = Arc::new(Slow::default());
    let server = open(&[at("127.0.0.1:0")], &slow);
    let address = server.addresses()[0];
    // Nothing at all; nothing after an answer.
    assert_eq!(rest(&mut send(address, "")), "");
    let answer = rest(&mut send(address, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.matches("HTTP/1.1").count() == 1, "{answer:?}");
}

/// Does it answer there?
fn listens(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(LONG)).unwrap();
    let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    rest(&mut stream).starts_with("HTTP/1.1 200")
}

#[test]
fn the_api_is_opened_to_the_network_and_closed_again_at_its_port() {
    let slow = Arc::new(Slow::default());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let of = |ip: &str| SocketAddr::new(ip.parse().unwrap(), free);
    let server = open(&[of("127.0.0.1")], &slow);
    let settings =
        |listen: &[SocketAddr]| Settings { listen: Listen(listen.to_vec()), open: true, ..Settings::default() };
    assert!(listens(of("127.0.0.1")) && !listens(of("127.0.0.2")));

    server.reload(&settings(&[of("0.0.0.0")])).unwrap();
    assert_eq!(server.addresses(), [of("0.0.0.0")]);
    assert!(listens(of("127.0.0.1")) && listens(of("127.0.0.2")));

    // Where another one of the new addresses is not to be had, all is as before.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = server.reload(&settings(&[of("127.0.0.2"), taken.local_addr().unwrap()])).unwrap_err();
    assert!(
        error.to_string().contains(&format!("at {}: the TCP port is in use", taken.local_addr().unwrap())),
        "{error}"
    );
    assert_eq!(server.addresses(), [of("0.0.0.0")]);
    assert!(listens(of("127.0.0.1")) && listens(of("127.0.0.2")));

    server.reload(&settings(&[of("127.0.0.1")])).unwrap();
    assert_eq!(server.addresses(), [of("127.0.0.1")]);
    assert!(listens(of("127.0.0.1")) && !listens(of("127.0.0.2")));
}
