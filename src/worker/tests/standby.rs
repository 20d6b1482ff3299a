//! Standbys on a worker: what is retained, who yields, and what is appended after a takeover.

use super::*;
use crate::mail::{Grant, Message, Seam};
use crate::protocol::FamilyEvent;

/// Silence after which a publisher yields, in milliseconds; not the default.
const AFTER_MS: u64 = 300;

struct Pair {
    rig: Rig,
    first: (ConnId, Actor),
    second: (ConnId, Actor),
}

impl Pair {
    /// Makes a worker with a publisher and a standby of the same stream.
    fn new() -> Self {
        let settings = AppSettings::with("live", &[("standbyAfterMs", &AFTER_MS.to_string())]).unwrap();
        let mut rig = Rig::new();
        // The stream keeps the settings with which it began.
        rig.worker.live.streams.get_mut(&STREAM).unwrap().settings = Arc::new(settings.clone());
        let first = rig.publisher();
        let second = rig.connect();
        let publication = Publication { handle: Handle::ONLY, stream: None };
        rig.worker.conns.get_mut(second.0).unwrap().publications.push(publication);
        let position = media::Position::default();
        let settings = Arc::new(settings);
        let grant = Grant { stream: STREAM, position, epoch: 0, zero_ms: 0, settings, standby: true };
        let (conn, handle, verdict) = (second.0, Handle::ONLY, Ok(Box::new(grant)));
        rig.worker.handle_mail(rig.now, ToWorker::Verdict { conn, handle, verdict });
        Self { rig, first, second }
    }

    fn session(&self, id: ConnId) -> SessionRef {
        SessionRef::new(self.rig.worker.turn.id, id)
    }

    fn first_sends(&mut self, dts: i64, key_frame: bool) {
        let (id, actor) = self.first.clone();
        self.rig.say(id, &actor, [video_frame(dts, key_frame)]);
    }

    fn second_sends(&mut self, dts: i64, key_frame: bool) {
        let (id, actor) = self.second.clone();
        self.rig.say(id, &actor, [video_frame(dts, key_frame)]);
    }

    fn pass(&mut self, ms: u64) {
        self.rig.now.mono += Duration::from_millis(ms);
        self.rig.worker.turn.now = self.rig.now;
        self.rig.worker.handle_timeout(self.rig.now);
        self.rig.worker.finish_turn();
    }

    /// Tells the worker whether the standby sends, as control does.
    fn tell(&mut self, has_standby: bool) {
        let settings = self.rig.worker.live.streams[&STREAM].settings.clone();
        let (key, source, ingest) = (StreamKey::new("live", "s"), WorkerId(0), Ingest::PULL);
        let details = StreamDetails { has_standby, ..StreamDetails::default() };
        let up = ToWorker::StreamUp { stream: STREAM, key, source, ingest, details, settings };
        self.rig.worker.handle_mail(self.rig.now, up);
    }

    fn told(&mut self) -> Vec<ToControl> {
        let control = |output| match output {
            Output::Control(mail) => Some(mail),
            _ => None,
        };
        self.rig.outputs().into_iter().filter_map(control).collect()
    }

    /// Returns the seams of publishers that have yielded, each with the session.
    fn yielded(&mut self) -> Vec<(SessionRef, Seam)> {
        let yielded = |mail| match mail {
            ToControl::Yielded { session, seam, .. } => Some((session, seam)),
            _ => None,
        };
        self.told().into_iter().filter_map(yielded).collect()
    }

    fn take_over(&mut self, id: ConnId, seam: Seam) {
        let session = self.session(id);
        let order = ToWorker::TakeOver { session, stream: STREAM, seam: Box::new(seam) };
        self.rig.worker.handle_mail(self.rig.now, order);
        self.rig.worker.finish_turn();
    }

    /// The position of the stream's clock, if anybody feeds the stream, and the session that does.
    fn position(&self) -> Option<(i64, Option<SessionRef>)> {
        let source = self.rig.worker.live.sources.get(&STREAM)?;
        Some((source.position.dts_ms, source.publisher))
    }
}

