//! Copies of other nodes' streams: when and from where they are fetched, and what happens to their viewers.

use super::claims::{holder, membership, node};
use super::*;
use crate::config::WithoutDirectory;
use crate::directory::News;
use crate::mail::{Proof, PullOrder, PullState, StreamEnd};

const NORTH: &str = "relay://10.0.0.1:5000/{app}/{id}";
const BOTH: &str = "relay://10.0.0.1:5000/{app}/{id}, rtmp://10.0.0.2/{app}/{id}";
const SECRET: (&str, &str) = ("relay.secret", "sixteen letters!");
const ZERO_MS: i64 = 1_600_000_000_000;

fn key() -> StreamKey {
    StreamKey::new("live", "s")
}

impl Rig {
    fn edge(origins: &str, settings: &[(&str, &str)]) -> Self {
        let settings = [&[("edge.origins", origins), SECRET], settings].concat();
        Self::start(config(&settings, &[("listenerHookURL", "http://198.51.100.9/hook")]), Default::default())
    }

    fn attempts_of_copies(&self) -> Vec<(WorkerId, PullOrder)> {
        let order = |(worker, mail): &(WorkerId, ToWorker)| match mail {
            ToWorker::StartPull(order) => Some((*worker, PullOrder::clone(order))),
            _ => None,
        };
        self.posted.iter().filter_map(order).collect()
    }

    /// Lets a viewer wait for the stream. Returns the order of the only attempt.
    fn want(&mut self) -> (WorkerId, PullOrder) {
        self.take();
        self.mail(ToControl::Wanted { key: key(), via: Vec::new() });
        let mut orders = self.attempts_of_copies();
        assert_eq!(orders.len(), 1);
        orders.remove(0)
    }

    /// Delivers the first unit of an attempt.
    fn copy_begins(&mut self, worker: WorkerId, order: &PullOrder) -> (SessionRef, Grant) {
        let mut request = self.request(&order.key.id, worker.0);
        (request.ingest, request.zero_ms) = (Ingest::COPY, Some(ZERO_MS));
        request.pull = Some((order.pull, order.attempt));
        let session = request.session;
        (session, self.ask(request).unwrap())
    }

    fn copy_ends(&mut self, order: &PullOrder, state: PullState) {
        self.take();
        self.mail(ToControl::Pull { pull: order.pull, attempt: order.attempt, state });
    }

    fn downs(&self) -> Vec<StreamEnd> {
        let end = |(worker, mail): &(WorkerId, ToWorker)| match mail {
            ToWorker::StreamDown { end, .. } if worker.0 == 0 => Some(*end),
            _ => None,
        };
        self.posted.iter().filter_map(end).collect()
    }

    fn not_coming(&self) -> usize {
        self.posted.iter().filter(|(_, mail)| matches!(mail, ToWorker::NotComing(of) if *of == key())).count()
    }
}

fn over() -> PullState {
    PullState::Over("no such stream".to_owned())
}

fn lost() -> PullState {
    PullState::Lost { reason: "reset".to_owned(), ahead: Duration::ZERO }
}

#[test]
fn a_stream_of_another_node_is_here_while_it_is_watched_and_nobody_is_told_of_it() {
    let mut rig = Rig::edge(NORTH, &[("outbound.preset", "public")]);
    let (worker, order) = rig.want();
    // The policy for addresses named by tenants does not apply to nodes.
    assert_eq!(order.address, "10.0.0.1:5000".parse().unwrap());
    assert_eq!((order.target.proof(), order.key.clone()), (Some(Proof::Node), key()));
    rig.mail(ToControl::Wanted { key: key(), via: Vec::new() });
    assert_eq!(rig.attempts_of_copies().len(), 1, "one copy for all viewers");
    let (_, grant) = rig.copy_begins(worker, &order);
    assert_eq!((grant.zero_ms, grant.position.started), (ZERO_MS, false));
    rig.mail(ToControl::SourceStarted(grant.stream));
    for _ in 0..20 {
        rig.run_for(secs(1));
        rig.report(worker.0, grant.stream, 1, 0, 1);
    }
    assert_eq!(rig.get("/live/rest/v2/broadcasts/s").0, 404, "the record is its origin's");
    assert_eq!(rig.downs(), []);
    for _ in 0..9 {
        rig.run_for(secs(1));
        rig.report(worker.0, grant.stream, 1, 0, 0);
    }
    assert_eq!(rig.downs(), []);
    rig.run_for(secs(3));
    assert_eq!((rig.downs(), rig.control.stats().pulls), (vec![StreamEnd::Stopped], 0));
    assert!(rig.hooks.is_empty());
}

