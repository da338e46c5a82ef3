//! Bodies of the fuzz targets, so that every build compiles them.

use crate::connection::{Connection, Side};
use crate::params::Auto;
use crate::patch::{self, Patch, When};
use crate::receivers::Format;
use crate::time::Tai;
use crate::transport_file;

/// Bodies of PATCHes and bulk requests, and the same octets as an SDP: what is accepted has the shape that IS-05 wants.
/// The first octet says what receiver it is.
pub fn patch(octets: &[u8]) {
    let Some((kind, rest)) = octets.split_first() else { return };
    let two = kind & 1 == 1;
    let format = [Format::Video, Format::Audio, Format::Data, Format::Mux][usize::from(kind >> 1 & 3)];
    let mut addresses = vec![vec!["192.0.2.2".parse().unwrap_or(std::net::Ipv4Addr::LOCALHOST.into())]];
    if two {
        addresses.push(vec![]);
    }
    let legs = addresses.len();
    let mut connection = Connection::new(Side { format, media_types: vec![], addresses });
    if let Ok(text) = std::str::from_utf8(rest)
        && let Ok(reading) = transport_file::read(text, format, legs)
    {
        assert_eq!(reading.legs.len(), legs);
        assert!(reading.legs.iter().all(|leg| leg.multicast_ip.is_none_or(|ip| ip.is_multicast())));
        assert!(reading.refusal.is_some() != reading.flow.usable);
    }
    let Ok(body) = patch::json(rest) else { return };
    let _ = patch::bulk(&body);
    let Ok(patch) = Patch::read(&body) else { return };
    let Ok(staged) = connection.merge(&patch) else { return };
    assert_eq!(staged.legs.len(), legs);
    connection.stage(staged);
    if let Some(when) = patch.activation.flatten() {
        let serial = connection.schedule(when, when.requested().unwrap_or_default());
        assert_eq!(connection.scheduled().map(|(serial, _)| serial), Some(serial));
        assert_eq!(connection.merge(&Patch::default()).map_err(|refusal| refusal.code), Err(423));
    }
    if let Ok(activation) = connection.resolve(connection.staged()) {
        let port = |at: usize| connection.staged().legs.get(at).map(|leg| leg.destination_port);
        for (at, leg) in activation.legs.iter().enumerate() {
            assert!(leg.destination_port > 0);
            assert!(matches!(port(at), Some(Auto::Auto)) || port(at) == Some(Auto::Value(leg.destination_port)));
        }
        connection.activated(activation, Some(When::Immediate), Tai(1));
        assert!(connection.scheduled().is_none());
    }
    let saved = connection.saved();
    let text = serde_json::to_string(&saved).unwrap_or_default();
    assert_eq!(serde_json::from_str::<crate::Saved>(&text).ok(), Some(saved), "what is saved is read again");
    assert!(connection.active_document().get("transport_params").is_some_and(|params| params.is_array()));
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_octets() {
        super::patch(b"");
        super::patch(&[0xff; 64]);
        super::patch(b"\x01v=0\r\nm=video 5004 RTP/AVP 96\r\n");
        super::patch(b"\x03{\"master_enable\":true,\"activation\":{\"mode\":\"activate_immediate\"}}");
        super::patch(b"\x00{\"activation\":{\"mode\":\"activate_scheduled_absolute\",\"requested_time\":\"1:1\"}}");
        super::patch(&vec![b'['; 100_000]);
    }
}
