//! Fifty applications on one server, one of which misbehaves. Each [`Way`] of misbehaving has its own run, and the
//! waiting times of the other forty-nine applications are compared with a run in which all fifty behave.
//!
//! 1. Time is virtual. Control is one thread: a step begins when earlier steps are over, and takes the time in
//!    [`COSTS`].
//! 2. Work that may block has as many threads as its class. They are shared as in the job service, and are busy as long
//!    as the peer takes.
//! 3. A wait lasts from the request to the end of the step that answers it, or until its aim is reached: the hook was
//!    delivered, the connection to a source by name was ordered, the file was in the object store.

mod costs;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::uploads::{FINISHED, Nothing};
use super::*;
use crate::jobs::shares::{Lines, Threads, Turn};
use crate::jobs::{Appended, Class, DvrDone, Job, ObjectOutcome};
use crate::mail::UploadNews;
use crate::types::PullId;

/// Number of applications; the first is the one that misbehaves.
const APPS: usize = 50;
/// Time during which the well-behaved applications send requests and the first one misbehaves.
const ASKED: Duration = Duration::from_secs(20);
/// Time by which all requests must have been answered.
const SETTLED: Duration = Duration::from_secs(60);
/// Maximum wait of the well-behaved applications, as a multiple of their wait when all behave.
const RATIO_MAX: f64 = 1.25;
/// Duration of a commit to disk.
const COMMIT_TIME: Duration = Duration::from_millis(2);
/// Time that a request takes from its client to control, plus the time that the answer takes back. Each way leads
/// through a local network and one turn of a worker.
const ROUND_TRIP: Duration = Duration::from_millis(2);

/// Steps of control that take time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Get,
    Create,
    Delete,
    Source,
    Endpoint,
    Upload,
    Search,
    Feed,
    Publish,
    Gone,
    Job,
    Written,
    Slice,
    FeedSlice,
    Tick,
}

/// Number of processor instructions of each step, rounded up, as counted by
/// `costs::each_step_of_the_table_can_be_counted` under callgrind, in a test build with `opt-level = 1`. `Written` is
/// the commit of one record with its answer. A slice has 2048 records, and a feed ten.
const COSTS: [(Step, u64); 15] = [
    (Step::Get, 95_000),
    (Step::Create, 50_000),
    (Step::Delete, 100_000),
    (Step::Source, 360_000),
    (Step::Endpoint, 210_000),
    (Step::Upload, 130_000),
    (Step::Search, 25_000),
    (Step::Feed, 460_000),
    (Step::Publish, 150_000),
    (Step::Gone, 115_000),
    (Step::Job, 6_000),
    (Step::Written, 250_000),
    (Step::Slice, 300_000),
    (Step::FeedSlice, 2_000),
    (Step::Tick, 2_000),
];

/// Number of instructions per nanosecond of the assumed processor.
const INSTRUCTIONS_IN_A_NANOSECOND: u64 = 3;

fn cost(step: Step) -> Duration {
    let (_, instructions) = COSTS.iter().find(|(of, _)| *of == step).unwrap();
    Duration::from_nanos(instructions / INSTRUCTIONS_IN_A_NANOSECOND)
}

/// The ways to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Records,
    Uploads,
    Sources,
    DeadHooks,
    DeadNames,
    DeadEndpoints,
    SilentObjects,
    Searches,
    Feeds,
}

const WAYS: [(Way, &str); 9] = [
    (Way::Records, "500 new records a second"),
    (Way::Uploads, "uploads that never end, ten more each second"),
    (Way::Sources, "sources that never receive a caller, 100 more each second"),
    (Way::DeadHooks, "50 streams a second, reported to receivers that do not answer"),
    (Way::DeadNames, "sources with host names that do not resolve, 50 more each second"),
    (Way::DeadEndpoints, "16 endpoints that do not answer, for each of 20 streams"),
    (Way::SilentObjects, "files for an object store that does not answer, ten each second"),
    (Way::Searches, "sorted searches in 5000 records, 20 more each second"),
    (Way::Feeds, "64 feeds of a list of ten records, each asked again every second"),
];

/// The event that ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wait {
    Get,
    List,
    Create,
    Publish,
    Hook,
    Source,
    Upload,
    Object,
}

