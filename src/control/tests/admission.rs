//! Admission of publishers, the grace period, and the end of streams.

use super::*;
use crate::auth::access::Denial;

#[test]
fn every_worker_knows_the_stream_before_its_publisher_is_told_and_the_source_first() {
    let mut rig = Rig::new();
    rig.take();
    rig.publish("s", 1);
    assert_eq!(kinds(&rig.take()), ["1: up from 1", "0: up from 1", "1: verdict true"]);
    let record = rig.record("s");
    assert_eq!(
        (record["status"].as_str(), record["publishType"].as_str(), record["zombi"].as_bool()),
        (Some("broadcasting"), Some("RTMP"), Some(true))
    );
    assert_eq!(record["remoteIp"], "198.51.100.7");
}

#[test]
fn the_second_publisher_loses_and_a_clean_end_frees_the_id() {
    let mut rig = Rig::new();
    let (first, stream) = rig.publish("s", 0);
    let second = rig.request("s", 1);
    assert_eq!(rig.ask(second).unwrap_err(), Refusal::InUse);
    rig.gone(first, stream, Departure::Clean, 10);
    assert_eq!(rig.get("/live/rest/v2/broadcasts/s").0, 404, "a zombi goes with its stream");
    let (_, again) = rig.publish("s", 1);
    assert_ne!(stream, again);
}

#[test]
fn m_27_an_address_has_so_many_publishers_and_another_is_still_served() {
    let mut rig = Rig::with(&[("limits.publishers_per_address", "3")], &[]);
    let (first, stream) = rig.publish("s0", 0);
    for n in 1..3 {
        rig.publish(&format!("s{n}"), 0);
    }
    let refused = Refusal::NotAllowed("limits.publishers_per_address is reached");
    let request = rig.request("s3", 0);
    assert_eq!(rig.ask(request).unwrap_err(), refused);
    let granted = |rig: &mut Rig, peer: &str| {
        let ask = |n: &u8| {
            let id = format!("{}{n}", peer.len());
            let request = PublishRequest { peer: peer.parse().unwrap(), ..rig.request(&id, 0) };
            rig.ask(request).is_ok()
        };
        (0..5).filter(ask).count()
    };
    assert_eq!((granted(&mut rig, "203.0.113.5:1"), granted(&mut rig, "127.0.0.1:1")), (3, 5));
    let settings = [("limits.publishers_per_address", "3"), ("limits.exempt_loopback", "false")];
    let mut strict = Rig::with(&settings, &[]);
    assert_eq!(granted(&mut strict, "127.0.0.1:1"), 3);
    for (n, is_ok) in [(0, true), (1, true), (2, true), (3, false)] {
        let peer = format!("[2001:db8::{n}]:1").parse().unwrap();
        let request = PublishRequest { peer, ..rig.request(&format!("v6-{n}"), 0) };
        assert_eq!(rig.ask(request).is_ok(), is_ok, "a /64 is one address");
    }
    rig.gone(first, stream, Departure::Clean, 0);
    let request = rig.request("s3", 0);
    assert!(rig.ask(request).is_ok());
}

#[test]
fn a_lost_publisher_comes_back_within_the_grace() {
    let mut rig = Rig::new();
    rig.create("s");
    let (first, stream) = rig.publish("s", 0);
    rig.gone(first, stream, Departure::Lost, 4000);
    rig.run_for(ms(4900));
    assert_eq!(rig.record("s")["status"], "broadcasting");
    let request = rig.request("s", 1);
    let grant = rig.ask(request).unwrap();
    assert_eq!((grant.stream, grant.position.dts_ms, grant.epoch), (stream, 4000, 3));
    assert_eq!(kinds(&rig.take()), ["1: up from 1", "0: up from 1", "1: verdict true"]);
    // Late news of the former publisher changes nothing.
    rig.gone(first, stream, Departure::Clean, 1);
    rig.run_for(secs(20));
    assert_eq!(rig.control.stats().live, 1);
}

