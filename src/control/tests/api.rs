//! The REST API: the texts of answers, the status and error codes, and the filters.

use super::*;

const BROADCASTS: &str = "/live/rest/v2/broadcasts";

fn at(path: &str) -> String {
    format!("{BROADCASTS}{path}")
}

#[test]
fn create_without_a_body_generates_an_id() {
    let mut rig = Rig::new();
    let (status, body) = rig.post(&at("/create"), "");
    let record: serde_json::Value = serde_json::from_str(&body).unwrap();
    let id = record["streamId"].as_str().unwrap();
    assert!(status == 200 && id.len() > 30 && broadcast::is_stream_id(id), "{id}");
    assert_eq!(record["rtmpURL"], format!("rtmp://192.0.2.1/live/{id}"));
    assert_eq!(
        (record["originAdress"].as_str(), record["date"].as_u64()),
        (Some("192.0.2.1"), Some(START_MS))
    );
    assert_eq!(rig.get(&at(&format!("/{id}"))), (200, body));
    assert_ne!(rig.post(&at("/create"), "").1, rig.post(&at("/create"), "").1);
}

#[test]
fn the_rtmp_url_carries_an_unusual_port() {
    let mut config = config(&[("server.name", "media.example.org")], &[]);
    config.addresses = Addresses::of(&[("rtmp", 19350)]);
    let mut rig = Rig::start(config, Memory::new());
    rig.create("s");
    assert_eq!(rig.record("s")["rtmpURL"], "rtmp://media.example.org:19350/live/s");
}

#[test]
fn the_rtmp_url_names_the_address_of_a_listener_that_has_one() {
    for (bound, name, want) in [
        ("127.0.0.1:1935", "", "rtmp://127.0.0.1/live/s"),
        ("[::1]:1936", "", "rtmp://[::1]:1936/live/s"),
        ("[::]:1935", "", "rtmp://192.0.2.1/live/s"),
        ("127.0.0.1:1935", "media.example,other.example", "rtmp://media.example/live/s"),
    ] {
        let mut config = config(&[("server.name", name)], &[]);
        config.addresses = Addresses::default();
        config.addresses.insert("rtmp", bound.parse().unwrap());
        let mut rig = Rig::start(config, Memory::new());
        rig.create("s");
        assert_eq!(rig.record("s")["rtmpURL"], want, "{bound} {name}");
    }
}