#[test]
fn copies_leave_publishers_all_of_their_limit() {
    let settings = [("edge.origins", NORTH), SECRET];
    let mut rig = Rig::start(config(&settings, &[("ingestingStreamLimit", "1")]), Default::default());
    let (worker, order) = rig.want();
    // The copy counts neither while it is fetched nor afterwards, and a publisher at the limit prevents no copy.
    rig.publish("own", 0);
    rig.copy_begins(worker, &order);
    let mut second = rig.request("second", 0);
    second.key = StreamKey::new("live", "second");
    assert_eq!(rig.ask(second).unwrap_err(), Refusal::NotAllowed("ingestingStreamLimit is reached"));
    // Nor does a publisher pass the limit because there is a copy of its stream.
    let in_place = rig.request(&key().id, 0);
    assert_eq!(rig.ask(in_place).unwrap_err(), Refusal::NotAllowed("ingestingStreamLimit is reached"));
    rig.take();
    rig.mail(ToControl::Wanted { key: StreamKey::new("live", "other"), via: Vec::new() });
    assert_eq!(rig.attempts_of_copies().len(), 1);
}

#[test]
fn a_copy_stays_for_as_long_as_edge_linger_says() {
    for (linger, stays) in [("3", false), ("60", true)] {
        let mut rig = Rig::edge(NORTH, &[("edge.linger", linger)]);
        let (worker, order) = rig.want();
        rig.copy_begins(worker, &order);
        rig.run_for(secs(20));
        assert_eq!(rig.downs().is_empty(), stays, "{linger} s");
    }
}

#[test]
fn who_waits_for_a_stream_that_is_nowhere_is_told_at_once() {
    let mut rig = Rig::edge(BOTH, &[]);
    let (_, first) = rig.want();
    rig.copy_ends(&first, over());
    let [(_, second)] = &rig.attempts_of_copies()[..] else { panic!("the other place is asked at once") };
    let second = second.clone();
    assert_eq!((second.address, rig.not_coming()), ("10.0.0.2:1935".parse().unwrap(), 0));
    // An origin that does not speak the relay protocol counts as failed, not as lacking the stream.
    rig.copy_ends(&second, PullState::Failed("no stream".to_owned()));
    let [(_, third)] = &rig.attempts_of_copies()[..] else { panic!("each is asked again") };
    let third = third.clone();
    rig.copy_ends(&third, over());
    assert_eq!((rig.not_coming(), rig.control.stats().pulls), (usize::from(WORKERS), 0));
    // For some time the origins are not asked for the stream again.
    rig.take();
    rig.mail(ToControl::Wanted { key: key(), via: Vec::new() });
    assert_eq!((rig.attempts_of_copies().len(), rig.not_coming()), (0, usize::from(WORKERS)));
    rig.run_for(secs(2));
    rig.want();
}

#[test]
fn without_places_to_ask_nothing_comes() {
    let mut rig = Rig::new();
    rig.mail(ToControl::Wanted { key: key(), via: Vec::new() });
    assert_eq!((rig.attempts_of_copies().len(), rig.not_coming()), (0, usize::from(WORKERS)));
    let mut rig = Rig::edge(NORTH, &[]);
    rig.mail(ToControl::Wanted { key: StreamKey::new("nowhere", "s"), via: Vec::new() });
    assert_eq!(rig.attempts_of_copies().len(), 0, "no such application");
    for id in ["../../secret", "s?key=1", "s#", "a/b", "a b", ""] {
        rig.mail(ToControl::Wanted { key: StreamKey::new("live", id), via: Vec::new() });
        assert_eq!(rig.attempts_of_copies().len(), 0, "{id} has no place in a URL");
    }
}

