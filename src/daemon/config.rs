//! What a daemon is told: TOML whose types are its manual.
//!
//! ```text
//! FILE, FILE.d/*.toml in order, GDMEDIA_TABLE__KEY  -->  [`Config`]  -->  receivers by their ids
//! ```
//!
//! `gdmedia daemon --print-config` prints every key with its meaning and default, from the declarations below.

mod load;
mod print;
pub(in crate::daemon) mod table;

pub use load::{Loaded, load};
pub use print::print;
pub use table::{Key, Table, Time, Word};

use super::api::Settings as Api;
use super::nmos::Settings as Nmos;
use crate::encode;
use crate::format::Output;
use crate::gpu::Choice;
use crate::merge::Class;
use crate::record::Limit;
use crate::sink::export;
use crate::worker::Policy;
use std::path::PathBuf;
use std::time::Duration;
use table::{table, words};

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The daemon itself.
    pub daemon: Daemon,
    /// Its API.
    pub api: Api,
    /// What it may take.
    pub limits: Limits,
    /// What it remembers.
    pub state: State,
    /// The daemon as an NMOS node.
    pub nmos: Nmos,
    /// What it receives.
    pub receivers: Vec<Receiver>,
}

table! {
    /// The daemon itself.
    pub struct Daemon {
        /// How long receivers have to leave their groups and to close their files when the daemon is told to end. systemd is told to
        /// wait so long too, whatever its TimeoutStopSec= says.
        stop_timeout: Time = Time(Duration::from_secs(30)), "\"30s\"";
        /// Between two statuses of a receiver, as in `gdmedia play --interval`.
        interval: Time = Time(Duration::from_secs(1)), "\"1s\"";
        /// A receiver is `waiting` when no frame has come for this time.
        silence: Time = Time(Duration::from_secs(2)), "\"2s\"";
        /// Hosts that SDPs may be fetched from (`sdp = "https://host/…"`), by name or address as in the URL; none by default.
        sdp_hosts: Vec<String> = Vec::new(), "[\"nmos.example.net\", \"10.0.0.7\"]";
        /// Certificates of CAs (PEM) that hosts of `https://` may have theirs from, besides those that this machine trusts:
        /// /etc/ssl/certs, or the file that SSL_CERT_FILE in the environment names.
        sdp_ca: Option<PathBuf> = None, "\"tls/facility-ca.pem\"";
        /// Sockets of ptp4l (`uds_address`, or better `uds_ro_address`), the first that answers counts; none: where linuxptp
        /// puts them.
        ptp4l: Vec<PathBuf> = Vec::new(), "[\"/run/ptp/ptp4lro\"]";
    }
}

table! {
    /// What the daemon may take.
    pub struct Limits {
        /// Receivers at most.
        receivers: usize = 64, "64";
        /// Memory for frames of all receivers together, in MiB; 0: as much as the machine has. A receiver that does not fit is tried
        /// again until it does; a switch that does not fit beside the flow before is refused.
        memory: usize = 0, "8192";
        /// Threads that receive: each steps several receivers where there are more of them. 0: one for each receiver.
        workers: usize = 0, "4";
        /// Cores for these threads, in turn; none: see `placement`. A receiver's own `core` goes first.
        cores: Vec<usize> = Vec::new(), "[2, 3, 4, 5]";
        /// Threads without a configured core: `auto` puts each on a core of the NUMA node of its network card (else of its GPU),
        /// where the machine has several nodes or this process has cores that are kept from the scheduler; `near` does so
        /// everywhere; `off` leaves them to the scheduler.
        placement: Placement = Placement::Auto, "\"auto\"";
    }
}

table! {
    /// What the daemon remembers.
    pub struct State {
        /// Folder for what each receiver was told last (another SDP, to start, to stop), so that it does so again after a restart;
        /// by default the one that systemd gives (StateDirectory=), else nothing is remembered.
        folder: Option<PathBuf> = None, "\"/var/lib/gdmedia\"";
    }
}

