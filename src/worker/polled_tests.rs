//! Blobs (published files) and leases (viewers without a connection), across two workers and their HTTP
//! connections.

mod caches;
mod ends;
mod ladders;
mod leaving;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::*;
use crate::config::AppSettings;
use crate::hub::{BlobMemory, OWN_TEXT_MAX, Published};
use crate::mail::{
    BLOBS_LINGER, Blob, NoSubscription, Obsolete, Packed, PlayRequest, Progress, SessionSettings, SinkNews,
    StreamDetails, StreamEnd,
};
use crate::protocol::{BLOB_WAIT, PathEvent, PathId};
use crate::types::{Ingest, StreamKey};

const STREAM: StreamId = StreamId(7);

/// Two workers that know the stream `live/cam`. The first worker has its publisher.
struct Pair {
    now: Now,
    workers: [Worker; 2],
    /// Sinks that the worker with the publisher was ordered to begin.
    sinks: Vec<&'static str>,
    /// The streams that control was asked to start.
    wanted: Vec<StreamKey>,
    /// Requests with which control was asked about viewers.
    plays: Vec<PlayRequest>,
    /// Additional header lines of all further requests.
    headers: &'static str,
    /// Clients of the second worker that requested a file.
    files: BTreeSet<ConnId>,
    jobs: BTreeMap<ConnId, crate::jobs::JobId>,
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
            plays: Vec::new(),
            headers: "",
            files: BTreeSet::new(),
            jobs: BTreeMap::new(),
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

    /// Publishes a blob on the first worker, and delivers the mail to the second worker.
    fn publish_of(&mut self, stream: StreamId, name: &str, version: u64, bytes: Bytes) -> Published {
        self.publish_as(stream, name, version, bytes, Progress::default())
    }

    fn publish_as(
        &mut self,
        stream: StreamId,
        name: &str,
        version: u64,
        bytes: Bytes,
        progress: Progress,
    ) -> Published {
        let (app, name) = ("live".into(), name.into());
        let (content_type, viewers) = ("application/vnd.apple.mpegurl", Some("hls"));
        let blob = Blob {
            stream,
            app,
            name,
            version,
            content_type,
            viewers,
            progress,
            maker: "hls",
            obsolete: Obsolete::default(),
            calendar: None,
            fresh_until: None,
            bytes,
            is_needed: false,
            ladder: None,
            packed: Packed::default(),
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

    /// Publishes a blob with this content type.
    fn publish_typed(&mut self, name: &str, content_type: &'static str) {
        self.publish_blob(Blob { content_type, viewers: Some("hls"), ..plain_blob(STREAM, name) });
    }

    fn publish_blob(&mut self, blob: Blob) {
        let [first, second] = &mut self.workers;
        first.publish_blob(self.now, blob);
        while let Some(output) = first.poll_output() {
            if let Output::Others(mail) = output {
                second.handle_mail(self.now, mail);
            }
        }
    }

    /// Requests `target` from the second worker. Returns the response, and true if a file was requested.
    fn get(&mut self, target: &str, from: [u8; 4]) -> (Vec<u8>, bool) {
        let id = self.ask(target, from);
        self.answer(id)
    }

    /// Sends a request to the second worker. [`Self::answer`] returns the response.
    fn ask(&mut self, target: &str, from: [u8; 4]) -> ConnId {
        let worker = &mut self.workers[1];
        let id = worker.accept(self.now, Listener::named("http").unwrap(), (from, 4000).into()).unwrap();
        let headers = self.headers;
        let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}\r\n");
        worker.handle_bytes(self.now, id, request.as_bytes());
        self.drain();
        id
    }

    /// Returns the response that a client got since the last call, and true if it needs a file.
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
                if let Output::Job { conn, job } = output {
                    self.files.insert(conn);
                    self.jobs.insert(conn, job.id);
                } else if let Output::Control(ToControl::Sink { kind, news: SinkNews::Wanted, .. }) = output {
                    self.sinks.push(kind);
                } else if let Output::Control(ToControl::Wanted { key, .. }) = output {
                    self.wanted.push(key);
                } else if let Output::Control(ToControl::Play(request)) = output {
                    self.plays.push(*request);
                }
            }
            let Some((id, _)) = worker.next_write(Writers::All) else { break };
            let mut gather = wire::Gather::new(1 << 20);
            worker.gather(id, &mut gather);
            let bytes: Vec<u8> = gather.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            worker.sent(self.now.mono, id, bytes.len(), bytes.len());
            self.sent.entry(id).or_default().extend(bytes);
        }
    }

    /// Returns the viewers of the stream that the second worker reports.
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

