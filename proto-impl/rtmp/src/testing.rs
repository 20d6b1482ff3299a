//! Test helpers: a peer that sends raw bytes, a server whose owner accepts or rejects requests, and a pump between a
//! client and a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use crypto::Seed;
use flv::amf0::{self, Value};
use wire::{Reader, SendQueue, Writer};

use crate::chunk::{self, Message, MessageHead};
use crate::{Client, ClientEvent, Config, Event, MediaKind, MediaMessage, PlayTracks, Server};

/// An arbitrary start time. Clients and servers only use time differences.
pub(crate) fn start() -> Instant {
    #[allow(clippy::disallowed_methods, reason = "there is no other way to an Instant")]
    Instant::now()
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Returns C0, C1 and C2 of the simple handshake, which has no digests.
pub(crate) fn shake() -> Vec<u8> {
    [&[3][..], &[0; 2 * 1536]].concat()
}

/// Returns a message in chunks of the default size.
pub(crate) fn raw(
    chunk_stream: u32,
    kind: u8,
    message_stream: u32,
    timestamp: u32,
    payload: &[u8],
) -> Vec<u8> {
    let mut out = Vec::new();
    let head = MessageHead { chunk_stream, timestamp, kind, message_stream };
    chunk::write_message(&mut BytesMut::new(), &head, &[], &Bytes::copy_from_slice(payload), 128, &mut out);
    out.concat()
}

pub(crate) fn invoke(message_stream: u32, name: &str, transaction: f64, values: &[Value]) -> Vec<u8> {
    raw(3, 20, message_stream, 0, &crate::command::body(name, transaction, values))
}

pub(crate) fn text(text: &str) -> Value {
    Value::string(text)
}

pub(crate) fn connect(app: &str) -> Vec<u8> {
    let object = Value::object([
        ("app", text(app)),
        ("type", text("nonprivate")),
        ("flashVer", text("FMLE/3.0 (compatible; Lavf59.27.100)")),
        ("tcUrl", text("rtmp://127.0.0.1:1935/live")),
    ]);
    invoke(0, "connect", 1.0, &[object])
}

pub(crate) fn create_stream() -> Vec<u8> {
    invoke(0, "createStream", 4.0, &[Value::Null])
}

pub(crate) fn publish(message_stream: u32, name: &str) -> Vec<u8> {
    invoke(message_stream, "publish", 5.0, &[Value::Null, text(name), text("live")])
}

pub(crate) fn play(message_stream: u32, name: &str) -> Vec<u8> {
    invoke(message_stream, "play", 5.0, &[Value::Null, text(name), Value::Number(-2000.0)])
}

pub(crate) fn video(message_stream: u32, timestamp: u32, payload: &[u8]) -> Vec<u8> {
    raw(6, 9, message_stream, timestamp, payload)
}

pub(crate) fn media(kind: MediaKind, timestamp: u32, payload: &[u8]) -> MediaMessage {
    MediaMessage { message_stream: 1, kind, timestamp, payload: Bytes::copy_from_slice(payload) }
}

/// A received command: name, transaction id, values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) message_stream: u32,
    pub(crate) name: String,
    pub(crate) transaction: f64,
    pub(crate) values: Vec<Value>,
}

impl Reply {
    fn of(message: &Message) -> Option<Self> {
        if message.kind != 20 {
            return None;
        }
        let mut r = Reader::new(&message.payload);
        let name = amf0::read_string(&mut r).unwrap();
        let transaction = amf0::read(&mut r).unwrap().as_number().unwrap();
        let values = amf0::read_all(&mut r).unwrap();
        Some(Self { message_stream: message.message_stream, name, transaction, values })
    }

    /// Returns `level code` if the last value is an information object.
    pub(crate) fn status(&self) -> Option<String> {
        let information = self.values.last()?;
        let member = |name| information.get(name).and_then(Value::as_str);
        Some(format!("{} {}", member("level")?, member("code")?))
    }

    pub(crate) fn description(&self) -> &str {
        self.values.last().and_then(|value| value.get("description")).and_then(Value::as_str).unwrap()
    }
}

