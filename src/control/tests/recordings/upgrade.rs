//! A process that takes over from an older one (docs/upgrade.md): the files and records of the older one are left
//! alone until it has ended.

use super::*;
use crate::control::Membership;
use crate::control::tests::claims::node;
use crate::directory::{Holder, News, Process};
use crate::types::{NodeId, StreamKey};

/// Membership of the process `new`, which takes over from the process `old`. The stream `s` is at `old`.
fn pair() -> Membership {
    let own = Process { node: NodeId::new("new").unwrap(), incarnation: 2 };
    let holder = Holder { token: 1, incarnation: 1, node: NodeId::new("old").unwrap() };
    let nodes = vec![node("new", 2, true), node("old", 1, true)];
    Membership::of_pair(own, [(StreamKey::new("live", "s"), holder)], nodes)
}

#[test]
fn c_21_streams_and_files_of_the_old_process_are_its_own_until_it_has_ended() {
    let mut old = Rig::with(&[], &[ALWAYS]);
    old.create("s");
    old.publish("s", 0);
    let recording = old.recording().recording;
    old.begun(recording, "live/streams/s.mp4");
    old.run_for(secs(10));
    let status = |rig: &mut Rig| rig.record("s")["status"].clone();
    assert_eq!(status(&mut old), "broadcasting");

    let config = ControlConfig { cluster: Some(pair()), ..config(&[], &[ALWAYS]) };
    let mut new = Rig::start(config, old.store);
    assert_eq!(status(&mut new), "broadcasting");
    assert!(new.files.is_empty() && new.vod_names().is_empty());
    new.tell_news(News::Nodes(vec![node("new", 2, true)]));
    assert_eq!(new.finish(finished(3)), "live/streams/s.mp4");
    assert_eq!(new.vod_names(), ["s.mp4"]);
    new.tell_news(News::Claim { key: StreamKey::new("live", "s"), holder: None });
    assert_eq!(status(&mut new), "terminated_unexpectedly");
    new.tell_news(News::Nodes(vec![node("new", 2, true)]));
    assert!(new.finishing().is_empty(), "once");
}

#[test]
fn c_21_a_file_that_the_old_process_begins_meanwhile_is_finished_when_it_has_ended() {
    let mut new =
        Rig::start(ControlConfig { cluster: Some(pair()), ..config(&[], &[ALWAYS]) }, Memory::new());
    let mut old = Rig::with(&[], &[ALWAYS]);
    old.create("s");
    old.publish("s", 0);
    let recording = old.recording().recording;
    old.begun(recording, "live/streams/s.mp4");
    old.run_for(secs(10));
    let records = old.store.load().unwrap().into_iter();
    let put = records.map(|(key, bytes)| store::Op::Put(key, bytes)).collect();
    new.tell_news(News::Foreign(put));
    assert!(new.finishing().is_empty());
    new.tell_news(News::Nodes(vec![node("new", 2, true)]));
    assert_eq!(new.finish(finished(3)), "live/streams/s.mp4");
    assert_eq!(new.vod_names(), ["s.mp4"]);
}
