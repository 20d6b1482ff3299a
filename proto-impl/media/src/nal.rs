//! NAL units with 4-byte lengths (ISO/IEC 14496-15 §5.3.4.2) and with start codes (H.264 Annex B).

use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};

/// Errors in NAL lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A length exceeds the rest of the payload.
    #[error("NAL length {length} at byte {at} leaves the access unit")]
    Length {
        /// Offset of the length field.
        at: usize,
        /// Value of the length field.
        length: usize,
    },
    /// The size of length fields is not 1, 2 or 4 bytes (ISO/IEC 14496-15 §5.3.3.1.2 forbids 3).
    #[error("NAL length size {0}")]
    LengthSize(u8),
}

/// Iterates over the NAL units of a payload with `length_size`-byte lengths.
#[derive(Debug, Clone)]
pub struct Nals<'a> {
    rest: &'a [u8],
    at: usize,
    length_size: usize,
}

impl<'a> Nals<'a> {
    /// Creates an iterator; `length_size` must be 1, 2 or 4.
    #[must_use]
    pub const fn new(payload: &'a [u8], length_size: u8) -> Self {
        Self { rest: payload, at: 0, length_size: length_size as usize }
    }
}

impl<'a> Iterator for Nals<'a> {
    type Item = Result<&'a [u8], Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.at;
        let found = self.rest.split_at_checked(self.length_size).map(|(head, rest)| {
            let length = head.iter().fold(0usize, |length, &byte| (length << 8) | usize::from(byte));
            (length, rest)
        });
        let Some((length, rest)) = found else {
            self.rest = &[];
            return Some(Err(Error::Length { at, length: 0 }));
        };
        let Some((nal, tail)) = rest.split_at_checked(length) else {
            self.rest = &[];
            return Some(Err(Error::Length { at, length }));
        };
        self.rest = tail;
        self.at = at.saturating_add(self.length_size).saturating_add(length);
        Some(Ok(nal))
    }
}

/// Checks every length in `payload`, and returns the payload with 4-byte lengths. If the lengths already have 4 bytes,
/// it is returned unchanged, otherwise as a copy (encoders with 1- or 2-byte lengths are rare).
pub fn to_four_byte_lengths(payload: Bytes, length_size: u8) -> Result<Bytes, Error> {
    match length_size {
        4 => {
            Nals::new(&payload, 4).try_for_each(|nal| nal.map(drop))?;
            Ok(payload)
        }
        1 | 2 => {
            let mut out = BytesMut::with_capacity(payload.len().saturating_add(16));
            for nal in Nals::new(&payload, length_size) {
                let nal = nal?;
                out.put_u32(u32::try_from(nal.len()).unwrap_or(u32::MAX));
                out.put_slice(nal);
            }
            Ok(out.freeze())
        }
        other => Err(Error::LengthSize(other)),
    }
}

/// Start code written before every NAL unit, as long as a length field.
pub const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// Iterates over the NAL units after start codes of three or four bytes (H.264 §B.1.1). Bytes before the
/// first start code are skipped; zeros at the end of a NAL unit do not belong to it (trailing_zero_8bits,
/// §7.4.1).
#[derive(Debug, Clone)]
pub struct AnnexB<'a> {
    /// Bytes after the last start code found.
    rest: Option<&'a [u8]>,
}

impl<'a> AnnexB<'a> {
    /// Creates an iterator over the NAL units in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: split_at_start_code(bytes).1 }
    }
}

impl<'a> Iterator for AnnexB<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let (nal, rest) = split_at_start_code(self.rest?);
            self.rest = rest;
            let end = nal.iter().rposition(|&byte| byte != 0);
            if let Some(nal) = end.and_then(|end| nal.get(..=end)) {
                return Some(nal);
            }
        }
    }
}

/// Splits at the first three-byte start code into the bytes before and after it.
fn split_at_start_code(bytes: &[u8]) -> (&[u8], Option<&[u8]>) {
    // A byte above 1 is not part of a start code. So only every third byte is examined unless a start code may be
    // near.
    let mut at = 2usize;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            0 => at += 1,
            1 if bytes.get(at - 2..at) == Some(&[0, 0]) => {
                let (before, code) = bytes.split_at(at - 2);
                return (before, code.get(3..));
            }
            _ => at += 3,
        }
    }
    (bytes, None)
}

/// Appends a NAL unit with its 4-byte length.
pub fn put_with_length(nal: &[u8], out: &mut BytesMut) {
    out.put_u32(u32::try_from(nal.len()).unwrap_or(u32::MAX));
    out.put_slice(nal);
}

/// Converts start codes to 4-byte lengths, in one pass and one copy.
#[must_use]
pub fn to_lengths(annex_b: &[u8]) -> Bytes {
    // A start code of three bytes grows by one byte. Most payloads have few NAL units, so 64 bytes are enough.
    let mut out = BytesMut::with_capacity(annex_b.len().saturating_add(64));
    AnnexB::new(annex_b).for_each(|nal| put_with_length(nal, &mut out));
    out.freeze()
}

