//! The known keys with their defaults: those of Ant Media Server, and our
//! own (docs/settings.md). A file with all of them, and those of the protocols, is written at the
//! first start.

mod app;
mod app_last;
mod server;

use super::group::Group;
pub(super) use app_last::VISIBILITY;

/// The effect of a key on this server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The server does what the key says.
    Works,
    /// Kept and returned, but without effect here: a key that only Ant Media Server uses.
    Foreign,
}

/// A known key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Name in the file.
    pub name: &'static str,
    /// Value if the key is not set.
    pub default: &'static str,
    /// Topic under which people look for the key.
    pub group: Group,
    /// Name for people: two to five words.
    pub label: &'static str,
    /// Description in one line, with the unit.
    pub comment: &'static str,
    /// True if the value is never printed.
    pub secret: bool,
    /// True if setting the default value differs from not setting the key; such a key is written as a comment.
    pub explicit: bool,
    /// Effect of the key.
    pub effect: Effect,
}

/// Defines a key: its topic, name, default, name for people and description.
pub(crate) const fn key(
    group: Group,
    name: &'static str,
    default: &'static str,
    label: &'static str,
    comment: &'static str,
) -> Key {
    Key { name, default, group, label, comment, secret: false, explicit: false, effect: Effect::Works }
}

/// Defines a key whose value is never printed.
pub(crate) const fn secret(
    group: Group,
    name: &'static str,
    default: &'static str,
    label: &'static str,
    comment: &'static str,
) -> Key {
    Key { secret: true, ..key(group, name, default, label, comment) }
}

/// Defines a key for which setting the default value differs from not setting the key.
pub(crate) const fn explicit(
    group: Group,
    name: &'static str,
    default: &'static str,
    label: &'static str,
    comment: &'static str,
) -> Key {
    Key { explicit: true, ..key(group, name, default, label, comment) }
}

/// Defines a key of Ant Media Server without effect here; the comment says why.
pub(crate) const fn foreign(
    group: Group,
    name: &'static str,
    default: &'static str,
    label: &'static str,
    comment: &'static str,
) -> Key {
    Key { effect: Effect::Foreign, ..key(group, name, default, label, comment) }
}

/// Defines a key of Ant Media Server without effect here, whose value is never printed.
const fn foreign_secret(
    group: Group,
    name: &'static str,
    default: &'static str,
    label: &'static str,
    comment: &'static str,
) -> Key {
    Key { secret: true, ..foreign(group, name, default, label, comment) }
}

/// Keys of `conf/red5.properties`; the protocols' keys go between the two parts.
pub(super) const SERVER: [&[Key]; 2] = [server::FIRST, server::LAST];
/// Keys of `webapps/{app}/WEB-INF/red5-web.properties`; the protocols' keys go between the two parts.
pub(super) const APP: [&[Key]; 2] = [app::FIRST, app_last::LAST];
