//! The body of a PATCH of `/staged` (IS-05, `receiver-stage-schema.json`), read strictly: what the receiver does not
//! know is refused by its name, as it would be lost otherwise.

use crate::error::Refusal;
use crate::params::{Auto, LegPatch};
use crate::time::Tai;
use serde_json::{Map, Value};
use std::net::IpAddr;
use uuid::Uuid;

/// Largest SDP that is taken, in octets. The longest of a thousand senders' has 10 KiB.
pub const MAX_SDP: usize = 64 << 10;
/// Most entries of a bulk request.
pub const MAX_BULK: usize = 4096;

/// Changes of what is staged; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// The sender, as IS-04 has it; the inner `None` is JSON's null.
    pub sender_id: Option<Option<Uuid>>,
    /// Whether the receiver receives.
    pub master_enable: Option<bool>,
    /// When it is activated; the inner `None` cancels what is scheduled.
    pub activation: Option<Option<When>>,
    /// The SDP; the inner `None` takes it away and changes nothing else.
    pub transport_file: Option<Option<String>>,
    /// The legs.
    pub legs: Option<Vec<LegPatch>>,
}

/// When staged parameters are activated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before the answer.
    Immediate,
    /// After this time.
    Relative(Tai),
    /// At this time.
    Absolute(Tai),
}

impl When {
    /// The `mode` of IS-05.
    pub const fn mode(self) -> &'static str {
        match self {
            When::Immediate => "activate_immediate",
            When::Relative(_) => "activate_scheduled_relative",
            When::Absolute(_) => "activate_scheduled_absolute",
        }
    }
    /// The `requested_time`.
    pub const fn requested(self) -> Option<Tai> {
        match self {
            When::Immediate => None,
            When::Relative(time) | When::Absolute(time) => Some(time),
        }
    }
}

/// JSON of a body.
///
/// # Errors
/// It is none, with the place.
pub fn json(body: &[u8]) -> Result<Value, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::bad(format!("the body is not JSON: {error}")))
}

impl Patch {
    /// Reads a body that is JSON already.
    ///
    /// # Errors
    /// Names the first property that is unknown or has a value that it cannot have.
    pub fn read(body: &Value) -> Result<Patch, Refusal> {
        let mut patch = Patch::default();
        for (key, value) in object(body, "the body")? {
            match key.as_str() {
                "sender_id" => patch.sender_id = Some(sender_id(value)?),
                "master_enable" => patch.master_enable = Some(boolean(value, "master_enable")?),
                "activation" => patch.activation = Some(activation(value)?),
                "transport_file" => patch.transport_file = Some(transport_file(value)?),
                "transport_params" => patch.legs = Some(legs(value)?),
                other => return Err(unknown(other, "a staged receiver")),
            }
        }
        Ok(patch)
    }
}

/// The entries of a bulk request: an id each, and a body as for that receiver alone, which is not read yet.
///
/// # Errors
/// The body does not meet `bulk-receiver-post-schema.json`, apart from `params`.
pub fn bulk(body: &Value) -> Result<Vec<(String, Value)>, Refusal> {
    let list = body.as_array().ok_or_else(|| Refusal::bad("the body of a bulk request is a JSON array"))?;
    if list.len() > MAX_BULK {
        return Err(Refusal::bad(format!("{} entries in one bulk request; {MAX_BULK} are the limit", list.len())));
    }
    let entry = |(at, value): (usize, &Value)| {
        let what = format!("entry {at}");
        let map = object(value, &what)?;
        if let Some(key) = map.keys().find(|key| !matches!(key.as_str(), "id" | "params")) {
            return Err(unknown(key, &what));
        }
        let id = map.get("id").and_then(Value::as_str).filter(|id| is_id(id));
        let id = id.ok_or_else(|| Refusal::bad(format!("{what}: `id` is the UUID of a sender or receiver")))?;
        let params = map.get("params").filter(|params| params.is_object());
        let params = params.ok_or_else(|| Refusal::bad(format!("{what}: `params` is a JSON object")))?;
        Ok((id.to_owned(), params.clone()))
    };
    list.iter().enumerate().map(entry).collect()
}

