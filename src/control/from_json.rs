//! Conversion of a body's JSON to members of a record. Numbers, texts and booleans are converted into each other as in
//! Ant Media Server, also within objects.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::broadcast::EndpointRecord;

/// A type converted from a JSON value. `Ok(None)` means null or an equivalent; the error names the expected type.
pub(in crate::control) trait FromJson: Sized {
    fn from_json(value: Value) -> Result<Option<Self>, &'static str>;
}

impl FromJson for String {
    fn from_json(value: Value) -> Result<Option<Self>, &'static str> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text)),
            Value::Bool(_) | Value::Number(_) => Ok(Some(value.to_string())),
            Value::Array(_) | Value::Object(_) => Err("a text"),
        }
    }
}

impl FromJson for bool {
    fn from_json(value: Value) -> Result<Option<Self>, &'static str> {
        let text = match value {
            Value::Null => return Ok(None),
            Value::Bool(value) => return Ok(Some(value)),
            Value::Number(number) => return number.as_i64().map(|n| Some(n != 0)).ok_or("a boolean"),
            Value::String(text) => text,
            Value::Array(_) | Value::Object(_) => return Err("a boolean"),
        };
        match text.trim() {
            "" => Ok(None),
            "true" | "True" | "TRUE" => Ok(Some(true)),
            "false" | "False" | "FALSE" => Ok(Some(false)),
            _ => Err("a boolean"),
        }
    }
}

impl FromJson for i64 {
    fn from_json(value: Value) -> Result<Option<Self>, &'static str> {
        match value {
            Value::Null => Ok(None),
            Value::Number(number) => {
                number.as_i64().or_else(|| whole(number.as_f64()?)).map(Some).ok_or("a number")
            }
            Value::String(text) if text.trim().is_empty() => Ok(None),
            Value::String(text) => text.trim().parse().map(Some).map_err(|_| "a number"),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err("a number"),
        }
    }
}

/// Truncates a number to an integer; `None` if the number is too large for a double to represent integers exactly.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[allow(clippy::cast_possible_truncation, reason = "that is what is wanted, and the range is checked")]
    (number.abs() <= EXACT).then_some(number.trunc() as i64)
}

impl FromJson for i32 {
    fn from_json(value: Value) -> Result<Option<Self>, &'static str> {
        let number = i64::from_json(value)?;
        number.map(|number| Self::try_from(number).map_err(|_| "a number of 32 bits")).transpose()
    }
}

impl FromJson for f64 {
    fn from_json(value: Value) -> Result<Option<Self>, &'static str> {
        match value {
            Value::Null => Ok(None),
            Value::Number(number) => Ok(number.as_f64()),
            Value::String(text) if text.trim().is_empty() => Ok(None),
            Value::String(text) => text
                .trim()
                .parse()
                .ok()
                .filter(|number: &Self| number.is_finite())
                .map(Some)
                .ok_or("a number"),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err("a number"),
        }
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    fn from_json(value: Value) -> Result<Option<Self>, &'static str> {
        match value {
            Value::Null => Ok(None),
            Value::Array(items) => {
                let item = |item| T::from_json(item)?.ok_or("an item that is not null");
                items.into_iter().map(item).collect::<Result<_, _>>().map(Some)
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => Err("a list"),
        }
    }
}

impl FromJson for EndpointRecord {
    fn from_json(value: Value) -> Result<Option<Self>, &'static str> {
        serde_json::from_value(value).map_err(|_| "an endpoint")
    }
}

/// Deserializes an optional member with the conversions of [`FromJson`].
pub(in crate::control) fn loose<'de, T: FromJson, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let wrong = |expected| D::Error::custom(format_args!("invalid type: expected {expected}"));
    T::from_json(Value::deserialize(from)?).map_err(wrong)
}

/// Declares objects whose members are converted like those of a record. When an object is read from the store, a member
/// of the wrong type gets its default.
macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty = $default:expr, $json:literal;)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[allow(missing_docs, reason = "/openapi.json describes each member under its JSON name")]
        pub struct $name {
            $(#[serde(rename = $json)] pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl FromJson for $name {
            fn from_json(value: Value) -> Result<Option<Self>, &'static str> {
                let mut members = match value {
                    Value::Null => return Ok(None),
                    Value::Object(members) => members,
                    Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => return Err("an object"),
                };
                let mut object = Self::default();
                $(if let Some(given) = members.remove($json) {
                    Set::set(&mut object.$field, given)?;
                })*
                Ok(Some(object))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let value = Value::deserialize(from)?;
                Ok(Self::from_json(value).ok().flatten().unwrap_or_default())
            }
        }
    )*};
}

/// A member of an object declared by `objects!`, which a JSON value can set.
trait Set {
    fn set(&mut self, given: Value) -> Result<(), &'static str>;
}

