//! AMF0 (Action Message Format 0, Adobe 2007): the values of RTMP commands and of `onMetaData`.
//!
//! Reading is limited: to [`DEPTH_MAX`] levels and [`VALUES_MAX`] values, and announced counts allocate no memory.
//! References (§2.9) and AMF3 values (§3.1) are errors. Real encoders announce wrong array counts, which are
//! ignored. Some omit the object end marker at the end of a message, which is accepted.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

mod read;
mod write;

pub use read::{read, read_all, read_string};
pub use write::{write, write_all};

/// Maximum number of levels of nested objects and arrays in a message.
pub const DEPTH_MAX: usize = 32;
/// Maximum number of values in one message.
pub const VALUES_MAX: usize = 16_384;

/// Names and values of an object, in the order sent.
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
    /// Date, 0x0b: milliseconds since 1970, and the time zone reserved by §2.13.
    Date {
        /// Milliseconds since 1970 in UTC.
        unix_ms: f64,
        /// Time zone; reserved, 0.
        zone: i16,
    },
    /// Unsupported, 0x0d.
    Unsupported,
    /// XML document, 0x0f, as text.
    XmlDocument(String),
    /// Typed object, 0x10.
    TypedObject {
        /// Registered class name.
        class: String,
        /// Members of the object.
        pairs: Pairs,
    },
}

impl Value {
    /// Creates a string.
    #[must_use]
    pub fn string(text: impl Into<String>) -> Self {
        Self::String(text.into())
    }

    /// Creates an object with these members.
    #[must_use]
    pub fn object<const N: usize>(pairs: [(&str, Self); N]) -> Self {
        Self::Object(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Returns the number; `None` for another type.
    #[must_use]
    pub const fn as_number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// Returns the boolean; `None` for another type.
    #[must_use]
    pub const fn as_bool(&self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(*value) } else { None }
    }

    /// Returns the text of a string; `None` for another type.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// Returns the elements of a strict array; `None` for another type.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::StrictArray(values) = self { Some(values) } else { None }
    }

    /// Returns the members of any kind of object; `None` for another type.
    #[must_use]
    pub fn pairs(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(pairs) | Self::EcmaArray(pairs) | Self::TypedObject { pairs, .. } = self {
            Some(pairs)
        } else {
            None
        }
    }

    /// Returns a member of an object by name; `None` if it is missing, or for another type.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Self> {
        self.pairs()?.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests;
