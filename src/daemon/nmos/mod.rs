//! The daemon as an NMOS node: controllers of a facility find its receivers (IS-04) and connect them (IS-05).
//!
//! ```text
//! controller --HTTP--> api --> gdmedia_nmos::Node --> bridge --> Control --> receivers
//!                                  ^                                            |
//! registry <-- Registration ------ +---------- watch (what they are now) <------+
//! ```
//!
//! There is one truth of what a receiver does, that of its thread: it keeps what a controller said with the SDP that came of it, so
//! that both come back together at the next start. The node shows what receivers are, whoever told them so.

mod bridge;
mod machine;
mod seed;
mod settings;
mod takes;
mod transport;
mod watch;

pub use machine::Place;
pub use settings::Settings;
pub use takes::{Takes, check, sets};
pub(super) use transport::legs_of;

use super::Control;
use crate::error::{Error, Kind, Result};
use crate::unix::rights;
use bridge::Bridge;
use gdmedia_nmos::registration::Find;
use gdmedia_nmos::registration::client::Plain;
use gdmedia_nmos::registration::machine::Timing;
use gdmedia_nmos::registration::mdns::Mdns;
use gdmedia_nmos::registration::{Registration, Status};
use gdmedia_nmos::{Clock, Node, system_clock};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What it says of itself.
pub type Say = Box<dyn Fn(String) + Send>;

/// Between two looks at all receivers.
const LOOK: Duration = Duration::from_millis(200);
/// A registry has so long to take the node from its list.
const FAREWELL: Duration = Duration::from_secs(3);

/// A node that runs. It is taken from its registry when it is stopped or dropped.
pub struct Running {
    node: Node,
    state: Arc<Mutex<Status>>,
    stop: Arc<watch::Stop>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    /// Makes the node of the receivers of `control`, and keeps it as they are. It registers when they have all been begun once,
    /// so [`Running::node`] has to be served at once. `place` says where. What its ids are made of is kept in `state`.
    ///
    /// # Errors
    /// Settings that no controller could use; nothing to make ids of; no thread, no UDP port for multicast DNS.
    pub fn start(
        control: Arc<dyn Control>,
        settings: &Settings,
        state: Option<&Path>,
        place: Box<dyn Fn() -> Place + Send>,
        say: Say,
    ) -> Result<Running> {
        // Multicast DNS has a thread of its own, which is to read what anybody sends without rights.
        let registries = std::thread::scope(|scope| {
            let find = scope.spawn(|| {
                rights::none();
                registries(settings)
            });
            find.join().unwrap_or_else(|_| Err(Error::new(Kind::Internal, "looking for registries panicked")))
        })?;
        let (seed, trouble) = seed::of(settings.seed.as_deref(), state, &machine::id(), &machine::host_name())?;
        if let Some(trouble) = trouble {
            say(format!("NMOS: {trouble}"));
        }
        let settings = &Settings { seed: Some(seed), ..settings.clone() };
        let bridge = Arc::new(Bridge::new(control.clone(), settings.wide));
        // Receivers come when they have begun.
        let about = machine::about(settings, &place(), &[]);
        let node = Node::new(about, bridge.clone(), clock()).map_err(|error| refused(&error))?;
        let (state, stop) = (Arc::<Mutex<Status>>::default(), Arc::<watch::Stop>::default());
        let watch = watch::Watch::new(node.clone(), bridge, control, settings.clone(), place, say, state.clone());
        let (theirs, node_of) = (stop.clone(), node.clone());
        let work = move || {
            // Those that it begins talk to registries, and to whoever answers multicast DNS.
            rights::none();
            watch.run(&theirs, registries.map(|find| (node_of, find)));
        };
        let thread = std::thread::Builder::new().name("nmos".into()).spawn(work).map_err(|error| {
            Error::new(Kind::Unavailable, "no thread for the NMOS node")
                .because(error)
                .cure("raise the limit of processes (ulimit -u)")
        })?;
        Ok(Running { node, state, stop, thread: Some(thread) })
    }

    /// The node, to be served.
    pub fn node(&self) -> &Node {
        &self.node
    }
    /// How its registration stands.
    pub fn status(&self) -> Status {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// The same for who asks later.
    pub fn registered(&self) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let state = self.state.clone();
        Arc::new(move || state.lock().unwrap_or_else(PoisonError::into_inner).registered)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            // It ends soon, whatever the registry does.
            let _ = thread.join();
        }
    }
}

/// Where registries are; none where nobody is to look.
fn registries(settings: &Settings) -> Result<Option<Find>> {
    if !settings.registry.is_empty() {
        return Ok(Some(Find::Named(settings.registry.clone())));
    }
    if !settings.discovery {
        return Ok(None);
    }
    let discovery = Mdns::new(&settings.discovery_interfaces).map_err(|error| refused(&error))?;
    Ok(Some(Find::Discovered(Box::new(discovery.with_development(settings.development)))))
}

fn register(node: Node, find: Find, settings: &Settings) -> Result<Registration> {
    let timing = Timing { heartbeat: settings.heartbeat.0, ..Timing::default() };
    Registration::start(node, find, Box::new(Plain::new()), timing).map_err(|error| refused(&error))
}

/// TAI, by the offset that the kernel knows or that there is since 2017.
fn clock() -> Clock {
    Arc::new(|| {
        let offset = crate::ptp::kernel_tai_offset().unwrap_or(crate::ptp::judge::LEAP_SECONDS);
        system_clock(offset.into())()
    })
}

fn refused(error: &gdmedia_nmos::Error) -> Error {
    Error::new(Kind::Usage, format!("NMOS: {error}")).cure(error.cure())
}
