//! Devices that are pulled out, ports that go down, queues that fail.

use crate::card::{Card, frame, poll};
use crate::library::Ways;
use gdmedia::event::{Event, What};
use gdmedia::mem::Host;
use gdmedia::rx::verbs::Cut;
use gdmedia::rx::{Receiver, Renewed, RxError, Verbs};
use std::time::{Duration, Instant};

/// Polls until it fails.
fn error(receiver: &mut Verbs<Host>) -> gdmedia::Error {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not notice");
        match receiver.poll() {
            Ok(lease) => receiver.release(lease),
            Err(RxError::Failed(error) | RxError::Gone(error)) => return error,
            Err(RxError::End) => panic!("no end"),
        }
    }
}

#[test]
fn a_device_that_is_pulled_out_ends_reception_with_the_reason() {
    for held in [false, true] {
        let card = Card::new();
        let mut receiver = card.receiver(&card.options(Cut::At(96), 64));
        card.deliver_one(&[0x80; 300], 0);
        let lease = receiver.poll().unwrap();
        assert_eq!(lease.slots().len(), 1);
        card.deliver_one(&[0x81; 300], 0);
        card.control.pull();
        if !held {
            receiver.release(lease);
        }
        let error = error(&mut receiver);
        assert!(error.to_string().contains(&format!("device {} has gone", card.name)), "{error}");
        assert!(!error.cure_text().is_empty());
        let mut events = Vec::new();
        receiver.take_events(&mut events);
        assert!(matches!(events[..], [Event { what: What::InterfaceGone { leg: 0 }, .. }]), "{events:?}");
        let mut remarks = Vec::new();
        receiver.finish(&mut remarks).unwrap();
        drop(receiver);
        // It is back: a new receiver receives.
        card.control.put_back();
        let mut receiver = card.receiver(&card.options(Cut::At(96), 64));
        assert!(card.deliver_one(&[0x82; 300], 0));
        assert_eq!(poll(&mut receiver), [vec![0x82; 300]]);
    }
}

/// As `play` has it in memory of the host.
#[test]
fn a_device_that_comes_back_is_received_again() {
    let card = Card::new();
    let (options, legs) = (card.options(Cut::None, 64), [card.leg()]);
    let open = move || -> Result<Box<dyn Receiver<Mem = Host>>, gdmedia::Error> {
        Ok(Box::new(Verbs::open(&options, &legs, &())?))
    };
    let mut receiver = Renewed::new(Box::new(open)).unwrap();
    receiver.join(0, &card.leg()).unwrap();
    let take = |receiver: &mut Renewed| {
        let lease = receiver.poll().unwrap();
        let all: Vec<Vec<u8>> = lease.slots().iter().map(|slot| crate::card::octets(receiver, slot)).collect();
        receiver.release(lease);
        all
    };
    let wait = |receiver: &mut Renewed, wanted: What| {
        let (mut events, begun) = (Vec::new(), Instant::now());
        while !events.iter().any(|event: &Event| event.what == wanted) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{wanted:?}: {events:?}");
            take(receiver);
            receiver.take_events(&mut events);
        }
    };
    for n in 1..3 {
        assert!(card.deliver_one(&[0x80; 300], 0));
        assert_eq!(take(&mut receiver), [vec![0x80; 300]]);
        card.control.pull();
        wait(&mut receiver, What::InterfaceGone { leg: 0 });
        card.control.put_back();
        wait(&mut receiver, What::InterfaceBack { leg: 0 });
        assert_eq!(receiver.counters().datagrams, n);
    }
    assert!(card.deliver_one(&[0x81; 300], 0));
    assert_eq!(take(&mut receiver), [vec![0x81; 300]]);
}

