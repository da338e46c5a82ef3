//! `gdmedia daemon` as a user meets it: real senders, sockets, signals and files.
#![cfg(feature = "daemon")]

mod common;
mod netns;

use common::{Running, Temp, free_port, gdmedia, temp};
use gdmedia::record::Recording;
use gdmedia::send::pattern;
use netns::Net;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any stall of a machine that tests share.
const LONG: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(20);

/// 64x36 at 10 frames a second, so that a machine that stands still for a moment leaves none out; with this session name.
fn sdp(name: &str, port: u16) -> String {
    let text = common::sdp(port).replace("width=320", "width=64").replace("height=180", "height=36");
    text.replace("=25;", "=10;").replace("s=test", &format!("s={name}"))
}

/// Waits for something; the bound is that of a test that hangs.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(STEP);
    }
}

/// A daemon's API has no port: of tests beside each other one alone could have it.
fn start(args: &[&str], socket: Option<&Path>, stderr: Stdio) -> Running {
    Running::start_with(args, stderr, |command| {
        command.env("GDMEDIA_API__LISTEN", "[]");
        if let Some(socket) = socket {
            command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", "3000000");
        }
    })
}

fn ends(running: &mut Running) -> ExitStatus {
    until("the end", || running.0.try_wait().unwrap())
}

/// Sends the test pattern until it is dropped.
fn send(dir: &Temp, port: u16) -> Running {
    let path = dir.write(&format!("send-{port}.sdp"), &sdp("sender", port));
    start(&["send", "--to", &format!("udp://127.0.0.1:{port}"), "--sdp", &path], None, Stdio::null())
}

/// A daemon and its events.
struct Daemon {
    running: Running,
    events: Arc<Mutex<Vec<Value>>>,
}

impl Daemon {
    fn start(config: &str, socket: Option<&Path>) -> Daemon {
        let mut running = start(&["daemon", "--json", "-c", config], socket, Stdio::piped());
        let lines = BufReader::new(running.0.stderr.take().unwrap());
        let events: Arc<Mutex<Vec<Value>>> = Arc::default();
        let all = events.clone();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|_| Value::String(line.clone()));
                all.lock().unwrap().push(event);
            }
        });
        Daemon { running, events }
    }
    fn all(&self) -> Vec<Value> {
        self.events.lock().unwrap().clone()
    }
    /// Waits for the `nth` event of a receiver whose message begins so.
    fn nth(&self, nth: usize, receiver: &str, message: &str) -> Value {
        let fits = |event: &&Value| {
            event["receiver"].as_str().unwrap_or_default() == receiver
                && event["message"].as_str().is_some_and(|said| said.starts_with(message))
        };
        let begun = Instant::now();
        loop {
            let all = self.all();
            if let Some(event) = all.iter().filter(fits).nth(nth) {
                return event.clone();
            }
            assert!(begun.elapsed() < LONG, "{receiver} {message:?} is not among {all:#?}");
            std::thread::sleep(STEP);
        }
    }
    fn says(&self, receiver: &str, message: &str) -> Value {
        self.nth(0, receiver, message)
    }
    /// Ends it in an orderly way.
    fn end(mut self) -> Vec<Value> {
        self.running.tell("TERM");
        let status = ends(&mut self.running);
        assert_eq!(status.code(), Some(0), "{:#?}", self.all());
        self.all()
    }
}

/// Whoever starts a sender waits for it, as long as the machine may take.
const LATE: &str = "switch_timeout = \"25s\"\n";

fn receiver(id: &str, port: u16, more: &str) -> String {
    format!("[[receivers]]\nid = \"{id}\"\nsdp = '''\n{}'''\ngpu = \"off\"\n{more}\n", sdp(id, port))
}

fn record(dir: &Temp, id: &str) -> String {
    fs::create_dir_all(dir.join(id)).unwrap();
    format!("[receivers.record]\nfolder = \"{}\"\nway = \"pwrite\"\n", dir.join(id).display())
}

