//! Application settings as shown by the API (docs/rest.md): JSON names, types and order.

use serde_json::Value;

use super::keys::Key;
use super::order::ORDER;
use super::{Level, Schema, Values};

/// The type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `true` or `false`.
    Bool,
    /// An integer.
    Int,
    /// A number, possibly with a fraction.
    Number,
    /// Text.
    Text,
    /// Text, or null if empty.
    NullText,
    /// The text of an array, `[]` if empty.
    ArrayText,
    /// An object.
    Object,
    /// An array.
    Array,
}

/// A member of the settings object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Name in JSON.
    pub name: &'static str,
    /// Key in the file.
    pub key: &'static Key,
    /// Type of the value.
    pub shape: Shape,
}

/// Keys whose member has another name in JSON, with that name.
const NAMES: [(&str, &str); 4] = [
    ("webhookRetryAttemptDelay", "webhookRetryDelay"),
    ("hlsEnableLowLatency", "lLHLSEnabled"),
    ("dashEnableLowLatency", "lLDashEnabled"),
    ("dashTargetLatency", "targetLatency"),
];
/// Keys that the settings object of the API does not contain.
const SILENT: [&str; 6] = ["maxBitrateAccept", "db.type", "db.name", "db.host", "db.user", "db.password"];
/// Numbers that Ant Media Server represents as text.
const TEXTS: [&str; 7] = [
    "hlsTime",
    "hlsListSize",
    "dashSegDuration",
    "dashFragmentDuration",
    "dashWindowSize",
    "dashExtraWindowSize",
    "rtspPullTransportType",
];
const NULL_TEXTS: [&str; 7] = [
    "timeTokenSecretForPlay",
    "timeTokenSecretForPublish",
    "recordingSubfolder",
    "firebaseAccountKeyJSON",
    "apnTeamId",
    "apnPrivateKey",
    "apnKeyId",
];
/// Numbers that may have a fraction.
const NUMBERS: [&str; 2] = ["abrDownScalePacketLostRatio", "abrUpScalePacketLostRatio"];
const OBJECTS: [&str; 3] = ["participantVisibilityMatrix", "customSettings", "encoderParameters"];

impl Schema {
    /// Returns all members in order: those of Ant Media Server, then those
    /// that only this server has.
    pub fn members(&'static self) -> impl Iterator<Item = Member> {
        let members =
            self.keys(Level::App).iter().filter(|key| !SILENT.contains(&key.name)).map(|key| Member {
                name: NAMES.iter().find(|(of, _)| *of == key.name).map_or(key.name, |(_, name)| name),
                key,
                shape: shape_of(key),
            });
        let mut members: Vec<Member> = members.collect();
        members.sort_by_key(|member| self.rank(member.name, member.key.name));
        members.into_iter()
    }

    /// Returns the sort position of a member. For a member of Ant Media Server: its index in
    /// that server's order, and 0. For any other member: the index of Ant Media Server's member
    /// that it follows, and its distance from that member.
    fn rank(&self, name: &str, key: &str) -> (usize, u8) {
        if let Some(at) = ORDER.iter().position(|known| *known == name) {
            return (at, 0);
        }
        self.place(key).map_or((ORDER.len(), 0), |before| {
            let (at, behind) = self.rank(before, before);
            (at, behind.saturating_add(1))
        })
    }
}

fn shape_of(key: &Key) -> Shape {
    if OBJECTS.contains(&key.name) {
        Shape::Object
    } else if key.name == "encoderSettings" {
        Shape::Array
    } else if key.name == "encoderSettingsString" {
        Shape::ArrayText
    } else if NULL_TEXTS.contains(&key.name) {
        Shape::NullText
    } else if TEXTS.contains(&key.name) {
        Shape::Text
    } else if NUMBERS.contains(&key.name) {
        Shape::Number
    } else if key.default == "true" || key.default == "false" {
        Shape::Bool
    } else if key.default.parse::<i64>().is_ok() {
        Shape::Int
    } else {
        Shape::Text
    }
}

impl Member {
    /// Returns the value for the API. If the text in the file does not fit the member's type, returns the default.
    #[must_use]
    pub fn show(&self, values: &Values) -> Value {
        let text = values.text(self.key.name);
        match self.shape {
            Shape::Bool => Value::Bool(text.eq_ignore_ascii_case("true")),
            Shape::Int => text.parse().or_else(|_| self.key.default.parse()).unwrap_or(0_i64).into(),
            Shape::Number => text.parse().or_else(|_| self.key.default.parse()).unwrap_or(0_f64).into(),
            Shape::Text => text.into(),
            Shape::ArrayText if text.is_empty() => "[]".into(),
            Shape::ArrayText => text.into(),
            Shape::NullText if text.is_empty() => Value::Null,
            Shape::NullText => text.into(),
            Shape::Object => {
                parsed(text).filter(Value::is_object).unwrap_or_else(|| Value::Object(Default::default()))
            }
            Shape::Array => parsed(text)
                .or_else(|| parsed(values.text("encoderSettingsString")))
                .filter(Value::is_array)
                .unwrap_or_else(|| Value::Array(Vec::new())),
        }
    }

    /// Returns the value shown to users who may not see the secret: the same as for a secret that is not set.
    #[must_use]
    pub fn hidden(&self) -> Value {
        if self.shape == Shape::NullText { Value::Null } else { "".into() }
    }

