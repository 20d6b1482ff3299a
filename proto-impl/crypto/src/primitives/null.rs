//! Cheap substitutes for key agreement and signatures, used under `cfg(fuzzing)`. They have the same sizes and are
//! repeatable. They detect a changed byte but are not secure.

use crate::primitives::provider::{Agreement, Signer};
use crate::{AgreementGroup, KeyKind, SignatureAlgorithm, sha256};

/// Length of a hash in bytes.
const HASH_BYTES: usize = 32;

/// Substitute for a private key. The public value is a hash of the private value.
pub(crate) struct PrivateKey(Vec<u8>);

impl Agreement for PrivateKey {
    fn from_bytes(group: AgreementGroup, bytes: &[u8]) -> Option<Self> {
        let hash = sha256(&[bytes]);
        Some(Self(match group {
            AgreementGroup::X25519 => hash.to_vec(),
            // The second coordinate of the point is the same as the first.
            AgreementGroup::P256 => [&[4][..], &hash, &hash].concat(),
        }))
    }

    fn public(&self) -> Vec<u8> {
        self.0.clone()
    }

    /// Both sides hash both public values.
    fn agree<R>(&self, peer: &[u8], derive: impl FnOnce(&[u8]) -> R) -> Option<R> {
        is_in_the_group(peer).then(|| {
            let mine = &self.0[..];
            derive(&sha256(&[mine.min(peer), mine.max(peer)]))
        })
    }
}

fn is_in_the_group(public: &[u8]) -> bool {
    let (first, second) = public.split_last_chunk::<HASH_BYTES>().unwrap_or((&[], &[0; HASH_BYTES]));
    second.iter().any(|byte| *byte != 0) && (first.is_empty() || first.ends_with(second))
}

/// Makes a signature, a hash of the message and the end of the public key.
pub(crate) fn sign(pair: &impl Signer, _algorithm: SignatureAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
    Some(sha256(&[pair.public().last_chunk::<HASH_BYTES>()?, message]).to_vec())
}

pub(crate) fn verify(
    kind: KeyKind,
    algorithm: SignatureAlgorithm,
    spki: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let is_rsa = !matches!(algorithm, SignatureAlgorithm::Ecdsa(_));
    let public = spki.last_chunk::<HASH_BYTES>().filter(|_| is_rsa == (kind == KeyKind::Rsa));
    public.is_some_and(|public| signature == sha256(&[public, message]))
}
