//! The filter of an interface, which all receivers there share: the first one attaches it, and the kernel removes it when
//! the last one has closed its link, also when that one was killed.
//!
//! Whoever comes finds it by the number of the program that runs at the interface. Changes are made under a lock of the
//! network namespace, which the kernel gives back as well. What a dead receiver leaves while others go on, its flows, harms
//! nobody: its queues have no socket any more, so the packets are passed on. Who takes such a queue removes what points
//! there, and who wants such a flow takes it over.
#![allow(unsafe_code)]

use super::abi::{self, Name, Write, name};
use super::device::{self, Attached};
use super::program::{self, Key, MAX_FLOWS, MAX_QUEUES, Queues};
use super::stamps::{self, GENERIC};
use crate::error::{Error, Kind, Result};
use crate::rx::socket::Stamping;
use crate::rx::socket::stamps::none;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Names by which a filter is known; the number counts its layout.
pub const NAME: &str = "gdmedia_xdp1";
/// The same of the form that takes stamps of the card. Maps are alike, so receivers that want none share it.
pub const NAME_STAMPS: &str = "gdmedia_xdp1ts";
const PROGRAM: Name = name(NAME);
const PROGRAM_STAMPS: Name = name(NAME_STAMPS);
const FLOWS: Name = name("gdmedia_flows1");
const SOCKETS: Name = name("gdmedia_socks1");

