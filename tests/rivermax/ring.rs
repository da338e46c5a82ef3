//! The ring: where it wraps, what is overwritten, what does not fit.

use crate::card::{Card, alone, options, receiver};
use crate::played::{Played, conversion, play, reference};
use crate::support::{EVEN, Sender, Sent, format, octets_of, picture};
use gdmedia::format::WireFormat;
use gdmedia::frame::{Frame, FrameBuf};
use gdmedia::kernel::{CpuKernel, Kernel, KernelError, Ticket};
use gdmedia::mem::Host;
use gdmedia::packetise::Cut;
use gdmedia::plan::{Missing, Placement};
use gdmedia::ring::{Slot, SplitRing};
use gdmedia::rx::rivermax::library::{Status, stand_in};
use gdmedia::rx::rivermax::{Order, Split};
use gdmedia::rx::{Receiver, RxError};
use gdmedia::sdp::{Depth, Sampling, Scan};
use gdmedia::stats::Reason;

fn wire() -> WireFormat {
    format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive)
}

#[test]
fn frames_come_whole_wherever_the_ring_wraps() {
    let _alone = alone();
    for (order, capacity) in
        [(Order::Arrival, 100), (Order::Arrival, 256), (Order::Extended, 128), (Order::Extended, 100)]
    {
        let sent = Sender::plain(wire(), EVEN).frames(8);
        let per_frame = sent.len() / 8;
        assert!(
            !per_frame.is_multiple_of(capacity) && !capacity.is_multiple_of(per_frame),
            "it wraps in the middle of frames"
        );
        let card = Card::new();
        let mut played = play(receiver(&[card], &options(&[card], Split::At(20), order, capacity)), wire());
        for part in sent.chunks(7) {
            card.deliver(part);
            played.step();
        }
        let outcome = played.finish();
        assert_eq!(
            (outcome.frames.complete, outcome.frames.torn, outcome.packets.lost),
            (8, 0, 0),
            "{order:?} {capacity}"
        );
        for (n, shown) in outcome.shown.iter().enumerate() {
            assert!(shown.complete && shown.octets == picture(wire(), n), "frame {n}, {order:?} {capacity}");
        }
        assert_eq!(outcome.rx.datagrams, sent.len() as u64);
    }
}

/// Everything outside of a frame's loss map is right.
fn right_where_nothing_is_missing(octets: &[u8], missing: &[Missing], picture: &[u8]) {
    let row = wire().row_octets();
    let mut hole = vec![false; picture.len()];
    for m in missing {
        let at = (m.row * row + m.octet) as usize;
        hole[at..at + m.len as usize].fill(true);
    }
    let wrong = (0..picture.len()).find(|at| !hole[*at] && octets[*at] != picture[*at]);
    assert_eq!(wrong, None);
}

#[test]
fn a_reader_that_is_too_slow_never_takes_overwritten_packets_for_right() {
    let _alone = alone();
    for payload_first in [false, true] {
        for late in [100, 140, 300, 700] {
            let sent = Sender::plain(wire(), EVEN).frames(8);
            let card = Card::with(stand_in::Device { payload_first, ..Default::default() });
            let mut played = play(receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 128)), wire());
            let (first, rest) = sent.split_at(60);
            card.deliver(first);
            played.step();
            // Nobody polls meanwhile.
            card.deliver(&rest[..late]);
            played.step();
            for part in rest[late..].chunks(5) {
                card.deliver(part);
                played.step();
            }
            let outcome = played.finish();
            for shown in &outcome.shown {
                // Frames that were lost whole do not count.
                let n = (0..8).find(|n| {
                    let picture = picture(wire(), *n);
                    let same = shown.octets.iter().zip(&picture).filter(|(a, b)| a == b).count();
                    same * 4 > picture.len() * 3 || shown.missing.is_empty() && shown.octets == picture
                });
                if let Some(n) = n {
                    right_where_nothing_is_missing(&shown.octets, &shown.missing, &picture(wire(), n));
                }
                assert_eq!(shown.complete, shown.missing.is_empty());
            }
            let f = outcome.frames;
            let harmed = f.incomplete + outcome.packets.lost + outcome.rx.overwritten;
            // A margin of 16 before the ring's end is the limit.
            assert_eq!(harmed > 0, late > 112, "{late}: {f:?} {:?}", outcome.packets);
        }
    }
}

