//! The primitives that a provider gives: each with its checks of lengths and forms, the same for every provider.

mod aead;
mod aes;
mod agreement;
mod hash;
mod header;
mod hkdf;
mod key_wrap;
mod mac;
#[cfg(fuzzing)]
mod null;
mod pbkdf2;
mod provider;
mod signature;

pub use aead::{AEAD_NONCE_BYTES, AEAD_TAG_BYTES, Aead, AeadAlgorithm, NotAuthentic};
pub use aes::{AesCbcOpener, AesCbcSealer, AesCtr, AesKeyLength};
pub use agreement::{AgreementGroup, AgreementKey, NotAgreed};
pub use hash::{Hash, tls12_prf};
pub use header::{HEADER_SAMPLE_BYTES, HeaderKey};
pub use key_wrap::{NotUnwrapped, unwrap_key, wrap_key};
pub use mac::HmacSha1Key;
pub use pbkdf2::pbkdf2_hmac_sha1;
pub use signature::{KeyKind, PublicKey, SignatureAlgorithm, SigningKey};
