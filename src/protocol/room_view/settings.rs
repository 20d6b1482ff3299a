//! Settings of an application: which stream the view of a room shows.

use crate::config::group::ROOMS;
use crate::config::{AppSettings, Error, Extensions, Key, Section, Values, key};

const APP: &[Key] = &[key(
    ROOMS,
    "rooms.view",
    "speaker",
    "Rooms over other protocols",
    "Participants of a room that players of other protocols get: the current speaker (speaker), the first participant (first), or up to five, each with tracks of its own (all)",
)];

/// The settings' [`crate::config::Section`].
pub(super) static SECTION: Section =
    Section { app: APP, read_app: |values| Ok(Extensions::of(Shows::read(values)?)), ..Section::NONE };

/// The stream that views of rooms show (`rooms.view`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shows {
    /// The stream that speaks.
    Speaker,
    /// The stream that began first.
    First,
    /// All streams, each with tracks of its own.
    All,
}

impl Shows {
    fn read(values: &Values) -> Result<Self, Error> {
        match values.text("rooms.view").trim().to_ascii_lowercase().as_str() {
            "speaker" => Ok(Self::Speaker),
            "first" => Ok(Self::First),
            "all" => Ok(Self::All),
            _ => Err(values.bad("rooms.view", "must be speaker, first or all")),
        }
    }

    /// Returns the rule of an application.
    pub(super) fn of(app: Option<&AppSettings>) -> Self {
        app.and_then(|app| app.protocols.get::<Self>()).copied().unwrap_or(Self::Speaker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_shows_who_speaks_unless_the_application_says_otherwise() {
        let of = |settings: &[(&str, &str)]| {
            AppSettings::of(crate::protocol::schema(), "live", settings).map(|app| Shows::of(Some(&app))).ok()
        };
        assert_eq!(of(&[]), Some(Shows::Speaker));
        assert_eq!(of(&[("rooms.view", "First")]), Some(Shows::First));
        assert_eq!(of(&[("rooms.view", "all")]), Some(Shows::All));
        assert_eq!(of(&[("rooms.view", "none")]), None, "refused");
    }
}
