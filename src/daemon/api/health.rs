//! For those who ask whether it runs: a service manager, a load balancer, Kubernetes. No token is needed, and no names are told.

use super::super::control::{Receiver, State as Doing};
use super::answer;
use super::routes::Api;
use crate::health::{Domain, Health};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// The process answers.
pub(super) async fn process(State(api): State<Api>) -> Response {
    answer(&api, true)
}

/// The receive loops move.
pub(super) async fn alive(State(api): State<Api>) -> Response {
    answer(&api, api.control.overview().alive)
}

/// The configuration is in force, and each receiver has been begun once; whether anything is received does not count.
pub(super) async fn ready(State(api): State<Api>) -> Response {
    let overview = api.control.overview();
    answer(&api, overview.ready && overview.alive)
}

fn answer(api: &Api, good: bool) -> Response {
    let (overview, receivers) = (api.control.overview(), api.control.receivers());
    let states: serde_json::Map<String, Value> =
        Doing::ALL.iter().map(|state| (state.name().into(), count(&receivers, *state).into())).collect();
    let value = json!({
        "status": if good { "ok" } else { "unavailable" }, "version": overview.version, "alive": overview.alive,
        "ready": overview.ready, "receivers": states, "health": worst(&receivers),
    });
    answer::json(if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &value)
}

fn count(receivers: &[Arc<Receiver>], state: Doing) -> usize {
    receivers.iter().filter(|receiver| receiver.state == state).count()
}

/// The worst word of all receivers, by domain.
pub(super) fn worst(receivers: &[Arc<Receiver>]) -> Value {
    let all = [Domain::Overall, Domain::Link, Domain::Connection, Domain::ExternalSynchronization, Domain::Stream];
    let one = |domain: Domain| {
        let healths = receivers.iter().filter_map(|receiver| Some(receiver.health.as_ref()?.of(domain).health));
        // Nothing receives: nothing is said.
        let worst = healths.max().unwrap_or(Health::Neutral);
        (json!(domain).as_str().unwrap_or_default().to_owned(), Value::from(domain.word(worst)))
    };
    Value::Object(all.into_iter().map(one).collect())
}
