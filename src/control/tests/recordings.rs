//! Recordings: their beginning and end, their files, and the handling of failures.

mod clips;
mod names;
mod upgrade;

use super::*;
use crate::control::records::auxiliary::{Auxiliary, Vod};
use crate::jobs::Finished;
use crate::mail::{Arrival, RecordingNews, RecordingOrder};
use crate::types::RecordingId;
use media::Codec;

const ALWAYS: (&str, &str) = ("mp4MuxingEnabled", "true");
const HOOK: (&str, &str) = ("listenerHookURL", "http://hook.example/");

fn path(path: &str) -> Vec<String> {
    path.split('/').map(str::to_owned).collect()
}

impl Rig {
    /// Returns the orders to begin recordings, and the recordings that workers were asked to end.
    pub(super) fn recordings(&mut self) -> (Vec<(WorkerId, RecordingOrder)>, Vec<RecordingId>) {
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        for (worker, mail) in self.take() {
            match mail {
                ToWorker::StartRecording(order) => begun.push((worker, *order)),
                ToWorker::StopRecording(id) => ended.push(id),
                _ => {}
            }
        }
        (begun, ended)
    }

    fn recording(&mut self) -> RecordingOrder {
        let (mut begun, ended) = self.recordings();
        assert_eq!((begun.len(), ended.len()), (1, 0));
        begun.remove(0).1
    }

    fn is_quiet(&mut self) -> bool {
        let (begun, ended) = self.recordings();
        begun.is_empty() && ended.is_empty()
    }

    fn recording_news(&mut self, recording: RecordingId, news: RecordingNews) {
        self.mail(ToControl::Recording { recording, news });
        self.run_for(ms(10));
    }

    pub(super) fn begun(&mut self, recording: RecordingId, file: &str) {
        let now = self.now;
        let first = Arrival { at: now.mono, wall_ms: now.wall_ms };
        self.recording_news(recording, RecordingNews::Begun { path: path(file), first });
    }

    pub(super) fn ended(&mut self, recording: RecordingId, file: &str) {
        self.recording_news(recording, RecordingNews::Ended { path: path(file) });
    }

    pub(super) fn over(&mut self, recording: RecordingId, reason: &str) {
        self.recording_news(recording, RecordingNews::Over(reason.to_owned()));
    }

    /// Returns the files to be finished.
    fn finishing(&mut self) -> Vec<(JobId, Vec<String>)> {
        let finish = |(id, work)| match work {
            Work::Recording(RecordingWork::Finish { path }) => Some((id, path)),
            _ => None,
        };
        std::mem::take(&mut self.files).into_iter().filter_map(finish).collect()
    }

    fn removed(&mut self) -> Vec<String> {
        let remove = |(id, work)| match work {
            Work::Recording(RecordingWork::Remove { path }) => Some((id, path.join("/"))),
            _ => None,
        };
        let removed: Vec<_> = std::mem::take(&mut self.files).into_iter().filter_map(remove).collect();
        for (id, _) in &removed {
            self.done(*id, Outcome::Recording(RecordingOutcome::Removed));
        }
        removed.into_iter().map(|(_, path)| path).collect()
    }

    pub(super) fn finish(&mut self, outcome: RecordingOutcome) -> String {
        let finishing = self.finishing();
        let [(id, path)] = &finishing[..] else { panic!("{finishing:?}") };
        self.done(*id, Outcome::Recording(outcome));
        self.run_for(ms(10));
        path.join("/")
    }

    /// Makes a complete recording of this size. Returns the name of its file.
    fn recorded(&mut self, id: &str, bytes: u64) -> String {
        let (session, stream) = self.publish(id, 0);
        let recording = self.recording().recording;
        let file = format!("live/streams/{id}.mp4");
        self.begun(recording, &file);
        self.gone(session, stream, Departure::Clean, 0);
        self.ended(recording, &file);
        self.over(recording, "the stream ended");
        self.take();
        self.finish(finished(bytes))
    }

    fn vods(&mut self) -> Vec<serde_json::Value> {
        let (status, body) = self.get("/live/rest/v2/vods/list/0/50");
        assert_eq!(status, 200);
        serde_json::from_str(&body).unwrap()
    }

