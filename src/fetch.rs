//! SDPs from web servers, over HTTP and, with the feature `daemon`, over HTTPS.
//!
//! A server's certificate comes from a CA that this machine trusts (the file that `SSL_CERT_FILE` names, as OpenSSL has it, else the
//! bundle of the distribution), or from one that is named besides.

use crate::error::{Error, Kind, Result};
use gdmedia_sdp::MAX_OCTETS;
use std::path::Path;
use std::time::Duration;

/// How it is asked.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// For all of it.
    pub patience: Duration,
    /// Goes where the server says that it is, by a proxy of the environment where one is named; else nobody but the URL's
    /// host is asked.
    pub elsewhere: bool,
    /// Certificates of CAs besides those of the machine (PEM).
    pub ca: Option<&'a Path>,
}

/// It is a URL that is fetched.
pub fn is_url(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once("://") else { return false };
    ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// What an `http://` or `https://` URL leads to.
///
/// # Errors
/// [`Kind::Usage`]: it is no URL. [`Kind::Data`]: there is more than an SDP may have. [`Kind::Unavailable`]: it cannot be had,
/// or the server is not who it should be.
pub fn sdp(url: &str, rules: &Rules<'_>) -> Result<Vec<u8>> {
    let mut config = ureq::Agent::config_builder()
        .timeout_connect(Some(rules.patience.min(Duration::from_secs(5))))
        .timeout_global(Some(rules.patience))
        .user_agent(concat!("gdmedia/", env!("CARGO_PKG_VERSION")));
    if !rules.elsewhere {
        config = config.max_redirects(0).proxy(None);
    }
    let secure = url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
    #[cfg(feature = "daemon")]
    if secure {
        config = config.tls_config(tls::config(tls::roots(rules.ca)?));
    } else if rules.elsewhere {
        // A redirection may lead to HTTPS; whom to trust matters only there.
        config = config.tls_config(tls::config(tls::roots(rules.ca).unwrap_or_default()));
    }
    #[cfg(not(feature = "daemon"))]
    if secure {
        return Err(Error::new(Kind::Usage, format!("{url}: this program was built without HTTPS"))
            .cure("build it with the feature daemon, or: curl URL | gdmedia sdp -"));
    }
    let agent: ureq::Agent = config.build().into();
    let answer = agent.get(url).header("Accept", "application/sdp, text/plain;q=0.9, */*;q=0.1").call();
    let mut response = answer.map_err(|error| cannot(url, error))?;
    if response.status() != 200 {
        return Err(cannot(url, ureq::Error::StatusCode(response.status().as_u16())));
    }
    match response.body_mut().with_config().limit(MAX_OCTETS as u64 + 1).read_to_vec() {
        Ok(text) if text.len() <= MAX_OCTETS => Ok(text),
        Ok(_) | Err(ureq::Error::BodyExceedsLimit(_)) => {
            Err(Error::new(Kind::Data, format!("{url} holds more than {} KiB: no SDP", MAX_OCTETS / 1024))
                .cure("give the SDP itself; a capture is given with --pcap"))
        }
        Err(error) => Err(cannot(url, error)),
    }
}

fn cannot(url: &str, error: ureq::Error) -> Error {
    use ureq::Error as E;
    #[cfg(feature = "daemon")]
    if let Some(error) = tls::refused(url, &error) {
        return error;
    }
    match error {
        E::StatusCode(status) => {
            let cure = match status {
                300..=399 => "redirections are not followed; give the URL that they lead to",
                404 | 410 => "check the path; a NMOS node names it in the sender's manifest_href",
                401 | 403 => "the server wants a login; fetch it with a browser or curl and give the file",
                503 => "the sender is there but not active yet; enable it and try again",
                _ => "open the URL in a browser to see what the server says",
            };
            Error::new(Kind::Unavailable, format!("{url} answers HTTP status {status}")).cure(cure)
        }
        E::HostNotFound => Error::new(Kind::Unavailable, format!("{url}: no such host"))
            .cure("check the name, or give the address as numbers"),
        E::BadUri(_) | E::Http(_) => Error::new(Kind::Usage, format!("{url} is not a URL"))
            .cure("write it as http://host[:port]/path")
            .because(error),
        E::Timeout(_) => Error::new(Kind::Unavailable, format!("{url} does not answer in time"))
            .cure("check the address, the network and the firewall")
            .because(error),
        error => Error::new(Kind::Unavailable, format!("cannot fetch {url}"))
            .cure("check host, port and path, and that the server runs")
            .because(error),
    }
}

#[cfg(feature = "daemon")]
mod tls {
    use super::{Error, Kind, Path, Result};
    use rustls::CertificateError as Wrong;
    use std::sync::Arc;
    use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

    /// Debian, Ubuntu, Arch; Fedora; openSUSE; Alpine.
    const BUNDLES: [&str; 4] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    const CURE: &str = "install ca-certificates, or name the CA's certificate (PEM): daemon.sdp_ca, or SSL_CERT_FILE in the environment";

    /// A server's certificate comes from one of these.
    pub fn config(roots: Vec<Certificate<'static>>) -> TlsConfig {
        TlsConfig::builder()
            .root_certs(RootCerts::from(roots))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build()
    }

    /// Certificates of the CAs that this machine trusts, and of those in a file besides.
    pub fn roots(ca: Option<&Path>) -> Result<Vec<Certificate<'static>>> {
        let mut roots = match std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
            Some(path) => certificates(Path::new(&path))?,
            None => {
                let there = BUNDLES.map(Path::new).into_iter().find(|path| path.exists());
                there.map(certificates).transpose()?.unwrap_or_default()
            }
        };
        if let Some(path) = ca {
            roots.extend(certificates(path)?);
        }
        Ok(roots)
    }

    fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
        // It may be on a disk that is not there yet, or just be written: what needs it tries again.
        let none = || {
            Error::new(Kind::Unavailable, format!("no certificate of a CA can be read from {}", path.display()))
                .cure("a file of certificates (PEM) is wanted: daemon.sdp_ca, SSL_CERT_FILE")
        };
        let text = std::fs::read(path).map_err(|error| none().because(error))?;
        let items: Vec<PemItem<'static>> =
            parse_pem(&text).collect::<std::result::Result<_, _>>().map_err(|error| none().because(error))?;
        let all = items.into_iter().filter_map(|item| match item {
            PemItem::Certificate(one) => Some(one),
            _ => None,
        });
        let all: Vec<_> = all.collect();
        if all.is_empty() { Err(none()) } else { Ok(all) }
    }

    /// The server is not who it should be, or speaks no TLS; none: it is something else.
    pub fn refused(url: &str, error: &ureq::Error) -> Option<Error> {
        let error = match error {
            ureq::Error::Rustls(error) => error,
            ureq::Error::Io(error) => error.get_ref()?.downcast_ref::<rustls::Error>()?,
            _ => return None,
        };
        let error = match error {
            rustls::Error::InvalidCertificate(Wrong::UnknownIssuer) => {
                let what = format!("{url}: its certificate comes from nobody whom this machine trusts");
                Error::new(Kind::Unavailable, what).cure(CURE)
            }
            rustls::Error::InvalidCertificate(Wrong::NotValidForName | Wrong::NotValidForNameContext { .. }) => {
                Error::new(Kind::Unavailable, format!("{url}: its certificate is that of another host"))
                    .because(error.clone())
                    .cure("write the host as its certificate has it, or give the server another certificate")
            }
            rustls::Error::InvalidCertificate(
                Wrong::Expired | Wrong::ExpiredContext { .. } | Wrong::NotValidYet | Wrong::NotValidYetContext { .. },
            ) => Error::new(Kind::Unavailable, format!("{url}: its certificate is not valid now"))
                .because(error.clone())
                .cure("check the clock of this machine, or give the server another certificate"),
            error => Error::new(Kind::Unavailable, format!("{url}: no TLS with this server"))
                .because(error.clone())
                .cure("check the port: is it that of HTTPS?"),
        };
        Some(error)
    }
}
