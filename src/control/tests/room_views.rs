//! Views of rooms: their beginning and end, and the counting of their viewers.

use super::claims::holder;
use super::rooms::join;
use super::*;
use crate::control::leaving::Sessions;
use crate::directory::News;
use crate::mail::{PullOrder, PullState, StreamEnd};

fn room() -> StreamKey {
    StreamKey::new("live", "room")
}

impl Rig {
    /// Lets a viewer wait for the room. Returns the attempts that follow.
    fn want_room(&mut self) -> Vec<(WorkerId, PullOrder)> {
        self.take();
        self.mail(ToControl::Wanted { key: room(), via: Vec::new() });
        self.attempts()
    }

    fn attempts(&self) -> Vec<(WorkerId, PullOrder)> {
        let order = |(worker, mail): &(WorkerId, ToWorker)| match mail {
            ToWorker::StartPull(order) => Some((*worker, PullOrder::clone(order))),
            _ => None,
        };
        self.posted.iter().filter_map(order).collect()
    }

    /// Adds a participant to the room at a node of a cluster.
    fn join_in_cluster(&mut self, id: &str) -> SessionRef {
        let params = vec![("mainTrack".to_owned(), "room".to_owned())];
        let request = PublishRequest { params, ..self.request(id, 0) };
        let session = request.session;
        self.mail(ToControl::Publish(request));
        let (ticket, _) = self.last_claim();
        self.claim_answer(ticket, true);
        session
    }

    fn view_begins(&mut self, (worker, order): &(WorkerId, PullOrder)) -> (SessionRef, StreamId) {
        let mut request = self.request("room", worker.0);
        request.ingest = Ingest::ROOM_VIEW;
        request.pull = Some((order.pull, order.attempt));
        let session = request.session;
        (session, self.ask(request).unwrap().stream)
    }

    fn ends_of(&self, stream: StreamId) -> Vec<StreamEnd> {
        let end = |(_, mail): &(WorkerId, ToWorker)| match mail {
            ToWorker::StreamDown { stream: of, end } if *of == stream => Some(*end),
            _ => None,
        };
        self.posted.iter().filter_map(end).collect()
    }

    fn room_is_watched(&mut self, worker: WorkerId, stream: StreamId, viewers: u32) {
        let report = Report { viewers: vec![(stream, viewers)], ..Report::default() };
        self.mail(ToControl::Report(worker, report));
    }
}

#[test]
fn a_room_has_a_view_while_somebody_watches_and_its_viewers_are_the_rooms() {
    let mut rig = Rig::new();
    rig.create("room");
    let (ann, stream) = join(&mut rig, "ann", "room").unwrap();
    let orders = rig.want_room();
    assert_eq!(orders.len(), 1);
    assert!(rig.want_room().is_empty(), "one view for all");
    let (_, view) = rig.view_begins(&orders[0]);
    rig.room_is_watched(orders[0].0, view, 3);
    let record = rig.record("room");
    assert_eq!((&record["rtmpViewerCount"], &record["status"]), (&3.into(), &"broadcasting".into()));
    rig.run_for(secs(60));
    assert!(rig.ends_of(view).is_empty(), "it is watched");
    rig.take();
    rig.room_is_watched(orders[0].0, view, 0);
    rig.run_for(secs(12));
    assert_eq!(rig.ends_of(view)[0], StreamEnd::Stopped);
    assert_eq!(rig.record("room")["status"], "broadcasting", "the room goes on");
    // A second view begins, and ends with the room.
    let orders = rig.want_room();
    let (session, view) = rig.view_begins(&orders[0]);
    rig.room_is_watched(orders[0].0, view, 2);
    rig.take();
    rig.gone(ann, stream, Departure::Clean, 0);
    assert_eq!(rig.record("room")["status"], "finished", "a view is no publisher");
    rig.gone(session, view, Departure::Lost, 0);
    let (pull, attempt) = (orders[0].1.pull, orders[0].1.attempt);
    rig.mail(ToControl::Pull { pull, attempt, state: PullState::Over("unpublished".to_owned()) });
    assert_eq!(rig.ends_of(view)[0], StreamEnd::Unpublished);
    assert_eq!(rig.record("room")["rtmpViewerCount"], 0);
    assert!(rig.want_room().is_empty(), "nobody is in it");
    assert!(rig.posted.iter().any(|(_, mail)| matches!(mail, ToWorker::NotComing(key) if *key == room())));
}