fn sender_id(value: &Value) -> Result<Option<Uuid>, Refusal> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if is_id(text) => Ok(Uuid::parse_str(text).ok()),
        _ => Err(Refusal::bad("sender_id is the UUID of a sender in lower case, or null")),
    }
}

/// As the schemas of IS-04 and IS-05 write a UUID: hyphens, lower case, version 1 to 5, variant 8 to b.
fn is_id(text: &str) -> bool {
    let octets = text.as_bytes();
    octets.len() == 36
        && !octets.iter().any(u8::is_ascii_uppercase)
        && octets.get(14).is_some_and(|version| (b'1'..=b'5').contains(version))
        && octets.get(19).is_some_and(|variant| b"89ab".contains(variant))
        && Uuid::parse_str(text).is_ok()
}

fn activation(value: &Value) -> Result<Option<When>, Refusal> {
    let map = object(value, "activation")?;
    // The time of activation is not a controller's to say; those that send back what they have read do, and mean nothing.
    if let Some(key) = map.keys().find(|key| !matches!(key.as_str(), "mode" | "requested_time" | "activation_time")) {
        return Err(unknown(key, "activation"));
    }
    let time = match map.get("requested_time") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => {
            Some(text.parse::<Tai>().map_err(|why| Refusal::bad(format!("requested_time: {why}")))?)
        }
        Some(_) => return Err(Refusal::bad("requested_time is a string, <seconds>:<nanoseconds>, or null")),
    };
    let needed = || time.ok_or_else(|| Refusal::bad("a scheduled activation has a requested_time"));
    match map.get("mode") {
        None => Err(Refusal::bad("activation has no mode; null is the one that cancels")),
        Some(Value::Null) => Ok(None),
        Some(Value::String(mode)) => match mode.as_str() {
            // A time has no meaning here; controllers that send one mean now.
            "activate_immediate" => Ok(Some(When::Immediate)),
            "activate_scheduled_relative" => Ok(Some(When::Relative(needed()?))),
            "activate_scheduled_absolute" => Ok(Some(When::Absolute(needed()?))),
            other => Err(Refusal::bad(format!(
                "activation mode `{}` is none of activate_immediate, activate_scheduled_relative, \
                 activate_scheduled_absolute, null",
                clip(other)
            ))),
        },
        Some(_) => Err(Refusal::bad("the mode of an activation is a string or null")),
    }
}

fn transport_file(value: &Value) -> Result<Option<String>, Refusal> {
    let map = object(value, "transport_file")?;
    if let Some(key) = map.keys().find(|key| !matches!(key.as_str(), "data" | "type")) {
        return Err(unknown(key, "transport_file"));
    }
    let sdp = match map.get("type") {
        None => return Err(Refusal::bad("transport_file has no type; application/sdp is the one of RTP")),
        Some(Value::Null) => false,
        Some(Value::String(kind)) => {
            let essence = kind.split(';').next().unwrap_or_default().trim();
            if !essence.eq_ignore_ascii_case("application/sdp") {
                let what = format!("transport_file type `{}`: an RTP receiver takes application/sdp", clip(kind));
                return Err(Refusal::bad(what));
            }
            true
        }
        Some(_) => return Err(Refusal::bad("the type of a transport_file is a string or null")),
    };
    match map.get("data") {
        None => Err(Refusal::bad("transport_file has no data; it is a string or null")),
        Some(Value::Null) => Ok(None),
        Some(Value::String(_)) if !sdp => Err(Refusal::bad("transport_file has data and no type application/sdp")),
        Some(Value::String(text)) if text.len() > MAX_SDP => {
            Err(Refusal::bad(format!("the SDP has {} octets; {MAX_SDP} are the limit", text.len())))
        }
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Refusal::bad("the data of a transport_file is a string or null")),
    }
}

