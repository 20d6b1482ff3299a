//! Target for the whole server except its sockets: a worker, control and the store, with peers that send anything in
//! any order, cut anywhere, while disks fail and time passes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::tag::{AudioPacket, FrameType, VideoPacket};
use flv::{AudioTag, VideoTag};
use millstream::config::{AppSettings, ServerSettings};
use millstream::control::{self, Control, ControlConfig};
use millstream::jobs::{FileError, Job, JobDone, Outcome, Work};
use millstream::mail::{ToControl, ToWorker};
use millstream::protocol::{Addresses, Listener, PathEvent, PathId, Port, Remote};
use millstream::store::{self, Faults, Memory};
use millstream::types::{ConnId, Now, WorkerId};
use millstream::worker::{Output, Routed, Way, Worker, Writers};
use netsim::MediaSource;
use rtmp::{Client, ClientConfig, ClientEvent, MediaKind, MediaMessage};
use wire::{Datagrams, Gather, SendQueue};

use crate::http_targets::epoch;

/// Maximum number of steps in an input.
const STEPS_MAX: usize = 300;
/// Maximum number of peers at the same time; more would not reach anything new.
const PEERS_MAX: usize = 24;
/// Maximum number of rounds at one instant; a server that needs more never comes to rest.
const ROUNDS_MAX: usize = 10_000;
/// Maximum number of bytes that the worker may retain: for each of the few streams, a ring and a frame.
const RETAINED_MAX: usize = 8 * (24 << 20);
const LISTENERS: [&str; 4] = ["rtmp", "http", "rtsp", "http"];

/// Meaningful requests that a fuzzer would not find by itself. `_` stands for one of four streams.
const SCRIPTS: [&str; 24] = [
    "GET /live/s_.flv HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /live/s_.flv HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "GET /live/websocket HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "\u{1}PLAY",
    "\u{1}PUBLISH",
    "GET /live/streams/s_.m3u8 HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /live/streams/s_.mpd HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /live/rest/v2/broadcasts/s_ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /live/rest/v2/broadcasts/list/0/10 HTTP/1.1\r\nHost: a\r\n\r\n",
    "DELETE /live/rest/v2/broadcasts/s_ HTTP/1.1\r\nHost: a\r\n\r\n",
    "\u{2}POST /live/rest/v2/broadcasts/create {\"streamId\":\"s_\"}",
    "\u{2}PUT /live/rest/v2/broadcasts/s_ {\"name\":\"n\"}",
    "\u{2}POST /live/rest/v2/broadcasts/s_/rtmp-endpoint {\"rtmpUrl\":\"rtmp://10.0.0.1/live/x\"}",
    "\u{2}POST /live/rest/v2/broadcasts/create?autoStart=true {\"streamId\":\"s_\",\"type\":\"streamSource\",\"streamUrl\":\"rtmp://10.0.0.1/live/x\"}",
    "\u{2}POST /live/rest/v2/broadcasts/create?autoStart=true {\"streamId\":\"s_\",\"type\":\"streamSource\",\"streamUrl\":\"rtsp://10.0.0.1/x\"}",
    "\u{2}POST /live/rest/v2/broadcasts/s_/stop {}",
    "\u{2}PUT /live/rest/v2/broadcasts/s_/recording/true {}",
    "OPTIONS rtsp://a/live/s_ RTSP/1.0\r\nCSeq: 1\r\n\r\n",
    "DESCRIBE rtsp://a/live/s_ RTSP/1.0\r\nCSeq: 2\r\n\r\n",
    "SETUP rtsp://a/live/s_/trackID=0 RTSP/1.0\r\nCSeq: 3\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n\r\n",
    "PLAY rtsp://a/live/s_ RTSP/1.0\r\nCSeq: 4\r\n\r\n",
    "ANNOUNCE rtsp://a/live/s_ RTSP/1.0\r\nCSeq: 5\r\nContent-Type: application/sdp\r\nContent-Length: 101\r\n\r\n\
     v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:trackID=0\r\n",
    "RECORD rtsp://a/live/s_ RTSP/1.0\r\nCSeq: 6\r\n\r\n",
    "\u{2}POST /live/whip/s_ v=0",
];

