//! Who is connected, who holds which frame, and what becomes of those who break the rules. Knows nothing of GPUs.

use super::protocol::{Offer, RELEASE_OCTETS, refusal, released};
use crate::error::Result;
use crate::unix::descriptor;
use crate::unix::listener::Listener;
use serde::Serialize;
use socket2::Socket;
use std::fmt;
use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bounds on what consumers may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Consumers at once.
    pub consumers: usize,
    /// Frames that one consumer may hold.
    pub held: usize,
    /// Different frames that all of them together may hold: these are missing from the pool.
    pub frames: usize,
    /// When all of these are held, whoever holds a frame for longer than this is dropped.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { consumers: 8, held: 3, frames: 6, patience: Duration::from_secs(2) }
    }
}

/// What consumers did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Consumers that are connected now.
    pub connected: u64,
    /// Consumers that were given a hello.
    pub accepted: u64,
    /// Connections that were turned away because there were enough.
    pub refused: u64,
    /// Consumers that were dropped for a message that makes no sense.
    pub misbehaved: u64,
    /// Consumers that were dropped because they kept frames that others waited for.
    pub stalled: u64,
    /// Frames that were given, once for each consumer.
    pub offered: u64,
    /// Frames that were given back by a release; the others came back with the end of their consumer.
    pub released: u64,
    /// Frames that a consumer did not get because it, or all of them, held too many.
    pub skipped: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames to {} consumers, {} skipped", self.offered, self.accepted, self.skipped)?;
        for (count, what) in [
            (self.misbehaved, "dropped for nonsense"),
            (self.stalled, "dropped for holding frames too long"),
            (self.refused, "refused"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// Reads the counts from elsewhere.
#[derive(Clone, Debug, Default)]
pub(super) struct Board(Arc<Mutex<Counts>>);

impl Board {
    pub(super) fn read(&self) -> Counts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn write(&self, counts: Counts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// The exporting side of the socket; `T` keeps a frame from being written again.
#[derive(Debug)]
pub(super) struct Server<T> {
    listener: Listener,
    hello: Vec<u8>,
    passed: Option<OwnedFd>,
    limits: Limits,
    peers: Vec<Peer<T>>,
    counts: Counts,
    board: Board,
}

/// A consumer.
#[derive(Debug)]
struct Peer<T> {
    socket: Socket,
    held: Vec<Held<T>>,
    skipped: u32,
}

#[derive(Debug)]
struct Held<T> {
    index: u32,
    since: Instant,
    _frame: T,
}

/// Why a consumer is no longer served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    Left,
    Misbehaved,
    Stalled,
}

impl<T: Clone> Server<T> {
    /// `passed` goes along with every hello.
    pub(super) fn bind(path: &Path, hello: Vec<u8>, passed: Option<OwnedFd>, limits: Limits) -> Result<Self> {
        let listener = Listener::bind(path, 0o600)?;
        let board = Board::default();
        Ok(Server { listener, hello, passed, limits, peers: Vec::new(), counts: Counts::default(), board })
    }
    pub(super) fn board(&self) -> Board {
        self.board.clone()
    }
    pub(super) fn path(&self) -> &Path {
        self.listener.path()
    }
    pub(super) const fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// Lets consumers in, and takes back what they release. Never waits.
    pub(super) fn serve(&mut self) {
        self.hear();
        // No more in one go than there are places: who connects again and again does not keep the frames waiting.
        for _ in 0..self.limits.consumers {
            let Some(socket) = self.listener.accept() else { break };
            self.admit(socket);
        }
        self.publish();
    }

    /// Gives a frame to every consumer that may have one more.
    pub(super) fn offer(&mut self, frame: &T, offer: &Offer) {
        let index = offer.index;
        if self.is_full() {
            let patience = self.limits.patience;
            self.drop_where(|peer| {
                peer.held.iter().any(|held| held.since.elapsed() > patience).then_some(Gone::Stalled)
            });
        }
        let full = self.is_full();
        let (limits, counts) = (self.limits, &mut self.counts);
        let since = Instant::now();
        self.peers.retain_mut(|peer| {
            // The same frame a second time: its consumer still holds it.
            let again = peer.held.iter().any(|held| held.index == index);
            if full || again || peer.held.len() >= limits.held {
                peer.skip(counts);
                return true;
            }
            let message = Offer { skipped: peer.skipped, ..offer.clone() }.to_octets();
            match descriptor::send(&peer.socket, &message, None) {
                Ok(_) => {
                    peer.held.push(Held { index, since, _frame: frame.clone() });
                    counts.offered += 1;
                    true
                }
                // It does not read.
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    peer.skip(counts);
                    true
                }
                Err(_) => false,
            }
        });
        self.publish();
    }

    /// Tells consumers that no more frames come, and waits until they are done with those that they hold, at most for
    /// `timeout`: memory must not go while they read it.
    pub(super) fn finish(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        self.listener.remove();
        for peer in &self.peers {
            let _ = peer.socket.shutdown(Shutdown::Write);
        }
        loop {
            self.hear();
            if self.peers.iter().all(|peer| peer.held.is_empty()) || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.peers.clear();
        self.publish();
    }

    fn admit(&mut self, socket: Socket) {
        if self.peers.len() >= self.limits.consumers {
            let why = refusal(&format!("{} consumers are connected already", self.peers.len()));
            let _ = descriptor::send(&socket, &why, None);
            self.counts.refused += 1;
            return;
        }
        // A hello that does not go through at once never does: the socket is new, and empty.
        if descriptor::send(&socket, &self.hello, self.passed.as_ref().map(AsFd::as_fd)).is_ok() {
            self.counts.accepted += 1;
            self.peers.push(Peer { socket, held: Vec::with_capacity(self.limits.held), skipped: 0 });
        }
    }

    fn hear(&mut self) {
        let mut back = 0;
        self.drop_where(|peer| peer.hear(&mut back));
        self.counts.released += back;
    }

    /// Their frames go back at once.
    fn drop_where(&mut self, mut why: impl FnMut(&mut Peer<T>) -> Option<Gone>) {
        let (counts, path) = (&mut self.counts, self.listener.path());
        self.peers.retain_mut(|peer| {
            let Some(gone) = why(peer) else { return true };
            counts.misbehaved += u64::from(gone == Gone::Misbehaved);
            counts.stalled += u64::from(gone == Gone::Stalled);
            tracing::info!("{}: a consumer is gone: {gone:?}", path.display());
            false
        });
    }

    /// As many frames as allowed are with consumers.
    fn is_full(&self) -> bool {
        let mut out: Vec<u32> = self.peers.iter().flat_map(|peer| &peer.held).map(|held| held.index).collect();
        out.sort_unstable();
        out.dedup();
        out.len() >= self.limits.frames
    }

    fn publish(&mut self) {
        self.counts.connected = self.peers.len() as u64;
        self.board.write(self.counts);
    }
}

impl<T> Peer<T> {
    fn skip(&mut self, counts: &mut Counts) {
        self.skipped = self.skipped.wrapping_add(1);
        counts.skipped += 1;
    }

    /// Takes its releases; ends, since each gives back a frame that it holds, or is the last.
    fn hear(&mut self, back: &mut u64) -> Option<Gone> {
        loop {
            // One octet more, to see what is too long.
            let mut message = [0; RELEASE_OCTETS + 1];
            match (&self.socket).read(&mut message) {
                Ok(0) => return Some(Gone::Left),
                Ok(len) => {
                    let place = released(&message[..len])
                        .and_then(|index| self.held.iter().position(|held| held.index == index));
                    let Some(place) = place else { return Some(Gone::Misbehaved) };
                    self.held.swap_remove(place);
                    *back += 1;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Some(Gone::Left),
            }
        }
    }
}

#[cfg(test)]
mod tests;