#[test]
fn a_view_of_many_is_not_measured_against_the_limits_of_one_stream() {
    let limits = [("maxBitrateAccept", "100000"), ("maxFpsAccept", "20"), ("maxResolutionAccept", "480")];
    let mut rig = Rig::start(config(&[], &limits), Default::default());
    join(&mut rig, "ann", "room").unwrap();
    let orders = rig.want_room();
    let (_, view) = rig.view_begins(&orders[0]);
    for second in 0..9 {
        rig.report(orders[0].0.0, view, second * 30_000, 0, 1);
        rig.run_for(secs(1));
    }
    assert!(rig.ends_of(view).is_empty());
}

#[test]
fn renditions_of_one_programme_have_no_view() {
    let mut rig = Rig::start(config(&[], &[("hls.group", "renditions")]), Default::default());
    join(&mut rig, "ann", "room").unwrap();
    assert!(rig.want_room().is_empty());
}

#[test]
fn who_publishes_under_the_name_of_the_room_takes_the_view_over() {
    let mut rig = Rig::new();
    join(&mut rig, "ann", "room").unwrap();
    let orders = rig.want_room();
    let (_, view) = rig.view_begins(&orders[0]);
    let request = rig.request("room", 0);
    let grant = rig.ask(request).unwrap();
    assert_eq!(grant.stream, view, "its viewers stay");
    assert!(rig.want_room().is_empty());
    assert_eq!(rig.record("room")["publishType"], "RTMP");
}

#[test]
fn a_view_that_is_begun_anew_leaves_the_record_of_its_room() {
    let mut rig = Rig::new();
    rig.create("room");
    join(&mut rig, "ann", "room").unwrap();
    let orders = rig.want_room();
    let (session, view) = rig.view_begins(&orders[0]);
    let of_record = |rig: &mut Rig| {
        let record = rig.record("room");
        (record["publishType"].clone(), record["startTime"].clone(), record["userAgent"].clone())
    };
    let before = of_record(&mut rig);
    rig.run_for(secs(5));
    rig.room_is_watched(orders[0].0, view, 1);
    rig.take();
    rig.gone(session, view, Departure::Lost, 0);
    let (pull, attempt) = (orders[0].1.pull, orders[0].1.attempt);
    rig.mail(ToControl::Pull { pull, attempt, state: PullState::Failed("ended by a fault".to_owned()) });
    rig.run_for(secs(5));
    let again = rig.attempts().pop().expect("another attempt");
    assert_eq!(rig.view_begins(&again).1, view, "its viewers stay");
    assert_eq!(of_record(&mut rig), before);
    assert!(rig.hooks.is_empty(), "nothing has begun");
}

