//! What is known without the pipeline: which packets came, what they say, and what a frame made of them may hold.

use super::Setup;
use super::sender::{Packet, Picture};
use crate::depacketise::Depacketiser;
use crate::format::WireFormat;
use crate::frame::Frame;
use crate::pipeline::Incomplete;
use crate::sdp::Scan;
use crate::stats::{FrameCounters, RxCounters};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Octets that a packet brought for a place of a frame.
struct Write {
    at: usize,
    octets: Vec<u8>,
    /// The picture that they are of; none where somebody changed them or made them up.
    of: Option<Picture>,
}

pub(super) struct Model {
    format: WireFormat,
    policy: Incomplete,
    benign: bool,
    /// What was brought, by field and RTP timestamp.
    writes: HashMap<(bool, u32), Vec<Write>>,
    /// Rows may be numbered in another way than they were sent.
    renumbered: bool,
    /// Packets that the receiver was given.
    given: u64,
    /// Frames that came out, and the number of the last one.
    out: u64,
    last: Option<u64>,
    previous: Option<Frame>,
    complete: BTreeSet<Picture>,
    /// The sink keeps frames, now or ever.
    pub keeps: bool,
    kept: bool,
    /// Pipelines were taken apart, and what was being filled with them.
    rebuilt: bool,
    /// Each leg has a receiver of its own.
    apart: bool,
    /// Of each picture: the numbers of its packets; and the numbers that came.
    pictures: BTreeMap<Picture, BTreeSet<u64>>,
    came: BTreeSet<u64>,
    /// Of each leg, in benign programs.
    legs: Vec<Leg>,
    /// Datagrams of each leg.
    datagrams: Vec<u64>,
}

/// What a leg has brought.
#[derive(Clone, Default)]
struct Leg {
    came: BTreeSet<u64>,
    used: u64,
    copies: u64,
}

impl Model {
    pub fn new(setup: &Setup) -> Self {
        Model {
            format: setup.format,
            policy: setup.policy,
            benign: setup.benign,
            writes: HashMap::new(),
            renumbered: false,
            given: 0,
            out: 0,
            last: None,
            previous: None,
            complete: BTreeSet::new(),
            keeps: false,
            kept: false,
            rebuilt: false,
            apart: setup.apart,
            pictures: BTreeMap::new(),
            came: BTreeSet::new(),
            legs: vec![Leg::default(); setup.legs.into()],
            datagrams: vec![0; setup.legs.into()],
        }
    }

    /// A sender has sent a packet.
    pub fn sent(&mut self, packet: &Packet) {
        if let (true, Some(of)) = (self.benign, packet.of) {
            self.pictures.entry(of).or_default().insert(packet.number);
        }
    }

    /// A packet has come to the receiver.
    pub fn arrived(&mut self, packet: &Packet, leg: u8) {
        self.given += 1;
        let leg = usize::from(leg);
        self.datagrams[leg] += 1;
        if self.benign {
            let first = self.came.insert(packet.number);
            let leg = &mut self.legs[leg];
            if leg.came.insert(packet.number) {
                leg.used += u64::from(first);
            } else {
                leg.copies += 1;
            }
        }
        // A marker in a row where no frame ends may show that rows are numbered in another way.
        self.renumbered |= packet.of.is_none() && packet.has_marker();
        let Some((timestamp, segments)) = read(&self.format, &packet.octets, packet.present) else { return };
        for segment in segments {
            let octets = packet.octets[segment.from..segment.from + segment.len].to_vec();
            let write = Write { at: segment.at, octets, of: packet.of };
            self.writes.entry((segment.field, timestamp)).or_default().push(write);
        }
    }

    /// The first packet of all is the last one that came.
    pub const fn has_one(&self) -> bool {
        self.given == 1
    }

    /// A frame has come out.
    pub fn delivered(&mut self, frame: &Frame) {
        let meta = frame.meta();
        self.out += 1;
        self.kept |= self.keeps;
        assert!(self.last.is_none_or(|last| meta.number > last), "frame {} after {:?}", meta.number, self.last);
        self.last = Some(meta.number);
        assert_eq!(meta.complete, meta.missing.is_empty(), "{meta:?}");
        assert!(meta.complete || self.policy != Incomplete::Drop, "an incomplete frame was delivered");
        assert!(!meta.torn && meta.first_arrival <= meta.last_arrival, "{meta:?}");
        let octets = &frame.octets()[..self.format.frame_octets() as usize];
        let missing = self.loss_map(frame);
        if !self.renumbered {
            self.octets_are_of_one_picture(frame, octets, &missing);
        }
        if let (Incomplete::Conceal, Some(previous)) = (self.policy, &self.previous) {
            let wrong = |at: &usize| missing[*at] && octets[*at] != previous.octets()[*at];
            assert_eq!((0..octets.len()).find(wrong), None, "a hole does not show the frame before");
        }
        self.previous = (self.policy == Incomplete::Conceal).then(|| frame.clone());
    }

