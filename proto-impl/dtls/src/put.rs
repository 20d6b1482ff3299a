//! Appends values to a `Vec`, with the length prefixes of TLS (RFC 5246 §4.3). Data too long for its prefix
//! would be written as empty; no caller passes such data.

pub(crate) fn u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Appends the low three bytes.
pub(crate) fn u24(out: &mut Vec<u8>, value: usize) {
    let [.., a, b, c] = value.to_be_bytes();
    out.extend_from_slice(&[a, b, c]);
}

/// Appends the low six bytes.
pub(crate) fn u48(out: &mut Vec<u8>, value: u64) {
    let [_, _, rest @ ..] = value.to_be_bytes();
    out.extend_from_slice(&rest);
}

/// Appends a one-byte length and the bytes.
pub(crate) fn vec8(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u8::try_from(bytes.len()).unwrap_or(0);
    out.push(length);
    out.extend_from_slice(bytes.get(..usize::from(length)).unwrap_or_default());
}

/// Appends a two-byte length and the bytes.
pub(crate) fn vec16(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(0);
    u16(out, length);
    out.extend_from_slice(bytes.get(..usize::from(length)).unwrap_or_default());
}

/// Appends a three-byte length and the bytes.
pub(crate) fn vec24(out: &mut Vec<u8>, bytes: &[u8]) {
    u24(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Returns 16-bit numbers in big endian.
pub(crate) fn numbers(numbers: impl IntoIterator<Item = u16>) -> Vec<u8> {
    numbers.into_iter().flat_map(u16::to_be_bytes).collect()
}
