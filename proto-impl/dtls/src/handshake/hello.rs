//! `ClientHello`, `ServerHello`, `HelloVerifyRequest` (RFC 5246 §7.4.1, RFC 6347 §4.2.1).

use wire::Reader;

use super::extensions::{Extensions, numbers};
use super::{vec8, vec16};
use crate::error::Failure;
use crate::put;

/// Maximum size of a session id, in bytes (RFC 5246 §7.4.1.2).
const SESSION_ID_BYTES_MAX: usize = 32;

/// A `ClientHello`: the client's offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientHello<'a> {
    pub(crate) version: u16,
    pub(crate) random: [u8; 32],
    pub(crate) session_id: &'a [u8],
    pub(crate) cookie: &'a [u8],
    pub(crate) suites: Vec<u16>,
    pub(crate) compressions: &'a [u8],
    pub(crate) extensions: Extensions<'a>,
}

impl<'a> ClientHello<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let start = HelloStart::read(&mut r)?;
        let suites = numbers(vec16(&mut r)?)?;
        let compressions = vec8(&mut r)?;
        let extensions = Extensions::read(&mut r)?;
        let HelloStart { version, random, session_id, cookie } = start;
        Ok(Self { version, random, session_id, cookie, suites, compressions, extensions })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put::u16(out, self.version);
        out.extend_from_slice(&self.random);
        put::vec8(out, self.session_id);
        put::vec8(out, self.cookie);
        put::vec16(out, &put::numbers(self.suites.iter().copied()));
        put::vec8(out, self.compressions);
        self.extensions.write(out);
    }
}

/// The start of a `ClientHello`. It fits into the first fragment, so a cookie can be checked without
/// reassembly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HelloStart<'a> {
    pub(crate) version: u16,
    pub(crate) random: [u8; 32],
    pub(crate) session_id: &'a [u8],
    pub(crate) cookie: &'a [u8],
}

impl<'a> HelloStart<'a> {
    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, Failure> {
        let (version, random) = (r.u16()?, r.array()?);
        let session_id = vec8(r)?;
        if session_id.len() > SESSION_ID_BYTES_MAX {
            return Err(Failure::Malformed);
        }
        Ok(Self { version, random, session_id, cookie: vec8(r)? })
    }
}

/// A `ServerHello`: the server's choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerHello<'a> {
    pub(crate) version: u16,
    pub(crate) random: [u8; 32],
    pub(crate) session_id: &'a [u8],
    pub(crate) suite: u16,
    pub(crate) compression: u8,
    pub(crate) extensions: Extensions<'a>,
}

impl<'a> ServerHello<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let (version, random) = (r.u16()?, r.array()?);
        let session_id = vec8(&mut r)?;
        if session_id.len() > SESSION_ID_BYTES_MAX {
            return Err(Failure::Malformed);
        }
        let (suite, compression) = (r.u16()?, r.u8()?);
        let extensions = Extensions::read(&mut r)?;
        Ok(Self { version, random, session_id, suite, compression, extensions })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put::u16(out, self.version);
        out.extend_from_slice(&self.random);
        put::vec8(out, self.session_id);
        put::u16(out, self.suite);
        out.push(self.compression);
        self.extensions.write(out);
    }
}

/// A `HelloVerifyRequest` with a cookie, which the client must return to prove that it can receive at its
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HelloVerifyRequest<'a> {
    pub(crate) version: u16,
    pub(crate) cookie: &'a [u8],
}

impl<'a> HelloVerifyRequest<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Failure> {
        let mut r = Reader::new(body);
        let (version, cookie) = (r.u16()?, vec8(&mut r)?);
        if r.is_empty() { Ok(Self { version, cookie }) } else { Err(Failure::Malformed) }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put::u16(out, self.version);
        put::vec8(out, self.cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::ExtensionType;

    fn extensions() -> Extensions<'static> {
        let mut extensions = Extensions::default();
        extensions.push(ExtensionType::EXTENDED_MASTER_SECRET, Vec::new());
        extensions
    }

    #[test]
    fn hellos_are_read_as_written_and_every_cut_is_malformed_or_shorter() {
        let hello = ClientHello {
            version: 0xfefd,
            random: [7; 32],
            session_id: &[1; 32],
            cookie: b"cookie",
            suites: vec![0xc02b, 0x00ff],
            compressions: &[0],
            extensions: extensions(),
        };
        let mut out = Vec::new();
        hello.write(&mut out);
        assert_eq!(ClientHello::read(&out), Ok(hello));
        // Without its last six bytes, the message is a valid hello without extensions.
        for cut in (0..out.len()).filter(|cut| *cut != out.len() - 6) {
            assert_eq!(ClientHello::read(&out[..cut]), Err(Failure::Malformed), "{cut}");
        }

        let hello = ServerHello {
            version: 0xfefd,
            random: [9; 32],
            session_id: &[],
            suite: 0xc02b,
            compression: 0,
            extensions: extensions(),
        };
        let mut out = Vec::new();
        hello.write(&mut out);
        assert_eq!(ServerHello::read(&out), Ok(hello));

        let request = HelloVerifyRequest { version: 0xfeff, cookie: &[3; 20] };
        let mut out = Vec::new();
        request.write(&mut out);
        assert_eq!(HelloVerifyRequest::read(&out), Ok(request));
        out.push(0);
        assert_eq!(HelloVerifyRequest::read(&out), Err(Failure::Malformed));
    }

    #[test]
    fn a_session_id_has_32_bytes_at_most() {
        let mut out = [&[0xfe, 0xfd][..], &[0; 32]].concat();
        put::vec8(&mut out, &[0; 33]);
        out.extend([0; 20]);
        assert_eq!(ClientHello::read(&out), Err(Failure::Malformed));
        assert_eq!(ServerHello::read(&out), Err(Failure::Malformed));
    }
}
