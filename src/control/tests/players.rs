//! Events of players.

use super::*;
use crate::auth::jwt;
use crate::stats::{ViewerFigures, ViewerName};

const EVENTS: &str = "/live/analytic/events";

fn event(rig: &mut Rig, kind: &str, body: &str) -> u16 {
    let mut request = request(Method::Post, &format!("{EVENTS}/{kind}"), body);
    request.headers.push("Content-Type", "application/json");
    // Players may send events from any address.
    let session = rig.send_request("8.8.8.8:1", request);
    rig.answer(session).unwrap().0
}

#[test]
fn events_of_players_are_counted_and_leave_nothing_else() {
    let mut rig = Rig::new();
    for (kind, body, status) in [
        ("play", r#"{"event":"playStarted","protocol":"webrtc","streamId":"s","clientIP":"1.2.3.4"}"#, 200),
        ("play", r#"{"event":"playStarted","protocol":"WebRTC","made":{"up":[1]}}"#, 200),
        ("play", r#"{"event":7,"protocol":null}"#, 200),
        ("play", "", 200),
        ("watch-time", r#"{"event":"watchTime","watchTimeMs":1500,"protocol":"hls"}"#, 200),
        ("watch-time", r#"{"watchTimeMs":"500","protocol":"hls"}"#, 200),
        ("watch-time", r#"{"watchTimeMs":-9223372036854775808}"#, 200),
        ("play", "[1]", 400),
        ("play", "{", 400),
        ("watch-time", r#"{"watchTimeMs":[]}"#, 400),
        ("nothing", "{}", 404),
    ] {
        assert_eq!(event(&mut rig, kind, body), status, "{kind} {body}");
    }
    let players = rig.control.figures.players;
    let events: Vec<_> = players.events().collect();
    assert_eq!(events, [("playStarted", "webrtc", 2), ("other", "other", 2)]);
    assert_eq!(players.watched_ms().collect::<Vec<_>>(), [("hls", 2000)]);
    let get = rig.send_request("8.8.8.8:1", request(Method::Get, &format!("{EVENTS}/play"), ""));
    assert_eq!(rig.answer(get).unwrap().0, 405);
    let mut text = request(Method::Post, &format!("{EVENTS}/play"), "{}");
    text.headers.push("Content-Type", "text/plain");
    let text = rig.send_request("8.8.8.8:1", text);
    assert_eq!(rig.answer(text).unwrap().0, 415);
    let none = rig.send_request("8.8.8.8:1", request(Method::Post, "/none/analytic/events/play", "{}"));
    assert_eq!(rig.answer(none).unwrap().0, 404);
}

#[test]
fn a_secured_endpoint_takes_events_with_a_token_alone() {
    let secret = "0123456789abcdef0123456789abcdef";
    let mut rig = Rig::with(&[], &[("secureAnalyticEndpoint", "true"), ("jwtSecretKey", secret)]);
    let token = |secret: &str| jwt::sign(&jwt::Claims::new(), secret.as_bytes());
    let with = |token: &str| format!(r#"{{"event":"playStarted","protocol":"hls","token":"{token}"}}"#);
    let foreign = token("another secret of enough bytes, x");
    for (body, status) in
        [("{}".to_owned(), 401), (with("a.b.c"), 401), (with(&foreign), 401), (with(&token(secret)), 200)]
    {
        assert_eq!(event(&mut rig, "play", &body), status, "{body}");
    }
    assert_eq!(rig.control.figures.players.events().collect::<Vec<_>>(), [("playStarted", "hls", 1)]);
    // Without a secret, no token is valid.
    let mut rig = Rig::with(&[], &[("secureAnalyticEndpoint", "true")]);
    assert_eq!(event(&mut rig, "watch-time", &with(&token(""))), 401);
}

/// Sends a request, lets the workers report these viewers, and returns the answer and the mail to workers.
fn asked(rig: &mut Rig, method: Method, path: &str, viewers: &[ViewerFigures]) -> (String, Vec<ToWorker>) {
    rig.take();
    let session = rig.send(method, &format!("/live/rest/v2/broadcasts/s/viewers/{path}"), "");
    for (worker, mail) in rig.take() {
        let ToWorker::Connections(stream) = mail else { continue };
        let is_here = |one: &&ViewerFigures| match one.name {
            ViewerName::Session(SessionRef { worker: here, .. }) | ViewerName::Lease { worker: here, .. } => {
                here == worker
            }
        };
        let viewers = viewers.iter().filter(is_here).cloned().collect();
        rig.mail(ToControl::Connections { worker, stream, connections: Vec::new(), viewers });
    }
    let (status, body) = rig.answer(session).unwrap();
    assert_eq!(status, 200, "{body}");
    (body, rig.take().into_iter().map(|(_, mail)| mail).collect())
}

#[test]
fn viewers_are_listed_and_one_of_them_is_ended_by_its_name() {
    let mut rig = Rig::new();
    assert_eq!(rig.get("/live/rest/v2/broadcasts/s/viewers/list/0/5").1, "[]");
    assert!(rig.post("/live/rest/v2/broadcasts/s/viewers/0-1-0-0/stop", "").1.contains("is not live"));
    rig.publish("s", 0);
    let viewer = |slot, seconds| ViewerFigures {
        name: ViewerName::Session(SessionRef::new(WorkerId(0), ConnId { slot, generation: 3 })),
        address: "::ffff:192.0.2.7".parse().unwrap(),
        protocol: "rtmp",
        seconds,
    };
    let both = [viewer(1, 5), viewer(2, 60)];
    let (list, _) = asked(&mut rig, Method::Get, "list/0/5", &both);
    let longest = r#"{"viewerId":"0-2-3-0","protocol":"rtmp","clientIp":"192.0.2.7","seconds":60}"#;
    assert!(list.starts_with(&format!("[{longest},")), "{list}");
    assert_eq!(asked(&mut rig, Method::Get, "list/0/1", &both).0, format!("[{longest}]"));
    assert_eq!(asked(&mut rig, Method::Get, "list/2/5", &both).0, "[]");
    // A request that does not name a viewer of this stream ends no viewer: the name could be that of
    // another application's viewer.
    for name in ["0-2-2-0", "0-9-3-0", "1-2-3-0", "x", "%00"] {
        let (answer, mail) = asked(&mut rig, Method::Post, &format!("{name}/stop"), &both);
        assert!(answer.contains("There is no such viewer"), "{name}: {answer}");
        assert!(!mail.iter().any(|mail| matches!(mail, ToWorker::EndViewer { .. })), "{name}");
    }
    let (answer, mail) = asked(&mut rig, Method::Post, "0-2-3-0/stop", &both);
    assert_eq!(answer, PLAIN);
    let is_it =
        |mail: &&ToWorker| matches!(mail, ToWorker::EndViewer { viewer, .. } if viewer.conn.slot == 2);
    assert_eq!(mail.iter().filter(is_it).count(), 1, "{mail:?}");
}

#[test]
fn a_viewer_without_a_connection_is_listed_and_ended_on_every_worker() {
    let mut rig = Rig::with(&[("server.workers", "2")], &[]);
    rig.publish("s", 0);
    let viewers = [ViewerFigures {
        name: ViewerName::Lease { worker: WorkerId(1), number: 7, identity: "t:a secret token".into() },
        address: "192.0.2.7".parse().unwrap(),
        protocol: "hls",
        seconds: 5,
    }];
    let (list, _) = asked(&mut rig, Method::Get, "list/0/5", &viewers);
    assert_eq!(list, r#"[{"viewerId":"1-7","protocol":"hls","clientIp":"192.0.2.7","seconds":5}]"#);
    for name in ["0-7", "1-8", "1-7-0-0"] {
        let (answer, mail) = asked(&mut rig, Method::Post, &format!("{name}/stop"), &viewers);
        assert!(answer.contains("There is no such viewer"), "{name}: {answer}");
        assert!(!mail.iter().any(|mail| matches!(mail, ToWorker::EndPolled { .. })), "{name}");
    }
    let (answer, mail) = asked(&mut rig, Method::Post, "1-7/stop", &viewers);
    assert_eq!(answer, PLAIN);
    let is_it = |mail: &&ToWorker| matches!(mail, ToWorker::EndPolled { protocol: "hls", viewer, .. } if **viewer == *"t:a secret token");
    assert_eq!(mail.iter().filter(is_it).count(), 2, "its requests may reach any worker: {mail:?}");
}
