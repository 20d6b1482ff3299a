//! B-10: stores that servers of earlier versions have left open with all records.
//!
//! Each file of `stores/` is a store, with the API's answers about it at that time beside it. When the layout or a
//! record changes, the version before the change makes a further store: `SUITE_NEW_STORE=NAME cargo test --test suite
//! b_10`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::super::support::{Home, Server, header};

const ADMIN: &str = r#"{"email":"admin@example.org","password":"5f4dcc3b5aa765d61d8327deb882cf99"}"#;
const BROADCASTS: &str = "/live/rest/v2/broadcasts";

fn stores() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/crash/stores")
}

/// Creates a record of each kind that the API can make, with their fields set.
fn fill(server: &Server) {
    let api = server.api();
    assert_eq!(api.post("/rest/v2/users/initial", ADMIN).json()["success"], true);
    for (id, kind) in [("plain", "liveStream"), ("camera", "streamSource"), ("list", "playlist")] {
        let record = json!({
            "streamId": id, "type": kind, "name": format!("\u{dc}ml\u{e4}ut {id}"), "description": "a < b & c", "publicStream": false,
            "streamUrl": "rtmp://127.0.0.1:1/live/x", "latitude": "1.5", "longitude": "-2", "metaData": "{\"a\":1}",
            "expireDurationMS": 0, "maxIdleTime": 60, "role": "r", "category": "c",
            "playListItemList": [{ "streamUrl": "http://127.0.0.1:1/a.mp4", "type": "VoD", "durationInMs": 7 }],
        });
        assert_eq!(api.post(&format!("{BROADCASTS}/create"), &record.to_string()).status, 200);
    }
    for target in ["rtmp://127.0.0.1:1/live/one", "srt://127.0.0.1:1?streamid=two"] {
        let endpoint = json!({ "endpointUrl": target }).to_string();
        assert_eq!(api.post(&format!("{BROADCASTS}/plain/endpoint"), &endpoint).json()["success"], true);
    }
    let subscriber =
        json!({ "subscriberId": "user1", "b32Secret": "GEZDGNBVGY3TQOJQ", "type": "play" }).to_string();
    assert_eq!(api.post(&format!("{BROADCASTS}/plain/subscribers"), &subscriber).json()["success"], true);
    assert_eq!(api.get(&format!("{BROADCASTS}/plain/token?expireDate=4102444800&type=play")).status, 200);
}

/// Reads everything in a store through the API.
fn contents(server: &Server) -> Value {
    let api = server.api();
    let login = api.post("/rest/v2/users/authenticate", ADMIN);
    let cookie = header(&login, "Set-Cookie").split(';').next().unwrap().to_owned();
    let mut said = serde_json::Map::new();
    for path in [
        &format!("{BROADCASTS}/list/0/50?sort_by=name&order_by=asc"),
        &format!("{BROADCASTS}/plain/subscribers/list/0/50"),
        &format!("{BROADCASTS}/plain/tokens/list/0/50"),
        "/rest/v2/user-list",
        "/rest/v2/applications",
    ] {
        let reply = api.call_with("GET", path, &[("Cookie", &cookie)], None);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        said.insert((*path).to_owned(), reply.json());
    }
    Value::Object(said)
}

/// Checks that `new` contains all values of `old`; it may contain more.
fn assert_holds(old: &Value, new: &Value, place: &str) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                let place = format!("{place}/{name}");
                assert_holds(value, new.get(name).unwrap_or_else(|| panic!("{place} is gone")), &place);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            assert_eq!(old.len(), new.len(), "{place}");
            old.iter().zip(new).for_each(|(old, new)| assert_holds(old, new, place));
        }
        (old, new) => assert_eq!(old, new, "{place}"),
    }
}

/// Adds a store of this version to `stores/`.
fn write(name: &str) {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut server = Server::start_in(&folder, &[]);
    fill(&server);
    let said = contents(&server);
    assert!(server.terminate().success());
    fs::write(stores().join(format!("{name}.json")), format!("{said:#}\n")).unwrap();
    let packed = fs::File::create(stores().join(format!("{name}.redb.gz"))).unwrap();
    let store = folder.join("data/store.redb");
    let status =
        Command::new("gzip").args(["-9", "-n", "-c"]).arg(store).stdout(Stdio::from(packed)).status();
    assert!(status.unwrap().success());
}

#[test]
fn b_10_the_stores_of_earlier_versions_open_whole() {
    if let Ok(name) = std::env::var("SUITE_NEW_STORE") {
        write(&name);
    }
    let mut seen = 0;
    for entry in fs::read_dir(stores()).unwrap() {
        let said = entry.unwrap().path();
        if said.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let home = Home::new();
        let folder = home.path().join("home");
        fs::create_dir_all(folder.join("data")).unwrap();
        let store = fs::File::create(folder.join("data/store.redb")).unwrap();
        let packed = said.with_extension("redb.gz");
        let status =
            Command::new("gzip").arg("-dc").arg(&packed).stdout(Stdio::from(store)).status().unwrap();
        assert!(status.success(), "{}", packed.display());
        let server = Server::start_in(&folder, &[]);
        let old: Value = serde_json::from_str(&fs::read_to_string(&said).unwrap()).unwrap();
        assert_holds(&old, &contents(&server), &said.file_stem().unwrap().to_string_lossy());
        seen += 1;
    }
    assert!(seen > 0, "no store is kept");
}
