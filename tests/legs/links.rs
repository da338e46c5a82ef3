//! Two legs by two links between namespaces: links that go down and come back, interfaces that are deleted and made anew,
//! backends of which one can have one leg only. Needs root and `ip netns`.

use crate::netns::Net;
use gdmedia::event::{Event, What};
use gdmedia::frame::Frame;
use gdmedia::mem::Host;
use gdmedia::pipeline::{HostPipeline, Progress, Settings};
use gdmedia::rx::socket::Options;
use gdmedia::rx::{Receiver, Renewed, RxError, Socket, Xdp, xdp};
use gdmedia::sdp::{Flow, Leg, Mode, SourceFilter};
use gdmedia::stats::{FrameCounters, LegCounters};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PORT: u16 = 5004;
const PATIENCE: Duration = Duration::from_secs(10);

fn group(leg: u8) -> IpAddr {
    Ipv4Addr::new(239, 77, 1, 1 + leg).into()
}

fn legs() -> [Leg; 2] {
    [0, 1].map(|leg| Leg { destination: group(leg), port: PORT, sources: SourceFilter::Any, ttl: None, mid: None })
}

fn ip(words: &str) {
    let out = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    assert!(out.status.success(), "ip {words}: {}", String::from_utf8_lossy(&out.stderr));
}

