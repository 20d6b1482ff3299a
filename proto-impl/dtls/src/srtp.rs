//! Keys for SRTP (RFC 5764): the profiles that `use_srtp` negotiates, and the keying material for them.

/// A protection profile (RFC 5764 §4.1.2, RFC 7714 §14.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SrtpProfile {
    /// `SRTP_AES128_CM_HMAC_SHA1_80`
    Aes128CmSha1_80,
    /// `SRTP_AES128_CM_HMAC_SHA1_32`
    Aes128CmSha1_32,
    /// `SRTP_AEAD_AES_128_GCM`
    AeadAes128Gcm,
    /// `SRTP_AEAD_AES_256_GCM`
    AeadAes256Gcm,
}

impl SrtpProfile {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::AeadAes128Gcm, Self::AeadAes256Gcm, Self::Aes128CmSha1_80, Self::Aes128CmSha1_32];

    /// As on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Aes128CmSha1_80 => 0x0001,
            Self::Aes128CmSha1_32 => 0x0002,
            Self::AeadAes128Gcm => 0x0007,
            Self::AeadAes256Gcm => 0x0008,
        }
    }

    pub(crate) fn of_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.number() == number)
    }

    /// Bytes of a master key.
    #[must_use]
    pub const fn key_bytes(self) -> usize {
        match self {
            Self::Aes128CmSha1_80 | Self::Aes128CmSha1_32 | Self::AeadAes128Gcm => 16,
            Self::AeadAes256Gcm => 32,
        }
    }

    /// Bytes of a master salt.
    #[must_use]
    pub const fn salt_bytes(self) -> usize {
        match self {
            Self::Aes128CmSha1_80 | Self::Aes128CmSha1_32 => 14,
            Self::AeadAes128Gcm | Self::AeadAes256Gcm => 12,
        }
    }

    /// Bytes of all of [`SrtpKeys`].
    pub(crate) const fn material_bytes(self) -> usize {
        2 * (self.key_bytes() + self.salt_bytes())
    }
}

/// Master keys and salts of both directions (RFC 5764 §4.2). Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SrtpKeys {
    /// For what the DTLS client sends.
    pub client_key: Vec<u8>,
    /// For what the DTLS server sends.
    pub server_key: Vec<u8>,
    /// For what the DTLS client sends.
    pub client_salt: Vec<u8>,
    /// For what the DTLS server sends.
    pub server_salt: Vec<u8>,
}

impl SrtpKeys {
    /// From exported material, in the order of RFC 5764 §4.2. `None` when it has not the length that the profile wants.
    pub(crate) fn split(profile: SrtpProfile, material: &[u8]) -> Option<Self> {
        let (client_key, rest) = material.split_at_checked(profile.key_bytes())?;
        let (server_key, rest) = rest.split_at_checked(profile.key_bytes())?;
        let (client_salt, server_salt) = rest.split_at_checked(profile.salt_bytes())?;
        (server_salt.len() == profile.salt_bytes()).then(|| Self {
            client_key: client_key.to_vec(),
            server_key: server_key.to_vec(),
            client_salt: client_salt.to_vec(),
            server_salt: server_salt.to_vec(),
        })
    }
}

impl std::fmt::Debug for SrtpKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SrtpKeys(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn material_is_cut_in_the_order_of_rfc_5764() {
        for profile in SrtpProfile::ALL {
            let material: Vec<u8> = (0..).take(profile.material_bytes()).collect();
            let keys = SrtpKeys::split(profile, &material).unwrap();
            let joined =
                [&keys.client_key[..], &keys.server_key, &keys.client_salt, &keys.server_salt].concat();
            assert_eq!(joined, material);
            assert!(SrtpKeys::split(profile, &material[1..]).is_none());
            assert_eq!(SrtpProfile::of_number(profile.number()), Some(profile));
            assert!(!format!("{keys:?}").contains("12"));
        }
    }
}
