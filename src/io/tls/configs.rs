//! Configurations of TLS connections.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig};

use super::{CertificateError, expiry};

/// Preferred cipher suites: those that cost least on processors with AES instructions. As a server, this program
/// follows its own order; in other connections, the peer decides.
const PREFERRED: [CipherSuite; 3] = [
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
];

/// TLS settings. All connections of a worker share them, and they are replaced as a whole when the certificate changes.
#[derive(Debug, Clone)]
pub(in crate::io) struct Configs {
    /// For HTTP: selects `h2`, or else `http/1.1`, if the client uses ALPN (RFC 7301).
    pub(in crate::io) http: Arc<ServerConfig>,
    /// For HTTP/1.1 only.
    pub(in crate::io) http1: Arc<ServerConfig>,
    /// For protocols that have no ALPN name.
    pub(in crate::io) plain: Arc<ServerConfig>,
    /// For outgoing connections. The name of the server is always verified.
    pub(in crate::io) client: Arc<ClientConfig>,
    /// The earliest time at which a certificate of the chain expires, in Unix milliseconds.
    pub(in crate::io) expires_ms: Option<u64>,
}

impl Configs {
    /// Makes the settings: TLS 1.2 and 1.3 with the cipher suites of rustls, all of which are AEAD.
    pub(super) fn new(certificate: CertifiedKey) -> Result<Self, CertificateError> {
        let provider = Arc::new(provider());
        let server = |protocols: &[&[u8]]| -> Result<Arc<ServerConfig>, rustls::Error> {
            let resolver = Arc::new(SingleCertAndKey::from(certificate.clone()));
            let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
                .with_safe_default_protocol_versions()?
                .with_no_client_auth()
                .with_cert_resolver(resolver);
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            config.ticketer = aws_lc_rs::Ticketer::new()?;
            config.ignore_client_order = true;
            Ok(Arc::new(config))
        };
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots())
            .with_no_client_auth();
        Ok(Self {
            http: server(&[b"h2", b"http/1.1"])?,
            http1: server(&[b"http/1.1"])?,
            plain: server(&[])?,
            client: Arc::new(client),
            expires_ms: expiry::of_chain(&certificate.cert),
        })
    }
}

pub(in crate::io) fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.sort_by_key(|suite| !PREFERRED.contains(&suite.suite()));
    provider
}

/// Returns the system's trusted certificates (`SSL_CERT_FILE` and `SSL_CERT_DIR` override their location). If the
/// system has none, returns Mozilla's list.
pub(super) fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::debug!(%error, "trusted certificates");
    }
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_128_comes_first_and_every_suite_is_kept() {
        let ours = provider();
        let first = ours.cipher_suites.first().map(|suite| suite.suite());
        assert_eq!(first, Some(CipherSuite::TLS13_AES_128_GCM_SHA256));
        assert_eq!(ours.cipher_suites.len(), aws_lc_rs::default_provider().cipher_suites.len());
    }
}