fn within(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The program in a namespace, with its words on standard error.
fn gdmedia(namespace: &str, words: &[&str]) -> Child {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_gdmedia")]).args(words);
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The last line of what it says, which is JSON; all lines.
fn summary(mut child: Child) -> (serde_json::Value, Vec<String>) {
    let lines: Vec<String> = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
    child.wait().unwrap();
    let last = lines.last().unwrap_or_else(|| panic!("it said nothing"));
    (serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {lines:?}")), lines)
}

/// A sender of both legs, and the flow that it writes down.
fn sender(net: &Net, folder: &Path, format: &str, duration: Duration) -> (Child, Flow) {
    let sdp = folder.join("stream.sdp");
    let seconds = format!("{}ms", duration.as_millis());
    let [a, b] = [0, 1].map(|leg| format!("{}:{PORT}", group(leg)));
    let child = gdmedia(
        &net.tx,
        &[
            "send",
            "--leg",
            &a,
            "--leg",
            &b,
            "--interface",
            "tx0",
            "--interface",
            "tx1",
            "--format",
            format,
            "--write-sdp",
            sdp.to_str().unwrap(),
            "--duration",
            &seconds,
            "--group",
            "32",
            "--json",
        ],
    );
    within("the sender writes no SDP", || std::fs::read(&sdp).is_ok_and(|text| text.ends_with(b"\n")));
    let flow = gdmedia::sdp::parse(&std::fs::read(&sdp).unwrap(), Mode::Lenient).flows.remove(0);
    assert!(flow.usable && flow.legs.len() == 2);
    (child, flow)
}

/// What is known of a reception at one moment.
#[derive(Clone, Default)]
struct Seen {
    frames: FrameCounters,
    lost: u64,
    legs: Vec<LegCounters>,
    events: Vec<Event>,
    /// How long the thread had work and no core.
    waited: Duration,
}

/// Receives on a thread of its own until it is told to stop.
struct Reception {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Reception {
    fn begin(receivers: Vec<Box<dyn Receiver<Mem = Host>>>, flow: &Flow) -> Self {
        let (seen, stop) = (Arc::<Mutex<Seen>>::default(), Arc::<AtomicBool>::default());
        let deliver = Box::new(|_: Frame, _| {});
        let mut receivers = receivers.into_iter();
        let first = receivers.next().unwrap();
        let mut pipeline = HostPipeline::open(first, flow, &Settings::default(), deliver).unwrap();
        for receiver in receivers {
            pipeline.add(receiver).map_err(|(error, _)| error).unwrap();
        }
        let (into, until) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let mut wait = gdmedia::rx::Wait::new(Duration::from_millis(1));
            let mut published = Instant::now();
            let publish = |pipeline: &mut HostPipeline| {
                let mut seen = into.lock().unwrap();
                pipeline.take_events(&mut seen.events);
                (seen.frames, seen.lost) = (pipeline.frames(), pipeline.depacketiser().counters().lost);
                seen.legs = pipeline.depacketiser().legs();
            };
            while !until.load(Ordering::Relaxed) {
                match pipeline.step() {
                    Ok(Progress::Busy) => {}
                    Ok(Progress::Idle) => wait.sleep(),
                    Err(RxError::End) => break,
                    Err(RxError::Failed(error) | RxError::Gone(error)) => panic!("{error}"),
                }
                if published.elapsed() >= Duration::from_millis(10) {
                    published = Instant::now();
                    publish(&mut pipeline);
                }
            }
            pipeline.finish(&mut Vec::new()).unwrap();
            publish(&mut pipeline);
            into.lock().unwrap().waited = waited();
        });
        Reception { seen, stop, thread }
    }
    fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
    fn end(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        self.seen.lock().unwrap().clone()
    }
}

/// How long this thread has waited for a core (the kernel's scheduling statistics).
fn waited() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn sockets(net: &Net, legs: &[Leg]) -> Socket {
    Net::inside(&net.rx, || {
        let mut socket =
            Socket::open(Options { interfaces: vec!["rx0".into(), "rx1".into()], ..Options::default() }).unwrap();
        socket.join_all(legs).unwrap();
        socket
    })
}

/// How a run of links that go down is made: `FORMAT:FLIPS`, such as `1080p59.94:200`, in the variable GDMEDIA_LEGS_DOWN; a
/// short one without.
fn asked() -> (String, u32) {
    let Ok(text) = std::env::var("GDMEDIA_LEGS_DOWN") else { return ("320x180p25".into(), 5) };
    let (format, flips) = text.split_once(':').expect("GDMEDIA_LEGS_DOWN=FORMAT:FLIPS");
    (format.to_owned(), flips.parse().unwrap())
}

/// Nanoseconds, as milliseconds: the half, the most.
fn spread(mut ns: Vec<i64>) -> String {
    ns.sort_unstable();
    let ms = |at: usize| ns.get(at).map_or(0.0, |ns| *ns as f64 / 1e6);
    format!("{:.1} ms (half of them), {:.1} ms (worst)", ms(ns.len() / 2), ms(ns.len().saturating_sub(1)))
}

#[test]
fn links_go_down_in_turn_and_no_frame_is_lost() {
    let Some(net) = Net::new() else { return };
    let (format, flips) = asked();
    let (down, up) = (Duration::from_millis(700), Duration::from_millis(800));
    let folder = tempfile::tempdir().unwrap();
    let duration = (down + up) * flips + Duration::from_secs(4);
    let (child, flow) = sender(&net, folder.path(), &format, duration);
    let clock = Socket::open(Options::default()).unwrap();
    let reception = Reception::begin(vec![Box::new(sockets(&net, &flow.legs))], &flow);
    within("no frames come", || reception.seen().frames.complete >= 10);
    std::thread::sleep(up);
    let (mut expected, mut times, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for flip in 0..flips {
        let before = reception.seen();
        // Now this leg and now that, now at this end and now at the other.
        let leg = (flip % 2) as u8;
        let (namespace, end) = if flip / 2 % 2 == 0 { (&net.rx, "rx") } else { (&net.tx, "tx") };
        let mut switch = |how| {
            times.push(clock.now().unwrap());
            ip(&format!("-n {namespace} link set {end}{leg} {how}"));
        };
        switch("down");
        std::thread::sleep(down);
        switch("up");
        std::thread::sleep(up);
        expected.extend([(leg, false), (leg, true)]);

        let after = reception.seen();
        let of = |leg: u8| (before.legs[usize::from(leg)], after.legs[usize::from(leg)]);
        let mut check = |holds: bool, what: &str| {
            if !holds {
                let told =
                    [&before, &after].map(|seen| format!("{:?}, lost {}, {:?}", seen.frames, seen.lost, seen.legs));
                wrong.push(format!("flip {flip} of leg {leg}: {what}: {}, then {}", told[0], told[1]));
            }
        };
        let (was, is) = of(1 - leg);
        let untouched = |c: LegCounters| (c.late, c.duplicate, c.reordered, c.restarts, c.foreign);
        check(untouched(was) == untouched(is), "the other one was touched");
        check(is.received > was.received && is.used > was.used, "the other one does not bring what it lacks");
        // What a leg lacks is charged when so many numbers have passed. Of a slow stream that takes seconds.
        let charged = is.received - was.received > 4 * gdmedia::track::WINDOW as u64;
        check(!charged || is.lost == was.lost, "the other one lost something");
        let (was, is) = of(leg);
        check(!charged || is.lost > was.lost, "it lost nothing");
        check(is.received > was.received, "it does not come back");
        let lost = |seen: &Seen| (seen.frames.incomplete, seen.lost);
        check(lost(&after) == lost(&before), "a frame lacks something");
    }
    let seen = reception.end();
    let (sent, said) = summary(child);
    // Each leg falls silent and comes back, when it does, and nothing else happens.
    let states = seen.events.iter().filter_map(|event| match event.what {
        What::LegSilent { leg } => Some(((leg, false), event.at)),
        What::LegBack { leg, .. } => Some(((leg, true), event.at)),
        // A sender that is stopped for a while skips frames.
        What::LegBegan { .. } | What::TimestampJump { .. } => None,
        what => panic!("{what}"),
    });
    let (states, seen_at): (Vec<_>, Vec<_>) = states.unzip();
    let mut silent = [0; 2];
    for event in &seen.events {
        if let What::LegBack { leg, silent_ns } = event.what {
            silent[usize::from(leg)] += silent_ns;
        }
    }
    let delays = |first: usize| -> Vec<i64> {
        times.iter().zip(&seen_at).skip(first).step_by(2).map(|(time, seen)| seen.since(*time)).collect()
    };
    println!("{format}, {flips} times: {:?}", seen.frames);
    println!("a leg is silent after {}, back after {}", spread(delays(0)), spread(delays(1)));
    for (number, leg) in seen.legs.iter().enumerate() {
        println!("leg {number}: {leg:?}");
    }
    println!("sender: {}", said.last().unwrap());
    // 100 ms without a packet end a frame, whoever is to blame.
    let stopped = sent["lateness"]["max_us"].as_f64().unwrap() / 1e3;
    assert_eq!(states, expected);
    assert!(wrong.is_empty(), "{}\n(the sender was stopped for {stopped} ms once)", wrong.join("\n"));
    assert_eq!((seen.frames.incomplete, seen.frames.dropped, seen.lost), (0, 0, 0), "{:?}", seen.frames);
    for (number, leg) in seen.legs.iter().enumerate() {
        assert_eq!(leg.received, leg.used + leg.redundant, "leg {number}");
        let unsent = sent["legs"][number]["unsent"].as_u64().unwrap();
        assert!(unsent > 0 && leg.lost >= unsent, "leg {number}: the sender has seen it, too: {sent}");
        // It lost what was sent while it was silent, to a frame each time.
        let rate = sent["packets"]["sent"].as_f64().unwrap() / sent["seconds"].as_f64().unwrap();
        let frame = sent["packets"]["sent"].as_f64().unwrap() / sent["frames"]["sent"].as_f64().unwrap();
        let expected = silent[number] as f64 / 1e9 * rate;
        let most = frame * f64::from(flips) + 0.05 * expected;
        assert!((leg.lost as f64 - expected).abs() < most, "leg {number}: {expected} packets in its silence, {leg:?}");
    }
    assert_eq!(sent["packets"]["dropped"], 0);
}

/// A socket that sends groups by the link of a leg.
fn sending(net: &Net, leg: u8) -> UdpSocket {
    let own = Ipv4Addr::new(10, 77 + leg, 0, 1);
    Net::inside(&net.tx, || {
        let socket = socket2::Socket::from(UdpSocket::bind((own, 0)).unwrap());
        socket.set_multicast_if_v4(&own).unwrap();
        socket.into()
    })
}

#[test]
fn a_leg_that_is_flooded_takes_its_turns_and_no_more() {
    let Some(net) = Net::new() else { return };
    let xdp = || {
        let interfaces = vec!["rx0".into(), "rx1".into()];
        let mut receiver = Xdp::open(xdp::Options { interfaces, ..Default::default() }).unwrap();
        receiver.join_all(&legs()).unwrap();
        Box::new(receiver) as Box<dyn Receiver<Mem = Host>>
    };
    for receiver in
        [&|| Box::new(sockets(&net, &legs())) as Box<dyn Receiver<Mem = Host>>, &|| Net::inside(&net.rx, xdp)]
            as [&dyn Fn() -> Box<dyn Receiver<Mem = Host>>; 2]
    {
        let mut receiver = receiver();
        let name = receiver.caps().backend;
        let [flooded, other] = [0, 1].map(|leg| sending(&net, leg));
        for _ in 0..1500 {
            flooded.send_to(&[0; 100], (group(0), PORT)).unwrap();
        }
        other.send_to(&[1; 100], (group(1), PORT)).unwrap();
        let polls = (1..).find(|_| {
            let lease = receiver.poll().unwrap();
            let found = lease.slots().iter().any(|slot| slot.leg == 1);
            assert!(found || !lease.is_empty(), "{name}: it never came");
            receiver.release(lease);
            found
        });
        assert!(polls <= Some(2), "{name}: {polls:?} polls");
    }
}

#[test]
fn strangers_that_flood_a_leg_do_not_touch_the_other() {
    let Some(net) = Net::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (child, flow) = sender(&net, folder.path(), "320x180p25", Duration::from_secs(6));
    let reception = Reception::begin(vec![Box::new(sockets(&net, &flow.legs))], &flow);
    within("no frames come", || reception.seen().frames.complete >= 5);
    // From the address that the SDP allows, as fast as it goes.
    let stranger = sending(&net, 0);
    let stop = AtomicBool::new(false);
    let (seen, sent) = std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut sent = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                sent += u64::from(stranger.send_to(&[0x80; 1200], (group(0), PORT)).is_ok());
            }
            sent
        });
        let before = reception.seen().frames.complete;
        let begun = Instant::now();
        while reception.seen().frames.complete < before + 75 && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        (reception.end(), flood.join().unwrap())
    });
    println!("{sent} datagrams of strangers: {:?}, lost {}", seen.frames, seen.lost);
    let (sent, _) = summary(child);
    println!("legs {:?}, sender {sent}", seen.legs);
    assert_eq!((seen.frames.incomplete, seen.lost), (0, 0), "{:?}", seen.frames);
    // Where other programs keep the thread from running both legs lie behind, and frames are shed for that.
    if seen.waited > Duration::from_millis(300) {
        println!("not judged: the thread waited {:?} for a core", seen.waited);
        return;
    }
    assert!(seen.frames.complete >= 80, "frames do not come any more: {:?}", seen.frames);
    assert_eq!(seen.frames.dropped, 0, "{:?}", seen.frames);
}

