//! Key material: the message with the keys of a stream, wrapped by a key derived from the passphrase
//! (draft-sharabayko-srt-01 §3.2.2, §6.1).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |0|  V  |  PT   |              Sign             |   Resv1   | KK|
//! |                              KEKI                             |
//! |     Cipher    |      Auth     |       SE      |     Resv2     |
//! |             Resv3             |     SLen/4    |     KLen/4    |
//! |                              Salt (128 bits)                  |
//! |                          Wrapped Key                          |
//! ```

use std::num::NonZeroU32;

use crypto::{Random, pbkdf2_hmac_sha1, unwrap_key, wrap_key};
use wire::Reader;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::config::{KeyLength, Passphrase};

const VERSION_AND_TYPE: u8 = 0x12;
/// Signature: "HAI" as a PnP vendor id.
const SIGN: u16 = 0x2029;
const CIPHER_CTR: u8 = 2;
/// Stream encapsulation "MPEG-TS over SRT", the only value that libsrt sends.
const ENCAPSULATION_SRT: u8 = 2;
pub(crate) const SALT_BYTES: usize = 16;
/// Length of the part of the salt used for key derivation (§6.1.4).
const DERIVATION_SALT_BYTES: usize = 8;
const ITERATIONS: NonZeroU32 = match NonZeroU32::new(2048) {
    Some(n) => n,
    None => NonZeroU32::MIN,
};
const WRAP_BYTES: usize = 8;
/// Size of the largest message: two keys of the maximum length. Longer messages are refused (CVE-2026-55869: a receiver
/// copied longer ones).
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 + SALT_BYTES + WRAP_BYTES + 2 * 32;

/// Parity of a key: even or odd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parity {
    Even,
    Odd,
}

impl Parity {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Even => Self::Odd,
            Self::Odd => Self::Even,
        }
    }
}

/// The reason key material is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KmError {
    /// The message is malformed.
    #[error("malformed key material")]
    Malformed,
    /// A cipher other than AES in counter mode.
    #[error("unknown cipher")]
    Cipher,
    /// The keys cannot be unwrapped, because the passphrases differ or the message is damaged.
    #[error("wrong passphrase")]
    Secret,
}

/// Stream encrypting key. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Sek(Zeroizing<Vec<u8>>);

impl Sek {
    pub(crate) fn draw(random: &mut Random, length: KeyLength) -> Self {
        let mut bytes = Zeroizing::new(vec![0; length.bytes()]);
        random.fill(&mut bytes);
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Sek {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sek(..)")
    }
}

/// Key encrypting key, which wraps stream keys. Deriving it takes about a millisecond, to make guessing passphrases
/// slow. It is derived only once for each salt.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Kek(Zeroizing<Vec<u8>>);

impl Kek {
    pub(crate) fn derive(passphrase: &Passphrase, salt: &[u8; SALT_BYTES], length: KeyLength) -> Self {
        let mut key = Zeroizing::new(vec![0; length.bytes()]);
        let salt = salt.last_chunk::<DERIVATION_SALT_BYTES>().copied().unwrap_or_default();
        pbkdf2_hmac_sha1(passphrase.bytes(), &salt, ITERATIONS, &mut key);
        Self(key)
    }
}

impl std::fmt::Debug for Kek {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kek(..)")
    }
}

/// Compiles only if the value is wiped when it is dropped.
pub(crate) const fn wipes<T: ZeroizeOnDrop>(_: &T) {}

const _: fn(&Sek, &Kek) = |sek, kek| {
    wipes(&sek.0);
    wipes(&kek.0);
};

/// The stream keys in a message: the even key, the odd key, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) even: Option<Sek>,
    pub(crate) odd: Option<Sek>,
}

/// A parsed key material message with its keys still wrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMaterial<'a> {
    even: bool,
    odd: bool,
    length: KeyLength,
    salt: [u8; SALT_BYTES],
    wrapped: &'a [u8],
}

impl<'a> KeyMaterial<'a> {
    /// Parses a message. Its length fields must agree with each other and with the length of the message.
    pub fn read(bytes: &'a [u8]) -> Result<Self, KmError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(KmError::Malformed);
        }
        let mut r = Reader::new(bytes);
        Self::read_fields(&mut r).map_err(|_| KmError::Malformed)?
    }

    fn read_fields(r: &mut Reader<'a>) -> Result<Result<Self, KmError>, wire::Truncated> {
        let (version, sign, flags, _keki) = (r.u8()?, r.u16()?, r.u8()?, r.u32()?);
        let (cipher, auth, _encapsulation, _) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?);
        let (_, salt_words, key_words) = (r.u16()?, r.u8()?, r.u8()?);
        let (even, odd) = (flags & 1 != 0, flags & 2 != 0);
        if version != VERSION_AND_TYPE
            || sign != SIGN
            || !(even || odd)
            || usize::from(salt_words) * 4 != SALT_BYTES
        {
            return Ok(Err(KmError::Malformed));
        }
        if cipher != CIPHER_CTR || auth != 0 {
            return Ok(Err(KmError::Cipher));
        }
        let Some(length) = KeyLength::from_bytes(usize::from(key_words) * 4) else {
            return Ok(Err(KmError::Malformed));
        };
        let salt = r.array()?;
        let wrapped = r.rest();
        let keys = usize::from(even) + usize::from(odd);
        if wrapped.len() != WRAP_BYTES + keys * length.bytes() {
            return Ok(Err(KmError::Malformed));
        }
        Ok(Ok(Self { even, odd, length, salt, wrapped }))
    }

    /// Length of each key.
    #[must_use]
    pub const fn key_length(&self) -> KeyLength {
        self.length
    }

    pub(crate) const fn salt(&self) -> &[u8; SALT_BYTES] {
        &self.salt
    }

    pub(crate) fn unwrap(&self, kek: &Kek) -> Result<Keys, KmError> {
        let keys = unwrap_key(&kek.0, self.wrapped).map_err(|_| KmError::Secret)?;
        // If both keys are present, the even one comes first.
        let (first, second) = keys.split_at_checked(self.length.bytes()).ok_or(KmError::Malformed)?;
        let sek = |bytes: &[u8]| Some(Sek(Zeroizing::new(bytes.to_vec())));
        Ok(match (self.even, self.odd) {
            (true, true) => Keys { even: sek(first), odd: sek(second) },
            (true, false) => Keys { even: sek(first), odd: None },
            _ => Keys { even: None, odd: sek(first) },
        })
    }
}

