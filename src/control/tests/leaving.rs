//! Draining before a shutdown: refusals, waiting, and sources that move to other nodes.

use super::claims::{holder, node};
use super::*;
use crate::config::WithoutDirectory;
use crate::control::broadcast::Broadcast;
use crate::directory::{ClaimAnswer, News, Node, Request as Asked};
use crate::mail::{PullOrder, PullState};

const BROADCASTS: &str = "/live/rest/v2/broadcasts";

fn key(id: &str) -> StreamKey {
    StreamKey::new("live", id)
}

fn draining(name: &str) -> Node {
    let mut node = node(name, 1, true);
    node.profile.is_draining = true;
    node
}

impl Rig {
    fn leave(&mut self, is_leaving: bool) -> bool {
        let session = self.session(0);
        self.control.handle_order(self.now, session, Order::Drain { is_leaving });
        self.drain();
        self.answer(session).unwrap().1 == PLAIN
    }

    fn told_workers(&self) -> Vec<bool> {
        let leaving = |(worker, mail): &(WorkerId, ToWorker)| match mail {
            ToWorker::Leaving(is_leaving) if worker.0 == 0 => Some(*is_leaving),
            _ => None,
        };
        self.posted.iter().filter_map(leaving).collect()
    }

    fn pull_orders(&mut self) -> Vec<(WorkerId, PullOrder)> {
        let order = |(worker, mail)| match mail {
            ToWorker::StartPull(order) => Some((worker, *order)),
            _ => None,
        };
        self.take().into_iter().filter_map(order).collect()
    }

    fn unit(&mut self, (worker, order): &(WorkerId, PullOrder), ingest: Ingest) -> Result<Grant, Refusal> {
        let mut request = self.request(&order.key.id, worker.0);
        (request.ingest, request.pull) = (ingest, Some((order.pull, order.attempt)));
        self.ask(request)
    }

    fn names_resolve(&mut self) {
        for asked in std::mem::take(&mut self.resolves) {
            let address = std::net::SocketAddr::new("198.51.100.20".parse().unwrap(), asked.port);
            self.done(asked.id, Outcome::Resolved(Ok(vec![address])));
        }
    }

    /// Makes a copy, with viewers here, of the source `s` of the draining node `c`.
    fn copied_source(&mut self) -> (WorkerId, PullOrder, Grant) {
        let body = r#"{"streamId":"s","type":"streamSource","streamUrl":"rtmp://198.51.100.1/live/s"}"#;
        self.post(&format!("{BROADCASTS}/create"), body);
        self.control.records.source_wanted(self.now, &key("s"), true);
        self.tell_news(News::Claim { key: key("s"), holder: Some(holder("c", 1, 7)) });
        self.mail(ToControl::Wanted { key: key("s"), via: Vec::new() });
        self.names_resolve();
        let copy = self.pull_orders().remove(0);
        let grant = self.unit(&copy, Ingest::COPY).unwrap();
        (copy.0, copy.1, grant)
    }

    /// Starts a source that delivers media. The token of its claim is ten times its ticket.
    fn running_source(&mut self, id: &str) -> (WorkerId, PullOrder, Grant) {
        self.post(
            &format!("{BROADCASTS}/create?autoStart=true"),
            &format!(
                r#"{{"streamId":"{id}","type":"streamSource","streamUrl":"rtmp://198.51.100.1/live/{id}"}}"#
            ),
        );
        self.take();
        let ticket = self.last_claim().0;
        self.claim_answer(ticket, true);
        let told = holder("b", 1, ticket * 10);
        self.tell_news(News::Claim { key: key(id), holder: Some(told) });
        let order = self.pull_orders().remove(0);
        let grant = self.unit(&order, Ingest::PULL).unwrap();
        (order.0, order.1, grant)
    }

    fn handed_over(&mut self) -> Vec<(StreamKey, u64, (String, u64))> {
        let of = |asked: Asked| match asked {
            Asked::HandOver { key, token, to: (node, process) } => {
                Some((key, token, (node.as_str().to_owned(), process)))
            }
            _ => None,
        };
        std::mem::take(&mut self.asked).into_iter().filter_map(of).collect()
    }

