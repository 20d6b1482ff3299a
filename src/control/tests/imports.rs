//! Broadcasts imported as a list.

use super::*;

const BASE: &str = "/live/rest/v2/broadcasts";

fn value(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn broadcasts_are_imported_and_those_that_are_there_are_kept_or_replaced_as_asked() {
    let mut rig = Rig::new();
    rig.create("there");
    let import =
        |rig: &mut Rig, query: &str, body: &str| rig.post(&format!("{BASE}/create-list{query}"), body);
    let words = |answer: &str| -> Vec<(String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("null").to_owned();
        let results = value(answer);
        results.as_array().unwrap().iter().map(|r| (text(&r["dataId"]), text(&r["message"]))).collect()
    };
    let own = |words: &[(&str, &str)]| -> Vec<(String, String)> {
        words.iter().map(|(id, word)| ((*id).to_owned(), (*word).to_owned())).collect()
    };

    let list = r#"[{"streamId":"a","name":"A"},{"streamId":"there","name":"New"},{"streamId":"b"},{"streamId":"a"}]"#;
    let (status, answer) = import(&mut rig, "", list);
    assert_eq!((status, answer), (400, failure("2 of 4 stream ids are already being used.")));
    assert_eq!(rig.get(&format!("{BASE}/count")).1, r#"{"number":1}"#, "nothing was made");
    let (status, answer) = import(&mut rig, "?onDuplicate=skip", list);
    assert_eq!(status, 200);
    let skipped = [("a", "created"), ("there", "skipped"), ("b", "created"), ("a", "skipped")];
    assert_eq!(words(&answer), own(&skipped));
    assert_eq!(value(&rig.get(&format!("{BASE}/there")).1)["name"], serde_json::Value::Null, "kept");
    assert_eq!(value(&rig.get(&format!("{BASE}/a")).1)["name"], "A");
    let bad = r#"[{"streamId":"there","name":"New"},{"streamId":"x y"},{"streamId":"c","type":"streamSource","streamUrl":"no"}]"#;
    let (_, answer) = import(&mut rig, "?onDuplicate=overwrite", bad);
    assert_eq!(words(&answer), own(&[("there", "overridden"), ("x y", "failed"), ("c", "failed")]));
    assert_eq!(value(&answer)[1]["success"], false);
    assert_eq!(value(&rig.get(&format!("{BASE}/there")).1)["name"], "New");

    let (_, answer) = import(&mut rig, "", r#"[{"name":"without an id"},{"name":"another"}]"#);
    assert_eq!(words(&answer).iter().filter(|(id, word)| id.len() > 16 && word == "created").count(), 2);
    assert_eq!(import(&mut rig, "", "[]"), (200, "[]".to_owned()));
    for body in ["", "{}", "[1]", "[[]]", "[null]", r#"[{"streamId":null}]"#, r#"[{"name":{}}]"#, "[{}"] {
        assert_eq!(import(&mut rig, "", body).0, 400, "{body}");
    }
    assert_eq!(import(&mut rig, "?onDuplicate=both", "[]").0, 400);
    let many = format!("[{}]", vec!["{}"; 10_001].join(","));
    assert_eq!(import(&mut rig, "", &many).0, 400);
    assert_eq!(rig.get(&format!("{BASE}/count")).1, r#"{"number":5}"#);
}

#[test]
fn an_import_that_replaces_a_live_broadcast_ends_its_stream() {
    let mut rig = Rig::new();
    rig.create("there");
    rig.publish("there", 0);
    rig.take();
    rig.post(&format!("{BASE}/create-list?onDuplicate=overwrite"), r#"[{"streamId":"there"}]"#);
    assert_eq!(value(&rig.get(&format!("{BASE}/there")).1)["status"], "created");
    assert_eq!(kinds(&rig.take()), ["0: down Deleted", "1: down Deleted"]);
}
