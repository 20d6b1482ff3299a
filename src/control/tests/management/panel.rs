//! Operations for the panel that Ant Media Server does not have.

use super::*;
use crate::http;
use serde_json::{Value, json};

/// Returns the lines of an answer.
fn lines(response: &http::Response) -> Vec<Value> {
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.headers.get("content-type"), Some("application/x-ndjson"));
    response.body.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

impl Rig {
    fn watch(&mut self, client: &Client, target: &str) -> Vec<Value> {
        lines(&self.ask_as(client, Method::Get, target, ""))
    }
}

#[test]
fn what_is_looked_at_is_a_line_each() {
    let (mut rig, admin) = Rig::administered();
    rig.create("idle");
    let (_, stream) = rig.publish("s", 0);
    rig.report(0, stream, 250_000, 0, 3);
    let all = rig.watch(&admin, "/rest/v2/live");
    assert_eq!((&all[0]["server"]["liveStreams"], &all[0]["server"]["viewers"]), (&json!(1), &json!(3)));
    assert_eq!(all[0]["server"]["workersBusyPermille"][0], 10);
    let live = json!({ "name": "live", "liveStreams": 1, "broadcasts": 2, "recordings": 0 });
    assert_eq!(all[1]["applications"][1], live);
    let page = rig.watch(&admin, "/rest/v2/live/live?ids=idle,s,gone");
    assert_eq!(page[0]["application"]["broadcasts"], 2);
    let rows: Vec<_> = page[1..].iter().map(|line| &line["broadcast"]).collect();
    let shown = |n: usize| (&rows[n]["streamId"], &rows[n]["status"], &rows[n]["rtmpViewerCount"]);
    assert_eq!(shown(0), (&json!("idle"), &json!("created"), &json!(0)));
    assert_eq!(shown(1), (&json!("s"), &json!("broadcasting"), &json!(3)));
    assert_eq!(shown(2), (&json!("gone"), &json!(null), &json!(0)));
    assert_eq!((&rows[0]["live"], &rows[2]["live"]), (&json!(null), &json!(null)));
    let publisher = &rows[1]["live"];
    assert_eq!((&publisher["publishType"], &publisher["videoCodec"]), (&json!("RTMP"), &json!("H264")));
    assert_eq!((&publisher["width"], &publisher["isRecorded"]), (&json!(1280), &json!(false)));
    let one = rig.watch(&admin, "/rest/v2/live/live/s");
    assert_eq!(
        (&one[0]["broadcast"]["streamId"], &one[0]["broadcast"]["width"]),
        (&json!("s"), &json!(1280))
    );
    let source = &one[1]["source"];
    assert_eq!((&source["receivedBytes"], &source["pictures"]), (&json!(250_000), &json!(250)));
    assert_eq!((&source["videoCodec"], &source["audioCodec"]), (&json!("H264"), &json!("AAC")));
    assert_eq!(rig.watch(&admin, "/rest/v2/live/live/idle")[1]["source"], json!(null));
    for path in ["/rest/v2/live/live/gone", "/rest/v2/live/other", "/rest/v2/live/other/s"] {
        assert_eq!(rig.status_of(&admin, Method::Get, path), 404, "{path}");
    }
}

/// The figures show recordings started by the application's setting, although the broadcast asks for none.
#[test]
fn live_figures_tell_what_is_recorded() {
    let mut rig = Rig::with(&[], &[("mp4MuxingEnabled", "true")]);
    rig.initial("admin@a");
    let (_, admin) = rig.login(&Client::default(), "admin@a", MD5);
    rig.publish("s", 0);
    assert_eq!(rig.watch(&admin, "/rest/v2/live")[1]["applications"][1]["recordings"], 1);
    let page = rig.watch(&admin, "/rest/v2/live/live?ids=s");
    let recorded = &page[0]["application"]["recordings"][0];
    assert_eq!((&recorded["streamId"], &recorded["container"]), (&json!("s"), &json!("mp4")));
    assert_eq!(page[1]["broadcast"]["live"]["isRecorded"], true);
    let recordings = |rig: &mut Rig| rig.watch(&admin, "/rest/v2/live/live/s")[3]["recordings"].clone();
    assert_eq!(recordings(&mut rig)[0]["container"], "mp4");
    rig.call(Method::Put, "/live/rest/v2/broadcasts/s/recording/false", "");
    assert_eq!(recordings(&mut rig), json!([]));
}

#[test]
fn an_endpoint_has_a_history() {
    let (mut rig, admin) = Rig::administered();
    rig.create("s");
    let endpoint = r#"{"endpointUrl":"rtmp://192.0.2.9/live/key"}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/endpoint", endpoint).0, 200);
    let (_, stream) = rig.publish("s", 0);
    rig.report(0, stream, 1000, 0, 0);
    let mut order = rig.orders().pop().unwrap().1;
    let history =
        |rig: &mut Rig| rig.watch(&admin, "/rest/v2/live/live/s")[2]["endpoints"][0]["history"].clone();
    assert_eq!(history(&mut rig), json!([]));
    let news = |rig: &mut Rig, order: &PushOrder, state: PushState| {
        rig.mail(ToControl::Push { push: order.push, attempt: order.attempt, state });
    };
    news(&mut rig, &order, PushState::Broadcasting);
    news(&mut rig, &order, PushState::Error("reset".to_owned()));
    for _ in 0..3 {
        rig.run_for(Duration::from_secs(60));
        order = rig.orders().pop().unwrap().1;
        news(&mut rig, &order, PushState::Failed("Connection refused".to_owned()));
    }
    let shown = history(&mut rig);
    assert_eq!(shown.as_array().unwrap().len(), 3, "{shown}");
    assert_eq!((&shown[0]["status"], &shown[0]["reason"]), (&json!("broadcasting"), &json!(null)));
    assert_eq!((&shown[1]["status"], &shown[1]["reason"]), (&json!("error"), &json!("reset")));
    assert_eq!((&shown[2]["reason"], &shown[2]["times"]), (&json!("Connection refused"), &json!(3)));
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/stop", "").0, 200);
    assert_eq!(rig.watch(&admin, "/rest/v2/live/live/s")[2]["endpoints"], json!([]));
}

