//! Uploaded files, and files moved to object storage.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::jobs::{
    AppendError, AppendFile, AppendTo, Appended, Finished, ObjectAction, ObjectOutcome, RecordingOutcome,
    RecordingWork,
};
use crate::mail::{UploadGrant, UploadNews};

const VODS: &str = "/live/rest/v2/vods";
const S3: [(&str, &str); 4] = [
    ("s3RecordingEnabled", "true"),
    ("s3AccessKey", "somebody"),
    ("s3SecretKey", "a secret"),
    ("s3BucketName", "films"),
];

#[derive(Debug)]
pub(super) struct Nothing;

impl AppendFile for Nothing {
    fn append(&self, _: &[Bytes]) -> Result<u64, AppendError> {
        Ok(0)
    }

    fn sync(&self) -> Result<(), AppendError> {
        Ok(())
    }
}

/// Sends the head of an upload.
fn begin(rig: &mut Rig, peer: &str) -> SessionRef {
    let mut request = request(Method::Post, &format!("{VODS}/create?name=a.mp4"), "");
    request.headers.push("Content-Type", "multipart/form-data; boundary=b");
    let session = rig.send_request(peer, request);
    rig.run_for(Duration::from_millis(5));
    session
}

/// Creates the file of an upload. Returns its name, and the grant if the session may send.
fn made(rig: &mut Rig, session: SessionRef) -> Option<(String, UploadGrant)> {
    let (id, work) = rig.files.pop()?;
    let Work::FileAppend { to: AppendTo::New { path }, .. } = work else { panic!("{work:?}") };
    let appended = Appended { file: Arc::new(Nothing), length: 0, name: None };
    rig.done(id, Outcome::Appended(Ok(appended)));
    let grant = rig.take().into_iter().find_map(|(_, mail)| match mail {
        ToWorker::Upload { conn, grant } if conn == session.conn => Some(*grant),
        _ => None,
    });
    Some((path.join("/"), grant.unwrap()))
}

fn news(rig: &mut Rig, session: SessionRef, news: UploadNews) {
    rig.mail(ToControl::Upload { session, news });
}

/// Answers the only waiting job with this outcome.
fn finish(rig: &mut Rig, outcome: RecordingOutcome) -> RecordingWork {
    let (id, work) = rig.files.pop().unwrap();
    let Work::Recording(work) = work else { panic!("{work:?}") };
    rig.done(id, Outcome::Recording(outcome));
    rig.run_for(Duration::from_millis(5));
    work
}

pub(super) const FINISHED: RecordingOutcome =
    RecordingOutcome::Finished(Finished { bytes: 12, duration_ms: Some(1500) });

/// Uploads a file.
fn upload(rig: &mut Rig) -> String {
    let session = begin(rig, "127.0.0.1:9");
    let (path, _) = made(rig, session).unwrap();
    news(rig, session, UploadNews::Received { metadata: None });
    assert!(matches!(finish(rig, FINISHED), RecordingWork::Adopt { .. }));
    let (_, answer) = rig.answer(session).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let id = answer["dataId"].as_str().unwrap().to_owned();
    assert_eq!(path, format!("live/streams/{id}.mp4.tmp_extension"));
    id
}

/// Counts the records of files in the store.
fn vods(rig: &mut Rig) -> usize {
    let stored = rig.store.load().unwrap();
    stored.iter().filter(|(key, _)| key.kind == store::Kind::Vod).count()
}

fn count(rig: &mut Rig) -> String {
    rig.get(&format!("{VODS}/count")).1
}

