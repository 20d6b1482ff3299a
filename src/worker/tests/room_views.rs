//! Views of rooms: which participant is shown to viewers that get a single stream, and which units they are sent.

use super::*;
use crate::mail::{Grant, PullOrder, PullState, StreamEnd};
use crate::protocol::outbound;
use crate::types::PullId;

const VIEW: StreamId = StreamId(99);

fn room() -> StreamKey {
    StreamKey::new("live", "room")
}

impl Rig {
    /// Adds a viewer that plays the room and takes whole units.
    fn plays_room(&mut self) -> (ConnId, Actor) {
        self.plays_room_as(&[])
    }

    fn plays_room_as(&mut self, params: &[(&str, &str)]) -> (ConnId, Actor) {
        let viewer = self.connect();
        viewer.1.script().room = Some(1000);
        let format = Format::find("flv", 0).unwrap();
        let params = params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (key, origin) = (room(), String::new());
        let ask = PlayAsk { key, format, params, origin, via: Vec::new(), takes_subtracks: false };
        self.say(viewer.0, &viewer.1, [Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask))]);
        viewer
    }

    fn told(&mut self) -> Vec<ToControl> {
        let told = self.outputs().into_iter();
        told.filter_map(|output| match output {
            Output::Control(mail) => Some(mail),
            _ => None,
        })
        .collect()
    }

    /// Makes control begin the view. Returns the view's session.
    fn begins_view(&mut self) -> ConnId {
        let target = outbound::view_of(&room()).unwrap();
        let order = PullOrder {
            pull: PullId(1),
            attempt: 1,
            key: room(),
            address: ([0, 0, 0, 0], 0).into(),
            target,
            lead: Duration::ZERO,
            skip: Duration::ZERO,
            via: Vec::new(),
        };
        self.worker.handle_mail(self.now, ToWorker::StartPull(Box::new(order)));
        self.worker.finish_turn();
        let told = self.told();
        let request = told.iter().find_map(|mail| match mail {
            ToControl::Publish(request) => Some(request.clone()),
            _ => None,
        });
        let request = request.expect("the view asks to publish");
        assert_eq!(
            (request.key, request.ingest, request.pull),
            (room(), Ingest::ROOM_VIEW, Some((PullId(1), 1)))
        );
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        self.view_up(Ingest::ROOM_VIEW);
        let position = media::Position::default();
        let verdict =
            Ok(Box::new(Grant { stream: VIEW, position, epoch: 0, zero_ms: 0, settings, standby: false }));
        let (conn, handle) = (request.session.conn, request.session.handle);
        self.worker.handle_mail(self.now, ToWorker::Verdict { conn, handle, verdict });
        self.worker.finish_turn();
        conn
    }

    fn view_up(&mut self, ingest: Ingest) {
        self.view_up_in(ingest, StreamDetails::default());
    }

    fn view_up_in(&mut self, ingest: Ingest, details: StreamDetails) {
        let (stream, source) = (VIEW, WorkerId(0));
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        let up = ToWorker::StreamUp { stream, key: room(), source, ingest, details, settings };
        self.worker.handle_mail(self.now, up);
        self.worker.finish_turn();
    }

    fn pictures(&mut self, of: &(ConnId, Actor), times: impl IntoIterator<Item = (i64, bool)>) {
        for (dts, key_frame) in times {
            self.now.mono += Duration::from_millis(40);
            self.worker.turn.now = self.now;
            self.say(of.0, &of.1, [video_frame(dts, key_frame)]);
            self.send();
        }
    }

    /// Lets all sinks take their units: the view takes those that were published, and the viewers take those that the
    /// view has made.
    fn send(&mut self) {
        for stream in [StreamId(11), StreamId(12), VIEW] {
            self.worker.live.flush_stream(&mut self.worker.turn, &mut self.worker.conns, stream);
            assert_eq!(self.worker.next_write(Writers::All), None);
            self.worker.finish_turn();
        }
    }

    fn down(&mut self, stream: u64) {
        let down = ToWorker::StreamDown { stream: StreamId(stream), end: StreamEnd::Unpublished };
        self.worker.handle_mail(self.now, down);
        self.worker.finish_turn();
    }
}

/// Returns the times of the units that a viewer got since the last call.
fn times(of: &(ConnId, Actor)) -> Vec<i64> {
    let units = of.1.replies().into_iter().filter_map(|reply| Some(reply.split_once(" of ")?.0.to_owned()));
    units.filter_map(|dts| dts.parse().ok()).collect()
}

