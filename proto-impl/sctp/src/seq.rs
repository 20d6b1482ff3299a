//! Serial numbers, which wrap around on the wire and are counted without limit internally.

/// Start of the TSN count; large enough that numbers slightly before the first are not negative.
pub(crate) const TSN_BASE: u64 = 1 << 32;
/// Start of the count of stream sequence numbers.
pub(crate) const SSN_BASE: u64 = 1 << 16;

/// Returns the count nearest to `near` with these lower 32 bits (RFC 1982).
pub(crate) const fn unwrap_tsn(near: u64, wire: u32) -> u64 {
    let distance = i32::from_be_bytes(wire.wrapping_sub(wrap_tsn(near)).to_be_bytes());
    near.saturating_add_signed(widen(distance))
}

/// Returns the lower 32 bits.
pub(crate) const fn wrap_tsn(count: u64) -> u32 {
    let [_, _, _, _, a, b, c, d] = count.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Returns the count nearest to `near` with these lower 16 bits.
pub(crate) const fn unwrap_ssn(near: u64, wire: u16) -> u64 {
    let [high, low] = wire.wrapping_sub(wrap_ssn(near)).to_be_bytes();
    // The arithmetic shift extends the sign.
    let distance = i32::from_be_bytes([high, low, 0, 0]) >> 16;
    near.saturating_add_signed(widen(distance))
}

/// Returns the lower 16 bits.
pub(crate) const fn wrap_ssn(count: u64) -> u16 {
    let [_, _, _, _, _, _, a, b] = count.to_be_bytes();
    u16::from_be_bytes([a, b])
}

const fn widen(value: i32) -> i64 {
    let [a, b, c, d] = value.to_be_bytes();
    i64::from_be_bytes([a, b, c, d, 0, 0, 0, 0]) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_count_is_found_on_both_sides_of_a_wrap() {
        let end = (3 << 32) - 1;
        for (near, wire, count) in [
            (TSN_BASE, 0, TSN_BASE),
            (TSN_BASE, u32::MAX, TSN_BASE - 1),
            (end, 0, end + 1),
            (end, 5, end + 6),
            (end + 6, u32::MAX, end),
            (TSN_BASE, 0x7fff_ffff, TSN_BASE + 0x7fff_ffff),
            (TSN_BASE, 0x8000_0000, TSN_BASE - 0x8000_0000),
        ] {
            assert_eq!(unwrap_tsn(near, wire), count, "{near} {wire}");
            assert_eq!(wrap_tsn(count), wire);
        }
        for (near, wire, count) in [
            (SSN_BASE, 0, SSN_BASE),
            (SSN_BASE + 0xffff, 0, 2 * SSN_BASE),
            (2 * SSN_BASE, 0xffff, SSN_BASE + 0xffff),
            (SSN_BASE, 0x7fff, SSN_BASE + 0x7fff),
        ] {
            assert_eq!(unwrap_ssn(near, wire), count, "{near} {wire}");
            assert_eq!(wrap_ssn(count), wire);
        }
    }
}