#[test]
fn a_broken_connection_is_made_anew_at_once_and_viewers_stay() {
    let mut rig = Rig::edge(NORTH, &[]);
    let (worker, order) = rig.want();
    let (session, grant) = rig.copy_begins(worker, &order);
    rig.report(worker.0, grant.stream, 1, 0, 1);
    rig.gone(session, grant.stream, Departure::Lost, 5000);
    rig.copy_ends(&order, lost());
    let (_, again) = rig.attempts_of_copies().remove(0);
    let (_, continued) = rig.copy_begins(worker, &again);
    assert_eq!((continued.stream, continued.position.dts_ms, continued.epoch), (grant.stream, 5000, 3));
    assert_eq!(continued.zero_ms, ZERO_MS);
    // A lost origin is retried for a while, with pauses. After that the viewers are sent away.
    rig.copy_ends(&again, lost());
    let mut attempts = 0;
    for second in 0..60 {
        if !rig.downs().is_empty() {
            assert!((8..40).contains(&second), "after {second} s");
            break;
        }
        while let Some((_, order)) = rig.attempts_of_copies().first().cloned() {
            attempts += 1;
            rig.copy_ends(&order, PullState::Failed("refused".to_owned()));
        }
        rig.take();
        rig.run_for(secs(1));
        rig.report(worker.0, grant.stream, 1, 0, 1);
    }
    assert_eq!(rig.downs(), [StreamEnd::GraceOver]);
    assert!((4..20).contains(&attempts), "{attempts} attempts");
}

#[test]
fn an_origin_whose_connections_break_again_and_again_is_left_for_another() {
    let mut rig = Rig::edge(BOTH, &[]);
    let (mut worker, mut order) = rig.want();
    let mut asked = Vec::new();
    for _ in 0..4 {
        asked.push(order.address.to_string());
        let (session, grant) = rig.copy_begins(worker, &order);
        rig.gone(session, grant.stream, Departure::Lost, 5000);
        rig.copy_ends(&order, lost());
        (worker, order) = rig.attempts_of_copies().remove(0);
    }
    assert_eq!(asked, ["10.0.0.1:5000", "10.0.0.1:5000", "10.0.0.1:5000", "10.0.0.2:1935"]);
}

#[test]
fn a_stream_that_is_over_at_its_origin_is_over_here() {
    let mut rig = Rig::edge(NORTH, &[]);
    let (worker, order) = rig.want();
    let (session, grant) = rig.copy_begins(worker, &order);
    rig.gone(session, grant.stream, Departure::Lost, 5000);
    rig.copy_ends(&order, over());
    assert_eq!((rig.downs(), rig.not_coming()), (vec![StreamEnd::Unpublished], 0));
}

#[test]
fn a_publisher_takes_a_copy_over_with_its_viewers_and_its_clock() {
    let mut rig = Rig::edge(NORTH, &[]);
    let (worker, order) = rig.want();
    let (session, copy) = rig.copy_begins(worker, &order);
    rig.report(worker.0, copy.stream, 1, 0, 1);
    rig.run_for(secs(7));
    // While units arrive from the origin, the id belongs to the origin's publisher.
    let request = rig.request("s", 1);
    assert!(matches!(rig.ask(request), Err(Refusal::InUse)));
    rig.gone(session, copy.stream, Departure::Lost, 7000);
    rig.copy_ends(&order, lost());
    let (_, order) = rig.attempts_of_copies().remove(0);
    let request = rig.request("s", 1);
    let publisher = request.session;
    let grant = rig.ask(request).unwrap();
    let stops = rig.posted.iter().filter(|(_, mail)| matches!(mail, ToWorker::StopPull(_))).count();
    assert_eq!((grant.stream, grant.zero_ms, stops), (copy.stream, ZERO_MS, 1));
    // The clock continues at the present wall-clock time, which is later than all units of the copy.
    let wall_ms = i64::try_from(rig.now.wall_ms).unwrap();
    assert_eq!(grant.position, Position { dts_ms: wall_ms - ZERO_MS, started: true });
    // Late reports of the pull are ignored.
    rig.gone(session, copy.stream, Departure::Lost, 9);
    rig.copy_ends(&order, lost());
    assert_eq!((rig.downs(), rig.attempts_of_copies().len()), (vec![], 0));
    assert_eq!(rig.record("s")["status"], "broadcasting");
    assert_eq!(rig.hooks.len(), 1, "that it is live is told here now");
    rig.gone(publisher, copy.stream, Departure::Clean, 99);
    assert_eq!(rig.downs(), [StreamEnd::Unpublished]);
}