fn plain_blob(stream: StreamId, name: &str) -> Blob {
    Blob {
        stream,
        app: "live".into(),
        name: name.into(),
        version: 1,
        content_type: "video/mp4",
        viewers: None,
        progress: Progress::default(),
        is_needed: false,
        maker: "hls",
        obsolete: Obsolete::default(),
        calendar: None,
        fresh_until: None,
        ladder: None,
        bytes: Bytes::from_static(b"media"),
        packed: Packed::default(),
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
    // A segment with a folder in its name. It is larger than a session's output queue, so it is sent in pieces.
    let segment: Bytes = (0..1_000_000u32).map(|i| i.to_le_bytes()[1]).collect::<Vec<u8>>().into();
    pair.publish("cam/1.ts", 1, segment.clone());
    assert_eq!(body(&pair.get("/live/streams/cam/1.ts", [192, 0, 2, 1]).0), segment);
    // The blob is not found under another application, nor after the stream has ended.
    assert!(pair.get("/streams/cam.m3u8", [192, 0, 2, 1]).1);
    pair.workers[1].handle_mail(pair.now, ToWorker::StreamDown { stream: STREAM, end: StreamEnd::Stopped });
    pair.workers[0].handle_mail(pair.now, ToWorker::StreamDown { stream: STREAM, end: StreamEnd::Stopped });
    assert_eq!(pair.publish("cam.m3u8", 3, Bytes::from_static(b"the end")), Published::Stored);
    assert_eq!(body(&pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).0), b"the end");
    assert_eq!(pair.leased(), [], "nobody watches a stream that is over");
    pair.pass(BLOBS_LINGER);
    assert!(pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).1);
    assert_eq!(pair.publish("cam.m3u8", 4, Bytes::from_static(b"late")), Published::Refused);
    assert_eq!(pair.workers.each_ref().map(|worker| worker.turn.blobs.bytes()), [0, 0]);
}

/// Memory for blobs of eight bytes and more.
#[derive(Debug)]
struct Shelf(Bytes);

impl BlobMemory for Shelf {
    fn keep(&self, bytes: &Bytes) -> Option<Bytes> {
        (bytes.len() >= 8).then(|| self.0.slice(..bytes.len()))
    }
}

#[test]
fn what_is_published_is_everywhere_where_the_memory_for_blobs_has_put_it() {
    let mut pair = Pair::new();
    let shelf = Bytes::from(vec![b'x'; 100]);
    let [first, second] = std::mem::replace(&mut pair.workers, Pair::new().workers);
    pair.workers = [first.with_blob_memory(Box::new(Shelf(shelf.clone()))), second];
    let small = Bytes::from_static(b"small");
    pair.publish("1.ts", 1, Bytes::from_static(b"large enough"));
    pair.publish("2.ts", 1, small.clone());
    for worker in &pair.workers {
        let address = |name| worker.turn.blobs.get("live", name).unwrap().bytes.as_ptr();
        assert_eq!((address("1.ts"), address("2.ts")), (shelf.as_ptr(), small.as_ptr()));
    }
    assert_eq!(body(&pair.get("/live/streams/1.ts", [192, 0, 2, 1]).0), b"xxxxxxxxxxxx");
}

