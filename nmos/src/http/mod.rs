//! The HTTP side: paths with and without a slash at the end, CORS, and errors as JSON, on every answer.

mod connection_api;
mod node_api;

use crate::error::Refusal;
use crate::node::Node;
use crate::patch;
use crate::resources::{CONNECTION_VERSION, NODE_VERSION};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use serde_json::{Value, json};
use uuid::Uuid;

/// Largest body of a PATCH, in octets: an SDP, escaped, and what is around it.
pub const MAX_BODY: usize = 512 << 10;
/// Largest body of a bulk request.
pub const MAX_BULK_BODY: usize = 8 << 20;

/// Everything below `/x-nmos`. TLS, tokens, limits of connections and time are put around it by who serves it; an answer
/// that those give themselves needs the CORS headers and the JSON body too: [`answer`].
pub fn router(node: Node) -> Router {
    Router::new()
        .route("/x-nmos", any(serve))
        .route("/x-nmos/", any(serve))
        .route("/x-nmos/{*path}", any(serve))
        .with_state(node)
}

/// The same with `/`, and 404 as NMOS has it everywhere else: for a server that has nothing but this.
pub fn standalone(node: Node) -> Router {
    Router::new().fallback(serve).with_state(node)
}

/// What is at a path.
enum Found {
    /// Something to read.
    Document(Value),
    /// `/receivers/{id}/target`, which IS-04 v1.3 allows to be absent.
    Target,
    /// `/staged` of a receiver.
    Staged(Uuid),
    /// `/bulk/senders` or `/bulk/receivers`.
    Bulk { senders: bool },
}

impl Found {
    const fn allow(&self) -> &'static str {
        match self {
            Found::Document(_) => "GET, HEAD, OPTIONS",
            Found::Target => "PUT, OPTIONS",
            Found::Staged(_) => "GET, HEAD, PATCH, OPTIONS",
            Found::Bulk { .. } => "POST, OPTIONS",
        }
    }
}

async fn serve(State(node): State<Node>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let asked = parts.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let path = parts.uri.path();
    let Some(found) = segments(path).and_then(|segments| find(&node, &segments)) else {
        let refusal = Refusal::new(404, format!("there is nothing at {}", patch::clip(path)));
        return finish(refuse(&refusal), "GET, HEAD, OPTIONS", asked);
    };
    let allow = found.allow();
    let response = match (&parts.method, found) {
        (&Method::OPTIONS, _) => json_answer(StatusCode::OK, &json!({})),
        (&Method::GET | &Method::HEAD, Found::Document(document)) => json_answer(StatusCode::OK, &document),
        (&Method::GET | &Method::HEAD, Found::Staged(id)) => {
            match node.connection(id, crate::connection::Connection::staged_document) {
                Some(document) => json_answer(StatusCode::OK, &document),
                None => refuse(&Refusal::new(404, format!("there is no receiver {id}"))),
            }
        }
        (&Method::PATCH, Found::Staged(id)) => change(&node, id, body, &parts.headers).await,
        (&Method::POST, Found::Bulk { senders }) => bulk(&node, senders, body, &parts.headers).await,
        (&Method::PUT, Found::Target) => {
            refuse(&Refusal::new(501, "this node is connected by IS-05; /target is deprecated since IS-04 v1.2"))
        }
        (method, _) => {
            let what = format!("{} is not allowed here; allowed: {allow}", patch::clip(method.as_str()));
            refuse(&Refusal::new(405, what))
        }
    };
    finish(response, allow, asked)
}

/// The path in parts, without one slash at its end; `None` where it has empty parts or far too many.
fn segments(path: &str) -> Option<Vec<&str>> {
    let path = path.strip_prefix('/')?;
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.is_empty() {
        return Some(vec![]);
    }
    let parts: Vec<&str> = path.split('/').take(16).collect();
    parts.iter().all(|part| !part.is_empty()).then_some(parts)
}

fn find(node: &Node, segments: &[&str]) -> Option<Found> {
    match segments {
        [] => Some(index(&["x-nmos/"])),
        ["x-nmos"] => Some(index(&["connection/", "node/"])),
        ["x-nmos", "node"] => Some(Found::Document(json!([format!("{NODE_VERSION}/")]))),
        ["x-nmos", "node", version, rest @ ..] if *version == NODE_VERSION => node_api::find(node, rest),
        ["x-nmos", "connection"] => Some(Found::Document(json!([format!("{CONNECTION_VERSION}/")]))),
        ["x-nmos", "connection", version, rest @ ..] if *version == CONNECTION_VERSION => {
            connection_api::find(node, rest)
        }
        _ => None,
    }
}

fn index(children: &[&str]) -> Found {
    Found::Document(json!(children))
}

/// An id as a path has it: lower case, hyphens.
fn id(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text).ok().filter(|id| id.to_string() == text)
}

async fn change(node: &Node, id: Uuid, body: Body, headers: &HeaderMap) -> Response {
    match read(body, headers, MAX_BODY).await {
        Err(refusal) => refuse(&refusal),
        Ok(body) => match node.patch(id, body).await {
            Ok((code, document)) => json_answer(StatusCode::from_u16(code).unwrap_or_default(), &document),
            Err(refusal) => refuse(&refusal),
        },
    }
}

async fn bulk(node: &Node, senders: bool, body: Body, headers: &HeaderMap) -> Response {
    match read(body, headers, MAX_BULK_BODY).await {
        Err(refusal) => refuse(&refusal),
        Ok(body) => match node.bulk(body, senders).await {
            Ok(results) => json_answer(StatusCode::OK, &results),
            Err(refusal) => refuse(&refusal),
        },
    }
}

async fn read(body: Body, headers: &HeaderMap, limit: usize) -> Result<Value, Refusal> {
    let too_long = || Refusal::new(413, format!("the body is longer than {limit} octets"));
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    if declared.is_some_and(|length: u64| length > limit as u64) {
        return Err(too_long());
    }
    let octets = to_bytes(body, limit).await.map_err(|error| {
        // The kind of this error is in a crate that is not one of ours.
        let text = error.to_string();
        if text.contains("length limit") { too_long() } else { Refusal::bad(format!("the body broke off: {text}")) }
    })?;
    patch::json(&octets)
}

fn refuse(refusal: &Refusal) -> Response {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_answer(code, &refusal.body())
}

/// An error as NMOS wants it, for layers around [`router`] that refuse by themselves.
pub fn answer(code: u16, error: &str) -> Response {
    finish(refuse(&Refusal::new(code, error)), "GET, HEAD, OPTIONS", None)
}

fn json_answer(code: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = code;
    // No charset: JSON has but one, and the suite of AMWA warns of it.
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What every answer has (IS-04 and IS-05, "APIs: Server Side Implementation Notes").
fn finish(mut response: Response, allow: &'static str, asked: Option<&HeaderValue>) -> Response {
    let fixed = HeaderValue::from_static;
    let mut set = |name: HeaderName, value: HeaderValue| response.headers_mut().insert(name, value);
    set(header::ACCESS_CONTROL_ALLOW_ORIGIN, fixed("*"));
    set(header::ACCESS_CONTROL_ALLOW_METHODS, fixed("GET, PUT, POST, PATCH, HEAD, OPTIONS, DELETE"));
    set(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        asked.cloned().unwrap_or_else(|| fixed("Content-Type, Accept, Authorization")),
    );
    set(header::ACCESS_CONTROL_MAX_AGE, fixed("3600"));
    set(header::CACHE_CONTROL, fixed("no-cache"));
    set(header::ALLOW, fixed(allow));
    response
}
