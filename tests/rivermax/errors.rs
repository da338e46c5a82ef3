//! Every call that the library may refuse: what a person reads, and that nothing is left behind.

use crate::card::{Card, alone, controls, options, receiver};
use crate::played::play;
use crate::support::{EVEN, Sender, format};
use gdmedia::mem::Host;
use gdmedia::rx::rivermax::library::{Status, stand_in};
use gdmedia::rx::rivermax::{Options, Order, Split, Stamps};
use gdmedia::rx::{Receiver, Rivermax, RxError};
use gdmedia::sdp::{Depth, Leg, Sampling, Scan, SourceFilter};
use gdmedia::{Error, Kind};

fn refused(call: &str, status: Status) -> Error {
    let card = Card::new();
    card.fail(call, status, 1);
    let opened = Rivermax::<Host>::open(&options(&[card], Split::At(20), Order::Arrival, 256), &[card.leg()], &());
    let mut receiver = match opened {
        Err(error) => return error,
        Ok(receiver) => receiver,
    };
    receiver.join_all(&[card.leg()]).unwrap_err()
}

#[test]
fn each_refusal_has_its_words() {
    let _alone = alone();
    for (call, status, words) in [
        ("rmx_retrieve_device_iface_ipv4", stand_in::NO_SUCH_DEVICE, &["port", "no card"][..]),
        ("rmx_input_determine_mem_layout", Status::NotImplemented, &["layout", "cannot do it"]),
        ("rmx_register_memory", stand_in::MEMORY_NOT_REGISTERED, &["MiB", "cannot be given this memory"]),
        ("rmx_input_create_stream", stand_in::NO_HARDWARE_RESOURCES, &["stream", "no resources"]),
        ("rmx_input_create_stream", stand_in::LICENSE_REFUSED, &["stream", "no valid licence"]),
        ("rmx_input_set_completion_moderation", Status::InvalidParam2, &["tells of packets"]),
        ("rmx_input_attach_flow", stand_in::ALREADY_ATTACHED, &["attaching", "attached already"]),
        ("rmx_input_attach_flow", stand_in::NO_HARDWARE_RESOURCES, &["attaching", "no resources"]),
    ] {
        let error = refused(call, status);
        let text = error.to_string();
        assert!(text.contains(call) && words.iter().all(|word| text.contains(word)), "{call}: {text}");
        assert!(
            [Kind::Unavailable, Kind::Permission].contains(&error.kind()) && !error.cure_text().is_empty(),
            "{text}"
        );
        assert!(text.contains(status.name().unwrap()), "the library's own word is there: {text}");
    }
}

#[test]
fn a_probe_that_is_refused_is_an_error_too() {
    let _alone = alone();
    let card = Card::new();
    card.fail("rmx_input_create_stream", stand_in::NO_HARDWARE_RESOURCES, 1);
    let error = Rivermax::<Host>::open(&options(&[card], Split::Probe, Order::Arrival, 256), &[card.leg()], &()).err();
    assert!(error.unwrap().to_string().contains("first packets"));
}

#[test]
fn issues_of_hardware_and_checksums_are_counted_and_reception_goes_on() {
    let _alone = alone();
    let wire = format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive);
    let sent = Sender::plain(wire, EVEN).frames(4);
    let card = Card::new();
    let mut played = play(receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 512)), wire);
    let quarter = sent.len() / 4;
    for (n, part) in sent.chunks(quarter).enumerate() {
        match n {
            1 => card.fail("rmx_input_get_next_chunk", Status::ChecksumIssue, 1),
            2 => card.fail("rmx_input_get_next_chunk", Status::HwCompletionIssue, 3),
            _ => {}
        }
        card.deliver(part);
        (0..5).for_each(|_| played.step());
    }
    let outcome = played.finish();
    assert_eq!((outcome.rx.checksum_issues, outcome.rx.hardware_issues), (1, 3));
    assert_eq!((outcome.frames.complete, outcome.packets.lost), (4, 0));
}

#[test]
fn a_card_that_reports_nothing_but_errors_is_given_up() {
    let _alone = alone();
    let wire = format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive);
    let sent = Sender::plain(wire, EVEN).frames(1);
    let card = Card::new();
    let mut receiver = receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 512));
    card.fail("rmx_input_get_next_chunk", Status::HwCompletionIssue, 100_000);
    card.deliver(&sent);
    let mut polls = 0;
    let error = loop {
        polls += 1;
        match receiver.poll() {
            Ok(lease) => receiver.release(lease),
            Err(RxError::Failed(error) | RxError::Gone(error)) => break error,
            Err(RxError::End) => panic!("no end"),
        }
    };
    assert!(polls >= 100 && error.to_string().contains("errors"), "{polls} polls: {error}");
    assert!(receiver.counters().hardware_issues >= 100);
    card.fail("rmx_input_get_next_chunk", Status::HwCompletionIssue, 0);
}

