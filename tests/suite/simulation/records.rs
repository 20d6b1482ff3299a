//! Calls of the API, and checks of their answers.

use std::time::Instant;

use netsim::{ms, secs};
use serde_json::Value;

use super::random::Run;
use super::streams::Expect;
use crate::support::world::Id;

/// Expected record of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Known {
    #[default]
    Absent,
    There {
        name: Option<String>,
        endpoint: Option<String>,
    },
    /// Unknown, because a call was cut off.
    Unknown,
}

/// The model of a stream's record.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) known: Known,
    /// True if the stream has been live since the record was created; `None` if unknown.
    was_live: Option<bool>,
    is_changing: bool,
    /// Time of the answer to the last change.
    changed_at: Option<Instant>,
}

impl Record {
    /// Notes that the stream has become live.
    pub(super) fn began(&mut self) {
        self.was_live = matches!(self.known, Known::There { .. }).then_some(true);
    }

    /// Notes that the stream may have been live for a moment.
    pub(super) fn may_have_begun(&mut self) {
        self.was_live = self.was_live.filter(|was_live| *was_live);
    }

    /// True if a change was under way at or after `at`.
    fn has_changed_since(&self, at: Instant) -> bool {
        self.is_changing || self.changed_at.is_some_and(|changed| changed >= at)
    }

    pub(super) fn crashed(&mut self) {
        if std::mem::take(&mut self.is_changing) {
            self.known = Known::Unknown;
        }
        // The disk learns only later that a stream is live, so the restarted server may or may not know it.
        self.was_live = None;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    Create(Option<String>),
    Read,
    Update(String),
    Delete,
    Stop,
    AddEndpoint,
    RemoveEndpoint,
    List,
    ReadCopy,
    Pull,
    ReadPull,
    EndPull,
}

impl Call {
    /// True if the call changes the record of a published stream.
    const fn changes(&self) -> bool {
        !matches!(
            self,
            Self::Read | Self::List | Self::ReadCopy | Self::Pull | Self::ReadPull | Self::EndPull
        )
    }
}

/// A call that is not answered yet.
#[derive(Debug)]
pub(super) struct Request {
    id: Id,
    stream: usize,
    call: Call,
    expect: Expect,
    asked: Instant,
}

/// The answer to a call.
struct Answer {
    status: u16,
    body: Value,
}

impl Answer {
    fn read(text: &str) -> Option<Self> {
        let status = text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let (_, body) = text.split_once("\r\n\r\n")?;
        Some(Self { status, body: serde_json::from_str(body).unwrap_or(Value::Null) })
    }

    fn succeeds(&self) -> bool {
        self.status == 200 && self.body["success"] == true
    }
}

impl Run {
    /// Makes a random call. Only a single call at a time changes a record.
    pub(super) fn call(&mut self, stream: usize) {
        let is_changing = self.streams[stream].record.is_changing;
        let name = || "a name".to_owned();
        let call = match self.below(20) {
            0..=3 if !is_changing => Call::Create(self.plan.chance(0.5).then(name)),
            4..=5 if !is_changing => Call::Update(format!("name {}", self.plan.below(1000))),
            6 if !is_changing => Call::Delete,
            7 if !is_changing => Call::Stop,
            8..=10 if !is_changing => Call::AddEndpoint,
            11 if !is_changing => Call::RemoveEndpoint,
            12..=13 => Call::List,
            14..=15 => Call::ReadCopy,
            _ => Call::Read,
        };
        self.ask(stream, call);
    }

    /// Starts or ends a pull by the other application, or asks for its state.
    pub(super) fn pull(&mut self, stream: usize) {
        let is_asked = |request: &Request| {
            request.stream == stream && matches!(request.call, Call::Pull | Call::EndPull)
        };
        if self.requests.iter().any(is_asked) {
            return;
        }
        match (self.streams[stream].pull, self.below(3)) {
            (None, _) => {
                self.streams[stream].was_pulled = true;
                self.streams[stream].was_copied = true;
                self.ask(stream, Call::Pull);
            }
            (Some(_), 0) => self.end_pull(stream),
            (Some(_), _) => self.ask(stream, Call::ReadPull),
        }
    }

