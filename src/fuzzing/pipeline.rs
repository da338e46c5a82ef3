//! The pipeline as a whole: packets of two legs become frames, in virtual time.
//!
//! The octets are a program for a small network: each pair of them is a deed and its argument. Most deeds send packets as a
//! sender would; the others lose, double, hold, forge and change them, let time pass, restart the sender, cut a leg, keep
//! frames, or take the pipeline apart. After each step what came out is judged by [`Model`], which knows what was handed over
//! and shares no code with what it judges.

mod model;
mod sender;

use self::model::Model;
use self::sender::{Packet, SSRC, Sender};
use crate::depacketise::{Config, Depacketiser};
use crate::format::{Layout, Output, WireFormat};
use crate::frame::{Frame, FramePool};
use crate::kernel::{Colour, Conversion, CpuKernel};
use crate::mem::{Host, Region};
use crate::merge::Class;
use crate::packetise::{Cut, Style};
use crate::pipeline::{Incomplete, Pipeline, Progress};
use crate::ring::{Slot, SplitRing};
use crate::rx::{Memory, RxError};
use crate::sdp::{Colorimetry, Depth, Ratio, Sampling, Scan, Tcs};
use crate::time::{MediaClock, Tai};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Octets of a slot, and of its head where the ring splits.
const STRIDE: usize = 1536;
const HEAD: usize = 64;
/// Leases that may be out, and packets of each.
const AREAS: usize = 3;
const BATCH: usize = 8;
/// Frames that a sink holds at most.
const KEPT: usize = 3;
/// Packets of a program at most, so that none takes long.
const PACKETS: usize = 4096;

type Line = Pipeline<Memory<Host>, Host, CpuKernel>;

