//! The table `[api]` of the configuration.

use super::guard::Policy;
use super::proxies::Proxies;
use crate::daemon::config::table::{Written, table, words};
use crate::error::{Error, Kind, Result};
use serde::{Deserialize, Deserializer};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

table! {
    /// The API: where it listens, and whom it lets in.
    pub struct Settings {
        /// Addresses with ports, one or a list; an empty list: no API. Port 0 is any free one.
        listen: Listen = Listen::default(), "\"127.0.0.1:8080\"";
        /// Listens beyond this machine although there are no tokens: whoever reaches it sees and steers everything.
        open: bool = false, "true";
        /// Names that clients may have for it, besides addresses, `localhost`, this machine's name and `address` in `[nmos]`.
        hosts: Vec<String> = Vec::new(), "[\"ingest.example.org\"]";
        /// Proxies whose `X-Forwarded-For` says who asks, for the limits: addresses, or networks of them.
        /// Each has to add at its end whom it heard it from.
        trusted_proxies: Vec<String> = Vec::new(), "[\"127.0.0.1\", \"10.0.0.0/24\"]";
        /// HTTPS instead of HTTP, at all addresses.
        tls: Option<Tls> = None, "";
        /// Who may do what. Where there is one, every request for data needs one, from this machine as well.
        tokens: Vec<Token> = Vec::new(), "";
        /// What a client may take up.
        limits: Limits = Limits::default(), "";
    }
}

table! {
    /// HTTPS by PEM files, which are read again when they change and when the configuration is read again.
    pub struct Tls {
        /// The server's certificate, then those between it and a root.
        certificate: PathBuf = PathBuf::new(), "\"/etc/gdmedia/tls.crt\"";
        /// Its private key: PKCS #8, PKCS #1 or SEC 1.
        key: PathBuf = PathBuf::new(), "\"/etc/gdmedia/tls.key\"";
    }
}

table! {
    /// A bearer token (RFC 6750), from a file or known by its hash alone: one of both.
    pub struct Token {
        /// For people.
        name: String = String::new(), "\"wall\"";
        /// A file that holds the token and nothing else.
        file: Option<PathBuf> = None, "\"/etc/gdmedia/wall.token\"";
        /// SHA-256 of the token, in hexadecimal: `printf %s "$TOKEN" | sha256sum`.
        sha256: Option<String> = None, "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"";
        /// What it allows: `read`, or `control`, which includes `read`.
        scopes: Vec<Scope> = vec![Scope::Read], "[\"read\"]";
    }
}

words! {
    /// What a request needs, and a token allows.
    pub enum Scope {
        /// To see.
        Read = "read",
        /// To start, stop and switch receivers, and to have the configuration read again. To see as well.
        Control = "control",
    }
}

table! {
    /// What a client of the API may take up.
    pub struct Limits {
        /// Octets of a request's body.
        body: usize = 65536, "65536";
        /// Octets of a request's line and headers.
        header: usize = 16384, "16384";
        /// Headers of a request.
        headers: usize = 64, "64";
        /// Requests a second of one peer (IPv6: of its /64), in the long run.
        requests_per_second: u32 = 100, "100";
        /// Requests that a peer may make at once.
        burst: u32 = 400, "400";
        /// Connections at once, of all peers; as it was at the start.
        connections: usize = 256, "256";
        /// Connections at once of one peer.
        connections_per_peer: usize = 64, "64";
        /// Seconds in which a request must have come, its headers and its body each.
        request_seconds: u32 = 10, "10";
    }
}

/// Addresses that are listened at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen(pub Vec<SocketAddr>);

