//! `a=fmtp` (RFC 8866 §6.15), and its parameters, which the payload formats define.

use alloc::borrow::ToOwned;
use alloc::fmt;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::rtp::PayloadType;
use crate::text::{bounded, first_word, write_joined};

/// A parameter. Flags have no value, for example `0-16` of telephone-event, or `111/111` of RED.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Name as written. Must be compared ignoring case.
    pub name: String,
    /// Text after the first `=`, including any further `=` of base64.
    pub value: Option<String>,
}

impl Parameter {
    fn read(text: &str) -> Self {
        match text.split_once('=') {
            Some((name, value)) => {
                Self { name: name.trim_ascii().to_owned(), value: Some(value.trim_ascii().to_owned()) }
            }
            None => Self { name: text.trim_ascii().to_owned(), value: None },
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.value.as_ref().map_or(Ok(()), |value| write!(f, "={value}"))
    }
}

/// Parameters of a format, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters(Vec<Parameter>);

impl Parameters {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Parses `name=value;name=value`; blanks and empty parts are ignored. `None` if there are more than
    /// [`crate::limits::VALUES_MAX`] parameters.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let parts = text.split(';').map(str::trim_ascii).filter(|part| !part.is_empty());
        bounded(parts.map(|part| Some(Parameter::read(part)))).map(Self)
    }

    /// Returns the parameters with the parameter `name` set to `value`, in builder style.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.set(name, value);
        self
    }

    /// Replaces a parameter, or appends it.
    pub fn set(&mut self, name: &str, value: impl fmt::Display) {
        let value = Some(value.to_string());
        match self.0.iter_mut().find(|parameter| parameter.name.eq_ignore_ascii_case(name)) {
            Some(parameter) => parameter.value = value,
            None => self.0.push(Parameter { name: name.to_owned(), value }),
        }
    }

    /// Returns the value of the first parameter with this name, ignoring case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.find(name)?.value.as_deref()
    }

    /// Returns a value as a decimal number; `None` if it is absent or not a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u32> {
        self.get(name).and_then(crate::text::number)
    }

    /// True if a parameter is present, with or without a value.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Iterates over all parameters in order.
    pub fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.0.iter()
    }

    /// True if there are no parameters.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes a parameter and returns it.
    pub(crate) fn remove(&mut self, name: &str) -> Option<Parameter> {
        let at = self.0.iter().position(|parameter| parameter.name.eq_ignore_ascii_case(name))?;
        Some(self.0.remove(at))
    }

    /// Appends the parameters of another line, because some peers use several lines.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().cloned());
    }

    fn find(&self, name: &str) -> Option<&Parameter> {
        self.0.iter().find(|parameter| parameter.name.eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_joined(f, &self.0, ";")
    }
}

/// `a=fmtp`: parameters of one payload type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fmtp {
    /// Payload type to which the parameters apply.
    pub payload_type: PayloadType,
    /// The parameters.
    pub parameters: Parameters,
}

impl Fmtp {
    /// Parses the attribute's value. An empty list of parameters is valid, because cameras write such lines.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (payload_type, rest) = first_word(text);
        Some(Self { payload_type: PayloadType::read(payload_type)?, parameters: Parameters::read(rest)? })
    }
}

impl fmt::Display for Fmtp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.payload_type, self.parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_with_blanks_flags_and_base64() {
        // Blanks occur in lines of the Ant Media SDK, base64 in those of ffmpeg, and the flag of
        // telephone-event in those of all peers.
        let read = Parameters::read("minptime=10;useinbandfec=1; stereo=1").unwrap();
        assert_eq!((read.get("Stereo"), read.number("minptime")), (Some("1"), Some(10)));
        let read = Parameters::read("sprop-parameter-sets=Z0LAHw==,aM4=; packetization-mode=1;").unwrap();
        assert_eq!(read.get("sprop-parameter-sets"), Some("Z0LAHw==,aM4="));
        assert_eq!(read.to_string(), "sprop-parameter-sets=Z0LAHw==,aM4=;packetization-mode=1");
        let read = Parameters::read("0-16").unwrap();
        assert!(read.has("0-16") && read.get("0-16").is_none());
    }

    #[test]
    fn an_empty_line_is_a_line() {
        let read = Fmtp::read("96").unwrap();
        assert!(read.parameters.is_empty());
        assert_eq!(Fmtp::read(&read.to_string()), Some(read));
        assert_eq!((Fmtp::read("128 a=1"), Fmtp::read("webrtc-datachannel a=1")), (None, None));
        assert_eq!(Parameters::read(&"a;".repeat(129)), None);
    }

    #[test]
    fn a_parameter_is_set_in_its_place() {
        let mut parameters = Parameters::new().with("a", 1).with("b", 2);
        parameters.set("A", 3);
        assert_eq!(parameters.to_string(), "a=3;b=2");
    }
}
