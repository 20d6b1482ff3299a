//! Script data as text.

use flv::amf0::{Pairs, Value};
use flv::data::Data;
use serde_json::{Value as Json, json};

/// Returns the name of script data, and its values as JSON: one as it is, several in an array. `None` if it is no AMF0.
pub(in crate::protocol) fn script_data(payload: &[u8]) -> Option<(String, String)> {
    let Data { name, values } = Data::read(payload).ok()?;
    let text = match &values[..] {
        [one] => to_json(one),
        all => Json::Array(all.iter().map(to_json).collect()),
    };
    Some((name, text.to_string()))
}

/// Converts a value, which the reader of AMF0 has bounded in depth and number.
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
