//! What a source serves. All paths are relative, so that a source can be served below any path that ends in `/`.

use super::render::BOUNDARY;
use super::{Answer, Ask, Frozen, Source};
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use std::convert::Infallible;
use std::time::Duration;

/// While nothing new comes, the last is sent again so often, so that a viewer who has gone is noticed.
pub(super) const REPEAT: Duration = Duration::from_secs(5);

/// What other pages have in common with this one.
pub(crate) const CSS: &str = include_str!("page/preview.css");
pub(crate) const COMMON: &str = include_str!("page/common.js");
pub(crate) const ICON: &str = include_str!("page/preview.svg");

/// Pages and pictures of a source:
///
/// | path | what |
/// | --- | --- |
/// | `/` | the page, and its `preview.css`, `common.js`, `preview.js`, `preview.svg` |
/// | `/video.mjpeg` | the live picture, `multipart/x-mixed-replace` |
/// | `/picture.jpg` | the same once, for whoever asks now and then: a stream takes one of the few connections that a browser has |
/// | `/snapshot.jpg`, `/snapshot.png` | the newest frame in full size |
/// | `/stats.json`, `/events` | the status; the same as server-sent events, whenever it is set anew |
/// | `POST /freeze`, `/frame?freeze=ID&back=N` | the last frames, listed; one of them, counted back from the newest |
/// | `/waveform.png`, `/vectorscope.png` | scopes of the newest frame |
pub fn router(source: Source) -> Router {
    let file = |kind: &'static str, text: &'static str| get(async move || ([(header::CONTENT_TYPE, kind)], text));
    Router::new()
        .route("/", file("text/html; charset=utf-8", include_str!("page/index.html")))
        .route("/preview.css", file("text/css; charset=utf-8", CSS))
        .route("/common.js", file("text/javascript; charset=utf-8", COMMON))
        .route("/preview.js", file("text/javascript; charset=utf-8", include_str!("page/preview.js")))
        .route("/preview.svg", file("image/svg+xml", ICON))
        .route("/video.mjpeg", get(video))
        .route("/picture.jpg", get(one_picture))
        .route("/snapshot.jpg", get(async |source, query| snapshot(source, query, Ask::Jpeg).await))
        .route("/snapshot.png", get(async |source, query| snapshot(source, query, Ask::Png).await))
        .route("/stats.json", get(stats))
        .route("/events", get(events))
        .route("/freeze", post(freeze))
        .route("/frame", get(frame))
        .route("/waveform.png", get(waveform))
        .route("/vectorscope.png", get(vectorscope))
        .fallback(async || refused(StatusCode::NOT_FOUND, "there is nothing here; the page is at /"))
        .layer(middleware::from_fn(headers))
        .with_state(source)
}

/// What every answer says: nothing is kept, nothing comes from elsewhere, and other sites may not show it.
pub(crate) async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let all = [
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; img-src 'self' blob:; script-src 'self'; style-src 'self'; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A refusal in words.
fn refused(status: StatusCode, text: &str) -> Response {
    let mut response = (status, format!("{text}\n")).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn body(kind: &'static str, parts: impl stream::Stream<Item = Bytes> + Send + 'static) -> Response {
    use futures_util::StreamExt as _;
    let parts = parts.map(Ok::<_, Infallible>);
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(parts)).into_response()
}

/// Every viewer has the newest picture next, however slow he is.
async fn video(State(source): State<Source>) -> Response {
    let pictures = source.0.live.subscribe();
    let viewer = source.watch();
    let parts = stream::unfold((pictures, viewer, false), async |(mut pictures, viewer, begun)| {
        loop {
            // As long as nothing is to be seen there is nothing to repeat either: an empty line then, which is before the
            // first boundary and means nothing.
            let changed = tokio::time::timeout(REPEAT, pictures.changed()).await;
            if let Ok(Err(_)) = changed {
                return None;
            }
            let part = pictures.borrow_and_update().as_ref().map(|live| live.part.clone());
            let (part, begun) = match (part, begun, changed.is_err()) {
                (Some(part), true, _) => (part, true),
                (Some(part), false, _) => ([format!("--{BOUNDARY}\r\n").as_bytes(), &part].concat().into(), true),
                (None, false, true) => (Bytes::from_static(b"\r\n"), false),
                (None, ..) => continue,
            };
            return Some((part, (pictures, viewer, begun)));
        }
    });
    const _: () = assert!(BOUNDARY.len() < 70, "RFC 2046, 5.1.1");
    body("multipart/x-mixed-replace; boundary=gdmedia-picture", parts)
}

/// The newest live picture: the one that all viewers have, or one that is made for this one.
async fn one_picture(State(source): State<Source>) -> Response {
    let mut pictures = source.0.live.subscribe();
    let _viewer = source.watch();
    if source.0.mailbox.age().is_none() {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "no frame has come yet");
    }
    // Not held on to: who leaves last takes the picture away.
    let live = match tokio::time::timeout(super::PATIENCE, pictures.wait_for(Option::is_some)).await {
        Ok(Ok(live)) => live.clone(),
        _ => None,
    };
    live.map_or_else(|| none(None), |live| picture("image/jpeg", live.jpeg.clone(), live.number))
}

