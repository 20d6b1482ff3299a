//! Operations without a login, and operations for which read access is not sufficient.

use super::*;

#[test]
fn figures_are_for_listed_addresses_and_for_who_is_logged_in() {
    let (mut rig, admin) = Rig::administered();
    let far = Client::at("192.0.2.9:1");
    let logged_in = rig.login(&far, "admin@a", MD5).1;
    assert_eq!(rig.status_of(&admin, Method::Get, "/rest/v2/authentication-status"), 200);
    for path in ["/metrics", "/openapi.json"] {
        assert_eq!(rig.status_of(&far, Method::Get, path), 403, "{path}");
        assert_eq!(rig.status_of(&logged_in, Method::Get, "/openapi.json"), 200);
        assert_eq!(rig.status_of(&Client::default(), Method::Get, "/openapi.json"), 200);
    }
    let mut rig = Rig::with(&[("metrics.allowed_CIDR", "192.0.2.0/24")], &[]);
    assert_eq!(rig.status_of(&far, Method::Get, "/openapi.json"), 200, "whoever may see the dashboard");
    assert_eq!(rig.status_of(&Client::at("192.0.3.9:1"), Method::Get, "/openapi.json"), 403);
}

#[test]
fn applications_without_a_check_of_publishers_are_told() {
    assert_eq!(Rig::new().control.cx.open_apps(), ["LiveApp", "live"]);
    for (key, value) in [
        ("publishTokenControlEnabled", "true"),
        ("acceptOnlyStreamsInDataStore", "true"),
        ("allowedPublisherCIDR", "192.0.2.0/24"),
        ("webhookAuthenticateURL", "http://receiver.example/"),
    ] {
        assert!(Rig::with(&[], &[(key, value)]).control.cx.open_apps().is_empty(), "{key}");
    }
}

