//! Hashes selected by the protocol, and the pseudorandom function of TLS 1.2 over them.

use crate::primitives::provider::{Chosen, Provider};

/// Hashes that the protocols here negotiate (FIPS 180-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    /// SHA-256, with a digest of 32 bytes.
    Sha256,
    /// SHA-384, with a digest of 48 bytes.
    Sha384,
    /// SHA-512, with a digest of 64 bytes.
    Sha512,
}

impl Hash {
    /// Computes the digest of `bytes`.
    #[must_use]
    pub fn digest(self, bytes: &[u8]) -> Vec<u8> {
        Chosen::digest(self, bytes)
    }
}

/// Fills `out` with the pseudorandom function of TLS 1.2 (RFC 5246 §5). For an empty secret it zeroes `out` and returns
/// false.
#[must_use]
pub fn tls12_prf(hash: Hash, secret: &[u8], label: &[u8], seed: &[u8], out: &mut [u8]) -> bool {
    let done = !secret.is_empty() && Chosen::tls12_prf(hash, secret, label, seed, out);
    if !done {
        out.fill(0);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|x| format!("{x:02x}")).collect()
    }

    /// Checks the example "abc" of FIPS 180-4.
    #[test]
    fn hashes_of_abc() {
        for (hash, start, length) in [
            (Hash::Sha256, "ba7816bf8f01cfea", 32),
            (Hash::Sha384, "cb00753f45a35e8b", 48),
            (Hash::Sha512, "ddaf35a193617aba", 64),
        ] {
            let digest = hash.digest(b"abc");
            assert_eq!((&hex(&digest)[..16], digest.len()), (start, length));
        }
    }

    /// Checks the vectors that the TLS working group circulated when the function was new.
    #[test]
    fn prf_vectors() {
        for (hash, secret, seed, start, end) in [
            (
                Hash::Sha256,
                "9bbe436ba940f017b17652849a71db35",
                "a0ba9f936cda311827a6f796ffd5198c",
                "e3f229ba727be17b8d122620557cd453c2aab21d07c3d495329b52d4e61edb5a",
                "5a5110fff70187347b66",
            ),
            (
                Hash::Sha384,
                "b80b733d6ceefcdc71566ea48e5567df",
                "cd665cf6a8447dd6ff8b27555edb7465",
                "7b0c18e9ced410ed1804f2cfa34a336a1c14dffb4900bb5fd7942107e81c83cd",
                "",
            ),
        ] {
            let bytes = |text: &str| -> Vec<u8> {
                (0..text.len())
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
                    .collect()
            };
            let mut out = [0; 100];
            assert!(tls12_prf(hash, &bytes(secret), b"test label", &bytes(seed), &mut out));
            assert!(hex(&out).starts_with(start), "{}", hex(&out));
            assert!(hex(&out).ends_with(end), "{}", hex(&out));
        }
        let mut out = [1; 4];
        assert!(!tls12_prf(Hash::Sha256, b"", b"label", b"seed", &mut out) && out == [0; 4]);
    }
}
