//! Which registries a node may use, and in which order (IS-04, "Discovery: Registered Operation").

use crate::resources::NODE_VERSION;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use uuid::Uuid;

/// A service of DNS-SD as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advert {
    /// Where it is; none while that is not known yet.
    pub addresses: Vec<IpAddr>,
    /// TCP port.
    pub port: u16,
    /// TXT records.
    pub txt: BTreeMap<String, String>,
}

/// A Registration API that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// `http://host:port`, and whatever stands before `/x-nmos`.
    pub url: String,
    /// TXT `pri`; the lowest is tried first.
    pub priority: u32,
    /// Order among those of one priority.
    pub tie: u64,
}

/// What a node wants of a registry.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Protocols that the client speaks: `http`, `https`.
    pub protocols: &'a [&'a str],
    /// Whether the client has tokens.
    pub authorization: bool,
    /// Whether registries for development are used, too: those of priority 100 and more, which IS-04 keeps apart from live
    /// systems.
    pub development: bool,
    /// The node; its id draws among registries of one priority, so that not all nodes take the same.
    pub node: Uuid,
}

/// From this `pri` on registries are for development (IS-04, "Discovery: Registered Operation", "pri").
const DEVELOPMENT: u64 = 100;

impl Wanted<'_> {
    /// The registries of `adverts` that fit, the best first.
    pub fn among(&self, adverts: &[Advert]) -> Vec<Registry> {
        let mut registries: Vec<Registry> = adverts.iter().filter_map(|advert| self.one(advert)).collect();
        registries.sort_by(|a, b| (a.priority, a.tie, &a.url).cmp(&(b.priority, b.tie, &b.url)));
        registries.dedup_by(|a, b| a.url == b.url);
        registries
    }

    fn one(&self, advert: &Advert) -> Option<Registry> {
        let text = |key: &str| advert.txt.get(key).map(|value| value.trim());
        // Absent means v1.0 over HTTP (IS-04, "APIs").
        let versions = text("api_ver").unwrap_or("v1.0");
        let protocol = text("api_proto").unwrap_or("http").to_ascii_lowercase();
        let authorization = text("api_auth").is_some_and(|auth| auth.eq_ignore_ascii_case("true"));
        let fits = versions.split(',').any(|version| version.trim() == NODE_VERSION)
            && self.protocols.contains(&protocol.as_str())
            && authorization == self.authorization
            && advert.port != 0;
        if !fits {
            return None;
        }
        // A link-local address needs an interface that a URL cannot name.
        let linked = |ip: &&IpAddr| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let mut addresses: Vec<&IpAddr> = advert.addresses.iter().filter(linked).collect();
        addresses.sort_by_key(|ip| (ip.is_ipv6(), **ip));
        let host = match addresses.first()? {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let url = format!("{protocol}://{host}:{}", advert.port);
        // It must be there; one that lacks it comes last, and nobody has said that it is for development.
        let given = text("pri").and_then(|pri| pri.parse::<u64>().ok());
        if given.is_some_and(|pri| pri >= DEVELOPMENT) && !self.development {
            return None;
        }
        let priority = given.and_then(|pri| u32::try_from(pri).ok()).unwrap_or(u32::MAX);
        Some(Registry { tie: draw(&url, self.node), url, priority })
    }
}

/// The registry that a user has named: `http://host:port`, with or without `/x-nmos/registration/v1.3`.
///
/// # Errors
/// It is no such URL.
pub fn named(url: &str, protocols: &[&str]) -> Result<String, String> {
    let (protocol, rest) =
        url.split_once("://").ok_or_else(|| format!("`{url}` is no URL; http://host:port is one"))?;
    if !protocols.contains(&protocol) {
        let known = protocols.join(" or ");
        return Err(format!("`{url}`: this program registers over {known}, not over {protocol}"));
    }
    let rest = rest.trim_end_matches('/');
    let rest = rest.strip_suffix(NODE_VERSION).map_or(rest, |rest| rest.trim_end_matches('/'));
    let rest = rest.strip_suffix("/x-nmos/registration").unwrap_or(rest);
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '@');
    if rest.is_empty() || rest.contains(bad) || rest.contains("/x-nmos") {
        return Err(format!("`{url}` is not the URL of a registry; http://host:port is one"));
    }
    Ok(format!("{protocol}://{rest}"))
}

