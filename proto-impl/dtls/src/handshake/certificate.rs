//! `Certificate` and `CertificateRequest` (RFC 5246 §7.4.2, §7.4.4).

use wire::Reader;

use super::extensions::numbers;
use super::{vec8, vec16, vec24};
use crate::error::Failure;
use crate::put;

/// Certificate types in requests: `ecdsa_sign` and `rsa_sign` (RFC 8422 §5.5, RFC 5246 §7.4.4).
const CERTIFICATE_TYPES: [u8; 2] = [64, 1];

/// A `Certificate` message. Only the first certificate is read; the others are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CertificateMessage<'a> {
    /// First certificate; `None` in an empty message.
    pub(crate) leaf: Option<&'a [u8]>,
}

impl<'a> CertificateMessage<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let mut list = Reader::new(vec24(&mut r)?);
        if !r.is_empty() {
            return Err(Failure::Malformed);
        }
        let mut leaf = None;
        while !list.is_empty() {
            let certificate = vec24(&mut list)?;
            if certificate.is_empty() {
                return Err(Failure::Malformed);
            }
            leaf.get_or_insert(certificate);
        }
        Ok(Self { leaf })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut list = Vec::new();
        if let Some(leaf) = self.leaf {
            put::vec24(&mut list, leaf);
        }
        put::vec24(out, &list);
    }
}

/// A `CertificateRequest`: the signature schemes that the server accepts. Certificate types and authorities are
/// ignored, because peers are identified by fingerprint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateRequest {
    pub(crate) schemes: Vec<u16>,
}

impl CertificateRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let types = vec8(&mut r)?;
        let schemes = numbers(vec16(&mut r)?)?;
        let mut names = Reader::new(vec16(&mut r)?);
        while !names.is_empty() {
            vec16(&mut names)?;
        }
        if types.is_empty() || !r.is_empty() {
            return Err(Failure::Malformed);
        }
        Ok(Self { schemes })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put::vec8(out, &CERTIFICATE_TYPES);
        put::vec16(out, &put::numbers(self.schemes.iter().copied()));
        put::vec16(out, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written() {
        for leaf in [None, Some(&b"certificate"[..])] {
            let mut out = Vec::new();
            CertificateMessage { leaf }.write(&mut out);
            assert_eq!(CertificateMessage::read(&out), Ok(CertificateMessage { leaf }));
            for cut in 0..out.len() {
                assert_eq!(CertificateMessage::read(&out[..cut]), Err(Failure::Malformed));
            }
        }
        let request = CertificateRequest { schemes: vec![0x0403, 0x0804] };
        let mut out = Vec::new();
        request.write(&mut out);
        assert_eq!(CertificateRequest::read(&out), Ok(request));
        for cut in 0..out.len() {
            assert_eq!(CertificateRequest::read(&out[..cut]), Err(Failure::Malformed));
        }
    }

    #[test]
    fn the_leaf_comes_first_and_the_chain_is_well_formed() {
        let chain = |parts: &[&[u8]]| {
            let mut list = Vec::new();
            parts.iter().for_each(|part| put::vec24(&mut list, part));
            let mut out = Vec::new();
            put::vec24(&mut out, &list);
            out
        };
        let three = chain(&[b"leaf", b"middle", b"root"]);
        assert_eq!(CertificateMessage::read(&three).unwrap().leaf, Some(&b"leaf"[..]));
        assert_eq!(CertificateMessage::read(&chain(&[b"leaf", b""])), Err(Failure::Malformed));
        assert_eq!(CertificateMessage::read(&[0, 0, 2, 0, 0]), Err(Failure::Malformed));
    }
}
