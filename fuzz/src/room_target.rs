//! Target for rooms: many signalling sockets of one worker play a room while participants come, go and speak. Pages
//! answer, answer twice, offer out of turn, send garbage, and name tracks of others. The participants' streams come
//! from another worker, so that the model knows exactly who is in the room.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use http1::Response;
use media::codec::Codec;
use media::{AccessUnit, CodecConfig, Timescale, Track, TrackId, Tracks};
use millstream::config::AppSettings;
use millstream::hub::{Credit, Entry, MirroredUnit};
use millstream::mail::{StreamDetails, StreamEnd, ToControl, ToWorker};
use millstream::protocol::{Binding, Listener, PathEvent, PathId, Port, schema};
use millstream::types::{ConnId, Ingest, Now, StreamId, StreamKey, WorkerId};
use millstream::worker::{Output, Way, Worker, Writers};
use rtp::NtpAnchor;
use sdp::Description;
use serde_json::{Value, json};
use webrtc::{Config, IceMode, MediaPreference, Peer};
use wire::{Datagrams, Gather};

use crate::http_targets::epoch;

/// Maximum number of steps in an input.
const STEPS_MAX: usize = 200;
/// Number of streams that may be in the room.
const STREAMS: u8 = 6;
/// Maximum number of sockets at a time.
const SOCKETS_MAX: usize = 8;
/// Maximum number of rounds at one instant; a worker that needs more never comes to rest.
const ROUNDS_MAX: usize = 10_000;
/// Maximum number of bytes that the worker may retain.
const RETAINED_MAX: usize = 16 << 20;
/// Longest time for which commands of a page wait.
const COMMANDS_WAIT: Duration = Duration::from_millis(250);
/// Commands about a stream of the room, in place of `_`.
const COMMANDS: [&str; 14] = [
    r#"{"command":"toggleVideo","streamId":"room","trackId":"_","enabled":false}"#,
    r#"{"command":"toggleAudio","streamId":"room","trackId":"ARDAMSa_","enabled":true}"#,
    r#"{"command":"enableTrack","streamId":"room","trackId":"_","enabled":false}"#,
    r#"{"command":"enableTrack","streamId":"room","trackId":"nobody","enabled":true}"#,
    r#"{"command":"assignVideoTrackCommand","streamId":"room","videoTrackId":"_","enabled":true}"#,
    r#"{"command":"assignVideoTrackCommand","streamId":"_","videoTrackId":"videoTrack0","enabled":false}"#,
    r#"{"command":"updateVideoTrackAssignmentsCommand","streamId":"room","offset":1,"size":2}"#,
    r#"{"command":"setMaxVideoTrackCountCommand","streamId":"room","maxTrackCount":2}"#,
    r#"{"command":"getVideoTrackAssignmentsCommand","streamId":"room"}"#,
    r#"{"command":"forceStreamQuality","streamId":"room","streamHeight":240}"#,
    r#"{"command":"getStreamInfo","streamId":"room"}"#,
    r#"{"command":"getTrackList","streamId":"room"}"#,
    r#"{"command":"joinRoom","mainTrack":"room","streamId":"_"}"#,
    r#"{"command":"takeCandidate","streamId":"room","label":0,"id":"0","candidate":"candidate:1 1 udp 1 192.0.2.9 9 typ host"}"#,
];

/// Errors that end nothing.
const HARMLESS: [&str; 5] = [
    "already_playing",
    "no_peer_associated_before",
    "notImplemented",
    "unauthorized_access",
    "streamIdInUse",
];

static IDENTITY: LazyLock<Arc<dtls::Identity>> =
    LazyLock::new(|| Arc::new(dtls::Identity::self_signed(&Seed::from_number(3)).expect("a fixed seed")));

/// Runs steps of three bytes: the kind of step, the socket or stream, and a number. The first byte of the input chooses
/// whether viewers have seats.
pub fn room(data: &[u8]) {
    let Some((mode, mut steps)) = data.split_first() else { return };
    let mut rig = Rig::new(mode & 1 != 0);
    for _ in 0..STEPS_MAX {
        let Some((&[kind, whom, value], rest)) = steps.split_first_chunk() else { break };
        steps = rest;
        rig.step(kind, whom, value);
        rig.settle();
        rig.check();
    }
    rig.end();
}

