//! Where the text of an SDP comes from: a file, standard input, an HTTP server.

use gdmedia::error::{Error, Kind, Result};
use gdmedia::sdp::MAX_OCTETS;
use std::io::{self, Read};
use std::time::Duration;

/// The octets of the SDP that `from` names: a file, `-` for standard input, or an `http://` URL.
pub fn sdp_text(from: &str) -> Result<Vec<u8>> {
    if from == "-" {
        let stdin = io::stdin().lock();
        return bounded(stdin, "standard input");
    }
    match from.split_once("://") {
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("http") => http(from),
        Some((scheme, _)) if scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            Err(Error::new(Kind::Usage, format!("{from}: the scheme {scheme}:// is not supported")).cure(
                "give a file, - for standard input, or an http:// URL; fetch others with: curl URL | gdmedia sdp -",
            ))
        }
        _ => file(from),
    }
}

fn file(path: &str) -> Result<Vec<u8>> {
    let cannot = |e: io::Error| {
        let (kind, cure) = match e.kind() {
            io::ErrorKind::NotFound => (Kind::Data, "check the name and the folder you are in"),
            io::ErrorKind::PermissionDenied => (Kind::Permission, "make the file readable for this user"),
            _ => (Kind::Data, "check the file"),
        };
        Error::new(kind, format!("cannot read the SDP {path}")).cure(cure).because(e)
    };
    let meta = std::fs::metadata(path).map_err(cannot)?;
    if meta.is_dir() {
        return Err(Error::new(Kind::Data, format!("{path} is a folder, not an SDP file")).cure("name a file in it"));
    }
    let file = std::fs::File::open(path).map_err(cannot)?;
    bounded(file, path)
}

/// Reads to the end, or refuses what no SDP needs; an empty source is refused too.
fn bounded(source: impl Read, name: &str) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    source
        .take(MAX_OCTETS as u64 + 1)
        .read_to_end(&mut text)
        .map_err(|e| Error::new(Kind::Data, format!("cannot read the SDP from {name}")).because(e))?;
    check(text, name)
}

fn check(text: Vec<u8>, name: &str) -> Result<Vec<u8>> {
    if text.is_empty() {
        return Err(Error::new(Kind::Data, format!("{name} is empty"))
            .cure("an SDP starts with the line v=0; copy it again from the sender"));
    }
    if text.len() > MAX_OCTETS {
        return Err(Error::new(Kind::Data, format!("{name} holds more than {} KiB: no SDP", MAX_OCTETS / 1024))
            .cure("give the SDP itself; a capture is given with --pcap"));
    }
    Ok(text)
}

fn http(url: &str) -> Result<Vec<u8>> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(5)))
        .timeout_global(Some(Duration::from_secs(15)))
        .user_agent(concat!("gdmedia/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let answer = agent.get(url).header("Accept", "application/sdp, text/plain;q=0.9, */*;q=0.1").call();
    let mut response = answer.map_err(|e| unreachable(url, e))?;
    let body = response.body_mut().with_config().limit(MAX_OCTETS as u64 + 1).read_to_vec();
    match body {
        Ok(text) => check(text, url),
        Err(ureq::Error::BodyExceedsLimit(_)) => check(vec![b' '; MAX_OCTETS + 1], url),
        Err(e) => Err(unreachable(url, e)),
    }
}

fn unreachable(url: &str, error: ureq::Error) -> Error {
    use ureq::Error as E;
    match error {
        E::StatusCode(status) => {
            let cure = match status {
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
