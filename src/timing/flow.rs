//! A flow with its legs: heads of packets in, measures out.

use super::align::{Aligner, Alignment, Clocks};
use super::ancillary::{self, Lines, Model};
use super::audio::{Audio, Packets};
use super::buckets::Tvd;
use super::frames::{self, Frames};
use super::learn::{self, Learned};
use super::schedule::{Pacing, Schedule, has_gapped};
use super::sequence::{Fate, Window};
use super::stamps::{Source, Trust};
use super::verdict::{self, Verdict};
use super::{Packet, Rules};
use crate::sdp::{self, Essence, Ratio, Scan, SenderType};
use crate::time::{MediaClock, Tai, VIDEO_CLOCK};

/// Packets of a leg that are kept until the flow is known: three frames of 2160p in packets of 1200 octets, and more.
const OPENING: usize = 1 << 16;

/// What a flow carries, as far as its timing is concerned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Subject {
    /// ST 2110-20 or ST 2110-22.
    Video(Picture),
    /// ST 2110-40.
    Ancillary {
        /// Frames a second.
        rate: Option<Ratio>,
        /// Lines of the picture that it belongs to.
        lines: Lines,
        /// `TM`.
        model: Option<Model>,
    },
    /// ST 2110-30 or -31.
    Audio {
        /// Of a channel in a packet.
        samples: Option<u32>,
    },
    /// Something else that is RTP.
    Other,
}

/// What the timing of video depends on; what is left open is learned from the first packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Picture {
    /// Frames a second.
    pub rate: Option<Ratio>,
    /// Pixels of a row, where that is sure.
    pub width: Option<u32>,
    /// Rows of the frame.
    pub height: u32,
    /// How it is scanned.
    pub scan: Option<Scan>,
    /// `TP`.
    pub sender_type: Option<SenderType>,
    /// `TROFF` in microseconds.
    pub troff_us: Option<u32>,
    /// `CMAX`.
    pub cmax: Option<u32>,
    /// `MAXUDP`, or 1460.
    pub max_udp: u32,
    /// ST 2110-22.
    pub compressed: bool,
}

impl Subject {
    /// As an SDP describes it.
    pub fn of(flow: &sdp::Flow) -> Subject {
        match &flow.essence {
            Essence::Video(v) => Subject::Video(Picture {
                rate: v.rate,
                width: Some(v.width),
                height: v.height,
                scan: Some(v.scan),
                sender_type: v.sender_type,
                troff_us: v.troff_us,
                cmax: v.cmax,
                max_udp: v.max_udp,
                compressed: false,
            }),
            Essence::CompressedVideo(v) => {
                let parameter = |name: &str| v.parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value);
                Subject::Video(Picture {
                    rate: v.rate,
                    width: None,
                    height: v.height.unwrap_or(1080),
                    scan: Some(v.scan),
                    sender_type: parameter("TP").and_then(|v| v.parse().ok()),
                    troff_us: parameter("TROFF").and_then(|v| v.parse().ok()),
                    cmax: parameter("CMAX").and_then(|v| v.parse().ok()),
                    max_udp: parameter("MAXUDP").and_then(|v| v.parse().ok()).unwrap_or(1460),
                    compressed: true,
                })
            }
            Essence::Audio(a) | Essence::Aes3(a) => Subject::Audio { samples: a.samples_per_packet },
            Essence::Ancillary(a) => Subject::Ancillary {
                rate: a.rate,
                lines: Lines::of(a.vpid_code, a.rate),
                model: a.transmission_model.as_deref().map(|tm| match tm {
                    "LLTM" => Model::LowLatency,
                    _ => Model::Compatible,
                }),
            },
            _ => Subject::Other,
        }
    }
}

/// The clock of an SDP's flow.
pub fn clock_of(flow: &sdp::Flow) -> MediaClock {
    let offset = match flow.media_clock {
        sdp::MediaClock::Direct { offset } => offset as u32,
        _ => 0,
    };
    MediaClock { rate: flow.clock_rate, offset }
}

/// The measures of a leg.
#[derive(Clone, Debug)]
pub enum Meter {
    /// Video, compressed video, ancillary data.
    Frames(Box<Frames>),
    /// Audio.
    Audio(Box<Audio>),
    /// Anything else.
    Packets(Box<Packets>),
    /// Frames of which none was whole, or whose rate is not known: why there are no measures.
    None(&'static str),
}

/// A leg that is still being learned, then measured.
#[derive(Clone, Debug)]
struct Leg {
    opening: Vec<(Packet, Fate)>,
    /// Changes of timestamp or field among them.
    runs: usize,
    meter: Option<Meter>,
    packets: u64,
    first: Tai,
    last: Tai,
}

/// A flow that is being measured.
#[derive(Clone, Debug)]
pub struct Flow {
    subject: Subject,
    clock: MediaClock,
    source: Source,
    rules: Rules,
    window: Window,
    legs: Vec<Leg>,
}

impl Flow {
    /// A flow with so many legs.
    pub fn new(subject: Subject, clock: MediaClock, legs: usize, source: Source, rules: Rules) -> Self {
        let leg = Leg { opening: Vec::new(), runs: 0, meter: None, packets: 0, first: Tai(0), last: Tai(0) };
        let legs = legs.max(1);
        Flow { subject, clock, source, rules, window: Window::new(legs), legs: vec![leg; legs] }
    }