    /// Converts a client's value to the text for the file; `None` for a wrong type. Numbers and
    /// texts convert to each other, as in Ant Media Server; null means the default, or an empty
    /// text.
    #[must_use]
    pub fn text_of(&self, sent: &Value) -> Option<String> {
        let text = match sent {
            Value::Null => {
                return Some(match self.shape {
                    Shape::Bool | Shape::Int | Shape::Number => self.key.default.to_owned(),
                    Shape::Text | Shape::NullText | Shape::ArrayText | Shape::Object | Shape::Array => {
                        String::new()
                    }
                });
            }
            Value::Bool(value) => value.to_string(),
            Value::Number(value) => value.to_string(),
            Value::String(value) => value.clone(),
            Value::Array(_) | Value::Object(_) => sent.to_string(),
        };
        let fits = match self.shape {
            Shape::Bool => text == "true" || text == "false",
            Shape::Int => text.parse::<i64>().is_ok(),
            Shape::Number => text.parse::<f64>().is_ok_and(f64::is_finite),
            Shape::Text | Shape::NullText | Shape::ArrayText => !sent.is_array() && !sent.is_object(),
            Shape::Object => {
                sent.is_object() || text.is_empty() || parsed(&text).is_some_and(|v| v.is_object())
            }
            Shape::Array => sent.is_array() || text.is_empty() || parsed(&text).is_some_and(|v| v.is_array()),
        };
        let text = if matches!(self.shape, Shape::Array | Shape::ArrayText) && text == "[]" {
            String::new()
        } else {
            text
        };
        fits.then_some(text)
    }
}

fn parsed(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::schema;
    use serde_json::json;

    fn member(name: &str) -> Member {
        schema().members().find(|member| member.name == name).unwrap()
    }

    #[test]
    fn every_key_is_a_member_but_those_that_the_reference_hides() {
        assert_eq!(schema().members().count() + SILENT.len(), schema().keys(Level::App).len());
        let names: Vec<_> = schema().members().map(|member| member.name).collect();
        assert_eq!(names[..2], ["remoteAllowedCIDR", "mp4MuxingEnabled"]);
        let known = names.iter().filter(|name| ORDER.contains(name));
        assert!(known.eq(&ORDER), "all of Ant Media Server's, in its order");
        let places: Vec<_> = schema()
            .keys(Level::App)
            .iter()
            .filter_map(|key| Some((key.name, schema().place(key.name)?)))
            .collect();
        for (name, before) in &places {
            let at = names.iter().position(|known| known == before).unwrap();
            assert_eq!(names[at + 1], *name, "a protocol's key stands where its section says");
        }
        let ours = names.get(ORDER.len() + places.len()..).unwrap();
        assert!(ours.contains(&"httpFlvEnabled") && !ours.contains(&"encoderSettings"), "then ours");
        assert!(names.contains(&"lLHLSEnabled") && !names.contains(&"hlsEnableLowLatency"));
    }

    #[test]
    fn types_are_the_reference_s() {
        let values = Values::new(schema(), Level::App, "defaults");
        for (name, value) in [
            ("hlsTime", json!("2")),
            ("hlsListSize", json!("15")),
            ("targetLatency", json!("3.5")),
            ("dashFragmentDuration", json!("0.5")),
            ("rtspPullTransportType", json!("3")),
            ("webhookRetryDelay", json!(1000)),
            ("ingestingStreamLimit", json!(-1)),
            ("timeTokenSecretForPlay", json!(null)),
            ("jwtSecretKey", json!("")),
            ("encoderSettings", json!([])),
            ("encoderSettingsString", json!("[]")),
            ("customSettings", json!({})),
            ("lLDashEnabled", json!(true)),
            ("updateTime", json!(0)),
            ("abrDownScalePacketLostRatio", json!(1.0)),
            ("apnsServer", json!("api.sandbox.push.apple.com")),
            ("apnPrivateKey", json!(null)),
        ] {
            assert_eq!(member(name).show(&values), value, "{name}");
        }
    }

    #[test]
    fn every_default_comes_back_as_it_went() {
        let values = Values::new(schema(), Level::App, "defaults");
        for member in schema().members() {
            let text = member.text_of(&member.show(&values)).unwrap();
            let same = text == member.key.default || (text == "{}" && member.key.default.is_empty());
            assert!(same, "{}: {text}", member.name);
        }
    }

    #[test]
    fn other_types_are_refused() {
        assert_eq!(member("gopCache").text_of(&json!(1)), None);
        assert_eq!(member("webRTCFrameRate").text_of(&json!(1.5)), None);
        assert_eq!(member("webRTCFrameRate").text_of(&json!("31")).as_deref(), Some("31"));
        assert_eq!(member("hlsTime").text_of(&json!(4)).as_deref(), Some("4"));
        assert_eq!(member("abrUpScalePacketLostRatio").text_of(&json!(0.25)).as_deref(), Some("0.25"));
        assert_eq!(member("abrUpScalePacketLostRatio").text_of(&json!("NaN")), None);
        assert_eq!(member("jwtSecretKey").text_of(&json!({})), None);
        assert_eq!(member("customSettings").text_of(&json!("x")), None);
        assert_eq!(member("gopCache").text_of(&json!(null)).as_deref(), Some("true"));
    }
}
