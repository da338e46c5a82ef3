//! The table `[nmos]` of the configuration.

use crate::daemon::api;
use crate::daemon::config::Time;
use crate::daemon::config::table::{Written, table};
use crate::error::{Error, Kind, Result};
use gdmedia_nmos::Endpoint;
use gdmedia_nmos::registration::select;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

table! {
    /// The daemon as an NMOS node (IS-04, IS-05), below /x-nmos of the API. Read at the start only.
    pub struct Settings {
        /// Whether it is one.
        enabled: bool = false, "true";
        /// What all its ids are made of: unique in the facility, and the same for ever. None: this machine's id and name at the first
        /// start, kept in `state.folder`.
        seed: Option<String> = None, "\"ingest-3\"";
        /// For people; none: this machine's name.
        label: Option<String> = None, "\"Ingest 3\"";
        /// For people.
        description: String = String::new(), "\"Studio A\"";
        /// More tags of IS-04: a key, and values.
        tags: Tags = Tags::default(), "{ location = [\"rack 4\"] }";
        /// URLs of registries, the first one before the others; an empty list: they are looked for.
        registry: Vec<String> = Vec::new(), "[\"http://10.0.0.5:8010\"]";
        /// Looks for a registry by multicast DNS where none is named; without one the node announces itself.
        discovery: bool = true, "true";
        /// Takes registries for development, too: those that announce a priority of 100 or more.
        development: bool = false, "true";
        /// From one heartbeat to the next, 1 s to 10 s: a registry forgets a node after 12 s, unless it was told otherwise.
        heartbeat: Time = Time(Duration::from_secs(5)), "\"5s\"";
        /// Interfaces of the control network, for that; an empty list: all.
        discovery_interfaces: Vec<String> = Vec::new(), "[\"eth0\"]";
        /// Names or addresses that controllers are told; an empty list: the addresses that the API listens at.
        address: Vec<String> = Vec::new(), "[\"ingest3.example.org\"]";
        /// Says nothing of formats but that video is received, for controllers that hide too much otherwise (no constraint sets).
        wide: bool = false, "true";
    }
}

/// Tags of IS-04.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(transparent)]
pub struct Tags(pub BTreeMap<String, Vec<String>>);

impl Written for Tags {
    fn written(&self) -> Option<String> {
        // There are none by default.
        None
    }
}

impl Settings {
    /// What is wrong with them, beside these of the API.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub fn check(&self, api: &api::Settings) -> Result<()> {
        let wrong = |what: String, cure: &str| Err(Error::new(Kind::Usage, what).cure(cure));
        if !self.enabled {
            return Ok(());
        }
        if api.listen.is_empty() {
            return wrong(
                "[nmos] is enabled, and listen in [api] names no address".into(),
                "let the API listen at an address of the control network: the node is served there",
            );
        }
        if self.seed.as_ref().is_some_and(|seed| seed.trim().is_empty()) {
            return wrong("seed in [nmos] is empty".into(), "give it a name that no other node has, or leave it out");
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(10)).contains(&self.heartbeat.0) {
            return wrong(
                "heartbeat in [nmos] is not between 1s and 10s".into(),
                "write heartbeat = \"5s\", or the time that all nodes of the facility use",
            );
        }
        for url in &self.registry {
            if let Err(why) = select::named(url, &["http"]) {
                return wrong(format!("registry in [nmos]: {why}"), "write one like \"http://10.0.0.5:8010\"");
            }
        }
        for host in &self.address {
            let endpoint = Endpoint { host: host.clone(), port: api::PORT, secure: false, authorization: false };
            if let Err(why) = endpoint.check() {
                return wrong(format!("address in [nmos]: {why}"), why.cure());
            }
        }
        if let Some(told) = self.told_themselves(api)
            && let Some(registry) = self.registry.iter().find(|url| !is_here(host_of(url)))
        {
            return wrong(
                format!("[nmos] registers at {registry} that it is at {told}, where every controller finds itself"),
                ELSEWHERE,
            );
        }
        Ok(())
    }

    /// What is not wrong, and yet not as somebody may think: to be said at the start.
    pub fn remark(&self, api: &api::Settings) -> Option<String> {
        let told = self.told_themselves(api).filter(|_| self.enabled && self.registry.is_empty() && self.discovery)?;
        Some(format!("NMOS: controllers are told {told}, where nobody but this machine finds the node ({ELSEWHERE})"))
    }

    /// The address that controllers are told, where it is one of the loopback: as there is none else.
    fn told_themselves(&self, api: &api::Settings) -> Option<String> {
        let here = match self.address.is_empty() {
            true => api.listen.iter().all(|address| address.ip().is_loopback()),
            false => self.address.iter().all(|host| is_here(host)),
        };
        let first = self.address.first().cloned().or_else(|| api.listen.first().map(ToString::to_string));
        first.filter(|_| here)
    }
}