    fn ends(&self) -> usize {
        self.posted.iter().filter(|(_, mail)| matches!(mail, ToWorker::StreamDown { .. })).count()
    }
}

#[test]
fn c_20_a_drain_lets_nobody_in_waits_for_who_is_here_and_then_ends() {
    let mut rig = Rig::new();
    let (publisher, stream) = rig.publish("s", 0);
    assert_eq!(rig.get("/rest/v2/readiness"), (200, r#"{"status":"ready"}"#.to_owned()));
    rig.take();
    assert!(rig.leave(true) && !rig.leave(true));
    assert_eq!(rig.told_workers(), [true]);
    assert_eq!(rig.get("/rest/v2/readiness"), (503, r#"{"status":"draining"}"#.to_owned()));
    let refused = rig.request("t", 0);
    assert_eq!(rig.ask(refused).unwrap_err(), Refusal::Draining);
    rig.run_for(secs(30));
    rig.report(0, stream, 1, 0, 2);
    assert_eq!(rig.lefts, 0, "a publisher is here");
    // After the publisher has left, the viewers of its stream remain.
    let watched = rig.control.registry.find(&key("s")).unwrap();
    assert_eq!(watched, stream);
    rig.gone(publisher, stream, Departure::Lost, 5);
    rig.run_for(secs(2));
    assert_eq!(rig.lefts, 0, "its viewers wait for it to return");
    let returns = rig.request("s", 0);
    assert_eq!(rig.ask(returns).unwrap_err(), Refusal::Draining);
    rig.run_for(secs(60));
    assert_eq!((rig.lefts, rig.exited), (1, false), "once");
    assert!(!rig.leave(false), "too late");
    rig.control.drain(rig.now);
    rig.drain();
    for worker in 0..WORKERS {
        rig.mail(ToControl::Drained(WorkerId(worker)));
    }
    rig.run_for(secs(5));
    assert!(rig.exited);
}

#[test]
fn c_20_a_drain_leaves_viewers_by_separate_requests_the_time_to_fetch_the_rest() {
    for (fetching, linger_s) in [(2, 30), (0, 0)] {
        let mut rig = Rig::new();
        let (publisher, stream) = rig.publish("s", 0);
        let sources = vec![rig.figures_of(stream, 1, 0)];
        let leased = vec![(stream, "hls", fetching)];
        rig.mail(ToControl::Report(WorkerId(0), Report { sources, leased, ..Report::default() }));
        assert!(rig.leave(true));
        rig.run_for(secs(3));
        rig.gone(publisher, stream, Departure::Clean, 5);
        assert_eq!(rig.control.registry.find(&key("s")), None);
        rig.run_for(secs(linger_s));
        assert_eq!(rig.lefts, 0, "the last segments may still be fetched");
        rig.run_for(secs(3));
        assert_eq!(rig.lefts, 1);
    }
}

#[test]
fn c_20_a_drain_that_is_called_off_was_none() {
    let mut rig = Rig::new();
    assert!(!rig.leave(false));
    rig.take();
    assert!(rig.leave(true));
    rig.run_for(secs(1));
    assert!(rig.leave(false) && !rig.leave(false));
    assert_eq!(rig.told_workers(), [true, false]);
    rig.publish("s", 0);
    rig.run_for(secs(60));
    assert_eq!((rig.lefts, rig.get("/rest/v2/readiness").0), (0, 200));
}

#[test]
fn c_20_a_drain_ends_with_its_time_if_sessions_do_not() {
    for (limit, ends) in [("20", 1), ("0", 0), ("3600", 0)] {
        let mut rig = Rig::with(&[("server.drain_limit", limit)], &[]);
        let (_, stream) = rig.publish("s", 0);
        assert!(rig.leave(true));
        for _ in 0..30 {
            rig.run_for(secs(1));
            rig.report(0, stream, 1, 0, 0);
        }
        assert_eq!(rig.lefts, ends, "{limit} s");
    }
}

/// Sources that no other node can take.
#[test]
fn c_20_a_server_alone_does_not_wait_for_its_sources_and_has_them_again_when_it_starts() {
    let mut rig = Rig::new();
    let body = r#"{"streamId":"s","type":"streamSource","streamUrl":"rtmp://198.51.100.1/live/s"}"#;
    rig.post(&format!("{BROADCASTS}/create?autoStart=true"), body);
    let order = rig.pull_orders().remove(0);
    let stream = rig.unit(&order, Ingest::PULL).unwrap().stream;
    assert!(rig.leave(true));
    rig.report(0, stream, 1, 0, 1);
    rig.run_for(secs(10));
    assert_eq!((rig.lefts, rig.ends()), (0, 0), "a viewer is here");
    rig.report(0, stream, 1, 0, 0);
    rig.run_for(secs(2));
    assert_eq!((rig.lefts, rig.ends()), (1, 0));
    let (_, started) = rig.post(&format!("{BROADCASTS}/s/stop"), "");
    assert!(started.contains("true"), "{started}");
    let (_, refused) = rig.post(&format!("{BROADCASTS}/s/start"), "");
    assert!(refused.contains("The server is draining"), "{refused}");
}

#[test]
fn only_administrators_drain_a_server_and_everybody_may_ask_whether_it_is_ready() {
    let mut rig = Rig::new();
    for (method, target) in [(Method::Post, "/rest/v2/drain"), (Method::Delete, "/rest/v2/drain")] {
        let session = rig.send(method, target, "");
        let (status, answer) = rig.answer(session).unwrap();
        assert_eq!(status, 403, "{answer}");
    }
    assert_eq!(rig.get("/rest/v2/drain").0, 403);
    assert_eq!(rig.get("/rest/v2/readiness").0, 200);
    assert!(rig.control.cx.leaving.is_none());
}

#[test]
fn n_22_a_draining_node_gives_its_sources_to_others_and_keeps_their_viewers() {
    let mut rig = Rig::with_directory(&[]);
    let mut others = vec![node("a", 1, true), node("b", 1, true), node("c", 4, true), draining("d")];
    others.push(node("e", 1, false));
    others[0].profile.cpu_percent = 80;
    rig.tell_news(News::Nodes(others));
    let (_, order, grant) = rig.running_source("s");
    let token = rig.last_claim().0 * 10;
    rig.asked.clear();
    assert!(rig.leave(true));
    assert!(rig.asked.contains(&Asked::Draining(true)));
    let given = (key("s"), token, ("c".to_owned(), 4));
    assert_eq!(
        rig.handed_over().as_slice(),
        std::slice::from_ref(&given),
        "to the least busy that takes something"
    );
    // If a handover gets lost, it is repeated. Until it takes effect, the source runs here.
    rig.run_for(secs(3));
    assert_eq!(rig.handed_over().first(), Some(&given));
    assert_eq!((rig.lefts, rig.ends()), (0, 0));
    rig.take();
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("c", 4, token + 1)) });
    let is_stopped =
        |(_, mail): &(WorkerId, ToWorker)| matches!(mail, ToWorker::StopPull(id) if *id == order.pull);
    assert!(rig.posted.iter().any(is_stopped));
    assert_eq!(rig.ends(), 0, "viewers stay");
    // The other node does not have the stream yet.
    for _ in 0..5 {
        rig.names_resolve();
        for (_, copy) in rig.pull_orders() {
            let state = PullState::Over("no such stream".to_owned());
            rig.mail(ToControl::Pull { pull: copy.pull, attempt: copy.attempt, state });
        }
        assert_eq!(rig.ends(), 0);
        rig.report(0, grant.stream, 1, 0, 1);
        rig.run_for(secs(1));
    }
    rig.names_resolve();
    let copy = rig.pull_orders().remove(0);
    assert_eq!(rig.unit(&copy, Ingest::COPY).unwrap().stream, grant.stream);
    rig.run_for(secs(5));
    assert_eq!(rig.lefts, 0, "for as long as a viewer is here");
    rig.report(0, grant.stream, 1, 0, 0);
    rig.run_for(secs(2));
    assert_eq!((rig.lefts, rig.control.records.get(&key("s")).unwrap().source_wanted), (1, true));
}

#[test]
fn n_22_a_node_starts_what_it_is_given_and_goes_on_with_its_copy() {
    let mut rig = Rig::with_directory(&[("acceptOnlyStreamsInDataStore", "false")]);
    let (_, order, grant) = rig.copied_source();
    rig.take();
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("b", 1, 8)) });
    let is_stopped =
        |(_, mail): &(WorkerId, ToWorker)| matches!(mail, ToWorker::StopPull(id) if *id == order.pull);
    assert!(rig.posted.iter().any(is_stopped));
    let (ticket, _) = rig.last_claim();
    rig.claim_answer(ticket, true);
    let source = rig.pull_orders().remove(0);
    assert_ne!(source.1.pull, order.pull);
    assert_eq!(rig.unit(&source, Ingest::PULL).unwrap().stream, grant.stream, "its viewers stay");
    assert_eq!(rig.record("s")["status"], "broadcasting");
    assert_eq!((rig.ends(), rig.open_claims()), (0, 1));
    assert!(!rig.asked.iter().any(|asked| matches!(asked, Asked::Release { .. })));
}