#[test]
fn a_view_is_no_subtrack_of_the_room_that_its_room_is_in() {
    let mut rig = Rig::new();
    ["above", "room"].iter().for_each(|id| rig.create(id));
    rig.post("/live/rest/v2/broadcasts/above/subtrack?id=room", "");
    join(&mut rig, "ann", "room").unwrap();
    let orders = rig.want_room();
    rig.view_begins(&orders[0]);
    let (_, active) = rig.get("/live/rest/v2/broadcasts/above/active-subtracks-count");
    assert_eq!(active, r#"{"number":0}"#);
    assert_ne!(rig.record("above")["status"], "broadcasting");
}

#[test]
fn a_drain_counts_no_view_among_publishers() {
    let mut rig = Rig::new();
    let (ann, stream) = join(&mut rig, "ann", "room").unwrap();
    let orders = rig.want_room();
    let (_, view) = rig.view_begins(&orders[0]);
    rig.room_is_watched(orders[0].0, view, 1);
    let session = rig.session(0);
    rig.control.handle_order(rig.now, session, Order::Drain { is_leaving: true });
    rig.drain();
    let sessions = |rig: &Rig| {
        let control = &rig.control;
        Sessions::of(&control.registry, &control.access, &control.outbound)
    };
    assert_eq!(sessions(&rig), Sessions { publishers: 1, viewers: 1, sources: 0 });
    rig.gone(ann, stream, Departure::Clean, 0);
    assert_eq!(sessions(&rig), Sessions { publishers: 0, viewers: 1, sources: 0 });
    rig.room_is_watched(orders[0].0, view, 0);
    rig.run_for(secs(3));
    assert_eq!(rig.lefts, 1, "nobody is here");
}

#[test]
fn a_publisher_of_the_rooms_name_at_another_node_ends_the_view_and_keeps_its_viewers() {
    let mut rig = Rig::with_directory(&[("acceptOnlyStreamsInDataStore", "false")]);
    let publisher = rig.join_in_cluster("ann");
    assert!(rig.control.registry.of_publisher(publisher).is_some());
    let orders = rig.want_room();
    let (session, view) = rig.view_begins(&orders[0]);
    rig.room_is_watched(orders[0].0, view, 2);
    rig.take();
    rig.tell_news(News::Claim { key: room(), holder: Some(holder("c", 1, 7)) });
    let is_stopped =
        |(_, mail): &(WorkerId, ToWorker)| matches!(mail, ToWorker::StopPull(id) if *id == orders[0].1.pull);
    assert!(rig.posted.iter().any(is_stopped), "the view ends");
    let is_copy = |(_, mail): &(WorkerId, ToWorker)| matches!(mail, ToWorker::StreamUp { stream, ingest: Ingest::COPY, .. } if *stream == view);
    assert_eq!(
        rig.posted.iter().filter(|mail| is_copy(mail)).count(),
        usize::from(WORKERS),
        "each worker knows"
    );
    assert!(rig.ends_of(view).is_empty());
    rig.gone(session, view, Departure::Lost, 0);
    // The units of the stream arrive from the other node.
    for asked in std::mem::take(&mut rig.resolves) {
        let address = std::net::SocketAddr::new("198.51.100.20".parse().unwrap(), asked.port);
        rig.done(asked.id, Outcome::Resolved(Ok(vec![address])));
    }
    let (worker, copy) = rig.attempts().pop().expect("the copy is fetched");
    let mut request = rig.request("room", worker.0);
    (request.ingest, request.pull) = (Ingest::COPY, Some((copy.pull, copy.attempt)));
    assert_eq!(rig.ask(request).unwrap().stream, view, "the viewers stay");
}

#[test]
fn a_view_that_is_about_to_begin_gives_way_to_a_publisher_at_another_node() {
    let mut rig = Rig::with_directory(&[("acceptOnlyStreamsInDataStore", "false")]);
    rig.join_in_cluster("ann");
    let orders = rig.want_room();
    rig.tell_news(News::Claim { key: room(), holder: Some(holder("c", 1, 7)) });
    let mut request = rig.request("room", orders[0].0.0);
    request.ingest = Ingest::ROOM_VIEW;
    request.pull = Some((orders[0].1.pull, orders[0].1.attempt));
    assert!(matches!(rig.ask(request), Err(Refusal::InUse)));
    let (pull, attempt) = (orders[0].1.pull, orders[0].1.attempt);
    rig.mail(ToControl::Pull { pull, attempt, state: PullState::Failed("refused here".to_owned()) });
    assert!(!rig.resolves.is_empty(), "it is fetched from there");
}