/// The cure where only this machine reaches the node.
const ELSEWHERE: &str = "let [api] listen at an address of the control network, with [[api.tokens]] or open = true; or name \
                         in address of [nmos] where a proxy serves it";

/// This machine, whoever says it.
fn is_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The host of `http://host:port/`, without the brackets of IPv6 (RFC 3986, 3.2.2).
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(inside) => inside.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        let api = api::Settings::default();
        let read = |text: &str| toml::from_str::<Settings>(text).unwrap();
        assert!(read("").check(&api::Settings { listen: api::Listen(vec![]), ..api.clone() }).is_ok());
        let on = read("enabled = true\nregistry = [\"http://127.0.0.1:8010\"]\ntags = { a = [\"b\", \"c\"] }\n");
        on.check(&api).unwrap();
        assert_eq!(on.tags.0["a"], ["b", "c"]);
        let deaf = on.check(&api::Settings { listen: api::Listen(vec![]), ..api.clone() }).unwrap_err();
        assert!(deaf.to_string().contains("names no address"), "{deaf}");
        for (text, what) in [
            ("enabled = true\nseed = \" \"", "seed"),
            ("enabled = true\nheartbeat = \"999ms\"", "heartbeat"),
            ("enabled = true\nheartbeat = \"11s\"", "heartbeat"),
            ("enabled = true\nregistry = [\"10.0.0.5\"]", "registry"),
            ("enabled = true\nregistry = [\"https://10.0.0.5\"]", "registry"),
            ("enabled = true\naddress = [\"rx.local\"]", "mDNS"),
            ("enabled = true\naddress = [\"rx.example.org\", \"0.0.0.0\"]", "no address that a controller could reach"),
            ("enabled = true\naddress = [\"http://rx\"]", "neither a host name nor an address"),
        ] {
            let error = read(text).check(&api).unwrap_err();
            assert!(error.to_string().contains(what) && !error.cure_text().is_empty(), "{text}: {error}");
            // Whoever wants no node may write what he likes.
            read(&text.replace("true", "false")).check(&api).unwrap();
        }
    }

    #[test]
    fn controllers_elsewhere_are_not_told_the_loopback() {
        let at = |listen: &str| {
            let listen = listen.split(' ').map(|address| address.parse().unwrap()).collect();
            api::Settings { listen: api::Listen(listen), open: true, ..api::Settings::default() }
        };
        let of = |more: &str| toml::from_str::<Settings>(&format!("enabled = true\n{more}")).unwrap();
        let here = "127.0.0.1:8080 [::1]:8080";
        for (registry, fits) in [
            ("http://10.0.0.5:8010", false),
            ("http://registry.example.org", false),
            ("http://[2001:db8::5]:8010", false),
            ("http://127.0.0.1:8010", true),
            ("http://localhost:8010", true),
            ("http://[::1]:8010/", true),
        ] {
            let named = of(&format!("registry = [\"{registry}\"]"));
            assert_eq!(named.check(&at(here)).is_ok(), fits, "{registry}");
            named.check(&at("127.0.0.1:8080 10.0.0.7:8080")).unwrap();
            named.check(&at("0.0.0.0:8080")).unwrap();
            // What a proxy in front serves.
            let by_proxy = of(&format!("registry = [\"{registry}\"]\naddress = [\"rx.example.org\"]"));
            by_proxy.check(&at(here)).unwrap();
            let itself = of(&format!("registry = [\"{registry}\"]\naddress = [\"localhost\"]"));
            assert_eq!(itself.check(&at("0.0.0.0:8080")).is_ok(), fits, "{registry}");
        }
        let error = of("registry = [\"http://10.0.0.5:8010\"]").check(&at(here)).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:8080, where every controller finds itself"), "{error}");
        assert!(error.cure_text().contains("open = true"), "{error}");
        // A registry that is looked for may be on this machine.
        assert!(of("").remark(&at(here)).unwrap().contains("127.0.0.1:8080"));
        for (more, listen) in [("", "10.0.0.7:80"), ("discovery = false", here), ("address = [\"10.0.0.7\"]", here)] {
            assert_eq!(of(more).remark(&at(listen)), None, "{more}");
        }
    }
}
