//! Stream sources: starts, attempts, statuses, and the races between them.

mod held_back;
mod own_files;
mod playlists;

use super::*;
use crate::mail::{NextServer, PullOrder, PullState};
use crate::protocol::outbound::request_text;
use crate::types::PullId;

const BROADCASTS: &str = "/live/rest/v2/broadcasts";
const URL: &str = "rtmp://198.51.100.1/app/key?t=1";
const ACTIVE: &str = "Stream is already active. It's already streaming or trying to connect";

fn body(id: &str, url: &str) -> String {
    format!(r#"{{"streamId":"{id}","type":"streamSource","streamUrl":"{url}"}}"#)
}

fn ok(id: &str) -> (u16, String) {
    (200, format!(r#"{{"success":true,"message":"","dataId":"{id}","errorId":0}}"#))
}

fn stopped() -> (u16, String) {
    (200, r#"{"success":true,"message":"Stream stopped","dataId":"","errorId":0}"#.into())
}

fn lost(reason: &str) -> PullState {
    PullState::Lost { reason: reason.to_owned(), ahead: Duration::ZERO }
}

impl Rig {
    /// Creates a source and starts it.
    fn source(&mut self, id: &str, url: &str) {
        let (status, answer) = self.post(&format!("{BROADCASTS}/create?autoStart=true"), &body(id, url));
        let is_record = answer.starts_with(&format!(r#"{{"streamId":"{id}","status":""#));
        assert!(status == 200 && is_record && answer.ends_with(&ok(id).1[1..]), "{answer}");
    }

    /// Returns the only pull ordered since the last call.
    fn pull(&mut self) -> (WorkerId, PullOrder) {
        let mut orders = self.pulls();
        assert_eq!(orders.len(), 1);
        orders.remove(0)
    }

    fn pulls(&mut self) -> Vec<(WorkerId, PullOrder)> {
        let order = |(worker, mail)| match mail {
            ToWorker::StartPull(order) => Some((worker, *order)),
            _ => None,
        };
        self.take().into_iter().filter_map(order).collect()
    }

    fn pull_news(&mut self, pull: PullId, attempt: u64, state: PullState) {
        self.mail(ToControl::Pull { pull, attempt, state });
    }

    /// Delivers the first media of an attempt.
    fn delivers(&mut self, worker: WorkerId, order: &PullOrder) -> Result<(SessionRef, Grant), Refusal> {
        let mut request = self.request(&order.key.id, worker.0);
        (request.ingest, request.pull) = (Ingest::PULL, Some((order.pull, order.attempt)));
        let session = request.session;
        self.ask(request).map(|grant| (session, grant))
    }

    /// Ends an attempt that has delivered media up to the time `dts_ms`.
    fn loses(&mut self, session: SessionRef, order: &PullOrder, stream: StreamId, dts_ms: i64) {
        self.gone(session, stream, Departure::Lost, dts_ms);
        self.pull_news(order.pull, order.attempt, lost("reset"));
    }

    fn state(&mut self, id: &str) -> String {
        self.record(id)["status"].as_str().unwrap().to_owned()
    }

    fn op(&mut self, id: &str, what: &str) -> (u16, String) {
        self.post(&format!("{BROADCASTS}/{id}/{what}"), "")
    }

    fn put(&mut self, id: &str, body: &str) -> (u16, String) {
        self.call(Method::Put, &format!("{BROADCASTS}/{id}"), body)
    }
}

impl Rig {
    /// Ends the server without a shutdown, and starts it again.
    fn crash(self) -> Self {
        Self::start(config(&[], &[]), self.store)
    }
}

#[test]
fn b_17_what_ran_before_a_crash_runs_again_and_what_was_stopped_does_not() {
    let mut rig = Rig::new();
    for id in ["auto", "by_hand", "stopped", "never"] {
        let auto = id == "auto";
        rig.post(&format!("{BROADCASTS}/create?autoStart={auto}"), &body(id, URL));
    }
    assert_eq!((rig.op("by_hand", "start"), rig.op("stopped", "start")), (ok("by_hand"), ok("stopped")));
    assert_eq!(rig.op("stopped", "stop"), stopped());
    // No time passes before the crash: only changes that were answered have to survive it.
    let keys = |rig: &mut Rig| {
        let mut ids: Vec<_> = rig.pulls().into_iter().map(|(_, order)| order.key.id.to_string()).collect();
        ids.sort();
        ids
    };
    let mut rig = rig.crash();
    assert_eq!(keys(&mut rig), ["auto", "by_hand"]);
    assert!(!rig.get(&format!("{BROADCASTS}/auto")).1.contains("sourceWanted"));
    // A second crash and an orderly shutdown give the same result.
    let mut rig = rig.crash();
    assert_eq!(keys(&mut rig), ["auto", "by_hand"]);
    rig.control.drain(rig.now);
    rig.drain();
    rig.run_for(secs(2));
    let mut rig = rig.crash();
    assert_eq!(keys(&mut rig), ["auto", "by_hand"]);
    // A source that was deleted, and a source whose viewer has left, do not run after a crash.
    assert_eq!(rig.call(Method::Delete, &format!("{BROADCASTS}/auto"), "").0, 200);
    rig.put("by_hand", r#"{"autoStartStopEnabled":true}"#);
    rig.run_for(secs(15));
    let mut rig = rig.crash();
    assert_eq!(keys(&mut rig), [""; 0]);
}

#[test]
fn b_17_endpoints_and_recordings_of_a_source_begin_again_with_it() {
    let mut rig = Rig::new();
    rig.source("s", URL);
    rig.post(&format!("{BROADCASTS}/s/endpoint"), r#"{"endpointUrl":"rtmp://198.51.100.2/a/b"}"#);
    let (worker, order) = rig.pull();
    rig.delivers(worker, &order).unwrap();
    rig.call(Method::Put, &format!("{BROADCASTS}/s/recording/true"), "");
    let begun = |rig: &mut Rig| {
        let mail = rig.take();
        let pushes = mail.iter().filter(|(_, mail)| matches!(mail, ToWorker::StartPush(_))).count();
        let recordings = mail.iter().filter(|(_, mail)| matches!(mail, ToWorker::StartRecording(_))).count();
        (pushes, recordings)
    };
    rig.run_for(secs(1));
    assert_eq!(begun(&mut rig), (1, 1));
    let mut rig = rig.crash();
    let (worker, order) = rig.pull();
    rig.delivers(worker, &order).unwrap();
    rig.run_for(secs(1));
    assert_eq!(begun(&mut rig), (1, 1));
}

#[test]
fn b_17_a_stop_is_answered_while_the_disk_takes_nothing() {
    let faults = Faults::default();
    let mut rig = Rig::start(config(&[], &[]), Memory::with_faults(faults.clone()));
    rig.source("s", URL);
    faults.fail(1, 1000);
    assert_eq!(rig.post(&format!("{BROADCASTS}/create"), r#"{"streamId":"x"}"#).0, 500);
    assert_eq!(rig.op("s", "stop"), stopped());
    assert_eq!(rig.op("s", "start"), ok("s"));
}

#[test]
fn a_source_prepares_delivers_and_stops() {
    let mut rig = Rig::new();
    rig.source("s", URL);
    let (worker, order) = rig.pull();
    assert_eq!((order.attempt, order.address), (1, "198.51.100.1:1935".parse().unwrap()));
    let asked = request_text(&order.target);
    let parts = r#"app: "app", tc_url: "rtmp://198.51.100.1/app", name: "key?t=1""#;
    assert!(asked.contains(parts), "{asked}");
    assert_eq!(rig.state("s"), "preparing");
    rig.pull_news(order.pull, 1, PullState::Preparing);
    assert_eq!(rig.op("s", "start"), (200, failure(ACTIVE)));
    let refused = rig.request("s", 0);
    assert_eq!(rig.ask(refused).unwrap_err(), Refusal::InUse, "the id is the source's");

    let (_, grant) = rig.delivers(worker, &order).unwrap();
    assert!(!grant.position.started);
    let record = rig.record("s");
    assert_eq!(
        (record["status"].as_str(), record["publishType"].as_str()),
        (Some("broadcasting"), Some("Pull"))
    );
    assert!(record["remoteIp"].is_null());
    assert_eq!((rig.control.stats().pulls, rig.control.stats().pulls_broadcasting), (1, 1));
    let refused = rig.request("s", 0);
    assert_eq!(rig.ask(refused).unwrap_err(), Refusal::InUse);
    assert_eq!(rig.op("s", "start"), (200, failure(ACTIVE)));

    rig.take();
    assert_eq!(rig.op("s", "stop"), stopped());
    let posted = rig.take();
    assert_eq!(
        kinds(&posted)[..3],
        [format!("{}: stop pull", worker.0), "0: down Stopped".into(), "1: down Stopped".into()]
    );
    assert_eq!(rig.state("s"), "finished");
    assert_eq!(rig.control.stats().pulls, 0);
    let again = r#"{"success":false,"message":"No matching stream source in this server:s","dataId":"s","errorId":0}"#;
    assert_eq!(rig.op("s", "stop"), (200, again.into()));
    assert_eq!(rig.op("s", "start"), ok("s"));
}

#[test]
fn a_source_that_calls_us_is_waited_for_at_the_servers_address() {
    for (host, url, wanted) in [
        ("127.0.0.1", "srt://:9000?mode=listener", "127.0.0.1:9000"),
        ("", "srt://:9000?mode=listener", "0.0.0.0:9000"),
        ("127.0.0.1", "srt://127.0.0.5:9000?mode=listener", "127.0.0.5:9000"),
    ] {
        let mut rig = Rig::with(&[("server.host", host)], &[]);
        rig.source("s", url);
        assert_eq!(rig.pull().1.address.to_string(), wanted, "{host} {url}");
    }
}

#[test]
fn u_02_between_two_attempts_the_stream_stays_and_the_clock_goes_on() {
    let mut rig = Rig::new();
    rig.source("s", URL);
    let (worker, order) = rig.pull();
    let (session, grant) = rig.delivers(worker, &order).unwrap();
    rig.run_for(secs(3));
    rig.report(worker.0, grant.stream, 1000, 0, 7);
    rig.take();
    rig.loses(session, &order, grant.stream, 3000);
    assert_eq!(rig.state("s"), "finished");
    let kept = rig.take();
    assert!(!kinds(&kept).iter().any(|kind| kind.contains("down")), "viewers stay: {:?}", kinds(&kept));
    assert_eq!(rig.record("s")["rtmpViewerCount"], 7);
    let refused = rig.request("s", 0);
    assert_eq!(rig.ask(refused).unwrap_err(), Refusal::InUse);
    rig.take();
    // The source delivered for more than two seconds, so the pauses start over.
    rig.run_for(secs(1));
    let (again, second) = rig.pull();
    assert_eq!((again, second.attempt), (worker, 2), "on the worker that has the stream");
    assert_eq!(rig.state("s"), "preparing");
    // An hour of failures does not affect the viewers.
    let mut order = second;
    for _ in 0..150 {
        rig.pull_news(order.pull, order.attempt, PullState::Failed("refused".into()));
        assert_eq!(rig.state("s"), "finished");
        rig.take();
        rig.run_for(secs(25));
        order = rig.pull().1;
    }
    assert_eq!(rig.control.stats().live, 1);
    let (_, returned) = rig.delivers(worker, &order).unwrap();
    assert_eq!((returned.stream, returned.epoch), (grant.stream, 3));
    assert_eq!((returned.position.dts_ms, returned.position.started), (3000, true));
    assert_eq!(rig.state("s"), "broadcasting");
}

#[test]
fn between_two_attempts_the_figures_of_a_source_stand_still() {
    let mut rig = Rig::new();
    rig.source("s", URL);
    let (worker, order) = rig.pull();
    let (session, grant) = rig.delivers(worker, &order).unwrap();
    rig.run_for(secs(3));
    rig.report(worker.0, grant.stream, 3000, 0, 0);
    rig.loses(session, &order, grant.stream, 3000);
    for viewers in [1, 2] {
        rig.run_for(secs(1));
        rig.report(worker.0, grant.stream, 3000, 0, viewers);
        let record = rig.record("s");
        let figures = ["duration", "bitrate", "rtmpViewerCount"].map(|name| record[name].as_u64().unwrap());
        assert_eq!(figures, [3000, 8000, u64::from(viewers)]);
    }
}

#[test]
fn the_figures_of_the_next_attempt_begin_anew() {
    let mut rig = Rig::new();
    rig.source("s", URL);
    let (worker, order) = rig.pull();
    let (session, grant) = rig.delivers(worker, &order).unwrap();
    rig.run_for(secs(3));
    rig.loses(session, &order, grant.stream, 3000);
    rig.take();
    rig.run_for(secs(1));
    let (worker, order) = rig.pull();
    rig.delivers(worker, &order).unwrap();
    rig.run_for(secs(2));
    rig.report(worker.0, grant.stream, 2000, 0, 0);
    let record = rig.record("s");
    assert_eq!(["duration", "bitrate"].map(|name| record[name].as_u64().unwrap()), [2000, 8000]);
}

#[test]
fn late_news_and_late_media_of_an_older_attempt_are_nothing() {
    let mut rig = Rig::new();
    rig.source("s", URL);
    let (worker, first) = rig.pull();
    rig.pull_news(first.pull, 1, PullState::Failed("refused".into()));
    rig.run_for(secs(1));
    let (_, second) = rig.pull();
    assert_eq!(rig.delivers(worker, &first).unwrap_err(), Refusal::InUse);
    rig.pull_news(first.pull, 1, lost("late"));
    assert_eq!(rig.state("s"), "preparing");
    rig.delivers(worker, &second).unwrap();
    rig.op("s", "stop");
    assert_eq!(rig.delivers(worker, &second).unwrap_err(), Refusal::InUse);
    rig.pull_news(second.pull, 2, lost("late"));
    assert_eq!(rig.state("s"), "finished");
    rig.take();
    rig.run_for(secs(60));
    assert!(rig.pulls().is_empty());
}

#[test]
fn stopped_at_any_moment_nothing_is_left() {
    let mut rig = Rig::new();
    // The source is stopped while its host name is being resolved.
    rig.source("a", "rtmp://source.example/app/key");
    let ask = rig.resolves.pop().unwrap();
    assert_eq!(rig.op("a", "stop"), stopped());
    let result = Ok(vec!["198.51.100.9:1935".parse().unwrap()]);
    rig.done(ask.id, Outcome::Resolved(result));
    assert!(rig.pulls().is_empty());
    // The source's record is deleted while the pull is connecting.
    rig.source("b", URL);
    let (worker, order) = rig.pull();
    let gone = rig.call(Method::Delete, &format!("{BROADCASTS}/b"), "");
    assert!(gone.1.contains("broadcast is deleted and stopped successfully"), "{}", gone.1);
    assert_eq!(kinds(&rig.take()), [format!("{}: stop pull", worker.0)]);
    assert_eq!(rig.delivers(worker, &order).unwrap_err(), Refusal::InUse);
    // The source's record is deleted while the pull delivers media.
    rig.source("c", URL);
    let (worker, order) = rig.pull();
    rig.delivers(worker, &order).unwrap();
    rig.take();
    let gone = rig.call(Method::Delete, &format!("{BROADCASTS}/c"), "");
    assert!(gone.1.contains("deleted and stopped"), "{}", gone.1);
    assert!(kinds(&rig.take()).contains(&"0: down Deleted".to_owned()));
    // The source is stopped while it waits for its next attempt.
    rig.source("d", URL);
    let (_, order) = rig.pull();
    rig.pull_news(order.pull, 1, PullState::Failed("x".into()));
    assert_eq!(rig.op("d", "stop"), stopped());
    rig.take();
    rig.run_for(secs(60));
    assert!(rig.pulls().is_empty());
    let stats = rig.control.stats();
    assert_eq!((stats.pulls, stats.live), (0, 0));
    assert_eq!(rig.control.poll_timeout(), None, "nothing waits");
}

#[test]
fn an_update_starts_a_running_source_anew_and_keeps_its_stream() {
    let mut rig = Rig::new();
    rig.source("s", URL);
    let (worker, order) = rig.pull();
    let (session, grant) = rig.delivers(worker, &order).unwrap();
    rig.take();
    for bad in
        ["file:///x", "udp://h:1", "rtmp://127.0.0.1/live/s", "rtmp://169.254.1.1/a/b", "http://h/a.mpd"]
    {
        let put = rig.put("s", &format!(r#"{{"streamUrl":"{bad}"}}"#));
        assert_eq!(put, (200, failure("Stream URL is not valid")), "{bad}");
    }
    assert_eq!(rig.put("s", r#"{"streamUrl":"http://198.51.100.2:81/live/x.flv?a=b"}"#), (200, PLAIN.into()));
    let posted = rig.take();
    assert_eq!(kinds(&posted), [format!("{}: stop pull", worker.0), format!("{}: pull 2", worker.0)]);
    let ToWorker::StartPull(second) = &posted[1].1 else { panic!() };
    assert_eq!(second.address, "198.51.100.2:81".parse().unwrap());
    let asked = request_text(&second.target);
    assert!(asked.contains(r#"authority: "198.51.100.2:81", target: "/live/x.flv?a=b""#), "{asked}");
    assert_eq!(rig.state("s"), "preparing");
    // The last report of the first attempt has the position of the clock.
    rig.gone(session, grant.stream, Departure::Lost, 500);
    let (_, returned) = rig.delivers(worker, second).unwrap();
    assert_eq!((returned.stream, returned.position.dts_ms), (grant.stream, 500));
    // An update that changes neither the URL nor the credentials of the source does not restart it.
    rig.take();
    for same in [r#"{"name":"n"}"#, r#"{"streamUrl":"http://198.51.100.2:81/live/x.flv?a=b"}"#] {
        assert_eq!(rig.put("s", same), (200, PLAIN.into()));
        assert!(rig.pulls().is_empty(), "{same}");
    }
    assert_eq!(rig.put("s", r#"{"username":"u","password":"p"}"#), (200, PLAIN.into()));
    assert_eq!(rig.pull().1.attempt, 3);
    // A source that is not running is not started.
    rig.op("s", "stop");
    rig.take();
    assert_eq!(rig.put("s", r#"{"streamUrl":"udp://h:1"}"#), (200, PLAIN.into()));
    assert!(rig.pulls().is_empty());
}

#[test]
fn a_create_that_starts_answers_the_record_and_the_result_behind_it() {
    let mut rig = Rig::new();
    let (_, answer) = rig.post(&format!("{BROADCASTS}/create?autoStart=true"), &body("s", URL));
    let answer: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&answer).unwrap();
    let record = rig.record("s");
    let (mut names, own) = (answer.keys(), record.as_object().unwrap());
    let first: Vec<_> = names.by_ref().take(own.len()).collect();
    assert_eq!(first, own.keys().collect::<Vec<_>>(), "the members of the record, in their order");
    assert_eq!(names.collect::<Vec<_>>(), ["success", "message", "dataId", "errorId"]);
    assert_eq!((&answer["streamId"], &answer["streamUrl"]), (&"s".into(), &URL.into()));
    assert_eq!((&answer["success"], &answer["dataId"]), (&true.into(), &"s".into()));
}

#[test]
fn what_cannot_be_pulled_is_refused_and_not_stored() {
    let mut rig = Rig::with(&[("outbound.deny", "10.0.0.0/8")], &[]);
    let create =
        |rig: &mut Rig, url: &str| rig.post(&format!("{BROADCASTS}/create?autoStart=true"), &body("s", url));
    for url in [
        "rtsp://127.0.0.1:5554/live/s?token=1",
        "rtsp://u:p@169.254.169.254/",
        "srt://127.0.0.1:4200?streamid=%23!::r=live/s",
        "srt://169.254.169.254:1?streamid=a/b",
        "udp://h:1",
        "http://h/a.mpd",
        "https://h/a.webm",
        "rtmp://127.0.0.1/live/s",
        "rtmp://localhost:1935/live/s?x=1",
        "rtmps://192.0.2.1:8443/live/s",
        "http://127.0.0.1:5080/live/x.flv",
        "http://169.254.169.254/a.flv",
        "rtmp://[::]/a/b",
    ] {
        let (status, text) = create(&mut rig, url);
        assert!(
            status == 200 && text.contains(r#""success":false"#) && text.contains(r#""errorId":-4"#),
            "{url} {text}"
        );
    }
    // The answer does not quote URLs from which a source cannot be pulled.
    for url in [
        "file:///x",
        "srt://h:1?mode=x",
        "RTMP://h/a/b",
        "rtmp://",
        "rtmp://u:p@h/a/b",
        "http://u:p@h/a.flv",
        "gopher://h/",
    ] {
        assert_eq!(create(&mut rig, url), (200, FAILED.into()), "{url}");
        let plain = rig.post(&format!("{BROADCASTS}/create"), &body("s", url));
        assert_eq!(plain, (400, failure("Stream url is not valid. ")), "{url}");
    }
    assert_eq!(rig.get(&format!("{BROADCASTS}/count")).1, r#"{"number":0}"#);
    assert!(rig.pulls().is_empty());
    // The URL is stored, because a later version may support it, but is refused at the start.
    assert_eq!(rig.post(&format!("{BROADCASTS}/create"), &body("t", "udp://h:1")).0, 200);
    assert!(rig.op("t", "start").1.contains(r#""errorId":-4"#));
    assert_eq!(rig.state("t"), "created");
    // Pulling another stream of this server is not a loop.
    rig.source("u", "rtmp://127.0.0.1/live/other");
}

#[test]
fn u_32_u_33_where_a_pull_goes_on_passes_the_policy_at_each_hop() {
    let mut rig = Rig::with(&[("outbound.deny", "10.0.0.0/8")], &[]);
    rig.source("s", URL);
    let (_, order) = rig.pull();
    rig.take();
    let ask = |rig: &mut Rig, host: &str, port, attempt| {
        let server = NextServer { host: host.to_owned(), port, tls: false };
        rig.mail(ToControl::NextServer { pull: order.pull, attempt, server });
    };
    let answers = |rig: &mut Rig| -> Vec<Result<String, String>> {
        let posted = rig.take();
        let answer = |(_, message): &(WorkerId, ToWorker)| match message {
            ToWorker::GoOn(next) => Some(next.address.clone().map(|address| address.to_string())),
            _ => None,
        };
        posted.iter().filter_map(answer).collect()
    };
    let lookup = |rig: &mut Rig, addresses: &[&str]| {
        let id = rig.resolves.pop().unwrap().id;
        let result = addresses.iter().map(|address| address.parse().unwrap()).collect();
        rig.done(id, Outcome::Resolved(Ok(result)));
    };
    let first = order.attempt;
    ask(&mut rig, "198.51.100.7", 81, first);
    assert_eq!(answers(&mut rig), [Ok("198.51.100.7:81".to_owned())]);
    for (host, port) in [("10.1.2.3", 80), ("169.254.169.254", 80), ("127.0.0.1", 5080), ("0.0.0.0", 80)] {
        ask(&mut rig, host, port, first);
        assert!(matches!(&answers(&mut rig)[..], [Err(_)]), "{host}");
    }
    // For a host name, each address that the resolver returns is checked.
    ask(&mut rig, "edge.example", 80, first);
    assert!(answers(&mut rig).is_empty(), "not before the resolver has answered");
    lookup(&mut rig, &["10.1.2.3:80", "198.51.100.9:80"]);
    assert_eq!(answers(&mut rig), [Ok("198.51.100.9:80".to_owned())]);
    ask(&mut rig, "inner.example", 80, first);
    lookup(&mut rig, &["10.1.2.3:80"]);
    assert!(matches!(&answers(&mut rig)[..], [Err(why)] if why.contains("outbound.deny")));
    // A request from an attempt that has ended is ignored.
    ask(&mut rig, "198.51.100.7", 81, first + 1);
    assert!(answers(&mut rig).is_empty());
}

#[test]
fn u_31_datagrams_are_waited_for_here_and_in_groups_that_are_not_denied() {
    let mut rig = Rig::with(&[("outbound.deny", "239.7.0.0/16")], &[]);
    for (id, url, waits) in [
        ("any", "udp://:5000", true),
        ("own", "udp://192.0.2.1:5000", true),
        ("group", "udp://@239.1.2.3:5000", true),
        ("denied", "udp://239.7.0.1:5000", false),
        ("foreign", "udp://198.51.100.1:5000", false),
    ] {
        rig.source(id, url);
        assert_eq!(rig.pulls().len(), usize::from(waits), "{url}");
        assert_eq!(rig.state(id), if waits { "preparing" } else { "finished" });
    }
}

#[test]
fn starts_that_are_refused() {
    let mut rig = Rig::with(&[("limits.pulls", "1")], &[]);
    assert_eq!(rig.op("no", "start"), (200, failure("No Stream Exists with id:no")));
    rig.create("plain");
    let text = "Stream url is null and it's not an IP camera to get stream url for id:plain";
    assert_eq!(rig.op("plain", "start"), (200, failure(text)));
    rig.put("plain", r#"{"streamUrl":"rtmp://h/a/b"}"#);
    let text = "Broadcast type is not supported. It can be StreamSource, IP Camera, VOD, Playlist";
    assert_eq!(rig.op("plain", "start"), (200, failure(text)));
    // An encoder publishes under the id of the source's record, so the stream is live.
    rig.post(&format!("{BROADCASTS}/create"), &body("s", URL));
    let (session, stream) = rig.publish("s", 0);
    assert_eq!(rig.op("s", "start"), (200, failure(ACTIVE)));
    rig.gone(session, stream, Departure::Clean, 0);
    assert_eq!(rig.op("s", "start"), ok("s"));
    // The limit allows one source, and `s` is running.
    rig.post(&format!("{BROADCASTS}/create"), &body("t", URL));
    assert_eq!(rig.op("t", "start"), (200, failure("Not enough resource on server to start streaming.")));
    let full = r#"{"success":false,"message":"Resource usage is high","dataId":"","errorId":-3}"#;
    let create = format!("{BROADCASTS}/create?autoStart=true");
    assert_eq!(rig.post(&create, &body("u", URL)), (200, full.into()));
    rig.op("s", "stop");
    assert_eq!(rig.op("t", "start"), ok("t"));
    let vod = format!(r#"{{"streamId":"v","type":"VoD","streamUrl":"{URL}"}}"#);
    rig.op("t", "stop");
    rig.post(&format!("{BROADCASTS}/create"), &vod);
    assert_eq!(rig.op("v", "start"), ok("v"), "whatever made it one");
}

#[test]
fn a_source_that_finds_no_room_after_its_commit_leaves_no_record() {
    let mut rig = Rig::with(&[("limits.pulls", "1")], &[]);
    rig.hold = true;
    let create = format!("{BROADCASTS}/create?autoStart=true");
    let (one, two) =
        (rig.send(Method::Post, &create, &body("a", URL)), rig.send(Method::Post, &create, &body("b", URL)));
    rig.run_for(ms(5));
    assert!(rig.pulls().is_empty(), "not before it is on disk");
    rig.release();
    rig.run_for(ms(50));
    assert!(rig.answer(one).unwrap().1.contains(r#""success":true"#));
    assert!(rig.answer(two).unwrap().1.contains(r#""errorId":-4"#));
    assert_eq!(rig.get(&format!("{BROADCASTS}/b")).0, 404);
    assert_eq!(rig.get(&format!("{BROADCASTS}/count")).1, r#"{"number":1}"#);
}

#[test]
fn a_silent_resolver_and_a_denied_address_are_failures_that_are_tried_again() {
    let mut rig = Rig::new();
    rig.source("s", "https://source.example/live/a.flv");
    let ask = rig.resolves.pop().unwrap();
    assert_eq!((ask.host.as_str(), ask.port), ("source.example", 443));
    rig.run_for(secs(11));
    assert_eq!(rig.state("s"), "finished");
    let answer = |rig: &mut Rig, id, address: &str| {
        let result = Ok(vec![address.parse().unwrap()]);
        rig.done(id, Outcome::Resolved(result));
    };
    answer(&mut rig, ask.id, "169.254.169.254:443");
    assert!(rig.pulls().is_empty(), "an address that nobody may connect to");
    rig.run_for(secs(2));
    let ask = rig.resolves.pop().unwrap();
    answer(&mut rig, ask.id, "198.51.100.1:443");
    rig.run_for(secs(4));
    let (_, order) = rig.pull();
    assert_eq!(order.target.proof(), Some(crate::mail::Proof::Name("source.example".into())));
    assert_eq!(rig.state("s"), "preparing");
}

#[test]
fn a_viewer_starts_a_source_and_its_absence_stops_it() {
    let mut rig = Rig::new();
    let auto = |streams: &[(WorkerId, ToWorker)]| {
        let on = streams.iter().filter_map(|(_, mail)| match mail {
            ToWorker::AutoStart(list) => Some(list[0].1),
            _ => None,
        });
        on.collect::<Vec<_>>()
    };
    rig.post(&format!("{BROADCASTS}/create"), &body("s", URL));
    assert!(auto(&rig.take()).is_empty());
    rig.mail(ToControl::Wanted { key: StreamKey::new("live", "s"), via: Vec::new() });
    assert!(rig.pulls().is_empty(), "not one that viewers start");
    rig.put("s", r#"{"autoStartStopEnabled":true}"#);
    assert_eq!(auto(&rig.take()), [true, true], "every worker hears of it, once");
    rig.put("s", r#"{"name":"n"}"#);
    assert!(auto(&rig.take()).is_empty());

    rig.mail(ToControl::Wanted { key: StreamKey::new("live", "s"), via: Vec::new() });
    rig.mail(ToControl::Wanted { key: StreamKey::new("live", "s"), via: Vec::new() });
    let (worker, order) = rig.pull();
    let (_, grant) = rig.delivers(worker, &order).unwrap();
    for _ in 0..30 {
        rig.run_for(secs(1));
        rig.report(worker.0, grant.stream, 1, 0, 1);
    }
    assert_eq!(rig.state("s"), "broadcasting");
    // The viewer leaves.
    for _ in 0..9 {
        rig.run_for(secs(1));
        rig.report(worker.0, grant.stream, 1, 0, 0);
    }
    assert_eq!(rig.state("s"), "broadcasting");
    rig.run_for(secs(3));
    assert_eq!((rig.state("s").as_str(), rig.control.stats().pulls), ("finished", 0));
    // A source that never delivers stops as well.
    rig.mail(ToControl::Wanted { key: StreamKey::new("live", "s"), via: Vec::new() });
    assert_eq!(rig.control.stats().pulls, 1);
    rig.run_for(secs(12));
    assert_eq!(rig.control.stats().pulls, 0);
    rig.take();
    rig.call(Method::Delete, &format!("{BROADCASTS}/s"), "");
    assert_eq!(auto(&rig.take()), [false, false]);
}

#[test]
fn a_viewer_whose_source_cannot_be_started_is_told_at_once() {
    let mut rig = Rig::with(&[], &[("ingestingStreamLimit", "1")]);
    rig.post(&format!("{BROADCASTS}/create"), &body("s", URL));
    rig.put("s", r#"{"autoStartStopEnabled":true}"#);
    rig.publish("other", 0);
    rig.take();
    rig.mail(ToControl::Wanted { key: StreamKey::new("live", "s"), via: Vec::new() });
    let told = rig.take().iter().filter(|(_, mail)| matches!(mail, ToWorker::NotComing(_))).count();
    assert_eq!((told, rig.control.stats().pulls), (usize::from(WORKERS), 0));
}

#[test]
fn sources_start_with_the_server_and_begin_anew_after_their_period() {
    let mut rig = Rig::new();
    for id in ["a", "b"] {
        rig.post(&format!("{BROADCASTS}/create"), &body(id, URL));
    }
    rig.post(&format!("{BROADCASTS}/create"), &body("camera", "udp://h:1"));
    rig.create("plain");
    let app = [("startStreamFetcherAutomatically", "true"), ("restartStreamFetcherPeriod", "60")];
    let mut rig = Rig::start(config(&[], &app), rig.store);
    let pulls = rig.pulls();
    assert_eq!(pulls.len(), 2);
    assert_ne!(pulls[0].0, pulls[1].0, "spread over the workers");
    for (worker, order) in &pulls {
        rig.delivers(*worker, order).unwrap();
    }
    rig.take();
    rig.run_for(secs(59));
    assert!(rig.pulls().is_empty());
    rig.run_for(secs(2));
    assert_eq!(rig.pulls().iter().map(|(_, order)| order.attempt).collect::<Vec<_>>(), [2, 2]);
    rig.run_for(secs(61));
    assert_eq!(rig.pulls().len(), 2);
}

#[test]
fn a_drain_ends_all_sources() {
    let mut rig = Rig::new();
    rig.source("a", URL);
    let (worker, order) = rig.pull();
    rig.delivers(worker, &order).unwrap();
    rig.source("b", URL);
    let (worker, order) = rig.pull();
    rig.control.drain(rig.now);
    rig.drain();
    assert_eq!((rig.state("a").as_str(), rig.state("b").as_str()), ("finished", "finished"));
    assert_eq!(rig.delivers(worker, &order).unwrap_err(), Refusal::Draining);
    rig.pull_news(order.pull, 1, PullState::Failed("x".into()));
    rig.take();
    rig.run_for(secs(60));
    assert!(rig.pulls().is_empty());
}

#[test]
fn an_application_that_goes_takes_its_sources_with_it() {
    let mut rig = Rig::new();
    rig.source("a", URL);
    let (worker, order) = rig.pull();
    rig.delivers(worker, &order).unwrap();
    rig.source("b", "rtmp://source.example/app/key");
    rig.put("b", r#"{"autoStartStopEnabled":true}"#);
    rig.take();
    rig.control.remove_app(rig.now, &"live".into());
    rig.drain();
    let posted = kinds(&rig.take());
    assert!(posted.contains(&format!("{}: stop pull", worker.0)), "{posted:?}");
    assert!(posted.iter().any(|kind| kind.ends_with("AutoStart")), "viewers start nothing there: {posted:?}");
    assert_eq!((rig.control.stats().pulls, rig.control.stats().live), (0, 0));
    rig.run_for(secs(60));
    assert!(rig.pulls().is_empty());
}

/// While a change of a record is gathered, publishing changes the record too: both changes are written.
#[test]
fn a_source_that_delivers_at_once_is_stored_as_live() {
    let mut rig = Rig::new();
    rig.post(&format!("{BROADCASTS}/create"), &body("s", URL));
    rig.run_for(secs(2));
    rig.take();
    rig.send(Method::Post, &format!("{BROADCASTS}/s/start"), "");
    let (worker, order) = rig.pull();
    rig.delivers(worker, &order).unwrap();
    rig.run_for(secs(3));
    let key = StreamKey::new("live", "s");
    let record = rig.control.records.get(&key).unwrap();
    assert_eq!(record.status, "broadcasting");
    let encoded = record.encode();
    let stored = rig.store.load().unwrap().into_iter().find(|(of, _)| *of == key.clone().into());
    assert_eq!(stored.unwrap().1, encoded);
}
