//! A player: the client machine of its protocol, and stamps that are read from what comes.
//!
//! 1. RTMP: the dialogue of [`rtmp::Client`]. HTTP-FLV: a request, a response of status 200, an FLV file without end.
//!    FLV over WebSocket: the same file in binary messages, cut anywhere.
//! 2. [`PeerEvent::Ready`] with the server's consent (RTMP: `NetStream.Play.Start`; HTTP: the head).
//! 3. Every unit is counted, its stamp compared with the time of the read that completed it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crypto::Seed;
use flv::file::TagKind;
use rtmp::{Client, ClientEvent, CloseReason, MediaKind};
use wire::SendQueue;

use super::publisher::config;
use super::viewing::Viewing;
use super::{Now, Peer, PeerEvent, Protocol, Role, Score, Stamp, Tally, Target};
use crate::http::client::{self, ResponseEvent, ResponseHead, ResponseReader};
use crate::http::websocket::{self, ClientHandshake, WebSocket};

/// Without media for so long a connection is lost.
pub(super) const STALL: Duration = Duration::from_secs(10);
/// Larger tags are not what a stream has.
const TAG_BYTES_MAX: u32 = 8 << 20;
const OK: u16 = 200;

/// What to play.
#[derive(Debug, Clone)]
pub struct PlayerOptions {
    /// The stream.
    pub target: Target,
    /// Time to become ready.
    pub timeout: Duration,
    /// Plays and never reads again once it is ready.
    pub stalled: bool,
}

/// One playing connection.
#[derive(Debug)]
pub struct Player {
    link: Link,
    viewing: Viewing,
    ready: bool,
    stalled: bool,
    /// HTTP: the next byte of the head, or the next tag.
    deadline: Option<Instant>,
    /// A stamp that came as a message, for the unit behind it.
    announced: Option<Stamp>,
    events: VecDeque<PeerEvent>,
}

/// What speaks with the server.
#[derive(Debug)]
enum Link {
    Rtmp(Box<Client>),
    Flv(Box<FlvLink>),
}

#[derive(Debug)]
struct FlvLink {
    request: Option<Bytes>,
    carrier: FlvCarrier,
    file: flv::file::Reader,
}

/// What the file comes in.
#[derive(Debug)]
enum FlvCarrier {
    Response(ResponseReader),
    Handshake(ClientHandshake, Seed),
    WebSocket(Box<WebSocket>),
}

impl Player {
    /// On a connection that is being made.
    #[must_use]
    pub fn new(now: Now, options: &PlayerOptions, seed: Seed) -> Self {
        let target = &options.target;
        let (link, deadline) = match target.protocol {
            Protocol::Rtmp => {
                let client = Client::play(now.mono, config(target, options.timeout), seed);
                (Link::Rtmp(Box::new(client)), None)
            }
            Protocol::Flv | Protocol::WsFlv | Protocol::Srt => {
                let flv = FlvLink::new(target, seed);
                (Link::Flv(Box::new(flv)), Some(now.mono + options.timeout))
            }
        };
        Self {
            link,
            viewing: Viewing::new(now),
            ready: false,
            stalled: options.stalled,
            deadline,
            announced: None,
            events: VecDeque::new(),
        }
    }

    fn become_ready(&mut self) {
        if !std::mem::replace(&mut self.ready, true) {
            self.events.push_back(PeerEvent::Ready);
        }
    }

    /// The first reason counts.
    fn end(&mut self, why: &str) {
        self.deadline = None;
        if !self.events.iter().any(|event| matches!(event, PeerEvent::Closed(_))) {
            self.events.push_back(PeerEvent::Closed(why.to_owned()));
        }
    }

    fn drain_rtmp(&mut self, now: Now, tally: &mut Tally) {
        while let Link::Rtmp(client) = &mut self.link
            && let Some(event) = client.poll_event()
        {
            match event {
                ClientEvent::Ready { .. } => self.become_ready(),
                ClientEvent::Media(message) => {
                    let kind = match message.kind {
                        MediaKind::Audio => TagKind::Audio,
                        MediaKind::Video => TagKind::Video,
                        MediaKind::Data => TagKind::Data,
                    };
                    self.take(now, kind, &message.payload, tally);
                }
                ClientEvent::Rejected { code, description } => self.end(&format!("{code}: {description}")),
                ClientEvent::Closed(reason) => self.end(&format!("{reason:?}")),
            }
        }
    }

