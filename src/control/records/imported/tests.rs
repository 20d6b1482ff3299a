use serde_json::json;

use super::*;

const NOW_MS: u64 = 1_700_000_000_000;

fn imported(kind: Kind, record: Value) -> Result<ImportedRecord, NotImported> {
    let Value::Object(record) = record else { panic!() };
    imported_record(kind, "live", record, NOW_MS, &|_| "hash".to_owned())
}

#[test]
fn records_without_an_id_of_ours_are_left_out() {
    let long = "x".repeat(300);
    for (kind, record) in [
        (Kind::Broadcast, json!({})),
        (Kind::Broadcast, json!({"streamId": "a/b"})),
        (Kind::Broadcast, json!({"streamId": 5})),
        (Kind::Token, json!({"streamId": "s"})),
        (Kind::Token, json!({"streamId": "s", "tokenId": "a/b"})),
        (Kind::Token, json!({"streamId": "s", "tokenId": long})),
        (Kind::Subscriber, json!({"streamId": "s", "subscriberId": "abc"})),
        (Kind::Vod, json!({"vodId": "\n"})),
        (Kind::User, json!({"email": "a b"})),
    ] {
        assert!(matches!(imported(kind, record.clone()), Err(NotImported::Unusable(_))), "{record}");
    }
}

#[test]
fn members_of_another_type_leave_a_record_out_and_nulls_do_not() {
    assert!(imported(Kind::Broadcast, json!({"streamId": "s", "date": "today"})).is_err());
    let record = json!({"_id": "x", "_t": "Broadcast", "streamId": "s", "name": null, "unknown": {"a": [1]}, "duration": 5});
    let found = imported(Kind::Broadcast, record).unwrap();
    let read = Broadcast::decode(&found.bytes).unwrap();
    assert_eq!((read.name, read.duration, found.remarks.len()), (None, 5, 0));
    let huge = json!({"streamId": "s", "description": "x".repeat(RECORD_BYTES_MAX)});
    assert!(imported(Kind::Broadcast, huge).is_err());
}

#[test]
fn a_token_lives_until_its_time() {
    let token = |date: i64| {
        imported(Kind::Token, json!({"streamId": "s", "tokenId": "t", "type": "play", "expireDate": date}))
    };
    assert!(token(1_700_000_001).is_ok());
    for date in [1_700_000_000, 0, -1] {
        assert_eq!(token(date), Err(NotImported::Expired), "{date}");
    }
}

#[test]
fn endpoints_of_older_servers_are_found_by_their_url() {
    let list = json!([{"rtmpUrl": "rtmp://h.example/a/b", "type": "generic"}, null, {"endpointUrl": "srt://h.example:1234"}]);
    let list = json!([list[0], list[2]]);
    let found = imported(Kind::Broadcast, json!({"streamId": "s", "endPointList": list})).unwrap();
    let endpoints = Broadcast::decode(&found.bytes).unwrap().end_point_list.unwrap();
    let urls: Vec<_> =
        endpoints.iter().map(|e| (e.endpoint_url.as_str(), e.endpoint_service_id.as_str())).collect();
    assert_eq!(urls, [("rtmp://h.example/a/b", "imported0"), ("srt://h.example:1234", "imported1")]);
}

#[test]
fn a_user_without_an_md5_has_no_password_that_could_be_checked() {
    let user = |password: &str| {
        imported(Kind::User, json!({"email": "a@b", "password": password, "userType": "ADMIN"}))
    };
    assert!(user("5f4dcc3b5aa765d61d8327deb882cf99").is_ok());
    for password in ["", "plain", "d41d8cd98f00b204e9800998ecf8427e"] {
        assert!(user(password).is_err(), "{password}");
    }
    assert!(
        imported(
            Kind::User,
            json!({"email": "a@b", "password": "5f4dcc3b5aa765d61d8327deb882cf99", "userType": "KING"})
        )
        .is_err()
    );
}
