//! Connections that are not waited for for ever: one on which no octet moves is cut off, and few octets wait in any.

use super::routes;
use axum::serve::Listener;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// A connection on which nothing moves for so long is cut off, while it is the peer's turn. Streams to viewers move at least
/// every [`routes::REPEAT`].
pub const PATIENCE: Duration = Duration::from_secs(15);
const _: () = assert!(PATIENCE.as_secs() > 2 * routes::REPEAT.as_secs());
/// Octets that may wait in the kernel for a viewer; it takes twice as many.
const WAITING: usize = 256 << 10;

/// Takes connections, so many at once.
pub struct Door {
    listener: TcpListener,
    room: Arc<Semaphore>,
    patience: Duration,
}

impl Door {
    /// Doors that share `room` have so many connections together. `patience` is [`PATIENCE`], but in tests.
    pub fn new(listener: TcpListener, room: Arc<Semaphore>, patience: Duration) -> Self {
        Door { listener, room, patience }
    }
}

impl Listener for Door {
    type Io = Patient;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Patient, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => {
                    // One too many is closed at once.
                    let Ok(room) = self.room.clone().try_acquire_owned() else { continue };
                    // Both are for the better; a connection works without.
                    let _ = socket2::SockRef::from(&stream).set_send_buffer_size(WAITING);
                    let _ = stream.set_nodelay(true);
                    let (end, patience) = (Box::pin(tokio::time::sleep(self.patience)), self.patience);
                    return (Patient { stream, end, patience, turn: Turn::default(), _room: room }, from);
                }
                // A connection that went before it was taken, or no descriptor free: the next one may do.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection.
pub struct Patient {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    patience: Duration,
    turn: Turn,
    _room: OwnedSemaphorePermit,
}

impl Patient {
    /// Whose turn it is here, to be told.
    #[cfg(feature = "daemon")]
    pub fn turn(&self) -> Turn {
        self.turn.clone()
    }
    /// What became of a read or a write: what moves starts the time anew, what waits ends with it; a read does not while its
    /// peer waits for us.
    fn watch<T>(&mut self, cx: &mut Context<'_>, moved: Poll<io::Result<T>>, reads: bool) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.end.as_mut().reset(Instant::now() + self.patience);
            return moved;
        }
        while self.end.as_mut().poll(cx).is_ready() {
            if !(reads && self.turn.is_ours()) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.end.as_mut().reset(Instant::now() + self.patience);
        }
        moved
    }
}

/// Whose turn it is on a connection: whoever serves says so. Where nobody does it is always the peer's. All clones are one.
#[derive(Clone, Debug, Default)]
pub struct Turn(Arc<AtomicU8>);

impl Turn {
    /// A request is there, and is not answered yet.
    const OURS: u8 = 2;

    fn is_ours(&self) -> bool {
        self.0.load(Relaxed) == Self::OURS
    }
}

#[cfg(feature = "daemon")]
impl Turn {
    /// Between requests.
    const PEERS: u8 = 0;
    /// The body of a request is expected.
    const BODY: u8 = 1;

    /// A request has come, whose body is still to come where there is one.
    pub fn asked(&self, body: bool) {
        self.0.store(if body { Self::BODY } else { Self::OURS }, Relaxed);
    }
    /// Its body has come, or nobody wants it.
    pub fn has_body(&self) {
        // One that is given up after the answer changes nothing.
        let _ = self.0.compare_exchange(Self::BODY, Self::OURS, Relaxed, Relaxed);
    }
    /// It is answered.
    pub fn answered(&self) {
        self.0.store(Self::PEERS, Relaxed);
    }
}

impl AsyncRead for Patient {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let moved = Pin::new(&mut me.stream).poll_read(cx, buf);
        me.watch(cx, moved, true)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let moved = Pin::new(&mut me.stream).poll_write(cx, buf);
        me.watch(cx, moved, false)
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let moved = Pin::new(&mut me.stream).poll_write_vectored(cx, bufs);
        me.watch(cx, moved, false)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(all(test, feature = "daemon"))]
mod tests {
    use super::*;

    #[test]
    fn it_is_our_turn_from_the_body_to_the_answer() {
        let turn = Turn::default();
        let told = turn.clone();
        assert!(!turn.is_ours(), "nobody has asked");
        told.asked(false);
        assert!(turn.is_ours());
        told.answered();
        assert!(!turn.is_ours());
        told.asked(true);
        assert!(!turn.is_ours(), "its body is to come");
        told.has_body();
        assert!(turn.is_ours());
        told.answered();
        // A body that is given up after the answer.
        told.has_body();
        assert!(!turn.is_ours());
    }
}
