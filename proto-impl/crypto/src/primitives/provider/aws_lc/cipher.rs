//! AES of aws-lc in counter mode, in cipher block chaining, and on single blocks.

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;

use crate::AesKeyLength;
use crate::primitives::aes::BLOCK_BYTES;
use crate::primitives::provider;

/// Returns the key in the form that the library needs, or `None` if its length is not 16, 24 or 32 bytes.
fn unbound(key: &[u8]) -> Option<UnboundCipherKey> {
    let algorithm = match AesKeyLength::from_bytes(key.len())? {
        AesKeyLength::Bytes16 => &AES_128,
        AesKeyLength::Bytes24 => &AES_192,
        AesKeyLength::Bytes32 => &AES_256,
    };
    UnboundCipherKey::new(algorithm, key).ok()
}

/// Counter mode.
pub(crate) struct Ctr(EncryptingKey);

impl provider::Ctr for Ctr {
    fn new(key: &[u8]) -> Option<Self> {
        EncryptingKey::ctr(unbound(key)?).ok().map(Self)
    }

    #[inline]
    fn apply(&self, initial: [u8; BLOCK_BYTES], in_out: &mut [u8]) {
        let context = EncryptionContext::Iv128(FixedLength::from(initial));
        if self.0.less_safe_encrypt(in_out, context).is_err() {
            // The library only fails if the context is for another mode. Even then, no plaintext may be sent.
            in_out.fill(0);
        }
    }
}

/// Decryption in cipher block chaining.
pub(crate) struct CbcOpener {
    key: DecryptingKey,
    previous: [u8; BLOCK_BYTES],
}

impl provider::Cbc for CbcOpener {
    fn new(key: &[u8], initial: [u8; BLOCK_BYTES]) -> Option<Self> {
        Some(Self { key: DecryptingKey::cbc(unbound(key)?).ok()?, previous: initial })
    }

    fn apply(&mut self, in_out: &mut [u8]) -> bool {
        let Some(last) = in_out.last_chunk::<BLOCK_BYTES>().copied() else { return true };
        let context = DecryptionContext::Iv128(FixedLength::from(self.previous));
        self.previous = last;
        self.key.decrypt(in_out, context).is_ok()
    }
}

/// Encryption in cipher block chaining.
pub(crate) struct CbcSealer {
    key: EncryptingKey,
    previous: [u8; BLOCK_BYTES],
}

impl provider::Cbc for CbcSealer {
    fn new(key: &[u8], initial: [u8; BLOCK_BYTES]) -> Option<Self> {
        Some(Self { key: EncryptingKey::cbc(unbound(key)?).ok()?, previous: initial })
    }

    fn apply(&mut self, in_out: &mut [u8]) -> bool {
        let context = EncryptionContext::Iv128(FixedLength::from(self.previous));
        if self.key.less_safe_encrypt(in_out, context).is_err() {
            // The library only fails if the context is for another mode. Even then, no plaintext may be sent.
            in_out.fill(0);
            return false;
        }
        if let Some(last) = in_out.last_chunk::<BLOCK_BYTES>() {
            self.previous = *last;
        }
        true
    }
}

/// AES on single blocks, for encryption and decryption.
pub(super) struct Block {
    encrypt: EncryptingKey,
    decrypt: DecryptingKey,
}

impl Block {
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        let encrypt = EncryptingKey::ecb(unbound(key)?).ok()?;
        let decrypt = DecryptingKey::ecb(unbound(key)?).ok()?;
        Some(Self { encrypt, decrypt })
    }

    /// Encrypts a block in place. Returns false if the library refused, which it does only for incomplete blocks.
    pub(super) fn encrypt(&self, block: &mut [u8; BLOCK_BYTES]) -> bool {
        self.encrypt.less_safe_encrypt(block, EncryptionContext::None).is_ok()
    }

    pub(super) fn decrypt(&self, block: &mut [u8; BLOCK_BYTES]) -> bool {
        self.decrypt.decrypt(block, DecryptionContext::None).is_ok()
    }
}
