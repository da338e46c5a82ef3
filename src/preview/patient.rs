//! Connections that are not waited for for ever: one on which no octet moves is cut off, and few octets wait in any.

use super::routes;
use axum::serve::Listener;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// A connection on which nothing moves for so long is cut off. Streams to viewers move at least every [`routes::REPEAT`].
const PATIENCE: Duration = Duration::from_secs(15);
const _: () = assert!(PATIENCE.as_secs() > 2 * routes::REPEAT.as_secs());
/// Octets that may wait in the kernel for a viewer; it takes twice as many.
const WAITING: usize = 256 << 10;

/// Takes connections, so many at once.
pub struct Door {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Door {
    /// Doors that share `room` have so many connections together.
    pub fn new(listener: TcpListener, room: Arc<Semaphore>) -> Self {
        Door { listener, room }
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
                    return (Patient { stream, end: Box::pin(tokio::time::sleep(PATIENCE)), _room: room }, from);
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
    _room: OwnedSemaphorePermit,
}

impl Patient {
    /// What became of a read or a write: what moves starts the time anew, what waits ends with it.
    fn watch<T>(&mut self, cx: &mut Context<'_>, moved: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.end.as_mut().reset(Instant::now() + PATIENCE);
        } else if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        moved
    }
}

impl AsyncRead for Patient {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let moved = Pin::new(&mut me.stream).poll_read(cx, buf);
        me.watch(cx, moved)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let moved = Pin::new(&mut me.stream).poll_write(cx, buf);
        me.watch(cx, moved)
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let moved = Pin::new(&mut me.stream).poll_write_vectored(cx, bufs);
        me.watch(cx, moved)
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