#[test]
fn the_next_stream_of_a_name_takes_the_names_of_blobs() {
    let mut pair = Pair::new();
    pair.publish("cam.m3u8", 5, Bytes::from_static(b"first"));
    pair.publish("cam1.ts", 6, Bytes::from_static(b"of the first"));
    pair.end();
    let next = StreamId(8);
    pair.begin(next);
    // Viewers of the first stream may still fetch its segments. Its playlist is no longer served: a request waits for
    // the playlist of the second stream.
    assert_eq!(body(&pair.get("/live/streams/cam1.ts", [192, 0, 2, 1]).0), b"of the first");
    let waiting = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 1]);
    assert_eq!((pair.answer(waiting), &pair.sinks[..]), ((Vec::new(), false), &["hls"][..]));
    assert_eq!(pair.publish_of(next, "cam.m3u8", 1, Bytes::from_static(b"second")), Published::Stored);
    assert_eq!(body(&pair.answer(waiting).0), b"second");
    assert_eq!(pair.publish("cam.m3u8", 7, Bytes::from_static(b"late")), Published::Refused);
    assert_eq!(body(&pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).0), b"second");
    pair.pass(BLOBS_LINGER);
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
fn a_request_for_a_stream_that_no_node_has_is_answered_when_control_says_so() {
    let mut pair = Pair::new();
    pair.end();
    let server = SessionSettings { fetches_any: true, ..SessionSettings::default() };
    pair.workers[1].handle_mail(pair.now, ToWorker::Server(std::sync::Arc::new(server)));
    let (cam, cam2) = (StreamKey::new("live", "cam"), StreamKey::new("live", "cam2"));
    let waiting = pair.ask("/live/streams/cam.m3u8", [192, 0, 2, 1]);
    let other = pair.ask("/live/streams/cam2.m3u8", [192, 0, 2, 1]);
    assert_eq!(pair.wanted, [cam.clone(), cam2.clone()]);
    pair.workers[1].handle_mail(pair.now, ToWorker::NotComing(cam));
    assert!(pair.answer(waiting).1 && !pair.answer(other).1, "who waits for another stream goes on");
    pair.workers[1].handle_mail(pair.now, ToWorker::NotComing(cam2));
    assert!(pair.answer(other).1);
    assert_eq!(pair.workers[1].polled.awaited(), 0);
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
    // Requests do not wait if the stream does not exist, or if HLS is switched off for the application.
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
        ("/live/streams/cam.m3u8?token=a", [192, 0, 2, 1]),
        ("/live/streams/cam.m3u8", [192, 0, 2, 2]),
        ("/live/streams/other.m3u8", [192, 0, 2, 3]),
    ] {
        pair.get(target, from);
    }
    // If tokens are not checked, they do not distinguish viewers.
    assert_eq!(pair.leased(), [(STREAM, "hls", 2)]);
    pair.now.mono += Duration::from_secs(6);
    pair.get("/live/streams/cam.m3u8?token=a", [192, 0, 2, 9]);
    pair.now.mono += Duration::from_secs(6);
    assert_eq!(pair.leased(), [(STREAM, "hls", 1)]);
    pair.now.mono += Duration::from_secs(6);
    assert_eq!(pair.leased(), []);
}

const PLAYLIST: &str = "ll-hls/cam/cam__video.m3u8";

impl Pair {
    /// Makes a pair with these settings of the application.
    fn with(settings: &[(&str, &str)]) -> Self {
        let mut pair = Self::new();
        let app = AppSettings::of(crate::protocol::schema(), "live", settings).unwrap();
        let app = std::sync::Arc::new(app);
        for worker in &mut pair.workers {
            worker.handle_mail(pair.now, ToWorker::App(std::sync::Arc::clone(&app)));
        }
        pair
    }

