//! The client of WS-FLV: the same file as over HTTP-FLV, in binary messages that may be split anywhere. Only the load
//! generator uses it; no stream is pulled this way.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use flv::file::Reader;
use wire::SendQueue;

use super::url::LiveUrl;
use crate::http::websocket::{self, ClientHandshake, WebSocket};
use crate::protocol::pull::{Client, ClientEvent, ClientStream, Media, Start, TAG_BYTES_MAX};

/// A client of WS-FLV.
#[derive(Debug)]
pub(super) struct WsFlvClient {
    request: Option<Bytes>,
    stage: Stage,
    file: Reader,
    accepted: bool,
    /// The reason why the client has ended. It is reported after all earlier events.
    ended: Option<String>,
}

#[derive(Debug)]
enum Stage {
    Handshake(ClientHandshake, Seed),
    Open(Box<WebSocket>),
}

impl WsFlvClient {
    pub(super) fn new(url: &LiveUrl, seed: Seed) -> Self {
        let mut random = seed.derive("websocket key", 0).random();
        let (request, handshake) = ClientHandshake::begin(&url.authority, &url.target, None, &mut random);
        Self {
            request: Some(request),
            stage: Stage::Handshake(handshake, seed),
            file: Reader::new(TAG_BYTES_MAX),
            accepted: false,
            ended: None,
        }
    }

    fn end(&mut self, reason: impl Into<String>) {
        self.ended.get_or_insert_with(|| reason.into());
    }

    fn drain_messages(&mut self) {
        while let Stage::Open(socket) = &mut self.stage
            && let Some(event) = socket.poll_event()
        {
            match event {
                websocket::Event::Binary(bytes) => self.file.push(&bytes),
                websocket::Event::Text(_) => {}
                websocket::Event::Closed(reason) => self.end(reason.to_string()),
            }
        }
    }
}

impl ClientStream for WsFlvClient {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        match &mut self.stage {
            Stage::Handshake(handshake, seed) => match handshake.handle_bytes(bytes) {
                Ok(Some(held)) => {
                    let limits = websocket::Limits {
                        message_bytes: usize::try_from(TAG_BYTES_MAX).unwrap_or(usize::MAX),
                        ..websocket::Limits::default()
                    };
                    let socket = WebSocket::client(now, Arc::new(limits), &held, seed);
                    self.stage = Stage::Open(Box::new(socket));
                    self.accepted = true;
                }
                Ok(None) => {}
                Err(error) => self.end(format!("WebSocket: {error}")),
            },
            Stage::Open(socket) => {
                // The caller limits the unsent bytes, so all bytes count as sent for the WebSocket.
                socket.handle_sent(now, usize::MAX);
                socket.handle_bytes(now, bytes);
            }
        }
        self.drain_messages();
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(request) = self.request.take() {
            out.push(request);
        }
        if let Stage::Open(socket) = &mut self.stage {
            socket.poll_transmit(out);
        }
    }
}

impl Client for WsFlvClient {
    /// Does nothing, because the request was made at construction.
    fn begin(&mut self, _start: &Start<'_>) {}

    fn byte_stream(&mut self) -> Option<&mut dyn ClientStream> {
        Some(self)
    }

    fn handle_end(&mut self, _now: Instant) {
        self.end(match self.stage {
            Stage::Handshake(..) => "the server closed within the handshake",
            Stage::Open(_) => "the server closed the connection",
        });
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Stage::Open(socket) = &mut self.stage {
            socket.handle_sent(now, usize::MAX);
            let _ = socket.handle_timeout(now);
        }
        self.drain_messages();
    }

    fn poll(&mut self) -> Option<ClientEvent> {
        if std::mem::take(&mut self.accepted) {
            return Some(ClientEvent::Accepted);
        }
        match self.file.poll_tag() {
            Ok(Some(tag)) => Some(ClientEvent::Media(Media::Tag(tag))),
            Ok(None) => self.ended.take().map(ClientEvent::Ended),
            Err(error) => Some(ClientEvent::Ended(error.to_string())),
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Open(socket) => socket.poll_timeout(),
            Stage::Handshake(..) => None,
        }
    }

    fn close(&mut self, now: Instant) {
        if let Stage::Open(socket) = &mut self.stage {
            socket.close(now, websocket::code::NORMAL, "");
        }
        self.end("closed");
    }

    fn name(&self) -> &'static str {
        "ws-flv"
    }
}
