//! Names of recordings and of their objects: none is given twice, and a removal spares files of other records.

use super::*;
use crate::control::records::auxiliary::{Kept, Store, Uploaded};
use crate::jobs::{ObjectAction, ObjectOutcome, ObjectWork};

const S3: [(&str, &str); 6] = [
    ALWAYS,
    ("s3RecordingEnabled", "true"),
    ("s3AccessKey", "somebody"),
    ("s3SecretKey", "a secret"),
    ("s3BucketName", "films"),
    ("s3Endpoint", "http://store.example"),
];

impl Rig {
    /// Adds the record of a file to memory.
    fn add_record(&mut self, id: &str, name: &str, kept: Option<Kept>) {
        let vod = Vod {
            vod_id: Some(id.to_owned()),
            vod_name: Some(name.to_owned()),
            file_path: Some(format!("streams/{name}")),
            kind: Some(Vod::RECORDED.to_owned()),
            kept,
            ..Vod::default()
        };
        self.control.records.auxiliary.insert(Vod::key(&"live".into(), id), Auxiliary::Vod(vod));
    }

    fn delete(&mut self, id: &str) {
        let (_, body) = self.call(Method::Delete, &format!("/live/rest/v2/vods/{id}"), "");
        assert!(body.contains("\"success\":true"), "{body}");
    }

    /// Answers the waiting jobs on objects and removals of files. Returns the jobs on objects.
    fn stored(&mut self) -> Vec<ObjectWork> {
        let mut all = Vec::new();
        while let Some((id, work)) = self.files.pop() {
            match work {
                Work::Object(work) => {
                    all.push(work);
                    self.done(id, Outcome::Object(ObjectOutcome::Done));
                }
                Work::Recording(RecordingWork::Remove { .. }) => {
                    self.done(id, Outcome::Recording(RecordingOutcome::Removed));
                }
                other => panic!("{other:?}"),
            }
            self.run_for(ms(10));
        }
        all
    }

    /// Records a stream to a file of this path, whatever path was ordered, up to the end of the file.
    fn recorded_as(&mut self, id: &str, file: &str) {
        let (session, stream) = self.publish(id, 0);
        let recording = self.recording().recording;
        self.begun(recording, file);
        self.gone(session, stream, Departure::Clean, 0);
        self.ended(recording, file);
        self.over(recording, "the stream ended");
        self.take();
        self.finish(finished(5));
    }
}

fn there(name: &str, store: Option<Store>) -> Option<Kept> {
    Some(Kept::There(Box::new(Uploaded { name: name.into(), store })))
}

fn names(works: &[ObjectWork]) -> Vec<&str> {
    works.iter().map(|work| work.name.as_str()).collect()
}

#[test]
fn a_recording_begins_behind_the_highest_number_that_a_record_or_a_recording_has() {
    let mut rig = Rig::with(&[], &S3);
    let number = |rig: &mut Rig, id: &str| {
        let (session, stream) = rig.publish(id, 0);
        let order = rig.recording();
        rig.gone(session, stream, Departure::Clean, 0);
        rig.over(order.recording, "nothing");
        rig.take();
        (order.stem, order.number)
    };
    assert_eq!(number(&mut rig, "a"), ("a".to_owned(), 0));
    rig.recorded("a", 5);
    rig.stored();
    assert_eq!(number(&mut rig, "a"), ("a".to_owned(), 1), "its file is no longer here");
    for (id, name) in [("x1", "a_7.mp4"), ("x2", "a_20261130.mp4"), ("x3", "a_9.webm"), ("x4", "b_1.mp4")] {
        rig.add_record(id, name, None);
    }
    assert_eq!(number(&mut rig, "a").1, 8);
    assert_eq!(number(&mut rig, "b").1, 0, "`b_1` is another stream");
    assert_eq!(number(&mut rig, "b_1").1, 1);
    // A recording whose record is not stored yet counts, too.
    rig.publish("a", 0);
    let order = rig.recording();
    rig.hold = true;
    rig.begun(order.recording, "live/streams/a_8.mp4");
    rig.send(Method::Post, "/live/rest/v2/broadcasts/a/clip?start=1700000000&end=1700000010", "");
    assert_eq!(rig.recording().number, 9);
    rig.release();
}

#[test]
fn no_object_replaces_another() {
    let mut rig = Rig::with(&[], &S3);
    rig.recorded("a", 5);
    assert_eq!(names(&rig.stored()), ["streams/a.mp4"]);
    // Another node, or an earlier version, has given a file the same name.
    rig.recorded_as("b", "live/streams/a.mp4");
    let id = rig.vods()[1]["vodId"].as_str().unwrap().to_owned();
    assert_eq!(names(&rig.stored()), [format!("streams/a-{id}.mp4")]);
    // While an object is being removed, its name is not given away either.
    let first = rig.vods()[0]["vodId"].as_str().unwrap().to_owned();
    rig.delete(&first);
    let at = rig.files.iter().position(|(_, work)| matches!(work, Work::Object(_))).unwrap();
    let (job, work) = rig.files.remove(at);
    assert!(matches!(&work, Work::Object(work) if work.name == "streams/a.mp4"), "{work:?}");
    rig.add_record("new", "a.mp4", Some(Kept::Wanted { name: "streams/a.mp4".into() }));
    let key = Vod::key(&"live".into(), "new");
    rig.control.files.keep_object(&mut rig.control.cx, &rig.control.records, rig.now, key);
    rig.drain();
    assert_eq!(names(&rig.stored()), ["streams/a-new.mp4"]);
    rig.done(job, Outcome::Object(ObjectOutcome::Done));
}

