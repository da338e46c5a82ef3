//! What is missing or wrong: each has words of its own, and the process goes on. DPDK's start cannot be repeated in a process, so
//! every test of it runs in one of its own: this program again, with the name of that test.

use crate::options;
use gdmedia::error::{Error, Kind};
use gdmedia::mem::Host;
use gdmedia::rx::dpdk::Options;
use gdmedia::rx::{Dpdk, Receiver, Socket, socket};
use gdmedia::sdp::{Leg, SourceFilter};
use std::net::UdpSocket;
use std::process::Command;

const INSIDE: &str = "GDMEDIA_DPDK_TEST_INSIDE";

/// Runs `work`, of the test `name`, in a process that only does that, with these variables.
pub fn alone(name: &str, variables: &[(&str, &str)], work: fn()) {
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        work();
        println!("the process lives");
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(INSIDE, name).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned()).concat();
    assert!(output.status.success() && text.contains("the process lives"), "{name}: {text}");
    assert!(!text.contains("EAL common options") && !text.contains("EAL: "), "DPDK talks to the terminal: {text}");
}

fn open(words: &str) -> Result<Dpdk<Host>, Error> {
    let mut options = Options { packets: 1000, ..Options::default() };
    options.change(words)?;
    Dpdk::<Host>::open(options, &())
}

fn refusal(words: &str, kind: Kind, says: &[&str]) -> Error {
    let error = open(words).map(drop).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{words}: {text}");
    assert!(says.iter().all(|word| text.contains(word)) && text.contains("cure: "), "{words}: {text}");
    error
}

/// What cannot be received by DPDK can be received by sockets.
fn goes_on() {
    let mut receiver = Socket::open(socket::Options::default()).unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = free.local_addr().unwrap();
    drop(free);
    let (destination, port) = (to.ip(), to.port());
    receiver.join(0, &Leg { destination, port, sources: SourceFilter::Any, ttl: None, mid: None }).unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"packet", to).unwrap();
    let begun = std::time::Instant::now();
    loop {
        let lease = receiver.poll().unwrap();
        let came = !lease.is_empty();
        receiver.release(lease);
        if came {
            return;
        }
        assert!(begun.elapsed().as_secs() < 10);
    }
}

#[test]
fn options_of_dpdk_that_are_wrong() {
    alone("failures::options_of_dpdk_that_are_wrong", &[], || {
        // What would end the process, or fill the machine's memory, does not get to DPDK.
        refusal("port=net_null0;eal=--no-huge --help", Kind::Usage, &["`--help`"]);
        refusal(
            "port=net_null0;eal=--no-huge -m 2000000000",
            Kind::Unavailable,
            &["no memory for DPDK", "2000000000 MiB"],
        );
        refusal(
            "port=net_null0;eal=--no-huge --colour",
            Kind::Usage,
            &["DPDK does not start", "unrecognized option '--colour'"],
        );
        // It cannot be started again.
        refusal(
            "port=net_null0;eal=--no-huge",
            Kind::Unavailable,
            &["has failed to start in this process", "--colour", "start gdmedia again"],
        );
        goes_on();
    });
}

#[test]
fn no_huge_pages() {
    let pages = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
    if pages.trim() != "0" {
        println!("skipped: this machine has huge pages");
        return;
    }
    alone("failures::no_huge_pages", &[], || {
        refusal("port=net_null0", Kind::Unavailable, &["hugepage", "vm.nr_hugepages", "eal=--no-huge"]);
        goes_on();
    });
}

#[test]
fn no_memory_for_dpdk_itself() {
    alone("failures::no_memory_for_dpdk_itself", &[], || {
        // More addresses than there are, where pages are not looked at beforehand.
        let error = open("port=net_null0;eal=--no-huge -m 9000000000000").map(drop).unwrap_err();
        assert!(error.to_string().contains("no memory for DPDK"), "{error}");
        // Too little of it for a pool.
        let mut options = Options { packets: 10_000_000, ..Options::default() };
        options.change("port=net_null0;eal=--no-huge -m 2;queues=1;descriptors=64").unwrap();
        let error = Dpdk::<Host>::open(options, &()).map(drop).unwrap_err();
        let text = error.to_string();
        assert!(error.kind() == Kind::Unavailable && text.contains("-m MIB"), "{text}");
        goes_on();
    });
}

