//! runs a server with a canary in each secret, and searches all output for canaries.

use std::fs;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::{Api, Home, Knock, Publisher, RtmpPeer, Server, header, raw_exchange, secs, wait_for};

/// Settings that contain secrets. Each gets its own canary.
const SETTINGS: [&str; 14] = [
    "server.jwtServerSecretKey",
    "srt.passphrase",
    "app.jwtSecretKey",
    "app.jwtStreamSecretKey",
    "app.timeTokenSecretForPlay",
    "app.timeTokenSecretForPublish",
    "app.tokenHashSecret",
    "app.webhookSecret",
    "app.s3AccessKey",
    "app.s3SecretKey",
    "app.turnServerCredential",
    "app.clusterCommunicationKey",
    "app.subscriberAuthenticationKey",
    "app.firebaseAccountKeyJSON",
];
/// MD5 of a password, which is what clients send.
const MD5: &str = "ca11a7ca11a7ca11a7ca11a7ca11a7ca";
/// Prefix of all canaries.
const CANARY: &str = "canary";

/// Starts a server in whose settings all secrets are canaries. Secrets are in files, because every user of a machine
/// can read command lines.
fn server_with_canaries() -> Server {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut command = Server::command(
        &folder,
        &[
            "logLevel=DEBUG",
            "app.listenerHookURL=http://hook:canary-in-a-hook@127.0.0.1:1/canary-in-a-path?key=canary-in-a-query",
        ],
    );
    for (number, key) in SETTINGS.iter().enumerate() {
        let file = home.path().join(format!("secret{number}"));
        fs::write(&file, format!("{CANARY}-setting-{number}-of-more-than-32-characters")).unwrap();
        command.arg("--set").arg(format!("{key}=@{}", file.display()));
    }
    Server::spawn(&mut command).with_home(home)
}

/// Sends secrets to the server over all protocols. The server accepts some of these requests, and refuses others.
fn bring_secrets(server: &Server, cookie: &str) {
    let api = server.api();
    let create = json!({ "streamId": "s", "name": "n" }).to_string();
    assert_eq!(api.post("/live/rest/v2/broadcasts/create", &create).status, 200);
    let endpoint = json!({ "rtmpUrl": "rtmp://127.0.0.1:1/live/canary-key" }).to_string();
    assert_eq!(api.post("/live/rest/v2/broadcasts/s/rtmp-endpoint", &endpoint).json()["success"], true);
    let camera = json!({
        "streamId": "c", "type": "ipCamera", "ipAddr": "127.0.0.1:1", "username": "u", "password": "canary-of-a-camera",
        "streamUrl": "rtsp://u:canary-of-a-camera@127.0.0.1:1/x",
    });
    api.post("/live/rest/v2/broadcasts/create", &camera.to_string());
    api.post("/live/rest/v2/broadcasts/c/start", "");
    let publisher = Publisher::start(server.rtmp, "live", "s?token=canary-of-a-publisher");
    let _ = RtmpPeer::play(server.rtmp, "live", "s?token=canary-of-a-viewer&code=canary-of-a-code");
    let _ = RtmpPeer::play(server.rtmp, "live", "offline?token=canary-of-a-viewer");
    for id in
        ["#!::r=live/s,m=request,token=canary-of-srt", "#!::r=live/offline,m=request,token=canary-of-srt"]
    {
        assert!(Knock::new(id).connect(server.srt.unwrap()).is_err(), "the passphrase is missing");
    }
    let asked = [
        "GET /live/s.flv?token=canary-of-http HTTP/1.1",
        "GET /live/streams/s.m3u8?token=canary-of-http HTTP/1.1",
        "GET /live/rest/v2/version?token=canary-of-http HTTP/1.1\r\nAuthorization: Basic canary-of-http",
        "GET /rest/v2/user-list HTTP/1.1\r\nProxyAuthorization: canary-of-http",
        "GET /rest/v2/user-list HTTP/1.1\r\nCookie: JSESSIONID=canary-of-http",
    ];
    for request in asked {
        let text = format!("{request}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let is_stream = request.contains(".flv");
        if is_stream {
            use std::io::{Read as _, Write as _};
            let mut stream = TcpStream::connect(server.http).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            assert!(stream.read(&mut [0; 512]).unwrap() > 0);
        } else {
            raw_exchange(server.http, text.as_bytes());
        }
    }
    let wrong = json!({ "email": "admin@example.org", "password": "canary-of-a-password" }).to_string();
    assert_eq!(api.post("/rest/v2/users/authenticate", &wrong).json()["success"], false);
    let subscriber =
        json!({ "subscriberId": "user1", "b32Secret": "GEZDGNBVGY3TQOJQ", "type": "play" }).to_string();
    assert_eq!(api.post("/live/rest/v2/broadcasts/s/subscribers", &subscriber).json()["success"], true);
    let changed = json!({ "password": MD5, "newPassword": "ca11a7ca11a7ca11a7ca11a7ca11a7cb" }).to_string();
    let fields = [("Cookie", cookie)];
    api.call_with("PUT", "/rest/v2/users/password", &fields, Some(&changed));
    // The endpoint and the hooks fail, which is logged.
    wait_for("lines about them", secs(20), || server.log().contains("hook call lost"));
    publisher.stop();
}

/// Makes all GET requests of the OpenAPI document, with existing names as parameters. Returns paths and answers.
fn all_answers(api: &Api, cookie: &str) -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(&api.get("/openapi.json").body).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let mut answers = Vec::new();
    for (path, _) in paths.iter().filter(|(_, methods)| methods.get("get").is_some()) {
        let filled: String = path
            .split('/')
            .map(|part| match part {
                "{offset}" => "0",
                "{size}" => "50",
                "{appname}" | "{app}" => "live",
                "{type}" | "{logType}" => "server",
                part if part.starts_with('{') => "s",
                part => part,
            })
            .collect::<Vec<_>>()
            .join("/");
        let reply = api.call_with("GET", &filled, &[("Cookie", cookie)], None);
        answers.push((filled, format!("{}\n{}", reply.head, reply.body)));
    }
    let more = [
        "/metrics",
        "/rest/v2/applications/settings/live",
        "/rest/v2/log-file/-1/500000?logType=server",
        "/rest/v2/server-settings",
        "/",
        "/live/",
    ];
    for path in more {
        let reply = api.call_with("GET", path, &[("Cookie", cookie)], None);
        answers.push((path.to_owned(), format!("{}\n{}", reply.head, reply.body)));
    }
    answers
}

