//! Opens the socket of one leg: binds it, sizes its buffer, joins its group. Cold; every refusal says why.
#![allow(unsafe_code)]

use super::interface::{self, Interface, describe, interfaces};
use super::{Options, Stamping, stamps};
use crate::error::{Error, Kind, Result};
use crate::sdp::{Leg, SourceFilter};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;

/// A bound socket, and what there is to say about it.
pub(super) struct Opened {
    pub socket: socket2::Socket,
    /// Payload octets that its buffer holds.
    pub buffer_octets: u64,
    /// Number of the interface on which its group was joined.
    pub joined: Option<u32>,
    /// Packets have stamps of the card.
    pub card: bool,
    pub notes: Vec<String>,
}

/// Opens the socket of `leg`, the `number`th.
pub(super) fn open(number: u8, leg: &Leg, options: &Options) -> Result<Opened> {
    let mut notes = Vec::new();
    let mut buffer_octets = 0;
    let (socket, interface) = bound(leg, options.interface(number), &mut notes, |socket, notes| {
        buffer_octets = size_buffer(socket, options, notes)?;
        // Datagrams that the kernel merges have one stamp for all.
        let apart = options.stamps == Stamping::Hardware;
        let gro = options.gro && !apart && set(socket, libc::SOL_UDP, libc::UDP_GRO, &1_i32).is_ok();
        notes.push(match (options.gro, gro) {
            (true, true) => "UDP_GRO: the kernel hands over merged datagrams where it can".into(),
            (true, false) if apart => "plain recvmmsg: each datagram is to have its own stamp of the card".into(),
            (true, false) => "plain recvmmsg: this kernel has no UDP_GRO (Linux 5.0 and later do)".into(),
            (false, _) => "plain recvmmsg: UDP_GRO was switched off".into(),
        });
        must(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, "SO_TIMESTAMPNS")?;
        must(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, "SO_RXQ_OVFL")
    })?;
    let card = stamped(&socket, interface.as_ref(), options.stamps, &mut notes)?;
    let joined = interface.filter(|_| leg.destination.is_multicast()).map(|interface| interface.index);
    Ok(Opened { socket, buffer_octets, joined, card, notes })
}

/// Asks for stamps of the card beside those of the kernel, where it gives them.
fn stamped(
    socket: &socket2::Socket,
    interface: Option<&Interface>,
    choice: Stamping,
    notes: &mut Vec<String>,
) -> Result<bool> {
    let able = match (interface, choice) {
        (_, Stamping::Software) => return Ok(false),
        (None, _) => Err("the interface is not known".to_owned()),
        (Some(interface), choice) => stamps::of_card(&interface.name, choice),
    };
    let asked = able.and_then(|()| {
        set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &0_i32)
            .and_then(|()| set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &stamps::BOTH))
            .map_err(|e| format!("the kernel refuses SO_TIMESTAMPING: {e}"))
    });
    match (asked, choice) {
        (Ok(()), _) => notes.push("time stamps by the card".into()),
        (Err(why), Stamping::Hardware) => return Err(stamps::none(&why)),
        (Err(why), _) => {
            notes.push(format!("time stamps by the kernel: {why}"));
            return Ok(false);
        }
    }
    Ok(true)
}

/// A socket for a receiver that takes the packets of `leg` before the kernel does: it has the port and joins the group,
/// and gets what passes that receiver. With the interface of the leg, where there is one.
pub(in crate::rx) fn beside(
    leg: &Leg,
    interface: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<(socket2::Socket, Option<Interface>)> {
    bound(leg, interface, notes, |socket, _| {
        socket
            .set_recv_buffer_size(256 << 10)
            .map_err(|e| Error::new(Kind::Unavailable, "cannot size the socket buffer").because(e))
    })
}

/// Datagrams that a socket has dropped so far, modulo 2^32.
pub(in crate::rx) fn drops(socket: &socket2::Socket) -> Option<u32> {
    // SO_MEMINFO: nine numbers, SK_MEMINFO_DROPS the last (linux/sock_diag.h).
    let mut all = [0u32; 9];
    let mut len = size_of_val(&all) as libc::socklen_t;
    // SAFETY: `all` is writable for `len` octets.
    let rc = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, all.as_mut_ptr().cast(), &mut len)
    };
    (rc == 0).then_some(all[8])
}

