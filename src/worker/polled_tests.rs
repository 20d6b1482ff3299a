//! Blobs and leases over two workers and their HTTP connections.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::polled::LINGER;
use super::*;
use crate::config::AppSettings;
use crate::hub::Published;
use crate::mail::{Blob, Progress, StreamDetails, StreamEnd};
use crate::protocol::{BLOB_WAIT, PathEvent, PathId};
use crate::types::{Ingest, StreamKey};

const STREAM: StreamId = StreamId(7);

/// Two workers that know the stream `live/cam`; its source is the first.
struct Pair {
    now: Now,
    workers: [Worker; 2],
    /// The sinks that the source was asked for.
    sinks: Vec<&'static str>,
    /// The streams that control was asked to start.
    wanted: Vec<StreamKey>,
    /// Clients of the second worker that wanted a file, and what they were sent.
    files: BTreeSet<ConnId>,
    sent: BTreeMap<ConnId, Vec<u8>>,
}

impl Pair {
    fn new() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let settings = std::sync::Arc::new(AppSettings::defaults("live").unwrap());
        let workers = [0, 1].map(|index| {
            let seed = Seed::from_number(u64::from(index));
            let mut worker = Worker::new(WorkerId(index), now, seed, &Seed::from_number(9));
            worker.handle_mail(now, ToWorker::App(std::sync::Arc::clone(&settings)));
            worker
        });
        let mut pair = Self {
            now,
            workers,
            sinks: Vec::new(),
            wanted: Vec::new(),
            files: BTreeSet::new(),
            sent: BTreeMap::new(),
        };
        pair.begin(STREAM);
        pair
    }

    fn begin(&mut self, stream: StreamId) {
        let settings = std::sync::Arc::new(AppSettings::defaults("live").unwrap());
        for worker in &mut self.workers {
            let (key, settings) = (StreamKey::new("live", "cam"), std::sync::Arc::clone(&settings));
            let (source, ingest) = (WorkerId(0), Ingest::PULL);
            let mail = ToWorker::StreamUp {
                stream,
                key,
                source,
                ingest,
                details: StreamDetails::default(),
                settings,
            };
            worker.handle_mail(self.now, mail);
        }
    }

    fn end(&mut self) {
        for worker in &mut self.workers {
            worker.handle_mail(self.now, ToWorker::StreamDown { stream: STREAM, end: StreamEnd::Stopped });
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now.mono += time;
        self.workers.iter_mut().for_each(|worker| worker.handle_timeout(self.now));
    }

    fn publish(&mut self, name: &str, version: u64, bytes: Bytes) -> Published {
        self.publish_of(STREAM, name, version, bytes)
    }

    /// The first worker publishes; the second receives what it is sent.
    fn publish_of(&mut self, stream: StreamId, name: &str, version: u64, bytes: Bytes) -> Published {
        let (app, name) = ("live".into(), name.into());
        let (content_type, cache_control, viewers) =
            ("application/vnd.apple.mpegurl", "no-cache", Some("hls"));
        let (progress, forgets) = (Progress::default(), Vec::new());
        let blob = Blob {
            stream,
            app,
            name,
            version,
            content_type,
            cache_control,
            viewers,
            progress,
            forgets,
            bytes,
        };
        let [first, second] = &mut self.workers;
        let published = first.publish_blob(self.now, blob);
        while let Some(output) = first.poll_output() {
            if let Output::Others(mail) = output {
                second.handle_mail(self.now, mail);
            }
        }
        published
    }

    /// What a client of the second worker is answered; and whether a file was wanted for it.
    fn get(&mut self, target: &str, from: [u8; 4]) -> (Vec<u8>, bool) {
        let id = self.ask(target, from);
        self.answer(id)
    }

    /// A client of the second worker asks. What is answered at once stays with the worker.
    fn ask(&mut self, target: &str, from: [u8; 4]) -> ConnId {
        let worker = &mut self.workers[1];
        let id = worker.accept(self.now, Listener::named("http").unwrap(), (from, 4000).into()).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        worker.handle_bytes(self.now, id, request.as_bytes());
        self.drain();
        id
    }

    /// What a client has been answered since, and whether a file was wanted for it.
    fn answer(&mut self, id: ConnId) -> (Vec<u8>, bool) {
        self.drain();
        let wants_file = self.files.remove(&id);
        (self.sent.remove(&id).unwrap_or_default(), wants_file)
    }

    fn drain(&mut self) {
        let worker = &mut self.workers[1];
        loop {
            worker.finish_turn();
            while let Some(output) = worker.poll_output() {
                if let Output::Job { conn, .. } = output {
                    self.files.insert(conn);
                } else if let Output::Worker(_, ToWorker::StartSink { kind, .. }) = output {
                    self.sinks.push(kind);
                } else if let Output::Control(ToControl::Wanted(key)) = output {
                    self.wanted.push(key);
                }
            }
            let Some((id, _)) = worker.next_write() else { break };
            let mut gather = wire::Gather::new(1 << 20);
            worker.gather(id, &mut gather);
            let bytes: Vec<u8> = gather.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            worker.sent(self.now.mono, id, bytes.len(), bytes.len());
            self.sent.entry(id).or_default().extend(bytes);
        }
    }

    /// Viewers of the stream on the second worker, as it reports them.
    fn leased(&mut self) -> Vec<(StreamId, &'static str, u32)> {
        let worker = &mut self.workers[1];
        worker.handle_timeout(self.now);
        worker.report();
        let reports = std::iter::from_fn(|| worker.poll_output()).filter_map(|output| {
            let Output::Control(ToControl::Report(_, report)) = output else { return None };
            Some(report.leased)
        });
        reports.last().unwrap()
    }
}

