//! Publish keys: their creation, their check, and their secrecy.

use super::*;
use crate::auth::access::Denial;

const ON: [(&str, &str); 1] = [("publishKeyRequired", "true")];

impl Rig {
    fn publish_with_key(&mut self, id: &str, key: Option<&str>) -> Result<Grant, Refusal> {
        let params = key.map(|key| ("key".to_owned(), key.to_owned())).into_iter().collect();
        let request = PublishRequest { params, ..self.request(id, 0) };
        self.ask(request)
    }

    fn publish_key(&mut self, id: &str) -> String {
        self.record(id)["publishKey"].as_str().unwrap_or_default().to_owned()
    }

    fn new_publish_key(&mut self, id: &str) -> serde_json::Value {
        let (status, body) = self.post(&format!("/live/rest/v2/broadcasts/{id}/publish-key"), "");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[test]
fn a_broadcast_is_published_with_its_key_and_no_other() {
    let mut rig = Rig::with(&[], &ON);
    rig.create("s");
    rig.create("t");
    let (key, other) = (rig.publish_key("s"), rig.publish_key("t"));
    assert!(key.len() == 24 && key.bytes().all(|b| b.is_ascii_alphanumeric()) && key != other, "{key}");
    let refusal = || Err(Refusal::Denied(Denial::PublishKey));
    let longer = format!("{key}x");
    for wrong in [None, Some(""), Some("s"), Some(&other[..]), Some(&key[1..]), Some(&longer[..])] {
        assert_eq!(rig.publish_with_key("s", wrong).map(drop), refusal(), "{wrong:?}");
    }
    // A stream without a record has no key, so no key is valid.
    for none in [None, Some(""), Some(&key[..])] {
        assert_eq!(rig.publish_with_key("unknown", none).map(drop), refusal());
    }
    assert!(rig.publish_with_key("s", Some(&key)).is_ok());
    assert!(rig.control.cx.open_apps().is_empty(), "it is a check of publishers");
}

#[test]
fn a_new_key_takes_the_place_of_the_old_one_and_survives_a_restart() {
    let mut rig = Rig::with(&[], &ON);
    rig.create("s");
    let old = rig.publish_key("s");
    let made = rig.new_publish_key("s");
    let key = made["dataId"].as_str().unwrap().to_owned();
    assert!(made["success"] == true && key != old && rig.publish_key("s") == key, "{made}");
    assert!(rig.publish_with_key("s", Some(&old)).is_err());
    // An update of the record keeps the publish key, and cannot change it.
    let (status, _) = rig.call(Method::Put, "/live/rest/v2/broadcasts/s", r#"{"name":"n","publishKey":"x"}"#);
    assert_eq!((status, rig.publish_key("s")), (200, key.clone()));
    let Rig { store, .. } = rig;
    let mut rig = Rig::start(config(&[], &ON), store);
    assert!(rig.publish_with_key("s", Some(&key)).is_ok());
    assert_eq!(rig.new_publish_key("none")["success"], false);
}

#[test]
fn records_of_before_get_their_key_on_demand_and_none_where_it_is_off() {
    let mut rig = Rig::new();
    rig.create("s");
    assert!(rig.record("s").get("publishKey").is_none());
    assert_eq!(rig.new_publish_key("s")["success"], false, "it is not on");
    let Rig { store, .. } = rig;
    let mut rig = Rig::start(config(&[], &ON), store);
    assert_eq!(rig.publish_with_key("s", Some("")).map(drop), Err(Refusal::Denied(Denial::PublishKey)));
    let key = rig.new_publish_key("s")["dataId"].as_str().unwrap().to_owned();
    assert!(rig.publish_with_key("s", Some(&key)).is_ok());
}

#[test]
fn receivers_of_hooks_are_not_told_the_key() {
    let settings = [
        ("publishKeyRequired", "true"),
        ("webhookAuthenticateURL", "http://receiver.example/ask"),
        ("listenerHookURL", "http://receiver.example/told"),
    ];
    let mut rig = Rig::with(&[], &settings);
    rig.create("s");
    let key = rig.publish_key("s");
    let params = vec![("key".to_owned(), key.clone()), ("a".to_owned(), "b".to_owned())];
    let request = PublishRequest { params, ..rig.request("s", 0) };
    rig.mail(ToControl::Publish(request));
    let asked = rig.hooks.pop().unwrap();
    rig.done(asked.id, Outcome::Posted(Ok(200)));
    assert_eq!(rig.record("s")["status"], "broadcasting");
    let stream = rig.control.registry.find(&StreamKey::new("live", "s")).unwrap();
    rig.mail(ToControl::SourceStarted(stream));
    let started = rig.hooks.pop().expect("the start is told");
    for body in [&asked.post.body, &started.post.body] {
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(!body.contains(&key) && body.contains('b'), "{body}");
    }
}