/// A server and its owner. If `accept` is true, the owner answers each request immediately; otherwise the test has to
/// answer it.
pub(crate) struct Rig {
    pub(crate) server: Server,
    pub(crate) now: Instant,
    pub(crate) accept: bool,
    pub(crate) events: Vec<Event>,
    pub(crate) sent: Vec<u8>,
    pub(crate) failed: bool,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let now = start();
        let server = Server::new(now, Arc::new(Config::default()), Seed::from_number(1));
        Self { server, now, accept: true, events: Vec::new(), sent: Vec::new(), failed: false }
    }

    /// Completes the handshake and `connect`.
    pub(crate) fn connected() -> Self {
        let mut rig = Self::new();
        rig.feed(&[shake(), connect("live")].concat());
        rig
    }

    /// Publishes `s1` on message stream 1.
    pub(crate) fn publishing() -> Self {
        let mut rig = Self::connected();
        rig.feed(&[create_stream(), publish(1, "s1")].concat());
        rig
    }

    /// Plays `s1` on message stream 1.
    pub(crate) fn playing() -> Self {
        let mut rig = Self::connected();
        rig.feed(&[create_stream(), play(1, "s1")].concat());
        rig
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> &mut Self {
        self.failed |= self.server.handle_bytes(self.now, bytes).is_err();
        self.drain();
        self
    }

    /// Lets time pass and handles the deadlines that expire.
    pub(crate) fn pass(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        if self.server.poll_timeout().is_some_and(|deadline| deadline <= self.now) {
            self.server.handle_timeout(self.now);
        }
        self.drain();
        self
    }

    pub(crate) fn drain(&mut self) {
        while let Some(event) = self.server.poll_event() {
            if self.accept {
                let tracks = PlayTracks { audio: true, video: true };
                match &event {
                    Event::Connect(request) if request.app().is_err() => {
                        self.server.reject_connect(self.now, "NetConnection.Connect.InvalidApp", "No scope.");
                    }
                    Event::Connect(_) => self.server.accept_connect(self.now),
                    Event::Publish(request) => match request.target() {
                        Ok(_) => self.server.accept_publish(self.now, request.message_stream),
                        Err(error) => {
                            let rejection = error.rejection("publish", request.message_stream);
                            self.server.reject_publish(self.now, request.message_stream, rejection);
                        }
                    },
                    Event::Play(request) => match request.target() {
                        Ok(_) => self.server.accept_play(self.now, request.message_stream, tracks),
                        Err(error) => {
                            let rejection = error.rejection("play", request.message_stream);
                            self.server.reject_play(self.now, request.message_stream, rejection);
                        }
                    },
                    Event::Refused { .. }
                    | Event::Media(_)
                    | Event::PublishEnded { .. }
                    | Event::PlayEnded { .. }
                    | Event::PlayPaused { .. }
                    | Event::ReceiveMedia { .. }
                    | Event::Closed(_) => {}
                }
            }
            self.events.push(event);
        }
        let mut out = SendQueue::new();
        self.server.poll_transmit(&mut out);
        self.sent.extend_from_slice(&out.take_all());
    }

    /// Returns all messages that the server has sent after the handshake.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut reader = chunk::Reader::new((&Config::default()).into());
        reader.grant(true);
        let mut input = self.sent.get(3073..).unwrap_or_default();
        let mut messages = Vec::new();
        while let Some(message) = reader.read(&mut input).unwrap() {
            if message.kind == 1 {
                reader.set_chunk_size(u32::from_be_bytes(*message.payload.first_chunk().unwrap())).unwrap();
            }
            messages.push(message);
        }
        messages
    }

    pub(crate) fn replies(&self) -> Vec<Reply> {
        self.messages().iter().filter_map(Reply::of).collect()
    }

    /// Returns the `level code` of every reply that has an information object.
    pub(crate) fn statuses(&self) -> Vec<String> {
        self.replies().iter().filter_map(Reply::status).collect()
    }

    pub(crate) fn last_reply(&self) -> Reply {
        self.replies().pop().unwrap()
    }

    pub(crate) fn media(&self) -> Vec<MediaMessage> {
        let of = |event: &Event| if let Event::Media(media) = event { Some(media.clone()) } else { None };
        self.events.iter().filter_map(of).collect()
    }

    pub(crate) fn closed(&self) -> Option<crate::CloseReason> {
        let closed =
            |event: &Event| if let Event::Closed(reason) = event { Some(reason.clone()) } else { None };
        let reasons: Vec<_> = self.events.iter().filter_map(closed).collect();
        assert!(reasons.len() <= 1, "Closed comes once");
        if !reasons.is_empty() {
            assert!(matches!(self.events.last(), Some(Event::Closed(_))), "and last");
            assert!(!self.server.wants_bytes() && self.server.poll_timeout().is_none());
        }
        reasons.into_iter().next()
    }

    /// Returns the error with which the connection ended.
    pub(crate) fn error(&self) -> Option<crate::Error> {
        let reason = self.closed()?;
        if let crate::CloseReason::Failed(error) = reason { Some(error) } else { None }
    }
}

/// Moves bytes between a client and a server in pieces of `cut` bytes until both are idle.
pub(crate) struct Pump {
    pub(crate) client: Client,
    pub(crate) rig: Rig,
    pub(crate) client_events: Vec<ClientEvent>,
    pub(crate) cut: usize,
}

impl Pump {
    pub(crate) fn new(client: Client, cut: usize) -> Self {
        Self { client, rig: Rig::new(), client_events: Vec::new(), cut }
    }

    pub(crate) fn run(&mut self) -> &mut Self {
        let mut moved = true;
        while moved {
            let mut up = SendQueue::new();
            moved = self.client.poll_transmit(&mut up);
            for piece in up.take_all().chunks(self.cut) {
                self.rig.feed(piece);
            }
            self.rig.drain();
            let sent = std::mem::take(&mut self.rig.sent);
            moved |= !sent.is_empty();
            for piece in sent.chunks(self.cut) {
                let _ = self.client.handle_bytes(self.rig.now, piece);
            }
            while let Some(event) = self.client.poll_event() {
                self.client_events.push(event);
            }
        }
        self
    }
}

/// Returns the bytes of a control message from a server.
pub(crate) fn control(kind: u8, payload: &[u8]) -> Vec<u8> {
    raw(2, kind, 0, 0, payload)
}

/// Returns a data message with these values.
pub(crate) fn data(message_stream: u32, values: &[Value]) -> Vec<u8> {
    let mut w = Writer::new();
    amf0::write_all(values, &mut w);
    raw(4, 18, message_stream, 0, &w.take())
}