/// Readers see no keys of endpoints, and targets name them in their refusals.
#[test]
fn r_42_the_history_of_an_endpoint_does_not_name_its_key() {
    let (mut rig, admin) = Rig::administered();
    rig.create("s");
    let endpoint = r#"{"endpointUrl":"rtmp://192.0.2.9/live/abcd-1234-ef?token=0123456789"}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/endpoint", endpoint).0, 200);
    rig.publish("s", 0);
    let order = rig.orders().pop().unwrap().1;
    let state =
        PushState::Failed("NetStream.Publish.BadName: abcd-1234-ef?token=0123456789 is live".to_owned());
    rig.mail(ToControl::Push { push: order.push, attempt: order.attempt, state });
    let history = rig.watch(&admin, "/rest/v2/live/live/s")[2]["endpoints"][0]["history"].clone();
    assert_eq!(history[0]["reason"], "NetStream.Publish.BadName: ***?*** is live");
}

#[test]
fn who_may_look_is_who_may_read() {
    let (mut rig, admin) = Rig::administered();
    rig.create("s");
    let endpoint = r#"{"endpointUrl":"rtmp://a.example/live/stream-key"}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/endpoint", endpoint).0, 200);
    let reader = json!({ "email": "r@a", "password": MD5, "userType": "READ_ONLY", "scope": "live" });
    let reader = rig.add_user_by(&admin, reader);
    for path in ["/rest/v2/live", "/rest/v2/live/live", "/rest/v2/live/live/s"] {
        assert_eq!(rig.status_of(&Client::default(), Method::Get, path), 403, "{path}");
    }
    for path in ["/rest/v2/live", "/rest/v2/live/LiveApp", "/rest/v2/server-settings/keys"] {
        assert_eq!(rig.status_of(&reader, Method::Get, path), 403, "{path}");
    }
    let url = |line: &Value| line["broadcast"]["endPointList"][0]["endpointUrl"].clone();
    assert_eq!(url(&rig.watch(&admin, "/rest/v2/live/live/s")[0]), "rtmp://a.example/live/stream-key");
    assert_eq!(url(&rig.watch(&reader, "/rest/v2/live/live/s")[0]), "rtmp://a.example***");
}

#[test]
fn settings_say_what_they_mean_and_who_has_set_them() {
    let mut rig = Rig::with(
        &[("http.port", "8080")],
        &[("coalesceMs", "20"), ("jwtSecretKey", "a secret of the application")],
    );
    rig.initial("admin@a");
    let admin = rig.login(&Client::default(), "admin@a", MD5).1;
    let keys = |rig: &mut Rig, path: &str| -> Vec<Value> {
        let response = rig.ask_as(&admin, Method::Get, path, "");
        assert!(!String::from_utf8_lossy(&response.body).contains("a secret of"), "{path}");
        serde_json::from_slice(&response.body).unwrap()
    };
    let find = |keys: &[Value], key: &str| keys.iter().find(|one| one["key"] == key).unwrap().clone();
    let of_app = keys(&mut rig, "/rest/v2/applications/settings/live/keys");
    let coalesce = find(&of_app, "coalesceMs");
    assert_eq!((&coalesce["default"], &coalesce["value"]), (&json!("40"), &json!("20")));
    assert_eq!(coalesce["fixed"], coalesce["origin"] == "command line");
    assert!(coalesce["description"].as_str().unwrap().len() > 10);
    assert_eq!(
        [&coalesce["label"], &coalesce["group"]],
        [&json!("Hold audio for video"), &json!("delivery")]
    );
    assert_eq!(find(&of_app, "jwtSecretKey")["value"], json!(null));
    let members = rig.ask_as(&admin, Method::Get, "/rest/v2/applications/settings/live", "");
    let members: serde_json::Map<String, Value> = serde_json::from_slice(&members.body).unwrap();
    assert!(
        of_app.iter().map(|one| one["name"].as_str().unwrap()).eq(members.keys()),
        "each member, in order"
    );
    let effects = ["coalesceMs", "webRTCFrameRate"].map(|key| find(&of_app, key));
    assert_eq!(effects.map(|one| one["effect"].clone()), ["works", "foreign"]);
    let mut changed = Value::Object(members.clone());
    changed["hlsEncryptionKeyInfoFile"] = json!("hls.keyinfo");
    let path = "/rest/v2/applications/settings/live";
    let refused = rig.ask_as(&admin, Method::Post, path, &changed.to_string());
    let refused: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!(refused["success"], false, "c-17: a protection that could not be had");
    let told = refused["message"].as_str().unwrap();
    assert!(told.contains("hlsEncryptionKeyInfoFile") && told.contains("absolute path"), "{told}");
    let of_server = keys(&mut rig, "/rest/v2/server-settings/keys");
    assert_eq!(find(&of_server, "http.port")["value"], "8080");
    assert_eq!(find(&of_server, "server.name")["name"], "serverName");
    assert_eq!(find(&of_server, "http.port")["name"], json!(null));
}