/// Runs the steps of the input. A step has three bytes (its kind, the peer, a number), and may take further bytes.
pub fn server(data: &[u8]) {
    let mut steps = data;
    let mut rig = Rig::new();
    for _ in 0..STEPS_MAX {
        let Some((&[kind, whom, value], rest)) = steps.split_first_chunk() else { break };
        let (raw, behind) = match kind % 8 {
            1 | 7 => rest.split_at(usize::from(value).min(rest.len())),
            _ => rest.split_at(0),
        };
        steps = behind;
        rig.step(kind, whom, value, raw);
        rig.settle();
        rig.check();
    }
    rig.end();
}

/// A peer of the worker.
struct Peer {
    conn: ConnId,
    /// A client of our own, which continues the dialogue correctly; damaged bytes may be inserted.
    client: Option<Client>,
    source: Option<MediaSource>,
    stream: Option<u32>,
    queue: SendQueue,
    /// Number of further bytes that the peer accepts from the server.
    room: usize,
}

struct Rig {
    now: Now,
    worker: Worker,
    control: Control,
    store: Memory,
    faults: Faults,
    peers: Vec<Peer>,
    mail: VecDeque<ToWorker>,
    count: u64,
}

impl Rig {
    fn new() -> Self {
        let now = Now { mono: epoch(), wall_ms: 1_700_000_000_000 };
        let schema = millstream::protocol::schema;
        let settings = [("hlsEnableLowLatency", "true"), ("dashMuxingEnabled", "true")];
        let app = Arc::new(AppSettings::of(schema(), "live", &settings).expect("they are in range"));
        let server = ServerSettings::of(schema(), &[]).expect("defaults are in range");
        let addresses = Addresses::of(&[("rtmp", 1935)]);
        let config = ControlConfig { addresses, ..ControlConfig::alone(server, vec![app]) };
        let seed = Seed::from_number(1);
        let control = Control::new(now, config, [], &seed).expect("an empty store is good");
        let faults = Faults::default();
        let mut rig = Self {
            now,
            worker: Worker::new(WorkerId(0), now, Seed::from_number(2), &seed),
            control,
            store: Memory::with_faults(faults.clone()),
            faults,
            peers: Vec::new(),
            mail: VecDeque::new(),
            count: 0,
        };
        rig.settle();
        rig
    }

    fn step(&mut self, kind: u8, whom: u8, value: u8, raw: &[u8]) {
        match kind % 8 {
            0 => self.open(whom, value),
            1 => self.say(whom, raw),
            2 => self.say(whom, &script(value)),
            3 => self.publish_unit(whom, value),
            4 => self.pass(u64::from(value) * if whom.is_multiple_of(4) { 500 } else { 10 }),
            5 => self.make_room(whom, usize::from(value) * 64),
            6 => self.cut(whom, value),
            _ if value == 0 => self.faults.fail(u32::from(whom % 3), 0),
            _ => self.datagram(raw),
        }
    }

    /// Adds a peer at a listener. At RTMP, half of the peers are clients that continue the dialogue correctly.
    fn open(&mut self, whom: u8, value: u8) {
        if self.peers.len() >= PEERS_MAX {
            return;
        }
        let door = LISTENERS[usize::from(whom % 4)];
        let Some(listener) = Listener::named(door) else { return };
        self.count += 1;
        let port = 10_000 + u16::try_from(self.count % 50_000).unwrap_or(0);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let Some(conn) = self.worker.accept(self.now, listener, address) else { return };
        let knows = door == "rtmp" && value & 4 == 0;
        let publishes = value & 8 == 0;
        let config = ClientConfig {
            app: "live".to_owned(),
            tc_url: "rtmp://a/live".to_owned(),
            stream: format!("s{}", value % 4),
            ..ClientConfig::default()
        };
        let seed = Seed::from_number(self.count);
        let begin = if publishes { Client::publish } else { Client::play };
        let client = knows.then(|| begin(self.now.mono, Arc::new(config), seed.derive("client", 0)));
        let source = (knows && publishes).then(|| MediaSource::new(&seed).gop(10).sizes(2000, 100));
        let queue = SendQueue::new();
        self.peers.push(Peer { conn, client, source, stream: None, queue, room: usize::MAX });
    }