impl Default for Listen {
    fn default() -> Self {
        Listen(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))])
    }
}
impl std::ops::Deref for Listen {
    type Target = Vec<SocketAddr>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
impl Written for Listen {
    fn written(&self) -> Option<String> {
        let all: Vec<String> = self.iter().map(|address| format!("\"{address}\"")).collect();
        Some(format!("[{}]", all.join(", ")))
    }
}

/// Where nothing else is said.
pub const PORT: u16 = 8080;

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Addresses;
        impl<'de> serde::de::Visitor<'de> for Addresses {
            type Value = Listen;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an address with its port, such as \"127.0.0.1:8080\", or a list of them")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Listen, E> {
                Ok(Listen(vec![address(text).map_err(E::custom)?]))
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Listen, A::Error> {
                let mut all = Vec::new();
                while let Some(text) = seq.next_element::<String>()? {
                    all.push(address(&text).map_err(serde::de::Error::custom)?);
                }
                Ok(Listen(all))
            }
        }
        from.deserialize_any(Addresses)
    }
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
            let has = |all: &SocketAddr, one: &SocketAddr| {
                all.ip().is_unspecified()
                    && all.is_ipv4() == one.is_ipv4()
                    && all.port() == one.port()
                    && one.port() != 0
            };
            if let Some(other) = self.listen.iter().find(|other| *other != address && has(address, other)) {
                return wrong(
                    format!("listen in [api] names {address} and {other}, which is one of these"),
                    "name one of both: the first one has every address of this machine",
                );
            }
        }
        for (n, token) in self.tokens.iter().enumerate() {
            let name = &token.name;
            if name.is_empty() {
                return wrong("a token in [[api.tokens]] has no name".into(), "give it one, such as name = \"wall\"");
            }
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
        if let Some(tls) = &self.tls
            && (tls.certificate.as_os_str().is_empty() || tls.key.as_os_str().is_empty())
        {
            return wrong(
                "[api.tls] needs both certificate and key".into(),
                "write certificate = \"/etc/gdmedia/tls.crt\" and key = \"/etc/gdmedia/tls.key\"",
            );
        }
        Proxies::read(&self.trusted_proxies)?;
        self.limits.check()
    }
}

impl Settings {
    /// What is wrong with them and with their files: certificate, key, tokens.
    ///
    /// # Errors
    /// As of [`Settings::check`]; a file cannot be read, or does not hold what it should.
    pub fn check_files(&self) -> Result<()> {
        Policy::read(self).map(drop)
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
        assert_eq!(*settings.listen, ["127.0.0.1:8080".parse().unwrap()]);
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
        assert_eq!(*settings.listen, ["[::1]:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()]);
        assert_eq!(settings.tokens[0].scopes, [Scope::Read]);
        assert_eq!(settings.tokens[1].scopes, [Scope::Read, Scope::Control]);
        assert_eq!((settings.limits.burst, settings.limits.body), (7, 65_536));
        assert_eq!(*read("listen = \"0.0.0.0:80\"").unwrap().listen, ["0.0.0.0:80".parse().unwrap()]);
        assert_eq!(*read("listen = []").unwrap().listen, []);
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
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        for (text, what) in [
            ("listen = \"0.0.0.0:80\"", "which others reach, and has no tokens"),
            ("listen = [\"127.0.0.1:1\", \"10.0.0.1:80\"]", "[api] listens at 10.0.0.1:80"),
            ("listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", "names 127.0.0.1:1 twice"),
            (
                "open = true\nlisten = [\"127.0.0.1:80\", \"0.0.0.0:80\"]",
                "names 0.0.0.0:80 and 127.0.0.1:80, which is one of these",
            ),
            ("[[tokens]]\nname = \"n\"", "needs either file or sha256"),
            ("[[tokens]]\nname = \"n\"\nfile = \"f\"\nsha256 = \"s\"", "needs either file or sha256"),
            ("[[tokens]]\nname = \"n\"\nfile = \"f\"\nscopes = []", "allows nothing"),
            (
                "[[tokens]]\nname = \"n\"\nfile = \"f\"\n[[tokens]]\nname = \"n\"\nfile = \"g\"",
                "two with the name \"n\"",
            ),
            ("[tls]\ncertificate = \"c\"", "needs both certificate and key"),
            ("[[tokens]]\nfile = \"f\"", "has no name"),
            ("[limits]\nbody = 1", "body = 1 in [api.limits] is not between 1024 and 16777216"),
            ("[limits]\nrequest_seconds = 0", "request_seconds = 0"),
        ] {
            let error = read(text).unwrap().check().unwrap_err();
            assert!(error.to_string().contains(what) && !error.cure_text().is_empty(), "{text}: {error}");
        }
        read("listen = \"0.0.0.0:80\"\nopen = true").unwrap().check().unwrap();
        read("listen = [\"0.0.0.0:80\", \"127.0.0.1:81\", \"[::1]:80\"]\nopen = true").unwrap().check().unwrap();
        read("listen = [\"0.0.0.0:0\", \"127.0.0.1:0\"]\nopen = true").unwrap().check().unwrap();
        read("listen = \"0.0.0.0:80\"\n[[tokens]]\nname = \"n\"\nfile = \"f\"").unwrap().check().unwrap();
    }
}