#[test]
fn a_viewer_of_one_stream_follows_who_speaks_at_key_frames() {
    let mut rig = Rig::new();
    let (ann, ben) = (rig.participant(11, "ann"), rig.participant(12, "ben"));
    let watcher = rig.watcher();
    rig.outputs();
    let viewer = rig.plays_room();
    assert!(viewer.1.replies().iter().any(|reply| reply.contains("Held")));
    assert!(rig.told().iter().any(|mail| matches!(mail, ToControl::Wanted { key, .. } if *key == room())));
    watcher.1.replies();
    rig.begins_view();
    assert!(
        watcher.1.replies().iter().all(|reply| !reply.contains("Subtracks")),
        "who lists the streams does not hear of the view"
    );
    assert_eq!(rig.subscriber(viewer.0).stream, VIEW);
    rig.pictures(&ann, [(5_000, true), (5_040, false), (5_080, false)]);
    assert_eq!(times(&viewer), [0, 40, 80]);
    rig.pictures(&ben, [(30, true)]);
    ben.1.replies();
    // Another participant speaks. That participant must send a key frame first; until it arrives, the first
    // participant is shown.
    rig.speak(&ben, 30);
    rig.worker.handle_timeout(rig.now);
    rig.now.mono += Duration::from_secs(2);
    rig.worker.handle_timeout(rig.now);
    rig.worker.finish_turn();
    rig.pictures(&ben, [(70, false)]);
    assert!(ben.1.replies().iter().any(|reply| reply.contains("KeyFrameNeeded")));
    rig.pictures(&ann, [(5_120, false)]);
    assert_eq!(times(&viewer), [120]);
    rig.pictures(&ben, [(110, true), (150, false)]);
    let shown = times(&viewer);
    assert_eq!(shown.len(), 2);
    assert!(shown[0] > 3_000 && shown[1] == shown[0] + 40, "on the clock of arrival: {shown:?}");
    rig.pictures(&ann, [(5_160, true)]);
    assert!(times(&viewer).is_empty(), "no longer shown");
    // The participant that is shown leaves. The other one is shown then, beginning with its newest key frame.
    rig.down(12);
    rig.pictures(&ann, [(5_200, false)]);
    let shown = times(&viewer);
    assert_eq!(shown.len(), 2);
    assert!(shown[1] == shown[0] + 40, "{shown:?}");
    rig.outputs();
    rig.down(11);
    assert!(rig.told().iter().any(|mail| matches!(mail, ToControl::Pull { state: PullState::Over(_), .. })));
    assert!(watcher.1.replies().iter().any(|reply| reply.contains("Ended")), "the room is over for all");
}

#[test]
fn a_publisher_of_the_rooms_name_takes_the_view_over() {
    let mut rig = Rig::new();
    rig.participant(11, "ann");
    let (watcher, viewer) = (rig.watcher(), rig.plays_room());
    rig.begins_view();
    watcher.1.replies();
    rig.view_up(Ingest { publish_type: "RTMP", name: "rtmp" });
    assert!(watcher.1.replies().iter().any(|reply| reply.contains("Came") && reply.contains("\"room\"")));
    assert_eq!(rig.subscriber(viewer.0).stream, VIEW, "the viewer stays");
}

#[test]
fn a_view_of_nothing_is_over_at_once() {
    let mut rig = Rig::new();
    rig.participant(11, "ann");
    rig.down(11);
    rig.outputs();
    let order = PullOrder {
        pull: PullId(1),
        attempt: 1,
        key: room(),
        address: ([0, 0, 0, 0], 0).into(),
        target: outbound::view_of(&room()).unwrap(),
        lead: Duration::ZERO,
        skip: Duration::ZERO,
        via: Vec::new(),
    };
    rig.worker.handle_mail(rig.now, ToWorker::StartPull(Box::new(order)));
    rig.worker.finish_turn();
    assert!(rig.told().iter().any(|mail| matches!(mail, ToControl::Pull { state: PullState::Over(_), .. })));
}

#[test]
fn a_viewer_with_a_role_that_sees_nobody_is_not_sent_the_view() {
    let mut rig = Rig::new();
    rig.participant(11, "ann");
    let before = rig.plays_room_as(&[("role", "speaker")]);
    rig.begins_view();
    let later = rig.plays_room_as(&[("role", "speaker")]);
    for viewer in [before, later] {
        let replies = viewer.1.replies();
        assert!(replies.iter().any(|reply| reply.contains("NotFound")), "{replies:?}");
    }
    let viewer = rig.plays_room();
    assert_eq!(rig.subscriber(viewer.0).stream, VIEW);
}

#[test]
fn a_view_of_a_room_within_a_room_is_in_neither() {
    let (mut rig, above) = (Rig::new(), StreamKey::new("live", "above"));
    rig.participant(11, "ann");
    let details = || StreamDetails { main_track: Some("above".into()), ..StreamDetails::default() };
    for _ in 0..3 {
        rig.view_up_in(Ingest::ROOM_VIEW, details());
        assert!(!rig.worker.live.is_room(&above), "a view is no participant");
        rig.down(VIEW.0);
        assert!(!rig.worker.live.is_room(&above), "nor is one that is over");
    }
    // A publisher takes over the view's name. The stream is then no longer a view, so it belongs to the main track in
    // its record.
    rig.view_up_in(Ingest::ROOM_VIEW, details());
    rig.view_up_in(Ingest { publish_type: "RTMP", name: "rtmp" }, details());
    assert!(rig.worker.live.is_room(&above));
    rig.down(VIEW.0);
    assert!(!rig.worker.live.is_room(&above));
}

#[test]
fn script_data_of_who_is_shown_reaches_the_viewers_of_the_room() {
    let mut rig = Rig::new();
    let ann = rig.participant(11, "ann");
    let viewer = rig.plays_room();
    rig.begins_view();
    rig.pictures(&ann, [(5_000, true), (5_040, false)]);
    assert_eq!(times(&viewer), [0, 40]);
    let payload = Bytes::from_static(b"cue");
    let unit = AccessUnit {
        track: TrackId::DATA,
        dts: 5_050,
        pts: 5_050,
        key_frame: false,
        config_epoch: 0,
        payload,
    };
    let cue = PublicationEvent::Unit { unit, tracks: video_tracks() };
    rig.say(ann.0, &ann.1, [Event::Publication(Handle::ONLY, cue)]);
    rig.send();
    assert_eq!(times(&viewer), [50]);
}
