//! A worker with scripted sessions.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of output")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use media::{AccessUnit, Codec, CodecConfig, Timescale, Track, TrackId, TrackSet, Tracks};
use wire::SendQueue;

use super::conn::{Playing, Publication, Subscription, SubscriptionState};
use super::streams::SourceCount;
use super::*;
use crate::config::AppSettings;
use crate::hub::{Chosen, Credit, Delivery, Entry, FormatKey, FormatLimit, Item, Package, Parts};
use crate::mail::{Departure, StreamDetails};
use crate::protocol::{
    About, ByteStream, Context, Demux, Event, Format, Paths, PlayAsk, Port, PortEvent, PublicationEvent,
    Remote, Reply, RequestEvent, Route, Session, SubscriptionEvent, Timers, UnitRuns, UnitSink,
};
use crate::stats::WorkerFigures;
use crate::types::{Handle, Ingest, SessionRef, StreamKey, SubscriptionId};

/// The next actions of a session.
#[derive(Debug)]
struct Script {
    events: VecDeque<Event>,
    protocol: &'static str,
    /// The method in which the session panics.
    panics_in: &'static str,
    /// Number of units that the session has room for; `None` if it takes bytes.
    room: Option<usize>,
    /// Replies that the session got.
    replies: Vec<String>,
}

impl Default for Script {
    fn default() -> Self {
        Self { events: VecDeque::new(), protocol: "http", panics_in: "", room: None, replies: Vec::new() }
    }
}

/// A session that follows its script.
#[derive(Debug, Clone, Default)]
pub(super) struct Actor(Arc<Mutex<Script>>);

impl Actor {
    /// Makes the session return this event at the next call.
    pub(super) fn say(&self, event: Event) {
        self.script().events.push_back(event);
    }

    /// Returns the replies since the last call.
    pub(super) fn replies(&self) -> Vec<String> {
        std::mem::take(&mut self.script().replies)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }

    fn enter(&self, method: &str) {
        let panics = self.script().panics_in == method;
        assert!(!panics, "as the script says");
    }
}

impl ByteStream for Actor {
    fn handle_bytes(&mut self, _ctx: &Context<'_>, _bytes: &[u8]) {
        self.enter("handle_bytes");
    }

    fn handle_sent(&mut self, _ctx: &Context<'_>, bytes: usize) {
        self.enter("handle_sent");
        self.script().replies.push(format!("sent {bytes}"));
    }

    fn wants_bytes(&self) -> bool {
        self.enter("wants_bytes");
        true
    }

    fn poll_transmit(&mut self, _out: &mut SendQueue) {
        self.enter("poll_transmit");
    }
}

impl Session for Actor {
    fn handle_reply(&mut self, _ctx: &Context<'_>, reply: Reply<'_>) {
        self.enter("handle_reply");
        self.script().replies.push(format!("{reply:?}"));
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        self.enter("poll_event");
        self.script().events.pop_front()
    }

    fn close(&mut self, _ctx: &Context<'_>, reason: &str) {
        self.script().replies.push(format!("close: {reason}"));
    }

    fn about(&self) -> About {
        self.enter("about");
        About { protocol: self.script().protocol, is_media: true, is_authenticated: true }
    }

    fn timers(&mut self) -> Option<&mut dyn Timers> {
        Some(self)
    }

    fn paths(&mut self) -> Option<&mut dyn Paths> {
        Some(self)
    }

    fn byte_stream(&mut self) -> Option<&mut dyn ByteStream> {
        Some(self)
    }

    fn unit_sink(&mut self) -> Option<&mut dyn UnitSink> {
        let takes_units = self.script().room.is_some();
        if takes_units { Some(self) } else { None }
    }
}

impl Timers for Actor {
    fn handle_timeout(&mut self, _ctx: &Context<'_>) {
        self.enter("handle_timeout");
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.enter("poll_timeout");
        None
    }
}

impl Paths for Actor {
    fn handle_path(&mut self, _ctx: &Context<'_>, _path: PathId, _event: PathEvent<'_>) {
        self.enter("handle_path");
    }
}

