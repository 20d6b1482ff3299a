//! The primitives of the crates of RustCrypto: without any C.

mod agreement;
mod cipher;
mod signature;

use std::num::NonZeroU32;

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use chacha20::cipher::{KeyIvInit, StreamCipherCore};
use chacha20::variants::Ietf;
use chacha20::{ChaChaCore, R20};
use chacha20poly1305::ChaCha20Poly1305;
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{Aead, HmacSha1, Provider};
use crate::{
    AEAD_NONCE_BYTES, AEAD_TAG_BYTES, AeadAlgorithm, HEADER_SAMPLE_BYTES, Hash, KeyKind, SignatureAlgorithm,
};

/// Compiles only if values of the type are wiped when they are dropped. Each crate has a feature for it, which is easily
/// forgotten.
const fn wipes<T: ZeroizeOnDrop>() {}

const _: () = {
    wipes::<Aes128Gcm>();
    wipes::<Aes256Gcm>();
    wipes::<ChaCha20Poly1305>();
    wipes::<ChaChaCore<R20, Ietf>>();
    wipes::<aes::Aes128Enc>();
    wipes::<aes::Aes192Enc>();
    wipes::<aes::Aes256Enc>();
    wipes::<cbc::Encryptor<aes::Aes128Enc>>();
    wipes::<cbc::Decryptor<aes::Aes256Dec>>();
    wipes::<aes_kw::KwAes256>();
    // An HMAC holds nothing but states of its hash.
    wipes::<Sha1>();
    wipes::<Sha256>();
    wipes::<Sha512>();
    wipes::<p256::SecretKey>();
    wipes::<p256::ecdsa::SigningKey>();
    wipes::<rsa::PrivateKey>();
    wipes::<x25519_dalek::StaticSecret>();
};

/// Names the library.
pub(crate) enum RustCrypto {}

impl Provider for RustCrypto {
    type Aead = AeadKey;
    type Ctr = cipher::Ctr;
    type CbcSealer = cipher::CbcSealer;
    type CbcOpener = cipher::CbcOpener;
    type HmacSha1 = Hmac<Sha1>;
    type Agreement = agreement::AgreementKey;
    type Signer = signature::Pair;

