//! The management API over real connections: users, logins, applications that are created and deleted while the server
//! runs, settings that take effect immediately, the panel's proxy, users from the command line.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{
    Api, Bystander, Home, Player, Publisher, Reply, RtmpPeer, Server, raw_exchange, secs, wait_for,
};

/// MD5 of `password`.
const MD5: &str = "5f4dcc3b5aa765d61d8327deb882cf99";
const ADMIN: &str = r#"{"email":"admin@example.org","password":"5f4dcc3b5aa765d61d8327deb882cf99"}"#;
const SECRET: &str = "a-secret-of-thirty-two-characters";

/// A client of the management API that stays logged in by its cookie.
#[derive(Debug, Clone)]
pub(super) struct Panel {
    api: Api,
    cookie: String,
}

impl Panel {
    /// Creates the first user and logs in.
    pub(super) fn first(server: &Server) -> Self {
        let made = server.api().post("/rest/v2/users/initial", ADMIN).json();
        assert_eq!(made["success"], true);
        Self::login(server, ADMIN)
    }

    /// Logs in the user that [`Self::first`] has created.
    pub(super) fn again(server: &Server) -> Self {
        Self::login(server, ADMIN)
    }

    fn login(server: &Server, body: &str) -> Self {
        let reply = server.api().post("/rest/v2/users/authenticate", body);
        assert_eq!(reply.json()["success"], true, "{reply:?}");
        let cookie = reply.head.lines().find_map(|line| line.strip_prefix("Set-Cookie: ")).unwrap();
        Self { api: server.api(), cookie: cookie.split(';').next().unwrap().to_owned() }
    }

    fn call(&self, method: &str, path: &str, body: Option<&str>) -> Reply {
        self.api.call_with(method, &format!("/rest/v2{path}"), &[("Cookie", &self.cookie)], body)
    }