/// What has not gone is not tried again: its error says what is wrong.
#[test]
fn a_queue_that_is_given_up_is_no_interface_that_has_gone() {
    for count in [1, 2] {
        let card = Card::with(Ways { mtu: 9000, ..Ways::default() });
        let other = gdmedia::sdp::Leg { port: crate::card::PORT + 2, ..card.leg() };
        let to = std::net::SocketAddr::new(card.ip.into(), other.port);
        let to_other = gdmedia::wire::net::Route::new(card.route().source(), to).unwrap();
        let (options, legs) = (card.options(Cut::None, 64), [card.leg(), other][..count].to_vec());
        let joined = legs.clone();
        let open = move || -> Result<Box<dyn Receiver<Mem = Host>>, gdmedia::Error> {
            Ok(Box::new(Verbs::open(&options, &legs, &())?))
        };
        let mut receiver = Renewed::new(Box::new(open)).unwrap();
        receiver.join_all(&joined).unwrap();
        let error = (0..1000).find_map(|_| {
            card.deliver_one(&[0x80; 3000], 0);
            if count == 2 {
                card.control.inject(&frame(&to_other, &[0x80; 3000]), 0);
            }
            match receiver.poll() {
                Ok(lease) => {
                    receiver.release(lease);
                    None
                }
                Err(RxError::Failed(error)) => Some(error),
                Err(why) => panic!("{why}"),
            }
        });
        assert!(error.expect("it is given up").to_string().contains("MAXUDP"));
        let mut events = Vec::new();
        receiver.take_events(&mut events);
        // Of two legs the first one was given up while the other went on.
        assert_eq!(events.len(), count - 1, "{events:?}");
    }
}

#[test]
fn a_device_that_goes_while_nothing_comes_is_noticed() {
    let card = Card::new();
    let mut receiver = card.receiver(&card.options(Cut::None, 64));
    card.control.pull();
    assert!(error(&mut receiver).to_string().contains("has gone"));
    drop(receiver);
    card.control.put_back();
}

#[test]
fn a_port_that_goes_down_and_up_again_is_no_failure() {
    let card = Card::new();
    let mut receiver = card.receiver(&card.options(Cut::None, 64));
    for _ in 0..3 {
        card.control.port(false);
        assert!(!card.deliver_one(&[0x80; 300], 0));
        (0..200).for_each(|_| assert!(poll(&mut receiver).is_empty()));
        card.control.port(true);
        assert!(card.deliver_one(&[0x80; 300], 0));
        assert_eq!(poll(&mut receiver).len(), 1);
    }
}

#[test]
fn a_queue_in_error_begins_anew() {
    for cut in [Cut::None, Cut::At(96)] {
        let card = Card::new();
        let mut receiver = card.receiver(&card.options(cut, 64));
        let mut came = 0;
        for n in 0..400 {
            if n % 100 == 50 {
                card.control.fatal();
                // Entries come back, or the event is heard.
                let begun = Instant::now();
                while card.control.counts().posted < 32 && begun.elapsed() < Duration::from_secs(20) {
                    came += poll(&mut receiver).len();
                }
                (0..200).for_each(|_| came += poll(&mut receiver).len());
            }
            assert!(card.deliver_one(&[0x80; 300], 0), "{n} {cut:?}");
            came += poll(&mut receiver).len();
        }
        assert_eq!((came, receiver.counters().datagrams), (400, 400), "{cut:?}");
        let mut remarks = Vec::new();
        receiver.finish(&mut remarks).unwrap();
        assert!(remarks.iter().any(|r| r.contains("began anew")), "{remarks:?}");
    }
}

#[test]
fn a_queue_that_stays_in_error_is_given_up() {
    let card = Card::new();
    let mut receiver = card.receiver(&card.options(Cut::None, 64));
    card.control.fail("ibv_modify_qp", libc::EINVAL, 1);
    card.control.fatal();
    let text = error(&mut receiver).to_string();
    assert!(text.contains("beginning anew on") && text.contains("ibv_modify_qp"), "{text}");
}

