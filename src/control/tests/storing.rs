//! Writes, disk failures, and the state found at a start.

use super::*;
use crate::control::records::auxiliary::{Auxiliary, AuxiliaryWrite, Token};
use crate::http;
use crate::store::Kind;

const CREATE: &str = "/live/rest/v2/broadcasts/create";

#[test]
fn a_write_is_answered_and_visible_only_when_it_is_on_disk() {
    let mut rig = Rig::new();
    rig.hold = true;
    let session = rig.send(Method::Post, CREATE, r#"{"streamId":"s"}"#);
    rig.run_for(ms(5));
    assert_eq!(rig.held.len(), 1, "gathered for at most 2 ms");
    assert!(rig.answer(session).is_none());
    assert_eq!(rig.get("/live/rest/v2/broadcasts/s").0, 404);
    // The second create is refused because of the first one, although that is still pending.
    let text = "Stream id is already being used. Please change stream id or keep it empty";
    let second = rig.send(Method::Post, CREATE, r#"{"streamId":"s"}"#);
    assert!(rig.answer(second).is_none(), "not before reads show why");
    rig.release();
    rig.run_for(ms(5));
    assert_eq!(rig.answer(session).unwrap().0, 200);
    assert_eq!(rig.answer(second).unwrap(), (400, failure(text)));
    assert_eq!(rig.get("/live/rest/v2/broadcasts/s").0, 200);
}

/// A record does not count for publishers that need one until its creation is on disk. Otherwise such a publisher
/// would make a visible record, which would stay if the creation failed.
#[test]
fn a_publisher_that_needs_a_record_waits_for_its_create_to_be_on_disk() {
    let mut rig = Rig::with(&[], &[("acceptOnlyStreamsInDataStore", "true")]);
    rig.hold = true;
    let session = rig.send(Method::Post, CREATE, r#"{"streamId":"s","name":"n"}"#);
    rig.run_for(ms(5));
    let request = rig.request("s", 0);
    assert!(matches!(rig.ask(request), Err(Refusal::NotAllowed(_))));
    assert_eq!(rig.get("/live/rest/v2/broadcasts/s").0, 404);
    rig.release();
    rig.run_for(ms(5));
    assert_eq!(rig.answer(session).unwrap().0, 200);
    rig.publish("s", 0);
    // Conversely, a pending delete counts immediately.
    rig.hold = true;
    rig.send(Method::Delete, "/live/rest/v2/broadcasts/s", "");
    rig.run_for(ms(5));
    let request = rig.request("s", 1);
    assert!(matches!(rig.ask(request), Err(Refusal::NotAllowed(_) | Refusal::InUse)));
}

#[test]
fn writes_that_come_together_are_one_batch() {
    let mut rig = Rig::new();
    rig.hold = true;
    for n in 0..50 {
        rig.send(Method::Post, CREATE, &format!(r#"{{"streamId":"s{n}"}}"#));
    }
    rig.run_for(ms(5));
    assert!(matches!(&rig.held[..], [store::Request::Commit { ops, .. }] if ops.len() == 50));
    // Changes that arrive during a commit wait for the end of the commit, and are then written in one batch.
    let put = rig.send(Method::Put, "/live/rest/v2/broadcasts/s1", r#"{"name":"n"}"#);
    let delete = rig.send(Method::Delete, "/live/rest/v2/broadcasts/s2", "");
    rig.run_for(secs(5));
    assert_eq!(rig.held.len(), 1);
    rig.release();
    assert_eq!((rig.answer(put).unwrap().1, rig.answer(delete).unwrap().0), (PLAIN.to_owned(), 200));
    assert_eq!(rig.store.load().unwrap().len(), 49);
}

#[test]
fn b_04_a_failed_commit_fails_the_request_and_leaves_memory_alone() {
    let faults = Faults::default();
    let mut rig = Rig::start(config(&[], &[]), Memory::with_faults(faults.clone()));
    rig.create("old");
    faults.fail(1, 2);
    rig.hold = true;
    let first = rig.send(Method::Post, CREATE, r#"{"streamId":"a"}"#);
    rig.run_for(ms(5));
    let second = rig.send(Method::Put, "/live/rest/v2/broadcasts/a", r#"{"name":"n"}"#);
    rig.release();
    for session in [first, second] {
        let (status, body) = rig.answer(session).unwrap();
        assert!(status == 500 && body.contains(r#""success":false"#), "{body}");
    }
    assert_eq!(rig.get("/live/rest/v2/broadcasts/a").0, 404);
    // Until the store has a new file, every write fails immediately, while reads continue.
    assert_eq!(rig.post(CREATE, "{}").0, 500);
    assert_eq!(rig.get("/live/rest/v2/broadcasts/old").0, 200);
    rig.run_for(ms(1100));
    assert_eq!(rig.post(CREATE, "{}").0, 500, "the second attempt failed too");
    rig.run_for(ms(2100));
    rig.create("b");
    assert_eq!(rig.control.stats().store_failures, 3);
    let ids: Vec<_> = rig.store.load().unwrap().into_iter().map(|(key, _)| key.id.to_string()).collect();
    assert_eq!(ids, ["b", "old"]);
}

#[test]
fn b_08_a_slow_disk_holds_up_neither_publishers_nor_readers() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.hold = true;
    let waiting = rig.send(Method::Put, "/live/rest/v2/broadcasts/s", r#"{"name":"n"}"#);
    rig.run_for(secs(5));
    rig.publish("s", 0);
    rig.publish("other", 0);
    assert_eq!(rig.record("s")["status"], "broadcasting");
    rig.release();
    assert_eq!(rig.answer(waiting).unwrap().1, PLAIN);
    let record = rig.record("s");
    assert_eq!((record["name"].as_str(), record["status"].as_str()), (Some("n"), Some("broadcasting")));
}

#[test]
fn the_status_is_a_clients_to_set_while_nothing_is_live() {
    let mut rig = Rig::new();
    rig.create("s");
    let set = |rig: &mut Rig, status: &str| {
        let body = format!(r#"{{"status":"{status}"}}"#);
        let session = rig.send(Method::Put, "/live/rest/v2/broadcasts/s", &body);
        rig.run_for(ms(10));
        assert_eq!(rig.answer(session).unwrap().0, 200);
        rig.record("s")["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(set(&mut rig, "finished"), "finished");
    for status in ["broadcasting", "preparing", "nonsense"] {
        assert_eq!(set(&mut rig, status), "finished");
    }
    rig.publish("s", 0);
    for status in ["finished", "created"] {
        assert_eq!(set(&mut rig, status), "broadcasting", "it is live");
    }
}

#[test]
fn what_publishing_changes_reaches_the_disk_later() {
    let mut rig = Rig::new();
    rig.create("s");
    let (session, stream) = rig.publish("s", 0);
    rig.publish("zombi", 0);
    rig.run_for(secs(2));
    let stored = |rig: &mut Rig| {
        let all = rig.store.load().unwrap();
        all.iter()
            .map(|(key, bytes)| (key.id.to_string(), Broadcast::decode(bytes).unwrap().status))
            .collect::<Vec<_>>()
    };
    assert_eq!(stored(&mut rig), [("s".to_owned(), "broadcasting".to_owned())]);
    rig.gone(session, stream, Departure::Clean, 0);
    rig.run_for(secs(2));
    assert_eq!(stored(&mut rig), [("s".to_owned(), "finished".to_owned())]);
}

#[test]
fn b_11_after_a_crash_nothing_is_left_live() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.create("idle");
    rig.post("/live/rest/v2/broadcasts/s/endpoint", r#"{"endpointUrl":"rtmp://198.51.100.1/a/b"}"#);
    rig.publish("s", 0);
    let push = rig.orders().remove(0).1.push;
    rig.mail(ToControl::Push { push, attempt: 1, state: PushState::Broadcasting });
    rig.run_for(secs(2));
    let zombi = Broadcast {
        stream_id: "z".into(),
        zombi: true,
        status: "broadcasting".into(),
        ..Broadcast::default()
    };
    rig.store.commit(&[store::Op::Put(StreamKey::new("live", "z").into(), zombi.encode())]).unwrap();
    let mut again = Rig::start(config(&[], &[]), rig.store);
    assert_eq!(again.record("s")["status"], "finished");
    assert_ne!(again.record("s")["endPointList"][0]["status"], "broadcasting");
    assert_eq!(again.record("idle")["status"], "created");
    assert_eq!(again.get("/live/rest/v2/broadcasts/z").0, 404);
    again.run_for(secs(2));
    let ids: Vec<_> = again.store.load().unwrap().into_iter().map(|(key, _)| key.id.to_string()).collect();
    assert_eq!(ids, ["idle", "s"], "the zombi is gone from disk too");
}

#[test]
fn other_records_are_written_and_answered_as_broadcasts_are() {
    let faults = Faults::default();
    let mut rig = Rig::start(config(&[], &[]), Memory::with_faults(faults.clone()));
    let key = |id| store::Key::new(Kind::Token, "live", id);
    let token = |id: &str| Auxiliary::Token(Token { token_id: id.to_owned(), ..Token::default() });
    let write = |rig: &mut Rig, changes| {
        let session = rig.session(0);
        let done = http::Response::text(200, "done".to_owned());
        let waiter = Some((Requester::unknown(session), done));
        rig.control.records.write_auxiliary(rig.now, AuxiliaryWrite { changes, files: Vec::new(), waiter });
        rig.drain();
        session
    };
    rig.hold = true;
    let first = write(&mut rig, vec![(key("a"), Some(token("1"))), (key("b"), Some(token("2")))]);
    rig.run_for(ms(5));
    let second = write(&mut rig, vec![(key("b"), None), (key("c"), Some(token("3")))]);
    assert!(rig.control.records.auxiliary.get(&key("a")).is_none() && rig.answer(first).is_none());
    assert_eq!(rig.control.records.auxiliary.pending(&key("c")), Some(&token("3")));
    assert_eq!(rig.control.records.auxiliary.pending(&key("b")), None);
    rig.release();
    assert_eq!((rig.answer(first).unwrap().0, rig.answer(second).unwrap().0), (200, 200));
    let ids = |rig: &Rig, from| -> Vec<String> {
        rig.control
            .records
            .auxiliary
            .of(Kind::Token, &"live".into(), from)
            .map(|(key, _)| key.id.to_string())
            .collect()
    };
    assert_eq!((ids(&rig, ""), ids(&rig, "b")), (vec!["a".to_owned(), "c".to_owned()], vec!["c".to_owned()]));
    // A failed commit changes nothing, and the store's new file has all records.
    faults.fail(1, 0);
    let failed = write(&mut rig, vec![(key("a"), None)]);
    rig.run_for(secs(2));
    assert_eq!(rig.answer(failed).unwrap().0, 500);
    assert_eq!(rig.control.records.auxiliary.pending(&key("a")), Some(&token("1")));
    let again = Rig::start(config(&[], &[]), rig.store);
    assert_eq!(ids(&again, ""), ["a", "c"]);
}

#[test]
fn a_stored_record_that_cannot_be_read_stops_the_start() {
    for bytes in [&b""[..], b"\x09{}", b"\x01{", b"\x01{\"streamId\":5}"] {
        let stored = vec![(StreamKey::new("live", "s").into(), Bytes::copy_from_slice(bytes))];
        let error = Restored::decode(&stored).unwrap_err();
        assert!(error.to_string().starts_with("the stored Broadcast live/s: "));
    }
    let stored = vec![(store::Key::new(Kind::User, "", "a@b"), Bytes::from_static(b"{"))];
    let error = Restored::decode(&stored).unwrap_err();
    assert!(error.to_string().starts_with("the stored User /a@b: "));
}

#[test]
fn the_same_inputs_give_the_same_outputs() {
    let run = || {
        let mut rig = Rig::new();
        let (_, body) = rig.post(CREATE, "");
        rig.create("s");
        let (session, stream) = rig.publish("s", 0);
        rig.post("/live/rest/v2/broadcasts/s/endpoint", r#"{"endpointUrl":"rtmp://198.51.100.1/a/b"}"#);
        rig.gone(session, stream, Departure::Lost, 7);
        rig.run_for(secs(10));
        (body, format!("{:?}", kinds(&rig.take())))
    };
    assert_eq!(run(), run());
}
