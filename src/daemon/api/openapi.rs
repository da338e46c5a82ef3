//! The API as OpenAPI 3.1.

use super::super::control::Overview;
use super::routes::Api;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};

/// Written by hand; a test holds it against the table of routes.
const TEXT: &str = include_str!("openapi.json");

pub(super) async fn serve(State(api): State<Api>) -> Response {
    let Overview { version, .. } = api.control.overview();
    let text = TEXT.replace("\"0.0.0\"", &format!("\"{version}\""));
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
