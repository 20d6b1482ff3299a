//! A worker with sessions that do as they are told.

use std::sync::{Arc, Mutex, MutexGuard};

use wire::SendQueue;

use super::*;
use crate::config::AppSettings;
use crate::mail::Ingest;
use crate::protocol::{Event, Format};
use crate::stats::WorkerFigures;

/// What a session does next.
#[derive(Debug)]
struct Script {
    events: VecDeque<Event>,
    protocol: &'static str,
}

impl Default for Script {
    fn default() -> Self {
        Self { events: VecDeque::new(), protocol: "http" }
    }
}

/// A session that follows its script.
#[derive(Debug, Clone, Default)]
struct Actor(Arc<Mutex<Script>>);

impl Actor {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap()
    }
}

impl Session for Actor {
    fn handle_bytes(&mut self, _ctx: &Context<'_>, _bytes: &[u8]) {}

    fn handle_hangup(&mut self, _ctx: &Context<'_>, _error: Option<&str>) {}

    fn handle_timeout(&mut self, _ctx: &Context<'_>) {}

    fn wants_bytes(&self) -> bool {
        true
    }

    fn poll_event(&mut self, _ctx: &Context<'_>) -> Option<Event> {
        self.script().events.pop_front()
    }

    fn poll_transmit(&mut self, _out: &mut SendQueue) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn close(&mut self, _ctx: &Context<'_>, _reason: &str) {}

    fn is_authenticated(&self) -> bool {
        true
    }

    fn protocol(&self) -> &'static str {
        self.script().protocol
    }
}

const STREAM: StreamId = StreamId(1);

struct Rig {
    worker: Worker,
    now: Now,
}

impl Rig {
    /// A worker that is the source of `live/s`.
    fn new() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let mut worker = Worker::new(WorkerId(0), now, Seed::from_number(1));
        let settings = Arc::new(AppSettings::defaults("live").unwrap());
        worker.handle_mail(now, ToWorker::App(Arc::clone(&settings)));
        let (key, source, ingest) = (StreamKey::new("live", "s"), WorkerId(0), Ingest::Rtmp);
        worker.handle_mail(now, ToWorker::StreamUp { stream: STREAM, key, source, ingest, settings });
        Self { worker, now }
    }

    fn connect(&mut self) -> (ConnId, Actor) {
        let actor = Actor::default();
        let conn = Conn::new(([192, 0, 2, 1], 1).into(), Box::new(actor.clone()), self.now.mono);
        (self.worker.conns.insert(conn).unwrap(), actor)
    }

    /// Has the session of a connection say these.
    fn say(&mut self, id: ConnId, actor: &Actor, events: impl IntoIterator<Item = Event>) {
        actor.script().events.extend(events);
        self.worker.touch(id);
        self.worker.finish_turn();
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

fn subscribe() -> Event {
    Event::Subscribe { key: StreamKey::new("live", "s"), format: Format::Flv }
}

#[test]
fn jumps_outlive_the_subscription_and_are_counted_once() {
    let mut rig = Rig::new();
    let (id, actor) = rig.connect();
    for round in 1..=3 {
        rig.say(id, &actor, [subscribe()]);
        let subscriber = rig.worker.conns.get_mut(id).unwrap().subscriber.as_mut().unwrap();
        (subscriber.jumps, subscriber.skipped) = (2, 50);
        assert_eq!(rig.measure().counters.jumps, 2 * round);
        if round < 3 {
            rig.say(id, &actor, [Event::Unsubscribe]);
            assert_eq!(rig.measure().counters.jumps, 2 * round);
            // For the line about its end.
            let conn = rig.worker.conns.get(id).unwrap();
            assert_eq!((conn.jumps, conn.skipped), (2 * round, 50 * round));
        }
    }
    rig.worker.handle_hangup(rig.now, id, Some("reset"));
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
    // The bytes that made it something else were still those of a request.
    rig.worker.handle_bytes(rig.now, id, &[0; 10]);
    assert_eq!(rows(&mut rig), [(0, 0, 110, 0), (1, 0, 0, 0)]);
    rig.worker.handle_bytes(rig.now, id, &[0; 1]);
    rig.worker.sent(rig.now.mono, id, 5000, 5000);
    assert_eq!(rows(&mut rig), [(0, 0, 110, 0), (1, 0, 1, 5000)]);
    rig.worker.handle_hangup(rig.now, id, Some("reset"));
    assert_eq!(rows(&mut rig), [(0, 0, 110, 0), (0, 1, 1, 5000)]);
}
