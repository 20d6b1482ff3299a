//! A WHIP or WHEP client: sends an offer by POST, takes the answer, runs the peer, ends with DELETE.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::webrtc::{CloseReason, Config, Event, IceMode, MediaPreference, Peer, SectionId};
use bytes::Bytes;
use crypto::Seed;
use ice::Path;
use rtp::NtpAnchor;
use rtp::history::PacketLog;
use sdp::{Description, MediaKind};
use wire::{Datagrams, SendQueue};

use super::Endpoint;
use crate::http::client::{self, ResponseEvent, ResponseHead, ResponseReader};
use crate::protocol::pull::ClientStream;

/// Maximum size of a response.
const ANSWER_BYTES_MAX: usize = 128 * 1024;
/// The media type of descriptions.
const SDP: &str = "application/sdp";
const CREATED: u16 = 201;
/// Wall clock at the beginning, for reports; there is no real clock here, and only differences matter.
const WALL_CLOCK: Duration = Duration::from_secs(1_800_000_000);

/// An event of a client.
#[derive(Debug, PartialEq)]
pub(super) enum ClientEvent {
    /// Media can be sent and received.
    Ready,
    /// The client needs a new byte stream.
    Reconnect,
    /// A complete frame of a section.
    Frame { section: SectionId, payload: Bytes },
    /// The client has ended, for this reason.
    Closed(String),
}

/// The stage of the signalling.
#[derive(Debug)]
enum Stage {
    /// The socket is being opened.
    Opening,
    /// The offer was sent. `session` is the URL of the session from the response's head.
    Offered {
        session: Option<String>,
        answer: Vec<u8>,
    },
    /// The session exists; holds its URL's path.
    Live {
        session: String,
    },
    /// The session is being deleted.
    Deleting,
    Closed,
}

/// A WHIP or WHEP client.
#[derive(Debug)]
pub(super) struct RtcClient {
    endpoint: Endpoint,
    peer: Peer,
    sections: Vec<(MediaKind, MediaPreference)>,
    stage: Stage,
    /// Address at which the socket receives.
    local: Option<SocketAddr>,
    /// The request to send over the byte stream.
    request: Option<Bytes>,
    response: ResponseReader,
    events: VecDeque<ClientEvent>,
}

impl RtcClient {
    /// Makes a client for a connection that is being opened. `None` if no keys could be made.
    pub(super) fn new(
        now: Instant,
        endpoint: Endpoint,
        seed: Seed,
        sections: Vec<(MediaKind, MediaPreference)>,
    ) -> Option<Self> {
        let identity = dtls::Identity::self_signed(&seed.derive("identity", 0)).ok()?;
        let config = Arc::new(Config::new(IceMode::Full(Arc::default()), Arc::new(identity)));
        let peer = Peer::new(now, config, NtpAnchor::new(now, WALL_CLOCK), seed).ok()?;
        Some(Self {
            endpoint,
            peer,
            sections,
            stage: Stage::Opening,
            local: None,
            request: None,
            response: ResponseReader::new(),
            events: VecDeque::new(),
        })
    }

    /// True if media of a kind is offered.
    pub(super) fn offers(&self, kind: &MediaKind) -> bool {
        self.sections.iter().any(|(of, _)| of == kind)
    }

    /// Returns the media kind of a section.
    pub(super) fn kind_of(&self, section: SectionId) -> Option<&MediaKind> {
        self.peer.sections().iter().find(|own| own.id == section).map(|own| &own.kind)
    }

    /// Returns the section that sends media of a kind, if one was agreed on.
    pub(super) fn section_of(&self, kind: &MediaKind) -> Option<SectionId> {
        let mut sections = self.peer.sections().iter();
        sections.find(|own| own.kind == *kind && own.direction.sends()).map(|own| own.id)
    }

    /// Returns the peer, to send with.
    pub(super) const fn peer(&mut self) -> &mut Peer {
        &mut self.peer
    }

    /// Notes the socket's address, and makes the offer.
    pub(super) fn handle_local(&mut self, now: Instant, local: SocketAddr) {
        self.local = Some(local);
        let offer = match self.peer.add_local(now, local) {
            _ if self.sections.is_empty() => Err("WebRTC carries nothing of the clip".to_owned()),
            Ok(_) => self.peer.offer(&self.sections).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match offer {
            Ok(offer) => {
                self.ask("POST", &self.endpoint.target.clone(), &offer.write());
                self.stage = Stage::Offered { session: None, answer: Vec::new() };
            }
            Err(why) => self.end(now, why),
        }
    }

    pub(super) fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &mut [u8]) {
        let Some(local) = self.local else { return };
        self.peer.handle_datagram(now, Path::udp(local, from), datagram);
        self.drain(now);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.peer.handle_timeout(now);
        self.drain(now);
    }

    /// Handles the end of the byte stream, which is not needed once the response has come.
    pub(super) fn handle_end(&mut self, now: Instant) {
        let ended = self.response.handle_end();
        self.read_response(now);
        if matches!(self.stage, Stage::Opening | Stage::Offered { .. }) {
            let why = ended.err().map(|error| error.to_string());
            self.end(now, why.unwrap_or_else(|| "the server closed without an answer".to_owned()));
        }
    }

