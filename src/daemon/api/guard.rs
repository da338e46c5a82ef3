//! Who is let in: names, tokens, rates. The same for all addresses; can be set anew while requests come.

use super::answer::Problem;
use super::nmos::Slot;
use super::peers::Peers;
use super::proxies::Proxies;
use super::settings::{Limits, Scope, Settings};
use super::tls::Loaded;
use super::tokens::Tokens;
use crate::error::Result;
use crate::preview::Hosts;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    policy: Arc<watch::Sender<Arc<Policy>>>,
    pub peers: Peers,
    pub counts: Arc<Counts>,
    /// The NMOS node, where there is one.
    pub nmos: Slot,
}

/// What the settings say, with what their files hold.
#[derive(Debug)]
pub(super) struct Policy {
    hosts: Hosts,
    tokens: Tokens,
    pub proxies: Proxies,
    pub limits: Limits,
    pub tls: Option<Loaded>,
}

impl Policy {
    pub fn read(settings: &Settings) -> Result<Self> {
        settings.check()?;
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let names = settings.hosts.iter().map(String::as_str).chain([machine.trim()]);
        Ok(Policy {
            hosts: Hosts::new(names),
            tokens: Tokens::read(&settings.tokens)?,
            proxies: Proxies::read(&settings.trusted_proxies)?,
            limits: settings.limits.clone(),
            tls: settings.tls.as_ref().map(Loaded::read).transpose()?,
        })
    }
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.limits.request_seconds.into())
    }
    /// With its certificate as that is now; none where it is as before.
    fn renewed(&self) -> Option<(Policy, Renewal)> {
        let loaded = self.tls.as_ref()?;
        let (tls, renewal) = match loaded.again()? {
            Ok(new) => {
                let until = new.until();
                (new, Renewal::Taken(until))
            }
            // It may be half written: the next look says.
            Err(why) => {
                let mut old = loaded.clone();
                old.seen();
                (old, Renewal::Refused(why.in_one_line()))
            }
        };
        let (hosts, tokens, limits) = (self.hosts.clone(), self.tokens.clone(), self.limits.clone());
        let proxies = self.proxies.clone();
        Some((Policy { hosts, tokens, proxies, limits, tls: Some(tls) }, renewal))
    }
}

/// What became of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// It is as it was.
    None,
    /// Another one is in force, until then (seconds since 1970).
    Taken(Option<u64>),
    /// There is another, which cannot be used; says why.
    Refused(String),
}

/// Requests, and those that were not let in, by reason.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub requests: AtomicU64,
    pub host: AtomicU64,
    pub token: AtomicU64,
    pub scope: AtomicU64,
    pub rate: AtomicU64,
    pub connections: AtomicU64,
}

impl Counts {
    pub fn refused(&self) -> [(&'static str, u64); 5] {
        let all = [
            ("host", &self.host),
            ("token", &self.token),
            ("scope", &self.scope),
            ("rate", &self.rate),
            ("connections", &self.connections),
        ];
        all.map(|(name, count)| (name, count.load(Relaxed)))
    }
}

impl Guard {
    pub fn new(settings: &Settings) -> Result<Self> {
        Ok(Guard {
            policy: Arc::new(watch::Sender::new(Arc::new(Policy::read(settings)?))),
            peers: Peers::default(),
            counts: Arc::default(),
            nmos: Slot::default(),
        })
    }
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.borrow().clone()
    }
    /// From the next request, and the next connection, on.
    pub fn set(&self, policy: Policy) {
        self.policy.send_replace(Arc::new(policy));
    }
    /// The same, where this one is still in force; whether it was.
    fn replace(&self, old: &Arc<Policy>, new: Policy) -> bool {
        self.policy.send_if_modified(|now| {
            let same = Arc::ptr_eq(now, old);
            if same {
                *now = Arc::new(new);
            }
            same
        })
    }
    /// Looks for certificates that were written anew. Where other settings come meanwhile, these read them by themselves.
    pub fn renew(&self) -> Renewal {
        let policy = self.policy();
        let Some((new, renewal)) = policy.renewed() else { return Renewal::None };
        match self.replace(&policy, new) {
            true => renewal,
            false => Renewal::None,
        }
    }

