//! The documents of IS-04 v1.3, without their `version`.

use crate::connection::Connection;
use crate::receivers::{Receiver, Tags};
use crate::settings::{Chassis, ClockInfo, Settings, hyphens};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The version of IS-04 that is served and registered with.
pub const NODE_VERSION: &str = "v1.3";
/// The version of IS-05 that is served.
pub const CONNECTION_VERSION: &str = "v1.1";

/// The kind of a resource of IS-04; senders, sources and flows are none of a receiver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The node.
    Node,
    /// Its device.
    Device,
    /// A receiver.
    Receiver,
}

impl Kind {
    /// As a registration writes it.
    pub const fn singular(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::Device => "device",
            Kind::Receiver => "receiver",
        }
    }
    /// As a path writes it.
    pub const fn plural(self) -> &'static str {
        match self {
            Kind::Node => "nodes",
            Kind::Device => "devices",
            Kind::Receiver => "receivers",
        }
    }
}

/// `/self`.
pub(crate) fn node(settings: &Settings) -> Value {
    let interface = |i: &crate::settings::Interface| {
        let chassis = match &i.chassis {
            Chassis::Unknown => Value::Null,
            Chassis::Mac(mac) => hyphens(mac).into(),
            Chassis::Text(text) => text.as_str().into(),
        };
        let mut out = json!({ "name": i.name, "chassis_id": chassis, "port_id": hyphens(&i.mac) });
        if let (Some(neighbour), Some(map)) = (&i.neighbour, out.as_object_mut()) {
            let other = json!({ "chassis_id": neighbour.chassis, "port_id": neighbour.port });
            map.insert("attached_network_device".into(), other);
        }
        out
    };
    let clock = |clock: &ClockInfo| match clock {
        ClockInfo::Internal { name } => json!({ "name": name, "ref_type": "internal" }),
        ClockInfo::Ptp { name, grandmaster, traceable, locked } => json!({
            "name": name, "ref_type": "ptp", "version": "IEEE1588-2008", "gmid": hyphens(grandmaster),
            "traceable": traceable, "locked": locked
        }),
    };
    let endpoints: Vec<Value> = settings
        .endpoints
        .iter()
        .map(|e| json!({ "host": e.host, "port": e.port, "protocol": e.protocol(), "authorization": e.authorization }))
        .collect();
    let mut node = json!({
        "id": settings.node_id().to_string(),
        "label": settings.label,
        "description": settings.description,
        "tags": asset(settings, &settings.tags, false),
        "href": settings.endpoints.first().map(|e| format!("{}/", e.url())).unwrap_or_default(),
        "caps": {},
        "services": [],
        "clocks": settings.clocks.iter().map(clock).collect::<Vec<_>>(),
        "interfaces": settings.interfaces.iter().map(interface).collect::<Vec<_>>(),
        "api": { "versions": [NODE_VERSION], "endpoints": endpoints },
    });
    if let (Some(hostname), Some(map)) = (&settings.hostname, node.as_object_mut()) {
        map.insert("hostname".into(), hostname.as_str().into());
    }
    node
}

/// The device. All receivers are its, so its API is the only one.
pub(crate) fn device(settings: &Settings, receivers: &[Uuid]) -> Value {
    let control = |e: &crate::settings::Endpoint| {
        json!({
            "type": format!("urn:x-nmos:control:sr-ctrl/{CONNECTION_VERSION}"),
            "href": format!("{}/x-nmos/connection/{CONNECTION_VERSION}/", e.url()),
            "authorization": e.authorization
        })
    };
    json!({
        "id": settings.device_id().to_string(),
        "label": settings.label,
        "description": settings.description,
        "tags": asset(settings, &Tags::new(), true),
        "type": "urn:x-nmos:device:generic",
        "node_id": settings.node_id().to_string(),
        "senders": [],
        "receivers": receivers.iter().map(Uuid::to_string).collect::<Vec<_>>(),
        "controls": settings.endpoints.iter().map(control).collect::<Vec<_>>(),
    })
}

/// A receiver, without the `version` of its `caps`.
pub(crate) fn receiver(settings: &Settings, receiver: &Receiver, connection: &Connection) -> Value {
    let mut tags = receiver.tags.clone();
    if let Some((group, role)) = &receiver.group {
        // The colon separates, so a name has none (NMOS parameter register "Tags", "Group Hint").
        let hint = format!("{}:{}", group.replace(':', " "), role.replace(':', " "));
        tags.insert("urn:x-nmos:tag:grouphint/v1.0".into(), vec![hint]);
    }
    let active = connection.active();
    let sender = active.sender_id.filter(|_| active.master_enable);
    json!({
        "id": settings.receiver_id(&receiver.name).to_string(),
        "label": receiver.label,
        "description": receiver.description,
        "tags": tags,
        "device_id": settings.device_id().to_string(),
        "format": receiver.format.urn(),
        "caps": receiver.caps.json(),
        "transport": receiver.transport.urn(),
        "interface_bindings": receiver.legs,
        "subscription": { "sender_id": sender.map(|id| id.to_string()), "active": active.master_enable },
    })
}

/// Tags of BCP-002-02. Node and device are two assets, each with an instance id of its own.
fn asset(settings: &Settings, tags: &Tags, device: bool) -> Map<String, Value> {
    let asset = &settings.asset;
    let instance = asset.instance.as_ref().unwrap_or(&settings.seed);
    let instance = if device { format!("{instance}-device") } else { instance.clone() };
    let mut all: Map<String, Value> = tags.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
    let mut tag = |name: &str, value: &str| {
        all.insert(format!("urn:x-nmos:tag:asset:{name}/v1.0"), json!([value]));
    };
    tag("manufacturer", &asset.manufacturer);
    tag("product", &asset.product);
    tag("instance-id", &instance);
    if device {
        tag("function", &asset.function);
    }
    all
}
