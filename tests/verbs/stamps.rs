//! Time stamps: of the device's clock, of its counter, of the poll.

use crate::card::Card;
use crate::library::{NO_CQ_EX, NO_STAMPS, NO_WALLCLOCK, Ways};
use crate::played::now;
use gdmedia::mem::Host;
use gdmedia::rx::socket::Stamping;
use gdmedia::rx::verbs::{Cut, Options};
use gdmedia::rx::{Receiver, Verbs};
use gdmedia::timing::Source;
use gdmedia::{Error, Kind};

const UTC: u64 = 37_000_000_000;
/// What lies between two packets.
const STEP: u64 = 12_345;

/// Packets whose stamps are a step apart, the last one 100 us ago: arrivals, what they carry, and the notes.
fn arrivals(card: &Card, options: &Options, ahead: i64) -> (Vec<u64>, Source, String, u64) {
    let mut receiver = card.receiver(options);
    let end = now().0 - 100_000;
    let mut got = Vec::new();
    for n in 0..40 {
        let stamp = (end - (40 - n) * STEP).wrapping_add_signed(ahead);
        assert!(card.deliver_one(&[0x80; 100], stamp));
    }
    while got.len() < 40 {
        let lease = receiver.poll().unwrap();
        got.extend(lease.slots().iter().map(|slot| slot.arrival.0));
        receiver.release(lease);
    }
    let (source, mut notes) = (receiver.caps().stamps, receiver.caps().notes.clone());
    receiver.finish(&mut notes).unwrap();
    (got, source, notes.join("\n"), end)
}

#[test]
fn stamps_of_the_clock_are_on_tai_whatever_it_runs_on() {
    // TAI, UTC.
    for ahead in [0, -(UTC as i64)] {
        let card = Card::new();
        let (got, source, notes, end) = arrivals(&card, &card.options(Cut::None, 64), ahead);
        assert!(got.iter().enumerate().all(|(n, at)| *at == end - (40 - n as u64) * STEP), "{ahead}");
        assert_eq!(source, Source::Hardware);
        assert!(notes.contains("time stamps by the clock of mlx5_"), "{notes}");
    }
}

#[test]
fn a_clock_that_runs_freely_keeps_the_spacing() {
    let card = Card::new();
    let (got, source, notes, end) = arrivals(&card, &card.options(Cut::At(96), 64), -1_000_000_000_000_000);
    assert!(got.windows(2).all(|two| two[1] - two[0] == STEP));
    // Tied to the time of the poll, which is after the last one.
    assert!(got[39] >= end && got[39] <= now().0, "{} {end}", got[39]);
    assert_eq!(source, Source::Hardware);
    assert!(notes.contains("runs freely"), "{notes}");
}

#[test]
fn ticks_of_the_counter_become_nanoseconds() {
    // 1 GHz, and 156.25 MHz with 6.4 ns a tick.
    for clock_khz in [1_000_000, 156_250] {
        let card = Card::with(Ways { flags: NO_WALLCLOCK, clock_khz, ..Ways::default() });
        let (got, source, notes, _) = arrivals(&card, &card.options(Cut::None, 64), -(UTC as i64));
        let off = got.windows(2).map(|two| (two[1] - two[0]).abs_diff(STEP)).max().unwrap();
        assert!(off <= 7, "{clock_khz}: {off} ns");
        assert_eq!(source, Source::Hardware);
        assert!(notes.contains(&format!("time stamps by the counter of {}, {clock_khz} kHz", card.name)), "{notes}");
    }
}

#[test]
fn a_counter_of_few_bits_comes_round_unnoticed() {
    // 2^20 ns: a millisecond.
    let card = Card::with(Ways { flags: NO_WALLCLOCK, clock_mask: 0xf_ffff, ..Ways::default() });
    let mut receiver = card.receiver(&card.options(Cut::None, 64));
    let begin = now().0 - UTC - 10_000_000;
    let mut last = None;
    for n in 0..100 {
        assert!(card.deliver_one(&[0x80; 100], begin + n * 100_000));
        let lease = receiver.poll().unwrap();
        let at = lease.slots()[0].arrival;
        receiver.release(lease);
        // Polls tie it anew while they come nearer to the packets; never by more than they are late.
        if let Some(last) = last.replace(at) {
            assert!((0..=100_000).contains(&at.since(last)), "{n}: {}", at.since(last));
        }
    }
}

#[test]
fn without_stamps_arrivals_are_those_of_the_poll_and_it_is_said() {
    for (flags, stamps, why) in [
        (NO_STAMPS, Stamping::Auto, "stamps no completions"),
        (NO_CQ_EX, Stamping::Auto, "stamps no completions"),
        (0, Stamping::Software, "stamps of software were asked for"),
    ] {
        let card = Card::with(Ways { flags, ..Ways::default() });
        let before = now().0;
        let (got, source, notes, _) = arrivals(&card, &Options { stamps, ..card.options(Cut::None, 64) }, 0);
        assert!(got.iter().all(|at| (before..=now().0).contains(at)), "{flags} {stamps:?}");
        assert_eq!(source, Source::Software);
        assert!(notes.contains(&format!("those of the poll: {why}")) || notes.contains(why), "{notes}");
    }
}

#[test]
fn stamps_that_are_demanded_and_not_there_are_an_error() {
    let card = Card::with(Ways { flags: NO_STAMPS, ..Ways::default() });
    let options = Options { stamps: Stamping::Hardware, ..card.options(Cut::None, 64) };
    let error: Error = Verbs::<Host>::open(&options, &[card.leg()], &()).err().unwrap();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("stamps no completions"), "{error}");
}
