//! Script data as text, and the splice information in it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flv::amf0::{Pairs, Value};
use flv::data::Data;
use media::message::{Message, NAME};
use media::scte35::{SECTION_BYTES_MAX, Splice};
use serde_json::{Value as Json, json};

/// Returns the name of script data, and its values as JSON: a single value as it is, several in an array. `None` if
/// the data is not AMF0.
pub(in crate::protocol) fn script_data(payload: &[u8]) -> Option<(String, String)> {
    let Data { name, values } = Data::read(payload).ok()?;
    let text = match &values[..] {
        [one] => to_json(one),
        all => Json::Array(all.iter().map(to_json).collect()),
    };
    Some((name, text.to_string()))
}

/// Returns a message of a data channel as script data with one object: the text, or the bytes in base64.
pub(super) fn of_message(message: &Message) -> Bytes {
    let (name, value) = match message.text() {
        Some(text) => ("text", Value::string(text)),
        None => ("base64", Value::string(STANDARD.encode(&message.payload))),
    };
    Data { name: NAME.to_owned(), values: vec![Value::Object(vec![(name.to_owned(), value)])] }.write()
}

/// Names of script data with splice information.
const CUES: [&str; 4] = ["onCuePoint", "onAdCue", "onSCTE35", "scte35"];
/// Characters of the largest section in base64.
const SECTION_CHARS_MAX: usize = SECTION_BYTES_MAX.div_ceil(3) * 4;

/// Returns the splice_info_section in script data: the first base64 string that decodes to one, whatever the
/// encoder names its member. `None` if no string does, or if the section has no events.
pub(super) fn splice_of(data: &Data) -> Option<Bytes> {
    if !CUES.iter().any(|name| data.name.eq_ignore_ascii_case(name)) {
        return None;
    }
    let section = data.values.iter().find_map(section_in)?;
    Splice::read(&section).filter(|splice| !splice.events.is_empty()).map(|_| section)
}

/// Searches a value for a splice_info_section. The AMF0 reader has limited the depth of the value and the number
/// of its members.
fn section_in(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(text) | Value::XmlDocument(text) => {
            // A section begins with the byte 0xfc, and therefore with `/` in base64.
            let text =
                Some(text.trim()).filter(|text| text.starts_with('/') && text.len() <= SECTION_CHARS_MAX)?;
            STANDARD.decode(text).ok().map(Bytes::from).filter(|section| media::scte35::is_section(section))
        }
        Value::Object(pairs) | Value::EcmaArray(pairs) | Value::TypedObject { pairs, .. } => {
            pairs.iter().find_map(|(_, value)| section_in(value))
        }
        Value::StrictArray(values) => values.iter().find_map(section_in),
        Value::Number(_)
        | Value::Boolean(_)
        | Value::Date { .. }
        | Value::Null
        | Value::Undefined
        | Value::Unsupported => None,
    }
}

/// Converts a value to JSON. The AMF0 reader has limited the depth of the value and the number of its members.
fn to_json(value: &Value) -> Json {
    match value {
        Value::Number(number) => json!(number),
        Value::Boolean(flag) => json!(flag),
        Value::String(text) | Value::XmlDocument(text) => json!(text),
        Value::Object(pairs) | Value::EcmaArray(pairs) | Value::TypedObject { pairs, .. } => members(pairs),
        Value::StrictArray(values) => Json::Array(values.iter().map(to_json).collect()),
        Value::Date { unix_ms, .. } => json!(unix_ms),
        Value::Null | Value::Undefined | Value::Unsupported => Json::Null,
    }
}

fn members(pairs: &Pairs) -> Json {
    Json::Object(pairs.iter().map(|(name, value)| (name.clone(), to_json(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splice_information_is_found_under_any_name_and_depth() {
        let section = media::scte35::insert(7, media::scte35::Kind::Out, Some(900_000));
        let text = STANDARD.encode(&section);
        let cue = |name: &str, value: Value| splice_of(&Data { name: name.to_owned(), values: vec![value] });
        let object = |key: &str, value| Value::Object(vec![(key.to_owned(), value)]);
        // Cues as Adobe writes them, as Elemental writes them, and nested in parameters.
        let flat = object("cue", Value::string(text.as_str()));
        let deep = object(
            "parameters",
            Value::StrictArray(vec![Value::Null, object("data", Value::string(text.as_str()))]),
        );
        assert_eq!(cue("onAdCue", flat.clone()), Some(section.clone()));
        assert_eq!(cue("onCuePoint", deep), Some(section.clone()));
        assert_eq!(cue("scte35", Value::string(format!(" {text}\n"))), Some(section));
        assert_eq!(cue("onTextData", flat), None, "a text of viewers");
        let cut_off = Value::string(text.get(4..).unwrap_or_default());
        let null = "/DARAAAAAAAAAP/wAAAAAHpPv/8=";
        for other in [cut_off, Value::string(null), Value::string("/"), Value::Number(1.0)] {
            assert_eq!(cue("onCuePoint", other.clone()), None, "{other:?}");
        }
    }

    #[test]
    fn a_message_is_script_data_with_its_text_or_its_bytes() {
        let of = |is_text, payload: &'static [u8]| {
            let message = Message { is_text, is_timed: true, payload: Bytes::from_static(payload) };
            script_data(&of_message(&message)).unwrap()
        };
        let named = |json: &str| ("onDataMessage".to_owned(), json.to_owned());
        assert_eq!(of(true, "grüße".as_bytes()), named(r#"{"text":"grüße"}"#));
        assert_eq!(of(false, &[0, 1, 255]), named(r#"{"base64":"AAH/"}"#));
        let long = Message { is_text: true, is_timed: true, payload: vec![b'x'; 70_000].into() };
        assert_eq!(script_data(&of_message(&long)).unwrap().1.len(), 70_000 + r#"{"text":""}"#.len());
    }

    #[test]
    fn values_are_json_under_their_name() {
        let cue = Value::Object(vec![
            ("name".to_owned(), Value::string("goal")),
            ("time".to_owned(), Value::Number(1.5)),
            ("list".to_owned(), Value::StrictArray(vec![Value::Boolean(true), Value::Null])),
        ]);
        let body = |values| Data { name: "onCuePoint".to_owned(), values }.write();
        let text = |values| script_data(&body(values)).unwrap();
        let expected = r#"{"name":"goal","time":1.5,"list":[true,null]}"#;
        assert_eq!(text(vec![cue.clone()]), ("onCuePoint".to_owned(), expected.to_owned()));
        assert_eq!(text(vec![Value::string("a"), Value::Number(f64::NAN)]).1, r#"["a",null]"#);
        assert_eq!(text(Vec::new()).1, "[]");
        assert_eq!(script_data(b"\x09"), None);
    }
}
