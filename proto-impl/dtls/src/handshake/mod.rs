//! Reads and writes handshake messages (RFC 6347 §4.2.2, RFC 5246 §7.4; `modern` for RFC 8446 §4), without
//! state.
//!
//! ```text
//!  0      1 .. 3    4 .. 5     6 .. 8           9 .. 11
//! +------+--------+----------+-----------------+-----------------+---------
//! | type | length | sequence | fragment offset | fragment length | fragment
//! +------+--------+----------+-----------------+-----------------+---------
//! ```

mod certificate;
mod exchange;
mod extensions;
mod hello;
mod modern;

pub(crate) use certificate::{CertificateMessage, CertificateRequest};
pub(crate) use exchange::{KeyExchange, Signed, read_public_value, write_public_value};
pub(crate) use extensions::{ExtensionType, Extensions, UseSrtp, read_numbers8, read_numbers16};
pub(crate) use hello::{ClientHello, HelloStart, HelloVerifyRequest, ServerHello};
pub(crate) use modern::{
    Certificates, KeyShare, SchemesRequest, extensions_alone, read_cookie, read_key_shares, signed_content,
    write_cookie,
};

use wire::{Reader, Truncated};

use crate::put;

/// Length of a fragment's header.
pub(crate) const HEAD_BYTES: usize = 12;

/// The type of a handshake message (RFC 5246 §7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType(pub u8);

impl MessageType {
    /// Asks a client to start a new handshake.
    pub const HELLO_REQUEST: Self = Self(0);
    /// The client's offer, the first message.
    pub const CLIENT_HELLO: Self = Self(1);
    /// The server's choice.
    pub const SERVER_HELLO: Self = Self(2);
    /// A cookie for the client to return (RFC 6347 §4.2.1).
    pub const HELLO_VERIFY_REQUEST: Self = Self(3);
    /// A ticket for resuming the session later (RFC 8446 §4.6.1).
    pub const NEW_SESSION_TICKET: Self = Self(4);
    /// Extensions that the server sends encrypted (RFC 8446 §4.3.1).
    pub const ENCRYPTED_EXTENSIONS: Self = Self(8);
    /// The certificates of either side.
    pub const CERTIFICATE: Self = Self(11);
    /// The server's signed public value.
    pub const SERVER_KEY_EXCHANGE: Self = Self(12);
    /// The server's request for a certificate.
    pub const CERTIFICATE_REQUEST: Self = Self(13);
    /// The end of the server's flight.
    pub const SERVER_HELLO_DONE: Self = Self(14);
    /// Proof of possession of the certificate's key.
    pub const CERTIFICATE_VERIFY: Self = Self(15);
    /// The client's public value.
    pub const CLIENT_KEY_EXCHANGE: Self = Self(16);
    /// A MAC over all previous messages.
    pub const FINISHED: Self = Self(20);
    /// Announces that the sender changes its keys (RFC 8446 §4.6.3).
    pub const KEY_UPDATE: Self = Self(24);
}

/// Header of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FragmentHead {
    pub(crate) kind: MessageType,
    /// Length of the whole message.
    pub(crate) length: usize,
    /// Sequence number of the message.
    pub(crate) sequence: u16,
    /// Offset of the fragment in the message.
    pub(crate) offset: usize,
    /// Length of the fragment.
    pub(crate) fragment: usize,
}

impl FragmentHead {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            kind: MessageType(r.u8()?),
            length: u24(r)?,
            sequence: r.u16()?,
            offset: u24(r)?,
            fragment: u24(r)?,
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.kind.0);
        put::u24(out, self.length);
        put::u16(out, self.sequence);
        put::u24(out, self.offset);
        put::u24(out, self.fragment);
    }
}

/// Reads a three-byte length.
pub(crate) fn u24(r: &mut Reader<'_>) -> Result<usize, Truncated> {
    let [a, b, c] = r.array()?;
    Ok(usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c))
}

/// Reads a one-byte length and the bytes.
pub(crate) fn vec8<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Truncated> {
    let length = r.u8()?;
    r.take(usize::from(length))
}

/// Reads a two-byte length and the bytes.
pub(crate) fn vec16<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Truncated> {
    let length = r.u16()?;
    r.take(usize::from(length))
}

/// Reads a three-byte length and the bytes.
pub(crate) fn vec24<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Truncated> {
    let length = u24(r)?;
    r.take(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_written() {
        let head = FragmentHead {
            kind: MessageType::CERTIFICATE,
            length: 0x01_0203,
            sequence: 0x0405,
            offset: 0x06_0708,
            fragment: 0xff_fffe,
        };
        let mut out = Vec::new();
        head.write(&mut out);
        assert_eq!(out.len(), HEAD_BYTES);
        assert_eq!(FragmentHead::read(&mut Reader::new(&out)), Ok(head));
        assert!(FragmentHead::read(&mut Reader::new(&out[1..])).is_err());
    }
}