    fn vod_names(&mut self) -> Vec<String> {
        self.vods().iter().map(|vod| vod["vodName"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the stored records of recordings.
    fn stored_vods(&mut self) -> Vec<Vod> {
        let vod = |(key, bytes): (store::Key, Bytes)| match Auxiliary::decode(key.kind, &bytes) {
            Some(Ok(Auxiliary::Vod(vod))) => Some(vod),
            _ => None,
        };
        self.store.load().unwrap().into_iter().filter_map(vod).collect()
    }

    fn record_call(&mut self, id: &str, rest: &str) -> serde_json::Value {
        let target = format!("/live/rest/v2/broadcasts/{id}/recording/{rest}");
        serde_json::from_str(&self.call(Method::Put, &target, "").1).unwrap()
    }

    fn told(&mut self) -> Vec<serde_json::Value> {
        let posts = std::mem::take(&mut self.hooks);
        let body = |posted: &Posted| serde_json::from_slice(&posted.post.body).unwrap();
        let told = posts.iter().map(body).collect();
        for posted in posts {
            self.done(posted.id, Outcome::Posted(Ok(200)));
        }
        told
    }

    fn told_of(&mut self, action: &str) -> Vec<serde_json::Value> {
        let mut all = Vec::new();
        loop {
            let told = self.told();
            if told.is_empty() {
                return all.into_iter().filter(|hook: &serde_json::Value| hook["action"] == action).collect();
            }
            all.extend(told);
        }
    }
}

pub(super) fn finished(bytes: u64) -> RecordingOutcome {
    RecordingOutcome::Finished(Finished { bytes, duration_ms: Some(4000) })
}

#[test]
fn a_stream_is_recorded_when_its_record_or_its_application_wants_it() {
    // Setting of the application, setting of the record (0: as the application), and the expected result.
    for (app, record, is_recorded) in [
        ("false", "0", false),
        ("false", "1", true),
        ("false", "-1", false),
        ("true", "0", true),
        ("true", "1", true),
        ("true", "-1", false),
    ] {
        let mut rig = Rig::with(&[], &[("mp4MuxingEnabled", app)]);
        let body = format!(r#"{{"streamId":"s","mp4Enabled":{record}}}"#);
        assert_eq!(rig.post("/live/rest/v2/broadcasts/create", &body).0, 200);
        rig.take();
        rig.publish("s", 1);
        let (begun, _) = rig.recordings();
        assert_eq!(begun.len(), usize::from(is_recorded), "{app} {record}");
        for (worker, order) in begun {
            assert_eq!((worker, order.kind), (WorkerId(1), "mp4"));
            assert_eq!((order.folder, order.stem), (path("live/streams"), "s".to_owned()));
        }
    }
    // A stream without a record of its own is recorded, too.
    let mut rig = Rig::with(&[], &[ALWAYS]);
    rig.publish("zombi", 0);
    assert_eq!(rig.recording().stem, "zombi");
}

const WEBM: (&str, &str) = ("webMMuxingEnabled", "true");
const VP9_OPUS: [Codec; 2] = [Codec::Vp9, Codec::Opus];

#[test]
fn a_stream_is_recorded_as_webm_when_it_is_wanted_and_has_the_tracks() {
    for (app, record, codecs, is_recorded) in [
        ("false", "0", &VP9_OPUS[..], false),
        ("false", "1", &VP9_OPUS, true),
        ("true", "-1", &VP9_OPUS, false),
        ("true", "0", &VP9_OPUS, true),
        ("true", "0", &[Codec::Av1, Codec::Aac], true),
        ("true", "0", &[Codec::Opus], true),
        ("true", "1", &[Codec::H264, Codec::Opus], false),
        ("true", "1", &[Codec::Aac], false),
    ] {
        let mut rig = Rig::with(&[], &[("webMMuxingEnabled", app)]);
        let body = format!(r#"{{"streamId":"s","webMEnabled":{record}}}"#);
        assert_eq!(rig.post("/live/rest/v2/broadcasts/create", &body).0, 200);
        rig.take();
        let (_, stream) = rig.publish("s", 1);
        // The sink waits for the tracks, so the beginning is not lost.
        let (begun, _) = rig.recordings();
        let is_wanted = !matches!((app, record), ("false", "0") | (_, "-1"));
        assert_eq!(begun.len(), usize::from(is_wanted), "{app} {record}");
        assert!(begun.iter().all(|(_, order)| (order.kind, &*order.stem) == ("webm", "s")));
        rig.report_codecs(codecs, (1, stream), 1000, 0, 0);
        let (again, ended) = rig.recordings();
        assert_eq!((again.len(), ended.len()), (0, usize::from(is_wanted && !is_recorded)), "{codecs:?}");
        rig.report_codecs(codecs, (1, stream), 2000, 0, 0);
        assert!(rig.is_quiet());
    }
}

#[test]
fn a_webm_recording_follows_the_tracks_of_its_stream() {
    let mut rig = Rig::with(&[], &[WEBM, HOOK]);
    let (_, stream) = rig.publish("s", 0);
    let first = rig.recording().recording;
    rig.report_codecs(&[Codec::H264, Codec::Aac], (0, stream), 1, 0, 0);
    assert_eq!(rig.recordings(), (vec![], vec![first]));
    rig.over(first, "recording stopped");
    assert!(rig.told_of("recordingFailed").is_empty());
    rig.report_codecs(&VP9_OPUS, (0, stream), 2, 0, 0);
    let second = rig.recording();
    assert_eq!(second.kind, "webm");
    // A report without codecs changes nothing.
    rig.report_codecs(&[], (0, stream), 3, 0, 0);
    assert!(rig.is_quiet());
    // A recording that fails is tried again in the same format.
    rig.over(second.recording, "the disk is full");
    rig.run_for(secs(30));
    assert_eq!(rig.recording().kind, "webm");
}

#[test]
fn both_containers_are_recorded_each_on_its_own() {
    let mut rig = Rig::with(&[], &[("record.max_streams", "1")]);
    rig.create("s");
    let (_, stream) = rig.publish("s", 0);
    let refused = "webm recording couldn't be started";
    assert_eq!(rig.record_call("s", "true?recordType=webm")["message"], refused, "nothing is known of it");
    rig.report(0, stream, 1, 0, 0);
    assert_eq!(rig.record_call("s", "true?recordType=webm")["message"], refused, "H.264 and AAC");
    assert_eq!(rig.record("s")["webMEnabled"], 0);
    rig.report_codecs(&VP9_OPUS, (0, stream), 2, 0, 0);
    let begun = rig.record_call("s", "true?recordType=webm&fileName=mine.webm");
    let webm = rig.recording();
    assert_eq!((webm.kind, &*webm.stem), ("webm", "mine"));
    assert_eq!((&rig.record("s")["webMEnabled"], &rig.record("s")["mp4Enabled"]), (&1.into(), &0.into()));
    assert_eq!(rig.record_call("s", "true?recordType=webm")["message"], "0");
    assert_eq!(rig.record_call("s", "true?recordType=webm&resolutionHeight=99")["message"], "0");
    // The limit (one here) counts streams: `s` may also be recorded as MP4, but `t` may not be recorded.
    rig.record_call("s", "true");
    let mp4 = rig.recording();
    assert_eq!((mp4.kind, rig.control.stats().recordings), ("mp4", 2));
    rig.create("t");
    rig.publish("t", 0);
    assert_eq!(rig.record_call("t", "true")["message"], "mp4 recording couldn't be started");
    rig.begun(webm.recording, "live/streams/mine.webm");
    rig.begun(mp4.recording, "live/streams/s.mp4");
    assert_eq!(rig.record_call("s", "false?recordType=webm"), begun);
    assert_eq!(rig.recordings(), (vec![], vec![webm.recording]));
    assert_eq!(
        rig.record_call("s", "false?recordType=webm")["message"],
        "webm recording couldn't be stopped"
    );
    rig.ended(webm.recording, "live/streams/mine.webm");
    rig.over(webm.recording, "recording stopped");
    assert_eq!(rig.finish(finished(9)), "live/streams/mine.webm");
    let vod = rig.vods().remove(0);
    assert_eq!((&vod["vodName"], &vod["vodId"]), (&"mine.webm".into(), &begun["dataId"]));
    assert_eq!(rig.control.stats().recordings, 1, "the other goes on");
}

#[test]
fn a_switch_of_a_live_stream_begins_and_ends_a_recording() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    assert!(rig.is_quiet());
    rig.record_call("s", "true");
    let first = rig.recording().recording;
    rig.record_call("s", "true");
    assert!(rig.is_quiet(), "once");
    assert_eq!(rig.control.stats().recordings, 1);
    rig.record_call("s", "false");
    assert_eq!(rig.recordings(), (vec![], vec![first]));
    rig.record_call("s", "false");
    assert!(rig.is_quiet());
    // The next recording begins before the last one is over, and is a recording of its own.
    rig.record_call("s", "true");
    let second = rig.recording().recording;
    assert_ne!(first, second);
    rig.over(first, "recording stopped");
    assert!(rig.is_quiet());
    rig.record_call("s", "false");
    assert_eq!(rig.recordings(), (vec![], vec![second]));
    rig.over(second, "recording stopped");
    assert_eq!(rig.control.stats().recordings, 0);
}

#[test]
fn a_call_begins_and_ends_a_recording_under_the_name_that_it_wants() {
    let mut rig = Rig::new();
    rig.create("s");
    let idle = rig.record_call("s", "true");
    assert_eq!((&idle["success"], &idle["message"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(rig.record("s")["mp4Enabled"], 1);
    assert_eq!(rig.record_call("s", "false")["success"], true);
    rig.publish("s", 0);
    rig.take();
    let at = rig.now.wall_ms.to_string();
    let begun = rig.record_call("s", "true?fileName=a/b.mp4");
    assert_eq!((&begun["success"], &begun["message"]), (&true.into(), &at.into()));
    let order = rig.recording();
    assert_eq!(order.stem, "a_b");
    // The answer has the id of the first file; further files have ids of their own.
    for (n, file) in ["live/streams/a.mp4", "live/streams/a_1.mp4"].into_iter().enumerate() {
        rig.begun(order.recording, file);
        rig.ended(order.recording, file);
        assert_eq!(rig.finish(finished(7)), file);
        let vod = rig.vods().remove(n);
        assert_eq!(vod["vodId"] == begun["dataId"], n == 0, "{vod}");
        assert_eq!((&vod["fileSize"], &vod["duration"]), (&7.into(), &4000.into()));
        assert_eq!(vod["filePath"].as_str(), file.strip_prefix("live/"));
    }
    assert_eq!(rig.record_call("s", "true")["message"], "0", "it records already");
    let ended = rig.record_call("s", "false");
    assert_eq!((&ended["dataId"], &ended["message"]), (&begun["dataId"], &begun["message"]));
    assert_eq!(rig.recordings().1, [order.recording]);
    assert_eq!(rig.record_call("s", "false")["message"], "mp4 recording couldn't be stopped");
    rig.over(order.recording, "recording stopped");
    rig.run_for(secs(60));
    assert!(rig.is_quiet(), "what was told to end is not begun again");
}

#[test]
fn names_have_the_date_and_folders_the_stream() {
    let mut rig = Rig::with(&[], &[ALWAYS, ("addDateTimeToMp4FileName", "true"), ("subFolder", "a/%m/%s")]);
    rig.publish("s", 0);
    let order = rig.recording();
    // The name has the start of the recording: 2023-11-14, 22:13:20 UTC.
    assert_eq!(order.folder, path("live/streams/a/s"));
    assert_eq!(order.stem, "s-2023-11-14_22-13-20.000");
    let mut rig = Rig::with(&[], &[ALWAYS, ("fileNameFormat", "%r%b{take-2}")]);
    rig.publish("s", 0);
    assert_eq!(rig.recording().stem, "s_take-2");
    // A name given in a call is used unchanged. `recordingSubfolder` has precedence over `subFolder`.
    let mut rig = Rig::with(
        &[],
        &[("addDateTimeToMp4FileName", "true"), ("subFolder", "all"), ("recordingSubfolder", "rec")],
    );
    rig.create("s");
    rig.publish("s", 0);
    rig.take();
    rig.record_call("s", "true?fileName=mine");
    let order = rig.recording();
    assert_eq!((order.folder, order.stem), (path("live/streams/rec"), "mine".to_owned()));
    let limits = &[ALWAYS, ("record.max_duration", "60"), ("record.max_file_bytes", "1000")];
    let mut rig = Rig::with(&[], limits);
    rig.publish("s", 0);
    let order = rig.recording();
    assert_eq!((order.file_ms_max, order.file_bytes_max), (Some(60_000), Some(1000)));
}

#[test]
fn no_more_streams_are_recorded_than_the_application_allows() {
    let mut rig = Rig::with(&[], &[ALWAYS, ("record.max_streams", "2")]);
    ["a", "b", "c"].iter().for_each(|id| rig.create(id));
    rig.publish("a", 0);
    let first = rig.recording().recording;
    rig.publish("b", 0);
    rig.recording();
    let log = logged(|| {
        rig.publish("c", 0);
        assert!(rig.is_quiet());
    });
    assert!(log.contains("not recorded") && log.contains("live/c"), "{log}");
    assert_eq!(rig.record_call("c", "true")["message"], "mp4 recording couldn't be started");
    assert_eq!(rig.record("c")["status"], "broadcasting", "it is live all the same");
    rig.record_call("a", "false");
    rig.over(first, "recording stopped");
    rig.take();
    assert_eq!(rig.record_call("c", "true")["success"], true);
}

#[test]
fn a_recording_that_fails_is_told_and_tried_again_while_its_stream_is_live() {
    let mut rig = Rig::with(&[], &[HOOK]);
    rig.create("s");
    let (session, stream) = rig.publish("s", 0);
    rig.mail(ToControl::SourceStarted(stream));
    rig.record_call("s", "true?fileName=mine");
    let first = rig.recording();
    rig.begun(first.recording, "live/streams/mine.mp4");
    rig.told_of("");
    let log = logged(|| {
        rig.ended(first.recording, "live/streams/mine.mp4");
        rig.over(first.recording, "the disk is full");
    });
    assert!(log.contains("WARN") && log.contains("the disk is full"), "{log}");
    let told = rig.told_of("recordingFailed");
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0]["id"], &told[0]["metadata"]["reason"]), (&"s".into(), &"the disk is full".into()));
    assert_eq!(rig.control.stats().recording_failures, 1);
    // The recording has failed, but the file that it wrote so far is finished.
    assert_eq!(rig.finish(finished(9)), "live/streams/mine.mp4");
    assert_eq!(rig.vod_names(), ["mine.mp4"]);
    rig.run_for(secs(29));
    assert!(rig.is_quiet());
    rig.run_for(secs(1));
    let again = rig.recording();
    assert_eq!(again.stem, "mine", "under the name that was wanted");
    // If the stream ends before the next attempt, there is no further attempt, and no failure is reported.
    rig.over(again.recording, "the disk is full");
    rig.gone(session, stream, Departure::Clean, 0);
    rig.run_for(secs(60));
    assert!(rig.is_quiet());
    // A recording that ends together with its stream is not a failure.
    rig.told_of("");
    let (session, stream) = rig.publish("s", 0);
    let order = rig.recording();
    rig.gone(session, stream, Departure::Clean, 0);
    rig.over(order.recording, "the stream ended");
    assert!(rig.told_of("recordingFailed").is_empty());
    assert_eq!(rig.control.stats().recording_failures, 2);
}

#[test]
fn a_file_whose_sink_is_gone_without_a_word_is_finished() {
    let mut rig = Rig::with(&[], &[ALWAYS]);
    rig.publish("s", 0);
    let s = rig.recording().recording;
    rig.publish("t", 0);
    let t = rig.recording().recording;
    rig.begun(s, "live/streams/s.mp4");
    rig.begun(t, "live/streams/t.mp4");
    rig.over(s, "internal error");
    assert_eq!(rig.finish(finished(5)), "live/streams/s.mp4", "its own, and no other");
    rig.ended(t, "live/streams/t.mp4");
    rig.over(t, "recording stopped");
    assert_eq!(rig.finish(finished(5)), "live/streams/t.mp4", "once");
}

#[test]
fn a_file_that_cannot_be_finished_is_tried_again() {
    let mut rig = Rig::with(&[], &[ALWAYS, HOOK]);
    let (session, stream) = rig.publish("s", 0);
    rig.mail(ToControl::SourceStarted(stream));
    let recording = rig.recording().recording;
    rig.begun(recording, "live/streams/s.mp4");
    assert!(rig.vods().is_empty(), "nobody sees an unfinished one");
    rig.gone(session, stream, Departure::Clean, 0);
    rig.ended(recording, "live/streams/s.mp4");
    rig.over(recording, "the stream ended");
    rig.told_of("");
    let log = logged(|| drop(rig.finish(RecordingOutcome::Failed("no space".into()))));
    assert!(log.contains("ERROR") && log.contains("no space"), "{log}");
    assert!(rig.vods().is_empty() && rig.finishing().is_empty());
    rig.run_for(secs(29));
    assert!(rig.finishing().is_empty());
    rig.run_for(secs(1));
    assert_eq!(rig.finish(finished(5)), "live/streams/s.mp4");
    let told = rig.told_of("vodReady");
    let vod = rig.vods().remove(0);
    assert_eq!((&told[0]["vodName"], &told[0]["vodId"]), (&"s".into(), &vod["vodId"]));
    assert_eq!((&told[0]["duration"], told.len()), (&"4000".into(), 1));
    assert_eq!(rig.control.stats().recording_failures, 1);
    rig.run_for(secs(120));
    assert!(rig.finishing().is_empty() && rig.told_of("").is_empty());
}

#[test]
fn nothing_is_left_of_a_recording_without_media() {
    let mut rig = Rig::with(&[], &[ALWAYS, HOOK]);
    rig.publish("s", 0);
    let recording = rig.recording().recording;
    rig.begun(recording, "live/streams/s.mp4");
    assert_eq!(rig.stored_vods().len(), 1);
    rig.ended(recording, "live/streams/s.mp4");
    rig.finish(RecordingOutcome::Empty);
    assert!(rig.vods().is_empty() && rig.stored_vods().is_empty());
    assert!(rig.told_of("vodReady").is_empty());
}

#[test]
fn what_a_crash_has_left_is_finished_at_the_next_start() {
    let mut rig = Rig::with(&[], &[ALWAYS]);
    rig.recorded("done", 5);
    rig.publish("s", 0);
    let recording = rig.recording().recording;
    rig.begun(recording, "live/streams/s.mp4");
    assert!(rig.stored_vods().iter().any(|vod| vod.unfinished), "it is on the disk at once");
    let mut again = Rig::start(config(&[], &[ALWAYS]), rig.store);
    assert_eq!(again.vod_names(), ["done.mp4"]);
    assert_eq!(again.finish(finished(3)), "live/streams/s.mp4");
    assert_eq!(again.vod_names(), ["done.mp4", "s.mp4"]);
    let mut third = Rig::start(config(&[], &[ALWAYS]), again.store);
    assert!(third.finishing().is_empty(), "once");
    assert_eq!(third.vod_names(), ["done.mp4", "s.mp4"]);
}

#[test]
fn a_file_without_a_record_is_finished_at_the_next_start_and_before_anything_is_recorded() {
    let mut rig = Rig::with(&[], &[ALWAYS, HOOK]);
    rig.recorded("done", 5);
    let mut again = Rig::start_after(config(&[], &[ALWAYS, HOOK]), rig.store, None);
    let (find, Work::Recording(RecordingWork::Find { apps })) = again.files.remove(0) else { panic!() };
    assert!(apps.contains(&"live".to_owned()));
    again.publish("s", 0);
    assert!(again.is_quiet(), "its file could be taken for a left one");
    assert_eq!(again.sweeps, [apps], "nobody waits for what may be many files");
    let found = ["live/streams/done.mp4", "live/streams/a/lost_1.mp4"].map(path).to_vec();
    again.done(find, Outcome::Recording(RecordingOutcome::Found(found)));
    assert_eq!(again.recording().stem, "s");
    assert_eq!(again.finish(finished(3)), "live/streams/a/lost_1.mp4", "not one that has a record");
    let is_it =
        |vod: &serde_json::Value| vod["filePath"] == "streams/a/lost_1.mp4" && vod["streamId"] == "lost_1";
    assert!(again.vods().iter().any(is_it), "{:?}", again.vods());
    assert_eq!(again.told_of("vodReady").len(), 1);
    assert_eq!(again.stored_vods().len(), 2);
}

#[test]
fn files_of_streams_that_are_over_are_looked_for_all_the_time_and_by_one_job() {
    let mut rig = Rig::with(&[], &[("dvr.window", "600")]);
    let after = |rig: &mut Rig, seconds: u64| {
        rig.now.mono += Duration::from_secs(seconds);
        rig.control.handle_host(rig.now, HostFigures::default(), Vec::new());
        rig.drain();
        rig.sweeps.len()
    };
    assert_eq!((rig.sweeps.len(), after(&mut rig, 59), after(&mut rig, 1)), (1, 1, 2));
    rig.holds_sweeps = true;
    assert_eq!((after(&mut rig, 60), after(&mut rig, 3600)), (3, 3), "the disk hangs");
    // If no application keeps DVR folders, only the search at the start takes place.
    let mut idle = Rig::with(&[], &[]);
    assert_eq!((idle.sweeps.len(), after(&mut idle, 60), after(&mut idle, 60)), (1, 1, 1));
}

#[test]
fn a_left_file_that_cannot_be_finished_or_found_keeps_nothing_waiting() {
    let found = vec![path("live/streams/bad.mp4"), path("live/streams/empty.mp4")];
    let mut rig = Rig::start_after(config(&[], &[ALWAYS]), Memory::new(), Some(found));
    let [(bad, _), (empty, _)] = &rig.finishing()[..] else { panic!() };
    rig.done(*bad, Outcome::Recording(RecordingOutcome::Failed("damaged".into())));
    rig.done(*empty, Outcome::Recording(RecordingOutcome::Empty));
    rig.run_for(secs(120));
    assert!(rig.finishing().is_empty() && rig.vods().is_empty() && rig.stored_vods().is_empty());
    let mut rig = Rig::start_after(config(&[], &[ALWAYS]), Memory::new(), None);
    let (find, _) = rig.files.remove(0);
    rig.publish("s", 0);
    rig.done(find, Outcome::Recording(RecordingOutcome::Failed("no such folder".into())));
    assert_eq!(rig.recording().stem, "s");
}

#[test]
fn a_record_that_the_store_does_not_take_is_written_until_it_does() {
    let faults = Faults::default();
    let mut rig = Rig::start(config(&[], &[ALWAYS]), Memory::with_faults(faults.clone()));
    rig.publish("s", 0);
    let recording = rig.recording().recording;
    faults.fail(1, 6);
    rig.begun(recording, "live/streams/s.mp4");
    assert!(rig.stored_vods().is_empty());
    rig.ended(recording, "live/streams/s.mp4");
    assert_eq!(rig.finish(finished(5)), "live/streams/s.mp4", "the file is finished all the same");
    rig.run_for(secs(120));
    assert_eq!(rig.vod_names(), ["s.mp4"]);
    assert_eq!(rig.stored_vods().len(), 1);
    // A deleted record is not written again.
    let id = rig.vods()[0]["vodId"].as_str().unwrap().to_owned();
    let (status, body) = rig.call(Method::Delete, &format!("/live/rest/v2/vods/{id}"), "");
    assert!(status == 200 && body.contains("vod deleted"), "{body}");
    assert_eq!(rig.removed(), ["live/streams/s.mp4"]);
    rig.run_for(secs(120));
    assert!(rig.stored_vods().is_empty());
    // A record that is deleted right after it was written is not written again, either.
    rig.recorded("t", 5);
    let id = rig.vods()[0]["vodId"].as_str().unwrap().to_owned();
    rig.call(Method::Delete, &format!("/live/rest/v2/vods/{id}"), "");
    rig.run_for(secs(120));
    assert!(rig.stored_vods().is_empty());
}

#[test]
fn old_recordings_go_by_their_age() {
    let mut rig = Rig::with(&[], &[ALWAYS, ("record.max_age", "3600")]);
    rig.recorded("a", 5);
    rig.run_for(secs(1800));
    rig.recorded("b", 5);
    rig.run_for(secs(1799));
    assert!(rig.removed().is_empty());
    assert_eq!(rig.vod_names(), ["a.mp4", "b.mp4"]);
    rig.run_for(secs(61));
    assert_eq!(rig.removed(), ["live/streams/a.mp4"]);
    assert_eq!((rig.vod_names(), rig.stored_vods().len()), (vec!["b.mp4".to_owned()], 1));
    // A file that is still being written is not removed, however old it is.
    rig.publish("c", 0);
    let recording = rig.recording().recording;
    rig.begun(recording, "live/streams/c.mp4");
    rig.run_for(secs(8000));
    assert_eq!(rig.removed(), ["live/streams/b.mp4"]);
    assert_eq!(rig.stored_vods().len(), 1);
}

#[test]
fn nothing_goes_by_its_age_while_the_wall_clock_is_in_doubt() {
    const YEARS_MS: i64 = 10 * 365 * 86_400_000;
    let mut rig = Rig::with(&[], &[ALWAYS, ("record.max_age", "7200")]);
    rig.recorded("a", 5);
    rig.run_for(secs(120));
    rig.shift_wall(YEARS_MS);
    rig.run_for(secs(120));
    rig.shift_wall(-YEARS_MS);
    rig.run_for(secs(3500));
    assert!(rig.removed().is_empty(), "a clock ran ahead for two minutes");
    // A machine that starts without the time records, and then gets the time.
    rig.shift_wall(-1_699_999_000_000);
    rig.recorded("b", 5);
    rig.shift_wall(1_699_999_000_000);
    rig.run_for(secs(3000));
    assert!(rig.removed().is_empty());
    assert_eq!(rig.vod_names(), ["a.mp4", "b.mp4"]);
    rig.run_for(secs(7200));
    assert_eq!(rig.removed(), ["live/streams/a.mp4"], "the date of the other is not known");
    assert_eq!(rig.vod_names(), ["b.mp4"]);
    rig.recorded("c", 5);
    rig.run_for(secs(7300));
    assert_eq!(rig.removed(), ["live/streams/c.mp4"], "and does not keep later ones");
}

#[test]
fn the_oldest_recordings_go_when_all_have_too_many_bytes() {
    let mut rig = Rig::with(&[], &[ALWAYS, ("record.max_bytes", "100")]);
    rig.recorded("a", 40);
    rig.recorded("b", 60);
    rig.run_for(secs(120));
    assert!(rig.removed().is_empty(), "as many as allowed");
    rig.recorded("c", 39);
    rig.run_for(secs(1));
    assert_eq!(rig.removed(), ["live/streams/a.mp4"]);
    assert_eq!(rig.vod_names(), ["b.mp4", "c.mp4"]);
    rig.recorded("d", 100);
    rig.run_for(secs(1));
    assert_eq!(rig.removed(), ["live/streams/b.mp4", "live/streams/c.mp4"]);
    assert_eq!(rig.vod_names(), ["d.mp4"]);
    // A start searches for old recordings, too.
    let settings = [ALWAYS, ("record.max_bytes", "99")];
    let mut again = Rig::start(config(&[], &settings), rig.store);
    again.run_for(ms(10));
    assert_eq!(again.removed(), ["live/streams/d.mp4"]);
    assert!(again.vod_names().is_empty());
}

#[test]
fn the_oldest_recording_is_the_first_one_also_when_the_wall_clock_was_set_back() {
    let mut rig = Rig::with(&[], &[ALWAYS, ("record.max_bytes", "100")]);
    rig.recorded("a", 40);
    rig.shift_wall(-3_600_000);
    let began_ms = rig.now.wall_ms;
    rig.recorded("b", 40);
    rig.recorded("c", 40);
    rig.run_for(secs(1));
    assert_eq!(rig.removed(), ["live/streams/a.mp4"]);
    let vods = rig.vods();
    let ids: Vec<&str> = vods.iter().map(|vod| vod["vodId"].as_str().unwrap()).collect();
    assert!(ids.len() == 2 && ids[0] < ids[1] && ids.iter().all(|id| id.len() == 24), "{ids:?}");
    // Dates follow the wall clock, although ids only increase; durations are those of the files.
    for vod in &vods {
        let began = vod["startTime"].as_u64().unwrap();
        assert!((began_ms..began_ms + 60_000).contains(&began), "{vod}");
        assert_eq!(vod["duration"], 4000, "{vod}");
    }
}

#[test]
fn recordings_go_with_their_application() {
    let mut rig = Rig::with(&[], &[ALWAYS]);
    rig.recorded("a", 5);
    rig.publish("s", 0);
    let recording = rig.recording().recording;
    rig.begun(recording, "live/streams/s.mp4");
    let app: Arc<str> = "live".into();
    rig.control.remove_app(rig.now, &app);
    rig.control.walks.purge(rig.now, app);
    rig.drain();
    rig.ended(recording, "live/streams/s.mp4");
    rig.over(recording, "the stream ended");
    // The job still finishes the file, although the application's folder has been removed.
    rig.finish(finished(5));
    rig.run_for(secs(120));
    assert!(rig.stored_vods().is_empty());
    assert_eq!(rig.control.stats().recording_failures, 0);
}

#[test]
fn a_recording_that_a_call_began_goes_on_beside_other_changes_of_its_record() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.take();
    // The call arrives while a change is being committed, and is followed by another change.
    rig.hold = true;
    let path = "/live/rest/v2/broadcasts/s";
    rig.send(Method::Put, path, r#"{"name":"one"}"#);
    rig.run_for(ms(3));
    let called = rig.send(Method::Put, &format!("{path}/recording/true?fileName=named"), "");
    rig.send(Method::Put, path, r#"{"name":"two"}"#);
    let order = rig.recording();
    assert!(order.stem.contains("named"), "{order:?}");
    for _ in 0..3 {
        rig.release();
        rig.hold = true;
        rig.run_for(ms(3));
    }
    rig.release();
    rig.run_for(ms(10));
    assert!(rig.answer(called).unwrap().1.contains("\"success\":true"));
    let (begun, ended) = rig.recordings();
    assert!(begun.is_empty() && ended.is_empty(), "{begun:?} {ended:?}");
    assert_eq!(rig.record("s")["name"], "two");
}

#[test]
fn a_stream_that_was_refused_for_the_number_is_recorded_when_another_ends() {
    let mut rig = Rig::with(&[], &[ALWAYS, ("record.max_streams", "1")]);
    let (session, stream) = rig.publish("a", 0);
    let first = rig.recording();
    rig.begun(first.recording, "live/streams/a.mp4");
    let (other, gone) = rig.publish("b", 0);
    rig.publish("c", 0);
    assert!(rig.is_quiet());
    // A refused stream that ends is forgotten.
    rig.gone(other, gone, Departure::Clean, 0);
    rig.take();
    rig.gone(session, stream, Departure::Clean, 0);
    rig.take();
    rig.over(first.recording, "the stream ended");
    let order = rig.recording();
    assert!(order.stem.starts_with('c'), "{order:?}");
}

#[test]
fn the_switch_of_an_application_begins_and_ends_recordings_at_once() {
    let mut rig = Rig::new();
    rig.publish("s", 0);
    assert!(rig.is_quiet());
    let settings = |set: &[(&str, &str)]| AppSettings::of(schema(), "live", set).unwrap();
    rig.control.install_app(rig.now, settings(&[ALWAYS]));
    rig.drain();
    let order = rig.recording();
    rig.control.install_app(rig.now, settings(&[]));
    rig.drain();
    assert_eq!(rig.recordings().1, [order.recording]);
}
