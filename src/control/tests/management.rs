//! Users, sessions, tokens and rights, in virtual time. A simple function replaces the slow hashing of passwords.

mod bounds;
mod doors;
mod history;
mod lost;
mod masking;
mod panel;
mod rights;

use super::*;
use crate::auth::jwt;
use crate::http;
use crate::jobs::{AdminOutcome, PasswordDigest, PasswordOutcome};

const MD5: &str = "5f4dcc3b5aa765d61d8327deb882cf99";
const OTHER: &str = "0123456789abcdef0123456789abcdef";
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A client with a cookie.
#[derive(Debug, Clone, Default)]
struct Client {
    peer: Option<&'static str>,
    headers: Vec<(String, String)>,
}

impl Client {
    fn at(peer: &'static str) -> Self {
        Self { peer: Some(peer), headers: Vec::new() }
    }

    fn with(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }
}

fn hash_of(digest: &PasswordDigest) -> String {
    format!("hash of {}", String::from_utf8_lossy(digest.as_bytes()))
}

impl Rig {
    /// Completes the waiting password jobs, and lets a second pass for the store.
    fn work(&mut self) {
        while !self.hashes.is_empty() {
            for (id, work) in std::mem::take(&mut self.hashes) {
                let outcome = match work {
                    PasswordWork::Make { digest, .. } => PasswordOutcome::Made(hash_of(&digest)),
                    PasswordWork::Verify { digest, stored } => {
                        PasswordOutcome::Verified(stored == hash_of(&digest))
                    }
                };
                self.done(id, Outcome::Password(outcome));
            }
        }
    }

    fn ask_as(&mut self, client: &Client, method: Method, target: &str, body: &str) -> http::Response {
        let mut request = request(method, target, body);
        if !body.is_empty() {
            request.headers.push("Content-Type", "application/json");
        }
        for (name, value) in &client.headers {
            request.headers.push(name.as_str(), value.as_str());
        }
        let session = self.send_request(client.peer.unwrap_or("127.0.0.1:9"), request);
        self.work();
        for _ in 0..3 {
            if let Some(response) = self.response(session) {
                return response;
            }
            self.run_for(Duration::from_millis(4100));
            self.work();
        }
        panic!("no answer to {target}");
    }

    fn response(&mut self, session: SessionRef) -> Option<http::Response> {
        let at = self.posted.iter().position(
            |(_, mail)| matches!(mail, ToWorker::RestReply { conn, .. } if *conn == session.conn),
        )?;
        match self.posted.remove(at) {
            (_, ToWorker::RestReply { response, .. }) => Some(*response),
            _ => None,
        }
    }

    fn status_of(&mut self, client: &Client, method: Method, target: &str) -> u16 {
        self.ask_as(client, method, target, "").status
    }