thread_local! {
    /// Virtual time.
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// A packet as it came.
struct Arrived {
    octets: Vec<u8>,
    /// Octets that are here; the others were cut.
    present: usize,
    leg: u8,
    at: u64,
}

type Inbox = Arc<Mutex<VecDeque<Arrived>>>;
type Outbox = Arc<Mutex<Vec<Frame>>>;

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a program begins with.
struct Setup {
    format: WireFormat,
    style: Style,
    rate: Ratio,
    policy: Incomplete,
    split: bool,
    /// A receiver for each leg, else one for both.
    apart: bool,
    /// Nothing but loss, copies, and delays that a receiver bears: every frame and counter is foretold.
    benign: bool,
    batch: usize,
    sequence: u32,
    legs: u8,
    class: Class,
}

impl Setup {
    fn new(octets: &[u8; 8]) -> Option<Self> {
        let of = |n: usize, len: usize| usize::from(octets[n]) % len;
        let (sampling, depth) = (Sampling::ALL[of(0, Sampling::ALL.len())], Depth::ALL[of(1, Depth::ALL.len())]);
        let (width, height) = (u32::from(octets[2] % 96) + 1, u32::from(octets[3] % 24) + 1);
        let format = WireFormat::new(sampling, depth, width, height, Scan::ALL[of(4, Scan::ALL.len())])?;
        let cuts = [
            Cut::Full { udp: 120, segments: 1 },
            Cut::Full { udp: 200, segments: 3 },
            Cut::Even { udp: 300 },
            Cut::Bpm { fill: octets[5] & 0x40 != 0 },
        ];
        let ratio = [(60_000, 1001), (25, 1), (240, 1)][of(6, 3)];
        Some(Setup {
            format,
            style: Style { ssrc: SSRC, ..Style::new(cuts[of(5, cuts.len())]) },
            rate: Ratio::new(ratio.0, ratio.1)?,
            policy: [Incomplete::Conceal, Incomplete::Show, Incomplete::Drop][of(7, 3)],
            split: octets[6] & 0x40 != 0,
            apart: octets[6] & 0x80 != 0,
            benign: octets[7] & 0x80 != 0,
            batch: 1 + usize::from(octets[7] >> 2 & 7),
            legs: 1 + (octets[4] >> 7),
            class: [Class::A, Class::D, Class::B, Class::A][usize::from(octets[4] >> 5 & 3)],
            sequence: [0, 65_500, u32::MAX - 20, 0x0001_fff0][usize::from(octets[5] >> 4 & 3)],
        })
    }

    fn config(&self) -> Option<Config> {
        let config = Config::new(self.format, self.style.payload_type, Some(self.rate));
        config.with_legs(self.legs.into(), self.class).ok()
    }

    /// Frames that a pipeline may hold, those that come out in one step, and those that a sink keeps.
    fn frames(&self) -> Option<usize> {
        Some(self.config()?.open_frames() + BATCH + 1 + KEPT)
    }

    /// How much later than others a packet may come without harm: so long that few frames begin meanwhile, and, of several
    /// legs, less than their window.
    fn bearable(&self, frame_time: u64) -> u64 {
        match self.config() {
            Some(config) if self.legs > 1 => (config.window.as_nanos() as u64 / 2).min(frame_time),
            _ => frame_time,
        }
    }

    fn layout(&self) -> Option<Layout> {
        Layout::new(self.format, Output::Wire).ok()
    }
}

/// Runs a program.
///
/// # Panics
/// The pipeline did what the model knows to be wrong.
pub fn pipeline(octets: &[u8]) {
    let Some((setup, program)) = octets.split_first_chunk::<8>() else { return };
    let Some(mut net) = Setup::new(setup).and_then(Net::new) else { return };
    for [deed, argument] in program.as_chunks::<2>().0 {
        net.perform(*deed, *argument);
        if net.sent >= PACKETS {
            break;
        }
    }
    net.end();
}

/// A sender, two legs, and the pipeline behind them.
struct Net {
    setup: Setup,
    senders: Vec<Sender>,
    /// The one that is sending.
    active: usize,
    /// What is on its way, by the time at which it comes and the order in which it was sent.
    flying: BTreeMap<(u64, u64), (u8, Packet)>,
    sent: usize,
    /// When the pipeline stepped last.
    stepped: u64,
    /// Of each leg: how far it lies behind, packets to be lost, how long the next one is held, whether it is cut.
    skew: [u64; 2],
    lose: [u8; 2],
    hold: [u64; 2],
    cut: [bool; 2],
    /// Done to the next packet.
    change: Option<(u8, u8)>,
    /// Of each receiver.
    inboxes: Vec<Inbox>,
    outbox: Outbox,
    pool: FramePool<Host>,
    line: Option<Line>,
    kept: VecDeque<Frame>,
    model: Model,
}

impl Net {
    fn new(setup: Setup) -> Option<Self> {
        let sender = Sender::new(&setup, 0, setup.sequence)?;
        let inboxes: Vec<Inbox> = (0..=u8::from(setup.apart)).map(|_| Inbox::default()).collect();
        let outbox = Outbox::default();
        let pool = FramePool::host(setup.layout()?, setup.frames()?).ok()?;
        NOW.set(sender.time());
        let line = Self::line(&setup, &pool, &inboxes, &outbox)?;
        let model = Model::new(&setup);
        let senders = vec![sender];
        let flying = BTreeMap::new();
        let (skew, lose, hold, cut) = ([0; 2], [0; 2], [0; 2], [false; 2]);
        Some(Net {
            setup,
            senders,
            active: 0,
            flying,
            sent: 0,
            stepped: NOW.get(),
            skew,
            lose,
            hold,
            cut,
            change: None,
            inboxes,
            outbox,
            pool,
            line: Some(line),
            kept: VecDeque::new(),
            model,
        })
    }

    fn kernel(setup: &Setup) -> Option<CpuKernel> {
        let colour = Colour { colorimetry: Colorimetry::Bt709, tcs: Tcs::Sdr, range: crate::sdp::Range::Narrow };
        Some(CpuKernel::new(Conversion { layout: setup.layout()?, colour }, None))
    }

    fn deliver(outbox: &Outbox) -> crate::pipeline::Deliver<Host> {
        let outbox = outbox.clone();
        Box::new(move |frame, _| lock(&outbox).push(frame))
    }

    fn line(setup: &Setup, pool: &FramePool<Host>, inboxes: &[Inbox], outbox: &Outbox) -> Option<Line> {
        let [first, others @ ..] = inboxes else { return None };
        let memory = Self::receiver(setup, first)?;
        let depacketiser = Depacketiser::video(setup.config()?);
        let kernel = Self::kernel(setup)?;
        let clock = Some(MediaClock::VIDEO);
        let deliver = Self::deliver(outbox);
        let mut line = Pipeline::new(memory, depacketiser, kernel, pool.clone(), setup.policy, clock, deliver);
        for inbox in others {
            line.add(Self::receiver(setup, inbox)?).ok()?;
        }
        Some(line)
    }

    fn receiver(setup: &Setup, inbox: &Inbox) -> Option<Memory<Host>> {
        let octets = AREAS * BATCH * STRIDE;
        let ring = if setup.split {
            SplitRing::split(Region::host(AREAS * BATCH * HEAD).ok()?, Region::host(octets).ok()?)
        } else {
            SplitRing::whole(Region::host(octets).ok()?)
        };
        let (inbox, batch, split) = (inbox.clone(), setup.batch, setup.split);
        let fill = move |ring: &mut SplitRing<Host>, area: usize, slots: &mut Vec<Slot>| {
            let mut inbox = lock(&inbox);
            for n in 0..batch.min(inbox.len()) {
                let Some(packet) = inbox.pop_front() else { break };
                slots.push(put(ring, split, area * BATCH + n, &packet));
            }
            Ok(!slots.is_empty())
        };
        let clock: fn() -> Tai = || Tai(NOW.get());
        Some(Memory::new(ring, AREAS, BATCH, Some(clock), Box::new(fill)))
    }

    /// One deed of the program.
    fn perform(&mut self, deed: u8, argument: u8) {
        let leg = usize::from(argument & 1);
        let bearable = self.setup.bearable(self.sender().frame_time());
        // Deeds that a receiver bears, then those that harm.
        match deed % 24 {
            0..=5 => (0..=argument % 32).for_each(|_| self.send()),
            6 => self.lose[leg] = argument >> 1 & 31,
            7 => self.lose = [argument & 15; 2],
            8 => self.hold[leg] = bearable / 512 * u64::from(argument >> 1),
            9 if self.setup.benign => self.skew[leg] = bearable / 256 * u64::from(argument >> 1),
            10 => self.change = Some((0, argument)),
            11 => self.pause(argument),
            _ if self.setup.benign => {}
            9 => self.skew[leg] = u64::from(argument >> 1) * 100_000,
            12 => self.cut[leg] = !self.cut[leg],
            13 => self.restart(argument),
            14 => self.sender_mut().jump(argument),
            15 => self.raw(argument),
            16 => self.active = usize::from(argument) % self.senders.len(),
            17 if argument & 1 == 0 => self.kept.clear(),
            17 => self.model.keeps = true,
            18 => self.rebuild(),
            19 => self.pass(u64::from(argument) << 20),
            kind => self.change = Some((kind, argument)),
        }
    }

    fn sender(&self) -> &Sender {
        &self.senders[self.active]
    }
    fn sender_mut(&mut self) -> &mut Sender {
        &mut self.senders[self.active]
    }

    /// The next packet of the sender goes by both legs.
    fn send(&mut self) {
        let mut packet = self.sender_mut().next();
        let at = packet.at.max(NOW.get());
        let mut copies = [1, 1];
        if let Some((kind, argument)) = self.change.take() {
            if kind == 0 {
                copies[usize::from(argument & 1)] = 2;
            } else {
                packet.change(kind, argument);
            }
        }
        self.model.sent(&packet);
        for (leg, copies) in copies.into_iter().enumerate().take(self.setup.legs.into()) {
            let hold = std::mem::take(&mut self.hold[leg]);
            for copy in 0..copies {
                if self.cut[leg] || self.lose[leg] > 0 {
                    self.lose[leg] = self.lose[leg].saturating_sub(1);
                } else {
                    self.fly(leg as u8, at + self.skew[leg] + hold * (copy + 1), packet.clone());
                }
            }
        }
        self.pump(at);
    }

    fn fly(&mut self, leg: u8, due: u64, packet: Packet) {
        self.sent += 1;
        self.flying.insert((due, self.sent as u64), (leg, packet));
    }

    /// Octets that are no packet of anybody, or nearly one.
    fn raw(&mut self, argument: u8) {
        let packet = self.sender().forged(argument);
        self.fly(argument & (self.setup.legs - 1), NOW.get(), packet);
        self.pump(NOW.get());
    }

    /// The sender begins anew, or another one begins.
    fn restart(&mut self, argument: u8) {
        let origin = self.senders.len() as u16;
        // So far apart that none is taken for another one that goes on.
        let sequence = self.setup.sequence.wrapping_add(u32::from(origin) << 26 | u32::from(argument));
        let Some(mut sender) = Sender::new(&self.setup, origin, sequence) else { return };
        if origin < 32 {
            sender.follow(self.sender(), argument);
            self.senders.push(sender);
            self.active = usize::from(origin);
        }
    }

    /// Whoever sends finishes its frame, and sends nothing for some frames.
    fn pause(&mut self, argument: u8) {
        while self.sender().is_inside() && self.sent < PACKETS {
            self.send();
        }
        self.pass(self.sender().frame_time() * (2 + u64::from(argument % 8)));
        let now = NOW.get();
        self.sender_mut().skip_to(now);
    }

    fn pass(&mut self, time: u64) {
        let until = NOW.get() + time;
        self.pump(until);
        self.step();
    }

    /// Everything comes that is due by then.
    fn pump(&mut self, until: u64) {
        while let Some(next) = self.flying.first_entry().filter(|next| next.key().0 <= until) {
            let at = next.key().0.max(NOW.get());
            let (leg, packet) = next.remove();
            // Legs that are polled in turn less often than packets may come apart look as if they lay further apart.
            if self.setup.benign && at - self.stepped > self.setup.bearable(u64::MAX) / 2 {
                self.step();
            }
            NOW.set(at);
            self.model.arrived(&packet, leg);
            if let Some(inbox) = self.inboxes.get(usize::from(leg) % self.inboxes.len()) {
                lock(inbox).push_back(Arrived { octets: packet.octets, present: packet.present, leg, at });
            }
            // The same goes for the first packet: which one it is decides where the stream begins.
            let first = self.setup.benign && self.model.has_one();
            if first || self.waiting() >= self.setup.batch {
                self.step();
            }
        }
        NOW.set(until.max(NOW.get()));
    }

    /// Packets that no receiver has handed over.
    fn waiting(&self) -> usize {
        self.inboxes.iter().map(|inbox| lock(inbox).len()).sum()
    }

    /// The pipeline steps until it has nothing more to do, and is judged.
    fn step(&mut self) {
        self.stepped = NOW.get();
        loop {
            let progress = match self.line.as_mut().map(Pipeline::step) {
                Some(Ok(progress)) => progress,
                Some(Err(RxError::Failed(error))) => panic!("{error}"),
                _ => return,
            };
            self.judge();
            if progress == Progress::Idle {
                break;
            }
        }
        assert_eq!(self.waiting(), 0, "packets were left in the receiver");
    }

    fn judge(&mut self) {
        let frames = std::mem::take(&mut *lock(&self.outbox));
        for frame in frames {
            self.model.delivered(&frame);
            if self.model.keeps {
                self.kept.push_back(frame);
                self.kept.truncate(KEPT);
            }
        }
        if let Some(line) = &self.line {
            line.depacketiser().check_invariants();
            self.model.counted(self.waiting(), line.rx(), line.depacketiser(), line.frames());
        }
    }

    /// The pipeline is taken apart, and another one goes on with its parts.
    fn rebuild(&mut self) {
        self.step();
        let (Some(line), Some(kernel)) = (self.line.take(), Self::kernel(&self.setup)) else { return };
        let parts = line.into_parts();
        self.model.rebuilt();
        self.line = Some(Pipeline::resume(parts, kernel, self.pool.clone(), Self::deliver(&self.outbox)));
    }

    /// What is on its way comes; the pipeline finishes, and nothing of it is left.
    fn end(mut self) {
        while self.setup.benign && self.sender().is_inside() {
            self.send();
        }
        let last = self.flying.last_key_value().map_or(0, |(key, _)| key.0);
        self.pump(last);
        self.step();
        if let Some(line) = &mut self.line {
            line.finish(&mut Vec::new()).unwrap_or_else(|error| panic!("{error}"));
        }
        self.judge();
        if let Some(line) = self.line.take() {
            self.model.finished(line.depacketiser(), line.frames());
            assert_eq!(line.rx().starved, 0, "leases were not given back");
        }
        self.kept.clear();
        self.model.forget();
        let all = std::iter::from_fn(|| self.pool.take()).count();
        assert_eq!(Some(all), self.setup.frames(), "frames did not come back to their pool");
    }
}

/// Writes a packet into the ring.
fn put(ring: &mut SplitRing<Host>, split: bool, place: usize, packet: &Arrived) -> Slot {
    let octets = packet.octets.get(..packet.present.min(STRIDE)).unwrap_or(&packet.octets);
    let head = if split { octets.len().min(HEAD) } else { octets.len() };
    let (first, rest) = octets.split_at(head);
    let (head_at, body_at) = (place * if split { HEAD } else { STRIDE }, place * STRIDE);
    ring.head_plane_mut().as_mut_slice()[head_at..head_at + head].copy_from_slice(first);
    if let Some(body) = ring.body_plane_mut() {
        body.as_mut_slice()[body_at..body_at + rest.len()].copy_from_slice(rest);
    }
    Slot {
        head_at: head_at as u32,
        body_at: body_at as u32,
        head: head as u16,
        octets: octets.len() as u16,
        wire_octets: packet.octets.len() as u16,
        leg: packet.leg,
        arrival: Tai(packet.at),
    }
}

#[cfg(test)]
mod tests;
