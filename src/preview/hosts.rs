//! Which names a browser may have for the server. A page elsewhere could let its own name point here (DNS rebinding) and read
//! the answers; it cannot pass its name for an address, or for one of this machine's names.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// Names besides addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: Arc<[String]>,
}

impl Hosts {
    /// Of this machine: its name, and that with `.local` (multicast DNS).
    pub fn of_this_machine() -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Hosts::new([name.trim()])
    }
    /// These, and each of them with `.local`.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names = names.into_iter().filter(|name| !name.is_empty()).map(str::to_ascii_lowercase);
        Hosts { names: names.flat_map(|name| [format!("{name}.local"), name]).collect() }
    }

    /// Does `host`, as of the header of this name, mean this server?
    pub fn allow(&self, host: &str) -> bool {
        self.allow_but(host, |_| false)
    }
    /// The same where `also` knows more names, in small letters.
    fn allow_but(&self, host: &str, also: impl Fn(&str) -> bool) -> bool {
        let Some(name) = name_of(host) else { return false };
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok()
            || name == "localhost"
            || name.ends_with(".localhost")
            || self.names.contains(&name)
            || also(&name)
    }

    /// Why a request is not for this server: it has another name, or a foreign page makes it in order to change something.
    pub(crate) fn refusal(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<(StatusCode, String)> {
        self.refusal_but(method, uri, headers, |_| false)
    }
    /// The same where `also` knows more names, in small letters.
    pub(crate) fn refusal_but(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        also: impl Fn(&str) -> bool,
    ) -> Option<(StatusCode, String)> {
        let header = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let host = header(header::HOST).or(uri.authority().map(|a| a.as_str())).unwrap_or_default();
        if !self.allow_but(host, also) {
            let why = format!("{host:?} is no name of this server: use its address, or this machine's name");
            return Some((StatusCode::MISDIRECTED_REQUEST, why));
        }
        let foreign = header(header::ORIGIN).is_some_and(|origin| {
            let of = origin.split_once("://").map_or(origin, |(_, of)| of);
            of != host
        });
        let changes = !matches!(*method, Method::GET | Method::HEAD);
        (foreign && changes).then(|| (StatusCode::FORBIDDEN, "not from another site".into()))
    }
}

/// The name in `name:port`, `[address]:port` and the like.
fn name_of(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.find(':').map_or((host, ""), |at| host.split_at(at)),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let sound = (port.is_empty() || port.starts_with(':')) && digits.bytes().all(|b| b.is_ascii_digit());
    (sound && !name.is_empty()).then_some(name)
}

/// Lets a request through that has an allowed name, and that no foreign page makes in order to change something.
pub(super) async fn guard(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    match hosts.refusal(request.method(), request.uri(), request.headers()) {
        Some((status, why)) => (status, format!("{why}\n")).into_response(),
        None => next.run(request).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_own_names_are_allowed_and_no_others() {
        let hosts = Hosts::new(["Cam-PC", ""]);
        for host in [
            "127.0.0.1:8110",
            "127.0.0.1",
            "[::1]:8110",
            "[2001:db8::7]",
            "192.168.1.7:80",
            "localhost:8110",
            "LOCALHOST",
            "localhost.",
            "app.localhost:1",
            "cam-pc:8110",
            "CAM-PC.local",
        ] {
            assert!(hosts.allow(host), "{host}");
        }
        for host in [
            "",
            ":8110",
            "evil.example:8110",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil-localhost",
            "cam-pc.evil.example",
            "127.0.0.1:8110@evil",
            "[::1",
            "[evil]:1",
            "[::1]evil",
            "127.0.0.1:x",
        ] {
            assert!(!hosts.allow(host), "{host}");
        }
    }
}