#[test]
fn the_grace_ends_the_stream_and_the_record_stays() {
    let mut rig = Rig::new();
    rig.create("s");
    let (first, stream) = rig.publish("s", 0);
    rig.gone(first, stream, Departure::Lost, 1);
    rig.take();
    rig.run_for(ms(4999));
    assert_eq!(rig.control.stats().live, 1);
    rig.run_for(ms(1));
    assert_eq!(kinds(&rig.take()), ["0: down GraceOver", "1: down GraceOver"]);
    assert_eq!(rig.record("s")["status"], "finished");
}

#[test]
fn without_grace_a_lost_publisher_ends_the_stream() {
    let mut rig = Rig::with(&[], &[("publisherGraceMs", "0")]);
    let (first, stream) = rig.publish("s", 0);
    rig.gone(first, stream, Departure::Lost, 1);
    assert_eq!(rig.control.stats().live, 0);
}

#[test]
fn a_silent_publisher_is_replaced() {
    let mut rig = Rig::new();
    let (first, stream) = rig.publish("s", 0);
    rig.report(0, stream, 1000, 2999, 0);
    let request = rig.request("s", 0);
    assert_eq!(rig.ask(request).unwrap_err(), Refusal::InUse);
    rig.run_for(secs(1));
    rig.report(0, stream, 1000, 3999, 0);
    let request = rig.request("s", 0);
    let grant = rig.ask(request).unwrap();
    assert_eq!((grant.stream, grant.position.dts_ms), (stream, 1000));
    assert_eq!(kinds(&rig.take()), ["0: replaced", "0: verdict true"]);
    rig.gone(first, stream, Departure::Clean, 1);
    assert_eq!(rig.control.stats().live, 1);
}

#[test]
fn who_is_gone_before_its_verdict_leaves_nothing() {
    let mut rig = Rig::new();
    let (session, _) = rig.publish("s", 0);
    rig.mail(ToControl::PublishAbandoned(session));
    assert_eq!(rig.control.stats().live, 0);
    rig.mail(ToControl::PublishAbandoned(session));
}

#[test]
fn a_publisher_that_had_returned_and_is_gone_before_its_verdict_may_return_again() {
    let mut rig = Rig::new();
    let (first, stream) = rig.publish("s", 0);
    rig.gone(first, stream, Departure::Lost, 4000);
    let (second, _) = rig.publish("s", 1);
    rig.mail(ToControl::PublishAbandoned(second));
    let request = rig.request("s", 0);
    let grant = rig.ask(request).unwrap();
    assert_eq!((grant.stream, grant.position.dts_ms, grant.epoch), (stream, 4000, 3));
}

#[test]
fn a_report_about_a_former_publisher_says_nothing_about_the_present_one() {
    let mut rig = Rig::new();
    let (first, stream) = rig.publish("s", 0);
    rig.gone(first, stream, Departure::Lost, 4000);
    rig.report(0, stream, 1000, 0, 0);
    let request = rig.request("s", 1);
    let grant = rig.ask(request).unwrap();
    assert_eq!((grant.position.dts_ms, grant.epoch), (4000, 3));
    rig.report(0, stream, 1000, 3000, 0);
    let third = rig.request("s", 0);
    assert_eq!(rig.ask(third).unwrap_err(), Refusal::InUse, "it is not the present one that is silent");
    rig.report(1, stream, 1000, 3000, 0);
    let third = rig.request("s", 0);
    assert!(rig.ask(third).is_ok());
}

#[test]
fn a_record_says_from_where_and_with_what_its_publisher_came() {
    let mut rig = Rig::new();
    let long = "x".repeat(300);
    for (n, (agent, shown)) in
        [("OBS/30\r\n\x7f", "OBS/30"), ("", "N/A"), ("\n", "N/A"), (&long, &long[..256])].iter().enumerate()
    {
        let mut request = rig.request(&format!("s{n}"), 0);
        request.user_agent = (*agent).to_owned();
        request.peer = "[::ffff:198.51.100.9]:4000".parse().unwrap();
        rig.ask(request).unwrap();
        let record = rig.record(&format!("s{n}"));
        assert_eq!((&record["userAgent"], &record["remoteIp"]), (&(*shown).into(), &"198.51.100.9".into()));
    }
    // The returning publisher may be another program at another address.
    let (first, stream) = rig.publish("s", 0);
    rig.gone(first, stream, Departure::Lost, 0);
    let mut request = rig.request("s", 0);
    request.user_agent = "other/2".to_owned();
    request.peer = "203.0.113.5:4000".parse().unwrap();
    rig.ask(request).unwrap();
    let record = rig.record("s");
    assert_eq!((&record["userAgent"], &record["remoteIp"]), (&"other/2".into(), &"203.0.113.5".into()));
}