#[test]
fn a_silent_publisher_yields_after_the_setting() {
    let mut pair = Pair::new();
    let first = pair.session(pair.first.0);
    pair.pass(2 * AFTER_MS);
    assert!(pair.yielded().is_empty(), "there is no standby that sends");
    pair.first_sends(1000, true);
    pair.second_sends(77_000, true);
    let sends = |mail: &ToControl| matches!(mail, ToControl::StandbySends { sends: true, .. });
    assert_eq!(pair.told().iter().filter(|mail| sends(mail)).count(), 1);
    pair.first_sends(1040, false);
    pair.tell(true);
    pair.pass(AFTER_MS - 1);
    assert!(pair.yielded().is_empty());
    pair.second_sends(77_040, false);
    pair.pass(1);
    let yielded = pair.yielded();
    let [(session, seam)] = &yielded[..] else { panic!("{yielded:?}") };
    assert_eq!((*session, seam.position.dts_ms), (first, 1040));
    assert_eq!((seam.silent, seam.tracks.epoch), (Duration::from_millis(AFTER_MS), 1));
    assert_eq!(pair.position(), None);
    // Units that arrive before the takeover belong to nobody.
    pair.first_sends(1080, true);
    assert_eq!(pair.position(), None);
}

#[test]
fn publishers_of_one_picture_a_second_do_not_take_turns() {
    let mut pair = Pair::new();
    let (first, second) = (pair.session(pair.first.0), pair.session(pair.second.0));
    let mut at = 0;
    let mut send = |pair: &mut Pair, is_first_there: bool, count: i64| {
        for _ in 0..count {
            if is_first_there {
                pair.first_sends(1000 + at, true);
            }
            pair.pass(500);
            pair.second_sends(77_000 + at, true);
            pair.pass(500);
            at += 1000;
        }
    };
    send(&mut pair, true, 3);
    pair.tell(true);
    send(&mut pair, true, 40);
    assert!(pair.yielded().is_empty());
    // The first one counts as silent after twice the time between its pictures.
    send(&mut pair, false, 1);
    let yielded = pair.yielded();
    let [(session, seam)] = &yielded[..] else { panic!("{yielded:?}") };
    assert_eq!((*session, seam.silent), (first, Duration::from_millis(2000)));
    let seam = seam.clone();
    pair.take_over(pair.second.0, seam);
    pair.tell(true);
    // When the first one is back, the other keeps the stream.
    send(&mut pair, true, 40);
    assert!(pair.yielded().is_empty());
    assert_eq!(pair.position().unwrap().1, Some(second));
}

#[test]
fn a_publisher_whose_units_are_left_out_is_not_silent() {
    let mut pair = Pair::new();
    let first = pair.session(pair.first.0);
    pair.first_sends(1000, true);
    pair.rig.worker.handle_mail(pair.rig.now, ToWorker::Yield { session: first, stream: STREAM });
    let (_, seam) = pair.yielded().remove(0);
    pair.second_sends(77_000, false);
    pair.take_over(pair.second.0, seam);
    pair.tell(true);
    // Nothing is sent until its first key frame.
    for at in 1..100 {
        pair.second_sends(77_000 + at * 40, false);
        pair.pass(40);
    }
    assert!(pair.yielded().is_empty());
    let stream = &pair.rig.worker.live.streams[&STREAM];
    assert_eq!(stream.head_ms(), Some(1000));
}

#[test]
fn script_data_neither_keeps_a_frozen_publisher_nor_makes_a_standby_send() {
    let mut pair = Pair::new();
    let (first, second) = (pair.first.clone(), pair.second.clone());
    let script_data = |dts| {
        let (track, payload) = (TrackId::DATA, Bytes::from_static(b"onFI"));
        let unit = AccessUnit { track, dts, pts: dts, key_frame: false, config_epoch: 0, payload };
        Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks: video_tracks() })
    };
    pair.first_sends(1000, true);
    pair.rig.say(second.0, &second.1, [script_data(76_000)]);
    let sends = |mail: &ToControl| matches!(mail, ToControl::StandbySends { .. });
    assert!(!pair.told().iter().any(sends));
    pair.second_sends(77_000, true);
    assert!(pair.told().iter().any(sends));
    pair.tell(true);
    for at in 0..3 {
        assert!(pair.yielded().is_empty());
        pair.pass(AFTER_MS / 3);
        pair.rig.say(first.0, &first.1, [script_data(1010 + at)]);
        pair.second_sends(77_010 + at, false);
    }
    pair.pass(1);
    assert_eq!(pair.yielded().len(), 1);
}

