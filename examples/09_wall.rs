//! The daemon's API and its pages, over receivers of your own: here 16 that show the test pattern, and some that do not run.
//!
//!     cargo run --example 09_wall -- [ADDRESS] [TOKEN]
//!
//! With a token (16 characters or more) it may see and steer, and nothing goes without it.

#[path = "../tests/api/fake.rs"]
mod fake;

use fake::{Fake, Picture, dead, receiver};
use gdmedia::daemon::api::{Listen, Scope, Server, Settings, Token};
use gdmedia::daemon::{EventKind, State};
use std::sync::Arc;
use std::time::{Duration, Instant};

const CAMERAS: [&str; 16] = [
    "Camera 1, wide",
    "Camera 2",
    "Camera 3, jib",
    "Camera 4, handheld",
    "Goal left",
    "Goal right",
    "Super slow motion",
    "Beauty",
    "Graphics fill",
    "Graphics key",
    "Replay A",
    "Replay B",
    "Return from the studio",
    "Satellite 1",
    "Satellite 2",
    "Test",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut settings = Settings::default();
    if let Some(address) = arguments.next() {
        settings.listen = Listen(vec![address.parse()?]);
    }
    let file = std::env::temp_dir().join(format!("gdmedia-wall-{}", std::process::id()));
    if let Some(token) = arguments.next() {
        std::fs::write(&file, token)?;
        let scopes = vec![Scope::Control];
        settings.tokens = vec![Token { name: "example".into(), file: Some(file.clone()), sha256: None, scopes }];
    }

    let mut pictures = Vec::new();
    let mut receivers = Vec::new();
    for (n, name) in CAMERAS.iter().enumerate() {
        let id = format!("rx{:02}", n + 1);
        let mut one = match n {
            6 => dead(&id, State::Failed, "eth1 is no interface of this machine\ncure: `ip link` lists them"),
            11 => dead(&id, State::Retrying, "ptp4l does not answer; tried again in 4 s"),
            13 => dead(&id, State::Waiting, "no packet has come for 12.0 s"),
            15 => dead(&id, State::Stopped, "stopped by the API"),
            _ => receiver(&id),
        };
        one.label = (*name).into();
        if one.state == State::Receiving {
            let picture = Picture::new(640, 360, name);
            one.preview = Some(picture.preview.source());
            pictures.push(picture);
        }
        receivers.push(one);
    }
    let fake = Arc::new(Fake::new(receivers));
    let server = Server::open(fake.clone(), &settings);
    let _ = std::fs::remove_file(&file);
    let server = server?;
    println!("{}", server.urls().join(" "));
    fake.happen(None, EventKind::Daemon, "16 receivers are in the configuration");
    for (id, why) in
        [("rx07", "failed: eth1 is no interface of this machine"), ("rx14", "waiting: no packet has come for 3.0 s")]
    {
        fake.happen(Some(id), EventKind::State, why);
    }

    // Until it is ended.
    let begun = Instant::now();
    let mut lost = 7;
    loop {
        pictures.iter_mut().for_each(Picture::step);
        std::thread::sleep(Duration::from_millis(200));
        let seconds = begun.elapsed().as_secs_f64();
        lost += u64::from((seconds as u64).is_multiple_of(9));
        for id in ["rx01", "rx02", "rx03"] {
            fake.change(id, |receiver| {
                let Some(status) = &mut receiver.status else { return };
                status["seconds"] = seconds.into();
                if id == "rx03" {
                    status["lost"] = lost.into();
                }
                status["latency_us"]["mean"] = (400.0 + 80.0 * (seconds / 3.0).sin()).into();
                status["latency_us"]["max"] = (700.0 + 200.0 * (seconds / 2.0).cos()).into();
            });
        }
    }
}
