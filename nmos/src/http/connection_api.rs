//! The Connection API, IS-05 v1.1.

use super::{Found, id, index};
use crate::connection::Connection;
use crate::node::Node;
use serde_json::{Value, json};

pub(super) fn find(node: &Node, path: &[&str]) -> Option<Found> {
    match path {
        [] => Some(index(&["bulk/", "single/"])),
        ["bulk" | "single"] => Some(index(&["senders/", "receivers/"])),
        ["bulk", "senders"] => Some(Found::Bulk { senders: true }),
        ["bulk", "receivers"] => Some(Found::Bulk { senders: false }),
        ["single", "senders"] => Some(index(&[])),
        ["single", "receivers"] => {
            let ids = node.receiver_ids().into_iter().map(|id| Value::from(format!("{id}/")));
            Some(Found::Document(ids.collect()))
        }
        ["single", "receivers", which, rest @ ..] => {
            let which = id(which)?;
            let document = |make: fn(&Connection) -> Value| node.connection(which, make).map(Found::Document);
            match rest {
                [] => document(|_| json!(["constraints/", "staged/", "active/", "transporttype/"])),
                ["constraints"] => document(Connection::constraints),
                ["staged"] => node.connection(which, |_| Found::Staged(which)),
                ["active"] => document(Connection::active_document),
                // IS-05 knows no subclassification (its `transporttype-response-schema.json`).
                ["transporttype"] => document(|_| json!("urn:x-nmos:transport:rtp")),
                _ => None,
            }
        }
        _ => None,
    }
}
