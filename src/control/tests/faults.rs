//! Faults of the disk and of the home, as the API shows them.

use super::*;
use crate::control::found_recording;
use crate::directory::{self, News, Node, Process};
use crate::jobs::Finished;
use crate::store::{Error, Reply, Request as StoreRequest};
use crate::types::NodeId;

const VODS: &str = "/live/rest/v2/vods";

/// Makes a rig with recordings that have these ids. Also returns the faults of the rig's store,
/// which the test can set.
fn with_vods(ids: &[&str]) -> (Rig, Faults) {
    let faults = Faults::default();
    let mut store = Memory::with_faults(faults.clone());
    let put = |id: &&str| {
        let below = ["streams".to_owned(), format!("{id}.mp4")];
        let finished = Finished { bytes: 7, duration_ms: Some(1) };
        let (key, bytes) = found_recording("live", &below, id, 1_600_000_000_000, finished);
        store::Op::Put(key, bytes)
    };
    store.commit(&ids.iter().map(put).collect::<Vec<_>>()).unwrap();
    (Rig::start(config(&[], &[]), store), faults)
}

impl Rig {
    /// Returns the files ordered to be removed since the last call.
    fn removals(&mut self) -> Vec<String> {
        let removed = |(_, work)| match work {
            Work::Recording(RecordingWork::Remove { path }) => path.last().cloned(),
            other => panic!("{other:?}"),
        };
        std::mem::take(&mut self.files).into_iter().filter_map(removed).collect()
    }

    fn count_listed(&mut self) -> usize {
        let (_, list) = self.get(&format!("{VODS}/list/0/50"));
        serde_json::from_str::<Vec<serde_json::Value>>(&list).unwrap().len()
    }
}

#[test]
fn b_14_a_disk_that_takes_no_change_keeps_the_record_and_the_file() {
    let (mut rig, faults) = with_vods(&["a", "b", "c", "d"]);
    for target in [format!("{VODS}/a"), format!("{VODS}?ids=b,c")] {
        faults.fail(1, 1);
        assert_eq!(rig.call(Method::Delete, &target, "").0, 500);
        assert_eq!((rig.removals(), rig.count_listed()), (vec![], 4), "{target}");
        rig.run_for(secs(3));
    }
    assert_eq!((rig.removals(), rig.count_listed()), (vec![], 4));
    assert_eq!(rig.call(Method::Delete, &format!("{VODS}/a"), "").0, 200);
    assert_eq!((rig.removals(), rig.count_listed()), (vec!["a.mp4".to_owned()], 3));
    assert_eq!(rig.call(Method::Delete, &format!("{VODS}?ids=b,c,x"), "").0, 200);
    assert_eq!((rig.removals(), rig.count_listed()), (vec!["b.mp4".to_owned(), "c.mp4".to_owned()], 1));
}

#[test]
fn b_14_a_file_goes_when_the_disk_has_it_that_its_record_went() {
    let (mut rig, _) = with_vods(&["a"]);
    rig.hold = true;
    let session = rig.send(Method::Delete, &format!("{VODS}/a"), "");
    rig.run_for(secs(1));
    assert_eq!((rig.removals(), rig.answer(session)), (vec![], None));
    rig.release();
    assert_eq!(rig.removals(), ["a.mp4"]);
    assert_eq!(rig.answer(session).unwrap().0, 200);
}

#[test]
fn b_14_an_old_recording_goes_record_first_and_file_first_where_the_disk_is_full() {
    let (rig, faults) = with_vods(&["a", "b"]);
    faults.fail(1, 0);
    let mut rig = Rig::start(config(&[], &[("record.max_age", "3600")]), rig.store);
    rig.run_for(ms(10));
    assert_eq!((rig.removals(), rig.count_listed()), (vec![], 2), "the disk took no change");
    let all = || vec!["a.mp4".to_owned(), "b.mp4".to_owned()];
    rig.hold = true;
    rig.run_for(secs(120));
    assert_eq!((rig.removals(), rig.count_listed()), (vec![], 2), "the disk has not answered");
    let full = Error::Full { path: "p".to_owned(), reason: "full".to_owned() };
    let fault = Error::Io { path: "p".to_owned(), reason: "fault".to_owned() };
    for (error, removed) in [(fault.clone(), vec![]), (full, all()), (fault, vec![])] {
        rig.store_says(&Err(error));
        assert_eq!(rig.removals(), Vec::<String>::new());
        rig.run_for(secs(61));
        assert_eq!((rig.removals(), rig.count_listed()), (removed, 2));
    }
    // Once the store can be written, the records are removed, too.
    rig.store_says(&Ok(()));
    rig.run_for(secs(61));
    assert_eq!((rig.removals(), rig.count_listed()), (vec![], 2));
    rig.store_says(&Ok(()));
    assert_eq!((rig.removals(), rig.count_listed()), (all(), 0));
}

