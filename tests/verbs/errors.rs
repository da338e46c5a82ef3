//! Every call that the library may refuse: what a person reads, and that nothing is left behind.

use crate::card::Card;
use crate::library::{INFINIBAND, NO_ACCESS, NO_NET_RAW, NO_RAW_PACKET, Ways};
use gdmedia::mem::Host;
use gdmedia::rx::verbs::{self, Cut, Options};
use gdmedia::rx::{Receiver, Verbs};
use gdmedia::sdp::{Leg, SourceFilter};
use gdmedia::{Error, Kind};

fn refused(card: &Card, options: &Options) -> Error {
    let error = match Verbs::<Host>::open(options, &[card.leg()], &()) {
        Err(error) => error,
        Ok(mut receiver) => receiver.join(0, &card.leg()).unwrap_err(),
    };
    let left = card.control.counts();
    assert_eq!((left.devices, left.pds, left.mrs, left.cqs, left.qps, left.flows), (0, 0, 0, 0, 0, 0), "{error}");
    error
}

#[test]
fn each_refusal_has_its_words_and_leaves_nothing() {
    for (call, errno, kind, words) in [
        ("ibv_open_device", libc::EACCES, Kind::Permission, &["opening mlx5_", "may not open"][..]),
        ("ibv_open_device", libc::ENOMEM, Kind::Unavailable, &["opening mlx5_", "no memory"]),
        ("ibv_alloc_pd", libc::ENOMEM, Kind::Unavailable, &["opening mlx5_", "no memory"]),
        ("ibv_reg_mr", libc::ENOMEM, Kind::Unavailable, &["giving", "MiB", "locked", "ulimit -l"]),
        ("ibv_create_comp_channel", libc::EMFILE, Kind::Unavailable, &["a queue on mlx5_"]),
        (
            "ibv_create_qp",
            libc::EPERM,
            Kind::Permission,
            &["a queue on mlx5_", "CAP_NET_RAW", "setcap cap_net_raw,cap_ipc_lock+ep"],
        ),
        (
            "ibv_create_qp",
            libc::EOPNOTSUPP,
            Kind::Unavailable,
            &["a queue on mlx5_", "no raw packets", "--backend xdp"],
        ),
        ("ibv_modify_qp", libc::EINVAL, Kind::Unavailable, &["a queue on mlx5_", "ibv_modify_qp"]),
        ("ibv_post_recv", libc::EINVAL, Kind::Unavailable, &["handing entries", "ibv_post_recv"]),
        ("ibv_create_flow", libc::EPERM, Kind::Permission, &["a rule for 127.", "CAP_NET_RAW"]),
        ("ibv_create_flow", libc::ENOMEM, Kind::Unavailable, &["a rule for 127.", "one more rule"]),
        ("ibv_create_flow", libc::EOPNOTSUPP, Kind::Unavailable, &["a rule for 127.", "does not steer"]),
    ] {
        for cut in [Cut::None, Cut::At(96)] {
            let card = Card::new();
            card.control.fail(call, errno, 1);
            let error = refused(&card, &Options { events: true, ..card.options(cut, 64) });
            let text = error.to_string();
            assert!(text.contains(call) && words.iter().all(|word| text.contains(word)), "{call}: {text}");
            assert!(error.kind() == kind && error.cure_text().contains("docs/verbs.md"), "{call}: {text}");
            // The next one is received.
            drop(card.receiver(&card.options(cut, 64)));
        }
    }
}

#[test]
fn the_second_plane_that_is_refused_gives_the_first_one_back() {
    let card = Card::with(Ways { memlock: 256 << 10, ..Ways::default() });
    // 64 slots of 192 octets fit, the rest does not.
    let error = refused(&card, &card.options(Cut::At(96), 200));
    assert!(error.to_string().contains("locked"), "{error}");
}

#[test]
fn a_completion_queue_is_taken_in_the_next_best_way() {
    let card = Card::new();
    card.control.fail("ibv_create_cq_ex", libc::EOPNOTSUPP, 2);
    let receiver = card.receiver(&card.options(Cut::None, 64));
    assert!(
        receiver.caps().notes.iter().any(|note| note.contains("stamps no completions")),
        "{:?}",
        receiver.caps().notes
    );
    drop(receiver);
    card.control.fail("ibv_create_cq_ex", libc::EOPNOTSUPP, 3);
    card.control.fail("ibv_create_cq", libc::ENOMEM, 1);
    assert!(refused(&card, &card.options(Cut::None, 64)).to_string().contains("ibv_create_cq"));
}