impl UnitSink for Actor {
    fn has_room(&self) -> bool {
        self.script().room != Some(0)
    }

    fn handle_unit(&mut self, _ctx: &Context<'_>, _subscription: Handle, unit: &Delivery<'_>) {
        self.enter("handle_unit");
        let AccessUnit { track, dts, .. } = unit.entry.unit;
        let mut script = self.script();
        script.room = script.room.map(|room| room - 1);
        script.replies.push(format!("{dts} of {}", track.index()));
    }

    fn runs(&mut self) -> Option<&mut dyn UnitRuns> {
        Some(self)
    }
}

impl UnitRuns for Actor {
    fn end_units(&mut self, _ctx: &Context<'_>) {
        self.script().replies.push("no more for now".to_owned());
    }
}

pub(super) const STREAM: StreamId = StreamId(1);

/// Adds a session that publishes [`STREAM`] on this worker.
pub(super) fn deliver(worker: &mut Worker, now: Now) -> (ConnId, Actor) {
    let actor = Actor::default();
    let conn = Conn::new(([192, 0, 2, 1], 1).into(), Box::new(actor.clone()), now.mono);
    let id = worker.conns.insert(conn).unwrap();
    let publication = Publication { handle: Handle::ONLY, stream: Some(STREAM) };
    worker.conns.get_mut(id).unwrap().publications.push(publication);
    let publisher = Some(SessionRef::new(worker.turn.id, id));
    worker.live.sources.insert(STREAM, SourceCount { publisher, ..SourceCount::default() });
    (id, actor)
}

struct Rig {
    worker: Worker,
    now: Now,
}

impl Rig {
    /// Makes a worker on which `live/s` is published.
    fn new() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let mut worker = Worker::new(WorkerId(0), now, Seed::from_number(1), &Seed::from_number(0));
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        worker.handle_mail(now, ToWorker::App(Arc::clone(&settings)));
        let (key, source, ingest) = (StreamKey::new("live", "s"), WorkerId(0), Ingest::PULL);
        let up = ToWorker::StreamUp {
            stream: STREAM,
            key,
            source,
            ingest,
            details: StreamDetails::default(),
            settings,
        };
        worker.handle_mail(now, up);
        Self { worker, now }
    }

    fn connect(&mut self) -> (ConnId, Actor) {
        let actor = Actor::default();
        let conn = Conn::new(([192, 0, 2, 1], 1).into(), Box::new(actor.clone()), self.now.mono);
        (self.worker.conns.insert(conn).unwrap(), actor)
    }

    /// Makes the session of a connection return these events.
    fn say(&mut self, id: ConnId, actor: &Actor, events: impl IntoIterator<Item = Event>) {
        actor.script().events.extend(events);
        self.worker.conns.touch(&mut self.worker.turn, id);
        self.worker.finish_turn();
    }

    /// Adds a publisher that feeds `live/s`.
    fn publisher(&mut self) -> (ConnId, Actor) {
        deliver(&mut self.worker, self.now)
    }

    fn subscriber(&mut self, id: ConnId) -> &mut crate::hub::Subscriber {
        let subscription = &mut self.worker.conns.get_mut(id).unwrap().subscriptions[0];
        &mut subscription.playing_mut().unwrap().subscriber
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.worker.poll_output()).collect()
    }

    fn measure(&mut self) -> WorkerFigures {
        self.outputs();
        self.worker.handle_mail(self.now, ToWorker::Measure { per_stream: false });
        match self.outputs().pop() {
            Some(Output::Control(ToControl::Measured(_, figures))) => *figures,
            other => panic!("{other:?}"),
        }
    }
}

fn video_tracks() -> Arc<Tracks> {
    let config = CodecConfig::read(Codec::Vp8, Bytes::new()).unwrap().unwrap();
    let track = Track::new(TrackId::VIDEO, config, Timescale::MILLISECONDS);
    Arc::new(Tracks::new(1, [Track { epoch: 1, ..track }]))
}

fn video_frame(dts: i64, key_frame: bool) -> Event {
    let (track, payload) = (TrackId::VIDEO, Bytes::from_static(b"frame"));
    let unit = AccessUnit { track, dts, pts: dts, key_frame, config_epoch: 1, payload };
    Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks: video_tracks() })
}

