//! Transport parameters of an RTP receiver, one set a leg (IS-05, "Behaviour: RTP Transport Type"): the core and the
//! multicast parameter set. FEC and RTCP are not offered.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What `"auto"` stands for as a destination port (the schema of IS-05).
pub const DEFAULT_PORT: u16 = 5004;

/// A value, or the receiver's own choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Auto<T> {
    /// The receiver chooses, anew at each activation.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// This one.
    #[serde(untagged)]
    Value(T),
}

/// What is asked of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LegParams {
    /// The only source that may send; any, where there is none.
    pub source_ip: Option<IpAddr>,
    /// The group; none for unicast.
    pub multicast_ip: Option<IpAddr>,
    /// The address whose interface receives.
    pub interface_ip: Auto<IpAddr>,
    /// The UDP port, never 0.
    pub destination_port: Auto<u16>,
    /// Whether this leg receives.
    pub rtp_enabled: bool,
}

impl Default for LegParams {
    /// As a receiver that has not been configured yet shows it ("Uninitialised Senders and Receivers").
    fn default() -> LegParams {
        LegParams {
            source_ip: None,
            multicast_ip: None,
            interface_ip: Auto::Auto,
            destination_port: Auto::Auto,
            rtp_enabled: true,
        }
    }
}

/// What a leg does, with every choice made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActiveLeg {
    /// The only source that may send; any, where there is none.
    pub source_ip: Option<IpAddr>,
    /// The group; none for unicast.
    pub multicast_ip: Option<IpAddr>,
    /// The address whose interface receives; unspecified only where the leg is off and its interface has none of the
    /// family.
    pub interface_ip: IpAddr,
    /// The UDP port, never 0.
    pub destination_port: u16,
    /// Whether this leg receives.
    pub rtp_enabled: bool,
}

impl LegParams {
    /// With the choices made among the `addresses` of its interface.
    ///
    /// # Errors
    /// The leg is `needed` and there is no address for it.
    pub(crate) fn resolve(&self, addresses: &[IpAddr], needed: bool) -> Result<ActiveLeg, String> {
        let family = self.multicast_ip.or(self.source_ip).map(|ip| ip.is_ipv4());
        let chosen = match self.interface_ip {
            Auto::Value(ip) => Some(ip),
            Auto::Auto => addresses.iter().copied().find(|ip| family.is_none_or(|v4| v4 == ip.is_ipv4())),
        };
        let interface_ip = match (chosen, family) {
            (Some(ip), _) => ip,
            (None, Some(false)) if !needed => Ipv6Addr::UNSPECIFIED.into(),
            (None, _) if !needed => Ipv4Addr::UNSPECIFIED.into(),
            (None, Some(false)) => return Err("its interface has no IPv6 address".into()),
            (None, _) => return Err("its interface has no IPv4 address".into()),
        };
        let destination_port = match self.destination_port {
            Auto::Auto => DEFAULT_PORT,
            Auto::Value(port) => port,
        };
        let LegParams { source_ip, multicast_ip, rtp_enabled, .. } = *self;
        Ok(ActiveLeg { source_ip, multicast_ip, interface_ip, destination_port, rtp_enabled })
    }

    /// Whether the values fit each other and an interface with these `addresses`.
    pub(crate) fn check(&self, addresses: &[IpAddr]) -> Result<(), String> {
        let list = || addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        if let Auto::Value(ip) = self.interface_ip
            && !addresses.contains(&ip)
        {
            return Err(format!("interface_ip {ip} is no address of this leg's interface, which has: {}", list()));
        }
        if let Some(ip) = self.multicast_ip
            && !ip.is_multicast()
        {
            return Err(format!("multicast_ip {ip} is no multicast address; it is null for unicast"));
        }
        if let Some(ip) = self.source_ip
            && (ip.is_multicast() || ip.is_unspecified())
        {
            return Err(format!("source_ip {ip} can send nothing; it is the sender's own address, or null for any"));
        }
        let mut given = [self.source_ip, self.multicast_ip, self.interface().copied()].into_iter().flatten();
        if let Some(first) = given.next()
            && given.any(|ip| ip.is_ipv4() != first.is_ipv4())
        {
            return Err("source_ip, multicast_ip and interface_ip are not all IPv4 or all IPv6".into());
        }
        Ok(())
    }

