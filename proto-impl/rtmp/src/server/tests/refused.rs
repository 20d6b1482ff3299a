//! Requests that a server refuses, and the number of mistakes that it takes.

use std::time::Duration;

use super::*;
use crate::Verb;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn m_09_bad_messages_now_and_then_never_end_a_stream() {
    // How often one comes, how many in the while that is looked at, and whether they end the connection.
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
        (publish(1, "a b?token=secret"), Verb::Publish, "live/a b", "stream name is invalid"),
        (play(1, "a$/secret"), Verb::Play, "live/a$", "stream name is invalid"),
        (publish(1, &format!("s1?{}", "a&".repeat(33))), Verb::Publish, "live/s1", "too many parameters"),
        (publish(5, "s1?token=secret"), Verb::Publish, "live/s1", "No such stream."),
    ] {
        let mut rig = Rig::connected();
        rig.feed(&[create_stream(), request].concat());
        assert_eq!(told(&rig), Some((verb, key.to_owned(), reason)));
    }
    let mut rig = Rig::publishing();
    rig.feed(&play(1, "s1"));
    assert_eq!(told(&rig), Some((Verb::Play, "live/s1".to_owned(), "The stream is in use.")));
    let mut rig = Rig::new();
    rig.feed(&[shake(), connect("a b?token=secret")].concat());
    assert_eq!(told(&rig), Some((Verb::Connect, "a b".to_owned(), "application name is invalid")));
}
