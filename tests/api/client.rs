//! HTTP as it is on the wire: what is sent is written by hand, so that it can be wrong.
#![allow(dead_code, reason = "each user needs a part of it")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longer than any stall of a machine that tests share.
pub const LONG: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    /// In small letters.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Of all that came until the end.
    pub fn of(all: &[u8]) -> Option<Self> {
        let at = all.windows(4).position(|w| w == b"\r\n\r\n")?;
        let head = String::from_utf8(all[..at].to_vec()).ok()?.to_ascii_lowercase();
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer { code, head, body: all[at + 4..].to_vec() })
    }
    pub fn header(&self, name: &str) -> &str {
        let find =
            |line: &'_ str| -> Option<usize> { line.strip_prefix(name)?.starts_with(':').then_some(name.len() + 1) };
        self.head.lines().find_map(|line| Some(line[find(line)?..].trim())).unwrap_or_default()
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {} {:?}", self.head, self.text()))
    }
    /// A refusal has this code, says what is wrong in these words, and what helps.
    pub fn refuses(&self, code: u16, words: &str) {
        assert_eq!(self.code, code, "{} {}", self.head, self.text());
        assert_eq!(self.header("content-type"), "application/json", "{}", self.head);
        let value = self.json();
        let object = value.as_object().unwrap();
        assert_eq!(object.len(), 2, "{value}");
        assert!(object["error"].as_str().unwrap().contains(words), "{value}");
        assert!(!object["cure"].as_str().unwrap().is_empty(), "{value}");
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream
}

/// All that comes until the server closes; what came before it broke off counts.
pub fn rest(stream: &mut impl Read) -> Vec<u8> {
    let (mut all, begun) = (Vec::new(), Instant::now());
    let mut part = [0; 4096];
    while let Ok(n) = stream.read(&mut part) {
        assert!(begun.elapsed() < LONG, "it does not end: {:?}", String::from_utf8_lossy(&all));
        if n == 0 {
            break;
        }
        all.extend_from_slice(&part[..n]);
    }
    all
}

/// Sends octets as they are; a server that has heard enough may close meanwhile.
pub fn raw(address: SocketAddr, octets: &[u8]) -> Answer {
    let mut stream = connect(address);
    let _ = stream.write_all(octets);
    let all = rest(&mut stream);
    Answer::of(&all).unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(&all)))
}

pub fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{length}{headers}\r\n");
    [head.as_bytes(), body].concat()
}

pub fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    raw(address, &request(method, path, headers, body))
}

pub fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path, "", b"")
}

/// Server-sent events as they come, out of the chunks that they come in.
pub struct Events(BufReader<TcpStream>);

#[derive(Debug, PartialEq, Eq)]
pub struct Happened {
    /// What stands before the number in its id.
    pub run: String,
    pub id: u64,
    pub kind: String,
    pub data: Value,
}

impl Events {
    pub fn open(address: SocketAddr, path: &str, headers: &str) -> Self {
        let mut stream = connect(address);
        stream.write_all(&request("GET", path, headers, b"")).unwrap();
        let mut events = Events(BufReader::new(stream));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(events.0.read_line(&mut head).unwrap() > 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        // The first chunk is there before anything happens.
        while events.line() != "retry: 2000" {}
        events
    }
    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream ended");
        line.trim_end().to_owned()
    }
    /// A comment that has this in it.
    pub fn comment(&mut self, words: &str) {
        while !self.line().starts_with(&format!(": {words}")) {}
    }
    pub fn next(&mut self) -> Happened {
        let mut event = Happened { run: String::new(), id: 0, kind: String::new(), data: Value::Null };
        loop {
            let line = self.line();
            if let Some(id) = line.strip_prefix("id: ") {
                let (run, number) = id.split_once('-').unwrap();
                (event.run, event.id) = (run.into(), number.parse().unwrap());
            } else if let Some(kind) = line.strip_prefix("event: ") {
                event.kind = kind.into();
            } else if let Some(data) = line.strip_prefix("data: ") {
                event.data = serde_json::from_str(data).unwrap();
            } else if line.is_empty() && event.id > 0 {
                return event;
            }
        }
    }
}
