//! Attribute lists of tags (RFC 8216 §4.2), read and written.

use std::fmt;

use super::is_control;
use crate::limits::ATTRIBUTES_MAX;
use crate::{Error, Limit, Violation};

/// Reason for refusing a tag; the reader adds the line number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Violation(Violation),
    Limit(Limit),
    Variables,
}

impl Fault {
    /// The error for this line.
    pub(super) const fn at(self, line: usize) -> Error {
        match self {
            Self::Violation(violation) => Error::Violation { line, violation },
            Self::Limit(limit) => Error::Limit { line, limit },
            Self::Variables => Error::Variables { line },
        }
    }
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// The attributes of one tag. If a name occurs twice, the first occurrence counts.
#[derive(Debug)]
pub(super) struct Attributes<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Attributes<'a> {
    pub(super) fn read(mut text: &'a str) -> Result<Self, Fault> {
        let mut list = Vec::new();
        loop {
            text = text.trim_start_matches([' ', '\t', ',']);
            if text.is_empty() {
                return Ok(Self(list));
            }
            if list.len() == ATTRIBUTES_MAX {
                return Err(Fault::Limit(Limit::Attributes));
            }
            let (name, rest) = text.split_once('=').ok_or(Violation::Attributes)?;
            let (value, rest) = match rest.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').ok_or(Violation::Attributes)?,
                None => {
                    let (value, rest) =
                        rest.split_at_checked(rest.find(',').unwrap_or(rest.len())).unwrap_or_default();
                    (value.trim_matches([' ', '\t']), rest)
                }
            };
            let rest = rest.trim_start_matches([' ', '\t']);
            let is_name =
                |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            let name = name.trim_matches([' ', '\t']);
            if !is_name(name) || value.contains('"') || !(rest.is_empty() || rest.starts_with(',')) {
                return Err(Violation::Attributes.into());
            }
            list.push((name, value));
            text = rest;
        }
    }

    /// The value of an attribute, without quotes.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    pub(super) fn required(&self, name: &'static str) -> Result<&'a str, Violation> {
        self.get(name).ok_or(Violation::Missing(name))
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// True if the value is `YES`.
    pub(super) fn is_yes(&self, name: &str) -> bool {
        self.get(name) == Some("YES")
    }

    /// Reads an attribute's value with `read`; `None` if the attribute is absent.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, Violation>,
    ) -> Result<Option<T>, Violation> {
        self.get(name).map(read).transpose()
    }
}

/// Writes the attributes of a tag, with commas between them.
pub(super) struct Writer<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    separator: &'static str,
}

impl<'a, 'f> Writer<'a, 'f> {
    /// Begins the line; `tag` includes the leading `#` and the trailing colon.
    pub(super) fn begin(f: &'a mut fmt::Formatter<'f>, tag: &str) -> Result<Self, fmt::Error> {
        f.write_str(tag)?;
        Ok(Self { f, separator: "" })
    }

    fn name(&mut self, name: &str) -> fmt::Result {
        write!(self.f, "{}{name}=", self.separator)?;
        self.separator = ",";
        Ok(())
    }

    pub(super) fn plain(&mut self, name: &str, value: impl fmt::Display) -> fmt::Result {
        self.name(name)?;
        write!(self.f, "{value}")
    }

    pub(super) fn plain_if(&mut self, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.plain(name, value))
    }

    pub(super) fn quoted(&mut self, name: &str, value: &str) -> fmt::Result {
        self.name(name)?;
        self.f.write_str("\"")?;
        value.split(|c: char| c == '"' || is_control(c)).try_for_each(|part| self.f.write_str(part))?;
        self.f.write_str("\"")
    }

    pub(super) fn quoted_if(&mut self, name: &str, value: Option<&str>) -> fmt::Result {
        value.map_or(Ok(()), |value| self.quoted(name, value))
    }

    pub(super) fn yes_if(&mut self, name: &str, is_set: bool) -> fmt::Result {
        if is_set { self.plain(name, "YES") } else { Ok(()) }
    }

    pub(super) fn end(self) -> fmt::Result {
        self.f.write_str("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_or_not_and_in_any_order() {
        let list = Attributes::read("B=1 , A=\"x,y=z\",C = 2,,A=\"second\",D=").unwrap();
        assert_eq!((list.get("A"), list.get("B")), (Some("x,y=z"), Some("1")));
        assert_eq!((list.get("C"), list.get("D"), list.get("E")), (Some(" 2".trim()), Some(""), None));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["A", "A=\"x", "A=x\"y\"", "A=\"x\"y", "A B=1", "Ä=1"] {
            assert_eq!(
                Attributes::read(text).unwrap_err(),
                Fault::Violation(Violation::Attributes),
                "{text}"
            );
        }
    }

    #[test]
    fn attributes_are_capped() {
        let most = "A=1,".repeat(ATTRIBUTES_MAX);
        assert!(Attributes::read(&most).is_ok());
        assert_eq!(Attributes::read(&(most + "A=1")).unwrap_err(), Fault::Limit(Limit::Attributes));
    }
}
