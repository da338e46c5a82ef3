//! A sender of known pictures and a receiver that applies plans by plain copying, for tests of the depacketiser.
#![allow(dead_code)]

use gdmedia::depacketise::{Config, Depacketiser, Packet};
use gdmedia::format::WireFormat;
use gdmedia::packetise::{Cut, Packetiser, STANDARD_UDP, Source, Style};
use gdmedia::plan::{Fate, FrameEnd, MAX_OPEN, Missing, Plan, Step};
use gdmedia::sdp::{Depth, Ratio, Sampling, Scan};
use gdmedia::stats::PacketCounters;
use gdmedia::time::{Tai, VIDEO_CLOCK, frame_nanos, frame_ticks, half_frame_ticks};

pub const RATE: Ratio = Ratio { num: 30000, den: 1001 };
/// What a frame's memory holds before anything is placed in it; no picture has this octet.
pub const STALE: u8 = 0xee;
/// A frame of 2023-11-14.
const FIRST_FRAME: u64 = 50_949_052_061;

pub fn format(sampling: Sampling, depth: Depth, width: u32, height: u32, scan: Scan) -> WireFormat {
    WireFormat::new(sampling, depth, width, height, scan).unwrap()
}

/// Formats that differ in all that matters for placement: pgroup, row pairs, width that is no whole number of pgroups.
pub fn formats(scan: Scan) -> Vec<WireFormat> {
    let list = [
        (Sampling::YCbCr422, Depth::D10, 64, 32),
        (Sampling::YCbCr422, Depth::D8, 360, 16),
        (Sampling::Rgb, Depth::D8, 37, 33),
        (Sampling::YCbCr444, Depth::D10, 61, 34),
        (Sampling::YCbCr444, Depth::F16, 300, 12),
        (Sampling::YCbCr420, Depth::D10, 66, 50),
        (Sampling::Key, Depth::D12, 33, 40),
    ];
    list.into_iter().filter_map(|(s, d, w, h)| WireFormat::new(s, d, w, h, scan)).collect()
}

pub const EVEN: Cut = Cut::Even { udp: STANDARD_UDP };

/// The cuts that suit a format.
pub fn cuts(format: WireFormat) -> Vec<Cut> {
    let all = [
        EVEN,
        Cut::Full { udp: 300, segments: 1 },
        Cut::Full { udp: 400, segments: 3 },
        Cut::Bpm { fill: false },
        Cut::Bpm { fill: true },
    ];
    all.into_iter().filter(|c| Packetiser::new(format, Style::new(*c), 0).is_some()).collect()
}