/// Two legs by one device: what is wrong with one queue, up to its end, costs the other one no packet.
#[test]
fn a_leg_that_gives_errors_only_does_not_touch_the_other() {
    let card = Card::with(Ways { mtu: 9000, ..Ways::default() });
    let other = gdmedia::sdp::Leg { port: crate::card::PORT + 2, ..card.leg() };
    let legs = [card.leg(), other];
    let mut receiver = Verbs::open(&card.options(Cut::None, 64), &legs, &()).unwrap();
    receiver.join_all(&legs).unwrap();
    let to = std::net::SocketAddr::new(card.ip.into(), legs[1].port);
    let to_other = gdmedia::wire::net::Route::new(card.route().source(), to).unwrap();
    let (mut events, mut rounds) = (Vec::new(), 0);
    while events.is_empty() {
        rounds += 1;
        assert!(rounds < 1000, "it is never given up");
        // What the second leg has complete is there while the first one fails.
        (0..5).for_each(|n| assert!(card.control.inject(&frame(&to_other, &[0x80 + n; 300]), 0) > 0));
        card.deliver_one(&[0x80; 3000], 0);
        let came: Vec<u8> = poll(&mut receiver).iter().map(|octets| octets[0]).collect();
        assert_eq!(came, [0x80, 0x81, 0x82, 0x83, 0x84], "round {rounds}");
        receiver.take_events(&mut events);
    }
    assert!(matches!(events[..], [Event { what: What::InterfaceGone { leg: 0 }, .. }]), "{events:?}");
    assert!(rounds > 10, "it had its chances: {rounds}");
    (0..100).for_each(|_| {
        card.control.inject(&frame(&to_other, &[0x90; 300]), 0);
        assert_eq!(poll(&mut receiver).len(), 1);
    });
    // What the port drops from here on is seen by the leg that is left.
    let before = card.control.counts().out_of_buffer;
    (0..100).for_each(|_| {
        card.control.inject(&frame(&to_other, &[0x90; 300]), 0);
    });
    let dropped = card.control.counts().out_of_buffer;
    assert!(dropped >= before + 36, "64 entries: {before} {dropped}");
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    assert_eq!(receiver.counters().kernel_dropped, dropped);
    let remark = remarks.iter().find(|r| r.contains("nothing came by it any more")).expect("it is told");
    assert!(remark.contains("leg 0") && remark.contains("gives errors and nothing else"), "{remark}");
}

/// Bad frames among good ones are no reason to give a leg up, however many there are.
#[test]
fn a_leg_with_good_packets_among_errors_is_kept() {
    let card = Card::with(Ways { mtu: 9000, ..Ways::default() });
    let mut receiver = card.receiver(&card.options(Cut::None, 64));
    for n in 0..300 {
        assert!(card.deliver_one(&[0x80; 300], 0), "{n}");
        card.deliver_one(&[0x80; 3000], 0);
        assert_eq!(poll(&mut receiver).len(), 1, "{n}");
    }
}

#[test]
fn completions_that_are_lost_end_reception() {
    let card = Card::new();
    let mut receiver = card.receiver(&card.options(Cut::None, 64));
    card.control.overrun();
    let text = error(&mut receiver).to_string();
    assert!(text.contains("IBV_EVENT_CQ_ERR") || text.contains("completions"), "{text}");
}

#[test]
fn completions_that_cannot_be_read_end_reception() {
    // mlx5 gives -2 for a completion of a queue that it does not know.
    for code in [libc::EINVAL, -2] {
        let card = Card::new();
        let mut receiver = card.receiver(&card.options(Cut::None, 64));
        (0..3).for_each(|_| assert!(card.deliver_one(&[0x80; 300], 0)));
        assert_eq!(poll(&mut receiver).len(), 3);
        card.control.fail("ibv_start_poll", code, 1);
        let text = error(&mut receiver).to_string();
        assert!(text.contains("taking completions on") && text.contains("Invalid argument"), "{text}");
        assert_eq!(receiver.counters().datagrams, 3, "none is made up");
    }
}
