//! The known keys and how their values are parsed: the server's own, and those of the protocols, which are passed in.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock};

use super::keys::{self, Key};
use super::{Error, Values};

/// The settings of a protocol.
#[derive(Debug)]
pub struct Section {
    /// Keys of `conf/red5.properties`.
    pub server: &'static [Key],
    /// Keys of an application.
    pub app: &'static [Key],
    /// Keys that Ant Media Server has, too, each with the member of that server after which the
    /// API lists it. Other keys are listed after all members of Ant Media Server.
    pub places: &'static [(&'static str, &'static str)],
    /// Parses the values of the server's keys.
    pub read_server: fn(&Values) -> Result<Extensions, Error>,
    /// Parses the values of an application's keys.
    pub read_app: fn(&Values) -> Result<Extensions, Error>,
}

impl Section {
    /// A section without keys, from which protocols build theirs.
    pub const NONE: Self = Self {
        server: &[],
        app: &[],
        places: &[],
        read_server: |_| Ok(Extensions::default()),
        read_app: |_| Ok(Extensions::default()),
    };
}

/// Parsed settings of protocols, found by type.
#[derive(Debug, Clone, Default)]
pub struct Extensions(Vec<Arc<dyn Extension>>);

trait Extension: Any + Debug + Send + Sync {
    fn equals(&self, other: &dyn Any) -> bool;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Any + Debug + Send + Sync + PartialEq> Extension for T {
    fn equals(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Extensions {
    /// Wraps the settings of one protocol.
    #[must_use]
    pub fn of<T: Any + Debug + Send + Sync + PartialEq>(value: T) -> Self {
        Self(vec![Arc::new(value)])
    }

    /// Returns the settings of this type, if a protocol has parsed them.
    #[must_use]
    pub fn get<T: 'static>(&self) -> Option<&T> {
        self.0.iter().find_map(|value| (**value).as_any().downcast_ref())
    }
}

impl PartialEq for Extensions {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&Arc<dyn Extension>, &Arc<dyn Extension>)| (**a).equals((**b).as_any());
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

impl Eq for Extensions {}

/// The level of a key: server or application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A setting of the server.
    Server,
    /// A setting of an application.
    App,
}

/// All keys, in the order of the files.
#[derive(Debug)]
pub struct Schema {
    server: Vec<Key>,
    app: Vec<Key>,
    sections: Vec<&'static Section>,
}

/// Keys of a server without protocols.
static BARE: LazyLock<Schema> = LazyLock::new(|| Schema::new([]));

impl Schema {
    /// Combines the server's own keys with those of the sections, which are inserted between the two parts of the
    /// server's keys.
    pub fn new(sections: impl IntoIterator<Item = &'static Section>) -> Self {
        let sections: Vec<_> = sections.into_iter().collect();
        let table = |[first, last]: [&[Key]; 2], of: fn(&Section) -> &'static [Key]| {
            first.iter().chain(sections.iter().flat_map(|section| of(section))).chain(last).copied().collect()
        };
        let server = table(keys::SERVER, |section| section.server);
        let app = table(keys::APP, |section| section.app);
        Self { server, app, sections }
    }

    /// Returns the keys of a level.
    #[must_use]
    pub fn keys(&self, level: Level) -> &[Key] {
        match level {
            Level::Server => &self.server,
            Level::App => &self.app,
        }
    }

    /// Returns the member of Ant Media Server after which the API lists a protocol's key.
    pub(super) fn place(&self, key: &str) -> Option<&'static str> {
        let places = self.sections.iter().flat_map(|section| section.places);
        places.clone().find(|(name, _)| *name == key).map(|(_, before)| *before)
    }

    /// Returns the key with this name.
    pub(super) fn find(&self, level: Level, name: &str) -> Option<&Key> {
        self.keys(level).iter().find(|key| key.name == name)
    }

    /// Parses the settings of all protocols from the values.
    pub(super) fn read(&self, level: Level, values: &Values) -> Result<Extensions, Error> {
        let mut all = Vec::new();
        for section in &self.sections {
            let read = match level {
                Level::Server => section.read_server,
                Level::App => section.read_app,
            };
            all.extend(read(values)?.0);
        }
        Ok(Extensions(all))
    }
}

/// Schema without protocols, for tests.
impl Default for &'static Schema {
    fn default() -> Self {
        &BARE
    }
}

/// Compares by address, since there is only one instance of each schema.
impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Schema {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_texts_fit_one_line() {
        for level in [Level::Server, Level::App] {
            let table = crate::protocol::schema().keys(level);
            for (index, key) in table.iter().enumerate() {
                assert!(table[..index].iter().all(|k| k.name != key.name), "{}", key.name);
                assert!(!key.comment.is_empty() && !key.comment.contains('\n'));
                assert!(!key.secret || key.default.is_empty(), "C-02: no default secret, {}", key.name);
            }
        }
    }

    #[test]
    fn each_setting_has_a_name_for_people_and_a_group_with_a_title() {
        let titles = include_str!("../../panel/panel-strings.js").split_once("  groups: {").unwrap().1;
        let titles = titles.split_once("\n  },").unwrap().0;
        for level in [Level::Server, Level::App] {
            let keys = crate::protocol::schema().keys(level);
            for (index, key) in keys.iter().enumerate() {
                let words = key.label.split(' ').count();
                assert!((2..=5).contains(&words), "{}: {:?} is not two to five words", key.name, key.label);
                assert!(key.label.starts_with(char::is_uppercase), "{}: {:?}", key.name, key.label);
                assert!(key.label.ends_with(char::is_alphanumeric), "{}: {:?}", key.name, key.label);
                assert!(keys[..index].iter().all(|other| other.label != key.label), "twice: {:?}", key.label);
                let title = format!(" {}: \"", key.group.name());
                assert!(titles.contains(&title), "{}: group {} has no title", key.name, key.group.name());
            }
        }
    }

    #[test]
    fn extensions_are_found_by_type_and_compared_by_value() {
        let both = Extensions([Extensions::of(1u8).0, Extensions::of("a").0].concat());
        assert_eq!((both.get::<u8>(), both.get::<&str>(), both.get::<u16>()), (Some(&1), Some(&"a"), None));
        assert_ne!(Extensions::of(1u8), Extensions::of(2u8));
        assert_ne!(Extensions::of(1u8), Extensions::of(1u16));
        assert_eq!(both, both.clone());
    }
}
