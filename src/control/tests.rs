//! Control as a whole, in virtual time, with a store in memory.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of mail")]

use std::time::Duration;

use bytes::Bytes;
use media::Position;

use super::*;
use crate::http::{Headers, Method, Request, Version};
use crate::jobs::{
    ArchiveWork, DvrDone, DvrWork, JobDone, JobId, Outcome, PasswordWork, Post, RecordingOutcome,
    RecordingWork, Work,
};
use crate::mail::{
    Departure, Grant, PublishRequest, PushOrder, PushState, Question, Refusal, Report, SourceFigures,
};
use crate::protocol::{Addresses, schema};
use crate::store::{Faults, Memory, Store};
use crate::types::{ConnId, Ingest, PushId, StreamId};

mod access;
mod admission;
mod api;
mod audit;
mod claims;
mod copies;
mod elsewhere;
mod faults;
mod folders;
mod foreign;
mod hooks;
mod imports;
mod key_sets;
mod leaving;
mod lists;
mod lookups;
mod management;
mod media_ways;
mod players;
mod present;
mod publish_keys;
mod pushes;
mod reconcile;
mod recordings;
mod regions;
mod room_recordings;
mod room_views;
mod rooms;
mod shares;
mod sources;
mod standby;
mod storing;
mod strangers;
mod subscribers;
mod tenants;
mod uploads;

const WORKERS: u16 = 2;
const START_MS: u64 = 1_700_000_000_000;

/// Reads the contents of a store, from which control starts.
fn restored(store: &mut Memory) -> Result<Restored, RestoreError> {
    Ok(Restored::decode(&store.load()?)?)
}

/// Control, with a simulated environment.
struct Rig {
    control: Control,
    store: Memory,
    /// True to keep requests to the store in `held` instead of handling them.
    hold: bool,
    held: Vec<store::Request>,
    now: Now,
    began: Instant,
    wall_shift_ms: i64,
    posted: Vec<(WorkerId, ToWorker)>,
    /// Jobs not done yet, by kind.
    resolves: Vec<AskedName>,
    hooks: Vec<Posted>,
    hashes: Vec<(JobId, PasswordWork)>,
    admin: Vec<JobId>,
    files: Vec<(JobId, Work)>,
    /// Unfinished recordings of an earlier run; `None`: the search for them is not answered.
    leftovers: Option<Vec<Vec<String>>>,
    /// Applications named in each search for the DVR folders of streams that can no longer be replayed.
    sweeps: Vec<Vec<String>>,
    /// True if searches for DVR folders are not answered.
    holds_sweeps: bool,
    /// Requests to the directory that are not answered yet.
    asked: Vec<directory::Request>,
    /// Number of times that control has ordered a shutdown after a drain.
    lefts: u32,
    exited: bool,
    conns: u32,
}

/// A name to be resolved.
#[derive(Debug)]
struct AskedName {
    id: JobId,
    host: String,
    port: u16,
}

/// A POST to be sent.
#[derive(Debug)]
struct Posted {
    id: JobId,
    post: Post,
}

impl std::ops::Deref for Posted {
    type Target = Post;

    fn deref(&self) -> &Post {
        &self.post
    }
}

fn config(server: &[(&str, &str)], app: &[(&str, &str)]) -> ControlConfig {
    // Backups are off. They always have a next deadline, and tests that nothing waits check that there is no deadline.
    let server = [&[("store.backup_hours", "0")], server].concat();
    let settings = Arc::new(ServerSettings::of(schema(), &server).unwrap());
    ControlConfig {
        apps: ["live", "LiveApp"]
            .iter()
            .map(|n| Arc::new(AppSettings::of(schema(), n, app).unwrap()))
            .collect(),
        lost: Default::default(),
        workers: WORKERS,
        node: "node1".into(),
        host_address: "192.0.2.1".into(),
        outbound: OutboundPolicy {
            deny: settings.outbound.deny.clone(),
            public_only: false,
            own_addresses: vec!["192.0.2.1".parse().unwrap()],
            own_ports: vec![5080, 5443],
        },
        addresses: Addresses::of(&[("rtmp", 1935), ("rtmps", 8443), ("rtsp", 5554), ("srt", 4200)]),
        server: settings,
        secret: None,
        cluster: None,
    }
}

