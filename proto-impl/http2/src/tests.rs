//! Tests of the server with a client that is driven byte by byte.

mod bounds;
mod errors;
mod exchange;
mod splits;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use wire::SendQueue;

use crate::frame::{HEADER_BYTES, Header, Kind, PREFACE, flag};
use crate::hpack::{Decoder, Encoder};
use crate::{CloseReason, Code, Config, Connection, Error, Event, Field, StreamId};

pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":path", "/"), (":authority", "h")];
pub(crate) const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":scheme", "https"), (":path", "/"), (":authority", "h")];

/// An arbitrary start time. Connections use only differences of times.
pub(crate) fn start() -> Instant {
    #[allow(clippy::disallowed_methods, reason = "there is no other way to an Instant")]
    Instant::now()
}

/// Frame from the server, with decoded header blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    Headers(u32, Vec<(String, String)>, bool),
    Data(u32, Vec<u8>, bool),
    Reset(u32, Code),
    GoAway(u32, Code),
    Update(u32, u32),
    Settings(Vec<u8>),
    SettingsAck,
    Pong([u8; 8]),
}

/// A connection, its peer, and the current time.
pub(crate) struct Rig {
    pub(crate) server: Connection,
    pub(crate) now: Instant,
    pub(crate) encoder: Encoder,
    decoder: Decoder,
    block: Vec<u8>,
    /// True if the current header block ends its stream.
    is_last: bool,
}

impl Rig {
    /// Creates a connection on which nothing has been received yet.
    pub(crate) fn silent(config: Config) -> Self {
        let now = start();
        let server = Connection::new(now, Arc::new(config));
        let (encoder, decoder) = (Encoder::default(), Decoder::default());
        Self { server, now, encoder, decoder, block: Vec::new(), is_last: false }
    }

    pub(crate) fn with(config: Config) -> Self {
        let mut rig = Self::silent(config);
        rig.feed(PREFACE).unwrap();
        rig.feed(&frame(Kind::Settings, 0, 0, &[])).unwrap();
        rig.sent();
        rig
    }

    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.server.handle_bytes(self.now, bytes)
    }

    /// Makes the HEADERS of a request.
    pub(crate) fn headers(
        &mut self,
        stream: u32,
        list: &[(&'static str, &'static str)],
        is_last: bool,
    ) -> Vec<u8> {
        let fields: Vec<Field> = list.iter().map(|(name, value)| Field::new(*name, *value)).collect();
        let block = self.encoder.encode(&fields);
        let flags = flag::END_HEADERS | if is_last { flag::END_STREAM } else { 0 };
        frame(Kind::Headers, flags, stream, &block)
    }

    pub(crate) fn ask(&mut self, stream: u32, list: &[(&'static str, &'static str)], is_last: bool) {
        let bytes = self.headers(stream, list, is_last);
        self.feed(&bytes).unwrap();
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.server.poll_event()).collect()
    }

    /// Returns the bytes that the server sends to the peer, and reports them as sent.
    pub(crate) fn bytes(&mut self) -> Bytes {
        let mut out = SendQueue::new();
        while self.server.poll_transmit(self.now, &mut out) {
            let unsent = self.server.stats().unsent_bytes;
            self.server.handle_sent(self.now, unsent);
        }
        out.take_all()
    }

    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        let mut bytes = self.bytes();
        let mut sent = Vec::new();
        while !bytes.is_empty() {
            let header = Header::read(&bytes).unwrap();
            let payload = bytes.split_to(HEADER_BYTES + header.length).slice(HEADER_BYTES..);
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            let id = header.stream;
            match header.kind {
                Kind::Headers | Kind::Continuation => {
                    self.block.extend_from_slice(&payload);
                    if header.kind == Kind::Headers {
                        self.is_last = header.has(flag::END_STREAM);
                    }
                    if header.has(flag::END_HEADERS) {
                        let block = std::mem::take(&mut self.block);
                        let list = self.decoder.decode(&block, (1000, 1 << 20), 1 << 20).unwrap();
                        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
                        let list = list.fields.iter().map(|field| (text(&field.name), text(&field.value)));
                        sent.push(Sent::Headers(id, list.collect(), self.is_last));
                    }
                }
                Kind::Data => sent.push(Sent::Data(id, payload.to_vec(), header.has(flag::END_STREAM))),
                Kind::RstStream => sent.push(Sent::Reset(id, Code(number(0)))),
                Kind::GoAway => sent.push(Sent::GoAway(number(0), Code(number(4)))),
                Kind::WindowUpdate => sent.push(Sent::Update(id, number(0))),
                Kind::Settings if header.has(flag::ACK) => sent.push(Sent::SettingsAck),
                Kind::Settings => sent.push(Sent::Settings(payload.to_vec())),
                Kind::Ping => sent.push(Sent::Pong(payload[..].try_into().unwrap())),
                Kind::Priority | Kind::PushPromise | Kind::Unknown => panic!("{header:?}"),
            }
        }
        sent
    }

    /// Returns the number of body bytes sent on a stream.
    pub(crate) fn body(&mut self, stream: u32) -> usize {
        let lengths = self.sent().into_iter().map(|sent| match sent {
            Sent::Data(id, data, _) if id == stream => data.len(),
            Sent::Data(..)
            | Sent::Headers(..)
            | Sent::Reset(..)
            | Sent::GoAway(..)
            | Sent::Update(..)
            | Sent::Settings(_)
            | Sent::SettingsAck
            | Sent::Pong(_) => 0,
        });
        lengths.sum()
    }
}

pub(crate) fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Header { length: payload.len(), kind, flags, stream }.write().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

pub(crate) fn settings(list: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        list.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(Kind::Settings, 0, 0, &payload)
}

pub(crate) fn update(stream: u32, by: u32) -> Vec<u8> {
    frame(Kind::WindowUpdate, 0, stream, &by.to_be_bytes())
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(Kind::RstStream, 0, stream, &Code::CANCEL.0.to_be_bytes())
}

pub(crate) const fn closed(reason: CloseReason) -> Event {
    Event::Closed(reason)
}

pub(crate) const ONE: StreamId = StreamId(1);