    fn peer(&mut self, whom: u8) -> Option<&mut Peer> {
        let count = self.peers.len();
        if count == 0 { None } else { self.peers.get_mut(usize::from(whom) % count) }
    }

    fn say(&mut self, whom: u8, bytes: &[u8]) {
        if let Some(peer) = self.peer(whom) {
            peer.queue.push(Bytes::copy_from_slice(bytes));
        }
    }

    /// Sends the next units of a publisher that is ready.
    fn publish_unit(&mut self, whom: u8, value: u8) {
        let now = self.now.mono;
        let Some(peer) = self.peer(whom) else { return };
        let (Some(client), Some(source), Some(stream)) = (&mut peer.client, &mut peer.source, peer.stream)
        else {
            return;
        };
        for _ in 0..=value % 32 {
            let unit = source.next_unit();
            let (kind, head) = if unit.is_video {
                let frame = if unit.key_frame { FrameType::Key } else { FrameType::Inter };
                let offset = i32::try_from(unit.cts_ms).unwrap_or(0);
                (MediaKind::Video, VideoTag::write_header(frame, VideoPacket::Frame, offset).to_vec())
            } else {
                (MediaKind::Audio, AudioTag::write_header(AudioPacket::Frame).to_vec())
            };
            send(client, now, stream, kind, unit.dts_ms, [&head, &unit.payload]);
        }
    }

    fn make_room(&mut self, whom: u8, bytes: usize) {
        let now = self.now;
        let Some(peer) = self.peer(whom) else { return };
        peer.room = bytes;
        let conn = peer.conn;
        self.worker.handle_writable(now, conn);
    }

    fn cut(&mut self, whom: u8, value: u8) {
        let now = self.now;
        let Some(conn) = self.peer(whom).map(|peer| peer.conn) else { return };
        let event = if value.is_multiple_of(2) { PathEvent::PeerClosed } else { PathEvent::Broken("reset") };
        self.worker.handle_path(now, conn, PathId::default(), event);
    }

    fn pass(&mut self, ms: u64) {
        self.now.mono += Duration::from_millis(ms);
        self.now.wall_ms += ms;
    }

    /// Delivers a datagram to the port that SRT peers share.
    fn datagram(&mut self, bytes: &[u8]) {
        let Some(port) = Port::all().find(|port| port.name == "srt") else { return };
        let from = Remote::of(SocketAddr::from(([203, 0, 113, 7], 7000)));
        if self.worker.handle_datagram(self.now, port, from, &mut bytes.to_vec()) == Routed::New {
            self.worker.accept_peer(self.now, port, from);
        }
    }

