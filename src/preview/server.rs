//! The HTTP server: one thread, at one address.

use super::hosts::{Hosts, guard};
use super::patient::{Door, PATIENCE};
use crate::error::{Error, Kind, Result};
use crate::unix::{priority, rights};
use axum::{Router, middleware};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// Connections at once.
const CONNECTIONS: usize = 128;

/// A server; ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `router` at `address` (port 0: any free one) to whoever has an allowed name for it.
    ///
    /// # Errors
    /// The address is in use, is none of this machine's ([`Kind::Unavailable`]), or its port is reserved
    /// ([`Kind::Permission`]); the operating system gives no thread.
    pub fn open(address: SocketAddr, router: Router, hosts: Hosts) -> Result<Server> {
        let opened = TcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        });
        let (address, listener) = opened.map_err(|error| refusal(address, error))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| {
            Error::new(Kind::Unavailable, "no resources for an HTTP server")
                .because(error)
                .cure("raise the limit of open files (ulimit -n)")
        })?;
        let (stop, stopped) = oneshot::channel();
        let router = router.layer(middleware::from_fn_with_state(hosts, guard));
        let serve = move || {
            priority::lower();
            rights::none();
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                let serve = axum::serve(Door::new(listener, Arc::new(Semaphore::new(CONNECTIONS)), PATIENCE), router);
                tokio::select! {
                    _ = serve => {}
                    _ = stopped => {}
                }
            });
            // Connections that are open end here, whatever they wait for.
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let thread = std::thread::Builder::new().name("preview-http".into()).spawn(serve).map_err(|error| {
            Error::new(Kind::Unavailable, "no thread for the HTTP server")
                .because(error)
                .cure("raise the limit of processes (ulimit -u)")
        })?;
        Ok(Server { address, stop: Some(stop), thread: Some(thread) })
    }
    /// Where it is; with the port that was free.
    pub const fn address(&self) -> SocketAddr {
        self.address
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

fn refusal(address: SocketAddr, error: io::Error) -> Error {
    let any = SocketAddr::new(address.ip(), 0);
    let (kind, what, cure) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            Kind::Unavailable,
            format!("TCP port {} on {} is in use", address.port(), address.ip()),
            format!("choose another port, or any free one: --preview {any}; `ss -ltnp` shows who has it"),
        ),
        io::ErrorKind::AddrNotAvailable => (
            Kind::Unavailable,
            format!("{} is no address of this machine", address.ip()),
            format!("take one that `ip address` lists, or all of them: --preview 0.0.0.0:{}", address.port()),
        ),
        io::ErrorKind::PermissionDenied => (
            Kind::Permission,
            format!("TCP port {} is reserved", address.port()),
            format!("choose a port from 1024 on, such as --preview {}:8110", address.ip()),
        ),
        _ => (Kind::Unavailable, format!("nothing can be served at {address}"), "choose another address".into()),
    };
    Error::new(kind, what).because(error).cure(cure)
}
