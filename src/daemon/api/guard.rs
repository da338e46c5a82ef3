//! Who is let in: names, tokens, rates. The same for all addresses; can be set anew while requests come.

use super::answer::Problem;
use super::nmos::Slot;
use super::peers::Peers;
use super::settings::{Limits, Scope, Settings};
use super::tls::Loaded;
use super::tokens::Tokens;
use crate::error::Result;
use crate::preview::Hosts;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    policy: Arc<RwLock<Arc<Policy>>>,
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
            limits: settings.limits.clone(),
            tls: settings.tls.as_ref().map(Loaded::read).transpose()?,
        })
    }
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.limits.request_seconds.into())
    }
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
            policy: Arc::new(RwLock::new(Arc::new(Policy::read(settings)?))),
            peers: Peers::default(),
            counts: Arc::default(),
            nmos: Slot::default(),
        })
    }
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// From the next request, and the next connection, on.
    pub fn set(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }
    /// Certificates that were written anew.
    pub fn renew(&self) {
        let policy = self.policy();
        let Some(loaded) = &policy.tls else { return };
        let (tls, why) = match loaded.again() {
            None => return,
            Some(Ok(new)) => (new, None),
            // It may be half written: the next look says.
            Some(Err(why)) => (loaded.clone(), Some(why)),
        };
        let mut tls = tls;
        if let Some(why) = why {
            tracing::warn!("the API goes on with the certificate that it has: {why}");
            tls.seen();
        }
        let (hosts, tokens, limits) = (policy.hosts.clone(), policy.tokens.clone(), policy.limits.clone());
        self.set(Policy { hosts, tokens, limits, tls: Some(tls) });
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
        let limits = &policy.limits;
        if let Err(wait) = self.peers.take(peer, Instant::now(), limits.requests_per_second, limits.burst) {
            self.counts.rate.fetch_add(1, Relaxed);
            let error = format!("more than {} requests a second", limits.requests_per_second);
            let cure = "ask less often, or raise requests_per_second in [api.limits]";
            let retry_after = Some(wait.as_secs() + 1);
            return Some(Problem { retry_after, ..Problem::new(StatusCode::TOO_MANY_REQUESTS, error, cure) });
        }
        // Nobody minds who only reads.
        let method = if any_site { &Method::GET } else { request.method() };
        let (status, why) = policy.hosts.refusal(method, request.uri(), request.headers())?;
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
        let given = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default());
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
        (policy.tokens.needed(), policy.tokens.allow(authorization))
    }
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
        None => next.run(request).await,
    }
}
