//! Distinguishes RTP from RTCP on a shared port.

/// True if the first two bytes are those of RTCP (RFC 5761 §4). RTP payload types 64 to 95 are not used on a
/// port shared with RTCP, so a second byte (marker bit and payload type) of 192 to 223 is an RTCP packet type.
/// Nothing else is checked.
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
