//! Shares of resources: how much one application may use, and how much is left for the others.

use super::*;
use crate::control::records::auxiliary::{Auxiliary, Kept, Uploaded, Vod};
use crate::control::removals::WAITING_MAX;
use crate::jobs::{ObjectOutcome, RecordingOutcome, RecordingWork, Work};

const HOOK: (&str, &str) = ("listenerHookURL", "http://hook.example/in");
/// Allows any number of streams from one address.
const MANY: (&str, &str) = ("limits.publishers_per_address", "1000000");

impl Rig {
    /// Starts a stream of an application, and reports it as live.
    fn begin_in(&mut self, app: &str, id: &str) {
        let request = PublishRequest { key: StreamKey::new(app, id), ..self.request(id, 0) };
        let stream = self.ask(request).unwrap().stream;
        self.mail(ToControl::SourceStarted(stream));
    }

    fn create_in(&mut self, app: &str, body: &str) -> (u16, String) {
        self.post(&format!("/{app}/rest/v2/broadcasts/create"), body)
    }

    /// Counts the hooks of an application that are being sent.
    fn hooks_of(&self, app: &str) -> usize {
        let name = format!("\"app\":\"{app}\"");
        self.hooks.iter().filter(|hook| String::from_utf8_lossy(&hook.body).contains(&name)).count()
    }
}

#[test]
fn q_16_receivers_that_are_silent_cost_no_other_application_a_hook() {
    let mut rig = Rig::with(&[MANY], &[HOOK]);
    for n in 0..3000 {
        rig.begin_in("live", &format!("s{n}"));
    }
    let busy = rig.hooks_of("live");
    assert!(busy <= 10, "{busy} threads wait for one application");
    for n in 0..3 {
        rig.begin_in("LiveApp", &format!("s{n}"));
    }
    assert_eq!(rig.hooks_of("LiveApp"), 3, "handed out at once");
    // Further hooks of the flooding application do not displace the hooks of others.
    for n in 0..20 {
        rig.begin_in("LiveApp", &format!("late{n}"));
    }
    for n in 3000..6000 {
        rig.begin_in("live", &format!("s{n}"));
    }
    let mut told = 0;
    for _ in 0..40 {
        for hook in std::mem::take(&mut rig.hooks) {
            if String::from_utf8_lossy(&hook.body).contains("\"app\":\"LiveApp\"") {
                told += 1;
                rig.done(hook.id, Outcome::Posted(Ok(200)));
            } else {
                rig.now.mono += ms(10);
                rig.done(hook.id, Outcome::Posted(Err("timed out".into())));
            }
        }
    }
    assert_eq!(told, 23);
}