    const fn interface(&self) -> Option<&IpAddr> {
        match &self.interface_ip {
            Auto::Auto => None,
            Auto::Value(ip) => Some(ip),
        }
    }
}

/// A change of a leg; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LegPatch {
    /// The inner `None` is JSON's null.
    pub source_ip: Option<Option<IpAddr>>,
    /// The inner `None` is JSON's null.
    pub multicast_ip: Option<Option<IpAddr>>,
    /// The interface's address.
    pub interface_ip: Option<Auto<IpAddr>>,
    /// The UDP port.
    pub destination_port: Option<Auto<u16>>,
    /// Whether the leg receives.
    pub rtp_enabled: Option<bool>,
}

impl LegPatch {
    pub(crate) fn apply(&self, leg: &mut LegParams) {
        leg.source_ip = self.source_ip.unwrap_or(leg.source_ip);
        leg.multicast_ip = self.multicast_ip.unwrap_or(leg.multicast_ip);
        leg.interface_ip = self.interface_ip.unwrap_or(leg.interface_ip);
        leg.destination_port = self.destination_port.unwrap_or(leg.destination_port);
        leg.rtp_enabled = self.rtp_enabled.unwrap_or(leg.rtp_enabled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn json_is_that_of_is05() {
        let leg = LegParams {
            source_ip: Some(ip("172.29.226.24")),
            multicast_ip: Some(ip("232.21.21.133")),
            destination_port: Auto::Value(5000),
            ..LegParams::default()
        };
        let expected = json!({
            "source_ip": "172.29.226.24", "multicast_ip": "232.21.21.133", "interface_ip": "auto",
            "destination_port": 5000, "rtp_enabled": true
        });
        assert_eq!(serde_json::to_value(leg).unwrap(), expected);
        assert_eq!(serde_json::from_value::<LegParams>(expected).unwrap(), leg);
    }

    #[test]
    fn auto_takes_an_address_of_the_family() {
        let addresses = [ip("10.0.0.2"), ip("fd00::2")];
        let v6 = LegParams { multicast_ip: Some(ip("ff3e::1")), ..LegParams::default() };
        assert_eq!(v6.resolve(&addresses, true).unwrap().interface_ip, ip("fd00::2"));
        let open = LegParams::default().resolve(&addresses, true).unwrap();
        assert_eq!((open.interface_ip, open.destination_port), (ip("10.0.0.2"), 5004));
        assert!(v6.resolve(&addresses[..1], true).unwrap_err().contains("IPv6"));
        assert_eq!(LegParams::default().resolve(&[], false).unwrap().interface_ip, ip("0.0.0.0"));
        assert!(LegParams::default().resolve(&[], true).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let addresses = [ip("10.0.0.2"), ip("fd00::2")];
        let leg = |f: fn(&mut LegParams)| {
            let mut leg = LegParams::default();
            f(&mut leg);
            leg.check(&addresses)
        };
        assert!(leg(|_| {}).is_ok());
        assert!(leg(|l| l.interface_ip = Auto::Value(ip("10.0.0.2"))).is_ok());
        let no = leg(|l| l.interface_ip = Auto::Value(ip("10.0.0.3"))).unwrap_err();
        assert!(no.contains("10.0.0.2, fd00::2"), "{no}");
        assert!(leg(|l| l.multicast_ip = Some(ip("10.0.0.9"))).is_err());
        assert!(leg(|l| l.source_ip = Some(ip("239.0.0.1"))).is_err());
        assert!(leg(|l| l.source_ip = Some(ip("0.0.0.0"))).is_err());
        let mixed = |l: &mut LegParams| {
            l.multicast_ip = Some(ip("239.0.0.1"));
            l.source_ip = Some(ip("fd00::1"));
        };
        assert!(leg(mixed).unwrap_err().contains("IPv6"));
    }
}