/// Writes a message with these keys; `None` if there is no key.
pub(crate) fn write(kek: &Kek, salt: &[u8; SALT_BYTES], keys: &Keys) -> Option<Vec<u8>> {
    let flags = u8::from(keys.even.is_some()) | u8::from(keys.odd.is_some()) << 1;
    let seks: Vec<&[u8]> = [&keys.even, &keys.odd].into_iter().flatten().map(Sek::bytes).collect();
    let key_words = u8::try_from(seks.first()?.len() / 4).ok()?;
    let [sign_high, sign_low] = SIGN.to_be_bytes();
    let mut out = vec![VERSION_AND_TYPE, sign_high, sign_low, flags, 0, 0, 0, 0];
    out.extend_from_slice(&[CIPHER_CTR, 0, ENCAPSULATION_SRT, 0, 0, 0, 4, key_words]);
    out.extend_from_slice(salt);
    out.extend_from_slice(&wrap_key(&kek.0, &seks.concat())?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use crypto::Seed;

    use super::*;

    fn passphrase(text: &str) -> Passphrase {
        Passphrase::new(text).unwrap()
    }

    fn message(length: KeyLength, both: bool) -> (Vec<u8>, Keys) {
        let mut random = Seed::from_number(3).random();
        let mut salt = [0; SALT_BYTES];
        random.fill(&mut salt);
        let even = Some(Sek::draw(&mut random, length));
        let odd = both.then(|| Sek::draw(&mut random, length));
        let keys = Keys { even, odd };
        let kek = Kek::derive(&passphrase("0123456789"), &salt, length);
        (write(&kek, &salt, &keys).unwrap(), keys)
    }

    fn open(bytes: &[u8], secret: &str) -> Result<Keys, KmError> {
        let km = KeyMaterial::read(bytes)?;
        km.unwrap(&Kek::derive(&passphrase(secret), km.salt(), km.key_length()))
    }

    const LENGTHS: [KeyLength; 3] = [KeyLength::Bytes16, KeyLength::Bytes24, KeyLength::Bytes32];

    #[test]
    fn keys_come_through_with_the_passphrase_and_not_without() {
        for length in LENGTHS {
            for both in [false, true] {
                let (bytes, keys) = message(length, both);
                assert_eq!(open(&bytes, "0123456789"), Ok(keys));
                assert_eq!(open(&bytes, "0123456780"), Err(KmError::Secret));
            }
        }
    }

    #[test]
    fn s_22_damage_is_noticed_wherever_it_matters() {
        let (bytes, keys) = message(KeyLength::Bytes16, true);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                // Damage to these bytes has no effect: KEKI, the encapsulation, reserved bytes, and the
                // half of the salt that is only used for counters.
                let harmless =
                    (4..8).contains(&at) || [10, 11, 12, 13].contains(&at) || (16..24).contains(&at);
                let harmless = harmless || (at == 3 && bit >= 2);
                if at < 24 || bit == 0 {
                    assert_eq!(open(&damaged, "0123456789") == Ok(keys.clone()), harmless, "{at} {bit}");
                }
            }
        }
    }

    #[test]
    fn s_20_no_length_from_0_to_1400_is_trusted() {
        let (good, _) = message(KeyLength::Bytes32, true);
        for length in 0..=1400 {
            let mut bytes = good.clone();
            bytes.resize(length, 0x5a);
            assert_eq!(KeyMaterial::read(&bytes).is_ok(), length == good.len(), "{length}");
        }
        for (at, value) in
            [(15, 0), (15, 5), (15, 15), (15, 255), (14, 0), (14, 3), (14, 255), (3, 0), (0, 0x22)]
        {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(KeyMaterial::read(&bytes), Err(KmError::Malformed), "{at} {value}");
        }
        for (at, value) in [(8, 0), (8, 1), (8, 4), (9, 1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(KeyMaterial::read(&bytes), Err(KmError::Cipher), "{at} {value}");
        }
    }
}