#[test]
fn ports_that_are_not_there_or_lack_something() {
    for (port, says) in [
        ("net_nothing0", &["DPDK cannot have port net_nothing0", "failed to parse device"][..]),
        ("net_af_packet0,iface=nowhere0", &["net_af_packet0", "No such device", "interface"]),
        ("net_af_packet1", &["net_af_packet1"]),
        ("net_pcap0,rx_pcap=/nowhere.pcap", &["/nowhere.pcap", "No such file"]),
        ("0000:99:00.0", &["0000:99:00.0", "Cannot find device", "dpdk-devbind.py"]),
        ("net_null5,nothing=3", &["net_null5"]),
    ] {
        let error = Dpdk::<Host>::open(options(&format!("port={port}")), &()).map(drop).unwrap_err();
        let text = error.to_string();
        assert!(error.kind() == Kind::Unavailable && text.contains("cure: "), "{text}");
        assert!(says.iter().all(|word| text.contains(word)), "{port}: {text}");
    }
    let error = Dpdk::<Host>::open(options("port=7:8"), &()).map(drop).unwrap_err();
    assert!(error.kind() == Kind::Usage && error.to_string().contains("`7:8` names no port"), "{error}");
    let error = Dpdk::<Host>::open(options("queues=1"), &()).map(drop).unwrap_err();
    assert!(error.to_string().contains("DPDK is told no port"), "{error}");
    let error = Dpdk::<Host>::open(options("port=net_null6;stamps=hardware"), &()).map(drop).unwrap_err();
    assert!(error.to_string().contains("port net_null6 gives no time stamps"), "{error}");
    let error = Dpdk::<Host>::open(options("port=net_null7;room=512"), &()).map(drop).unwrap_err();
    assert!(error.to_string().contains("room=512 is too small"), "{error}");
    let mut large = options("port=net_null7");
    large.change("queues=64;descriptors=32768").unwrap();
    let error = Dpdk::<Host>::open(large, &()).map(drop).unwrap_err();
    assert!(error.kind() == Kind::Usage && error.to_string().contains("a receiver has 4095 at most"), "{error}");
    goes_on();
}

#[test]
fn a_port_that_dpdk_has_taken_by_itself() {
    alone("failures::a_port_that_dpdk_has_taken_by_itself", &[], || {
        let words = "port=net_null20;descriptors=64;eal=--no-huge -m 64 --vdev=net_null20";
        let drivers = std::env::var("GDMEDIA_DPDK_DRIVERS").map(|path| format!(" -d {path}")).unwrap_or_default();
        let error =
            refusal(&format!("{words}{drivers}"), Kind::Unavailable, &["port net_null20", "leave -a", "--vdev"]);
        assert!(error.to_string().contains("out there"), "{error}");
        goes_on();
    });
}

#[test]
fn a_port_that_is_taken() {
    let one = Dpdk::<Host>::open(options("port=net_null8"), &()).unwrap();
    let again = || Dpdk::<Host>::open(options("port=net_null8"), &()).map(drop);
    let error = again().unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("another receiver of this process has port net_null8"), "{error}");
    drop(one);
    again().unwrap();
    // Other words for DPDK than those that it runs with.
    let mut other = options("port=net_null9");
    other.change("eal=--no-huge -m 64").unwrap();
    let error = Dpdk::<Host>::open(other, &()).map(drop).unwrap_err();
    assert!(error.kind() == Kind::Usage && error.to_string().contains("runs in this process already"), "{error}");
    // None: as it runs.
    let mut none = options("port=net_null9");
    none.change("eal=").unwrap();
    Dpdk::<Host>::open(none, &()).map(drop).unwrap();
}
