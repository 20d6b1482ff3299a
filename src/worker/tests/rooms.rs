//! Rooms: which sessions are notified of speakers, and which sessions get a message.

use super::*;
use crate::mail::{DataSender, Message, StreamData};
use crate::protocol::FamilyEvent;

impl Rig {
    /// Adds a stream of `live/room` that a session of this worker publishes.
    pub(super) fn participant(&mut self, number: u64, id: &str) -> (ConnId, Actor) {
        let stream = StreamId(number);
        self.up(number, id, "");
        let (conn, actor) = self.connect();
        let publication = Publication { handle: Handle::ONLY, stream: Some(stream) };
        self.worker.conns.get_mut(conn).unwrap().publications.push(publication);
        let publisher = Some(SessionRef::new(self.worker.turn.id, conn));
        self.worker.live.sources.insert(stream, SourceCount { publisher, ..SourceCount::default() });
        (conn, actor)
    }

    /// Sets or changes the record of a stream of `live/room`.
    fn up(&mut self, number: u64, id: &str, role: &str) {
        let (stream, settings) = (StreamId(number), Arc::new(AppSettings::defaults("live").unwrap()));
        let details =
            StreamDetails { main_track: Some("room".into()), role: role.into(), ..StreamDetails::default() };
        let (key, source, ingest) = (StreamKey::new("live", id), WorkerId(0), Ingest::PULL);
        let up = ToWorker::StreamUp { stream, key, source, ingest, details, settings };
        self.worker.handle_mail(self.now, up);
    }

    pub(super) fn watcher(&mut self) -> (ConnId, Actor) {
        self.watcher_as("")
    }

    fn watcher_as(&mut self, role: &str) -> (ConnId, Actor) {
        let (conn, actor) = self.connect();
        self.worker.live.watch_room(
            &mut self.worker.turn,
            &mut self.worker.conns,
            conn,
            Handle::ONLY,
            &StreamKey::new("live", "room"),
            role,
        );
        (conn, actor)
    }

    /// Makes a publisher report this loudness, one second later.
    pub(super) fn speak(&mut self, (id, actor): &(ConnId, Actor), level: u8) {
        self.now.mono += Duration::from_secs(1);
        self.worker.turn.now = self.now;
        self.say(*id, actor, [Event::Publication(Handle::ONLY, PublicationEvent::Loudness(level))]);
    }
}