#[test]
fn devices_that_cannot_are_refused() {
    for (ways, kind, words) in [
        (Ways { flags: NO_NET_RAW, ..Ways::default() }, Kind::Permission, "CAP_NET_RAW"),
        (Ways { flags: NO_ACCESS, ..Ways::default() }, Kind::Permission, "/dev/infiniband"),
        (Ways { flags: NO_RAW_PACKET, ..Ways::default() }, Kind::Unavailable, "no raw packets"),
        (Ways { flags: INFINIBAND, ..Ways::default() }, Kind::Unavailable, "InfiniBand, not Ethernet"),
    ] {
        let card = Card::with(ways);
        let error = refused(&card, &card.options(Cut::At(96), 64));
        assert!(error.kind() == kind && error.to_string().contains(words), "{error}");
    }
    let card = Card::with(Ways { max_sge: 1, ..Ways::default() });
    let error = refused(&card, &card.options(Cut::At(96), 64));
    assert!(error.to_string().contains("cannot cut packets in two"), "{error}");
    drop(card.receiver(&card.options(Cut::None, 64)));
}

#[test]
fn a_library_that_is_not_there_or_another_is_told() {
    let card = Card::new();
    for (path, words) in [
        (
            "/nowhere/libibverbs.so.1",
            &["libibverbs cannot be used", "/nowhere/libibverbs.so.1", "apt install libibverbs1"][..],
        ),
        ("libm.so.6", &["it lacks ibv_get_device_list, ibv_free_device_list", "ibv_create_qp"]),
    ] {
        let options = Options { library: Some(path.into()), ..card.options(Cut::None, 64) };
        for error in [
            Verbs::<Host>::open(&options, &[card.leg()], &()).err().unwrap(),
            verbs::usable(Some("lo"), card.ip.into(), &options).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(error.kind() == Kind::Unavailable && words.iter().all(|word| text.contains(word)), "{text}");
        }
    }
}

/// The system's own library, where it is installed: it knows no device of a made-up name.
#[test]
fn the_librarys_own_list_is_named_where_it_has_no_driver() {
    if std::path::Path::new("/sys/class/infiniband").exists() {
        return println!("skipped: this machine has devices");
    }
    let card = Card::new();
    let options = Options { library: None, ..card.options(Cut::None, 64) };
    let error = Verbs::<Host>::open(&options, &[card.leg()], &()).err().unwrap();
    let text = error.to_string();
    if text.contains("apt install libibverbs1") {
        return println!("skipped: libibverbs is not installed");
    }
    assert!(error.kind() == Kind::Unavailable && text.contains("ibv_get_device_list"), "{text}");
}

#[test]
fn flows_that_it_cannot_receive_are_refused_with_the_reason() {
    let card = Card::new();
    let options = card.options(Cut::None, 64);
    let open = |legs: &[Leg]| Verbs::<Host>::open(&options, legs, &()).err().unwrap().to_string();
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
    let none = Options { sysfs: "/nowhere".into(), ..options.clone() };
    let error = Verbs::<Host>::open(&none, &[card.leg()], &()).err().unwrap();
    assert!(error.to_string().contains("no RDMA device belongs to interface lo (there is none)"), "{error}");
    let mut receiver = card.receiver(&options);
    let error = receiver.join(0, &leg("127.0.0.1", 9, SourceFilter::Any)).unwrap_err();
    assert!(error.to_string().contains("none of those"), "{error}");
    assert!(receiver.join(1, &card.leg()).is_err());
    receiver.join(0, &card.leg()).unwrap();
    assert_eq!(card.control.counts().flows, 1, "joined once");
}

#[test]
fn waiting_that_is_refused_is_never_a_wait_for_ever() {
    let card = Card::new();
    let mut receiver = card.receiver(&Options { events: true, ..card.options(Cut::None, 64) });
    card.control.fail("ibv_req_notify_cq", libc::EINVAL, 1);
    assert!(receiver.wait(std::time::Duration::from_secs(3600)), "it is polled again");
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    assert!(remarks.iter().any(|r| r.contains("waiting for the card was refused")), "{remarks:?}");
    // Without the word for it nothing is waited for.
    assert!(!card.receiver(&card.options(Cut::None, 64)).wait(std::time::Duration::from_secs(3600)));
}

#[test]
fn entries_that_the_device_refuses_for_a_while_are_handed_over_later() {
    let card = Card::new();
    let mut receiver = card.receiver(&card.options(Cut::None, 64));
    let mut came = 0;
    for n in 0..400 {
        if n % 100 == 50 {
            card.control.fail("ibv_post_recv", libc::ENOMEM, 3);
        }
        card.deliver_one(&[0x80; 100], 0);
        came += crate::card::poll(&mut receiver).len();
    }
    assert_eq!((came, receiver.counters().kernel_dropped), (400, 0));
    let mut remarks = Vec::new();
    receiver.finish(&mut remarks).unwrap();
    assert!(remarks.iter().any(|r| r.contains("took fewer entries than it had said")), "{remarks:?}");
}
