//! Roles of the participants in a room, and which roles see which (`participantVisibilityMatrix`).

use std::collections::{BTreeMap, BTreeSet};

use super::keys::VISIBILITY;
use super::{Error, Values};

/// The key of the setting.
const KEY: &str = "participantVisibilityMatrix";
/// Role assumed for participants that have no role.
const DEFAULT: &str = "default";

/// The roles that each role sees. An unlisted role sees the roles listed for `default`, or all roles if
/// `default` is not listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visibility(BTreeMap<String, BTreeSet<String>>);

impl Visibility {
    /// Parses the setting: an object with a list of roles for each role.
    pub(super) fn read(values: &Values) -> Result<Self, Error> {
        let text = Some(values.text(KEY).trim()).filter(|text| !text.is_empty()).unwrap_or(VISIBILITY);
        serde_json::from_str(text)
            .map(Self)
            .map_err(|_| values.bad(KEY, "must be an object with a list of roles for each role"))
    }

    /// True if a viewer of one role sees a stream of another; empty means no role.
    #[must_use]
    pub fn sees(&self, viewer: &str, stream: &str) -> bool {
        let role = |role: &str| if role.is_empty() { DEFAULT.to_owned() } else { role.to_owned() };
        let seen = self.0.get(&role(viewer)).or_else(|| self.0.get(DEFAULT));
        seen.is_none_or(|seen| seen.contains(&role(stream)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AppSettings;

    fn with(value: &str) -> Result<Visibility, Error> {
        Ok(AppSettings::with("a", &[(KEY, value)])?.security.visibility)
    }

    #[test]
    fn a_role_sees_the_roles_of_its_list() {
        for matrix in ["", VISIBILITY] {
            let matrix = with(matrix).unwrap();
            for (viewer, stream, sees) in [
                ("", "", true),
                ("default", "", true),
                ("", "speaker", false),
                ("attendee", "speaker", true),
                ("attendee", "active_attendee", true),
                ("attendee", "attendee", false),
                ("speaker", "attendee", false),
                ("speaker", "active_attendee", true),
                // An unlisted role sees the same roles as a participant without a role.
                ("stranger", "", true),
                ("stranger", "stranger", false),
            ] {
                assert_eq!(matrix.sees(viewer, stream), sees, "{viewer} and {stream}");
            }
        }
    }

    #[test]
    fn without_a_list_for_everybody_all_see_all() {
        assert!(with("{}").unwrap().sees("a", "b"));
        let some = with(r#"{"listener":["host"]}"#).unwrap();
        assert!(!some.sees("listener", "") && some.sees("", "host") && some.sees("host", "listener"));
        assert!(!with(r#"{"default":[]}"#).unwrap().sees("", ""));
    }

    #[test]
    fn c_03_a_matrix_is_an_object_of_lists() {
        for bad in ["[]", "null", "default", r#"{"a":"b"}"#, r#"{"a":[1]}"#, r#"{"a":null}"#] {
            let error = with(bad).unwrap_err().to_string();
            assert!(error.starts_with(KEY), "{bad}: {error}");
        }
    }
}