/// Returns the news about speakers that a session got: ids with levels.
fn speakers(of: &(ConnId, Actor)) -> Vec<String> {
    let told = of.1.replies().into_iter().filter(|reply| reply.contains("Loudness"));
    let named = |reply: &String| {
        let id =
            reply.split("id: \"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("?").to_owned();
        let level: String = reply
            .chars()
            .rev()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        format!("{id} {}", level.chars().rev().collect::<String>())
    };
    told.map(|reply| named(&reply)).collect()
}

#[test]
fn viewers_of_a_room_hear_who_speaks_on_every_worker() {
    let mut rig = Rig::new();
    let (ann, ben) = (rig.participant(11, "ann"), rig.participant(12, "ben"));
    let (watcher, stranger) = (rig.watcher(), rig.connect());
    rig.outputs();
    rig.speak(&ann, 30);
    rig.speak(&ben, 90);
    assert_eq!(speakers(&watcher), ["ann 30"]);
    assert!(speakers(&stranger).is_empty() && speakers(&ann).is_empty());
    // Every other worker gets all levels, so it makes the same decisions.
    let mail: Vec<(StreamId, u8)> = rig
        .outputs()
        .into_iter()
        .filter_map(|output| {
            let Output::Others(ToWorker::Loudness { stream, level }) = output else { return None };
            Some((stream, level))
        })
        .collect();
    assert_eq!(mail, [(StreamId(11), 30), (StreamId(12), 90)]);
    // A viewer that joins later is notified of the current speakers.
    let late = rig.watcher();
    assert_eq!(speakers(&late), ["ann 30"]);
    rig.speak(&ann, 127);
    assert_eq!(
        (speakers(&watcher), speakers(&late)),
        (vec!["ann 127".to_owned()], vec!["ann 127".to_owned()])
    );
    // A speaker that leaves stops speaking.
    rig.speak(&ben, 20);
    rig.worker.handle_mail(
        rig.now,
        ToWorker::StreamDown { stream: StreamId(12), end: crate::mail::StreamEnd::Stopped },
    );
    assert!(rig.watcher().1.replies().iter().all(|reply| !reply.contains("Loudness")));
}

#[test]
fn the_loudness_of_a_stream_without_a_room_costs_nobody_a_message() {
    let mut rig = Rig::new();
    let publisher = rig.publisher();
    rig.outputs();
    rig.speak(&publisher, 20);
    assert!(!rig.outputs().iter().any(|output| matches!(output, Output::Others(_))));
}

/// A message to a room reaches all its publishers and watchers. A message to a stream reaches the stream's viewers
/// and the watchers of its room.
#[test]
fn messages_of_rooms_reach_all_who_are_in_them_once() {
    let mut rig = Rig::new();
    let (ann, ben) = (rig.participant(11, "ann"), rig.participant(12, "ben"));
    let (first, second, stranger) = (rig.watcher(), rig.watcher(), rig.connect());
    let all = [&ann, &ben, &first, &second, &stranger];
    let heard =
        || all.map(|one| one.1.replies().iter().filter(|reply| reply.starts_with("Family(Message")).count());
    let tell = |id: &str| {
        let (stream, message) = (StreamKey::new("live", id), Message::new("hello".to_owned()));
        Event::Family(FamilyEvent::TellStream { stream, message })
    };
    heard();
    rig.say(first.0, &first.1, [tell("room")]);
    assert_eq!(heard(), [1, 1, 0, 1, 0]);
    rig.say(ann.0, &ann.1, [tell("ann")]);
    assert_eq!(heard(), [0, 0, 1, 1, 0]);
    rig.say(stranger.0, &stranger.1, [tell("nothing")]);
    assert_eq!(heard(), [0; 5]);
}

/// The small messages of many viewers are limited together, like the flood of a single viewer.
#[test]
fn the_viewers_of_a_room_are_no_flood_together() {
    let mut rig = Rig::new();
    let ann = rig.participant(11, "ann");
    let viewers: Vec<(ConnId, Actor)> = (0..30).map(|_| rig.watcher()).collect();
    let data = StreamData {
        sender: DataSender::Viewer { to_viewers: false },
        stream: "room".into(),
        is_text: true,
        payload: Bytes::from_static(&[0; 1536]),
    };
    let heard = |of: &(ConnId, Actor)| {
        of.1.replies().iter().filter(|reply| reply.starts_with("Family(Message")).count()
    };
    heard(&ann);
    for (id, actor) in viewers.iter().cycle().take(1000) {
        let (stream, message) = (StreamKey::new("live", "room"), Message::new(data.clone()));
        rig.say(*id, actor, [Event::Family(FamilyEvent::TellStream { stream, message })]);
    }
    assert_eq!(heard(&ann), 512, "a megabyte of 2048 bytes each");
    // A message that was dropped is not sent to other workers either.
    let mail = rig.outputs();
    assert_eq!(mail.iter().filter(|output| matches!(output, Output::Others(_))).count(), 512);
}

/// Returns the streams of which a session was notified. A sign says how: `=` was there from the beginning, `+` came,
/// `-` left, `*` changed its role.
fn streams(of: &(ConnId, Actor)) -> Vec<String> {
    let signs = [
        ("Subtracks(Room(", '='),
        ("Subtracks(Came(", '+'),
        ("Subtracks(Left(", '-'),
        ("Subtracks(Role ", '*'),
    ];
    let named = |reply: String| {
        let sign = signs.iter().find(|(news, _)| reply.contains(news)).map(|(_, sign)| *sign)?;
        let ids = reply.split("id: \"").skip(1).filter_map(|rest| rest.split('"').next());
        Some(ids.map(|id| format!("{sign}{id}")).collect::<Vec<_>>())
    };
    of.1.replies().into_iter().filter_map(named).flatten().collect()
}

#[test]
fn roles_say_who_sees_whom_while_they_are_live() {
    let mut rig = Rig::new();
    for (number, id, role) in [(11, "ann", "speaker"), (12, "ben", "attendee"), (13, "cat", "")] {
        rig.up(number, id, role);
    }
    let viewers = ["speaker", "attendee", "", "stranger"].map(|role| rig.watcher_as(role));
    let told = || viewers.each_ref().map(streams);
    let of =
        |lists: [&[&str]; 4]| lists.map(|list| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
    assert_eq!(told(), of([&["=ann"], &["=ann"], &["=cat"], &["=cat"]]));
    // Viewers are notified when a participant becomes visible to them. They are not notified of the role of a
    // participant that they may not see.
    rig.up(12, "ben", "active_attendee");
    assert_eq!(told(), of([&["+ben"], &["+ben"], &[], &[]]));
    rig.up(12, "ben", "speaker");
    assert_eq!(told(), of([&["*ben"], &["*ben"], &[], &[]]));
    rig.up(12, "ben", "");
    assert_eq!(told(), of([&["-ben"], &["-ben"], &["+ben"], &["+ben"]]));
    rig.up(14, "dan", "attendee");
    assert_eq!(told(), of([&[], &[], &[], &[]]));
    // The operator changes the visibility matrix.
    let all = AppSettings::with("live", &[("participantVisibilityMatrix", "{}")]).unwrap();
    rig.worker.handle_mail(rig.now, ToWorker::App(Arc::new(all)));
    assert_eq!(
        told(),
        of([&["+ben", "+cat", "+dan"], &["+ben", "+cat", "+dan"], &["+ann", "+dan"], &["+ann", "+dan"]])
    );
    let none = AppSettings::with("live", &[("participantVisibilityMatrix", r#"{"default":[]}"#)]).unwrap();
    rig.worker.handle_mail(rig.now, ToWorker::App(Arc::new(none)));
    assert!(told().iter().all(|told| *told == ["-ann", "-ben", "-cat", "-dan"]), "{:?}", told());
}

#[test]
fn a_viewer_of_another_protocol_is_given_a_stream_that_it_sees() {
    let mut rig = Rig::new();
    rig.up(11, "ann", "speaker");
    rig.up(12, "cat", "");
    rig.up(13, "dan", "attendee");
    let mut plays = |role: &str| {
        let viewer = rig.connect();
        let (key, params) = (StreamKey::new("live", "room"), vec![("role".to_owned(), role.to_owned())]);
        let format = Format::find("flv", 0).unwrap();
        let ask =
            PlayAsk { key, format, params, origin: String::new(), via: Vec::new(), takes_subtracks: false };
        rig.say(viewer.0, &viewer.1, [Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask))]);
        rig.subscriber(viewer.0).stream
    };
    assert_eq!([plays("speaker"), plays("stranger")], [StreamId(11), StreamId(12)]);
}

impl Rig {
    /// A publisher sends a stream under the name of the main track.
    fn own_of_room(&mut self) {
        let (key, settings) =
            (StreamKey::new("live", "room"), Arc::new(AppSettings::defaults("live").unwrap()));
        let (source, ingest, details) = (WorkerId(0), Ingest::PULL, StreamDetails::default());
        let up = ToWorker::StreamUp { stream: StreamId(10), key, source, ingest, details, settings };
        self.worker.handle_mail(self.now, up);
    }

    /// A viewer that takes subtracks plays the main track.
    fn plays_main_track(&mut self, role: &str) -> (ConnId, Actor) {
        let viewer = self.connect();
        let (key, params) = (StreamKey::new("live", "room"), vec![("role".to_owned(), role.to_owned())]);
        let format = Format::find("flv", 0).unwrap();
        let ask =
            PlayAsk { key, format, params, origin: String::new(), via: Vec::new(), takes_subtracks: true };
        self.say(viewer.0, &viewer.1, [Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask))]);
        viewer
    }
}

#[test]
fn a_viewer_of_a_main_tracks_own_stream_watches_it_with_the_first_subtrack_that_it_sees() {
    let mut rig = Rig::new();
    rig.own_of_room();
    let (anybody, attendee) = (rig.plays_main_track(""), rig.plays_main_track("attendee"));
    rig.up(11, "guest", "");
    assert_eq!(
        (streams(&anybody), streams(&attendee)),
        (vec!["=room".to_owned(), "=guest".to_owned()], vec![])
    );
    assert_eq!(rig.subscriber(attendee.0).stream, StreamId(10), "it plays on");
    rig.up(12, "other", "");
    assert_eq!((streams(&anybody), streams(&attendee)), (vec!["+other".to_owned()], vec![]));
    rig.up(12, "other", "speaker");
    assert_eq!(
        (streams(&anybody), streams(&attendee)),
        (vec!["-other".to_owned()], vec!["=other".to_owned()])
    );
}

#[test]
fn another_matrix_makes_viewers_of_a_main_tracks_own_stream_watch_it() {
    let mut rig = Rig::new();
    let matrix = |rig: &mut Rig, text: &str| {
        let app = AppSettings::with("live", &[("participantVisibilityMatrix", text)]).unwrap();
        rig.worker.handle_mail(rig.now, ToWorker::App(Arc::new(app)));
    };
    matrix(&mut rig, r#"{"default":[]}"#);
    rig.own_of_room();
    let viewer = rig.plays_main_track("attendee");
    rig.up(11, "guest", "");
    assert_eq!(streams(&viewer), [""; 0]);
    matrix(&mut rig, "{}");
    assert_eq!(streams(&viewer), ["=room", "=guest"]);
}
