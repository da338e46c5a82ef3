//! Events as server-sent events (WHATWG HTML, 9.2): whoever was away says which one was the last, and gets what came since.

use super::super::control::{Control, Event};
use super::answer::{self, Id, Problem};
use super::receivers::find;
use super::routes::Api;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast::{self, error::RecvError};

/// While nothing happens a comment is sent, so that a viewer who has gone is noticed.
const REPEAT: Duration = Duration::from_secs(5);

pub(super) async fn all(State(api): State<Api>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    Ok(serve(api, since(&uri, &headers)?, None))
}

pub(super) async fn of_one(
    State(api): State<Api>,
    Id(id): Id,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    find(&api, &id)?;
    Ok(serve(api, since(&uri, &headers)?, Some(id)))
}

/// After which event others are wanted.
#[derive(Debug, PartialEq, Eq)]
struct Since {
    /// Of which run of the daemon it was; none: of this one.
    run: Option<String>,
    number: u64,
}

/// What a run of the daemon is called in ids of events: when it started, in milliseconds since 1970, in hexadecimal.
fn run(control: &dyn Control) -> String {
    let started = control.overview().started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", started.as_millis())
}

/// The last event that somebody has, by its id `RUN-NUMBER` or by its number alone: of the header `Last-Event-ID`, which browsers
/// send when they come back, or of `?since=`; none: he wants those from now on.
fn since(uri: &Uri, headers: &HeaderMap) -> Result<Option<Since>, Problem> {
    let header = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    let query = uri.query().unwrap_or_default().split('&').find_map(|part| part.strip_prefix("since="));
    // An empty id is none (WHATWG HTML, 9.2.6).
    let Some(text) = header.filter(|text| !text.is_empty()).or(query) else { return Ok(None) };
    let (run, number) = text.split_once('-').map_or((None, text), |(run, number)| (Some(run), number));
    let is_run = |run: &str| (1..=16).contains(&run.len()) && run.bytes().all(|b| b.is_ascii_hexdigit());
    match number.parse() {
        Ok(number) if run.is_none_or(is_run) => Ok(Some(Since { run: run.map(str::to_ascii_lowercase), number })),
        _ => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            format!("{text:?} is no id and no number of an event"),
            "give the id of the last event that you have; 0 for all that are kept",
        )),
    }
}

struct Reader {
    api: Api,
    run: String,
    live: broadcast::Receiver<Arc<Event>>,
    /// Of this receiver alone.
    of: Option<String>,
    /// Those that are to be sent first.
    waiting: VecDeque<Arc<Event>>,
    /// The last one that was sent, or is not wanted.
    last: u64,
}

fn serve(api: Api, since: Option<Since>, of: Option<String>) -> Response {
    // In this order: nothing falls between the two, and what is in both is sent once.
    let run = run(api.control.as_ref());
    let live = api.control.events();
    let history = api.control.history();
    let newest = history.last().map_or(0, |event| event.number);
    let last = match since {
        None => newest,
        // Of a daemon that ran before this one: all of this one's are news.
        Some(since) if since.run.as_deref().is_some_and(|of| of != run) || since.number > newest => 0,
        Some(since) => since.number,
    };
    let waiting = history.into_iter().filter(|event| event.number > last).collect();
    let reader = Reader { api, run, live, of, waiting, last };
    // Something at once, so that whoever asks sees that he is heard.
    let begun = stream::once(async { Bytes::from_static(b"retry: 2000\n\n") });
    use futures_util::StreamExt as _;
    answer::stream("text/event-stream", begun.chain(stream::unfold(reader, next)))
}

async fn next(mut reader: Reader) -> Option<(Bytes, Reader)> {
    // Events of other receivers do not count as something sent.
    let quiet = tokio::time::Instant::now() + REPEAT;
    loop {
        let event = match reader.waiting.pop_front() {
            Some(event) => event,
            None => match tokio::time::timeout_at(quiet, reader.live.recv()).await {
                Ok(Ok(event)) => event,
                // Too slow for what happens: what is still kept comes from there.
                Ok(Err(RecvError::Lagged(_))) => {
                    let last = reader.last;
                    reader.waiting =
                        reader.api.control.history().into_iter().filter(|event| event.number > last).collect();
                    continue;
                }
                Ok(Err(RecvError::Closed)) => return None,
                Err(_) => return Some((Bytes::from_static(b":\n\n"), reader)),
            },
        };
        if event.number <= reader.last {
            continue;
        }
        let missed = event.number - reader.last - 1;
        reader.last = event.number;
        let wanted = reader.of.is_none() || reader.of == event.receiver;
        // Whoever is to know all of them is told that he does not.
        let gap = if missed > 0 && reader.of.is_none() {
            format!(": {missed} events are not kept any more\n\n")
        } else {
            String::new()
        };
        if wanted {
            return Some(((gap + &text(&reader.run, &event)).into(), reader));
        }
    }
}

/// JSON has no line ends of its own.
fn text(run: &str, event: &Event) -> String {
    let kind = serde_json::to_value(event.kind).ok();
    let kind = kind.as_ref().and_then(serde_json::Value::as_str).unwrap_or("message");
    let data = serde_json::to_string(event).unwrap_or_default();
    format!("id: {run}-{}\nevent: {kind}\ndata: {data}\n\n", event.number)
}
