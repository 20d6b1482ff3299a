//! The subset of DER (X.690) that certificates need: reading values, and writing one kind of certificate.

use crypto::{Hash, SignatureAlgorithm, SigningKey};
use wire::Reader;

/// Tag byte of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u8);

impl Tag {
    pub(crate) const INTEGER: Self = Self(0x02);
    pub(crate) const BIT_STRING: Self = Self(0x03);
    pub(crate) const OBJECT_IDENTIFIER: Self = Self(0x06);
    pub(crate) const UTF8_STRING: Self = Self(0x0c);
    pub(crate) const UTC_TIME: Self = Self(0x17);
    pub(crate) const SEQUENCE: Self = Self(0x30);
    pub(crate) const SET: Self = Self(0x31);
    /// `[0]`, the tag of a certificate's version (RFC 5280 §4.1).
    pub(crate) const VERSION: Self = Self(0xa0);
}

/// Takes the contents of the next value, if it has this tag, and its length is encoded in the shortest form
/// (X.690 §10.1).
pub(crate) fn take<'a>(r: &mut Reader<'a>, tag: Tag) -> Option<&'a [u8]> {
    if r.u8().ok()? != tag.0 {
        return None;
    }
    let length = match r.u8().ok()? {
        short @ 0..=0x7f => usize::from(short),
        0x81 => usize::from(r.u8().ok().filter(|length| *length > 0x7f)?),
        0x82 => usize::from(r.u16().ok().filter(|length| *length > 0xff)?),
        // The value is longer than any accepted certificate, or of indefinite length.
        _ => return None,
    };
    r.take(length).ok()
}

/// Takes the next value with its header.
pub(crate) fn take_whole<'a>(r: &mut Reader<'a>, tag: Tag) -> Option<&'a [u8]> {
    let before = r.clone();
    take(r, tag)?;
    before.clone().take(r.position().checked_sub(before.position())?).ok()
}

/// Returns a value composed of these parts.
fn value(tag: Tag, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag.0];
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=0x7f), _) => out.push(short),
        (Ok(byte), _) => out.extend([0x81, byte]),
        (_, Ok(word)) => {
            out.push(0x82);
            out.extend(word.to_be_bytes());
        }
        // No value of this length is written here.
        (Err(_), Err(_)) => return Vec::new(),
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// `ecdsa-with-SHA256` (RFC 5758 §3.2).
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// `commonName` (RFC 5280, appendix A.1).
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// Start of a `SubjectPublicKeyInfo` for P-256, before the point (RFC 5480 §2).
const P256_HEAD: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07,
];

/// Returns a version 1 certificate (RFC 5280 §4.1) signed with its own P-256 key.
pub(crate) fn self_signed(key: &SigningKey, mut serial: [u8; 16]) -> Option<Vec<u8>> {
    // Makes the serial number positive, and without leading zeros.
    if let Some(first) = serial.first_mut() {
        *first = (*first & 0x7f) | 0x40;
    }
    let algorithm = value(Tag::SEQUENCE, &[&value(Tag::OBJECT_IDENTIFIER, &[ECDSA_WITH_SHA256])]);
    let common_name =
        [value(Tag::OBJECT_IDENTIFIER, &[COMMON_NAME]), value(Tag::UTF8_STRING, &[b"WebRTC"])].concat();
    let name = value(Tag::SEQUENCE, &[&value(Tag::SET, &[&value(Tag::SEQUENCE, &[&common_name])])]);
    let validity = value(
        Tag::SEQUENCE,
        &[&value(Tag::UTC_TIME, &[b"200101000000Z"]), &value(Tag::UTC_TIME, &[b"491231235959Z"])],
    );
    let spki = value(Tag::SEQUENCE, &[P256_HEAD, &value(Tag::BIT_STRING, &[&[0], key.public()])]);
    let serial = value(Tag::INTEGER, &[&serial]);
    let tbs = value(Tag::SEQUENCE, &[&serial, &algorithm, &name, &validity, &name, &spki]);
    let signature = key.sign(SignatureAlgorithm::Ecdsa(Hash::Sha256), &tbs)?;
    Some(value(Tag::SEQUENCE, &[&tbs, &algorithm, &value(Tag::BIT_STRING, &[&[0], &signature])]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_definite_and_shortest() {
        for length in [0usize, 1, 0x7f, 0x80, 0xff, 0x100, 0x1234] {
            let content = vec![7; length];
            let bytes = value(Tag::INTEGER, &[&content]);
            assert_eq!(take(&mut Reader::new(&bytes), Tag::INTEGER), Some(&content[..]), "{length}");
            assert_eq!(take_whole(&mut Reader::new(&bytes), Tag::INTEGER), Some(&bytes[..]));
            assert_eq!(take(&mut Reader::new(&bytes), Tag::SEQUENCE), None);
        }
        for bytes in [
            &[2, 0x80, 0, 0][..],
            &[2, 0x81, 1, 0],
            &[2, 0x82, 0, 1, 0],
            &[2, 0x84, 0, 0, 0, 1, 0],
            &[2, 2, 0],
        ] {
            assert_eq!(take(&mut Reader::new(bytes), Tag::INTEGER), None, "{bytes:?}");
        }
    }
}