#[test]
fn no_object_replaces_one_whose_record_was_removed_during_its_upload() {
    let mut rig = Rig::with(&[], &S3);
    let keep = |rig: &mut Rig, id: &str| {
        rig.add_record(id, "a.mp4", Some(Kept::Wanted { name: "streams/a.mp4".into() }));
        let key = Vod::key(&"live".into(), id);
        rig.control.files.keep_object(&mut rig.control.cx, &rig.control.records, rig.now, key);
        rig.drain();
    };
    keep(&mut rig, "old");
    let at = rig.files.iter().position(|(_, work)| matches!(work, Work::Object(_))).unwrap();
    let (job, work) = rig.files.remove(at);
    assert!(matches!(&work, Work::Object(work) if work.name == "streams/a.mp4"), "{work:?}");
    rig.delete("old");
    keep(&mut rig, "new");
    assert_eq!(names(&rig.stored()), ["streams/a-new.mp4"]);
    rig.done(job, Outcome::Object(ObjectOutcome::Done));
    let removed = rig.stored();
    assert_eq!((names(&removed), &removed[0].action), (vec!["streams/a.mp4"], &ObjectAction::Remove));
    // After that, the name is free.
    keep(&mut rig, "third");
    assert_eq!(names(&rig.stored()), ["streams/a.mp4"]);
}

#[test]
fn an_object_goes_with_the_last_record_that_names_it() {
    let mut rig = Rig::with(&[], &S3);
    ["v1", "v2"].iter().for_each(|id| rig.add_record(id, "a.mp4", there("streams/a.mp4", None)));
    rig.delete("v1");
    assert!(rig.stored().is_empty());
    rig.delete("v2");
    let removed = rig.stored();
    assert_eq!((names(&removed), &removed[0].action), (vec!["streams/a.mp4"], &ObjectAction::Remove));
}

#[test]
fn an_object_is_removed_from_the_storage_to_which_it_was_uploaded_or_not_at_all() {
    let mut rig = Rig::with(&[], &S3);
    rig.recorded("a", 5);
    rig.stored();
    let store = |bucket: &str| Store { endpoint: "http://store.example/".into(), bucket: bucket.into() };
    let stored = rig.stored_vods().remove(0);
    assert_eq!(stored.kept, there("streams/a.mp4", Some(store("films"))));
    let old: Kept = serde_json::from_str(r#"{"there":{"name":"streams/a.mp4"}}"#).unwrap();
    assert_eq!(Some(old), there("streams/a.mp4", None), "of an earlier version");
    rig.add_record("other", "b.mp4", there("streams/b.mp4", Some(store("former"))));
    rig.delete("other");
    assert!(rig.stored().is_empty());
    rig.delete(stored.vod_id.as_deref().unwrap());
    assert_eq!(names(&rig.stored()), ["streams/a.mp4"]);
}

#[test]
fn a_removal_spares_the_file_of_a_newer_recording_with_the_same_name() {
    let mut rig = Rig::with(&[], &[ALWAYS]);
    rig.recorded("a", 5);
    let first = rig.vods()[0]["vodId"].as_str().unwrap().to_owned();
    // Somebody has removed the file, and a recording takes its name.
    let (session, stream) = rig.publish("b", 0);
    let recording = rig.recording().recording;
    rig.begun(recording, "live/streams/a.mp4");
    rig.delete(&first);
    assert!(rig.removed().is_empty(), "it is being written");
    rig.gone(session, stream, Departure::Clean, 0);
    rig.ended(recording, "live/streams/a.mp4");
    rig.over(recording, "the stream ended");
    rig.take();
    rig.finish(finished(5));
    rig.add_record("old", "a.mp4", None);
    rig.delete("old");
    assert!(rig.removed().is_empty(), "it is complete");
    let second = rig.vods()[0]["vodId"].as_str().unwrap().to_owned();
    rig.delete(&second);
    assert_eq!(rig.removed(), ["live/streams/a.mp4"]);
}

#[test]
fn a_local_copy_of_an_object_is_spared_if_copies_are_kept() {
    for (keeps, spared) in [("true", true), ("false", false)] {
        let settings = [&S3[..], &[("s3.keep_local", keeps)]].concat();
        let mut rig = Rig::with(&[], &settings);
        rig.add_record("old", "a.mp4", None);
        rig.add_record("new", "a.mp4", there("streams/a.mp4", None));
        rig.delete("old");
        assert_eq!(rig.removed().is_empty(), spared, "{keeps}");
    }
}
