//! An NMOS node of receivers: how controllers of a facility find them, see what they can receive, and connect them.
//!
//! ```text
//! controller --HTTP--> http (paths, CORS, errors) --> node (documents, versions, turns) --> connection (IS-05)
//!                                                       |                                     patch, params,
//!                                                       |                                     transport_file (SDP)
//!                                                       +--> Receivers (the program)
//! registry  <--HTTP-- registration (client <- machine <- select <- mDNS)
//! store: what was active, for the next start
//! ```
//!
//! Served: the Node API of IS-04 v1.3, the Connection API of IS-05 v1.1, tags of BCP-002-01 and -02, capabilities of
//! BCP-004-01. A program implements [`Receivers`], makes a [`Node`], serves [`http::router`], and starts
//! [`registration::Registration`]. What is not offered, and what is easily got wrong, is in `docs/nmos.md`.
#![forbid(unsafe_code)]

pub mod caps;
pub mod connection;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
mod node;
pub mod params;
pub mod patch;
mod receivers;
pub mod registration;
mod resources;
mod settings;
mod store;
mod time;
pub mod transport_file;

pub use error::{Error, Refusal};
pub use node::{Counters, Node, Resource};
pub use receivers::{Activation, Format, Receiver, Receivers, Saved, Tags, Transport};
pub use resources::{CONNECTION_VERSION, Kind, NODE_VERSION};
pub use settings::{Asset, Chassis, ClockInfo, Endpoint, Interface, Neighbour, Settings};
pub use store::Store;
pub use time::{Clock, Tai, system_clock};
