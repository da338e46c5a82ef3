//! The kernel's calls for eBPF (linux/bpf.h), as far as they are used here; `libc` has those of AF_XDP (linux/if_xdp.h).
#![allow(unsafe_code)]

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Verdict of a program: on to the kernel's stack.
pub const XDP_PASS: i32 = 2;

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP: u32 = 1;
const MAP_UPDATE: u32 = 2;
const MAP_DELETE: u32 = 3;
const MAP_NEXT_KEY: u32 = 4;
const PROG_LOAD: u32 = 5;
const PROG_FD_BY_ID: u32 = 13;
const MAP_FD_BY_ID: u32 = 14;
const INFO_BY_FD: u32 = 15;
const LINK_CREATE: u32 = 28;
const LINK_FD_BY_ID: u32 = 30;
const LINK_NEXT_ID: u32 = 31;

const MAP_TYPE_HASH: u32 = 1;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const LINK_TYPE_XDP: u32 = 6;
/// `BPF_F_XDP_DEV_BOUND_ONLY` (Linux 6.3).
const DEVICE_BOUND: u32 = 1 << 6;

/// A program or map: its name of at most 15 octets.
pub type Name = [u8; 16];

/// A [`Name`].
pub const fn name(text: &str) -> Name {
    let (mut out, octets, mut i) = ([0; 16], text.as_bytes(), 0);
    while i < octets.len() {
        out[i] = octets[i];
        i += 1;
    }
    assert!(i < 16);
    out
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: Name,
}

#[repr(C)]
struct Element {
    map: u32,
    zero: u32,
    key: u64,
    /// Or the next key.
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: Name,
    ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
struct Id {
    id: u32,
    next: u32,
    open_flags: u32,
}

#[repr(C)]
struct Info {
    fd: u32,
    len: u32,
    info: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
pub struct ProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    lens: [u32; 2],
    insns: [u64; 2],
    load_time: u64,
    created_by: u32,
    map_count: u32,
    map_ids: u64,
    /// Its name.
    pub name: Name,
}

/// The beginning of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
pub struct MapInfo {
    kind: u32,
    id: u32,
    /// Octets of a key.
    pub key: u32,
    /// Octets of a value.
    pub value: u32,
    /// Entries at most.
    pub entries: u32,
    flags: u32,
    /// Its name.
    pub name: Name,
}

/// `struct bpf_link_info` of a link of type XDP.
#[repr(C)]
#[derive(Default)]
pub struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    zero: u32,
    ifindex: u32,
    zeros: [u32; 7],
}

fn bpf<T>(command: u32, argument: &mut T) -> io::Result<c_long> {
    let (at, len) = (std::ptr::from_mut(argument), size_of::<T>());
    // SAFETY: every caller passes the part of `union bpf_attr` that the command reads, whose pointers lead to memory
    // that the caller borrows; its structures have no padding.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, at, len) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

fn bpf_fd<T>(command: u32, argument: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, argument)?;
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

fn create_map(map_type: u32, name: Name, key_size: usize, value_size: usize, entries: u32) -> io::Result<OwnedFd> {
    bpf_fd(
        MAP_CREATE,
        &mut MapCreate {
            map_type,
            key_size: key_size as u32,
            value_size: value_size as u32,
            max_entries: entries,
            map_flags: 0,
            inner_map_fd: 0,
            numa_node: 0,
            name,
        },
    )
}

/// A hash map of keys `K` and values `V`.
pub fn hash_map<K, V>(name: Name, entries: u32) -> io::Result<OwnedFd> {
    create_map(MAP_TYPE_HASH, name, size_of::<K>(), size_of::<V>(), entries)
}

/// An array of AF_XDP sockets.
pub fn socket_map(name: Name, entries: u32) -> io::Result<OwnedFd> {
    create_map(MAP_TYPE_XSKMAP, name, 4, 4, entries)
}

/// What may be a key or a value: plain integers without padding.
///
/// # Safety
/// Every octet of the type is initialised, and every pattern of octets is a value of it.
pub unsafe trait Plain: Copy + Default {}
// SAFETY: plain integers.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for u64 {}

/// How an entry is written.
#[derive(Clone, Copy)]
pub enum Write {
    /// Whatever is there.
    Any = 0,
    /// Only where there is none.
    New = 1,
}

/// Writes an entry.
pub fn update<K: Plain, V: Plain>(map: BorrowedFd<'_>, key: &K, value: &V, how: Write) -> io::Result<()> {
    let (key, value) = (std::ptr::from_ref(key) as u64, std::ptr::from_ref(value) as u64);
    bpf(MAP_UPDATE, &mut Element { map: number(map), zero: 0, key, value, flags: how as u64 }).map(drop)
}

/// Reads an entry.
pub fn lookup<K: Plain, V: Plain>(map: BorrowedFd<'_>, key: &K) -> io::Result<V> {
    let mut value = V::default();
    let (key, at) = (std::ptr::from_ref(key) as u64, std::ptr::from_mut(&mut value) as u64);
    bpf(MAP_LOOKUP, &mut Element { map: number(map), zero: 0, key, value: at, flags: 0 })?;
    Ok(value)
}

/// Removes an entry.
pub fn delete<K: Plain>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    let key = std::ptr::from_ref(key) as u64;
    bpf(MAP_DELETE, &mut Element { map: number(map), zero: 0, key, value: 0, flags: 0 }).map(drop)
}