#[test]
fn an_answer_that_nobody_knows_ends_reception_and_a_signal_is_an_end() {
    let _alone = alone();
    let wire = format(Sampling::YCbCr422, Depth::D10, 640, 90, Scan::Progressive);
    let sent = Sender::plain(wire, EVEN).frames(1);
    for status in [Status::NotInitialized, Status::Signal] {
        let card = Card::new();
        let mut receiver = receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 512));
        card.fail("rmx_input_get_next_chunk", status, 1);
        card.deliver(&sent);
        match (status, receiver.poll()) {
            (Status::Signal, Err(RxError::End)) => {}
            (_, Err(RxError::Failed(error))) if status != Status::Signal => {
                assert!(error.to_string().contains("receiving on leg 0"), "{error}");
            }
            (_, other) => panic!("{status:?}: {other:?}"),
        }
    }
}

#[test]
fn a_flow_that_is_not_detached_is_told_and_spoils_nothing() {
    let _alone = alone();
    let card = Card::new();
    let mut receiver = receiver(&[card], &options(&[card], Split::At(20), Order::Arrival, 256));
    card.fail("rmx_input_detach_flow", Status::HwCompletionIssue, 1);
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    assert!(remarks.iter().any(|r| r.contains("detaching a flow failed")), "{remarks:?}");
}

#[test]
fn a_clock_that_is_refused_or_unsteady_is_told_and_reception_goes_on() {
    let _alone = alone();
    let open = |card: Card| {
        let options = Options { stamps: Stamps::Synced, ..options(&[card], Split::At(20), Order::Arrival, 256) };
        receiver(&[card], &options).caps().notes.join("\n")
    };
    let card = Card::new();
    card.fail("rmx_use_ptp_clock", Status::NotImplemented, 1);
    let notes = open(card);
    assert!(notes.contains("no PTP clock") && notes.contains("NOT_IMPLEMENTED"), "{notes}");
    controls().fail(None, "rmx_check_clock_steady", Status::Busy, 1);
    let notes = open(Card::new());
    assert!(notes.contains("not settled"), "{notes}");
}

#[test]
fn events_that_are_refused_are_an_error_and_never_a_wait_for_ever() {
    let _alone = alone();
    let card = Card::new();
    let options = Options { events: true, ..options(&[card], Split::At(20), Order::Arrival, 256) };
    card.fail("rmx_establish_event_channel", Status::NotImplemented, 1);
    let error = Rivermax::<Host>::open(&options, &[card.leg()], &()).err().unwrap();
    assert!(error.to_string().contains("waiting for the card"), "{error}");
    let mut receiver = receiver(&[card], &options);
    card.fail("rmx_request_notification", Status::NotInitialized, 1);
    assert!(receiver.wait(std::time::Duration::from_secs(3600)), "it is polled again");
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    assert!(remarks.iter().any(|r| r.contains("waiting for the card was refused")), "{remarks:?}");
}

#[test]
fn flows_that_it_cannot_receive_are_refused_with_the_reason() {
    let _alone = alone();
    let card = Card::new();
    let options = options(&[card], Split::At(20), Order::Arrival, 256);
    let open = |legs: &[Leg]| Rivermax::<Host>::open(&options, legs, &()).err().unwrap().to_string();
    let leg = |destination: &str, port, sources| Leg {
        destination: destination.parse().unwrap(),
        port,
        sources,
        ttl: None,
        mid: None,
    };
    let v6 = SourceFilter::Include(vec!["fd00::1".parse().unwrap()]);
    for (legs, words) in [
        (vec![], "0 legs"),
        (vec![card.leg(), card.leg(), card.leg()], "3 legs"),
        (vec![leg("::1", 5004, SourceFilter::Any)], "IPv6"),
        (vec![leg("127.0.0.1", 0, SourceFilter::Any)], "port 0"),
        (vec![leg("127.0.0.1", 5004, v6)], "no IPv4 source"),
    ] {
        let text = open(&legs);
        assert!(text.contains(words) && text.contains("cure"), "{text}");
    }
    let mut receiver = self::receiver(&[card], &options);
    let error = receiver.join(0, &leg("127.0.0.1", 9, SourceFilter::Any)).unwrap_err();
    assert!(error.to_string().contains("none of those"), "{error}");
    assert!(receiver.join(1, &card.leg()).is_err());
    receiver.join(0, &card.leg()).unwrap();
}
