//! Listening. One thread for all connections, of low priority and without capabilities; another looks for certificates.

use super::guard::{Guard, Policy, Renewal};
use super::settings::Settings;
use super::{Control, connection, routes};
use crate::daemon::nmos::Place;
use crate::error::{Error, Kind, Result};
use crate::preview::patient::{Door, PATIENCE};
use crate::unix::{priority, rights};
use axum::Router;
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// The API, listening; ends when it is dropped, and every connection with it.
pub struct Server {
    control: Arc<dyn Control>,
    guard: Guard,
    /// Addresses as they were asked for, and as they are.
    listening: Mutex<Vec<(SocketAddr, SocketAddr)>>,
    secure: std::sync::atomic::AtomicBool,
    doors: mpsc::UnboundedSender<Doors>,
    stop: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    /// Ends the thread that looks for certificates when it is dropped.
    renewing: Option<std::sync::mpsc::Sender<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listening", &self.addresses()).finish_non_exhaustive()
    }
}

/// Listens at these as well, and at those no longer.
#[derive(Debug, Default)]
struct Doors {
    open: Vec<(SocketAddr, TcpListener)>,
    close: Vec<SocketAddr>,
    /// Hears of it when those are closed.
    closed: Option<std::sync::mpsc::Sender<()>>,
}

/// Certificates are looked at so often.
const RENEW: Duration = Duration::from_secs(5);
/// The thread that listens has so long to close a door: it waits for nothing.
const CLOSING: Duration = Duration::from_secs(5);

