//! The key schedule (RFC 8446 §7, RFC 9147 §5.9):
//!
//! ```text
//! zeros -> early secret -> "derived" + shared secret -> handshake secret -> "derived" + zeros -> master secret
//!                                                         |                                        |
//!                                                         traffic secrets of the handshake         of the application, and
//!                                                                                                  of exporters
//! ```
//!
//! Pre-shared keys are not supported, so all sessions have the same early secret.

use crypto::Hash;
use zeroize::Zeroizing;

use crate::wipes;

use super::record::Keys;
use crate::put;
use crate::suite::CipherSuite;

/// Prefix of each label (RFC 9147 §5.9). TLS 1.3 uses a different one of the same length.
const PREFIX: &[u8] = b"dtls13";

/// A secret of the length of a digest. Never printed.
#[derive(Clone)]
pub(crate) struct Secret {
    hash: Hash,
    bytes: Zeroizing<Box<[u8]>>,
}

const _: fn(&Secret) = |secret| wipes(&secret.bytes);

impl Secret {
    fn extract(hash: Hash, salt: &[u8], secret: &[u8]) -> Self {
        Self { hash, bytes: Zeroizing::new(hash.mac(salt, &[secret]).into()) }
    }

    /// `HKDF-Expand-Label` (RFC 8446 §7.1). `None` if a primitive fails.
    fn expand(&self, prefix: &[u8], label: &[u8], context: &[u8], out: &mut [u8]) -> Option<()> {
        let mut info = Vec::new();
        put::u16(&mut info, u16::try_from(out.len()).ok()?);
        put::vec8(&mut info, &[prefix, label].concat());
        put::vec8(&mut info, context);
        self.hash.expand(&self.bytes, &[&info], out).then_some(())
    }

    fn expand_to_secret(&self, label: &[u8], context: &[u8]) -> Option<Self> {
        let mut bytes = Zeroizing::new(vec![0; self.hash.bytes()].into_boxed_slice());
        self.expand(PREFIX, label, context, &mut bytes)?;
        Some(Self { hash: self.hash, bytes })
    }

    /// Returns the salt for the next stage.
    fn derived(&self) -> Option<Self> {
        self.expand_to_secret(b"derived", &self.hash.digest(&[]))
    }

    /// Returns the content of a Finished sent by the owner of this traffic secret (RFC 8446 §4.4.4).
    pub(crate) fn finished(&self, transcript_hash: &[u8]) -> Option<Vec<u8>> {
        let key = self.expand_to_secret(b"finished", &[])?;
        Some(self.hash.mac(&key.bytes, &[transcript_hash]))
    }

    /// Returns the traffic secret after a `KeyUpdate` (RFC 8446 §7.2).
    pub(crate) fn next(&self) -> Option<Self> {
        self.expand_to_secret(b"traffic upd", &[])
    }

    /// Returns the keys for a direction (RFC 8446 §7.3, RFC 9147 §4.2.3).
    pub(crate) fn keys(&self, suite: CipherSuite) -> Option<Keys> {
        let algorithm = suite.aead();
        let mut key = Zeroizing::new(vec![0; algorithm.key_bytes()]);
        let mut mask = key.clone();
        let mut iv = [0; crypto::AEAD_NONCE_BYTES];
        self.expand(PREFIX, b"key", &[], &mut key)?;
        self.expand(PREFIX, b"iv", &[], &mut iv)?;
        self.expand(PREFIX, b"sn", &[], &mut mask)?;
        Keys::new(algorithm, &key, iv, &mask)
    }

