//! Key agreement on Curve25519 and P-256.

use p256::ecdh::diffie_hellman;
use p256::elliptic_curve::sec1::ToSec1Point;
use p256::{PublicKey, SecretKey};
use x25519_dalek::StaticSecret;

use crate::AgreementGroup;
use crate::primitives::provider::Agreement;

/// A private key; both kinds are zeroed when they are dropped.
pub(crate) enum AgreementKey {
    X25519(StaticSecret),
    P256(SecretKey),
}

impl Agreement for AgreementKey {
    fn from_bytes(group: AgreementGroup, bytes: &[u8]) -> Option<Self> {
        Some(match group {
            AgreementGroup::X25519 => Self::X25519(<[u8; 32]>::try_from(bytes).ok()?.into()),
            AgreementGroup::P256 => Self::P256(SecretKey::from_slice(bytes).ok()?),
        })
    }

    fn public(&self) -> Vec<u8> {
        match self {
            Self::X25519(key) => x25519_dalek::PublicKey::from(key).as_bytes().to_vec(),
            Self::P256(key) => key.public_key().to_sec1_point(false).as_bytes().to_vec(),
        }
    }

    fn agree<R>(&self, peer: &[u8], derive: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match self {
            Self::X25519(key) => {
                let secret = key.diffie_hellman(&<[u8; 32]>::try_from(peer).ok()?.into());
                // A point of low order makes the secret zero (RFC 7748 §6.1).
                secret.was_contributory().then(|| derive(secret.as_bytes()))
            }
            Self::P256(key) => {
                let peer = PublicKey::from_sec1_bytes(peer).ok()?;
                Some(derive(diffie_hellman(key.to_nonzero_scalar(), peer.as_affine()).raw_secret_bytes()))
            }
        }
    }
}