    /// As an SDP describes it.
    pub fn of(flow: &sdp::Flow, source: Source, rules: Rules) -> Self {
        Flow::new(Subject::of(flow), clock_of(flow), flow.legs.len(), source, rules)
    }

    /// The same flow, of which nothing has been measured.
    pub fn anew(&self, source: Source) -> Self {
        Flow::new(self.subject, self.clock, self.legs.len(), source, self.rules)
    }
    /// From now on arrivals are stamped by somebody else, and all measures so far are judged as if they had been.
    pub fn set_source(&mut self, source: Source) {
        self.source = source;
    }

    /// A packet of the flow.
    #[inline]
    pub fn push(&mut self, p: &Packet) -> Fate {
        let fate = self.window.push(p);
        let index = usize::from(p.leg).min(self.legs.len() - 1);
        let Some(leg) = self.legs.get_mut(index) else { return fate };
        if leg.packets == 0 {
            leg.first = p.arrival;
        }
        leg.packets += 1;
        leg.last = leg.last.max(p.arrival);
        match &mut leg.meter {
            Some(Meter::Frames(frames)) => frames.push(p, fate),
            Some(Meter::Audio(audio)) => audio.push(p, fate),
            Some(Meter::Packets(packets)) => packets.push(p),
            Some(Meter::None(_)) => {}
            None => self.keep(index, p, fate),
        }
        fate
    }

    fn keep(&mut self, index: usize, p: &Packet, fate: Fate) {
        let Some(leg) = self.legs.get_mut(index) else { return };
        let changed =
            leg.opening.last().is_none_or(|(last, _)| (last.timestamp, last.second) != (p.timestamp, p.second));
        leg.runs += usize::from(changed);
        leg.opening.push((*p, fate));
        if leg.runs >= learn::ENOUGH || leg.opening.len() >= OPENING || !needs_frames(&self.subject) {
            self.begin(index);
        }
    }

    /// Takes up the measures of a leg, with what is known.
    fn begin(&mut self, index: usize) {
        let Some(leg) = self.legs.get_mut(index).filter(|l| l.meter.is_none()) else { return };
        let opening = std::mem::take(&mut leg.opening);
        let mut meter = meter(self.subject, self.clock, self.rules, &opening);
        for (p, fate) in &opening {
            match &mut meter {
                Meter::Frames(frames) => frames.push(p, *fate),
                Meter::Audio(audio) => audio.push(p, *fate),
                Meter::Packets(packets) => packets.push(p),
                Meter::None(_) => break,
            }
        }
        leg.meter = Some(meter);
    }

    /// The flow has ended.
    pub fn finish(&mut self) {
        self.window.finish();
        for index in 0..self.legs.len() {
            if self.packets(index) > 0 {
                self.begin(index);
            }
            match self.legs.get_mut(index).and_then(|l| l.meter.as_mut()) {
                Some(Meter::Frames(frames)) => frames.finish(),
                Some(Meter::Audio(audio)) => audio.finish(),
                _ => {}
            }
        }
    }