#[test]
fn workers_hear_whether_polled_viewers_are_limited_when_that_changes() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    let mut told = |body: &str| {
        rig.take();
        assert_eq!(rig.call(Method::Put, "/live/rest/v2/broadcasts/s", body).0, 200);
        let limited = rig.take().into_iter().filter_map(|(_, mail)| match mail {
            ToWorker::StreamUp { details, .. } => Some(details.limits_polled),
            _ => None,
        });
        limited.collect::<Vec<bool>>()
    };
    assert_eq!(told(r#"{"hlsViewerLimit":0}"#), [true; 2]);
    assert_eq!(told(r#"{"name":"something else"}"#), [false; 0]);
    assert_eq!(told(r#"{"hlsViewerLimit":-1}"#), [false; 2]);
    assert_eq!(told(r#"{"dashViewerLimit":0}"#), [true; 2]);
}

#[test]
fn checks_that_refuse() {
    let refusal = |rig: &mut Rig, change: fn(&mut PublishRequest)| {
        let mut request = rig.request("s", 0);
        change(&mut request);
        rig.ask(request).unwrap_err()
    };
    let mut rig = Rig::new();
    assert_eq!(refusal(&mut rig, |r| r.key = StreamKey::new("nope", "s")), Refusal::NoApplication);
    assert!(matches!(refusal(&mut rig, |r| r.key = StreamKey::new("live", "..")), Refusal::NotAllowed(_)));
    let mut rig = Rig::with(&[], &[("allowedPublisherCIDR", "10.0.0.0/8")]);
    assert!(matches!(refusal(&mut rig, |_| ()), Refusal::NotAllowed(_)));
    let mut rig = Rig::with(&[], &[("acceptOnlyStreamsInDataStore", "true")]);
    assert!(matches!(refusal(&mut rig, |_| ()), Refusal::NotAllowed(_)));
    rig.create("s");
    rig.publish("s", 0);
    let mut rig = Rig::with(&[], &[("ingestingStreamLimit", "1")]);
    rig.publish("other", 0);
    assert!(matches!(refusal(&mut rig, |_| ()), Refusal::NotAllowed(_)));
    let mut rig = Rig::with(&[], &[("publishTokenControlEnabled", "true")]);
    assert_eq!(refusal(&mut rig, |_| ()), Refusal::Denied(Denial::Token));
    let mut rig = Rig::new();
    rig.control.handle_host(
        rig.now,
        HostFigures { memory_percent: 90, ..HostFigures::default() },
        Vec::new(),
    );
    assert_eq!(refusal(&mut rig, |_| ()), Refusal::Resources);
}

#[test]
fn expiry_and_schedule() {
    let mut rig = Rig::new();
    let create = |rig: &mut Rig, body: String| {
        assert_eq!(rig.post("/live/rest/v2/broadcasts/create", &body).0, 200);
    };
    create(&mut rig, r#"{"streamId":"e","expireDurationMS":60000}"#.into());
    let start = START_MS / 1000 + 100;
    create(
        &mut rig,
        format!(r#"{{"streamId":"p","plannedStartDate":{start},"plannedEndDate":{}}}"#, start + 100),
    );
    let request = rig.request("p", 0);
    assert!(rig.ask(request).is_err());
    rig.run_for(secs(120));
    let request = rig.request("e", 0);
    assert!(rig.ask(request).is_err());
    rig.publish("p", 0);
}

#[test]
fn u_34_a_stream_that_comes_back_is_refused() {
    let mut rig = Rig::new();
    let mut request = rig.request("s", 0);
    request.via = vec!["node1/live/s".into()];
    assert_eq!(rig.ask(request).unwrap_err(), Refusal::Loop);
    let mut request = rig.request("s", 0);
    request.via = (0..8).map(|n| format!("n{n}/live/s")).collect();
    assert_eq!(rig.ask(request).unwrap_err(), Refusal::Loop);
    let mut request = rig.request("s", 0);
    request.via = vec!["node1/LiveApp/s".into(), "node2/live/s".into()];
    assert!(rig.ask(request).is_ok());
}

#[test]
fn stop_and_delete_end_the_stream_at_once() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.take();
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/stop", ""), (200, PLAIN.into()));
    assert_eq!(kinds(&rig.take()), ["0: down Stopped", "1: down Stopped"]);
    assert_eq!(rig.post("/live/rest/v2/broadcasts/s/stop", ""), (200, FAILED.into()));
    rig.publish("s", 0);
    rig.take();
    let deleted = r#"{"success":true,"message":"broadcast is deleted and stopped successfully","dataId":"","errorId":0}"#;
    assert_eq!(rig.call(Method::Delete, "/live/rest/v2/broadcasts/s", ""), (200, deleted.into()));
    assert_eq!(kinds(&rig.take()), ["0: down Deleted", "1: down Deleted"]);
    assert_eq!(rig.get("/live/rest/v2/broadcasts/s").0, 404);
}

#[test]
fn figures_come_from_reports() {
    let mut rig = Rig::new();
    let (session, stream) = rig.publish("s", 0);
    for second in 1..=4u64 {
        rig.run_for(secs(1));
        rig.report(0, stream, second * 125_000, 0, 2);
        rig.mail(ToControl::Report(WorkerId(1), Report { viewers: vec![(stream, 3)], ..Report::default() }));
    }
    let record = rig.record("s");
    assert_eq!(record["bitrate"], 1_000_000);
    assert_eq!(record["receivedBytes"], 500_000);
    assert_eq!((record["duration"].as_i64(), record["speed"].as_f64()), (Some(4000), Some(1.0)));
    assert_eq!((record["width"].as_i64(), record["height"].as_i64()), (Some(1280), Some(720)));
    assert_eq!(
        (record["rtmpViewerCount"].as_i64(), record["anyoneWatching"].as_bool()),
        (Some(5), Some(true))
    );
    // The bytes of an earlier publisher of the same stream are included.
    rig.gone(session, stream, Departure::Lost, 4000);
    rig.publish("s", 0);
    rig.run_for(secs(1));
    rig.report(0, stream, 1000, 0, 0);
    let record = rig.record("s");
    assert_eq!(
        (record["receivedBytes"].as_i64(), record["rtmpViewerCount"].as_i64()),
        (Some(501_000), Some(3))
    );
    rig.set(rig.now.mono + secs(20));
    assert_eq!(rig.record("s")["status"], "terminated_unexpectedly");
}

#[test]
fn q_04_a_wall_clock_that_is_set_changes_no_figure() {
    for by_ms in [3_600_000, -3_600_000, 1500, -1500] {
        let mut rig = Rig::new();
        let (_, stream) = rig.publish("s", 0);
        let began_ms = rig.now.wall_ms;
        for second in 1..=8u64 {
            rig.run_for(secs(1));
            // The wall clock is set twice, each time just before a report.
            if second % 3 == 0 {
                rig.shift_wall(by_ms);
            }
            assert_eq!(rig.record("s")["status"], "broadcasting", "{by_ms}: between two reports");
            rig.report(0, stream, second * 125_000, 0, 2);
            let record = rig.record("s");
            let figures = ["duration", "bitrate"].map(|name| record[name].as_u64().unwrap());
            assert_eq!(figures, [second * 1000, 1_000_000], "{by_ms}");
            assert_eq!((&record["speed"], &record["startTime"]), (&1.0.into(), &began_ms.into()), "{by_ms}");
            assert_eq!(record["updateTime"], rig.now.wall_ms, "a date");
        }
        // The detection of silence does not depend on the wall clock.
        rig.shift_wall(-by_ms);
        rig.set(rig.now.mono + secs(20));
        assert_eq!(rig.record("s")["status"], "terminated_unexpectedly", "{by_ms}");
    }
}

#[test]
fn a_publisher_that_returns_within_the_grace_counts_on() {
    let mut rig = Rig::new();
    let (session, stream) = rig.publish("s", 0);
    rig.run_for(secs(2));
    rig.gone(session, stream, Departure::Lost, 2000);
    rig.run_for(secs(1));
    rig.publish("s", 0);
    rig.run_for(secs(1));
    rig.report(0, stream, 1000, 0, 0);
    assert_eq!(rig.record("s")["duration"], 4000);
}

#[test]
fn a_report_without_viewers_takes_them_away_and_keeps_the_publisher_s_time() {
    let mut rig = Rig::new();
    let (_, stream) = rig.publish("s", 0);
    rig.publish("other", 1);
    rig.run_for(secs(1));
    rig.report(0, stream, 125_000, 0, 2);
    rig.mail(ToControl::Report(WorkerId(1), Report { viewers: vec![(stream, 3)], ..Report::default() }));
    let mut shown = |worker| {
        rig.run_for(secs(1));
        rig.mail(ToControl::Report(WorkerId(worker), Report::default()));
        let record = rig.record("s");
        (record["rtmpViewerCount"].as_i64().unwrap(), record["duration"].as_i64().unwrap())
    };
    assert_eq!(shown(0), (3, 2000));
    assert_eq!(shown(0), (3, 3000), "the publisher's worker has no viewers, and none to take away");
    assert_eq!(shown(1), (0, 3000), "the other worker's viewers alone");
}

#[test]
fn records_have_no_counts_of_viewers_where_they_are_not_wanted() {
    for (value, count) in [("true", 3), ("false", 0)] {
        let mut rig = Rig::with(&[], &[("writeStatsToDatastore", value)]);
        let (_, stream) = rig.publish("s", 0);
        rig.report(0, stream, 1000, 0, 3);
        let record = rig.record("s");
        assert_eq!((&record["rtmpViewerCount"], &record["height"]), (&count.into(), &720.into()), "{value}");
    }
}

#[test]
fn a_stream_above_the_limits_of_its_application_is_ended() {
    for (key, most, enough) in [
        ("maxResolutionAccept", "480", "720"),
        ("maxFpsAccept", "20", "30"),
        ("maxBitrateAccept", "100000", "240000"),
    ] {
        // The reported pictures have 720 lines and 1000 bytes each.
        let seconds_of = |value: &str| {
            let mut rig = Rig::with(&[], &[(key, value)]);
            rig.create("s");
            let (_, stream) = rig.publish("s", 0);
            let ended = (0..9).find(|second| {
                rig.report(0, stream, second * 30_000, 0, 0);
                rig.run_for(secs(1));
                rig.record("s")["status"] != "broadcasting"
            });
            let posted = kinds(&rig.take());
            let told = posted.iter().filter(|kind| kind.contains("down Unaccepted")).count();
            assert_eq!(told > 0, ended.is_some(), "{posted:?}");
            (ended, rig.record("s")["status"].clone())
        };
        let first = if key == "maxResolutionAccept" { 0 } else { 5 };
        assert_eq!(seconds_of(most), (Some(first), "failed".into()), "{key}");
        assert_eq!(seconds_of("0"), (None, "broadcasting".into()), "{key}");
        assert_eq!(seconds_of(enough), (None, "broadcasting".into()), "{key}");
    }
}

#[test]
fn draining_closes_everything_and_exits_once() {
    let mut rig = Rig::new();
    rig.create("s");
    rig.publish("s", 0);
    rig.publish("zombi", 1);
    rig.take();
    rig.hold = true;
    rig.control.drain(rig.now);
    rig.drain();
    let posted = kinds(&rig.take());
    assert_eq!(posted.iter().filter(|k| k.contains("down Drain")).count(), 4);
    assert_eq!(posted.iter().filter(|k| k.ends_with("Drain") && !k.contains("down")).count(), 2);
    let late = rig.request("late", 0);
    assert_eq!(rig.ask(late).unwrap_err(), Refusal::Draining);
    rig.mail(ToControl::Drained(WorkerId(0)));
    rig.mail(ToControl::Drained(WorkerId(1)));
    assert!(!rig.exited, "the store is not flushed yet");
    rig.release();
    assert!(rig.exited);
    let stored = rig.store.load().unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(Broadcast::decode(&stored[0].1).unwrap().status, "finished");
}
