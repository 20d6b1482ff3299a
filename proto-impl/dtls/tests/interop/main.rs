//! Interoperability with OpenSSL and GnuTLS, each as server and as client, over UDP on the loopback. The other side is
//! a child process, which ends with its test. `tests/install.sh` of the repository installs both.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a test with sockets and child processes: it is the shell around the machine"
)]

mod driver;
mod peers;

use dtls::{CipherSuite, PeerCheck, SrtpProfile};

use driver::Ours;
use peers::{Certificate, Peer};

/// SRTP profiles with their names in OpenSSL and GnuTLS.
const PROFILES: [(SrtpProfile, &str, &str); 4] = [
    (SrtpProfile::AeadAes128Gcm, "SRTP_AEAD_AES_128_GCM", ""),
    (SrtpProfile::AeadAes256Gcm, "SRTP_AEAD_AES_256_GCM", ""),
    (SrtpProfile::Aes128CmSha1_80, "SRTP_AES128_CM_SHA1_80", "SRTP_AES128_CM_HMAC_SHA1_80"),
    (SrtpProfile::Aes128CmSha1_32, "SRTP_AES128_CM_SHA1_32", "SRTP_AES128_CM_HMAC_SHA1_32"),
];

const CERTIFICATES: [Certificate; 2] = [Certificate::P256, Certificate::Rsa];

/// Compares our exported keys with those that the program printed: 60 bytes that begin with the keys for SRTP.
fn check_keys(ours: &Ours, printed: &str) {
    let hex: String = ours.exported.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(printed.to_lowercase().contains(&hex), "{hex} is not in\n{printed}");
    let (profile, keys) = ours.connected.srtp.as_ref().unwrap();
    let joined = keys.as_bytes();
    let shared = joined.len().min(ours.exported.len());
    assert_eq!(joined[..shared], ours.exported[..shared], "{profile:?}");
}

#[test]
fn d_16_client_of_openssl() {
    for certificate in CERTIFICATES {
        for (profile, name, _) in PROFILES {
            for mtu in [1200, 300] {
                let peer = Peer::openssl_server(certificate, name, mtu, &[]);
                let ours = Ours::client(&peer, &[profile], mtu);
                assert_eq!(ours.connected.srtp.as_ref().unwrap().0, profile);
                check_keys(&ours, &peer.finish("Keying material:"));
            }
        }
    }
}

#[test]
fn d_16_server_of_openssl() {
    for certificate in CERTIFICATES {
        for (profile, name, _) in PROFILES {
            for (mtu, own) in [(1200, Certificate::P256), (300, Certificate::Rsa)] {
                let server = Ours::listen(own, &[profile], mtu, false);
                let peer = Peer::openssl_client(certificate, name, mtu, server.port(), &[]);
                let ours = server.accept(&peer);
                assert_eq!(ours.connected.srtp.as_ref().unwrap().0, profile);
                check_keys(&ours, &peer.finish("Keying material:"));
            }
        }
    }
}

/// Checks each cipher suite in both roles, and a port that requires a cookie.
#[test]
fn d_16_every_suite_with_openssl() {
    for (suite, name, certificate) in [
        (CipherSuite::EcdheEcdsaAes128Gcm, "ECDHE-ECDSA-AES128-GCM-SHA256", Certificate::P256),
        (CipherSuite::EcdheRsaAes128Gcm, "ECDHE-RSA-AES128-GCM-SHA256", Certificate::Rsa),
        (CipherSuite::EcdheEcdsaAes256Gcm, "ECDHE-ECDSA-AES256-GCM-SHA384", Certificate::P256),
        (CipherSuite::EcdheRsaAes256Gcm, "ECDHE-RSA-AES256-GCM-SHA384", Certificate::Rsa),
        (CipherSuite::EcdheEcdsaChaCha20, "ECDHE-ECDSA-CHACHA20-POLY1305", Certificate::P256),
        (CipherSuite::EcdheRsaChaCha20, "ECDHE-RSA-CHACHA20-POLY1305", Certificate::Rsa),
    ] {
        let (profile, srtp, _) = PROFILES[2];
        // The certificates use P-256, so the list of curves must contain it.
        for curves in ["X25519:P-256", "P-256"] {
            let options = ["-cipher", name, "-curves", curves];
            let peer = Peer::openssl_server(certificate, srtp, 1200, &options);
            let ours = Ours::client(&peer, &[profile], 1200);
            assert_eq!(ours.connected.suite, suite);
            check_keys(&ours, &peer.finish("Keying material:"));

            let server = Ours::listen(certificate, &[profile], 1200, true);
            let peer = Peer::openssl_client(Certificate::P256, srtp, 1200, server.port(), &options);
            let ours = server.accept(&peer);
            assert_eq!(ours.connected.suite, suite);
            check_keys(&ours, &peer.finish("Keying material:"));
        }
    }
}

/// Checks a GnuTLS server. It prints no keys, but Finished proves that both sides have the same keys.
#[test]
fn d_16_client_of_gnutls() {
    for certificate in CERTIFICATES {
        for (profile, _, name) in PROFILES.into_iter().filter(|(.., name)| !name.is_empty()) {
            for mtu in [1200, 300] {
                let peer = Peer::gnutls_server(certificate, name, mtu);
                let ours = Ours::client(&peer, &[profile], mtu);
                assert_eq!(ours.connected.srtp.as_ref().unwrap().0, profile);
                peer.finish("Accepted connection");
            }
        }
    }
}

#[test]
fn d_16_server_of_gnutls() {
    for certificate in CERTIFICATES {
        for (profile, _, name) in PROFILES.into_iter().filter(|(.., name)| !name.is_empty()) {
            for (mtu, own) in [(1200, Certificate::P256), (300, Certificate::Rsa)] {
                let server = Ours::listen(own, &[profile], mtu, false);
                let peer = Peer::gnutls_client(certificate, name, mtu, server.port());
                let ours = server.accept(&peer);
                assert_eq!(ours.connected.srtp.as_ref().unwrap().0, profile);
                check_keys(&ours, &peer.finish("Key material: "));
            }
        }
    }
}

/// Checks that OpenSSL is refused too if its certificate does not have the expected fingerprint.
#[test]
fn d_02_openssl_with_another_certificate_is_refused() {
    let peer = Peer::openssl_server(Certificate::P256, PROFILES[0].1, 1200, &[]);
    let other = peers::certificate(Certificate::Rsa).der.clone();
    let reason = Ours::refuse(&peer, &other);
    assert_eq!(reason, dtls::CloseReason::Failed(dtls::Failure::Fingerprint));
    assert_eq!(PeerCheck::default(), PeerCheck::Fingerprint);
}
