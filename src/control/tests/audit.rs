//! The audit log: actions, their authors and addresses.

use super::*;

/// Returns the lines of the audit log that contain a text. Audit lines are recognised by their
/// target.
fn lines<'a>(log: &'a str, what: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.contains(" audit: ") && line.contains(what)).collect()
}

fn one<'a>(log: &'a str, what: &str, words: &[&str]) -> &'a str {
    let found = lines(log, what);
    let [line] = found[..] else { panic!("{what}: {log}") };
    assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
    line
}

#[test]
fn what_is_done_over_the_api_is_told_with_its_outcome() {
    let mut rig = Rig::new();
    let endpoint = r#"{"endpointUrl":"rtmp://a.example/live/stream-key"}"#;
    let log = logged(|| {
        rig.create("s");
        rig.post("/live/rest/v2/broadcasts/s/endpoint", endpoint);
        let (_, body) = rig.get("/live/rest/v2/broadcasts/s/token?expireDate=99999999999&type=publish");
        assert!(body.contains("tokenId"), "{body}");
        rig.call(Method::Put, "/live/rest/v2/broadcasts/s/subscribers/bob/block/10/publish", "");
        rig.call(Method::Delete, "/live/rest/v2/broadcasts/s", "");
        rig.call(Method::Delete, "/live/rest/v2/broadcasts/none", "");
        rig.get("/live/rest/v2/broadcasts/s");
        rig.get("/live/rest/v2/broadcasts/list/0/10");
    });
    one(
        &log,
        ": Create a broadcast",
        &["INFO", "address", "127.0.0.1", "live/broadcasts/create", "made=\"s\""],
    );
    one(&log, ": Add an endpoint", &["INFO", "live/broadcasts/s/endpoint", "made=\"custom"]);
    one(&log, "broadcasts/s/token type=publish", &["INFO", "address"]);
    one(&log, "subscribers/bob/block/10/publish", &["address"]);
    let deleted = lines(&log, "Delete a broadcast");
    assert!(deleted[0].contains("INFO") && deleted[0].contains("live/broadcasts/s\""), "{log}");
    assert!(deleted[1].contains("WARN") && deleted[1].contains("failed: "), "{log}");
    assert_eq!(lines(&log, "").len(), 6, "what only reads is not told: {log}");
    // Lines contain no secrets: neither the stream key of an endpoint nor a token.
    let audit = lines(&log, "").join("\n");
    assert!(!audit.contains("stream-key") && !audit.contains("eyJ"), "{audit}");
}

#[test]
fn a_line_is_written_when_the_change_is_on_the_disk_and_says_when_it_is_not() {
    let faults = Faults::default();
    let mut rig = Rig::start(config(&[], &[]), Memory::with_faults(faults.clone()));
    faults.fail(1, 1);
    let create = "/live/rest/v2/broadcasts/create";
    let log = logged(|| assert_eq!(rig.post(create, r#"{"streamId":"s"}"#).0, 500));
    one(&log, "Create a broadcast", &["WARN", "failed: ", "status=500"]);
    rig.run_for(secs(5));
    rig.hold = true;
    let log = logged(|| {
        rig.send(Method::Post, create, r#"{"streamId":"s"}"#);
        rig.run_for(ms(5));
    });
    assert!(lines(&log, "").is_empty(), "{log}");
    let log = logged(|| rig.release());
    one(&log, "Create a broadcast", &["INFO"]);
}

#[test]
fn publishers_are_told_with_the_kind_of_their_credential() {
    for (settings, params, who) in [
        (&[][..], &[][..], "who=\"anybody\""),
        (&[], &[("subscriberId", "bob")], "who=\"subscriber bob\""),
        (&[("publishKeyRequired", "true")], &[("key", "")], "who=\"publish key\""),
    ] {
        let mut rig = Rig::with(&[], settings);
        rig.create("s");
        let key = rig.record("s")["publishKey"].as_str().unwrap_or_default().to_owned();
        let value = |name: &str, value: &str| if name == "key" { key.clone() } else { value.to_owned() };
        let params = params.iter().map(|(name, text)| ((*name).to_owned(), value(name, text))).collect();
        let request = PublishRequest { params, ..rig.request("s", 0) };
        let log = logged(|| drop(rig.ask(request).unwrap()));
        let line = one(&log, ": Publish", &["INFO", who, "from=198.51.100.7", "object=live/s", "rtmp"]);
        assert!(key.is_empty() || !line.contains(&key), "{line}");
        // A refused peer has done nothing, so the refusal is only in the server's log.
        let refused = rig.request("s", 0);
        let log = logged(|| drop(rig.ask(refused).unwrap_err()));
        assert!(lines(&log, "").is_empty(), "{log}");
    }
}

#[test]
fn nothing_is_told_when_it_is_off() {
    let mut rig = Rig::with(&[("auditLog", "false")], &[]);
    let log = logged(|| {
        rig.create("s");
        rig.publish("s", 0);
        let session = rig.session(0);
        rig.control.add_user(rig.now, session, "a@b", "hash".to_owned());
        rig.drain();
    });
    assert!(lines(&log, "").is_empty(), "{log}");
}

#[test]
fn r_60_strangers_have_a_share_of_the_audit_log_and_leave_the_rest_to_others() {
    let mut rig = Rig::with(&[("limits.publishers_per_address", "1000")], &[]);
    let log = logged(|| {
        for n in 0..300 {
            rig.publish(&format!("s{n}"), 0);
        }
        // Other addresses, requests from this machine and the command line have quotas of their own.
        let request = PublishRequest { peer: "203.0.113.4:1".parse().unwrap(), ..rig.request("other", 0) };
        drop(rig.ask(request).unwrap());
        rig.create("mine");
        rig.run_for(secs(61));
        rig.publish("late", 0);
    });
    assert_eq!(lines(&log, "from=198.51.100.7").len(), 101, "a hundred, and one more later: {log}");
    assert_eq!(lines(&log, "object=live/other").len(), 1);
    one(&log, ": Create a broadcast", &["INFO"]);
    let left_out = lines(&log, "unauthenticated clients dropped");
    assert!(left_out.len() == 2 && left_out[1].contains("lines=199"), "{left_out:?}");
}
