//! AMF0 (Action Message Format 0, Adobe 2007): the values of RTMP commands and of `onMetaData`.
//!
//! Reading is bounded three ways: [`DEPTH_MAX`] levels, [`VALUES_MAX`] values, and nothing is allocated by an
//! announced count. References (§2.9) and AMF3 values (§3.1) are errors. Real encoders announce wrong array
//! counts, which are ignored, and forget the object end marker at the very end of a message, which is accepted.

mod read;
mod write;

pub use read::{read, read_all, read_string};
pub use write::{write, write_all};

/// Levels of objects and arrays that a message may nest.
pub const DEPTH_MAX: usize = 32;
/// Values that one message may hold.
pub const VALUES_MAX: usize = 16_384;

/// The names and values of an object, in the order of the wire.
pub type Pairs = Vec<(String, Value)>;

/// An AMF0 value (§2.1).
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Number, 0x00: always a binary64.
    Number(f64),
    /// Boolean, 0x01.
    Boolean(bool),
    /// String 0x02, and long string 0x0c when it has more than 65 535 bytes.
    String(String),
    /// Anonymous object, 0x03.
    Object(Pairs),
    /// Null, 0x05.
    Null,
    /// Undefined, 0x06.
    Undefined,
    /// Associative array, 0x08.
    EcmaArray(Pairs),
    /// Array, 0x0a.
    StrictArray(Vec<Self>),
    /// Date, 0x0b: milliseconds since 1970, and the time zone that §2.13 reserves.
    Date {
        /// Milliseconds since 1970 in UTC.
        unix_ms: f64,
        /// Reserved; 0.
        zone: i16,
    },
    /// Unsupported, 0x0d.
    Unsupported,
    /// XML document, 0x0f, as text.
    XmlDocument(String),
    /// Typed object, 0x10.
    TypedObject {
        /// The registered class name.
        class: String,
        /// The object's members.
        pairs: Pairs,
    },
}

impl Value {
    /// A string value.
    #[must_use]
    pub fn string(text: impl Into<String>) -> Self {
        Self::String(text.into())
    }

    /// An object of the given members.
    #[must_use]
    pub fn object<const N: usize>(pairs: [(&str, Self); N]) -> Self {
        Self::Object(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The number, if it is one.
    #[must_use]
    pub const fn as_number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// The boolean, if it is one.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(*value) } else { None }
    }

    /// The text, if it is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// The elements, if it is a strict array.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::StrictArray(values) = self { Some(values) } else { None }
    }

    /// The members, if it is any kind of object.
    #[must_use]
    pub fn pairs(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(pairs) | Self::EcmaArray(pairs) | Self::TypedObject { pairs, .. } = self {
            Some(pairs)
        } else {
            None
        }
    }

    /// The member of that name, if it is an object that has one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.pairs()?.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests;