/// A source is given back by nodes that have no resources for it.
#[test]
fn n_22_a_source_that_no_node_takes_runs_on_where_it_was_with_its_viewers() {
    let mut rig = Rig::with_directory(&[]);
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, true), node("e", 5, true)]));
    let (_, first, grant) = rig.running_source("s");
    let token = rig.last_claim().0 * 10;
    rig.asked.clear();
    assert!(rig.leave(true));
    assert_eq!(rig.handed_over(), [(key("s"), token, ("c".to_owned(), 1))]);
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("c", 1, token + 1)) });
    rig.take();
    // The node has no resources for the source, so it gives the claim back, and the next node is asked.
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("b", 1, token + 2)) });
    assert_eq!(rig.handed_over(), [(key("s"), token + 2, ("e".to_owned(), 5))]);
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("e", 5, token + 3)) });
    assert_eq!((rig.ends(), rig.asked_claims().len()), (0, 0));
    // The next node has no resources for the source either, and there is no further node.
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("b", 1, token + 4)) });
    let ticket = rig.last_claim().0;
    rig.tell_news(News::Answer { ticket, key: key("s"), answer: ClaimAnswer::Granted(token + 5) });
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("b", 1, token + 5)) });
    let again = rig.pull_orders().pop().unwrap();
    assert_ne!(again.1.pull, first.pull);
    assert_eq!(rig.unit(&again, Ingest::PULL).unwrap().stream, grant.stream, "its viewers stay");
    assert_eq!((rig.ends(), rig.record("s")["status"].as_str()), (0, Some("broadcasting")));
    assert!(!rig.asked.iter().any(|asked| matches!(asked, Asked::Release { .. })));
    rig.asked.clear();
    // The two nodes that gave the source back are not asked again soon.
    for _ in 0..50 {
        rig.report(0, grant.stream, 1, 0, 1);
        rig.run_for(secs(1));
    }
    assert_eq!(rig.handed_over(), []);
    for _ in 0..12 {
        rig.report(0, grant.stream, 1, 0, 1);
        rig.run_for(secs(1));
    }
    assert_eq!(rig.handed_over().first(), Some(&(key("s"), token + 5, ("c".to_owned(), 1))));
    assert_eq!((rig.lefts, rig.ends()), (0, 0));
}

