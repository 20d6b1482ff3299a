//! The values of one level of settings. Precedence: `--set`, environment, file, default.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use super::keys::Key;
use super::properties::{Property, printable};
use super::remarks::Remarks;
use super::schema::{Level, Schema};
use super::{Error, Extensions, suggestion};
use crate::auth::access::Secret;
use crate::auth::{CidrList, cidr};

/// The origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Default, not set.
    Default,
    /// Settings file.
    File,
    /// Environment variable.
    Environment,
    /// Command line.
    Set,
}

/// Values by key. Unknown keys are kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Values {
    schema: &'static Schema,
    level: Level,
    file: String,
    map: BTreeMap<String, (String, Origin)>,
}

impl Values {
    /// Creates the defaults of a level; `file` names the settings file in messages.
    #[must_use]
    pub fn new(schema: &'static Schema, level: Level, file: &str) -> Self {
        let default = |key: &Key| (key.name.to_owned(), (key.default.to_owned(), Origin::Default));
        let map = schema.keys(level).iter().map(default).collect();
        Self { schema, level, file: file.to_owned(), map }
    }

    /// Applies the settings of the file at `path`. Later calls of [`Values::set`] override them.
    pub(super) fn apply_file(&mut self, path: &Path, properties: Vec<Property>, remarks: &mut Remarks) {
        let given: BTreeSet<String> = properties.iter().map(|property| property.key.clone()).collect();
        for Property { line, replaces, key, value } in properties {
            if let Some(first) = replaces {
                remarks.doubled(path, line, &key, first);
            }
            if self.schema.find(self.level, &key).is_none() {
                let near = suggestion::near_key(self.schema, self.level, &key);
                remarks.unknown(path, line, &key, near.map(|near| (near, given.contains(near))));
            }
            self.map.insert(key, (value, Origin::File));
        }
    }

    /// Resets a key to its default.
    pub(super) fn reset(&mut self, key: &str) {
        let default = self.schema.find(self.level, key).map_or("", |key| key.default);
        self.set(key, default.to_owned(), Origin::Default);
    }

    /// Returns the keys that do not come from the default, in order.
    pub(super) fn given(&self) -> Vec<String> {
        let is_given = |(_, (_, origin)): &(&String, &(String, Origin))| *origin != Origin::Default;
        self.map.iter().filter(is_given).map(|(key, _)| key.clone()).collect()
    }

    /// Sets a value.
    pub fn set(&mut self, key: &str, value: String, origin: Origin) {
        self.map.insert(key.to_owned(), (value, origin));
    }

    /// Returns a value; empty for an unknown key.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.map.get(key).map_or("", |(value, _)| value.as_str())
    }

    /// Returns the origin of a value.
    #[must_use]
    pub fn origin(&self, key: &str) -> Origin {
        self.map.get(key).map_or(Origin::Default, |(_, origin)| *origin)
    }

    /// True if the API must not change a key, because the command line or the environment sets it.
    #[must_use]
    pub fn is_fixed(&self, key: &str) -> bool {
        matches!(self.origin(key), Origin::Environment | Origin::Set)
    }

    /// Returns all keys with values and origins, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, Origin)> {
        self.map.iter().map(|(key, (value, origin))| (key.as_str(), value.as_str(), *origin))
    }

    /// Returns the keys whose values differ.
    pub fn changed<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a str> {
        let keys: BTreeSet<&str> = self.map.keys().chain(other.map.keys()).map(String::as_str).collect();
        keys.into_iter().filter(|key| self.text(key) != other.text(key))
    }

    /// Writes lines `key=value` with the origin; secrets become `***`. A key whose default is not the value in effect is
    /// written as a comment unless it is set.
    pub fn describe(&self, out: &mut String) {
        for (key, value, origin) in self.iter() {
            if origin == Origin::Default
                && let Some(known) = self.schema.find(self.level, key).filter(|known| known.explicit)
            {
                let unset = known.comment.rsplit_once(": ").map_or("", |(_, unset)| unset);
                out.push_str(&format!("# {key} is not set: {unset}\n"));
                continue;
            }
            let shown = if self.is_secret(key) && !value.is_empty() {
                "***".to_owned()
            } else if value.contains("://") {
                crate::auth::redact(value)
            } else {
                super::properties::escape_value(value)
            };
            let from = match origin {
                Origin::Default => "",
                Origin::File => "  # file",
                Origin::Environment => "  # environment",
                Origin::Set => "  # --set",
            };
            out.push_str(&format!("{}={shown}{from}\n", printable(key)));
        }
    }

    fn is_secret(&self, key: &str) -> bool {
        let unknown = || {
            let lower = key.to_ascii_lowercase();
            ["secret", "password", "passphrase", "token", "credential", "key"]
                .iter()
                .any(|w| lower.contains(w))
        };
        self.schema.find(self.level, key).map_or_else(unknown, |k| k.secret)
    }

    /// Makes an error about the value of a key.
    pub(crate) fn bad(&self, key: &str, reason: impl Into<String>) -> Error {
        Error::Value {
            origin: describe(&self.file, self.origin(key)),
            key: printable(key),
            reason: reason.into(),
        }
    }

    /// Parses `true` or `false`, ignoring case.
    pub(crate) fn boolean(&self, key: &str) -> Result<bool, Error> {
        match self.text(key) {
            text if text.eq_ignore_ascii_case("true") => Ok(true),
            text if text.eq_ignore_ascii_case("false") => Ok(false),
            _ => Err(self.bad(key, "must be true or false")),
        }
    }

    /// Parses an integer within bounds.
    pub(crate) fn number<T>(&self, key: &str, min: T, max: T) -> Result<T, Error>
    where
        T: FromStr + PartialOrd + fmt::Display + Copy,
    {
        let value = self.text(key).parse::<T>().ok().filter(|v| *v >= min && *v <= max);
        value.ok_or_else(|| self.bad(key, format!("must be a whole number from {min} to {max}")))
    }

    /// Parses a port; 0: any free port.
    pub(crate) fn port(&self, key: &str) -> Result<u16, Error> {
        self.number(key, 0, u16::MAX)
    }

    /// Parses the address of a listener. If the key is empty, returns the address for all listeners
    /// (`server.host`). `None`: all addresses, IPv4 and IPv6.
    pub(crate) fn host(&self, key: &str) -> Result<Option<IpAddr>, Error> {
        let host = |key| match self.text(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| self.bad(key, "must be an IP address or empty")),
        };
        Ok(host(key)?.or(host("server.host")?))
    }

    /// Parses the settings of the protocols.
    pub(super) fn extensions(&self) -> Result<Extensions, Error> {
        self.schema.read(self.level, self)
    }

    /// Parses a secret of at least `bytes_min` bytes.
    pub(crate) fn secret(&self, key: &str, bytes_min: usize) -> Result<Secret, Error> {
        match self.text(key) {
            text if text.len() >= bytes_min => Ok(Secret::new(text)),
            _ => Err(self.bad(key, format!("must have at least {bytes_min} characters"))),
        }
    }

    /// Parses a list of address rules.
    pub(super) fn rules(&self, key: &str) -> Result<CidrList, Error> {
        cidr::parse(self.text(key)).map_err(|e| self.bad(key, e.to_string()))
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").field("file", &self.file).field("keys", &self.map.len()).finish()
    }
}

fn describe(file: &str, origin: Origin) -> String {
    match origin {
        Origin::Default => "the default".to_owned(),
        Origin::File => file.to_owned(),
        Origin::Environment => "the environment".to_owned(),
        Origin::Set => "--set".to_owned(),
    }
}