/// A socket and its page.
struct Socket {
    conn: ConnId,
    came: Vec<u8>,
    page: Peer,
    /// The page's own stream, which it does not want to see.
    own: Option<String>,
    /// The offer that waits for an answer.
    offer: Option<String>,
    /// The last answer.
    answer: Option<String>,
    /// The streams in the last offer; `None` while the socket does not play the room.
    offered: Option<BTreeSet<String>>,
    /// True while the page has answered as it should.
    is_sound: bool,
    /// Time since which the page has not been offered the streams of the room, because its commands wait.
    late_since: Option<Instant>,
}

struct Rig {
    now: Now,
    worker: Worker,
    settings: Arc<AppSettings>,
    has_seats: bool,
    sockets: Vec<Socket>,
    /// The streams in the room.
    live: BTreeMap<String, StreamId>,
    count: u64,
}

impl Rig {
    fn new(has_seats: bool) -> Self {
        let now = Now { mono: epoch(), wall_ms: 1_700_000_000_000 };
        let seats = [("maxVideoTrackCount", "2"), ("maxAudioTrackCount", "2")];
        let seats: &[(&str, &str)] = if has_seats { &seats } else { &[] };
        let settings = Arc::new(AppSettings::of(schema(), "live", seats).expect("they are in range"));
        let mut worker = Worker::new(WorkerId(0), now, Seed::from_number(1), &Seed::from_number(0));
        worker.handle_mail(now, ToWorker::App(Arc::clone(&settings)));
        let port = Port::all().find(|port| port.name == "webrtc").expect("there is one");
        let address = SocketAddr::from(([192, 0, 2, 1], 50_000));
        worker.port_bound(port, Binding { address, hosts: &[], workers: 1 });
        let (sockets, live) = (Vec::new(), BTreeMap::new());
        Self { now, worker, settings, has_seats, sockets, live, count: 0 }
    }

