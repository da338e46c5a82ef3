//! The table `[api]` of the configuration.

use crate::error::{Error, Kind, Result};
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// Where the API listens, and whom it lets in. The table `[api]` of the configuration:
///
/// ```toml
/// [api]
/// listen = ["127.0.0.1:8080", "10.1.0.7:8443"]
/// hosts = ["ingest.example.org"]
///
/// [api.tls]
/// certificate = "/etc/gdmedia/tls.crt"
/// key = "/etc/gdmedia/tls.key"
///
/// [[api.tokens]]
/// name = "wall"
/// file = "/etc/gdmedia/wall.token"
///
/// [[api.tokens]]
/// name = "operators"
/// sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
/// scopes = ["control"]
///
/// [api.limits]
/// requests_per_second = 200
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Addresses with ports, one or a list; an empty list: no API. Port 0 is any free one. `127.0.0.1:8080` when nothing is
    /// said.
    #[serde(deserialize_with = "one_or_several")]
    pub listen: Vec<SocketAddr>,
    /// Listens beyond this machine although there are no tokens: whoever reaches it sees and steers everything.
    pub open: bool,
    /// Names that browsers and others may have for it, besides addresses, `localhost` and this machine's name.
    pub hosts: Vec<String>,
    /// HTTPS instead of HTTP, at all addresses.
    pub tls: Option<Tls>,
    /// Who may do what. Where there is one, every request for data needs one, from this machine as well.
    pub tokens: Vec<Token>,
    /// What a client may take up.
    pub limits: Limits,
}

/// The table `[api.tls]`: PEM files, read again when they change and when the configuration is read again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The server's certificate, then those between it and a root.
    pub certificate: PathBuf,
    /// Its private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// A table `[[api.tokens]]`: a bearer token (RFC 6750), from a file or known by its hash alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// For people, and in logs.
    pub name: String,
    /// A file that holds the token and nothing else.
    pub file: Option<PathBuf>,
    /// SHA-256 of the token, in hexadecimal: `printf %s "$TOKEN" | sha256sum`.
    pub sha256: Option<String>,
    /// What it allows: `read`, or `control`, which includes `read`. `read` when nothing is said.
    #[serde(default = "read_only")]
    pub scopes: Vec<Scope>,
}

/// What a request needs, and a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// To see.
    Read,
    /// To start, stop and switch receivers, and to have the configuration read again. To see as well.
    Control,
}

/// The table `[api.limits]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Octets of a request's body.
    pub body: usize,
    /// Octets of a request's line and headers.
    pub header: usize,
    /// Headers of a request.
    pub headers: usize,
    /// Requests a second of one peer (IPv6: of its /64), in the long run.
    pub requests_per_second: u32,
    /// Requests that a peer may make at once.
    pub burst: u32,
    /// Connections at once, of all peers.
    pub connections: usize,
    /// Connections at once of one peer.
    pub connections_per_peer: usize,
    /// Seconds in which a request must have come, its headers and its body each.
    pub request_seconds: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))],
            open: false,
            hosts: Vec::new(),
            tls: None,
            tokens: Vec::new(),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            body: 64 << 10,
            header: 16 << 10,
            headers: 64,
            requests_per_second: 100,
            burst: 400,
            connections: 256,
            connections_per_peer: 64,
            request_seconds: 10,
        }
    }
}

/// Where nothing else is said.
pub const PORT: u16 = 8080;

fn read_only() -> Vec<Scope> {
    vec![Scope::Read]
}

fn one_or_several<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Vec<SocketAddr>, D::Error> {
    struct Addresses;
    impl<'de> serde::de::Visitor<'de> for Addresses {
        type Value = Vec<SocketAddr>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an address with its port, such as \"127.0.0.1:8080\", or a list of them")
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Self::Value, E> {
            Ok(vec![address(text).map_err(E::custom)?])
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(text) = seq.next_element::<String>()? {
                all.push(address(&text).map_err(serde::de::Error::custom)?);
            }
            Ok(all)
        }
    }
    from.deserialize_any(Addresses)
}

fn address(text: &str) -> std::result::Result<SocketAddr, String> {
    let numbers = text.replacen("localhost:", "127.0.0.1:", 1);
    numbers.parse().map_err(|_| match numbers.parse::<IpAddr>() {
        Ok(ip) => format!("{text:?} has no port: write \"{}\"", SocketAddr::new(ip, PORT)),
        Err(_) => {
            format!("{text:?} is no address with a port: write one like \"127.0.0.1:{PORT}\" or \"[::1]:{PORT}\"")
        }
    })
}

