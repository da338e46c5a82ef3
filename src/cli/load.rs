//! Where the text of an SDP comes from: a file, standard input, a web server.

use gdmedia::error::{Error, Kind, Result};
use gdmedia::fetch;
use gdmedia::sdp::MAX_OCTETS;
use std::io::{self, Read};
use std::time::Duration;

/// Whoever is at the command line says where an SDP is; his environment says whom to trust and by which proxy.
const RULES: fetch::Rules<'static> = fetch::Rules { patience: Duration::from_secs(15), elsewhere: true, ca: None };

/// The octets of the SDP that `from` names: a file, `-` for standard input, or an `http://` or `https://` URL.
pub fn sdp_text(from: &str) -> Result<Vec<u8>> {
    if from == "-" {
        let stdin = io::stdin().lock();
        return bounded(stdin, "standard input");
    }
    match from.split_once("://") {
        Some(_) if fetch::is_url(from) => check(fetch::sdp(from, &RULES)?, from),
        Some((scheme, _)) if scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            Err(Error::new(Kind::Usage, format!("{from}: the scheme {scheme}:// is not supported")).cure(
                "give a file, - for standard input, or an http:// or https:// URL; fetch others with: curl URL | gdmedia sdp -",
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
