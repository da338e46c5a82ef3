//! The picture of a receiver: a thumbnail, and everything of its preview.

use super::answer::{Id, Problem};
use super::receivers::find;
use super::routes::Api;
use crate::preview::Source;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use tower_service::Service as _;

/// What is served of each preview, see [`crate::preview::router`].
pub(super) const PATHS: [&str; 14] = [
    "/api/v1/receivers/{id}/preview/",
    "/api/v1/receivers/{id}/preview/preview.css",
    "/api/v1/receivers/{id}/preview/preview.js",
    "/api/v1/receivers/{id}/preview/common.js",
    "/api/v1/receivers/{id}/preview/preview.svg",
    "/api/v1/receivers/{id}/preview/video.mjpeg",
    "/api/v1/receivers/{id}/preview/picture.jpg",
    "/api/v1/receivers/{id}/preview/snapshot.jpg",
    "/api/v1/receivers/{id}/preview/snapshot.png",
    "/api/v1/receivers/{id}/preview/stats.json",
    "/api/v1/receivers/{id}/preview/events",
    "/api/v1/receivers/{id}/preview/frame",
    "/api/v1/receivers/{id}/preview/waveform.png",
    "/api/v1/receivers/{id}/preview/vectorscope.png",
];
/// Keeps the last frames to step through.
pub(super) const FREEZE: &str = "/api/v1/receivers/{id}/preview/freeze";

fn source(api: &Api, id: &str) -> Result<Source, Problem> {
    let receiver = find(api, id)?;
    receiver.preview.clone().ok_or_else(|| {
        let error = format!("the receiver {id:?} has no preview");
        Problem::new(StatusCode::NOT_FOUND, error, "it has one while it runs, where its configuration wants one")
    })
}

/// The newest frame, some 320 columns wide; made once a second for all who ask.
pub(super) async fn thumbnail(State(api): State<Api>, Id(id): Id) -> Result<Response, Problem> {
    let (file, number) = source(&api, &id)?.thumbnail().await.map_err(Problem::unavailable)?;
    let kind = HeaderValue::from_static("image/jpeg");
    Ok(([(header::CONTENT_TYPE, kind)], [("x-frame-number", HeaderValue::from(number))], file).into_response())
}

/// Hands a request on to the preview, which knows only what lies behind `/preview`.
pub(super) async fn forward(State(api): State<Api>, Id(id): Id, mut request: Request) -> Result<Response, Problem> {
    let source = source(&api, &id)?;
    // The route has six parts before that, whatever the id is called: "", "api", "v1", "receivers", the id, "preview".
    let rest = request.uri().path().splitn(7, '/').nth(6).unwrap_or_default();
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    *request.uri_mut() = format!("/{rest}{query}").parse().unwrap_or_else(|_| Uri::from_static("/"));
    // What the outer router found in the path is nothing to the inner one.
    request.extensions_mut().clear();
    match crate::preview::router(source).call(request).await {
        Ok(response) => Ok(response),
        Err(never) => match never {},
    }
}
