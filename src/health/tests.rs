//! Known answers, placed by hand from the text of BCP-008-01 v1.0.

use super::*;
use crate::stats::{Reason, Rejected};
use proptest::prelude::*;

/// A receiver of two legs whose packets and frames come as told, judged ten times a second.
struct Bench {
    monitor: Monitor,
    now: Duration,
    packets: PacketCounters,
    legs: [LegCounters; 2],
    frames: FrameCounters,
    rx: RxCounters,
    links: Vec<Link>,
    synchronization: Synchronization,
    /// Which legs bring packets.
    alive: [bool; 2],
}

const STEP: Duration = Duration::from_millis(100);

fn links(states: [LinkState; 2]) -> Vec<Link> {
    ["NIC1", "NIC2"].into_iter().zip(states).map(|(name, state)| Link { name: name.into(), state }).collect()
}

impl Bench {
    fn new() -> Self {
        Bench {
            monitor: Monitor::new(Settings::default()),
            now: Duration::from_secs(100),
            packets: PacketCounters::default(),
            legs: Default::default(),
            frames: FrameCounters::default(),
            rx: RxCounters::default(),
            links: links([LinkState::Up; 2]),
            synchronization: Synchronization::NotUsed,
            alive: [true; 2],
        }
    }
    /// Activated, and past the time of instability.
    fn settled() -> Self {
        let mut bench = Bench::new();
        bench.monitor.activate(bench.now);
        bench.run(40);
        assert_eq!(bench.words(), ["Healthy", "AllUp", "Healthy", "NotUsed", "Healthy"]);
        bench.monitor.take_changes();
        bench
    }
    /// So many steps.
    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.now += STEP;
            for (leg, alive) in self.legs.iter_mut().zip(self.alive) {
                leg.received += if alive { 100 } else { 0 };
                leg.lost += if alive { 0 } else { 100 };
            }
            if self.alive.contains(&true) {
                self.packets.received += 100;
                self.frames.complete += 3;
            }
            self.judge();
        }
    }
    fn judge(&mut self) {
        self.monitor.update(
            self.now,
            &Inputs {
                links: &self.links,
                rx: self.rx,
                packets: self.packets,
                legs: &self.legs,
                frames: self.frames,
                synchronization: &self.synchronization,
            },
        );
    }
    fn words(&self) -> [&'static str; 5] {
        let status = self.monitor.status();
        [Domain::Overall, Domain::Link, Domain::Connection, Domain::ExternalSynchronization, Domain::Stream]
            .map(|domain| status.of(domain).word)
    }
    fn word(&self, domain: Domain) -> &'static str {
        self.monitor.status().of(domain).word
    }
    fn message(&self, domain: Domain) -> &str {
        self.monitor.status().of(domain).message.as_deref().unwrap_or_default()
    }
    fn transitions(&self) -> [u64; 4] {
        Domain::PARTS.map(|domain| self.monitor.status().of(domain).transitions)
    }
}

#[test]
fn the_numbers_are_those_of_the_data_types() {
    // NcOverallStatus, NcConnectionStatus, NcStreamStatus: Inactive 0 to Unhealthy 3; NcLinkStatus: AllUp 1 to AllDown 3.
    let all = [Health::Neutral, Health::Healthy, Health::PartiallyHealthy, Health::Unhealthy];
    assert_eq!(all.map(|health| health as u8), [0, 1, 2, 3]);
    assert_eq!(all.map(|h| Domain::Stream.word(h)), ["Inactive", "Healthy", "PartiallyHealthy", "Unhealthy"]);
    assert_eq!(all.map(|h| Domain::Link.word(h))[1..], ["AllUp", "SomeDown", "AllDown"]);
    assert_eq!(Domain::ExternalSynchronization.word(Health::Neutral), "NotUsed");
    assert_eq!(Settings::default().reporting_delay, Duration::from_secs(3));
    assert!(Settings::default().auto_reset);
}