    fn drain_response(&mut self, now: Now, tally: &mut Tally) {
        while let Link::Flv(link) = &mut self.link
            && let FlvCarrier::Response(response) = &mut link.carrier
            && let Some(event) = response.poll_event()
        {
            match event {
                ResponseEvent::Head(head) => self.take_head(now, &head),
                ResponseEvent::Body(bytes) if self.ready => self.take_flv(now, &bytes, tally),
                ResponseEvent::Body(_) => {}
                ResponseEvent::End => self.end("the stream ended"),
            }
        }
    }

    fn drain_messages(&mut self, now: Now, tally: &mut Tally) {
        while let Link::Flv(link) = &mut self.link
            && let FlvCarrier::WebSocket(socket) = &mut link.carrier
            && let Some(event) = socket.poll_event()
        {
            match event {
                websocket::Event::Binary(bytes) => self.take_flv(now, &bytes, tally),
                websocket::Event::Text(_) => {}
                websocket::Event::Closed(reason) => self.end(&format!("{reason:?}")),
            }
        }
    }

    /// The bytes of HTTP or WebSocket.
    fn take_bytes(&mut self, now: Now, bytes: &[u8], tally: &mut Tally) {
        let Link::Flv(link) = &mut self.link else { return };
        match &mut link.carrier {
            FlvCarrier::Response(response) => {
                let outcome = response.handle_bytes(bytes);
                self.drain_response(now, tally);
                if let Err(error) = outcome {
                    self.end(&error.to_string());
                }
            }
            FlvCarrier::Handshake(handshake, seed) => match handshake.handle_bytes(bytes) {
                Ok(Some(held)) => {
                    let limits = websocket::Limits {
                        message_bytes: usize::try_from(TAG_BYTES_MAX).unwrap_or(usize::MAX),
                        ..websocket::Limits::default()
                    };
                    let socket = WebSocket::client(now.mono, Arc::new(limits), seed, &held);
                    link.carrier = FlvCarrier::WebSocket(Box::new(socket));
                    self.deadline = Some(now.mono + STALL);
                    self.become_ready();
                    self.drain_messages(now, tally);
                }
                Ok(None) => {}
                Err(error) => self.end(&format!("WebSocket: {error}")),
            },
            FlvCarrier::WebSocket(socket) => {
                socket.handle_sent(now.mono, usize::MAX);
                socket.handle_bytes(now.mono, bytes);
                self.drain_messages(now, tally);
            }
        }
    }

    fn take_head(&mut self, now: Now, head: &ResponseHead) {
        if head.status == OK {
            self.deadline = Some(now.mono + STALL);
            self.become_ready();
        } else {
            self.end(&format!("HTTP {} {}", head.status, head.reason));
        }
    }

    fn take_flv(&mut self, now: Now, bytes: &[u8], tally: &mut Tally) {
        if let Link::Flv(link) = &mut self.link {
            link.file.push(bytes);
        }
        while let Link::Flv(link) = &mut self.link {
            match link.file.poll_tag() {
                Ok(Some(tag)) => {
                    self.deadline = Some(now.mono + STALL);
                    self.take(now, tag.kind, &tag.body, tally);
                }
                Ok(None) => return,
                Err(error) => return self.end(&error.to_string()),
            }
        }
    }

    /// A whole body.
    fn take(&mut self, now: Now, kind: TagKind, body: &Bytes, tally: &mut Tally) {
        let is_video = match kind {
            TagKind::Video => true,
            TagKind::Audio => false,
            TagKind::Data | TagKind::Other(_) => {
                self.announced = Stamp::in_message(body).or(self.announced);
                return;
            }
        };
        let Some(payload) = payload(is_video, body) else { return };
        let inside = if is_video { Stamp::in_nals(payload) } else { Stamp::in_aac(payload) };
        let stamp = inside.or_else(|| self.announced.take());
        self.viewing.unit(now, is_video, stamp, tally);
    }
}

impl Peer for Player {
    fn handle_bytes(&mut self, now: Now, bytes: &[u8], tally: &mut Tally) {
        match &mut self.link {
            Link::Rtmp(client) => {
                // An error is also the last event.
                let _ = client.handle_bytes(now.mono, bytes);
                self.drain_rtmp(now, tally);
            }
            Link::Flv(_) => self.take_bytes(now, bytes, tally),
        }
    }

