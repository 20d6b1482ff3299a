//! Messages of the client: JSON objects whose members may be of any type, missing, empty or `null`.

use serde_json::{Map, Value};

use crate::auth::access::Params;

/// Members that become parameters of a publish or a play, like those of a URL's query.
const PARAMS: [&str; 9] = [
    "token",
    "key",
    "subscriberId",
    "subscriberCode",
    "subscriberName",
    "streamName",
    "mainTrack",
    "metaData",
    "role",
];

/// A message of the client.
#[derive(Debug)]
pub(super) struct Command(Map<String, Value>);

impl Command {
    /// Parses a message; `None` if it is not a JSON object with a command.
    pub(super) fn read(text: &str) -> Option<Self> {
        let Ok(Value::Object(members)) = serde_json::from_str(text) else { return None };
        Some(Self(members)).filter(|command| !command.name().is_empty())
    }

    /// The name of the command.
    pub(super) fn name(&self) -> &str {
        self.text("command")
    }

    /// Returns a text member; empty if it is missing or no text.
    pub(super) fn text(&self, member: &str) -> &str {
        self.0.get(member).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns true if a member is true, as a boolean or as text. A missing member, or one of another type, counts
    /// as true.
    pub(super) fn flag(&self, member: &str) -> bool {
        match self.0.get(member) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
            Some(Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) | None => true,
        }
    }

    /// Returns a height, given as a number or as text; `None` for 0, `auto` and anything else.
    pub(super) fn height(&self, member: &str) -> Option<u32> {
        let height = match self.0.get(member)? {
            Value::Number(number) => u32::try_from(number.as_u64()?).ok()?,
            Value::String(text) => text.trim().parse().ok()?,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        Some(height).filter(|height| *height > 0)
    }

    /// Returns a count, given as a number or as text; `None` for anything else.
    pub(super) fn count(&self, member: &str) -> Option<usize> {
        match self.0.get(member)? {
            Value::Number(number) => usize::try_from(number.as_u64()?).ok(),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Returns a member that is a list of texts, at most `most` of them.
    pub(super) fn list(&self, member: &str, most: usize) -> Vec<&str> {
        let list = self.0.get(member).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).take(most).collect()
    }

    /// Returns true if a member is true; a missing member counts as false.
    pub(super) fn is_set(&self, member: &str) -> bool {
        self.0.get(member).is_some_and(|value| !value.is_null()) && self.flag(member)
    }

    /// Returns the original message, to relay it.
    pub(super) fn to_text(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }

    /// Returns the parameters that are not empty.
    pub(super) fn params(&self) -> Params {
        let present = PARAMS.iter().map(|name| ((*name).to_owned(), self.text(name).to_owned()));
        present.filter(|(_, value)| !value.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w_09_what_is_no_command_is_none() {
        let deep = format!("{}{}", r#"{"command":"#, "[".repeat(10_000));
        let number = format!(r#"{{"command":{}}}"#, "9".repeat(100_000));
        for bad in ["", "{", "[]", "1", "null", r#"{"streamId":"a"}"#, r#"{"command":7}"#, &deep, &number] {
            assert!(Command::read(bad).is_none(), "{}", bad.get(..20).unwrap_or(bad));
        }
        let twice = Command::read(r#"{"command":"play","command":"stop"}"#).unwrap();
        assert_eq!(twice.name(), "stop");
    }

    #[test]
    fn members_of_any_type() {
        let command = Command::read(
            r#"{"command":"publish","streamId":null,"token":"t","subscriberId":"","video":false,"enabled":"true","metaData":7}"#,
        );
        let command = command.unwrap();
        assert_eq!(command.params(), [("token".to_owned(), "t".to_owned())]);
        assert_eq!(command.text("streamId"), "");
        let heights =
            r#"{"command":"x","a":720,"b":"480","c":"auto","d":0,"e":-1,"f":1e300,"g":null,"h":[1]}"#;
        let heights = Command::read(heights).unwrap();
        let read: Vec<Option<u32>> =
            "abcdefghi".chars().map(|name| heights.height(&name.to_string())).collect();
        assert_eq!(read, [Some(720), Some(480), None, None, None, None, None, None, None]);
        assert!(!command.flag("video") && command.flag("enabled") && command.flag("audio"));
    }
}
