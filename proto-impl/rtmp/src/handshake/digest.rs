//! The handshake with digests. Adobe never published it, but every implementation supports it.
//!
//! C1 and S1 each contain a 32-byte digest of themselves. Its offset is computed from four bytes of the packet, which
//! are at one of two positions. C2 and S2 end in a digest of themselves. The key of this digest is derived from the
//! digest in the packet 1 that is answered: C2 answers S1, and S2 answers C1.

use crypto::hmac_sha256;

use super::{PACKET_BYTES, Packet};

/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;
/// Modulus of the digest's offset.
const OFFSET_MODULUS: usize = 728;

/// Second half of the keys with which packet 2 is signed; players and servers use the same one.
const SHARED: [u8; 32] = [
    0xf0, 0xee, 0xc2, 0x4a, 0x80, 0x68, 0xbe, 0xe8, 0x2e, 0x00, 0xd0, 0xd1, 0x02, 0x9e, 0x7e, 0x57, 0x6e,
    0xec, 0x5d, 0x2d, 0x29, 0x80, 0x6f, 0xab, 0x93, 0xb8, 0xe6, 0x36, 0xcf, 0xeb, 0x31, 0xae,
];

/// The side that signs a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Player,
    Server,
}

impl Role {
    /// Text part of the keys. The digest in packet 1 has this text as its key. The key of packet 2 is derived from this
    /// text followed by [`SHARED`].
    const fn text(self) -> &'static [u8] {
        match self {
            Self::Player => b"Genuine Adobe Flash Player 001",
            Self::Server => b"Genuine Adobe Flash Media Server 001",
        }
    }
}

/// Position of the four bytes from which the digest's offset is computed.
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

/// Finds the digest in a packet 1 sent by `role`; `None` if it contains no valid digest.
pub(super) fn find(packet: &Packet, role: Role) -> Option<(Scheme, [u8; DIGEST_BYTES])> {
    [Scheme::Zero, Scheme::One].into_iter().find_map(|scheme| {
        let (before, digest, after) = split(packet, scheme.digest_offset(packet))?;
        let want = hmac_sha256(role.text(), &[before, after]);
        crypto::constant_time_eq(digest, &want).then_some((scheme, want))
    })
}

/// Inserts the digest into a packet 1 sent by `role`. Returns the digest.
pub(super) fn sign(packet: &mut Packet, role: Role, scheme: Scheme) -> [u8; DIGEST_BYTES] {
    let offset = scheme.digest_offset(packet);
    let Some((before, _, after)) = split(packet, offset) else {
        return [0; DIGEST_BYTES];
    };
    let digest = hmac_sha256(role.text(), &[before, after]);
    put(packet, offset, &digest);
    digest
}

/// Writes the digest at the end of a packet 2 sent by `role`. `answered` is the digest of the other side's packet 1.
pub(super) fn sign_answer(packet: &mut Packet, role: Role, answered: &[u8; DIGEST_BYTES]) {
    let digest = answer_digest(packet, role, answered);
    put(packet, PACKET_BYTES.saturating_sub(DIGEST_BYTES), &digest);
}

/// Returns the digest that a packet 2 sent by `role` must end with.
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
