//! What is counted and measured, for Prometheus. Names, units and labels are in docs/api.md.
//!
//! Counters count from when a receiver was begun or switched: they go back to zero there, which Prometheus' `rate` and
//! `increase` understand, and never in between. A receiver that is stopped has none.

mod machine;
mod process;
mod receivers;
mod text;

use self::text::{Kind, Text};
use super::routes::Api;
use super::tls::Loaded;
use crate::daemon::control::{Control, Receiver, State as Doing};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

pub(super) async fn serve(State(api): State<Api>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page(&api)).into_response()
}

fn page(api: &Api) -> String {
    let mut text = Text::default();
    let receivers = api.control.receivers();
    daemon(&mut text, api.control.as_ref(), &receivers);
    receivers::write(&mut text, &receivers);
    machine::write(&mut text, &receivers);
    requests(&mut text, api);
    process::write(&mut text);
    text.out
}

fn unix(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn daemon(text: &mut Text, control: &dyn Control, receivers: &[Arc<Receiver>]) {
    let overview = control.overview();
    text.metric("gdmedia_build_info", Kind::Gauge, "The program, always 1.");
    text.count(&[("version", overview.version)], 1);
    text.metric("gdmedia_start_time_seconds", Kind::Gauge, "When the daemon started, seconds since 1970.");
    text.sample(&[], unix(overview.started));
    text.metric(
        "gdmedia_ready",
        Kind::Gauge,
        "1: the configuration is in force and each receiver has been begun once.",
    );
    text.count(&[], overview.ready.into());
    text.metric("gdmedia_alive", Kind::Gauge, "1: the receive loops move.");
    text.count(&[], overview.alive.into());
    text.metric("gdmedia_config_loads_total", Kind::Counter, "Configurations that were taken, the first one included.");
    text.count(&[], overview.generation);
    text.metric(
        "gdmedia_config_refused",
        Kind::Gauge,
        "1: the last configuration was not taken, and the one before is in force.",
    );
    text.count(&[], overview.refused.is_some().into());
    text.metric("gdmedia_receivers", Kind::Gauge, "Receivers of the configuration, by what they do.");
    for state in Doing::ALL {
        let n = receivers.iter().filter(|receiver| receiver.state == state).count();
        text.count(&[("state", state.name())], n as u64);
    }
}

fn requests(text: &mut Text, api: &Api) {
    let counts = &api.guard.counts;
    if let Some(registered) = api.guard.nmos.registered() {
        text.metric("gdmedia_nmos_registered", Kind::Gauge, "1: an NMOS registry has everything that this node has.");
        text.count(&[], registered.into());
    }
    text.metric(
        "gdmedia_api_certificate_expiry_timestamp_seconds",
        Kind::Gauge,
        "When the first certificate of the API's chain is valid no longer, seconds since 1970.",
    );
    if let Some(until) = api.guard.policy().tls.as_ref().and_then(Loaded::until) {
        text.count(&[], until);
    }
    text.metric("gdmedia_api_requests_total", Kind::Counter, "Requests to this API.");
    text.count(&[], counts.requests.load(Relaxed));
    text.metric(
        "gdmedia_api_refused_total",
        Kind::Counter,
        "Requests and connections that were not let in, by reason.",
    );
    for (reason, n) in counts.refused() {
        text.count(&[("reason", reason)], n);
    }
}