    fn playlist(&mut self, version: u64, segment: u64, part: u32) {
        let text = format!("#EXTM3U {segment}.{part}").into();
        self.publish_as(STREAM, PLAYLIST, version, text, Progress { segment, part });
    }
}

#[test]
fn a_reload_waits_until_the_playlist_is_as_far_as_it_says() {
    let mut pair = Pair::with(&[("hlsEnableLowLatency", "true")]);
    let target = |query: &str| format!("/live/streams/{PLAYLIST}?{query}");
    let from = [192, 0, 2, 1];
    pair.playlist(1, 7, 2);
    for there in ["_HLS_msn=6", "_HLS_msn=7&_HLS_part=1", "_HLS_msn=3&_HLS_part=99", "_HLS_other=x"] {
        assert_eq!(body(&pair.get(&target(there), from).0), b"#EXTM3U 7.2", "{there}");
    }
    for wrong in [
        "_HLS_part=9",
        "_HLS_msn=x",
        "_HLS_msn=",
        "_HLS_msn=-1",
        "_HLS_msn=+7",
        "_HLS_msn=99999999999999999999",
        "_HLS_msn=7&_HLS_part=x",
    ] {
        assert!(pair.get(&target(wrong), from).0.starts_with(b"HTTP/1.1 400 "), "{wrong}");
    }
    let part = pair.ask(&target("_HLS_msn=7&_HLS_part=2"), from);
    let segment = pair.ask(&target("_HLS_msn=7"), from);
    assert!(pair.answer(part).0.is_empty() && pair.answer(segment).0.is_empty());
    pair.playlist(2, 7, 3);
    assert_eq!(body(&pair.answer(part).0), b"#EXTM3U 7.3");
    assert!(pair.answer(segment).0.is_empty());
    // A part number beyond a segment's last part means a part of the next segment (RFC 8216bis 6.2.5.2).
    let beyond = pair.ask(&target("_HLS_msn=7&_HLS_part=50"), from);
    pair.playlist(3, 8, 0);
    assert_eq!(
        (body(&pair.answer(segment).0), body(&pair.answer(beyond).0)),
        (&b"#EXTM3U 8.0"[..], &b"#EXTM3U 8.0"[..])
    );
    assert!(pair.get(&target("_HLS_msn=11"), from).0.starts_with(b"HTTP/1.1 400 "));
    // If the playlist makes no progress, the response is 503, and no request is left waiting.
    let waiting = pair.ask(&target("_HLS_msn=9"), from);
    let gone = pair.ask(&target("_HLS_msn=9"), from);
    pair.workers[1].handle_path(pair.now, gone, PathId::default(), PathEvent::Broken("reset"));
    pair.pass(BLOB_WAIT + Duration::from_millis(100));
    assert!(pair.answer(waiting).0.starts_with(b"HTTP/1.1 503 "));
    assert_eq!(pair.workers[1].polled.awaited(), 0);
    // When the stream ends, all waiting requests are answered.
    let waiting = pair.ask(&target("_HLS_msn=9"), from);
    pair.publish_as(STREAM, PLAYLIST, 9, Bytes::from_static(b"over"), Progress::ENDED);
    assert_eq!(body(&pair.answer(waiting).0), b"over");
}

#[test]
fn a_part_is_waited_for_when_it_is_the_next_one() {
    let mut pair = Pair::with(&[("hlsEnableLowLatency", "true")]);
    let target = |name: &str| format!("/live/streams/ll-hls/cam/cam__video{name}.m4s");
    let from = [192, 0, 2, 1];
    pair.playlist(1, 7, 2);
    // `_5_000000003` names the third segment since number 5, i.e. segment 7. `.2` is its part 2, which comes next.
    let next = pair.ask(&target("_5_000000003.2"), from);
    assert_eq!(pair.answer(next), (Vec::new(), false));
    for absent in [
        "_5_000000003.1",
        "_5_000000002.0",
        "_5_000000004.0",
        "_5_000000005.0",
        "_4_000000003.2",
        "000000007.2",
        "x",
        "_5_1.x",
        "_5_1.99999999999",
    ] {
        assert!(pair.get(&target(absent), from).1, "{absent}: a file may have the name");
    }
    pair.publish(&target("_5_000000003.2")["/live/streams/".len()..], 1, Bytes::from_static(b"part"));
    pair.playlist(2, 7, 3);
    assert_eq!(body(&pair.answer(next).0), b"part");
}

