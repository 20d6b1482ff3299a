//! Desired against actual state: once nothing has happened for a while, exactly those tasks run that the records
//! on the disk ask for.
//!
//! A seed determines a run. Publishers come and go; sources, endpoints and recording switches are set and cleared;
//! limits of the applications change; one application is deleted and created again; commits fail, and the power
//! fails. Then nothing is changed any more, and the model judges.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crypto::{Random, Seed};
use millstream::control::{Ordered, Standing};
use millstream::store::Kind;
use netsim::{MediaSource, ms, secs};
use serde_json::Value;

use super::seeds;
use crate::support::world::{Chaos, Id, World};

/// Number of published streams, and of sources that each pull a stream.
const STREAMS: usize = 3;
const SOURCES: usize = 3;
/// Number of operations in a run.
const OPERATIONS: usize = 60;
/// Time without operations before the judgement. It exceeds every pause after a failure: of a source or an
/// endpoint (25 s), of a recording (30 s).
const REST_SECONDS: u64 = 75;

/// A task: its kind, application and stream, and a text that distinguishes it from others of the same stream.
type Task = (String, String, String, String);

/// Live streams by application and id, with their records as the API shows them.
type Live = BTreeMap<(String, String), Value>;

/// A run: the world, the plan of its operators, and what they asked for.
struct Run {
    world: World,
    plan: Random,
    publishers: Vec<Option<Id>>,
    /// Settings of both applications that the run changes. `copies` is `None` while that application does not exist.
    live: Settings,
    copies: Option<Settings>,
    sources: [Source; SOURCES],
    /// True if a commit has failed since the server started, so that acknowledged changes may be lost when it
    /// restarts.
    is_disk_faulty: bool,
    log: Vec<String>,
}

/// A source as the operator wants it.
#[derive(Debug, Clone, Copy, Default)]
struct Source {
    /// The last call while it is unanswered, and what it asks.
    asked: Option<(Id, Ask)>,
    /// True if the source is to run; `None` after a call that was cut off.
    intent: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    /// A start. The source is to run if the call succeeds.
    Start,
    /// A stop. The source is not to run any more, whatever the answer is, because an error may mean that there was
    /// nothing to stop.
    Stop,
}

/// Settings of an application.
#[derive(Debug, Clone, Copy, Default)]
struct Settings {
    records: bool,
    recorded_max: u64,
    streams_max: Option<u64>,
    /// Number of failures after which the server gives up an endpoint.
    republish_max: Option<u64>,
}

impl Settings {
    fn pairs(self) -> [(&'static str, String); 4] {
        let limit = |max: Option<u64>| max.map_or_else(|| "-1".to_owned(), |max| max.to_string());
        [
            ("mp4MuxingEnabled", self.records.to_string()),
            ("record.max_streams", self.recorded_max.to_string()),
            ("ingestingStreamLimit", limit(self.streams_max)),
            ("endpointRepublishLimit", limit(self.republish_max)),
        ]
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut plan = Seed::from_number(seed).derive("desired", 0).random();
        let chaos = match plan.below(3) {
            0 => Chaos::NONE,
            _ => Chaos { shuffles: true, pauses: 0.01, pause_max: ms(30), disk_max: ms(60), ..Chaos::NONE },
        };
        let settings = [("publisherGraceMs", "2000")];
        let world = World::with_chaos(seed, 2, &settings, chaos).recording();
        let (live, copies) = (Settings::default(), Some(Settings::default()));
        let sources = [Source { asked: None, intent: Some(false) }; SOURCES];
        let (publishers, log) = (vec![None; STREAMS], Vec::new());
        Self { world, plan, publishers, live, copies, sources, is_disk_faulty: false, log }
    }

    fn note(&mut self, text: String) {
        let at = self.world.elapsed().as_millis();
        self.log.push(format!("{at:6} {text}"));
    }

    fn fail(&self, text: &str) -> ! {
        panic!("{}\n{}\nFAILED: {text}", self.world.trace(), self.log.join("\n"));
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.plan.below(bound as u64)).unwrap()
    }

    fn call(&mut self, head: &str, body: &str) -> Id {
        self.note(format!("{head} {body}"));
        self.world.request(head, body)
    }

    /// Makes a call about a source, if no other call about it is unanswered and the application `copies` exists.
    fn ask(&mut self, source: usize, ask: Ask, head: &str, body: &str) {
        if self.sources[source].asked.is_none() && self.copies.is_some() {
            let id = self.call(head, body);
            self.sources[source].asked = Some((id, ask));
        }
    }