/// Reads, but at its `at`th work not before the card has written on.
struct Slow {
    inner: CpuKernel,
    at: usize,
    meanwhile: Option<Box<dyn FnOnce() + Send>>,
}

impl Kernel<Host, Host> for Slow {
    fn apply(
        &mut self,
        ring: &SplitRing<Host>,
        slots: &[Slot],
        placements: &[Placement],
        frame: &mut FrameBuf<Host>,
    ) -> Result<Ticket, KernelError> {
        match self.at {
            0 => self.meanwhile.take().into_iter().for_each(|write| write()),
            _ => self.at -= 1,
        }
        self.inner.apply(ring, slots, placements, frame)
    }
    fn conceal(
        &mut self,
        frame: &mut FrameBuf<Host>,
        missing: &[Missing],
        previous: Option<&Frame<Host>>,
    ) -> Result<(), KernelError> {
        Kernel::<Host, Host>::conceal(&mut self.inner, frame, missing, previous)
    }
    fn paint(&mut self, frame: &mut FrameBuf<Host>, missing: &[Missing]) -> Result<(), KernelError> {
        Kernel::<Host, Host>::paint(&mut self.inner, frame, missing)
    }
    fn finish(&mut self, frame: FrameBuf<Host>) -> Result<(Frame<Host>, Ticket), KernelError> {
        Kernel::<Host, Host>::finish(&mut self.inner, frame)
    }
    fn done(&mut self, ticket: Ticket) -> Result<bool, KernelError> {
        Kernel::<Host, Host>::done(&mut self.inner, ticket)
    }
    fn name(&self) -> &'static str {
        "slow"
    }
}

#[test]
fn a_frame_that_is_overwritten_while_it_is_read_is_torn() {
    let _alone = alone();
    for payload_first in [false, true] {
        let sent = Sender::plain(wire(), EVEN).frames(8);
        let per_frame = sent.len() / 8;
        let card = Card::with(stand_in::Device { payload_first, ..Default::default() });
        let receiver = receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 128));
        // In the third frame, a whole ring of later packets.
        let begin = 2 * per_frame + 16;
        let lap = sent[begin..begin + 128].to_vec();
        let kernel = Slow {
            inner: CpuKernel::new(conversion(wire()), None),
            at: begin / 8 - 1,
            meanwhile: Some(Box::new(move || card.deliver(&lap))),
        };
        let mut played = Played::new(receiver, wire(), kernel);
        for part in sent[..begin].chunks(8).chain(sent[begin + 128..].chunks(8)) {
            card.deliver(part);
            played.step();
        }
        let outcome = played.finish();
        assert!(outcome.frames.torn >= 1 && outcome.rx.overwritten >= 8, "{:?}", outcome.frames);
        let torn = outcome.shown.iter().find(|shown| shown.torn).expect("a frame says so");
        assert!(!torn.complete && !torn.missing.is_empty());
        right_where_nothing_is_missing(&torn.octets, &torn.missing, &picture(wire(), torn.number as usize));
    }
}

#[test]
fn packets_that_do_not_fit_a_slot_are_lost_and_short_ones_are_refused() {
    let _alone = alone();
    let mut sent = Sender::plain(wire(), EVEN).frames(6);
    let per_frame = sent.len() / 6;
    let largest = sent.iter().map(|p| p.octets.len()).max().unwrap();
    // One in the second frame has too many octets, one in the third nothing but a header, one in the fourth not even that.
    let [long, bare, runt] = [per_frame + 5, 2 * per_frame + 5, 3 * per_frame + 5];
    let lost = octets_of([&sent[long], &sent[bare], &sent[runt]]);
    sent[long].octets.resize(largest + 200, 0);
    sent[long].present = largest + 200;
    (sent[bare].present, sent[runt].present) = (12, 5);
    let card = Card::new();
    let options = gdmedia::rx::rivermax::Options {
        max_octets: largest as u16,
        ..options(&[card], Split::At(20), Order::Arrival, 256)
    };
    let mut played = play(receiver(&[card], &options), wire());
    for part in sent.chunks(16) {
        card.deliver(part);
        played.step();
    }
    let outcome = played.finish();
    assert_eq!((outcome.frames.complete, outcome.frames.incomplete), (3, 3));
    assert_eq!(outcome.frames.missing_octets, u64::from(lost));
    assert_eq!((outcome.packets.lost, outcome.packets.rejected.get(Reason::Length)), (3, 2));
    assert_eq!(outcome.rx.datagrams, sent.len() as u64 - 1, "the card says nothing of what does not fit");
}