    /// Adds datagrams, and returns their destination.
    pub(super) fn poll_datagrams<'l>(
        &mut self,
        now: Instant,
        log: impl Fn(SectionId) -> Option<&'l PacketLog>,
        out: &mut Datagrams,
    ) -> Option<SocketAddr> {
        self.peer.poll_transmit(now, log, out).map(|path| path.remote)
    }

    pub(super) fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.peer.poll_timeout()
    }

    /// Deletes the session, or drops its unfinished parts.
    pub(super) fn close(&mut self, now: Instant) {
        match std::mem::replace(&mut self.stage, Stage::Deleting) {
            Stage::Live { session } => {
                self.ask("DELETE", &session, "");
                self.events.push_back(ClientEvent::Reconnect);
            }
            Stage::Deleting => {}
            Stage::Opening | Stage::Offered { .. } | Stage::Closed => {
                self.stage = Stage::Closed;
                self.peer.close(now);
            }
        }
    }

    fn ask(&mut self, method: &str, target: &str, body: &str) {
        let content = (!body.is_empty()).then_some((SDP, body));
        self.request = Some(client::request(method, &self.endpoint.authority, target, content).into());
        self.response = ResponseReader::new();
    }

    fn read_response(&mut self, now: Instant) {
        while let Some(event) = self.response.poll_event() {
            match (event, &mut self.stage) {
                (ResponseEvent::Head(head), Stage::Offered { session, .. }) if head.status == CREATED => {
                    *session = Some(session_path(&head, &self.endpoint.target));
                }
                (ResponseEvent::Head(head), Stage::Offered { .. }) => {
                    return self.end(now, format!("HTTP {} {}", head.status, head.reason));
                }
                (ResponseEvent::Body(bytes), Stage::Offered { answer, .. }) => {
                    if answer.len().saturating_add(bytes.len()) > ANSWER_BYTES_MAX {
                        return self.end(now, "the answer is too long".to_owned());
                    }
                    answer.extend_from_slice(&bytes);
                }
                (ResponseEvent::End, Stage::Offered { session, answer }) => {
                    let (session, answer) = (session.take().unwrap_or_default(), std::mem::take(answer));
                    self.answered(now, session, &answer);
                }
                // Any answer shows that the server has heard of the end.
                (ResponseEvent::End, Stage::Deleting) => {
                    self.stage = Stage::Closed;
                    self.peer.close(now);
                }
                _ => {}
            }
        }
    }

    fn answered(&mut self, now: Instant, session: String, answer: &[u8]) {
        self.stage = Stage::Live { session };
        let taken = match Description::read(answer) {
            Ok(answer) => self.peer.handle_answer(now, &answer).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match taken {
            Ok(()) => self.drain(now),
            Err(why) => self.end(now, format!("the answer: {why}")),
        }
    }

    fn drain(&mut self, now: Instant) {
        while let Some(event) = self.peer.poll_event() {
            match event {
                Event::Connected => self.events.push_back(ClientEvent::Ready),
                Event::Frame { section, frame, .. } => {
                    self.events.push_back(ClientEvent::Frame { section, payload: frame.payload });
                }
                Event::Closed(reason) => self.end(now, closed_text(reason)),
                // A clip has key frames where it has them: who wants one waits for the next.
                Event::KeyFrameWanted { .. } => {}
                // The socket has a single path, and losses are counted by the stamps of the media.
                Event::Candidate(_)
                | Event::PathOpened(_)
                | Event::PathClosed(_)
                | Event::Format { .. }
                | Event::PictureLost { .. }
                | _ => {}
            }
        }
    }

    /// Notes the reason of the end, unless one was noted before or the session is being deleted, whose end was reported already.
    fn end(&mut self, now: Instant, why: String) {
        if !matches!(self.stage, Stage::Deleting | Stage::Closed) {
            self.stage = Stage::Closed;
            self.peer.close(now);
            self.events.push_back(ClientEvent::Closed(why));
        }
    }
}

impl ClientStream for RtcClient {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        let read = self.response.handle_bytes(bytes);
        self.read_response(now);
        if let Err(error) = read
            && !matches!(self.stage, Stage::Live { .. })
        {
            self.end(now, error.to_string());
        }
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(request) = self.request.take() {
            out.push(request);
        }
    }
}

/// Returns the path of the session from a response's `Location` (RFC 9725 §4.2): an absolute URL, a path, or a name relative to the
/// endpoint.
fn session_path(head: &ResponseHead, endpoint: &str) -> String {
    let location = head.header("location").unwrap_or_default();
    let location = std::str::from_utf8(location).unwrap_or_default();
    if let Some((_, behind)) = location.split_once("://") {
        return behind.find('/').and_then(|at| behind.get(at..)).unwrap_or("/").to_owned();
    }
    if location.starts_with('/') {
        return location.to_owned();
    }
    let path = endpoint.split('?').next().unwrap_or_default();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{location}")
}

fn closed_text(reason: CloseReason) -> String {
    match reason {
        CloseReason::Local => "closed".to_owned(),
        CloseReason::ConnectTimeout => "no path to the server".to_owned(),
        CloseReason::ConsentExpired => "the server answers no more".to_owned(),
        CloseReason::Peer => "the server ended the session".to_owned(),
        CloseReason::Handshake(why) => format!("DTLS: {why:?}"),
        _ => format!("{reason:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_by_every_form_of_its_url() {
        let of = |location: &str| {
            let headers = vec![("location".to_owned(), location.as_bytes().to_vec())];
            let head = ResponseHead { status: CREATED, reason: String::new(), headers };
            session_path(&head, "/live/whep/a?token=x/y")
        };
        assert_eq!(of("http://h:5080/live/whep/a/0-1f?x=1"), "/live/whep/a/0-1f?x=1");
        assert_eq!(of("/live/whep/a/0-1f"), "/live/whep/a/0-1f");
        assert_eq!(of("a/0-1f"), "/live/whep/a/0-1f");
        assert_eq!(of("https://h"), "/");
    }
}