impl Server {
    /// Listens as `settings` say.
    ///
    /// # Errors
    /// As of [`Settings::check`]; an address is in use, is none of this machine's ([`Kind::Unavailable`]) or has a port that
    /// is reserved ([`Kind::Permission`]); certificate, key or tokens cannot be read.
    pub fn open(control: Arc<dyn Control>, settings: &Settings) -> Result<Server> {
        Server::open_with(control, settings, PATIENCE)
    }
    /// The same; a connection on which nothing moves is cut off after `patience`.
    fn open_with(control: Arc<dyn Control>, settings: &Settings, patience: Duration) -> Result<Server> {
        let guard = Guard::new(settings)?;
        let opened = bind(&settings.listen).map_err(|(address, error)| refusal(address, error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| {
            Error::new(Kind::Unavailable, "no resources for the API")
                .because(error)
                .cure("raise the limit of open files (ulimit -n)")
        })?;
        let listening = opened.iter().map(|(wanted, _, is)| (*wanted, *is)).collect();
        let (doors, orders) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel();
        let router = routes::router(control.clone(), guard.clone());
        let room = Arc::new(Semaphore::new(settings.limits.connections));
        let serving = Serving { guard: guard.clone(), router, room, patience, tasks: HashMap::new() };
        let first = Doors { open: doors_of(opened), ..Doors::default() };
        let told = control.clone();
        let serve = move || {
            priority::lower();
            // Addresses are opened and files are read by others: what comes from the network is handled without rights.
            if let Err(error) = rights::keep(0) {
                told.note(format!("the API keeps the capabilities of the daemon: {error} (capset)"));
            }
            runtime.block_on(async {
                tokio::select! {
                    () = serving.run(first, orders) => {}
                    _ = stopped => {}
                }
            });
            // Connections that are open end here, whatever they wait for.
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let (end, ended) = std::sync::mpsc::channel();
        let (theirs, told) = (guard.clone(), control.clone());
        let mut server = Server {
            control,
            guard,
            listening: Mutex::new(listening),
            secure: settings.tls.is_some().into(),
            doors,
            stop: Some(stop),
            threads: Vec::new(),
            renewing: Some(end),
        };
        server.spawn("api", serve)?;
        server.spawn("api-renew", move || renew(&theirs, told.as_ref(), &ended))?;
        Ok(server)
    }
    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(work).map_err(|error| {
            Error::new(Kind::Unavailable, "no thread for the API")
                .because(error)
                .cure("raise the limit of processes (ulimit -u)")
        })?;
        self.threads.push(thread);
        Ok(())
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
    /// opened. May be called while a request waits for it, and not by one.
    ///
    /// New addresses are listened at before old ones are given up. Where an old one has the port (`127.0.0.1:80` becomes
    /// `0.0.0.0:80`) it is the other way round, and whoever connects in that moment is refused.
    ///
    /// # Errors
    /// As of [`Server::open`]; then all is as before.
    pub fn reload(&self, settings: &Settings) -> Result<()> {
        let policy = Policy::read(settings)?;
        let mut listening = self.listening();
        let new: Vec<SocketAddr> =
            settings.listen.iter().copied().filter(|a| !listening.iter().any(|(wanted, _)| wanted == a)).collect();
        let close: Vec<SocketAddr> =
            listening.iter().map(|(wanted, _)| *wanted).filter(|a| !settings.listen.contains(a)).collect();
        let opened = match bind(&new) {
            Ok(opened) => opened,
            Err((address, error)) => {
                let frees = |of: &(SocketAddr, SocketAddr)| {
                    close.contains(&of.0) && new.iter().any(|address| address.port() == of.1.port())
                };
                let ours: Vec<_> = listening.iter().copied().filter(frees).collect();
                if ours.is_empty() || error.kind() != io::ErrorKind::AddrInUse {
                    return Err(refusal(address, error));
                }
                self.bind_instead(&new, &ours, &mut listening)?
            }
        };
        listening.retain(|(wanted, _)| !close.contains(wanted));
        listening.extend(opened.iter().map(|(wanted, _, is)| (*wanted, *is)));
        self.secure.store(settings.tls.is_some(), Relaxed);
        // Before anybody comes in by a new door.
        self.guard.set(policy);
        // The thread ends with this server alone.
        let _ = self.doors.send(Doors { open: doors_of(opened), close, closed: None });
        Ok(())
    }

    /// Listens at `new` once `ours` are given up; where that is not to be had, at these again.
    fn bind_instead(
        &self,
        new: &[SocketAddr],
        ours: &[(SocketAddr, SocketAddr)],
        listening: &mut Vec<(SocketAddr, SocketAddr)>,
    ) -> Result<Opened> {
        let (told, heard) = std::sync::mpsc::channel();
        let close = ours.iter().map(|(wanted, _)| *wanted).collect();
        let _ = self.doors.send(Doors { close, closed: Some(told), ..Doors::default() });
        // Late or not: binding says whether the port is free.
        let _ = heard.recv_timeout(CLOSING);
        let refused = match bind(new) {
            Ok(opened) => return Ok(opened),
            Err((address, error)) => refusal(address, error),
        };
        for (wanted, is) in ours {
            match bind(&[*is]) {
                Ok(again) => {
                    let open = again.into_iter().map(|(_, door, _)| (*wanted, door)).collect();
                    let _ = self.doors.send(Doors { open, ..Doors::default() });
                }
                // Somebody else was there first.
                Err((_, error)) => {
                    listening.retain(|of| of != &(*wanted, *is));
                    self.control.note(format!("the API does not listen at {is} any more: {error}"));
                }
            }
        }
        Err(refused)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        drop(self.renewing.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Looks for certificates that are written anew, until nobody wants it. It may read what the daemon could read at its start.
fn renew(guard: &Guard, control: &dyn Control, ended: &std::sync::mpsc::Receiver<()>) {
    priority::lower();
    let _ = rights::keep(rights::FILES);
    let mut trouble = None;
    while ended.recv_timeout(RENEW) == Err(RecvTimeoutError::Timeout) {
        match guard.renew() {
            Renewal::None => {}
            Renewal::Taken(until) => {
                trouble = None;
                let until = until.and_then(|until| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(until)));
                let until = until.map(|until| format!(", valid until {}", crate::time::utc(until))).unwrap_or_default();
                control.note(format!("the API has another certificate{until}"));
            }
            Renewal::Refused(why) if trouble.as_ref() != Some(&why) => {
                control.note(format!("the API goes on with the certificate that it has: {why}"));
                trouble = Some(why);
            }
            Renewal::Refused(_) => {}
        }
    }
}

struct Serving {
    guard: Guard,
    router: Router,
    room: Arc<Semaphore>,
    patience: Duration,
    tasks: HashMap<SocketAddr, tokio::task::JoinHandle<()>>,
}

impl Serving {
    async fn run(mut self, first: Doors, mut orders: mpsc::UnboundedReceiver<Doors>) {
        self.change(first).await;
        while let Some(doors) = orders.recv().await {
            self.change(doors).await;
        }
    }

    async fn change(&mut self, doors: Doors) {
        for wanted in doors.close {
            if let Some(task) = self.tasks.remove(&wanted) {
                task.abort();
                // Its port is free from then on.
                let _ = task.await;
            }
        }
        if let Some(closed) = doors.closed {
            // It may have been given up.
            let _ = closed.send(());
        }
        for (wanted, listener) in doors.open {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { continue };
            let door = Door::new(listener, self.room.clone(), self.patience);
            let task = tokio::spawn(connection::accept(door, self.guard.clone(), self.router.clone()));
            self.tasks.insert(wanted, task);
        }
    }
}

type Opened = Vec<(SocketAddr, TcpListener, SocketAddr)>;

fn doors_of(opened: Opened) -> Vec<(SocketAddr, TcpListener)> {
    opened.into_iter().map(|(wanted, door, _)| (wanted, door)).collect()
}

/// Listens at all of them, or says at which one it cannot.
fn bind(addresses: &[SocketAddr]) -> std::result::Result<Opened, (SocketAddr, io::Error)> {
    let one = |address: &SocketAddr| -> io::Result<_> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let is = listener.local_addr()?;
        Ok((*address, listener, is))
    };
    addresses.iter().map(|address| one(address).map_err(|error| (*address, error))).collect()
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

#[cfg(test)]
mod tests;