/// Converts 4-byte lengths to four-byte start codes, in a copy of the same size.
pub fn to_annex_b(payload: &[u8]) -> Result<Bytes, Error> {
    let mut out = BytesMut::with_capacity(payload.len());
    for nal in Nals::new(payload, 4) {
        out.put_slice(&START_CODE);
        out.put_slice(nal?);
    }
    Ok(out.freeze())
}

/// Returns the bytes of a NAL unit without emulation_prevention_three_byte (H.264 §7.4.1.1, H.265 §7.4.2.1). Meant for
/// parameter sets, of which a copy is small.
#[must_use]
pub fn unescape(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len());
    let mut zeros = 0;
    for &byte in body {
        if zeros >= 2 && byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_walked() {
        let nals: Result<Vec<_>, _> = Nals::new(&[0, 0, 0, 2, 0x65, 1, 0, 0, 0, 1, 0x06], 4).collect();
        assert_eq!(nals, Ok(vec![&[0x65, 1][..], &[0x06]]));
    }

    #[test]
    fn m_20_a_length_past_the_end_is_an_error_once() {
        let mut nals = Nals::new(&[0, 0, 0, 9, 1], 4);
        assert_eq!(nals.next(), Some(Err(Error::Length { at: 0, length: 9 })));
        assert_eq!(nals.next(), None);
        assert_eq!(Nals::new(&[0, 0], 4).next(), Some(Err(Error::Length { at: 0, length: 0 })));
        assert_eq!(to_four_byte_lengths(Bytes::from_static(&[0, 0, 0]), 3), Err(Error::LengthSize(3)));
    }

    #[test]
    fn emulation_prevention_is_taken_out() {
        assert_eq!(unescape(&[1, 0, 0, 3, 1, 0, 0, 3, 0, 0, 3]), [1, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(unescape(&[0, 3, 0, 0]), [0, 3, 0, 0]);
    }

    #[test]
    fn short_lengths_are_widened_and_four_byte_ones_kept() {
        let wide = to_four_byte_lengths(Bytes::from_static(&[0, 1, 0x65, 0, 1, 0x06]), 2).unwrap();
        assert_eq!(&wide[..], [0, 0, 0, 1, 0x65, 0, 0, 0, 1, 0x06]);
        assert_eq!(to_four_byte_lengths(wide.clone(), 4).unwrap().as_ptr(), wide.as_ptr());
    }

    #[test]
    fn start_codes_of_both_lengths_and_zeros_around_them() {
        let nals = |bytes: &'static [u8]| AnnexB::new(bytes).collect::<Vec<_>>();
        assert_eq!(nals(&[0, 0, 0, 1, 0x67, 1, 0, 0, 1, 0x68, 2]), [&[0x67, 1][..], &[0x68, 2]]);
        // Noise before the first start code, zeros at the end, emulation prevention inside, an empty NAL
        // unit.
        assert_eq!(
            nals(&[9, 9, 0, 0, 1, 0x65, 0, 0, 3, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0x41, 0, 0]),
            [&[0x65, 0, 0, 3, 1][..], &[0x41]]
        );
        for none in [&[][..], &[0, 0], &[0, 0, 1], &[0, 0, 0, 1], &[1, 2, 3], &[0, 0, 2, 0, 1]] {
            assert_eq!(AnnexB::new(none).count(), 0, "{none:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn lengths_and_start_codes_lead_to_each_other(
            nals in proptest::collection::vec(proptest::collection::vec(1u8.., 1..40), 1..6),
        ) {
            let mut lengths = BytesMut::new();
            nals.iter().for_each(|nal| put_with_length(nal, &mut lengths));
            let annex_b = to_annex_b(&lengths).unwrap();
            proptest::prop_assert_eq!(annex_b.len(), lengths.len());
            proptest::prop_assert_eq!(to_lengths(&annex_b), lengths);
        }

        #[test]
        fn any_bytes_are_cut_at_their_start_codes(bytes in proptest::collection::vec(0u8..3, 0..60)) {
            // The simple algorithm: split at every 00 00 01.
            let mut nals = Vec::new();
            let mut rest = &bytes[..];
            let find = |bytes: &[u8]| bytes.windows(3).position(|window| window == [0, 0, 1]);
            while let Some(at) = find(rest) {
                rest = &rest[at + 3..];
                let mut nal = &rest[..find(rest).unwrap_or(rest.len())];
                while let [head @ .., 0] = nal {
                    nal = head;
                }
                nals.extend((!nal.is_empty()).then_some(nal));
            }
            proptest::prop_assert_eq!(AnnexB::new(&bytes).collect::<Vec<_>>(), nals);
        }
    }
}
