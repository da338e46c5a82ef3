//! SDPs over HTTPS, from a server with certificates of a CA that is known here alone.
#![cfg(feature = "daemon")]

mod common;

use common::{Output, Temp, program, run, temp};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/https").join(name)
}

/// Whose certificate has the names localhost and 127.0.0.1.
const HERE: &str = "here";
/// Whose certificate has the name other.test.
const OTHER: &str = "other";

/// A server of HTTPS, and how many connections it had.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Gives this answer to everybody.
    fn start(who: &str, answer: String) -> Server {
        let chain =
            CertificateDer::pem_file_iter(file(&format!("{who}.crt"))).unwrap().collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_file(file(&format!("{who}.key"))).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let config = Arc::new(config);
        Server::listen(move |stream| {
            let mut stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
            // Whoever does not trust this server goes without a request.
            if stream.read(&mut [0; 4096]).is_ok_and(|octets| octets > 0) {
                let _ = stream.write_all(answer.as_bytes());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        })
    }
    /// The same without TLS.
    fn plain(answer: String) -> Server {
        Server::listen(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        })
    }
    fn listen(serve: impl Fn(TcpStream) + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections: Arc<AtomicUsize> = Arc::default();
        let count = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                serve(stream);
            }
        });
        Server { port, connections }
    }
    fn url(&self) -> String {
        format!("https://127.0.0.1:{}/cam.sdp", self.port)
    }
    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn sdp() -> String {
    common::sdp(5004)
}
fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}
fn redirect(to: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// The program where this file has the certificates that the machine trusts; none: as the machine has it.
fn trusting(ca: Option<&str>, args: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.args(args).env_remove("SSL_CERT_FILE");
    if let Some(ca) = ca {
        command.env("SSL_CERT_FILE", file(ca));
    }
    run(&mut command)
}

#[test]
fn a_certificate_comes_from_somebody_who_is_trusted() {
    let here = Server::start(HERE, ok(&sdp()));
    let other = Server::start(OTHER, ok(&sdp()));
    let plain = Server::plain(ok(&sdp()));
    for url in [here.url(), format!("https://localhost:{}/", here.port), format!("HTTPS://127.0.0.1:{}/", here.port)] {
        let good = trusting(Some("ca.crt"), &["sdp", &url]);
        assert!(good.code == 0 && good.stdout.contains("320x180"), "{}: {}", good.command, good.stderr);
    }
    for (ca, url, words) in [
        (None, here.url(), "comes from nobody whom this machine trusts"),
        // Somebody is trusted, and somebody else made it.
        (Some("other.crt"), here.url(), "comes from nobody whom this machine trusts"),
        (Some("ca.crt"), other.url(), "its certificate is that of another host"),
        (Some("ca.crt"), plain.url(), "no TLS with this server"),
    ] {
        let refused = trusting(ca, &["sdp", &url]);
        assert_eq!(refused.code, 69, "{}", refused.stderr);
        assert!(refused.stderr.contains(words) && refused.stderr.contains("cure: "), "{}", refused.stderr);
    }
    let unknown = trusting(None, &["sdp", &here.url()]).stderr;
    assert!(unknown.contains("daemon.sdp_ca") && unknown.contains("SSL_CERT_FILE"), "{unknown}");
    let named = trusting(Some("ca.crt"), &["sdp", &other.url()]).stderr;
    assert!(named.contains("other.test"), "{named}");
    // Files that have no certificate.
    for (ca, words) in [("nosuch.crt", "No such file"), ("here.key", "no certificate of a CA can be read")] {
        let refused = trusting(Some(ca), &["sdp", &here.url()]);
        assert!(refused.code == 69 && refused.stderr.contains(words), "{}", refused.stderr);
        // What needs none does not mind.
        let url = format!("http://127.0.0.1:{}/", plain.port);
        assert_eq!(trusting(Some(ca), &["sdp", &url]).code, 0);
    }
    // At the command line redirections are followed, to HTTPS as well; whom to trust is asked there.
    let elsewhere = Server::plain(redirect(&here.url()));
    let url = format!("http://127.0.0.1:{}/", elsewhere.port);
    assert_eq!(trusting(Some("ca.crt"), &["sdp", &url]).code, 0);
    let refused = trusting(Some("here.key"), &["sdp", &url]);
    assert!(refused.code == 69 && refused.stderr.contains("nobody whom this machine trusts"), "{}", refused.stderr);
}

/// A look at the configuration of a daemon with one receiver, which may fetch from this machine by its address.
fn checked(dir: &Temp, daemon: &str, url: &str) -> Output {
    let text = format!(
        "[daemon]\nsdp_hosts = [\"127.0.0.1\"]\n{daemon}\n[[receivers]]\nid = \"cam\"\nsdp = \"{url}\"\ngpu = \"off\"\n"
    );
    trusting(None, &["daemon", "--check", "-c", &dir.write("gdmedia.toml", &text)])
}

#[test]
fn a_daemon_trusts_a_ca_of_its_own_and_goes_nowhere_else() {
    let dir = temp();
    std::fs::create_dir(dir.join("tls")).unwrap();
    std::fs::copy(file("ca.crt"), dir.join("tls/ca.pem")).unwrap();
    let here = Server::start(HERE, ok(&sdp()));
    let other = Server::start(OTHER, ok(&sdp()));
    // From the folder of the configuration on.
    let ca = "sdp_ca = \"tls/ca.pem\"";
    let good = checked(&dir, ca, &here.url());
    assert!(good.code == 0 && good.stderr.contains("cam: 320x180"), "{}", good.stderr);
    let before = here.connections();
    let elsewhere = Server::start(HERE, redirect(&here.url()));
    for (daemon, url, words) in [
        ("", here.url(), "nobody whom this machine trusts"),
        (ca, other.url(), "its certificate is that of another host"),
        (ca, elsewhere.url(), "answers HTTP status 302"),
        (ca, format!("https://localhost:{}/", here.port), "may not be fetched from this host"),
        (ca, format!("https://127.0.0.1@localhost:{}/", here.port), "may not be fetched from this host"),
        ("sdp_ca = \"nosuch.pem\"", here.url(), "nosuch.pem"),
        ("sdp_ca = \"gdmedia.toml\"", here.url(), "no certificate of a CA can be read"),
    ] {
        let refused = checked(&dir, daemon, &url);
        assert_eq!(refused.code, 65, "{}", refused.stderr);
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    assert_eq!(
        (before, here.connections(), elsewhere.connections()),
        (1, 2, 1),
        "who is not trusted is asked, nobody else"
    );
}