#[test]
fn an_activation_is_healthy_at_once_and_reports_nothing_worse_for_the_delay() {
    let mut bench = Bench::new();
    bench.judge();
    assert_eq!(bench.words(), ["Inactive", "AllUp", "Inactive", "NotUsed", "Inactive"]);
    bench.monitor.activate(bench.now);
    assert_eq!(bench.words(), ["Healthy", "AllUp", "Healthy", "NotUsed", "Healthy"]);
    bench.alive = [false; 2];
    bench.links = links([LinkState::Off, LinkState::Up]);
    bench.run(29);
    assert_eq!(bench.words(), ["Healthy", "AllUp", "Healthy", "NotUsed", "Healthy"], "2.9 s");
    assert_eq!(bench.transitions(), [0; 4]);
    bench.run(1);
    assert_eq!(bench.words(), ["Unhealthy", "SomeDown", "Unhealthy", "NotUsed", "Unhealthy"], "3.0 s");
    assert_eq!(bench.transitions(), [1, 1, 0, 1]);
    assert_eq!(bench.message(Domain::Connection), "no packet has come for 3.0 s");
    assert_eq!(bench.message(Domain::Stream), "no frame for 3.0 s: no packets");
}

#[test]
fn a_stream_of_one_frame_a_second_is_healthy_as_long_as_they_come() {
    let mut bench = Bench::new();
    bench.monitor = Monitor::new(Settings { silence: Duration::from_secs(3), ..Settings::default() });
    bench.monitor.activate(bench.now);
    bench.run(40);
    for second in 0..10 {
        // Packets all the time, a frame at the end of it.
        for _ in 0..10 {
            bench.frames.complete = 120 + second;
            bench.now += STEP;
            bench.packets.received += 10;
            bench.legs.iter_mut().for_each(|leg| leg.received += 10);
            bench.judge();
        }
    }
    assert_eq!((bench.word(Domain::Stream), bench.transitions()), ("Healthy", [0; 4]));
    for _ in 0..21 {
        bench.now += STEP;
        bench.packets.received += 10;
        bench.legs.iter_mut().for_each(|leg| leg.received += 10);
        bench.judge();
    }
    assert_eq!(bench.word(Domain::Stream), "Unhealthy", "3.0 s after the last one");
    assert_eq!(bench.message(Domain::Stream), "no frame for 3.0 s, although packets come");
}

#[test]
fn what_is_over_before_the_delay_has_passed_is_not_reported() {
    let mut bench = Bench::new();
    bench.monitor.activate(bench.now);
    bench.packets.lost = 50;
    bench.run(20);
    assert_eq!(bench.words(), ["Healthy", "AllUp", "Healthy", "NotUsed", "Healthy"]);
    bench.run(40);
    assert_eq!(bench.transitions(), [0; 4]);
    assert_eq!(bench.message(Domain::Overall), "");
}

#[test]
fn less_healthy_at_once_and_more_healthy_after_the_delay() {
    let mut bench = Bench::settled();
    bench.packets.lost += 12;
    bench.run(1);
    assert_eq!(bench.word(Domain::Connection), "Unhealthy");
    assert_eq!(bench.message(Domain::Connection), "12 packets lost, by every leg");
    assert_eq!(bench.message(Domain::Overall), "12 packets lost, by every leg");
    // Healthy since the next step, so 3 s after that.
    bench.run(30);
    assert_eq!(bench.word(Domain::Connection), "Unhealthy", "2.9 s");
    bench.run(1);
    assert_eq!(bench.word(Domain::Connection), "Healthy");
    assert_eq!(bench.message(Domain::Connection), "Previously: 12 packets lost, by every leg");
    assert_eq!(bench.message(Domain::Overall), "Previously: 12 packets lost, by every leg");
    assert_eq!(bench.transitions(), [0, 1, 0, 0]);
    let changes: Vec<_> = bench.monitor.take_changes().into_iter().map(|c| (c.domain, c.from, c.to)).collect();
    let (there, back) = (("Healthy", "Unhealthy"), ("Unhealthy", "Healthy"));
    let wanted =
        [(Domain::Connection, there), (Domain::Overall, there), (Domain::Connection, back), (Domain::Overall, back)];
    assert_eq!(changes, wanted.map(|(domain, (from, to))| (domain, from, to)));
}

