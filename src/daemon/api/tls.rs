//! HTTPS: certificate and key of PEM files, read again when they change.

use super::settings::Tls;
use crate::error::{Error, Kind, Result};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_rustls::TlsAcceptor;

/// Certificate and key as they were read.
#[derive(Clone)]
pub(super) struct Loaded {
    settings: Tls,
    acceptor: TlsAcceptor,
    /// When both were written.
    written: [Option<SystemTime>; 2],
    until: Option<u64>,
}

impl Loaded {
    /// Reads both.
    ///
    /// # Errors
    /// A file cannot be read, holds no certificate or key, or the two do not belong together.
    pub fn read(settings: &Tls) -> Result<Self> {
        let written = written(settings);
        let (certificate, key) = (settings.certificate.display(), settings.key.display());
        let cure = "PEM files are wanted: the certificate, then those between it and a root; and its private key";
        let chain = certificates(&settings.certificate)?;
        let secret = PrivateKeyDer::from_pem_file(&settings.key).map_err(|error| {
            Error::new(Kind::Data, format!("no private key can be read from {key}")).because(error).cure(cure)
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let until = until(&chain, &provider);
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret))
            .map_err(|error| {
                Error::new(Kind::Data, format!("{certificate} and {key} make no TLS server")).because(error).cure(cure)
            })?;
        let mut config = config;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Loaded { settings: settings.clone(), acceptor: TlsAcceptor::from(Arc::new(config)), written, until })
    }
    /// For connections.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }
    /// When the first certificate of the chain is valid no longer, seconds since 1970; none where it is not told.
    pub fn until(&self) -> Option<u64> {
        self.until
    }
    /// As the files are now; none where they are the same as before.
    ///
    /// # Errors
    /// As of [`Loaded::read`].
    pub fn again(&self) -> Option<Result<Self>> {
        (written(&self.settings) != self.written).then(|| Loaded::read(&self.settings))
    }
    /// As if they had been read as they are now: what is wrong with them is said once.
    pub fn seen(&mut self) {
        self.written = written(&self.settings);
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Loaded").field(&self.settings).finish()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let chain = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let wrong = || {
        let what = format!("no certificate can be read from {}", path.display());
        Error::new(Kind::Data, what).cure("a PEM file with the server's certificate first is wanted")
    };
    match chain {
        Ok(chain) if chain.is_empty() => Err(wrong()),
        Ok(chain) => Ok(chain),
        Err(error) => Err(wrong().because(error)),
    }
}

/// `notAfter` of the one that ends first (RFC 5280, 4.1.2.5). rustls tells it whoever asks for a time when it is over, before
/// it looks at who has signed.
fn until(chain: &[CertificateDer<'_>], provider: &CryptoProvider) -> Option<u64> {
    let never = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let (nobody, algorithms) = (RootCertStore::empty(), provider.signature_verification_algorithms.all);
    let one = |certificate| {
        let parsed = ParsedCertificate::try_from(certificate).ok()?;
        match verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], never, algorithms) {
            Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                Some(not_after.as_secs())
            }
            _ => None,
        }
    };
    chain.iter().filter_map(one).min()
}

fn written(settings: &Tls) -> [Option<SystemTime>; 2] {
    [&settings.certificate, &settings.key].map(|path| std::fs::metadata(path).and_then(|m| m.modified()).ok())
}