#[test]
fn a_delta_is_given_to_who_asks_for_it() {
    let mut pair = Pair::with(&[("hlsEnableLowLatency", "true")]);
    let get = |pair: &mut Pair, query: &str| {
        let (answer, _) = pair.get(&format!("/live/streams/{PLAYLIST}{query}"), [192, 0, 2, 1]);
        String::from_utf8(body(&answer).to_vec()).unwrap()
    };
    let progress = Progress { segment: 7, part: 0 };
    pair.publish_as(STREAM, &format!("{PLAYLIST}?_HLS_skip=YES"), 1, Bytes::from_static(b"delta"), progress);
    pair.playlist(1, 7, 0);
    assert_eq!(
        (get(&mut pair, ""), get(&mut pair, "?_HLS_skip=NO")),
        ("#EXTM3U 7.0".into(), "#EXTM3U 7.0".into())
    );
    assert_eq!(
        (get(&mut pair, "?_HLS_skip=YES"), get(&mut pair, "?_HLS_skip=v2")),
        ("delta".into(), "delta".into())
    );
    // A delta update that is older than the full playlist is not served. The client gets the full playlist.
    pair.playlist(2, 8, 0);
    assert_eq!(get(&mut pair, "?_HLS_skip=YES"), "#EXTM3U 8.0");
}

#[test]
fn a_cookie_tells_viewers_of_one_address_apart() {
    let mut pair = Pair::with(&[("hls.identifyViewers", "cookie")]);
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U"));
    let get = |pair: &mut Pair, headers: &'static str| {
        pair.headers = headers;
        String::from_utf8(pair.get("/live/streams/cam.m3u8", [192, 0, 2, 1]).0).unwrap()
    };
    let first = get(&mut pair, "User-Agent: a\r\n");
    let cookie = first.split("Set-Cookie: viewer=").nth(1).unwrap().split(';').next().unwrap();
    assert!(cookie.len() == 32 && first.contains("; Path=/live; HttpOnly; SameSite=Lax\r\n"), "{first}");
    assert_eq!(pair.leased(), [(STREAM, "hls", 1)]);
    let second = get(&mut pair, "User-Agent: b\r\n");
    assert_ne!(second.split("viewer=").nth(1).unwrap().split(';').next().unwrap(), cookie);
    assert_eq!(pair.leased(), [(STREAM, "hls", 2)], "another user agent");
    // This client now sends a cookie. It counts as the same viewer as its first request, which had none.
    let known = get(&mut pair, "User-Agent: a\r\nCookie: x=1; viewer=0123456789abcdef0123456789abcdef\r\n");
    assert!(!known.contains("Set-Cookie"));
    assert_eq!(pair.leased(), [(STREAM, "hls", 2)]);
    get(&mut pair, "User-Agent: a\r\nCookie: viewer=00000000000000000000000000000000\r\n");
    assert_eq!(pair.leased(), [(STREAM, "hls", 3)]);
    get(&mut pair, "User-Agent: a\r\nCookie: viewer=../../x\r\n");
    assert_eq!(pair.leased(), [(STREAM, "hls", 4)], "that is no cookie of ours");
}

