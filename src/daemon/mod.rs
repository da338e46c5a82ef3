//! The ingest daemon: many receivers in one process, each followed, retried and switched by itself, all of them shown and
//! steered over HTTP.
//!
//! ```text
//! config file --\                               /-- API, page, metrics
//! SIGHUP -------- supervisor -- receivers -- [`Control`]
//! API, NMOS ----/   one thread   a session each \-- NMOS node
//! ```
//!
//! What runs lies behind [`Control`]: whoever shows or steers receivers knows nothing of pipelines, sinks or the
//! configuration, and whoever runs them knows nothing of HTTP.
//!
//! [`config`] says what is to be received; a [`Daemon`] has a thread that supervises, and one for each receiver; an [`Opener`] opens
//! receivers with their sinks (the program does it as `gdmedia play` does); what happens is written to a board that
//! [`Control`] reads, so that nobody who asks waits for a receiver.
//!
//! Built with the feature `daemon`.

pub mod api;
mod board;
pub mod config;
mod control;
mod life;
pub mod nmos;
mod notify;
mod resume;
mod session;
mod source;
mod supervisor;
mod unit;

pub use crate::unix::rights::{is_root, none as give_up_capabilities};
pub use board::Say;
pub use notify::Notifier;
pub use source::text as sdp_text;
pub use supervisor::{Daemon, Options};

pub use control::{
    Action, Connection, Control, Event, EventKind, GpuMemory, Hop, Overview, Port, Receiver, Refusal, Reloaded, Reply,
    Side, SinkState, State, reply,
};
pub use session::{Begun, Look, Opener, Said, Session, Shown, Switched};
