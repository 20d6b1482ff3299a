//! A pull over HTTP. The remote servers send the bytes of the input, and the stream is granted at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crypto::Seed;
use media::codec::Codec;
use media::{AccessUnit, TrackId, TrackKind, Tracks, nal};
use millstream::config::AppSettings;
use millstream::hub::Blobs;
use millstream::mail::{Grant, NextServer, PullOrder, PullState, SessionSettings};
use millstream::protocol::{
    Apps, Context, Event, OrderEvent, PathEvent, PathId, PublicationEvent, PublicationNews, Reply, Session,
    outbound, schema,
};
use millstream::types::{Handle, Now, PullId, StreamId, StreamKey};
use wire::SendQueue;

use crate::http_targets::epoch;

/// Maximum number of times that the pull waits for media time to pass. Each wait lets some units be emitted.
const WAITS_MAX: usize = 100_000;
/// Maximum bytes of a read.
const READ_BYTES: usize = 4096;
/// Largest accepted difference between PTS and DTS.
const COMPOSITION_MS_MAX: i64 = 60_000;

static BLOBS: Blobs = Blobs::new();
static SETTINGS: LazyLock<Arc<AppSettings>> =
    LazyLock::new(|| Arc::new(AppSettings::of(schema(), "live", &[]).expect("defaults are in range")));
static APPS: LazyLock<Apps> = LazyLock::new(|| Apps::from([(Arc::from("live"), Arc::clone(&SETTINGS))]));
static SERVER: LazyLock<SessionSettings> = LazyLock::new(SessionSettings::default);

/// Results of a pull.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) units: Vec<(AccessUnit, Arc<Tracks>)>,
    pub(crate) dropped: u64,
    /// The requests, each sent over a connection of its own.
    pub(crate) requests: Vec<Vec<u8>>,
    /// Servers to which the pull was redirected.
    pub(crate) moves: Vec<NextServer>,
    pub(crate) failed: bool,
    pub(crate) end: Option<String>,
}

struct Pull {
    session: Box<dyn Session>,
    now: Now,
    outcome: Outcome,
}

/// Cuts bytes into pieces as a socket delivers them, each at most [`READ_BYTES`].
pub(crate) fn reads(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.chunks(READ_BYTES).collect()
}

/// Pulls from the first of these servers, and from the next one after each redirection. Each server sends its bytes
/// in pieces.
pub(crate) fn pull(servers: &[Vec<&[u8]>]) -> Outcome {
    let mut pull = Pull::new();
    for pieces in servers {
        let moves = pull.outcome.moves.len();
        pull.event(PathEvent::Open { local: None });
        for piece in pieces {
            // The pull no longer reads from a server that has redirected it.
            if pull.outcome.moves.len() > moves || !pull.feed(piece) {
                break;
            }
        }
        if pull.outcome.moves.len() == moves {
            break;
        }
    }
    pull.finish()
}

impl Pull {
    fn new() -> Self {
        let target = outbound::read_source("http://h/live/s").expect("it is a URL");
        let order = PullOrder {
            pull: PullId(1),
            attempt: 1,
            key: StreamKey::new("live", "s"),
            address: SocketAddr::from(([192, 0, 2, 1], 80)),
            target,
            lead: Duration::ZERO,
            via: Vec::new(),
            skip: Duration::ZERO,
        };
        let now = Now { mono: epoch(), wall_ms: 1_700_000_000_000 };
        let session = outbound::begin_pull(now, &order, Seed::from_number(1)).expect("it is pulled from");
        Self { session, now, outcome: Outcome::default() }
    }