    fn initial(&mut self, email: &str) -> serde_json::Value {
        let body = format!(r#"{{"email":"{email}","password":"{MD5}"}}"#);
        let response = self.ask_as(&Client::default(), Method::Post, "/rest/v2/users/initial", &body);
        assert_eq!(response.status, 200);
        serde_json::from_slice(&response.body).unwrap()
    }

    fn login(&mut self, from: &Client, email: &str, password: &str) -> (serde_json::Value, Client) {
        let body = format!(r#"{{"email":"{email}","password":"{password}"}}"#);
        let response = self.ask_as(from, Method::Post, "/rest/v2/users/authenticate", &body);
        let cookie =
            response.headers.get("set-cookie").map(|cookie| cookie.split(';').next().unwrap().to_owned());
        let client = cookie.map_or_else(Client::default, |cookie| from.with("Cookie", &cookie));
        (serde_json::from_slice(&response.body).unwrap_or_default(), client)
    }

    /// Makes a server, and an administrator who is logged in.
    fn administered() -> (Self, Client) {
        let mut rig = Self::new();
        rig.initial("admin@a");
        let (result, admin) = rig.login(&Client::default(), "admin@a", MD5);
        assert_eq!(result["success"], true);
        (rig, admin)
    }

    fn add_user_by(&mut self, admin: &Client, user: serde_json::Value) -> Client {
        let response = self.ask_as(admin, Method::Post, "/rest/v2/users", &user.to_string());
        assert!(String::from_utf8_lossy(&response.body).contains(r#""success":true"#), "{response:?}");
        self.run_for(Duration::from_secs(1));
        let (result, client) = self.login(&Client::default(), user["email"].as_str().unwrap(), MD5);
        assert_eq!(result["success"], true);
        client
    }
}

fn text(response: &http::Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

#[test]
fn the_first_user_is_made_once_and_only_from_this_machine() {
    let mut rig = Rig::new();
    let here = Client::default();
    assert!(text(&rig.ask_as(&here, Method::Get, "/rest/v2/first-login-status", "")).contains("true"));
    // While there is no user, the dashboard is closed to other machines.
    for path in ["/rest/v2/users/initial", "/rest/v2/first-login-status", "/metrics"] {
        let method = if path.ends_with("initial") { Method::Post } else { Method::Get };
        assert_eq!(rig.status_of(&Client::at("192.0.2.9:1"), method, path), 403, "{path}");
    }
    let passed_on = here.with("X-Forwarded-For", "127.0.0.1");
    assert_eq!(rig.status_of(&passed_on, Method::Post, "/rest/v2/users/initial"), 403, "an unknown proxy");
    assert_eq!(rig.initial("a b")["success"], false);
    let made = rig.initial("admin@a");
    assert_eq!(
        (&made["success"], &made["errorId"], &made["message"]),
        (&true.into(), &(-1).into(), &"".into())
    );
    assert_eq!(rig.initial("second@a")["success"], false);
    assert!(text(&rig.ask_as(&here, Method::Get, "/rest/v2/first-login-status", "")).contains("false"));
    // Once there is a user, other machines may reach the login.
    assert_eq!(rig.status_of(&Client::at("192.0.2.9:1"), Method::Get, "/rest/v2/first-login-status"), 200);
    assert_eq!(rig.status_of(&Client::at("192.0.2.9:1"), Method::Post, "/rest/v2/users/initial"), 403);
    assert_eq!(
        rig.status_of(&Client::at("[2001:db8::9]:1"), Method::Get, "/rest/v2/liveness"),
        403,
        "IPv4 only"
    );
}

#[test]
fn two_first_users_at_once_make_one() {
    let mut rig = Rig::new();
    let sent: Vec<_> = ["a@a", "b@a"]
        .map(|email| {
            let body = format!(r#"{{"email":"{email}","password":"{MD5}"}}"#);
            let mut request = request(Method::Post, "/rest/v2/users/initial", &body);
            request.headers.push("Content-Type", "application/json");
            rig.send_request("127.0.0.1:9", request)
        })
        .to_vec();
    rig.work();
    rig.run_for(Duration::from_secs(1));
    let answers: Vec<_> = sent.into_iter().map(|session| text(&rig.response(session).unwrap())).collect();
    let good = answers.iter().filter(|answer| answer.contains(r#""success":true"#)).count();
    assert_eq!((good, rig.control.records.auxiliary.all().count()), (1, 1), "{answers:?}");
}

#[test]
fn r_23_every_route_of_the_server_refuses_who_is_not_logged_in() {
    let mut rig = Rig::new();
    rig.initial("admin@a");
    let open = [
        "/users/authenticate",
        "/users/initial",
        "/first-login-status",
        "/authentication-status",
        "/users/{email}/blocked",
        "/liveness",
        "/readiness",
        "/metrics",
        "/openapi.json",
    ];
    let mut refused = 0;
    for route in routes().filter(|route| ![Base::App, Base::Players].contains(&route.base)) {
        let path = format!("{}{}", route.base.prefix(), route.path.replace(['{', '}'], ""));
        let is_open = open.contains(&route.path);
        if route.path == "/metrics" {
            continue;
        }
        for client in [
            Client::default(),
            Client::default().with("Cookie", &format!("JSESSIONID={OTHER}")),
            Client::default().with("ProxyAuthorization", "a.b.c"),
            Client::default().with("Authorization", "Bearer x"),
        ] {
            let response = rig.ask_as(&client, route.method, &path, "");
            assert_ne!(response.status, 401, "{path}");
            if is_open {
                assert_ne!(response.status, 403, "{path}");
            } else {
                assert_eq!(response.status, 403, "{} {path}", route.method);
                assert!(text(&response).contains("Not authenticated user"), "{path}");
                refused += 1;
            }
        }
        // Other methods of the same path reach no operation.
        for method in [Method::Patch, Method::Options] {
            let status = rig.status_of(&Client::default(), method, &path);
            assert!(
                status == 403 || (route.base == Base::Server && [200, 405].contains(&status)),
                "{path} {status}"
            );
        }
    }
    assert!(refused > 150, "{refused}");
    for path in [
        "/rest",
        "/rest/v2",
        "/rest/v3/users",
        "/rest/v2/nothing",
        "/rest/v2x/liveness",
        "/rest/v2/users/x/y",
    ] {
        assert_eq!(rig.status_of(&Client::default(), Method::Get, path), 403, "{path}");
    }
}

#[test]
fn r_22_open_paths_are_exact() {
    let mut rig = Rig::new();
    rig.initial("admin@a");
    for path in [
        "/rest/v2/users/authenticate/x",
        "/rest/v2/Users/authenticate",
        "/rest/v2/users/a/blocked/x",
        "/rest/v2/users/blocked",
        "/rest/v2/user-list;/rest/v2/liveness",
        "/rest/v2/liveness/../user-list",
    ] {
        assert_eq!(rig.status_of(&Client::default(), Method::Get, path), 403, "{path}");
    }
    assert_eq!(rig.status_of(&Client::default(), Method::Get, "/rest/v2/liveness/"), 200);
}

#[test]
fn r_30_a_session_s_id_is_new_at_login_and_gone_at_logout() {
    let mut rig = Rig::new();
    rig.initial("admin@a");
    let fixed = Client::default().with("Cookie", &format!("JSESSIONID={OTHER}; other=1"));
    let (_, client) = rig.login(&fixed, "admin@a", MD5);
    let cookie = client.headers.last().unwrap().1.clone();
    assert!(!cookie.contains(OTHER));
    assert_eq!(rig.status_of(&fixed, Method::Get, "/rest/v2/user-list"), 403);
    let client = Client::default().with("Cookie", &format!("a=b; JSESSIONID=x; {cookie}"));
    assert_eq!(rig.status_of(&client, Method::Get, "/rest/v2/user-list"), 200);
    assert!(text(&rig.ask_as(&client, Method::Get, "/rest/v2/authentication-status", "")).contains("true"));
    let gone = rig.ask_as(&client, Method::Delete, "/rest/v2/users/logout", "");
    assert!(gone.headers.get("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(rig.status_of(&client, Method::Get, "/rest/v2/user-list"), 403);
    assert!(text(&rig.ask_as(&client, Method::Get, "/rest/v2/authentication-status", "")).contains("false"));
}

#[test]
fn r_31_cookies_are_for_this_server_alone() {
    let mut rig = Rig::new();
    rig.initial("admin@a");
    let body = format!(r#"{{"email":"admin@a","password":"{MD5}"}}"#);
    for secure in [false, true] {
        let mut request = request(Method::Post, "/rest/v2/users/authenticate", &body);
        request.headers.push("Content-Type", "application/json");
        let session = rig.session(0);
        let peer = "127.0.0.1:9".parse().unwrap();
        rig.mail(ToControl::Rest { session, peer, secure, request: Box::new(request) });
        rig.work();
        let cookie = rig.response(session).unwrap().headers.get("set-cookie").unwrap().to_owned();
        assert!(cookie.ends_with(if secure { "; Secure" } else { "; SameSite=Lax" }), "{cookie}");
        assert!(cookie.starts_with("JSESSIONID=") && cookie.contains("; Path=/; HttpOnly; SameSite=Lax"));
    }
}

#[test]
fn r_32_sessions_end_with_time_with_the_password_and_with_the_user() {
    let (mut rig, admin) = Rig::administered();
    let user = serde_json::json!({"email":"u@a","password":MD5,"userType":"ADMIN","scope":"system"});
    let client = rig.add_user_by(&admin, user.clone());
    let list = "/rest/v2/user-list";
    assert_eq!(rig.status_of(&client, Method::Get, list), 200);
    // A new password immediately ends the sessions that began with the old one, except the one that set it.
    let (_, other) = rig.login(&Client::default(), "u@a", MD5);
    let change = format!(r#"{{"password":"{MD5}","newPassword":"{OTHER}"}}"#);
    let changed = rig.ask_as(&client, Method::Post, "/rest/v2/users/password", &change);
    assert!(text(&changed).contains("Success"), "{changed:?}");
    assert_eq!([&client, &other].map(|client| rig.status_of(client, Method::Get, list)), [200, 403]);
    assert_eq!(rig.login(&Client::default(), "u@a", MD5).0["success"], false);
    let (_, client) = rig.login(&Client::default(), "u@a", OTHER);
    assert_eq!(rig.status_of(&client, Method::Get, list), 200);
    // A change of the password by an administrator ends the sessions, too; a changed name does not.
    let edited = serde_json::json!({"email":"u@a","userType":"READ_ONLY","scope":"system","firstName":"U"});
    rig.ask_as(&admin, Method::Put, "/rest/v2/users", &edited.to_string());
    assert_eq!(rig.status_of(&client, Method::Get, list), 200);
    assert_eq!(
        rig.status_of(&client, Method::Post, "/rest/v2/system/gc"),
        403,
        "the new role counts at once"
    );
    let edited = serde_json::json!({"email":"u@a","userType":"ADMIN","scope":"system","newPassword":MD5});
    rig.ask_as(&admin, Method::Put, "/rest/v2/users", &edited.to_string());
    assert_eq!(rig.status_of(&client, Method::Get, list), 403);
    let (_, client) = rig.login(&Client::default(), "u@a", MD5);
    let gone = rig.ask_as(&admin, Method::Delete, "/rest/v2/users/u@a", "");
    assert!(text(&gone).contains("true"));
    assert_eq!(rig.status_of(&client, Method::Get, list), 403);
    // Sessions end after some time without a request.
    assert_eq!(rig.status_of(&admin, Method::Get, list), 200);
    rig.run_for(Duration::from_secs(30 * 60));
    assert_eq!(rig.status_of(&admin, Method::Get, list), 403);
}

#[test]
fn users_are_made_changed_and_deleted_with_the_reference_s_words() {
    let (mut rig, admin) = Rig::administered();
    let mut post = |body: &str| text(&rig.ask_as(&admin, Method::Post, "/rest/v2/users", body));
    assert!(post("").contains("User object is null"));
    for body in
        [r#"{"email":"x@a"}"#, r#"{"password":"x"}"#, &format!(r#"{{"email":"admin@a","password":"{MD5}"}}"#)]
    {
        assert!(post(body).contains("User with the same e-mail already exists"), "{body}");
    }
    assert!(post(r#"{"email":"x@a","password":"plain"}"#).contains("MD5"));
    assert!(post(&format!(r#"{{"email":"x@a","password":"{MD5}","unknown":1}}"#)).contains("true"));
    let bad = rig.ask_as(&admin, Method::Post, "/rest/v2/users", r#"{"email":"y@a","userType":"KING"}"#);
    assert_eq!(bad.status, 400);
    let list = text(&rig.ask_as(&admin, Method::Get, "/rest/v2/user-list", ""));
    assert!(
        list.contains(r#"{"email":"x@a","userType":null,"scope":null"#) && !list.contains("hash"),
        "{list}"
    );
    let mut put = |body: &str| text(&rig.ask_as(&admin, Method::Put, "/rest/v2/users", body));
    assert!(put(r#"{"email":"admin@a"}"#).contains("User cannot edit itself"));
    assert!(put(r#"{"email":"nobody@a"}"#).contains("Edited user is not found in database"));
    let mut delete =
        |email: &str| text(&rig.ask_as(&admin, Method::Delete, &format!("/rest/v2/users/{email}"), ""));
    assert!(delete("admin@a").contains("You cannot delete yourself"));
    assert!(delete("nobody@a").contains(r#""success":false"#));
    assert!(delete("x@a").contains(r#""success":true"#));
    let mut password = |body: &str| text(&rig.ask_as(&admin, Method::Post, "/rest/v2/users/password", body));
    assert!(password("").contains("User name does not exist or there is no new password"));
    let body = format!(r#"{{"password":"{OTHER}","newPassword":"{OTHER}"}}"#);
    assert!(password(&body).contains("User not exist with that name and pass"));
    assert!(text(&rig.ask_as(&admin, Method::Get, "/rest/v2/admin-status", "")).contains("User is admin"));
}

#[test]
fn users_survive_a_restart_and_sessions_do_not() {
    let (mut rig, admin) = Rig::administered();
    rig.run_for(Duration::from_secs(1));
    let mut rig = Rig::start(config(&[], &[]), std::mem::take(&mut rig.store));
    assert_eq!(rig.status_of(&admin, Method::Get, "/rest/v2/user-list"), 403);
    assert_eq!(rig.initial("again@a")["success"], false);
    assert_eq!(rig.login(&Client::default(), "admin@a", MD5).0["message"], "system/ADMIN");
}

#[test]
fn r_33_only_the_hash_of_the_password_logs_in() {
    let mut rig = Rig::new();
    rig.initial("admin@a");
    let there = |n: u8| Client::at(["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"][usize::from(n)]);
    for (from, password) in [
        (0, "password"),
        (0, "hash of 5f4dcc3b5aa765d61d8327deb882cf99"),
        (1, "' OR 1=1 --"),
        (1, "\\u0000"),
        (2, ""),
        (2, OTHER),
    ] {
        let (result, client) = rig.login(&there(from), "admin@a", password);
        assert_eq!((&result["success"], &result["message"]), (&false.into(), &"".into()), "{password}");
        assert!(client.headers.is_empty());
        rig.run_for(Duration::from_secs(1));
    }
    let there = Client::at("192.0.2.4:1");
    assert_eq!(rig.login(&there, "admin@a", &MD5.to_uppercase()).0["success"], true);
    let long = format!(r#"{{"email":"admin@a","password":"{}"}}"#, "x".repeat(200_000));
    let response = rig.ask_as(&there, Method::Post, "/rest/v2/users/authenticate", &long);
    assert!(text(&response).contains(r#""success":false"#));
    // The password of an unknown user is hashed, too.
    let body = format!(r#"{{"email":"nobody@a","password":"{MD5}"}}"#);
    let mut request = request(Method::Post, "/rest/v2/users/authenticate", &body);
    request.headers.push("Content-Type", "application/json");
    rig.send_request("192.0.2.5:1", request);
    assert_eq!(rig.hashes.len(), 1);
}

#[test]
fn r_34_writes_by_cookie_come_from_our_own_pages() {
    let (mut rig, admin) = Rig::administered();
    let gc = |rig: &mut Rig, client: &Client| rig.status_of(client, Method::Post, "/rest/v2/system/gc");
    let own = admin.with("Host", "media.example:5080");
    assert_eq!(gc(&mut rig, &own), 200, "no browser");
    assert_eq!(gc(&mut rig, &own.with("Origin", "http://media.example:5080")), 200);
    assert_eq!(gc(&mut rig, &own.with("Sec-Fetch-Site", "same-origin")), 200);
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "http://media.example:8080"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        assert_eq!(gc(&mut rig, &own.with(name, value)), 403, "{name}: {value}");
        assert_eq!(rig.status_of(&own.with(name, value), Method::Get, "/rest/v2/user-list"), 200);
    }
    // A form on another site cannot send JSON.
    for path in
        ["/rest/v2/users", "/rest/v2/system/gc", "/rest/v2/request?_path=live/rest/v2/broadcasts/x/stop"]
    {
        for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
            let mut form = request(Method::Post, path, r#"{"email":"x@a"}"#);
            form.headers.push("Content-Type", content_type);
            for (name, value) in &own.headers {
                form.headers.push(name.as_str(), value.as_str());
            }
            let session = rig.send_request("127.0.0.1:9", form);
            assert_eq!(rig.response(session).unwrap().status, 415, "{path}");
        }
    }
    // Pages of other origins may send requests if the settings name them.
    let mut rig = Rig::with(&[("server.cors_origins", "http://panel.example")], &[]);
    rig.initial("admin@a");
    let (_, admin) = rig.login(&Client::default(), "admin@a", MD5);
    assert_eq!(gc(&mut rig, &admin.with("Origin", "http://panel.example")), 200);
    assert_eq!(gc(&mut rig, &admin.with("Origin", "http://evil.example")), 403);
}

#[test]
fn r_36_failures_lock_the_address_and_not_the_user() {
    let mut rig = Rig::new();
    rig.initial("admin@a");
    let (a, b) = (Client::at("192.0.2.1:1"), Client::at("192.0.2.2:1"));
    let blocked = |rig: &mut Rig, from: &Client| {
        text(&rig.ask_as(from, Method::Get, "/rest/v2/users/admin@a/blocked", "")).contains("true")
    };
    for _ in 0..3 {
        assert!(!blocked(&mut rig, &a));
        assert_eq!(rig.login(&a, "admin@a", OTHER).0["message"], "");
    }
    assert!(blocked(&mut rig, &a) && !blocked(&mut rig, &b));
    let words = "Too many login attempts. User is blocked for 300 secs";
    assert_eq!(rig.login(&a, "admin@a", MD5).0["message"], words);
    assert_eq!(rig.login(&b, "admin@a", MD5).0["success"], true);
    rig.run_for(Duration::from_secs(290));
    assert_eq!(rig.login(&a, "admin@a", MD5).0["message"], words);
    rig.run_for(Duration::from_secs(11));
    assert!(blocked(&mut rig, &a), "until the next try");
    assert_eq!(rig.login(&a, "admin@a", MD5).0["success"], true);
    assert!(!blocked(&mut rig, &a));
}

#[test]
fn q_04_a_wall_clock_that_is_set_opens_and_extends_no_lock() {
    for by_ms in [3_600_000, -3_600_000] {
        let mut rig = Rig::new();
        rig.initial("admin@a");
        let (a, b) = (Client::at("192.0.2.1:1"), Client::at("192.0.2.2:1"));
        let session = rig.login(&b, "admin@a", MD5).1;
        for _ in 0..3 {
            assert_eq!(rig.login(&a, "admin@a", OTHER).0["message"], "");
        }
        let words = "Too many login attempts. User is blocked for 300 secs";
        rig.shift_wall(by_ms);
        rig.run_for(Duration::from_secs(280));
        assert_eq!(rig.login(&a, "admin@a", MD5).0["message"], words, "{by_ms}");
        rig.shift_wall(by_ms);
        rig.run_for(Duration::from_secs(21));
        assert_eq!(rig.login(&a, "admin@a", MD5).0["success"], true, "{by_ms}");
        // The lifetime of sessions does not depend on the wall clock either.
        assert_eq!(rig.status_of(&session, Method::Get, "/rest/v2/user-list"), 200, "{by_ms}");
    }
}

#[test]
fn r_36_a_failure_is_answered_late_and_ten_a_second_are_tried() {
    let mut rig = Rig::new();
    rig.initial("admin@a");
    rig.run_for(Duration::from_secs(2));
    let mut sent = Vec::new();
    for n in 0..40 {
        let body = format!(r#"{{"email":"u{n}@a","password":"{OTHER}"}}"#);
        let mut request = request(Method::Post, "/rest/v2/users/authenticate", &body);
        request.headers.push("Content-Type", "application/json");
        sent.push(rig.send_request(&format!("192.0.2.{n}:1"), request));
    }
    // Of the ten attempts in a second, four are reserved for addresses with an earlier login.
    assert_eq!(rig.hashes.len(), 6);
    let refused: Vec<_> = sent[6..].iter().map(|session| rig.response(*session).unwrap().status).collect();
    assert!(refused.iter().all(|status| *status == 429));
    rig.work();
    let began = rig.now.mono;
    let mut late = Vec::new();
    while late.len() < 6 {
        rig.run_for(Duration::from_millis(50));
        assert!(rig.now.mono - began < Duration::from_secs(5));
        for session in &sent[..6] {
            if rig.response(*session).is_some() {
                late.push(rig.now.mono - began);
            }
        }
    }
    assert!(late[0] < late[5] && late[5] > Duration::from_millis(500), "{late:?}");
}

#[test]
fn roles_and_scopes_say_who_may_what() {
    let (mut rig, admin) = Rig::administered();
    rig.create("s1");
    let user = |email: &str, role: &str, scope: &str| serde_json::json!({"email": email, "password": MD5, "userType": role, "scope": scope});
    let mapped = serde_json::json!({"email":"m@a","password":MD5,"appNameUserType":{"live":"USER","LiveApp":"READ_ONLY"}});
    let system_reader = rig.add_user_by(&admin, user("sr@a", "READ_ONLY", "system"));
    let app_admin = rig.add_user_by(&admin, user("aa@a", "ADMIN", "live"));
    let app_user = rig.add_user_by(&admin, user("au@a", "USER", "live"));
    let app_reader = rig.add_user_by(&admin, user("ar@a", "READ_ONLY", "live"));
    let mixed = rig.add_user_by(&admin, mapped);
    let nobody =
        rig.add_user_by(&admin, serde_json::json!({"email":"n@a","password":MD5,"userType":"ADMIN"}));
    let clients = [&admin, &system_reader, &app_admin, &app_user, &app_reader, &mixed, &nobody];
    let proxied = |app: &str, rest: &str| format!("/rest/v2/request?_path={app}/rest/v2/{rest}");
    let table: &[(Method, String, [bool; 7])] = &[
        (Method::Get, "/rest/v2/version".into(), [true; 7]),
        (Method::Get, "/rest/v2/admin-status".into(), [true; 7]),
        (Method::Get, "/rest/v2/enterprise-edition".into(), [true; 7]),
        (Method::Post, "/rest/v2/support/request".into(), [true; 7]),
        (Method::Get, "/rest/v2/user-list".into(), [true, true, false, false, false, false, false]),
        (Method::Get, "/rest/v2/applications".into(), [true, true, false, false, false, false, false]),
        (Method::Get, "/rest/v2/system-resources".into(), [true, true, false, false, false, false, false]),
        (Method::Post, "/rest/v2/system/gc".into(), [true, false, false, false, false, false, false]),
        (Method::Get, "/rest/v2/nothing".into(), [true, true, false, false, false, false, false]),
        (
            Method::Get,
            "/rest/v2/applications/settings/live".into(),
            [true, true, true, true, true, true, false],
        ),
        (
            Method::Get,
            "/rest/v2/applications/settings/LiveApp".into(),
            [true, true, false, false, false, true, false],
        ),
        (Method::Get, proxied("live", "broadcasts/s1"), [true, true, true, true, true, true, false]),
        (Method::Get, proxied("LiveApp", "broadcasts/count"), [true, true, false, false, false, true, false]),
        (Method::Post, proxied("live", "broadcasts/s1/stop"), [true, false, true, true, false, true, false]),
        (Method::Delete, proxied("live", "vods/1"), [true, false, true, true, false, true, false]),
        (
            Method::Post,
            proxied("live", "push-notification/subscribers"),
            [true, false, true, false, false, false, false],
        ),
        (
            Method::Post,
            proxied("LiveApp", "broadcasts/x/stop"),
            [true, false, false, false, false, false, false],
        ),
        (Method::Get, proxied("live2", "version"), [true, true, false, false, false, false, false]),
        (
            Method::Get,
            "/rest/v2/request?_path=rest/v2/user-list".into(),
            [true, true, false, false, false, false, false],
        ),
        (
            Method::Get,
            "/rest/v2/request?_path=live/../rest/v2/user-list".into(),
            [true, true, false, false, false, false, false],
        ),
    ];
    for (method, path, may) in table {
        for (client, may) in clients.iter().zip(may) {
            let response = rig.ask_as(client, *method, path, "");
            let refused = response.status == 403;
            assert_eq!(!refused, *may, "{method} {path} {client:?}");
            if refused {
                assert!(
                    text(&response).contains("Not allowed to access this resource. Contact system admin")
                );
            }
        }
    }
}

#[test]
fn the_proxy_is_the_same_api_from_this_machine() {
    let (mut rig, admin) = Rig::administered();
    let path = "/rest/v2/request?_path=live/rest/v2/broadcasts/create&autoStart=false";
    let made = rig.ask_as(&admin, Method::Post, path, r#"{"streamId":"p1","name":"P"}"#);
    assert_eq!((made.status, rig.record("p1")["name"].as_str().unwrap()), (200, "P"));
    // A panel's call passes even from an address that the application's filter would refuse, whatever headers it has.
    let (_, far) = rig.login(&Client::at("192.0.2.1:1"), "admin@a", MD5);
    let count = "/rest/request?_path=live/rest/v2/broadcasts/count";
    assert_eq!(text(&rig.ask_as(&far, Method::Get, count, "")), r#"{"number":1}"#);
    let spoofing = far.with("X-Forwarded-For", "10.0.0.1");
    assert_eq!(text(&rig.ask_as(&spoofing, Method::Get, count, "")), r#"{"number":1}"#);
    let unknown = "/rest/v2/request?_path=live/rest/v2/broadcasts/none";
    assert_eq!(rig.status_of(&admin, Method::Get, unknown), 404);
    let list = "/rest/v2/request?_path=live/rest/v2/broadcasts/list/0/10?sort_by=name&order_by=asc";
    assert_eq!(rig.status_of(&admin, Method::Get, list), 200);
    for path in ["/rest/v2/request", "/rest/v2/request?_path=", "/rest/v2/request?_path=none/rest/v2/version"]
    {
        assert_eq!(rig.status_of(&admin, Method::Get, path), 404, "{path}");
    }
}

#[test]
fn r_04_r_07_a_token_decides_when_that_way_is_on() {
    let settings = [("server.jwtServerControlEnabled", "true"), ("server.jwtServerSecretKey", SECRET)];
    let mut rig = Rig::with(&settings, &[]);
    rig.initial("admin@a");
    let (_, admin) = rig.login(&Client::default(), "admin@a", MD5);
    let good = jwt::sign(&jwt::Claims::new(), SECRET.as_bytes());
    let with = |token: &str| Client::default().with("ProxyAuthorization", token);
    let resources = "/rest/v2/system-resources";
    assert_eq!(rig.status_of(&with(&good), Method::Get, resources), 200);
    assert_eq!(rig.status_of(&with(&good), Method::Post, "/rest/v2/system/gc"), 200);
    assert_eq!(
        rig.status_of(&with(&good).with("Origin", "http://e.example"), Method::Post, "/rest/v2/system/gc"),
        200
    );
    // The token has all rights but is not a user, so it cannot change a password of its own.
    let password = format!(r#"{{"password":"{MD5}","newPassword":"{OTHER}"}}"#);
    let response = rig.ask_as(&with(&good), Method::Post, "/rest/v2/users/password", &password);
    assert!(text(&response).contains("User name does not exist"));
    let wrong = jwt::sign(&jwt::Claims::new(), b"another secret of sufficient length");
    for token in [&wrong, "x", "a.b.c", &format!("Bearer {good}"), &good[..good.len() - 1]] {
        for client in [with(token), admin.with("ProxyAuthorization", token)] {
            let response = rig.ask_as(&client, Method::Get, resources, "");
            assert_eq!(response.status, 403, "no fall-back to the cookie");
            assert!(text(&response).contains("Invalid Server JWT Token"), "{token}");
        }
    }
    let twice = with(&good).with("ProxyAuthorization", &good);
    assert_eq!(rig.status_of(&twice, Method::Get, resources), 400);
    assert_eq!(rig.status_of(&admin.with("ProxyAuthorization", " "), Method::Get, resources), 200);
    // The expiry of a token follows the wall clock, even if it jumps.
    let mut claims = jwt::Claims::new();
    claims.insert("exp".into(), (START_MS / 1000 + 60).into());
    let short = with(&jwt::sign(&claims, SECRET.as_bytes()));
    assert_eq!(rig.status_of(&short, Method::Get, resources), 200);
    rig.now.wall_ms += 86_400_000;
    assert_eq!(rig.status_of(&short, Method::Get, resources), 403);
    // If the settings name no secret for tokens, the header `ProxyAuthorization` has no effect.
    let (mut rig, admin) = Rig::administered();
    assert_eq!(rig.status_of(&with(&good), Method::Get, resources), 403);
    assert_eq!(rig.status_of(&admin.with("ProxyAuthorization", "x"), Method::Get, resources), 200);
}

#[test]
fn r_37_odd_cookies_are_nobody() {
    let (mut rig, admin) = Rig::administered();
    let many = vec!["JSESSIONID=x"; 1000].join("; ");
    for cookie in [many.as_str(), "JSESSIONID", "=;=;=", "\u{fffd}", "jsessionid=1"] {
        assert_eq!(
            rig.status_of(&Client::default().with("Cookie", cookie), Method::Get, "/rest/v2/user-list"),
            403
        );
    }
    let _ = admin;
}

#[test]
fn system_resources_have_every_member_in_order() {
    let (mut rig, admin) = Rig::administered();
    rig.control.handle_host(
        rig.now,
        HostFigures { memory_total: 8, processors: 2, ..HostFigures::default() },
        Vec::new(),
    );
    let response = rig.ask_as(&admin, Method::Get, "/rest/v2/system-resources", "");
    let answer: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    let names: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "instanceId",
            "cpuUsage",
            "jvmMemoryUsage",
            "systemInfo",
            "systemMemoryInfo",
            "fileSystemInfo",
            "jvmNativeMemoryUsage",
            "softwareVersion",
            "gpuUsageInfo",
            "ffmpegBuildInfo",
            "dbAverageQueryTimeMs",
            "localWebRTCLiveStreams",
            "localLiveStreams",
            "localWebRTCViewers",
            "localHLSViewers",
            "localDASHViewers",
            "encoders-blocked",
            "encoders-not-opened",
            "publish-timeout-errors",
            "vertx-worker-thread-queue-size",
            "webrtc-vertx-worker-thread-queue-size",
            "server-timing",
            "totalLiveStreamSize",
        ]
    );
    assert_eq!(answer["systemInfo"]["processorCount"], 2);
    let apps = rig.ask_as(&admin, Method::Get, "/rest/v2/applications", "");
    assert_eq!(text(&apps), r#"{"applications":["LiveApp","live"]}"#);
}

#[test]
fn r_11_r_12_no_operation_fails_on_junk() {
    let (mut rig, admin) = Rig::administered();
    let deep = "[".repeat(10_000);
    let bodies = [
        "",
        "null",
        "[]",
        "1e400",
        "{",
        "\u{feff}{}",
        "{} {}",
        "\u{0}",
        deep.as_str(),
        r#"{"email":null,"password":null}"#,
        r#"{"email":1,"password":[]}"#,
        r#"{"email":"a","email":"b"}"#,
        r#"{"streamId":"\ud800","name":-1}"#,
        r#"{"hlsTime":1e999,"gopCache":"maybe","encoderSettings":[1,null,{}]}"#,
        r#"{"serverName":{},"logLevel":"LOUD"}"#,
    ];
    // Paths that may answer with a server error, as in Ant Media Server.
    let meant = ["/cluster/", "/shutdown-proper"];
    let mut forbidden = 0;
    for route in routes().filter(|route| !["/metrics", "/users/logout"].contains(&route.path)) {
        let base = route.base.prefix().replace("{app}", "live");
        for param in ["7", "-1", "live", "%00", "9223372036854775808", "\u{1f600}"] {
            if param == "live" && route.method == Method::Delete && route.path == "/applications/{app}" {
                continue;
            }
            let part = |part: &str| if part.starts_with('{') { param.to_owned() } else { part.to_owned() };
            let path = route.path.split('/').map(part).collect::<Vec<_>>().join("/");
            for body in bodies {
                // Each request has a user of its own, so that the test continues after a request has deleted its
                // user.
                let mut request = request(route.method, &format!("{base}{path}?size=-1&id=x"), body);
                request.headers.push("Content-Type", "application/json");
                for (name, value) in &admin.headers {
                    request.headers.push(name.as_str(), value.as_str());
                }
                let session = rig.send_request("127.0.0.1:9", request);
                // Jobs are not part of this test; only answers must make sense.
                for (id, _) in std::mem::take(&mut rig.hashes) {
                    rig.done(id, Outcome::Busy);
                }
                for id in std::mem::take(&mut rig.admin) {
                    rig.done(id, Outcome::Admin(AdminOutcome::Failed("nobody is there".into())));
                }
                if let Some(response) = rig.response(session) {
                    forbidden += usize::from(response.status == 403);
                    let fine =
                        response.status < 500 || meant.iter().any(|known| route.path.starts_with(known));
                    let busy = response.status == 503 || route.path.starts_with("/log-file");
                    assert!(fine || busy, "{} {path} {body:.40}: {response:?}", route.method);
                }
            }
        }
    }
    assert_eq!(forbidden, 0, "the administrator may everything");
}
