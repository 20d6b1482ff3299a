//! Messages and extensions with a new format in DTLS 1.3 (RFC 8446 §4): `key_share`, `cookie`, `Certificate`,
//! `CertificateRequest`, and the content signed by `CertificateVerify`.

use wire::Reader;

use super::extensions::{ExtensionType, Extensions, read_numbers16};
use super::{vec8, vec16, vec24};
use crate::error::Failure;
use crate::put;

/// Maximum number of key shares accepted in one hello. Browsers send at most three.
const SHARES_MAX: usize = 16;
/// Number of spaces before the signed content (RFC 8446 §4.4.3).
const SIGNED_SPACES: usize = 64;

/// A key share: a public value and its group (RFC 8446 §4.2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyShare<'a> {
    pub(crate) group: u16,
    pub(crate) public: &'a [u8],
}

impl<'a> KeyShare<'a> {
    /// Reads a server's single key share.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let share = Self::next(&mut r)?;
        if r.is_empty() { Ok(share) } else { Err(Failure::Malformed) }
    }

    fn next(r: &mut Reader<'a>) -> Result<Self, Failure> {
        let (group, public) = (r.u16()?, vec16(r)?);
        if public.is_empty() { Err(Failure::Malformed) } else { Ok(Self { group, public }) }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put::u16(out, self.group);
        put::vec16(out, self.public);
    }
}

/// Reads a client's key shares, at most one per group.
pub(crate) fn read_key_shares(body: &[u8]) -> Result<Vec<KeyShare<'_>>, Failure> {
    let mut r = Reader::new(body);
    let mut list = Reader::new(vec16(&mut r)?);
    if !r.is_empty() {
        return Err(Failure::Malformed);
    }
    let mut shares: Vec<KeyShare<'_>> = Vec::new();
    while !list.is_empty() {
        let share = KeyShare::next(&mut list)?;
        if shares.iter().any(|known| known.group == share.group) {
            return Err(Failure::Illegal("two shares of one group"));
        }
        if shares.len() >= SHARES_MAX {
            return Err(Failure::TooLarge);
        }
        shares.push(share);
    }
    Ok(shares)
}

/// Reads a cookie extension (RFC 8446 §4.2.2).
pub(crate) fn read_cookie(body: &[u8]) -> Result<&[u8], Failure> {
    let mut r = Reader::new(body);
    let cookie = vec16(&mut r)?;
    if r.is_empty() && !cookie.is_empty() { Ok(cookie) } else { Err(Failure::Malformed) }
}

pub(crate) fn write_cookie(cookie: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    put::vec16(&mut body, cookie);
    body
}

/// Reads a message that consists only of a list of extensions: `EncryptedExtensions` (RFC 8446 §4.3.1).
pub(crate) fn extensions_alone(body: &[u8]) -> Result<Extensions<'_>, Failure> {
    if body.is_empty() { Err(Failure::Malformed) } else { Extensions::read(&mut Reader::new(body)) }
}

/// A `Certificate` message (RFC 8446 §4.4.2). Only the first certificate is read; the others are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Certificates<'a> {
    /// Context of the request being answered; empty during the handshake.
    pub(crate) context: &'a [u8],
    /// First certificate; `None` in an empty message.
    pub(crate) leaf: Option<&'a [u8]>,
}

impl<'a> Certificates<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let context = vec8(&mut r)?;
        let mut list = Reader::new(vec24(&mut r)?);
        if !r.is_empty() {
            return Err(Failure::Malformed);
        }
        let mut leaf = None;
        while !list.is_empty() {
            let certificate = vec24(&mut list)?;
            let mut extensions = Reader::new(vec16(&mut list)?);
            if certificate.is_empty() {
                return Err(Failure::Malformed);
            }
            // No extension was offered for certificates, so none may be present (RFC 8446 §4.4.2).
            if !extensions.is_empty() {
                let kind = extensions.u16()?;
                return Err(Failure::UnsupportedExtension(kind));
            }
            leaf.get_or_insert(certificate);
        }
        Ok(Self { context, leaf })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut list = Vec::new();
        if let Some(leaf) = self.leaf {
            put::vec24(&mut list, leaf);
            put::vec16(&mut list, &[]);
        }
        put::vec8(out, self.context);
        put::vec24(out, &list);
    }
}

/// A `CertificateRequest` (RFC 8446 §4.3.2): the signature schemes that the server accepts. Other extensions are
/// ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemesRequest {
    pub(crate) schemes: Vec<u16>,
}