table! {
    /// A receiver: one SDP, one flow of it, and where its frames go. Its frames are only counted where it has no sink.
    pub struct Receiver {
        /// Its name in the API, in metrics and in logs: letters, digits, `-` and `_`; each one once.
        id: String = String::new(), "\"cam1\"";
        /// For people; the id where there is none.
        label: Option<String> = None, "\"Camera 1, studio A\"";
        /// Received from the beginning on; else when it is told to.
        enabled: bool = true, "true";
        /// SDP of the stream: a file (from the folder of this configuration), the text itself, or an http:// or https:// URL
        /// of a host in `daemon.sdp_hosts`. Without one it is stopped until somebody gives it one.
        sdp: Option<String> = None, "\"cam1.sdp\"";
        /// Which flow of the SDP, by its number (`gdmedia sdp` lists them); none: the only video flow.
        flow: Option<usize> = None, "0";
        /// Where packets come from: `auto`, `socket`, `xdp`, `rivermax`, `verbs` or `dpdk`, one for each leg; the last one counts for all further legs.
        backend: Vec<Backend> = vec![Backend::Auto], "[\"auto\"]";
        /// Network interfaces by name or address, one for each leg; the last one counts for all further legs.
        interfaces: Vec<String> = Vec::new(), "[\"eth1\", \"eth2\"]";
        /// Legs that its NMOS node shows: 1, or 2 for ST 2022-7; none: as many as it has `interfaces`, or its SDP legs.
        legs: Option<usize> = None, "2";
        /// What AF_XDP is told, as in `gdmedia play --xdp`.
        xdp: Option<String> = None, "\"mode=native,queue=3\"";
        /// What Rivermax is told, as in `gdmedia play --rivermax`.
        rivermax: Option<String> = None, "\"split=26\"";
        /// What ibverbs is told, as in `gdmedia play --verbs`.
        verbs: Option<String> = None, "\"cut=96\"";
        /// What DPDK is told, as in `gdmedia play --dpdk`.
        dpdk: Option<String> = None, "\"port=0000:3b:00.0\"";
        /// Core of the receiving thread; none: see `limits.cores`.
        core: Option<usize> = None, "2";
        /// Sleep of the receiving thread between two drains, 100 ms at most: packets wait meanwhile.
        sleep: Time = Time(Duration::from_millis(1)), "\"1ms\"";
        /// Socket buffer to ask for, in MiB.
        buffer: usize = 64, "64";
        /// Who stamps arrivals at sockets: `auto`, `software` or `hardware`.
        stamps: Stamps = Stamps::Auto, "\"auto\"";
        /// Seconds that TAI is ahead of UTC, where the kernel was not told; none: as PTP says, else 37.
        tai_offset: Option<i32> = None, "37";
        /// GPU that frames are unpacked on: `auto` (the nearest, else the CPU), `off`, `require`, or its number.
        gpu: Gpu = Gpu::default(), "\"off\"";
        /// GPU memory that the receiver may use at most, in MiB.
        gpu_memory: Option<usize> = None, "512";
        /// How far the legs may lie apart (ST 2022-7): class `A`, `B`, `C` or `D`, or a time such as `25ms`; none: `A`.
        redundancy: Option<Word<Class>> = None, "\"A\"";
        /// What to do with frames that lack octets: `conceal`, `show` or `drop`.
        incomplete: Incomplete = Incomplete::Conceal, "\"conceal\"";
        /// How long a flow that it is switched to has for its first whole frame; then the flow before is left all the same.
        /// 25 s at most: whoever asks for the switch waits 30 s for the answer.
        switch_timeout: Time = Time(Duration::from_secs(2)), "\"2s\"";
        /// Measure the sender's timing (ST 2110-21).
        timing: bool = false, "true";
        /// Layout of the frames in memory; none: what the sinks want.
        output: Option<Pixels> = None, "\"planar\"";
        /// Frames compressed into a file or a stream.
        encode: Option<Encode> = None, "";
        /// Frames as they are, in segments.
        record: Option<Record> = None, "";
        /// Pictures for the API and its page.
        preview: Option<Preview> = None, "";
        /// Frames in GPU memory for other processes.
        export: Option<Export> = None, "";
        /// Frames to GStreamer.
        gst: Option<Gst> = None, "";
        /// Frames one after the other, as y4m or raw.
        file: Option<File> = None, "";
    }
}

table! {
    /// Frames compressed into a file or a stream.
    pub struct Encode {
        /// Codec and options, as in `gdmedia play --encode`: h264, hevc, av1 or mjpeg.
        codec: Option<Word<encode::Spec>> = None, "\"h264,bitrate=20M\"";
        /// A file (.mp4, .mov, .mkv, .ts), srt://host:port or rtp://host:port. No file is written over: the next one gets a number.
        to: Option<Word<encode::Target>> = None, "\"/srv/cam1.mp4\"";
    }
}

table! {
    /// Frames as they are, in segments: what `gdmedia record` writes.
    pub struct Record {
        /// Its folder, which is there: a disk that is not mounted is not taken for one that is.
        folder: PathBuf = PathBuf::new(), "\"/srv/cam1\"";
        /// When a segment has enough: a size or a time.
        segment: Segment = Segment::default(), "\"10GiB\"";
        /// How it comes to the disk: `auto`, `cufile`, `uring` or `pwrite`.
        way: Way = Way::Auto, "\"auto\"";
    }
}

table! {
    /// Pictures for the API and its page.
    pub struct Preview {
        /// Columns of the live picture, about.
        width: u32 = 960, "960";
        /// Pictures a second at most, while somebody watches.
        rate: u32 = 15, "15";
    }
}

table! {
    /// Frames in GPU memory for other processes.
    pub struct Export {
        /// A socket that is made for it: cuda-ipc=PATH or dma-buf=PATH.
        to: Option<Word<export::Target>> = None, "\"cuda-ipc=/run/gdmedia/cam1\"";
    }
}

