//! Connections: listening, TLS, time limits. One thread for all of them, of low priority.

use super::guard::{Guard, Policy};
use super::settings::Settings;
use super::{Control, routes};
use crate::daemon::nmos::Place;
use crate::error::{Error, Kind, Result};
use crate::preview::patient::{Door, Patient};
use crate::unix::priority;
use axum::Router;
use axum::body::Body;
use axum::serve::Listener as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tower_service::Service as _;

/// The API, listening; ends when it is dropped, and every connection with it.
#[derive(Debug)]
pub struct Server {
    guard: Guard,
    /// Addresses as they were asked for, and as they are.
    listening: Mutex<Vec<(SocketAddr, SocketAddr)>>,
    secure: std::sync::atomic::AtomicBool,
    doors: mpsc::UnboundedSender<Doors>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Listens at these as well, and at those no longer.
#[derive(Debug, Default)]
struct Doors {
    open: Vec<(SocketAddr, TcpListener)>,
    close: Vec<SocketAddr>,
}

/// Certificates are looked at so often.
const RENEW: Duration = Duration::from_secs(5);

impl Server {
    /// Listens as `settings` say.
    ///
    /// # Errors
    /// As of [`Settings::check`]; an address is in use, is none of this machine's ([`Kind::Unavailable`]) or has a port that
    /// is reserved ([`Kind::Permission`]); certificate, key or tokens cannot be read.
    pub fn open(control: Arc<dyn Control>, settings: &Settings) -> Result<Server> {
        let guard = Guard::new(settings)?;
        let opened = bind(&settings.listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| {
            Error::new(Kind::Unavailable, "no resources for the API")
                .because(error)
                .cure("raise the limit of open files (ulimit -n)")
        })?;
        let listening = opened.iter().map(|(wanted, _, is)| (*wanted, *is)).collect();
        let (doors, orders) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let router = routes::router(control, guard.clone());
        let room = Arc::new(Semaphore::new(settings.limits.connections));
        let serving = Serving { guard: guard.clone(), router, room, tasks: HashMap::new() };
        let first = Doors { open: opened.into_iter().map(|(wanted, door, _)| (wanted, door)).collect(), close: vec![] };
        let serve = move || {
            priority::lower();
            runtime.block_on(async {
                tokio::select! {
                    () = serving.run(first, orders) => {}
                    _ = stopped => {}
                }
            });
            // Connections that are open end here, whatever they wait for.
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let thread = std::thread::Builder::new().name("api".into()).spawn(serve).map_err(|error| {
            Error::new(Kind::Unavailable, "no thread for the API")
                .because(error)
                .cure("raise the limit of processes (ulimit -u)")
        })?;
        Ok(Server {
            guard,
            listening: Mutex::new(listening),
            secure: settings.tls.is_some().into(),
            doors,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where it listens, with the ports that were free.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listening().iter().map(|(_, is)| *is).collect()
    }
    /// The same as addresses of its page.
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.secure.load(Relaxed) { "https" } else { "http" };
        self.addresses().into_iter().map(|address| format!("{scheme}://{address}/")).collect()
    }
    /// Where an NMOS node that is served here is.
    pub fn place(&self) -> Place {
        Place {
            addresses: self.addresses(),
            secure: self.secure.load(Relaxed),
            tokens: self.guard.may(None).0,
            ptp4l: Vec::new(),
        }
    }
    /// Serves an NMOS node below `/x-nmos`; `registered` says whether a registry has it.
    pub fn mount(&self, node: gdmedia_nmos::Node, registered: Arc<dyn Fn() -> bool + Send + Sync>) {
        self.guard.nmos.put(node, registered);
    }
    fn listening(&self) -> std::sync::MutexGuard<'_, Vec<(SocketAddr, SocketAddr)>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes other settings, and reads their files again. Connections stay; how many there may be at once is as when it was
    /// opened. May be called while a request waits for it.
    ///
    /// # Errors
    /// As of [`Server::open`]; then all is as before.
    pub fn reload(&self, settings: &Settings) -> Result<()> {
        let policy = Policy::read(settings)?;
        let mut listening = self.listening();
        let new: Vec<SocketAddr> =
            settings.listen.iter().copied().filter(|a| !listening.iter().any(|(wanted, _)| wanted == a)).collect();
        let opened = bind(&new)?;
        let close: Vec<SocketAddr> =
            listening.iter().map(|(wanted, _)| *wanted).filter(|a| !settings.listen.contains(a)).collect();
        listening.retain(|(wanted, _)| !close.contains(wanted));
        listening.extend(opened.iter().map(|(wanted, _, is)| (*wanted, *is)));
        self.secure.store(settings.tls.is_some(), Relaxed);
        // Before anybody comes in by a new door.
        self.guard.set(policy);
        let open = opened.into_iter().map(|(wanted, door, _)| (wanted, door)).collect();
        // The thread ends with this server alone.
        let _ = self.doors.send(Doors { open, close });
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Serving {
    guard: Guard,
    router: Router,
    room: Arc<Semaphore>,
    tasks: HashMap<SocketAddr, tokio::task::JoinHandle<()>>,
}

impl Serving {
    async fn run(mut self, first: Doors, mut orders: mpsc::UnboundedReceiver<Doors>) {
        self.change(first);
        let mut renew = tokio::time::interval(RENEW);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(doors) => self.change(doors),
                    None => return,
                },
                _ = renew.tick() => self.guard.renew(),
            }
        }
    }

    fn change(&mut self, doors: Doors) {
        for wanted in doors.close {
            if let Some(task) = self.tasks.remove(&wanted) {
                task.abort();
            }
        }
        for (wanted, listener) in doors.open {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { continue };
            let door = Door::new(listener, self.room.clone());
            let task = tokio::spawn(accept(door, self.guard.clone(), self.router.clone()));
            self.tasks.insert(wanted, task);
        }
    }
}

async fn accept(mut door: Door, guard: Guard, router: Router) {
    loop {
        let (io, peer) = door.accept().await;
        let policy = guard.policy();
        let limits = &policy.limits;
        let of_peer = guard.peers.connect(peer.ip(), Instant::now(), limits.burst, limits.connections_per_peer);
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
    match &policy.tls {
        None => speak(io, peer, policy, router).await,
        Some(tls) => {
            if let Ok(Ok(io)) = tokio::time::timeout(policy.patience(), tls.acceptor().accept(io)).await {
                speak(io, peer, policy, router).await;
            }
        }
    }
}

async fn speak(io: impl AsyncRead + AsyncWrite + Unpin, peer: SocketAddr, policy: &Policy, router: Router) {
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer);
        let mut router = router.clone();
        // A router is always ready.
        async move { router.call(request).await }
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

type Opened = Vec<(SocketAddr, TcpListener, SocketAddr)>;

fn bind(addresses: &[SocketAddr]) -> Result<Opened> {
    let one = |address: &SocketAddr| -> io::Result<_> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let is = listener.local_addr()?;
        Ok((*address, listener, is))
    };
    addresses.iter().map(|address| one(address).map_err(|error| refusal(*address, error))).collect()
}

fn refusal(address: SocketAddr, error: io::Error) -> Error {
    let (ip, port) = (address.ip(), address.port());
    let (kind, what, cure) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            Kind::Unavailable,
            format!("the API cannot listen at {address}: the TCP port is in use"),
            "give listen in [api] another port; `ss -ltnp` shows who has this one".into(),
        ),
        io::ErrorKind::AddrNotAvailable => (
            Kind::Unavailable,
            format!("the API cannot listen at {address}: {ip} is no address of this machine"),
            "give listen in [api] one that `ip address` lists".into(),
        ),
        io::ErrorKind::PermissionDenied => (
            Kind::Permission,
            format!("the API cannot listen at {address}: port {port} is reserved"),
            format!("give listen in [api] a port from 1024 on, such as {}", SocketAddr::new(ip, super::PORT)),
        ),
        _ => (
            Kind::Unavailable,
            format!("the API cannot listen at {address}"),
            "give listen in [api] another address".into(),
        ),
    };
    Error::new(kind, what).because(error).cure(cure)
}
