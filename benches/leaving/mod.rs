//! The cost to a worker of many peers, or of many streams, that end together. Each end costs only what the peer or
//! stream held, and no walk over the others, so twice as many cost twice as much (docs/security.md, "What peers
//! can fill").

mod control;

use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;
use millstream::config::AppSettings;
use millstream::mail::{PushOrder, StreamDetails, StreamEnd, ToControl, ToWorker};
use millstream::protocol::{Binding, Listener, PathEvent, PathId, Port, outbound};
use millstream::types::{ConnId, Ingest, Now, PushId, StreamId, StreamKey, WorkerId};
use millstream::worker::{Output, Worker};

pub use control::Publishers;

/// Number of streams that each signalling socket waits for.
const AWAITED: usize = 32;
/// The request that opens a signalling socket.
const UPGRADE: &[u8] =
    b"GET /live/websocket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A worker, with the peers, pushes or streams that leave it.
pub struct Crowd {
    worker: Worker,
    now: Now,
    settings: Arc<AppSettings>,
    peers: Vec<ConnId>,
    streams: Vec<StreamId>,
    pushes: Vec<PushId>,
}

impl Crowd {
    fn new() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let settings = Arc::new(AppSettings::defaults("live").expect("defaults"));
        let mut worker = Worker::new(WorkerId(0), now, Seed::from_number(1), &Seed::from_number(9));
        worker.handle_mail(now, ToWorker::App(Arc::clone(&settings)));
        let (peers, streams, pushes) = (Vec::new(), Vec::new(), Vec::new());
        let mut crowd = Self { worker, now, settings, peers, streams, pushes };
        crowd.begin(1, "cam");
        crowd
    }

    /// Makes a worker with `count` HTTP peers that have requested `target`.
    pub fn asking(count: usize, target: &str) -> Self {
        let mut crowd = Self::new();
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        (0..count).for_each(|_| crowd.arrive(request.as_bytes()));
        crowd
    }

    /// Makes a worker with `count` viewers of a stream that is being started for them.
    pub fn starting(count: usize) -> Self {
        let mut crowd = Self::new();
        let stream = StreamKey::new("live", "camera");
        crowd.worker.handle_mail(crowd.now, ToWorker::AutoStart(vec![(stream, true)]));
        (0..count).for_each(|_| crowd.arrive(b"GET /live/camera.flv HTTP/1.1\r\nHost: h\r\n\r\n"));
        crowd
    }

    /// Makes a worker with `count` signalling sockets. Each waits for [`AWAITED`] streams of its own, none of
    /// which is live.
    pub fn awaiting(count: usize) -> Self {
        let mut crowd = Self::new();
        for port in Port::all() {
            crowd
                .worker
                .port_bound(port, Binding { address: ([127, 0, 0, 1], 5000).into(), hosts: &[], workers: 1 });
        }
        for number in 0..count {
            crowd.arrive(UPGRADE);
            let Some(id) = crowd.peers.last().copied() else { break };
            for stream in 0..AWAITED {
                let command = format!(r#"{{"command":"play","streamId":"s{number}-{stream}"}}"#);
                let length = u8::try_from(command.len()).unwrap_or(0);
                // A WebSocket text frame. Its mask of zeros leaves the text unchanged.
                let frame = [&[0x81, 0x80 | length, 0, 0, 0, 0], command.as_bytes()].concat();
                crowd.worker.handle_bytes(crowd.now, id, &frame);
                crowd.settle();
            }
        }
        let awaited =
            crowd.worker.held().iter().find(|(name, _)| *name == "awaited streams").map(|row| row.1);
        assert_eq!(awaited, Some(count * AWAITED));
        crowd
    }

    /// Makes a worker with `count` pushes of one stream, whose servers have not answered yet.
    pub fn pushing(count: usize) -> Self {
        let mut crowd = Self::new();
        for number in 0..count {
            let push = PushId(u64::try_from(number).unwrap_or(0));
            let target =
                outbound::read_endpoint(&format!("rtmp://192.0.2.1/app/{number}")).expect("a target");
            let order = PushOrder {
                push,
                attempt: 1,
                stream: StreamId(1),
                address: ([192, 0, 2, 1], 1935).into(),
                target,
                via: Vec::new(),
                settings: Arc::clone(&crowd.settings),
            };
            crowd.worker.handle_mail(crowd.now, ToWorker::StartPush(Box::new(order)));
            crowd.settle();
            crowd.pushes.push(push);
        }
        crowd
    }

    /// Adds a peer that sends these bytes.
    fn arrive(&mut self, bytes: &[u8]) {
        let listener = Listener::named("http").expect("a listener");
        let [_, _, high, low] = u32::try_from(self.peers.len()).unwrap_or(0).to_be_bytes();
        let peer = ([10, 0, high, low], 4000).into();
        let id = self.worker.accept(self.now, listener, peer).expect("a place");
        self.worker.handle_bytes(self.now, id, bytes);
        self.settle();
        self.peers.push(id);
    }

    /// Makes a worker that knows of `count` streams that are published elsewhere.
    pub fn of_streams(count: usize) -> Self {
        let mut crowd = Self::new();
        for number in 0..count {
            let id = crowd.begin(u64::try_from(number).unwrap_or(0) + 2, &format!("s{number}"));
            crowd.streams.push(id);
        }
        crowd
    }

    fn begin(&mut self, number: u64, id: &str) -> StreamId {
        let (stream, key) = (StreamId(number), StreamKey::new("live", id));
        let mail = ToWorker::StreamUp {
            stream,
            key,
            source: WorkerId(0),
            ingest: Ingest::PULL,
            details: StreamDetails::default(),
            settings: Arc::clone(&self.settings),
        };
        self.worker.handle_mail(self.now, mail);
        self.settle();
        stream
    }

    fn settle(&mut self) {
        self.worker.finish_turn();
        while let Some(output) = self.worker.poll_output() {
            // Answers in place of control, and admits every viewer.
            if let Output::Control(ToControl::Play(request)) = output {
                let (conn, handle) = (request.session.conn, request.session.handle);
                let mail = ToWorker::PlayVerdict { conn, handle, verdict: Ok(()) };
                self.worker.handle_mail(self.now, mail);
                self.worker.finish_turn();
            }
        }
    }

    /// Lets all peers, pushes and streams leave. Returns their number.
    pub fn leave(&mut self) -> usize {
        let (peers, streams) = (std::mem::take(&mut self.peers), std::mem::take(&mut self.streams));
        for id in &peers {
            self.worker.handle_path(self.now, *id, PathId::default(), PathEvent::Broken("reset"));
            self.settle();
        }
        for stream in &streams {
            self.worker
                .handle_mail(self.now, ToWorker::StreamDown { stream: *stream, end: StreamEnd::Stopped });
            self.settle();
        }
        let pushes = std::mem::take(&mut self.pushes);
        for push in &pushes {
            self.worker.handle_mail(self.now, ToWorker::StopPush(*push));
            self.settle();
        }
        peers.len() + streams.len() + pushes.len()
    }
}