table! {
    /// Frames to GStreamer.
    pub struct Gst {
        /// A pipeline fragment, as in `gdmedia play --sink`.
        fragment: String = String::new(), "\"videoconvert ! fakesink\"";
    }
}

table! {
    /// Frames one after the other.
    pub struct File {
        /// Its name. No file is written over: the next one gets a number.
        path: PathBuf = PathBuf::new(), "\"/srv/cam1.y4m\"";
        /// `y4m` or `raw`; none: y4m where the name ends so, else raw.
        format: Option<FileFormat> = None, "\"y4m\"";
    }
}

words! {
    /// Where packets come from.
    pub enum Backend {
        /// The best that there is.
        Auto = "auto",
        /// UDP sockets.
        Socket = "socket",
        /// AF_XDP.
        Xdp = "xdp",
        /// NVIDIA Rivermax.
        Rivermax = "rivermax",
        /// ibverbs.
        Verbs = "verbs",
        /// DPDK.
        Dpdk = "dpdk",
    }
}

words! {
    /// Where threads are put that have no configured core.
    pub enum Placement {
        /// Near their cards, where cores differ.
        Auto = "auto",
        /// Near their cards.
        Near = "near",
        /// Where the scheduler puts them.
        Off = "off",
    }
}

words! {
    /// Who stamps arrivals at sockets.
    pub enum Stamps {
        /// The card where it does so, else the kernel.
        Auto = "auto",
        /// The kernel.
        Software = "software",
        /// The card.
        Hardware = "hardware",
    }
}

words! {
    /// What to do with frames that lack octets.
    pub enum Incomplete {
        /// Missing octets show what the frame before showed there.
        Conceal = "conceal",
        /// Missing octets are painted.
        Show = "show",
        /// Incomplete frames are not delivered.
        Drop = "drop",
    }
}

words! {
    /// Layout of frames in memory.
    pub enum Pixels {
        /// Octets as they came.
        Wire = "wire",
        /// One plane a component.
        Planar = "planar",
        /// See [`crate::format::Output::P010`].
        P010 = "p010",
        /// See [`crate::format::Output::P210`].
        P210 = "p210",
        /// See [`crate::format::Output::Nv12`].
        Nv12 = "nv12",
        /// See [`crate::format::Output::Uyvy`].
        Uyvy = "uyvy",
        /// See [`crate::format::Output::V210`].
        V210 = "v210",
        /// See [`crate::format::Output::Rgba`].
        Rgba = "rgba",
        /// Planes of R, G and B, half floats.
        Rgb16f = "rgb16f",
    }
}

words! {
    /// How a recording comes to the disk.
    pub enum Way {
        /// The best that there is.
        Auto = "auto",
        /// From memory of the GPU.
        Cufile = "cufile",
        /// io_uring with O_DIRECT.
        Uring = "uring",
        /// Through the page cache.
        Pwrite = "pwrite",
    }
}

words! {
    /// How frames lie in a file.
    pub enum FileFormat {
        /// YUV4MPEG2.
        Y4m = "y4m",
        /// No header.
        Raw = "raw",
    }
}

impl From<Placement> for Policy {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Auto => Policy::Auto,
            Placement::Near => Policy::Near,
            Placement::Off => Policy::Off,
        }
    }
}

impl From<Pixels> for Output {
    fn from(pixels: Pixels) -> Self {
        match pixels {
            Pixels::Wire => Output::Wire,
            Pixels::Planar => Output::Planar,
            Pixels::P010 => Output::P010,
            Pixels::P210 => Output::P210,
            Pixels::Nv12 => Output::Nv12,
            Pixels::Uyvy => Output::Uyvy,
            Pixels::V210 => Output::V210,
            Pixels::Rgba => Output::Rgba,
            Pixels::Rgb16f => Output::Rgb16f,
        }
    }
}

/// The GPU that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu(pub Choice);

impl Default for Gpu {
    fn default() -> Self {
        Gpu(Choice::Auto)
    }
}

/// When a segment has enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment(pub Limit);

impl<'de> serde::Deserialize<'de> for Gpu {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Word::deserialize(from).map(|Word(choice)| Gpu(choice))
    }
}
impl<'de> serde::Deserialize<'de> for Segment {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Word::deserialize(from).map(|Word(limit)| Segment(limit))
    }
}
impl table::Written for Gpu {
    fn written(&self) -> Option<String> {
        // It is the only default.
        Some("\"auto\"".into())
    }
}
impl table::Written for Segment {
    fn written(&self) -> Option<String> {
        Some("\"10GiB\"".into())
    }
}

impl Receiver {
    /// For people.
    pub fn name(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.id)
    }
    /// The same but for its SDP.
    pub fn is_like(&self, other: &Receiver) -> bool {
        let without = |r: &Receiver| Receiver { sdp: None, label: None, ..r.clone() };
        without(self) == without(other)
    }
}
