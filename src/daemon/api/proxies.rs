//! Who asks where a proxy hands requests on: as `X-Forwarded-For` says, by whose word is taken.

use crate::error::{Error, Kind, Result};
use axum::http::HeaderMap;
use std::net::IpAddr;

/// Proxies that say whom they ask for. Where there is none everybody is who he is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Proxies(Vec<Network>);

/// An address and how many of its bits count (CIDR, RFC 4632, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    of: u128,
    /// Bits that do not count, of the 128 of IPv6; IPv4 is mapped into it (RFC 4291, 2.5.5.2).
    rest: u32,
}

impl Network {
    fn read(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok()).filter(|bits| *bits <= most)?;
        let rest = most - bits;
        Some(Network { of: upper(mapped(address), rest), rest })
    }
    fn has(&self, address: IpAddr) -> bool {
        upper(mapped(address), self.rest) == self.of
    }
}

fn mapped(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn upper(bits: u128, rest: u32) -> u128 {
    bits.checked_shr(rest).unwrap_or(0)
}

impl Proxies {
    /// Of their addresses, and of networks with such.
    ///
    /// # Errors
    /// One is neither ([`Kind::Usage`]).
    pub fn read(all: &[String]) -> Result<Self> {
        let one = |text: &String| {
            Network::read(text).ok_or_else(|| {
                let what = format!("trusted_proxies in [api]: {text:?} is no address and no network");
                Error::new(Kind::Usage, what).cure("write one like \"127.0.0.1\", \"10.0.0.0/24\" or \"2001:db8::/64\"")
            })
        };
        all.iter().map(one).collect::<Result<_>>().map(Proxies)
    }

    /// Is this one of them?
    pub fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.has(address))
    }

    /// Who asks by a connection of `peer`: the last one of `X-Forwarded-For` that is none of them. Each proxy adds at the end whom it
    /// heard it from, so that what is before that one may be anybody's invention.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.has(peer) {
            return peer;
        }
        let mut client = peer;
        for value in headers.get_all("x-forwarded-for").iter().rev() {
            for text in value.to_str().unwrap_or_default().rsplit(',') {
                let Ok(address) = text.trim().parse::<IpAddr>() else { return client };
                client = address;
                if !self.has(address) {
                    return client;
                }
            }
        }
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(all: &[&str]) -> Result<Proxies> {
        Proxies::read(&all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_last_one_that_is_no_proxy_asks() {
        let known = proxies(&["127.0.0.1", "10.0.0.0/24", "2001:db8::/64"]).unwrap();
        let client = |peer: &str, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", value.parse().unwrap());
            }
            known.client(peer.parse().unwrap(), &headers).to_string()
        };
        for (peer, values, wanted) in [
            // Nobody else's word counts.
            ("192.0.2.1", &["198.51.100.1"][..], "192.0.2.1"),
            ("10.0.1.1", &["198.51.100.1"], "10.0.1.1"),
            ("127.0.0.1", &[], "127.0.0.1"),
            ("127.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:127.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            // What comes first is what a client says of itself.
            ("127.0.0.1", &["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
            ("127.0.0.1", &["203.0.113.9", "198.51.100.1 , 10.0.0.9,2001:db8::5"], "198.51.100.1"),
            ("2001:db8::1", &["2001:db8:1::1"], "2001:db8:1::1"),
            // From inside, and what is no address.
            ("127.0.0.1", &["10.0.0.9"], "10.0.0.9"),
            ("127.0.0.1", &["198.51.100.1, unknown, 10.0.0.9"], "10.0.0.9"),
            ("127.0.0.1", &["198.51.100.1:4711"], "127.0.0.1"),
            ("127.0.0.1", &[""], "127.0.0.1"),
        ] {
            assert_eq!(client(peer, values), wanted, "{peer} {values:?}");
        }
        assert!(proxies(&["0.0.0.0/0"]).unwrap().has([203, 0, 113, 9].into()));
        assert!(!proxies(&["0.0.0.0/0"]).unwrap().has("2001:db8::1".parse().unwrap()));
        assert!(proxies(&["::/0"]).unwrap().has("2001:db8::1".parse().unwrap()));
        for wrong in ["", "localhost", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "2001:db8::/129", "10.0.0.0/24/1"] {
            let error = proxies(&[wrong]).unwrap_err();
            assert!(error.to_string().contains("trusted_proxies") && !error.cure_text().is_empty(), "{error}");
        }
    }
}