const WAITS: [(Wait, &str); 8] = [
    (Wait::Get, "a record"),
    (Wait::List, "a list"),
    (Wait::Create, "a new record"),
    (Wait::Publish, "an admission"),
    (Wait::Hook, "a hook"),
    (Wait::Source, "a source by name"),
    (Wait::Upload, "an upload"),
    (Wait::Object, "a file in the store"),
];

/// An input of control.
#[derive(Debug)]
enum Event {
    Call { app: usize, step: Step, method: Method, path: String, body: String, wait: Option<Wait> },
    Feed { app: usize, session: SessionRef },
    Upload { app: usize },
    Received(usize, SessionRef),
    Publish { app: usize, id: String, stays: bool },
    Started(usize, StreamId),
    Gone(usize, SessionRef, StreamId),
    PushFailed(PushId, u64),
    PullFailed(PullId, u64),
    Written(store::Reply, u32),
    Done(Class, u64, JobDone, Option<(usize, Wait, Instant)>),
}

/// The threads of a class.
struct Pool {
    lines: Lines<(Job, Instant)>,
    threads: Threads,
    running: BTreeMap<u64, (Turn, Instant)>,
}

/// A server, its fifty applications, and the world around it.
struct Life {
    control: Control,
    store: Memory,
    began: Instant,
    now: Now,
    /// Time until which control is busy.
    busy: Instant,
    disk_free: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    number: u64,
    conns: u32,
    pools: BTreeMap<Class, Pool>,
    /// Requests by connection: application, event that ends the wait, and time of the request.
    asked: BTreeMap<u32, (usize, Option<Wait>, Instant)>,
    uploads: BTreeMap<u32, (usize, Instant)>,
    publishing: BTreeMap<u32, (usize, Instant, SessionRef, bool)>,
    hooks: Vec<VecDeque<Instant>>,
    objects: Vec<VecDeque<Instant>>,
    sources: BTreeMap<(usize, String), Instant>,
    feeds: Vec<u32>,
    waits: BTreeMap<Wait, Vec<Duration>>,
    refused: usize,
    /// The way in which the first application misbehaves.
    way: Option<Way>,
}

fn name_of(app: usize) -> String {
    format!("t{app}")
}

fn app_of(name: &str) -> usize {
    name.trim_start_matches('t').parse().unwrap()
}

