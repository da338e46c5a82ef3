//! A connection: TLS, HTTP, time limits.

use super::guard::{Guard, Policy};
use crate::preview::patient::{Door, Patient, Turn};
use axum::Router;
use axum::body::Body;
use axum::serve::Listener as _;
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service as _;

/// Takes the connections of a door, until it is dropped.
pub(super) async fn accept(mut door: Door, guard: Guard, router: Router) {
    loop {
        let (io, peer) = door.accept().await;
        let policy = guard.policy();
        let limits = &policy.limits;
        // A proxy has those of many, and nobody has said yet whose this one is.
        let most = if policy.proxies.has(peer.ip()) { limits.connections } else { limits.connections_per_peer };
        let of_peer = guard.peers.connect(peer.ip(), Instant::now(), limits.burst, most);
        let Some(of_peer) = of_peer else {
            guard.counts.connections.fetch_add(1, Relaxed);
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            connection(io, peer, &policy, router).await;
            drop(of_peer);
        });
    }
}

async fn connection(io: Patient, peer: SocketAddr, policy: &Policy, router: Router) {
    let turn = io.turn();
    match &policy.tls {
        None => speak(io, turn, peer, policy, router).await,
        Some(tls) => {
            if let Ok(Ok(io)) = tokio::time::timeout(policy.patience(), tls.acceptor().accept(io)).await {
                speak(io, turn, peer, policy, router).await;
            }
        }
    }
}

async fn speak(io: impl AsyncRead + AsyncWrite + Unpin, turn: Turn, peer: SocketAddr, policy: &Policy, router: Router) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        turn.asked(!request.body().is_end_stream());
        let mut request = request.map(|body| Body::new(Awaited { body, turn: turn.clone() }));
        request.extensions_mut().insert(peer);
        let (mut router, turn) = (router.clone(), turn.clone());
        async move {
            // A router is always ready.
            let answer = router.call(request).await;
            turn.answered();
            answer
        }
    });
    // What breaks a connection is its peer's doing.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(policy.patience())
        .max_headers(policy.limits.headers)
        .max_header_size(policy.limits.header)
        .serve_connection(TokioIo::new(io), service)
        .await;
}

/// The body of a request: says when it has come, or is not wanted any more. From then on the peer waits for us.
struct Awaited {
    body: Incoming,
    turn: Turn,
}

impl hyper::body::Body for Awaited {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let me = self.get_mut();
        let frame = ready!(Pin::new(&mut me.body).poll_frame(cx));
        if frame.is_none() || me.body.is_end_stream() {
            me.turn.has_body();
        }
        Poll::Ready(frame)
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.turn.has_body();
    }
}
