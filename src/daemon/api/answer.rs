//! Answers as JSON, refusals among them: `{"error": what is wrong, "cure": what helps}`.

use super::super::control::{Refusal, Reply};
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// Why a request is not answered as it was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub status: StatusCode,
    pub error: String,
    pub cure: String,
    pub retry_after: Option<u64>,
}

impl Problem {
    pub fn new(status: StatusCode, error: impl Into<String>, cure: impl Into<String>) -> Self {
        Problem { status, error: error.into(), cure: cure.into(), retry_after: None }
    }
    pub fn no_receiver(id: &str) -> Self {
        let error = format!("there is no receiver {id:?}");
        Problem::new(StatusCode::NOT_FOUND, error, "GET /api/v1/receivers lists them")
    }
    /// It may be otherwise in a moment.
    pub fn unavailable(error: impl Into<String>) -> Self {
        let cure = "ask again in a moment; GET /api/v1/receivers says how the receivers are";
        Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, error, cure) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = json(self.status, &json!({ "error": self.error, "cure": self.cure }));
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A JSON answer.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => (status, [(header::CONTENT_TYPE, "application/json")], text).into_response(),
        // A map whose keys are no strings; there is none.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A refusal of the daemon, about a receiver or the configuration.
pub(super) fn refused(refusal: Refusal, id: &str) -> Problem {
    let parts = |text: String, otherwise: &str| {
        let (error, cure) = parted(&text);
        (error.to_owned(), if cure.is_empty() { otherwise.to_owned() } else { cure.to_owned() })
    };
    match refusal {
        Refusal::Unknown => Problem::no_receiver(id),
        Refusal::Invalid(text) => {
            let (error, cure) = parts(text, "correct it and send it again; nothing has changed");
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error, cure)
        }
        Refusal::Unavailable(text) => {
            let (error, cure) = parts(text, "GET /api/v1/receivers says how the receivers are; nothing has changed");
            Problem::new(StatusCode::CONFLICT, error, cure)
        }
    }
}

/// What is wrong and what helps: a line each, or the cure in brackets at the end.
fn parted(text: &str) -> (&str, &str) {
    let text = text.trim();
    if let Some((error, cure)) = text.split_once('\n') {
        return (error.trim(), cure.trim().trim_start_matches("cure:").trim());
    }
    let Some(inside) = text.strip_suffix(')') else { return (text, "") };
    // The bracket that belongs to the last one.
    let mut open = 1;
    for (at, c) in inside.char_indices().rev() {
        open = match c {
            ')' => open + 1,
            '(' => open - 1,
            _ => open,
        };
        if open == 0 {
            return (inside[..at].trim(), inside[at + 1..].trim());
        }
    }
    (text, "")
}

/// What the daemon answers later; it has so long.
pub(super) async fn replied<T>(reply: Reply<T>, id: &str) -> Result<T, Problem> {
    match tokio::time::timeout(PATIENCE, reply).await {
        Ok(Ok(answer)) => answer.map_err(|refusal| refused(refusal, id)),
        Ok(Err(_)) => Err(Problem::unavailable("the daemon is ending")),
        Err(_) => Err(Problem::unavailable("the daemon has not done it yet, and may still do it")),
    }
}

const PATIENCE: Duration = Duration::from_secs(30);

/// The body of a request, of at most `most` octets, that has come whole after `patience`.
pub(super) async fn body(request: Request, most: usize, patience: Duration) -> Result<Bytes, Problem> {
    let large = || {
        let error = format!("the body has more than {most} octets");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error, "send less, or raise body in [api.limits]")
    };
    if length(request.headers()).is_some_and(|length| length > most as u64) {
        return Err(large());
    }
    match tokio::time::timeout(patience, axum::body::to_bytes(request.into_body(), most)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if is_limit(&error) => Err(large()),
        Ok(Err(_)) => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            "the body is broken off, or not as its headers say",
            "send it whole, with its Content-Length",
        )),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body has not come within {} s", patience.as_secs()),
            "send it at once",
        )),
    }
}

fn is_limit(error: &axum::Error) -> bool {
    // As `to_bytes` says it; http-body-util has the type, of which nothing else is needed.
    std::error::Error::source(error).is_some_and(|source| source.to_string().contains("length limit"))
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The id of a receiver in a path, as it was written there.
pub(super) struct Id(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Id(id)),
            Err(_) => Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "the path is not UTF-8",
                "ids of receivers have letters, digits, - and _",
            )),
        }
    }
}

/// An answer in words, as the preview gives it, as JSON.
pub(super) async fn in_json(response: Response) -> Response {
    let status = response.status();
    let words =
        response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !words {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, 4096).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut problem = match status {
        StatusCode::SERVICE_UNAVAILABLE => Problem::unavailable(text.trim()),
        _ => Problem::new(status, text.trim(), "/api/v1/openapi.json lists what there is"),
    };
    if problem.error.is_empty() {
        problem.error = status.canonical_reason().unwrap_or("refused").to_ascii_lowercase();
    }
    let mut response = problem.into_response();
    if let Some(allow) = parts.headers.get(header::ALLOW) {
        response.headers_mut().insert(header::ALLOW, allow.clone());
    }
    response
}

/// A body that goes on and on.
pub(super) fn stream(kind: &'static str, parts: impl futures_util::Stream<Item = Bytes> + Send + 'static) -> Response {
    use futures_util::StreamExt as _;
    let parts = parts.map(Ok::<_, std::convert::Infallible>);
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(parts)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cure_is_told_from_what_is_wrong() {
        for (text, wanted) in [
            ("no flow", ("no flow", "")),
            ("no flow\n  cure: add one", ("no flow", "add one")),
            ("line 4 is wrong (write a time (with a unit))", ("line 4 is wrong", "write a time (with a unit)")),
            ("odd) end)", ("odd) end)", "")),
            (")", (")", "")),
            ("", ("", "")),
        ] {
            assert_eq!(parted(text), wanted, "{text}");
        }
    }
}