/// A socket with the port of `leg`, which has joined its group; `configure` is called before it is bound. Gives the
/// interface too.
fn bound(
    leg: &Leg,
    interface: Option<&str>,
    notes: &mut Vec<String>,
    configure: impl FnOnce(&socket2::Socket, &mut Vec<String>) -> Result<()>,
) -> Result<(socket2::Socket, Option<Interface>)> {
    if leg.port == 0 {
        return Err(Error::new(Kind::Data, "the SDP gives UDP port 0, which nothing can be sent to")
            .cure("put the sender's destination port in the m= line"));
    }
    let to = leg.destination;
    let named = interface.map(interface::find).transpose()?;
    let group = if to.is_multicast() { Some(group_interface(to, named.as_ref(), notes)?) } else { None };

    if let Some(interface) =
        named.as_ref().filter(|i| group.is_none() && !to.is_unspecified() && !i.addresses.contains(&to))
    {
        notes.push(format!(
            "warning: {to} is no address of {}; unicast comes by the interface that has it",
            interface.name
        ));
    }

    let socket = new_socket(to)?;
    configure(&socket, notes)?;
    if let Some(interface) = &group {
        prepare_group(&socket, to, interface)?;
    }
    bind(&socket, leg, group.as_ref().or(named.as_ref()))?;
    if let Some(interface) = &group {
        join(&socket, leg, interface)?;
        notes.push(format!("{} joined on {}{}", to, interface.name, sources_text(&leg.sources)));
        notes.extend(group_warnings(leg, interface));
        notes.extend(path_warning(leg, interface));
    }
    let owner = || interfaces().into_iter().find(|i| i.addresses.contains(&to));
    Ok((socket, group.or(named).or_else(owner)))
}

/// Joins the group of `leg` on `interface` and receives nothing: for those who get its packets in another way. The group
/// is left when the socket is dropped; no socket where the leg is no group.
#[cfg(feature = "bypass")]
#[cfg_attr(not(feature = "rivermax"), allow(dead_code))]
pub(in crate::rx) fn member(
    leg: &Leg,
    interface: &Interface,
    notes: &mut Vec<String>,
) -> Result<Option<socket2::Socket>> {
    let group = leg.destination;
    if !group.is_multicast() {
        return Ok(None);
    }
    let interface = group_interface(group, Some(interface), notes)?;
    let socket = new_socket(group)?;
    join(&socket, leg, &interface)?;
    notes.push(format!("{group} joined on {}{}", interface.name, sources_text(&leg.sources)));
    notes.extend(group_warnings(leg, &interface));
    Ok(Some(socket))
}

fn new_socket(to: IpAddr) -> Result<socket2::Socket> {
    let domain = if to.is_ipv4() { socket2::Domain::IPV4 } else { socket2::Domain::IPV6 };
    let refused = |e: io::Error| match e.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => Error::new(Kind::Unavailable, format!("{to} needs IPv6, which is switched off"))
            .because(e)
            .cure("enable IPv6 (sysctl net.ipv6.conf.all.disable_ipv6=0, kernel parameter ipv6.disable=0)"),
        Some(libc::EPERM | libc::EACCES) => Error::new(Kind::Permission, "the system does not allow UDP sockets")
            .because(e)
            .cure("loosen the sandbox (seccomp, AppArmor, SELinux) or run outside of it"),
        _ => Error::new(Kind::Unavailable, "cannot make a UDP socket").because(e).cure("check ulimit -n and memory"),
    };
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP)).map_err(refused)?;
    if to.is_ipv6() {
        socket.set_only_v6(true).map_err(refused)?;
    }
    Ok(socket)
}

