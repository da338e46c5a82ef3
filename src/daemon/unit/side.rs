//! A receiver's side that looks at networks, as its NMOS node shows it.

use super::{From, Unit};
use crate::daemon::config::{self, Backend, Word};
use crate::daemon::nmos::legs_of;
use crate::daemon::resume::Given;
use crate::daemon::{Port, Side};
use std::sync::Arc;

/// How many legs it has for controllers: never fewer than it had, as what they say is kept leg by leg.
#[derive(Debug, Default)]
pub(super) struct Legs {
    most: usize,
    counted: [Option<Arc<str>>; 2],
}

impl Legs {
    /// One, or two for ST 2022-7.
    pub fn shown(&self) -> usize {
        self.most.clamp(1, 2)
    }
}

impl Unit {
    pub(super) fn side(&mut self) -> Side {
        let flow = self.spec_of(&self.from).flow;
        self.count(flow);
        let spec = &self.spec;
        let codec = spec.encode.as_ref().and_then(|encode| encode.codec.as_ref()).map(|Word(spec)| spec.codec);
        Side {
            interfaces: spec.interfaces.clone(),
            legs: self.legs.shown(),
            ports: ports(spec, self.legs.shown()),
            flow,
            output: spec.output.map(Into::into),
            codec,
            note: self.connected().map(|connected| connected.note.clone()),
        }
    }

    /// As many as the configuration says; else as it has interfaces, or as its SDP has legs, as one interface may have both.
    fn count(&mut self, flow: Option<usize>) {
        if let Some(legs) = self.spec.legs {
            self.legs.most = legs;
            return;
        }
        let of = match &self.from {
            From::Given(Given { connected: Some(connected), .. }) => connected.of,
            _ => 0,
        };
        self.legs.most = self.legs.most.max(self.spec.interfaces.len()).max(of);
        let texts = [self.configured.clone(), self.sdp.clone().or_else(|| self.given())];
        if self.legs.counted == texts {
            return;
        }
        let [configured, other] = &texts;
        let configured = configured.as_ref().map(|text| legs_of(text, self.spec.flow));
        let other = other.as_ref().map(|text| legs_of(text, flow));
        self.legs.most = configured.into_iter().chain(other).fold(self.legs.most, usize::max);
        self.legs.counted = texts;
    }
}

/// Those of DPDK, leg by leg, where a leg may come by it.
fn ports(spec: &config::Receiver, legs: usize) -> Vec<Option<Port>> {
    let Some(words) = &spec.dpdk else { return vec![] };
    let all = |name: &str| -> Vec<&str> {
        let words = words.split(';').filter_map(|word| word.trim().split_once('='));
        words.filter(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value).collect()
    };
    let (names, addresses) = (all("port"), all("address"));
    let port = |leg: usize| {
        let backend = spec.backend.get(leg).or(spec.backend.last());
        let name =
            names.get(leg).or(names.last()).filter(|_| matches!(backend, Some(Backend::Auto | Backend::Dpdk)))?;
        let address = addresses.get(leg).or(addresses.last()).and_then(|address| address.parse().ok());
        Some(Port { name: (*name).to_owned(), address })
    };
    (0..legs).map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_come_by_the_ports_that_dpdk_is_told() {
        let of = |text: &str| ports(&toml::from_str(&format!("id = \"a\"\n{text}")).unwrap(), 2);
        let port = |name: &str, address: Option<&str>| {
            Some(Port { name: name.into(), address: address.map(|ip| ip.parse().unwrap()) })
        };
        assert_eq!(of("interfaces = [\"eth1\"]"), []);
        let one = of("dpdk = \"port=0000:3b:00.0; address=192.0.2.7;queues=2\"");
        assert_eq!(one, [port("0000:3b:00.0", Some("192.0.2.7")), port("0000:3b:00.0", Some("192.0.2.7"))]);
        let two = of("dpdk = \"port=net_af_packet,iface=eth1;port=0000:3b:00.1\"");
        assert_eq!(two, [port("net_af_packet,iface=eth1", None), port("0000:3b:00.1", None)]);
        let other = of("backend = [\"dpdk\", \"socket\"]\ndpdk = \"port=0000:3b:00.0\"");
        assert_eq!(other, [port("0000:3b:00.0", None), None]);
    }
}