    fn handle_timeout(&mut self, now: Now, tally: &mut Tally) {
        if let Link::Rtmp(client) = &mut self.link
            && !(self.stalled && self.ready)
        {
            let _ = client.handle_timeout(now.mono);
            self.drain_rtmp(now, tally);
        }
        if let Link::Flv(link) = &mut self.link
            && let FlvCarrier::WebSocket(socket) = &mut link.carrier
        {
            // The bound of what waits unsent is the loop's: to the machine all was taken.
            socket.handle_sent(now.mono, usize::MAX);
            let _ = socket.handle_timeout(now.mono);
            self.drain_messages(now, tally);
        }
        if self.deadline.is_some_and(|deadline| deadline <= now.mono) {
            self.end(if self.ready { "no media came" } else { "no answer" });
        }
    }

    fn handle_hangup(&mut self, _now: Now, why: Option<&str>) {
        let ended = match &mut self.link {
            Link::Rtmp(_) => None,
            Link::Flv(link) => link.ended_badly(),
        };
        self.end(why.or(ended.as_deref()).unwrap_or("the server closed the connection"));
    }

    fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) -> bool {
        match &mut self.link {
            Link::Rtmp(client) => client.poll_transmit(out),
            Link::Flv(link) => {
                let request = link.request.take().map(|request| out.push(request)).is_some();
                let FlvCarrier::WebSocket(socket) = &mut link.carrier else { return request };
                socket.poll_transmit(out) || request
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.stalled && self.ready {
            return None;
        }
        match &self.link {
            Link::Rtmp(client) => client.poll_timeout(),
            Link::Flv(link) => [self.deadline, link.poll_timeout()].into_iter().flatten().min(),
        }
    }

    fn wants_bytes(&self) -> bool {
        !(self.stalled && self.ready)
    }

    fn close(&mut self, now: Now) {
        self.deadline = None;
        match &mut self.link {
            Link::Rtmp(client) => client.close(now.mono, CloseReason::Requested),
            Link::Flv(link) => {
                if let FlvCarrier::WebSocket(socket) = &mut link.carrier {
                    socket.close(now.mono, websocket::code::NORMAL, "");
                }
            }
        }
    }

    fn role(&self) -> Role {
        Role::Play
    }

    fn score(&self) -> Score {
        self.viewing.score()
    }
}

impl FlvLink {
    fn new(target: &Target, seed: Seed) -> Self {
        let (request, carrier) = if target.protocol == Protocol::WsFlv {
            let mut random = seed.derive("websocket key", 0).random();
            let (request, handshake) =
                ClientHandshake::begin(&target.authority, &target.name, None, &mut random);
            (request, FlvCarrier::Handshake(handshake, seed))
        } else {
            let request = client::get(&target.authority, &target.name, false);
            (request.into(), FlvCarrier::Response(ResponseReader::new()))
        };
        Self { request: Some(request), carrier, file: flv::file::Reader::new(TAG_BYTES_MAX) }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match &self.carrier {
            FlvCarrier::WebSocket(socket) => socket.poll_timeout(),
            FlvCarrier::Response(_) | FlvCarrier::Handshake(..) => None,
        }
    }

    /// What is wrong with an end of the transport here; `None`: a stream may end so.
    fn ended_badly(&mut self) -> Option<String> {
        match &mut self.carrier {
            FlvCarrier::Response(response) => response.handle_end().err().map(|error| error.to_string()),
            FlvCarrier::Handshake(..) => Some("the server closed within the handshake".to_owned()),
            FlvCarrier::WebSocket(_) => None,
        }
    }
}

/// The media behind the head of a body; `None` for parameter sets and what ends a sequence. The offsets are those of
/// H.264 and AAC: in other codecs there is no stamp to be found, and a unit is a unit.
fn payload(is_video: bool, body: &[u8]) -> Option<&[u8]> {
    let (first, packet) = (*body.first()?, body.get(1).copied());
    match (is_video, first) {
        // Enhanced RTMP (veovera, §Defining Additional Video Codecs): packet types 1 and 3 are coded frames.
        (true, first) if first & 0x80 != 0 => matches!(first & 0x0f, 1 | 3).then_some(&[]),
        (true, first) if first & 0x0f == 7 => (packet? == 1).then(|| body.get(5..)).flatten(),
        (false, first) if first >> 4 == 10 => (packet? == 1).then(|| body.get(2..)).flatten(),
        (false, first) if first >> 4 == 9 => (first & 0x0f == 1).then_some(&[]),
        (true | false, _) => Some(&[]),
    }
}