/// The interface on which to join the group `to`.
fn group_interface(to: IpAddr, named: Option<&Interface>, notes: &mut Vec<String>) -> Result<Interface> {
    let all = interfaces();
    let choices = || describe(&all, |i| i.up && i.has_family_of(to));
    let interface = match named {
        Some(interface) => interface.clone(),
        None => {
            let found = interface::by_route(to).ok_or_else(|| {
                Error::new(Kind::Unavailable, format!("no route leads to the multicast group {to}"))
                    .cure(format!("name the interface with --interface, one of: {}", choices()))
            })?;
            notes.push(format!("interface {} chosen by the routing table; --interface names another", found.name));
            found
        }
    };
    let name = &interface.name;
    if !interface.up {
        return Err(Error::new(Kind::Unavailable, format!("cannot join {to}: interface {name} is down"))
            .cure(format!("ip link set {name} up, or choose one of: {}", choices())));
    }
    if !interface.has_family_of(to) {
        let family = if to.is_ipv4() { "IPv4" } else { "IPv6" };
        return Err(Error::new(
            Kind::Unavailable,
            format!("cannot join {to}: interface {name} has no {family} address, so the network would not answer"),
        )
        .cure(format!("ip address add … dev {name}, or choose one of: {}", choices())));
    }
    if !interface.running {
        notes.push(format!("warning: interface {name} has no carrier"));
    }
    Ok(interface)
}

/// Options that must be set before the bind: several receivers of one group, and nobody else's groups.
fn prepare_group(socket: &socket2::Socket, to: IpAddr, interface: &Interface) -> Result<()> {
    let refused = |e: io::Error| Error::new(Kind::Unavailable, format!("cannot prepare a socket for {to}")).because(e);
    socket.set_reuse_address(true).map_err(refused)?;
    if to.is_ipv4() {
        socket.set_multicast_all_v4(false).map_err(refused)
    } else {
        // Old kernels lack it, and even where it is there it does not tell interfaces apart; the bind does both.
        let _ = socket.set_multicast_all_v6(false);
        let _ = socket.bind_device_by_index_v6(NonZeroU32::new(interface.index));
        Ok(())
    }
}

fn bind(socket: &socket2::Socket, leg: &Leg, interface: Option<&Interface>) -> Result<()> {
    let (to, port) = (leg.destination, leg.port);
    let address: SocketAddr = match to {
        IpAddr::V4(ip) => SocketAddrV4::new(ip, port).into(),
        IpAddr::V6(ip) => {
            let local_scope = ip.is_unicast_link_local() || ip.is_multicast();
            let owner = || interfaces().into_iter().find(|i| i.addresses.contains(&to)).map_or(0, |i| i.index);
            let scope = if local_scope { interface.map_or_else(owner, |i| i.index) } else { 0 };
            SocketAddrV6::new(ip, port, 0, scope).into()
        }
    };
    socket.bind(&address.into()).map_err(|e| match e.raw_os_error() {
        Some(libc::EADDRINUSE) => {
            let by = holder_of(port).map(|who| format!(" by {who}")).unwrap_or_default();
            Error::new(Kind::Unavailable, format!("UDP port {port} on {to} is in use{by}"))
                .because(e)
                .cure("stop the other receiver or choose another port")
        }
        Some(libc::EADDRNOTAVAIL) => {
            Error::new(Kind::Unavailable, format!("{to} is no address of this machine")).because(e).cure(format!(
                "let the sender send to one of: {}; or give this machine the address",
                describe(&interfaces(), |i| i.up && i.has_family_of(to))
            ))
        }
        Some(libc::EACCES | libc::EPERM) => Error::new(Kind::Permission, format!("no permission for UDP port {port}"))
            .because(e)
            .cure("use a port from 1024 on, or allow it: sysctl -w net.ipv4.ip_unprivileged_port_start=0"),
        _ => Error::new(Kind::Unavailable, format!("cannot bind UDP port {port} on {to}")).because(e),
    })
}