#[test]
fn a_group_is_joined_anew_on_an_interface_that_was_made_anew() {
    let Some(net) = Net::new() else { return };
    let mut receiver = sockets(&net, &legs());
    let mut events = Vec::new();
    let take = |receiver: &mut Socket, events: &mut Vec<Event>| {
        let lease = receiver.poll().unwrap();
        let legs: Vec<u8> = lease.slots().iter().map(|slot| slot.leg).collect();
        receiver.release(lease);
        receiver.take_events(events);
        legs
    };
    let [steady, other] = [0, 1].map(|leg| sending(&net, leg));
    let mut count = [0_u32; 2];
    let mut round = |receiver: &mut Socket, events: &mut Vec<Event>, other: Option<&UdpSocket>| {
        steady.send_to(b"steady", (group(0), PORT)).unwrap();
        if let Some(other) = other {
            let _ = other.send_to(b"other", (group(1), PORT));
        }
        let mut came = [0; 2];
        loop {
            let legs = take(receiver, events);
            if legs.is_empty() {
                break;
            }
            legs.iter().for_each(|leg| came[usize::from(*leg)] += 1);
        }
        count[0] += 1;
        assert_eq!(came[0], 1, "the other leg is not touched: {events:?}");
        came[1]
    };
    within("nothing comes", || round(&mut receiver, &mut events, Some(&other)) == 1);
    // Both ends go with one.
    net.ip("link delete rx1");
    within("nobody sees that it has gone", || {
        round(&mut receiver, &mut events, None);
        events.iter().any(|event| event.what == What::InterfaceGone { leg: 1 })
    });
    link_anew(&net, 1);
    let other = sending(&net, 1);
    within("it is not joined anew", || round(&mut receiver, &mut events, Some(&other)) == 1);
    let whats: Vec<What> = events.iter().map(|event| event.what).collect();
    assert_eq!(whats, [What::InterfaceGone { leg: 1 }, What::InterfaceBack { leg: 1 }]);
    assert!(net.ip("maddress show dev rx1").contains("239.77.1.2"));
}

