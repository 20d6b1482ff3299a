//! Calls about streams of other nodes: forwarded to the stream's node, answered on behalf of other nodes, and never
//! forwarded twice.

use relay::{Answer, Call as NodeCall, Viewers};

use super::claims::{holder, node};
use super::*;
use crate::config::WithoutDirectory;
use crate::directory::News;
use crate::jobs::{NodeOutcome, NodeWork};
use crate::mail::{PlayRequest, PolledRequest};

const KEY: &str = "/live/rest/v2/broadcasts/s/publish-key";

fn key(id: &str) -> StreamKey {
    StreamKey::new("live", id)
}

/// Makes the node `b`, which knows that `c` has the stream `s`.
fn rig() -> Rig {
    let mut rig = Rig::in_cluster(&[("publishKeyRequired", "true")], WithoutDirectory::Accept);
    rig.create("s");
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("c", 1, 7)) });
    rig
}

fn call(method: &str, path: &str, sees_credentials: bool) -> Box<NodeCall> {
    Box::new(NodeCall {
        method: method.into(),
        path: path.into(),
        query: Vec::new(),
        content_type: String::new(),
        body: Default::default(),
        user: "a@b".into(),
        address: "10.0.0.1".into(),
        sees_credentials,
    })
}

impl Rig {
    /// Returns the calls to other nodes in progress.
    fn calls(&mut self) -> Vec<(JobId, NodeWork)> {
        let of = |(id, work)| match work {
            Work::Node(work) => Some((id, work)),
            _ => None,
        };
        std::mem::take(&mut self.files).into_iter().filter_map(of).collect()
    }

    fn node_answers(&mut self, id: JobId, outcome: NodeOutcome) {
        self.done(id, Outcome::Node(outcome));
    }

    fn ask_as_node(&mut self, asked: Box<NodeCall>) -> Option<(u16, String)> {
        let session = self.session(0);
        self.mail(ToControl::NodeCall { session, call: asked });
        self.run_for(Duration::from_millis(5));
        self.answer(session)
    }
}

#[test]
fn a_call_goes_to_the_node_that_has_the_stream_with_its_user() {
    let mut rig = rig();
    let session = rig.send(Method::Post, KEY, "{}");
    assert_eq!(rig.answer(session), None);
    let calls = rig.calls();
    let [(id, NodeWork { host, port, call, until, .. })] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(*until, rig.now.mono + relay::ANSWER_WITHIN);
    assert_eq!((host.as_str(), *port, call.method.as_str()), ("c.example", 7000, "POST"));
    assert_eq!((call.path.as_str(), &call.body[..], call.user.as_str()), (KEY, &b"{}"[..], "address"));
    assert_eq!((call.address.as_str(), call.sees_credentials), ("127.0.0.1", true));
    let fields = [("Content-Type", "text/plain"), ("Set-Cookie", "x")];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let answer = Answer { status: 201, fields, body: "done".into() };
    rig.node_answers(*id, NodeOutcome::Answered(answer));
    assert_eq!(rig.answer(session), Some((201, "done".to_owned())));
}

#[test]
fn calls_that_read_records_alone_or_are_of_this_node_are_answered_here() {
    let mut rig = rig();
    rig.create("own");
    for path in ["/s", "/list/0/5", "/s/broadcast-statistics", "/own/stream-info"] {
        assert_eq!(rig.get(&format!("/live/rest/v2/broadcasts{path}")).0, 200, "{path}");
    }
    assert_eq!(rig.calls(), []);
}