    fn refusal(&self, request: &Request) -> Option<Problem> {
        self.refusal_of(request, false)
    }
    /// The same for what pages of other sites may change too.
    pub fn refusal_of_any_site(&self, request: &Request) -> Option<Problem> {
        self.refusal_of(request, true)
    }
    fn refusal_of(&self, request: &Request, any_site: bool) -> Option<Problem> {
        let policy = self.policy();
        self.counts.requests.fetch_add(1, Relaxed);
        let peer = request.extensions().get::<SocketAddr>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), SocketAddr::ip);
        let (limits, peer) = (&policy.limits, policy.proxies.client(peer, request.headers()));
        if let Err(wait) = self.peers.take(peer, Instant::now(), limits.requests_per_second, limits.burst) {
            self.counts.rate.fetch_add(1, Relaxed);
            let error = format!("more than {} requests a second", limits.requests_per_second);
            let cure = "ask less often, or raise requests_per_second in [api.limits]";
            let retry_after = Some(wait.as_secs() + 1);
            return Some(Problem { retry_after, ..Problem::new(StatusCode::TOO_MANY_REQUESTS, error, cure) });
        }
        // Nobody minds who only reads.
        let method = if any_site { &Method::GET } else { request.method() };
        let told = |name: &str| self.nmos.is_told(name);
        let (status, why) = policy.hosts.refusal_but(method, request.uri(), request.headers(), told)?;
        self.counts.host.fetch_add(1, Relaxed);
        let cure = match status {
            StatusCode::FORBIDDEN => "use the page that this server serves",
            _ => "use its address, or add the name to hosts in [api]",
        };
        Some(Problem::new(status, why, cure))
    }

    /// Why, and what `WWW-Authenticate` says of it.
    pub fn unauthorized(&self, request: &Request, scope: Scope) -> Option<(Problem, &'static str)> {
        let policy = self.policy();
        let given = given(request.headers());
        let may = policy.tokens.allow(given);
        if may.allows(scope) {
            return None;
        }
        let (status, error, cure, challenge) = match (may, given) {
            (super::tokens::May::Read, _) => (
                StatusCode::FORBIDDEN,
                "this token may see, and not steer",
                "use a token that has the scope control",
                "Bearer realm=\"gdmedia\", error=\"insufficient_scope\", scope=\"control\"",
            ),
            (_, Some(_)) => (
                StatusCode::UNAUTHORIZED,
                "nobody knows this token",
                "use one of [[api.tokens]] in the configuration",
                "Bearer realm=\"gdmedia\", error=\"invalid_token\"",
            ),
            (_, None) => (
                StatusCode::UNAUTHORIZED,
                "a token is needed",
                "send a header `Authorization: Bearer TOKEN`, with one of [[api.tokens]] in the configuration",
                "Bearer realm=\"gdmedia\"",
            ),
        };
        let count = if status == StatusCode::FORBIDDEN { &self.counts.scope } else { &self.counts.token };
        count.fetch_add(1, Relaxed);
        Some((Problem::new(status, error, cure), challenge))
    }

    /// What whoever asks may do: for the page, which offers no more than that.
    pub fn may(&self, authorization: Option<&str>) -> (bool, super::tokens::May) {
        let policy = self.policy();
        let may = policy.tokens.allow(authorization);
        // Who tries tokens here is counted as elsewhere.
        if authorization.is_some() && may == super::tokens::May::Nothing {
            self.counts.token.fetch_add(1, Relaxed);
        }
        (policy.tokens.needed(), may)
    }

    /// A body that goes on and on ends when whoever asked for it would not be given it any more.
    fn while_allowed(&self, response: Response, given: Option<String>, scope: Scope) -> Response {
        if response.body().size_hint().exact().is_some() {
            return response;
        }
        let mut policies = self.policy.subscribe();
        let revoked = async move {
            // Also what changed since it was let in.
            while policies.borrow_and_update().tokens.allow(given.as_deref()).allows(scope) {
                if policies.changed().await.is_err() {
                    return;
                }
            }
        };
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(revoked)))
    }
}

