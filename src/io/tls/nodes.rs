//! TLS between the nodes of a cluster: both sides prove that they know its secret.
//!
//! The secret determines an Ed25519 key, which is the same on every node. Each node makes a certificate of its own and
//! signs it with that key. Either side accepts a certificate with that public key, and the handshake proves that the
//! peer has the private key (RFC 8446 §4.4.3). Names, dates and authorities are ignored. Without a secret, the key is
//! random, so no peer can have it.

use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError as Refused, ClientConfig, DigitallySignedStruct, DistinguishedName as Names, Error,
    ServerConfig, SignatureScheme,
};

use super::{CertificateError, provider};

/// The first bytes of an Ed25519 private key in PKCS #8 (RFC 8410 §7). The 32 bytes of the key follow.
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// TLS settings for the two sides of connections between nodes.
#[derive(Debug, Clone)]
pub(in crate::io) struct NodeConfigs {
    /// For accepted connections.
    pub(in crate::io) server: Arc<ServerConfig>,
    /// For outgoing connections.
    pub(in crate::io) client: Arc<ClientConfig>,
}

impl NodeConfigs {
    /// Makes the settings for TLS 1.3 among nodes that know `secret`.
    ///
    /// # Errors
    /// The library's error.
    pub(in crate::io) fn of_secret(secret: &[u8]) -> Result<Self, CertificateError> {
        let seed = crypto::hmac_sha256(secret, &[b"millstream nodes 1"]);
        let private = PrivatePkcs8KeyDer::from([&PKCS8_ED25519[..], &seed].concat());
        let key = KeyPair::try_from(&private)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "millstream node");
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2049, 12, 31));
        let chain = vec![params.self_signed(&key)?.der().clone()];
        let provider = Arc::new(provider());
        let same = Arc::new(SameKey::new(&chain, &provider)?);
        let private = || PrivateKeyDer::Pkcs8(private.clone_key());
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(same.clone())
            .with_single_cert(chain.clone(), private())?;
        // Nodes connect rarely, so session tickets would not help.
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(same)
            .with_client_auth_cert(chain, private())?;
        Ok(Self { server: Arc::new(server), client: Arc::new(client) })
    }
}

/// Accepts any certificate that has this public key.
#[derive(Debug)]
struct SameKey {
    /// SubjectPublicKeyInfo (RFC 5280 §4.1.2.7).
    public: Vec<u8>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl SameKey {
    fn new(chain: &[CertificateDer<'_>], provider: &CryptoProvider) -> Result<Self, Error> {
        let own = chain.first().ok_or(Error::NoCertificatesPresented)?;
        Ok(Self { public: public_key(own)?, algorithms: provider.signature_verification_algorithms })
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        if public_key(certificate)? == self.public {
            Ok(())
        } else {
            Err(Error::InvalidCertificate(Refused::ApplicationVerificationFailure))
        }
    }

    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }
}

fn public_key(certificate: &CertificateDer<'_>) -> Result<Vec<u8>, Error> {
    ParsedCertificate::try_from(certificate).map(|parsed| parsed.subject_public_key_info().to_vec())
}

/// Returns the error for TLS 1.2, which is not offered.
fn too_old() -> Error {
    Error::General("nodes speak TLS 1.3".to_owned())
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[Names] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, ServerConnection};

    use super::*;
    use crate::io::tls::Configs;

    /// True if both sides complete the handshake.
    fn meets(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> bool {
        let name = ServerName::try_from("node").unwrap();
        let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
        for _ in 0..4 {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            server.read_tls(&mut &wire[..]).unwrap();
            let server_ok = server.process_new_packets().is_ok();
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            client.read_tls(&mut &wire[..]).unwrap();
            if client.process_new_packets().is_err() || !server_ok {
                return false;
            }
        }
        !client.is_handshaking() && !server.is_handshaking()
    }

    #[test]
    fn r_64_nodes_that_know_the_secret_meet_and_nobody_else_does() {
        let [ours, again, theirs] = [b"one secret".as_slice(), b"one secret", b"another secret"]
            .map(|secret| NodeConfigs::of_secret(secret).unwrap());
        assert!(meets(&ours.client, &again.server) && meets(&again.client, &ours.server));
        assert!(!meets(&theirs.client, &ours.server), "a client of another cluster");
        assert!(!meets(&ours.client, &theirs.server), "a server of another cluster");
        let anybody = crate::io::tls::CertificateFiles::temporary(vec!["node".to_owned()]).unwrap();
        let Configs { plain, client, .. } = anybody;
        assert!(!meets(&ours.client, &plain), "a server with another certificate");
        assert!(!meets(&client, &ours.server), "a client without a certificate");
    }
}