    // ---- consequences

    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut any = self.clients();
            if self.worker.poll_timeout().is_some_and(|due| due <= self.now.mono) {
                self.worker.handle_timeout(self.now);
                any = true;
            }
            any |= self.turn();
            any |= self.control();
            if !any {
                return;
            }
        }
        panic!("the server does not come to rest");
    }

    /// Delivers the peers' bytes to the worker, as far as it accepts them.
    fn clients(&mut self) -> bool {
        let now = self.now;
        let mut any = false;
        for index in 0..self.peers.len() {
            let Some(peer) = self.peers.get_mut(index) else { break };
            peer.turn(now.mono);
            let conn = peer.conn;
            if peer.queue.is_empty() || !self.worker.wants_bytes(conn) {
                continue;
            }
            let bytes = peer.queue.take_all();
            self.worker.handle_bytes(now, conn, &bytes);
            any = true;
        }
        any
    }

    fn turn(&mut self) -> bool {
        let mut any = false;
        self.worker.finish_turn();
        while let Some((conn, way)) = self.worker.next_write(Writers::All) {
            let moved = match way {
                Way::Bytes => self.write(conn),
                Way::Datagrams => self.write_datagrams(conn),
            };
            any |= moved;
        }
        self.worker.finish_turn();
        while let Some(output) = self.worker.poll_output() {
            any = true;
            self.perform(output);
        }
        any
    }

    fn write(&mut self, conn: ConnId) -> bool {
        let (mut scratch, mut bytes) = ([0; wire::SCRATCH_BYTES], Vec::new());
        let mut gather = Gather::with_scratch(64 * 1024, &mut scratch);
        self.worker.gather(conn, &mut gather);
        gather.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        let peer = self.peers.iter_mut().find(|peer| peer.conn == conn);
        let taken = peer.map_or(bytes.len(), |peer| {
            let taken = bytes.len().min(peer.room);
            if peer.room != usize::MAX {
                peer.room -= taken;
            }
            if let Some(client) = &mut peer.client {
                let _ = client.handle_bytes(self.now.mono, &bytes[..taken]);
            }
            taken
        });
        self.worker.sent(self.now.mono, conn, taken, bytes.len());
        taken > 0
    }

    fn write_datagrams(&mut self, conn: ConnId) -> bool {
        let mut out = Datagrams::new();
        self.worker.gather_datagrams(self.now, conn, &mut out);
        let bytes = (0..out.len()).map(|n| out.get(n).len()).sum();
        self.worker.datagrams_sent(self.now.mono, conn, bytes, 0);
        bytes > 0
    }

    fn perform(&mut self, output: Output) {
        let now = self.now;
        match output {
            Output::Control(mail) => self.tell_control(mail),
            Output::Worker(_, mail) => self.mail.push_back(mail),
            // These outputs are for other workers, which do not exist here.
            Output::Others(_) | Output::Mirrored(..) | Output::Path(..) | Output::HandOver { .. } => {}
            // The target of an outgoing connection is a peer as well, which sends bytes of the input.
            Output::Connect { conn, .. } => {
                let (client, source, stream, queue) = (None, None, None, SendQueue::new());
                self.peers.push(Peer { conn, client, source, stream, queue, room: usize::MAX });
                self.worker.handle_path(now, conn, PathId::default(), PathEvent::Open { local: None });
            }
            Output::Close { conn, .. } => {
                self.peers.retain(|peer| peer.conn != conn);
            }
            Output::Job { conn, job } => {
                let done = JobDone { id: job.id, outcome: Outcome::Opened(Err(FileError::NotFound)) };
                self.mail.push_back(ToWorker::Job { conn, done });
            }
            Output::OpenUdp { conn, path, .. } => {
                let local = SocketAddr::from(([127, 0, 0, 1], 20_000));
                self.worker.handle_path(now, conn, path, PathEvent::Open { local: Some(local) });
            }
            Output::CloseUdp { .. }
            | Output::Resume(_)
            | Output::UnsentLimit { .. }
            | Output::Authenticated { .. } => {}
        }
    }

    fn tell_control(&mut self, mail: ToControl) {
        self.control.handle_mail(self.now, mail);
    }

    fn control(&mut self) -> bool {
        let now = self.now;
        let mut any = false;
        while let Some(mail) = self.mail.pop_front() {
            any = true;
            self.worker.handle_mail(now, mail);
        }
        if self.control.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.control.handle_timeout(now);
            any = true;
        }
        while let Some(output) = self.control.poll_output() {
            any = true;
            match output {
                control::Output::Worker(_, mail) => self.mail.push_back(mail),
                control::Output::Store(request) => {
                    let reply = store::handle(&mut self.store, request);
                    self.control.handle_store(now, reply);
                }
                control::Output::Job(Job { id, work, .. }) => {
                    let outcome = match work {
                        Work::Resolve { port, .. } => {
                            Outcome::Resolved(Ok(vec![SocketAddr::from(([10, 0, 0, 1], port))]))
                        }
                        Work::Post(_) => Outcome::Posted(Ok(200)),
                        _ => Outcome::Failed,
                    };
                    self.control.handle_job(now, JobDone { id, outcome });
                }
                control::Output::Directory(_)
                | control::Output::Outbound(_)
                | control::Output::Leave
                | control::Output::Exit => {}
            }
        }
        any
    }

    /// Checks what must hold at any time.
    fn check(&self) {
        assert_eq!(self.worker.stats().panics, 0, "a session panicked, and was ended for it");
        let retained = self.worker.retained_bytes();
        assert!(retained <= RETAINED_MAX, "{retained} bytes are retained");
    }

    /// Ends all peers. After the longest timer has passed, nothing may be left.
    fn end(mut self) {
        self.faults.fail(0, 0);
        for conn in self.peers.iter().map(|peer| peer.conn).collect::<Vec<_>>() {
            self.worker.handle_path(self.now, conn, PathId::default(), PathEvent::Broken("the end"));
        }
        for _ in 0..90 {
            self.pass(1000);
            self.settle();
            self.check();
        }
        assert_eq!(self.worker.connections(), 0, "somebody never leaves");
        assert_eq!(self.worker.retained_bytes(), 0, "rings outlive their streams");
    }
}