#[test]
fn n_22_a_node_without_room_gives_a_source_back_and_goes_on_with_its_copy() {
    let mut rig =
        Rig::with_directory(&[("acceptOnlyStreamsInDataStore", "false"), ("ingestingStreamLimit", "1")]);
    rig.tell_news(News::Nodes(vec![node("b", 1, true), draining("c")]));
    rig.publish_claimed("own");
    rig.copied_source();
    rig.asked.clear();
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("b", 1, 8)) });
    assert_eq!(rig.handed_over(), [(key("s"), 8, ("c".to_owned(), 1))]);
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("c", 1, 9)) });
    rig.run_for(secs(2));
    let is_stopped = |(_, mail): &(WorkerId, ToWorker)| matches!(mail, ToWorker::StopPull(_));
    assert!(!rig.posted.iter().any(is_stopped) && rig.ends() == 0, "viewers of the copy stay");
    assert_eq!((rig.pull_orders().len(), rig.asked_claims().len()), (0, 0));
    // If the node that gave the source is gone, the source cannot be given back and waits here.
    rig.tell_news(News::Nodes(vec![node("b", 1, true)]));
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("b", 1, 10)) });
    assert!(rig.asked.contains(&Asked::Release { key: key("s"), token: 10 }));
    assert_eq!(rig.handed_over(), []);
}