    /// Exports keying material from the exporter secret (RFC 8446 §7.5). Returns false if too much is
    /// requested.
    pub(crate) fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> bool {
        let of_label = self.expand_to_secret(label, &self.hash.digest(&[]));
        of_label
            .and_then(|secret| secret.expand(PREFIX, b"exporter", &self.hash.digest(context), out))
            .is_some()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Traffic secrets for both directions.
#[derive(Debug, Clone)]
pub(crate) struct Traffic {
    pub(crate) client: Secret,
    pub(crate) server: Secret,
}

/// Secrets of the handshake stage.
#[derive(Debug)]
pub(crate) struct HandshakeSecrets {
    secret: Secret,
    pub(crate) traffic: Traffic,
}

impl HandshakeSecrets {
    /// Derives the secrets from the shared secret and the transcript up to `ServerHello`. `None` if a primitive
    /// fails.
    pub(crate) fn new(hash: Hash, shared: &[u8], transcript_hash: &[u8]) -> Option<Self> {
        let zeros = vec![0; hash.bytes()];
        let early = Secret::extract(hash, &[], &zeros);
        let secret = Secret::extract(hash, &early.derived()?.bytes, shared);
        let traffic = Traffic {
            client: secret.expand_to_secret(b"c hs traffic", transcript_hash)?,
            server: secret.expand_to_secret(b"s hs traffic", transcript_hash)?,
        };
        Some(Self { secret, traffic })
    }

    /// Returns the secrets for application data and for exporters, from the transcript up to the server's
    /// Finished.
    pub(crate) fn application(&self, transcript_hash: &[u8]) -> Option<(Traffic, Secret)> {
        let hash = self.secret.hash;
        let master = Secret::extract(hash, &self.secret.derived()?.bytes, &vec![0; hash.bytes()]);
        let traffic = Traffic {
            client: master.expand_to_secret(b"c ap traffic", transcript_hash)?,
            server: master.expand_to_secret(b"s ap traffic", transcript_hash)?,
        };
        Some((traffic, master.expand_to_secret(b"exp master", transcript_hash)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let text: String = text.split_whitespace().collect();
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Checks the vectors of RFC 8448 §3, which use the prefix of TLS but the same function.
    #[test]
    fn labels_of_tls_give_the_vectors_of_tls() {
        let hash = Hash::Sha256;
        let early = Secret::extract(hash, &[], &[0; 32]);
        let expected = "33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a";
        assert_eq!(early.bytes[..], hex(expected));
        let expand = |secret: &Secret, label: &[u8], context: &[u8], bytes| {
            let mut out = vec![0; bytes];
            secret.expand(b"tls13 ", label, context, &mut out).unwrap();
            out
        };
        let derived = expand(&early, b"derived", &hash.digest(&[]), 32);
        assert_eq!(derived, hex("6f2615a108c702c5678f54fc9dbab69716c076189c48250cebeac3576c3611ba"));
        let shared = hex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d");
        let secret = Secret::extract(hash, &derived, &shared);
        assert_eq!(secret.bytes[..], hex("1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac"));
        let transcript = hex("860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8");
        let server = expand(&secret, b"s hs traffic", &transcript, 32);
        let server = Secret { hash, bytes: Zeroizing::new(server.into()) };
        assert_eq!(server.bytes[..], hex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38"));
        assert_eq!(expand(&server, b"key", &[], 16), hex("3fce516009c21727d0f2e4e86ee403bc"));
        assert_eq!(expand(&server, b"iv", &[], 12), hex("5d313eb2671276ee13000b30"));
        // With the label prefix of DTLS, the keys differ from those of TLS.
        let mut other = vec![0; 16];
        server.expand(PREFIX, b"key", &[], &mut other).unwrap();
        assert_ne!(other, hex("3fce516009c21727d0f2e4e86ee403bc"));
    }

    #[test]
    fn stages_and_directions_differ() {
        for (suite, bytes) in [(CipherSuite::Aes128Gcm, 32), (CipherSuite::Aes256Gcm, 48)] {
            let hash = suite.hash();
            let handshake = HandshakeSecrets::new(hash, b"shared", &hash.digest(b"hello")).unwrap();
            let (application, exporter) = handshake.application(&hash.digest(b"finished")).unwrap();
            let next = application.client.next().unwrap();
            let secrets = [
                &handshake.traffic.client,
                &handshake.traffic.server,
                &application.client,
                &application.server,
                &exporter,
                &next,
            ];
            for (at, one) in secrets.iter().enumerate() {
                assert_eq!(one.bytes.len(), bytes);
                assert!(secrets[at + 1..].iter().all(|other| one.bytes != other.bytes));
                assert!(one.keys(suite).is_some());
                assert_eq!(one.finished(b"").map(|data| data.len()), Some(bytes));
            }
            let export = |label: &[u8], context: &[u8]| {
                let mut out = [0; 40];
                exporter.export(label, context, &mut out).then_some(out).unwrap()
            };
            assert_ne!(export(b"a", b""), export(b"b", b""));
            assert_ne!(export(b"a", b""), export(b"a", b"context"));
            assert!(!exporter.export(b"a", b"", &mut vec![0; 1 << 16]));
            assert_eq!(format!("{exporter:?}"), "Secret(..)");
        }
    }
}
