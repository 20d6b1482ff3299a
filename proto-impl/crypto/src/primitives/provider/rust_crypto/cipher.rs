//! AES in counter mode, in cipher block chaining, and as a key wrap.

use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser, InnerIvInit, KeyInit, KeyIvInit,
    StreamCipher, StreamCipherCoreWrapper,
};
use aes::{Aes128Dec, Aes128Enc, Aes192Dec, Aes192Enc, Aes256Dec, Aes256Enc};
use aes_kw::{KwAes128, KwAes192, KwAes256};
use ctr::CtrCore;

use crate::AesKeyLength;
use crate::primitives::aes::BLOCK_BYTES;
use crate::primitives::provider;

/// Counter mode, with a schedule of each length. The schedules are large, and a session is moved.
pub(crate) enum Ctr {
    Aes128(Box<Aes128Enc>),
    Aes192(Box<Aes192Enc>),
    Aes256(Box<Aes256Enc>),
}

impl provider::Ctr for Ctr {
    fn new(key: &[u8]) -> Option<Self> {
        Some(match AesKeyLength::from_bytes(key.len())? {
            AesKeyLength::Bytes16 => Self::Aes128(Box::new(Aes128Enc::new_from_slice(key).ok()?)),
            AesKeyLength::Bytes24 => Self::Aes192(Box::new(Aes192Enc::new_from_slice(key).ok()?)),
            AesKeyLength::Bytes32 => Self::Aes256(Box::new(Aes256Enc::new_from_slice(key).ok()?)),
        })
    }

    fn apply(&self, initial: [u8; BLOCK_BYTES], in_out: &mut [u8]) {
        match self {
            Self::Aes128(key) => apply_key_stream(&**key, initial, in_out),
            Self::Aes192(key) => apply_key_stream(&**key, initial, in_out),
            Self::Aes256(key) => apply_key_stream(&**key, initial, in_out),
        }
    }
}

fn apply_key_stream<C>(cipher: &C, initial: [u8; BLOCK_BYTES], in_out: &mut [u8])
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let core = CtrCore::<_, ctr::flavors::Ctr128BE>::inner_iv_init(cipher, &initial.into());
    StreamCipherCoreWrapper::from_core(core).apply_keystream(in_out);
}

/// Encryption in cipher block chaining.
pub(crate) enum CbcSealer {
    Aes128(Box<cbc::Encryptor<Aes128Enc>>),
    Aes192(Box<cbc::Encryptor<Aes192Enc>>),
    Aes256(Box<cbc::Encryptor<Aes256Enc>>),
}

impl provider::Cbc for CbcSealer {
    fn new(key: &[u8], initial: [u8; BLOCK_BYTES]) -> Option<Self> {
        Some(match AesKeyLength::from_bytes(key.len())? {
            AesKeyLength::Bytes16 => Self::Aes128(Box::new(KeyIvInit::new_from_slices(key, &initial).ok()?)),
            AesKeyLength::Bytes24 => Self::Aes192(Box::new(KeyIvInit::new_from_slices(key, &initial).ok()?)),
            AesKeyLength::Bytes32 => Self::Aes256(Box::new(KeyIvInit::new_from_slices(key, &initial).ok()?)),
        })
    }

    fn apply(&mut self, in_out: &mut [u8]) -> bool {
        for block in in_out.as_chunks_mut::<BLOCK_BYTES>().0 {
            let block = block.into();
            match self {
                Self::Aes128(cipher) => cipher.encrypt_block(block),
                Self::Aes192(cipher) => cipher.encrypt_block(block),
                Self::Aes256(cipher) => cipher.encrypt_block(block),
            }
        }
        true
    }
}

/// Decryption in cipher block chaining.
pub(crate) enum CbcOpener {
    Aes128(Box<cbc::Decryptor<Aes128Dec>>),
    Aes192(Box<cbc::Decryptor<Aes192Dec>>),
    Aes256(Box<cbc::Decryptor<Aes256Dec>>),
}

impl provider::Cbc for CbcOpener {
    fn new(key: &[u8], initial: [u8; BLOCK_BYTES]) -> Option<Self> {
        Some(match AesKeyLength::from_bytes(key.len())? {
            AesKeyLength::Bytes16 => Self::Aes128(Box::new(KeyIvInit::new_from_slices(key, &initial).ok()?)),
            AesKeyLength::Bytes24 => Self::Aes192(Box::new(KeyIvInit::new_from_slices(key, &initial).ok()?)),
            AesKeyLength::Bytes32 => Self::Aes256(Box::new(KeyIvInit::new_from_slices(key, &initial).ok()?)),
        })
    }

    fn apply(&mut self, in_out: &mut [u8]) -> bool {
        let blocks = aes::Block::cast_slice_from_core_mut(in_out.as_chunks_mut::<BLOCK_BYTES>().0);
        match self {
            Self::Aes128(cipher) => cipher.decrypt_blocks(blocks),
            Self::Aes192(cipher) => cipher.decrypt_blocks(blocks),
            Self::Aes256(cipher) => cipher.decrypt_blocks(blocks),
        }
        true
    }
}

/// Encrypts a single block.
pub(super) fn encrypt_block(key: &[u8], block: [u8; BLOCK_BYTES]) -> Option<[u8; BLOCK_BYTES]> {
    let mut block = block.into();
    match AesKeyLength::from_bytes(key.len())? {
        AesKeyLength::Bytes16 => Aes128Enc::new_from_slice(key).ok()?.encrypt_block(&mut block),
        AesKeyLength::Bytes24 => Aes192Enc::new_from_slice(key).ok()?.encrypt_block(&mut block),
        AesKeyLength::Bytes32 => Aes256Enc::new_from_slice(key).ok()?.encrypt_block(&mut block),
    }
    Some(block.into())
}

pub(super) fn wrap_key(kek: &[u8], key: &[u8], out: &mut [u8]) -> Option<()> {
    match AesKeyLength::from_bytes(kek.len())? {
        AesKeyLength::Bytes16 => KwAes128::new_from_slice(kek).ok()?.wrap_key(key, out).ok().map(drop),
        AesKeyLength::Bytes24 => KwAes192::new_from_slice(kek).ok()?.wrap_key(key, out).ok().map(drop),
        AesKeyLength::Bytes32 => KwAes256::new_from_slice(kek).ok()?.wrap_key(key, out).ok().map(drop),
    }
}

pub(super) fn unwrap_key(kek: &[u8], wrapped: &[u8], out: &mut [u8]) -> Option<()> {
    match AesKeyLength::from_bytes(kek.len())? {
        AesKeyLength::Bytes16 => KwAes128::new_from_slice(kek).ok()?.unwrap_key(wrapped, out).ok().map(drop),
        AesKeyLength::Bytes24 => KwAes192::new_from_slice(kek).ok()?.unwrap_key(wrapped, out).ok().map(drop),
        AesKeyLength::Bytes32 => KwAes256::new_from_slice(kek).ok()?.unwrap_key(wrapped, out).ok().map(drop),
    }
}