/// The recordings in a folder, oldest first.
fn recordings(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// Numbers of the frames of the first one that came whole: the first and the last may not.
fn recorded(folder: &Path) -> Vec<u64> {
    let recording = Recording::open(&recordings(folder)[0]).unwrap();
    let layout = recording.header().layout.clone();
    let mut room = vec![0; recording.header().frame_octets()];
    let number = |place| {
        let head = recording.load(place, &mut room).unwrap();
        head.meta.complete.then(|| pattern::read_number(&layout, &room).unwrap())
    };
    recording.places().filter_map(number).collect()
}

/// Frames follow each other; where they do not, the places at which they go on elsewhere.
fn jumps(numbers: &[u64]) -> Vec<(u64, u64)> {
    numbers.windows(2).filter(|w| w[1] != w[0] + 1).map(|w| (w[0], w[1])).collect()
}

#[test]
fn receivers_come_and_go_and_the_others_lose_nothing() {
    let dir = temp();
    let [a, b, c] = [0; 3].map(|_| free_port());
    let _senders = [send(&dir, a), send(&dir, b), send(&dir, c)];
    let notified = UnixDatagram::bind(dir.join("notify")).unwrap();
    notified.set_read_timeout(Some(LONG)).unwrap();
    let hear = || {
        let mut octets = [0; 512];
        let n = notified.recv(&mut octets).unwrap();
        String::from_utf8_lossy(&octets[..n]).into_owned()
    };
    let hears = |wanted: &str| until(wanted, || hear().starts_with(wanted).then_some(()));
    // That a machine stands still for a moment is not of interest.
    let stays = format!("[daemon]\nsilence = \"1h\"\n{}", receiver("stays", a, &record(&dir, "stays")));
    let bad = "[[receivers]]\nid = \"bad\"\nsdp = \"v=0\"\n";
    let config = dir.write("gdmedia.toml", &format!("{stays}{}{bad}", receiver("goes", b, &record(&dir, "goes"))));
    let daemon = Daemon::start(&config, Some(&dir.join("notify")));
    daemon.says("bad", "failed: ");
    daemon.says("stays", "receiving");
    daemon.says("goes", "receiving");
    daemon.says("", "ready");
    hears("READY=1");
    hears("STATUS=2 of 3 receive, 1 failed");
    // A wrong file changes nothing.
    dir.write("gdmedia.toml", &format!("{stays}[[receivers]]\nid = \"x\"\nlable = \"x\"\n"));
    daemon.running.tell("HUP");
    let refused = daemon.says("", "the configuration stays as it was");
    assert!(refused["message"].as_str().unwrap().contains("did you mean 'label'?"), "{refused}");
    // One goes, one comes, one stays.
    dir.write("gdmedia.toml", &format!("{stays}{}", receiver("comes", c, "")));
    daemon.running.tell("HUP");
    daemon.says("", "the configuration was read again: 1 added, 2 removed, 0 changed, 1 as they were");
    daemon.says("comes", "receiving");
    hears("RELOADING=1\nMONOTONIC_USEC=");
    hears("READY=1");
    hears("WATCHDOG=1");
    let gone = recorded(&dir.join("goes"));
    assert!(!gone.is_empty() && jumps(&gone).is_empty(), "{:?}", jumps(&gone));
    let events = daemon.end();
    hears("STOPPING=1");
    let stayed = recorded(&dir.join("stays"));
    assert!(stayed.len() > gone.len() && jumps(&stayed).is_empty(), "{:?} {events:#?}", jumps(&stayed));
    let states = events.iter().filter(|e| e["receiver"] == "stays" && e["kind"] == "state").count();
    assert_eq!(states, 4, "starting, waiting, receiving, stopped: {events:#?}");
}

#[test]
fn a_switch_goes_from_whole_frame_to_whole_frame() {
    let dir = temp();
    let [a, b, c] = [0; 3].map(|_| free_port());
    let first = send(&dir, a);
    let text = |sdp: &str| {
        dir.write("stream.sdp", sdp);
        let raw = format!("[receivers.file]\npath = \"{}\"\n", dir.join("cam.raw").display());
        format!(
            "[[receivers]]\nid = \"cam\"\nsdp = \"stream.sdp\"\ngpu = \"off\"\noutput = \"wire\"\n{LATE}{}{raw}",
            record(&dir, "cam")
        )
    };
    let config = dir.write("gdmedia.toml", &text(&sdp("one", a)));
    let daemon = Daemon::start(&config, None);
    daemon.says("cam", "receiving");
    // Its numbers are far behind those of the first one.
    let frames = || recorded_so_far(&dir.join("cam")).len();
    let more = |count: usize| {
        let wanted = frames() + count;
        until("more frames", || (frames() >= wanted).then_some(()))
    };
    more(8);
    let second = send(&dir, b);
    text(&sdp("two", b));
    daemon.running.tell("HUP");
    let said = daemon.says("cam", "switched to 64x36");
    assert!(!said["message"].as_str().unwrap().contains("no whole frame"), "{said}");
    more(3);
    // What cannot be received stays away, and nothing changes.
    text("v=0\r\n");
    daemon.running.tell("HUP");
    daemon.says("cam", "it is not switched");
    // The same address and port: one after the other.
    text(&sdp("two again", b));
    daemon.running.tell("HUP");
    let apart = daemon.nth(1, "cam", "switched to 64x36");
    assert!(apart["message"].as_str().unwrap().contains("both come to"), "{apart}");
    more(2);
    let numbers = recorded_so_far(&dir.join("cam"));
    // Another picture: all sinks begin anew.
    let large = sdp("three", c).replace("width=64", "width=96");
    let path = dir.write("large.sdp", &large);
    let _third = start(&["send", "--to", &format!("udp://127.0.0.1:{c}"), "--sdp", &path], None, Stdio::null());
    text(&large);
    daemon.running.tell("HUP");
    let anew = daemon.says("cam", "switched to 96x36");
    assert!(anew["message"].as_str().unwrap().contains("its picture is another"), "{anew}");
    let size = |name: &str| fs::metadata(dir.join(name)).map_or(0, |meta| meta.len());
    let (small, large) = (64 * 36 / 2 * 5, 96 * 36 / 2 * 5);
    until("frames of the third", || (size("cam-2.raw") > large).then_some(()));
    daemon.end();
    drop((first, second));
    let jumps = jumps(&numbers);
    // From the first sender to the second: to whole frames of it, and never back. What the second lost while it was
    // left for itself is a gap of its own.
    assert!((1..=2).contains(&jumps.len()), "{jumps:?} of {} frames", numbers.len());
    let (last, next) = jumps[0];
    assert!(next < last, "{jumps:?}");
    assert!(jumps[1..].iter().all(|(before, after)| after > before && *before > next), "{jumps:?}");
    // Of the flow before and the one after, in files of their own.
    assert!(size("cam.raw") > 12 * small && size("cam.raw").is_multiple_of(small), "{}", size("cam.raw"));
    assert!(size("cam-2.raw") > large && size("cam-2.raw").is_multiple_of(large), "{}", size("cam-2.raw"));
}

/// The same while it is recorded: slots that are whole.
fn recorded_so_far(folder: &Path) -> Vec<u64> {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("0")).unwrap();
    for file in fs::read_dir(&recordings(folder)[0]).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join("0").join(file.file_name())).unwrap();
    }
    recorded(copy.path())
}

