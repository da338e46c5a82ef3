//! The privileged part of AF_XDP as a program of its own, so that receivers run without rights.
//!
//! A receiver connects to a Unix socket (SEQPACKET) and asks, one JSON object a message; every request has one answer.
//!
//! ```text
//! receiver                                  helper
//! {"open": {"interface": …, "mode": …,
//!           "stamps": …}}                   attaches or finds the filter: {"done": {…}} + descriptor of its link; tells
//!                                           the card to stamp, where that is asked for
//! {"socket": 0}                             an AF_XDP socket for queue 0: {"done": …} + descriptor
//!   registers its memory, maps rings, binds
//! {"claim": [0]}                            puts the sockets of these queues into the filter, and forgets others
//! {"add": {flow}} + descriptor              checks, and sends the flow there
//! {"remove": {flow}}
//! ```
//!
//! Who may connect: root, and the users that were named; the kernel says who it is (SO_PEERCRED). A flow is given only to
//! who shows a UDP socket that is bound to it, in the same network namespace: what nobody may bind, nobody can take this way.
//! An AF_XDP socket can also send whatever it likes, so name only users who may do that. A helper that ends takes nothing
//! away: receivers hold the filter's link themselves. A receiver that ends has its flows removed.
#![allow(unsafe_code)]

use super::device::Attached;
use super::filter::{Filter, Lock, RIGHTS, Wish};
use super::port::{add, attached_for, bits};
use super::program::{MAX_QUEUES, Wanted};
use super::stamps::{self, Chosen};
use super::{Mode, Options, socket};
use crate::error::{Error, Kind, Result};
use crate::rx::socket::stamps::none;
use crate::rx::socket::{Stamping, find_interface};
use crate::unix::descriptor;
use crate::unix::listener::{Listener, address};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Octets of a message at most.
const LONGEST: usize = 16 << 10;
/// Receivers at once.
const MOST: usize = 64;
/// How long a receiver waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Open {
        interface: String,
        mode: Option<Mode>,
        /// A receiver of a version before takes none.
        #[serde(default = "software")]
        stamps: Stamping,
    },
    Socket(u32),
    Claim(Vec<u32>),
    Add(Wanted),
    Remove(Wanted),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done {
        attached: Option<Attached>,
        notes: Vec<String>,
        /// Of [`Request::Open`].
        #[serde(default)]
        stamps: Option<Chosen>,
    },
    Refused {
        code: u8,
        what: String,
        cure: String,
    },
}

const fn software() -> Stamping {
    Stamping::Software
}

impl Answer {
    fn done() -> Self {
        Answer::Done { attached: None, notes: Vec::new(), stamps: None }
    }
    fn refused(error: &Error) -> Self {
        let text = error.to_string();
        let what = text.split("\n  cure: ").next().unwrap_or_default().to_owned();
        Answer::Refused { code: error.kind().exit_code(), what, cure: error.cure_text().to_owned() }
    }
}

/// A receiver's side.
pub struct Connection {
    socket: Socket,
    /// Keeps the filter where it is, whatever becomes of the helper.
    _link: OwnedFd,
}

impl Connection {
    /// Connects, and lets the filter of an interface be attached.
    ///
    /// # Errors
    /// There is no helper, or it refuses.
    pub(super) fn open(
        path: &Path,
        interface: &str,
        options: &Options,
        notes: &mut Vec<String>,
    ) -> Result<(Self, Attached, Chosen)> {
        let missing = |e: io::Error| {
            Error::new(Kind::Unavailable, format!("no xdp-helper at {}", path.display()))
                .because(e)
                .cure(format!("start it as root: gdmedia xdp-helper {} --allow USER", path.display()))
        };
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).map_err(missing)?;
        socket.connect(&address(path)?).map_err(missing)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(missing)?;
        let open = Request::Open { interface: interface.to_owned(), mode: options.mode, stamps: options.stamps };
        let mut said = ask(&socket, &open, None)?;
        notes.push(format!("sockets come from the xdp-helper at {}", path.display()));
        notes.append(&mut said.notes);
        let (Some(attached), Some(link)) = (said.attached, said.passed) else { return Err(nonsense()) };
        let chosen = said.stamps.unwrap_or_default();
        if let (Stamping::Hardware, Chosen::Poll(why)) = (options.stamps, &chosen) {
            return Err(none(why));
        }
        Ok((Connection { socket, _link: link }, attached, chosen))
    }
    /// A socket for a queue.
    pub(super) fn socket(&self, queue: u32) -> Result<OwnedFd> {
        ask(&self.socket, &Request::Socket(queue), None)?.passed.ok_or_else(nonsense)
    }
    /// The sockets of these queues are bound.
    pub(super) fn claim(&self, queues: &[u32]) -> Result<()> {
        ask(&self.socket, &Request::Claim(queues.to_vec()), None).map(drop)
    }
    /// Takes a flow; `beside` is bound to it.
    pub(super) fn add(&self, wanted: &Wanted, beside: BorrowedFd<'_>) -> Result<()> {
        ask(&self.socket, &Request::Add(wanted.clone()), Some(beside)).map(drop)
    }
    /// Gives a flow back.
    pub(super) fn remove(&self, wanted: &Wanted) {
        // A helper that has gone left the flow to a queue without a socket, or will with us.
        let _ = ask(&self.socket, &Request::Remove(wanted.clone()), None);
    }
}

