//! Keys for SRTP (RFC 5764): the profiles negotiated by `use_srtp`, and their keying material.

use zeroize::Zeroizing;

use crate::error::Failure;
use crate::handshake::{ExtensionType, Extensions, UseSrtp};
use crate::wipes;

/// Returns the `use_srtp` offer for these profiles.
pub(crate) fn offer(ours: &[SrtpProfile]) -> Vec<u8> {
    UseSrtp { profiles: ours.iter().map(|profile| profile.number()).collect(), mki: &[] }.write()
}

/// Returns the profile that a server chooses from an offer, by its own order of preference.
pub(crate) fn choose(
    ours: &[SrtpProfile],
    extensions: &Extensions<'_>,
) -> Result<Option<SrtpProfile>, Failure> {
    let offer = extensions.find(ExtensionType::USE_SRTP).map(UseSrtp::read).transpose()?;
    if ours.is_empty() {
        return Ok(None);
    }
    let offered = offer.ok_or(Failure::NoCommonSrtpProfile)?.profiles;
    let common = ours.iter().find(|profile| offered.contains(&profile.number()));
    common.copied().map(Some).ok_or(Failure::NoCommonSrtpProfile)
}

/// Returns the profile chosen by the server; it must be one that we offered (RFC 5764 §4.1.1).
pub(crate) fn chosen(
    ours: &[SrtpProfile],
    extensions: &Extensions<'_>,
) -> Result<Option<SrtpProfile>, Failure> {
    if ours.is_empty() {
        return Ok(None);
    }
    let body = extensions.find(ExtensionType::USE_SRTP).ok_or(Failure::NoCommonSrtpProfile)?;
    let srtp = UseSrtp::read(body)?;
    let [number] = srtp.profiles[..] else { return Err(Failure::Malformed) };
    let profile = SrtpProfile::of_number(number).filter(|profile| ours.contains(profile));
    // We offered no identifier, so the answer must not contain one (RFC 5764 §4.1.3).
    if !srtp.mki.is_empty() {
        return Err(Failure::Illegal("a master key identifier not offered"));
    }
    profile.map(Some).ok_or(Failure::Illegal("an SRTP profile not offered"))
}

/// An SRTP protection profile (RFC 5764 §4.1.2, RFC 7714 §14.2).
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
    /// All profiles.
    pub const ALL: [Self; 4] =
        [Self::AeadAes128Gcm, Self::AeadAes256Gcm, Self::Aes128CmSha1_80, Self::Aes128CmSha1_32];

    /// The number as sent on the wire.
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

    /// Total length of the [`SrtpKeys`]: two master keys and two salts.
    pub(crate) const fn material_bytes(self) -> usize {
        match self {
            Self::Aes128CmSha1_80 | Self::Aes128CmSha1_32 => 2 * (16 + 14),
            Self::AeadAes128Gcm => 2 * (16 + 12),
            Self::AeadAes256Gcm => 2 * (32 + 12),
        }
    }
}

/// SRTP keying material for both ends (RFC 5764 §4.2): client key, server key, client salt, server salt. Never
/// printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SrtpKeys(Zeroizing<Box<[u8]>>);

const _: fn(&SrtpKeys) = |keys| wipes(&keys.0);

impl SrtpKeys {
    /// Wraps exported keying material.
    pub(crate) fn new(material: Vec<u8>) -> Self {
        Self(Zeroizing::new(material.into()))
    }

    /// Returns all keying material; the profile determines how to split it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
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

    /// Checks the numbers and lengths of RFC 5764 §4.1.2 and RFC 7714 §12.
    #[test]
    fn profiles_have_their_numbers_and_lengths() {
        for (profile, number, bytes) in [
            (SrtpProfile::Aes128CmSha1_80, 1, 60),
            (SrtpProfile::Aes128CmSha1_32, 2, 60),
            (SrtpProfile::AeadAes128Gcm, 7, 56),
            (SrtpProfile::AeadAes256Gcm, 8, 88),
        ] {
            assert_eq!((profile.number(), profile.material_bytes()), (number, bytes));
            assert_eq!(SrtpProfile::of_number(number), Some(profile));
        }
        assert_eq!(SrtpProfile::of_number(5), None);
        assert!(!format!("{:?}", SrtpKeys::new(vec![12; 60])).contains("12"));
    }
}