#[test]
fn n_22_an_id_that_no_source_here_uses_is_passed_on_or_given_back() {
    let mut rig = Rig::with_directory(&[]);
    // No source of this node uses the id that it gets, e.g. because the source was stopped, so the id is released.
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("b", 1, 8)) });
    assert_eq!(rig.asked.pop(), Some(Asked::Release { key: key("s"), token: 8 }));
    // A draining node passes on a claim that another node gives to it.
    let body = r#"{"streamId":"t","type":"streamSource","streamUrl":"rtmp://198.51.100.1/live/t"}"#;
    rig.post(&format!("{BROADCASTS}/create"), body);
    rig.control.records.source_wanted(rig.now, &key("t"), true);
    assert!(rig.leave(true));
    rig.asked.clear();
    rig.tell_news(News::Claim { key: key("t"), holder: Some(holder("b", 1, 9)) });
    assert_eq!(rig.handed_over(), [(key("t"), 9, ("c".to_owned(), 1))]);
    rig.tell_news(News::Nodes(vec![node("b", 1, true), draining("c")]));
    rig.tell_news(News::Claim { key: key("t"), holder: Some(holder("b", 1, 10)) });
    assert_eq!(rig.asked, [Asked::Release { key: key("t"), token: 10 }]);
    // The source waits until the drain is cancelled.
    rig.run_for(secs(1));
    assert_eq!((rig.lefts, rig.asked_claims().len()), (0, 0));
    assert!(rig.leave(false));
    rig.asked.clear();
    rig.run_for(secs(2));
    assert_eq!(rig.last_claim().1, 1);
}

#[test]
fn n_22_of_the_nodes_that_do_not_drain_the_first_clears_up() {
    let mut rig = Rig::with_directory(&[]);
    let dead = News::Claim { key: key("s"), holder: Some(holder("x", 1, 5)) };
    rig.tell_news(dead);
    rig.tell_news(News::Nodes(vec![node("a", 1, true), node("b", 1, true)]));
    assert!(!rig.asked.iter().any(|asked| matches!(asked, Asked::Bury { .. })), "a does");
    rig.tell_news(News::Nodes(vec![draining("a"), node("b", 1, true)]));
    assert!(rig.asked.iter().any(|asked| matches!(asked, Asked::Bury { token: 5, .. })));
    // If all nodes are draining, the first of them by name ends the next claim of the dead node `x`.
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("x", 1, 6)) });
    rig.tell_news(News::Nodes(vec![draining("b"), draining("c")]));
    assert!(rig.asked.iter().any(|asked| matches!(asked, Asked::Bury { token: 6, .. })));
}

#[test]
fn the_record_of_a_gone_node_s_stream_is_put_right_by_a_node_with_a_copy() {
    let mut rig = Rig::with_directory(&[]);
    rig.copied_source();
    let record = rig.control.records.get(&key("s")).unwrap().clone();
    let record = Broadcast { status: "broadcasting".into(), source_wanted: false, ..record };
    rig.tell_news(News::Foreign(vec![store::Op::Put(key("s").into(), record.encode())]));
    rig.tell_news(News::Nodes(vec![node("b", 1, true), node("c", 1, false)]));
    rig.tell_news(News::Claim { key: key("s"), holder: None });
    let status = &rig.control.records.get(&key("s")).unwrap().status;
    assert_eq!((status.as_str(), rig.ends()), ("terminated_unexpectedly", 0), "its viewers stay");
}