/// What a helper has answered.
struct Said {
    attached: Option<Attached>,
    notes: Vec<String>,
    stamps: Option<Chosen>,
    passed: Option<OwnedFd>,
}

fn ask(socket: &Socket, request: &Request, passed: Option<BorrowedFd<'_>>) -> Result<Said> {
    let broken = |e: io::Error| {
        Error::new(Kind::Unavailable, "the xdp-helper does not answer").because(e).cure("is it running still?")
    };
    let text = serde_json::to_vec(request).map_err(|e| Error::new(Kind::Internal, "a request").because(e))?;
    descriptor::send(socket, &text, passed).map_err(broken)?;
    let (answer, passed) = descriptor::receive(socket, LONGEST).map_err(broken)?;
    match serde_json::from_slice(&answer) {
        Ok(Answer::Done { attached, notes, stamps }) => Ok(Said { attached, notes, stamps, passed }),
        Ok(Answer::Refused { code, what, cure }) => {
            let kind = [Kind::Usage, Kind::Permission].into_iter().find(|kind| kind.exit_code() == code);
            Err(Error::new(kind.unwrap_or(Kind::Unavailable), what).cure(cure))
        }
        Err(_) => Err(nonsense()),
    }
}

fn nonsense() -> Error {
    Error::new(Kind::Unavailable, "the xdp-helper ended the connection, or is of another version")
        .cure("start the helper of this version")
}

/// The helper's side.
pub struct Helper {
    listener: Listener,
    users: Arc<[u32]>,
}