/// Joins the group of `leg`, with its source filter (IGMPv3, MLDv2).
fn join(socket: &socket2::Socket, leg: &Leg, interface: &Interface) -> Result<()> {
    let group = leg.destination;
    let same = |list: &[IpAddr]| list.iter().copied().filter(|a| a.is_ipv4() == group.is_ipv4()).collect::<Vec<_>>();
    match &leg.sources {
        SourceFilter::Any => ask(socket, libc::MCAST_JOIN_GROUP, group, None, interface),
        SourceFilter::Include(list) => {
            let sources = same(list);
            if sources.is_empty() {
                return Err(Error::new(
                    Kind::Data,
                    format!("the source filter of {group} includes no source of the group's address family"),
                )
                .cure("correct or remove a=source-filter in the SDP"));
            }
            sources.iter().try_for_each(|s| ask(socket, libc::MCAST_JOIN_SOURCE_GROUP, group, Some(*s), interface))
        }
        SourceFilter::Exclude(list) => {
            ask(socket, libc::MCAST_JOIN_GROUP, group, None, interface)?;
            same(list).iter().try_for_each(|s| ask(socket, libc::MCAST_BLOCK_SOURCE, group, Some(*s), interface))
        }
    }
}

/// One membership request; the calls of RFC 3678 take an interface by its number, for both families.
fn ask(
    socket: &socket2::Socket,
    request: libc::c_int,
    group: IpAddr,
    source: Option<IpAddr>,
    interface: &Interface,
) -> Result<()> {
    let level = if group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let done = match source {
        None => {
            let what = libc::group_req { gr_interface: interface.index, gr_group: storage(group) };
            set(socket, level, request, &what)
        }
        Some(source) => {
            let what = libc::group_source_req {
                gsr_interface: interface.index,
                gsr_group: storage(group),
                gsr_source: storage(source),
            };
            set(socket, level, request, &what)
        }
    };
    done.map_err(|e| {
        let name = &interface.name;
        let from = source.map(|s| format!(" from {s}")).unwrap_or_default();
        let cure = match e.raw_os_error() {
            Some(libc::ENOBUFS) if source.is_some() => {
                "raise the limit of sources a group: sysctl -w net.ipv4.igmp_max_msf=64 (IPv6: net.ipv6.mld_max_msf)"
                    .into()
            }
            Some(libc::ENOBUFS) => {
                "leave other groups or raise the limit: sysctl -w net.ipv4.igmp_max_memberships=256".into()
            }
            Some(libc::ENODEV) => {
                format!("the interface has gone; those that exist: {}", describe(&interfaces(), |_| true))
            }
            _ => format!("check that {name} is up, has an address and does multicast (ip link show {name})"),
        };
        Error::new(Kind::Unavailable, format!("cannot join {group}{from} on {name}")).because(e).cure(cure)
    })
}

/// Things that do not stop a join and yet often explain why nothing comes.
fn group_warnings(leg: &Leg, interface: &Interface) -> Vec<String> {
    let mut notes = Vec::new();
    let name = &interface.name;
    let IpAddr::V4(group) = leg.destination else { return notes };
    if group.octets()[0] == 232 && leg.sources == SourceFilter::Any {
        notes.push(format!(
            "warning: {group} is source-specific (232/8) and the SDP names no source; routers will not forward it"
        ));
    }
    let table = std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap_or_default();
    if let (SourceFilter::Include(_), Some(version @ ("V1" | "V2"))) = (&leg.sources, igmp_version(&table, name)) {
        notes.push(format!(
            "warning: {name} speaks IGMP {version}, which cannot name sources to the network: a querier asked so, or \
             net.ipv4.conf.{name}.force_igmp_version says so; the source filter works in this machine only"
        ));
    }
    notes
}

/// The kernel's check of a sender's way back, which drops packets in silence.
fn path_warning(leg: &Leg, interface: &Interface) -> Option<String> {
    let name = &interface.name;
    let strict = |scope: &str| {
        std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{scope}/rp_filter"))
            .ok()
            .and_then(|s| s.trim().parse::<u8>().ok())
            .unwrap_or(0)
    };
    (leg.destination.is_ipv4() && strict("all").max(strict(name)) == 1).then(|| {
        format!(
            "warning: rp_filter is strict on {name}: packets of senders that this machine would not reach by {name} are \
             dropped; sysctl -w net.ipv4.conf.{name}.rp_filter=2 (and all.rp_filter)"
        )
    })
}

/// The version that an interface speaks (`V1`, `V2`, `V3`), from /proc/net/igmp: {number, name, `:`, groups, version}.
pub(crate) fn igmp_version<'a>(table: &'a str, interface: &str) -> Option<&'a str> {
    table.lines().find_map(|line| {
        let (device, rest) = line.split_once(':')?;
        let name = device.split_ascii_whitespace().nth(1)?;
        (name == interface).then(|| rest.split_ascii_whitespace().nth(1))?
    })
}