#[test]
fn a_source_that_loses_its_id_goes_on_as_a_copy_and_begins_again_when_the_id_is_free() {
    // The node loses the id either by a handover that takes effect only after the drain was cancelled, or without any
    // drain.
    for drains in [true, false] {
        let mut rig = Rig::with_directory(&[]);
        let (_, order, grant) = rig.running_source("s");
        let token = rig.last_claim().0 * 10;
        if drains {
            assert!(rig.leave(true) && rig.leave(false));
        }
        rig.take();
        rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("c", 1, token + 1)) });
        let is_stopped =
            |(_, mail): &(WorkerId, ToWorker)| matches!(mail, ToWorker::StopPull(id) if *id == order.pull);
        assert!(rig.posted.iter().any(is_stopped));
        assert_eq!((rig.ends(), rig.open_claims()), (0, 0), "viewers stay");
        rig.names_resolve();
        let copy = rig.pull_orders().remove(0);
        assert_eq!(rig.unit(&copy, Ingest::COPY).unwrap().stream, grant.stream);
        assert!(rig.control.records.get(&key("s")).unwrap().source_wanted);
        rig.asked.clear();
        rig.tell_news(News::Claim { key: key("s"), holder: None });
        let state = PullState::Lost { reason: "left".to_owned(), ahead: Duration::ZERO };
        rig.mail(ToControl::Pull { pull: copy.1.pull, attempt: copy.1.attempt, state });
        rig.run_for(secs(20));
        assert_eq!(rig.asked_claims().len(), 1, "drains: {drains}");
    }
}

/// The claim of a source is granted after the drain has begun.
#[test]
fn n_22_a_source_that_is_being_claimed_is_given_away_once_it_has_its_claim() {
    let mut rig = Rig::in_cluster(&[], WithoutDirectory::Accept);
    let body = r#"{"streamId":"s","type":"streamSource","streamUrl":"rtmp://198.51.100.1/live/s"}"#;
    rig.post(&format!("{BROADCASTS}/create?autoStart=true"), body);
    let ticket = rig.last_claim().0;
    assert!(rig.leave(true));
    assert_eq!(rig.handed_over(), []);
    rig.tell_news(News::Answer { ticket, key: key("s"), answer: ClaimAnswer::Granted(70) });
    rig.run_for(secs(2));
    assert_eq!(rig.handed_over(), [(key("s"), 70, ("c".to_owned(), 1))]);
}

/// Requests of polling viewers may reach control through a worker that does not know of the drain yet. Other nodes may
/// still copy from this one.
#[test]
fn c_20_no_copy_and_no_view_begins_for_a_newcomer() {
    let mut rig = Rig::with_directory(&[]);
    rig.create("room");
    rig.tell_news(News::Claim { key: key("s"), holder: Some(holder("c", 1, 7)) });
    let wanted = |rig: &mut Rig, id: &str, via: &[&str]| {
        let via = via.iter().map(|node| (*node).to_owned()).collect();
        rig.mail(ToControl::Wanted { key: key(id), via });
        rig.names_resolve();
        rig.pull_orders().len()
    };
    let (ann, _) = rig.publish_claimed("ann");
    rig.post(&format!("{BROADCASTS}/room/subtrack?id=ann"), "");
    rig.take();
    assert!(rig.leave(true));
    assert_eq!((wanted(&mut rig, "s", &[]), wanted(&mut rig, "room", &[])), (0, 0));
    assert_eq!(wanted(&mut rig, "s", &["x"]), 1);
    assert!(rig.leave(false));
    assert_eq!(wanted(&mut rig, "room", &[]), 1, "{ann:?} is in it");
}
