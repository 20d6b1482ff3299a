//! Playlists: the choice of the next item, and its time.

use super::*;
use crate::control::broadcast::Broadcast;
use crate::directory::News;
use crate::store;

/// Reports the end of an item after `ms` of media, none of it played yet.
fn played(ms: u64) -> PullState {
    PullState::Lost { reason: "the file ended".to_owned(), ahead: Duration::from_millis(ms) }
}

fn list(id: &str, urls: &[&str], more: &str) -> String {
    let items: Vec<String> = urls.iter().map(|url| format!(r#"{{"streamUrl":"{url}"}}"#)).collect();
    format!(r#"{{"streamId":"{id}","type":"playlist","playListItemList":[{}]{more}}}"#, items.join(","))
}

const ITEMS: [&str; 3] =
    ["http://198.51.100.1/a.mp4", "http://198.51.100.1/b.mp4", "http://198.51.100.1/c.mp4"];

impl Rig {
    fn playlist(&mut self, id: &str, urls: &[&str], more: &str) {
        assert_eq!(self.post(&format!("{BROADCASTS}/create"), &list(id, urls, more)).0, 200);
    }

    /// Returns the order for an item, recognised by the last part of its path.
    fn item(&mut self, wanted: &str) -> (WorkerId, PullOrder) {
        let (worker, order) = self.pull();
        let asked = request_text(&order.target);
        assert!(asked.contains(wanted), "{wanted}: {asked}");
        (worker, order)
    }

    /// Delivers an item and ends it.
    fn plays(&mut self, (worker, order): (WorkerId, PullOrder), ahead_ms: u64) -> StreamId {
        let (session, grant) = self.delivers(worker, &order).unwrap();
        self.take();
        self.gone(session, grant.stream, Departure::Lost, 1000);
        self.pull_news(order.pull, order.attempt, played(ahead_ms));
        grant.stream
    }

    fn next(&mut self, id: &str, query: &str) -> (u16, String) {
        self.post(&format!("{BROADCASTS}/playlists/{id}/next{query}"), "")
    }

    fn index(&mut self, id: &str) -> (Option<i64>, String) {
        let record = self.record(id);
        (record["currentPlayIndex"].as_i64(), record["playListStatus"].as_str().unwrap_or("null").to_owned())
    }
}

#[test]
fn items_follow_each_other_on_one_stream_and_begin_anew() {
    let mut rig = Rig::new();
    rig.playlist("p", &ITEMS, "");
    assert_eq!(rig.op("p", "start"), ok("p"));
    assert_eq!(rig.op("p", "start"), (200, failure("Playlist is already running for stream:p")));
    let mut streams = Vec::new();
    for (round, wanted) in ["/a.mp4", "/b.mp4", "/c.mp4", "/a.mp4"].into_iter().enumerate() {
        let item = rig.item(wanted);
        assert_eq!(rig.index("p"), (Some((round % 3) as i64), "broadcasting".into()));
        let lead = if round == 0 { 0 } else { 8000 };
        assert_eq!(item.1.lead, ms(lead), "not read faster than the stream is seen");
        rig.run_for(ms(500));
        streams.push(rig.plays(item, 8000));
    }
    assert!(streams.iter().all(|stream| *stream == streams[0]), "the stream stays: {streams:?}");
    rig.take();
    assert_eq!(rig.op("p", "stop"), (200, PLAIN.into()));
    assert_eq!(rig.index("p"), (Some(1), "finished".into()));
    assert_eq!(rig.state("p"), "finished");
    // The playlist continues at the item at which it stopped.
    assert_eq!(rig.op("p", "start"), ok("p"));
    rig.item("/b.mp4");
}

#[test]
fn without_a_loop_the_end_of_the_list_is_the_end() {
    let mut rig = Rig::new();
    rig.playlist("p", &ITEMS[..2], r#","playlistLoopEnabled":false"#);
    rig.op("p", "start");
    for wanted in ["/a.mp4", "/b.mp4"] {
        let item = rig.item(wanted);
        rig.plays(item, 60_000);
    }
    assert_eq!((rig.state("p"), rig.index("p")), ("finished".into(), (Some(0), "finished".into())));
    assert!(rig.pulls().is_empty());
    assert_eq!((rig.control.stats().pulls, rig.control.stats().live), (0, 0));
    rig.run_for(secs(60));
    assert_eq!(rig.control.poll_timeout(), None, "nothing waits");
}

#[test]
fn items_that_bring_nothing_are_passed_over_and_then_waited_for() {
    let mut rig = Rig::with(&[("outbound.deny", "10.0.0.0/8")], &[]);
    // Two items that cannot even be requested are skipped without an attempt.
    let items = ["http://10.0.0.1/x.mp4", ITEMS[0], "gopher://h/", ITEMS[1]];
    rig.playlist("p", &items, "");
    rig.op("p", "start");
    let (_, order) = rig.item("/a.mp4");
    rig.pull_news(order.pull, order.attempt, PullState::Failed("404".into()));
    let (worker, order) = rig.item("/b.mp4");
    // An item with less than a second of media counts as failed.
    let (session, grant) = rig.delivers(worker, &order).unwrap();
    rig.take();
    rig.gone(session, grant.stream, Departure::Lost, 40);
    rig.pull_news(order.pull, order.attempt, played(40));
    let mut item = rig.item("/a.mp4");
    for round in 0..6 {
        rig.pull_news(item.1.pull, item.1.attempt, PullState::Failed("404".into()));
        if round >= 1 {
            assert!(rig.pulls().is_empty(), "all have failed: round {round}");
            assert_eq!(rig.state("p"), "finished");
            rig.run_for(secs(4));
        }
        item = rig.item(if round % 2 == 0 { "/b.mp4" } else { "/a.mp4" });
    }
    // Once an item plays, the next failure of an item is again followed by the next item without a pause.
    rig.plays(item, 5000);
    let (_, order) = rig.item("/b.mp4");
    rig.pull_news(order.pull, order.attempt, PullState::Failed("404".into()));
    rig.item("/a.mp4");
}

#[test]
fn a_list_without_anything_to_play_is_not_started() {
    let mut rig = Rig::with(&[("outbound.deny", "10.0.0.0/8")], &[]);
    rig.playlist("e", &[], "");
    assert_eq!(rig.op("e", "start"), (200, failure("There is no playlist  for stream id:e")));
    rig.playlist("d", &["http://10.0.0.1/x.mp4", "file:///etc/passwd"], "");
    assert_eq!(rig.op("d", "start"), (200, FAILED.into()));
    assert_eq!(rig.state("d"), "finished");
    assert!(rig.pulls().is_empty());
    // An item added during playback is played, and the list ends after it.
    rig.playlist("p", &ITEMS[..1], "");
    rig.op("p", "start");
    let item = rig.item("/a.mp4");
    rig.put(
        "p",
        &format!(r#"{{"playListItemList":[{{"streamUrl":"{}"}},{{"streamUrl":"{}"}}]}}"#, ITEMS[0], ITEMS[2]),
    );
    assert!(rig.pulls().is_empty(), "what plays goes on");
    rig.plays(item, 5000);
    let item = rig.item("/c.mp4");
    rig.put("p", r#"{"playListItemList":[]}"#);
    rig.plays(item, 5000);
    assert_eq!((rig.state("p"), rig.control.stats().pulls), ("finished".into(), 0));
}

#[test]
fn the_next_item_begins_when_it_is_asked_for() {
    let mut rig = Rig::new();
    rig.playlist("p", &ITEMS, "");
    assert_eq!(rig.next("p", ""), (200, failure("No active playlist for id:p. Start the playlist first")));
    rig.op("p", "start");
    let (worker, order) = rig.item("/a.mp4");
    rig.delivers(worker, &order).unwrap();
    rig.take();
    assert_eq!(rig.next("p", "?index=2"), ok("p"));
    let posted = rig.take();
    assert_eq!(kinds(&posted), [format!("{}: stop pull", worker.0), format!("{}: pull 2", worker.0)]);
    assert_eq!(rig.index("p").0, Some(2));
    let ToWorker::StartPull(order) = &posted[1].1 else { panic!() };
    assert_eq!(order.lead, secs(2), "leaps do not put the stream further and further ahead");
    assert_eq!(rig.next("p", "?index=-1"), ok("p"));
    assert_eq!(rig.item("/a.mp4").1.lead, secs(2), "nothing has come since");
    assert_eq!(rig.next("p", ""), ok("p"));
    rig.item("/b.mp4");
    let text = "Index is out of the list. Please specify the correct index";
    assert_eq!(rig.next("p", "?index=3"), (200, failure(text)));
    // Late reports of the former item change nothing.
    rig.pull_news(order.pull, order.attempt, played(9));
    assert!(rig.pulls().is_empty());
}

#[test]
fn a_file_is_entered_where_it_is_asked_for() {
    let mut rig = Rig::new();
    rig.playlist("p", &ITEMS[..1], r#","seekTimeInMs":7"#);
    rig.put("p", &format!(r#"{{"playListItemList":[{{"streamUrl":"{}","seekTimeInMs":1500}}]}}"#, ITEMS[0]));
    rig.op("p", "start");
    assert_eq!(rig.item("/a.mp4").1.skip, ms(1500));
    let seek = |rig: &mut Rig, id: &str, ms: &str| {
        rig.call(Method::Put, &format!("{BROADCASTS}/{id}/seek-time/{ms}"), "")
    };
    assert_eq!(seek(&mut rig, "p", "60000"), (200, PLAIN.into()));
    let item = rig.item("/a.mp4");
    assert_eq!((item.1.skip, item.1.lead), (secs(60), Duration::ZERO), "nothing has come of it yet");
    rig.plays(item, 5000);
    assert_eq!(rig.item("/a.mp4").1.skip, ms(1500), "once");
    // A record created and started with the URL of a file becomes a VoD source.
    rig.source("v", ITEMS[1]);
    assert_eq!((rig.pull().1.skip, rig.record("v")["type"].as_str()), (Duration::ZERO, Some("VoD")));
    assert_eq!(seek(&mut rig, "v", "-5"), (200, PLAIN.into()));
    assert_eq!(rig.pull().1.skip, Duration::ZERO);
    rig.source("s", URL);
    let refused =
        "Not active stream source found with this id: s make sure you give the id of a running stream source";
    assert_eq!(seek(&mut rig, "s", "1"), (200, failure(refused)));
}

#[test]
fn a_playlist_begins_at_its_planned_time() {
    let mut rig = Rig::new();
    let wall = rig.now.wall_ms / 1000;
    let at = |rig: &mut Rig, seconds: u64| {
        rig.put("p", &format!(r#"{{"plannedStartDate":{}}}"#, wall + seconds));
    };
    rig.playlist("p", &ITEMS, &format!(r#","plannedStartDate":{}"#, wall + 100));
    rig.run_for(secs(90));
    assert!(rig.pulls().is_empty());
    at(&mut rig, 200);
    rig.run_for(secs(50));
    assert!(rig.pulls().is_empty(), "put off");
    rig.run_for(secs(65));
    rig.item("/a.mp4");
    assert_eq!(rig.index("p"), (Some(0), "broadcasting".into()));
    rig.op("p", "stop");
    at(&mut rig, 400);
    at(&mut rig, 0);
    rig.take();
    rig.run_for(secs(300));
    assert!(rig.pulls().is_empty(), "a time that has passed plans nothing");
    assert_eq!(rig.control.poll_timeout(), None, "nothing waits");
}

#[test]
fn b_34_a_playlist_without_room_at_its_planned_time_begins_when_there_is_some() {
    let mut rig = Rig::with(&[], &[("ingestingStreamLimit", "1")]);
    let wall = rig.now.wall_ms / 1000;
    rig.source("a", URL);
    for id in ["p", "q"] {
        rig.playlist(id, &ITEMS, &format!(r#","plannedStartDate":{}"#, wall + 100));
    }
    rig.run_for(secs(120));
    rig.take();
    assert_eq!(rig.op("q", "stop"), stopped());
    rig.op("a", "stop");
    rig.run_for(secs(2));
    rig.item("/a.mp4");
    rig.op("p", "stop");
    rig.run_for(secs(20));
    assert!(rig.pulls().is_empty(), "what was stopped while it waited");
}

#[test]
fn b_34_a_playlist_that_waits_for_room_waits_for_the_new_time_when_it_is_planned_anew() {
    let mut rig = Rig::with(&[], &[("ingestingStreamLimit", "1")]);
    let wall = rig.now.wall_ms / 1000;
    rig.source("a", URL);
    rig.playlist("p", &ITEMS, &format!(r#","plannedStartDate":{}"#, wall + 100));
    rig.run_for(secs(120));
    rig.put("p", &format!(r#"{{"plannedStartDate":{}}}"#, wall + 200));
    rig.op("a", "stop");
    rig.take();
    rig.run_for(secs(60));
    assert!(rig.pulls().is_empty());
    rig.run_for(secs(40));
    rig.item("/a.mp4");
}

#[test]
fn a_viewer_starts_a_playlist_and_the_last_one_s_leaving_stops_it() {
    let mut rig = Rig::new();
    rig.playlist("p", &ITEMS, r#","autoStartStopEnabled":true"#);
    rig.take();
    rig.mail(ToControl::Wanted { key: StreamKey::new("live", "p"), via: Vec::new() });
    rig.item("/a.mp4");
    rig.run_for(secs(12));
    assert_eq!((rig.state("p"), rig.index("p")), ("finished".into(), (Some(0), "finished".into())));
}

#[test]
fn the_status_of_a_playlist_is_that_of_the_node_that_plays_it() {
    let mut rig = Rig::with_directory(&[]);
    rig.playlist("p", &ITEMS, "");
    // If two nodes start the playlist, only one gets the id. The other must not mark the playlist as finished.
    rig.op("p", "start");
    rig.claim_answer(rig.last_claim().0, false);
    assert_eq!(rig.index("p"), (Some(0), "broadcasting".into()));
    let mut rig = Rig::with_directory(&[]);
    rig.playlist("p", &ITEMS, "");
    rig.op("p", "start");
    rig.claim_answer(rig.last_claim().0, true);
    let item = rig.item("/a.mp4");
    rig.plays(item, 0);
    let key = StreamKey::new("live", "p");
    let record = rig.control.records.get(&key).unwrap().clone();
    let other = Broadcast { play_list_status: Some("finished".into()), current_play_index: 2, ..record };
    rig.tell_news(News::Foreign(vec![store::Op::Put(key.into(), other.encode())]));
    assert_eq!(rig.index("p"), (Some(1), "broadcasting".into()));
}