#[test]
fn who_is_checked_is_let_in_by_control_and_asked_about_again_in_time() {
    let mut pair = Pair::with(&[("playTokenControlEnabled", "true")]);
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U\n#EXTINF:2,\n1.ts\n"));
    pair.publish("1.ts", 1, Bytes::from_static(b"media"));
    let from = [192, 0, 2, 1];
    let verdict = |pair: &mut Pair, verdict: Result<(), NoSubscription>| {
        let request = pair.plays.pop().unwrap();
        let mail = ToWorker::Pass { conn: request.session.conn, verdict };
        pair.workers[1].handle_mail(pair.now, mail);
        request
    };
    let waiting = pair.ask("/live/streams/cam.m3u8?token=t", from);
    assert!(pair.answer(waiting).0.is_empty());
    let request = verdict(&mut pair, Ok(()));
    assert_eq!((request.key, request.egress), (StreamKey::new("live", "cam"), "hls"));
    assert_eq!(body(&pair.answer(waiting).0), b"#EXTM3U\n#EXTINF:2,\n1.ts?token=t\n");
    // For some time, the same credentials are accepted for any file without asking control again.
    assert_eq!(body(&pair.get("/live/streams/1.ts?token=t", from).0), b"media");
    assert!(pair.plays.is_empty());
    let other = pair.ask("/live/streams/1.ts?token=t", [192, 0, 2, 2]);
    let who = verdict(&mut pair, Err(NoSubscription::Denied(crate::auth::access::Denial::Token))).polled;
    let of = |polled: Option<crate::mail::PolledRequest>| polled.map(|polled| (polled.who, polled.found));
    assert_eq!(of(who), of(request.polled));
    let answer = String::from_utf8(pair.answer(other).0).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 403 ") && answer.contains("Invalid Token for streamId:1"),
        "{answer}"
    );
    pair.pass(Duration::from_secs(6));
    let again = pair.ask("/live/streams/1.ts?token=t", from);
    assert_eq!(pair.plays.len(), 1);
    let blocked = crate::auth::access::Denial::Blocked("x".into());
    verdict(&mut pair, Err(NoSubscription::Denied(blocked)));
    assert!(pair.answer(again).0.starts_with(b"HTTP/1.1 401 "));
    // The verdict for a client that has left is dropped.
    let gone = pair.ask("/live/streams/1.ts?token=u", from);
    pair.workers[1].handle_path(pair.now, gone, PathId::default(), PathEvent::Broken("reset"));
    verdict(&mut pair, Ok(()));
    assert!(pair.answer(gone).0.is_empty());
}

/// A file that cannot be read.
#[derive(Debug)]
struct Nothing;

impl crate::jobs::BlockSource for Nothing {
    fn read_block(&self, _: u64, _: usize) -> Bytes {
        Bytes::new()
    }
}

#[test]
fn r_50_what_is_not_known_to_be_there_is_asked_about_again_when_it_is_found() {
    let mut pair = Pair::with(&[("playTokenControlEnabled", "true")]);
    let from = [192, 0, 2, 1];
    let verdict = |pair: &mut Pair, verdict: Result<(), NoSubscription>| {
        let request = pair.plays.pop().unwrap();
        let mail = ToWorker::Pass { conn: request.session.conn, verdict };
        pair.workers[1].handle_mail(pair.now, mail);
        let polled = request.polled.unwrap();
        (polled.file, polled.found)
    };
    let opened = |pair: &mut Pair, id: ConnId, found: bool| {
        let file = crate::jobs::OpenedFile {
            length: 3,
            modified_ms: 0,
            tag: "1".into(),
            file: std::sync::Arc::new(Nothing),
        };
        let outcome = if found { Ok(file) } else { Err(crate::jobs::FileError::NotFound) };
        let outcome = crate::jobs::Outcome::Opened(outcome);
        let done = crate::jobs::JobDone { id: pair.jobs[&id], outcome };
        pair.workers[1].handle_mail(pair.now, ToWorker::Job { conn: id, done });
    };
    let denied = || Err(NoSubscription::Denied(crate::auth::access::Denial::Token));
    for (found, second, status) in
        [(false, None, "404"), (true, Some(denied()), "403"), (true, Some(Ok(())), "200")]
    {
        let id = pair.ask("/live/streams/old_1.mp4?token=t", from);
        assert_eq!(verdict(&mut pair, Err(NoSubscription::NotFound)), ("old_1.mp4".to_owned(), false));
        assert_eq!(pair.answer(id), (Vec::new(), true), "it is looked for");
        opened(&mut pair, id, found);
        if let Some(second) = second {
            assert!(pair.answer(id).0.is_empty(), "nothing before the second answer");
            assert_eq!(verdict(&mut pair, second), ("old_1.mp4".to_owned(), true));
        }
        let answer = String::from_utf8(pair.answer(id).0).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(pair.plays.is_empty());
    }
    // Control no longer knows the ended stream, but its blob is still in memory, so control is asked a second time.
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U"));
    let id = pair.ask("/live/streams/cam.m3u8?token=u", from);
    assert!(!verdict(&mut pair, Err(NoSubscription::NotFound)).1);
    assert!(pair.answer(id).0.is_empty());
    assert!(verdict(&mut pair, denied()).1);
    assert!(pair.answer(id).0.starts_with(b"HTTP/1.1 403 "));
}