    fn digest(hash: Hash, bytes: &[u8]) -> Vec<u8> {
        match hash {
            Hash::Sha256 => Sha256::digest(bytes).to_vec(),
            Hash::Sha384 => Sha384::digest(bytes).to_vec(),
            Hash::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    fn mac(hash: Hash, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match hash {
            Hash::Sha256 => mac::<Sha256>(key, &[parts]),
            Hash::Sha384 => mac::<Sha384>(key, &[parts]),
            Hash::Sha512 => mac::<Sha512>(key, &[parts]),
        }
    }

    fn expand(hash: Hash, key: &[u8], info: &[&[u8]], out: &mut [u8]) -> bool {
        match hash {
            Hash::Sha256 => expand::<Sha256>(key, info, out),
            Hash::Sha384 => expand::<Sha384>(key, info, out),
            Hash::Sha512 => expand::<Sha512>(key, info, out),
        }
    }

    fn tls12_prf(hash: Hash, secret: &[u8], label: &[u8], seed: &[u8], out: &mut [u8]) -> bool {
        match hash {
            Hash::Sha256 => prf::<Sha256>(secret, &[label, seed], out),
            Hash::Sha384 => prf::<Sha384>(secret, &[label, seed], out),
            Hash::Sha512 => prf::<Sha512>(secret, &[label, seed], out),
        }
        true
    }

    fn pbkdf2_hmac_sha1(secret: &[u8], salt: &[u8], iterations: NonZeroU32, out: &mut [u8]) {
        pbkdf2::pbkdf2_hmac::<Sha1>(secret, salt, iterations.get(), out);
    }

    fn header_mask(
        algorithm: AeadAlgorithm,
        key: &[u8],
        sample: &[u8; HEADER_SAMPLE_BYTES],
    ) -> Option<[u8; 5]> {
        match algorithm {
            AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes256Gcm => {
                cipher::encrypt_block(key, *sample)?.first_chunk().copied()
            }
            // The sample is the block's number and the nonce (RFC 9001 §5.4.4). The stream cipher refuses the last
            // number, because no further block follows.
            AeadAlgorithm::ChaCha20Poly1305 => {
                let (number, nonce) = sample.split_first_chunk::<4>()?;
                let mut cipher = ChaChaCore::<R20, Ietf>::new_from_slices(key, nonce).ok()?;
                let mut block = [0; 64].into();
                cipher.set_block_pos(u32::from_le_bytes(*number));
                cipher.write_keystream_block(&mut block);
                block.first_chunk().copied()
            }
        }
    }

    fn wrap_key(kek: &[u8], key: &[u8], out: &mut [u8]) -> bool {
        cipher::wrap_key(kek, key, out).is_some()
    }

    fn unwrap_key(kek: &[u8], wrapped: &[u8], out: &mut [u8]) -> bool {
        cipher::unwrap_key(kek, wrapped, out).is_some()
    }

    fn verify(
        kind: KeyKind,
        algorithm: SignatureAlgorithm,
        spki: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        signature::verify(kind, algorithm, spki, message, signature).is_some()
    }
}

/// HMAC over the concatenation of the parts in `lists`.
fn mac<D: EagerHash>(key: &[u8], lists: &[&[&[u8]]]) -> Vec<u8>
where
    Hmac<D>: Mac + KeyInit,
{
    // HMAC accepts keys of any length (RFC 2104 §2), so this never fails.
    let Ok(mut mac) = <Hmac<D> as KeyInit>::new_from_slice(key) else { return Vec::new() };
    for part in lists.iter().copied().flatten() {
        mac.update(part);
    }
    mac.finalize().as_bytes().to_vec()
}

/// The expansion of HKDF (RFC 5869 §2.3). The crate `hkdf` takes no key shorter than a digest.
fn expand<D: EagerHash + Digest>(key: &[u8], info: &[&[u8]], out: &mut [u8]) -> bool
where
    Hmac<D>: Mac + KeyInit,
{
    let mut block = Zeroizing::new(Vec::new());
    for (index, out) in out.chunks_mut(<D as Digest>::output_size()).enumerate() {
        let Some(number) = index.checked_add(1).and_then(|number| u8::try_from(number).ok()) else {
            return false;
        };
        block = Zeroizing::new(mac::<D>(key, &[&[&block], info, &[&[number]]]));
        out.iter_mut().zip(&*block).for_each(|(to, from)| *to = *from);
    }
    true
}

/// `P_hash` of RFC 5246 §5, whose seed is the concatenation of `seed`.
fn prf<D: EagerHash>(secret: &[u8], seed: &[&[u8]], out: &mut [u8])
where
    Hmac<D>: Mac + KeyInit,
{
    let mut chain = Zeroizing::new(mac::<D>(secret, &[seed]));
    for out in out.chunks_mut(chain.len().max(1)) {
        let block = Zeroizing::new(mac::<D>(secret, &[&[&chain], seed]));
        out.iter_mut().zip(&*block).for_each(|(to, from)| *to = *from);
        chain = Zeroizing::new(mac::<D>(secret, &[&[&chain]]));
    }
}

/// An AEAD key. The schedules are large, and a session is moved.
pub(crate) enum AeadKey {
    Aes128Gcm(Box<Aes128Gcm>),
    Aes256Gcm(Box<Aes256Gcm>),
    ChaCha20Poly1305(Box<ChaCha20Poly1305>),
}

impl Aead for AeadKey {
    fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Option<Self> {
        Some(match algorithm {
            AeadAlgorithm::Aes128Gcm => Self::Aes128Gcm(Box::new(Aes128Gcm::new_from_slice(key).ok()?)),
            AeadAlgorithm::Aes256Gcm => Self::Aes256Gcm(Box::new(Aes256Gcm::new_from_slice(key).ok()?)),
            AeadAlgorithm::ChaCha20Poly1305 => {
                Self::ChaCha20Poly1305(Box::new(ChaCha20Poly1305::new_from_slice(key).ok()?))
            }
        })
    }

    fn seal(
        &self,
        nonce: [u8; AEAD_NONCE_BYTES],
        associated: &[u8],
        in_out: &mut [u8],
    ) -> [u8; AEAD_TAG_BYTES] {
        let (nonce, text) = (&nonce.into(), (&mut *in_out).into());
        let tag = match self {
            Self::Aes128Gcm(key) => key.encrypt_inout_detached(nonce, associated, text),
            Self::Aes256Gcm(key) => key.encrypt_inout_detached(nonce, associated, text),
            Self::ChaCha20Poly1305(key) => key.encrypt_inout_detached(nonce, associated, text),
        };
        let Ok(tag) = tag else {
            // The library only fails for more than 64 GiB. Even then, no plaintext may be sent.
            in_out.fill(0);
            return [0; AEAD_TAG_BYTES];
        };
        tag.into()
    }

    fn open(&self, nonce: [u8; AEAD_NONCE_BYTES], associated: &[u8], tag: &[u8], in_out: &mut [u8]) -> bool {
        let Ok(tag) = <[u8; AEAD_TAG_BYTES]>::try_from(tag) else { return false };
        let (nonce, tag, text) = (&nonce.into(), &tag.into(), in_out.into());
        let opened = match self {
            Self::Aes128Gcm(key) => key.decrypt_inout_detached(nonce, associated, text, tag),
            Self::Aes256Gcm(key) => key.decrypt_inout_detached(nonce, associated, text, tag),
            Self::ChaCha20Poly1305(key) => key.decrypt_inout_detached(nonce, associated, text, tag),
        };
        opened.is_ok()
    }
}

impl HmacSha1 for Hmac<Sha1> {
    fn new(key: &[u8]) -> Self {
        // HMAC accepts keys of any length (RFC 2104 §2), so the other key is never used.
        <Self as KeyInit>::new_from_slice(key).unwrap_or_else(|_| <Self as KeyInit>::new(&[0; 64].into()))
    }

    fn sign(&self, parts: &[&[u8]]) -> [u8; 20] {
        let mut mac = self.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}