    /// Which octets a frame says are missing: runs in order that do not touch, inside the rows.
    fn loss_map(&self, frame: &Frame) -> Vec<bool> {
        let row_octets = self.format.row_octets();
        let mut missing = vec![false; self.format.frame_octets() as usize];
        let mut end = 0;
        for (n, run) in frame.meta().missing.iter().enumerate() {
            assert!(run.len > 0 && run.octet + run.len <= row_octets && run.row < self.format.rows(), "{run:?}");
            let at = run.row * row_octets + run.octet;
            assert!(n == 0 || at > end || (at == end && run.octet == 0), "{:?}", frame.meta().missing);
            end = at + run.len;
            missing[at as usize..end as usize].fill(true);
        }
        missing
    }

    /// Each octet that is not missing was brought by a packet of the frame, and all of them are of one picture, but where
    /// somebody changed them.
    fn octets_are_of_one_picture(&mut self, frame: &Frame, octets: &[u8], missing: &[bool]) {
        let meta = frame.meta();
        let row_octets = self.format.row_octets() as usize;
        let stamps = BTreeSet::from([meta.timestamp, meta.second_timestamp.unwrap_or(meta.timestamp)]);
        let all = [false, true].iter().flat_map(|field| stamps.iter().map(|stamp| (*field, *stamp)));
        // Of each octet: was it brought as it is, of this picture, or by a packet of nobody?
        let mut honest: BTreeMap<Picture, Vec<bool>> = BTreeMap::new();
        let mut forged = vec![false; octets.len()];
        for write in all.filter_map(|key| self.writes.get(&key)).flatten() {
            let brought = match write.of {
                Some(of) => honest.entry(of).or_insert_with(|| vec![false; octets.len()]),
                None => &mut forged,
            };
            let places = write.at..write.at + write.octets.len();
            let same = octets[places.clone()].iter().zip(&write.octets).map(|(is, octet)| is == octet);
            brought[places].iter_mut().zip(same).for_each(|(brought, same)| *brought |= same);
        }
        let present = || (0..octets.len()).filter(|at| !missing[*at]);
        let nobody = present().find(|at| !forged[*at] && !honest.values().any(|brought| brought[*at]));
        let place = nobody.map(|at| (at / row_octets, at % row_octets));
        assert_eq!(place, None, "row and octet that nobody sent: {meta:?}");
        let mut whole = honest.iter().filter(|(_, brought)| present().all(|at| forged[at] || brought[at]));
        let of = whole.next().map(|(of, _)| of);
        let all_forged = || present().all(|at| forged[at]);
        assert!(of.is_some() || all_forged(), "octets of several pictures, {:?}: {meta:?}", honest.keys());
        if let (true, Some(of)) = (meta.complete, of) {
            self.complete.insert(*of);
        }
    }

    /// What the pipeline has counted after a step; `waiting` packets have not been taken yet.
    pub fn counted(&self, waiting: usize, rx: RxCounters, depacketiser: &Depacketiser, frames: FrameCounters) {
        let taken = self.given - waiting as u64;
        assert_eq!(rx.datagrams, taken, "{rx:?}");
        let (packets, legs) = (depacketiser.counters(), depacketiser.legs());
        let brought: u64 = legs.iter().map(|leg| leg.datagrams).sum();
        assert_eq!(brought, taken, "{legs:?}");
        for leg in &legs {
            let once = leg.received + leg.duplicate + leg.late;
            assert!(once <= leg.datagrams, "{leg:?}");
            assert_eq!(leg.used + leg.redundant, leg.received, "{leg:?}");
            assert!(once + leg.foreign + packets.rejected.total() >= leg.datagrams, "{leg:?}");
        }
        let used: u64 = legs.iter().map(|leg| leg.used).sum();
        assert_eq!(used, packets.received, "each packet was brought first by one leg: {legs:?}, {packets:?}");
        let closed = frames.complete + frames.incomplete;
        assert_eq!(self.out + frames.dropped + frames.withheld, closed, "{frames:?}");
        assert!(self.kept || self.rebuilt || frames.dropped == 0, "there was memory: {frames:?}");
        assert!(frames.windows == 0 && frames.torn == 0, "{frames:?}");
    }