#[test]
fn headers_behind_a_fixed_split_are_counted_and_longer_splits_take_them() {
    let _alone = alone();
    let cut = Cut::Full { udp: 400, segments: 3 };
    let wire = format(Sampling::YCbCr422, Depth::D10, 64, 32, Scan::Progressive);
    let sent: Vec<Sent> = Sender::plain(wire, cut).frames(40);
    let segments = |n: usize| sent.iter().filter(|p| p.sources.len() > n).count() as u64;
    assert!(segments(1) > 100 && segments(2) > 0, "packets of one, two and three segments");
    for (split, refused) in [(20, segments(1)), (26, segments(2)), (32, 0)] {
        let card = Card::new();
        let mut played = play(receiver(&[card], &options(&[card], Split::At(split), Order::Arrival, 512)), wire);
        for part in sent.chunks(32) {
            card.deliver(part);
            played.step();
        }
        let mut remarks = Vec::new();
        played.pipeline.depacketiser().remarks(&mut remarks);
        assert_eq!(remarks.iter().any(|r| r.contains("split=")), refused >= 100, "{remarks:?}");
        let outcome = played.finish();
        assert_eq!(outcome.packets.rejected.get(Reason::Split), refused, "split {split}");
        assert_eq!(outcome.packets.rejected.total(), refused);
        let whole = reference(&sent, wire);
        if refused == 0 {
            assert!(outcome.shown == whole.shown && outcome.frames.complete == 40);
        }
    }
}

#[test]
fn what_is_in_the_ring_comes_after_a_detach_whatever_the_library_answers_then() {
    let _alone = alone();
    for after_detach in [Status::Ok, Status::Signal, Status::NotInitialized, stand_in::NOT_ATTACHED] {
        let sent = Sender::plain(wire(), EVEN).frames(1);
        let card = Card::with(stand_in::Device { after_detach, ..Default::default() });
        let mut receiver = receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 512));
        card.deliver(&sent);
        receiver.detach().unwrap();
        card.deliver(&sent);
        let mut came = 0;
        loop {
            match receiver.poll() {
                Ok(lease) => {
                    came += lease.slots().len();
                    receiver.release(lease);
                }
                Err(RxError::End) => break,
                Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{after_detach:?}: {error}"),
            }
        }
        assert_eq!(came, sent.len(), "{after_detach:?}");
        assert!(matches!(receiver.poll(), Err(RxError::End)));
    }
}

#[test]
fn what_nobody_took_is_told_at_the_end() {
    let _alone = alone();
    let sent = Sender::plain(wire(), EVEN).frames(1);
    let card = Card::with(stand_in::Device { idle_polls: 3, ..Default::default() });
    let mut receiver = receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 512));
    card.deliver(&sent);
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    let text = format!("{} packets were in the ring", sent.len());
    assert!(remarks.iter().any(|remark| remark.contains(&text)), "{remarks:?}");
}

#[test]
fn an_event_ends_the_wait() {
    let _alone = alone();
    let sent = Sender::plain(wire(), EVEN).frames(1);
    let card = Card::new();
    let options =
        gdmedia::rx::rivermax::Options { events: true, ..options(&[card], Split::At(20), Order::Arrival, 512) };
    let mut receiver = receiver(&[card], &options);
    let begun = std::time::Instant::now();
    let patience = std::time::Duration::from_secs(20);
    let thread = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        card.deliver(&sent);
    });
    assert!(receiver.poll().unwrap().is_empty());
    let mut came = 0;
    while came == 0 && begun.elapsed() < patience {
        assert!(receiver.wait(patience), "it waits by itself");
        let lease = receiver.poll().unwrap();
        came += lease.slots().len();
        receiver.release(lease);
    }
    thread.join().unwrap();
    assert!(came > 0 && begun.elapsed() < patience);
}