#[test]
fn a_sender_and_a_sink_that_end_come_back() {
    let dir = temp();
    let (a, b) = (free_port(), free_port());
    let mut sender = Some(send(&dir, a));
    let _other = send(&dir, b);
    let full = format!("{}[receivers.file]\npath = \"/dev/full\"\nformat = \"raw\"\n", record(&dir, "full"));
    // On one thread.
    let config = format!(
        "[daemon]\nsilence = \"500ms\"\n[limits]\nworkers = 1\n{}{}",
        receiver("cam", a, ""),
        receiver("full", b, &full)
    );
    let config = dir.write("gdmedia.toml", &config);
    let daemon = Daemon::start(&config, None);
    daemon.says("cam", "receiving");
    drop(sender.take());
    let waiting = daemon.nth(1, "cam", "waiting: ");
    assert!(waiting["message"].as_str().unwrap().contains("no packet comes any more"), "{waiting}");
    sender = Some(send(&dir, a));
    daemon.nth(1, "cam", "receiving");
    // A sink whose disk is full, beside one that works.
    let ended = daemon.says("full", "/dev/full (raw) ended");
    assert_eq!(ended["kind"], "sink", "{ended}");
    assert!(ended["message"].as_str().unwrap().contains("No space left"), "{ended}");
    daemon.says("full", "started again: ");
    let events = daemon.end();
    let numbers = recorded(&dir.join("full"));
    assert!(numbers.len() > 4 && jumps(&numbers).is_empty(), "{:?}", jumps(&numbers));
    let begun = events.iter().filter(|e| e["receiver"] == "full" && e["message"] == "starting").count();
    assert_eq!(begun, 1, "the sink's end is not the receiver's: {events:#?}");
    drop(sender);
}

