//! What a datagram on a port shared by many protocols is, by its first bytes.

/// A protocol that shares the port (RFC 7983 §7, RFC 5761 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// STUN: 0 to 3.
    Stun,
    /// ZRTP: 16 to 19.
    Zrtp,
    /// DTLS: 20 to 63.
    Dtls,
    /// A TURN channel: 64 to 79.
    TurnChannel,
    /// RTP or SRTP.
    Rtp,
    /// RTCP or SRTCP.
    Rtcp,
    /// None of them.
    Unknown,
}

/// Tells what a datagram claims to be; nothing else of it is checked.
#[must_use]
pub fn kind(datagram: &[u8]) -> Kind {
    match datagram {
        [0..=3, ..] => Kind::Stun,
        [16..=19, ..] => Kind::Zrtp,
        [20..=63, ..] => Kind::Dtls,
        [64..=79, ..] => Kind::TurnChannel,
        // RFC 5761 §4: payload types 64 to 95 are not used beside RTCP, so that with the marker bit as the eighth one
        // 192 to 223 are RTCP's packet types.
        [128..=191, 192..=223, ..] => Kind::Rtcp,
        [128..=191, _, ..] => Kind::Rtp,
        _ => Kind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_bytes_tell() {
        for (bytes, expected) in [
            (&[][..], Kind::Unknown),
            (&[0, 1], Kind::Stun),
            (&[4, 0], Kind::Unknown),
            (&[16, 0], Kind::Zrtp),
            (&[22, 254], Kind::Dtls),
            (&[64, 0], Kind::TurnChannel),
            (&[80, 0], Kind::Unknown),
            (&[128], Kind::Unknown),
            (&[128, 0], Kind::Rtp),
            (&[128, 191], Kind::Rtp),
            (&[128, 192], Kind::Rtcp),
            (&[191, 223], Kind::Rtcp),
            (&[191, 224], Kind::Rtp),
            (&[192, 200], Kind::Unknown),
        ] {
            assert_eq!(kind(bytes), expected, "{bytes:?}");
        }
    }
}