impl Peer {
    fn turn(&mut self, now: Instant) {
        let Some(client) = &mut self.client else { return };
        if client.poll_timeout().is_some_and(|due| due <= now) {
            client.handle_timeout(now);
        }
        while let Some(event) = client.poll_event() {
            if let ClientEvent::Ready { message_stream } = event {
                self.stream = Some(message_stream);
                if self.source.is_some() {
                    let video = VideoTag::write_header(FrameType::Key, VideoPacket::SequenceHeader, 0);
                    send(
                        client,
                        now,
                        message_stream,
                        MediaKind::Video,
                        0,
                        [&video, &MediaSource::video_config()],
                    );
                    let audio = AudioTag::write_header(AudioPacket::SequenceHeader);
                    send(
                        client,
                        now,
                        message_stream,
                        MediaKind::Audio,
                        0,
                        [&audio, &MediaSource::audio_config()],
                    );
                }
            }
        }
        client.poll_transmit(&mut self.queue);
    }
}

fn send(
    client: &mut Client,
    now: Instant,
    message_stream: u32,
    kind: MediaKind,
    dts_ms: u64,
    parts: [&[u8]; 2],
) {
    let timestamp = u32::try_from(dts_ms).unwrap_or(0);
    client.send(now, &MediaMessage { message_stream, kind, timestamp, payload: Bytes::from(parts.concat()) });
}

/// Returns a scripted request about one of the four streams.
fn script(value: u8) -> Vec<u8> {
    let script = SCRIPTS[usize::from(value) % SCRIPTS.len()].replace('_', &(value / 24 % 4).to_string());
    if let Some(command) = script.strip_prefix('\u{1}') {
        let command = if command == "PLAY" { "play" } else { "publish" };
        let text = format!("{{\"command\":\"{command}\",\"streamId\":\"s{}\"}}", value / 24 % 4);
        // A WebSocket text frame. Its mask of zeros leaves the text unchanged.
        let length = u8::try_from(text.len()).unwrap_or(125);
        return [&[0x81, 0x80 | length, 0, 0, 0, 0], text.as_bytes()].concat();
    }
    if let Some(request) = script.strip_prefix('\u{2}') {
        let mut parts = request.splitn(3, ' ');
        let [method, path, body] = [0; 3].map(|_| parts.next().unwrap_or_default());
        let kind = if path.contains("whip") { "application/sdp" } else { "application/json" };
        let length = body.len();
        return format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes();
    }
    script.into_bytes()
}