/// Multicast groups of a namespace, as the kernel has them.
fn groups(net: &Net) -> Vec<&'static str> {
    let joined = net.read("/proc/thread-self/net/igmp");
    // Octets the other way round.
    [("EF4D0001", "one"), ("EF4D0002", "two")]
        .into_iter()
        .filter(|(group, _)| {
            let turned: String = group.as_bytes().chunks(2).rev().flatten().map(|o| char::from(*o)).collect();
            joined.contains(&turned)
        })
        .map(|(_, name)| name)
        .collect()
}

#[test]
fn groups_are_joined_before_others_are_left_and_all_are_left_at_the_end() {
    let Some(net) = Net::new() else { return };
    let dir = temp();
    let multicast =
        |name: &str, group: &str| sdp(name, 5004).replace("c=IN IP4 127.0.0.1", &format!("c=IN IP4 {group}/8"));
    let (one, two) = (multicast("one", "239.77.0.1"), multicast("two", "239.77.0.2"));
    let text = |sdp: &str| {
        dir.write("stream.sdp", sdp);
        "[[receivers]]\nid = \"cam\"\nsdp = \"stream.sdp\"\ngpu = \"off\"\ninterfaces = [\"rx0\"]\n".to_owned()
            + LATE
            + &record(&dir, "cam")
    };
    let config = dir.write("gdmedia.toml", &text(&one));
    let send = |name: &str, sdp: &str, group: &str| {
        let path = dir.write(name, sdp);
        let to = format!("udp://{group}:5004");
        Net::inside(&net.tx, || {
            start(&["send", "--to", &to, "--sdp", &path, "--interface", "tx0"], None, Stdio::null())
        })
    };
    let _first = send("one.sdp", &one, "239.77.0.1");
    let daemon = Net::inside(&net.rx, || Daemon::start(&config, None));
    daemon.says("cam", "receiving");
    assert_eq!(groups(&net), ["one"]);
    // Nobody sends there yet: both are joined, and frames of the first one go on.
    text(&two);
    daemon.running.tell("HUP");
    daemon.says("cam", "another flow is received beside the one before");
    assert_eq!(groups(&net), ["one", "two"]);
    let _second = send("two.sdp", &two, "239.77.0.2");
    daemon.says("cam", "switched to 64x36");
    until("the group to be left", || (groups(&net) == ["two"]).then_some(()));
    let frames = recorded_so_far(&dir.join("cam")).len();
    until("more frames", || (recorded_so_far(&dir.join("cam")).len() > frames).then_some(()));
    daemon.end();
    assert!(groups(&net).is_empty());
    let numbers = recorded(&dir.join("cam"));
    assert_eq!(jumps(&numbers).len(), 1, "{:?}", jumps(&numbers));
}

#[test]
fn a_configuration_is_printed_and_checked() {
    let dir = temp();
    let printed = gdmedia(&["daemon", "--print-config"]);
    assert_eq!(printed.code, 0, "{}", printed.stderr);
    let path = dir.write("printed.toml", &printed.stdout);
    assert_eq!(gdmedia(&["daemon", "--check", "-c", &path]).code, 0);
    let good = dir.write("good.toml", &receiver("cam", free_port(), ""));
    let output = gdmedia(&["daemon", "--check", "-c", &good]);
    assert!(output.code == 0 && output.stderr.contains("cam: 64x36"), "{}", output.stderr);
    let two = receiver("a", 5004, &record(&dir, "x")) + &receiver("b", 5006, &record(&dir, "x"));
    for (text, code, words) in [
        ("[limits]\nreceiver = 3\n", 64, &["line 2", "did you mean 'receivers'?"][..]),
        ("[[receivers]]\nid = \"a\"\nsdp = \"v=0\"\n", 65, &["a: ", "1 of them wrong"]),
        ("[[receivers]]\nid = \"a\"\nsdp = \"http://127.0.0.1:1/x\"\n", 65, &["sdp_hosts"]),
        (&two, 64, &["is also where"]),
    ] {
        let path = dir.write("bad.toml", text);
        let output = gdmedia(&["daemon", "--check", "-c", &path]);
        assert_eq!(output.code, code, "{}", output.stderr);
        for word in words {
            assert!(output.stderr.contains(word), "{word:?}: {}", output.stderr);
        }
    }
    assert_eq!(gdmedia(&["daemon"]).code, 64);
    assert_eq!(gdmedia(&["daemon", "-c", "/nosuch/file.toml"]).code, 64);
}

