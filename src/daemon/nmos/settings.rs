//! The table `[nmos]` of the configuration.

use crate::daemon::api;
use crate::daemon::config::Time;
use crate::daemon::config::table::{Written, table};
use crate::error::{Error, Kind, Result};
use gdmedia_nmos::registration::select;
use std::collections::BTreeMap;
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
        Ok(())
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
        let on = read("enabled = true\nregistry = [\"http://10.0.0.5:8010\"]\ntags = { a = [\"b\", \"c\"] }\n");
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
        ] {
            let error = read(text).check(&api).unwrap_err();
            assert!(error.to_string().contains(what) && !error.cure_text().is_empty(), "{text}: {error}");
        }
    }
}