#[test]
fn what_another_node_has_sent_is_answered_here_and_nowhere_else() {
    let mut rig = rig();
    // This node believes that `c` has the stream, but does not forward a call that it got from another node.
    let (status, body) = rig.ask_as_node(call("POST", KEY, true)).unwrap();
    assert!(status == 200 && body.contains(r#""success":true"#), "{body}");
    assert_eq!(rig.ask_as_node(call("POST", KEY, false)).unwrap().0, 403, "a credential");
    assert_eq!(rig.calls(), []);
    // From other nodes, only calls that belong to the node of a stream are accepted.
    for (method, path, status) in [
        ("GET", "/live/rest/v2/broadcasts/s", 404),
        ("POST", "/live/rest/v2/broadcasts/create", 404),
        ("GET", "/rest/v2/users", 404),
        ("POST", "/none/rest/v2/broadcasts/s/stop", 404),
        ("BREW", KEY, 405),
    ] {
        assert_eq!(rig.ask_as_node(call(method, path, true)).unwrap().0, status, "{method} {path}");
    }
}

#[test]
fn a_node_that_is_not_reached_is_told_and_its_calls_are_this_node_s_once_its_claim_is_over() {
    let mut rig = rig();
    let ask = |rig: &mut Rig| {
        let session = rig.send(Method::Delete, "/live/rest/v2/broadcasts/s", "");
        (session, rig.calls().remove(0).0)
    };
    for outcome in [NodeOutcome::NotSent("away".into()), NodeOutcome::Failed("silent".into())] {
        let (session, id) = ask(&mut rig);
        rig.node_answers(id, outcome);
        assert_eq!(rig.answer(session).unwrap().0, 503);
    }
    assert!(matches!(Outcome::Busy.node(), NodeOutcome::NotSent(_)), "no thread has seen it");
    assert!(matches!(Outcome::Failed.node(), NodeOutcome::Failed(_)), "it may have been sent");
    let (session, id) = ask(&mut rig);
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, false)]));
    rig.node_answers(id, NodeOutcome::NotSent("away".into()));
    rig.run_for(Duration::from_millis(5));
    let (status, body) = rig.answer(session).unwrap();
    assert!(status == 200 && body.contains(r#""success":true"#), "{body}");
    assert_eq!(rig.get("/live/rest/v2/broadcasts/s").0, 404);
}

#[test]
fn a_newcomer_at_a_limit_that_all_nodes_fill_takes_a_place_of_its_own_node() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.call(Method::Put, "/live/rest/v2/broadcasts/s", r#"{"hlsViewerLimit":4}"#);
    let (_, stream) = rig.publish("s", 0);
    let viewers = Viewers { connected: 0, counted: vec![("hls".to_owned(), 2)] };
    let sources = vec![rig.figures_of(stream, 1000, 0)];
    let report = Report { sources, elsewhere: vec![(stream, viewers)], ..Report::default() };
    rig.mail(ToControl::Report(WorkerId(0), report));
    let mut watch = |who: &str, peer: &str| {
        let polled =
            PolledRequest { who: who.to_owned(), former: None, file: "s.m3u8".to_owned(), found: true };
        let request = rig.play_request("s", &[]);
        let peer = format!("{peer}:4000").parse().unwrap();
        let request = PlayRequest { egress: "hls", peer, polled: Some(polled), ..request };
        rig.mail(ToControl::Play(Box::new(request)));
        rig.control.access.passes(&key("s"), "hls")
    };
    // Two viewers of one network here and two viewers at other nodes reach the limit. Only the first newcomer
    // replaces a viewer of that network.
    let here = [
        watch("1", "198.51.100.9"),
        watch("2", "198.51.100.9"),
        watch("3", "192.0.2.1"),
        watch("4", "203.0.113.1"),
        watch("5", "198.18.0.1"),
    ];
    assert_eq!(here, [1, 2, 2, 2, 2]);
}

#[test]
fn a_source_that_viewers_start_is_copied_from_the_node_where_it_runs() {
    let mut rig = Rig::in_cluster(&[], WithoutDirectory::Accept);
    let mut there = node("c", 1, true);
    there.profile.relay = "192.0.2.7:7000".into();
    rig.tell_news(News::Nodes(vec![node("b", 1, true), there]));
    let record = r#"{"streamId":"s","type":"streamSource","streamUrl":"rtmp://198.51.100.1/a/s","autoStartStopEnabled":true}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/create", record).0, 200);
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("c", 1, 7)) });
    rig.take();
    rig.mail(ToControl::Wanted { key: key("s"), via: Vec::new() });
    let asked = rig.take().into_iter().find_map(|(_, mail)| match mail {
        ToWorker::StartPull(order) => Some(order.address.to_string()),
        _ => None,
    });
    assert_eq!(asked.as_deref(), Some("192.0.2.7:7000"));
}