/// Cores that the receiving threads of a process may run on, by thread.
fn receiving_threads(process: u32) -> Vec<String> {
    let folders = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten().map(|entry| entry.path());
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let receives = folders.filter(|folder| read(folder.join("comm")).trim() == "receive");
    let of = |folder: PathBuf| {
        let status = read(folder.join("status"));
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default().trim().to_owned()
    };
    receives.map(of).collect()
}

/// Cores of this process, as the kernel lists them; none where it has one alone.
fn my_cores() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned();
    if list.parse::<usize>().is_ok() {
        println!("skipped: this process may use one core");
        return None;
    }
    Some(list)
}

#[test]
fn receiving_threads_are_where_it_says() {
    let Some(all) = my_cores() else { return };
    let dir = temp();
    let (a, b) = (free_port(), free_port());
    let _senders = [send(&dir, a), send(&dir, b)];
    let text = format!("[limits]\nplacement = \"near\"\n{}", receiver("cam", a, LATE));
    let config = dir.write("gdmedia.toml", &text);
    let daemon = Daemon::start(&config, None);
    let process = daemon.running.0.id();
    let machine = until("its cores", || {
        let said = daemon.all();
        let text = |e: &Value| e["message"].as_str().filter(|m| m.contains("NUMA node")).map(str::to_owned);
        said.iter().find_map(text)
    });
    let placed = daemon.says("cam", "thread on ");
    let placed = placed["message"].as_str().unwrap().to_owned();
    daemon.says("cam", "receiving");
    if machine.starts_with("one NUMA node") {
        let core = placed.strip_prefix("thread on core ").and_then(|rest| rest.split(' ').next()).unwrap();
        assert_eq!(receiving_threads(process), [core], "{placed}");
        assert_ne!(core, "0", "the rest of the machine's work is there");
        // Switched to another flow it is on a core as well.
        dir.write("gdmedia.toml", &text.replace(&format!("video {a} "), &format!("video {b} ")));
        daemon.running.tell("HUP");
        daemon.says("cam", "switched to 64x36");
        until("one thread", || {
            let threads = receiving_threads(process);
            (threads.len() == 1 && threads[0].parse::<usize>().is_ok_and(|core| core != 0)).then_some(())
        });
    } else {
        // Loopback lies nowhere.
        assert!(placed.contains("any core: lo has no card"), "{placed}");
        assert_eq!(receiving_threads(process), [all.as_str()]);
    }
    daemon.end();

    // Nobody said where: on a machine with one node that is the scheduler's business.
    let daemon = Daemon::start(&dir.write("auto.toml", &receiver("cam", a, LATE)), None);
    let process = daemon.running.0.id();
    let placed = daemon.says("cam", "thread on any core: ");
    daemon.says("cam", "receiving");
    assert_eq!(receiving_threads(process), [all.as_str()], "{placed}");
    daemon.end();

    // And where somebody says a core, it is that one; it may be the first one, too.
    let first = all.split([',', '-']).next().unwrap();
    let config = dir.write("core.toml", &receiver("cam", a, &format!("core = {first}\n")));
    let daemon = Daemon::start(&config, None);
    let process = daemon.running.0.id();
    daemon.says("cam", &format!("thread on core {first} of node "));
    daemon.says("cam", "receiving");
    assert_eq!(receiving_threads(process), [first]);
    daemon.end();
}