#[test]
fn who_may_only_read_gets_no_credential() {
    let (mut rig, admin) = Rig::administered();
    rig.create("s");
    let endpoint = r#"{"endpointUrl":"rtmp://a.example/live/stream-key"}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/endpoint", endpoint).0, 200);
    let user = |email: &str, role: &str| serde_json::json!({"email":email,"password":MD5,"userType":role,"scope":"live"});
    let reader = rig.add_user_by(&admin, user("r@a", "READ_ONLY"));
    let plain = rig.add_user_by(&admin, user("u@a", "USER"));
    let of = |what: &str| format!("/rest/v2/request?_path=live/rest/v2/broadcasts/s{what}");
    let token = of("/token?expireDate=99999999999&type=publish");
    for credential in [
        token.clone(),
        of("/jwt-token?expireDate=99999999999&type=play"),
        of("/subscribers/a/totp?type=play"),
        of("/tokens/list/0/10"),
    ] {
        assert_eq!(rig.status_of(&reader, Method::Get, &credential), 403, "{credential}");
    }
    assert_eq!(rig.status_of(&plain, Method::Get, &token), 200);
    let seen = text(&rig.ask_as(&reader, Method::Get, &of(""), ""));
    assert!(seen.contains("rtmp://a.example***") && !seen.contains("stream-key"), "{seen}");
    assert!(text(&rig.ask_as(&plain, Method::Get, &of(""), "")).contains("live/stream-key"));
    let mut rig = Rig::with(&[], &[("publishKeyRequired", "true")]);
    rig.initial("admin@a");
    let admin = rig.login(&Client::default(), "admin@a", MD5).1;
    rig.create("s");
    let [reader, plain] = [("r@a", "READ_ONLY"), ("u@a", "USER")]
        .map(|(email, role)| rig.add_user_by(&admin, user(email, role)));
    let key = rig.record("s")["publishKey"].as_str().unwrap().to_owned();
    let seen = text(&rig.ask_as(&reader, Method::Get, &of(""), ""));
    assert!(seen.contains(r#""publishKey":"***""#) && !seen.contains(&key), "{seen}");
    assert!(text(&rig.ask_as(&plain, Method::Get, &of(""), "")).contains(&key));
    assert_eq!(rig.status_of(&reader, Method::Post, &of("/publish-key")), 403);
    assert_eq!(rig.status_of(&plain, Method::Post, &of("/publish-key")), 200);
}

#[test]
fn what_a_proxy_or_a_page_brings_from_this_machine_is_not_local() {
    let mut rig = Rig::new();
    let read = "/live/rest/v2/version";
    for (name, value, status) in [
        ("Host", "127.0.0.1:5080", 200),
        ("Host", "localhost", 200),
        ("Host", "rebound.example:5080", 403),
        ("Via", "1.1 proxy", 403),
        ("X-Real-IP", "127.0.0.1", 403),
        ("X-Forwarded-For", "127.0.0.1", 403),
    ] {
        let client = Client::default().with(name, value);
        assert_eq!(rig.status_of(&client, Method::Get, read), status, "{name}: {value}");
        let made = rig.status_of(&client, Method::Get, "/rest/v2/first-login-status");
        assert_eq!(made, status, "{name}: {value}");
    }
    let mut rig = Rig::with(&[("server.name", "media.example")], &[]);
    let named = Client::default().with("Host", "Media.Example:5080");
    assert_eq!(rig.status_of(&named, Method::Get, read), 200);
    // If all addresses are allowed, requests without a known address are allowed, too.
    let mut rig = Rig::with(&[], &[("remoteAllowedCIDR", "0.0.0.0/0")]);
    assert_eq!(rig.status_of(&Client::default().with("Via", "x"), Method::Get, read), 200);
}

#[test]
fn the_panel_writes_behind_a_proxy_that_ends_tls_and_pages_of_others_do_not() {
    let mut rig = Rig::with(&[("server.name", "other.example,media.example")], &[]);
    rig.initial("admin@a");
    let admin = rig.login(&Client::default(), "admin@a", MD5).1;
    let write = "/rest/v2/request?_path=live/rest/v2/broadcasts/create";
    for (origin, host, site, status) in [
        ("https://media.example", "media.example", None, 200),
        ("https://media.example:8443", "media.example", None, 200),
        ("https://media.example", "127.0.0.1:5080", None, 200),
        ("https://unnamed.example", "127.0.0.1:5080", Some("same-origin"), 200),
        ("https://unnamed.example", "127.0.0.1:5080", None, 403),
        ("https://media.example:9999", "media.example", Some("same-site"), 403),
        ("https://evil.example", "media.example", Some("cross-site"), 403),
        ("null", "media.example", None, 403),
    ] {
        let client = admin.with("Origin", origin).with("Host", host);
        let client = site.map_or_else(|| client.clone(), |site| client.with("Sec-Fetch-Site", site));
        assert_eq!(rig.ask_as(&client, Method::Post, write, "{}").status, status, "{origin} {host} {site:?}");
    }
}

#[test]
fn pages_of_others_get_no_credential_for_their_readers_address() {
    let mut rig = Rig::new();
    rig.create("s");
    let endpoint = r#"{"endpointUrl":"rtmp://a.example/live/stream-key"}"#;
    rig.post("/live/rest/v2/broadcasts/s/endpoint", endpoint);
    let token = "/live/rest/v2/broadcasts/s/token?expireDate=99999999999&type=publish";
    let page = Client::default().with("Origin", "http://evil.example");
    assert_eq!(rig.status_of(&page, Method::Get, token), 403);
    assert_eq!(rig.status_of(&Client::default(), Method::Get, token), 200);
    let seen = text(&rig.ask_as(&page, Method::Get, "/live/rest/v2/broadcasts/s", ""));
    assert!(seen.contains("\"streamId\":\"s\"") && !seen.contains("stream-key"), "{seen}");
    let mut rig = Rig::with(&[("server.cors_origins", "http://evil.example")], &[]);
    rig.create("s");
    assert_eq!(rig.status_of(&page, Method::Get, token), 200, "the operator named it");
}

fn first_user(rig: &mut Rig, code: &str) -> serde_json::Value {
    let body = serde_json::json!({"email": "admin@a", "password": MD5, "code": code}).to_string();
    let answer = rig.ask_as(&Client::default(), Method::Post, "/rest/v2/users/initial", &body);
    serde_json::from_slice(&answer.body).unwrap()
}

/// Makes a server that requires a code, and returns the code from its log.
fn coded() -> (Rig, String) {
    let mut rig = None;
    let log = logged(|| rig = Some(Rig::with(&[("server.first_user_code", "true")], &[])));
    let (_, rest) = log.split_once("code=\"").unwrap_or_else(|| panic!("{log}"));
    (rig.unwrap(), rest.split('"').next().unwrap().to_owned())
}

#[test]
fn the_first_user_is_made_with_the_code_of_the_log() {
    let (mut rig, code) = coded();
    let status = rig.get("/rest/v2/first-login-status").1;
    assert!(status.contains("true") && status.contains("code in the log"), "{status}");
    let log = logged(|| {
        for wrong in ["", "0000"] {
            let refused = first_user(&mut rig, wrong);
            assert_eq!((&refused["success"], &refused["errorId"]), (&false.into(), &(-1).into()));
            assert!(refused["message"].as_str().unwrap().contains("code"), "{refused}");
        }
        assert!(!rig.control.records.auxiliary.has_users());
        assert_eq!(first_user(&mut rig, &code)["success"], true);
        rig.run_for(secs(1));
    });
    assert!(rig.control.management.first_code.is_none(), "it is gone with the first user");
    assert!(!log.contains(&code), "{log}");
    // Each start makes another code. Without the setting, no code is required.
    let config = config(&[("server.first_user_code", "true")], &[]);
    let again = Control::new(rig.now, config, [], &Seed::from_number(2)).unwrap();
    assert!(!again.management.first_code.unwrap().fits(&code));
    assert_eq!(first_user(&mut Rig::new(), "")["success"], true);
}

#[test]
fn r_36_wrong_codes_for_the_first_user_lock_their_address_as_wrong_passwords_do() {
    let (mut rig, code) = coded();
    for _ in 0..3 {
        assert_eq!(first_user(&mut rig, "wrong")["success"], false);
        rig.run_for(secs(1));
    }
    assert!(first_user(&mut rig, &code)["message"].as_str().unwrap().contains("blocked for 300"));
    rig.run_for(secs(301));
    assert_eq!(first_user(&mut rig, &code)["success"], true);
}

#[test]
fn users_who_were_all_deleted_leave_no_code_behind() {
    let (mut rig, code) = coded();
    assert_eq!(first_user(&mut rig, &code)["success"], true);
    let gone = vec![(store::Key::new(store::Kind::User, "", "admin@a"), None)];
    let write = records::auxiliary::AuxiliaryWrite { changes: gone, files: Vec::new(), waiter: None };
    rig.control.records.write_auxiliary(rig.now, write);
    rig.run_for(secs(1));
    assert!(!rig.control.records.auxiliary.has_users());
    assert_eq!(first_user(&mut rig, &code)["success"], false);
}

#[test]
fn a_user_is_logged_as_saved_when_the_disk_has_it() {
    let faults = Faults::default();
    let mut rig = Rig::start(config(&[], &[]), Memory::with_faults(faults.clone()));
    let (kept, refused) = ("user saved", "store not writable");
    faults.fail(1, 1);
    let body = format!(r#"{{"email":"admin@a","password":"{MD5}"}}"#);
    let log = logged(|| {
        let answer = rig.ask_as(&Client::default(), Method::Post, "/rest/v2/users/initial", &body);
        assert_eq!(answer.status, 500);
    });
    assert!(log.contains(refused) && !log.contains(kept), "{log}");
    rig.run_for(secs(5));
    let log = logged(|| assert_eq!(first_user(&mut rig, "")["success"], true));
    assert!(log.contains(kept) && log.contains("admin@a"), "{log}");
}

#[test]
fn logins_and_users_are_in_the_audit_log_by_name_and_failures_without() {
    let mut rig = Rig::new();
    let here = Client::default();
    let mut clients = Vec::new();
    let log = logged(|| {
        rig.initial("admin@a");
        let admin = rig.login(&here, "admin@a", MD5).1;
        rig.login(&here, "secret-in-the-wrong-field", OTHER);
        rig.add_user_by(
            &admin,
            serde_json::json!({"email":"u@a","password":MD5,"userType":"USER","scope":"live"}),
        );
        rig.ask_as(
            &admin,
            Method::Post,
            "/rest/v2/request?_path=live/rest/v2/broadcasts/create",
            r#"{"streamId":"s"}"#,
        );
        rig.ask_as(&admin, Method::Delete, "/rest/v2/users/u@a", "");
        clients.push(admin);
        let session = rig.session(0);
        rig.control.add_user(rig.now, session, "second@a", "hash".to_owned());
        rig.drain();
        rig.run_for(secs(1));
    });
    let audit: Vec<&str> = log.lines().filter(|line| line.contains(" audit: ")).collect();
    let said =
        |words: &[&str]| audit.iter().filter(|line| words.iter().all(|word| line.contains(word))).count();
    for words in [
        &[": Make the first user", "who=\"address\"", "admin@a", "INFO"][..],
        &[": Log in", "who=\"admin@a\"", "from=\"127.0.0.1\"", "INFO"],
        &["failed: Log in", "who=\"address\"", "WARN"],
        &["object=\"users u@a\"", "who=\"admin@a\"", "INFO"],
        &[": Create a broadcast", "who=\"admin@a\"", "made=\"s\""],
        &["users/u@a", "who=\"admin@a\"", "INFO"],
        &[": Make an administrator", "who=\"command line\"", "second@a"],
    ] {
        assert_eq!(said(words), 1, "{words:?}: {audit:#?}");
    }
    let audit = audit.join("\n");
    assert!(!audit.contains("secret-in") && !audit.contains(MD5) && !audit.contains("hash"), "{audit}");
}

#[test]
fn h_37_heads_are_judged_before_their_bodies_and_nothing_is_done_or_told_until_those_are_there() {
    let mut rig = Rig::with(&[], &[("remoteAllowedCIDR", "127.0.0.1")]);
    rig.initial("admin@a");
    let admin = rig.login(&Client::default(), "admin@a", MD5).1;
    let reader = serde_json::json!({"email":"r@a","password":MD5,"userType":"READ_ONLY","scope":"live"});
    let reader = rig.add_user_by(&admin, reader);
    let far = Client::at("192.0.2.9:1");
    let (create, users) = ("/live/rest/v2/broadcasts/create", "/rest/v2/users");
    let panel = "/rest/v2/request?_path=live/rest/v2/broadcasts/create";
    let none = Client::default();
    for (client, method, target, refusal) in [
        (&far, Method::Post, create, Some((403, "Not allowed IP"))),
        (&none, Method::Post, create, None),
        (&none, Method::Post, users, Some((403, "Not authenticated user"))),
        (&far, Method::Post, users, Some((403, "Not authenticated user"))),
        (&reader, Method::Post, users, Some((403, "Not allowed to access this resource"))),
        (&reader, Method::Post, panel, Some((403, "Not allowed to access this resource"))),
        (&admin, Method::Post, users, None),
        (&admin, Method::Post, panel, None),
        (&none, Method::Post, "/live/rest/v2/nothing", Some((404, ""))),
        (&none, Method::Patch, create, Some((405, ""))),
        (&none, Method::Post, "/rest/v2/users/authenticate", None),
    ] {
        let mut head = request(method, target, "");
        head.body_waits = true;
        head.headers.push("Content-Type", "application/json");
        for (name, value) in &client.headers {
            head.headers.push(name.as_str(), value.as_str());
        }
        let log = logged(|| {
            let session = rig.send_request(client.peer.unwrap_or("127.0.0.1:9"), head);
            let lets_come =
                |mail: &ToWorker| matches!(mail, ToWorker::TakeBody(conn) if *conn == session.conn);
            let may_come = rig.posted.iter().any(|(_, mail)| lets_come(mail));
            let response = rig.response(session);
            assert_eq!(may_come, refusal.is_none(), "{target}");
            let refused = response.map(|response| (response.status, text(&response)));
            match (refused, refusal) {
                (Some((status, text)), Some((want, part))) => {
                    assert!(status == want && text.contains(part), "{target}: {status} {text}");
                }
                (refused, refusal) => {
                    assert!(refused.is_none() && refusal.is_none(), "{target}: {refused:?}")
                }
            }
        });
        assert!(refusal.is_some() || log.is_empty(), "nothing was done: {log}");
    }
    // The content type is checked even before the body arrives.
    let mut head = request(Method::Post, create, "");
    head.body_waits = true;
    let session = rig.send_request("127.0.0.1:9", head);
    assert_eq!(rig.response(session).unwrap().status, 415);
}