    fn call<R>(&mut self, verb: impl FnOnce(&mut dyn Session, &Context<'_>) -> R) -> R {
        let ctx = Context { now: self.now, apps: &APPS, server: &SERVER, blobs: &BLOBS, draining: false };
        verb(&mut *self.session, &ctx)
    }

    fn event(&mut self, event: PathEvent<'_>) {
        self.call(|session, ctx| {
            session.paths().expect("a pull has a connection").handle_path(ctx, PathId::default(), event);
        });
        self.drain();
        let mut out = SendQueue::new();
        if let Some(stream) = self.session.byte_stream() {
            stream.poll_transmit(&mut out);
        }
        if !out.is_empty() {
            self.outcome.requests.push(out.take_all().to_vec());
        }
    }

    /// Passes bytes to the pull once it reads again. Returns false if the pull is over.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        for _ in 0..WAITS_MAX {
            if self.outcome.end.is_some() {
                return false;
            }
            if self.session.byte_stream().is_some_and(|stream| stream.wants_bytes()) {
                self.call(|session, ctx| {
                    if let Some(stream) = session.byte_stream() {
                        stream.handle_bytes(ctx, bytes);
                    }
                });
                self.drain();
                return true;
            }
            self.wait();
        }
        panic!("it never reads on");
    }

    fn wait(&mut self) {
        let at =
            self.session.timers().and_then(|timers| timers.poll_timeout()).expect("it waits for something");
        assert!(at > self.now.mono, "a deadline that stays");
        self.now.wall_ms += u64::try_from((at - self.now.mono).as_millis()).unwrap_or(0);
        self.now.mono = at;
        self.call(|session, ctx| session.timers().expect("it has a deadline").handle_timeout(ctx));
        self.drain();
    }

    fn finish(mut self) -> Outcome {
        self.event(PathEvent::PeerClosed);
        for _ in 0..WAITS_MAX {
            if self.outcome.end.is_some() {
                return self.outcome;
            }
            self.wait();
        }
        panic!("it never ends");
    }

    fn drain(&mut self) {
        while let Some(event) = self.call(|session, ctx| session.poll_event(ctx)) {
            assert!(self.outcome.end.is_none(), "{event:?} after the end");
            match event {
                Event::Publication(publication, PublicationEvent::Publish(_)) => self.grant(publication),
                Event::Publication(_, PublicationEvent::Unit { unit, tracks }) => {
                    self.outcome.units.push((unit, tracks))
                }
                Event::Publication(_, PublicationEvent::UnitsDropped(units)) => self.outcome.dropped += units,
                Event::Order(OrderEvent::NextServer(server)) => self.outcome.moves.push(server),
                Event::Order(OrderEvent::Pull(PullState::Failed(_))) => self.outcome.failed = true,
                Event::Closed(reason) => self.outcome.end = Some(reason),
                _ => {}
            }
        }
    }

    fn grant(&mut self, publication: Handle) {
        let position = media::Position::default();
        let grant = Grant {
            stream: StreamId(1),
            position,
            epoch: 0,
            zero_ms: 0,
            settings: Arc::clone(&SETTINGS),
            standby: false,
        };
        let reply = Reply::Publication(publication, PublicationNews::Verdict(Ok(grant)));
        self.call(|session, ctx| session.handle_reply(ctx, reply));
    }
}

/// Checks the properties of units on which the hub relies.
pub(crate) fn check(outcome: &Outcome) {
    let mut last: BTreeMap<TrackId, i64> = BTreeMap::new();
    for (unit, tracks) in &outcome.units {
        let before = last.insert(unit.track, unit.dts);
        assert!(unit.dts >= before.unwrap_or(0) && unit.pts >= unit.dts, "{unit:?}");
        let Some(track) = tracks.get(unit.track) else {
            assert_eq!(unit.track, TrackId::DATA, "nothing decodes it");
            continue;
        };
        assert!(track.timescale.to_ms(unit.pts - unit.dts) <= COMPOSITION_MS_MAX, "{unit:?}");
        assert_eq!(unit.config_epoch, track.epoch);
        let is_video = track.kind() == TrackKind::Video;
        assert!(is_video || !unit.key_frame);
        assert!(!is_video || before.is_some() || unit.key_frame, "it begins with what cannot be decoded");
        if matches!(track.config.codec(), Codec::H264 | Codec::H265) {
            assert!(nal::to_annex_b(&unit.payload).is_ok() && !unit.payload.is_empty(), "{unit:?}");
        }
    }
}
