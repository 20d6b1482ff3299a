//! Appending to a `Vec` with the length prefixes of TLS (RFC 5246 §4.3). Writers assume: what does not fit its prefix
//! is cut to nothing, and no caller has such a thing.

pub(crate) fn u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// The low three bytes.
pub(crate) fn u24(out: &mut Vec<u8>, value: usize) {
    let [.., a, b, c] = value.to_be_bytes();
    out.extend_from_slice(&[a, b, c]);
}

/// The low six bytes.
pub(crate) fn u48(out: &mut Vec<u8>, value: u64) {
    let [_, _, rest @ ..] = value.to_be_bytes();
    out.extend_from_slice(&rest);
}

/// Writes bytes behind a length of one byte.
pub(crate) fn vec8(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u8::try_from(bytes.len()).unwrap_or(0);
    out.push(length);
    out.extend_from_slice(bytes.get(..usize::from(length)).unwrap_or_default());
}

/// Writes bytes behind a length of two bytes.
pub(crate) fn vec16(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(0);
    u16(out, length);
    out.extend_from_slice(bytes.get(..usize::from(length)).unwrap_or_default());
}

/// Writes bytes behind a length of three bytes.
pub(crate) fn vec24(out: &mut Vec<u8>, bytes: &[u8]) {
    u24(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// 16-bit numbers, one behind the other.
pub(crate) fn numbers(numbers: impl IntoIterator<Item = u16>) -> Vec<u8> {
    numbers.into_iter().flat_map(u16::to_be_bytes).collect()
}