fn subscribe() -> Event {
    subscribe_as(Handle::ONLY, Format::find("flv", 0).unwrap())
}

fn subscribe_as(subscription: Handle, format: Format) -> Event {
    let (key, params, origin) = (StreamKey::new("live", "s"), Vec::new(), String::new());
    Event::Subscription(
        subscription,
        SubscriptionEvent::Subscribe(PlayAsk {
            key,
            format,
            params,
            origin,
            via: Vec::new(),
            takes_subtracks: false,
        }),
    )
}

#[test]
fn who_asks_control_is_the_client_that_a_proxy_speaks_for() {
    let mut rig = Rig::new();
    let (id, actor) = rig.connect();
    let mut ask = subscribe();
    if let Event::Subscription(_, SubscriptionEvent::Subscribe(ask)) = &mut ask {
        // Control must decide about a request with a subscriber id.
        ask.params.push(("subscriberId".into(), "u".into()));
    }
    rig.say(id, &actor, [Event::Request(RequestEvent::Client([198, 51, 100, 7].into())), ask]);
    let asked = rig.outputs().into_iter().find_map(|output| {
        let Output::Control(ToControl::Play(request)) = output else { return None };
        Some(request.peer.to_string())
    });
    assert_eq!(asked.as_deref(), Some("198.51.100.7:1"));
}

#[test]
fn jumps_outlive_the_subscription_and_are_counted_once() {
    let mut rig = Rig::new();
    let (id, actor) = rig.connect();
    for round in 1..=3 {
        rig.say(id, &actor, [subscribe()]);
        let subscriber = rig.subscriber(id);
        (subscriber.jumps, subscriber.skipped) = (2, 50);
        assert_eq!(rig.measure().counters.jumps, 2 * round);
        if round < 3 {
            rig.say(id, &actor, [Event::Subscription(Handle::ONLY, SubscriptionEvent::Unsubscribe)]);
            assert_eq!(rig.measure().counters.jumps, 2 * round);
            // These figures are logged when the session ends.
            let conn = rig.worker.conns.get(id).unwrap();
            assert_eq!((conn.figures.jumps, conn.figures.skipped), (2 * round, 50 * round));
        }
    }
    rig.worker.handle_path(rig.now, id, PathId::default(), PathEvent::Broken("reset"));
    assert_eq!(rig.measure().counters.jumps, 6);
}

#[test]
fn bytes_stay_with_the_protocol_that_they_were_carried_under() {
    let mut rig = Rig::new();
    let (id, actor) = rig.connect();
    let rows = |rig: &mut Rig| {
        let traffic = rig.measure().traffic;
        let of = |name| traffic.iter().find(|row| row.protocol == name).copied();
        ["http", "http-flv"].map(|name| {
            of(name).map_or((0, 0, 0, 0), |row| (row.open, row.ended, row.bytes_in, row.bytes_out))
        })
    };
    rig.worker.handle_bytes(rig.now, id, &[0; 100]);
    rig.worker.sent(rig.now.mono, id, 0, 0);
    assert_eq!(rows(&mut rig), [(1, 0, 100, 0), (0, 0, 0, 0)]);
    actor.script().protocol = "http-flv";
    // The bytes of the request that made the session a viewer still count for the former protocol.
    rig.worker.handle_bytes(rig.now, id, &[0; 10]);
    assert_eq!(rows(&mut rig), [(0, 0, 110, 0), (1, 0, 0, 0)]);
    rig.worker.handle_bytes(rig.now, id, &[0; 1]);
    rig.worker.sent(rig.now.mono, id, 5000, 5000);
    assert_eq!(rows(&mut rig), [(0, 0, 110, 0), (1, 0, 1, 5000)]);
    rig.worker.handle_path(rig.now, id, PathId::default(), PathEvent::Broken("reset"));
    assert_eq!(rows(&mut rig), [(0, 0, 110, 0), (0, 1, 1, 5000)]);
}