impl Rig {
    /// Answers the waiting requests to the store, and the rebuild that follows a probe.
    fn store_says(&mut self, result: &Result<(), Error>) {
        for request in std::mem::take(&mut self.held) {
            let (batch, is_probe) = match request {
                StoreRequest::Probe { batch } => (batch, true),
                StoreRequest::Commit { batch, .. }
                | StoreRequest::Rebuild { batch, .. }
                | StoreRequest::Backup { batch, .. } => (batch, false),
            };
            self.control.handle_store(self.now, Reply { batch, result: result.clone() });
            self.drain();
            // The rebuild after a probe has the same result.
            if is_probe && result.is_ok() {
                self.store_says(result);
            }
        }
    }

    fn liveness(&mut self) -> (u16, String) {
        self.get("/rest/v2/liveness")
    }
}

#[test]
fn b_18_a_home_that_is_gone_is_told_by_liveness_and_takes_no_writes() {
    let mut rig = Rig::new();
    let create = |rig: &mut Rig, id: &str| {
        let session =
            rig.send(Method::Post, "/live/rest/v2/broadcasts/create", &format!(r#"{{"streamId":"{id}"}}"#));
        rig.run_for(ms(10));
        session
    };
    let gone = Err(Error::Gone("/home/data/store.redb".to_owned()));
    assert_eq!(rig.liveness().0, 200);
    rig.hold = true;
    let first = create(&mut rig, "a");
    rig.store_says(&gone);
    assert_eq!(rig.answer(first).unwrap().0, 500);
    // The attempts to write a new store file keep failing in the same way.
    for _ in 0..3 {
        rig.store_says(&gone);
        assert_eq!(rig.liveness(), (500, r#"{"host":"unknown","status":"error"}"#.to_owned()));
        let refused = create(&mut rig, "b");
        assert_eq!(rig.answer(refused).unwrap().0, 500);
        rig.run_for(secs(31));
    }
    // A full disk is different: streams continue, and the liveness probe succeeds.
    rig.store_says(&Err(Error::Io { path: "p".to_owned(), reason: "full".to_owned() }));
    assert_eq!(rig.liveness().0, 200);
    rig.run_for(secs(31));
    rig.store_says(&Ok(()));
    let taken = create(&mut rig, "c");
    rig.store_says(&Ok(()));
    assert_eq!((rig.answer(taken).unwrap().0, rig.liveness().0), (200, 200));
}

#[test]
fn b_13_the_store_is_backed_up_when_its_newest_copy_is_old_enough() {
    let backups = |hours: &str| {
        let mut rig = Rig::with(&[("store.backup_hours", hours), ("store.backups_kept", "3")], &[]);
        rig.hold = true;
        let mut seen = Vec::new();
        for _ in 0..4 {
            rig.run_for(secs(600));
            seen.extend(rig.held.iter().filter_map(|request| match request {
                StoreRequest::Backup { backup, .. } => Some((backup.kept, backup.age_min.as_secs())),
                StoreRequest::Commit { .. } | StoreRequest::Probe { .. } | StoreRequest::Rebuild { .. } => {
                    None
                }
            }));
            rig.store_says(&Ok(()));
        }
        seen
    };
    assert_eq!(backups("5"), [(3, 5 * 3600); 4]);
    assert_eq!(backups("0"), []);
}

#[test]
fn b_13_a_backup_by_the_command_line_is_answered_when_it_is_there() {
    let mut rig = Rig::new();
    rig.hold = true;
    let (first, second) = (rig.session(9), rig.session(9));
    rig.control.handle_order(rig.now, first, Order::BackUp);
    rig.control.handle_order(rig.now, second, Order::BackUp);
    rig.drain();
    assert!(rig.answer(second).unwrap().1.contains("A backup is under way"));
    assert_eq!(rig.answer(first), None);
    rig.store_says(&Ok(()));
    let (_, answer) = rig.answer(first).unwrap();
    assert!(answer.contains(r#""success":true"#) && answer.contains(r#""dataId":"store-20"#), "{answer}");
    rig.control.handle_order(rig.now, second, Order::BackUp);
    rig.drain();
    rig.store_says(&Err(Error::Unknown));
    let (_, answer) = rig.answer(second).unwrap();
    assert!(answer.contains(r#""success":false"#) && answer.contains("could not be backed up"), "{answer}");
}

/// The disk is full for five minutes. The records are encoded once, and then only when a small file could be written.
#[test]
fn b_04_a_full_disk_is_tried_with_a_small_file_and_ever_longer_pauses() {
    let mut rig = Rig::new();
    for id in ["a", "b"] {
        rig.create(id);
    }
    rig.hold = true;
    rig.send(Method::Delete, "/live/rest/v2/broadcasts/a", "");
    rig.run_for(ms(10));
    let full = Err(Error::Full { path: "p".to_owned(), reason: "full".to_owned() });
    rig.store_says(&full);
    let began = rig.now.mono;
    let (mut seconds, mut rebuilds) = (Vec::new(), 0);
    while rig.now.mono - began < secs(300) {
        for request in &rig.held {
            match request {
                StoreRequest::Probe { .. } => seconds.push((rig.now.mono - began).as_secs()),
                StoreRequest::Rebuild { all, .. } => rebuilds += all.len(),
                other => panic!("{other:?}"),
            }
        }
        rig.store_says(&full);
        rig.run_for(ms(100));
    }
    assert_eq!(rebuilds, 2, "the two records, once");
    assert!(seconds.len() <= 14, "{seconds:?}");
    let pauses: Vec<u64> = seconds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.starts_with(&[2, 4, 8, 16, 30]) && pauses.iter().all(|pause| *pause <= 31), "{pauses:?}");
    // A probe that succeeds is followed by the rebuild at once.
    rig.run_for(secs(31));
    rig.store_says(&Ok(()));
    rig.hold = false;
    rig.create("c");
}

#[test]
fn b_04_while_the_disk_takes_nothing_the_records_of_a_deleted_application_wait() {
    let mut rig = Rig::new();
    for n in 0..20 {
        rig.create(&format!("s{n}"));
    }
    rig.hold = true;
    let app = "live".into();
    rig.control.walks.purge(rig.now, app);
    rig.control.handle_timeout(rig.now);
    rig.drain();
    rig.run_for(ms(10));
    let full = Err(Error::Full { path: "p".to_owned(), reason: "full".to_owned() });
    rig.store_says(&full);
    let began = rig.now.mono;
    let mut turns = 0;
    while rig.now.mono - began < secs(60) {
        let due = rig.control.poll_timeout().expect("an attempt is due, or held");
        if due > rig.now.mono {
            rig.run_for(due - rig.now.mono);
        } else {
            rig.run_for(ms(1));
        }
        turns += 1;
        rig.store_says(&full);
    }
    assert!(turns < 1000, "{turns}");
    rig.run_for(secs(31));
    rig.store_says(&Ok(()));
    rig.hold = false;
    rig.release();
    rig.run_for(secs(2));
    assert_eq!(rig.store.load().unwrap(), []);
}

#[test]
fn q_13_a_source_that_fails_again_is_not_told_again() {
    let mut rig = Rig::new();
    for n in 0..20 {
        let body =
            format!(r#"{{"streamId":"s{n}","type":"streamSource","streamUrl":"rtmp://198.51.100.1/a/b"}}"#);
        assert_eq!(rig.post("/live/rest/v2/broadcasts/create?autoStart=true", &body).0, 200);
    }
    let fail_all = |rig: &mut Rig| {
        let orders = rig.take().into_iter().filter_map(|(_, mail)| match mail {
            ToWorker::StartPull(order) => Some(*order),
            _ => None,
        });
        let orders: Vec<_> = orders.collect();
        for order in &orders {
            let state = crate::mail::PullState::Failed("refused".to_owned());
            rig.mail(ToControl::Pull { pull: order.pull, attempt: order.attempt, state });
        }
        orders.len()
    };
    assert_eq!(fail_all(&mut rig), 20);
    assert_eq!(rig.control.outbound.repeats.deadline(), None, "the first failure of each is a line");
    assert_eq!(rig.control.outbound.supervisor.failing(), (0, 20));
    rig.run_for(ms(1500));
    assert_eq!(fail_all(&mut rig), 20);
    let due = rig.control.outbound.repeats.deadline().expect("a sum is to come");
    for _ in 0..40 {
        rig.run_for(secs(1));
        fail_all(&mut rig);
    }
    assert_eq!(rig.control.outbound.repeats.deadline(), Some(due), "one line for all of it");
}

#[test]
fn q_13_another_reason_is_told_at_once_and_only_so_many_of_them() {
    let mut rig = Rig::new();
    let body = r#"{"streamId":"s","type":"streamSource","streamUrl":"rtmp://198.51.100.1/a/b"}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/create?autoStart=true", body).0, 200);
    let mut fail = |reason: &str| {
        logged(|| {
            for (_, mail) in rig.take() {
                let ToWorker::StartPull(order) = mail else { continue };
                let state = crate::mail::PullState::Failed(reason.to_owned());
                rig.mail(ToControl::Pull { pull: order.pull, attempt: order.attempt, state });
            }
            rig.run_for(secs(30));
        })
    };
    for (reason, is_told) in [
        ("one", true),
        ("one", false),
        ("two", true),
        ("one", false),
        ("three", true),
        ("four", true),
        ("five", false),
    ] {
        assert_eq!(fail(reason).contains("retrying"), is_told, "{reason}");
    }
}

#[test]
fn b_04_a_failed_commit_of_the_other_process_of_an_upgrade_makes_the_store_be_written_anew() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.hold = true;
    let failed = |error| Reply { batch: store::OF_OTHERS, result: Err(error) };
    rig.control.handle_store(rig.now, failed(Error::Unknown));
    rig.drain();
    let asked = |rig: &Rig| rig.held.iter().filter(|one| matches!(one, StoreRequest::Rebuild { .. })).count();
    assert_eq!(asked(&rig), 1);
    rig.control.handle_store(rig.now, failed(Error::Unknown));
    rig.drain();
    assert_eq!(asked(&rig), 1, "it is under way");
    let put = rig.send(Method::Put, "/live/rest/v2/broadcasts/s", r#"{"name":"n"}"#);
    rig.run_for(ms(10));
    assert_eq!(rig.answer(put).unwrap().0, 500);
    rig.store_says(&Ok(()));
    rig.hold = false;
    let put = rig.send(Method::Put, "/live/rest/v2/broadcasts/s", r#"{"name":"n"}"#);
    rig.run_for(ms(10));
    assert_eq!(rig.answer(put).unwrap().0, 200);
}

#[test]
fn b_13_the_older_process_of_an_upgrade_makes_no_backups() {
    let mut rig = Rig::with(&[("store.backup_hours", "5")], &[]);
    let process = Process { node: NodeId::new("old").unwrap(), incarnation: 1 };
    rig.tell_news(News::Pair(process.clone()));
    rig.hold = true;
    rig.run_for(secs(1300));
    let backups =
        |rig: &Rig| rig.held.iter().filter(|one| matches!(one, StoreRequest::Backup { .. })).count();
    assert_eq!(backups(&rig), 0);
    // The newer process has not taken over.
    rig.tell_news(News::Nodes(vec![Node::of(process, "")]));
    rig.run_for(secs(600));
    assert_eq!(backups(&rig), 1);
}

#[test]
fn a_process_that_takes_over_knows_the_numbers_of_viewers_at_once() {
    for is_committing in [false, true] {
        let mut rig = Rig::new();
        rig.create("s");
        let (_, stream) = rig.publish("s", 0);
        if is_committing {
            rig.hold = true;
            rig.send(Method::Post, "/live/rest/v2/broadcasts/create", r#"{"streamId":"t"}"#);
            rig.run_for(ms(5));
            assert_eq!(rig.held.len(), 1);
        }
        rig.report(0, stream, 1000, 0, 3);
        let old = Process { node: NodeId::new("old").unwrap(), incarnation: 1 };
        rig.control.handle_directory(rig.now, News::Pair(old.clone()));
        // The store changes hands behind the requests that it has, and before control sees an answer.
        let mut requests = std::mem::take(&mut rig.held);
        loop {
            match rig.control.poll_output().unwrap() {
                Output::Store(request) => requests.push(request),
                Output::Directory(directory::Request::Paired(_)) => break,
                _ => {}
            }
        }
        requests.into_iter().for_each(|request| drop(store::handle(&mut rig.store, request)));
        let new = Process { node: NodeId::new("new").unwrap(), incarnation: 2 };
        let held = [(StreamKey::new("live", "s"), claims::holder("old", 1, 1))];
        let known = Membership::of_pair(new.clone(), held, vec![Node::of(old, ""), Node::of(new, "")]);
        let mut newer = Rig::start(ControlConfig { cluster: Some(known), ..config(&[], &[]) }, rig.store);
        for _ in 0..2 {
            assert_eq!(newer.record("s")["rtmpViewerCount"], 3, "{is_committing}");
            newer.run_for(secs(20));
        }
    }
}