    fn step(&mut self, kind: u8, whom: u8, value: u8) {
        match kind % 9 {
            0 => self.come(whom % STREAMS),
            1 => self.leave(whom % STREAMS),
            2 => self.open(),
            3 => self.play(whom, value),
            4 => self.answer(whom),
            5 => self.misbehave(whom, value),
            6 => {
                let command = COMMANDS[usize::from(value) % COMMANDS.len()];
                self.say(whom, &command.replace('_', &name(value / 16 % STREAMS)));
            }
            7 if value.is_multiple_of(8) => self.close(whom),
            7 if value % 8 == 1 => self.say(whom, r#"{"command":"stop","streamId":"room"}"#),
            7 => self.pass(u64::from(value) * 10),
            _ => self.speak(whom % STREAMS, value),
        }
    }

    /// Lets a stream begin. Some have audio or video only.
    fn come(&mut self, number: u8) {
        let id = name(number);
        if self.live.contains_key(&id) {
            return;
        }
        self.count += 1;
        let stream = StreamId(self.count);
        let details = StreamDetails { main_track: Some("room".into()), ..StreamDetails::default() };
        let (key, source, ingest) = (StreamKey::new("live", &id), WorkerId(1), Ingest::PULL);
        let settings = Arc::clone(&self.settings);
        self.live.insert(id, stream);
        self.worker
            .handle_mail(self.now, ToWorker::StreamUp { stream, key, source, ingest, details, settings });
    }

    fn leave(&mut self, number: u8) {
        if let Some(stream) = self.live.remove(&name(number)) {
            self.worker.handle_mail(self.now, ToWorker::StreamDown { stream, end: StreamEnd::Unpublished });
        }
    }

    fn speak(&mut self, number: u8, value: u8) {
        if let Some(stream) = self.live.get(&name(number)).copied() {
            let level = value & 0x7f;
            self.worker.handle_mail(self.now, ToWorker::Loudness { stream, level });
        }
    }

    fn open(&mut self) {
        if self.sockets.len() >= SOCKETS_MAX {
            return;
        }
        self.count += 1;
        let listener = Listener::named("http").expect("there is one");
        let port = 10_000 + u16::try_from(self.count % 50_000).unwrap_or(0);
        let Some(conn) = self.worker.accept(self.now, listener, SocketAddr::from(([127, 0, 0, 1], port)))
        else {
            return;
        };
        let ice = IceMode::Full(Arc::default());
        let config = Config { takes_changes: true, ..Config::new(ice, Arc::clone(&IDENTITY)) };
        let anchor = NtpAnchor::new(self.now.mono, Duration::from_secs(1_790_000_000));
        let seed = Seed::from_number(self.count);
        let page = Peer::new(self.now.mono, Arc::new(config), anchor, seed).expect("the identity is good");
        let came = Vec::new();
        let (own, offer, answer, offered) = (None, None, None, None);
        self.sockets.push(Socket {
            conn,
            came,
            page,
            own,
            offer,
            answer,
            offered,
            is_sound: true,
            late_since: None,
        });
        let request =
            b"GET /live/websocket HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        self.worker.handle_bytes(self.now, conn, request);
    }

    fn close(&mut self, whom: u8) {
        if let Some(at) = self.at(whom) {
            let socket = self.sockets.remove(at);
            let event = PathEvent::Broken("gone");
            self.worker.handle_path(self.now, socket.conn, PathId::default(), event);
        }
    }

    fn at(&self, whom: u8) -> Option<usize> {
        usize::from(whom).checked_rem(self.sockets.len())
    }

    fn play(&mut self, whom: u8, value: u8) {
        let Some(socket) = self.at(whom).and_then(|at| self.sockets.get_mut(at)) else { return };
        if socket.offered.is_some() || socket.own.is_some() {
            return self.say(whom, r#"{"command":"play","streamId":"room"}"#);
        }
        let own = name(value % STREAMS);
        socket.own = Some(own.clone());
        let off = value & 0x40 != 0;
        let command = json!({"command": "play", "streamId": "room", "userPublishId": own, "disableTracksByDefault": off});
        self.say(whom, &command.to_string());
    }

    /// Answers the last offer of a socket.
    fn answer(&mut self, whom: u8) {
        let now = self.now.mono;
        let Some(socket) = self.at(whom).and_then(|at| self.sockets.get_mut(at)) else { return };
        let Some(offer) = socket.offer.take() else { return };
        let offer = Description::read(offer.as_bytes()).expect("our own offer");
        let takes = |_: webrtc::SectionId, media: &sdp::Media| {
            let direction = offer.direction(media).reverse();
            Some(MediaPreference { direction, formats: media.rtp_formats().collect(), msid: None })
        };
        let Ok(answer) = socket.page.handle_offer(now, &offer, takes) else {
            assert!(!socket.is_sound, "an offer that a page refuses: {}", offer.write());
            return;
        };
        let answer = answer.write();
        socket.answer = Some(answer.clone());
        self.describe(whom, "answer", &answer);
    }

    fn describe(&mut self, whom: u8, kind: &str, sdp: &str) {
        let command = json!({"command": "takeConfiguration", "streamId": "room", "type": kind, "sdp": sdp});
        self.say(whom, &command.to_string());
    }

    /// Sends a description that nobody has asked for.
    fn misbehave(&mut self, whom: u8, value: u8) {
        let Some(at) = self.at(whom) else { return };
        let of_other = self.sockets[usize::from(value / 8) % self.sockets.len()].answer.clone();
        let socket = &mut self.sockets[at];
        let former = socket.answer.clone().unwrap_or_default();
        let offer = socket.offer.clone();
        // An answer that is wrong may be taken for the one that is due.
        let is_due = offer.is_some();
        let (kind, sdp) = match value % 4 {
            0 => ("answer", former),
            1 => ("offer", offer.clone().unwrap_or(former)),
            2 => ("answer", of_other.unwrap_or_default()),
            _ => ("answer", "v=0\r\n".to_owned()),
        };
        if is_due && kind == "answer" {
            (socket.is_sound, socket.offer) = (false, None);
        }
        self.describe(whom, kind, &sdp);
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono += Duration::from_millis(ms);
        self.now.wall_ms += ms;
        if self.worker.poll_timeout().is_some_and(|due| due <= self.now.mono) {
            self.worker.handle_timeout(self.now);
        }
    }

    /// Sends a text frame with a mask of zeros.
    fn say(&mut self, whom: u8, text: &str) {
        let Some(socket) = self.at(whom).and_then(|at| self.sockets.get(at)) else { return };
        let length = text.len();
        let mut frame = vec![0x81];
        match u8::try_from(length) {
            Ok(short) if short < 126 => frame.push(0x80 | short),
            _ => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(text.bytes().take(usize::from(u16::MAX)));
        self.worker.handle_bytes(self.now, socket.conn, &frame);
    }

    // ---- consequences

    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut any = false;
            if self.worker.poll_timeout().is_some_and(|due| due <= self.now.mono) {
                self.worker.handle_timeout(self.now);
                any = true;
            }
            self.worker.finish_turn();
            while let Some((conn, way)) = self.worker.next_write(Writers::All) {
                any |= self.write(conn, way);
            }
            self.worker.finish_turn();
            while let Some(output) = self.worker.poll_output() {
                any = true;
                self.perform(output);
            }
            self.sockets.iter_mut().for_each(Socket::read);
            if !any {
                return;
            }
        }
        panic!("the worker does not come to rest");
    }

    fn write(&mut self, conn: ConnId, way: Way) -> bool {
        if matches!(way, Way::Datagrams) {
            let mut out = Datagrams::new();
            self.worker.gather_datagrams(self.now, conn, &mut out);
            let bytes = (0..out.len()).map(|n| out.get(n).len()).sum();
            self.worker.datagrams_sent(self.now.mono, conn, bytes, 0);
            return bytes > 0;
        }
        let (mut scratch, mut came) = ([0; wire::SCRATCH_BYTES], Vec::new());
        let mut gather = Gather::with_scratch(64 * 1024, &mut scratch);
        self.worker.gather(conn, &mut gather);
        gather.slices().iter().for_each(|slice| came.extend_from_slice(slice));
        self.worker.sent(self.now.mono, conn, came.len(), came.len());
        if let Some(socket) = self.sockets.iter_mut().find(|socket| socket.conn == conn) {
            socket.came.extend_from_slice(&came);
        }
        !came.is_empty()
    }

    fn perform(&mut self, output: Output) {
        let reply = match output {
            Output::Control(ToControl::Play(request)) => {
                let (conn, handle) = (request.session.conn, request.session.handle);
                ToWorker::PlayVerdict { conn, handle, verdict: Ok(()) }
            }
            Output::Control(ToControl::Ask { session, .. }) => {
                let response = Response::with_body(200, "application/json", "[]".to_owned());
                ToWorker::RestReply { conn: session.conn, response: Box::new(response) }
            }
            Output::Worker(_, ToWorker::Mirror { stream, request, .. }) => {
                return self.mirror(stream, request);
            }
            Output::Worker(WorkerId(0), mail) => mail,
            Output::Close { conn, .. } => return self.sockets.retain(|socket| socket.conn != conn),
            _ => return,
        };
        self.worker.handle_mail(self.now, reply);
    }

    /// Passes the first units of a stream to the worker, which describe its tracks.
    fn mirror(&mut self, stream: StreamId, request: u64) {
        let Some((id, _)) = self.live.iter().find(|(_, live)| **live == stream) else { return };
        let tracks = tracks_of(id);
        let list: Vec<TrackId> = tracks.iter().map(|track| track.id).collect();
        for track in list {
            let key_frame = track == TrackId::VIDEO;
            let payload = Bytes::from_static(if key_frame { &[0, 0, 0, 2, 0x65, 0x88] } else { &[0xfc, 0] });
            let unit = AccessUnit { track, dts: 0, pts: 0, key_frame, config_epoch: 1, payload };
            let entry = Entry::new(self.now.mono, self.now.wall_ms, unit, Arc::clone(&tracks));
            let mirrored = MirroredUnit { stream, request, entry, credit: Credit::default() };
            self.worker.handle_mirrored(self.now, mirrored);
        }
    }

    /// Checks what must hold at any time: a page that has answered has been offered exactly the streams of the room, or
    /// is offered them when its commands take effect.
    fn check(&mut self) {
        assert_eq!(self.worker.stats().panics, 0, "a session panicked, and was ended for it");
        let retained = self.worker.retained_bytes();
        assert!(retained <= RETAINED_MAX, "{retained} bytes are retained");
        for socket in &mut self.sockets {
            let since = socket.late_since.take();
            let Some(offered) = &socket.offered else { continue };
            if !socket.is_sound || socket.offer.is_some() {
                continue;
            }
            if self.has_seats {
                assert!(offered.iter().all(|name| name.contains("Track")), "{offered:?}");
                continue;
            }
            let there = self.live.keys().filter(|id| Some(*id) != socket.own.as_ref());
            let there: BTreeSet<String> = there.cloned().collect();
            if *offered != there {
                let since = *socket.late_since.insert(since.unwrap_or(self.now.mono));
                let late = self.now.mono.saturating_duration_since(since);
                assert!(late <= COMMANDS_WAIT, "{late:?}: {offered:?} are seen, {there:?} are there");
            }
        }
    }

    /// Lets everybody leave. After the longest timer has passed, nothing may be left.
    fn end(mut self) {
        (0..STREAMS).for_each(|number| self.leave(number));
        while !self.sockets.is_empty() {
            self.close(0);
        }
        for _ in 0..90 {
            self.pass(1000);
            self.settle();
        }
        self.check();
        assert_eq!(self.worker.connections(), 0, "somebody never leaves");
        assert_eq!(self.worker.retained_bytes(), 0, "rings outlive their streams");
    }
}

impl Socket {
    /// Reads the frames that the server has sent.
    fn read(&mut self) {
        if self.came.starts_with(b"HTTP/1.1") {
            let Some(end) = self.came.windows(4).position(|four| four == b"\r\n\r\n") else { return };
            self.came.drain(..end + 4);
        }
        while let Some((text, length)) = frame(&self.came) {
            self.came.drain(..length);
            let message: Value = serde_json::from_str(&text).expect("our own message");
            if message["streamId"] != "room" {
                continue;
            }
            let definition = message["definition"].as_str().unwrap_or_default();
            let is_over = definition == "play_finished"
                || message["command"] == "error" && !HARMLESS.contains(&definition);
            if message["command"] == "takeConfiguration" && message["type"] == "offer" {
                let sdp = message["sdp"].as_str().unwrap_or_default().to_owned();
                assert!(self.offer.is_none() || !self.is_sound, "an offer before the answer to the last one");
                self.offered = Some(names(&sdp));
                self.offer = Some(sdp);
            } else if is_over {
                // The page would make a new connection to play the room again.
                (self.offered, self.offer, self.is_sound) = (None, None, false);
            }
        }
    }
}

/// Returns the first text frame from a server, and the number of its bytes.
fn frame(bytes: &[u8]) -> Option<(String, usize)> {
    let (&[first, length], rest) = bytes.split_first_chunk()?;
    let (length, head, rest) = match length {
        126 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_be_bytes(*length)), 4, rest)
        }
        127 => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::try_from(u64::from_be_bytes(*length)).ok()?, 10, rest)
        }
        length => (usize::from(length), 2, rest),
    };
    let text = String::from_utf8_lossy(rest.get(..length)?).into_owned();
    let text = if first == 0x81 { text } else { "{}".to_owned() };
    Some((text, head + length))
}