#[test]
fn q_16_a_name_that_is_known_waits_for_no_resolver() {
    let mut rig = Rig::new();
    let endpoint = |rig: &mut Rig, app: &str, id: &str, url: &str| {
        let path = format!("/{app}/rest/v2/broadcasts/{id}/rtmp-endpoint");
        let (status, text) = rig.post(&path, &format!(r#"{{"rtmpUrl":"{url}"}}"#));
        assert!(status == 200 && text.contains("\"success\":true"), "{text}");
    };
    for app in ["live", "LiveApp"] {
        rig.create_in(app, r#"{"streamId":"s"}"#);
        rig.begin_in(app, "s");
    }
    endpoint(&mut rig, "LiveApp", "s", "rtmp://cdn.example/app/key");
    let ask = rig.resolves.pop().unwrap();
    rig.done(ask.id, Outcome::Resolved(Ok(vec!["198.51.100.9:1935".parse().unwrap()])));
    assert_eq!(rig.orders().len(), 1);
    // The resolver is silent from now on. Known names are answered for all applications, in upper or lower case and
    // with a trailing dot.
    rig.run_for(secs(60));
    for (n, host) in ["cdn.example", "CDN.example.", "localhost", "a.localhost"].iter().enumerate() {
        endpoint(&mut rig, "live", "s", &format!("rtmp://{host}:{}/app/key", 2000 + n));
        let orders = rig.orders();
        if host.contains("localhost") {
            continue;
        }
        assert_eq!(orders[0].1.address, format!("198.51.100.9:{}", 2000 + n).parse().unwrap(), "{host}");
    }
    assert_eq!(rig.resolves.len(), 1, "it is asked for again, once");
    // A name resolved an hour ago is resolved again.
    rig.resolves.clear();
    rig.run_for(secs(3600));
    rig.take();
    endpoint(&mut rig, "LiveApp", "s", "rtmp://cdn.example:3000/app/key");
    assert!(rig.orders().is_empty());
}

#[test]
fn q_17_an_application_leaves_room_for_the_records_and_sources_of_others() {
    let mut rig = Rig::with(&[("limits.broadcasts", "80"), ("limits.pulls", "16"), MANY], &[]);
    let fill = |rig: &mut Rig, app: &str| {
        (0..100).take_while(|n| rig.create_in(app, &format!(r#"{{"streamId":"s{n}"}}"#)).0 == 200).count()
    };
    assert_eq!(fill(&mut rig, "live"), 70, "an eighth is left");
    let (status, refused) = rig.create_in("live", r#"{"streamId":"more"}"#);
    assert_eq!(status, 400);
    assert!(refused.contains("Broadcast limit is reached."), "{refused}");
    let publisher = rig.request("unknown", 0);
    assert!(matches!(rig.ask(publisher), Err(Refusal::NotAllowed(_))));
    rig.begin_in("LiveApp", "unknown");
    assert_eq!(fill(&mut rig, "LiveApp"), 9);
    // For running sources, an application must also leave an eighth of the places to others.
    let mut rig = Rig::with(&[("limits.pulls", "16")], &[]);
    let start = |rig: &mut Rig, app: &str| {
        let source =
            |n| format!(r#"{{"streamId":"{n}","type":"streamSource","streamUrl":"udp://:{}"}}"#, 5000 + n);
        let path = format!("/{app}/rest/v2/broadcasts/create?autoStart=true");
        (0..20).filter(|n| rig.post(&path, &source(*n)).1.contains("\"success\":true")).count()
    };
    assert_eq!(start(&mut rig, "live"), 14, "an eighth is left");
    assert_eq!(start(&mut rig, "LiveApp"), 2);
}

/// While one application floods the server, the requests of another one must be answered within this time, which is
/// that of one commit.
const COMMIT: Duration = Duration::from_millis(5);

#[test]
fn q_17_a_hundred_thousand_records_of_one_application_hold_up_no_other() {
    let mut rig = Rig::new();
    let (mut made, mut refused) = (0, 0);
    for thousand in 0..100 {
        rig.take();
        let mut others = Vec::new();
        for n in 0..1000 {
            let body = format!(r#"{{"streamId":"{thousand}-{n}"}}"#);
            rig.send(Method::Post, "/live/rest/v2/broadcasts/create", &body);
            if n == 500 {
                let body = format!(r#"{{"streamId":"{thousand}"}}"#);
                others.push(rig.send(Method::Post, "/LiveApp/rest/v2/broadcasts/create", &body));
            }
        }
        rig.run_for(COMMIT);
        for session in others {
            let (status, text) = rig.answer(session).expect("an answer with the commit");
            assert_eq!(status, 200, "{thousand}: {text}");
        }
        for (_, mail) in rig.take() {
            if let ToWorker::RestReply { response, .. } = mail {
                *(if response.status == 200 { &mut made } else { &mut refused }) += 1;
            }
        }
    }
    assert_eq!(made + refused, 100_000);
    assert!((70_000..87_500).contains(&made), "{made}");
}

#[test]
fn q_17_forty_slow_uploads_of_one_application_hold_up_no_other() {
    let mut rig = Rig::with(&[], &[("remoteAllowedCIDR", "127.0.0.0/8")]);
    let begin = |rig: &mut Rig, app: &str, n: usize| {
        let path = format!("/{app}/rest/v2/vods/create?name=a.mp4");
        let mut request = request(Method::Post, &path, "");
        request.headers.push("Content-Type", "multipart/form-data; boundary=b");
        // Each address sends as many uploads as it may.
        let session = rig.send_request(&format!("127.0.0.{}:9", 1 + n / 4), request);
        rig.run_for(COMMIT);
        // The upload was admitted if a job is to create its file.
        rig.answer(session).is_none() && rig.files.pop().is_some()
    };
    let slow = (0..40).filter(|n| begin(&mut rig, "live", *n)).count();
    assert!((30..36).contains(&slow), "{slow} uploads that never end");
    for n in 40..43 {
        assert!(begin(&mut rig, "LiveApp", n), "{n}");
    }
}

#[test]
fn q_17_five_hundred_sources_of_one_application_that_wait_hold_up_no_other() {
    let mut rig = Rig::new();
    let start = |rig: &mut Rig, app: &str, n: usize| {
        let body = format!(r#"{{"streamId":"{n}","type":"streamSource","streamUrl":"udp://:{}"}}"#, 5000 + n);
        let path = format!("/{app}/rest/v2/broadcasts/create?autoStart=true");
        let (_, text) = rig.post(&path, &body);
        let ordered = rig.take().iter().any(|(_, mail)| matches!(mail, ToWorker::StartPull(_)));
        assert_eq!(ordered, text.contains("\"success\":true"), "{text}");
        ordered
    };
    let waiting = (0..500).filter(|n| start(&mut rig, "live", *n)).count();
    assert!((400..500).contains(&waiting), "{waiting}");
    // No media arrives for these sources for two minutes.
    rig.run_for(Duration::from_secs(120));
    for n in 600..620 {
        assert!(start(&mut rig, "LiveApp", n), "{n}");
    }
}

#[test]
fn q_17_searches_of_one_application_leave_room_and_turns_for_those_of_others() {
    let mut rig = Rig::new();
    for app in ["live", "LiveApp"] {
        (0..2500).for_each(|n| {
            let body = format!(r#"{{"streamId":"{n}"}}"#);
            rig.send(Method::Post, &format!("/{app}/rest/v2/broadcasts/create"), &body);
        });
    }
    rig.run_for(secs(1));
    rig.take();
    let search = |rig: &mut Rig, app: &str| {
        let path = format!("/{app}/rest/v2/broadcasts/list/0/5?search=none&sort_by=date&order_by=desc");
        rig.send(Method::Get, &path, "")
    };
    let many: Vec<_> = (0..300).map(|_| search(&mut rig, "live")).collect();
    let refused = many.into_iter().filter(|one| rig.answer(*one).is_some()).count();
    assert_eq!(refused, 300 - 128, "half of the places are left");
    let another = search(&mut rig, "LiveApp");
    assert_eq!(rig.answer(another), None, "it waits");
    // A list that is complete in one slice does not wait.
    assert_eq!(rig.get("/LiveApp/rest/v2/broadcasts/list/0/5").0, 200);
    while rig.answer(another).is_none() {
        rig.set(rig.control.walks.scans.deadline().expect("its turn comes"));
        rig.control.handle_timeout(rig.now);
        rig.drain();
    }
    let before = rig.take().iter().filter(|(_, mail)| matches!(mail, ToWorker::RestReply { .. })).count();
    assert!(before <= 8, "{before} of the many came first");
}

const S3: [(&str, &str); 5] = [
    ("s3RecordingEnabled", "true"),
    ("s3AccessKey", "somebody"),
    ("s3SecretKey", "a secret"),
    ("s3BucketName", "films"),
    ("s3Endpoint", "http://store.example"),
];

impl Rig {
    fn add_file(&mut self, app: &str, id: &str, kept: Option<Kept>) {
        self.add_named_file(app, (id, id), kept);
    }

    fn add_named_file(&mut self, app: &str, (id, name): (&str, &str), kept: Option<Kept>) {
        let vod = Vod {
            vod_id: Some(id.to_owned()),
            vod_name: Some(format!("{name}.mp4")),
            file_path: Some(format!("streams/{name}.mp4")),
            kind: Some(Vod::RECORDED.to_owned()),
            kept,
            ..Vod::default()
        };
        self.control.records.auxiliary.insert(Vod::key(&app.into(), id), Auxiliary::Vod(vod));
    }

    fn delete_file(&mut self, app: &str, id: &str) {
        self.send(Method::Delete, &format!("/{app}/rest/v2/vods/{id}"), "");
    }

    /// Returns the jobs that remove files of an application.
    fn removals_of(&mut self, app: &str) -> Vec<JobId> {
        let is_removal = |work: &Work| match work {
            Work::Recording(RecordingWork::Remove { path }) => path[0] == app,
            _ => false,
        };
        let (removals, others) = self.files.drain(..).partition(|(_, work)| is_removal(work));
        self.files = others;
        let removals: Vec<(JobId, Work)> = removals;
        removals.into_iter().map(|(id, _)| id).collect()
    }
}

#[test]
fn q_17_removals_of_one_application_leave_room_and_none_is_forgotten() {
    const FILES: usize = 4200;
    let mut rig = Rig::new();
    rig.add_file("LiveApp", "other", None);
    for n in 0..FILES {
        rig.add_file("live", &format!("v{n}"), None);
        rig.delete_file("live", &format!("v{n}"));
    }
    rig.run_for(ms(10));
    let first = rig.removals_of("live");
    assert!((2000..2100).contains(&first.len()), "half of the places are left: {}", first.len());
    rig.delete_file("LiveApp", "other");
    rig.run_for(ms(10));
    assert_eq!(rig.removals_of("LiveApp").len(), 1);
    // A removal that fails is retried, like those that found no place.
    let mut left = FILES;
    for (n, job) in first.into_iter().enumerate() {
        let is_failed = n == 0;
        left -= usize::from(!is_failed);
        let failed = RecordingOutcome::Failed("the disk is gone".into());
        let outcome = if is_failed { failed } else { RecordingOutcome::Removed };
        rig.done(job, Outcome::Recording(outcome));
    }
    while left > 0 {
        rig.run_for(secs(60));
        let more = rig.removals_of("live");
        assert!(!more.is_empty(), "{left} files are forgotten");
        left -= more.len();
        more.into_iter().for_each(|job| rig.done(job, Outcome::Recording(RecordingOutcome::Removed)));
    }
}

#[test]
fn q_17_failed_removals_are_retried_ever_later_and_their_number_is_bounded() {
    const FILES: usize = WAITING_MAX + 500;
    let mut rig = Rig::new();
    let fail = |rig: &mut Rig, job| {
        let failed = RecordingOutcome::Failed("the disk is gone".into());
        rig.done(job, Outcome::Recording(failed));
    };
    for n in 0..FILES {
        rig.add_file("live", &format!("v{n}"), None);
    }
    let mut taken = 0;
    for n in 0..FILES {
        let (_, answer) = rig.call(Method::Delete, &format!("/live/rest/v2/vods/v{n}"), "");
        let jobs = rig.removals_of("live");
        taken += usize::from(answer.contains("\"success\":true"));
        jobs.into_iter().for_each(|job| fail(&mut rig, job));
    }
    assert_eq!(taken, WAITING_MAX, "then records stay");
    let (_, shown) = rig.get(&format!("/live/rest/v2/vods/v{}", FILES - 1));
    assert!(shown.contains("\"filePath\":\"streams/"), "{shown}");
    let mut attempts = Vec::new();
    for _ in 0..6 {
        let mut of_hour = 0;
        for _ in 0..360 {
            rig.run_for(secs(10));
            let jobs = rig.removals_of("live");
            of_hour += jobs.len();
            jobs.into_iter().for_each(|job| fail(&mut rig, job));
        }
        attempts.push(of_hour);
    }
    assert!(attempts[0] <= 8 * WAITING_MAX && attempts[5] <= 3 * WAITING_MAX, "{attempts:?}");
    let stats = rig.control.stats().files;
    assert_eq!(stats.removals_waiting, WAITING_MAX);
    let failed = WAITING_MAX + attempts.iter().sum::<usize>();
    assert_eq!(usize::try_from(stats.removal_failures), Ok(failed));
    // Once the disk works again, all files are removed, and others may be removed.
    let mut left = WAITING_MAX;
    for _ in 0..100 {
        rig.run_for(secs(60));
        let jobs = rig.removals_of("live");
        left -= jobs.len();
        jobs.into_iter().for_each(|job| rig.done(job, Outcome::Recording(RecordingOutcome::Removed)));
    }
    assert_eq!((left, rig.control.stats().files.removals_waiting), (0, 0));
    let (_, answer) = rig.call(Method::Delete, &format!("/live/rest/v2/vods/v{}", FILES - 1), "");
    assert!(answer.contains("\"success\":true"), "{answer}");
}

#[test]
fn a_removal_that_is_retried_spares_a_new_file_of_that_name() {
    let mut rig = Rig::new();
    rig.add_file("live", "v", None);
    rig.delete_file("live", "v");
    rig.run_for(ms(10));
    let [job] = rig.removals_of("live")[..] else { panic!("one removal") };
    rig.done(job, Outcome::Recording(RecordingOutcome::Failed("the disk is gone".into())));
    rig.add_named_file("live", ("w", "v"), None);
    rig.run_for(secs(120));
    assert!(rig.removals_of("live").is_empty());
}

#[test]
fn q_17_removals_from_a_silent_storage_leave_room_for_the_files_of_others() {
    let mut rig = Rig::with(&[], &S3);
    for (app, files) in [("live", 300), ("LiveApp", 1)] {
        for n in 0..files {
            let id = format!("v{n}");
            rig.add_file(
                app,
                &id,
                Some(Kept::There(Box::new(Uploaded { name: id.as_str().into(), store: None }))),
            );
            rig.delete_file(app, &id);
        }
        rig.run_for(ms(10));
    }
    let objects = |rig: &mut Rig| -> Vec<JobId> {
        let (objects, others) = rig.files.drain(..).partition(|(_, work)| matches!(work, Work::Object(_)));
        rig.files = others;
        let objects: Vec<(JobId, Work)> = objects;
        objects.into_iter().map(|(id, _)| id).collect()
    };
    let mut due = objects(&mut rig);
    assert_eq!(due.len(), 129 + 1, "half of the places are left for others");
    let mut removed = 0;
    for _ in 0..100 {
        removed += due.len();
        due.drain(..).for_each(|job| rig.done(job, Outcome::Object(ObjectOutcome::Done)));
        rig.run_for(secs(10));
        due = objects(&mut rig);
    }
    assert_eq!(removed, 301);
}

#[test]
fn q_17_lists_of_viewers_of_one_application_leave_places_for_those_of_others() {
    let mut rig = Rig::new();
    rig.begin_in("live", "s");
    rig.begin_in("LiveApp", "s");
    let ask = |rig: &mut Rig, app: &str| {
        let path = format!("/{app}/rest/v2/broadcasts/s/webrtc-client-stats/0/10");
        rig.send(Method::Get, &path, "")
    };
    let asked: Vec<_> = (0..64).map(|_| ask(&mut rig, "live")).collect();
    let refused = asked.iter().filter(|session| rig.answer(**session).is_some()).count();
    assert_eq!(refused, 64 - 33, "half of the places are left");
    let other = ask(&mut rig, "LiveApp");
    assert!(rig.answer(other).is_none(), "it waits for the workers");
}