#[test]
fn health_must_last_for_the_delay() {
    let mut bench = Bench::settled();
    for _ in 0..3 {
        // Every 2 s, so that it is never healthy for 3 s.
        bench.packets.lost += 1;
        bench.run(20);
        assert_eq!(bench.word(Domain::Connection), "Unhealthy");
    }
    assert_eq!(bench.message(Domain::Connection), "3 packets lost, by every leg", "since it was healthy");
    assert_eq!(bench.transitions(), [0, 1, 0, 0], "it has become less healthy once");
}

#[test]
fn a_step_up_is_made_when_it_has_lasted_and_the_next_one_by_its_own_time() {
    let mut bench = Bench::settled();
    bench.links = links([LinkState::Off; 2]);
    bench.run(1);
    assert_eq!(
        (bench.word(Domain::Link), bench.message(Domain::Link)),
        ("AllDown", "NIC1 (switched off), NIC2 (switched off) are down")
    );
    bench.links = links([LinkState::Up, LinkState::NoCarrier]);
    bench.run(20);
    bench.links = links([LinkState::Up; 2]);
    bench.run(10);
    assert_eq!(bench.word(Domain::Link), "AllDown", "better for 2.9 s");
    bench.run(1);
    assert_eq!(bench.word(Domain::Link), "SomeDown", "at least that for 3 s");
    bench.run(19);
    assert_eq!(bench.word(Domain::Link), "SomeDown", "all up for 2.9 s");
    bench.run(1);
    assert_eq!(bench.word(Domain::Link), "AllUp");
    assert_eq!(bench.transitions()[0], 1);
}

#[test]
fn interfaces_that_are_down_are_named() {
    let mut bench = Bench::settled();
    bench.links = links([LinkState::Up, LinkState::NoCarrier]);
    bench.run(1);
    assert_eq!((bench.word(Domain::Link), bench.message(Domain::Link)), ("SomeDown", "NIC2 (no carrier) is down"));
    assert_eq!(bench.words()[0], "PartiallyHealthy");
    bench.links[0].state = LinkState::Gone;
    bench.run(1);
    assert_eq!(bench.word(Domain::Link), "AllDown");
    assert_eq!(bench.message(Domain::Link), "NIC1 (no such interface), NIC2 (no carrier) are down");
    assert_eq!(bench.words()[0], "Unhealthy");
    assert_eq!(bench.transitions()[0], 2);
}

#[test]
fn loss_recovery_is_partially_healthy() {
    let mut bench = Bench::settled();
    bench.legs[1].lost += 34;
    bench.run(1);
    assert_eq!(bench.words(), ["PartiallyHealthy", "AllUp", "PartiallyHealthy", "NotUsed", "Healthy"]);
    assert_eq!(bench.message(Domain::Connection), "leg 1 lost 34 packets, brought by another leg");
    assert_eq!(bench.monitor.status().legs, [LegState::Protected; 2]);
}

#[test]
fn a_dead_leg_leaves_the_other_unprotected() {
    let mut bench = Bench::settled();
    bench.alive = [true, false];
    bench.run(5);
    assert_eq!(bench.word(Domain::Connection), "PartiallyHealthy");
    assert_eq!(bench.message(Domain::Connection), "leg 1 has brought nothing for 0.5 s; unprotected");
    assert_eq!(bench.monitor.status().legs, [LegState::Unprotected, LegState::Silent]);
    bench.packets.lost += 1;
    bench.run(1);
    assert_eq!(bench.word(Domain::Connection), "Unhealthy");
    bench.alive = [false; 2];
    bench.run(10);
    assert_eq!(bench.message(Domain::Connection), "no packets for 1.0 s");
    assert_eq!(bench.monitor.status().legs, [LegState::Silent; 2]);
    assert_eq!(bench.message(Domain::Stream), "no frame for 1.0 s: no packets");
    assert_eq!(bench.message(Domain::Overall), "no packets for 1.0 s", "connection comes before stream");
    bench.alive = [true; 2];
    bench.run(31);
    assert_eq!(bench.words(), ["Healthy", "AllUp", "Healthy", "NotUsed", "Healthy"]);
    assert_eq!(bench.monitor.status().legs, [LegState::Protected; 2]);
}

