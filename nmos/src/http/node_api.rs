//! The Node API, IS-04 v1.3.

use super::{Found, id, index};
use crate::node::{Node, Resource};
use crate::resources::Kind;
use serde_json::{Value, json};

pub(super) fn find(node: &Node, path: &[&str]) -> Option<Found> {
    let of = |kind: Kind| node.resources().into_iter().filter(move |resource: &Resource| resource.kind == kind);
    match path {
        [] => Some(index(&["self/", "sources/", "flows/", "devices/", "senders/", "receivers/"])),
        ["self"] => of(Kind::Node).next().map(|resource| Found::Document(resource.body)),
        // A receiver makes none of these.
        ["sources" | "flows" | "senders"] => Some(Found::Document(json!([]))),
        ["devices"] => Some(Found::Document(of(Kind::Device).map(|resource| resource.body).collect::<Value>())),
        ["receivers"] => Some(Found::Document(of(Kind::Receiver).map(|resource| resource.body).collect::<Value>())),
        [list @ ("devices" | "receivers"), which] => {
            let kind = if *list == "devices" { Kind::Device } else { Kind::Receiver };
            let which = id(which)?;
            of(kind).find(|resource| resource.id == which).map(|resource| Found::Document(resource.body))
        }
        ["receivers", which, "target"] => {
            let which = id(which)?;
            of(Kind::Receiver).any(|resource| resource.id == which).then_some(Found::Target)
        }
        _ => None,
    }
}