/// All keys, `limit` at most.
pub fn keys<K: Plain>(map: BorrowedFd<'_>, limit: usize) -> io::Result<Vec<K>> {
    let mut all: Vec<K> = Vec::new();
    while all.len() < limit {
        let mut next = K::default();
        let key = all.last().map_or(0, |k| std::ptr::from_ref(k) as u64);
        let value = std::ptr::from_mut(&mut next) as u64;
        match bpf(MAP_NEXT_KEY, &mut Element { map: number(map), zero: 0, key, value, flags: 0 }) {
            Ok(_) => all.push(next),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// What the kernel is told of a program's licence: functions of the kernel may be called by none that is not compatible with the
/// GPL. So the program's instructions, and they alone, are offered under "MIT or GPL-2.0", by who wrote them; MIT is what all of
/// gdmedia is under. What loads a program does not become a part of it: nothing of this process runs in the kernel.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// Loads a program for XDP; on a refusal the verifier's last words are in the error. One that calls the driver is bound to a
/// device, by its number.
pub fn load(name: Name, insns: &[u64], device: Option<u32>) -> io::Result<OwnedFd> {
    let mut log = vec![0u8; 64 << 10];
    let mut argument = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        insn_count: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: LICENCE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: device.map_or(0, |_| DEVICE_BOUND),
        name,
        ifindex: device.unwrap_or(0),
        expected_attach_type: ATTACH_XDP,
    };
    match bpf_fd(PROG_LOAD, &mut argument) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EINVAL)) => {
            (argument.log_level, argument.log_size, argument.log) = (1, log.len() as u32, log.as_mut_ptr() as u64);
            let Err(e) = bpf_fd(PROG_LOAD, &mut argument) else { return Err(e) };
            let text = String::from_utf8_lossy(&log);
            let said = text.trim_end_matches('\0').lines().rev().take(3).collect::<Vec<_>>();
            let said = said.into_iter().rev().collect::<Vec<_>>().join("; ");
            if said.is_empty() { Err(e) } else { Err(io::Error::new(e.kind(), format!("{e}: {said}"))) }
        }
        result => result,
    }
}

/// Attaches a program to an interface until the last descriptor of the link is closed; `flags` are `XDP_FLAGS_…`.
pub fn link(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    bpf_fd(LINK_CREATE, &mut LinkCreate { program: number(program), ifindex, attach_type: ATTACH_XDP, flags })
}

fn by_id(command: u32, id: u32) -> io::Result<OwnedFd> {
    bpf_fd(command, &mut Id { id, next: 0, open_flags: 0 })
}

fn info<T: Default>(fd: BorrowedFd<'_>, mut into: T) -> io::Result<T> {
    let at = std::ptr::from_mut(&mut into) as u64;
    bpf(INFO_BY_FD, &mut Info { fd: number(fd), len: size_of::<T>() as u32, info: at })?;
    Ok(into)
}

/// A program by its number.
pub fn program(id: u32) -> io::Result<(OwnedFd, ProgInfo)> {
    let fd = by_id(PROG_FD_BY_ID, id)?;
    let said = info(std::os::fd::AsFd::as_fd(&fd), ProgInfo::default())?;
    Ok((fd, said))
}

/// The maps that a program uses, 8 at most.
pub fn maps_of(program: BorrowedFd<'_>) -> io::Result<Vec<(OwnedFd, MapInfo)>> {
    let mut ids = [0u32; 8];
    let ask = ProgInfo { map_count: 8, map_ids: ids.as_mut_ptr() as u64, ..ProgInfo::default() };
    let count = info(program, ask)?.map_count as usize;
    ids.iter()
        .take(count)
        .map(|id| {
            let fd = by_id(MAP_FD_BY_ID, *id)?;
            let said = info(std::os::fd::AsFd::as_fd(&fd), MapInfo::default())?;
            Ok((fd, said))
        })
        .collect()
}

/// The link that attaches program `id`; none when it is attached otherwise, or not any more.
pub fn link_of(id: u32) -> io::Result<Option<OwnedFd>> {
    let mut at = Id { id: 0, next: 0, open_flags: 0 };
    loop {
        match bpf(LINK_NEXT_ID, &mut at) {
            Ok(_) => at.id = at.next,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(e) => return Err(e),
        }
        // One that has gone meanwhile is none.
        let Ok(link) = by_id(LINK_FD_BY_ID, at.id) else { continue };
        let said = info(std::os::fd::AsFd::as_fd(&link), LinkInfo::default())?;
        if said.kind == LINK_TYPE_XDP && said.program == id && said.ifindex != 0 {
            return Ok(Some(link));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and places of linux/bpf.h, counted there by hand.
    #[test]
    fn structures_lie_as_the_kernel_reads_them() {
        assert_eq!((size_of::<MapCreate>(), std::mem::offset_of!(MapCreate, name)), (44, 28));
        assert_eq!((size_of::<Element>(), std::mem::offset_of!(Element, flags)), (32, 24));
        assert_eq!((size_of::<ProgLoad>(), std::mem::offset_of!(ProgLoad, name)), (72, 48));
        assert_eq!((size_of::<ProgInfo>(), std::mem::offset_of!(ProgInfo, map_ids)), (80, 56));
        assert_eq!((size_of::<MapInfo>(), std::mem::offset_of!(MapInfo, name)), (40, 24));
        assert_eq!((size_of::<LinkInfo>(), std::mem::offset_of!(LinkInfo, ifindex)), (48, 16));
        assert_eq!((size_of::<LinkCreate>(), size_of::<Id>(), size_of::<Info>()), (16, 12, 16));
    }
}