#[test]
fn a_lone_leg_is_healthy_and_unprotected() {
    let mut monitor = Monitor::new(Settings::default());
    monitor.activate(Duration::ZERO);
    let mut leg = LegCounters::default();
    for n in 1..=50 {
        leg.received += 10;
        let packets = PacketCounters { received: leg.received, ..PacketCounters::default() };
        let frames = FrameCounters { complete: n, ..FrameCounters::default() };
        let inputs = Inputs {
            packets,
            frames,
            legs: &[leg],
            synchronization: &Synchronization::NotUsed,
            links: &[],
            rx: RxCounters::default(),
        };
        monitor.update(STEP * n as u32, &inputs);
    }
    assert_eq!((monitor.status().overall.word, &monitor.status().legs[..]), ("Healthy", &[LegState::Unprotected][..]));
}

#[test]
fn late_packets_and_those_of_the_socket_buffer_are_named() {
    let mut bench = Bench::settled();
    bench.packets.lost += 9;
    bench.packets.late += 2;
    bench.rx.kernel_dropped += 5;
    bench.run(1);
    let wanted = "9 packets lost, by every leg, 2 came too late, 5 dropped by this machine's socket buffer";
    assert_eq!(bench.message(Domain::Connection), wanted);
}

#[test]
fn streams_that_decode_with_inconsistencies_are_partially_healthy() {
    type Case<'a> = (&'a dyn Fn(&mut Bench), &'a str);
    let cases: [Case<'_>; 6] = [
        (&|b| (b.frames.incomplete, b.frames.missing_octets) = (1, 1200), "1 frame incomplete, 1200 octets missing"),
        (
            &|b| (b.frames.incomplete, b.frames.missing_octets, b.frames.torn) = (3, 50, 2),
            "3 frames incomplete, 50 octets missing, 2 of them overwritten in the ring",
        ),
        (
            &|b| (b.frames.dropped, b.frames.shed, b.frames.no_memory) = (5, 4, 1),
            "5 frames dropped here (4 shed, 1 without memory)",
        ),
        (
            &|b| b.packets.rejected.0[Reason::PayloadType as usize] = 7,
            "7 packets not used: payload type does not match the SDP",
        ),
        (&|b| b.packets.restarts = 1, "the sender started anew"),
        (&|b| b.legs[1].foreign = 1, "1 packet of a second sender"),
    ];
    for (happens, message) in cases {
        let mut bench = Bench::settled();
        happens(&mut bench);
        bench.run(1);
        assert_eq!((bench.word(Domain::Stream), bench.message(Domain::Stream)), ("PartiallyHealthy", message));
        bench.run(31);
        assert_eq!(bench.message(Domain::Stream), format!("Previously: {message}"));
        assert_eq!(bench.transitions(), [0, 0, 0, 1]);
    }
}

#[test]
fn packets_that_make_no_frames_are_unhealthy() {
    let mut bench = Bench::settled();
    for _ in 0..6 {
        bench.frames.complete -= 3;
        bench.packets.rejected.0[Reason::Row as usize] += 9;
        bench.run(1);
    }
    assert_eq!(bench.word(Domain::Stream), "Unhealthy");
    assert_eq!(bench.message(Domain::Stream), "no frame for 0.6 s: rows beyond the SDP's height");
    bench.frames.complete -= 3;
    bench.run(1);
    assert_eq!(bench.message(Domain::Stream), "no frame for 0.7 s, although packets come");
}

#[test]
fn overall_is_the_worst_and_says_why_by_the_first_of_the_worst() {
    let mut bench = Bench::settled();
    bench.legs[0].lost += 1;
    bench.frames.incomplete += 1;
    bench.run(1);
    assert_eq!(bench.message(Domain::Overall), "leg 0 lost 1 packet, brought by another leg");
    bench.links = links([LinkState::Up, LinkState::NoCarrier]);
    bench.run(1);
    assert_eq!(bench.message(Domain::Overall), "NIC2 (no carrier) is down");
    bench.synchronization = Synchronization::NotLocked { why: "ptp4l listens".into() };
    bench.run(1);
    assert_eq!((bench.words()[0], bench.message(Domain::Overall)), ("Unhealthy", "ptp4l listens"));
    assert_eq!(bench.transitions(), [1, 1, 0, 1], "from a neutral state it is not counted");
    assert_eq!(bench.monitor.status().overall.transitions, 3);
}

