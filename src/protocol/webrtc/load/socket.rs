//! The signalling of the SDK's socket: a participant publishes into a room, or plays it.
//!
//! | publishes | plays |
//! |---|---|
//! | `publish`; after `start` our offer, and its answer | `play`; an offer after each change of the room, and our answers |

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crypto::Seed;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use wire::SendQueue;

use super::Endpoint;
use super::signal::SignalEvent;
use crate::http::websocket::{ClientHandshake, Event, Limits, WebSocket, code};

/// Maximum size of a message: an offer of a full room.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// The request of the client, from the query of its URL.
#[derive(Debug, Clone, Default)]
struct Wish {
    /// The published stream, or the stream of the participant that plays.
    id: String,
    room: String,
    /// Maximum number of videos; `None` leaves it to the server.
    loudest: Option<usize>,
    token: String,
}

impl Wish {
    fn read(target: &str) -> Self {
        let mut wish = Self::default();
        let query = target.split_once('?').map_or("", |(_, query)| query);
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = percent_decode_str(value).decode_utf8_lossy();
            match name {
                "streamId" => wish.id = value.into_owned(),
                "room" => wish.room = value.into_owned(),
                "loudest" => wish.loudest = value.parse().ok(),
                "token" => wish.token = value.into_owned(),
                _ => {}
            }
        }
        wish
    }
}

/// True if the query names a room.
pub(super) fn names_room(target: &str) -> bool {
    !Wish::read(target).room.is_empty()
}

/// The messages of a session.
#[derive(Debug)]
pub(super) struct Messages {
    endpoint: Endpoint,
    wish: Wish,
    publishes: bool,
    seed: Seed,
    handshake: Option<ClientHandshake>,
    socket: Option<WebSocket>,
    request: Option<Bytes>,
    events: VecDeque<SignalEvent>,
    /// Time of the last input.
    now: Option<Instant>,
    over: bool,
}

impl Messages {
    pub(super) fn new(endpoint: Endpoint, publishes: bool, seed: Seed) -> Self {
        Self {
            wish: Wish::read(&endpoint.target),
            endpoint,
            publishes,
            seed,
            handshake: None,
            socket: None,
            request: None,
            events: VecDeque::new(),
            now: None,
            over: false,
        }
    }

    /// Returns the stream id that messages carry: the room's name for a player of a room, otherwise the id of the
    /// stream.
    fn id(&self) -> &str {
        if self.publishes || self.wish.room.is_empty() { &self.wish.id } else { &self.wish.room }
    }

    pub(super) fn begin(&mut self) {
        let Endpoint { authority, target, signalling: _ } = &self.endpoint;
        let mut random = self.seed.derive("handshake", 0).random();
        let (request, handshake) = ClientHandshake::begin(authority, target, None, &mut random);
        (self.request, self.handshake) = (Some(request), Some(handshake));
    }

    pub(super) fn describe(&mut self, now: Instant, kind: &str, sdp: &str) {
        let message =
            json!({"command": "takeConfiguration", "streamId": self.id(), "type": kind, "sdp": sdp});
        self.say(now, &message);
        if kind == "answer"
            && let Some(count) = self.wish.loudest.take()
        {
            let id = self.id();
            let limit =
                json!({"command": "setMaxVideoTrackCountCommand", "streamId": id, "maxTrackCount": count});
            self.say(now, &limit);
        }
    }

    fn greet(&mut self, now: Instant) {
        let Wish { id, room, token, .. } = &self.wish;
        let message = if self.publishes {
            json!({
                "command": "publish", "streamId": id, "streamName": id, "mainTrack": room, "token": token,
                "video": true, "audio": true,
            })
        } else {
            json!({
                "command": "play", "streamId": self.id(), "room": "", "trackList": [], "token": token,
                "userPublishId": if room.is_empty() { "" } else { id.as_str() },
            })
        };
        self.say(now, &message);
    }

    fn say(&mut self, now: Instant, message: &Value) {
        self.now = Some(now);
        let said = self.socket.as_mut().map(|socket| socket.send_text(now, &message.to_string()));
        if let Some(Err(error)) = said {
            self.end(error.to_string());
        }
    }

    pub(super) fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if let Some(socket) = &mut self.socket {
            socket.handle_bytes(now, bytes);
        } else if let Some(handshake) = &mut self.handshake {
            match handshake.handle_bytes(bytes) {
                Ok(None) => return,
                Ok(Some(held)) => {
                    let limits = Limits { message_bytes: MESSAGE_BYTES_MAX, ..Limits::default() };
                    let seed = self.seed.derive("masks", 0);
                    self.socket = Some(WebSocket::client(now, Arc::new(limits), &held, &seed));
                    self.greet(now);
                }
                Err(error) => return self.end(error.to_string()),
            }
        }
        self.read(now);
    }

    fn read(&mut self, now: Instant) {
        self.now = Some(now);
        while let Some(event) = self.socket.as_mut().and_then(WebSocket::poll_event) {
            match event {
                Event::Text(text) => self.hear(&text),
                Event::Binary(_) => {}
                Event::Closed(reason) => self.end(format!("the socket: {reason}")),
            }
        }
        let dead = self.socket.as_mut().and_then(|socket| socket.handle_timeout(now).err());
        if let Some(error) = dead {
            self.end(error.to_string());
        }
    }

    fn hear(&mut self, text: &str) {
        let Ok(message) = serde_json::from_str::<Value>(text) else { return };
        let member = |name: &str| message.get(name).and_then(Value::as_str).unwrap_or_default();
        let sdp = || member("sdp").as_bytes().to_vec();
        let event = match (member("command"), member("type"), member("definition")) {
            ("start", ..) => SignalEvent::OfferWanted,
            ("takeConfiguration", "answer", _) => SignalEvent::Answer(sdp()),
            ("takeConfiguration", "offer", _) => SignalEvent::Offer(sdp()),
            ("error", _, why) => return self.end(format!("the server: {why}")),
            ("notification", _, "publish_finished" | "play_finished") => {
                return self.end("the server ended the session".to_owned());
            }
            _ => return,
        };
        self.events.push_back(event);
    }

    pub(super) fn handle_end(&mut self) {
        self.end("the server closed the socket".to_owned());
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.read(now);
    }

    pub(super) fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(request) = self.request.take() {
            out.push(request);
        }
        if let Some(socket) = &mut self.socket
            && socket.poll_transmit(out)
            && let Some(now) = self.now
        {
            // The socket counts as empty, because the load generator's own queue shows whether the server reads.
            socket.handle_sent(now, socket.stats().unsent_bytes);
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<SignalEvent> {
        self.events.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.socket.as_ref().and_then(WebSocket::poll_timeout)
    }

    pub(super) fn close(&mut self, now: Instant) {
        let stop = json!({"command": "stop", "streamId": self.id()});
        self.say(now, &stop);
        if let Some(socket) = &mut self.socket {
            socket.close(now, code::NORMAL, "");
        }
        self.over = true;
        self.events.push_back(SignalEvent::Over);
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    fn end(&mut self, why: String) {
        if !self.over {
            self.events.push_back(SignalEvent::Closed(why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_query_are_decoded_once() {
        let wish = Wish::read("/live/websocket?streamId=a%20b&room=r%C3%A4um&loudest=%33&token=x%2By%253D");
        assert_eq!(
            (&*wish.id, &*wish.room, wish.loudest, &*wish.token),
            ("a b", "r\u{e4}um", Some(3), "x+y%3D")
        );
        assert!(names_room("/live/websocket?room=r") && !names_room("/live/websocket?streamId=room"));
    }
}
