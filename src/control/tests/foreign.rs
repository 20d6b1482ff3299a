//! Changes of records by other nodes.

use super::*;
use crate::auth::access::Denial;
use crate::config::WithoutDirectory;
use crate::directory::News;
use crate::mail::NoSubscription;
use crate::store::{Error, Key, Kind, Op};

const CREATE: &str = "/live/rest/v2/broadcasts/create";

fn cluster() -> Rig {
    Rig::in_cluster(&[("acceptOnlyStreamsInDataStore", "false")], WithoutDirectory::Accept)
}

fn key(id: &str) -> StreamKey {
    StreamKey::new("live", id)
}

fn named(id: &str, name: &str) -> Broadcast {
    Broadcast { stream_id: id.to_owned(), name: Some(name.to_owned()), ..Broadcast::default() }
}

impl Rig {
    /// Commits a change of another node: the test's store is the directory.
    fn foreign(&mut self, op: Op) {
        self.store.commit(std::slice::from_ref(&op)).unwrap();
        self.tell_news(News::Foreign(vec![op]));
    }

    fn foreign_record(&mut self, record: &Broadcast) {
        self.foreign(Op::Put(key(&record.stream_id).into(), record.encode()));
    }

    fn name_of(&self, id: &str) -> Option<String> {
        self.control.records.get(&key(id))?.name.clone()
    }

    /// Returns the records in memory, and those in the directory.
    fn both(&mut self) -> [Vec<(Key, Bytes)>; 2] {
        let mut here = self.control.records.encoded();
        here.sort_by(|a, b| a.0.cmp(&b.0));
        [here, self.store.load().unwrap()]
    }
}

#[test]
fn b_20_whatever_two_nodes_change_memory_is_what_the_directory_has() {
    for seed in 0..150 {
        let mut rig = cluster();
        let mut random = Seed::from_number(seed).random();
        rig.hold = true;
        for step in 0..40 {
            let id = random.below(4).to_string();
            let target = format!("/live/rest/v2/broadcasts/{id}");
            match random.below(8) {
                0 => drop(rig.send(Method::Post, CREATE, &format!(r#"{{"streamId":"{id}"}}"#))),
                1 => drop(rig.send(Method::Put, &target, &format!(r#"{{"name":"own {step}"}}"#))),
                2 => drop(rig.send(Method::Put, &target, &format!(r#"{{"description":"own {step}"}}"#))),
                3 => drop(rig.send(Method::Delete, &target, "")),
                4 => rig.foreign_record(&named(&id, &format!("foreign {step}"))),
                5 => rig.foreign(Op::Delete(key(&id).into())),
                6 => rig.run_for(ms(random.below(9))),
                _ => {
                    rig.release();
                    rig.hold = true;
                }
            }
        }
        for _ in 0..4 {
            rig.release();
            rig.run_for(Duration::from_secs(3));
        }
        let [here, there] = rig.both();
        assert_eq!(here, there, "seed {seed}");
    }
}

#[test]
fn a_foreign_change_that_waited_for_a_commit_takes_place_when_that_fails() {
    let mut rig = cluster();
    rig.create("s");
    rig.hold = true;
    let put = rig.send(Method::Put, "/live/rest/v2/broadcasts/s", r#"{"name":"own"}"#);
    rig.run_for(ms(10));
    let Some(store::Request::Commit { batch, .. }) = rig.held.pop() else { panic!("no commit") };
    rig.foreign_record(&named("s", "foreign"));
    assert_eq!(rig.name_of("s"), None, "it waits");
    let result = Err(Error::Io { path: "the directory".into(), reason: "cannot be reached".into() });
    rig.control.handle_store(rig.now, store::Reply { batch, result });
    rig.drain();
    assert_eq!((rig.answer(put).unwrap().0, rig.name_of("s").as_deref()), (500, Some("foreign")));
    // The rebuild writes nothing, because the directory has other nodes' records, too.
    let Some(store::Request::Rebuild { batch, all }) = rig.held.pop() else { panic!("no rebuild") };
    assert_eq!(all, []);
    rig.control.handle_store(rig.now, store::Reply { batch, result: Ok(()) });
    rig.release();
    rig.run_for(Duration::from_secs(3));
    let [here, there] = rig.both();
    assert_eq!(here, there);
}

#[test]
fn a_live_stream_keeps_its_figures_and_takes_what_another_node_says_of_it() {
    let mut rig = cluster();
    rig.create("s");
    let (_, stream) = rig.publish_claimed("s");
    rig.run_for(Duration::from_secs(3));
    rig.foreign_record(&named("s", "renamed"));
    let record = rig.control.records.get(&key("s")).unwrap();
    assert_eq!((record.name.as_deref(), &*record.status), (Some("renamed"), "broadcasting"));
    rig.run_for(Duration::from_secs(3));
    let [here, there] = rig.both();
    assert_eq!(here, there, "what was kept is written");
    // Another node deletes the record.
    rig.hooks.clear();
    rig.foreign(Op::Delete(key("s").into()));
    assert!(rig.control.registry.find(&key("s")).is_none() && rig.control.records.get(&key("s")).is_none());
    assert_eq!(rig.open_claims(), 0, "{stream:?}");
}

#[test]
fn a_stream_without_a_record_of_its_own_is_seen_by_other_nodes_until_it_ends() {
    let mut rig = cluster();
    let (session, stream) = rig.publish_claimed("stray");
    rig.run_for(Duration::from_secs(3));
    assert_eq!(rig.store.load().unwrap().len(), 1);
    rig.gone(session, stream, Departure::Clean, 5);
    rig.run_for(Duration::from_secs(3));
    assert_eq!(rig.store.load().unwrap(), []);
}

#[test]
fn users_and_subscribers_that_another_node_changes_are_changed_here() {
    let mut rig = cluster();
    let subscriber = |until: u64| {
        let json = format!(
            r#"{{"subscriberId":"alice","streamId":"s","blockedType":"play","blockedUntilUnitTimeStampMs":{until}}}"#
        );
        Op::Put(Key::new(Kind::Subscriber, "live", "s/alice"), json.into())
    };
    rig.publish_claimed("s");
    let alice = [("subscriberId", "alice")];
    let viewer = rig.play_request("s", &alice);
    let session = viewer.session;
    assert_eq!(rig.ask_play(viewer), Some(Ok(())));
    rig.mail(ToControl::PlayStarted { session, request: None });
    rig.take();
    rig.foreign(subscriber(START_MS + 60_000));
    let dropped =
        |mail: &ToWorker| matches!(mail, ToWorker::DropViewer { conn, .. } if *conn == session.conn);
    assert!(rig.take().iter().any(|(_, mail)| dropped(mail)));
    assert_eq!(rig.play_with("s", &alice), Err(NoSubscription::Denied(Denial::Blocked("alice".into()))));
    rig.foreign(Op::Delete(Key::new(Kind::Subscriber, "live", "s/alice")));
    assert_eq!(rig.play_with("s", &alice), Ok(()));
    // An unreadable record is skipped, and the others are applied.
    rig.tell_news(News::Foreign(vec![
        Op::Put(key("bad").into(), Bytes::from_static(b"{")),
        Op::Put(key("good").into(), named("good", "n").encode()),
    ]));
    assert_eq!((rig.name_of("bad"), rig.name_of("good").as_deref()), (None, Some("n")));
}
