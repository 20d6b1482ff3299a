//! Events of players.

use super::*;
use crate::auth::jwt;

const EVENTS: &str = "/live/analytic/events";

fn event(rig: &mut Rig, kind: &str, body: &str) -> u16 {
    let mut request = request(Method::Post, &format!("{EVENTS}/{kind}"), body);
    request.headers.push("Content-Type", "application/json");
    // From anywhere: a player's address is none of the operator's.
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
    // Without a secret nobody can have signed anything.
    let mut rig = Rig::with(&[], &[("secureAnalyticEndpoint", "true")]);
    assert_eq!(event(&mut rig, "watch-time", &with(&token(""))), 401);
}
