//! A capture from beginning to end: its flows found, what they carry guessed or described, each of them measured.
//! One pass in constant memory, whatever the capture's size.
//!
//! ```no_run
//! # fn main() -> gdmedia::error::Result<()> {
//! use gdmedia::analyze::{Options, analyze};
//! let mut capture = gdmedia::wire::capture::Capture::open_ahead("a.pcap".as_ref())?;
//! let analysis = analyze(&mut capture, &Options::default(), &mut |_| true)?;
//! println!("{}", analysis.report().verdict_text());
//! # Ok(())
//! # }
//! ```

mod checks;
mod clocks;
mod figures;
mod pairs;
mod report;
mod track;

pub use clocks::{Master, PtpSeen};
pub use pairs::{Pair, Samples};
pub use track::{Analysed, LegSeen};

use crate::error::Result;
use crate::rx::survey::Ends;
use crate::sdp;
use crate::time::Tai;
use crate::timing::{Rules, Source};
use crate::wire::capture::{self, Capture};
use crate::wire::net::{self, Content, Link};
use std::collections::HashMap;
use std::io::Read;
use track::{Pending, Seen, Track};

/// Pairs of addresses that are told apart at most; a port scan has more.
const MAX_TRACKS: usize = 4096;
/// Flows that are measured at most.
const MAX_FLOWS: usize = 256;
/// Records between two calls of the progress function.
const PROGRESS: u64 = 1 << 14;

/// How to analyse.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is expected in the capture.
    pub flows: Vec<sdp::Flow>,
    /// Who stamped the packets.
    pub source: Source,
    /// How buckets are reckoned, and limits.
    pub rules: Rules,
    /// Seconds that are added to the capture's times to make them TAI: 37 where its clock is known to be UTC.
    pub tai_offset: i64,
}

/// What a capture holds.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The capture's name.
    pub name: String,
    /// How it was analysed.
    pub options: Options,
    /// The SDP's flows first, whether or not they came; then the others, in the order of their first packets.
    pub flows: Vec<Analysed>,
    /// Flows that are probably legs of one, among those that nothing describes.
    pub pairs: Vec<Pair>,
    /// PTP on the same network.
    pub ptp: PtpSeen,
    /// What was met in the file.
    pub capture: capture::Counters,
    /// Octets of the file, decompressed.
    pub octets: u64,
    /// First and last record.
    pub span: (Tai, Tai),
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Frames whose headers contradict each other or are cut.
    pub malformed: u64,
    /// Frames that are neither UDP nor PTP.
    pub other: u64,
    /// UDP packets that are not RTP, RTCP among them.
    pub not_rtp: u64,
    /// Packets of flows beyond those that are told apart, or measured.
    pub beyond: u64,
    /// It was ended before the end of the file.
    pub stopped: bool,
    /// Why what lies behind could not be read.
    pub damaged: Option<String>,
}

/// Looks through a capture. `progress` gets the octets that have been passed, and says whether to go on.
///
/// # Errors
/// The file cannot be read, or is damaged before its first record. What was read before a later one counts, see
/// [`Analysis::damaged`].
pub fn analyze<R: Read>(
    capture: &mut Capture<R>,
    options: &Options,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Analysis> {
    let mut walk = Walk::new(options);
    let offset = options.tai_offset.saturating_mul(1_000_000_000);
    let mut records = 0u64;
    let mut stopped = false;
    let mut damaged = None;
    loop {
        let record = match capture.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(error) if records == 0 => return Err(error),
            Err(error) => {
                damaged = Some(error.in_one_line());
                break;
            }
        };
        let arrival = Tai(record.time.saturating_add_signed(offset));
        walk.record(arrival, record.link, record.octets, record.wire_octets);
        records += 1;
        if records.is_multiple_of(PROGRESS) && !progress(capture.position()) {
            stopped = true;
            break;
        }
    }
    progress(capture.position());
    let analysis = walk.finish(capture.name(), capture.counters(), capture.position());
    Ok(Analysis { stopped, damaged, ..analysis })
}