    pub(super) fn get(&self, path: &str) -> Value {
        let reply = self.call("GET", path, None);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.call("POST", path, Some(&body));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    pub(super) fn delete(&self, path: &str) -> Value {
        self.call("DELETE", path, None).json()
    }
}

fn success() -> Value {
    json!({"success": true, "message": "", "dataId": "", "errorId": 0})
}

fn curl(arguments: &[&str]) -> (u32, String) {
    let output =
        Command::new("curl").args(["-s", "-k", "-w", "\n%{http_code}"]).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

#[test]
fn the_seed_s_tour_with_a_login_and_a_cookie_over_https() {
    let server = Server::start(&[]);
    let base = format!("https://{}/rest/v2", server.https.unwrap());
    let jar = server.home().join("jar");
    let jar = jar.to_str().unwrap();
    let typed = "Content-Type: application/json";
    assert_eq!(curl(&[&format!("{base}/applications")]).0, 403);
    let (status, body) = curl(&["-H", typed, "-d", ADMIN, &format!("{base}/users/initial")]);
    assert_eq!((status, body.as_str()), (200, r#"{"success":true,"message":"","dataId":"","errorId":-1}"#));
    let (status, body) = curl(&["-c", jar, "-H", typed, "-d", ADMIN, &format!("{base}/users/authenticate")]);
    assert_eq!(
        (status, body.as_str()),
        (200, r#"{"success":true,"message":"system/ADMIN","dataId":"","errorId":0}"#)
    );
    let cookie = fs::read_to_string(jar).unwrap();
    let line = cookie.lines().find(|line| line.contains("JSESSIONID")).unwrap();
    assert!(
        line.starts_with("#HttpOnly_") && line.contains("\t/\tTRUE\t"),
        "HttpOnly, Path=/, Secure: {line}"
    );
    let (status, body) = curl(&["-b", jar, &format!("{base}/applications")]);
    assert_eq!((status, body.as_str()), (200, r#"{"applications":["LiveApp","live"]}"#));
    let (status, body) = curl(&["-b", jar, &format!("{base}/system-resources")]);
    let resources: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert!(resources["systemMemoryInfo"]["totalMemory"].as_u64().unwrap() > 1 << 20);
    assert!(
        resources["cpuUsage"]["systemCPULoad"].is_u64() && resources["systemInfo"]["processorCount"].is_u64()
    );
    assert!(resources["fileSystemInfo"]["totalSpace"].as_u64().unwrap() > 0);
    let (status, _) = curl(&["-b", jar, "-X", "DELETE", &format!("{base}/users/logout")]);
    assert_eq!(status, 200);
    assert_eq!(curl(&["-b", jar, &format!("{base}/applications")]).0, 403);
}

/// Returns an HS256 token with an empty payload, made by Python instead of our own code.
fn token(secret: &str) -> String {
    let script = "import sys,hmac,hashlib,base64\n\
                  b=lambda x:base64.urlsafe_b64encode(x).rstrip(b'=')\n\
                  m=b(b'{\"alg\":\"HS256\",\"typ\":\"JWT\"}')+b'.'+b(b'{}')\n\
                  print((m+b'.'+b(hmac.new(sys.argv[1].encode(),m,hashlib.sha256).digest())).decode())";
    let output = Command::new("python3").args(["-c", script, secret]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_seed_s_tour_with_a_signed_token() {
    let secret = format!("server.jwtServerSecretKey={SECRET}");
    let server = Server::start(&["server.jwtServerControlEnabled=true", &secret]);
    let url = format!("http://{}/rest/v2/system-resources", server.http);
    let with = |token: &str| curl(&["-H", &format!("ProxyAuthorization: {token}"), &url]).0;
    assert_eq!(with(&token(SECRET)), 200);
    let (status, page) = curl(&["-H", "ProxyAuthorization: x.y.z", &url]);
    assert!(status == 403 && page.contains("Invalid Server JWT Token"), "{page}");
    assert_eq!(with(&token("another-secret-of-sufficient-length")), 403);
    assert_eq!(curl(&[&url]).0, 403);
    assert!(!server.log().contains(SECRET));
}

#[test]
fn r_06_a_weak_secret_stops_the_start() {
    let home = Home::new();
    for (settings, key) in [
        (&["server.jwtServerSecretKey=canary-canary-canary-canary-031"][..], "server.jwtServerSecretKey"),
        (&[], "server.jwtServerSecretKey"),
        (&["server.jwksURL=file:///etc/keys"], "server.jwksURL"),
    ] {
        let mut command =
            Server::command(&home.path().join("home"), &["server.jwtServerControlEnabled=true"]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.lines().count() == 1 && said.contains(key) && !said.contains("canary"), "{said}");
    }
}

#[test]
fn r_36_wrong_logins_are_answered_late_and_lock_the_address_alone() {
    let server = Server::start(&[]);
    Panel::first(&server);
    let api = server.api();
    let wrong = r#"{"email":"admin@example.org","password":"00000000000000000000000000000000"}"#;
    for _ in 0..3 {
        let reply = api.post("/rest/v2/users/authenticate", wrong).json();
        assert_eq!(reply, json!({"success": false, "message": "", "dataId": "", "errorId": 0}));
    }
    assert_eq!(api.get("/rest/v2/users/admin@example.org/blocked").json()["success"], true);
    let locked = api.post("/rest/v2/users/authenticate", ADMIN).json();
    assert_eq!(locked["message"], "Too many login attempts. User is blocked for 300 secs");
    assert_eq!(api.get("/rest/v2/users/other@example.org/blocked").json()["success"], false);
}

#[test]
fn r_33_a_flood_of_logins_delays_no_frame() {
    let mut server = Server::start(&[]);
    Panel::first(&server);
    let bystander = Bystander::start(&server);
    let address = server.api();
    let floods: Vec<_> = (0..200)
        .map(|n| {
            let body = format!(r#"{{"email":"u{n}@a","password":"{MD5}"}}"#);
            std::thread::spawn(move || address.post("/rest/v2/users/authenticate", &body).status)
        })
        .collect();
    let statuses = floods.into_iter().map(|flood| flood.join().unwrap());
    let refused = statuses.filter(|status| *status == 429).count();
    assert!(refused > 100, "{refused}");
    bystander.finish(&mut server);
}

#[test]
fn an_application_is_made_published_to_and_deleted_while_the_server_runs() {
    let server = Server::start(&["server.workers=2"]);
    let panel = Panel::first(&server);
    assert_eq!(panel.post("/applications/fresh-1", &Value::Null), success());
    assert_eq!(panel.get("/applications")["applications"], json!(["LiveApp", "fresh-1", "live"]));
    let again = panel.post("/applications/fresh-1", &Value::Null);
    assert_eq!(again["message"], "Application with the same name already exists");
    let odd = panel.post("/applications/a.b", &Value::Null);
    assert_eq!(
        odd["message"],
        "Application name is not alphanumeric. Please provide alphanumeric characters"
    );
    assert_eq!(panel.post("/applications/rest", &Value::Null)["success"], false);
    let folder = server.home().join("home/webapps/fresh-1");
    assert!(folder.join("WEB-INF/red5-web.properties").is_file() && folder.join("streams").is_dir());

    // The application runs on every worker: the players are spread over both workers.
    let _publisher = Publisher::start(server.rtmp, "fresh-1", "s1");
    let viewers: Vec<_> = (0..6).map(|_| Player::start(server.rtmp, "fresh-1", "s1")).collect();
    wait_for("the video", secs(20), || viewers.iter().all(|viewer| viewer.units() > 10));
    server.api().post("/fresh-1/rest/v2/broadcasts/create", r#"{"streamId":"kept"}"#);
    assert_eq!(panel.get("/applications/live-streams/fresh-1")[0]["name"], "s1");
    let info = panel.get("/applications-info");
    let row = info.as_array().unwrap().iter().find(|row| row["name"] == "fresh-1").unwrap();
    assert_eq!((&row["liveStreamCount"], row["storage"].as_i64().unwrap() > 1000), (&json!(1), true));
    assert_eq!(panel.get("/live-clients-size")["totalLiveStreamSize"], 1);

    assert_eq!(panel.call("PUT", "/applications/fresh-1", Some("{}")).status, 405);
    assert_eq!(panel.delete("/applications/fresh-1?deleteDB=true"), success());
    wait_for("the viewers to be told", secs(5), || viewers.iter().all(|viewer| !viewer.is_playing()));
    assert_eq!(panel.get("/applications")["applications"], json!(["LiveApp", "live"]));
    assert!(!folder.exists());
    assert_eq!(server.api().get("/fresh-1/rest/v2/version").status, 404);
    assert_eq!(panel.delete("/applications/fresh-1")["success"], false);

    // An application with the same name starts without records.
    wait_for("the records to be gone", secs(5), || {
        panel.post("/applications/fresh-1", &Value::Null)["success"] == true
    });
    assert_eq!(server.api().get("/fresh-1/rest/v2/broadcasts/count").json(), json!({"number": 0}));
}

#[test]
fn settings_go_out_and_come_back_and_take_effect_at_once() {
    let server = Server::start(&["app.coalesceMs=40"]);
    let panel = Panel::first(&server);
    let file = server.home().join("home/webapps/live/WEB-INF/red5-web.properties");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(
        &file,
        text.replace("ingestingStreamLimit=-1", "settings.ingestingStreamLimit=-1") + "# mine\nfuture=1\n",
    )
    .unwrap();
    let path = "/applications/settings/live";
    let before = panel.get(path);
    assert_eq!(before["ipFilterEnabled"], true);
    assert_eq!((&before["hlsTime"], &before["webhookRetryDelay"]), (&json!("2"), &json!(1000)));
    assert_eq!(before["appName"], "live");
    assert_eq!(panel.call("GET", "/applications/settings/none", None).status, 204);

    // The settings as read are written back, which changes nothing.
    let untouched = fs::read_to_string(&file).unwrap();
    assert_eq!(panel.post(path, &before), success());
    assert_eq!(fs::read_to_string(&file).unwrap(), untouched);

    // A change takes effect for the next publisher, and leaves all other lines of the file unchanged.
    let mut wanted = before.clone();
    wanted["acceptOnlyStreamsInDataStore"] = json!(true);
    wanted["hlsListSize"] = json!("2");
    wanted["ingestingStreamLimit"] = json!(7);
    assert_eq!(panel.post(path, &wanted), success());
    let after = panel.get(path);
    assert_eq!((&after["acceptOnlyStreamsInDataStore"], &after["hlsListSize"]), (&json!(true), &json!("5")));
    let text = fs::read_to_string(&file).unwrap();
    let changed = text.lines().zip(untouched.lines()).filter(|(new, old)| new != old).count();
    assert_eq!((changed, text.lines().count()), (4, untouched.lines().count()), "with updateTime");
    assert!(text.contains("\nsettings.ingestingStreamLimit=7\n") && text.ends_with("# mine\nfuture=1\n"));
    assert!(RtmpPeer::publish(server.rtmp, "live", "unknown").is_err(), "not in the data store");

    // Settings that are not in the request return to their defaults. Unknown keys in the file stay.
    assert_eq!(panel.post(path, &json!({"maxLatencyMs": 1000})), success());
    let after = panel.get(path);
    assert_eq!(
        (&after["acceptOnlyStreamsInDataStore"], &after["maxLatencyMs"]),
        (&json!(false), &json!(1000))
    );
    assert!(fs::read_to_string(&file).unwrap().contains("\nfuture=1\n"));
    let publisher = Publisher::start(server.rtmp, "live", "unknown");
    publisher.stop();

    // Impossible values are reported, and nothing changes.
    let fixed = panel.post(path, &json!({"coalesceMs": 1}));
    assert!(fixed["message"].as_str().unwrap().contains("coalesceMs"), "{fixed}");
    for body in [
        json!({"remoteAllowedCIDR": "10.0.0.0/33"}),
        json!({"publishTokenControlEnabled": true, "publishJwtControlEnabled": true}),
        json!({"encoderSettings": [{"height": 0, "videoBitrate": 1}]}),
        json!({"hlsTime": "x"}),
    ] {
        assert_eq!(panel.post(path, &body)["success"], false, "{body}");
    }
    assert_eq!(panel.call("POST", path, Some(r#"{"gopCache":1}"#)).status, 400);
    assert_eq!(panel.get(path), after);
}

#[test]
fn c_01_c_06_every_member_and_switch_survives_a_round_trip_and_a_restart() {
    let home = Home::new();
    let folder = home.path().join("home");
    let mut server = Server::start_in(&folder, &[]);
    let panel = Panel::first(&server);
    let path = "/applications/settings/live";
    let mut wanted = panel.get(path);
    let renditions = json!([{
        "height": 240,
        "videoBitrate": 500_000,
        "audioBitrate": 0,
        "forceEncode": true,
        "forceSameResolutionEncode": false,
    }]);
    let members = wanted.as_object_mut().unwrap();
    for (name, value) in members.iter_mut() {
        *value = match (name.as_str(), &*value) {
            // These keys accept only few values, or other values would lock the test out.
            ("remoteAllowedCIDR", _) => json!("127.0.0.1, 10.0.0.0/8"),
            ("allowedPublisherCIDR", _) => json!("10.0.0.0/8"),
            ("encoderSettings", _) => renditions.clone(),
            ("encoderSettingsString", _) => renditions.to_string().into(),
            // Only a single check of each kind may be on.
            ("publishJwtControlEnabled" | "playJwtControlEnabled", _) => json!(false),
            ("hashControlPublishEnabled" | "hashControlPlayEnabled", _) => json!(false),
            ("enableTimeTokenForPlay" | "enableTimeTokenForPublish" | "jwtControlEnabled", _) => json!(false),
            ("jwtSecretKey" | "jwtStreamSecretKey" | "webhookSecret", _) => json!(SECRET),
            ("jwksURL", _) => json!(""),
            ("fileNameFormat", _) => json!("%r{take}"),
            ("webRTCClientStartTimeoutMs", _) => json!(5000),
            ("dataChannelPlayerDistribution", _) => json!("publisher"),
            // Encryption excludes low latency and DASH, which are enabled here, so this key stays unset.
            ("hlsEncryptionKeyInfoFile", value) => value.clone(),
            ("participantVisibilityMatrix", _) => json!({"default": ["default", "guest"]}),
            ("appName" | "updateTime" | "appStatus", value) => value.clone(),
            ("contentSecurityPolicyHeaderValue", _) => json!("default-src 'self'"),
            ("webhookContentType", _) => json!("application/x-www-form-urlencoded"),
            ("audio.silence", _) => json!("all"),
            ("rtspPullTransportType", _) => json!("1"),
            ("hlsTime" | "hlsListSize" | "dashSegDuration" | "dashWindowSize" | "dashExtraWindowSize", _) => {
                json!("9")
            }
            ("dashFragmentDuration", _) => json!("0.75"),
            ("hlsSegmentFileSuffixFormat", _) => json!("-%04d"),
            ("hlsSegmentType", _) => json!("fmp4"),
            ("targetLatency", _) => json!("4.5"),
            ("s3BucketName" | "s3RegionName" | "s3Permission" | "s3StorageClass", _) => json!("a-name"),
            ("s3CacheControl", _) => json!("no-store, private"),
            ("hls.identifyViewers", _) => json!("query"),
            ("hls.endlist", _) => json!("clean"),
            ("hls.begin", _) => json!("stream"),
            ("hls.group", _) => json!("renditions"),
            ("rooms.view", _) => json!("first"),
            // Encryption and the DVR window exclude other settings that are set here, so they stay unset.
            ("hls.encryption" | "dvr.window", value) => value.clone(),
            ("hls.captions", _) => json!("CC1=en"),
            ("hls.subtitles", _) => json!("en:English"),
            ("hls.key_prefix", _) => json!("https://keys.example/"),
            ("hls.playlistCacheControl" | "hls.reloadCacheControl" | "hls.segmentCacheControl", _) => {
                json!("max-age=1, public")
            }
            (name, Value::String(_))
                if name.contains("URL") || name.contains("Url") || name.contains("Endpoint") =>
            {
                json!("https://h.example/x")
            }
            (_, Value::Bool(flag)) => json!(!flag),
            (_, Value::Number(number)) if number.is_f64() => json!(number.as_f64().unwrap() + 0.5),
            (_, Value::Number(number)) => json!(number.as_i64().unwrap().max(0) + 1),
            (_, Value::Object(_)) => json!({"a": [1, "\u{e9}"]}),
            (_, Value::String(_) | Value::Null) => json!(" a\\b=c: \u{e9}\t#!".trim()),
            (_, Value::Array(_)) => unreachable!(),
        };
    }
    let reply = panel.post(path, &wanted);
    assert_eq!(reply, success());
    let mut shown = panel.get(path);
    wanted["updateTime"] = shown["updateTime"].clone();
    assert_eq!(shown, wanted);
    assert!(server.terminate().success());
    let server = Server::start_in(&folder, &[]);
    let panel = Panel::login(&server, ADMIN);
    shown = panel.get(path);
    assert_eq!(shown, wanted);
}

#[test]
fn sighup_reads_the_settings_again_and_keeps_the_old_ones_when_they_are_bad() {
    let server = Server::start(&[]);
    let api = server.api();
    let home = server.home().join("home");
    let app = home.join("webapps/live/WEB-INF/red5-web.properties");
    let set = |file: &Path, from: &str, to: &str| {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(file, text.replace(from, to)).unwrap();
    };
    let create =
        |id: &str| api.post("/live/rest/v2/broadcasts/create", &format!(r#"{{"streamId":"{id}"}}"#)).status;
    assert_eq!(create("one"), 200);
    set(&home.join("conf/red5.properties"), "limits.broadcasts=100000", "limits.broadcasts=1");
    set(&home.join("conf/red5.properties"), "limits.connections=20000", "limits.connections=10000");
    server.signal("HUP");
    wait_for("the limit", secs(10), || create("two") == 400);
    wait_for("the line", secs(10), || server.log().contains("after a restart keys=limits.connections"));
    set(&app, "remoteAllowedCIDR=127.0.0.1", "remoteAllowedCIDR=10.0.0.0/33");
    server.signal("HUP");
    wait_for("the line", secs(10), || {
        server.log().contains("settings invalid; the current ones stay in effect")
    });
    assert_eq!(server.log().matches("settings not loaded").count(), 0, "the others are");
    assert_eq!(api.get("/live/rest/v2/broadcasts/one").status, 200);
    set(&app, "remoteAllowedCIDR=10.0.0.0/33", "remoteAllowedCIDR=10.0.0.0/8");
    server.signal("HUP");
    wait_for("the filter", secs(10), || api.get("/live/rest/v2/broadcasts/one").status == 403);
    assert_eq!(api.get("/LiveApp/rest/v2/version").status, 200);
}

#[test]
fn the_server_s_settings_are_kept_in_their_file() {
    let server = Server::start(&["logLevel=INFO"]);
    let panel = Panel::first(&server);
    let shown = panel.get("/server-settings");
    assert_eq!((&shown["serverName"], &shown["jwtServerSecretKey"]), (&json!(""), &json!("")));
    let body = json!({"serverName": "media.example.org", "nodeGroup": "g", "rtmpPort": 1});
    assert_eq!(panel.post("/server-settings", &body), success());
    assert_eq!(panel.get("/server-settings")["serverName"], "media.example.org");
    let text = fs::read_to_string(server.home().join("home/conf/red5.properties")).unwrap();
    assert!(text.contains("\nserver.name=media.example.org\n") && text.contains("\nrtmp.port=1935\n"));
    let made = server.api().post("/live/rest/v2/broadcasts/create", "").json();
    assert!(made["rtmpURL"].as_str().unwrap().starts_with("rtmp://media.example.org"), "{made}");
    assert_eq!(
        panel.post("/server-settings", &json!({"logLevel": "DEBUG"}))["success"],
        false,
        "--set holds it"
    );
    assert_eq!(panel.post("/server-settings", &json!({"serverName": "a b"}))["success"], false);
    assert_eq!(panel.get("/server-settings")["serverName"], "media.example.org");
    let log = panel.get("/log-file/-1/2000?logType=server");
    assert!(log["logContent"].as_str().unwrap().len() <= 2000 && log["logFileSize"].as_u64().unwrap() > 0);
}

#[test]
fn the_panel_reaches_applications_through_the_server() {
    let server = Server::start(&["app.remoteAllowedCIDR=127.0.0.1"]);
    let panel = Panel::first(&server);
    let request = |method: &str, rest: &str, body: Option<&str>| {
        panel.call(method, &format!("/request?_path=live/rest/v2/{rest}"), body)
    };
    assert_eq!(request("POST", "broadcasts/create", Some(r#"{"streamId":"p"}"#)).json()["streamId"], "p");
    assert_eq!(request("PUT", "broadcasts/p", Some(r#"{"name":"N"}"#)).json(), success());
    assert_eq!(request("GET", "broadcasts/list/0/10&sort_by=name&order_by=asc", None).json()[0]["name"], "N");
    assert_eq!(request("DELETE", "broadcasts/p", None).json()["success"], true);
    assert_eq!(request("GET", "broadcasts/p", None).status, 404);
    assert_eq!(server.api().get("/rest/v2/request?_path=live/rest/v2/version").status, 403);
}

/// Checks that a request is refused if its cookies exceed the limit of a head, and that the real cookie is found among
/// many others.
#[test]
fn r_37_cookies_without_end_are_refused_and_the_real_one_counts_among_many() {
    let server = Server::start(&[]);
    let panel = Panel::first(&server);
    let ask = |cookies: &str| {
        let request = format!(
            "GET /rest/v2/user-list HTTP/1.1\r\nHost: localhost\r\nCookie: {cookies}\r\nConnection: close\r\n\r\n"
        );
        let answer = raw_exchange(server.http, request.as_bytes());
        String::from_utf8_lossy(&answer).split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(ask(&"x".repeat(64 * 1024)), "431");
    let crowd = (0..1000).map(|n| format!("c{n}=x")).collect::<Vec<_>>().join("; ");
    assert_eq!(ask(&crowd), "403");
    assert_eq!(ask(&format!("{crowd}; {}", panel.cookie)), "200");
    assert_eq!(ask(&format!("=;;=;{}", panel.cookie)), "200");
}

#[test]
fn r_42_r_44_answers_have_their_guards_and_no_secret() {
    let secret = format!("server.jwtServerSecretKey={SECRET}");
    let server = Server::start(&["server.jwtServerControlEnabled=true", &secret]);
    let panel = Panel::first(&server);
    for path in ["/rest/v2/liveness", "/rest/v2/nothing", "/live/rest/v2/version", "/openapi.json", "/"] {
        let head = server.api().get(path).head.to_ascii_lowercase();
        assert!(head.contains("x-content-type-options: nosniff"), "{path}: {head}");
        assert!(head.contains("frame-ancestors 'none'"), "{path}: {head}");
        assert_eq!(head.matches("content-security-policy:").count(), 1, "{path}: {head}");
        assert!(!head.contains("\r\nserver:") && !head.contains("x-powered-by"), "{path}: {head}");
        assert!(!head.contains("strict-transport-security"), "{path}: {head}");
    }
    let over_tls = |path: &str| {
        let url = format!("https://{}{path}", server.https.unwrap());
        let output =
            Command::new("curl").args(["-s", "-k", "-D", "-", "-o", "/dev/null", &url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().to_ascii_lowercase()
    };
    assert!(over_tls("/rest/v2/liveness").contains("strict-transport-security: max-age=31536000"));
    assert!(over_tls("/").contains("strict-transport-security"));
    assert!(!over_tls("/live/rest/v2/version").contains("strict-transport-security"));
    let hash = "pbkdf2";
    for path in [
        "/user-list",
        "/server-settings",
        "/applications/settings/live",
        "/system-resources",
        "/log-file/-1/500000?logType=x",
    ] {
        let body = panel.call("GET", path, None).body;
        let cookie = panel.cookie.split('=').nth(1).unwrap();
        for word in [SECRET, MD5, hash, cookie] {
            assert!(!body.contains(word), "{path} shows {word}");
        }
    }
}

#[test]
fn r_34_r_45_forms_of_other_sites_and_archives_are_refused() {
    let server = Server::start(&[]);
    let panel = Panel::first(&server);
    let raw = |head: &str, body: &str| {
        let request = format!(
            "POST /rest/v2/applications/evil HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n{head}Content-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            server.http,
            panel.cookie,
            body.len()
        );
        String::from_utf8_lossy(&raw_exchange(server.http, request.as_bytes())).into_owned()
    };
    assert!(raw("Content-Type: text/plain\r\n", "{}").starts_with("HTTP/1.1 415"));
    assert!(
        raw("Content-Type: application/json\r\nOrigin: http://evil.example\r\n", "{}")
            .starts_with("HTTP/1.1 403")
    );
    assert!(raw("Origin: null\r\n", "").starts_with("HTTP/1.1 403"));
    assert_eq!(panel.get("/applications")["applications"], json!(["LiveApp", "live"]));
    let preflight = "OPTIONS /rest/v2/users HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\
                     Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n";
    let answer =
        String::from_utf8_lossy(&raw_exchange(server.http, preflight.as_bytes())).to_ascii_lowercase();
    assert!(!answer.contains("access-control-allow"), "{answer}");
}

#[test]
fn a_certificate_is_replaced_over_the_api_when_it_fits() {
    let server = Server::start(&[]);
    let panel = Panel::first(&server);
    let folder = server.home();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for name in ["a", "b"] {
        let subject = format!("/CN={name}.example");
        let (key, certificate) = (path(&format!("{name}.key")), path(&format!("{name}.pem")));
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "30",
            ])
            .args(["-subj", &subject, "-keyout", &key, "-out", &certificate])
            .output()
            .unwrap();
        assert!(made.status.success());
    }
    let post = |kind: &str, key: &str, expected: u32| {
        let url = format!("http://{}/rest/v2/ssl-settings?domain=a.example&type={kind}", server.http);
        let form = |name: &str, file: &str| format!("{name}=@{}", path(file));
        let (status, body) = curl(&[
            "-b",
            &panel.cookie,
            "-F",
            &form("fullChainFile", "a.pem"),
            "-F",
            &form("privateKeyFile", key),
            "-F",
            &form("chainFile", "a.pem"),
            &url,
        ]);
        assert_eq!(status, expected, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()
    };
    assert_eq!(post("CUSTOM_DOMAIN", "a.key", 400)["success"], false);
    assert_eq!(post("WHAT", "a.key", 400)["message"], "Unknown SSL configuration type");
    let before = fs::read(folder.join("home/conf/privkey.pem")).unwrap();
    let misfit = post("CUSTOM_CERTIFICATE", "b.key", 200);
    assert!(misfit["message"].as_str().unwrap().contains("not succesful"), "{misfit}");
    assert_eq!(fs::read(folder.join("home/conf/privkey.pem")).unwrap(), before);
    assert_eq!(post("CUSTOM_CERTIFICATE", "a.key", 200), success());
    let url = format!("https://{}/rest/v2/liveness", server.https.unwrap());
    wait_for("the certificate", secs(10), || {
        let output = Command::new("curl").args(["-s", "-k", "-v", "-o", "/dev/null", &url]).output().unwrap();
        String::from_utf8_lossy(&output.stderr).contains("a.example")
    });
    // The certificate expires in thirty days, and both /metrics and the panel show this date.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let days_left = || {
        let page = server.api().get("/metrics").body;
        let line =
            page.lines().find(|line| line.starts_with("millstream_certificate_expiry_timestamp_seconds "));
        let at: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        (at - now as f64) / 86_400.0
    };
    wait_for("its date", secs(10), || (29.0..31.0).contains(&days_left()));
    let live: Value =
        serde_json::from_str(panel.call("GET", "/live", None).body.lines().next().unwrap()).unwrap();
    assert!(live["server"]["certificateExpires"].as_u64().unwrap() / 1000 > now, "{live}");
}

fn user_add(home: &Path, email: &str, password: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command.args(["user", "add", email, "--home"]).arg(home);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = writeln!(child.stdin.take().unwrap(), "{password}");
    child.wait_with_output().unwrap()
}

#[test]
fn a_user_is_added_to_a_server_that_runs_and_to_one_that_does_not() {
    let home = Home::new();
    let folder = home.path().join("home");
    let code = |email: &str, password: &str| {
        let output = user_add(&folder, email, password);
        assert!(output.stdout.is_empty());
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let body = |email: &str, md5: &str| format!(r#"{{"email":"{email}","password":"{md5}"}}"#);
    let (status, said) = code("stopped@a", "password");
    let named = folder.to_str().unwrap();
    assert!(status == 2 && said.contains(named) && !folder.exists(), "no home is made by the way: {said}");
    assert!(Server::start_in(&folder, &[]).terminate().success());
    let (status, said) = code("stopped@a", "password");
    assert!(status == 0 && said.contains(named), "{said}");
    let (status, said) = code("stopped@a", "password");
    assert!(status == 1 && said.contains("exists"), "{said}");
    assert_eq!((code("", "password").0, code("a b", "password").0, code("x@a", "").0), (2, 2, 2));
    let (status, said) = code("short@a", "1234567");
    assert!(status == 2 && said.contains("fewer than 8 characters"), "{said}");
    let (status, said) = code("notanemail", "password");
    assert!(status == 2 && said.contains("'notanemail' is no e-mail address"), "{said}");

    let mut server = Server::start_in(&folder, &[]);
    assert_eq!(server.api().get("/rest/v2/first-login-status").json()["success"], false);
    Panel::login(&server, &body("stopped@a", MD5));
    assert_eq!(code("running@a", "password").0, 0);
    let (status, said) = code("running@a", "password");
    assert!(status == 1 && said.contains("exists"), "{said}");
    let panel = Panel::login(&server, &body("running@a", MD5));
    assert_eq!(panel.get("/user-list").as_array().unwrap().len(), 2);
    let socket = fs::metadata(folder.join("data/control.sock")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&socket.permissions()) & 0o777, 0o600);
    assert!(server.terminate().success());

    // The audit log states which user was added and by whom, whether or not a server was running.
    let audit = fs::read_to_string(folder.join("log/audit.log")).unwrap();
    let told = |email: &str, word: &str| {
        let is_it = |line: &&str| line.contains(&format!("users {email}\"")) && line.contains(word);
        audit.lines().filter(is_it).filter(|line| line.contains("who=\"command line\"")).count()
    };
    for email in ["stopped@a", "running@a"] {
        assert_eq!((told(email, " audit - Make"), told(email, "failed: Make")), (1, 1), "{email}: {audit}");
    }

    // The control socket that a stopped server has left is not taken for a running server.
    assert_eq!(code("later@a", "password").0, 0);
    let server = Server::start_in(&folder, &[]);
    Panel::login(&server, &body("later@a", MD5));
    Panel::login(&server, &body("running@a", MD5));
}

#[test]
fn the_document_of_the_api_is_there_and_its_page_shows_it() {
    let server = Server::start(&[]);
    let document = server.api().get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    let operation = &document["paths"]["/{app}/rest/v2/broadcasts/{id}"]["get"];
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(schema, "#/components/schemas/Broadcast");
    let page = server.api().get("/reference.html");
    assert!(page.status == 200 && page.head.contains("default-src 'self'"), "{}", page.head);
    assert_eq!(server.api().get("/reference.js").status, 200);
    let closed =
        Server::start(&["server.allowed_dashboard_CIDR=10.0.0.0/8", "metrics.allowed_CIDR=10.0.0.0/8"]);
    assert_eq!(closed.api().get("/openapi.json").status, 403);
    assert_eq!(closed.api().get("/rest/v2/liveness").status, 403);
}