impl SchemesRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let context = vec8(&mut r)?;
        let extensions = extensions_alone(r.rest())?;
        if !context.is_empty() {
            return Err(Failure::Malformed);
        }
        let kind = ExtensionType::SIGNATURE_ALGORITHMS;
        let schemes = extensions.find(kind).ok_or(Failure::MissingExtension(kind.0))?;
        Ok(Self { schemes: read_numbers16(schemes)? })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        put::vec16(&mut body, &put::numbers(self.schemes.iter().copied()));
        let mut extensions = Extensions::default();
        extensions.push(ExtensionType::SIGNATURE_ALGORITHMS, body);
        put::vec8(out, &[]);
        extensions.write(out);
    }
}

/// Returns the content to be signed in a `CertificateVerify` (RFC 8446 §4.4.3).
pub(crate) fn signed_content(by_server: bool, transcript_hash: &[u8]) -> Vec<u8> {
    let context: &[u8] =
        if by_server { b"TLS 1.3, server CertificateVerify" } else { b"TLS 1.3, client CertificateVerify" };
    [&[b' '; SIGNED_SPACES], context, &[0], transcript_hash].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_written() {
        let share = KeyShare { group: 29, public: &[7; 32] };
        let mut out = Vec::new();
        share.write(&mut out);
        assert_eq!(KeyShare::read(&out), Ok(share));
        for cut in 0..out.len() {
            assert_eq!(KeyShare::read(&out[..cut]), Err(Failure::Malformed));
        }
        let list = |shares: &[KeyShare<'_>]| {
            let mut inner = Vec::new();
            shares.iter().for_each(|share| share.write(&mut inner));
            let mut body = Vec::new();
            put::vec16(&mut body, &inner);
            body
        };
        let other = KeyShare { group: 23, public: &[4; 65] };
        assert_eq!(read_key_shares(&list(&[])), Ok(vec![]));
        assert_eq!(read_key_shares(&list(&[share, other])), Ok(vec![share, other]));
        let twice = Failure::Illegal("two shares of one group");
        assert_eq!(read_key_shares(&list(&[share, other, share])), Err(twice));
        for body in [&[][..], &[0], &[0, 1, 1], &[0, 4, 0, 29, 0, 0], &[0, 5, 0, 29, 0, 1, 1, 1]] {
            assert_eq!(read_key_shares(body), Err(Failure::Malformed), "{body:?}");
        }
    }

    /// A hello of 16 KiB full of key shares is refused after a bounded number of comparisons.
    #[test]
    fn d_28_a_long_list_of_shares_is_refused() {
        let mut inner = Vec::new();
        for group in 0..3000 {
            KeyShare { group, public: &[1] }.write(&mut inner);
        }
        let mut body = Vec::new();
        put::vec16(&mut body, &inner);
        assert_eq!(read_key_shares(&body), Err(Failure::TooLarge));
    }

    #[test]
    fn messages_are_read_as_written() {
        for leaf in [None, Some(&b"certificate"[..])] {
            let message = Certificates { context: &[], leaf };
            let mut out = Vec::new();
            message.write(&mut out);
            assert_eq!(Certificates::read(&out), Ok(message));
            for cut in 0..out.len() {
                assert_eq!(Certificates::read(&out[..cut]), Err(Failure::Malformed));
            }
        }
        // A certificate with an extension that was not offered.
        let stapled = [0, 0, 0, 10, 0, 0, 1, 7, 0, 4, 0, 5, 0, 0];
        assert_eq!(Certificates::read(&stapled), Err(Failure::UnsupportedExtension(5)));

        let request = SchemesRequest { schemes: vec![0x0403, 0x0804] };
        let mut out = Vec::new();
        request.write(&mut out);
        assert_eq!(SchemesRequest::read(&out), Ok(request));
        for cut in 0..out.len() {
            assert_eq!(SchemesRequest::read(&out[..cut]), Err(Failure::Malformed));
        }
        assert_eq!(SchemesRequest::read(&[0, 0, 0]), Err(Failure::MissingExtension(13)));
        assert_eq!(extensions_alone(&[]), Err(Failure::Malformed));
        assert_eq!(extensions_alone(&[0, 0]), Ok(Extensions::default()));

        assert_eq!(read_cookie(&write_cookie(b"cookie")), Ok(&b"cookie"[..]));
        for body in [&[][..], &[0, 0], &[0, 1], &[0, 1, 1, 1]] {
            assert_eq!(read_cookie(body), Err(Failure::Malformed));
        }
    }
}
