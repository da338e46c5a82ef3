//! The pages: files that are part of the program.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// A file.
#[derive(Debug)]
pub(super) struct Page {
    pub path: &'static str,
    kind: &'static str,
    text: &'static str,
}

impl Page {
    pub fn answer(&self) -> Response {
        ([(header::CONTENT_TYPE, self.kind)], self.text).into_response()
    }
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// All of them.
pub(super) static PAGES: [Page; 14] = [
    Page { path: "/", kind: HTML, text: include_str!("page/wall.html") },
    Page { path: "/receiver", kind: HTML, text: include_str!("page/receiver.html") },
    Page { path: "/events", kind: HTML, text: include_str!("page/events.html") },
    Page { path: "/docs", kind: HTML, text: include_str!("page/docs.html") },
    Page { path: "/page/daemon.css", kind: CSS, text: include_str!("page/daemon.css") },
    Page { path: "/page/access.js", kind: SCRIPT, text: include_str!("page/access.js") },
    Page { path: "/page/share.js", kind: SCRIPT, text: include_str!("page/share.js") },
    Page { path: "/page/wall.js", kind: SCRIPT, text: include_str!("page/wall.js") },
    Page { path: "/page/receiver.js", kind: SCRIPT, text: include_str!("page/receiver.js") },
    Page { path: "/page/events.js", kind: SCRIPT, text: include_str!("page/events.js") },
    Page { path: "/page/docs.js", kind: SCRIPT, text: include_str!("page/docs.js") },
    Page { path: "/page/preview.css", kind: CSS, text: crate::preview::routes::CSS },
    Page { path: "/page/common.js", kind: SCRIPT, text: crate::preview::routes::COMMON },
    Page { path: "/page/preview.svg", kind: "image/svg+xml", text: crate::preview::routes::ICON },
];