#[test]
fn what_was_retained_comes_first_and_the_stream_goes_on_from_there() {
    let mut pair = Pair::new();
    let (first, second) = (pair.session(pair.first.0), pair.session(pair.second.0));
    for at in 0..50 {
        pair.first_sends(1000 + at * 40, at == 0);
        pair.second_sends(77_000 + at * 40, at % 25 == 0);
        pair.pass(40);
    }
    assert_eq!(pair.position(), Some((2960, Some(first))), "a standby feeds nothing");
    let before = pair.rig.worker.live.streams[&STREAM].retained_bytes();
    let order = ToWorker::Yield { session: first, stream: STREAM };
    pair.rig.worker.handle_mail(pair.rig.now, order);
    let (_, seam) = pair.yielded().remove(0);
    pair.take_over(pair.second.0, seam);
    let (position, publisher) = pair.position().unwrap();
    // The second GOP began at 77 000 + 1000, 960 ms before its last picture.
    assert!((3000..3400).contains(&position), "{position}");
    assert_eq!(publisher, Some(second));
    let stream = &pair.rig.worker.live.streams[&STREAM];
    assert!(stream.retained_bytes() >= 25 * b"frame".len(), "{before}");
    assert_eq!(stream.tracks().epoch, 1, "equal tracks are no change");
    // The standby of before feeds the stream now, and the former publisher does not.
    for at in 50..100 {
        pair.first_sends(1000 + at * 40, false);
        pair.second_sends(77_000 + at * 40, false);
        pair.pass(40);
    }
    assert_eq!(pair.position(), Some((2960 + 40 + 50 * 40 - 40, Some(second))));
}

#[test]
fn messages_of_a_standby_reach_nobody() {
    let mut pair = Pair::new();
    let (first, second) = (pair.first.clone(), pair.second.clone());
    for ((id, actor), reaches) in [(first, 1), (second, 0)] {
        let (stream, message) = (StreamKey::new("live", "s"), Message::new("hello".to_owned()));
        pair.rig.outputs();
        pair.rig.say(id, &actor, [Event::Family(FamilyEvent::TellStream { stream, message })]);
        let told = pair.rig.outputs();
        let told = told.iter().filter(|output| matches!(output, Output::Others(ToWorker::TellStream { .. })));
        assert_eq!(told.count(), reaches);
    }
}

#[test]
fn data_of_a_stream_that_waits_for_its_publisher_has_the_newest_time() {
    let mut pair = Pair::new();
    pair.first_sends(1000, true);
    pair.first_sends(1040, false);
    let (id, actor) = pair.first.clone();
    pair.rig.say(id, &actor, [Event::Publication(Handle::ONLY, PublicationEvent::Over(Departure::Lost))]);
    let data = Bytes::from_static(b"data");
    let mail = ToWorker::TimedData { stream: STREAM, track: TrackId::MESSAGES, data, ahead_ms: 0 };
    pair.rig.worker.handle_mail(pair.rig.now, mail);
    let stream = &pair.rig.worker.live.streams[&STREAM];
    assert_eq!((pair.position(), stream.head_ms()), (None, Some(1040)));
}

#[test]
fn an_order_to_a_standby_that_has_left_is_answered() {
    let mut pair = Pair::new();
    let (id, actor) = pair.second.clone();
    let over = Event::Publication(Handle::ONLY, PublicationEvent::Over(Departure::Lost));
    pair.rig.say(id, &actor, [over]);
    let gone = |told: Vec<ToControl>| {
        let position = |mail| match mail {
            ToControl::PublisherGone { position, .. } => Some(position.dts_ms),
            _ => None,
        };
        told.into_iter().filter_map(position).collect::<Vec<_>>()
    };
    assert_eq!(gone(pair.told()), [0]);
    let position = media::Position { dts_ms: 5000, started: true };
    pair.take_over(id, Seam { position, tracks: Arc::default(), silent: Duration::ZERO });
    assert_eq!(gone(pair.told()), [5000]);
}

#[test]
fn a_standby_ends_with_its_stream_and_when_another_one_replaces_it() {
    let mut pair = Pair::new();
    pair.second_sends(0, true);
    let (id, actor) = pair.second.clone();
    actor.replies();
    let first = pair.session(pair.first.0);
    pair.rig.worker.handle_mail(pair.rig.now, ToWorker::Replaced { conn: id, stream: STREAM });
    assert_eq!(pair.position(), Some((0, Some(first))), "the publisher stays");
    assert_eq!(pair.rig.worker.live.standbys.len(), 0);

    let mut pair = Pair::new();
    pair.second_sends(0, true);
    let (_, actor) = pair.second.clone();
    let end = crate::mail::StreamEnd::Deleted;
    pair.rig.worker.handle_mail(pair.rig.now, ToWorker::StreamDown { stream: STREAM, end });
    assert!(actor.replies().iter().any(|reply| reply.contains("Ended(Deleted)")));
    assert_eq!((pair.rig.worker.live.standbys.len(), pair.rig.worker.live.standbys.watched()), (0, 0));
}