impl Rig {
    /// Ends a stream on the server's behalf.
    fn end_stream(&mut self, stream: StreamId) {
        self.control.registry.end(&mut self.control.cx, stream, StreamEnd::Stopped);
        self.control.follow_ends(self.now);
    }

    fn new() -> Self {
        Self::with(&[], &[])
    }

    fn with(server: &[(&str, &str)], app: &[(&str, &str)]) -> Self {
        Self::start(config(server, app), Memory::new())
    }

    fn start(config: ControlConfig, store: Memory) -> Self {
        Self::start_after(config, store, Some(Vec::new()))
    }

    fn start_after(config: ControlConfig, mut store: Memory, leftovers: Option<Vec<Vec<String>>>) -> Self {
        let began = Instant::now();
        let now = Now { mono: began, wall_ms: START_MS };
        let control = Control::new(now, config, [restored(&mut store)], &Seed::from_number(1)).unwrap();
        let mut rig = Self {
            control,
            store,
            hold: false,
            held: Vec::new(),
            now,
            began,
            wall_shift_ms: 0,
            posted: Vec::new(),
            resolves: Vec::new(),
            hooks: Vec::new(),
            hashes: Vec::new(),
            admin: Vec::new(),
            files: Vec::new(),
            leftovers,
            sweeps: Vec::new(),
            holds_sweeps: false,
            asked: Vec::new(),
            lefts: 0,
            exited: false,
            conns: 0,
        };
        rig.drain();
        rig
    }

    fn drain(&mut self) {
        while let Some(output) = self.control.poll_output() {
            match output {
                Output::Worker(worker, mail) => self.posted.push((worker, mail)),
                Output::Store(request) if self.hold => self.held.push(request),
                Output::Store(request) => {
                    let reply = store::handle(&mut self.store, request);
                    self.control.handle_store(self.now, reply);
                }
                Output::Job(Job { id, work, .. }) => self.keep_job(id, work),
                Output::Directory(request) => self.asked.push(request),
                Output::Outbound(_) => {}
                Output::Leave => self.lefts += 1,
                Output::Exit => {
                    assert!(!self.exited);
                    self.exited = true;
                }
            }
        }
    }

    fn keep_job(&mut self, id: JobId, work: Work) {
        match work {
            Work::Recording(RecordingWork::Find { .. }) if let Some(found) = self.leftovers.take() => {
                self.done(id, Outcome::Recording(RecordingOutcome::Found(found)));
            }
            Work::Archive(ArchiveWork::Dvr(DvrWork::Sweep { apps })) => {
                self.sweeps.push(apps);
                if !self.holds_sweeps {
                    self.done(id, Outcome::Dvr(Ok(DvrDone::default())));
                }
            }
            Work::Resolve { host, port } => self.resolves.push(AskedName { id, host, port }),
            Work::Post(post) => self.hooks.push(Posted { id, post }),
            Work::Password(work) => self.hashes.push((id, work)),
            Work::Admin(_) => self.admin.push(id),
            Work::FileAppend { .. }
            | Work::Recording(_)
            | Work::Object(_)
            | Work::Import(_)
            | Work::Node(_)
            | Work::FindSeen { .. }
            | Work::Fetch { .. } => {
                self.files.push((id, work));
            }
            other => panic!("control has no use for {other:?}"),
        }
    }

    /// Answers a job.
    fn done(&mut self, id: JobId, outcome: Outcome) {
        self.control.handle_job(self.now, JobDone { id, outcome });
        self.drain();
    }

    /// Handles the requests that were held back.
    fn release(&mut self) {
        self.hold = false;
        for request in std::mem::take(&mut self.held) {
            let reply = store::handle(&mut self.store, request);
            self.control.handle_store(self.now, reply);
        }
        self.drain();
    }

    fn mail(&mut self, mail: ToControl) {
        self.control.handle_mail(self.now, mail);
        self.drain();
    }

    /// Advances the time, stopping at each deadline.
    fn run_for(&mut self, time: Duration) {
        let end = self.now.mono + time;
        for _ in 0..100_000 {
            let Some(at) = self.control.poll_timeout().filter(|at| *at <= end) else { break };
            self.set(at.max(self.now.mono));
            self.control.handle_timeout(self.now);
            self.drain();
            assert!(
                self.control.poll_timeout().is_none_or(|next| next > self.now.mono),
                "a deadline that stays"
            );
        }
        self.set(end);
    }