/// The value of a request's header `Authorization`.
pub(super) fn given(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default())
}

/// Rates and names, for every request.
pub(super) async fn let_in(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.refusal(&request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

/// Tokens, for what needs this scope.
pub(super) async fn authorize(State((guard, scope)): State<(Guard, Scope)>, request: Request, next: Next) -> Response {
    match guard.unauthorized(&request, scope) {
        Some((problem, challenge)) => {
            let mut response = problem.into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            response
        }
        None => {
            let given = given(request.headers()).map(str::to_owned);
            guard.while_allowed(next.run(request).await, given, scope)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{Tls, Token};
    use super::*;

    /// `openssl x509 -enddate` of both: Nov  6 11:15:47 2126 GMT.
    const UNTIL: u64 = 4_949_637_347;

    /// Settings with one of the certificates that tests have, and a token.
    fn settings(folder: &std::path::Path) -> Settings {
        let [certificate, key] = ["crt", "key"].map(|kind| folder.join(kind));
        install("one", &certificate, &key);
        let file = folder.join("token");
        std::fs::write(&file, "a-token-that-is-known").unwrap();
        let token = Token { name: "n".into(), file: Some(file), ..Token::default() };
        Settings { tls: Some(Tls { certificate, key }), tokens: vec![token], ..Settings::default() }
    }
    fn install(name: &str, certificate: &std::path::Path, key: &std::path::Path) {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api");
        std::fs::copy(folder.join(format!("{name}.crt")), certificate).unwrap();
        std::fs::copy(folder.join(format!("{name}.key")), key).unwrap();
        // However coarse the clock of the file system is, it was written at another time.
        let other = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + name.len() as u64);
        let old = std::fs::File::options().write(true).open(key).unwrap();
        old.set_modified(if name == "one" { other } else { std::time::SystemTime::now() }).unwrap();
    }

    #[test]
    fn a_certificate_that_is_renewed_brings_no_token_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path());
        let guard = Guard::new(&settings).unwrap();
        assert_eq!(guard.renew(), Renewal::None);
        let Some(Tls { certificate, key }) = settings.tls.clone() else { panic!() };
        install("two", &certificate, &key);
        // Reads the files, and does not get to set them before other settings come.
        let old = guard.policy();
        let (new, _) = old.renewed().unwrap();
        settings.tokens[0].file = None;
        settings.tokens[0].sha256 = Some("00".repeat(32));
        guard.set(Policy::read(&settings).unwrap());
        assert!(!guard.replace(&old, new), "others are in force");
        let given = Some("Bearer a-token-that-is-known");
        assert_eq!(guard.policy().tokens.allow(given), super::super::tokens::May::Nothing);
        assert_eq!(guard.renew(), Renewal::None, "they have read them by themselves");
    }

    #[test]
    fn what_becomes_of_a_certificate_is_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let guard = Guard::new(&settings).unwrap();
        assert_eq!(guard.policy().tls.as_ref().unwrap().until(), Some(UNTIL));
        let Some(Tls { certificate, key }) = settings.tls.clone() else { panic!() };
        std::fs::remove_file(&key).unwrap();
        let Renewal::Refused(why) = guard.renew() else { panic!("there is no key") };
        assert!(why.contains("no private key can be read"), "{why}");
        assert_eq!(guard.renew(), Renewal::None, "it is said already");
        install("two", &certificate, &key);
        assert_eq!(guard.renew(), Renewal::Taken(Some(UNTIL)));
        assert_eq!(guard.policy().tls.as_ref().unwrap().until(), Some(UNTIL));
    }
}
