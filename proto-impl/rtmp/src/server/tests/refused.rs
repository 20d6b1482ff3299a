//! Tests of requests that a server refuses, and of the number of bad messages that it tolerates.

use std::time::Duration;

use super::*;
use crate::Verb;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn m_09_bad_messages_now_and_then_never_end_a_stream() {
    // Interval between bad messages, their number, and whether they end the connection.
    for (every, count, ends) in [
        (secs(3600), 5000, false),
        (millis(61), 5000, false),
        (millis(60), 5000, false),
        (millis(59), 1017, true),
    ] {
        let mut rig = Rig::publishing();
        let mut sent = 0;
        while sent < count && rig.closed().is_none() {
            rig.now += every;
            rig.feed(&[video(1, 0, b"x"), raw(7, 99, 0, 0, b"?")].concat());
            sent += 1;
        }
        assert_eq!(rig.closed().is_some(), ends, "{every:?}: {sent}");
        if ends {
            hits(&rig, Limit::BadMessages);
        }
    }
}

#[test]
fn a_refusal_without_asking_is_told_to_the_owner_without_credentials() {
    let told = |rig: &Rig| {
        let refused = |event: &Event| {
            let Event::Refused { verb, key, reason } = event else { return None };
            Some((*verb, key.clone(), *reason))
        };
        rig.events.iter().find_map(refused)
    };
    for (request, verb, key, reason) in [
        (publish(5, "s1?token=secret"), Verb::Publish, "live/s1", "No such stream."),
        (play(5, "a$/secret"), Verb::Play, "live/a$", "No such stream."),
    ] {
        let mut rig = Rig::connected();
        rig.feed(&[create_stream(), request].concat());
        assert_eq!(told(&rig), Some((verb, key.to_owned(), reason)));
    }
    let mut rig = Rig::publishing();
    rig.feed(&play(1, "s1"));
    assert_eq!(told(&rig), Some((Verb::Play, "live/s1".to_owned(), "The stream is in use.")));
}

/// Checks names that the grammar of keys does not allow. The server does not apply this grammar itself, so an owner
/// with other naming rules gets such names unchanged.
#[test]
fn names_of_another_grammar_are_the_owners_to_take() {
    let mut rig = Rig::new();
    rig.accept = false;
    rig.feed(&[shake(), connect("deep/er app?q=1")].concat());
    let Some(Event::Connect(request)) = rig.events.last().cloned() else { panic!("{:?}", rig.events) };
    assert_eq!(request.path, "deep/er app");
    rig.server.accept_connect(rig.now);
    rig.feed(&[create_stream(), publish(1, "a b/c?token=secret")].concat());
    let Some(Event::Publish(request)) = rig.events.last().cloned() else { panic!("{:?}", rig.events) };
    assert_eq!((request.app.as_str(), request.name.as_str()), ("deep/er app", "a b/c?token=secret"));
    assert!(request.target().is_err() && !format!("{request:?}").contains("secret"));
    rig.server.accept_publish(rig.now, 1);
    rig.feed(&video(1, 0, b"x"));
    assert_eq!((rig.media().len(), rig.closed()), (1, None));
}