/// The link of a leg, as the net made it, after it was deleted.
fn link_anew(net: &Net, leg: u8) {
    ip(&format!("-n {} link add name tx{leg} type veth peer name rx{leg} netns {}", net.tx, net.rx));
    ip(&format!("-n {} address add 10.{}.0.1/24 dev tx{leg}", net.tx, 77 + leg));
    ip(&format!("-n {} link set tx{leg} up", net.tx));
    net.ip(&format!("address add 10.{}.0.10/24 dev rx{leg}", 77 + leg));
    net.ip(&format!("link set rx{leg} up"));
}

#[test]
fn a_sender_finds_an_interface_that_was_made_anew() {
    let Some(net) = Net::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (child, flow) = sender(&net, folder.path(), "320x180p25", Duration::from_secs(12));
    let reception = Reception::begin(vec![Box::new(sockets(&net, &flow.legs))], &flow);
    within("no frames come", || reception.seen().frames.complete >= 5);
    net.ip("link delete rx1");
    within("the leg does not fall silent", || {
        reception.seen().events.iter().any(|event| event.what == What::InterfaceGone { leg: 1 })
    });
    link_anew(&net, 1);
    let before = reception.seen().legs[1].received;
    within("the leg does not come back", || reception.seen().legs[1].received >= before + 100);
    let (sent, lines) = summary(child);
    let seen = reception.end();
    assert_eq!((seen.frames.incomplete, seen.frames.dropped, seen.lost), (0, 0, 0), "{:?}", seen.frames);
    assert_eq!((&sent["legs"][0]["unsent"], &sent["legs"][0]["reopened"]), (&0.into(), &0.into()), "{sent}");
    assert_eq!(sent["legs"][1]["reopened"], 1, "{lines:?}");
    assert!(sent["legs"][1]["unsent"].as_u64().unwrap() > 0, "{sent}");
}

