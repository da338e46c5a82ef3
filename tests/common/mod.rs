//! What the tests of the program share.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Raster of the test streams.
pub const WIDTH: u32 = 320;
pub const HEIGHT: u32 = 180;

pub struct Output {
    pub command: String,
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// The last line of NDJSON on standard error.
    pub fn summary(&self) -> serde_json::Value {
        let last = self
            .stderr
            .lines()
            .rev()
            .find(|l| l.starts_with('{'))
            .unwrap_or_else(|| panic!("no JSON:\n{}", self.stderr));
        let value: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(value["type"], "summary", "{}", self.stderr);
        value
    }
}

/// A program that is killed when the test ends.
pub struct Running(pub Child);

impl Running {
    /// gdmedia, without a display and a service manager.
    pub fn start(args: &[&str], stderr: Stdio) -> Running {
        Running::start_with(args, stderr, |_| {})
    }
    pub fn start_with(args: &[&str], stderr: Stdio, more: impl FnOnce(&mut Command)) -> Running {
        let mut command = Command::new(program());
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").env_remove("NOTIFY_SOCKET");
        more(&mut command);
        Running(command.spawn().unwrap())
    }
    pub fn tell(&self, signal: &str) {
        assert!(Command::new("kill").args(["-s", signal, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program that these tests were built with, or the one that `GDMEDIA_PROGRAM` names: a build with other features.
pub fn program() -> &'static str {
    static PROGRAM: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        std::env::var("GDMEDIA_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_gdmedia").into())
    });
    &PROGRAM
}

/// The program was built with a feature.
pub fn has_feature(name: &str) -> bool {
    let version = gdmedia(&["--version"]).stdout;
    let features = version.lines().find_map(|line| line.strip_prefix("features: ")).expect("a line of features");
    features.split(", ").any(|feature| feature == name)
}

/// Runs the program without a display.
pub fn gdmedia(args: &[&str]) -> Output {
    run(Command::new(program()).args(args))
}

pub fn shell(script: &str) -> Output {
    run(Command::new("bash").args(["-c", script]))
}

/// What came of a command, once it has ended.
pub fn run(command: &mut Command) -> Output {
    let output = command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").output().unwrap();
    Output {
        command: format!("{command:?}"),
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A folder that goes away with the test.
pub struct Temp(tempfile::TempDir);

pub fn temp() -> Temp {
    Temp(tempfile::tempdir().unwrap())
}

impl Temp {
    pub fn path(&self) -> &Path {
        self.0.path()
    }
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    pub fn write(&self, name: &str, content: &str) -> String {
        let path = self.join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// A description of a small stream to this machine.
pub fn sdp(port: u16) -> String {
    format!(
        "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=test\r\nt=0 0\r\nm=video {port} RTP/AVP 96\r\nc=IN IP4 127.0.0.1\r\n\
         a=rtpmap:96 raw/90000\r\na=fmtp:96 sampling=YCbCr-4:2:2; width={WIDTH}; height={HEIGHT}; exactframerate=25; \
         depth=10; TCS=SDR; colorimetry=BT709; PM=2110GPM; SSN=ST2110-20:2017; TP=2110TPN\r\n\
         a=ts-refclk:localmac=40-A3-6B-A0-2B-D2\r\na=mediaclk:direct=0\r\n"
    )
}

/// A port that nobody uses at the moment.
pub fn free_port() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes a test stream to `port` into a capture; the path of its SDP.
pub fn send_to_pcap(capture: &Path, port: u16, args: &[&str]) -> String {
    let stream = capture.with_extension("sdp").to_str().unwrap().to_owned();
    std::fs::write(&stream, sdp(port)).unwrap();
    let fixed = ["send", "--to", capture.to_str().unwrap(), "--sdp", &stream];
    let output = gdmedia(&[&fixed[..], args].concat());
    assert_eq!(output.code, 0, "{}", output.stderr);
    stream
}