#[test]
fn r_45_a_file_is_granted_when_its_record_is_stored_and_seen_when_it_is_complete() {
    let mut rig = Rig::with(&[], &[("upload.max_bytes", "77")]);
    rig.hold = true;
    let session = begin(&mut rig, "127.0.0.1:9");
    assert!(rig.files.is_empty(), "the disk has no record yet");
    rig.release();
    let (_, grant) = made(&mut rig, session).unwrap();
    assert_eq!((grant.bytes_max, count(&mut rig).as_str()), (77, r#"{"number":0}"#));
    news(&mut rig, session, UploadNews::Received { metadata: Some("more".into()) });
    finish(&mut rig, FINISHED);
    let (status, answer) = rig.answer(session).unwrap();
    assert!(status == 200 && answer.contains(r#""success":true"#), "{answer}");
    let (_, list) = rig.get(&format!("{VODS}/list/0/5"));
    assert!(
        list.contains(r#""duration":1500,"fileSize":12,"#) && list.contains(r#""metadata":"more""#),
        "{list}"
    );
}

/// If the removal came first, it would find nothing, and the file would stay without a record.
#[test]
fn r_45_a_sender_that_leaves_while_the_file_is_created_leaves_none() {
    for is_created in [true, false] {
        let mut rig = Rig::new();
        let session = begin(&mut rig, "127.0.0.1:9");
        let (id, work) = rig.files.pop().unwrap();
        assert!(matches!(work, Work::FileAppend { to: AppendTo::New { .. }, .. }), "{work:?}");
        news(&mut rig, session, UploadNews::Gone);
        rig.run_for(Duration::from_millis(5));
        assert!(rig.files.is_empty(), "the file may not be there yet");
        let appended = Appended { file: Arc::new(Nothing), length: 0, name: None };
        rig.done(id, Outcome::Appended(if is_created { Ok(appended) } else { Err(AppendError::Full) }));
        assert!(matches!(finish(&mut rig, RecordingOutcome::Removed), RecordingWork::Remove { .. }));
        assert_eq!((vods(&mut rig), rig.files.len()), (0, 0));
    }
}

#[test]
fn r_45_what_is_broken_off_or_cannot_be_written_is_removed() {
    let mut rig = Rig::new();
    for told in [UploadNews::Gone, UploadNews::Failed("full")] {
        let session = begin(&mut rig, "127.0.0.1:9");
        made(&mut rig, session).unwrap();
        news(&mut rig, session, told.clone());
        assert!(matches!(finish(&mut rig, RecordingOutcome::Removed), RecordingWork::Remove { .. }));
        let answered = rig.answer(session).is_some();
        assert_eq!(answered, told != UploadNews::Gone);
        // Late news of an upload that has ended is ignored.
        news(&mut rig, session, UploadNews::Gone);
        assert!(rig.files.is_empty());
    }
    // The job fails to give the file its final name.
    let session = begin(&mut rig, "127.0.0.1:9");
    made(&mut rig, session).unwrap();
    news(&mut rig, session, UploadNews::Received { metadata: None });
    finish(&mut rig, RecordingOutcome::Failed("no".into()));
    finish(&mut rig, RecordingOutcome::Removed);
    let (_, answer) = rig.answer(session).unwrap();
    assert_eq!(answer, r#"{"success":false,"message":"","dataId":null,"errorId":0}"#);
    assert_eq!(count(&mut rig), r#"{"number":0}"#);
}

#[test]
fn r_45_uploads_are_counted_by_address_and_in_all() {
    let mut rig = Rig::with(&[], &[("remoteAllowedCIDR", "0.0.0.0/0")]);
    let is_refused = |rig: &mut Rig, peer: &str| {
        let session = begin(rig, peer);
        let answer = rig.answer(session);
        answer.is_some_and(|(_, answer)| answer.contains("Not enough system resources available"))
    };
    for address in 0..8 {
        let peer = format!("198.51.100.{address}:9");
        assert!((0..4).all(|_| !is_refused(&mut rig, &peer)));
        assert!(is_refused(&mut rig, &peer), "the fifth of one address");
    }
    assert!(is_refused(&mut rig, "198.51.100.9:9"), "and the 33rd");
    assert_eq!(rig.files.len(), 32);
}

#[test]
fn b_14_the_record_of_an_upload_that_was_broken_off_goes_when_its_file_is_gone() {
    let mut rig = Rig::new();
    let session = begin(&mut rig, "127.0.0.1:9");
    made(&mut rig, session).unwrap();
    news(&mut rig, session, UploadNews::Gone);
    rig.run_for(Duration::from_secs(1));
    let records = |rig: &mut Rig| rig.store.load().unwrap().len();
    assert_eq!((rig.files.len(), records(&mut rig)), (1, 1), "a start would find the file without it");
    finish(&mut rig, RecordingOutcome::Failed("the disk".into()));
    assert_eq!(records(&mut rig), 1, "the next start tries again");
    let mut rig = Rig::start_after(config(&[], &[]), rig.store, None);
    finish(&mut rig, RecordingOutcome::Removed);
    assert_eq!(records(&mut rig), 0);
}

#[test]
fn what_a_crash_broke_off_goes_at_the_next_start() {
    let mut rig = Rig::new();
    let session = begin(&mut rig, "127.0.0.1:9");
    made(&mut rig, session).unwrap();
    let mut rig = Rig::start_after(config(&[], &[]), rig.store, None);
    let RecordingWork::Remove { path } = finish(&mut rig, RecordingOutcome::Removed) else { panic!() };
    // The search for unfinished recordings finds the upload's file before it is removed, and does not take the file
    // for a recording.
    assert!(matches!(finish(&mut rig, RecordingOutcome::Found(vec![path])), RecordingWork::Find { .. }));
    assert!(rig.files.is_empty());
    assert_eq!(count(&mut rig), r#"{"number":0}"#);
}

#[test]
fn r_48_an_upload_to_s3_is_tried_again_and_its_record_says_so_across_a_restart() {
    let mut rig = Rig::with(&[], &S3);
    let id = upload(&mut rig);
    let put = |rig: &mut Rig, outcome: ObjectOutcome| {
        let (job, work) = rig.files.pop().unwrap();
        let Work::Object(work) = work else { panic!("{work:?}") };
        assert_eq!(work.name, format!("streams/{id}.mp4"));
        rig.done(job, Outcome::Object(outcome));
        rig.run_for(Duration::from_millis(5));
        work.action
    };
    for pause in [5, 10, 20] {
        assert!(matches!(put(&mut rig, ObjectOutcome::Failed("away".into())), ObjectAction::Put { .. }));
        rig.run_for(Duration::from_secs(pause - 1));
        assert!(rig.files.is_empty());
        rig.run_for(Duration::from_secs(2));
    }
    let mut rig = Rig::start(config(&[], &S3), rig.store);
    rig.run_for(Duration::from_millis(5));
    assert!(matches!(put(&mut rig, ObjectOutcome::Done), ObjectAction::Put { .. }));
    assert!(
        matches!(finish(&mut rig, RecordingOutcome::Removed), RecordingWork::Remove { .. }),
        "the local file"
    );
    let (_, shown) = rig.get(&format!("{VODS}/{id}"));
    assert!(!shown.contains("kept"), "{shown}");
    // Removing the record removes its object.
    rig.call(Method::Delete, &format!("{VODS}/{id}"), "");
    finish(&mut rig, RecordingOutcome::Removed);
    assert_eq!(put(&mut rig, ObjectOutcome::Done), ObjectAction::Remove);
}

#[test]
fn r_48_a_file_that_is_due_while_s3_is_off_is_uploaded_when_it_is_on_again() {
    let mut rig = Rig::with(&[], &S3);
    let _ = upload(&mut rig);
    let (job, work) = rig.files.pop().unwrap();
    assert!(matches!(work, Work::Object(_)), "{work:?}");
    let settings = |set: &[(&str, &str)]| AppSettings::of(schema(), "live", set).unwrap();
    rig.control.install_app(rig.now, settings(&[]));
    rig.done(job, Outcome::Object(ObjectOutcome::Failed("away".into())));
    rig.run_for(Duration::from_secs(60));
    assert!(rig.files.is_empty(), "there is nowhere to put it");
    rig.control.install_app(rig.now, settings(&S3));
    rig.drain();
    assert!(matches!(rig.files.pop(), Some((_, Work::Object(_)))));
}

#[test]
fn b_14_an_upload_s_file_that_cannot_be_removed_is_removed_later() {
    let mut rig = Rig::new();
    let session = begin(&mut rig, "127.0.0.1:9");
    made(&mut rig, session).unwrap();
    news(&mut rig, session, UploadNews::Gone);
    for _ in 0..3 {
        let failed = RecordingOutcome::Failed("the disk is gone".into());
        assert!(matches!(finish(&mut rig, failed), RecordingWork::Remove { .. }));
        assert_eq!(rig.files.len(), 0, "not at once");
        assert_eq!(vods(&mut rig), 1, "its record says that it is no recording");
        rig.run_for(Duration::from_secs(31));
    }
    assert!(matches!(finish(&mut rig, RecordingOutcome::Removed), RecordingWork::Remove { .. }));
    assert_eq!(vods(&mut rig), 0);
    rig.run_for(Duration::from_secs(100));
    assert!(rig.files.is_empty());
}