#[test]
fn an_interface_of_af_xdp_that_vanishes_takes_its_leg_alone() {
    let Some(net) = Net::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (child, flow) = sender(&net, folder.path(), "320x180p25", Duration::from_secs(5));
    let sockets = sockets(&net, &flow.legs[..1]);
    let xdp = Net::inside(&net.rx, || {
        let interfaces = vec!["rx0".into(), "rx1".into()];
        let mut receiver = Xdp::open(xdp::Options { interfaces, ..Default::default() }).unwrap();
        receiver.join(1, &flow.legs[1]).unwrap();
        receiver
    });
    let reception = Reception::begin(vec![Box::new(sockets), Box::new(xdp)], &flow);
    within("no frames come", || reception.seen().frames.complete >= 5);
    net.ip("link delete rx1");
    within("nobody sees that it has gone", || {
        reception.seen().events.iter().any(|event| event.what == What::ReceiverFailed { receiver: 1 })
    });
    let before = reception.seen().frames.complete;
    within("the other leg was touched", || reception.seen().frames.complete >= before + 10);
    let seen = reception.end();
    assert_eq!((seen.frames.incomplete, seen.lost), (0, 0), "{:?}", seen.frames);
    let (sent, _) = summary(child);
    assert!(sent["legs"][1]["unsent"].as_u64().unwrap() > 0 && sent["legs"][0]["unsent"] == 0, "{sent}");
}

#[test]
fn an_interface_of_af_xdp_that_was_made_anew_is_opened_again() {
    let Some(net) = Net::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (child, flow) = sender(&net, folder.path(), "320x180p25", Duration::from_secs(15));
    let sockets = sockets(&net, &flow.legs[..1]);
    let xdp = Net::inside(&net.rx, || {
        let open = || -> gdmedia::error::Result<Box<dyn Receiver<Mem = Host>>> {
            let interfaces = vec!["rx0".into(), "rx1".into()];
            Ok(Box::new(Xdp::open(xdp::Options { interfaces, ..Default::default() })?))
        };
        let mut receiver = Renewed::new(Box::new(open)).unwrap();
        receiver.join(1, &flow.legs[1]).unwrap();
        receiver
    });
    let reception = Reception::begin(vec![Box::new(sockets), Box::new(xdp)], &flow);
    within("no frames come", || reception.seen().frames.complete >= 5);
    net.ip("link delete rx1");
    let happened = |what| reception.seen().events.iter().any(|event| event.what == what);
    within("nobody sees that it has gone", || happened(What::InterfaceGone { leg: 1 }));
    link_anew(&net, 1);
    within("it is not opened again", || happened(What::InterfaceBack { leg: 1 }));
    let before = reception.seen().legs[1].received;
    within("the leg does not come back", || reception.seen().legs[1].received >= before + 100);
    let seen = reception.end();
    assert_eq!((seen.frames.incomplete, seen.frames.dropped, seen.lost), (0, 0, 0), "{:?}", seen.frames);
    assert!(!seen.events.iter().any(|event| matches!(event.what, What::ReceiverFailed { .. })), "{:?}", seen.events);
    let (sent, _) = summary(child);
    assert_eq!(sent["legs"][1]["reopened"], 1, "{sent}");
}