    /// Another pipeline goes on.
    pub fn rebuilt(&mut self) {
        (self.rebuilt, self.previous) = (true, None);
    }

    /// Nothing more will come.
    pub fn finished(&self, depacketiser: &Depacketiser, frames: FrameCounters) {
        let (packets, legs) = (depacketiser.counters(), depacketiser.legs());
        for (leg, datagrams) in legs.iter().zip(&self.datagrams) {
            assert_eq!(leg.datagrams, *datagrams, "{legs:?}");
        }
        let (true, Some(first), Some(last)) = (self.benign, self.came.first(), self.came.last()) else { return };
        let (sent, received) = (last - first + 1, self.came.len() as u64);
        assert_eq!((packets.received, packets.lost), (received, sent - received), "{packets:?}");
        assert_eq!((packets.late, packets.restarts, packets.rejected.total()), (0, 0, 0), "{packets:?}");
        assert_eq!(packets.duplicate, self.legs.iter().map(|leg| leg.copies).sum::<u64>(), "{packets:?}");
        for (is, leg) in legs.iter().zip(&self.legs) {
            let received = leg.came.len() as u64;
            assert_eq!(is.received, received, "{legs:?}");
            // Receivers are polled in turn, which need not be the order of arrival.
            if !self.apart {
                assert_eq!((is.used, is.redundant), (leg.used, received - leg.used), "{legs:?}");
            }
            assert_eq!((is.lost, is.duplicate, is.late), (sent - received, leg.copies, 0), "{legs:?}");
        }
        if self.policy == Incomplete::Drop || self.renumbered {
            return;
        }
        let whole = self.pictures.iter().filter(|(_, numbers)| numbers.is_subset(&self.came));
        let whole: BTreeSet<Picture> = whole.map(|(of, _)| *of).collect();
        assert_eq!(whole, self.complete, "whole by the packets that came, and as they were delivered: {frames:?}");
    }

    /// Gives up the frame that it holds.
    pub fn forget(&mut self) {
        self.previous = None;
    }
}

/// Octets of one row in a packet.
struct Segment {
    field: bool,
    /// First octet of the frame.
    at: usize,
    /// First octet of the packet, and how many.
    from: usize,
    len: usize,
}

/// Timestamp and segments of a packet, read by hand from RFC 3550 5.1 and RFC 4175 4.1: those that lie in the picture, as far
/// as they are here.
fn read(format: &WireFormat, octets: &[u8], present: usize) -> Option<(u32, Vec<Segment>)> {
    let word = |at: usize| Some(usize::from(*octets.get(at)?) << 8 | usize::from(*octets.get(at + 1)?));
    let first = *octets.first()?;
    if first >> 6 != 2 || octets.get(1)? & 0x7f != 96 {
        return None;
    }
    let timestamp = (word(4)? as u32) << 16 | word(6)? as u32;
    let mut at = 12 + 4 * usize::from(first & 15);
    if first & 0x10 != 0 {
        at += 4 + 4 * word(at + 2)?;
    }
    at += 2;
    let mut headers = Vec::new();
    loop {
        headers.push([word(at)?, word(at + 2)?, word(at + 4)?]);
        at += 6;
        if octets.get(at - 2)? & 0x80 == 0 {
            break;
        }
    }
    let mut segments = Vec::new();
    let (size, width) = (format.pgroup.octets as usize, format.pgroup.width() as usize);
    for [length, row, offset] in headers {
        let (field, row, offset) = (row >> 15 == 1, row & 0x7fff, offset & 0x7fff);
        let len = length.min(present.saturating_sub(at)) / size * size;
        let row = match format.scan {
            Scan::Progressive => row / format.pgroup.rows as usize,
            Scan::Interlaced | Scan::Psf => 2 * row + usize::from(field),
        };
        let (in_row, row_octets) = (offset / width * size, format.row_octets() as usize);
        if row < format.rows() as usize && in_row + len <= row_octets && at + len <= octets.len() {
            segments.push(Segment { field, at: row * row_octets + in_row, from: at, len });
        }
        at += length;
    }
    Some((timestamp, segments))
}