    fn set(&mut self, at: Instant) {
        self.now.mono = at;
        let wall_ms = START_MS + u64::try_from((at - self.began).as_millis()).unwrap();
        self.now.wall_ms = wall_ms.saturating_add_signed(self.wall_shift_ms);
    }

    fn session(&mut self, worker: u16) -> SessionRef {
        self.conns += 1;
        SessionRef::new(WorkerId(worker), ConnId { slot: self.conns, generation: 0 })
    }

    fn take(&mut self) -> Vec<(WorkerId, ToWorker)> {
        std::mem::take(&mut self.posted)
    }

    fn request(&mut self, id: &str, worker: u16) -> PublishRequest {
        PublishRequest {
            session: self.session(worker),
            key: StreamKey::new("live", id),
            ingest: Ingest { publish_type: "RTMP", name: "rtmp" },
            peer: "198.51.100.7:4000".parse().unwrap(),
            user_agent: "enc/1".into(),
            params: Vec::new(),
            via: Vec::new(),
            zero_ms: None,
            pull: None,
        }
    }

    fn ask(&mut self, request: PublishRequest) -> Result<Grant, Refusal> {
        let session = request.session;
        self.posted.clear();
        self.mail(ToControl::Publish(request));
        let verdict = self.posted.iter().find_map(|(worker, mail)| match mail {
            ToWorker::Verdict { conn, verdict, .. } if *conn == session.conn && *worker == session.worker => {
                Some(verdict.clone())
            }
            _ => None,
        });
        verdict.expect("a verdict in the same turn").map(|grant| *grant)
    }

    fn publish(&mut self, id: &str, worker: u16) -> (SessionRef, StreamId) {
        let request = self.request(id, worker);
        let session = request.session;
        (session, self.ask(request).unwrap().stream)
    }

    fn gone(&mut self, session: SessionRef, stream: StreamId, departure: Departure, dts_ms: i64) {
        let position = Position { dts_ms, started: true };
        self.mail(ToControl::PublisherGone { session, stream, departure, position, tracks: epoch_3() });
    }

    fn report(&mut self, worker: u16, stream: StreamId, bytes: u64, silent_ms: u64, viewers: u32) {
        let codecs = [media::Codec::H264, media::Codec::Aac];
        self.report_codecs(&codecs, (worker, stream), bytes, silent_ms, viewers);
    }

    fn report_codecs(
        &mut self,
        codecs: &[media::Codec],
        (worker, stream): (u16, StreamId),
        bytes: u64,
        silent_ms: u64,
        viewers: u32,
    ) {
        let source = SourceFigures { codecs: codecs.to_vec(), ..self.figures_of(stream, bytes, silent_ms) };
        let report = Report {
            sources: vec![source],
            viewers: vec![(stream, viewers)],
            busy_permille: 10,
            ..Report::default()
        };
        self.mail(ToControl::Report(WorkerId(worker), report));
    }

    /// Makes a worker's figures of a publisher.
    fn figures_of(&self, stream: StreamId, bytes: u64, silent_ms: u64) -> SourceFigures {
        let dts_ms = i64::try_from((self.now.mono - self.began).as_millis()).unwrap();
        SourceFigures {
            clock: Default::default(),
            publisher: None,
            stream,
            received_bytes: bytes,
            position: Position { dts_ms, started: true },
            epoch: 1,
            size: (1280, 720),
            codecs: Vec::new(),
            video_codec: Some(media::Codec::H264),
            audio_codec: Some(media::Codec::Aac),
            pictures: bytes / 1000,
            dropped: 0,
            left_out: 0,
            silent_ms,
            reception: Default::default(),
        }
    }

    /// Sets the wall clock forward or back.
    fn shift_wall(&mut self, by_ms: i64) {
        self.wall_shift_ms += by_ms;
        self.set(self.now.mono);
    }

    /// Sends a request and waits for its answer.
    fn call(&mut self, method: Method, target: &str, body: &str) -> (u16, String) {
        let session = self.send(method, target, body);
        self.answer(session).unwrap_or_else(|| {
            self.run_for(Duration::from_millis(5));
            self.answer(session).expect("an answer within 5 ms")
        })
    }