impl Helper {
    /// Listens at `path` for root and `users`.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(path: &Path, users: &[u32]) -> Result<Self> {
        // Anybody may knock; who it is decides.
        Ok(Helper { listener: Listener::bind(path, 0o666)?, users: users.into() })
    }

    /// Serves until `stop` is set, each receiver on a thread of its own.
    pub fn serve(&self, stop: &AtomicBool) {
        let count = Arc::new(AtomicUsize::new(0));
        while !stop.load(Ordering::Relaxed) {
            let Some(socket) = self.listener.accept().filter(|socket| socket.set_nonblocking(false).is_ok()) else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            let number = count.fetch_add(1, Ordering::Relaxed);
            let admitted = self.admit(&socket, number);
            let counted = count.clone();
            let serve = move || {
                match admitted {
                    Ok(()) => Session::default().serve(&socket),
                    Err(error) => refuse(&socket, &error),
                }
                counted.fetch_sub(1, Ordering::Relaxed);
            };
            // Of those that are refused as many again may be there; others find a closed door.
            if number >= 2 * MOST || std::thread::Builder::new().name("receiver".into()).spawn(serve).is_err() {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn admit(&self, socket: &Socket, number: usize) -> Result<()> {
        let who = peer(socket.as_fd()).map_err(|e| Error::new(Kind::Permission, "who are you?").because(e))?;
        if who != 0 && !self.users.contains(&who) {
            return Err(Error::new(Kind::Permission, format!("the xdp-helper does not serve user {who}"))
                .cure(format!("start it with --allow {who}")));
        }
        if number >= MOST {
            return Err(Error::new(Kind::Unavailable, "the xdp-helper has enough receivers").cure("end one of them"));
        }
        Ok(())
    }
}

/// What one receiver has. Its flows end with it.
#[derive(Default)]
struct Session {
    filter: Option<Filter>,
    name: String,
    sockets: Vec<(u32, OwnedFd)>,
    claimed: Vec<u32>,
    flows: Vec<Wanted>,
}

impl Session {
    fn serve(mut self, socket: &Socket) {
        while let Ok((text, passed)) = descriptor::receive(socket, LONGEST) {
            if text.is_empty() {
                return;
            }
            let result = match serde_json::from_slice(&text) {
                Ok(request) => self.answer(request, passed.as_ref()),
                Err(e) => Err(Error::new(Kind::Usage, "not a request of this version").because(e)),
            };
            match result {
                Ok((answer, fd)) => say(socket, &answer, fd.as_ref().map(AsFd::as_fd)),
                Err(error) => say(socket, &Answer::refused(&error), None),
            }
        }
    }

    fn answer(&mut self, request: Request, passed: Option<&OwnedFd>) -> Result<(Answer, Option<OwnedFd>)> {
        let internal = |e: io::Error| Error::new(Kind::Unavailable, "the helper cannot do that").because(e);
        let order = || Error::new(Kind::Usage, "a request before the one that it needs");
        match request {
            Request::Open { .. } if self.filter.is_some() => Err(order()),
            Request::Open { interface, mode, stamps } => {
                let interface = find_interface(&interface)?;
                let mut notes = Vec::new();
                let wish = Wish {
                    attached: attached_for(mode),
                    stamps,
                    #[cfg(test)]
                    stand_in: false,
                };
                let lock = Lock::take()?;
                let filter = Filter::open(interface.index, &wish, &lock, &mut notes)?;
                let stamps = Some(stamps::choose(&filter.stamps, &interface.name, &wish)?);
                let (attached, link) = (Some(filter.attached), filter.link.try_clone().map_err(internal)?);
                (self.filter, self.name) = (Some(filter), interface.name);
                Ok((Answer::Done { attached, notes, stamps }, Some(link)))
            }
            Request::Socket(queue) => {
                if queue >= MAX_QUEUES || self.sockets.iter().any(|(have, _)| *have == queue) {
                    return Err(Error::new(Kind::Usage, format!("queue {queue} cannot be asked for")));
                }
                let socket = socket::new().map_err(|e| {
                    Error::new(Kind::Permission, "the xdp-helper may not make AF_XDP sockets").because(e).cure(RIGHTS)
                })?;
                let copy = socket.try_clone().map_err(internal)?;
                self.sockets.push((queue, socket));
                Ok((Answer::done(), Some(copy)))
            }
            Request::Claim(queues) => {
                let filter = self.filter.as_ref().ok_or_else(order)?;
                let lock = Lock::take()?;
                self.sockets.retain(|(queue, _)| queues.contains(queue));
                for (queue, socket) in &self.sockets {
                    if self.claimed.contains(queue) {
                        continue;
                    }
                    filter.claim(*queue, socket.as_fd(), &lock).map_err(internal)?;
                    self.claimed.push(*queue);
                }
                Ok((Answer::done(), None))
            }
            Request::Add(wanted) => {
                let filter = self.filter.as_ref().ok_or_else(order)?;
                let (Some((_, probe)), Some(beside)) = (self.sockets.first(), passed) else { return Err(order()) };
                is_bound(beside.as_fd(), &wanted)?;
                add(filter, &self.name, &wanted, bits(self.claimed.iter().copied()), probe.as_fd())?;
                self.flows.push(wanted);
                Ok((Answer::done(), None))
            }
            Request::Remove(wanted) => {
                if let (Some(filter), Some(at)) = (&self.filter, self.flows.iter().position(|flow| *flow == wanted)) {
                    self.flows.swap_remove(at).keys().iter().for_each(|key| filter.remove(key));
                }
                Ok((Answer::done(), None))
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(filter) = &self.filter {
            self.flows.iter().flat_map(Wanted::keys).for_each(|key| filter.remove(&key));
        }
    }
}

/// Hears what is wanted first: an answer that comes with a connection's end would be lost.
fn refuse(socket: &Socket, error: &Error) {
    let heard = socket.set_read_timeout(Some(Duration::from_secs(1)));
    if heard.and_then(|()| descriptor::receive(socket, LONGEST)).is_ok() {
        say(socket, &Answer::refused(error), None);
    }
}

fn say(socket: &Socket, answer: &Answer, passed: Option<BorrowedFd<'_>>) {
    // One that does not listen any more ends its session at the next read.
    if let Ok(text) = serde_json::to_vec(answer) {
        let _ = descriptor::send(socket, &text, passed);
    }
}

/// Whether a socket may have what is wanted: a UDP socket of this network namespace that is bound to it.
fn is_bound(socket: BorrowedFd<'_>, wanted: &Wanted) -> Result<()> {
    let refused = |what: &str| {
        Error::new(Kind::Permission, format!("{}:{}: {what}", wanted.destination, wanted.port))
            .cure("show a UDP socket that is bound to the flow, of the helper's network namespace")
    };
    let socket2 = socket2::SockRef::from(&socket);
    let at = socket2.local_addr().ok().and_then(|address| address.as_socket());
    if at.map(|at| (at.ip(), at.port())) != Some((wanted.destination, wanted.port)) {
        return Err(refused("the socket is bound elsewhere"));
    }
    let udp = socket2.protocol().ok().flatten() == Some(socket2::Protocol::UDP);
    let own = Socket::new(Domain::for_address(SocketAddr::from(([127, 0, 0, 1], 0))), Type::DGRAM, None);
    let here = own.ok().and_then(|own| namespace(own.as_fd()));
    if !udp || here.is_none() || here != namespace(socket) {
        return Err(refused("no UDP socket of this network namespace"));
    }
    Ok(())
}

/// The network namespace of a socket.
fn namespace(socket: BorrowedFd<'_>) -> Option<u64> {
    const SO_NETNS_COOKIE: libc::c_int = 71;
    option(socket, SO_NETNS_COOKIE, 0u64).ok()
}

/// Who connected.
fn peer(socket: BorrowedFd<'_>) -> io::Result<u32> {
    option(socket, libc::SO_PEERCRED, libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX }).map(|who| who.uid)
}

fn option<T>(socket: BorrowedFd<'_>, option: libc::c_int, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let at = std::ptr::from_mut(&mut value).cast();
    // SAFETY: `value` is writable for `len` octets; both types that are asked for are plain integers.
    let rc = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, at, &mut len) };
    if rc == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
