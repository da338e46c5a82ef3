//! Where the text of an SDP comes from: the configuration, a file, or a web server that it allows.

use super::config;
use crate::error::{Error, Kind, Result};
use crate::fetch;
use crate::sdp::{self, MAX_OCTETS, Mode};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A web server has so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Gets the text. Files are named from `folder` on. A URL is fetched from a host in `sdp_hosts` alone, without following it
/// elsewhere.
///
/// # Errors
/// It cannot be had, is too long, or is no text.
pub fn text(source: &str, folder: &Path, daemon: &config::Daemon) -> Result<Arc<str>> {
    let octets = match source.split_once("://") {
        _ if is_text(source) => source.as_bytes().to_vec(),
        Some((_, rest)) if fetch::is_url(source) => fetched(source, rest, folder, daemon)?,
        Some((scheme, _)) => {
            return Err(Error::new(Kind::Usage, format!("an SDP is not fetched by {scheme}://"))
                .cure("give a file, the text itself, or an http:// or https:// URL"));
        }
        None => file(&folder.join(source))?,
    };
    if octets.len() > MAX_OCTETS {
        return Err(Error::new(Kind::Data, format!("the SDP has more than {} KiB", MAX_OCTETS / 1024))
            .cure("give the SDP itself"));
    }
    // As the parser would have it: what is no UTF-8 is not worth a failure.
    let text = String::from_utf8_lossy(&octets);
    if text.trim().is_empty() {
        return Err(Error::new(Kind::Data, "the SDP is empty").cure("it starts with the line v=0"));
    }
    Ok(text.into())
}

/// It is an SDP and no name of one.
pub fn is_text(source: &str) -> bool {
    source.trim_start().starts_with("v=")
}

/// It has something that can be received; else what is wrong with it.
///
/// # Errors
/// [`Kind::Data`].
pub fn check(text: &str) -> Result<()> {
    let description = sdp::parse(text.as_bytes(), Mode::Lenient);
    if description.flows.iter().any(|flow| flow.usable) {
        return Ok(());
    }
    let wrong = description.diagnostics.iter().find(|d| d.severity == sdp::Severity::Error);
    Err(match wrong {
        Some(wrong) => {
            Error::new(Kind::Data, format!("SDP line {}: {}", wrong.line, wrong.message)).cure(wrong.cure.clone())
        }
        None => {
            Error::new(Kind::Data, "no flow in this SDP").cure("it starts with the line v=0 and has a line m=video")
        }
    })
}

fn file(path: &Path) -> Result<Vec<u8>> {
    let cannot = |e: std::io::Error| {
        // It may come yet.
        let kind = if e.kind() == std::io::ErrorKind::PermissionDenied { Kind::Permission } else { Kind::Unavailable };
        Error::new(kind, format!("cannot read the SDP {}", path.display()))
            .because(e)
            .cure("check the name, and that the daemon's user may read it")
    };
    let mut octets = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_OCTETS as u64 + 1).read_to_end(&mut octets))
        .map_err(cannot)?;
    Ok(octets)
}

fn fetched(url: &str, rest: &str, folder: &Path, daemon: &config::Daemon) -> Result<Vec<u8>> {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // `user@host` is a way to make a URL look like another.
    let named = if authority.contains('@') { "" } else { authority };
    let host = match named.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
        Some((v6, _)) => v6,
        None => named.rsplit_once(':').map_or(named, |(host, _)| host),
    };
    if !daemon.sdp_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(named))
    {
        return Err(Error::new(Kind::Usage, format!("{url}: SDPs may not be fetched from this host"))
            .cure("add it to daemon.sdp_hosts"));
    }
    let ca = daemon.sdp_ca.as_ref().map(|path| folder.join(path));
    // Whoever is allowed is asked, and nobody else.
    fetch::sdp(url, &fetch::Rules { patience: PATIENCE, elsewhere: false, ca: ca.as_deref() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\n";

    /// Answers one request after the other with these.
    fn serve(answers: &'static [&'static str]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for answer in answers {
                let Ok((mut stream, _)) = listener.accept() else { return };
                let mut request = [0; 2048];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        port
    }

    #[test]
    fn text_and_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.sdp"), SDP).unwrap();
        let daemon = config::Daemon::default();
        assert_eq!(&*text(SDP, folder.path(), &daemon).unwrap(), SDP);
        assert_eq!(&*text("a.sdp", folder.path(), &daemon).unwrap(), SDP);
        std::fs::write(folder.path().join("b.sdp"), vec![b'x'; MAX_OCTETS + 1]).unwrap();
        std::fs::write(folder.path().join("c.sdp"), " \n").unwrap();
        for (name, words) in
            [("nosuch.sdp", "nosuch.sdp"), ("b.sdp", "more than"), ("c.sdp", "empty"), ("ftp://x/y", "ftp")]
        {
            let error = text(name, folder.path(), &daemon).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("cure"), "{error}");
        }
    }

    #[test]
    fn hosts_that_are_allowed_are_asked_and_nobody_else() {
        let port = serve(&[
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nv=0\n",
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        ]);
        let fetch = |url: &str, hosts: &[&str]| {
            let sdp_hosts = hosts.iter().map(|h| (*h).to_owned()).collect();
            text(url, Path::new("/"), &config::Daemon { sdp_hosts, ..config::Daemon::default() })
        };
        let url = format!("http://127.0.0.1:{port}/x.sdp");
        for hosts in [&[][..], &["127.0.0.2"], &["example.org"]] {
            assert!(fetch(&url, hosts).unwrap_err().to_string().contains("sdp_hosts"));
        }
        let other = format!("http://127.0.0.1@127.0.0.2:{port}/");
        assert!(fetch(&other, &["127.0.0.1"]).unwrap_err().to_string().contains("sdp_hosts"));
        assert_eq!(&*fetch(&url, &["127.0.0.1"]).unwrap(), "v=0\n");
        for words in ["302", "404"] {
            let error = fetch(&url, &["127.0.0.1"]).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_sdp_is_said() {
        assert!(check("nonsense").is_err());
        assert!(check(SDP).is_err());
    }
}