impl Set for Option<String> {
    fn set(&mut self, given: Value) -> Result<(), &'static str> {
        *self = String::from_json(given)?;
        Ok(())
    }
}

macro_rules! plain_sets {
    ($($ty:ty),*) => {$(
        impl Set for $ty {
            fn set(&mut self, given: Value) -> Result<(), &'static str> {
                *self = FromJson::from_json(given)?.unwrap_or_default();
                Ok(())
            }
        }
    )*};
}
plain_sets!(i32, i64, bool);

objects! {
    /// An item of a playlist.
    PlayListItem {
        stream_url: Option<String> = None, "streamUrl";
        kind: Option<String> = None, "type";
        name: Option<String> = None, "name";
        duration_in_ms: i64 = 0, "durationInMs";
        seek_time_in_ms: i64 = 0, "seekTimeInMs";
    }

    /// HLS settings that differ for one stream.
    HlsParameters {
        hls_time: Option<String> = None, "hlsTime";
        hls_list_size: Option<String> = None, "hlsListSize";
        hls_play_list_type: Option<String> = None, "hlsPlayListType";
    }

    /// A rendition; ignored, because video is not transcoded.
    EncoderSettings {
        height: i32 = 0, "height";
        video_bitrate: i32 = 0, "videoBitrate";
        audio_bitrate: i32 = 0, "audioBitrate";
        force_encode: bool = true, "forceEncode";
        force_same_resolution_encode: bool = false, "forceSameResolutionEncode";
    }
}

impl PlayListItem {
    /// True if the item has a URL to play.
    pub(super) fn has_url(&self) -> bool {
        self.stream_url.as_ref().is_some_and(|url| !url.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_become_each_other_as_in_the_reference() {
        for (value, text) in [(json!(5), "5"), (json!(true), "true"), (json!(1.5), "1.5"), (json!("x"), "x")]
        {
            assert_eq!(String::from_json(value).unwrap().unwrap(), text);
        }
        for (value, number) in
            [(json!("5"), 5), (json!(" 7 "), 7), (json!(1.9), 1), (json!(1e3), 1000), (json!(-1.5), -1)]
        {
            assert_eq!(i32::from_json(value).unwrap().unwrap(), number);
        }
        for (value, on) in
            [(json!("true"), true), (json!("False"), false), (json!(1), true), (json!(0), false)]
        {
            assert_eq!(bool::from_json(value).unwrap().unwrap(), on);
        }
        assert_eq!((i64::from_json(json!("")), bool::from_json(json!(""))), (Ok(None), Ok(None)));
        assert_eq!(f64::from_json(json!("1.5")), Ok(Some(1.5)));
        for value in [
            json!("5x"),
            json!(true),
            json!([]),
            json!({}),
            json!(2_147_483_648_i64),
            json!(1e30),
            json!("1.5"),
        ] {
            assert!(i32::from_json(value.clone()).is_err(), "{value}");
        }
        for value in [json!("yes"), json!(1.5), json!([])] {
            assert!(bool::from_json(value.clone()).is_err(), "{value}");
        }
        for value in [json!("NaN"), json!("abc"), json!("1e400"), json!(true)] {
            assert!(f64::from_json(value.clone()).is_err(), "{value}");
        }
        assert!(i64::from_json(json!(1e30)).is_err() && String::from_json(json!({})).is_err());
    }

    #[test]
    fn objects_have_all_their_members_and_other_types_are_refused() {
        let item = Vec::<PlayListItem>::from_json(json!([{"streamUrl": "http://h/a.mp4", "foo": 1}]))
            .unwrap()
            .unwrap();
        assert_eq!(
            serde_json::to_value(&item).unwrap(),
            json!([{"streamUrl": "http://h/a.mp4", "type": null, "name": null, "durationInMs": 0, "seekTimeInMs": 0}])
        );
        assert_eq!(
            serde_json::to_value(EncoderSettings::from_json(json!({"height": "240"})).unwrap()).unwrap(),
            json!({"height": 240, "videoBitrate": 0, "audioBitrate": 0, "forceEncode": true, "forceSameResolutionEncode": false})
        );
        assert_eq!(
            HlsParameters::from_json(json!({"hlsTime": 2})).unwrap().unwrap().hls_time.as_deref(),
            Some("2")
        );
        assert!(HlsParameters::from_json(json!("x")).is_err());
        assert!(Vec::<EncoderSettings>::from_json(json!([null])).is_err());
        assert!(Vec::<EncoderSettings>::from_json(json!([{"height": {}}])).is_err());
        // A value that an older version stored with another type is accepted: the object gets its defaults.
        assert_eq!(serde_json::from_str::<HlsParameters>("\"x\"").unwrap(), HlsParameters::default());
    }
}