#[test]
fn a_change_of_the_synchronisation_source_is_partially_healthy_for_the_delay() {
    let mut bench = Bench::settled();
    let locked = |source: &str| Synchronization::Locked { source: source.into(), but: None };
    assert_eq!(bench.monitor.status().synchronization_source_id.as_deref(), Some("internal"));
    bench.synchronization = locked("00:0c:ec:ff:fe:0a:2b:a1 on NIC1");
    bench.run(1);
    assert_eq!(bench.word(Domain::ExternalSynchronization), "Healthy", "from NotUsed at once");
    bench.synchronization = locked("70:35:09:ff:fe:c7:da:00 on NIC2");
    bench.run(1);
    assert_eq!(bench.word(Domain::ExternalSynchronization), "PartiallyHealthy");
    let from = "Source change from: 00:0c:ec:ff:fe:0a:2b:a1 on NIC1";
    assert_eq!(bench.message(Domain::ExternalSynchronization), from);
    assert_eq!(bench.monitor.status().synchronization_source_id.as_deref(), Some("70:35:09:ff:fe:c7:da:00 on NIC2"));
    bench.run(30);
    assert_eq!(bench.word(Domain::ExternalSynchronization), "PartiallyHealthy");
    bench.run(1);
    assert_eq!(bench.word(Domain::ExternalSynchronization), "Healthy");
    assert_eq!(bench.message(Domain::ExternalSynchronization), format!("Previously: {from}"));
    bench.synchronization = Synchronization::NotLocked { why: "no master".into() };
    bench.run(1);
    assert_eq!(bench.word(Domain::ExternalSynchronization), "Unhealthy");
    assert_eq!(bench.monitor.status().synchronization_source_id, None);
    assert_eq!(bench.transitions()[2], 2);
    // Found again: no change.
    bench.synchronization =
        Synchronization::Locked { source: "70:35:09:ff:fe:c7:da:00 on NIC2".into(), but: Some("none on NIC1".into()) };
    bench.run(31);
    assert_eq!(bench.word(Domain::ExternalSynchronization), "PartiallyHealthy");
    assert_eq!(bench.message(Domain::ExternalSynchronization), "none on NIC1");
    bench.synchronization = Synchronization::NotUsed;
    bench.run(1);
    assert_eq!(bench.words()[3], "NotUsed", "to a neutral state at once");
}

#[test]
fn a_deactivation_shows_no_state_in_between() {
    let mut bench = Bench::settled();
    bench.monitor.deactivate();
    assert_eq!(bench.words(), ["Inactive", "AllUp", "Inactive", "NotUsed", "Inactive"]);
    bench.alive = [false; 2];
    bench.run(50);
    assert_eq!(bench.words(), ["Inactive", "AllUp", "Inactive", "NotUsed", "Inactive"]);
    assert_eq!(bench.transitions(), [0; 4]);
    let changes: Vec<_> = bench.monitor.take_changes().iter().map(|c| (c.domain, c.to)).collect();
    assert_eq!(
        changes,
        [(Domain::Connection, "Inactive"), (Domain::Stream, "Inactive"), (Domain::Overall, "Inactive")]
    );
}

#[test]
fn counters_and_messages_are_reset_by_a_client_and_by_an_activation() {
    let mut bench = Bench::settled();
    let fail = |bench: &mut Bench| {
        bench.packets.lost += 5;
        (bench.legs[0].lost, bench.legs[1].lost, bench.legs[1].late) =
            (bench.legs[0].lost + 5, bench.legs[1].lost + 8, 3);
        bench.run(1);
        bench.run(31);
        assert_eq!(bench.transitions(), [0, 1, 0, 0]);
        assert!(bench.message(Domain::Connection).starts_with("Previously: "));
    };
    let lost =
        |bench: &Bench| bench.monitor.lost_packets().iter().map(|c| (c.name.clone(), c.value)).collect::<Vec<_>>();
    fail(&mut bench);
    assert_eq!(lost(&bench), [("leg 0".into(), 5), ("leg 1".into(), 8)]);
    assert_eq!(bench.monitor.late_packets()[1].value, 3);
    bench.monitor.reset_counters_and_messages();
    assert_eq!((bench.transitions(), bench.message(Domain::Connection)), ([0; 4], ""));
    assert_eq!(lost(&bench), [("leg 0".into(), 0), ("leg 1".into(), 0)]);
    fail(&mut bench);
    assert_eq!(lost(&bench), [("leg 0".into(), 5), ("leg 1".into(), 8)]);
    bench.monitor.activate(bench.now);
    assert_eq!((bench.transitions(), bench.message(Domain::Overall)), ([0; 4], ""));
    assert_eq!(lost(&bench), [("leg 0".into(), 0), ("leg 1".into(), 0)]);

    let mut keeps = Bench::settled();
    keeps.monitor.settings.auto_reset = false;
    fail(&mut keeps);
    keeps.monitor.activate(keeps.now);
    assert_eq!(keeps.transitions(), [0, 1, 0, 0]);
}