#[test]
fn bodies_are_taken_as_jackson_takes_them() {
    let mut rig = Rig::new();
    let bom = "\u{feff}{\"streamId\":\"s\",\"name\":\"a\\ud83db\"}";
    assert_eq!(rig.post(&at("/create"), bom).0, 200);
    assert_eq!(rig.record("s")["name"], "a\u{fffd}b");
    assert_eq!(rig.call(Method::Put, &at("/s"), r#"{"name":"\ud83d\ude00"}"#).0, 200);
    assert_eq!(rig.record("s")["name"], "\u{1f600}");
}

#[test]
fn create_checks_in_the_reference_s_order() {
    let mut rig = Rig::new();
    rig.create("s");
    let create = |rig: &mut Rig, query: &str, body: &str| rig.post(&at(&format!("/create{query}")), body);
    assert_eq!(
        create(&mut rig, "", r#"{"streamId":" s "}"#),
        (400, failure("Stream id is already being used. Please change stream id or keep it empty"))
    );
    assert_eq!(
        create(&mut rig, "", r#"{"type":"streamSource","streamUrl":"file:///x"}"#),
        (400, failure("Stream url is not valid. "))
    );
    assert_eq!(create(&mut rig, "", r#"{"subFolder":"a/../b"}"#), (400, failure("Subfolder is not valid. ")));
    assert_eq!(create(&mut rig, "?autoStart=true", ""), (200, failure("unexpected parameters received")));
    assert_eq!(
        create(&mut rig, "?autoStart=TRUE", "{}"),
        (200, failure("Auto start query needs an IP camera or stream source."))
    );
    assert_eq!(
        create(&mut rig, "?autoStart=true", r#"{"type":"streamSource","streamUrl":"udp://h:1"}"#),
        (
            200,
            r#"{"success":false,"message":"udp:// needs an address to receive at, not a name","dataId":"","errorId":-4}"#
                .into()
        )
    );
    assert_eq!(rig.get(&at("/count")), (200, r#"{"number":1}"#.into()), "nothing of this was stored");
    let (status, body) =
        create(&mut rig, "?autoStart=false", r#"{"type":"streamSource","streamUrl":"udp://h:1"}"#);
    assert!(status == 200 && body.contains(r#""type":"streamSource""#));
}

#[test]
fn r_10_ids_that_are_not_valid_are_refused() {
    let mut rig = Rig::new();
    let long = "x".repeat(129);
    for id in [".", "..", "../x", "a/b", "%2e%2e", "a\\u0000b", "a\\r\\nb", "\u{1f600}", ".hidden", &long] {
        let (status, body) = rig.post(&at("/create"), &format!(r#"{{"streamId":"{id}"}}"#));
        assert_eq!((status, body), (400, failure("Stream id is not valid.")), "{id}");
    }
    for id in ["CON", "-lead", "x.m3u8"] {
        rig.create(id);
    }
}

#[test]
fn r_12_bad_bodies_are_400_as_text() {
    let mut rig = Rig::new();
    rig.create("s");
    for body in ["{", r#"{"name":[1]}"#, r#"{"streamId":null}"#, "[]", r#"{"speed":1e400}"#] {
        assert_eq!(rig.call(Method::Post, &at("/create"), body).0, 400, "{body}");
        assert_eq!(rig.call(Method::Put, &at("/s"), body).0, 400, "{body}");
    }
    for body in ["{", "[]", r#"{"endpointUrl":{}}"#] {
        assert_eq!(rig.call(Method::Post, &at("/s/endpoint"), body).0, 400, "{body}");
    }
}

#[test]
fn updates_merge_and_tell() {
    let mut rig = Rig::new();
    rig.create("s");
    let put = |rig: &mut Rig, id: &str, body: &str| rig.call(Method::Put, &at(&format!("/{id}")), body);
    assert_eq!(put(&mut rig, "s", r#"{"name":"n","x":[{}]}"#), (200, PLAIN.into()));
    assert_eq!(put(&mut rig, "s", r#"{"description":"d"}"#), (200, PLAIN.into()));
    let record = rig.record("s");
    assert_eq!((record["name"].as_str(), record["description"].as_str()), (Some("n"), Some("d")));
    assert_eq!(put(&mut rig, "no", "{}"), (200, failure("Broadcast with streamId: no does not exist")));
    assert_eq!(put(&mut rig, "s", ""), (200, FAILED.into()));
    // The complete record may be sent back.
    let (_, body) = rig.get(&at("/s"));
    assert_eq!(put(&mut rig, "s", &body), (200, PLAIN.into()));
    rig.post(&at("/create"), r#"{"streamId":"p","type":"streamSource","streamUrl":"udp://h:1"}"#);
    assert_eq!(put(&mut rig, "p", r#"{"streamUrl":"file:///x"}"#), (200, failure("Stream URL is not valid")));
}

#[test]
fn deletes_one_and_many() {
    let mut rig = Rig::new();
    for id in ["a", "b", "c", "d"] {
        rig.create(id);
    }
    let gone =
        r#"{"success":true,"message":"broadcast is deleted but could not stopped ","dataId":"","errorId":0}"#;
    let delete = |rig: &mut Rig, path: &str| rig.call(Method::Delete, &at(path), "");
    assert_eq!(delete(&mut rig, "/a"), (200, gone.into()));
    assert_eq!(delete(&mut rig, "/a"), (200, FAILED.into()));
    assert_eq!(delete(&mut rig, "/?ids="), (200, failure("ids parameter is blank")));
    assert_eq!(delete(&mut rig, "?ids=b,zz,c"), (200, FAILED.into()));
    assert_eq!(rig.get(&at("/count")).1, r#"{"number":2}"#);
    assert_eq!(delete(&mut rig, "?ids=c,d"), (200, gone.into()));
    assert_eq!(rig.get(&at("/count")).1, r#"{"number":0}"#);
}

#[test]
fn lists_are_capped_sorted_and_searched() {
    let mut rig = Rig::new();
    for n in 0..60 {
        let name = if n % 2 == 0 { "Name" } else { "name" };
        let body = format!(r#"{{"streamId":"id{n:02}","name":"{name}{:02}"}}"#, 59 - n);
        assert_eq!(rig.post(&at("/create"), &body).0, 200);
    }
    let ids = |rig: &mut Rig, path: &str| -> Vec<String> {
        let (status, body) = rig.get(&at(path));
        assert_eq!(status, 200, "{path} {body}");
        let list: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
        list.iter().map(|r| r["streamId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&mut rig, "/list/0/1000").len(), 60);
    assert_eq!(ids(&mut rig, "/list/-5/2"), ["id00", "id01"]);
    assert_eq!(ids(&mut rig, "/list/58/10"), ["id58", "id59"]);
    assert!(ids(&mut rig, "/list/99/10").is_empty() && ids(&mut rig, "/list/0/-1").is_empty());
    assert_eq!(ids(&mut rig, "/list/0/2?sort_by=date&order_by=desc"), ["id59", "id58"]);
    assert_eq!(ids(&mut rig, "/list/1/2?sort_by=name&order_by=asc"), ["id58", "id57"], "without case");
    assert_eq!(ids(&mut rig, "/list/1/1?sort_by=name&order_by=other"), ["id58"]);
    assert_eq!(ids(&mut rig, "/filter-list/1/2/liveStream"), ["id01", "id02"]);
    assert!(ids(&mut rig, "/filter-list/0/5/playlist").is_empty());
    assert_eq!(ids(&mut rig, "/list/0/1?sort_by=name"), ["id00"]);
    assert_eq!(ids(&mut rig, "/list/0/9?search=NAME5&type_by=liveStream").len(), 9);
    assert_eq!(ids(&mut rig, "/list/0/50?search=ID07"), ["id07"]);
    assert!(ids(&mut rig, "/list/0/50?type_by=streamSource").is_empty());
    assert_eq!(rig.get(&at("/count/name5")).1, r#"{"number":10}"#);
    for path in ["/list/x/1", "/list/0/9223372036854775808", "/list/0"] {
        assert_eq!(rig.get(&at(path)).0, 404, "{path}");
    }
    many(&mut rig, 300);
    assert_eq!(ids(&mut rig, "/list/0/1000").len(), 250);
}

#[test]
fn lists_and_counts_are_restricted_by_status_and_protocol() {
    let mut rig = Rig::new();
    for id in ["idle1", "idle2", "cam1", "cam2"] {
        rig.create(id);
    }
    for id in ["cam1", "cam2"] {
        rig.publish(id, 0);
    }
    let found = |rig: &mut Rig, query: &str| -> (String, String) {
        let list: Vec<serde_json::Value> =
            serde_json::from_str(&rig.get(&at(&format!("/list/0/50?{query}"))).1).unwrap();
        let ids: Vec<&str> = list.iter().map(|one| one["streamId"].as_str().unwrap()).collect();
        let count: serde_json::Value =
            serde_json::from_str(&rig.get(&at(&format!("/count?{query}"))).1).unwrap();
        (ids.join(" "), count["number"].to_string())
    };
    for (query, ids, count) in [
        ("", "cam1 cam2 idle1 idle2", "4"),
        ("status_by=broadcasting", "cam1 cam2", "2"),
        ("status_by=created", "idle1 idle2", "2"),
        ("status_by=created&search=IDLE1", "idle1", "1"),
        ("protocol_by=RTMP&sort_by=date&order_by=asc", "cam1 cam2", "2"),
        ("protocol_by=rtmp&status_by=created", "", "0"),
        ("protocol_by=SRT", "", "0"),
        ("status_by=nothing", "", "0"),
        ("search=idle", "idle1 idle2", "2"),
    ] {
        assert_eq!(found(&mut rig, query), (ids.to_owned(), count.to_owned()), "{query}");
    }
    assert_eq!(rig.get(&at("/count/cam?status_by=created")).1, r#"{"number":0}"#);
    assert_eq!(rig.get(&at("/list/1/1?status_by=created")).1.matches("\"streamId\":\"idle2\"").count(), 1);
}

#[test]
fn statistics_and_version() {
    let mut rig = Rig::new();
    rig.create("s");
    let none = r#"{"totalRTMPWatchersCount":-1,"totalHLSWatchersCount":-1,"totalWebRTCWatchersCount":-1,"totalDASHWatchersCount":-1}"#;
    assert_eq!(rig.get(&at("/no/broadcast-statistics")), (200, none.into()));
    let idle = none.replace(":-1", ":0").replacen(":0", ":-1", 1);
    assert_eq!(rig.get(&at("/s/broadcast-statistics")), (200, idle));
    let (_, stream) = rig.publish("s", 0);
    rig.report(0, stream, 1, 0, 4);
    assert!(rig.get(&at("/s/broadcast-statistics")).1.starts_with(r#"{"totalRTMPWatchersCount":4,"#));
    assert_eq!(rig.get(&at("/active-live-stream-count")).1, r#"{"number":1}"#);
    let total = r#"{"totalRTMPWatchersCount":-1,"totalHLSWatchersCount":0,"totalWebRTCWatchersCount":0,"totalDASHWatchersCount":0,"activeLiveStreamCount":1}"#;
    assert_eq!(rig.get(&at("/total-broadcast-statistics")).1, total);
    let (status, version) = rig.get("/LiveApp/rest/v2/version");
    assert!(status == 200 && version.starts_with(r#"{"versionName":""#), "{version}");
    assert_eq!(rig.get("/LiveApp/rest/v2/broadcasts/count").1, r#"{"number":0}"#, "applications are apart");
}

#[test]
fn start_answers_honestly() {
    let mut rig = Rig::new();
    rig.create("s");
    assert_eq!(rig.post(&at("/no/start"), ""), (200, failure("No Stream Exists with id:no")));
    let text = "Stream url is null and it's not an IP camera to get stream url for id:s";
    assert_eq!(rig.post(&at("/s/start"), ""), (200, failure(text)));
    rig.post(&at("/create"), r#"{"streamId":"p","type":"streamSource","streamUrl":"udp://h:1"}"#);
    assert!(rig.post(&at("/p/start"), "").1.contains(r#""success":false"#));
    let stopped = r#"{"success":false,"message":"No matching stream source in this server:p","dataId":"p","errorId":0}"#;
    assert_eq!(rig.post(&at("/p/stop"), ""), (200, stopped.into()));
}

#[test]
fn paths_methods_and_types_that_do_not_fit() {
    let mut rig = Rig::new();
    rig.create("s");
    for path in ["/nope/rest/v2/version", "/live/rest/v3/version", "/live/rest/v2/x", "/live", "/"] {
        assert_eq!(rig.get(path).0, 404, "{path}");
    }
    assert_eq!(rig.get("/rest/v2/version").0, 403, "not without a login");
    assert_eq!(rig.call(Method::Put, &at("/create"), "{}").0, 200, "create is an id here");
    assert_eq!(rig.call(Method::Post, &at("/s"), "{}").0, 405);
    assert_eq!(rig.call(Method::Delete, "/live/rest/v2/version", "").0, 405);
    let session = rig.send_request("127.0.0.1:9", request(Method::Post, &at("/create"), "{}"));
    assert_eq!(rig.answer(session).unwrap().0, 415);
    assert_eq!(rig.call(Method::Head, &at("/s"), "").0, 200);
}

#[test]
fn r_23_unauthenticated_peers_get_403_on_every_route() {
    let mut rig = Rig::new();
    for route in routes().filter(|route| route.base == Base::App) {
        for peer in ["127.0.0.2:1", "[2001:db8::1]:1", "8.8.8.8:1"] {
            let path = format!("/live/rest/v2{}", route.path.replace(['{', '}'], ""));
            let mut unauthenticated = request(route.method, &path, "");
            unauthenticated.headers.push("X-Forwarded-For", "127.0.0.1");
            let session = rig.send_request(peer, unauthenticated);
            let (status, body) = rig.answer(session).unwrap();
            assert!(status == 403 && body.contains("Not allowed IP"), "{path} {status}");
        }
    }
    for peer in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        let session = rig.send_request(peer, request(Method::Get, "/live/rest/v2/version", ""));
        assert_eq!(rig.answer(session).unwrap().0, 200, "{peer}");
    }
    let secret = ("jwtSecretKey", "0123456789abcdef0123456789abcdef");
    let mut rig = Rig::with(&[], &[("jwtControlEnabled", "true"), secret]);
    let (status, body) = rig.get("/live/rest/v2/version");
    assert!(status == 403 && body.contains("Invalid App JWT Token"));
}

#[test]
fn r_13_the_limit_of_records_is_an_answer() {
    let mut rig = Rig::with(&[("limits.broadcasts", "2")], &[]);
    rig.create("a");
    let first = rig.send(Method::Post, &at("/create"), "{}");
    let second = rig.send(Method::Post, &at("/create"), "{}");
    assert_eq!(rig.answer(second).unwrap(), (400, failure("Broadcast limit is reached.")));
    rig.run_for(ms(5));
    assert_eq!(rig.answer(first).unwrap().0, 200);
    let request = rig.request("zombi", 0);
    assert!(matches!(rig.ask(request).unwrap_err(), Refusal::NotAllowed(_)));
    let huge = format!(r#"{{"name":"{}"}}"#, "x".repeat(40_000));
    assert_eq!(rig.call(Method::Put, &at("/a"), &huge).0, 400);
}

fn many(rig: &mut Rig, number: usize) {
    for n in 0..number {
        let key = StreamKey::new("live", &format!("s{n:06}"));
        let mut record = Broadcast { name: Some(format!("n{:06}", number - n)), ..Broadcast::default() };
        rig.control.cx.complete(rig.now, &key, &mut record);
        rig.control.records.insert(key, record);
    }
}

#[test]
fn long_lists_are_sliced_and_publishers_come_between() {
    let mut rig = Rig::new();
    many(&mut rig, 20_000);
    let sorted = rig.send(Method::Get, &at("/list/19990/50?sort_by=name&order_by=desc"), "");
    let found = rig.send(Method::Get, &at("/list/0/50?search=S019999"), "");
    let count = rig.send(Method::Get, &at("/count/s01"), "");
    rig.publish("s000000", 0);
    assert!(rig.answer(sorted).is_none() && rig.answer(found).is_none(), "not done in one turn");
    rig.run_for(ms(5));
    let (_, body) = rig.answer(sorted).unwrap();
    let list: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
    assert_eq!((list.len(), list[0]["name"].as_str()), (10, Some("n000010")));
    assert!(rig.answer(found).unwrap().1.contains(r#""streamId":"s019999""#));
    assert_eq!(rig.answer(count).unwrap().1, r#"{"number":10000}"#);
    assert!(rig.control.walks.scans.deadline().is_none());
}

#[test]
fn too_many_lists_at_once_are_told_so() {
    let mut rig = Rig::new();
    many(&mut rig, 3000);
    let asked: Vec<_> =
        (0..300).map(|_| rig.send(Method::Get, &at("/list/0/50?search=nothing"), "")).collect();
    assert_eq!(rig.answer(asked[299]).unwrap().0, 503);
    rig.run_for(ms(100));
    assert_eq!(rig.answer(asked[0]).unwrap(), (200, "[]".into()));
}

/// Guards against a scan or a full copy in the read path; this is not a benchmark. With a hundred times the records, a
/// search tree needs a few more steps, but a scan takes a hundred times as long.
#[test]
fn reading_is_as_cheap_with_many_records_as_with_few() {
    let (mut few, mut some) = (Rig::new(), Rig::new());
    many(&mut few, 200);
    many(&mut some, 20_000);
    // The shortest of many measurements, since other load can only lengthen a call.
    let shortest = |rig: &mut Rig, path: &str| {
        let one = |_| {
            let began = Instant::now();
            let session = rig.send(Method::Get, &at(path), "");
            assert!(rig.answer(session).is_some(), "{path}");
            began.elapsed()
        };
        (0..300).map(one).min().unwrap()
    };
    for path in ["/s000100", "/list/150/1", "/list/0/50", "/count"] {
        let (few, some) = (shortest(&mut few, path), shortest(&mut some, path));
        assert!(some < few * 20, "{path}: {some:?} with 20 000 records, {few:?} with 200");
    }
}
