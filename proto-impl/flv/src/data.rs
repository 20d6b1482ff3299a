//! Data messages (RTMP message type 18, FLV tag type 18): a name, then AMF0 values.
//!
//! Encoders send metadata as `@setDataFrame`, `onMetaData`, object. In files and to players it is sent without
//! `@setDataFrame`.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use bytes::{BufMut, Bytes, BytesMut};
use wire::{Reader, Writer};

use crate::Error;
use crate::amf0::{self, Pairs, Value};

/// Name of the wrapper in encoded form.
const SET_DATA_FRAME: &[u8] = b"\x02\x00\x0d@setDataFrame";

/// Returns the body without a leading `@setDataFrame`, as a slice of it.
#[must_use]
pub fn unwrap(body: &Bytes) -> Bytes {
    match body.strip_prefix(SET_DATA_FRAME) {
        Some(rest) => body.slice_ref(rest),
        None => body.clone(),
    }
}

/// Returns the body preceded by `@setDataFrame`, as servers expect it from a publisher.
#[must_use]
pub fn wrap(body: &[u8]) -> Bytes {
    let mut wrapped = BytesMut::with_capacity(SET_DATA_FRAME.len().saturating_add(body.len()));
    wrapped.put_slice(SET_DATA_FRAME);
    wrapped.put_slice(body);
    wrapped.freeze()
}

/// A data message: its name and values.
#[derive(Debug, Clone, PartialEq)]
pub struct Data {
    /// Name: `onMetaData`, `onFI`, `onCuePoint`, ...
    pub name: String,
    /// Values after the name.
    pub values: Vec<Value>,
}

impl Data {
    /// Reads a body, with or without the wrapper.
    pub fn read(body: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(body.strip_prefix(SET_DATA_FRAME).unwrap_or(body));
        let name = amf0::read_string(&mut r)?;
        Ok(Self { name, values: amf0::read_all(&mut r)? })
    }

    /// Returns the body, without the wrapper.
    #[must_use]
    pub fn write(&self) -> Bytes {
        let mut w = Writer::new();
        amf0::write(&Value::string(self.name.as_str()), &mut w);
        amf0::write_all(&self.values, &mut w);
        w.take()
    }

    /// Creates an `onMetaData` message with these members.
    #[must_use]
    pub fn metadata(pairs: Pairs) -> Self {
        Self { name: "onMetaData".to_owned(), values: vec![Value::EcmaArray(pairs)] }
    }

    /// Returns the members of `onMetaData`; `None` for any other message.
    #[must_use]
    pub fn as_metadata(&self) -> Option<&[(String, Value)]> {
        if self.name == "onMetaData" { self.values.first()?.pairs() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Data {
        Data::metadata(vec![("width".to_owned(), Value::Number(1280.0))])
    }

    #[test]
    fn metadata_is_the_same_wrapped_and_unwrapped() {
        let plain = sample().write();
        let wrapped = wrap(&plain);
        assert_eq!((unwrap(&wrapped), unwrap(&plain)), (plain.clone(), plain.clone()));
        assert_eq!((Data::read(&wrapped), Data::read(&plain)), (Ok(sample()), Ok(sample())));
        assert_eq!(sample().as_metadata().map(<[_]>::len), Some(1));
        assert!(Bytes::is_empty(&unwrap(&wrap(b""))));
    }

    #[test]
    fn other_messages_are_no_metadata() {
        let other =
            Data { name: "onFI".to_owned(), values: vec![Value::object([("sd", Value::string("1"))])] };
        assert_eq!(Data::read(&other.write()).unwrap().as_metadata(), None);
        assert_eq!(Data::read(&[5]), Err(Error::UnexpectedType));
        assert!(Data::read(&[]).is_err());
    }
}