#[test]
fn t_11_a_playlist_takes_no_credentials_that_are_longer_than_it_may_repeat() {
    let mut pair = Pair::with(&[("playTokenControlEnabled", "true")]);
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U"));
    let target = format!("/live/streams/cam.m3u8?token={}", "-".repeat(2000));
    let (answer, _) = pair.get(&target, [192, 0, 2, 1]);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 414 ") && answer.contains("1 KiB"), "{answer}");
    assert!(pair.plays.is_empty(), "nobody is asked");
    // If the application checks no tokens, a long token is an ordinary parameter, and the request is served.
    let mut open = Pair::new();
    open.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U\n1.ts\n"));
    assert_eq!(body(&open.get(&target, [192, 0, 2, 1]).0), b"#EXTM3U\n1.ts\n");
}

#[test]
fn t_11_the_text_of_one_viewer_counts_with_the_rings_until_it_is_sent() {
    let mut pair = Pair::with(&[("playTokenControlEnabled", "true")]);
    let playlist = "#EXTM3U\n".to_owned() + &"segment-of-the-stream.ts\n".repeat(10_000);
    pair.publish("cam.m3u8", 1, playlist.into());
    let held = |pair: &Pair| pair.workers[1].turn.blobs.own_text().bytes();
    let mut waiting = Vec::new();
    for viewer in 1..=3 {
        let id = pair.ask("/live/streams/cam.m3u8?token=t", [192, 0, 2, viewer]);
        let conn = pair.plays.pop().unwrap().session.conn;
        let before = held(&pair);
        pair.workers[1].handle_mail(pair.now, ToWorker::Pass { conn, verdict: Ok(()) });
        pair.workers[1].finish_turn();
        let own = held(&pair) - before;
        assert!((32 * 1024..128 * 1024).contains(&own), "{own}");
        waiting.push(id);
    }
    for id in waiting {
        let (answer, _) = pair.answer(id);
        assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.len() > 300_000);
    }
    assert_eq!(held(&pair), 0);
}

#[test]
fn t_11_text_for_one_viewer_has_a_cap_of_its_own() {
    let mut pair = Pair::with(&[("playTokenControlEnabled", "true")]);
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U\n1.ts\n"));
    let held = pair.workers[1].turn.blobs.own_text().count(vec![0; OWN_TEXT_MAX]);
    let get = |pair: &mut Pair| {
        let id = pair.ask("/live/streams/cam.m3u8?token=t", [192, 0, 2, 1]);
        // Control is not asked again about a viewer that it has admitted.
        for request in pair.plays.drain(..) {
            let mail = ToWorker::Pass { conn: request.session.conn, verdict: Ok(()) };
            pair.workers[1].handle_mail(pair.now, mail);
        }
        String::from_utf8(pair.answer(id).0).unwrap()
    };
    let answer = get(&mut pair);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 1"), "{answer}");
    drop(held);
    assert!(get(&mut pair).starts_with("HTTP/1.1 200 "));
}

