//! A connection that asks the API for one broadcast, again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use millstream::bench::{Now, Peer, PeerEvent, PeerStream, Role, Score, Tally};
use millstream::http::client::{self, ResponseEvent, ResponseReader};
use wire::SendQueue;

/// Path that is requested: the first stream's record.
const PATH: &str = "/live/rest/v2/broadcasts/bench0";

/// A connection to the API, with a single request under way at a time.
#[derive(Debug)]
pub struct Asker {
    request: String,
    reader: ResponseReader,
    asking: bool,
    answers: Arc<AtomicU64>,
    event: Option<PeerEvent>,
}

impl Asker {
    /// Creates a connection that counts successful answers in `answers`.
    pub fn new(address: SocketAddr, answers: Arc<AtomicU64>) -> Self {
        Self {
            request: client::get("bench", &address.to_string(), PATH, true),
            reader: ResponseReader::new(),
            asking: true,
            answers,
            event: Some(PeerEvent::Ready),
        }
    }

    fn end(&mut self, why: &str) {
        self.event = Some(PeerEvent::Closed(why.to_owned()));
    }
}

impl Peer for Asker {
    fn handle_timeout(&mut self, _now: Now, _tally: &mut Tally) {}

    fn handle_hangup(&mut self, _now: Now, _why: Option<&str>) {
        self.end("closed");
    }

    fn close(&mut self, _now: Now) {}

    fn poll_event(&mut self) -> Option<PeerEvent> {
        self.event.take()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn role(&self) -> Role {
        Role::Publish
    }

    fn score(&self) -> Score {
        Score::None
    }

    fn byte_stream(&mut self) -> Option<&mut dyn PeerStream> {
        Some(self)
    }
}

impl PeerStream for Asker {
    fn handle_bytes(&mut self, _now: Now, bytes: &[u8], _tally: &mut Tally) {
        if let Err(error) = self.reader.handle_bytes(bytes) {
            self.end(&error.to_string());
        }
        while let Some(event) = self.reader.poll_event() {
            match event {
                ResponseEvent::Head(head) if head.status != 200 => self.end(&head.reason),
                ResponseEvent::Head(_) | ResponseEvent::Body(_) => {}
                ResponseEvent::End => {
                    self.answers.fetch_add(1, Ordering::Relaxed);
                    self.reader = ResponseReader::new();
                    self.asking = true;
                }
            }
        }
    }

    fn wants_bytes(&self) -> bool {
        true
    }

    fn poll_transmit(&mut self, out: &mut SendQueue) {
        if std::mem::replace(&mut self.asking, false) {
            out.push_slice(self.request.as_bytes());
        }
    }
}