#[test]
fn a_publisher_comes_first_while_a_copy_is_on_its_way() {
    let mut rig = Rig::edge(NORTH, &[]);
    let (worker, order) = rig.want();
    let (_, stream) = rig.publish("s", 0);
    let mut request = rig.request("s", worker.0);
    (request.ingest, request.zero_ms) = (Ingest::COPY, Some(ZERO_MS));
    request.pull = Some((order.pull, order.attempt));
    assert!(matches!(rig.ask(request), Err(Refusal::InUse)));
    assert_eq!(rig.control.stats().pulls, 0);
    assert!(rig.downs().is_empty(), "{stream:?}");
}

#[test]
fn the_origin_is_told_of_viewers_when_their_number_changes_and_by_each_connection() {
    let mut rig = Rig::edge(NORTH, &[]);
    let (worker, order) = rig.want();
    let (session, grant) = rig.copy_begins(worker, &order);
    rig.take();
    let tells = |rig: &mut Rig, viewers: u32| -> Vec<u32> {
        rig.report(worker.0, grant.stream, 1, 0, viewers);
        let told = rig.posted.iter().filter_map(|(_, mail)| match mail {
            ToWorker::Audience { viewers, .. } => Some(viewers.connected),
            _ => None,
        });
        let told = told.collect();
        rig.take();
        told
    };
    assert_eq!([1, 1, 3, 3].map(|viewers| tells(&mut rig, viewers)), [vec![1], vec![], vec![3], vec![]]);
    rig.mail(ToControl::PublisherGone {
        session,
        stream: grant.stream,
        departure: Departure::Lost,
        position: Default::default(),
        tracks: Arc::default(),
    });
    rig.take();
    rig.mail(ToControl::Pull { pull: order.pull, attempt: order.attempt, state: lost() });
    let (worker, order) = rig.attempts_of_copies().remove(0);
    rig.copy_begins(worker, &order);
    rig.take();
    assert_eq!(tells(&mut rig, 3), [3]);
}

/// An origin that accepts and sends nothing is given up after ten seconds. Meanwhile viewers ask for the stream.
#[test]
fn each_origin_has_its_time_to_be_silent() {
    let mut rig = Rig::edge(BOTH, &[]);
    let (_, first) = rig.want();
    let silent = || PullState::Failed("nothing arrived".to_owned());
    let wait = |rig: &mut Rig, seconds: u64| {
        for _ in 0..seconds {
            rig.mail(ToControl::Wanted { key: key(), via: Vec::new() });
            rig.run_for(secs(1));
        }
    };
    wait(&mut rig, 10);
    rig.copy_ends(&first, silent());
    let (_, second) = rig.attempts_of_copies().remove(0);
    assert_eq!(second.address, "10.0.0.2:1935".parse().unwrap());
    wait(&mut rig, 9);
    assert_eq!((rig.not_coming(), rig.control.stats().pulls), (0, 1));
    rig.run_for(secs(2));
    assert_eq!((rig.not_coming(), rig.control.stats().pulls), (usize::from(WORKERS), 0));
}

#[test]
fn a_stream_that_goes_live_at_another_node_is_requested_at_once_again() {
    let cluster = Some(membership(WithoutDirectory::Accept));
    let config = ControlConfig { cluster, ..config(&[("edge.origins", NORTH), SECRET], &[]) };
    let mut rig = Rig::start(config, Default::default());
    let mut there = node("c", 1, true);
    there.profile.relay = "10.0.0.3:7000".into();
    rig.tell_news(News::Nodes(vec![node("b", 1, true), there]));
    let (_, order) = rig.want();
    rig.copy_ends(&order, over());
    assert_eq!(rig.not_coming(), usize::from(WORKERS));
    rig.tell_news(News::Claim { key: key(), holder: Some(holder("c", 1, 7)) });
    assert_eq!(rig.want().1.address, "10.0.0.3:7000".parse().unwrap());
}