#[test]
fn r_54_a_subscriber_that_was_blocked_is_asked_about_at_once() {
    let mut pair = Pair::with(&[("enableTimeTokenForPlay", "true"), ("timeTokenSecretForPlay", "x")]);
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U"));
    let from = [192, 0, 2, 1];
    let ask = |pair: &mut Pair, who: &str| {
        let waiting = pair.ask(&format!("/live/streams/cam.m3u8?subscriberId={who}&subscriberCode=1"), from);
        let asked = pair.plays.pop();
        if let Some(request) = &asked {
            let mail = ToWorker::Pass { conn: request.session.conn, verdict: Ok(()) };
            pair.workers[1].handle_mail(pair.now, mail);
        }
        assert!(pair.answer(waiting).0.starts_with(b"HTTP/1.1 200 "));
        asked.is_some()
    };
    assert!(ask(&mut pair, "alice") && ask(&mut pair, "bobby"));
    assert!(!ask(&mut pair, "alice") && !ask(&mut pair, "bobby"), "both are known");
    let ended = ToWorker::PassesEnded { app: "live".into(), subscriber: "alice".to_owned() };
    pair.workers[1].handle_mail(pair.now, ended);
    assert!(ask(&mut pair, "alice") && !ask(&mut pair, "bobby"));
}

#[test]
fn without_a_cookie_viewers_are_told_apart_by_what_their_players_say() {
    let mut pair = Pair::new();
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U"));
    let mut count = |target: &str, headers: &'static str| {
        pair.headers = headers;
        let answer = String::from_utf8(pair.get(target, [192, 0, 2, 1]).0).unwrap();
        assert!(!answer.contains("Set-Cookie"), "{answer}");
        pair.leased().first().map_or(0, |(_, _, count)| *count)
    };
    let plain = "/live/streams/cam.m3u8";
    for (target, headers, want) in [
        (plain, "User-Agent: a\r\n", 1),
        (plain, "User-Agent: a\r\nCookie: viewer=0123456789abcdef0123456789abcdef\r\n", 1),
        (plain, "User-Agent: a\r\nCMCD-Session: cid=\"x\",sid=\"1\",v=1\r\n", 2),
        ("/live/streams/cam.m3u8?CMCD=bl%3D1%2Csid%3D%221%22", "User-Agent: a\r\n", 2),
        (plain, "User-Agent: a\r\nCMCD-Session: sid=\"2\"\r\n", 3),
        (plain, "User-Agent: a\r\nCMCD-Session: nosid=\"2\"\r\n", 3),
        (plain, "User-Agent: a\r\nX-Playback-Session-Id: A\r\n", 4),
        (plain, "User-Agent: b\r\n", 5),
        ("/live/streams/cam.m3u8?viewer=x", "User-Agent: a\r\n", 5),
    ] {
        assert_eq!(count(target, headers), want, "{target} {headers}");
    }
}

#[test]
fn a_parameter_tells_viewers_apart_and_is_repeated_where_the_application_says_so() {
    let mut pair = Pair::with(&[("hls.identifyViewers", "query")]);
    pair.publish("cam.m3u8", 1, Bytes::from_static(b"#EXTM3U\n#EXTINF:2,\n1.ts\n"));
    for (target, want) in [("?viewer=x", 1), ("?viewer=y", 2), ("?viewer=x", 2)] {
        let answer = pair.get(&format!("/live/streams/cam.m3u8{target}"), [192, 0, 2, 1]).0;
        let want_line = format!("1.ts{target}\n");
        assert!(body(&answer).ends_with(want_line.as_bytes()), "{}", String::from_utf8_lossy(&answer));
        assert_eq!(pair.leased(), [(STREAM, "hls", want)]);
    }
}
