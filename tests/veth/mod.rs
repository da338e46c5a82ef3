//! Two network namespaces that a veth pair joins, made by netlink alone: needs root and no program. Elsewhere it says that
//! the test was skipped.
#![allow(unsafe_code, dead_code)]

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The sender's namespace has `tx0` with 10.77.0.1, 10.77.0.2 and fd77::1; the receiver's has `rx0` with 10.77.0.10 and
/// fd77::10.
pub struct Net {
    pub tx: File,
    pub rx: File,
}

impl Net {
    /// A pair with so many queues, and an MTU.
    pub fn new(queues: u32, mtu: u32) -> Option<Net> {
        let (tx, rx) = match (namespace(), namespace()) {
            (Ok(tx), Ok(rx)) => (tx, rx),
            (Err(e), _) | (_, Err(e)) => {
                println!("skipped: not root: {e}");
                return None;
            }
        };
        let net = Net { tx, rx };
        inside(&net.tx, || {
            let common = [attribute(31, &queues.to_ne_bytes()), attribute(32, &queues.to_ne_bytes())];
            let mtu = attribute(4, &mtu.to_ne_bytes());
            let [tx_queues, rx_queues] = &common;
            // IFLA_NET_NS_FD, IFLA_IFNAME; VETH_INFO_PEER inside of IFLA_INFO_DATA.
            let namespace = attribute(28, &net.rx.as_raw_fd().to_ne_bytes());
            let peer = [&[0; 16][..], &attribute(3, b"rx0\0"), &mtu, tx_queues, rx_queues, &namespace].concat();
            let info = [attribute(1, b"veth\0"), attribute(2, &attribute(1, &peer))].concat();
            let link = [&[0; 16][..], &attribute(3, b"tx0\0"), &mtu, tx_queues, rx_queues, &attribute(18, &info)];
            // RTM_NEWLINK; create, exclusively.
            request(16, 0x600, &link.concat());
            up("tx0");
            up("lo");
            for address in ["10.77.0.1", "10.77.0.2", "fd77::1"] {
                add("tx0", address.parse().unwrap());
            }
        });
        inside(&net.rx, || {
            up("rx0");
            up("lo");
            for address in ["10.77.0.10", "fd77::10"] {
                add("rx0", address.parse().unwrap());
            }
        });
        // What is sent before the kernel has seen the carrier is dropped without a word.
        let to = SocketAddr::new("10.77.0.10".parse().unwrap(), 9);
        let there = inside(&net.rx, || UdpSocket::bind(to).unwrap());
        there.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        let (sender, begun) = (net.sender("10.77.0.1".parse().unwrap()), Instant::now());
        loop {
            sender.send_to(b"x", to).unwrap();
            if there.recv(&mut [0]).is_ok() {
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(5), "nothing comes through");
        }
        Some(net)
    }

    /// A UDP socket in the sender's namespace, with an address of it; groups go by `tx0`.
    pub fn sender(&self, from: IpAddr) -> UdpSocket {
        inside(&self.tx, || {
            let domain = if from.is_ipv4() { socket2::Domain::IPV4 } else { socket2::Domain::IPV6 };
            let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
            match from {
                IpAddr::V4(a) => socket.set_multicast_if_v4(&a).unwrap(),
                IpAddr::V6(_) => socket.set_multicast_if_v6(index("tx0")).unwrap(),
            }
            socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
            socket.into()
        })
    }

    /// Sends Ethernet frames as they are.
    pub fn send_raw(&self, frames: &[Vec<u8>]) {
        inside(&self.tx, || {
            // SAFETY: no pointers.
            let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
            assert!(raw >= 0, "{}", io::Error::last_os_error());
            // SAFETY: made above.
            let socket = unsafe { OwnedFd::from_raw_fd(raw) };
            // SAFETY: plain C data.
            let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_ifindex = index("tx0") as i32;
            let len = size_of::<libc::sockaddr_ll>() as u32;
            for frame in frames {
                let (at, to) = (frame.as_ptr().cast(), std::ptr::from_ref(&to).cast());
                // SAFETY: readable for these lengths.
                let sent = unsafe { libc::sendto(socket.as_raw_fd(), at, frame.len(), 0, to, len) };
                assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
            }
        });
    }
}

/// Runs `work` on a thread inside a namespace; what it opens stays there.
pub fn inside<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| {
        let thread = s.spawn(|| {
            enter(namespace);
            work()
        });
        thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

/// Moves the calling thread for good.
pub fn enter(namespace: &File) {
    // SAFETY: moves the calling thread only.
    assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0, "setns");
}

/// A new namespace, which is gone with the last file and socket.
fn namespace() -> io::Result<File> {
    let made = std::thread::spawn(|| {
        // SAFETY: moves the calling thread only, which ends here.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        File::open("/proc/thread-self/ns/net")
    });
    made.join().unwrap()
}

pub fn index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a C string.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// `struct nlattr`.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::from((4 + value.len() as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn up(name: &str) {
    switch(name, true);
}

/// Switches a device of this namespace on or off.
pub fn switch(name: &str, on: bool) {
    // struct ifinfomsg: the flag IFF_UP, and that only this one is to change.
    let [index, flags, change] = [index(name), on.into(), 1].map(u32::to_ne_bytes);
    request(16, 0, &[[0; 4], index, flags, change].concat());
}

/// Removes a device of this namespace.
pub fn remove(name: &str) {
    // RTM_DELLINK.
    request(17, 0, &[[0; 4], index(name).to_ne_bytes(), [0; 4], [0; 4]].concat());
}

fn add(name: &str, address: IpAddr) {
    let (family, prefix, octets) = match address {
        IpAddr::V4(a) => (libc::AF_INET, 24, a.octets().to_vec()),
        IpAddr::V6(a) => (libc::AF_INET6, 64, a.octets().to_vec()),
    };
    // struct ifaddrmsg, IFA_F_NODAD; IFA_ADDRESS, IFA_LOCAL.
    let mut body = vec![family as u8, prefix, 2, 0];
    body.extend(index(name).to_ne_bytes());
    body.extend([attribute(1, &octets), attribute(2, &octets)].concat());
    request(20, 0x600, &body);
}

/// One request, which must succeed.
fn request(kind: u16, flags: u16, body: &[u8]) {
    // SAFETY: no pointers.
    let raw = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    assert!(raw >= 0);
    // SAFETY: made above.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let mut message = Vec::from((16 + body.len() as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    // A request whose success is confirmed.
    message.extend((flags | 5).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    let mut answer = [0u8; 4096];
    // SAFETY: readable and writable for these lengths.
    let got = unsafe {
        assert!(libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) > 0);
        libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    assert!(got >= 20);
    let error = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
    assert_eq!(error, 0, "netlink request {kind}: {}", io::Error::from_raw_os_error(-error));
}
