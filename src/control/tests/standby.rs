//! Standbys: who waits, who takes over, and when.

use super::*;
use crate::mail::{Seam, StandbyFigures};

/// A request of an encoder that says `backup=1`.
fn backup(rig: &mut Rig, id: &str, worker: u16) -> PublishRequest {
    let mut request = rig.request(id, worker);
    request.params = vec![("backup".into(), "1".into())];
    request
}

/// Publishes a stream with a publisher on worker 0 and a standby on worker 1 that sends. Returns both and the stream.
fn pair(rig: &mut Rig, id: &str) -> (SessionRef, SessionRef, StreamId) {
    let (first, stream) = rig.publish(id, 0);
    let request = backup(rig, id, 1);
    let second = request.session;
    let grant = rig.ask(request).unwrap();
    assert!(grant.standby && grant.stream == stream && grant.position == Position::default());
    rig.mail(ToControl::StandbySends { session: second, stream, sends: true });
    (first, second, stream)
}

fn seam(dts_ms: i64, silent: Duration) -> Seam {
    Seam { position: Position { dts_ms, started: true }, tracks: epoch_3(), silent }
}

/// Returns the sessions that were ordered to take over, each with the position of the stream and the silence.
fn taken_over(posted: &[(WorkerId, ToWorker)]) -> Vec<(SessionRef, i64, Duration)> {
    let order = |(_, mail): &(WorkerId, ToWorker)| match mail {
        ToWorker::TakeOver { session, seam, .. } => Some((*session, seam.position.dts_ms, seam.silent)),
        _ => None,
    };
    posted.iter().filter_map(order).collect()
}

/// Returns what the workers were last told about the stream having a standby that sends.
fn told_of_standby(posted: &[(WorkerId, ToWorker)]) -> Option<bool> {
    let told = |(_, mail): &(WorkerId, ToWorker)| match mail {
        ToWorker::StreamUp { details, .. } => Some(details.has_standby),
        _ => None,
    };
    posted.iter().rev().find_map(told)
}

#[test]
fn a_lost_publisher_is_followed_by_its_standby_at_once_and_returns_as_the_standby() {
    let mut rig = Rig::new();
    rig.create("s");
    let (first, second, stream) = pair(&mut rig, "s");
    assert_eq!(told_of_standby(&rig.take()), Some(true));
    rig.gone(first, stream, Departure::Lost, 4000);
    let posted = rig.take();
    assert_eq!(kinds(&posted), ["1: up from 1", "0: up from 1", "1: TakeOver"]);
    assert_eq!(taken_over(&posted), [(second, 4000, Duration::ZERO)]);
    assert_eq!(told_of_standby(&posted), Some(false));
    assert_eq!(rig.record("s")["status"], "broadcasting");
    // A publisher without the parameter, too, because its successor has it.
    let request = rig.request("s", 0);
    let returned = request.session;
    assert!(rig.ask(request).unwrap().standby);
    // Late news of the former publisher changes nothing.
    rig.gone(first, stream, Departure::Clean, 1);
    rig.run_for(secs(20));
    assert_eq!(rig.control.stats().live, 1);
    rig.take();
    rig.gone(second, stream, Departure::Lost, 9000);
    assert_eq!(taken_over(&rig.take()), [(returned, 9000, Duration::ZERO)]);
}

#[test]
fn a_third_publisher_is_refused_and_a_standby_needs_a_word() {
    let mut rig = Rig::new();
    let (first, _) = rig.publish("plain", 0);
    let second = rig.request("plain", 1);
    assert_eq!(rig.ask(second).unwrap_err(), Refusal::InUse);
    let again = PublishRequest { session: first, ..backup(&mut rig, "plain", 0) };
    assert_eq!(rig.ask(again).unwrap_err(), Refusal::InUse, "no session is its own standby");
    pair(&mut rig, "s");
    let third = backup(&mut rig, "s", 0);
    assert_eq!(rig.ask(third).unwrap_err(), Refusal::InUse);
    // The record may allow it, too.
    let body = r#"{"streamId":"r","standbyEnabled":true}"#;
    assert_eq!(rig.call(Method::Post, "/live/rest/v2/broadcasts/create", body).0, 200);
    assert_eq!(rig.record("r")["standbyEnabled"], true);
    rig.publish("r", 0);
    let second = rig.request("r", 1);
    assert!(rig.ask(second).unwrap().standby);
}

