//! Body framing (RFC 9112 §6, §7): a length or chunks, decoded as the bytes arrive.

#![deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)]

use bytes::{Buf, Bytes, BytesMut};

use super::grammar::is_token;
use super::{Error, Limits};

/// Maximum number of hexadecimal digits in a chunk size. A size with this many digits fits 64 bits.
const SIZE_DIGITS_MAX: u32 = 16;

/// Fields that frame or route a message. They are refused as trailers, because a message with them could be read in two
/// ways (RFC 9110 §6.5.1).
const NO_TRAILERS: [&str; 5] = ["content-length", "transfer-encoding", "host", "connection", "upgrade"];
/// Number of characters of a trailer's name that are kept: more than the longest name in [`NO_TRAILERS`] has.
const TRAILER_NAME_KEPT: usize = 20;

/// The framing of a body, as given by the head of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A body of this many bytes.
    Length(usize),
    /// The chunked coding.
    Chunked,
    /// A body of unknown length. The owner announces its end by [`BodyDecoder::end`].
    ToEnd,
}

/// The position within a chunk extension (RFC 9112 §7.1.1). Optional whitespace is refused, although the grammar allows
/// it (BWS).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    NameStart,
    Name,
    ValueStart,
    Value,
    Quoted,
    Escaped,
    QuotedEnd,
}

impl Extension {
    const fn step(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::NameStart | Self::Name, _) if is_token(byte) => Self::Name,
            (Self::ValueStart | Self::Value, _) if is_token(byte) => Self::Value,
            (Self::Name, b'=') => Self::ValueStart,
            (Self::ValueStart, b'"') => Self::Quoted,
            (Self::Name | Self::Value | Self::QuotedEnd, b';') => Self::NameStart,
            (Self::Quoted, b'"') => Self::QuotedEnd,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, _) if is_text(byte) => Self::Quoted,
            (_, _) => return None,
        })
    }

    const fn may_end(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::QuotedEnd)
    }
}

/// The position of the next byte in the chunked coding.
///
/// ```text
/// size [ ";" extension ] CR LF data CR LF ... "0" CR LF ( name ":" value CR LF )* CR LF
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Length { left: usize },
    ToEnd,
    Size { value: u64, digits: u32 },
    Extension { value: u64, bytes: usize, at: Extension },
    SizeLf { value: u64 },
    Data { left: usize },
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    LastLf,
    Done,
}

/// Decodes the framing of a body. Its bytes may arrive in pieces of any size.
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    body: BytesMut,
    /// The owner has announced the end of the body.
    is_ended: bool,
    body_max: usize,
    extension_max: usize,
    /// Remaining number of bytes that extensions and trailers of the body may have in total, so that a peer cannot send
    /// framing without end.
    overhead_left: usize,
    scanned: u64,
    /// Beginning of the name of the trailer field being read.
    trailer_name: Vec<u8>,
}