fn legs(value: &Value) -> Result<Vec<LegPatch>, Refusal> {
    let list = value.as_array().ok_or_else(|| Refusal::bad("transport_params is an array, one object a leg"))?;
    // No receiver has so many; what is too long is refused with the right number elsewhere.
    list.iter().take(16).enumerate().map(|(at, value)| leg(value, &format!("leg {}", at + 1))).collect()
}

fn leg(value: &Value, what: &str) -> Result<LegPatch, Refusal> {
    let mut leg = LegPatch::default();
    for (key, value) in object(value, what)? {
        let wrong = |right: &str| Refusal::bad(format!("{what}: {key} is {right}"));
        let address = |value: &Value| value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
        match key.as_str() {
            "source_ip" | "multicast_ip" => {
                let ip = if value.is_null() {
                    None
                } else {
                    Some(address(value).ok_or_else(|| wrong("an IPv4 or IPv6 address, or null"))?)
                };
                if key == "source_ip" { leg.source_ip = Some(ip) } else { leg.multicast_ip = Some(ip) }
            }
            "interface_ip" => {
                leg.interface_ip = Some(match value.as_str() {
                    Some("auto") => Auto::Auto,
                    _ => Auto::Value(address(value).ok_or_else(|| wrong("an IPv4 or IPv6 address, or \"auto\""))?),
                });
            }
            "destination_port" => {
                let port = value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
                leg.destination_port = Some(match value.as_str() {
                    Some("auto") => Auto::Auto,
                    _ => Auto::Value(port.ok_or_else(|| wrong("a UDP port from 1 to 65535, or \"auto\""))?),
                });
            }
            "rtp_enabled" => leg.rtp_enabled = Some(boolean(value, &format!("{what}: rtp_enabled"))?),
            other => return Err(unknown(other, what)),
        }
    }
    Ok(leg)
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, Refusal> {
    value.as_object().ok_or_else(|| Refusal::bad(format!("{what} is a JSON object")))
}

fn boolean(value: &Value, what: &str) -> Result<bool, Refusal> {
    value.as_bool().ok_or_else(|| Refusal::bad(format!("{what} is true or false")))
}

fn unknown(key: &str, what: &str) -> Refusal {
    Refusal::bad(format!("{what} has no property `{}`; /constraints and the schema of IS-05 say which", clip(key)))
}

/// A foreign text, short enough for a message.
pub(crate) fn clip(text: &str) -> String {
    let mut short: String = text.chars().take(64).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(body: Value) -> String {
        let refusal = Patch::read(&body).unwrap_err();
        assert_eq!(refusal.code, 400);
        refusal.error
    }

    #[test]
    fn a_whole_one() {
        let patch = Patch::read(&json!({
            "sender_id": "1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f", "master_enable": true,
            "activation": { "mode": "activate_scheduled_relative", "requested_time": "2:5" },
            "transport_file": { "data": "v=0", "type": "application/sdp" },
            "transport_params": [{ "source_ip": null, "multicast_ip": "239.1.1.1", "interface_ip": "auto",
                                   "destination_port": 5006, "rtp_enabled": false }, {}]
        }));
        let patch = patch.unwrap();
        assert_eq!(patch.sender_id, Some(Uuid::parse_str("1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f").ok()));
        assert_eq!(patch.activation, Some(Some(When::Relative(Tai(2_000_000_005)))));
        assert_eq!(patch.transport_file, Some(Some("v=0".into())));
        let first = LegPatch {
            source_ip: Some(None),
            multicast_ip: Some("239.1.1.1".parse().ok()),
            interface_ip: Some(Auto::Auto),
            destination_port: Some(Auto::Value(5006)),
            rtp_enabled: Some(false),
        };
        assert_eq!(patch.legs, Some(vec![first, LegPatch::default()]));
    }

    #[test]
    fn nothing_is_a_patch() {
        assert_eq!(Patch::read(&json!({})).unwrap(), Patch::default());
    }

    #[test]
    fn null_is_not_absent() {
        let patch = Patch::read(&json!({
            "sender_id": null, "activation": { "mode": null }, "transport_file": { "data": null, "type": null }
        }));
        let expected =
            Patch { sender_id: Some(None), activation: Some(None), transport_file: Some(None), ..Patch::default() };
        assert_eq!(patch, Ok(expected));
    }

    #[test]
    fn each_error_names_its_property() {
        let cases = [
            (json!([]), "the body is a JSON object"),
            (json!({ "bad": "data" }), "`bad`"),
            (json!({ "master_enable": null }), "master_enable"),
            (json!({ "sender_id": "X" }), "sender_id"),
            (json!({ "sender_id": "1AD8A7A1-5A3A-4A4F-8A56-1A2B3C4D5E6F" }), "lower case"),
            (json!({ "activation": null }), "activation is a JSON object"),
            (json!({ "activation": { "mode": "now" } }), "`now`"),
            (json!({ "activation": { "mode": "activate_scheduled_absolute" } }), "requested_time"),
            (json!({ "activation": {} }), "no mode"),
            (json!({ "activation": { "requested_time": "1:1" } }), "no mode"),
            (json!({ "activation": { "mode": "activate_scheduled_relative", "requested_time": 5 } }), "string"),
            (json!({ "activation": { "mode": "activate_scheduled_relative", "requested_time": "5" } }), "<seconds>"),
            (json!({ "activation": { "mode": null, "time": "1:1" } }), "`time`"),
            (json!({ "transport_file": {} }), "type"),
            (json!({ "transport_file": { "type": "application/sdp" } }), "no data"),
            (json!({ "transport_file": { "data": "v=0" } }), "application/sdp"),
            (json!({ "transport_file": { "data": "v=0", "type": null } }), "application/sdp"),
            (json!({ "sender_id": "1ad8a7a1-5a3a-7a4f-8a56-1a2b3c4d5e6f" }), "UUID"),
            (json!({ "transport_file": { "data": "v=0", "type": "text/plain" } }), "`text/plain`"),
            (json!({ "transport_file": { "data": 0, "type": "application/sdp" } }), "string or null"),
            (json!({ "transport_params": {} }), "array"),
            (json!({ "transport_params": [{}, { "fec_enabled": true }] }), "leg 2 has no property `fec_enabled`"),
            (json!({ "transport_params": [{ "destination_port": 0 }] }), "leg 1: destination_port"),
            (json!({ "transport_params": [{ "destination_port": 65536 }] }), "65535"),
            (json!({ "transport_params": [{ "destination_port": "5004" }] }), "leg 1: destination_port"),
            (json!({ "transport_params": [{ "interface_ip": null }] }), "interface_ip"),
            (json!({ "transport_params": [{ "source_ip": "auto" }] }), "source_ip"),
            (json!({ "transport_params": [{ "multicast_ip": "example.org" }] }), "multicast_ip"),
            (json!({ "transport_params": [{ "rtp_enabled": "yes" }] }), "leg 1: rtp_enabled"),
        ];
        for (body, part) in cases {
            let text = error(body.clone());
            assert!(text.contains(part), "{body}: {text}");
        }
        let long = "x".repeat(MAX_SDP + 1);
        assert!(error(json!({ "transport_file": { "data": long, "type": "application/sdp" } })).contains("limit"));
    }

    #[test]
    fn bulk_reads_ids_and_leaves_params() {
        let id = "1ad8a7a1-5a3a-4a4f-8a56-1a2b3c4d5e6f";
        let list = bulk(&json!([{ "id": id, "params": { "bad": 1 } }])).unwrap();
        assert_eq!(list, [(id.to_owned(), json!({ "bad": 1 }))]);
        for bad in [json!({}), json!([1]), json!([{ "id": id }]), json!([{ "id": "x", "params": {} }])] {
            assert_eq!(bulk(&bad).unwrap_err().code, 400, "{bad}");
        }
        assert!(bulk(&json!([{ "id": id, "params": {}, "more": 1 }])).is_err());
    }
}