#[test]
fn a_stream_stands_where_its_units_do_whatever_they_count() {
    let mut rig = Rig::new();
    let (id, actor) = rig.publisher();
    let Event::Publication(_, PublicationEvent::Unit { mut unit, tracks }) = video_frame(180_000, true)
    else {
        panic!("no unit")
    };
    let mut tracks = Tracks::clone(&tracks);
    tracks.get_mut(TrackId::VIDEO).unwrap().timescale = Timescale::new(90_000);
    unit.pts += 3000;
    let departure = Departure::Lost;
    rig.say(
        id,
        &actor,
        [
            Event::Publication(Handle::ONLY, PublicationEvent::Unit { unit, tracks: Arc::new(tracks) }),
            Event::Publication(Handle::ONLY, PublicationEvent::Over(departure)),
        ],
    );
    let position = rig.outputs().into_iter().find_map(|output| match output {
        Output::Control(ToControl::PublisherGone { position, .. }) => Some(position),
        _ => None,
    });
    assert_eq!(position, Some(media::Position { dts_ms: 2000, started: true }));
}

fn mirror(after_ms: Option<i64>) -> ToWorker {
    let wanted = TrackSet::of(TrackId::VIDEO);
    let after = after_ms.into_iter().map(|after_ms| (TrackId::VIDEO, after_ms)).collect();
    ToWorker::Mirror { stream: STREAM, to: WorkerId(1), request: 1, wanted, after }
}

/// Returns the DTS of the units that were sent to worker 1.
fn mirrored(rig: &mut Rig) -> Vec<i64> {
    let units = rig.outputs().into_iter().filter_map(|output| match output {
        Output::Mirrored(WorkerId(1), unit) => Some(unit.entry.unit.dts),
        _ => None,
    });
    units.collect()
}

#[test]
fn a_mirror_that_says_what_it_wants_is_sent_it_without_waiting_for_another_unit() {
    let mut rig = Rig::new();
    let (id, actor) = rig.publisher();
    rig.say(id, &actor, [video_frame(0, true), video_frame(33, false), video_frame(66, false)]);
    let (to, wanted) = (WorkerId(1), TrackSet::EMPTY);
    rig.worker
        .handle_mail(rig.now, ToWorker::Mirror { stream: STREAM, to, request: 1, wanted, after: Vec::new() });
    assert_eq!(mirrored(&mut rig), [0], "which brings the tracks");
    let wanted = TrackSet::of(TrackId::VIDEO);
    rig.worker.handle_mail(rig.now, ToWorker::MirrorWants { stream: STREAM, to, wanted });
    assert_eq!(mirrored(&mut rig), [33, 66]);
}

#[test]
fn a_mirror_begins_with_a_key_frame_also_when_the_source_holds_none() {
    let mut rig = Rig::new();
    let (id, actor) = rig.publisher();
    rig.say(id, &actor, [video_frame(0, true), video_frame(33, false)]);
    // The ring is empty, as without a GOP cache, or after a GOP that was longer than the ring.
    rig.worker.live.streams.get_mut(&STREAM).unwrap().clear();
    rig.worker.handle_mail(rig.now, mirror(None));
    rig.say(
        id,
        &actor,
        [video_frame(66, false), video_frame(99, false), video_frame(132, true), video_frame(165, false)],
    );
    assert_eq!(mirrored(&mut rig), [132, 165]);
    assert_eq!(rig.worker.turn.meter.stats.units_unmirrored, 0, "nothing was refused");
    // A mirror that already has the first units gets those after them.
    rig.worker.live.streams.get_mut(&STREAM).unwrap().clear();
    let again = mirror(Some(165));
    rig.worker.handle_mail(rig.now, again);
    rig.say(id, &actor, [video_frame(198, false)]);
    assert_eq!(mirrored(&mut rig), [198]);
}

