//! Blobs and leases over two workers and their HTTP connections.

use bytes::Bytes;

use super::*;
use crate::config::AppSettings;
use crate::hub::Published;
use crate::mail::{Blob, StreamEnd};
use crate::types::{Ingest, StreamKey};

const STREAM: StreamId = StreamId(7);

/// Two workers that know the stream `live/cam`; its source is the first.
struct Pair {
    now: Now,
    workers: [Worker; 2],
}

impl Pair {
    fn new() -> Self {
        let now = Now { mono: Instant::now(), wall_ms: 0 };
        let settings = std::sync::Arc::new(AppSettings::defaults("live").unwrap());
        let workers = [0, 1].map(|index| {
            let seed = Seed::from_number(u64::from(index));
            let mut worker = Worker::new(WorkerId(index), now, seed, &Seed::from_number(9));
            worker.handle_mail(now, ToWorker::App(std::sync::Arc::clone(&settings)));
            let (key, settings) = (StreamKey::new("live", "cam"), std::sync::Arc::clone(&settings));
            let (source, ingest) = (WorkerId(0), Ingest::PULL);
            worker.handle_mail(
                now,
                ToWorker::StreamUp { stream: STREAM, key, source, ingest, tell_viewers: false, settings },
            );
            worker
        });
        Self { now, workers }
    }

    /// The first worker publishes; the second receives what it is sent.
    fn publish(&mut self, name: &str, version: u64, bytes: Bytes) -> Published {
        let (app, name) = ("live".into(), name.into());
        let (content_type, cache_control, viewers) =
            ("application/vnd.apple.mpegurl", "no-cache", Some("hls"));
        let blob = Blob { stream: STREAM, app, name, version, content_type, cache_control, viewers, bytes };
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
        let worker = &mut self.workers[1];
        let id = worker.accept(self.now, Listener::named("http").unwrap(), (from, 4000).into()).unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        worker.handle_bytes(self.now, id, request.as_bytes());
        let (mut sent, mut wants_file) = (Vec::new(), false);
        loop {
            worker.finish_turn();
            while let Some(output) = worker.poll_output() {
                wants_file |= matches!(output, Output::Job { .. });
            }
            let Some((id, _)) = worker.next_write() else { break };
            let mut gather = wire::Gather::new(1 << 20);
            worker.gather(id, &mut gather);
            let bytes: Vec<u8> = gather.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            worker.sent(self.now.mono, id, bytes.len(), bytes.len());
            sent.extend(bytes);
        }
        (sent, wants_file)
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
    let (_, wants_file) = pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]);
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
    assert!(pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).1);
    pair.publish("cam.m3u8", 3, Bytes::from_static(b"late"));
    assert_eq!(pair.workers[1].polled.blobs.bytes(), 0);
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
