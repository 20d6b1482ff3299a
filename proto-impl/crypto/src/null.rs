//! Cheap substitutes for key agreement and signatures, used under `cfg(fuzzing)`. They have the same sizes and are
//! repeatable. They detect a changed byte but are not secure.

use aws_lc_rs::agreement::{Algorithm, X25519};
use aws_lc_rs::signature::VerificationAlgorithm;

use crate::sha256;
use crate::signature::Pair;
use crate::{NotAuthentic, SignatureAlgorithm};

/// Length of a hash in bytes.
const HASH_BYTES: usize = 32;

/// Substitute for the library's type. The public value is a hash of the private value.
pub(crate) struct PrivateKey(Vec<u8>);

impl PrivateKey {
    pub(crate) fn from_private_key(group: &'static Algorithm, bytes: &[u8]) -> Result<Self, NotAuthentic> {
        let hash = sha256(&[bytes]);
        // The second coordinate of the point is the same as the first.
        Ok(Self(if *group == X25519 { hash.to_vec() } else { [&[4][..], &hash, &hash].concat() }))
    }

    pub(crate) fn compute_public_key(&self) -> Result<&[u8], NotAuthentic> {
        Ok(&self.0)
    }
}

/// Substitute for the library's type.
pub(crate) struct UnparsedPublicKey<'a>(&'a [u8]);

impl<'a> UnparsedPublicKey<'a> {
    pub(crate) const fn new(_group: &'static Algorithm, bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn is_in_the_group(&self) -> bool {
        let (first, second) = self.0.split_last_chunk::<HASH_BYTES>().unwrap_or((&[], &[0; HASH_BYTES]));
        second.iter().any(|byte| *byte != 0) && (first.is_empty() || first.ends_with(second))
    }
}

/// Substitute for the library's function. Both sides hash both public values.
pub(crate) fn agree<R, E>(
    mine: &PrivateKey,
    peer: UnparsedPublicKey<'_>,
    error: E,
    derive: impl FnOnce(&[u8]) -> Result<R, E>,
) -> Result<R, E> {
    if !peer.is_in_the_group() {
        return Err(error);
    }
    let (mine, peer) = (&mine.0[..], peer.0);
    derive(&sha256(&[mine.min(peer), mine.max(peer)]))
}

/// Makes a signature, a hash of the message and the end of the public key.
pub(crate) fn sign(pair: &Pair, _algorithm: SignatureAlgorithm, message: &[u8]) -> Option<Vec<u8>> {
    Some(sha256(&[pair.public().last_chunk::<HASH_BYTES>()?, message]).to_vec())
}

pub(crate) fn verify(
    _verifier: &'static dyn VerificationAlgorithm,
    spki: &[u8],
    message: &[u8],
    signature: &[u8],
) -> Result<(), NotAuthentic> {
    let public = spki.last_chunk::<HASH_BYTES>().ok_or(NotAuthentic)?;
    if signature == sha256(&[public, message]) { Ok(()) } else { Err(NotAuthentic) }
}