    pub(super) fn end_pull(&mut self, stream: usize) {
        self.streams[stream].pull = None;
        self.ask(stream, Call::EndPull);
    }

    /// True if all calls have been answered.
    pub(super) fn is_answered(&self) -> bool {
        self.requests.is_empty()
    }

    /// Asks for a record, to compare it with the model.
    pub(super) fn read(&mut self, stream: usize) {
        self.ask(stream, Call::Read);
    }

    fn ask(&mut self, stream: usize, call: Call) {
        let id = self.streams[stream].id.clone();
        let known = self.streams[stream].record.known.clone();
        let endpoint = match &known {
            Known::There { endpoint, .. } => endpoint.clone(),
            Known::Absent | Known::Unknown => None,
        };
        let of = format!("/live/rest/v2/broadcasts/{id}");
        let (head, body) = match &call {
            Call::Create(name) => {
                let name = name.as_ref().map_or(String::new(), |name| format!(r#","name":"{name}""#));
                ("POST /live/rest/v2/broadcasts/create".to_owned(), format!(r#"{{"streamId":"{id}"{name}}}"#))
            }
            Call::Read => (format!("GET {of}"), String::new()),
            Call::Update(name) => (format!("PUT {of}"), format!(r#"{{"name":"{name}"}}"#)),
            Call::Delete => (format!("DELETE {of}"), String::new()),
            Call::Stop => (format!("POST {of}/stop"), String::new()),
            Call::AddEndpoint => {
                let host = if self.plan.chance(0.5) { "127.0.0.1" } else { "copies.example" };
                let url = format!(r#"{{"endpointUrl":"rtmp://{host}:1935/copies/{id}"}}"#);
                // A second endpoint would publish the copy a second time.
                if endpoint.is_some() || !matches!(known, Known::There { .. }) {
                    return;
                }
                self.streams[stream].was_copied = true;
                (format!("POST {of}/rtmp-endpoint"), url)
            }
            Call::RemoveEndpoint => {
                let Some(endpoint) = &endpoint else { return };
                (format!("DELETE {of}/rtmp-endpoint?endpointServiceId={endpoint}"), String::new())
            }
            Call::List => ("GET /live/rest/v2/broadcasts/list/0/50".to_owned(), String::new()),
            Call::ReadCopy => (format!("GET /copies/rest/v2/broadcasts/{id}"), String::new()),
            Call::Pull => {
                let url = format!("rtmp://127.0.0.1:1935/live/{id}");
                let body = format!(r#"{{"streamId":"p{id}","type":"streamSource","streamUrl":"{url}"}}"#);
                ("POST /copies/rest/v2/broadcasts/create?autoStart=true".to_owned(), body)
            }
            Call::ReadPull => (format!("GET /copies/rest/v2/broadcasts/p{id}"), String::new()),
            Call::EndPull => (format!("DELETE /copies/rest/v2/broadcasts/p{id}"), String::new()),
        };
        let (now, slack) = (self.world.instant(), self.slack);
        let expect = self.streams[stream].expect(now, slack);
        self.note(format!("{call:?} of {id}, {expect:?}, {known:?}"));
        let request = self.world.request(&head, &body);
        if call.changes() {
            self.streams[stream].record.is_changing = true;
        }
        if matches!(call, Call::Delete | Call::Stop) {
            // The state of the stream is uncertain until the answer arrives.
            self.streams[stream].event(now, None);
            self.streams[stream].may_end(now, now + slack);
        }
        self.requests.push(Request { id: request, stream, call, expect, asked: now });
    }

    /// Forgets the calls under way, which will not be answered.
    pub(super) fn forget_requests(&mut self) {
        self.requests.clear();
        self.streams.iter_mut().for_each(|stream| stream.record.is_changing = false);
    }

    pub(super) fn observe_answers(&mut self) {
        // A stream may have become live since the last call of this function.
        let (now, slack) = (self.world.instant(), self.slack);
        for stream in &mut self.streams {
            if matches!(stream.expect(now, slack), Expect::Live(_)) {
                stream.record.was_live = Some(true);
            }
        }
        for request in std::mem::take(&mut self.requests) {
            let Some(text) = self.world.answer(request.id) else {
                if self.ago(request.asked) > self.slack * 3 {
                    self.fail(&format!("{:?} was not answered", request.call));
                }
                self.requests.push(request);
                continue;
            };
            let Some(answer) = Answer::read(&text) else { self.fail(&format!("not an answer: {text}")) };
            self.judge(&request, &answer);
        }
    }

    fn judge(&mut self, request: &Request, answer: &Answer) {
        let stream = request.stream;
        if request.call.changes() {
            self.streams[stream].record.is_changing = false;
            self.streams[stream].record.changed_at = Some(self.world.instant());
        }
        self.note(format!("  {:?}: {} {}", request.call, answer.status, short(&answer.body)));
        match &request.call {
            Call::Read => self.judge_read(request, answer),
            Call::List => self.judge_list(request.asked, answer),
            Call::ReadCopy => self.judge_copy(request, answer),
            Call::ReadPull => self.judge_pull(request, answer),
            // A refused change leaves the record as it was.
            Call::Pull if answer.succeeds() => self.streams[stream].pull = Some(self.world.instant()),
            Call::Pull => {}
            Call::EndPull if answer.status == 500 => self.streams[stream].pull = Some(self.world.instant()),
            Call::EndPull => {}
            _ if answer.status == 500 => {}
            Call::Create(name) => self.judge_create(request, answer, name.as_ref()),
            Call::Update(name) => {
                self.expect_success(request, answer);
                if let Known::There { name: of, .. } = &mut self.streams[stream].record.known {
                    *of = answer.succeeds().then(|| name.clone()).or_else(|| of.take());
                }
            }
            Call::Delete => {
                self.expect_success(request, answer);
                if answer.succeeds() {
                    self.streams[stream].record.known = Known::Absent;
                    self.streams[stream].record.was_live = Some(false);
                    self.ended_by(request);
                }
            }
            Call::Stop => {
                let is_calm = self.streams[stream].is_undisturbed_since(request.asked);
                if matches!(request.expect, Expect::Live(_)) && !answer.succeeds() && is_calm {
                    self.fail("a stream that is live was not stopped");
                }
                if request.expect == Expect::Idle && answer.succeeds() && is_calm {
                    self.fail("a stream that is not live was stopped");
                }
                self.ended_by(request);
            }
            Call::AddEndpoint => {
                self.expect_success(request, answer);
                if let Known::There { endpoint, .. } = &mut self.streams[stream].record.known
                    && answer.succeeds()
                {
                    *endpoint = answer.body["dataId"].as_str().map(str::to_owned);
                }
            }
            Call::RemoveEndpoint => {
                self.expect_success(request, answer);
                if let Known::There { endpoint, .. } = &mut self.streams[stream].record.known
                    && answer.succeeds()
                {
                    *endpoint = None;
                }
            }
        }
    }

    fn ended_by(&mut self, request: &Request) {
        let now = self.world.instant();
        self.streams[request.stream].stopped(request.asked, now);
    }

    /// True if nothing was published from the request to its answer.
    fn was_idle(&self, request: &Request) -> bool {
        request.expect == Expect::Idle && self.streams[request.stream].is_undisturbed_since(request.asked)
    }

    /// Checks that a change of a record succeeds if the record exists. A record that a publisher created exists while
    /// its stream is live.
    fn expect_success(&self, request: &Request, answer: &Answer) {
        let known = &self.streams[request.stream].record.known;
        let is_there = matches!(known, Known::There { .. });
        let is_absent = *known == Known::Absent && self.was_idle(request);
        if (is_there && !answer.succeeds()) || (is_absent && answer.succeeds()) {
            self.fail(&format!("{:?} with {known:?}: {} {}", request.call, answer.status, answer.body));
        }
    }

    fn judge_create(&mut self, request: &Request, answer: &Answer, name: Option<&String>) {
        let was_idle = self.was_idle(request);
        let record = &mut self.streams[request.stream].record;
        let must = match &record.known {
            Known::There { .. } => Some(400),
            Known::Absent if was_idle => Some(200),
            Known::Absent | Known::Unknown => None,
        };
        if must.is_some_and(|must| must != answer.status) {
            self.fail(&format!("a create was answered {} {}", answer.status, answer.body));
        }
        if answer.status == 200 {
            record.known = Known::There { name: name.cloned(), endpoint: None };
            record.was_live = was_idle.then_some(false);
        }
    }

    fn judge_read(&mut self, request: &Request, answer: &Answer) {
        let (now, slack) = (self.world.instant(), self.slack);
        let stream = &mut self.streams[request.stream];
        if stream.record.known == Known::Unknown
            && request.expect == Expect::Idle
            && !stream.record.is_changing
        {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            stream.record.known = if answer.status == 200 {
                let endpoint = text(&answer.body["endPointList"][0]["endpointServiceId"]);
                Known::There { name: text(&answer.body["name"]), endpoint }
            } else {
                Known::Absent
            };
            return;
        }
        // The record is compared only if nothing has happened since the request.
        if stream.expect(now, slack) != request.expect
            || !stream.is_undisturbed_since(request.asked)
            || stream.record.has_changed_since(request.asked)
        {
            return;
        }
        let is_up = matches!(request.expect, Expect::Live(_) | Expect::Grace);
        let status = answer.body["status"].as_str().unwrap_or("");
        let known = stream.record.known.clone();
        let must: &[&str] = match (&known, request.expect, stream.record.was_live) {
            (_, Expect::Unsure, _) | (Known::Unknown, ..) => return,
            (Known::Absent | Known::There { .. }, Expect::Live(_) | Expect::Grace, _) => &["broadcasting"],
            (Known::Absent, Expect::Idle, _) => &[""],
            (Known::There { .. }, Expect::Idle, Some(true)) => &["finished"],
            (Known::There { .. }, Expect::Idle, Some(false)) => &["created"],
            (Known::There { .. }, Expect::Idle, None) => &["created", "finished"],
        };
        let found = if answer.status == 200 { status } else { "" };
        if !must.contains(&found) {
            self.fail(&format!("the record is {found:?} and should be {must:?}: {}", answer.body));
        }
        if let Known::There { name, endpoint } = &known {
            let is_same = answer.body["name"].as_str() == name.as_deref()
                && answer.body["endPointList"][0]["endpointServiceId"].as_str() == endpoint.as_deref();
            if !is_same || answer.body["zombi"] == true {
                self.fail(&format!("the record is not {known:?}: {}", answer.body));
            }
        }
        if is_up {
            self.judge_viewers(request, answer);
        } else if !found.is_empty() && viewers_of(&answer.body) != Some(0) {
            self.fail(&format!("nobody watches: {}", answer.body));
        }
    }

    /// Checks the viewer count of a record, which must include every viewer that has watched for some seconds.
    fn judge_viewers(&self, request: &Request, answer: &Answer) {
        let settled = ms(2500) + self.slack * 2;
        // A pull by the other application counts as a viewer.
        let is_pulled = i64::from(self.streams[request.stream].was_pulled);
        let (mut least, mut most) = (0, is_pulled + self.damaged_viewers);
        for viewer in self.viewers.iter().filter(|viewer| viewer.stream == request.stream && !viewer.is_copy)
        {
            let story = self.world.story(viewer.id);
            let ended = [story.left, story.closed].into_iter().flatten().min();
            let is_served = story.ready.is_some_and(|ready| self.ago(ready) > settled);
            // A slow viewer may still be receiving units of a stream that has ended, and is then no viewer of the
            // next stream.
            let is_of_next = viewer.is_slow
                && story.ready.is_some_and(|at| self.streams[viewer.stream].may_have_ended_since(at));
            let was_here = is_served && ended.is_none() && !viewer.is_done && !is_of_next;
            // The server notices late that a viewer over datagrams, or one that was cut off silently, has gone.
            let is_dark = story.left.is_some() && (story.closed.is_none() || viewer.over.is_datagrams());
            // A viewer that left may have been sent data until its connection was closed.
            let gone = story.closed.or(story.left);
            let may_be_here = gone.is_none_or(|at| self.ago(at) < settled) || is_dark;
            least += i64::from(was_here);
            most += i64::from(may_be_here);
        }
        let found = viewers_of(&answer.body).unwrap_or(-1);
        if !(least..=most).contains(&found) {
            self.fail(&format!("{found} viewers are counted, and {least} to {most} are there"));
        }
    }

    fn judge_list(&self, asked: Instant, answer: &Answer) {
        let (now, slack) = (self.world.instant(), self.slack);
        let Some(list) = answer.body.as_array() else { self.fail("a list is none") };
        for stream in &self.streams {
            if stream.record.has_changed_since(asked) || stream.calm(now) < slack * 3 {
                continue;
            }
            let count = list.iter().filter(|record| record["streamId"] == *stream.id).count();
            let expect = stream.expect(now, slack);
            if stream.expect(asked, slack) != expect {
                continue;
            }
            let must = match (&stream.record.known, expect) {
                (Known::Unknown, _) | (_, Expect::Unsure) => continue,
                (Known::Absent, Expect::Idle) => 0,
                (Known::Absent | Known::There { .. }, _) => 1,
            };
            if count != must {
                self.fail(&format!("{} is in the list {count} times and should be {must} times", stream.id));
            }
        }
    }

    /// Checks that the copy in the other application is live exactly while a live stream is pushed there.
    fn judge_copy(&self, request: &Request, answer: &Answer) {
        let (now, slack) = (self.world.instant(), self.slack);
        let stream = &self.streams[request.stream];
        let is_faulty = self.chaos.connects_fail > 0.0;
        // This time exceeds the pauses between attempts that failed because the copy existed for a moment.
        let enough = slack * 4 + ms(8000);
        let is_settled = stream.record.changed_at.is_none_or(|changed| self.ago(changed) > enough);
        let is_calm = stream.calm(now) > enough && is_settled && !stream.record.is_changing;
        if !is_calm || !stream.is_undisturbed_since(request.asked) {
            return;
        }
        let endpoint = match &stream.record.known {
            Known::There { endpoint, .. } => endpoint.is_some(),
            Known::Absent => false,
            Known::Unknown => return,
        };
        let expect = stream.expect(now, slack);
        if stream.expect(request.asked, slack) != expect {
            return;
        }
        let must = match expect {
            Expect::Live(_) if endpoint && is_faulty => return,
            Expect::Live(_) => endpoint,
            Expect::Idle => false,
            Expect::Unsure | Expect::Grace => return,
        };
        if must != (answer.status == 200 && answer.body["status"] == "broadcasting") {
            self.fail(&format!("the copy should be there: {must}; it is {} {}", answer.status, answer.body));
        }
    }
}

impl Run {
    /// Checks that a pulled stream is live while its origin is, allowing for the pause between two attempts.
    fn judge_pull(&self, request: &Request, answer: &Answer) {
        let (now, slack) = (self.world.instant(), self.slack);
        let stream = &self.streams[request.stream];
        // The longest pause between two attempts is 25 s.
        let expect = stream.expect(now, slack);
        let since = match (stream.pull, expect) {
            (Some(since), Expect::Live(_)) if !stream.is_pull_lost => self.ago(since).min(stream.calm(now)),
            (Some(_) | None, _) => return,
        };
        let is_live = answer.status == 200 && answer.body["status"] == "broadcasting";
        if !is_live && since > secs(35) + slack * 4 && self.chaos.connects_fail == 0.0 {
            self.fail(&format!("the pull does not come: {} {}", answer.status, answer.body));
        }
    }
}

fn short(body: &Value) -> String {
    let text = body.to_string();
    text.chars().take(160).collect()
}

/// Returns the number of viewers in a record.
fn viewers_of(record: &Value) -> Option<i64> {
    Some(record["rtmpViewerCount"].as_i64()? + record["webRTCViewerCount"].as_i64()?)
}