    /// Legs.
    pub fn legs(&self) -> usize {
        self.legs.len()
    }
    /// What it carries.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }
    /// How it is measured.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }
    /// Its RTP clock.
    pub fn clock(&self) -> MediaClock {
        self.clock
    }
    /// Sequence numbers: losses, copies, skew.
    pub fn window(&self) -> &Window {
        &self.window
    }
    /// Packets that came by a leg, copies and late ones too.
    pub fn packets(&self, leg: usize) -> u64 {
        self.legs.get(leg).map_or(0, |l| l.packets)
    }
    /// Arrival of a leg's first and last packet.
    pub fn span(&self, leg: usize) -> (Tai, Tai) {
        self.legs.get(leg).map_or((Tai(0), Tai(0)), |l| (l.first, l.last))
    }
    /// The measures of a leg; `None` while it is being learned.
    pub fn meter(&self, leg: usize) -> Option<&Meter> {
        self.legs.get(leg)?.meter.as_ref()
    }
    /// How the clocks of a leg lie, where timestamps have been measured.
    pub fn clocks(&self, leg: usize) -> Option<Clocks> {
        match self.meter(leg)? {
            Meter::Frames(frames) => Some(frames.aligner.clocks()),
            Meter::Audio(audio) => Some(audio.aligner.clocks()),
            Meter::Packets(packets) => Some(packets.aligner.clocks()),
            Meter::None(_) => None,
        }
    }
    /// Whether measures within frames may be shown.
    pub fn trust(&self, leg: usize) -> Option<Trust> {
        match self.meter(leg)? {
            Meter::Frames(frames) => Some(frames.stamps.trust(self.source, frames.spacing_ns())),
            Meter::Audio(audio) => Some(audio.stamps.trust(self.source, audio.packet_time_ns()?)),
            Meter::Packets(_) | Meter::None(_) => None,
        }
    }
    /// The verdict by ST 2110-21 on a leg of video.
    pub fn verdict(&self, leg: usize) -> Option<Verdict> {
        match self.meter(leg)? {
            Meter::Frames(frames) if frames.cinst.is_some() => Some(verdict::judge(frames, &self.trust(leg)?)),
            _ => None,
        }
    }
}

fn needs_frames(subject: &Subject) -> bool {
    matches!(subject, Subject::Video(_) | Subject::Ancillary { .. })
}

/// The clocks of the first packets, and what is to be added to their arrivals.
fn first_clocks(clock: MediaClock, opening: &[(Packet, Fate)]) -> (Alignment, i64) {
    let mut aligner = Aligner::new(clock);
    if let Some((p, _)) = opening.first() {
        aligner.add(p.timestamp, p.arrival);
    }
    let clocks = aligner.clocks();
    let shift = match clocks.alignment {
        // To the side on which both are TAI: 37 s.
        Alignment::Utc => -clocks.latency_ns.min.signum() * LEAP_NS,
        _ => 0,
    };
    (clocks.alignment, shift)
}

/// TAI - UTC since 2017.
const LEAP_NS: i64 = 37_000_000_000;

fn meter(subject: Subject, clock: MediaClock, rules: Rules, opening: &[(Packet, Fate)]) -> Meter {
    let (alignment, shift_ns) = first_clocks(clock, opening);
    let picture = match subject {
        Subject::Audio { samples } => return Meter::Audio(Box::new(Audio::new(clock, samples, shift_ns))),
        Subject::Other => return Meter::Packets(Box::new(Packets::new(clock))),
        Subject::Video(picture) => picture,
        Subject::Ancillary { rate, .. } => Picture {
            rate,
            width: None,
            height: 1080,
            // Fields and frames are of one kind here: their timestamps say how many come in a second.
            scan: Some(Scan::Progressive),
            sender_type: None,
            troff_us: None,
            cmax: None,
            max_udp: 1460,
            compressed: false,
        },
    };
    let video = matches!(subject, Subject::Video(_));
    let runs = learn::runs(opening.iter().filter_map(|(p, fate)| match fate {
        Fate::New(number) => Some((*p, *number)),
        Fate::Duplicate | Fate::Late => None,
    }));
    let Some(learned) = learn::learn(&runs, picture.scan) else {
        return Meter::None("there is no whole frame");
    };
    let rate = if video { picture.rate.or(learned.rate) } else { learned.rate.or(picture.rate) };
    let Some(rate) = rate else {
        return Meter::None("the frame rate is neither described nor that of the timestamps");
    };
    let Learned { scan, packets, second, first_whole, .. } = learned;
    let schedule = Schedule::new(rate, picture.height, scan, Pacing::Linear, packets, second, picture.troff_us);
    let Some(schedule) = schedule else { return Meter::None("the frame rate is zero") };
    let epoch = matches!(alignment, Alignment::Aligned | Alignment::Utc) && clock.rate == VIDEO_CLOCK;
    let mut rules = rules;
    rules.limits.cmax = rules.limits.cmax.or(picture.cmax);
    let config = frames::Config {
        clock,
        schedule,
        scan,
        max_udp: picture.max_udp,
        sender_type: picture.sender_type,
        cinst: video,
        vrx: video && !picture.compressed && (epoch || rules.tvd == Tvd::FirstPacket),
        compressed: picture.compressed,
        gapped: rules
            .limits
            .gapped
            .unwrap_or(picture.compressed || picture.width.is_none_or(|width| has_gapped(width, picture.height, scan))),
        due: None,
        epoch: epoch && rules.tvd == Tvd::Epoch,
        shift_ns,
        first_whole: first_whole || !video,
        rules,
    };
    let config = frames::Config { due: due(&subject, learned.rate, &config, opening), ..config };
    let first = opening.first().map(|(p, _)| p.arrival).unwrap_or_default();
    Meter::Frames(Box::new(Frames::new(config, first)))
}

/// When ancillary data is due. `stamped` is the rate of the timestamps, of which fields have two a frame; whether they are
/// fields, the first packets say.
fn due(
    subject: &Subject,
    stamped: Option<Ratio>,
    config: &frames::Config,
    opening: &[(Packet, Fate)],
) -> Option<ancillary::Timing> {
    let Subject::Ancillary { rate, lines, model } = *subject else { return None };
    let interlaced = lines.is_interlaced(opening.iter().filter_map(|(p, _)| Some((p.timestamp, p.ancillary?))));
    let (stamped, scan) = match interlaced {
        true => (stamped.and_then(learn::halved), Scan::Interlaced),
        false => (stamped, Scan::Progressive),
    };
    let rate = stamped.or(rate)?;
    let delay_ns = config.rules.limits.ancillary_delay_ns;
    config.epoch.then_some(ancillary::Timing { rate, scan, lines, model, delay_ns })
}