#[test]
fn a_session_that_panics_ends_alone_wherever_it_does() {
    for method in [
        "handle_bytes",
        "wants_bytes",
        "poll_event",
        "poll_transmit",
        "poll_timeout",
        "about",
        "handle_reply",
    ] {
        let mut rig = Rig::new();
        let (id, actor) = rig.connect();
        let (other, _) = rig.connect();
        rig.say(id, &actor, [subscribe()]);
        actor.script().panics_in = method;
        rig.worker.wants_bytes(id);
        rig.worker.handle_bytes(rig.now, id, b"x");
        rig.say(id, &actor, [subscribe()]);
        let closed = |output: &Output| matches!(output, Output::Close { conn, abort: true } if *conn == id);
        assert!(rig.outputs().iter().any(closed), "{method}");
        assert_eq!((rig.worker.turn.meter.stats.panics, rig.worker.connections()), (1, 1), "{method}");
        assert!(
            rig.worker.wants_bytes(other) && rig.worker.live.streams[&STREAM].subscribers.is_empty(),
            "{method}"
        );
    }
}

/// A format that writes each frame as the frame's timestamp in brackets, and panics at the frame with the timestamp in
/// this struct.
#[derive(Debug)]
struct Fragile(i64);

impl Package for Fragile {
    fn fit(&self, _track: &Track) -> crate::hub::Fit {
        crate::hub::Fit::Well
    }

    fn prelude(&mut self, _chosen: &Chosen, _dts_ms: i64) -> Parts {
        Parts::default()
    }

    fn unit(&mut self, entry: &Entry, _chosen: &Chosen) -> Item {
        assert_ne!(entry.dts_ms, self.0, "as the test says");
        Parts::new([Bytes::from(format!("[{}]", entry.dts_ms))]).into()
    }
}

impl Rig {
    /// Adds a viewer whose format panics at the frame with the time `fails_at`.
    fn fragile_viewer(&mut self, name: &'static str, fails_at: i64) -> ConnId {
        let (id, _) = self.connect();
        self.play_fragile(id, Handle::ONLY, (name, fails_at));
        id
    }