impl Life {
    fn new(way: Option<Way>) -> Self {
        let server = [
            ("store.backup_hours", "0"),
            ("limits.publishers_per_address", "1000000"),
            ("server.cpu_limit", "100"),
        ];
        let server = Arc::new(ServerSettings::of(schema(), &server).unwrap());
        let settings = |app: usize| {
            let hook = format!("http://hook.example{app}/in");
            let bucket = format!("http://store.example{app}");
            let all = [
                ("listenerHookURL", hook.as_str()),
                ("remoteAllowedCIDR", "127.0.0.0/8"),
                ("s3RecordingEnabled", "true"),
                ("s3AccessKey", "somebody"),
                ("s3SecretKey", "a secret"),
                ("s3BucketName", "films"),
                ("s3Endpoint", bucket.as_str()),
            ];
            Arc::new(AppSettings::of(schema(), &name_of(app), &all).unwrap())
        };
        let config = ControlConfig { server, apps: (0..APPS).map(settings).collect(), ..config(&[], &[]) };
        let began = Instant::now();
        let now = Now { mono: began, wall_ms: START_MS };
        let mut store = Memory::new();
        let control = Control::new(now, config, [restored(&mut store)], &Seed::from_number(1)).unwrap();
        let mut life = Self {
            control,
            store,
            began,
            now,
            busy: began,
            disk_free: began,
            events: BTreeMap::new(),
            number: 0,
            conns: 0,
            pools: BTreeMap::new(),
            asked: BTreeMap::new(),
            uploads: BTreeMap::new(),
            publishing: BTreeMap::new(),
            hooks: vec![VecDeque::new(); APPS],
            objects: vec![VecDeque::new(); APPS],
            sources: BTreeMap::new(),
            feeds: Vec::new(),
            waits: BTreeMap::new(),
            refused: 0,
            way,
        };
        life.follow();
        life
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    /// Plans an event `ms` milliseconds after the beginning.
    fn plan(&mut self, ms: u64, event: Event) {
        let at = self.began + Duration::from_millis(ms);
        self.at(at, event);
    }

    fn session(&mut self) -> SessionRef {
        self.conns += 1;
        SessionRef::new(WorkerId(0), ConnId { slot: self.conns, generation: 0 })
    }

    fn post(&mut self, ms: u64, app: usize, step: Step, path: &str, body: String, wait: Option<Wait>) {
        let path = format!("/{}/rest/v2{path}", name_of(app));
        self.plan(ms, Event::Call { app, step, method: Method::Post, path, body, wait });
    }

    fn get(&mut self, ms: u64, app: usize, step: Step, path: &str, wait: Option<Wait>) {
        let path = format!("/{}/rest/v2{path}", name_of(app));
        self.plan(ms, Event::Call { app, step, method: Method::Get, path, body: String::new(), wait });
    }

    /// Plans the requests of the applications that behave.
    fn plan_usual(&mut self) {
        let end = u64::try_from(ASKED.as_millis()).unwrap();
        for app in 1..APPS {
            let phase = 37 * app as u64 % 1000;
            let create = |id: &str| format!(r#"{{"streamId":"{id}"}}"#);
            self.post(phase, app, Step::Create, "/broadcasts/create", create("s"), None);
            for (nth, at) in (1000 + phase..end).step_by(250).enumerate() {
                self.get(at, app, Step::Get, "/broadcasts/s", Some(Wait::Get));
                if nth % 4 == 0 {
                    let body = create(&format!("r{nth}"));
                    self.post(at + 60, app, Step::Create, "/broadcasts/create", body, Some(Wait::Create));
                    self.get(at + 90, app, Step::Get, "/broadcasts/list/0/10?search=r1", Some(Wait::List));
                }
                if nth % 8 == 2 {
                    self.plan(at + 20, Event::Publish { app, id: format!("p{nth}"), stays: false });
                }
                if (nth + app) % 16 == 4 {
                    let url = format!("rtmp://cam{nth}.home{app}.example{app}/live/a");
                    let body =
                        format!(r#"{{"streamId":"c{nth}","type":"streamSource","streamUrl":"{url}"}}"#);
                    let path = "/broadcasts/create?autoStart=true";
                    self.post(at + 30, app, Step::Source, path, body, Some(Wait::Source));
                    let path = format!("/{}/rest/v2/broadcasts/c{nth}", name_of(app));
                    let (step, method, body) = (Step::Delete, Method::Delete, String::new());
                    self.plan(at + 3000, Event::Call { app, step, method, path, body, wait: None });
                }
                if (nth + app) % 16 == 10 {
                    self.plan(at + 40, Event::Upload { app });
                }
            }
        }
    }

    fn plan_misbehaviour(&mut self, way: Way) {
        let end = u64::try_from(ASKED.as_millis()).unwrap();
        let every = |ms: usize| (500..end).step_by(ms).enumerate();
        let source = |nth: usize, url: &str| {
            format!(r#"{{"streamId":"{nth}","type":"streamSource","streamUrl":"{url}"}}"#)
        };
        match way {
            Way::Records => every(2).for_each(|(nth, at)| {
                let body = format!(r#"{{"streamId":"{nth}","description":"{}"}}"#, "x".repeat(500));
                self.post(at, 0, Step::Create, "/broadcasts/create", body, None);
            }),
            Way::Uploads => {
                (0..40).for_each(|n| self.plan(400 + n, Event::Upload { app: 0 }));
                every(100).for_each(|(_, at)| self.plan(at, Event::Upload { app: 0 }));
            }
            Way::Sources => every(10).for_each(|(nth, at)| {
                let body = source(nth, &format!("udp://:{}", 5000 + nth));
                self.post(at, 0, Step::Source, "/broadcasts/create?autoStart=true", body, None);
            }),
            Way::DeadHooks => every(20).for_each(|(nth, at)| {
                self.plan(at, Event::Publish { app: 0, id: format!("h{nth}"), stays: false });
            }),
            Way::DeadNames => every(20).for_each(|(nth, at)| {
                let body = source(nth, &format!("rtmp://a{nth}.dead{}.example/live/a", nth % 60));
                self.post(at, 0, Step::Source, "/broadcasts/create?autoStart=true", body, None);
            }),
            Way::DeadEndpoints => (0..20).for_each(|stream| {
                let at = 500 + stream * 100;
                let body = format!(r#"{{"streamId":"e{stream}"}}"#);
                self.post(at, 0, Step::Create, "/broadcasts/create", body, None);
                self.plan(at + 50, Event::Publish { app: 0, id: format!("e{stream}"), stays: true });
                for nth in 0..16 {
                    let body = format!(r#"{{"rtmpUrl":"rtmp://198.51.100.9/live/{stream}-{nth}"}}"#);
                    let path = format!("/broadcasts/e{stream}/rtmp-endpoint");
                    self.post(at + 60 + nth, 0, Step::Endpoint, &path, body, None);
                }
            }),
            Way::SilentObjects => every(100).for_each(|(_, at)| self.plan(at, Event::Upload { app: 0 })),
            Way::Searches => {
                self.fill(5000);
                let path = "/broadcasts/list/0/50?search=nothing&sort_by=date&order_by=desc";
                (1000..end).step_by(50).for_each(|at| self.get(at, 0, Step::Search, path, None));
            }
            Way::Feeds => {
                self.fill(50);
                for _ in 0..64 {
                    let session = self.session();
                    self.feeds.push(session.conn.slot);
                    self.plan(500, Event::Feed { app: 0, session });
                }
            }
        }
    }

    /// Gives the misbehaving application `count` records before time begins.
    fn fill(&mut self, count: usize) {
        for nth in 0..count {
            let body = format!(r#"{{"streamId":"f{nth}"}}"#);
            let mut request = request(Method::Post, "/t0/rest/v2/broadcasts/create", &body);
            request.headers.push("Content-Type", "application/json; charset=utf-8");
            let session = self.session();
            self.rest(0, session, request);
        }
        self.now.mono += COMMIT_TIME * 10;
        self.control.handle_timeout(self.now);
        while let Some(output) = self.control.poll_output() {
            if let Output::Store(request) = output {
                let reply = store::handle(&mut self.store, request);
                self.control.handle_store(self.now, reply);
            }
        }
    }

    /// Runs to the end. Returns the 99th percentile of the waits of each kind.
    fn run(mut self) -> BTreeMap<Wait, Duration> {
        self.plan_usual();
        self.way.into_iter().for_each(|way| self.plan_misbehaviour(way));
        let end = self.began + SETTLED;
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let due =
                self.control.poll_timeout().filter(|due| event.is_none_or(|at| *due < at.max(self.busy)));
            let Some(at) = due.or(event).filter(|at| *at < end) else { break };
            let begins = at.max(self.busy);
            self.now.mono = begins;
            self.now.wall_ms = START_MS + u64::try_from((begins - self.began).as_millis()).unwrap();
            let step = if due.is_some() { self.tick() } else { self.next_event() };
            self.busy = begins + step;
            self.follow();
        }
        let of = |queues: &[VecDeque<Instant>]| queues.iter().skip(1).map(VecDeque::len).sum::<usize>();
        let asked = self.asked.values().filter(|(app, ..)| *app > 0).count();
        let open = (asked, of(&self.hooks), of(&self.objects), self.refused);
        assert_eq!(
            open,
            (0, 0, 0, 0),
            "{:?}: requests, hooks and files of others that are open or refused",
            self.way
        );
        let p99 = |mut all: Vec<Duration>| {
            all.sort_unstable();
            all[all.len() * 99 / 100]
        };
        std::mem::take(&mut self.waits).into_iter().map(|(wait, all)| (wait, p99(all))).collect()
    }

    /// Handles a deadline of control. Returns the time that it takes.
    fn tick(&mut self) -> Duration {
        let now = self.now.mono;
        let is_due = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let steps = [
            (Step::Slice, is_due(self.control.walks.scans.deadline())),
            (Step::FeedSlice, is_due(self.control.access.feeds.deadline())),
            (Step::Tick, true),
        ];
        self.control.handle_timeout(self.now);
        steps.into_iter().filter(|(_, is_due)| *is_due).map(|(step, _)| cost(step)).sum()
    }

    fn next_event(&mut self) -> Duration {
        let Some(((at, _), event)) = self.events.pop_first() else { return Duration::ZERO };
        match event {
            Event::Call { app, step, method, path, body, wait } => {
                let session = self.session();
                self.asked.insert(session.conn.slot, (app, wait, at));
                if wait == Some(Wait::Source) {
                    let id = body.split('"').nth(3).unwrap().to_owned();
                    self.sources.insert((app, id), at);
                }
                let mut request = request(method, &path, &body);
                if !body.is_empty() {
                    request.headers.push("Content-Type", "application/json; charset=utf-8");
                }
                self.rest(app, session, request);
                cost(step)
            }
            Event::Feed { app, session } => {
                let path = format!("/{}/rest/v2/broadcasts/list/0/10", name_of(app));
                let (peer, request) = ("127.0.0.1:9".parse().unwrap(), request(Method::Get, &path, ""));
                let request = Box::new(request);
                self.control.handle_mail(self.now, ToControl::Feed { session, peer, secure: false, request });
                cost(Step::Feed)
            }
            Event::Upload { app } => {
                let path = format!("/{}/rest/v2/vods/create?name=a.mp4", name_of(app));
                let mut request = request(Method::Post, &path, "");
                request.headers.push("Content-Type", "multipart/form-data; boundary=b");
                let session = self.session();
                self.asked.insert(session.conn.slot, (app, Some(Wait::Upload), at));
                self.uploads.insert(session.conn.slot, (app, at));
                self.rest(app, session, request);
                cost(Step::Upload)
            }
            Event::Received(app, session) => {
                self.objects[app].push_back(at);
                let news = UploadNews::Received { metadata: None };
                self.control.handle_mail(self.now, ToControl::Upload { session, news });
                cost(Step::Upload)
            }
            Event::Publish { app, id, stays } => {
                let session = self.session();
                self.publishing.insert(session.conn.slot, (app, at, session, stays));
                let request = PublishRequest {
                    session,
                    key: StreamKey::new(&name_of(app), &id),
                    ingest: Ingest { publish_type: "RTMP", name: "rtmp" },
                    peer: format!("127.0.{app}.1:4000").parse().unwrap(),
                    user_agent: "enc/1".into(),
                    params: Vec::new(),
                    via: Vec::new(),
                    zero_ms: None,
                    pull: None,
                };
                self.control.handle_mail(self.now, ToControl::Publish(request));
                cost(Step::Publish)
            }
            Event::Started(app, stream) => {
                self.hooks[app].push_back(at);
                self.control.handle_mail(self.now, ToControl::SourceStarted(stream));
                cost(Step::Publish)
            }
            Event::Gone(app, session, stream) => {
                self.hooks[app].push_back(at);
                let (departure, position) = (Departure::Clean, Position::default());
                let gone =
                    ToControl::PublisherGone { session, stream, departure, position, tracks: epoch_3() };
                self.control.handle_mail(self.now, gone);
                cost(Step::Gone)
            }
            Event::PushFailed(push, attempt) => {
                let state = PushState::Failed("timed out".into());
                self.control.handle_mail(self.now, ToControl::Push { push, attempt, state });
                cost(Step::Job)
            }
            Event::PullFailed(pull, attempt) => {
                let state = crate::mail::PullState::Failed("timed out".into());
                self.control.handle_mail(self.now, ToControl::Pull { pull, attempt, state });
                cost(Step::Job)
            }
            Event::Written(reply, ops) => {
                self.control.handle_store(self.now, reply);
                cost(Step::Written) * ops
            }
            Event::Done(class, number, done, wait) => {
                let pool = self.pools.get_mut(&class).unwrap();
                if let Some((turn, since)) = pool.running.remove(&number) {
                    pool.threads.end(turn, at - since);
                }
                if let Some((app, wait, since)) = wait {
                    self.note(app, wait, since, at);
                }
                self.control.handle_job(self.now, done);
                self.hand_out(class, at);
                cost(Step::Job)
            }
        }
    }

    fn rest(&mut self, app: usize, session: SessionRef, request: Request) {
        // Each address sends as many uploads as it may.
        let peer = format!("127.{}.{app}.1:9", session.conn.slot / 4 % 200).parse().unwrap();
        let request = Box::new(request);
        self.control.handle_mail(self.now, ToControl::Rest { session, peer, secure: false, request });
    }

    /// Notes the end of a wait of a well-behaved application. The waits of the misbehaving one are ignored.
    fn note(&mut self, app: usize, wait: Wait, since: Instant, at: Instant) {
        if app > 0 {
            self.waits.entry(wait).or_default().push(at - since + ROUND_TRIP);
        }
    }

    /// Handles the outputs of control at the end of a step.
    fn follow(&mut self) {
        let at = self.busy.max(self.now.mono);
        while let Some(output) = self.control.poll_output() {
            match output {
                Output::Worker(WorkerId(0), mail) => self.mail(at, mail),
                Output::Store(request) => {
                    let ops = match &request {
                        store::Request::Commit { ops, .. } => ops.len(),
                        store::Request::Probe { .. }
                        | store::Request::Rebuild { .. }
                        | store::Request::Backup { .. } => 1,
                    };
                    let reply = store::handle(&mut self.store, request);
                    self.disk_free = self.disk_free.max(at) + COMMIT_TIME;
                    self.at(self.disk_free, Event::Written(reply, u32::try_from(ops).unwrap()));
                }
                Output::Job(job) => self.submit(at, job),
                Output::Worker(..)
                | Output::Directory(_)
                | Output::Outbound(_)
                | Output::Leave
                | Output::Exit => {}
            }
        }
    }

    fn mail(&mut self, at: Instant, mail: ToWorker) {
        match mail {
            ToWorker::RestReply { conn, response } => {
                if self.feeds.contains(&conn.slot) {
                    let session = SessionRef::new(WorkerId(0), conn);
                    let later = at + Duration::from_secs(1);
                    return if at < self.began + ASKED {
                        self.at(later, Event::Feed { app: 0, session })
                    };
                }
                let Some((app, wait, since)) = self.asked.remove(&conn.slot) else { return };
                self.refused += usize::from(app > 0 && response.status != 200);
                match wait {
                    // The wait for a source ends when its connection is ordered.
                    Some(Wait::Source) | None => {}
                    Some(wait) => self.note(app, wait, since, at),
                }
            }
            ToWorker::Upload { conn, .. } => {
                let Some((app, _)) = self.uploads.remove(&conn.slot) else { return };
                let session = SessionRef::new(WorkerId(0), conn);
                if app > 0 || self.is_silent_store() {
                    self.at(at + Duration::from_millis(20), Event::Received(app, session));
                }
            }
            ToWorker::Verdict { conn, verdict, .. } => {
                let Some((app, since, session, stays)) = self.publishing.remove(&conn.slot) else { return };
                self.note(app, Wait::Publish, since, at);
                let Ok(grant) = verdict else {
                    self.refused += usize::from(app > 0);
                    return;
                };
                self.at(at + Duration::from_millis(10), Event::Started(app, grant.stream));
                if !stays {
                    self.at(at + Duration::from_millis(900), Event::Gone(app, session, grant.stream));
                }
            }
            ToWorker::StartPull(order) => {
                let app = app_of(&order.key.app);
                if let Some(since) = self.sources.remove(&(app, order.key.id.to_string())) {
                    self.note(app, Wait::Source, since, at);
                }
                if app == 0 && order.address.ip().to_string() == "198.51.100.9" {
                    let failed = Event::PullFailed(order.pull, order.attempt);
                    self.at(at + Duration::from_secs(5), failed);
                }
            }
            ToWorker::StartPush(order) => {
                self.at(at + Duration::from_secs(5), Event::PushFailed(order.push, order.attempt));
            }
            _ => {}
        }
    }

    /// True if the misbehaving application uses a silent object store; otherwise it leaves its uploads open.
    const fn is_silent_store(&self) -> bool {
        matches!(self.way, Some(Way::SilentObjects))
    }

    fn submit(&mut self, at: Instant, job: Job) {
        let class = job.work.class();
        let limits = class.limits();
        let new_pool = || Pool {
            lines: Lines::default(),
            threads: Threads::new(limits.threads),
            running: BTreeMap::new(),
        };
        let pool = self.pools.entry(class).or_insert_with(new_pool);
        if pool.lines.len() >= limits.queue {
            let done = JobDone { id: job.id, outcome: Outcome::Busy };
            return self.at(at, Event::Done(class, 0, done, None));
        }
        let payer = job.payer();
        pool.lines.push(&payer, (job, at));
        self.hand_out(class, at);
    }

    /// Gives waiting work to the free threads of a class.
    fn hand_out(&mut self, class: Class, at: Instant) {
        let way = self.way;
        loop {
            let Some(pool) = self.pools.get_mut(&class) else { return };
            let Some(((job, _), turn)) = pool.lines.next(&mut pool.threads) else { return };
            self.number += 1;
            let number = self.number;
            pool.running.insert(number, (turn, at));
            let app = job.app.as_deref().map_or(APPS, app_of);
            let is_bad = |of: Way| app == 0 && way == Some(of);
            let (time, outcome, wait) = match job.work {
                Work::Resolve { ref host, .. } if host.contains("dead") => {
                    (secs(10), Outcome::Resolved(Err("no answer".into())), None)
                }
                Work::Resolve { port, .. } => {
                    let address = format!("203.0.113.{}:{port}", 1 + app).parse().unwrap();
                    (ms(20), Outcome::Resolved(Ok(vec![address])), None)
                }
                Work::Post(_) if is_bad(Way::DeadHooks) => {
                    (secs(5), Outcome::Posted(Err("timed out".into())), None)
                }
                Work::Post(_) => {
                    let since = self.hooks.get_mut(app).and_then(VecDeque::pop_front);
                    (ms(5), Outcome::Posted(Ok(200)), since.map(|since| (app, Wait::Hook, since)))
                }
                Work::Object(_) if is_bad(Way::SilentObjects) => {
                    (secs(60), Outcome::Object(ObjectOutcome::Failed("timed out".into())), None)
                }
                Work::Object(_) => {
                    let since = self.objects.get_mut(app).and_then(VecDeque::pop_front);
                    let wait = since.map(|since| (app, Wait::Object, since));
                    (ms(80), Outcome::Object(ObjectOutcome::Done), wait)
                }
                Work::FileAppend { .. } => {
                    let appended = Appended { file: Arc::new(Nothing), length: 0, name: None };
                    (ms(1), Outcome::Appended(Ok(appended)), None)
                }
                Work::Recording(RecordingWork::Find { .. }) => {
                    (ms(1), Outcome::Recording(RecordingOutcome::Found(Vec::new())), None)
                }
                Work::Recording(RecordingWork::Remove { .. }) => {
                    (ms(1), Outcome::Recording(RecordingOutcome::Removed), None)
                }
                Work::Recording(_) => (ms(2), Outcome::Recording(FINISHED), None),
                Work::Archive(_) => (ms(1), Outcome::Dvr(Ok(DvrDone::default())), None),
                ref other => panic!("control has no use for {other:?}"),
            };
            let done = JobDone { id: job.id, outcome };
            self.at(at + time, Event::Done(class, number, done, wait));
        }
    }
}

#[test]
fn q_16_an_application_that_misbehaves_costs_no_other_more_than_a_quarter() {
    let usual = Life::new(None).run();
    let mut bad = Vec::new();
    let heads: Vec<String> = WAITS.iter().map(|(_, name)| format!("{name} |")).collect();
    println!("| one of fifty applications | {}", heads.join(" "));
    let figure = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
    let row: Vec<String> = WAITS.iter().map(|(wait, _)| format!("{} |", figure(usual[wait]))).collect();
    println!("| does nothing (times) | {}", row.join(" "));
    for (way, name) in WAYS {
        let waits = Life::new(Some(way)).run();
        let mut row = Vec::new();
        for (wait, of) in WAITS {
            let time = waits.get(&wait).copied().unwrap_or(SETTLED);
            let ratio = time.as_secs_f64() / usual[&wait].as_secs_f64();
            row.push(format!("{} ({ratio:.2}) |", figure(time)));
            if ratio > RATIO_MAX {
                bad.push(format!("{name}: {of} {ratio:.2}"));
            }
        }
        println!("| {name} | {}", row.join(" "));
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