/// What is known while a capture passes.
struct Walk<'a> {
    options: &'a Options,
    tracks: Vec<Track>,
    index: HashMap<Ends, usize>,
    /// Most packets are of the flow of the one before.
    last: Option<(Ends, usize)>,
    flows: Vec<Analysed>,
    pending: Pending,
    ptp: PtpSeen,
    span: Option<(Tai, Tai)>,
    fragments: u64,
    malformed: u64,
    other: u64,
    beyond: u64,
}

impl<'a> Walk<'a> {
    fn new(options: &'a Options) -> Self {
        let described = |flow: &sdp::Flow| Analysed::described(flow, options);
        Walk {
            options,
            tracks: Vec::new(),
            index: HashMap::new(),
            last: None,
            flows: options.flows.iter().take(MAX_FLOWS).map(described).collect(),
            pending: Pending::default(),
            ptp: PtpSeen::default(),
            span: None,
            fragments: 0,
            malformed: 0,
            other: 0,
            beyond: 0,
        }
    }

    fn record(&mut self, arrival: Tai, link: Link, octets: &[u8], wire_octets: u32) {
        let span = self.span.get_or_insert((arrival, arrival));
        *span = (span.0.min(arrival), span.1.max(arrival));
        match net::parse(link, octets) {
            Content::Udp(d) => {
                let ends = Ends::Udp(d.source, d.destination);
                let payload = octets.get(d.payload).unwrap_or_default();
                if matches!(d.destination.port(), 319 | 320) && self.ptp.message(arrival, payload) {
                    return;
                }
                let Some(at) = self.track(ends) else { return };
                let seen = Seen { arrival, octets: payload, wire_octets: d.octets };
                let Some(track) = self.tracks.get_mut(at) else { return };
                if track.packet(&seen, &mut self.flows, &mut self.pending) {
                    self.settle(at);
                }
            }
            Content::Ptp(range) => {
                let cut = octets.len() < wire_octets as usize;
                if !self.ptp.message(arrival, octets.get(range).unwrap_or_default()) && !cut {
                    self.malformed += 1;
                }
            }
            Content::Fragment => self.fragments += 1,
            Content::Other => self.other += 1,
            Content::Malformed => self.malformed += 1,
        }
    }

    fn track(&mut self, ends: Ends) -> Option<usize> {
        if let Some((last, at)) = self.last
            && last == ends
        {
            return Some(at);
        }
        let known = self.tracks.len();
        let at = match self.index.get(&ends) {
            Some(at) => *at,
            None if known == MAX_TRACKS => {
                self.beyond += 1;
                return None;
            }
            None => {
                self.index.insert(ends, known);
                self.tracks.push(Track::new(ends, &mut self.flows));
                known
            }
        };
        self.last = Some((ends, at));
        Some(at)
    }

    /// Enough is known of a track to say what it carries.
    fn settle(&mut self, at: usize) {
        let Some(track) = self.tracks.get_mut(at) else { return };
        let room = self.flows.len() < MAX_FLOWS;
        self.beyond += track.settle(&mut self.flows, &mut self.pending, self.options, room);
    }

    fn finish(mut self, name: &str, capture: capture::Counters, octets: u64) -> Analysis {
        (0..self.tracks.len()).for_each(|at| self.settle(at));
        let not_rtp = self.tracks.iter().map(Track::not_rtp).sum();
        self.tracks.into_iter().for_each(|t| t.finish(&mut self.flows));
        self.flows.iter_mut().for_each(Analysed::finish);
        let pairs = pairs::find(&self.flows);
        Analysis {
            name: name.to_owned(),
            options: self.options.clone(),
            flows: self.flows,
            pairs,
            ptp: self.ptp,
            capture,
            octets,
            span: self.span.unwrap_or_default(),
            fragments: self.fragments,
            malformed: self.malformed,
            other: self.other,
            not_rtp,
            beyond: self.beyond,
            stopped: false,
            damaged: None,
        }
    }
}