fn sources_text(sources: &SourceFilter) -> String {
    let list = |l: &[IpAddr]| l.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match sources {
        SourceFilter::Any => ", any source".into(),
        SourceFilter::Include(l) => format!(", only from {}", list(l)),
        SourceFilter::Exclude(l) => format!(", not from {}", list(l)),
    }
}

/// Asks for the buffer, reads back what was given. Returns the payload octets that fit.
fn size_buffer(socket: &socket2::Socket, options: &Options, notes: &mut Vec<String>) -> Result<u64> {
    let refused = |e: io::Error| Error::new(Kind::Unavailable, "cannot size the socket buffer").because(e);
    let wanted = i32::try_from(options.buffer_octets).unwrap_or(i32::MAX / 2).max(4096);
    let forced = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &wanted).is_ok();
    if !forced {
        set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &wanted).map_err(refused)?;
    }
    let given = socket.recv_buffer_size().map_err(refused)?;
    let (octets, text) = buffer_note(given, wanted as usize, forced, options);
    notes.push(text);
    Ok(octets)
}

/// Payload octets that a buffer of `given` octets holds when datagrams have `octets`: the kernel charges each with its
/// whole memory.
pub(crate) fn payload_held(given: usize, octets: u16) -> u64 {
    let octets = u64::from(octets.max(1));
    let charged = (octets + 448).next_power_of_two() + 256;
    given as u64 / charged * octets
}

/// Payload octets that a buffer of `given` octets holds, and how to say so. The kernel doubles what was asked for.
fn buffer_note(given: usize, wanted: usize, forced: bool, options: &Options) -> (u64, String) {
    let holds = payload_held(given, options.max_octets);
    let size = given / 2;
    let size = if size >= 1 << 20 { format!("{} MiB", size >> 20) } else { format!("{} KiB", size >> 10) };
    let mut text = format!("socket buffer {size}");
    let ms = (options.rate > 0).then(|| holds as f64 * 8e3 / options.rate as f64);
    if let Some(ms) = ms {
        text += &format!(
            ": {} ms at {:.2} Gb/s",
            if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") },
            options.rate as f64 / 1e9
        );
    }
    if !forced && given / 2 < wanted {
        text += &format!(" (net.core.rmem_max allows no more; for more: sysctl -w net.core.rmem_max={wanted})");
    }
    if ms.is_some_and(|ms| ms < 5.0) {
        text = format!("warning: {text}; packets will be lost whenever the receiver is held up");
    }
    (holds, text)
}

/// Which process holds UDP port `port`, as far as /proc tells.
fn holder_of(port: u16) -> Option<String> {
    let inodes: Vec<String> = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"]
        .iter()
        .filter_map(|f| std::fs::read_to_string(f).ok())
        .flat_map(|text| inodes_on_port(&text, port))
        .collect();
    let links: Vec<String> = inodes.iter().map(|i| format!("socket:[{i}]")).collect();
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let path = process.path();
        let Some(pid) = path.file_name().and_then(|n| n.to_str()).filter(|n| n.bytes().all(|b| b.is_ascii_digit()))
        else {
            continue;
        };
        let Ok(files) = std::fs::read_dir(path.join("fd")) else { continue };
        let holds = |f: std::fs::DirEntry| {
            std::fs::read_link(f.path()).is_ok_and(|to| links.iter().any(|l| to.as_os_str() == l.as_str()))
        };
        if files.flatten().any(holds) {
            let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            return Some(format!("{} (process {pid})", name.trim()));
        }
    }
    None
}

/// Column 10 of the lines of /proc/net/udp whose local port is `port`.
fn inodes_on_port(table: &str, port: u16) -> Vec<String> {
    let end = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut columns = line.split_ascii_whitespace();
            let local = columns.nth(1)?;
            local.ends_with(&end).then(|| columns.nth(7).map(str::to_owned))?
        })
        .collect()
}

