//! Accepted connections whose proxy has not yet named its client (`server.proxy_protocol`). There is no session until
//! the header is complete, because everything about a session depends on its peer.
//!
//! 1. A connection from an address that is not a trusted proxy is refused before any byte of it is
//!    read.
//! 2. The header is examined in the kernel's buffer, and read only once it is complete. The bytes after it are not
//!    touched, because TLS may begin there.
//! 3. If a header is malformed or late, the connection is closed, and one line is logged.

mod header;

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::budget::Permit;
use crate::protocol::Listener;
use header::{HEADER_BYTES_MAX, Header, Malformed};

/// Time limit for a PROXY header. A proxy sends the header with its first segment.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of waiting connections of a worker. If there are more, the oldest one is refused.
const WAITING_MAX: usize = 1024;

/// A connection that waits for its PROXY header.
#[derive(Debug)]
struct Waiting {
    accepted: Accepted,
    number: u64,
}

/// A connection from a proxy.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    /// The address of the proxy.
    pub(super) peer: SocketAddr,
    pub(super) listener: &'static Listener,
    /// The permit of the proxy. It is later replaced by one for the client.
    pub(super) permit: Permit,
}

/// Connections that wait for their PROXY header.
#[derive(Debug)]
pub(super) struct Prefaces {
    /// Token of the first place. The tokens of further places count down from it.
    first: usize,
    places: Vec<Option<Waiting>>,
    free: Vec<usize>,
    /// Deadlines, places and numbers of the waiting connections, oldest first.
    order: VecDeque<(Instant, usize, u64)>,
    begun: u64,
    readable: Vec<usize>,
    refused: u32,
}

impl Prefaces {
    pub(super) const fn new(first: usize) -> Self {
        Self {
            first,
            places: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
            begun: 0,
            readable: Vec::new(),
            refused: 0,
        }
    }

    /// Handles an event if its token belongs to a connection that waits for its header. Returns
    /// true if it does. There are never more than [`WAITING_MAX`] places for such connections.
    pub(super) fn take_event(&mut self, token: Token) -> bool {
        let Some(place) = self.first.checked_sub(token.0).filter(|place| *place < WAITING_MAX) else {
            return false;
        };
        self.readable.push(place);
        true
    }

    /// Makes a connection wait for its PROXY header.
    pub(super) fn add(&mut self, now: Instant, registry: &Registry, accepted: Accepted) -> io::Result<()> {
        if self.free.is_empty() && self.places.len() >= WAITING_MAX {
            self.end_oldest(registry);
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len().saturating_sub(1)
        });
        let mut waiting = Waiting { accepted, number: self.begun };
        let token = Token(self.first.saturating_sub(place));
        if let Err(error) = registry.register(&mut waiting.accepted.stream, token, Interest::READABLE) {
            self.free.push(place);
            return Err(error);
        }
        self.begun = self.begun.saturating_add(1);
        self.order.push_back((now.checked_add(PATIENCE).unwrap_or(now), place, waiting.number));
        if let Some(entry) = self.places.get_mut(place) {
            *entry = Some(waiting);
        }
        Ok(())
    }

    /// Returns the connections whose PROXY header is complete, each with its client, and the number of
    /// connections refused since the last call because their header was late or malformed, or because too
    /// many waited.
    pub(super) fn turn(&mut self, now: Instant, registry: &Registry) -> (Vec<(Accepted, SocketAddr)>, u32) {
        let mut ready = Vec::new();
        for place in std::mem::take(&mut self.readable) {
            let Some(waiting) = self.places.get_mut(place).and_then(Option::as_mut) else { continue };
            let verdict = waiting.accepted.take_header();
            match verdict {
                Ok(None) => {}
                Ok(Some(header)) => {
                    if let Some(accepted) = self.leave(registry, place) {
                        let client = header.source.unwrap_or(accepted.peer);
                        ready.push((accepted, client));
                    }
                }
                Err(why) => self.refuse(registry, place, why),
            }
        }
        while let Some(&(until, place, number)) = self.order.front() {
            let is_there =
                self.places.get(place).and_then(Option::as_ref).is_some_and(|w| w.number == number);
            if is_there && until > now {
                break;
            }
            self.order.pop_front();
            if is_there {
                self.refuse(registry, place, "no whole PROXY header in time");
            }
        }
        (ready, std::mem::take(&mut self.refused))
    }

    /// Returns the deadline of the oldest connection.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.order.front().map(|(until, _, _)| *until)
    }

    fn end_oldest(&mut self, registry: &Registry) {
        while let Some((_, place, number)) = self.order.pop_front() {
            if self.places.get(place).and_then(Option::as_ref).is_some_and(|w| w.number == number) {
                return self.refuse(registry, place, "too many connections wait for their PROXY header");
            }
        }
    }

    fn refuse(&mut self, registry: &Registry, place: usize, why: &str) {
        if let Some(accepted) = self.leave(registry, place) {
            self.refused = self.refused.saturating_add(1);
            note_refused(accepted.listener, accepted.peer, why);
        }
    }

    fn leave(&mut self, registry: &Registry, place: usize) -> Option<Accepted> {
        let mut accepted = self.places.get_mut(place)?.take()?.accepted;
        self.free.push(place);
        let _ = registry.deregister(&mut accepted.stream);
        Some(accepted)
    }
}

/// Logs that a connection was refused.
pub(super) fn note_refused(listener: &Listener, peer: SocketAddr, why: &str) {
    tracing::warn!(listener = listener.name, %peer, reason = why, "connection refused: no PROXY header");
}

impl Accepted {
    /// Takes the header out of the socket; `None` if the header is incomplete.
    fn take_header(&mut self) -> Result<Option<Header>, &'static str> {
        let mut buffer = [0; HEADER_BYTES_MAX];
        let seen = loop {
            match self.stream.peek(&mut buffer) {
                Ok(0) => return Err("the proxy left"),
                Ok(seen) => break seen,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err("the connection broke"),
            }
        };
        let bytes = buffer.get(..seen).unwrap_or_default();
        let header = header::read(bytes).map_err(|Malformed(why)| why)?;
        if let Some(header) = header {
            // The whole header is in the kernel's buffer, so a single read takes all of it.
            let whole = buffer.get_mut(..header.bytes).unwrap_or_default();
            self.stream.read_exact(whole).map_err(|_| "the connection broke")?;
        }
        Ok(header)
    }
}