async fn stats(State(source): State<Source>) -> Response {
    let text = source.0.stats.borrow().clone();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

async fn events(State(source): State<Source>) -> Response {
    let mut stats = source.0.stats.subscribe();
    // The status as it is, at once.
    stats.mark_changed();
    let events = stream::unfold(stats, async |mut stats| {
        let event = match tokio::time::timeout(REPEAT, stats.changed()).await {
            Ok(Ok(())) => {
                let text = stats.borrow_and_update().clone();
                [b"data: ".as_slice(), &text, b"\n\n"].concat().into()
            }
            Ok(Err(_)) => return None,
            // A comment.
            Err(_) => Bytes::from_static(b":\n\n"),
        };
        Some((event, stats))
    });
    body("text/event-stream", events)
}

#[derive(Deserialize)]
struct Download {
    /// Given at all: the browser is to save it.
    download: Option<String>,
}

async fn snapshot(State(source): State<Source>, Query(query): Query<Download>, ask: Ask) -> Response {
    let (kind, suffix) = if ask == Ask::Png { ("image/png", "png") } else { ("image/jpeg", "jpg") };
    match source.ask(ask).await {
        Some(Answer::Picture(file, number)) => {
            let mut response = picture(kind, file, number);
            let name = format!("attachment; filename=\"frame-{number}.{suffix}\"");
            if let (Some(_), Ok(name)) = (query.download, name.parse()) {
                response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
            }
            response
        }
        answer => none(answer),
    }
}

fn picture(kind: &'static str, file: Bytes, number: u64) -> Response {
    let number = HeaderValue::from(number);
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], [("x-frame-number", number)], file).into_response()
}

/// Why there is no picture.
fn none(answer: Option<Answer>) -> Response {
    let text = match answer {
        Some(Answer::None(why)) => why,
        _ => super::GONE.to_owned(),
    };
    refused(StatusCode::SERVICE_UNAVAILABLE, &text)
}

async fn waveform(State(source): State<Source>) -> Response {
    match source.ask(Ask::Scopes).await {
        Some(Answer::Scopes(scopes)) => picture("image/png", scopes.waveform.clone(), scopes.number),
        answer => none(answer),
    }
}

async fn vectorscope(State(source): State<Source>) -> Response {
    match source.ask(Ask::Scopes).await {
        Some(Answer::Scopes(scopes)) => match &scopes.vectorscope {
            Some(file) => picture("image/png", file.clone(), scopes.number),
            None => refused(StatusCode::NOT_FOUND, "this stream has no colour differences"),
        },
        answer => none(answer),
    }
}

/// Newest first, as one steps back.
fn list(set: &Frozen) -> serde_json::Value {
    let one = |still: &super::Still| {
        serde_json::json!({
            "number": still.number, "timestamp": still.timestamp, "complete": still.complete, "missing_octets": still.missing,
        })
    };
    serde_json::json!({ "freeze": set.id, "frames": set.pictures.iter().rev().map(one).collect::<Vec<_>>() })
}

async fn freeze(State(source): State<Source>) -> Response {
    match source.ask(Ask::Freeze).await {
        Some(Answer::Frozen(set)) => {
            ([(header::CONTENT_TYPE, "application/json")], list(&set).to_string()).into_response()
        }
        answer => none(answer),
    }
}

#[derive(Deserialize)]
struct Step {
    freeze: Option<u64>,
    #[serde(default)]
    back: usize,
}

async fn frame(State(source): State<Source>, Query(Step { freeze, back }): Query<Step>) -> Response {
    let Some(set) = source.frozen(freeze) else {
        return refused(StatusCode::NOT_FOUND, "no such frames: POST /freeze keeps the last ones");
    };
    match set.pictures.iter().rev().nth(back) {
        Some(still) => picture("image/jpeg", still.jpeg.clone(), still.number),
        None => refused(StatusCode::NOT_FOUND, &format!("only {} frames are kept", set.pictures.len())),
    }
}
