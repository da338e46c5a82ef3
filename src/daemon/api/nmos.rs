//! The NMOS node beside the API: the same addresses, names, rates, time limits and tokens, with CORS and errors as NMOS has them.
//!
//! Pages of other sites may ask and change things here: controllers are such pages (IS-04, "APIs: Server Side Implementation
//! Notes"). Tokens keep out those that are none.

use super::answer::{self, Problem};
use super::guard::Guard;
use super::settings::Scope;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use gdmedia_nmos::{Node, http};
use std::sync::{Arc, OnceLock};
use tower_service::Service as _;

/// Where it is put when there is one.
#[derive(Clone, Default)]
pub(super) struct Slot(Arc<OnceLock<Mounted>>);

struct Mounted {
    node: Node,
    router: Router,
    registered: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Slot").field(&self.0.get().is_some()).finish()
    }
}

impl Slot {
    /// Serves it from now on; there is one at most.
    pub fn put(&self, node: Node, registered: Arc<dyn Fn() -> bool + Send + Sync>) {
        let _ = self.0.set(Mounted { router: http::router(node.clone()), node, registered });
    }
    /// Whether controllers are told this name, or address: what they are told they may use.
    pub fn is_told(&self, name: &str) -> bool {
        let told =
            |node: &Node| node.settings().endpoints.iter().any(|endpoint| endpoint.host.eq_ignore_ascii_case(name));
        self.0.get().is_some_and(|mounted| told(&mounted.node))
    }
    /// Whether a registry has it; none where there is no node.
    pub fn registered(&self) -> Option<bool> {
        self.0.get().map(|mounted| (mounted.registered)())
    }
}

/// Everything below `/x-nmos`.
pub(super) fn router(guard: Guard) -> Router {
    Router::new()
        .route("/x-nmos", any(serve))
        .route("/x-nmos/", any(serve))
        .route("/x-nmos/{*path}", any(serve))
        .with_state(guard)
}

async fn serve(State(guard): State<Guard>, request: Request) -> Response {
    if let Some(problem) = guard.refusal_of_any_site(&request) {
        return told(problem);
    }
    let Some(mounted) = guard.nmos.0.get() else {
        let error = "this daemon is no NMOS node; enabled in [nmos] makes it one";
        return told(Problem::new(axum::http::StatusCode::NOT_FOUND, error, ""));
    };
    // A browser asks beforehand whether it may, without its token.
    let scope = match *request.method() {
        Method::OPTIONS => None,
        Method::GET | Method::HEAD => Some(Scope::Read),
        _ => Some(Scope::Control),
    };
    if let Some(scope) = scope
        && let Some((problem, challenge)) = guard.unauthorized(&request, scope)
    {
        let mut response = told(problem);
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        return response;
    }
    let request = match *request.method() {
        Method::GET | Method::HEAD | Method::OPTIONS => request,
        // Whole, within the time that requests have.
        _ => {
            let (parts, body) = request.into_parts();
            let request = Request::from_parts(parts.clone(), body);
            match answer::body(request, http::MAX_BULK_BODY, guard.policy().patience()).await {
                Ok(octets) => Request::from_parts(parts, Body::from(octets)),
                Err(problem) => return told(problem),
            }
        }
    };
    // A router is always ready.
    mounted.router.clone().call(request).await.into_response()
}

/// A refusal as NMOS has it.
fn told(problem: Problem) -> Response {
    let Problem { status, error, cure, retry_after } = problem;
    let text = if cure.is_empty() { error } else { format!("{error}: {cure}") };
    let mut response = http::answer(status.as_u16(), &text);
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
