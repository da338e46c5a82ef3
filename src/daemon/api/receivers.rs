//! What receivers are, and what they are told.

use super::super::control::{Action, Receiver};
use super::answer::{self, Id, Problem};
use super::guard::given;
use super::routes::Api;
use super::tokens::May;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// The daemon, and where everything is.
pub(super) async fn overview(State(api): State<Api>) -> Response {
    let mut value = json!(api.control.overview());
    let receivers = api.control.receivers();
    let ids: Vec<&str> = receivers.iter().map(|receiver| receiver.id.as_str()).collect();
    if let Value::Object(object) = &mut value {
        object.insert("receivers".into(), json!(ids));
        object.insert("health".into(), super::health::worst(&receivers));
        object.insert(
            "links".into(),
            json!({ "receivers": "/api/v1/receivers", "events": "/api/v1/events", "openapi": "/api/v1/openapi.json",
                "metrics": "/metrics", "ready": "/readyz", "documentation": "/docs", "page": "/" }),
        );
    }
    answer::json(StatusCode::OK, &value)
}

/// What whoever asks may do.
pub(super) async fn access(State(api): State<Api>, headers: HeaderMap) -> Response {
    let (needed, may) = api.guard.may(given(&headers));
    let scopes: &[&str] = match may {
        May::Nothing => &[],
        May::Read => &["read"],
        May::Control => &["read", "control"],
    };
    answer::json(StatusCode::OK, &json!({ "token_needed": needed, "scopes": scopes }))
}

/// A receiver as the API shows it.
pub(super) fn shown(receiver: &Receiver) -> Value {
    let mut value = json!(receiver);
    if let Value::Object(object) = &mut value {
        object.insert("health".into(), json!(receiver.health));
        object.insert("preview".into(), json!(receiver.preview.as_ref().map(crate::preview::Source::state)));
    }
    value
}

pub(super) async fn list(State(api): State<Api>) -> Response {
    let all: Vec<Value> = api.control.receivers().iter().map(|receiver| shown(receiver)).collect();
    answer::json(StatusCode::OK, &json!({ "receivers": all }))
}

pub(super) fn find(api: &Api, id: &str) -> Result<Arc<Receiver>, Problem> {
    api.control.receiver(id).ok_or_else(|| Problem::no_receiver(id))
}

pub(super) async fn one(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    Ok(answer::json(StatusCode::OK, &shown(&*find(&api, &id)?)))
}

pub(super) async fn sdp(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    let receiver = find(&api, &id)?;
    let Some(sdp) = &receiver.sdp else {
        let error = format!("the receiver {id:?} has no SDP yet");
        return Err(Problem::new(StatusCode::NOT_FOUND, error, format!("PUT one to /api/v1/receivers/{id}/sdp")));
    };
    Ok(([(header::CONTENT_TYPE, "application/sdp")], sdp.to_string()).into_response())
}

pub(super) async fn switch(State(api): State<Api>, Id(id): Id, request: Request) -> Result<Response, Problem> {
    find(&api, &id)?;
    let kind =
        request.headers().get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?").to_ascii_lowercase());
    let kind = kind.as_deref().map(|kind| kind.split(';').next().unwrap_or_default().trim());
    if let Some(kind) = kind.filter(|kind| !matches!(*kind, "application/sdp" | "text/plain")) {
        let error = format!("{kind:?} is no SDP");
        let cure = "send the SDP itself as the body, with `Content-Type: application/sdp`";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error, cure));
    }
    let policy = api.guard.policy();
    let body = answer::body(request, policy.limits.body, policy.patience()).await?;
    let bad =
        |error: &str| Problem::new(StatusCode::BAD_REQUEST, error, "send the text of an SDP (RFC 8866) as the body");
    let sdp = String::from_utf8(body.into()).map_err(|_| bad("the body is not UTF-8"))?;
    if sdp.trim().is_empty() {
        return Err(bad("the body is empty"));
    }
    act(&api, &id, Action::Switch { sdp }).await
}

pub(super) async fn follow(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    act(&api, &id, Action::Follow).await
}

pub(super) async fn start(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    act(&api, &id, Action::Start).await
}

pub(super) async fn stop(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    act(&api, &id, Action::Stop).await
}

/// The answer is the receiver as it is then.
async fn act(api: &Api, id: &str, action: Action) -> Result<Response, Problem> {
    find(api, id)?;
    answer::replied(api.control.act(id, action), id).await?;
    Ok(answer::json(StatusCode::OK, &shown(&*find(api, id)?)))
}

pub(super) async fn reload(State(api): State<Api>) -> Result<Response, Problem> {
    let done = answer::replied(api.control.reload(), "").await?;
    Ok(answer::json(StatusCode::OK, &done))
}

/// Every counter there is.
pub(super) async fn stats(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    let receiver = find(&api, &id)?;
    let report = receiver.report.as_deref();
    let latency: serde_json::Map<String, Value> = receiver
        .latency
        .iter()
        .map(|hop| {
            let quantiles: Vec<Value> =
                hop.quantiles.iter().map(|(q, s)| json!({ "quantile": q, "seconds": s })).collect();
            (hop.name.to_owned(), json!({ "count": hop.count, "sum_seconds": hop.sum, "quantiles": quantiles }))
        })
        .collect();
    let legs = report.map(|report| {
        let states = receiver.health.as_ref().map(|health| health.legs.as_slice()).unwrap_or_default();
        let one = |(n, leg): (usize, &crate::stats::LegCounters)| {
            let mut value = json!(leg);
            value["leg"] = n.into();
            value["state"] = json!(states.get(n));
            value
        };
        report.legs.iter().enumerate().map(one).collect::<Vec<_>>()
    });
    let value = json!({
        "id": receiver.id, "state": receiver.state, "restarts": receiver.restarts, "switches": receiver.switches,
        "receiver": report.map(|report| report.rx), "receivers": report.map(|report| &report.receivers),
        "packets": report.map(|report| report.packets), "frames": report.map(|report| report.frames),
        "legs": legs, "compared": report.and_then(|report| report.compared), "busy": report.map(|report| report.busy),
        "ptp": receiver.ptp, "cards": receiver.cards, "gpu_memory": receiver.gpu_memory,
        "remarks": report.map(|report| &report.remarks), "latency": latency, "timing": receiver.timing,
        "sinks": receiver.sinks,
    });
    Ok(answer::json(StatusCode::OK, &value))
}