fn body(answer: &[u8]) -> &[u8] {
    let at = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    &answer[at + 4..]
}

#[test]
fn what_one_worker_publishes_another_answers_from_memory() {
    let mut pair = Pair::new();
    let (_, wants_file) = pair.get("/live/streams/cam/1.ts", [192, 0, 2, 1]);
    assert!(wants_file, "nothing is published yet");
    assert_eq!(pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U 1")), Published::Stored);
    let (answer, wants_file) = pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]);
    let text = String::from_utf8(answer).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("#EXTM3U 1") && !wants_file, "{text}");
    for field in ["Content-Type: application/vnd.apple.mpegurl", "Cache-Control: no-cache", "ETag: \"1-9\""] {
        assert!(text.contains(&format!("\r\n{field}\r\n")), "{field}: {text}");
    }
    pair.publish("cam.m3u8", 2, Bytes::from_static(b"#EXTM3U 2"));
    assert_eq!(body(&pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).0), b"#EXTM3U 2");
    // A segment that is longer than what waits for a peer at a time, in a folder.
    let segment: Bytes = (0..1_000_000u32).map(|i| i.to_le_bytes()[1]).collect::<Vec<u8>>().into();
    pair.publish("cam/1.ts", 1, segment.clone());
    assert_eq!(body(&pair.get("/live/streams/cam/1.ts", [192, 0, 2, 1]).0), segment);
    // Not below another application, and not behind the end of the stream.
    assert!(pair.get("/streams/cam.m3u8", [192, 0, 2, 1]).1);
    pair.workers[1].handle_mail(pair.now, ToWorker::StreamDown { stream: STREAM, end: StreamEnd::Stopped });
    pair.workers[0].handle_mail(pair.now, ToWorker::StreamDown { stream: STREAM, end: StreamEnd::Stopped });
    assert_eq!(pair.publish("cam.m3u8", 3, Bytes::from_static(b"the end")), Published::Stored);
    assert_eq!(body(&pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).0), b"the end");
    assert_eq!(pair.leased(), [], "nobody watches a stream that is over");
    pair.pass(LINGER);
    assert!(pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).1);
    assert_eq!(pair.publish("cam.m3u8", 4, Bytes::from_static(b"late")), Published::Refused);
    assert_eq!(pair.workers.each_ref().map(|worker| worker.polled.blobs.bytes()), [0, 0]);
}

