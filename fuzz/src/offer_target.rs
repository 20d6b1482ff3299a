//! Target for the signalling of WebRTC clients before there is a path: offers, answers and candidates, by WHIP, WHEP
//! and WebSocket. A worker makes the sessions; the stream that viewers request comes from another worker.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use crypto::Seed;
use http1::Response;
use http1::client::{ResponseEvent, ResponseHead, ResponseReader};
use media::codec::Codec;
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, Tracks};
use millstream::auth::access::Denial;
use millstream::config::AppSettings;
use millstream::hub::{Credit, Entry, MirroredUnit};
use millstream::mail::{Grant, NoSubscription, Refusal, StreamDetails, ToControl, ToWorker};
use millstream::protocol::{Binding, Listener, PathEvent, PathId, Port, schema};
use millstream::types::{ConnId, Ingest, Now, StreamId, StreamKey, WorkerId};
use millstream::worker::{Output, Way, Worker, Writers};
use sdp::Description;
use serde_json::{Value, json};
use wire::{Datagrams, Gather};

use crate::http_targets::epoch;

const STREAM: StreamId = StreamId(1);
/// Separates the descriptions, fragments or candidates in an input.
const NEXT: &str = "\n==\n";
/// Maximum number of parts of an input that are used.
const PARTS_MAX: usize = 8;
/// A time that is longer than any timeout of a session.
const PATIENCE: Duration = Duration::from_secs(15);

static SETTINGS: LazyLock<Arc<AppSettings>> =
    LazyLock::new(|| Arc::new(AppSettings::of(schema(), "live", &[]).expect("defaults are in range")));
static TRACKS: LazyLock<Arc<Tracks>> = LazyLock::new(|| {
    let track = |id, codec, config: &'static [u8]| {
        let config = CodecConfig::read(codec, Bytes::from_static(config)).ok().flatten().expect("it is one");
        Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) }
    };
    let video = track(TrackId::VIDEO, Codec::H264, &[1, 0x42, 0xc0, 0x1f, 0xff, 0xe0, 0]);
    let audio = track(TrackId::AUDIO, Codec::Opus, b"OpusHead\x01\x02\0\0\x80\xbb\0\0\0\0\0");
    Arc::new(Tracks::new(1, [video, audio]))
});