    fn observe_answers(&mut self) {
        for index in 0..SOURCES {
            let Some((id, ask)) = self.sources[index].asked else { continue };
            let Some(answer) = self.world.answer(id) else { continue };
            let is_success = answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""success":true"#);
            let intent = match ask {
                Ask::Start if is_success => Some(true),
                Ask::Start => self.sources[index].intent,
                Ask::Stop => Some(false),
            };
            let is_lost = answer.starts_with("HTTP/1.1 500 ");
            self.sources[index] = Source { asked: None, intent: intent.filter(|_| !is_lost) };
            self.note(format!("  p{index} is to run: {:?}", self.sources[index].intent));
        }
    }

    /// Runs all operations, then judges.
    fn live(mut self) {
        self.world.run_for(ms(100));
        for _ in 0..OPERATIONS {
            self.operate();
            self.observe_answers();
            let most = if self.plan.chance(0.1) { 5000 } else { 400 };
            let time = ms(self.plan.below(most));
            self.world.run_for(time);
        }
        self.come_to_rest();
    }

    fn operate(&mut self) {
        let stream = self.below(STREAMS);
        let source = self.below(SOURCES);
        let of = format!("/live/rest/v2/broadcasts/s{stream}");
        let pull = format!("/copies/rest/v2/broadcasts/p{source}");
        match self.below(20) {
            0..=2 => self.publisher_comes(stream),
            3 => self.publisher_goes(stream),
            4 => {
                let body = format!(r#"{{"streamId":"s{stream}"}}"#);
                self.call("POST /live/rest/v2/broadcasts/create", &body);
            }
            5 => drop(self.call(&format!("PUT {of}/recording/true"), "")),
            6 => drop(self.call(&format!("PUT {of}/recording/false"), "")),
            7 => self.add_endpoint(stream),
            8 => {
                self.call(&format!("DELETE {of}/rtmp-endpoint?endpointServiceId=e{stream}"), "");
            }
            9 if self.plan.chance(0.3) => drop(self.call(&format!("DELETE {of}"), "")),
            10 | 11 => self.create_source(source),
            12 => self.ask(source, Ask::Start, &format!("POST {pull}/start"), ""),
            13 => self.ask(source, Ask::Stop, &format!("POST {pull}/stop"), ""),
            14 => {
                let body = format!(r#"{{"streamUrl":"rtmp://127.0.0.1:1935/live/s{stream}"}}"#);
                self.call(&format!("PUT {pull}"), &body);
            }
            15 | 16 => self.change_settings(),
            17 if self.plan.chance(0.5) => {
                self.note("the next commit fails".to_owned());
                self.is_disk_faulty = true;
                self.world.backstage().fail_store(1, u32::from(self.plan.chance(0.5)));
            }
            18 => self.crash(),
            _ => {}
        }
    }

    fn publisher_comes(&mut self, stream: usize) {
        if self.publishers[stream].is_some_and(|id| !self.world.is_closed(id)) {
            return;
        }
        let number = self.log.len() as u64;
        let source = MediaSource::new(&Seed::from_number(number)).fps(8).gop(8).sizes(200, 0);
        self.note(format!("a publisher of s{stream}"));
        self.publishers[stream] = Some(self.world.publish("live", &format!("s{stream}"), source));
    }

    fn publisher_goes(&mut self, stream: usize) {
        let Some(id) = self.publishers[stream].take() else { return };
        self.note(format!("the publisher of s{stream} goes"));
        if self.plan.chance(0.5) {
            self.world.close(id);
        } else {
            self.world.reset(id);
        }
    }

    fn add_endpoint(&mut self, stream: usize) {
        let body = format!(
            r#"{{"endpointUrl":"rtmp://127.0.0.1:1935/copies/e{stream}","endpointServiceId":"e{stream}"}}"#
        );
        self.call(&format!("POST /live/rest/v2/broadcasts/s{stream}/rtmp-endpoint"), &body);
    }

    fn create_source(&mut self, source: usize) {
        let stream = self.below(STREAMS);
        let url = format!("rtmp://127.0.0.1:1935/live/s{stream}");
        let body = format!(r#"{{"streamId":"p{source}","type":"streamSource","streamUrl":"{url}"}}"#);
        self.ask(source, Ask::Start, "POST /copies/rest/v2/broadcasts/create?autoStart=true", &body);
    }

    fn change_settings(&mut self) {
        let change = |of: &mut Settings, kind: usize, random: &mut Random| match kind {
            0 => of.records = random.chance(0.5),
            1 => of.recorded_max = random.below(3),
            2 => of.streams_max = random.chance(0.5).then(|| 1 + random.below(2)),
            _ => of.republish_max = random.chance(0.6).then(|| random.below(3)),
        };
        match self.below(8) {
            0 => self.copies = self.copies.take().xor(Some(Settings::default())),
            of @ 1..=4 => change(&mut self.live, [0, 1, 3, 3][of % 4], &mut self.plan),
            of => {
                if let Some(copies) = &mut self.copies {
                    change(copies, of % 3, &mut self.plan);
                }
            }
        }
        self.install();
    }

    fn install(&mut self) {
        self.note(format!("settings: live {:?}, copies {:?}", self.live, self.copies));
        let all = [("live", Some(self.live)), ("copies", self.copies)];
        let pairs = all.map(|(name, settings)| (name, settings.map(Settings::pairs)));
        let grace = ("publisherGraceMs", "2000");
        let texts: Vec<(&str, Vec<(&str, &str)>)> = pairs
            .iter()
            .filter_map(|(name, pairs)| Some((*name, pairs.as_ref()?)))
            .map(|(name, pairs)| {
                let own = pairs.iter().map(|(key, value)| (*key, value.as_str()));
                (name, own.chain([grace]).collect())
            })
            .collect();
        let apps: Vec<(&str, &[(&str, &str)])> =
            texts.iter().map(|(name, pairs)| (*name, pairs.as_slice())).collect();
        self.world.install(&apps);
    }

    fn crash(&mut self) {
        self.note("crash".to_owned());
        self.observe_answers();
        self.world.crash();
        self.publishers.fill(None);
        let is_disk_faulty = std::mem::take(&mut self.is_disk_faulty);
        for source in &mut self.sources {
            if source.asked.take().is_some() || is_disk_faulty {
                source.intent = None;
            }
        }
    }

    // ---- the judge

    fn come_to_rest(&mut self) {
        self.note("all is left alone".to_owned());
        self.world.backstage().fail_store(0, 0);
        self.world.run_for(secs(REST_SECONDS));
        self.observe_answers();
        let live = self.live_streams();
        let ordered = self.world.backstage().ordered();
        self.judge_workers(&ordered);
        let actual: BTreeSet<Task> = ordered.iter().map(task).collect();
        let desired = self.desired(&live);
        // While a source pauses between two attempts, its stream is up, but the record does not say so.
        let is_pulled = |(_, app, id, _): &&Task| {
            actual.contains(&("pull".to_owned(), app.clone(), id.clone(), String::new()))
        };
        let mut extra = actual.difference(&desired).filter(|task| task.0 == "pull" || !is_pulled(task));
        if let Some(extra) = extra.next() {
            self.fail(&format!("it runs and nothing asks for it: {extra:?}; live: {:?}", live.keys()));
        }
        for missing in desired.difference(&actual) {
            if !self.is_at_limit(missing, &actual, &live) {
                self.fail(&format!("it does not run: {missing:?}; {ordered:?}; live: {:?}", live.keys()));
            }
        }
        for (index, source) in self.sources.iter().enumerate() {
            let task = ("pull".to_owned(), "copies".to_owned(), format!("p{index}"), String::new());
            let runs = actual.contains(&task);
            let can_run = self.copies.is_some() && !self.is_at_limit(&task, &actual, &live);
            match source.intent {
                Some(true) if !runs && can_run => {
                    self.fail(&format!("p{index} was started and does not run"))
                }
                Some(false) if runs => self.fail(&format!("p{index} was stopped and runs")),
                Some(_) | None => {}
            }
        }
        for one in &ordered {
            let limit = if one.kind == "push" { self.live.republish_max } else { None };
            let has_failed = limit.is_some_and(|max| u64::from(one.failures) > max);
            match one.at {
                Standing::GivenUp if !has_failed => {
                    self.fail(&format!("nothing will try it again: {one:?}"));
                }
                Standing::Waiting if has_failed => {
                    self.fail(&format!("tried again although it failed too often: {one:?}"));
                }
                Standing::GivenUp | Standing::Waiting | Standing::Open(_) => {}
            }
        }
    }

    /// Checks that each worker has exactly the tasks that control has given it.
    fn judge_workers(&self, ordered: &[Ordered]) {
        for (index, worker) in self.world.workers().iter().enumerate() {
            let has: BTreeSet<_> = worker.ordered().into_iter().collect();
            let at = |one: &&Ordered| matches!(one.at, Standing::Open(at) if usize::from(at.0) == index);
            let ought: BTreeSet<_> = ordered.iter().filter(at).map(|one| (one.kind, one.id)).collect();
            if has != ought {
                self.fail(&format!("worker {index} has {has:?} and should have {ought:?}: {ordered:?}"));
            }
        }
    }

    /// Returns the live streams according to the API.
    fn live_streams(&mut self) -> Live {
        let mut live = Live::new();
        for app in ["live", "copies"] {
            let asked = self.world.request(&format!("GET /{app}/rest/v2/broadcasts/list/0/50"), "");
            self.world.run_for(secs(2));
            let Some(answer) = self.world.answer(asked) else { self.fail("a list was not answered") };
            let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
            let list: Value = serde_json::from_str(body).unwrap_or(Value::Null);
            let is_live = |record: &&Value| record["status"] == "broadcasting";
            for record in list.as_array().into_iter().flatten().filter(is_live) {
                let id = record["streamId"].as_str().unwrap().to_owned();
                live.insert((app.to_owned(), id), record.clone());
            }
        }
        live
    }

    /// Returns the tasks that the records on the disk and the settings ask for.
    fn desired(&mut self, live: &Live) -> BTreeSet<Task> {
        let stored = self.world.stored();
        let mut records: Vec<(String, String, Value)> = stored
            .iter()
            .filter(|(key, _)| key.kind == Kind::Broadcast)
            .map(|(key, bytes)| (key.app.to_string(), key.id.to_string(), json_of(bytes)))
            .collect();
        // Records that publishers created are only in memory.
        for (key, record) in live {
            if !records.iter().any(|(app, id, _)| (app, id) == (&key.0, &key.1)) {
                if record["zombi"] != true {
                    self.fail(&format!("a record is not on the disk: {record}"));
                }
                records.push((key.0.clone(), key.1.clone(), record.clone()));
            }
        }
        let mut desired = BTreeSet::new();
        let task = |kind: &str, app: &str, id: &str, what: &str| {
            (kind.to_owned(), app.to_owned(), id.to_owned(), what.to_owned())
        };
        for (app, id, record) in &records {
            if record["sourceWanted"] == true && (app == "live" || self.copies.is_some()) {
                desired.insert(task("pull", app, id, ""));
            }
            let endpoints = record["endPointList"].as_array().into_iter().flatten();
            if live.contains_key(&(app.clone(), id.clone())) {
                let urls = endpoints.filter_map(|one| one["endpointUrl"].as_str());
                desired.extend(urls.map(|url| task("push", app, id, url)));
            }
        }
        for (app, id) in live.keys() {
            let record = records.iter().find(|(of, other, _)| (of, other) == (app, id));
            let own = record.and_then(|(_, _, record)| record["mp4Enabled"].as_i64()).unwrap_or(0);
            let of_app = match app.as_str() {
                "live" => self.live.records,
                _ => self.copies.is_some_and(|copies| copies.records),
            };
            if own > 0 || own == 0 && of_app {
                desired.insert(task("recording", app, id, "mp4"));
            }
        }
        desired
    }

    /// True if a limit of the task's application keeps the task from running.
    fn is_at_limit(&self, task: &Task, actual: &BTreeSet<Task>, live: &Live) -> bool {
        let (kind, app, ..) = task;
        let settings = if app == "live" { self.live } else { self.copies.unwrap_or_default() };
        let running: BTreeSet<_> = actual
            .iter()
            .filter(|(of, other, ..)| (of, other) == (kind, app))
            .map(|(_, _, id, _)| id)
            .collect();
        match kind.as_str() {
            "recording" => settings.recorded_max > 0 && running.len() as u64 >= settings.recorded_max,
            "pull" => {
                let streams: BTreeSet<_> =
                    live.keys().filter(|(of, _)| of == app).map(|(_, id)| id).collect();
                let all = streams.union(&running).count() as u64;
                settings.streams_max.is_some_and(|max| all >= max)
            }
            _ => false,
        }
    }
}

/// Parses the JSON of a stored record, which follows the number of the record's format.
fn json_of(stored: &[u8]) -> Value {
    let begin = stored.iter().position(|byte| *byte == b'{').unwrap();
    serde_json::from_slice(&stored[begin..]).unwrap()
}

fn task(one: &Ordered) -> Task {
    (one.kind.to_owned(), one.key.app.to_string(), one.key.id.to_string(), one.what.clone())
}

#[test]
fn b_34_what_the_records_ask_for_is_what_runs_once_all_is_at_rest() {
    let first: u64 = std::env::var("MILLSTREAM_FIRST_SEED").ok().and_then(|t| t.parse().ok()).unwrap_or(0);
    let count = seeds(60);
    let failed: Vec<u64> = (first..first + count)
        .filter(|seed| catch_unwind(AssertUnwindSafe(|| Run::new(*seed).live())).is_err())
        .collect();
    println!("{count} seeds");
    assert!(failed.is_empty(), "seeds {failed:?} of {first}..{}", first + count);
}