/// Removes the secrets that readers of a broadcast may see: its source, its endpoints, and its hooks' receivers.
fn without_what_its_owner_may_read(path: &str, text: &str) -> String {
    let is_of_broadcasts = path.contains("/broadcasts/") || path.starts_with("/rest/v2/live/");
    let known: &[&str] = match is_of_broadcasts {
        true => &["canary-key", "canary-of-a-camera", "canary-in-a-"],
        // Users who may change the settings can read them (docs/rest.md). Tests in `management` check that others
        // cannot.
        false if path.contains("/applications/settings/") => &["canary-in-a-", "canary-setting-"],
        false => &[],
    };
    known.iter().fold(text.to_owned(), |text, known| text.replace(known, ""))
}

#[test]
fn r_42_no_secret_is_in_an_answer_the_log_the_metrics_or_the_command_line() {
    let server = server_with_canaries();
    let admin = json!({ "email": "admin@example.org", "password": MD5 }).to_string();
    assert_eq!(server.api().post("/rest/v2/users/initial", &admin).json()["success"], true);
    let login = server.api().post("/rest/v2/users/authenticate", &admin);
    let cookie = header(&login, "Set-Cookie").split(';').next().unwrap().to_owned();
    let (_, session) = cookie.split_once('=').unwrap();
    bring_secrets(&server, &cookie);

    let answers = all_answers(&server.api(), &cookie);
    assert!(answers.len() > 40, "{}", answers.len());
    let mut said: Vec<(String, String)> = answers
        .into_iter()
        .map(|(path, text)| {
            let text = without_what_its_owner_may_read(&path, &text);
            (path, text)
        })
        .collect();
    let of_process = |name: &str| fs::read(format!("/proc/{}/{name}", server.pid())).unwrap();
    said.push(("the command line".into(), String::from_utf8_lossy(&of_process("cmdline")).into_owned()));
    said.push(("standard error".into(), server.log()));
    for entry in fs::read_dir(server.home().join("home/log")).into_iter().flatten().flatten() {
        let text = String::from_utf8_lossy(&fs::read(entry.path()).unwrap()).into_owned();
        said.push((entry.path().display().to_string(), text));
    }
    // This test itself sets a hook URL with a canary on the command line.
    for (place, text) in &mut said {
        if place == "the command line" {
            *text = text.replace("canary-in-a", "");
        }
    }
    for (place, text) in &said {
        for secret in [CANARY, MD5, session, "pbkdf2"] {
            let at = text.find(secret);
            let around =
                at.map(|at| text.get(at.saturating_sub(120)..(at + 60).min(text.len())).unwrap_or("…"));
            assert_eq!(around, None, "{secret} in {place}");
        }
    }
}
