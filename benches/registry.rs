//! Measures the cost to control of a stream that begins and ends, once while a hundred other streams are live and
//! once while ten thousand are. The ratio shows whether anything walks all streams. `make bench-registry`.

#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a program: figures for people, and it stops at what it did not expect"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crypto::Seed;
use media::Position;
use millstream::config::{AppSettings, ServerSettings};
use millstream::control::{Control, ControlConfig, Output};
use millstream::mail::{Departure, PublishRequest, Report, SourceFigures, ToControl, ToWorker};
use millstream::protocol::Addresses;
use millstream::stats::Reception;
use millstream::store::{self, Memory};
use millstream::types::{ConnId, Ingest, Now, SessionRef, StreamId, StreamKey, WorkerId};

/// Number of streams that stay live for the whole run, in each of the two runs.
const STANDING: [usize; 2] = [100, 10_000];
/// Number of streams that begin and end meanwhile; also the number of reports.
const ROUNDS: usize = 2000;
const WORKERS: u16 = 2;

fn main() {
    let [few, many] = STANDING.map(measure);
    println!(
        "{:<44} {:>10} {:>10} {:>7}",
        "µs each, beside so many streams", STANDING[0], STANDING[1], "ratio"
    );
    let names = [
        "a stream comes and goes",
        "... before it heard that it may",
        "a report of a worker with one stream",
    ];
    for (name, (few, many)) in names.iter().zip(few.into_iter().zip(many)) {
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / ROUNDS as f64;
        let ratio = many.as_secs_f64() / few.as_secs_f64();
        println!("{name:<44} {:>10.1} {:>10.1} {ratio:>7.1}", micros(few), micros(many));
    }
}

/// Returns the total times of all rounds, one for each kind of work, while `standing` streams of the first worker
/// stay live.
fn measure(standing: usize) -> [Duration; 3] {
    let mut bench = Bench::new();
    for n in 0..standing {
        bench.publish(&format!("standing{n}"), 0);
    }
    let begin = Instant::now();
    for n in 0..ROUNDS {
        let (session, stream) = bench.publish(&format!("guest{n}"), 1);
        bench.mail(ToControl::PublisherGone {
            session,
            stream,
            departure: Departure::Clean,
            position: Position::default(),
            tracks: Arc::default(),
        });
    }
    let come_and_go = begin.elapsed();

    let begin = Instant::now();
    for n in 0..ROUNDS {
        let (session, _) = bench.publish(&format!("abandoned{n}"), 1);
        bench.mail(ToControl::PublishAbandoned(session));
    }
    let abandoned = begin.elapsed();

    let (_, stream) = bench.publish("reported", 1);
    let begin = Instant::now();
    for n in 0..ROUNDS {
        bench.mail(ToControl::Report(WorkerId(1), report(stream, n as u64)));
    }
    [come_and_go, abandoned, begin.elapsed()]
}

fn report(stream: StreamId, bytes: u64) -> Report {
    let source = SourceFigures {
        clock: Default::default(),
        publisher: None,
        stream,
        received_bytes: bytes,
        position: Position { dts_ms: 1, started: true },
        epoch: 0,
        size: (1280, 720),
        codecs: Vec::new(),
        video_codec: None,
        audio_codec: None,
        pictures: 0,
        dropped: 0,
        left_out: 0,
        reception: Reception::default(),
        silent_ms: 0,
    };
    Report { sources: vec![source], viewers: vec![(stream, 3)], ..Report::default() }
}

/// Control with a store in memory, and without real workers.
struct Bench {
    control: Control,
    store: Memory,
    now: Now,
    conns: u32,
}

impl Bench {
    fn new() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 1_700_000_000_000 };
        let server = [("limits.publishers_per_address", "1000000")];
        let server = ServerSettings::with(&server).unwrap();
        let app = Arc::new(AppSettings::with("live", &[("ingestingStreamLimit", "1000000")]).unwrap());
        let config = ControlConfig {
            workers: WORKERS,
            addresses: Addresses::of(&[("rtmp", 1935)]),
            ..ControlConfig::alone(server, vec![app])
        };
        let control = Control::new(now, config, [], &Seed::from_number(1)).unwrap();
        Self { control, store: Memory::new(), now, conns: 0 }
    }

    /// Publishes a stream from a new publisher. Returns the session and the stream.
    fn publish(&mut self, id: &str, worker: u16) -> (SessionRef, StreamId) {
        self.conns += 1;
        let session = SessionRef::new(WorkerId(worker), ConnId { slot: self.conns, generation: 0 });
        let verdict = self.mail(ToControl::Publish(PublishRequest {
            session,
            key: StreamKey::new("live", id),
            ingest: Ingest { publish_type: "RTMP", name: "rtmp" },
            peer: "198.51.100.7:4000".parse().unwrap(),
            user_agent: String::new(),
            params: Vec::new(),
            via: Vec::new(),
            zero_ms: None,
            pull: None,
        }));
        (session, verdict.unwrap())
    }

    /// Passes mail to control and handles its outputs. Returns the stream if one was granted.
    fn mail(&mut self, mail: ToControl) -> Option<StreamId> {
        self.control.handle_mail(self.now, mail);
        let mut granted = None;
        while let Some(output) = self.control.poll_output() {
            match output {
                Output::Worker(_, ToWorker::Verdict { verdict, .. }) => {
                    granted = Some(verdict.unwrap().stream)
                }
                Output::Store(request) => {
                    let reply = store::handle(&mut self.store, request);
                    self.control.handle_store(self.now, reply);
                }
                _ => {}
            }
        }
        granted
    }
}