/// Runs a client's signalling. The first byte chooses whether the client plays or publishes, whether it uses HTTP or
/// a WebSocket, and whether its request is granted. The rest is the client's input in parts: an offer, or the answer
/// to our offer, then later messages; over WebSocket also whole commands.
pub fn webrtc_offer(data: &[u8]) {
    let Some((&mode, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let parts: Vec<&str> = text.split(NEXT).take(PARTS_MAX).collect();
    let mut rig = Rig::new(mode);
    if mode & 2 == 0 {
        rig.over_http(&parts)
    } else {
        rig.over_web_socket(&parts)
    }
    rig.end();
}

struct Rig {
    now: Now,
    worker: Worker,
    conn: ConnId,
    plays: bool,
    /// Number of the reason with which control refuses requests; `None` if it grants everything.
    refusal: Option<usize>,
    /// Number of granted streams.
    granted: u64,
    /// Bytes sent to the client.
    came: Vec<u8>,
}

impl Rig {
    fn new(mode: u8) -> Self {
        let plays = mode & 1 != 0;
        let refusal = (mode & 4 != 0).then(|| usize::from(mode >> 3));
        let now = Now { mono: epoch(), wall_ms: 1_700_000_000_000 };
        let mut worker = Worker::new(WorkerId(0), now, Seed::from_number(1), &Seed::from_number(0));
        let settings = Arc::clone(&SETTINGS);
        worker.handle_mail(now, ToWorker::App(Arc::clone(&settings)));
        let port = Port::all().find(|port| port.name == "webrtc").expect("there is one");
        let address = SocketAddr::from(([192, 0, 2, 1], 50_000));
        worker.port_bound(port, Binding { address, hosts: &[], workers: 1 });
        if plays {
            let (key, source) = (StreamKey::new("live", "s"), WorkerId(1));
            let (ingest, details) = (Ingest::PULL, StreamDetails::default());
            worker.handle_mail(
                now,
                ToWorker::StreamUp { stream: STREAM, key, source, ingest, details, settings },
            );
        }
        let listener = Listener::named("http").expect("there is one");
        let peer = SocketAddr::from(([127, 0, 0, 1], 10_000));
        let conn = worker.accept(now, listener, peer).expect("there is room for one");
        Self { now, worker, conn, plays, refusal, granted: 0, came: Vec::new() }
    }

    fn over_http(&mut self, parts: &[&str]) {
        let path = if self.plays { "/live/whep/s" } else { "/live/whip/s" };
        let offer = parts.first().copied().unwrap_or_default();
        let Some((head, body)) = self.request("POST", path, "application/sdp", offer) else { return };
        if head.status == 201 {
            fits(offer, &body);
        } else if head.status == 406 {
            assert!(Description::read(body.as_bytes()).is_ok(), "our offer: {body}");
        }
        let location = head.header("location").and_then(|value| std::str::from_utf8(value).ok());
        let Some(location) = location.map(|url| url.replacen("http://a", "", 1)) else { return };
        let kind = if head.status == 406 { "application/sdp" } else { "application/trickle-ice-sdpfrag" };
        for part in parts.iter().skip(1) {
            if self.request("PATCH", &location, kind, part).is_none() {
                return;
            }
        }
        let _ = self.request("DELETE", &location, kind, "");
    }

    /// Sends a request and waits for the response; `None` if the server closes the connection after it.
    fn request(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: &str,
    ) -> Option<(ResponseHead, String)> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nIf-Match: *\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.say(request.as_bytes());
        self.wait();
        let mut reader = ResponseReader::new();
        assert_eq!(reader.handle_bytes(&std::mem::take(&mut self.came)), Ok(()));
        let (mut head, mut body) = (None, Vec::new());
        while let Some(event) = reader.poll_event() {
            match event {
                ResponseEvent::Head(said) => head = Some(said),
                ResponseEvent::Body(bytes) => body.extend_from_slice(&bytes),
                ResponseEvent::End => {
                    let head = head.filter(|head: &ResponseHead| !head.closes())?;
                    return Some((head, String::from_utf8_lossy(&body).into_owned()));
                }
            }
        }
        panic!("no answer to {request}");
    }

    fn over_web_socket(&mut self, parts: &[&str]) {
        self.say(
            b"GET /live/websocket HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        );
        assert!(std::mem::take(&mut self.came).starts_with(b"HTTP/1.1 101 "), "it is a socket");
        let command = if self.plays { "play" } else { "publish" };
        self.command(&json!({"command": command, "streamId": "s"}));
        assert!(!self.came.is_empty(), "who asks to {command} is answered");
        let kind = if self.plays { "answer" } else { "offer" };
        for (number, part) in parts.iter().enumerate() {
            self.came.clear();
            if part.starts_with('{') {
                self.frame(part);
                continue;
            }
            if let Some(candidate) = part.strip_prefix("candidate:") {
                let members = json!({"command": "takeCandidate", "streamId": "s", "label": number, "id": "0", "candidate": candidate});
                self.command(&members);
                continue;
            }
            self.command(
                &json!({"command": "takeConfiguration", "streamId": "s", "type": kind, "sdp": part}),
            );
            if let Some(answer) = answer_in(&self.came) {
                fits(part, &answer);
            }
        }
        self.wait();
    }

    fn command(&mut self, members: &Value) {
        self.frame(&members.to_string());
    }

    /// Sends a text frame. Its mask of zeros leaves the text unchanged.
    fn frame(&mut self, text: &str) {
        let mut head = vec![0x81];
        // The length is written in the shortest form, the only valid one.
        match text.len() {
            short @ 0..126 => head.push(0x80 | u8::try_from(short).unwrap_or(0)),
            long => match u16::try_from(long) {
                Ok(long) => head.extend([&[0x80 | 126][..], &long.to_be_bytes()].concat()),
                Err(_) => head.extend([&[0x80 | 127][..], &(long as u64).to_be_bytes()].concat()),
            },
        }
        self.say(&[&head[..], &[0; 4], text.as_bytes()].concat());
    }

    fn say(&mut self, bytes: &[u8]) {
        self.worker.handle_bytes(self.now, self.conn, bytes);
        self.settle();
    }

    /// Lets up to [`PATIENCE`] pass, until the server has sent something.
    fn wait(&mut self) {
        let until = self.now.mono + PATIENCE;
        while let Some(at) = self.worker.poll_timeout().filter(|at| *at <= until) {
            if !self.came.is_empty() {
                return;
            }
            self.now.wall_ms += u64::try_from((at - self.now.mono).as_millis()).unwrap_or(0);
            self.now.mono = self.now.mono.max(at);
            self.worker.handle_timeout(self.now);
            self.settle();
        }
    }

    fn settle(&mut self) {
        loop {
            let mut any = false;
            self.worker.finish_turn();
            while let Some((conn, way)) = self.worker.next_write(Writers::All) {
                any |= self.write(conn, way);
            }
            self.worker.finish_turn();
            while let Some(output) = self.worker.poll_output() {
                any = true;
                self.perform(output);
            }
            if !any {
                break;
            }
        }
        assert_eq!(self.worker.stats().panics, 0, "a session panicked, and was ended for it");
    }

    fn write(&mut self, conn: ConnId, way: Way) -> bool {
        if matches!(way, Way::Datagrams) {
            let mut out = Datagrams::new();
            self.worker.gather_datagrams(self.now, conn, &mut out);
            let bytes = (0..out.len()).map(|n| out.get(n).len()).sum();
            self.worker.datagrams_sent(self.now.mono, conn, bytes, 0);
            return bytes > 0;
        }
        let (mut scratch, before) = ([0; wire::SCRATCH_BYTES], self.came.len());
        let mut gather = Gather::with_scratch(64 * 1024, &mut scratch);
        self.worker.gather(conn, &mut gather);
        gather.slices().iter().for_each(|slice| self.came.extend_from_slice(slice));
        let bytes = self.came.len() - before;
        self.worker.sent(self.now.mono, conn, bytes, bytes);
        bytes > 0
    }

    fn perform(&mut self, output: Output) {
        let reply = match output {
            Output::Control(ToControl::Publish(request)) => {
                let (conn, handle) = (request.session.conn, request.session.handle);
                let verdict =
                    self.refusal.map_or_else(|| Ok(Box::new(self.grant())), |why| Err(no_publish(why)));
                ToWorker::Verdict { conn, handle, verdict }
            }
            Output::Control(ToControl::Play(request)) => {
                let (conn, handle) = (request.session.conn, request.session.handle);
                let verdict = self.refusal.map_or(Ok(()), |why| Err(no_play(why)));
                ToWorker::PlayVerdict { conn, handle, verdict }
            }
            Output::Control(ToControl::Ask { session, key, .. }) => {
                let response =
                    Response::with_body(200, "application/json", json!({"streamId": &*key.id}).to_string());
                ToWorker::RestReply { conn: session.conn, response: Box::new(response) }
            }
            Output::Worker(_, ToWorker::Mirror { request, .. }) => return self.mirror(request),
            Output::Worker(WorkerId(0), mail) => mail,
            _ => return,
        };
        self.worker.handle_mail(self.now, reply);
    }

    /// Grants a publisher a stream of its own. Every second stream continues an epoch of an earlier publisher.
    fn grant(&mut self) -> Grant {
        let (position, settings) = (media::Position::default(), Arc::clone(&SETTINGS));
        let stream = StreamId(STREAM.0 + 1 + self.granted);
        self.granted += 1;
        let epoch = u32::from(self.granted.is_multiple_of(2));
        Grant { stream, position, epoch, zero_ms: 0, settings, standby: false }
    }

    /// Passes the first units of the stream to the worker, which describe its tracks.
    fn mirror(&mut self, request: u64) {
        for (track, key_frame) in [(TrackId::VIDEO, true), (TrackId::AUDIO, false)] {
            let payload = Bytes::from_static(if key_frame { &[0, 0, 0, 2, 0x65, 0x88] } else { &[0xfc, 0] });
            let unit = AccessUnit { track, dts: 0, pts: 0, key_frame, config_epoch: 1, payload };
            let entry = Entry::new(self.now.mono, self.now.wall_ms, unit, Arc::clone(&TRACKS));
            let mirrored = MirroredUnit { stream: STREAM, request, entry, credit: Credit::default() };
            self.worker.handle_mirrored(self.now, mirrored);
        }
    }

    /// Disconnects the client. A session that never had a path must then end, too.
    fn end(mut self) {
        let event = PathEvent::Broken("the end");
        self.worker.handle_path(self.now, self.conn, PathId::default(), event);
        self.came.clear();
        for _ in 0..8 {
            if self.worker.connections() == 0 {
                break;
            }
            self.wait();
            self.came.clear();
        }
        assert_eq!(self.worker.connections(), 0, "somebody never leaves");
    }
}

fn no_publish(why: usize) -> Refusal {
    let all = [
        Refusal::NoApplication,
        Refusal::InUse,
        Refusal::NotAllowed("no"),
        Refusal::Denied(Denial::Token),
        Refusal::Resources,
        Refusal::Loop,
        Refusal::Draining,
    ];
    all[why % all.len()].clone()
}

fn no_play(why: usize) -> NoSubscription {
    let all = [
        NoSubscription::NotFound,
        NoSubscription::Disabled,
        NoSubscription::Denied(Denial::Viewers),
        NoSubscription::Draining,
        NoSubscription::Resources,
    ];
    all[why % all.len()].clone()
}

/// Checks that the answer accepts only what was offered.
fn fits(offer: &str, answer: &str) {
    let answer = Description::read(answer.as_bytes()).expect("our own answer");
    let offer = Description::read(offer.as_bytes()).expect("it was answered");
    assert_eq!(offer.check_answer(&answer), Ok(()), "{}", answer.write());
}

/// Returns the answer among the text frames from a server.
fn answer_in(mut frames: &[u8]) -> Option<String> {
    while let Some((&[0x81, length], rest)) = frames.split_first_chunk() {
        let (length, rest) = match length {
            126 => rest
                .split_first_chunk()
                .map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?,
            length => (usize::from(length), rest),
        };
        let (text, rest) = rest.split_at_checked(length)?;
        frames = rest;
        let message: Value = serde_json::from_slice(text).expect("our own message");
        if message["command"] == "takeConfiguration" && message["type"] == "answer" {
            return message["sdp"].as_str().map(str::to_owned);
        }
    }
    None
}
