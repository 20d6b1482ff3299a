//! The messages between a server and the process that makes its pictures.
//!
//! ```text
//! length (u32, of the message) | message
//! request: codec (u8) | format (u8) | quality (u8) | width (u16) | height (u16) | record's length (u32) | record | payload
//! answer:  code (u8: 0 for a picture) | picture
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use media::{Codec, CodecConfig};
use wire::Reader;

use crate::decode::Decodable;
use crate::{Error, Format, Request, Shape};

/// Size in bytes of the length field before each message.
pub const HEAD_BYTES: usize = 4;
/// Maximum size of a request in bytes, without its length field.
pub const REQUEST_BYTES_MAX: usize = 8 << 20;
/// Maximum size of an answer in bytes, without its length field.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Numbers of the codecs in a request.
const H264: u8 = 1;
const VP8: u8 = 2;

/// Returns the length of the message that follows a length field.
///
/// # Errors
/// [`Error::Message`] if the message is longer than `max`.
pub fn length_of(head: [u8; HEAD_BYTES], max: usize) -> Result<usize, Error> {
    let length = usize::try_from(u32::from_be_bytes(head)).map_err(|_| Error::Message)?;
    if length > max { Err(Error::Message) } else { Ok(length) }
}

impl Request {
    /// Writes the request, preceded by its length.
    ///
    /// # Errors
    /// [`Error::Codec`] if no decoder supports the codec, [`Error::Message`] if the key frame is too long.
    pub fn write(&self) -> Result<Bytes, Error> {
        let (codec, record) = match Decodable::of(&self.config)? {
            Decodable::H264(config) => (H264, &config.record),
            Decodable::Vp8(config) => (VP8, &config.record),
        };
        let length = record.len().saturating_add(self.payload.len()).saturating_add(11);
        if length > REQUEST_BYTES_MAX {
            return Err(Error::Message);
        }
        let mut out = BytesMut::with_capacity(length.saturating_add(HEAD_BYTES));
        out.put_u32(u32::try_from(length).map_err(|_| Error::Message)?);
        out.put_u8(codec);
        out.put_u8(match self.shape.format {
            Format::Png => 0,
            Format::Jpeg => 1,
        });
        out.put_u8(self.shape.quality);
        out.put_u16(self.shape.width);
        out.put_u16(self.shape.height);
        out.put_u32(u32::try_from(record.len()).map_err(|_| Error::Message)?);
        out.put_slice(record);
        out.put_slice(&self.payload);
        Ok(out.freeze())
    }