#[test]
fn as_json() {
    let mut bench = Bench::settled();
    bench.legs[1].lost += 1;
    bench.run(1);
    let json = serde_json::to_value(bench.monitor.status()).unwrap();
    let message = "leg 1 lost 1 packet, brought by another leg";
    let connection = serde_json::json!({ "status": "PartiallyHealthy", "message": message, "transitions": 1 });
    assert_eq!((&json["connection"], &json["legs"]), (&connection, &serde_json::json!(["protected", "protected"])));
    assert_eq!(json["external_synchronization"]["status"], "NotUsed");
    let change = serde_json::to_value(&bench.monitor.take_changes()[0]).unwrap();
    let wanted =
        serde_json::json!({ "domain": "connection", "from": "Healthy", "to": "PartiallyHealthy", "message": message });
    assert_eq!(change, wanted);
}

/// What may happen in a step.
fn happening() -> impl Strategy<Value = (u8, bool, bool, u8)> {
    (0u8..6, proptest::bool::weighted(0.9), proptest::bool::weighted(0.9), 0u8..4)
}

proptest! {
    /// The rules of the reporting delay, against what was seen at each step.
    #[test]
    fn every_status_keeps_the_rules(steps in proptest::collection::vec(happening(), 1..300)) {
        let mut bench = Bench::new();
        bench.monitor.activate(bench.now);
        let mut before = Domain::PARTS.map(|d| (bench.monitor.status().of(d).health, 0));
        let mut worsened = [bench.now; 4];
        for (what, first, second, link) in steps {
            match what {
                0 => bench.packets.lost += 1,
                1 => bench.legs[0].lost += 1,
                2 => bench.frames.incomplete += 1,
                3 => bench.frames.dropped += 1,
                _ => {}
            }
            bench.alive = [first, second];
            bench.links = links([if link == 0 { LinkState::Off } else { LinkState::Up }, if link < 2 { LinkState::NoCarrier } else { LinkState::Up }]);
            bench.run(1);
            let status = bench.monitor.status();
            let worst = Domain::PARTS.map(|d| status.of(d).health).into_iter().max().unwrap().max(Health::Healthy);
            prop_assert_eq!(status.overall.health, worst);
            for (at, domain) in Domain::PARTS.into_iter().enumerate() {
                let now = status.of(domain);
                let (health, transitions) = before[at];
                prop_assert_eq!(now.transitions, transitions + u64::from(now.health > health && health != Health::Neutral));
                if now.health < health {
                    let held = bench.now - worsened[at];
                    prop_assert!(held >= Duration::from_secs(3), "{:?} became {} after {:?}", domain, now.word, held);
                }
                prop_assert!(now.health <= Health::Healthy || now.message.is_some());
                if now.health > health {
                    worsened[at] = bench.now;
                }
                before[at] = (now.health, now.transitions);
            }
        }
    }
}

#[test]
fn rejections_since_and_the_most_of_them() {
    let mut before = Rejected::default();
    before.0[Reason::Row as usize] = 5;
    let mut now = before;
    assert_eq!(now.since(&before).most(), None);
    now.0[Reason::Row as usize] = 7;
    now.0[Reason::Ssrc as usize] = 1;
    assert_eq!(now.since(&before).most(), Some((Reason::Row, 2)));
}
