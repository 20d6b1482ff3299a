//! The cost to control of publishers that leave together: their streams, records and presences are in its tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use media::Position;
use millstream::config::{AppSettings, ServerSettings};
use millstream::control::{Control, ControlConfig, Output};
use millstream::mail::{Departure, PublishRequest, ToControl, ToWorker};
use millstream::protocol::Addresses;
use millstream::store::{self, Memory};
use millstream::types::{ConnId, Ingest, Now, SessionRef, StreamId, StreamKey, WorkerId};

/// Control with a store in memory, and its publishers.
pub struct Publishers {
    control: Control,
    store: Memory,
    now: Now,
    granted: Vec<(SessionRef, StreamId)>,
}

impl Publishers {
    /// Makes `count` publishers, each with a stream of its own.
    pub fn new(count: usize) -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 1_700_000_000_000 };
        let server = [("limits.publishers_per_address", "1000000"), ("store.backup_hours", "0")];
        let app = [("ingestingStreamLimit", "1000000")];
        let server = ServerSettings::with(&server).expect("settings");
        let app = Arc::new(AppSettings::with("live", &app).expect("settings"));
        let config = ControlConfig {
            workers: 2,
            addresses: Addresses::of(&[("rtmp", 1935)]),
            ..ControlConfig::alone(server, vec![app])
        };
        let control = Control::new(now, config, [], &Seed::from_number(1)).expect("control");
        let mut publishers = Self { control, store: Memory::new(), now, granted: Vec::new() };
        (0..count).for_each(|number| publishers.publish(u32::try_from(number).unwrap_or(0)));
        assert_eq!(publishers.granted.len(), count);
        publishers
    }

    fn publish(&mut self, number: u32) {
        let session = SessionRef::new(WorkerId(0), ConnId { slot: number, generation: 0 });
        self.control.handle_mail(
            self.now,
            ToControl::Publish(PublishRequest {
                session,
                key: StreamKey::new("live", &format!("s{number}")),
                ingest: Ingest { publish_type: "RTMP", name: "rtmp" },
                peer: ([198, 51, 100, 7], 4000).into(),
                user_agent: String::new(),
                params: Vec::new(),
                via: Vec::new(),
                zero_ms: None,
                pull: None,
            }),
        );
        self.settle();
    }

    /// Carries out everything that control has requested.
    fn settle(&mut self) {
        if self.control.poll_timeout().is_some_and(|due| due <= self.now.mono) {
            self.control.handle_timeout(self.now);
        }
        while let Some(output) = self.control.poll_output() {
            match output {
                Output::Store(request) => {
                    let reply = store::handle(&mut self.store, request);
                    self.control.handle_store(self.now, reply);
                }
                Output::Worker(_, ToWorker::Verdict { conn, handle, verdict: Ok(grant) }) => {
                    self.granted.push((SessionRef { worker: WorkerId(0), conn, handle }, grant.stream));
                }
                Output::Worker(..)
                | Output::Job(_)
                | Output::Directory(_)
                | Output::Outbound(_)
                | Output::Leave
                | Output::Exit => {}
            }
        }
    }

    /// Lets all publishers leave. Returns their number.
    pub fn leave(&mut self) -> usize {
        let granted = std::mem::take(&mut self.granted);
        for (session, stream) in &granted {
            let (session, stream) = (*session, *stream);
            let (departure, position) = (Departure::Clean, Position::default());
            self.control.handle_mail(
                self.now,
                ToControl::PublisherGone { session, stream, departure, position, tracks: Arc::default() },
            );
            self.settle();
        }
        self.now.mono += Duration::from_secs(1);
        self.settle();
        granted.len()
    }
}
