//! RTP and RTCP on one port.

/// Whether a packet of RTP's first byte is RTCP (RFC 5761 §4): payload types 64 to 95 are not used beside RTCP, so that
/// with the marker bit as the eighth one 192 to 223 are RTCP's packet types. Nothing else of it is checked.
#[must_use]
pub const fn is_rtcp(packet: &[u8]) -> bool {
    matches!(packet, [128..=191, 192..=223, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_byte_tells() {
        for (bytes, expected) in [
            (&[][..], false),
            (&[128], false),
            (&[128, 191], false),
            (&[128, 192], true),
            (&[191, 223], true),
            (&[191, 224], false),
            (&[64, 200], false),
            (&[192, 200], false),
        ] {
            assert_eq!(is_rtcp(bytes), expected, "{bytes:?}");
        }
    }
}