/// The picture of frame `n`: every octet depends on its place and on `n`.
pub fn picture(format: WireFormat, n: usize) -> Vec<u8> {
    (0..format.frame_octets() as usize).map(|at| ((at * 31 + at / 97 + n * 57) % 229) as u8).collect()
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Sent {
    pub octets: Vec<u8>,
    pub present: usize,
    pub arrival: Tai,
    pub frame: usize,
    pub sources: Vec<Source>,
    pub marker: bool,
    pub leg: u8,
}

impl Sent {
    pub fn field(&self) -> bool {
        self.octets[16] & 0x80 != 0
    }
    pub fn set_timestamp(&mut self, timestamp: u32) {
        self.octets[4..8].copy_from_slice(&timestamp.to_be_bytes());
    }
    pub fn timestamp(&self) -> u32 {
        u32::from_be_bytes(self.octets[4..8].try_into().unwrap())
    }
    pub fn set_marker(&mut self, marker: bool) {
        self.octets[1] = self.octets[1] & 0x7f | u8::from(marker) << 7;
    }
    pub fn set_ssrc(&mut self, ssrc: u32) {
        self.octets[8..12].copy_from_slice(&ssrc.to_be_bytes());
    }
    pub fn set_sequence(&mut self, sequence: u32) {
        self.octets[2..4].copy_from_slice(&(sequence as u16).to_be_bytes());
        self.octets[12..14].copy_from_slice(&((sequence >> 16) as u16).to_be_bytes());
    }
    pub fn sequence(&self) -> u32 {
        u32::from(self.octets[12]) << 24
            | u32::from(self.octets[13]) << 16
            | u32::from(self.octets[2]) << 8
            | u32::from(self.octets[3])
    }
}

/// A sender that is aligned with the epoch.
pub struct Sender {
    pub format: WireFormat,
    pub packetiser: Packetiser,
    /// Added to every timestamp.
    pub offset: u32,
    /// Number of the next frame, and the frame since the epoch of frame 0.
    pub next: usize,
    pub epoch_frame: u64,
}

impl Sender {
    pub fn new(format: WireFormat, style: Style, sequence: u32) -> Self {
        let packetiser = Packetiser::new(format, style, sequence).unwrap();
        Sender { format, packetiser, offset: 0, next: 0, epoch_frame: FIRST_FRAME }
    }
    pub fn plain(format: WireFormat, cut: Cut) -> Self {
        Self::new(format, Style::new(cut), 65_500)
    }
    pub fn timestamps(&self, n: usize) -> [u32; 2] {
        let first = (frame_ticks(self.epoch_frame + n as u64, RATE, VIDEO_CLOCK) as u32).wrapping_add(self.offset);
        let half = if self.format.scan == Scan::Interlaced { half_frame_ticks(RATE, VIDEO_CLOCK) } else { 0 };
        [first, first.wrapping_add(half)]
    }
    pub fn start_of(&self, n: usize) -> Tai {
        let ticks = frame_ticks(self.epoch_frame + n as u64, RATE, VIDEO_CLOCK);
        Tai((u128::from(ticks) * 1_000_000_000 / 90_000) as u64 + 600_000)
    }
    /// The packets of the next frame.
    pub fn frame(&mut self) -> Vec<Sent> {
        let n = self.next;
        self.next += 1;
        let picture = picture(self.format, n);
        let [first, second] = self.timestamps(n);
        let start = self.start_of(n);
        let step = frame_nanos(RATE) * 9 / 10 / u64::from(self.packetiser.packets_per_frame());
        let build = |(k, built): (usize, gdmedia::packetise::Built)| {
            let mut octets = vec![];
            built.append(&picture, &mut octets);
            Sent {
                present: octets.len(),
                octets,
                arrival: Tai(start.0 + k as u64 * step),
                frame: n,
                sources: built.sources().to_vec(),
                marker: built.marker,
                leg: 0,
            }
        };
        self.packetiser.frame(first, second).enumerate().map(build).collect()
    }
    pub fn frames(&mut self, count: usize) -> Vec<Sent> {
        (0..count).flat_map(|_| self.frame()).collect()
    }
}

/// A frame as it came out.
#[derive(Clone, Debug)]
pub struct Out {
    pub octets: Vec<u8>,
    pub end: FrameEnd,
    pub missing: Vec<Missing>,
}

impl Out {
    pub fn missing_octets(&self) -> u32 {
        self.missing.iter().map(|m| m.len).sum()
    }
}

pub struct Receiver {
    pub format: WireFormat,
    pub dep: Depacketiser,
    open: Vec<Option<Vec<u8>>>,
    pub out: Vec<Out>,
    pub batch: usize,
}

impl Receiver {
    pub fn new(format: WireFormat) -> Self {
        Self::with(Config::new(format, 96, Some(RATE)))
    }
    pub fn with(config: Config) -> Self {
        let format = config.format;
        Receiver { format, dep: Depacketiser::video(config), open: vec![None; MAX_OPEN], out: vec![], batch: 7 }
    }
    pub fn feed(&mut self, packets: &[Sent]) {
        for batch in packets.chunks(self.batch) {
            let plan = self.dep.push(batch.iter().enumerate().map(|(slot, p)| Packet {
                slot: slot as u32,
                head: &p.octets[..p.present],
                octets: p.present as u16,
                wire_octets: p.octets.len() as u16,
                arrival: p.arrival,
                leg: p.leg,
            }));
            apply(plan, batch, self.format, &mut self.open, &mut self.out);
            self.dep.check_invariants();
        }
    }
    pub fn idle(&mut self, now: Tai) {
        apply(self.dep.idle(now), &[], self.format, &mut self.open, &mut self.out);
        self.dep.check_invariants();
    }
    pub fn finish(&mut self) -> PacketCounters {
        apply(self.dep.finish(), &[], self.format, &mut self.open, &mut self.out);
        self.dep.check_invariants();
        assert!(self.open.iter().all(Option::is_none), "a frame was left open");
        self.dep.counters()
    }
    /// Frames that a viewer would see.
    pub fn shown(&self) -> Vec<&Out> {
        self.out.iter().filter(|o| o.end.fate != Fate::Acquiring).collect()
    }
}

fn apply(plan: &Plan, batch: &[Sent], format: WireFormat, open: &mut [Option<Vec<u8>>], out: &mut Vec<Out>) {
    for step in &plan.steps {
        match step {
            Step::Open(id) => {
                let slot = &mut open[usize::from(id.0)];
                assert!(slot.is_none(), "opened twice");
                *slot = Some(vec![STALE; format.frame_octets() as usize]);
            }
            Step::Place(id, range) => {
                let frame = open[usize::from(id.0)].as_mut().expect("placed in a closed frame");
                for p in &plan.placements[range.start as usize..range.end as usize] {
                    let packet = &batch[p.slot as usize];
                    let (src, dst, len) = (usize::from(p.src), p.dst as usize, usize::from(p.len));
                    assert!(src + len <= packet.present);
                    frame[dst..dst + len].copy_from_slice(&packet.octets[src..src + len]);
                }
            }
            Step::Close(id, end) => {
                let octets = open[usize::from(id.0)].take().expect("closed twice");
                let missing = plan.missing[end.missing.start as usize..end.missing.end as usize].to_vec();
                out.push(Out { octets, end: end.clone(), missing });
            }
        }
    }
}

/// The frame holds `picture`, except for what its loss map says, which nobody has touched.
pub fn check(out: &Out, picture: &[u8], format: WireFormat) {
    let row = format.row_octets() as usize;
    let mut missing = vec![false; picture.len()];
    for m in &out.missing {
        let at = m.row as usize * row + m.octet as usize;
        missing[at..at + m.len as usize].fill(true);
    }
    for (at, (got, sent)) in out.octets.iter().zip(picture).enumerate() {
        let expected = if missing[at] { STALE } else { *sent };
        assert_eq!(*got, expected, "octet {at} of row {}, missing: {}", at / row, missing[at]);
    }
}

/// Every frame came, whole and right, numbered from `first` on.
pub fn check_all(r: &Receiver, first: usize, count: usize) {
    let shown = r.shown();
    assert_eq!(shown.len(), count, "{:?}", r.out.iter().map(|o| (o.end.fate, o.end.timestamp)).collect::<Vec<_>>());
    for (n, out) in shown.iter().enumerate() {
        assert_eq!(out.end.fate, Fate::Complete);
        check(out, &picture(r.format, first + n), r.format);
    }
}

/// Which octets of the frame `lost` packets held.
pub fn octets_of<'a>(lost: impl IntoIterator<Item = &'a Sent>) -> u32 {
    lost.into_iter().flat_map(|p| &p.sources).map(|s| u32::from(s.len)).sum()
}
