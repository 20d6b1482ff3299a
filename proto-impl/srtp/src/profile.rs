//! Profiles and master keys (RFC 5764 §4.1.2, RFC 7714 §14.2).

use std::fmt;

use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Maximum size of a master key, in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 32;
/// Maximum size of a salt, in bytes: 112 bits.
pub(crate) const SALT_BYTES_MAX: usize = 14;

/// A protection profile, as negotiated by DTLS with `use_srtp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// `SRTP_AES128_CM_HMAC_SHA1_80`: counter mode, tags of 80 bits.
    Aes128CmHmacSha1_80,
    /// `SRTP_AEAD_AES_128_GCM`.
    AeadAes128Gcm,
    /// `SRTP_AEAD_AES_256_GCM`.
    AeadAes256Gcm,
}

impl Profile {
    /// Returns the profile with this number; `None` if unsupported.
    #[must_use]
    pub const fn from_id(id: u16) -> Option<Self> {
        match id {
            0x0001 => Some(Self::Aes128CmHmacSha1_80),
            0x0007 => Some(Self::AeadAes128Gcm),
            0x0008 => Some(Self::AeadAes256Gcm),
            _ => None,
        }
    }

    /// Number of the profile in DTLS.
    #[must_use]
    pub const fn id(self) -> u16 {
        match self {
            Self::Aes128CmHmacSha1_80 => 0x0001,
            Self::AeadAes128Gcm => 0x0007,
            Self::AeadAes256Gcm => 0x0008,
        }
    }

    /// Length of a master key, and of the session keys derived from it.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128CmHmacSha1_80 | Self::AeadAes128Gcm => 16,
            Self::AeadAes256Gcm => 32,
        }
    }

    /// Length of a master salt.
    #[must_use]
    pub const fn salt_bytes(self) -> usize {
        match self {
            Self::Aes128CmHmacSha1_80 => 14,
            Self::AeadAes128Gcm | Self::AeadAes256Gcm => 12,
        }
    }

    /// Length of the keying material for both directions, as exported from a handshake (RFC 5764 §4.2).
    #[must_use]
    pub const fn keying_bytes(self) -> usize {
        2 * (self.key_bytes() + self.salt_bytes())
    }

    /// Number of bytes that protection adds to an RTP packet.
    #[must_use]
    pub const fn rtp_overhead(self) -> usize {
        match self {
            Self::Aes128CmHmacSha1_80 => 10,
            Self::AeadAes128Gcm | Self::AeadAes256Gcm => crypto::AEAD_TAG_BYTES,
        }
    }

    /// Number of bytes that protection adds to an RTCP packet: the tag, and the index including its flag.
    #[must_use]
    pub const fn rtcp_overhead(self) -> usize {
        self.rtp_overhead() + 4
    }
}

/// Master key and salt for one direction.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey {
    profile: Profile,
    key: Zeroizing<[u8; KEY_BYTES_MAX]>,
    /// Salt, padded with zeros on the right (RFC 7714 §11).
    salt: Zeroizing<[u8; SALT_BYTES_MAX]>,
}

/// Compiles only if the value is wiped when it is dropped.
pub(crate) const fn wipes<T: ZeroizeOnDrop>(_: &T) {}

const _: fn(&MasterKey) = |master| {
    wipes(&master.key);
    wipes(&master.salt);
};

impl MasterKey {
    /// Creates a master key; `None` if a length does not match the profile.
    #[must_use]
    pub fn new(profile: Profile, key: &[u8], salt: &[u8]) -> Option<Self> {
        if key.len() != profile.key_bytes() || salt.len() != profile.salt_bytes() {
            return None;
        }
        let mut master = Self { profile, key: Zeroizing::default(), salt: Zeroizing::default() };
        master.key.get_mut(..key.len())?.copy_from_slice(key);
        master.salt.get_mut(..salt.len())?.copy_from_slice(salt);
        Some(master)
    }

    /// Returns the keys for the DTLS client's and the server's direction, from exported keying material: client
    /// key, server key, client salt, server salt (RFC 5764 §4.2). `None` unless its length is
    /// [`Profile::keying_bytes`].
    #[must_use]
    pub fn of_dtls(profile: Profile, material: &[u8]) -> Option<(Self, Self)> {
        let (client_key, rest) = material.split_at_checked(profile.key_bytes())?;
        let (server_key, rest) = rest.split_at_checked(profile.key_bytes())?;
        let (client_salt, server_salt) = rest.split_at_checked(profile.salt_bytes())?;
        Some((Self::new(profile, client_key, client_salt)?, Self::new(profile, server_key, server_salt)?))
    }

    /// Profile for which the key is used.
    #[must_use]
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.key.get(..self.profile.key_bytes()).unwrap_or_default()
    }

    pub(crate) fn salt(&self) -> [u8; SALT_BYTES_MAX] {
        *self.salt
    }
}

/// Never prints the key.
impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({:?}, ..)", self.profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keying_material_is_client_then_server_keys_then_salts() {
        for (profile, key, salt) in [
            (Profile::Aes128CmHmacSha1_80, 16, 14),
            (Profile::AeadAes128Gcm, 16, 12),
            (Profile::AeadAes256Gcm, 32, 12),
        ] {
            let material: Vec<u8> = [(1, key), (2, key), (3, salt), (4, salt)]
                .into_iter()
                .flat_map(|(byte, length)| vec![byte; length])
                .collect();
            assert_eq!(
                (material.len(), Profile::from_id(profile.id())),
                (profile.keying_bytes(), Some(profile))
            );
            let (client, server) = MasterKey::of_dtls(profile, &material).unwrap();
            assert_eq!(client, MasterKey::new(profile, &vec![1; key], &vec![3; salt]).unwrap());
            assert_eq!(server, MasterKey::new(profile, &vec![2; key], &vec![4; salt]).unwrap());
            assert!(MasterKey::of_dtls(profile, &material[1..]).is_none());
            assert!(!format!("{client:?}").contains("1, 1"));
        }
        assert_eq!(Profile::from_id(0x0002), None);
    }
}
