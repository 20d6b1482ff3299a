//! The digest form of the handshake, which Adobe never published and every implementation supports.
//!
//! C1 and S1 contain a 32-byte digest of themselves at an offset given by four of their bytes, for which there are two
//! possible positions. C2 and S2 end in a digest of themselves, keyed by the digest of the other side.

use crypto::hmac_sha256;

use super::{PACKET_BYTES, Packet};

/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;
/// Modulus of the digest's offset.
const OFFSET_MODULUS: usize = 728;

/// Common half of the keys of players and servers.
const SHARED: [u8; 32] = [
    0xf0, 0xee, 0xc2, 0x4a, 0x80, 0x68, 0xbe, 0xe8, 0x2e, 0x00, 0xd0, 0xd1, 0x02, 0x9e, 0x7e, 0x57, 0x6e,
    0xec, 0x5d, 0x2d, 0x29, 0x80, 0x6f, 0xab, 0x93, 0xb8, 0xe6, 0x36, 0xcf, 0xeb, 0x31, 0xae,
];

/// Side that signs a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Player,
    Server,
}

impl Role {
    /// Text part of the keys: it alone is the key of packet 1; with the shared half it is the key of packet 2.
    const fn text(self) -> &'static [u8] {
        match self {
            Self::Player => b"Genuine Adobe Flash Player 001",
            Self::Server => b"Genuine Adobe Flash Media Server 001",
        }
    }
}

/// Position of the digest's offset in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    /// The offset is in bytes 8 to 11; the digest is in the first half.
    Zero,
    /// The offset is in bytes 772 to 775; the digest is in the second half.
    One,
}

impl Scheme {
    fn digest_offset(self, packet: &Packet) -> usize {
        let base = match self {
            Self::Zero => 8usize,
            Self::One => 772,
        };
        let told: usize = packet.iter().skip(base).take(4).map(|byte| usize::from(*byte)).sum();
        told.checked_rem(OFFSET_MODULUS).unwrap_or(0).saturating_add(base).saturating_add(4)
    }
}

/// Finds the digest of a packet 1 of `role`; `None` without a valid one.
pub(super) fn find(packet: &Packet, role: Role) -> Option<(Scheme, [u8; DIGEST_BYTES])> {
    [Scheme::Zero, Scheme::One].into_iter().find_map(|scheme| {
        let (before, digest, after) = split(packet, scheme.digest_offset(packet))?;
        let want = hmac_sha256(role.text(), &[before, after]);
        crypto::constant_time_eq(digest, &want).then_some((scheme, want))
    })
}

/// Inserts the digest into a packet 1, and returns the digest.
pub(super) fn sign(packet: &mut Packet, role: Role, scheme: Scheme) -> [u8; DIGEST_BYTES] {
    let offset = scheme.digest_offset(packet);
    let Some((before, _, after)) = split(packet, offset) else {
        return [0; DIGEST_BYTES];
    };
    let digest = hmac_sha256(role.text(), &[before, after]);
    put(packet, offset, &digest);
    digest
}

/// Ends a packet 2 of `role` with the digest that answers the other side's packet 1.
pub(super) fn sign_answer(packet: &mut Packet, role: Role, answered: &[u8; DIGEST_BYTES]) {
    let digest = answer_digest(packet, role, answered);
    put(packet, PACKET_BYTES.saturating_sub(DIGEST_BYTES), &digest);
}

/// Returns the digest with which a packet 2 must end.
pub(super) fn answer_digest(
    packet: &Packet,
    role: Role,
    answered: &[u8; DIGEST_BYTES],
) -> [u8; DIGEST_BYTES] {
    let key = hmac_sha256(&[role.text(), &SHARED].concat(), &[answered]);
    let signed = packet.get(..PACKET_BYTES.saturating_sub(DIGEST_BYTES)).unwrap_or_default();
    hmac_sha256(&key, &[signed])
}

fn split(packet: &Packet, offset: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let (before, rest) = packet.split_at_checked(offset)?;
    let (digest, after) = rest.split_at_checked(DIGEST_BYTES)?;
    Some((before, digest, after))
}

fn put(packet: &mut Packet, offset: usize, digest: &[u8]) {
    for (slot, byte) in packet.iter_mut().skip(offset).zip(digest) {
        *slot = *byte;
    }
}