fn draw(url: &str, node: Uuid) -> u64 {
    let mut hasher = DefaultHasher::new();
    (url, node.as_u128()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advert(address: &str, txt: &[(&str, &str)]) -> Advert {
        let txt = txt.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Advert { addresses: vec![address.parse().unwrap()], port: 80, txt }
    }

    fn urls(adverts: &[Advert]) -> Vec<String> {
        let wanted =
            Wanted { protocols: &["http"], authorization: false, development: false, node: Uuid::from_u128(1) };
        wanted.among(adverts).into_iter().map(|registry| registry.url).collect()
    }

    const FITS: [(&str, &str); 3] = [("api_ver", "v1.2,v1.3"), ("api_proto", "http"), ("api_auth", "false")];

    fn with(address: &str, more: &[(&str, &str)]) -> Advert {
        let mut advert = advert(address, &FITS);
        advert.txt.extend(more.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        advert
    }

    #[test]
    fn the_lowest_priority_first() {
        let found = [
            with("10.0.0.1", &[("pri", "99")]),
            with("10.0.0.2", &[("pri", "5")]),
            with("10.0.0.3", &[("pri", "30")]),
            with("10.0.0.4", &[]),
        ];
        let expected = ["http://10.0.0.2:80", "http://10.0.0.3:80", "http://10.0.0.1:80", "http://10.0.0.4:80"];
        assert_eq!(urls(&found), expected);
    }

    /// "Values 100+ are reserved for development work to avoid colliding with a live system."
    #[test]
    fn what_is_for_development_is_used_where_that_is_wanted() {
        let found = [
            with("10.0.0.1", &[("pri", "100")]),
            with("10.0.0.2", &[("pri", "99")]),
            with("10.0.0.3", &[("pri", "first")]),
            with("10.0.0.4", &[("pri", "4294967296")]),
        ];
        assert_eq!(urls(&found), ["http://10.0.0.2:80", "http://10.0.0.3:80"]);
        let wanted = Wanted { protocols: &["http"], authorization: false, development: true, node: Uuid::from_u128(1) };
        let all: Vec<String> = wanted.among(&found).into_iter().map(|registry| registry.url).collect();
        assert_eq!(all[..2], ["http://10.0.0.2:80", "http://10.0.0.1:80"]);
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let found = [
            with("10.0.0.1", &[("api_ver", "v9.0")]),
            with("10.0.0.2", &[("api_ver", "v1.0,v1.1,v1.2")]),
            with("10.0.0.3", &[("api_proto", "https")]),
            with("10.0.0.4", &[("api_proto", "invalid")]),
            with("10.0.0.5", &[("api_auth", "true")]),
            advert("10.0.0.6", &[]),
            Advert { addresses: vec![], ..with("10.0.0.7", &[]) },
            Advert { port: 0, ..with("10.0.0.8", &[]) },
            with("fe80::1", &[]),
            with("fd00::1", &[]),
        ];
        assert_eq!(urls(&found), ["http://[fd00::1]:80"]);
        let secure =
            Wanted { protocols: &["https"], authorization: true, development: false, node: Uuid::from_u128(1) };
        let found = [with("10.0.0.3", &[("api_proto", "https"), ("api_auth", "true")])];
        assert_eq!(secure.among(&found)[0].url, "https://10.0.0.3:80");
    }

    #[test]
    fn nodes_draw_differently_among_equals() {
        let found: Vec<Advert> = (1..=4).map(|n| with(&format!("10.0.0.{n}"), &[("pri", "0")])).collect();
        let first = |node: u128| {
            let wanted =
                Wanted { protocols: &["http"], authorization: false, development: false, node: Uuid::from_u128(node) };
            wanted.among(&found)[0].url.clone()
        };
        let firsts: std::collections::HashSet<String> = (0..64).map(first).collect();
        assert_eq!(firsts.len(), 4);
        assert_eq!(first(7), first(7));
    }

    #[test]
    fn a_named_registry_in_every_spelling() {
        let http = ["http"];
        for url in [
            "http://registry:8010",
            "http://registry:8010/",
            "http://registry:8010/x-nmos/registration",
            "http://registry:8010/x-nmos/registration/v1.3/",
        ] {
            assert_eq!(named(url, &http).as_deref(), Ok("http://registry:8010"), "{url}");
        }
        assert_eq!(named("http://proxy/a/b/x-nmos/registration/v1.3", &http).as_deref(), Ok("http://proxy/a/b"));
        for bad in ["registry:8010", "https://registry", "http://", "http://a b", "http://u@h", "http://h/x-nmos/query"]
        {
            assert!(named(bad, &http).is_err(), "{bad}");
        }
    }
}