fn must(socket: &socket2::Socket, level: libc::c_int, option: libc::c_int, name: &str) -> Result<()> {
    set(socket, level, option, &1_i32)
        .map_err(|e| Error::new(Kind::Unavailable, format!("the kernel refuses socket option {name}")).because(e))
}

/// `setsockopt` with a plain C value.
fn set<T: Copy>(socket: &socket2::Socket, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is readable for `len` octets during the call.
    let rc = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn storage(ip: IpAddr) -> libc::sockaddr_storage {
    // SAFETY: all-zero octets are a valid `sockaddr_storage`.
    let mut all: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let at = std::ptr::from_mut(&mut all);
    match ip {
        IpAddr::V4(ip) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: 0,
                sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: a `sockaddr_storage` is large and aligned enough for every socket address.
            unsafe { at.cast::<libc::sockaddr_in>().write(address) };
        }
        IpAddr::V6(ip) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { at.cast::<libc::sockaddr_in6>().write(address) };
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn at(rate: u64) -> Options {
        Options { rate, max_octets: 1260, ..Options::default() }
    }

    #[test]
    fn the_buffer_is_told_in_milliseconds() {
        // 64 MiB asked, doubled by the kernel, 2304 octets charged a datagram: 58 254 datagrams, 259 ms at 225 000 a second.
        let (octets, text) = buffer_note(128 << 20, 64 << 20, true, &at(225_000 * 1260 * 8));
        assert_eq!(octets, 58_254 * 1260);
        assert_eq!(text, "socket buffer 64 MiB: 259 ms at 2.27 Gb/s");
    }

    #[test]
    fn a_buffer_under_five_milliseconds_is_loud_and_names_the_cure() {
        // The kernel's default of 208 KiB holds 184 datagrams: 0.8 ms.
        let (octets, text) = buffer_note(425_984, 64 << 20, false, &at(225_000 * 1260 * 8));
        assert_eq!(octets, 184 * 1260);
        assert!(text.starts_with("warning: socket buffer 208 KiB: 0.8 ms"), "{text}");
        assert!(text.contains("sysctl -w net.core.rmem_max=67108864"), "{text}");
        let (_, text) = buffer_note(425_984, 64 << 20, false, &at(0));
        assert!(!text.contains(" ms"), "no rate, no milliseconds: {text}");
    }

    #[test]
    fn the_table_of_udp_sockets_is_read_by_its_columns() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
                     12345: 0100007F:138C 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 17241 2 0000000000000000 0\n\
                     12346: 00000000:138D 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 17242 2 0000000000000000 0\n\
                     short line\n";
        assert_eq!(inodes_on_port(table, 5004), ["17241"]);
        assert_eq!(inodes_on_port(table, 5006), [""; 0]);
    }

    #[test]
    fn the_igmp_version_is_read_by_interface() {
        let table = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
                     1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n\
                     2\teth0      :     2      V2\n\t\t\t\t01014DEF     1 0:00000000\t\t0\n";
        assert_eq!(igmp_version(table, "eth0"), Some("V2"));
        assert_eq!(igmp_version(table, "lo"), Some("V3"));
        assert_eq!(igmp_version(table, "eth1"), None);
        assert_eq!(igmp_version("", "lo"), None);
    }

    #[test]
    fn socket_addresses_are_laid_out_as_the_kernel_reads_them() {
        let v4 = storage(Ipv4Addr::new(239, 1, 2, 3).into());
        // SAFETY: `storage` wrote a `sockaddr_in`.
        let v4 = unsafe { &*std::ptr::from_ref(&v4).cast::<libc::sockaddr_in>() };
        assert_eq!((i32::from(v4.sin_family), v4.sin_addr.s_addr.to_ne_bytes()), (libc::AF_INET, [239, 1, 2, 3]));
        let v6 = storage("ff3e::1234".parse().unwrap());
        // SAFETY: `storage` wrote a `sockaddr_in6`.
        let v6 = unsafe { &*std::ptr::from_ref(&v6).cast::<libc::sockaddr_in6>() };
        assert_eq!((v6.sin6_addr.s6_addr[0], v6.sin6_addr.s6_addr[15]), (0xff, 0x34));
    }
}
