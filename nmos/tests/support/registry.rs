//! A registry over TCP, which does what a test tells it.
#![allow(dead_code)]

use gdmedia_nmos::registration::select::Advert;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How the registry answers.
#[derive(Clone, Debug)]
pub enum Mood {
    /// As the specification has it.
    Well,
    /// With this status, whatever is asked.
    Code(u16),
    /// With these octets.
    Raw(&'static [u8]),
    /// Not at all; the connection stays open.
    Silent,
    /// It closes the connection.
    Dead,
    /// An octet at a time.
    Slow,
    /// As the specification has it, but for posts of this kind: 400.
    Refuses(&'static str),
    /// Posts only: 409 with this location, until the node is deleted under that version.
    Conflict(&'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    pub method: String,
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

pub struct Registry {
    pub address: SocketAddr,
    pub state: Arc<Mutex<State>>,
}

pub struct State {
    pub mood: Mood,
    pub has: BTreeMap<String, Value>,
    pub heard: Vec<Heard>,
    pub open: bool,
}

impl Registry {
    pub fn new(mood: Mood) -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { mood, has: BTreeMap::new(), heard: vec![], open: true }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if !shared.lock().unwrap().open {
                    return;
                }
                let shared = shared.clone();
                std::thread::spawn(move || while serve(&stream, &shared).is_some() {});
            }
        });
        Registry { address, state }
    }
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
    pub fn mood(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }
    pub fn forget(&self) {
        self.state.lock().unwrap().has.clear();
    }
    pub fn has(&self) -> BTreeMap<String, Value> {
        self.state.lock().unwrap().has.clone()
    }
    pub fn heard(&self) -> Vec<Heard> {
        self.state.lock().unwrap().heard.clone()
    }
    /// Lines such as `POST node`, `DELETE /resource/nodes/…`, `POST /health/…`.
    pub fn lines(&self) -> Vec<String> {
        let line = |heard: &Heard| {
            let path = heard.path.strip_prefix("/x-nmos/registration/v1.3").unwrap_or(&heard.path);
            match serde_json::from_str::<Value>(&heard.body) {
                Ok(body) => format!("{} {}", heard.method, body["type"].as_str().unwrap()),
                Err(_) => format!("{} {path}", heard.method),
            }
        };
        self.heard().iter().map(line).collect()
    }
    pub fn heartbeats(&self) -> usize {
        self.lines().iter().filter(|line| line.starts_with("POST /health/nodes/")).count()
    }
    pub fn advert(&self, priority: &str) -> Advert {
        let txt = [("api_proto", "http"), ("api_ver", "v1.2,v1.3"), ("api_auth", "false"), ("pri", priority)];
        let txt = txt.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Advert { addresses: vec![self.address.ip()], port: self.address.port(), txt }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.state.lock().unwrap().open = false;
        let _ = TcpStream::connect(self.address);
    }
}

/// One request and its answer; `None` where the connection is over.
fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((key, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(key.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let heard = Heard { method, path, headers, body: String::from_utf8(body).unwrap() };
    let mut state = state.lock().unwrap();
    state.heard.push(heard.clone());
    let mut out = stream;
    let mood = state.mood.clone();
    let (code, head, body) = match mood {
        Mood::Refuses(kind) if heard.body.contains(&format!("\"type\":\"{kind}\"")) => {
            (400, String::new(), json!({ "code": 400, "error": "as told", "debug": null }).to_string())
        }
        Mood::Well | Mood::Refuses(_) => state.answer(&heard),
        Mood::Conflict(location) => {
            let version = location.split('/').nth(3).unwrap_or_default();
            if heard.method == "DELETE" && heard.path.contains(version) {
                state.mood = Mood::Well;
                (204, String::new(), String::new())
            } else {
                (409, format!("Location: {location}\r\n"), json!({ "code": 409, "error": "other version" }).to_string())
            }
        }
        Mood::Code(code) => {
            let location = if (300..400).contains(&code) { "Location: http://127.0.0.1:1/elsewhere\r\n" } else { "" };
            let body = if code == 204 {
                String::new()
            } else {
                json!({ "code": code, "error": "as told", "debug": null }).to_string()
            };
            (code, location.to_owned(), body)
        }
        Mood::Raw(octets) => {
            let _ = out.write_all(octets);
            return None;
        }
        Mood::Dead => return None,
        Mood::Silent => {
            drop(state);
            // Until the client gives up.
            let _ = reader.read(&mut [0]);
            return None;
        }
        Mood::Slow => {
            drop(state);
            for octet in b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".iter().chain(&[b' '; 100_000]) {
                out.write_all(&[*octet]).ok()?;
                std::thread::sleep(Duration::from_millis(20));
            }
            return None;
        }
    };
    let length = if code == 204 { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    write!(out, "HTTP/1.1 {code} X\r\n{head}{length}Content-Type: application/json\r\n\r\n{body}").ok()
}

impl State {
    fn answer(&mut self, heard: &Heard) -> (u16, String, String) {
        let path = heard.path.strip_prefix("/x-nmos/registration/v1.3").unwrap_or_default();
        let (code, body) = match (heard.method.as_str(), path.split('/').collect::<Vec<_>>().as_slice()) {
            ("POST", ["", "resource"]) => {
                let body: Value = serde_json::from_str(&heard.body).unwrap();
                let (kind, data) = (body["type"].as_str().unwrap(), &body["data"]);
                let id = data["id"].as_str().unwrap();
                let parent = match kind {
                    "node" => None,
                    "device" => Some(format!("nodes/{}", data["node_id"].as_str().unwrap())),
                    _ => Some(format!("devices/{}", data["device_id"].as_str().unwrap())),
                };
                if parent.is_some_and(|parent| !self.has.contains_key(&parent)) {
                    (400, json!({ "code": 400, "error": "no parent", "debug": null }))
                } else if self.has.insert(format!("{kind}s/{id}"), data.clone()).is_some() {
                    (200, data.clone())
                } else {
                    (201, data.clone())
                }
            }
            ("DELETE", ["", "resource", kind, id]) => {
                let there = self.has.remove(&format!("{kind}/{id}")).is_some();
                if *kind == "nodes" {
                    self.has.clear();
                }
                if there { (204, Value::Null) } else { (404, json!({ "code": 404, "error": "no", "debug": null })) }
            }
            ("POST", ["", "health", "nodes", id]) if self.has.contains_key(&format!("nodes/{id}")) => {
                (200, json!({ "health": "1441974485" }))
            }
            _ => (404, json!({ "code": 404, "error": "not here", "debug": null })),
        };
        (code, String::new(), if code == 204 { String::new() } else { body.to_string() })
    }
}
