//! The last hour by the minute, the edition, and an application's OpenAPI document, which newer panels request.

use super::*;

#[test]
fn the_last_hour_is_told_by_the_minute() {
    let (mut rig, _) = Rig::administered();
    rig.create("s");
    let (_, _) = rig.publish("s", 0);
    let network =
        crate::stats::NetworkFigures { sent_bps: 2_500_000, received_bps: 1_000, uplink_mbps: 1000 };
    let host = HostFigures {
        system_cpu_percent: 7,
        memory_percent: 8,
        memory_total: 100,
        process_memory: 9,
        disk: crate::stats::DiskFigures { total: 200, free: 20, usable: 10 },
        network,
        ..HostFigures::default()
    };
    for _ in 0..70 {
        // Report the machine's figures regularly, as the server does, but less often.
        for _ in 0..3 {
            rig.control.handle_host(rig.now, host.clone(), Vec::new());
            rig.run_for(secs(20));
        }
    }
    // The administrator's session has expired in the time simulated above, so log in again.
    let (_, admin) = rig.login(&Client::default(), "admin@a", MD5);
    let read = |rig: &mut Rig, path: &str| -> serde_json::Value {
        serde_json::from_slice(&rig.ask_as(&admin, Method::Get, path, "").body).unwrap()
    };
    let history = read(&mut rig, "/rest/v2/system-resources/history");
    let hour = |value: serde_json::Value| serde_json::Value::from(vec![value; 60]);
    let names = ["cpu", "mem", "disk", "heap", "db", "live", "netOut", "netIn"];
    assert_eq!(history.as_object().unwrap().keys().collect::<Vec<_>>(), names);
    for (name, value) in [("cpu", 7), ("mem", 8), ("disk", 90), ("heap", 9), ("db", 0)] {
        assert_eq!(history[name], hour(value.into()), "{name}");
    }
    assert_eq!((&history["netOut"], &history["netIn"]), (&hour(2.5.into()), &hour(0.001.into())));
    let network = read(&mut rig, "/rest/v2/network-status");
    assert_eq!(network.to_string(), r#"{"outboundMbps":2.5,"inboundMbps":0.001,"uplinkMbps":1000}"#);
    let app = read(&mut rig, "/rest/v2/applications/live/metrics-history");
    assert_eq!(app["streams"].as_array().unwrap().len(), 60);
    assert_eq!(app["viewers"], hour(0.into()));
    let none = read(&mut rig, "/rest/v2/applications/none/metrics-history");
    assert_eq!(none.to_string(), r#"{"viewers":[],"streams":[]}"#);
    let edition = read(&mut rig, "/rest/v2/enterprise-edition");
    assert_eq!(edition["success"], true);
    let (status, document) = rig.get("/live/rest/v2/openapi.json");
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!((status, &document["servers"][0]["url"]), (200, &"/live/rest/v2".into()));
    assert!(document["paths"]["/broadcasts/{id}"]["get"].is_object());
    assert_eq!(rig.get("/live/rest/v2/broadcasts/none/metrics-history").0, 404);
}

#[test]
fn a_live_stream_has_its_last_hour_and_loses_it_with_its_end() {
    let mut rig = Rig::new();
    rig.create("s");
    let path = "/live/rest/v2/broadcasts/s/metrics-history";
    let read = |rig: &mut Rig| -> serde_json::Value { serde_json::from_str(&rig.get(path).1).unwrap() };
    assert_eq!(read(&mut rig)["bitrate"], serde_json::json!([]));
    let (session, stream) = rig.publish("s", 0);
    // The publisher sends a megabyte per second.
    for second in 1..=200 {
        rig.run_for(secs(1));
        rig.report(0, stream, second * 1_000_000, 0, 3);
    }
    let history = read(&mut rig);
    let names = [
        "bitrate",
        "viewers",
        "speed",
        "encoderQueueSize",
        "droppedPackets",
        "droppedFrames",
        "packetLostRatio",
    ];
    assert_eq!(history.as_object().unwrap().keys().collect::<Vec<_>>(), names);
    assert_eq!(history["viewers"], serde_json::json!([3, 3, 3, 3]));
    let bitrates = history["bitrate"].as_array().unwrap();
    assert!(
        bitrates.iter().all(|rate| (7_900_000..8_100_000).contains(&rate.as_i64().unwrap())),
        "{history}"
    );
    rig.gone(session, stream, Departure::Clean, 0);
    assert_eq!(read(&mut rig)["bitrate"], serde_json::json!([]));
}
