//! Requests to a registry over HTTP.

use super::machine::Outcome;
use std::time::Duration;

/// Longest answer that is read: the resource comes back.
const MAX_ANSWER: u64 = 4 << 20;

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    /// `POST` or `DELETE`.
    pub method: &'static str,
    /// The whole URL.
    pub url: String,
    /// JSON; a heartbeat has none.
    pub body: Option<Vec<u8>>,
    /// From the first packet to the last.
    pub timeout: Duration,
}

/// What sends requests to a registry. [`Plain`] does; a program with TLS or tokens brings its own.
pub trait Http: Send {
    /// Sends it and waits for the answer, which is read to its end or dropped. Follows no redirections.
    fn send(&mut self, request: &HttpRequest) -> Outcome;
    /// The protocols that it speaks: `http`, `https`.
    fn protocols(&self) -> &'static [&'static str];
    /// Whether it has a token for the registry.
    fn authorization(&self) -> bool {
        false
    }
}

/// HTTP without TLS.
#[derive(Debug)]
pub struct Plain {
    agent: ureq::Agent,
}

impl Default for Plain {
    fn default() -> Plain {
        Plain::new()
    }
}

impl Plain {
    /// A client with connections of its own. Takes no proxy from the environment: a registry is in the house.
    pub fn new() -> Plain {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("gdmedia/", env!("CARGO_PKG_VERSION")))
            .build();
        Plain { agent: config.into() }
    }
}

impl Http for Plain {
    fn send(&mut self, request: &HttpRequest) -> Outcome {
        let timeout = Some(request.timeout);
        let result = match (request.method, &request.body) {
            ("DELETE", _) => self.agent.delete(&request.url).config().timeout_global(timeout).build().call(),
            (_, Some(body)) => {
                let builder = self.agent.post(&request.url).config().timeout_global(timeout).build();
                builder.content_type("application/json").send(&body[..])
            }
            (_, None) => self.agent.post(&request.url).config().timeout_global(timeout).build().send_empty(),
        };
        let mut response = match result {
            Ok(response) => response,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        let code = response.status().as_u16();
        let location = response.headers().get("location").and_then(|v| v.to_str().ok()).map(str::to_owned);
        if (300..400).contains(&code) {
            return Outcome::Failed(format!("it redirects ({code}), which no registry may for such a request"));
        }
        // To its end, though nothing is needed of it: what breaks off is no answer.
        let body = match response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec() {
            Ok(body) => body,
            Err(error) => return Outcome::Failed(format!("its answer breaks off: {error}")),
        };
        if code >= 400
            && let Some(why) = said(&body)
        {
            tracing::debug!(url = request.url, code, "the registry says: {why}");
        }
        Outcome::Status(code, location)
    }

    fn protocols(&self) -> &'static [&'static str] {
        &["http"]
    }
}

/// The text of an error of NMOS.
fn said(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(value.get("error")?.as_str()?.chars().filter(|c| !c.is_control()).take(300).collect())
}
