//! Two network namespaces that a veth pair joins, for tests of receivers. Needs root and `ip netns`; elsewhere it says that
//! the test was skipped.
#![allow(unsafe_code, dead_code)]

use std::fs::File;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The sender's namespace has `tx0` with 10.77.0.1, 10.77.0.2, fd77::1, fd77::2; the receiver's has `rx0` with
/// 10.77.0.10 and fd77::10, and `rx1` with 10.78.0.10, joined to `tx1` with 10.78.0.1.
pub struct Net {
    pub tx: String,
    pub rx: String,
}

impl Net {
    pub fn new() -> Option<Net> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("gdm{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let net = Net { tx: format!("{id}t"), rx: format!("{id}r") };
        let (tx, rx) = (&net.tx, &net.rx);
        let commands = format!(
            "netns add {tx}
             netns add {rx}
             -n {tx} link add name tx0 type veth peer name rx0 netns {rx}
             -n {tx} link add name tx1 type veth peer name rx1 netns {rx}
             -n {tx} address add 10.77.0.1/24 dev tx0
             -n {tx} address add 10.77.0.2/24 dev tx0
             -n {tx} address add fd77::1/64 dev tx0 nodad
             -n {tx} address add fd77::2/64 dev tx0 nodad
             -n {tx} address add 10.78.0.1/24 dev tx1
             -n {rx} address add 10.77.0.10/24 dev rx0
             -n {rx} address add fd77::10/64 dev rx0 nodad
             -n {rx} address add 10.78.0.10/24 dev rx1
             -n {tx} link set tx0 up
             -n {tx} link set tx1 up
             -n {rx} link set rx0 up
             -n {rx} link set rx1 up
             -n {rx} link set lo up"
        );
        for command in commands.lines() {
            let out = Command::new("ip").args(command.split_whitespace()).output();
            if !out.as_ref().is_ok_and(|o| o.status.success()) {
                println!("skipped: needs root and ip netns ({}: {out:?})", command.trim());
                return None;
            }
        }
        Some(net)
    }

    /// `ip` with these words, in the receiver's namespace.
    pub fn ip(&self, words: &str) -> String {
        let out = Command::new("ip").args(["-n", &self.rx]).args(words.split_whitespace()).output().unwrap();
        assert!(out.status.success(), "ip {words}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Runs `work` on a thread inside a namespace; what it opens stays there.
    pub fn inside<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{name}")).unwrap();
        std::thread::scope(|s| {
            let thread = s.spawn(|| {
                // SAFETY: moves the calling thread only, which ends with `work`.
                assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0, "setns");
                work()
            });
            thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
        })
    }

    /// Moves the calling thread into a namespace, for good.
    pub fn enter(name: &str) {
        let file = File::open(format!("/run/netns/{name}")).unwrap();
        // SAFETY: moves the calling thread only.
        assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0, "setns");
    }

    pub fn read(&self, path: &str) -> String {
        Net::inside(&self.rx, || std::fs::read_to_string(path).unwrap_or_default())
    }

    /// A socket in the sender's namespace, with an address of it.
    pub fn sender(&self, from: IpAddr) -> UdpSocket {
        Net::inside(&self.tx, || {
            let domain = if from.is_ipv4() { socket2::Domain::IPV4 } else { socket2::Domain::IPV6 };
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
            match from {
                IpAddr::V4(a) => socket.set_multicast_if_v4(&a).unwrap(),
                IpAddr::V6(_) => {
                    // SAFETY: a C string.
                    let index = unsafe { libc::if_nametoindex(c"tx0".as_ptr()) };
                    socket.set_multicast_if_v6(index).unwrap();
                }
            }
            socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
            UdpSocket::from(socket)
        })
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in [&self.tx, &self.rx] {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}
