//! Ephemeral key agreement. The private key is drawn from the seed, so that a simulated handshake is repeatable.

use crate::Random;
use crate::primitives::provider::Agreement;

#[cfg(not(fuzzing))]
type PrivateKey = <crate::primitives::provider::Chosen as crate::primitives::provider::Provider>::Agreement;
#[cfg(fuzzing)]
type PrivateKey = crate::primitives::null::PrivateKey;

/// Length of a private key in bytes, the same in both groups.
const PRIVATE_BYTES: usize = 32;
/// Maximum number of draws for a key. A scalar of P-256 is out of range once in 2^32 draws, so several failures in a
/// row cannot be chance.
const DRAWS_MAX: usize = 8;

/// Key agreement groups that the protocols here negotiate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AgreementGroup {
    /// Curve25519 (RFC 7748 §5).
    X25519,
    /// NIST P-256 (FIPS 186-5) with uncompressed points.
    P256,
}

impl AgreementGroup {
    /// Returns whether `public` has the only form that is accepted: 32 bytes, or an uncompressed point (RFC 8422
    /// §5.4). A library may accept other forms, too.
    fn has_form(self, public: &[u8]) -> bool {
        match self {
            Self::X25519 => public.len() == 32,
            Self::P256 => public.len() == 65 && public.first() == Some(&4),
        }
    }
}

/// Error for an invalid public value of the peer: it has the wrong form, is not on the curve, is the point at
/// infinity, or has low order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the public value is not in the group")]
pub struct NotAgreed;

/// Private key for a single agreement.
pub struct AgreementKey {
    group: AgreementGroup,
    key: PrivateKey,
}

impl AgreementKey {
    /// Draws a key. Returns `None` if the generator repeatedly yields invalid keys, which does not happen in
    /// practice.
    #[must_use]
    pub fn new(group: AgreementGroup, random: &mut Random) -> Option<Self> {
        (0..DRAWS_MAX).find_map(|_| {
            let mut bytes = [0; PRIVATE_BYTES];
            random.fill(&mut bytes);
            Self::from_bytes(group, &bytes)
        })
    }

    fn from_bytes(group: AgreementGroup, bytes: &[u8]) -> Option<Self> {
        Some(Self { group, key: PrivateKey::from_bytes(group, bytes)? })
    }

    /// Group of the key.
    #[must_use]
    pub const fn group(&self) -> AgreementGroup {
        self.group
    }

    /// Public value in the form that is sent to the peer.
    #[must_use]
    pub fn public(&self) -> Vec<u8> {
        self.key.public()
    }

    /// Computes the shared secret with the public value of `peer` and passes it to `derive`.
    pub fn agree<R>(&self, peer: &[u8], derive: impl FnOnce(&[u8]) -> R) -> Result<R, NotAgreed> {
        if !self.group.has_form(peer) {
            return Err(NotAgreed);
        }
        self.key.agree(peer, derive).ok_or(NotAgreed)
    }
}

/// Never prints the key.
impl std::fmt::Debug for AgreementKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AgreementKey({:?}, ..)", self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn both_sides_agree_and_the_seed_decides() {
        for group in [AgreementGroup::X25519, AgreementGroup::P256] {
            let key = |seed| AgreementKey::new(group, &mut Seed::from_number(seed).random()).unwrap();
            let (a, b) = (key(1), key(2));
            let agree = |mine: &AgreementKey, other: &AgreementKey| {
                mine.agree(&other.public(), <[u8]>::to_vec).unwrap()
            };
            assert_eq!(agree(&a, &b), agree(&b, &a));
            assert_eq!(a.public(), key(1).public());
            assert_ne!(a.public(), b.public());
            for cut in 0..a.public().len() {
                assert_eq!(a.agree(&b.public()[..cut], |_| ()), Err(NotAgreed));
            }
        }
    }

    /// Runs the Wycheproof cases. Those that Wycheproof calls acceptable must be refused if the shared secret would
    /// be zero.
    fn wycheproof(group: AgreementGroup, text: &str) -> [usize; 3] {
        let mut counts = [0; 3];
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split(' ').collect();
            let &[id, result, public, private, shared] = &fields[..] else { panic!("{line}") };
            let bytes = |text: &str| if text == "-" { Vec::new() } else { hex(text) };
            let (public, private, shared) = (bytes(public), bytes(private), bytes(shared));
            let Some(key) = AgreementKey::from_bytes(group, &private) else { panic!("{id}") };
            let agreed = key.agree(&public, <[u8]>::to_vec);
            match result {
                "valid" => {
                    assert_eq!(agreed, Ok(shared), "{id}");
                    counts[0] += 1;
                }
                "acceptable" if group.has_form(&public) && shared.iter().any(|byte| *byte != 0) => {
                    assert_eq!(agreed, Ok(shared), "{id}");
                    counts[1] += 1;
                }
                _ => {
                    assert_eq!(agreed, Err(NotAgreed), "{id} {result}");
                    counts[2] += 1;
                }
            }
        }
        counts
    }

    #[test]
    fn d_13_wycheproof_x25519() {
        let counts = wycheproof(AgreementGroup::X25519, include_str!("wycheproof_x25519.txt"));
        assert_eq!(counts, [264, 223, 31]);
    }

    #[test]
    fn d_13_wycheproof_ecdh_p256() {
        let counts = wycheproof(AgreementGroup::P256, include_str!("wycheproof_ecdh_p256.txt"));
        assert_eq!(counts, [330, 0, 25]);
    }
}