impl Settings {
    /// What is wrong with them, files aside.
    ///
    /// # Errors
    /// They would let anybody in from elsewhere without that being said; a token or a limit is none ([`Kind::Usage`]).
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String, cure: &str| Err(Error::new(Kind::Usage, what).cure(cure));
        if let Some(address) = self.listen.iter().find(|address| !address.ip().is_loopback())
            && self.tokens.is_empty()
            && !self.open
        {
            return wrong(
                format!("[api] listens at {address}, which others reach, and has no tokens"),
                "add [[api.tokens]], or listen at 127.0.0.1, or say open = true in [api] where everybody in the network may \
                 see and steer all receivers",
            );
        }
        for (n, address) in self.listen.iter().enumerate() {
            if self.listen[..n].contains(address) {
                return wrong(format!("listen in [api] names {address} twice"), "name it once");
            }
        }
        for (n, token) in self.tokens.iter().enumerate() {
            let name = &token.name;
            if self.tokens[..n].iter().any(|other| other.name == *name) {
                return wrong(format!("[[api.tokens]] has two with the name {name:?}"), "give each its own name");
            }
            if token.file.is_some() == token.sha256.is_some() {
                return wrong(
                    format!("the token {name:?} in [[api.tokens]] needs either file or sha256"),
                    "write file = \"/etc/gdmedia/NAME.token\", or sha256 = \"...\" of `printf %s TOKEN | sha256sum`",
                );
            }
            if token.scopes.is_empty() {
                return wrong(
                    format!("the token {name:?} in [[api.tokens]] allows nothing"),
                    "write scopes = [\"read\"] or scopes = [\"control\"]",
                );
            }
        }
        self.limits.check()
    }
}

impl Limits {
    fn check(&self) -> Result<()> {
        let within = |name: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            let what = format!("{name} = {value} in [api.limits] is not between {least} and {most}");
            let cure = format!("leave {name} out, or give it a value between these");
            Err(Error::new(Kind::Usage, what).cure(cure))
        };
        within("body", self.body, 1 << 10, 16 << 20)?;
        within("header", self.header, 1 << 10, 1 << 20)?;
        within("headers", self.headers, 8, 1000)?;
        within("requests_per_second", self.requests_per_second as usize, 1, 100_000)?;
        within("burst", self.burst as usize, 1, 1_000_000)?;
        within("connections", self.connections, 1, 10_000)?;
        within("connections_per_peer", self.connections_per_peer, 1, 10_000)?;
        within("request_seconds", self.request_seconds as usize, 1, 600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> std::result::Result<Settings, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn nothing_said_is_this_machine_alone() {
        let settings = read("").unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.listen, ["127.0.0.1:8080".parse().unwrap()]);
        settings.check().unwrap();
    }

    #[test]
    fn all_of_it() {
        let settings = read(
            "listen = [\"[::1]:1\", \"localhost:2\"]\nhosts = [\"a\"]\ntls = { certificate = \"c\", key = \"k\" }\n\
             [[tokens]]\nname = \"n\"\nfile = \"f\"\n[[tokens]]\nname = \"m\"\nsha256 = \"s\"\nscopes = [\"read\", \"control\"]\n\
             [limits]\nburst = 7\n",
        )
        .unwrap();
        assert_eq!(settings.listen, ["[::1]:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()]);
        assert_eq!(settings.tokens[0].scopes, [Scope::Read]);
        assert_eq!(settings.tokens[1].scopes, [Scope::Read, Scope::Control]);
        assert_eq!((settings.limits.burst, settings.limits.body), (7, 65_536));
        assert_eq!(read("listen = \"0.0.0.0:80\"").unwrap().listen, ["0.0.0.0:80".parse().unwrap()]);
        assert_eq!(read("listen = []").unwrap().listen, []);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wanted) in [
            ("listen = \"127.0.0.1\"", "has no port: write \"127.0.0.1:8080\""),
            ("listen = [\"example.org:80\"]", "is no address with a port"),
            ("listen = 8080", "an address with its port"),
            ("lisen = \"127.0.0.1:1\"", "unknown field `lisen`"),
            ("[limits]\nbodies = 1", "unknown field `bodies`"),
            ("[[tokens]]\nname = \"n\"\nfile = \"f\"\nscopes = [\"write\"]", "unknown variant `write`"),
            ("[tls]\ncertificate = \"c\"", "missing field `key`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        for (text, what) in [
            ("listen = \"0.0.0.0:80\"", "which others reach, and has no tokens"),
            ("listen = [\"127.0.0.1:1\", \"10.0.0.1:80\"]", "[api] listens at 10.0.0.1:80"),
            ("listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", "names 127.0.0.1:1 twice"),
            ("[[tokens]]\nname = \"n\"", "needs either file or sha256"),
            ("[[tokens]]\nname = \"n\"\nfile = \"f\"\nsha256 = \"s\"", "needs either file or sha256"),
            ("[[tokens]]\nname = \"n\"\nfile = \"f\"\nscopes = []", "allows nothing"),
            (
                "[[tokens]]\nname = \"n\"\nfile = \"f\"\n[[tokens]]\nname = \"n\"\nfile = \"g\"",
                "two with the name \"n\"",
            ),
            ("[limits]\nbody = 1", "body = 1 in [api.limits] is not between 1024 and 16777216"),
            ("[limits]\nrequest_seconds = 0", "request_seconds = 0"),
        ] {
            let error = read(text).unwrap().check().unwrap_err();
            assert!(error.to_string().contains(what) && !error.cure_text().is_empty(), "{text}: {error}");
        }
        read("listen = \"0.0.0.0:80\"\nopen = true").unwrap().check().unwrap();
        read("listen = \"0.0.0.0:80\"\n[[tokens]]\nname = \"n\"\nfile = \"f\"").unwrap().check().unwrap();
    }
}
