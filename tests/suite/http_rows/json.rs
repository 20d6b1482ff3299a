//! R-10, R-12: ids and bodies of the API.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::super::support::{Bystander, RtmpPeer, Server, run, secs};

const CREATE: &str = "/live/rest/v2/broadcasts/create";

/// Returns all files and folders below a folder.
fn tree(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

#[test]
fn r_10_bad_stream_ids_are_refused_everywhere_and_leave_nothing_on_disk() {
    let mut server = Server::start(&[]);
    let api = server.api();
    // Creates the audit log in advance. Otherwise the refused attempts, which it records, would create it.
    std::fs::write(server.home().join("home/log/audit.log"), "").unwrap();
    let before = tree(server.home());
    let long = "x".repeat(129);
    let huge = "x".repeat(200_000);
    let bad = [
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/passwd",
        "%2e%2e",
        "%2e%2e%2fx",
        "a\0b",
        "a\r\nX: y",
        "\u{1f600}",
        "\u{e9}",
        ".hidden",
        "a b",
        "a\\b",
        "a:b",
        "a?b",
        "a#b",
        "<script>",
        "a;b",
        &long,
        &huge,
    ];
    for id in bad {
        let shown: String = id.chars().take(20).collect();
        let body = serde_json::json!({ "streamId": id, "name": "n" }).to_string();
        let reply = api.post(CREATE, &body);
        assert_eq!((reply.status, &reply.json()["success"]), (400, &false.into()), "{shown:?} {reply:?}");
        // Over RTMP, `/` and `?` begin tokens, and some characters have another meaning, so these ids are left out.
        let is_plain = !id.contains(['\0', '?', '#', '%']) && !["a/b", "/etc/passwd"].contains(&id);
        if is_plain && id.len() < 1000 {
            let refused = RtmpPeer::publish(server.rtmp, "live", id);
            assert!(refused.is_err(), "RTMP took {shown:?}");
        }
    }
    let over = format!(r#"{{"streamId":"{}"}}"#, "x".repeat(1 << 20));
    // The body exceeds its limit. A TCP reset may overtake the answer, because the peer is still sending.
    assert!(api.try_call("POST", CREATE, Some(&over)).is_none_or(|reply| reply.status == 413));
    for path in ["..", "%2e%2e", ".%2e", "..%2f..%2fconf", "%00", "a%2fb", "%c0%ae", "..%5c"] {
        for method in ["GET", "PUT", "DELETE"] {
            let body = (method == "PUT").then_some("{}");
            let reply = api.try_call(method, &format!("/live/rest/v2/broadcasts/{path}"), body).unwrap();
            let failed = reply.body.contains("\"success\":false");
            assert!((400..500).contains(&reply.status) || failed, "{method} {path} {reply:?}");
        }
    }
    assert_eq!(tree(server.home()), before, "something was written");

    let good = ["CON", "-lead", "x.m3u8", "A-b_c.1", "a..b", &"x".repeat(128)];
    for id in good {
        let reply = api.post(CREATE, &serde_json::json!({ "streamId": id }).to_string());
        assert_eq!((reply.status, &reply.json()["streamId"]), (200, &id.into()), "{id}");
    }
    assert_eq!(api.get("/live/rest/v2/broadcasts/count").json()["number"], good.len());
    assert_eq!(tree(server.home()), before);
    assert!(server.terminate().success());
    let home = server.home().join("home");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_millstream"));
    let (status, _, said) = run(command.args(["check-config", "--deep", "--home"]).arg(home));
    assert!(status.success() && said.contains(&format!("{} records", good.len())), "{said}");
}

/// Returns bodies that are malformed or unusual, or that try to set fields that clients may not set.
fn odd_bodies() -> Vec<Vec<u8>> {
    let deep = |n: usize| format!("{{\"metaData\":{}1{}}}", "[".repeat(n), "]".repeat(n)).into_bytes();
    let objects = format!("{}1{}", "{\"hlsParameters\":".repeat(10_000), "}".repeat(10_000));
    let utf16: Vec<u8> = "{\"name\":\"a\"}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut bodies = vec![deep(10_000), deep(127), deep(128), objects.into_bytes(), utf16];
    for text in [
        "",
        " ",
        "null",
        "true",
        "5",
        "\"x\"",
        "[]",
        "[{}]",
        "{",
        "}",
        "{}",
        "{}x",
        "{} {}",
        "{\"name\"}",
        "{\"a\":}",
        r#"{"name":"a","name":"b"}"#,
        r#"{"streamId":"a","streamId":"b"}"#,
        r#"{"speed":1e400}"#,
        r#"{"plannedStartDate":1e400}"#,
        r#"{"plannedStartDate":-1}"#,
        r#"{"plannedStartDate":18446744073709551616}"#,
        r#"{"hlsViewerLimit":-1}"#,
        r#"{"hlsViewerLimit":2147483648}"#,
        r#"{"hlsViewerLimit":1.5}"#,
        r#"{"hlsViewerLimit":"5"}"#,
        r#"{"name":5}"#,
        r#"{"name":["a"]}"#,
        r#"{"name":{"a":1}}"#,
        r#"{"publish":"true"}"#,
        r#"{"publish":1}"#,
        r#"{"streamId":null}"#,
        r#"{"streamId":5}"#,
        r#"{"duration":null}"#,
        r#"{"endPointList":5}"#,
        r#"{"endPointList":[5]}"#,
        r#"{"endPointList":[{"endpointUrl":5}]}"#,
        r#"{"endPointList":[null]}"#,
        r#"{"playListItemList":[{"a":[[[[]]]]}]}"#,
        r#"{"encoderSettingsList":"x"}"#,
        r#"{"status":"broadcasting","zombi":true,"rtmpViewerCount":9}"#,
        r#"{"status":"nonsense"}"#,
        r#"{"type":"nonsense"}"#,
        r#"{"name":"\ud800"}"#,
        r#"{"name":"\u0000"}"#,
        r#"{"unknown":{"a":[1,2,{"b":null}]}}"#,
        r#"{"subFolder":"../../etc"}"#,
        r#"{"listenerHookURL":"javascript:alert(1)"}"#,
        r#"{"endpointUrl":"rtmp://"}"#,
        r#"{"endpointUrl":5}"#,
        r#"{"endpointUrl":null}"#,
        "\u{feff}{}",
        "NaN",
        "{\"speed\":NaN}",
        "{'name':'a'}",
        "{\"name\":\"a\",}",
        "// x\n{}",
    ] {
        bodies.push(text.as_bytes().to_vec());
    }
    bodies.push(b"{\"name\":\"\xff\xfe\"}".to_vec());
    bodies.push(b"\xff\xfe\xfd".to_vec());
    bodies.push(b"{\"name\":\"a\0b\"}".to_vec());
    bodies.push(format!("{{\"name\":\"{}\"}}", "n".repeat(200_000)).into_bytes());
    bodies.push(format!("{{{}}}", "\"a\":1,".repeat(30_000).trim_end_matches(',')).into_bytes());
    bodies.push(format!("{{\"speed\":{}}}", "9".repeat(100_000)).into_bytes());
    bodies
}

#[test]
fn r_12_odd_bodies_are_refused_or_ignored_and_never_a_server_error() {
    let mut server = Server::start(&[]);
    let api = server.api();
    assert_eq!(api.post(CREATE, r#"{"streamId":"kept","name":"kept"}"#).status, 200);
    let bystander = Bystander::start(&server);
    let requests = [
        ("POST", CREATE),
        ("PUT", "/live/rest/v2/broadcasts/kept"),
        ("PUT", "/live/rest/v2/broadcasts/nobody"),
        ("POST", "/live/rest/v2/broadcasts/kept/endpoint"),
        ("POST", "/live/rest/v2/broadcasts/kept/rtmp-endpoint"),
    ];
    let mut seen = BTreeSet::new();
    for body in odd_bodies() {
        for (method, path) in requests {
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
                 Content-Length: {}\r\n\r\n",
                body.len()
            );
            let answer = super::send_and_wait(server.http, &[head.as_bytes(), &body].concat());
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            assert!(matches!(answer.status(), 200 | 400), "{method} {path} {shown:?}: {answer:?}");
            assert_eq!(answer.count(), 1, "{shown:?}: {answer:?}");
            seen.insert(answer.status());
        }
        let kept = api.broadcast("live", "kept").unwrap();
        assert_eq!((&kept["streamId"], &kept["zombi"]), (&"kept".into(), &false.into()));
        assert_ne!(kept["status"], "broadcasting");
    }
    assert_eq!(seen.len(), 2, "some are refused, some are taken");
    bystander.finish(&mut server);
    // Every record that was accepted can be read again.
    server.kill();
    let home = server.home().join("home");
    let mut again = Server::start_in(&home, &[]);
    assert_eq!(again.api().broadcast("live", "kept").unwrap()["streamId"], "kept");
    again.signal("TERM");
    assert!(again.wait(secs(12)).success());
}