/// Returns the streams whose tracks an offer has.
fn names(sdp: &str) -> BTreeSet<String> {
    let sections = sdp.split("\r\nm=").skip(1);
    let used = sections.filter(|section| {
        section.split(' ').nth(1) != Some("0")
            && !section.contains("a=inactive")
            && !section.starts_with("application")
    });
    let msid = |section: &str| {
        let msid = section.split("a=msid:").nth(1)?.lines().next()?;
        let track = msid.split(' ').next_back()?;
        Some(track.trim_start_matches("ARDAMS").get(1..)?.to_owned())
    };
    used.filter_map(msid).collect()
}

fn name(number: u8) -> String {
    format!("p{number}")
}

/// Returns the tracks of a stream: of every third one audio only, of every third one video only.
fn tracks_of(id: &str) -> Arc<Tracks> {
    static ALL: LazyLock<[Track; 2]> = LazyLock::new(|| {
        let track = |id, codec, config: &'static [u8]| {
            let config =
                CodecConfig::read(codec, Bytes::from_static(config)).ok().flatten().expect("it is one");
            Track { epoch: 1, ..Track::new(id, config, Timescale::MILLISECONDS) }
        };
        let video = track(TrackId::VIDEO, Codec::H264, &[1, 0x42, 0xc0, 0x1f, 0xff, 0xe0, 0]);
        [video, track(TrackId::AUDIO, Codec::Opus, b"OpusHead\x01\x02\0\0\x80\xbb\0\0\0\0\0")]
    });
    let number = id.bytes().next_back().unwrap_or(0) % 3;
    let takes = |at: usize| number == 0 || usize::from(number) == at + 1;
    let tracks = ALL.iter().enumerate().filter(|(at, _)| takes(*at)).map(|(_, track)| track.clone());
    Arc::new(Tracks::new(1, tracks))
}
