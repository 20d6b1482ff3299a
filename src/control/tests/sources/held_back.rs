//! Sources that should run but wait: for resources, for their id, for their application.

use super::super::claims::{holder, membership};
use super::*;
use crate::config::WithoutDirectory;
use crate::control::broadcast::Broadcast;
use crate::directory::News;
use crate::store;

/// Returns the ids of the sources whose attempts were ordered since the last call.
fn begun(rig: &mut Rig) -> Vec<String> {
    rig.pulls().into_iter().map(|(_, order)| order.key.id.to_string()).collect()
}

/// Makes a server that may run only one source, although two sources should run.
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
    // No time passes before the crash: only changes that were answered have to survive it.
    let mut rig = rig.crash();
    assert_eq!(begun(&mut rig), [""; 0]);
    // A source stopped while it waits stays stopped, even after a restart.
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
        // If a source that should run is deleted, a new record with the same id is not started in its place.
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
    // The application does not exist at the start.
    let mut rig = Rig::start(without, rig.store);
    rig.control.install_app(rig.now, settings);
    rig.drain();
    assert_eq!(begun(&mut rig), ["a"]);
    rig.control.remove_app(rig.now, &"live".into());
    rig.drain();
    rig.take();
    // A returning application starts the sources that ran.
    rig.control.install_app(rig.now, (*config(&[], &[]).apps[0]).clone());
    rig.drain();
    assert_eq!(begun(&mut rig), ["a"]);
}

fn key(id: &str) -> StreamKey {
    StreamKey::new("live", id)
}

impl Rig {
    /// Reports that another node holds the id by a claim, or has released it.
    fn told_elsewhere(&mut self, id: &str, token: Option<u64>) {
        let holder = token.map(|token| holder("c", 1, token));
        self.tell_news(News::Claim { key: key(id), holder });
    }

    /// Grants the last requested claim. Returns the sources whose attempts were ordered.
    fn granted(&mut self) -> Vec<String> {
        let (ticket, _) = self.last_claim();
        self.claim_answer(ticket, true);
        begun(self)
    }

    fn claims(&self) -> usize {
        self.asked_claims().len()
    }

    /// Reports that another node has set whether the source should run.
    fn told_wanted(&mut self, id: &str, source_wanted: bool) {
        let record = self.control.records.get(&key(id)).unwrap().clone();
        let record = Broadcast { source_wanted, status: "finished".into(), ..record };
        self.tell_news(News::Foreign(vec![store::Op::Put(key(id).into(), record.encode())]));
    }
}

/// Starts a node while another node has a publisher with the id of a source that ran here.
fn while_another_has_it(app: &[(&str, &str)]) -> Rig {
    let mut rig = Rig::with_directory(app);
    rig.source("a", URL);
    assert_eq!(rig.granted(), ["a"]);
    rig.run_for(secs(1));
    let mut with = membership(WithoutDirectory::Accept);
    with.claims.insert(key("a"), holder("c", 1, 7));
    let config = ControlConfig { cluster: Some(with), ..config(&[], app) };
    let mut rig = Rig::start(config, rig.store);
    rig.run_for(secs(20));
    assert_eq!((rig.claims(), begun(&mut rig).len()), (0, 0), "its id is not asked for meanwhile");
    rig
}

#[test]
fn b_34_a_source_whose_id_another_node_has_begins_when_that_is_given_back() {
    let mut rig = while_another_has_it(&[]);
    rig.told_elsewhere("a", None);
    rig.run_for(secs(1));
    assert_eq!(rig.claims(), 0, "its record may still say that it was stopped");
    // The id is taken again, and then released for good.
    rig.told_elsewhere("a", Some(8));
    rig.run_for(secs(20));
    rig.told_elsewhere("a", None);
    rig.run_for(secs(5));
    assert_eq!((rig.claims(), rig.granted()), (1, vec!["a".to_owned()]));
}

#[test]
fn b_34_a_source_that_waits_for_another_node_is_stopped_by_its_record() {
    // A stopped source is not started even by an application that starts all its sources.
    for app in [&[][..], &[("startStreamFetcherAutomatically", "true")]] {
        let mut rig = while_another_has_it(app);
        rig.told_elsewhere("a", None);
        rig.run_for(secs(1));
        rig.told_wanted("a", false);
        rig.run_for(secs(20));
        assert_eq!((rig.claims(), begun(&mut rig).len()), (0, 0), "{app:?}");
    }
    // A source stopped here while no node holds its id is not started either.
    let mut rig = while_another_has_it(&[("startStreamFetcherAutomatically", "true")]);
    rig.told_elsewhere("a", None);
    assert_eq!(rig.op("a", "stop"), stopped());
    rig.run_for(secs(20));
    assert_eq!((rig.claims(), begun(&mut rig).len()), (0, 0));
}

#[test]
fn b_34_a_source_that_loses_its_id_to_another_node_begins_again_when_that_gives_it_back() {
    let mut rig = Rig::with_directory(&[]);
    rig.source("a", URL);
    assert_eq!(rig.granted(), ["a"]);
    let token = rig.last_claim().0 * 10;
    rig.told_elsewhere("a", Some(token + 1));
    rig.run_for(secs(20));
    assert_eq!((rig.claims(), begun(&mut rig).len()), (1, 0));
    rig.told_elsewhere("a", None);
    rig.run_for(secs(5));
    assert_eq!(rig.claims(), 2);
    // Another node was faster, but this has not been reported yet.
    rig.claim_answer(rig.last_claim().0, false);
    rig.told_elsewhere("a", Some(token + 2));
    rig.run_for(secs(20));
    let claims = rig.claims();
    assert!(begun(&mut rig).is_empty() && claims <= 3, "{claims}");
    rig.told_elsewhere("a", None);
    rig.run_for(secs(5));
    assert_eq!((rig.claims(), rig.granted()), (claims + 1, vec!["a".to_owned()]));
}
