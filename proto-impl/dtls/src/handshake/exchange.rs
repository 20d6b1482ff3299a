//! `ServerKeyExchange` and `ClientKeyExchange` with ECDHE (RFC 8422 §5.4, §5.7), and signatures with their scheme (RFC
//! 5246 §4.7), as in `CertificateVerify`.

use wire::Reader;

use super::{vec8, vec16};
use crate::error::Failure;
use crate::put;

/// Curve type `named_curve` (RFC 8422 §5.4).
const NAMED_CURVE: u8 = 3;

/// A signature and its scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signed<'a> {
    pub(crate) scheme: u16,
    pub(crate) signature: &'a [u8],
}

impl<'a> Signed<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let (scheme, signature) = (r.u16()?, vec16(&mut r)?);
        if r.is_empty() { Ok(Self { scheme, signature }) } else { Err(Failure::Malformed) }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put::u16(out, self.scheme);
        put::vec16(out, self.signature);
    }
}

/// A `ServerKeyExchange`: the server's signed public value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyExchange<'a> {
    pub(crate) group: u16,
    pub(crate) public: &'a [u8],
    /// Group and public value as encoded in the message; this is what is signed.
    pub(crate) parameters: &'a [u8],
    pub(crate) signed: Signed<'a>,
}

impl<'a> KeyExchange<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        if r.u8()? != NAMED_CURVE {
            return Err(Failure::Illegal("a curve without a name"));
        }
        let (group, public) = (r.u16()?, vec8(&mut r)?);
        let parameters = body.get(..r.position()).unwrap_or_default();
        let signed = Signed::read(r.rest())?;
        Ok(Self { group, public, parameters, signed })
    }

    /// Writes the parameters to be signed; the signature must be appended.
    pub(crate) fn write_parameters(group: u16, public: &[u8], out: &mut Vec<u8>) {
        out.push(NAMED_CURVE);
        put::u16(out, group);
        put::vec8(out, public);
    }
}

/// Reads the public value in `ClientKeyExchange`.
pub(crate) fn read_public_value(body: &[u8]) -> Result<&[u8], Failure> {
    let mut r = Reader::new(body);
    let public = vec8(&mut r)?;
    if r.is_empty() && !public.is_empty() { Ok(public) } else { Err(Failure::Malformed) }
}

pub(crate) fn write_public_value(public: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put::vec8(&mut out, public);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_read_as_written() {
        let mut out = Vec::new();
        KeyExchange::write_parameters(29, &[7; 32], &mut out);
        let parameters = out.clone();
        let signed = Signed { scheme: 0x0403, signature: b"signature" };
        signed.write(&mut out);
        let read = KeyExchange { group: 29, public: &[7; 32], parameters: &parameters, signed };
        assert_eq!(KeyExchange::read(&out), Ok(read));
        for cut in 0..out.len() {
            assert_eq!(KeyExchange::read(&out[..cut]), Err(Failure::Malformed));
        }
        assert_eq!(KeyExchange::read(&[1, 0, 0]), Err(Failure::Illegal("a curve without a name")));

        assert_eq!(read_public_value(&write_public_value(&[4; 65])), Ok(&[4; 65][..]));
        for body in [&[][..], &[0], &[1], &[1, 2, 3]] {
            assert_eq!(read_public_value(body), Err(Failure::Malformed));
        }
    }
}
