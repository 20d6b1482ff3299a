//! The signalling of WHIP and WHEP: an offer by POST, its answer, and the end by DELETE.

use std::collections::VecDeque;

use bytes::Bytes;
use wire::SendQueue;

use super::Endpoint;
use super::signal::SignalEvent;
use crate::http::USER_AGENT;
use crate::http::client::{self, ResponseEvent, ResponseHead, ResponseReader};

/// Maximum size of a response.
const ANSWER_BYTES_MAX: usize = 128 * 1024;
/// The media type of descriptions.
const SDP: &str = "application/sdp";
const CREATED: u16 = 201;

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
    /// The session exists; `session` is the path of its URL.
    Live {
        session: String,
    },
    /// The session is being deleted.
    Deleting,
    Closed,
}

/// The requests of a session.
#[derive(Debug)]
pub(super) struct Requests {
    endpoint: Endpoint,
    stage: Stage,
    /// The request to send over the byte stream.
    request: Option<Bytes>,
    response: ResponseReader,
    events: VecDeque<SignalEvent>,
}

impl Requests {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            stage: Stage::Opening,
            request: None,
            response: ResponseReader::new(),
            events: VecDeque::new(),
        }
    }

    pub(super) fn begin(&mut self) {
        self.events.push_back(SignalEvent::OfferWanted);
    }

    pub(super) fn offer(&mut self, sdp: &str) {
        self.ask("POST", &self.endpoint.target.clone(), sdp);
        self.stage = Stage::Offered { session: None, answer: Vec::new() };
    }

    pub(super) fn handle_bytes(&mut self, bytes: &[u8]) {
        let read = self.response.handle_bytes(bytes);
        self.read_response();
        if let Err(error) = read
            && !matches!(self.stage, Stage::Live { .. })
        {
            self.end(error.to_string());
        }
    }

    /// Handles the end of the byte stream, which is not needed once the response has arrived.
    pub(super) fn handle_end(&mut self) {
        let ended = self.response.handle_end();
        self.read_response();
        if matches!(self.stage, Stage::Opening | Stage::Offered { .. }) {
            let why = ended.err().map(|error| error.to_string());
            self.end(why.unwrap_or_else(|| "the server closed without an answer".to_owned()));
        }
    }

    pub(super) fn poll_transmit(&mut self, out: &mut SendQueue) {
        if let Some(request) = self.request.take() {
            out.push(request);
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<SignalEvent> {
        self.events.pop_front()
    }

    /// Deletes the session, or drops its unfinished parts.
    pub(super) fn close(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Deleting) {
            Stage::Live { session } => {
                self.ask("DELETE", &session, "");
                self.events.push_back(SignalEvent::Reconnect);
            }
            Stage::Deleting => {}
            Stage::Opening | Stage::Offered { .. } | Stage::Closed => {
                self.stage = Stage::Closed;
                self.events.push_back(SignalEvent::Over);
            }
        }
    }

    /// True if the session is being deleted, or has ended; its end was reported already.
    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Deleting | Stage::Closed)
    }

    fn ask(&mut self, method: &str, target: &str, body: &str) {
        let content = (!body.is_empty()).then_some((SDP, body));
        self.request =
            Some(client::request(USER_AGENT, method, &self.endpoint.authority, target, content).into());
        self.response = ResponseReader::new();
    }

    fn read_response(&mut self) {
        while let Some(event) = self.response.poll_event() {
            match (event, &mut self.stage) {
                (ResponseEvent::Head(head), Stage::Offered { session, .. }) if head.status == CREATED => {
                    *session = Some(session_path(&head, &self.endpoint.target));
                }
                (ResponseEvent::Head(head), Stage::Offered { .. }) => {
                    return self.end(format!("HTTP {} {}", head.status, head.reason));
                }
                (ResponseEvent::Body(bytes), Stage::Offered { answer, .. }) => {
                    if answer.len().saturating_add(bytes.len()) > ANSWER_BYTES_MAX {
                        return self.end("the answer is too long".to_owned());
                    }
                    answer.extend_from_slice(&bytes);
                }
                (ResponseEvent::End, Stage::Offered { session, answer }) => {
                    let (session, answer) = (session.take().unwrap_or_default(), std::mem::take(answer));
                    self.stage = Stage::Live { session };
                    self.events.push_back(SignalEvent::Answer(answer));
                }
                // Whatever the response, the server knows that the session has ended.
                (ResponseEvent::End, Stage::Deleting) => {
                    self.stage = Stage::Closed;
                    self.events.push_back(SignalEvent::Over);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, why: String) {
        self.events.push_back(SignalEvent::Closed(why));
    }
}

/// Returns the path of the session from a response's `Location` (RFC 9725 §4.2): an absolute URL, a path, or a name
/// relative to the endpoint.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_found_by_every_form_of_its_url() {
        let of = |location: &str| {
            let headers = vec![("location".to_owned(), location.as_bytes().to_vec())];
            let head = ResponseHead { minor_version: 1, status: CREATED, reason: String::new(), headers };
            session_path(&head, "/live/whep/a?token=x/y")
        };
        assert_eq!(of("http://h:5080/live/whep/a/0-1f?x=1"), "/live/whep/a/0-1f?x=1");
        assert_eq!(of("/live/whep/a/0-1f"), "/live/whep/a/0-1f");
        assert_eq!(of("a/0-1f"), "/live/whep/a/0-1f");
        assert_eq!(of("https://h"), "/");
    }
}