    fn send(&mut self, method: Method, target: &str, body: &str) -> SessionRef {
        let mut request = request(method, target, body);
        if !body.is_empty() {
            request.headers.push("Content-Type", "application/json; charset=utf-8");
        }
        self.send_request("127.0.0.1:9", request)
    }

    fn send_request(&mut self, peer: &str, request: Request) -> SessionRef {
        let session = self.session(0);
        self.mail(ToControl::Rest {
            session,
            peer: peer.parse().unwrap(),
            secure: false,
            request: Box::new(request),
        });
        session
    }

    fn answer(&mut self, session: SessionRef) -> Option<(u16, String)> {
        let at = self.posted.iter().position(
            |(_, mail)| matches!(mail, ToWorker::RestReply { conn, .. } if *conn == session.conn),
        )?;
        let (_, ToWorker::RestReply { response, .. }) = self.posted.remove(at) else { return None };
        Some((response.status, String::from_utf8(response.body.to_vec()).unwrap()))
    }

    fn post(&mut self, target: &str, body: &str) -> (u16, String) {
        self.call(Method::Post, target, body)
    }

    fn get(&mut self, target: &str) -> (u16, String) {
        self.call(Method::Get, target, "")
    }

    fn record(&mut self, id: &str) -> serde_json::Value {
        let (status, body) = self.get(&format!("/live/rest/v2/broadcasts/{id}"));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    fn create(&mut self, id: &str) {
        let (status, body) =
            self.post("/live/rest/v2/broadcasts/create", &format!(r#"{{"streamId":"{id}"}}"#));
        assert_eq!(status, 200, "{body}");
    }

    /// Returns the orders to push to endpoints that were posted to workers, with these workers.
    fn orders(&mut self) -> Vec<(WorkerId, PushOrder)> {
        let order = |(worker, mail)| match mail {
            ToWorker::StartPush(order) => Some((worker, *order)),
            _ => None,
        };
        self.take().into_iter().filter_map(order).collect()
    }
}

fn request(method: Method, target: &str, body: &str) -> Request {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pair = |p: &str| {
        let (k, v) = p.split_once('=').unwrap_or((p, ""));
        (k.to_owned(), v.to_owned())
    };
    Request {
        method,
        version: Version::Http11,
        target: target.to_owned(),
        path: path.to_owned(),
        query: query.split('&').filter(|p| !p.is_empty()).map(pair).collect(),
        headers: Headers::new(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        body_waits: false,
    }
}

/// Returns the lines logged while `work` runs.
fn logged(work: impl FnOnce()) -> String {
    #[derive(Clone, Default)]
    struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    // A global subscriber that writes nowhere. Without it, a thread without a subscriber can disable log lines for all
    // threads.
    let of_all = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
    let _is_second = tracing::subscriber::set_global_default(of_all);
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .without_time()
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = lines.0.lock().unwrap();
    String::from_utf8(bytes.clone()).unwrap()
}

/// Tracks of epoch 3, without a track.
fn epoch_3() -> Arc<media::Tracks> {
    Arc::new(media::Tracks::new(3, []))
}

const PLAIN: &str = r#"{"success":true,"message":"","dataId":"","errorId":0}"#;
const FAILED: &str = r#"{"success":false,"message":"","dataId":"","errorId":0}"#;

fn failure(message: &str) -> String {
    format!(r#"{{"success":false,"message":"{message}","dataId":"","errorId":0}}"#)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Names the important mail that control has posted for one input, in order.
fn kinds(posted: &[(WorkerId, ToWorker)]) -> Vec<String> {
    let kind = |(worker, mail): &(WorkerId, ToWorker)| {
        let name = match mail {
            ToWorker::StreamUp { source, .. } => format!("up from {}", source.0),
            ToWorker::StreamDown { end, .. } => format!("down {end:?}"),
            ToWorker::Verdict { verdict, .. } => format!("verdict {}", verdict.is_ok()),
            ToWorker::Replaced { .. } => "replaced".into(),
            ToWorker::StartPush(order) => format!("push {}", order.attempt),
            ToWorker::StopPush(_) => "stop push".into(),
            ToWorker::StartPull(order) => format!("pull {}", order.attempt),
            ToWorker::StopPull(_) => "stop pull".into(),
            other => format!("{other:?}").split([' ', '(', '{']).next().unwrap_or("").to_owned(),
        };
        format!("{}: {name}", worker.0)
    };
    posted.iter().map(kind).collect()
}