    fn play_fragile(&mut self, id: ConnId, handle: Handle, (name, fails_at): (&'static str, i64)) {
        let key = FormatKey::new(name, 0);
        let forwarding = self.worker.turn.meter.forwarding.index(Ingest::PULL, name);
        let stream = self.worker.live.streams.get_mut(&STREAM).unwrap();
        let subscription = SubscriptionId { conn: id, handle };
        let subscriber = stream
            .subscribe(subscription, (key, FormatLimit::None), forwarding, || {
                Some(Box::new(Fragile(fails_at)))
            })
            .unwrap();
        let format = Format::find("flv", 0).unwrap();
        let state = SubscriptionState::Playing(Playing {
            subscriber,
            format,
            told: false,
            left_out: Vec::new(),
            audience: None,
        });
        self.worker.conns.get_mut(id).unwrap().subscriptions.push(Subscription { handle, state });
    }

    /// Returns the bytes that each viewer is sent now.
    fn sent(&mut self) -> BTreeMap<ConnId, String> {
        self.worker.live.flush_stream(&mut self.worker.turn, &mut self.worker.conns, STREAM);
        let mut sent = BTreeMap::<ConnId, String>::new();
        while let Some((id, _)) = self.worker.next_write(Writers::All) {
            let mut gather = wire::Gather::new(1 << 20);
            self.worker.gather(id, &mut gather);
            let bytes: Vec<u8> = gather.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            self.worker.sent(self.now.mono, id, bytes.len(), bytes.len());
            sent.entry(id).or_default().push_str(&String::from_utf8(bytes).unwrap());
        }
        sent
    }
}

#[test]
fn a_unit_that_a_format_fails_at_ends_its_publisher_and_nobody_else() {
    let mut rig = Rig::new();
    let viewers = [("one", -1), ("two", 66), ("three", -1)].map(|(name, at)| rig.fragile_viewer(name, at));
    let (id, actor) = rig.publisher();
    rig.say(
        id,
        &actor,
        [video_frame(0, true), video_frame(33, false), video_frame(66, false), video_frame(99, false)],
    );
    assert!(rig.worker.conns.get(id).is_none());
    assert_eq!((rig.worker.turn.meter.stats.panics, rig.worker.connections()), (1, 3));
    let gone = |output: &Output| {
        matches!(output, Output::Control(ToControl::PublisherGone { departure: Departure::Lost, .. }))
    };
    assert!(rig.outputs().iter().any(gone));
    assert_eq!(rig.sent(), viewers.map(|viewer| (viewer, "[0][33]".to_owned())).into());
    // A new publisher can take the stream over.
    let (id, actor) = rig.publisher();
    rig.say(id, &actor, [video_frame(132, true), video_frame(165, false)]);
    assert_eq!(rig.sent(), viewers.map(|viewer| (viewer, "[132][165]".to_owned())).into());
}

#[test]
fn who_keeps_up_is_sent_a_unit_before_those_that_catch_up() {
    let mut rig = Rig::new();
    let [first, second, third] = ["one", "two", "three"].map(|name| rig.fragile_viewer(name, -1));
    let (id, actor) = rig.publisher();
    rig.say(id, &actor, [video_frame(0, true)]);
    rig.sent();
    let write = |rig: &mut Rig, who, taken: usize| {
        let (id, _) = rig.worker.next_write(who)?;
        let mut gather = wire::Gather::new(1 << 20);
        rig.worker.gather(id, &mut gather);
        rig.worker.sent(rig.now.mono, id, gather.bytes().min(taken), gather.bytes());
        Some(id)
    };
    // The socket of the first viewer accepts only one byte of two units. Later it accepts everything.
    rig.say(id, &actor, [video_frame(33, false)]);
    assert_eq!(write(&mut rig, Writers::KeepUp, 1), Some(first));
    assert_eq!(write(&mut rig, Writers::KeepUp, 99), Some(second));
    rig.worker.handle_writable(rig.now, first);
    assert_eq!(write(&mut rig, Writers::KeepUp, 99), Some(third));
    assert_eq!(write(&mut rig, Writers::KeepUp, 99), None);
    assert!(!rig.worker.has_writes(Writers::KeepUp) && rig.worker.has_writes(Writers::All));
    rig.say(id, &actor, [video_frame(66, false)]);
    let order = [(); 3].map(|()| write(&mut rig, Writers::All, 99));
    assert_eq!(order, [Some(second), Some(third), Some(first)]);
    // The first viewer has caught up.
    rig.say(id, &actor, [video_frame(99, false)]);
    let order = [(); 4].map(|()| write(&mut rig, Writers::KeepUp, 99));
    assert_eq!(order, [Some(first), Some(second), Some(third), None]);
}

#[test]
fn who_joins_waits_for_those_that_are_there() {
    let mut rig = Rig::new();
    let there = rig.fragile_viewer("one", -1);
    let (id, actor) = rig.publisher();
    rig.say(id, &actor, [video_frame(0, true)]);
    rig.sent();
    let (newcomer, viewer) = rig.connect();
    rig.say(newcomer, &viewer, [subscribe()]);
    rig.say(id, &actor, [video_frame(33, false)]);
    let order = [(); 3].map(|()| rig.worker.next_write(Writers::All).map(|(id, _)| id));
    assert_eq!(order, [Some(there), Some(newcomer), None]);
}

#[test]
fn a_unit_of_another_worker_that_a_format_fails_at_is_left_out() {
    let mut rig = Rig::new();
    let viewer = rig.fragile_viewer("one", 33);
    rig.worker.live.streams.get_mut(&STREAM).unwrap().ask_source();
    for (dts, key_frame) in [(0, true), (33, false), (66, false)] {
        let Event::Publication(_, PublicationEvent::Unit { unit, tracks }) = video_frame(dts, key_frame)
        else {
            panic!()
        };
        let entry = Entry::new(rig.now.mono, 0, unit, tracks);
        let mirrored = MirroredUnit { stream: STREAM, request: 1, entry, credit: Credit::default() };
        rig.worker.handle_mirrored(rig.now, mirrored);
    }
    assert_eq!(rig.worker.turn.meter.stats.panics, 1);
    assert_eq!(rig.sent(), [(viewer, "[0][66]".to_owned())].into());
}

#[test]
fn a_report_names_streams_that_have_viewers_and_no_others() {
    let mut rig = Rig::new();
    let viewers = |rig: &mut Rig| {
        rig.outputs();
        rig.worker.report();
        let reports = rig.outputs().into_iter().filter_map(|output| match output {
            Output::Control(ToControl::Report(_, report)) => Some(report.viewers),
            _ => None,
        });
        reports.collect::<Vec<_>>()
    };
    assert_eq!(viewers(&mut rig), [vec![]]);
    let viewer = rig.fragile_viewer("one", 999);
    let stream = rig.worker.live.streams.get_mut(&STREAM).unwrap();
    assert_eq!(stream.subscribers.len(), 1);
    assert_eq!(viewers(&mut rig), [vec![(STREAM, 1)]]);
    rig.worker.remove(viewer, "gone", false);
    assert_eq!(viewers(&mut rig), [vec![]]);
}

#[test]
fn what_answers_an_earlier_request_for_a_stream_is_not_taken() {
    let mut rig = Rig::new();
    let viewer = rig.fragile_viewer("one", 999);
    // The stream was requested twice, as if its source had moved, or as if the last viewer had left and a new one
    // had come.
    let stream = rig.worker.live.streams.get_mut(&STREAM).unwrap();
    assert_eq!((stream.ask_source().0, stream.ask_source().0), (1, 2));
    for (request, dts, key_frame) in [(1, 33, true), (2, 0, true), (1, 66, true), (2, 33, false)] {
        let Event::Publication(_, PublicationEvent::Unit { unit, tracks }) = video_frame(dts, key_frame)
        else {
            panic!()
        };
        let entry = Entry::new(rig.now.mono, 0, unit, tracks);
        let mirrored = MirroredUnit { stream: STREAM, request, entry, credit: Credit::default() };
        rig.worker.handle_mirrored(rig.now, mirrored);
    }
    assert_eq!(rig.sent(), [(viewer, "[0][33]".to_owned())].into());
}

/// A port that follows its script.
#[derive(Debug)]
struct Gate(Arc<Mutex<(&'static str, Vec<ConnId>)>>);

impl Demux for Gate {
    fn route(&mut self, _: &Context<'_>, _: Remote, _: &[u8], _: &mut Vec<u8>) -> Route {
        let panics = self.0.lock().unwrap().0 == "route";
        assert!(!panics, "as the script says");
        Route::New
    }

    fn begin(&mut self, _: &Context<'_>, id: ConnId, _: SocketAddr, _: Seed) -> Option<Box<dyn Session>> {
        self.0.lock().unwrap().1.push(id);
        let panics = self.0.lock().unwrap().0 == "begin";
        assert!(!panics, "as the script says");
        Some(Box::new(Actor::default()))
    }

    fn forget(&mut self, id: ConnId) {
        self.0.lock().unwrap().1.retain(|known| *known != id);
    }

    fn sessions(&self) -> usize {
        self.0.lock().unwrap().1.len()
    }
}

#[test]
fn a_port_that_panics_at_an_unknown_peer_goes_on() {
    let mut rig = Rig::new();
    let script = Arc::new(Mutex::new(("", Vec::new())));
    let port = Port::all().next().unwrap();
    rig.worker.ports.list = vec![(port, Box::new(Gate(Arc::clone(&script))))];
    let from = Remote::of(([192, 0, 2, 1], 9).into());
    for method in ["route", "begin", ""] {
        script.lock().unwrap().0 = method;
        let routed = rig.worker.handle_datagram(rig.now, port, from, &mut b"x".to_vec());
        assert_eq!(routed, if method == "route" { Routed::Dropped } else { Routed::New }, "{method}");
        if routed == Routed::New {
            assert_eq!(rig.worker.accept_peer(rig.now, port, from).is_some(), method.is_empty());
        }
    }
    assert_eq!((rig.worker.turn.meter.stats.panics, rig.worker.connections()), (2, 1));
    assert_eq!(script.lock().unwrap().1.len(), 1);
}

/// A port that routes all datagrams to one session.
#[derive(Debug)]
struct Door(Option<ConnId>);

impl Demux for Door {
    fn route(&mut self, _: &Context<'_>, from: Remote, _: &[u8], _: &mut Vec<u8>) -> Route {
        assert!(from.carrier.is_some());
        self.0.map_or(Route::Drop, Route::Session)
    }

    fn begin(&mut self, _: &Context<'_>, _: ConnId, _: SocketAddr, _: Seed) -> Option<Box<dyn Session>> {
        None
    }

    fn forget(&mut self, conn: ConnId) {
        self.0 = self.0.filter(|known| *known != conn);
    }

    fn sessions(&self) -> usize {
        usize::from(self.0.is_some())
    }
}

#[test]
fn a_carrier_is_told_whose_its_datagrams_are_and_ends_with_that_session() {
    let mut rig = Rig::new();
    let port = Port::all().next().unwrap();
    let (first, one) = rig.connect();
    let (second, other) = rig.connect();
    let (id, carrier) = rig.connect();
    let carried =
        || Event::Port(PortEvent::Carried { port: port.name, datagram: bytes::BytesMut::from(&b"x"[..]) });
    let open = || {
        let way = Remote { carrier: Some(id), ..Remote::of(([192, 0, 2, 1], 1).into()) };
        Event::Port(PortEvent::Claim(crate::protocol::Claim::Open(way)))
    };
    rig.worker.ports.list = vec![(port, Box::new(Door(None)))];
    rig.say(id, &carrier, [carried()]);
    assert_eq!(carrier.replies(), ["Port(Uncarried)"]);
    rig.worker.ports.list = vec![(port, Box::new(Door(Some(first))))];
    rig.say(id, &carrier, [carried()]);
    assert_eq!(carrier.replies(), [""; 0]);
    assert_eq!(rig.worker.conns.get(first).unwrap().figures.bytes_in, 1);
    assert_eq!(rig.worker.turn.meter.stats.bytes_in, 0, "it has counted where it came from");
    // The carrier serves the first session, which opens its path twice, and then the second session. It closes
    // only when the second session ends.
    rig.say(first, &one, [open(), open()]);
    assert_eq!(carrier.replies(), ["Port(Carries)"]);
    rig.say(second, &other, [open()]);
    assert_eq!(carrier.replies(), ["Port(Carries)"]);
    rig.say(first, &one, [Event::Closed("over".to_owned())]);
    assert_eq!(carrier.replies(), [""; 0]);
    rig.say(second, &other, [Event::Closed("over".to_owned())]);
    assert_eq!(carrier.replies(), ["close: its session has ended"]);
}

mod draining;
mod leased;
mod leaving;
mod ports;
mod returning;
mod room_views;
mod rooms;
mod standby;
mod write;

/// With `fetches_any`, a stream that is not live here may be live at another node. A viewer or a node that requests
/// such a stream waits until control says whether the stream comes.
#[test]
fn who_plays_a_stream_that_is_not_here_waits_until_it_does_not_come() {
    let mut rig = Rig::new();
    let server = SessionSettings { fetches_any: true, ..SessionSettings::default() };
    rig.worker.handle_mail(rig.now, ToWorker::Server(Arc::new(server)));
    let key = StreamKey::new("live", "far");
    for (format, via) in [("flv", Vec::new()), ("relay", vec!["south".to_owned()])] {
        let (format, wanted) = (Format::find(format, 0).unwrap(), (key.clone(), via.clone()));
        let (params, origin) = (Vec::new(), String::new());
        let ask = PlayAsk { key: key.clone(), format, params, origin, via, takes_subtracks: false };
        let (id, actor) = rig.connect();
        rig.say(id, &actor, [Event::Subscription(Handle::ONLY, SubscriptionEvent::Subscribe(ask))]);
        let asked = rig.outputs().into_iter().find_map(|output| match output {
            Output::Control(ToControl::Wanted { key, via }) => Some((key, via)),
            _ => None,
        });
        assert_eq!(asked, Some(wanted));
        let replies = || std::mem::take(&mut actor.script().replies).join(" ");
        let held = replies();
        assert!(held.contains("Held") && !held.contains("Verdict"), "{held}");
        rig.worker.handle_mail(rig.now, ToWorker::NotComing(key.clone()));
        rig.outputs();
        let refused = replies();
        assert!(refused.contains("Verdict(Err(NotFound))"), "{refused}");
    }
}