    /// Reads a request without its length.
    ///
    /// # Errors
    /// [`Error::Message`] if the bytes are not a request, [`Error::Damaged`] if the record is not valid for
    /// the codec.
    pub fn read(message: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(message);
        let mut head = || -> Result<_, wire::Truncated> {
            let (codec, format, quality) = (reader.u8()?, reader.u8()?, reader.u8()?);
            let (width, height, length) = (reader.u16()?, reader.u16()?, reader.u32()?);
            let record = reader.take(usize::try_from(length).unwrap_or(usize::MAX))?;
            Ok((codec, format, quality, width, height, Bytes::copy_from_slice(record)))
        };
        let (codec, format, quality, width, height, record) = head().map_err(|_| Error::Message)?;
        let codec = match codec {
            H264 => Codec::H264,
            VP8 => Codec::Vp8,
            _ => return Err(Error::Message),
        };
        let format = match format {
            0 => Format::Png,
            1 => Format::Jpeg,
            _ => return Err(Error::Message),
        };
        let config = CodecConfig::read(codec, record).map_err(|_| Error::Damaged)?.ok_or(Error::Damaged)?;
        let payload = Bytes::copy_from_slice(reader.rest());
        Ok(Self { config, payload, shape: Shape { format, width, height, quality } })
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer(pub Result<Bytes, Error>);

impl Answer {
    /// Writes the answer, preceded by its length. A picture that is too long becomes an error.
    #[must_use]
    pub fn write(&self) -> Bytes {
        let (code, picture) = match &self.0 {
            Ok(picture) if picture.len() < ANSWER_BYTES_MAX => (0, &**picture),
            Ok(_) | Err(Error::Message) => (5, &[][..]),
            Err(Error::Codec) => (1, &[][..]),
            Err(Error::Profile) => (2, &[][..]),
            Err(Error::Size) => (3, &[][..]),
            Err(Error::Damaged) => (4, &[][..]),
        };
        let length = picture.len().saturating_add(1);
        let mut out = BytesMut::with_capacity(length.saturating_add(HEAD_BYTES));
        out.put_u32(u32::try_from(length).unwrap_or(1));
        out.put_u8(code);
        out.put_slice(picture);
        out.freeze()
    }

    /// Reads an answer without its length.
    ///
    /// # Errors
    /// [`Error::Message`] if the bytes are not an answer.
    pub fn read(message: Bytes) -> Result<Self, Error> {
        let error = match message.first() {
            Some(0) if message.len() > 1 => return Ok(Self(Ok(message.slice(1..)))),
            Some(1) => Error::Codec,
            Some(2) => Error::Profile,
            Some(3) => Error::Size,
            Some(4) => Error::Damaged,
            Some(5) => Error::Message,
            _ => return Err(Error::Message),
        };
        if message.len() > 1 { Err(Error::Message) } else { Ok(Self(Err(error))) }
    }
}

#[cfg(test)]
mod tests {
    use media::codec::vp8;
    use proptest::prelude::*;

    use super::*;

    fn request(payload: Vec<u8>, shape: Shape) -> Request {
        Request { config: CodecConfig::Vp8(vp8::Config::default()), payload: payload.into(), shape }
    }

    const SHAPE: Shape = Shape { format: Format::Jpeg, width: 320, height: 480, quality: 75 };

    #[test]
    fn what_is_too_long_is_not_written_and_not_read() {
        let most = REQUEST_BYTES_MAX - 11;
        assert!(request(vec![0; most], SHAPE).write().is_ok());
        assert_eq!(request(vec![0; most + 1], SHAPE).write(), Err(Error::Message));
        assert_eq!(length_of([0, 0x80, 0, 0], REQUEST_BYTES_MAX), Ok(REQUEST_BYTES_MAX));
        assert_eq!(length_of([0, 0x80, 0, 1], REQUEST_BYTES_MAX), Err(Error::Message));
        assert_eq!(length_of([0xff; 4], ANSWER_BYTES_MAX), Err(Error::Message));
    }

    #[test]
    fn an_answer_says_what_was_wrong() {
        for error in [Error::Codec, Error::Profile, Error::Size, Error::Damaged, Error::Message] {
            let answer = Answer(Err(error));
            assert_eq!(Answer::read(answer.write().slice(HEAD_BYTES..)), Ok(answer));
        }
        for bad in [&[][..], &[0], &[6], &[1, 1]] {
            assert_eq!(Answer::read(Bytes::copy_from_slice(bad)), Err(Error::Message), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_request_is_read_as_it_was_written(
            payload in proptest::collection::vec(any::<u8>(), 0..200),
            (is_png, width, height, quality) in any::<(bool, u16, u16, u8)>(),
        ) {
            let format = if is_png { Format::Png } else { Format::Jpeg };
            let request = request(payload, Shape { format, width, height, quality });
            let written = request.write().unwrap();
            let length = length_of(*written.first_chunk().unwrap(), REQUEST_BYTES_MAX).unwrap();
            prop_assert_eq!(length, written.len() - HEAD_BYTES);
            prop_assert_eq!(Request::read(&written[HEAD_BYTES..]), Ok(request));
        }

        #[test]
        fn any_bytes_are_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Request::read(&bytes).map(|request| crate::look(&request.config, &request.payload));
            let _ = Answer::read(bytes.into());
        }
    }
}