#[test]
fn a_silent_publisher_yields_and_is_the_standby_from_then_on() {
    let mut rig = Rig::new();
    let (first, second, stream) = pair(&mut rig, "s");
    rig.take();
    rig.mail(ToControl::Yielded { session: first, stream, seam: seam(7000, secs(1)) });
    assert_eq!(taken_over(&rig.take()), [(second, 7000, secs(1))]);
    // Once it sends again it waits: there is no switching back.
    rig.mail(ToControl::StandbySends { session: first, stream, sends: true });
    let posted = rig.take();
    assert_eq!((told_of_standby(&posted), taken_over(&posted)), (Some(true), vec![]));
    rig.gone(second, stream, Departure::Lost, 9000);
    assert_eq!(taken_over(&rig.take()), [(first, 9000, Duration::ZERO)]);
}

#[test]
fn a_publisher_that_yields_to_nobody_goes_on() {
    let mut rig = Rig::new();
    let (first, second, stream) = pair(&mut rig, "s");
    rig.gone(second, stream, Departure::Lost, 0);
    assert_eq!(told_of_standby(&rig.take()), Some(false));
    rig.mail(ToControl::Yielded { session: first, stream, seam: seam(7000, secs(1)) });
    assert_eq!(taken_over(&rig.take()), [(first, 7000, secs(1))]);
    // The other way round: it is ordered to take over when it has gone. Its worker does not know the stream's clock.
    let (departure, position, tracks) = (Departure::Lost, Position::default(), epoch_3());
    rig.mail(ToControl::PublisherGone { session: first, stream, departure, position, tracks });
    rig.run_for(secs(1));
    let request = rig.request("s", 0);
    assert_eq!(rig.ask(request).unwrap().position.dts_ms, 7000, "the clock never steps back");
}

#[test]
fn when_both_are_lost_the_stream_waits_and_a_clean_end_ends_both() {
    let mut rig = Rig::new();
    rig.create("s");
    let (first, second, stream) = pair(&mut rig, "s");
    rig.gone(first, stream, Departure::Lost, 1000);
    rig.gone(second, stream, Departure::Lost, 2000);
    rig.run_for(ms(4900));
    assert_eq!(rig.record("s")["status"], "broadcasting");
    rig.run_for(ms(200));
    assert_eq!(rig.record("s")["status"], "finished");
    let (first, second, stream) = pair(&mut rig, "s");
    rig.take();
    rig.gone(first, stream, Departure::Clean, 1000);
    assert_eq!(kinds(&rig.take()), ["0: down Unpublished", "1: down Unpublished"]);
    assert_eq!(rig.record("s")["status"], "finished");
    rig.gone(second, stream, Departure::Lost, 0);
    // A standby may say goodbye without an effect on the stream.
    let (_, second, stream) = pair(&mut rig, "s");
    rig.gone(second, stream, Departure::Clean, 0);
    assert_eq!(rig.record("s")["status"], "broadcasting");
    assert_eq!(rig.call(Method::Delete, "/live/rest/v2/broadcasts/s", "").0, 200);
    assert_eq!(rig.control.stats().live, 0);
}

#[test]
fn a_publisher_that_fails_is_followed_by_its_standby_and_ends_a_stream_without_one() {
    let mut rig = Rig::new();
    rig.create("s");
    let (first, second, stream) = pair(&mut rig, "s");
    rig.take();
    rig.gone(first, stream, Departure::Failed, 1000);
    assert_eq!(taken_over(&rig.take())[0].0, second);
    rig.gone(second, stream, Departure::Failed, 2000);
    assert_eq!(rig.record("s")["status"], "finished");
}

#[test]
fn a_standby_counts_for_the_connections_of_its_subscriber() {
    let mut rig = Rig::new();
    rig.create("s");
    let body = r#"{"subscriberId":"camera","concurrentConnectionsLimit":1}"#;
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/subscribers", body), (200, PLAIN.into()));
    let as_subscriber = |mut request: PublishRequest| {
        request.params.push(("subscriberId".into(), "camera".into()));
        request
    };
    let first = as_subscriber(rig.request("s", 0));
    rig.ask(first).unwrap();
    let standby = as_subscriber(backup(&mut rig, "s", 1));
    assert!(matches!(rig.ask(standby).unwrap_err(), Refusal::Denied(_)), "camera is connected already");
    let other = backup(&mut rig, "s", 1);
    assert!(rig.ask(other).unwrap().standby);
}