/// How long another receiver may be at the lock, or a filter on its way out.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// `XDP_FLAGS_SKB_MODE`, `XDP_FLAGS_DRV_MODE` (linux/if_link.h).
const GENERIC_MODE: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// Only one receiver of a network namespace changes a filter at a time.
pub struct Lock(#[allow(dead_code, reason = "closing it gives the lock back")] File);

impl Lock {
    /// Waits for it.
    ///
    /// # Errors
    /// Somebody else does not give it back.
    pub fn take() -> Result<Self> {
        let refused = |e: io::Error| {
            Error::new(Kind::Unavailable, "AF_XDP cannot be configured: another program holds the lock")
                .because(e)
                .cure("another gdmedia is starting here: try again")
        };
        let file = File::open("/proc/thread-self/ns/net").map_err(refused)?;
        let begun = Instant::now();
        loop {
            // SAFETY: no pointers.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Lock(file));
            }
            if begun.elapsed() > PATIENCE {
                return Err(refused(io::Error::last_os_error()));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// What is wanted of a filter.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// Where it runs.
    pub attached: Option<Attached>,
    /// Whose stamps packets have.
    pub stamps: Stamping,
    /// The kernel's clock stands in for a card.
    #[cfg(test)]
    pub stand_in: bool,
}

/// The filter of one interface.
pub struct Filter {
    /// Keeps it attached.
    pub link: OwnedFd,
    flows: OwnedFd,
    sockets: OwnedFd,
    /// Where it runs.
    pub attached: Attached,
    /// It takes stamps of the card; or why not.
    pub stamps: std::result::Result<(), String>,
}

/// Why a filter was not attached.
enum Refused {
    Kernel(io::Error),
    /// Stamps are demanded.
    Stamps(String),
}

impl From<io::Error> for Refused {
    fn from(e: io::Error) -> Self {
        Refused::Kernel(e)
    }
}

fn busy(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

enum Existing {
    Ours(Filter),
    Foreign(String),
    Gone,
}

impl Filter {
    /// Finds the filter of interface `index`, or attaches it: in the driver where that is possible and `wish` does not
    /// say otherwise, and so that it takes stamps of the card where that is possible. `notes` gets what was refused.
    ///
    /// # Errors
    /// No permission; another program runs there; the interface does not take any, or none with stamps, which are demanded.
    pub fn open(index: u32, wish: &Wish, _lock: &Lock, notes: &mut Vec<String>) -> Result<Self> {
        let begun = Instant::now();
        loop {
            let device = device::query(index).map_err(|e| gone(index, e))?;
            let name = &device.name;
            match device.program {
                None => match attach(index, name, wish, notes) {
                    // Somebody else was faster, or the last one has not gone altogether.
                    Err(Refused::Kernel(e)) if busy(&e) => {}
                    Err(Refused::Kernel(e)) => return Err(refused(name, e)),
                    Err(Refused::Stamps(why)) => return Err(none(&why)),
                    Ok(filter) => return Ok(filter),
                },
                Some((id, how)) => match existing(id, how).map_err(|e| not_seen(name, id, e))? {
                    Existing::Ours(filter) if wish.attached.is_none_or(|wanted| wanted == how) => return Ok(filter),
                    Existing::Ours(_) => {
                        return Err(Error::new(
                            Kind::Unavailable,
                            format!("another gdmedia receives on {name} in {} mode", words(how)),
                        )
                        .cure("use the same mode, or leave --xdp mode=… out"));
                    }
                    Existing::Foreign(program) => {
                        return Err(Error::new(
                            Kind::Unavailable,
                            format!("the XDP program {program} (number {id}) runs on {name} already"),
                        )
                        .cure(format!(
                            "end what uses it, or remove it: ip link set dev {name} xdp off; or receive with sockets"
                        )));
                    }
                    Existing::Gone => {}
                },
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::new(Kind::Unavailable, format!("the XDP program of {name} does not go away"))
                    .cure(format!("ip link show dev {name} says which one it is; ip link set dev {name} xdp off")));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Gives a queue to a socket, which the kernel has bound to it. Flows that a dead receiver left there go.
    pub fn claim(&self, queue: u32, socket: BorrowedFd<'_>, _lock: &Lock) -> io::Result<()> {
        let bit: Queues = 1 << queue;
        for key in abi::keys::<Key>(self.flows.as_fd(), MAX_FLOWS as usize)? {
            let queues: Queues = abi::lookup(self.flows.as_fd(), &key)?;
            match queues & !bit {
                0 => abi::delete(self.flows.as_fd(), &key)?,
                rest if rest != queues => abi::update(self.flows.as_fd(), &key, &rest, Write::Any)?,
                _ => {}
            }
        }
        abi::update(self.sockets.as_fd(), &queue, &(socket.as_raw_fd() as u32), Write::Any)
    }

    /// Sends a flow to these queues. `probe` is a socket of the caller's. `false` when another receiver has the flow.
    pub fn add(&self, key: &Key, queues: Queues, probe: BorrowedFd<'_>, _lock: &Lock) -> io::Result<bool> {
        match abi::update(self.flows.as_fd(), key, &queues, Write::New) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => {}
            result => return result.map(|()| true),
        }
        let theirs: Queues = abi::lookup(self.flows.as_fd(), key)?;
        for queue in (0..MAX_QUEUES).filter(|queue| theirs >> queue & 1 != 0) {
            if !self.is_vacant(queue, probe)? {
                return Ok(false);
            }
        }
        abi::update(self.flows.as_fd(), key, &queues, Write::Any).map(|()| true)
    }

    /// Whether no socket has the queue. Sockets cannot be looked up from outside, but a place that is taken refuses another.
    fn is_vacant(&self, queue: u32, probe: BorrowedFd<'_>) -> io::Result<bool> {
        match abi::update(self.sockets.as_fd(), &queue, &(probe.as_raw_fd() as u32), Write::New) {
            Ok(()) => abi::delete(self.sockets.as_fd(), &queue).map(|()| true),
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Passes a flow on to the kernel again.
    pub fn remove(&self, key: &Key) {
        // One that is not there is removed.
        let _ = abi::delete(self.flows.as_fd(), key);
    }
}

fn attach(index: u32, name: &str, wish: &Wish, notes: &mut Vec<String>) -> std::result::Result<Filter, Refused> {
    let flows = abi::hash_map::<Key, Queues>(FLOWS, MAX_FLOWS)?;
    let sockets = abi::socket_map(SOCKETS, MAX_QUEUES)?;
    let maps = [flows.as_raw_fd(), sockets.as_raw_fd()];
    let filter = |link, attached, stamps| Filter { link, flows, sockets, attached, stamps };
    let why = match stamps::stamp(index, name, wish).and_then(|by| stamps::load(by, PROGRAM_STAMPS, index, maps)) {
        Ok(program) => match abi::link(program.as_fd(), index, NATIVE) {
            Ok(link) => return Ok(filter(link, Attached::Native, Ok(()))),
            Err(e) if busy(&e) => return Err(e.into()),
            Err(e) => format!("no XDP in the driver of {name} ({e}), and {GENERIC}"),
        },
        Err(why) => why,
    };
    if wish.stamps == Stamping::Hardware {
        return Err(Refused::Stamps(why));
    }
    let program = abi::load(PROGRAM, &program::assemble(maps[0], maps[1], None), None)?;
    if wish.attached != Some(Attached::Generic) {
        match abi::link(program.as_fd(), index, NATIVE) {
            Ok(link) => return Ok(filter(link, Attached::Native, Err(why))),
            Err(e) if wish.attached.is_some() || busy(&e) => return Err(e.into()),
            Err(e) => notes.push(format!("no XDP in the driver of {name}: {e}")),
        }
    }
    Ok(filter(abi::link(program.as_fd(), index, GENERIC_MODE)?, Attached::Generic, Err(why)))
}

fn existing(id: u32, attached: Attached) -> io::Result<Existing> {
    let (program, said) = match abi::program(id) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(Existing::Gone),
        result => result?,
    };
    let stamps = match said.name {
        PROGRAM_STAMPS => Ok(()),
        PROGRAM if attached == Attached::Generic => Err(GENERIC.to_owned()),
        PROGRAM => Err("the filter there, of another gdmedia, takes none".to_owned()),
        _ => return Ok(Existing::Foreign(text(&said.name))),
    };
    let Some(link) = abi::link_of(id)? else { return Ok(Existing::Gone) };
    let (mut flows, mut sockets) = (None, None);
    for (map, said) in abi::maps_of(program.as_fd())? {
        match said.name {
            FLOWS if (said.key, said.value) == (size_of::<Key>() as u32, size_of::<Queues>() as u32) => {
                flows = Some(map);
            }
            SOCKETS if said.entries == MAX_QUEUES => sockets = Some(map),
            _ => {}
        }
    }
    Ok(match flows.zip(sockets) {
        Some((flows, sockets)) => Existing::Ours(Filter { link, flows, sockets, attached, stamps }),
        None => Existing::Foreign(text(&said.name)),
    })
}

/// Whether a program of this name is a filter of gdmedia.
pub fn is_ours(name: &str) -> bool {
    name == NAME || name == NAME_STAMPS
}

/// The name of a program.
pub fn name_of(id: u32) -> Option<String> {
    abi::program(id).ok().map(|(_, said)| text(&said.name))
}

fn text(name: &Name) -> String {
    String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()
}

/// For messages.
pub const fn words(attached: Attached) -> &'static str {
    match attached {
        Attached::Native => "native",
        Attached::Generic => "generic",
        Attached::Other => "another",
    }
}

fn gone(index: u32, e: io::Error) -> Error {
    Error::new(Kind::Unavailable, format!("interface number {index} does not answer")).because(e)
}

/// What is missing without root.
pub const RIGHTS: &str = "run as root, or with the capabilities CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, or let gdmedia \
                          xdp-helper hand over the sockets (--xdp helper=PATH)";

fn refused(name: &str, e: io::Error) -> Error {
    match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            Error::new(Kind::Permission, format!("no permission for an XDP program on {name}")).because(e).cure(RIGHTS)
        }
        Some(libc::ERANGE) => Error::new(Kind::Unavailable, format!("{name} takes no XDP program with its MTU"))
            .because(e)
            .cure(format!("ip link set dev {name} mtu 1500 (of veth: on both ends), or --xdp mode=generic")),
        _ => Error::new(Kind::Unavailable, format!("{name} takes no XDP program"))
            .because(e)
            .cure("receive with sockets"),
    }
}

fn not_seen(name: &str, id: u32, e: io::Error) -> Error {
    let what = format!("an XDP program (number {id}) runs on {name} already, and cannot be looked at");
    let kind = if e.raw_os_error() == Some(libc::EPERM) { Kind::Permission } else { Kind::Unavailable };
    Error::new(kind, what).because(e).cure(
        "a second receiver on an interface needs CAP_SYS_ADMIN to find the first one's program: run as root, or let \
         gdmedia xdp-helper hand over the sockets to both",
    )
}
