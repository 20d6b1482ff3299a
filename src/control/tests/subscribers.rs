//! Subscribers: their ids, and lists that are full.

use super::*;
use crate::control::records::auxiliary::{Auxiliary, Subscriber, Token};
use crate::http;

#[test]
fn subscribers_that_no_path_can_name_are_refused() {
    let mut rig = Rig::new();
    let base = "/live/rest/v2/broadcasts/s/subscribers";
    let add = |rig: &mut Rig, id: &str| {
        rig.post(base, &serde_json::json!({ "subscriberId": id }).to_string()).1.contains(r#""success":true"#)
    };
    for id in ["a/b/c", "a\\bc", "%41bc", "x%2fy"] {
        assert!(!add(&mut rig, id), "{id}");
    }
    // Each of the others can be removed by its path.
    for id in ["a;bc", "a#bc", "a?bc", "100%", "%zzz", "a bc", "\u{e9}\u{e9}\u{e9}\u{e9}"] {
        assert!(add(&mut rig, id), "{id}");
        let escaped = percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC);
        let path = http::decode_path(format!("{base}/{escaped}").as_bytes()).unwrap();
        assert_eq!(path, format!("{base}/{id}"));
    }
}

#[test]
fn a_full_list_of_subscribers_can_be_changed_and_is_removed_in_parts() {
    const FULL: usize = 100_000;
    let mut store = Memory::default();
    let app = "live".into();
    let subscriber = |n: usize| {
        let record = Subscriber {
            stream_id: "s".to_owned(),
            subscriber_id: format!("id-{n}"),
            ..Subscriber::default()
        };
        store::Op::Put(
            Subscriber::key(&app, "s", &record.subscriber_id),
            Auxiliary::Subscriber(record).encode(),
        )
    };
    store.commit(&(0..FULL).map(subscriber).collect::<Vec<_>>()).unwrap();
    let mut rig = Rig::start(config(&[], &[]), store);
    let base = "/live/rest/v2/broadcasts/s/subscribers";
    let mut add = |id: &str| rig.post(base, &format!(r#"{{"subscriberId":"{id}"}}"#)).1;
    assert!(add("another").contains(r#""success":false"#));
    assert!(add("id-7").contains(r#""success":true"#), "it replaces one");
    for left in (0..FULL).step_by(10_000).rev() {
        let (_, answer) = rig.call(Method::Delete, base, "");
        assert_eq!(answer.contains(r#""success":true"#), left == 0, "{answer}");
        assert!(left == 0 || answer.contains(&format!("and {left} are left")), "{answer}");
    }
    assert_eq!(rig.store.load().unwrap().len(), 0);
}

#[test]
fn tokens_beyond_those_of_one_request_are_counted_as_left() {
    let mut store = Memory::default();
    let app = "live".into();
    let token = |n: usize| {
        let id = format!("token-{n}");
        let record = Token {
            token_id: id.clone(),
            stream_id: "s".to_owned(),
            expire_date: i64::MAX,
            ..Token::default()
        };
        store::Op::Put(Token::key(&app, "s", &id), Auxiliary::Token(record).encode())
    };
    store.commit(&(0..10_005).map(token).collect::<Vec<_>>()).unwrap();
    let mut rig = Rig::start(config(&[], &[]), store);
    let base = "/live/rest/v2/broadcasts/s/tokens";
    let (_, answer) = rig.call(Method::Delete, base, "");
    assert!(answer.contains(r#""success":false"#) && answer.contains("and 5 are left"), "{answer}");
    assert!(rig.call(Method::Delete, base, "").1.contains(r#""success":true"#));
    assert_eq!(rig.store.load().unwrap().len(), 0);
}