#[test]
fn a_standby_that_is_silent_for_long_gives_its_place_to_another() {
    let mut rig = Rig::new();
    let (_, second, stream) = pair(&mut rig, "s");
    rig.mail(ToControl::StandbySends { session: second, stream, sends: false });
    rig.run_for(ms(2900));
    let third = backup(&mut rig, "s", 0);
    assert_eq!(rig.ask(third).unwrap_err(), Refusal::InUse);
    rig.run_for(ms(100));
    let third = backup(&mut rig, "s", 0);
    assert!(rig.ask(third).unwrap().standby);
    assert_eq!(kinds(&rig.take()), ["1: replaced", "0: verdict true"]);
}

#[test]
fn a_standby_counts_like_a_publisher_and_passes_the_same_checks() {
    let mut rig = Rig::with(&[], &[("ingestingStreamLimit", "2")]);
    let (_, second, stream) = pair(&mut rig, "s");
    let other = rig.request("other", 0);
    let full = Refusal::NotAllowed("ingestingStreamLimit is reached");
    assert_eq!(rig.ask(other).unwrap_err(), full);
    rig.gone(second, stream, Departure::Lost, 0);
    rig.publish("other", 0);
    let standby = backup(&mut rig, "s", 1);
    assert_eq!(rig.ask(standby).unwrap_err(), full);

    let mut rig = Rig::with(&[("limits.publishers_per_address", "1")], &[]);
    rig.publish("s", 0);
    let standby = backup(&mut rig, "s", 1);
    let full = Refusal::NotAllowed("limits.publishers_per_address is reached");
    assert_eq!(rig.ask(standby).unwrap_err(), full);
}

#[test]
fn a_standby_that_replaces_a_silent_one_counts_once() {
    for limit in [("ingestingStreamLimit", "2"), ("limits.publishers_per_address", "2")] {
        let (server, app) =
            if limit.0.starts_with("limits") { (vec![limit], vec![]) } else { (vec![], vec![limit]) };
        let mut rig = Rig::with(&server, &app);
        let (_, second, stream) = pair(&mut rig, "s");
        rig.mail(ToControl::StandbySends { session: second, stream, sends: false });
        rig.run_for(ms(3000));
        let other = rig.request("other", 0);
        assert!(matches!(rig.ask(other).unwrap_err(), Refusal::NotAllowed(_)), "{limit:?}: both count");
        let third = backup(&mut rig, "s", 0);
        assert!(rig.ask(third).unwrap().standby, "{limit:?}");
        let other = rig.request("other", 0);
        assert!(matches!(rig.ask(other).unwrap_err(), Refusal::NotAllowed(_)), "{limit:?}: as before");
    }
}

#[test]
fn both_are_listed_and_can_be_switched() {
    let mut rig = Rig::new();
    let (first, second, stream) = pair(&mut rig, "s");
    rig.report(0, stream, 5000, 10, 0);
    let figures =
        StandbyFigures { stream, session: second, received_bytes: 70, silent_ms: 20, has_key_frame: true };
    rig.mail(ToControl::Report(WorkerId(1), Report { standbys: vec![figures], ..Report::default() }));
    let list = |rig: &mut Rig| -> serde_json::Value {
        let (status, body) = rig.get("/live/rest/v2/broadcasts/s/publishers");
        assert_eq!(status, 200);
        serde_json::from_str(&body).unwrap()
    };
    let both = list(&mut rig);
    let of = |at: usize, name: &str| both[at][name].clone();
    assert_eq!(
        (of(0, "active"), of(0, "receivedBytes"), of(0, "silentMs")),
        (true.into(), 5000.into(), 10.into())
    );
    assert_eq!(
        (of(1, "active"), of(1, "receivedBytes"), of(1, "sends")),
        (false.into(), 70.into(), true.into())
    );
    assert_eq!((of(1, "remoteIp"), of(1, "hasKeyFrame")), ("198.51.100.7".into(), true.into()));
    rig.take();
    assert_eq!(rig.call(Method::Post, "/live/rest/v2/broadcasts/s/standby/switch", "").1, PLAIN);
    let posted = rig.take();
    let ordered = |(_, mail): &(WorkerId, ToWorker)| matches!(mail, ToWorker::Yield { session, .. } if *session == first);
    assert!(posted.iter().any(ordered), "{posted:?}");
    rig.gone(first, stream, Departure::Lost, 1);
    assert_eq!(list(&mut rig).as_array().unwrap().len(), 1);
    let (_, answer) = rig.call(Method::Post, "/live/rest/v2/broadcasts/s/standby/switch", "");
    assert!(answer.contains("The stream has no standby"), "{answer}");
}