#[test]
fn one_of_two_interfaces_of_af_xdp_that_vanishes_leaves_the_other() {
    let Some(net) = Net::new() else { return };
    let mut receiver = Net::inside(&net.rx, || {
        let interfaces = vec!["rx0".into(), "rx1".into()];
        let mut receiver = Xdp::open(xdp::Options { interfaces, packets: 1, ..Default::default() }).unwrap();
        receiver.join_all(&legs()).unwrap();
        receiver
    });
    let steady = sending(&net, 0);
    net.ip("link delete rx1");
    let mut events = Vec::new();
    within("nobody sees that it has gone", || {
        steady.send_to(b"steady", (group(0), PORT)).unwrap();
        let lease = receiver.poll().unwrap();
        receiver.release(lease);
        receiver.take_events(&mut events);
        !events.is_empty()
    });
    assert_eq!(events.iter().map(|event| event.what).collect::<Vec<_>>(), [What::InterfaceGone { leg: 1 }]);
    let before = receiver.counters().datagrams;
    steady.send_to(b"steady", (group(0), PORT)).unwrap();
    within("the other leg was touched", || {
        let lease = receiver.poll().unwrap();
        receiver.release(lease);
        receiver.counters().datagrams > before
    });
    net.ip("link delete rx0");
    within("the last one has not gone", || match receiver.poll() {
        Ok(lease) => {
            receiver.release(lease);
            false
        }
        Err(error) => error.to_string().contains("interface rx0 has gone"),
    });
}

/// Plays both legs for a while with these options; what it says.
fn play(net: &Net, options: &[&str]) -> (serde_json::Value, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, _) = sender(net, folder.path(), "320x180p25", Duration::from_secs(20));
    let sdp = folder.path().join("stream.sdp");
    let fixed = ["--sdp", sdp.to_str().unwrap(), "--interface", "rx0", "--interface", "rx1", "--headless", "--json"];
    let end = ["--gpu", "off", "--frames", "20", "--interval", "1h"];
    let played = summary(gdmedia(&net.rx, &[&fixed[..], &end, options].concat()));
    child.kill().unwrap();
    child.wait().unwrap();
    played
}

fn start(lines: &[String]) -> serde_json::Value {
    serde_json::from_str(&lines[0]).unwrap()
}

#[test]
fn a_backend_for_each_leg() {
    let Some(net) = Net::new() else { return };
    let (end, lines) = play(&net, &["--backend", "xdp,socket", "--compare-legs"]);
    assert_eq!(start(&lines)["backend"], "xdp, socket", "{lines:?}");
    assert_eq!(
        (&end["end"], &end["frames"]["incomplete"], &end["packets"]["lost"]),
        (&"frames".into(), &0.into(), &0.into())
    );
    let compared = &end["compared"];
    assert!(compared["compared"].as_u64().unwrap() > 0 && compared["different"] == 0, "{compared}");
}

#[test]
fn a_leg_that_af_xdp_cannot_have_comes_by_a_socket() {
    let Some(net) = Net::new() else { return };
    // Somebody else has the only queue of the second interface.
    let _holder = Net::inside(&net.rx, || {
        let mut holder =
            Xdp::open(xdp::Options { interfaces: vec!["rx1".into()], packets: 1, ..Default::default() }).unwrap();
        let leg = Leg { port: 9, ..legs()[1].clone() };
        holder.join(0, &leg).unwrap();
        holder
    });
    let (end, lines) = play(&net, &["--backend", "xdp"]);
    let start = start(&lines);
    assert_eq!(start["backend"], "xdp, xdp, socket", "{lines:?}");
    let passed = start["backends_passed"][0]["reason"].as_str().unwrap();
    assert!(passed.starts_with("leg 1 comes by a socket: ") && passed.contains("another AF_XDP socket"), "{passed}");
    assert_eq!(
        (&end["end"], &end["frames"]["incomplete"], &end["packets"]["lost"]),
        (&"frames".into(), &0.into(), &0.into())
    );
}
