//! The API of the daemon: what it shows and how it is steered, over HTTP.
//!
//! ```text
//! [`Control`] <-- routes <-- guard <-- connections <-- addresses
//!                 api, page   names, tokens, rates  TLS, time limits
//!                 metrics
//! ```
//!
//! A [`Server`] listens where [`Settings`] say, on a thread of its own; [`router`] is the same without connections, for whoever
//! has a server already. Nothing in a request becomes the name of a file or a command: receivers are named by their ids, and
//! all that can be changed is what [`Control`] has a call for.
//!
//! What is asked for often is cheap: snapshots are read, never made, and a thumbnail is encoded once a second for all who see
//! it. Every path is in `openapi.json`, which the server serves.

mod answer;
mod connection;
mod events;
mod guard;
mod health;
mod metrics;
mod nmos;
mod openapi;
mod pages;
mod peers;
mod preview;
mod proxies;
mod receivers;
mod routes;
mod server;
mod settings;
mod tls;
mod tokens;

pub use server::Server;
pub use settings::{Limits, Listen, PORT, Scope, Settings, Tls, Token};

use self::guard::Guard;
use super::Control;
use crate::error::Result;
use axum::Router;
use std::sync::Arc;

/// All paths, behind names, tokens and rates of `settings`; addresses and TLS in these are not looked at. Who asks is told by
/// the request's extension [`std::net::SocketAddr`]; without it all are one peer.
///
/// # Errors
/// As of [`Settings::check`]; files of tokens cannot be read.
pub fn router(control: Arc<dyn Control>, settings: &Settings) -> Result<Router> {
    settings.check()?;
    Ok(routes::router(control, Guard::new(settings)?))
}

/// Every path and method that is served: `(method, path)`, as in `openapi.json`.
#[doc(hidden)]
pub fn table() -> Vec<(&'static str, &'static str)> {
    routes::table().into_iter().map(|route| (route.method, route.path)).collect()
}
