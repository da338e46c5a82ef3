//! Every path, in one table.

use super::answer::{self, Problem};
use super::guard::{Guard, authorize, let_in};
use super::{Control, Scope, events, health, metrics, nmos, openapi, pages, preview, receivers};
use crate::preview::routes::headers;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{MethodRouter, delete, get, post, put};
use std::sync::Arc;

/// What handlers are given.
#[derive(Clone)]
pub(super) struct Api {
    pub control: Arc<dyn Control>,
    pub guard: Guard,
}

/// A path and a method.
pub(super) struct Route {
    pub method: &'static str,
    pub path: &'static str,
    /// None: for everybody.
    pub scope: Option<Scope>,
    pub handler: MethodRouter<Api>,
}

/// All of them.
pub(super) fn table() -> Vec<Route> {
    use Scope::{Control as Steer, Read};
    let mut all = Vec::new();
    let mut add = |method, path, scope, handler| all.push(Route { method, path, scope, handler });

    // Pages hold no data: what they show they ask for, with a token where one is needed.
    for page in &pages::PAGES {
        add("GET", page.path, None, get(move || async move { page.answer() }));
    }
    add("GET", "/healthz", None, get(health::process));
    add("GET", "/livez", None, get(health::alive));
    add("GET", "/readyz", None, get(health::ready));
    add("GET", "/metrics", Some(Read), get(metrics::serve));
    add("GET", "/api/v1/openapi.json", None, get(openapi::serve));
    add("GET", "/api/v1/access", None, get(receivers::access));

    add("GET", "/api/v1", Some(Read), get(receivers::overview));
    add("GET", "/api/v1/events", Some(Read), get(events::all));
    add("POST", "/api/v1/config/reload", Some(Steer), post(receivers::reload));
    add("GET", "/api/v1/receivers", Some(Read), get(receivers::list));
    add("GET", "/api/v1/receivers/{id}", Some(Read), get(receivers::one));
    add("GET", "/api/v1/receivers/{id}/sdp", Some(Read), get(receivers::sdp));
    add("PUT", "/api/v1/receivers/{id}/sdp", Some(Steer), put(receivers::switch));
    add("DELETE", "/api/v1/receivers/{id}/sdp", Some(Steer), delete(receivers::follow));
    add("POST", "/api/v1/receivers/{id}/start", Some(Steer), post(receivers::start));
    add("POST", "/api/v1/receivers/{id}/stop", Some(Steer), post(receivers::stop));
    add("GET", "/api/v1/receivers/{id}/stats", Some(Read), get(receivers::stats));
    add("GET", "/api/v1/receivers/{id}/events", Some(Read), get(events::of_one));
    add("GET", "/api/v1/receivers/{id}/thumbnail.jpg", Some(Read), get(preview::thumbnail));
    for path in preview::PATHS {
        add("GET", path, Some(Read), get(preview::forward));
    }
    // Changes nothing for anybody else.
    add("POST", preview::FREEZE, Some(Read), post(preview::forward));
    all
}

/// The table as a router.
pub(super) fn router(control: Arc<dyn Control>, guard: Guard) -> Router {
    let mut router = Router::new();
    for Route { path, scope, handler, .. } in table() {
        let handler = match scope {
            Some(scope) => handler.route_layer(middleware::from_fn_with_state((guard.clone(), scope), authorize)),
            None => handler,
        };
        router = router.route(path, handler);
    }
    router
        .fallback(async |request: Request| {
            let error = format!("there is nothing at {}", request.uri().path());
            Problem::new(StatusCode::NOT_FOUND, error, "/api/v1/openapi.json lists what there is")
        })
        .layer(middleware::map_response(answer::in_json))
        .layer(middleware::from_fn_with_state(guard.clone(), let_in))
        .layer(middleware::from_fn(headers))
        .with_state(Api { control, guard: guard.clone() })
        // Behind the same guard, which speaks otherwise there.
        .merge(nmos::router(guard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_changes_something_needs_control() {
        for route in table().into_iter().filter(|route| route.method != "GET" && route.path != preview::FREEZE) {
            assert_eq!(route.scope, Some(Scope::Control), "{} {}", route.method, route.path);
        }
        // Everybody sees pages, probes, and what there is to ask.
        let free: Vec<_> = table().into_iter().filter(|route| route.scope.is_none()).map(|route| route.path).collect();
        for path in free {
            let known = pages::PAGES.iter().any(|page| page.path == path)
                || ["/healthz", "/livez", "/readyz", "/api/v1/openapi.json", "/api/v1/access"].contains(&path);
            assert!(known, "{path}");
        }
    }
}
