//! Sources that are to run and wait: for room, for their id, for their application.

use super::*;

/// The ids of the sources whose attempts were ordered since the last look.
fn begun(rig: &mut Rig) -> Vec<String> {
    rig.pulls().into_iter().map(|(_, order)| order.key.id.to_string()).collect()
}

/// Two sources that ran, and a server in which there is room for one.
fn short_of_room() -> Rig {
    let mut rig = Rig::new();
    ["a", "b"].into_iter().for_each(|id| rig.source(id, URL));
    rig.run_for(secs(1));
    let mut rig = Rig::start(config(&[], &[("ingestingStreamLimit", "1")]), rig.store);
    assert_eq!(begun(&mut rig), ["a"]);
    rig.run_for(secs(20));
    assert_eq!(begun(&mut rig), [""; 0]);
    rig
}

#[test]
fn b_34_a_source_that_found_no_room_begins_when_there_is_some() {
    let mut rig = short_of_room();
    assert_eq!(rig.op("a", "stop"), stopped());
    rig.run_for(secs(2));
    assert_eq!(begun(&mut rig), ["b"]);
}

#[test]
fn b_34_a_source_that_waits_for_room_can_be_stopped() {
    let mut rig = short_of_room();
    assert_eq!((rig.op("b", "stop"), rig.op("a", "stop")), (stopped(), stopped()));
    rig.run_for(secs(20));
    assert_eq!(begun(&mut rig), [""; 0]);
    let mut rig = rig.crash();
    rig.run_for(secs(20));
    assert_eq!(begun(&mut rig), [""; 0]);
}

#[test]
fn b_34_a_subtrack_that_waits_for_room_is_stopped_with_its_main_track() {
    let stop = format!("{BROADCASTS}/room/stop");
    let mut rig = short_of_room();
    rig.create("room");
    for id in ["a", "b"] {
        assert_eq!(rig.post(&format!("{BROADCASTS}/room/subtrack?id={id}"), "").0, 200);
    }
    assert!(rig.post(&format!("{stop}?stopSubtracks=false"), "").1.contains(r#""success":false"#));
    assert_eq!(rig.post(&stop, "").1, ok("").1);
    // Nothing but what was answered: no time passes before the crash.
    let mut rig = rig.crash();
    assert_eq!(begun(&mut rig), [""; 0]);
    // One that waits while the other runs on, alone or behind a restart.
    let mut rig = short_of_room();
    rig.create("room");
    rig.post(&format!("{BROADCASTS}/room/subtrack?id=b"), "");
    assert!(rig.post(&stop, "").1.contains(r#""success":true"#));
    assert!(rig.post(&stop, "").1.contains(r#""success":false"#), "there is nothing to stop any more");
    assert_eq!(rig.op("a", "stop"), stopped());
    rig.run_for(secs(20));
    assert_eq!(begun(&mut rig), [""; 0]);
    let mut rig = rig.crash();
    rig.run_for(secs(20));
    assert_eq!(begun(&mut rig), [""; 0]);
}

#[test]
fn b_34_sources_that_wait_for_room_and_are_deleted_stay_away() {
    let ways: [(Method, &str, &str); 4] = [
        (Method::Delete, "/b", ""),
        (Method::Delete, "?ids=b", ""),
        (Method::Delete, "/bulk", r#"["b"]"#),
        (Method::Delete, "/room", ""),
    ];
    for (method, path, text) in ways {
        let mut rig = short_of_room();
        rig.create("room");
        rig.post(&format!("{BROADCASTS}/room/subtrack?id=b"), "");
        assert_eq!(rig.call(method, &format!("{BROADCASTS}{path}"), text).0, 200, "{path}");
        // Another record of this id is not started by what was asked of the former one.
        rig.post(&format!("{BROADCASTS}/create"), &body("b", URL));
        assert_eq!(rig.op("a", "stop"), stopped());
        rig.run_for(secs(20));
        assert_eq!(begun(&mut rig), [""; 0], "{path}");
        assert!(rig.control.held().contains(&("sources held back", 0)), "{path}");
    }
}

#[test]
fn b_34_an_application_that_comes_back_has_the_sources_that_ran() {
    let mut rig = Rig::new();
    rig.source("a", URL);
    rig.run_for(secs(1));
    let settings = (*config(&[], &[]).apps[0]).clone();
    let mut without = config(&[], &[]);
    without.apps.remove(0);
    // Its application is not there at the start.
    let mut rig = Rig::start(without, rig.store);
    rig.control.install_app(rig.now, settings);
    rig.drain();
    assert_eq!(begun(&mut rig), ["a"]);
    rig.control.remove_app(rig.now, &"live".into());
    rig.drain();
    rig.take();
    // One that comes back has what ran.
    rig.control.install_app(rig.now, (*config(&[], &[]).apps[0]).clone());
    rig.drain();
    assert_eq!(begun(&mut rig), ["a"]);
}