impl BodyDecoder {
    /// Makes a decoder. No memory is allocated for the length that the peer has announced.
    #[must_use]
    pub fn new(framing: Framing, limits: &Limits) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(left) => State::Length { left },
            Framing::Chunked => State::Size { value: 0, digits: 0 },
            Framing::ToEnd => State::ToEnd,
        };
        Self {
            state,
            body: BytesMut::new(),
            is_ended: false,
            body_max: limits.body_bytes,
            extension_max: limits.chunk_extension_bytes,
            overhead_left: limits.trailer_bytes,
            scanned: 0,
            trailer_name: Vec::new(),
        }
    }

    /// Sets the maximum body size in bytes, replacing that of the limits.
    #[must_use]
    pub const fn limited(mut self, body_bytes_max: usize) -> Self {
        self.body_max = body_bytes_max;
        self
    }

    /// Takes the bytes of the body from the front of `input`. Returns true when the body is complete. Bytes after the
    /// body stay in `input`.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<bool, Error> {
        while self.state != State::Done && !input.is_empty() {
            if self.state == State::ToEnd {
                self.take_data(input, usize::MAX)?;
            } else if let State::Length { left } | State::Data { left } = self.state {
                let left = self.take_data(input, left)?;
                let in_chunk = matches!(self.state, State::Data { .. });
                self.state = match (in_chunk, left) {
                    (true, 0) => State::DataCr,
                    (true, _) => State::Data { left },
                    (false, 0) => State::Done,
                    (false, _) => State::Length { left },
                };
            } else {
                let byte = input.get_u8();
                self.scanned = self.scanned.saturating_add(1);
                self.state = self.step(self.state, byte)?;
            }
        }
        if self.state == State::ToEnd && self.is_ended && input.is_empty() {
            self.state = State::Done;
        }
        Ok(self.state == State::Done)
    }

    /// Announces the end of a body framed as [`Framing::ToEnd`].
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// Returns the decoded bytes.
    #[must_use]
    pub fn into_body(self) -> Bytes {
        self.body.freeze()
    }

    /// Takes out the bytes decoded so far, for bodies that are read as they arrive.
    pub fn take_decoded(&mut self) -> Bytes {
        self.body.split().freeze()
    }

    /// True if the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Returns the number of bytes still to come, if the head announced the length.
    #[must_use]
    pub fn announced(&self) -> Option<u64> {
        match self.state {
            State::Length { left } => Some(u64::try_from(left).unwrap_or(u64::MAX)),
            State::ToEnd
            | State::Size { .. }
            | State::Extension { .. }
            | State::SizeLf { .. }
            | State::Data { .. }
            | State::DataCr
            | State::DataLf
            | State::TrailerStart
            | State::TrailerName
            | State::TrailerValue
            | State::TrailerLf
            | State::LastLf
            | State::Done => None,
        }
    }

    /// Number of decoded bytes held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// True if no decoded bytes are held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Number of bytes of framing examined so far. Each byte is examined once.
    #[must_use]
    pub const fn scanned(&self) -> u64 {
        self.scanned
    }

    /// Moves at most `left` bytes to the body. Returns how many of `left` remain.
    fn take_data(&mut self, input: &mut BytesMut, left: usize) -> Result<usize, Error> {
        let n = left.min(input.len());
        if self.body.len().saturating_add(n) > self.body_max {
            return Err(Error::BodyTooLarge);
        }
        self.body.extend_from_slice(input.get(..n).unwrap_or_default());
        input.advance(n);
        Ok(left.saturating_sub(n))
    }

    /// Advances the chunked coding by one byte.
    fn step(&mut self, state: State, byte: u8) -> Result<State, Error> {
        match (state, byte) {
            (State::Size { value, digits }, _) => self.size(value, digits, byte),
            (State::Extension { value, at, .. }, b'\r') if at.may_end() => Ok(State::SizeLf { value }),
            (State::Extension { value, bytes, at }, _) => self.extension(value, bytes, at.step(byte)),
            (State::SizeLf { value: 0 }, b'\n') => Ok(State::TrailerStart),
            (State::SizeLf { value }, b'\n') => self.begin_data(value),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size { value: 0, digits: 0 }),
            (State::TrailerStart, b'\r') => Ok(State::LastLf),
            (State::TrailerStart | State::TrailerName, _) if is_token(byte) => {
                self.overhead(Error::HeadTooLarge)?;
                if state == State::TrailerStart {
                    self.trailer_name.clear();
                }
                if self.trailer_name.len() < TRAILER_NAME_KEPT {
                    self.trailer_name.push(byte);
                }
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') => {
                let is_it = |name: &&str| self.trailer_name.eq_ignore_ascii_case(name.as_bytes());
                if NO_TRAILERS.iter().any(is_it) {
                    return Err(Error::Malformed("trailer field"));
                }
                Ok(State::TrailerValue)
            }
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if is_text(byte) => {
                self.overhead(Error::HeadTooLarge)?;
                Ok(State::TrailerValue)
            }
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::LastLf, b'\n') => Ok(State::Done),
            (
                State::TrailerStart
                | State::TrailerName
                | State::TrailerValue
                | State::TrailerLf
                | State::LastLf,
                _,
            ) => Err(Error::Malformed("trailer field")),
            (State::SizeLf { .. } | State::DataCr | State::DataLf, _) => Err(Error::Malformed("chunk")),
            // These states are handled by the caller, not byte by byte.
            (State::Length { .. } | State::ToEnd | State::Data { .. } | State::Done, _) => Ok(state),
        }
    }

    /// Takes a byte of a chunk size (RFC 9112 §7.1). A size has at least one and at most [`SIZE_DIGITS_MAX`]
    /// hexadecimal digits, and nothing else.
    fn size(&mut self, value: u64, digits: u32, byte: u8) -> Result<State, Error> {
        match (char::from(byte).to_digit(16), byte) {
            (Some(digit), _) if digits < SIZE_DIGITS_MAX => {
                let value = value.checked_mul(16).and_then(|v| v.checked_add(u64::from(digit)));
                let value = value.ok_or(Error::Malformed("chunk size"))?;
                Ok(State::Size { value, digits: digits.saturating_add(1) })
            }
            (None, b'\r') if digits > 0 => Ok(State::SizeLf { value }),
            (None, b';') if digits > 0 => self.extension(value, 0, Some(Extension::NameStart)),
            (Some(_) | None, _) => Err(Error::Malformed("chunk size")),
        }
    }

    /// Takes a byte of a chunk extension (RFC 9112 §7.1.1). Extensions are ignored but count toward the limits.
    fn extension(&mut self, value: u64, bytes: usize, at: Option<Extension>) -> Result<State, Error> {
        let bytes = bytes.saturating_add(1);
        let at = at.filter(|_| bytes <= self.extension_max).ok_or(Error::Malformed("chunk extension"))?;
        self.overhead(Error::Malformed("chunk extension"))?;
        Ok(State::Extension { value, bytes, at })
    }

    fn begin_data(&self, value: u64) -> Result<State, Error> {
        match usize::try_from(value) {
            Ok(left) if self.body.len().saturating_add(left) <= self.body_max => Ok(State::Data { left }),
            Ok(_) | Err(_) => Err(Error::BodyTooLarge),
        }
    }

    fn overhead(&mut self, over: Error) -> Result<(), Error> {
        self.overhead_left = self.overhead_left.checked_sub(1).ok_or(over)?;
        Ok(())
    }
}