#[test]
fn the_next_stream_of_a_name_takes_the_names_of_blobs() {
    let mut pair = Pair::new();
    pair.publish("cam.m3u8", 5, Bytes::from_static(b"first"));
    pair.publish("cam1.ts", 6, Bytes::from_static(b"of the first"));
    pair.end();
    let next = StreamId(8);
    pair.begin(next);
    // Who watched the first one may still fetch its segments, but is not told that the stream is over.
    assert_eq!(body(&pair.get("/live/streams/cam1.ts", [192, 0, 2, 1]).0), b"of the first");
    let waiting = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 1]);
    assert_eq!((pair.answer(waiting), &pair.sinks[..]), ((Vec::new(), false), &["hls"][..]));
    assert_eq!(pair.publish_of(next, "cam.m3u8", 1, Bytes::from_static(b"second")), Published::Stored);
    assert_eq!(body(&pair.answer(waiting).0), b"second");
    assert_eq!(pair.publish("cam.m3u8", 7, Bytes::from_static(b"late")), Published::Refused);
    assert_eq!(body(&pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).0), b"second");
    pair.pass(LINGER);
    assert!(pair.get("/live/streams/cam1.ts", [192, 0, 2, 1]).1, "the first one's is gone");
    assert_eq!(body(&pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).0), b"second");
}

#[test]
fn a_request_for_a_playlist_begins_its_sink_once_and_waits_for_it() {
    let mut pair = Pair::new();
    let first = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 1]);
    let second = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 2]);
    assert_eq!(pair.sinks, ["hls"], "one order to the source");
    assert_eq!(pair.answer(first).0, b"");
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U 1"));
    for waiting in [first, second] {
        let (answer, wants_file) = pair.answer(waiting);
        assert_eq!((body(&answer), wants_file), (&b"#EXTM3U 1"[..], false));
    }
    assert_eq!(pair.leased(), [(STREAM, "hls", 2)]);
    assert_eq!(pair.workers[1].polled.awaited(), 0);
}

#[test]
fn a_request_for_a_stream_that_viewers_start_starts_it() {
    let mut pair = Pair::new();
    pair.end();
    let key = StreamKey::new("live", "cam");
    pair.workers[1].handle_mail(pair.now, ToWorker::AutoStart(vec![(key.clone(), true)]));
    let waiting = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 1]);
    assert_eq!((&pair.wanted[..], &pair.sinks[..]), (&[key][..], &[][..]));
    let next = StreamId(8);
    pair.begin(next);
    assert_eq!(pair.answer(waiting), (Vec::new(), false));
    assert_eq!(pair.sinks, ["hls"]);
    pair.publish_of(next, "cam.m3u8", 1, Bytes::from_static(b"#EXTM3U"));
    assert_eq!(body(&pair.answer(waiting).0), b"#EXTM3U");
}

#[test]
fn who_waits_for_what_does_not_come_is_answered_in_time() {
    let mut pair = Pair::new();
    let waiting = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 1]);
    let gone = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 2]);
    pair.workers[1].handle_path(pair.now, gone, PathId::default(), PathEvent::Broken("reset"));
    pair.pass(BLOB_WAIT - Duration::from_millis(100));
    assert!(!pair.answer(waiting).1);
    pair.pass(Duration::from_millis(200));
    assert!(pair.answer(waiting).1, "a file may have the name");
    assert_eq!(pair.workers[1].polled.awaited(), 0);
    // Nobody waits for a stream that is not there, or that the application does not have as HLS.
    assert!(pair.get("/live/streams/other.m3u8", [192, 0, 2, 1]).1);
    let off = AppSettings::of(crate::protocol::schema(), "live", &[("hlsMuxingEnabled", "false")]).unwrap();
    pair.workers[1].handle_mail(pair.now, ToWorker::App(std::sync::Arc::new(off)));
    assert!(pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).1);
}

#[test]
fn who_asks_again_and_again_is_a_viewer_while_it_does() {
    let mut pair = Pair::new();
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U"));
    assert_eq!(pair.leased(), []);
    for (target, from) in [
        ("/live/streams/cam.m3u8", [192, 0, 2, 1]),
        ("/live/streams/cam.m3u8", [192, 0, 2, 1]),
        ("/live/streams/cam.m3u8?subscriberId=a", [192, 0, 2, 1]),
        ("/live/streams/cam.m3u8", [192, 0, 2, 2]),
        ("/live/streams/other.m3u8", [192, 0, 2, 3]),
    ] {
        pair.get(target, from);
    }
    assert_eq!(pair.leased(), [(STREAM, "hls", 3)]);
    pair.now.mono += Duration::from_secs(6);
    pair.get("/live/streams/cam.m3u8?subscriberId=a", [192, 0, 2, 9]);
    pair.now.mono += Duration::from_secs(6);
    assert_eq!(pair.leased(), [(STREAM, "hls", 1)]);
    pair.now.mono += Duration::from_secs(6);
    assert_eq!(pair.leased(), []);
}
