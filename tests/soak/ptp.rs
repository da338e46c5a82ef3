//! ptp4l of linuxptp in two namespaces that a veth pair joins, with time stamps of software; it only looks at clocks
//! (`free_running`) and never sets one.

use crate::netns::Net;
use gdmedia::ptp::watch::{Target, Watch};
use gdmedia::ptp::{self, Facts, PortState, Silent, State, Warning};
use gdmedia::sdp::ReferenceClock;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends with the test.
struct Ptp4l {
    child: Child,
    socket: PathBuf,
}

impl Ptp4l {
    fn start(folder: &Path, name: &str, namespace: &str, interface: &str, more: &str) -> Ptp4l {
        let (config, socket) = (folder.join(format!("{name}.cfg")), folder.join(name));
        let text = format!(
            "[global]\ndomainNumber 127\nuds_address {}\ntime_stamping software\nfree_running 1\nlogAnnounceInterval -3\n\
             logSyncInterval -3\nlogMinDelayReqInterval -3\n{more}\n",
            socket.display()
        );
        std::fs::write(&config, text).unwrap();
        let child = Command::new("ip")
            .args(["netns", "exec", namespace, "ptp4l", "-q", "-i", interface, "-f"])
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Ptp4l { child, socket }
    }

    fn ask(&self) -> Result<State, Silent> {
        ptp::ask([&self.socket], &[0, 127])
    }

    /// Asks until the answer is as wanted; a shared machine may take its time.
    fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) -> State {
        let begun = Instant::now();
        loop {
            let answer = self.ask();
            if let Some(state) = answer.ok().filter(|state| wanted(state)) {
                return state;
            }
            assert!(begun.elapsed() < Duration::from_secs(40), "{what}: {answer:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Ptp4l {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_ptp4l_is_understood() {
    if Command::new("ptp4l").arg("-v").output().is_err() {
        println!("skipped: no ptp4l");
        return;
    }
    let Some(net) = Net::new() else { return };
    let folder = tempfile::tempdir().unwrap();
    let master = Ptp4l::start(folder.path(), "master", &net.tx, "tx0", "priority1 100\nclockClass 6");
    let slave = Ptp4l::start(folder.path(), "slave", &net.rx, "rx0", "slaveOnly 1");

    let top = master.until("master", |s| s.port == PortState::Master);
    assert_eq!((top.domain, top.grandmaster, top.offset_ns), (127, None, None), "it is its own grandmaster");
    // Without setting its clock a slave stays uncalibrated.
    let follows = |s: &State| matches!(s.port, PortState::Uncalibrated | PortState::Slave) && s.grandmaster.is_some();
    let state = slave.until("slave", |s| follows(s) && s.path_delay_ns.is_some_and(|ns| ns != 0));
    assert_eq!(state.grandmaster, Some(top.clock));
    assert_eq!((state.clock_class, state.steps_removed, state.time.utc_offset_s), (6, 1, 37));
    assert_ne!(state.clock, top.clock);
    // One machine has one clock, so the two are near.
    assert!(state.offset_ns.is_some_and(|ns| ns.abs() < 1_000_000_000), "{state:?}");

    let sdp = |grandmaster: String| ReferenceClock::Ptp {
        version: "IEEE1588-2008".into(),
        grandmaster: Some(grandmaster),
        domain: Some(127),
    };
    let locked = State { port: PortState::Slave, ..state };
    let warnings = |references: &[ReferenceClock]| {
        ptp::judge(&Facts { ptp: &Ok(locked), references, kernel_tai: Some(37), option: None, latency_ns: None }).1
    };
    // A clock of software is on no PTP timescale unless told so.
    assert_eq!(warnings(&[sdp(top.clock.to_string())]), [Warning::PtpArbitrary]);
    assert_eq!(warnings(&[sdp(state.clock.to_string())])[0].name(), "ptp-grandmaster");

    // The grandmaster goes away, and another one comes.
    let target = Target { sockets: vec![slave.socket.clone()], domains: vec![127], interface: None };
    let watch = Watch::start(target).unwrap();
    drop(master);
    slave.until("no master", |s| s.grandmaster.is_none());
    let other = "priority1 90\nclockIdentity 020000.fffe.000001";
    let other = Ptp4l::start(folder.path(), "other", &net.tx, "tx0", other);
    let state = slave.until("another master", |s| follows(s));
    let begun = Instant::now();
    while watch.seen().grandmaster_changes == 0 && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let same = state.grandmaster == Some(top.clock);
    assert_eq!(watch.seen().grandmaster_changes, u64::from(!same), "{:?}", watch.seen());
    drop(other);
}

/// Ten acknowledgements of clocks that do not know a command: none of them is data.
#[test]
fn error_statuses_of_the_corpus_are_no_answers() {
    use gdmedia::ptp::management;
    use gdmedia::wire::capture::Capture;
    use gdmedia::wire::net::{self, Content};

    let root = std::env::var_os("GDMEDIA_CORPUS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/corpus"), PathBuf::from);
    let path = root.join("pcap/ptp_management.pcapng");
    if !path.exists() {
        println!("skipped: no corpus");
        return;
    }
    let mut capture = Capture::open(&path).unwrap();
    let mut messages = 0;
    while let Some(record) = capture.next_record().unwrap() {
        let Content::Udp(udp) = net::parse(record.link, record.octets) else { continue };
        let message = &record.octets[udp.payload];
        // The action is an acknowledgement, the TLV an error status.
        assert_eq!((message[0] & 15, message[4], message[46] & 15, &message[48..50]), (13, 127, 4, &[0u8, 2][..]));
        assert_eq!(management::response(message), None);
        messages += 1;
    }
    assert_eq!(messages, 10);
}