/// True for a byte that a field value may contain (RFC 9110 §5.5).
const fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | 0x20..=0x7e | 0x80..=0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(input: &[u8], piece: usize) -> Result<Option<(Vec<u8>, usize)>, Error> {
        let mut decoder = BodyDecoder::new(Framing::Chunked, &Limits::default());
        let mut held = BytesMut::new();
        for piece in input.chunks(piece) {
            held.extend_from_slice(piece);
            decoder.decode(&mut held)?;
        }
        let done = decoder.decode(&mut held)?;
        Ok(done.then(|| (decoder.into_body().to_vec(), held.len())))
    }

    #[test]
    fn chunks_come_off_in_any_split() {
        let input = b"5;a=\"b;\\\"\";c\r\nhello\r\n00A\r\n world1234\r\n0\r\nX: y\r\nZ:\r\n\r\nnext";
        for piece in 1..input.len() {
            assert_eq!(decode(input, piece), Ok(Some((b"hello world1234".to_vec(), 4))), "{piece}");
        }
        assert_eq!(decode(b"5\r\nhel", 2), Ok(None));
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for input in [
            "+5\r\n",
            "0x5\r\n",
            "5 \r\n",
            " 5\r\n",
            "1_0\r\n",
            "10000000000000005\r\n",
            "00000000000000000\r\n",
            "\r\n",
            ";x\r\n",
            "5\n",
            "5\r\r",
            "1\r\nab",
            "1\r\na\n",
            "1\r\na\rb",
            "0\n\r\n",
            "0\r\n\n",
            "0\r\n\rx",
            "0\r\n X: y\r\n",
            "0\r\nX y\r\n",
            "0\r\n: y\r\n",
            "0\r\nX : y\r\n",
            "0\r\nX: \0\r\n",
            "5;a\nb",
            "5;\r\n",
            "5;,a\r\n",
            "5; a\r\n",
            "5;a=\r\n",
            "5;a=\"b\r\n",
            "5;a=\"b\"c\r\n",
            "5;a;;b\r\n",
            "5;a\0b",
            "-1\r\n",
            "g\r\n",
            "5\t\r\n",
            "0\r\nX: y\n",
            "0\r\nContent-Length: 5\r\n\r\n",
            "0\r\nA: b\r\ntransfer-ENCODING: identity\r\n\r\n",
            "0\r\nHost: h\r\n\r\n",
        ] {
            assert!(matches!(decode(input.as_bytes(), 1), Err(Error::Malformed(_))), "{input:?}");
        }
        assert_eq!(decode(b"ffffffffffffffff\r\n", 1), Err(Error::BodyTooLarge));
    }

    #[test]
    fn extensions_and_trailers_have_their_limits() {
        let extension = |n: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(n - 1));
        assert!(decode(extension(256).as_bytes(), 9).is_ok());
        assert_eq!(decode(extension(257).as_bytes(), 9), Err(Error::Malformed("chunk extension")));
        let many = format!("1;{}\r\na\r\n", "x".repeat(200)).repeat(50);
        assert_eq!(decode(many.as_bytes(), 9), Err(Error::Malformed("chunk extension")));
        let trailer = format!("0\r\nX: {}\r\n\r\n", "y".repeat(8 * 1024));
        assert_eq!(decode(trailer.as_bytes(), 9), Err(Error::HeadTooLarge));
    }
}
